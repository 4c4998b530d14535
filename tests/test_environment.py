"""Environments and distributions as real tools make them.

The oracle is the Python that is asked about: its own ``sys.path``, ``import`` and
``importlib.metadata`` say where things are, and ``environment`` has to find them there
without asking.
"""

from __future__ import annotations

import base64
import csv
import doctest
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import site
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit import environment
from patchkit.distributions import (
    Distribution,
    find_distribution,
    list_distributions,
    owner,
    tree_distribution,
)
from patchkit.editable import find_git
from patchkit.environment import Environment, open_environment
from patchkit.errors import Refused, UsageError
from patchkit.names import normalise
from patchkit.record import Record, RecordRow
from tests.conftest import Git, clean_environment
from tests.releases import BUILD, ROOT

#: The interpreter that the tests' own virtual environment was made from.
BASE_PYTHON = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")

T = TypeVar("T")
ReleaseTree = Callable[[str, str], Path]


def find_uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


UV = find_uv()
needs_uv = pytest.mark.skipif(UV is None, reason="needs uv: pip install uv")


def run(*command: str | Path, env: dict[str, str], cwd: Path | None = None) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def ask(python: str | Path, code: str, env: dict[str, str]) -> Any:
    """What a Python program prints as JSON; run away from any checkout."""
    return json.loads(run(python, "-c", f"import json, sys\n{code}", env=env, cwd=Path("/")))


def site_dirs_of(python: str | Path, env: dict[str, str]) -> list[str]:
    """The site directories on an interpreter's ``sys.path``, in import order."""
    path: list[str] = ask(python, "print(json.dumps(sys.path))", env)
    dirs = [entry for entry in path if entry.endswith(("site-packages", "dist-packages"))]
    seen: dict[str, str] = {}
    for entry in dirs:
        seen.setdefault(os.path.realpath(entry), entry)
    return list(seen.values())


