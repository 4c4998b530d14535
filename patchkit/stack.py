"""Patches put on a tree one after the other: what each of them finds, and what it leaves.

Pure: files come from a :class:`Source`, contents go out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from .errors import PatchkitError
from .mapping import Known, Mapped, Mapping, map_patch, map_stripped
from .model import FileState, Patch
from .patchfile import parse
from .plan import Key, Step, materialise

#: Files by path; None for one that is not there.
States = dict[str, "FileState | None"]
# A stack has one tree alone.
_ROOT = "."


class Source(Protocol):
    """A tree of pristine files, such as a release."""

    def paths(self) -> Iterable[str]:
        """Every path in it."""
        ...

    def state(self, path: str) -> FileState | None:
        """What a path holds; None where there is nothing."""
        ...


class Put(NamedTuple):
    """One patch that was put on: as it was read, how its paths were mapped, and the files
    that it is about before and after."""

    patch: Patch
    mapping: Mapping
    before: States
    after: States


class Stack:
    """A tree with patches on it; ``states`` holds the files that they are about so far."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.states: States = {}
        self._known: Known | None = None

    def read(self, path: str) -> FileState | None:
        """A file as the patches so far leave it."""
        return self.states[path] if path in self.states else self.source.state(path)

    def apply(self, name: str, data: bytes, strip: int | None) -> Put:
        """Put a patch file on.  Without ``strip`` its paths are found in the tree.

        Raises what refuses it, with the patch's name and the hunk.
        """
        try:
            patch = parse(data, name)
            if strip is None:
                mapping = map_patch(patch.files, self._paths())
            else:
                mapping = map_stripped(patch.files, strip)
            before, after = self.put(name, mapping.files)
        except PatchkitError as error:
            raise error.at(patch=name) from None
        return Put(patch, mapping, before, after)

    def put(self, name: str, files: Sequence[Mapped]) -> tuple[States, States]:
        """Put on what is mapped already; its files before and after."""
        before: States = {}

        def present(key: Key) -> FileState | None:
            before[key[1]] = self.read(key[1])
            return before[key[1]]

        wanted = materialise([Step("", name, _ROOT, tuple(files))], present)
        after: States = {}
        for (_, path), content in wanted.contents.items():
            if content is None:
                after[path] = None
            elif content.data is None:
                after[path] = before[path]
            else:
                after[path] = FileState(content.kind, content.mode, content.data)
        self.states.update(after)
        if self._known is not None:
            for mapped in files:
                follow(self._known, mapped)
        return before, after

    def _paths(self) -> Known:
        if self._known is None:
            self._known = Known(self.source.paths())
            for path, state in self.states.items():
                if state is None:
                    self._known.discard(path)
                else:
                    self._known.add(path)
        return self._known


def follow(known: Known, mapped: Mapped) -> None:
    """Keep the known paths as a patch leaves them."""
    change = mapped.patch.change
    if change in ("delete", "rename") and mapped.old is not None:
        known.discard(mapped.old)
    if change in ("add", "rename", "copy") and mapped.new is not None:
        known.add(mapped.new)
