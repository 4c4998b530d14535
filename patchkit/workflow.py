"""apply, revert and recover: the same three steps with another bundle set.

Owns the order of things: choose, compute, compare, commit.  Values in, a :class:`Report`
out; it prints nothing and asks nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from . import bundles as source
from .distributions import tree_distribution
from .errors import Refused, UsageError
from .fitting import Loaded, Pristine, choose
from .fsio import Root
from .journal import commit
from .journal import recover as recover_journal
from .lock import hold
from .manifest import split_requirement
from .model import Bundle
from .planning import Planned, compute
from .roots import Roots
from .series import Chosen, Way, from_record
from .session import Options, Report, Session, locate, translate
from .signals import held
from .staging import preflight
from .state import BundleEntry, Home, State

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
    session = Session(options)
    choice = _Choice(session, names, way or Way())
    asked = _recorded_names(names)
    if not session.home.exists() and not choice.wanted(None):
        report = _report(session, "apply", None, None)
    else:
        report = _change(session, "apply", choice.wanted, dry_run=dry_run, asked=asked)
    report.data["upstream"] = [
        {"name": name, "reason": reason} for name, reason in choice.without.items()
    ]
    return report


def plan_apply(options: Options, names: Sequence[str]) -> tuple[Session, Planned]:
    """What :func:`apply` would do, computed and checked, nothing written."""
    session = Session(options)
    _refuse_unfinished(session)
    choice = _Choice(session, names, Way())
    state = session.home.read_state()
    return session, compute_set(session, state, choice.wanted, _recorded_names(names))


class _Choice:
    """The bundles asked for, chosen for the environment as it is recorded.

    They are chosen before the lock is taken, so that what cannot be is refused without a
    write, and again only where the record changed meanwhile.  ``without`` maps the ones
    that have nothing to do to why.
    """

    def __init__(self, session: Session, names: Sequence[str], way: Way) -> None:
        _settle_tree(session)
        self._session = session
        self._loaded = [_load_named(session, name, way) for name in names]
        _settle(session, self._loaded)
        self.without: dict[str, str] = {}
        self._notes: tuple[str, ...] = ()
        self._chosen: list[Chosen] = []
        self._serial: int | None = -1
        if not session.home.unfinished():
            self._choose(session.home.read_state())

    def _choose(self, state: State | None) -> None:
        session = self._session
        asked = [item.bundle.name for item in self._loaded]
        with Pristine(session.env, session.home, state, asked) as view:
            chosen = [item.choose(view) for item in self._loaded]
            self._chosen = add_to_set(session, view, state, chosen, self.without)
        self._notes = tuple(note for item in chosen for note in item.notes)
        self._serial = _serial(state)

    def wanted(self, state: State | None) -> list[Chosen]:
        """The whole set that is wanted then."""
        if _serial(state) != self._serial:
            self.without.clear()
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


def _serial(state: State | None) -> int | None:
    return None if state is None else state["serial"]


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


def _settle(session: Session, loaded: Iterable[Loaded]) -> None:
    """Where nothing is recorded yet, the record goes beside the first distribution."""
    if session.home.exists() or session.env.is_root:
        return
    for item in loaded:
        for dist in item.distributions(session.env):
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
                    by_name[name] = from_record(env, home, applied[name])
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
    session = Session(options)
    asked = _recorded_names(names)
    notes: list[str] = []

    def wanted(state: State | None) -> list[Chosen]:
        entries = [] if state is None else state["bundles"]
        if everything:
            return []
        _check_known(session, asked, entries, notes)
        staying = [entry for entry in entries if entry["name"] not in asked]
        chosen = [from_record(session.env, session.home, entry) for entry in staying]
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

    report = _change(session, "revert", wanted, dry_run=dry_run, forget=forget)
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


# -- recover ----------------------------------------------------------------------------


def recover(options: Options) -> Report:
    """Finish what an interrupted command left."""
    session = Session(options)
    report = Report("recover", {"environment": session.described(), "recovered": None})
    if not session.home.exists():
        return report
    with (
        held() as signals,
        hold(session.home, "recover", options.lock_timeout, signals.check) as own,
    ):
        roots = Roots(session.home)
        try:
            report.data["recovered"] = recover_journal(own, session.home, roots)
            report.changed = True
        finally:
            roots.close()
    return report


# -- the one way ------------------------------------------------------------------------


def _change(
    session: Session,
    command: str,
    wanted: Wanted,
    *,
    dry_run: bool,
    asked: Sequence[str] = (),
    forget: bool = False,
) -> Report:
    home = session.home
    if dry_run:
        _refuse_unfinished(session)
        before = home.read_state()
        planned = compute_set(session, before, wanted, asked, forget=forget)
        report = _report(session, command, planned, before)
        missing = _missing_permission(home, planned)
        report.notes += [] if missing is None else [missing]
        return report
    if command == "revert" and not home.exists():
        wanted(None)
        return _report(session, command, None, None)
    with held() as signals, hold(home, command, session.options.lock_timeout, signals.check) as own:
        roots = Roots(home)
        try:
            recovered = recover_journal(own, home, roots)
            with signals.at_once():
                _must_be_the_only_record(session, home)
                before = home.read_state()
                planned = compute_set(session, before, wanted, asked, forget=forget)
            warnings: list[str] = []
            if not planned.nothing_to_do:
                warnings = commit(
                    own, home, roots, planned.work, planned.state, signals.check, command
                )
        finally:
            roots.close()
    report = _report(session, command, planned, before)
    report.changed = True
    report.notes += planned.work.notes
    report.notes += warnings
    if recovered is not None:
        report.data["recovered"] = recovered
        way = {"forward": "finished", "back": "undone", "tidied": "tidied up"}[recovered]
        report.notes.insert(0, f"an interrupted command was {way} first")
    return report


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


def _refuse_unfinished(session: Session) -> None:
    if session.home.unfinished():
        raise Refused(
            "a command on this environment was interrupted or is under way",
            code="interrupted",
            hint="patchkit recover",
        )


def compute_set(
    session: Session,
    state: State | None,
    wanted: Wanted,
    asked: Sequence[str] = (),
    *,
    forget: bool = False,
) -> Planned:
    """What the wanted set changes, computed and checked, nothing written."""
    environ = session.options.environ
    return compute(session.env, session.home, state, wanted(state), environ, asked, forget=forget)


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
        },
    )
    report.notes += session.notes
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
