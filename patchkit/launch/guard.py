"""The guard at interpreter start, put into an environment and taken out of it.

Owns its two files beside ``.patchkit``: a module, and a ``.pth`` file that makes ``site`` import
it.  They come and go by these commands alone: they are no part of the applied set, so neither
``revert`` nor ``verify`` speaks of them.
"""

from __future__ import annotations

import os

from patchkit.errors import Refused
from patchkit.fsio import Root, read_plain
from patchkit.guarding import MODULE, PTH, refresh
from patchkit.lock import hold
from patchkit.session import Options, Report, Session
from patchkit.signals import held
from patchkit.state import GUARD

#: ``site`` runs a line that begins with import, and shows a traceback for what it raises: of a
#: module that somebody removed there is none.
_LINE = b'import sys; exec("try:\\n import _patchkit_guard\\nexcept ImportError:\\n pass")\n'
_PYCS = "__pycache__"


def install(options: Options) -> Report:
    """Put it there, or a present one right."""
    return _change(options, "install")


def uninstall(options: Options) -> Report:
    """Take it away, with its byte-code."""
    return _change(options, "uninstall")


def status(options: Options) -> Report:
    """Whether it is there, and as this patchkit would put it there."""
    session = Session(options)
    root = Root(session.home.holder)
    try:
        wanted = {MODULE: _module(), PTH: _LINE}
        found = {name: root.read(name) for name in wanted if root.lstat(name) is not None}
    finally:
        root.close()
    data = {
        "environment": session.described(),
        "installed": PTH in found,
        "current": found == wanted,
    }
    return Report("guard", {**data, "action": "status"}, notes=session.notes, render=_lines)


def _change(options: Options, action: str) -> Report:
    with held(options.signals) as signals:
        with signals.at_once():
            session = Session(options)
        home = session.home
        if home.holder not in session.env.search or home.base != home.holder:
            raise Refused(
                f"{home.base} is no folder that an interpreter starts from",
                code="no-site",
                hint="name the environment by its interpreter: --python PATH",
            )
        with hold(home, f"guard {action}", options.lock_timeout, signals.check) as own:
            changed = _install(own) if action == "install" else _uninstall(own)
            refresh(own, home)
    report = Report(
        "guard",
        {
            "environment": session.described(),
            "action": action,
            "installed": action == "install",
            "current": action == "install",
            "changed": changed,
        },
        notes=session.notes,
        changed=changed,
        render=_lines,
    )
    if session.env.is_root and action == "install":
        report.notes.append(
            f"Python reads {PTH} only where this folder is a site directory of its own, not where"
            " PYTHONPATH leads to it"
        )
    return report


def _install(own: Root) -> bool:
    changed = False
    # The module first: the other file makes use of it.
    for name, data in ((MODULE, _module()), (PTH, _LINE)):
        if own.lstat(name) is None or own.read(name) != data:
            own.replace(name, data)
            changed = True
    return changed


def _uninstall(own: Root) -> bool:
    names = [PTH, MODULE, f"{PTH}.new", f"{MODULE}.new", GUARD]
    stem = MODULE.removesuffix(".py")
    pycs = [name for name in own.names(_PYCS) if name.startswith(f"{stem}.")]
    names += [f"{_PYCS}/{name}" for name in pycs]
    there = [name for name in names if own.lstat(name) is not None]
    for name in there:
        own.unlink(name)
    if pycs:
        own.rmdir(_PYCS)  # where nothing else is in it, the guard made it
    return bool(there)


def _module() -> bytes:
    return read_plain(os.path.join(os.path.dirname(__file__), MODULE))


def _lines(data: dict[str, object], style: object, verbose: bool) -> list[str]:
    if data["action"] == "install":
        return ["the guard is installed" if data["changed"] else "the guard was installed already"]
    if data["action"] == "uninstall":
        return ["the guard is gone" if data["changed"] else "there was no guard"]
    if not data["installed"]:
        return ["the guard is not installed"]
    as_now = "" if data["current"] else ", of another version: patchkit guard install renews it"
    return [f"the guard is installed{as_now}"]
