"""verify, status and diff: what is there, against what is recorded.  Changes nothing.

Imports what is heavy where it is used; ``verify`` and ``status`` stay light.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from .errors import PatchkitError, Refused
from .fsio import digest
from .session import Options, Report, Session
from .state import BLOBS, PRISTINE, BundleEntry, FileEntry, Home, State
from .verify import Problem, verify_recorded

Progress = Callable[[str, int, int], None]


def verify(options: Options, names: Sequence[str]) -> Report:
    """Files as recorded, assertions hold, and the named bundles are applied."""
    session = Session(options)
    state, problems = verify_recorded(
        session.home, [_plain(name) for name in names], options.lock_timeout
    )
    for problem in problems:
        if problem["kind"] == "missing-bundle":
            _say_if_unknown(session, problem)
    problems += _other_patches(options, names, state)
    return _verdict(session, "verify", state, problems)


def _other_patches(options: Options, names: Sequence[str], state: State | None) -> list[Problem]:
    """Loose patches of which one with the same file name but other bytes is applied."""
    applied = {} if state is None else {e["name"]: e for e in state["bundles"] if e["loose"]}
    problems = []
    for name in names:
        entry = applied.get(_plain(name))
        path = os.path.join(options.cwd, name)
        if entry is None or not (os.path.exists(path) or os.sep in name):
            continue  # a bare name says no more than what the patch is called
        data = _bytes(path)
        if data is None:
            message = f"{name} is not there; a patch of this name is applied"
        elif digest(data) != entry["variants"][0]["patches"][0][1]:
            message = f"{name} has other bytes than the patch of this name that is applied"
        else:
            continue
        problems.append(
            Problem(
                kind="missing-bundle",
                bundle=entry["name"],
                file=None,
                message=message,
                hint=f"patchkit apply {name}, or name it without a folder",
            )
        )
    return problems


def _say_if_unknown(session: Session, problem: Problem) -> None:
    """A name that nobody knows is misspelt, and applying it is no way out."""
    from .bundles import is_loose, read_manifest

    name = str(problem["bundle"])
    if is_loose(name):
        return
    try:
        read_manifest(session.folder, name)
    except PatchkitError as error:
        problem["message"] += f", and {error.message}"
        problem["hint"] = error.hint or ""


def _plain(name: str) -> str:
    """A loose patch is recorded under its file name."""
    return os.path.basename(name) if name.endswith((".patch", ".diff")) else name


def _verdict(
    session: Session, command: str, state: State | None, problems: list[Problem]
) -> Report:
    return Report(
        command,
        {
            "environment": session.described(),
            "bundles": [] if state is None else [entry["name"] for entry in state["bundles"]],
            "problems": problems,
            "fingerprint": None if state is None else state["fingerprint"],
            "checked": 0 if state is None else len(state["files"]),
        },
        exit_code=1 if problems else 0,
    )


def verify_pristine(options: Options, progress: Progress) -> Report:
    """Nothing is applied, and every distribution that a bundle on offer targets is what
    its RECORD (or git HEAD) says.  Reads them whole."""
    from .pristine import distributions_on_offer, not_pristine

    session = Session(options)
    state, problems = verify_recorded(session.home, [], options.lock_timeout)
    if state is not None:
        for entry in state["bundles"]:
            problems.append(
                Problem(
                    kind="not-pristine",
                    bundle=entry["name"],
                    file=None,
                    message=f"{entry['name']} is applied",
                    hint="patchkit revert --all",
                )
            )
    checked = []
    recorded = set() if state is None else {entry["path"] for entry in state["files"]}
    for dist in distributions_on_offer(session.env, session.folder):
        checked.append(f"{dist.name} {dist.version}")
        # What patchkit wrote itself was compared with its record above.
        problems += [p for p in not_pristine(dist, progress) if p["file"] not in recorded]
    report = _verdict(session, "verify", state, problems)
    report.data["distributions"] = checked
    if not checked and report.exit_code:
        report.notes.append("no distribution that a bundle on offer targets is installed")
    return report


def status(options: Options, *, check: bool) -> Report:
    """The applied set, its fingerprint, and drift."""
    session = Session(options)
    state, problems = verify_recorded(session.home, [], options.lock_timeout)
    report = _verdict(session, "status", state, problems)
    report.data["applied"] = [] if state is None else [_applied(e) for e in state["bundles"]]
    report.data["distributions"] = (
        [] if state is None else [f"{d['name']} {d['version']}" for d in state["distributions"]]
    )
    report.data["files"] = [] if state is None else [_file(entry) for entry in state["files"]]
    if not check:
        report.exit_code = 0
    return report


def _applied(entry: BundleEntry) -> dict[str, Any]:
    variants = [
        f"{v['distribution']} {v['versions']}".strip()
        for v in entry["variants"]
        if v["distribution"]
    ]
    return {
        "name": entry["name"],
        "version": entry["version"],
        "variant": ", ".join(variants) or None,
        "env": entry["profile"]["env"],
        "args": entry["profile"]["args"],
    }


def _file(entry: FileEntry) -> dict[str, Any]:
    before, after = entry["before"], entry["after"]
    word = "modified"
    if before is None:
        word = "added"
    elif after is None:
        word = "deleted"
    elif before["sha256"] == after["sha256"]:
        word = "mode"
    return {"path": entry["path"], "change": word, "distribution": entry["owner"] or None}


# -- diff -------------------------------------------------------------------------------


def diff(options: Options, names: Sequence[str]) -> Report:
    """With names: what applying them would change; without: pristine against now."""
    if names:
        return _diff_wanted(options, names)
    session = Session(options)
    home = session.home
    if home.unfinished():
        raise Refused(
            "a command on this environment was interrupted or is under way",
            code="interrupted",
            hint="patchkit recover",
        )
    state = home.read_state()
    files = []
    for entry in [] if state is None else state["files"]:
        if entry["role"] == "record":
            continue
        assert state is not None
        root = home.resolve(state["roots"][entry["root"]])
        before = _kept_bytes(home, entry)
        after = _bytes(f"{root}/{entry['path']}")
        if before != after or entry["before"] is None or entry["after"] is None:
            files.append(_file_diff(entry["path"], before, after, _modes(entry)))
    return Report("diff", {"environment": session.described(), "files": files})


def _diff_wanted(options: Options, names: Sequence[str]) -> Report:
    from .workflow import plan_apply

    session, planned = plan_apply(options, names)
    files = []
    for change in planned.work.changes:
        if change.path.endswith(".dist-info/RECORD"):
            continue
        path = f"{session.home.resolve(change.root)}/{change.path}"
        before = None if change.old is None else _bytes(path)
        after = None if change.new is None else change.data
        if change.new is not None and change.data is None:
            after = before
        modes = (
            None if change.old is None else change.old["mode"],
            None if change.new is None else change.new["mode"],
        )
        files.append(_file_diff(change.path, before, after, modes))
    report = Report("diff", {"environment": session.described(), "files": files})
    report.notes += planned.notes
    return report


def _modes(entry: FileEntry) -> tuple[int | None, int | None]:
    before, after = entry["before"], entry["after"]
    return (
        None if before is None else before["mode"],
        None if after is None else after["mode"],
    )


def _kept_bytes(home: Home, entry: FileEntry) -> bytes | None:
    if entry["before"] is None:
        return None
    if entry["blob"]:
        data = _bytes(f"{home.holder}/{BLOBS}/{entry['blob']}")
        if data is not None:
            return data
    return _bytes(f"{home.holder}/{PRISTINE}/{entry['stash']}")


def _bytes(path: str) -> bytes | None:
    if os.path.islink(path) and not os.path.exists(path):
        return os.fsencode(os.readlink(path))
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _file_diff(
    path: str,
    before: bytes | None,
    after: bytes | None,
    modes: tuple[int | None, int | None],
) -> dict[str, Any]:
    """One file of a diff in git's form; bytes that are no UTF-8 as surrogate escapes."""
    from .hunks import split

    lines = [f"diff --git a/{path} b/{path}\n"]
    if before is None and modes[1] is not None:
        lines.append(f"new file mode {0o100755 if modes[1] & 0o100 else 0o100644:o}\n")
    elif after is None and modes[0] is not None:
        lines.append(f"deleted file mode {0o100755 if modes[0] & 0o100 else 0o100644:o}\n")
    elif modes[0] and modes[1] and (modes[0] ^ modes[1]) & 0o100:
        old, new = (0o100755 if mode & 0o100 else 0o100644 for mode in (modes[0], modes[1]))
        lines += [f"old mode {old:o}\n", f"new mode {new:o}\n"]
    added = removed = 0
    if before is not None and after is not None and b"\0" in before[:8000] + after[:8000]:
        lines.append(f"Binary files a/{path} and b/{path} differ\n")
    elif before != after:
        import difflib

        body = difflib.unified_diff(
            [_decoded(line) for line in split(before or b"")],
            [_decoded(line) for line in split(after or b"")],
            f"a/{path}" if before is not None else "/dev/null",
            f"b/{path}" if after is not None else "/dev/null",
        )
        for line in body:
            if line.startswith("+") and not line.startswith("+++ "):
                added += 1
            elif line.startswith("-") and not line.startswith("--- "):
                removed += 1
            lines.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return {"path": path, "added": added, "removed": removed, "diff": "".join(lines)}


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
