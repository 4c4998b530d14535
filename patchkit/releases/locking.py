"""What the lock of a bundle says of the releases that its variants were made for.

Owns the proof behind each entry: the variant's patches apply to that very release, and the
bundle's assertions hold on the outcome and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from patchkit.environment import open_environment
from patchkit.errors import PatchkitError
from patchkit.fit import made_for as recorded_for
from patchkit.fitting import holds_already
from patchkit.fsio import digest
from patchkit.lint import MadeFor, Problem
from patchkit.linting import Contradicted
from patchkit.manifest import version_matches
from patchkit.model import Bundle, Pristine, Target, Variant
from patchkit.session import Options

from .model import Unavailable
from .prove import prove, touched
from .sources import Release, Settings, known_versions, open_release


def at_hand(options: Options) -> Settings:
    """The releases that can be read without asking anybody: the cache, and the environment
    that the options name."""
    environment = None
    if options.python or options.root or options.environ.get("PATCHKIT_PYTHON"):
        environment = open_environment(options.python, options.root, options.environ)
    return Settings(options.environ, environment=environment, offline=True)


def made_for(options: Options) -> MadeFor:
    """:func:`pristine_entries`, by the releases at hand."""
    settings = at_hand(options)
    return lambda bundle, read: pristine_entries(bundle, read, settings)


def contradictions(options: Options) -> Contradicted:
    """:func:`speaks_against`, by the releases at hand."""
    settings = at_hand(options)
    return lambda bundle: speaks_against(bundle, settings)


def pristine_entries(
    bundle: Bundle, read_patch: Callable[[str], bytes], settings: Settings
) -> list[Pristine]:
    """An entry for every release at hand (cached, installed, in a folder of archives) that a
    variant is proven on, and those of the present lock for releases that are not at hand."""
    found: list[Pristine] = []
    bare = bundle._replace(pristine=())
    for target in bundle.targets:
        versions = _versions(target, settings)
        for variant in target.variants:
            proven: set[str] = set()
            for version in versions:
                if variant.patches and version_matches(variant.versions, version):
                    entry = _proven(bare, target, variant, version, read_patch, settings)
                    if entry is not None:
                        found.append(entry)
                        proven.add(version)
            for one in recorded_for(bundle, target, variant):
                rest = tuple(v for v in one.releases if v not in proven)
                if rest and _is_unchanged(bundle, variant, read_patch):
                    found.append(one._replace(releases=rest))
    return found


def _is_unchanged(bundle: Bundle, variant: Variant, read_patch: Callable[[str], bytes]) -> bool:
    """Whether the patches are still those that the lock was written for."""
    locked = dict(bundle.lock or ())
    return all(digest(read_patch(path)) == locked.get(path) for path in variant.patches)


def _versions(target: Target, settings: Settings) -> list[str]:
    versions = set(known_versions(target.distribution, settings))
    installed = settings.installed_version(target.distribution)
    if installed is not None:
        versions.add(installed)
    return sorted(versions)


def _proven(
    bundle: Bundle,
    target: Target,
    variant: Variant,
    version: str,
    read_patch: Callable[[str], bytes],
    settings: Settings,
) -> Pristine | None:
    try:
        with open_release(target.distribution, version, settings) as release:
            verdict = prove(bundle, target, release, read_patch)
            if verdict.state != "applies" or verdict.variant is not variant:
                return None
            assert verdict.wanted is not None
            files = tuple(sorted(touched(verdict.wanted, release).items()))
    except (Unavailable, PatchkitError, OSError):
        return None
    return Pristine(target.distribution, variant.versions, (version,), files)


def speaks_against(bundle: Bundle, settings: Settings) -> Iterator[Problem]:
    """What releases at hand say against a lock, and against assertions that prove nothing."""
    file = f"manifests/{bundle.name}.lock"
    for one in bundle.pristine:
        for version in one.releases:
            with _opened(one.distribution, version, settings) as release:
                for path, sha256 in () if release is None else one.files:
                    assert release is not None
                    if release.digest(path) != sha256:
                        text = f"{one.distribution} {version} has another {path} than it says"
                        yield Problem("lock-contradicted", "error", file, None, text, _UPDATE)
    for target in bundle.targets:
        for version in _versions(target, settings):
            variant = _variant_in(target, version)
            if variant is None:
                continue
            with _opened(target.distribution, version, settings) as release:
                if release is not None and variant.reason is not None:
                    yield from _denied(bundle, target, variant, release)
                elif release is not None and holds_already(
                    bundle, target.distribution, version, (), release.read
                ):
                    text = (
                        f"every assertion on {target.distribution} {version} holds without the"
                        f" patches of the variant {variant.versions}"
                    )
                    hint = "assert what the patches change, or say upstream for that range"
                    yield Problem(
                        "assertion-proves-nothing",
                        "warning",
                        f"manifests/{bundle.name}.toml",
                        None,
                        text,
                        hint,
                    )


_UPDATE = "patchkit lint --update-lock, with these releases at hand"


def _denied(
    bundle: Bundle, target: Target, variant: Variant, release: Release
) -> Iterator[Problem]:
    """Whether a release denies that it needs no patch."""
    verdict = prove(bundle, target, release, _no_patch)
    if verdict.state == "unmet" and verdict.variant is variant:
        word = "upstream" if variant.upstream else "unneeded"
        text = (
            f"{target.distribution} {release.version} is said to be {word}"
            f" ({variant.versions}), and {verdict.reason}"
        )
        hint = f"narrow the range: patchkit matrix {bundle.name} shows what each release does"
        file = f"manifests/{bundle.name}.toml"
        yield Problem(f"{word}-denied", "error", file, None, text, hint)


def _no_patch(path: str) -> bytes:
    raise AssertionError(f"a variant without patches has none to read: {path}")


def _variant_in(target: Target, version: str) -> Variant | None:
    found = [v for v in target.variants if version_matches(v.versions, version)]
    return found[0] if len(found) == 1 else None


@contextmanager
def _opened(distribution: str, version: str, settings: Settings) -> Iterator[Release | None]:
    """A release with all that is asked of it at hand; None for one that is not."""
    try:
        found = open_release(distribution, version, settings)
    except (PatchkitError, OSError):
        yield None
        return
    with found, suppress(PatchkitError, OSError):  # a file of it that is not at hand
        yield found
