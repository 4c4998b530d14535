"""Caches of JIT compilers: which folders a manifest's ``[caches]`` means.

Owns where each compiler keeps what it built.  Only looks; the journal moves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import Refused

KINDS = ("flashinfer-jit",)


def folders_to_set_aside(
    kind: str, names: tuple[str, ...], environ: Mapping[str, str], label: str
) -> list[tuple[str, str]]:
    """(folder, new name) for each built module that exists.

    FlashInfer keeps them under ``$FLASHINFER_WORKSPACE_BASE`` (else the home folder), in
    ``.cache/flashinfer/RELEASE/ARCHITECTURES/cached_ops/MODULE`` (its ``jit/env.py``).
    All releases and architectures are taken: a module that is set aside needlessly is
    built again, one that is left runs the wrong kernel.
    """
    if kind not in KINDS:
        raise Refused(
            f"no cache is called {kind!r}",
            code="unknown-cache",
            hint=f"known are: {', '.join(KINDS)}",
        )
    base = environ.get("FLASHINFER_WORKSPACE_BASE") or _home(environ)
    if base is None:
        return []
    top = os.path.join(base, ".cache", "flashinfer")
    found: list[tuple[str, str]] = []
    for release in _folders(top):
        if release == "patchkit-aside":
            continue
        for architectures in _folders(os.path.join(top, release)):
            built = os.path.join(top, release, architectures, "cached_ops")
            for name in names:
                source = os.path.join(built, name)
                if os.path.isdir(source) and not os.path.islink(source):
                    aside = f"{name}-{label}"
                    found.append(
                        (source, os.path.join(top, "patchkit-aside", release, architectures, aside))
                    )
    return found


def _home(environ: Mapping[str, str]) -> str | None:
    home = environ.get("HOME")
    if home:
        return home
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def _folders(path: str) -> list[str]:
    try:
        return sorted(e.name for e in os.scandir(path) if e.is_dir(follow_symlinks=False))
    except OSError:
        return []
