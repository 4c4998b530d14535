"""A lab: bundles, small environments and patchkit on them.

The fixture ``lab`` is in :mod:`tests.support.fixtures`.  Everything that a test makes with it
lies below one folder of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests import releases
from tests.conftest import Cli, Git, Result
from tests.support import wheels
from tests.support.wheels import Dist, UvLinkMode

Files = Mapping[str, str | bytes]

STATE = ".patchkit"


def toml(value: Any) -> str:
    """``value`` as TOML, tables inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items())
        return "{ " + pairs + " }"
    return "[" + ", ".join(toml(item) for item in value) + "]"


def as_bytes(content: str | bytes) -> bytes:
    """``content`` as bytes."""
    return content.encode() if isinstance(content, str) else content


def write_tree(folder: Path, files: Files) -> None:
    """Lay ``files`` into ``folder``."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(as_bytes(content))


def git_diff(scratch: Path, before: Files, after: Files, *options: str) -> bytes:
    """What ``git diff`` makes of two sets of files, with ``a/`` and ``b/``."""
    for name, files in (("a", before), ("b", after)):
        shutil.rmtree(scratch / name, ignore_errors=True)
        (scratch / name).mkdir(parents=True)
        write_tree(scratch / name, files)
    done = subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", "--no-color", *options, "a", "b"],
        cwd=scratch,
        env={
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": str(scratch.parent),
        },
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def numbered(*names: str) -> str:
    """Python of one function a name, with bodies that differ, for hunks with context."""
    out = []
    for number, name in enumerate(names):
        out.append(f"def {name}():\n")
        out += [f"    {name}_{line} = {number * 100 + line}\n" for line in range(8)]
        out.append(f"    return {name}_7\n\n\n")
    return "".join(out)


def changed(content: str, old: str, new: str) -> str:
    """``content`` with its one ``old`` replaced."""
    assert content.count(old) == 1, f"{old!r} is there {content.count(old)} times"
    return content.replace(old, new)


#: Two distributions: one like sglang with several modules, one with data that a JIT compiles.
ACME = Dist(
    "acme",
    "1.0",
    {
        "acme/__init__.py": '"""acme."""\n\n__version__ = "1.0"\n',
        "acme/alpha.py": numbered("first", "second", "third"),
        "acme/beta.py": numbered("one", "two", "three"),
        "acme/sub/__init__.py": "",
        "acme/sub/gamma.py": numbered("red", "green", "blue"),
        "acme/old.py": numbered("outdated"),
        "acme/lonely/only.py": numbered("lonely"),
        "acme/tool.sh": "#!/bin/sh\necho one\necho two\necho three\necho four\n",
        "acme/table.txt": "".join(f"row {number}\n" for number in range(40)),
    },
    executable=("acme/tool.sh",),
)
BOLT = Dist(
    "bolt-kernels",
    "2.1",
    {
        "bolt/__init__.py": '"""bolt."""\n',
        "bolt/delta.py": numbered("north", "south"),
        "bolt/data/csrc/kernel.cu": "".join(f"// kernel {number}\n" for number in range(20)),
        "bolt/data/include/kernel.cuh": "".join(f"// header {number}\n" for number in range(20)),
        "bolt/data/include/plain.h": "".join(f"// plain {number}\n" for number in range(20)),
    },
)

#: One edit a file, each one line in the middle of its file.
ALPHA = ("acme/alpha.py", "    second_3 = 103\n", "    second_3 = 1030\n")
BETA = ("acme/beta.py", "    two_3 = 103\n", "    two_3 = 1030\n")
GAMMA = ("acme/sub/gamma.py", "    green_3 = 103\n", "    green_3 = 1030\n")
DELTA = ("bolt/delta.py", "    south_3 = 103\n", "    south_3 = 1030\n")
KERNEL = ("bolt/data/csrc/kernel.cu", "// kernel 10\n", "// kernel ten\n")
HEADER = ("bolt/data/include/kernel.cuh", "// header 10\n", "// header ten\n")

Edit = tuple[str, str, str]


@dataclass
class Site:
    """One environment: its site-packages, and its interpreter where it is a venv."""

    root: Path
    python: Path | None = None

    def __truediv__(self, path: str) -> Path:
        return self.root / path

    @property
    def where(self) -> tuple[str, str]:
        """The options that name it."""
        return ("--python", str(self.python)) if self.python else ("--root", str(self.root))

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def picture(self) -> dict[str, releases.Entry]:
        """Every path with bytes, mode, owner, link, attributes, inode and time.

        But for the lock, which says who held the environment last, and for the inodes of
        folders, which no hard link can keep.
        """
        return {
            path: replace(entry, inode=0) if entry.kind == "folder" else entry
            for path, entry in releases.snapshot(self.root, ignore=(f"{STATE}/lock",)).items()
        }

    def differences(
        self, before: releases.Snapshot, fields: Sequence[str] = releases.IDENTITY
    ) -> list[str]:
        """What differs from a picture taken earlier."""
        return releases.diff_snapshots(before, self.picture(), fields)


@dataclass
class Lab:
    """Makes bundles and environments below ``base``, and runs patchkit on them."""

    base: Path
    cli: Cli
    git: Git
    child_env: dict[str, str]
    bundles: Path = field(init=False)
    cache: Path = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.bundles = self.base / "bundles"
        self.cache = self.base / "uv-cache"
        for name in ("manifests", "patches"):
            (self.bundles / name).mkdir(parents=True)

    def folder(self, stem: str) -> Path:
        """A new empty folder."""
        self.count += 1
        path = self.base / f"{stem}{self.count}"
        path.mkdir()
        return path

    # --- environments ---------------------------------------------------------------

    def site(
        self, *dists: Dist, link_mode: UvLinkMode = "copy", options: Sequence[str] = ()
    ) -> Site:
        """A folder used as site-packages, filled by uv from real wheel files."""
        root = self.folder("site") / "site-packages"
        self.install(Site(root), *dists or (ACME, BOLT), link_mode=link_mode, options=options)
        return Site(root)

    def venv(
        self,
        *dists: Dist,
        link_mode: UvLinkMode = "copy",
        by_pip: bool = False,
        python: str = sys.executable,
    ) -> Site:
        """A virtual environment, filled by uv, or by pip, which also compiles byte-code."""
        folder = self.folder("venv") / "env"
        subprocess.run(
            [python, "-m", "venv", "--without-pip", str(folder)],
            check=True,
            stdin=subprocess.DEVNULL,
        )
        (root,) = folder.glob("lib/python*/site-packages")
        made = Site(root, folder / "bin" / "python")
        self.install(made, *dists or (ACME, BOLT), link_mode=link_mode, by_pip=by_pip)
        return made

    def install(
        self,
        site: Site,
        *dists: Dist,
        link_mode: UvLinkMode = "copy",
        by_pip: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        """Install wheels of ``dists``, over what is there."""
        built = [wheels.build_wheel(dist, self.base / "wheels") for dist in dists]
        target = None if site.python else site.root
        if by_pip:
            wheels.pip_install(built, python=site.python, target=target, options=options)
        else:
            wheels.uv_install(
                built,
                cache=self.cache,
                python=site.python,
                target=target,
                link_mode=link_mode,
                options=options,
            )
        with contextlib.suppress(FileNotFoundError):
            (site.root / ".lock").unlink()  # uv's own, which is no part of an environment

    def copy(self, site: Site) -> Site:
        """The same tree once more, times included, as a folder used as site-packages."""
        made = Site(self.folder("copy") / "site-packages")
        shutil.copytree(site.root, made.root, symlinks=True)
        return made

    # --- bundles --------------------------------------------------------------------

    def diff(self, before: Files, after: Files, *options: str) -> bytes:
        """``git diff`` of two sets of files."""
        return git_diff(self.base / "scratch", before, after, *options)

    def edit(self, *edits: Edit, dists: Sequence[Dist] = (ACME, BOLT)) -> bytes:
        """The patch that makes ``edits`` (file, old, new) in the files of ``dists``."""
        before: dict[str, str | bytes] = {}
        after: dict[str, str | bytes] = {}
        contents = {name: content for dist in dists for name, content in dist.files.items()}
        for path, old, new in edits:
            content = after.get(path, contents[path])
            assert isinstance(content, str)
            before[path] = contents[path]
            after[path] = changed(content, old, new)
        return self.diff(before, after)

    def bundle(
        self,
        name: str,
        patches: Mapping[str, bytes | Sequence[bytes]] | None = None,
        *,
        version: str = "1.0.0",
        bundles: Path | None = None,
        target: Sequence[Mapping[str, Any]] | None = None,
        strip: int | None = 1,
        **manifest: Any,
    ) -> Path:
        """Write a bundle: ``patches`` by distribution, every release of which they fit.

        ``strip`` is that of :meth:`diff`; None leaves it to patchkit to find it.  ``target``
        comes before what is made of ``patches``; further keys go into the manifest as they are
        (``assert_`` is ``assert``).  Returns the manifest's path.
        """
        where = bundles or self.bundles
        targets: list[Mapping[str, Any]] = []
        for distribution, given in (patches or {}).items():
            names = []
            for number, data in enumerate([given] if isinstance(given, bytes) else given, 1):
                file = f"{name}/{distribution}-{number:04}.patch"
                names.append(file)
                self.patch_file(file, data, bundles=where)
            variant = {"versions": ">=0", "patches": names}
            named = {} if strip is None else {"strip": strip}
            targets.append({"distribution": distribution, "variant": [{**variant, **named}]})
        values = {
            "schema": 1,
            "name": name,
            "version": version,
            "summary": f"what {name} does",
            **{key.rstrip("_"): value for key, value in manifest.items()},
        }
        if target is not None or targets:
            values["target"] = [*(target or []), *targets]
        path = where / "manifests" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in values.items()))
        return path

    def patch_file(self, name: str, data: bytes, *, bundles: Path | None = None) -> Path:
        """Write a patch below ``patches/``."""
        path = (bundles or self.bundles) / "patches" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    # --- patchkit -------------------------------------------------------------------

    def run(self, site: Site, *args: str | Path, check: int | None = 0, **more: Any) -> Result:
        """patchkit on ``site`` with the lab's bundles."""
        return self.cli(*site.where, "--bundles", self.bundles, *args, check=check, **more)

    def json(self, site: Site, *args: str | Path, check: int | None = 0, **more: Any) -> Any:
        """The same with ``--json``; the object, which must be the whole of stdout."""
        return self.run(site, "--json", *args, check=check, **more).json

    def command(self, site: Site, *args: str | Path) -> list[str]:
        """The command line of :meth:`run`, for tests that start and signal it themselves."""
        return [
            *(sys.executable, "-m", "patchkit", *site.where),
            *("--bundles", str(self.bundles), *map(str, args)),
        ]

    def start(
        self, site: Site, *args: str | Path, prefix: Sequence[str] = (), **more: Any
    ) -> subprocess.Popen[bytes]:
        """:meth:`command` started, with pipes."""
        return subprocess.Popen(
            [*prefix, *self.command(site, *args)],
            env={**self.child_env, **more.pop("env", {})},
            cwd=self.base,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A suite in the background, or under nohup, has these ignored; a command has not.
            preexec_fn=default_signals,  # noqa: PLW1509
            **more,
        )


def default_signals() -> None:
    """In a child: what a shell in the background, or nohup, made it ignore ends it again."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def unprivileged() -> tuple[str, ...]:
    """What to put before a command so that modes count: root ignores them, others do not.

    The user stays the same, but without a single capability.
    """
    if os.geteuid() != 0:
        return ()
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv, or a user that is not root")
    return ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


def needs_tool(*names: str) -> None:
    """Skip, saying what is missing."""
    for name in names:
        if not shutil.which(name):
            pytest.skip(f"needs {name}")


def needs_root() -> None:
    """Skip where mounts and owners cannot be changed."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


def plain(text: str) -> str:
    """``text`` with runs of white space as one space: messages may be wrapped."""
    return re.sub(r"\s+", " ", text)
