"""A trial: hold the environment, apply, verify, run, put back, and keep what was seen.

Owns the order of these.  The trial is recorded beside the environment's record before the first
change and forgotten after the last one, so that whatever ends this process, the next command puts
back what was applied before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple, Protocol

from patchkit import ongoing
from patchkit.errors import Fault, Interrupted, PatchkitError, Refused
from patchkit.fsio import Root, open_log
from patchkit.launch.kernels import own_folders
from patchkit.launch.profile import placed
from patchkit.launches import VARIABLE as LAUNCH_VARIABLE
from patchkit.launches import join, write_note
from patchkit.processes import shown
from patchkit.queries import verify_in
from patchkit.recording import blobs
from patchkit.series import Chosen
from patchkit.session import Options, Report, Session, translate
from patchkit.signals import Held, held
from patchkit.state import State
from patchkit.verify import verify_recorded
from patchkit.workflow import begin_trial, end_trial, recover, switch

from . import private, running
from .figures import Figures, Wanted, before, figures
from .keeper import Keeper
from .ledger import LOGS, Ledger, is_full, new_id, now
from .record import BASELINE, CANDIDATE, GRACE, Given, Run, SetUse, Trial, as_json
from .sets import Asked, Tried, one_change, repository, several, tried
from .statistics import compare


class Screen(Protocol):
    """Where a person sees what goes on."""

    def echo(self, data: bytes) -> None:
        """What the command says."""

    def loading(self, at: tuple[float, float] | None) -> None:
        """How long a server has been loading, of how long at most; None: that is over."""

    def say(self, line: str) -> None:
        """A remark of patchkit's own."""


class Wishes(NamedTuple):
    """What the command line asks for.  ``baseline`` is None for a trial of one set, ``order``
    of the sets is made of ``repeat``; ``given`` are the variables of ``--env``."""

    name: str
    candidate: Asked
    command: Sequence[str]
    baseline: Asked | None = None
    only: bool = False
    confounded: bool = False
    measure: Sequence[str] | None = None
    append_args: bool = False
    repeat: int = 1
    given: Mapping[str, str] = {}
    keep: bool = False
    ready: running.Ready = running.Ready()
    grace: float = GRACE
    wanted: Wanted = Wanted()
    goal: str | None = None


