"""The command ``fetch``, and the options that say where releases come from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from patchkit.console import Settings as Console
from patchkit.console import finish
from patchkit.environment import open_environment
from patchkit.errors import PatchkitError
from patchkit.options import common_options

from .model import Wish
from .sources import Settings

F = TypeVar("F", bound=Callable[..., Any])


def source_options(command: F) -> F:
    """``--find-links``, ``--checkout``, ``--offline``, ``--client``, and which wheel."""
    for decorate in (
        click.option(
            "--find-links",
            multiple=True,
            metavar="DIR",
            type=click.Path(exists=True, file_okay=False),
            help="A folder of wheels and sdists to look in first (repeatable).",
        ),
        click.option(
            "--checkout",
            "checkouts",
            multiple=True,
            metavar="DIR",
            type=click.Path(exists=True, file_okay=False),
            help="A git checkout whose tags are releases (repeatable).",
        ),
        click.option(
            "--offline", is_flag=True, help="Ask no index: what is cached or at hand must do."
        ),
        click.option(
            "--client",
            type=click.Choice(["pip", "uv"]),
            help="Which package client to ask. Else PATCHKIT_CLIENT, or the one at hand.",
        ),
        click.option(
            "--for-python",
            metavar="X.Y",
            help="The wheel for this Python, where there are several.",
        ),
        click.option(
            "--for-platform",
            metavar="TAG",
            help="The wheel for this platform (manylinux_2_34_x86_64), where there are several.",
        ),
    ):
        command = decorate(command)
    return command


def settings_of(console: Console, given: dict[str, Any]) -> Settings:
    """Takes the source options out of a command's arguments."""
    options = console.options
    environment = None
    try:
        environment = open_environment(options.python, options.root, options.environ)
    except PatchkitError:
        if options.python or options.root:
            raise
    return Settings(
        options.environ,
        environment=environment,
        find_links=given.pop("find_links"),
        checkouts=given.pop("checkouts"),
        offline=given.pop("offline"),
        client=given.pop("client"),
        wish=Wish(given.pop("for_python"), given.pop("for_platform")),
        progress=downloads(console),
    )


def is_shown(console: Console) -> bool:
    """Whether progress can be shown: on a terminal, where it is not forbidden."""
    return not console.quiet and sys.stderr is not None and sys.stderr.isatty()


def downloads(console: Console) -> Callable[[str, int], None]:
    """Shows how much of a release has come."""
    if not is_shown(console):
        return lambda label, size: None

    def show(label: str, size: int) -> None:
        sys.stderr.write(f"\r\x1b[K{label}: {size / 2**20:.1f} MiB")
        sys.stderr.flush()

    return show


def steps(console: Console) -> Callable[[str, int, int], None]:
    """Shows how many of many are done."""
    if not is_shown(console):
        return lambda what, done, total: None

    def show(what: str, done: int, total: int) -> None:
        sys.stderr.write(f"\r\x1b[K{what}: {done}/{total}" + ("\n" if done >= total else ""))
        sys.stderr.flush()

    return show


def _text(data: dict[str, Any], style: Callable[[str, str], str], verbose: bool) -> list[str]:
    lines = []
    for one in data.get("available", []):
        cached = set(one["cached"])
        lines += [
            f"{one['distribution']} {v}" + (style("  cached", "green") if v in cached else "")
            for v in one["versions"]
        ]
    for one in data.get("releases", []):
        kept = one["kept"]
        lines.append(
            f"{one['distribution']} {one['version']}  {one['archive']}, {one['files']} files;"
            f" {len(kept)} kept ({one['bytes'] / 1024:.0f} KiB), from {one['origin']}"
        )
        if verbose:
            lines += [f"  {path}" for path in kept]
        lines += [f"  {file['path']}" for file in one.get("paths", [])]
    if data.get("output"):
        lines.append(f"written to {data['output']}")
    return lines


@click.command()
@click.argument("releases", nargs=-1, metavar="RELEASE…")
@click.option(
    "--file", "files", multiple=True, metavar="GLOB", help="Keep these files (repeatable)."
)
@click.option("--all", "everything", is_flag=True, help="Keep every file.")
@click.option(
    "--list", "listing", is_flag=True, help="Only show which releases there are, or what one holds."
)
@click.option(
    "--output", "-o", metavar="DIR", type=click.Path(), help="Write the files there as well."
)
@source_options
@common_options
@click.pass_obj
def fetch(console: Console, /, releases: tuple[str, ...], **given: Any) -> int:
    """The pristine files of releases, installed or not, into the cache.

    A RELEASE is sglang==0.5.9 or a range such as 'sglang>=0.5.8,<0.5.10'. Kept are the files
    that the bundles on offer patch or look at, or those that --file or --all names. They
    come through pip or uv, as these are set up on this machine, and each is checked against
    the RECORD of its wheel.

    \b
    Examples:
      patchkit fetch sglang==0.5.9
      patchkit fetch --list sglang
      patchkit fetch 'sglang>=0.5.8' --file 'sglang/srt/server_args.py' -o pristine
    """
    from .fetch import fetch as fetch_releases

    settings = settings_of(console, given)
    report = fetch_releases(console.options, settings, releases, tell=steps(console), **given)
    report.render = _text
    return finish(console, report)
