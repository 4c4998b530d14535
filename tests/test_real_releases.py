"""The difference of two real releases as one bundle: applied it is the later release byte for
byte, taken back it is the earlier one, to the last mode."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchkit.manifest import render_lock
from patchkit.patchfile import parse
from tests.conftest import Cli, Installed
from tests.releases import Release, diff_snapshots, snapshot
from tests.strategies import GNU_DIFF, Tools, Tree, apply, body, read_tree, text

ReleaseTree = Callable[[str, str], Path]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two releases, and how their difference is made."""

    name: str
    old: str
    new: str
    options: tuple[str, ...]
    renames: bool = False

    @property
    def before(self) -> Release:
        return (self.name, self.old)


PAIRS = [
    Pair("sglang", "0.5.6", "0.5.7", ("-M", "-l0"), renames=True),
    Pair("sglang", "0.5.8", "0.5.9", ("-M", "-l0", "-U5", "--full-index"), renames=True),
    Pair("sglang", "0.5.8", "0.5.8.post1", ("--no-renames", "-U1")),
    Pair("flashinfer-python", "0.6.1", "0.6.3", ("-M", "-l0"), renames=True),
]


def packages(folder: Path) -> Tree:
    """The packages' own files: what lies in dist-info is never patched."""
    return {
        path: state
        for path, state in read_tree(folder).items()
        if not path.split("/", 1)[0].endswith((".dist-info", ".patchkit"))
    }


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("releases"))


def bundle_dir(folder: Path, pair: Pair, *patches: bytes) -> Path:
    (folder / "manifests").mkdir(parents=True)
    names = []
    for number, patch in enumerate(patches):
        name = f"later/{number}.patch"
        names.append(name)
        path = folder / "patches" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(patch)
    (folder / "manifests" / "later.toml").write_text(
        'schema = 1\nname = "later"\nversion = "1.0"\nsummary = "The later release"\n'
        f'[[target]]\ndistribution = "{pair.name}"\n'
        f'[[target.variant]]\nversions = "=={pair.old}"\npatches = {names!r}\n'
    )
    digests = [hashlib.sha256(patch).hexdigest() for patch in patches]
    lock = render_lock(dict(zip(names, digests, strict=True)))
    (folder / "manifests" / "later.lock").write_bytes(lock)
    return folder


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.name}-{pair.old}-{pair.new}")
def test_there_and_back_by_the_command(
    pair: Pair,
    tools: Tools,
    cli: Cli,
    installed: Installed,
    release_tree: ReleaseTree,
    tmp_path: Path,
) -> None:
    old = packages(release_tree(pair.name, pair.old))
    new = packages(release_tree(pair.name, pair.new))
    patch = tools.git_diff(old, new, "--binary", *pair.options)
    assert (b"\nrename from " in patch) == pair.renames
    folder = installed([pair.before])
    before = snapshot(folder)
    options = ("--root", folder, "--bundles", bundle_dir(tmp_path / "bundles", pair, patch))

    cli(*options, "apply", "later")
    assert packages(folder) == new
    cli(*options, "verify", "later")
    assert cli(*options, "apply", "later").exit_code == 0
    assert packages(folder) == new

    cli(*options, "revert", "later")
    assert diff_snapshots(before, snapshot(folder)) == []


def test_two_steps_are_one_bundle(
    tools: Tools, cli: Cli, installed: Installed, release_tree: ReleaseTree, tmp_path: Path
) -> None:
    """0.5.8 to 0.5.8.post1 to 0.5.9: two patches in one transaction."""
    steps = [packages(release_tree("sglang", v)) for v in ("0.5.8", "0.5.8.post1", "0.5.9")]
    patches = [tools.git_diff(a, b, "--binary", "-M") for a, b in itertools.pairwise(steps)]
    folder = installed([("sglang", "0.5.8")])
    before = snapshot(folder)
    pair = Pair("sglang", "0.5.8", "0.5.9", ())
    options = ("--root", folder, "--bundles", bundle_dir(tmp_path / "bundles", pair, *patches))
    cli(*options, "apply", "later")
    assert packages(folder) == steps[-1]
    cli(*options, "revert", "--all")
    assert diff_snapshots(before, snapshot(folder)) == []


@pytest.mark.skipif(GNU_DIFF is None, reason="needs GNU diff")
def test_gnu_diff_of_two_releases(tools: Tools, release_tree: ReleaseTree) -> None:
    """What ``diff -ruN`` can say: text, and no file that is empty on both its sides."""
    old, new = (packages(release_tree("flashinfer-python", v)) for v in ("0.6.1", "0.6.3"))
    old, new = ({p: text(s.data) for p, s in tree.items()} for tree in (old, new))
    for path in old.keys() ^ new.keys():
        for tree in (old, new):
            if path in tree and not tree[path].data:
                del tree[path]
    patch = tools.gnu_diff(old, new, "-p")
    assert apply(old, patch) == new
    assert apply(new, patch, reverse=True) == old


def test_unidiff_sees_the_same(tools: Tools, release_tree: ReleaseTree) -> None:
    """The second opinion on every file, hunk and line of a large patch."""
    from unidiff.patch import PatchSet

    old, new = (packages(release_tree("flashinfer-python", v)) for v in ("0.6.1", "0.6.3"))
    patch = tools.git_diff(old, new, "--no-renames")
    ours = [file for file in parse(patch, "x").files if file.hunks]
    theirs = [file for file in PatchSet(patch.decode("latin-1").splitlines(True)) if file]
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.path[2:] == other.path
        for hunk, second in zip(mine.hunks, other, strict=True):
            assert (hunk.old_start, len(hunk.old)) == (second.source_start, second.source_length)
            assert (hunk.new_start, len(hunk.new)) == (second.target_start, second.target_length)
            lines = b"".join(body(hunk)).decode("latin-1")
            assert lines == "".join(str(line) for line in second)
