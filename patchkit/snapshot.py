"""What files hold now, and whether that is pristine.

Owns promise 8: a file is changed only if it is pristine (by RECORD, by git HEAD, or by
patchkit's own record) or exactly as recorded; anything else is drift, and refused.  Reads
each file once.  Must not change anything.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping

from .distributions import Distribution
from .errors import DriftError, PatchkitError, SymlinkedFolder
from .fsio import Root, digest
from .model import FileState
from .paths import folders_above
from .plan import Key
from .record import Record, RecordRow
from .roots import Roots
from .state import BLOBS, PRISTINE, FileEntry, Home, Ident, State, same


class Seen:
    """One path: what is there (``now``), what was pristine (``before``), and the pristine
    contents if they were read; they are handed on once and not kept.

    ``status`` is of the path itself (of the link, where an installer linked the file).
    ``shared`` says that the pristine inode has other names, so that others may write
    through it; ``sha256`` is then of its bytes.  ``entry`` is the record of a file that
    patchkit changed; ``attributes`` is False where the file has no extended ones.
    """

    __slots__ = ("attributes", "before", "entry", "now", "sha256", "shared", "status", "view")

    def __init__(
        self,
        now: Ident | None,
        before: Ident | None,
        status: os.stat_result | None,
        *,
        view: FileState | None = None,
        shared: bool = False,
        sha256: str | None = None,
        entry: FileEntry | None = None,
    ) -> None:
        self.now = now
        self.before = before
        self.status = status
        self.view = view
        self.shared = shared
        self.sha256 = sha256
        self.attributes = True
        self.entry = entry


class Snapshot:
    """Sees paths of an environment, each once.  ``taken_as_pristine`` collects those of a
    plain tree, where nothing says what pristine is.  ``asked`` are the bundles that are to
    be applied: their files may have been reinstalled meanwhile.  With ``forget`` any file may
    have been: what a reinstall or an uninstall took away is taken as it is now.

    ``edited`` are files that someone else changed, and that are to stay as they are: what
    they held when they were pristine (of a file with a record, the record says it)."""

    def __init__(
        self,
        home: Home,
        roots: Roots,
        state: State | None,
        owners: dict[Key, Distribution],
        asked: frozenset[str] = frozenset(),
        *,
        forget: bool = False,
        edited: Mapping[Key, FileState | None] | None = None,
    ) -> None:
        self._edited = {} if edited is None else edited
        self._asked = asked
        self._forget = forget
        self._home = home
        self._roots = roots
        self._owners = owners
        self._entries: dict[Key, FileEntry] = {}
        self._recorded: list[str] = []
        if state is not None:
            self._recorded = [bundle["name"] for bundle in state["bundles"]]
            for entry in state["files"]:
                self._entries[(state["roots"][entry["root"]], entry["path"])] = entry
        self._seen: dict[Key, Seen] = {}
        self._records: dict[str, Record | None] = {}
        self._rows: dict[str, dict[str, RecordRow | None]] = {}
        self._git: dict[Key, bool | None] = {}
        self._own: Root | None = None
        self._attributes = True
        self.taken_as_pristine: list[Key] = []
        self.reinstalled: list[tuple[Key, str]] = []

    def close(self) -> None:
        """Close what was opened for kept pristine bytes."""
        if self._own is not None:
            self._own.close()

    def pristine(self, key: Key) -> FileState | None:
        """The pristine contents, as :func:`~patchkit.plan.materialise` wants them: of a
        file that an installer linked into its cache, the bytes behind the link."""
        seen = self.see(key)
        view, seen.view = seen.view, None
        if view is not None or seen.before is None:
            return view
        if seen.entry is not None:
            return self._kept(key, seen)
        if key in self._edited:
            return self._edited[key]
        return self._see_fresh(key).view  # asked for a second time

    def see(self, key: Key) -> Seen:
        """Look at a path.  Raises :class:`DriftError` unless it is pristine or as
        recorded."""
        seen = self._seen.get(key)
        if seen is None:
            entry = self._entries.get(key)
            self._attributes = True  # unless the file was read, and has none
            if key in self._edited:
                seen = self._see_edited(key, entry)
            else:
                seen = self._see_recorded(key, entry) if entry else self._see_fresh(key)
            seen.attributes = self._attributes
            self._seen[key] = seen
        return seen

    def record(self, dist: Distribution) -> Record | None:
        """The RECORD of a distribution as it is on disk, read once."""
        assert dist.dist_info is not None
        if dist.dist_info not in self._records:
            self._records[dist.dist_info] = Record.load(dist.dist_info)
        return self._records[dist.dist_info]

    def prefetch(self, keys: Collection[Key]) -> None:
        """Ask RECORD and git once for many paths instead of once each."""
        by_git: dict[tuple[str, str], list[Key]] = {}
        by_record: dict[str, tuple[Distribution, list[str]]] = {}
        for key in keys:
            dist = self._owners.get(key)
            if dist is None or key in self._entries:
                continue
            if dist.work_tree and dist.git_dir:
                by_git.setdefault((dist.work_tree, dist.git_dir), []).append(key)
            elif dist.kind == "wheel" and dist.dist_info:
                by_record.setdefault(dist.dist_info, (dist, []))[1].append(key[1])
        for dist, paths in by_record.values():
            record = self.record(dist)
            if record is not None:
                rows = record.rows(paths)
                known = self._rows.setdefault(dist.dist_info or "", {})
                known.update({path: rows.get(path) for path in paths})
        for (work_tree, git_dir), group in by_git.items():
            from .gitsource import clean_paths

            inside = {
                key: os.path.relpath(
                    os.path.join(self._home.resolve(key[0]), key[1]), os.path.realpath(work_tree)
                )
                for key in group
            }
            clean = clean_paths(work_tree, git_dir, list(inside.values()))
            for key, path in inside.items():
                self._git[key] = clean.get(path)

    # -- one file -------------------------------------------------------------------

    def _see_edited(self, key: Key, entry: FileEntry | None) -> Seen:
        root = self._roots[key[0]]
        status = root.lstat(key[1])
        now, _ = self._look(root, key[1], status)
        if now is not None and now["kind"] != "file":
            raise self._drift(key, now, "it is no regular file")
        if entry is not None:
            return Seen(now, entry["before"], status, entry=entry)
        view = self._edited[key]
        before = None
        if view is not None:
            before = Ident(kind="file", mode=view.mode, sha256=digest(view.data), link=None)
        return Seen(now, before, status, view=view)

    def _see_recorded(self, key: Key, entry: FileEntry) -> Seen:
        root = self._roots[key[0]]
        try:
            status = root.lstat(key[1])
        except SymlinkedFolder:
            if entry["after"] is not None:
                raise
            status = None  # a patch took the file away, and put the symlink there
        now, data = self._look(root, key[1], status)
        if same(now, entry["after"]):
            view = None
            if same(now, entry["before"]) and data is not None and now is not None:
                view = FileState("file", now["mode"], data, now["sha256"])
            return Seen(now, entry["before"], status, view=view, entry=entry)
        gone = now is None and self._is_away(key)
        if gone or same(now, entry["before"]) or self._is_pristine(key, now, data):
            # A package manager put the file back: nothing of ours is in it.  Only who
            # applies those very bundles again means to have them on it.
            again = bool(entry["bundles"]) and self._asked >= set(entry["bundles"])
            if not again and not self._forget:
                raise self._reinstalled(key, now, entry)
            self.reinstalled.append((key, "is gone" if gone else "was reinstalled meanwhile"))
            return self._see_fresh(key, trusted=True)
        error = self._drift(key, now, "it is neither what patchkit wrote nor pristine")
        raise error.at(bundle=", ".join(entry["bundles"]) or None)

    def _see_fresh(self, key: Key, *, trusted: bool = False) -> Seen:
        root = self._roots[key[0]]
        try:
            status = root.lstat(key[1])
        except SymlinkedFolder:
            above = [self._seen.get((key[0], folder)) for folder in folders_above(key[1])]
            if not any(seen is not None and seen.before is not None for seen in above):
                raise
            status = None  # the symlink is a file of the plan's own, which sees to its order
        now, data = self._look(root, key[1], status)
        if status is None or now is None:
            return Seen(None, None, None)
        if now["kind"] == "other":
            raise self._drift(key, now, "it is no regular file")
        dist = self._owners.get(key)
        shared = status.st_nlink > 1 or stat.S_ISLNK(status.st_mode)
        if not trusted and not self._is_pristine(key, now, data):
            why = self._why_not(key, dist)
            raise self._drift(key, now, why, shared=shared)
        view: FileState
        if now["kind"] == "symlink" and self._linked_install(dist):
            mode = stat.S_IMODE(os.stat(root.full(key[1])).st_mode)
            view = FileState("file", mode, data or b"")
        elif now["kind"] == "symlink":
            view = FileState("symlink", 0, os.fsencode(now["link"] or ""))
        else:
            view = FileState("file", now["mode"], data or b"", now["sha256"])
        # A link of the tree's own is not shared: its bytes are its target's name.
        shared = shared and view.kind == "file"
        sha256 = digest(view.data) if shared else None
        return Seen(now, now, status, view=view, shared=shared, sha256=sha256)

    def _look(
        self, root: Root, path: str, status: os.stat_result | None
    ) -> tuple[Ident | None, bytes | None]:
        """What is there, with the bytes (of a symlink: of what it leads to)."""
        if status is None or stat.S_ISDIR(status.st_mode):
            return None, None
        if stat.S_ISLNK(status.st_mode):
            target = root.readlink(path)
            try:
                data: bytes | None = root.read(path, follow=True)
            except (OSError, PatchkitError):
                data = None
            link = os.fsdecode(target)
            return Ident(kind="symlink", mode=0, sha256=digest(target), link=link), data
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode):
            return Ident(kind="other", mode=mode, sha256="", link=None), None
        data, self._attributes = root.read_noting(path)
        return Ident(kind="file", mode=mode, sha256=digest(data), link=None), data

    def _is_pristine(self, key: Key, now: Ident | None, data: bytes | None) -> bool:
        dist = self._owners.get(key)
        if dist is None or now is None:
            return False
        if dist.work_tree is not None:
            if key not in self._git:
                self.prefetch([key])
            return self._git.get(key) is True
        if dist.kind == "wheel":
            if dist.dist_info and key[1].endswith("/RECORD"):
                return not self._has_our_rows(dist, key[0])
            known = self._rows.setdefault(dist.dist_info or "", {})
            if key[1] not in known:
                record = self.record(dist)
                known[key[1]] = record.rows((key[1],)).get(key[1]) if record is not None else None
            row = known[key[1]]
            if row is None or data is None:
                return False
            if row.algorithm == "sha256" and now["kind"] == "file":
                return row.digest_hex == now["sha256"]  # hashed already
            return row.holds(data) is True
        if key not in self._entries:
            self.taken_as_pristine.append(key)
            return True
        return False

    def _has_our_rows(self, dist: Distribution, root: str) -> bool:
        """Whether a RECORD lists a file that a patch added: then it is not as installed."""
        added = [
            path
            for (at, path), entry in self._entries.items()
            if at == root and entry["before"] is None and entry["owner"] == dist.name
        ]
        record = self.record(dist) if added else None
        return record is not None and bool(record.rows(added))

    def _is_away(self, key: Key) -> bool:
        """Whether an uninstall took an absent file away: its distribution is gone, or is
        another release that has no such file.  Where no RECORD tells, ``forget`` does."""
        dist = self._owners.get(key)
        if dist is None:
            return self._forget or self._entries[key]["owner"] != ""
        record = self.record(dist) if dist.kind == "wheel" and dist.dist_info else None
        if record is None:
            return self._forget
        return key[1] not in record.rows((key[1],))

    def _linked_install(self, dist: Distribution | None) -> bool:
        return dist is not None and dist.kind == "wheel"

    def _why_not(self, key: Key, dist: Distribution | None) -> str:
        if dist is not None and dist.work_tree is not None:
            if self._git.get(key) is None:
                return "git does not track it"
            return "it differs from git HEAD"
        if dist is not None and dist.kind == "wheel" and self.record(dist) is None:
            return f"{dist.name} {dist.version} has no RECORD, so nothing says what is pristine"
        if dist is not None and dist.kind == "wheel":
            known = self._rows.get(dist.dist_info or "", {}).get(key[1])
            if known is None:
                return f"the RECORD of {dist.name} {dist.version} does not list it"
            return f"it does not match the RECORD of {dist.name} {dist.version}"
        return "nothing says what its pristine contents are"

    def _drift(self, key: Key, now: Ident | None, why: str, *, shared: bool = False) -> DriftError:
        dist = self._owners.get(key)
        name = dist.name if dist is not None and dist.name else "the distribution"
        full = self._roots[key[0]].full(key[1])
        hint = (
            f"patchkit capture NAME {name} makes a bundle of the edit, if it matters; else"
            f" reinstall {name} (the same release)"
        )
        if dist is not None and dist.work_tree is not None:
            hint = f"commit or stash it first: git -C {dist.work_tree} status"
        code = "drift"
        message = f"{full} was changed by someone else: {why}"
        if shared and "match" in why:
            code = "poisoned-cache"
            message += (
                "; its inode is shared with other names (a package cache or another"
                " environment), which hold the changed bytes, too"
            )
            hint = f"clean the cache (uv cache clean {name}), then reinstall {name}"
        return DriftError(
            message,
            code=code,
            file=key[1],
            hint=hint,
            data={"found": None if now is None else now["sha256"]},
        )

    def _reinstalled(self, key: Key, now: Ident | None, entry: FileEntry) -> DriftError:
        names = " ".join(self._recorded)
        what = "is gone" if now is None else "is pristine again: it was reinstalled or restored"
        first = "" if self._owners.get(key) or not entry["owner"] else f"install {entry['owner']}; "
        return DriftError(
            f"{self._roots[key[0]].full(key[1])} {what}",
            code="reinstalled",
            file=key[1],
            bundle=", ".join(entry["bundles"]) or None,
            hint=f"{first}patchkit apply {names} puts the patch on again; patchkit revert --all"
            " --forget drops the record of it, and leaves the file as it is",
        )

    # -- kept pristine bytes --------------------------------------------------------

    def _kept(self, key: Key, seen: Seen) -> FileState | None:
        """The pristine contents of a changed file, from under ``.patchkit``."""
        entry, before = seen.entry, seen.before
        assert entry is not None and before is not None
        if self._own is None:
            self._own = Root(self._home.holder)
        own = self._own
        stash = f"{PRISTINE}/{entry['stash']}"
        status = own.lstat(stash)
        data: bytes | None = None
        mode = before["mode"]
        wanted = before["sha256"]
        if before["kind"] == "symlink" and not entry["blob"]:
            return FileState("symlink", 0, os.fsencode(before["link"] or ""))
        if before["kind"] == "symlink":
            wanted = entry["blob"] or ""
            blob = own.lstat(f"{BLOBS}/{wanted}")
            mode = 0o644 if blob is None else stat.S_IMODE(blob.st_mode)
        elif status is not None:
            data = own.read(stash)
        if (data is None or digest(data) != wanted) and entry["blob"]:
            data = own.read(f"{BLOBS}/{entry['blob']}")
        if data is None or digest(data) != wanted:
            raise PatchkitError(
                f"the kept pristine bytes of {key[1]} are damaged or gone",
                code="pristine-damaged",
                file=key[1],
                hint="reinstall the distribution, then apply the bundles again",
            )
        return FileState("file", mode, data, wanted)
