"""The working folder of a port that met a conflict.

Owns ``.port/BUNDLE/`` in the bundle directory: for each file that a person must merge, the
new release's file with markers under its own path, and the three sides beside it.
"""

from __future__ import annotations

import json
import os
from typing import Any

from patchkit.errors import Refused
from patchkit.fsio import Root, make_root, move_tree, remove_tree
from patchkit.porting.model import FileResult, Ported

FOLDER = ".port"
SCHEMA = 1
_SIDES = ("base", "ours", "theirs")


def folder_of(bundles: str, name: str) -> str:
    """Where a bundle's conflict is worked on."""
    return os.path.join(bundles, FOLDER, name)


def write(bundles: str, name: str, job: dict[str, Any], ported: Ported, *, whole: bool) -> str:
    """Make the folder; its path.  ``job`` says how to go on; with ``whole`` every file is put
    there and not only those in conflict (an assertion fails on a merge that is none).

    Raises :class:`Refused` where one is there already.
    """
    path = folder_of(bundles, name)
    if os.path.exists(path):
        raise Refused(
            f"a port of {name} is under way in {path}",
            code="port-under-way",
            bundle=name,
            hint=f"patchkit port {name} --continue, or --abort",
        )
    aside = f"{path}.new"
    if os.path.isdir(aside):  # of one that was killed
        remove_tree(aside)
    root = make_root(aside)
    try:
        files = []
        for number, patch in enumerate(ported.patches, 1):
            for result in patch.files:
                target = result.path or result.old_path
                if target is None or not (whole or result.outcome == "conflict"):
                    continue
                place = f"{number}/{target}"
                files.append({"patch": patch.name, "path": target, "file": place})
                _put(root, place, _shown(result))
                for side in _SIDES:
                    _put(root, f"{place}.{side}", getattr(result, side))
        value = {"schema": SCHEMA, "bundle": name, **job, "files": files}
        root.replace("port.json", json.dumps(value, indent=2).encode() + b"\n")
    except BaseException:
        remove_tree(aside)
        raise
    finally:
        root.close()
    move_tree(aside, path)
    return path


def _shown(result: FileResult) -> bytes | None:
    """What a person starts from: the file with markers, or the merge that was made."""
    for data in (result.marked, result.data, result.theirs):
        if data is not None:
            return data
    return None


def _put(root: Root, path: str, data: bytes | None) -> None:
    if data is not None:
        root.make_folders(path)
        root.replace(path, data)


def read(bundles: str, name: str) -> tuple[dict[str, Any], dict[tuple[str, str], bytes]]:
    """The job, and the files as they are in the folder now, by patch and path."""
    path = folder_of(bundles, name)
    try:
        with open(os.path.join(path, "port.json"), encoding="utf-8") as file:
            job = json.load(file)
        if job["schema"] != SCHEMA or job["bundle"] != name:
            raise ValueError("of another schema")
        places = {(one["patch"], one["path"]): str(one["file"]) for one in job["files"]}
    except FileNotFoundError:
        raise Refused(
            f"no port of {name} is under way",
            code="no-port",
            bundle=name,
            hint=f"patchkit port {name} --to-installed",
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(
            f"{path}/port.json cannot be read: {error}",
            code="port-damaged",
            bundle=name,
            hint=f"patchkit port {name} --abort",
        ) from None
    found: dict[tuple[str, str], bytes] = {}
    for key, place in places.items():
        try:
            with open(os.path.join(path, place), "rb") as merged:
                found[key] = merged.read()
        except FileNotFoundError:
            raise Refused(
                f"{place} is gone from {path}",
                code="port-damaged",
                bundle=name,
                hint=f"put it back, or begin again: patchkit port {name} --abort",
            ) from None
    return job, found


def remove(bundles: str, name: str) -> bool:
    """Take the folder away; False where there is none."""
    path = folder_of(bundles, name)
    if not os.path.isdir(path):
        return False
    remove_tree(path)
    above = os.path.join(bundles, FOLDER)
    if not os.listdir(above):
        remove_tree(above)
    return True
