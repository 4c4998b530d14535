"""Traps made of real pairs: places that look right and are not.

``copy``  a copy of the def or class that the patch changes, as upstream has it, stands before
          it under another name; the change belongs to the old one, byte for byte.
``gone``  the def is taken out of the release; nothing of it may change, wherever its text
          may stand as well.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence

from .pairs import Hunk, Pair, hunks, scope_of


def traps(made: Sequence[Pair]) -> Iterator[Pair]:
    """Two traps of each carried pair whose hunks all lie in one def or class."""
    for pair in made:
        if pair.kind != "carried" or not pair.path.endswith(".py"):
            continue
        changes = hunks(pair.before, pair.patched)
        name = _only_def(pair.before, changes)
        if name is None or not _stays_inside(pair, name, changes):
            continue
        here, there = _span(pair.theirs, name), _span(pair.truth, name)
        if here is None or there is None:
            continue
        lines, truth = (data.splitlines(keepends=True) for data in (pair.theirs, pair.truth))
        if lines[: here[0]] != truth[: there[0]]:
            continue  # an import of the patch stands above
        block = lines[here[0] : here[1]]
        head = re.compile(rb"((?:def|class)[ \t]+)" + re.escape(name.encode()) + rb"\b")
        copy = [head.sub(rb"\g<1>" + name.encode() + b"_before", line, count=1) for line in block]
        if copy != block:
            yield pair._replace(
                key=pair.key.replace("carried", "copy", 1),
                kind="copy",
                theirs=b"".join([*lines[: here[0]], *copy, b"\n\n", *lines[here[0] :]]),
                truth=b"".join([*truth[: there[0]], *copy, b"\n\n", *truth[there[0] :]]),
            )
        rest = b"".join([*lines[: here[0]], *lines[here[1] :]])
        yield pair._replace(
            key=pair.key.replace("carried", "gone", 1), kind="gone", theirs=rest, truth=rest
        )


def _stays_inside(pair: Pair, name: str, changes: Sequence[Hunk]) -> bool:
    """Whether all that is added stands in the def; a diff may begin a new def inside it."""
    owners = scope_of(pair.patched, pair.path) or []
    lines = pair.patched.split(b"\n")
    return all(
        owners[n].split(".")[1:2] == [name]
        for change in changes
        for n in range(change.b0, change.b1)
        if lines[n].strip()
    )


def _tops(data: bytes) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body = ast.parse(data).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in body if isinstance(node, kinds)]


def _range(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> tuple[int, int]:
    start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return start - 1, node.end_lineno or node.lineno


def _only_def(data: bytes, changes: Sequence[Hunk]) -> str | None:
    """The def or class at the top of the file that all changes lie inside."""
    for node in _tops(data):
        start, end = _range(node)
        if changes and all(start < change.a0 and change.a1 < end for change in changes):
            return node.name
    return None


def _span(data: bytes, name: str) -> tuple[int, int] | None:
    found = [node for node in _tops(data) if node.name == name]
    return _range(found[0]) if len(found) == 1 else None
