"""Which environment, which bundles: options, variables, and what comes before what."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import releases
from tests.conftest import Result
from tests.support.lab import ACME, ALPHA, BETA, Lab, Site, needs_root, needs_tool
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)


def chosen(
    lab: Lab, *options: str, env: Mapping[str, str | None] | None = None, cwd: Path | None = None
) -> str:
    """The site-packages that ``status`` works on."""
    answer = lab.cli(*options, "--json", "status", env=env, cwd=cwd).json
    return str(answer["environment"]["site_packages"])


def prefix(site: Site) -> str:
    assert site.python is not None
    return str(site.python.parent.parent)


def test_what_comes_before_what(lab: Lab) -> None:
    by_option, by_variable, active, conda = (lab.venv(ACME) for _ in range(4))
    shutil.rmtree(Path(prefix(conda)) / "conda-meta", ignore_errors=True)
    (Path(prefix(conda)) / "conda-meta").mkdir()
    (Path(prefix(conda)) / "pyvenv.cfg").unlink()
    env: dict[str, str | None] = {
        "PATCHKIT_PYTHON": prefix(by_variable),
        "VIRTUAL_ENV": prefix(active),
        "CONDA_PREFIX": prefix(conda),
    }
    folder = lab.site(ACME)
    assert chosen(lab, "--python", prefix(by_option), env=env) == str(by_option.root)
    assert chosen(lab, "--root", str(folder.root), env=env) == str(folder.root)
    assert chosen(lab, env=env) == str(by_variable.root)
    env.pop("PATCHKIT_PYTHON")
    assert chosen(lab, env=env) == str(active.root)
    env.pop("VIRTUAL_ENV")
    assert chosen(lab, env=env) == str(conda.root)
    env.pop("CONDA_PREFIX")
    assert chosen(lab, env=env) == sysconfig.get_path("purelib")


def test_an_empty_variable_is_none(lab: Lab) -> None:
    site = lab.venv(ACME)
    env = {"PATCHKIT_PYTHON": "", "VIRTUAL_ENV": prefix(site), "CONDA_PREFIX": ""}
    assert chosen(lab, env=env) == str(site.root)


@pytest.mark.parametrize("form", ["bin/python", "bin/python3", "", "bin", "."])
def test_an_interpreter_or_a_folder(lab: Lab, form: str) -> None:
    site = lab.venv(ACME)
    path = os.path.join(prefix(site), form)
    if form == "bin":
        lab.cli("--python", path, "status", check=None)
    else:
        assert chosen(lab, "--python", path) == str(site.root)


def test_a_relative_path_and_a_name_on_the_path(lab: Lab) -> None:
    site = lab.venv(ACME)
    folder = Path(prefix(site))
    assert chosen(lab, "--python", "env", cwd=folder.parent) == str(site.root)
    assert chosen(lab, "--python", "./bin/python", cwd=folder) == str(site.root)
    assert chosen(lab, "--root", "site-packages", cwd=site.root.parent) == str(site.root)


def test_a_home_folder_in_a_variable(lab: Lab) -> None:
    """A shell does not expand ``~`` inside quotes, and an env file not at all."""
    site = lab.venv(ACME)
    env = {"HOME": str(Path(prefix(site)).parent), "PATCHKIT_PYTHON": "~/env"}
    result = lab.cli("--json", "status", env=env, check=None)
    assert result.exit_code in (0, 3)
    if result.exit_code == 0:
        assert result.json["environment"]["site_packages"] == str(site.root)


def test_the_answer_names_the_interpreter(lab: Lab) -> None:
    site = lab.venv(ACME)
    environment = lab.json(site, "status")["environment"]
    assert environment["python"] == str(site.python)
    assert lab.json(lab.site(ACME), "status")["environment"]["python"] is None


def test_the_target_interpreter_is_not_started(lab: Lab) -> None:
    """pyvenv.cfg and the layout say enough: a broken interpreter is no hindrance."""
    site = lab.venv(ACME)
    assert site.python is not None
    for path in site.python.parent.glob("python*"):
        path.unlink()
    site.python.write_text("#!/bin/sh\nexit 99\n")
    site.python.chmod(0o755)
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "b")
    lab.run(site, "verify", "b")


@pytest.mark.parametrize("version", ["3.8", "3.10", "3.13", "3.14t"])
def test_environments_of_other_interpreters(lab: Lab, version: str) -> None:
    """The layout of a venv for an interpreter that is not even here."""
    base = lab.folder("foreign")
    site = Site(base / f"lib/python{version}/site-packages")
    lab.install(Site(site.root), ACME)
    (base / "bin").mkdir()
    (base / "bin/python").symlink_to(f"/opt/python{version}/bin/python{version}")
    (base / "pyvenv.cfg").write_text(
        f"home = /opt/python{version}/bin\n"
        f"include-system-site-packages = false\nversion = {version.rstrip('t')}.1\n"
    )
    assert chosen(lab, "--python", str(base)) == str(site.root)


def test_dist_packages_of_a_system(lab: Lab) -> None:
    """Debian's layout, as a folder used as site-packages."""
    root = lab.folder("debian") / "usr/lib/python3/dist-packages"
    lab.install(Site(root), ACME)
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = Site(root)
    before = site.picture()
    lab.run(site, "apply", "b")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_a_lib64_that_is_a_link(lab: Lab) -> None:
    """Both names of one site-packages are one environment, with one state and one lock."""
    site = lab.venv(ACME)
    lib64 = Path(prefix(site)) / "lib64"
    if not lib64.exists():
        lib64.symlink_to("lib")
    other = Path(str(site.root).replace("/lib/", "/lib64/"))
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "b")
    lab.run(Site(other), "verify", "b")
    lab.run(Site(other), "revert", "--all")
    lab.run(site, "verify", "--pristine")


