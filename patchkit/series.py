"""From bundles to steps: which variant fits what is installed, and which file each patch
path means there.

Owns the reading of a bundle's patches for one environment.  Must not look at the contents
of the files to be patched, and must not change anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import bundles as source
from .distributions import (
    Distribution,
    find_distribution,
    list_distributions,
    owner,
    tree_distribution,
)
from .editable import find_git
from .environment import Environment
from .errors import PatchkitError, Refused
from .fsio import MAX_FILE, digest
from .manifest import parse_manifest
from .mapping import Form, Known, Mapped, Mapping, map_patch, map_stripped
from .model import Bundle, Patch
from .patchfile import parse
from .plan import Key, Step, reverse_file
from .record import Record
from .stack import follow
from .state import BLOBS, BundleEntry, Home, VariantEntry, read_own


class PatchBytes(NamedTuple):
    """A patch file: its path below ``patches/``, its bytes and their SHA-256."""

    path: str
    data: bytes
    sha256: str


class Part(NamedTuple):
    """What a bundle does to one distribution: the variant chosen and its patch files.

    ``upstream`` and ``unneeded`` say why there are none.  ``how`` it fits is one of
    :data:`~patchkit.fit.How`, or ``proven`` where the assertions hold on the pristine files;
    ``release`` is the one whose files these are, where the version says another.
    """

    distribution: Distribution
    versions: str
    strip: int | None
    upstream: str | None
    patches: tuple[PatchBytes, ...]
    unneeded: str | None = None
    how: str = "version"
    release: str | None = None

    @property
    def reason(self) -> str | None:
        """Why there is nothing to patch; None where there is."""
        return self.upstream or self.unneeded

    def packed(self) -> tuple[str, bytes]:
        """All patches in one, with its SHA-256: a thousand are then one file to write."""
        if len(self.patches) == 1:
            return self.patches[0].sha256, self.patches[0].data
        data = b"".join(patch.data for patch in self.patches)
        return digest(data), data


class Way(NamedTuple):
    """How a loose patch goes on: path parts to drop (None: found by itself), backwards,
    and whether its line ends give way to the file's own."""

    strip: int | None = None
    reverse: bool = False
    eol: bool = False


class Chosen(NamedTuple):
    """A bundle with its variants chosen for an environment.

    ``skipped`` names the distributions that are not installed and not required; ``folder`` is
    the bundle directory that it was read from just now, if it was.
    """

    bundle: Bundle
    manifest: bytes | None
    parts: tuple[Part, ...]
    skipped: tuple[str, ...] = ()
    way: Way = Way()
    notes: tuple[str, ...] = ()
    origin: dict[str, Any] | None = None
    folder: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the bundle has nothing to do in this environment; None where it has, or is a
        setting alone."""
        if not self.parts or any(part.reason is None for part in self.parts):
            return None
        return "; ".join(part.reason or "" for part in self.parts)

    def release(self, distribution: str) -> str | None:
        """The release whose files a distribution has, where the variant was chosen by them."""
        for part in self.parts:
            if part.distribution.name == distribution:
                return part.release
        return None


class Series:
    """The steps of an ordered bundle set, and who owns each file that they touch."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.owners: dict[Key, Distribution] = {}
        self.left_out: list[tuple[str, str, str]] = []
        self.forms: list[tuple[str, str, Form]] = []


def choose_loose(env: Environment, path: str, data: bytes, way: Way) -> Chosen:
    """A loose patch file as a bundle of its own."""
    bundle = source.loose_bundle(path, data)
    part = Part(
        tree_distribution(env), "", way.strip, None, (PatchBytes(bundle.name, data, bundle.sha256),)
    )
    return Chosen(bundle, None, (part,), way=way)


def from_record(
    env: Environment,
    home: Home,
    recorded: Sequence[BundleEntry],
    entry: BundleEntry,
    folder: str = BLOBS,
) -> Chosen:
    """An applied bundle as it was ``recorded`` with others, whatever its directory says now;
    ``folder`` has its bytes."""

    def blob(sha256: str) -> bytes:
        path = f"{home.holder}/{folder}/{sha256}"
        reason = "it is damaged"
        try:
            data = read_own(path, MAX_FILE)
        except OSError as error:
            reason = str(error.strerror)
        else:
            if data is None:
                reason = "it is gone"
            elif digest(data) == sha256:
                return data
        raise PatchkitError(
            f"what was recorded of the bundle cannot be read from {path}: {reason}",
            code="state-damaged",
            bundle=entry["name"],
            hint="patchkit revert --all needs none of it and still works",
        )

    return from_blobs(env, recorded, entry, blob)


