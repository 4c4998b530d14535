"""The three-way merge of one file: the changes of ours, placed in theirs def by def.

First by lines; where these refuse, by the tokens between the nearest lines that all three
sides share.  What comes out is theirs with edits, and for each change where it went or why
not.  The result is only a proposal: :mod:`.checks` judges it.  Must not do I/O.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from .imports import set_imports
from .sequence import Placed, Sequences
from .source import MODULE, Item, Source
from .statements import like_lines, line_says, merge_statements

PartVerdict = Literal["clean", "near", "tokens", "upstream", "lost", "stuck", "blank"]
Span = tuple[int, int]


class Part(NamedTuple):
    """One change of ours: its lines (from 0) in base, ours and theirs, and what became of
    it.  "lost": the def that it stands in (``scope``, as base names it) is not in theirs."""

    verdict: PartVerdict
    scope: str
    base: Span
    ours: Span
    theirs: Span
    reason: str = ""


class Edit(NamedTuple):
    """Lines ``start:end`` of theirs become ``lines``; ``parts`` are what it brings."""

    start: int
    end: int
    lines: tuple[bytes, ...]
    parts: tuple[int, ...]


class Merged(NamedTuple):
    """Theirs with the edits, the edits, and every change."""

    data: bytes
    edits: tuple[Edit, ...]
    parts: tuple[Part, ...]


def merge(
    base: Source, ours: Source, theirs: Source, renames: Mapping[str, str] | None = None
) -> Merged:
    """Place what ours changed of base in theirs.

    ``renames`` maps a def of theirs to the name by which base knows it.
    """
    return _Merge(base, ours, theirs, renames or {}).run()


class _Merge:
    def __init__(
        self, base: Source, ours: Source, theirs: Source, renames: Mapping[str, str]
    ) -> None:
        self.base, self.ours, self.theirs = base, ours, theirs
        names = theirs.names(renames)
        self.known = set(names.values())
        self.own_names = {known: own for own, known in names.items()}
        shared = set(base.scopes) & set(ours.scopes) & self.known | {MODULE}
        self.base_items = base.items(shared, {})
        self.ours_items = ours.items(shared, {})
        self.theirs_items = theirs.items(shared, renames)
        self.parts: list[Part] = []
        self.edits: list[Edit] = []

    def run(self) -> Merged:
        for scope, base in self.base_items.items():
            ours, theirs = self.ours_items[scope], self.theirs_items[scope]
            keys = [[item.key for item in items] for items in (base, ours, theirs)]
            if keys[0] != keys[1]:
                sequences = Sequences(keys[0], keys[1], keys[2], says=says, like=_like)
                self._scope(scope, base, ours, theirs, sequences)
        self.edits.sort(key=lambda e: (e.start, e.end, self.parts[e.parts[0]].ours))
        self._drop_overlaps()
        self._drop_blank()
        order = sorted(range(len(self.parts)), key=lambda n: (self.parts[n].ours, n))
        place = {old: new for new, old in enumerate(order)}
        edits = tuple(e._replace(parts=tuple(place[n] for n in e.parts)) for e in self.edits)
        parts = tuple(self.parts[n] for n in order)
        return Merged(apply_edits(self.theirs.lines, edits), edits, parts)

    def _drop_overlaps(self) -> None:
        """Two edits of the same lines (a def that moved into another) are both left out."""
        overlapping: set[int] = set()
        end = busy = 0
        for number, edit in enumerate(self.edits):
            if edit.start < end:
                overlapping |= {busy, number}
            if edit.end >= end:
                end, busy = edit.end, number
        for number in overlapping:
            for part in self.edits[number].parts:
                self.parts[part] = self.parts[part]._replace(
                    verdict="stuck", reason="two changes meet in the same lines"
                )
        self.edits = [edit for n, edit in enumerate(self.edits) if n not in overlapping]

    def _drop_blank(self) -> None:
        """Where nothing but blank lines would change, nothing does; unless the patch is about
        nothing else."""
        own, others = ([x for x in s.lines if x.strip()] for s in (self.ours, self.base))
        if own == others:
            return
        if any(line.strip() for edit in self.edits for line in edit.lines) or any(
            line.strip() for edit in self.edits for line in self.theirs.lines[edit.start : edit.end]
        ):
            return
        if not any(part.verdict in ("stuck", "lost") for part in self.parts):
            self.edits = []
            self.parts = [
                part if part.verdict == "blank" else part._replace(verdict="upstream")
                for part in self.parts
            ]

    def _scope(
        self,
        scope: str,
        base: Sequence[Item],
        ours: Sequence[Item],
        theirs: Sequence[Item],
        sequences: Sequences,
    ) -> None:
        stuck: list[tuple[Placed, str]] = []
        for placed in sequences.resolve():
            change = placed.change
            spans = (
                span(base, change.b0, change.b1),
                span(ours, change.o0, change.o1),
                span(theirs, placed.t0, placed.t1),
            )
            home = self._home(scope, spans[0], spans[1])
            removed = [base[n] for n in range(change.b0, change.b1)]
            added = [ours[n] for n in range(change.o0, change.o1)]
            if placed.verdict == "upstream":
                self.parts.append(Part("upstream", home, *spans))
            elif any(item.child is not None for item in (*removed, *added)):
                reason = "the patch moves or renames a whole def"
                self.parts.append(Part("stuck", home, *spans, reason))
            elif placed.verdict in ("near", "stuck") and self._imports(scope, home, spans):
                continue
            elif placed.verdict == "stuck" and home not in self.known:
                reason = f"{home} is not in the file any more"
                self.parts.append(Part("lost", home, *spans, reason))
            elif placed.verdict == "stuck" and not any(
                line.strip() for line in self._lines((spans[0], spans[1]))
            ):
                self._blank(placed, home, (spans[0], spans[1]), (base, ours, theirs), sequences)
            elif placed.verdict == "stuck":
                stuck.append((placed, home))
            else:
                self._edit(spans[2], self.ours.lines[slice(*spans[1])], [len(self.parts)])
                self.parts.append(Part(placed.verdict, home, *spans))
        for group in _regions(stuck):
            self._region(group, base, ours, theirs)

    def _imports(self, scope: str, home: str, spans: tuple[Span, Span, Span]) -> bool:
        """Place a change of imports alone, wherever these are."""
        there = self.own_names.get(scope, scope)
        edits = set_imports(self.base, self.ours, self.theirs, (scope, there, scope), spans[:2])
        if edits is None:
            return False
        number = len(self.parts)
        self.edits += [Edit(e.start, e.end, e.lines, (number,)) for e in edits]
        place = (edits[0].start, edits[0].end) if edits else spans[2]
        self.parts.append(Part("tokens" if edits else "upstream", home, *spans[:2], place))
        return True

    def _blank(
        self,
        placed: Placed,
        home: str,
        own: tuple[Span, Span],
        items: tuple[Sequence[Item], Sequence[Item], Sequence[Item]],
        sequences: Sequences,
    ) -> None:
        """Blank lines that come or go before an item: as many before its counterpart."""
        base, ours, theirs = items
        number = placed.change.b1
        while number < len(base) and _is_blank(base[number]):
            number += 1
        mine, place = -1, -1
        if number < len(base):
            mine, place = sequences.here[number], sequences.there[number]
        if mine < 0 or place < 0:
            text = "blank lines, which have no place any more"
            self.parts.append(Part("blank", home, *own, (0, 0), text))
            return
        runs = _run(base, number), _run(ours, mine), _run(theirs, place)
        line = theirs[place].start
        wanted = runs[2] if runs[2] == runs[1] else max(runs[2] + runs[1] - runs[0], 0)
        there = (line - runs[2], line)
        if wanted == runs[2]:
            self.parts.append(Part("upstream", home, *own, there))
            return
        end = b"\r\n" if self.theirs.lines[0].endswith(b"\r\n") else b"\n"
        self._edit(there, [end] * wanted, [len(self.parts)])
        self.parts.append(Part("near", home, *own, there))

    def _home(self, scope: str, base: Span, ours: Span) -> str:
        """The innermost def of base that the change stands in; a def that ours adds counts
        to the one around it."""
        if ours[1] > ours[0]:
            owner = self.ours.owners[ours[0]]
            while owner not in self.base.scopes and owner != MODULE:
                owner = self.ours.scopes[owner].parent
            # A def whose first lines are new is the one that the old lines stand in.
            if owner != MODULE or base[0] == base[1]:
                return owner
        if base[1] > base[0]:
            return self.base.owners[base[0]]
        return scope

    def _edit(self, place: Span, lines: Sequence[bytes], parts: list[int]) -> None:
        self.edits.append(Edit(place[0], place[1], tuple(lines), tuple(parts)))

    # -- the second pass ----------------------------------------------------------------

    def _region(
        self,
        group: Sequence[tuple[Placed, str]],
        base: Sequence[Item],
        ours: Sequence[Item],
        theirs: Sequence[Item],
    ) -> None:
        bounds = group[0][0].gap
        for placed, _ in group[1:]:
            gap = placed.gap
            bounds = (
                *(min(bounds[0], gap[0]), max(bounds[1], gap[1])),
                *(min(bounds[2], gap[2]), max(bounds[3], gap[3])),
                *(min(bounds[4], gap[4]), max(bounds[5], gap[5])),
            )
        sides = (
            span(base, bounds[0], bounds[1]),
            span(ours, bounds[2], bounds[3]),
            span(theirs, bounds[4], bounds[5]),
        )
        numbers = range(len(self.parts), len(self.parts) + len(group))
        verdict: PartVerdict
        twins = next((p.reason for p, _ in group if "more than once" in p.reason), None)
        outcome = twins or self._inside(sides, bounds, base, ours, theirs)
        if isinstance(outcome, str):
            verdict, reason = "stuck", outcome
        elif outcome == self.theirs.lines[slice(*sides[2])]:
            verdict, reason = "upstream", ""
        else:
            verdict, reason = "tokens", ""
            self._edit(sides[2], outcome, [*self._taken_in(sides), *numbers])
        for placed, home in group:
            change = placed.change
            own = span(base, change.b0, change.b1), span(ours, change.o0, change.o1)
            why = reason
            found: PartVerdict = verdict
            if verdict == "stuck" and not any(line_says(line) for line in self._lines(own)):
                found, why = "blank", "blank lines, which have no place any more"
            self.parts.append(Part(found, home, *own, sides[2], why))

    def _there_already(self, ours: Span) -> str | None:
        """A def that ours adds in some lines, and theirs has as well."""
        added = (self.ours.owners[line] for line in range(*ours))
        return next(
            (name for name in added if name not in self.base.scopes and name in self.known - {""}),
            None,
        )

    def _taken_in(self, sides: tuple[Span, Span, Span]) -> list[int]:
        """The changes that stand inside a region and are placed already: its text has them,
        so their own edits go."""
        inside = [
            edit
            for edit in self.edits
            if sides[2][0] <= edit.start
            and edit.end <= sides[2][1]
            and all(
                _within(self.parts[n].base, sides[0]) and _within(self.parts[n].ours, sides[1])
                for n in edit.parts
            )
        ]
        self.edits = [edit for edit in self.edits if edit not in inside]
        return [number for edit in inside for number in edit.parts]

    def _lines(self, own: tuple[Span, Span]) -> Iterator[bytes]:
        yield from self.base.lines[slice(*own[0])]
        yield from self.ours.lines[slice(*own[1])]

    def _inside(
        self,
        sides: tuple[Span, Span, Span],
        bounds: tuple[int, int, int, int, int, int],
        base: Sequence[Item],
        ours: Sequence[Item],
        theirs: Sequence[Item],
    ) -> list[bytes] | str:
        """The lines of theirs between the bounds with the change in them, or why not."""
        texts = (
            self.base.lines[slice(*sides[0])],
            self.ours.lines[slice(*sides[1])],
            self.theirs.lines[slice(*sides[2])],
        )
        for items, low, high in (
            (base, *bounds[:2]),
            (ours, *bounds[2:4]),
            (theirs, *bounds[4:]),
        ):
            if any(item.child is not None for item in items[low:high]):
                return "the lines around it changed, over a whole def"
        if not self.theirs.python:  # nothing would judge what comes out
            return "upstream changed the same lines"
        ends = _line_at(self.ours, sides[1][0] - 1), _line_at(self.ours, sides[1][1])
        outcome = merge_statements(*texts, ends, self.ours, sides[1][0])
        if outcome is None:
            there = self._there_already(sides[1])
            if there is not None:
                return f"the release has {there} already, in another form"
            if any(map(line_says, texts[0])):
                return "upstream changed the same lines"
            return "both add lines at the same place, and their order may matter"
        return outcome


def _like(one: Hashable, other: Hashable) -> float:
    """How much two items that differ are forms of one; 0 for a def."""
    assert isinstance(one, tuple) and isinstance(other, tuple)
    if one[0] is None or other[0] is None or one[0] != other[0]:
        return 0.0
    return like_lines(one[1], other[1])


def says(key: Hashable) -> bool:
    """Whether an item says anything by itself: a def, a line with a word in it."""
    assert isinstance(key, tuple)
    return key[0] is None or line_says(key[1])


def span(items: Sequence[Item], low: int, high: int) -> Span:
    """The lines of items ``low:high``; of none, the line before which they would stand."""
    if low < high:
        return items[low].start, items[high - 1].end
    if low < len(items):
        return items[low].start, items[low].start
    return (items[-1].end, items[-1].end) if items else (0, 0)


def _is_blank(item: Item) -> bool:
    assert isinstance(item.key, tuple)
    return item.child is None and not item.key[1].strip()


def _run(items: Sequence[Item], number: int) -> int:
    """How many blank lines stand before an item."""
    count = 0
    while number - count > 0 and _is_blank(items[number - count - 1]):
        count += 1
    return count


def _within(one: Span, other: Span) -> bool:
    return other[0] <= one[0] and one[1] <= other[1]


def _line_at(source: Source, line: int) -> bytes:
    return source.lines[line] if 0 <= line < len(source.lines) else b""


def _regions(stuck: Sequence[tuple[Placed, str]]) -> Iterator[list[tuple[Placed, str]]]:
    """Changes whose gaps meet, together."""
    group: list[tuple[Placed, str]] = []
    for entry in sorted(stuck, key=lambda entry: entry[0].gap):
        gap = entry[0].gap
        if group and (gap[0] < max(p.gap[1] for p, _ in group) or gap == group[-1][0].gap):
            group.append(entry)
        else:
            if group:
                yield group
            group = [entry]
    if group:
        yield group


def apply_edits(lines: Sequence[bytes], edits: Sequence[Edit]) -> bytes:
    """The lines with all edits, which are sorted and do not overlap."""
    out: list[bytes] = []
    at = 0
    for edit in edits:
        out += lines[at : edit.start]
        out += edit.lines
        at = max(at, edit.end)
    out += lines[at:]
    return b"".join(out)
