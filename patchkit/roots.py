"""The directories that one transaction works in, opened when first needed.

Owns the translation of a root's name in the state (``"."`` or an absolute path) to an
opened :class:`~patchkit.fsio.Root`.
"""

from __future__ import annotations

from .fsio import Root
from .state import Home


class Roots:
    """Opened roots by their name in the state (``"."`` or an absolute path)."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open: dict[str, Root] = {}

    def __getitem__(self, name: str) -> Root:
        if name not in self._open:
            self._open[name] = Root(self._home.resolve(name))
        return self._open[name]

    def close(self) -> None:
        """Close those that were opened."""
        for root in self._open.values():
            root.close()
        self._open.clear()
