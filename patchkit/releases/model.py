"""The values of this package: what a release holds, and who can read it.

Pure: no I/O.  Paths are POSIX, as the files lie in site-packages, whatever the archive
calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from patchkit.errors import PatchkitError, Refused, UsageError
from patchkit.names import normalise


class Member(NamedTuple):
    """One file of a release.  ``sha256`` is hexadecimal, or None where no list says it (it is
    then known once the file was read); ``name`` is what the archive calls it."""

    size: int | None
    sha256: str | None
    executable: bool = False
    name: str = ""


class Listing(NamedTuple):
    """All files of one archive of a release.

    ``archive`` is its file name, ``kind`` is ``wheel``, ``sdist``, ``installed`` or ``git``.
    """

    distribution: str
    version: str
    archive: str
    kind: str
    members: Mapping[str, Member]


class Reader(Protocol):
    """Where the bytes of a listing can be had."""

    def read(self, path: str) -> bytes:
        """The bytes of a file of the listing.  Raises :class:`Unavailable`."""


class Unavailable(Refused):
    """A release, or a file of it, cannot be had."""

    code = "release-unavailable"


class Damaged(PatchkitError):
    """An archive or a cached file is not what its list says (exit 4)."""

    exit_code = 4
    code = "release-damaged"


class Wish(NamedTuple):
    """Which build of a release is wanted, where there are several.

    ``python`` is ``3.11`` or None (that of the client), ``platform`` a platform tag or None.
    """

    python: str | None = None
    platform: str | None = None


class Asked(NamedTuple):
    """A distribution with the releases that are meant: ``sglang==0.5.9``, ``sglang>=0.5.8``."""

    distribution: str
    specifier: str

    @property
    def exact(self) -> str | None:
        """The version of a plain ``==``; else None."""
        text = self.specifier
        if text.startswith("===") or not text.startswith("==") or "," in text or "*" in text:
            return None
        return text[2:].strip()


def canonical(version: str) -> str:
    """A version as PEP 440 writes it (``0.5.9.post1`` for ``0.5.9-1``); one that is none of
    PEP 440's as it is."""
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(version))
    except InvalidVersion:
        return version


def parse_asked(text: str) -> Asked:
    """``NAME`` with PEP 440 specifiers behind it.  Raises :class:`UsageError`."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(
            f"{text!r} names no release: {str(error).splitlines()[0]}",
            hint="write it as sglang==0.5.9, or a range: 'sglang>=0.5.8,<0.5.10'",
        ) from None
    if requirement.url or requirement.marker or requirement.extras:
        raise UsageError(
            f"{text!r}: only a name and versions are understood here",
            hint="write it as sglang==0.5.9",
        )
    return Asked(normalise(requirement.name), str(requirement.specifier))
