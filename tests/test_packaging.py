"""What is built, and what is there when it is installed: the wheel, the sdist, the command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from importlib.metadata import metadata
from pathlib import Path

import pytest

from tests import releases
from tests.conftest import Cli, Installed, clean_environment
from tests.releases import BUILD, FLASHINFER, ROOT, SGLANG

DISTRIBUTION = "patchkit-sets"
#: Everything that a build reads; the rest of a checkout is somebody's work.
SOURCES = (
    *(".ci", ".editorconfig", ".gitignore", "CHANGELOG.md", "LICENSE", "README.md"),
    *(
        "ansible",
        "benchmarks",
        "demo",
        "dev.py",
        "docs",
        "examples",
        "manifests",
        "patches",
        "patchkit",
        "pyproject.toml",
    ),
    "tests",
)


def _run(command: Sequence[object], cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, built from a copy of the checkout; the wheel by way of the
    checkout, not of the sdist."""
    work = tmp_path_factory.mktemp("build")
    source = work / "source"
    source.mkdir()
    skip = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=skip)
        else:
            shutil.copy2(path, source / name)
    env = clean_environment(work)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", work / "dist"]
    _run([*build, "--wheel", source], work, env)
    _run([*build, "--sdist", source], work, env)
    (wheel,) = (work / "dist").glob("*.whl")
    (sdist,) = (work / "dist").glob("*.tar.gz")
    return wheel, sdist


