"""Promise 5: files are replaced, never written through, so that shared caches stay clean.

Two environments that uv made from one cache, in each of its link modes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import releases
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    DELTA,
    KERNEL,
    Lab,
    Site,
)
from tests.support.wheels import UvLinkMode

pytest_plugins = ("tests.support.fixtures",)

MODES: tuple[UvLinkMode, ...] = ("hardlink", "symlink", "copy", "clone")
#: Of what must not be touched: all but the link count, which a kept pristine file may raise.
UNTOUCHED = tuple(field for field in releases.IDENTITY if field != "nlink")


def bundles(lab: Lab) -> None:
    lab.bundle("edit", {"acme": lab.edit(ALPHA, BETA), "bolt-kernels": lab.edit(DELTA)})
    text = ACME.files["acme/old.py"]
    added = {"acme/fresh/new.py": "n = 1\n"}
    lab.bundle("files", {"acme": lab.diff({"acme/old.py": text}, added, "--no-renames")})


def cache(lab: Lab) -> dict[str, releases.Entry]:
    """The unpacked wheels in uv's cache, which the environments are links to."""
    return releases.snapshot(lab.cache / "archive-v0")


@pytest.mark.parametrize("mode", MODES)
def test_cache_and_neighbour_are_untouched(lab: Lab, mode: UvLinkMode) -> None:
    site, other = lab.venv(link_mode=mode), lab.venv(link_mode=mode)
    linked = (site / ALPHA[0]).lstat()
    assert mode != "hardlink" or linked.st_nlink == 3
    assert mode != "symlink" or (site / ALPHA[0]).is_symlink()
    bundles(lab)
    before = (site.picture(), other.picture(), cache(lab))
    lab.run(site, "apply", "edit", "files")
    assert ALPHA[2] in site.text(ALPHA[0])
    assert not (site / ALPHA[0]).is_symlink()
    assert releases.diff_snapshots(before[1], other.picture(), UNTOUCHED) == []
    assert releases.diff_snapshots(before[2], cache(lab), UNTOUCHED) == []
    lab.run(site, "verify", "edit", "files")
    # An environment that is made now gets the pristine bytes.
    third = lab.venv(link_mode=mode)
    assert releases.record_problems(third.root) == []
    shutil.rmtree(third.root.parents[2])
    # And the links are there again afterwards, with the same counts.
    lab.run(site, "revert", "--all")
    assert site.differences(before[0]) == []
    assert other.differences(before[1]) == []
    assert releases.diff_snapshots(before[2], cache(lab), releases.IDENTITY) == []


@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_a_jit_source_leaves_the_cache_clean_on_revert_too(lab: Lab, mode: UvLinkMode) -> None:
    """It comes back as a new file; the cache keeps its bytes and its time all the while."""
    site, other = lab.venv(link_mode=mode), lab.venv(link_mode=mode)
    lab.bundle("kernel", {"bolt-kernels": lab.edit(KERNEL)})
    before = (other.picture(), cache(lab))
    lab.run(site, "apply", "kernel")
    lab.run(site, "revert", "--all")
    assert KERNEL[1] in site.text(KERNEL[0])
    assert releases.diff_snapshots(before[0], other.picture(), UNTOUCHED) == []
    assert releases.diff_snapshots(before[1], cache(lab), UNTOUCHED) == []


@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_both_environments_are_patched_and_reverted(lab: Lab, mode: UvLinkMode) -> None:
    site, other = lab.venv(link_mode=mode), lab.venv(link_mode=mode)
    bundles(lab)
    before = (site.picture(), other.picture(), cache(lab))
    lab.run(site, "apply", "edit")
    lab.run(other, "apply", "edit", "files")
    lab.run(site, "revert", "edit")
    lab.run(other, "verify", "edit", "files")
    lab.run(other, "revert", "--all")
    assert site.differences(before[0]) == []
    assert other.differences(before[1]) == []
    assert releases.diff_snapshots(before[2], cache(lab), releases.IDENTITY) == []


def poison(site: Site, path: str) -> None:
    """Write through the link, as an editor or ``cp`` does it."""
    with (site / path).open("r+") as file:
        file.write("# poisoned\n")


@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_a_poisoned_cache_is_named_and_not_spread(lab: Lab, mode: UvLinkMode) -> None:
    site, other = lab.venv(link_mode=mode), lab.venv(link_mode=mode)
    bundles(lab)
    poison(other, ALPHA[0])
    before, cached = site.picture(), cache(lab)
    result = lab.run(site, "apply", "edit", check=3)
    assert ALPHA[0] in result.stderr
    assert "cache" in result.stderr and "RECORD" in result.stderr
    assert site.differences(before) == []
    assert releases.diff_snapshots(cached, cache(lab), releases.IDENTITY) == []


@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_a_cache_poisoned_while_applied_is_not_reverted_to(lab: Lab, mode: UvLinkMode) -> None:
    """What was kept as pristine is the cache's own inode: its digest is checked before use."""
    site, other = lab.venv(link_mode=mode), lab.venv(link_mode=mode)
    bundles(lab)
    lab.run(site, "apply", "edit")
    poison(other, ALPHA[0])
    # A copy of the pristine bytes was kept as well, since others can write through the inode.
    lab.run(site, "revert", "--all")
    assert releases.record_problems(site.root) == []
    assert "poisoned" not in site.text(ALPHA[0])


def test_pristine_verify_names_a_poisoned_file(lab: Lab) -> None:
    site, other = lab.venv(link_mode="hardlink"), lab.venv(link_mode="hardlink")
    bundles(lab)
    poison(other, BETA[0])
    answer = lab.json(site, "verify", "--pristine", check=1)
    assert [(p["kind"], p["file"]) for p in answer["problems"]] == [("not-pristine", BETA[0])]


def test_a_link_into_a_cache_that_is_gone(lab: Lab) -> None:
    """A part of the cache was cleaned under a symlinked environment: the link is named."""
    site = lab.venv(link_mode="symlink")
    bundles(lab)
    (site / BETA[0]).resolve().unlink()
    before = site.picture()
    result = lab.run(site, "apply", "edit", check=3)
    assert BETA[0] in result.stderr
    assert site.differences(before) == []


def test_the_cache_is_emptied_while_applied(lab: Lab) -> None:
    """Of a hardlinked environment nothing is lost by that."""
    site = lab.venv(link_mode="hardlink")
    bundles(lab)
    before = site.picture()
    lab.run(site, "apply", "edit", "files")
    shutil.rmtree(lab.cache)
    lab.run(site, "verify")
    lab.run(site, "revert", "--all")
    fields = tuple(field for field in releases.IDENTITY if field != "nlink")
    assert site.differences(before, fields) == []


def test_a_file_on_another_file_system(lab: Lab) -> None:
    """A symlink to where no hard link can lead: the link itself is what is kept."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == lab.base.stat().st_dev:
        pytest.skip("needs a second file system in /dev/shm")
    site = lab.site()
    bundles(lab)
    away = shm / f"patchkit-test-{lab.base.parent.name}"
    away.mkdir()
    try:
        shutil.move(site / ALPHA[0], away / "alpha.py")
        (site / ALPHA[0]).symlink_to(away / "alpha.py")
        before, outside = site.picture(), releases.snapshot(away)
        lab.run(site, "apply", "edit")
        assert ALPHA[2] in site.text(ALPHA[0])
        lab.run(site, "revert", "--all")
        assert site.differences(before) == []
        assert releases.diff_snapshots(outside, releases.snapshot(away), UNTOUCHED) == []
    finally:
        shutil.rmtree(away)
