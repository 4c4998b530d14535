"""The files of a bundle directory: written all, or none, whatever comes between."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit import bundles, publishing
from patchkit.errors import Fault, Locked, Refused

BEFORE = {
    "manifests/one.toml": b"old manifest",
    "manifests/one.lock": b"old lock",
    "manifests/two.toml": b"another's",
    "patches/one/a/0001-x.patch": b"old x",
    "patches/one/b/0002-gone.patch": b"goes",
}
CHANGES: dict[str, bytes | None] = {
    "manifests/one.toml": b"new manifest",
    "manifests/one.lock": b"new lock",
    "patches/one/a/0001-x.patch": b"new x",
    "patches/one/b/0002-gone.patch": None,
    "patches/one/c/0003-new.patch": b"comes",
}
AFTER = {
    **{path: data for path, data in BEFORE.items() if CHANGES.get(path, data) is not None},
    **{path: data for path, data in CHANGES.items() if data is not None},
}

#: What changes the disk, in fsio.
CALLS = ("open", "write", "link", "rename", "unlink", "mkdir", "rmdir", "fsync")


def make(folder: Path) -> None:
    for path, data in BEFORE.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def found(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def at_call(number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``act`` come before call ``number`` of those that change the disk."""
    left = [number]

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def one(*args: object, **given: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                act()
            return call(*args, **given)

        return one

    for name in CALLS:
        # Synced or not is no matter to a kill; it takes most of the time.
        call = (lambda descriptor: None) if name == "fsync" else getattr(os, name)
        monkeypatch.setattr(f"patchkit.fsio.os.{name}", counted(call))


def run_killed(folder: Path, number: int) -> bool:
    """Publish in a child that is killed at one call; whether it was."""
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            at_call(number, lambda: os.kill(os.getpid(), signal.SIGKILL), patch)
            publishing.publish(str(folder), CHANGES)
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_a_kill_anywhere_leaves_the_old_or_the_new_files(tmp_path: Path) -> None:
    seen = set()
    for number in range(1, 200):
        folder = tmp_path / str(number)
        make(folder)
        killed = run_killed(folder, number)
        bundles.bundle_dir(str(folder), {}, "/")  # as every command begins
        now = found(folder)
        now = {path: now[path] for path in now if not path.startswith(".writing.new/")}
        assert now in (BEFORE, AFTER), number
        seen.add(now == AFTER)
        if not killed:
            break
        # The next write meets nothing that is in its way, and leaves nothing behind.
        publishing.publish(str(folder), CHANGES)
        assert found(folder) == AFTER, number
        assert {one.name for one in folder.iterdir()} == {"manifests", "patches"}, number
    else:
        pytest.fail("it never went through")
    assert seen == {False, True} and not (folder / "patches/one/b").exists()


@pytest.mark.parametrize("raised", [OSError(errno.ENOSPC, "no space"), KeyboardInterrupt()])
def test_an_error_anywhere_changes_nothing(
    raised: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise raised

    for number in range(1, 200):
        folder = tmp_path / str(number)
        make(folder)
        with monkeypatch.context() as patch:
            at_call(number, fail, patch)
            try:
                publishing.publish(str(folder), CHANGES)
            except type(raised):
                done = False
            else:
                done = True
        bundles.whole(str(folder))
        now = {p: data for p, data in found(folder).items() if not p.startswith(".writing.new/")}
        # Once all files are in their place, what fails is the cleaning up.
        assert now == (AFTER if done else BEFORE) or now == AFTER, number
        if done:
            break
    else:
        pytest.fail("it never went through")


def test_folders_that_a_failed_write_made_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    folders = {path for path in tmp_path.rglob("*") if path.is_dir()}

    def full(*args: object, **given: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr("patchkit.fsio.os.fsync", full)
        with pytest.raises(OSError, match="no space"):
            publishing.publish(str(tmp_path), CHANGES)
    assert {path for path in tmp_path.rglob("*") if path.is_dir()} == folders


def test_what_holds_the_bytes_already_is_not_written(tmp_path: Path) -> None:
    make(tmp_path)
    before = {path: os.stat(tmp_path / path).st_ino for path in BEFORE}
    publishing.publish(str(tmp_path), {**BEFORE, "patches/none.patch": None})
    assert {path: os.stat(tmp_path / path).st_ino for path in BEFORE} == before


def test_a_write_keeps_the_mode_of_a_file(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "manifests/one.toml").chmod(0o664)
    publishing.publish(str(tmp_path), CHANGES)
    assert os.stat(tmp_path / "manifests/one.toml").st_mode & 0o777 == 0o664


def test_two_writers_come_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_PATIENCE", 0.0)
        with pytest.raises(Locked) as caught:
            publishing.publish(str(tmp_path), CHANGES)
    assert caught.value.exit_code == 5 and found(tmp_path) == BEFORE
    thread = threading.Thread(target=publishing.publish, args=(str(tmp_path), CHANGES))
    thread.start()
    os.close(holder)
    thread.join()
    assert found(tmp_path) == AFTER


def test_a_list_of_changes_that_is_none_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / ".writing").mkdir()
    (tmp_path / ".writing/changes.json").write_text('{"schema": 1, "changes": [3]}')
    with pytest.raises(Fault) as caught:
        bundles.bundle_dir(str(tmp_path), {}, "/")
    assert str(tmp_path / ".writing") in str(caught.value.hint)
    assert found(tmp_path).items() >= BEFORE.items()


def test_what_was_made_of_files_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    make(tmp_path)
    path = "manifests/one.toml"
    (tmp_path / path).write_bytes(b"by another one")
    with pytest.raises(Refused) as caught:
        publishing.publish(str(tmp_path), CHANGES, {path: BEFORE[path]})
    assert caught.value.code == "changed-meanwhile"
    assert found(tmp_path) == {**BEFORE, path: b"by another one"}
    with pytest.raises(Refused):
        publishing.publish(str(tmp_path), CHANGES, {path: None})
    written = publishing.publish(str(tmp_path), CHANGES, {path: b"by another one"})
    assert [os.path.relpath(one, tmp_path) for one in written][-2:] == ["manifests/one.lock", path]
    assert found(tmp_path) == AFTER