def test_a_distribution_twice(lab: Lab) -> None:
    """Two dist-info folders of one project (an upgrade that broke off): ambiguous, named."""
    site = lab.site()
    shutil.copytree(site.root / ACME.info, site.root / "acme-0.9.dist-info")
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    before = site.picture()
    result = lab.run(site, "apply", "b", check=3)
    assert "0.9" in result.stderr and "1.0" in result.stderr
    assert site.differences(before) == []


def test_names_are_normalised(lab: Lab) -> None:
    """``Bolt.Kernels``, ``bolt_kernels`` and ``bolt-kernels`` are one project."""
    dist = Dist("Odd.Name_x", "1.0", {"odd.py": "a = 1\nb = 2\nc = 3\n"})
    site = lab.site(dist)
    data = lab.diff(dist.files, {"odd.py": "a = 1\nb = 20\nc = 3\n"})
    for name in ("odd-name-x", "Odd.Name_x", "ODD_NAME.X"):
        lab.bundle("b", {name: data})
        lab.run(site, "apply", "b", check=None if name != "odd-name-x" else 0)
        lab.run(site, "revert", "--all")


def test_an_externally_managed_interpreter(lab: Lab) -> None:
    """PEP 668 marks where pip must not install; whatever patchkit does, it says so or works."""
    site = lab.venv(ACME)
    (site.root.parent / "EXTERNALLY-MANAGED").write_text("[externally-managed]\nError=no\n")
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    result = lab.run(site, "apply", "b", check=None)
    assert result.exit_code in (0, 3)


def test_user_site(lab: Lab) -> None:
    """``pip install --user``: found for the interpreter that has it enabled."""
    site = lab.venv(ACME)
    user = lab.folder("user")
    tag = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    target = user / "lib" / tag / "site-packages"
    lab.install(Site(target), ACME)
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.cli("--root", target, "--bundles", lab.bundles, "apply", "b")
    lab.run(site, "verify", "--pristine")


# --- bundles -----------------------------------------------------------------------------


def folder_of(lab: Lab, name: str) -> Path:
    folder = lab.folder("bundles")
    lab.bundle(name, {"acme": lab.edit(BETA)}, bundles=folder)
    return folder


def offered(result: Result) -> list[str]:
    return [entry["name"] for entry in result.json["bundles"]]


