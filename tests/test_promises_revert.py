"""Promise 4: after ``revert --all`` everything is what it was, and nothing of patchkit is left.

Bytes, modes, owners, links, extended attributes, folders, dist-info, byte-code; the same inode
and time wherever a hard link could keep it.  The exception: what a JIT compiles comes back as
a new file with a new time.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import releases
from tests.support import wheels
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    BOLT,
    DELTA,
    GAMMA,
    HEADER,
    KERNEL,
    STATE,
    Lab,
    Site,
    needs_root,
)
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)

OLD = {"acme/old.py": ACME.files["acme/old.py"]}
LONELY = {"acme/lonely/only.py": ACME.files["acme/lonely/only.py"]}


def there_and_back(lab: Lab, site: Site, *names: str) -> None:
    """Apply and revert; everything must be as before, inodes and times included."""
    before = site.picture()
    lab.run(site, "apply", *names)
    assert site.differences(before) != []
    lab.run(site, "verify", *names)
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
    assert not (site / STATE).exists()


def test_edits_in_two_distributions(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA, BETA, GAMMA), "bolt-kernels": lab.edit(DELTA)})
    there_and_back(lab, lab.site(), "b")


def test_an_added_file_and_its_new_folders(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.diff({}, {"acme/new/deep/er/x.py": "x = 1\n", "acme/y.py": ""})})
    there_and_back(lab, lab.site(), "b")


def test_a_new_folder_with_files_of_somebody_else_stays(lab: Lab) -> None:
    """Byte-code goes with its source; a file that patchkit does not know is not deleted."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.diff({}, {"acme/new/x.py": "x = 1\n"})})
    before = site.picture()
    lab.run(site, "apply", "b")
    (site / "acme/new/notes.txt").write_text("mine\n")
    (site / "acme/new/__pycache__").mkdir()
    tag = sys.implementation.cache_tag
    (site / f"acme/new/__pycache__/x.{tag}.pyc").write_bytes(b"stale")
    lab.run(site, "revert", "--all")
    left = releases.changed_paths(before, site.picture())
    assert left == ["acme/new", "acme/new/notes.txt"]


def test_a_deleted_file(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.diff(OLD, {})})
    site = lab.site()
    before = site.picture()
    lab.run(site, "apply", "b")
    assert not (site / "acme/old.py").exists()
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_a_deleted_file_that_was_alone_in_its_folder(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.diff(LONELY, {})})
    site = lab.site()
    (site / "acme/lonely").chmod(0o750)
    there_and_back(lab, site, "b")


