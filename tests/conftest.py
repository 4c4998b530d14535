"""Fixtures: real releases, environments made of them, and patchkit as a real process.

Tests call the command as users do, by ``cli``; environments are copies of real wheels, made
by ``installed`` or ``make_venv``, and are deleted again when the test passed.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import hypothesis.configuration
import pytest

from tests import releases
from tests.releases import BUILD, FLASHINFER, SGLANG, LinkMode, Release

hypothesis.configuration.set_hypothesis_home_dir(str(BUILD / "hypothesis"))
_COMMON: dict[str, Any] = {
    "deadline": None,  # the machine is shared, and examples run git
    "database": None,
    "print_blob": True,
    "suppress_health_check": [
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
    ],
}
hypothesis.settings.register_profile("ci", **_COMMON, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("quick", **_COMMON, derandomize=True, max_examples=20)
hypothesis.settings.register_profile("dev", **_COMMON, max_examples=100)
hypothesis.settings.register_profile("thorough", **_COMMON, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

#: Never handed to a child: they would change what patchkit finds or what Python does.
_DROPPED = (
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "PYTHONOPTIMIZE",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "SOURCE_DATE_EPOCH",
)
_DROPPED_PREFIXES = ("PATCHKIT_", "GIT_", "XDG_", "_PATCHKIT_", "COVERAGE_")


def clean_environment(home: Path, **changes: str) -> dict[str, str]:
    """The environment for a child: no trace of the venv, of caches or of the user.

    Nor of coverage, whose own renames and writes at the end would be counted by a test that
    lets the n-th system call fail; ``cli`` hands that on where nothing is injected.
    """
    env = {
        key: value
        for key, value in os.environ.items()
        if key not in _DROPPED and not key.startswith(_DROPPED_PREFIXES)
    }
    env["HOME"] = str(home)
    env["LC_ALL"] = "C.UTF-8"
    env["GIT_CONFIG_NOSYSTEM"] = "1"
    env.update(changes)
    return env


#: How many commands of one test are measured for coverage.
MEASURED_RUNS = 12


def _coverage() -> dict[str, str]:
    """What makes a child measure itself; empty where nothing is measured."""
    return {key: value for key, value in os.environ.items() if key.startswith("COVERAGE_")}


@dataclass(frozen=True, slots=True)
class Result:
    """What a finished command left: exit code, both streams (bytes as surrogates)."""

    args: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON object that it must be."""
        return json.loads(self.stdout)

    def __str__(self) -> str:
        text = (
            f"$ {' '.join(self.args)}\nexit code {self.exit_code}\n"
            f"--- stdout\n{self.stdout}--- stderr\n{self.stderr}"
        )
        # A report goes from process to process as UTF-8.
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


class Cli(Protocol):
    """Runs ``python -m patchkit ARGS`` to its end as a real process.

    ``check`` is the exit code that the test counts on, or None for any.  A ``None`` in
    ``env`` takes a variable out.  ``python`` and ``prefix`` (``("strace", …)``) change how
    it is started; with a prefix the process is not measured for coverage.  Nor is it beyond
    the first few of a test: coverage doubles the cost of a command, and a loop of them takes
    the same ways again.
    """

    def __call__(
        self,
        *args: str | Path,
        check: int | None = 0,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        input: bytes | None = None,
        timeout: float = 300,
        python: str | Path = sys.executable,
        prefix: Iterable[str] = (),
    ) -> Result: ...


class Installed(Protocol):
    """A fresh site-packages folder that holds the given releases (default: those of the bundles).

    See :func:`tests.releases.install` for the link modes.
    """

    def __call__(
        self,
        which: Iterable[Release | str] = (SGLANG, FLASHINFER),
        *,
        link_mode: LinkMode = "copy",
    ) -> Path: ...


class MakeVenv(Protocol):
    """A fresh virtual environment; ``releases`` are laid into it.  Returns its folder."""

    def __call__(
        self,
        which: Iterable[Release | str] = (SGLANG, FLASHINFER),
        *,
        link_mode: LinkMode = "copy",
        python: str | Path = sys.executable,
    ) -> Path: ...


class Git(Protocol):
    """Runs git in ``folder`` with a fixed identity and no configuration; its output."""

    def __call__(self, folder: Path, *args: str, check: int | None = 0) -> str: ...


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder that is the HOME of the test's children."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def child_env(home: Path) -> dict[str, str]:
    """The environment that ``cli`` gives to its children."""
    return clean_environment(home)


