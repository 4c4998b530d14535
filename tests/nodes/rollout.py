"""The rollout playbook on eight nodes: real sshd, real ansible-playbook, real kills.

    python3 dev.py nodes

Not of the ordinary suite, since it takes minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.nodes.ansible import Ansible, Played, program
from tests.nodes.machines import DIES, Fleet, fleet
from tests.support.lab import ALPHA, BETA, DELTA, GAMMA, KERNEL, STATE, Lab, needs_tool

pytest_plugins = ("tests.support.fixtures", "tests.nodes.fixtures")

NODES = 8
APPLIES = '*" --dry-run "*) patchkit "$@" ;; *" apply "*)'


@pytest.fixture
def eight(lab: Lab, ansible: Ansible) -> Iterator[Fleet]:
    lab.bundle(
        "b",
        {"acme": lab.edit(ALPHA, BETA, GAMMA), "bolt-kernels": lab.edit(DELTA)},
        profile={"env": {"NCCL_ALGO": "Tree"}},
    )
    with fleet(lab, lab.site(), ansible, NODES) as made:
        yield made


def one_fingerprint(fleet: Fleet, cli: Cli) -> str:
    """All nodes carry the same, by their own word, and by the report that the playbook wrote."""
    (found,) = set(fleet.fingerprints().values())
    assert found is not None
    assert f"{NODES} nodes, all alike" in cli("fleet", "report", fleet.report).stdout
    return found


def test_dry_run_changes_nothing_apply_changes_all_and_again_none(eight: Fleet, cli: Cli) -> None:
    before, written = eight.digests(), {node.name: node.written for node in eight.nodes}
    dry = eight.roll_out("--check", "--diff")
    assert dry.changed == eight.names
    assert dry.text.count("+    second_3 = 1030") == NODES
    assert eight.digests() == before
    assert {node.name: node.written for node in eight.nodes} == written
    done = eight.roll_out()
    assert done.changed == eight.names
    assert "NCCL_ALGO" in str(eight.status("n8")["applied"])
    one_fingerprint(eight, cli)
    again = eight.roll_out()
    assert again.changed == set()
    assert set(again.recap("failed").values()) == {0}
    one_fingerprint(eight, cli)
    # Nothing of it is left on the nodes but what was applied.
    assert [p for node in eight.nodes for p in (node.base / "home").rglob("before-*")] == []


def test_one_node_with_drift_stops_it_before_anything_is_written(eight: Fleet) -> None:
    eight["n5"].sh('echo "# an edit" >> "$1"', eight.site / GAMMA[0])
    before, written = eight.digests(), {node.name: node.written for node in eight.nodes}
    failed = eight.roll_out(check=2)
    assert failed.recap("failed") == {name: int(name == "n5") for name in eight.names}
    assert GAMMA[0] in failed.text
    assert failed.changed == set()
    assert eight.digests() == before
    assert {node.name: node.written for node in eight.nodes} == written


def test_one_that_is_not_reached_stops_it_before_anything_is_written(eight: Fleet) -> None:
    eight["n3"].kill()
    failed = eight.roll_out(check=None)
    assert failed.exit_code in (2, 4)  # which of the two is Ansible's own
    assert failed.changed == set()
    assert [node.name for node in eight.nodes if node.name != "n3" and node.written] == []


def test_drift_in_the_middle_stops_it_and_every_node_gets_back_what_it_had(
    eight: Fleet, lab: Lab
) -> None:
    # Two nodes carry something: another bundle, and an older state of the same one.
    older = lab.folder("older")
    lab.bundle("b", {"acme": lab.edit(ALPHA)}, version="0.9.0", bundles=older)
    lab.bundle("c", {"bolt-kernels": lab.edit(KERNEL)}, bundles=older)
    apply = 'patchkit() { "$1" -m patchkit --root "$2" --bundles "$3" apply -q $4; }; patchkit "$@"'
    for name, bundles in (("n1", "b"), ("n2", "c")):
        eight[name].sh(apply, sys.executable, eight.site.root, older, bundles)
    before, prints = eight.digests(), eight.fingerprints()
    # The sixth is edited once it is patched; batches of three, so that two are never reached.
    edit = f"""sed -i 's/green_3 = 1030/green_3 = 7/' "{eight.site / GAMMA[0]}\""""
    eight.instead_of_patchkit("n6", f'patchkit "$@"; code=$?; {edit}; exit $code')
    failed = eight.roll_out("-e", "patchkit_batch=3", check=2)
    assert failed.recap("failed") == {name: int(name == "n6") for name in eight.names}
    assert failed.changed == {"n1", "n2", "n3", "n4", "n5", "n6"}
    others = eight.names - {"n6"}
    now, prints_now = eight.digests(), eight.fingerprints()
    assert {name: now[name] for name in others} == {name: before[name] for name in others}
    assert {n: prints_now[n] for n in others} == {n: prints[n] for n in others}
    assert eight["n7"].written == eight["n8"].written == []
    # The one that was edited is told, with what to do there: nothing is reverted over an edit.
    assert failed.reason("n6").startswith(f"verify: {GAMMA[0]}: differs")
    assert "fleet restore ~/" in failed.reason("n6")


