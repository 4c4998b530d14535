"""Which items of one sequence stand where in another: the ground of every merge here.

Anchors are the items that occur once on both sides (the patience rule: a line that stands
everywhere places nothing), and between them those that occur least often (the histogram
rule).  What has no anchor is not matched: a merge refuses there instead of guessing.  Must
not do I/O.  difflib was measured and left: it takes the longest run wherever it stands, so
that a block lands in its twin, and needs minutes for a file of 6,000 lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence

# An item that occurs more often than this between two anchors says nothing of the place.
_FREQUENT = 16
# Pairs of equal items that are weighed between two anchors.
_PAIRS = 20_000

Map = list[int]


def align(a: Sequence[Hashable], b: Sequence[Hashable]) -> Map:
    """For each item of ``a`` its index in ``b``, or -1; the indices that are there grow.

    >>> align("axbc", "abcd")
    [0, -1, 1, 2]
    """
    found = [-1] * len(a)
    work = [(0, len(a), 0, len(b))]
    while work:
        alo, ahi, blo, bhi = work.pop()
        while alo < ahi and blo < bhi and a[alo] == b[blo]:
            found[alo] = blo
            alo, blo = alo + 1, blo + 1
        while alo < ahi and blo < bhi and a[ahi - 1] == b[bhi - 1]:
            ahi, bhi = ahi - 1, bhi - 1
            found[ahi] = bhi
        if alo == ahi or blo == bhi:
            continue
        anchors = _unique(a, b, alo, ahi, blo, bhi) or _rare(a, b, alo, ahi, blo, bhi)
        if not anchors:
            continue
        for i, j in anchors:
            found[i] = j
            work.append((alo, i, blo, j))
            alo, blo = i + 1, j + 1
        work.append((alo, ahi, blo, bhi))
    return found


def align_by(a: Sequence[Hashable], b: Sequence[Hashable], says: Callable[[Hashable], bool]) -> Map:
    """As :func:`align`, by the items that say something first, and the others between them:
    a blank line that stands once keeps no statement from its place.

    >>> align("x.", ".x")
    [-1, 0]
    >>> align_by("x.", ".x", str.isalpha)
    [1, -1]
    """
    found = align(
        [item if says(item) else ("a", n) for n, item in enumerate(a)],
        [item if says(item) else ("b", n) for n, item in enumerate(b)],
    )
    alo = blo = 0
    for i, j in [*((i, j) for i, j in enumerate(found) if j >= 0), (len(a), len(b))]:
        for n, place in enumerate(align(a[alo:i], b[blo:j])):
            found[alo + n] = -1 if place < 0 else blo + place
        alo, blo = i + 1, j + 1
    return found


def _places(items: Sequence[Hashable], low: int, high: int) -> dict[Hashable, list[int]]:
    where: dict[Hashable, list[int]] = {}
    for number in range(low, high):
        where.setdefault(items[number], []).append(number)
    return where


def _unique(
    a: Sequence[Hashable], b: Sequence[Hashable], alo: int, ahi: int, blo: int, bhi: int
) -> list[tuple[int, int]]:
    """The longest growing row of items that occur once on each side."""
    there = _places(b, blo, bhi)
    pairs = [
        (numbers[0], there[key][0])
        for key, numbers in _places(a, alo, ahi).items()
        if len(numbers) == 1 and len(there.get(key, ())) == 1
    ]
    pairs.sort()
    return _growing(pairs)


def _growing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest row of pairs that grows on both sides (they are sorted by the first)."""
    tails: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        place = bisect_left(tails, j)
        tails[place : place + 1] = [j]
        at[place : place + 1] = [number]
        before.append(at[place - 1] if place else -1)
    row = []
    number = at[-1] if at else -1
    while number >= 0:
        row.append(pairs[number])
        number = before[number]
    return row[::-1]


def _rare(
    a: Sequence[Hashable], b: Sequence[Hashable], alo: int, ahi: int, blo: int, bhi: int
) -> list[tuple[int, int]]:
    """The longest run of equal items through one of the items that occur least often."""
    here, there = _places(a, alo, ahi), _places(b, blo, bhi)
    counts = {
        key: len(numbers) * len(there[key])
        for key, numbers in here.items()
        if len(numbers) <= _FREQUENT and 0 < len(there.get(key, ())) <= _FREQUENT
    }
    if not counts:
        return []
    least = min(counts.values())
    best: list[tuple[int, int]] = []
    tried = 0
    for key, count in counts.items():
        if count > least:
            continue
        for i in here[key]:
            for j in there[key]:
                tried += 1
                if tried > _PAIRS:
                    return best
                run = _run(a, b, i, j, (alo, ahi, blo, bhi))
                if len(run) > len(best):
                    best = run
    return best


def _run(
    a: Sequence[Hashable], b: Sequence[Hashable], i: int, j: int, box: tuple[int, int, int, int]
) -> list[tuple[int, int]]:
    alo, ahi, blo, bhi = box
    start, stop = 0, 1
    while i + start > alo and j + start > blo and a[i + start - 1] == b[j + start - 1]:
        start -= 1
    while i + stop < ahi and j + stop < bhi and a[i + stop] == b[j + stop]:
        stop += 1
    return [(i + step, j + step) for step in range(start, stop)]
