"""What was edited as patches of a bundle, new or there already.

Owns how a new bundle, or a new variant of one, looks: an exact range, the author's to widen,
the digests of the pristine files in the lock, JIT caches named, assertions that were tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from patchkit import bundles as source
from patchkit.compiled import judged
from patchkit.errors import Refused
from patchkit.jit import cache_of
from patchkit.manifest import select_variant, version_matches
from patchkit.mapping import map_stripped
from patchkit.model import Assertion, Bundle, FileState, Pristine, Variant
from patchkit.patchfile import parse
from patchkit.releases.sources import Settings
from patchkit.writing import manifests
from patchkit.writing.bundle import Draft, finish, load, revise
from patchkit.writing.headers import Head, patch_names

from . import kernels, place, suggest
from .scratch import Files, diff_of
from .unparsed import unparsed

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


def _variant(versions: str, paths: Sequence[str]) -> dict[str, object]:
    return {"versions": versions, "strip": STRIP, "patches": paths}


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
        notes += _unparsed(piece)
        text = manifests.add_variant(text, piece.distribution, _variant(versions, paths))
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


def add(
    folder: str,
    name: str,
    piece: Piece,
    settings: Settings,
    *,
    message: str,
    with_asserts: bool = True,
    asserts: Sequence[Assertion] = (),
    confirm: Callable[[list[Assertion]], bool] | None = None,
    generators: Callable[[str], Mapping[str, bytes]] | None = None,
) -> Draft:
    """Patches for one release in a bundle that is there (:func:`extend`), or else in a new one
    (:func:`make`), whose summary is the first line of ``message``."""
    if name in source.list_names(folder):
        return extend(
            *(folder, name, piece, settings),
            with_asserts=with_asserts,
            asserts=asserts,
            confirm=confirm,
            generators=generators,
        )
    subject, _, text = message.partition("\n")
    return make(
        name,
        [piece],
        summary=subject,
        description=text,
        with_asserts=with_asserts,
        asserts=asserts,
        confirm=confirm,
        generators=generators,
    )


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
    bundle, before = load(folder, name)
    text = before
    target = next((t for t in bundle.targets if t.distribution == piece.distribution), None)
    variant = None if target is None else select_variant(target, piece.version)
    notes: list[str] = []
    subjects = [change.head.subject for change in piece.changes]
    if variant is None:
        versions, prefix = exact(piece.version), ""
        paths = patch_names(folder_of(name, piece), subjects)
        text = manifests.add_variant(text, piece.distribution, _variant(versions, paths))
    else:
        versions = variant.versions
        paths = _further_names(folder, bundle, piece, variant)
        last = source.read_patch(folder, bundle, variant.patches[-1])
        prefix = prefix_of(last, variant.strip)
        text = manifests.edit_patches(
            text,
            lambda dist, ranges, have: (
                [*have, *paths] if (dist, ranges) == (piece.distribution, versions) else have
            ),
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
    notes += _unparsed(piece)
    wrong = outdated(bundle, piece.distribution, piece.version, states, notes)
    text = manifests.drop_assertions(text, wrong)
    text = manifests.add_assertions(text, found)
    for kind, names in cache_names(piece, made, notes, generators).items():
        text = manifests.add_caches(text, kind, names)
    files = tuple(sorted(piece.pristine.items()))
    own = Pristine(piece.distribution, versions, (piece.version,), files)
    return revise(folder, name, before, text, made, settings, asserts=found, notes=notes, own=own)


def _unparsed(piece: Piece) -> list[str]:
    before: dict[str, FileState | None] = {}
    after: dict[str, FileState | None] = {}
    for change in piece.changes:
        before = {**change.before, **before}
        after.update(change.after)
    return [*unparsed(before, after)]


def _further_names(folder: str, bundle: Bundle, piece: Piece, variant: Variant) -> list[str]:
    """Names for patches behind those of a variant.  Raises :class:`Refused` where it has none,
    or where a file has the name."""
    if variant.reason is not None:
        raise Refused(
            f"{bundle.name} says that {piece.distribution} {variant.versions} needs no patch",
            code="no-patches",
            bundle=bundle.name,
            hint=f"take that out of manifests/{bundle.name}.toml first",
        )
    where = variant.patches[-1].rpartition("/")[0]
    subjects = [change.head.subject for change in piece.changes]
    paths = patch_names(where, subjects, len(variant.patches) + 1)
    for path in paths:
        if place.is_there(folder, f"patches/{path}"):
            raise Refused(
                f"there is a patch file {path} already",
                code="patch-exists",
                bundle=bundle.name,
                patch=path,
                hint="say it in other words: -m TEXT",
            )
    return paths


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
