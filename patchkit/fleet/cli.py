"""``fleet report``, ``save`` and ``restore`` on the command line."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from patchkit.console import Settings, finish
from patchkit.fsio import make_root
from patchkit.options import common_options, dry_run_option, while_running_option
from patchkit.session import Report

from .compare import Fleet, compare
from .page import page
from .read import read

#: Nodes, and differences, that are named without -v.
_SHOWN = 8


@click.group(short_help="For many nodes: reports compared, an applied set put back.")
def fleet() -> None:
    """For many nodes: their reports compared, and the way back from a rollout.

    \b
    Example:
      patchkit fleet report /shared/status
    """


@fleet.command(short_help="Whether all nodes carry the same, and which differ in what.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--html", metavar="FILE", type=click.Path(), help="Write a page for people.")
@common_options
@click.pass_obj
def report(settings: Settings, files: tuple[str, ...], html: str | None) -> int:
    """Compare what status --json printed on many nodes: fingerprint, releases, bundles, variants,
    drift; driver and toolkit where a node's doctor --json is there too, or its report has the
    key facts. Exit code 1 where the nodes are not alike.

    FILE is a file with one or several JSON objects, a folder of files that end in .json, or - for
    standard input. A node is named by the key node, else by its file: n1.json, n1.doctor.json,
    or n1/status.json.

    \b
    Examples:
      patchkit status --json > /shared/status/$(hostname).json    # on each node
      patchkit fleet report /shared/status --html fleet.html
    """
    settings.command = "fleet report"
    found = compare(read(files, settings.options.cwd))
    summary = _summary(found)
    notes = []
    if html is not None:
        path = os.path.join(settings.options.cwd, html)
        root = make_root(os.path.dirname(path))
        try:
            root.replace(os.path.basename(path), page(found, summary).encode("utf-8", "replace"))
        finally:
            root.close()
        notes.append(f"written: {html}")
    data = {
        "alike": found.alike,
        "nodes": [node.name for node in found.nodes],
        "fingerprints": [{"fingerprint": f, "nodes": n} for f, n in found.fingerprints],
        "differences": [
            {"node": name, **one._asdict()}
            for name, several in found.differences.items()
            for one in several
        ],
    }
    return finish(
        settings,
        Report(
            settings.command,
            data,
            exit_code=0 if found.alike else 1,
            notes=notes,
            changed=html is not None,
            render=lambda _, style, verbose: _lines(found, summary, style, verbose=verbose),
        ),
    )


@fleet.command(short_help="Keep what is applied here in a file.")
@click.argument("file", type=click.Path())
@common_options
@click.pass_obj
def save(settings: Settings, file: str) -> int:
    """Keep what is applied here in FILE, with all that it is made of: restore FILE makes it the
    applied set again, whatever the bundle directories say by then. The environment is not changed.

    \b
    Example:
      patchkit fleet save ~/before.json && patchkit apply sm120-fusion
    """
    from .saved import save as save_set

    settings.command = "fleet save"
    return finish(settings, save_set(settings.options, file))


@fleet.command(short_help="Make the applied set the one that was saved here.")
@click.argument("file", type=click.Path())
@dry_run_option
@while_running_option
@common_options
@click.pass_obj
def restore(settings: Settings, file: str, dry_run: bool, while_running: bool) -> int:
    """Make the applied set the one that FILE keeps, in one transaction. What an interrupted command
    left is finished or undone first. FILE is of this environment; it stays.

    \b
    Example:
      patchkit fleet restore ~/before.json
    """
    from patchkit.signals import held

    from .saved import restore as restore_set

    settings.command = "fleet restore"
    settings.options.while_running = while_running
    with held(last=True) as signals:
        settings.options.signals = signals
        report = restore_set(settings.options, signals, file, dry_run=dry_run)
        signals.done = report.changed
        return finish(settings, report)


def _summary(found: Fleet) -> str:
    several = found.fingerprints
    count = f"{len(found.nodes)} node{'s' * (len(found.nodes) != 1)}"
    if found.alike:
        value = several[0][0]
        return f"{count}, all alike: " + (
            f"fingerprint {value[:16]}" if value else "nothing applied"
        )
    prints = f"{len(several)} fingerprint{'s' * (len(several) != 1)}"
    return f"{count}, not alike: {len(found.differences)} differ ({prints})"


def _lines(
    found: Fleet, summary: str, style: Callable[[str, str], str], *, verbose: bool
) -> list[str]:
    lines = [style(summary, "green" if found.alike else "red")]
    if len(found.fingerprints) > 1:
        for value, names in found.fingerprints:
            lines.append(f"  {(value or 'nothing applied')[:16]}  {_few(names, verbose=verbose)}")
    # Nodes with the same differences are one paragraph: a rollout that missed a rack is one fact.
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, several in found.differences.items():
        texts = tuple(one.text() for one in several if one.aspect != "fingerprint")
        groups.setdefault(texts, []).append(name)
    for texts, names in groups.items():
        lines.append(f"{_few(names, verbose=verbose)}:")
        lines += [f"  {text}" for text in texts or ("another fingerprint",)]
    # The first is of numbers and a style's codes; the others may hold what a node wrote.
    return lines[:1] + [one if one.isprintable() else ascii(one)[1:-1] for one in lines[1:]]


def _few(names: list[str], *, verbose: bool) -> str:
    shown = names if verbose else names[:_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more
