"""Environments on an overlay file system, as in an image or a running container."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from patchkit import fsio
from tests.conftest import Result
from tests.support.lab import ALPHA, BETA, Lab, Site, needs_root, needs_tool

pytest_plugins = ("tests.support.fixtures",)


def mounted(lab: Lab, site: Site, upper: Path, *args: str) -> Result:
    """patchkit on an overlay of the site, mounted over it for this command alone."""
    needs_root()
    needs_tool("unshare")
    work = lab.folder("work")
    at = site.root
    options = f"lowerdir={at},upperdir={upper},workdir={work}"
    script = 'mount -t overlay overlay -o "$1" "$2" && shift 2 && exec "$@"'
    return lab.run(
        site, *args, prefix=["unshare", "-m", "sh", "-c", script, "sh", options, str(at)]
    )


def test_a_second_name_below_keeps_its_bytes_and_stops_nothing(lab: Lab) -> None:
    """A copy up gives a file of several names another inode, which is no edit."""
    lab.bundle("b", {"acme": lab.edit(ALPHA, BETA)})
    site, upper = lab.site(), lab.folder("upper")
    twin = lab.base / "twin"
    os.link(site / ALPHA[0], twin)
    before = site.picture()
    mounted(lab, site, upper, "apply", "b")
    mounted(lab, site, upper, "verify", "b")
    assert ALPHA[2] in (upper / ALPHA[0]).read_text()
    assert ALPHA[1] in twin.read_text()
    mounted(lab, site, upper, "revert", "--all")
    assert ALPHA[1] in (upper / ALPHA[0]).read_text()
    assert site.differences(before) == []


@pytest.fixture
def across(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache's folder that no rename moves, as one of a lower layer."""
    cache = tmp_path / "cache"
    (cache / "deep").mkdir(parents=True)
    (cache / "deep" / "a.so").write_bytes(b"so")
    rename = os.rename

    def refuse(source: str, target: str) -> None:
        if source == str(cache):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    return cache


def test_a_folder_that_no_rename_moves_is_copied_and_removed(across: Path) -> None:
    target = across.parent / "aside" / "cache"
    (across.parent / "aside" / "cache.part").mkdir(parents=True)
    fsio.move_tree(str(across), str(target))
    assert (target / "deep" / "a.so").read_bytes() == b"so"
    assert not across.exists()
    assert [path.name for path in target.parent.iterdir()] == ["cache"]


def test_a_copy_is_whose_the_folder_was(across: Path) -> None:
    needs_root()
    (across / "deep" / "link").symlink_to("/etc/passwd")
    for path in (across, across / "deep", across / "deep" / "a.so", across / "deep" / "link"):
        os.chown(path, 65534, 65533, follow_symlinks=False)
    here = os.stat("/etc/passwd").st_uid
    target = across.parent / "aside" / "cache"
    fsio.move_tree(str(across), str(target))
    for path in (target, *target.rglob("*")):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (65534, 65533), path
    assert os.stat("/etc/passwd").st_uid == here


def test_a_copy_that_fails_leaves_the_folder_and_no_half(across: Path) -> None:
    os.mkfifo(across / "deep" / "pipe")
    target = across.parent / "aside" / "cache"
    with pytest.raises(OSError, match="pipe"):
        fsio.move_tree(str(across), str(target))
    assert (across / "deep" / "a.so").exists()
    assert list(target.parent.iterdir()) == []
