"""The check list of the guard: what the module at interpreter start compares.

Owns the form of ``.patchkit/guard``, which is made of the state anew whenever that changes and
the guard is installed.  It is a short form of the state and no record of its own: a list that
is not of the published state is passed over by who reads it, so nothing has to keep the two in
step.  Must not decide whether the guard is installed.
"""

from __future__ import annotations

import os
from contextlib import suppress

from .errors import PatchkitError
from .fsio import Root
from .state import GUARD, STATE, Home, State, read_own

#: The module and the file that makes ``site`` import it, beside ``.patchkit``.
MODULE, PTH = "_patchkit_guard.py", "patchkit-guard.pth"
FORM = b"patchkit guard 1"
#: Between the fields of an entry, and between entries: no path can hold either.
FIELD, ENTRY = b"\0", b"\0\n\0"


def is_installed(own: Root) -> bool:
    """Whether the guard is beside ``.patchkit``."""
    return own.lstat(PTH) is not None


def refresh(own: Root, home: Home) -> bool:
    """Make the list that of the published state; whether the guard is installed.

    ``own`` is the root that has ``.patchkit`` (its lock is held).  A list that cannot be
    written stays as it was, which costs time at each start and nothing else.
    """
    with suppress(OSError, PatchkitError):
        if not is_installed(own):
            if own.lstat(GUARD) is not None:
                own.unlink(GUARD)
            return False
        state = home.read_state()
        if state is None:
            own.unlink(GUARD)
        else:
            own.replace(GUARD, render(home, state))
        return True
    return False


def render(home: Home, state: State) -> bytes:
    """The list: a head with the checksum of the state, and an entry for each distribution and
    each file."""
    head = (read_own(f"{home.holder}/{STATE}") or b"")[14:78]
    names = " ".join(entry["name"] for entry in state["bundles"])
    entries = [FIELD.join((FORM, head, os.fsencode(names)))]
    for dist in state["distributions"]:
        if dist["dist_info"] is not None:
            release = f"{dist['name']} {dist['version']}"
            entries.append(FIELD.join((b"D", release.encode(), os.fsencode(dist["dist_info"]))))
    for file in state["files"]:
        root = state["roots"][file["root"]]
        path = file["path"] if root == "." else f"{root}/{file['path']}"
        before, after = file["before"], file["after"]
        stamp = b"-"
        if after is not None:
            with suppress(OSError):
                status = os.lstat(os.path.join(home.base, path))
                numbers = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
                stamp = " ".join(map(str, numbers)).encode()
        entries.append(
            FIELD.join(
                (
                    b"-" if after is None else after["kind"][:1].encode(),
                    b"%o" % (0 if after is None else after["mode"]),
                    stamp,
                    b"-" if after is None else after["sha256"].encode(),
                    b"-" if before is None else before["sha256"].encode(),
                    os.fsencode(path),
                )
            )
        )
    return ENTRY.join(entries) + b"\n"
