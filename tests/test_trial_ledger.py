"""The record of a trial, and the folder that keeps them."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import Refused, UsageError
from patchkit.fsio import Root
from patchkit.trials.ledger import Ledger, interrupt, judged, new_id, now, place
from patchkit.trials.record import (
    BundleUse,
    Compared,
    Given,
    Metric,
    RecordError,
    Repository,
    Run,
    SetUse,
    Trial,
    Verdict,
    as_json,
    parse,
    render,
)


def whole(name: str = "nccl-tree", **changes: Any) -> Trial:
    """A trial in which every field says something."""
    one = SetUse((BundleUse(name, "1.0.0", "sglang >=0.5", {"a.patch": "0" * 64}),), "f" * 64)
    trial = Trial(
        id=new_id(name),
        name=name,
        kind="ab",
        status="finished",
        started=now(0),
        ended=now(1.5),
        goal="less than 15 ms",
        sets={"candidate": one._replace(environ={"A": "1"}), "baseline": SetUse()},
        repository=Repository("/bundles", "c" * 40, clean=False),
        command=("python", "-c", "print('ü')"),
        measure=("bench",),
        append_args=True,
        given=Given(("b", "A=1"), (), ("c",), True, {"A": "1"}, 5, "http://h/", "up", 9.5, 3.0),
        environ={"NCCL_ALGO": "Tree"},
        facts={"cuda": "12.8"},
        metrics={"tok/s": Metric("tok/s", "higher")},
        runs=(Run("candidate", now(0), now(1), 0, 1.0, 0.5, 1024, {"tok/s": 82.0}, "l", ("end",)),),
        confounded="meant",
        comparison={"tok/s": Compared(82.0, 89.5, 1.09, (1.05, 1.13), 0.95, True, (5, 5), 0.01)},
        verdict=Verdict("win", "faster", None, 'cuda >= "13"', now(2), "me"),
    )
    return trial._replace(**changes)


def test_the_last_form_of_a_record_has_room_kept_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, one = Ledger(str(tmp_path)), whole()
    ledger.write(one._replace(status="running"))
    ledger.reserve(one.id, 3)
    (kept,) = (tmp_path / "logs" / one.id).iterdir()
    assert kept.stat().st_blocks * 512 > 32 * 1024
    replace = Root.replace

    def full(root: Root, path: str, data: bytes) -> None:
        if kept.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        replace(root, path, data)

    monkeypatch.setattr(Root, "replace", full)
    ledger.write(one)
    assert ledger.read(one.id).status == "finished"
    assert not kept.parent.exists() and not ledger.release(one.id)


def test_a_record_comes_back_as_it_was_written() -> None:
    trial = whole()
    assert parse(render(trial), "x") == trial
    assert list(json.loads(render(trial)))[:5] == ["schema", "id", "name", "kind", "status"]
    assert render(trial).endswith(b"}\n") and "ü".encode() in render(trial)


def test_a_record_with_the_least_is_one() -> None:
    least = {"schema": 1, "id": new_id("a"), "name": "a", "kind": "entry", "status": "not-tried"}
    assert parse(json.dumps(least).encode(), "x").runs == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "done"}, 'status cannot be "done"'),
        ({"runs": [{"set": "other"}]}, 'runs[0].set cannot be "other"'),
        ({"runs": [{"set": "baseline", "exit": "0"}]}, 'runs[0].exit cannot be "0"'),
        ({"runs": [{"set": "baseline", "values": {"a": None}}]}, "runs[0].values.a cannot be null"),
        ({"verdict": {"verdict": "win", "why": "x"}}, "verdict.why is no known key"),
        ({"verdict": {}}, "verdict.verdict is missing"),
        ({"sets": {"candidate": {"bundles": [{}]}}}, "sets.candidate.bundles[0].name is missing"),
        ({"command": "sleep"}, "command is no list"),
        ({"started": "yesterday"}, 'started cannot be "yesterday"'),
        ({"id": "../../x"}, 'id cannot be "../../x"'),
    ],
)
def test_what_is_wrong_in_a_record_is_named_by_its_place(change: dict[str, Any], said: str) -> None:
    value = {**as_json(whole()), **change}
    with pytest.raises(RecordError) as caught:
        parse(json.dumps(value).encode(), "trials/x.json")
    assert caught.value.detail == (said,)
    assert "trials/x.json" in caught.value.message


def test_every_problem_of_a_record_is_named_at_once() -> None:
    with pytest.raises(RecordError) as caught:
        parse(json.dumps({**as_json(whole()), "kind": 1, "status": 2, "new": 3}).encode(), "x")
    assert len(caught.value.detail) == 3


def test_a_later_schema_and_what_is_no_json_are_told_apart() -> None:
    with pytest.raises(RecordError, match="later patchkit"):
        parse(b'{"schema": 2}', "x")
    with pytest.raises(RecordError, match="no JSON"):
        parse(b"<<<<<<< HEAD", "x")


# -- the folder -------------------------------------------------------------------------


def test_trials_of_one_second_are_in_the_order_tried(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    ids = [new_id(name, 1e9 + number / 100) for number, name in enumerate("bcabcabcab")]
    for one in reversed(ids):
        ledger.write(whole(id=one, name=one[16:-7]))
    assert ledger.ids() == ids and [one.id for one in ledger.list().trials] == ids
    assert ledger.find("a").id == ids[8] and ledger.find("b").id == ids[9]


def test_trials_are_listed_in_the_order_tried_and_no_two_have_one_file(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "new" / "trials"))
    assert not ledger.exists() and ledger.list().trials == []
    ids = [new_id("b", at) for at in (2e9, 1e9, 1e9)]
    for one in ids:
        ledger.write(whole(id=one, name="b"))
    found = [trial.id for trial in ledger.list().trials]
    assert found == sorted(ids) and found[-1] == ids[0] and len(set(ids)) == 3
    assert re.fullmatch(r"20010909-014640-b-[0-9a-f]{6}", found[0])


def test_a_file_that_is_no_record_is_named_and_hides_no_other(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    trial = whole()
    ledger.write(trial)
    (tmp_path / "20010909-014640-b-000000.json").write_text("<<<<<<< HEAD")
    (tmp_path / f"{new_id('copy')}.json").write_bytes(render(trial))
    (tmp_path / "README.md").write_text("not ours")
    listed = ledger.list()
    assert listed.trials == [trial]
    assert ["no JSON" in str(one) or "record of" in str(one) for one in listed.problems] == [
        True,
        True,
    ]


def test_a_trial_is_found_by_name_by_the_beginning_and_by_its_digits(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    first, second = (whole(id=new_id("tree", at), name="tree") for at in (1e9, 2e9))
    ledger.write(first)
    ledger.write(second)
    assert ledger.find("tree").id == second.id
    assert ledger.find(first.id).id == first.id
    assert ledger.find("20010909").id == first.id
    assert ledger.find(first.id[-6:]).id == first.id
    with pytest.raises(Refused, match="2 trials"):
        ledger.find("20")
    with pytest.raises(Refused, match="no trial"):
        ledger.find("nothing")


def test_a_removed_trial_takes_its_logs_along(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    trial = whole()
    ledger.write(trial)
    logs = tmp_path / "logs" / trial.id
    logs.mkdir(parents=True)
    (logs / "1.log").write_text("x")
    ledger.remove(trial.id)
    assert not logs.exists() and ledger.ids() == []


def test_the_record_of_a_dead_trial_is_marked_once(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    trial = whole(status="running", ended=None)
    ledger.write(trial)
    assert interrupt(ledger.path(trial.id))
    assert ledger.read(trial.id).status == "interrupted"
    assert ledger.read(trial.id).ended is not None
    assert not interrupt(ledger.path(trial.id))


def test_a_verdict_has_its_time() -> None:
    given = judged(whole(), Verdict("loss")).verdict
    assert given is not None and given.at is not None


@pytest.mark.parametrize("name", ["", "../x", "a b", "-x", "ä", "x" * 101])
def test_a_name_that_is_no_part_of_a_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="name of a trial"):
        new_id(name)


def test_the_place_of_the_ledger(tmp_path: Path) -> None:
    variables = {"PATCHKIT_TRIALS": "/else"}
    assert place("here", variables, str(tmp_path), "/b") == str(tmp_path / "here")
    assert place(None, variables, "/cwd", "/b") == "/else"
    assert place(None, {}, "/cwd", "/b") == "/b/trials"
    with pytest.raises(UsageError, match="no place"):
        place(None, {}, "/cwd", None)
