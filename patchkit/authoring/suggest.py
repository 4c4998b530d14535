"""Assertions suggested from what a patch changes, each tried before it is suggested.

Reads nothing by itself: it is given a file before and after.  A suggestion fails on the file
as it was, and holds on the file as it is to be; what does not is dropped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from patchkit.assertions import evaluate
from patchkit.assertions.expressions import operands
from patchkit.assertions.index import indexed
from patchkit.assertions.literal import elements
from patchkit.assertions.source import Unreadable, is_python
from patchkit.model import Assertion, Condition, FilePatch, Literal_, split

#: For one file; an author reads them all.
MOST = 6
# A line shorter than this says too little to be looked for.
_SHORT = 6
# And one that is longer is rather prose or data.
_LONG = 100
#: How a line begins that is no code.
_REMARKS = ("#", '"""', "'''", "//")


class Block(NamedTuple):
    """Lines that one place loses and gets: numbers from 1, and text without line ends."""

    old: tuple[tuple[int, str], ...]
    new: tuple[tuple[int, str], ...]


def blocks(file: FilePatch) -> Iterator[Block]:
    """The runs of changed lines of a file patch."""
    for hunk in file.hunks:
        old_at, new_at = max(hunk.old_start, 1), max(hunk.new_start, 1)
        old_lines, new_lines = iter(hunk.old), iter(hunk.new)
        gone: list[tuple[int, str]] = []
        come: list[tuple[int, str]] = []
        for sign in hunk.signs.decode("ascii"):
            if sign == "-":
                gone.append((old_at, _text(next(old_lines))))
                old_at += 1
            elif sign == "+":
                come.append((new_at, _text(next(new_lines))))
                new_at += 1
            elif sign != "\\":
                if gone or come:
                    yield Block(tuple(gone), tuple(come))
                    gone, come = [], []
                next(old_lines), next(new_lines)
                old_at += 1
                new_at += 1
        if gone or come:
            yield Block(tuple(gone), tuple(come))


def suggestions(
    distribution: str,
    path: str,
    before: bytes | None,
    after: bytes | None,
    changes: Sequence[Block],
) -> list[Assertion]:
    """What can be asserted of a changed file, for each run of changed lines at most one.

    Empty for a file that goes: nothing can be said of what is not there.
    """
    if after is None:
        return []
    if before is None:
        return _of_new_file(Assertion("assert", distribution, path), after)
    found: list[Assertion] = []
    # What a remark says proves nothing of the code.
    for block in [one for one in changes if not _remarks(one)] or changes:
        for candidate in _candidates(distribution, path, before, after, block):
            if candidate in found:
                break
            if proves(candidate, before, after):
                found.append(candidate)
                break
        if len(found) >= MOST:
            break
    return found


def _remarks(block: Block) -> bool:
    lines = (text.strip() for _, text in (*block.old, *block.new))
    return all(not text or text.startswith("#") for text in lines)


def _of_new_file(bare: Assertion, after: bytes) -> list[Assertion]:
    """Of a file that comes whole: the first def or class in it, else a line of it."""
    lines = [_text(line) for line in split(after)]
    first = [line for line in lines if line.startswith(("def ", "class ", "async def "))][:1]
    for some in (first, lines):
        for one in _texts(bare, Block((), tuple(enumerate(some, 1))), None):
            if proves(one, None, after):
                return [one]
    return []


def proves(one: Assertion, before: bytes | None, after: bytes | None) -> bool:
    """Whether an assertion fails on the file as it was and holds on it as it will be."""
    nothing: Mapping[str, bytes] = {}
    return not evaluate(one, before, nothing.get).ok and evaluate(one, after, nothing.get).ok


def enclosing(data: bytes, line: int) -> str | None:
    """The dotted name of the innermost def or class around a line; None at the top, or where
    the file is no Python."""
    try:
        definitions = indexed(data).definitions
    except (Unreadable, RecursionError, MemoryError):
        return None
    around = [
        (span.last - span.first, name)
        for name, spans in definitions.items()
        for span in spans
        if span.holds(line)
    ]
    return min(around)[1] if around else None


def _candidates(
    distribution: str, path: str, before: bytes | None, after: bytes, block: Block
) -> Iterator[Assertion]:
    bare = Assertion("assert", distribution, path)
    within = None
    if is_python(path):
        if block.new:
            within = enclosing(after, block.new[0][0])
        elif before is not None:
            within = enclosing(before, block.old[0][0])
        if block.new and before is not None:
            scoped = bare._replace(within=within, scope="code")
            yield from _of_tree(scoped, before, after, block)
    yield from _texts(bare, block, within)
    yield from absences(bare, [text for _, text in block.old], within)
    yield from _counts(bare, block, after)


