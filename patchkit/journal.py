"""One transaction over files of several roots: all of it, or none.

Owns promise 1 and 2: stage, journal, swap, record, forget; and the one way back that an
error, a signal and a kill share.  The commit point is the rename of ``state.json``.
It must not decide what the contents should be.

Whether an operation was done is read from the disk, not remembered: the target is what
was there before, what was to come, or (then nothing is touched) neither.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import DriftError, Fault, PatchkitError
from .fsio import Root, Unsynced, digest, move_tree, remove_file
from .state import (
    BLOBS,
    FOLDERS,
    JOURNAL,
    NAME,
    PRISTINE,
    PYCS,
    SCHEMA,
    STAGED,
    STATE,
    UNDO,
    Home,
    Ident,
    State,
    ident_on_disk,
    render,
    same,
)

# What a JIT compiles: build systems compare times, so these come back as new files.
JIT_SOURCES = (".cu", ".cuh", ".h", ".hpp", ".inl", ".cpp", ".cc", ".jinja", ".j2")


@dataclass(slots=True)
class Change:
    """One file of a transaction: what is there, and what comes.

    Exactly one of ``data`` (new contents) and ``restore`` (a name under ``pristine/``)
    is set unless the file goes (``new`` is None).  ``keep`` is the name under
    ``pristine/`` that the present contents get, where they are pristine.  ``like`` says
    whose mode's owner a new file takes, ``blob`` the copy behind a damaged stash.
    """

    root: str
    path: str
    old: Ident | None
    new: Ident | None
    data: bytes | None = None
    restore: str | None = None
    blob: str | None = None
    keep: str | None = None
    status: os.stat_result | None = None


@dataclass(slots=True)
class Work:
    """All that one transaction does beside its file changes.

    ``make``: folders to make, parents first, as (root, path, mode, uid, gid).
    ``drop``: folders to remove if they are empty then, deepest first.
    ``modules``: Python files whose byte-code goes, as (root, path).
    ``stash_pycs``: byte-code to keep, as (root, path, name under ``pycs/``);
    ``restore_pycs``: byte-code to put back, likewise.
    ``caches``: folders of JIT caches to set aside, as (from, to).
    """

    changes: list[Change] = field(default_factory=list)
    make: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    drop: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    modules: list[tuple[str, str]] = field(default_factory=list)
    stash_pycs: list[tuple[str, str, str]] = field(default_factory=list)
    restore_pycs: list[tuple[str, str, str]] = field(default_factory=list)
    caches: list[tuple[str, str]] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    prefix: str | None = None


class Roots:
    """Opened roots by their name in the state (``"."`` or an absolute path)."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open: dict[str, Root] = {}

    def __getitem__(self, name: str) -> Root:
        if name not in self._open:
            self._open[name] = Root(self._home.resolve(name))
        return self._open[name]

    def close(self) -> None:
        """Close those that were opened."""
        for root in self._open.values():
            root.close()
        self._open.clear()


def stash_name(sha256: str, root: str, path: str) -> str:
    """A name under ``pristine/``: by content, and one a file, since each has its inode."""
    return f"{sha256}.{digest(f'{root}{chr(0)}{path}'.encode('utf-8', 'surrogateescape'))[:8]}"


