"""patchkit is killed at its calls that change something, all through a trial."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests import releases
from tests.crash.subjects import _main
from tests.crash.tracer import KILL, Action, Call, NotHere, must_work, trace
from tests.support.lab import ALPHA, BETA, STATE, Lab, Site

pytest_plugins = ("tests.support.fixtures",)
pytestmark = pytest.mark.slow

#: Every so many calls; a run has some hundred.  PATCHKIT_STRIDE=1 takes each of them.
STRIDE = int(os.environ.get("PATCHKIT_STRIDE", "23"))


@pytest.fixture
def site(lab: Lab) -> Site:
    try:
        must_work()
    except NotHere as error:
        pytest.skip(str(error))
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.bundle("other", {"acme": lab.edit(BETA)})
    site = lab.site()
    lab.run(site, "apply", "other")
    return site


def run(lab: Lab, site: Site, trials: Path, kill_at: int | None) -> tuple[int, int]:
    """A trial, killed before its ``kill_at``-th call; its exit code, and how many came."""
    count = 0

    def stop(call: Call) -> Action:
        nonlocal count
        count += 1
        return KILL if count == kill_at else None

    line = lab.command(
        *(site, "trial", "ab", "--name", "t", "--only", "--baseline", "b", "--candidate", "other"),
        *("--confounded", "--repeat", "1", "--trials", trials, "--", "true"),
    )
    ended = trace(lambda: _main(line), lab.child_env, lab.base, stop, sessions=True)
    assert kill_at is not None or ended.code == 0, ended
    return ended.code, count


def test_a_trial_killed_at_any_step_ends_as_it_was(lab: Lab, site: Site, tmp_path: Path) -> None:
    before = releases.snapshot(site.root, ignore=(STATE,))
    state = lab.run(site, "status", "--json").json
    calls = run(lab, lab.copy(site), tmp_path / "whole", None)[1]
    assert calls > 100
    seen = set()
    for number in range(1, calls, STRIDE):
        one, trials = lab.copy(site), tmp_path / str(number)
        code, came = run(lab, one, trials, number)
        # How many calls there are varies by a few: what the process beside a trial does of its
        # own comes or does not before the trial is over.
        assert code == -9 or (came < number and number > calls - 10), number
        lab.run(one, "recover")
        lab.run(one, "verify")
        after = releases.snapshot(one.root, ignore=(STATE,))
        assert releases.diff_snapshots(before, after, releases.CONTENTS) == [], number
        now = lab.run(one, "status", "--json").json
        assert (now["fingerprint"], now["applied"]) == (state["fingerprint"], state["applied"])
        assert now["trial"] is None and not (one / STATE / "trial").exists()
        records = [json.loads(path.read_bytes()) for path in trials.glob("*.json")]
        seen |= {record["status"] for record in records}
        assert all(record["status"] != "running" for record in records), number
        lab.run(one, "revert", "--all")
        assert not (one / STATE).exists(), number
        shutil.rmtree(one.root.parent)
    assert "interrupted" in seen
