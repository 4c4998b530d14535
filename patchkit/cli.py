"""The command line: parse, call one function, render.

Owns options, streams and exit codes.  Commands import what they need in their bodies, so
that ``verify`` starts fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from . import __version__
from .errors import PatchkitError, UsageError
from .session import Options, Report, translate

F = TypeVar("F", bound=Callable[..., Any])
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Settings:
    """What the options before the command say; those of the command may add to it."""

    def __init__(self) -> None:
        self.options = Options()
        self.json = False
        self.quiet = False
        self.verbose = False
        self.command: str | None = None


# The one place that outlives a click call: an error needs to know how to be shown.
_current = Settings()


def run(arguments: Sequence[str]) -> int:
    """The whole program; returns the exit code of the contract."""
    global _current
    _current = settings = Settings()
    # Known even where click stops before it sees the option.
    settings.json = "--json" in arguments
    try:
        return _guarded(list(arguments), settings)
    except BrokenPipeError:
        # The reader went away (| head): not an error, and nothing more to say.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        return 0


def _guarded(arguments: list[str], settings: Settings) -> int:
    try:
        code = main.main(
            args=arguments, prog_name="patchkit", standalone_mode=False, obj=settings
        )
        sys.stdout.flush()
        return int(code or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        hint = None
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"{error.ctx.command_path} --help"
        return _fail(UsageError(error.format_message(), hint=hint), settings)
    except PatchkitError as error:
        return _fail(error, settings)
    except (KeyboardInterrupt, click.Abort):
        from .errors import Interrupted

        return _fail(Interrupted(2), settings)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(translate(error), settings)
    except Exception:
        return _bug(settings)


def _fail(error: PatchkitError, settings: Settings) -> int:
    from .report import error_as_json, error_text

    if settings.json:
        _print_json(error_as_json(settings.command, error))
    _to_stderr(error_text(error))
    return error.exit_code


def _bug(settings: Settings) -> int:
    """A fault of patchkit itself: one line, and the details in a log."""
    import traceback

    details = traceback.format_exc()
    path = None
    for folder in _log_folders():
        try:
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"patchkit-{os.getpid()}.log")
            with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"patchkit {__version__}\n{sys.argv!r}\n{details}")
            break
        except OSError:
            path = None
    last = details.strip().splitlines()[-1]
    error = PatchkitError(
        f"a fault of patchkit itself: {last}" + ("" if path else f"\n{details}"),
        code="internal",
        hint=f"please report it, with {path}" if path else "please report it",
    )
    error.exit_code = 70
    return _fail(error, settings)


def _log_folders() -> list[str]:
    import tempfile

    folders = []
    if os.environ.get("XDG_STATE_HOME"):
        folders.append(os.path.join(os.environ["XDG_STATE_HOME"], "patchkit"))
    elif os.environ.get("HOME"):
        folders.append(os.path.join(os.environ["HOME"], ".local", "state", "patchkit"))
    folders.append(tempfile.gettempdir())
    return folders


# -- output -----------------------------------------------------------------------------


def _print_json(value: dict[str, Any]) -> None:
    import json

    _to_stdout(json.dumps(value, indent=2, ensure_ascii=True))


def _to_stdout(text: str) -> None:
    """Bytes that are no UTF-8 come out as they went in."""
    data = (text + "\n").encode("utf-8", "surrogateescape")
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _to_stderr(text: str) -> None:
    try:
        sys.stderr.buffer.write((text + "\n").encode("utf-8", "backslashreplace"))
        sys.stderr.buffer.flush()
    except (OSError, ValueError, AttributeError):
        return  # a closed standard error must not change the exit code


def _style(stream: Any) -> Callable[[str, str], str]:
    from .report import plain

    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return plain
    return lambda text, colour: click.style(text, fg=colour)


def _finish(settings: Settings, report: Report) -> int:
    """Show a report: JSON or text on standard output, remarks on standard error."""
    from . import report as rendering

    if settings.json:
        _print_json(rendering.as_json(report))
    elif not settings.quiet:
        text = rendering.text(report, _style(sys.stdout), verbose=settings.verbose)
        if text:
            _to_stdout(text)
    if not settings.quiet:
        for note in report.notes:
            _to_stderr(f"patchkit: {note}")
    return report.exit_code


def _progress(settings: Settings) -> Callable[[str, int, int], None]:
    if settings.quiet or not sys.stderr.isatty():
        return lambda what, done, total: None

    def show(what: str, done: int, total: int) -> None:
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r{what}: {done}/{total} files{end}")
        sys.stderr.flush()

    return show


# -- options ----------------------------------------------------------------------------


def _note_option(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def note(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            setattr(ctx.find_object(Settings) or _current, name, True)

    return note


def output_options(command: F) -> F:
    """``--json``, ``-q`` and ``-v``, which stand before or behind the command's name."""
    for flags, name, text in (
        (("-v", "--verbose"), "verbose", "Say more."),
        (("-q", "--quiet"), "quiet", "Print errors only."),
        (("--json",), "json", "Print one JSON object on standard output."),
    ):
        command = click.option(
            *flags, is_flag=True, expose_value=False, callback=_note_option(name), help=text
        )(command)
    return command