def test_a_renamed_file(lab: Lab) -> None:
    text = str(ACME.files["acme/old.py"])
    new = {"acme/moved/new_name.py": text.replace("outdated_3 = 3", "outdated_3 = 30")}
    data = lab.diff(OLD, new, "-M")
    assert b"rename from" in data
    lab.bundle("b", {"acme": data})
    site = lab.site()
    before = site.picture()
    lab.run(site, "apply", "b")
    assert not (site / "acme/old.py").exists()
    assert "outdated_3 = 30" in site.text("acme/moved/new_name.py")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_a_mode_that_a_patch_changes(lab: Lab) -> None:
    data = (
        b"diff --git a/acme/tool.sh b/acme/tool.sh\nold mode 100755\nnew mode 100644\n"
        b"diff --git a/acme/table.txt b/acme/table.txt\nold mode 100644\nnew mode 100755\n"
    )
    lab.bundle("b", {"acme": data})
    site = lab.site()
    before = site.picture()
    answer = lab.json(site, "apply", "b")
    assert (site / "acme/tool.sh").stat().st_mode & 0o111 == 0
    assert (site / "acme/table.txt").stat().st_mode & 0o111 == 0o111
    assert {file["change"] for file in answer["files"]} == {"mode"}
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o444, 0o664, 0o2755])
def test_the_mode_of_an_edited_file(lab: Lab, mode: int) -> None:
    """It keeps its mode while it is patched, and afterwards."""
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    (site / ALPHA[0]).chmod(mode)
    before = site.picture()
    lab.run(site, "apply", "b")
    assert (site / ALPHA[0]).stat().st_mode & 0o7777 == mode
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_the_owner(lab: Lab) -> None:
    needs_root()
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    os.chown(site / ALPHA[0], 4321, 8765)
    before = site.picture()
    lab.run(site, "apply", "b")
    info = (site / ALPHA[0]).stat()
    assert (info.st_uid, info.st_gid) == (4321, 8765), "a patched file changes hands"
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_extended_attributes(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA) + lab.diff(OLD, {})})
    site = lab.site()
    try:
        os.setxattr(site / ALPHA[0], "user.origin", b"where it came from")
        os.setxattr(site / "acme/old.py", "user.note", b"\x00\xff")
    except OSError:
        pytest.skip("needs a file system with user attributes")
    before = site.picture()
    lab.run(site, "apply", "b")
    assert os.getxattr(site / ALPHA[0], "user.origin") == b"where it came from"
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_extended_attributes_where_no_hard_link_could_keep_them(lab: Lab) -> None:
    """A file that a JIT compiles comes back as a new file; its attributes come along."""
    lab.bundle("b", {"bolt-kernels": lab.edit(KERNEL)})
    site = lab.site()
    (site / KERNEL[0]).chmod(0o640)
    try:
        os.setxattr(site / KERNEL[0], "user.origin", b"here")
    except OSError:
        pytest.skip("needs a file system with user attributes")
    before = site.picture()
    lab.run(site, "apply", "b")
    lab.run(site, "revert", "--all")
    assert site.differences(before, releases.CONTENTS) == []


def test_old_times_come_back(lab: Lab) -> None:
    """Times long ago, to the nanosecond; a patched file has another one."""
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    os.utime(site / ALPHA[0], ns=(1_000_000_000_123_456_789, 1_000_000_000_123_456_789))
    before = site.picture()
    lab.run(site, "apply", "b")
    assert (site / ALPHA[0]).stat().st_mtime_ns != 1_000_000_000_123_456_789
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_hard_links_inside_the_tree(lab: Lab) -> None:
    """Two names of one file: the other name keeps the pristine bytes, and they are one again."""
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    os.link(site / ALPHA[0], site / "acme/twin.txt")
    before = site.picture()
    lab.run(site, "apply", "b")
    assert ALPHA[1] in site.text("acme/twin.txt")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
    assert (site / "acme/twin.txt").samefile(site / ALPHA[0])


def test_a_symlinked_file(lab: Lab) -> None:
    """The link is replaced by a file, what it points to is left alone, the link comes back."""
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    real = lab.folder("elsewhere") / "alpha.py"
    (site / ALPHA[0]).rename(real)
    (site / ALPHA[0]).symlink_to(real)
    before, outside = site.picture(), releases.snapshot(real.parent)
    lab.run(site, "apply", "b")
    assert not (site / ALPHA[0]).is_symlink()
    assert ALPHA[2] in site.text(ALPHA[0])
    assert releases.diff_snapshots(outside, releases.snapshot(real.parent)) == []
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
    assert releases.diff_snapshots(outside, releases.snapshot(real.parent), releases.IDENTITY) == []


