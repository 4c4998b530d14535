"""Which variant of a bundle fits a release: by its version and by its bytes, together.

Version strings lie (nightlies, forks, local versions), and bytes do not.  Pure: what a file
holds is asked of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from .manifest import release_order, select_variant
from .model import Bundle, Pristine, Target, Variant

#: ``known``: version in range, and the bytes are those of a release that it was made for;
#: ``bytes``: the bytes are, whatever the version says; ``unproven``: version in range, and
#: the bytes are of none of these releases; ``version``: version in range, and nothing says
#: what it was made for.
How = Literal["known", "bytes", "unproven", "version"]

#: The SHA-256 of a pristine file of the release, or None where it holds none of that name.
Digest = Callable[[str], "str | None"]


class Fit(NamedTuple):
    """A variant that fits.  ``release`` is the one whose bytes these are, else the version
    that the distribution says."""

    variant: Variant
    how: How
    release: str


class Nearest(NamedTuple):
    """The variant to start from where none fits; ``same`` of its ``files`` have the bytes
    of its ``release``."""

    variant: Variant
    release: str | None
    same: int
    files: int


def fit_variant(bundle: Bundle, target: Target, version: str, digest: Digest) -> Fit | None:
    """The variant for a release, or None.

    Raises :class:`~patchkit.errors.ManifestError` where the ranges of two hold the version.
    """
    in_range = select_variant(target, version)
    by_bytes = [
        (one, variant)
        for variant in target.variants
        for one in made_for(bundle, target, variant)
        if one.files and all(digest(path) == sha256 for path, sha256 in one.files)
    ]
    for one, variant in by_bytes:
        if variant is in_range:
            release = version if version in one.releases else one.releases[-1]
            return Fit(variant, "known", release)
    if by_bytes:
        one, variant = max(by_bytes, key=lambda pair: release_order(pair[0].releases[-1]))
        return Fit(variant, "bytes", one.releases[-1])
    if in_range is None:
        return None
    recorded = bool(made_for(bundle, target, in_range))
    return Fit(in_range, "unproven" if recorded else "version", version)


def made_for(bundle: Bundle, target: Target, variant: Variant) -> list[Pristine]:
    """What the lock says of the releases that a variant was made for."""
    return [
        one
        for one in bundle.pristine
        if one.distribution == target.distribution
        and one.versions == variant.versions
        and one.releases
        and variant.patches
    ]


def nearest(bundle: Bundle, target: Target, version: str, digest: Digest) -> Nearest | None:
    """The variant of which most files are the same, then the one of the next older release;
    None for a target without patches."""
    found: list[tuple[tuple[float, bool, object], Nearest]] = []
    wanted = release_order(version)
    for variant in target.variants:
        if not variant.patches:
            continue
        best = Nearest(variant, None, 0, 0)
        for one in made_for(bundle, target, variant):
            same = sum(digest(path) == sha256 for path, sha256 in one.files)
            near = Nearest(variant, one.releases[-1], same, len(one.files))
            if best.release is None or _key(near, wanted) > _key(best, wanted):
                best = near
        found.append((_key(best, wanted), best))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _key(one: Nearest, wanted: tuple[object, str]) -> tuple[float, bool, object]:
    share = one.same / one.files if one.files else 0.0
    release = release_order(one.release or "0.dev0")
    older = release <= wanted
    return share, older, release if older else release_order("0.dev0")
