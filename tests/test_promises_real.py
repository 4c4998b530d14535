"""The promises on the real thing: the shipped bundles on sglang 0.5.9 and flashinfer 0.6.3.

Linked into a cache as uv does it, looked at as a whole: every path of 3,945, with inode, time
and link count.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import releases
from tests.conftest import Cli, Installed
from tests.releases import FLASHINFER, LinkMode
from tests.support.lab import STATE, needs_tool

pytestmark = pytest.mark.slow  # about data, not about the interpreter

FUSION = "sm120-fusion"
FILES = (
    "flashinfer/jit/comm.py",
    "sglang/srt/layers/communicator.py",
    "sglang/srt/server_args.py",
)


def whole(folder: Path) -> dict[str, releases.Entry]:
    return releases.snapshot(folder, ignore=(f"{STATE}/lock",))


@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_there_and_back_beside_a_shared_cache(
    installed: Installed, cli: Cli, mode: LinkMode
) -> None:
    root = installed(link_mode=mode)
    cache = root.parent / f"{root.name}-cache"
    before, cached = whole(root), whole(cache)
    cli("--root", root, "apply", FUSION, "nccl-tree")
    cli("--root", root, "verify", FUSION, "nccl-tree")
    changed = releases.changed_paths(before, whole(root))
    assert [path for path in changed if not path.startswith(STATE)] == list(FILES)
    untouched = tuple(field for field in releases.IDENTITY if field != "nlink")
    assert releases.diff_snapshots(cached, whole(cache), untouched) == []
    cli("--root", root, "revert", "--all")
    assert releases.diff_snapshots(before, whole(root), releases.IDENTITY) == []
    assert releases.diff_snapshots(cached, whole(cache), releases.IDENTITY) == []
    cli("--root", root, "verify", "--pristine")


def test_the_second_distribution_is_missing(installed: Installed, cli: Cli) -> None:
    """FlashInfer alone, or a FlashInfer of another release: nothing of SGLang is touched."""
    root = installed([("sglang", "0.5.9")])
    before = whole(root)
    result = cli("--root", root, "apply", FUSION, check=3)
    assert "flashinfer-python" in result.stderr
    assert releases.diff_snapshots(before, whole(root), releases.IDENTITY) == []


def test_a_reinstall_takes_the_patch_away_and_verify_says_so(
    installed: Installed, cli: Cli
) -> None:
    root = installed()
    cli("--root", root, "apply", FUSION)
    for folder in ("flashinfer", "flashinfer_python-0.6.3.dist-info"):
        shutil.rmtree(root / folder)
    releases.install([FLASHINFER], root)
    problems = cli("--root", root, "--json", "verify", FUSION, check=1).json["problems"]
    assert "flashinfer/jit/comm.py" in str(problems) or "flashinfer-python" in str(problems)


def test_one_fingerprint_for_every_way_of_installing(installed: Installed, cli: Cli) -> None:
    seen = set()
    modes: tuple[LinkMode, ...] = ("copy", "hardlink", "symlink")
    for mode in modes:
        root = installed(link_mode=mode)
        seen.add(cli("--root", root, "--json", "apply", FUSION).json["fingerprint"])
    assert len(seen) == 1


def test_kills_between_the_renames(installed: Installed, cli: Cli) -> None:
    """Three files, so two instants at which it is half done; both are known."""
    needs_tool("strace")
    root = installed()
    before = releases.snapshot(root)
    seen = []
    for number in range(1, 9):
        calls = "rename,renameat,renameat2"
        prefix = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e")
        kill = f"inject={calls}:signal=SIGKILL:when={number}"
        result = cli("--root", root, "apply", FUSION, check=None, prefix=(*prefix, kill))
        if result.exit_code == 0:
            break
        now = [
            path
            for path in releases.changed_paths(before, releases.snapshot(root, ignore=(STATE,)))
            if path in FILES
        ]
        problems = cli("--root", root, "--json", "verify", check=None).json["problems"]
        kinds = [problem["kind"] for problem in problems]
        if 0 < len(now) < len(FILES):
            assert kinds == ["interrupted"]
        seen.append(len(now))
        cli("--root", root, "recover")
        cli("--root", root, "revert", "--all")
        after = releases.snapshot(root, ignore=(STATE,))
        assert releases.diff_snapshots(before, after, releases.IDENTITY) == []
    assert {1, 2} <= set(seen), "both instants were met"