def test_a_node_that_dies_in_the_middle_of_an_apply_is_recovered_by_the_next_run(
    eight: Fleet, lab: Lab, cli: Cli
) -> None:
    needs_tool("strace")
    before = eight.digests()
    dead = lab.base / "dead"
    os.mkfifo(dead)
    # patchkit dies with the journal there and a file swapped; then the whole node does.
    dies = f'{DIES} "$PATCHKIT" "$@"; echo > "{dead}"; read -r forever < "{dead}" ;;'
    eight.instead_of_patchkit("n4", f'case "$*" in {APPLIES} {dies} *) patchkit "$@" ;; esac')
    process = subprocess.Popen(
        [program("ansible-playbook"), *map(str, eight.words("-e", "patchkit_batch=4"))],
        env=eight.ansible.env,
        cwd=eight.ansible.base,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert Path(dead).read_text() == "\n"
    eight["n4"].kill()
    text, _ = process.communicate()
    assert process.returncode != 0, text
    assert (eight["n4"].base / "upper" / STATE / "journal.json").exists()
    reason = Played(process.returncode, text).reason("n4")
    assert reason.startswith("apply: ")
    assert f"--root {eight.site.root} recover" in reason
    # The others of its batch have back what they had, and the next batch never began.
    alive = eight.names - {"n4"}
    now = {name: eight[name].digest() for name in alive}
    assert now == {name: before[name] for name in alive}
    assert [eight[name].written for name in ("n5", "n6", "n7", "n8")] == [[]] * 4
    assert "not alike" in cli("fleet", "report", eight.report, check=1).stdout

    eight["n4"].start()
    assert eight.status("n4")["next"] == "patchkit recover"
    eight.instead_of_patchkit("n4", None)
    dry = eight.roll_out("--check")
    assert "n4" in dry.changed
    assert eight.status("n4")["next"] == "patchkit recover"
    done = eight.roll_out()
    assert done.changed == eight.names
    one_fingerprint(eight, cli)
    # And what came of it is what a node has that never died.
    assert len(set(eight.digests().values())) == 1


def test_patchkit_killed_on_a_node_is_put_back_by_the_same_run(eight: Fleet, cli: Cli) -> None:
    needs_tool("strace")
    before = eight.digests()
    eight.instead_of_patchkit(
        "n2", f'case "$*" in {APPLIES} {DIES} "$PATCHKIT" "$@" ;; *) patchkit "$@" ;; esac'
    )
    failed = eight.roll_out("-e", "patchkit_batch=100%", check=2)
    assert failed.reason("n2").startswith("apply: ")
    assert "ended by signal 9" in failed.reason("n2") or "exit code" in failed.reason("n2")
    assert "not put back" not in failed.reason("n2")
    assert eight.digests() == before
    assert set(eight.fingerprints().values()) == {None}
