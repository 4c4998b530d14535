"""A bundle directory's own consistency: manifests, patch files, locks.

Owns what is a problem there and how bad it is.  Only reads: the bytes of a new lock file
are handed to the caller.  unidiff is imported where it is used.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from . import bundles
from .errors import ManifestError, PatchkitError, PatchSyntaxError, Refused
from .jit import cache_of, is_compiled, is_generator
from .manifest import (
    parse_manifest,
    render_lock,
    select_variant,
    split_requirement,
    version_matches,
)
from .mapping import check_path, reaches, strip_path
from .model import Assertion, Bundle, FilePatch, Hunk, Patch, Pristine, Target, Variant, split
from .recount import recount

if TYPE_CHECKING:
    from packaging.version import Version
    from unidiff.patch import Hunk as UnidiffHunk
    from unidiff.patch import PatchedFile

Severity = Literal["error", "warning"]
Parse = Callable[[bytes, str], Patch]
#: (bundle, reader of its patch files) → what its variants were made for.
MadeFor = Callable[[Bundle, Callable[[str], bytes]], Iterable[Pristine]]
TargetBytes = Callable[[str, str], "bytes | None"]

#: Lines of context that a hunk should have on each side: with one, real patches landed in
#: the wrong function of 18 of 45 FlashInfer releases, with three in none.
CONTEXT = 3
_UPDATE = "patchkit lint --update-lock"


class Problem(NamedTuple):
    """One finding.  ``file`` is relative to the bundle directory, ``line`` counts from 1;
    ``kind`` is a kebab-case word for scripts."""

    kind: str
    severity: Severity
    file: str
    line: int | None
    message: str
    hint: str | None = None


# -- public -----------------------------------------------------------------------------


def lint_bundle(
    folder: str,
    name: str,
    *,
    update_lock: bool = False,
    parse: Parse | None = None,
    target_bytes: TargetBytes | None = None,
    versions: Mapping[str, str] | None = None,
) -> list[Problem]:
    """All problems of one bundle, by file and line.

    ``update_lock``: the lock is about to be written anew, so what is there is not judged.
    ``target_bytes(distribution, path)`` gives the pristine bytes of an installed file, or
    None; ``versions`` maps the installed distributions to their releases, so that only the
    variants made for them are held against these bytes.  Raises :class:`Refused` where
    there is no such bundle.
    """
    data = bundles.read_manifest(folder, name)
    try:
        bundle = parse_manifest(data, name)
    except ManifestError as error:
        return _from_manifest_error(error, "manifest", f"manifests/{name}.toml")
    found: list[Problem] = []
    if not update_lock:
        bundle = _with_lock(folder, bundle, data, found)
    found += _lint_manifest(bundle)
    found += _lint_relations(folder, bundle)
    found += _lint_orphans(folder, bundle)
    patches = _read_patches(folder, bundle, parse or _parse(), found)
    found += _lint_caches(bundle, patches)
    found += _lint_assertions(bundle, patches)
    if target_bytes is not None:
        found += _lint_against_target(bundle, patches, target_bytes, versions)
    return sorted(found, key=lambda p: (p.file, p.line or 0))


def lint_directory(folder: str) -> list[Problem]:
    """What belongs to no bundle: lock files without a manifest, folders of patches whose
    bundle does not exist."""
    names = set(bundles.list_names(folder))
    found: list[Problem] = []
    for entry in _listing(os.path.join(folder, "manifests")):
        if entry.endswith(".lock") and entry[: -len(".lock")] not in names:
            file = f"manifests/{entry}"
            found.append(Problem("orphan-lock", "error", file, None, "a lock without a manifest"))
    for entry in _listing(os.path.join(folder, "patches")):
        files = [] if entry in names else list(_patch_files(folder, entry))
        if files:
            text = f"holds {len(files)} patch files, but there is no manifests/{entry}.toml"
            found.append(Problem("orphan-folder", "warning", f"patches/{entry}", None, text))
    return found


def lint_patch_file(file: str, data: bytes) -> list[Problem]:
    """What a patch file says by itself, without a target: whether it can be read, and what
    may surprise who applies it.  ``file`` is its name in the findings."""
    try:
        patch = _parse()(data, file)
    except PatchSyntaxError as error:
        return [_unreadable(file, data, error)]
    return sorted(_lint_reading(file, data, patch), key=lambda problem: problem.line or 0)


def _unreadable(file: str, data: bytes, error: PatchSyntaxError) -> Problem:
    hint = error.hint
    fixed, found = recount(data)
    if any(not one.unclear for one in found):
        try:
            _parse()(fixed, file)
        except PatchSyntaxError:
            pass
        else:
            lines = ", ".join(str(one.line) for one in found)
            hint = f"the counts are wrong in line {lines}; patchkit lint --fix counts anew"
    return Problem(error.code, "error", file, error.line, error.message, hint)


def lock_bytes(folder: str, name: str, made_for: MadeFor | None = None) -> bytes | None:
    """What ``manifests/NAME.lock`` should hold now; the caller writes it.  None where there
    is nothing to lock: no patch and no lock, or a patch that cannot be read (cut off, say).

    ``made_for`` gives what is known of the releases that the variants were made for.

    Raises :class:`Refused` where a patch file is missing or the manifest is wrong.
    """
    bundle = parse_manifest(bundles.read_manifest(folder, name), name)
    parse = _parse()
    digests = {}
    for path in named_patches(bundle):
        data = bundles.read_patch_file(folder, path, name)
        try:
            parse(data, path)
        except PatchSyntaxError:
            return None
        digests[path] = hashlib.sha256(data).hexdigest()
    if not digests and bundles.read_lock(folder, name) is None:
        return None
    pristine: Iterable[Pristine] = ()
    if made_for is not None:
        with suppress(ManifestError):  # a damaged lock says nothing
            bundle = bundles.load_bundle(folder, name)
        pristine = made_for(bundle, lambda path: bundles.read_patch_file(folder, path, name))
    return render_lock(digests, pristine)


def named_patches(bundle: Bundle) -> list[str]:
    """Every patch file that a variant names, each once, in the manifest's order."""
    paths = (p for target in bundle.targets for v in target.variants for p in v.patches)
    return list(dict.fromkeys(paths))


