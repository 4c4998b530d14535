"""Errors of the system, at every call on the tree that can meet them.

A call outside of the tree (the interpreter's own files, say) changes nothing of what is
measured here, and is left alone.  One run, one error; with ``for_good`` every such call from
there on fails, as on a disk that is full, gone, or has become read-only.
"""

from __future__ import annotations

import errno
import os

from tests.crash.disk import Picture
from tests.crash.kills import Explorer, Row
from tests.crash.subjects import Patchkit, State
from tests.crash.tracer import ALL, Action, Call, Ended

_MAKES = {
    *("mkdir", "mkdirat", "link", "linkat", "symlink", "symlinkat", "creat", "mknodat"),
    *("rename", "renameat", "renameat2", "setxattr", "lsetxattr", "fsetxattr"),
}
_WRITES = {
    *("write", "pwrite64", "writev", "sendfile", "fsync", "fdatasync", "fallocate"),
    *("copy_file_range", "ftruncate", "truncate"),
}
_REMOVES = {"unlink", "unlinkat", "rmdir"}
_ATTRIBUTES = {
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "utimensat"),
}
_OPENS = {"open", "openat", "openat2", "creat"}
_LOOKS = {
    *("stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2"),
    *("readlink", "readlinkat", "statfs"),
}
_READS = {"read", "pread64", "getdents64", "fstat", "fstatfs", "flistxattr", "fgetxattr"}

#: Which calls can fail so, by their manual pages.  An open that only reads needs no space, and
#: meets no read-only file system.  A mode or an owner that may not be given is none of these: that
#: is what file systems without modes answer, and what they keep is recorded.
CALLS: dict[str, set[str]] = {
    "ENOSPC": _MAKES | _WRITES | _OPENS,
    "EDQUOT": _MAKES | _WRITES | _OPENS | {"chown", "fchown", "lchown", "fchownat"},
    "EIO": _MAKES | _WRITES | _OPENS | _REMOVES | _ATTRIBUTES | _LOOKS | _READS,
    "EMFILE": _OPENS,
    "EINTR": _OPENS | _WRITES | {"read", "pread64", "flock"},
    "EROFS": _MAKES | _OPENS | _REMOVES | _ATTRIBUTES | {"truncate"},
    "EACCES": _MAKES | _OPENS | _REMOVES | _LOOKS,
    "EPERM": _MAKES | _OPENS | _REMOVES,
}
_ONLY_WHEN_WRITING = {"ENOSPC", "EDQUOT", "EROFS"}
#: A full disk still renames and syncs what is there.
FULL = _MAKES - {"rename", "renameat", "renameat2"} | {"write", "pwrite64", "creat"} | _OPENS
FOR_GOOD = {"ENOSPC": FULL, "EIO": CALLS["EIO"], "EROFS": CALLS["EROFS"]}


def can_meet(error: str, call: Call, calls: set[str]) -> bool:
    """Whether a call can fail so."""
    if call.name not in calls:
        return False
    if call.name in ("open", "openat") and error in _ONLY_WHEN_WRITING:
        flags = call.arguments[1 if call.name == "open" else 2]
        return bool(flags & (os.O_CREAT if error != "EROFS" else os.O_CREAT | os.O_ACCMODE))
    return True


