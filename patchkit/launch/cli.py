"""``run``, ``sync`` and ``guard`` on the command line."""

from __future__ import annotations

import click

from patchkit.console import Settings, finish
from patchkit.errors import UsageError
from patchkit.options import (
    bundles_option,
    common_options,
    dry_run_option,
    while_running_option,
)


@click.command(
    short_help="Verify, hold the environment, export the profiles, become the command.",
    context_settings={"allow_interspersed_args": False},
)
@bundles_option("A bundle that the launch relies on; may be given more than once.")
@click.option("--ensure", is_flag=True, help="Apply first what is missing or was taken away.")
@click.option(
    "--append-args", is_flag=True, help="Put the bundles' launch arguments behind the command."
)
@click.option("--no-args", is_flag=True, help="Launch without the bundles' launch arguments.")
@click.option(
    "--env",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable for the command, over those of the bundles.",
)
@click.option(
    "--jit-caches",
    type=click.Choice(["own", "forced", "user"]),
    default="own",
    show_default=True,
    help="Folders for kernels built from patched files: their own, unless a variable is set"
    " already; forced: even then; user: those of always.",
)
@dry_run_option
@common_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def run(
    settings: Settings,
    bundles: tuple[str, ...],
    ensure: bool,
    append_args: bool,
    no_args: bool,
    given: tuple[str, ...],
    jit_caches: str,
    dry_run: bool,
    command: tuple[str, ...],
) -> int:
    """Check the environment as verify does, then become COMMAND: the same process, whose
    signals and exit code are its own.  Where the check fails, COMMAND is not run.

    The variables of the applied bundles are exported; their launch arguments take the place of
    the word {args}.  As long as COMMAND or a child of it lives, apply and revert refuse.
    With --dry-run, what would be run is shown.

    \b
    Examples:
      patchkit run --bundle sm120-fusion -- python -m sglang.launch_server {args} …
      patchkit run --ensure --bundle nccl-tree -- ./serve.sh
    """
    from patchkit.commands import run as run_command

    from .run import Wishes

    if append_args and no_args:
        raise UsageError("--append-args and --no-args exclude each other", hint="give one of them")
    arguments = "append" if append_args else "drop" if no_args else "place"
    wishes = Wishes(bundles, ensure, arguments, jit_caches, given, dry_run)
    return run_command(settings, command, wishes)


@click.command(short_help="Make the environment match [tool.patchkit] of a pyproject.toml.")
@click.option("--check", is_flag=True, help="Exit with 1 where it does not match; change nothing.")
@click.option(
    "--project",
    metavar="DIR",
    type=click.Path(),
    help="Where the pyproject.toml is looked for, upwards. Else the working directory.",
)
@while_running_option
@dry_run_option
@common_options
@click.pass_obj
def sync(
    settings: Settings, check: bool, project: str | None, while_running: bool, dry_run: bool
) -> int:
    """Make the environment carry exactly the bundles that [tool.patchkit] names: apply what is
    missing, take out what is not named, patch again what a package manager put back; all in one
    transaction, or nothing.

    The environment is that of the options or of PATCHKIT_PYTHON, else the table's python, else
    the project's .venv, else VIRTUAL_ENV and so on.

    \b
    Example:
      uv sync && patchkit sync
    """
    from .sync import sync as sync_project

    return sync_project(
        settings, project, check=check, dry_run=dry_run, while_running=while_running
    )


@click.group(short_help="A check at the start of every interpreter of the environment.")
def guard() -> None:
    """A check at the start of every interpreter of the environment, on request.

    It compares the patched files with what patchkit wrote, warns on standard error, and never
    patches.  With PATCHKIT_GUARD=fail the interpreter ends with exit status 1 instead; with
    PATCHKIT_GUARD=off nothing is looked at.

    \b
    Example:
      patchkit guard install
    """


@guard.command(short_help="Put the guard into the environment.")
@common_options
@click.pass_obj
def install(settings: Settings) -> int:
    """Put the guard into the environment: a module and a .pth file in its site-packages.

    \b
    Example:
      patchkit --python .venv guard install
    """
    from . import guard as guards

    return finish(settings, guards.install(settings.options))


@guard.command(short_help="Take the guard out again.")
@common_options
@click.pass_obj
def uninstall(settings: Settings) -> int:
    """Take the guard out again, without a trace.

    \b
    Example:
      patchkit --python .venv guard uninstall
    """
    from . import guard as guards

    return finish(settings, guards.uninstall(settings.options))


@guard.command(short_help="Whether the guard is there.")
@common_options
@click.pass_obj
def status(settings: Settings) -> int:
    """Whether the guard is there.

    \b
    Example:
      patchkit --python .venv guard status
    """
    from . import guard as guards

    return finish(settings, guards.status(settings.options))
