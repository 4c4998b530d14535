"""What is recorded of an environment: the applied set, the check list, the lock.

Owns the layout of ``.patchkit/`` and the reading and rendering of ``state.json``.  It
must stay cheap to import (``verify`` needs it) and must not decide what is to be applied.

::

    .patchkit/
        state.json      the applied set and what verify checks; first line: its SHA-256
        lock            held with flock(2) while something changes
        journal.json    a transaction under way (or interrupted)
        staged/         new contents that wait; its presence marks an unfinished command
        undo/           second names of what the transaction replaces
        pristine/       the pristine files (hard links, so that the inode comes back)
        pycs/           byte-code of the pristine modules, put back on revert
        trial.json      a trial under way, held with flock(2) as long as it lives, and the
                        set that was applied before it
        trial/          what that set is made of, by SHA-256
        launch.lock     held, shared, by what was launched, and by nobody while files change
        launches/       who was launched: one note each, held as long as its processes live
        guard           what the check at interpreter start compares (only where it is installed)
        reserve         space that a revert on a full disk takes back
        blobs/          manifests, the patches of a variant in one, and copies of pristine
                        bytes, by SHA-256
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from .errors import PatchkitError, Refused
from .fsio import Root, digest
from .shape import journal_fault, state_fault, trial_fault

NAME = ".patchkit"
SCHEMA = 2
STATE, JOURNAL, LOCK = f"{NAME}/state.json", f"{NAME}/journal.json", f"{NAME}/lock"
RESERVE, GUARD = f"{NAME}/reserve", f"{NAME}/guard"
LAUNCH, LAUNCHES = f"{NAME}/launch.lock", f"{NAME}/launches"
TRIAL, TRIAL_SET = f"{NAME}/trial.json", f"{NAME}/trial"
STAGED, UNDO, PRISTINE = f"{NAME}/staged", f"{NAME}/undo", f"{NAME}/pristine"
PYCS, BLOBS = f"{NAME}/pycs", f"{NAME}/blobs"
FOLDERS = (STAGED, UNDO, PRISTINE, PYCS, BLOBS)
#: The most bytes of a state or a journal (a changed file takes about 600), and of the note in
#: the lock.
MAX_STATE = 64 * 1024 * 1024
MAX_NOTE = 4096
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Ident(TypedDict):
    """What tells one content of a path from another.  ``mode`` is 0 for a symlink, whose
    ``sha256`` is of its target; ``link`` is then the target."""

    kind: str
    mode: int
    sha256: str
    link: str | None


class FileEntry(TypedDict):
    """One file that differs from pristine.  ``root`` indexes ``roots``; ``stash`` names
    the pristine file under ``pristine/``, ``blob`` a copy of its bytes under ``blobs/``
    (made when the inode is shared, since others could write through it).  ``role`` is
    ``record`` for the RECORD of a distribution that gained files, ``owner`` the name of
    the distribution (empty for a plain tree), ``bundles`` who changes the file."""

    root: int
    path: str
    before: Ident | None
    after: Ident | None
    stash: str | None
    blob: str | None
    role: str
    owner: str
    bundles: list[str]


class VariantEntry(TypedDict):
    """The variant chosen for one distribution.  ``release`` is what was installed;
    ``patches`` are [path, SHA-256, size], whose bytes stand one behind the other in the
    blob ``pack``.  ``made_for`` is the release whose files these are, if the variant was
    chosen by them."""

    distribution: str
    release: str
    versions: str
    strip: int | None
    patches: list[tuple[str, str, int]]
    pack: str
    upstream: str | None
    unneeded: str | None
    made_for: str | None


class BundleEntry(TypedDict):
    """One applied bundle, with the blobs that make it independent of its directory; ``origin``
    is the repository, revision and cleanness of that."""

    name: str
    version: str
    loose: bool
    reverse: bool
    eol: bool
    strip: int | None
    manifest: str | None
    variants: list[VariantEntry]
    profile: dict[str, Any]
    caches: dict[str, list[str]]
    origin: dict[str, Any] | None


class AssertEntry(TypedDict):
    """An assertion that held, and the digests of all that it read.  While they are the
    same it holds still, since it is a function of these bytes."""

    bundle: str
    root: int
    assertion: dict[str, Any]
    reads: dict[str, str | None]


class DistributionEntry(TypedDict):
    """One patched distribution; ``dist_info`` is relative to the holder of ``.patchkit``
    where it lies there."""

    name: str
    version: str
    root: int
    kind: str
    dist_info: str | None


class State(TypedDict):
    """``state.json``.  ``roots[0]`` is ``"."``, the directory that holds ``.patchkit``
    or, for a git checkout, the tree that is patched; others are absolute.

    ``base`` is that tree as seen from the directory that holds ``.patchkit``: several
    folders of one checkout share its git directory, and a record is of one of them.

    ``serial`` counts the changes, so that no two states are the same bytes: that a state
    is on disk is what tells a transaction that was committed.

    ``folders``: [root, path, "made" or "gone", mode, uid, gid] for folders that a change
    made, or may have emptied and removed.  ``pycs``: [root, path, name under ``pycs/``]."""

    schema: int
    base: str
    serial: int
    fingerprint: str
    roots: list[str]
    distributions: list[DistributionEntry]
    bundles: list[BundleEntry]
    files: list[FileEntry]
    folders: list[list[Any]]
    pycs: list[list[Any]]
    asserts: list[AssertEntry]


class Home:
    """The place of ``.patchkit``: ``holder`` is the directory that contains it, ``base``
    the directory that root ``"."`` stands for."""

    def __init__(self, holder: str, base: str) -> None:
        self.holder = holder
        self.base = base

    @property
    def relative(self) -> str:
        """``base`` as seen from ``holder``, so that both may be moved together."""
        return os.path.relpath(os.path.realpath(self.base), os.path.realpath(self.holder))

    @property
    def path(self) -> str:
        """The ``.patchkit`` folder."""
        return f"{self.holder}/{NAME}"

    def exists(self) -> bool:
        """Whether there is one."""
        return _is_there(self.path)

    def resolve(self, root: str) -> str:
        """The absolute directory of an entry of ``State.roots``."""
        return self.base if root == "." else root

    def read_state(self) -> State | None:
        """The recorded state, or None where nothing is applied."""
        state: State | None = self._read(STATE)
        return state

    def read_journal(self) -> dict[str, Any] | None:
        """The transaction under way or interrupted, or None."""
        journal: dict[str, Any] | None = self._read(JOURNAL)
        return journal

    def read_trial(self) -> dict[str, Any] | None:
        """The trial under way, or dead, or None."""
        trial: dict[str, Any] | None = self._read(TRIAL)
        return trial

    def _read(self, name: str) -> Any:
        path = f"{self.holder}/{name}"
        data = read_own(path)
        if data is None:
            return None
        value = parse_record(data, path, _FAULTS[name])
        if value["base"] != self.relative:
            other = os.path.normpath(os.path.join(os.path.realpath(self.holder), value["base"]))
            raise Refused(
                f"{self.holder} has the record of {other}, not of {self.base}",
                code="other-root",
                hint=f"name that folder: --root {other}",
            )
        return value

    def mark(self) -> tuple[tuple[int, int] | bytes | None, ...]:
        """Changes whenever another state was published, or a change began or ended: also one
        that was rolled back, since no two holders of the lock write the same note."""
        marks: list[tuple[int, int] | bytes | None] = []
        for name in (STAGED, JOURNAL, STATE):
            try:
                status = os.lstat(f"{self.holder}/{name}")
            except (FileNotFoundError, NotADirectoryError):
                marks.append(None)
            else:
                marks.append((status.st_ino, status.st_mtime_ns))
        return (*marks, self.note())

    @staticmethod
    def is_unfinished(mark: tuple[tuple[int, int] | bytes | None, ...]) -> bool:
        """Whether a command was under way, or had been interrupted, at that mark."""
        return mark[0] is not None or mark[1] is not None

    def unfinished(self) -> bool:
        """Whether a command is under way, or was interrupted."""
        return self.is_unfinished(self.mark())

    def note(self) -> bytes | None:
        """What the last holder of the lock wrote into it; None where there is no lock, or it
        cannot be read."""
        try:
            return read_own(f"{self.holder}/{LOCK}", most=MAX_NOTE)
        except (OSError, PatchkitError):
            return None


_FAULTS = {STATE: state_fault, JOURNAL: journal_fault, TRIAL: trial_fault}


def same(one: Ident | None, other: Ident | None) -> bool:
    """Whether two contents are equal in kind, mode and bytes."""
    if one is None or other is None:
        return one is other
    return (one["kind"], one["mode"], one["sha256"]) == (
        other["kind"],
        other["mode"],
        other["sha256"],
    )


def render(value: Mapping[str, Any]) -> bytes:
    """JSON whose first line holds the SHA-256 of the rest: a person can read it, and a
    damaged file is known for one.

    One line an entry: json's own indenting is not done in C and costs ten times as much.
    """
    parts = []
    for key, item in value.items():
        if isinstance(item, list) and item:
            rows = ",\n  ".join(json.dumps(row) for row in item)
            parts.append(f'"{key}": [\n  {rows}\n ]')
        else:
            parts.append(f'"{key}": {json.dumps(item)}')
    body = ("\n " + ",\n ".join(parts) + "\n}\n").encode("ascii")
    return b'{"checksum": "' + digest(body).encode("ascii") + b'",' + body


#: A path and what is wrong with the file → the error.
Damage = Callable[[str, str], PatchkitError]


def damaged(path: str, why: str) -> PatchkitError:
    """The error for a file of patchkit's own that cannot be what patchkit wrote.

    Its hint is a way out that loses nothing: what is moved away still has the pristine files.
    """
    import shlex

    folder = path[: path.rindex(f"/{NAME}/") + len(NAME) + 1]
    aside = f"mv {shlex.quote(folder)} {shlex.quote(folder + '-damaged')}"
    return PatchkitError(
        f"{path} is damaged ({why}); it is not guessed at",
        code="state-damaged",
        hint=f"set it aside with all that it keeps: {aside}; then reinstall the patched"
        " distributions (a checkout: git restore; a plain tree: the pristine files are in"
        " pristine/ and blobs/ there) and apply again",
    )


def parse_record(
    data: bytes, path: str, fault: Callable[[Any], str | None], damage: Damage = damaged
) -> Any:
    """What :func:`render` made, checked: its checksum, its schema, and its shape by ``fault``.
    What ``damage`` makes of the path and the reason is raised where it is something else."""
    head, mark, body = data[:14], data[14:78], data[80:]
    if head != b'{"checksum": "' or data[78:80] != b'",' or digest(body).encode() != mark:
        raise damage(path, "its checksum is wrong")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damage(path, f"no JSON: {error}") from None
    value.pop("checksum")
    schema = value.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise Refused(
            f"{path} was written by another version of patchkit (schema {schema})",
            code="state-schema",
            hint="use that version to revert first",
        )
    if schema == 1:
        _upgrade(value)
    wrong = "schema" if value.get("schema") != SCHEMA else fault(value)
    if wrong is not None:
        raise damage(path, f"{wrong} is not what patchkit writes there")
    return value


def _upgrade(value: dict[str, Any]) -> None:
    """What patchkit 0.1 wrote, with what it did not know: by what a variant was chosen, and
    where a bundle came from."""
    value["schema"] = SCHEMA
    bundles = value.get("bundles", [])
    for entry in bundles if isinstance(bundles, list) else []:
        if isinstance(entry, dict):
            entry.setdefault("origin", None)
            variants = entry.get("variants")
            for variant in variants if isinstance(variants, list) else []:
                if isinstance(variant, dict):
                    variant.setdefault("unneeded", None)
                    variant.setdefault("made_for", None)


def _is_there(path: str) -> bool:
    """Whether a name is taken.  An error is raised: what cannot be looked at is not absent."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_own(path: str, most: int = MAX_STATE, damage: Damage = damaged) -> bytes | None:
    """A file of patchkit's own; None where there is none.  Never blocks, and follows no
    symlink; more than ``most`` bytes are refused, since patchkit does not write so many.
    ``damage`` makes the error of what cannot be patchkit's."""
    try:
        descriptor = os.open(path, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise damage(path, "it is a symlink") from None
        if error.errno == errno.ENXIO:
            raise damage(path, "it is a socket") from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise damage(path, "it is no regular file")
        if status.st_size > most:
            raise damage(path, f"it has {status.st_size} bytes, and the limit is {most}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most + 1)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def ident_on_disk(root: Root, path: str) -> Ident | None:
    """What is at a path now; a symlink is not followed, and a folder is no contents."""
    status = root.lstat(path)
    if status is None or stat.S_ISDIR(status.st_mode):
        return None
    if stat.S_ISLNK(status.st_mode):
        target = root.readlink(path)
        return Ident(kind="symlink", mode=0, sha256=digest(target), link=os.fsdecode(target))
    if not stat.S_ISREG(status.st_mode):
        return Ident(kind="other", mode=stat.S_IMODE(status.st_mode), sha256="", link=None)
    return Ident(
        kind="file",
        mode=stat.S_IMODE(status.st_mode),
        sha256=digest(root.read(path)),
        link=None,
    )
