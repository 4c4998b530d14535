"""Odd homes: file systems, users, masks and paths that are not as on a developer's machine.

What mounts something does so in a mount namespace of its own, which ends with the command.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from patchkit.fsio import Root
from patchkit.lock import hold
from patchkit.state import Home
from tests import releases
from tests.conftest import Result
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    BOLT,
    DELTA,
    KERNEL,
    STATE,
    Lab,
    Site,
    needs_root,
    needs_tool,
    unprivileged,
)

pytest_plugins = ("tests.support.fixtures",)

#: All but what no file system without links can keep.
WITHOUT_LINKS = tuple(field for field in releases.IDENTITY if field not in ("inode", "nlink"))
ADDED = {"acme/new/x.py": "x = 1\n"}


def bundles(lab: Lab) -> None:
    """An edit of two distributions, and files and folders that come and go."""
    lab.bundle("edit", {"acme": lab.edit(ALPHA, BETA), "bolt-kernels": lab.edit(DELTA)})
    old = {"acme/lonely/only.py": ACME.files["acme/lonely/only.py"]}
    lab.bundle("files", {"acme": lab.diff(old, ADDED, "--no-renames")})


def script(text: str) -> tuple[str, ...]:
    """What to put before a command: shell lines in a mount namespace, the command as ``"$@"``."""
    return ("unshare", "-m", "--propagation", "private", "sh", "-ec", text, "sh")


def there_and_back(
    lab: Lab,
    site: Site,
    fields: Sequence[str] = releases.IDENTITY,
    prefix: Sequence[str] = (),
    **env: str,
) -> None:
    """Apply both bundles, verify, revert: exactly what was there."""
    before = site.picture()
    lab.run(site, "apply", "edit", "files", prefix=tuple(prefix), env=env)
    assert ALPHA[2] in site.text(ALPHA[0])
    lab.run(site, "verify", "edit", "files", prefix=tuple(prefix), env=env)
    lab.run(site, "revert", "--all", prefix=tuple(prefix), env=env)
    assert site.differences(before, fields) == []


# --- mounts ------------------------------------------------------------------------------


@pytest.fixture
def disk(lab: Lab) -> Iterator[Path]:
    """A folder to mount on, and unmounted at the end."""
    needs_root()
    needs_tool("mount", "umount")
    folder = lab.folder("disk")
    yield folder
    while os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)


def mount(folder: Path, *options: str | Path) -> None:
    done = subprocess.run(["mount", *options, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs mount {' '.join(map(str, options))}: {done.stderr.strip()}")


def image(lab: Lab, folder: Path, kind: str, *options: str) -> None:
    """A file system of this kind in a file, mounted."""
    needs_tool(f"mkfs.{kind}")
    file = lab.base / f"{kind}.img"
    with file.open("wb") as handle:
        handle.truncate(320 * 1024 * 1024)  # sparse, and the least that XFS takes
    subprocess.run([f"mkfs.{kind}", *options, str(file)], check=True, capture_output=True)
    driver = shutil.which(f"mount.{kind}-fuse")
    if driver:
        command = ["losetup", "--find", "--show", str(file)]
        device = subprocess.check_output(command, text=True).strip()
        done = subprocess.run([driver, device, folder], capture_output=True, text=True, check=False)
        subprocess.run(["losetup", "--detach", device], check=True)  # once it is unmounted
        if done.returncode:
            pytest.skip(f"needs {driver}: {done.stderr.strip()}")
    else:
        mount(folder, "-o", "loop", file)


@pytest.mark.parametrize("kind", ["bind", "overlay"])
@pytest.mark.parametrize("user", ["root", "other"])
def test_a_read_only_mount(lab: Lab, disk: Path, kind: str, user: str) -> None:
    """As an image's layers are: verify works, apply and revert say why they do not."""
    prefix: tuple[str, ...] = unprivileged() if user == "other" else ()
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "edit")
    shutil.copytree(site.root, disk / "lower", symlinks=True)
    (disk / "lower2").mkdir()
    if kind == "bind":
        made = Site(disk / "lower")
        mount(made.root, "--bind", made.root)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(made.root)], check=True)
    else:
        made = Site(disk / "merged")
        made.root.mkdir()
        mount(made.root, "-t", "overlay", "-o", f"lowerdir={disk}/lower:{disk}/lower2", "none")
    try:
        before = made.picture()
        result = lab.run(made, "verify", "edit", prefix=prefix)
        assert (result.stdout, result.stderr) == ("", "")
        for command in (("apply", "files"), ("revert", "--all")):
            result = lab.run(made, *command, prefix=prefix, check=4)
            assert "Read-only file system" in result.stderr, str(result)
            assert str(made.root) in result.stderr and "hint:" in result.stderr
        for reading in (("status",), ("diff",), ("apply", "--dry-run", "files"), ("list",)):
            lab.run(made, *reading, prefix=prefix)
        assert made.differences(before) == []
    finally:
        subprocess.run(["umount", str(made.root)], check=True)


