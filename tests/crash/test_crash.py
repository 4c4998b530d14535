"""A part of the sweep: kills, power cuts and errors on the real releases leave nothing mixed.

The whole is ``python3 dev.py crashes``; docs/reliability.md has its table.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.errors import Errors, half_done
from tests.crash.kills import Explorer, Row
from tests.crash.power import WHOLE, Fate, Model, power_cuts
from tests.crash.subjects import Change, GitApply, Patchkit, State, every_kind, make_change
from tests.crash.tracer import CHANGING, KILL, Action, Call, NotHere, must_work, trace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def change(tmp_path_factory: pytest.TempPathFactory) -> Change:
    try:
        must_work()
    except NotHere as error:
        pytest.skip(str(error))
    return make_change(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def kinds(change: Change) -> Explorer:
    """patchkit with a change of every kind."""
    return Explorer(Patchkit(every_kind(change, change.folder / "kinds")))


def clean(explorer: Explorer, row: Row) -> bool:
    assert explorer.outside == []
    assert row.clean, (row, row.findings)
    return True


def ends_of(explorer: Explorer, command: str) -> set[State]:
    subject = explorer.subject
    return {subject.states[name] for name in subject.commands[command]}


@pytest.mark.parametrize("command", Patchkit.commands)
def test_a_kill_at_every_call_is_known_and_recovered(kinds: Explorer, command: str) -> None:
    """The command is stopped before each call, and each state of the disk is taken back; some
    kills are made, too, and leave what the stop before them showed."""
    subject = kinds.subject
    subject.start(command)
    ended, states = kinds.steps(command)
    assert ended.code == 0 and len(states) > 60
    for number in (len(states) // 3, len(states) // 2, len(states) - 5):
        subject.start(command)
        before = kinds.killed_at(command, number + 1)
        assert before is not None and subject.region.look().key == before.key, number
    row = Row(subject.name, "SIGKILL", command)
    ways = list(subject.ways)
    for number, picture in enumerate(states):
        kinds.count(row, str(number), picture, ends_of(kinds, command), [ways[number % 3]])
    assert clean(kinds, row)
    assert row.mixed_at_first > 3, "it never was half changed: this proves nothing"


def test_a_kill_inside_a_recovery_inside_a_recovery(kinds: Explorer) -> None:
    """From the half-changed tree on, every state that any number of kills can leave."""
    back, _ = half_done(kinds)
    kinds.judged(back)
    row = kinds.kills_of_the_way_back("apply", [back])
    assert clean(kinds, row)
    one, two, three = row.sequences
    assert one == 1 and two > 20 and three > 200


def test_a_fork_does_what_the_command_does(kinds: Explorer) -> None:
    """The sweep runs patchkit in forks of one process: it makes the same calls on the tree."""
    subject = kinds.subject
    subject.start("apply")
    _, forked = kinds.steps("apply")
    subject.start("apply")
    seen: list[str] = []

    def stop(call: Call) -> Action:
        if any(f"{path}/".startswith(f"{subject.tree}/") for path in call.paths):
            seen.append(subject.region.look().key)
        return None

    assert trace(subject.line("apply"), subject.env, subject.cwd, stop).code == 0
    assert seen == [picture.key for picture in forked]


@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EACCES"])
@pytest.mark.parametrize("command", Patchkit.commands)
def test_an_error_is_rolled_back_at_once(kinds: Explorer, command: str, error: str) -> None:
    """Not even for the moment is anything mixed."""
    row = Errors(kinds).attack(error, command, stride={"ENOSPC": 3, "EIO": 9}.get(error, 19))
    assert clean(kinds, row) and row.mixed_at_first == 0, row
    assert row.runs >= 10


def test_a_disk_that_stays_full(kinds: Explorer) -> None:
    row = Errors(kinds).attack("ENOSPC", "apply", for_good=True, stride=7)
    assert clean(kinds, row) and row.mixed_at_first == 0, row
    assert row.runs >= 5


@pytest.mark.parametrize("error", ["EIO", "EACCES"])
def test_verify_never_calls_good_what_it_cannot_read(kinds: Explorer, error: str) -> None:
    row = Errors(kinds).guard(error, stride=5)
    assert clean(kinds, row)
    assert row.runs >= 10


@pytest.mark.parametrize("command", Patchkit.commands)
def test_a_power_cut_leaves_old_or_new(kinds: Explorer, command: str) -> None:
    """And no call syncs a whole file system, and the model of the disk agrees with the disk
    after each call (or this raises)."""
    subject = kinds.subject
    ends = ends_of(kinds, command)
    new = {subject.states[subject.commands[command][1]]}
    start = subject.start(command)
    row = power_cuts(kinds, command, start, (ends, new), randoms=0, stride=15)
    assert clean(kinds, row)
    assert row.runs >= 20
    assert set(CHANGING) >= WHOLE


def test_the_sweep_finds_a_tool_that_leaves_mixed_trees(change: Change) -> None:
    """The same on git, which is not atomic over files: a sweep that finds nothing there
    would prove nothing here."""
    explorer = Explorer(GitApply(change))
    row, _ = explorer.kills("apply", stride=1)
    assert row.mixed_at_first > 0 and row.mixed_after > 0, row
    error = Errors(explorer).attack("EIO", "apply", stride=9)
    assert error.mixed_at_first > 0, error


# -- the means ------------------------------------------------------------------------------


def test_calls_of_children_are_counted_in_one_sequence(tmp_path: Path) -> None:
    line = ["sh", "-c", "mkdir a; mkdir b; mv a c; echo x > d"]
    seen: list[tuple[str, tuple[str, ...]]] = []

    def note(call: Call) -> Action:
        if any(path.startswith(str(tmp_path)) for path in call.paths):
            seen.append((call.name, tuple(os.path.relpath(p, tmp_path) for p in call.paths)))
        return None

    assert trace(line, os.environ, tmp_path, note).code == 0
    assert [names for _, names in seen] == [("a",), ("b",), ("a", "c"), ("d",), ("d",)]


@pytest.mark.parametrize("number", range(1, 4))
def test_a_kill_ends_the_children_too_and_before_the_call(tmp_path: Path, number: int) -> None:
    count = 0

    def kill(call: Call) -> Action:
        nonlocal count
        count += call.name in ("mkdir", "mkdirat")
        return KILL if count == number else None

    ended = trace(["sh", "-c", "mkdir a; mkdir b; mkdir c; mkdir d"], os.environ, tmp_path, kill)
    assert ended.code == -9
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"][: number - 1]


def test_an_error_is_what_the_call_returns(tmp_path: Path) -> None:
    def fail(call: Call) -> Action:
        return 28 if call.paths[0].endswith("/b") else None

    ended = trace(["sh", "-c", "mkdir a; mkdir b"], os.environ, tmp_path, fail)
    assert ended.code == 1 and "No space left on device" in ended.stderr
    assert os.listdir(tmp_path) == ["a"]


def test_opens_that_read_stop_only_with_calls_that_look(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    seen: list[str] = []
    line = ["cat", str(tmp_path / "f")]
    trace(line, os.environ, tmp_path, lambda call: seen.extend(call.paths), CHANGING)
    assert str(tmp_path / "f") not in seen
    trace(line, os.environ, tmp_path, lambda call: seen.extend(call.paths), ("openat", "read"))
    assert str(tmp_path / "f") in seen


def test_a_region_comes_back_with_its_links(kinds: Explorer) -> None:
    subject = kinds.subject
    for name, picture in subject.starts.items():
        subject.region.restore(picture)
        assert subject.region.look().key == picture.key, name


# -- the model of power cuts ----------------------------------------------------------------


def test_what_is_not_synced_may_be_lost(kinds: Explorer, tmp_path: Path) -> None:
    """The model on a command that syncs nothing: its file may be there, and be empty."""
    subject = kinds.subject
    start = subject.start("apply")
    model = Model(kinds, start)
    trace(
        ["sh", "-c", "echo text > new; mv new newer"],
        os.environ,
        subject.tree,
        lambda call: None,
        done=model.call,
    )
    (made,) = model.dirty()
    changes, renames = model.waiting()
    assert len(changes) == 2 and len(renames) == 1

    def names(fate: Fate) -> list[str]:
        return sorted(set(model.picture(fate).entries) - set(start.entries))

    assert names(Fate(frozenset())) == []
    assert names(Fate(frozenset(changes[:1]))) == ["new"]
    assert names(Fate(frozenset(changes))) == ["newer"]
    assert names(Fate(frozenset(changes), frozenset(renames))) == ["new", "newer"]
    assert made.after("old")[0] == b"" and made.after("half")[0] == b"te"
    subject.region.restore(start)
