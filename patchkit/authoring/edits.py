"""Hand edits of an environment: what differs from pristine, and from what is recorded.

Only looks.  Pristine is what RECORD answers for (its bytes come from the release's archive),
or what git HEAD has; of a file that a bundle changed, what the applied set leaves there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from patchkit.distributions import Distribution, find_distribution, list_distributions
from patchkit.errors import PatchkitError, Refused
from patchkit.fsio import NO_FOLDER, walk_files
from patchkit.mapping import outside_package
from patchkit.model import FileState
from patchkit.paths import folders_above
from patchkit.plan import Key, materialise
from patchkit.planning import Edited
from patchkit.record import Record
from patchkit.releases.model import Unavailable
from patchkit.releases.sources import Release, Settings, open_release
from patchkit.roots import Roots
from patchkit.series import Chosen, build, root_name
from patchkit.session import Session
from patchkit.snapshot import Snapshot
from patchkit.state import FileEntry, State

#: What editors and tools leave behind, or build; none of it is an edit.
_LITTER = (
    *("~", ".orig", ".rej", ".swp", ".swo", ".bak", ".tmp", ".lock"),
    *(".pyc", ".pyo", ".so", ".o"),
)
_BUILD = "name a folder with the wheel that was installed: --find-links DIR"
# A new file beyond this is data, which no patch should carry.
_LARGEST = 1024 * 1024


class Edit(NamedTuple):
    """One file that differs: what the applied set leaves there (``before``), what is there
    (``after``), and what was there at first (``pristine``; None: nothing, or recorded)."""

    distribution: Distribution
    key: Key
    before: FileState | None
    after: FileState | None
    pristine: FileState | None

    @property
    def path(self) -> str:
        """Inside the distribution."""
        return self.key[1]


class Found(NamedTuple):
    """All edits, and what was left out, with why.

    ``shared`` are edited files whose inode has other names: a package cache, or another
    environment, holds the edited bytes as well.
    """

    edits: list[Edit]
    left_out: list[tuple[str, str]]
    shared: list[str]

    def edited(self) -> Edited:
        """As :func:`~patchkit.planning.compute` wants them."""
        return Edited({edit.key: edit.pristine for edit in self.edits})


def find(
    session: Session,
    state: State | None,
    applied: Sequence[Chosen],
    distributions: Iterable[Distribution],
    settings: Settings,
) -> Found:
    """The edits of some distributions, by path.  Raises :class:`Refused` where pristine bytes
    cannot be had, or where what is there is no regular file."""
    finder = _Finder(session, state, applied, settings)
    try:
        for dist in distributions:
            finder.look(dist)
        return finder.found()
    finally:
        finder.close()


class _Finder:
    def __init__(
        self, session: Session, state: State | None, applied: Sequence[Chosen], settings: Settings
    ) -> None:
        self._session = session
        self._settings = settings
        self._applied = applied
        self._state = state
        self._roots = Roots(session.home)
        self._recorded: dict[Key, FileEntry] = {}
        if state is not None:
            for entry in state["files"]:
                self._recorded[(state["roots"][entry["root"]], entry["path"])] = entry
        # Path to what it was at first; of a recorded one it is not asked for.
        self._pristine: dict[Key, FileState | None] = {}
        self._owners: dict[Key, Distribution] = {}
        self.left_out: list[tuple[str, str]] = []

    def close(self) -> None:
        self._roots.close()

    def look(self, dist: Distribution) -> None:
        """Note what differs in one distribution."""
        root = root_name(self._session.home, dist.root)
        for key, entry in self._recorded.items():
            link = entry["after"] is not None and entry["after"]["kind"] != "file"
            if key[0] == root and entry["owner"] == dist.name and entry["role"] != "record":
                if link:
                    continue  # what a patch made a symlink is no text that is edited
                now = self._now(key)
                if not _same(now, entry["after"]) and not _same(now, entry["before"]):
                    self._pristine[key] = None
                    self._owners[key] = dist
        if dist.work_tree is not None:
            self._look_in_git(dist, root)
        elif dist.kind == "wheel" and dist.dist_info:
            self._look_in_wheel(dist, root)
        else:
            raise Refused(
                f"neither RECORD nor git says what {dist.name} was: {dist.root}",
                code="no-pristine",
                hint="capture needs an installed wheel, or sources in a git checkout",
            )

    def found(self) -> Found:
        """The edits, with what the applied set leaves of each file."""
        before = self._left_by_applied()
        edits = []
        shared = []
        for key in sorted(self._pristine):
            status = self._roots[key[0]].lstat(key[1])
            if status is not None and status.st_nlink > 1:
                shared.append(key[1])
            was = before.get(key, self._pristine[key])
            edits.append(Edit(self._owners[key], key, was, self._now(key), self._pristine[key]))
        return Found(edits, sorted(self.left_out), shared)

    def _left_by_applied(self) -> dict[Key, FileState | None]:
        """Of recorded files that were edited: what the bundles make of the pristine ones."""
        touched = {key for key in self._pristine if key in self._recorded}
        if not touched:
            return {}
        series = build(self._session.env, self._session.home, self._applied)
        snapshot = Snapshot(
            self._session.home, self._roots, self._state, series.owners, edited=self._pristine
        )
        try:
            wanted = materialise(series.steps, snapshot.pristine)
            out: dict[Key, FileState | None] = {}
            for key in touched:
                content = wanted.contents.get(key)
                if content is None:
                    out[key] = None if key in wanted.contents else snapshot.pristine(key)
                elif content.data is None:
                    out[key] = snapshot.pristine(key)
                else:
                    out[key] = FileState(content.kind, content.mode, content.data)
            return out
        finally:
            snapshot.close()

    # -- wheels ---------------------------------------------------------------------

    def _look_in_wheel(self, dist: Distribution, root: str) -> None:
        assert dist.dist_info is not None
        record = Record.load(dist.dist_info)
        if record is None:
            raise Refused(
                f"{dist.name} {dist.version} has no RECORD, so nothing says what is pristine",
                code="no-pristine",
                hint=f"install {dist.name} again with pip or uv",
            )
        rows = record.rows(record.paths())
        listed = set(rows)
        differs = []
        for path, row in rows.items():
            key = (root, path)
            if ".dist-info/" in path or path.endswith(".pyc") or key in self._recorded:
                continue
            try:
                data = self._roots[root].read(path, follow=True)
            except (*NO_FOLDER, OSError):
                differs.append(path)
            else:
                if row.holds(data) is False:
                    differs.append(path)
        release = self._release(dist, needed=bool(differs))
        if release is not None:
            with release:
                modes = self._modes_that_differ(release, root, listed - set(differs))
                for path in sorted({*differs, *modes}):
                    data = _read(release, path, dist)
                    if rows[path].holds(data) is False:
                        raise Refused(
                            f"{path} of {dist.name} {dist.version} as {release.origin} has it is"
                            " not the file that RECORD lists: another build is installed",
                            code="other-build",
                            file=path,
                            hint=_BUILD,
                        )
                    self._add(dist, (root, path), data, release.listing.members[path].executable)
        tops = {p.split("/", 1)[0] for p in listed if "/" in p and not p.startswith("..")}
        tops = {top for top in tops if not top.endswith((".dist-info", ".data"))}
        self._look_for_new(dist, root, self._unlisted(root, tops, listed), listed)

    def _release(self, dist: Distribution, *, needed: bool) -> Release | None:
        """The archive of the release; asked of the client only where bytes are needed."""
        settings = self._settings
        offline = settings.offline
        try:
            settings.offline = offline or not needed
            return open_release(dist.name, dist.version, settings, installed=False)
        except Unavailable as error:
            if not needed:
                return None
            error.hint = (
                f"the pristine {dist.name} {dist.version} is needed: name a folder with its wheel"
                " (--find-links DIR), or go on with a network"
            )
            raise
        finally:
            settings.offline = offline

    def _modes_that_differ(self, release: Release, root: str, paths: set[str]) -> Iterator[str]:
        """Files whose bytes are right and whose executable bit is not the wheel's."""
        if release.listing.kind != "wheel":
            return
        for path, member in release.listing.members.items():
            if path in paths and (root, path) not in self._recorded:
                status = self._roots[root].lstat(path)
                if (
                    status is not None
                    and stat.S_ISREG(status.st_mode)
                    and bool(status.st_mode & 0o100) != member.executable
                ):
                    yield path

    def _unlisted(self, root: str, tops: set[str], listed: set[str]) -> list[str]:
        """Files in the packages that no distribution lists."""
        found = []
        for top in sorted(tops):
            if self._roots[root].is_folder(top):
                found += [f"{top}/{p}" for p in walk_files(self._roots[root].full(top))]
        found = [path for path in found if path not in listed]
        if not found:
            return []
        for other in list_distributions(self._session.env):
            record = Record.load(other.dist_info) if other.dist_info else None
            if record is not None:
                theirs = record.rows(found)
                found = [path for path in found if path not in theirs]
        return found

    # -- git ------------------------------------------------------------------------

    def _look_in_git(self, dist: Distribution, root: str) -> None:
        from patchkit.gitsource import clean_paths, head_file, tracked_paths, untracked_paths

        assert dist.work_tree is not None and dist.git_dir is not None
        inside = os.path.relpath(dist.root, os.path.realpath(dist.work_tree))
        folder = "" if inside == "." else inside
        above = f"{folder}/" if folder else ""
        tracked = tracked_paths(dist.work_tree, folder)
        verdicts = clean_paths(dist.work_tree, dist.git_dir, tracked)
        for path, clean in sorted(verdicts.items()):
            key = (root, path[len(above) :])
            if clean or key in self._recorded:
                continue
            if outside_package(key[1]):
                self.left_out.append((key[1], "no part of the package"))
                continue
            head = head_file(dist.work_tree, path)
            assert head is not None
            self._add(dist, key, head.data, bool(head.mode & 0o100), kind=head.kind)
        new = [p[len(above) :] for p in untracked_paths(dist.work_tree, folder)]
        self._look_for_new(dist, root, new, {path[len(above) :] for path in tracked})

    # -- both -----------------------------------------------------------------------

    def _look_for_new(
        self, dist: Distribution, root: str, paths: Iterable[str], listed: Collection[str]
    ) -> None:
        folders = {folder for path in listed for folder in folders_above(path)}
        for path in sorted(paths):
            key = (root, path)
            if key in self._recorded or _is_litter(path):
                continue
            status = self._roots[root].lstat(path)
            reason = ""
            if status is None or not stat.S_ISREG(status.st_mode):
                reason = "no regular file"
            elif status.st_size > _LARGEST:
                reason = f"a new file of {status.st_size} bytes"
            elif outside_package(path) and path.split("/", 1)[0] not in folders:
                reason = "no part of the package"
            elif b"\0" in self._roots[root].read(path)[:8000]:
                reason = "a new binary file"
            if reason:
                self.left_out.append((path, reason))
                continue
            self._pristine[key] = None
            self._owners[key] = dist

    def _add(
        self, dist: Distribution, key: Key, data: bytes, executable: bool, kind: str = "file"
    ) -> None:
        now = self._now(key)
        if kind != "file":
            raise _no_file(self._roots[key[0]].full(key[1]), key[1])
        # Nobody knows what the umask was: the mode that is there, but for the one bit.
        mode = 0o644 if now is None else now.mode & ~0o111
        if executable:
            mode = now.mode if now is not None and now.mode & 0o100 else mode | (mode & 0o444) >> 2
        self._pristine[key] = FileState("file", mode, data)
        self._owners[key] = dist

    def _now(self, key: Key) -> FileState | None:
        root = self._roots[key[0]]
        try:
            status = root.lstat(key[1])
        except PatchkitError:
            raise _no_file(root.full(key[1]), key[1]) from None
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise _no_file(root.full(key[1]), key[1])
        return FileState("file", stat.S_IMODE(status.st_mode), root.read(key[1]))


