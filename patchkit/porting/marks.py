"""Conflict markers: a file that a person can finish, and whether they did.  Must not do I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .merge import Edit, Part, apply_edits
from .source import Source

_MARK = re.compile(rb"^(?:<{7}|\|{7}|={7}|>{7})(?: |\r?$)", re.MULTILINE)


def marked(
    base: Source, ours: Source, theirs: Source, edits: Sequence[Edit], parts: Sequence[Part]
) -> bytes:
    """Theirs with what was placed, and each other change between markers: the release's
    lines first, those of the base in the middle, the patch's last."""
    end = b"\r\n" if theirs.lines and theirs.lines[0].endswith(b"\r\n") else b"\n"
    blocks: list[Edit] = list(edits)
    taken = [(edit.start, edit.end) for edit in edits]
    groups: dict[tuple[int, int], list[Part]] = {}
    for part in parts:
        groups.setdefault(part.theirs, []).append(part)
    for (start, stop), group in sorted(groups.items()):
        if any(start < high and low < max(stop, start + 1) for low, high in taken):
            stop = start  # shown before what was placed, without the release's lines
        if any(low < start < high for low, high in taken):
            start = stop = min(low for low, high in taken if low < start < high)
        taken.append((start, stop))
        old = slice(min(p.base[0] for p in group), max(p.base[1] for p in group))
        new = slice(min(p.ours[0] for p in group), max(p.ours[1] for p in group))
        scope = next((p.scope for p in group if p.scope), "")
        blocks.append(
            Edit(
                start,
                stop,
                (
                    b"<<<<<<< this release" + end,
                    *_closed(theirs.lines[start:stop], end),
                    b"||||||| the release of the patch"
                    + (f": {scope}".encode() if scope else b"") + end,
                    *_closed(base.lines[old], end),
                    b"=======" + end,
                    *_closed(ours.lines[new], end),
                    b">>>>>>> with the patch" + end,
                ),
                (),
            )
        )  # fmt: skip
    blocks.sort(key=lambda edit: (edit.start, edit.end))
    return apply_edits(theirs.lines, blocks)


def _closed(lines: Sequence[bytes], end: bytes) -> list[bytes]:
    """Lines of which each has its end, so that a marker stands on a line of its own."""
    return [line if line.endswith(b"\n") else line + end for line in lines]


def unresolved(data: bytes) -> int | None:
    """The first line (from 1) that is a conflict marker of these."""
    for match in _MARK.finditer(data):
        if match[0].startswith((b"<", b">", b"|")):
            return data.count(b"\n", 0, match.start()) + 1
    return None
