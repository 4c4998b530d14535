"""What a tool may change of a tree, as a value: looked at, compared, put back.

Two pictures with the same key are one state of the disk: the same names, kinds, modes, owners,
bytes, and names that share an inode.  What comes next depends on nothing else, so a state needs
to be attacked once, however many ways lead to it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """One name.  ``names`` are all that share its inode; ``content`` is a digest, or where
    a symlink leads to."""

    kind: str
    mode: int
    owner: tuple[int, int]
    content: str
    names: tuple[str, ...]


#: Which process it was, in a journal, and the checksum in front, which covers that as well.
_BY = re.compile(
    rb'\A{"checksum": "[0-9a-f]{64}"(?=,\n "schema": \d+,\n "base": .*\n "by": {)'
    rb'|^ "by": {[^}]*},\n',
    re.MULTILINE,
)


class Picture:
    """The entries, and the times of files (which do not count, but are put back)."""

    def __init__(self, entries: Mapping[str, Entry], times: Mapping[str, int]) -> None:
        self.entries = entries
        self.times = times
        self.key = key(entries.items())


def key(entries: Iterable[tuple[str, Entry]]) -> str:
    """A digest of entries."""
    return hashlib.sha256(repr(sorted(entries)).encode()).hexdigest()


class Region:
    """A part of a tree: ``deep`` folders with all below them, ``flat`` ones with what is
    directly in them.  ``ignored`` files have no contents that count (a lock)."""

    def __init__(
        self, tree: Path, flat: Iterable[str], deep: Iterable[str], ignored: Iterable[str] = ()
    ) -> None:
        self.tree = str(tree)
        self.flat = {*flat}
        self.deep = tuple(deep)
        self.ignored = {*ignored}
        self._contents: dict[str, bytes] = {}
        self._known: dict[tuple[int, ...], str] = {}

    def holds(self, path: str) -> bool:
        """Whether an absolute path is in the region (or outside of the tree)."""
        if path != self.tree and not path.startswith(f"{self.tree}/"):
            return True
        name = path[len(self.tree) + 1 :].removesuffix(" (deleted)")
        above = name.rpartition("/")[0]
        return above in self.flat or name in self.flat or self._is_deep(name)

    def _is_deep(self, name: str) -> bool:
        return any(name == folder or name.startswith(f"{folder}/") for folder in self.deep)

    def look(self) -> Picture:
        """What is there now."""
        found: dict[str, tuple[str, os.stat_result]] = {}
        for folder in sorted(self.flat):
            for name in self._names(folder):
                path = f"{folder}/{name}" if folder else name
                if self._is_deep(path):
                    self._walk(path, found)
                else:
                    found[path] = self._status(path)
        inodes: dict[int, list[str]] = {}
        for path, (kind, status) in found.items():
            if kind != "folder":
                inodes.setdefault(status.st_ino, []).append(path)
        entries, times = {}, {}
        for path, (kind, status) in found.items():
            names = () if kind == "folder" else tuple(sorted(inodes[status.st_ino]))
            entries[path] = Entry(
                kind,
                0 if kind == "symlink" else stat.S_IMODE(status.st_mode),
                (status.st_uid, status.st_gid),
                self._content(path, kind, status),
                names,
            )
            times[path] = status.st_mtime_ns
        return Picture(entries, times)

    def bytes_of(self, digest: str) -> bytes:
        """The bytes of a file that a picture showed."""
        return self._contents[digest]

    def keep(self, data: bytes) -> str:
        """Keep bytes for pictures that nobody took; a digest of what counts of them."""
        digest = hashlib.sha256(_BY.sub(b"", data)).hexdigest()
        self._contents[digest] = data
        return digest

    def _names(self, folder: str) -> list[str]:
        try:
            return os.listdir(f"{self.tree}/{folder}")
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _walk(self, path: str, found: dict[str, tuple[str, os.stat_result]]) -> None:
        found[path] = self._status(path)
        if found[path][0] == "folder":
            for name in self._names(path):
                self._walk(f"{path}/{name}", found)

    def _status(self, path: str) -> tuple[str, os.stat_result]:
        status = os.lstat(f"{self.tree}/{path}")
        kinds = {stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink", stat.S_IFREG: "file"}
        return kinds[stat.S_IFMT(status.st_mode)], status

    def _content(self, path: str, kind: str, status: os.stat_result) -> str:
        if kind == "folder" or path in self.ignored:
            return ""
        if kind == "symlink":
            return os.readlink(f"{self.tree}/{path}")
        mark = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if mark in self._known:
            return self._known[mark]
        digest = self.keep(Path(self.tree, path).read_bytes())
        # A change within one tick of the clock would not show in the times.
        if status.st_ctime_ns < time.time_ns() - 50_000_000:
            self._known[mark] = digest
        return digest

    def restore(self, wanted: Picture) -> None:
        """Make the region what it was on a picture; what is so already is left alone."""
        now = self.look().entries
        gone = [path for path in now if self._differs(now[path], wanted.entries.get(path))]
        for path in sorted(gone, reverse=True):
            full = f"{self.tree}/{path}"
            if now[path].kind == "folder":
                os.rmdir(full)
            else:
                os.unlink(full)
        left = {path: entry for path, entry in now.items() if path not in gone}
        for path, entry in sorted(wanted.entries.items()):
            full = f"{self.tree}/{path}"
            if path in left:
                if left[path] != entry:  # a folder with another mode or owner
                    os.chown(full, *entry.owner)
                    os.chmod(full, entry.mode)
                continue
            left[path] = entry
            mates = [name for name in entry.names if name != path and name in left]
            if mates:
                os.link(f"{self.tree}/{mates[0]}", full, follow_symlinks=False)
            else:
                self._make(full, entry, wanted.times.get(path))

    @staticmethod
    def _differs(now: Entry, wanted: Entry | None) -> bool:
        if wanted is None or now.kind != wanted.kind:
            return True
        return now.kind != "folder" and now != wanted

    def _make(self, full: str, entry: Entry, modified: int | None) -> None:
        if entry.kind == "symlink":
            os.symlink(entry.content, full)
            return
        if entry.kind == "folder":
            os.mkdir(full)
        else:
            Path(full).write_bytes(self._contents[entry.content] if entry.content else b"")
        os.chown(full, *entry.owner)
        os.chmod(full, entry.mode)
        if modified is not None and entry.kind == "file":
            os.utime(full, ns=(modified, modified))


def below(entries: Mapping[str, Entry], *folders: str) -> Iterator[tuple[str, Entry]]:
    """The entries that lie in one of the folders, or are one."""
    for path, entry in entries.items():
        if any(path == folder or path.startswith(f"{folder}/") for folder in folders):
            yield path, entry
