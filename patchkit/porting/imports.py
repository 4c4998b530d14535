"""Imports as sets: names that a patch adds to an import, or takes out, wherever they sort.

The order of the names in one import says nothing, nor does that of imports of a block; so
a change of nothing but these has its place also where upstream changed their neighbours.
Must not do I/O.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from .source import MODULE, Definition, Source

Span = tuple[int, int]
#: Longer lines are broken, one name on each (the rule of black and isort).
_WIDTH = 88


class ImportEdit(NamedTuple):
    """Lines of theirs that become others."""

    start: int
    end: int
    lines: tuple[bytes, ...]


def set_imports(
    base: Source,
    ours: Source,
    theirs: Source,
    scope: tuple[str, str, str],
    spans: tuple[Span, Span],
) -> list[ImportEdit] | None:
    """The edits of theirs that make the change of the lines ``spans`` (in base and ours);
    None where it is of anything but imports, or theirs has no place for one of them.

    ``scope`` names the def, as ours, theirs and base know it.
    """
    if base.tree is None or ours.tree is None or theirs.tree is None:
        return None
    old, new = _imports(base, spans[0]), _imports(ours, spans[1])
    if old is None or new is None or not (old or new):
        return None
    was, now = _bound(old), _bound(new)
    there = _all(theirs, scope[1])
    edits: list[ImportEdit] = []
    for module in sorted(was.keys() | now.keys()):
        added = [name for name in now.get(module, ()) if name not in was.get(module, ())]
        removed = [name for name in was.get(module, ()) if name not in now.get(module, ())]
        if not added and not removed:
            return None  # the layout alone
        if not module or "*" in (*added, *removed):
            return None
        nodes = [node for node in there if _module(node) == module]
        if removed and not nodes:
            return None  # the module may have another name now
        known = {
            name
            for node in _all(base, scope[2])
            if _module(node) == module
            for name in _names(node)
        }
        if known and nodes and not _same_list(known, nodes):
            return None  # what it gave may come from elsewhere now
        held = {name for node in nodes for name in _names(node)}
        added = [name for name in added if name not in held]
        removed = [name for name in removed if name in held]
        if not added and not removed:
            continue
        if not nodes:
            runs = _runs(ours, scope[0]), _runs(theirs, scope[1])
            own = [node for node in new if _module(node) == module]
            whole = len(own) == 1 and _names(own[0]) == added
            placed = _insert(theirs, runs, module, added, _as_it_is(ours, own[0]) if whole else ())
            if placed is None:
                return None
            edits.append(placed)
            continue
        first = next((n for n in nodes if set(removed) & set(_names(n))), nodes[0])
        if not set(removed) <= set(_names(first)) or len(nodes) > 1:
            return None
        rewritten = _rewrite(theirs, first, added, removed, now.get(module, []))
        if rewritten is None:
            return None
        edits.append(rewritten)
    return edits


def _same_list(known: set[str], nodes: Sequence[ast.ImportFrom]) -> bool:
    """Whether the imports of a module give half of what they gave in the base."""
    held = {name for node in nodes for name in _names(node)}
    return len(known & held) * 2 >= min(len(known), len(held))


def _imports(source: Source, place: Span) -> list[ast.ImportFrom] | None:
    """The imports that some lines are part of; None where one is part of anything else."""
    assert source.tree is not None
    wanted = {n for n in range(*place) if source.lines[n].strip()}
    found: list[ast.ImportFrom] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            lines = set(range(node.lineno - 1, node.end_lineno or node.lineno))
            if place[0] == place[1]:
                inside = node.lineno - 1 < place[0] < (node.end_lineno or node.lineno)
            else:
                inside = bool(lines & wanted)
            if inside:
                found.append(node)
                wanted -= lines
    return None if wanted else found


def _all(source: Source, scope: str) -> list[ast.ImportFrom]:
    """The imports at the top of the file or of a def, not those under a condition."""
    return [node for node in _body(source, scope) if isinstance(node, ast.ImportFrom)]


def _body(source: Source, scope: str) -> Sequence[ast.stmt]:
    assert source.tree is not None
    if scope == MODULE:
        return source.tree.body
    found = source.scopes.get(scope)
    if found is None:
        return []
    return next(
        (
            node.body
            for node in ast.walk(source.tree)
            if isinstance(node, Definition)
            and found.start < node.lineno <= found.end
            and node.end_lineno == found.end
            and node.name == scope.rpartition(".")[2].partition("#")[0]
        ),
        [],
    )


def _module(node: ast.ImportFrom) -> str:
    return "." * node.level + (node.module or "")


def _package(node: ast.ImportFrom) -> str:
    return _module(node).partition(".")[0]


def _names(node: ast.ImportFrom) -> list[str]:
    return [f"{a.name} as {a.asname}" if a.asname else a.name for a in node.names]


def _bound(nodes: Sequence[ast.ImportFrom]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(_module(node), []).extend(_names(node))
    return found


def natural(text: str) -> list[tuple[int, str]]:
    """What isort sorts by: numbers in a name by their value, so that ``sm90`` is before
    ``sm100``."""
    parts = re.split(r"(\d+)", text.lower())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _plain(text: str) -> list[tuple[int, str]]:
    return [(-1, text.lower())]


def _key(name: str) -> tuple[int, list[tuple[int, str]]]:
    """The order of isort: constants, classes, the rest."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, natural(name)


