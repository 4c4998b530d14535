"""Whether two samples differ, and by how much.  Pure.

Owns the statistics of ``trial ab``.  Python alone: the samples are small, and every number of a
record can be computed again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from .record import BASELINE, CANDIDATE, Compared, Trial

CONFIDENCE = 0.95
#: The name under which wall time is compared where no run has another figure.
SECONDS = "seconds"
#: The share of A/A trials in which a difference may be called real.
ALPHA = 0.05
#: Resamples of the bootstrap, and the most relabellings that are gone through one by one.
_RESAMPLES = 2000
_MOST = 20_000
#: The same record gives the same numbers.
_SEED = 20230612
_FEWEST_FOR_INTERVAL = 3
_SQUARED = 1e150


class Samples(NamedTuple):
    """What the runs of both sets showed in one metric."""

    baseline: Sequence[float]
    candidate: Sequence[float]

    @property
    def is_positive(self) -> bool:
        """Whether a ratio means something."""
        return min(*self.baseline, *self.candidate) > 0


def compare(trial: Trial) -> dict[str, Compared]:
    """Candidate against baseline in every metric that each run has."""
    samples: dict[str, Samples] = {}
    names = dict.fromkeys(name for run in trial.runs for name in run.values)
    for name in names:
        if all(name in run.values for run in trial.runs):
            samples[name] = Samples(
                *(
                    [run.values[name] for run in trial.runs if run.set == which]
                    for which in (BASELINE, CANDIDATE)
                )
            )
    if not names:
        samples[SECONDS] = Samples(
            *(
                [run.seconds or 0.0 for run in trial.runs if run.set == which]
                for which in (BASELINE, CANDIDATE)
            )
        )
    return compared(samples)


def compared(samples: dict[str, Samples]) -> dict[str, Compared]:
    """All metrics of one trial, judged together."""
    found = {}
    chances = noise(samples)
    for name, one in samples.items():
        found[name] = Compared(
            baseline=median(one.baseline),
            candidate=median(one.candidate),
            ratio=ratio(one) if one.is_positive else None,
            interval=interval(one),
            confidence=CONFIDENCE,
            beyond_noise=chances[name] <= ALPHA,
            n=(len(one.baseline), len(one.candidate)),
            p=round(chances[name], 6),
        )
    return found


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return ordered[middle - 1] / 2 + ordered[middle] / 2


def ratio(samples: Samples) -> float | None:
    """The geometric mean of the candidate over that of the baseline; None where no float holds
    it."""
    return _power(_mean(_logs(samples.candidate)) - _mean(_logs(samples.baseline)))


def _power(exponent: float) -> float | None:
    try:
        return math.exp(exponent)
    except OverflowError:
        return None


def interval(samples: Samples, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """A symmetric bootstrap-t interval of the ratio of the geometric means (Hall, On symmetric
    bootstrap confidence intervals, 1988): each sample is drawn from anew, and the difference of
    the means of the logarithms is divided by its standard error each time; how far that is from
    0 in 95 % of the draws, either way, is how far the interval goes.

    Not the percentile interval of the ratio of the medians: of five runs that covers the truth in
    far fewer cases than it says, since it leaves out that the spread is estimated too.  Not a
    limit of its own for each side: with outliers that covered it in 88 % of the cases (20 runs).
    None with fewer than three runs, or where the values do not differ, or are not positive.
    """
    if not samples.is_positive or min(map(len, samples)) < _FEWEST_FOR_INTERVAL:
        return None
    before, after = _logs(samples.baseline), _logs(samples.candidate)
    difference = _mean(after) - _mean(before)
    error = _error(before, after)
    if error == 0:
        return None
    rng = random.Random(_SEED)
    scores = []
    for _ in range(_RESAMPLES):
        one, two = rng.choices(before, k=len(before)), rng.choices(after, k=len(after))
        spread = _error(one, two)
        away = abs(_mean(two) - _mean(one) - difference)
        # Both samples of one value each: as far away as anything can be.
        scores.append(away / spread if spread else math.inf if away else 0.0)
    scores.sort()
    far = _quantile(scores, confidence) * error
    low, high = _power(difference - far), _power(difference + far)
    return None if low is None or high is None or far == math.inf else (low, high)


def noise(samples: dict[str, Samples]) -> dict[str, float]:
    """For each metric, how often a relabelling of the runs shows a difference as large in any
    of the metrics: an exact randomisation test, with the largest difference of all metrics (the
    maxT procedure of Westfall and Young), so that many metrics find no more chance differences
    than one.

    With three runs of each set no result is rarer than one in ten; from four on, two in 70.
    """
    if not samples:
        return {}
    sizes = {(len(one.baseline), len(one.candidate)) for one in samples.values()}
    (size,) = sizes
    before, after = size
    rows = []
    for one in samples.values():
        values = [*one.baseline, *one.candidate]
        rows.append(_standard(_logs(values) if one.is_positive else values))
    seen = [abs(_apart(row, range(before, before + after))) for row in rows]
    counts = [0] * len(rows)
    total = 0
    for labels in _relabellings(before + after, after):
        largest = max(abs(_apart(row, labels)) for row in rows)
        total += 1
        for number, value in enumerate(seen):
            # The same sum added up in another order.
            counts[number] += largest >= value * (1 - 1e-9)
    return {
        name: count / total if any(row) else 1.0
        for name, count, row in zip(samples, counts, rows, strict=True)
    }


def _relabellings(count: int, chosen: int) -> Iterator[Sequence[int]]:
    """Which runs might have been the candidate's: all ways, or so many drawn by lot and the
    one that was."""
    if math.comb(count, chosen) <= _MOST:
        yield from combinations(range(count), chosen)
        return
    rng = random.Random(_SEED)
    yield range(count - chosen, count)
    for _ in range(_MOST):
        yield rng.sample(range(count), chosen)


def _apart(row: Sequence[float], labels: Sequence[int]) -> float:
    """The difference of the means, of a row whose sum is 0, up to a factor."""
    return sum([row[at] for at in labels])


def _standard(values: Sequence[float]) -> list[float]:
    """With mean 0 and spread 1; all 0 where they do not differ."""
    largest = max(map(abs, values))
    if largest > _SQUARED:  # the square of it is beyond a float
        values = [value / largest for value in values]
    mean = _mean(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    if spread <= abs(mean) * 1e-12:
        return [0.0] * len(values)
    return [(value - mean) / spread for value in values]


def _error(before: Sequence[float], after: Sequence[float]) -> float:
    """The standard error of the difference of two means."""
    return math.sqrt(sum(_variance(one) / len(one) for one in (before, after)))


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum([(value - mean) ** 2 for value in values]) / (len(values) - 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))
    return ordered[at]
