"""Processes of this host, as ``/proc`` tells this user about them.

Owns what is asked of ``/proc``: who holds a lock, who carries a variable, who runs from an
environment.  Bounded in time and bytes; what this user may not see is passed over.  Only looks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: The most that is read of one file of /proc (the mappings of a server take one MiB), and of a
#: command line that is shown.
_MOST = 16 * 1024 * 1024
_SHOWN = 160
#: Seconds that a look at all processes may take.
_LONGEST = 3.0


class Process(NamedTuple):
    """One process: ``since`` in seconds of the wall clock; ``how`` it is known to run from an
    environment (``command``: its interpreter is of it; ``maps``: it has mapped a library of it;
    ``path``: a variable of it leads there)."""

    pid: int
    parent: int
    since: float
    command: str
    how: str = ""


def pids() -> list[int]:
    """The processes that can be seen."""
    try:
        return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
    except OSError:
        return []


def describe(pid: int, how: str = "") -> Process | None:
    """What a process is; None where it is gone."""
    data = _read(pid, "stat", 4096)
    if data is None:
        return None
    fields = data.rpartition(b")")[2].split()
    try:
        parent, ticks = int(fields[1]), int(fields[19])
    except (IndexError, ValueError):
        return None
    running = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    words = _words(_read(pid, "cmdline", _SHOWN * 8) or b"")
    return Process(pid, parent, time.time() - running, shown(words), how)


def above(pid: int) -> list[int]:
    """The parent of a process, the parent of that, and so on."""
    found: list[int] = []
    process = describe(pid)
    while process is not None and process.parent > 0:
        found.append(process.parent)
        process = describe(process.parent)
    return found


def shown(words: Sequence[str]) -> str:
    """A command line in one line that a person reads."""
    import shlex

    text = shlex.join(words) or "(its command line is empty)"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"


def lockers(paths: Sequence[str]) -> set[int]:
    """The living processes that took a shared ``flock(2)`` on one of these and have not let go, or
    whose children have not.  Of a process that is gone, those that have the file open."""
    wanted = set()
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        device = status.st_dev
        wanted.add(f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}")
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            rows = [line.split() for line in file]
    except OSError:
        return set()
    # 12: FLOCK ADVISORY READ 4711 fe:00:131 0 EOF; "->" marks one that waits.
    took = {
        int(row[4])
        for row in rows
        if row[1:2] == ["FLOCK"] and row[3] == "READ" and row[5] in wanted and row[4].isdecimal()
    }
    alive = {pid for pid in took if os.path.exists(f"/proc/{pid}")}
    return alive if alive == took else alive | _having_open(paths)


def _having_open(paths: Sequence[str]) -> set[int]:
    names = {os.path.realpath(path) for path in paths}
    found = set()
    for pid in _in_time(pids()):
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        if any(_link(pid, f"fd/{number}") in names for number in numbers):
            found.add(pid)
    return found


def carrying(variable: str, values: Sequence[str]) -> dict[str, list[int]]:
    """The processes that were started with a variable of one of these values, by value."""
    wanted = {f"{variable}={value}".encode(): value for value in values}
    found: dict[str, list[int]] = {}
    for pid in _in_time(pids()):
        for pair in (_read(pid, "environ") or b"").split(b"\0"):
            if pair in wanted:
                found.setdefault(wanted[pair], []).append(pid)
    return found


def using(sites: Sequence[str], prefix: str | None) -> tuple[list[Process], bool]:
    """The processes that run from an environment, by its site directories and the folder that
    has its ``bin``; and whether all could be looked at in time."""
    found = []
    mine = os.getpid()
    all_pids = pids()
    last = None
    for pid in _in_time(all_pids):
        last = pid
        if pid == mine:
            continue
        words = _words(_read(pid, "cmdline", 65536) or b"")
        if not words or _is_patchkit(words):
            continue
        how = _how(pid, words, sites, prefix)
        if how is not None and _same_place(pid, sites[0]):
            process = describe(pid, how)
            if process is not None:
                found.append(process)
    return found, not all_pids or last == all_pids[-1]


def _how(pid: int, words: Sequence[str], sites: Sequence[str], prefix: str | None) -> str | None:
    name = os.path.basename(words[0])
    if prefix is not None and os.path.dirname(words[0]) == f"{prefix}/bin" and _is_python(name):
        return "command"
    maps = _read(pid, "maps")
    if maps is not None and any(os.fsencode(f" {site}/") in maps for site in sites):
        return "maps"
    if not _is_python(os.path.basename(_link(pid, "exe") or name)):
        return None
    variables = dict(
        pair.partition(b"=")[::2] for pair in (_read(pid, "environ") or b"").split(b"\0")
    )
    if prefix is not None and _is_python(name):
        places = [_link(pid, "cwd") or "/"] if "/" in words[0] else []
        if not places:
            places = os.fsdecode(variables.get(b"PATH", b"")).split(":")
        for place in places:
            path = os.path.normpath(os.path.join(place, words[0]))
            if os.path.lexists(path):
                if os.path.dirname(path) == f"{prefix}/bin":
                    return "command"
                break
    added = os.fsdecode(variables.get(b"PYTHONPATH", b"")).split(":")
    return "path" if any(os.path.normpath(part) in sites for part in added if part) else None


def _is_python(name: str) -> bool:
    return name.startswith(("python", "pypy"))


def _is_patchkit(words: Sequence[str]) -> bool:
    """One that looks at the environment, as this one, or checks it before a launch."""
    return list(words[1:3]) == ["-m", "patchkit"] or any(
        os.path.basename(word) == "patchkit" for word in words[:2]
    )


def _same_place(pid: int, site: str) -> bool:
    """Whether a path means the same folder to a process: it may be in another container.
    Where this user may not ask, it is taken to be so."""
    try:
        mine, its = os.stat(site), os.stat(f"/proc/{pid}/root{os.path.realpath(site)}")
    except PermissionError:
        return True
    except OSError:
        return False
    return (mine.st_dev, mine.st_ino) == (its.st_dev, its.st_ino)


def _in_time(found: Sequence[int]) -> Iterator[int]:
    end = time.monotonic() + _LONGEST
    for pid in found:
        if time.monotonic() > end:
            return
        yield pid


def _read(pid: int, name: str, most: int = _MOST) -> bytes | None:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(most)
    except OSError:
        return None


def _link(pid: int, name: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return None


def _words(data: bytes) -> list[str]:
    return [os.fsdecode(word) for word in data.rstrip(b"\0").split(b"\0")] if data else []
