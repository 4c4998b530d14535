"""``verify``, ``run``, ``apply`` and ``revert`` as commands, and the short way to them.

Owns what launch hooks and scripts run: with the options that those use, :func:`short_way`
gets there without importing click, which would cost more than most of the work.  Every other
command line goes through click, and to the same functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .console import Settings, finish, guarded, progress, to_stderr, working_directory
from .errors import UsageError
from .session import Options, Report

if TYPE_CHECKING:
    from .launch.run import Wishes

_OUTPUT = {
    "--json": "json",
    "-q": "quiet",
    "--quiet": "quiet",
    "-v": "verbose",
    "--verbose": "verbose",
}
_VALUES = ("--python", "--root", "--bundles")
#: The options of each command that the short way knows.
_FLAGS = {
    "verify": {},
    "apply": {
        "-n": "dry_run",
        "--dry-run": "dry_run",
        "--while-running": "while_running",
    },
    "revert": {
        "-n": "dry_run",
        "--dry-run": "dry_run",
        "--while-running": "while_running",
        "--all": "everything",
        "--forget": "forget",
    },
}


def apply(
    settings: Settings,
    names: Sequence[str],
    *,
    dry_run: bool = False,
    strip: int | None = None,
    reverse: bool = False,
    eol: bool = False,
    while_running: bool = False,
) -> int:
    """Add bundles or loose patches; show what was done."""
    settings.options.while_running = while_running

    def run() -> Report:
        from .series import Way
        from .workflow import apply as apply_bundles

        way = Way(strip, reverse, eol)
        dead_end = None if dry_run else _dead_end(settings, names)
        report = apply_bundles(settings.options, names, dry_run=dry_run, way=way)
        report.data["dry_run"] = dry_run
        report.data["dead_end"] = dead_end
        return report

    return _changing(settings, "apply", run)


def _dead_end(settings: Settings, names: Sequence[str]) -> dict[str, Any] | None:
    """What a trial of this set found, said before it is applied, where it found a dead end."""
    options = settings.options
    places = [options.bundles] if isinstance(options.bundles, str) else list(options.bundles or ())
    places = places or [options.environ.get("PATCHKIT_BUNDLES") or ""]
    if not options.environ.get("PATCHKIT_TRIALS") and not any(
        os.path.isdir(os.path.join(options.cwd, place, "trials")) for place in places
    ):
        return None  # nothing was ever tried: that must cost nothing
    from .trials.deadends import before_apply, line

    found = before_apply(settings.options, names)
    if found is not None and not settings.quiet:
        to_stderr(f"patchkit: {line(found)}")
    return found


def revert(
    settings: Settings,
    names: Sequence[str],
    *,
    everything: bool = False,
    dry_run: bool = False,
    forget: bool = False,
    while_running: bool = False,
) -> int:
    """Take bundles out; show what was done."""
    settings.options.while_running = while_running

    def run() -> Report:
        from .workflow import revert as revert_bundles

        report = revert_bundles(
            settings.options, names, everything=everything, dry_run=dry_run, forget=forget
        )
        report.data["dry_run"] = dry_run
        return report

    settings.command = "revert"
    if bool(names) == everything:
        raise UsageError(
            "name the bundles to revert, or give --all",
            hint="patchkit status shows what is applied",
        )
    return _changing(settings, "revert", run)


def recover(settings: Settings) -> int:
    """Finish what an interrupted command left; show what was done."""

    def run() -> Report:
        from .workflow import recover as recover_environment

        return recover_environment(settings.options)

    return _changing(settings, "recover", run)


def _changing(settings: Settings, command: str, run: Callable[[], Report]) -> int:
    """A command that changes something: its signals are held to the end of its output, so that
    its exit code says what was done."""
    from .signals import held

    settings.command = command
    with held(last=True) as signals:
        settings.options.signals = signals
        report = run()
        signals.done = report.changed
        return finish(settings, report)


def verify(settings: Settings, names: Sequence[str], *, pristine: bool = False) -> int:
    """Check and say what is wrong on standard error; nothing there on success but for -v."""
    from . import queries

    settings.command = "verify"
    if pristine and names:
        raise UsageError("--pristine takes no bundle names", hint="patchkit verify --help")
    if pristine:
        report = queries.verify_pristine(settings.options, progress(settings))
    else:
        report = queries.verify(settings.options, names)
    return _verdict(settings, report)


def _verdict(settings: Settings, report: Report) -> int:
    """What ``verify`` found, on standard error."""
    if report.exit_code and not settings.quiet:
        from .report import problem_lines

        for line in problem_lines(report.data["problems"]):
            to_stderr(line if line.startswith(" ") else f"patchkit: {line}")
    elif settings.verbose and not settings.quiet:
        from .report import verify_summary

        to_stderr(f"patchkit: {verify_summary(report.data)}")
    if settings.json or report.notes:
        return finish(settings, report)
    return report.exit_code


def run(settings: Settings, command: Sequence[str], wishes: Wishes) -> int:
    """Verify, then become the command; returns only where that is not to be, or with the
    ``dry_run`` that shows it."""
    from .launch.run import lines, prepare, start

    settings.command = "run"
    ready = prepare(settings.options, command, wishes)
    report = ready.report
    if report.exit_code:
        return _verdict(settings, report)
    if wishes.dry_run:
        report.render = lambda data, style, verbose: lines(data)
        return finish(settings, report)
    if not settings.quiet:
        for note in report.notes:
            to_stderr(f"patchkit: {note}")
    try:
        start(ready, os.environ)
    finally:
        ready.joined.leave()
    return 70  # it is another program by now


def _run_shortly(settings: Settings, words: Sequence[str]) -> Callable[[], int] | None:
    """``run`` by what stands behind that word; None where click must look."""
    if "--" not in words:
        return None
    from .launch.run import Wishes

    end = words.index("--")
    flags: dict[str, tuple[str, Any]] = {
        "--ensure": ("ensure", True),
        "--append-args": ("arguments", "append"),
        "--no-args": ("arguments", "drop"),
        **dict.fromkeys(("-n", "--dry-run"), ("dry_run", True)),
    }
    wishes: dict[str, Any] = {}
    rest = iter(words[:end])
    for word in rest:
        if word in _OUTPUT:
            setattr(settings, _OUTPUT[word], True)
        elif word in flags:
            name, value = flags[word]
            if wishes.get(name, value) != value:
                return None
            wishes[name] = value
        elif word in ("--bundle", "--env"):
            given = next(rest, None)
            if given is None or given.startswith("-"):
                return None
            name = "bundles" if word == "--bundle" else "given"
            wishes[name] = (*wishes.get(name, ()), given)
        else:
            return None
    command = words[end + 1 :]
    return lambda: run(settings, command, Wishes(**wishes))


def short_way(arguments: Sequence[str]) -> int | None:
    """The exit code of a plain ``[options] COMMAND [options] [NAME…]``; None where click
    must look at the command line (help, completion, unusual spellings, errors)."""
    settings = Settings()
    values: dict[str, str] = {}
    bundles: list[str] = []
    flags: dict[str, bool] = {}
    names: list[str] = []
    command = None
    rest = iter(arguments)
    running: Callable[[], int] | None = None
    for word in rest:
        if word in _OUTPUT:
            setattr(settings, _OUTPUT[word], True)
        elif word in _VALUES and command is None:
            value = next(rest, None)
            if value is None or value.startswith("-"):
                return None
            if word == "--bundles":
                bundles.append(value)
            values[word] = value
        elif command is not None and word in _FLAGS[command]:
            flags[_FLAGS[command][word]] = True
        elif word.startswith("-"):
            return None
        elif command is not None:
            names.append(word)
        elif word in _FLAGS:
            command = word
        elif word == "run":
            running = _run_shortly(settings, list(rest))
            if running is None:
                return None
        else:
            return None
    if "_PATCHKIT_COMPLETE" in os.environ:
        return None
    if running is None and (command is None or (command == "apply" and not names)):
        return None
    settings.options = Options(
        values.get("--python"),
        values.get("--root"),
        bundles or None,
        environ=os.environ,
        cwd=working_directory(),
    )
    if running is not None:
        return guarded(settings, running)
    commands: dict[str, Callable[..., int]] = {"verify": verify, "apply": apply, "revert": revert}
    chosen = commands[str(command)]
    return guarded(settings, lambda: chosen(settings, names, **flags))
