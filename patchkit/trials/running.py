"""One run of a command: its processes, its output, whether it is ready, and its end.

Owns the processes that a trial starts.  Whatever a command leaves (children that became nobody's,
too) is ended with it, and when patchkit itself is killed, the kernel kills the command.
Must not know of bundles.
"""

from __future__ import annotations

import ctypes
import os
import re
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, BinaryIO, NamedTuple

from patchkit.errors import PatchkitError
from patchkit.processes import describe, pids
from patchkit.signals import TooLong, time_limit

from .metrics import as_seen
from .record import READY_TIMEOUT

#: linux/prctl.h
_PDEATHSIG, _SUBREAPER = 1, 36
#: Signals that end a trial; those that the command alone is told; and those held in all.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_TOLD = (signal.SIGUSR1, signal.SIGUSR2)
_PASSED_ON = (*_ENDING, *_TOLD, signal.SIGTSTP)
#: Exit code of a command that took too long, as timeout(1) has it.
TOO_LONG = 124
#: Seconds between two questions to a URL, for one answer, and between looks at what is to end.
_ASK, _ANSWER, _LOOK = 0.2, 5.0, 0.05
#: Seconds that a process may take to die of SIGKILL.
_UNKILLABLE = 30.0
#: The most of the output that is kept for figures, from its end, where a table stands; the log has
#: all of it.  The readers of tables go through a hundredfold of a usual output in a second.
_KEPT = 8 * 1024 * 1024
_TAIL_LINES, _TAIL_BYTES = 20, 4096
#: The most of one line, and the seconds, in which the pattern of a ready server is looked for.
_LINE, _SEARCH = 1 << 17, 10.0


class Ready(NamedTuple):
    """When a server counts as ready: a URL answers with 2xx, or a line matches; both None where
    the command ends by itself."""

    url: str | None = None
    pattern: re.Pattern[str] | None = None
    timeout: float = READY_TIMEOUT

    @property
    def is_asked(self) -> bool:
        """Whether the command is a server."""
        return self.url is not None or self.pattern is not None


class Job(NamedTuple):
    """What is to be run.  ``grace``: seconds between SIGTERM and SIGKILL; ``descriptors`` are
    handed on to the command."""

    command: Sequence[str]
    measure: Sequence[str] | None
    environ: Mapping[str, str]
    cwd: str
    ready: Ready
    grace: float
    descriptors: Sequence[int] = ()


class Outcome(NamedTuple):
    """How a run ended.  ``exit`` is as a shell has it, of ``--measure`` where there is one;
    ``signal`` came to patchkit itself; ``problem`` says why a run is none, ``lost`` why the log
    lacks something.

    ``peak_memory_bytes``: the largest resident set that any one process of the command had, as
    the kernel says it at its end (``ru_maxrss``); several processes are not added up.
    """

    exit: int
    seconds: float
    ready_seconds: float | None
    peak_memory_bytes: int | None
    output: str
    tail: tuple[str, ...]
    signal: int | None = None
    problem: str | None = None
    lost: str | None = None


Echo = Callable[[bytes], None]
#: (seconds gone, seconds at most), while a server loads; None at the end of that.
Loading = Callable[["tuple[float, float] | None"], None]


def run(job: Job, log: BinaryIO, echo: Echo, loading: Loading) -> Outcome:
    """Run the command to its end, or until it was measured; nothing of it is left afterwards.

    Raises :class:`PatchkitError` (exit code 127 or 126) where it cannot be started.
    """
    with _Signals() as signals:
        runner = _Runner(job, log, echo, loading, signals)
        try:
            return runner.run()
        finally:
            runner.close()


