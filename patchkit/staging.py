"""What one transaction will do, and everything put on disk that it needs.

Owns the values :class:`Change` and :class:`Work`, and the first of the five steps of
docs/design.md: new contents wait under ``.patchkit``, present contents get a second name.
No file of the environment is changed here.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from typing import Any

from .bytecode import pycs_below, pycs_of
from .errors import DriftError, PatchkitError
from .fsio import Root, Unsynced, check_movable, check_removable, digest
from .jit import is_compiled
from .paths import upper
from .roots import Roots
from .shape import beside_fault
from .state import (
    BLOBS,
    FOLDERS,
    NAME,
    PRISTINE,
    STAGED,
    UNDO,
    Ident,
    damaged,
    ident_on_disk,
    read_own,
    same,
)

BESIDE = f"{STAGED}/beside.json"


class Change:
    """One file of a transaction: what is there, and what comes.

    Exactly one of ``data`` (new contents) and ``restore`` (a name under ``pristine/``)
    is set unless the file goes (``new`` is None).  ``keep`` is the name under
    ``pristine/`` that the present contents get, where they are pristine; ``attributes`` says
    that the present file has extended attributes, which a new one takes over; ``blob`` is
    the copy behind a damaged stash; ``stash`` is the name of what is kept already.
    """

    __slots__ = (
        *("attributes", "blob", "data", "keep", "new", "old", "path", "restore", "root"),
        *("stash", "status"),
    )

    def __init__(
        self,
        root: str,
        path: str,
        old: Ident | None,
        new: Ident | None,
        *,
        data: bytes | None = None,
        restore: str | None = None,
        blob: str | None = None,
        keep: str | None = None,
        stash: str | None = None,
        status: os.stat_result | None = None,
        attributes: bool = True,
    ) -> None:
        self.root = root
        self.path = path
        self.old = old
        self.new = new
        self.data = data
        self.restore = restore
        self.blob = blob
        self.keep = keep
        self.stash = stash
        self.status = status
        self.attributes = attributes


class Found:
    """A file that is as wanted already, edited by hand: nothing of it changes.

    ``data`` and ``mode`` are its pristine contents, which get the name ``keep`` under
    ``pristine/`` (None where nothing was there, or where they are kept already).
    """

    __slots__ = ("data", "keep", "mode", "old", "path", "root", "status")

    def __init__(
        self,
        root: str,
        path: str,
        old: Ident | None,
        status: os.stat_result | None,
        *,
        keep: str | None = None,
        data: bytes = b"",
        mode: int = 0o644,
    ) -> None:
        self.root = root
        self.path = path
        self.old = old
        self.status = status
        self.keep = keep
        self.data = data
        self.mode = mode


class Work:
    """All that one transaction does beside its file changes.

    ``found``: files that are as wanted already, whose pristine contents are to be kept.

    ``make``: folders to make, parents first, as (root, path, mode, uid, gid).
    ``drop``: folders to remove if they are empty then, deepest first.
    ``modules``: Python files whose byte-code goes, as (root, path).
    ``stash_pycs``: byte-code to keep, as (root, path, name under ``pycs/``);
    ``restore_pycs``: byte-code to put back, likewise.
    ``caches``: folders of JIT caches to set aside, as (from, to).
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.found: list[Found] = []
        self.make: list[tuple[str, str, int, int, int]] = []
        self.drop: list[tuple[str, str, int, int, int]] = []
        self.modules: list[tuple[str, str]] = []
        self.stash_pycs: list[tuple[str, str, str]] = []
        self.restore_pycs: list[tuple[str, str, str]] = []
        self.caches: list[tuple[str, str]] = []
        self.blobs: dict[str, bytes] = {}
        self.notes: list[str] = []
        self.prefix: str | None = None


def stash_name(sha256: str, root: str, path: str) -> str:
    """A name under ``pristine/``: by content, and one a file, since each has its inode."""
    return f"{sha256}.{digest(f'{root}{chr(0)}{path}'.encode('utf-8', 'surrogateescape'))[:8]}"


def preflight(roots: Roots, work: Work) -> None:
    """Every folder that is to change must be writable, before anything is written."""
    made = {(root, path) for root, path, *_ in work.make}
    seen: set[tuple[str, str]] = set()
    paths = [(c.root, c.path) for c in work.changes]
    paths += [(root, path) for root, path, _ in work.stash_pycs]
    paths += [(root, path) for root, _, path in pycs_of(roots, work.modules)]
    paths += [(r, p) for r, p, _ in work.restore_pycs if roots[r].is_folder(upper(p))]
    for root, path in paths:
        folder = path.rpartition("/")[0]
        while (root, folder) in made:
            folder = folder.rpartition("/")[0]
        if (root, folder) not in seen:
            seen.add((root, folder))
            error = roots[root].can_write(folder)
            if error is not None:
                raise error
    if work.prefix:
        for root, path in work.modules:
            check_removable(*pycs_below(work.prefix, roots[root].full(path)))
    for source, target in work.caches:
        check_movable(source, target)


