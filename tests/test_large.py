"""Bodies that are longer than the reader's window: read in pieces, they say the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from patchkit import patchfile
from patchkit.errors import PatchSyntaxError
from patchkit.hunks import patch_text
from patchkit.model import Hunk
from tests.releases import ROOT

WINDOW = 128 * 1024
#: A long run of each sign: text that itself begins with signs, blanks or nothing.
TEXTS = (b"a line of text\n", b"\n", b"- minus\n", b"+ plus\n", b" blank\n", b"\\ mark\n", b"\r\n")


def texts(count: int) -> list[bytes]:
    return [b"%d %s" % (n, t) if n % 5 else t for n, t in zip(range(count), itertools.cycle(TEXTS))]


def hunk_of(runs: list[tuple[bytes, int]], *, old: int = 0, new: int = 0) -> bytes:
    """A patch of one hunk with runs of signs; ``old`` and ``new`` make its counts lie."""
    lines = [sign + text for sign, count in runs for text in texts(count)]
    counts = [sum(count for sign, count in runs if sign in (b" ", side)) for side in (b"-", b"+")]
    head = b"--- a/x\n+++ b/x\n@@ -%d,%d +%d,%d @@ def f\n"
    starts = [int(count > 0) for count in counts]
    return head % (starts[0], counts[0] + old, starts[1], counts[1] + new) + b"".join(lines)


def only_hunk(patch: bytes) -> Hunk:
    ((hunk,),) = (file.hunks for file in patchfile.parse(patch, "demo.patch").files)
    return hunk


def verdict(patch: bytes) -> object:
    """Everything that the reader says of a patch."""
    try:
        return patchfile.parse(patch, "demo.patch")
    except PatchSyntaxError as error:
        return error.message, error.line, error.hint, error.detail


LONG = 30_000
RUNS = {
    "removed, then added": [(b"-", LONG), (b"+", LONG)],
    "added, then removed": [(b"+", LONG), (b"-", LONG)],
    "added alone": [(b"+", LONG)],
    "removed alone": [(b"-", LONG)],
    "context around": [(b" ", LONG), (b"+", 1), (b" ", LONG)],
    "one by one": [(b" ", 1), *[(b"-", 1), (b"+", 1)] * LONG],
}


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_every_line_of_a_long_body_is_kept(runs: list[tuple[bytes, int]]) -> None:
    patch = hunk_of(runs)
    assert len(patch) > 2 * WINDOW
    hunk = only_hunk(patch + b"-- \n2.39.5\n")
    old = b"".join(t for sign, count in runs if sign != b"+" for t in texts(count))
    new = b"".join(t for sign, count in runs if sign != b"-" for t in texts(count))
    assert hunk.old_text == old
    assert hunk.new_text == new
    assert hunk.signs == b"".join(sign * count for sign, count in runs)
    assert patch_text(old, [hunk])[0] == new


def test_a_mark_behind_a_long_run_takes_its_line_end() -> None:
    mark = b"\\ No newline at end of file\n"
    hunk = only_hunk(hunk_of([(b"-", LONG), (b"+", LONG)]) + mark)
    assert hunk.new_text == b"".join(texts(LONG))[:-1]
    assert hunk.old_text == b"".join(texts(LONG))


@pytest.mark.parametrize("sign", [b"+", b"-", b" "])
@pytest.mark.parametrize("lie", [-1, 1])
def test_a_long_run_is_held_to_its_counts(sign: bytes, lie: int) -> None:
    runs = [(b" ", 1), (b"+" if sign == b" " else b" ", 1), (sign, LONG)]
    patch = hunk_of(runs, old=lie * (sign != b"+"), new=lie * (sign != b"-"))
    with pytest.raises(PatchSyntaxError) as caught:
        patchfile.parse(patch, "demo.patch")
    assert caught.value.line == (3 if lie > 0 else 3 + 2 + LONG)
    assert ("ends inside a hunk" if lie > 0 else "no hunk counts") in caught.value.message


def test_an_odd_line_in_a_long_run_is_named() -> None:
    lines = hunk_of([(b"-", LONG), (b"+", LONG)]).split(b"\n")
    for place in (5000, LONG + 5000):
        damaged = b"\n".join([*lines[:place], b"odd", *lines[place:]])
        with pytest.raises(PatchSyntaxError, match="begins with none of") as caught:
            patchfile.parse(damaged, "demo.patch")
        assert caught.value.line == place + 1


def test_a_body_without_a_line_end_is_cut_off() -> None:
    with pytest.raises(PatchSyntaxError, match="ends inside its last line") as caught:
        patchfile.parse(hunk_of([(b"-", LONG)])[:-1], "demo.patch")
    assert caught.value.line == 3 + LONG


def test_a_line_longer_than_the_window() -> None:
    patch = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-%s\n+%s\n" % (b"a" * 2 * WINDOW, b"b" * 3 * WINDOW)
    hunk = only_hunk(patch)
    assert hunk.old_text == b"a" * 2 * WINDOW + b"\n"
    assert hunk.new_text == b"b" * 3 * WINDOW + b"\n"


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda size: monkeypatch.setattr(patchfile._Lines, "_WINDOW", size)


def test_shipped_patches_say_the_same_whatever_the_window(window: Callable[[int], None]) -> None:
    paths = sorted(Path(ROOT, "patches").rglob("*.patch"))
    assert paths
    for path in paths:
        data = path.read_bytes()
        window(WINDOW)
        whole = verdict(data)
        for size in (1, 100, 1000):
            window(size)
            assert verdict(data) == whole, (path, size)


PIECES = (
    *(b"+a\n", b"-a\n", b" a\n", b"+\n", b"-\n", b" \n", b"\n", b"\\ No newline\n", b"+a\r\n"),
    *(b"-- \n", b"--- a/x\n", b"+++ b/x\n", b"@@ -1,3 +1,3 @@\n", b"@@ -1,9 +1,9 @@\n"),
    *(b"prose\n", b"diff --git a/x b/x\n", b"\r\n", b"\tx\n"),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from((1, 1, 3))), max_size=20),
    st.integers(0, 9),
    st.integers(0, 9),
)
@example([(b"+aaaaaaaa\n", 1), (b" \n", 2), (b"prose\n", 1), (b"+b\n", 1)], 2, 3)
@example([(b"-a\n", 9), (b"+a\n", 9)], 8, 9)
def test_any_lines_say_the_same_whatever_the_window(
    window: Callable[[int], None], pieces: list[tuple[bytes, int]], old: int, new: int
) -> None:
    head = b"--- a/x\n+++ b/x\n@@ -1,%d +1,%d @@\n" % (old, new)
    patch = head + b"".join(piece * count for piece, count in pieces)
    window(WINDOW)
    whole = verdict(patch)
    for size in (1, 8, 30):
        window(size)
        assert verdict(patch) == whole
