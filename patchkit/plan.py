"""(pristine contents, ordered patches) → wanted contents.

The one idea of the project as a function: :func:`materialise`.  Must not do I/O; it asks
for pristine contents through the function it is given, each path at most once.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from .errors import HunkError, PatchkitError, Refused
from .hunks import C_SOURCES, Placement, patch_text, reverse
from .mapping import Mapped
from .model import BinaryHunk, FileKind, FilePatch, FileState
from .paths import folders_above

Key = tuple[str, str]  # (root, path inside it)


class Step(NamedTuple):
    """One patch file, mapped onto one root.  ``eol`` says that line ends are the file's
    own, whatever the patch has."""

    bundle: str
    patch: str
    root: str
    files: tuple[Mapped, ...]
    eol: bool = False


class Applied(NamedTuple):
    """What one file patch did, and where its hunks went; of a rename also whence it came."""

    bundle: str
    patch: str
    key: Key
    change: str
    placements: tuple[Placement, ...]
    source: Key | None = None


class Content(NamedTuple):
    """What a path should hold, with its SHA-256; ``same`` says that it is the pristine
    contents, whose bytes are then not kept."""

    kind: FileKind
    mode: int
    sha256: str
    data: bytes | None
    same: bool


class Wanted(NamedTuple):
    """The contents of every path that a patch touches (None: absent), and how they came
    about.  ``created`` holds the paths that were absent before the first patch."""

    contents: dict[Key, Content | None]
    created: frozenset[Key]
    applied: tuple[Applied, ...]


class _File:
    """A file while patches are applied."""

    __slots__ = ("data", "kind", "mode")

    def __init__(self, state: FileState) -> None:
        self.kind = state.kind
        self.mode = state.mode
        self.data = state.data

    def state(self) -> FileState:
        return FileState(self.kind, self.mode, self.data)


def materialise(steps: Sequence[Step], pristine: Callable[[Key], FileState | None]) -> Wanted:
    """Apply the patches in order.  Raises :class:`Refused` (mostly :class:`HunkError`)
    with bundle, patch, file and hunk; nothing is kept then."""
    series = _Series(pristine)
    for step in steps:
        try:
            series.apply(step)
        except PatchkitError as error:
            raise error.at(bundle=step.bundle, patch=step.patch) from None
    created = frozenset(key for key, fact in series.pristine.items() if fact is None)
    return Wanted(series.contents(), created, tuple(series.applied))


#: The most bytes that the binary files and the copies of all patches come to.
MAX_GROWN = 1024 * 1024 * 1024


class _Series:
    def __init__(self, pristine: Callable[[Key], FileState | None]) -> None:
        self._read = pristine
        self.pristine: dict[Key, tuple[FileKind, int, str] | None] = {}
        self.files: dict[Key, _File | None] = {}
        # How many files that are there lie below each folder.
        self.below: Counter[Key] = Counter()
        self.applied: list[Applied] = []
        self._grown = 0

    def _now(self, key: Key) -> _File | None:
        if key not in self.files:
            state = None if self._was_behind_a_file(key) else self._read(key)
            # The bytes are not kept: what is compared at the end is their digest.
            self.pristine[key] = (
                None
                if state is None
                else (state.kind, state.mode, state.sha256 or _sha256(state.data))
            )
            self._put(key, None if state is None else _File(state))
        return self.files[key]

    def _put(self, key: Key, file: _File | None) -> None:
        if (self.files.get(key) is None) != (file is None):
            for folder in folders_above(key[1]):
                self.below[(key[0], folder)] += -1 if file is None else 1
        self.files[key] = file

    def _was_behind_a_file(self, key: Key) -> bool:
        """Where a file (or symlink) was, nothing lay below it: the disk is not asked, for
        a symlink might lead anywhere."""
        return any(self.pristine.get((key[0], folder)) for folder in folders_above(key[1]))

    def contents(self) -> dict[Key, Content | None]:
        out: dict[Key, Content | None] = {}
        for key, file in self.files.items():
            if file is None:
                out[key] = None
                continue
            data = file.data
            sha256 = _sha256(data)
            same = self.pristine[key] == (file.kind, file.mode, sha256)
            out[key] = Content(file.kind, file.mode, sha256, None if same else data, same)
        return out

    def apply(self, step: Step) -> None:
        """One patch file: the mails or commits in it one by one."""
        for _, files in groupby(step.files, key=lambda mapped: mapped.patch.part):
            self._apply_part(step, tuple(files))

    def _apply_part(self, step: Step, files: Sequence[Mapped]) -> None:
        """One diff.  Sources of renames and copies are read as they were before it
        (git's patches do not depend on their order); a file named twice builds on itself."""
        sources: dict[str, FileState] = {}
        going: set[str] = set()
        for mapped in files:
            if mapped.patch.change in ("rename", "copy"):
                assert mapped.old is not None
                file = self._now((step.root, mapped.old))
                if file is not None:
                    sources[mapped.old] = file.state()
            if mapped.patch.change in ("rename", "delete") and mapped.old is not None:
                going.add(mapped.old)
        folders = {folder for m in files for folder in folders_above(m.new or "")}
        for gone in sorted(going & folders):
            self._now((step.root, gone))
        written: set[str] = set()
        for mapped in files:
            try:
                self._apply_file(step, mapped, sources, going, written)
            except PatchkitError as error:
                if error.line is None:
                    error.line = mapped.patch.line
                before = {a.bundle for a in self.applied if a.key == (step.root, mapped.path)}
                if before - {step.bundle}:
                    names = ", ".join(sorted(before - {step.bundle}))
                    error.detail = (*error.detail, f"{names} changed this file before")
                raise error.at(file=mapped.path) from None
        for path in sorted(written, reverse=True):
            self._check_place(step.root, path)

    def _apply_file(
        self,
        step: Step,
        mapped: Mapped,
        sources: dict[str, FileState],
        going: set[str],
        written: set[str],
    ) -> None:
        patch = mapped.patch
        root = step.root
        placements: tuple[Placement, ...] = ()
        if patch.change in ("rename", "copy"):
            assert mapped.old is not None and mapped.new is not None
            if mapped.old not in sources:
                raise _missing(mapped.old)
            file: _File | None = _File(sources[mapped.old])
            if patch.change == "copy":
                self._grow(len(sources[mapped.old].data))
            self._must_be_free(root, mapped.new, going, written)
        elif patch.change == "add" or (
            self._now((root, mapped.path)) is None and _may_create(patch)
        ):
            self._must_be_free(root, mapped.path, going, written)
            mode = patch.new_mode or 0o100644
            if mode == 0o120000:
                file = _File(FileState("symlink", 0, b""))
            else:
                file = _File(FileState("file", 0o755 if mode & 0o100 else 0o644, b""))
        else:
            assert mapped.old is not None
            file = self._now((root, mapped.old))
            if file is None:
                raise _missing(mapped.old)
        assert file is not None
        _check_kind(file, patch)
        if patch.hunks:
            bare = any(not (hunk.leading and hunk.trailing) for hunk in patch.hunks)
            exact = bare and _is_base(file, patch)
            c = mapped.path.endswith(C_SOURCES)
            file.data, placements = patch_text(
                file.data, patch.hunks, exact=exact, c=c, own_ends=step.eol
            )
        elif patch.binary is not None:
            file.data = _apply_binary(file.data, patch)
            self._grow(len(file.data))
        if patch.change == "delete":
            if file.data:
                raise HunkError(
                    "the file is to be removed, but holds more lines than the patch removes",
                    code="not-empty",
                    hint="make the patch from the installed release, so that it removes all",
                )
            assert mapped.old is not None
            self._put((root, mapped.old), None)
            written.discard(mapped.old)
        else:
            assert mapped.new is not None
            _set_mode(file, patch)
            if file.kind == "symlink" and (not file.data or b"\0" in file.data):
                raise Refused("a symlink without a target that can be one", code="kind", hint=_KIND)
            if patch.change == "rename" and mapped.old is not None and mapped.old not in written:
                self._put((root, mapped.old), None)
            self._put((root, mapped.new), file)
            written.add(mapped.new)
        self.applied.append(
            Applied(
                step.bundle,
                step.patch,
                (root, mapped.path),
                _CHANGES[patch.change],
                placements,
                (root, mapped.old) if patch.change == "rename" and mapped.old else None,
            )
        )

    def _grow(self, size: int) -> None:
        """Count what is not as large in the patch as it becomes: deltas and copies."""
        self._grown += size
        if self._grown > MAX_GROWN:
            raise Refused(
                f"binary files and copies of more than {MAX_GROWN} bytes in all",
                code="file-too-large",
                hint="files of this size are no source; leave them out of the patches",
            )

    def _check_place(self, root: str, path: str) -> None:
        """No file lies in a file, and none is reached through a symlink that a patch made."""
        for above in folders_above(path):
            there = self.files.get((root, above))
            if there is not None:
                what = "a symlink" if there.kind == "symlink" else "a file"
                raise Refused(
                    f"{path} would lie behind {above}, which is {what}",
                    code="beyond-symlink",
                    file=path,
                    hint="leave one of the two out of the patch",
                )
        if self.below[(root, path)]:
            raise Refused(
                f"{path} would be a file, and files would lie in it",
                code="beyond-symlink",
                file=path,
                hint="leave one of the two out of the patch",
            )

    def _must_be_free(self, root: str, path: str, going: set[str], written: set[str]) -> None:
        if self._now((root, path)) is not None and (path not in going or path in written):
            raise _exists(path)


_CHANGES = {
    "modify": "modified",
    "add": "added",
    "delete": "deleted",
    "rename": "renamed",
    "copy": "added",
}


def _may_create(patch: FilePatch) -> bool:
    """A plain diff does not tell an empty file from an absent one (``@@ -0,0``)."""
    return (
        not patch.git
        and patch.change == "modify"
        and len(patch.hunks) == 1
        and not patch.hunks[0].old_text
    )


_KIND = "make the patch from what is installed, with git diff, which removes one and adds the other"


def _check_kind(file: _File, patch: FilePatch) -> None:
    """A move alone is of whatever is there; all else is of the kind that the patch says."""
    if patch.change == "add" or not (
        patch.hunks or patch.binary or patch.change == "delete" or patch.new_mode is not None
    ):
        return
    wants_link = patch.old_mode == 0o120000
    if file.kind == "symlink" and not wants_link:
        raise Refused(
            "it is a symlink, and the patch is for a regular file", code="kind", hint=_KIND
        )
    if file.kind == "file" and wants_link:
        raise Refused(
            "it is a regular file, and the patch is for a symlink", code="kind", hint=_KIND
        )


def _is_base(file: _File, patch: FilePatch) -> bool:
    """Whether the index line names these very contents (an abbreviated blob id counts)."""
    blob = patch.old_blob
    return blob is not None and len(blob) >= 7 and _blob_id(file.data).startswith(blob)


def _set_mode(file: _File, patch: FilePatch) -> None:
    """git keeps one bit, executable or not; the others stay as they are on disk."""
    mode = patch.new_mode
    if mode is None or patch.change == "add":
        return
    if file.kind == "symlink" or mode & 0o170000 != 0o100000:
        raise Refused(
            "a change of kind must remove the file and add it anew", code="kind", hint=_KIND
        )
    if mode & 0o111:
        file.mode |= (file.mode & 0o444) >> 2
    else:
        file.mode &= ~0o111


def _apply_binary(data: bytes, patch: FilePatch) -> bytes:
    assert patch.binary is not None
    if len(patch.old_blob or "") < 40 or len(patch.new_blob or "") < 40:
        raise Refused(
            "a binary patch without full blob ids cannot be checked",
            code="binary-unchecked",
            hint="make it with git diff --binary (which writes them)",
        )
    if patch.change != "add" and _blob_id(data) != patch.old_blob:
        raise HunkError(
            "the binary file is not the one that the patch was made for",
            hint="make the patch from the installed release (git diff --binary)",
        )
    hunk = patch.binary[0]
    result = hunk.data if hunk.method == "literal" else _delta(data, hunk)
    if patch.change != "delete" and _blob_id(result) != patch.new_blob:
        raise Refused(
            "the binary patch does not give the file that it announces",
            code="binary",
            hint="it is damaged; fetch it again",
        )
    return result


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _blob_id(data: bytes) -> str:
    """git's name of a blob (SHA-1 of "blob SIZE NUL" and the bytes)."""
    digest = hashlib.sha1(b"blob %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


# The largest result of a delta, in bytes; the reader's limit for a literal.
_LARGEST = 256 * 1024 * 1024


def _delta(base: bytes, hunk: BinaryHunk) -> bytes:
    """git's pack delta (patch-delta.c): copy and insert instructions."""
    data = hunk.data
    broken = Refused("a damaged binary delta", code="binary", hint="it is damaged; fetch it again")

    def size(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            if at >= len(data) or shift > 56:
                raise broken
            code = data[at]
            at += 1
            value |= (code & 0x7F) << shift
            shift += 7
            if not code & 0x80:
                return value, at

    base_size, at = size(0)
    result_size, at = size(at)
    if base_size != len(base) or result_size > _LARGEST:
        raise broken
    out = bytearray()
    while at < len(data):
        code = data[at]
        at += 1
        if code & 0x80:
            offset = length = 0
            for bit in range(7):
                if code & (1 << bit):
                    if at >= len(data):
                        raise broken
                    if bit < 4:
                        offset |= data[at] << (8 * bit)
                    else:
                        length |= data[at] << (8 * (bit - 4))
                    at += 1
            length = length or 0x10000
            if offset + length > len(base) or len(out) + length > result_size:
                raise broken
            out += base[offset : offset + length]
        elif code:
            if at + code > len(data) or len(out) + code > result_size:
                raise broken
            out += data[at : at + code]
            at += code
        else:
            raise broken
    if len(out) != result_size:
        raise broken
    return bytes(out)


def reverse_file(patch: FilePatch) -> FilePatch:
    """The file patch that takes this one back."""
    change = patch.change
    if change == "copy":
        raise Refused(
            "a copy cannot be taken back: its reverse would remove a file by its name alone",
            code="reverse-copy",
            file=patch.path,
            hint="make the opposite patch: git diff NEW OLD",
        )
    if patch.binary is not None and patch.binary[1] is None:
        raise Refused(
            "a binary patch without its reverse half",
            code="binary",
            file=patch.path,
            hint="make it with git diff --binary (which writes both)",
        )
    # An index line names the mode of a file whose mode does not change.
    old_mode = patch.new_mode if patch.new_mode is not None else patch.old_mode
    if change == "delete":
        old_mode = None
    new_mode = patch.old_mode if change == "delete" or patch.new_mode is not None else None
    # Two names of a plain diff are one file's: which of them it has does not change.
    one = change == "modify" and not patch.git
    return FilePatch(
        {"add": "delete", "delete": "add"}.get(change, change),  # type: ignore[arg-type]
        patch.old_path if one else patch.new_path,
        patch.new_path if one else patch.old_path,
        old_mode,
        new_mode,
        tuple(reverse(hunk) for hunk in patch.hunks),
        patch.line,
        git=patch.git,
        binary=None
        if patch.binary is None or patch.binary[1] is None
        else (patch.binary[1], patch.binary[0]),
        old_blob=patch.new_blob,
        new_blob=patch.old_blob,
        part=patch.part,
    )


def _missing(path: str) -> Refused:
    return Refused(
        f"{path} is not there",
        code="file-missing",
        file=path,
        hint="it may have moved in this release (patchkit show says what the bundle was made"
        " for), or the strip level is wrong",
    )


def _exists(path: str) -> Refused:
    return Refused(
        f"{path} is already there, and the patch would make it",
        code="file-exists",
        hint="this release may hold the change already",
    )
