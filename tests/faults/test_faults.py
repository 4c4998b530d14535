"""A part of the sweep: kills and errors on the real releases leave nothing mixed.

The whole is ``python3 dev.py faults``; docs/reliability.md has its table.
"""

from __future__ import annotations

import pytest

from tests.faults.subjects import GitApply, Patchkit, make_change
from tests.faults.sweep import KILL, sweep
from tests.support.lab import needs_tool

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def patchkit(tmp_path_factory: pytest.TempPathFactory) -> Patchkit:
    needs_tool("strace")
    return Patchkit(make_change(tmp_path_factory.mktemp("faults")))


@pytest.mark.parametrize("command", Patchkit.commands)
def test_a_kill_is_known_and_recovered(patchkit: Patchkit, command: str) -> None:
    row = sweep(patchkit, KILL, command, calls=("rename", "unlink", "link", "mkdir"), stride=2)
    row_of_syncs = sweep(patchkit, KILL, command, calls=("sync", "attributes"), stride=9)
    assert row.clean and row_of_syncs.clean, (row, row_of_syncs)
    assert row.runs + row_of_syncs.runs >= 4
    if command in ("apply", "revert", "upgrade"):
        assert row.mixed_at_first > 0, "the sweep never met a half-changed tree: it proves nothing"


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("command", ["apply", "revert"])
def test_an_error_is_rolled_back_at_once(patchkit: Patchkit, command: str, error: str) -> None:
    """Not even for the moment is anything mixed."""
    row = sweep(patchkit, error, command, calls=("rename", "sync"), stride=4)
    assert row.clean and row.mixed_at_first == 0, row
    assert row.runs >= 3


def test_the_sweep_finds_a_tool_that_leaves_mixed_trees(patchkit: Patchkit) -> None:
    """The same on git, which is not atomic over files: a sweep that finds nothing there
    would prove nothing here."""
    git = GitApply(patchkit.change)
    row = sweep(git, KILL, "apply", calls=("unlink", "write"))
    assert row.mixed_at_first > 0 and row.mixed_after > 0, row