def from_blobs(
    env: Environment,
    recorded: Sequence[BundleEntry],
    entry: BundleEntry,
    blob: Callable[[str], bytes],
) -> Chosen:
    """The same, its bytes from wherever ``blob`` gets them by their SHA-256."""

    def unpack(variant: VariantEntry) -> tuple[PatchBytes, ...]:
        data, at, out = blob(variant["pack"]), 0, []
        for path, sha256, size in variant["patches"]:
            out.append(PatchBytes(path, data[at : at + size], sha256))
            at += size
        return tuple(out)

    if entry["loose"]:
        ((name, data, _),) = unpack(entry["variants"][0])
        way = Way(entry["strip"], entry["reverse"], entry["eol"])
        return choose_loose(env, name, data, way)
    assert entry["manifest"] is not None
    data = blob(entry["manifest"])
    bundle = parse_manifest(data, entry["name"])
    parts = []
    for variant in entry["variants"]:
        dist = find_distribution(env, variant["distribution"])
        if dist is None or dist.version != variant["release"]:
            raise Refused(
                f"{variant['distribution']} {variant['release']} was patched by"
                f" {entry['name']}; installed is " + ("none" if dist is None else dist.version),
                code="release-changed",
                bundle=entry["name"],
                hint="apply the set anew: patchkit apply "
                + " ".join(one["name"] for one in recorded)
                + ", or drop its record: patchkit revert --all --forget",
            )
        parts.append(
            Part(
                dist,
                variant["versions"],
                variant["strip"],
                variant["upstream"],
                unpack(variant),
                variant.get("unneeded"),
                release=variant.get("made_for"),
            )
        )
    return Chosen(bundle, data, tuple(parts), origin=entry["origin"])


def build(env: Environment, home: Home, chosen: Sequence[Chosen]) -> Series:
    """Map every patch of an ordered bundle set.  Raises :class:`Refused` with bundle,
    patch and line where one cannot be read or placed."""
    builder = _Builder(env, home)
    for item in chosen:
        for part in item.parts:
            for path, data, sha256 in part.patches:
                try:
                    patch = parse(data, path, sha256)
                    if item.way.reverse:
                        patch = _reversed(patch)
                    builder.add(item, part, patch)
                except PatchkitError as error:
                    raise error.at(bundle=item.bundle.name, patch=path) from None
    return builder.series


def root_name(home: Home, root: str) -> str:
    """A root as the state names it: ``"."`` for the home's own, else absolute."""
    real = os.path.realpath(root)
    return "." if real == os.path.realpath(home.base) else real


def _reversed(patch: Patch) -> Patch:
    files = tuple(reverse_file(file) for file in reversed(patch.files))
    return Patch(patch.name, patch.sha256, files, patch.dep3)


