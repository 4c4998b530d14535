"""``verify`` as a command, and the short way to it.

Owns what a launch hook runs: with the options that hooks use, :func:`short_way` gets
there without importing click, which would cost more than all the checking.  Every other
command line goes through click, and to the same :func:`verify`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from .console import Settings, finish, guarded, progress, to_stderr, working_directory
from .errors import UsageError
from .session import Options

_FLAGS = {
    "--json": "json",
    "-q": "quiet",
    "--quiet": "quiet",
    "-v": "verbose",
    "--verbose": "verbose",
}
_VALUES = ("--python", "--root", "--bundles")


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


def short_way(arguments: Sequence[str]) -> int | None:
    """The exit code of a plain ``[options] verify [options] [NAME…]``; None where click
    must look at the command line (help, completion, unusual spellings, errors)."""
    settings = Settings()
    values: dict[str, str] = {}
    names: list[str] = []
    command = None
    rest = iter(arguments)
    for word in rest:
        if word in _FLAGS:
            setattr(settings, _FLAGS[word], True)
        elif word in _VALUES and command is None:
            value = next(rest, None)
            if value is None or value.startswith("-"):
                return None
            values[word] = value
        elif word.startswith("-"):
            return None
        elif command is None:
            command = word
        else:
            names.append(word)
    if command != "verify" or "_PATCHKIT_COMPLETE" in os.environ:
        return None
    settings.options = Options(
        values.get("--python"),
        values.get("--root"),
        values.get("--bundles"),
        environ=os.environ,
        cwd=working_directory(),
    )
    return guarded(settings, lambda: verify(settings, names))
