"""A release as it is installed, as far as it is pristine.

Reads the files that RECORD answers for; of a file that patchkit changed, the pristine bytes
that it keeps.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from patchkit.distributions import find_distribution
from patchkit.environment import Environment
from patchkit.errors import PatchkitError
from patchkit.gitsource import opened, run_git
from patchkit.record import Record
from patchkit.session import locate

from .checkout import Checkout, at_commit
from .model import Listing, Member, Unavailable, canonical


class Installed(NamedTuple):
    """An installed wheel; ``kept`` maps a path that patchkit changed to its pristine bytes."""

    listing: Listing
    root: str
    kept: dict[str, str]

    @property
    def origin(self) -> str:
        """Where it comes from, for a person."""
        return f"installed in {self.root}"

    def read(self, path: str) -> bytes:
        """The pristine bytes.  Raises :class:`Unavailable` for a file that is not pristine."""
        member = self.listing.members.get(path)
        if member is not None:
            for place in (os.path.join(self.root, path), self.kept.get(path)):
                try:
                    with open(place or "", "rb") as file:
                        data = file.read()
                except OSError:
                    continue
                if hashlib.sha256(data).hexdigest() == member.sha256:
                    return data
        raise Unavailable(
            f"{path} of {self.listing.distribution} is not pristine in {self.root}",
            file=path,
            hint=f"patchkit fetch {self.listing.distribution}=={self.listing.version}",
        )


def open_installed(env: Environment, distribution: str, version: str) -> Installed | None:
    """The installed distribution, where it is a wheel of that version with a RECORD."""
    dist = find_distribution(env, distribution)
    if dist is None or dist.kind != "wheel" or not dist.dist_info:
        return None
    if canonical(dist.version) != canonical(version):
        return None
    record = Record.load(dist.dist_info)
    if record is None:
        return None
    info = os.path.basename(dist.dist_info)
    kept = _kept(env, dist.root)
    added = {path for path, place in kept.items() if not place}
    members = {}
    for path, row in record.rows(record.paths()).items():
        own = path.startswith(f"{info}/") and not path.endswith("/METADATA")
        if own or path in added or row.algorithm != "sha256" or row.digest_hex is None:
            continue
        members[path] = Member(row.size, row.digest_hex, name=path)
    listing = Listing(dist.name, canonical(dist.version), f"installed-{info}", "installed", members)
    return Installed(listing, dist.root, {path: place for path, place in kept.items() if place})


def open_head(env: Environment, distribution: str) -> Checkout | None:
    """What git HEAD has of an editable install."""
    dist = find_distribution(env, distribution)
    if dist is None or dist.work_tree is None:
        return None
    with opened(dist.work_tree) as repo:
        _, output = run_git(repo, dist.work_tree, "rev-parse", "HEAD")
    commit = output.decode("ascii").strip()
    version = canonical(dist.version)
    listing = at_commit(dist.work_tree, commit, dist.name, version, "HEAD")
    return Checkout(listing, dist.work_tree, commit, "HEAD")


def _kept(env: Environment, root: str) -> dict[str, str]:
    """Path to the place of its pristine bytes; empty for a file that a patch added."""
    try:
        home = locate(env)
        state = home.read_state()
    except PatchkitError:
        return {}
    found = {}
    if state is None:
        return {}
    for entry in state["files"]:
        if os.path.realpath(home.resolve(state["roots"][entry["root"]])) == os.path.realpath(root):
            stash = entry["stash"] if entry["before"] is not None else None
            found[entry["path"]] = os.path.join(home.path, "pristine", stash) if stash else ""
    return found
