"""Whether a set was tried before and found to be a dead end.

Owns the look into the ledger before a set is applied; must cost next to nothing where there is no
ledger, and little where there are thousands of trials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from patchkit.bundles import is_loose, is_shipped, read_manifest, resolve_order
from patchkit.errors import PatchkitError
from patchkit.manifest import parse_manifest
from patchkit.model import Bundle
from patchkit.session import Options, Session

from .ledger import Ledger, place
from .record import BASELINE, CANDIDATE, Trial

#: In a record that has a verdict, however its JSON is laid out.
_JUDGED = re.compile(rb'"verdict"\s*:\s*"')

Key = Sequence[tuple[str, "str | None"]]


def ledger_of(session: Session, given: str | None = None) -> Ledger:
    """The ledger of a session.  Raises :class:`UsageError` where none can be."""
    options = session.options
    folder = None
    if not (given or options.environ.get("PATCHKIT_TRIALS")):
        folder = None if is_shipped(session.folder) else session.folder
    return Ledger(place(given, options.environ, options.cwd, folder))


def settings_of(trial: Trial) -> Mapping[str, str]:
    """The settings that a trial is about: those that tell two sets of the same bundles apart, or
    that are tried with no bundle.  Beside bundles that are tried, they are how it was run."""
    candidate, baseline = trial.sets[CANDIDATE], trial.sets.get(BASELINE)
    if baseline is None:
        return {} if candidate.bundles else candidate.environ
    if baseline.key != candidate.key:
        return {}
    pairs = candidate.environ.items() - baseline.environ.items()
    return dict(pairs)


def last_verdict(ledger: Ledger, key: Key, settings: Mapping[str, str]) -> Trial | None:
    """The latest trial of a set, by its bundles with their versions and its settings, that has a
    verdict.  A record that names no version is of every one."""
    if not (key or settings):
        return None  # nothing is tried: whatever came of that is no fault of a set
    names = [f'"{name}"'.encode() for name, _ in key]

    def may_be(data: bytes) -> bool:
        return _JUDGED.search(data) is not None and all(name in data for name in names)

    for trial in reversed(ledger.list(may_be).trials):
        use = trial.sets.get(CANDIDATE)
        if use is None or trial.verdict is None or len(use.bundles) != len(key):
            continue
        had = dict(use.key)
        same = all(name in had and had[name] in (None, version) for name, version in key)
        if same and settings_of(trial) == settings:
            return trial
    return None


def warning(trial: Trial | None) -> dict[str, Any] | None:
    """What is said of a dead end, as JSON; None where the trial is none."""
    if trial is None or trial.verdict is None or trial.verdict.verdict != "dead-end":
        return None
    return {
        "id": trial.id,
        "name": trial.name,
        "at": trial.verdict.at,
        "reason": trial.verdict.reason,
        "cause": trial.verdict.cause,
        "unblock": trial.verdict.unblock,
    }


def line(found: dict[str, Any]) -> str:
    """The same in a line."""
    text = f"this set is a dead end (trial {found['name']}, {(found['at'] or '')[:10]})"
    if found["reason"]:
        text += f": {found['reason']}"
    if found["unblock"]:
        text += f"; worth another look when {found['unblock']}"
    return text


def before_apply(options: Options, names: Sequence[str]) -> dict[str, Any] | None:
    """The dead end that ``apply`` of these bundles would lead into; None where there is none, or
    what there is cannot be read: that is no reason to stop."""
    try:
        session = Session(options)
        ledger = ledger_of(session)
        if not ledger.exists():
            return None
        return warning(last_verdict(ledger, _key(session, names), {}))
    except (OSError, PatchkitError):
        return None


def _key(session: Session, names: Sequence[str]) -> Key:
    """The set that would be applied then, by its bundles' names and versions."""
    state = session.home.read_state()
    found: dict[str, str | None] = {}
    if state is not None:
        found = {entry["name"]: entry["version"] for entry in state["bundles"]}

    def load(name: str) -> Bundle:
        return parse_manifest(read_manifest(session.folder, name), name)

    wanted = [name for name in names if not is_loose(name)]
    found.update({bundle.name: bundle.version for bundle in resolve_order(wanted, load)})
    return list(found.items())
