"""Paths below a root as strings: POSIX, relative, without ``.`` and ``..``.

Must not look at a disk.
"""

from __future__ import annotations

from collections.abc import Iterator


def upper(path: str) -> str:
    """The folder of a path; empty at the root."""
    return path.rpartition("/")[0]


def folders_above(path: str) -> Iterator[str]:
    """Every folder above a path, the nearest first.

    >>> list(folders_above("a/b/c"))
    ['a/b', 'a']
    """
    while path := upper(path):
        yield path
