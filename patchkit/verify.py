"""The recorded state against the disk: the guard of a launch.

Owns promise 9: needs no write permission, network, git, HOME or terminal; imports nothing
heavy; its cost depends on the applied files.  An assertion held for the bytes whose
digests were recorded; as it is a function of those bytes alone, it is judged anew only
where one of them differs.  Must not repair anything.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, TypedDict

from .errors import Locked, PatchkitError, SymlinkedFolder
from .fsio import Root, digest
from .state import FileEntry, Home, Ident, State, ident_on_disk, same

_POLL = 0.05


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
    deadline = time.monotonic() + timeout
    while True:
        mark = home.state_mark()
        if home.unfinished():
            if not home.holder_alive() and home.unfinished():
                return home.read_state(), [_interrupted(home)]
        else:
            state = home.read_state()
            problems = check(home, state, names)
            # A problem seen while someone changes the environment is none of its own.
            if not problems or (home.state_mark() == mark and not home.unfinished()):
                return state, problems
        if time.monotonic() >= deadline:
            raise Locked(
                f"a change is under way: the environment is held by {home.lock_note()}",
                hint="wait for it to end, or give it longer with --lock-timeout SECONDS",
            )
        time.sleep(_POLL)


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
        problems += _check_releases(home, state)
        _check_files(state, roots, problems)
        _check_asserts(state, roots, problems)
    finally:
        for root in roots:
            if root is not None:
                root.close()
    return problems


def _open(path: str) -> Root | None:
    try:
        return Root(path)
    except OSError:
        return None


def _check_releases(home: Home, state: State) -> list[Problem]:
    problems = []
    for dist in state["distributions"]:
        info = dist["dist_info"]
        if info is None or os.path.isdir(os.path.join(home.holder, info)):
            continue
        problems.append(
            Problem(
                kind="release-changed",
                bundle=None,
                file=None,
                message=f"{dist['name']} {dist['version']} was patched, installed is"
                f" {_installed_now(home, info) or 'none'}",
                hint="patchkit apply BUNDLE puts it on what is installed now; patchkit revert"
                " --all --forget drops the record",
            )
        )
    return problems


def _installed_now(home: Home, info: str) -> str | None:
    """The release that is there instead; ``info`` is the ``.dist-info`` that is gone."""
    folder, file = os.path.split(os.path.join(home.holder, info))
    start = file.removesuffix(".dist-info").rpartition("-")[0] + "-"
    try:
        found = [n for n in os.listdir(folder) if n.startswith(start)]
    except OSError:
        return None
    versions = [n[len(start) :].removesuffix(".dist-info") for n in found]
    return ", ".join(sorted(versions)) or None


def _check_files(state: State, roots: list[Root | None], problems: list[Problem]) -> None:
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
        problems.append(
            Problem(
                kind="drift",
                bundle=", ".join(entry["bundles"]) or None,
                file=entry["path"],
                message=f"{entry['path']}: "
                + (f"cannot be read: {error}" if error else _difference(entry, now)),
                hint=_drift_hint(entry, now),
            )
        )


def _difference(entry: FileEntry, now: Ident | None) -> str:
    after, before = entry["after"], entry["before"]
    if now is None:
        return "is missing"
    if after is None:
        return "is there again, although a patch removed it"
    if same(now, before):
        return "is pristine again, unpatched (reinstalled or restored by someone else)"
    if now["kind"] != after["kind"]:
        return f"is now a {now['kind']}, not a {after['kind']}"
    if now["sha256"] == after["sha256"]:
        return f"has mode {now['mode']:04o}, recorded is {after['mode']:04o}"
    return "differs from what patchkit wrote"


def _drift_hint(entry: FileEntry, now: Ident | None) -> str:
    if now is not None and same(now, entry["before"]):
        return "patchkit apply of the same bundles puts the patch back"
    owner = entry["owner"] or "the distribution"
    return f"patchkit diff shows what is there; undo the edit, or reinstall {owner} and apply again"


def _check_asserts(state: State, roots: list[Root | None], problems: list[Problem]) -> None:
    digests = {
        (e["root"], e["path"]): None if e["after"] is None else e["after"]["sha256"]
        for e in state["files"]
        if e["after"] is None or e["after"]["kind"] == "file"
    }
    drifted = {problem["file"] for problem in problems if problem["kind"] == "drift"}
    clock: list[Any] = []
    for entry in state["asserts"]:
        root = roots[entry["root"]]
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


def _interrupted(home: Home) -> Problem:
    return Problem(
        kind="interrupted",
        bundle=None,
        file=None,
        message=f"a patchkit command on {home.base} was interrupted and is not finished",
        hint="patchkit recover",
    )