def stage(own: Root, roots: Roots, work: Work, check: Callable[[], None]) -> list[dict[str, Any]]:
    """Put everything that the swap needs on disk, synced; the operations for the journal.
    No file of the environment is changed yet."""
    for folder in FOLDERS:
        own.make_own_folder(folder)
    own.sync_folder(NAME)
    own.sync_folder("")
    unsynced = Unsynced()
    try:
        _note_beside(own, roots, work)
        for name, data in sorted(work.blobs.items()):
            _put_blob(own, name, data, unsynced)
        for found in work.found:
            _keep_pristine(own, roots, found, unsynced)
        operations = [
            _stage_one(own, roots, number, change, unsynced, check, work.notes)
            for number, change in enumerate(work.changes)
        ]
        unsynced.sync()
    finally:
        unsynced.close()
    for folder in FOLDERS:
        own.sync_folder(folder)
    return operations


def _keep_pristine(own: Root, roots: Roots, found: Found, unsynced: Unsynced) -> None:
    root = roots[found.root]
    must_be_as_seen(root, found)
    if found.keep is not None:
        like = found.status or root.status_of_folder(root.folder_above(found.path))
        path = f"{PRISTINE}/{found.keep}"
        own.create(path, found.data, found.mode, like=like, unsynced=unsynced)


def _stage_one(
    own: Root,
    roots: Roots,
    number: int,
    change: Change,
    unsynced: Unsynced,
    check: Callable[[], None],
    notes: list[str],
) -> dict[str, Any]:
    check()
    root = roots[change.root]
    undo = staged = None
    if change.old is not None:
        undo = f"{PRISTINE}/{change.keep}" if change.keep else f"{UNDO}/{number}"
        _second_name(own, root, change, undo, unsynced)
    if change.new is not None:
        staged = _staged_path(own, root, change.path, number)
        where = own if staged.startswith(f"{NAME}/") else root
        if change.restore is not None and _is_compiled_link(change):
            _leave_cache(own, change)
        elif change.restore is not None and _cache_changed(own, change):
            _leave_cache(own, change)
            notes.append(
                f"{change.path} was linked into a package cache that holds other bytes now; it"
                " is a file of its own again. Clean that cache (uv cache clean)"
            )
        _put_new(own, where, root, change, staged, unsynced)
        change.data = None  # one file's contents at a time are enough
    return {
        "root": change.root,
        "path": change.path,
        "old": change.old,
        "new": change.new,
        "undo": undo,
        "staged": staged,
    }


def _staged_path(own: Root, root: Root, path: str, number: int) -> str:
    """Where new contents wait: in ``.patchkit``, or beside the target where that lies on
    another device (a bind mount, an editable install on another disk)."""
    folder = root.folder_above(path)
    if root.device(folder) == own.device(STAGED):
        return f"{STAGED}/{number}"
    return f"{folder}/.patchkit-{number}" if folder else f".patchkit-{number}"


def _note_beside(own: Root, roots: Roots, work: Work) -> None:
    """Write down what will wait outside ``.patchkit``, so that a kill leaves no litter."""
    beside = []
    for number, change in enumerate(work.changes):
        if change.new is not None:
            staged = _staged_path(own, roots[change.root], change.path, number)
            if not staged.startswith(f"{NAME}/"):
                beside.append([change.root, staged])
    if beside:
        own.replace(BESIDE, json.dumps(beside).encode())


def remove_beside(own: Root, roots: Roots) -> None:
    """Remove what waits outside ``.patchkit``."""
    if own.lstat(BESIDE) is not None:
        full = own.full(BESIDE)
        try:
            beside = json.loads(read_own(full) or b"[]")
        except (ValueError, RecursionError):
            raise damaged(full, "no JSON") from None
        if beside_fault(beside) is not None:
            raise damaged(full, "it names what patchkit does not make")
        for root, path in beside:
            roots[root].unlink(path)


def _second_name(own: Root, root: Root, change: Change, undo: str, unsynced: Unsynced) -> None:
    must_be_as_seen(root, change)
    if not root.link(change.path, own, undo):
        copy(root, change.path, own, undo, unsynced)
    if change.keep and change.blob:
        # Others can write through a shared inode: then its bytes are kept apart, too.
        data = root.read(change.path, follow=True)
        if digest(data) != change.blob:
            raise _changed_meanwhile(root, change.path)
        mode = stat.S_IMODE(root.target_status(change.path).st_mode)
        _put_blob(own, change.blob, data, unsynced, mode=mode)


def _cache_changed(own: Root, change: Change) -> bool:
    """Whether the pristine symlink that is to come back leads to other bytes by now."""
    if change.new is None or change.new["kind"] != "symlink" or not change.blob:
        return False
    try:
        return digest(own.read(f"{PRISTINE}/{change.restore}", follow=True)) != change.blob
    except (OSError, PatchkitError):
        return True


