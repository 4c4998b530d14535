"""A bundle in memory, before anything is written: manifest, patches, lock.

Owns how a new bundle, or a new variant of one, looks: an exact range, the author's to widen,
the digests of the pristine files in the lock, JIT caches named, assertions that were tried.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from patchkit import bundles as source
from patchkit.compiled import judged
from patchkit.errors import Refused, UsageError
from patchkit.fsio import digest
from patchkit.jit import cache_of
from patchkit.lint import named_patches
from patchkit.manifest import parse_manifest, render_lock, select_variant, version_matches
from patchkit.mapping import map_stripped
from patchkit.model import Assertion, Bundle, FileState, Pristine
from patchkit.patchfile import parse
from patchkit.releases.locking import pristine_entries
from patchkit.releases.sources import Settings

from . import kernels, manifests, place, suggest
from .headers import Head, patch_names
from .scratch import Files, diff_of

#: Paths in patches begin at the package, behind git's a/ and b/.
STRIP = 1


class Change(NamedTuple):
    """One patch to be: a head, and the files before and after."""

    head: Head
    before: Files
    after: Files

    def render(self, prefix: str = "") -> bytes:
        """The patch file.  Raises :class:`Refused` where nothing changes."""
        diff = diff_of(self.before, self.after, prefix)
        if not diff:
            raise Refused(
                f"{self.head.subject}: nothing changes",
                code="no-change",
                hint="edit a file first, or leave it out",
            )
        return self.head.render() + diff


class Piece(NamedTuple):
    """What is made for one distribution: its release, and the patches in their order.

    ``pristine`` are the digests of the files as upstream delivered them.
    """

    distribution: str
    version: str
    changes: Sequence[Change]
    pristine: Mapping[str, str]


class Draft(NamedTuple):
    """A bundle to be written; ``contents`` maps paths in the bundle directory to bytes."""

    bundle: Bundle
    contents: dict[str, bytes | None]
    asserts: list[Assertion]
    notes: list[str]

    @property
    def manifest(self) -> bytes:
        """The manifest's bytes."""
        data = self.contents[f"manifests/{self.bundle.name}.toml"]
        assert data is not None
        return data

    def patch(self, path: str) -> bytes:
        """A patch file's bytes."""
        data = self.contents[f"patches/{path}"]
        assert data is not None
        return data

    def as_json(self, folder: str) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "bundle": self.bundle.name,
            "folder": folder,
            "patches": named_patches(self.bundle),
            "asserts": [
                {
                    "distribution": one.distribution,
                    "file": one.file,
                    "lines": manifests.assertion_table(one).splitlines(),
                }
                for one in self.asserts
            ],
            "caches": {kind: list(names) for kind, names in self.bundle.caches},
        }


def exact(version: str) -> str:
    """The range that means one release, also where its version is none by PEP 440."""
    from packaging.version import InvalidVersion, Version

    try:
        Version(version)
    except InvalidVersion:
        return f"==={version}"
    return f"=={version}"


def folder_of(name: str, piece: Piece) -> str:
    """Where the patches of a variant go, below ``patches/``."""
    return f"{name}/{piece.distribution}-{piece.version}"


