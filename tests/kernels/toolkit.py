"""What FlashInfer's build needs of a CUDA toolkit, wherever a machine has it.

A toolkit may be whole, or lie in parts in the packages that torch depends on; a GPU machine
without a toolkit's stubs has the driver's library alone.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

#: Headers that norm.cuh includes and uses nothing of.
UNUSED = ("cublasLt.h", "cublas_v2.h", "curand_kernel.h")
NEEDED = ("bin/nvcc", "include/cuda_runtime.h")
LIBRARIES = ("cudart", "cuda")


def home() -> Path | None:
    """The toolkit: the folder with ``bin/nvcc`` and ``include/cuda_runtime.h``."""
    named = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    beside = [str(Path(nvcc).resolve().parent.parent)] if nvcc else []
    for folder in (*named, *beside, "/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"))):
        if folder and all(Path(folder, name).exists() for name in NEEDED):
            return Path(folder)
    return None


def packaged(what: str) -> Iterator[Path]:
    """The ``include`` or ``lib`` folders of the packages that NVIDIA puts on the index."""
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path}:
        yield from map(Path, sorted(glob.glob(f"{folder}/nvidia/*/{what}")))


def environment(work: Path, mode: str) -> dict[str, str]:
    """The variables by which FlashInfer finds all of it."""
    toolkit = home()
    if toolkit is None:
        raise RuntimeError("needs nvcc, with the headers of its toolkit")
    headers = _headers(work, toolkit)
    libraries = _libraries(work, toolkit, mode)
    return {
        "CUDA_HOME": str(toolkit),
        "FLASHINFER_EXTRA_CUDAFLAGS": " ".join(f"-isystem {folder}" for folder in headers),
        "FLASHINFER_EXTRA_LDFLAGS": f"-L{libraries}",
    }


def _headers(work: Path, toolkit: Path) -> list[Path]:
    """Folders with the headers that the toolkit itself lacks."""
    missing = [name for name in UNUSED if not (toolkit / "include" / name).exists()]
    folders = [f for f in packaged("include") if any((f / name).exists() for name in missing)]
    made = work / "headers"
    made.mkdir(exist_ok=True)
    for name in missing:
        if not any((folder / name).exists() for folder in folders):
            print(f"{name}: nowhere here; an empty one stands in, since the kernel uses none of it")
            (made / name).touch()
    return [*folders, made]


def _libraries(work: Path, toolkit: Path, mode: str) -> Path:
    """A folder with the libraries that are linked by a name that this machine lacks."""
    made = work / "libraries"
    made.mkdir(exist_ok=True)
    for name in LIBRARIES:
        places = [toolkit / "lib64", toolkit / "lib64/stubs", *packaged("lib")]
        places += [Path("/usr/local/nvidia/lib64"), Path("/usr/lib/x86_64-linux-gnu")]
        files = [found for place in places for found in sorted(place.glob(f"lib{name}.so*"))]
        if files:
            if not any(file == toolkit / f"lib64/lib{name}.so" for file in files):
                (made / f"lib{name}.so").symlink_to(files[0])
        elif mode == "library":
            command = ["c++", "-shared", "-o", str(made / f"lib{name}.so"), "-x", "c", "/dev/null"]
            subprocess.run(command, check=True)
    return made
