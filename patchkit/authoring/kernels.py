"""Which modules a JIT builds of a source, as far as the generators say it.

Reads the generators as text and never runs them.  A module's name is the first argument of
the call that describes it (FlashInfer: ``gen_jit_spec("trtllm_comm", …)``).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from patchkit.jit import is_compiled, is_generator


def modules_of(
    path: str, generators: Mapping[str, bytes], lines: Collection[int] = ()
) -> list[str]:
    """The modules that are built of a source or by a generator; empty where nothing says it.

    ``generators`` maps paths to their text; a generator is looked up in it by its path.  Of a
    generator the functions that ``lines`` are in count, and all where none of them names one.
    """
    if is_generator(path):
        data = generators.get(path, b"")
        return sorted(set(_named(data, lines=lines))) or sorted(set(_named(data)))
    name = path.rpartition("/")[2]
    return sorted({one for data in generators.values() for one in _named(data, mentions=name)})


def concerns(path: str) -> bool:
    """Whether a JIT has a say in a file at all."""
    return is_compiled(path) or is_generator(path)


def _named(
    data: bytes, *, mentions: str | None = None, lines: Collection[int] | None = None
) -> Iterator[str]:
    """The names given in a generator's functions: of those that mention a source, or that some
    of the lines are in."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for scope in ast.walk(tree):
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if lines is not None and not any(
            scope.lineno <= n <= (scope.end_lineno or 0) for n in lines
        ):
            continue
        texts = [n.value for n in ast.walk(scope) if isinstance(n, ast.Constant)]
        if mentions is not None and not any(
            isinstance(text, str) and text.rpartition("/")[2] == mentions for text in texts
        ):
            continue
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and _is_spec(node.func) and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value


def _is_spec(function: ast.expr) -> bool:
    name = getattr(function, "attr", None) or getattr(function, "id", None) or ""
    return "jit_spec" in str(name)
