"""A small process beside a trial, which ends what the trial left when patchkit was killed.

Owns that process.  The kernel ends the command with patchkit, and not the children of that; a
server's workers would hold the GPUs until somebody looks.  It only ends processes: what was applied
before is put back by the next command, as ever.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

from patchkit import ongoing
from patchkit.fsio import discard

_OVER = b"."
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


class Keeper:
    """Lives from here to :meth:`dismiss`, or for seconds longer than this process does."""

    def __init__(self, trial: str) -> None:
        self._pid: int | None = None
        self._ours, theirs = socket.socketpair()
        # Without it the next command ends what is left: no reason to refuse a trial.
        with suppress(OSError):
            self._pid = os.fork()
        if self._pid == 0:
            try:
                _watch(theirs, trial)
            finally:
                os._exit(0)
        theirs.close()

    def dismiss(self) -> None:
        """It is not needed any more: nothing of the command is left."""
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
    os.closerange(3, parent.fileno())
    os.closerange(parent.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    if parent.recv(1) != _OVER:
        ongoing.end_left(trial, lambda: None)
