"""A container engine's part in a build, without one: layers on overlay mounts, in a mount
namespace of each command's own, and a Dockerfile's lines as an engine reads them.

An image is a list of layers, the lowest first.  Its root file system has the layers, the
system's programs and the interpreter of the tests (both read-only), and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests import releases
from tests.support.lab import needs_root, needs_tool

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib64", "etc")
#: Where the interpreter of the tests is, which is that of the image.
_PYTHON = Path(sys.base_prefix)
_MOUNTS = """
set -eu
root=$1 options=$2 proc=$3; shift 3
mount -t overlay overlay -o "$options" "$root"
for place in $BOUND; do
    mount --bind "$place" "$root$place"
    mount -o remount,bind,ro "$root$place"
done
mount --bind /dev/null "$root/dev/null"
mount -t proc proc "$root/proc"
exec "$@"
"""


@dataclass(frozen=True)
class Image:
    """Layers, the lowest first, and what the lines that leave no layer said."""

    layers: tuple[Path, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = "root"


class Engine:
    """Builds and runs images below one folder."""

    def __init__(self, base: Path) -> None:
        needs_root()
        needs_tool("unshare", "setpriv", "chroot")
        python = [f"{_PYTHON}/bin/python3", "-c", "import pip"]
        if subprocess.run(python, check=False, capture_output=True).returncode:
            pytest.skip("needs pip beside the interpreter that the tests' environment is of")
        self.base = base
        self._count = 0
        self._bound: list[str] = []

    def folder(self, stem: str) -> Path:
        self._count += 1
        path = self.base / f"{stem}{self._count}"
        path.mkdir(parents=True)
        path.chmod(0o755)
        return path

    def scratch(self) -> Image:
        """An image that holds places to mount at, and no more."""
        layer = self.folder("layer")
        for name in _SYSTEM:
            here = Path("/", name)
            if here.is_symlink():
                (layer / name).symlink_to(os.readlink(here))
            elif here.is_dir():
                (layer / name).mkdir()
                self._bound.append(str(here))
        if not str(_PYTHON).startswith("/usr/"):
            (layer / _PYTHON.relative_to("/")).mkdir(parents=True)
            self._bound.append(str(_PYTHON))
        for name in ("proc", "dev", "opt", "tmp", "root"):
            (layer / name).mkdir(exist_ok=True)
        (layer / "dev" / "null").touch()
        path = f"{_PYTHON}/bin:/usr/local/bin:/usr/bin:/bin"
        usual = {"PATH": path, "HOME": "/root", "LC_ALL": "C.UTF-8"}
        # What a base image may have set for itself.
        return Image((layer,), {**usual, "PYTHON": "/nowhere", "BASE": "nowhere"})

    def run(
        self,
        image: Image,
        *command: str,
        upper: Path | None = None,
        env: Mapping[str, str] | None = None,
        uid: int | None = None,
        outside: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """A command in the image; with ``upper`` its changes go there, else the root is read-only.
        ``outside`` runs instead, on the host, with the root's path behind it."""
        root, empty = self.folder("root"), self.folder("empty")
        options = "lowerdir=" + ":".join(str(one) for one in [*reversed(image.layers), empty])
        if upper is not None:
            options += f",upperdir={upper},workdir={self.folder('work')}"
        inside = ["chroot", str(root)]
        if uid is not None:
            inside += ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
            inside += ["--bounding-set=-all", "--no-new-privs"]
        inside += ["env", "-i", *(f"{k}={v}" for k, v in {**image.env, **(env or {})}.items())]
        last = [*outside, str(root)] if outside else [*inside, *command]
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", _MOUNTS, "sh", str(root), options, "proc", *last],
            env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "BOUND": " ".join(self._bound)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def layered(
        self, image: Image, *command: str, outside: Sequence[str] = (), check: bool = True
    ) -> Image:
        """The image with one more layer: what a command changes."""
        upper = self.folder("layer")
        done = self.run(image, *command, upper=upper, outside=outside)
        if done.returncode and check:
            raise BuildFailed(done)
        return replace(image, layers=(*image.layers, upper))

    def build(self, context: Path, base: Image, **arguments: str) -> tuple[Image, str]:
        """``docker build``: the image, and what its commands said.  Raises BuildFailed."""
        image, said, args = base, "", dict(arguments)
        for word, rest in instructions((context / "Dockerfile").read_text(encoding="utf-8")):
            if word == "ARG":
                name, _, default = rest.partition("=")
                args.setdefault(name, default)
            elif word == "FROM":
                assert rest == "${BASE}" and args["BASE"]
            elif word == "ENV":
                pairs = (one.partition("=") for one in rest.split())
                # An ENV goes before an ARG of its name.
                put = {k: _filled(v, {**args, **image.env}) for k, _, v in pairs}
                image = replace(image, env={**image.env, **put})
            elif word == "USER":
                image = replace(image, user=rest)
            elif word == "COPY":
                source, target = rest.split()
                assert source == "."
                sent = self._sent(context)
                copy = f'mkdir -p "$1{target}" && cp -R {sent}/. "$1{target}"'
                image = self.layered(image, outside=["sh", "-c", copy, "sh"])
            elif word == "RUN":
                assert image.user in ("root", "0")
                upper = self.folder("layer")
                done = self.run(image, "/bin/sh", "-c", rest, upper=upper)
                said += done.stdout + done.stderr
                if done.returncode:
                    raise BuildFailed(done)
                image = replace(image, layers=(*image.layers, upper))
            elif word == "ENTRYPOINT":
                image = replace(image, entrypoint=tuple(json.loads(rest)), command=())
            else:
                assert word == "CMD", word
                image = replace(image, command=tuple(json.loads(rest)))
        return image, said

    def start(
        self, image: Image, *command: str, uid: int = 65534, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """``docker run --read-only --user``: with no folder that may be written."""
        words = (*image.entrypoint, *(command or image.command))
        return self.run(image, *words, uid=uid, env={"HOME": "/nonexistent", **(env or {})})

    def _sent(self, context: Path) -> Path:
        """The files that the context has for an engine that reads .dockerignore."""
        first, *kept = (context / ".dockerignore").read_text().split()
        assert first == "*" and all(name.startswith("!") for name in kept)
        sent = self.folder("sent")
        for name in (name[1:] for name in kept):
            if (context / name).is_dir():
                shutil.copytree(context / name, sent / name)
            elif (context / name).exists():
                shutil.copy2(context / name, sent / name)
        return sent

    def shipped(self, image: Image) -> Image:
        """The image as another host has it: every file another inode, times in whole seconds."""
        layers = []
        for layer in image.layers:
            copy = self.folder("shipped")
            subprocess.run(["cp", "-a", f"{layer}/.", str(copy)], check=True)
            for folder, _, names in os.walk(copy):
                for name in [folder, *(os.path.join(folder, one) for one in names)]:
                    status = os.lstat(name)
                    whole = status.st_mtime_ns // 10**9 * 10**9
                    os.utime(name, ns=(whole, whole), follow_symlinks=False)
            layers.append(copy)
        return replace(image, layers=tuple(layers))


class BuildFailed(Exception):
    """A command of a build that failed."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        super().__init__(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        self.code = done.returncode
        self.said = done.stdout + done.stderr


def _filled(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: known[found[1]], text)


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile: comments dropped first, then lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]
    joined = "\n".join(lines).replace("\\\n", "")
    return [
        (word, rest.strip())
        for word, _, rest in (line.partition(" ") for line in joined.split("\n"))
    ]


def pictures(image: Image) -> list[releases.Snapshot]:
    """Every layer, byte for byte."""
    return [releases.snapshot(layer) for layer in image.layers]
