"""What the tests of the shipped bundles share: a release's files with changes on top, the
bundles as they are applied to them, and stand-ins for what a release's code asks around it.
"""

from __future__ import annotations

import ast
import itertools
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchkit import hunks, patchfile
from patchkit.assertions import evaluate
from patchkit.bundles import load_bundle, read_patch
from patchkit.manifest import select_variant, version_matches
from patchkit.model import Bundle, Variant, split
from patchkit.releases.fetch import touched
from patchkit.releases.sources import Settings, open_release
from patchkit.session import Options
from tests.releases import BUILD, ROOT

COMMUNICATOR = "sglang/srt/layers/communicator.py"
SERVER_ARGS = "sglang/srt/server_args.py"
COMMON = "sglang/srt/utils/common.py"
PARALLEL_STATE = "sglang/srt/distributed/parallel_state.py"
DEVICE = "sglang/srt/distributed/device_communicators/"
CUSTOM = DEVICE + "custom_all_reduce.py"
SIZES = DEVICE + "all_reduce_utils.py"
SYMM = DEVICE + "torch_symm_mem.py"
JIT = "flashinfer/jit/comm.py"
CONTEXT = "flashinfer/compilation_context.py"

ReleaseTree = Callable[[str, str], Path]


@dataclass(frozen=True)
class Files:
    """One distribution's files: a pristine tree, and what was changed on top of it."""

    root: Path
    changed: Mapping[str, bytes] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        if path in self.changed:
            return self.changed[path]
        file = self.root / path
        return file.read_bytes() if file.is_file() else None

    def text(self, path: str) -> str:
        data = self.read(path)
        assert data is not None, path
        return data.decode("utf-8")

    def put(self, path: str, text: str) -> Files:
        return replace(self, changed={**self.changed, path: text.encode("utf-8")})


@cache
def bundle(name: str) -> Bundle:
    return load_bundle(str(ROOT), name)


def variant_for(name: str, distribution: str, version: str) -> Variant | None:
    for target in bundle(name).targets:
        if target.distribution == distribution:
            return select_variant(target, version)
    return None


def apply(name: str, distribution: str, version: str, files: Files) -> Files:
    """The bundle's patches for this release on top of ``files``, by patchkit's engine."""
    if not files.changed:
        return _apply_to_pristine(name, distribution, version, files.root)
    return _apply(name, distribution, version, files)


@cache
def _apply_to_pristine(name: str, distribution: str, version: str, root: Path) -> Files:
    return _apply(name, distribution, version, Files(root))


def _apply(name: str, distribution: str, version: str, files: Files) -> Files:
    variant = variant_for(name, distribution, version)
    assert variant is not None
    assert variant.strip is not None
    for path in variant.patches:
        patch = patchfile.parse(read_patch(str(ROOT), bundle(name), path), path)
        for file in patch.files:
            target = file.path.split("/", variant.strip)[-1]
            data = files.read(target)
            assert data is not None, target
            lines = split(data)
            hunks.apply_hunks(lines, file.hunks)
            files = replace(files, changed={**files.changed, target: b"".join(lines)})
    return files


def failing(name: str, distribution: str, version: str, files: Files) -> list[str]:
    """What is said by the assertions that do not hold."""
    return list(_failing(name, distribution, version, files))


def refused(name: str, distribution: str, version: str, files: Files) -> bool:
    """Whether an assertion does not hold; no more of them are asked than it takes."""
    return any(True for _ in _failing(name, distribution, version, files))


def _failing(name: str, distribution: str, version: str, files: Files) -> Iterator[str]:
    for assertion in bundle(name).asserts:
        if assertion.distribution != distribution:
            continue
        if assertion.versions is not None and not version_matches(assertion.versions, version):
            continue
        finding = evaluate(assertion, files.read(assertion.file), files.read)
        if not finding.ok:
            yield f"{assertion.message}: {finding.message}"


@lru_cache(maxsize=32)
def parsed(text: str) -> ast.Module:
    """The tree of a file, which nobody may change."""
    return ast.parse(text)


def swap(text: str, old: str, new: str) -> str:
    """``text`` with its one ``old`` replaced."""
    assert text.count(old) == 1, (text.count(old), old)
    return text.replace(old, new)


def find(tree: ast.Module | ast.ClassDef, name: str) -> Any:
    """The one def or class of that name, at the top or in a class at the top."""
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    (found,) = [
        node
        for node in itertools.chain(*bodies)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name
    ]
    return found


def execute(nodes: Sequence[ast.stmt], namespace: dict[str, Any]) -> dict[str, Any]:
    module = ast.Module(body=list(nodes), type_ignores=[])
    exec(compile(ast.fix_missing_locations(module), "<slice>", "exec"), namespace)
    return namespace


# -- stand-ins -------------------------------------------------------------------------------


class Stubs:
    """Modules that exist for one test, hung into their parents."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._made: dict[str, types.ModuleType] = {}

    def module(self, name: str, **attributes: Any) -> types.ModuleType:
        parent, _, last = name.rpartition(".")
        if name not in self._made:
            self._made[name] = types.ModuleType(name)
            self._monkeypatch.setitem(sys.modules, name, self._made[name])
            if parent:
                setattr(self.module(parent), last, self._made[name])
        for key, value in attributes.items():
            setattr(self._made[name], key, value)
        return self._made[name]

    def execute(self, files: Files, path: str, name: str) -> dict[str, Any]:
        """A file of the release as the module ``name``; its namespace."""
        module = self.module(name)
        module.__dict__["__package__"] = name.rpartition(".")[0]
        exec(compile(files.text(path), path, "exec"), module.__dict__)
        return module.__dict__


class Device:
    def __init__(self, name: str) -> None:
        self.index = int(name.partition(":")[2] or 0)


class Cell:
    """A tensor of one number."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def item(self) -> int:
        return self.values[0]

    __int__ = item


class Tensor:
    """As much of a tensor as the communicator touches."""

    def __init__(self, count: int, dtype: Any) -> None:
        self.count, self.dtype, self.shape = count, dtype, (count,)
        self.device: Any = None

    def numel(self) -> int:
        return self.count

    def element_size(self) -> int:
        size: int = self.dtype.itemsize
        return size

    def view(self, *_: Any) -> Tensor:
        return self

    def copy_(self, other: Tensor) -> Tensor:
        assert self.count == other.count
        return self

    def __getitem__(self, part: slice) -> Tensor:
        return Tensor(min(part.stop, self.count), self.dtype)


BFLOAT16 = SimpleNamespace(itemsize=2)


def imported(tree: ast.Module, source: str, offered: Mapping[str, Any]) -> dict[str, Any]:
    """What the module's imports from ``source`` bind; no more than is offered there."""
    return {
        alias.asname or alias.name: offered[alias.name]
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == source
        for alias in node.names
        if alias.name in offered
    }


@cache
def parts(name: str, version: str, *extra: str) -> Files:
    """The files of a release that the shipped bundles change or look at, and ``extra``: a
    download, if it is not in ``build/``, of which only these are kept."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(BUILD / "cache")}
    settings = Settings(environ, find_links=[str(BUILD / "wheels")])
    folder = BUILD / "parts" / f"{name}-{version}"
    with open_release(name, version, settings) as release:
        options = Options(bundles=str(ROOT), environ=environ)
        for path in {*touched(options, release), *filter(release.has, extra)}:
            data = release.read(path)
            assert data is not None
            place = folder / path
            if not place.exists() or place.read_bytes() != data:
                place.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                    file.write(data)
                os.replace(file.name, place)
        release.note_digests()
    return Files(folder)
