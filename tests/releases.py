"""Real releases from the package index as trees on disk, and pictures of trees.

Owns the caches under ``build/`` (``wheels/`` and ``trees/``, filled through pip, safe for
several test processes at once), private copies of them as site-packages folders, and
:func:`snapshot`, by which the tests say that a tree is what it was.  A cached tree is never
handed to a test that writes; :func:`check_cache` says so when one was changed all the same.
"""

from __future__ import annotations

import base64
import csv
import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("PATCHKIT_TEST_BUILD", ROOT / "build"))

#: The releases that the shipped bundles are made for.
SGLANG = ("sglang", "0.5.9")
FLASHINFER = ("flashinfer-python", "0.6.3")

Release = tuple[str, str]
LinkMode = Literal["copy", "hardlink", "symlink"]

_CACHE_FORMAT = "1"


def normalised(name: str) -> str:
    """The project name as PEP 503 writes it (``flashinfer-python``)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def file_name(name: str) -> str:
    """The project name as wheels and ``.dist-info`` folders write it."""
    return normalised(name).replace("-", "_")


def release(spec: Release | str) -> Release:
    """``("sglang", "0.5.9")`` from itself or from ``"sglang==0.5.9"``."""
    if isinstance(spec, str):
        name, _, version = spec.partition("==")
        return name, version
    return spec


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def wheel(name: str, version: str) -> Path:
    """The wheel of a release, downloaded once by ``pip download --no-deps``.

    Raises RuntimeError with pip's own words where it cannot be had.
    """
    folder = BUILD / "wheels"
    stem = f"{file_name(name)}-{version}"
    with _locked(folder / f".{stem}.lock"):
        for path in sorted(folder.glob(f"{stem}-*.whl")):
            return path
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"),
                    *("--disable-pip-version-check", "--only-binary", ":all:"),
                    *("--dest", temporary, f"{name}=={version}"),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            wheels = sorted(Path(temporary).glob("*.whl"))
            if done.returncode or len(wheels) != 1:
                raise RuntimeError(f"cannot download {name} {version}:\n{done.stdout}{done.stderr}")
            target = folder / wheels[0].name
            wheels[0].replace(target)
        return target


def tree(name: str, version: str) -> Path:
    """The unpacked wheel of a release, as an installer lays it out; for reading only.

    Every file is checked against RECORD when it is unpacked.
    """
    key = f"{file_name(name)}-{version}"
    source = wheel(name, version)
    folder = BUILD / "trees"
    target = folder / key
    stamp = folder / f".{key}.ok"
    with _locked(folder / f".{key}.lock"):
        if stamp.exists() and target.is_dir() and stamp.read_text() == _CACHE_FORMAT:
            return target
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as temporary:
                unpacked = Path(temporary, key)
                with zipfile.ZipFile(source) as archive:
                    archive.extractall(unpacked)
                unpacked.replace(target)
        _set_modes(source, target)
        problems = record_problems(target)
        if problems:
            raise RuntimeError(f"{target} does not match RECORD: {problems[:5]}")
        stamp.write_text(_CACHE_FORMAT)
    return target


def _set_modes(source: Path, target: Path) -> None:
    """Executable files stay so, as pip and uv do it; all others are 0644."""
    with zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                executable = (info.external_attr >> 16) & 0o111
                (target / info.filename).chmod(0o755 if executable else 0o644)
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(0o755)


def dist_info(site_packages: Path, name: str) -> Path:
    """The ``.dist-info`` folder of an installed distribution."""
    (found,) = site_packages.glob(f"{file_name(name)}-*.dist-info")
    return found


def record_rows(info: Path) -> list[tuple[str, str, str]]:
    """The rows of the RECORD in a ``.dist-info`` folder: path, hash, size."""
    text = (info / "RECORD").read_bytes().decode("utf-8")
    return [(row[0], row[1], row[2]) for row in csv.reader(io.StringIO(text)) if row]


def record_problems(site_packages: Path, *, unlisted: bool = True) -> list[str]:
    """What differs between the tree and the RECORDs in it: changed, missing, unlisted."""
    problems = []
    listed = set()
    for info in site_packages.glob("*.dist-info"):
        for path, digest, _ in record_rows(info):
            listed.add(path)
            file = site_packages / path
            if not file.exists():
                problems.append(f"{path}: missing")
            elif digest:
                algorithm, _, expected = digest.partition("=")
                found = base64.urlsafe_b64encode(hashlib.new(algorithm, file.read_bytes()).digest())
                if found.rstrip(b"=").decode() != expected:
                    problems.append(f"{path}: changed")
    if unlisted:
        problems += [f"{f}: unlisted" for f in files(site_packages) if f not in listed]
    return problems


def files(folder: Path) -> Iterator[str]:
    """Every file and link below ``folder``, as sorted POSIX paths relative to it."""
    found = []
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        found += [os.path.relpath(os.path.join(parent, n), folder) for n in [*names, *links]]
    return iter(sorted(found))


def install(
    releases: Iterable[Release | str], site_packages: Path, *, link_mode: LinkMode = "copy"
) -> Path:
    """Lay the wheels of ``releases`` into ``site_packages`` as an installer does.

    ``copy`` gives files of their own.  ``hardlink`` and ``symlink`` do what uv does: the
    files are links into a cache, here a private one beside it (``NAME-cache``), so that
    link counts are the test's own business.  A copy of both of these releases,
    3,945 files and 74 MB, takes 0.2 s; nothing is shared with the cache under ``build/``,
    so a test that goes wrong cannot spoil another.
    """
    site_packages.mkdir(parents=True, exist_ok=True)
    for name, version in map(release, releases):
        source = tree(name, version)
        if link_mode == "copy":
            shutil.copytree(source, site_packages, symlinks=True, dirs_exist_ok=True)
        else:
            cache = site_packages.parent / f"{site_packages.name}-cache" / source.name
            shutil.copytree(source, cache, symlinks=True)
            _link_tree(cache, site_packages, link_mode)
        _finish_dist_info(site_packages, name)
    return site_packages


def _link_tree(source: Path, target: Path, link_mode: LinkMode) -> None:
    for parent, _, names in os.walk(source):
        folder = target / os.path.relpath(parent, source)
        folder.mkdir(exist_ok=True)
        for name in names:
            if link_mode == "hardlink":
                os.link(os.path.join(parent, name), folder / name)
            else:
                os.symlink(os.path.join(parent, name), folder / name)


def _finish_dist_info(site_packages: Path, name: str) -> None:
    """INSTALLER and its RECORD row: what an installer adds to the wheel's own files."""
    info = dist_info(site_packages, name)
    installer = info / "INSTALLER"
    installer.write_bytes(b"pip\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"pip\n").digest()).rstrip(b"=").decode()
    record = info / "RECORD"
    data = record.read_bytes()
    end = b"\r\n" if b"\r\n" in data else b"\n"
    row = f"{info.name}/INSTALLER,sha256={digest},4".encode()
    record.unlink()
    record.write_bytes(row + end + data)


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a tree, as :func:`snapshot` saw it.

    ``digest`` is the SHA-256 of a regular file's bytes, ``target`` what a link says,
    ``xattrs`` are sorted pairs.
    """

    kind: Literal["file", "folder", "link", "other"]
    mode: int
    owner: tuple[int, int]
    digest: str | None
    target: str | None
    xattrs: tuple[tuple[str, bytes], ...]
    inode: int
    mtime_ns: int
    nlink: int


Snapshot = Mapping[str, Entry]

#: What must be equal after a revert, whatever the file system.
CONTENTS = ("kind", "mode", "owner", "digest", "target", "xattrs")
#: What is equal too wherever hard links could keep it.  Not for files that a JIT compiles.
IDENTITY = (*CONTENTS, "inode", "mtime_ns", "nlink")


def snapshot(folder: Path, *, ignore: Sequence[str] = ()) -> dict[str, Entry]:
    """Every path below ``folder`` (and ``.`` itself), nothing followed.

    Paths that equal one of ``ignore``, or lie below one, are left out.
    """
    out = {}
    pending = ["."]
    while pending:
        path = pending.pop()
        full = os.path.join(folder, path)
        info = os.lstat(full)
        kind, digest, target = _contents(full, info.st_mode)
        out[path] = Entry(
            kind=kind,
            mode=stat.S_IMODE(info.st_mode),
            owner=(info.st_uid, info.st_gid),
            digest=digest,
            target=target,
            xattrs=_xattrs(full),
            inode=info.st_ino,
            mtime_ns=info.st_mtime_ns,
            nlink=info.st_nlink,
        )
        if kind == "folder":
            for name in os.listdir(full):
                child = name if path == "." else f"{path}/{name}"
                if child not in ignore:
                    pending.append(child)
    return dict(sorted(out.items()))


def _contents(
    path: str, mode: int
) -> tuple[Literal["file", "folder", "link", "other"], str | None, str | None]:
    if stat.S_ISREG(mode):
        with open(path, "rb") as handle:
            return "file", hashlib.sha256(handle.read()).hexdigest(), None
    if stat.S_ISLNK(mode):
        return "link", None, os.readlink(path)
    return ("folder" if stat.S_ISDIR(mode) else "other"), None, None


def _xattrs(path: str) -> tuple[tuple[str, bytes], ...]:
    if not hasattr(os, "listxattr"):
        return ()
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return ()
    return tuple(sorted((name, os.getxattr(path, name, follow_symlinks=False)) for name in names))


def diff_snapshots(
    before: Snapshot, after: Snapshot, fields: Sequence[str] = CONTENTS
) -> list[str]:
    """One line for each path that differs; empty where the trees are the same.

    Times and link counts of folders are never compared: a rename inside changes them.
    """
    lines = []
    for path in sorted({*before, *after}):
        if path not in after:
            lines.append(f"{path}: gone")
        elif path not in before:
            lines.append(f"{path}: new")
        else:
            old, new = before[path], after[path]
            skipped = ("mtime_ns", "nlink") if old.kind == "folder" else ()
            changes = [
                f"{field} {getattr(old, field)!r} -> {getattr(new, field)!r}"
                for field in fields
                if field not in skipped and getattr(old, field) != getattr(new, field)
            ]
            if changes:
                lines.append(f"{path}: {', '.join(changes)}")
    return lines


def changed_paths(before: Snapshot, after: Snapshot) -> list[str]:
    """The paths of :func:`diff_snapshots` alone."""
    return [line.rpartition(": ")[0].split(": ")[0] for line in diff_snapshots(before, after)]


def stats(folder: Path) -> dict[str, tuple[int, int, int]]:
    """A cheap picture: path to (mode, size, mtime_ns); no file is read."""
    out = {}
    for path in files(folder):
        info = os.lstat(folder / path)
        out[path] = (info.st_mode, info.st_size, info.st_mtime_ns)
    return out