class Errors:
    """Attacks with errors on one tool."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.subject = explorer.subject

    def attack(self, error: str, command: str, *, for_good: bool = False, stride: int = 1) -> Row:
        """One error at every call of a command that changes the tree."""
        subject = self.subject
        name = f"{error} for good" if for_good else error
        row = Row(subject.name, name, command)
        old, new = (subject.states[state] for state in subject.commands[command])
        start = subject.start(command)
        for number in range(1, 100_000, stride):
            subject.region.restore(start)
            ended, call = self._fail(error, command, number, for_good=for_good)
            if call is None:
                break
            now = subject.region.look()
            where = f"call {number}, {call.name} {call.paths}"
            self._judge(row, where, ended, now, (old, new), for_good=for_good)
            self._check_retry(row, where, command, now, new)
        return row

    def recovery(self, error: str, *, for_good: bool = False, stride: int = 1) -> Row:
        """The same for the recovery of a half-changed tree: it leaves that as it was, old, or
        new, and knows which."""
        subject = self.subject
        assert isinstance(subject, Patchkit)
        row = Row(subject.name, f"{error} for good" if for_good else error, "recover")
        for start in half_done(self.explorer):
            ends = {subject.states[name] for name in subject.commands["apply"]}
            for number in range(1, 100_000, stride):
                subject.region.restore(start)
                ended, call = self._fail(error, "recover", number, for_good=for_good)
                if call is None:
                    break
                now = subject.region.look()
                where = f"call {number}, {call.name} {call.paths}"
                self.explorer.count(row, where, now, ends)
                says = self.explorer.judged(now).says
                if ended.code not in (0, 4) or (ended.code == 0 and says is None):
                    row.find("wrong", f"{where}: exit code {ended.code}; {ended.stderr[-300:]}")
                elif ended.code == 4 and str(subject.tree) not in ended.stderr:
                    row.find("wrong", f"{where}: names no path: {ended.stderr[-300:]}")
        return row

    def guard(self, error: str, *, stride: int = 1) -> Row:
        """``verify`` on trees that are not good: whatever it cannot read, it never says so."""
        subject = self.subject
        assert isinstance(subject, Patchkit)
        row = Row(subject.name, error, "verify")
        for start in [*half_done(self.explorer), _drifted(subject)]:
            for number in range(1, 100_000, stride):
                subject.region.restore(start)
                ended, call = self._fail(error, "verify", number, for_good=False)
                if call is None:
                    break
                row.runs += 1
                where = f"call {number}, {call.name} {call.paths}"
                if ended.code not in (1, 3, 4):
                    row.find("wrong", f"{where}: exit code {ended.code}; {ended.stderr[-300:]}")
                if subject.region.look().key != start.key:
                    row.find("wrong", f"{where}: it changed the tree")
        return row

    def _fail(
        self, error: str, command: str, number: int, *, for_good: bool
    ) -> tuple[Ended, Call | None]:
        """Run a command whose ``number``th call that can meet the error does; and that call."""
        calls = FOR_GOOD[error] if for_good else CALLS[error]
        code = getattr(errno, error)
        tree = str(self.subject.tree)
        count = 0
        hit: list[Call] = []

        def stop(call: Call) -> Action:
            nonlocal count
            inside = any(p == tree or p.startswith(f"{tree}/") for p in call.paths)
            if not inside or not can_meet(error, call, calls):
                return None
            count += 1
            if count < number or (count > number and not for_good):
                return None
            hit.append(call)
            return int(code)

        # With a call that looks among them, the opens that only read stop, too.
        watched = ["lseek", *(name for name in ALL if name in calls)]
        ended = self.subject.trace(command, stop, watched)
        return ended, hit[0] if hit else None

    def _judge(
        self,
        row: Row,
        where: str,
        ended: Ended,
        now: Picture,
        ends: tuple[State, State],
        *,
        for_good: bool,
    ) -> None:
        old, new = ends
        self.explorer.count(row, where, now, {old, new})
        node = self.explorer.judged(now)
        said = f"exit code {ended.code}; {ended.stderr[-300:]}"
        if ended.code == 0 and node.state != new:
            row.find("wrong", f"{where}: not done: {said}")
        if not isinstance(self.subject, Patchkit):
            return
        if ended.code == 0:
            if node.says is None and "patchkit recover" not in ended.stderr:
                row.find("wrong", f"{where}: done and not good: {said}")
        elif ended.code != 4:
            row.find("wrong", f"{where}: {said}")
        elif str(self.subject.tree) not in ended.stderr:
            row.find("wrong", f"{where}: names no path: {said}")
        elif node.state != old and not (for_good and node.says is None):
            row.find("wrong", f"{where}: not as it was: {said}")
        elif node.says is None and "patchkit recover" not in ended.stderr:
            row.find("wrong", f"{where}: not good, and does not say so: {said}")

    def _check_retry(self, row: Row, where: str, command: str, now: Picture, new: State) -> None:
        """Without the cause, the same command gets through."""
        if not isinstance(self.subject, Patchkit):
            return
        outcome = self.explorer.after(now, command)
        if not outcome.good or outcome.state != new:
            row.find("mixed_after", f"{where}: {command} again: {outcome.text[-300:]}")


def half_done(explorer: Explorer) -> list[Picture]:
    """A tree whose apply was killed between two renames, and one killed after it was recorded."""
    subject = explorer.subject
    start = subject.start("apply")
    _, steps = explorer.steps("apply")
    old, new = (subject.states[name] for name in subject.commands["apply"])
    mixed = [step for step in steps if subject.state(step) not in (old, new)]
    recorded = [step for step in steps if ".patchkit/state.json" in step.entries]
    subject.region.restore(start)
    return [mixed[len(mixed) // 2], recorded[0]]


def _drifted(subject: Patchkit) -> Picture:
    """An applied tree, one of whose files somebody edited."""
    subject.region.restore(subject.starts["1"])
    path = subject.tree / subject.change.files[0]
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data + b"# edited\n")
    return subject.region.look()
