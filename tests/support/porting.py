"""Releases made of a few texts, and patches between them, for the tests of porting."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from textwrap import dedent

from patchkit.porting.engine import port
from patchkit.porting.model import FileEdit, FileResult, PatchEdit, Ported

PATH = "pkg/mod.py"


def text(source: str) -> bytes:
    return dedent(source).lstrip("\n").encode()


class DictTree:
    """A release: paths to their bytes.  ``read_paths`` says which were read."""

    def __init__(self, files: Mapping[str, bytes | str]) -> None:
        self.files = {p: d if isinstance(d, bytes) else text(d) for p, d in files.items()}
        self.read_paths: set[str] = set()

    def paths(self) -> Iterable[str]:
        return list(self.files)

    def digest(self, path: str) -> str | None:
        data = self.files.get(path)
        return None if data is None else hashlib.sha256(data).hexdigest()

    def read(self, path: str) -> bytes | None:
        self.read_paths.add(path)
        return self.files.get(path)


def patch(
    ours: Mapping[str, bytes | str | None], name: str = "p", *, added: Collection[str] = ()
) -> PatchEdit:
    """A patch that leaves these contents; None removes the file."""
    files = []
    for path, data in ours.items():
        made = text(data) if isinstance(data, str) else data
        old = None if path in added else path
        files.append(FileEdit(old, None if made is None else path, made))
    return PatchEdit(name, tuple(files))


def carried(
    base: bytes | str | Mapping[str, bytes | str],
    ours: bytes | str,
    theirs: bytes | str | Mapping[str, bytes | str],
    path: str = PATH,
) -> Ported:
    """A patch of one file, from one release to another."""
    before = {path: base} if isinstance(base, (bytes, str)) else base
    after = {path: theirs} if isinstance(theirs, (bytes, str)) else theirs
    return port(DictTree(before), DictTree(after), [patch({path: ours})])


def only(ported: Ported) -> FileResult:
    """The one file of a ported series of one patch."""
    assert len(ported.patches) == 1 and len(ported.patches[0].files) == 1
    return ported.patches[0].files[0]


def outcomes(ported: Ported) -> list[str]:
    return [h.outcome for p in ported.patches for f in p.files for h in f.hunks]


def problems(ported: Ported) -> set[str]:
    return {x.code for p in ported.patches for f in p.files for x in f.problems}
