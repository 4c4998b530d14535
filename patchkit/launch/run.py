"""``patchkit run``: verify, hold, export, and become the command.

Owns the order of these.  On the path of every launch, so it imports nothing heavy where all is
well; the process that was started is the one that becomes the command.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from patchkit import ongoing
from patchkit.errors import Locked, PatchkitError, UsageError
from patchkit.launches import VARIABLE, Joined, join, write_note
from patchkit.lock import holder, is_held
from patchkit.processes import shown
from patchkit.queries import verify_in
from patchkit.session import Options, Report, Session
from patchkit.state import State

from .kernels import own_folders
from .profile import merged, pairs, placed

_POLL = 0.05


class Wishes(NamedTuple):
    """What the command line asks for.  ``arguments`` is ``place``, ``append`` or ``drop``,
    ``caches`` ``own``, ``forced`` or ``user``."""

    bundles: tuple[str, ...] = ()
    ensure: bool = False
    arguments: str = "place"
    caches: str = "own"
    given: tuple[str, ...] = ()
    dry_run: bool = False


class Ready(NamedTuple):
    """A launch that may begin, or a report that says why not (its exit code is not 0).

    ``variables`` are those to set.  ``joined`` has the descriptors to hand on."""

    report: Report
    command: Sequence[str] = ()
    variables: Mapping[str, str] = MappingProxyType({})
    joined: Joined = Joined([], None)


def prepare(options: Options, command: Sequence[str], wishes: Wishes) -> Ready:
    """Everything but the last step.  Raises what refuses; nothing is held then."""
    if not command:
        raise UsageError("there is no command to run", hint="patchkit run -- COMMAND …")
    given = pairs(wishes.given, "run")
    session, report, state, joined = _verified(options, wishes)
    if report.exit_code:
        return Ready(report)
    try:
        if wishes.ensure and not wishes.bundles and state is None:
            raise UsageError(
                "--ensure has nothing to apply: no bundle is named, and none is applied",
                hint="name what the launch relies on: --bundle NAME",
            )
        notes = report.notes
        profiles = [] if state is None else [(e["name"], e["profile"]) for e in state["bundles"]]
        profiles += _not_needed(session, state, [one["name"] for one in report.data["upstream"]])
        profile = merged(profiles, options.environ, given)
        words = placed(command, profile.arguments, wishes.arguments)
        kernels = own_folders(
            session.home, state, {**options.environ, **profile.variables}, wishes.caches
        )
        notes += [*profile.notes, *kernels.notes]
        if joined.why is not None:
            notes.append(
                f"{session.home.holder} cannot be locked ({joined.why}): apply and revert"
                " will not know of this launch"
            )
        variables = {**kernels.variables, **profile.variables}
        fingerprint = None if state is None else state["fingerprint"]
        if fingerprint is not None:
            variables["PATCHKIT_FINGERPRINT"] = fingerprint
        if not wishes.dry_run:
            name = write_note(session.home, fingerprint, shown(words), joined.descriptors)
            if name is not None:
                variables[VARIABLE] = name
        report.data.update(command_line=words, variables=variables)
    except PatchkitError as error:
        joined.leave()
        error.detail = (*error.detail, *report.notes)  # what was done before it
        raise
    except BaseException:
        joined.leave()
        raise
    return Ready(report, words, variables, joined)


def start(ready: Ready, environ: Mapping[str, str]) -> None:
    """Become the command.  Raises what the system says of it, with the exit codes of a shell:
    127 where there is no such command, 126 where it cannot be run."""
    for descriptor in ready.joined.descriptors:
        os.set_inheritable(descriptor, True)
    # Python ignores them for itself; what it starts must not.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    variables = {**environ, **ready.variables}
    if "LC_CTYPE" in variables and not _was_given("LC_CTYPE"):
        del variables["LC_CTYPE"]  # set by Python for itself in a C locale (PEP 538)
    try:
        os.execvpe(ready.command[0], list(ready.command), variables)
    except OSError as error:
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        failure = PatchkitError(
            f"{ready.command[0]} cannot be run: {error.strerror}",
            code="no-command" if missing else "not-executable",
            hint="check the command behind --",
        )
        failure.exit_code = 127 if missing else 126
        raise failure from None


def _was_given(name: str) -> bool:
    """Whether this process was started with a variable."""
    try:
        with open("/proc/self/environ", "rb") as file:
            return any(one.startswith(f"{name}=".encode()) for one in file.read().split(b"\0"))
    except OSError:
        return True


def _verified(options: Options, wishes: Wishes) -> tuple[Session, Report, State | None, Joined]:
    """Verified and held, with no change in between; held is nothing where it does not verify.

    It is verified first and held then, so that who holds it is launched at once: a change is
    refused by what runs, and not by what only looks.
    """
    deadline = time.monotonic() + options.lock_timeout
    notes: list[str] = []
    ensured = not wishes.ensure
    while True:
        session = Session(options)
        trial = ongoing.read(session.home)
        own = options.environ.get(ongoing.VARIABLE)
        if trial is not None and trial.alive and trial.id != own and not wishes.dry_run:
            raise ongoing.refusal(trial)  # it would disturb what is measured, and hold it up
        mark = session.home.mark()
        report, state = verify_in(session, "run", wishes.bundles)
        if report.exit_code and not ensured:
            applied = _apply(session, wishes.bundles or _names(state), deadline)
            if applied is not None:
                notes += applied
                ensured = True
            continue
        report.notes[:0] = notes
        if report.exit_code or wishes.dry_run:
            return session, report, state, Joined([], None)
        joined = join(session.home, max(0.0, deadline - time.monotonic()))
        if session.home.mark() == mark:
            return session, report, state, joined
        joined.leave()
        if time.monotonic() >= deadline:
            raise Locked(
                "the environment was changed again and again meanwhile",
                hint="run the same command again, or give it longer with --lock-timeout SECONDS",
            )


def _names(state: State | None) -> tuple[str, ...]:
    return () if state is None else tuple(entry["name"] for entry in state["bundles"])


def _apply(session: Session, names: Sequence[str], deadline: float) -> list[str] | None:
    """Apply what is missing, or was taken away; what to say of it.

    Of many that are launched at once, on many hosts, one applies.  The others do not queue for
    the lock to find nothing to do: they wait until it is free and are to verify again (None).
    """
    from patchkit.workflow import apply, recover

    options = session.options
    while is_held(session.home):
        if time.monotonic() >= deadline:
            raise Locked(f"the environment is held by {holder(session.home)}")
        time.sleep(_POLL)
        if not is_held(session.home):
            return None
    patience, options.lock_timeout = options.lock_timeout, 0.0
    try:
        if names:
            report = apply(options, names)
        else:
            report = recover(options)
            return [*report.notes, "recovered first"] if report.data["recovered"] else report.notes
    except Locked as error:
        if error.code != "locked" or time.monotonic() >= deadline:
            raise
        return None
    finally:
        options.lock_timeout = patience
    count = len(report.data["files"])
    said = f"applied first: {', '.join(names)} ({count} file{'s' * (count != 1)} changed)"
    return [*report.notes, said] if report.changed else report.notes


def _not_needed(
    session: Session, state: State | None, names: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """The profiles of bundles that are no part of the set, since the release has their change
    already: the launch is to have their settings all the same."""
    if not names:
        return []
    from patchkit.fitting import Pristine, choose
    from patchkit.recording import bundle_entries

    with Pristine(session.env, session.home, state) as view:
        chosen = [choose(view, session.folder, name) for name in names]
    return [(one["name"], one["profile"]) for one in bundle_entries(session.env, chosen)]


def lines(data: dict[str, Any]) -> list[str]:
    """What a dry run shows: as a shell would be told."""
    import shlex

    pairs = sorted(data["variables"].items())
    return [
        *(f"{key}={shlex.quote(value)} \\" for key, value in pairs),
        shlex.join(data["command_line"]),
    ]
