"""Releases of the distributions that matter, and the CUDA each was built for.

Only looks: at ``.dist-info``, at torch's ``version.py`` as text, and at the names of
libraries in a binary.  Nothing of the environment is imported.
"""

from __future__ import annotations

import os
import re

from patchkit.conditions import PACKAGES
from patchkit.distributions import Distribution, find_distribution
from patchkit.environment import Environment
from patchkit.errors import Refused

from .model import Package
from .system import read_text

_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
#: Folders of binaries that ask for libcudart, of distributions built for one CUDA.
_BUILT = {
    "torch": (),
    "sgl-kernel": ("sgl_kernel", "sgl_kernel/sm90", "sgl_kernel/sm100"),
    "sglang-kernel": ("sgl_kernel", "sgl_kernel/sm90", "sgl_kernel/sm100"),
    "vllm": ("vllm",),
    "flashinfer-jit-cache": (),
}
_LOCAL = re.compile(r"(?:^|[.+])cu(\d{2})(\d*)(?=$|[.+])")
_TORCH_CUDA = re.compile(r"""^cuda\b[^=\n]*=\s*["'](\d+\.\d+)["']""", re.MULTILINE)
_CUDART = re.compile(rb"libcudart(?:-[0-9a-f]+)?\.so\.(\d+)")
#: Names of libraries stand near the start of a binary, or at its end where patchelf put them.
_WINDOW = 4 << 20


def read_packages(env: Environment) -> tuple[dict[str, Package], list[str]]:
    """Name → release for each that is installed, and a remark for each that cannot be told."""
    found: dict[str, Package] = {}
    remarks = []
    for name in (*PACKAGES, *_NCCL):
        try:
            dist = find_distribution(env, name)
        except Refused as error:
            remarks.append(error.message)
            continue
        if dist is not None and dist.version:
            found[name] = Package(dist.version, built_for(dist))
    return found, remarks


def built_for(dist: Distribution) -> str | None:
    """``12.8`` of ``2.9.1+cu128``; else what torch's version.py says; else the major of the
    libcudart that a binary asks for."""
    if dist.name not in _BUILT:
        return None
    local = cuda_of_label(dist.version.partition("+")[2])
    if local is not None:
        return local
    if dist.name == "torch":
        text = read_text(os.path.join(dist.root, "torch", "version.py")) or ""
        match = _TORCH_CUDA.search(text)
        return match.group(1) if match else None
    for folder in _BUILT[dist.name]:
        major = _major_of_binaries(os.path.join(dist.root, folder))
        if major is not None:
            return major
    return None


def cuda_of_label(label: str) -> str | None:
    """The CUDA of a local version label.

    >>> cuda_of_label("cu128"), cuda_of_label("cu130.git1a2b"), cuda_of_label("cpu")
    ('12.8', '13.0', None)
    """
    match = _LOCAL.search(label)
    if match is None:
        return None
    major, minor = match.groups()
    return f"{major}.{minor}" if minor else major


def _major_of_binaries(folder: str) -> str | None:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".so"))
    except OSError:
        return None
    for name in names[:4]:
        match = _CUDART.search(_ends(os.path.join(folder, name)))
        if match:
            return match.group(1).decode()
    return None


def _ends(path: str) -> bytes:
    """The first and the last part of a file."""
    try:
        with open(path, "rb") as file:
            head = file.read(_WINDOW)
            size = os.fstat(file.fileno()).st_size
            if size <= _WINDOW:
                return head
            file.seek(max(_WINDOW, size - _WINDOW))
            return head + b"\0" + file.read(_WINDOW)
    except OSError:
        return b""
