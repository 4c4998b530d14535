"""The command that makes a trial again, from its record.  Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from .private import HIDDEN


def command(record: Mapping[str, Any]) -> str:
    """A line for a shell.  Where a record names no command, ``COMMAND…`` stands for it.

    Values that the record hides are left out: whoever runs it has them set.
    """
    kind = "ab" if record.get("kind") == "ab" else "run"
    words = ["patchkit", "trial", kind, "--name", str(record["name"])]
    sets = record.get("sets") or {}
    candidate, baseline = (sets.get(name) or {} for name in ("candidate", "baseline"))
    if kind == "ab":
        for option, one, other in (
            ("--baseline", baseline, candidate),
            ("--candidate", candidate, baseline),
        ):
            for word in (*_names(one), *_apart(one, other)):
                words += [option, word]
    else:
        for name in _names(candidate):
            words += ["--bundle", name]
        for setting in _settings(candidate):
            words += ["--env", setting]
    runs = [run for run in record.get("runs") or () if run.get("set") != "baseline"]
    if len(runs) > 1 or (runs and kind == "ab"):
        words += ["--repeat", str(len(runs))]
    if record.get("append_args"):
        words.append("--append-args")
    if record.get("measure"):
        words += ["--measure", shlex.join(record["measure"])]
    if kind == "ab" and record.get("confounded"):
        words.append("--confounded")
    line = shlex.join([*words, "--"])
    return f"{line} {shlex.join(record['command']) if record.get('command') else 'COMMAND…'}"


def _names(chosen: Mapping[str, Any]) -> Iterator[str]:
    for bundle in chosen.get("bundles") or ():
        yield str(bundle["name"])


def _settings(chosen: Mapping[str, Any]) -> Iterator[str]:
    for key, value in (chosen.get("environ") or {}).items():
        if value != HIDDEN:
            yield f"{key}={value}"


def _apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """The settings that one set has and the other has not, where their bundles are the same:
    else they are the bundles' own."""
    if list(_names(one)) == list(_names(other)):
        shared = set(_settings(other))
        yield from (setting for setting in _settings(one) if setting not in shared)
