"""Hunk headers whose counts are wrong: counted anew from the bodies.

Owns the one repair of a patch file that is no guess: an ``@@`` line that gives other numbers
than its body has, where the body can be read in one way only.  Bytes in, bytes out; what
stands between the hunks is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import NamedTuple

from .model import split
from .patchfile import MIME_BOUNDARY, marks

_HEADER = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class Recounted(NamedTuple):
    """One header: its line (from 1), what it says, and what its body has; ``unclear`` says
    that the body could end in more than one place, changes nothing, or is cut off inside its
    last line, so that it was left as it is."""

    line: int
    before: str
    after: str
    unclear: bool = False


def recount(data: bytes) -> tuple[bytes, list[Recounted]]:
    """The patch with right counts, and every header that had wrong ones.

    A body ends at the next hunk, file or signature.  Blank lines at its end are context
    whose space was eaten, or no part of it: where the header does not tell which, it is
    unclear.

    >>> recount(b"--- a/x\\n+++ b/x\\n@@ -1,9 +1 @@\\n-a\\n+b\\n")[1]
    [Recounted(line=3, before='-1,9 +1', after='-1,1 +1,1', unclear=False)]
    """
    lines = split(data)
    boundaries = frozenset(
        mark for line in lines if (named := MIME_BOUNDARY.match(line)) for mark in marks(named)
    )
    found: list[Recounted] = []
    at = 0
    while at < len(lines):
        header = _HEADER.match(lines[at])
        if header is None or not _follows_a_file_header(lines, at):
            at += 1
            continue
        while header is not None:
            end = _end_of_body(lines, at + 1, boundaries)
            one = _counted(lines, at, end, header)
            if one is not None:
                found.append(one)
                if not one.unclear:
                    rest = lines[at][header.end() :]
                    lines[at] = f"@@ {one.after} @@".encode() + rest
            at = end
            header = _HEADER.match(lines[at]) if at < len(lines) else None
    return b"".join(lines), found


def _follows_a_file_header(lines: Sequence[bytes], at: int) -> bool:
    return at >= 2 and lines[at - 2].startswith(b"--- ") and lines[at - 1].startswith(b"+++ ")


def _end_of_body(lines: Sequence[bytes], at: int, boundaries: Container[bytes]) -> int:
    """The line behind the last one that can belong to a hunk."""
    while at < len(lines):
        line = lines[at]
        if line[:1] not in (b" ", b"+", b"-", b"\\", b"\n") and line != b"\r\n":
            break
        if line.startswith(b"--- ") and _starts_file(lines, at):
            break
        if line.rstrip(b"\r\n") in (b"-- ", b"--") and _is_signature(lines, at):
            break
        if line.rstrip() in boundaries:
            break
        at += 1
    return at


def _starts_file(lines: Sequence[bytes], at: int) -> bool:
    following = [*lines[at + 1 : at + 3], b"", b""]
    return following[0].startswith(b"+++ ") and following[1].startswith(b"@@ -")


def _is_signature(lines: Sequence[bytes], at: int) -> bool:
    """git's own: its version in the next line, and no more of this hunk behind it."""
    return at + 1 < len(lines) and lines[at + 1][:1] not in (b" ", b"+", b"-", b"\\", b"@")


def _counted(
    lines: Sequence[bytes], at: int, end: int, header: re.Match[bytes]
) -> Recounted | None:
    stated = tuple(1 if header[n] is None else int(header[n]) for n in (2, 4))
    body = lines[at + 1 : end]
    changed = any(line[:1] in (b"+", b"-") for line in body)
    cut = not body or (body[-1][-1:] != b"\n" and body[-1][:1] != b"\\")
    last = end
    while last > at + 1 and not lines[last - 1].strip(b"\r\n"):
        last -= 1
    readings = [_counts(lines[at + 1 : stop]) for stop in range(last, end + 1)]
    if stated in readings:
        return None
    # Of a blank line at the end, one right number tells whether it is counted.
    near = [r for r in readings if r[0] == stated[0] or r[1] == stated[1]]
    chosen = readings if len(readings) == 1 else near
    old, new = chosen[0] if chosen else readings[0]
    before = header[0][3:-3].decode()
    after = f"-{int(header[1])},{old} +{int(header[3])},{new}"
    return Recounted(at + 1, before, after, unclear=len(chosen) != 1 or cut or not changed)


def _counts(body: Sequence[bytes]) -> tuple[int, int]:
    signs = b"".join(line[:1] for line in body)
    blank = signs.count(b" ") + signs.count(b"\n") + signs.count(b"\r")
    return blank + signs.count(b"-"), blank + signs.count(b"+")