def make(
    name: str,
    pieces: Sequence[Piece],
    *,
    summary: str,
    description: str = "",
    requires: Sequence[str] = (),
    with_asserts: bool = True,
    asserts: Sequence[Assertion] = (),
    confirm: Callable[[list[Assertion]], bool] | None = None,
    generators: Callable[[str], Mapping[str, bytes]] | None = None,
) -> Draft:
    """A new bundle with one variant a distribution.  ``confirm`` is asked about the assertions;
    ``generators`` gives the text of what makes a distribution's kernels."""
    text = manifests.new_manifest(name, summary, description, requires)
    patches: dict[str, bytes] = {}
    found = list(asserts)
    pristine = []
    notes: list[str] = []
    for piece in pieces:
        versions = exact(piece.version)
        paths = patch_names(folder_of(name, piece), [c.head.subject for c in piece.changes])
        made = dict(zip(paths, (change.render() for change in piece.changes), strict=True))
        patches.update(made)
        text = manifests.add_variant(text, piece.distribution, versions, paths, STRIP)
        files = tuple(sorted(piece.pristine.items()))
        if files:
            pristine.append(Pristine(piece.distribution, versions, (piece.version,), files))
        if with_asserts and not asserts:
            found += suggested(piece, made)
        for kind, names in cache_names(piece, made, notes, generators).items():
            text = manifests.add_caches(text, kind, names)
    if found and confirm is not None and not confirm(found):
        found = []
    text = manifests.add_assertions(text, found)
    return finish(name, text, patches, pristine, found, notes)


def finish(
    name: str,
    text: str,
    patches: Mapping[str, bytes],
    pristine: Iterable[Pristine],
    asserts: list[Assertion],
    notes: list[str],
    gone: Iterable[str] = (),
) -> Draft:
    """The files of a bundle, checked: manifest, patches (all that it names), lock; ``gone``
    are patch files that are to be removed."""
    manifest = manifests.checked(text, name)
    digests = {path: digest(data) for path, data in patches.items()}
    lock = render_lock(digests, pristine)
    bundle = parse_manifest(manifest, name, lock if digests else None)
    contents: dict[str, bytes | None] = {f"patches/{path}": data for path, data in patches.items()}
    contents.update({f"patches/{path}": None for path in gone if path not in patches})
    contents[f"manifests/{name}.toml"] = manifest
    if digests:
        contents[f"manifests/{name}.lock"] = lock
    return Draft(bundle, contents, asserts, notes)


def extend(
    folder: str,
    name: str,
    piece: Piece,
    settings: Settings,
    *,
    with_asserts: bool = True,
    asserts: Sequence[Assertion] = (),
    confirm: Callable[[list[Assertion]], bool] | None = None,
    generators: Callable[[str], Mapping[str, bytes]] | None = None,
) -> Draft:
    """A bundle that is there, with further patches: behind those of the variant that is for the
    release, or in a variant of their own.  ``asserts`` come first among the suggested."""
    bundle = source.load_bundle(folder, name)
    text = source.read_manifest(folder, name).decode("utf-8")
    target = next((t for t in bundle.targets if t.distribution == piece.distribution), None)
    variant = None if target is None else select_variant(target, piece.version)
    notes: list[str] = []
    versions = exact(piece.version)
    subjects = [change.head.subject for change in piece.changes]
    if variant is None:
        paths = patch_names(folder_of(name, piece), subjects)
        text = manifests.add_variant(text, piece.distribution, versions, paths, STRIP)
        prefix = ""
    else:
        if variant.reason is not None:
            raise Refused(
                f"{name} says that {piece.distribution} {variant.versions} needs no patch",
                code="no-patches",
                bundle=name,
                hint=f"take that out of manifests/{name}.toml first",
            )
        versions = variant.versions
        where = variant.patches[-1].rpartition("/")[0]
        paths = patch_names(where, subjects, len(variant.patches) + 1)
        last = source.read_patch(folder, bundle, variant.patches[-1])
        prefix = prefix_of(last, variant.strip)
        text = manifests.edit_patches(
            text,
            lambda dist, ranges, have: (
                [*have, *paths] if (dist, ranges) == (piece.distribution, versions) else have
            ),
        )
        taken = [path for path in paths if place.is_there(folder, f"patches/{path}")]
        if taken:
            raise Refused(
                f"there is a patch file {taken[0]} already",
                code="patch-exists",
                bundle=name,
                patch=taken[0],
                hint="say it in other words: -m TEXT",
            )
    made = {path: change.render(prefix) for path, change in zip(paths, piece.changes, strict=True)}
    found = list(asserts)
    if with_asserts and not found:
        found = suggested(piece, made, strip=None if variant is None else variant.strip)
    if len([v for t in bundle.targets for v in t.variants]) > (variant is not None):
        found = [one._replace(versions=versions) for one in found]
    if found and confirm is not None and not confirm(found):
        found = []
    if not with_asserts:
        found = []
    states = {path: state for change in piece.changes for path, state in change.after.items()}
    wrong = outdated(bundle, piece.distribution, piece.version, states, notes)
    text = manifests.drop_assertions(text, wrong)
    text = manifests.add_assertions(text, found)
    for kind, names in cache_names(piece, made, notes, generators).items():
        text = manifests.add_caches(text, kind, names)
    files = tuple(sorted(piece.pristine.items()))
    own = Pristine(piece.distribution, versions, (piece.version,), files)
    return revise(folder, name, text, made, settings, asserts=found, notes=notes, own=own)


