"""How patches that somebody carries fare on the releases after the one they were made for.

``python -m benchmarks.porting.real --project sglang --patches DIR`` takes a folder of patch
files.  The base of each is the release that its ``index`` lines name, or the first one that
it applies to.  There is no truth to compare with: what all tools that carry a patch agree on
needs no look; the rest is written to ``build/port-real``, for a person to judge.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from patchkit.errors import PatchkitError
from patchkit.model import FileState, split
from patchkit.porting.edits import edit
from patchkit.porting.engine import port
from patchkit.porting.model import PatchEdit, Ported
from patchkit.porting.moves import Moves
from patchkit.stack import Stack

from .trees import ROOT, ArchiveTree, tree

STEPS = (1, 2, 3, 6)
RELEASES: dict[str, Sequence[str]] = {
    "sglang": (
        *("0.5.6", "0.5.7", "0.5.8", "0.5.9", "0.5.10", "0.5.11", "0.5.12", "0.5.13", "0.5.14"),
        *("0.5.15", "0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22"),
        "0.5.23",
    ),
    "vllm": (
        *("0.7.2", "0.7.3", "0.8.0", "0.8.5", "0.9.0", "0.9.2", "0.10.0", "0.10.2", "0.11.0"),
        *("0.12.0", "0.13.0", "0.14.0", "0.16.0", "0.17.0", "0.18.0", "0.19.0", "0.20.0", "0.21.0"),
        *("0.22.0", "0.23.0", "0.24.0", "0.25.0", "0.26.0", "0.27.0", "0.28.0", "0.29.0"),
        *("0.30.0", "0.31.0", "0.32.0", "0.33.0"),
    ),
}
#: Path to the bytes that a tool leaves there; None where it refuses the patch.
Answer = Mapping[str, bytes | None] | None
#: Files that are the ones a patch names, and (negative) by how many lines its hunks are off.
Rank = tuple[int, int]


class Carried(NamedTuple):
    """A patch on its base."""

    name: str
    project: str
    base: str
    edit: PatchEdit


class Files:
    """A release as the stack of patches reads it."""

    def __init__(self, release: ArchiveTree) -> None:
        self.release = release
        self.paths = release.paths

    def state(self, path: str) -> FileState | None:
        """A file of the release; None where there is none."""
        data = self.release.read(path)
        return None if data is None else FileState("file", 0o644, data)


def on(name: str, project: str, version: str, data: bytes) -> tuple[PatchEdit, Rank] | str:
    """What the patch makes of a release, and how much of it says that it was made for that
    one; or why it does not go on."""
    release = tree(project, version)
    try:
        put = Stack(Files(release)).apply(name, data, None)
    except PatchkitError as error:
        return f"{error.message} ({error.code})"
    blobs = off = 0
    for mapped in put.mapping.files:
        before = (release.read(mapped.old) if mapped.old else None) or b""
        lines = split(before)
        if mapped.patch.old_blob:
            blobs += _blob(before).startswith(mapped.patch.old_blob)
        for hunk in mapped.patch.hunks:
            off += _off(lines, list(hunk.old), hunk.old_start - 1)
    return edit(name, put.mapping.files, put.before, put.after), (blobs, -off)


def _off(lines: Sequence[bytes], old: Sequence[bytes], start: int) -> int:
    """How far from its line a hunk's text stands."""
    places = (n for n in range(len(lines) - len(old) + 1) if lines[n : n + len(old)] == old)
    return min((abs(n - start) for n in places), default=0)


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def based(path: Path, project: str, releases: Sequence[str], stated: str | None) -> Carried | str:
    """The patch on the release it was made for, or why there is none: of those that it goes
    onto the first where most files are the ones that its ``index`` lines name, and the hunks
    stand nearest to their lines."""
    data = path.read_bytes()
    best: tuple[Rank, str, PatchEdit] | None = None
    why = "no release"
    for version in [stated] if stated else releases:
        made = on(path.name, project, version, data)
        if isinstance(made, str):
            why = f"{version}: {made}"
        elif best is None or made[1] > best[0]:
            best = made[1], version, made[0]
    return Carried(path.name, project, best[1], best[2]) if best else why


