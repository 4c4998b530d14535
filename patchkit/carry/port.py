"""``port``: for each release asked for, the nearest one that a variant is proven on as the
base, a three-way merge, the assertions on the outcome, and only then patches and manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from patchkit import bundles as source
from patchkit.compiled import judged
from patchkit.errors import PatchkitError, Refused, UsageError
from patchkit.fit import made_for
from patchkit.fitting import asserts_for
from patchkit.linting import must_not_be_shipped
from patchkit.manifest import release_order, version_matches
from patchkit.model import Assertion, Bundle, Target, Variant
from patchkit.porting.engine import port as merge
from patchkit.porting.engine import port_chain
from patchkit.porting.model import Ported
from patchkit.releases.fetch import matching
from patchkit.releases.model import Asked, canonical
from patchkit.releases.prove import Verdict, prove
from patchkit.releases.sources import Release, Settings, known_versions, open_present, open_release
from patchkit.session import Options
from patchkit.unified import Side
from patchkit.writing import manifests
from patchkit.writing.bundle import load, revise
from patchkit.writing.who import today

from . import claims, work
from .ranges import wider
from .series import Made, file_name, made_on, patch_text

#: Called with what is being done, how many are done, and how many there are.
Tell = Callable[[str, int, int], None]
_NO_BASE = (
    "no release is at hand that a variant was made for: patchkit fetch one, then patchkit lint"
    " --update-lock"
)
# How many bases are tried for one release, and how many releases a chain goes through.
_BASES = 3
_STEPS = 12


class Outcome(NamedTuple):
    """What became of one release.

    ``state``: ``holds`` (nothing to do: ``reason`` says why), ``widened``, ``ported``,
    ``upstream``, ``unneeded`` or ``conflict``.
    """

    distribution: str
    version: str
    state: str
    reason: str
    base: str | None = None
    variant: str | None = None
    files: tuple[dict[str, Any], ...] = ()
    written: tuple[str, ...] = ()
    folder: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**self._asdict(), "files": list(self.files), "written": list(self.written)}


class Candidate(NamedTuple):
    """A port that was tried: from which base, by which variant, and what came of it."""

    base: Release
    variant: Variant
    made: Made
    ported: Ported
    moved: tuple[tuple[int, str], ...]
    failed: str

    @property
    def is_clean(self) -> bool:
        """Whether nothing conflicts and every assertion holds."""
        return self.ported.outcome != "conflict" and not self.failed


class Porter:
    """Ports the bundles of one directory; what it writes there is whole bundles."""

    def __init__(
        self,
        options: Options,
        settings: Settings,
        *,
        dry_run: bool = False,
        tell: Tell | None = None,
    ) -> None:
        self.settings = settings
        self.folder = source.bundle_dir(options.bundles, options.environ, options.cwd)
        self.dry_run = dry_run
        self._tell = tell or (lambda what, done, total: None)
        self._known: dict[str, list[str]] = {}

    # -- which ------------------------------------------------------------------------

    def asked(
        self, bundle: Bundle, to: Sequence[str], *, installed: bool
    ) -> list[tuple[Target, str, bool]]:
        """The targets with their releases, oldest first, and whether what the environment has
        is meant.  A ``to`` without a name is of the bundle's first distribution."""
        if not bundle.targets:
            raise UsageError(
                f"{bundle.name} patches nothing: it is a setting",
                hint=f"patchkit show {bundle.name} prints what it sets",
            )
        pairs: list[tuple[Target, str, bool]] = []
        for one in to:
            target, asked = _parse_to(bundle, one)
            pairs += [(target, version, False) for version in matching(asked, self.settings)]
        if installed:
            for target in bundle.targets:
                version = self.settings.present_version(target.distribution)
                if version is not None:
                    pairs.append((target, version, True))
        if installed and not pairs:
            names = ", ".join(target.distribution for target in bundle.targets)
            raise Refused(
                f"none of what {bundle.name} patches is installed as a wheel or from a git"
                f" checkout: {names}",
                code="not-installed",
                bundle=bundle.name,
                hint="name an environment: --python PATH (an interpreter or venv folder)",
            )
        if not pairs:
            raise UsageError(
                "which release is it to be carried to?",
                hint=f"patchkit port {bundle.name} --to 0.5.10, or --to-installed",
            )
        return pairs

    # -- one release ------------------------------------------------------------------

    def carry(self, name: str, target_name: str, version: str, *, present: bool = False) -> Outcome:
        """Port a bundle to one release, and write it down; with ``present`` to what the
        environment has, whatever it says that it is."""
        bundle, text = load(self.folder, name)
        target = _target(bundle, target_name)
        read = source.patch_reader(self.folder, bundle)
        with self._opened(target, version, present=present) as release:
            verdict = prove(bundle, target, release, read)
            if verdict.holds:
                return Outcome(target.distribution, version, "holds", _why(verdict))
            best = self.try_all(bundle, target, release, read)
            if isinstance(best, str):
                return Outcome(target.distribution, version, "conflict", best)
            with best.base:
                return self._write(bundle, text, target, release, best, present=present)

    def _opened(self, target: Target, version: str, *, present: bool) -> Release:
        if present:
            return open_present(target.distribution, self.settings)
        return open_release(target.distribution, version, self.settings)

    def try_all(
        self, bundle: Bundle, target: Target, release: Release, read: Callable[[str], bytes]
    ) -> Candidate | str:
        """The best port from the nearest bases; the first one tried where all conflict.  Where
        none could be tried, why."""
        best: Candidate | None = None
        why = _NO_BASE
        tried: list[Variant] = []
        for variant, version in self._bases(bundle, target, release.version):
            if variant in tried or len(tried) >= _BASES:
                continue
            try:
                base = open_release(target.distribution, version, self.settings)
            except PatchkitError:
                continue  # another release of that variant may be at hand
            try:
                found = self._try(bundle, target, variant, base, release, read)
            except PatchkitError as error:
                base.close()  # the variant does not go on there: no base to start from
                why = f"{error.patch or variant.versions} on {version}: {error.message}"
                why += f"; {error.hint}" if error.hint else ""
                continue
            tried.append(variant)
            if best is not None and not found.is_clean:
                base.close()
                continue
            if best is not None:
                best.base.close()
            best = found
            if best.is_clean:
                break
        return why if best is None else best

    def _bases(self, bundle: Bundle, target: Target, version: str) -> list[tuple[Variant, str]]:
        """Variants with a release that they were made for, the nearest to ``version`` first:
        by how many releases lie between."""
        known = self._all(target.distribution)
        place = _place(known, version)
        found = []
        for variant in target.variants:
            if not variant.patches:
                continue
            releases = {r for one in made_for(bundle, target, variant) for r in one.releases}
            if not releases:
                releases = {v for v in known if version_matches(variant.versions, v)}
            found += [(abs(_place(known, r) - place), variant, r) for r in releases]
        found.sort(key=lambda one: (one[0], release_order(one[2])))
        return [(variant, base) for _, variant, base in found]

    def _all(self, distribution: str) -> list[str]:
        if distribution not in self._known:
            from packaging.version import InvalidVersion, Version

            finals = []
            for one in known_versions(distribution, self.settings):
                try:
                    if not Version(one).is_prerelease:
                        finals.append(one)
                except InvalidVersion:
                    continue
            self._known[distribution] = finals
        return self._known[distribution]

    def _try(
        self,
        bundle: Bundle,
        target: Target,
        variant: Variant,
        base: Release,
        release: Release,
        read: Callable[[str], bytes],
    ) -> Candidate:
        made = made_on(variant, base, read)
        ported = merge(base, release, made.edits)
        if ported.outcome == "conflict":
            chained = self._chain(target, base, release, made)
            if chained is not None and chained.outcome != "conflict":
                ported = chained
        moved, failed = _assertions(bundle, target, release, base, ported)
        return Candidate(base, variant, made, ported, moved, failed)

    def _chain(self, target: Target, base: Release, release: Release, made: Made) -> Ported | None:
        """Release after release, where some lie between."""
        known = self._all(target.distribution)
        first, last = _place(known, base.version), _place(known, release.version)
        step = 1 if last > first else -1
        between = known[first + step : last : step] if step > 0 else known[last + 1 : first][::-1]
        between = [v for v in between if v not in (base.version, release.version)]
        if not between or len(between) > _STEPS:
            return None
        opened: list[Release] = []
        try:
            for version in between:
                try:
                    opened.append(open_release(target.distribution, version, self.settings))
                except PatchkitError:
                    continue
            return port_chain([base, *opened, release], made.edits).last if opened else None
        finally:
            for one in opened:
                one.close()

    # -- writing ----------------------------------------------------------------------

    def _write(
        self,
        bundle: Bundle,
        text: str,
        target: Target,
        release: Release,
        best: Candidate,
        *,
        present: bool,
    ) -> Outcome:
        files = tuple(_files(best.ported))
        common: dict[str, Any] = {"base": best.base.version, "files": files}
        if not best.is_clean:
            return self._conflict(bundle, target, release, best, common, present=present)
        outcome = best.ported.outcome
        name, version = target.distribution, release.version
        claim = claims.claiming(target, version)
        unclaimed = text
        if claim is not None:
            narrower = self._without(bundle, target, claim, version)
            unclaimed = manifests.set_range(text, name, claim.versions, narrower)
        contents: dict[str, bytes] = {}
        if outcome in ("upstream", "gone"):
            key = "upstream" if outcome == "upstream" else "unneeded"
            reason = _reasons(best.ported) or outcome
            entry: dict[str, Any] = {"versions": f"=={version}", key: reason}
            made = manifests.add_variant(unclaimed, name, entry, _at(target, version))
            state, shown = key, f"=={version}"
        else:
            widened = None
            if claim is not best.variant:
                widened = self._widened(bundle, target, release, best)
            state = "widened" if widened is not None else "ported"
            if widened is not None:
                made = manifests.set_range(unclaimed, name, best.variant.versions, widened)
                shown = widened
            else:
                contents = self._patches(bundle, target, release, best)
                entry = {"versions": f"=={version}"}
                if best.variant.strip is not None:
                    entry["strip"] = best.variant.strip
                entry["patches"] = list(contents)
                made = manifests.add_variant(unclaimed, name, entry, _at(target, version))
                shown = f"=={version}"
        made = manifests.move_assertions(made, [(i, f, version) for i, f in best.moved])
        draft = revise(self.folder, bundle.name, text, made, contents, self.settings)
        written: tuple[str, ...] = ()
        if not self.dry_run:
            must_not_be_shipped(self.folder)
            paths = draft.write(self.folder)
            written = tuple(os.path.relpath(path, self.folder) for path in paths)
        return Outcome(name, version, state, "", variant=shown, written=written, **common)

    def _without(self, bundle: Bundle, target: Target, claim: Variant, version: str) -> str:
        """The range of a variant that claims a release and does not hold there, without it."""
        made = (r for one in made_for(bundle, target, claim) for r in one.releases)
        narrower = claims.narrower(
            claim.versions, version, {*made, *self._all(target.distribution)}
        )
        if narrower is None:
            raise Refused(
                f"the variant {claim.versions} is for {target.distribution} {version} alone, and"
                " does not hold there",
                code="variant-claims",
                bundle=bundle.name,
                hint=f"take it out of manifests/{bundle.name}.toml; or, of a fork that says it is"
                f" {version}, give that a version of its own ({version}+fork)",
            )
        return narrower

    def _widened(
        self, bundle: Bundle, target: Target, release: Release, best: Candidate
    ) -> str | None:
        """The range of the base's variant with this release in it, where its patches go on
        there as they are."""
        if best.moved:
            return None
        versions = wider(best.variant.versions, release.version, self._all(target.distribution))
        if versions is None:
            return None
        variant = best.variant._replace(versions=versions)
        bare = bundle._replace(pristine=())
        alone = target._replace(variants=(variant,))
        read = source.patch_reader(self.folder, bundle)
        return versions if prove(bare, alone, release, read).state == "applies" else None

    def _patches(
        self, bundle: Bundle, target: Target, release: Release, best: Candidate
    ) -> dict[str, bytes]:
        folder = f"{bundle.name}/{target.distribution}-{release.version}"
        origin = (
            f"ported from {target.distribution} {best.base.version}, bundle {bundle.name}"
            f" {bundle.version}"
        )
        before: dict[str, Side | None] = {}
        out: dict[str, bytes] = {}
        pairs = zip(best.made.heads, best.ported.patches, strict=True)
        for number, (head, result) in enumerate(pairs, 1):
            head = head.with_fields(origin=origin, last_update=today(self.settings.environ))
            data = patch_text(result, release, before, head, best.made.lead)
            if data:
                out[f"{folder}/{file_name(result.name, number)}"] = data
        return out

    def _conflict(
        self,
        bundle: Bundle,
        target: Target,
        release: Release,
        best: Candidate,
        common: dict[str, Any],
        *,
        present: bool,
    ) -> Outcome:
        conflicts = best.ported.conflicts
        reason = best.failed or "; ".join(_reasons_of(conflicts)) or "the three sides disagree"
        folder = None
        if not self.dry_run:
            must_not_be_shipped(self.folder)
            job = {
                "distribution": target.distribution,
                "version": release.version,
                "base": best.base.version,
                "variant": best.variant.versions,
                "present": present,
            }
            folder = work.write(self.folder, bundle.name, job, best.ported, whole=not conflicts)
        return Outcome(
            target.distribution, release.version, "conflict", reason, folder=folder, **common
        )

    # -- going on ---------------------------------------------------------------------

    def go_on(self, name: str) -> Outcome:
        """Take the files of the working folder for the conflicts; the same checks, the same
        writing.  The folder goes when it is done."""
        job, resolved = work.read(self.folder, name)
        bundle, text = load(self.folder, name)
        target = _target(bundle, job["distribution"])
        read = source.patch_reader(self.folder, bundle)
        variant = next((v for v in target.variants if v.versions == job["variant"]), None)
        present = bool(job.get("present"))
        done = self._was_written(bundle, target, job["version"], read, present=present)
        if done is not None:
            work.remove(self.folder, name)
            return done
        if variant is None:
            raise Refused(
                f"the variant {job['variant']} is gone from manifests/{name}.toml",
                code="port-damaged",
                bundle=name,
                hint=f"patchkit port {name} --abort, and begin again",
            )
        with (
            open_release(target.distribution, job["base"], self.settings) as base,
            self._opened(target, job["version"], present=present) as release,
        ):
            made = made_on(variant, base, read)
            ported = merge(base, release, made.edits, resolved)
            moved, failed = _assertions(bundle, target, release, base, ported)
            best = Candidate(base, variant, made, ported, moved, failed)
            if not best.is_clean:
                reason = failed or "; ".join(_reasons_of(ported.conflicts))
                way = f"mend the files in {work.folder_of(self.folder, name)}"
                if failed:
                    way += (
                        f", or give that assertion a range without {release.version}"
                        f" (versions = …) in manifests/{name}.toml"
                    )
                raise Refused(
                    f"not yet: {reason}",
                    code="port-conflict",
                    bundle=name,
                    hint=f"{way}; then patchkit port {name} --continue",
                )
            outcome = self._write(bundle, text, target, release, best, present=present)
        if not self.dry_run:
            work.remove(self.folder, name)
        return outcome

    def _was_written(
        self,
        bundle: Bundle,
        target: Target,
        version: str,
        read: Callable[[str], bytes],
        *,
        present: bool,
    ) -> Outcome | None:
        """What a port that was killed had written already; None where it had not."""
        with self._opened(target, version, present=present) as release:
            verdict = prove(bundle, target, release, read)
        if not verdict.holds:
            return None
        return Outcome(target.distribution, version, "holds", _why(verdict))