def diffstat(data: bytes) -> list[tuple[str, int, int]]:
    """(path, lines added, lines removed) of each file of a patch, in its order.

    Counted by unidiff, and by patchkit's own reading where unidiff is known to be wrong.
    Paths are without git's ``a/`` and ``b/``.  Raises :class:`PatchSyntaxError`.
    """
    patch = _parse()(data, "")
    theirs = _unidiff(data, patch)
    if theirs is not None and _differences(patch, theirs):
        theirs = None
    others = iter(theirs or ())
    found: list[tuple[str, int, int]] = []
    for file in patch.files:
        other = next(others, None) if file.hunks else None
        if other is not None:
            counts = other.added, other.removed
        else:
            signs = b"".join(hunk.signs for hunk in file.hunks)
            counts = signs.count(b"+"), signs.count(b"-")
        found.append((_bare(file.path, file), *counts))
    return found


def probe_versions(specifiers: Iterable[str]) -> list[str]:
    """Versions at and just above every boundary of the given ranges, the shortest first.
    Ranges that share a version share one of these."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    found = {"0", "0.dev0"}
    boundaries: list[Version] = []
    for text in specifiers:
        for one in SpecifierSet(text):
            if one.operator == "===":
                found.add(one.version)
            else:
                boundaries.append(Version(one.version.removesuffix(".*")))
    depth = max((len(version.release) for version in boundaries), default=0)
    for version in boundaries:
        found |= _around(version, depth)
    return sorted(found, key=lambda version: (len(version), version))


# -- the manifest -----------------------------------------------------------------------


def _from_manifest_error(error: ManifestError, kind: str, file: str) -> list[Problem]:
    return [Problem(kind, "error", file, error.line, text, error.hint) for text in error.detail]


def _with_lock(folder: str, bundle: Bundle, data: bytes, found: list[Problem]) -> Bundle:
    """The bundle with its lock; problems of the lock file are no reason to stop."""
    file = f"manifests/{bundle.name}.lock"
    lock = bundles.read_lock(folder, bundle.name)
    named = named_patches(bundle)
    update = f"{_UPDATE} {bundle.name}"
    if lock is None:
        if named:
            text = f"there is no lock for {len(named)} patch files"
            found.append(Problem("not-locked", "error", file, None, text, update))
        return bundle
    try:
        bundle = parse_manifest(data, bundle.name, lock)
    except ManifestError as error:
        broken = _from_manifest_error(error, "lock", file)
        found += [problem._replace(hint=update) for problem in broken]
        return bundle
    for path, _ in bundle.lock or ():
        if path not in named:
            text = f"{path} is locked, but no variant names it"
            found.append(Problem("lock-stale", "error", file, None, text, update))
    found += (Problem("lock-stale", "error", file, None, t, update) for t in _stale(bundle))
    return bundle


def _stale(bundle: Bundle) -> Iterator[str]:
    """What the lock says of releases, and the manifest does not."""
    ranges = {(t.distribution, v.versions) for t in bundle.targets for v in t.variants if v.patches}
    for one in bundle.pristine:
        where = f"{one.distribution} {one.versions}".rstrip()
        if (one.distribution, one.versions) not in ranges:
            yield f"it names files of {where}, for which there is no variant with patches"
            continue
        for release in one.releases:
            if not version_matches(one.versions, release):
                yield f"{release} is not in the range of the variant {where}"


def _lint_manifest(bundle: Bundle) -> Iterator[Problem]:
    def problem(kind: str, severity: Severity, message: str, hint: str | None = None) -> Problem:
        return Problem(kind, severity, f"manifests/{bundle.name}.toml", None, message, hint)

    if not bundle.summary.strip():
        text = "summary: is missing; patchkit list shows it"
        yield problem("no-summary", "warning", text)
    profile = bundle.profile
    if not (bundle.targets or bundle.requires or profile.env or profile.args or profile.variants):
        yield problem("empty-bundle", "error", "no target, no profile, no required bundle")
    for key, text in _ranges(bundle):
        if not any(version_matches(text, version) for version in probe_versions([text])):
            yield problem("empty-range", "error", f"{key}: no version can be {text}")
    for number, target in enumerate(bundle.targets):
        for key, message in _overlaps(target):
            hint = "narrow the ranges so that one release has one variant"
            yield problem("overlap", "error", f"target[{number}].{key}: {message}", hint)
    prefix = f"{bundle.name}/"
    for path in named_patches(bundle):
        if not path.startswith(prefix):
            yield problem("patch-elsewhere", "warning", f"{path} is not below patches/{prefix}")


def _ranges(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """Every version range of a manifest with its key path."""
    for number, text in enumerate(bundle.requires):
        yield f"requires[{number}]", split_requirement(text)[1]
    for number, target in enumerate(bundle.targets):
        for index, variant in enumerate(target.variants):
            yield f"target[{number}].variant[{index}].versions", variant.versions
    for assertion in bundle.asserts:
        yield f"{assertion.key}.versions", assertion.versions or ""
    for number, one in enumerate(bundle.profile.variants):
        yield f"profile.variant[{number}].versions", one.versions


def _overlaps(target: Target) -> Iterator[tuple[str, str]]:
    variants = target.variants
    for second in range(len(variants)):
        for first in range(second):
            ranges = (variants[first].versions, variants[second].versions)
            for version in probe_versions(ranges):
                if all(version_matches(text, version) for text in ranges):
                    message = f"{target.distribution} {version} is in variant[{first}] too"
                    yield f"variant[{second}].versions", message
                    break


def _around(version: Version, depth: int) -> set[str]:
    """A boundary and the least versions above it, for each reading that PEP 440 gives it.

    Nothing below it is needed: what ranges share begins at a boundary, right behind one, or
    at the least version of all.  No boundary has more than ``depth`` parts, so that one more
    is near enough.
    """
    epoch = f"{version.epoch}!" if version.epoch else ""
    release = version.release
    # Behind ">V", which leaves out the post-releases of V; behind "V.*" at each length.
    near = [release, (*release, *(0,) * (depth - len(release)), 1)]
    near += [(*release[:n], release[n] + 1) for n in range(len(release))]
    plain = [epoch + ".".join(map(str, parts)) for parts in near]
    found = {str(version)}
    found |= {text + end for text in plain for end in ("", ".dev0", ".post0.dev0")}
    text = plain[0]
    if version.pre is not None:
        letter, number = version.pre
        found.add(f"{text}{letter}{number + 1}.dev0")
        text += f"{letter}{number}"
        found.add(f"{text}.post0.dev0")
    if version.post is not None:
        found.add(f"{text}.post{version.post + 1}.dev0")
        text += f".post{version.post}"
    if version.dev is not None:
        found |= {text, f"{text}.dev{version.dev + 1}"}
    return found


def _lint_relations(folder: str, bundle: Bundle) -> Iterator[Problem]:
    """Required and conflicting bundles: known, of a fitting version, free of cycles."""
    file = f"manifests/{bundle.name}.toml"
    known = bundles.list_names(folder)
    for name in bundle.conflicts:
        if name not in known:
            # A bundle of another directory is a fair thing to exclude; a slip is likelier.
            text = f"conflicts: there is no bundle {name} here"
            yield Problem("unknown-bundle", "warning", file, None, text, _nearest(name, known))

    def load(name: str) -> Bundle:
        return bundle if name == bundle.name else bundles.load_bundle(folder, name)

    try:
        order = bundles.resolve_order([bundle.name], load)
        bundles.check_conflicts(order)
    except ManifestError as error:
        text = f"requires: {error.message}"
        yield Problem("requires-broken", "error", file, None, text, error.hint)
    except Refused as error:
        yield Problem(error.code, "error", file, None, f"requires: {error.message}", error.hint)


def _nearest(name: str, known: Sequence[str]) -> str | None:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else None


# -- the patch files --------------------------------------------------------------------


def _parse() -> Parse:
    from .patchfile import parse

    return parse


def _read_patches(
    folder: str, bundle: Bundle, parse: Parse, found: list[Problem]
) -> dict[str, Patch]:
    """The patches that can be read, and what is wrong with each."""
    patches: dict[str, Patch] = {}
    for path in named_patches(bundle):
        file = f"patches/{path}"
        try:
            data = bundles.read_patch_file(folder, path, bundle.name)
        except PatchkitError as error:
            found.append(Problem(error.code, "error", file, None, error.message, error.hint))
            continue
        try:
            bundles.check_lock(bundle, path, data)
        except Refused as error:
            found.append(Problem(error.code, "error", file, None, error.message, error.hint))
        try:
            patch = parse(data, path)
        except PatchSyntaxError as error:
            found.append(_unreadable(file, data, error))
            continue
        patches[path] = patch
        found += _lint_patch(file, data, patch)
    return patches


def _lint_patch(file: str, data: bytes, patch: Patch) -> Iterator[Problem]:
    yield from _lint_dep3(file, patch)
    yield from _lint_reading(file, data, patch)


def _lint_reading(file: str, data: bytes, patch: Patch) -> Iterator[Problem]:
    theirs = _unidiff(data, patch)
    if theirs is not None:
        hint = "one of the two readers is wrong; please report it, with the patch"
        for line, text in _differences(patch, theirs):
            yield Problem("second-opinion", "error", file, line, text, hint)
    yield from _lint_twice(file, patch)
    yield from _lint_line_ends(file, data, patch)
    for part in patch.files:
        yield from _lint_context(file, part)


def _lint_dep3(file: str, patch: Patch) -> Iterator[Problem]:
    names = {key.lower() for key, value in patch.dep3 if value}
    missing = [] if "description" in names else ["Description"]
    if not names & {"origin", "author"}:
        missing.append("Origin or Author")
    if missing:
        text = f"no {' and no '.join(missing)} at the head of the patch (DEP-3)"
        hint = "write it above the first diff line, such as 'Description: why it is needed'"
        yield Problem("dep3", "warning", file, 1, text, hint)


def _lint_twice(file: str, patch: Patch) -> Iterator[Problem]:
    """git and patchkit take the second on what the first made; a reader may not see it."""
    before: set[str] = set()
    after: set[str] = set()
    for part in patch.files:
        # A swap of two names is no repetition, nor are two copies of one file.
        old = None if part.change == "copy" else part.old_path
        sides = ((old, before), (part.new_path, after))
        names = [(_bare(path, part), seen) for path, seen in sides if path is not None]
        if any(name in seen for name, seen in names):
            text = f"{_shown(_bare(part.path, part))} is touched twice in one patch"
            hint = "make it one patch for each change, or one diff of both"
            yield Problem("touched-twice", "warning", file, part.line, text, hint)
        for name, seen in names:
            seen.add(name)


def _lint_line_ends(file: str, data: bytes, patch: Patch) -> Iterator[Problem]:
    lines = split(data)
    for part in patch.files:
        if lines[part.line - 1].endswith(b"\r\n"):
            text = "a header line ends in CR LF"
            hint = "the line ends were converted on the way: fetch the patch again"
            yield Problem("line-ends", "warning", file, part.line, text, hint)
            continue
        places: dict[bool, list[int]] = {True: [], False: []}
        for hunk in part.hunks:
            body = lines[hunk.line : hunk.line + len(hunk.signs)]
            for number, line in enumerate(body, hunk.line + 1):
                if line[:1] != b"\\":
                    places[b"\r" in line].append(number)
        if places[True] and places[False]:
            text = (
                f"{len(places[True])} lines of {_shown(_bare(part.path, part))} hold a CR,"
                f" {len(places[False])} do not"
            )
            rarer = min(places.values(), key=len)
            yield Problem("line-ends", "warning", file, rarer[0], text, "use the file's line ends")


def _lint_context(file: str, part: FilePatch) -> Iterator[Problem]:
    """Hunks with too little context where the patch shows that there was more: lines stand
    above the first old line, or another hunk follows.

    Behind the last hunk only the file knows whether it goes on: a diff with three lines
    before a change and one behind it is what every tool makes at the end of a file.
    """
    if part.change in ("add", "delete"):
        return
    for number, hunk in enumerate(part.hunks, 1):
        short: list[str] = []
        if hunk.leading < CONTEXT and hunk.old_start > bool(hunk.old_text):
            short.append(f"{hunk.leading} before")
        if hunk.trailing < CONTEXT and number < len(part.hunks):
            short.append(f"{hunk.trailing} after")
        if short:
            yield _few(file, hunk, number, short)


def _few(file: str, hunk: Hunk, number: int, short: Sequence[str]) -> Problem:
    text = f"hunk {number} has fewer than {CONTEXT} lines of context: {' and '.join(short)}"
    hint = f"make it with at least {CONTEXT} lines: git diff -U{CONTEXT}"
    return Problem("context", "warning", file, hunk.line, text, hint)


def _lint_caches(bundle: Bundle, patches: Mapping[str, Patch]) -> Iterator[Problem]:
    if bundle.caches:
        return
    for path, patch in patches.items():
        for part in patch.files:
            names = {name for name in (part.old_path, part.new_path) if name is not None}
            if any(is_compiled(name) or is_generator(name) for name in names):
                text = f"{_shown(_bare(part.path, part))} is compiled by a JIT; no cache is named"
                kind = cache_of(part.path)
                hint = f'name what to set aside: [caches] {kind} = ["MODULE"]'
                yield Problem("no-cache", "error", f"patches/{path}", part.line, text, hint)
                break


def _lint_assertions(bundle: Bundle, patches: Mapping[str, Patch]) -> Iterator[Problem]:
    file = f"manifests/{bundle.name}.toml"
    targets = {target.distribution: target for target in bundle.targets}
    for assertion in bundle.asserts:
        target = targets.get(assertion.distribution)
        if target is None:
            if not targets:  # A profile alone may ask whether the release knows its flags.
                continue
            text = f"{assertion.key}.distribution: no target is {assertion.distribution}"
            yield Problem("assertion-target", "error", file, None, text, "add a [[target]] for it")
            continue
        parts = [
            part
            for variant in target.variants
            for path in variant.patches
            if path in patches
            for part in patches[path].files
        ]
        if assertion.versions:  # It was written for the code of these very releases.
            continue
        if parts and not any(reaches(part, assertion.file) for part in parts):
            text = f"{assertion.key}.file: no patch touches {assertion.file}"
            hint = "judge the code that the patch changes, or say for which versions it is"
            yield Problem("assertion-file", "warning", file, None, text, hint)
    for number, target in enumerate(bundle.targets):
        own = [a for a in bundle.asserts if a.distribution == target.distribution]
        for place, variant in enumerate(target.variants):
            if variant.reason is not None and not any(_may_meet(a, variant) for a in own):
                word = "upstream" if variant.upstream else "unneeded"
                text = f"target[{number}].variant[{place}]: no assertion proves that it is {word}"
                hint = "add an [[assert]] that holds on these releases and fails on the others"
                yield Problem("unproven", "warning", file, None, text, hint)
    judged = {assertion.distribution for assertion in bundle.asserts}
    for number, target in enumerate(bundle.targets):
        patched = any(variant.patches for variant in target.variants)
        if patched and target.distribution not in judged:
            text = f"target[{number}]: patches {target.distribution}, and no assertion judges it"
            hint = "add an [[assert]] that fails when the patch does not do its work"
            yield Problem("no-assertion", "warning", file, None, text, hint)


def _may_meet(assertion: Assertion, variant: Variant) -> bool:
    """Whether some version is in the range of both."""
    if not assertion.versions:
        return True
    ranges = [assertion.versions, variant.versions]
    return any(all(version_matches(r, v) for r in ranges) for v in probe_versions(ranges))


def _lint_orphans(folder: str, bundle: Bundle) -> Iterator[Problem]:
    named = set(named_patches(bundle))
    for path in _patch_files(folder, bundle.name):
        if path not in named:
            hint = f"name it in manifests/{bundle.name}.toml, or delete it"
            yield Problem("orphan", "error", f"patches/{path}", None, "no variant names it", hint)


def _patch_files(folder: str, name: str) -> Iterator[str]:
    root = os.path.join(folder, "patches")
    for parent, folders, files in os.walk(os.path.join(root, name)):
        folders.sort()
        for file in sorted(files):
            if bundles.is_loose(file):
                yield os.path.relpath(os.path.join(parent, file), root).replace(os.sep, "/")


def _listing(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


# -- against installed files ------------------------------------------------------------


def _lint_against_target(
    bundle: Bundle,
    patches: Mapping[str, Patch],
    target_bytes: TargetBytes,
    versions: Mapping[str, str] | None,
) -> Iterator[Problem]:
    for target in bundle.targets:
        for variant in _installed_variants(target, versions):
            for path in variant.patches:
                for part in patches[path].files if path in patches else ():
                    if part.change == "add":
                        continue
                    data = _find(part, variant.strip, target.distribution, target_bytes)
                    if data is not None:
                        yield from _lint_places(f"patches/{path}", part, split(data))


def _installed_variants(target: Target, versions: Mapping[str, str] | None) -> Sequence[Variant]:
    if versions is None:
        return target.variants
    version = versions.get(target.distribution)
    try:
        found = None if version is None else select_variant(target, version)
    except ManifestError:  # Overlapping ranges are reported by themselves.
        return ()
    return () if found is None else (found,)


def _find(
    part: FilePatch, strip: int | None, distribution: str, target_bytes: TargetBytes
) -> bytes | None:
    assert part.old_path is not None
    levels = range(part.old_path.count("/") + 1) if strip is None else (strip,)
    for level in levels:
        path = strip_path(part.old_path, level)
        try:
            data = None if path is None else target_bytes(distribution, check_path(path))
        except Refused:  # It would lead out of the distribution.
            continue
        if data is not None:
            return data
    return None


def _lint_places(file: str, part: FilePatch, lines: list[bytes]) -> Iterator[Problem]:
    for number, hunk in enumerate(part.hunks, 1):
        old = hunk.old
        size = len(old)
        places = [
            place + 1
            for place, line in enumerate(lines)
            if size and line == old[0] and tuple(lines[place : place + size]) == old
        ]
        if len(places) > 1:
            shown = ", ".join(map(str, places[:5])) + (", …" if len(places) > 5 else "")
            text = f"the old lines of hunk {number} stand {len(places)} times: at {shown}"
            hint = "give it more context, until it can go to one place only"
            yield Problem("repeated", "warning", file, hunk.line, text, hint)
        last = number == len(part.hunks) and part.change != "delete"
        goes_on = len(places) == 1 and places[0] - 1 + size < len(lines)
        if last and goes_on and hunk.trailing < CONTEXT:
            yield _few(file, hunk, number, [f"{hunk.trailing} after"])


# -- the second opinion -----------------------------------------------------------------


def _unidiff(data: bytes, patch: Patch) -> list[PatchedFile] | None:
    """What unidiff reads, files with hunks only; None for patches of which it is known to
    be wrong (each rule names the fault, seen in 0.7.5 and 1.0.1).

    latin-1 keeps every byte apart, and a StringIO with ``newline="\\n"`` splits there alone.
    Kinds are not compared, as unidiff takes a file emptied but kept for a deleted one,
    content put into an empty file for a new one, and copies for renames.
    """
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    data = data.removeprefix(b"\xef\xbb\xbf")
    if not _is_unidiffs_kind(split(data), patch):
        return None
    text = io.StringIO(data.decode("latin-1"), newline="\n")
    try:
        # A file that is only renamed, or binary, has no hunks there and no error.
        return [file for file in PatchSet(text) if len(file)]
    except UnidiffParseError:
        return []  # No hunk seen: the comparison says so.


# What unidiff takes for a header or a mark, wherever it stands outside of a hunk.
_READ = re.compile(
    rb"--- |\+\+\+ |diff --git |@@ -|Binary files? |GIT binary patch"
    rb"|(?:new|deleted) file mode |\\ No newline"
)
_EXTENDED = re.compile(
    rb"(?:old|new|new file|deleted file) mode |(?:dis)?similarity index |index "
    rb"|(?:rename|copy) (?:from|to|old|new) |GIT binary patch"
)


def _is_unidiffs_kind(lines: Sequence[bytes], patch: Patch) -> bool:
    headers, outside = _regions(lines, patch)
    # Headers inside a commit message make phantom files, or end the reading.
    if any(_READ.match(line) for line in outside):
        return False
    for header in headers:
        names = [line for line in header if line.startswith((b"diff --git ", b"--- ", b"+++ "))]
        # Quoted and octal names come back as they stand; of CRLF, the CR becomes a part of
        # the name.
        if any(b'"' in line or line.endswith(b"\r\n") for line in names):
            return False
        # A name with a blank is cut wrongly out of a "diff --git" line, and then a "+++" line
        # that says something else is refused, also where a hand wrote it so.
        deleted = any(line.startswith(b"deleted file mode ") for line in header)
        if len(names) == 3 and not deleted:
            target = names[0].removesuffix(b"\n").split(b" ")[3:]
            if target != [names[2][4:].removesuffix(b"\n").split(b"\t")[0]]:
                return False
    # A file with nothing but a mode or a new name takes the next one's "---" for its own.
    for part, after in zip(patch.files, patch.files[1:], strict=False):
        if not part.hunks and not after.git:
            return False
    # A "no newline" mark in another language is not seen behind the last line.
    ends = (hunk.line + len(hunk.signs) for part in patch.files for hunk in part.hunks)
    lasts = [line for end in ends for line in lines[end - 1 : end]]
    return not any(last[:1] == b"\\" and not _READ.match(last) for last in lasts)


def _regions(lines: Sequence[bytes], patch: Patch) -> tuple[list[list[bytes]], list[bytes]]:
    """The header lines of each file, and what is neither header nor hunk."""
    headers: list[list[bytes]] = []
    outside: list[bytes] = []
    at = 0
    for part in patch.files:
        start = part.line - 1
        outside += lines[at:start]
        end = start + 1
        if part.hunks:
            end = part.hunks[0].line - 1
            at = part.hunks[-1].line + len(part.hunks[-1].signs)
        else:
            while end < len(lines) and _EXTENDED.match(lines[end]):
                end += 1
            at = end
        headers.append(list(lines[start:end]))
    return headers, outside + list(lines[at:])


def _differences(patch: Patch, theirs: Sequence[PatchedFile]) -> list[tuple[int, str]]:
    """(line in the patch, what differs) where unidiff sees other files, hunks or lines."""
    ours = [part for part in patch.files if part.hunks]
    if len(ours) != len(theirs):
        line = ours[0].line if ours else 1
        return [(line, f"{len(ours)} files with hunks; unidiff sees {len(theirs)}")]
    found: list[tuple[int, str]] = []
    for part, other in zip(ours, theirs, strict=True):
        for path, name in ((part.old_path, other.source_file), (part.new_path, other.target_file)):
            if path is not None and not _same_name(path, name):
                found.append((part.line, f"the name {_shown(path)}; unidiff reads {name!r}"))
        if len(part.hunks) != len(other):
            text = f"{len(part.hunks)} hunks; unidiff sees {len(other)}"
            found.append((part.line, text))
            continue
        for hunk, seen in zip(part.hunks, other, strict=True):
            starts = (seen.source_start, seen.target_start)
            if starts != (hunk.old_start, hunk.new_start):
                found.append((hunk.line, f"unidiff reads other line numbers: {starts}"))
            if _lines(seen) != (hunk.old, hunk.new):
                found.append((hunk.line, "unidiff reads other lines in this hunk"))
    return found


def _lines(hunk: UnidiffHunk) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Old and new lines as patchkit holds them, without the line end that a mark denies."""
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    last: tuple[int, ...] = ()
    for line in hunk:
        if line.line_type == "\\":
            for side in last:
                sides[side][-1] = sides[side][-1].removesuffix(b"\n")
        elif line.line_type:  # Else a blank line behind the hunk.
            last = {"-": (0,), "+": (1,)}.get(line.line_type, (0, 1))
            for side in last:
                sides[side].append(line.value.encode("latin-1"))
    return tuple(sides[0]), tuple(sides[1])


def _same_name(path: str, name: str) -> bool:
    ours, theirs = os.fsencode(path), name.encode("latin-1")
    # GNU diff may put a time behind blanks, which unidiff takes for a part of the name.
    return ours == theirs.rstrip(b" ") or theirs.startswith(ours + b" ")


# -- words ------------------------------------------------------------------------------


def _bare(path: str, part: FilePatch) -> str:
    """A header path without git's ``a/`` or ``b/``."""
    pair = (part.old_path or "a/")[:2], (part.new_path or "b/")[:2]
    return path[2:] if pair == ("a/", "b/") else path


def _shown(path: str) -> str:
    return path if path.isprintable() else ascii(path)[1:-1]
