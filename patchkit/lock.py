"""One writer an environment: ``flock(2)`` on ``.patchkit/lock``, with a bounded wait.

The kernel drops the lock with its process, so a dead holder never blocks; the note in
the file (process, host, command) is for people only and decides nothing.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .errors import Locked
from .fsio import Root, rewrite
from .state import FOLDERS, LOCK, NAME, Home

_POLL = 0.05


@contextmanager
def hold(home: Home, command: str, timeout: float, check: Callable[[], None]) -> Iterator[Root]:
    """Hold the environment; yields the :class:`Root` of the directory that has
    ``.patchkit``.  ``check`` is called while waiting and may raise.

    Raises :class:`Locked` when another process holds it for ``timeout`` seconds.
    ``.patchkit`` is removed at the end where nothing is applied and nothing unfinished.
    """
    root = Root(home.holder)
    try:
        descriptor = _acquire(root, home, timeout, check)
        try:
            note = {"pid": os.getpid(), "host": os.uname().nodename, "command": command}
            rewrite(descriptor, json.dumps(note).encode())
            yield root
        finally:
            # An empty folder that stays is no harm, and no reason to call what was done
            # undone.
            try:
                with suppress(OSError):
                    _leave(root, home)
            finally:
                os.close(descriptor)
    finally:
        root.close()


def _acquire(root: Root, home: Home, timeout: float, check: Callable[[], None]) -> int:
    deadline = time.monotonic() + timeout
    while True:
        check()
        descriptor = _open(root)
        if descriptor is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    error.filename = f"{home.holder}/{LOCK}"
                    raise
            else:
                # The holder before may have removed the file while this one waited.
                here = root.lstat(LOCK)
                mine = os.fstat(descriptor)
                if here is not None and here.st_ino == mine.st_ino and mine.st_nlink:
                    return descriptor
                os.close(descriptor)
                root.forget_folders()
                continue
        if time.monotonic() >= deadline:
            raise Locked(
                f"the environment is held by {home.lock_note()}",
                hint="wait for it to end, or give it longer with --lock-timeout SECONDS",
            )
        time.sleep(_POLL)


def _open(root: Root) -> int | None:
    """The lock file, made if needed; None where its folder vanished meanwhile."""
    root.forget_folders()
    try:
        root.make_own_folder(NAME)
        return root.open_to_lock(LOCK)
    except FileNotFoundError:
        return None


def _leave(root: Root, home: Home) -> None:
    """Take ``.patchkit`` away where it has nothing left to say."""
    if home.unfinished() or root.lstat(f"{NAME}/state.json") is not None:
        return
    for folder in FOLDERS:
        for name in root.names(folder):
            root.unlink(f"{folder}/{name}")
        root.rmdir(folder)
    root.unlink(LOCK)
    root.rmdir(NAME)
