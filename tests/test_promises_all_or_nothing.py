"""Promise 1: a command changes every file that it names, in every distribution, or none.

Exit code 3 or 4 means that nothing changed: not a byte, an inode, a time or a mode, and no
file of patchkit's own is left behind.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import releases
from tests.conftest import Result
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    DELTA,
    GAMMA,
    HEADER,
    KERNEL,
    STATE,
    Lab,
    Site,
    needs_root,
    needs_tool,
    unprivileged,
)

pytest_plugins = ("tests.support.fixtures",)

ABSENT = ("acme/alpha.py", "    third_3 = 203\n", "    third_3 = 2030\n")


def unfitting(patch: bytes) -> bytes:
    """A patch whose removed line is nowhere."""
    assert patch.count(b"-    third_3 = 203\n") == 1
    return patch.replace(b"-    third_3 = 203\n", b"-    third_3 = 9999\n")


def refused(lab: Lab, site: Site, *args: str, code: int = 3) -> Result:
    """Run; the exit code must be ``code``, and nothing at all may have changed."""
    before = site.picture()
    result = lab.run(site, *args, check=code)
    assert site.differences(before) == [], str(result)
    assert result.stdout == ""
    return result


def test_apply_changes_every_file_of_every_distribution(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("all", {"acme": lab.edit(ALPHA, BETA), "bolt-kernels": lab.edit(DELTA, KERNEL)})
    before = site.picture()
    lab.run(site, "apply", "all")
    for path, old, new in (ALPHA, BETA, DELTA, KERNEL):
        assert new in site.text(path) and old not in site.text(path)
    changed = releases.changed_paths(before, site.picture())
    assert {path for path in changed if not path.startswith(STATE)} == {
        path for path, _, _ in (ALPHA, BETA, DELTA, KERNEL)
    }


def test_a_patch_that_does_not_apply_stops_the_others_of_its_bundle(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("half", {"acme": [lab.edit(ALPHA, BETA), unfitting(lab.edit(ABSENT))]})
    refused(lab, site, "apply", "half")


def test_a_file_that_does_not_fit_stops_the_others_of_its_patch(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("half", {"acme": unfitting(lab.edit(ABSENT, BETA, GAMMA))})
    refused(lab, site, "apply", "half")


def test_a_hunk_that_does_not_fit_stops_the_others_of_its_file(lab: Lab) -> None:
    site = lab.site()
    first = ("acme/alpha.py", "    first_3 = 3\n", "    first_3 = 30\n")
    lab.bundle("half", {"acme": unfitting(lab.edit(first, ABSENT))})
    refused(lab, site, "apply", "half")


def test_the_second_distribution_stops_the_first(lab: Lab) -> None:
    site = lab.site()
    wrong = lab.edit(DELTA).replace(b"-    south_3 = 103\n", b"-    south_3 = 9999\n")
    lab.bundle("both", {"acme": lab.edit(ALPHA, BETA), "bolt-kernels": wrong})
    refused(lab, site, "apply", "both")


def test_a_distribution_that_is_not_installed_stops_the_other(lab: Lab) -> None:
    site = lab.site(ACME)
    lab.bundle("both", {"acme": lab.edit(ALPHA), "bolt-kernels": lab.edit(DELTA)})
    result = refused(lab, site, "apply", "both")
    assert "bolt-kernels" in result.stderr


def test_a_release_outside_the_range_stops_the_other(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("both", {"acme": lab.edit(ALPHA)})
    variant = {"versions": ">=3", "strip": 1, "patches": ["both/acme-0001.patch"]}
    lab.bundle(
        "both",
        {"acme": lab.edit(ALPHA)},
        target=[{"distribution": "bolt-kernels", "variant": [variant]}],
    )
    result = refused(lab, site, "apply", "both")
    assert "bolt-kernels" in result.stderr and "2.1" in result.stderr


def test_the_second_bundle_stops_the_first(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    lab.bundle("bad", {"acme": unfitting(lab.edit(ABSENT))})
    refused(lab, site, "apply", "good", "bad")
    refused(lab, site, "apply", "bad", "good")


def test_an_unknown_bundle_stops_the_first(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    before = site.picture()
    result = lab.run(site, "apply", "good", "goood", check=None)
    assert result.exit_code in (2, 3)
    assert site.differences(before) == []


def test_a_failing_assertion_stops_all(lab: Lab) -> None:
    site = lab.site()
    assertion = {
        "distribution": "bolt-kernels",
        "file": "bolt/delta.py",
        "pattern": "south_3 = 4711",
        "message": "the south is not what it was",
    }
    lab.bundle(
        "judged",
        {"acme": lab.edit(ALPHA), "bolt-kernels": lab.edit(DELTA)},
        assert_=[assertion],
    )
    result = refused(lab, site, "apply", "judged")
    assert "the south is not what it was" in result.stderr
    assert "judged" in result.stderr and "bolt/delta.py" in result.stderr


def test_an_assertion_of_an_applied_bundle_stops_the_next(lab: Lab) -> None:
    site = lab.site()
    assertion = {
        "distribution": "acme",
        "file": "acme/beta.py",
        "pattern": r"two_3 = 103\b",
        "message": "beta must stay",
    }
    lab.bundle("first", {"acme": lab.edit(ALPHA)}, assert_=[assertion])
    lab.bundle("second", {"acme": lab.edit(BETA)})
    lab.run(site, "apply", "first")
    result = refused(lab, site, "apply", "second")
    assert "beta must stay" in result.stderr


def test_a_revert_that_would_break_what_stays_changes_nothing(lab: Lab) -> None:
    """The second bundle is a change of what the first one wrote."""
    site = lab.site()
    lab.bundle("first", {"acme": lab.edit(ALPHA), "bolt-kernels": lab.edit(DELTA)})
    before = {ALPHA[0]: str(ACME.files[ALPHA[0]]).replace(ALPHA[1], ALPHA[2])}
    after = {ALPHA[0]: before[ALPHA[0]].replace(ALPHA[2], "    second_3 = 555\n")}
    lab.bundle("second", {"acme": lab.diff(before, after)})
    lab.run(site, "apply", "first", "second")
    result = refused(lab, site, "revert", "first")
    assert "second" in result.stderr
    lab.run(site, "verify", "first", "second")


def test_drift_in_one_file_stops_the_revert_of_all(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("two", {"acme": lab.edit(ALPHA), "bolt-kernels": lab.edit(DELTA)})
    lab.run(site, "apply", "two")
    with (site / "bolt/delta.py").open("a") as file:
        file.write("# mine\n")
    result = refused(lab, site, "revert", "--all")
    assert "bolt/delta.py" in result.stderr


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_dry_run_refuses_what_the_command_refuses(lab: Lab, command: str) -> None:
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(BETA)})
    lab.bundle("bad", {"acme": unfitting(lab.edit(ABSENT))})
    lab.run(site, "apply", "good")
    if command == "apply":
        refused(lab, site, "apply", "--dry-run", "bad")
    else:
        with (site / "acme/beta.py").open("a") as file:
            file.write("# mine\n")
        refused(lab, site, "revert", "--dry-run", "good")


# --- faults: exit code 4, rolled back ----------------------------------------------------


WIDE = (ALPHA, BETA, GAMMA)


def wide(lab: Lab) -> None:
    """A bundle that edits, adds and deletes files in several folders of two distributions."""
    patches = lab.edit(*WIDE) + lab.diff(
        {"acme/old.py": ACME.files["acme/old.py"]},
        {"acme/fresh/new.py": "fresh = 1\n", "acme/zz.py": "zz = 1\n"},
        "--no-renames",
    )
    lab.bundle("wide", {"acme": patches, "bolt-kernels": lab.edit(DELTA, KERNEL, HEADER)})


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize("command", ["apply", "revert"])
@pytest.mark.parametrize("folder", ["acme", "acme/sub", "bolt", "bolt/data/csrc"])
def test_a_folder_that_cannot_be_written(lab: Lab, folder: str, command: str) -> None:
    prefix = unprivileged()
    site = lab.site()
    wide(lab)
    if command == "revert":
        lab.run(site, "apply", "wide")
    with read_only(site / folder):
        before = site.picture()
        name = "wide" if command == "apply" else "--all"
        result = lab.run(site, command, name, check=4, prefix=prefix)
        assert site.differences(before) == [], str(result)
        assert folder in result.stderr
        assert "Traceback" not in result.stderr
    lab.run(site, command, name, prefix=prefix)
    lab.run(site, "verify")


def test_a_site_packages_that_cannot_be_written(lab: Lab) -> None:
    prefix = unprivileged()
    site = lab.site()
    wide(lab)
    with read_only(site.root):
        before = site.picture()
        result = lab.run(site, "apply", "wide", check=4, prefix=prefix)
        assert site.differences(before) == []
        assert str(site.root) in result.stderr


@pytest.mark.parametrize("command", ["apply", "revert"])
@pytest.mark.parametrize("path", ["acme/alpha.py", "acme/sub/gamma.py", "bolt/delta.py"])
def test_a_file_that_cannot_be_replaced(lab: Lab, path: str, command: str) -> None:
    """Its folder can be written, so only the swap itself fails, in the middle of the others."""
    needs_root()
    needs_tool("chattr")
    site = lab.site()
    wide(lab)
    if command == "revert":
        lab.run(site, "apply", "wide")
    before = site.picture()
    if subprocess.run(["chattr", "+i", site / path], capture_output=True, check=False).returncode:
        pytest.skip("needs a file system with immutable files")
    name = "wide" if command == "apply" else "--all"
    try:
        result = lab.run(site, command, name, check=4)
        assert site.differences(before) == [], str(result)
        assert path in result.stderr
    finally:
        subprocess.run(["chattr", "-i", site / path], check=True)
    lab.run(site, "verify")
    lab.run(site, command, name)


def test_no_space_for_a_file(lab: Lab) -> None:
    """A limit on the size of files stands in for a full disk: the write itself fails."""
    needs_tool("bash")
    site = lab.site()
    big = "".join(f"big_{number} = {number}\n" for number in range(20_000))
    new = lab.diff({}, {"acme/a_new.py": "a = 1\n", "acme/big.py": big})
    lab.bundle("big", {"acme": lab.edit(ALPHA) + new, "bolt-kernels": lab.edit(DELTA)})
    before = site.picture()
    prefix = ("bash", "-c", 'ulimit -f 200; exec "$@"', "bash")
    result = lab.run(site, "apply", "big", check=4, prefix=prefix)
    assert site.differences(before) == [], str(result)
    lab.run(site, "apply", "big")
    lab.run(site, "verify", "big")
