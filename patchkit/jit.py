"""What a JIT compiles, by the names of files, and where it goes, by the names of caches.

Build tools compare times: a source that comes back with its old one would leave the kernel
of the patched source in use.  Must not look at a disk.
"""

from __future__ import annotations

#: The caches that a manifest may name: see :mod:`~patchkit.caches` for where each one is.
CACHES = ("flashinfer-jit", "tvm-ffi", "torch-extensions", "triton", "inductor", "deep-gemm")

_SOURCES = (
    *(".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".inc", ".inl", ".ipp"),
    *(".tpp", ".ptx", ".jinja", ".jinja2", ".j2", ".template"),
)


def is_compiled(path: str) -> bool:
    """Whether a JIT compiles this file, or fills it in first: CUDA, C and C++, templates."""
    return path.lower().endswith(_SOURCES)


def cache_of(path: str) -> str:
    """The cache that what is compiled from a file most likely goes into.

    >>> cache_of("sglang/jit_kernel/csrc/norm.cuh")
    'tvm-ffi'
    """
    if "jit_kernel" in path.lower().split("/"):
        return "tvm-ffi"
    return "flashinfer-jit"


def is_generator(path: str) -> bool:
    """Whether a file makes what a JIT compiles: Python below a ``jit`` folder, as FlashInfer
    has it.  Its time does not matter, what was built with it does."""
    *folders, name = path.lower().split("/")
    return "jit" in folders and name.endswith(".py")
