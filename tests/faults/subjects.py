"""The tools under attack, each with the same change on a tree of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import releases
from tests.releases import FLASHINFER, ROOT, SGLANG

BUNDLES = ("sm120-fusion", "symm-mem-sm120")

#: Digest of each file of the change; None where it is absent.
State = tuple[str | None, ...]


@dataclass(frozen=True)
class Change:
    """What every tool does: the shipped bundles' real change of the real releases, as
    patches of one file each, and the trees before and after."""

    folder: Path
    files: tuple[str, ...]
    patches: tuple[Path, ...]
    pristine: Path
    env: Mapping[str, str]

    def state(self, tree: Path) -> State:
        """What the files of the change hold."""
        return tuple(_digest(tree / name) for name in self.files)


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def make_change(folder: Path) -> Change:
    """The change, made by patchkit itself on a copy of the releases."""
    env = _environment(folder)
    pristine = releases.install([SGLANG, FLASHINFER], folder / "pristine")
    scratch = folder / "scratch"
    shutil.copytree(pristine, scratch, symlinks=True)
    base = [sys.executable, "-m", "patchkit", "--root", str(scratch), "--bundles", str(ROOT)]
    run([*base, "apply", *BUNDLES], env=env)
    found = json.loads(run([*base, "--json", "diff"], env=env).stdout)["files"]
    patches = []
    for number, file in enumerate(found, 1):
        path = folder / "patches" / "five" / f"{number:04}.patch"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["diff"])
        patches.append(path)
    names = tuple(file["path"] for file in found)
    shutil.rmtree(scratch)
    return Change(folder, names, tuple(patches), pristine, env)


def _environment(folder: Path) -> dict[str, str]:
    """For all tools alike; git finds no repository above the trees."""
    home = folder / "home"
    home.mkdir()
    kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def run(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    done = subprocess.run(
        list(command), env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert not check or done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done


class Subject(ABC):
    """A tool on a tree of its own.

    ``commands`` are what is attacked.  :meth:`prepare` brings the tree to where a command
    starts from.  The verdict of a tool on its tree is ``"old"``, ``"new"`` (as before or
    after the command), or None: it says that something is wrong.
    """

    name: str
    commands: tuple[str, ...]
    #: The ways back from an interrupted command, tried in turn.
    ways: tuple[str, ...]

    def __init__(self, change: Change) -> None:
        self.change = change
        self.tree = change.folder / self.name.replace(" ", "-")
        shutil.copytree(change.pristine, self.tree, symlinks=True)
        self.pristine = change.state(self.tree)

    def state(self) -> State:
        """What the tree holds now."""
        return self.change.state(self.tree)

    def reset(self) -> None:
        """Pristine files again, whatever the tool left."""
        for name in self.change.files:
            shutil.copy2(self.change.pristine / name, self.tree / name)

    @abstractmethod
    def prepare(self, command: str) -> None:
        """Everything as it is before ``command``."""

    @abstractmethod
    def line(self, command: str) -> list[str]:
        """The command line."""

    @abstractmethod
    def verdict(self, command: str) -> str | None:
        """What the tool says of its tree after an interrupted ``command``."""

    @abstractmethod
    def go_back(self, way: str) -> bool:
        """Take one way back; whether the tool says that it worked."""

    @abstractmethod
    def revert(self) -> bool:
        """Back to pristine; whether nothing of the tool is left, as far as it claims so."""


class Patchkit(Subject):
    """patchkit, with a bundle of the change in two versions."""

    name = "patchkit"
    commands = ("apply", "revert", "upgrade", "recover")
    ways = ("recover", "apply", "revert")

    def __init__(self, change: Change) -> None:
        super().__init__(change)
        for version in ("1", "2"):
            self._bundle(version)
        self._expected: dict[tuple[str, ...], State] = {(): self.pristine}

    def _bundle(self, version: str) -> None:
        folder = self.change.folder / f"bundles-{version}"
        (folder / "manifests").mkdir(parents=True)
        (folder / "patches" / "five").mkdir(parents=True)
        targets = []
        for name in ("sglang", "flashinfer-python"):
            package = name.split("-")[0]
            names = []
            for path, patch in zip(self.change.files, self.change.patches, strict=True):
                if not path.startswith(f"{package}/"):
                    continue
                lines = patch.read_text().splitlines(keepends=True)
                if version == "2":
                    lines = [
                        line[:-1] + "  # two\n"
                        if line.startswith("+") and not line.startswith("+++ ")
                        else line
                        for line in lines
                    ]
                (folder / "patches" / "five" / patch.name).write_text("".join(lines))
                names.append(f"five/{patch.name}")
            targets.append(
                f'[[target]]\ndistribution = "{name}"\n[[target.variant]]\nversions = ">=0"\n'
                f"strip = 1\npatches = {json.dumps(names)}\n"
            )
        (folder / "manifests" / "five.toml").write_text(
            f'schema = 1\nname = "five"\nversion = "{version}"\nsummary = "the change"\n'
            + "".join(targets)
        )

    def add_other(self) -> None:
        """A second bundle, ``other``, that meets the first in two of its files."""
        texts = []
        for name in self.change.files[:2]:
            lines = (self.change.pristine / name).read_text().splitlines(keepends=True)
            first = [f" {line}" for line in lines[:3]]
            texts.append(f"--- a/{name}\n+++ b/{name}\n@@ -1,3 +1,4 @@\n+# other\n{''.join(first)}")
        folder = self.change.folder / "bundles-1"
        (folder / "patches" / "other").mkdir(exist_ok=True)
        targets = []
        for name, text in zip(self.change.files, texts, strict=False):
            patch = f"other/{name.replace('/', '-')}.patch"
            (folder / "patches" / patch).write_text(text)
            package = "sglang" if name.startswith("sglang/") else "flashinfer-python"
            targets.append((package, patch))
        tables = "".join(
            f'[[target]]\ndistribution = "{package}"\n[[target.variant]]\nversions = ">=0"\n'
            f"strip = 1\npatches = {json.dumps([p for d, p in targets if d == package])}\n"
            for package in sorted({package for package, _ in targets})
        )
        (folder / "manifests" / "other.toml").write_text(
            f'schema = 1\nname = "other"\nversion = "1"\nsummary = "another"\n{tables}'
        )

    def expected(self, applied: tuple[str, ...]) -> State:
        """What the files hold with these bundles applied, computed once on another tree."""
        if applied not in self._expected:
            tree = self.change.folder / "expected"
            shutil.copytree(self.change.pristine, tree, symlinks=True)
            run(self._line("apply", *applied, tree=tree), env=self.change.env)
            self._expected[applied] = self.change.state(tree)
            shutil.rmtree(tree)
        return self._expected[applied]

    def run(self, *arguments: str) -> None:
        """A command that must succeed."""
        self._run(*arguments, check=True)

    def json(self, *arguments: str) -> Any:
        """What a command says with ``--json``."""
        return json.loads(self._run("--json", *arguments, check=True).stdout)

    def start(
        self, *arguments: str, timeout: str, prefix: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """A command with ``--json`` that goes on by itself."""
        line = self._line("--json", "--lock-timeout", timeout, *arguments)
        return subprocess.Popen(
            [*prefix, *line], env=dict(self.change.env), cwd=self.tree, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def _line(self, *arguments: str, version: str = "1", tree: Path | None = None) -> list[str]:
        bundles = self.change.folder / f"bundles-{version}"
        base = [sys.executable, "-m", "patchkit", "--root", str(tree or self.tree)]
        return [*base, "--bundles", str(bundles), *arguments]

    def _run(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        return run(self._line(*arguments), env=self.change.env, check=check)

    def prepare(self, command: str) -> None:
        self._run("revert", "--all", check=True)
        if command in ("revert", "upgrade"):
            self._run("apply", "five", check=True)
        if command == "recover":
            self._interrupt()

    def _interrupt(self) -> None:
        """An apply that is killed between two renames of the swap."""
        code = (
            "import os\n"
            "from patchkit import journal\n"
            "seen, real = [], journal.must_be_as_seen\n"
            "def count(root, change):\n"
            "    seen.append(change)\n"
            f"    if len(seen) == {len(self.change.files) // 2 + 1}: os.kill(os.getpid(), 9)\n"
            "    real(root, change)\n"
            "journal.must_be_as_seen = count\n"
            "from patchkit.__main__ import main\n"
            "main()\n"
        )
        line = [sys.executable, "-c", code, *self._line("apply", "five")[3:]]
        assert run(line, env=self.change.env, check=False).returncode == -9

    def line(self, command: str) -> list[str]:
        if command == "upgrade":
            return self._line("apply", "five", version="2")
        return self._line(*{"revert": ("revert", "--all")}.get(command, (command,)), *(
            ("five",) if command == "apply" else ()
        ))  # fmt: skip

    def verdict(self, command: str) -> str | None:
        if self._run("verify").returncode:
            return None
        status = json.loads(self._run("--json", "status", check=True).stdout)
        applied = [(entry["name"], entry["version"]) for entry in status["applied"]]
        old = {"revert": [("five", "1")], "upgrade": [("five", "1")]}.get(command, [])
        return "old" if applied == old else "new"

    def go_back(self, way: str) -> bool:
        arguments = {"recover": ("recover",), "apply": ("apply", "five")}.get(
            way, ("revert", "--all")
        )
        return self._run(*arguments).returncode == 0 and self._run("verify").returncode == 0

    def revert(self) -> bool:
        done = self._run("revert", "--all").returncode == 0
        return done and not (self.tree / ".patchkit").exists()

    def reset(self) -> None:
        shutil.rmtree(self.tree / ".patchkit", ignore_errors=True)
        super().reset()


class GitApply(Subject):
    """``git apply``: forwards, and with ``-R`` backwards."""

    name = "git apply"
    commands = ("apply", "revert")
    ways = ("again", "back")

    def _run(self, *arguments: str) -> bool:
        line = ["git", "apply", *arguments, *map(str, self.change.patches)]
        return run(line, env=self.change.env, cwd=self.tree, check=False).returncode == 0

    def prepare(self, command: str) -> None:
        self.reset()
        if command == "revert":
            assert self._run()

    def line(self, command: str) -> list[str]:
        back = ["-R"] if command == "revert" else []
        return ["git", "apply", *back, *map(str, self.change.patches)]

    def verdict(self, command: str) -> str | None:
        pristine, patched = ("old", "new") if command == "apply" else ("new", "old")
        if self._run("--check"):
            return pristine
        return patched if self._run("-R", "--check") else None

    def go_back(self, way: str) -> bool:
        return self._run() if way == "again" else self._run("-R")

    def revert(self) -> bool:
        return self._run("-R") or self._run("--check")


class Quilt(Subject):
    """quilt: push and pop all."""

    name = "quilt"
    commands = ("apply", "revert")
    ways = ("again", "back")

    def __init__(self, change: Change) -> None:
        super().__init__(change)
        folder = change.patches[0].parent
        (folder / "series").write_text("".join(f"{path.name}\n" for path in change.patches))
        self.env = {**change.env, "QUILT_PATCHES": str(folder), "QUILT_PC": ".pc"}

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = ["quilt", "--quiltrc", "-", *arguments]
        return run(line, env=self.env, cwd=self.tree, check=False)

    def reset(self) -> None:
        shutil.rmtree(self.tree / ".pc", ignore_errors=True)
        super().reset()

    def prepare(self, command: str) -> None:
        self.reset()
        if command == "revert":
            assert self._run("push", "-a").returncode == 0

    def line(self, command: str) -> list[str]:
        what = ["push", "-a"] if command == "apply" else ["pop", "-a"]
        assigned = [f"{key}={self.env[key]}" for key in ("QUILT_PATCHES", "QUILT_PC")]
        return ["env", *assigned, "quilt", "--quiltrc", "-", *what]

    def verdict(self, command: str) -> str | None:
        applied = len(self._run("applied").stdout.split())
        pristine, patched = ("old", "new") if command == "apply" else ("new", "old")
        return {0: pristine, len(self.change.patches): patched}.get(applied)

    def go_back(self, way: str) -> bool:
        what = ("push", "-a") if way == "again" else ("pop", "-a")
        return self._run(*what).returncode in (0, 2)  # 2: nothing to do

    def revert(self) -> bool:
        return self._run("pop", "-a").returncode in (0, 2)