def _is_compiled_link(change: Change) -> bool:
    """Whether a symlink is to come back that a JIT would follow to a file with an old time."""
    link = change.new is not None and change.new["kind"] == "symlink"
    return link and is_compiled(change.path) and bool(change.blob)


def _leave_cache(own: Root, change: Change) -> None:
    """Bring back the pristine bytes as a file of its own instead of the link."""
    assert change.blob is not None
    status = own.lstat(f"{BLOBS}/{change.blob}")
    mode = 0o644 if status is None else stat.S_IMODE(status.st_mode)
    change.new = Ident(kind="file", mode=mode, sha256=change.blob, link=None)


def _put_new(
    own: Root, where: Root, root: Root, change: Change, staged: str, unsynced: Unsynced
) -> None:
    assert change.new is not None
    status = change.status
    not_seconds = {int(s.st_mtime) for s in (status, _pristine_status(own, change)) if s}
    if change.restore is None:
        assert change.data is not None
        if change.new["kind"] == "symlink":
            where.symlink(staged, change.data)
            return
        # The record says of it the same: it is one value.
        change.new["mode"] = where.create(
            staged,
            change.data,
            change.new["mode"],
            like=status or root.status_of_folder(root.folder_above(change.path)),
            like_path=(root, change.path) if change.attributes else None,
            not_seconds=not_seconds,
            unsynced=unsynced,
        )
        return
    stash = f"{PRISTINE}/{change.restore}"
    kept = ident_on_disk(own, stash)
    if kept is not None and kept["kind"] != change.new["kind"]:
        kept = None
    if change.new["kind"] == "symlink":
        if kept is None or not same(kept, change.new) or not own.link(stash, where, staged):
            where.symlink(staged, os.fsencode(change.new["link"] or ""))
        return
    if kept is not None and kept["sha256"] == change.new["sha256"]:
        if same(kept, change.new) and not is_compiled(change.path):
            if own.link(stash, where, staged):
                return
            copy(own, stash, where, staged, unsynced)
            return
        data = own.read(stash)
    else:
        blob = f"{BLOBS}/{change.blob}" if change.blob else None
        data = own.read(blob) if blob and own.lstat(blob) is not None else b""
        if digest(data) != change.new["sha256"]:
            raise PatchkitError(
                f"the kept pristine bytes of {change.path} are damaged; they are not put back",
                code="pristine-damaged",
                file=change.path,
                hint="reinstall the distribution; patchkit status then says how to go on",
            )
    # The owner of the stash, which is the pristine file's, and not of what is there now.
    like = own.lstat(stash) if kept is not None else status
    where.create(
        staged,
        data,
        change.new["mode"],
        like=like,
        like_path=(own, stash) if kept is not None else None,
        same_owner=kept is not None,
        not_seconds=not_seconds,
    )


def _pristine_status(own: Root, change: Change) -> os.stat_result | None:
    """Of the file that is kept while another patched one comes: the interpreter must tell
    the new one from both."""
    return None if change.stash is None else own.lstat(f"{PRISTINE}/{change.stash}")


def _put_blob(own: Root, name: str, data: bytes, unsynced: Unsynced, *, mode: int = 0o644) -> None:
    """Keep bytes under their digest.  One that is there is named by the state, and whole:
    anything else was removed before."""
    path = f"{BLOBS}/{name}"
    if own.lstat(path) is None:
        own.create(path, data, mode, unsynced=unsynced)


def copy(
    source: Root, path: str, target: Root, target_path: str, unsynced: Unsynced | None = None
) -> None:
    """A copy with mode, owner, attributes and times, where no link can be made."""
    status = source.lstat(path)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source.full(path))
    if stat.S_ISLNK(status.st_mode):
        target.symlink(target_path, source.readlink(path))
        return
    target.create(
        target_path,
        source.read(path),
        stat.S_IMODE(status.st_mode),
        like=status,
        like_path=(source, path),
        same_owner=True,
        times=(status.st_atime_ns, status.st_mtime_ns),
        unsynced=unsynced,
    )


def must_be_as_seen(root: Root, change: Change | Found) -> None:
    """Raise :class:`DriftError` where a file is not what was computed from it.

    A second name makes an overlay file system copy a file of a lower layer up: if that had several
    names there, its inode is another one then.  So what differs in the inode alone is read.
    """
    status, seen = root.lstat(change.path), change.status
    if (status is None) != (change.old is None):
        raise _changed_meanwhile(root, change.path)
    if status is None or seen is None:
        return
    if (status.st_mtime_ns, status.st_size) != (seen.st_mtime_ns, seen.st_size) or (
        status.st_ino != seen.st_ino and not same(ident_on_disk(root, change.path), change.old)
    ):
        raise _changed_meanwhile(root, change.path)


def _changed_meanwhile(root: Root, path: str) -> DriftError:
    """The error for a file that is not what it was a moment ago."""
    return DriftError(
        f"{root.full(path)} was changed by someone else at this moment",
        code="changed-meanwhile",
        file=path,
        hint="see who edits it, then try again",
    )
