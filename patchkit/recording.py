"""What the state says of an applied set: bundles, distributions, fingerprint.

Owns the compiled form of a bundle, which makes it independent of its directory.  Must not
read files of the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from .distributions import Distribution, find_distribution
from .environment import Environment
from .fsio import digest
from .manifest import profile_for
from .plan import Content, Key
from .series import Chosen, root_name
from .state import BundleEntry, DistributionEntry, Home, VariantEntry


def bundle_entries(env: Environment, chosen: Sequence[Chosen]) -> list[BundleEntry]:
    """The recorded form of every bundle, in order."""
    entries = []
    for item in chosen:
        versions: dict[str, str] = {}
        for name in {variant.distribution for variant in item.bundle.profile.variants}:
            dist = find_distribution(env, name)
            if dist is not None:
                versions[name] = item.release(name) or dist.version
        entries.append(_bundle_entry(item, versions))
    return entries


def _bundle_entry(item: Chosen, versions: Mapping[str, str]) -> BundleEntry:
    env, args = profile_for(item.bundle, versions)
    return BundleEntry(
        name=item.bundle.name,
        version=item.bundle.version,
        loose=item.bundle.loose,
        reverse=item.way.reverse,
        eol=item.way.eol,
        strip=item.way.strip,
        manifest=None if item.manifest is None else digest(item.manifest),
        variants=[
            VariantEntry(
                distribution=part.distribution.name,
                release=part.distribution.version,
                versions=part.versions,
                strip=part.strip,
                patches=[(one.path, one.sha256, len(one.data)) for one in part.patches],
                pack=part.packed()[0],
                upstream=part.upstream,
                unneeded=part.unneeded,
                made_for=part.release,
            )
            for part in item.parts
        ],
        profile={"env": env, "args": list(args)},
        caches={kind: list(names) for kind, names in item.bundle.caches},
        origin=item.origin,
    )


def blobs(chosen: Sequence[Chosen]) -> dict[str, bytes]:
    """Manifests and patches by SHA-256: with them a set is computed anew from the record."""
    found: dict[str, bytes] = {}
    for item in chosen:
        if item.manifest is not None:
            found[digest(item.manifest)] = item.manifest
        for part in item.parts:
            sha256, data = part.packed()
            found[sha256] = data
    return found


def fingerprint(
    bundles: Sequence[BundleEntry], contents: Mapping[Key, Content | None]
) -> str | None:
    """The SHA-256 over bundle set, releases and resulting bytes; None for the empty set.

    Of nothing that differs between machines: paths of roots, owners, and of the
    permission bits only "executable".
    """
    if not bundles:
        return None
    value = {
        "bundles": [
            [
                entry["name"],
                entry["version"],
                entry["reverse"],
                entry["eol"],
                [
                    [variant["distribution"], [sha256 for _, sha256, _ in variant["patches"]]]
                    for variant in entry["variants"]
                ],
            ]
            for entry in bundles
        ],
        "releases": sorted(
            {
                (variant["distribution"], variant["release"])
                for entry in bundles
                for variant in entry["variants"]
            }
        ),
        "files": sorted(
            [
                path,
                None
                if content is None
                else [content.sha256, content.kind, bool(content.mode & 0o100)],
            ]
            for (_, path), content in contents.items()
        ),
    }
    return digest(json.dumps(value, separators=(",", ":")).encode())


def distribution_entries(
    home: Home,
    chosen: Sequence[Chosen],
    owners: Iterable[Distribution],
    root_index: Callable[[str], int],
) -> list[DistributionEntry]:
    """Every distribution that the set targets or whose files it changes, by name."""
    found: dict[str, Distribution] = {}
    for item in chosen:
        for part in item.parts:
            found.setdefault(part.distribution.name, part.distribution)
    for dist in owners:
        found.setdefault(dist.name, dist)
    entries = []
    for name in sorted(name for name in found if name):
        dist = found[name]
        info = dist.dist_info
        if info is not None and os.path.dirname(info) == home.holder:
            info = os.path.basename(info)
        entries.append(
            DistributionEntry(
                name=name,
                version=dist.version,
                root=root_index(root_name(home, dist.root)),
                kind=dist.kind,
                dist_info=info,
            )
        )
    return entries