def test_a_container_layer(lab: Lab, disk: Path) -> None:
    """A writable overlay over an image's layer: the first write copies a file up, and a folder
    of the lower layer cannot be renamed."""
    mount(disk, "-t", "tmpfs", "none")
    site = lab.site()
    bundles(lab)
    shutil.copytree(site.root, disk / "lower", symlinks=True)
    for name in ("upper", "work", "merged"):
        (disk / name).mkdir()
    options = f"lowerdir={disk}/lower,upperdir={disk}/upper,workdir={disk}/work"
    mount(disk / "merged", "-t", "overlay", "-o", options, "none")
    try:
        lower = releases.snapshot(disk / "lower")
        fields = tuple(field for field in WITHOUT_LINKS if field != "xattrs")
        there_and_back(lab, Site(disk / "merged"), fields)
        assert releases.diff_snapshots(lower, releases.snapshot(disk / "lower")) == []
    finally:
        subprocess.run(["umount", str(disk / "merged")], check=True)


def test_noexec_and_nosuid(lab: Lab, disk: Path) -> None:
    """The environment and the folder of temporary files on a mount that runs nothing."""
    mount(disk, "-t", "tmpfs", "-o", "noexec,nosuid,nodev", "none")
    site = Site(disk / "site-packages")
    lab.install(site, ACME, BOLT)
    bundles(lab)
    there_and_back(lab, site, TMPDIR=str(disk))


@pytest.mark.parametrize(
    ("kind", "options"),
    [("ext2", ("-I", "128")), ("ext4", ("-I", "128")), ("vfat", ()), ("exfat", ())],
)
def test_whole_seconds_and_every_other(
    lab: Lab, disk: Path, kind: str, options: tuple[str, ...]
) -> None:
    """Small inodes keep whole seconds; FAT every other one, and neither links nor modes nor
    attributes."""
    image(lab, disk, kind, *options)
    site = Site(disk / "site-packages")
    lab.install(site, ACME, BOLT)
    bundles(lab)
    os.utime(site / ALPHA[0])
    second = int((site / ALPHA[0]).stat().st_mtime)
    fields = releases.IDENTITY if kind.startswith("ext") else ("kind", "digest", "mtime_ns")
    there_and_back(lab, site, fields)
    lab.run(site, "apply", "edit")
    assert int((site / ALPHA[0]).stat().st_mtime) != second
    lab.run(site, "verify", "edit")


@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
def test_clones_of_a_file_system_that_has_them(lab: Lab, disk: Path, kind: str) -> None:
    """uv's default there: a file of its own that shares the blocks of the cache's."""
    image(lab, disk, kind)
    site, other = (Site(disk / name / "site-packages") for name in ("one", "two"))
    lab.cache = disk / "cache"
    for made in (site, other):
        lab.install(made, ACME, BOLT, link_mode="clone")
    bundles(lab)
    neighbour, cache = other.picture(), releases.snapshot(lab.cache / "archive-v0")
    there_and_back(lab, site)
    assert other.differences(neighbour) == []
    after = releases.snapshot(lab.cache / "archive-v0")
    assert releases.diff_snapshots(cache, after, releases.IDENTITY) == []


