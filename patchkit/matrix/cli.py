"""The command ``matrix``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from patchkit.console import Settings as Console
from patchkit.console import finish
from patchkit.options import common_options, complete_bundle
from patchkit.releases.cli import settings_of, source_options, steps
from patchkit.session import Report

from . import table, text


@click.command()
@click.argument("bundles", nargs=-1, shell_complete=complete_bundle)
@click.option(
    "--releases",
    multiple=True,
    metavar="SPEC",
    help="Which releases: 'sglang>=0.5.1' (repeatable). Else those that the variants may mean.",
)
@click.option("--markdown", is_flag=True, help="Print a table in Markdown.")
@click.option(
    "--plot", "picture", metavar="FILE", type=click.Path(), help="Draw it: FILE.svg or FILE.png."
)
@click.option(
    "--port/--no-port",
    "ported",
    default=True,
    help="Try to carry a bundle over to releases that no variant is for.",
    show_default=True,
)
@source_options
@common_options
@click.pass_obj
def matrix(
    console: Console,
    /,
    bundles: tuple[str, ...],
    releases: tuple[str, ...],
    markdown: bool,
    picture: str | None,
    ported: bool,
    **given: Any,
) -> int:
    """What BUNDLES mean for each release: a variant applies, upstream already, nothing to
    patch, ports without a conflict, or not. Each is proven on the pristine files: the patches
    are placed, and the assertions judged.

    Exit code 1 where a release does not hold that a manifest claims. Without names, all
    bundles that patch something. What was fetched once is not asked for again, so that a run
    that was broken off goes on where it was.

    \b
    Examples:
      patchkit matrix sm120-fusion --releases 'sglang>=0.5.1'
      patchkit matrix sm120-fusion --releases 'flashinfer-python>=0.6' --markdown
    """
    settings = settings_of(console, given)
    porter = None
    if ported:
        from patchkit.carry.port import verdict_of

        porter = verdict_of(console.options, settings)
    tables = table.make(
        console.options, settings, bundles, releases, porter=porter, tell=steps(console)
    )
    settings.store.tidy()
    notes = []
    if picture is not None:
        from .plot import plot

        plot(tables, picture)
        notes.append(f"drawn: {picture}")
    report = Report(
        "matrix",
        _data(tables),
        exit_code=1 if table.false_claims(tables) else 0,
        notes=notes,
        changed=bool(picture),
        render=lambda data, style, verbose: (
            text.markdown(tables).splitlines()
            if markdown
            else text.lines(tables, style, verbose=verbose)
        ),
    )
    return finish(console, report)


def _data(tables: Sequence[table.Table]) -> dict[str, Any]:
    return {
        "bundles": [
            {
                "name": one.bundle,
                "version": one.version,
                "rows": [
                    {
                        "state": row.state,
                        **row.cell.as_json(),
                        "pins": [cell.as_json() for cell in row.pins],
                    }
                    for row in one.rows
                ],
            }
            for one in tables
        ],
        "false_claims": [
            {"bundle": name, "distribution": cell.distribution, "version": cell.version}
            for name, cell in table.false_claims(tables)
        ],
    }
