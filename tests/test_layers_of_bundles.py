"""Bundles at a revision of a git repository, and one bundle directory over another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchkit.state import SCHEMA, render
from tests import releases
from tests.conftest import Git
from tests.support.lab import ALPHA, BETA, STATE, Lab, Site

pytest_plugins = ("tests.support.fixtures",)


@pytest.fixture
def repository(lab: Lab, git: Git) -> Path:
    """The lab's bundle directory as a repository: ``v1`` edits one file, HEAD another."""
    folder = lab.bundles
    lab.bundle("b", {"acme": lab.edit(ALPHA)}, version="1.0")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "tag", "v1")
    lab.bundle("b", {"acme": lab.edit(BETA)}, version="2.0")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "two")
    return folder


def changed(site: Site) -> list[str]:
    return releases.record_problems(site.root, unlisted=False)


def apply(lab: Lab, site: Site, *bundles: str | Path, check: int = 0, **more: str) -> str:
    options = [word for one in bundles for word in ("--bundles", str(one))]
    done = lab.cli(
        *(*site.where, *options, "apply", "b"),
        check=check,
        env={"XDG_CACHE_HOME": str(lab.bundles.parent / "cache"), **more},
        cwd=lab.bundles.parent,
    )
    return done.stderr


def status(lab: Lab, site: Site) -> dict[str, object]:
    (entry,) = lab.json(site, "status")["applied"]
    found: dict[str, object] = entry
    return found


@pytest.mark.parametrize("address", ["path", "file", "relative"])
def test_a_revision_is_read_without_a_checkout(
    address: str, lab: Lab, repository: Path, git: Git
) -> None:
    site = lab.site()
    before = releases.snapshot(repository, ignore=(".git",))
    where = f"file://{repository}" if address == "file" else str(repository)
    given = repository.name if address == "relative" else where
    apply(lab, site, f"{given}@v1")
    assert changed(site) == [f"{ALPHA[0]}: changed"]
    commit = git(repository, "rev-parse", "v1").strip()
    assert status(lab, site)["origin"] == {
        "repository": where,
        "revision": commit,
        "dirty": False,
    }
    lab.cli(*site.where, "verify", "b")
    assert releases.diff_snapshots(before, releases.snapshot(repository, ignore=(".git",))) == []
    apply(lab, site, f"{given}@main")
    assert changed(site) == [f"{BETA[0]}: changed"]


def test_a_remote_that_is_out_of_reach_does_with_what_was_fetched(
    lab: Lab, repository: Path
) -> None:
    where = f"file://{repository}@v1"
    apply(lab, lab.site(), where)
    repository.rename(repository.with_name("elsewhere"))
    apply(lab, lab.site(), where)
    assert "cannot be fetched" in apply(lab, lab.site(), f"file://{repository}x@v1", check=3)


def test_the_variable_takes_a_revision_too(lab: Lab, repository: Path) -> None:
    site = lab.site()
    apply(lab, site, PATCHKIT_BUNDLES=f"{repository}@v1")
    assert changed(site) == [f"{ALPHA[0]}: changed"]


@pytest.mark.parametrize(
    ("change", "dirty"), [(None, False), ("manifests/b.toml", True), ("patches/b/x.patch", True)]
)
def test_a_directory_in_a_repository_says_whether_it_was_clean(
    change: str | None, dirty: bool, lab: Lab, repository: Path, git: Git
) -> None:
    if change is not None:
        file = repository / change
        file.write_bytes((file.read_bytes() if file.exists() else b"") + b"# more\n")
    (repository / "unrelated.txt").write_text("no part of the bundle\n")
    site = lab.site()
    apply(lab, site, repository)
    assert status(lab, site)["origin"] == {
        "repository": str(repository),
        "revision": git(repository, "rev-parse", "HEAD").strip(),
        "dirty": dirty,
    }
    assert ("not committed" in lab.run(site, "status").stdout) == dirty


def test_a_plain_directory_comes_from_nowhere(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    apply(lab, site, lab.bundles)
    assert status(lab, site)["origin"] is None


def test_the_later_layer_wins_and_says_so(lab: Lab, tmp_path: Path, repository: Path) -> None:
    site = lab.site()
    mine = tmp_path / "mine"
    lab.bundle("b", {"acme": lab.edit(ALPHA)}, version="3.0", bundles=mine)
    lab.bundle("other", {"acme": lab.edit(BETA)}, bundles=mine)
    options = ("--bundles", str(repository), "--bundles", str(mine))
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    listed = lab.cli(*site.where, *options, "list", "--json", env=env).json
    assert {row["name"]: row["version"] for row in listed["bundles"]} == {
        "b": "3.0",
        "other": "1.0.0",
    }
    assert any(f"b is taken from {mine}" in note for note in listed["notes"])
    apply(lab, site, repository, mine)
    assert changed(site) == [f"{ALPHA[0]}: changed"]
    apply(lab, site, mine, repository)
    assert changed(site) == [f"{BETA[0]}: changed"]


def test_nobody_writes_into_what_was_laid_out(lab: Lab, repository: Path, tmp_path: Path) -> None:
    done = lab.cli(
        *("--bundles", f"{repository}@v1", "lint", "--update-lock", "b"),
        env={"XDG_CACHE_HOME": str(tmp_path / "cache")},
        check=3,
    )
    assert "stay as they are" in done.stderr


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{repository}@nowhere", "has no revision nowhere"),
        ("{repository}@--exec=x", "has no revision"),
        ("{repository}/manifests@v1", "the top of no git repository"),
        ("/no/such/place@v1", "no bundle directory"),
        ("nonsense@v1", "no bundle directory"),
    ],
)
def test_what_is_no_revision_is_said(text: str, word: str, lab: Lab, repository: Path) -> None:
    site = lab.site()
    options = ("--bundles", text.format(repository=repository))
    done = lab.cli(
        *(*site.where, *options, "apply", "b"),
        env={"XDG_CACHE_HOME": str(repository.parent / "cache")},
        check=None,
    )
    assert done.exit_code in (2, 3, 4) and word in done.stderr, done
    assert not (site / STATE).exists()


def test_a_record_of_the_version_before_is_read(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    pristine = site.picture()
    apply(lab, site, lab.bundles)
    file = site / STATE / "state.json"
    value = json.loads(file.read_bytes())
    assert value.pop("checksum") and value["schema"] == SCHEMA == 2
    value["schema"] = 1
    for entry in value["bundles"]:
        del entry["origin"]
        for variant in entry["variants"]:
            del variant["unneeded"], variant["made_for"]
    file.write_bytes(render(value))
    lab.run(site, "verify", "b")
    assert lab.json(site, "status")["applied"][0]["origin"] is None
    lab.run(site, "revert", "--all")
    assert site.differences(pristine) == []