@pytest.mark.parametrize("inside", ["acme", "acme/sub"])
def test_a_part_of_the_tree_on_another_device(lab: Lab, disk: Path, inside: str) -> None:
    """Between two devices there is neither a rename nor a link."""
    site = lab.site()
    bundles(lab)
    lab.bundle("sub", {"acme": lab.edit(("acme/sub/gamma.py", "green_3 = 103\n", "green_3 = 4\n"))})
    original = site.picture()
    mount(disk, "-t", "tmpfs", "none")
    shutil.copytree(site / inside, disk / "part", symlinks=True)
    mount(site / inside, "--bind", disk / "part")
    try:
        before = site.picture()
        lab.run(site, "apply", "edit", "files", "sub")
        assert "green_3 = 4\n" in site.text("acme/sub/gamma.py")
        lab.run(site, "verify", "edit", "files", "sub")
        lab.run(site, "revert", "--all")
        assert site.differences(before, WITHOUT_LINKS) == []
        assert not list(site.root.rglob("*.patchkit*"))
    finally:
        subprocess.run(["umount", str(site / inside)], check=True)
    assert site.differences(original, releases.CONTENTS) == []


def test_the_record_on_another_device_than_the_checkout(lab: Lab) -> None:
    """``git init --separate-git-dir``: patchkit's own files are in the git directory."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == lab.base.stat().st_dev:
        pytest.skip("needs a second file system in /dev/shm")
    away = shm / f"patchkit-test-{os.getpid()}"
    away.mkdir()
    try:
        site = lab.site()
        bundles(lab)
        for info in site.root.glob("*.dist-info"):
            shutil.rmtree(info)
        lab.git(site.root, "init", "-q", f"--separate-git-dir={away}/git")
        lab.git(site.root, "add", ".")
        lab.git(site.root, "commit", "-qm", "all")
        patch = lab.base / "fix.patch"
        patch.write_bytes(lab.edit(ALPHA, BETA) + lab.diff({}, ADDED))
        before = site.picture()
        lab.run(site, "apply", patch)
        assert (away / "git" / STATE).is_dir() and not (site / STATE).exists()
        lab.run(site, "verify", "fix.patch")
        lab.run(site, "revert", "--all")
        assert site.differences(before, WITHOUT_LINKS) == []
        assert not (away / "git" / STATE).exists()
    finally:
        shutil.rmtree(away)


# --- no links ----------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["EPERM", "EOPNOTSUPP", "EMLINK"])
def test_a_file_system_without_hard_links(lab: Lab, error: str) -> None:
    """A copy is kept then, with owner, mode, attributes and times."""
    needs_tool("strace")
    site = lab.site()
    bundles(lab)
    os.utime(site / ALPHA[0], ns=(1_000_000_000_123_456_789, 1_000_000_000_123_456_789))
    (site / BETA[0]).chmod(0o640)
    if os.geteuid() == 0:
        os.chown(site / BETA[0], 4321, 8765)
    fault = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=link,linkat:error={error}")
    there_and_back(lab, site, WITHOUT_LINKS, fault)


# --- users and masks ---------------------------------------------------------------------


@pytest.mark.parametrize("umask", ["000", "077", "0777"])
def test_the_umask_has_no_say(lab: Lab, umask: str) -> None:
    """Neither more nor less than the tree and the patch give: nobody else can write, everybody
    can verify."""
    site = lab.site()
    bundles(lab)
    prefix = ("sh", "-c", f'umask {umask}; exec "$@"', "sh")
    before = site.picture()
    lab.run(site, "apply", "edit", "files", prefix=prefix)
    for path in site.root.rglob("*"):
        mode = path.lstat().st_mode & 0o777
        assert mode & 0o022 == 0, f"{path} can be written by others: {mode:o}"
        if STATE not in path.parts or path.name in ("lock", "state.json"):
            assert mode & 0o444 == 0o444, f"{path} cannot be read by others: {mode:o}"
    lab.run(site, "verify", prefix=prefix)
    lab.run(site, "revert", "--all", prefix=prefix)
    assert site.differences(before) == []


def user(uid: int) -> tuple[str, ...]:
    """A user without an account, who may read everything (the checkout and the interpreter may
    lie in root's home), and write only what is theirs."""
    needs_root()
    needs_tool("setpriv")
    ids = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    return ("setpriv", *ids, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def test_without_a_home_and_without_an_account(lab: Lab) -> None:
    """A container's arbitrary user id; the tree is its own."""
    prefix = (*user(54321), "env", "-u", "HOME")
    site = lab.site()
    bundles(lab)
    subprocess.run(["chown", "-R", "54321:54321", str(site.root)], check=True)
    there_and_back(lab, site, prefix=prefix)


def test_files_of_root_and_an_unprivileged_user(lab: Lab) -> None:
    """It says so, and names what cannot be written, before anything changes."""
    prefix = user(4321)
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "edit")
    before = site.picture()
    lab.run(site, "verify", "edit", prefix=prefix)
    for command in (("apply", "files"), ("revert", "--all")):
        result = lab.run(site, *command, prefix=prefix, check=4)
        assert "Permission denied" in result.stderr and str(site.root) in result.stderr
        assert "hint:" in result.stderr
    assert site.differences(before) == []


def test_an_environment_that_may_not_be_looked_at(lab: Lab) -> None:
    """It is there: that it did not exist would send somebody the wrong way."""
    prefix = unprivileged()
    site = lab.site()
    site.root.parent.chmod(0o600)
    result = lab.run(site, "status", prefix=prefix, check=4)
    assert "Permission denied" in result.stderr and "does not exist" not in result.stderr


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o000])
def test_files_without_write_bit(lab: Lab, mode: int) -> None:
    """Where the folder may be changed, so may a file in it; without the right to read it, no."""
    prefix = unprivileged()
    site = lab.site()
    bundles(lab)
    for path in (ALPHA[0], BETA[0], "acme/lonely/only.py"):
        (site / path).chmod(mode)
    if mode == 0 and os.geteuid() == 0 and not prefix:
        pytest.skip("needs setpriv, or a user that is not root")
    if mode == 0:
        before = site.picture()
        result = lab.run(site, "apply", "edit", check=None, prefix=prefix)
        assert result.exit_code in (3, 4) and ALPHA[0] in result.stderr
        assert site.differences(before) == []
    else:
        there_and_back(lab, site, prefix=prefix)


