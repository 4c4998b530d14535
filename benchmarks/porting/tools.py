"""The tools that are compared, each on one pair: the bytes that it leaves, or None where it
refuses."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from patchkit.porting.engine import port
from patchkit.porting.model import FileEdit, PatchEdit, Ported

from .pairs import Pair
from .trees import Changed, tree

Answer = tuple[str, bytes | None]


def _patch(pair: Pair, folder: Path) -> bytes:
    for name, data in (("a", pair.before), ("b", pair.patched)):
        Path(folder, name).mkdir()
        Path(folder, name, "file").write_bytes(data)
    done = subprocess.run(
        ["git", "diff", "--no-index", "--no-color", "--no-prefix", "a/file", "b/file"],
        cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    return done.stdout


def _on_patch(pair: Pair, *command: str) -> Answer:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        patch = Path(folder, "change.patch")
        patch.write_bytes(_patch(pair, folder))
        work = Path(folder, "work")
        work.mkdir()
        Path(work, "file").write_bytes(pair.theirs)
        done = subprocess.run(
            [*command, str(patch)], cwd=work, capture_output=True, check=False,
            env={"PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_CEILING_DIRECTORIES": name,
                 "HOME": name, "LC_ALL": "C"},
        )  # fmt: skip
        if done.returncode:
            return "refused", None
        return "applied", Path(work, "file").read_bytes()


def git_apply(pair: Pair) -> Answer:
    """``git apply``, on the right file also where it moved."""
    return _on_patch(pair, "git", "apply")


def gnu_patch(fuzz: int) -> Callable[[Pair], Answer]:
    """GNU patch, on the right file also where it moved."""

    def run(pair: Pair) -> Answer:
        return _on_patch(pair, "patch", "-p1", "-N", "-s", f"--fuzz={fuzz}", "-r", "-", "-i")

    return run


def merge_file(pair: Pair) -> Answer:
    """``git merge-file`` with the three sides, also where the file moved."""
    with tempfile.TemporaryDirectory() as name:
        for side, data in (("o", pair.before), ("a", pair.theirs), ("b", pair.patched)):
            Path(name, side).write_bytes(data)
        done = subprocess.run(
            ["git", "merge-file", "-p", "a", "o", "b"], cwd=name, capture_output=True, check=False
        )
        return ("merged", done.stdout) if done.returncode == 0 else ("refused", None)


def ported(pair: Pair) -> Ported:
    """What the engine makes of a pair."""
    base, target = tree(pair.project, pair.base), tree(pair.project, pair.target)
    edit = FileEdit(pair.path, pair.path, pair.patched)
    return port(base, Changed(target, {pair.target_path: pair.theirs}), [PatchEdit("p", (edit,))])


def answer(pair: Pair, result: Ported) -> Answer:
    """A result of the engine as the other tools give theirs."""
    if result.outcome == "conflict":
        return "refused", None
    if set(result.contents) - {pair.target_path}:
        return "elsewhere", b""
    return result.outcome, result.contents.get(pair.target_path, pair.theirs)


def patchkit(pair: Pair) -> Answer:
    """``patchkit port``, in one jump; it finds a moved file by itself."""
    return answer(pair, ported(pair))


TOOLS: dict[str, Callable[[Pair], Answer]] = {
    "git apply": git_apply,
    "patch --fuzz=0": gnu_patch(0),
    "patch --fuzz=2": gnu_patch(2),
    "git merge-file": merge_file,
    "patchkit port": patchkit,
}
