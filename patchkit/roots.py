"""The directories that one transaction works in, opened when first needed.

Owns the translation of a root's name in the state (``"."`` or an absolute path) to an
opened :class:`~patchkit.fsio.Root`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from .fsio import Root
from .state import Home

#: Takes a lock on a directory; a descriptor that holds it until it is closed, None for none.
Take = Callable[[str], "int | None"]


class Roots:
    """Opened roots by their name in the state (``"."`` or an absolute path).

    Sources that lie outside of the environment (an editable install, a checkout) may be those
    of another environment, too, which has a lock and a record of its own: who is to change them
    gives ``take``, and holds them from the first use on.
    """

    def __init__(self, home: Home, take: Take | None = None) -> None:
        self._home = home
        self._take = take
        self._open: dict[str, Root] = {}
        self._held: dict[str, int | None] = {}

    def __getitem__(self, name: str) -> Root:
        if name not in self._open:
            path = self._home.resolve(name)
            if self._take is not None and path != self._home.holder:
                top = _top_of(os.path.realpath(path))
                if top not in self._held:
                    self._held[top] = self._take(top)
            self._open[name] = Root(path)
        return self._open[name]

    def hold(self, name: str) -> None:
        """Hold a root from now on, where one is to be held and it is there."""
        if os.path.isdir(self._home.resolve(name)):
            self[name]

    def close(self) -> None:
        """Close those that were opened."""
        for root in self._open.values():
            root.close()
        self._open.clear()
        for descriptor in self._held.values():
            if descriptor is not None:
                os.close(descriptor)
        self._held.clear()


def _top_of(path: str) -> str:
    """The checkout that a folder is in, else the folder: environments may know the same sources
    by different folders of one checkout."""
    folder = path
    while True:
        if os.path.lexists(f"{folder}/.git"):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return path
        folder = above
