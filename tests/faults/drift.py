"""What others do to a patched environment: by hand, with pip, with uv; on the real releases.

After each: what changed is named, nothing that patchkit did not write is overwritten, and the
command that ``status`` names (or, where patchkit alone cannot help, the one in the hint) puts
everything right.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import releases
from tests.releases import ROOT, Release
from tests.support import wheels

BUNDLES = ("sm120-fusion", "symm-mem-sm120")
FILE = "sglang/srt/server_args.py"
UNTOUCHED = "sglang/srt/utils/common.py"
TOOLS = ("pip", "uv")


@dataclass
class Venv:
    """A virtual environment with an installer."""

    folder: Path
    tool: str
    env: Mapping[str, str]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def install(self, *which: Release, again: bool = False) -> None:
        """Install these releases over what is there."""
        built = [releases.wheel(*release) for release in which]
        if self.tool == "pip":
            options = ["--no-compile", *(["--force-reinstall"] if again else [])]
            wheels.pip_install(built, python=self.python, options=options)
        else:
            options = ["--reinstall"] if again else []
            cache = self.folder.parent / "uv-cache"
            wheels.uv_install(built, cache=cache, python=self.python, options=options)

    def uninstall(self, name: str) -> None:
        """Take a distribution away."""
        if self.tool == "pip":
            wheels.pip_uninstall(name, python=self.python)
        else:
            wheels.uv_run(
                *("pip", "uninstall", "--quiet", "--python", self.python, name),
                cache=self.folder.parent / "uv-cache",
            )

    def patchkit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """patchkit with the shipped bundles."""
        base = (sys.executable, "-m", "patchkit", "--python", str(self.python))
        return subprocess.run(
            [*base, "--bundles", str(ROOT), *arguments], env=dict(self.env),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    def json(self, *arguments: str) -> Any:
        """The object of a command with ``--json``."""
        return json.loads(self.patchkit("--json", *arguments).stdout)

    def shown(self, line: str) -> bool:
        """Run a command line as patchkit shows it; whether it succeeds."""
        for command in line.split(" && "):
            words = shlex.split(command)
            if words[0] == "patchkit":
                if self.patchkit(*words[1:]).returncode:
                    return False
                continue
            tool = "uv" if words[0] == "uv" else "pip"
            assert tool == self.tool, f"{self.tool} installed it, and {tool} is to"
            name, _, version = words[-1].partition("==")
            assert "--no-deps" in words
            self.install((name, version), again=True)
        return True


OLD, NEW, NONE = ("sglang", "0.5.8"), ("sglang", "0.5.9"), ("sglang", "0.4.10")
FLASHINFER, UPSTREAM = ("flashinfer-python", "0.6.3"), ("flashinfer-python", "0.6.17")


@dataclass(frozen=True)
class Scene:
    """``named``: the kinds of problem that are found, none where the change is no drift.
    ``way``: how it is put right: ``apply``, ``forget``, or ``hint`` (an installer first)."""

    start: tuple[Release, ...]
    happens: Callable[[Venv], None]
    named: frozenset[str]
    way: str


def _edit(path: str) -> Callable[[Venv], None]:
    def edit(venv: Venv) -> None:
        data = (venv.site / path).read_bytes()
        (venv.site / path).unlink()
        (venv.site / path).write_bytes(data + b"# by hand\n")

    return edit


def _link(venv: Venv) -> None:
    elsewhere = venv.folder.parent / "elsewhere.py"
    (venv.site / FILE).rename(elsewhere)
    (venv.site / FILE).symlink_to(elsewhere)


_DRIFT, _RELEASE = frozenset({"drift"}), frozenset({"drift", "release-changed"})
_BOTH = (NEW, FLASHINFER)
SCENES: dict[str, Scene] = {
    "edit of a touched file": Scene(_BOTH, _edit(FILE), _DRIFT, "hint"),
    "edit of another file": Scene(_BOTH, _edit(UNTOUCHED), frozenset(), ""),
    "file deleted": Scene(_BOTH, lambda v: (v.site / FILE).unlink(), _DRIFT, "hint"),
    "mode": Scene(_BOTH, lambda v: (v.site / FILE).chmod(0o755), _DRIFT, "hint"),
    "link in its place": Scene(_BOTH, _link, _DRIFT, "hint"),
    "owner": Scene(_BOTH, lambda v: os.chown(v.site / FILE, 1234, 1234), frozenset(), ""),
    "reinstalled": Scene(_BOTH, lambda v: v.install(*_BOTH, again=True), _DRIFT, "apply"),
    "one reinstalled": Scene(_BOTH, lambda v: v.install(FLASHINFER, again=True), _DRIFT, "apply"),
    "upgraded": Scene((OLD, FLASHINFER), lambda v: v.install(NEW), _RELEASE, "apply"),
    "downgraded": Scene(_BOTH, lambda v: v.install(OLD), _RELEASE, "apply"),
    "to one without variant": Scene(_BOTH, lambda v: v.install(NONE), _RELEASE, "forget"),
    "to one that needs none": Scene(_BOTH, lambda v: v.install(UPSTREAM), _RELEASE, "apply"),
    "uninstalled": Scene(_BOTH, lambda v: v.uninstall("sglang"), _RELEASE, "forget"),
}
if os.geteuid() != 0:
    del SCENES["owner"]


def play(folder: Path, tool: str, name: str, env: Mapping[str, str]) -> list[str]:
    """One scene in a fresh environment; what went wrong, in words."""
    scene = SCENES[name]
    venv = Venv(folder / "venv", tool, env)
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(venv.folder)], check=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    venv.install(*scene.start)
    wrong: list[str] = []

    def must(holds: bool, what: str) -> None:
        if not holds:
            wrong.append(f"{tool}, {name}: {what}")

    must(venv.patchkit("apply", *BUNDLES).returncode == 0, "the first apply")
    scene.happens(venv)
    before = _picture(venv)
    status, verify = venv.json("status"), venv.json("verify")
    kinds = {problem["kind"] for problem in status["problems"]}
    must(kinds == scene.named, f"named is {kinds}")
    must(verify["problems"] == status["problems"], "verify and status differ")
    must(verify["exit_code"] == int(bool(scene.named)), f"verify: {verify['exit_code']}")
    must(all(problem["hint"] for problem in status["problems"]), "a problem without a hint")
    if scene.named:
        for arguments in (("revert", "--all"), ("apply", "cuda-graph-max-bs-128")):
            must(venv.patchkit(*arguments).returncode == 3, f"{arguments} is not refused")
        must(_picture(venv) == before, "something was overwritten")
        line = status["next"] or status["problems"][0]["hint"].rpartition("then: ")[2]
        way = "forget" if "--forget" in line else "hint" if "install" in line else "apply"
        must(way == scene.way, f"what to do: {line}")
        must(venv.shown(line), f"{line} fails")
    after = venv.json("status")
    must(not after["problems"] and after["next"] is None, f"still: {after['problems']}")
    must(bool(after["applied"]) == (scene.way != "forget"), f"applied: {after['applied']}")
    must(venv.patchkit("revert", "--all").returncode == 0, "the last revert")
    must(not list(venv.site.rglob(".patchkit")), "something of patchkit is left")
    pristine = venv.patchkit("verify", "--pristine")
    must(pristine.returncode == int(name == "edit of another file"), pristine.stderr)
    return wrong


def _picture(venv: Venv) -> Any:
    found = releases.snapshot(venv.site, ignore=(".patchkit/lock",))
    return {path: (e.kind, e.mode, e.owner, e.digest, e.target) for path, e in found.items()}
