"""Which process, on which host: what a note says so that others know whom it names.

Owns the questions to ``/proc``; must not decide what follows from an answer.
"""

from __future__ import annotations

import os
from typing import Any


def where() -> list[str] | None:
    """Within what a process id means one process: this start of this host, and its
    namespace of processes (of a container).  None where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return [file.read().strip(), os.readlink("/proc/self/ns/pid")]
    except OSError:
        return None


def started(pid: int) -> str | None:
    """When a process started, as the kernel counts it (proc(5)): ids are used again."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # Behind the name, which stands in brackets and may hold any byte.
            return file.read().rpartition(b")")[2].split()[19].decode("ascii")
    except (OSError, IndexError):
        return None


def me() -> dict[str, Any]:
    """The process that asks, so that every host knows which one is meant: its id, its host,
    this start of the host, and when it began there."""
    pid = os.getpid()
    return {"pid": pid, "host": host(), "where": where(), "started": started(pid)}


def host() -> str:
    """The name of this host, as its namespace has it."""
    return os.uname().nodename
