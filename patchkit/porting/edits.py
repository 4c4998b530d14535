"""Patches that are read and mapped → the contents that each of them leaves.

The engine merges contents; this is the way to them from patch files.  Must not do I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from patchkit.errors import Refused
from patchkit.mapping import Mapped
from patchkit.model import FileState
from patchkit.plan import Step
from patchkit.stack import Stack, States

from .model import FileEdit, PatchEdit, Tree


class _Plain:
    """A tree of the engine's, which knows bytes and no modes."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def paths(self) -> Iterable[str]:
        return self._tree.paths()

    def state(self, path: str) -> FileState | None:
        data = self._tree.read(path)
        return None if data is None else FileState("file", 0o644, data)


def edits(base: Tree, steps: Sequence[Step]) -> tuple[PatchEdit, ...]:
    """Each patch as what it makes of ``base`` with those before it.

    Raises :class:`~patchkit.errors.Refused` where one does not apply, or makes a symlink.  The
    root that a step names does not matter: ``base`` is the only tree.
    """
    stack = Stack(_Plain(base))
    return tuple(edit(one.patch, one.files, *stack.put(one.patch, one.files)) for one in steps)


def edit(name: str, files: Sequence[Mapped], before: States, after: States) -> PatchEdit:
    """One patch that was put on as what it makes of its files, each path once.

    A copy adds a file.  A mode is what the patch says of it (``new mode``, ``new file mode``),
    and None where it says nothing, whatever the file has.  Raises :class:`Refused` for a
    symlink, whose target is no text to merge.
    """
    sources = {m.new: m.old for m in files if m.patch.change == "rename"}
    modes = {m.new: m.patch.new_mode & 0o777 for m in files if m.patch.new_mode is not None}
    found: list[FileEdit] = []
    taken: set[str | None] = set()
    for path, state in after.items():
        if state is None:
            continue
        if state.kind != "file":
            raise Refused(
                f"{path} becomes a symlink, which cannot be ported",
                code="port-symlink",
                patch=name,
                file=path,
                hint="make a variant for the release by hand: patchkit import",
            )
        old: str | None = path
        while old is not None and before.get(old) is None:
            old = sources.get(old)
        taken.add(old)
        found.append(FileEdit(old, path, state.data, modes.get(path)))
    for path, state in after.items():
        if state is None and before.get(path) is not None and path not in taken:
            found.append(FileEdit(path, None, None))
    return PatchEdit(name, tuple(found))