def _texts(bare: Assertion, block: Block, within: str | None) -> Iterator[Assertion]:
    """A line that comes, the longest first: what is longest says most, as long as a person
    reads it."""
    lines = sorted({text.strip() for _, text in block.new}, key=_rank)
    for text in lines[:8]:
        if len(text) >= _SHORT and not text.startswith(_REMARKS):
            yield from ways(bare._replace(text=text), within)


def _rank(text: str) -> tuple[bool, int, str]:
    return len(text) > _LONG, -len(text), text


def _counts(bare: Assertion, block: Block, after: bytes) -> Iterator[Assertion]:
    """A line that was there before, but not as often; or that no code has."""
    lines = sorted({text.strip() for _, text in block.new}, key=_rank)
    for text in lines[:4]:
        if len(text) >= _SHORT:
            number = after.decode("utf-8", "replace").count(text)
            yield bare._replace(text=text, scope="text", minimum=number, maximum=number)


def absences(bare: Assertion, lines: Sequence[str], within: str | None) -> Iterator[Assertion]:
    """A line that goes, which must not stand there any more."""
    for text in sorted({line.strip() for line in lines}, key=_rank)[:8]:
        if len(text) >= _SHORT:
            yield from ways(bare._replace(text=text, minimum=0, maximum=0), within)


def ways(one: Assertion, within: str | None) -> Iterator[Assertion]:
    """In code and within the def, where that can be; else as plain text."""
    if is_python(one.file):
        yield one._replace(within=within, scope="code")
        yield one._replace(within=within, scope="text")
        return
    yield one._replace(scope="text")


# -- Python -----------------------------------------------------------------------------


def _of_tree(bare: Assertion, before: bytes, after: bytes, block: Block) -> Iterator[Assertion]:
    """A display that holds more, or a condition that another operand decides."""
    try:
        old, new = ast.parse(before), ast.parse(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines = {number for number, _ in block.new}
    yield from _literals(bare, old, new, lines)
    yield from _conditions(bare, old, new, lines)


def _touches(node: ast.AST, lines: set[int]) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and any(first <= n <= last for n in lines)


def _named(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What is bound to a name, or given as a keyword."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, (ast.Name, ast.Attribute)):
                yield ast.unparse(target), node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            if isinstance(node.target, (ast.Name, ast.Attribute)):
                yield ast.unparse(node.target), node.value
        elif isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg, node.value


def _literals(bare: Assertion, old: ast.AST, new: ast.AST, lines: set[int]) -> Iterator[Assertion]:
    were: dict[str, list[object]] = {}
    for name, value in _named(old):
        were.setdefault(name, []).extend(_constants(value))
    for name, value in _named(new):
        if name in were and _touches(value, lines):
            added = [item for item in _constants(value) if item not in were[name]]
            if added:
                yield bare._replace(literal=Literal_(name, tuple(added)), minimum=1, maximum=None)


def _constants(node: ast.expr) -> list[object]:
    """The elements of a display that TOML can say."""
    return [e for e in elements(node) or () if isinstance(e, (str, int, float))]


def _conditions(
    bare: Assertion, old: ast.AST, new: ast.AST, lines: set[int]
) -> Iterator[Assertion]:
    were = [
        (type(node.op), {ast.dump(part) for part in operands(node)})
        for node in ast.walk(old)
        if isinstance(node, ast.BoolOp)
    ]
    # One operand is no BoolOp yet.
    alone = {ast.dump(node) for node in ast.walk(old) if isinstance(node, ast.expr)}
    touched = [n for n in ast.walk(new) if isinstance(n, ast.BoolOp) and _touches(n, lines)]
    # The innermost first: there the operand that is new is one of few.
    for node in sorted(touched, key=lambda n: sum(1 for _ in ast.walk(n))):
        parts = {ast.dump(part): ast.unparse(part) for part in operands(node)}
        earlier = [known for op, known in were if op is type(node.op) and known < set(parts)]
        earlier += [{one} for one in parts if one in alone]
        for known in sorted(earlier, key=lambda one: (-len(one), sorted(one)))[:1]:
            added = [text for key, text in parts.items() if key not in known]
            if not added or any(len(text) > 80 for text in parts.values()):
                continue
            wanted = isinstance(node.op, ast.Or)
            given = tuple((text, (text == added[0]) is wanted) for text in sorted(parts.values()))
            yield bare._replace(condition=Condition(ast.unparse(node), given, wanted))


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")
