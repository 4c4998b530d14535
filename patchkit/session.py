"""What every command starts from: the options, the environment, the place of its record.

Cheap to import, since ``verify`` needs it.  Only looks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .distributions import tree_distribution
from .environment import VARIABLES, Environment, open_environment
from .errors import Fault, Refused
from .state import Home

if TYPE_CHECKING:
    from .signals import Held

#: (data, style, verbose) → lines; a style is (text, colour) → text.
Render = Callable[[dict[str, Any], Callable[[str, str], str], bool], list[str]]


class Options:
    """What the command line says before the command, and what surrounds the process.

    ``while_running``: files may change although servers were launched from them.

    ``noted`` keeps the ``environment`` object of the JSON for a command that fails later;
    ``signals`` are those that a command holds from its start to the end of its output.
    """

    def __init__(
        self,
        python: str | None = None,
        root: str | None = None,
        bundles: str | Sequence[str] | None = None,
        lock_timeout: float = 30.0,
        environ: Mapping[str, str] | None = None,
        cwd: str = ".",
        *,
        while_running: bool = False,
    ) -> None:
        self.python = python
        self.root = root
        self.bundles = bundles
        self.lock_timeout = lock_timeout
        self.environ: Mapping[str, str] = {} if environ is None else environ
        self.cwd = cwd
        self.while_running = while_running
        self.noted: dict[str, Any] = {}
        self.signals: Held | None = None


class Report:
    """What a command did: ``data`` is its part of the JSON object, ``notes`` are warnings
    and remarks for standard error, ``changed`` says that something on disk was changed.

    ``render`` makes text of the data, for a command that :mod:`report` does not know.
    """

    def __init__(
        self,
        command: str,
        data: dict[str, Any],
        exit_code: int = 0,
        notes: list[str] | None = None,
        *,
        changed: bool = False,
        render: Render | None = None,
    ) -> None:
        self.render = render
        self.command = command
        self.data = data
        self.exit_code = exit_code
        self.notes = [] if notes is None else notes
        self.changed = changed


class Session:
    """An environment with the place of its record."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.notes: list[str] = []
        self.env: Environment = open_environment(options.python, options.root, options.environ)
        options.noted["environment"] = {
            "site_packages": self.env.site_packages,
            "python": self.env.python,
        }
        self.home = locate(self.env)
        self._folder: str | None = None

    @property
    def is_unnamed(self) -> bool:
        """Whether nothing named the environment, so that it is patchkit's own."""
        named = [self.options.python, self.options.root]
        named += [self.options.environ.get(variable) for variable in VARIABLES]
        return not any(named)

    @property
    def folder(self) -> str:
        """The bundle directory, found once."""
        if self._folder is None:
            from .bundles import bundle_dir

            options = self.options
            self._folder = bundle_dir(options.bundles, options.environ, options.cwd)
        return self._folder

    def described(self) -> dict[str, Any]:
        """The ``environment`` object of the contract's JSON."""
        return {"site_packages": self.home.base, "python": self.env.python}


def locate(env: Environment) -> Home:
    """Where ``.patchkit`` is, or would be: in the site directory that already has one, in the
    git directory of a checkout, else in the environment's first."""
    if env.is_root:
        tree = tree_distribution(env)
        if tree.git_dir is not None:
            return Home(tree.git_dir, tree.root)
    found = [Home(path, path) for path in env.search if Home(path, path).exists()]
    if len(found) > 1:
        raise Refused(
            f"two site directories of this environment are patched: {found[0].path} and"
            f" {found[1].path}",
            code="two-records",
            hint=f"name one of them: --root {found[0].base}",
        )
    return found[0] if found else Home(env.site_packages, env.site_packages)


def translate(error: OSError) -> Fault:
    """An error of the system as one of ours, with the path."""
    where = f": {error.filename}" if error.filename else ""
    hints = {
        28: "make room on the disk, then run the same command again",
        13: "run it as the user who owns the environment",
        1: "run it as the user who owns the environment",
        30: "the file system is read-only; patch the environment where it is writable",
    }
    return Fault(
        f"{error.strerror or error}{where}",
        code=f"os-{(os.strerror(error.errno) if error.errno else 'error').lower()}".replace(
            " ", "-"
        ),
        hint=hints.get(error.errno or 0, "nothing was changed; remove the cause and try again"),
    )
