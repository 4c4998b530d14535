"""The folder of a context: what bake wrote there, and nothing of anybody else.

Owns ``bake.json``, which names every file that bake wrote, with its SHA-256, and what the image
is to carry.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from patchkit.errors import Refused
from patchkit.fsio import MAX_METADATA, digest, read_plain, walk_files
from patchkit.publishing import finish, is_unfinished, publish

RECORD = "bake.json"
SCHEMA = 1
#: What a write that was killed before it counted left; the next one drops it.
_UNFINISHED = ".writing.new/"


class Expected(NamedTuple):
    """What the set is on the machine that baked: its fingerprint (None: there is nothing to
    patch there), and the releases that it was computed for."""

    fingerprint: str | None
    releases: dict[str, str]


def record(files: Mapping[str, bytes], bundles: list[tuple[str, str]], expected: Any) -> bytes:
    """The bytes of ``bake.json``; the same values give the same bytes."""
    value = {
        "schema": SCHEMA,
        "bundles": [{"name": name, "version": version} for name, version in bundles],
        "expected": None if expected is None else expected._asdict(),
        "files": {path: digest(data) for path, data in sorted(files.items())},
    }
    return (json.dumps(value, indent=1) + "\n").encode()


def read_record(folder: str) -> dict[str, Any]:
    """``bake.json`` of a folder.  Raises :class:`Refused` (``no-context``)."""
    path = os.path.join(folder, RECORD)
    try:
        value = json.loads(read_plain(path, MAX_METADATA))
        if value["schema"] != SCHEMA:
            raise ValueError(f"schema {value['schema']}")
        expected = value["expected"]
        if expected is not None:
            Expected(expected["fingerprint"], dict(expected["releases"]))
        dict(value["files"])
    except FileNotFoundError:
        raise Refused(
            f"{folder} holds no {RECORD}: patchkit bake did not write it",
            code="no-context",
            hint="patchkit bake --from IMAGE --output DIR",
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(
            f"{path} is not what patchkit bake writes: {error}",
            code="no-context",
            hint="bake into another folder",
        ) from None
    assert isinstance(value, dict)
    return value


def changes(folder: str, files: Mapping[str, bytes], *, only_look: bool) -> dict[str, bytes | None]:
    """What has to be written for the folder to hold exactly these files, ``None`` for one that
    goes.  A write that was killed is finished first, or where this may ``only_look``, refused
    (``bake-interrupted``).

    Raises :class:`Refused` (``foreign-files``) for a folder that holds anything but what bake
    wrote there, as it wrote it.
    """
    if os.path.isdir(folder) and is_unfinished(folder):
        if only_look:
            raise Refused(
                f"a bake into {folder} was interrupted",
                code="bake-interrupted",
                hint="run the same command without --check, which finishes it",
            )
        finish(folder)
    present = _present(folder)
    known: dict[str, str] = {}
    if RECORD in present:
        known = dict(read_record(folder)["files"])
    foreign = [path for path in sorted(present) if path != RECORD and path not in known]
    edited = [
        path
        for path in sorted(known)
        if path in present and digest(present[path]) not in (known[path], _digest(files, path))
    ]
    for names, what, hint in (
        (foreign, "holds what patchkit bake did not write", "name a folder of its own"),
        (edited, "was edited after patchkit bake", "keep your edit elsewhere, and delete the file"),
    ):
        if names:
            raise Refused(
                f"{folder} {what}: {names[0]}",
                code="foreign-files",
                file=os.path.join(folder, names[0]),
                detail=tuple(names[1:8]),
                hint=f"{hint}; then bake again",
            )
    out: dict[str, bytes | None] = {path: None for path in present if path not in files}
    out.update({path: data for path, data in files.items() if present.get(path) != data})
    return out


def write(folder: str, contents: Mapping[str, bytes | None]) -> None:
    """Write all, or nothing."""
    publish(folder, contents)


def _digest(files: Mapping[str, bytes], path: str) -> str | None:
    return digest(files[path]) if path in files else None


def _present(folder: str) -> dict[str, bytes]:
    """Every file that is there; what git keeps beside the files of a repository is none."""
    found = {}
    try:
        names = list(walk_files(folder))
    except FileNotFoundError:
        return {}
    except NotADirectoryError:
        raise Refused(
            f"{folder} is no folder", code="foreign-files", hint="name a folder of its own"
        ) from None
    for path in names:
        if path in (".gitattributes", ".gitignore") or path.startswith(_UNFINISHED):
            continue
        full = os.path.join(folder, path)
        found[path] = read_plain(full) if os.path.isfile(full) else b""
    return found
