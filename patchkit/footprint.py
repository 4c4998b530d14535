"""Folders and byte-code of a transaction: what is made, removed, kept and put back.

Owns the part of an exact revert that is not about files themselves: a folder that a patch
made goes again, one that it emptied comes back with its mode and owner, and the byte-code
of pristine modules returns with them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

from .bytecode import cache_folder, pycs_of, source_of
from .errors import Refused
from .fsio import digest
from .paths import folders_above, upper
from .plan import Key
from .roots import Roots
from .staging import Work
from .state import State

Facts = tuple[int, int, int]  # mode, user id, group id


class Footprint:
    """Fills in ``work.make``, ``drop``, ``modules``, ``stash_pycs`` and ``restore_pycs``
    from its changes; ``state`` is what was recorded before."""

    def __init__(self, roots: Roots, work: Work, state: State | None) -> None:
        self._roots = roots
        self._work = work
        self._made: set[Key] = set()
        self._recorded: dict[Key, list[Any]] = {}
        self._kept_pycs: dict[Key, list[list[Any]]] = {}
        if state is not None:
            for item in state["folders"]:
                self._recorded[(item[0], item[1])] = list(item)
            for root, path, name in state["pycs"]:
                self._kept_pycs.setdefault((root, source_of(path)), []).append([root, path, name])

    def folders(self, live: Collection[Key]) -> list[list[Any]]:
        """Plan the folders; returns what the state says of them afterwards.  ``live`` are
        the files that will differ from pristine."""
        drop: dict[Key, Facts] = {}
        going = {(c.root, c.path) for c in self._work.changes if c.new is None}
        for change in self._work.changes:
            if change.old is None:
                self._must_become_free(change.root, change.path, going)
                self._make_above(change.root, change.path)
            elif change.new is None:
                for folder, status in self._above(change.root, change.path):
                    facts = _facts(status)
                    drop[(change.root, folder)] = facts
                    self._recorded.setdefault(
                        (change.root, folder), [change.root, folder, "gone", *facts]
                    )
            if change.path.endswith(".py") and change.new is not None:
                key = (change.root, cache_folder(change.path))
                if key not in self._recorded and self._roots[key[0]].lstat(key[1]) is None:
                    self._recorded[key] = [*key, "made", 0o755, -1, -1]
        needed = _folders_above(live)
        kept: list[list[Any]] = []
        for (root, folder), item in sorted(self._recorded.items()):
            of_module = folder.endswith("__pycache__") and (root, upper(folder)) in needed
            if (root, folder) in needed or of_module:
                kept.append(item)
            elif item[2] == "made":
                there = self._roots[root].lstat(folder)
                if there is not None:
                    drop[(root, folder)] = _facts(there)
        self._work.drop = sorted(
            ((root, folder, *facts) for (root, folder), facts in drop.items()),
            key=lambda item: (-item[1].count("/"), item),
        )
        return kept

    def pycs(self, live: Collection[Key]) -> list[list[Any]]:
        """Plan the byte-code of changed modules; returns what the state says of it."""
        kept = self._kept_pycs
        fresh: list[Key] = []
        for change in self._work.changes:
            if not change.path.endswith(".py"):
                continue
            key = (change.root, change.path)
            self._work.modules.append(key)
            if change.keep is not None:
                fresh.append(key)
                kept[key] = []
                legacy = f"{change.path}c"  # imported once its source is gone
                if change.new is None and self._roots[change.root].lstat(legacy) is not None:
                    self._stash(kept[key], change.root, legacy)
            elif change.restore is not None:
                self._work.restore_pycs += [
                    (root, path, name) for root, path, name in kept.pop(key, [])
                ]
        for root, module, path in pycs_of(self._roots, fresh):
            self._stash(kept[(root, module)], root, path)
        self._make_cache_folders()
        self._work.make.sort(key=lambda item: (item[1].count("/"), item))
        return sorted(item for key, items in kept.items() if key in live for item in items)

    def _stash(self, kept: list[list[Any]], root: str, path: str) -> None:
        name = digest(f"{root}\0{path}".encode("utf-8", "surrogateescape"))[:24]
        kept.append([root, path, name])
        self._work.stash_pycs.append((root, path, name))

    def _make_cache_folders(self) -> None:
        """Byte-code that is put back needs its folder, which may have been removed."""
        for root, path, _ in self._work.restore_pycs:
            item = self._recorded.get((root, upper(path)))
            if item is None or item[2] != "gone" or self._roots[root].lstat(item[1]) is not None:
                continue
            self._make(root, item[1], (item[3], item[4], item[5]))

    def _must_become_free(self, root: str, path: str, going: Collection[Key]) -> None:
        """Where a folder has the name of a file that comes, all that it holds must go."""
        stack = [path]
        while stack:
            folder = stack.pop()
            if self._roots[root].has_attributes(folder):
                raise Refused(
                    f"{path} is to become a file, but the folder {folder} has extended"
                    " attributes, which would not come back",
                    code="folder-in-the-way",
                    file=path,
                    hint=f"take them off (getfattr -d {folder}), or leave the patch out",
                )
            for name in self._roots[root].names(folder):
                inside = f"{folder}/{name}"
                if self._roots[root].is_folder(inside):
                    stack.append(inside)
                elif (root, inside) not in going and not (
                    name.endswith(".pyc") and (root, source_of(inside)) in going
                ):
                    raise Refused(
                        f"{path} is to become a file, but it is a folder that holds {inside},"
                        " which no patch removes",
                        code="folder-in-the-way",
                        file=path,
                        hint="see whether the strip level is right, or what put that file there",
                    )

    def _make_above(self, root: str, path: str) -> None:
        there = self._roots[root].folder_above(path)
        missing = [folder for folder in folders_above(path) if len(folder) > len(there)]
        status = self._roots[root].status_of_folder(there)
        for name in missing:
            facts = _facts(status)
            known = self._recorded.setdefault((root, name), [root, name, "made", *facts])
            if known[2] == "gone":
                facts = (known[3], known[4], known[5])
            self._make(root, name, facts)

    def _make(self, root: str, folder: str, facts: Facts) -> None:
        if (root, folder) not in self._made:
            self._made.add((root, folder))
            self._work.make.append((root, folder, *facts))

    def _above(self, root: str, path: str) -> Iterable[tuple[str, os.stat_result]]:
        """The folders of a file that goes: its byte-code's, its own and those above."""
        names = [cache_folder(path)] if upper(path) else []
        for name in [*names, *folders_above(path)]:
            status = self._roots[root].lstat(name)
            if status is None:
                continue
            if self._roots[root].has_attributes(name):
                return  # it stays, empty: its attributes would not come back with another
            yield name, status


def _facts(status: os.stat_result) -> Facts:
    return status.st_mode & 0o7777, status.st_uid, status.st_gid


def _folders_above(keys: Iterable[Key]) -> set[Key]:
    """Every folder that lies above one of the files."""
    found: set[Key] = set()
    for root, path in keys:
        folder = upper(path)
        while folder and (root, folder) not in found:
            found.add((root, folder))
            folder = upper(folder)
    return found
