"""The transaction under errors, signals and kills at every call that changes the disk.

In one process: the calls of ``os`` that change the file system, which :mod:`patchkit.fsio`
alone makes, are
counted, and the n-th one fails, for every n until a command gets through.  What a kill does
is modelled by an exception that nothing of patchkit catches, so that neither rollback nor
clean-up runs.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from patchkit import fsio, journal, lock, staging, workflow
from patchkit import verify as verify_module
from patchkit.errors import Fault, Interrupted, Locked, PatchkitError
from patchkit.fsio import Root
from patchkit.queries import verify
from patchkit.session import Options, translate
from patchkit.state import STATE, Home
from tests.releases import IDENTITY, Snapshot, diff_snapshots, snapshot

CHANGING = (
    *("chmod", "chown", "fchmod", "fchown", "fsync", "ftruncate", "link", "mkdir", "open"),
    *("rename", "rmdir", "setxattr", "symlink", "unlink", "write"),
)  # without utime, which is called or not as the clock has it


class Calls:
    """``os`` as :mod:`patchkit.fsio` sees it, which alone changes the disk: each call that
    does is counted and may raise instead."""

    def __init__(self, before: Callable[[str, int], None]) -> None:
        self._before = before
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def call(*args: Any, **keywords: Any) -> Any:
            if name != "open" or args[1] & os.O_CREAT:
                self.names.append(name)
                self._before(name, len(self.names))
            return real(*args, **keywords)

        return call


FILES = {
    **{f"pkg/m{n}.py": "".join(f"line {i} = {n}\n" for i in range(30)) for n in range(4)},
    "pkg/sub/gone.py": "x = 1\n",
    "pkg/kernel.cuh": "int one;\n",
    "pkg/file.py": "a = 1\n",
    "pkg/folder/deep/f.py": "b = 1\n",
}

ONE = """\
diff --git a/pkg/m0.py b/pkg/m0.py
--- a/pkg/m0.py
+++ b/pkg/m0.py
@@ -10,3 +10,3 @@
 line 9 = 0
-line 10 = 0
+line 10 = 99
 line 11 = 0
diff --git a/pkg/m1.py b/pkg/m1.py
old mode 100644
new mode 100755
diff --git a/pkg/kernel.cuh b/pkg/kernel.cuh
--- a/pkg/kernel.cuh
+++ b/pkg/kernel.cuh
@@ -1 +1 @@
-int one;
+int two;
diff --git a/pkg/new/n.py b/pkg/new/n.py
new file mode 100644
--- /dev/null
+++ b/pkg/new/n.py
@@ -0,0 +1 @@
+y = 2
diff --git a/pkg/sub/gone.py b/pkg/sub/gone.py
deleted file mode 100644
--- a/pkg/sub/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-x = 1
"""

TWO = """\
--- a/pkg/m0.py
+++ b/pkg/m0.py
@@ -20,3 +20,4 @@
 line 19 = 0
-line 20 = 0
+line 20 = 77
+more = 1
 line 21 = 0
--- a/pkg/m3.py
+++ b/pkg/m3.py
@@ -20,3 +20,3 @@
 line 19 = 3
-line 20 = 3
+line 20 = 77
 line 21 = 3