@pytest.fixture
def cli(child_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """patchkit as a real process, in an empty working directory unless ``cwd`` says else."""
    empty = tmp_path_factory.mktemp("cwd")
    runs = itertools.count()

    def run(
        *args: str | Path,
        check: int | None = 0,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        input: bytes | None = None,
        timeout: float = 300,
        python: str | Path = sys.executable,
        prefix: Iterable[str] = (),
    ) -> Result:
        command = [*prefix, str(python), "-m", "patchkit", *map(str, args)]
        measured = {} if prefix or next(runs) >= MEASURED_RUNS else _coverage()
        variables = {**child_env, **measured, **(env or {})}
        done = subprocess.run(
            command,
            env={key: value for key, value in variables.items() if value is not None},
            cwd=cwd or empty,
            input=b"" if input is None else input,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        result = Result(
            tuple(command),
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )
        if check is not None:
            assert result.exit_code == check, str(result)
        return result

    return run


@pytest.fixture
def git(child_env: dict[str, str]) -> Git:
    """git with an identity and without anybody's configuration."""
    env = {
        **child_env,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "A U Thor",
        "GIT_AUTHOR_EMAIL": "author@example.org",
        "GIT_COMMITTER_NAME": "C O Mitter",
        "GIT_COMMITTER_EMAIL": "committer@example.org",
    }

    def run(folder: Path, *args: str, check: int | None = 0) -> str:
        done = subprocess.run(
            ["git", "-c", "init.defaultBranch=main", *args],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        output = done.stdout.decode("utf-8", "surrogateescape")
        if check is not None:
            assert done.returncode == check, (args, output, done.stderr.decode(errors="replace"))
        return output

    return run


@pytest.fixture(scope="session")
def release_tree() -> Callable[[str, str], Path]:
    """The unpacked wheel of any release of the index, cached; for reading only."""
    return releases.tree


@pytest.fixture(autouse=True)
def _signals_of_a_fresh_process() -> None:
    """What is started inherits which signals are ignored: by a change that was done in this
    process, or by a shell that started the tests in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _cache_is_left_alone() -> Iterator[None]:
    """Fails the session when a test wrote into a cached tree."""
    folder = BUILD / "trees"
    before = {
        stamp.name: releases.stats(folder / stamp.name[1:-3]) for stamp in folder.glob(".*.ok")
    }
    yield
    for name, picture in before.items():
        key = name[1:-3]
        if releases.stats(folder / key) != picture:
            (folder / name).unlink(missing_ok=True)
            shutil.rmtree(folder / key)
            pytest.fail(f"a test changed the cached tree {key}; it was removed")


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Makes private site-packages folders of real releases."""
    made = []

    def make(
        which: Iterable[Release | str] = (SGLANG, FLASHINFER), *, link_mode: LinkMode = "copy"
    ) -> Path:
        base = tmp_path_factory.mktemp("env")
        made.append(base)
        return releases.install(which, base / "site-packages", link_mode=link_mode)

    yield make
    for base in made:
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def make_venv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeVenv]:
    """Makes private virtual environments (without pip) of real releases."""
    made = []

    def make(
        which: Iterable[Release | str] = (SGLANG, FLASHINFER),
        *,
        link_mode: LinkMode = "copy",
        python: str | Path = sys.executable,
    ) -> Path:
        base = tmp_path_factory.mktemp("venv")
        made.append(base)
        folder = base / "venv"
        subprocess.run(
            [str(python), "-m", "venv", "--without-pip", str(folder)],
            check=True,
            stdin=subprocess.DEVNULL,
        )
        (site_packages,) = folder.glob("lib/python*/site-packages")
        releases.install(which, site_packages, link_mode=link_mode)
        return folder

    yield make
    for base in made:
        shutil.rmtree(base, ignore_errors=True)


#: Modules about data (whole releases, thousands of examples, every system call) and not about
#: the interpreter: all of their tests are slow.
SLOW_MODULES = {
    "test_images_context",
    "test_images_layers",
    *(f"test_authoring_{name}" for name in ("capture", "import", "series")),
    *(
        "test_bundles_end_to_end",
        "test_caches",
        "test_differential",
        "test_docs",
        "test_environment",
        "test_trial_run",
    ),
    *("test_dialects", "test_gitsource", "test_outside", "test_packaging", "test_promises_corners"),
    *("test_module", "test_rollout"),  # of the Ansible collection
    *("test_launch_hosts", "test_launch_sync", "test_launch_uv"),
    *("test_commands_edges", "test_real_releases", "test_recount", "test_shipped_bundles"),
    *(f"test_commands_{name}" for name in ("bundles", "editable", "json", "loose", "select")),
    *(
        f"test_promises_{name}"
        for name in (
            *("all_or_nothing", "caches", "concurrent", "damage", "homes", "hostile", "kill"),
            *("known", "messages", "outside", "place", "real", "same", "sizes", "stale"),
        )
    ),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what runs on one interpreter only."""
    for item in items:
        if item.path.stem in SLOW_MODULES:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip needs a reason that says what is missing; any other skip is a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if "needs " not in reason:
            report.outcome = "failed"
            report.longrepr = f"skipped without saying what it needs: {reason!r}"
    return report
