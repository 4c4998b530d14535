"""The release that a series is worked on: its pristine files, wherever they come from.

Only reads: a wheel's through :mod:`patchkit.releases`, an editable install's from git HEAD.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from patchkit import bundles as source
from patchkit.distributions import Distribution, find_distribution
from patchkit.errors import PatchkitError, Refused, UsageError
from patchkit.fsio import digest
from patchkit.jit import is_generator
from patchkit.manifest import select_variant
from patchkit.mapping import Known, Mapped, Mapping, map_patch, map_stripped
from patchkit.model import Bundle, FileState, Target, Variant
from patchkit.patchfile import parse
from patchkit.plan import Key, Step, materialise
from patchkit.releases.model import parse_asked
from patchkit.releases.sources import Release, Settings, open_release


class Base:
    """Pristine files by path, read when asked for; ``origin`` says where they come from."""

    def __init__(self, distribution: str, version: str, origin: str) -> None:
        self.distribution = distribution
        self.version = version
        self.origin = origin
        self._read: dict[str, FileState | None] = {}

    def paths(self) -> Iterable[str]:
        """Every file of it."""
        raise NotImplementedError

    def load(self, path: str) -> FileState | None:
        """A file, or None where there is none."""
        raise NotImplementedError

    def read(self, path: str) -> FileState | None:
        """The same, read once."""
        if path not in self._read:
            self._read[path] = self.load(path)
        return self._read[path]

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of the files that are there."""
        states = ((path, self.read(path)) for path in paths)
        return {path: digest(state.data) for path, state in states if state is not None}

    def generators(self) -> dict[str, bytes]:
        """What makes the kernels of the distribution."""
        states = ((path, self.read(path)) for path in self.paths() if is_generator(path))
        return {path: state.data for path, state in states if state is not None}


class _Archive(Base):
    def __init__(self, release: Release) -> None:
        super().__init__(release.distribution, release.version, release.origin)
        self._release = release

    def paths(self) -> Iterable[str]:
        return self._release.paths()

    def load(self, path: str) -> FileState | None:
        return self._release.state(path)


class _Head(Base):
    def __init__(self, dist: Distribution) -> None:
        super().__init__(dist.name, dist.version, f"git HEAD of {dist.work_tree}")
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

    def load(self, path: str) -> FileState | None:
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
        yield _Head(dist)
        return
    assert version is not None or dist is not None
    with open_release(distribution, version or dist.version, settings) as release:  # type: ignore[union-attr]
        yield _Archive(release)


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


class Series:
    """Patches on a base, one after the other; ``states`` are what they leave so far."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self._known: Known | None = None
        self.states: dict[str, FileState | None] = {}

    def read(self, path: str) -> FileState | None:
        """A file as the patches so far leave it."""
        return self.states[path] if path in self.states else self.base.read(path)

    def apply(
        self, name: str, data: bytes, strip: int | None
    ) -> tuple[Mapping, dict[str, FileState | None], dict[str, FileState | None]]:
        """Put a patch on: how it was mapped, and its files before and after.

        Raises what refuses it, with the patch's name and the hunk.
        """
        try:
            files = parse(data, name).files
            mapping = (
                map_patch(files, self._paths()) if strip is None else map_stripped(files, strip)
            )
            before: dict[str, FileState | None] = {}

            def pristine(key: Key) -> FileState | None:
                before[key[1]] = self.read(key[1])
                return before[key[1]]

            wanted = materialise([Step("", name, ".", mapping.files)], pristine)
        except PatchkitError as error:
            raise error.at(patch=name) from None
        after: dict[str, FileState | None] = {}
        for (_, path), content in wanted.contents.items():
            if content is None:
                after[path] = None
            elif content.data is None:
                after[path] = before[path]
            else:
                after[path] = FileState(content.kind, content.mode, content.data)
        self.states.update(after)
        for mapped in mapping.files:
            self._follow(mapped)
        return mapping, before, after

    def _paths(self) -> Known:
        if self._known is None:
            self._known = Known(self.base.paths())
            for path, state in self.states.items():
                if state is None:
                    self._known.discard(path)
                else:
                    self._known.add(path)
        return self._known

    def _follow(self, mapped: Mapped) -> None:
        if self._known is not None:
            change = mapped.patch.change
            if change in ("delete", "rename") and mapped.old is not None:
                self._known.discard(mapped.old)
            if change in ("add", "rename", "copy") and mapped.new is not None:
                self._known.add(mapped.new)


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


def load(folder: str, name: str) -> tuple[Bundle, str]:
    """A bundle with its lock, and its manifest's text."""
    return source.load_bundle(folder, name), source.read_manifest(folder, name).decode("utf-8")
