"""The statistics of ``trial ab``, against scipy and against the truth of simulated data."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from scipy import stats  # type: ignore[import-untyped]

from patchkit.trials.ledger import new_id
from patchkit.trials.record import BASELINE, CANDIDATE, Run, Trial
from patchkit.trials.statistics import (
    ALPHA,
    Samples,
    compare,
    compared,
    interval,
    median,
    noise,
    ratio,
)

#: How a run's figure spreads on a machine: evenly, with a tail of slow runs, with outliers.
SPREADS: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda rng: rng.gauss(0, 0.02),
    "skewed": lambda rng: 0.02 * rng.expovariate(1),
    "outliers": lambda rng: rng.gauss(0, 0.02) * (10 if rng.random() < 0.1 else 1),
}


def sample(rng: random.Random, spread: str, count: int, shift: float = 0.0) -> list[float]:
    return [100 * math.exp(shift + SPREADS[spread](rng)) for _ in range(count)]


def four_errors(rate: float, cases: int) -> float:
    """Four standard errors of a share."""
    return 4 * math.sqrt(rate * (1 - rate) / cases)


@pytest.mark.slow
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("count", [3, 5, 20])
def test_the_interval_covers_the_truth_as_often_as_it_says(spread: str, count: int) -> None:
    """Within two standard errors of the simulation."""
    rng, cases = random.Random(count), 120
    hits = 0
    for _ in range(cases):
        shift = rng.uniform(-0.2, 0.2)
        found = interval(Samples(sample(rng, spread, count), sample(rng, spread, count, shift)))
        hits += found is not None and found[0] <= math.exp(shift) <= found[1]
    assert hits / cases >= 0.95 - four_errors(0.95, cases) / 2


def test_the_interval_is_near_to_that_of_a_known_library_for_many_runs() -> None:
    """Welch's interval of the difference of the mean logarithms, by scipy."""
    rng = random.Random(7)
    one = Samples(sample(rng, "normal", 60), sample(rng, "normal", 60, 0.03))
    logs = [[math.log(value) for value in values] for values in (one.candidate, one.baseline)]
    welch = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    found = interval(one)
    assert found is not None
    assert math.log(found[0]) == pytest.approx(welch.low, abs=0.0015)
    assert math.log(found[1]) == pytest.approx(welch.high, abs=0.0015)


@pytest.mark.parametrize("count", [4, 5, 6])
def test_the_chance_is_that_of_an_exact_permutation_test(count: int) -> None:
    rng = random.Random(count)
    for shift in (0.0, 0.02, 0.2):
        one = Samples(sample(rng, "normal", count), sample(rng, "normal", count, shift))
        logs = [[math.log(value) for value in values] for values in (one.baseline, one.candidate)]
        exact = stats.permutation_test(
            logs, lambda x, y: sum(y) / len(y) - sum(x) / len(x), n_resamples=10_000_000
        )
        assert noise({"x": one})["x"] == pytest.approx(exact.pvalue, abs=1e-9)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_no_difference_is_called_real_in_more_than_one_of_twenty(spread: str, count: int) -> None:
    """Of A/A trials with three metrics, of which one goes with another: none of the three."""
    rng, cases = random.Random(count), 300
    called = 0
    for _ in range(cases):
        samples = {
            name: Samples(sample(rng, spread, count), sample(rng, spread, count))
            for name in ("a", "b")
        }
        samples["c"] = Samples(*([value * 2 for value in part] for part in samples["a"]))
        called += any(p <= ALPHA for p in noise(samples).values())
    assert called / cases <= ALPHA + four_errors(ALPHA, cases)
    if count < 4:
        assert called == 0  # so few runs cannot show anything


@pytest.mark.parametrize("drift", [0.01, -0.03])
def test_a_drift_of_the_machine_is_not_called_a_difference(drift: float) -> None:
    """By the order A B B A: it meets both sets alike."""
    from patchkit.trials.trial import order

    rng, called = random.Random(3), 0
    for _ in range(200):
        values: dict[str, list[float]] = {BASELINE: [], CANDIDATE: []}
        for number, which in enumerate(order(6, both=True)):
            values[which].append(100 * math.exp(number * drift + rng.gauss(0, 0.01)))
        called += noise({"x": Samples(values[BASELINE], values[CANDIDATE])})["x"] <= ALPHA
    assert called / 200 <= ALPHA


def test_a_real_difference_is_found() -> None:
    rng, found = random.Random(1), 0
    for _ in range(100):
        one = Samples(sample(rng, "normal", 5), sample(rng, "normal", 5, 0.09))
        found += noise({"x": one})["x"] <= ALPHA
    assert found >= 95


def test_many_runs_are_judged_by_lot_and_always_alike() -> None:
    rng = random.Random(2)
    one = {"x": Samples(sample(rng, "normal", 12), sample(rng, "normal", 12, 0.03))}
    assert noise(one) == noise(one)
    assert noise(one)["x"] < 0.01


def test_values_that_have_no_ratio_and_values_that_do_not_differ() -> None:
    found = compared(
        {
            "zero": Samples([0.0, 1.0, 0.0, 1.0], [5.0, 6.0, 5.0, 6.0]),
            "same": Samples([3.0] * 4, [3.0] * 4),
            "exact": Samples([3.0] * 4, [4.0] * 4),
        }
    )
    assert found["zero"].ratio is None and found["zero"].interval is None
    assert found["zero"].beyond_noise
    assert not found["same"].beyond_noise and found["same"].p == 1.0
    assert found["exact"].beyond_noise and found["exact"].interval is None
    assert found["exact"].ratio == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([1, 1.0001, 50], [1, 1.00001, 80]),
        ([5e-324] * 3, [1, 2, 3]),
        ([1e-300], [1e300]),
        ([0, 1e200, 1], [-1e200, 1, 2]),
        ([1e308] * 4, [1.7e308, 1e308, 1e308, 1e308]),
    ],
)
def test_figures_that_are_far_apart_are_compared_in_numbers_that_json_has(
    before: list[float], after: list[float]
) -> None:
    found = compared({"x": Samples(before, after)})["x"]
    numbers = [found.baseline, found.candidate, found.ratio, found.p, *(found.interval or ())]
    assert all(math.isfinite(number) for number in numbers if number is not None)


def test_medians_and_the_ratio() -> None:
    assert median([3, 1, 2]) == 2 and median([4, 1, 2, 3]) == 2.5
    assert ratio(Samples([1.0, 4.0], [2.0, 8.0])) == pytest.approx(2)


def test_only_figures_of_every_run_are_compared() -> None:
    def run(which: str, **values: float) -> Run:
        return Run(which, values=values, seconds=1.0)

    trial = Trial(new_id("t"), "t", "ab", "finished")
    runs = (run(BASELINE, a=1.0, b=1.0), run(CANDIDATE, a=2.0))
    assert list(compare(trial._replace(runs=runs))) == ["a"]
    assert list(compare(trial._replace(runs=(run(BASELINE), run(CANDIDATE))))) == ["seconds"]
