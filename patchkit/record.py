"""RECORD, the list of an installed distribution's files with their digests.

Owns its form (PEP 376, PEP 627).  Wanted rows are found by their bytes, since parsing a
large one whole costs more than all that ``verify`` does.  Only reads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable
from typing import NamedTuple

from .errors import Fault, Refused
from .fsio import read_plain

# From so many paths on, one pass over RECORD is cheaper than a search for each.
_MANY = 32
#: The most bytes of a RECORD; that of FlashInfer with its kernels has 1.2 MB.
MAX_RECORD = 64 * 1024 * 1024
_DIGEST_BYTES = {"md5": 16, "sha1": 20, "sha224": 28, "sha256": 32, "sha384": 48, "sha512": 64}


class RecordRow(NamedTuple):
    """One row of RECORD.  The digest is hexadecimal, and None where it is absent or wrong."""

    path: str
    algorithm: str | None
    digest_hex: str | None
    size: int | None

    def holds(self, data: bytes) -> bool | None:
        """Whether these are the bytes of the row; None where it has no digest (pip gives
        none for byte-code, and RECORD has none of itself)."""
        if self.algorithm is None or self.digest_hex is None:
            return None
        import hashlib

        return hashlib.new(self.algorithm, data, usedforsecurity=False).hexdigest() == (
            self.digest_hex
        )


class Record:
    """The bytes of a RECORD file, read by searching them.

    Rows are ``path,algorithm=digest,size`` (PEP 376, PEP 627): CSV, UTF-8, the digest in
    URL-safe base 64 without padding.  Parsing SGLang's or FlashInfer's whole costs more
    than everything else that ``verify`` does; the wanted rows are found by their bytes.
    Where the text is such that searching could go wrong (a field over several lines, a
    lone carriage return, a quote in an odd place, ``./`` before a path), it is parsed
    after all.

    Of two rows for one path, the first counts.
    """

    __slots__ = ("_paths", "_table", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._paths: tuple[str, ...] | None = None
        self._table = None if _searchable(raw) else _parse(raw)

    @classmethod
    def load(cls, dist_info: str) -> Record | None:
        """The RECORD of a ``.dist-info``; None where it has none."""
        path = os.path.join(dist_info, "RECORD")
        try:
            return cls(read_plain(path, MAX_RECORD))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            kind = Refused if error.errno in (errno.EINVAL, errno.EFBIG) else Fault
            raise kind(
                f"{path} cannot be read: {error.strerror}",
                code="record-unreadable",
                hint="run as a user that may read it",
            ) from error

    def rows(self, paths: Collection[str]) -> dict[str, RecordRow]:
        """The rows of the paths that are listed, by path as given."""
        if self._table is None and len(paths) > _MANY:
            return self._rows_by_line(paths)
        out: dict[str, RecordRow] = {}
        for path in paths:
            row = self._search(path) if self._table is None else self._table.get(path)
            if row is not None:
                out[path] = row
        return out

    def _rows_by_line(self, paths: Collection[str]) -> dict[str, RecordRow]:
        """The same for many paths: one pass over the lines instead of a search for each."""
        lines: dict[str, bytes] = {}
        for line in self.raw.split(b"\n"):
            if line[:1] == b'"':
                name = _first_field(line)
                lines.setdefault(_decode(name), line[line.index(b'",', 1) + 2 :])
            else:
                raw_name, comma, rest = line.partition(b",")
                if comma:
                    lines.setdefault(_decode(raw_name), rest)
        out: dict[str, RecordRow] = {}
        for path in paths:
            found = lines.get(path)
            if found is not None and path:
                text = found.rstrip(b"\r").decode("utf-8", "surrogateescape")
                out[path] = _row(path, text.split(","))
        return out

    def paths(self) -> tuple[str, ...]:
        """Every file inside the site directory, in the order of RECORD.

        Leaves out what lies elsewhere (``../../../bin/sglang``, absolute paths).
        """
        if self._paths is None:
            if self._table is not None:
                names: Iterable[str] = self._table
            elif b'"' in self.raw:
                names = map(_decode, map(_first_field, self.raw.split(b"\n")))
            else:
                lines = self.raw.split(b"\n")
                names = map(_decode, [line.partition(b",")[0].rstrip(b"\r") for line in lines])
            inside = (name for name in dict.fromkeys(names) if name and not _outside(name))
            self._paths = tuple(inside)
        return self._paths

    def _search(self, path: str) -> RecordRow | None:
        plain = path.encode("utf-8", "surrogateescape")
        quoted = b'"' + plain.replace(b'"', b'""') + b'"'
        forms = [quoted] if _needs_quotes(plain) else [plain, quoted]
        raw = self.raw
        for form in forms:
            if raw.startswith(form + b","):
                start = len(form) + 1
            else:
                start = raw.find(b"\n" + form + b",")
                if start < 0:
                    continue
                start += len(form) + 2
            end = raw.find(b"\n", start)
            line = raw[start:] if end < 0 else raw[start:end]
            rest = line.rstrip(b"\r").decode("utf-8", "surrogateescape").split(",")
            return _row(path, rest)
        return None

    @staticmethod
    def add_rows(raw: bytes, rows: Collection[tuple[str, str, int]]) -> bytes:
        """RECORD with rows for added files: (path, SHA-256 in hexadecimal, size).

        They stand in the order of their paths, before the row of RECORD itself where that
        is the last one, else at the end, with the line ends that are there.  Paths that
        have a row already keep it: what is there is never changed.
        """
        have = Record(raw).rows([path for path, _, _ in rows])
        end = b"\r\n" if raw.partition(b"\n")[0].endswith(b"\r") else b"\n"
        added = [
            _format(path, digest, size) for path, digest, size in sorted(rows) if path not in have
        ]
        if not added:
            return raw
        body = raw.rstrip(b"\r\n")
        tail = raw[len(body) :]
        head, newline, last = body.rpartition(b"\n")
        if _first_field(last).endswith(b".dist-info/RECORD"):
            before, after = head + newline, last + tail
            made = before + b"".join(row + end for row in added) + after
        else:
            body += end if body else b""
            made = body + end.join(added) + (tail if body else end)
        if len(Record(made).rows([path for path, _, _ in rows])) != len({r[0] for r in rows}):
            raise Refused(
                "RECORD has a quote that is never closed: rows behind it would not be seen",
                code="record-unreadable",
                hint="install the distribution again",
            )
        return made


def _searchable(raw: bytes) -> bool:
    """Whether each line is one row, quotes stand around whole first fields only, and no
    path begins with ``./``."""
    if b"\r" in raw and raw.count(b"\r") != raw.count(b"\r\n"):
        return False
    if raw.startswith((b"./", b'"./')) or b"\n./" in raw or b'\n"./' in raw:
        return False
    at = raw.find(b'"')
    while at >= 0:
        end = raw.find(b"\n", at)
        line = raw[raw.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(raw)]
        bare = line.replace(b'""', b"")
        close = bare.find(b'"', 1)
        if bare[:1] != b'"' or bare[close : close + 2] != b'",':
            return False
        if bare.find(b'"', close + 1) >= 0:
            return False
        at = raw.find(b'"', end) if end >= 0 else -1
    return True


def _parse(raw: bytes) -> dict[str, RecordRow]:
    import csv
    import io

    out: dict[str, RecordRow] = {}
    text = io.StringIO(raw.decode("utf-8", "surrogateescape"), newline="")
    reader = csv.reader(text)
    try:
        for fields in reader:
            if len(fields) > 1:
                path = _undotted(fields[0])
                out.setdefault(path, _row(path, fields[1:]))
    except csv.Error as error:
        raise Refused(
            f"RECORD line {reader.line_num} is no CSV: {error}",
            code="record-unreadable",
            hint="install the distribution again",
        ) from error
    return out


def _row(path: str, rest: list[str]) -> RecordRow:
    algorithm, equals, digest = (rest[0] if rest else "").partition("=")
    size = rest[1] if len(rest) > 1 else ""
    if not equals:
        algorithm = digest = ""
    number = int(size) if size.isascii() and size.isdigit() else None
    return RecordRow(path, algorithm or None, _digest_hex(algorithm, digest), number)


def _digest_hex(algorithm: str, digest: str) -> str | None:
    size = _DIGEST_BYTES.get(algorithm)
    if size is None:
        return None
    if len(digest) == 2 * size:  # flit install writes it in hexadecimal
        try:
            return bytes.fromhex(digest).hex()
        except ValueError:
            return None
    import binascii

    text = digest.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = binascii.a2b_base64(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return decoded.hex() if len(decoded) == size else None


def _format(path: str, digest_hex: str, size: int) -> bytes:
    import binascii

    name = path.encode("utf-8", "surrogateescape")
    if _needs_quotes(name):
        name = b'"' + name.replace(b'"', b'""') + b'"'
    digest = binascii.b2a_base64(bytes.fromhex(digest_hex), newline=False).rstrip(b"=")
    return b"%b,sha256=%b,%d" % (name, digest.translate(_URL_SAFE), size)


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def _needs_quotes(name: bytes) -> bool:
    return b"," in name or b'"' in name or b"\n" in name or b"\r" in name


def _first_field(line: bytes) -> bytes:
    if line[:1] != b'"':
        return line.partition(b",")[0].rstrip(b"\r")
    end = line.find(b'"', 1)
    while end >= 0 and line[end + 1 : end + 2] == b'"':
        end = line.find(b'"', end + 2)
    return (line[1:end] if end >= 0 else line[1:]).replace(b'""', b'"')


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _undotted(name: str) -> str:
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def _outside(name: str) -> bool:
    return name[0] == "/" or (".." in name and ".." in name.split("/"))
