"""``trial revisit``, ``report`` and ``export --mlflow``: what reads the whole ledger."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from patchkit.console import Settings, finish
from patchkit.errors import PatchkitError, Refused
from patchkit.fsio import Root
from patchkit.options import common_options
from patchkit.session import Options, Report, Session

from . import again, board
from .deadends import ledger_of
from .ledger import Ledger
from .reading import read_all
from .revisit import Woken, unreadable
from .revisit import revisit as woken

if TYPE_CHECKING:
    from .board import Board

#: (class of the page, inches): what a wide screen and a telephone show.
_WIDTHS = (("wide", 9.0), ("narrow", 4.3))

_facts_option = click.option(
    "--facts",
    metavar="FILE",
    type=click.Path(readable=False),
    help="Take facts recorded by doctor --json for those of this machine.",
)
trials_option = click.option(
    "--trials",
    "place",
    metavar="DIR",
    type=click.Path(),
    help="The ledger. Else PATCHKIT_TRIALS, else trials/ of the bundle directory.",
)


def _facts(file: str | None, options: Options) -> dict[str, str]:
    from patchkit.facts import cli

    return (cli.of_options(options)[0] if file is None else cli.load(file)).flat()


@click.command(short_help="The trials whose condition holds now and did not hold then.")
@trials_option
@_facts_option
@common_options
@click.pass_obj
def revisit(settings: Settings, place: str | None, facts: str | None) -> int:
    """The trials whose `--unblock` condition holds now and did not hold then: what changed,
    and the command to make each again. One that was tried again since is left out.

    \b
    Examples:
      patchkit trial revisit
      patchkit trial revisit --facts facts.json
    """
    settings.command = "trial revisit"
    records, remarks = read_all(ledger_of(Session(settings.options), place).folder)
    now = _facts(facts, settings.options)
    found = woken(records, now, here(settings.options, place))
    remarks += [f"{trial}: {error.message}" for trial, error in unreadable(records)]
    report = Report(
        "trial revisit",
        {"trials": [_as_json(one) for one in found], "facts": now},
        notes=remarks,
        render=lambda data, style, verbose: _lines(found),
    )
    return finish(settings, report)


def _as_json(one: Woken) -> dict[str, Any]:
    changed = [{"fact": fact, "then": then, "now": now} for fact, then, now in one.changed]
    return {**one._asdict(), "changed": changed}


def _lines(found: Sequence[Woken]) -> list[str]:
    if not found:
        return ["no trial is worth making again: no condition holds now that did not hold then"]
    lines: list[str] = []
    for one in found:
        lines += [""] if lines else []
        lines.append(f"{one.name} ({one.verdict}){': ' + one.reason if one.reason else ''}")
        lines.append(f"  unblock  {one.unblock}")
        lines += [f"  changed  {fact}: {then or 'absent'} → {now or 'absent'}"
                  for fact, then, now in one.changed]  # fmt: skip
        lines += [f"  {label:8} {text}" for label, text in again_lines(one.command, one.hidden)]
    return lines


def here(options: Options, place: str | None) -> again.Here:
    """The environment, the bundles and the ledger that this command line names, for one that is
    to make a trial again."""
    given = [("--python", options.python), ("--root", options.root)]
    before = [(option, value, True) for option, value in given if value]
    bundles = options.bundles or ()
    before += [  # what is no folder is a repository's address
        ("--bundles", one, os.path.isdir(os.path.join(options.cwd, one)))
        for one in ((bundles,) if isinstance(bundles, str) else bundles)
    ]
    behind = [("--trials", os.path.expanduser(place), True)] if place else []
    return again.Here(before, behind, options.cwd or None)


def again_lines(command: str, hidden: Sequence[str]) -> list[tuple[str, str]]:
    """(label, text) of how to make a trial again."""
    lines = [("again", command)]
    if hidden:
        lines.append(("secrets", f"to be set or put in first: {', '.join(hidden)}"))
    return lines


@click.command(short_help="What was tried, what came of it, what is left.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "html", "json"]),
    default="md",
    show_default=True,
    help="html is one file that needs nothing else.",
)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(readable=False), help="Write it there."
)
@click.option("--metric", metavar="NAME", help="The figure: else the one that most trials have.")
@trials_option
@_facts_option
@common_options
@click.pass_obj
def report(
    settings: Settings,
    form: str,
    output: str | None,
    metric: str | None,
    place: str | None,
    facts: str | None,
) -> int:
    """The living plan: goal and baseline; a row for each trial in the order tried, with its
    verdict, its figure against the baseline, and the reason; what would reopen a dead end, and
    whether that holds here now; the bundles that no trial names. HTML has a chart of every run
    against the baseline (the extra `plot`).

    \b
    Examples:
      patchkit trial report
      patchkit trial report --format html -o report.html
    """
    options = settings.options
    settings.command = "trial report"
    records, remarks = read_all(ledger_of(Session(options), place).folder)
    if metric is not None and metric not in board.metrics_of(records):
        known = ", ".join(board.metrics_of(records)) or "none"
        raise Refused(
            f"no trial has a figure called {metric!r}",
            code="unknown-metric",
            hint=f"known are: {known}",
        )
    plan = board.make(records, _facts(facts, options), _offered(options), metric)
    if form == "json" and output is None:
        settings.json = True
    data = board.as_json(plan, records) if form == "json" or settings.json else {}
    records.clear()  # they take more than all that is made of them
    text = "" if form == "json" else _text(plan, form)
    if output is not None:
        if form == "json":
            import json

            text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        _write(output, text)
        remarks.append(f"written: {output}")
        text = ""
    found = Report(
        "trial report",
        data,
        notes=remarks,
        changed=output is not None,
        render=lambda data, style, verbose: text.splitlines(),
    )
    return finish(settings, found)


def _text(plan: Board, form: str) -> str:
    if form == "md":
        from .report.markdown import markdown

        return markdown(plan)
    from .report import chart
    from .report.page import page

    # Columns of dots fit any width; named rows are drawn for a telephone too.
    widths = _WIDTHS if len(chart.drawn(plan)) <= chart.MOST_NAMED else (("both", 9.0),)
    drawn = [(kind, chart.svg(plan, width, name=f"chart-{kind}")) for kind, width in widths]
    return page(plan, [(kind, element) for kind, element in drawn if element is not None])


def _offered(options: Options) -> list[str]:
    """The bundles on offer; none where there is no bundle directory."""
    from patchkit.bundles import bundle_dir, list_names

    try:
        return list_names(bundle_dir(options.bundles, options.environ, options.cwd))
    except (PatchkitError, OSError):
        return []


def _write(path: str, text: str) -> None:
    folder, name = os.path.split(os.path.abspath(path))
    root = Root(folder)
    try:
        root.replace(name, text.encode("utf-8", "backslashreplace"))
    finally:
        root.close()


def to_mlflow(settings: Settings, ledger: Ledger, uri: str, experiment: str) -> int:
    """``trial export --mlflow``."""
    from .tracking import export

    records, remarks = read_all(ledger.folder, whole=True)
    done = export(records, uri, experiment)
    found = Report(
        "trial export",
        {
            "ledger": ledger.folder,
            "mlflow": uri,
            "experiment": experiment,
            "written": done.written,
            "there": done.there,
        },
        notes=remarks,
        changed=True,
        render=lambda data, style, verbose: [
            f"{len(done.written)} written, {len(done.there)} there already: {experiment} in {uri}"
        ],
    )
    return finish(settings, found)
