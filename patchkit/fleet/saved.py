"""An applied set in a file, and back.

Owns what such a file holds: the record of each bundle, and the manifests and patches that it is
made of, so that the way back needs nothing of a bundle directory.  It is of one environment.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from typing import Any

from patchkit.errors import PatchkitError, Refused, UsageError
from patchkit.fsio import digest, make_root
from patchkit.recording import blobs
from patchkit.series import from_blobs
from patchkit.session import Options, Report, Session
from patchkit.shape import saved_fault
from patchkit.signals import Held
from patchkit.state import NAME, SCHEMA, parse_record, read_own, render
from patchkit.workflow import applied_set
from patchkit.workflow import restore as restore_set

#: The most bytes that a saved set may take, in base64; one patch file may have half of it.
_MOST = 1024 * 1024 * 1024


def save(options: Options, file: str) -> Report:
    """Write what is applied into ``file``, whole or not at all; nothing else changes.

    Raises :class:`UsageError` for a folder, and :class:`Refused` for a file of patchkit's own.
    """
    session, state, chosen = applied_set(options)
    path = os.path.join(options.cwd, file)
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder", hint="name a file in it")
    own = os.path.realpath(os.path.join(session.home.holder, NAME))
    if os.path.commonpath([own, os.path.realpath(path)]) == own:
        raise Refused(
            f"{path} would be among the files that patchkit keeps for the environment",
            code="own-folder",
            file=path,
            hint="save it elsewhere: that folder is no more when nothing is applied",
        )
    entries = [] if state is None else state["bundles"]
    value = {
        "schema": SCHEMA,
        "base": os.path.realpath(session.home.base),
        "fingerprint": None if state is None else state["fingerprint"],
        "bundles": entries,
        "blobs": [
            [sha256, base64.b64encode(data).decode("ascii")]
            for sha256, data in sorted(blobs(chosen).items())
        ],
    }
    content = render(value)
    if len(content) > _MOST:
        raise Refused(
            f"what is applied takes {len(content)} bytes to keep; the limit is {_MOST}",
            code="too-large",
            hint="take patches of large files out of the set",
        )
    root = make_root(os.path.dirname(path))
    try:
        # For whoever may change the environment: a bundle may be for no other eyes.
        root.replace(os.path.basename(path), content, 0o600)
    finally:
        root.close()
    names = [entry["name"] for entry in entries]
    data = {
        "environment": session.described(),
        "bundles": names,
        "fingerprint": value["fingerprint"],
        "file": path,
    }
    what = ", ".join(names) or "nothing is applied"
    return Report(
        "fleet save", data, changed=True, render=lambda *_: [f"saved: {what}", f"file: {path}"]
    )


def restore(options: Options, signals: Held, file: str, *, dry_run: bool) -> Report:
    """Make what ``file`` keeps the applied set.

    Raises :class:`Refused` where there is no such file, or it is of another environment.
    """
    path = os.path.join(options.cwd, file)
    with signals.at_once():
        session = Session(options)
        value = _read(path)
        if value["base"] != os.path.realpath(session.home.base):
            raise Refused(
                f"{path} is of another environment: {value['base']}",
                code="other-root",
                file=path,
                hint="restore it there, or save this environment into a file of its own",
            )
        blob = _blobs(value, path)
        entries = value["bundles"]
        wanted = [from_blobs(session.env, entries, entry, blob) for entry in entries]
    report = restore_set(session, signals, wanted, dry_run=dry_run)
    report.command = "fleet restore"
    report.data["dry_run"] = dry_run
    report.render = _lines
    return report


def _lines(data: dict[str, Any], style: Callable[[str, str], str], verbose: bool) -> list[str]:
    names = ", ".join(data["bundles"]) or "nothing"
    if not data["changed"]:
        return [f"as it was already: {names} is applied"]
    lines = [f"{one['change']:9} {one['path']}" for one in data["files"]]
    return [*lines, f"{'would be ' * data['dry_run']}restored: {names} is applied"]


def _read(path: str) -> Any:
    data = read_own(path, _MOST, _damaged)
    if data is None:
        raise Refused(
            f"there is no {path}",
            code="not-saved",
            file=path,
            hint="patchkit fleet save FILE writes one, before the change",
        )
    return parse_record(data, path, saved_fault, _damaged)


def _damaged(path: str, why: str) -> PatchkitError:
    return PatchkitError(
        f"{path} is damaged ({why}); it is not guessed at",
        code="saved-damaged",
        hint="patchkit status shows what is applied, and patchkit revert takes it out",
    )


def _blobs(value: Any, path: str) -> Callable[[str], bytes]:
    kept = dict(value["blobs"])

    def blob(sha256: str) -> bytes:
        try:
            data = base64.b64decode(kept[sha256], validate=True)
        except (KeyError, binascii.Error):
            data = b""
        if digest(data) != sha256:
            raise Refused(
                f"{path} is damaged: it has not all that its bundles are made of",
                code="saved-damaged",
                file=path,
                hint="patchkit revert the bundles that were applied since, by name",
            )
        return data

    return blob