class _Patient(Held):
    """The signals of what puts things back: it is not to be ended half way."""

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Noted, and nothing more."""

    def check(self) -> None:
        """Goes on."""


def order(repeat: int, *, both: bool) -> list[str]:
    """Which set each run is of: in turn, and the turns turned round each time (A B B A …), so
    that a drift of the machine (heat, a cache that fills) meets both alike."""
    if not both:
        return [CANDIDATE] * repeat
    turns = [(BASELINE, CANDIDATE), (CANDIDATE, BASELINE)]
    return [which for number in range(repeat) for which in turns[number % 2]]


#: Says of a trial's candidate that it is a dead end; None where it is none.
Warn = Callable[[Trial], "dict[str, Any] | None"]


def conduct(options: Options, wishes: Wishes, ledger: Ledger, screen: Screen, warn: Warn) -> Report:
    """The whole trial.  Raises what refuses it before its first run."""
    with held(options.signals) as signals:
        with signals.at_once():
            session = Session(options)
        session = _finished(session)
        with signals.at_once():
            _must_verify(session)
            seen = session.home.read_state()
            sets = {CANDIDATE: tried(session, wishes.candidate, wishes.given, only=wishes.only)}
            applied = [] if seen is None else [one["name"] for one in seen["bundles"]]
            confounded = several(
                [name for name in wishes.candidate.bundles if name not in applied],
                wishes.candidate.settings,
            )
            if wishes.baseline is not None:
                sets[BASELINE] = tried(session, wishes.baseline, wishes.given, only=wishes.only)
                confounded = one_change(
                    sets[BASELINE], sets[CANDIDATE], confounded=wishes.confounded
                )
            how = "append" if wishes.append_args else "place"
            commands = {
                name: placed(wishes.command, one.arguments, how, droppable=False)
                for name, one in sets.items()
            }
            trial = _planned(session, wishes, sets, confounded, applied)
            dead_end = warn(trial)
        course = _Course(session, signals, wishes, sets, commands, ledger, screen, trial, seen)
        report = course.run()
        report.data["dead_end"] = dead_end
        return report


def facts_of(session: Session) -> Mapping[str, str]:
    """The facts of this machine and environment that conditions name."""
    from patchkit.facts.gather import gather

    return gather(session.env, session.options.environ).flat()


def _finished(session: Session) -> Session:
    """The environment with nothing unfinished in it: what is applied before the trial is what
    the sets are made from."""
    one = ongoing.read(session.home)
    if one is not None and one.alive:
        raise ongoing.refusal(one)
    if one is None and not session.home.unfinished():
        return session
    report = recover(session.options)
    session = Session(session.options)
    session.notes += report.notes
    return session


def _must_verify(session: Session) -> None:
    """What is measured is to be what is recorded."""
    _, problems = verify_recorded(session.home, [], session.options.lock_timeout)
    for first in problems[:1]:
        raise Refused(
            f"the environment is not as it is recorded: {first['message']}",
            code="drift",
            file=first["file"],
            hint=first["hint"],
        )


def _planned(
    session: Session,
    wishes: Wishes,
    sets: Mapping[str, Tried],
    confounded: str | None,
    applied: Sequence[str],
) -> Trial:
    environ = session.options.environ
    return Trial(
        id=new_id(wishes.name),
        name=wishes.name,
        kind="run" if wishes.baseline is None else "ab",
        status="running",
        started=now(),
        goal=wishes.goal,
        sets={name: one.use(None) for name, one in sets.items()},
        repository=repository(list(sets.values())),
        command=private.command(wishes.command),
        measure=None if wishes.measure is None else private.command(wishes.measure),
        append_args=wishes.append_args,
        given=_given(session, wishes, applied),
        environ=private.environment({**environ, **wishes.given}, wishes.given),
        facts=facts_of(session),
        confounded=confounded,
    )


def _given(session: Session, wishes: Wishes, applied: Sequence[str]) -> Given:
    """What was asked for, without secrets."""
    known = _secrets(session, wishes)
    ready, texts, cwd = wishes.ready, wishes.wanted.texts, session.options.cwd

    def told(words: Sequence[str]) -> tuple[str, ...]:
        return tuple(private.text(word, known) for word in words)

    return Given(
        candidate=wishes.candidate.words(),
        baseline=() if wishes.baseline is None else wishes.baseline.words(),
        applied=tuple(applied),
        only=wishes.only,
        environ={key: private.clean(key, value) for key, value in wishes.given.items()},
        repeat=wishes.repeat,
        ready_url=None if ready.url is None else private.command((ready.url,))[0],
        ready_pattern=None if ready.pattern is None else told((ready.pattern.pattern,))[0],
        ready_timeout=ready.timeout,
        grace=wishes.grace,
        metric=told(texts.metric),
        metric_json=told(texts.metric_json),
        read=texts.read,
        cwd=os.path.abspath(cwd) if cwd else None,
    )


def _secrets(session: Session, wishes: Wishes) -> list[str]:
    """What no text of the record may have in it."""
    settings = dict(wishes.candidate.settings)
    if wishes.baseline is not None:
        settings.update(wishes.baseline.settings)
    variables = [session.options.environ, wishes.given, settings]
    found = [value for one in variables for value in private.secrets(one)]
    return [*found, *private.secrets({}, wishes.command, wishes.measure or ())]


class _Course:
    """A trial from its first change to its last."""

    def __init__(
        self,
        session: Session,
        signals: Held,
        wishes: Wishes,
        sets: Mapping[str, Tried],
        commands: Mapping[str, list[str]],
        ledger: Ledger,
        screen: Screen,
        trial: Trial,
        seen: State | None,
    ) -> None:
        self._seen = seen
        self._session = session
        self._signals = signals
        self._wishes = wishes
        self._sets = sets
        self._commands = commands
        self._ledger = ledger
        self._screen = screen
        self._trial = trial
        self._before: list[Chosen] = []
        self._fingerprint: str | None = None
        self._secrets = _secrets(session, wishes)
        self._exit = 0
        self._ended_by: int | None = None
        self._notes: list[str] = []

    def run(self) -> Report:
        """Everything; what was applied before is applied again, whatever is raised."""
        for one in self._sets.values():
            self._notes += [note for note in one.notes if note not in self._notes]
        descriptor = begin_trial(self._session, self._signals, self._begin)
        try:
            try:
                self._ledger.reserve(self._trial.id, len(self._sets) * self._wishes.repeat)
                self._ledger.write(self._trial)
            except BaseException:
                self._ledger.release(self._trial.id)
                end_trial(self._session, _Patient())
                raise
            keeper = Keeper(self._trial.id)
            try:
                self._runs()
            except BaseException as error:
                status = "interrupted" if isinstance(error, Interrupted) else "failed"
                self._put_back(status)
                raise
            finally:
                keeper.dismiss()
            self._put_back(self._status())
        finally:
            os.close(descriptor)
        return self._report()

    def _begin(self, own: Root, state: State | None, before: list[Chosen]) -> int:
        if state != self._seen:
            raise Refused(
                "another patchkit changed the applied set at this moment",
                code="changed-meanwhile",
                hint="run the same command again",
            )
        self._before = before
        self._fingerprint = None if state is None else state["fingerprint"]
        return ongoing.begin(
            own,
            self._session.home,
            identity=(self._trial.id, self._trial.name),
            record=os.path.abspath(self._ledger.path(self._trial.id)),
            command=shown(self._trial.command),
            before=[] if state is None else state["bundles"],
            fingerprint=self._fingerprint,
            blobs=blobs(before),
        )

    # -- the runs -----------------------------------------------------------------------

    def _runs(self) -> None:
        names = order(self._wishes.repeat, both=BASELINE in self._sets)
        current = ""
        for number, name in enumerate(names, start=1):
            if name != current:
                self._apply(name)
                current = name
            if len(names) > 1:
                self._screen.say(f"run {number} of {len(names)}: {name}")
            run, problem = self._once(name, number)
            self._trial = self._trial._replace(runs=(*self._trial.runs, run))
            try:
                self._ledger.write(self._trial)
            except OSError as error:  # a full disk must not end what is measured
                if not is_full(error):
                    raise
            if problem is not None:
                self._notes.append(f"run {number} ({name}): {problem}")
            if self._exit or self._ended_by is not None:
                return

    def _apply(self, name: str) -> None:
        """One transaction to the set, and verified."""
        one = self._sets[name]
        report = switch(self._session, self._signals, one.chosen, self._trial.id)
        self._notes += [note for note in report.notes if note not in self._notes]
        with self._signals.at_once():
            names = [entry["name"] for entry in one.entries]
            verified, state = verify_in(self._session, "trial run", names)
        if verified.exit_code:
            first = verified.data["problems"][0]
            raise Refused(
                f"the set does not verify: {first['message']}",
                code="drift",
                file=first["file"],
                hint=first["hint"],
            )
        use: SetUse = one.use(None if state is None else state["fingerprint"])
        self._trial = self._trial._replace(sets={**self._trial.sets, name: use})

    def _once(self, name: str, number: int) -> tuple[Run, str | None]:
        """One run of the command, and what it said; what is wrong with that."""
        one, wishes, session = self._sets[name], self._wishes, self._session
        options = session.options
        words = self._commands[name]
        state = session.home.read_state()
        variables = {**options.environ, **one.variables}
        kernels = own_folders(session.home, state, variables)
        joined = join(session.home, options.lock_timeout)
        path = os.path.join(LOGS, self._trial.id, f"{number}-{name}.log")
        marks = before(wishes.wanted, options.cwd)
        started = time.time()
        try:
            variables.update(kernels.variables)
            variables[ongoing.VARIABLE] = self._trial.id
            fingerprint = None if state is None else state["fingerprint"]
            note = write_note(session.home, fingerprint, shown(words), joined.descriptors)
            if note is not None:
                variables[LAUNCH_VARIABLE] = note
            job = running.Job(
                words,
                wishes.measure,
                variables,
                options.cwd,
                wishes.ready,
                wishes.grace,
                joined.descriptors,
            )
            with open_log(os.path.join(self._ledger.folder, path)) as log:
                outcome = running.run(job, log, self._screen.echo, self._screen.loading)
        finally:
            joined.leave()
        self._ended_by = outcome.signal
        if outcome.lost is not None:
            self._notes.append(f"the log of run {number} is not whole: {outcome.lost}")
        found = Figures({}, {}, [])
        if outcome.signal is None and outcome.problem is None and outcome.exit == 0:
            found = figures(wishes.wanted, outcome.output, options.cwd, marks)
        problem = outcome.problem or ("; ".join(found.problems) or None)
        self._exit = outcome.exit or (1 if problem else 0)
        self._trial = self._trial._replace(metrics={**self._trial.metrics, **found.metrics})
        run = Run(
            name,
            now(started),
            now(),
            outcome.exit,
            round(outcome.seconds, 3),
            None if outcome.ready_seconds is None else round(outcome.ready_seconds, 3),
            outcome.peak_memory_bytes,
            found.values,
            path,
            tuple(private.output(line, self._secrets) for line in outcome.tail),
        )
        return run, problem

    def _status(self) -> str:
        if self._ended_by is not None:
            return "interrupted"
        return "failed" if self._exit else "finished"

    # -- the end ------------------------------------------------------------------------

    def _put_back(self, status: str) -> None:
        """The set that was applied before, or with ``--keep`` the one that was tried; the record
        is written last but one, and the trial forgotten last."""
        options = self._session.options
        patient, options.signals = options.signals, _Patient()
        kept = self._wishes.keep and status != "interrupted" and bool(self._trial.runs)
        chosen = self._sets[CANDIDATE].chosen if kept else self._before
        try:
            report = switch(self._session, options.signals, chosen, self._trial.id, last=True)
            after, problems = verify_recorded(self._session.home, [], options.lock_timeout)
            fingerprint = None if after is None else after["fingerprint"]
            if not kept and (problems or fingerprint != self._fingerprint):
                why = problems[0]["message"] if problems else "its fingerprint is another one"
                self._notes.append(f"the environment is not as before the trial: {why}")
                self._exit = self._exit or 1
            self._notes += [note for note in report.notes if note not in self._notes]
            try:
                self._finish(status)
            except OSError as error:
                # What is not recorded is lost; what is applied must not be left as it is for it.
                self._notes.append(f"the record could not be written: {translate(error).message}")
                self._exit = self._exit or Fault.exit_code
            self._ledger.release(self._trial.id)
            end_trial(self._session, options.signals)
        except PatchkitError as error:
            error.detail = (
                *error.detail,
                f"the trial is not finished: what was applied before is put back by {_LATER}",
            )
            raise
        finally:
            options.signals = patient

    def _finish(self, status: str) -> None:
        trial = self._trial._replace(status=status, ended=now())
        if status == "finished" and BASELINE in self._sets:
            trial = trial._replace(comparison=compare(trial))
        self._trial = trial
        self._ledger.write(trial)

    def _report(self) -> Report:
        exit_code = self._exit if self._ended_by is None else 128 + self._ended_by
        report = Report(
            "trial ab" if BASELINE in self._sets else "trial run",
            {
                "environment": self._session.described(),
                "trial": as_json(self._trial),
                "record": self._ledger.path(self._trial.id),
            },
            exit_code,
            changed=True,
        )
        if exit_code:
            report.data["error"] = self._error()
        report.notes = list(dict.fromkeys([*self._session.notes, *self._notes]))
        with suppress(IndexError):
            last = self._trial.runs[-1]
            if last.log is not None and exit_code:
                report.notes.append(
                    f"the log of the last run: {os.path.join(self._ledger.folder, last.log)}"
                )
        return report

    def _error(self) -> dict[str, Any]:
        """Why the exit code is not 0: the command's may be any, also one of patchkit's own."""
        runs = self._trial.runs
        code, why = "trial-failed", "; ".join(self._notes)
        if self._ended_by is not None:
            code, why = "interrupted", f"signal {self._ended_by} ended the trial"
        elif runs and runs[-1].exit:
            code, why = "command-failed", f"run {len(runs)} ended with exit code {runs[-1].exit}"
        hint = f"patchkit trial show {self._trial.id}"
        return {"code": code, "message": why, "hint": hint}


_LATER = "the next apply, revert or recover"
