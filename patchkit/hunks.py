"""Where a hunk goes, and what the file is then: lines in, lines out.

Owns promise 3: every context and removed line matches byte for byte (no fuzz), an offset
is taken only where it is the single match or the hunk's section heading singles it out,
and never into another def or class than the heading names.  Must not do I/O.

All hunks of a file patch are placed on the contents before the first of them.  Where every
one stands at its stated line, as nearly always, the bytes are compared and spliced as they
are (:func:`patch_text`); else the file becomes a list of lines, each with its own ``\\n``
but perhaps the last, and places are looked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from .errors import HunkError
from .model import Hunk, split

# xdiff's default rule for a section heading (xdl_emit.c, def_ff) and git's built-in
# "python" driver (userdiff.c).
_DEFAULT_HEADING = re.compile(rb"[A-Za-z_$]")
_PYTHON_HEADING = re.compile(rb"[ \t]*((?:class|(?:async[ \t]+)?def)[ \t].*)")
_DEFINITION = re.compile(rb"(?:async[ \t]+)?(?:def|class)[ \t]+([A-Za-z_0-9]+)")
# C and its kin: what stands before the parameters, or the name of a type or namespace.
_C_CALL = re.compile(rb"([A-Za-z_]\w*)[ \t]*\(")
_C_TYPE = re.compile(rb"(?:struct|class|union|enum|namespace)[ \t]+([A-Za-z_]\w*)[^;(]*\Z")
C_SOURCES = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".inc", ".inl", ".ipp"),
    *(".tpp", ".hip", ".m", ".mm"),
)
_CARRIAGE_RETURNS = re.compile(rb"\r+\n")
_SWAPPED = bytes.maketrans(b"+-", b"-+")
# More places than this are not looked at one by one: the hunk is ambiguous then anyway.
MAX_CANDIDATES = 1000
# So many bytes are searched for blocks of frequent lines, a hunk at a time (some seconds).
MAX_LOOKED_AT = 16 * 1024**3
# Of places that a hunk is near to, so many are compared line by line, and so many told.
_RANKED, _NEAR = 40, 3


class Placement(NamedTuple):
    """Where a hunk went: its first old line in the file (from 1) and the offset from the
    line that its header says."""

    line: int
    offset: int


def patch_text(
    data: bytes,
    hunks: Sequence[Hunk],
    *,
    exact: bool = False,
    c: bool = False,
    own_ends: bool = False,
) -> tuple[bytes, tuple[Placement, ...]]:
    """The contents with all hunks applied, and where each went; :class:`HunkError` where
    one has no place.  ``c`` is that of :func:`apply_hunks`; with ``own_ends`` a file of
    other line ends is patched by :func:`apply_with_own_ends`.  ``exact`` says that these are
    the very contents that the patch was made from: then the line of the header counts, also
    for a hunk without any context.
    """
    offsets = _stated_offsets(data, hunks, exact=exact)
    if offsets is not None:
        view = memoryview(data)  # what stays is copied once, into the result
        parts: list[bytes | memoryview] = []
        at = 0
        for hunk, offset in zip(hunks, offsets, strict=True):
            parts += (view[at:offset], hunk.new_text)
            at = offset + len(hunk.old_text)
        parts.append(view[at:])
        return b"".join(parts), tuple(Placement(_stated(hunk) + 1, 0) for hunk in hunks)
    lines = split(data)
    try:
        places = apply_hunks(lines, hunks, c=c)
    except HunkError:
        if not own_ends:
            raise
        places = apply_with_own_ends(lines, hunks, c=c)
    return b"".join(lines), places


def _stated_offsets(data: bytes, hunks: Sequence[Hunk], *, exact: bool) -> list[int] | None:
    """Where in the bytes each hunk begins, if all stand at the lines that they state.

    The same rules as :func:`_fits`, without a list of lines.
    """
    offsets: list[int] = []
    line = at = floor = 0
    for hunk in hunks:
        stated, text = _stated(hunk), hunk.old_text
        if stated < line:
            return None
        skipped = _skip_lines(data, at, stated - line)
        if skipped is None or skipped < floor:
            return None
        line, at = stated, skipped
        floor = at + len(text)
        whole = text[-1:] in (b"", b"\n") or floor == len(data)
        if not whole or not data.startswith(text, at):
            return None
        bare = hunk.leading == hunk.trailing == 0 and hunk.old_start > 1 and text
        adrift = (hunk.old_start <= 1 and stated) or (hunk.trailing == 0 and floor != len(data))
        if adrift and not exact and not bare:
            return None
        offsets.append(at)
    return offsets


def _skip_lines(data: bytes, at: int, count: int) -> int | None:
    """The offset ``count`` lines on from the start of a line; None where there are fewer.

    Far ones are reached in steps, whose line ends are counted in C.
    """
    width = 16 * count
    while count > 64 and width > 64:
        step = data.count(b"\n", at, at + width)
        if step > count or not step:
            width //= 2
            continue
        at = data.rindex(b"\n", at, at + width) + 1
        count -= step
        width = min(width, 16 * count)
    for _ in range(count):
        at = data.find(b"\n", at) + 1
        if not at:
            return None
    return at


def apply_hunks(
    lines: list[bytes], hunks: Sequence[Hunk], *, c: bool = False
) -> tuple[Placement, ...]:
    """Change ``lines`` in place; all hunks or, on :class:`HunkError`, none.

    ``c`` says that the file is C or its kin, so that headings name functions and types.
    """
    places = locate(lines, hunks, c=c)
    for hunk, place in zip(reversed(hunks), reversed(places), strict=True):
        begin = place.line - 1
        lines[begin : begin + hunk.old_count] = hunk.new
    return tuple(places)


def apply_with_own_ends(
    lines: list[bytes], hunks: Sequence[Hunk], *, c: bool = False
) -> tuple[Placement, ...]:
    """:func:`apply_hunks` for a patch whose line ends were converted on the way: CR LF and
    LF are the same while a place is looked for (in the patch, so is a CR that came twice), a
    line of context stays as the file has it, and a line that comes takes the end of the line
    that it replaces, else of the one above.
    """
    plain = [_unix(line) for line in lines]
    found = [
        hunk._replace(
            old_text=_unix(hunk.old_text),
            new_text=_unix(hunk.new_text),
        )
        for hunk in hunks
    ]
    places = locate(plain, found, c=c)
    for hunk, place in zip(reversed(found), reversed(places), strict=True):
        begin = place.line - 1
        lines[begin : begin + hunk.old_count] = _with_own_ends(lines, begin, hunk)
    return tuple(places)


def _unix(text: bytes) -> bytes:
    """Without carriage returns before line ends, of which a mailer may add several."""
    return _CARRIAGE_RETURNS.sub(b"\n", text) if b"\r" in text else text


def _line_end(line: bytes) -> bytes:
    return b"\r\n" if line.endswith(b"\r\n") else b"\n"


def _with_own_ends(lines: list[bytes], begin: int, hunk: Hunk) -> list[bytes]:
    """What a hunk leaves of the lines from ``begin`` on."""
    out: list[bytes] = []
    at, new = begin, iter(hunk.new)
    going: list[bytes] = []  # the ends of removed lines that nothing took the place of yet
    end = _line_end(lines[max(begin - 1, 0)] if lines else b"")
    for sign in hunk.signs:
        if sign == 92:  # the mark of a missing line end says nothing of line ends
            continue
        if sign == 45:
            going.append(_line_end(lines[at]))
            at += 1
        elif sign == 43:
            line = next(new)
            end = going.pop(0) if going else end
            out.append(line[:-1] + end if line.endswith(b"\n") else line)
        else:
            next(new)
            out.append(lines[at])
            end = _line_end(lines[at])
            going.clear()
            at += 1
    return out


def reverse(hunk: Hunk) -> Hunk:
    """The hunk that takes this one back."""
    return Hunk(
        hunk.new_start,
        hunk.old_start,
        hunk.new_text,
        hunk.old_text,
        hunk.leading,
        hunk.trailing,
        hunk.heading,
        hunk.line,
        hunk.signs.translate(_SWAPPED),
    )


def locate(lines: list[bytes], hunks: Sequence[Hunk], *, c: bool = False) -> list[Placement]:
    """The place of every hunk.  Raises :class:`HunkError` for the first that has none,
    or more than one."""
    exact = True
    floor = 0
    for hunk in hunks:
        stated = _stated(hunk)
        exact = exact and stated >= floor and _fits(lines, hunk, stated)
        floor = stated + hunk.old_count
    if exact:
        return [Placement(_stated(hunk) + 1, 0) for hunk in hunks]
    # Some hunk moved, so the stated line of the others proves nothing by itself: a twin
    # of the block may stand there by chance.
    search = _Search(lines, hunks, c=c)
    found: list[Placement] = []
    floor = 0
    for number, hunk in enumerate(hunks, 1):
        place = _find(search, hunk, number, hunks)
        if place < floor:
            raise HunkError(
                "the hunk fits only before the end of the hunk above it",
                code="hunk-order",
                hunk=number,
                line=hunk.line,
            )
        floor = place + hunk.old_count
        found.append(Placement(place + 1, place - _stated(hunk)))
    return found


def _stated(hunk: Hunk) -> int:
    """The line (from 0) that the header names; "-N,0" names the line before.  A new file
    begins at its start, whatever line a maker wrote there."""
    if hunk.old_text:
        return hunk.old_start - 1
    return 0 if hunk.old_start == 1 and hunk.new_start <= 1 else hunk.old_start


def _matches(lines: list[bytes], hunk: Hunk, place: int) -> bool:
    end = place + hunk.old_count
    return place >= 0 and end <= len(lines) and b"".join(lines[place:end]) == hunk.old_text


def _fits(lines: list[bytes], hunk: Hunk, place: int) -> bool:
    if not _matches(lines, hunk, place):
        return False
    # No context and not at the start: made with -U0, so that its line alone says where.
    bare = hunk.leading == hunk.trailing == 0 and hunk.old_start > 1
    if bare and hunk.old_text and place == _stated(hunk):
        return True
    return _anchored(hunk, place, len(lines))


def _anchored(hunk: Hunk, place: int, count: int) -> bool:
    """A hunk that its maker cut at the file's start or end must stand there again.

    The rule of git (``apply.c``, match_beginning and match_end): one that starts at line
    1 had nothing before it, one without trailing context had nothing behind it.
    """
    if hunk.old_start <= 1 and place != 0:
        return False
    return hunk.trailing > 0 or place + hunk.old_count == count


def _anchor(hunk: Hunk, count: int) -> int | None:
    """The one line (from 0) at which an anchored hunk can stand; None for any other."""
    if hunk.old_start <= 1:
        return 0
    return count - hunk.old_count if hunk.trailing == 0 else None


class _Search:
    """Finds blocks of lines in a file by the rarest line of each.

    The lines are counted once, and one pass notes where those rarest lines stand, for the
    blocks of all hunks: a thousand hunks cost no more passes than one.  A block of which
    every line is frequent is looked for in the text, in C.
    """

    def __init__(self, lines: list[bytes], hunks: Sequence[Hunk], *, c: bool = False) -> None:
        self.lines = lines
        self.c = c
        self.headings = Headings(lines)
        self._hunks = hunks
        self._text: bytes | None = None
        self._counts: Counter[bytes] | None = None
        self._where: dict[bytes, list[int]] = {}
        self._looked_at = 0

    def places(self, block: tuple[bytes, ...]) -> tuple[list[int], bool]:
        """Lines (from 0) at which the block stands; and whether there were too many."""
        if not block:
            return [], False
        if self._counts is None:
            self._index()
        rarest = self._rarest(block)
        numbers = self._where.get(rarest)
        if numbers is None:
            return self._in_text(block) if self._count(rarest) else ([], False)
        before = block.index(rarest)
        starts = (number - before for number in numbers)
        size = len(block)
        return [n for n in starts if n >= 0 and tuple(self.lines[n : n + size]) == block], False

    def _index(self) -> None:
        self._counts = Counter(self.lines)
        for hunk in self._hunks:
            for block in (hunk.old, hunk.new):
                rarest = self._rarest(block) if block else b""
                if 0 < self._count(rarest) <= MAX_CANDIDATES:
                    self._where[rarest] = []
        if self._where:
            for number, line in enumerate(self.lines):
                if line in self._where:
                    self._where[line].append(number)

    def _count(self, line: bytes) -> int:
        return 0 if self._counts is None else self._counts[line]

    def _rarest(self, block: tuple[bytes, ...]) -> bytes:
        return min(block, key=self._count)

    def _in_text(self, block: tuple[bytes, ...]) -> tuple[list[int], bool]:
        if self._text is None:
            self._text = b"".join((b"\n", *self.lines))
        data, text = self._text, b"\n" + b"".join(block)
        self._looked_at += len(data)
        if self._looked_at > MAX_LOOKED_AT:
            raise HunkError(
                "the hunks of this file stand at other lines, and all that they hold is frequent in"
                " it: there is no end of looking for them",
                code="hunk-ambiguous",
                hint="make the patch from the installed release",
            )
        found: list[int] = []
        line = at = 0
        start = data.find(text)
        while start >= 0:
            if text[-1] == 10 or start + len(text) == len(data):
                line += data.count(b"\n", at, start)
                at = start
                if len(found) >= MAX_CANDIDATES:
                    return found, True
                found.append(line)
            start = data.find(text, start + 1)
        return found, False


def _find(search: _Search, hunk: Hunk, number: int, hunks: Sequence[Hunk]) -> int:
    lines = search.lines
    stated = _stated(hunk)
    if not hunk.old_text:
        if _fits(lines, hunk, stated):
            return stated
        raise _not_found(search, hunk, number, hunks)
    anchor = _anchor(hunk, len(lines))
    if anchor is None:
        places, too_many = search.places(hunk.old)
    else:
        fits = _matches(lines, hunk, anchor) and _anchored(hunk, anchor, len(lines))
        places, too_many = [anchor] if fits else [], False
    if not places:
        raise _not_found(search, hunk, number, hunks)
    fitting = [
        p for p in places if not too_many and heading_agrees(search.headings, hunk, p, c=search.c)
    ]
    if len(places) == 1 and (fitting or places[0] == stated):
        return places[0]
    if len(places) > 1:
        # The heading may single one out, also a heading that is no def.
        named = [p for p in fitting if hunk.heading and _heading_equals(search.headings, hunk, p)]
        if len(named) == 1:
            return named[0]
        shown = ", ".join(str(p + 1) for p in places[:8]) + (" …" if len(places) > 8 else "")
        raise HunkError(
            f"the hunk fits {'more than ' if too_many else ''}{len(places)} places: lines {shown}",
            code="hunk-ambiguous",
            hunk=number,
            line=hunk.line,
            hint="make the patch again with more context (git diff -U10)",
            data={"candidates": [p + 1 for p in places[:50]]},
        )
    place = places[0]
    there = search.headings.above(place)[0 if search.c else 1]
    raise HunkError(
        f"the hunk fits only line {place + 1} (offset {place - stated:+d}), inside"
        f" '{_text(there) or 'no def or class'}', but its heading names '{_text(hunk.heading)}'",
        code="hunk-wrong-place",
        hunk=number,
        line=hunk.line,
        hint="port the patch to this release by hand and look whether the code moved",
        data={"candidates": [place + 1]},
    )


# -- section headings ---------------------------------------------------------------------


class Headings:
    """The section headings of a file.

    What was found above a place is kept, so that a look from further down ends there: the
    places of all hunks together cost no more than one look through the file.
    """

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._above: dict[int, tuple[bytes, bytes]] = {}

    def above(self, place: int) -> tuple[bytes, bytes]:
        """The headings of a hunk that begins at ``place`` (from 0), by the default and the
        Python rule: the search goes up from the line before the hunk (xdl_emit.c)."""
        plain = python = b""
        place = min(place, len(self._lines))
        for number in range(place, 0, -1):
            if number in self._above:
                before = self._above[number]
                plain, python = plain or before[0], python or before[1]
                break
            line = self._lines[number - 1]
            if not python and (match := _PYTHON_HEADING.match(line)):
                python = match[1].rstrip()
            if not plain and _DEFAULT_HEADING.match(line):
                plain = line.rstrip()
            if plain and python:
                break
        self._above[place] = plain, python
        return plain, python


def heading_agrees(headings: Headings, hunk: Hunk, place: int, *, c: bool = False) -> bool:
    """Whether the def or class (with ``c``: function or type) that the hunk's heading names
    encloses ``place``, by one of the rules that may have made the heading.  True where the
    heading names none."""
    if c:
        return _c_names_agree(hunk.heading, headings.above(place)[0])
    wanted = _DEFINITION.match(hunk.heading)
    if not wanted:
        return True
    # GNU diff cuts a heading at 40 bytes, git at 80; that may be inside the name.
    cut = wanted.end() == len(hunk.heading) >= 39
    return any(
        found is not None and (found[1].startswith(wanted[1]) if cut else found[1] == wanted[1])
        for found in (_DEFINITION.match(text) for text in headings.above(place))
    )


def _c_names_agree(heading: bytes, there: bytes) -> bool:
    """Whether two headings of C name the same; true where one of them names nothing (a
    template's first line, a label, a heading that was cut)."""
    # GNU diff cuts a heading at 40 bytes, git at 80: the name may be behind the cut.
    wanted = _c_name(heading, cut=len(heading) in (39, 40) or len(heading) >= 79)
    found = _c_name(there[:400], cut=len(there) > 400)
    return wanted is None or found is None or wanted == found


def c_heading(line: bytes) -> bytes | None:
    """The function or type that a line of C at the left margin names, if it names one."""
    if not _DEFAULT_HEADING.match(line):
        return None
    return _c_name(line[:400], cut=len(line) > 400)


def _c_name(heading: bytes, *, cut: bool) -> bytes | None:
    """The function or type that a line defines: the last name before a parenthesis that is
    in no other (``__launch_bounds__(256) kernel(``), or what follows ``struct``."""
    kind = _C_TYPE.search(heading)
    if kind:
        return kind[1]
    name, end, depth = None, 0, 0
    while found := _C_CALL.search(heading, end):
        name, end = found[1], found.end()
        depth = 1
        while depth and end < len(heading):
            depth += {40: 1, 41: -1}.get(heading[end], 0)
            end += 1
    return None if cut and not depth else name


def _heading_equals(headings: Headings, hunk: Hunk, place: int) -> bool:
    """Whether the heading is the one that a diff made here would carry (cut at 40 bytes
    by GNU diff, at 80 by git)."""
    heading = hunk.heading
    return any(
        text == heading or (len(heading) >= 39 and text.startswith(heading))
        for text in headings.above(place)
    )


def heading(headings: Headings, place: int, path: str) -> bytes:
    """The section heading that git gives a hunk which begins at ``place``, counted from 0."""
    plain, python = headings.above(place)
    return python if path.endswith((".py", ".pyi")) else plain


# -- diagnosis ----------------------------------------------------------------------------


def _not_found(search: _Search, hunk: Hunk, number: int, hunks: Sequence[Hunk]) -> HunkError:
    """Why a hunk has no place: expected against found, the nearest place, a guess."""
    lines = search.lines
    if looks_applied(lines, hunks):
        return HunkError(
            "the patch looks already applied: every hunk's new lines are there",
            code="already-applied",
            hunk=number,
            line=hunk.line,
            hint="if upstream has it, the bundle needs an 'upstream' variant for this release;"
            " if another bundle did it, one of the two is enough",
        )
    old = hunk.old
    places = nearest(lines, hunk)
    detail: list[str] = []
    data: dict[str, object] = {"reason": "not-found"}
    message = "the hunk's lines are not in the file"
    hint: str | None = None
    if places:
        rows = [
            {
                "line": place + 1,
                "similarity": round(share, 3),
                "inside": _text(search.headings.above(place)[0 if search.c else 1]),
            }
            for place, share in places
        ]
        near, score = places[0]
        window = lines[near : near + len(old)]
        reason = _difference(old, window)
        data = {"reason": reason, "nearest": rows[0], "near": rows}
        if reason == "anchor":
            where_to = "end" if hunk.trailing == 0 else "start"
            message = f"the hunk's lines are there, but not at the {where_to} of the file"
            hint = "lines were added to the file there; make the patch from this file"
        elif reason == "last-line-end":
            whose = "patch" if window[-1].endswith(b"\n") else "file"
            message += f"; they differ in the end of the last line alone: the {whose} has none"
            hint = "an editor put it there or took it away; make the patch from this file"
        elif reason == "line-ends":
            message += "; they differ in line ends (CR LF) alone"
            hint = (
                "they were converted on the way; a loose patch goes on with the file's own:"
                " patchkit apply --eol, a bundle's must be made anew"
            )
        elif reason == "whitespace":
            message += "; they differ in white space alone"
            hint = "an editor or mailer changed blanks in the patch; fetch it again"
        told = "; ".join(
            f"line {row['line']}" + (f" in '{row['inside']}'" if row["inside"] else "")
            for row in rows[1:]
        )
        inside = f" in '{rows[0]['inside']}'" if rows[0]["inside"] else ""
        detail.append(
            f"nearest: line {near + 1}{inside}, {score:.0%} of the lines are equal"
            + (f" (also near: {told})" if told else "")
        )
        data["expected"] = [_text(line) for line in old]
        data["found"] = [_text(line) for line in window]
        for offset, want in enumerate(old):
            have = window[offset] if offset < len(window) else None
            if want == have:
                detail.append(f"    {near + 1 + offset:>6}   {_text(want)}")
            else:
                detail.append(f"  expected   {_visible(want, have)}")
                found = "(end of file)" if have is None else _visible(have, want)
                detail.append(f"  found {near + 1 + offset:>4}   {found}")
    else:
        detail.extend(f"  expected   {_text(line)}" for line in old[:12])
        data["expected"] = [_text(line) for line in old]
    if hunk.leading == hunk.trailing == 0 and (hunk.old_start > 1 or not hunk.old_text):
        data["reason"] = "no-context"
        message = "a hunk without context (diff -U0), and the file is not as its line number says"
        if not hunk.old_text:
            message = "a hunk that adds lines without context (diff -U0): nothing says where"
        hint = "make the patch with context: git diff -U3"
    if _is_half_applied(search, hunks):
        data["half_applied"] = True
        detail.append("some other hunks of this file are already there: it is half applied")
    return HunkError(
        message, code="hunk-not-found", hunk=number, line=hunk.line, hint=hint,
        detail=tuple(detail), data=data,
    )  # fmt: skip


def looks_applied(lines: list[bytes], hunks: Sequence[Hunk]) -> bool:
    """Whether the whole file patch can be taken back here and cannot be applied."""
    try:
        locate_plain(lines, [reverse(hunk) for hunk in hunks])
    except HunkError:
        return False
    return True


def locate_plain(lines: list[bytes], hunks: Sequence[Hunk]) -> list[int]:
    """Like :func:`locate`, without any diagnosis (which itself asks this)."""
    search = _Search(lines, hunks)
    places = []
    floor = 0
    for hunk in hunks:
        stated = _stated(hunk)
        if _fits(lines, hunk, stated):
            place = stated
        else:
            found = [
                p
                for p in search.places(hunk.old)[0]
                if _anchored(hunk, p, len(lines)) and heading_agrees(search.headings, hunk, p)
            ]
            if len(found) != 1:
                raise HunkError("not applied")
            place = found[0]
        if place < floor:
            raise HunkError("not applied")
        floor = place + hunk.old_count
        places.append(place)
    return places


def _is_half_applied(search: _Search, hunks: Sequence[Hunk]) -> bool:
    return len(hunks) > 1 and any(
        not search.places(hunk.old)[0] and search.places(hunk.new)[0] for hunk in hunks
    )


def _votes(lines: Sequence[bytes], where: Mapping[bytes, Sequence[int]]) -> Counter[int]:
    """How many lines agree for each place of a block that has them at these offsets."""
    found: dict[bytes, list[int]] = {key: [] for key in where}
    for number, line in enumerate(lines):
        key = line.strip()
        if key in found and len(found[key]) <= MAX_CANDIDATES:
            found[key].append(number)
    # A line that stands everywhere tells little, and costs much; unless there is no other.
    rare = {key: numbers for key, numbers in found.items() if len(numbers) <= MAX_CANDIDATES}
    return Counter(
        number - offset
        for key, numbers in (rare if any(rare.values()) else found).items()
        for number in numbers
        for offset in where[key]
    )


def nearest(lines: Sequence[bytes], hunk: Hunk) -> list[tuple[int, float]]:
    """The lines (from 0) where most of the old lines stand in place, and their share: the
    best first, then up to two others that do not overlap it and are not much worse.

    Each line that occurs in both votes for an alignment, so the cost is linear; the short
    ones, which stand everywhere, only where there is no other.
    """
    old = hunk.old
    votes: Counter[int] = Counter()
    for shortest in (3, 1):
        where: dict[bytes, list[int]] = {}
        for offset, line in enumerate(old):
            key = line.strip()
            if len(key) >= shortest and len(where.setdefault(key, [])) < 8:
                where[key].append(offset)
        votes = _votes(lines, where)
        if votes:
            break
    stated = _stated(hunk)
    ranked = nlargest(
        _RANKED, votes, key=lambda place: (votes[place], -abs(place - stated), -place)
    )
    found: list[tuple[int, float]] = []
    for place in (max(place, 0) for place in ranked):
        same = sum(1 for want, have in zip(old, lines[place:], strict=False) if want == have)
        share = same / len(old)
        apart = all(abs(place - other) >= len(old) for other, _ in found)
        if not found or (apart and share >= 0.75 * found[0][1] and len(found) < _NEAR):
            found.append((place, share))
    return found


def _difference(want: Sequence[bytes], have: Sequence[bytes]) -> str:
    if tuple(want) == tuple(have):
        return "anchor"
    if len(want) == len(have):
        if [_unix(line) for line in want] == [_unix(line) for line in have]:
            return "line-ends"
        if [w.rstrip(b"\r\n") for w in want] == [h.rstrip(b"\r\n") for h in have]:
            return "last-line-end"
        if [b"".join(w.split()) for w in want] == [b"".join(h.split()) for h in have]:
            return "whitespace"
    return "not-found"


def _text(line: bytes) -> str:
    text = line.rstrip(b"\n").decode("utf-8", "replace")
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)


def _visible(line: bytes, other: bytes | None) -> str:
    """A line for the screen; where it differs only in what cannot be seen, as a repr."""
    if other is not None and b"".join(line.split()) == b"".join(other.split()):
        return repr(line.decode("utf-8", "replace"))
    return _text(line)
