"""Runs a command and stops it, and all its children, before chosen system calls.

ptrace(2) with a seccomp(2) filter: only the chosen calls stop, so that a run costs little
more than one that nobody watches, and the calls of all processes are one sequence (strace
counts those of each process by itself).  At a stop the caller may look at the disk, and says
whether the call goes on, fails with an error, or everything is killed.

Linux on x86-64 only: numbers and registers are that machine's.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import platform
import shutil
import signal
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

#: Number of each call, and which arguments name files: ``f0`` a descriptor, ``p0`` a path,
#: ``d0p1`` a path from a folder's descriptor.
_CALLS: dict[str, tuple[int, str]] = {
    "read": (0, "f0"), "write": (1, "f0"), "open": (2, "p0"), "stat": (4, "p0"),
    "fstat": (5, "f0"), "lstat": (6, "p0"), "lseek": (8, "f0"), "pread64": (17, "f0"),
    "pwrite64": (18, "f0"), "writev": (20, "f0"), "access": (21, "p0"), "sendfile": (40, "f0"),
    "flock": (73, "f0"), "fsync": (74, "f0"), "fdatasync": (75, "f0"), "truncate": (76, "p0"),
    "ftruncate": (77, "f0"), "rename": (82, "p0 p1"), "mkdir": (83, "p0"), "rmdir": (84, "p0"),
    "creat": (85, "p0"), "link": (86, "p0 p1"), "unlink": (87, "p0"), "symlink": (88, "p1"),
    "readlink": (89, "p0"), "chmod": (90, "p0"), "fchmod": (91, "f0"), "chown": (92, "p0"),
    "fchown": (93, "f0"), "lchown": (94, "p0"), "utime": (132, "p0"), "statfs": (137, "p0"),
    "fstatfs": (138, "f0"), "sync": (162, ""), "setxattr": (188, "p0"), "lsetxattr": (189, "p0"),
    "fsetxattr": (190, "f0"), "getxattr": (191, "p0"), "fgetxattr": (193, "f0"),
    "listxattr": (194, "p0"), "flistxattr": (196, "f0"), "removexattr": (197, "p0"),
    "getdents64": (217, "f0"), "fadvise64": (221, "f0"), "utimes": (235, "p0"),
    "openat": (257, "d0p1"), "mkdirat": (258, "d0p1"), "mknodat": (259, "d0p1"),
    "fchownat": (260, "d0p1"), "newfstatat": (262, "d0p1"), "unlinkat": (263, "d0p1"),
    "renameat": (264, "d0p1 d2p3"), "linkat": (265, "d0p1 d2p3"), "symlinkat": (266, "d1p2"),
    "readlinkat": (267, "d0p1"), "fchmodat": (268, "d0p1"), "faccessat": (269, "d0p1"),
    "sync_file_range": (277, "f0"), "utimensat": (280, "d0p1"), "fallocate": (285, "f0"),
    "syncfs": (306, "f0"), "renameat2": (316, "d0p1 d2p3"), "copy_file_range": (326, "f2"),
    "statx": (332, "d0p1"), "openat2": (437, "d0p1"), "faccessat2": (439, "d0p1"),
    "fchmodat2": (452, "d0p1"),
}  # fmt: skip
_NAMES = {number: name for name, (number, _) in _CALLS.items()}
#: Which argument holds the flags of an open, to tell those that write.
_OPENS = {"open": 1, "openat": 2}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

#: What changes a tree, or makes a change durable.
CHANGING = (
    *("write", "open", "pwrite64", "writev", "sendfile", "fsync", "fdatasync", "truncate"),
    *("ftruncate", "rename", "mkdir", "rmdir", "creat", "link", "unlink", "symlink", "chmod"),
    *("fchmod", "chown", "fchown", "lchown", "utime", "sync", "setxattr", "lsetxattr"),
    *("fsetxattr", "removexattr", "utimes", "openat", "mkdirat", "mknodat", "fchownat"),
    *("unlinkat", "renameat", "linkat", "symlinkat", "fchmodat", "sync_file_range", "utimensat"),
    *("fallocate", "syncfs", "renameat2", "copy_file_range", "openat2", "fchmodat2"),
)
#: The above and what only looks.
ALL = tuple(_CALLS)

KILL = "kill"
#: What to do with a stopped call: let it go on (None), kill all, or fail it with an errno.
Action = str | int | None

_TRACEME, _CONT, _GETREGS, _SETREGS, _SYSCALL, _SETOPTIONS = 0, 7, 12, 13, 24, 0x4200
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000  # SYSGOOD … SECCOMP, EXITKILL
_EVENT_SECCOMP = 7
_WALL = 0x40000000
_AT_FDCWD = -100

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class _Registers(ctypes.Structure):
    """``struct user_regs_struct`` of <sys/user.h>."""

    _fields_ = [
        (name, ctypes.c_ulonglong)
        for name in (
            *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx"),
            *("rdx", "rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base"),
            *("gs_base", "ds", "es", "fs", "gs"),
        )
    ]


class NotHere(Exception):
    """No process can be traced so here; the message says what is needed."""


@dataclass(frozen=True)
class Call:
    """A system call at its entry: its name, the files that it names (absolute), and how to
    see its arguments."""

    pid: int
    name: str
    paths: tuple[str, ...]
    arguments: tuple[int, ...]

    def bytes_at(self, argument: int, size: int) -> bytes:
        """Memory of the process that an argument points to."""
        return _memory(self.pid, self.arguments[argument], size)

    def text_at(self, argument: int) -> str:
        """A C string that an argument points to."""
        return _text(self.pid, self.arguments[argument])

    @property
    def writes(self) -> bool:
        """Whether it changes something, or makes that durable; of the opens, those that write."""
        if self.name in _OPENS:
            return bool(self.arguments[_OPENS[self.name]] & _WRITING)
        return self.name in CHANGING


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code (negative: by which signal), and its streams."""

    code: int
    stdout: str
    stderr: str


