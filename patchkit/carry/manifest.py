"""A manifest with another variant, a wider range, or assertions for a release more.

Comments and layout are kept (by tomlkit).  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tomlkit
from tomlkit.items import Array

from patchkit.manifest import release_order
from patchkit.names import normalise


def with_variant(text: str, distribution: str, variant: dict[str, Any], *, before: int) -> str:
    """The manifest with a variant more for a distribution, put at place ``before``."""
    document = tomlkit.parse(text)
    target = _target(document, distribution)
    variants = target["variant"]
    table = _table_for(variants)
    for key, value in variant.items():
        if isinstance(value, list):
            array = tomlkit.array()
            array.extend(value)
            array.multiline(len(value) > 1 and not isinstance(variants, Array))
            table[key] = array
        else:
            table[key] = value
    variants.insert(min(before, len(variants)), table)
    return str(tomlkit.dumps(document))


def _table_for(tables: Any) -> Any:
    """An empty table as the others in an array are written: in a line, or below a header."""
    return tomlkit.inline_table() if isinstance(tables, Array) else tomlkit.table()


def with_range(text: str, distribution: str, versions: str, wider: str) -> str:
    """The manifest with another range for one variant."""
    document = tomlkit.parse(text)
    for variant in _target(document, distribution)["variant"]:
        if str(variant["versions"]) == versions:
            variant["versions"] = wider
    return str(tomlkit.dumps(document))


def with_assertions(text: str, moved: Iterable[tuple[int, str, str]]) -> str:
    """The manifest with assertions for a release in which their file is another: of each
    (index, file, version), one more, and the old one no longer for that version."""
    document = tomlkit.parse(text)
    asserts: Any = document.get("assert", [])
    added = []
    for index, file, version in moved:
        old = asserts[index]
        new = {**old, "file": file, "versions": f"=={version}"}
        present = str(old.get("versions", ""))
        old["versions"] = f"{present},!={version}" if present else f"!={version}"
        added.append(new)
    for new in added:
        table = _table_for(asserts)
        for key, value in new.items():
            table[key] = value
        asserts.append(table)
    return str(tomlkit.dumps(document))


def _target(document: Any, distribution: str) -> Any:
    for target in document["target"]:
        if normalise(str(target["distribution"])) == distribution:
            return target
    raise KeyError(distribution)


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
