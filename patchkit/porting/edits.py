"""Patches that are read and mapped → the contents that each of them leaves.

The engine merges contents; this is the way to them from patch files.  Must not do I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.model import FileState
from patchkit.plan import Key, Step, materialise

from .model import FileEdit, PatchEdit, Tree

_ROOT = ""


def edits(base: Tree, steps: Sequence[Step]) -> tuple[PatchEdit, ...]:
    """Each patch as what it makes of ``base`` with those before it.

    Raises :class:`~patchkit.errors.Refused` where one does not apply.  The root that a step
    names does not matter: ``base`` is the only tree.
    """
    contents: dict[str, bytes | None] = {}

    def pristine(key: Key) -> FileState | None:
        path = key[1]
        data = contents[path] if path in contents else base.read(path)
        return None if data is None else FileState("file", 0o644, data)

    made = []
    for step in steps:
        wanted = materialise([step._replace(root=_ROOT)], pristine)
        sources = {a.key[1]: a.source[1] for a in wanted.applied if a.source is not None}
        modes = {
            mapped.new: mapped.patch.new_mode & 0o777
            for mapped in step.files
            if mapped.new is not None and mapped.patch.new_mode is not None
        }
        files = []
        for (_, path), content in wanted.contents.items():
            if path in sources.values() and content is None:
                continue  # the old name of a renamed file
            before = pristine((_ROOT, path))
            if content is None:
                if before is not None:
                    files.append(FileEdit(path, None, None))
                continue
            assert content.data is not None or before is not None
            data = content.data if content.data is not None else before.data  # type: ignore[union-attr]
            old = sources.get(path, path if before is not None else None)
            files.append(FileEdit(old, path, data, modes.get(path)))
        for file in files:
            if file.old is not None and file.old != file.new:
                contents[file.old] = None
            if file.new is not None:
                contents[file.new] = file.data
        made.append(PatchEdit(step.patch, tuple(files)))
    return tuple(made)
