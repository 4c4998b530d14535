"""Trials written as MLflow runs (the extra ``mlflow``)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from patchkit.errors import Fault, Refused

from . import again

#: The tag by which a run is known to be of a trial.
ID = "patchkit.trial"
#: MLflow's own limits, in characters.
_MOST_PARAM, _MOST_TAG = 6000, 5000
_STATUS = {
    "finished": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
    "running": "RUNNING",
    "not-tried": "SCHEDULED",
}


class Exported(NamedTuple):
    """The ids of the trials that were written, and of those that were there already."""

    written: list[str]
    there: list[str]


def export(records: Sequence[Mapping[str, Any]], uri: str, experiment: str) -> Exported:
    """Write one MLflow run a trial: bundles, settings and facts as parameters and tags, each
    run's figures as the steps of a metric, the record as an artifact.

    A trial that the experiment has already gets its tags anew (a verdict may have come since)
    and nothing else.  Raises :class:`Refused` where MLflow is not installed or does not take
    the address, and :class:`Fault` where the store fails.
    """
    # A tool that is asked to write into a store tells nobody else of it.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise Refused(
            "MLflow is not installed",
            code="mlflow-missing",
            hint="pip install 'patchkit-sets[mlflow]'",
        ) from None
    try:
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(experiment)
        number = client.create_experiment(experiment) if found is None else found.experiment_id
    except MlflowException as error:
        raise Refused(
            f"MLflow does not take {uri}: {_first_line(error)}",
            code="mlflow-store",
            hint="name a database or a server: --mlflow sqlite:///mlflow.db",
        ) from None
    done = Exported([], [])
    try:
        known = dict(_known(client, number))
        for record in records:
            trial = str(record["id"])
            if trial in known:
                for key, value in _tags(record):
                    client.set_tag(known[trial], key, value)
                done.there.append(trial)
            else:
                _write(client, number, record)
                done.written.append(trial)
    except MlflowException as error:
        raise Fault(
            f"MLflow failed: {_first_line(error)}",
            code="mlflow",
            hint=f"{len(done.written)} trials were written; run the same command again",
        ) from None
    return done


def _known(client: Any, experiment: str) -> Iterator[tuple[str, str]]:
    """(trial, run) for each run of a trial in an experiment."""
    token = None
    while True:
        page = client.search_runs([experiment], max_results=1000, page_token=token)
        for run in page:
            trial = run.data.tags.get(ID)
            if trial is not None:
                yield trial, run.info.run_id
        token = page.token
        if not token:
            return


def _write(client: Any, experiment: str, record: Mapping[str, Any]) -> None:
    from mlflow.entities import Metric, Param

    started = _milliseconds(record.get("started"))
    run = client.create_run(
        experiment,
        run_name=str(record["name"]),
        start_time=started,
        tags=dict(_tags(record)),
    ).info.run_id
    client.log_batch(
        run,
        metrics=[
            Metric(name, value, time or started or 0, step)
            for name, value, time, step in _metrics(record)
        ],
        params=[Param(key, value[:_MOST_PARAM]) for key, value in _params(record)],
    )
    client.log_dict(run, dict(record), "trial.json")
    status = _STATUS.get(str(record.get("status")), "FINISHED")
    client.set_terminated(run, status, _milliseconds(record.get("ended")) or started)


def _tags(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    verdict = record.get("verdict") or {}
    tags = {
        ID: record["id"],
        "patchkit.kind": record.get("kind"),
        "patchkit.goal": record.get("goal"),
        "patchkit.confounded": record.get("confounded"),
        "patchkit.command": again.command(record),
        **{
            f"patchkit.{key}": verdict.get(key) for key in ("verdict", "reason", "cause", "unblock")
        },
    }
    for key, value in tags.items():
        if value:
            yield key, str(value)[:_MOST_TAG]


def _params(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for side, chosen in (record.get("sets") or {}).items():
        bundles = (
            f"{bundle['name']} {bundle.get('version') or ''}".strip()
            for bundle in (chosen or {}).get("bundles") or ()
        )
        values = {
            "bundles": ", ".join(bundles),
            "fingerprint": (chosen or {}).get("fingerprint"),
            "arguments": " ".join((chosen or {}).get("arguments") or ()),
        }
        for key, value in values.items():
            if value:
                yield f"{side}.{key}", str(value)
    for key, value in (record.get("facts") or {}).items():
        yield f"fact.{key}", str(value)


def _metrics(record: Mapping[str, Any]) -> Iterator[tuple[str, float, int | None, int]]:
    """(name, figure, time in milliseconds, step); the baseline's have ``baseline.`` before."""
    steps: dict[str, int] = {}
    for run in record.get("runs") or ():
        before = "baseline." if run.get("set") == "baseline" else ""
        values = dict(run.get("values") or {})
        for key in ("seconds", "ready_seconds", "peak_memory_bytes"):
            values[key] = run.get(key)
        for name, value in values.items():
            if value is None:
                continue
            key = before + name
            step = steps[key] = steps.get(key, -1) + 1
            yield key, float(value), _milliseconds(run.get("started")), step


def _milliseconds(text: str | None) -> int | None:
    if not text:
        return None
    # Python before 3.11 does not read the Z of ISO 8601.
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