class _Builder:
    def __init__(self, env: Environment, home: Home) -> None:
        self._env = env
        self._home = home
        self._listed: dict[tuple[str, str], Known] = {}  # by root and distribution
        self._mapped: dict[str, list[Mapped]] = {}
        self._names: dict[str, str] = {}
        self._trees: dict[str, TreeKnown] = {}
        self._packages: dict[str, tuple[Distribution, Record]] = {}
        self._rests: dict[str, Distribution] = {}
        self.series = Series()

    def add(self, item: Chosen, part: Part, patch: Patch) -> None:
        dist = part.distribution
        loose = item.bundle.loose
        if loose:
            root, mapping = self._map_loose(patch, part.strip)
        else:
            root = dist.root
            mapping = (
                map_stripped(patch.files, part.strip)
                if part.strip is not None
                else map_patch(patch.files, self._known(dist))
            )
        series = self.series
        name = self._names.get(root)
        if name is None:
            name = self._names[root] = root_name(self._home, root)
        for mapped in mapping.files:
            for path in (mapped.old, mapped.new):
                if path is not None and (name, path) not in series.owners:
                    owner_of = self._owner(root, path) if loose else dist
                    series.owners[(name, path)] = owner_of
            known = [k for (at, _), k in self._listed.items() if at == root]
            if root in self._trees:
                known.append(self._trees[root])
            for paths in known:
                follow(paths, mapped)
            self._mapped.setdefault(root, []).append(mapped)
        series.steps.append(Step(item.bundle.name, patch.name, name, mapping.files, item.way.eol))
        series.left_out += [(item.bundle.name, patch.name, path) for path in mapping.left_out]
        series.forms += [(item.bundle.name, patch.name, form) for form in mapping.forms]

    def _known(self, dist: Distribution) -> Known:
        """What the distribution holds after the patches so far; read when first needed,
        since a given strip level needs none of it."""
        key = (dist.root, dist.name)
        if key not in self._listed:
            known = self._listed[key] = _known(dist)
            for mapped in self._mapped.get(dist.root, ()):
                follow(known, mapped)
        return self._listed[key]

    def _map_loose(self, patch: Patch, strip: int | None) -> tuple[str, Mapping]:
        """The first tree of the environment that the patch fits: its site directories,
        then the sources of editable installs.  Package-relative paths come last, since a
        bare ``utils.py`` fits many packages."""
        roots = list(self._env.search)
        for dist in list_distributions(self._env):
            if dist.kind == "editable" and dist.root and dist.root not in roots:
                roots.append(dist.root)
        if strip is not None:
            mapping = map_stripped(patch.files, strip)
            for root in roots:
                if any(f.old is not None and self._tree(root).has(f.old) for f in mapping.files):
                    return root, mapping
            return roots[0], mapping
        missing: Refused | None = None
        for packages in (False, True):
            for root in roots:
                tree = self._tree(root)
                tree.packages = tree.top_folders() if packages else []
                try:
                    return root, map_patch(patch.files, tree)
                except Refused as error:
                    if error.code != "path-not-found":
                        raise
                    missing = missing or error
        assert missing is not None
        raise missing

    def _tree(self, root: str) -> TreeKnown:
        if root not in self._trees:
            self._trees[root] = TreeKnown(root, [])
        return self._trees[root]

    def _owner(self, root: str, path: str) -> Distribution:
        """Whose file it is; for a new one, whose package it goes into; else the tree's."""
        top = path.split("/", 1)[0]
        if top in self._packages:
            dist, record = self._packages[top]
            if record.rows((path,)):
                return dist
        found = owner(self._env, path)
        if found is None and "/" in path:
            for dist in list_distributions(self._env):
                record_of = Record.load(dist.dist_info) if dist.dist_info else None
                if dist.root == root and record_of and b"\n" + top.encode() + b"/" in record_of.raw:
                    found = dist
                    break
        if found is None:
            return self._owner_of_rest(root)
        if found.dist_info and found.kind == "wheel":
            record_of = Record.load(found.dist_info)
            if record_of is not None:
                self._packages[top] = (found, record_of)
        return found

    def _owner_of_rest(self, root: str) -> Distribution:
        """The tree itself, for what no distribution has."""
        if root not in self._rests:
            tree = tree_distribution(self._env)
            if os.path.realpath(root) != tree.root:
                tree = Distribution("", "", root, "tree", None, *find_git(root))
            self._rests[root] = tree
        return self._rests[root]


def _known(dist: Distribution) -> Known:
    record = Record.load(dist.dist_info) if dist.dist_info and dist.kind == "wheel" else None
    if record is not None:
        return Known(path for path in record.paths() if ".dist-info/" not in path)
    return TreeKnown(dist.root)


class TreeKnown(Known):
    """A directory without RECORD: asks the file system for each path."""

    def __init__(self, root: str, packages: Sequence[str] | None = None) -> None:
        super().__init__(())
        self._root = root
        self._gone: set[str] = set()
        self._on_disk: dict[str, bool] = {}
        self.packages = list(packages) if packages is not None else self.top_folders()

    def top_folders(self) -> list[str]:
        """The package folders at the top of the tree."""
        with os.scandir(self._root) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.is_dir()
                and not entry.name.startswith(".")
                and not entry.name.endswith((".dist-info", ".egg-info"))
                and entry.name != "__pycache__"
            )

    def has(self, path: str) -> bool:
        """Asks the disk, but for what the patches before made or removed."""
        if path in self.paths:
            return True
        if path in self._gone:
            return False
        if path not in self._on_disk:
            full = os.path.join(self._root, path)
            self._on_disk[path] = os.path.isfile(full) or os.path.islink(full)
        return self._on_disk[path]

    def has_folder(self, folder: str) -> bool:
        """Likewise for a folder."""
        return super().has_folder(folder) or os.path.isdir(os.path.join(self._root, folder))

    def discard(self, path: str) -> None:
        """Note that the disk is ahead: a patch removes this file."""
        super().discard(path)
        self._gone.add(path)

    def named(self, names: set[str]) -> list[str]:
        """Walks the whole tree: bare file names are rare."""
        from .fsio import walk_files

        return [
            path for path in walk_files(self._root) if path.rpartition("/")[2] in names
        ] + super().named(names)