def test_where_bundles_come_from(lab: Lab) -> None:
    site = lab.site()
    option, variable, here = (folder_of(lab, name) for name in ("opt", "var", "cwd"))
    env = {"PATCHKIT_BUNDLES": str(variable)}
    args = (*site.where, "--json", "list")
    assert offered(lab.cli("--bundles", option, *args, env=env, cwd=here)) == ["opt"]
    assert offered(lab.cli(*args, env=env, cwd=here)) == ["var"]
    assert offered(lab.cli(*args, cwd=here)) == ["cwd"]
    shipped = offered(lab.cli(*args))
    assert "sm120-fusion" in shipped
    # A working directory that has only one of the two folders is not meant.
    half = lab.folder("half")
    (half / "patches").mkdir()
    assert offered(lab.cli(*args, cwd=half)) == shipped
    shutil.rmtree(here / "patches")
    assert offered(lab.cli(*args, cwd=here)) == shipped


def test_an_empty_bundles_folder_is_not_the_shipped_ones(lab: Lab) -> None:
    site = lab.site()
    empty = lab.folder("empty")
    for name in ("manifests", "patches"):
        (empty / name).mkdir()
    assert offered(lab.cli("--bundles", empty, *site.where, "--json", "list")) == []


def test_what_is_applied_stays_known_under_other_bundles(lab: Lab) -> None:
    """Applied from one folder; looked at, verified and reverted with another on offer."""
    site = lab.site()
    first, second = folder_of(lab, "first"), folder_of(lab, "second")
    before = site.picture()
    lab.cli(*site.where, "--bundles", first, "apply", "first")
    shutil.rmtree(first)
    status = lab.cli(*site.where, "--bundles", second, "--json", "status").json
    assert [entry["name"] for entry in status["applied"]] == ["first"]
    lab.cli(*site.where, "--bundles", second, "verify", "first")
    lab.cli(*site.where, "--bundles", second, "diff")
    lab.cli(*site.where, "--bundles", second, "revert", "first")
    assert site.differences(before) == []


def test_a_bundle_of_which_the_source_is_gone_stays_below_another(lab: Lab) -> None:
    """The contents of the set are computed anew, also from what was applied long ago."""
    site = lab.site()
    before = site.picture()
    first = folder_of(lab, "first")
    lab.cli(*site.where, "--bundles", first, "apply", "first")
    shutil.rmtree(first)
    lab.bundle("more", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "more")
    lab.run(site, "verify", "first", "more")
    assert BETA[2] in site.text(BETA[0]) and ALPHA[2] in site.text(ALPHA[0])
    lab.run(site, "revert", "more")
    lab.run(site, "revert", "first")
    assert site.differences(before) == []


def test_the_shipped_bundles_work_from_any_directory(lab: Lab) -> None:
    text = lab.cli("show", "sm120-fusion", "--root", check=2).stderr
    assert text
    site = lab.site()
    result = lab.cli(*site.where, "show", "sm120-fusion", cwd=Path("/"))
    assert "sm120-fusion" in result.stdout


def test_a_project_of_its_own_with_read_only_bundles(lab: Lab) -> None:
    """Bundles in an image layer: nothing is written beside them."""
    needs_root()
    needs_tool("unshare")
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    script = (
        f'mount --bind "{lab.bundles}" "{lab.bundles}" && '
        f'mount -o remount,ro,bind "{lab.bundles}" && exec "$@"'
    )
    lab.run(site, "apply", "b", prefix=("unshare", "-m", "sh", "-c", script, "sh"))
    assert releases.record_problems(site.root, unlisted=False) == [f"{ALPHA[0]}: changed"]


def test_python_of_a_venv_in_a_checkout(lab: Lab) -> None:
    """``.venv`` inside a git repository: git apply would skip the patch and say nothing."""
    repository = lab.folder("repository")
    lab.git(repository, "init", "-q")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(repository / ".venv")], check=True
    )
    (root,) = (repository / ".venv").glob("lib/python*/site-packages")
    site = Site(root, repository / ".venv/bin/python")
    lab.install(site, ACME)
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    before = site.picture()
    lab.run(site, "apply", "b")
    assert ALPHA[2] in site.text(ALPHA[0])
    lab.run(site, "verify", "b")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