def commit(
    own: Root,
    home: Home,
    roots: Roots,
    work: Work,
    state: State | None,
    check: Callable[[], None],
    command: str,
) -> None:
    """Do it all; on any error or signal undo it all and raise.

    ``own`` is the root that has ``.patchkit`` (its lock is held), ``state`` what is
    recorded at the end (None: nothing is applied any more).
    """
    new_state = None if state is None else render(state)
    journal: dict[str, Any] = {
        "schema": SCHEMA,
        "command": command,
        "state": None if new_state is None else digest(new_state),
        "make": work.make,
        "drop": work.drop,
        "modules": work.modules,
        "stash_pycs": work.stash_pycs,
        "restore_pycs": work.restore_pycs,
        "caches": work.caches,
        "prefix": work.prefix,
    }
    staged = False
    try:
        _preflight(roots, work)
        journal["operations"] = _stage(own, roots, work, check)
        own.replace(JOURNAL, render(journal))
        staged = True
        _swap(own, roots, work, journal, check)
        if new_state is None:
            own.unlink(STATE)
            own.sync_folder(NAME)
        else:
            own.replace(STATE, new_state)
    except BaseException as error:
        try:
            if not staged:
                _clean(own, home)
            elif _published(own, journal["state"]):
                # The record is out: what failed was its sync.  Forwards is the way.
                finish(own, home, roots, journal)
            else:
                roll_back(own, home, roots, journal)
        except PatchkitError:
            raise
        except OSError as second:
            raise Fault(
                f"{second.strerror}: {second.filename} (while undoing: {error})",
                hint="remove the cause, then run: patchkit recover",
            ) from error
        raise
    try:
        finish(own, home, roots, journal)
    except OSError as error:
        raise Fault(
            f"the change is made and recorded, but not tidied up: {error.strerror}:"
            f" {error.filename}",
            code="unfinished",
            hint="remove the cause, then run: patchkit recover",
        ) from error


def recover(own: Root, home: Home, roots: Roots) -> str | None:
    """Bring an interrupted environment to exactly the old or the new contents.

    Returns ``"back"``, ``"forward"``, ``"tidied"`` (no file of the environment had
    changed, or all was done), or None where there was nothing to do.
    """
    journal = home.read_journal()
    if journal is None:
        if not home.unfinished():
            return None
        _clean(own, home)
        return "tidied"
    if _published(own, journal["state"]):
        finish(own, home, roots, journal)
        return "forward"
    roll_back(own, home, roots, journal)
    return "back"


# -- forwards ---------------------------------------------------------------------------


def _preflight(roots: Roots, work: Work) -> None:
    """Every folder that is to change must be writable, before anything is written."""
    made = {(root, path) for root, path, *_ in work.make}
    seen: set[tuple[str, str]] = set()
    paths = [(c.root, c.path) for c in work.changes]
    paths += [(root, path) for root, path, _ in work.stash_pycs]
    for root, path in paths:
        folder = path.rpartition("/")[0]
        while (root, folder) in made:
            folder = folder.rpartition("/")[0]
        if (root, folder) not in seen:
            seen.add((root, folder))
            error = roots[root].can_write(folder)
            if error is not None:
                raise error


def _stage(own: Root, roots: Roots, work: Work, check: Callable[[], None]) -> list[dict[str, Any]]:
    for folder in FOLDERS:
        own.mkdir(folder)
    own.sync_folder(NAME)
    for name, data in sorted(work.blobs.items()):
        _put_blob(own, name, data)
    unsynced = Unsynced()
    try:
        operations = [
            _stage_one(own, roots, number, change, unsynced, check)
            for number, change in enumerate(work.changes)
        ]
        unsynced.sync()
    finally:
        unsynced.close()
    for folder in FOLDERS:
        own.sync_folder(folder)
    return operations


