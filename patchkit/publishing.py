"""The files of a bundle directory written all, or none: also by a kill.

Owns three names at the top of a bundle directory.  ``.writing.new`` is being filled: nothing
has changed.  One rename makes it ``.writing``, and what is left are renames out of it, which
whoever comes next finishes.  One more makes that ``.writing.undo``, where an error or a signal
came between, and what is left are renames back.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .errors import Fault, Locked, Refused
from .fsio import Root, make_root

Contents = Mapping[str, "bytes | None"]

_ASIDE = ".writing.new"
_FORWARD = ".writing"
_BACK = ".writing.undo"
_LIST = "changes.json"
_SCHEMA = 1
#: Seconds that one writer waits for another; a write takes milliseconds.
_PATIENCE = 10.0


def publish(folder: str, contents: Contents, expected: Contents | None = None) -> list[str]:
    """Make files hold these bytes (None: be gone) below a bundle directory, which is made where
    it is not there.  Returns those that differed, absolute: patches, then the lock, then the
    manifest.

    On an error or a signal everything is as it was.  Raises :class:`Locked` where another one
    writes for too long, and :class:`Refused` where one of the ``expected`` files, which the new
    ones were made of, holds something else by now.
    """
    paths = sorted(contents, key=_order)
    for part in ("manifests", "patches"):
        make_root(os.path.join(folder, part)).close()
    root = Root(folder)
    try:
        with _locked(root):
            _finish(root)
            for path, data in (expected or {}).items():
                if _present(root, path) != data:
                    raise Refused(
                        f"{root.full(path)} was changed meanwhile",
                        code="changed-meanwhile",
                        hint="run the same command again",
                    )
            changes = [path for path in paths if contents[path] != _present(root, path)]
            if changes:
                _stage(root, {path: contents[path] for path in changes})
                _finish(root)
    finally:
        root.close()
    return [os.path.join(folder, path) for path in changes]


def is_unfinished(folder: str) -> bool:
    """Whether a write was killed, or is under way."""
    return any(os.path.lexists(os.path.join(folder, name)) for name in (_FORWARD, _BACK))


def finish(folder: str) -> None:
    """Finish what a killed write left; wait for one that is under way.

    Raises :class:`Fault` where this user may not write there.
    """
    try:
        root = Root(folder)
    except FileNotFoundError:
        return
    try:
        with _locked(root):
            _finish(root)
    except OSError as error:
        raise Fault(
            f"a change of the bundles in {folder} was interrupted, and cannot be finished:"
            f" {error.strerror}",
            code="bundles-interrupted",
            hint=f"run patchkit lint --bundles {folder} as a user who may write there",
        ) from None
    finally:
        root.close()


def _order(path: str) -> tuple[int, str]:
    return (path.startswith("manifests/") + path.endswith(".toml"), path)


@contextmanager
def _locked(root: Root) -> Iterator[None]:
    descriptor = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + _PATIENCE
        while not _lock(descriptor):
            if time.monotonic() > until:
                raise Locked(
                    f"another patchkit is writing into {root.path}",
                    code="bundles-locked",
                    hint="wait for it, or end it; then run the same command again",
                )
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system that has no locks
    return True


def _present(root: Root, path: str) -> bytes | None:
    return None if root.lstat(path) is None else root.read(path, follow=True)


def _stage(root: Root, contents: Contents) -> None:
    """Put all that is to come, and second names of what is there, aside; then let it count."""
    _drop(root, _ASIDE)
    made: list[str] = []
    try:
        root.mkdir(_ASIDE)
        changes: list[dict[str, Any]] = []
        for number, (path, data) in enumerate(contents.items()):
            status = root.lstat(path)
            if status is not None and not root.link(path, root, f"{_ASIDE}/old-{number}"):
                root.create(f"{_ASIDE}/old-{number}", root.read(path), status.st_mode & 0o777)
            if data is not None:
                made += _folders(root, path)
                mode = 0o644 if status is None else status.st_mode & 0o777
                root.create(f"{_ASIDE}/new-{number}", data, mode)
            above = path.rpartition("/")[0]
            if (status is not None or data is not None) and (error := root.can_write(above)):
                raise error
            changes.append({"path": path, "new": data is not None, "old": status is not None})
        value = {"schema": _SCHEMA, "changes": changes}
        root.create(f"{_ASIDE}/{_LIST}", json.dumps(value).encode(), 0o644)
        root.sync_folder(_ASIDE)
        root.rename(_ASIDE, root, _FORWARD)
        root.sync_folder("")
    except BaseException:
        if root.lstat(_FORWARD) is None:
            _drop(root, _ASIDE)
            for folder in reversed(made):
                root.rmdir(folder)
        raise


def _folders(root: Root, path: str) -> list[str]:
    """Make the folders above a path; those that were not there."""
    parts = path.split("/")[:-1]
    folders = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    return [folder for folder in folders if root.mkdir(folder)]


def _finish(root: Root) -> None:
    """Go forward, or back, whichever was under way; nothing where nothing was."""
    if root.lstat(_BACK) is not None:
        _go_back(root)
    if root.lstat(_FORWARD) is None:
        return
    changes = _read(root, _FORWARD)
    try:
        for number, change in enumerate(changes):
            path = change["path"]
            if not change["new"]:
                root.unlink(path)
            elif root.lstat(f"{_FORWARD}/new-{number}") is not None:
                root.make_folders(path)
                root.rename(f"{_FORWARD}/new-{number}", root, path)
        _sync(root, changes)
    except BaseException:
        root.forget_folders()
        root.rename(_FORWARD, root, _BACK)
        root.sync_folder("")
        _go_back(root)
        raise
    for change in changes:
        if not change["new"]:
            _remove_empty(root, change["path"])
    _drop(root, _FORWARD)


def _go_back(root: Root) -> None:
    changes = _read(root, _BACK)
    for number, change in enumerate(changes):
        path = change["path"]
        if not change["old"]:
            root.unlink(path)
            _remove_empty(root, path)
        elif root.lstat(f"{_BACK}/old-{number}") is not None:
            root.make_folders(path)
            root.rename(f"{_BACK}/old-{number}", root, path)
    _sync(root, changes)
    _drop(root, _BACK)


def _read(root: Root, aside: str) -> list[dict[str, Any]]:
    """The changes that are under way; none where all are done and the list is gone."""
    if root.lstat(f"{aside}/{_LIST}") is None:
        return []
    try:
        value = json.loads(root.read(f"{aside}/{_LIST}"))
        if value["schema"] != _SCHEMA:
            raise ValueError(f"schema {value['schema']}")
        return [{key: one[key] for key in ("path", "new", "old")} for one in value["changes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Fault(
            f"{root.full(aside)}/{_LIST} cannot be read: {error}",
            code="bundles-interrupted",
            hint=f"see what {root.full(aside)} holds, and move it away",
        ) from None


def _sync(root: Root, changes: list[dict[str, Any]]) -> None:
    for folder in sorted({change["path"].rpartition("/")[0] for change in changes}):
        root.sync_folder(folder)


def _remove_empty(root: Root, path: str) -> None:
    """The bundle's own folders above a path, as far as they are empty."""
    above = path.rpartition("/")[0]
    while "/" in above and root.rmdir(above):
        above = above.rpartition("/")[0]


def _drop(root: Root, aside: str) -> None:
    """Take a folder aside away, the list first: without it there is nothing to be done."""
    if root.lstat(aside) is None:
        return
    root.unlink(f"{aside}/{_LIST}")
    for name in root.names(aside):
        root.unlink(f"{aside}/{name}")
    root.forget_folders()
    root.rmdir(aside)
    root.sync_folder("")
