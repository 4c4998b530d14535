"""Runs one tool on case after case: ``python tools.py NAME``, in an environment that has it.

A line on standard input is a case: tree, patch, strip level, backwards or not, as JSON.  The
tool works in a child of its own, in the tree; the answer is a line with its exit code.  Only
the standard library and the tool itself are imported here.  The two readers that apply
nothing to files by themselves (whatthepatch, unidiff) get a plain engine around them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIMIT_S = 20


def patchkit(patch: str, strip: int, *, reverse: bool) -> int:
    """The command itself; its record is taken away where it worked."""
    from patchkit.commands import short_way

    arguments = ["--root", ".", "apply", patch, "--strip", str(strip)]
    arguments += ["--reverse"] if reverse else []
    code = short_way(arguments)
    if code is None:
        from patchkit.cli import run

        code = run(arguments)
    if code == 0:
        shutil.rmtree(".patchkit", ignore_errors=True)
    return code


def patch_ng(patch: str, strip: int, *, reverse: bool) -> int:
    """patch-ng's own ``apply`` and ``revert``."""
    module: Any = __import__("patch_ng")
    found = module.fromfile(patch)
    if not found:
        return 1
    return 0 if (found.revert if reverse else found.apply)(strip, root=".") else 1


def whatthepatch(patch: str, strip: int, *, reverse: bool) -> int:
    """Files around whatthepatch's ``apply_diff``, which places the lines."""
    module: Any = __import__("whatthepatch")
    files = Files(strip, reverse=reverse)
    for diff in module.parse_patch(_read(Path(patch))):
        if diff.header is None or diff.changes is None:
            return 1
        old, new = files.pair(diff.header.old_path, diff.header.new_path)
        text = files.now(old)
        lines = text.removesuffix("\n").split("\n") if text else []
        done = module.apply_diff(diff, lines, reverse=reverse)
        files.store(old, new, "".join(line + "\n" for line in done))
    return files.write()


def unidiff(patch: str, strip: int, *, reverse: bool) -> int:
    """The plainest engine over unidiff: each hunk at its line, else at the nearest one
    where all its old lines stand."""
    module: Any = __import__("unidiff")
    files = Files(strip, reverse=reverse)
    for file in module.PatchSet(_read(Path(patch))):
        old_name, new_name = files.pair(file.source_file, file.target_file)
        lines = _split(files.now(old_name))
        shift = 0
        for hunk in file:
            old, new = _sides(hunk)
            start = hunk.source_start
            if reverse:
                old, new, start = new, old, hunk.target_start
            place = _nearest(lines, old, max(start - bool(old), 0) + shift)
            lines[place : place + len(old)] = new
            shift += len(new) - len(old)
        files.store(old_name, new_name, "".join(lines))
    return files.write()


def _split(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _sides(hunk: Any) -> tuple[list[str], list[str]]:
    """Both sides of a hunk; a mark of a missing line end belongs to the line before it."""
    old: list[str] = []
    new: list[str] = []
    sides: list[list[str]] = []
    for line in hunk:
        if line.line_type == "\\":
            for side in sides:
                side[-1] = side[-1].rstrip("\n")
            continue
        sides = [] if line.is_added else [old]
        sides += [] if line.is_removed else [new]
        for side in sides:
            side.append(line.value)
    return old, new


def _nearest(lines: list[str], old: list[str], stated: int) -> int:
    for place in sorted(range(len(lines) + 1), key=lambda place: abs(place - stated)):
        if lines[place : place + len(old)] == old:
            return place
    raise ValueError("no place")


# -- files around a reader -----------------------------------------------------------------


def _read(path: Path) -> str:
    return path.read_bytes().decode("latin-1")


class Files:
    """The files that a patch names, written only when all of it could be placed."""

    def __init__(self, strip: int, *, reverse: bool) -> None:
        self._strip = strip
        self._reverse = reverse
        self._wanted: dict[Path, str | None] = {}

    def pair(self, old: str, new: str) -> tuple[Path | None, Path | None]:
        """The path before and after.  A reader may have taken ``a/`` away by itself; and of
        two names the one that is there counts."""
        if self._reverse:
            old, new = new, old
        before, after = (self._found(name) for name in (old, new))
        if before is not None and after is not None and not before.is_file():
            before = after
        return before, after

    def _found(self, name: str) -> Path | None:
        if name == "/dev/null":
            return None
        whole = Path(name)
        short = Path(*whole.parts[self._strip :])
        return whole if whole.is_file() and not short.is_file() else short

    def now(self, path: Path | None) -> str:
        """What a file holds by now; nothing where it is absent (a plain diff does not always
        say that a file is new)."""
        if path is None:
            return ""
        if path in self._wanted:
            return self._wanted[path] or ""
        return _read(path) if path.is_file() else ""

    def store(self, old: Path | None, new: Path | None, text: str) -> None:
        """What it is to hold."""
        if old is not None and old != new:
            self._wanted[old] = None
        if new is not None:
            self._wanted[new] = text

    def write(self) -> int:
        """Write all of it; 1 where that cannot be, or there is nothing to write."""
        for path, text in self._wanted.items():
            if path.is_dir() or (text is None and not path.is_file()):
                return 1
        for path, text in self._wanted.items():
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode("latin-1"))
        return 0 if self._wanted else 1


# -- one case after another ----------------------------------------------------------------

TOOLS: dict[str, Callable[..., int]] = {
    "patchkit": patchkit,
    "patch-ng": patch_ng,
    "whatthepatch": whatthepatch,
    "unidiff": unidiff,
}


def _in_a_child(tool: Callable[..., int], tree: str, patch: str, strip: int, back: bool) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(LIMIT_S)
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            os.chdir(tree)
            code = tool(patch, strip, reverse=back)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _cases() -> Iterator[tuple[str, str, int, bool]]:
    for line in sys.stdin:
        tree, patch, strip, back = json.loads(line)
        yield tree, patch, strip, back


def main() -> None:
    """Answer until the input ends."""
    tool = TOOLS[sys.argv[1]]
    if sys.argv[1] == "patchkit":  # once, and not in every child
        import patchkit.cli
        import patchkit.commands  # noqa: F401
    else:
        __import__(sys.argv[1].replace("-", "_"))
    print("ready", flush=True)
    for case in _cases():
        print(_in_a_child(tool, *case), flush=True)


if __name__ == "__main__":
    main()
