"""The CUDA toolkit that a JIT would compile with.

Only looks, in the order of ``torch.utils.cpp_extension`` and FlashInfer: ``CUDA_HOME`` or
``CUDA_PATH``, ``nvcc`` on the PATH, ``/usr/local/cuda``; then the wheels that bring nvcc.
The release is read from the toolkit's own files; nvcc is run only where they are not there.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from patchkit.distributions import find_distribution
from patchkit.environment import Environment
from patchkit.errors import Refused

from .model import Toolkit
from .system import read_text

_DEFAULT = "/usr/local/cuda"
_NVCC_WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu13", "nvidia-cuda-nvcc-cu12")
#: Where those wheels have it, below site-packages.
_IN_WHEELS = ("nvidia/cu13/bin/nvcc", "nvidia/cuda_nvcc/bin/nvcc")
_TIMEOUT = 5.0
_RELEASE = re.compile(rb"release (\d+\.\d+)")
_A_RELEASE = re.compile(r"\d+\.\d+")
#: The most that is read of what nvcc says.
_MOST = 1 << 16
_HEADER = re.compile(r"^#define\s+(?:CUDA_VERSION|CUDART_VERSION)\s+(\d{4,6})\b", re.MULTILINE)


def find_toolkit(
    env: Environment, environ: Mapping[str, str], default: str = _DEFAULT
) -> tuple[Toolkit | None, str | None]:
    """The toolkit, and a remark where a variable names one that is none."""
    remark = None
    for source, home in _homes(environ, default):
        nvcc = os.path.join(home, "bin", "nvcc")
        if not os.path.isfile(nvcc):
            if source in ("CUDA_HOME", "CUDA_PATH"):
                remark = f"{source} names {home}, which has no bin/nvcc"
            continue
        version = _version(home, nvcc)
        if version is not None:
            return Toolkit(version, source, nvcc), remark
        remark = f"{nvcc} does not say of which release it is"
    return _of_wheels(env), remark


def _homes(environ: Mapping[str, str], default: str) -> Iterator[tuple[str, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(variable):
            yield variable, environ[variable]
            break  # the second is not looked at where the first is set
    found = shutil.which("nvcc", path=environ.get("PATH", os.defpath))
    if found is not None:
        yield "PATH", os.path.dirname(os.path.dirname(os.path.realpath(found)))
    yield default, default


def _version(home: str, nvcc: str) -> str | None:
    try:
        found = json.loads(read_text(os.path.join(home, "version.json")) or "")
        said = _A_RELEASE.match(found["cuda"]["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        said = None
    if said is not None:
        return said.group()
    for header in ("include/cuda.h", "include/cuda_runtime_api.h"):
        match = _HEADER.search(read_text(os.path.join(home, header)) or "")
        if match:
            number = int(match.group(1))
            return f"{number // 1000}.{number % 1000 // 10}"
    found = _RELEASE.search(_said(nvcc))
    return found.group(1).decode() if found else None


def _said(nvcc: str) -> bytes:
    """The first of what ``nvcc --version`` says; whatever it starts is ended with it."""
    try:
        child = subprocess.Popen(
            [nvcc, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return b""
    assert child.stdout is not None
    data, end = b"", time.monotonic() + _TIMEOUT
    with child.stdout as pipe:
        while len(data) < _MOST and (left := end - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                break
            part = os.read(pipe.fileno(), 4096)
            if not part:
                break
            data += part
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return data


def _of_wheels(env: Environment) -> Toolkit | None:
    for name in _NVCC_WHEELS:
        try:
            found = find_distribution(env, name)
        except Refused:
            continue
        if found is not None:
            paths = (os.path.join(found.root, path) for path in _IN_WHEELS)
            nvcc = next((path for path in paths if os.path.isfile(path)), None)
            return Toolkit(_short(found.version), "wheels", nvcc)
    return None


def _short(version: str) -> str:
    """``12.8.1`` as ``12.8``: the release that decides what a compiler knows."""
    return ".".join(version.split(".")[:2])
