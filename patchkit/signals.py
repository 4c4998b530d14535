"""Signals are held while the environment changes, and noticed between two steps.

While nothing but reading and computing goes on, or what was done is told, they end that at once
(:meth:`Held.at_once`), also out of a call that blocks.  Else a first SIGINT, SIGTERM or SIGHUP
makes the next :meth:`Held.check` raise, so that the transaction rolls back in one piece; later
ones cannot break the rollback.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import Interrupted

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Now(BaseException):
    """Raised where a signal comes: nothing that deals with errors must take it for one."""


class Held:
    """Remembers the first signal that came.  ``done`` says that a change is finished: what
    comes then must not make the exit code say that it was rolled back."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.done = False
        self._at_once = False

    def note(self, signum: int, frame: FrameType | None) -> None:
        """The handler; what comes after the first signal is dropped."""
        if self.signum is None:
            self.signum = signum
            if self._at_once:
                raise _Now

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """In here a signal raises :class:`Interrupted` where it comes: nothing may be changed
        in here."""
        try:
            self._at_once = True
            try:
                self.check()
                yield
            finally:
                self._at_once = False
        except _Now:
            assert self.signum is not None
            raise Interrupted(self.signum) from None
        self.check()

    def check(self) -> None:
        """Raise :class:`Interrupted` if a signal came."""
        if self.signum is not None:
            raise Interrupted(self.signum)


class TooLong(Exception):
    """What :func:`time_limit` raises inside of it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TooLong` in here after so long, also inside of a regular expression,
    whose search looks for signals.  Without effect in a thread that is not the main one."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TooLong

    try:
        before = signal.signal(signal.SIGALRM, stop)
    except ValueError:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def held(by: Held | None = None, *, last: bool = False) -> Iterator[Held]:
    """Hold the signals that end a process; a SIGHUP that is ignored (nohup) stays so.

    Where they are held already (``by``), nothing happens here.  At the end they are as before;
    but where this is the ``last`` that a process does, and one came or a change is ``done``,
    they are ignored from then on: it only says so and ends.
    """
    if by is not None:
        yield by
        return
    state = Held()
    before = {}
    for number in _HELD:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, state.note)
    try:
        yield state
    finally:
        over = last and (state.done or state.signum is not None)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if over else handler)
