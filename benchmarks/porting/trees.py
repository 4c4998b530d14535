"""Releases as trees that are read out of their archives, without unpacking.

Wheels come through ``pip download``.  vLLM's wheels hold hundreds of megabytes of compiled
code, so its Python files are taken from the sdist: pip unpacks that before it asks for the
metadata, which needs a build environment that is not there; the unpacked folder is kept.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WHEELS = ROOT / "build" / "wheels"

_PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64", "any")


class ArchiveTree:
    """A wheel, or a zip of sources, as :class:`patchkit.porting.model.Tree`."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._archive = zipfile.ZipFile(path)
        self._digests = self._record() or self._computed()

    def _record(self) -> dict[str, str]:
        records = [n for n in self._archive.namelist() if n.endswith(".dist-info/RECORD")]
        if not records:
            return {}
        rows = csv.reader(io.StringIO(self._archive.read(records[0]).decode(), newline=""))
        found = {}
        for name, digest, _ in rows:
            kind, _, value = digest.partition("=")
            if kind == "sha256":
                found[name] = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
        return found

    def _computed(self) -> dict[str, str]:
        return {
            info.filename: hashlib.sha256(self._archive.read(info)).hexdigest()
            for info in self._archive.infolist()
            if not info.is_dir()
        }

    def paths(self) -> Iterable[str]:
        """Every path."""
        return self._digests

    def digest(self, path: str) -> str | None:
        """The SHA-256 from RECORD, where there is one."""
        return self._digests.get(path)

    def read(self, path: str) -> bytes | None:
        """The bytes."""
        return self._archive.read(path) if path in self._digests else None


class Changed:
    """A tree with some files replaced."""

    def __init__(self, tree: ArchiveTree, files: dict[str, bytes]) -> None:
        self.tree, self.files = tree, files

    def paths(self) -> Iterable[str]:
        """Every path."""
        return self.tree.paths()

    def digest(self, path: str) -> str | None:
        """Of the bytes that :meth:`read` gives."""
        if path in self.files:
            return hashlib.sha256(self.files[path]).hexdigest()
        return self.tree.digest(path)

    def read(self, path: str) -> bytes | None:
        """The bytes."""
        return self.files.get(path) or self.tree.read(path)


@cache
def tree(project: str, version: str) -> ArchiveTree:
    """The tree of a release, downloaded once into ``build/wheels``."""
    stem = f"{project.replace('-', '_')}-{version}"
    for found in sorted(WHEELS.glob(f"{stem}-*.whl")) + sorted(WHEELS.glob(f"{stem}.zip")):
        return ArchiveTree(found)
    WHEELS.mkdir(parents=True, exist_ok=True)
    print(f"downloading {project} {version} …", file=sys.stderr, flush=True)
    if project == "vllm":
        return ArchiveTree(_sources(project, version))
    _pip(
        "--only-binary", ":all:", *(f"--platform={name}" for name in _PLATFORMS),
        "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3",
        "--abi", "none", "--dest", str(WHEELS), f"{project}=={version}",
    )  # fmt: skip
    return ArchiveTree(next(WHEELS.glob(f"{stem}-*.whl")))


def _pip(*arguments: str, check: bool = True, folder: str | None = None) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *arguments]
    env = None
    if folder is not None:
        import os

        env = {**os.environ, "TMPDIR": folder}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr}")


def _sources(project: str, version: str) -> Path:
    target = WHEELS / f"{project}-{version}.zip"
    with tempfile.TemporaryDirectory(dir=WHEELS) as folder:
        _pip(
            "--no-clean", "--no-build-isolation", "--no-binary", ":all:",
            "--dest", folder, f"{project}=={version}", check=False, folder=folder,
        )  # fmt: skip
        roots = [p for p in Path(folder).glob(f"pip-*/{project}_*/{project}") if p.is_dir()]
        if len(roots) != 1:
            raise RuntimeError(f"pip left no sources of {project} {version}")
        partial = Path(folder, "partial.zip")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(roots[0].rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(roots[0].parent))
        partial.replace(target)
    return target
