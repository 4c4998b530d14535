"""The lock and the looks without it: who is named, what counts, and where there are no locks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from patchkit import lock
from patchkit.errors import Fault, Locked, Refused
from patchkit.here import started
from patchkit.state import LOCK, NAME, STAGED, Home
from tests.support.lab import ALPHA, STATE, Lab, Site, needs_tool

pytest_plugins = ("tests.support.fixtures",)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(str(tmp_path), str(tmp_path))


def hold(home: Home, timeout: float = 0) -> Any:
    return lock.hold(home, "apply", timeout, lambda: None)


@contextmanager
def held_by_nobody_known(home: Home, note: dict[str, Any] | bytes) -> Iterator[None]:
    """The lock is held by one that has not yet written its own note over this one."""
    path = Path(home.holder) / LOCK
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(note if isinstance(note, bytes) else json.dumps(note).encode())
    with path.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def note_of(pid: int) -> dict[str, Any]:
    note: dict[str, Any] = json.loads(lock._note("apply"))
    return {**note, "pid": pid, "started": started(pid)}


# --- who ---------------------------------------------------------------------------------


def refusal(home: Home) -> str:
    with pytest.raises(Locked) as caught, hold(home):
        pytest.fail("it was held")
    assert caught.value.exit_code == 5 and caught.value.hint
    return caught.value.message


def test_the_holder_is_named_with_process_and_host(home: Home) -> None:
    with hold(home):
        assert f"process {os.getpid()} on {os.uname().nodename} (apply)" in refusal(home)


def test_the_name_of_a_process_that_is_gone_is_not_believed(home: Home) -> None:
    gone = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    note = note_of(gone.pid)
    with held_by_nobody_known(home, note):
        assert f"process {gone.pid} " in refusal(home)
    gone.communicate()
    with held_by_nobody_known(home, note):
        assert refusal(home) == "the environment is held by another process"


def test_nor_is_that_of_another_process_with_the_same_id(home: Home) -> None:
    note = {**note_of(os.getpid()), "started": "1"}
    with held_by_nobody_known(home, note):
        assert refusal(home) == "the environment is held by another process"


def test_of_another_host_only_its_own_word_is_there(home: Home) -> None:
    """Its process ids mean nothing here: a process of that id here is another one."""
    note = {**note_of(os.getpid()), "host": "elsewhere", "where": ["another boot", "pid:[1]"]}
    with held_by_nobody_known(home, {**note, "started": "1"}):
        assert f"process {os.getpid()} on elsewhere (apply)" in refusal(home)


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"pid": 1}', b'{"pid": "x", "host": 1}'])
def test_a_note_that_says_nothing(home: Home, note: bytes) -> None:
    with held_by_nobody_known(home, note):
        assert refusal(home) == "the environment is held by another process"


# --- waiting -----------------------------------------------------------------------------


def test_one_that_only_looks_is_not_taken_for_a_holder(home: Home) -> None:
    """``verify`` of an interrupted environment asks whether the lock is free by taking it for
    an instant; a command that does not wait at all gets through all the same."""
    (Path(home.holder) / STAGED).mkdir(parents=True)
    path = Path(home.holder) / LOCK
    path.touch()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.2, lambda: fcntl.flock(file, fcntl.LOCK_UN)).start()
        with hold(home, 0):
            pass


def test_waiting_for_a_lock_that_always_vanishes_ends(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lock._flock

    def flock(descriptor: int, how: int, of: Home) -> bool:
        (Path(home.holder) / LOCK).unlink(missing_ok=True)
        return real(descriptor, how, of)

    monkeypatch.setattr(lock, "_flock", flock)
    monkeypatch.setattr(lock, "_GRACE", 0.1)
    with pytest.raises(Locked), hold(home, 0.2):
        pytest.fail("that file was nobody's any more")


def test_a_full_disk_does_not_stop_the_holder(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lock, "rewrite", full)
    with hold(home):
        pass


# --- without locks -----------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO])
def test_where_there_are_no_locks_nothing_is_changed(
    home: Home, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(Fault) as caught, hold(home, 5):
        pytest.fail("there is no lock")
    assert caught.value.exit_code == 4 and caught.value.code == "no-locks"
    assert home.holder in caught.value.message and os.strerror(code) in caught.value.message
    assert os.listdir(home.holder) == []


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP"])
def test_a_command_without_locks(lab: Lab, error: str) -> None:
    needs_tool("strace")
    no_locks = ("strace", "-f", "-qq", "-o", os.devnull, "-e", f"inject=flock:error={error}")
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    before = site.picture()
    answer = lab.json(site, "apply", "one", check=4, prefix=no_locks)
    assert answer["error"]["code"] == "no-locks" and answer["error"]["hint"]
    assert site.differences(before) == []
    lab.run(site, "apply", "one")
    before = site.picture()
    for args in (("revert", "--all"), ("recover",)):
        lab.run(site, *args, check=4, prefix=no_locks)
        assert site.differences(before) == []
    lab.run(site, "verify", "one", prefix=no_locks)
    # Whether a change is under way cannot be told then, and it says so.
    (site / STATE / "staged").mkdir()
    lab.run(site, "verify", check=4, prefix=no_locks)


# --- looks -------------------------------------------------------------------------------


def test_a_change_that_follows_another_is_not_taken_for_an_interrupted_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ends between the look at its traces and the look at the lock, and the next begins."""
    staged = Path(home.holder) / STAGED
    staged.mkdir(parents=True)
    real, looks = lock.is_held, []

    def next_begins(of: Home) -> bool:
        looks.append(real(of))
        if len(looks) == 1:
            staged.rmdir()
            (Path(home.holder) / LOCK).write_bytes(lock._note("apply"))
            staged.mkdir()
            return False
        staged.rmdir()
        return True

    monkeypatch.setattr(lock, "is_held", next_begins)
    assert lock.steady(home, 5, lambda: "seen") == "seen"
    assert len(looks) == 2


