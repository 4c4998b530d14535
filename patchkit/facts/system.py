"""The operating system, the driver and the GPUs, as the kernel and NVML tell of them.

Only looks.  NVML is asked in a child process with a time limit; without its binding, the
driver's own files say which driver there is and how many GPUs.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from patchkit.environment import Environment
from patchkit.errors import Refused
from patchkit.fsio import read_plain

from . import nvml
from .model import Facts, Gpu, from_json

#: Seconds that NVML may take.  A driver without persistence wakes every GPU for it.
_NVML_TIMEOUT = 10.0
_VERSION = re.compile(r"\b(\d{3,4}\.\d+(?:\.\d+)?)\b")
_NVIDIA, _DISPLAYS = "0x10de", ("0x0300", "0x0302")
MISSING_BINDING = (
    "NVML's Python binding is not installed, so that little is known of the GPUs:"
    " pip install 'patchkit-sets[gpu]'"
)


class Roots(NamedTuple):
    """Where the kernel shows itself; elsewhere in tests."""

    proc: str = "/proc"
    sys: str = "/sys"
    etc: str = "/etc"


def read_system(roots: Roots) -> Facts:
    """``os``, ``distro``, ``kernel`` and ``machine``."""
    release = dict(_pairs(os.path.join(roots.etc, "os-release")))
    name, version = release.get("ID"), release.get("VERSION_ID")
    return Facts(
        os=platform.system().lower() or None,
        distro=" ".join(part for part in (name, version) if part) or None,
        kernel=platform.release() or None,
        machine=platform.machine() or None,
    )


def _pairs(path: str) -> Iterator[tuple[str, str]]:
    for line in (read_text(path) or "").splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.startswith("#"):
            yield key.strip(), value.strip().strip("\"'")


def read_text(path: str, limit: int = 16 << 20) -> str | None:
    """The text of a small file; None where it cannot be read."""
    try:
        return read_plain(path, limit).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def python_of(env: Environment) -> str | None:
    """The release of the environment's Python, without running it.

    By ``pyvenv.cfg``, the running interpreter, or the folder's name (``3.12``).
    """
    if env.python is None:
        return None
    config = dict(_pairs(os.path.join(os.path.dirname(os.path.dirname(env.python)), "pyvenv.cfg")))
    found = config.get("version") or config.get("version_info")
    if found:
        return ".".join(found.split(".")[:3])
    if os.path.realpath(env.python) == os.path.realpath(sys.executable):
        return platform.python_version()
    match = re.search(r"python(3\.\d+)", env.site_packages)
    return match.group(1) if match else None


def read_gpus(facts: Facts, roots: Roots, *, timeout: float = _NVML_TIMEOUT) -> Facts:
    """The facts with what is known of driver and GPUs added."""
    answer, remark = _ask_nvml(timeout)
    found, remarks = Facts(), [*facts.remarks]
    if answer is not None:
        reason = answer.pop("error", None)
        try:
            found = from_json(answer)
        except Refused as error:
            remark = f"what NVML says was not understood: {error}"
        if reason is not None:
            remark = f"NVML: {reason}"
    driver = found.driver or _driver(roots)
    gpus = found.gpus
    if gpus is None:
        gpus = tuple(_gpus_of_the_driver(roots)) or None
    if gpus is None and _on_the_bus(roots) == 0:
        gpus, remark = (), None  # nothing that NVML could tell of
    if remark is not None:
        remarks.append(remark)
    return facts._replace(
        driver=driver,
        driver_cuda=found.driver_cuda,
        gpus=gpus,
        links=found.links,
        remarks=tuple(remarks),
    )


def _ask_nvml(timeout: float) -> tuple[dict[str, Any] | None, str | None]:
    """NVML's answer, or why there is none."""
    folders = [os.path.abspath(path) for path in sys.path if path]
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", nvml.__file__, *folders],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return None, f"NVML cannot be asked: {error.strerror}"
    assert child.stdout is not None
    try:
        out, _ = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.stdout.close()
        try:
            # One that hangs in the driver cannot be killed; it is not waited for.
            child.wait(0.5)
        except subprocess.TimeoutExpired:
            child.returncode = -9
        return None, f"NVML did not answer within {timeout:g} seconds"
    if child.returncode == nvml.NO_BINDING:
        return None, MISSING_BINDING
    try:
        answer = json.loads(out)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return None, f"NVML ended with code {child.returncode}, and said nothing"
    return answer, None


def _driver(roots: Roots) -> str | None:
    text = read_text(os.path.join(roots.proc, "driver/nvidia/version")) or ""
    for line in text.splitlines():
        match = _VERSION.search(line) if line.startswith("NVRM") else None
        if match:
            return match.group(1)
    return None


def _gpus_of_the_driver(roots: Roots) -> Iterator[Gpu]:
    """One for each folder in which the driver describes a GPU; its name and no more."""
    folder = os.path.join(roots.proc, "driver/nvidia/gpus")
    for name in _names(folder):
        text = read_text(os.path.join(folder, name, "information")) or ""
        pairs = (line.partition(":") for line in text.splitlines())
        model = next((value.strip() for key, _, value in pairs if key.strip() == "Model"), "")
        yield Gpu(model)


def _on_the_bus(roots: Roots) -> int | None:
    """How many NVIDIA displays and accelerators the PCI bus has; None where it is not seen."""
    folder = os.path.join(roots.sys, "bus/pci/devices")
    if not os.path.isdir(folder):
        return None
    count = 0
    for name in _names(folder):
        vendor = read_text(os.path.join(folder, name, "vendor")) or ""
        kind = read_text(os.path.join(folder, name, "class")) or ""
        count += vendor.strip() == _NVIDIA and kind.startswith(_DISPLAYS)
    return count


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
