"""What was launched from an environment, and the lock that keeps it from being changed.

A launch holds two shared ``flock(2)`` locks for the life of its process tree, on the folder
that has ``.patchkit`` (which needs no write permission, and is there when nothing is applied)
and on ``.patchkit/launch.lock`` (which a network file system shows to other hosts too); who
changes files takes both exclusively.  The descriptors are inherited, so the kernel lets go when
the last process of the tree has ended.

A note for each launch says who it is.  It is held as well, exclusively: it is of a process
that lives while nobody else gets a lock on it, whichever host asks.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from .errors import Locked, PatchkitError
from .fsio import Root, try_flock
from .here import host, me, where
from .state import LAUNCH, LAUNCHES, MAX_NOTE, STATE, Home, read_own

#: In the environment of what was launched: the name of its note.  A child that closed the
#: descriptors that it inherited (Python's ``subprocess`` does) is known by it.
VARIABLE = "PATCHKIT_LAUNCH"
_POLL = 0.05
_LOOK = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_ASIDE = ".new"
#: So many notes may lie there before a launch looks which of them are of the dead.
_MANY = 8


class Note(NamedTuple):
    """What a launch said of itself.  ``mark`` tells which state it was launched with;
    ``held`` whether a process of it still has its descriptor."""

    name: str
    pid: int
    host: str
    where: list[str] | None
    started: str | None
    since: float
    mark: list[int] | None
    fingerprint: str | None
    command: str
    held: bool

    @property
    def is_here(self) -> bool:
        """Whether its process ids mean something to this process."""
        return self.where is not None and self.where == where()


# -- the launched -----------------------------------------------------------------------


class Joined(NamedTuple):
    """The descriptors to hand on; ``why`` says what kept one from being locked."""

    descriptors: list[int]
    why: str | None

    def leave(self) -> None:
        """Let go of it."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def join(home: Home, timeout: float) -> Joined:
    """Hold the environment as what is launched from it does.

    A change under way is waited for; raises :class:`Locked` after ``timeout`` seconds.  No
    lock is no reason not to launch: on a file system that has none, what is held is empty.
    """
    deadline = time.monotonic() + timeout
    held: list[int] = []
    why: str | None = None
    try:
        for path in (home.holder, f"{home.holder}/{LAUNCH}"):
            descriptor: int | None = None
            try:
                descriptor = _open(home, path)
                while descriptor is not None and not try_flock(descriptor, fcntl.LOCK_SH):
                    if time.monotonic() >= deadline:
                        raise Locked("a change of the environment is under way")
                    time.sleep(_POLL)
            except OSError as error:
                why = error.strerror or str(error)
                if descriptor is not None:
                    os.close(descriptor)
            except BaseException:
                if descriptor is not None:
                    os.close(descriptor)
                raise
            else:
                held += [] if descriptor is None else [descriptor]
    except BaseException:
        Joined(held, None).leave()
        raise
    return Joined(held, why if not held else None)


def _open(home: Home, path: str) -> int | None:
    """What is to be locked; the file is made where it may be, else there is none of it."""
    try:
        return os.open(path, _LOOK)
    except FileNotFoundError:
        if not home.exists():
            return None
    try:
        root = Root(home.holder)
        try:
            return root.open_to_lock(LAUNCH)
        finally:
            root.close()
    except (OSError, PatchkitError):
        return None


def write_note(
    home: Home, fingerprint: str | None, command: str, descriptors: list[int]
) -> str | None:
    """Say who is launched; the note's name, or None where this user may not write it.  Its
    descriptor is added to those to hand on."""
    if not home.exists():
        return None
    name = os.urandom(6).hex()
    value = {
        **me(),
        "since": time.time(),
        "mark": mark(home),
        "fingerprint": fingerprint,
        "command": command,
    }
    descriptor: int | None = None
    try:
        root = Root(home.holder)
        try:
            root.make_own_folder(LAUNCHES)
            path = f"{LAUNCHES}/{name}"
            # Nobody takes it for one of the dead before it is locked.
            descriptor = root.create_open(f"{path}{_ASIDE}", json.dumps(value).encode())
            try_flock(descriptor, fcntl.LOCK_EX)
            root.rename(f"{path}{_ASIDE}", root, path)
            if len(root.names(LAUNCHES)) > _MANY:
                prune(root, home)
        finally:
            root.close()
    except (OSError, PatchkitError):
        if descriptor is not None:
            os.close(descriptor)
        return None
    descriptors.append(descriptor)
    return name


def mark(home: Home) -> list[int] | None:
    """Which state is published: not by clocks, and the same for every host that sees it."""
    try:
        status = os.lstat(f"{home.holder}/{STATE}")
    except OSError:
        return None
    return [status.st_ino, status.st_mtime_ns]


# -- who is there -----------------------------------------------------------------------


