"""The inputs of the benchmark: trees, patches and bundles, made of real releases.

Owns the folders under a work folder that must lie outside any repository (``git apply``
inside one skips git's own patches without a word).  Same releases in, same bytes out.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from patchkit.manifest import parse_manifest, select_variant
from tests import releases
from tests.releases import FLASHINFER, ROOT, SGLANG

SGLANG_BEFORE = ("sglang", "0.5.8")
MANY_FILES = 50_000


@dataclass(frozen=True)
class Case:
    """One input: the pristine tree, the patches in order (``-p1``), and the bundle of them.

    ``bundle`` may be the path of a loose patch.  ``bundles`` is the bundle directory, None
    for the shipped one.  ``patched_files`` are the
    files that the patches change, relative to the tree.
    """

    key: str
    title: str
    tree: Path
    patches: tuple[Path, ...]
    bundle: str
    bundles: Path | None
    patched_files: tuple[str, ...]

    @property
    def patch_bytes(self) -> int:
        """The size of all patches together."""
        return sum(path.stat().st_size for path in self.patches)

    @property
    def input_bytes(self) -> int:
        """The size of the patches and of the files that they change."""
        files = (self.tree / name for name in self.patched_files)
        return self.patch_bytes + sum(path.stat().st_size for path in files)


def git(folder: Path, *arguments: str) -> bytes:
    """git with an identity and nobody's configuration."""
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Bench",
        "GIT_AUTHOR_EMAIL": "bench@example.org",
        "GIT_COMMITTER_NAME": "Bench",
        "GIT_COMMITTER_EMAIL": "bench@example.org",
    }
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout


def _bundle(folder: Path, name: str, versions: str, patches: Iterable[Path]) -> Path:
    """A bundle directory with one bundle for one range of sglang."""
    (folder / "manifests").mkdir(parents=True)
    lines = "".join(f'    "{path.relative_to(folder / "patches")}",\n' for path in patches)
    (folder / "manifests" / f"{name}.toml").write_text(
        f'schema = 1\nname = "{name}"\nversion = "1.0.0"\nsummary = "benchmark"\n\n'
        '[[target]]\ndistribution = "sglang"\n'
        f'[[target.variant]]\nversions = "{versions}"\nstrip = 1\npatches = [\n{lines}]\n'
    )
    return folder


def _changed(repository: Path, *options: str) -> list[str]:
    """The paths that differ between HEAD and the index."""
    names = git(repository, "diff", "--cached", "--no-renames", "--name-only", "-z", *options)
    return [name.decode() for name in names.split(b"\0") if name]


def fusion(work: Path) -> Case:
    """(a) the shipped bundle on the two real wheels."""
    tree = releases.install([SGLANG, FLASHINFER], work / "tree")
    return _fusion(work, "a", "sm120-fusion on the real wheels", tree)


