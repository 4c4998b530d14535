"""Hand edits of an environment become a bundle, which is then applied and recorded.

The edited files are never written: the bundle's files come first, then one transaction keeps
the pristine bytes and records the set, and only then is anything said to be done.  Killed
anywhere, the edits are where they were; the same command then goes on from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from patchkit import bundles as source
from patchkit import workflow
from patchkit.distributions import Distribution, find_distribution
from patchkit.errors import PatchkitError, Refused
from patchkit.fsio import digest, walk_files
from patchkit.jit import is_generator
from patchkit.manifest import parse_manifest, select_variant
from patchkit.model import Assertion
from patchkit.plan import Key
from patchkit.publishing import publish
from patchkit.releases.sources import Settings
from patchkit.series import Chosen, Part, PatchBytes, from_record
from patchkit.session import Options, Report, Session
from patchkit.state import FileEntry, State
from patchkit.writing.bundle import Draft
from patchkit.writing.headers import Head
from patchkit.writing.who import author_of, today

from . import draft, place
from .edits import Edit, Found, find, targets


def capture(
    options: Options,
    settings: Settings,
    name: str,
    distributions: Sequence[str],
    *,
    message: str | None = None,
    author: str | None = None,
    one_per_file: bool = False,
    with_asserts: bool = True,
    confirm: Callable[[list[Assertion]], bool] | None = None,
    dry_run: bool = False,
) -> Report:
    """Make a bundle of the hand edits, and record it as applied.

    Where the bundle is there already and is what the edits are (a capture that was killed, a
    patch that was put on by hand), it is only recorded.  Raises :class:`Refused` where there
    is nothing to capture, or where the outcome would not be what is on the disk.
    """
    session = Session(options)
    folder = place.target_folder(options, make=True)

    state, applied, dists, found = workflow.steadily(
        session, lambda: _look(session, settings, name, distributions)
    )
    if not found.edits:
        raise _nothing(session, dists, found)
    if name in source.list_names(folder):
        return _record(session, folder, name, applied, found, state, dry_run=dry_run)
    place.check_new_name(folder, name)
    made = _draft(
        session,
        name,
        found,
        state,
        message=message,
        author=author,
        one_per_file=one_per_file,
        with_asserts=with_asserts,
        confirm=confirm,
    )
    chosen = [*applied, _chosen(session, made)]
    # All is computed and checked before the first byte is written.
    workflow.adopt(session, chosen, found.edited(), state, dry_run=True)
    before = place.read(folder, made.contents)
    written = [] if dry_run else made.write(folder)
    try:
        report = workflow.adopt(session, chosen, found.edited(), state, dry_run=dry_run)
    except BaseException:
        if not dry_run and not session.home.is_unfinished(session.home.mark()):
            publish(folder, before)
        raise
    report.data["written"] = written
    return _told(report, made.as_json(folder), found, made.notes)


def _look(
    session: Session, settings: Settings, name: str, distributions: Sequence[str]
) -> tuple[State | None, list[Chosen], list[Distribution], Found]:
    """The record, the applied bundles, the distributions that are meant, and their edits."""
    state = session.home.read_state()
    if state is not None and name in {entry["name"] for entry in state["bundles"]}:
        raise Refused(
            f"{name} is applied already",
            code="bundle-exists",
            bundle=name,
            hint="capture what was edited on top of it under another name",
        )
    applied = []
    if state is not None:
        env, home = session.env, session.home
        applied = [from_record(env, home, state["bundles"], entry) for entry in state["bundles"]]
    dists = targets(session, state, distributions, _offered(session.options))
    return state, applied, dists, find(session, state, applied, dists, settings)


def _told(report: Report, data: Mapping[str, Any], found: Found, notes: list[str]) -> Report:
    report.data.update(data)
    report.data["captured"] = [
        {"path": edit.path, "change": _word(edit), "distribution": edit.distribution.name}
        for edit in found.edits
    ]
    report.data["left_out"] = [{"file": path, "reason": reason} for path, reason in found.left_out]
    report.notes += [f"left as it is: {path}, {reason}" for path, reason in found.left_out]
    report.notes += [
        f"{path} was written through: its inode has other names (a package cache or another"
        " environment), which hold the edit, too; clean that cache (uv cache clean)"
        for path in found.shared
    ]
    report.notes += notes
    return report


def _word(edit: Edit) -> str:
    if edit.before is None:
        return "added"
    if edit.after is None:
        return "deleted"
    return "mode" if edit.before.data == edit.after.data else "modified"


def _record(
    session: Session,
    folder: str,
    name: str,
    applied: list[Chosen],
    found: Found,
    state: State | None,
    *,
    dry_run: bool,
) -> Report:
    """Record a bundle that is there, if it is what the edits are."""
    data = source.read_manifest(folder, name)
    bundle = parse_manifest(data, name, source.read_lock(folder, name))
    read = source.patch_reader(folder, bundle)
    parts = []
    for target in bundle.targets:
        dist = find_distribution(session.env, target.distribution)
        variant = None if dist is None else select_variant(target, dist.version)
        if dist is not None and variant is not None:
            files = ((path, read(path)) for path in variant.patches)
            patches = tuple(PatchBytes(path, data, digest(data)) for path, data in files)
            way = (variant.versions, variant.strip, variant.upstream)
            parts.append(Part(dist, *way, patches, variant.unneeded))
    chosen = [*applied, Chosen(bundle, data, tuple(parts))]
    try:
        report = workflow.adopt(session, chosen, found.edited(), state, dry_run=dry_run)
    except PatchkitError as error:
        if error.exit_code != 3 or error.code == "changed-meanwhile":
            raise
        raise Refused(
            f"there is a bundle {name} in {folder}, and it is not what was edited: {error.message}",
            code="bundle-exists",
            bundle=name,
            file=error.file,
            hint="capture under another name",
        ) from None
    if any(change["path"] in {e.path for e in found.edits} for change in report.data["files"]):
        report.notes.append("modes of edited files were set as the patches have them")
    report.data["written"] = []
    report.notes.append(f"{name} was there already, and is what the edits are: it is recorded")
    told = {"bundle": name, "folder": folder, "patches": [], "asserts": [], "caches": {}}
    return _told(report, told, found, [])


def _draft(
    session: Session,
    name: str,
    found: Found,
    state: State | None,
    *,
    message: str | None,
    author: str | None,
    one_per_file: bool,
    with_asserts: bool,
    confirm: Callable[[list[Assertion]], bool] | None,
) -> Draft:
    environ = session.options.environ
    who = author_of(environ, author)
    subject, _, text = (message or name.replace("-", " ").capitalize()).partition("\n")
    recorded = _recorded(state)
    needed: list[str] = []
    pieces = []
    for dist_name in sorted({edit.distribution.name for edit in found.edits}):
        edits = [edit for edit in found.edits if edit.distribution.name == dist_name]
        dist = edits[0].distribution
        origin = f"vendor, captured from {dist.name} {dist.version}"
        groups = [[edit] for edit in edits] if one_per_file else [edits]
        pristine = {}
        for edit in edits:
            known = recorded.get(edit.key)
            if known is None and edit.pristine is not None:
                pristine[edit.path] = digest(edit.pristine.data)
            elif known is not None:
                needed += [one for one in known["bundles"] if one not in needed]
                was = known["before"]
                if was is not None:
                    pristine[edit.path] = known["blob"] or was["sha256"]
        changes = [
            draft.Change(
                Head(
                    f"{subject} ({group[0].path})" if one_per_file and len(edits) > 1 else subject,
                    text.strip("\n"),
                ).having(origin=origin, author=who, last_update=today(environ)),
                {edit.path: edit.before for edit in group if edit.before is not None},
                {edit.path: edit.after for edit in group},
            )
            for group in groups
        ]
        pieces.append(draft.Piece(dist.name, dist.version, changes, pristine))
    order = [] if state is None else [entry["name"] for entry in state["bundles"]]
    for entry in [] if state is None else state["bundles"]:
        if entry["loose"] and entry["name"] in needed:
            raise Refused(
                f"the edits are on top of {entry['name']}, a loose patch, which no bundle can"
                " require",
                code="on-loose-patch",
                bundle=entry["name"],
                hint="make it a bundle first: patchkit import",
            )
    return draft.make(
        name,
        pieces,
        summary=subject,
        description=text,
        requires=[one for one in order if one in needed],
        with_asserts=with_asserts,
        confirm=confirm,
        generators=lambda which: _generators(found, which),
    )


def _recorded(state: State | None) -> dict[Key, FileEntry]:
    """What the record says of each file, by its root and path."""
    if state is None:
        return {}
    return {(state["roots"][one["root"]], one["path"]): one for one in state["files"]}


def _generators(found: Found, distribution: str) -> Mapping[str, bytes]:
    """The generators of a distribution as they are on the disk."""
    (dist, *_) = [e.distribution for e in found.edits if e.distribution.name == distribution]
    tops = {edit.path.split("/", 1)[0] for edit in found.edits if edit.distribution is dist}
    out = {}
    for top in sorted(tops):
        for path in walk_files(os.path.join(dist.root, top)):
            if is_generator(f"{top}/{path}"):
                with open(os.path.join(dist.root, top, path), "rb") as file:
                    out[f"{top}/{path}"] = file.read()
    return out


def _chosen(session: Session, made: Draft) -> Chosen:
    parts = []
    for target in made.bundle.targets:
        dist = find_distribution(session.env, target.distribution)
        assert dist is not None
        (variant,) = target.variants
        patches = tuple(
            PatchBytes(path, made.patch(path), digest(made.patch(path))) for path in variant.patches
        )
        parts.append(Part(dist, variant.versions, variant.strip, None, patches, how="known"))
    return Chosen(made.bundle, made.manifest, tuple(parts))


def _offered(options: Options) -> str | None:
    """The bundles on offer, which say what is looked at where no distribution is named."""
    try:
        return source.bundle_dir(options.bundles, options.environ, options.cwd)
    except PatchkitError:
        return None


def _nothing(session: Session, dists: list[Distribution], found: Found) -> Refused:
    looked = ", ".join(dist.name for dist in dists)
    message = f"no hand edits in {session.env.site_packages}"
    message += f" (looked at: {looked})" if looked else ": no distribution to look at"
    return Refused(
        message,
        code="nothing-to-capture",
        hint="name the distributions that were edited: patchkit capture NAME DIST…",
        detail=tuple(f"left out: {path}, {reason}" for path, reason in found.left_out),
    )
