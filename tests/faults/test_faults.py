"""A part of the sweep of signals, stops beside other commands, and installers.

The whole is ``python3 dev.py faults``; docs/reliability.md has its table.  Kills and errors are
attacked in ``tests/crash``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import drift
from tests.faults.subjects import Patchkit, make_change
from tests.faults.sweep import sweep, sweep_held
from tests.support.lab import needs_tool

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def patchkit(tmp_path_factory: pytest.TempPathFactory) -> Patchkit:
    needs_tool("strace")
    return Patchkit(make_change(tmp_path_factory.mktemp("faults")))


@pytest.mark.parametrize(
    ("command", "calls", "stride"),
    [("apply", ("rename", "lock"), 3), ("revert", ("rename",), 4), ("verify", ("open",), 14)],
)
def test_a_command_that_is_held_beside_others(
    patchkit: Patchkit, command: str, calls: tuple[str, ...], stride: int
) -> None:
    """Whatever the others do meanwhile, some serial order gives what all of them say."""
    row = sweep_held(patchkit, command, calls=calls, stride=stride)
    assert row.clean, row
    assert row.runs >= 2
    if command != "verify":
        assert row.mixed_at_first > 0, "it was never held in the middle: that proves nothing"


@pytest.mark.parametrize("attack", ["SIGTERM", "SIGINT again and again"])
def test_the_exit_code_after_a_signal_tells_what_was_done(patchkit: Patchkit, attack: str) -> None:
    row = sweep(patchkit, attack, "apply", calls=("rename",), stride=3)
    assert row.clean and row.mixed_at_first == 0, row
    assert row.runs >= 2


def test_an_upgrade_to_a_release_that_needs_another_variant(
    patchkit: Patchkit, tmp_path: Path
) -> None:
    """Named, not overwritten, and put right by the one command that ``status`` names."""
    assert drift.play(tmp_path, "uv", "upgraded", patchkit.change.env) == []
