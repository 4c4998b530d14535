"""The values that the parts of patchkit hand to each other.

Frozen data without behaviour beyond small derived facts.  Must not do I/O and must not
import anything of patchkit.  Paths inside a distribution are POSIX strings relative to
its root (``sglang/srt/server_args.py``); bytes that are no UTF-8 travel as surrogate
escapes, as :func:`os.fsdecode` makes them.
"""

from __future__ import annotations

import io
from typing import Literal, NamedTuple

FileKind = Literal["file", "symlink"]
ChangeKind = Literal["modify", "add", "delete", "rename", "copy"]


def split(data: bytes) -> list[bytes]:
    """Lines, split at ``\\n`` alone, each with its end."""
    return io.BytesIO(data).readlines()


class FileState(NamedTuple):
    """What a path holds: the bytes of a regular file, or the target of a symlink.

    ``mode`` is the permission bits (``0o644``); 0 for a symlink, which has none of its own.
    ``sha256`` is that of the bytes, where it is known.
    """

    kind: FileKind
    mode: int
    data: bytes
    sha256: str | None = None


class Hunk(NamedTuple):
    """One hunk.  ``old_text`` and ``new_text`` are whole lines, each with its own ``\\n``
    but perhaps the last; ``old`` and ``new`` are the same as lines.

    ``old_start`` and ``new_start`` count from 1, as in the header; ``leading`` and
    ``trailing`` are the numbers of context lines at the ends; ``heading`` is the text
    behind the second ``@@``; ``line`` is where the header stands in the patch file;
    ``signs`` is the first byte of each line of the body.
    """

    old_start: int
    new_start: int
    old_text: bytes
    new_text: bytes
    leading: int
    trailing: int
    heading: bytes
    line: int
    signs: bytes

    @property
    def old(self) -> tuple[bytes, ...]:
        """The old lines; made anew at each call."""
        return tuple(split(self.old_text))

    @property
    def new(self) -> tuple[bytes, ...]:
        """The new lines; made anew at each call."""
        return tuple(split(self.new_text))

    @property
    def old_count(self) -> int:
        """How many old lines there are."""
        return len(self.signs) - self.signs.count(b"+") - self.signs.count(b"\\")


class BinaryHunk(NamedTuple):
    """One half of a ``GIT binary patch``: inflated literal bytes, or a delta."""

    method: Literal["literal", "delta"]
    data: bytes
    size: int


class FilePatch(NamedTuple):
    """What one patch does to one file.  ``old_path`` is None for an added file,
    ``new_path`` for a deleted one.  Paths are as in the header, unquoted, not stripped.

    Modes are git's full modes (``0o100644``, ``0o100755``, ``0o120000``) or None where
    the patch does not say.  ``line`` is the first header line of it in the patch file,
    ``part`` the number of the mail or commit it stands in, where several are in one file.
    """

    change: ChangeKind
    old_path: str | None
    new_path: str | None
    old_mode: int | None
    new_mode: int | None
    hunks: tuple[Hunk, ...]
    line: int
    git: bool = False
    binary: tuple[BinaryHunk, BinaryHunk | None] | None = None
    old_blob: str | None = None
    new_blob: str | None = None
    part: int = 0

    @property
    def path(self) -> str:
        """The path it is known by: the new one, or the old one of a deleted file."""
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path


class Patch(NamedTuple):
    """One patch file, read whole.  ``dep3`` holds the DEP-3 fields of its header."""

    name: str
    sha256: str
    files: tuple[FilePatch, ...]
    dep3: tuple[tuple[str, str], ...] = ()


class Literal_(NamedTuple):
    """``literal = { name, has }``: a display bound to ``name`` holds every one of ``has``."""

    name: str
    has: tuple[object, ...]


class Condition(NamedTuple):
    """``condition = { test, given, is }``: what a boolean expression of the code yields."""

    test: str
    given: tuple[tuple[str, object], ...]
    expected: bool


class Assertion(NamedTuple):
    """One ``[[assert]]``.  Exactly one of pattern, text, literal, condition, defined is set.

    ``minimum`` and ``maximum`` come from count, min, max and absent; with none of them in
    the manifest they are 1 and None.  ``scope`` is the key ``in``.  ``key`` names it in
    messages (``assert[0]``).
    """

    key: str
    distribution: str
    file: str
    pattern: str | None = None
    text: str | None = None
    literal: Literal_ | None = None
    condition: Condition | None = None
    defined: tuple[str, ...] = ()
    within: str | None = None
    minimum: int | None = 1
    maximum: int | None = None
    scope: Literal["code", "text"] = "text"
    versions: str | None = None
    message: str = ""


class Finding(NamedTuple):
    """The verdict of one assertion: ``reads`` names the other files that it depended on."""

    ok: bool
    message: str
    line: int | None = None
    reads: tuple[str, ...] = ()


class Variant(NamedTuple):
    """The patches of a bundle for one range of releases of one distribution.

    ``upstream`` says why no patch is needed in that range (the release does it by itself),
    ``unneeded`` why none is possible (what it would change is not there); ``patches`` is then
    empty.
    """

    versions: str
    patches: tuple[str, ...] = ()
    strip: int | None = None
    upstream: str | None = None
    unneeded: str | None = None

    @property
    def reason(self) -> str | None:
        """Why there is nothing to patch; None where there is."""
        return self.upstream or self.unneeded


class Pristine(NamedTuple):
    """The pristine files that a variant was made for: path to SHA-256, the same for each of
    the ``releases``.  ``versions`` is the variant's."""

    distribution: str
    versions: str
    releases: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


class Target(NamedTuple):
    """One distribution that a bundle changes (normalised name, PEP 503)."""

    distribution: str
    variants: tuple[Variant, ...]
    required: bool = True


class ProfileVariant(NamedTuple):
    """Environment and arguments that replace the profile's for a range of releases."""

    distribution: str
    versions: str
    env: tuple[tuple[str, str], ...] | None = None
    args: tuple[str, ...] | None = None


class Profile(NamedTuple):
    """The environment variables and launch arguments a bundle stands for."""

    env: tuple[tuple[str, str], ...] = ()
    args: tuple[str, ...] = ()
    variants: tuple[ProfileVariant, ...] = ()


class Bundle(NamedTuple):
    """One manifest.  ``sha256`` is of the manifest's bytes; ``lock`` maps patch paths to
    SHA-256, or is None where there is no lock file; ``pristine`` is what the lock says of
    the releases that the variants were made for."""

    name: str
    version: str
    summary: str
    description: str
    requires: tuple[str, ...]
    conflicts: tuple[str, ...]
    targets: tuple[Target, ...]
    asserts: tuple[Assertion, ...]
    profile: Profile
    caches: tuple[tuple[str, tuple[str, ...]], ...]
    sha256: str
    lock: tuple[tuple[str, str], ...] | None = None
    loose: bool = False
    pristine: tuple[Pristine, ...] = ()
