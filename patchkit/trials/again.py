"""The command that makes a trial again, from its record.  Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any


def command(record: Mapping[str, Any]) -> str:
    """A line for a shell.  Where a record names no command, ``COMMAND…`` stands for it."""
    kind = "ab" if record.get("kind") == "ab" else "run"
    words = ["patchkit", "trial", kind, "--name", str(record["name"])]
    sets = record.get("sets") or {}
    candidate = sets.get("candidate") or {}
    if kind == "ab":
        baseline = ",".join(_names(sets.get("baseline") or {}))
        words += ["--baseline", baseline] if baseline else []
        words += ["--candidate", ",".join(_names(candidate))]
    else:
        for name in _names(candidate):
            words += ["--bundle", name]
    words += _repeat(record, kind)
    for key, value in (candidate.get("environ") or {}).items():
        words += ["--env", f"{key}={value}"] if kind == "run" else []
    if record.get("append_args"):
        words.append("--append-args")
    if record.get("measure"):
        words += ["--measure", shlex.join(record["measure"])]
    line = shlex.join([*words, "--"])
    return f"{line} {shlex.join(record['command']) if record.get('command') else 'COMMAND…'}"


def _names(chosen: Mapping[str, Any]) -> Iterator[str]:
    for bundle in chosen.get("bundles") or ():
        yield str(bundle["name"])


def _repeat(record: Mapping[str, Any], kind: str) -> list[str]:
    runs = [run for run in record.get("runs") or () if run.get("set") != "baseline"]
    return ["--repeat", str(len(runs))] if len(runs) > 1 or (runs and kind == "ab") else []
