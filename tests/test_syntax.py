"""Python source to a syntax tree, in more threads than one."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from patchkit.syntax import parse

DEEP = "".join(
    f"def f{number}(a):\n    return {'(1 + ' * 40}a{')' * 40}\n" for number in range(150)
)


@pytest.fixture
def threads_that_switch_while_garbage_is_collected() -> Iterator[None]:
    """As a profiler, a tracer or a property test's library has them: a callback in Python."""

    def switch(phase: str, info: object) -> None:
        time.sleep(0.0005)

    before = gc.get_threshold()
    gc.callbacks.append(switch)
    gc.set_threshold(100)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(switch)


@pytest.mark.usefixtures("threads_that_switch_while_garbage_is_collected")
def test_threads_that_parse_at_once_do_not_count_each_others_depth() -> None:
    """Python 3.11 ends in "AST constructor recursion depth mismatch"."""
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(parse, [DEEP] * 8))
    assert len(trees) == 8


@pytest.mark.filterwarnings("error")
def test_warnings_of_the_source_are_not_ours() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(parse, [r'x = "\d"'] * 50))) == 50
