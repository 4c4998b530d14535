"""The ledger as one table, for other programs."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence

from patchkit.fsio import make_root

from .record import Trial, as_json

_COLUMNS = (
    *("id", "name", "kind", "status", "verdict", "reason", "unblock", "confounded", "set"),
    *("bundles", "fingerprint", "run", "started", "ended", "exit", "seconds", "ready_seconds"),
    *("peak_memory_bytes", "metric", "value", "unit", "better"),
)


def as_list(trials: Sequence[Trial]) -> str:
    """The records as one JSON list."""
    return json.dumps([as_json(one) for one in trials], indent=2, ensure_ascii=False) + "\n"


def as_csv(trials: Sequence[Trial]) -> str:
    """RFC 4180, one row for each figure of each run; a run without a figure, and a trial
    without a run, has one row all the same."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for one in trials:
        writer.writerows(_rows(one))
    return out.getvalue()


def _rows(one: Trial) -> Iterator[list[object]]:
    verdict = one.verdict
    head: list[object] = [one.id, one.name, one.kind, one.status]
    head += [None] * 3 if verdict is None else [verdict.verdict, verdict.reason, verdict.unblock]
    head.append(one.confounded)
    if not one.runs:
        yield [*head, *[None] * (len(_COLUMNS) - len(head))]
    for number, run in enumerate(one.runs, start=1):
        use = one.sets.get(run.set)
        names = "" if use is None else " ".join(bundle.name for bundle in use.bundles)
        row = [*head, run.set, names, None if use is None else use.fingerprint, number]
        row += [run.started, run.ended, run.exit, run.seconds, run.ready_seconds]
        row.append(run.peak_memory_bytes)
        if not run.values:
            yield [*row, None, None, None, None]
        for name, value in run.values.items():
            metric = one.metrics.get(name)
            yield [*row, name, value, *(("", "") if metric is None else metric)]


def write(cwd: str, path: str, text: str) -> None:
    """Write a file whole."""
    full = os.path.join(cwd, os.path.expanduser(path))
    folder, name = os.path.split(full)
    root = make_root(folder)
    try:
        root.replace(name, text.encode("utf-8", "backslashreplace"))
    finally:
        root.close()
