"""The tools under attack, each with the same change on a tree of its own."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import py_compile
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import patchkit.__main__
from tests import releases
from tests.crash.disk import Picture, Region, below, key
from tests.crash.tracer import CHANGING, Action, Call, Ended, trace
from tests.releases import FLASHINFER, ROOT, SGLANG

BUNDLES = ("sm120-fusion", "symm-mem-sm120")

#: A digest of what a tree holds, as far as a tool may change it.
State = str

FIVE, KINDS = "five edits", "every kind"
_DELETED = "sglang/multimodal_gen/test/scripts/gen_perf_baselines.py"  # alone in its folder
_ADDED = ("sglang/srt/layers/added/__init__.py", "sglang/srt/layers/added/deep/module.py")


@dataclass(frozen=True)
class Change:
    """What every tool does: patches of one file each, in two versions, and the pristine tree.

    ``five edits`` is the shipped bundles' real change of the real releases; ``every kind``
    edits two of these files, one of them with byte-code that nobody checks, and adds, deletes
    and changes a mode, so that folders come and go and RECORD gains rows.
    """

    label: str
    folder: Path
    files: tuple[str, ...]
    patches: Mapping[str, tuple[Path, ...]]
    pristine: Path
    env: Mapping[str, str]

    @property
    def flat(self) -> set[str]:
        """The folders that the change concerns, and those above what it makes or empties."""
        found = {"", "flashinfer_python-0.6.3.dist-info", "sglang-0.5.9.dist-info"}
        for name in self.files:
            above = PurePosixPath(name).parent
            found |= {str(above), f"{above}/__pycache__"}
            if name in (*_ADDED, _DELETED):
                found |= {str(above.parent), str(above.parent.parent)}
        return found


def make_change(folder: Path) -> Change:
    """The shipped bundles' change, made by patchkit itself on a copy of the releases."""
    env = _environment(folder)
    pristine = releases.install([SGLANG, FLASHINFER], folder / "pristine")
    scratch = folder / "scratch"
    shutil.copytree(pristine, scratch, symlinks=True)
    base = [sys.executable, "-m", "patchkit", "--root", str(scratch), "--bundles", str(ROOT)]
    run([*base, "apply", *BUNDLES], env=env)
    found = json.loads(run([*base, "--json", "diff"], env=env).stdout)["files"]
    patches = []
    for number, file in enumerate(found, 1):
        path = folder / "patches" / "1" / f"{number:04}.patch"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["diff"])
        patches.append(path)
    names = tuple(file["path"] for file in found)
    shutil.rmtree(scratch)
    versions = {"1": tuple(patches), "2": tuple(_second(path) for path in patches)}
    return Change(FIVE, folder, names, versions, pristine, env)


def every_kind(five: Change, folder: Path) -> Change:
    """The change of every kind, from the first."""
    folder.mkdir()
    pristine = folder / "pristine"
    shutil.copytree(five.pristine, pristine, symlinks=True)
    edited = (five.files[0], five.files[3])
    for name, mode in zip(edited, ("CHECKED_HASH", "UNCHECKED_HASH"), strict=True):
        py_compile.compile(
            str(pristine / name), doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode[mode],
        )  # fmt: skip
    versions = {}
    for version in ("1", "2"):
        before, after = folder / version / "a", folder / version / "b"
        for side in (before, after):
            for name in (*edited, five.files[4], _DELETED):
                (side / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(pristine / name, side / name)
        for number in (0, 3):
            patch = five.patches[version][number]
            run(["patch", "-s", "-p1", "-i", str(patch)], env=five.env, cwd=after)
        if version == "1":
            (after / _DELETED).unlink()
            (after / five.files[4]).chmod(0o755)
        for name in _ADDED[: int(version)]:
            (after / name).parent.mkdir(parents=True, exist_ok=True)
            (after / name).write_text(f"added = {version}\n")
        diff = run(
            ["git", "diff", "--no-index", "--no-prefix", "--no-renames", "a", "b"],
            env=five.env, cwd=folder / version, check=False,
        ).stdout  # fmt: skip
        paths = []
        for number, part in enumerate(diff.split("diff --git ")[1:], 1):
            path = folder / "patches" / version / f"{number:04}.patch"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"diff --git {part}")
            paths.append(path)
        versions[version] = tuple(paths)
    files = (*edited, five.files[4], _DELETED, *_ADDED)
    return Change(KINDS, folder, files, versions, pristine, five.env)