def test_an_empty_file_that_is_filled_and_a_filled_one_that_is_emptied(lab: Lab) -> None:
    before_files = {"acme/sub/__init__.py": "", **OLD}
    after_files = {"acme/sub/__init__.py": "filled = 1\n", "acme/old.py": ""}
    lab.bundle("b", {"acme": lab.diff(before_files, after_files)})
    site = lab.site()
    before = site.picture()
    lab.run(site, "apply", "b")
    assert site.text("acme/sub/__init__.py") == "filled = 1\n"
    assert site.text("acme/old.py") == ""
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_a_new_file_is_readable_by_all_whatever_the_umask(lab: Lab) -> None:
    """Other users run the server: a new file has the mode of its patch, not of the umask."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.diff({}, {"acme/new/x.py": "x = 1\n"}) + lab.edit(ALPHA)})
    prefix = ("sh", "-c", 'umask 077; exec "$@"', "sh")
    lab.run(site, "apply", "b", prefix=prefix)
    assert (site / "acme/new/x.py").stat().st_mode & 0o777 == 0o644
    assert (site / "acme/new").stat().st_mode & 0o777 == 0o755
    assert (site / ALPHA[0]).stat().st_mode & 0o777 == 0o644


# --- dist-info ---------------------------------------------------------------------------


def rows(site: Site, dist: Dist) -> list[tuple[str, str, str]]:
    return releases.record_rows(site.root / dist.info)


def test_record_gains_the_added_files_and_nothing_else(lab: Lab) -> None:
    site = lab.site()
    added = {"acme/new/x.py": "x = 1\n", "acme/with, comma.txt": "y\n"}
    lab.bundle("b", {"acme": lab.edit(ALPHA) + lab.diff(OLD, added, "--no-renames")})
    before, other = rows(site, ACME), (site.root / BOLT.info / "RECORD").read_bytes()
    lab.run(site, "apply", "b")
    gained = set(rows(site, ACME)) - set(before)
    expected = set()
    for path, content in added.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest())
        expected.add((path, f"sha256={digest.rstrip(b'=').decode()}", str(len(content))))
    assert gained == expected
    assert set(before) - set(rows(site, ACME)) == set(), "rows of edited files stay as they are"
    assert (site.root / BOLT.info / "RECORD").read_bytes() == other
    problems = releases.record_problems(site.root, unlisted=False)
    assert sorted(problems) == ["acme/alpha.py: changed", "acme/old.py: missing"]


def test_record_is_not_touched_where_nothing_is_added(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    record = site.root / ACME.info / "RECORD"
    before = (record.stat().st_ino, record.stat().st_mtime_ns, record.read_bytes())
    lab.run(site, "apply", "b")
    assert (record.stat().st_ino, record.stat().st_mtime_ns, record.read_bytes()) == before


@pytest.mark.parametrize("end", ["\r\n", ""])
def test_record_keeps_its_own_line_ends(lab: Lab, end: str) -> None:
    """pip writes CRLF in some releases; others leave out the last newline."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.diff({}, {"acme/x.py": "x = 1\n"})})
    record = site.root / ACME.info / "RECORD"
    data = record.read_bytes().replace(b"\r\n", b"\n")
    record.write_bytes(data.replace(b"\n", b"\r\n") if end else data.rstrip(b"\n"))
    before = site.picture()
    original = record.read_bytes()
    lab.run(site, "apply", "b")
    assert [row for row in rows(site, ACME) if row[0] == "acme/x.py"]
    assert len(rows(site, ACME)) == len(original.splitlines()) + 1
    lab.run(site, "revert", "--all")
    assert record.read_bytes() == original
    assert site.differences(before) == []


def test_uninstall_takes_the_added_files_along(lab: Lab) -> None:
    site = lab.venv(ACME)
    lab.bundle("b", {"acme": lab.edit(ALPHA) + lab.diff({}, {"acme/new/x.py": "x = 1\n"})})
    lab.run(site, "apply", "b")
    assert site.python is not None
    wheels.pip_uninstall("acme", python=site.python)
    assert not (site / "acme").exists()


def test_byte_code_of_pip_comes_back(lab: Lab) -> None:
    """pip compiles what it installs and lists it in RECORD: those files are a part of it."""
    site = lab.venv(ACME, by_pip=True)
    compiled = [path for path in releases.files(site / "acme") if path.endswith(".pyc")]
    assert len(compiled) > 4
    lab.bundle("b", {"acme": lab.edit(ALPHA, GAMMA) + lab.diff(OLD, {})})
    there_and_back(lab, site, "b")


# --- what a JIT compiles -----------------------------------------------------------------