def _arranged(names: list[str], added: Sequence[str], order: Sequence[str]) -> list[str] | None:
    """The names with those that come: where they sort; in a list that is not sorted,
    between those that stand around them in ours (``order`` is the whole list).  None where neither
    says the place."""
    for key in (_key, natural, str.lower, str):
        if names == sorted(names, key=key):
            return sorted([*names, *added], key=key)
    found = list(names)
    for name in added:
        place = order.index(name)
        before = order[place - 1] if place else None
        behind = order[place + 1] if place + 1 < len(order) else None
        at = 0 if before is None else found.index(before) + 1 if before in found else -1
        if at < 0 or (found[at] if at < len(found) else None) != behind:
            return None
        found.insert(at, name)
    return found


def _rewrite(
    theirs: Source,
    node: ast.ImportFrom,
    added: Sequence[str],
    removed: Sequence[str],
    order: Sequence[str],
) -> ImportEdit | None:
    start, end = node.lineno - 1, node.end_lineno or node.lineno
    lines = theirs.lines[start:end]
    if any(b"#" in line or b";" in line for line in lines) or not lines[-1].endswith(b"\n"):
        return None
    names = _arranged([name for name in _names(node) if name not in removed], added, order)
    if names is None:
        return None
    if not names:
        return ImportEdit(start, end, ())
    broken = len(lines) > 1 and len(lines) == len(node.names) + 2
    if len(lines) > 1 and not broken:
        return None
    return ImportEdit(start, end, _written(lines[0], _module(node), names, broken=broken))


def _written(like: bytes, module: str, names: Sequence[str], *, broken: bool) -> tuple[bytes, ...]:
    """An import with the indentation and line end of a line."""
    end = b"\r\n" if like.endswith(b"\r\n") else b"\n"
    indent = like[: len(like) - len(like.lstrip(b" \t"))]
    line = f"from {module} import {', '.join(names)}".encode()
    if not broken and len(indent) + len(line) <= _WIDTH:
        return (indent + line + end,)
    return (
        indent + f"from {module} import (".encode() + end,
        *(indent + b"    " + name.encode() + b"," + end for name in names),
        indent + b")" + end,
    )


def _insert(
    theirs: Source,
    runs: tuple[list[list[ast.ImportFrom]], list[list[ast.ImportFrom]]],
    module: str,
    names: Sequence[str],
    lines: tuple[bytes, ...],
) -> ImportEdit | None:
    """A new import (as its ``lines``, where there are any) where it sorts, in the run of imports
    that stands around it in ours, or, where no import of that is left, in the only run of its
    package; None where theirs has not that run, or not sorted."""
    ours, there = runs
    own = next((run for run in ours if any(_module(node) == module for node in run)), [])
    around = {_module(node) for node in own} - {module}
    found = [run for run in there if any(_module(node) in around for node in run)]
    if not found:  # all its neighbours went to other modules
        found = [run for run in there if _package(run[0]) == module.partition(".")[0]]
    if len(found) != 1:
        return None
    run = found[0]
    for key in (natural, _plain):
        modules = [key(_module(node)) for node in run]
        if modules == sorted(modules):
            break
    else:
        return None
    place = sum(1 for other in modules if other < key(module))
    line = run[place].lineno - 1 if place < len(run) else run[-1].end_lineno or 0
    like = theirs.lines[run[0].lineno - 1]
    if not lines or _frame(lines[0]) != _frame(like):
        lines = _written(like, module, sorted(names, key=_key), broken=False)
    return ImportEdit(line, line, lines)


def _as_it_is(ours: Source, node: ast.ImportFrom) -> tuple[bytes, ...]:
    """The lines of an import, on which nothing else stands."""
    lines = ours.lines[node.lineno - 1 : node.end_lineno]
    whole = lines[-1].endswith(b"\n") and not any(b";" in line for line in lines)
    return tuple(lines) if whole else ()


def _frame(line: bytes) -> tuple[bytes, bool]:
    """The indentation of a line and whether it ends in CR LF."""
    return line[: len(line) - len(line.lstrip(b" \t"))], line.endswith(b"\r\n")


def _runs(source: Source, scope: str) -> list[list[ast.ImportFrom]]:
    """The imports from one package that stand in a row."""
    runs: list[list[ast.ImportFrom]] = []
    last: ast.stmt | None = None
    for node in _body(source, scope):
        if isinstance(node, ast.ImportFrom):
            if isinstance(last, ast.ImportFrom) and _package(last) == _package(node):
                runs[-1].append(node)
            else:
                runs.append([node])
        last = node
    return runs