def _second(patch: Path) -> Path:
    """The same patch with other new lines."""
    lines = [
        line[:-1] + "  # two\n" if line.startswith("+") and not line.startswith("+++ ") else line
        for line in patch.read_text().splitlines(keepends=True)
    ]
    path = patch.parent.parent / "2" / patch.name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(lines))
    return path


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

    ``commands`` are what is attacked; each leads from one of the named :attr:`states` to
    another.  :meth:`start` brings the tree to where a command starts from.
    """

    name: str
    #: From which state each command leads to which.
    commands: Mapping[str, tuple[str, str]]
    #: The ways back from an interrupted command, and the state that each leads to (None: the
    #: old or the new one).
    ways: Mapping[str, str | None]
    own: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def __init__(self, change: Change) -> None:
        self.change = change
        self.tree = change.folder / self.name.replace(" ", "-")
        shutil.copytree(change.pristine, self.tree, symlinks=True)
        self.region = Region(self.tree, change.flat, self.own, self.ignored)
        self.pristine = self.region.look()
        self.states = {"pristine": self.state(self.pristine)}
        self.starts: dict[str, Picture] = {"pristine": self.pristine}
        self._make_starts()
        self.by_state = {state: name for name, state in self.states.items()}

    def _make_starts(self) -> None:
        """Every state that a command starts from or leads to, by the tool itself."""
        for command, (old, new) in self.commands.items():
            if old in self.starts and new not in self.starts:
                self.region.restore(self.starts[old])
                self.run(command, check=True)
                self.starts[new] = self.region.look()
                self.states[new] = self.state(self.starts[new])

    def start(self, command: str) -> Picture:
        """Everything as it is before ``command``."""
        picture = self.starts[self.commands[command][0]]
        self.region.restore(picture)
        return picture

    def state(self, picture: Picture) -> State:
        """What the files of the change hold."""
        return key(
            (path, entry._replace(names=()))
            for path, entry in picture.entries.items()
            if path in self.change.files
        )

    def is_pristine(self, picture: Picture) -> bool:
        """Whether all is as upstream delivered it."""
        return self.state(picture) == self.states["pristine"]

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of the tool."""
        return self.change.env

    @property
    def cwd(self) -> Path:
        """Where it is run."""
        return self.tree

    def run(self, command: str, *, check: bool = False) -> Ended:
        """A command of the tool, to its end."""
        ended = self.trace(command, lambda call: None, ())
        assert not check or ended.code == 0, (command, ended)
        return ended

    def trace(
        self,
        command: str,
        stop: Callable[[Call], Action],
        calls: Collection[str] = CHANGING,
        done: Callable[[Call, int], object] | None = None,
    ) -> Ended:
        """The same, stopped before the calls."""
        return trace(self.line(command), self.env, self.cwd, stop, calls, done=done)

    @abstractmethod
    def line(self, command: str) -> list[str]:
        """The line of a command, or of a way back."""

    @abstractmethod
    def says(self) -> str | None:
        """The name of the state that the tool says its tree is in; None: something is wrong."""


class Patchkit(Subject):
    """patchkit, with a bundle of the change in two versions."""

    name = "patchkit"
    commands = {  # noqa: RUF012
        "apply": ("pristine", "1"),
        "revert": ("1", "pristine"),
        "upgrade": ("1", "2"),
    }
    ways = {"recover": None, "apply": "1", "revert": "pristine"}  # noqa: RUF012
    own = (".patchkit",)
    ignored = (".patchkit/lock",)

    def __init__(self, change: Change) -> None:
        for module in pkgutil.iter_modules(patchkit.__path__):
            importlib.import_module(f"patchkit.{module.name}")
        for version, patches in change.patches.items():
            _bundle(change.folder / f"bundles-{version}", version, patches)
        super().__init__(change)

    def _make_starts(self) -> None:
        super()._make_starts()
        self.fingerprints: dict[str | None, str] = {}
        for name, picture in self.starts.items():
            self.region.restore(picture)
            done = self.run("verify", check=True)
            self.fingerprints[json.loads(done.stdout)["fingerprint"]] = name

    def line(self, command: str) -> list[str]:
        version = "2" if command == "upgrade" else "1"
        arguments = {
            "apply": ("apply", "change"),
            "upgrade": ("apply", "change"),
            "revert": ("revert", "--all"),
            "verify": ("--json", "verify"),
        }.get(command, (command,))
        bundles = self.change.folder / f"bundles-{version}"
        base = [sys.executable, "-m", "patchkit", "--root", str(self.tree)]
        return [*base, "--bundles", str(bundles), *arguments]

    @property
    def cwd(self) -> Path:
        return self.change.folder  # an interpreter looks for modules where it is run

    def trace(
        self,
        command: str,
        stop: Callable[[Call], Action],
        calls: Collection[str] = CHANGING,
        done: Callable[[Call, int], object] | None = None,
    ) -> Ended:
        """In a fork of this process, which has imported all that a command imports: that is
        most of what a run costs, and touches no tree."""
        line = self.line(command)
        return trace(lambda: _main(line), self.env, self.cwd, stop, calls, done=done)

    def says(self) -> str | None:
        done = self.run("verify")
        if done.code:
            return None
        return self.fingerprints[json.loads(done.stdout)["fingerprint"]]

    def state(self, picture: Picture) -> State:
        """All but what is patchkit's own, and the byte-code, which may also be gone."""
        own = dict(below(picture.entries, *self.own))
        return key(
            (path, entry._replace(names=()))
            for path, entry in picture.entries.items()
            if path not in own and "__pycache__" not in path
        )

    def is_pristine(self, picture: Picture) -> bool:
        own = dict(below(picture.entries, *self.own))
        return not own and super().is_pristine(picture) and not self.stale(picture)

    def stale(self, picture: Picture) -> list[str]:
        """Byte-code that is not upstream's; of upstream's, what is beside another source."""
        found = []
        for path, entry in picture.entries.items():
            if path.endswith(".pyc"):
                folder, _, name = path.rpartition("/__pycache__/")
                source = f"{folder}/{name.partition('.')[0]}.py"
                now, was = picture.entries.get(source), self.pristine.entries.get(source)
                same = now is not None and was is not None and now.content == was.content
                kept = self.pristine.entries.get(path)
                if not same or kept is None or kept.content != entry.content:
                    found.append(path)
        return found


