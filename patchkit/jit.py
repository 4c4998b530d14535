"""What a JIT compiles, by the names of files.

Build tools compare times: a source that comes back with its old one would leave the kernel
of the patched source in use.  Must not look at a disk.
"""

from __future__ import annotations

_SOURCES = (
    *(".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".inc", ".inl", ".ipp"),
    *(".tpp", ".ptx", ".jinja", ".jinja2", ".j2", ".template"),
)


def is_compiled(path: str) -> bool:
    """Whether a JIT compiles this file, or fills it in first: CUDA, C and C++, templates."""
    return path.lower().endswith(_SOURCES)


def is_generator(path: str) -> bool:
    """Whether a file makes what a JIT compiles: Python below a ``jit`` folder, as FlashInfer
    has it.  Its time does not matter, what was built with it does."""
    *folders, name = path.lower().split("/")
    return "jit" in folders and name.endswith(".py")