def notes(home: Home) -> list[Note]:
    """Every note that can be read, of the living and of the dead."""
    folder = f"{home.holder}/{LAUNCHES}"
    try:
        names = sorted(name for name in os.listdir(folder) if not name.endswith(_ASIDE))
    except OSError:
        return []
    found = []
    for name in names:
        path = f"{folder}/{name}"
        with suppress(OSError, PatchkitError, ValueError, KeyError, TypeError):
            value: dict[str, Any] = json.loads(read_own(path, most=MAX_NOTE) or b"")
            found.append(
                Note(
                    name,
                    int(value["pid"]),
                    str(value["host"]),
                    value["where"],
                    value["started"],
                    float(value["since"]),
                    value["mark"],
                    value["fingerprint"],
                    str(value["command"]),
                    _is_held(path),
                )
            )
    return found


def living(found: Sequence[Note]) -> dict[str, list[int]]:
    """The notes whose process tree is not over, by name, with the processes of this host that
    carry the name in their environment."""
    from .processes import carrying

    asked = [note.name for note in found if note.is_here]
    carriers = carrying(VARIABLE, asked) if asked else {}
    return {
        note.name: carriers.get(note.name, [])
        for note in found
        if note.held or note.name in carriers
    }


def prune(root: Root, home: Home) -> None:
    """Remove the notes of those that are gone."""
    found = notes(home)
    if all(note.held for note in found):
        return
    alive = living(found)
    for note in found:
        if note.name not in alive:
            root.unlink(f"{LAUNCHES}/{note.name}")


def _is_held(path: str) -> bool:
    descriptor = os.open(path, _LOOK | os.O_NOFOLLOW)
    try:
        return not try_flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


# -- who changes files ------------------------------------------------------------------


class Claim:
    """The environment with nobody launched from it, as long as it is changed."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._descriptors: list[int] = []
        self._taken = False
        #: Whether something runs, so that only a forced change came this far.
        self.in_use = False

    def take(self, own: Root, *, forced: bool) -> None:
        """Take it, at once or not at all: what was launched may run for weeks.

        ``own`` is the root that has ``.patchkit``.  Raises :class:`Locked` (``running``) where
        something runs, unless ``forced``.
        """
        if self._taken:
            return
        busy = False
        for path in (self._home.holder, None):
            try:
                descriptor = os.open(path, _LOOK) if path else own.open_to_lock(LAUNCH)
            except (OSError, PatchkitError):
                continue
            self._descriptors.append(descriptor)
            with suppress(OSError):  # without locks nobody can hold one
                busy = not try_flock(descriptor, fcntl.LOCK_EX) or busy
        found = notes(self._home)
        self.in_use = busy or (bool(found) and bool(living(found)))
        if self.in_use and not forced:
            raise refusal(self._home)
        if found:
            prune(own, self._home)
        self._taken = True

    def close(self) -> None:
        """Let others be launched again."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def refusal(home: Home) -> Locked:
    """The error that names who runs."""
    lines = [described(one) for one in running(home)]
    return Locked(
        f"{home.base} is in use: what was launched from it by patchkit run is still there",
        code="running",
        detail=tuple(lines) or ("a process that /proc does not tell",),
        hint="end it first; or change the files under it with --while-running, and restart it"
        " then (until then it may import files of both sets)",
        data={"running": running(home)},
    )


def running(home: Home) -> list[dict[str, Any]]:
    """Who was launched and is still there: by the notes, and where one could not be written by
    what the kernel says of the locks.  ``here``: its process ids mean something to this host;
    ``restart``: it was launched with another state."""
    from .processes import describe, lockers

    found = notes(home)
    alive = living(found)
    now = mark(home)
    out: list[dict[str, Any]] = [
        {
            "pid": note.pid,
            "host": note.host,
            "here": note.is_here,
            "since": note.since,
            "command": note.command,
            "fingerprint": note.fingerprint,
            "how": "launched",
            "restart": note.mark != now,
            "processes": sorted({note.pid, *alive[note.name]} if note.is_here else {note.pid}),
        }
        for note in found
        if note.name in alive
    ]
    known = {pid for one in out for pid in one["processes"] if one["here"]}
    changed = changed_at(home)
    for pid in sorted(lockers([home.holder, f"{home.holder}/{LAUNCH}"]) - known - {os.getpid()}):
        process = describe(pid)
        if process is not None:
            out.append(
                {
                    "pid": pid,
                    "host": host(),
                    "here": True,
                    "since": process.since,
                    "command": process.command,
                    "fingerprint": None,
                    "how": "launched",
                    "restart": process.since <= changed,
                    "processes": [pid],
                }
            )
    return out


def changed_at(home: Home) -> float:
    """When the applied set was last changed, in seconds of the clock of the file system.  Where
    nothing is applied, what was last put into the folder or taken out of it says so."""
    for path in (f"{home.holder}/{STATE}", home.holder):
        with suppress(OSError):
            return os.lstat(path).st_mtime
    return 0.0


def described(one: dict[str, Any]) -> str:
    """One of :func:`running` in a line."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["since"]))
    elsewhere = f" on {one['host']}" if one["host"] != host() or not one["here"] else ""
    count = len(one["processes"])
    more = f", {count} processes" if count > 1 else ""
    return f"process {one['pid']}{elsewhere} since {at}{more}: {one['command']}"