"""


#: A folder where a file was, and a file where a folder was.
KINDS = """\
diff --git a/pkg/file.py b/pkg/file.py
deleted file mode 100644
--- a/pkg/file.py
+++ /dev/null
@@ -1 +0,0 @@
-a = 1
diff --git a/pkg/file.py/deep/n.py b/pkg/file.py/deep/n.py
new file mode 100644
--- /dev/null
+++ b/pkg/file.py/deep/n.py
@@ -0,0 +1 @@
+a = 2
diff --git a/pkg/folder b/pkg/folder
new file mode 100644
--- /dev/null
+++ b/pkg/folder
@@ -0,0 +1 @@
+b = 2
diff --git a/pkg/folder/deep/f.py b/pkg/folder/deep/f.py
deleted file mode 100644
--- a/pkg/folder/deep/f.py
+++ /dev/null
@@ -1 +0,0 @@
-b = 1
"""


class Killed(BaseException):
    """Stands for SIGKILL: what runs after it in the real case is nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    rows = []
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{name},sha256={digest.decode()},{len(text)}\n")
    (folder / "pkg/__pycache__").mkdir()
    (folder / "pkg/__pycache__/m0.cpython-311.pyc").write_bytes(b"byte-code of m0")
    (folder / "pkg/sub/__pycache__").mkdir()
    (folder / "pkg/sub/__pycache__/gone.cpython-311.pyc").write_bytes(b"byte-code of gone")
    info = folder / "pkg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: pkg\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(rows) + "pkg-1.0.dist-info/RECORD,,\n")
    bundles = tmp_path / "bundles"
    (bundles / "manifests").mkdir(parents=True)
    for name, patch in (("one", ONE), ("two", TWO), ("kinds", KINDS)):
        (bundles / "patches" / name).mkdir(parents=True)
        (bundles / "patches" / name / "p.patch").write_text(patch)
        (bundles / "manifests" / f"{name}.toml").write_text(
            f'schema = 1\nname = "{name}"\nversion = "1"\nsummary = "s"\n'
            f'[[target]]\ndistribution = "pkg"\n[[target.variant]]\nversions = ">=1"\n'
            f'patches = ["{name}/p.patch"]\n'
        )
    return folder


def options(site: Path, **changes: float) -> Options:
    return Options(
        root=str(site),
        bundles=str(site.parent / "bundles"),
        environ={"HOME": str(site.parent)},
        cwd=str(site.parent),
        **changes,  # type: ignore[arg-type]
    )


def apply(site: Path, *names: str) -> None:
    workflow.apply(options(site), names)


def revert(site: Path, *names: str) -> None:
    workflow.revert(options(site), names, everything=not names)


def recover(site: Path) -> str | None:
    found: str | None = workflow.recover(options(site)).data["recovered"]
    return found


def problems(site: Path) -> list[str]:
    found = verify(options(site, lock_timeout=0), []).data["problems"]
    return [problem["kind"] for problem in found]


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, at: int, error: OSError) -> Iterator[list[str]]:
    """The ``at``-th changing call (from 1) raises; yields the names of the calls so far."""

    def fail(name: str, number: int) -> None:
        if number == at:
            raise error

    calls = Calls(fail)
    with monkeypatch.context() as patch:
        patch.setattr(fsio, "os", calls)
        yield calls.names


def tree(site: Path) -> dict[str, tuple[int, bytes | None]]:
    """Path to mode and bytes, without patchkit's own folder and without byte-code."""
    out: dict[str, tuple[int, bytes | None]] = {}
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        if ".patchkit" in name or "__pycache__" in name:
            continue
        mode = stat.S_IMODE(path.lstat().st_mode)
        out[name] = (mode, None if path.is_dir() else path.read_bytes())
    return out


def not_the_same(old: Snapshot, new: Snapshot) -> list[str]:
    """As :func:`diff_snapshots`; a folder that was removed and made again has another inode."""
    lines = diff_snapshots(old, new, fields=IDENTITY)
    folders = {path for path, entry in old.items() if entry.kind == "folder"}
    return [line for line in lines if line.partition(": inode ")[0] not in folders]