def _complete_bundle(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    from click.shell_completion import CompletionItem

    from .bundles import bundle_dir, list_names

    values = ctx.find_root().params
    try:
        folder = bundle_dir(values.get("bundles"), os.environ, os.getcwd())
        found = [n for n in list_names(folder) if n.startswith(incomplete)]
    except (PatchkitError, OSError):
        found = []
    items = [CompletionItem(name) for name in found]
    return items or [CompletionItem(incomplete, type="file")]


@click.group(context_settings=_CONTEXT)
@click.option(
    "--python",
    metavar="PATH",
    help="The environment to work on: an interpreter or a venv folder."
    " Else PATCHKIT_PYTHON, VIRTUAL_ENV, CONDA_PREFIX, or patchkit's own.",
)
@click.option("--root", metavar="DIR", help="A directory used as site-packages.")
@click.option(
    "--bundles",
    metavar="DIR",
    help="A directory with manifests/ and patches/. Else PATCHKIT_BUNDLES, the working"
    " directory if it has both, or the bundles that ship with patchkit.",
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
@click.version_option(__version__, prog_name="patchkit")
@click.pass_context
def main(
    ctx: click.Context,
    python: str | None,
    root: str | None,
    bundles: str | None,
    lock_timeout: float,
) -> None:
    """Apply versioned patch bundles to installed Python distributions, verify them, and
    take them back without a trace.

    \b
    Example:
      patchkit --python ~/sglang/.venv apply sm120-fusion
      patchkit --python ~/sglang/.venv verify
      patchkit --python ~/sglang/.venv revert --all
    """
    settings = ctx.find_object(Settings)
    assert settings is not None
    settings.command = ctx.invoked_subcommand
    settings.options = Options(python, root, bundles, lock_timeout, os.environ, os.getcwd())


# -- commands ---------------------------------------------------------------------------


@main.command("list")
@output_options
@click.pass_obj
def list_command(settings: Settings) -> int:
    """The bundles on offer, and what each means for this environment.

    \b
    Example:
      patchkit list
    """
    from .offers import list_bundles

    return _finish(settings, list_bundles(settings.options))


@main.command()
@click.argument("bundle", shell_complete=_complete_bundle)
@output_options
@click.pass_obj
def show(settings: Settings, bundle: str) -> int:
    """One bundle: variants, patches, assertions, profile.

    \b
    Example:
      patchkit show sm120-fusion
    """
    from .offers import show as show_bundle

    return _finish(settings, show_bundle(settings.options, bundle))


@main.command()
@click.option("--check", is_flag=True, help="Exit with 1 where there is a problem.")
@output_options
@click.pass_obj
def status(settings: Settings, check: bool) -> int:
    """The applied set of this environment, its fingerprint, and drift.

    \b
    Example:
      patchkit status --check
    """
    from .queries import status as read_status

    return _finish(settings, read_status(settings.options, check=check))


@main.command()
@click.argument("bundles", nargs=-1, shell_complete=_complete_bundle)
@output_options
@click.pass_obj
def diff(settings: Settings, bundles: tuple[str, ...]) -> int:
    """What applying BUNDLES would change; without names: pristine against now.

    \b
    Example:
      patchkit diff sm120-fusion
    """
    from .queries import diff as make_diff

    return _finish(settings, make_diff(settings.options, bundles))


@main.command()
@click.argument("bundles", nargs=-1, required=True, shell_complete=_complete_bundle)
@click.option("--dry-run", is_flag=True, help="Compute and check all, change nothing.")
@click.option(
    "--strip", type=click.IntRange(min=0), metavar="N", help="Path parts to drop (loose patch)."
)
@click.option("--reverse", is_flag=True, help="Apply a loose patch backwards.")
@output_options
@click.pass_obj
def apply(
    settings: Settings,
    bundles: tuple[str, ...],
    dry_run: bool,
    strip: int | None,
    reverse: bool,
) -> int:
    """Add BUNDLES to the applied set; all of them or, on any refusal, nothing.

    A name that ends in .patch or .diff is the path of a loose patch file.

    \b
    Examples:
      patchkit apply sm120-fusion nccl-tree
      patchkit apply --dry-run fix.patch
    """
    from .workflow import apply as apply_bundles

    report = apply_bundles(
        settings.options, bundles, dry_run=dry_run, strip=strip, reverse=reverse
    )
    report.data["dry_run"] = dry_run
    return _finish(settings, report)


@main.command()
@click.argument("bundles", nargs=-1, shell_complete=_complete_bundle)
@click.option("--all", "everything", is_flag=True, help="Take every bundle out.")
@click.option("--dry-run", is_flag=True, help="Compute and check all, change nothing.")
@output_options
@click.pass_obj
def revert(
    settings: Settings, bundles: tuple[str, ...], everything: bool, dry_run: bool
) -> int:
    """Take BUNDLES out of the applied set; with --all, everything.

    \b
    Example:
      patchkit revert --all
    """
    from .workflow import revert as revert_bundles

    if bool(bundles) == everything:
        raise UsageError(
            "name the bundles to revert, or give --all",
            hint="patchkit status shows what is applied",
        )
    report = revert_bundles(
        settings.options, bundles, everything=everything, dry_run=dry_run
    )
    report.data["dry_run"] = dry_run
    return _finish(settings, report)


@main.command()
@click.argument("bundles", nargs=-1, shell_complete=_complete_bundle)
@click.option(
    "--pristine",
    is_flag=True,
    help="Check instead that nothing is applied and every distribution that a bundle on"
    " offer targets matches its RECORD.",
)
@output_options
@click.pass_obj
def verify(settings: Settings, bundles: tuple[str, ...], pristine: bool) -> int:
    """Check that files are as recorded and all assertions hold; with names, that those
    BUNDLES are applied.  For pre-launch hooks: silent on success, exit code 1 otherwise.

    \b
    Example:
      patchkit verify sm120-fusion && exec python -m sglang.launch_server …
    """
    from . import queries

    if pristine and bundles:
        raise UsageError("--pristine takes no bundle names")
    if pristine:
        report = queries.verify_pristine(settings.options, _progress(settings))
    else:
        report = queries.verify(settings.options, bundles)
    if report.exit_code and not settings.quiet:
        from .report import problem_lines

        for line in problem_lines(report.data["problems"]):
            _to_stderr(line if line.startswith(" ") else f"patchkit: {line}")
    elif settings.verbose:
        from .report import verify_summary

        _to_stderr(f"patchkit: {verify_summary(report.data)}")
    if settings.json or (report.notes and not settings.quiet):
        return _finish(settings, report)
    return report.exit_code


@main.command()
@output_options
@click.pass_obj
def recover(settings: Settings) -> int:
    """Finish what an interrupted command left: exactly the old or the new contents.

    \b
    Example:
      patchkit recover
    """
    from .workflow import recover as recover_environment

    return _finish(settings, recover_environment(settings.options))


@main.command()
@click.argument("bundles", nargs=-1, shell_complete=_complete_bundle)
@click.option("--update-lock", is_flag=True, help="Write the locks of the patch files anew.")
@output_options
@click.pass_obj
def lint(settings: Settings, bundles: tuple[str, ...], update_lock: bool) -> int:
    """A bundle directory's own consistency: manifests, patches, locks.

    \b
    Example:
      patchkit --bundles . lint --update-lock sm120-fusion
    """
    from .linting import lint as lint_bundles

    return _finish(settings, lint_bundles(settings.options, bundles, update_lock=update_lock))
