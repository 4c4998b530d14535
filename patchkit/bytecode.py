"""Byte-code files: which belong to which module, and their removal.

Owns promise 7's rule: no ``.pyc`` outlives the source that it was made from, of whatever
interpreter and optimisation level (PEP 3147, PEP 488).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from .fsio import names_in
from .paths import upper
from .roots import Roots


def cache_folder(path: str) -> str:
    """Where the byte-code of a module goes (PEP 3147)."""
    folder = upper(path)
    return f"{folder}/__pycache__" if folder else "__pycache__"


def source_of(path: str) -> str:
    """The module whose byte-code a ``.pyc`` is (PEP 3147, PEP 488)."""
    folder, _, name = path.rpartition("/")
    if not folder.endswith("__pycache__"):
        return path[:-1]
    above = upper(folder)
    return f"{above}/{_stem(name)}.py" if above else f"{_stem(name)}.py"


def _stem(name: str) -> str:
    """``foo.bar`` of ``foo.bar.cpython-311.opt-1.pyc``: a module's own name may have dots."""
    stem = name.removesuffix(".pyc")
    above, dot, optimised = stem.rpartition(".")
    if dot and optimised.startswith("opt-"):
        stem = above
    return stem.rpartition(".")[0] or stem


def pycs_below(prefix: str, module: str) -> tuple[str, list[str]]:
    """The folder under a ``PYTHONPYCACHEPREFIX`` for a module given by its full path, and the
    byte-code of the module in it."""
    folder, _, name = module.rpartition("/")
    below = prefix + folder
    found = [e for e in names_in(below) if e.endswith(".pyc") and f"{_stem(e)}.py" == name]
    return below, found


def pycs_of(roots: Roots, modules: Iterable[Sequence[str]]) -> Iterator[tuple[str, str, str]]:
    """(root, module, byte-code file) of modules given as (root, path), for every
    interpreter and optimisation level; each ``__pycache__`` is listed once."""
    stems: dict[tuple[str, str], dict[str, str]] = {}
    for root, path in modules:
        stem = path.rpartition("/")[2].removesuffix(".py")
        stems.setdefault((root, cache_folder(path)), {})[stem] = path
    for (root, cache), wanted in stems.items():
        for entry in roots[root].names(cache):
            module = wanted.get(_stem(entry)) if entry.endswith(".pyc") else None
            if module is not None:
                yield root, module, f"{cache}/{entry}"


def drop_pycs(
    roots: Roots, modules: Iterable[Sequence[str]], keep: Collection[tuple[str, str]] = ()
) -> None:
    """Remove the byte-code of modules, but for the files in ``keep``."""
    for root, _, path in pycs_of(roots, modules):
        if (root, path) not in keep:
            roots[root].unlink(path)