def apply_and_revert_a_source(lab: Lab, site: Site, path: str) -> None:
    """Each time the file must be newer than all that was built before the command."""
    tick = 10_000_000  # the kernel's clock for files moves in steps
    times = [(site / path).stat().st_mtime_ns]
    for args in (("apply", "b"), ("revert", "--all")):
        started = time.time_ns()
        lab.run(site, *args)
        if (site / path).exists():
            times.append((site / path).stat().st_mtime_ns)
            assert times[-1] >= started - tick, "what was built before is still fresh"
    assert len(set(times)) == len(times)


@pytest.mark.parametrize(
    "path",
    [
        "bolt/data/csrc/kernel.cu",
        "bolt/data/include/kernel.cuh",
        "bolt/data/include/plain.h",
        "bolt/data/csrc/inst.jinja",
        "bolt/data/csrc/binding.cc",
        "bolt/data/csrc/other.cpp",
        "bolt/data/include/other.hpp",
        "bolt/data/csrc/part.inc",
        "bolt/data/include/part.inl",
    ],
)
def test_sources_of_a_jit_come_back_with_a_new_time(lab: Lab, path: str) -> None:
    lines = "".join(f"// line {number}\n" for number in range(20))
    dist = Dist("bolt-kernels", "2.1", {"bolt/__init__.py": "", path: lines})
    site = lab.site(dist)
    new = lines.replace("line 10\n", "line ten\n")
    lab.bundle("b", {"bolt-kernels": lab.diff({path: lines}, {path: new})})
    before = site.picture()
    apply_and_revert_a_source(lab, site, path)
    assert (site / path).stat().st_ino != before[path].inode
    assert site.differences(before, releases.CONTENTS) == []
    changed = [line.split(":")[0] for line in site.differences(before)]
    assert changed == [path], "only that file has a new time"


def test_a_jit_source_that_a_patch_deletes_comes_back_with_a_new_time(lab: Lab) -> None:
    site = lab.site()
    content = BOLT.files[HEADER[0]]
    lab.bundle("b", {"bolt-kernels": lab.diff({HEADER[0]: content}, {})})
    before = site.picture()
    apply_and_revert_a_source(lab, site, HEADER[0])
    assert site.differences(before, releases.CONTENTS) == []


@pytest.mark.parametrize("seconds", [-1_000_000, 0, 3600])
def test_whatever_time_a_jit_source_had(lab: Lab, seconds: int) -> None:
    """Long ago, now, or ahead of the clock."""
    site = lab.site()
    lab.bundle("b", {"bolt-kernels": lab.edit(KERNEL)})
    then = time.time_ns() + seconds * 1_000_000_000
    os.utime(site / KERNEL[0], ns=(then, then))
    apply_and_revert_a_source(lab, site, KERNEL[0])


# --- sets of bundles ---------------------------------------------------------------------


def stack(lab: Lab) -> tuple[str, ...]:
    """Three bundles that meet in one file, and one of them adds a file."""
    one = ("acme/alpha.py", "    first_3 = 3\n", "    first_3 = 30\n")
    three = ("acme/alpha.py", "    third_3 = 203\n", "    third_3 = 2030\n    third_35 = 1\n")
    lab.bundle("one", {"acme": lab.edit(one) + lab.diff({}, {"acme/one.py": "one = 1\n"})})
    lab.bundle("two", {"acme": lab.edit(ALPHA, BETA), "bolt-kernels": lab.edit(DELTA)})
    lab.bundle("three", {"acme": lab.edit(three) + lab.diff(OLD, {})})
    return "one", "two", "three"


@pytest.mark.parametrize("order", list(itertools.permutations(("one", "two", "three"))))
def test_reverted_one_by_one_in_any_order(lab: Lab, order: tuple[str, ...]) -> None:
    site = lab.site()
    names = stack(lab)
    before = site.picture()
    lab.run(site, "apply", *names)
    left = list(names)
    for name in order:
        lab.run(site, "revert", name)
        left.remove(name)
        lab.run(site, "verify", *left)
    assert site.differences(before) == []
    assert not (site / STATE).exists()


