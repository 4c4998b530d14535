"""Contents → patch text: unified diffs as git writes them.

Three lines of context, section headings by the rule that git uses for the file's language,
full blob names.  Pure.  What is written here is read back by :mod:`patchkit.patchfile` and
placed by :mod:`patchkit.hunks` at the very lines it was made from.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .errors import Refused
from .hunks import Headings, heading
from .model import split

CONTEXT = 3
_NO_NEWLINE = b"\\ No newline at end of file\n"
# git cuts a heading at 80 bytes.
_HEADING = 80


class Side(NamedTuple):
    """One side of a change: a path, its bytes, and whether it is executable."""

    path: str
    data: bytes
    executable: bool = False


def file_diff(old: Side | None, new: Side | None, *, lead: str = "") -> bytes:
    """The diff of one file, from ``diff --git`` on; empty where nothing differs.

    ``lead`` stands between git's ``a/`` and each path.  Raises :class:`Refused` for bytes
    that are no text, since a unified diff cannot carry them.
    """
    if old == new or (old is None and new is None):
        return b""
    either = new or old
    assert either is not None
    for side in (old, new):
        if side is not None and b"\0" in side.data:
            raise Refused(
                f"{side.path} is no text", code="not-text", hint="make it with git diff --binary"
            )
    names = tuple(_name(prefix, lead, (side or either).path) for prefix, side in _sides(old, new))
    out = [b"diff --git %b %b\n" % names]
    out += _header(old, new, lead)
    blobs = tuple(_blob(side) for side in (old, new))
    body = b"".join(_hunks(old, new, either.path))
    if blobs[0] != blobs[1]:
        index = b"index %b..%b" % blobs
        same = old is not None and new is not None and old.executable == new.executable
        out.append(index + (b" %b\n" % _mode(either) if same else b"\n"))
    if body:
        out.append(b"--- %b\n" % (names[0] if old is not None else b"/dev/null"))
        out.append(b"+++ %b\n" % (names[1] if new is not None else b"/dev/null"))
    return b"".join(out) + body


def _sides(old: Side | None, new: Side | None) -> Iterator[tuple[str, Side | None]]:
    yield "a/", old
    yield "b/", new


def _header(old: Side | None, new: Side | None, lead: str) -> Iterator[bytes]:
    if old is None:
        assert new is not None
        yield b"new file mode %b\n" % _mode(new)
    elif new is None:
        yield b"deleted file mode %b\n" % _mode(old)
    else:
        if old.executable != new.executable:
            yield b"old mode %b\nnew mode %b\n" % (_mode(old), _mode(new))
        if old.path != new.path:
            share = difflib.SequenceMatcher(None, split(old.data), split(new.data), False).ratio()
            yield b"similarity index %d%%\n" % int(share * 100)
            yield b"rename from %b\n" % _name("", lead, old.path)
            yield b"rename to %b\n" % _name("", lead, new.path)


def _mode(side: Side) -> bytes:
    return b"100755" if side.executable else b"100644"


def _blob(side: Side | None) -> bytes:
    if side is None:
        return b"0" * 40
    digest = hashlib.sha1(b"blob %d\0" % len(side.data), usedforsecurity=False)
    digest.update(side.data)
    return digest.hexdigest().encode()


def _name(prefix: str, lead: str, path: str) -> bytes:
    """A name as git writes it: in C's quotes where it holds what could be misread."""
    raw = (prefix + lead + path).encode("utf-8", "surrogateescape")
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in raw):
        return raw
    quoted = b"".join(
        b"\\" + bytes([byte])
        if byte in b'"\\'
        else bytes([byte])
        if 32 <= byte < 127
        else b"\\%03o" % byte
        for byte in raw
    )
    return b'"' + quoted + b'"'


def _hunks(old: Side | None, new: Side | None, path: str) -> Iterator[bytes]:
    before = split(old.data) if old is not None else []
    after = split(new.data) if new is not None else []
    headings = Headings(before)
    for group in _groups(before, after):
        first, last = group[0], group[-1]
        old_span = _span(first[1], last[2])
        new_span = _span(first[3], last[4])
        text = heading(headings, first[1], path)[:_HEADING].rstrip()
        yield b"@@ -%b +%b @@%b\n" % (old_span, new_span, b" " + text if text else b"")
        for tag, a, b, c, d in group:
            if tag == "equal":
                yield from _lines(b" ", before[a:b])
            else:
                yield from _lines(b"-", before[a:b])
                yield from _lines(b"+", after[c:d])


Code = tuple[str, int, int, int, int]


def _groups(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[list[Code]]:
    """Runs of changes with their context.  What is equal at both ends is cut off first: the
    rest is compared line by line."""
    most = min(len(before), len(after))
    head = 0
    while head < most and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < most - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    middle = difflib.SequenceMatcher(
        None, before[head : len(before) - tail], after[head : len(after) - tail], False
    )
    codes: list[Code] = [("equal", 0, head, 0, head)] if head else []
    codes += [
        (tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in middle.get_opcodes()
    ]
    if tail:
        codes.append(("equal", len(before) - tail, len(before), len(after) - tail, len(after)))
    merged: list[Code] = []
    for code in codes:
        if merged and code[0] == merged[-1][0] == "equal":
            last = merged.pop()
            code = ("equal", last[1], code[2], last[3], code[4])
        merged.append(code)
    group: list[Code] = []
    for number, (tag, a, b, c, d) in enumerate(merged):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        if group and b - a > 2 * CONTEXT and number < len(merged) - 1:
            yield [*group, (tag, a, a + CONTEXT, c, c + CONTEXT)]
            group = []
        if not group:
            a, c = max(a, b - CONTEXT), max(c, d - CONTEXT)
        elif number == len(merged) - 1:
            b, d = min(b, a + CONTEXT), min(d, c + CONTEXT)
        if b > a:
            group.append((tag, a, b, c, d))
    if any(code[0] != "equal" for code in group):
        yield group


def _span(start: int, end: int) -> bytes:
    count = end - start
    if count == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if count else start, count)


def _lines(sign: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield sign + line
        if not line.endswith(b"\n"):
            yield b"\n" + _NO_NEWLINE