def targets(
    session: Session, state: State | None, names: Sequence[str], folder: str | None
) -> list[Distribution]:
    """The distributions to look at: those named, else what is recorded, and what a bundle on
    offer is for."""
    from patchkit.pristine import distributions_on_offer

    if names:
        found = []
        for name in names:
            dist = find_distribution(session.env, name)
            if dist is None:
                raise Refused(
                    f"{name} is not installed in {session.env.site_packages}",
                    code="not-installed",
                    hint="name another environment: --python PATH (an interpreter or venv folder)",
                )
            found.append(dist)
        return found
    dists = (
        {} if folder is None else {d.name: d for d in distributions_on_offer(session.env, folder)}
    )
    for entry in [] if state is None else state["distributions"]:
        dist = find_distribution(session.env, entry["name"])
        if dist is not None:
            dists.setdefault(dist.name, dist)
    return [dists[name] for name in sorted(dists)]


def _read(release: Release, path: str, dist: Distribution) -> bytes:
    data = release.read(path)
    if data is None:
        raise Refused(
            f"{path} is in the RECORD of {dist.name} {dist.version}, and not in {release.origin}",
            code="other-build",
            file=path,
            hint=_BUILD,
        )
    return data


def _same(now: FileState | None, ident: object) -> bool:
    from patchkit.fsio import digest
    from patchkit.state import Ident

    if now is None or ident is None:
        return now is ident
    known: Ident = ident  # type: ignore[assignment]
    return (known["kind"], known["mode"], known["sha256"]) == (
        "file",
        now.mode,
        digest(now.data),
    )


def _is_litter(path: str) -> bool:
    parts = path.split("/")
    return (
        any(part == "__pycache__" or part.startswith(".") for part in parts)
        or parts[-1].endswith(_LITTER)
        or ".egg-info/" in path
    )


def _no_file(full: str, path: str) -> Refused:
    return Refused(
        f"{full} is no regular file; capture takes no others",
        code="not-a-file",
        file=path,
        hint="of an install by symlinks, make it a file of its own first, with the bytes that"
        f" are meant: cp --remove-destination $(readlink -f {path}) {path}",
    )