def _stage_one(
    own: Root,
    roots: Roots,
    number: int,
    change: Change,
    unsynced: Unsynced,
    check: Callable[[], None],
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
        where.unlink(staged)
        _put_new(own, where, root, change, staged, unsynced)
        change.data = None  # one file's contents at a time are enough
    return {
        "root": change.root,
        "path": change.path,
        "old": change.old,
        "new": change.new,
        "undo": undo,
        "staged": staged,
        "inode": None if change.status is None else change.status.st_ino,
    }


def _staged_path(own: Root, root: Root, path: str, number: int) -> str:
    """Where new contents wait: in ``.patchkit``, or beside the target where that lies on
    another device (a bind mount, an editable install on another disk)."""
    folder = path.rpartition("/")[0]
    while folder and root.lstat(folder) is None:
        folder = folder.rpartition("/")[0]
    if own.same_device(STAGED, root, folder):
        return f"{STAGED}/{number}"
    return f"{folder}/.patchkit-{number}" if folder else f".patchkit-{number}"


def _second_name(own: Root, root: Root, change: Change, undo: str, unsynced: Unsynced) -> None:
    status = root.lstat(change.path)
    if status is None or (
        change.status is not None
        and (status.st_ino, status.st_mtime_ns, status.st_size)
        != (change.status.st_ino, change.status.st_mtime_ns, change.status.st_size)
    ):
        raise _changed_meanwhile(root, change.path)
    own.unlink(undo)
    if not root.link(change.path, own, undo):
        _copy(root, change.path, own, undo, unsynced)
    if change.keep and change.blob:
        # Others can write through a shared inode: then its bytes are kept apart, too.
        data = root.read(change.path, follow=True)
        if digest(data) != change.blob:
            raise _changed_meanwhile(root, change.path)
        _put_blob(own, change.blob, data)


def _put_new(
    own: Root, where: Root, root: Root, change: Change, staged: str, unsynced: Unsynced
) -> None:
    assert change.new is not None
    status = change.status
    not_seconds = set() if status is None else {int(status.st_mtime)}
    if change.restore is None:
        assert change.data is not None
        if change.new["kind"] == "symlink":
            where.symlink(staged, change.data)
            return
        where.create(
            staged,
            change.data,
            change.new["mode"],
            like=status if status is not None else _folder_status(root, change.path),
            like_path=(root, change.path) if status is not None else None,
            not_seconds=not_seconds,
            unsynced=unsynced,
        )
        return
    stash = f"{PRISTINE}/{change.restore}"
    kept = ident_on_disk(own, stash)
    if change.new["kind"] == "symlink":
        if kept is None or not same(kept, change.new) or not own.link(stash, where, staged):
            where.symlink(staged, os.fsencode(change.new["link"] or ""))
        return
    if kept is not None and kept["sha256"] == change.new["sha256"]:
        if same(kept, change.new) and not change.path.endswith(JIT_SOURCES):
            if own.link(stash, where, staged):
                return
            _copy(own, stash, where, staged, unsynced)
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
    where.create(
        staged,
        data,
        change.new["mode"],
        like=status,
        like_path=(own, stash) if kept is not None else None,
        not_seconds=not_seconds,
    )


def _swap(
    own: Root, roots: Roots, work: Work, journal: dict[str, Any], check: Callable[[], None]
) -> None:
    for place, path, mode, uid, gid in work.make:
        _make_folder(roots[place], path, mode, uid, gid)
    for place, path, name in work.stash_pycs:
        if roots[place].lstat(path) is not None:
            _move(roots[place], path, own, f"{PYCS}/{name}")
    _drop_pycs(roots, work.modules)
    for change, operation in zip(work.changes, journal["operations"], strict=True):
        check()
        root = roots[change.root]
        status = root.lstat(change.path)
        if (status is None) != (change.old is None) or (
            status is not None
            and change.status is not None
            and (status.st_ino, status.st_mtime_ns, status.st_size)
            != (change.status.st_ino, change.status.st_mtime_ns, change.status.st_size)
        ):
            raise _changed_meanwhile(root, change.path)
        if operation["staged"] is None:
            root.unlink(change.path)
        else:
            where = own if operation["staged"].startswith(f"{NAME}/") else root
            where.rename(operation["staged"], root, change.path)
    check()
    _drop_pycs(roots, work.modules)
    for place, path, *_ in work.drop:
        roots[place].rmdir(path)
    _sync_targets(roots, journal)


def finish(own: Root, home: Home, roots: Roots, journal: dict[str, Any]) -> None:
    """What follows the commit point; may be done again after a kill."""
    for root, path, name in journal["restore_pycs"]:
        stash = f"{PYCS}/{name}"
        if own.lstat(stash) is not None:
            try:
                _move(own, stash, roots[root], path)
            except FileNotFoundError:
                own.unlink(stash)  # its folder is gone; the interpreter makes it anew
    for root, path, *_ in journal["drop"]:
        roots[root].rmdir(path)
    _outside(journal)
    _clean(own, home)


def _outside(journal: dict[str, Any]) -> None:
    """Caches beside the environment: set aside whatever way the transaction went."""
    for source, target in journal["caches"]:
        if os.path.isdir(source):
            try:
                move_tree(source, target)
            except OSError:
                continue
    prefix = journal["prefix"]
    if prefix:
        for root, path in journal["modules"]:
            folder, _, name = os.path.join(root, path).rpartition("/")
            shadow = prefix + folder
            stem = name.removesuffix("py")
            try:
                found = os.listdir(shadow)
            except OSError:
                continue
            for entry in found:
                if entry.startswith(stem) and entry.endswith(".pyc"):
                    remove_file(f"{shadow}/{entry}")


def _clean(own: Root, home: Home) -> None:
    """Forget: remove what the state does not name, the journal, and last the mark."""
    state = home.read_state()
    keep: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    if state is not None:
        for entry in state["files"]:
            if entry["stash"]:
                keep[PRISTINE].add(entry["stash"])
            if entry["blob"]:
                keep[BLOBS].add(entry["blob"])
        for _, _, name in state["pycs"]:
            keep[PYCS].add(name)
        for bundle in state["bundles"]:
            if bundle["manifest"]:
                keep[BLOBS].add(bundle["manifest"])
            for variant in bundle["variants"]:
                keep[BLOBS].update(sha for _, sha in variant["patches"])
    for folder in FOLDERS:
        for name in own.names(folder):
            if name not in keep[folder]:
                own.unlink(f"{folder}/{name}")
        if folder != STAGED:
            own.rmdir(folder)
    own.unlink(f"{STATE}.new")
    own.unlink(f"{JOURNAL}.new")
    own.unlink(JOURNAL)
    own.rmdir(STAGED)
    own.sync_folder(NAME)


# -- backwards --------------------------------------------------------------------------


def roll_back(own: Root, home: Home, roots: Roots, journal: dict[str, Any]) -> None:
    """Undo every operation, by renames alone, so that a full disk cannot stop it."""
    for root, path, mode, uid, gid in reversed(journal["drop"]):
        _make_folder(roots[root], path, mode, uid, gid, only_in_existing=True)
    # Byte-code that waits to be kept is the old source's, until it has been moved.
    unmoved = {
        (root, path)
        for root, path, name in journal["stash_pycs"]
        if own.lstat(f"{PYCS}/{name}") is None
    }
    _drop_pycs(roots, journal["modules"], unmoved)
    foreign = [
        roots[operation["root"]].full(operation["path"])
        for operation in reversed(journal["operations"])
        if not _undo(own, roots, operation)
    ]
    _drop_pycs(roots, journal["modules"], unmoved)
    for root, path, name in journal["stash_pycs"]:
        stash = f"{PYCS}/{name}"
        if own.lstat(stash) is not None:
            _move(own, stash, roots[root], path)
    for root, path, *_ in reversed(journal["make"]):
        roots[root].rmdir(path)
    if foreign:
        raise DriftError(
            f"{foreign[0]} was changed by someone else while a change was interrupted"
            + (f" (and {len(foreign) - 1} more)" if len(foreign) > 1 else ""),
            code="foreign-change",
            file=foreign[0],
            hint="save your copy, reinstall the distribution's file, then: patchkit recover",
            data={"files": foreign},
        )
    _sync_targets(roots, journal)
    _outside(journal)
    for operation in journal["operations"]:
        staged = operation["staged"]
        if staged is not None and not staged.startswith(f"{NAME}/"):
            roots[operation["root"]].unlink(staged)
    _clean(own, home)


def _undo(own: Root, roots: Roots, operation: dict[str, Any]) -> bool:
    """Put back what was there; False where the target is neither the old nor the new."""
    root = roots[operation["root"]]
    path, old, new, undo = (operation[k] for k in ("path", "old", "new", "undo"))
    now = ident_on_disk(root, path)
    if same(now, old) and not same(old, new):
        return True
    if not same(now, new):
        return False
    if old is None:
        root.unlink(path)
        return True
    if own.lstat(undo) is None:
        return same(now, old)
    if same(old, new):
        status = root.lstat(path)
        if status is not None and status.st_ino == operation["inode"]:
            return True
    _move(own, undo, root, path)
    return True


def _move(source: Root, name: str, target: Root, path: str) -> None:
    """Rename; across devices copy into place and remove."""
    folder = name.rpartition("/")[0]
    if source.same_device(folder, target, path.rpartition("/")[0]):
        source.rename(name, target, path)
        return
    aside = f"{path}.patchkit-back"
    target.unlink(aside)
    _copy(source, name, target, aside)
    target.rename(aside, target, path)
    source.unlink(name)


# -- shared -----------------------------------------------------------------------------


def _published(own: Root, state: str | None) -> bool:
    """Whether the state on disk is the one that the journal announces."""
    if own.lstat(STATE) is None:
        return state is None
    return state is not None and digest(own.read(STATE)) == state


def _put_blob(own: Root, name: str, data: bytes) -> None:
    path = f"{BLOBS}/{name}"
    if own.lstat(path) is None:
        own.replace(path, data)


def _copy(
    source: Root, path: str, target: Root, target_path: str, unsynced: Unsynced | None = None
) -> None:
    """A copy with mode, owner, attributes and times, where no link can be made."""
    status = source.lstat(path)
    assert status is not None
    if stat.S_ISLNK(status.st_mode):
        target.symlink(target_path, source.readlink(path))
        return
    target.create(
        target_path,
        source.read(path),
        stat.S_IMODE(status.st_mode),
        like=status,
        like_path=(source, path),
        times=(status.st_atime_ns, status.st_mtime_ns),
        unsynced=unsynced,
    )


def _make_folder(
    root: Root, path: str, mode: int, uid: int, gid: int, *, only_in_existing: bool = False
) -> None:
    above = path.rpartition("/")[0]
    if only_in_existing and above and root.lstat(above) is None:
        return
    if root.mkdir(path, mode):
        root.own_folder(path, uid, gid)


def _folder_status(root: Root, path: str) -> os.stat_result | None:
    folder = path.rpartition("/")[0]
    while folder and root.lstat(folder) is None:
        folder = folder.rpartition("/")[0]
    return root.lstat(folder) if folder else os.stat(root.path)


def pycs_of(roots: Roots, modules: Iterable[Sequence[str]]) -> Iterator[tuple[str, str, str]]:
    """(root, module, byte-code file) of modules given as (root, path), for every
    interpreter and optimisation level; each ``__pycache__`` is listed once."""
    stems: dict[tuple[str, str], dict[str, str]] = {}
    for root, path in modules:
        folder, _, name = path.rpartition("/")
        cache = f"{folder}/__pycache__" if folder else "__pycache__"
        stems.setdefault((root, cache), {})[name.removesuffix(".py")] = path
    for (root, cache), wanted in stems.items():
        for entry in roots[root].names(cache):
            module = wanted.get(entry.split(".", 1)[0])
            if module is not None and entry.endswith(".pyc"):
                yield root, module, f"{cache}/{entry}"


def _drop_pycs(
    roots: Roots, modules: Iterable[Sequence[str]], keep: Collection[tuple[str, str]] = ()
) -> None:
    for root, _, path in pycs_of(roots, modules):
        if (root, path) not in keep:
            roots[root].unlink(path)


def _sync_targets(roots: Roots, journal: dict[str, Any]) -> None:
    for root, folder in sorted(
        {(o["root"], o["path"].rpartition("/")[0]) for o in journal["operations"]}
    ):
        roots[root].sync_folder(folder)


def _changed_meanwhile(root: Root, path: str) -> DriftError:
    return DriftError(
        f"{root.full(path)} was changed by someone else at this moment",
        code="changed-meanwhile",
        file=path,
        hint="see who edits it, then try again",
    )
