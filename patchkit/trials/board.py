"""The living plan: what was tried, what came of it, what is left.  Pure.

Records in, values out; :mod:`report` writes them.  Records come in the order tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from . import again
from .revisit import Record, holds, unblock_of

#: What is measured by itself, and is no figure that a trial is about.
_BESIDE = ("seconds", "ready_seconds", "exit", "peak_memory_bytes")
#: Outcomes in the order in which a legend names them, with what they say.
OUTCOMES = {
    "baseline": "what others are compared with",
    "win": "better, and kept",
    "loss": "worse",
    "dead-end": "cannot work here",
    "inconclusive": "says nothing yet",
    "unavailable": "cannot be had",
    "no verdict": "no verdict was given",
    "failed": "the command failed",
    "interrupted": "it was broken off",
    "running": "it still runs",
    "not tried": "left for later",
}


class Metric(NamedTuple):
    """The figure that a report is about."""

    name: str
    unit: str | None = None
    better: str | None = None


class Row(NamedTuple):
    """One trial.  ``figures`` and ``baseline`` are of each run; ``ratio`` is the record's,
    else the candidate's median over the baseline's; ``interval`` is that of the record.
    ``against`` names the trial whose figures are the baseline, where it is another one."""

    number: int
    id: str
    name: str
    kind: str
    started: str | None
    outcome: str
    goal: str | None
    figures: tuple[float, ...]
    baseline: tuple[float, ...]
    against: str | None
    ratio: float | None
    interval: tuple[float, float] | None
    beyond_noise: bool | None
    bundles: tuple[str, ...]
    settings: tuple[str, ...]
    reason: str | None
    cause: str | None
    unblock: str | None
    holds_now: bool | None
    confounded: str | None

    @property
    def figure(self) -> float | None:
        """The median of the runs."""
        return median(self.figures) if self.figures else None

    @property
    def base(self) -> float | None:
        """The median of the baseline's runs."""
        return median(self.baseline) if self.baseline else None


class Board(NamedTuple):
    """The whole plan.  ``untried`` are bundles on offer that no trial names; ``machine`` are
    the facts of the newest trial that has any, ``here`` those of now."""

    goal: str | None
    metric: Metric | None
    rows: tuple[Row, ...]
    untried: tuple[str, ...]
    machine: Mapping[str, str]
    here: Mapping[str, str]

    @property
    def baseline(self) -> Row | None:
        """The trial that is the baseline now: the last one that was given that verdict."""
        found = [row for row in self.rows if row.outcome == "baseline"]
        return found[-1] if found else None

    @property
    def best(self) -> Row | None:
        """The win with the best figure, else the baseline."""
        wins = [row for row in self.rows if row.outcome == "win" and row.figure is not None]
        lower = self.metric is not None and self.metric.better == "lower"
        wins.sort(key=lambda row: (row.figure or 0.0) * (-1 if lower else 1))
        return wins[-1] if wins else self.baseline

    @property
    def stopped(self) -> tuple[Row, ...]:
        """Trials that something stands in the way of."""
        return tuple(
            row for row in self.rows if row.outcome in ("dead-end", "unavailable") or row.unblock
        )

    @property
    def waiting(self) -> tuple[Row, ...]:
        """What somebody noted as not tried."""
        return tuple(row for row in self.rows if row.outcome == "not tried")


def make(
    records: Sequence[Record],
    here: Mapping[str, str],
    offered: Iterable[str] = (),
    metric: str | None = None,
) -> Board:
    """The plan that records amount to; ``metric`` chooses the figure that it is about."""
    chosen = choose_metric(records, metric)
    rows = []
    base: tuple[tuple[float, ...], str] | None = None
    for number, record in enumerate(records, 1):
        row = _row(number, record, chosen, here, base)
        rows.append(row)
        if row.outcome == "baseline" and row.figures:
            base = (row.figures, row.name)
    goal = _goal(records)
    tried = {name for row in rows for name in row.bundles}
    return Board(
        goal=goal,
        metric=chosen,
        rows=tuple(rows),
        untried=tuple(name for name in offered if name not in tried),
        machine=next((r["facts"] for r in reversed(records) if r.get("facts")), {}),
        here=here,
    )


