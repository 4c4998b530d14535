"""The variables and arguments of the applied bundles, made one.  Pure.

Owns who wins where two set the same variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from patchkit.errors import UsageError

#: The word of a command that the arguments take the place of.
PLACE = "{args}"


class Profile(NamedTuple):
    """Variables to set, arguments in order, who gave each variable, and what to say."""

    variables: dict[str, str]
    arguments: list[str]
    notes: list[str]


def pairs(given: Sequence[str], command: str) -> dict[str, str]:
    """The settings of ``--env``.  Raises :class:`UsageError`, which names the command's help."""
    found = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise UsageError(f"--env {one} is no NAME=VALUE", hint=f"patchkit {command} --help")
        found[key] = value
    return found


def merged(
    profiles: Sequence[tuple[str, Mapping[str, Any]]],
    environ: Mapping[str, str],
    given: Mapping[str, str],
) -> Profile:
    """One profile of several, by bundle in the order of application: the last one wins, and
    what the command line gives (``given``) over all of them."""
    variables: dict[str, str] = {}
    owners: dict[str, str] = {}
    arguments: list[str] = []
    notes = []
    for name, profile in profiles:
        for key, value in profile["env"].items():
            if variables.get(key, value) != value:
                notes.append(f"{key}={value} of {name} wins over {variables[key]} of {owners[key]}")
            variables[key], owners[key] = value, name
        arguments += profile["args"]
    for key, value in variables.items():
        before = environ.get(key, value)
        if key not in given and before != value:
            notes.append(
                f"{key}={value} of {owners[key]} takes the place of {before}"
                f" (--env {key}={before} keeps it)"
            )
    return Profile({**variables, **given}, arguments, notes)


def placed(
    command: Sequence[str], arguments: Sequence[str], how: str, *, droppable: bool = True
) -> list[str]:
    """The command with the arguments in it.

    They take the place of each word ``{args}``; with ``how`` = ``append`` they follow at the
    end, with ``drop`` they are left out.  A command with no place for them is an error: it
    would run without what the bundles stand for.  ``droppable``: the user may ask for ``drop``.
    """
    if how == "drop":
        return [word for word in command if word != PLACE]
    if PLACE in command:
        return [part for word in command for part in (arguments if word == PLACE else [word])]
    if how == "append" or not arguments:
        return [*command, *arguments]
    without = ", or --no-args to launch without them" if droppable else ""
    raise UsageError(
        f"the {'applied ' * droppable}bundles have launch arguments ({' '.join(arguments)}), and"
        " the command has no place for them",
        hint=f"write {PLACE} where they belong, or give --append-args{without}",
    )
