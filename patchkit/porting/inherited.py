"""Methods that a patch adds to a base class, and uses through ``self`` in another file.

The judge of one file cannot see that upstream made a part of the base class: then ``self`` of
the one has not what the patch gives the other.  Must not do I/O.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .model import FileResult, Problem
from .source import Source


def no_more_inherited(results: Sequence[FileResult]) -> dict[int, Problem]:
    """By the index of its file: each class that takes a method of the patch from a base class
    in ours, and in what was ported has not the class in which that method came to stand."""
    if len(results) < 2:
        return {}
    ours = [_Classes(one.old_path or one.path or "", one.ours) for one in results]
    given = list(_given(results, ours))
    if not given:
        return {}
    there = [_Classes(one.path or "", one.data) for one in results]
    found: dict[int, Problem] = {}
    for number, (mine, merged) in enumerate(zip(ours, there, strict=True)):
        for user, bases in mine.bases.items():
            for method, giver, path in given:
                line = merged.uses(user, method)
                if giver not in bases or line is None or method in merged.methods[user]:
                    continue
                homes = {
                    name
                    for one, classes in zip(results, there, strict=True)
                    for name, methods in classes.methods.items()
                    if one.old_path == path and method in methods
                }
                if homes and not homes & merged.bases[user]:
                    text = f"self.{method} is of {min(homes)} there, which {user} does not inherit"
                    found.setdefault(number, Problem("undefined", text, line))
    return found


def _given(
    results: Sequence[FileResult], ours: Sequence[_Classes]
) -> Iterator[tuple[str, str, str | None]]:
    """The methods that a patch adds: each with its class, and the path of that in the base."""
    for one, classes in zip(results, ours, strict=True):
        before = _Classes(one.old_path or one.path or "", one.base)
        for name, methods in classes.methods.items():
            for method in methods - before.methods.get(name, frozenset()):
                yield method, name, one.old_path


class _Classes:
    """The classes at the top of a file."""

    def __init__(self, path: str, data: bytes | None) -> None:
        tree = Source(path, data).tree if data is not None else None
        nodes = [] if tree is None else [n for n in tree.body if isinstance(n, ast.ClassDef)]
        self._nodes = {node.name: node for node in nodes}
        self.bases = {node.name: frozenset(_names(node.bases)) for node in nodes}
        self.methods = {
            node.name: frozenset(
                child.name
                for child in node.body
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            )
            for node in nodes
        }

    def uses(self, name: str, method: str) -> int | None:
        """The line where a class first reads ``self.METHOD``, or None."""
        lines = [
            node.lineno
            for node in ast.walk(self._nodes.get(name, ast.Module([], [])))
            if isinstance(node, ast.Attribute)
            and node.attr == method
            and isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls")
        ]
        return min(lines, default=None)


def _names(bases: Sequence[ast.expr]) -> Iterator[str]:
    for base in bases:
        node = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
