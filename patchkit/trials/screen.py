"""What a person sees while a trial runs: the command's own output, and how long it loads.

Everything goes to standard error, since standard output is for the result alone.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from patchkit.console import Settings, to_stderr

_EVERY = 1.0
_CLEAR = b"\r\x1b[K"


class Terminal:
    """Standard error.  Quiet, it shows nothing; where it is no terminal, no progress."""

    def __init__(self, settings: Settings) -> None:
        self._quiet = settings.quiet
        stream = sys.stderr
        self._moves = not self._quiet and stream is not None and stream.isatty()
        self._shown = 0.0
        self._is_up = False

    def echo(self, data: bytes) -> None:
        """What the command says, as it says it."""
        if self._quiet or sys.stderr is None:
            return
        self._clear()
        self._write(data)

    def loading(self, at: tuple[float, float] | None) -> None:
        """One line that counts the seconds, and goes again."""
        if not self._moves:
            return
        if at is None:
            self._clear()
            return
        now = time.monotonic()
        if now - self._shown < _EVERY:
            return
        self._clear()
        self._shown = now
        self._write(f"patchkit: not ready yet, {at[0]:.0f} s of {at[1]:.0f} s".encode())
        self._is_up = True

    def say(self, line: str) -> None:
        """A remark."""
        if not self._quiet:
            self._clear()
            to_stderr(f"patchkit: {line}")

    def _clear(self) -> None:
        if self._is_up:
            self._write(_CLEAR)
            self._is_up = False

    def _write(self, data: bytes) -> None:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
