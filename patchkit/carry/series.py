"""A variant's patches on the release they were made for, as contents; and back as patches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from patchkit.fsio import digest
from patchkit.mapping import Known, Mapped, map_patch, map_stripped
from patchkit.model import FileState, Patch, Variant
from patchkit.patchfile import parse
from patchkit.plan import Key, Step, materialise
from patchkit.porting.model import FileEdit, FileResult, PatchEdit, PatchResult
from patchkit.releases.sources import Release
from patchkit.series import follow
from patchkit.unified import Side, file_diff

#: What each patch of a variant makes of a release.
Series = tuple[PatchEdit, ...]


class Made(NamedTuple):
    """A variant on the release it was made for: its patches as they were read, what stands
    before their paths (``python/``), and as contents."""

    patches: tuple[Patch, ...]
    lead: str
    edits: Series


class _Layer:
    """A release with the patches so far on it."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self.changed: dict[str, FileState | None] = {}

    def state(self, key: Key) -> FileState | None:
        """What a path holds now."""
        path = key[1]
        return self.changed[path] if path in self.changed else self.release.state(path)


def made_on(variant: Variant, release: Release, read_patch: Callable[[str], bytes]) -> Made:
    """The variant's series on a release.  Raises what refuses a patch."""
    layer = _Layer(release)
    known = Known(release.paths())
    patches, edits, leads = [], [], []
    for path in variant.patches:
        data = read_patch(path)
        patch = parse(data, path, digest(data))
        mapping = (
            map_stripped(patch.files, variant.strip)
            if variant.strip is not None
            else map_patch(patch.files, known)
        )
        wanted = materialise([Step("", path, ".", mapping.files)], layer.state)
        files = []
        for mapped in mapping.files:
            leads.append(_lead(mapped))
            files.append(_edit(mapped, wanted.contents, layer))
            follow(known, mapped)
        for (_, name), content in wanted.contents.items():
            if content is None:
                layer.changed[name] = None
            elif content.data is not None:
                layer.changed[name] = FileState(content.kind, content.mode, content.data)
        patches.append(patch)
        edits.append(PatchEdit(path, tuple(files)))
    lead = max(set(leads), key=leads.count) if leads else ""
    return Made(tuple(patches), lead, tuple(edits))


def _edit(mapped: Mapped, contents: Mapping[Key, object], layer: _Layer) -> FileEdit:
    content = contents.get((".", mapped.new)) if mapped.new is not None else None
    data = getattr(content, "data", None)
    mode = getattr(content, "mode", None)
    if mapped.new is not None and data is None:  # as it was: only its mode, or nothing
        state = layer.state((".", mapped.new))
        data = None if state is None else state.data
    sets_mode = mapped.patch.new_mode is not None and mapped.patch.old_mode is not None
    old = mapped.old if mapped.patch.change != "copy" else None
    return FileEdit(old, mapped.new, data, mode if sets_mode else None)


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
    result: PatchResult, target: Release, before: dict[str, bytes | None], fields: str, lead: str
) -> bytes:
    """One ported patch as a file: header, then the diff of each file that it changes.

    ``before`` holds what the patches before made of the target, and is brought up to date.
    """
    body = b"".join(_diffs(result.files, target, before, lead))
    return (fields.encode() + b"\n" + body) if body else b""


def _diffs(
    files: Sequence[FileResult], target: Release, before: dict[str, bytes | None], lead: str
) -> Iterator[bytes]:
    for file in files:
        old_path = file.removed or file.path
        old = None if old_path is None else _now(old_path, target, before)
        executable = _is_executable(old_path, target)
        old_side = None if old is None or old_path is None else Side(old_path, old, executable)
        new_side = None
        if file.path is not None and file.data is not None:
            mode = file.mode
            new_side = Side(
                file.path, file.data, executable if mode is None else bool(mode & 0o100)
            )
        if new_side is None and file.removed is None:
            continue
        yield file_diff(old_side, new_side, lead=lead)
        if file.removed is not None:
            before[file.removed] = None
        if new_side is not None:
            before[new_side.path] = new_side.data


def _now(path: str, target: Release, before: Mapping[str, bytes | None]) -> bytes | None:
    return before[path] if path in before else target.read(path)


def _is_executable(path: str | None, target: Release) -> bool:
    member = target.listing.members.get(path or "")
    return member is not None and member.executable


def header(patch: Patch, origin: str, today: str) -> str:
    """DEP-3 fields of a ported patch: those of the one it comes from, with another origin."""
    fields = [(k, v) for k, v in patch.dep3 if k not in ("Origin", "Last-Update")]
    if not any(key in ("Description", "Subject") for key, _ in fields):
        fields.insert(0, ("Description", patch.name.rpartition("/")[2].rpartition(".")[0]))
    at = 1 + next(n for n, (key, _) in enumerate(fields) if key in ("Description", "Subject"))
    fields[at:at] = [("Origin", origin)]
    fields.append(("Last-Update", today))
    return "".join(f"{key}: {_folded(value)}\n" for key, value in fields)


def _folded(value: str) -> str:
    first, *rest = value.split("\n")
    return "\n".join([first, *(f" {line}" if line else " ." for line in rest)])


def slug(path: str, number: int) -> str:
    """The file name of a ported patch: that of the one it comes from."""
    name = path.rpartition("/")[2]
    return name if re.match(r"\d+", name) else f"{number:04d}-{name}"
