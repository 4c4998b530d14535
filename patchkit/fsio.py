"""The file system, below one root and never through a symlink.

Owns every call that changes the file system, and the reading of single files by the
same safe way: each folder of a path is opened relative to the one above with
``O_NOFOLLOW``, so a folder that is (or is swapped for) a symlink cannot lead anywhere.
Must not know what a bundle or a state is.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO

from .errors import Refused, SymlinkedFolder

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Folder descriptors kept open at a time; a limit far below the usual 1,024.
_MAX_FOLDERS = 192
_SECOND = 1_000_000_000
# How far ahead of the clock, in seconds, a time can be that was moved on: one for each change.
_AHEAD = 60
# The coarsest times that a file system keeps, in seconds (FAT's are of two).
_COARSEST = 2
# Files beyond this are not source; the limit bounds memory (one file is held at a time).
MAX_FILE = 512 * 1024 * 1024
#: The most bytes of a file by which an installer or a virtual environment describes itself.
MAX_METADATA = 16 * 1024 * 1024
_NO_NAMES = ("", ".", "..")
# Each folder on the way to a file is opened; no package has so many in each other.
_DEEPEST = 100
#: What it is called that a path has no folder of its own (a symlink is none).
NO_FOLDER = (FileNotFoundError, NotADirectoryError, SymlinkedFolder)
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS}


class Root:
    """A directory and what lies below it.  Paths are POSIX, relative, checked before."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._devices: dict[str, int] = {}
        self._folders: dict[str, int] = {"": os.open(path, _FOLDER & ~os.O_NOFOLLOW)}

    def close(self) -> None:
        """Close every folder descriptor."""
        for descriptor in self._folders.values():
            os.close(descriptor)
        self._folders.clear()

    def full(self, path: str) -> str:
        """The path for a person."""
        return f"{self.path}/{path}" if path else self.path

    def _folder(self, folder: str) -> int:
        known = self._folders.get(folder)
        if known is not None:
            return known
        above, _, name = folder.rpartition("/")
        if name in _NO_NAMES:
            raise self._no_name(folder)
        parent = self._folder(above)
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=parent)
        except OSError as error:
            error.filename = self.full(folder)
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(parent, name):
                raise SymlinkedFolder(
                    f"the folder {self.full(folder)} is a symlink; nothing is read or written"
                    " through it",
                ) from None
            raise
        self._folders[folder] = descriptor
        return descriptor

    def _at(self, path: str) -> tuple[int, str]:
        if len(self._folders) > _MAX_FOLDERS:
            self.forget_folders()
        folder, _, name = path.rpartition("/")
        if name in _NO_NAMES or path.count("/") > _DEEPEST:
            raise self._no_name(path)
        return self._folder(folder), name

    def _no_name(self, path: str) -> Refused:
        """The error for a path that could lead up, or to the root itself."""
        shown = path if len(path) < 300 else f"{path[:300]}…"
        return Refused(
            f"{shown} is no path of a file below {self.path}",
            code="bad-path",
            hint="see where that path comes from: a patch, a manifest or .patchkit/",
        )

    def forget_folders(self) -> None:
        """Close the folder descriptors (also after a folder was removed or replaced)."""
        for folder in [f for f in self._folders if f]:
            os.close(self._folders.pop(folder))

    # -- reading --------------------------------------------------------------------

    def lstat(self, path: str) -> os.stat_result | None:
        """The status of a path itself; None where nothing is there."""
        try:
            folder, name = self._at(path)
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._named(error, path) from None

    def read(self, path: str, *, follow: bool = False) -> bytes:
        """The bytes of a regular file; never blocks on a FIFO or device.

        With ``follow`` the path itself may be a symlink (an installer that links files
        into its cache); the folders above may not.
        """
        folder, name = self._at(path)
        try:
            flags = _READ & ~os.O_NOFOLLOW if follow else _READ
            descriptor = os.open(name, flags, dir_fd=folder)
            try:
                return self._read_open(descriptor, path)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._named(error, path) from None

    def read_noting(self, path: str) -> tuple[bytes, bool]:
        """:meth:`read`, and whether the file has extended attributes."""
        folder, name = self._at(path)
        try:
            descriptor = os.open(name, _READ, dir_fd=folder)
            try:
                data = self._read_open(descriptor, path)
                has = False
                if sys.platform == "linux":
                    with suppress(OSError):
                        has = bool(os.listxattr(descriptor))
                return data, has
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._named(error, path) from None

    def _read_open(self, descriptor: int, path: str) -> bytes:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(
                f"{self.full(path)} is no regular file",
                code="not-a-file",
                file=path,
                hint="see what put it there; reinstalling the distribution makes it one again",
            )
        if status.st_size > MAX_FILE:
            raise Refused(
                f"{self.full(path)} has {status.st_size} bytes; the limit is {MAX_FILE}",
                code="file-too-large",
                file=path,
                hint="a file of this size is no source; leave it out of the patch",
            )
        return _read_all(descriptor, status.st_size)

    def is_open_at(self, path: str, descriptor: int) -> bool:
        """Whether an open file is the one that has this name."""
        here = self.lstat(path)
        try:
            mine = os.fstat(descriptor)
        except OSError as error:
            raise self._named(error, path) from None
        return here is not None and here.st_ino == mine.st_ino and mine.st_nlink > 0

    def target_status(self, path: str) -> os.stat_result:
        """The status of what a path leads to, where an installer linked it into its cache."""
        folder, name = self._at(path)
        try:
            return os.stat(name, dir_fd=folder)
        except OSError as error:
            raise self._named(error, path) from None

    def readlink(self, path: str) -> bytes:
        """What a symlink leads to."""
        folder, name = self._at(path)
        try:
            return os.fsencode(os.readlink(name, dir_fd=folder))
        except OSError as error:
            raise self._named(error, path) from None

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty where there is none."""
        try:
            return sorted(os.listdir(self._folder(folder)))
        except NO_FOLDER:
            return []
        except OSError as error:
            raise self._named(error, folder) from None

    def has_attributes(self, folder: str) -> bool:
        """Whether a folder has extended attributes (an ACL, a label), which nothing here
        could give to another one."""
        if sys.platform != "linux":
            return False
        try:
            return bool(os.listxattr(self._folder(folder)))
        except (OSError, SymlinkedFolder):
            return False

    def is_empty(self, folder: str) -> bool:
        """Whether a folder is there, with nothing in it."""
        return self.is_folder(folder) and not self.names(folder)

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there, and no symlink to one."""
        status = self.lstat(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def folder_above(self, path: str) -> str:
        """The nearest folder above a path that is there, and is no symlink."""
        folder = path.rpartition("/")[0]
        while True:
            try:
                self._folder(folder)
            except NO_FOLDER:
                folder = folder.rpartition("/")[0]
            else:
                return folder

    def status_of_folder(self, folder: str) -> os.stat_result:
        """The status of a folder that is there."""
        descriptor = self._folder(folder)
        try:
            return os.fstat(descriptor)
        except OSError as error:
            raise self._named(error, folder) from None

    # -- changing -------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes,
        mode: int,
        *,
        like: os.stat_result | None = None,
        like_path: tuple[Root, str] | None = None,
        same_owner: bool = False,
        not_seconds: Collection[int] = (),
        times: tuple[int, int] | None = None,
        unsynced: Unsynced | None = None,
    ) -> int:
        """A new file, synced (with ``unsynced``, later and together with others); the mode
        that it has now, since a file system may keep none (FAT).

        ``like`` gives owner and group (as far as this user may; with ``same_owner`` it is an
        error where they cannot be given), ``like_path`` extended attributes, ``times`` access
        and modification time in ns.  Without ``times`` its time will not fall into one of
        ``not_seconds``, since byte-code is told apart by whole seconds and size.
        """
        folder, name = self._at(path)
        try:
            descriptor = os.open(
                name,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
                dir_fd=folder,
            )
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if like is not None:
                    _copy_owner(descriptor, like, strict=same_owner)
                with suppress(PermissionError):  # FAT says so of a mode that it cannot keep
                    os.fchmod(descriptor, mode)
                if like is not None:
                    _copy_attributes(like_path, descriptor)
                if times is not None or not_seconds:
                    _give_times(descriptor, times, not_seconds)
                kept = stat.S_IMODE(os.fstat(descriptor).st_mode)
                if unsynced is None:
                    os.fsync(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            if unsynced is None:
                os.close(descriptor)
            else:
                unsynced.add(descriptor, self.full(path))
        except OSError as error:
            raise self._named(error, path) from None
        return kept

    def symlink(self, path: str, target: bytes) -> None:
        """A new symlink."""
        folder, name = self._at(path)
        try:
            os.symlink(target, os.fsencode(name), dir_fd=folder)
        except OSError as error:
            raise self._named(error, path) from None

    def link(self, path: str, to: Root, to_path: str) -> bool:
        """A second name of the same inode; False where the file system offers none."""
        folder, name = self._at(path)
        to_folder, to_name = to._at(to_path)
        try:
            os.link(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            raise self._named(error, path) from None
        return True

    def rename(self, path: str, to: Root, to_path: str) -> None:
        """Move, replacing what is at the new name.

        Two names of one inode are left alone by rename(2); then the old name is removed,
        so that the outcome is the same.
        """
        folder, name = self._at(path)
        to_folder, to_name = to._at(to_path)
        try:
            os.rename(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder)
            if _exists(folder, name):
                os.unlink(name, dir_fd=folder)
        except OSError as error:
            raise to._named(error, to_path) from None

    def unlink(self, path: str) -> None:
        """Remove a file; nothing happens where none is."""
        try:
            folder, name = self._at(path)
            os.unlink(name, dir_fd=folder)
        except NO_FOLDER:
            return
        except OSError as error:
            raise self._named(error, path) from None

    def mkdir(self, path: str, mode: int = 0o755) -> bool:
        """A new folder with exactly this mode; False where one is already there."""
        folder, name = self._at(path)
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
            with suppress(PermissionError):
                os.chmod(name, mode, dir_fd=folder)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._named(error, path) from None
        return True

    def make_own_folder(self, path: str) -> None:
        """A folder of patchkit's own; one that a kill left between its making and its mode
        gets that now."""
        if self.mkdir(path):
            return
        folder, name = self._at(path)
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o777 == 0o700:
                os.chmod(name, 0o755, dir_fd=folder)
        except OSError as error:
            raise self._named(error, path) from None

    def make_folders(self, path: str) -> None:
        """The folders above a path, where they are not there."""
        parts = path.split("/")[:-1]
        for depth in range(len(parts)):
            self.mkdir("/".join(parts[: depth + 1]))

    def own_folder(self, path: str, uid: int, gid: int, mode: int) -> None:
        """Give a folder to its owner, where this user may, and exactly this mode."""
        folder, name = self._at(path)
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                return
            if (status.st_uid, status.st_gid) != (uid, gid):
                with suppress(PermissionError):
                    os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)
            # After the owner, since chown takes set-group-id away.
            if stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) != mode:
                with suppress(PermissionError):
                    os.chmod(name, mode, dir_fd=folder)
        except OSError as error:
            raise self._named(error, path) from None

    def rmdir(self, path: str) -> bool:
        """Remove an empty folder; False where it is not empty, not there, or mounted on."""
        try:
            folder, name = self._at(path)
            if path in self._folders:
                os.close(self._folders.pop(path))
            os.rmdir(name, dir_fd=folder)
        except NO_FOLDER:
            return False
        except OSError as error:
            # A mount point is busy, whatever it holds.
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                return False
            raise self._named(error, path) from None
        return True

    def open_to_lock(self, path: str) -> int:
        """A descriptor of a file, made if needed, for flock(2); not handed to children."""
        folder, name = self._at(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, 0o644, dir_fd=folder)
            try:
                # Whoever may look at the environment may see whether the lock is held,
                # whatever the umask of the first one was.
                if os.fstat(descriptor).st_mode & 0o444 != 0o444:
                    with suppress(PermissionError):
                        os.fchmod(descriptor, 0o644)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise self._named(error, path) from None
        return descriptor

    def create_open(self, path: str, data: bytes, *, synced: bool = False) -> int:
        """A descriptor of a new file that everybody may read.  Unsynced unless asked for: a note
        may be worth nothing once its process is gone."""
        folder, name = self._at(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, 0o644, dir_fd=folder)
            try:
                with suppress(PermissionError):
                    os.fchmod(descriptor, 0o644)
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if synced:
                    os.fsync(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise self._named(error, path) from None
        return descriptor

    def sync_folder(self, folder: str) -> None:
        """Make renames in a folder durable (not offered by every file system)."""
        try:
            os.fsync(self._folder(folder))
        except NO_FOLDER:
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EBADF, errno.EROFS):
                raise self._named(error, folder) from None

    def replace(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file of our own whole: aside, synced, renamed, folder synced."""
        aside = f"{path}.new"
        self.unlink(aside)
        self.create(aside, data, mode)
        self.rename(aside, self, path)
        self.sync_folder(path.rpartition("/")[0])

    def reserve(self, path: str, size: int) -> None:
        """A file that holds at least so many bytes of the disk for later."""
        folder, name = self._at(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, 0o600, dir_fd=folder)
            try:
                os.posix_fallocate(descriptor, 0, size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._named(error, path) from None

    def device(self, folder: str) -> int | None:
        """The device that a folder is on; None where there is no such folder.  Between two
        devices no rename works."""
        if folder not in self._devices:
            try:
                self._devices[folder] = self.status_of_folder(folder).st_dev
            except NO_FOLDER:
                return None
        return self._devices[folder]

    def can_write(self, folder: str) -> OSError | None:
        """Why files cannot be put into a folder; None when they can."""
        descriptor = self._folder(folder)
        if os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor):
            return None
        read_only = os.fstatvfs(descriptor).f_flag & os.ST_RDONLY
        code = errno.EROFS if read_only else errno.EACCES
        return OSError(code, os.strerror(code), self.full(folder))

    def _named(self, error: OSError, path: str) -> OSError:
        error.filename = self.full(path)
        error.filename2 = None
        return error


class Unsynced:
    """Files that are written and not yet synced.

    Their writing is started at once, and they are synced together: the file system then
    commits its own journal once for many of them (300 files: a third of the time).
    """

    _MOST = 64

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def add(self, descriptor: int, path: str) -> None:
        """Take an open file; syncs all when there are many."""
        self._open.append((descriptor, path))
        # Starts the writing without waiting for it (sync_file_range is not in Python).
        with suppress(OSError, AttributeError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if len(self._open) >= self._MOST:
            self.sync()

    def sync(self) -> None:
        """Make every one durable, and close it."""
        while self._open:
            descriptor, path = self._open[-1]
            try:
                os.fsync(descriptor)
            except OSError as error:
                error.filename = path
                raise
            self._open.pop()
            os.close(descriptor)

    def close(self) -> None:
        """Close what an error left open."""
        while self._open:
            os.close(self._open.pop()[0])


def read_plain(path: str, most: int = MAX_FILE) -> bytes:
    """The bytes of a regular file outside of any root, symlinks followed; never blocks.

    Raises :class:`OSError`, also for what is no regular file or has more than ``most`` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"more than {most} bytes", path)
        return _read_all(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def digest(data: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def rewrite(descriptor: int, data: bytes) -> None:
    """Give an open file other contents, in place and unsynced."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, data, 0)


def make_root(path: str) -> Root:
    """A directory that is made where it is not there, with those above it."""
    os.makedirs(path, exist_ok=True)
    return Root(path)


def remove_tree(path: str) -> None:
    """Remove a folder outside any environment, with what is in it."""
    import shutil

    shutil.rmtree(path)


def discard(descriptor: int) -> None:
    """Let what is still written to a descriptor go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def write_log(folders: Iterable[str], name: str, text: str) -> str | None:
    """Write a log into the first folder that takes it; its path, or None."""
    for folder in folders:
        path = os.path.join(folder, name)
        with suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return path
    return None


def move_tree(source: str, target: str) -> None:
    """Rename a folder of a cache (never one of an environment) to a new name; where that
    is taken, to the name with a number.

    A folder of an image's lower layer is copied and removed: no rename moves it."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    free, number = target, 1
    while os.path.lexists(free):
        number += 1
        free = f"{target}.{number}"
    try:
        os.rename(source, free)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_away(source, free)


def _copy_away(source: str, target: str) -> None:
    """Copy a folder to a new name, whole or not at all; then remove it."""
    import shutil

    partial = f"{target}.part"
    try:
        if os.path.lexists(partial):
            shutil.rmtree(partial)  # of one that was killed
        shutil.copytree(source, partial, symlinks=True)
        _give_owners(source, partial)
        os.rename(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(source)


def _give_owners(source: str, copy: str) -> None:
    """Give what was copied to whom it belongs: a server that is not root goes on writing there.

    By open folders, following nothing: whoever owns the cache may put a link in a file's place.
    """
    if os.geteuid() != 0:
        return
    for folder, folders, names, opened in os.fwalk(copy):
        like = os.path.normpath(os.path.join(source, os.path.relpath(folder, copy)))
        for name in (".", *folders, *names):
            status = os.lstat(os.path.join(like, name))
            os.chown(name, status.st_uid, status.st_gid, dir_fd=opened, follow_symlinks=False)


def check_movable(source: str, target: str) -> None:
    """Raise the :class:`OSError` that :func:`move_tree` would meet."""
    above = os.path.dirname(target)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    for folder in (os.path.dirname(source), above):
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def check_removable(folder: str, names: Collection[str]) -> None:
    """Raise the :class:`OSError` that :func:`remove_file` would hide."""
    if names and not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def try_flock(descriptor: int, how: int) -> bool:
    """Take a flock(2) lock, if it is free; whether it was.  Raises OSError where the file
    system has no locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def names_in(path: str) -> list[str]:
    """The names in a folder outside the environment; empty where it cannot be listed."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def remove_file(path: str) -> None:
    """Remove a file of a cache outside the environment, if it is there."""
    try:
        os.unlink(path)
    except OSError:
        return


def walk_files(path: str) -> Iterator[str]:
    """Every regular file or symlink below a directory, relative, in no order."""
    stack = [""]
    while stack:
        folder = stack.pop()
        with os.scandir(os.path.join(path, folder)) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in (".git", ".patchkit"):
                        stack.append(name)
                else:
                    yield name


def _read_all(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size + 1)
    if len(data) == size:
        return data
    parts = [data]
    while parts[-1]:
        parts.append(os.read(descriptor, 1 << 20))
    return b"".join(parts)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _give_times(
    descriptor: int, times: tuple[int, int] | None, not_seconds: Collection[int]
) -> None:
    """Set both times (ns), or, where none are given, move the file's second past those that
    it must not have, which lie in the past or a little ahead (moved there by this, before).

    It is looked at afterwards: a file system may keep whole seconds, or every second one.
    """
    if times is not None:
        os.utime(descriptor, ns=times)
        return
    status = os.fstat(descriptor)
    taken = [s for s in not_seconds if 0 <= s - status.st_mtime_ns // _SECOND <= _AHEAD]
    if not taken:
        return
    moved = max(taken) * _SECOND + status.st_mtime_ns % _SECOND
    for _ in range(_COARSEST):
        moved += _SECOND
        os.utime(descriptor, ns=(status.st_atime_ns, moved))
        if os.fstat(descriptor).st_mtime_ns // _SECOND not in taken:
            return


def _drop_attributes(kept: Collection[str], descriptor: int) -> None:
    """Take off what the folder gave to a new file (an ACL) and the file it replaces has not."""
    for attribute in os.listxattr(descriptor):
        if attribute not in kept and attribute.startswith("system.posix_acl_"):
            with suppress(OSError):
                os.removexattr(descriptor, attribute)


def _copy_owner(descriptor: int, like: os.stat_result, *, strict: bool) -> None:
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) == (like.st_uid, like.st_gid):
        return
    try:
        os.fchown(descriptor, like.st_uid, like.st_gid)
    except PermissionError:
        if strict:
            raise
        with suppress(PermissionError):
            os.fchown(descriptor, -1, like.st_gid)


def _copy_attributes(source: tuple[Root, str] | None, descriptor: int) -> None:
    """Extended attributes (ACLs, SELinux labels) of a file, as far as the system allows;
    none where there is no such file."""
    if sys.platform != "linux":
        return
    kept: list[str] = []
    with suppress(OSError):
        if source is not None:
            root, path = source
            folder, name = root._at(path)
            opened = os.open(name, _READ & ~os.O_NOFOLLOW, dir_fd=folder)
            try:
                kept = os.listxattr(opened)
                for attribute in kept:
                    with suppress(OSError):
                        os.setxattr(descriptor, attribute, os.getxattr(opened, attribute))
            finally:
                os.close(opened)
    with suppress(OSError):
        _drop_attributes(kept, descriptor)


def open_log(path: str) -> BinaryIO:
    """A log outside any environment, to write to; each write reaches the file at once.  A
    ``.gitignore`` beside it keeps logs out of a repository."""
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    ignore = os.path.join(os.path.dirname(folder), ".gitignore")
    with suppress(OSError), open(ignore, "x", encoding="ascii") as file:
        file.write("*\n")
    return open(path, "ab", buffering=0)