def outdated(
    bundle: Bundle,
    distribution: str,
    version: str,
    states: Mapping[str, FileState | None],
    notes: list[str],
) -> list[int]:
    """The assertions of a bundle that do not hold any more when files are as ``states`` says,
    counted from 0; each is said.  Raises :class:`Refused` where they are about other releases,
    too."""
    found = []
    for number, one in enumerate(bundle.asserts):
        state = states.get(one.file)
        if one.distribution != distribution or one.file not in states:
            continue
        if one.versions and not version_matches(one.versions, version):
            continue
        finding = judged(one, None if state is None else state.data, lambda path: None)
        if finding.ok or one.defined:
            continue
        said = f"{one.key} on {one.file}: {finding.message}"
        if sum(len(t.variants) for t in bundle.targets if t.distribution == one.distribution) > 1:
            raise Refused(
                f"what the bundle asserts would not hold any more: {said}",
                code="assertion-failed",
                bundle=bundle.name,
                file=one.file,
                hint="give that assertion a range (versions = …) without this release first",
            )
        found.append(number)
        notes.append(f"an assertion is dropped, as it would not hold any more: {said}")
    return found


def revise(
    folder: str,
    name: str,
    text: str,
    made: Mapping[str, bytes],
    settings: Settings,
    *,
    asserts: Sequence[Assertion] = (),
    notes: Sequence[str] = (),
    own: Pristine | None = None,
) -> Draft:
    """A bundle that is there with another manifest and other patches, and the lock for them.

    What the lock says of releases is proven anew on those that are at hand; ``own`` is an
    entry that is known to hold.  Patches that no variant names any more are removed.
    """
    before = source.load_bundle(folder, name)
    bundle = parse_manifest(manifests.checked(text, name), name)
    patches = {
        path: made[path] if path in made else source.read_patch(folder, before, path)
        for path in named_patches(bundle)
    }
    bundle = bundle._replace(lock=before.lock, pristine=before.pristine)
    offline, settings.offline = settings.offline, True
    try:
        entries = pristine_entries(bundle, patches.__getitem__, settings)
    finally:
        settings.offline = offline
    if own is not None and own.files and not _covers(entries, own):
        entries.append(own)
    gone = [path for path in named_patches(before) if path not in patches]
    return finish(name, text, patches, entries, list(asserts), list(notes), gone)


def prefix_of(data: bytes, strip: int | None) -> str:
    """What stands between ``a/`` and the package in the paths of a patch, by its strip level:
    ``python/`` in patches of SGLang's own.  Raises :class:`Refused` where there is no ``a/``."""
    if strip is None:
        return ""
    if strip == 0:
        raise Refused(
            "the variant has strip = 0; patches are written with a/ and b/",
            code="strip-0",
            hint="write its patches anew: patchkit import",
        )
    parts = parse(data, "").files[0].path.split("/")[1:strip]
    return "".join(f"{part}/" for part in parts)


