"""One word of a command line, as each language quotes it.

Words hold no control characters: :func:`patchkit.hooks.cli.hook` refuses those before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from shlex import join as shell

__all__ = ["docker", "kubernetes", "shell", "unit", "yaml"]

_PLAIN_IN_UNIT = re.compile(r"[A-Za-z0-9_@%$+=:,./-]+")


def unit(command: Sequence[str]) -> str:
    """A command line of a systemd unit (systemd.service(5), "Command lines").

    ``%`` begins a specifier, ``$`` a variable; both are doubled.  In the path of the program
    variables are not looked for, so that ``$$`` would stay as it is, and quotes and backslashes
    are refused: such a program goes through env.
    """
    words = ["/usr/bin/env", *command] if set("$\"'\\") & set(command[0]) else command
    return " ".join(_unit_word(word) for word in words)


def _unit_word(word: str) -> str:
    text = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN_IN_UNIT.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def docker(command: Sequence[str]) -> str:
    """The exec form of a Dockerfile: a JSON array, in which no variable is replaced."""
    return json.dumps(list(command))


def yaml(text: str) -> str:
    """A double-quoted scalar of YAML, in ASCII.

    Not JSON's: a character outside the first plane is one escape in YAML, and two in JSON.
    """
    out = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if ord(c) < 128 else f"\\U{ord(c):08x}" for c in out) + '"'


def kubernetes(word: str) -> str:
    """A word of ``command``: ``$(NAME)`` would be replaced there, and ``$$`` is a dollar."""
    return yaml(word.replace("$", "$$"))
