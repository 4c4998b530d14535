"""The command line: parse, call one function, render.

Owns options and help texts.  Commands import what they need in their bodies.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from . import __version__
from .console import Settings, finish, guarded, to_stderr, working_directory
from .errors import Interrupted, UsageError
from .options import (
    common_options,
    complete_applied,
    complete_bundle,
    dry_run_option,
    output_options,
    while_running_option,
)
from .session import Options

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def run(arguments: Sequence[str]) -> int:
    """The whole program; returns the exit code of the contract."""
    settings = Settings()
    # Known even where click stops before it sees the option.
    settings.json = "--json" in arguments
    return guarded(settings, lambda: _click(list(arguments), settings))


def _click(arguments: list[str], settings: Settings) -> int:
    try:
        code = main.main(args=arguments, prog_name="patchkit", standalone_mode=False, obj=settings)
        return int(code or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        hint = None
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"{error.ctx.command_path} --help"
            if not arguments:
                to_stderr(error.ctx.get_help())
                return error.exit_code
        raise UsageError(error.format_message(), hint=hint) from None
    except click.Abort:
        raise Interrupted(2) from None


# -- the group --------------------------------------------------------------------------

#: Commands of the packages beside the core: name → (module, function), imported when asked
#: for, and what the list of commands says of them.
_BESIDE = {
    "run": ("launch.cli", "run", "Verify, hold the environment, and become the command."),
    "sync": ("launch.cli", "sync", "Make the environment match [tool.patchkit] of a project."),
    "guard": ("launch.cli", "guard", "A check at the start of every interpreter, on request."),
    "hook": ("hooks.cli", "hook", "A snippet for systemd, Slurm, Kubernetes, Docker and others."),
    "bake": ("images.cli", "bake", "A build context for an image that has the bundles."),
    "fleet": ("fleet.cli", "fleet", "Reports of many nodes, compared."),
    "fetch": ("releases.cli", "fetch", "The pristine files of a release, installed or not."),
    "port": ("carry.cli", "port", "Carry a bundle to other releases, by a merge that is checked."),
    "capture": ("authoring.cli", "capture", "Make a bundle of the edits made by hand."),
    "new": ("authoring.cli", "new", "A manifest to fill in."),
    "import": ("authoring.cli", "import_", "Make a bundle of patches, mails or commits."),
    "sed": ("authoring.cli", "sed", "Make a substitution a patch, with its assertion."),
    "edit": ("authoring.cli", "edit", "Lay a bundle's patches out as git commits."),
    "refresh": ("authoring.cli", "refresh", "Write those commits back as patches."),
    "fold": ("authoring.cli", "fold", "Make one patch of several."),
    "split": ("authoring.cli", "split", "Make several patches of one."),
    "rename": ("authoring.cli", "rename", "Give a patch another file name."),
    "delete": ("authoring.cli", "delete", "Take patches out of a bundle."),
    "trial": ("trials.cli", "trial", "Measured runs of a command, and what was learned."),
    "doctor": ("facts.cli", "doctor", "Facts of GPUs, CUDA and packages, and what they mean."),
    "matrix": ("matrix.cli", "matrix", "What bundles mean for each release, proven by the code."),
}


class _Commands(click.Group):
    """The core's commands, and those of the packages beside it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *_BESIDE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        beside = _BESIDE.get(cmd_name)
        if beside is None:
            own = super().get_command(ctx, cmd_name)
            if own is not None:
                _say_what_else(own)
            return own
        module, function, short_help = beside
        from importlib import import_module

        command = getattr(import_module(f"patchkit.{module}"), function)
        assert isinstance(command, click.Command)
        command.short_help = short_help
        _say_what_else(command)
        return command


def _say_what_else(command: click.Command) -> None:
    """Name the options of the program in the help of a command that takes them behind its name:
    there they are hidden, since all commands would list them."""
    for one in command.commands.values() if isinstance(command, click.Group) else (command,):
        if any(option.name == "bundles_dir" for option in one.params):
            one.epilog = "And --python, --root, --bundles, --lock-timeout: patchkit --help."


