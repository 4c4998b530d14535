"""``lint`` as a command: which bundles, against which environment, and the lock files.

The findings are :mod:`patchkit.lint`'s; this adds the installed files as targets where
there are any, and writes locks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import bundles as source
from . import lint as rules
from .distributions import find_distribution
from .environment import Environment, open_environment
from .errors import PatchkitError, Refused
from .fsio import Root
from .session import Options, Report


def lint(options: Options, names: Sequence[str], *, update_lock: bool) -> Report:
    """Every problem of the named bundles (all, without names); exit code 1 on an error."""
    folder = source.bundle_dir(options.bundles, options.environ, options.cwd)
    everything = not names
    wanted = list(names) or source.list_names(folder)
    written = _update_locks(folder, wanted) if update_lock else []
    env = _environment(options)
    problems = []
    for name in wanted:
        problems += rules.lint_bundle(
            folder,
            name,
            target_bytes=None if env is None else _Targets(env),
            versions=None if env is None else _versions(env, folder, name),
        )
    if everything:
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
            "folder": folder,
            "bundles": wanted,
            "problems": [problem._asdict() for problem in problems],
            "written": written,
        },
        exit_code=1 if failed else 0,
    )


def _update_locks(folder: str, names: Sequence[str]) -> list[str]:
    """Write the locks that differ, of bundles that have patches which can be read; the
    paths written."""
    if source.is_shipped(folder):
        raise Refused(
            f"{folder} holds the bundles that came with patchkit; their locks stay as they are",
            code="shipped-bundles",
            hint="name a bundle directory of your own: patchkit --bundles DIR lint --update-lock",
        )
    written = []
    root = Root(folder)
    try:
        for name in names:
            data = rules.lock_bytes(folder, name)
            present = source.read_lock(folder, name)
            if data is not None and data != present:
                root.replace(f"manifests/{name}.lock", data)
                written.append(os.path.join(folder, "manifests", f"{name}.lock"))
    finally:
        root.close()
    return written


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
            with open(os.path.join(dist.root, path), "rb") as file:
                return file.read()
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
