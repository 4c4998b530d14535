"""``[tool.patchkit]`` and ``patchkit sync``: the environment as the project says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import Refused
from patchkit.launch.project import environment_of, find_project
from tests.conftest import Result
from tests.support.lab import ACME, ALPHA, BETA, GAMMA, STATE, Lab, Site, changed
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)


@pytest.fixture
def project(lab: Lab) -> Path:
    """A project with three bundles on offer beside it."""
    lab.bundle("a", {"acme": lab.edit(ALPHA)})
    lab.bundle("b", {"acme": lab.edit(BETA)})
    lab.bundle("c", {"acme": lab.edit(GAMMA)}, requires=["a>=1"])
    return lab.folder("project")


def wanted(project: Path, *bundles: str, **more: Any) -> None:
    """Write the table."""
    lines = "".join(f"{key.replace('_', '-')} = {json.dumps(v)}\n" for key, v in more.items())
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "x"\n[tool.patchkit]\nbundles = {json.dumps(bundles)}\n{lines}'
    )


def sync(lab: Lab, site: Site, project: Path, *args: str, check: int | None = 0) -> Result:
    return lab.run(site, "sync", *args, cwd=project, check=check)


def applied(lab: Lab, site: Site) -> list[str]:
    return [entry["name"] for entry in lab.json(site, "status")["applied"]]


def test_what_is_missing_is_applied_and_what_is_not_named_goes(lab: Lab, project: Path) -> None:
    site = lab.site()
    pristine = site.picture()
    for names in (["a", "b"], ["b"], ["c"], ["b", "a"], []):
        wanted(project, *names)
        assert sync(lab, site, project, "--check", check=None).exit_code == 1
        sync(lab, site, project)
        assert applied(lab, site) == (["a", "c"] if names == ["c"] else names)
        lab.run(site, "verify")
        assert sync(lab, site, project, "--check").exit_code == 0
    assert site.differences(pristine) == []


def test_a_second_run_changes_nothing(lab: Lab, project: Path) -> None:
    site = lab.site()
    wanted(project, "a", "b")
    sync(lab, site, project)
    before = site.picture()
    result = sync(lab, site, project)
    assert result.stdout.startswith("in sync: a, b\n")
    assert site.differences(before) == []


def test_dry_run_and_check_change_nothing(lab: Lab, project: Path) -> None:
    site = lab.site()
    wanted(project, "a")
    before = site.picture()
    assert "would be applied: a" in sync(lab, site, project, "--dry-run").stdout
    answer = json.loads(sync(lab, site, project, "--check", "--json", check=1).stdout)
    assert answer["in_sync"] is False and answer["bundles"] == ["a"] and answer["ok"] is False
    assert site.differences(before) == []


def test_all_or_nothing(lab: Lab, project: Path) -> None:
    site = lab.site()
    lab.bundle("bad", {"acme": lab.edit(GAMMA).replace(b"green_2", b"other_2")})
    wanted(project, "a")
    sync(lab, site, project)
    before = site.picture()
    wanted(project, "b", "bad")
    sync(lab, site, project, check=3)
    assert site.differences(before) == []


def test_it_puts_back_what_a_reinstall_took_away(lab: Lab, project: Path) -> None:
    site = lab.site()
    wanted(project, "a", "b")
    sync(lab, site, project)
    lab.install(site, ACME, options=["--reinstall"])
    lab.run(site, "verify", check=1)
    sync(lab, site, project, "--check", check=1)
    sync(lab, site, project)
    lab.run(site, "verify", "a", "b")


def test_a_bundle_that_was_reinstalled_away_and_is_not_wanted_any_more(
    lab: Lab, project: Path
) -> None:
    site = lab.site()
    wanted(project, "a", "b")
    sync(lab, site, project)
    lab.install(site, ACME, options=["--reinstall"])
    wanted(project, "b")
    sync(lab, site, project)
    assert applied(lab, site) == ["b"]
    lab.run(site, "verify")
    assert ALPHA[1] in site.text(ALPHA[0])


def test_after_an_upgrade_the_set_goes_on_the_new_release(lab: Lab, project: Path) -> None:
    site = lab.site()
    wanted(project, "a", "b")
    sync(lab, site, project)
    files = dict(ACME.files)
    text = files[BETA[0]]
    assert isinstance(text, str)
    files[BETA[0]] = changed(text, "    three_1 = 201\n", "    three_1 = 2010\n")
    lab.install(site, Dist("acme", "1.1", files))
    assert "1.1" in lab.run(site, "verify", check=1).stderr
    sync(lab, site, project)
    lab.run(site, "verify", "a", "b")
    assert "2010" in site.text(BETA[0]) and BETA[2] in site.text(BETA[0])


def test_a_hand_edit_is_not_overwritten(lab: Lab, project: Path) -> None:
    site = lab.site()
    wanted(project, "a")
    sync(lab, site, project)
    (site / ALPHA[0]).write_text("x = 1\n")
    for names in (["a"], ["b"], []):
        wanted(project, *names)
        sync(lab, site, project, check=3)
    assert site.text(ALPHA[0]) == "x = 1\n"


def test_an_interrupted_change_is_recovered_first(lab: Lab, project: Path) -> None:
    site = lab.site()
    wanted(project, "a")
    sync(lab, site, project)
    (site / STATE / "staged").mkdir()
    wanted(project, "b")
    sync(lab, site, project)
    assert applied(lab, site) == ["b"]


def test_bundles_and_patches_beside_the_project(lab: Lab, project: Path) -> None:
    """Paths of the table start from its folder, wherever the command is given."""
    site = lab.site()
    lab.bundles.rename(project / "ours")
    (project / "fix.patch").write_bytes(lab.edit(BETA))
    wanted(project, "a", "fix.patch", bundle_dir="ours")
    inner = project / "src" / "deep"
    inner.mkdir(parents=True)
    lab.cli(*site.where, "sync", cwd=inner)
    assert applied_by(lab, site) == ["a", "fix.patch"]
    wanted(project, "b", bundle_dirs=["ours"])
    lab.cli(*site.where, "sync", "--project", project)
    assert applied_by(lab, site) == ["b"]


def applied_by(lab: Lab, site: Site) -> list[str]:
    answer = lab.cli(*site.where, "--json", "status").json
    return [entry["name"] for entry in answer["applied"]]


def test_the_project_s_own_environment_is_the_default(lab: Lab, project: Path) -> None:
    site, other = lab.venv(), lab.venv()
    assert site.python is not None and other.python is not None
    (project / ".venv").symlink_to(site.python.parent.parent)
    wanted(project, "a")
    active = {"VIRTUAL_ENV": str(other.python.parent.parent)}
    lab.cli("--bundles", lab.bundles, "sync", cwd=project, env=active)
    assert applied(lab, site) == ["a"] and applied(lab, other) == []
    wanted(project, "b", python=str(other.python))
    lab.cli("--bundles", lab.bundles, "sync", cwd=project)
    assert applied(lab, other) == ["b"]
    lab.cli(
        "--bundles", lab.bundles, "sync", cwd=project, env={"PATCHKIT_PYTHON": str(site.python)}
    )
    assert applied(lab, site) == ["b"]


def test_the_nearest_table_counts(tmp_path: Path) -> None:
    inner = tmp_path / "member"
    inner.mkdir()
    wanted(tmp_path, "outer")
    (inner / "pyproject.toml").write_text("[project]\nname = 'member'\n")
    assert find_project(str(inner)).bundles == ("outer",)
    wanted(inner, "inner")
    found = find_project(str(inner))
    assert found.bundles == ("inner",) and found.file == str(inner / "pyproject.toml")
    assert environment_of(found, {}) is None


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("bundels = []", 'did you mean "bundles"?'),
        ("bundles = []\npyton = 'x'", 'did you mean "python"?'),
        ("bundles = 'a'", "tool.patchkit.bundles: it must hold names"),
        ("bundles = [1]", "tool.patchkit.bundles: it must hold names"),
        ("bundles = ['a', 'a']", "a stands there twice"),
        ("bundles = []\nbundle-dir = 'x'\nbundle-dirs = []", "exclude each other"),
        ("bundles = []\nbundle-dir = ['x']", "tool.patchkit.bundle-dir: it must hold"),
        ("python = '.venv'", "tool.patchkit.bundles: it is missing"),
        ("bundles = [", "not readable as TOML"),
    ],
)
def test_a_wrong_table_is_named_with_its_key(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.patchkit]\n{table}\n")
    with pytest.raises(Refused) as caught:
        find_project(str(tmp_path))
    told = "\n".join((caught.value.message, *caught.value.detail))
    assert said in told and str(tmp_path / "pyproject.toml") in told and caught.value.hint


def test_every_problem_of_a_table_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.patchkit]\nbundels = []\npyton = 1\n")
    with pytest.raises(Refused) as caught:
        find_project(str(tmp_path))
    assert len(caught.value.detail) == 2


def test_without_a_project_it_says_what_to_write(lab: Lab, project: Path) -> None:
    site = lab.site()
    result = sync(lab, site, project, check=3)
    assert "[tool.patchkit]" in result.stderr


def test_a_name_that_nobody_offers(lab: Lab, project: Path) -> None:
    site = lab.site()
    wanted(project, "nobody")
    assert "nobody" in sync(lab, site, project, check=3).stderr