class _Signals:
    """Signals are noted, and wake up who waits, as the end of a child does."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.wake, self._sender = socket.socketpair()
        for one in (self.wake, self._sender):
            one.setblocking(False)

    def __enter__(self) -> _Signals:  # noqa: PYI034 - typing.Self is of Python 3.11
        self._before: dict[int, Any] = {}
        for number in _PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wakeup = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.wake.close()
        self._sender.close()

    def wake_up(self) -> None:
        """From another thread."""
        with suppress(BlockingIOError):
            self._sender.send(b"\0")

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.came.append(signum)


class _Runner:
    def __init__(
        self, job: Job, log: BinaryIO, echo: Echo, loading: Loading, signals: _Signals
    ) -> None:
        self._job = job
        self._log = log
        self._echo = echo
        self._loading = loading
        self._signals = signals
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.wake, selectors.EVENT_READ)
        self._open: set[int] = set()
        self._output = bytearray()
        self._line = b""
        self._given_up: str | None = None
        self._lost: str | None = None
        self._ended: dict[int, int] = {}
        self._peak: int | None = None
        self._groups: list[int] = []
        self._signal: int | None = None
        self._over = 0.0
        self._is_ready = threading.Event()
        self._stop_asking = threading.Event()
        self._asker: threading.Thread | None = None
        self._reaper_before = _prctl_reaper(on=True)
        self._others = set(_descendants())

    def close(self) -> None:
        """Nothing of the command lives after this."""
        self._stop_asking.set()
        self._end_all(0.0)
        if self._asker is not None:
            self._asker.join()
        for descriptor in self._open:
            os.close(descriptor)
        self._selector.close()
        _prctl_reaper(on=self._reaper_before)

    def run(self) -> Outcome:
        job = self._job
        began = time.monotonic()
        server = self._start(job.command, is_server=True)
        ready_seconds: float | None = None
        problem: str | None = None
        if not job.ready.is_asked:
            self._until(lambda: server in self._ended)
            code = self._ended.get(server, 0)
        else:
            code, problem = self._wait_until_ready(server, began)
            if self._is_ready.is_set() and problem is None:
                ready_seconds = time.monotonic() - began
                if job.measure is not None and self._signal is None:
                    code, problem = self._measured(server, job.measure)
        seconds = time.monotonic() - began
        grace = job.grace
        if self._signal is not None:
            grace = max(0.0, self._over - time.monotonic())
        self._end_all(grace)
        self._drain()
        if self._signal is not None:
            code, problem = 128 + self._signal, None
        text = self._output[-_KEPT:].decode("utf-8", "replace")
        return Outcome(
            code,
            seconds,
            ready_seconds,
            self._peak,
            text,
            _tail(text),
            self._signal,
            problem,
            self._lost,
        )

    # -- steps ------------------------------------------------------------------------

    def _start(self, command: Sequence[str], *, is_server: bool) -> int:
        read, write = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                env=dict(self._job.environ),
                cwd=self._job.cwd or None,
                start_new_session=True,
                pass_fds=tuple(self._job.descriptors),
                preexec_fn=lambda: _die_with(parent),  # noqa: PLW1509 - no thread runs here
            )
        except OSError as error:
            os.close(read)
            missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            failure = PatchkitError(
                f"{command[0]} cannot be run: {error.strerror}",
                code="no-command" if missing else "not-executable",
                hint="check the command behind --" if is_server else "check --measure",
            )
            failure.exit_code = 127 if missing else 126
            raise failure from None
        finally:
            os.close(write)
        process.returncode = 0  # it is waited for here, and not by its object
        os.set_blocking(read, False)
        self._selector.register(read, selectors.EVENT_READ, is_server)
        self._open.add(read)
        self._groups.append(process.pid)
        return process.pid

    def _wait_until_ready(self, server: int, began: float) -> tuple[int, str | None]:
        ready = self._job.ready
        if ready.url is not None:
            self._asker = threading.Thread(target=self._ask, args=(ready.url,), daemon=True)
            self._asker.start()
        deadline = began + ready.timeout

        def done() -> bool:
            self._loading((time.monotonic() - began, ready.timeout))
            over = self._given_up is not None or server in self._ended
            return over or self._is_ready.is_set()

        self._until(done, deadline)
        self._loading(None)
        self._stop_asking.set()
        if self._is_ready.is_set() or self._signal is not None:
            return 0, None
        if self._given_up is not None:
            return TOO_LONG, self._given_up
        code = self._ended.get(server)
        if code is not None:
            return code or 1, f"it ended with exit code {code} before it was ready"
        return TOO_LONG, f"it was not ready within {ready.timeout:g} s"

    def _measured(self, server: int, measure: Sequence[str]) -> tuple[int, str | None]:
        if self._asker is not None:
            self._asker.join()  # no thread may run beside a fork
            self._asker = None
        pid = self._start(measure, is_server=False)
        self._until(lambda: pid in self._ended or server in self._ended)
        if pid in self._ended or self._signal is not None:
            return self._ended.get(pid, 0), None
        code = self._ended[server]
        return code or 1, f"it ended with exit code {code} while it was measured"

    def _ask(self, url: str) -> None:
        """In a thread of its own, since an answer may take its time."""
        from http.client import HTTPException
        from urllib.request import ProxyHandler, build_opener

        ask = build_opener(ProxyHandler({})).open  # a server under test is behind no proxy
        while not self._stop_asking.is_set():
            # Something else may answer at first: what is no HTTP is no answer yet.
            with suppress(OSError, ValueError, HTTPException), ask(url, timeout=_ANSWER) as got:
                if 200 <= got.status < 300:
                    self._is_ready.set()
                    self._signals.wake_up()
                    return
            self._stop_asking.wait(_ASK)

    # -- waiting ----------------------------------------------------------------------

    def _until(self, done: Callable[[], bool], deadline: float | None = None) -> None:
        """Read what is said, pass signals on, reap; until it is done, a signal's grace is over,
        or it is too late."""
        while not done():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return
            left = 1.0 if deadline is None else min(1.0, deadline - now)
            self._step(left)
            if self._signals.came:
                self._pass_on()
            if self._signal is not None:
                self._over = time.monotonic() + self._job.grace
                self._until_signal(done, self._over)
                return

    def _until_signal(self, done: Callable[[], bool], deadline: float) -> None:
        """After a signal was passed on: the command may end by itself for so long."""
        while not done() and time.monotonic() < deadline:
            self._step(max(0.0, min(1.0, deadline - time.monotonic())))
            self._pass_on()

    def _pass_on(self) -> None:
        came, self._signals.came[:] = list(self._signals.came), []
        for signum in came:
            if signum == signal.SIGTSTP:
                self._pause()
                continue
            if signum in _ENDING:
                self._signal = self._signal or signum
            for group in self._groups:
                _kill(group, signum, group=True)

    def _pause(self) -> None:
        """Stop with the command, and go on with it.  By SIGSTOP: the kernel drops a SIGTSTP to
        a group that has nobody in the session of the terminal."""
        for group in self._groups:
            _kill(group, signal.SIGSTOP, group=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        for group in self._groups:
            _kill(group, signal.SIGCONT, group=True)

    def _step(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._signals.wake:
                with suppress(BlockingIOError):
                    self._signals.wake.recv(4096)
            else:
                self._read(key.fd, is_server=bool(key.data))
        self._reap()

    def _read(self, descriptor: int, *, is_server: bool) -> bool:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(descriptor)
            self._open.discard(descriptor)
            os.close(descriptor)
            return False
        try:
            self._log.write(data)
        except OSError as error:  # a full disk must not end what is measured
            self._lost = self._lost or error.strerror
        self._echo(data)
        self._output += data
        if len(self._output) > 2 * _KEPT:
            del self._output[:-_KEPT]
        pattern = self._job.ready.pattern
        if is_server and pattern is not None and not self._is_ready.is_set():
            self._look(pattern, data)
        return True

    def _look(self, pattern: re.Pattern[str], data: bytes) -> None:
        """Whether what was said makes the server ready."""
        # A line may come in parts; one that is not over yet counts as well.
        data = (self._line + data)[-_LINE:]
        self._line = data[data.rfind(b"\n") + 1 :]
        lines = as_seen(data.decode("utf-8", "replace")).split("\n")
        try:
            with time_limit(_SEARCH):
                found = any(map(pattern.search, lines))
        except TooLong:
            self._given_up = "the search for --ready-pattern takes too long"
        else:
            if found:
                self._is_ready.set()

    def _drain(self) -> None:
        """What was said before the end, and is not read yet."""
        for descriptor in list(self._open):
            while self._read(descriptor, is_server=False):
                pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ended[pid] = _exit_code(status)
            self._peak = max(self._peak or 0, usage.ru_maxrss * 1024)

    # -- the end ----------------------------------------------------------------------

    def _end_all(self, grace: float) -> None:
        """SIGTERM to whatever is left, a time of grace, SIGKILL."""
        left = self._left()
        if left and grace > 0:
            for pid in left:
                # Who was told by the signal that was passed on is at it.
                if self._signal is None or _group(pid) not in self._groups:
                    _kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + grace
            while self._left() and time.monotonic() < deadline:
                self._step(_LOOK)
                came, self._signals.came[:] = list(self._signals.came), []
                ending = [signum for signum in came if signum in _ENDING]
                if ending:  # somebody is impatient
                    self._signal = self._signal or ending[0]
                    break
        deadline = time.monotonic() + _UNKILLABLE
        while left := self._left():
            for pid in left:
                _kill(pid, signal.SIGKILL)
            self._step(_LOOK)
            if time.monotonic() > deadline:
                return  # it hangs in the kernel; the lock that it inherited keeps others off

    def _left(self) -> list[int]:
        self._reap()
        return [pid for pid in _descendants() if pid not in self._others]


def _descendants() -> list[int]:
    """All processes below this one.  What became nobody's is its child (it is a subreaper)."""
    parents: dict[int, int] = {}
    for pid in pids():
        process = describe(pid)
        if process is not None:
            parents[pid] = process.parent
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        above = waiting.pop()
        below = [pid for pid, parent in parents.items() if parent == above]
        found += below
        waiting += below
    return found


def _kill(pid: int, signum: int, *, group: bool = False) -> None:
    with suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, signum)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _exit_code(status: int) -> int:
    """As a shell has it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _tail(text: str) -> tuple[str, ...]:
    """The last lines, for the record; whole ones, since half of a secret is known to nobody."""
    cut = len(text) > _TAIL_BYTES
    lines = as_seen(text[-_TAIL_BYTES:]).splitlines()
    return tuple((lines[1:] if cut and len(lines) > 1 else lines)[-_TAIL_LINES:])


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _prctl_reaper(*, on: bool) -> bool:
    """Make this process the one that gets what becomes nobody's; how it was before."""
    before = ctypes.c_int(0)
    with suppress(OSError, AttributeError):
        libc = _libc()
        libc.prctl(37, ctypes.byref(before), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
        libc.prctl(_SUBREAPER, int(on), 0, 0, 0)
    return bool(before.value)


def _die_with(parent: int) -> None:
    """In the new process: be killed when patchkit is, and have the signals of a fresh one."""
    with suppress(OSError, AttributeError):
        _libc().prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