def _parse_to(bundle: Bundle, text: str) -> tuple[Target, Asked]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    from patchkit.releases.model import parse_asked

    try:
        specifier = str(SpecifierSet(text))
    except InvalidSpecifier:
        specifier = f"=={canonical(text)}" if text[:1].isdigit() or text[:1] == "v" else ""
    if specifier:
        target = bundle.targets[0]
        return target, Asked(target.distribution, specifier)
    asked = parse_asked(text)
    return _target(bundle, asked.distribution), asked


def _target(bundle: Bundle, name: str) -> Target:
    for target in bundle.targets:
        if target.distribution == name:
            return target
    names = ", ".join(target.distribution for target in bundle.targets)
    raise UsageError(f"{bundle.name} does not patch {name}", hint=f"it patches {names}")


def _place(known: Sequence[str], version: str) -> int:
    order = release_order(version)
    return sum(1 for one in known if release_order(one) < order)


def _at(target: Target, version: str) -> int:
    """Where a variant for one release goes: behind those of older releases."""
    order = release_order(version)
    place = 0
    for number, variant in enumerate(target.variants, 1):
        digits = variant.versions.split(",")[0].lstrip("<>=!~ ")
        if digits and release_order(digits.rstrip(".*")) < order:
            place = number
    return place


def _why(verdict: Verdict) -> str:
    if verdict.state == "applies":
        return f"the variant {verdict.variant.versions if verdict.variant else ''} applies"
    return f"{verdict.state}: {verdict.reason}"


