"""Reads wheels, source distributions and trees that an installer unpacked.

Owns the way from an archive's names to the paths in site-packages, and the check of each
byte that is read against RECORD (PEP 376, PEP 427).  Only reads.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import IO

from patchkit.fsio import MAX_FILE
from patchkit.names import normalise
from patchkit.record import Record

from .model import Damaged, Listing, Member, Unavailable, canonical

#: Where a wheel keeps what goes into site-packages (PEP 427, "the .data directory").
_DATA = ("purelib", "platlib")


class Archive(AbstractContextManager["Archive"]):
    """One archive, open for reading. A context manager that closes it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._zip: zipfile.ZipFile | None = None
        self._tar: tarfile.TarFile | None = None
        try:
            if os.path.isdir(path):
                self.listing = _unpacked(path)
            elif path.endswith((".whl", ".zip")):
                self._zip = zipfile.ZipFile(path)
                self.listing = (
                    _wheel(self._zip, path, self._read)
                    if path.endswith(".whl")
                    else _zipped(self._zip, path)
                )
            else:
                self._tar = tarfile.TarFile.open(name=path)
                self.listing = _tarred(self._tar, path)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, UnicodeError) as error:
            self.close()
            raise Damaged(
                f"{path} is no archive that can be read: {error}",
                hint="remove it, and fetch the release again",
            ) from error

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        for one in (self._zip, self._tar):
            if one is not None:
                one.close()

    def read(self, path: str) -> bytes:
        """The bytes of a file, checked against its digest in RECORD where it has one.

        Raises :class:`Damaged` where they differ, :class:`Unavailable` for a path that the
        release does not hold.
        """
        member = self.listing.members.get(path)
        if member is None:
            raise Unavailable(
                f"{self.listing.distribution} {self.listing.version} holds no {path}",
                file=path,
                hint="patchkit fetch --list shows what it holds",
            )
        try:
            data = self._read(member.name or path)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
            raise self._damaged(path, f"cannot be read: {error}") from error
        if member.sha256 is not None and hashlib.sha256(data).hexdigest() != member.sha256:
            raise self._damaged(path, "is not what its RECORD says")
        return data

    def _damaged(self, path: str, what: str) -> Damaged:
        return Damaged(
            f"{path} in {os.path.basename(self.path)} {what}",
            file=path,
            hint="remove the archive from where it came, and fetch the release again",
        )

    def _read(self, name: str) -> bytes:
        if self._zip is not None:
            with self._zip.open(name) as file:
                return _bounded(file, name)
        if self._tar is not None:
            opened = self._tar.extractfile(name)
            if opened is None:
                raise tarfile.ReadError(f"{name} is no regular file")
            with opened:
                return _bounded(opened, name)
        with open(os.path.join(self.path, name), "rb") as file:
            return _bounded(file, name)


def _bounded(file: IO[bytes], name: str) -> bytes:
    """What a member claims and what it holds are two things; neither may fill the memory."""
    data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise Damaged(f"{name} is larger than {MAX_FILE} bytes", code="file-too-large")
    return data


def _wheel(archive: zipfile.ZipFile, path: str, read: Callable[[str], bytes]) -> Listing:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        name, version, _, _ = parse_wheel_filename(os.path.basename(path))
    except InvalidWheelFilename as error:
        raise Damaged(f"{path} has no name of a wheel: {error}") from None
    infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}
    records = [n for n in infos if n.endswith(".dist-info/RECORD") and n.count("/") == 1]
    if len(records) != 1:
        raise Damaged(f"{path} has {len(records) or 'no'} RECORD", hint="fetch it again")
    info = records[0].rpartition("/")[0]
    rows = Record(read(records[0])).rows(list(infos))
    missing = [n for n in infos if n not in rows and not n.startswith(f"{info}/RECORD")]
    if missing:
        raise Damaged(
            f"{os.path.basename(path)} holds {len(missing)} files that its RECORD does not"
            f" list, first {missing[0]}",
            hint="nobody answers for them; get the release elsewhere",
        )
    members = {}
    for inside, member in infos.items():
        target = _site_path(inside)
        if target is None or (target.startswith(f"{info}/") and not target.endswith("/METADATA")):
            continue
        row = rows.get(inside)
        digest = row.digest_hex if row is not None and row.algorithm == "sha256" else None
        mode = member.external_attr >> 16
        members[target] = Member(member.file_size, digest, bool(mode & 0o111), inside)
    return Listing(normalise(name), str(version), os.path.basename(path), "wheel", members)