def fusion_in_many_files(work: Path) -> Case:
    """(e) the same in a site-packages folder with 50,000 more files."""
    tree = releases.install([SGLANG, FLASHINFER], work / "tree")
    for number in range(MANY_FILES // 100):
        folder = tree / "crowd" / f"part{number:03}"
        folder.mkdir(parents=True)
        for module in range(100):
            (folder / f"module{module:02}.py").write_text(f"NUMBER = {number * 100 + module}\n")
    return _fusion(work, "e", f"the same, {MANY_FILES:,} more files", tree)


def _fusion(work: Path, key: str, title: str, tree: Path) -> Case:
    """The bundle's patches for these releases, with their paths as the wheels have them."""
    manifest = (ROOT / "manifests" / "sm120-fusion.toml").read_bytes()
    installed = dict([SGLANG, FLASHINFER])
    patches, files = [], set()
    for target in parse_manifest(manifest, "sm120-fusion").targets:
        variant = select_variant(target, installed[target.distribution])
        for name in () if variant is None else variant.patches:
            data = (ROOT / "patches" / name).read_bytes()
            path = work / "patches" / name.replace("/", "-")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(re.sub(rb"(?<= )([ab])/python/", rb"\1/", data))
            patches.append(path)
            files.update(re.findall(r"^\+\+\+ b/(\S+)", path.read_text(), re.MULTILINE))
    return Case(key, title, tree, tuple(patches), "sm120-fusion", None, tuple(sorted(files)))


def _difference(work: Path) -> tuple[Path, Path]:
    """A repository whose index holds the later release and whose HEAD the earlier one."""
    tree = releases.install([SGLANG_BEFORE], work / "tree")
    repository = work / "repository"
    shutil.copytree(tree / "sglang", repository / "sglang")
    git(repository, "init", "--quiet")
    git(repository, "add", "--all", "--force")
    git(repository, "commit", "--quiet", "--message", "before")
    shutil.rmtree(repository / "sglang")
    shutil.copytree(releases.tree(*SGLANG) / "sglang", repository / "sglang")
    git(repository, "add", "--all", "--force")
    return tree, repository


def hundred_patches(work: Path) -> Case:
    """(b) 100 patches of one file each from the real difference 0.5.8 → 0.5.9."""
    tree, repository = _difference(work)
    changed = _changed(repository, "--diff-filter=M")
    chosen = [changed[index * len(changed) // 100] for index in range(100)]
    bundles = work / "bundles"
    folder = bundles / "patches" / "hundred"
    folder.mkdir(parents=True)
    patches = []
    for number, name in enumerate(chosen, 1):
        path = folder / f"{number:04}.patch"
        path.write_bytes(git(repository, "diff", "--cached", "--no-renames", "--", name))
        patches.append(path)
    _bundle(bundles, "hundred", "==0.5.8", patches)
    title = "100 patches from 0.5.8 → 0.5.9"
    return Case("b", title, tree, tuple(patches), "hundred", bundles, tuple(chosen))


def whole_difference(work: Path) -> Case:
    """(c) the whole real difference 0.5.8 → 0.5.9 as one patch."""
    tree, repository = _difference(work)
    bundles = work / "bundles"
    path = bundles / "patches" / "whole" / "0001.patch"
    path.parent.mkdir(parents=True)
    path.write_bytes(git(repository, "diff", "--cached", "--no-renames"))
    _bundle(bundles, "whole", "==0.5.8", [path])
    files = tuple(_changed(repository))
    size = path.stat().st_size / 1e6
    title = f"0.5.8 → 0.5.9 as one patch ({len(files)} files, {size:.1f} MB)"
    return Case("c", title, tree, (path,), "whole", bundles, files)


def thousand_stacked(work: Path) -> Case:
    """(d) 1,000 patches on 20 files, each made on top of the ones before."""
    tree = releases.install([SGLANG], work / "tree")
    rng = random.Random(20)
    candidates = [
        name
        for name in releases.files(tree)
        if name.endswith(".py") and 20_000 < (tree / name).stat().st_size < 120_000
    ]
    names = sorted(rng.sample(candidates, 20))
    repository = work / "repository"
    for name in names:
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / name, repository / name)
    git(repository, "init", "--quiet")
    git(repository, "add", "--all", "--force")
    bundles = work / "bundles"
    folder = bundles / "patches" / "stack"
    folder.mkdir(parents=True)
    patches = []
    for number in range(1000):
        name = names[number % 20]
        _edit(repository / name, number, rng)
        path = folder / f"{number + 1:04}.patch"
        path.write_bytes(git(repository, "diff", "--", name))
        git(repository, "add", "--", name)
        patches.append(path)
    _bundle(bundles, "stack", "==0.5.9", patches)
    title = "1,000 stacked patches on 20 files"
    return Case("d", title, tree, tuple(patches), "stack", bundles, tuple(names))


def _edit(file: Path, number: int, rng: random.Random) -> None:
    """A small edit somewhere: one line added, replaced or taken out."""
    lines = file.read_bytes().split(b"\n")
    place = rng.randrange(3, len(lines) - 3)
    kind = rng.choice(("add", "add", "replace", "remove"))
    if kind == "remove" and lines[place].strip():
        del lines[place]
    elif kind == "replace":
        lines[place] = b"# edit %d" % number
    else:
        lines.insert(place, b"# edit %d" % number)
    file.write_bytes(b"\n".join(lines))


def large_patch(work: Path) -> Case:
    """(f) a patch of more than 100 MiB over 2,000 files, nine lines of ten changed."""
    tree = work / "tree"
    path = work / "large.patch"
    names = [f"d{number % 50}/f{number}.txt" for number in range(2000)]
    with path.open("wb") as out:
        for number, name in enumerate(names):
            words = b"of file %d, with words to fill it up\n" % number
            lines = [b"line %d " % n + words for n in range(700)]
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(b"".join(lines))
            head = f"--- a/{name}\n+++ b/{name}\n@@ -1,{len(lines)} +1,{len(lines)} @@\n"
            out.write(f"diff --git a/{name} b/{name}\n{head}".encode())
            for n, line in enumerate(lines):
                out.write(b" " + line if n % 10 == 0 else b"-" + line + b"+other " + line)
    size = path.stat().st_size / 2**20
    title = f"one patch of {size:.0f} MiB over 2,000 files"
    return Case("f", title, tree, (path,), str(path), None, tuple(names))


def large_hunk(work: Path) -> Case:
    """(g) one hunk of a million lines."""
    tree = work / "tree"
    path = work / "hunk.patch"
    lines = [b"line %d\n" % number for number in range(500_000)]
    tree.mkdir()
    (tree / "x.txt").write_bytes(b"".join(lines))
    with path.open("wb") as out:
        out.write(b"--- a/x.txt\n+++ b/x.txt\n@@ -1,500000 +1,500000 @@\n")
        out.writelines(b"-" + line for line in lines)
        out.writelines(b"+new " + line for line in lines)
    return Case("g", "one hunk of a million lines", tree, (path,), str(path), None, ("x.txt",))


def equal_lines(work: Path) -> Case:
    """(h) a hunk in a file of a million equal lines, which it could match anywhere."""
    tree = work / "tree"
    path = work / "equal.patch"
    tree.mkdir()
    (tree / "x.txt").write_bytes(b"equal\n" * 1_000_000)
    context = b" equal\n" * 3
    head = b"--- a/x.txt\n+++ b/x.txt\n@@ -500000,6 +500000,7 @@\n"
    path.write_bytes(head + context + b"+new\n" + context)
    title = "a hunk in a file of a million equal lines"
    return Case("h", title, tree, (path,), str(path), None, ("x.txt",))


MAKERS = {
    "a": fusion,
    "b": hundred_patches,
    "c": whole_difference,
    "d": thousand_stacked,
    "e": fusion_in_many_files,
    "f": large_patch,
    "g": large_hunk,
    "h": equal_lines,
}
