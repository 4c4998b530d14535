"""The patches that other tools keep in their own releases, found and not run.

Owns the download (sdists by pip, Debian's source packages by apt-get, both as they are set up
on the machine, kept under ``build/outside``) and the search: whole files, here-documents of
shell scripts, and string constants of Python files.  Nothing that was fetched is executed.
"""

from __future__ import annotations

import ast
import fcntl
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.releases import BUILD

FOLDER = BUILD / "outside"

#: These very releases, so that the cases are the same everywhere.
SDISTS = (("whatthepatch", "1.0.7"), ("unidiff", "1.0.1"), ("patch-ng", "1.19.1"))
#: Whatever release the machine's own Debian has.
DEBIAN = ("git", "patch")

#: Folders of a source package that hold its tests or its patches.
_FOLDERS = frozenset(["t", "test", "tests", "patches"])
_LARGEST = 200_000
_PATCH_LIKE = re.compile(
    rb"^(?:@@ -\d|GIT binary patch|(?:rename|copy|new mode|old mode) )", re.MULTILINE
)
_HERE = re.compile(rb"<<(-?)[ ]*\\?(['\"]?)([A-Za-z_]+)\2[^\n]*\n")


class Unreachable(Exception):
    """A source that cannot be had; the message says what it needs."""


@dataclass(frozen=True, slots=True)
class Found:
    """A text that may be a patch: whose it is, the place in the release, and the bytes."""

    suite: str
    source: str
    data: bytes


def from_sdists() -> list[Found]:
    """All patches of the sdists.  Raises :class:`Unreachable`."""
    return [
        found
        for name, version in SDISTS
        for found in search(name, [_sdist(name, version)], everywhere=True)
    ]


def from_debian(name: str) -> list[Found]:
    """All patches of a Debian source package.  Raises :class:`Unreachable`."""
    return list(search(name, _debian(name)))


# -- downloads -----------------------------------------------------------------------------


@contextmanager
def _locked(name: str) -> Iterator[None]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f".{name}.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _sdist(name: str, version: str) -> Path:
    pattern = f"{name.replace('-', '[-_]')}-{version}.tar.gz"
    with _locked(name):
        for path in FOLDER.glob(pattern):
            return path
        with tempfile.TemporaryDirectory(dir=FOLDER) as temporary:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                    *("--disable-pip-version-check", "--no-binary", ":all:"),
                    *("--dest", temporary, f"{name}=={version}"),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            got = list(Path(temporary).glob(pattern))
            if done.returncode or not got:
                raise Unreachable(f"needs the sdist of {name} {version} from a package index")
            return got[0].replace(FOLDER / got[0].name)


def _debian(name: str) -> list[Path]:
    folder = FOLDER / f"debian-{name}"
    with _locked(folder.name):
        if not folder.exists():
            if shutil.which("apt-get") is None:
                raise Unreachable(f"needs apt-get for the source package {name}")
            with tempfile.TemporaryDirectory(dir=FOLDER) as temporary:
                got = Path(temporary, "got")
                got.mkdir()
                options = _apt_options(Path(temporary))
                worked = True
                for command in (["update"], ["source", "--download-only", name]):
                    done = subprocess.run(
                        ["apt-get", "-q", *options, *command],
                        cwd=got,
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                        check=False,
                    )
                    worked = done.returncode == 0
                if not worked or not list(got.glob("*.tar.*")):
                    raise Unreachable(f"needs a Debian mirror with the source package {name}")
                got.replace(folder)
    return sorted(path for path in folder.glob("*.tar.*") if path.suffix != ".asc")


def _apt_options(folder: Path) -> list[str]:
    """Options by which apt-get reads the machine's own archives for sources, with lists in
    ``folder``; its security updates left out, whose mirrors do not keep the older ones."""
    parts = folder / "parts"
    for made in (parts, folder / "lists" / "partial", folder / "cache" / "archives" / "partial"):
        made.mkdir(parents=True)
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        stanzas = path.read_text(encoding="utf-8").split("\n\n")
        kept = [stanza for stanza in stanzas if "-security" not in stanza]
        text = re.sub(r"(?m)^Types:.*$", "Types: deb-src", "\n\n".join(kept))
        (parts / path.name).write_text(text, encoding="utf-8")
    classic = Path("/etc/apt/sources.list")
    if classic.exists():
        lines = classic.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.startswith("deb ") and "-security" not in line]
        text = "".join(line.replace("deb ", "deb-src ", 1) + "\n" for line in kept)
        (parts / "classic.list").write_text(text, encoding="utf-8")
    places = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": parts,
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
    }
    return [part for key, value in places.items() for part in ("-o", f"{key}={value}")]


# -- the search ----------------------------------------------------------------------------


def search(suite: str, archives: list[Path], *, everywhere: bool = False) -> Iterator[Found]:
    """Every text in the archives that looks like a patch, each only once, by name."""
    seen: set[bytes] = set()
    for archive in archives:
        with tarfile.open(archive) as tar:
            members = sorted((m for m in tar.getmembers() if m.isfile()), key=lambda m: m.name)
            for member in members:
                path = Path(member.name)
                if member.size > _LARGEST or not (everywhere or _FOLDERS & set(path.parts)):
                    continue
                handle = tar.extractfile(member)
                assert handle is not None
                short = "/".join(path.parts[1:])
                for number, data in enumerate(texts(path.suffix, handle.read()), 1):
                    if data not in seen and _PATCH_LIKE.search(data):
                        seen.add(data)
                        yield Found(suite, f"{short}#{number}", data)


def texts(suffix: str, data: bytes) -> Iterator[bytes]:
    """The parts of a file that may be patches."""
    if not _PATCH_LIKE.search(data) and b"@@ -" not in data:
        return
    if suffix == ".py":
        for node in ast.walk(ast.parse(data)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value.encode("utf-8", "surrogateescape")
    elif suffix == ".sh" or data.startswith(b"#!") or b"\n. $srcdir/" in data:
        yield from here_documents(data)
    else:
        yield data


def here_documents(script: bytes) -> Iterator[bytes]:
    """The bodies of ``<<EOF`` and its like, by the shell's rules for tabs and backslashes;
    one that the shell would fill in (``$name``) is no patch yet, and left out."""
    at = 0
    while start := _HERE.search(script, at):
        tabs = rb"\t*" if start[1] else b""
        end = re.compile(rb"^" + tabs + start[3] + rb"$", re.MULTILINE).search(script, start.end())
        at = start.end()
        if end is None:
            continue
        body = script[at : end.start()]
        at = end.end()
        if start[1]:
            body = re.sub(rb"(?m)^\t+", b"", body)
        if not start[2] and b"\\" not in start[0]:
            if re.search(rb"(?<!\\)[$`]", body):
                continue
            body = re.sub(rb"\\([$`\\])", rb"\1", body)
        yield body
