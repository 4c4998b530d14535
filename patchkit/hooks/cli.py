"""The command ``hook``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from patchkit.console import Settings, finish
from patchkit.errors import Refused, UsageError
from patchkit.options import bundles_option, common_options, complete_applied
from patchkit.session import Report, Session

from .snippets import KINDS, NEEDS_COMMAND, Facts


@click.command()
@click.argument("kind", metavar="KIND", type=click.Choice(list(KINDS)))
@bundles_option(
    "A bundle that the launch relies on (repeatable). Else all that is applied here.",
    complete_applied,
)
@click.option("--image", default="IMAGE", metavar="IMAGE", help="kubernetes: the image.")
@click.option(
    "--volume",
    metavar="CLAIM",
    help="kubernetes: the environment is on this persistent volume claim, and an init container"
    " applies the bundles there.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@common_options
@click.pass_obj
def hook(
    settings: Settings,
    kind: str,
    bundles: tuple[str, ...],
    image: str,
    volume: str | None,
    command: tuple[str, ...],
) -> int:
    """Print a snippet for a launcher: systemd, slurm, kubernetes, docker, pre-commit or bash.

    It verifies the bundles that are applied here before every launch, by the paths of this
    patchkit and this environment: run it where they are as they will be. COMMAND is what is
    launched, with {args} where the bundles' launch arguments belong. pre-commit's is for a
    bundle directory, and lints.

    \b
    Examples:
      patchkit hook systemd -- python -m sglang.launch_server {args} --tp 2
      patchkit hook slurm > patchkit-prolog.sh
    """
    if (image != "IMAGE" or volume is not None) and kind != "kubernetes":
        raise UsageError("--image and --volume are for kubernetes", hint="patchkit hook --help")
    session = Session(settings.options)
    if kind == "pre-commit":
        if bundles or command:
            raise UsageError("pre-commit takes no bundle and no command: it lints a directory")
        facts = Facts((*_program(),), linted=_linted(session))
    else:
        if kind in NEEDS_COMMAND and not command:
            raise UsageError(
                f"the snippet for {kind} takes the place of the image's command, so name it",
                hint=f"patchkit hook {kind} -- python -m sglang.launch_server {{args}}",
            )
        facts = _facts(session, bundles, command)._replace(image=image, volume=volume)
    for word in (*facts.patchkit, *facts.bundle_dir, *facts.bundles, *command, facts.linted):
        if not word.isprintable():
            raise Refused(
                f"{word!r} holds a character that no snippet should hold",
                code="unprintable",
                hint="give it another name",
            )
    text = KINDS[kind](facts)
    data = {
        "environment": session.described(),
        "kind": kind,
        "bundles": list(facts.bundles),
        "text": text,
    }
    return finish(
        settings,
        Report("hook", data, notes=session.notes, render=lambda *_: text.splitlines()),
    )


def _facts(session: Session, bundles: Sequence[str], command: Sequence[str]) -> Facts:
    state = session.home.read_state()
    applied = {} if state is None else {entry["name"]: entry for entry in state["bundles"]}
    if not applied:
        raise Refused(
            "nothing is applied here, so there is nothing to verify",
            code="nothing-applied",
            hint="patchkit apply BUNDLE",
        )
    for name in bundles:
        if name not in applied:
            raise Refused(
                f"{name} is not applied here",
                code="not-applied",
                hint=f"patchkit apply {name}",
            )
    env = session.env
    named = ("--root", env.site_packages) if env.python is None else ("--python", env.python)
    names = tuple(bundles) or tuple(applied)
    return Facts(
        (*_program(), *named),
        _bundle_dir(session),
        names,
        tuple(command),
        any(entry["profile"]["args"] for entry in applied.values()),
        prefix=_prefix(session),
    )


def _program() -> list[str]:
    """The running patchkit, by an absolute path: launchers have a ``PATH`` of their own."""
    program = os.path.join(os.path.dirname(sys.executable), "patchkit")
    return [program] if os.access(program, os.X_OK) else [sys.executable, "-m", "patchkit"]


def _bundle_dir(session: Session) -> tuple[str, ...]:
    """The option that finds the bundles again from another folder; none for the shipped ones."""
    options = session.options
    given = options.bundles or options.environ.get("PATCHKIT_BUNDLES") or ()
    several = [given] if isinstance(given, str) else list(given)
    if not several and session.folder == os.path.abspath(options.cwd):
        several = [session.folder]
    paths = [os.path.join(options.cwd, os.path.expanduser(one)) for one in several]
    found = [path if os.path.isdir(path) else one for path, one in zip(paths, several, strict=True)]
    return tuple(word for one in found for word in ("--bundles", one))


def _prefix(session: Session) -> str:
    """The folder that holds the whole environment."""
    python = session.env.python
    if python is None:
        return session.env.site_packages
    return os.path.dirname(os.path.dirname(os.path.abspath(python)))


def _linted(session: Session) -> str:
    """The bundle directory, from the top of its repository, where pre-commit runs its hooks."""
    folder = os.path.realpath(session.folder)
    top = folder
    while not os.path.lexists(os.path.join(top, ".git")):
        above = os.path.dirname(top)
        if above == top:
            raise Refused(
                f"{folder} is in no git repository, and pre-commit runs in one",
                code="no-repository",
                hint="name the bundle directory of the repository: --bundles DIR",
            )
        top = above
    return os.path.relpath(folder, top)