def _main(line: list[str]) -> int:
    sys.argv = line[2:]
    try:
        patchkit.__main__.main()
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("main() came back")


def _bundle(folder: Path, version: str, patches: Sequence[Path]) -> None:
    (folder / "manifests").mkdir(parents=True)
    (folder / "patches" / "change").mkdir(parents=True)
    names: dict[str, list[str]] = {"sglang": [], "flashinfer-python": []}
    for patch in patches:
        shutil.copy(patch, folder / "patches" / "change")
        head = patch.read_text().partition("@@")[0]
        owner = "flashinfer-python" if "/flashinfer/" in head else "sglang"
        names[owner].append(f"change/{patch.name}")
    (folder / "manifests" / "change.toml").write_text(
        f'schema = 1\nname = "change"\nversion = "{version}"\nsummary = "the change"\n'
        + "".join(
            f'[[target]]\ndistribution = "{name}"\n[[target.variant]]\nversions = ">=0"\n'
            f"strip = 1\npatches = {json.dumps(files)}\n"
            for name, files in names.items()
        )
    )


class GitApply(Subject):
    """``git apply``: forwards, and with ``-R`` backwards."""

    name = "git apply"
    commands = {"apply": ("pristine", "1"), "revert": ("1", "pristine")}  # noqa: RUF012
    ways = {"apply": "1", "revert": "pristine"}  # noqa: RUF012

    def line(self, command: str) -> list[str]:
        options = {"apply": [], "revert": ["-R"], "fits": ["--check"]}
        options["is in"] = ["-R", "--check"]
        return ["git", "apply", *options[command], *map(str, self.change.patches["1"])]

    def says(self) -> str | None:
        if self.run("fits").code == 0:
            return "pristine"
        return "1" if self.run("is in").code == 0 else None


class Patch(Subject):
    """GNU patch, for all patches in one go."""

    name = "GNU patch"
    commands = GitApply.commands
    ways = GitApply.ways

    def __init__(self, change: Change) -> None:
        whole = b"".join(path.read_bytes() for path in change.patches["1"])
        (change.folder / "whole.patch").write_bytes(whole)
        super().__init__(change)

    def line(self, command: str) -> list[str]:
        options = {"apply": ["-N"], "revert": ["-R"], "fits": ["-N", "--dry-run"]}
        options["is in"] = ["-R", "--dry-run"]
        whole = self.change.folder / "whole.patch"
        return ["patch", "-p1", "-s", "-f", *options[command], "-i", str(whole)]

    def says(self) -> str | None:
        if self.run("fits").code == 0:
            return "pristine"
        return "1" if self.run("is in").code == 0 else None


class Quilt(Subject):
    """quilt: push and pop all."""

    name = "quilt"
    commands = GitApply.commands
    ways = GitApply.ways
    own = (".pc",)

    def __init__(self, change: Change) -> None:
        folder = change.patches["1"][0].parent
        (folder / "series").write_text("".join(f"{p.name}\n" for p in change.patches["1"]))
        self._env = {**change.env, "QUILT_PATCHES": str(folder), "QUILT_PC": ".pc"}
        super().__init__(change)

    @property
    def env(self) -> Mapping[str, str]:
        return self._env

    def line(self, command: str) -> list[str]:
        what = {"apply": ("push", "-a"), "revert": ("pop", "-a")}.get(command, (command,))
        return ["quilt", "--quiltrc", "-", *what]

    def says(self) -> str | None:
        applied = len(self.run("applied").stdout.split())
        return {0: "pristine", len(self.change.patches["1"]): "1"}.get(applied)
