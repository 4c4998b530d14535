"""Whole distributions against their RECORD or git HEAD, for ``verify --pristine``.

The one check whose cost depends on the tree.  Only reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from . import bundles as source
from .distributions import Distribution, find_distribution
from .environment import Environment
from .errors import PatchkitError
from .fsio import Root
from .record import Record
from .verify import Problem

# RECORD and its signatures have no digest of themselves (PEP 376, PEP 427).
_OF_RECORD = ("/RECORD", "/RECORD.jws", "/RECORD.p7s")

Progress = Callable[[str, int, int], None]


def distributions_on_offer(env: Environment, folder: str) -> list[Distribution]:
    """The installed distributions that a bundle on offer targets or asserts about."""
    names: set[str] = set()
    for name in source.list_names(folder):
        bundle = source.load_bundle(folder, name)
        names.update(target.distribution for target in bundle.targets)
        names.update(assertion.distribution for assertion in bundle.asserts)
    found = [find_distribution(env, name) for name in sorted(names)]
    return [dist for dist in found if dist is not None]


def not_pristine(dist: Distribution, progress: Progress) -> Iterator[Problem]:
    """A problem for every file that is not as upstream delivered it."""
    if dist.work_tree is not None:
        yield from _against_git(dist)
        return
    record = Record.load(dist.dist_info) if dist.dist_info else None
    if record is None:
        yield _problem(dist, None, f"{dist.name} has no RECORD to compare with")
        return
    paths = record.paths()
    rows = record.rows(paths)
    root = Root(dist.root)
    try:
        for number, path in enumerate(paths):
            if number % 64 == 0:
                progress(f"{dist.name} {dist.version}", number, len(paths))
            row = rows.get(path)
            if row is None or path.endswith((".pyc", *_OF_RECORD)):
                continue
            try:
                data = root.read(path, follow=True)
            except FileNotFoundError:
                yield _problem(dist, path, f"{path} is missing")
            except (OSError, PatchkitError) as error:
                yield _problem(dist, path, f"{path} cannot be read: {error}")
            else:
                holds = row.holds(data)
                if holds is None:
                    yield _problem(dist, path, f"{path} has no digest in RECORD to compare with")
                elif not holds:
                    yield _problem(dist, path, f"{path} does not match RECORD")
        progress(f"{dist.name} {dist.version}", len(paths), len(paths))
    finally:
        root.close()


def _against_git(dist: Distribution) -> Iterator[Problem]:
    from .gitsource import clean_paths, tracked_paths

    assert dist.work_tree is not None and dist.git_dir is not None
    inside = os.path.relpath(dist.root, os.path.realpath(dist.work_tree))
    tracked = tracked_paths(dist.work_tree, "" if inside == "." else inside)
    for path, clean in sorted(clean_paths(dist.work_tree, dist.git_dir, tracked).items()):
        if not clean:
            yield _problem(dist, path, f"{path} differs from git HEAD")


def _problem(dist: Distribution, path: str | None, message: str) -> Problem:
    return Problem(
        kind="not-pristine",
        bundle=None,
        file=path,
        message=message,
        hint=f"reinstall {dist.name} {dist.version}"
        if dist.work_tree is None
        else f"git -C {dist.work_tree} status",
    )
