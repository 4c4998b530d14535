"""The command line where it is used carelessly: nothing given, options behind the command,
a full device for output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lab import ALPHA, Lab

pytest_plugins = ("tests.support.fixtures",)


def test_nothing_given_shows_the_help(lab: Lab) -> None:
    result = lab.cli(check=2)
    assert result.stdout == ""
    assert "Usage: patchkit" in result.stderr and "\\n" not in result.stderr
    assert all(name in result.stderr for name in ("apply", "revert", "verify"))


def test_global_options_may_stand_behind_the_command(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    where = ("--root", site.root, "--bundles", lab.bundles, "--lock-timeout", "3")
    lab.cli("apply", "one", *where)
    lab.cli("verify", *where, "one")
    assert lab.cli("status", *where, "--json").json["applied"][0]["name"] == "one"
    lab.cli("revert", *where, "-n", "one")
    lab.cli("--root", "/nowhere", "revert", "--all", *where)
    lab.cli("verify", *where, "one", check=1)


def test_output_that_cannot_be_written(lab: Lab) -> None:
    """What was done stays done, and the exit code does not say otherwise."""
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})

    def run(*args: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "patchkit", "--root", site.root, "--bundles", lab.bundles]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*map(str, command), *args],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        return done.returncode, done.stderr

    before = site.picture()
    code, said = run("apply", "one")
    assert code == 0 and "apply is done, but the output cannot be written" in said, said
    lab.run(site, "verify", "one")
    code, said = run("list")
    assert code == 4 and "the output cannot be written" in said, said
    code, said = run("--json", "revert", "--all")
    assert code == 0 and "revert is done" in said, said
    assert site.differences(before) == []


def test_an_environment_that_nobody_named_is_said(lab: Lab) -> None:
    result = lab.cli("--bundles", lab.bundles, "revert", "--all", check=0)
    assert "no environment was named" in result.stderr


@pytest.mark.parametrize("name", ["oen", "one.txt"])
def test_a_misspelt_name_is_no_bundle_to_apply(lab: Lab, name: str) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    answer = lab.json(site, "verify", name, check=1)
    (problem,) = answer["problems"]
    assert problem["kind"] == "missing-bundle"
    assert f"patchkit apply {name}" not in problem["hint"]


def test_manifests_of_another_kind_in_the_working_directory(lab: Lab, tmp_path: Path) -> None:
    """Kubernetes calls a folder ``manifests``, too: the shipped bundles are taken then."""
    for name in ("manifests", "patches"):
        (tmp_path / "k8s" / name).mkdir(parents=True)
    (tmp_path / "k8s/manifests/deployment.yaml").write_text("kind: Deployment\n")
    site = lab.site()
    listed = lab.cli("--root", site.root, "list", cwd=tmp_path / "k8s").stdout
    assert "sm120-fusion" in listed
