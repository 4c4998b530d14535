"""``lint`` as a command: which bundles, against which environment, and the lock files.

The findings are :mod:`patchkit.lint`'s; this adds the installed files as targets where
there are any, and writes locks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import bundles as source
from . import lint as rules
from .distributions import find_distribution
from .environment import Environment, open_environment
from .errors import PatchkitError, Refused
from .fsio import Root, read_plain
from .model import Bundle
from .publishing import publish
from .recount import recount
from .session import Options, Report

#: What speaks against a bundle's lock or assertions, by releases that are at hand.
Contradicted = Callable[[Bundle], Iterable[rules.Problem]]


def lint(
    options: Options,
    names: Sequence[str],
    *,
    update_lock: bool = False,
    fix: bool = False,
    made_for: rules.MadeFor | None = None,
    contradicted: Contradicted | None = None,
) -> Report:
    """Every problem of the named bundles and loose patch files (of all bundles, without
    names); exit code 1 on an error.  ``fix`` counts the lines of hunks anew first, where
    that is no guess.  ``made_for`` gives what the locks say of releases, ``contradicted``
    what speaks against a lock, or shows that assertions prove nothing."""
    loose = [name for name in names if source.is_loose(name)]
    bundles = [name for name in names if not source.is_loose(name)]
    folder = ""  # loose patches alone need none
    if bundles or not loose:
        folder = source.bundle_dir(options.bundles, options.environ, options.cwd)
        bundles = bundles or source.list_names(folder)
    fixed: list[dict[str, Any]] = []
    written: list[str] = []
    if fix:
        fixed = [one for name in loose for one in _fix(options.cwd, name)]
        for name in bundles:
            fixed += _fix_bundle(folder, name)
    if update_lock and folder:
        written = _update_locks(folder, bundles, made_for)
    env = _environment(options)
    problems = []
    for name in bundles:
        problems += rules.lint_bundle(
            folder,
            name,
            target_bytes=None if env is None else _Targets(env),
            versions=None if env is None else _versions(env, folder, name),
        )
        if contradicted is not None:
            problems += _contradictions(folder, name, contradicted)
    for name in loose:
        problems += rules.lint_patch_file(name, source.read_loose(name, options.cwd))
    if not names:
        seen = set(problems)
        problems += [p for p in rules.lint_directory(folder) if p not in seen]
    failed = any(problem.severity == "error" for problem in problems)
    return Report(
        "lint",
        {
            "environment": {
                "site_packages": None if env is None else env.site_packages,
                "python": None if env is None else env.python,
            },
            "folder": folder or None,
            "bundles": bundles,
            "patches": loose,
            "problems": [problem._asdict() for problem in problems],
            "fixed": fixed,
            "written": written,
        },
        exit_code=1 if failed else 0,
        changed=bool(fixed or written),
    )


def _contradictions(folder: str, name: str, contradicted: Contradicted) -> Iterator[rules.Problem]:
    try:
        bundle = source.load_bundle(folder, name)
    except PatchkitError:
        return  # said already
    yield from contradicted(bundle)


def _fix_bundle(folder: str, name: str) -> Iterator[dict[str, Any]]:
    must_not_be_shipped(folder)
    bundle = source.load_bundle(folder, name)
    for path in rules.named_patches(bundle):
        yield from _fix(os.path.join(folder, "patches"), path)


def _fix(folder: str, path: str) -> Iterator[dict[str, Any]]:
    """Count the hunks of one patch file anew; what was changed, or was unclear."""
    full = os.path.join(folder, path)
    data, found = recount(source.read_loose(full))
    if any(not one.unclear for one in found):
        root = Root(os.path.dirname(full) or ".")
        try:
            root.replace(os.path.basename(full), data, os.stat(full).st_mode & 0o777)
        finally:
            root.close()
    for one in found:
        yield {"file": path, **one._asdict()}


def must_not_be_shipped(folder: str) -> None:
    """Raise :class:`Refused` for the bundles that came with patchkit."""
    if source.is_shipped(folder):
        raise Refused(
            f"{folder} holds bundles that came with patchkit, or from a repository; they stay as"
            " they are",
            code="shipped-bundles",
            hint="name a bundle directory of your own: patchkit --bundles DIR lint …",
        )


def _update_locks(folder: str, names: Sequence[str], made_for: rules.MadeFor | None) -> list[str]:
    """Write the locks that differ, of bundles that have patches which can be read; the
    paths written."""
    must_not_be_shipped(folder)
    locks = {}
    for name in names:
        data = rules.lock_bytes(folder, name, made_for)
        if data is not None and data != source.read_lock(folder, name):
            locks[f"manifests/{name}.lock"] = data
    return publish(folder, locks) if locks else []


def _environment(options: Options) -> Environment | None:
    """The environment asked for, if one was: lint needs none."""
    if not (options.python or options.root or options.environ.get("PATCHKIT_PYTHON")):
        return None
    return open_environment(options.python, options.root, options.environ)


class _Targets:
    """The bytes of installed files, for rules that look at what a patch meets."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    def __call__(self, distribution: str, path: str) -> bytes | None:
        dist = find_distribution(self._env, distribution)
        if dist is None:
            return None
        try:
            return read_plain(os.path.join(dist.root, path))
        except OSError:
            return None


def _versions(env: Environment, folder: str, name: str) -> dict[str, str]:
    try:
        bundle = source.load_bundle(folder, name)
    except (PatchkitError, Refused):
        return {}
    found = {}
    for target in bundle.targets:
        dist = find_distribution(env, target.distribution)
        if dist is not None:
            found[target.distribution] = dist.version
    return found
