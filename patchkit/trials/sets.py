"""The sets of bundles that a trial runs, and what tells two of them apart.

Owns the reading of a set from the command line, its settings, and the rule of one change.
Must not change anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from patchkit.errors import Refused
from patchkit.launch.profile import merged
from patchkit.recording import bundle_entries
from patchkit.series import Chosen
from patchkit.session import Session
from patchkit.state import BundleEntry
from patchkit.workflow import choose_for_trial

from .private import clean, command
from .record import BundleUse, Repository, SetUse

_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class Asked(NamedTuple):
    """A set as it is asked for: bundles, and settings on top of theirs."""

    bundles: tuple[str, ...] = ()
    settings: Mapping[str, str] = {}

    def words(self) -> tuple[str, ...]:
        """The set as a record names it: without secrets."""
        return (*self.bundles, *(f"{k}={clean(k, v)}" for k, v in self.settings.items()))


class Tried(NamedTuple):
    """A set that can be run: the bundles chosen for the environment, their recorded form, and
    the variables and launch arguments that they stand for.  ``settings`` were asked for with it."""

    chosen: list[Chosen]
    entries: list[BundleEntry]
    variables: dict[str, str]
    arguments: list[str]
    settings: Mapping[str, str]
    notes: list[str]

    def use(self, fingerprint: str | None) -> SetUse:
        """The set as the record has it."""
        return SetUse(
            tuple(_bundle(entry) for entry in self.entries),
            fingerprint,
            {key: clean(key, value) for key, value in self.variables.items()},
            command(self.arguments),
        )


def asked(words: Sequence[str]) -> Asked:
    """Names of bundles and ``NAME=VALUE`` settings, as they stand on the command line."""
    settings = {}
    bundles = []
    for word in words:
        if _SETTING.match(word):
            key, _, value = word.partition("=")
            settings[key] = value
        elif word:
            bundles.append(word)
    return Asked(tuple(dict.fromkeys(bundles)), settings)


def tried(session: Session, wanted: Asked, given: Mapping[str, str], *, only: bool) -> Tried:
    """Choose the bundles of a set for the environment; nothing is written."""
    chosen = choose_for_trial(session, wanted.bundles, only=only)
    entries = bundle_entries(session.env, chosen)
    profile = merged(
        [(entry["name"], entry["profile"]) for entry in entries],
        session.options.environ,
        {**given, **wanted.settings},
    )
    return Tried(
        chosen,
        entries,
        profile.variables,
        profile.arguments,
        wanted.settings,
        profile.notes,
    )


def changes(baseline: Tried, candidate: Tried) -> list[str]:
    """What is different between two sets, a line each: bundles by version and patches, and
    settings."""
    before = {entry["name"]: entry for entry in baseline.entries}
    after = {entry["name"]: entry for entry in candidate.entries}
    found = [f"without {name}" for name in before if name not in after]
    for name, entry in after.items():
        if name not in before:
            found.append(f"with {name} {entry['version']}")
        elif _bundle(before[name]) != _bundle(entry) or before[name]["profile"] != entry["profile"]:
            found.append(f"{name} {before[name]['version']} becomes {entry['version']}")
    if not found and list(before) != list(after):
        found.append("the same bundles in another order")
    now = {key: clean(key, value) for key, value in candidate.variables.items()}
    keys = [*baseline.settings, *(k for k in candidate.settings if k not in baseline.settings)]
    found += [
        f"{key}={now.get(key, '(as it is)')}"
        for key in keys
        if baseline.settings.get(key) != candidate.settings.get(key)
    ]
    return found


def one_change(baseline: Tried, candidate: Tried, *, confounded: bool) -> str | None:
    """What the record says where more than one thing differs; None where it is one.

    Raises :class:`Refused` where nothing does, and where it is not meant that several do.
    """
    found = changes(baseline, candidate)
    if not found:
        raise Refused(
            "baseline and candidate are the same set here: there is nothing to compare",
            code="same-sets",
            hint="patchkit list says what a bundle does in this environment",
        )
    if len(found) == 1:
        return None
    if not confounded:
        raise Refused(
            f"baseline and candidate differ in {len(found)} things, and a difference could be of"
            " any of them",
            code="confounded",
            detail=tuple(found),
            hint="try them one by one: put into the baseline what is not the question; or say"
            " that it is meant: --confounded",
            data={"changes": found},
        )
    return f"{len(found)} changes at once: {'; '.join(found)}"


def several(names: Sequence[str], settings: Mapping[str, str]) -> str | None:
    """The same for one set that is tried alone, against what is applied."""
    found = [*names, *(f"{key}={clean(key, value)}" for key, value in settings.items())]
    return f"{len(found)} changes at once: {'; '.join(found)}" if len(found) > 1 else None


def repository(sets: Sequence[Tried]) -> Repository | None:
    """Where the bundles come from; of several repositories that of the first bundle."""
    found = [item.origin for one in sets for item in one.chosen if item.origin]
    if not found:
        return None
    first = found[0]
    return Repository(
        first["repository"], first["revision"], not any(one["dirty"] for one in found)
    )


def _bundle(entry: BundleEntry) -> BundleUse:
    variants = [
        f"{v['distribution']} {v['versions']}".strip()
        for v in entry["variants"]
        if v["distribution"]
    ]
    return BundleUse(
        entry["name"],
        entry["version"],
        ", ".join(variants) or None,
        {path: sha256 for variant in entry["variants"] for path, sha256, _ in variant["patches"]},
    )
