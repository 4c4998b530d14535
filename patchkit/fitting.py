"""Bundles chosen for an environment: which variant fits, and whether one is needed.

Looks at pristine bytes, by RECORD where it has them, and judges a bundle's assertions on
the pristine files before anything else: a release that does by itself what they ask for is
left alone.  Must not change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from . import bundles as source
from .compiled import judged
from .distributions import Distribution, find_distribution
from .environment import Environment
from .errors import DriftError, PatchkitError, Refused
from .fit import Fit, fit_variant, nearest
from .fsio import digest
from .judging import assertion_failed
from .manifest import parse_manifest, version_matches
from .mapping import reaches
from .model import Assertion, Bundle, Target
from .patchfile import parse
from .plan import Key
from .roots import Roots
from .series import Chosen, Part, PatchBytes, Way, choose_loose, root_name
from .snapshot import Snapshot
from .state import Home, State

PROVEN = "all that the bundle asserts holds in it without a patch"


class Pristine:
    """The pristine files of an environment's distributions; a context to be closed."""

    def __init__(
        self,
        env: Environment,
        home: Home,
        state: State | None,
        asked: Iterable[str] = (),
        *,
        forget: bool = False,
    ) -> None:
        self.env = env
        self._home = home
        self._owners: dict[Key, Distribution] = {}
        self._roots = Roots(home)
        self._snapshot = Snapshot(
            home, self._roots, state, self._owners, frozenset(asked), forget=forget
        )
        self._bytes: dict[Key, bytes | None] = {}

    def __enter__(self) -> Pristine:  # noqa: PYI034 - typing.Self is of Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        self._snapshot.close()
        self._roots.close()

    def read(self, dist: Distribution, path: str) -> bytes | None:
        """The bytes, or None where the file is not there.  Raises what a drift raises."""
        key = (root_name(self._home, dist.root), path)
        if key not in self._bytes:
            self._owners.setdefault(key, dist)
            view = self._snapshot.pristine(key)
            self._bytes[key] = None if view is None or view.kind != "file" else view.data
        return self._bytes[key]

    def digest(self, dist: Distribution, path: str) -> str | None:
        """The SHA-256, from RECORD where it has one."""
        if dist.kind == "wheel" and dist.dist_info:
            record = self._snapshot.record(dist)
            row = None if record is None else record.rows((path,)).get(path)
            if row is not None and row.algorithm == "sha256" and row.digest_hex is not None:
                return row.digest_hex
        try:
            data = self.read(dist, path)
        except (PatchkitError, OSError):
            return None  # named where the file is to be changed
        return None if data is None else digest(data)


class Loaded(NamedTuple):
    """A bundle as it was read, before anything is chosen; or a loose patch, which fits what
    it fits."""

    bundle: Bundle
    manifest: bytes | None
    read: Callable[[str], bytes]
    chosen: Chosen | None = None
    folder: str | None = None

    @classmethod
    def named(cls, folder: str, name: str) -> Loaded:
        """A bundle of a bundle directory."""
        data = source.read_manifest(folder, name)
        bundle = parse_manifest(data, name, source.read_lock(folder, name))
        return cls(bundle, data, source.patch_reader(folder, bundle), folder=folder)

    @classmethod
    def loose(cls, env: Environment, path: str, data: bytes, way: Way) -> Loaded:
        """A patch file of its own."""
        chosen = choose_loose(env, path, data, way)
        return cls(chosen.bundle, None, lambda _: data, chosen)

    def distributions(self, env: Environment) -> Iterator[Distribution]:
        """Those that it is for and that are installed."""
        if self.chosen is not None:
            yield from (part.distribution for part in self.chosen.parts)
        for target in self.bundle.targets:
            dist = find_distribution(env, target.distribution)
            if dist is not None:
                yield dist

    def choose(self, view: Pristine) -> Chosen:
        """Choose a variant for every target.  Raises :class:`Refused` where a required
        distribution is missing or nothing fits its release."""
        if self.chosen is not None:
            return self.chosen
        parts: list[Part] = []
        skipped: list[str] = []
        notes: list[str] = []
        for target in self.bundle.targets:
            dist = find_distribution(view.env, target.distribution)
            if dist is not None:
                parts.append(_part(view, self.bundle, target, dist, self.read, notes))
            elif not target.required:
                skipped.append(target.distribution)
            else:
                raise Refused(
                    f"{target.distribution} is not installed in {view.env.site_packages}",
                    code="not-installed",
                    bundle=self.bundle.name,
                    hint="name another environment: --python PATH (an interpreter or venv"
                    " folder); where it was patched and is to stay away: patchkit revert --all"
                    " --forget",
                )
        chosen = Chosen(
            self.bundle,
            self.manifest,
            tuple(parts),
            tuple(skipped),
            notes=tuple(notes),
            folder=self.folder,
        )
        if chosen.reason is not None:
            _prove(view, chosen)
        return chosen


