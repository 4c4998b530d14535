"""Power cuts: what a disk may hold when what was not synced is lost, in part or out of order.

A command is run once, and every call that changes the tree is recorded with what it returned.
A small model replays them: a file's bytes and mode are safe from its own fsync on, a name from
the fsync of its folder on.  At each moment the rest may be there or not:

- of the changes of names since the last sync, any subset, in any order (POSIX orders none);
  a rename is one change, of which the old name may stay, but the file is never lost with both
  (no file system in use loses it);
- of a file that was not synced, the bytes as they were, none, zeros of the full length, the
  first half, or all; its mode as it was or as it is.

Each such state is put on the disk, and the tool is let loose on it.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.crash.disk import Entry, Picture
from tests.crash.kills import Explorer, Row
from tests.crash.subjects import State
from tests.crash.tracer import CHANGING, Call

_RENAMES = {"rename", "renameat", "renameat2"}
_LINKS = {"link", "linkat"}
_UNLINKS = {"unlink", "unlinkat", "rmdir"}
_SYNCS = {"fsync", "fdatasync"}
#: What syncs more than what it is asked for: no command may do that.
WHOLE = {"sync", "syncfs"}

FULL, OLD, EMPTY, ZEROS, HALF = "full", "old", "empty", "zeros", "half"


@dataclass(eq=False)
class File:
    """A file or symlink; ``safe`` is what a power cut leaves of it for sure."""

    kind: str
    mode: int
    owner: tuple[int, int]
    data: bytes
    safe: tuple[bytes, int] | None = None

    @property
    def dirty(self) -> bool:
        return self.kind == "file" and self.safe != (self.data, self.mode)

    def after(self, fate: str) -> tuple[bytes, int]:
        """Bytes and mode after a power cut."""
        old, mode = self.safe or (b"", 0o600)
        now = self.data
        return {
            FULL: (now, self.mode),
            OLD: (old, mode),
            EMPTY: (b"", self.mode),
            ZEROS: (bytes(len(now)), self.mode),
            HALF: (now[: len(now) // 2], self.mode),
        }[fate]


@dataclass(eq=False)
class Folder:
    """A folder; ``waiting`` are the changes of its names since its last sync."""

    mode: int
    owner: tuple[int, int]
    names: dict[str, File | Folder] = field(default_factory=dict)
    safe: dict[str, File | Folder] = field(default_factory=dict)
    waiting: list[tuple[int, str, File | Folder | None]] = field(default_factory=list)


@dataclass(frozen=True)
class Fate:
    """Which of the waiting changes of names get to the disk (of a rename perhaps only the new
    name), and what becomes of the files that were not synced."""

    changes: frozenset[int]
    only_new_name: frozenset[int] = frozenset()
    files: Mapping[int, str] = field(default_factory=dict)  # by place in the list of dirty ones
    rest: str = FULL


class Model:
    """A tree as the calls made it, and what of it is safe."""

    def __init__(self, explorer: Explorer, start: Picture) -> None:
        self.region = explorer.subject.region
        self.tree = self.region.tree
        self._count = 0
        self._digests: dict[bytes, str] = {}
        self._position: dict[tuple[int, int], int] = {}
        self._folders: dict[str, Folder] = {}
        self._files: list[File] = []
        for path in sorted(self.region.flat):
            if os.path.isdir(f"{self.tree}/{path}") and path not in start.entries:
                status = os.stat(f"{self.tree}/{path}")
                owner = (status.st_uid, status.st_gid)
                self._folders[path] = Folder(status.st_mode & 0o7777, owner)
        self._roots = list(self._folders)
        shared: dict[tuple[str, ...], File] = {}
        for path, entry in sorted(start.entries.items()):
            above, _, name = path.rpartition("/")
            node: File | Folder
            if entry.kind == "folder":
                node = self._folders[path] = Folder(entry.mode, entry.owner)
            else:
                node = shared.get(entry.names) or self._known(entry)
                shared[entry.names] = node
            self._folders[above].names[name] = self._folders[above].safe[name] = node

    def _known(self, entry: Entry) -> File:
        if entry.kind == "symlink":
            return File("symlink", 0, entry.owner, os.fsencode(entry.content))
        data = self.region.bytes_of(entry.content) if entry.content else b""
        file = File("file", entry.mode, entry.owner, data, (data, entry.mode))
        self._files.append(file)
        return file

    # -- what the calls do ------------------------------------------------------------

    def call(self, call: Call, result: int) -> bool:
        """Take one call that is over; whether it concerned the tree."""
        inside = any(f"{path}/".startswith(f"{self.tree}/") for path in call.paths)
        if result < 0 or not inside:
            return False
        paths = [self._relative(path) for path in call.paths]
        name, arguments = call.name, call.arguments
        if name in ("open", "openat"):
            self._open(call, paths[0], arguments, result)
        elif name in ("write", "pwrite64"):
            self._write(call, paths[0], result)
        elif name == "ftruncate":
            file = self._file(paths[0])
            if file is not None:
                file.data = file.data[: arguments[1]].ljust(arguments[1], b"\0")
        elif name == "fallocate":
            file = self._file(paths[0])
            if file is not None:
                file.data = file.data.ljust(arguments[2] + arguments[3], b"\0")
        elif name in _SYNCS:
            self._sync(paths[0])
        elif name in _RENAMES:
            self._rename(*paths)
        elif name in _LINKS:
            self._change([(paths[1], self._node(paths[0]))])
        elif name in ("symlink", "symlinkat"):
            target = os.fsencode(call.text_at(0))
            self._change([(paths[0], File("symlink", 0, _owner(), target))])
        elif name in _UNLINKS:
            self._folders.pop(paths[0], None)
            self._change([(paths[0], None)])
        elif name in ("mkdir", "mkdirat"):
            mode = arguments[1 if name == "mkdir" else 2] & ~0o022
            self._folders[paths[0]] = Folder(mode, _owner())
            self._change([(paths[0], self._folders[paths[0]])])
        elif name in ("chmod", "fchmod", "fchmodat", "fchmodat2"):
            mode = arguments[2 if "at" in name else 1] & 0o7777
            node = self._folders.get(paths[0]) or self._file(paths[0])
            if node is not None:
                node.mode = mode
        elif name not in ("utimensat", "utimes", "setxattr", "fsetxattr", *WHOLE):
            raise NotImplementedError(f"no model of {name}")
        return True

    def _relative(self, path: str) -> str:
        return "" if path == self.tree else path[len(self.tree) + 1 :]

    def _node(self, path: str) -> File | Folder | None:
        above, _, name = path.rpartition("/")
        folder = self._folders.get(above)
        return None if folder is None else folder.names.get(name)

    def _file(self, path: str) -> File | None:
        node = self._node(path)
        return node if isinstance(node, File) else None

    def _open(self, call: Call, path: str, arguments: Sequence[int], result: int) -> None:
        flags, mode = arguments[2:4] if call.name == "openat" else arguments[1:3]
        self._position[call.pid, result] = 0
        file = self._file(path)
        if file is None and flags & os.O_CREAT:
            file = File("file", mode & ~0o022 & 0o7777, _owner(), b"")
            self._files.append(file)
            self._change([(path, file)])
        elif file is not None and flags & os.O_TRUNC:
            file.data = b""

    def _write(self, call: Call, path: str, result: int) -> None:
        file = self._file(path)
        if file is None:
            return
        data = call.bytes_at(1, result)
        handle = (call.pid, call.arguments[0])
        at = call.arguments[3] if call.name == "pwrite64" else self._position.get(handle, 0)
        file.data = file.data[:at].ljust(at, b"\0") + data + file.data[at + len(data) :]
        if call.name == "write":
            self._position[handle] = at + len(data)

    def _rename(self, old: str, new: str) -> None:
        node = self._node(old)
        if node is self._node(new):
            return  # two names of one inode: rename(2) does nothing
        self._change([(new, node), (old, None)])

    def _change(self, effects: Sequence[tuple[str, File | Folder | None]]) -> None:
        self._count += 1
        for path, node in effects:
            above, _, name = path.rpartition("/")
            folder = self._folders[above]
            if node is None:
                folder.names.pop(name, None)
            else:
                folder.names[name] = node
            folder.waiting.append((self._count, name, node))

    def _sync(self, path: str) -> None:
        folder = self._folders.get(path)
        if folder is None:
            file = self._file(path)
            if file is not None:
                file.safe = (file.data, file.mode)
            return
        removed = {number for number, _, node in folder.waiting if node is None}
        _settle(folder, folder.waiting)
        # The old name of a file is safely gone only with the new one safely there.
        for other in self._folders.values():
            _settle(other, [item for item in other.waiting if item[0] in removed])

    # -- what may be left -------------------------------------------------------------

    def dirty(self) -> list[File]:
        """The files that a power cut may change."""
        return [file for file in self._files if file.dirty]

    def waiting(self) -> tuple[list[int], list[int]]:
        """The changes of names that may be lost, and which of them are renames."""
        found: dict[int, int] = {}
        for folder in self._folders.values():
            for number, _, _ in folder.waiting:
                found[number] = found.get(number, 0) + 1
        return sorted(found), sorted(n for n, count in found.items() if count > 1)

    def picture(self, fate: Fate | None = None) -> Picture:
        """The tree now; with a fate, after a power cut."""
        dirty = {id(file): place for place, file in enumerate(self.dirty())}
        names: dict[int, list[str]] = {}
        found: dict[str, File | Folder] = {}

        def show(path: str, folder: Folder) -> None:
            for name, node in _names(folder, fate).items():
                full = f"{path}/{name}" if path else name
                found[full] = node
                if isinstance(node, Folder):
                    show(full, node)
                else:
                    names.setdefault(id(node), []).append(full)

        for root in self._roots:
            show(root, self._folders[root])
        entries = {}
        for path, node in found.items():
            if isinstance(node, Folder):
                entries[path] = Entry("folder", node.mode, node.owner, "", ())
                continue
            data, mode = node.data, node.mode
            if fate is not None and id(node) in dirty:
                data, mode = node.after(fate.files.get(dirty[id(node)], fate.rest))
            content = os.fsdecode(data) if node.kind == "symlink" else self._digest(data)
            if path in self.region.ignored:
                content = ""
            together = tuple(sorted(names[id(node)]))
            entries[path] = Entry(node.kind, mode, node.owner, content, together)
        return Picture(entries, {})

    def _digest(self, data: bytes) -> str:
        found = self._digests.get(data)
        if found is None:
            found = self._digests[data] = self.region.keep(data)
        return found


def _owner() -> tuple[int, int]:
    return os.geteuid(), os.getegid()


def _settle(folder: Folder, items: Sequence[tuple[int, str, File | Folder | None]]) -> None:
    """Make changes of names safe; earlier ones of the same name are overtaken."""
    for number, name, node in list(items):
        if node is None:
            folder.safe.pop(name, None)
        else:
            folder.safe[name] = node
        folder.waiting = [i for i in folder.waiting if i[1] != name or i[0] > number]


def _names(folder: Folder, fate: Fate | None) -> dict[str, File | Folder]:
    if fate is None:
        return folder.names
    found = dict(folder.safe)
    for number, name, node in folder.waiting:
        if number not in fate.changes or (node is None and number in fate.only_new_name):
            continue
        if node is None:
            found.pop(name, None)
        else:
            found[name] = node
    return found


def fates(model: Model, randoms: int, generator: random.Random) -> Iterator[Fate]:
    """All subsets where they are few; else none, all, each alone, each left out, and some at
    random; with files whole, as they were, empty, of zeros, in half, and at random."""
    changes, renames = model.waiting()
    everything = frozenset(changes)
    subsets = [everything, frozenset[int]()]
    if len(changes) <= 4:
        for size in range(1, len(changes)):
            subsets += map(frozenset, itertools.combinations(changes, size))
    else:
        subsets += [frozenset([one]) for one in changes]
        subsets += [everything - {one} for one in changes]
    dirty = len(model.dirty())
    kinds = (FULL, OLD, ZEROS, HALF, EMPTY) if dirty else (FULL,)
    for subset in subsets:
        for kind in kinds if subset == everything else kinds[:2]:
            yield Fate(subset, rest=kind)
    for one in renames:
        yield Fate(everything, frozenset([one]))
    if len(changes) + dirty > 1:
        for _ in range(randoms):
            some = frozenset(one for one in changes if generator.random() < 0.5)
            twice = frozenset(one for one in renames if generator.random() < 0.2)
            files = {place: generator.choice(kinds) for place in range(dirty)}
            yield Fate(some, twice, files)


def crashes(
    explorer: Explorer, command: str, start: Picture, randoms: int, *, seed: int = 1
) -> tuple[list[tuple[str, Picture]], list[str]]:
    """Every state that a power cut in or after a command may leave, each once, with when that
    was; the last ones, after its end, are marked ``end``.  And the calls that sync a whole
    file system."""
    subject = explorer.subject
    subject.region.restore(start)
    model = Model(explorer, start)
    generator = random.Random(seed)
    found: dict[tuple[bool, str], tuple[str, Picture]] = {}
    whole: list[str] = []
    count = 0

    def collect(when: str) -> None:
        for fate in fates(model, randoms, generator):
            picture = model.picture(fate)
            found.setdefault((when == "end", picture.key), (when, picture))

    def done(call: Call, result: int) -> None:
        nonlocal count
        if call.name in WHOLE:
            whole.append(call.name)
        if model.call(call, result):
            count += 1
            assert model.picture().key == subject.region.look().key, f"the model differs: {call}"
            collect(f"after call {count}, {call.name}")

    ended = subject.trace(command, lambda call: None, CHANGING, done)
    assert ended.code == 0, ended.stderr
    collect("end")
    return list(found.values()), whole


def power_cuts(
    explorer: Explorer,
    command: str,
    start: Picture,
    ends: tuple[set[State], set[State]],
    *,
    randoms: int = 4,
    stride: int = 1,
) -> Row:
    """Let the tool loose on each state that a power cut may leave.

    ``ends`` is what it may come back to from a cut in the command, and from one after its end.
    A state with a journal, or with other files than before, is taken back by every way; the
    many that differ in what waits beside the tree by one way in turn.
    """
    subject = explorer.subject
    row = Row(subject.name, "power cut", command)
    states, whole = crashes(explorer, command, start, randoms)
    for number, (when, picture) in enumerate(states[::stride]):
        turn = [list(subject.ways)[number % len(subject.ways)]]
        telling = subject.state(picture) != subject.state(start) or any(
            path.endswith("/journal.json") for path in picture.entries
        )
        explorer.count(row, when, picture, ends[when == "end"], None if telling else turn)
    for name in whole:
        row.find("wrong", f"the whole file system is synced: {name}")
    return row
