"""The fixture ``lab``, for test modules that name this module in ``pytest_plugins``.

Nothing imports it, so that pytest can rewrite what it says.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Cli, Git
from tests.support.lab import Lab


@pytest.fixture
def lab(tmp_path: Path, cli: Cli, git: Git, child_env: dict[str, str]) -> Iterator[Lab]:
    """An empty lab; its folder goes away with the test."""
    made = Lab(tmp_path / "lab", cli, git, child_env)
    yield made
    # Read-only folders and immutable files of a test that failed must not stop pytest.
    if os.geteuid() == 0:
        subprocess.run(
            ["chattr", "-R", "-f", "-i", "-a", str(made.base)], check=False, capture_output=True
        )
    for folder, _, _ in os.walk(made.base):
        with contextlib.suppress(OSError):
            Path(folder).chmod(0o755)
