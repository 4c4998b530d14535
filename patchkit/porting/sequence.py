"""Where the changes of one sequence go in another: the rules of the three-way merge.

Works on any items (lines of a def, tokens of a statement); two are the same when they are
equal.  A change is placed only where what it replaces and what stands around it can be
told apart from every other place; all else is "stuck", with the reason.  Must not do I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Literal, NamedTuple

from .align import Map, align

Verdict = Literal["clean", "near", "upstream", "stuck"]
# How many items around a change are asked whether the place is the only one, in turn.
_WIDTHS = (1, 2, 3, 5, 8, 13)
# Two items are forms of one where they share so much; looked for among so many at most.
_ALIKE, _FORMS = 0.5, 40
# Of these, so many where upstream has not as many of the lines that go.
_NEAR = 2
# So many items beside an insertion are looked at for one that stands nowhere else.
_REACH = 12

Items = Sequence[Hashable]


class Change(NamedTuple):
    """Items ``b0:b1`` of the base became ``o0:o1`` of ours."""

    b0: int
    b1: int
    o0: int
    o1: int


class Placed(NamedTuple):
    """A change, and where it goes: ``t0:t1`` of theirs is what it replaces ("clean": what
    stood on both sides stands there; "near": a neighbour changed) or what holds it already
    ("upstream").  ``gap`` bounds the place in base, ours and theirs by the nearest items
    that all three have: six numbers, the bounds themselves excluded."""

    change: Change
    verdict: Verdict
    t0: int
    t1: int
    gap: tuple[int, int, int, int, int, int]
    reason: str = ""


def changes(base: Items, ours: Items, here: Map) -> Iterator[Change]:
    """What differs between base and ours, by their alignment."""
    b0 = o0 = 0
    for i, j in [*((i, j) for i, j in enumerate(here) if j >= 0), (len(base), len(ours))]:
        if i > b0 or j > o0:
            yield Change(b0, i, o0, j)
        b0, o0 = i + 1, j + 1


class Sequences:
    """Base, ours and theirs of one scope, aligned pairwise."""

    def __init__(
        self,
        base: Items,
        ours: Items,
        theirs: Items,
        *,
        says: Callable[[Hashable], bool],
        margin: int | None = None,
        like: Callable[[Hashable, Hashable], float] | None = None,
    ) -> None:
        self.base, self.ours, self.theirs = base, ours, theirs
        #: Whether an item says anything (a blank line, a lone bracket do not).
        self.says = says
        #: How many items on either side must be as they were for an item to be put there;
        #: without it, all up to one that stands nowhere else.
        self.margin = margin
        self.counts = [Counter(items) for items in (base, ours, theirs)]
        self.here = align(base, ours)
        self.there = align(base, theirs)
        self.across = align(ours, theirs)
        #: Items of base to those of theirs that are another form of them.
        self.forms = {} if like is None else forms(base, theirs, self.there, like)

    def resolve(self) -> list[Placed]:
        """Every change of ours with its verdict."""
        found: list[Placed] = []
        floor = Change(0, 0, 0, 0)
        for change in changes(self.base, self.ours, self.here):
            found.append(self._resolve(change, floor))
            floor = found[-1].change
        return found

    def _resolve(self, change: Change, floor: Change) -> Placed:
        """The verdict on one change; it may not slide over ``floor``, the one before."""
        gap = self._gap(change)
        reason = "the lines around it changed"
        slides = list(self._slides(change))
        if self.margin is not None and any(self._between(slid) is None for slid in slides):
            slides = []  # something came in where it might as well stand
        for slid in slides:
            if slid.b0 < floor.b1 or slid.o0 < floor.o1:
                continue
            place = self._between(slid)
            if place is None:
                continue
            if slid.b0 - 1 in self.forms or slid.b1 in self.forms:
                if self._formed(slid):
                    return Placed(slid, "near", *place, gap)
                continue
            if self._single(slid, *place):
                return Placed(slid, "clean", *place, gap)
            reason = "the text stands more than once, and nothing singles out the place"
        upstream = self._upstream(change)
        if upstream is not None:
            return Placed(change, "upstream", *upstream, gap)
        place = self._replaced(change)
        if place is not None:
            if self._only(change):
                return Placed(change, "near", *place, gap)
            reason = "the text stands more than once, and the lines around it changed"
        return Placed(change, "stuck", gap[4], gap[5], gap, reason)

    def _slides(self, change: Change) -> Iterator[Change]:
        """The change, and the same change written some items further up or down: adding
        ``a b`` before ``a`` is adding ``b a`` behind it."""
        yield change
        b0, b1, o0, o1 = change
        if (b0 == b1) == (o0 == o1):
            return
        items, low, high = (self.ours, o0, o1) if b0 == b1 else (self.base, b0, b1)
        step = 1
        while (
            min(b0, o0) >= step
            and self.here[b0 - step] == o0 - step
            and items[low - step] == items[high - step]
        ):
            yield Change(b0 - step, b1 - step, o0 - step, o1 - step)
            step += 1
        step = 0
        while (
            b1 + step < len(self.base)
            and self.here[b1 + step] == o1 + step
            and items[low + step] == items[high + step]
        ):
            step += 1
            yield Change(b0 + step, b1 + step, o0 + step, o1 + step)

    def _at(self, index: int) -> int | None:
        """Where a base item stands in theirs; the ends of the scope stand at its ends."""
        if index < 0:
            return -1
        if index == len(self.base):
            return len(self.theirs)
        place = self.there[index]
        return self.forms.get(index) if place < 0 else place

    def _between(self, change: Change) -> tuple[int, int] | None:
        """The place in theirs where the item before, all that goes, and the item behind
        stand in one row."""
        before = self._at(change.b0 - 1)
        if before is None:
            return None
        if any(self.there[index] < 0 for index in range(change.b0, change.b1)):
            return None
        row = [self._at(index) for index in range(change.b0, change.b1 + 1)]
        if row != list(range(before + 1, before + 2 + change.b1 - change.b0)):
            return None
        place = before + 1, before + 1 + change.b1 - change.b0
        return place if change.b0 != change.b1 or self._untouched(change, *place) else None

    def _untouched(self, change: Change, t0: int, t1: int) -> bool:
        """Whether theirs adds nothing beside the place: two insertions at one place may be
        two forms of one thing, and blank lines between them do not tell them apart."""
        above = self._reach(change, range(change.b0 - 1, -1, -1))
        below = self._reach(change, range(change.b1, len(self.base)))
        return all(self._at(change.b0 - step) == t0 - step for step in range(1, above + 1)) and all(
            self._at(change.b1 + step) == t1 + step for step in range(below)
        )

    def _reach(self, change: Change, way: range) -> int:
        """How far on one side nothing may have come in between."""
        if self.margin is not None:
            return min(self.margin, len(way) + 1)
        for step, n in enumerate(way, 1):
            item = self.base[n]
            if step == _REACH or (
                self.says(item) and self.counts[0][item] == 1 == self.counts[2][item]
            ):
                return step
        return len(way) + 1

    def _replaced(self, change: Change) -> tuple[int, int] | None:
        """The place in theirs where all that goes stands in one row."""
        row = self.there[change.b0 : change.b1]
        if not row or row[0] < 0 or row != list(range(row[0], row[0] + len(row))):
            return None
        if not any(self.says(item) for item in self.base[change.b0 : change.b1]):
            return None
        return row[0], row[0] + len(row)

    def _only(self, change: Change) -> bool:
        block = self.base[change.b0 : change.b1]
        return _count(self.base, block) == _count(self.theirs, block) == 1

    def _formed(self, change: Change) -> bool:
        """Whether a neighbour that has another form now stands once on either side."""
        return all(
            self.counts[0][self.base[n]] == 1 == self.counts[2][self.theirs[self.forms[n]]]
            for n in (change.b0 - 1, change.b1)
            if n in self.forms
        )

    def _single(self, change: Change, t0: int, t1: int) -> bool:
        """Whether the block around the place occurs once in base and in theirs, or as often
        in both and this is the same one of them."""
        if not self.base:
            return not self.theirs
        equal = False
        # Where upstream has more of these lines, or fewer, what stands a few lines off does
        # not say which of them is which.
        grew = any(
            self.counts[0][item] != self.counts[2][item]
            for item in self.base[change.b0 : change.b1]
            if self.says(item)
        )
        for width in _WIDTHS[: _NEAR if grew else None]:
            low, high = max(change.b0 - width, 0), min(change.b1 + width, len(self.base))
            start, end = t0 - (change.b0 - low), t1 + (high - change.b1)
            if start < 0 or end > len(self.theirs):
                break
            block = self.base[low:high]
            if list(block) != list(self.theirs[start:end]):
                break
            here, there = _places(self.base, block), _places(self.theirs, block)
            if len(here) == len(there) == 1:
                return True
            equal = len(here) == len(there) and here.index(low) == there.index(start)
        return equal

    def _upstream(self, change: Change) -> tuple[int, int] | None:
        """Where theirs holds the change already: all that ours adds, in one row, and
        nothing of what goes."""
        added = [n for n in range(change.o0, change.o1) if self.says(self.ours[n])]
        removed = [n for n in range(change.b0, change.b1) if self.says(self.base[n])]
        for n in removed:
            item = self.base[n]
            if self.counts[2][item] > self.counts[1][item]:
                return None
        if added:
            row = [self.across[n] for n in added]
            if -1 in row:
                return None
            between = set(range(row[0], row[-1] + 1)) - set(row)
            if any(self.says(self.theirs[n]) for n in between):
                return None
            for n in added:
                if self.counts[2][self.ours[n]] < self.counts[1][self.ours[n]]:
                    return None
            return row[0], row[-1] + 1
        before, behind = change.o0 - 1, change.o1
        low = -1 if before < 0 else self.across[before]
        high = len(self.theirs) if behind == len(self.ours) else self.across[behind]
        if (before >= 0 and low < 0) or high < 0:
            return None
        if not removed:  # blank lines, which are as ours has them
            same = list(self.ours[change.o0 : change.o1]) == list(self.theirs[low + 1 : high])
            return (low + 1, high) if same else None
        if any(self.says(item) for item in self.theirs[low + 1 : high]):
            return None
        return low + 1, high

    def _anchors(self, n: int) -> bool:
        if self.there[n] < 0 or self.here[n] < 0:
            return False
        return self.margin is not None or self.says(self.base[n])

    def _gap(self, change: Change) -> tuple[int, int, int, int, int, int]:
        low = change.b0 - 1
        while low >= 0 and not self._anchors(low):
            low -= 1
        high = change.b1
        while high < len(self.base) and not self._anchors(high):
            high += 1
        ends = (
            (-1, -1) if low < 0 else (self.here[low], self.there[low]),
            (len(self.ours), len(self.theirs))
            if high == len(self.base)
            else (self.here[high], self.there[high]),
        )
        return low + 1, high, ends[0][0] + 1, ends[1][0], ends[0][1] + 1, ends[1][1]


def forms(
    base: Items, theirs: Items, there: Map, like: Callable[[Hashable, Hashable], float]
) -> dict[int, int]:
    """Between items that are the same on both sides: which of the others are forms of which,
    in order, so that they share as much as they can."""
    found: dict[int, int] = {}
    b0 = t0 = 0
    for i, j in [*((i, j) for i, j in enumerate(there) if j >= 0), (len(base), len(theirs))]:
        if 0 < i - b0 <= _FORMS and 0 < j - t0 <= _FORMS:
            found.update(_best_forms(base, theirs, range(b0, i), range(t0, j), like))
        b0, t0 = i + 1, j + 1
    return found


def _best_forms(
    base: Items,
    theirs: Items,
    here: range,
    there: range,
    like: Callable[[Hashable, Hashable], float],
) -> dict[int, int]:
    best = [[0.0] * (len(there) + 1) for _ in range(len(here) + 1)]
    shares = [[like(base[i], theirs[j]) for j in there] for i in here]
    for i in range(len(here) - 1, -1, -1):
        for j in range(len(there) - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1])
            if shares[i][j] >= _ALIKE:
                best[i][j] = max(best[i][j], best[i + 1][j + 1] + shares[i][j])
    found = {}
    i = j = 0
    while i < len(here) and j < len(there):
        if shares[i][j] >= _ALIKE and best[i][j] == best[i + 1][j + 1] + shares[i][j]:
            found[here[i]] = there[j]
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def _places(items: Items, block: Items) -> list[int]:
    size = len(block)
    if not size:
        return []
    wanted = list(block)
    first = wanted[0]
    return [
        n
        for n in range(len(items) - size + 1)
        if items[n] == first and list(items[n : n + size]) == wanted
    ]


def _count(items: Items, block: Items) -> int:
    return len(_places(items, block))
