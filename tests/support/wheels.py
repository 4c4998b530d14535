"""Small wheels of our own, made in the test and installed by real pip and real uv.

A test whose subject is a rule needs a tree of five files, not of four thousand; but RECORD,
the link mode and the byte-code must be those that an installer makes.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests import releases

UvLinkMode = Literal["copy", "hardlink", "symlink", "clone"]


@dataclass(frozen=True, slots=True)
class Dist:
    """What goes into one wheel: paths below site-packages to contents; modes where not 0644."""

    name: str
    version: str
    files: Mapping[str, str | bytes]
    executable: Sequence[str] = ()
    requires: Sequence[str] = field(default=())

    @property
    def info(self) -> str:
        """The name of its ``.dist-info`` folder."""
        return f"{releases.file_name(self.name)}-{self.version}.dist-info"


def build_wheel(dist: Dist, folder: Path) -> Path:
    """A wheel file of ``dist`` in ``folder``, with a RECORD that is right.

    The same wheel is not written again: uv knows it by its time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{dist.info.removesuffix('.dist-info')}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {dist.name}\nVersion: {dist.version}\n"
    contents = {
        **dist.files,
        f"{dist.info}/METADATA": metadata
        + "".join(f"Requires-Dist: {requirement}\n" for requirement in dist.requires),
        f"{dist.info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    rows = []
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            data = content.encode() if isinstance(content, str) else content
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}")
            entry = zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10))
            entry.external_attr = (0o100755 if name in dist.executable else 0o100644) << 16
            archive.writestr(entry, data)
        rows.append(f"{dist.info}/RECORD,,")
        record = zipfile.ZipInfo(f"{dist.info}/RECORD", (2024, 5, 6, 7, 8, 10))
        archive.writestr(record, "\n".join(rows) + "\n")
    if not path.exists() or path.read_bytes() != buffer.getvalue():
        path.write_bytes(buffer.getvalue())
    return path


@functools.cache
def uv() -> tuple[str, ...]:
    """The command that starts uv."""
    beside = Path(sys.executable).parent / "uv"
    if beside.exists():
        return (str(beside),)
    found = shutil.which("uv")
    if not found:
        raise RuntimeError("uv is not installed: it is in the project's extra `test`")
    if "shims" in found:
        named = subprocess.run(
            ["pyenv", "which", "uv"], capture_output=True, text=True, check=False
        )
        found = named.stdout.strip() or found
    return (found,)


def _run(command: Iterable[str | Path], cwd: Path | None = None, **variables: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("UV_", "PIP_"))}
    for key in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        env.pop(key, None)
    done = subprocess.run(
        [str(part) for part in command],
        env={**env, **variables},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def uv_install(
    wheels: Iterable[Path],
    *,
    cache: Path,
    target: Path | None = None,
    python: Path | None = None,
    link_mode: UvLinkMode = "copy",
    options: Sequence[str] = (),
) -> None:
    """``uv pip install`` of wheel files, into a plain folder or into an environment."""
    where = ["--target", target] if target else ["--python", python]
    _run(
        [
            *(*uv(), "pip", "install", "--quiet", "--no-config", "--offline", "--no-index"),
            *("--no-deps", "--link-mode", link_mode, *where, *options, *wheels),
        ],
        UV_CACHE_DIR=str(cache),
    )


def uv_run(*args: str | Path, cache: Path, cwd: Path | None = None) -> str:
    """Any other call of uv, offline, with a cache of its own."""
    return _run([*uv(), *args], cwd=cwd, UV_CACHE_DIR=str(cache), UV_OFFLINE="1", UV_NO_CONFIG="1")


def pip_install(
    wheels: Iterable[Path | str],
    *,
    target: Path | None = None,
    python: Path | None = None,
    options: Sequence[str] = (),
) -> None:
    """``pip install`` of wheel files (or of what ``options`` make of them); compiles byte-code."""
    base = [sys.executable, "-m", "pip"]
    base += ["--python", str(python)] if python else []
    where = ["--target", str(target)] if target else []
    _run(
        [
            *(*base, "install", "--quiet", "--disable-pip-version-check", "--no-index"),
            *("--no-deps", "--root-user-action=ignore", *where, *options, *wheels),
        ],
    )


def pip_uninstall(name: str, *, python: Path) -> None:
    """``pip uninstall`` from an environment."""
    _run(
        [
            *(sys.executable, "-m", "pip", "--python", str(python), "uninstall", "--quiet"),
            *("--yes", "--disable-pip-version-check", "--root-user-action=ignore", name),
        ],
    )
