"""``patchkit bake``: the context as a folder. What becomes of it is in test_images_layers."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import Refused
from patchkit.images import packing
from tests.conftest import Result
from tests.support.image import instructions
from tests.support.lab import ACME, ALPHA, BETA, Lab, Site

pytest_plugins = ("tests.support.fixtures",)

BASE = "registry.example:5000/lmsysorg/sglang:v0.5.9-cu130"


@pytest.fixture
def site(lab: Lab) -> Site:
    lab.bundle("b", {"acme": lab.edit(ALPHA)}, requires=["first"])
    lab.bundle("first", {"acme": lab.edit(BETA)})
    lab.bundle("tree", profile={"env": {"NCCL_ALGO": "Tree"}, "args": ["--size", "1"]})
    made = lab.site()
    lab.run(made, "apply", "b", "tree")
    return made


def bake(lab: Lab, site: Site, *args: str | Path, check: int = 0) -> Result:
    return lab.run(site, "bake", "--from", BASE, "-o", lab.base / "image", *args, check=check)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def dockerfile(lab: Lab) -> dict[str, str]:
    return dict(instructions((lab.base / "image" / "Dockerfile").read_text(encoding="utf-8")))


# --- what it holds ---


def test_the_same_input_gives_the_same_bytes(lab: Lab, site: Site) -> None:
    bake(lab, site)
    first = contents(lab.base / "image")
    (lab.base / "image").rename(lab.base / "elsewhere")
    for path in lab.bundles.rglob("*"):
        os.utime(path, (1, 1))
    other = lab.copy(site)
    time.sleep(0.1)
    lab.run(other, "bake", "--from", BASE, "-o", lab.base / "image", env={"TZ": "Asia/Tokyo"})
    assert contents(lab.base / "image") == first
    assert not any(str(lab.base).encode() in data for _, data in first.values())


def test_it_holds_the_applied_set_with_all_that_it_requires(lab: Lab, site: Site) -> None:
    found = json.loads(bake(lab, site, "--json").stdout)
    state = lab.json(site, "status")
    assert found["expected"] == {
        "fingerprint": state["fingerprint"],
        "releases": {"acme": ACME.version},
    }
    assert sorted(found["bundles"]) == ["b", "first", "tree"]
    image = lab.base / "image"
    for folder in ("manifests", "patches"):
        for path in (lab.bundles / folder).rglob("*"):
            if path.is_file():
                there = image / path.relative_to(lab.bundles)
                assert there.read_bytes() == path.read_bytes()
    # Made here, where the bundles had none.
    assert {path.stem for path in image.glob("manifests/*.lock")} == {"b", "first", "tree"}
    lab.cli("--bundles", image, "lint")


def test_it_names_what_is_named(lab: Lab, site: Site) -> None:
    """Computed for this environment, which keeps the set that it has."""
    before = site.picture()
    found = json.loads(bake(lab, site, "--json", "--bundle", "first").stdout)
    assert site.differences(before) == []
    other = lab.site()
    lab.run(other, "apply", "first")
    assert found["expected"]["fingerprint"] == lab.json(other, "status")["fingerprint"]
    assert not (lab.base / "image" / "manifests" / "b.toml").exists()


def test_it_takes_the_set_of_a_project(lab: Lab, site: Site, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.patchkit]\nbundles = ["tree", "fix.patch"]\n')
    (tmp_path / "fix.patch").write_bytes(lab.edit(BETA))
    bake(lab, site, "--project", tmp_path)
    image = lab.base / "image"
    assert (image / "loose" / "fix.patch").read_bytes() == lab.edit(BETA)
    other = lab.site()
    lab.cli(*other.where, "sync", "--project", image)
    expected = json.loads((image / "bake.json").read_text())["expected"]
    assert lab.json(other, "status")["fingerprint"] == expected["fingerprint"]
    lab.cli(*other.where, "bake", "--installed", "-o", image)


def test_a_machine_without_the_environment_leaves_the_fingerprint_out(
    lab: Lab, site: Site, tmp_path: Path
) -> None:
    empty = Site(tmp_path / "empty")
    empty.root.mkdir()
    refused = bake(lab, empty, "--bundle", "b", check=3)
    assert "--no-fingerprint" in refused.stderr
    bake(lab, empty, "--bundle", "b", "--no-fingerprint")
    assert json.loads((lab.base / "image" / "bake.json").read_text())["expected"] is None


# --- what is refused ---


def test_what_is_applied_must_verify_and_be_on_offer(lab: Lab, site: Site) -> None:
    empty = lab.site()
    assert "no bundle is named" in bake(lab, empty, check=3).stderr
    manifest = lab.bundles / "manifests" / "b.toml"
    was = manifest.read_text()
    manifest.write_text(was.replace("what b does", "something else"))
    assert "is not the one that was applied" in bake(lab, site, check=3).stderr
    manifest.unlink()
    assert "is none that was applied" in bake(lab, site, check=3).stderr
    manifest.write_text(was)
    with (site / ALPHA[0]).open("a") as file:
        file.write("# an edit\n")
    assert "does not verify" in bake(lab, site, check=3).stderr
    assert not (lab.base / "image").exists()


def test_a_folder_of_somebody_else_is_left_alone(lab: Lab, site: Site) -> None:
    image = lab.base / "image"
    image.mkdir()
    (image / "Dockerfile").write_text("FROM scratch\n")
    assert "did not write: Dockerfile" in bake(lab, site, check=3).stderr
    assert (image / "Dockerfile").read_text() == "FROM scratch\n"
    assert list(image.iterdir()) == [image / "Dockerfile"]


def test_an_edited_file_is_not_written_over(lab: Lab, site: Site) -> None:
    bake(lab, site)
    file = lab.base / "image" / "Dockerfile"
    file.write_text(file.read_text() + "RUN true\n")
    assert "was edited" in bake(lab, site, check=3).stderr
    assert file.read_text().endswith("RUN true\n")
    file.unlink()
    bake(lab, site)
    assert file.exists()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--from", "a b"], 2, "--from"),
        (["--from", "a\nRUN rm"], 2, "--from"),
        (["--image-python", "$(x)"], 2, "--image-python"),
        (["--user", "a b"], 2, "--user"),
        (["--requirement", "patchkit-sets>=1"], 2, "no one version"),
        (["--requirement", "patchkit==1"], 2, "no one version"),
        (["--wheel", "none.whl"], 3, "--wheel none.whl"),
        (["--wheel", "gone-1-py3-none-any.whl"], 3, "No such file"),
        (["--bundle", "b", "--project", "."], 2, "exclude"),
        (["--", "a\nb"], 3, "character"),
    ],
)
def test_what_no_dockerfile_should_hold_is_refused(
    lab: Lab, site: Site, args: list[str], code: int, says: str
) -> None:
    assert says in bake(lab, site, *args, check=code).stderr
    assert not (lab.base / "image").exists()


# --- again ---


def test_check_says_whether_it_is_up_to_date_and_baking_again_mends_it(
    lab: Lab, site: Site
) -> None:
    bake(lab, site, "--check", check=1)
    assert not (lab.base / "image").exists()
    bake(lab, site)
    (lab.base / "image" / ".gitignore").write_text("")
    before = contents(lab.base / "image")
    bake(lab, site, "--check")
    lab.run(site, "revert", "b", "first")
    said = json.loads(bake(lab, site, "--check", "--json", check=1).stdout)
    assert {"path": "manifests/b.toml", "change": "removed"} in said["changes"]
    assert contents(lab.base / "image") == before
    bake(lab, site)
    assert not (lab.base / "image" / "patches" / "b").exists()
    bake(lab, site, "--check")


def test_the_commands_that_it_names_are_such(lab: Lab, site: Site) -> None:
    lab.run(site, "revert", "--all")
    said = bake(lab, site, check=3).stderr
    words = shlex.split(said.partition("patchkit bake ")[2].partition(";")[0])
    given = {"BUNDLE": "first", "IMAGE": BASE, "DIR": str(lab.base / "an image")}
    done = lab.run(site, "bake", *(given.get(word, word) for word in words))
    assert f"docker build '{lab.base}/an image'\n" in done.stdout


def test_check_writes_nothing_where_a_bake_was_killed(lab: Lab, site: Site) -> None:
    bake(lab, site)
    image = lab.base / "image"
    (image / ".writing").mkdir()
    changes = [{"path": "Dockerfile", "new": True, "old": True}]
    (image / ".writing/changes.json").write_text(json.dumps({"schema": 1, "changes": changes}))
    shutil.copy(image / "Dockerfile", image / ".writing/old-0")
    shutil.move(image / "Dockerfile", image / ".writing/new-0")
    before = contents(image)
    assert "without --check" in bake(lab, site, "--check", check=3).stderr
    assert contents(image) == before
    bake(lab, site)
    bake(lab, site, "--check")


# --- the Dockerfile ---


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--user", "1000:1000", "--", "sh", "-c", 'exec "$@"', "a b", "$HOME", "é𝄞"],
        ["--requirement", "patchkit-sets @ https://example.org/p-1-py3-none-any.whl"],
    ],
)
def test_a_checker_takes_the_dockerfile(lab: Lab, site: Site, args: list[str]) -> None:
    checker = Path(sys.executable).with_name("hadolint")
    if not checker.exists():
        pytest.skip("needs hadolint")
    bake(lab, site, *args)
    file = lab.base / "image" / "Dockerfile"
    done = subprocess.run([checker, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    file.write_text(file.read_text().replace("USER", "USR").replace("FROM ", "FRM "))
    assert subprocess.run([checker, file], capture_output=True, check=False).returncode


def test_root_applies_and_the_user_of_the_base_launches(lab: Lab, site: Site) -> None:
    bake(lab, site, "--user", "app")
    words = [
        f"{word} {rest}"
        for word, rest in instructions((lab.base / "image" / "Dockerfile").read_text())
        if word in ("USER", "RUN")
    ]
    assert [one.partition(" set")[0] for one in words] == ["USER 0", "RUN", "USER app"]


def test_the_entrypoint_names_the_bundles_and_places_their_arguments(lab: Lab, site: Site) -> None:
    run = ["/opt/patchkit/venv/bin/patchkit", "run"]
    run += ["--bundle", "first", "--bundle", "b", "--bundle", "tree"]
    bake(lab, site, "--", "serve", "{args}")
    assert json.loads(dockerfile(lab)["ENTRYPOINT"]) == [*run, "--"]
    assert json.loads(dockerfile(lab)["CMD"]) == ["serve", "{args}"]
    bake(lab, site, "--", "serve", "$HOME")
    assert json.loads(dockerfile(lab)["ENTRYPOINT"]) == [*run, "--append-args", "--"]
    bake(lab, site)
    assert json.loads(dockerfile(lab)["ENTRYPOINT"]) == [*run, "--"]
    assert "CMD" not in dockerfile(lab)


# --- patchkit's own wheel ---


def test_the_wheel_is_the_patchkit_that_runs_here(tmp_path: Path) -> None:
    from tests.support import wheels

    name, data = packing.own_wheel()
    assert packing.own_wheel() == (name, data)
    (tmp_path / name).write_bytes(data)
    target = tmp_path / "there"
    wheels.uv_install([tmp_path / name], cache=tmp_path / "cache", target=target)
    here = Path(packing.__file__).parent.parent
    for path in here.rglob("*.py"):
        assert (target / "patchkit" / path.relative_to(here)).read_bytes() == path.read_bytes()
    assert (target / "patchkit" / "_bundles" / "manifests" / "sm120-fusion.toml").is_file()
    (dist,) = metadata.distributions(name="patchkit-sets", path=[str(target)])
    assert dist.version == metadata.version("patchkit-sets")
    with zipfile.ZipFile(tmp_path / name) as archive:
        assert archive.testzip() is None
        assert not any(one.endswith(".pyc") for one in archive.namelist())


def test_where_patchkit_is_not_installed_the_error_names_both_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", gone)
    with pytest.raises(Refused) as caught:
        packing.own_wheel()
    assert "--wheel FILE" in str(caught.value.hint)
    assert "--requirement" in str(caught.value.hint)