def _covers(entries: Sequence[Pristine], own: Pristine) -> bool:
    return any(
        (one.distribution, one.versions) == (own.distribution, own.versions)
        and own.releases[0] in one.releases
        for one in entries
    )


def suggested(
    piece: Piece, made: Mapping[str, bytes], *, strip: int | None = STRIP
) -> list[Assertion]:
    """Assertions on what the last patch of each file leaves, by what all of them change."""
    first: dict[str, FileState | None] = {}
    last: dict[str, FileState | None] = {}
    blocks: dict[str, list[suggest.Block]] = {}
    for change, (path, data) in zip(piece.changes, made.items(), strict=True):
        for file in change.before:
            first.setdefault(file, change.before[file])
            last[file] = change.after.get(file)
        for file, state in change.after.items():
            first.setdefault(file, None)
            last[file] = state
        for mapped in map_stripped(parse(data, path).files, strip or STRIP).files:
            blocks.setdefault(mapped.path, []).extend(suggest.blocks(mapped.patch))
    found: list[Assertion] = []
    for file in sorted(blocks):
        before, after = first.get(file), last.get(file)
        if after is None or b"\0" in after.data:
            continue
        was = None if before is None else before.data
        found += [
            one
            for one in suggest.suggestions(piece.distribution, file, was, after.data, blocks[file])
            if one not in found
        ]
    return found


def cache_names(
    piece: Piece,
    made: Mapping[str, bytes],
    notes: list[str],
    generators: Callable[[str], Mapping[str, bytes]] | None,
) -> dict[str, list[str]]:
    """The JIT modules to set aside, by their cache; where nothing names one, the source's own
    name, said."""
    touched = {file for change in piece.changes for file in {**change.before, **change.after}}
    touched = {file for file in touched if kernels.concerns(file)}
    if not touched:
        return {}
    known = {} if generators is None else dict(generators(piece.distribution))
    for change in piece.changes:
        known.update({p: state.data for p, state in change.after.items() if state is not None})
    lines: dict[str, set[int]] = {}
    for path, data in made.items():
        for part in parse(data, path).files:
            numbers = {at for block in suggest.blocks(part) for at, _ in block.new}
            lines.setdefault(part.path.partition("/")[2], set()).update(numbers)
    names: dict[str, set[str]] = {}
    for file in sorted(touched):
        here = next((found for path, found in lines.items() if path.endswith(file)), set())
        found = kernels.modules_of(file, known, here)
        if not found:
            found = [file.rpartition("/")[2].partition(".")[0]]
            notes.append(
                f"{file} is compiled by a JIT, and nothing says into which module: [caches] names"
                f" {found[0]}; see that it is right"
            )
        names.setdefault(cache_of(file), set()).update(found)
    return {kind: sorted(some) for kind, some in sorted(names.items())}


def author(environ: Mapping[str, str], given: str | None) -> str | None:
    """``--author``, else who git says that commits are by; None where nobody says it."""
    if given is not None:
        if "<" not in given:
            raise UsageError(f"--author: {given!r} has no address", hint="NAME <ADDRESS>")
        return given
    name = environ.get("GIT_AUTHOR_NAME") or _git_config("user.name")
    mail = environ.get("GIT_AUTHOR_EMAIL") or _git_config("user.email")
    return f"{name} <{mail}>" if name and mail else None


def _git_config(key: str) -> str:
    from patchkit.gitsource import configured

    return configured(key)


def today(environ: Mapping[str, str]) -> str:
    """The date for Last-Update; ``SOURCE_DATE_EPOCH`` (seconds) counts where it is set."""
    import datetime

    epoch = environ.get("SOURCE_DATE_EPOCH", "")
    if epoch.isdecimal():
        return datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).date().isoformat()
    return datetime.date.today().isoformat()


def relative(path: str, cwd: str) -> str:
    """A path for a person: from the working directory, where it lies below it."""
    inside = os.path.relpath(path, cwd)
    return path if inside.startswith("..") else inside
