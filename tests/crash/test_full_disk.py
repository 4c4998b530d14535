"""A disk that is really full: a small tmpfs, filled to the last page."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.lab import ALPHA, BETA, DELTA, HEADER, KERNEL, Lab, Site, needs_tool

pytest_plugins = ("tests.support.fixtures",)
pytestmark = pytest.mark.slow

PAGE = os.sysconf("SC_PAGE_SIZE")


@contextmanager
def small_disk(lab: Lab, pages: int) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """A tmpfs of so many pages that only a process of its own sees: its folder as seen from
    here, and what to put before a command that works on it."""
    needs_tool("unshare", "nsenter", "mount")
    place = lab.folder("disk")
    user = [] if os.geteuid() == 0 else ["--map-root-user", "--user"]
    mount = f'mount -t tmpfs -o size={pages * PAGE} none "{place}" && echo mounted && exec cat'
    with subprocess.Popen(
        ["unshare", *user, "--mount", "sh", "-c", mount],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as keeper:  # fmt: skip
        assert keeper.stdout is not None and keeper.stdin is not None
        if keeper.stdout.readline() != "mounted\n":
            pytest.skip("needs the right to mount a tmpfs")
        enter = ["--user", "--preserve-credentials"] if user else []
        yield (
            Path(f"/proc/{keeper.pid}/root{place}"),
            ("nsenter", "--target", str(keeper.pid), *enter, "--mount"),
        )
        keeper.stdin.close()


def fill(folder: Path, leave: int) -> Path:
    """Take the whole disk but for so many pages."""
    path = folder / f"ballast{len(os.listdir(folder))}"
    free = os.statvfs(folder).f_bavail - leave
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free * PAGE)
    assert os.statvfs(folder).f_bavail == leave
    return path


def on_disk(lab: Lab, folder: Path) -> tuple[Site, Site]:
    """A site on that disk: as seen from here, and as the commands in there see it."""
    source = lab.site()
    subprocess.run(["cp", "-a", source.root, folder / "site"], check=True)
    return Site(folder / "site"), Site(inside(folder) / "site")


def inside(folder: Path) -> Path:
    """A folder of that disk as the commands see it: PROCESS/root of proc(5) is their top."""
    parts = folder.parts
    return Path("/", *parts[parts.index("root") + 1 :])


def bundle(lab: Lab) -> None:
    new = lab.diff({}, {"acme/fresh/new.py": "fresh = 1\n" * 2000})
    lab.bundle(
        "wide",
        {"acme": lab.edit(ALPHA, BETA) + new, "bolt-kernels": lab.edit(DELTA, KERNEL, HEADER)},
        caches={"flashinfer-jit": ["kernel"]},
    )


def test_apply_on_a_full_disk_leaves_nothing(lab: Lab) -> None:
    bundle(lab)
    with small_disk(lab, 400) as (folder, enter):
        seen, site = on_disk(lab, folder)
        before = seen.picture()
        codes = []
        for leave in (0, 1, 2, 3, 5, 8, 11, 14, 17, 20, 60):
            ballast = fill(folder, leave)
            result = lab.run(site, "apply", "wide", check=None, prefix=enter)
            codes.append(result.exit_code)
            if result.exit_code == 0:
                break
            assert result.exit_code == 4 and str(site.root) in result.stderr, str(result)
            assert "No space left" in result.stderr
            assert seen.differences(before) == []
            assert not (seen / ".patchkit").exists()
            ballast.unlink()
        assert codes[-1] == 0 and codes.count(4) > 5, codes
        lab.run(site, "verify", "wide", prefix=enter)


@pytest.mark.parametrize("which", ["--all", "wide"])
def test_revert_on_a_full_disk(lab: Lab, which: str) -> None:
    """Also of one bundle of two, which writes a new state."""
    bundle(lab)
    lab.bundle("other", {"acme": lab.edit(("acme/tool.sh", "echo two\n", "echo 2\n"))})
    with small_disk(lab, 400) as (folder, enter):
        seen, site = on_disk(lab, folder)
        before = seen.picture()
        lab.run(site, "apply", "wide", "other", prefix=enter)
        fill(folder, 0)
        lab.run(site, "revert", which, prefix=enter)
        lab.run(site, "verify", prefix=enter)
        if which != "--all":
            fill(folder, 0)
            lab.run(site, "revert", "--all", prefix=enter)
        different = seen.differences(before)
        compiled = ("bolt/data/csrc/kernel.cu", "bolt/data/include/kernel.cuh")
        assert [line for line in different if not line.startswith(compiled)] == []


def test_a_trial_on_a_full_disk_is_recorded_to_its_end(lab: Lab) -> None:
    """Its logs fill the disk in the first run already, and the environment is elsewhere."""
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    with small_disk(lab, 200) as (folder, enter):
        (folder / "trials").mkdir()
        lab.run(
            site,
            *("trial", "run", "-q", "--name", "t", "--bundle", "b", "--repeat", "3"),
            *("--trials", inside(folder) / "trials"),
            *("--metric", r"n=n (\d+)", "--", "sh", "-c", "yes | head -c 2000000; echo n 7"),
            prefix=enter,
        )
        (path,) = (folder / "trials").glob("*.json")
        record = json.loads(path.read_text())
        assert record["status"] == "finished" and record["ended"]
        assert [run["values"] for run in record["runs"]] == [{"n": 7.0}] * 3
        lab.run(site, "verify", "--pristine")


def test_a_trial_without_room_for_its_record_does_not_begin_and_leaves_none(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    before = site.picture()
    with small_disk(lab, 200) as (folder, enter):
        (folder / "trials").mkdir()
        fill(folder, 6)
        done = lab.run(
            site,
            *("trial", "run", "--name", "t", "--bundle", "b"),
            *("--trials", inside(folder) / "trials", "--", "true"),
            prefix=enter,
            check=4,
        )
        assert f"No space left on device: {inside(folder)}/trials/logs/" in done.stderr
        left = [str(path) for path in (folder / "trials").rglob("*") if path.is_file()]
        assert left == []
    assert site.differences(before) == []