def test_root_changes_a_users_tree(lab: Lab) -> None:
    """Every file and folder that is new, also RECORD, is the user's, as its neighbours are."""
    needs_root()
    needs_tool("chown")
    site = lab.site()
    bundles(lab)
    lab.bundle("kernel", {"bolt-kernels": lab.edit(KERNEL)})
    subprocess.run(["chown", "-R", "4321:8765", str(site.root)], check=True)
    before = site.picture()
    lab.run(site, "apply", "edit", "files", "kernel")
    for path in site.root.rglob("*"):
        if STATE not in path.parts:
            assert (path.lstat().st_uid, path.lstat().st_gid) == (4321, 8765), path
    lab.run(site, "revert", "--all")
    jit = [line for line in site.differences(before) if KERNEL[0] not in line]
    assert jit == []
    assert site.differences(before, releases.CONTENTS) == []


# --- attributes --------------------------------------------------------------------------


def acl(*entries: tuple[int, int, int]) -> bytes:
    """A POSIX ACL as the kernel has it: (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF
#: owner rw-, user 4321 rw-, group r--, mask rw-, others r--
ACL = acl((1, 6, NOBODY), (2, 6, 4321), (4, 4, NOBODY), (16, 6, NOBODY), (32, 4, NOBODY))
LABEL = b"system_u:object_r:lib_t:s0\x00"
ATTRIBUTES = {
    "system.posix_acl_access": ACL,
    "security.selinux": LABEL,
    "trusted.origin": b"here",
    "user.origin": b"here",
}


@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("links", [True, False])
def test_attributes_are_kept_over_every_replacement(lab: Lab, name: str, links: bool) -> None:
    site = lab.site()
    lab.bundle("edit", {"acme": lab.edit(ALPHA), "bolt-kernels": lab.edit(KERNEL)})
    try:
        for path in (ALPHA[0], KERNEL[0]):
            os.setxattr(site / path, name, ATTRIBUTES[name])
    except OSError as error:
        pytest.skip(f"needs a file system and a user that can set {name}: {error}")
    prefix: tuple[str, ...] = ()
    if not links:
        needs_tool("strace")
        fault = "inject=link,linkat:error=EPERM"
        prefix = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", fault)
    before = site.picture()
    assert name in dict(before[ALPHA[0]].xattrs)
    lab.run(site, "apply", "edit", prefix=prefix)
    patched = site.picture()
    for path in (ALPHA[0], KERNEL[0]):
        assert patched[path].xattrs == before[path].xattrs
        assert patched[path].mode == before[path].mode
    lab.run(site, "revert", "--all", prefix=prefix)
    assert site.differences(before, releases.CONTENTS) == []


def test_an_acl_that_folders_pass_on_does_not_stay(lab: Lab) -> None:
    """New files are made under .patchkit, which inherits from site-packages what the replaced
    file never had."""
    site = lab.site()
    bundles(lab)
    try:
        os.setxattr(site.root, "system.posix_acl_default", ACL)
    except OSError as error:
        pytest.skip(f"needs a file system with ACLs: {error}")
    before = site.picture()
    lab.run(site, "apply", "edit")
    patched = site.picture()
    for path in (ALPHA[0], BETA[0], DELTA[0]):
        assert (patched[path].xattrs, patched[path].mode) == ((), before[path].mode)
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


# --- paths -------------------------------------------------------------------------------

NAMES = {
    "spaces": "my own environment",
    "newline": "a\nb",
    "quotes": 'it\'s "so" $HOME `id` %s {0}',
    "unicode": "umgebung-ä-日本",
    "not text": os.fsdecode(b"\xff\xfe"),
    "escape": "\x1b[31mred",
    "colon": "a:b",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_the_path_of_the_environment(lab: Lab, name: str) -> None:
    """Any name that a folder may have; what a terminal would obey is shown escaped."""
    root = lab.folder("odd") / name / "site-packages"
    made = lab.site()
    try:
        root.parent.mkdir()
    except OSError as error:
        pytest.skip(f"needs a file system that takes this name: {error}")
    made.root.rename(root)
    site = Site(root)
    bundles(lab)
    there_and_back(lab, site)
    lab.run(site, "apply", "edit")
    answer = lab.json(site, "status")
    assert answer["environment"]["site_packages"].encode("utf-8", "surrogateescape")
    (site / ALPHA[0]).write_text("x = 1\n")
    result: Result = lab.run(site, "verify", check=1)
    assert ALPHA[0] in result.stderr
    result = lab.run(site, "revert", "--all", check=3)
    assert "\x1b" not in result.stderr and "\x1b" not in result.stdout


def test_a_virtual_environment_with_spaces_and_newlines_in_its_path(lab: Lab) -> None:
    """Its interpreter is asked where its packages are."""
    made = lab.venv()
    assert made.python is not None
    env = made.python.parent.parent
    moved = env.parent / "my own\nenv"
    env.rename(moved)
    site = Site(moved / made.root.relative_to(env), moved / "bin/python")
    bundles(lab)
    there_and_back(lab, site)


# --- what a file system keeps ------------------------------------------------------------


def test_a_file_system_that_keeps_no_modes(lab: Lab) -> None:
    """FAT and its like: what is recorded is the mode that a file has, so that verify and a
    rollback know it for their own."""
    needs_tool("strace")
    site = lab.site()
    bundles(lab)
    fault = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=fchmod:error=EPERM")
    before = site.picture()
    lab.run(site, "apply", "edit", "files", prefix=fault)
    assert (site / ALPHA[0]).stat().st_mode & 0o777 == 0o600
    lab.run(site, "verify", "edit", "files")
    failing = (*fault, "-e", "inject=rename,renameat,renameat2:error=EIO:when=4")
    lab.run(site, "revert", "edit", prefix=failing, check=4)
    lab.run(site, "verify", "edit", "files")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_a_lock_that_stays_under_another_name_while_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS and FUSE do it: the folder goes all the same, once the lock is closed."""
    real = Root.unlink

    def silly(self: Root, path: str) -> None:
        if path.endswith("/lock"):
            self.rename(path, self, f"{STATE}/.nfs0001")
            return
        real(self, path)

    monkeypatch.setattr(Root, "unlink", silly)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        (tmp_path / STATE / ".nfs0001").unlink()

    monkeypatch.setattr("patchkit.lock.time.sleep", nap)
    with hold(Home(str(tmp_path), str(tmp_path)), "apply", 1.0, lambda: None):
        assert (tmp_path / STATE / "lock").exists()
    assert len(naps) == 1
    assert not (tmp_path / STATE).exists()
