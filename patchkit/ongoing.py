"""The trial under way, as it is recorded beside the applied set.

Owns ``.patchkit/trial.json`` and what lies in ``.patchkit/trial/``: who tries what, and the set
that was applied before, with all that it is made of.  The process of the trial holds that file by
``flock(2)`` as long as it lives, and hands the descriptor to nobody; so a trial of which nobody
holds the file is dead, whoever asks, on whichever host.  Must not change the applied set.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from .errors import Locked, PatchkitError
from .fsio import Root, digest, try_flock
from .here import host, me
from .state import NAME, SCHEMA, TRIAL, TRIAL_SET, BundleEntry, Home, render

#: In the environment of what a trial runs: its id.
VARIABLE = "PATCHKIT_TRIAL"
#: Seconds that what a dead trial left has from SIGTERM to SIGKILL, that this may take to work, and
#: between two looks.
_GRACE, _UNKILLABLE, _LOOKS = 5.0, 5.0, 0.1
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Ongoing(NamedTuple):
    """A trial that has begun and is not over.  ``record`` is the path of its file in the ledger,
    ``bundles`` the set that was applied before it, in order; ``alive`` whether its process is."""

    id: str
    name: str
    record: str
    command: str
    pid: int
    host: str
    since: float
    bundles: Sequence[BundleEntry]
    alive: bool

    def described(self) -> str:
        """Who tries what, in a line."""
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        elsewhere = f" on {self.host}" if self.host != host() else ""
        return f"trial {self.name} of process {self.pid}{elsewhere} since {at}: {self.command}"

    def as_json(self) -> dict[str, Any]:
        """What ``status`` tells of it."""
        keys = ("id", "name", "record", "command", "pid", "host", "since", "alive")
        return {key: getattr(self, key) for key in keys}


def read(home: Home) -> Ongoing | None:
    """The trial of an environment, or None.  Needs no write permission."""
    path = f"{home.holder}/{TRIAL}"
    try:
        descriptor = os.open(path, _LOOK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            home.read_trial()  # says what is wrong with it
        raise
    try:
        alive = not try_flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)
    value = home.read_trial()
    if value is None:
        return None  # it ended at this moment
    return Ongoing(
        value["id"],
        value["name"],
        value["record"],
        value["command"],
        value["by"]["pid"],
        value["by"]["host"],
        float(value["since"]),
        value["bundles"],
        alive,
    )


def begin(
    own: Root,
    home: Home,
    *,
    identity: tuple[str, str],
    record: str,
    command: str,
    before: Sequence[BundleEntry],
    fingerprint: str | None,
    blobs: Mapping[str, bytes],
) -> int:
    """Record a trial, durably; a descriptor to keep open as long as it lives.

    The lock of the environment is held, and no trial is recorded.  ``identity`` is its id and
    its name; ``blobs`` has what ``before`` is made of, by SHA-256.
    """
    tidy(own)
    if blobs:
        own.mkdir(TRIAL_SET)
    for sha256, data in blobs.items():
        assert digest(data) == sha256
        own.create(f"{TRIAL_SET}/{sha256}", data, 0o644)
    if blobs:
        own.sync_folder(TRIAL_SET)
    identifier, name = identity
    value = {
        "schema": SCHEMA,
        "base": home.relative,
        "id": identifier,
        "name": name,
        "record": record,
        "command": command,
        "by": me(),
        "since": int(time.time()),
        "bundles": list(before),
        "fingerprint": fingerprint,
    }
    aside = f"{TRIAL}.new"
    descriptor = own.create_open(aside, render(value), synced=True)
    try:
        # It is nobody's dead trial for a moment: it is held before it has its name.
        try_flock(descriptor, fcntl.LOCK_EX)
        own.rename(aside, own, TRIAL)
        own.sync_folder(NAME)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def end(own: Root) -> None:
    """Forget the trial: the set that was applied before is applied again."""
    own.unlink(TRIAL)
    own.sync_folder(NAME)
    tidy(own)


def tidy(own: Root) -> None:
    """Remove what a trial that never began, or has ended, left."""
    for name in own.names(TRIAL_SET):
        own.unlink(f"{TRIAL_SET}/{name}")
    own.rmdir(TRIAL_SET)
    own.unlink(f"{TRIAL}.new")


def refusal(one: Ongoing) -> Locked:
    """The error for whoever would change what a living trial measures."""
    return Locked(
        f"the environment is held by {one.described()}",
        code="trial",
        hint="wait for it to end, or end it with Ctrl-C where it runs: it puts back what was"
        " applied before",
        data={"trial": one.as_json()},
    )


def end_left(identifier: str, check: Callable[[], None]) -> int:
    """End the processes of this host that a dead trial left running; how many there were.

    They are known by its id in their environment.  The kernel ended the command itself with the
    trial, but not the children of that.  What this process runs under is left alone, and so is
    what this user may not end: it holds the environment as what is launched does.  ``check``
    raises where this process is to end itself.
    """
    from .processes import above, carrying

    spared = {os.getpid(), *above(os.getpid())}
    seen: set[int] = set()
    began = time.monotonic()
    while time.monotonic() < began + _GRACE + _UNKILLABLE:
        left = set(carrying(VARIABLE, [identifier]).get(identifier, ())) - spared
        if not left:
            break
        late = time.monotonic() >= began + _GRACE
        for pid in left if late else left - seen:
            with suppress(ProcessLookupError):
                try:
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                except PermissionError:
                    spared.add(pid)
        seen |= left - spared
        check()
        time.sleep(_LOOKS)
    return len(seen)


def mark(one: Ongoing) -> str | None:
    """Say in the ledger that a trial died; what to remark where that cannot be."""
    from .trials.ledger import interrupt

    try:
        interrupt(one.record)
    except FileNotFoundError:
        return None  # it died before it had one, or somebody removed it
    except (OSError, PatchkitError) as error:
        why = error.message if isinstance(error, PatchkitError) else error.strerror
        return f"the record of the trial is as it was: {one.record}: {why}"
    return None
