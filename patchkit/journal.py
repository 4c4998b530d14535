"""One transaction over files of several roots: all of it, or none.

Owns promise 1 and 2: stage, journal, swap, record, forget; and the one way back that an
error, a signal and a kill share.  The commit point is the rename of ``state.json``.
It must not decide what the contents should be.

Whether an operation was done is read from the disk, not remembered: the target is what
was there before, what was to come, or (then nothing is touched) neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .bytecode import drop_pycs, pycs_below
from .errors import DriftError, Fault, PatchkitError, Refused, SymlinkedFolder
from .fsio import NO_FOLDER, Root, digest, move_tree, remove_file
from .here import me
from .jit import is_compiled
from .paths import folders_above, upper
from .roots import Roots
from .staging import Work, copy, must_be_as_seen, preflight, remove_beside, stage
from .state import (
    BLOBS,
    FOLDERS,
    JOURNAL,
    MAX_STATE,
    NAME,
    PRISTINE,
    PYCS,
    RESERVE,
    SCHEMA,
    STAGED,
    STATE,
    Home,
    State,
    ident_on_disk,
    render,
    same,
)

# A block is what the smallest file or folder takes.
_BLOCK = 4096
_SLACK = 16 * _BLOCK


def commit(
    own: Root,
    home: Home,
    roots: Roots,
    work: Work,
    state: State | None,
    check: Callable[[], None],
    command: str,
) -> list[str]:
    """Do it all; on any error or signal undo it all and raise.  Returns warnings where
    it is done and something could not be tidied up.

    ``own`` is the root that has ``.patchkit`` (its lock is held), ``state`` what is
    recorded at the end (None: nothing is applied any more).
    """
    new_state: bytes | None = None
    journal: dict[str, Any] = {
        "schema": SCHEMA,
        "base": home.relative,
        "by": me(),
        "command": command,
        "state": None,
        "make": work.make,
        "drop": work.drop,
        "modules": work.modules,
        "stash_pycs": work.stash_pycs,
        "restore_pycs": work.restore_pycs,
        "caches": work.caches,
        "prefix": work.prefix,
    }
    staged = False
    warnings: list[str] = []
    try:
        preflight(roots, work)
        _remove_unnamed(own, home.read_state())
        journal["operations"] = stage(own, roots, work, check)
        if state is not None:  # only now, since staging shows which modes can be kept
            new_state = render(state)
            if len(new_state) > MAX_STATE // 2:
                # The journal of the revert, which must be readable again, takes at most twice
                # as much.
                raise Refused(
                    f"the record of {len(work.changes)} files would have {len(new_state)} bytes;"
                    f" the limit is {MAX_STATE // 2}",
                    code="too-many-files",
                    hint="a patch of so many files is a release of its own; install that instead",
                )
            journal["state"] = digest(new_state)
        own.replace(JOURNAL, render(journal))
        staged = True
        _swap(own, roots, work, journal, check)
        swapped = {(change.root, change.path) for change in work.changes}
        for found in work.found:
            if (found.root, found.path) not in swapped:
                must_be_as_seen(roots[found.root], found)
        if new_state is None:
            own.unlink(STATE)
            own.sync_folder(NAME)
        else:
            own.replace(STATE, new_state)
    except BaseException as error:
        try:
            is_out = staged and _published(own, journal["state"])
            if not is_out:
                _go_back(own, home, roots, journal if staged else None)
        except (OSError, PatchkitError) as second:
            raise Fault(
                f"interrupted in the middle: {_said(second)} (while undoing: {_said(error)})",
                code="not-undone",
                hint="remove the cause, then run: patchkit recover",
            ) from error
        if not is_out:
            raise
        # The record is out, so the way is forwards: what failed was to sync it.
        warnings.append(f"done, but perhaps not yet safe from a power cut: {_said(error)}")
    for last in (False, True):  # what fails once may be a passing fault
        try:
            warnings += finish(own, home, roots, journal)
        except (OSError, PatchkitError) as error:
            # Only leftovers are still there, and while they are, every command says so.
            if not last or not _may_be_unfinished(home):
                continue
            warnings.append(
                f"done, but not tidied up: {_said(error)}; when the cause is gone, run:"
                " patchkit recover"
            )
        else:
            break
    if state is not None:
        _reserve(own, state, len(render(journal)))
    return warnings


def _may_be_unfinished(home: Home) -> bool:
    try:
        return home.unfinished()
    except OSError:
        return True


def _reserve(own: Root, state: State, journal: int) -> None:
    """Hold the space that a revert needs, so that a full disk cannot stop it: for its journal,
    its folders, the state if a part stays, and the sources that come back as new files."""
    size = _SLACK + 2 * journal + len(render(state))
    with suppress(OSError, PatchkitError):  # what was done stays done
        for entry in state["files"]:
            if entry["stash"] and is_compiled(entry["path"]):
                status = own.lstat(f"{PRISTINE}/{entry['stash']}")
                size += 0 if status is None else status.st_size + _BLOCK
        own.reserve(RESERVE, size)


def release_reserve(own: Root) -> bool:
    """Give the space back that was held for a revert; whether there was any."""
    if own.lstat(RESERVE) is None:
        return False
    own.unlink(RESERVE)
    return True


def _go_back(own: Root, home: Home, roots: Roots, journal: dict[str, Any] | None) -> None:
    if journal is None:
        remove_beside(own, roots)
        _clean(own, home)
    else:
        roll_back(own, home, roots, journal)


def _said(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def recover(own: Root, home: Home, roots: Roots) -> str | None:
    """Bring an interrupted environment to exactly the old or the new contents.

    Returns ``"back"``, ``"forward"``, ``"tidied"`` (no file of the environment had
    changed, or all was done), or None where there was nothing to do.
    """
    journal = home.read_journal()
    if journal is None:
        if not home.unfinished():
            return None
        remove_beside(own, roots)
        _clean(own, home)
        return "tidied"
    if _published(own, journal["state"]):
        finish(own, home, roots, journal)
        return "forward"
    home.read_state()  # a damaged one is named before anything changes
    roll_back(own, home, roots, journal)
    return "back"


# -- forwards ---------------------------------------------------------------------------


def _swap(
    own: Root, roots: Roots, work: Work, journal: dict[str, Any], check: Callable[[], None]
) -> None:
    for place, path, name in work.stash_pycs:
        if roots[place].lstat(path) is not None:
            _move(roots[place], path, own, f"{PYCS}/{name}")
    drop_pycs(roots, work.modules)
    changes = list(zip(work.changes, journal["operations"], strict=True))
    # What goes makes room: a folder may come where a file was, and a file where a folder was.
    for change, operation in changes:
        if _removes(operation):
            check()
            must_be_as_seen(roots[change.root], change)
            roots[change.root].unlink(change.path)
    comes = {(change.root, change.path) for change, operation in changes if operation["new"]}
    for place, path, *_ in work.drop:
        if any((place, above) in comes for above in (path, *folders_above(path))):
            roots[place].rmdir(path)
    for place, path, mode, uid, gid in work.make:
        _make_folder(roots[place], path, mode, uid, gid)
    for change, operation in changes:
        if not _removes(operation):
            check()
            root = roots[change.root]
            must_be_as_seen(root, change)
            where = own if operation["staged"].startswith(f"{NAME}/") else root
            where.rename(operation["staged"], root, change.path)
    check()
    drop_pycs(roots, work.modules)
    # What is empty now goes when there is no way back any more, which would need space for it.
    for place, path, *_ in work.drop:
        if roots[place].is_empty(path):
            error = roots[place].can_write(upper(path))
            if error is not None:
                raise error
    _sync_targets(roots, journal)


def _removes(operation: dict[str, Any]) -> bool:
    return operation["staged"] is None


def finish(own: Root, home: Home, roots: Roots, journal: dict[str, Any]) -> list[str]:
    """What follows the commit point; may be done again after a kill.  Returns warnings."""
    for root, path, name in journal["restore_pycs"]:
        _put_pyc_back(own, roots[root], path, name)
    for root, path, *_ in journal["drop"]:
        roots[root].rmdir(path)
    for root, folder in sorted({(root, upper(path)) for root, path, *_ in journal["drop"]}):
        roots[root].sync_folder(folder)
    warnings = _outside(home, journal)
    _clean(own, home)
    return warnings


def _put_pyc_back(own: Root, root: Root, path: str, name: str) -> None:
    stash = f"{PYCS}/{name}"
    if own.lstat(stash) is not None:
        try:
            _move(own, stash, root, path)
        except NO_FOLDER:
            own.unlink(stash)  # its folder is gone; the interpreter makes it anew


def _outside(home: Home, journal: dict[str, Any]) -> list[str]:
    """Caches beside the environment: set aside whatever way the transaction went.

    Byte-code under ``PYTHONPYCACHEPREFIX`` lies by the module's absolute path.  Returns
    warnings.
    """
    warnings = []
    for source, target in journal["caches"]:
        if os.path.lexists(source):
            try:
                move_tree(source, target)
            except OSError as error:
                warnings.append(
                    f"the built kernels in {source} could not be set aside"
                    f" ({error.strerror or error});"
                    " remove that folder before the next launch"
                )
    prefix = journal["prefix"]
    if prefix:
        for root, path in journal["modules"]:
            folder, found = pycs_below(prefix, f"{home.resolve(root)}/{path}")
            for entry in found:
                remove_file(f"{folder}/{entry}")
    return warnings


def _clean(own: Root, home: Home) -> None:
    """Forget: remove the journal, what the state does not name, and last the mark."""
    state = home.read_state()
    # The journal goes first: it tells what was never swapped in by what still waits.
    own.unlink(JOURNAL)
    own.sync_folder(NAME)
    _remove_unnamed(own, state)
    for folder in FOLDERS:
        if folder != STAGED:
            own.rmdir(folder)
    own.unlink(f"{STATE}.new")
    own.unlink(f"{JOURNAL}.new")
    own.rmdir(STAGED)
    own.sync_folder(NAME)


def _remove_unnamed(own: Root, state: State | None) -> None:
    """Remove the files of the folders that the state does not name.

    No folder is synced for it: a power cut may bring some back, whole or not.  So it is done
    before a change is staged, too, which takes what it finds there for its own.
    """
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
                keep[BLOBS].add(variant["pack"])
    for folder in FOLDERS:
        for name in own.names(folder):
            if name not in keep[folder]:
                own.unlink(f"{folder}/{name}")


# -- backwards --------------------------------------------------------------------------


def roll_back(own: Root, home: Home, roots: Roots, journal: dict[str, Any]) -> None:
    """Undo every operation, by renames alone, so that a full disk cannot stop it."""
    # Byte-code that waits to be kept is the old source's, until it has been moved.
    unmoved = {
        (root, path)
        for root, path, name in journal["stash_pycs"]
        if own.lstat(f"{PYCS}/{name}") is None
    }
    drop_pycs(roots, journal["modules"], unmoved)
    foreign: list[str] = []
    failed: list[OSError | PatchkitError] = []
    _undo_all(own, roots, [o for o in journal["operations"] if not _removes(o)], foreign, failed)
    for root, path, *_ in reversed(journal["make"]):
        roots[root].rmdir(path)
    for root, path, mode, uid, gid in reversed(journal["drop"]):
        _make_folder(roots[root], path, mode, uid, gid, only_in_existing=True)
    _undo_all(own, roots, [o for o in journal["operations"] if _removes(o)], foreign, failed)
    drop_pycs(roots, journal["modules"], unmoved)
    for root, path, name in journal["stash_pycs"]:
        _put_pyc_back(own, roots[root], path, name)
    if failed:
        raise failed[0]
    if foreign:
        raise DriftError(
            f"{foreign[0]} was changed by someone else while a change was interrupted"
            + (f" (and {len(foreign) - 1} more)" if len(foreign) > 1 else ""),
            code="foreign-change",
            file=foreign[0],
            hint="save your copy, put back what was there (reinstall the distribution; remove"
            " what a patch had added), then run: patchkit recover",
            data={"files": foreign},
        )
    _sync_targets(roots, journal)
    _outside(home, journal)
    remove_beside(own, roots)
    _clean(own, home)


def _undo_all(
    own: Root,
    roots: Roots,
    operations: list[dict[str, Any]],
    foreign: list[str],
    failed: list[OSError | PatchkitError],
) -> None:
    """Undo what can be undone; one that cannot must not keep the others from it."""
    for operation in reversed(operations):
        try:
            if not _undo(own, roots, operation):
                foreign.append(roots[operation["root"]].full(operation["path"]))
        except (OSError, PatchkitError) as error:
            failed.append(error)


def _undo(own: Root, roots: Roots, operation: dict[str, Any]) -> bool:
    """Put back what was there; False where the target is neither the old nor the new."""
    root = roots[operation["root"]]
    path, old, new, undo = (operation[k] for k in ("path", "old", "new", "undo"))
    staged = operation["staged"]
    if staged is not None:
        waits = (own if staged.startswith(f"{NAME}/") else root).lstat(staged)
        if waits is not None and not _is_at(root, path, waits):
            return True  # never swapped in, whatever the target is now
    try:
        now = ident_on_disk(root, path)
    except SymlinkedFolder:
        now = None  # the symlink that was there before its folder is back already
    if same(now, old):
        return True
    if not same(now, new):
        return False
    if old is None:
        root.unlink(path)
        return True
    if own.lstat(undo) is None:
        raise PatchkitError(
            f"the kept bytes of {root.full(path)} are gone from {own.full(undo)}",
            code="pristine-damaged",
            file=path,
            hint="reinstall the distribution (a checkout: git restore), then run: patchkit recover",
        )
    _move(own, undo, root, path)
    return True


def _is_at(root: Root, path: str, file: os.stat_result) -> bool:
    """Whether a file that waits has the target's name, too: after a power cut both names of a
    rename may be there, since each folder is synced by itself."""
    try:
        there = root.lstat(path)
    except SymlinkedFolder:
        return False
    return there is not None and (there.st_dev, there.st_ino) == (file.st_dev, file.st_ino)


def _move(source: Root, name: str, target: Root, path: str) -> None:
    """Rename; across devices copy into place and remove."""
    there = target.device(upper(path))
    if there is None:
        raise FileNotFoundError(f"{target.full(upper(path))} is gone")
    if source.device(upper(name)) == there:
        source.rename(name, target, path)
        return
    aside = f"{path}.patchkit-back"
    target.unlink(aside)
    copy(source, name, target, aside)
    target.rename(aside, target, path)
    source.unlink(name)


# -- shared -----------------------------------------------------------------------------


def _published(own: Root, state: str | None) -> bool:
    """Whether the state on disk is the one that the journal announces."""
    if own.lstat(STATE) is None:
        return state is None
    return state is not None and digest(own.read(STATE)) == state


def _make_folder(
    root: Root, path: str, mode: int, uid: int, gid: int, *, only_in_existing: bool = False
) -> None:
    if only_in_existing and root.folder_above(path) != upper(path):
        return
    if not root.is_folder(path):  # a full disk may refuse also what is there
        root.mkdir(path, mode)
    # Also where it is there: a kill may have come before it had its mode and owner.
    root.own_folder(path, uid, gid, mode)


def _sync_targets(roots: Roots, journal: dict[str, Any]) -> None:
    """Make every changed name durable, those of folders in the folders above them, too."""
    changed = {(o["root"], upper(o["path"])) for o in journal["operations"]}
    changed |= {(root, upper(path)) for root, path, *_ in journal["make"] + journal["drop"]}
    for root, folder in sorted(changed):
        roots[root].sync_folder(folder)
