"""A release as a tag of a git checkout.

Owns which tag is meant and which folder of the repository is the site-packages of it.
Only reads, with the care of :mod:`patchkit.gitsource`.
"""

from __future__ import annotations

from typing import NamedTuple

from patchkit.errors import Refused
from patchkit.gitsource import list_tree, opened, run_git

from .archive import site_layout
from .model import Listing, Member, Unavailable


class Checkout(NamedTuple):
    """The tree of one commit, laid out as site-packages."""

    listing: Listing
    folder: str
    commit: str
    tag: str

    @property
    def origin(self) -> str:
        """Where it comes from, for a person."""
        return f"{self.folder} at {self.tag}"

    def read(self, path: str) -> bytes:
        """The committed bytes, unfiltered."""
        member = self.listing.members.get(path)
        if member is None:
            raise Unavailable(
                f"{self.origin} holds no {path}",
                file=path,
                hint=f"git -C {self.folder} ls-tree -r --name-only {self.tag} shows what it holds",
            )
        with opened(self.folder) as repo:
            _, data = run_git(repo, self.folder, "cat-file", "blob", f"{self.commit}:{member.name}")
        return data


def open_tag(folder: str, distribution: str, version: str) -> Checkout | None:
    """The checkout at the tag of a release (``v0.5.9``, ``0.5.9``, ``NAME-v0.5.9``); None
    where it has none.  Raises what :mod:`patchkit.gitsource` raises."""
    with opened(folder) as repo:
        both = (f"v{version}", version)
        for tag in (*both, *(f"{distribution}-{name}" for name in both)):
            status, output = run_git(
                *(repo, folder, "rev-parse", "--quiet", "--verify", f"refs/tags/{tag}^{{commit}}"),
                fine=(0, 1),
            )
            if status == 0:
                commit = output.decode("ascii").strip()
                listing = at_commit(folder, commit, distribution, version, tag)
                return Checkout(listing, folder, commit, tag)
    return None


def at_commit(folder: str, commit: str, distribution: str, version: str, name: str) -> Listing:
    """What a commit holds, laid out as site-packages.

    Raises :class:`~patchkit.errors.Refused` where no package of the distribution is in it.
    """
    with opened(folder) as repo:
        blobs = list_tree(repo, folder, "-r", commit)
    files = {
        path: Member(None, None, bool(blob.mode & 0o100), path) for path, blob in blobs.items()
    }
    members = site_layout(files)
    if not any(path.count("/") == 1 and path.endswith("/__init__.py") for path in members):
        raise Refused(
            f"{folder} at {name} holds no Python package",
            code="release-unavailable",
            hint="name the checkout of the distribution's own sources",
        )
    return Listing(distribution, version, f"git-{commit}", "git", members)
