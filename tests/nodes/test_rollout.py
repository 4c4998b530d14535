"""The rollout playbook on two nodes; :mod:`tests.nodes.rollout` has the eight."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Cli
from tests.nodes.ansible import Ansible
from tests.nodes.machines import Fleet, fleet
from tests.support.lab import ALPHA, BETA, Lab

pytest_plugins = ("tests.support.fixtures", "tests.nodes.fixtures")


@pytest.fixture
def two(lab: Lab, ansible: Ansible) -> Iterator[Fleet]:
    lab.bundle("b", {"acme": lab.edit(ALPHA, BETA)})
    with fleet(lab, lab.site(), ansible, 2) as made:
        yield made


def test_a_rollout_is_for_every_node_or_for_none(two: Fleet, cli: Cli) -> None:
    before = two.digests()
    # One of them is edited between its apply and its verify.
    path = two.site / ALPHA[0]
    edit = f"""case "$*" in *" verify "*) sed -i 's/1030/1031/' "{path}" ;; esac"""
    two.instead_of_patchkit("n2", f'{edit}; patchkit "$@"')
    failed = two.roll_out("-e", "patchkit_batch=1", check=2)
    assert failed.recap("failed") == {"n1": 0, "n2": 1}
    assert failed.reason("n2").startswith("verify: acme/alpha.py: differs")
    assert two["n1"].digest() == before["n1"]
    assert two.fingerprints()["n1"] is None
    two["n2"].sh('sed -i s/1031/1030/ "$1"', path)
    two.instead_of_patchkit("n2", None)
    # The bundles come from the controller this time.
    copied = (
        "-e",
        f"patchkit_copy_bundles={two.lab.bundles}",
        "-e",
        "patchkit_bundle_dir=/run/bundles",
    )
    done = two.roll_out(*copied)
    assert done.changed == {"n1"}  # the other one has it from before
    cli("fleet", "report", two.report)
    two["n1"].sh("test -f /run/bundles/manifests/b.toml")
