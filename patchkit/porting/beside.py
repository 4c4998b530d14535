"""Two insertions at one place, whose order is known: imports and entries that are sorted.

Where ours and theirs both add lines between the same two lines, a merge must choose an
order.  Defs, options and parameters were tried, since the code would do the same either
way: on real releases a third of them came out in another order than upstream wrote.  Must
not do I/O.
"""

from __future__ import annotations

import ast
import re
import textwrap

from .imports import natural
from .source import Source

Span = tuple[int, int]


def arranged(
    own: list[bytes], other: list[bytes], ends: tuple[bytes, bytes], source: Source, place: Span
) -> list[bytes] | None:
    """Both in the order that they may have; None where the order may matter.  The lines of
    ours stand at ``place`` in ``source``; ``ends`` are the lines that theirs has around its
    own."""
    if source.tree is None:
        return None
    mine, yours = _statements(own), _statements(other)
    if mine and yours and all(map(_imports, (*mine, *yours))):
        return _sorted_in(own, other, ends)
    if _entries(own, other, source.tree, place):
        return _sorted_in(own, other, ends)
    return None


_ENTRY = re.compile(
    rb"""\s*(?:(?P<name>[\w.]+(?:\ as\ \w+)?)|(?P<text>"[^"\\]*"|'[^'\\]*')
    |(?P<pair>(?:"[^"\\]*"|'[^'\\]*'|[\w.]+):\ [^()\[\]{}]+|\w+=[^()\[\]{}]+)),\s*(?:\#.*)?\Z""",
    re.VERBOSE,
)


def _entries(own: list[bytes], other: list[bytes], tree: ast.Module, place: Span) -> bool:
    """Whether both sides add whole entries, a line each, to one import list, dict, set,
    ``__all__``, or list of keywords; none of them twice."""
    found = [_ENTRY.match(line) for line in (*own, *other)]
    keys = [re.split(rb"[:=,]", line.strip(), maxsplit=1)[0] for line in (*own, *other)]
    if None in found or len(set(keys)) != len(keys):
        return False
    kinds = {match.lastgroup for match in found if match is not None}
    inner = _innermost(tree, place)
    if isinstance(inner, ast.ImportFrom):
        return kinds == {"name"}
    if isinstance(inner, (ast.Dict, ast.Call)):
        return kinds == {"pair"}
    return isinstance(inner, (ast.Set, ast.List)) and kinds == {"text"}


def _innermost(tree: ast.Module, place: Span) -> ast.AST | None:
    """The innermost node whose inside holds the lines."""
    best: ast.AST | None = None
    work: list[ast.AST] = [tree]
    while work:
        for child in ast.iter_child_nodes(work.pop()):
            start, end = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
            if start is None or end is None:
                work.append(child)
            elif start - 1 < place[0] and place[1] < end:
                best = child
                work = [child]
                break
    return best


def _statements(lines: list[bytes]) -> list[ast.stmt] | None:
    text = textwrap.dedent(b"".join(lines).decode("utf-8", "replace"))
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):
        return None


def _imports(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _sorted_in(
    own: list[bytes], other: list[bytes], ends: tuple[bytes, bytes]
) -> list[bytes] | None:
    """Imports and entries where they sort; None where theirs are not sorted with what stands
    around them, or ours are more than one and would be torn apart."""

    def key(line: bytes) -> tuple[bool, list[tuple[int, str]]]:
        return line.startswith(b"from"), natural(line.strip().decode("utf-8", "replace"))

    indent = own[0][: len(own[0]) - len(own[0].lstrip())]
    around = [
        [end] if _single(end) and end[: len(end) - len(end.lstrip())] == indent else []
        for end in ends
    ]
    keys = [key(line) for line in (*around[0], *other, *around[1])]
    if len(keys) < 3 or keys != sorted(keys) or not all(map(_single, (*own, *other))):
        return None
    places = {sum(1 for line in other if key(line) < key(mine)) for mine in own}
    if len(places) > 1:
        return None
    if (around[0] and key(own[0]) < keys[0]) or (around[1] and key(own[-1]) > keys[-1]):
        return None
    place = places.pop()
    return [*other[:place], *own, *other[place:]]


def _single(line: bytes) -> bool:
    return bool(line.strip()) and not line.rstrip().endswith((b"(", b"\\"))
