"""The bundle directory that is written to: never the bundles that ship with patchkit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from patchkit import bundles as source
from patchkit.errors import Refused, UsageError
from patchkit.layers import is_special
from patchkit.manifest import is_name
from patchkit.session import Options


def target_folder(options: Options, *, make: bool = False) -> str:
    """The bundle directory that may be written to, absolute.

    With ``make`` one that is named and not there yet counts: it is made with the first file.
    Raises :class:`Refused` for the shipped bundles, also where nothing else was named.
    """
    given = options.bundles or options.environ.get("PATCHKIT_BUNDLES") or None
    texts = [given] if isinstance(given, str) else list(given or ())
    named = texts[0] if len(texts) == 1 and not is_special(texts, options.cwd) else None
    if named is not None and make:
        folder = os.path.abspath(os.path.join(options.cwd, os.path.expanduser(named)))
        if os.path.lexists(folder) and not os.path.isdir(folder):
            raise UsageError(
                f"{named!r} is no folder", hint="name a bundle directory: --bundles DIR"
            )
    else:
        folder = source.bundle_dir(options.bundles, options.environ, options.cwd)
    own = named is not None or os.path.realpath(folder) == os.path.realpath(options.cwd)
    if not own or source.is_shipped(folder):
        raise Refused(
            f"{folder} holds bundles that came with patchkit, or from a repository; they stay as"
            " they are",
            code="shipped-bundles",
            hint="name a bundle directory of your own, which is made if need be: --bundles DIR",
        )
    return source.whole(folder)


def check_new_name(folder: str, name: str) -> None:
    """Raise :class:`Refused` where no bundle can have that name, or one has it."""
    if not is_name(name):
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        hint = f"{near} would do" if near and is_name(near) else "small letters, digits and dashes"
        raise UsageError(f"{name!r} is no name for a bundle", hint=hint)
    if name in source.list_names(folder):
        raise Refused(
            f"there is a bundle {name} in {folder} already",
            code="bundle-exists",
            bundle=name,
            hint=f"take another name; patchkit show {name} says what is there",
        )


def is_there(folder: str, path: str) -> bool:
    """Whether something has that name below a bundle directory."""
    return os.path.lexists(os.path.join(folder, path))


def read(folder: str, paths: Iterable[str]) -> dict[str, bytes | None]:
    """What is there now."""
    found: dict[str, bytes | None] = {}
    for path in paths:
        full = os.path.join(folder, path)
        if os.path.lexists(full):
            with open(full, "rb") as file:
                found[path] = file.read()
        else:
            found[path] = None
    return found
