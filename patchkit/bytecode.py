"""Byte-code files: which belong to which module, and their removal.

Owns promise 7's rule: no ``.pyc`` outlives the source that it was made from, of whatever
interpreter and optimisation level (PEP 3147, PEP 488).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

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
    stem = name.split(".", 1)[0]
    above = upper(folder)
    return f"{above}/{stem}.py" if above else f"{stem}.py"


def pycs_of(roots: Roots, modules: Iterable[Sequence[str]]) -> Iterator[tuple[str, str, str]]:
    """(root, module, byte-code file) of modules given as (root, path), for every
    interpreter and optimisation level; each ``__pycache__`` is listed once."""
    stems: dict[tuple[str, str], dict[str, str]] = {}
    for root, path in modules:
        stem = path.rpartition("/")[2].removesuffix(".py")
        stems.setdefault((root, cache_folder(path)), {})[stem] = path
    for (root, cache), wanted in stems.items():
        for entry in roots[root].names(cache):
            module = wanted.get(entry.split(".", 1)[0])
            if module is not None and entry.endswith(".pyc"):
                yield root, module, f"{cache}/{entry}"


def drop_pycs(
    roots: Roots, modules: Iterable[Sequence[str]], keep: Collection[tuple[str, str]] = ()
) -> None:
    """Remove the byte-code of modules, but for the files in ``keep``."""
    for root, _, path in pycs_of(roots, modules):
        if (root, path) not in keep:
            roots[root].unlink(path)
