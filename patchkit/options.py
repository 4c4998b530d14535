"""Options and completions that commands share.

Owns the options that stand before the command or behind it, and what the shell offers for
bundle names.  Imports click, so the guard of a launch never comes here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from .console import Settings, working_directory
from .errors import PatchkitError
from .session import Options

F = TypeVar("F", bound=Callable[..., Any])


def _note_option(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def note(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            setattr(ctx.ensure_object(Settings), name, True)

    return note


def output_options(command: F) -> F:
    """``--json``, ``-q`` and ``-v``, which stand before or behind the command's name."""
    for flags, name, text in (
        (("-v", "--verbose"), "verbose", "Say more: placements, mappings, every variant."),
        (("-q", "--quiet"), "quiet", "Print errors only."),
        (("--json",), "json", "Print one JSON object on standard output."),
    ):
        command = click.option(
            *flags, is_flag=True, expose_value=False, callback=_note_option(name), help=text
        )(command)
    return command


def _note_global(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and value != ():
        name = str(parameter.name).removesuffix("_dir")
        setattr(ctx.ensure_object(Settings).options, name, value)


def common_options(command: F) -> F:
    """The options of the program, for who writes them behind the command's name."""
    for flag, kind in (
        ("--python", click.Path()),
        ("--root", click.Path()),
        ("--bundles", click.Path()),
        ("--lock-timeout", click.FloatRange(min=0)),
    ):
        name = "bundles_dir" if flag == "--bundles" else flag[2:].replace("-", "_")
        command = click.option(
            *(flag, name),
            type=kind,
            multiple=flag == "--bundles",
            hidden=True,
            expose_value=False,
            callback=_note_global,
        )(command)
    return output_options(command)


dry_run_option = click.option(
    "-n", "--dry-run", "dry_run", is_flag=True, help="Compute and check all, change nothing."
)


while_running_option = click.option(
    "--while-running",
    is_flag=True,
    help="Change files although servers that patchkit run launched from them still run.",
)


def complete_bundle(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """The bundles on offer, or files."""
    from click.shell_completion import CompletionItem

    from .bundles import bundle_dir, list_names

    values = ctx.find_root().params
    try:
        folder = bundle_dir(values.get("bundles"), os.environ, working_directory())
        found = [n for n in list_names(folder) if n.startswith(incomplete)]
    except (PatchkitError, OSError):
        found = []
    items = [CompletionItem(name) for name in found]
    return items or [CompletionItem(incomplete, type="file")]


def complete_applied(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """The bundles that the environment carries."""
    from click.shell_completion import CompletionItem

    from .session import Session

    values = ctx.find_root().params
    try:
        options = Options(values.get("python"), values.get("root"), environ=os.environ)
        state = Session(options).home.read_state()
    except (PatchkitError, OSError):
        state = None
    names = [] if state is None else [entry["name"] for entry in state["bundles"]]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def bundles_option(help: str, complete: Any = complete_bundle) -> Callable[[F], F]:
    """``--bundle``, which may be given more than once."""
    return click.option(
        "--bundle", "bundles", multiple=True, metavar="BUNDLE", shell_complete=complete, help=help
    )
