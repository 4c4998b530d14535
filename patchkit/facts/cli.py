"""The command ``doctor``."""

from __future__ import annotations

import json
from typing import Any

import click

from patchkit.conditions import FACTS, PACKAGES
from patchkit.console import Settings, finish
from patchkit.errors import Refused
from patchkit.fsio import MAX_METADATA, read_plain
from patchkit.options import common_options
from patchkit.session import Options, Report, Session

from . import text
from .findings import findings
from .gather import gather
from .model import Facts, from_json


@click.command()
@click.option(
    "--facts",
    "file",
    metavar="FILE",
    type=click.Path(readable=False),
    help="Judge facts that were recorded before (doctor --json), not those of this machine.",
)
@click.option("--names", is_flag=True, help="List the facts that a condition may use.")
@click.option("--check", is_flag=True, help="Exit with 1 where there is a problem.")
@common_options
@click.pass_obj
def doctor(settings: Settings, file: str | None, names: bool, check: bool) -> int:
    """The facts of this machine and of the environment, and what they mean together: driver,
    toolkit, GPUs and the ways between them, and the releases of what runs on them with the
    CUDA that each was built for. Nothing of the environment is imported.

    The GPUs are asked through NVML's Python binding (the extra `gpu`). What is not there, or
    does not say, is absent. `--json` writes what `--facts` reads.

    \b
    Examples:
      patchkit doctor
      patchkit doctor --json > facts.json
      patchkit doctor --names
    """
    if names:
        return finish(settings, _vocabulary())
    if file is not None:
        facts = load(file)
        described: dict[str, Any] = {}
    else:
        facts, described = of_options(settings.options)
    found = findings(facts)
    report = Report(
        "doctor",
        {
            **described,
            "facts": facts.as_json(),
            "flat": facts.flat(),
            "findings": [finding._asdict() for finding in found],
        },
        exit_code=1 if check and any(one.level == "problem" for one in found) else 0,
        notes=list(facts.remarks),
        render=lambda data, style, verbose: text.lines(facts, found, style, verbose=verbose),
    )
    return finish(settings, report)


def of_options(options: Options) -> tuple[Facts, dict[str, Any]]:
    """The facts of this machine and the environment that the options name."""
    session = Session(options)
    return gather(session.env, options.environ), {"environment": session.described()}


def load(file: str) -> Facts:
    """The facts that ``doctor --json`` wrote to a file.  Raises :class:`Refused`."""
    try:
        value = json.loads(read_plain(file, MAX_METADATA))
    except (ValueError, RecursionError) as error:
        raise Refused(
            f"{file} is no JSON: {error}",
            code="facts",
            hint="such a file is what this writes: patchkit doctor --json > FILE",
        ) from None
    return from_json(value)


def _vocabulary() -> Report:
    width = max(len(name) for name in FACTS)
    shown = [f"{name:{width}}  {meaning}" for name, meaning in FACTS.items()]
    shown += ["", "releases of what is installed:", *(f"  {name}" for name in PACKAGES)]
    return Report(
        "doctor",
        {"names": {**FACTS, **{name: f"the release of {name}" for name in PACKAGES}}},
        render=lambda data, style, verbose: shown,
    )
