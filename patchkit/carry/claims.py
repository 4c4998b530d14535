"""A range without a release that it claims and does not hold, and the lock that goes with it.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from patchkit.manifest import version_matches
from patchkit.model import Bundle, Pristine, Target, Variant


def claiming(target: Target, version: str) -> Variant | None:
    """The variant whose range holds a release; the first, where several do."""
    found = (v for v in target.variants if version_matches(v.versions, version))
    return next(found, None)


def narrower(versions: str, version: str, known: Iterable[str]) -> str | None:
    """A range without one release; None where it would hold no known one any more."""
    made = f"{versions},!={version}" if versions else f"!={version}"
    return made if any(version_matches(made, one) for one in known) else None


def with_new_ranges(bundle: Bundle, before: Bundle) -> tuple[Pristine, ...]:
    """What the lock of ``before`` says of releases, under the ranges that ``bundle`` has for
    them now."""
    out = []
    for one in before.pristine:
        target = next((t for t in bundle.targets if t.distribution == one.distribution), None)
        for variant in () if target is None else target.variants:
            held = tuple(v for v in one.releases if version_matches(variant.versions, v))
            if held and variant.patches:
                out.append(one._replace(versions=variant.versions, releases=held))
    return tuple(out)
