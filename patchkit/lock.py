"""One writer an environment: ``flock(2)`` on ``.patchkit/lock``, with a bounded wait; and
readers, which take no lock and let nothing count that they saw of a change under way.

The kernel drops the lock with its process, so a dead holder never blocks.  The note in the
file (process, host, command) decides nothing: it names the holder to a person, and no two
holders write the same one, which tells a reader that somebody was there meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from .errors import Fault, Locked, PatchkitError, Refused
from .fsio import Root, rewrite, try_flock
from .here import me, started, where
from .state import (
    FOLDERS,
    GUARD,
    LAUNCH,
    LAUNCHES,
    LOCK,
    NAME,
    RESERVE,
    STATE,
    TRIAL,
    TRIAL_SET,
    Home,
)

T = TypeVar("T")

_POLL = 0.05
#: For how long somebody else's coming and going is followed, though the time is over.
_GRACE = 1.0
#: Tried out before ``lock`` is made: nobody else relies on it, so it can be taken away again.
_PROBE = f"{NAME}/lock.probe"
_TRIES = 20
# Whatever stands in the lock's place must not be waited for.
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HIDDEN = (".nfs", ".fuse_hidden")


# -- writers ----------------------------------------------------------------------------


@contextmanager
def hold(home: Home, command: str, timeout: float, check: Callable[[], None]) -> Iterator[Root]:
    """Hold the environment; yields the :class:`Root` of the directory that has
    ``.patchkit``.  ``check`` is called while waiting and may raise.

    Raises :class:`Locked` when another process holds it for ``timeout`` seconds, and
    :class:`Fault` where the file system offers no locks.
    ``.patchkit`` is removed at the end where nothing is applied and nothing unfinished.
    """
    root = Root(home.holder)
    try:
        descriptor = _acquire(root, home, timeout, check)
        try:
            with suppress(OSError):  # a full disk must not stop a revert
                rewrite(descriptor, _note(command))
            yield root
        finally:
            # An empty folder that stays is no harm, and no reason to call what was done
            # undone.
            emptied = False
            try:
                with suppress(OSError):
                    emptied = _leave(root, home)
            finally:
                os.close(descriptor)
            if emptied:
                with suppress(OSError):
                    _remove_hidden(root)
    finally:
        root.close()


def take_sources(path: str, timeout: float, check: Callable[[], None]) -> int | None:
    """Hold a directory of sources that several environments may have in common; a descriptor
    to close, or None where it cannot be locked (each environment's own lock is held all the
    same).  Raises :class:`Locked` after ``timeout`` seconds."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    started = time.monotonic()
    try:
        while True:
            check()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    os.close(descriptor)
                    return None
            else:
                return descriptor
            waited = time.monotonic() - started
            if waited >= timeout:
                raise Locked(
                    f"the sources in {path} are held by another process: they are changed from"
                    " another environment"
                )
            time.sleep(min(_POLL, timeout - waited))
    except BaseException:
        os.close(descriptor)
        raise


def _acquire(root: Root, home: Home, timeout: float, check: Callable[[], None]) -> int:
    started = time.monotonic()
    while True:
        check()
        descriptor = _open(root, home)
        waited = time.monotonic() - started
        if descriptor is not None:
            try:
                if _flock(descriptor, fcntl.LOCK_EX, home):
                    # The holder before may have removed the file while this one waited.
                    if root.is_open_at(LOCK, descriptor):
                        return descriptor
                    again = True
                else:
                    # A reader that looks whether somebody is there is gone in no time.
                    again = _flock(descriptor, fcntl.LOCK_SH, home)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            if again and waited < max(timeout, _GRACE):
                continue
        if waited >= timeout:
            raise Locked(f"the environment is held by {holder(home)}")
        time.sleep(min(_POLL, timeout - waited))


def _open(root: Root, home: Home) -> int | None:
    """The lock file, made if needed; None where its folder vanished meanwhile."""
    root.forget_folders()
    try:
        root.make_own_folder(NAME)
        if root.lstat(LOCK) is None:
            _try_out(root, home)
        return root.open_to_lock(LOCK)
    except FileNotFoundError:
        return None


def _try_out(root: Root, home: Home) -> None:
    """Raise where the file system offers no locks, with nothing left behind.

    Once there is a ``lock``, only its holder may remove it: another process may hold that
    very file.
    """
    descriptor = root.open_to_lock(_PROBE)
    try:
        _flock(descriptor, fcntl.LOCK_EX, home)
    except Fault:
        root.unlink(_PROBE)
        root.rmdir(NAME)
        raise
    finally:
        os.close(descriptor)
    root.unlink(_PROBE)