def metrics_of(records: Sequence[Record]) -> list[str]:
    """The names of all metrics, the one that most trials have first."""
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(name for name in _measured(record) if name not in _BESIDE)
    return [name for name, _ in counts.most_common()]


def choose_metric(records: Sequence[Record], name: str | None) -> Metric | None:
    """The metric asked for, else the one that most trials have."""
    if name is None:
        found = metrics_of(records)
        if not found:
            return None
        name = found[0]
    for record in reversed(records):
        about = (record.get("metrics") or {}).get(name)
        if about:
            return Metric(name, about.get("unit"), about.get("better"))
    return Metric(name)


def _measured(record: Record) -> Collection[str]:
    return {name for run in record.get("runs") or () for name in run.get("values") or ()}


def _figures(record: Record, metric: Metric | None, side: str) -> tuple[float, ...]:
    if metric is None:
        return ()
    return tuple(
        float(run["values"][metric.name])
        for run in record.get("runs") or ()
        if run.get("set", "candidate") == side
        and (run.get("values") or {}).get(metric.name) is not None
    )


def _row(
    number: int,
    record: Record,
    metric: Metric | None,
    here: Mapping[str, str],
    base: tuple[tuple[float, ...], str] | None,
) -> Row:
    verdict = record.get("verdict") or {}
    candidate = (record.get("sets") or {}).get("candidate") or {}
    figures, baseline = _figures(record, metric, "candidate"), _figures(record, metric, "baseline")
    against = None
    outcome = _outcome(record)
    if figures and not baseline and base is not None and outcome != "baseline":
        baseline, against = base
    compared = (record.get("comparison") or {}).get(metric.name if metric else "") or {}
    interval = compared.get("interval")
    unblock = unblock_of(record)
    return Row(
        number=number,
        id=str(record["id"]),
        name=str(record["name"]),
        kind=str(record.get("kind") or "run"),
        started=record.get("started"),
        outcome=outcome,
        goal=record.get("goal") or None,
        figures=figures,
        baseline=baseline,
        against=against,
        ratio=compared.get("ratio") or _ratio(figures, baseline),
        interval=None if not interval else (float(interval[0]), float(interval[1])),
        beyond_noise=compared.get("beyond_noise"),
        bundles=tuple(str(bundle["name"]) for bundle in candidate.get("bundles") or ()),
        settings=_settings(candidate),
        reason=verdict.get("reason"),
        cause=verdict.get("cause"),
        unblock=unblock,
        holds_now=None if unblock is None else holds(unblock, here),
        confounded=record.get("confounded") or None,
    )


def _goal(records: Sequence[Record]) -> str | None:
    """The goal of the baseline that counts, else the first one that was named."""
    named = [record for record in records if record.get("goal")]
    bases = [record for record in named if _outcome(record) == "baseline"]
    found = bases[-1:] or named[:1]
    return str(found[0]["goal"]) if found else None


def _outcome(record: Record) -> str:
    verdict = record.get("verdict")
    if verdict:
        return str(verdict["verdict"])
    status = str(record.get("status") or "")
    if status == "not-tried":
        return "not tried"
    return "no verdict" if status in ("", "finished") else status


def _settings(candidate: Mapping[str, Any]) -> tuple[str, ...]:
    environ = (f"{key}={value}" for key, value in (candidate.get("environ") or {}).items())
    return (*environ, *map(str, candidate.get("arguments") or ()))


def _ratio(figures: tuple[float, ...], baseline: tuple[float, ...]) -> float | None:
    if not figures or not baseline:
        return None
    below = median(baseline)
    return median(figures) / below if below else None


def as_json(board: Board, records: Sequence[Record]) -> dict[str, Any]:
    """The plan as JSON has it, with the command that makes each trial again."""
    lines = {str(record["id"]): again.command(record) for record in records}
    return {
        "goal": board.goal,
        "metric": None if board.metric is None else board.metric._asdict(),
        "baseline": None if board.baseline is None else board.baseline.id,
        "trials": [
            {
                **row._asdict(),
                "figure": row.figure,
                "baseline_figure": row.base,
                "command": lines[row.id],
            }
            for row in board.rows
        ],
        "untried": list(board.untried),
        "machine": dict(board.machine),
        "here": dict(board.here),
    }
