"""A variant's patches on the release they were made for, as contents; and back as patches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from patchkit.mapping import Mapped
from patchkit.model import Variant
from patchkit.porting.edits import edit
from patchkit.porting.engine import last_of_each
from patchkit.porting.model import FileResult, PatchEdit, PatchResult
from patchkit.releases.sources import Release
from patchkit.stack import Stack
from patchkit.unified import Side, file_diff
from patchkit.writing.headers import Head


class Made(NamedTuple):
    """A variant on the release it was made for: its patches as contents, their heads, and
    what stands before their paths (``python/``)."""

    edits: tuple[PatchEdit, ...]
    heads: tuple[Head, ...]
    lead: str


def made_on(variant: Variant, release: Release, read_patch: Callable[[str], bytes]) -> Made:
    """The variant's series on a release.  Raises what refuses a patch."""
    stack = Stack(release)
    edits, heads, leads = [], [], []
    for path in variant.patches:
        data = read_patch(path)
        put = stack.apply(path, data, variant.strip)
        heads.append(Head.of(data, path.rpartition("/")[2]))
        edits.append(edit(path, put.mapping.files, put.before, put.after))
        leads += [_lead(mapped) for mapped in put.mapping.files]
    lead = max(set(leads), key=leads.count) if leads else ""
    return Made(tuple(edits), tuple(heads), lead)


def _lead(mapped: Mapped) -> str:
    """What stands between ``a/`` and the path in site-packages."""
    for header, path in (
        (mapped.patch.new_path, mapped.new),
        (mapped.patch.old_path, mapped.old),
    ):
        if header is not None and path is not None and header.endswith(path):
            front = header[: -len(path)]
            return front[2:] if front[:2] in ("a/", "b/") else front
    return ""


# -- back -------------------------------------------------------------------------------


def patch_text(
    result: PatchResult, target: Release, before: dict[str, Side | None], head: Head, lead: str
) -> bytes:
    """One ported patch as a file: its head, then the diff of each file that it changes; empty
    where it changes none.

    ``before`` holds what the patches before made of the target, and is brought up to date.
    """
    body = b"".join(_diffs(result.files, target, before, lead))
    return head.render() + body if body else b""


def _diffs(
    files: Sequence[FileResult], target: Release, before: dict[str, Side | None], lead: str
) -> Iterator[bytes]:
    for file in last_of_each(files):
        old_path = file.removed or file.path
        old = None if old_path is None else _now(old_path, target, before)
        new = None
        if file.path is not None and file.data is not None:
            executable = old is not None and old.executable
            if file.mode is not None:
                executable = bool(file.mode & 0o100)
            new = Side(file.path, file.data, executable)
        if new is None and file.removed is None:
            continue
        yield file_diff(old, new, lead=lead)
        if file.removed is not None:
            before[file.removed] = None
        if new is not None:
            before[new.path] = new


def _now(path: str, target: Release, before: dict[str, Side | None]) -> Side | None:
    if path in before:
        return before[path]
    state = target.state(path)
    return None if state is None else Side(path, state.data, bool(state.mode & 0o100))


def file_name(path: str, number: int) -> str:
    """The file name of a ported patch: that of the one it comes from."""
    name = path.rpartition("/")[2]
    return name if re.match(r"\d+", name) else f"{number:04d}-{name}"