def test_out_of_the_middle_is_as_if_it_had_never_been(lab: Lab) -> None:
    site = lab.site()
    other = lab.copy(site)
    stack(lab)
    lab.run(site, "apply", "one")
    lab.run(site, "apply", "two")
    lab.run(site, "apply", "three")
    lab.run(site, "revert", "two")
    lab.run(other, "apply", "one", "three")
    left, right = (releases.snapshot(each.root, ignore=(STATE,)) for each in (site, other))
    assert releases.diff_snapshots(left, right) == []


def test_a_file_that_no_bundle_touches_any_more_is_the_same_inode_again(lab: Lab) -> None:
    site = lab.site()
    stack(lab)
    before = site.picture()
    lab.run(site, "apply", "one", "two")
    lab.run(site, "revert", "two")
    changed = releases.changed_paths(before, site.picture())
    for path in (BETA[0], DELTA[0]):
        assert path not in changed
        assert site.picture()[path] == before[path]


def test_patched_again_and_again(lab: Lab) -> None:
    site = lab.site()
    stack(lab)
    before = site.picture()
    for names in (("one",), ("two", "three"), ("three", "one"), ("two",)):
        lab.run(site, "apply", *names)
        lab.run(site, "revert", "--all")
        assert site.differences(before) == []


def test_a_file_added_by_one_bundle_and_edited_by_the_next(lab: Lab) -> None:
    site = lab.site()
    text = "".join(f"n{number} = {number}\n" for number in range(9))
    lab.bundle("adds", {"acme": lab.diff({}, {"acme/new.py": text})})
    after = text.replace("n4 = 4", "n4 = 40")
    lab.bundle("edits", {"acme": lab.diff({"acme/new.py": text}, {"acme/new.py": after})})
    before = site.picture()
    lab.run(site, "apply", "adds")
    lab.run(site, "apply", "edits")
    assert site.text("acme/new.py") == after
    row = next(row for row in rows(site, ACME) if row[0] == "acme/new.py")
    digest = base64.urlsafe_b64encode(hashlib.sha256(after.encode()).digest()).rstrip(b"=")
    assert row[1] == f"sha256={digest.decode()}"
    lab.run(site, "revert", "edits")
    assert site.text("acme/new.py") == text
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_a_file_added_by_one_bundle_and_deleted_by_the_next(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("adds", {"acme": lab.diff({}, {"acme/new.py": "n = 1\n"})})
    lab.bundle("deletes", {"acme": lab.diff({"acme/new.py": "n = 1\n"}, {})})
    before = site.picture()
    lab.run(site, "apply", "adds", "deletes")
    assert not (site / "acme/new.py").exists()
    lab.run(site, "verify", "adds", "deletes")
    lab.run(site, "revert", "deletes")
    assert site.text("acme/new.py") == "n = 1\n"
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_nothing_is_left_beside_the_site_packages(lab: Lab) -> None:
    """Nor in the home folder, in the bundles or in the working directory."""
    site = lab.site()
    stack(lab)
    home = Path(lab.child_env["HOME"])
    places = (site.root.parent, lab.bundles, home)
    before = [releases.snapshot(place) for place in places]
    lab.run(site, "apply", "one", "two", "three")
    lab.run(site, "status")
    lab.run(site, "verify")
    lab.run(site, "revert", "--all")
    after = [releases.snapshot(place) for place in places]
    for old, new in zip(before, after, strict=True):
        assert releases.diff_snapshots(old, new) == []


def test_the_interpreter_of_the_target_still_finds_its_packages(lab: Lab) -> None:
    """``pip check`` and ``importlib.metadata`` see no difference after all of it."""
    site = lab.venv(ACME, BOLT)
    stack(lab)
    lab.run(site, "apply", "one", "two", "three")
    assert site.python is not None
    code = "import acme, acme.one, bolt.delta, importlib.metadata as m; print(m.version('acme'))"
    done = subprocess.run([site.python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1.0\n"
