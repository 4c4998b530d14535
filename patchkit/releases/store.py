"""The cache of release files, by content.

Owns the folder ``patchkit/releases`` below ``XDG_CACHE_HOME``: lists of what releases hold,
and the bytes of the files that were asked for, each under its SHA-256 and compressed, so
that what two releases share is there once.  Everything is written aside and renamed, so
any number of processes may use it; what a limit or another process took away is simply
not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress

from patchkit.caches import cache_folder
from patchkit.errors import UsageError

from .model import Listing, Member

SCHEMA = 1
#: The limit where nothing says another, in bytes.
LIMIT = 2 * 1024**3
# The cache is tidied down to this share of the limit, so that not each write tidies.
_TIDY_TO = 0.8


def size_limit(environ: Mapping[str, str]) -> int:
    """``PATCHKIT_CACHE_SIZE`` in bytes, with K, M, G or T behind it; 2G by itself."""
    text = environ.get("PATCHKIT_CACHE_SIZE", "").strip()
    if not text:
        return LIMIT
    number = text.rstrip("kKmMgGtTiIbB")
    unit = text[len(number) :].strip().upper().removesuffix("B").removesuffix("I")
    if not number.strip().isdecimal() or unit not in ("", "K", "M", "G", "T"):
        raise UsageError(f"PATCHKIT_CACHE_SIZE: {text!r} is no size", hint="write it as 500M or 2G")
    return int(number) << 10 * " KMGT".index(unit or " ")


class Store:
    """The cache in one folder; made when something is first put into it."""

    def __init__(self, folder: str, limit: int = LIMIT) -> None:
        self.folder = os.path.join(folder, "releases")
        self.limit = limit
        self._written = 0

    @classmethod
    def of_user(cls, environ: Mapping[str, str]) -> Store:
        """The user's."""
        return cls(cache_folder(environ), size_limit(environ))

    # -- lists ------------------------------------------------------------------------

    def listings(self, distribution: str, version: str) -> list[Listing]:
        """What the cache knows of a release: one list for each archive."""
        folder = os.path.join(self.folder, "lists", distribution, version)
        found = []
        for name in _names(folder):
            if name.endswith(".json"):
                listing = _read_listing(os.path.join(folder, name))
                if listing is not None:
                    found.append(listing)
        return found

    def versions(self, distribution: str) -> list[str]:
        """The releases of which the cache holds something."""
        return _names(os.path.join(self.folder, "lists", distribution))

    def add_listing(self, listing: Listing) -> None:
        """Keep what a release holds."""
        folder = os.path.join(self.folder, "lists", listing.distribution, listing.version)
        value = {
            "schema": SCHEMA,
            "distribution": listing.distribution,
            "version": listing.version,
            "archive": listing.archive,
            "kind": listing.kind,
            "files": {p: list(member) for p, member in sorted(listing.members.items())},
        }
        data = json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()
        self._write(os.path.join(folder, f"{listing.archive}.json"), zlib.compress(data, 6))

    # -- contents ---------------------------------------------------------------------

    def read(self, sha256: str) -> bytes | None:
        """The bytes with that digest; None where the cache has them not (any more)."""
        path = self._blob(sha256)
        try:
            with open(path, "rb") as file:
                data = zlib.decompress(file.read())
            os.utime(path)  # what was used last goes last
        except (FileNotFoundError, NotADirectoryError):
            return None
        except zlib.error:
            data = b""
        except PermissionError:
            return None
        if hashlib.sha256(data).hexdigest() != sha256:
            with suppress(OSError):
                os.unlink(path)
            return None
        return data

    def add(self, data: bytes) -> str:
        """Keep bytes; their digest."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = self._blob(sha256)
        if not os.path.exists(path):
            self._write(path, zlib.compress(data, 1))
        return sha256

    def _blob(self, sha256: str) -> str:
        return os.path.join(self.folder, "files", sha256[:2], sha256[2:])

    # -- the folder -------------------------------------------------------------------

    def _write(self, path: str, data: bytes) -> None:
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=folder, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(aside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            raise
        self._written += len(data)
        if self._written > self.limit // 20:
            self.tidy()

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Every file of the cache with its status."""
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                with suppress(FileNotFoundError):
                    yield path, os.lstat(path)

    def tidy(self) -> int:
        """Remove what was used longest ago until the cache is within its limit; the bytes
        removed.  Lists go last of all: without them nothing is known of a release."""
        self._written = 0
        found = list(self.files())
        total = sum(status.st_size for _, status in found)
        if total <= self.limit:
            return 0
        lists = os.path.join(self.folder, "lists", "")
        removed = 0
        for path, status in sorted(
            found, key=lambda one: (one[0].startswith(lists), one[1].st_mtime_ns)
        ):
            if total - removed <= self.limit * _TIDY_TO:
                break
            with suppress(OSError):
                os.unlink(path)
                removed += status.st_size
        return removed


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read_listing(path: str) -> Listing | None:
    """A list of the cache; None for one that is gone, of another form, or damaged: it is
    made anew."""
    try:
        with open(path, "rb") as file:
            value = json.loads(zlib.decompress(file.read()))
        if value["schema"] != SCHEMA:
            return None
        members = {str(p): Member(*fields) for p, fields in value["files"].items()}
        return Listing(
            value["distribution"], value["version"], value["archive"], value["kind"], members
        )
    except FileNotFoundError:
        return None
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError):
        return None
