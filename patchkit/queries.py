"""verify, status and diff: what is there, against what is recorded.  Changes nothing.

Imports what is heavy where it is used; ``verify`` and ``status`` stay light.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import ongoing
from .errors import PatchkitError
from .fsio import digest, read_plain
from .lock import steady
from .session import Options, Report, Session
from .state import BLOBS, PRISTINE, BundleEntry, FileEntry, Home, Ident, State
from .verify import Problem, verify_recorded

if TYPE_CHECKING:
    from .planning import Planned

Progress = Callable[[str, int, int], None]


def verify(options: Options, names: Sequence[str]) -> Report:
    """Files as recorded, assertions hold, and the named bundles are applied."""
    return verify_in(Session(options), "verify", names)[0]


def verify_in(session: Session, command: str, names: Sequence[str]) -> tuple[Report, State | None]:
    """The same for another command, in an environment that it has opened; with the state that
    was verified."""
    options = session.options
    state, problems = verify_recorded(
        session.home, [_plain(name) for name in names], options.lock_timeout
    )
    without: dict[str, str] = {}
    for problem in problems:
        if problem["kind"] == "missing-bundle":
            _say_why_missing(session, state, problem, without)
    problems = [
        one for one in problems if one["kind"] != "missing-bundle" or one["bundle"] not in without
    ]
    problems += _other_patches(options, names, state)
    report = _verdict(session, command, state, problems)
    report.data["upstream"] = [{"name": n, "reason": r} for n, r in without.items()]
    return report, state


def _other_patches(options: Options, names: Sequence[str], state: State | None) -> list[Problem]:
    """Loose patches of which one with the same file name but other bytes is applied."""
    applied = {} if state is None else {e["name"]: e for e in state["bundles"] if e["loose"]}
    problems = []
    for name in names:
        entry = applied.get(_plain(name))
        path = os.path.join(options.cwd, name)
        if entry is None or not (os.path.exists(path) or os.sep in name):
            continue  # a bare name says no more than what the patch is called
        found = _found(path, follow=True)
        if found is None:
            message = f"{name} is not there; a patch of this name is applied"
        elif digest(found[0]) != entry["variants"][0]["patches"][0][1]:
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


def _say_why_missing(
    session: Session, state: State | None, problem: Problem, without: dict[str, str]
) -> None:
    """Why a bundle is not applied.  One that has nothing to do here is as it should be, and
    goes into ``without``; a name that nobody knows is misspelt, and applying it is no way
    out."""
    from .bundles import is_loose, read_manifest

    name = str(problem["bundle"])
    if is_loose(name):
        return
    try:
        read_manifest(session.folder, name)
    except PatchkitError as error:
        problem["message"] += f", and {error.message}"
        problem["hint"] = error.hint or ""
        return
    if session.home.unfinished():
        return
    from .fitting import Pristine, choose

    try:
        with Pristine(session.env, session.home, state) as view:
            reason = choose(view, session.folder, name).reason
    except (PatchkitError, OSError):
        return  # apply tells what is in its way
    if reason is not None:
        without[name] = reason


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
    trial = ongoing.read(session.home)
    report.data["trial"] = None if trial is None else trial.as_json()
    report.data["next"] = _next_command(options, state, problems)
    from .servers import servers

    report.data["running"], report.data["all_seen"] = servers(session)
    if not check:
        report.exit_code = 0
    return report


def _next_command(options: Options, state: State | None, problems: Sequence[Problem]) -> str | None:
    """The command that puts everything right, tried out dry; None where nothing is wrong, or
    patchkit alone cannot help (the hints of the problems say what can)."""
    if not problems:
        return None
    if any(problem["kind"] == "interrupted" for problem in problems):
        return "patchkit recover"
    from .workflow import apply, revert

    names = [] if state is None else [entry["name"] for entry in state["bundles"]]
    ways: list[tuple[str, Callable[[], object]]] = [
        (f"patchkit apply {' '.join(names)}", lambda: apply(options, names, dry_run=True)),
        (
            "patchkit revert --all --forget",
            lambda: revert(options, [], everything=True, forget=True, dry_run=True),
        ),
    ]
    for command, attempt in ways:
        try:
            attempt()
        except (OSError, PatchkitError):
            continue
        return command
    return None


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
        "origin": entry["origin"],
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
    files = steady(session.home, options.lock_timeout, lambda: _changed_files(session.home))
    return Report("diff", {"environment": session.described(), "files": files})


def _changed_files(home: Home) -> list[dict[str, Any]]:
    state = home.read_state()
    files = []
    for entry in [] if state is None else state["files"]:
        if entry["role"] == "record":
            continue
        assert state is not None
        root = home.resolve(state["roots"][entry["root"]])
        before, after = _kept(home, entry), _found(f"{root}/{entry['path']}")
        if before != after:
            files.append(_file_diff(entry["path"], before, after))
    return files


def _diff_wanted(options: Options, names: Sequence[str]) -> Report:
    from .workflow import plan_apply

    environment, files, notes = plan_apply(options, names, _wanted_files)
    data: dict[str, Any] = {"environment": environment, "files": files}
    if not files:
        notes = [*notes, "applying that would change no file; what was changed: patchkit diff"]
    return Report("diff", data, notes=notes)


def _wanted_files(
    session: Session, planned: Planned
) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    files = []
    for change in planned.work.changes:
        if change.path.endswith(".dist-info/RECORD"):
            continue
        path = f"{session.home.resolve(change.root)}/{change.path}"
        before = _found(path, follow=change.blob is not None)
        after: Side = None
        if change.new is not None:
            data = change.data
            if data is None:  # the pristine bytes come back, or the mode alone changes
                data = before[0] if before is not None else b""
            after = (data, _git_mode(change.new))
        files.append(_file_diff(change.path, before, after))
    return session.described(), files, planned.notes


#: What git says of a file: its bytes (of a symlink: its target) and mode; None: absent.
Side = tuple[bytes, int] | None


def _git_mode(ident: Ident) -> int:
    if ident["kind"] == "symlink":
        return 0o120000
    return 0o100755 if ident["mode"] & 0o100 else 0o100644


def _kept(home: Home, entry: FileEntry) -> Side:
    """The pristine file; of one that an installer linked, the bytes behind the link."""
    before = entry["before"]
    if before is None:
        return None
    if entry["blob"]:
        kept = _found(f"{home.holder}/{BLOBS}/{entry['blob']}")
        if kept is not None:
            mode = kept[1] if before["kind"] == "symlink" else _git_mode(before)
            return kept[0], mode
    if before["kind"] == "symlink":
        return os.fsencode(before["link"] or ""), 0o120000
    kept = _found(f"{home.holder}/{PRISTINE}/{entry['stash']}")
    if kept is None:
        raise PatchkitError(
            f"the kept pristine bytes of {entry['path']} are gone",
            code="pristine-damaged",
            file=entry["path"],
            hint="reinstall the distribution, then: patchkit revert --all --forget",
        )
    return kept[0], _git_mode(before)


def _found(path: str, *, follow: bool = False) -> Side:
    """What is at a path now; with ``follow`` a symlink stands for what it leads to."""
    try:
        if os.path.islink(path) and not follow:
            return os.fsencode(os.readlink(path)), 0o120000
        executable = os.stat(path).st_mode & 0o100
        return read_plain(path), 0o100755 if executable else 0o100644
    except OSError:
        return None


def _file_diff(path: str, before: Side, after: Side) -> dict[str, Any]:
    """One file of a diff in git's form; bytes that are no UTF-8 as surrogate escapes."""
    old_name, new_name = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    lines = [f"diff --git {old_name} {new_name}\n"]
    if before is not None and after is not None and (before[1] ^ after[1]) & 0o170000:
        # As git does it: a file of another kind is removed, and the new one added.
        parts = [_file_diff(path, before, None), _file_diff(path, None, after)]
        return {
            "path": path,
            "added": parts[1]["added"],
            "removed": parts[0]["removed"],
            "diff": parts[0]["diff"] + parts[1]["diff"],
        }
    if before is None and after is not None:
        lines.append(f"new file mode {after[1]:o}\n")
    elif after is None and before is not None:
        lines.append(f"deleted file mode {before[1]:o}\n")
    elif before is not None and after is not None and before[1] != after[1]:
        lines += [f"old mode {before[1]:o}\n", f"new mode {after[1]:o}\n"]
    old = b"" if before is None else before[0]
    new = b"" if after is None else after[0]
    added = removed = 0
    if b"\0" in old[:8000] + new[:8000]:
        lines.append(f"Binary files {old_name} and {new_name} differ\n")
    elif old != new:
        import difflib

        from .model import split

        body = difflib.unified_diff(
            [_decoded(line) for line in split(old)],
            [_decoded(line) for line in split(new)],
            "/dev/null" if before is None else old_name,
            "/dev/null" if after is None else new_name,
        )
        for number, line in enumerate(body):
            added += number > 1 and line.startswith("+")
            removed += number > 1 and line.startswith("-")
            lines.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return {"path": path, "added": added, "removed": removed, "diff": "".join(lines)}


def _quoted(name: str) -> str:
    """git's C-style quoting of names that hold a quote, a backslash or what no terminal prints."""
    if name.isprintable() and '"' not in name and "\\" not in name:
        return name
    special = {"\t": "\\t", "\n": "\\n", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    shown = (special.get(c) or (c if c.isprintable() else _octal(c)) for c in name)
    return f'"{"".join(shown)}"'


def _octal(char: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