def test_what_is_interrupted_is_called_so(home: Home) -> None:
    (Path(home.holder) / STAGED).mkdir(parents=True)
    with pytest.raises(Refused) as caught:
        lock.steady(home, 5, lambda: "seen")
    assert caught.value.code == "interrupted" and caught.value.hint == "patchkit recover"


@pytest.mark.parametrize("outcome", ["value", "error"])
def test_what_was_seen_while_a_change_came_and_went_does_not_count(
    home: Home, outcome: str
) -> None:
    """Also of one that was rolled back, after which nothing is another than before."""
    (Path(home.holder) / NAME).mkdir()
    (Path(home.holder) / NAME / "state.json").touch()
    seen = []

    def look() -> str:
        seen.append(time.monotonic())
        if len(seen) > 1:
            return "right"
        with hold(home):
            pass
        if outcome == "error":
            raise Refused("a half-changed file")
        return "wrong"

    assert lock.steady(home, 5, look) == "right"


def test_what_is_good_counts_though_a_change_began(home: Home) -> None:
    def look() -> str:
        with hold(home):
            return "good"

    assert lock.steady(home, 0, look, lambda found: found == "good") == "good"


def test_looking_waits_no_longer_than_told(home: Home) -> None:
    with hold(home):
        (Path(home.holder) / STAGED).mkdir()
        with pytest.raises(Locked, match=f"process {os.getpid()} on"):
            lock.steady(home, 0.1, lambda: "seen")


@pytest.mark.parametrize(
    "args", [("diff",), ("diff", "one"), ("apply", "-n", "one"), ("revert", "-n", "--all")]
)
def test_readers_wait_for_a_change_under_way(lab: Lab, args: tuple[str, ...]) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "one")
    with hold(Home(str(site.root), str(site.root))):
        (site / STATE / "staged").mkdir()
        line = lab.command(site, *args)
        line[line.index("patchkit") + 1 : line.index("patchkit") + 1] = ["--lock-timeout", "0"]
        refused = subprocess.run(line, env=lab.child_env, capture_output=True, check=False)
        assert refused.returncode == 5 and str(os.getpid()).encode() in refused.stderr
        waiting = lab.start(site, *args)
        time.sleep(0.5)
        (site / STATE / "staged").rmdir()
    _, errors = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, errors


def test_a_wait_without_end_cannot_be_asked_for_by_no_number(lab: Lab) -> None:
    site: Site = lab.site()
    lab.run(site, "--lock-timeout", "nan", "status", check=2)