@pytest.fixture(scope="session")
def session_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of every installer that the tests run; caches outlive the session."""
    return clean_environment(
        tmp_path_factory.mktemp("home"),
        UV_CACHE_DIR=str(BUILD / "uv-cache"),
        PIP_CACHE_DIR=str(BUILD / "pip-cache"),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        UV_PYTHON_DOWNLOADS="never",
    )


@pytest.fixture(scope="session")
def plain_venv(tmp_path_factory: pytest.TempPathFactory, session_env: dict[str, str]) -> Path:
    """An empty venv of ``python -m venv``; for reading only."""
    folder = tmp_path_factory.mktemp("plain") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, env=session_env)
    return folder


def site_packages(venv: Path) -> Path:
    (found,) = venv.glob("lib/python*/site-packages")
    return found


def fake_venv(folder: Path, *versions: str, cfg: str = "home = /usr/bin\n") -> Path:
    """A virtual environment laid out by hand."""
    for version in versions or ("python3.11",):
        (folder / "lib" / version / "site-packages").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(cfg)
    return folder


def fake_dist(
    folder: Path,
    dist_info: str,
    *,
    record: str | bytes | None = "",
    metadata: str = "Metadata-Version: 2.1\n",
    direct_url: object = None,
) -> Path:
    info = folder / dist_info
    info.mkdir(parents=True)
    (info / "METADATA").write_text(metadata)
    if record is not None:
        (info / "RECORD").write_bytes(record if isinstance(record, bytes) else record.encode())
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    return info


def refused(code: str, call: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    assert caught.value.code == code
    assert caught.value.hint
    assert caught.value.exit_code == 3
    return caught.value


def dist_at(folder: Path, name: str) -> Distribution:
    found = find_distribution(open_environment(None, str(folder), {}), name)
    assert found is not None
    return found


def as_nobody(folder: Path, call: Callable[[], T]) -> T:
    """What a call returns to a user without rights, who may at least reach the folder."""
    for above in (folder, *folder.parents):
        if above.stat().st_mode & 0o005 != 0o005:
            above.chmod(0o755)
    before = os.geteuid()
    os.seteuid(65534)
    try:
        return call()
    finally:
        os.seteuid(before)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


# --------------------------------------------------------------------- which environment


class TestVirtualEnvironments:
    @pytest.mark.parametrize("named", ["", "bin/python", "bin/python3"])
    def test_a_venv_is_found_by_its_folder_and_by_its_interpreter(
        self, plain_venv: Path, session_env: dict[str, str], named: str
    ) -> None:
        env = open_environment(str(plain_venv / named), None, {})
        assert list(env.search) == site_dirs_of(plain_venv / "bin" / "python", session_env)
        assert env.site_packages == env.search[0] == str(site_packages(plain_venv))
        assert env.python == str(plain_venv / "bin" / "python")
        assert not env.is_root
        assert not env.externally_managed

    @needs_uv
    def test_a_venv_of_uv(self, tmp_path: Path, session_env: dict[str, str]) -> None:
        run(str(UV), "venv", "-q", "--python", sys.executable, tmp_path / "v", env=session_env)
        env = open_environment(str(tmp_path / "v"), None, {})
        assert list(env.search) == site_dirs_of(tmp_path / "v" / "bin" / "python", session_env)

    @pytest.mark.parametrize("variable", ["PATCHKIT_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"])
    def test_variables_name_it(self, plain_venv: Path, variable: str) -> None:
        env = open_environment(None, None, {variable: str(plain_venv)})
        assert env.site_packages == str(site_packages(plain_venv))

    def test_order_of_precedence(self, tmp_path: Path) -> None:
        places = ("plain", "option", "PATCHKIT_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX")
        venvs = {place: fake_venv(tmp_path / place) for place in places[1:]}
        (tmp_path / "plain").mkdir()
        variables = {name: str(venvs[name]) for name in places[2:]}
        found = [
            open_environment(None, str(tmp_path / "plain"), variables),
            open_environment(str(venvs["option"]), None, variables),
        ]
        for name in places[2:]:
            found.append(open_environment(None, None, variables))
            del variables[name]
        prefixes = [env.site_packages.removeprefix(f"{tmp_path}/") for env in found]
        assert prefixes[0] == "plain"
        assert [prefix.partition("/")[0] for prefix in prefixes] == list(places)

    def test_empty_variables_count_as_unset(self, plain_venv: Path) -> None:
        variables = {"PATCHKIT_PYTHON": "", "VIRTUAL_ENV": "", "CONDA_PREFIX": str(plain_venv)}
        env = open_environment(None, None, variables)
        assert env.site_packages == str(site_packages(plain_venv))

    def test_relative_names_are_made_absolute(
        self, plain_venv: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(plain_venv.parent)
        env = open_environment("venv", None, {})
        assert env.site_packages == str(site_packages(plain_venv))
        root = open_environment(None, "venv/lib", {})
        assert root.site_packages == str(plain_venv / "lib")

    def test_a_venv_is_no_root(self, plain_venv: Path) -> None:
        with pytest.raises(Refused) as caught:
            open_environment(None, str(plain_venv), {})
        assert caught.value.code == "no-environment"
        assert f"--python {plain_venv}" in (caught.value.hint or "")

    def test_a_tilde_that_the_shell_left(
        self, plain_venv: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(plain_venv.parent))
        env = open_environment("~/venv", None, {})
        assert env.site_packages == str(site_packages(plain_venv))

    def test_an_interpreter_is_found_on_path(self, plain_venv: Path) -> None:
        path = f"/nowhere:{plain_venv / 'bin'}"
        for python, variables in (
            ("python3", {"PATH": path}),
            (None, {"PATH": path, "PATCHKIT_PYTHON": "python3"}),
        ):
            env = open_environment(python, None, variables)
            assert env.site_packages == str(site_packages(plain_venv))

    def test_a_venv_made_from_within_a_venv(
        self, plain_venv: Path, tmp_path: Path, session_env: dict[str, str]
    ) -> None:
        inner = tmp_path / "inner"
        run(plain_venv / "bin" / "python", "-m", "venv", "--without-pip", inner, env=session_env)
        env = open_environment(str(inner / "bin" / "python"), None, {})
        assert env.search == (str(site_packages(inner)),)

    def test_lib64_that_is_another_directory_is_searched_too(self, tmp_path: Path) -> None:
        venv = fake_venv(tmp_path / "v")
        other = tmp_path / "v" / "lib64" / "python3.11" / "site-packages"
        other.mkdir(parents=True)
        env = open_environment(str(venv), None, {})
        assert env.search == (str(site_packages(venv)), str(other))

    def test_lib64_that_is_a_link_is_not(self, tmp_path: Path) -> None:
        venv = fake_venv(tmp_path / "v")
        (venv / "lib64").symlink_to("lib")
        assert open_environment(str(venv), None, {}).search == (str(site_packages(venv)),)

    @pytest.mark.parametrize(
        ("cfg", "link", "expected"),
        [
            ("version = 3.10.4\n", None, "python3.10"),
            ("version_info = 3.12.1.final.0\n", None, "python3.12"),
            ("version = 3.10.4\nversion_info = 3.12.1\n", None, "python3.12"),
            ("", "python3.10", "python3.10"),
            ("", "/opt/py/bin/python3.12", "python3.12"),
            ("VERSION = 3.10.0\r\n", None, "python3.10"),
        ],
    )
    def test_several_versions_in_one_venv(
        self, tmp_path: Path, cfg: str, link: str | None, expected: str
    ) -> None:
        venv = fake_venv(tmp_path / "v", "python3.10", "python3.12", cfg=f"home = /x\n{cfg}")
        (venv / "lib" / "python3.13").mkdir()  # without site-packages: never a candidate
        if link:
            (venv / "bin").mkdir()
            (venv / "bin" / "python3").symlink_to(link)
            (venv / "bin" / "python").symlink_to("python3")
        env = open_environment(str(venv), None, {})
        assert env.site_packages == str(venv / "lib" / expected / "site-packages")

    @pytest.mark.parametrize("cfg", ["", "version = 3.13.0\n", "version = 3.9\n"])
    def test_several_versions_and_nothing_to_tell_them_apart(
        self, tmp_path: Path, cfg: str
    ) -> None:
        venv = fake_venv(tmp_path / "v", "python3.13", "python3.13t", cfg=cfg)
        error = refused("no-environment", lambda: open_environment(str(venv), None, {}))
        assert "python3.13, python3.13t" in error.message
        assert "--root" in str(error.hint)

    def test_an_interpreter_that_links_to_itself(self, tmp_path: Path) -> None:
        venv = fake_venv(tmp_path / "v", "python3.12", "python3.13")
        (venv / "bin").mkdir()
        (venv / "bin" / "python").symlink_to("python")
        refused("no-environment", lambda: open_environment(str(venv), None, {}))

    def test_free_threaded_and_pypy_folders(self, tmp_path: Path) -> None:
        for name in ("python3.13t", "pypy3.10"):
            venv = fake_venv(tmp_path / name, name)
            assert open_environment(str(venv), None, {}).site_packages == str(
                venv / "lib" / name / "site-packages"
            )
        both = fake_venv(tmp_path / "b", "python3.12", "python3.13t", cfg="version=3.13.1\n")
        assert "/python3.13t/" in open_environment(str(both), None, {}).site_packages

    def test_a_venv_whose_interpreter_is_gone_is_still_one(self, tmp_path: Path) -> None:
        venv = fake_venv(tmp_path / "v")
        (venv / "bin").mkdir()
        (venv / "bin" / "python").symlink_to("/nowhere/python3.11")
        env = open_environment(str(venv), None, {})
        assert env.site_packages == str(site_packages(venv))
        error = refused(
            "no-environment", lambda: open_environment(str(venv / "bin" / "python"), None, {})
        )
        assert "a link to nothing" in error.message

    def test_a_venv_without_packages(self, tmp_path: Path) -> None:
        (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
        error = refused("no-environment", lambda: open_environment(str(tmp_path), None, {}))
        assert "has no lib/python3.X/site-packages" in error.message

    def test_a_pyvenv_cfg_of_odd_bytes(self, tmp_path: Path) -> None:
        venv = fake_venv(tmp_path / "v")
        (venv / "pyvenv.cfg").write_bytes(b"prompt = \xff\xfe = x\nno equals sign\n\n")
        assert open_environment(str(venv), None, {}).search

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
    def test_a_pyvenv_cfg_that_cannot_be_read(self, tmp_path: Path) -> None:
        venv = fake_venv(tmp_path / "v")
        (venv / "pyvenv.cfg").chmod(0)
        error = as_nobody(
            tmp_path,
            lambda: refused("no-environment", lambda: open_environment(str(venv), None, {})),
        )
        assert "pyvenv.cfg cannot be read: Permission denied" in error.message


class TestSystemSitePackages:
    @pytest.fixture
    def shared(self, tmp_path: Path, session_env: dict[str, str]) -> Path:
        options = ("--system-site-packages", "--without-pip")
        run(sys.executable, "-m", "venv", *options, tmp_path / "v", env=session_env)
        return tmp_path / "v"

    def test_the_base_interpreters_directories_follow(
        self, shared: Path, session_env: dict[str, str]
    ) -> None:
        env = open_environment(str(shared), None, session_env)
        assert list(env.search) == site_dirs_of(shared / "bin" / "python", session_env)
        assert env.site_packages == str(site_packages(shared))
        assert len(env.search) > 1

    def test_so_do_the_users_own(self, shared: Path, tmp_path: Path) -> None:
        home = tmp_path / "home"
        own = home / ".local/lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        own.mkdir(parents=True)
        variables = clean_environment(home)
        env = open_environment(str(shared), None, variables)
        assert list(env.search) == site_dirs_of(shared / "bin" / "python", variables)
        assert env.search[1] == str(own)
        variables["PYTHONNOUSERSITE"] = "1"
        env = open_environment(str(shared), None, variables)
        assert list(env.search) == site_dirs_of(shared / "bin" / "python", variables)
        assert str(own) not in env.search

    @needs_uv
    def test_of_uv(self, tmp_path: Path, session_env: dict[str, str]) -> None:
        options = ("-q", "--system-site-packages", "--python", sys.executable)
        run(str(UV), "venv", *options, tmp_path / "u", env=session_env)
        env = open_environment(str(tmp_path / "u"), None, session_env)
        assert list(env.search) == site_dirs_of(tmp_path / "u" / "bin" / "python", session_env)

    def test_the_base_interpreter_is_gone(self, tmp_path: Path) -> None:
        cfg = "home = /nowhere/bin\ninclude-system-site-packages = True\nversion = 3.11.7\n"
        venv = fake_venv(tmp_path / "v", cfg=cfg)
        error = refused("no-environment", lambda: open_environment(str(venv), None, {}))
        assert "/nowhere/bin" in error.message

    def test_the_base_interpreter_by_home_alone(self, tmp_path: Path) -> None:
        cfg = f"home = {BASE_PYTHON.parent}\ninclude-system-site-packages = true\n"
        venv = fake_venv(tmp_path / "v", cfg=cfg)
        env = open_environment(str(venv), None, {})
        assert env.search[0] == str(site_packages(venv))
        assert len(env.search) > 1


class TestConda:
    @pytest.fixture
    def prefix(self, tmp_path: Path) -> Path:
        folder = tmp_path / "conda"
        (folder / "conda-meta").mkdir(parents=True)
        (folder / "bin").mkdir()
        script(folder / "bin" / "python3.11", "#!/bin/sh\nexit 9\n")
        (folder / "bin" / "python").symlink_to("python3.11")
        (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
        (folder / "lib" / "python3.1").symlink_to("python3.11")  # as conda packages it
        return folder

    @pytest.mark.parametrize("named", ["", "bin/python", "bin/python3.11"])
    def test_a_prefix_is_found_without_running_it(self, prefix: Path, named: str) -> None:
        env = open_environment(str(prefix / named), None, {})
        assert env.search == (str(prefix / "lib/python3.11/site-packages"),)
        assert env.python == str(prefix / "bin" / "python")
        assert not env.externally_managed

    def test_by_variable(self, prefix: Path) -> None:
        env = open_environment(None, None, {"CONDA_PREFIX": str(prefix)})
        assert env.site_packages == str(prefix / "lib/python3.11/site-packages")

    def test_the_users_packages_come_first_but_hold_no_state(
        self, prefix: Path, tmp_path: Path
    ) -> None:
        own = tmp_path / "home/.local/lib/python3.11/site-packages"
        own.mkdir(parents=True)
        variables = {"HOME": str(tmp_path / "home")}
        env = open_environment(str(prefix), None, variables)
        assert env.search == (str(own), str(prefix / "lib/python3.11/site-packages"))
        assert env.site_packages == env.search[1]
        base = open_environment(str(prefix), None, {"PYTHONUSERBASE": str(own.parents[2])})
        assert base.search == env.search
        without = open_environment(str(prefix), None, {**variables, "PYTHONNOUSERSITE": "1"})
        assert without.search == env.search[1:]

    def test_the_marker_of_an_external_manager(self, prefix: Path) -> None:
        (prefix / "lib/python3.11/EXTERNALLY-MANAGED").touch()
        assert open_environment(str(prefix), None, {}).externally_managed

    def test_a_prefix_without_python(self, tmp_path: Path) -> None:
        (tmp_path / "conda-meta").mkdir()
        variables = {"CONDA_PREFIX": str(tmp_path)}
        refused("no-environment", lambda: open_environment(None, None, variables))


class TestInterpreters:
    def check(self, python: str | Path, variables: dict[str, str]) -> Environment:
        env = open_environment(str(python), None, variables)
        assert list(env.search) == site_dirs_of(python, variables)
        stdlib = ask(
            python, "import os; print(json.dumps(os.path.dirname(os.__file__)))", variables
        )
        assert env.externally_managed == Path(stdlib, "EXTERNALLY-MANAGED").exists()
        assert env.python == str(python)
        return env

    def test_the_one_under_this_venv(self, session_env: dict[str, str]) -> None:
        env = self.check(BASE_PYTHON, session_env)
        assert env.site_packages == env.search[0]

    @pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a system Python")
    def test_the_systems(self, session_env: dict[str, str]) -> None:
        self.check("/usr/bin/python3", session_env)

    def test_others_of_pyenv(self, session_env: dict[str, str]) -> None:
        found = sorted(Path.home().glob(".pyenv/versions/3.1[0-9]*/bin/python"))
        if not found:
            pytest.skip("needs Pythons installed by pyenv")
        for python in found:
            self.check(python, session_env)

    def test_the_users_packages_come_first_but_hold_no_state(self, tmp_path: Path) -> None:
        own = tmp_path / f".local/lib/python3.{sys.version_info.minor}/site-packages"
        own.mkdir(parents=True)
        env = self.check(BASE_PYTHON, clean_environment(tmp_path))
        assert env.search[0] == str(own)
        assert env.site_packages == env.search[1]

    def test_a_link_to_it_is_followed_by_python_itself(
        self, tmp_path: Path, session_env: dict[str, str]
    ) -> None:
        (tmp_path / "python3").symlink_to(BASE_PYTHON)
        self.check(tmp_path / "python3", session_env)

    def test_a_wrapper_script(
        self, tmp_path: Path, plain_venv: Path, session_env: dict[str, str]
    ) -> None:
        shim = script(tmp_path / "shim", f'#!/bin/sh\nexec {BASE_PYTHON} "$@"\n')
        shim2 = script(tmp_path / "shim2", f'#!/bin/sh\nexec {plain_venv}/bin/python "$@"\n')
        for wrapper, wrapped in ((shim, BASE_PYTHON), (shim2, plain_venv)):
            found = open_environment(str(wrapper), None, session_env)
            assert vars(found) == vars(open_environment(str(wrapped), None, session_env))

    def test_it_runs_isolated(self, tmp_path: Path, session_env: dict[str, str]) -> None:
        text = f'#!/bin/sh\nenv > {tmp_path}/env; echo "$1 $2 $3" > {tmp_path}/args\n'
        shim = script(tmp_path / "python3", f'{text}exec {BASE_PYTHON} "$@"\n')
        variables = {
            **session_env,
            "PYTHONHOME": "/nowhere",
            "PYTHONPATH": "/nowhere",
            "PYTHONSTARTUP": "/nowhere",
            "KEPT": "yes",
        }
        open_environment(str(shim), None, variables)
        seen = (tmp_path / "env").read_text().splitlines()
        assert not [line for line in seen if line.startswith("PYTHON")]
        assert "KEPT=yes" in seen
        assert (tmp_path / "args").read_text() == "-I -S -c\n"

    def test_the_marker_of_an_external_manager(self, tmp_path: Path) -> None:
        (tmp_path / "site").mkdir()
        (tmp_path / "EXTERNALLY-MANAGED").touch()
        shim = script(
            tmp_path / "python3",
            f"#!/bin/sh\nprintf 'patchkit\\0/x/python\\0{tmp_path}\\0\\0{tmp_path}/site'\n",
        )
        env = open_environment(str(shim), None, {})
        assert (env.site_packages, env.python) == (f"{tmp_path}/site", "/x/python")
        assert env.externally_managed and not env.is_root

    def test_an_interpreter_without_any_packages(self, tmp_path: Path) -> None:
        shim = script(
            tmp_path / "python3", "#!/bin/sh\nprintf 'patchkit\\0/x/py\\0/x\\0\\0/nowhere'\n"
        )
        error = refused("no-environment", lambda: open_environment(str(shim), None, {}))
        assert "has no site-packages directory" in error.message

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("#!/bin/sh\necho hello\n", "is not a Python 3 interpreter"),
            ("#!/bin/sh\necho Unknown option: -I >&2; exit 2\n", "it said: Unknown option: -I"),
            ("#!/bin/sh\nprintf patchkit\n", "is not a Python 3 interpreter"),
            ("#!/nowhere/python\n", "cannot be run: No such file or directory"),
            ("not a program\n", "cannot be run: Exec format error"),
        ],
    )
    def test_what_is_no_interpreter(self, tmp_path: Path, text: str, said: str) -> None:
        program = script(tmp_path / "program", text)
        error = refused("no-environment", lambda: open_environment(str(program), None, {}))
        assert said in error.message
        assert str(program) in error.message
        assert "--python" in error.message

    def test_one_that_does_not_answer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(environment, "_ASK_TIMEOUT", 0.1)
        program = script(tmp_path / "python", "#!/bin/sh\nexec sleep 60\n")
        error = refused("no-environment", lambda: open_environment(str(program), None, {}))
        assert "did not answer" in error.message

    def test_a_file_that_is_not_executable(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("x")
        error = refused(
            "no-environment", lambda: open_environment(str(tmp_path / "notes.txt"), None, {})
        )
        assert "is not an interpreter" in error.message

    def test_a_pipe_is_not_opened(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "python", 0o777)
        refused("no-environment", lambda: open_environment(str(tmp_path / "python"), None, {}))

    def test_a_program_of_a_venv_that_is_not_its_python(self, tmp_path: Path) -> None:
        venv = fake_venv(tmp_path / "v")
        script(venv / "bin" / "pip", "#!/bin/sh\nexit 1\n")
        refused("no-environment", lambda: open_environment(str(venv / "bin/pip"), None, {}))

    def test_a_folder_that_is_no_environment(self, tmp_path: Path) -> None:
        error = refused("no-environment", lambda: open_environment(str(tmp_path), None, {}))
        assert "is no virtual environment" in error.message
        script(tmp_path / "bin" / "python3", "#!/bin/sh\n")
        error = refused("no-environment", lambda: open_environment(str(tmp_path), None, {}))
        assert error.hint == f"name the interpreter itself: --python {tmp_path}/bin/python3"

    @pytest.mark.parametrize("variable", ["PATCHKIT_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"])
    def test_a_stale_variable_is_named(self, tmp_path: Path, variable: str) -> None:
        variables = {variable: str(tmp_path / "gone")}
        error = refused("no-environment", lambda: open_environment(None, None, variables))
        assert f"{variable} names {tmp_path / 'gone'}, which does not exist" in error.message
        if variable != "PATCHKIT_PYTHON":
            assert variable in str(error.hint)

    @pytest.mark.parametrize("name", ["\0", "x/" + "y" * 5000, "/dev/null/python"])
    def test_names_that_no_file_can_have(self, name: str) -> None:
        refused("no-environment", lambda: open_environment(name, None, {}))


class TestRoot:
    def test_a_directory_is_taken_as_it_is(self, tmp_path: Path) -> None:
        env = open_environment(None, str(tmp_path), {"VIRTUAL_ENV": "/nowhere"})
        assert (env.site_packages, env.search) == (str(tmp_path), (str(tmp_path),))
        assert (env.python, env.externally_managed, env.is_root) == (None, False, True)

    def test_it_has_to_be_one(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        error = refused(
            "no-environment", lambda: open_environment(None, str(tmp_path / "file"), {})
        )
        assert "is not a directory" in error.message
        error = refused(
            "no-environment", lambda: open_environment(None, str(tmp_path / "gone"), {})
        )
        assert "does not exist" in error.message

    def test_wrong_command_lines(self, tmp_path: Path) -> None:
        for python, root in ((str(tmp_path), str(tmp_path)), ("", None), (None, ""), ("", "")):
            with pytest.raises(UsageError) as caught:
                open_environment(python, root, {})
            assert caught.value.exit_code == 2


class TestTheRunningInterpreter:
    def test_in_a_venv(self, session_env: dict[str, str]) -> None:
        env = open_environment(None, None, {})
        assert sys.prefix != sys.base_prefix, "the tests run in a virtual environment"
        assert list(env.search) == site_dirs_of(sys.executable, session_env)
        assert env.python is not None
        assert Path(env.python).resolve() == Path(sys.executable).resolve()

    CODE = (
        f"import os; sys.path.insert(0, {str(ROOT)!r})\n"
        "from patchkit.environment import open_environment\n"
        "env = open_environment(None, None, os.environ)\n"
        "print(json.dumps([env.search, env.site_packages, env.python, env.externally_managed]))"
    )

    def test_outside_of_one(self, tmp_path: Path) -> None:
        variables = clean_environment(tmp_path)
        asked = open_environment(str(BASE_PYTHON), None, variables)
        told = ask(BASE_PYTHON, self.CODE, variables)
        assert told[:2] == [list(asked.search), asked.site_packages]
        assert told[3] == asked.externally_managed
        own = tmp_path / f".local/lib/python3.{sys.version_info.minor}/site-packages"
        own.mkdir(parents=True)
        told = ask(BASE_PYTHON, self.CODE, variables)
        assert told[:2] == [[str(own), *asked.search], asked.site_packages]

    def test_in_a_conda_prefix(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "conda-meta").mkdir()
        packages = tmp_path / "lib/python3.11/site-packages"
        packages.mkdir(parents=True)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        env = open_environment(None, None, {})
        assert env.search == (str(packages),)
        assert env.python == sys.executable

    def test_without_a_venv_in_this_process(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = tmp_path / "own"
        own.mkdir()
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path), "/nowhere"])
        monkeypatch.setattr(site, "getusersitepackages", lambda: str(own))
        monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
        assert open_environment(None, None, {}).search == (str(own), str(tmp_path))
        monkeypatch.setattr(site, "ENABLE_USER_SITE", None)
        assert open_environment(None, None, {}).search == (str(tmp_path),)

    def test_nothing_heavy_is_imported(self, plain_venv: Path, session_env: dict[str, str]) -> None:
        info = "six-1.0.dist-info"
        folder = plain_venv.parent / "tree"
        if not folder.exists():
            fake_dist(folder, info, record=f"six.py,sha256=AA,1\n{info}/RECORD,,\n")
        code = (
            f"sys.path.insert(0, {str(ROOT)!r})\n"
            "import dataclasses, typing\n"
            "before = set(sys.modules)\n"
            "from patchkit.distributions import find_distribution\n"
            "from patchkit.environment import open_environment\n"
            "from patchkit.record import Record\n"
            f"for env in (open_environment({str(plain_venv)!r}, None, {{}}),"
            f" open_environment(None, {str(folder)!r}, {{}})):\n"
            "    dist = find_distribution(env, 'six')\n"
            "Record.load(dist.dist_info).rows(['six.py'])\n"
            "print(json.dumps(sorted(set(sys.modules) - before)))"
        )
        later = set(ask(sys.executable, code, session_env))
        own = {"patchkit", "patchkit.errors"} | {
            f"patchkit.{name}"
            for name in ("distributions", "editable", "environment", "fsio", "names", "record")
        }
        basic = {"hashlib", "_hashlib", "_blake2", "_sha2", "errno", "fcntl"}  # what fsio needs
        assert later <= own | basic | {"__future__", "binascii", "contextlib", "stat", "time"}


# --------------------------------------------------------------------------- distributions


class TestDistributions:
    @pytest.mark.parametrize(
        "asked", ["flashinfer-python", "FlashInfer_Python", "flashinfer.python"]
    )
    def test_names_are_normalised(self, tmp_path: Path, asked: str) -> None:
        fake_dist(tmp_path, "flashinfer_python-0.6.3.dist-info")
        assert dist_at(tmp_path, asked) == Distribution(
            name="flashinfer-python",
            version="0.6.3",
            root=str(tmp_path),
            kind="wheel",
            dist_info=str(tmp_path / "flashinfer_python-0.6.3.dist-info"),
            git_dir=None,
            work_tree=None,
        )

    @given(st.text(alphabet="aB1-_.", max_size=12))
    def test_normalising_is_what_pep_503_says(self, name: str) -> None:
        assert normalise(name) == re.sub(r"[-_.]+", "-", name).lower()

    @pytest.mark.parametrize(
        ("folder", "metadata", "name", "version"),
        [
            ("sglang-0.5.9+cu129.dist-info", "", "sglang", "0.5.9+cu129"),
            ("sglang-0.5.9.post1.dev3+gabc.dist-info", "", "sglang", "0.5.9.post1.dev3+gabc"),
            ("x-1!2.0.dist-info", "", "x", "1!2.0"),
            ("zope.interface-5.0.dist-info", "", "zope-interface", "5.0"),
            (
                "sglang-0.5.9_cu129.dist-info",
                "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.9+cu129\n\nVersion: no\n",
                "sglang",
                "0.5.9+cu129",
            ),
            (
                "flashinfer-python-0.6.3.dist-info",
                "Name: flashinfer-python\nSummary: a\n b\nVersion: 0.6.3\n",
                "flashinfer-python",
                "0.6.3",
            ),
            ("odd.dist-info", "Version: 7\nName: Odd\n", "odd", "7"),
            ("x-unknown.dist-info", "", "x", "unknown"),
        ],
    )
    def test_names_and_versions(
        self, tmp_path: Path, folder: str, metadata: str, name: str, version: str
    ) -> None:
        fake_dist(tmp_path, folder, metadata=metadata)
        found = dist_at(tmp_path, name)
        assert (found.name, found.version) == (name, version)

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
    def test_metadata_that_cannot_be_read(self, tmp_path: Path) -> None:
        info = fake_dist(tmp_path, "x-unknown.dist-info", metadata="Name: x\nVersion: 1\n")
        (info / "METADATA").chmod(0)
        assert as_nobody(tmp_path, lambda: dist_at(tmp_path, "x")).version == "unknown"

    def test_two_of_one_name_are_refused_and_both_listed(self, tmp_path: Path) -> None:
        fake_dist(tmp_path, "sgl_kernel-0.3.20.dist-info")
        fake_dist(tmp_path, "sgl.kernel-0.3.21.dist-info")
        env = open_environment(None, str(tmp_path), {})
        error = refused("ambiguous-distribution", lambda: find_distribution(env, "sgl-kernel"))
        assert "sgl.kernel-0.3.21.dist-info, sgl_kernel-0.3.20.dist-info" in error.message
        assert [dist.version for dist in list_distributions(env)] == ["0.3.21", "0.3.20"]

    def test_leftovers_of_an_uninstall_do_not_count(self, tmp_path: Path) -> None:
        fake_dist(tmp_path, "sglang-0.5.8.dist-info")
        (tmp_path / "sglang-0.5.8.dist-info" / "METADATA").unlink()
        fake_dist(tmp_path, "~glang-0.5.7.dist-info")
        env = open_environment(None, str(tmp_path), {})
        assert find_distribution(env, "sglang") is None
        assert list_distributions(env) == []
        fake_dist(tmp_path, "sglang-0.5.9.dist-info")
        assert dist_at(tmp_path, "sglang").version == "0.5.9"

    def test_eggs(self, tmp_path: Path) -> None:
        (tmp_path / "PyJWT-2.6.0.egg-info").mkdir()
        (tmp_path / "PyJWT-2.6.0.egg-info" / "PKG-INFO").write_text("Name: PyJWT\n")
        (tmp_path / "flat-1.0-py3.11-linux-x86_64.egg-info").write_text("Name: flat\n")
        (tmp_path / "bare.egg-info").write_text("Name: bare\nVersion: 4\n")
        (tmp_path / "both-1.0.egg-info").write_text("Name: both\n")
        fake_dist(tmp_path, "both-2.0.dist-info")
        env = open_environment(None, str(tmp_path), {})
        found = {dist.name: (dist.version, dist.kind) for dist in list_distributions(env)}
        assert found == {
            "pyjwt": ("2.6.0", "wheel"),
            "flat": ("1.0", "wheel"),
            "bare": ("4", "wheel"),
            "both": ("2.0", "wheel"),
        }
        assert len(list_distributions(env)) == len(found)
        assert dist_at(tmp_path, "both").version == "2.0"
        for name in found.keys() - {"both"}:
            info = dist_at(tmp_path, name).dist_info
            assert info is not None
            assert os.path.lexists(info)
            assert Record.load(info) is None

    def test_the_first_directory_wins(self, tmp_path: Path) -> None:
        fake_dist(tmp_path / "a", "x-1.dist-info")
        fake_dist(tmp_path / "b", "x-2.dist-info")
        fake_dist(tmp_path / "b", "y-3.dist-info")
        search = (str(tmp_path / "a"), str(tmp_path / "b"))
        env = Environment(search[0], search)
        found = find_distribution(env, "x")
        assert found is not None
        assert (found.version, found.root) == ("1", search[0])
        assert [(dist.name, dist.version) for dist in list_distributions(env)] == [
            ("x", "1"),
            ("y", "3"),
        ]
        assert find_distribution(env, "z") is None

    def test_what_is_installed_here_is_what_importlib_metadata_finds(self) -> None:
        env = open_environment(None, None, {})
        expected = {
            (normalise(dist.metadata["Name"]), dist.version)
            for dist in importlib.metadata.distributions(path=list(env.search))
        }
        assert {(dist.name, dist.version) for dist in list_distributions(env)} == expected
        for name, version in expected:
            found = find_distribution(env, name)
            assert found is not None
            assert found.version == version

    @pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a system Python")
    def test_what_the_system_has_is_what_importlib_metadata_finds(
        self, session_env: dict[str, str]
    ) -> None:
        env = open_environment("/usr/bin/python3", None, session_env)
        code = (
            "from importlib.metadata import distributions\n"
            f"found = [d for d in distributions(path={list(env.search)!r}) if d.metadata['Name']]\n"
            "print(json.dumps([[d.metadata['Name'], d.version] for d in found]))"
        )
        listed = ask("/usr/bin/python3", code, session_env)
        expected = {(normalise(name), version) for name, version in listed}
        assert {(dist.name, dist.version) for dist in list_distributions(env)} == expected

    def test_an_environment_is_listed_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake_dist(tmp_path, "x-1.dist-info")
        env = open_environment(None, str(tmp_path), {})
        calls = []
        real = os.listdir

        def listdir(path: str) -> list[str]:
            calls.append(path)
            return real(path)

        monkeypatch.setattr(os, "listdir", listdir)
        for name in ("x", "y", "z"):
            find_distribution(env, name)
        assert calls == [str(tmp_path)]

    def test_a_directory_that_vanishes(self, tmp_path: Path) -> None:
        folder = tmp_path / "site"
        folder.mkdir()
        env = open_environment(None, str(folder), {})
        folder.rmdir()
        refused("no-environment", lambda: find_distribution(env, "x"))


class TestTrees:
    def test_a_plain_folder(self, tmp_path: Path) -> None:
        env = open_environment(None, str(tmp_path), {})
        assert tree_distribution(env, "SGLang") == Distribution(
            "sglang", "", str(tmp_path.resolve()), "tree", None, None, None
        )
        assert tree_distribution(env).name == ""

    def test_a_checkout(self, tmp_path: Path, git: Git) -> None:
        git(tmp_path, "init", "-q")
        (tmp_path / "python").mkdir()
        (tmp_path / "link").symlink_to("python")
        for name in ("python", "link"):
            found = tree_distribution(open_environment(None, str(tmp_path / name), {}))
            assert found.root == str(tmp_path / "python")
            assert (found.git_dir, found.work_tree) == (str(tmp_path / ".git"), str(tmp_path))

    def test_site_packages_inside_of_a_checkout_are_not_gits(
        self, tmp_path: Path, git: Git
    ) -> None:
        git(tmp_path, "init", "-q")
        fake_dist(tmp_path / "env", "x-1.dist-info")
        found = tree_distribution(open_environment(None, str(tmp_path / "env"), {}))
        assert (found.git_dir, found.work_tree) == (None, None)
        assert dist_at(tmp_path / "env", "x").git_dir is None


class TestFindGit:
    def test_none(self, tmp_path: Path) -> None:
        assert find_git(str(tmp_path)) == (None, None)

    def test_a_linked_work_tree_and_a_submodule(self, tmp_path: Path, git: Git) -> None:
        main = tmp_path / "main"
        main.mkdir()
        git(main, "init", "-q")
        git(main, "commit", "-q", "--allow-empty", "-m", "x")
        git(main, "worktree", "add", "-q", "../linked")
        outer = tmp_path / "outer"
        outer.mkdir()
        git(outer, "init", "-q")
        git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(main), "sub")
        for tree in (main, tmp_path / "linked", outer, outer / "sub"):
            (tree / "a" / "b").mkdir(parents=True)
            git_dir = git(tree, "rev-parse", "--absolute-git-dir").strip()
            for folder in (tree, tree / "a" / "b"):
                assert find_git(str(folder)) == (git_dir, str(tree))
        assert "worktrees" in str(find_git(str(tmp_path / "linked"))[0])
        assert "modules" in str(find_git(str(outer / "sub"))[0])

    @pytest.mark.parametrize(
        "text", ["", "gitdir: /nowhere\n", "gitdir: \n", "something else\n", None]
    )
    def test_a_broken_gitfile_hides_what_is_above(
        self, tmp_path: Path, git: Git, text: str | None
    ) -> None:
        git(tmp_path, "init", "-q")
        (tmp_path / "sub").mkdir()
        if text is None:
            os.mkfifo(tmp_path / "sub" / ".git")
        else:
            (tmp_path / "sub" / ".git").write_text(text)
        assert find_git(str(tmp_path / "sub")) == (None, None)

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
    def test_a_gitfile_that_cannot_be_read(self, tmp_path: Path) -> None:
        (tmp_path / ".git").write_text("gitdir: /nowhere\n")
        (tmp_path / ".git").chmod(0)
        assert as_nobody(tmp_path, lambda: find_git(str(tmp_path))) == (None, None)

    def test_an_empty_dot_git_folder_does_not(self, tmp_path: Path, git: Git) -> None:
        git(tmp_path, "init", "-q")
        (tmp_path / "sub" / ".git").mkdir(parents=True)
        assert find_git(str(tmp_path / "sub")) == (str(tmp_path / ".git"), str(tmp_path))


# ---------------------------------------------------------------- editable installs, real

BACKENDS = ("setuptools>=77", "hatchling>=1.27", "editables", "flit>=3.12", "pip")

_SETUPTOOLS = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
_HATCHLING = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
_FLIT = '[build-system]\nrequires = ["flit_core"]\nbuild-backend = "flit_core.buildapi"\n'

#: Project: (pyproject.toml without [project], its source folder, the module to import).
PROJECTS = {
    "st-src": (_SETUPTOOLS, "src", "st_src"),
    "st-flat": (_SETUPTOOLS, ".", "st_flat"),
    # As FlashInfer: another name than the module's, more modules, data mapped from elsewhere.
    "st-infer-python": (
        (
            f"{_SETUPTOOLS}[tool.setuptools]\npackages = ['infer', 'infer.data.csrc']\n"
            "py-modules = ['infer_build']\npackage-dir = {'infer.data.csrc' = 'csrc'}\n"
        ),
        ".",
        "infer",
    ),
    "st-space": (
        f"{_SETUPTOOLS}[tool.setuptools]\npackages = ['corp.space']\n",
        ".",
        "corp.space",
    ),
    "st-remapped": (
        (
            f"{_SETUPTOOLS}[tool.setuptools]\npackages = ['moved']\n"
            "package-dir = {'moved' = 'elsewhere'}\n"
        ),
        "",
        "moved",
    ),
    "st-strict": (_SETUPTOOLS, "src", "st_strict"),
    "st-strict-flat": (_SETUPTOOLS, ".", "st_strict_flat"),
    "st-compat": (_SETUPTOOLS, ".", "st_compat"),
    "ha": (_HATCHLING, "src", "ha"),
    "ha-exact": (f"{_HATCHLING}[tool.hatch.build]\ndev-mode-exact = true\n", "src", "ha_exact"),
    "fl": (_FLIT, "src", "fl"),
    "fl-link": (_FLIT, ".", "fl_link"),
}

DEFAULT_MODE = ("st-src", "st-flat", "st-infer-python", "st-space", "st-remapped", "ha", "fl")
EVERY_MODE = [(name, "") for name in (*DEFAULT_MODE, "ha-exact")] + [
    ("st-strict", "strict"),
    ("st-strict-flat", "strict"),
    ("st-compat", "compat"),
]
#: pip is slower: what differs between it and uv is RECORD, not what the backends make.
WITH_PIP = [("st-src", ""), ("st-infer-python", ""), ("ha-exact", ""), ("st-strict", "strict")]


def write_project(folder: Path, name: str) -> None:
    build, source, module = PROJECTS[name]
    folder.mkdir(parents=True)
    project = f"[project]\nname = '{name}'\nversion = '1.5'\ndescription = 'x'\n"
    (folder / "pyproject.toml").write_text(f"{build}\n{project}")
    package = folder / (source or ".") / module.replace(".", "/")
    if name == "st-remapped":
        package = folder / "elsewhere"
    (package / "deep").mkdir(parents=True)
    for file in ("__init__.py", "deep/__init__.py", "deep/leaf.py"):
        (package / file).write_text("x = 1\n")
    if name == "st-infer-python":
        (folder / "infer_build.py").write_text("")
        (folder / "csrc").mkdir()
        (folder / "csrc" / "norm.cu").write_text("")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory, session_env: dict[str, str]) -> Path:
    """One repository with every project in a folder of its own, and a linked work tree."""
    base = tmp_path_factory.mktemp("checkout")
    repository = base / "repository"
    for name in PROJECTS:
        write_project(repository / name, name)
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org")
    run("git", "init", "-q", cwd=repository, env=session_env)
    run("git", "add", ".", cwd=repository, env=session_env)
    run(*git, "commit", "-q", "-m", "all", cwd=repository, env=session_env)
    run("git", "worktree", "add", "-q", base / "linked", cwd=repository, env=session_env)
    return repository


def make_tool_venv(folder: Path, env: dict[str, str]) -> Path:
    """A virtual environment with the build backends, so that nothing is built in isolation."""
    if UV is not None:
        run(UV, "venv", "-q", "--python", sys.executable, folder, env=env)
        run(UV, "pip", "install", "-q", "--python", folder / "bin/python", *BACKENDS, env=env)
    else:
        run(sys.executable, "-m", "venv", folder, env=env)
        run(folder / "bin/python", "-m", "pip", "install", "-q", *BACKENDS, env=env)
    return folder


def install_editable(
    command: tuple[str, ...], sources: Path, which: list[tuple[str, str]], env: dict[str, str]
) -> None:
    for mode in ("", "strict", "compat"):
        projects = [str(sources / name) for name, wanted in which if wanted == mode]
        options = ["-q", "--no-deps", "--no-build-isolation"]
        if mode:
            options += ["--config-settings", f"editable_mode={mode}"]
        if projects:
            run(*command, *options, *[f"-e{project}" for project in projects], env=env)


@pytest.fixture(scope="session")
def uv_editables(
    tmp_path_factory: pytest.TempPathFactory, checkout: Path, session_env: dict[str, str]
) -> Path:
    if UV is None:
        pytest.skip("needs uv: pip install uv")
    venv = make_tool_venv(tmp_path_factory.mktemp("uv") / "venv", session_env)
    command = (UV, "pip", "install", "--python", str(venv / "bin/python"))
    install_editable(command, checkout, EVERY_MODE, session_env)
    return venv


@pytest.fixture(scope="session")
def pip_editables(
    tmp_path_factory: pytest.TempPathFactory, checkout: Path, session_env: dict[str, str]
) -> Path:
    """Installed by pip, from the linked work tree of the checkout; one by flit as a link."""
    venv = make_tool_venv(tmp_path_factory.mktemp("pip") / "venv", session_env)
    command = (str(venv / "bin/python"), "-m", "pip", "install")
    linked = checkout.parent / "linked"
    install_editable(command, linked, WITH_PIP, session_env)
    flit = (venv / "bin/python", "-m", "flit", "install", "--symlink", "--deps", "none")
    variables = {**session_env, "FLIT_ROOT_INSTALL": "1"}
    run(*flit, "--python", venv / "bin/python", cwd=linked / "fl-link", env=variables)
    return venv


def check_editable(venv: Path, sources: Path, name: str, env: dict[str, str]) -> Distribution:
    """The module that Python imports lies under the root that was found."""
    _, source, module = PROJECTS[name]
    found = find_distribution(open_environment(str(venv), None, {}), name)
    assert found is not None
    leaf = f"{module}.deep.leaf"
    code = f"import {leaf}\nprint(json.dumps({leaf}.__file__))"
    imported = os.path.realpath(ask(venv / "bin/python", code, env))
    assert imported == os.path.join(found.root, *module.split("."), "deep", "leaf.py")
    assert (found.name, found.version, found.kind) == (name, "1.5", "editable")
    assert found.root == str((sources / name / source).resolve())
    assert found.work_tree == str(sources)
    assert found.dist_info is not None
    assert Record.load(found.dist_info) is not None
    return found


class TestEditableInstalls:
    @pytest.mark.parametrize("name", [n for n, _ in EVERY_MODE if n != "st-remapped"])
    def test_by_uv(
        self, uv_editables: Path, checkout: Path, session_env: dict[str, str], name: str
    ) -> None:
        found = check_editable(uv_editables, checkout, name, session_env)
        assert found.git_dir == str(checkout / ".git")

    @pytest.mark.parametrize("name", [*[n for n, _ in WITH_PIP], "fl-link"])
    def test_by_pip_from_a_linked_work_tree(
        self, pip_editables: Path, checkout: Path, session_env: dict[str, str], name: str
    ) -> None:
        found = check_editable(pip_editables, checkout.parent / "linked", name, session_env)
        assert found.git_dir == str(checkout / ".git" / "worktrees" / "linked")

    def test_a_package_that_is_laid_out_otherwise_is_refused(self, uv_editables: Path) -> None:
        env = open_environment(str(uv_editables), None, {})
        error = refused("editable-root", lambda: find_distribution(env, "st-remapped"))
        assert "laid out otherwise" in error.message
        assert "_finder.py" in error.message
        assert "--root" in str(error.hint)

    def test_all_are_listed(self, uv_editables: Path) -> None:
        env = open_environment(str(uv_editables), None, {})
        found = {dist.name: dist for dist in list_distributions(env)}
        assert {name for name, _ in EVERY_MODE} < set(found)
        assert found["pip"].kind == "wheel"
        assert (found["st-remapped"].kind, found["st-remapped"].root) == ("editable", "")
        assert all(os.path.isdir(d.root) for d in found.values() if d.name != "st-remapped")

    @pytest.mark.parametrize(
        ("path", "name"),
        [
            ("infer/deep/leaf.py", "st-infer-python"),
            ("infer_build.py", "st-infer-python"),
            ("corp/space/__init__.py", "st-space"),
            ("st_strict/deep/leaf.py", "st-strict"),
            ("ha/__init__.py", "ha"),
        ],
    )
    def test_their_files_have_an_owner(self, uv_editables: Path, path: str, name: str) -> None:
        found = owner(open_environment(str(uv_editables), None, {}), path)
        assert found is not None
        assert found.name == name

    def test_they_are_editable_without_direct_url_json_too(
        self, uv_editables: Path, tmp_path: Path, checkout: Path
    ) -> None:
        """As installers before PEP 610 left it: by the names of their path files."""
        copy = tmp_path / "site"
        shutil.copytree(site_packages(uv_editables), copy, symlinks=True)
        names = [name for name, _ in EVERY_MODE if name != "st-remapped"]
        for name in names:
            (info,) = copy.glob(f"{name.replace('-', '_')}-1.5.dist-info")
            (info / "direct_url.json").unlink()
            _, source, _ = PROJECTS[name]
            found = dist_at(copy, name)
            assert (found.kind, found.root) == (
                "editable",
                str((checkout / name / source).resolve()),
            )
        assert dist_at(copy, "setuptools").kind == "wheel"  # has distutils-precedence.pth


EDITABLE = {"url": "file:///x", "dir_info": {"editable": True}}


class TestEditableByHand:
    def install(self, folder: Path, files: dict[str, str], name: str = "demo") -> Path:
        for file, text in files.items():
            (folder / file).write_text(text)
        record = "".join(f"{file},,\n" for file in files)
        fake_dist(folder, f"{name}-1.dist-info", record=record, direct_url=EDITABLE)
        return folder

    def finder(self, text: str) -> dict[str, str]:
        return {
            "__editable__.demo-1.pth": "import __editable___demo_1_finder; "
            "__editable___demo_1_finder.install()",
            "__editable___demo_1_finder.py": text,
        }

    @pytest.fixture
    def packages(self, tmp_path: Path) -> Path:
        (tmp_path / "site").mkdir()
        for source in ("src/demo", "lib/demo", "lib/other", "src2/other"):
            (tmp_path / source).mkdir(parents=True)
        return tmp_path / "site"

    def test_the_finder_is_never_executed(self, packages: Path, tmp_path: Path) -> None:
        text = (
            f"open({str(tmp_path / 'ran')!r}, 'w')\nMAPPING = {{'demo': '{tmp_path}/src/demo'}}\n"
        )
        self.install(packages, self.finder(text))
        assert dist_at(packages, "demo").root == str(tmp_path / "src")
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize(
        ("mapping", "root"),
        [
            ("{'demo': 'TMP/lib/demo', 'other': 'TMP/lib/other'}", "lib"),
            ("{'demo': 'TMP/src/demo', 'other': 'TMP/lib/other'}", "src"),
            ("{'demo': 'TMP/src/demo', 'demo.data': 'TMP/data'}", "src"),
            ("{'ns.demo': 'TMP/src/ns/demo', 'ns.b': 'TMP/src/ns/b'}", "src"),
            ("{'demo': 'TMP/src/demo.py'}", "src"),
            ("{'demo': 'TMP/src/demo/__init__.py'}", "src"),
            ("{'demo': 'TMP/data'}", None),
            ("{'a': 'TMP/lib/a', 'b': 'TMP/src/b'}", None),
            ("{'ns.demo': 'TMP/src/ns/demo', 'ns.b': 'TMP/lib/ns/b'}", None),
            ("{'demo': 'TMP/gone/demo'}", None),
            ("{'demo': 1}", None),
            ("{}", None),
            ("dict(demo='TMP/src/demo')", None),
            ("['TMP/src/demo']", None),
            ("{'demo': ", None),
        ],
    )
    def test_mappings(self, packages: Path, tmp_path: Path, mapping: str, root: str | None) -> None:
        text = f"MAPPING: dict[str, str] = {mapping.replace('TMP', str(tmp_path))}\nx: int\n"
        self.install(packages, self.finder(text))
        if root is None:
            error = refused("editable-root", lambda: dist_at(packages, "demo"))
            assert "demo is an editable install" in error.message
        else:
            assert dist_at(packages, "demo").root == str(tmp_path / root)

    @pytest.mark.parametrize(
        ("lines", "root"),
        [
            (["TMP/src"], "src"),
            (["# a comment", "", "  TMP/src  "], "src"),
            (["../src"], "src"),
            (["TMP/src", "TMP/src"], "src"),
            (["TMP/src", "TMP/src2"], "src"),  # only src holds demo
            (["TMP/src", "TMP/gone"], "src"),
            (["TMP/src", "TMP/lib"], None),  # both do
            (["TMP/src2", "TMP/data"], None),
            (["TMP/gone"], None),
            (["import os; os.getcwd()"], None),
            (["import"], None),
            (["import _demo_editable"], None),
            (["TMP/site"], None),
            (["sub"], None),
            ([], None),
        ],
    )
    def test_path_files(
        self, packages: Path, tmp_path: Path, lines: list[str], root: str | None
    ) -> None:
        text = "\n".join(lines).replace("TMP", str(tmp_path))
        self.install(packages, {"demo.pth": text})
        if root is None:
            refused("editable-root", lambda: dist_at(packages, "demo"))
        else:
            assert dist_at(packages, "demo").root == str(tmp_path / root)

    def test_a_path_file_that_record_names_otherwise(self, packages: Path, tmp_path: Path) -> None:
        self.install(packages, {"zzz.pth": f"\ufeff{tmp_path}/src\r\n"})
        assert dist_at(packages, "demo").root == str(tmp_path / "src")

    def test_a_path_file_that_is_gone(self, packages: Path, tmp_path: Path) -> None:
        self.install(packages, {"demo.pth": f"{tmp_path}/src"})
        (packages / "demo.pth").unlink()
        error = refused("editable-root", lambda: dist_at(packages, "demo"))
        assert "demo.pth" in error.message

    def test_without_a_record_the_name_of_the_path_file_tells(
        self, packages: Path, tmp_path: Path
    ) -> None:
        self.install(packages, {"demo.pth": f"{tmp_path}/src", "other.pth": f"{tmp_path}/lib"})
        (packages / "demo-1.dist-info" / "RECORD").unlink()
        assert dist_at(packages, "demo").root == str(tmp_path / "src")

    def test_a_module_that_is_one_linked_file(self, packages: Path, tmp_path: Path) -> None:
        (tmp_path / "src" / "single.py").touch()
        (packages / "single.py").symlink_to(tmp_path / "src" / "single.py")
        self.install(packages, {}, "single")
        (packages / "single-1.dist-info" / "RECORD").write_text("single.py,,\n")
        assert dist_at(packages, "single").root == str(tmp_path / "src")

    def test_symlinks_in_the_source_folder_are_resolved(
        self, packages: Path, tmp_path: Path, git: Git
    ) -> None:
        git(tmp_path / "src", "init", "-q")
        (tmp_path / "alias").symlink_to("src")
        self.install(packages, {"demo.pth": f"{tmp_path}/alias"})
        found = dist_at(packages, "demo")
        assert (found.root, found.work_tree) == (str(tmp_path / "src"), str(tmp_path / "src"))

    def test_a_strict_tree_of_copies_tells_nothing(self, packages: Path, tmp_path: Path) -> None:
        tree = tmp_path / "build" / "__editable__.demo-1-py3-none-any"
        (tree / "demo").mkdir(parents=True)
        (tree / "demo" / "__init__.py").touch()
        self.install(packages, {"__editable__.demo-1.pth": str(tree)})
        refused("editable-root", lambda: dist_at(packages, "demo"))
        (tree / "demo" / "a.json").symlink_to(tmp_path / "somewhere" / "b.json")
        error = refused("editable-root", lambda: dist_at(packages, "demo"))
        assert "laid out otherwise" in error.message
        (tree / "demo" / "c.json").symlink_to(tmp_path / "src" / "demo" / "c.json")
        assert dist_at(packages, "demo").root == str(tmp_path / "src")
        (tree / "demo" / "b.json").symlink_to(tmp_path / "somewhere" / "c.json")
        (tree / "demo" / "d.json").symlink_to(tmp_path / "lib" / "demo" / "d.json")
        (tree / "module.py").symlink_to(tmp_path / "src" / "module.py")
        assert dist_at(packages, "demo").root == str(tmp_path / "src")
        shutil.rmtree(tree)
        refused("editable-root", lambda: dist_at(packages, "demo"))

    @pytest.mark.parametrize(
        "direct_url",
        [
            {"url": "file:///x", "dir_info": {}},
            {"url": "file:///x", "dir_info": {"editable": False}},
            {"url": "https://x/y.whl", "archive_info": {}},
        ],
    )
    def test_what_is_said_to_be_no_editable_install_is_none(
        self, packages: Path, tmp_path: Path, direct_url: object
    ) -> None:
        self.install(packages, {"demo.pth": f"{tmp_path}/src"})
        (packages / "demo-1.dist-info/direct_url.json").write_text(json.dumps(direct_url))
        assert dist_at(packages, "demo").kind == "wheel"

    @pytest.mark.parametrize("text", ["{editable", '["editable"]', '{"dir_info": "editable"}'])
    def test_a_broken_direct_url_says_nothing(self, packages: Path, text: str) -> None:
        self.install(packages, {})
        (packages / "demo-1.dist-info/direct_url.json").write_text(text)
        assert dist_at(packages, "demo").kind == "wheel"

    @pytest.mark.parametrize(
        "text", ["import coloredlogs.converter; x()", "sub", "sub/deeper\n# y", ""]
    )
    def test_a_wheel_with_a_path_file_of_its_name_is_a_wheel(
        self, packages: Path, text: str
    ) -> None:
        (packages / "demo.pth").write_text(text)
        fake_dist(packages, "demo-1.dist-info", record="demo.pth,,\ndemo/__init__.py,,\n")
        assert dist_at(packages, "demo").kind == "wheel"


# ------------------------------------------------------------------------ installed wheels

SMALL_WHEEL = "iniconfig==2.1.0"


@pytest.fixture(scope="module")
def pip_venv(tmp_path_factory: pytest.TempPathFactory, session_env: dict[str, str]) -> Path:
    """A venv that has pip; the tests clean up after themselves."""
    venv = tmp_path_factory.mktemp("wheels") / "venv"
    run(sys.executable, "-m", "venv", venv, env=session_env)
    return venv


class TestRealWheels:
    @needs_uv
    @pytest.mark.parametrize("mode", ["hardlink", "copy", "symlink", "clone"])
    def test_every_link_mode_of_uv(
        self, tmp_path: Path, session_env: dict[str, str], mode: str
    ) -> None:
        """A tree of symlinks into the cache is a wheel all the same."""
        uv, venv = str(UV), tmp_path / "venv"
        variables = {**session_env, "UV_CACHE_DIR": str(tmp_path / "cache")}
        run(uv, "venv", "-q", "--python", sys.executable, venv, env=variables)
        run(
            *(uv, "pip", "install", "-q", "--python", venv / "bin/python"),
            *("--link-mode", mode, SMALL_WHEEL),
            env=variables,
        )
        env = open_environment(str(venv), None, {})
        found = find_distribution(env, "iniconfig")
        assert found is not None
        assert (found.kind, found.version) == ("wheel", "2.1.0")
        assert found.root == str(site_packages(venv))
        assert os.path.islink(site_packages(venv) / "iniconfig/__init__.py") == (mode == "symlink")
        assert check_record(found) >= 4
        assert owner(env, "iniconfig/__init__.py") == found

    @pytest.mark.parametrize("tool", ["pip", pytest.param("uv", marks=needs_uv)])
    def test_added_rows_make_an_uninstall_take_the_files_along(
        self, pip_venv: Path, session_env: dict[str, str], tool: str
    ) -> None:
        python = pip_venv / "bin" / "python"
        pip = (python, "-m", "pip")
        run(*pip, "install", "-q", "--compile", SMALL_WHEEL, env=session_env)
        env = open_environment(str(pip_venv), None, {})
        found = find_distribution(env, "iniconfig")
        assert found is not None and found.dist_info is not None
        assert check_record(found) >= 4
        package = Path(found.root, "iniconfig")
        names = ("added.py", "with, comma.py", 'with "quotes".py', "späť.py")
        for name in names:
            (package / name).write_text("x = 1\n")
        rows = [(f"iniconfig/{name}", hashlib.sha256(b"x = 1\n").hexdigest(), 6) for name in names]
        record = Path(found.dist_info, "RECORD")
        record.write_bytes(Record.add_rows(record.read_bytes(), rows))
        files = importlib.metadata.PathDistribution(Path(found.dist_info)).files or []
        assert {row[0] for row in rows} <= {str(file) for file in files}
        assert check_record(found) >= 8
        if tool == "pip":
            run(*pip, "uninstall", "-q", "-y", "iniconfig", env=session_env)
        else:
            run(str(UV), "pip", "uninstall", "-q", "--python", python, "iniconfig", env=session_env)
        assert not package.exists()


def check_record(dist: Distribution) -> int:
    """Every row with a digest holds for the file on disk; how many there were."""
    assert dist.dist_info is not None
    record = Record.load(dist.dist_info)
    assert record is not None
    count = 0
    for path, row in record.rows(record.paths()).items():
        data = Path(dist.root, path).read_bytes()
        if row.algorithm is not None:
            assert row.digest_hex == hashlib.new(row.algorithm, data).hexdigest()
            assert row.size == len(data)
            count += 1
    return count


# ------------------------------------------------------------------------------------ RECORD


def parsed(raw: bytes) -> dict[str, RecordRow]:
    """RECORD by the csv module, as the reference: the first row of a path counts."""
    out: dict[str, RecordRow] = {}
    text = raw.decode("utf-8", "surrogateescape")
    for fields in csv.reader(io.StringIO(text, newline="")):
        if not fields:
            continue
        path, digest, size = (*fields, "", "")[:3]
        algorithm, _, encoded = digest.partition("=")
        padding = "=" * (-len(encoded) % 4)
        out.setdefault(
            path,
            RecordRow(
                path,
                algorithm or None,
                base64.urlsafe_b64decode(encoded + padding).hex() if encoded else None,
                int(size) if size else None,
            ),
        )
    return out


def digest_field(data: bytes, algorithm: str = "sha256") -> str:
    digest = hashlib.new(algorithm, data).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


path_text = st.text(
    alphabet=st.one_of(
        st.sampled_from(list("ab/,\"\n\r .-_=[]();\u2028\x0c'é")),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    min_size=1,
    max_size=20,
).filter(lambda text: not text.startswith("./"))

record_rows = st.lists(
    st.tuples(
        path_text,
        st.one_of(
            st.just(""),
            st.builds(
                digest_field, st.binary(max_size=4), st.sampled_from(["sha256", "sha512", "md5"])
            ),
        ),
        st.one_of(st.just(""), st.integers(0, 10**12).map(str)),
    ),
    max_size=12,
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """RECORD bytes as a csv writer makes them, with either line end, maybe cut off."""
    rows = draw(record_rows)
    text = io.StringIO()
    end = draw(st.sampled_from(["\n", "\r\n"]))
    if draw(st.integers(0, 3)):
        csv.writer(text, lineterminator=end).writerows(rows)
    else:
        csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    raw = text.getvalue().encode("utf-8", "surrogateescape")
    return raw.removesuffix(end.encode()) if draw(st.booleans()) else raw


class TestRecord:
    @given(records(), st.lists(path_text, max_size=3))
    def test_rows_are_what_the_csv_module_reads(self, raw: bytes, others: list[str]) -> None:
        expected = parsed(raw)
        record = Record(raw)
        wanted = [*expected, *others, *[f"{path}," for path in expected]]
        assert record.rows(wanted) == {
            path: row for path, row in expected.items() if path in wanted
        }
        assert record.raw == raw

    @given(records())
    def test_every_suffix_of_a_path_is_another_path(self, raw: bytes) -> None:
        """A searched name must never match in the middle of a row."""
        expected = parsed(raw)
        pieces = {path[cut:] for path in expected for cut in range(1, len(path))}
        pieces |= {line.partition(",")[0] for path in expected for line in path.split("\n")}
        found = Record(raw).rows(sorted(pieces - expected.keys() - {""}))
        assert found == {}

    @given(records())
    def test_paths_are_those_inside_of_the_site_directory(self, raw: bytes) -> None:
        expected = [
            path
            for path in parsed(raw)
            if path and not path.startswith("/") and ".." not in path.split("/")
        ]
        record = Record(raw)
        assert list(record.paths()) == expected
        assert record.paths() is record.paths()

    @given(
        records(),
        st.lists(
            st.tuples(
                path_text, st.binary(min_size=32, max_size=32).map(bytes.hex), st.integers(0, 99)
            ),
            max_size=5,
            unique_by=lambda row: row[0],
        ),
        st.sampled_from(["", "demo-1.dist-info/RECORD,,\n", "demo-1.dist-info/RECORD,,\r\n"]),
        st.randoms(),
    )
    def test_added_rows_change_nothing_else(
        self, raw: bytes, rows: list[tuple[str, str, int]], own: str, random: Any
    ) -> None:
        end = b"\r\n" if b"\r\n" in raw else b"\n"
        if raw and not raw.endswith(end):
            raw += end
        raw += own.encode()
        before = parsed(raw)
        after_raw = Record.add_rows(raw, rows)
        after = parsed(after_raw)
        new = {path: row for path, row in after.items() if path not in before}
        assert {path: row for path, row in after.items() if path in before} == before
        assert new == {
            path: RecordRow(path, "sha256", digest, size)
            for path, digest, size in rows
            if path not in before
        }
        assert list(new) == sorted(new)
        if own and raw.count(b"RECORD") == 1:
            assert list(after)[-1] == "demo-1.dist-info/RECORD"
        random.shuffle(rows)
        assert Record.add_rows(raw, rows) == after_raw
        assert Record.add_rows(after_raw, rows) == after_raw

    @pytest.mark.parametrize(
        ("raw", "expected"),
        [
            (b"", b"n.py,sha256=AAA,7\n"),
            (b"a,,\n", b"a,,\nn.py,sha256=AAA,7\n"),
            (b"a,,", b"a,,\nn.py,sha256=AAA,7"),
            (b"a,,\r\nb,,\r\n", b"a,,\r\nb,,\r\nn.py,sha256=AAA,7\r\n"),
            (b"a,,\nd.dist-info/RECORD,,\n", b"a,,\nn.py,sha256=AAA,7\nd.dist-info/RECORD,,\n"),
            (b"d.dist-info/RECORD,,", b"n.py,sha256=AAA,7\nd.dist-info/RECORD,,"),
            (
                b"a,,\r\nd.dist-info/RECORD,,\r\n",
                b"a,,\r\nn.py,sha256=AAA,7\r\nd.dist-info/RECORD,,\r\n",
            ),
            (b"d.dist-info/RECORD,,\nz,,\n", b"d.dist-info/RECORD,,\nz,,\nn.py,sha256=AAA,7\n"),
            (b'a,,\n"d.dist-info/RECORD",,\n', b'a,,\nn.py,sha256=AAA,7\n"d.dist-info/RECORD",,\n'),
            (b"n.py,sha256=x,1\n", b"n.py,sha256=x,1\n"),
        ],
    )
    def test_where_added_rows_go(self, raw: bytes, expected: bytes) -> None:
        encoded = b"A" * 43
        assert Record.add_rows(raw, [("n.py", "00" * 32, 7)]) == expected.replace(b"AAA", encoded)

    def test_nothing_to_add(self) -> None:
        assert Record.add_rows(b"a,,", []) == b"a,,"

    @pytest.mark.parametrize("prefix", [b"", b"x.py,,\n", b"x.py,,\r\n"])
    @pytest.mark.parametrize(
        ("row", "path"),
        [
            (b"./a/b.py,sha256=DIGEST,3", "a/b.py"),
            (b'"./a,b.py",sha256=DIGEST,3', "a,b.py"),
            (b".//a/b.py,sha256=DIGEST,3", "a/b.py"),
            (b'"a/b.py",sha256=DIGEST,3', "a/b.py"),
            (b'"a/b.py","sha256=DIGEST","3"', "a/b.py"),
            (b"a/b.py,sha256=DIGEST=,3", "a/b.py"),
            (b"a/b.py,sha256=HEX,3", "a/b.py"),
            (b"a/b.py,sha256=DIGEST,3\r", "a/b.py"),
            (b"lone\rreturn,,\na/b.py,sha256=DIGEST,3", "a/b.py"),
            (b"other.py,,\ra/b.py,sha256=DIGEST,3", "a/b.py"),
            (b'"a/"b.py,sha256=DIGEST,3', "a/b.py"),
            (b'od"d,,\na/b.py,sha256=DIGEST,3', "a/b.py"),
            (b"\xff/b.py,sha256=DIGEST,3", "\udcff/b.py"),
            (b"a/b.py,sha256=DIGEST,3,more", "a/b.py"),
        ],
    )
    def test_odd_rows(self, prefix: bytes, row: bytes, path: str) -> None:
        digest = hashlib.sha256(b"abc")
        encoded = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=")
        raw = prefix + row.replace(b"DIGEST", encoded)
        raw = raw.replace(b"HEX", digest.hexdigest().encode())
        for tail in (b"", b"\n", b"\r\n", b"\nz.py,,\n"):
            record = Record(raw + tail)
            assert record.rows([path]) == {path: RecordRow(path, "sha256", digest.hexdigest(), 3)}
            assert path in record.paths()

    @pytest.mark.parametrize(
        ("fields", "algorithm", "size"),
        [
            (b",,", None, None),
            (b",", None, None),
            (b",sha256=,", "sha256", None),
            (b",sha256=!!!,x", "sha256", None),
            (b",sha256=AAAA,-1", "sha256", None),
            (b",sha256=" + b"z" * 64 + b",7", "sha256", 7),
            (b",blake9=AAAA,7", "blake9", 7),
            (b",garbage,7", None, 7),
            (",sha256=é,\uff17".encode(), "sha256", None),
        ],
    )
    def test_rows_without_a_usable_digest(
        self, fields: bytes, algorithm: str | None, size: int | None
    ) -> None:
        expected = {"a.py": RecordRow("a.py", algorithm, None, size)}
        assert Record(b"a.py" + fields + b"\n").rows(["a.py"]) == expected
        # The same by the other way of reading.
        assert Record(b"a.py" + fields + b'\n"x\ny",,\n').rows(["a.py"]) == expected

    def test_paths_that_lead_out(self) -> None:
        raw = b"../../../bin/sglang,,\n/usr/x,,\n a.py,,\na/../../b,,\n..c/d..,,\n\n,,\nz,,\n"
        assert Record(raw).paths() == (" a.py", "..c/d..", "z")

    def test_bytes_that_are_no_csv(self) -> None:
        raw = b'"' + b"x" * 200_000  # a field longer than csv.field_size_limit()
        error = refused("record-unreadable", lambda: Record(raw))
        assert "line 1" in error.message

    def test_no_record(self, tmp_path: Path) -> None:
        assert Record.load(str(tmp_path)) is None
        (tmp_path / "file.egg-info").touch()
        assert Record.load(str(tmp_path / "file.egg-info")) is None
        (tmp_path / "RECORD").mkdir()
        error = refused("record-unreadable", lambda: Record.load(str(tmp_path)))
        assert "RECORD cannot be read" in error.message

    @pytest.mark.parametrize(
        ("name", "version", "at_least"),
        [("sglang", "0.5.9", 1900), ("flashinfer-python", "0.6.3", 1900)],
    )
    def test_real_ones(
        self, release_tree: ReleaseTree, name: str, version: str, at_least: int
    ) -> None:
        tree = release_tree(name, version)
        dist = dist_at(tree, name)
        assert (dist.version, dist.kind, dist.root) == (version, "wheel", str(tree))
        assert dist.dist_info is not None
        record = Record.load(dist.dist_info)
        assert record is not None
        expected = parsed(record.raw)
        assert record.rows(list(expected)) == expected
        assert list(record.paths()) == list(expected)
        assert len(expected) >= at_least
        if name == "sglang":
            assert sum("," in path for path in expected) > 200
        # As a zip made on another system has it.
        for raw in (record.raw.replace(b"\n", b"\r\n"), record.raw + b'"x\ny",,\n'):
            other = Record(raw)
            assert other.rows(list(expected)) == expected
            assert list(other.paths())[: len(expected)] == list(expected)
        own = os.path.basename(dist.dist_info) + "/RECORD"
        added = Record.add_rows(record.raw, [("a/new, file.py", "00" * 32, 1)])
        assert len(added) == len(record.raw) + len(b'"a/new, file.py",sha256=,1\n') + 43
        assert list(parsed(added)).index("a/new, file.py") == len(expected) - (
            list(expected)[-1] == own
        )

    def test_every_record_of_this_environment(self) -> None:
        count = 0
        for dist in list_distributions(open_environment(None, None, {})):
            record = Record.load(dist.dist_info or "")
            if record is not None:
                expected = parsed(record.raw)
                assert record.rows(list(expected)) == expected
                count += 1
        assert count > 5


# ------------------------------------------------------------------------------------- owner


class TestOwner:
    def test_by_record_and_not_by_the_first_folder(
        self, release_tree: ReleaseTree, tmp_path: Path
    ) -> None:
        tree = release_tree("flashinfer-python", "0.6.3")
        env = open_environment(None, str(tree), {})
        for path in ("build_backend.py", "flashinfer/jit/core.py"):
            found = owner(env, path)
            assert found is not None
            assert found.name == "flashinfer-python"
        assert owner(env, "flashinfer/nowhere.py") is None
        assert owner(env, "jit/core.py") is None

    def both(self, folder: Path, first: str, second: str) -> Environment:
        fake_dist(folder, "sgl_kernel-0.3.21.dist-info", record=f"sgl_kernel/a.py,{first},1\n")
        fake_dist(folder, "sglang_kernel-0.4.1.dist-info", record=f"sgl_kernel/a.py,{second},1\n")
        return open_environment(None, str(folder), {})

    @pytest.mark.parametrize(
        ("first", "second"), [(digest_field(b"1"), digest_field(b"2")), ("", "")]
    )
    def test_two_that_overwrite_each_other(self, tmp_path: Path, first: str, second: str) -> None:
        env = self.both(tmp_path, first, second)
        error = refused("ambiguous-owner", lambda: owner(env, "sgl_kernel/a.py"))
        assert "sgl_kernel-0.3.21.dist-info, sglang_kernel-0.4.1.dist-info" in error.message
        assert error.file == "sgl_kernel/a.py"

    def test_two_that_agree(self, tmp_path: Path) -> None:
        found = owner(self.both(tmp_path, *[digest_field(b"1")] * 2), "sgl_kernel/a.py")
        assert found is not None
        assert found.name == "sgl-kernel"

    def test_the_first_directory_wins(self, tmp_path: Path) -> None:
        for folder, version in (("a", "1"), ("b", "2")):
            record = f"x/a.py,{digest_field(version.encode())},1\n"
            fake_dist(tmp_path / folder, f"x-{version}.dist-info", record=record)
        fake_dist(tmp_path / "b", "y-1.dist-info", record="y.py,,\n")
        search = (str(tmp_path / "a"), str(tmp_path / "b"))
        env = Environment(search[0], search)
        versions = [dist.version if (dist := owner(env, path)) else None for path in ("x/a.py",)]
        assert versions == ["1"]
        found = owner(env, "y.py")
        assert found is not None
        assert found.root == search[1]

    def test_leftovers_own_nothing(self, tmp_path: Path) -> None:
        info = fake_dist(tmp_path, "x-1.dist-info", record="x.py,,\n")
        (info / "METADATA").unlink()
        (tmp_path / "y-1.egg-info").write_text("Name: y\n")
        assert owner(open_environment(None, str(tmp_path), {}), "x.py") is None

    def test_two_editable_installs_that_hold_it(self, tmp_path: Path) -> None:
        packages = tmp_path / "site"
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "shared.py").touch()
            fake_dist(
                packages, f"{name}-1.dist-info", record=f"{name}.pth,,\n", direct_url=EDITABLE
            )
            (packages / f"{name}.pth").write_text(str(tmp_path / name))
        env = open_environment(None, str(packages), {})
        refused("ambiguous-owner", lambda: owner(env, "shared.py"))
        (tmp_path / "two" / "shared.py").unlink()
        found = owner(env, "shared.py")
        assert found is not None
        assert found.name == "one"
        (tmp_path / "one" / "shared.py").unlink()
        assert owner(env, "shared.py") is None


# --------------------------------------------------------------------------------- the rest


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(environment).failed == 0


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A tree without any write permission."""
    fake_dist(tmp_path / "site", "x-1.dist-info", record="x.py,,\n")
    folders = [tmp_path / "site" / "x-1.dist-info", tmp_path / "site"]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    yield tmp_path / "site"
    for folder in folders:
        folder.chmod(0o755)


def test_nothing_needs_write_permission(frozen: Path) -> None:
    env = open_environment(None, str(frozen), {})
    assert [dist.name for dist in list_distributions(env)] == ["x"]
    assert owner(env, "x.py") == find_distribution(env, "x")
