"""The recorded state against the disk: the guard of a launch.

Owns promise 9: needs no write permission, network, git, HOME or terminal; imports nothing
heavy; its cost depends on the applied files.  An assertion held for the bytes whose
digests were recorded; as it is a function of those bytes alone, it is judged anew only
where one of them differs.  Must not repair anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from .errors import PatchkitError, Refused, SymlinkedFolder
from .fsio import Root, digest
from .lock import steady
from .ongoing import read as read_trial
from .state import DistributionEntry, FileEntry, Home, Ident, State, ident_on_disk, same


class Problem(TypedDict, total=False):
    """One finding.  ``kind`` is drift, assertion, interrupted, missing-bundle,
    release-changed or not-pristine."""

    kind: str
    bundle: str | None
    file: str | None
    line: int
    message: str
    hint: str


def verify_recorded(
    home: Home, names: Sequence[str], timeout: float
) -> tuple[State | None, list[Problem]]:
    """Everything that is wrong, against the state as it was at one moment.

    A change under way is waited for; raises :class:`Locked` after ``timeout`` seconds.
    """

    def look() -> tuple[State | None, list[Problem]]:
        state = home.read_state()
        return state, check(home, state, names)

    try:
        state, problems = steady(home, timeout, look, lambda found: not found[1])
        return state, [*_dead_trial(home), *problems]
    except Refused as error:
        if error.code != "interrupted":
            raise
        return home.read_state(), [_interrupted(error)]


def check(home: Home, state: State | None, names: Sequence[str]) -> list[Problem]:
    """Compare the disk with a state; no locks, no waiting."""
    applied = [] if state is None else [entry["name"] for entry in state["bundles"]]
    problems = [
        Problem(
            kind="missing-bundle",
            bundle=name,
            file=None,
            message=f"{name} is not applied",
            hint=f"patchkit apply {name}",
        )
        for name in names
        if name not in applied
    ]
    if state is None:
        return problems
    roots: list[Root | None] = []
    try:
        roots += [_open(home.resolve(name)) for name in state["roots"]]
        releases = {dist["name"]: _release(home, dist) for dist in state["distributions"]}
        again = f"patchkit apply {' '.join(applied)}"
        problems += _check_releases(releases, again)
        explained = _check_files(state, roots, releases, again, problems)
        others = {release.name for release in releases.values() if release.changed}
        _check_asserts(state, roots, explained, others, problems)
    finally:
        for root in roots:
            if root is not None:
                root.close()
    return problems


class _Release(NamedTuple):
    """What was patched, and what is there of it now: ``info`` is its ``.dist-info``, None
    where it is none of a wheel or gone; ``now`` the releases that are installed instead."""

    name: str
    version: str
    info: str | None
    changed: bool
    now: str | None


def _open(path: str) -> Root | None:
    try:
        return Root(path)
    except OSError:
        return None


def _release(home: Home, dist: DistributionEntry) -> _Release:
    name, version, recorded = dist["name"], dist["version"], dist["dist_info"]
    if recorded is None:
        return _Release(name, version, None, changed=False, now=None)
    info = os.path.join(home.holder, recorded)
    # An uninstall that could not remove a stray file leaves a folder without METADATA.
    if _is_installed(info):
        of_wheel = info if dist["kind"] == "wheel" else None
        return _Release(name, version, of_wheel, changed=False, now=None)
    folder, file = os.path.split(info)
    start = file.removesuffix(".dist-info").rpartition("-")[0] + "-"
    try:
        found = sorted(
            entry
            for entry in os.listdir(folder)
            if entry.startswith(start)
            and entry.endswith(".dist-info")
            and _is_installed(os.path.join(folder, entry))
        )
    except OSError:
        found = []
    versions = ", ".join(entry[len(start) :].removesuffix(".dist-info") for entry in found)
    now = os.path.join(folder, found[0]) if found else None
    return _Release(name, version, now, changed=True, now=versions or None)


def _is_installed(info: str) -> bool:
    if info.endswith(".dist-info"):
        return os.path.isfile(os.path.join(info, "METADATA"))
    return os.path.lexists(info)


def _check_releases(releases: Mapping[str, _Release], again: str) -> list[Problem]:
    return [
        Problem(
            kind="release-changed",
            bundle=None,
            file=None,
            message=f"{release.name} {release.version} was patched, installed is"
            f" {release.now or 'none'}",
            hint=_hint_of_release(release, again),
        )
        for release in releases.values()
        if release.changed
    ]


def _hint_of_release(release: _Release, again: str) -> str:
    forget = "patchkit revert --all --forget"
    if release.now is None:
        return (
            f"install {release.name}=={release.version} again, then: {again}; or, where it is to"
            f" stay away: {forget}"
        )
    return f"{again} puts the set on {release.now}; where none of it fits that release: {forget}"


def _check_files(
    state: State,
    roots: list[Root | None],
    releases: Mapping[str, _Release],
    again: str,
    problems: list[Problem],
) -> set[tuple[int, str]]:
    """Returns the files that an installer put back or took away: what an assertion says of
    these follows from that."""
    explained: set[tuple[int, str]] = set()
    for entry in state["files"]:
        root = roots[entry["root"]]
        error: str | None = None
        now: Ident | None = None
        try:
            now = None if root is None else ident_on_disk(root, entry["path"])
        except SymlinkedFolder as caught:
            error = None if entry["after"] is None else caught.message
        except (OSError, PatchkitError) as caught:
            error = getattr(caught, "strerror", None) or str(caught)
        if error is None and same(now, entry["after"]):
            continue
        if error is not None:
            what, hint = f"cannot be read: {error}", "see why, then verify again"
        else:
            release = releases.get(entry["owner"])
            replaced = _as_installed(entry, now, release)
            if replaced or now is None:
                explained.add((entry["root"], entry["path"]))
            what = _difference(entry, now, release, replaced=replaced)
            hint = _hint_of_file(now, release, again, replaced=replaced)
        problems.append(
            Problem(
                kind="drift",
                bundle=", ".join(entry["bundles"]) or None,
                file=entry["path"],
                message=f"{entry['path']}: {what}",
                hint=hint,
            )
        )
    return explained


def _as_installed(entry: FileEntry, now: Ident | None, release: _Release | None) -> bool:
    """Whether a file is as an installer leaves it: what it was before the patch, or what the
    RECORD of the release that is there says, which lists no file that is absent."""
    if now is not None and same(now, entry["before"]):
        return True
    if release is None or release.info is None:
        return now is None and release is not None and release.changed
    from .record import Record

    try:
        record = Record.load(release.info)
    except PatchkitError:
        return False
    if record is None:
        return False
    row = record.rows((entry["path"],)).get(entry["path"])
    if row is None or now is None:
        return row is None and now is None
    return now["kind"] == "file" and row.digest_hex == now["sha256"]


def _difference(
    entry: FileEntry, now: Ident | None, release: _Release | None, *, replaced: bool
) -> str:
    after = entry["after"]
    if now is None:
        gone = release is not None and release.changed and release.now is None
        return f"is missing: {entry['owner']} is not installed any more" * gone or "is missing"
    if replaced and release is not None and release.changed:
        return f"is as {release.name} {release.now} has it, unpatched"
    if after is None:
        return "is there again, although a patch removed it"
    if replaced:
        return "is pristine again, unpatched (reinstalled or restored by someone else)"
    if now["kind"] != after["kind"]:
        return f"is now a {now['kind']}, not a {after['kind']}"
    if now["sha256"] == after["sha256"]:
        return f"has mode {now['mode']:04o}, recorded is {after['mode']:04o}"
    return "differs from what patchkit wrote"


def _hint_of_file(
    now: Ident | None, release: _Release | None, again: str, *, replaced: bool
) -> str:
    if release is not None and release.changed:
        return _hint_of_release(release, again)
    if replaced:
        return f"{again} puts the patch on again"
    if release is None or release.info is None:
        return "patchkit diff shows what is there; undo what was done to it"
    reinstall = f"{_reinstall(release)} && {again}"
    if now is None:
        return reinstall
    return f"keep your edit if it matters (patchkit diff shows it), then: {reinstall}"


def _reinstall(release: _Release) -> str:
    """How whoever installed a wheel puts its files back, into this very environment: the one
    that a shell has at hand may be another."""
    from shlex import quote

    info = release.info or ""
    prefix = os.path.normpath(os.path.join(info, "../../../.."))  # of lib/python3.x/site-packages
    here = os.path.exists(os.path.join(prefix, "pyvenv.cfg"))
    python = f" --python {quote(prefix)}" if here else ""
    tool = f"pip{python} install --force-reinstall"
    try:
        with open(os.path.join(info, "INSTALLER"), "rb") as file:
            if file.read(16).strip() == b"uv":
                tool = f"uv pip install{python} --reinstall"
    except OSError:
        pass
    return f"{tool} --no-deps {release.name}=={release.version}"


def _check_asserts(
    state: State,
    roots: list[Root | None],
    explained: set[tuple[int, str]],
    others: set[str],
    problems: list[Problem],
) -> None:
    """``others`` are distributions of which another release is there, or none: no assertion was
    ever judged on that."""
    digests = {
        (e["root"], e["path"]): None if e["after"] is None else e["after"]["sha256"]
        for e in state["files"]
        if e["after"] is None or e["after"]["kind"] == "file"
    }
    drifted = {problem["file"] for problem in problems if problem["kind"] == "drift"}
    clock: list[Any] = []
    for entry in state["asserts"]:
        root = roots[entry["root"]]
        if any((entry["root"], path) in explained for path in entry["reads"]):
            continue
        if entry["assertion"].get("distribution") in others:
            continue
        for path, recorded in entry["reads"].items():
            key = (entry["root"], path)
            if key not in digests or path in drifted:
                data = _read(root, path)
                digests[key] = None if data is None else digest(data)
            if digests[key] != recorded:
                _judge(entry["bundle"], entry["assertion"], root, problems, clock)
                break


def _read(root: Root | None, path: str) -> bytes | None:
    if root is None:
        return None
    try:
        return root.read(path, follow=True)
    except (OSError, PatchkitError):
        return None


def _judge(
    bundle: str,
    compiled: dict[str, Any],
    root: Root | None,
    problems: list[Problem],
    clock: list[Any],
) -> None:
    """``clock`` keeps the one of this command, made where the first assertion is judged."""
    from .compiled import Clock, assertion_from

    if not clock:
        clock.append(Clock())
    assertion = assertion_from(compiled)
    finding = clock[0].judged(
        assertion, _read(root, assertion.file), lambda path: _read(root, path)
    )
    if finding.ok:
        return
    problem = Problem(
        kind="assertion",
        bundle=bundle,
        file=assertion.file,
        message=f"{assertion.file}: {assertion.message or 'an assertion does not hold'}"
        f" ({assertion.key} of {bundle}: {finding.message})",
        hint=f"patchkit show {bundle} says what it is for",
    )
    if finding.line is not None:
        problem["line"] = finding.line
    problems.append(problem)


def _dead_trial(home: Home) -> list[Problem]:
    """A trial whose process is gone: what it tried is still applied, or half switched."""
    one = read_trial(home)
    if one is None or one.alive:
        return []
    return [
        Problem(
            kind="interrupted",
            bundle=None,
            file=None,
            message=f"the {one.described()} was interrupted; what was applied before it is not"
            " put back yet",
            hint="patchkit recover",
        )
    ]


def _interrupted(error: Refused) -> Problem:
    return Problem(
        kind="interrupted", bundle=None, file=None, message=error.message, hint=error.hint or ""
    )
