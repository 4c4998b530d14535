"""Errors that a person reads: message, hint, and where, as data.

Owns the mapping from a kind of failure to the exit code of the contract.  Must not
import anything of patchkit, and must not print.
"""

from __future__ import annotations

from typing import Any


class PatchkitError(Exception):
    """A failure that is told to the user in one line, with the next command to try.

    ``code`` is a kebab-case word for scripts.  The optional place (``bundle``,
    ``patch``, ``file``, ``hunk``, ``line``) is filled in by whoever knows it; an outer
    layer adds what an inner one did not have with :meth:`at`.  ``detail`` holds further
    lines for the screen (expected against found lines, candidates), ``data`` the same
    for ``--json``.
    """

    exit_code = 3
    code = "refused"
    #: What to try next, where who raises it knows nothing better.
    usual_hint: str | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        bundle: str | None = None,
        patch: str | None = None,
        file: str | None = None,
        hunk: int | None = None,
        line: int | None = None,
        detail: tuple[str, ...] = (),
        data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.hint = hint or self.usual_hint
        self.bundle = bundle
        self.patch = patch
        self.file = file
        self.hunk = hunk
        self.line = line
        self.detail = detail
        self.data = data or {}

    def at(self, **place: Any) -> PatchkitError:
        """Fill in the places that are still unknown; return ``self`` for ``raise e.at(…)``."""
        for key, value in place.items():
            if getattr(self, key) is None:
                setattr(self, key, value)
        return self

    def as_dict(self) -> dict[str, Any]:
        """The ``error`` object of the contract's JSON."""
        out: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        for key in ("bundle", "patch", "file", "hunk", "line"):
            value = getattr(self, key)
            if value is not None:
                out[key] = value
        return out


class UsageError(PatchkitError):
    """The command line is wrong (exit 2)."""

    exit_code = 2
    code = "usage"


class Refused(PatchkitError):
    """It cannot be done as asked, and nothing was changed (exit 3)."""


class PatchSyntaxError(Refused):
    """Bytes that are no patch, or not wholly understood; ``line`` counts from 1."""

    code = "patch-syntax"
    usual_hint = "fetch the patch again, or make it anew with git diff"


class ManifestError(Refused):
    """A manifest is wrong; the message lists every problem with its key path."""

    code = "manifest"


class HunkError(Refused):
    """A hunk does not fit: not found, ambiguous, already applied, in another def."""

    code = "hunk-not-found"
    usual_hint = "compare the release with the one that the patch was made for"


class SymlinkedFolder(Refused):
    """A folder on the way is a symlink; nothing is read or written through it."""

    code = "symlinked-folder"
    usual_hint = "name the folder that it leads to as --root, or install a copy"


class DriftError(Refused):
    """A file is neither pristine nor what patchkit recorded."""

    code = "drift"
    usual_hint = "patchkit status shows what differs"


class Fault(PatchkitError):
    """The system failed while the work was done; it was rolled back (exit 4)."""

    exit_code = 4
    code = "fault"
    usual_hint = "remove the cause and run the same command again"


class Locked(PatchkitError):
    """Another patchkit holds the environment (exit 5)."""

    exit_code = 5
    code = "locked"
    usual_hint = "wait for it to end, or give it longer with --lock-timeout SECONDS"


class Interrupted(PatchkitError):
    """A signal ended the command; it was rolled back (exit 128 + signal number)."""

    code = "interrupted-by-signal"

    def __init__(self, signum: int) -> None:
        name = {1: "SIGHUP", 2: "Ctrl-C", 15: "SIGTERM"}.get(signum, f"signal {signum}")
        super().__init__(f"ended by {name}; rolled back, nothing changed")
        self.signal = name
        self.exit_code = 128 + signum