@click.group(
    cls=_Commands, context_settings=_CONTEXT, no_args_is_help=False, subcommand_metavar="COMMAND …"
)
@click.option(
    "--python",
    metavar="PATH",
    type=click.Path(readable=False),
    help="The environment to work on: an interpreter or a venv folder."
    " Else PATCHKIT_PYTHON, VIRTUAL_ENV, CONDA_PREFIX, or patchkit's own.",
)
@click.option(
    "--root",
    metavar="DIR",
    type=click.Path(readable=False),
    help="A directory used as site-packages.",
)
@click.option(
    "--bundles",
    metavar="DIR",
    type=click.Path(readable=False),
    multiple=True,
    help="A directory with manifests/ and patches/, or REPOSITORY@REVISION of git; given more"
    " than once, the later one wins. Else PATCHKIT_BUNDLES, the working directory if it has"
    " both, or the bundles that ship with patchkit.",
)
@click.option(
    "--lock-timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="How long to wait for another patchkit on the same environment.",
)
@output_options
@click.version_option(__version__, "-V", "--version", prog_name="patchkit")
@click.pass_context
def main(
    ctx: click.Context,
    python: str | None,
    root: str | None,
    bundles: tuple[str, ...],
    lock_timeout: float,
) -> None:
    """Apply versioned patch bundles to installed Python distributions, verify them, and
    take them back without a trace.

    The options stand before the command or behind it.

    \b
    Example:
      patchkit --python ~/sglang/.venv apply sm120-fusion
      patchkit --python ~/sglang/.venv verify sm120-fusion
      patchkit --python ~/sglang/.venv revert --all
    """
    settings = ctx.find_object(Settings)
    assert settings is not None
    settings.command = ctx.invoked_subcommand
    if lock_timeout != lock_timeout:  # not a number is in no range, and never over
        raise click.BadParameter("it must be a number", param_hint="--lock-timeout")
    settings.options = Options(
        python, root, bundles or None, lock_timeout, os.environ, working_directory()
    )


# -- commands ---------------------------------------------------------------------------


@main.command("list")
@common_options
@click.pass_obj
def list_command(settings: Settings) -> int:
    """The bundles on offer, and what each means for this environment.

    \b
    Example:
      patchkit list
    """
    from .offers import list_bundles

    return finish(settings, list_bundles(settings.options))


@main.command(short_help="One bundle: variants, patches, assertions, profile.")
@click.argument("bundle", shell_complete=complete_bundle)
@common_options
@click.pass_obj
def show(settings: Settings, bundle: str) -> int:
    """One bundle: variants, patches, assertions, profile.

    \b
    Example:
      patchkit show sm120-fusion
    """
    from .offers import show as show_bundle

    return finish(settings, show_bundle(settings.options, bundle))


@main.command(short_help="The applied set, its fingerprint, and drift.")
@click.option("--check", is_flag=True, help="Exit with 1 where there is a problem.")
@common_options
@click.pass_obj
def status(settings: Settings, check: bool) -> int:
    """The applied set of this environment, its fingerprint, and drift.

    \b
    Example:
      patchkit status --check
    """
    from .queries import status as read_status

    return finish(settings, read_status(settings.options, check=check))


@main.command(short_help="What applying would change, or what was changed.")
@click.argument("bundles", nargs=-1, shell_complete=complete_bundle)
@common_options
@click.pass_obj
def diff(settings: Settings, bundles: tuple[str, ...]) -> int:
    """What applying BUNDLES would change; without names: pristine against now.

    \b
    Example:
      patchkit diff sm120-fusion
    """
    from .queries import diff as make_diff

    return finish(settings, make_diff(settings.options, bundles))