def choose(view: Pristine, folder: str, name: str) -> Chosen:
    """Load a bundle by name and choose its variants."""
    return Loaded.named(folder, name).choose(view)


def _part(
    view: Pristine,
    bundle: Bundle,
    target: Target,
    dist: Distribution,
    read: Callable[[str], bytes],
    notes: list[str],
) -> Part:
    fit = fit_variant(bundle, target, dist.version, lambda path: view.digest(dist, path))
    patches: tuple[PatchBytes, ...] = ()
    if fit is not None:
        files = ((path, read(path)) for path in fit.variant.patches)
        patches = tuple(PatchBytes(path, data, digest(data)) for path, data in files)
        if fit.how == "bytes":
            notes.append(
                f"{dist.name} says that it is {dist.version}; its files are those of"
                f" {fit.release}, whose variant is taken"
            )
    if fit is None or (patches and fit.how != "known"):
        release = dist.version if fit is None else fit.release
        if holds_already(bundle, dist.name, release, patches, _reader(view, dist)):
            return Part(dist, "", None, f"{dist.name} {dist.version}: {PROVEN}", (), how="proven")
    if fit is None:
        raise _unsupported(view, bundle, target, dist)
    if fit.how == "unproven":
        notes.append(
            f"{dist.name} {dist.version} is in the range of a variant that was made for other"
            " files; every hunk and every assertion must hold"
        )
    return _from_fit(dist, fit, patches)


def _from_fit(dist: Distribution, fit: Fit, patches: tuple[PatchBytes, ...]) -> Part:
    variant = fit.variant
    return Part(
        dist,
        variant.versions,
        variant.strip,
        variant.upstream,
        patches,
        variant.unneeded,
        how=fit.how,
        release=fit.release,
    )


def _unsupported(view: Pristine, bundle: Bundle, target: Target, dist: Distribution) -> Refused:
    ranges = ", ".join(v.versions for v in target.variants)
    near = nearest(bundle, target, dist.version, lambda path: view.digest(dist, path))
    detail: tuple[str, ...] = ()
    data: dict[str, object] = {"distribution": target.distribution, "release": dist.version}
    if near is not None:
        same = f", {near.same} of {near.files} files are the same" if near.files else ""
        made = f" (made for {near.release}{same})" if near.release else ""
        detail = (f"nearest variant: {near.variant.versions}{made}",)
        data["nearest"] = near.variant.versions
    return Refused(
        f"no variant for {target.distribution} {dist.version}; there are: {ranges}",
        code="unsupported-release",
        bundle=bundle.name,
        hint=f"carry it over: patchkit port {bundle.name} --to-installed (from another machine:"
        f" --to {target.distribution}=={dist.version}); where an earlier release was patched:"
        " patchkit revert --all --forget",
        detail=detail,
        data=data,
    )


# -- already so -------------------------------------------------------------------------


def _prove(view: Pristine, chosen: Chosen) -> None:
    """Raise :class:`Refused` unless the release does what a bundle asks for, where its
    manifest says so: nobody will look again, as nothing is recorded."""
    for part in chosen.parts:
        dist = part.distribution
        for one in asserts_for(chosen.bundle, dist.name, part.release or dist.version):
            finding = judged(one, view.read(dist, one.file), _reader(view, dist))
            if not finding.ok:
                raise assertion_failed(chosen, one, finding)


def holds_already(
    bundle: Bundle,
    distribution: str,
    release: str,
    patches: Iterable[PatchBytes],
    read: Callable[[str], bytes | None],
) -> bool:
    """Whether every assertion on a distribution holds on its pristine files, and each file
    that the patches would change has one: then there is nothing to patch."""
    asserts = asserts_for(bundle, distribution, release)
    try:
        held = bool(asserts) and all(judged(one, read(one.file), read).ok for one in asserts)
    except (DriftError, OSError):
        return False  # named where the file is to be changed
    return held and _cover(asserts, patches)


def _reader(view: Pristine, dist: Distribution) -> Callable[[str], bytes | None]:
    return lambda path: view.read(dist, path)


def asserts_for(bundle: Bundle, distribution: str, release: str) -> list[Assertion]:
    """The assertions that are judged for a release of a distribution."""
    return [
        one
        for one in bundle.asserts
        if one.distribution == distribution
        and (not one.versions or version_matches(one.versions, release))
    ]


def _cover(asserts: list[Assertion], patches: Iterable[PatchBytes]) -> bool:
    for path, data, sha256 in patches:
        for part in parse(data, path, sha256).files:
            if not any(reaches(part, one.file) for one in asserts):
                return False
    return True