# -- the tools ------------------------------------------------------------------------------


def _tool(patch: Carried, target: ArchiveTree, *command: str) -> Answer:
    """A command on the files at their old paths, given the patch as git writes it."""
    base = tree(patch.project, patch.base)
    with tempfile.TemporaryDirectory() as name:
        env = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": name, "LC_ALL": "C",
               "GIT_CEILING_DIRECTORIES": name}  # fmt: skip
        paths = {p for file in patch.edit.files for p in (file.old, file.new) if p}
        for file in patch.edit.files:
            for side, at, data in (
                ("a", file.old, base.read(file.old) if file.old else None),
                ("b", file.new, file.data),
            ):
                if at and data is not None:
                    _write(Path(name, side, at), data)
        for at in paths:
            data = target.read(at)
            if data is not None:
                _write(Path(name, "work", at), data)
        Path(name, "work").mkdir(exist_ok=True)
        done = subprocess.run(
            ["git", "diff", "--no-index", "--no-color", "--no-prefix", "a", "b"],
            cwd=name, capture_output=True, check=False, env=env,
        )  # fmt: skip
        Path(name, "change.patch").write_bytes(done.stdout)
        done = subprocess.run(
            [*command, "../change.patch"], cwd=Path(name, "work"), capture_output=True,
            check=False, env=env,
        )  # fmt: skip
        if done.returncode:
            return None
        found = {
            at: Path(name, "work", at).read_bytes() if Path(name, "work", at).exists() else None
            for at in paths
        }
    return {at: data for at, data in found.items() if data != target.read(at)}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def git_apply(patch: Carried, target: ArchiveTree) -> Answer:
    """``git apply``."""
    return _tool(patch, target, "git", "apply", "-p1")


def gnu_patch(patch: Carried, target: ArchiveTree) -> Answer:
    """GNU patch with all the fuzz that it takes by itself."""
    return _tool(patch, target, "patch", "-p1", "-N", "-s", "--fuzz=2", "-r", "-", "-i")


def merge_file(patch: Carried, target: ArchiveTree) -> Answer:
    """``git merge-file``, each file where it moved to."""
    base = tree(patch.project, patch.base)
    moves = Moves(base, target)
    found: dict[str, bytes | None] = {}
    for file in patch.edit.files:
        if file.old is None:
            if file.new and target.digest(file.new) is not None:
                return None
            found[file.new or ""] = file.data
            continue
        at = file.old if target.digest(file.old) is not None else moves.file(file.old)[0]
        theirs, before = target.read(at) if at else None, base.read(file.old)
        if at is None or theirs is None or before is None or file.data is None:
            return None
        with tempfile.TemporaryDirectory() as name:
            for side, data in (("o", before), ("a", theirs), ("b", file.data)):
                Path(name, side).write_bytes(data)
            done = subprocess.run(
                ["git", "merge-file", "-p", "a", "o", "b"],
                cwd=name, capture_output=True, check=False,
            )  # fmt: skip
        if done.returncode:
            return None
        if done.stdout != theirs:
            found[at] = done.stdout
    return found


def ported(patch: Carried, target: ArchiveTree) -> Ported:
    """What the engine makes of it, in one jump."""
    return port(tree(patch.project, patch.base), target, [patch.edit])


OTHERS = {"git apply": git_apply, "patch --fuzz=2": gnu_patch, "git merge-file": merge_file}


# -- the report -----------------------------------------------------------------------------


def _diff(old: bytes | None, new: bytes | None) -> str:
    with tempfile.TemporaryDirectory() as name:
        Path(name, "a").write_bytes(old or b"")
        Path(name, "b").write_bytes(new or b"")
        done = subprocess.run(
            ["git", "diff", "--no-index", "--no-color", "-U6", "a", "b"],
            cwd=name, capture_output=True, check=False,
        )  # fmt: skip
    return "".join(done.stdout.decode("utf-8", "replace").partition("\n@@")[1:])