@main.command(short_help="Add bundles, or loose patch files: all or nothing.")
@click.argument("bundles", nargs=-1, required=True, shell_complete=complete_bundle)
@dry_run_option
@click.option(
    "--strip", type=click.IntRange(min=0), metavar="N", help="Path parts to drop (loose patch)."
)
@click.option("--reverse", is_flag=True, help="Apply a loose patch backwards.")
@click.option("--eol", is_flag=True, help="Take line ends from the file, not from the loose patch.")
@while_running_option
@common_options
@click.pass_obj
def apply(
    settings: Settings,
    bundles: tuple[str, ...],
    dry_run: bool,
    strip: int | None,
    reverse: bool,
    eol: bool,
    while_running: bool,
) -> int:
    """Add BUNDLES to the applied set; all of them or, on any refusal, nothing.

    A name that ends in .patch or .diff is the path of a loose patch file.

    \b
    Examples:
      patchkit apply sm120-fusion nccl-tree
      patchkit apply --dry-run fix.patch
    """
    from .commands import apply as run_apply

    return run_apply(
        settings,
        bundles,
        dry_run=dry_run,
        strip=strip,
        reverse=reverse,
        eol=eol,
        while_running=while_running,
    )


@main.command(short_help="Take bundles out again, or all of them.")
@click.argument("bundles", nargs=-1, shell_complete=complete_applied)
@click.option("--all", "everything", is_flag=True, help="Take every bundle out.")
@click.option(
    "--forget",
    is_flag=True,
    help="Leave files that a reinstall put back, or an uninstall took away, as they are.",
)
@dry_run_option
@while_running_option
@common_options
@click.pass_obj
def revert(
    settings: Settings,
    bundles: tuple[str, ...],
    everything: bool,
    forget: bool,
    dry_run: bool,
    while_running: bool,
) -> int:
    """Take BUNDLES out of the applied set; with --all, everything.

    \b
    Example:
      patchkit revert --all
    """
    from .commands import revert as run_revert

    return run_revert(
        settings,
        bundles,
        everything=everything,
        dry_run=dry_run,
        forget=forget,
        while_running=while_running,
    )


@main.command(short_help="The guard of a launch: files and assertions as recorded.")
@click.argument("bundles", nargs=-1, shell_complete=complete_applied)
@click.option(
    "--pristine",
    is_flag=True,
    help="Check instead that nothing is applied and every distribution that a bundle on"
    " offer targets matches its RECORD.",
)
@common_options
@click.pass_obj
def verify(settings: Settings, bundles: tuple[str, ...], pristine: bool) -> int:
    """Check that files are as recorded and all assertions hold; with names, that those
    BUNDLES are applied.  For pre-launch hooks: silent and 0 on success, else 1 (a problem
    was found) or another code.  Without names, an environment where nothing is applied is
    a success: name what the launch relies on.

    \b
    Example:
      patchkit verify sm120-fusion && exec python -m sglang.launch_server …
    """
    from .commands import verify as run_verify

    return run_verify(settings, bundles, pristine=pristine)


@main.command(short_help="Finish what an interrupted command left.")
@common_options
@click.pass_obj
def recover(settings: Settings) -> int:
    """Finish what an interrupted command left: exactly the old or the new contents.

    \b
    Example:
      patchkit recover
    """
    from .commands import recover as run_recover

    return run_recover(settings)


@main.command(short_help="What bundles, or loose patch files, say by themselves.")
@click.argument("bundles", nargs=-1, shell_complete=complete_bundle)
@click.option("--update-lock", is_flag=True, help="Write the locks of the patch files anew.")
@click.option("--fix", is_flag=True, help="Count the lines of hunks anew where that is no guess.")
@common_options
@click.pass_obj
def lint(settings: Settings, bundles: tuple[str, ...], update_lock: bool, fix: bool) -> int:
    """A bundle directory's own consistency: manifests, patches, locks.

    A name that ends in .patch or .diff is a loose patch file: what it says by itself.

    \b
    Examples:
      patchkit --bundles . lint --update-lock sm120-fusion
      patchkit lint --fix fix.patch
    """
    from .linting import lint as lint_bundles
    from .releases.locking import contradictions, made_for

    report = lint_bundles(
        settings.options,
        bundles,
        update_lock=update_lock,
        fix=fix,
        made_for=made_for(settings.options),
        contradicted=contradictions(settings.options),
    )
    return finish(settings, report)
