"""A file as scopes and items: what a merge matches, def by def.

A scope is a def or class (of C and its kin: what stands between two headings), named by its
dotted path.  The items of a scope are its own lines and, for each def in it, one item that
stands for the whole: so lines match only inside the same def, and a def that moved takes
its lines along.  Must not do I/O and must not import what it reads.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Hashable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import NamedTuple

from patchkit.hunks import C_SOURCES, c_heading
from patchkit.model import split

Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MODULE = ""


class Scope(NamedTuple):
    """A def or class: dotted name, the name of the one it stands in, and its lines (from 0,
    the end excluded), decorators included."""

    name: str
    parent: str
    start: int
    end: int
    kind: str


class Item(NamedTuple):
    """A line, or a whole def (``child`` is its name), of the lines from ``start`` on."""

    key: Hashable
    start: int
    end: int
    child: str | None = None


class Source:
    """One file's text.  ``tree`` is None where it is no Python or does not parse;
    ``problem`` then says why."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self.lines = split(data)
        self.python = path.endswith((".py", ".pyi"))
        self.tree: ast.Module | None = None
        self.problem: str | None = None
        if self.python:
            self._parse()

    def _parse(self) -> None:
        if b"\r" in self.data.replace(b"\r\n", b"") or b"\f" in self.data:
            self.problem = "it holds a lone carriage return or form feed"
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.tree = ast.parse(self.data)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if line else ""
            self.problem = f"{getattr(error, 'msg', None) or error}{where}"

    @cached_property
    def scopes(self) -> dict[str, Scope]:
        """Every def and class by its dotted name; a second one of a name gets ``#2``."""
        if self.tree is not None:
            return dict(_python_scopes(self.tree))
        if self.path.endswith(C_SOURCES):
            return dict(_c_scopes(self.lines))
        return {}

    @cached_property
    def constants(self) -> dict[str, tuple[int, int]]:
        """The names that are bound once at the top of a Python file by an assignment of their
        own, with its lines."""
        found: dict[str, tuple[int, int]] = {}
        twice: set[str] = set()
        for node in [] if self.tree is None else self.tree.body:
            if isinstance(node, ast.Assign):
                targets = node.targets
            else:
                targets = [node.target] if isinstance(node, ast.AnnAssign) else []
            for target in targets:
                if isinstance(target, ast.Name):
                    if target.id in found:
                        twice.add(target.id)
                    found[target.id] = node.lineno - 1, node.end_lineno or node.lineno
        return {name: lines for name, lines in found.items() if name not in twice}

    @cached_property
    def owners(self) -> list[str]:
        """For each line the innermost scope that it stands in."""
        owners = [MODULE] * len(self.lines)
        for scope in self.scopes.values():  # outer ones come first
            owners[scope.start : scope.end] = [scope.name] * (scope.end - scope.start)
        return owners

    def names(self, renames: Mapping[str, str]) -> dict[str, str]:
        """Own scope name to the name by which the scopes of the other sides are known."""
        known: dict[str, str] = {MODULE: MODULE}
        for name, scope in self.scopes.items():
            renamed = renames.get(name)
            if renamed is None:
                tail = name[len(scope.parent) :]
                renamed = known[scope.parent] + (tail if known[scope.parent] else tail.lstrip("."))
            known[name] = renamed
        return known

    def items(self, shared: AbstractSet[str], renames: Mapping[str, str]) -> dict[str, list[Item]]:
        """The items of every scope in ``shared`` (known names); the lines of other defs
        count to the scope around them, with their own name in the key."""
        known = self.names(renames)
        home: dict[str, str] = {MODULE: MODULE}
        for name, scope in self.scopes.items():
            home[name] = name if known[name] in shared else home[scope.parent]
        out: dict[str, list[Item]] = {MODULE: []}
        starts = {scope.start: scope for name, scope in self.scopes.items() if home[name] == name}
        for name in self.scopes:
            if home[name] == name:
                out[known[name]] = []
        for number, (owner, line) in enumerate(zip(self.owners, self.lines, strict=True)):
            begins = starts.get(number)
            if begins is not None:
                parent, child = home[begins.parent], known[begins.name]
                out[known[parent]].append(Item((None, child), begins.start, begins.end, child))
            at = home[owner]
            inner = "" if owner == at else known[owner]
            out[known[at]].append(Item((inner, line), number, number + 1))
        return out


def _python_scopes(tree: ast.Module) -> Iterator[tuple[str, Scope]]:
    seen: set[str] = set()
    busy = -1

    def walk(node: ast.AST, parent: str) -> Iterator[tuple[str, Scope]]:
        nonlocal busy
        for child in sorted(_inside(node), key=lambda child: child.lineno):
            start = min([child.lineno, *(d.lineno for d in child.decorator_list)]) - 1
            if start <= busy:  # on a line with something else
                continue
            busy = child.lineno - 1
            name = _fresh(f"{parent}.{child.name}" if parent else child.name, seen)
            kind = "class" if isinstance(child, ast.ClassDef) else "def"
            yield name, Scope(name, parent, start, child.end_lineno or child.lineno, kind)
            yield from walk(child, name)

    yield from walk(tree, MODULE)


def _inside(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The defs and classes of one body, also those under ``if``, ``try`` and their like."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield child
        elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _inside(child)


def _fresh(plain: str, seen: set[str]) -> str:
    """A name that is not taken: a second one of a name gets ``#2``."""
    name, count = plain, 1
    while name in seen:
        count += 1
        name = f"{plain}#{count}"
    seen.add(name)
    return name


def _c_scopes(lines: list[bytes]) -> Iterator[tuple[str, Scope]]:
    """C and its kin: from each line at the left margin that names a function or type to the
    next such line."""
    heads = [(n, name) for n, line in enumerate(lines) if (name := c_heading(line))]
    seen: set[str] = set()
    for (start, name), (end, _) in zip(heads, [*heads[1:], (len(lines), b"")], strict=True):
        text = _fresh(name.decode("utf-8", "replace"), seen)
        yield text, Scope(text, MODULE, start, end, "def")
