"""What every way into the program shares: streams, errors, exit codes.

Owns how results and failures are shown.  Imports no click, so that the guard of a launch
(:mod:`commands`) starts fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from . import __version__
from .errors import Fault, Interrupted, PatchkitError
from .fsio import discard, write_log
from .session import Options, Report, translate


class Settings:
    """What the options before the command say; those of the command may add to it."""

    def __init__(self) -> None:
        self.options = Options()
        self.json = False
        self.quiet = False
        self.verbose = False
        self.command: str | None = None


def working_directory() -> str:
    """The working directory; empty where it was removed, since absolute paths need none."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def guarded(settings: Settings, action: Callable[[], int]) -> int:
    """Run a command; what it raises becomes a message and the exit code of the contract."""
    try:
        code = action()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except PatchkitError as error:
        return fail(error, settings)
    except KeyboardInterrupt:
        return fail(Interrupted(2), settings)
    except BrokenPipeError:
        discard(sys.stdout.fileno())
        return 0
    except OSError as error:
        return fail(translate(error), settings)
    except Exception:  # noqa: BLE001 - the last resort: exit code 70 and a log
        return _bug(settings)


def fail(error: PatchkitError, settings: Settings) -> int:
    """Show an error; returns its exit code."""
    from .report import error_as_json, error_text

    if settings.json:
        environment = settings.options.noted.get("environment")
        try:
            print_json(error_as_json(settings.command, error, environment))
        except Fault as second:
            to_stderr(error_text(second))
    to_stderr(error_text(error))
    return error.exit_code


def _bug(settings: Settings) -> int:
    """A fault of patchkit itself: one line, and the details in a log."""
    import traceback

    details = traceback.format_exc()
    text = f"patchkit {__version__}\n{sys.argv!r}\n{details}"
    path = write_log(_log_folders(), f"patchkit-{os.getpid()}.log", text)
    last = details.strip().splitlines()[-1]
    error = PatchkitError(
        f"a fault of patchkit itself: {last}" + ("" if path else f"\n{details}"),
        code="internal",
        hint=f"please report it, with {path}" if path else "please report it",
    )
    error.exit_code = 70
    return fail(error, settings)


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


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on standard output, in ASCII."""
    import json

    to_stdout(json.dumps(value, indent=2, ensure_ascii=True))


def to_stdout(text: str) -> None:
    """Bytes that are no UTF-8 come out as they went in."""
    try:
        data = (text + "\n").encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a pair, as JSON can hold one
        data = (text + "\n").encode("utf-8", "backslashreplace")
    if sys.stdout is None:  # started with a closed standard output (>&-)
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader went away (| head): no error, and nothing more to say.  Caught here,
        # since click would make exit code 1 of it.
        discard(sys.stdout.fileno())
    except OSError as error:
        raise Fault(f"the output cannot be written: {error.strerror}", code="output") from None


def to_stderr(text: str) -> None:
    """A line for the person, whatever its bytes."""
    try:
        sys.stderr.buffer.write((text + "\n").encode("utf-8", "backslashreplace"))
        sys.stderr.buffer.flush()
    except (OSError, ValueError, AttributeError):
        return  # a closed standard error must not change the exit code


def _style(stream: Any) -> Callable[[str, str], str]:
    from .report import plain

    if (
        stream is None
        or os.environ.get("NO_COLOR")
        or os.environ.get("TERM") == "dumb"
        or not stream.isatty()
    ):
        return plain
    return lambda text, colour: f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


# The codes of ECMA-48 (SGR).
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36}


def finish(settings: Settings, report: Report) -> int:
    """Show a report: JSON or text on standard output, remarks on standard error."""
    signals = settings.options.signals
    try:
        if signals is None:
            _show(settings, report)
        else:
            with signals.at_once():
                _show(settings, report)
    except (Fault, Interrupted) as error:
        if not report.changed:
            raise
        # What was done stays done, so the exit code cannot say that nothing changed.
        why = f"{error.signal} cut its output short" if isinstance(error, Interrupted) else error
        report.notes.append(f"{report.command} is done, but {why}")
        discard(sys.stdout.fileno())
    if not settings.quiet:
        for note in report.notes:
            to_stderr(f"patchkit: {note}")
    return report.exit_code


def _show(settings: Settings, report: Report) -> None:
    from . import report as rendering

    if settings.json:
        print_json(rendering.as_json(report))
    elif not settings.quiet:
        text = rendering.text(report, _style(sys.stdout), verbose=settings.verbose)
        if text:
            to_stdout(text)


def progress(settings: Settings) -> Callable[[str, int, int], None]:
    """A function (what, done, total) that shows how far long work is, on a terminal only."""
    if settings.quiet or sys.stderr is None or not sys.stderr.isatty():
        return lambda what, done, total: None

    def show(what: str, done: int, total: int) -> None:
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r{what}: {done}/{total} files{end}")
        sys.stderr.flush()

    return show
