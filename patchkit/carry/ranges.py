"""The range of a variant, and one that holds a release more.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.manifest import release_order


def wider(versions: str, version: str, known: Sequence[str]) -> str | None:
    """A range that holds one release more and no other known one that it does not hold now;
    None where there is none that is as plain as before.

    ``known`` are all final releases.
    """
    from packaging.specifiers import SpecifierSet

    present = SpecifierSet(versions)
    held = sorted(present.filter(known), key=release_order)
    if not held or "!=" in versions or "~=" in versions or "*" in versions:
        return None
    low, high = held[0], held[-1]
    if release_order(version) > release_order(high):
        high = version
    elif release_order(version) < release_order(low):
        low = version
    else:
        return None
    lower = f">={low}"
    for one in present:
        if one.operator in (">=", ">") and low == held[0]:
            lower = str(one)
    upper = f"<={high}"
    for one in present:
        if one.operator in ("<=", "<") and high == held[-1]:
            upper = str(one)
    made = f"{lower},{upper}"
    now = set(SpecifierSet(made).filter(known))
    return made if now == {*held, version} else None
