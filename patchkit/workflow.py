"""apply, revert and recover: the same three steps with another bundle set.

Owns the order of things: choose, compute, compare, commit.  Values in, a :class:`Report`
out; it prints nothing and asks nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from . import bundles as source
from . import ongoing
from .distributions import Distribution, tree_distribution
from .errors import PatchkitError, Refused, UsageError
from .fitting import Loaded, Pristine, choose
from .fsio import Root
from .guarding import refresh
from .journal import commit, release_reserve
from .journal import recover as recover_journal
from .launches import Claim, running
from .layers import origin
from .lock import hold, steady, take_sources
from .manifest import split_requirement
from .model import Bundle
from .planning import NOTHING, Edited, Planned, compute
from .roots import Roots, Take
from .series import Chosen, Way, from_record, root_name
from .session import Options, Report, Session, locate, translate
from .signals import Held, held
from .staging import preflight
from .state import TRIAL_SET, BundleEntry, Home, State

T = TypeVar("T")
Wanted = Callable[["State | None"], "list[Chosen]"]


# -- apply ------------------------------------------------------------------------------


def apply(
    options: Options,
    names: Sequence[str],
    *,
    dry_run: bool = False,
    way: Way | None = None,
) -> Report:
    """Add bundles (or loose patch files, ``way`` says how) to the applied set.

    A bundle that has nothing to do here (all of it is upstream, or what it would change is
    not there) is no part of the set, and nothing is written for it.
    """
    with held(options.signals) as signals:
        with signals.at_once():
            session = Session(options)
            choice = _Choice(session, names, way or Way())
            nothing = not session.home.exists() and not choice.wanted(None)
        if nothing:
            report = _report(session, "apply", None, None)
        else:
            asked = _recorded_names(names)
            report = _change(session, signals, "apply", choice.wanted, dry_run=dry_run, asked=asked)
    report.data["upstream"] = [
        {"name": name, "reason": reason} for name, reason in choice.without.items()
    ]
    return report


def sync(options: Options, names: Sequence[str], *, dry_run: bool = False) -> Report:
    """Make the applied set exactly these bundles (and what they require), in one transaction:
    what is missing is applied, what is not named is taken out, what a package manager put back
    is patched again."""
    with held(options.signals) as signals:
        with signals.at_once():
            session = Session(options)
            choice = _Choice(session, names, Way(), only=True)
            nothing = not session.home.exists() and not choice.wanted(None)
        if nothing:
            report = _report(session, "sync", None, None)
        else:
            # Files of those that go may have been reinstalled as well: then they are as wanted.
            asked = [*_recorded_names(names), *sorted(_applied(session.home))]
            report = _change(session, signals, "sync", choice.wanted, dry_run=dry_run, asked=asked)
    report.data["upstream"] = [
        {"name": name, "reason": reason} for name, reason in choice.without.items()
    ]
    return report


def plan_apply(options: Options, names: Sequence[str], then: Callable[[Session, Planned], T]) -> T:
    """What :func:`apply` would do, computed and checked, nothing written: what ``then``
    makes of it, in the same unchanged environment."""
    session = Session(options)
    choice = _Choice(session, names, Way())
    asked = _recorded_names(names)

    def look() -> T:
        state = session.home.read_state()
        return then(session, compute_set(session, state, choice.wanted(state), asked))

    return steadily(session, look)


class _Choice:
    """The bundles asked for, chosen for the environment as it is recorded.

    They are chosen before the lock is taken, so that what cannot be is refused without a
    write, and again where the record changed meanwhile, or a change was under way.
    ``without`` maps the ones that have nothing to do to why.  With ``only`` they are the
    whole set, else they are added to what is applied.
    """

    def __init__(
        self, session: Session, names: Sequence[str], way: Way, *, only: bool = False
    ) -> None:
        _settle_tree(session)
        self._only = only
        self._session = session
        self._loaded: list[Loaded] = []
        self._not_offered: list[Refused] = []
        for name in names:
            try:
                self._loaded.append(_load_named(session, name, way))
            except Refused as error:
                if error.code != "unknown-bundle" or error.bundle not in _applied(session.home):
                    raise
                self._not_offered.append(error)
        settle(session, (d for item in self._loaded for d in item.distributions(session.env)))
        self.without: dict[str, str] = {}
        self._notes: tuple[str, ...] = ()
        self._chosen: list[Chosen] = []
        self._state: State | None = None
        self._is_chosen = False
        mark = session.home.mark()
        if not session.home.is_unfinished(mark):
            try:
                self._choose(session.home.read_state())
            except (OSError, PatchkitError):
                if session.home.mark() == mark:
                    raise
            # What was seen of a change under way does not count.
            self._is_chosen = session.home.mark() == mark

    def _choose(self, state: State | None) -> None:
        session = self._session
        self.without.clear()
        applied = {} if state is None else {entry["name"]: entry for entry in state["bundles"]}
        asked = [item.bundle.name for item in self._loaded]
        asked += [str(error.bundle) for error in self._not_offered]
        asked += applied if self._only else ()
        with Pristine(session.env, session.home, state, asked) as view:
            chosen = [item.choose(view) for item in self._loaded]
            for error in self._not_offered:
                # Nobody offers it any more; where it is applied, its record has all of it.
                if state is None or error.bundle not in applied:
                    raise error
                entry = applied[error.bundle]
                chosen.append(from_record(session.env, session.home, state["bundles"], entry))
            kept = None if self._only else state
            wanted = add_to_set(session, view, kept, chosen, self.without)
        self._chosen = [_with_origin(item) for item in wanted]
        self._notes = tuple(note for item in chosen for note in item.notes)
        self._state, self._is_chosen = state, True

    def wanted(self, state: State | None) -> list[Chosen]:
        """The whole set that is wanted then."""
        if not self._is_chosen or state != self._state:
            self._choose(state)
        applied = {} if state is None else {entry["name"]: entry for entry in state["bundles"]}
        for item in self._loaded:
            entry = applied.get(item.bundle.name)
            if entry and entry["loose"] and _digests(entry) != [item.bundle.sha256]:
                self._session.notes.append(
                    f"{entry['name']} was applied with other bytes; these take their place"
                )
        self._session.notes += self._notes
        return self._chosen


def _applied(home: Home) -> set[str]:
    """What is applied at the moment; it may be other things once the lock is held."""
    state = home.read_state()
    return set() if state is None else {entry["name"] for entry in state["bundles"]}


def _with_origin(item: Chosen) -> Chosen:
    """A bundle that was read just now, with where it comes from; git is asked here alone, and
    not by what only looks at every bundle on offer."""
    if item.folder is None:
        return item
    found = origin(item.folder, item.bundle.name)
    return item._replace(origin=None if found is None else {**found})


def _digests(entry: BundleEntry) -> list[str]:
    return [sha256 for variant in entry["variants"] for _, sha256, _ in variant["patches"]]


def _load_named(session: Session, name: str, way: Way) -> Loaded:
    if source.is_loose(name):
        return Loaded.loose(session.env, name, source.read_loose(name, session.options.cwd), way)
    if way != Way():
        raise UsageError(
            "--strip, --reverse and --eol go with a loose patch file",
            hint=f"for a bundle, write strip in manifests/{name}.toml",
        )
    return Loaded.named(session.folder, name)


def _settle_tree(session: Session) -> None:
    """A root of which git tracks nothing is a plain tree, though it lies in a checkout."""
    if not session.env.is_root:
        return
    tree = tree_distribution(session.env)
    if tree.work_tree is None:
        return
    from .gitsource import tracked_paths

    inside = os.path.relpath(tree.root, os.path.realpath(tree.work_tree))
    if not tracked_paths(tree.work_tree, "" if inside == "." else inside):
        session.env.is_plain = True
        session.home = Home(tree.root, tree.root)


def settle(session: Session, distributions: Iterable[Distribution]) -> None:
    """Where nothing is recorded yet, the record goes beside the first distribution."""
    if session.home.exists() or session.env.is_root:
        return
    for dist in distributions:
        if dist.dist_info is not None:
            folder = os.path.dirname(dist.dist_info)
            session.home = Home(folder, folder)
            return


def add_to_set(
    session: Session,
    view: Pristine,
    state: State | None,
    asked: list[Chosen],
    without: dict[str, str],
) -> list[Chosen]:
    """The applied set with the asked bundles in it: one that is there keeps its place,
    a new one goes last, what it requires before it.  One that has nothing to do here is no
    part of it; ``without`` gets its name and why."""
    env, home = session.env, session.home
    applied = {} if state is None else {entry["name"]: entry for entry in state["bundles"]}
    by_name = {item.bundle.name: item for item in asked}

    def load(name: str) -> Bundle:
        if name not in by_name:
            if name in applied:
                try:
                    assert state is not None
                    by_name[name] = from_record(env, home, state["bundles"], applied[name])
                except Refused as error:
                    if error.code != "release-changed":
                        raise
                    by_name[name] = choose(view, session.folder, name)
            else:
                by_name[name] = choose(view, session.folder, name)
        return by_name[name].bundle

    order = source.resolve_order([*applied, *(item.bundle.name for item in asked)], load)
    for bundle in order:
        reason = by_name[bundle.name].reason
        if reason is not None:
            without[bundle.name] = reason
    kept = [bundle for bundle in order if bundle.name not in without]
    source.check_conflicts(kept)
    return [by_name[bundle.name] for bundle in kept]


# -- revert -----------------------------------------------------------------------------


def revert(
    options: Options,
    names: Sequence[str],
    *,
    everything: bool = False,
    dry_run: bool = False,
    forget: bool = False,
) -> Report:
    """Take bundles out of the applied set.  With ``forget``, files that a reinstall put
    back, or an uninstall took away, are left as they are instead of being refused."""
    asked = _recorded_names(names)
    notes: list[str] = []

    def wanted(state: State | None) -> list[Chosen]:
        entries = [] if state is None else state["bundles"]
        if everything:
            return []
        _check_known(session, asked, entries, notes)
        staying = [entry for entry in entries if entry["name"] not in asked]
        chosen = []
        if state is not None:
            chosen = [from_record(session.env, session.home, entries, entry) for entry in staying]
        for item in chosen:
            for requirement in item.bundle.requires:
                name = split_requirement(requirement)[0]
                if name in asked:
                    raise Refused(
                        f"{item.bundle.name} is applied and requires {name}",
                        code="required",
                        bundle=name,
                        hint=f"revert both: patchkit revert {item.bundle.name} {name}",
                    )
        return chosen

    with held(options.signals) as signals:
        with signals.at_once():
            session = Session(options)
        report = _change(
            session,
            signals,
            "revert",
            wanted,
            dry_run=dry_run,
            forget=forget,
            to_nothing=everything,
        )
    report.notes += notes
    return report


def _check_known(
    session: Session, asked: Sequence[str], entries: Sequence[BundleEntry], notes: list[str]
) -> None:
    applied = {entry["name"] for entry in entries}
    for name in asked:
        if name in applied:
            continue
        if not source.is_loose(name):
            source.read_manifest(session.folder, name)  # a name nobody knows is an error
        notes.append(f"{name} is not applied")


# -- save and restore -------------------------------------------------------------------


def applied_set(options: Options) -> tuple[Session, State | None, list[Chosen]]:
    """What is applied, as it is recorded, of an environment in which nothing is under way."""
    session = Session(options)

    def look() -> tuple[State | None, list[Chosen]]:
        state = session.home.read_state()
        entries = [] if state is None else state["bundles"]
        return state, [from_record(session.env, session.home, entries, one) for one in entries]

    _no_trial(session)
    return (session, *steadily(session, look))


def restore(
    session: Session, signals: Held, wanted: Sequence[Chosen], *, dry_run: bool = False
) -> Report:
    """Make the applied set exactly this one, which was applied here before, in one transaction;
    files that a package manager put back meanwhile are patched again."""
    chosen = list(wanted)
    settle(session, (part.distribution for item in chosen for part in item.parts))
    asked = [*(item.bundle.name for item in chosen), *sorted(_applied(session.home))]
    return _change(session, signals, "restore", lambda _: chosen, dry_run=dry_run, asked=asked)


# -- adopt ------------------------------------------------------------------------------


def adopt(
    session: Session,
    chosen: list[Chosen],
    edited: Edited,
    state: State | None,
    *,
    dry_run: bool = False,
) -> Report:
    """Record a set whose last bundle is on the disk already, as edits made by hand.

    ``state`` is the record that ``chosen`` and ``edited`` were worked out from.  The edited
    files stay as they are; what they held before is kept, so that a revert brings it back.
    Raises :class:`Refused` where the record, or a file, is another one by now.
    """
    settle(session, (part.distribution for item in chosen for part in item.parts))

    def wanted(now: State | None) -> list[Chosen]:
        if now != state:
            raise Refused(
                "another patchkit changed the applied set at this moment",
                code="changed-meanwhile",
                hint="run the same command again",
            )
        return chosen

    with held(session.options.signals) as signals:
        return _change(session, signals, "capture", wanted, dry_run=dry_run, edited=edited)


# -- recover ----------------------------------------------------------------------------


def recover(options: Options) -> Report:
    """Finish what an interrupted command left."""
    with held(options.signals) as signals:
        with signals.at_once():
            session = Session(options)
        report = Report("recover", {"environment": session.described(), "recovered": None})
        report.data["changed"] = False
        if not session.home.exists():
            return report
        with hold(session.home, "recover", options.lock_timeout, signals.check) as own:
            roots = Roots(session.home, _taking(session, signals))
            claim = Claim(session.home)
            work = _Work(session, signals, "recover", own, roots, claim)
            try:
                report.data["recovered"] = recover_journal(own, session.home, roots)
                report.changed = True
                report.data["trial"] = _end_dead_trial(work, report.notes)
                ended = report.data["trial"] is not None
                report.data["changed"] = report.data["recovered"] is not None or ended
                refresh(own, session.home)
            finally:
                claim.close()
                roots.close()
    return report


# -- trials -----------------------------------------------------------------------------


def choose_for_trial(session: Session, names: Sequence[str], *, only: bool) -> list[Chosen]:
    """The set that a trial wants: what is applied with these bundles in it, or with ``only``
    these and what they require.  Nothing is written."""
    choice = _Choice(session, names, Way(), only=only)
    chosen = choice.wanted(session.home.read_state())
    for name, reason in choice.without.items():
        session.notes.append(f"{name} has nothing to do here ({reason}), and is no part of the set")
    return chosen


def begin_trial(
    session: Session, signals: Held, begin: Callable[[Root, State | None, list[Chosen]], T]
) -> T:
    """Call ``begin`` (the root that has ``.patchkit``, the state, the set applied) with the
    environment held, in which nothing is unfinished, and no other trial is under way."""
    home = session.home
    with hold(home, "trial", session.options.lock_timeout, signals.check) as own:
        roots = Roots(home, _taking(session, signals))
        claim = Claim(home)
        work = _Work(session, signals, "trial", own, roots, claim)
        try:
            if recover_journal(own, home, roots) is not None:
                session.notes.append("an interrupted command was finished or undone first")
            _end_dead_trial(work, session.notes)
            _must_be_the_only_record(session, home)
            refresh(own, home)
        finally:
            claim.close()
            roots.close()
        state = home.read_state()
        entries = [] if state is None else state["bundles"]
        before = [from_record(session.env, home, entries, entry) for entry in entries]
        return begin(own, state, before)


def switch(
    session: Session, signals: Held, chosen: list[Chosen], trial: str, *, last: bool = False
) -> Report:
    """Make the applied set exactly this one, in one transaction of a trial that is under way.
    ``last``: files that a package manager put back meanwhile are patched again, too."""
    state = session.home.read_state()
    asked = [item.bundle.name for item in chosen] if last else []
    asked += sorted(_applied(session.home)) if last and state is not None else []
    return _change(
        session, signals, "trial", lambda _: chosen, dry_run=False, asked=asked, trial=trial
    )


def end_trial(session: Session, signals: Held) -> None:
    """Forget the trial that is under way."""
    with hold(session.home, "trial", session.options.lock_timeout, signals.check) as own:
        ongoing.end(own)


def _end_dead_trial(work: _Work, notes: list[str], trial: str | None = None) -> str | None:
    """Put back what was applied before a trial whose process is gone; its id.

    Raises :class:`Locked` where it lives, unless it is this ``trial``.
    """
    home = work.session.home
    one = ongoing.read(home)
    if one is None:
        ongoing.tidy(work.own)
        return None
    if one.id == trial:
        return None
    if one.alive:
        raise ongoing.refusal(one)
    work.end_left(one, notes)
    names = [entry["name"] for entry in one.bundles]
    work.transact(
        lambda state: _before(work.session, state, one), asked=[*names, *sorted(_applied(home))]
    )
    _forget_trial(work.own, one, notes)
    return one.id


def _before(session: Session, state: State | None, one: ongoing.Ongoing) -> list[Chosen]:
    """The set that was applied before a trial: as it was recorded, or where another release is
    installed by now, chosen anew for that."""
    chosen = []
    for entry in one.bundles:
        try:
            item = from_record(session.env, session.home, one.bundles, entry, TRIAL_SET)
        except Refused as error:
            if error.code != "release-changed":
                raise
            with Pristine(session.env, session.home, state, [entry["name"]]) as view:
                item = choose(view, session.folder, entry["name"])
        chosen.append(item)
    return chosen


def _forget_trial(own: Root, one: ongoing.Ongoing, notes: list[str]) -> None:
    """The record says first that it died: a trial that is forgotten is marked by nobody."""
    remark = ongoing.mark(one)
    ongoing.end(own)
    names = ", ".join(entry["name"] for entry in one.bundles)
    notes.append(f"the {one.described()} was interrupted: {names or 'nothing'} is applied again")
    notes += [] if remark is None else [remark]


def _no_trial(session: Session) -> None:
    """What a change that is not made would have met."""
    one = ongoing.read(session.home)
    if one is None:
        return
    if one.alive:
        raise ongoing.refusal(one)
    raise Refused(
        f"the {one.described()} was interrupted and is not finished",
        code="interrupted",
        hint="patchkit recover",
    )


# -- the one way ------------------------------------------------------------------------


def _change(
    session: Session,
    signals: Held,
    command: str,
    wanted: Wanted,
    *,
    dry_run: bool,
    asked: Sequence[str] = (),
    forget: bool = False,
    edited: Edited = NOTHING,
    trial: str | None = None,
    to_nothing: bool = False,
) -> Report:
    """``trial`` is the one that this is a step of; ``to_nothing`` says that nothing stays
    applied, whatever a dead trial found."""
    home = session.home
    if dry_run:

        def look() -> tuple[State | None, Planned]:
            state = home.read_state()
            chosen = wanted(state)
            return state, compute_set(session, state, chosen, asked, forget=forget, edited=edited)

        with signals.at_once():
            _no_trial(session)
            before, planned = steadily(session, look)
            report = _report(session, command, planned, before)
            missing = _missing_permission(home, planned)
            report.notes += [] if missing is None else [missing]
            if not planned.nothing_to_do and running(home):
                report.notes.append("what was launched from it is still running (patchkit status)")
        return report
    if command in ("revert", "restore") and not home.exists() and not wanted(None):
        return _report(session, command, None, None)
    with hold(home, command, session.options.lock_timeout, signals.check) as own:
        roots = Roots(home, _taking(session, signals))
        claim = Claim(home)
        work = _Work(session, signals, command, own, roots, claim)
        notes: list[str] = []
        try:
            recovered = recover_journal(own, home, roots)
            dropped = ongoing.read(home) if to_nothing else None
            if dropped is None or dropped.alive:
                _end_dead_trial(work, notes, trial)
            else:
                work.end_left(dropped, notes)
            before, planned, warnings = work.transact(
                wanted, asked=asked, forget=forget, edited=edited
            )
            if dropped is not None:
                _forget_trial(own, dropped._replace(bundles=()), notes)
            guarded = refresh(own, home)
        finally:
            claim.close()
            roots.close()
    report = _report(session, command, planned, before)
    if guarded and planned.state is None and not planned.nothing_to_do:
        report.notes.append("the guard stays where it is: patchkit guard uninstall takes it away")
    if claim.in_use:
        report.notes.append(
            "what was launched from it goes on with what it has imported: restart it"
            " (patchkit status names it)"
        )
    report.changed = recovered is not None or not planned.nothing_to_do or bool(notes)
    report.data["changed"] = report.changed
    report.notes += notes
    report.notes += planned.work.notes
    report.notes += warnings
    if recovered is not None:
        report.data["recovered"] = recovered
        way = {"forward": "finished", "back": "undone", "tidied": "tidied up"}[recovered]
        report.notes.insert(0, f"an interrupted command was {way} first")
    return report


class _Work:
    """What one transaction needs: the environment that is held, and how."""

    def __init__(
        self,
        session: Session,
        signals: Held,
        command: str,
        own: Root,
        roots: Roots,
        claim: Claim,
    ) -> None:
        self.session = session
        self.own = own
        self._signals = signals
        self._command = command
        self._roots = roots
        self._claim = claim

    def end_left(self, one: ongoing.Ongoing, notes: list[str]) -> None:
        """Nothing of a dead trial is to go on with files that change under it."""
        count = ongoing.end_left(one.id, self._signals.check)
        if count:
            notes.append(f"ended {count} processes that the {one.described()} left")

    def transact(
        self,
        wanted: Wanted,
        *,
        asked: Sequence[str] = (),
        forget: bool = False,
        edited: Edited = NOTHING,
    ) -> tuple[State | None, Planned, list[str]]:
        """Compute, compare, commit.  Returns the state before it, what was done, and warnings."""
        session, home, signals = self.session, self.session.home, self._signals
        warnings: list[str] = []
        while True:
            with signals.at_once():
                _must_be_the_only_record(session, home)
                before = home.read_state()
                chosen = wanted(before)
                _hold_sources(home, self._roots, before, chosen)
                planned = compute_set(session, before, chosen, asked, forget=forget, edited=edited)
            if planned.nothing_to_do:
                return before, planned, warnings
            self._claim.take(self.own, forced=session.options.while_running)
            try:
                warnings = commit(
                    self.own,
                    home,
                    self._roots,
                    planned.work,
                    planned.state,
                    signals.check,
                    self._command,
                )
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                if self._command != "revert" or not full or not release_reserve(self.own):
                    raise
            else:
                return before, planned, warnings


def _taking(session: Session, signals: Held) -> Take:
    timeout = session.options.lock_timeout
    return lambda path: take_sources(path, timeout, signals.check)


def _hold_sources(home: Home, roots: Roots, state: State | None, chosen: Iterable[Chosen]) -> None:
    """Before the first look at sources outside of the environment; those that a loose patch
    turns out to fit are held from the commit on."""
    names = set() if state is None else set(state["roots"])
    names |= {root_name(home, part.distribution.root) for item in chosen for part in item.parts}
    for name in sorted(names):
        roots.hold(name)


def _must_be_the_only_record(session: Session, home: Home) -> None:
    """Another first command may have chosen another site directory for its record before
    this one held a lock."""
    if session.env.is_root:
        return
    now = locate(session.env)
    if now.holder != home.holder and now.exists():
        raise Refused(
            f"another patchkit began to patch this environment: {now.path}",
            code="two-records",
            hint="run the same command again",
        )


def _missing_permission(home: Home, planned: Planned) -> str | None:
    """What stops the real command where a dry run, which needs no permission, goes through."""
    roots = Roots(home)
    try:
        error = None if home.exists() else Root(home.holder).can_write("")
        if error is None:
            preflight(roots, planned.work)
    except OSError as caught:
        error = caught
    finally:
        roots.close()
    return None if error is None else f"this user could not do it: {translate(error).message}"


def steadily(session: Session, look: Callable[[], T]) -> T:
    """What is computed without a lock, of an environment that nobody changes meanwhile."""
    notes = list(session.notes)

    def look_again() -> T:
        session.notes = list(notes)
        return look()

    return steady(session.home, session.options.lock_timeout, look_again)


def compute_set(
    session: Session,
    state: State | None,
    chosen: list[Chosen],
    asked: Sequence[str] = (),
    *,
    forget: bool = False,
    edited: Edited = NOTHING,
) -> Planned:
    """What the wanted set changes, computed and checked, nothing written."""
    return compute(
        session.env,
        session.home,
        state,
        chosen,
        session.options.environ,
        asked,
        forget=forget,
        edited=edited,
    )


def _recorded_names(names: Sequence[str]) -> list[str]:
    """A loose patch is recorded under its file name."""
    return [os.path.basename(name) if source.is_loose(name) else name for name in names]


def _report(
    session: Session, command: str, planned: Planned | None, before: State | None
) -> Report:
    now = [] if planned is None else [c.bundle.name for c in planned.chosen]
    were = [] if before is None else [entry["name"] for entry in before["bundles"]]
    report = Report(
        command,
        {
            "environment": session.described(),
            "bundles": now,
            "reverted": [name for name in were if name not in now],
            "files": [] if planned is None else planned.files,
            "fingerprint": None if planned is None else planned.fingerprint,
            "caches": [] if planned is None else [source for source, _ in planned.work.caches],
            "changed": planned is not None and not planned.nothing_to_do,
        },
    )
    report.notes += session.notes
    if command == "sync":
        report.data["in_sync"] = planned is None or planned.nothing_to_do
    if planned is not None:
        report.notes += planned.notes
        if planned.left_out:
            report.data["left_out"] = planned.left_out
        if planned.mapping:
            report.data["mapping"] = planned.mapping
    if session.is_unnamed:
        report.notes.append(
            f"no environment was named: this is patchkit's own, {session.env.site_packages}"
        )
    if session.env.externally_managed and report.data["files"]:
        report.notes.append(
            "this environment belongs to the system's package manager (PEP 668), which may"
            " replace patched files at any time"
        )
    return report