def must_work() -> None:
    """Raise :class:`NotHere` where processes cannot be traced so."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotHere("needs Linux on x86-64")
    try:
        seen: list[str] = []
        trace(["/bin/mkdir", "/"], {}, Path("/"), lambda call: seen.append(call.name), CHANGING)
    except OSError as error:
        raise NotHere(f"needs ptrace and seccomp: {error.strerror}") from None
    if not seen:
        raise NotHere("needs ptrace and seccomp")


Command = Sequence[str] | Callable[[], int]


def trace(
    command: Command,
    env: Mapping[str, str],
    cwd: Path,
    stop: Callable[[Call], Action],
    calls: Collection[str] = CHANGING,
    *,
    done: Callable[[Call, int], object] | None = None,
    sessions: bool = False,
) -> Ended:
    """Run a command to its end; ``stop`` is called before each of ``calls``.

    The command is a line, or a function that a fork of this process runs; it returns the exit
    code.  Of the opens only those that write stop, unless ``calls`` holds a call that only
    looks.  ``done`` is called after each that went on, with what it returned (an errno,
    negative).  With ``sessions`` processes that begin a group of their own are followed as well;
    the process that calls this must then have no other children.
    """
    program = _filter(calls, opens_that_read=any(name not in CHANGING for name in calls))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():
            # Beside other threads (of xdist): the child needs none of their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            _become(command, env, cwd, program, (out.fileno(), err.fileno()))
        try:
            code = _follow(pid, stop, done, sessions=sessions)
        except BaseException:
            _kill_group(pid)
            raise
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read().decode(errors="replace"), err.read().decode(errors="replace"))


def _become(
    command: Command,
    env: Mapping[str, str],
    cwd: Path,
    program: bytes,
    streams: tuple[int, int],
) -> NoReturn:
    """In the child: what a command of its own would find, then the command."""
    code = 70
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        os.chdir(cwd)
        if callable(command):
            os.environ.clear()
            os.environ.update(env)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
            gc.disable()
            _be_traced(program)
            code = command()
            sys.stdout.flush()
            sys.stderr.flush()
        else:
            path = shutil.which(command[0], path=env.get("PATH", os.defpath))
            _be_traced(program)
            os.execve(path or command[0], list(command), dict(env))
    except BaseException:  # noqa: BLE001 - this process must not go on as its parent
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _be_traced(program: bytes) -> None:
    if _libc.ptrace(_TRACEME, 0, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.kill(os.getpid(), signal.SIGSTOP)  # goes on when it is watched
    buffer = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    if _libc.prctl(no_new_privileges, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if _libc.prctl(set_seccomp, mode_filter, ctypes.create_string_buffer(head), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def _filter(calls: Collection[str], *, opens_that_read: bool) -> bytes:
    """The classic BPF program of seccomp(2): the calls stop, all others go on."""
    load, equal, any_bit, answer = 0x20, 0x15, 0x45, 0x06
    allow, stop = 0x7FFF0000, 0x7FF00000

    def step(code: int, yes: int, no: int, value: int) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    program = step(load, 0, 0, 0)  # the number of the call
    for name in calls:
        number = _CALLS[name][0]
        if name in _OPENS and not opens_that_read:
            program += step(equal, 0, 4, number)
            program += step(load, 0, 0, 16 + 8 * _OPENS[name])
            program += step(any_bit, 0, 1, _WRITING)
            program += step(answer, 0, 0, stop)
            program += step(answer, 0, 0, allow)
        else:
            program += step(equal, 0, 1, number)
            program += step(answer, 0, 0, stop)
    return program + step(answer, 0, 0, allow)


def _follow(
    main: int,
    stop: Callable[[Call], Action],
    done: Callable[[Call, int], object] | None,
    *,
    sessions: bool = False,
) -> int:
    """Wait for every process of the group, and answer their stops; the exit code of the first."""
    every = -1 if sessions else -main
    code: int | None = None
    started = False
    inside: dict[int, Call] = {}  # between entry and exit of a call, where that is watched
    while True:
        try:
            # At first by its own id: it makes its group itself.
            pid, status = os.waitpid(every if started else main, _WALL)
        except ChildProcessError:
            assert code is not None
            return code
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if pid == main:
                code, started = os.waitstatus_to_exitcode(status), True
            continue
        number, event = os.WSTOPSIG(status), status >> 16
        if pid == main and not started:
            started = True
            _ptrace(_SETOPTIONS, pid, _OPTIONS)
            _ptrace(_CONT, pid, 0)
        elif event == _EVENT_SECCOMP:
            registers = _registers(pid)
            call = _call(pid, registers)
            action = stop(call)
            if action == KILL:
                _kill_group(main)
                if _group(pid) != main:  # of a session of its own: it lives, and goes on
                    _ptrace(_CONT, pid, 0)
            elif isinstance(action, int):
                registers.orig_rax = 2**64 - 1  # no call; this is what it then returns
                registers.rax = 2**64 - action
                _libc.ptrace(_SETREGS, pid, None, ctypes.byref(registers))
                _ptrace(_CONT, pid, 0)
            elif done is not None:
                inside[pid] = call
                _ptrace(_SYSCALL, pid, 0)
            else:
                _ptrace(_CONT, pid, 0)
        elif number == signal.SIGTRAP | 0x80:
            result = ctypes.c_longlong(_registers(pid).rax).value
            if pid in inside and done is not None:
                done(inside.pop(pid), result)
            _ptrace(_CONT, pid, 0)
        elif event or number in (signal.SIGSTOP, signal.SIGTRAP):
            _ptrace(_CONT, pid, 0)  # a child, an exec
        else:
            _ptrace(_CONT, pid, number)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _kill_group(main: int) -> None:
    try:
        os.killpg(main, signal.SIGKILL)
    except ProcessLookupError:
        return


def _ptrace(request: int, pid: int, value: int) -> None:
    if _libc.ptrace(request, pid, None, value) and ctypes.get_errno() != errno.ESRCH:
        raise OSError(ctypes.get_errno(), f"ptrace: {os.strerror(ctypes.get_errno())}")


def _registers(pid: int) -> _Registers:
    registers = _Registers()
    _libc.ptrace(_GETREGS, pid, None, ctypes.byref(registers))
    return registers


def _call(pid: int, registers: _Registers) -> Call:
    values = [getattr(registers, name) for name in ("rdi", "rsi", "rdx", "r10", "r8", "r9")]
    arguments = tuple(values)
    name = _NAMES[registers.orig_rax]
    paths = []
    for part in _CALLS[name][1].split():
        if part[0] == "f":
            paths.append(_descriptor(pid, arguments[int(part[1])]))
        elif part[0] == "p":
            paths.append(_joined(pid, _AT_FDCWD, _text(pid, arguments[int(part[1])])))
        else:
            folder = ctypes.c_int(arguments[int(part[1])] & 0xFFFFFFFF).value
            paths.append(_joined(pid, folder, _text(pid, arguments[int(part[3])])))
    return Call(pid, name, tuple(paths), arguments)


def _joined(pid: int, folder: int, name: str) -> str:
    if name.startswith("/"):
        return os.path.normpath(name)
    above = os.readlink(f"/proc/{pid}/cwd") if folder == _AT_FDCWD else _descriptor(pid, folder)
    return os.path.normpath(f"{above}/{name}") if name else above


def _descriptor(pid: int, number: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{ctypes.c_int(number & 0xFFFFFFFF).value}")
    except OSError:
        return ""


def _memory(pid: int, address: int, size: int) -> bytes:
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)


def _text(pid: int, address: int) -> str:
    """A C string, read page by page since the next page may not be there."""
    if not address:
        return ""
    found = b""
    while b"\0" not in found:
        size = 4096 - (address + len(found)) % 4096
        part = _memory(pid, address + len(found), size)
        if not part:
            break
        found += part
    return os.fsdecode(found.partition(b"\0")[0])
