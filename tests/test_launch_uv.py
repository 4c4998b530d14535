"""A real uv project, with a real package: what takes the patch away is named, and put right.

The cache of uv stays as it was throughout: it is compared file by file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import releases
from tests.support.lab import Lab, Site, git_diff
from tests.support.wheels import pip_install, uv

pytest_plugins = ("tests.support.fixtures",)

OLD, NEW = ("six", "1.16.0"), ("six", "1.17.0")
FIX = "\n\ndef patched():\n    return True\n"


@dataclass
class Project:
    """A project whose environment uv made, with its table for patchkit."""

    folder: Path
    cache: Path
    wheels: Path
    lab: Lab
    link_mode: str

    @property
    def site(self) -> Site:
        """The environment that uv has made."""
        (root,) = (self.folder / ".venv").glob("lib/python*/site-packages")
        return Site(root, self.folder / ".venv" / "bin" / "python")

    def write(self, version: str) -> None:
        """``pyproject.toml`` that wants this release."""
        minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
        (self.folder / "pyproject.toml").write_text(
            '[project]\nname = "server"\nversion = "1"\n'
            f'requires-python = ">={minor}"\ndependencies = ["six=={version}"]\n'
            f'[tool.uv]\nno-index = true\nfind-links = ["{self.wheels}"]\n'
            f'link-mode = "{self.link_mode}"\n'
            f'[tool.patchkit]\nbundles = ["fix"]\nbundle-dir = "{self.lab.bundles}"\n'
        )

    def uv(self, *args: str, check: int | None = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """uv as a person types it in the project."""
        done = subprocess.run(
            [*uv(), *args],
            cwd=self.folder,
            env={
                **self.lab.child_env,
                "UV_CACHE_DIR": str(self.cache),
                "UV_OFFLINE": "1",
                "UV_PYTHON": sys.executable,
                "UV_PYTHON_DOWNLOADS": "never",
                **env,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert check is None or done.returncode == check, done.stdout + done.stderr
        return done

    def patchkit(self, *args: str, check: int = 0) -> str:
        """patchkit in the project, without any option; both streams."""
        result = self.lab.cli(*args, cwd=self.folder, check=check)
        return result.stdout + result.stderr

    def verify(self, check: int = 0) -> str:
        """What ``verify`` says of the project's environment."""
        return self.lab.run(self.site, "verify", "fix", check=check).stderr

    def pristine_cache(self) -> dict[str, str | None]:
        """Every module in the cache with its digest."""
        found = releases.snapshot(self.cache)
        return {path: entry.digest for path, entry in found.items() if path.endswith(".py")}


@pytest.fixture(params=["hardlink", "symlink", "copy"])
def project(request: pytest.FixtureRequest, lab: Lab) -> Project:
    """Synced by uv and by patchkit, with the guard."""
    wheels = lab.folder("wheels")
    before, after = {}, {}
    for release in (OLD, NEW):
        wheel = releases.wheel(*release)
        shutil.copyfile(wheel, wheels / wheel.name)
    source = (releases.tree(*OLD) / "six.py").read_text()
    before["six.py"], after["six.py"] = source, source + FIX
    lab.bundle("fix", {"six": git_diff(lab.folder("scratch"), before, after)})
    made = Project(lab.folder("project"), lab.cache, wheels, lab, request.param)
    made.write("1.16.0")
    made.uv("sync")
    return made


CHECK = "import six; print(six.__version__, hasattr(six, 'patched'))"


def test_uv_and_pip_take_the_patch_away_and_sync_puts_it_back(project: Project) -> None:
    """One environment through a day of a person who works in it."""
    pristine = project.pristine_cache()
    assert any(path.endswith("six.py") for path in pristine)
    project.patchkit("sync")
    project.patchkit("--python", ".venv", "guard", "install")
    assert project.uv("run", "python", "-c", CHECK).stdout == "1.16.0 True\n"

    # uv does not know that anything is patched, and leaves it so: nothing is said.
    again = project.uv("sync")
    assert "guard" not in again.stderr
    done = project.uv("run", "python", "-c", CHECK, PATCHKIT_GUARD="fail")
    assert (done.stdout, done.stderr.count("guard")) == ("1.16.0 True\n", 0)

    # What puts the file back is named by the guard and by verify.
    project.uv("sync", "--reinstall")
    assert "as installed, unpatched" in project.uv("run", "python", "-c", CHECK).stderr
    assert "reinstalled" in project.verify(check=1)
    assert project.uv("run", "python", "-c", CHECK, check=1, PATCHKIT_GUARD="fail").stdout == ""
    project.patchkit("sync", "--check", check=1)
    project.patchkit("sync")
    project.verify()
    assert project.uv("run", "python", "-c", CHECK, PATCHKIT_GUARD="fail").stdout == "1.16.0 True\n"

    # So is another release, which comes with the next `uv run` by itself.
    project.write("1.17.0")
    done = project.uv("run", "python", "-c", CHECK)
    assert done.stdout == "1.17.0 False\n"
    assert "six 1.16.0, which was patched, is not installed any more" in done.stderr
    assert "installed is 1.17.0" in project.verify(check=1)
    project.patchkit("sync")
    assert project.uv("run", "python", "-c", CHECK, PATCHKIT_GUARD="fail").stdout == "1.17.0 True\n"

    # And what pip does.
    links = ["--find-links", str(project.wheels), "--upgrade", "--force-reinstall"]
    pip_install(["six==1.16.0"], python=project.site.python, options=links)
    assert "is not installed any more" in project.uv("run", "--no-sync", "python", "-c", "").stderr
    project.verify(check=1)
    project.patchkit("sync")
    done = project.uv("run", "--no-sync", "python", "-c", CHECK, PATCHKIT_GUARD="fail")
    assert done.stdout == "1.16.0 True\n"

    # Taken out, all is as uv made it, and nothing of it ever got into the cache.
    project.write("1.16.0")
    text = (project.folder / "pyproject.toml").read_text()
    (project.folder / "pyproject.toml").write_text(text.replace('["fix"]', "[]"))
    project.patchkit("sync")
    project.patchkit("--python", ".venv", "guard", "uninstall")
    assert not (project.site / ".patchkit").exists()
    now = project.pristine_cache()
    assert {path: now[path] for path in pristine} == pristine
    for path in now:
        if path.endswith("six.py"):
            assert "def patched" not in (project.cache / path).read_text()


def test_a_new_environment_is_patched_by_sync_alone(project: Project) -> None:
    """`uv venv` anew takes the record along: nothing in the environment can tell."""
    project.patchkit("sync")
    project.uv("venv", "--clear")
    project.uv("sync")
    project.verify(check=1)
    project.patchkit("sync")
    project.verify()
    assert project.uv("run", "python", "-c", CHECK).stdout == "1.16.0 True\n"


def test_the_guard_does_not_stand_in_uv_s_way(project: Project) -> None:
    """With ``fail`` exported, uv can still look at the interpreter and mend the environment."""
    project.patchkit("sync")
    project.patchkit("--python", ".venv", "guard", "install")
    path = project.site / "six.py"
    path.unlink()
    path.write_text("x = 1\n")
    for folder in project.cache.glob("interpreter-*"):
        shutil.rmtree(folder)  # what uv knows of the interpreter already
    project.uv("run", "--no-sync", "python", "-c", "", check=1, PATCHKIT_GUARD="fail")
    project.uv("sync", "--reinstall", PATCHKIT_GUARD="fail")
    project.patchkit("sync")
    assert project.uv("run", "python", "-c", CHECK, PATCHKIT_GUARD="fail").stdout == "1.16.0 True\n"
