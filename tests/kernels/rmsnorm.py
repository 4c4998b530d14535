"""Builds ``rmsnorm`` with the JIT of an installed FlashInfer, and says what it computes.

    python3 tests/kernels/rmsnorm.py SITE_PACKAGES gpu

Runs ``flashinfer/jit`` as it is installed: its environment, its generator, its ninja files,
its own decision of what is up to date.  Prints one word: with ``gpu``, the result over the
right value (1.0, or 2.0 of a kernel that was patched to scale); with ``library``, for a
machine that has nvcc and no GPU, a digest of the machine code; with ``stand-in``, what
:mod:`tests.kernels.compiler` read from the sources.  Runs alone.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


class _Missing(ModuleType):
    """A module of which every name is there and means nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{self.__name__}.{name}"


def stand_in(name: str, **attributes: Any) -> None:
    """What this machine has no use for."""
    module = _Missing(name)
    vars(module).update(attributes)
    sys.modules[name] = module


def package(name: str, folder: Path) -> None:
    """A package of which only the modules that are asked for are imported: FlashInfer's own
    ``__init__`` imports all of it, and with it other large projects."""
    module = ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


def prepare(site_packages: Path, mode: str) -> None:
    """Make ``import flashinfer.jit.norm`` possible."""
    if mode == "library":
        import_module("tvm_ffi")  # before torch's stand-in, which it would take for torch
    if mode != "gpu":
        stand_in(
            "torch",
            _C=SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=1),
            cuda=SimpleNamespace(device_count=lambda: 0),
            version=SimpleNamespace(cuda="13.0"),
        )
    if mode == "stand-in":
        nowhere = SimpleNamespace(
            find_include_path=lambda: "/nowhere", find_dlpack_include_path=lambda: "/nowhere"
        )
        stand_in("tvm_ffi", libinfo=nowhere)
        stand_in("filelock", FileLock=lambda *_, **__: nullcontext())
    package("flashinfer", site_packages / "flashinfer")
    package("flashinfer.jit", site_packages / "flashinfer" / "jit")


def on_the_gpu(spec: Any) -> str:
    """The first value that the kernel computes, over the right one."""
    torch = import_module("torch")
    given = torch.ones((4, 256), dtype=torch.float16, device="cuda")
    weight = torch.ones(256, dtype=torch.float16, device="cuda")
    out = torch.zeros_like(given)
    spec.build_and_load().rmsnorm(out, given, weight, 1e-6, False)
    torch.cuda.synchronize()
    return f"{out[2, 100].item():.1f}"


def machine_code(library: Path) -> str:
    """A digest of the code for the GPU alone: the rest of a library names files."""
    section = library.with_suffix(".fatbin")
    subprocess.run(
        ["objcopy", "-O", "binary", "--only-section=.nv_fatbin", str(library), str(section)],
        check=True,
    )
    return hashlib.sha256(section.read_bytes()).hexdigest()[:12]


def main() -> None:
    """One word."""
    site_packages, mode = Path(sys.argv[1]), sys.argv[2]
    prepare(site_packages, mode)
    spec = import_module("flashinfer.jit.norm").gen_norm_module()
    if mode == "gpu":
        print(on_the_gpu(spec))
        return
    spec.build(verbose=False)
    if mode == "library":
        print(machine_code(spec.jit_library_path))
    else:
        print(spec.jit_library_path.read_text().splitlines()[0].rpartition(" ")[2])


if __name__ == "__main__":
    main()
