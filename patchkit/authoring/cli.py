"""The commands of authoring: parse, call one function, render."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from patchkit.console import Settings as Console
from patchkit.console import finish, to_stderr
from patchkit.model import Assertion
from patchkit.options import common_options, complete_bundle, dry_run_option
from patchkit.releases.cli import settings_of, source_options
from patchkit.writing import manifests

F = TypeVar("F", bound=Callable[..., Any])

_assert_option = click.option(
    "--assert/--no-assert",
    "asserts",
    default=None,
    help="Write the suggested assertions into the manifest (on a terminal you are asked).",
)
_message_option = click.option(
    "-m", "--message", metavar="TEXT", help="What it is for: a line, and more lines if need be."
)
_author_option = click.option(
    "--author", metavar="NAME <ADDRESS>", help="Who made it. Else whom git's configuration names."
)


def _confirm(console: Console, asserts: bool | None) -> Callable[[list[Assertion]], bool] | None:
    """Asks about the assertions on a terminal, where no option says it."""
    if asserts is not None or console.json or console.quiet:
        return None
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        return None

    def ask(found: list[Assertion]) -> bool:
        to_stderr("\n".join(manifests.assertion_table(one) for one in found))
        return click.confirm("Write these assertions into the manifest?", default=True, err=True)

    return ask


def _text(data: dict[str, Any], style: Callable[[str, str], str], verbose: bool) -> list[str]:
    colours = {"added": "green", "deleted": "red"}
    lines = [
        f"{style(one['change'].ljust(8), colours.get(one['change'], 'yellow'))} {one['path']}"
        for one in data.get("captured", [])
    ]
    wrote, removed = (
        ("would write", "would remove") if data.get("dry_run") else ("wrote", "removed")
    )
    lines += [f"{wrote} {path}" for path in data.get("written", [])]
    lines += [f"{removed} {path}" for path in data.get("removed", [])]
    if data.get("asserts"):
        lines += ["", "new assertions of the manifest, tried on the files before and after:"]
    for one in data.get("asserts", []):
        lines += ["", *one["lines"]]
    if "captured" in data:
        lines += [""] if data.get("asserts") else []
        would = "would be " * bool(data.get("dry_run"))
        lines.append(f"{would}recorded as applied: {data['bundle']}")
        lines.append(f"fingerprint: {data['fingerprint'][:16]}")
    return lines


@click.command()
@click.argument("name")
@click.argument("distributions", nargs=-1, metavar="[DIST…]")
@_message_option
@_author_option
@click.option("--one-per-file", is_flag=True, help="A patch of its own for each file.")
@_assert_option
@dry_run_option
@source_options
@common_options
@click.pass_obj
def capture(
    console: Console,
    /,
    name: str,
    distributions: tuple[str, ...],
    message: str | None,
    author: str | None,
    one_per_file: bool,
    asserts: bool | None,
    dry_run: bool,
    **given: Any,
) -> int:
    """Make the bundle NAME of the edits made by hand in this environment. The files stay as
    they are; afterwards they count as patched by NAME, so that verify guards them and revert
    brings the release back.

    An edit is what differs from RECORD (in a git checkout: from HEAD), or from what the
    applied bundles left there; new files in the packages count, byte-code and what editors
    leave behind do not. Without DIST the distributions that bundles on offer are for, and
    those that are patched, are looked at. The pristine bytes come from the cache, a folder of
    wheels, or the index.

    \b
    Examples:
      patchkit --bundles mine capture faster-start sglang -m 'Skip the warm-up'
      patchkit --bundles mine capture faster-start --dry-run
    """
    from .capture import capture as run

    report = run(
        console.options,
        settings_of(console, given),
        name,
        distributions,
        message=message,
        author=author,
        one_per_file=one_per_file,
        with_asserts=asserts is not False,
        confirm=_confirm(console, asserts),
        dry_run=dry_run,
    )
    report.data["dry_run"] = dry_run
    report.render = _text
    return finish(console, report)


_release_option = click.option(
    "--release",
    metavar="DIST==VERSION",
    help="The release that it is for. Else the installed one.",
)


@click.command()
@click.argument("name")
@click.option(
    "--distribution",
    "distributions",
    multiple=True,
    metavar="DIST",
    help="What it will patch (repeatable): sketched in the manifest, with the installed release.",
)
@_message_option
@dry_run_option
@common_options
@click.pass_obj
def new(
    console: Console,
    /,
    name: str,
    distributions: tuple[str, ...],
    message: str | None,
    dry_run: bool,
) -> int:
    """A manifest to fill in: what only the author can say is left open, the rest is there as
    comments.

    \b
    Example:
      patchkit --bundles mine new faster-start --distribution sglang
    """
    from .skeleton import new as run

    report = run(console.options, name, distributions, message=message, dry_run=dry_run)
    report.render = _text
    return finish(console, report)


@click.command("import")
@click.argument("source")
@click.option("--name", metavar="NAME", help="The bundle's name. Else after the source.")
@_release_option
@click.option("--one-per-file", is_flag=True, help="A patch of its own for each file.")
@click.option("--join", is_flag=True, help="All in one patch.")
@_message_option
@_author_option
@_assert_option
@dry_run_option
@source_options
@common_options
@click.pass_obj
def import_(
    console: Console, /, source: str, asserts: bool | None, dry_run: bool, **given: Any
) -> int:
    """Make a bundle of the patches of SOURCE: a patch file, a mailbox (a pull request's .patch),
    a folder of patches (by quilt's series file, if it has one), or commits of a checkout
    (FOLDER@FROM..TO).

    The paths are mapped onto the release; each patch must go on as it is, and is written anew
    with its author, date, subject and DEP-3 fields. Files that the release does not hold
    (tests, docs) are left out and said. A bundle that is there gets a variant for the release,
    if it has none.

    \b
    Examples:
      patchkit --bundles mine import 12345.patch --name faster-start
      patchkit --bundles mine import ~/sglang@v0.5.9..fix --release sglang==0.5.9
    """
    from .importing import import_patches

    settings = settings_of(console, given)
    report = import_patches(
        console.options,
        settings,
        source,
        with_asserts=asserts is not False,
        confirm=_confirm(console, asserts),
        dry_run=dry_run,
        **given,
    )
    settings.store.tidy()
    report.render = _text
    return finish(console, report)


@click.command()
@click.argument("bundle", shell_complete=complete_bundle)
@click.argument("file")
@click.argument("expression", metavar="'s/OLD/NEW/'")
@_release_option
@_message_option
@_author_option
@_assert_option
@dry_run_option
@source_options
@common_options
@click.pass_obj
def sed(
    console: Console,
    /,
    bundle: str,
    file: str,
    expression: str,
    asserts: bool | None,
    dry_run: bool,
    **given: Any,
) -> int:
    """Make a substitution in one FILE of the release a patch of BUNDLE, with the assertions
    that the old text is gone and the new one is there, in code and in the def around it. The
    environment is not changed. A bundle that is not there is made.

    The expression is Python's (re), at every line: 's/OLD/NEW/' for the one match there is,
    'g' behind it for all, 'i' for any case.

    \b
    Example:
      patchkit --bundles mine sed open-gate flashinfer/jit/comm.py 's/\\[9, 10\\]/[9, 10, 12]/'
    """
    from .substitute import sed as run

    settings = settings_of(console, given)
    report = run(
        console.options,
        settings,
        bundle,
        file,
        expression,
        with_asserts=asserts is not False,
        confirm=_confirm(console, asserts),
        dry_run=dry_run,
        **given,
    )
    settings.store.tidy()
    report.render = _text
    return finish(console, report)


@click.command()
@click.argument("bundle", shell_complete=complete_bundle)
@_release_option
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="GLOB",
    help="Further files of the release to have there (repeatable).",
)
@click.option("--editor", is_flag=True, help="Open the folder with $VISUAL or $EDITOR.")
@click.option("--no-shell", is_flag=True, help="Only say where the folder is.")
@click.option("--discard", is_flag=True, help="Take the work tree away, with what is in it.")
@dry_run_option
@source_options
@common_options
@click.pass_obj
def edit(
    console: Console,
    /,
    bundle: str,
    release: str | None,
    files: tuple[str, ...],
    editor: bool,
    no_shell: bool,
    discard: bool,
    dry_run: bool,
    **given: Any,
) -> int:
    """Lay the patches of BUNDLE out as the commits of a git work tree of the pristine files,
    and start a shell there (on a terminal). Change, reorder or add commits with git as you
    like, and write them back with patchkit refresh.

    The work tree lies in the bundle directory, under .edit, until --discard; the same command
    goes on with it.

    \b
    Examples:
      patchkit --bundles mine edit faster-start
      patchkit --bundles mine edit faster-start --no-shell --file 'sglang/srt/*.py'
    """
    from .worktree import edit as run

    settings = settings_of(console, given)
    report = run(
        console.options,
        settings,
        bundle,
        release=release,
        files=files,
        discard=discard,
        opener=_opener(console, editor=editor, no_shell=no_shell),
        dry_run=dry_run,
    )
    settings.store.tidy()
    report.render = _place_text
    return finish(console, report)


def _opener(console: Console, *, editor: bool, no_shell: bool) -> Callable[[str], list[str]] | None:
    environ = console.options.environ
    if editor:
        command = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
        return lambda path: [*shlex.split(command), path]
    if no_shell or console.json or not (sys.stdin and sys.stdin.isatty()):
        return None
    return lambda path: [environ.get("SHELL") or "/bin/sh"]


def _place_text(data: dict[str, Any], style: Callable[[str, str], str], verbose: bool) -> list[str]:
    return [data["work_tree"]] if data.get("work_tree") else []


def _series_text(
    data: dict[str, Any], style: Callable[[str, str], str], verbose: bool
) -> list[str]:
    colours = {"new": "green", "changed": "yellow"}
    lines = []
    for one in data.get("series", []):
        word = one["state"].ljust(8)
        shown = style(word, colours[one["state"]]) if one["state"] in colours else word
        lines.append(f"{shown} {one['path']}")
    return [*lines, *_text(data, style, verbose)]


@click.command()
@click.argument("bundle", shell_complete=complete_bundle)
@_assert_option
@dry_run_option
@source_options
@common_options
@click.pass_obj
def refresh(
    console: Console, /, bundle: str, asserts: bool | None, dry_run: bool, **given: Any
) -> int:
    """Write the commits that patchkit edit laid out, as they are now, back as the patches of
    BUNDLE. A patch that was not touched stays as it is, byte for byte; one that was keeps its
    head; a new commit becomes a new patch.

    \b
    Example:
      patchkit --bundles mine refresh faster-start
    """
    from .worktree import refresh as run

    settings = settings_of(console, given)
    report = run(
        console.options,
        settings,
        bundle,
        with_asserts=asserts is not False,
        confirm=_confirm(console, asserts),
        dry_run=dry_run,
    )
    settings.store.tidy()
    report.render = _series_text
    return finish(console, report)


@click.command()
@click.argument("bundle", shell_complete=complete_bundle)
@click.argument("patches", nargs=-1, required=True, metavar="PATCH PATCH…")
@_release_option
@_message_option
@dry_run_option
@source_options
@common_options
@click.pass_obj
def fold(
    console: Console, /, bundle: str, patches: tuple[str, ...], release: str | None, **given: Any
) -> int:
    """Make one patch of several of BUNDLE that follow each other. A PATCH is named by its file
    name or its number; the first one keeps its name and head.

    \b
    Example:
      patchkit --bundles mine fold faster-start 1 2
    """
    from .ordering import fold as run

    message, dry_run = given.pop("message"), given.pop("dry_run")
    settings = settings_of(console, given)
    report = run(
        console.options,
        settings,
        bundle,
        patches,
        release=release,
        message=message,
        dry_run=dry_run,
    )
    report.render = _text
    return finish(console, report)


@click.command()
@click.argument("bundle", shell_complete=complete_bundle)
@click.argument("patch")
@_release_option
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="GLOB",
    help="These files first, the rest in a patch behind (repeatable). Else one a file.",
)
@dry_run_option
@source_options
@common_options
@click.pass_obj
def split(
    console: Console,
    /,
    bundle: str,
    patch: str,
    release: str | None,
    files: tuple[str, ...],
    dry_run: bool,
    **given: Any,
) -> int:
    """Make several patches of one PATCH of BUNDLE: one a file, or those files that --file names
    and the rest.

    \b
    Example:
      patchkit --bundles mine split faster-start 1 --file '*/server_args.py'
    """
    from .ordering import split as run

    settings = settings_of(console, given)
    report = run(
        console.options,
        settings,
        bundle,
        patch,
        files=files,
        release=release,
        dry_run=dry_run,
    )
    report.render = _text
    return finish(console, report)


@click.command()
@click.argument("bundle", shell_complete=complete_bundle)
@click.argument("patch")
@click.argument("new")
@dry_run_option
@common_options
@click.pass_obj
def rename(console: Console, /, bundle: str, patch: str, new: str, dry_run: bool) -> int:
    """Give a PATCH of BUNDLE the file name NEW, in every variant that names it.

    \b
    Example:
      patchkit --bundles mine rename faster-start 1 0001-skip-the-warm-up
    """
    from .ordering import rename as run

    report = run(console.options, bundle, patch, new, dry_run=dry_run)
    report.render = _text
    return finish(console, report)


@click.command()
@click.argument("bundle", shell_complete=complete_bundle)
@click.argument("patches", nargs=-1, required=True, metavar="PATCH…")
@_release_option
@dry_run_option
@source_options
@common_options
@click.pass_obj
def delete(
    console: Console,
    /,
    bundle: str,
    patches: tuple[str, ...],
    release: str | None,
    dry_run: bool,
    **given: Any,
) -> int:
    """Take PATCHES out of BUNDLE. Those that stay must go on without them; assertions that do
    not hold without them go, too, unless another variant needs them.

    \b
    Example:
      patchkit --bundles mine delete faster-start 2
    """
    from .ordering import delete as run

    settings = settings_of(console, given)
    report = run(console.options, settings, bundle, patches, release=release, dry_run=dry_run)
    report.render = _text
    return finish(console, report)