def _flock(descriptor: int, how: int, home: Home) -> bool:
    """Whether the lock was free.  Raises :class:`Fault` where there are no locks."""
    try:
        return try_flock(descriptor, how)
    except OSError as error:
        raise Fault(
            f"{home.holder} cannot be locked ({error.strerror}), and without a lock two commands"
            " could change it at once",
            code="no-locks",
            hint="patch it on a file system that has flock(2); on NFS, mount it with locks"
            " (rpc.statd must run)",
        ) from None


def _leave(root: Root, home: Home) -> bool:
    """Take ``.patchkit`` away where it has nothing left to say; True where only what the
    file system itself still keeps in it is in the way."""
    if home.unfinished() or any(root.lstat(name) is not None for name in (STATE, TRIAL)):
        return False
    for folder in (*FOLDERS, LAUNCHES, TRIAL_SET):
        for name in root.names(folder):
            root.unlink(f"{folder}/{name}")
        root.rmdir(folder)
    for name in (LAUNCH, GUARD, f"{GUARD}.new", f"{TRIAL}.new"):
        root.unlink(name)
    root.unlink(_PROBE)
    root.unlink(RESERVE)
    root.unlink(LOCK)
    return not root.rmdir(NAME)


def _remove_hidden(root: Root) -> None:
    """NFS and FUSE keep a file that is removed while it is open (the lock) under another
    name, until it is closed, or a moment longer."""
    for _ in range(_TRIES):
        names = root.names(NAME)
        if root.rmdir(NAME) or not names or not all(n.startswith(_HIDDEN) for n in names):
            return
        time.sleep(_POLL)


# -- readers ----------------------------------------------------------------------------


def steady(
    home: Home, timeout: float, look: Callable[[], T], good: Callable[[T], bool] | None = None
) -> T:
    """What ``look`` returns or raises, of an environment that nobody changed meanwhile.

    A change under way is waited for; raises :class:`Locked` after ``timeout`` seconds, and
    :class:`Refused` (``interrupted``) where one was left unfinished.  Something ``good``
    counts although a change began meanwhile: it was there before that.
    """
    deadline = time.monotonic() + timeout
    while True:
        mark = home.mark()
        if not home.is_unfinished(mark):
            try:
                found = look()
            except (OSError, PatchkitError):
                if home.mark() == mark:
                    raise
            else:
                if (good is not None and good(found)) or home.mark() == mark:
                    return found
        elif not is_held(home) and home.mark() == mark:
            raise Refused(
                f"a patchkit command on {home.base} was interrupted and is not finished"
                f"{_begun_by(home)}",
                code="interrupted",
                hint="patchkit recover",
            )
        if time.monotonic() >= deadline:
            raise Locked(f"a change is under way: the environment is held by {holder(home)}")
        time.sleep(_POLL)


def is_held(home: Home) -> bool:
    """Whether a live process holds the lock.  Needs no write permission."""
    try:
        descriptor = os.open(f"{home.holder}/{LOCK}", _LOOK)
    except PermissionError:
        return True  # it cannot be seen, so it may be
    except OSError:
        return False
    try:
        return not _flock(descriptor, fcntl.LOCK_SH, home)
    finally:
        os.close(descriptor)


# -- who --------------------------------------------------------------------------------


def _note(command: str) -> bytes:
    return json.dumps({**me(), "command": command, "since": time.time_ns()}).encode()


def _begun_by(home: Home) -> str:
    """Who began what is not finished, as the journal says it."""
    try:
        journal = home.read_journal() or {}
        by = journal["by"]
        return f" ({journal['command']} by process {by['pid']} on {by['host']})"
    except (OSError, PatchkitError, KeyError, TypeError):
        return ""


def holder(home: Home) -> str:
    """Who holds the lock, as it wrote there: command, process and host.

    A process that is gone does not hold it: then the one that does has not said so yet.
    """
    try:
        note: dict[str, Any] = json.loads(home.note() or b"")
        who = f"process {note['pid']} on {note['host']} ({note['command']})"
        here = note["where"] is not None and note["where"] == where()
        gone = here and note["started"] != started(note["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    return "another process" if gone else who