def _files(ported: Ported) -> list[dict[str, Any]]:
    return [
        {
            "patch": patch.name,
            "outcome": file.outcome,
            "old_path": file.old_path,
            "path": file.path,
            "hunks": [
                {
                    "outcome": hunk.outcome,
                    "reason": hunk.reason,
                    "within": hunk.within,
                    "line": hunk.theirs.line,
                    "path": hunk.path,
                }
                for hunk in file.hunks
            ],
            "problems": [problem._asdict() for problem in file.problems],
            "notes": list(file.notes),
        }
        for patch in ported.patches
        for file in patch.files
    ]


def _reasons(ported: Ported) -> str:
    found = [
        hunk.reason for p in ported.patches for f in p.files for hunk in f.hunks if hunk.reason
    ]
    return "; ".join(dict.fromkeys(found))


def _reasons_of(files: Sequence[Any]) -> list[str]:
    found = []
    for file in files:
        words = [problem.message for problem in file.problems]
        words += [hunk.reason for hunk in file.hunks if hunk.outcome == "conflict" and hunk.reason]
        found.append(f"{file.path or file.old_path}: {words[0] if words else 'conflict'}")
    return list(dict.fromkeys(found))


def _assertions(
    bundle: Bundle, target: Target, release: Release, base: Release, ported: Ported
) -> tuple[tuple[tuple[int, str], ...], str]:
    """Which assertions follow their file to another path (index, path), and the first that
    does not hold on the outcome (empty: none)."""
    if ported.outcome == "conflict":
        return (), ""
    changed = ported.contents
    moves = {
        file.old_path: file.path
        for patch in ported.patches
        for file in patch.files
        if file.old_path is not None and file.path is not None and file.old_path != file.path
    }

    def read(path: str) -> bytes | None:
        return changed[path] if path in changed else release.read(path)

    moved: list[tuple[int, str]] = []
    for one in asserts_for(bundle, target.distribution, release.version):
        if judged(one, read(one.file), read).ok:
            continue
        path = moves.get(one.file)
        other = None if path is None else one._replace(file=path)
        if other is None or path is None or not judged(other, read(path), read).ok:
            return tuple(moved), _does_not_hold(one, judged(one, read(one.file), read).message)
        moved.append((_index(one), path))
    return tuple(moved), ""


def _index(assertion: Assertion) -> int:
    return int(assertion.key.partition("[")[2].rstrip("]"))


def _does_not_hold(one: Assertion, message: str) -> str:
    text = f"{one.key} on {one.file} does not hold on what the merge made"
    return f"{text}: {one.message or message}"


def verdict_of(
    options: Options, settings: Settings
) -> Callable[[Bundle, Target, Release, Verdict], tuple[str, str] | None]:
    """For the matrix: whether a bundle ports to a release on which it does not hold."""
    porter = Porter(options, settings, dry_run=True)

    def verdict(
        bundle: Bundle, target: Target, release: Release, found: Verdict
    ) -> tuple[str, str] | None:
        if found.state not in ("unsupported", "conflict"):
            return None
        best = porter.try_all(bundle, target, release, source.patch_reader(porter.folder, bundle))
        if isinstance(best, str):
            return None if best == _NO_BASE else ("conflict", best)
        with best.base:
            if best.is_clean:
                return "ports", f"from {best.base.version}, {best.ported.outcome}"
            reasons = _reasons_of(best.ported.conflicts)
            return "conflict", best.failed or "; ".join(reasons) or found.reason

    return verdict
