"""What belongs into a context: the set, its bundles with exact bytes, and what it must become.

Owns where each of these comes from.  Only looks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from patchkit import bundles as source
from patchkit.distributions import find_distribution
from patchkit.environment import Environment
from patchkit.errors import Refused
from patchkit.fitting import Loaded
from patchkit.fsio import digest
from patchkit.lint import named_patches
from patchkit.manifest import render_lock
from patchkit.model import Bundle
from patchkit.queries import verify_in
from patchkit.series import Chosen, Way, from_record
from patchkit.session import Options, Session

from .output import Expected

#: Loose patch files lie here; bundles where every bundle directory has them.
_LOOSE = "loose"


class Gathered(NamedTuple):
    """The bundles of a context.  ``names`` is the set as ``[tool.patchkit]`` names it,
    ``recorded`` as it is recorded once it is applied; ``bundles`` are all that the context
    holds, also those that are required, with their versions."""

    names: list[str]
    recorded: list[str]
    bundles: list[tuple[str, str]]
    files: dict[str, bytes]
    has_args: bool
    expected: Expected | None
    environment: dict[str, Any]
    notes: list[str]


def applied(options: Options) -> Gathered:
    """The set that the environment carries.  Raises :class:`Refused` where it does not verify,
    or where a bundle on offer is no longer the one that was applied."""
    session = Session(options)
    report, state = verify_in(session, "bake", ())
    if report.exit_code:
        first, *more = report.data["problems"]
        raise Refused(
            f"what is applied here does not verify: {first['message']}",
            code="not-verified",
            hint=first["hint"],
            detail=tuple(one["message"] for one in more),
        )
    entries = [] if state is None else state["bundles"]
    if state is None or not entries:
        raise Refused(
            "nothing is applied here, and no bundle is named",
            code="nothing-applied",
            hint="name the bundles of the image: patchkit bake --bundle BUNDLE --from IMAGE"
            " --output DIR; or apply them here first",
        )
    chosen = [from_record(session.env, session.home, entries, entry) for entry in entries]
    for one in chosen:
        _must_be_on_offer(session, one)
    loose = {one.bundle.name: one.parts[0].patches[0].data for one in chosen if one.bundle.loose}
    names = [one.bundle.name for one in chosen]
    return _gathered(session, names, loose, {"fingerprint": state["fingerprint"]})


def named(options: Options, names: Sequence[str], *, compare: bool) -> Gathered:
    """The set of these bundles, or loose patch files.

    With ``compare`` it is computed for the environment, so that the image can be compared with
    it; what :func:`patchkit.workflow.sync` refuses is raised then.  Nothing is changed.
    """
    loose = {
        os.path.basename(name): source.read_loose(name, options.cwd)
        for name in names
        if source.is_loose(name)
    }
    result: dict[str, Any] | None = None
    if compare:
        from patchkit.workflow import sync

        try:
            result = sync(options, names, dry_run=True).data
        except Refused as error:
            if error.code in ("not-installed", "unsupported-release", "no-environment"):
                error.hint = (
                    f"{error.hint}; or bake without a fingerprint that the image has to come"
                    " to: --no-fingerprint"
                )
            raise
    return _gathered(Session(options), names, loose, result)


def releases(env: Environment, distributions: Iterable[str]) -> dict[str, str]:
    """Which of these are installed, in which release."""
    found = {}
    for name in sorted(set(distributions)):
        dist = find_distribution(env, name)
        if dist is not None:
            found[name] = dist.version
    return found


def pyproject(names: Sequence[str]) -> bytes:
    """The file that makes the context a project of its own, for ``patchkit sync``."""
    listed = "".join(f"    {json.dumps(name, ensure_ascii=False)},\n" for name in names)
    text = f'[tool.patchkit]\nbundles = [\n{listed}]\nbundle-dir = "."\n'
    return text.encode("utf-8")


def _must_be_on_offer(session: Session, one: Chosen) -> None:
    """The image gets all variants of a bundle, of which the record has only the one that was
    applied."""
    bundle = one.bundle
    if bundle.loose:
        if one.way != Way():
            raise Refused(
                f"{bundle.name} was applied with --strip, --reverse or --eol, which an image"
                " cannot repeat",
                code="loose-way",
                bundle=bundle.name,
                hint="make a bundle of it: patchkit import",
            )
        return
    why = "is not the one"
    try:
        loaded = Loaded.named(session.folder, bundle.name)
        same = loaded.manifest == one.manifest and all(
            digest(loaded.read(patch.path)) == patch.sha256
            for part in one.parts
            for patch in part.patches
        )
    except Refused as error:
        if error.code != "unknown-bundle":
            raise
        same, why = False, "is none"
    if not same:
        came = one.origin or {}
        where = f"{came['repository']}@{came['revision']}" if came.get("revision") else "DIR"
        raise Refused(
            f"{bundle.name} is applied, and in {session.folder} there {why} that was applied",
            code="changed-since-applied",
            bundle=bundle.name,
            hint=f"name where it came from: --bundles {where}; or apply what is there now:"
            f" patchkit apply {bundle.name}",
        )


def _gathered(
    session: Session,
    names: Sequence[str],
    loose: Mapping[str, bytes],
    result: Mapping[str, Any] | None,
) -> Gathered:
    folder = session.folder
    order = source.resolve_order(
        [name for name in names if not source.is_loose(name)],
        lambda name: Loaded.named(folder, name).bundle,
    )
    source.check_conflicts(order)
    files = {f"{_LOOSE}/{name}": data for name, data in loose.items()}
    for bundle in order:
        files.update(_files(folder, bundle))
    expected = None
    if result is not None:
        targets = [target.distribution for bundle in order for target in bundle.targets]
        expected = Expected(result["fingerprint"], releases(session.env, targets))
    return Gathered(
        [f"{_LOOSE}/{os.path.basename(one)}" if source.is_loose(one) else one for one in names],
        [os.path.basename(one) if source.is_loose(one) else one for one in names],
        [(one.name, one.version) for one in order] + [(name, "0") for name in sorted(loose)],
        files,
        any(_has_args(bundle) for bundle in order),
        expected,
        session.described(),
        session.notes,
    )


def _files(folder: str, bundle: Bundle) -> dict[str, bytes]:
    """A bundle's files as they are, with every variant; a lock where it had none, so that the
    context holds what it was made of."""
    name = bundle.name
    read = source.patch_reader(folder, bundle)
    patches = {path: read(path) for path in named_patches(bundle)}
    lock = source.read_lock(folder, name)
    if lock is None:
        lock = render_lock({path: digest(data) for path, data in patches.items()})
    return {
        f"manifests/{name}.toml": source.read_manifest(folder, name),
        f"manifests/{name}.lock": lock,
        **{f"patches/{path}": data for path, data in patches.items()},
    }


def _has_args(bundle: Bundle) -> bool:
    profile = bundle.profile
    return bool(profile.args) or any(one.args for one in profile.variants)
