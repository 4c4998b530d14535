"""A context made, compared with its folder, and written; and compared with an image's
environment, from within.

Owns what the two reports say.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from patchkit.errors import Refused, UsageError
from patchkit.fsio import read_plain
from patchkit.session import Options, Report, Session

from . import context, output
from .dockerfile import PLACE, Recipe, ignore, render
from .packing import DISTRIBUTION, own_wheel

#: One word of a Dockerfile that no engine takes for anything else.
_SHAPES = {
    "--from": re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*"),
    "--image-python": re.compile(r"[A-Za-z0-9_./+-]+"),
    "--user": re.compile(r"[A-Za-z0-9_.:-]+"),
}


class Wishes(NamedTuple):
    """What the command line asks for; paths are of the working directory."""

    folder: str
    base: str
    python: str = "python3"
    user: str | None = None
    bundles: tuple[str, ...] = ()
    project: str | None = None
    wheels: tuple[str, ...] = ()
    requirement: str | None = None
    command: tuple[str, ...] = ()
    compare: bool = True
    check: bool = False


def bake(options: Options, wishes: Wishes) -> Report:
    """Make the context and write what differs; with ``check``, only say what would."""
    given = {"--from": wishes.base, "--image-python": wishes.python, "--user": wishes.user}
    for option, text in given.items():
        if text is not None and not _SHAPES[option].fullmatch(text):
            raise UsageError(
                f"{option}: {text!r} is no such name",
                hint="letters, digits, and what stands between them in a name",
            )
    wheels = {} if wishes.requirement is not None else _wheels(wishes.wheels, options.cwd)
    gathered = _gathered(options, wishes)
    for word in (*gathered.recorded, *wishes.command):
        if not word.isprintable():
            raise Refused(
                f"{word!r} holds a character that no Dockerfile should hold",
                code="unprintable",
                hint="give it another name",
            )
    recipe = Recipe(
        wishes.base,
        wishes.python,
        _requirement(wishes.requirement, wheels),
        tuple(gathered.recorded),
        gathered.has_args,
        wishes.user,
        wishes.command,
    )
    files = {
        **gathered.files,
        **{f"wheels/{name}": data for name, data in wheels.items()},
        "pyproject.toml": context.pyproject(gathered.names),
        "Dockerfile": render(recipe).encode("utf-8"),
        ".dockerignore": ignore().encode("ascii"),
    }
    files[output.RECORD] = output.record(files, gathered.bundles, gathered.expected)
    changes = output.changes(wishes.folder, files, only_look=wishes.check)
    if changes and not wishes.check:
        output.write(wishes.folder, changes)
    expected = gathered.expected
    data = {
        "environment": gathered.environment,
        "output": wishes.folder,
        "check": wishes.check,
        "up_to_date": not changes,
        "bundles": [name for name, _ in gathered.bundles],
        "expected": None if expected is None else expected._asdict(),
        "changes": [
            {"path": path, "change": "removed" if new is None else "written"}
            for path, new in sorted(changes.items())
        ],
    }
    return Report(
        "bake",
        data,
        exit_code=1 if wishes.check and changes else 0,
        notes=gathered.notes,
        changed=bool(changes) and not wishes.check,
        render=_lines,
    )


def compare_installed(options: Options, folder: str) -> Report:
    """Whether this environment carries the set of a context with the fingerprint that it had
    where it was baked.  Another release is no failure: it is said."""
    expected = output.read_record(folder)["expected"]
    session = Session(options)
    state = session.home.read_state()
    found = None if state is None else state["fingerprint"]
    data = {
        "environment": session.described(),
        "output": folder,
        "expected": expected,
        "fingerprint": found,
        "same": None if expected is None else found == expected["fingerprint"],
    }
    shown = (found or "none")[:16]
    report = Report("bake", data, render=lambda *_: [f"fingerprint: {shown}"])
    if expected is None:
        report.notes.append("the context names no fingerprint to compare with")
    elif not data["same"]:
        were = expected["releases"]
        now = context.releases(session.env, were)
        data["releases"] = now
        others = [
            f"{name} {now.get(name, '(not installed)')} where {were[name]} was"
            for name in were
            if now.get(name) != were[name]
        ]
        known = (expected["fingerprint"] or "none")[:16]
        if others:
            report.notes.append(
                f"the image has {', '.join(others)}, so its fingerprint is {shown} and not {known}"
            )
        else:
            report.exit_code = 1
            report.notes.append(
                f"the image comes to fingerprint {shown}, the context says {known}, for the same"
                " releases: their files differ, or the context was not baked for this set;"
                " see patchkit status --json in both"
            )
    return report


def _gathered(options: Options, wishes: Wishes) -> context.Gathered:
    names: Sequence[str] = wishes.bundles
    if wishes.project is not None:
        from patchkit.launch.project import find_project
        from patchkit.launch.sync import settle

        project = find_project(os.path.join(options.cwd, wishes.project))
        settle(options, project)
        names = project.bundles
        if not names:
            raise Refused(
                f"{project.file} names no bundle",
                code="nothing-applied",
                hint="name those of the image there, or by --bundle NAME",
            )
    if names:
        return context.named(options, names, compare=wishes.compare)
    found = context.applied(options)
    return found if wishes.compare else found._replace(expected=None)


def _wheels(given: Sequence[str], cwd: str) -> dict[str, bytes]:
    """The wheels of the context by file name, patchkit's own first."""
    if not given:
        name, data = own_wheel()
        return {name: data}
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    own: dict[str, bytes] = {}
    others: dict[str, bytes] = {}
    for path in given:
        name = os.path.basename(path)
        try:
            of = parse_wheel_filename(name)[0]
            data = read_plain(os.path.join(cwd, os.path.expanduser(path)))
        except (InvalidWheelFilename, OSError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise Refused(
                f"--wheel {path}: {why}", code="no-wheel", hint="name a .whl file"
            ) from None
        (own if of == DISTRIBUTION else others)[name] = data
    if len(own) != 1:
        raise Refused(
            f"--wheel: {len(own)} of these are wheels of {DISTRIBUTION}, and it takes one",
            code="no-wheel",
            hint="name its wheel, with or without those that it needs; without --wheel one is made"
            " of the patchkit that runs here",
        )
    return {**own, **dict(sorted(others.items()))}


def _requirement(given: str | None, wheels: dict[str, bytes]) -> tuple[str, ...]:
    """What pip is given: the context's wheel, alone or with all that it needs."""
    if given is None:
        first = f"{PLACE}/wheels/{next(iter(wheels))}"
        if len(wheels) == 1:
            return (first,)
        return ("--no-index", "--find-links", f"{PLACE}/wheels", first)
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        parsed = Requirement(given)
    except InvalidRequirement as error:
        raise UsageError(f"--requirement: {error}", hint=f"{DISTRIBUTION}==VERSION") from None
    pinned = parsed.url is not None or any(
        one.operator in ("==", "===") and not one.version.endswith(".*") for one in parsed.specifier
    )
    if canonicalize_name(parsed.name) != DISTRIBUTION or not pinned or not given.isprintable():
        raise UsageError(
            f"--requirement: {given!r} names no one version of {DISTRIBUTION}",
            hint=f"{DISTRIBUTION}==VERSION, or '{DISTRIBUTION} @ URL'",
        )
    return (given,)


def _lines(data: dict[str, Any], style: Callable[[str, str], str], verbose: bool) -> list[str]:
    changes, check = data["changes"], data["check"]
    lines = []
    for one in changes if verbose or check else ():
        word = f"would be {one['change']}" if check else one["change"]
        lines.append(f"{style(word, 'yellow')}: {one['path']}")
    lines.append(f"bundles: {', '.join(data['bundles'])}")
    expected = data["expected"]
    if expected is not None and expected["fingerprint"]:
        lines.append(f"fingerprint: {expected['fingerprint'][:16]}")
    if not changes:
        lines.append(f"{data['output']} is up to date")
    elif check:
        lines.append(f"{data['output']} is not up to date")
    else:
        lines.append(
            f"written to {data['output']}: {shlex.join(['docker', 'build', data['output']])}"
        )
    return lines