def _reasons(result: Ported) -> list[str]:
    found = []
    for patch in result.patches:
        for file in patch.files:
            found += [f"{file.path or file.old_path}: note: {note}" for note in file.notes]
            found += [
                f"{file.path or file.old_path}:{problem.line or ''} {problem.code}: "
                f"{problem.message}"
                for problem in file.problems
            ]
            found += [
                f"{file.path or file.old_path} base line {hunk.base.line} in "
                f"{hunk.within or 'the file'}: {hunk.outcome} {hunk.reason}".rstrip()
                for hunk in file.hunks
            ]
    return found


def _written(
    where: Path, target: ArchiveTree, result: Ported, answers: Mapping[str, Answer]
) -> None:
    """All that a person needs to judge one case."""
    text = [f"patchkit: {result.outcome}", *_reasons(result), ""]
    for path, data in result.contents.items():
        text += [f"=== patchkit {path}", _diff(target.read(path), data)]
    seen = [dict(result.contents)] if result.outcome != "conflict" else []
    for tool, answer in answers.items():
        if answer is None:
            text.append(f"=== {tool}: refused")
        elif answer in seen:
            text.append(f"=== {tool}: the same as one above")
        else:
            seen.append(dict(answer))
            for path, data in answer.items():
                text += [f"=== {tool} {path}", _diff(target.read(path), data)]
    for file in result.conflicts:
        marked = file.marked or b""
        text += [f"=== conflict {file.path or file.old_path}", _diff(file.theirs, marked)]
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text("\n".join(text))


def main() -> int:
    """Carry every patch of the folder, and print how often each tool carried it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", type=Path, required=True)
    parser.add_argument("--project", required=True, choices=[*RELEASES])
    parser.add_argument("--releases", nargs="*", help="in order; by default the ones known here")
    parser.add_argument("--steps", type=int, nargs="*", default=STEPS, help="releases later")
    parser.add_argument("--stated", type=Path, help='JSON: {"name.patch": "its release"}')
    parser.add_argument("--only", help="part of the name of a patch")
    arguments = parser.parse_args()
    releases = arguments.releases or RELEASES[arguments.project]
    stated = json.loads(arguments.stated.read_text()) if arguments.stated else {}
    out = ROOT / "build" / "port-real" / arguments.project
    counts: dict[tuple[int, str], Counter[str]] = {}
    rows = []
    for path in sorted([*arguments.patches.glob("*.patch"), *arguments.patches.glob("*.diff")]):
        if arguments.only and arguments.only not in path.name:
            continue
        patch = based(path, arguments.project, releases, stated.get(path.name))
        if isinstance(patch, str):
            print(f"{path.name}: left out, applies to none of them; the last: {patch}")
            continue
        place = releases.index(patch.base)
        for step in arguments.steps:
            if place + step >= len(releases):
                continue
            target = tree(arguments.project, releases[place + step])
            begin = time.monotonic()
            result = ported(patch, target)
            spent = time.monotonic() - begin
            answers = {tool: run(patch, target) for tool, run in OTHERS.items()}
            own: Answer = None if result.outcome == "conflict" else dict(result.contents)
            given = [answer for answer in (own, *answers.values()) if answer is not None]
            agreed = all(answer == given[0] for answer in given)
            for tool, answer in (*answers.items(), ("patchkit port", own)):
                said = "refused" if answer is None else "carried"
                counts.setdefault((step, tool), Counter())[said] += 1
            case = f"{path.stem}@{releases[place + step]}"
            where = out / f"{case}.txt"
            _written(where, target, result, answers)
            rows.append({
                "patch": path.name, "base": patch.base, "target": releases[place + step],
                "step": step, "patchkit": result.outcome, "agreed": agreed,
                "seconds": round(spent, 2),
                **{tool: answer is not None for tool, answer in answers.items()},
            })  # fmt: skip
            marks = "".join("+" if answer is not None else "-" for answer in answers.values())
            print(f"{case} from {patch.base}: {result.outcome}, others {marks}"
                  f"{'' if agreed else ', not the same'}", flush=True)  # fmt: skip
    print("| releases later | tool | carried | refused |\n| --- | --- | --- | --- |")
    for (step, tool), count in sorted(counts.items()):
        print(f"| {step} | {tool} | {count['carried']} | {count['refused']} |")
    out.mkdir(parents=True, exist_ok=True)
    (out / "all.json").write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
