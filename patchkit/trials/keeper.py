"""A small process beside a trial, which ends what the trial left when patchkit was killed.

Owns that process.  The kernel ends the command with patchkit, and not the children of that; a
server's workers would hold the GPUs until somebody looks.  It only ends processes: what was applied
before is put back by the next command, as ever.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress

from patchkit import ongoing
from patchkit.fsio import discard

_OVER = b"."
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


class Keeper:
    """Lives from here to :meth:`dismiss`, or for seconds longer than this process does."""

    def __init__(self, trial: str) -> None:
        self._pid: int | None = None
        self._ours: socket.socket | None = None
        # Without it the next command ends what is left: no reason to refuse a trial.
        with suppress(OSError):
            self._ours, theirs = socket.socketpair()
            with theirs:
                self._pid = os.fork()
                if self._pid == 0:
                    try:
                        _watch(theirs, trial)
                    finally:
                        os._exit(0)

    def dismiss(self) -> None:
        """It is not needed any more: nothing of the command is left."""
        if self._ours is not None:
            with suppress(OSError):  # it is gone
                self._ours.send(_OVER)
            self._ours.close()
        if self._pid is not None:
            with suppress(ChildProcessError):  # somebody ended it, and the run saw that
                os.waitpid(self._pid, 0)


def _watch(parent: socket.socket, trial: str) -> None:
    """In the new process: hold nothing of the parent's, and wait for its word or its end."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    for stream in range(3):
        discard(stream)
    # The trial's own file too: who holds it is the trial that lives.
    for descriptor in _descriptors():
        if descriptor > 2 and descriptor != parent.fileno():
            with suppress(OSError):  # the one by which they were listed
                os.close(descriptor)
    if parent.recv(1) != _OVER:
        ongoing.end_left(trial, lambda: None)


def _descriptors() -> Iterable[int]:
    """Those that are open.  Not all that may be: in a container that can be a billion, which
    Python closes one by one where its C library has no close_range(2); nor is one that was
    opened before the limit was lowered among them."""
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return range(os.sysconf("SC_OPEN_MAX"))
