"""``patchkit sync``: the set that a project names, made the applied set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from patchkit.console import finish

from .project import Project, environment_of, find_project

if TYPE_CHECKING:
    from patchkit.console import Settings
    from patchkit.session import Options


def sync(
    settings: Settings, folder: str | None, *, check: bool, dry_run: bool, while_running: bool
) -> int:
    """Read the project, make its set the applied one, show it.

    With ``check`` nothing changes, and the exit code is 1 where something would have to.
    """
    from patchkit.signals import held
    from patchkit.workflow import sync as sync_bundles

    settings.command = "sync"
    options = settings.options
    with held(last=True) as signals:
        options.signals = signals
        with signals.at_once():
            project = find_project(os.path.join(options.cwd, folder or ""))
        settle(options, project)
        options.while_running = while_running
        report = sync_bundles(options, project.bundles, dry_run=dry_run or check)
        report.data.update(dry_run=dry_run or check, project=project.file)
        if check:
            report.exit_code = 0 if report.data["in_sync"] else 1
        signals.done = report.changed
        return finish(settings, report)


def settle(options: Options, project: Project) -> None:
    """Make the options those of a command in the project: its environment and bundle folder,
    where the command line names none, and its folder."""
    named = options.python or options.root or options.environ.get("PATCHKIT_PYTHON")
    if not named:
        options.python = environment_of(project, options.environ)
    # Relative paths of the command line are of the working directory, those of the table
    # of the project.
    options.bundles = options.bundles and _absolute(options.bundles, options.cwd)
    options.bundles = options.bundles or project.bundle_dirs or None
    options.cwd = project.folder


def _absolute(given: str | Sequence[str], folder: str) -> list[str]:
    several = [given] if isinstance(given, str) else given
    return [
        os.path.join(folder, one) if os.path.isdir(os.path.join(folder, one)) else one
        for one in several
    ]
