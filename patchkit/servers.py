"""Which servers run from an environment, and whether each one is from before the last change.

Owns the one list that ``status`` shows: of what was launched by ``run`` (its notes and locks
say so exactly), and of other processes that ``/proc`` shows to use the environment.  Only looks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from .here import host
from .launches import changed_at, running
from .processes import Process, using
from .session import Session


def servers(session: Session) -> tuple[list[dict[str, Any]], bool]:
    """What runs; and whether every process could be looked at.

    A process whose parent is in the list counts with that.  ``restart`` is true where any of
    them was started before the last change: it may have imported what has changed since.
    """
    home, env = session.home, session.env
    found = running(home)
    known = {pid for one in found for pid in one["processes"] if one["here"]}
    prefix = None
    if env.python is not None:
        prefix = os.path.dirname(os.path.dirname(env.python))
    sites = [os.path.normpath(path) for path in dict.fromkeys((home.base, *env.search))]
    processes, complete = using(sites, prefix if _is_own(prefix) else None)
    by_pid = {one.pid: one for one in processes}
    trees: dict[int, list[Process]] = {}
    for process in processes:
        top = _top(process, by_pid, known)
        if top in known:
            owner = next(one for one in found if one["here"] and top in one["processes"])
            owner["processes"] = sorted({*owner["processes"], process.pid})
        else:
            trees.setdefault(top, []).append(process)
    changed = changed_at(home)
    for top, members in sorted(trees.items()):
        first = by_pid[top]
        found.append(
            {
                "pid": top,
                "host": host(),
                "here": True,
                "since": first.since,
                "command": first.command,
                "fingerprint": None,
                "how": first.how,
                "restart": _before(members, changed),
                "processes": sorted(one.pid for one in members),
            }
        )
    return found, complete


def _top(process: Process, by_pid: dict[int, Process], known: set[int]) -> int:
    """The uppermost process above one that is in the list without a gap."""
    while process.pid not in known and process.parent in by_pid and process.parent != process.pid:
        process = by_pid[process.parent]
    return process.parent if process.parent in known else process.pid


def _before(members: Iterable[Process], changed: float) -> bool:
    return any(one.since <= changed for one in members)


def _is_own(prefix: str | None) -> bool:
    """Whether an interpreter below a prefix can only mean this environment."""
    return prefix is not None and any(
        os.path.lexists(os.path.join(prefix, name)) for name in ("pyvenv.cfg", "conda-meta")
    )