Step = Callable[[Path], None]
COMMANDS: dict[str, tuple[Step, Step]] = {
    "apply": (lambda site: None, lambda site: apply(site, "one")),
    "apply another": (lambda site: apply(site, "one"), lambda site: apply(site, "two")),
    "revert one of two": (
        lambda site: apply(site, "one", "two"),
        lambda site: revert(site, "one"),
    ),
    "revert all": (lambda site: apply(site, "one", "two"), revert),
    "apply kinds": (lambda site: None, lambda site: apply(site, "kinds")),
    "revert kinds": (lambda site: apply(site, "kinds"), revert),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_at_any_call_leaves_everything_as_it_was(
    command: str, code: int, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, change = COMMANDS[command]
    before(site)
    old = snapshot(site, ignore=(".patchkit",))
    old_tree = tree(site)
    rolled_back = tidied = 0
    for at in range(1, 10_000):
        error = OSError(code, os.strerror(code))
        with failing(monkeypatch, at, error) as calls:
            try:
                change(site)
            except (OSError, Fault):
                done = False
            else:
                done = True
        if len(calls) < at:
            break
        if done:
            # It failed behind the commit point, where only leftovers are removed; or it is a
            # revert, which takes the space that is reserved for it and tries again.
            tidied += 1
            assert problems(site) in ([], ["interrupted"])
            recover(site)
        else:
            rolled_back += 1
            assert tree(site) == old_tree
            assert problems(site) == []
            now = snapshot(site, ignore=(".patchkit",))
            assert not_the_same(old, now) == []
        assert problems(site) == []
        revert(site)
        before(site)
        old = snapshot(site, ignore=(".patchkit",))
    else:
        pytest.fail("the command never got through")
    again = code == errno.ENOSPC and command.startswith("revert")
    assert (tidied if again else rolled_back) > 10


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kill_at_any_call_is_recovered_to_old_or_new(
    command: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, change = COMMANDS[command]
    pristine = snapshot(site)
    before(site)
    old = tree(site)
    change(site)
    new = tree(site)
    revert(site)
    assert diff_snapshots(pristine, snapshot(site)) == []
    mixed = 0
    for at in range(1, 10_000):
        before(site)
        with failing_for_good(monkeypatch, at) as killed:
            try:
                change(site)
            except Killed:
                pass
            else:
                assert not killed()
                break
        now = tree(site)
        if now not in (old, new):
            mixed += 1
            assert problems(site) == ["interrupted"]
        recover(site)
        assert tree(site) in (old, new)
        assert problems(site) == []
        revert(site)
        assert diff_snapshots(pristine, snapshot(site)) == []
        assert not (site / ".patchkit").exists()
    else:
        pytest.fail("the command never got through")
    assert mixed > 0, "the sweep never met a half-changed tree: it proves nothing"


@contextmanager
def failing_for_good(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[Callable[[], bool]]:
    """From the ``at``-th changing call on, every one is a kill: nothing runs after it."""

    def kill(name: str, number: int) -> None:
        if number >= at:
            raise Killed

    calls = Calls(kill)
    with monkeypatch.context() as patch:
        patch.setattr(fsio, "os", calls)
        yield lambda: len(calls.names) >= at


@pytest.mark.parametrize("way", ["back", "forward"])
def test_a_kill_at_any_call_of_the_recovery_is_recovered(
    way: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pristine = snapshot(site)
    old = tree(site)
    apply(site, "one")
    new = tree(site)
    revert(site)

    def interrupt(at: int) -> bool:
        with failing_for_good(monkeypatch, at) as killed, suppress(Killed):
            apply(site, "one")
        return killed()

    # The kill with the most to be done again: the last that leads back, the first forwards.
    at = {}
    for first in range(1, 10_000):
        if not interrupt(first):
            break
        outcome = recover(site)
        if outcome == "back" or outcome not in at:
            at[outcome] = first
        revert(site)
    revert(site)
    kills = 0
    for again in range(1, 10_000):
        interrupt(at[way])
        assert problems(site) == ["interrupted"]
        with failing_for_good(monkeypatch, again) as stopped, suppress(Killed):
            recover(site)
        if not stopped():
            break
        kills += 1
        recover(site)
        assert tree(site) == (old if way == "back" else new)
        assert problems(site) == []
        revert(site)
        assert diff_snapshots(pristine, snapshot(site)) == []
    assert kills > 10


def test_a_signal_between_two_renames_rolls_back(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    before = snapshot(site)
    real = Root.rename

    def rename(self: Root, path: str, to: Root, to_path: str) -> None:
        real(self, path, to, to_path)
        if to_path == "pkg/m0.py":
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Root, "rename", rename)
    with pytest.raises(Interrupted) as caught:
        apply(site, "one")
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert diff_snapshots(before, snapshot(site), fields=IDENTITY) == []


def test_a_file_edited_between_look_and_swap_is_not_overwritten(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from patchkit import journal

    real = journal._swap

    def edit_first(*args: object) -> None:
        (site / "pkg/m0.py").write_text("edited by hand\n")
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "_swap", edit_first)
    with pytest.raises(PatchkitError) as caught:
        apply(site, "one")
    assert caught.value.code == "changed-meanwhile"
    assert (site / "pkg/m0.py").read_text() == "edited by hand\n"
    assert (site / "pkg/sub/gone.py").exists()


def test_a_file_edited_after_a_kill_is_not_rolled_back_over(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(1, 10_000):
        with failing_for_good(monkeypatch, at), suppress(Killed):
            apply(site, "one")
        if (site / "pkg/m0.py").read_text() != FILES["pkg/m0.py"]:
            break
        recover(site)
    (site / "pkg/m0.py").write_text("edited by hand\n")
    with pytest.raises(PatchkitError) as caught:
        recover(site)
    assert caught.value.code == "foreign-change"
    assert (site / "pkg/m0.py").read_text() == "edited by hand\n"
    assert problems(site) == ["interrupted"]
    # Once the file is what it was, the same command gets through.
    (site / "pkg/m0.py").write_text(FILES["pkg/m0.py"])
    assert recover(site) == "back"
    assert problems(site) == []


def test_both_names_of_a_rename_after_a_power_cut(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new name is on the disk, and the old one is not yet gone from it."""
    before = snapshot(site)
    for at in range(1, 10_000):
        with failing_for_good(monkeypatch, at), suppress(Killed):
            apply(site, "one")
        if (site / "pkg/m0.py").read_text() != FILES["pkg/m0.py"]:
            break
        recover(site)
    (operation,) = (
        entry
        for entry in json.loads((site / ".patchkit/journal.json").read_bytes())["operations"]
        if entry["path"] == "pkg/m0.py"
    )
    os.link(site / "pkg/m0.py", site / operation["staged"])
    assert recover(site) == "back"
    assert diff_snapshots(before, snapshot(site)) == []


def test_a_record_that_cannot_be_looked_at_is_not_absent(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    home = Home(str(site), str(site))
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", fail)
        for look in (home.exists, home.unfinished):
            with pytest.raises(OSError, match="Input/output error"):
                look()
    assert not home.exists() and not home.unfinished()


def test_where_no_link_can_be_made_copies_do(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(site)
    monkeypatch.setattr(Root, "link", lambda self, path, to, to_path: False)
    apply(site, "one", "two")
    assert problems(site) == []
    revert(site, "one")
    revert(site)
    fields = ("kind", "mode", "owner", "digest", "target", "xattrs", "mtime_ns")
    changed = diff_snapshots(before, snapshot(site), fields=fields)
    assert [line for line in changed if not line.startswith("pkg/kernel.cuh: mtime_ns")] == []


def test_a_jit_source_comes_back_as_a_new_file_with_a_later_time(site: Path) -> None:
    path = site / "pkg/kernel.cuh"
    os.utime(path, ns=(10**18, 10**18))
    before = path.stat()
    apply(site, "one")
    patched = path.stat()
    revert(site)
    after = path.stat()
    assert path.read_text() == FILES["pkg/kernel.cuh"]
    assert after.st_ino != before.st_ino
    assert after.st_mtime_ns >= patched.st_mtime_ns > before.st_mtime_ns


def test_the_lock_names_its_holder(site: Path) -> None:
    home = Home(str(site), str(site))
    with lock.hold(home, "apply", 1.0, lambda: None):
        with pytest.raises(Locked, match=f"process {os.getpid()} on .* \\(apply\\)"):
            workflow.apply(options(site, lock_timeout=0.1), ["one"])
        assert problems(site) == []
    assert not (site / ".patchkit").exists()


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_a_folder_that_becomes_a_link_at_any_step(
    command: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing outside changes, whichever call meets the link; when the folder is back, the tree
    is exactly the old or the new one."""
    outside = site.parent / "outside"
    states = [tree(site)]
    apply(site, "one")
    states.append(tree(site))
    if command == "apply":
        revert(site)
    kept, at = site.parent / "kept", 0
    while True:
        at += 1
        shutil.copytree(site / "pkg", outside)
        before = snapshot(outside)

        def swap(name: str, number: int, at: int = at) -> None:
            if number == at:
                (site / "pkg").rename(kept)
                (site / "pkg").symlink_to(outside)

        calls = Calls(swap)
        with monkeypatch.context() as patch, suppress(PatchkitError, OSError):
            patch.setattr(fsio, "os", calls)
            apply(site, "one") if command == "apply" else revert(site)
        assert not diff_snapshots(before, snapshot(outside), IDENTITY), (at, calls.names[-3:])
        if (site / "pkg").is_symlink():
            (site / "pkg").unlink()
            kept.rename(site / "pkg")
        recover(site)
        assert tree(site) in states, at
        if len(calls.names) < at:
            break
        with suppress(PatchkitError):
            revert(site) if command == "apply" else apply(site, "one")
        shutil.rmtree(outside)
    assert at > 20


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "schema"])
def test_a_damaged_state_is_named_and_not_guessed_at(damage: str, site: Path) -> None:
    apply(site, "one")
    path = site / STATE
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        path.write_bytes(data.replace(b'"fingerprint": "', b'"fingerprint": "0', 1))
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        from patchkit.state import render

        value = json.loads(data)
        del value["checksum"]
        path.write_bytes(render({**value, "schema": 99}))
    patched = tree(site)
    for command in (verify_all, revert, lambda site: apply(site, "two")):
        with pytest.raises(PatchkitError) as caught:
            command(site)
        assert caught.value.code in ("state-damaged", "state-schema")
        assert str(path) in caught.value.message
    assert tree(site) == patched


def verify_all(site: Path) -> None:
    verify(options(site), [])


def test_errors_of_the_system_name_the_path_and_what_to_do() -> None:
    fault = translate(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y"))
    assert fault.exit_code == 4
    assert fault.message == "No space left on device: /x/y"
    assert fault.hint is not None and "room" in fault.hint


def test_a_folder_with_other_files_makes_no_room_for_a_file(site: Path) -> None:
    other = site / "pkg/folder/deep/other.txt"
    other.write_text("someone's\n")
    before = snapshot(site)
    with pytest.raises(PatchkitError) as caught:
        apply(site, "kinds")
    assert (caught.value.exit_code, caught.value.code) == (3, "folder-in-the-way")
    assert "pkg/folder/deep/other.txt" in caught.value.message
    assert diff_snapshots(before, snapshot(site)) == []


class Durability(Calls):
    """What a power cut could still take away: files written, and folders whose names
    changed, that were not synced since.  ``at`` is told each name that a rename or an unlink
    concerns, before it happens."""

    def __init__(self, at: Callable[[str, str], None]) -> None:
        super().__init__(lambda name, number: None)
        self._at = at
        self.unsynced: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def path(given: str | bytes, folder: int) -> str:
            return f"{os.readlink(f'/proc/self/fd/{folder}')}/{os.fsdecode(given)}"

        def call(*args: Any, **keywords: Any) -> Any:
            changed: list[str] = []
            if name == "fsync":
                self.unsynced.discard(os.readlink(f"/proc/self/fd/{args[0]}"))
            elif name == "open" and args[1] & os.O_CREAT:
                changed = [path(args[0], keywords["dir_fd"])]
            elif name in ("rename", "link"):
                target = path(args[1], keywords["dst_dir_fd"])
                changed = [target]
                if name == "rename":
                    self._at("rename", target)
                    changed.append(path(args[0], keywords["src_dir_fd"]))
                    self.unsynced.discard(changed[1])
            elif name in ("unlink", "rmdir", "mkdir", "symlink"):
                given = args[1] if name == "symlink" else args[0]
                changed = [path(given, keywords["dir_fd"])]
                if name == "unlink":
                    self._at("unlink", changed[0])
            result = real(*args, **keywords)
            self.unsynced |= {os.path.dirname(item) for item in changed}
            if name == "open" and changed:
                self.unsynced.add(changed[0])
            elif name in ("unlink", "rmdir"):
                self.unsynced -= set(changed)
            return result

        return call


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_step_builds_on_is_safe_from_a_power_cut(
    command: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the journal is published, all that waits is synced; before the record, every
    file and every folder of the environment; before the journal goes, the record."""
    before, change = COMMANDS[command]
    before(site)
    own = f"{site}/.patchkit"
    journal, state = f"{own}/journal.json", f"{own}/state.json"
    order: list[str] = []
    unsafe: list[tuple[str, str]] = []

    def at(what: str, path: str) -> None:
        # Byte-code and the locks need no sync: nothing is built on them.
        left = {
            item
            for item in disk.unsynced
            if "/__pycache__" not in item
            and item not in (f"{own}/lock", f"{own}/launch.lock")
            and os.path.exists(item)
        }
        step, counts = "", set[str]()
        if (what, path) == ("rename", journal):
            step, counts = "publish the journal", left - {own}
        elif (what, path) == ("unlink", journal):
            step, counts = "forget the journal", left & {own}
        elif path == state:
            step, counts = "record", {item for item in left if not item.startswith(own)}
            counts |= left & {journal, f"{own}/state.json.new"}
        elif not path.startswith(own) and "__pycache__" not in path and order:
            step, counts = "swap", left & {own, journal}
        if step and step not in order[-1:]:
            order.append(step)
        unsafe.extend((step, item) for item in sorted(counts))

    disk = Durability(at)
    with monkeypatch.context() as patch:
        patch.setattr(fsio, "os", disk)
        change(site)
    assert unsafe == []
    assert order[:4] == ["publish the journal", "swap", "record", "forget the journal"]


def test_a_problem_seen_while_the_state_changes_is_none(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``verify`` takes no lock: what it saw counts only if no state was published meanwhile."""
    apply(site, "one")
    real, calls = verify_module.check, []

    def check(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            revert(site)  # someone else, between the reading of the state and of the files
        return real(*arguments)

    monkeypatch.setattr(verify_module, "check", check)
    assert verify(options(site, lock_timeout=5), []).data["problems"] == []
    assert len(calls) == 2


def test_byte_code_that_an_import_writes_during_the_swap_goes(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An importer that still saw the old source may write its byte-code late."""
    late = site / "pkg/__pycache__/m0.cpython-311.pyc"
    real = staging.must_be_as_seen

    def seen(root: Root, change: Any) -> None:
        if change.path == "pkg/m1.py":  # m0 is swapped already
            late.write_bytes(b"byte-code of the old m0")
        real(root, change)

    monkeypatch.setattr(journal, "must_be_as_seen", seen)
    apply(site, "one")
    assert not late.exists()


def test_a_folder_that_is_made_again_has_its_mode_and_owner(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between mkdir and chmod leaves 0700; the next recovery puts it right."""
    folder = site / "pkg/sub"
    folder.chmod(0o2775)
    before = folder.stat()
    for call in ("mkdir", "chmod"):
        apply(site, "one")  # the file of this folder goes, and the folder with it
        assert not folder.exists()

        def kill(name: str, number: int, call: str = call) -> None:
            if name == call:
                raise Killed

        monkeypatch.setattr(fsio, "os", Calls(kill))
        with suppress(Killed):
            revert(site)
        monkeypatch.setattr(fsio, "os", os)
        recover(site)
        revert(site)
        after = folder.stat()
        assert (after.st_mode, after.st_uid, after.st_gid) == (
            before.st_mode,
            before.st_uid,
            before.st_gid,
        )


def test_what_a_power_cut_brings_back_is_in_no_ones_way(site: Path) -> None:
    """Removals beside the record are not synced: a second name, or a part of a blob, may be
    there again, and is not taken for what the next change keeps."""
    before = tree(site)
    apply(site, "one")
    kept = [path.relative_to(site) for path in (site / ".patchkit").glob("*/*") if path.is_file()]
    assert {path.parts[1] for path in kept} >= {"pristine", "blobs"}
    revert(site)
    for command in (apply, revert):
        for path in kept:
            if not (site / path).exists():
                (site / path).parent.mkdir(parents=True, exist_ok=True)
                (site / path).write_bytes(b"half of i")
        command(site, *(["one"] if command is apply else []))
        verify_all(site)
    assert tree(site) == before and not (site / ".patchkit").exists()
