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
    wanted: dict[Path, str | None] = {}
    for diff in module.parse_patch(_read(Path(patch))):
        if diff.header is None or diff.changes is None:
            return 1
        names = _pair(diff.header.old_path, diff.header.new_path, strip, reverse=reverse)
        lines = _lines(_now(names[0], wanted))
        _store(names, module.apply_diff(diff, lines, reverse=reverse), wanted)
    return _write(wanted)


def unidiff(patch: str, strip: int, *, reverse: bool) -> int:
    """The plainest engine over unidiff: each hunk at its line, else at the nearest one
    where all its old lines stand."""
    module: Any = __import__("unidiff")
    wanted: dict[Path, str | None] = {}
    for file in module.PatchSet(_read(Path(patch))):
        names = _pair(file.source_file, file.target_file, strip, reverse=reverse)
        text = _now(names[0], wanted)
        lines = text.splitlines(keepends=True)
        shift = 0
        for hunk in file:
            old = [line.value for line in hunk if not line.is_added]
            new = [line.value for line in hunk if not line.is_removed]
            start = hunk.source_start
            if reverse:
                old, new, start = new, old, hunk.target_start
            place = _nearest(lines, old, max(start - bool(old), 0) + shift)
            lines[place : place + len(old)] = new
            shift += len(new) - len(old)
        _store(names, lines, wanted, end="")
    return _write(wanted)


def _nearest(lines: list[str], old: list[str], stated: int) -> int:
    for place in sorted(range(len(lines) + 1), key=lambda place: abs(place - stated)):
        if lines[place : place + len(old)] == old:
            return place
    raise ValueError("no place")


# -- files around a reader -----------------------------------------------------------------


def _read(path: Path) -> str:
    return path.read_bytes().decode("latin-1")


def _pair(old: str, new: str, strip: int, *, reverse: bool) -> tuple[Path | None, Path | None]:
    paths = [None if name == "/dev/null" else Path(*name.split("/")[strip:]) for name in (old, new)]
    return (paths[1], paths[0]) if reverse else (paths[0], paths[1])


def _now(path: Path | None, wanted: dict[Path, str | None]) -> str:
    if path is None:
        return ""
    text = wanted[path] if path in wanted else _read(path)
    if text is None:
        raise FileNotFoundError(path)
    return text


def _lines(text: str) -> list[str]:
    return text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []


def _store(
    names: tuple[Path | None, Path | None],
    lines: list[str],
    wanted: dict[Path, str | None],
    end: str = "\n",
) -> None:
    old, new = names
    if old is not None and old != new:
        wanted[old] = None
    if new is not None:
        wanted[new] = "".join(line + end for line in lines)


def _write(wanted: dict[Path, str | None]) -> int:
    if not wanted:
        return 1
    for path, text in wanted.items():
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("latin-1"))
    return 0


# -- one case after another ----------------------------------------------------------------

TOOLS: dict[str, Callable[..., int]] = {
    "patchkit": patchkit,
    "patch-ng": patch_ng,
    "whatthepatch": whatthepatch,
    "unidiff": unidiff,
}


def _in_a_child(tool: Callable[..., int], tree: str, patch: str, strip: int, back: bool) -> int:  # noqa: FBT001
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
