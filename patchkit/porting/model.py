"""The values of porting: what became of each hunk, file and patch.

Frozen data; must not do I/O.  Paths are as :mod:`patchkit.model` has them; lines count from 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

#: From the best to the worst: a file has the worst of its hunks, but "upstream" and "gone"
#: count as nothing where another hunk of it was placed.
Outcome = Literal["unchanged", "offset", "merged", "upstream", "gone", "conflict"]

_ORDER: tuple[Outcome, ...] = ("upstream", "gone", "unchanged", "offset", "merged", "conflict")


class Tree(Protocol):
    """The pristine files of one release."""

    def paths(self) -> Iterable[str]:
        """Every path in it."""
        ...

    def digest(self, path: str) -> str | None:
        """The SHA-256 of a file in hex, known without reading it; None where there is none."""
        ...

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None where there is none."""
        ...


class FileEdit(NamedTuple):
    """What one patch makes of one file: ``old`` is None for an added one, ``new`` and
    ``data`` for a removed one; ``mode`` (permission bits) where the patch sets it."""

    old: str | None
    new: str | None
    data: bytes | None
    mode: int | None = None


class PatchEdit(NamedTuple):
    """One patch of a series as the contents that it leaves."""

    name: str
    files: tuple[FileEdit, ...]


class Span(NamedTuple):
    """Some lines: the first (from 1) and how many; of none, the line that they precede."""

    line: int
    lines: int


class HunkResult(NamedTuple):
    """What became of one hunk: ``reason`` says why, where it is not plain.

    ``within`` is the def or class as the base names it, empty at the top of a file;
    ``theirs`` is where it stands in the target, in the file ``path``.
    """

    outcome: Outcome
    reason: str
    within: str
    base: Span
    ours: Span
    theirs: Span
    path: str | None


class Problem(NamedTuple):
    """A check that the merged file failed; ``line`` counts in it."""

    code: str
    message: str
    line: int | None = None


class FileResult(NamedTuple):
    """One file of one patch; where a def of it moved to another file, that is one more.

    ``old_path`` is its path in the base, ``path`` in the target (they differ where it
    moved), None where there is none; ``removed`` is the path of a file that goes.  ``data``
    is the new contents, None where there is nothing to write.  ``base``, ``ours`` and
    ``theirs`` are the three sides of the merge, and ``marked`` is theirs with conflict
    markers where the outcome is "conflict".
    """

    outcome: Outcome
    old_path: str | None
    path: str | None
    hunks: tuple[HunkResult, ...] = ()
    problems: tuple[Problem, ...] = ()
    data: bytes | None = None
    base: bytes | None = None
    ours: bytes | None = None
    theirs: bytes | None = None
    marked: bytes | None = None
    mode: int | None = None
    removed: str | None = None
    notes: tuple[str, ...] = ()


class PatchResult(NamedTuple):
    """One patch of the series."""

    name: str
    outcome: Outcome
    files: tuple[FileResult, ...]


class Ported(NamedTuple):
    """A whole series on the target: ``contents`` maps every path that it changes there to
    the new bytes, or None for a file that goes.  ``inputs`` are the two trees and the
    series, for :func:`.engine.resume`."""

    contents: Mapping[str, bytes | None]
    patches: tuple[PatchResult, ...]
    inputs: tuple[Tree, Tree, tuple[PatchEdit, ...]]

    @property
    def outcome(self) -> Outcome:
        """The outcome of the series as a whole."""
        return worst(patch.outcome for patch in self.patches)

    @property
    def conflicts(self) -> tuple[FileResult, ...]:
        """The files that a person must merge."""
        return tuple(
            file for patch in self.patches for file in patch.files if file.outcome == "conflict"
        )


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of a whole from those of its parts; "unchanged" where there is none."""
    return max(outcomes, key=_ORDER.index, default="unchanged")
