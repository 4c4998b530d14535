"""Who made a patch, and when, for its head."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from patchkit.errors import UsageError
from patchkit.gitsource import configured


def author_of(environ: Mapping[str, str], given: str | None) -> str | None:
    """``--author``, else who git says that commits are by; None where nobody says it."""
    if given is not None:
        if "<" not in given:
            raise UsageError(f"--author: {given!r} has no address", hint="NAME <ADDRESS>")
        return given
    name = environ.get("GIT_AUTHOR_NAME") or configured("user.name")
    mail = environ.get("GIT_AUTHOR_EMAIL") or configured("user.email")
    return f"{name} <{mail}>" if name and mail else None


def today(environ: Mapping[str, str]) -> str:
    """The date for Last-Update; ``SOURCE_DATE_EPOCH`` (seconds) counts where it is set."""
    epoch = environ.get("SOURCE_DATE_EPOCH", "")
    if epoch.isdecimal():
        return datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).date().isoformat()
    return datetime.date.today().isoformat()