def _members(wheel: Path) -> dict[str, tuple[int, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            info.filename: (info.external_attr >> 16, archive.read(info))
            for info in archive.infolist()
        }


def _below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_its_type_marker_and_the_shipped_bundles(
    built: tuple[Path, Path],
) -> None:
    members = {name: data for name, (_, data) in _members(built[0]).items()}
    info = f"patchkit_sets-{metadata(DISTRIBUTION)['Version']}.dist-info"
    expected = {f"patchkit/{name}": data for name, data in _below(ROOT / "patchkit").items()}
    for folder in ("manifests", "patches"):
        for name, data in _below(ROOT / folder).items():
            expected[f"patchkit/_bundles/{folder}/{name}"] = data
    assert {k: v for k, v in members.items() if not k.startswith(info)} == expected
    assert "patchkit/py.typed" in members
    assert members[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_a_wheel_built_from_the_sdist_is_the_same_wheel(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel, sdist = built
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            assert member.isfile() or member.isdir()
            assert not os.path.isabs(member.name)
            assert ".." not in Path(member.name).parts
        archive.extraction_filter = lambda member, _: member
        archive.extractall(tmp_path)
    (source,) = tmp_path.glob("patchkit_sets-*")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", source]
    _run([*command, "--outdir", tmp_path / "dist"], tmp_path, clean_environment(tmp_path))
    (again,) = (tmp_path / "dist").glob("*.whl")
    assert _members(again) == _members(wheel)


def test_the_sdist_holds_all_that_the_tests_need(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    for name in SOURCES:
        path = ROOT / name
        wanted = {f"{name}/{below}" for below in _below(path)} if path.is_dir() else {name}
        assert wanted <= names


def test_the_metadata_names_the_licence_the_versions_and_the_command() -> None:
    data = metadata(DISTRIBUTION)
    assert data["License-Expression"] == "Apache-2.0"
    assert data["Requires-Python"] == ">=3.10"
    required = data.get_all("Requires-Dist") or []
    plain = {re.split(r"[>=<; ]", text)[0].lower() for text in required if "extra" not in text}
    assert plain == {"click", "gitpython", "jmespath", "packaging", "tomli", "tomlkit", "unidiff"}


def test_the_distribution_is_not_called_patchkit() -> None:
    """That name is another project's on the index."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nname = "{DISTRIBUTION}"\n' in text


@pytest.fixture(scope="module")
def fresh(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of a fresh venv with the built wheel and its dependencies."""
    work = tmp_path_factory.mktemp("fresh")
    _run([sys.executable, "-m", "venv", work / "venv"], work, clean_environment(work))
    install = [work / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet"]
    wheelhouse = os.environ.get("PATCHKIT_TEST_WHEELHOUSE")
    if wheelhouse:
        install += ["--no-index", "--find-links", wheelhouse]
    _run([*install, "--disable-pip-version-check", built[0]], work, clean_environment(work))
    return work / "venv" / "bin"


def test_the_installed_command_works_from_any_directory(
    fresh: Path, installed: Installed, tmp_path: Path, child_env: dict[str, str]
) -> None:
    root = installed()
    before = releases.snapshot(root)
    patchkit = fresh / "patchkit"
    version = metadata(DISTRIBUTION)["Version"]
    assert version in _run([patchkit, "--version"], tmp_path, child_env)
    assert version in _run([fresh / "python", "-m", "patchkit", "--version"], tmp_path, child_env)
    shown = _run([fresh / "python", "-m", "patchkit", "--root", root, "list"], tmp_path, child_env)
    for manifest in (ROOT / "manifests").glob("*.toml"):
        assert manifest.stem in shown
    _run([patchkit, "--root", root, "apply", "sm120-fusion"], tmp_path, child_env)
    assert releases.changed_paths(before, releases.snapshot(root))
    _run([patchkit, "--root", root, "verify"], tmp_path, child_env)
    _run([patchkit, "--root", root, "revert", "--all"], tmp_path, child_env)
    assert releases.diff_snapshots(before, releases.snapshot(root)) == []
    assert list(tmp_path.iterdir()) == []


def test_the_installed_package_is_typed(fresh: Path, tmp_path: Path) -> None:
    """A user's own type checks see patchkit's types."""
    script = tmp_path / "user.py"
    script.write_text("from patchkit.errors import PatchkitError\nx: int = PatchkitError('m')\n")
    mypy = [sys.executable, "-m", "mypy", "--python-executable", fresh / "python"]
    done = subprocess.run(
        [*map(str, mypy), "--cache-dir", str(tmp_path / "cache"), str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert 'expression has type "PatchkitError"' in done.stdout


def test_a_checkout_offers_its_own_bundles(cli: Cli, installed: Installed) -> None:
    """From a checkout (an editable install) the bundles are the ones in it."""
    shown = cli("--root", installed([FLASHINFER]), "--json", "list").json
    names = {path.stem for path in (ROOT / "manifests").glob("*.toml")}
    assert {bundle["name"] for bundle in shown["bundles"]} == names


@pytest.mark.parametrize("release", [SGLANG, FLASHINFER], ids=lambda value: value[0])
def test_the_tests_run_on_real_wheels_as_an_installer_lays_them(
    release: releases.Release, installed: Installed
) -> None:
    root = installed([release])
    assert releases.record_problems(root) == []
    assert len(list(releases.files(root))) > 1900
    assert (BUILD / "trees").is_dir()


@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_linked_installs_are_links_into_a_cache_of_their_own(
    mode: releases.LinkMode, installed: Installed
) -> None:
    root = installed([SGLANG], link_mode=mode)
    file = root / "sglang" / "__init__.py"
    cached = root.parent / "site-packages-cache" / "sglang-0.5.9" / "sglang" / "__init__.py"
    assert file.samefile(cached)
    assert file.is_symlink() == (mode == "symlink")
    assert cached.stat().st_nlink == (2 if mode == "hardlink" else 1)
    assert releases.record_problems(root) == []


def test_the_ansible_collection_has_this_version_and_needs_patchkit_on_the_node_alone() -> None:
    collection = ROOT / "ansible" / "patchkit"
    text = (collection / "galaxy.yml").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", text, re.MULTILINE) == [metadata(DISTRIBUTION)["Version"]]
    for path in collection.rglob("*.py"):
        words = re.findall(r"^\s*(?:import|from) ([\w.]+)", path.read_text(), re.MULTILINE)
        assert not [word for word in words if word.split(".")[0] == "patchkit"], path
