"""Promise 5: files are replaced, never written through, so that shared caches stay clean.

Two environments that uv made from one cache, in each of its link modes.
"""

from __future__ import annotations

import os
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
from tests.support.wheels import UvLinkMode, uv_install

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


# --- the cache file is not what it was ---------------------------------------------------


def cached_file(site: Site, path: str) -> Path:
    """Where a symlinked file of an environment really is."""
    return (site / path).resolve()


@pytest.mark.parametrize("how", ["removed", "replaced", "written", "rewritten"])
@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_a_cache_file_that_was_touched_while_applied(lab: Lab, mode: UvLinkMode, how: str) -> None:
    """Linked again where it holds the same bytes; else the pristine bytes, as a file of its
    own; and the cache is left as it is, whatever it is."""
    site, other = lab.venv(link_mode=mode), lab.venv(link_mode=mode)
    bundles(lab)
    file = cached_file(site, ALPHA[0])
    if mode == "hardlink":
        (file,) = lab.cache.glob(f"archive-v0/*/{ALPHA[0]}")
    pristine = (site / ALPHA[0]).read_bytes()
    lab.run(site, "apply", "edit")
    if how == "removed":
        file.unlink()
    elif how == "replaced":
        file.unlink()
        file.write_bytes(pristine)
    elif how == "written":
        file.write_bytes(b"# poisoned\n")
    else:
        file.write_bytes(pristine)
    neighbour, kept = other.picture(), cache(lab)
    lab.run(site, "revert", "--all")
    assert (site / ALPHA[0]).read_bytes() == pristine
    assert releases.record_problems(site.root) == []
    assert releases.diff_snapshots(kept, cache(lab), UNTOUCHED) == []
    assert releases.diff_snapshots(neighbour, other.picture(), UNTOUCHED) == []
    same = how in ("replaced", "rewritten") if mode == "symlink" else how == "rewritten"
    assert (site / ALPHA[0]).is_symlink() == (same and mode == "symlink")
    if mode == "hardlink" and file.exists():
        assert file.samefile(site / ALPHA[0]) == same


def test_a_source_of_a_jit_behind_a_symlink(lab: Lab) -> None:
    """Its package may compile what the link leads to, and build tools see that time: said on
    apply, and on revert a file with a new time comes in the place of the link."""
    site = lab.venv(link_mode="symlink")
    lab.bundle("kernel", {"bolt-kernels": lab.edit(KERNEL)})
    before = cache(lab)
    result = lab.run(site, "apply", "kernel")
    assert KERNEL[0] in result.stderr and "--link-mode copy" in result.stderr
    second = (site / KERNEL[0]).stat().st_mtime_ns
    lab.run(site, "revert", "--all")
    assert not (site / KERNEL[0]).is_symlink()
    assert (site / KERNEL[0]).stat().st_mtime_ns > second
    assert releases.record_problems(site.root) == []
    assert releases.diff_snapshots(before, cache(lab), releases.IDENTITY) == []
    lab.run(site, "verify", "--pristine")


# --- as conda does it --------------------------------------------------------------------


def farm(lab: Lab) -> tuple[Site, Site, Path]:
    """A package cache with byte-code in it, and two environments of hard links to all of it."""
    packages = lab.folder("pkgs") / "acme-1.0-py_0"
    original = lab.venv(by_pip=True)
    shutil.copytree(original.root, packages)
    sites = [Site(lab.folder("env") / "site-packages") for _ in range(2)]
    for site in sites:
        shutil.copytree(packages, site.root, copy_function=os.link)
    return sites[0], sites[1], packages


def test_a_farm_of_hard_links_with_byte_code(lab: Lab) -> None:
    """conda's packages hold ``__pycache__``, and its environments share that as well."""
    site, other, packages = farm(lab)
    bundles(lab)
    pictures = site.picture(), other.picture(), releases.snapshot(packages)
    assert any(path.endswith(".pyc") for path in pictures[2])
    assert (site / ALPHA[0]).stat().st_nlink == 3
    lab.run(site, "apply", "edit", "files")
    assert releases.diff_snapshots(pictures[1], other.picture(), UNTOUCHED) == []
    assert releases.diff_snapshots(pictures[2], releases.snapshot(packages), UNTOUCHED) == []
    lab.run(other, "apply", "edit")
    lab.run(site, "revert", "--all")
    assert site.differences(pictures[0], UNTOUCHED) == []
    lab.run(other, "verify", "edit")
    lab.run(other, "revert", "--all")
    assert other.differences(pictures[1]) == []
    assert site.differences(pictures[0]) == []
    assert (
        releases.diff_snapshots(pictures[2], releases.snapshot(packages), releases.IDENTITY) == []
    )


@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_the_real_releases_from_one_cache(lab: Lab, mode: UvLinkMode) -> None:
    """uv installs the real wheels into two environments; the shipped bundles go in and out."""
    wheels = [releases.wheel(*releases.SGLANG), releases.wheel(*releases.FLASHINFER)]
    sites = [Site(lab.folder("site") / "site-packages") for _ in range(2)]
    for site in sites:
        uv_install(wheels, cache=lab.cache, target=site.root, link_mode=mode)
    names = ("sm120-fusion", "symm-mem-sm120")
    before = [site.picture() for site in sites]
    kept = cache(lab)
    for command in (("apply", *names), ("verify", *names), ("revert", "--all")):
        lab.cli("--root", sites[0].root, "--bundles", releases.ROOT, *command)
        assert sites[1].differences(before[1], UNTOUCHED) == []
        assert releases.diff_snapshots(kept, cache(lab), UNTOUCHED) == []
    assert sites[0].differences(before[0]) == []
    assert releases.diff_snapshots(kept, cache(lab), releases.IDENTITY) == []