def _site_path(name: str) -> str | None:
    """Where an installer puts a member of a wheel below site-packages; None: elsewhere."""
    top, _, rest = name.partition("/")
    if top.endswith(".data"):
        scheme, _, rest = rest.partition("/")
        return _plain(rest) if scheme in _DATA else None
    return _plain(name)


def _plain(name: str) -> str | None:
    """A path that stays below its root; None for one that does not."""
    if not name or name.startswith("/") or "\\" in name or "\0" in name:
        return None
    return None if ".." in name.split("/") else posixpath.normpath(name)


def _unpacked(folder: str) -> Listing:
    """A folder into which an installer put one distribution (``--target``)."""
    infos = sorted(n for n in os.listdir(folder) if n.endswith(".dist-info"))
    record = Record.load(os.path.join(folder, infos[0])) if len(infos) == 1 else None
    if record is None:
        raise Damaged(f"{folder} holds {len(infos)} distributions; one with a RECORD is wanted")
    name, _, version = infos[0][: -len(".dist-info")].rpartition("-")
    members = {}
    for path, row in record.rows(record.paths()).items():
        target = _plain(path)
        if target is None or target.endswith(".pyc"):
            continue
        if target.startswith(f"{infos[0]}/") and not target.endswith("/METADATA"):
            continue
        digest = row.digest_hex if row.algorithm == "sha256" else None
        try:
            executable = os.access(os.path.join(folder, path), os.X_OK)
        except OSError:
            executable = False
        members[target] = Member(row.size, digest, executable, path)
    return Listing(normalise(name), canonical(version), infos[0], "wheel", members)


# -- source distributions ---------------------------------------------------------------


def _sdist(path: str, files: Iterable[tuple[str, int, bool]]) -> Listing:
    """The layout of an sdist as site-packages would have it.

    The one top folder goes, and so does ``src/`` or ``python/`` above the package.
    """
    base = os.path.basename(path)
    stem = base
    for end in (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip"):
        stem = stem.removesuffix(end)
    name, _, version = stem.rpartition("-")
    found = []
    for inside, size, executable in files:
        plain = _plain(inside.removeprefix("./"))
        if plain is not None and "/" in plain:
            found.append((plain.partition("/")[2], Member(size, None, executable, inside)))
    if not name or not found:
        raise Damaged(f"{path} is no source distribution", hint="fetch it again")
    return Listing(normalise(name), canonical(version), base, "sdist", site_layout(dict(found)))


def site_layout(files: Mapping[str, Member]) -> dict[str, Member]:
    """The files of a source tree where site-packages has them."""
    above = _source_folder(list(files))
    return _with_data({path.removeprefix(above): member for path, member in files.items()})


def _source_folder(paths: list[str]) -> str:
    """``src/`` or ``python/`` where a package lies in there and none beside it."""
    tops = {p.partition("/")[0] for p in paths if p.count("/") == 1 and p.endswith("/__init__.py")}
    for folder in ("src/", "python/"):
        if not tops - {"tests", "test", "docs"} and any(
            p.startswith(folder) and p.endswith("/__init__.py") for p in paths
        ):
            return folder
    return ""


#: What FlashInfer's build copies below ``flashinfer/data`` (its releases 0.2.5 to 0.7.4).
_COPIED = ("csrc/", "include/", "3rdparty/cutlass/", "3rdparty/spdlog/")


def _with_data(members: dict[str, Member]) -> dict[str, Member]:
    if "flashinfer/__init__.py" not in members:
        return members
    out = dict(members)
    for path, member in members.items():
        if path.startswith(_COPIED):
            target = f"flashinfer/data/{path.removeprefix('3rdparty/')}"
            if target not in members:
                del out[path]
                out[target] = member
    return out


def _tarred(archive: tarfile.TarFile, path: str) -> Listing:
    return _sdist(
        path,
        ((m.name, m.size, bool(m.mode & 0o111)) for m in archive.getmembers() if m.isfile()),
    )


def _zipped(archive: zipfile.ZipFile, path: str) -> Listing:
    return _sdist(
        path,
        (
            (i.filename, i.file_size, bool((i.external_attr >> 16) & 0o111))
            for i in archive.infolist()
            if not i.is_dir()
        ),
    )
