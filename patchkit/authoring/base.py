"""The release that a series is worked on: its pristine files, wherever they come from.

Only reads: a wheel's through :mod:`patchkit.releases`, an editable install's from git HEAD.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from patchkit.distributions import Distribution, find_distribution
from patchkit.errors import Refused, UsageError
from patchkit.fsio import digest
from patchkit.jit import is_generator
from patchkit.manifest import select_variant
from patchkit.model import Bundle, FileState, Target, Variant
from patchkit.releases.model import parse_asked
from patchkit.releases.sources import Settings, open_release
from patchkit.stack import Source


class Base:
    """Pristine files by path, each read once; ``origin`` says where they come from."""

    def __init__(self, distribution: str, version: str, origin: str, source: Source) -> None:
        self.distribution = distribution
        self.version = version
        self.origin = origin
        self._source = source
        self._read: dict[str, FileState | None] = {}

    def paths(self) -> Iterable[str]:
        """Every file of it."""
        return self._source.paths()

    def state(self, path: str) -> FileState | None:
        """A file, or None where there is none."""
        if path not in self._read:
            self._read[path] = self._source.state(path)
        return self._read[path]

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of the files that are there."""
        states = ((path, self.state(path)) for path in paths)
        return {path: digest(state.data) for path, state in states if state is not None}

    def generators(self) -> dict[str, bytes]:
        """What makes the kernels of the distribution."""
        states = ((path, self.state(path)) for path in self.paths() if is_generator(path))
        return {path: state.data for path, state in states if state is not None}


class _Head:
    """The sources of an editable install as git HEAD has them."""

    def __init__(self, dist: Distribution) -> None:
        self._work_tree = dist.work_tree or ""
        inside = os.path.relpath(dist.root, os.path.realpath(self._work_tree))
        self._above = "" if inside == "." else f"{inside}/"
        self._paths: list[str] | None = None

    def paths(self) -> Iterable[str]:
        from patchkit.gitsource import tracked_paths

        if self._paths is None:
            tracked = tracked_paths(self._work_tree, self._above.rstrip("/"))
            self._paths = [path[len(self._above) :] for path in tracked]
        return self._paths

    def state(self, path: str) -> FileState | None:
        from patchkit.gitsource import head_file

        return head_file(self._work_tree, self._above + path)


@contextmanager
def opened(settings: Settings, distribution: str, version: str | None = None) -> Iterator[Base]:
    """A release, or without a version the one that is installed.  Raises :class:`Refused`
    where neither is to be had."""
    dist = None
    if settings.environment is not None:
        dist = find_distribution(settings.environment, distribution)
    if version is None and dist is None:
        raise Refused(
            f"{distribution} is not installed, and no release of it is named",
            code="no-release",
            hint=f"name one: --release {distribution}==VERSION, or an environment: --python PATH",
        )
    if dist is not None and version in (None, dist.version) and dist.work_tree is not None:
        yield Base(dist.name, dist.version, f"git HEAD of {dist.work_tree}", _Head(dist))
        return
    if version is None:
        assert dist is not None
        version = dist.version
    with open_release(distribution, version, settings) as release:
        yield Base(release.distribution, release.version, release.origin, release)


def asked(release: str | None) -> tuple[str | None, str | None]:
    """``--release``: the distribution and the version; None for what is not said."""
    if release is None:
        return None, None
    wanted = parse_asked(release)
    if wanted.exact is None:
        raise UsageError(
            f"--release: {release!r} means more than one", hint="write it as sglang==0.5.9"
        )
    return wanted.distribution, wanted.exact


def version_of(
    settings: Settings, bundle: Bundle, target: Target, version: str | None
) -> tuple[str | None, Variant | None]:
    """Which release a bundle's variant is worked on: the one that is asked for, the installed
    one where a variant is for it, else the newest that the lock names.  With the variant."""
    if version is not None:
        return version, select_variant(target, version)
    if settings.environment is not None:
        dist = find_distribution(settings.environment, target.distribution)
        if dist is not None and select_variant(target, dist.version) is not None:
            return None, select_variant(target, dist.version)
    for one in reversed(bundle.pristine):
        variant = select_variant(target, one.releases[-1]) if one.releases else None
        if one.distribution == target.distribution and variant is not None and variant.patches:
            return one.releases[-1], variant
    return None, None


def pick_target(bundle: Bundle, distribution: str | None, what: str) -> Target:
    """The target that is meant: the one that is named, or the only one with patches."""
    targets = [t for t in bundle.targets if any(v.patches for v in t.variants)]
    if distribution is not None:
        targets = [t for t in targets if t.distribution == distribution]
    if len(targets) == 1:
        return targets[0]
    names = ", ".join(t.distribution for t in bundle.targets) or "none"
    raise Refused(
        f"{bundle.name} has no patches for {distribution}"
        if distribution is not None
        else f"which distribution of {bundle.name} is meant? It has patches for: {names}",
        code="which-distribution",
        bundle=bundle.name,
        hint=f"name one: {what} --release DIST==VERSION",
    )
