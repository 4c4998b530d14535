"""A range without a release that it claims and does not hold.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from patchkit.manifest import version_matches
from patchkit.model import Target, Variant


def claiming(target: Target, version: str) -> Variant | None:
    """The variant whose range holds a release; the first, where several do."""
    found = (v for v in target.variants if version_matches(v.versions, version))
    return next(found, None)


def narrower(versions: str, version: str, known: Iterable[str]) -> str | None:
    """A range without one release; None where it would hold no known one any more."""
    made = f"{versions},!={version}" if versions else f"!={version}"
    return made if any(version_matches(made, one) for one in known) else None
