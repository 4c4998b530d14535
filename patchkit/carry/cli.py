"""The command ``port``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from patchkit.console import Settings as Console
from patchkit.console import finish
from patchkit.errors import UsageError
from patchkit.options import common_options, complete_bundle, dry_run_option
from patchkit.releases.cli import settings_of, source_options, steps
from patchkit.session import Report

from . import work
from .port import Outcome, Porter


@click.command()
@click.argument("bundle", shell_complete=complete_bundle)
@click.option(
    "--to",
    multiple=True,
    metavar="SPEC",
    help="A release (0.5.10), a range ('>=0.5.10'), or with the distribution's name"
    " ('flashinfer-python==0.6.5'); repeatable.",
)
@click.option(
    "--to-installed",
    is_flag=True,
    help="What the environment has, or git HEAD of an editable install.",
)
@click.option("--continue", "go_on", is_flag=True, help="Take the merged files of the folder.")
@click.option("--abort", is_flag=True, help="Take the working folder away; nothing else.")
@dry_run_option
@source_options
@common_options
@click.pass_obj
def port(
    console: Console,
    /,
    bundle: str,
    to: tuple[str, ...],
    to_installed: bool,
    go_on: bool,
    abort: bool,
    dry_run: bool,
    **given: Any,
) -> int:
    """Carry a BUNDLE to other releases: a three-way merge of the release that a variant was
    made for, that release with the patches, and the new one.

    Nothing is taken on trust: the outcome must compile, each change must stand in the def or
    class where it stood, be the change to the syntax tree that the patch made, and the
    bundle's assertions must hold; else it is a conflict, with the three sides in a working
    folder. A range goes release after release, each the base of the next.

    \b
    Examples:
      patchkit --bundles . port my-fix --to 0.5.10
      patchkit --bundles . port my-fix --to '>=0.5.10,<0.6'
      patchkit --bundles . --python ~/sglang/.venv port my-fix --to-installed
      patchkit --bundles . port my-fix --continue
    """
    settings = settings_of(console, given)
    porter = Porter(console.options, settings, dry_run=dry_run)
    if sum((bool(to) or to_installed, go_on, abort)) != 1:
        raise UsageError(
            "one of --to, --to-installed, --continue and --abort",
            hint="patchkit port --help",
        )
    outcomes: list[Outcome] = []
    if abort:
        removed = work.remove(porter.folder, bundle)
        notes = [
            f"the port of {bundle} is given up, and its working folder is gone"
            if removed
            else f"no port of {bundle} was under way"
        ]
        return finish(console, Report("port", {"bundle": bundle, "releases": []}, notes=notes))
    if go_on:
        outcomes.append(porter.go_on(bundle))
    else:
        from patchkit.bundles import load_bundle

        pairs = porter.asked(load_bundle(porter.folder, bundle), to, installed=to_installed)
        show = steps(console)
        for number, (target, version, present) in enumerate(pairs, 1):
            outcomes.append(porter.carry(bundle, target.distribution, version, present=present))
            show("ported", number, len(pairs))
            if outcomes[-1].folder is not None:
                break  # one conflict at a time: later releases build on it
    settings.store.tidy()
    return finish(console, _report(bundle, outcomes, dry_run=dry_run))


def _report(bundle: str, outcomes: list[Outcome], *, dry_run: bool) -> Report:
    conflicts = [one for one in outcomes if one.state == "conflict"]
    report = Report(
        "port",
        {
            "bundle": bundle,
            "dry_run": dry_run,
            "releases": [one.as_json() for one in outcomes],
        },
        exit_code=3 if conflicts else 0,
        changed=any(one.written for one in outcomes),
        render=_text,
    )
    for one in conflicts:
        if one.folder is not None:
            todo = f"merge the files in {one.folder}"
            if not any(file["outcome"] == "conflict" for file in one.files):
                todo = (
                    f"see to it in {one.folder}, or give an assertion that the release outgrew"
                    f' a range in the manifest (versions = "!={one.version}")'
                )
            report.notes.append(f"{todo}, then: patchkit port {bundle} --continue (or --abort)")
    return report


_COLOURS = {"conflict": "red", "holds": "cyan", "upstream": "cyan", "unneeded": "cyan"}


def _text(data: dict[str, Any], style: Callable[[str, str], str], verbose: bool) -> list[str]:
    lines = []
    for one in data["releases"]:
        state = style(one["state"], _COLOURS.get(one["state"], "green"))
        base = f" from {one['base']}" if one["base"] else ""
        variant = f": {one['variant']}" if one["variant"] else ""
        lines.append(f"{one['distribution']} {one['version']} {state}{base}{variant}")
        if one["reason"]:
            lines.append(f"  {one['reason']}")
        for file in one["files"]:
            if file["outcome"] == "unchanged" and not verbose:
                continue
            moved = "" if file["old_path"] == file["path"] else f" (was {file['old_path']})"
            lines.append(f"  {file['outcome']:9} {file['path'] or file['old_path']}{moved}")
            for hunk in file["hunks"]:
                if verbose or hunk["outcome"] not in ("unchanged", "offset"):
                    within = f" in {hunk['within']}" if hunk["within"] else ""
                    reason = f": {hunk['reason']}" if hunk["reason"] else ""
                    lines.append(f"    line {hunk['line']}{within} {hunk['outcome']}{reason}")
            lines += [f"    {problem['message']}" for problem in file["problems"]]
        lines += [f"  wrote {path}" for path in one["written"]]
    return lines
