"""The fixture ``ansible``, for test modules that name this module in ``pytest_plugins``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes.ansible import Ansible, install


@pytest.fixture(scope="session")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the collection of this checkout is installed."""
    return install(tmp_path_factory.mktemp("collections"))


@pytest.fixture
def ansible(tmp_path: Path, collections: Path) -> Iterator[Ansible]:
    """A controller of the test's own."""
    # The path of a socket has 107 bytes at most, and that of a test's folder has nearly so many.
    sockets = tempfile.mkdtemp(prefix="ssh-")
    try:
        yield Ansible(tmp_path / "controller", collections, sockets)
    finally:
        # ssh removes its sockets as well, at this moment.
        shutil.rmtree(sockets, ignore_errors=True)
