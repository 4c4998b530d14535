"""``[tool.patchkit]`` of a ``pyproject.toml``: what an environment is to carry.

Owns where that file is looked for, its keys, and which environment a project means.  Only
looks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from patchkit.errors import Refused
from patchkit.fsio import MAX_METADATA, read_plain
from patchkit.manifest import nearest

NAME = "pyproject.toml"
#: Every key, and what it holds.
_KEYS = {
    "bundles": "names of bundles, or paths of loose patch files",
    "bundle-dir": "a bundle directory, or REPOSITORY@REVISION",
    "bundle-dirs": "several of these, the later one wins",
    "python": "an interpreter or the folder of a virtual environment",
}


class Project(NamedTuple):
    """The table, with the folder that its paths start from."""

    folder: str
    bundles: tuple[str, ...]
    bundle_dirs: tuple[str, ...]
    python: str | None

    @property
    def file(self) -> str:
        """Where it was read."""
        return os.path.join(self.folder, NAME)


def find_project(start: str) -> Project:
    """The nearest ``pyproject.toml`` at or above a folder that has the table.

    Raises :class:`Refused` where there is none (``no-project``), and for a table that is wrong
    (``project``), with every problem in it.
    """
    folder = os.path.abspath(start)
    seen = []
    while True:
        path = os.path.join(folder, NAME)
        if os.path.isfile(path):
            seen.append(path)
            table = _table(path)
            if table is not None:
                return _project(folder, table)
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    what = f"{', '.join(seen)}: no [tool.patchkit]" if seen else f"no {NAME} in or above {start}"
    raise Refused(
        what,
        code="no-project",
        hint='say what is wanted there: [tool.patchkit] and bundles = ["NAME"]; or name the'
        " folder of the project with --project DIR",
    )


def environment_of(project: Project, environ: Mapping[str, str]) -> str | None:
    """The environment that a project means, where the command line and ``PATCHKIT_PYTHON`` do
    not say: its ``python`` key, else what uv would take, else None."""
    if project.python is not None:
        return os.path.join(project.folder, os.path.expanduser(project.python))
    named = environ.get("UV_PROJECT_ENVIRONMENT") or ".venv"
    folder = os.path.join(project.folder, named)
    return folder if os.path.isfile(os.path.join(folder, "pyvenv.cfg")) else None


def _table(path: str) -> Any:
    import tomli

    try:
        data = tomli.loads(read_plain(path, MAX_METADATA).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _wrong(path, [f"not readable as TOML: {error}"]) from None
    tool = data.get("tool")
    return tool.get("patchkit") if isinstance(tool, dict) else None


def _project(folder: str, table: Any) -> Project:
    path = os.path.join(folder, NAME)
    if not isinstance(table, dict):
        raise _wrong(path, ["tool.patchkit: it must be a table"])
    problems = [
        f"tool.patchkit.{key}: unknown key; {nearest(key, tuple(_KEYS))}"
        for key in table
        if key not in _KEYS
    ]

    def get(key: str, fits: Callable[[Any], bool], otherwise: Any) -> Any:
        value = table.get(key, otherwise)
        if key in table and not fits(value):
            problems.append(f"tool.patchkit.{key}: it must hold {_KEYS[key]}")
            return otherwise
        return value

    bundles = get("bundles", _are_texts, [])
    if "bundles" not in table:
        problems.append(f"tool.patchkit.bundles: it is missing; it holds {_KEYS['bundles']}")
    twice = sorted({name for name in bundles if bundles.count(name) > 1})
    problems += [f"tool.patchkit.bundles: {name} stands there twice" for name in twice]
    if "bundle-dir" in table and "bundle-dirs" in table:
        problems.append("tool.patchkit.bundle-dir: it and bundle-dirs exclude each other")
    one = get("bundle-dir", _is_text, None)
    several = get("bundle-dirs", _are_texts, [])
    python = get("python", _is_text, None)
    if problems:
        raise _wrong(path, problems)
    return Project(folder, tuple(bundles), (one,) if one else tuple(several), python)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _wrong(path: str, problems: list[str]) -> Refused:
    first, *more = problems
    return Refused(
        f"{path}: {first}",
        code="project",
        file=path,
        detail=tuple(more),
        hint="known keys: " + ", ".join(_KEYS),
    )
