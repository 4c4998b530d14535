"""The shipped bundles on the real wheels, through the command: there and back.

For each pair of releases that the bundles are made for, every bundle alone and every largest set
without a conflict: apply, verify, revert, and then no byte, mode, link, inode or time of
any file is another one than before, RECORD included.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from patchkit import bundles
from patchkit.model import Bundle
from tests.conftest import Cli, Installed
from tests.releases import IDENTITY, ROOT, Release, diff_snapshots, snapshot

PAIRS: list[tuple[Release, Release]] = [
    (("sglang", "0.5.9"), ("flashinfer-python", "0.6.3")),
    (("sglang", "0.5.8"), ("flashinfer-python", "0.6.1")),
    (("sglang", "0.5.8.post1"), ("flashinfer-python", "0.6.1")),
]
NAMES = bundles.list_names(str(ROOT))
SHIPPED = {name: bundles.load_bundle(str(ROOT), name) for name in NAMES}

#: What exists only from sglang 0.5.9 on.
ONLY_0_5_9 = {"moe-a2a-flashinfer"}


def fits(name: str, pair: tuple[Release, Release]) -> bool:
    return name not in ONLY_0_5_9 or pair[0][1] == "0.5.9"


def conflict(one: Bundle, other: Bundle) -> bool:
    return one.name in other.conflicts or other.name in one.conflicts


def largest_sets(pair: tuple[Release, Release]) -> list[tuple[str, ...]]:
    """Every set without a conflict that no further bundle can join."""
    names = [name for name in NAMES if fits(name, pair)]
    free = [
        chosen
        for size in range(len(names), 1, -1)
        for chosen in combinations(names, size)
        if not any(conflict(SHIPPED[a], SHIPPED[b]) for a, b in combinations(chosen, 2))
    ]
    return [chosen for chosen in free if not any(set(chosen) < set(other) for other in free)]


def there_and_back(cli: Cli, root: Path, names: tuple[str, ...]) -> None:
    before = snapshot(root)
    applied = cli("--root", root, "--json", "apply", *names).json
    assert set(applied["bundles"]) == set(names)
    patched = {file["path"] for file in applied["files"]}
    targets = {name for name in names if SHIPPED[name].targets}
    assert bool(patched) == bool(targets)
    after = snapshot(root, ignore=(".patchkit",))
    changed = {path for path in before if before[path].digest != after[path].digest}
    assert changed == patched
    verified = cli("--root", root, "verify", *names)
    assert (verified.stdout, verified.stderr) == ("", "")
    reverted = cli("--root", root, "--json", "revert", *reversed(names)).json
    assert reverted["bundles"] == []
    assert diff_snapshots(before, snapshot(root), fields=IDENTITY) == []


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0][1])
def test_every_bundle_alone(pair: tuple[Release, Release], installed: Installed, cli: Cli) -> None:
    root = installed(pair)
    for name in NAMES:
        if fits(name, pair):
            there_and_back(cli, root, (name,))
        else:
            refused = cli("--root", root, "--json", "apply", name, check=3).json
            assert refused["error"]["code"] == "assertion-failed"
    assert not (root / ".patchkit").exists()


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0][1])
def test_every_largest_stack(pair: tuple[Release, Release], installed: Installed, cli: Cli) -> None:
    sets = largest_sets(pair)
    assert len(sets) > 1
    root = installed(pair)
    for chosen in sets:
        there_and_back(cli, root, chosen)
    assert not (root / ".patchkit").exists()


def test_one_out_of_the_middle_of_a_stack(installed: Installed, cli: Cli) -> None:
    root = installed(PAIRS[0])
    pristine = snapshot(root)
    cli("--root", root, "apply", "symm-mem-sm120", "nccl-tree")
    wanted = cli("--root", root, "--json", "status").json["fingerprint"]
    contents = snapshot(root, ignore=(".patchkit",))
    cli("--root", root, "revert", "--all")
    cli("--root", root, "apply", "symm-mem-sm120", "sm120-fusion", "nccl-tree")
    cli("--root", root, "revert", "sm120-fusion")
    assert cli("--root", root, "--json", "status").json["fingerprint"] == wanted
    now = snapshot(root, ignore=(".patchkit",))
    assert {p: e.digest for p, e in now.items()} == {p: e.digest for p, e in contents.items()}
    cli("--root", root, "verify", "symm-mem-sm120", "nccl-tree")
    cli("--root", root, "revert", "--all")
    assert diff_snapshots(pristine, snapshot(root), fields=IDENTITY) == []


def test_two_changes_in_one_experiment_are_refused(installed: Installed, cli: Cli) -> None:
    root = installed(PAIRS[0])
    before = snapshot(root)
    refused = cli(
        "--root", root, "--json", "apply", "sm120-fusion", "pcie-custom-allreduce", check=3
    ).json
    assert refused["error"]["code"] == "conflict"
    assert refused["diagnosis"]["conflicts"] == [["sm120-fusion", "pcie-custom-allreduce"]]
    assert diff_snapshots(before, snapshot(root), fields=IDENTITY) == []
