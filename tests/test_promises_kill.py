"""Promise 2: killed at any instant, an environment is known as interrupted and gets back.

The kills are SIGKILL between two renames (strace counts them), SIGKILL at a random moment, and
Ctrl-C; ``tests/faults`` has those at every call that changes the tree.  After each: the tree is
exactly old or exactly new, or every command says that it is interrupted; ``verify`` repairs
nothing; the next ``recover``, ``apply`` or ``revert`` brings it to exactly the old or exactly
the new contents.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import releases
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    DELTA,
    GAMMA,
    STATE,
    Lab,
    Site,
    default_signals,
    needs_tool,
)
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)
pytestmark = pytest.mark.slow  # about data and instants, not about the interpreter

Contents = Mapping[str, tuple[str, int, str | None]]

EDITED = (ALPHA[0], BETA[0], GAMMA[0], DELTA[0])


def contents(site: Site) -> Contents:
    """Kind, mode and digest (or target) of everything that is not patchkit's own."""
    found = releases.snapshot(site.root, ignore=(STATE,))
    return {path: (e.kind, e.mode, e.digest or e.target) for path, e in found.items()}


def different(now: Contents, old: Contents, new: Contents) -> str:
    """How a tree differs from both that it should be."""
    lines = [
        f"{path}: {'as old' if path in now and now[path] == old.get(path) else now.get(path)}"
        for path in sorted({*now, *new})
        if now.get(path) != new.get(path)
    ]
    return f"neither old nor new, and not called interrupted; not new: {lines[:5]}"


@dataclass
class Scene:
    """A change of many kinds, and the trees before and after it."""

    lab: Lab
    before: Site
    after: Site
    command: tuple[str, ...]
    applied_before: bool

    @property
    def old(self) -> Contents:
        return contents(self.before)

    @property
    def new(self) -> Contents:
        return contents(self.after)

    def fresh(self) -> Site:
        return self.lab.copy(self.before)


def scene(lab: Lab, command: str) -> Scene:
    """Edits, an added and a deleted file, a new mode, over two distributions."""
    pristine = lab.site()
    patched = lab.copy(pristine)
    added = lab.diff(
        {"acme/old.py": ACME.files["acme/old.py"]},
        {"acme/fresh/new.py": "fresh = 1\n"},
        "--no-renames",
    )
    lab.bundle(
        "many", {"acme": lab.edit(ALPHA, BETA, GAMMA) + added, "bolt-kernels": lab.edit(DELTA)}
    )
    lab.run(patched, "apply", "many")
    if command == "apply":
        return Scene(lab, pristine, patched, ("apply", "many"), False)
    return Scene(lab, patched, pristine, ("revert", "--all"), True)


def kill_at(scene: Scene, site: Site, number: int) -> bool:
    """Run the command until its ``number``th rename; whether it got that far."""
    calls = "rename,renameat,renameat2"
    kill = f"inject={calls}:signal=SIGKILL:when={number}"
    prefix = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", kill)
    process = scene.lab.start(site, *scene.command, prefix=prefix)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -9, 137), errors
    return process.returncode != 0


def problems(lab: Lab, site: Site, *args: str) -> tuple[int, list[str]]:
    """``verify --json``: exit code and kinds of problem; it must not have changed anything."""
    before = site.picture()
    result = lab.run(site, "--json", "verify", *args, check=None)
    assert site.differences(before) == [], "verify changed something"
    assert result.exit_code in (0, 1), str(result)
    return result.exit_code, [problem["kind"] for problem in result.json["problems"]]


def settle(scene: Scene, site: Site, way: str) -> None:
    """Get back by ``way``; then the tree is old or new, and is pristine after a revert."""
    lab = scene.lab
    pristine = scene.new if scene.applied_before else scene.old
    patched = scene.old if scene.applied_before else scene.new
    if way == "recover":
        lab.run(site, "recover")
        assert contents(site) in (scene.old, scene.new)
    elif way == "apply":
        lab.run(site, "apply", "many")
        assert contents(site) == patched, different(contents(site), patched, patched)
    else:
        lab.run(site, "revert", "--all")
        assert contents(site) == pristine, different(contents(site), pristine, pristine)
    code, kinds = problems(lab, site)
    assert (code, kinds) == (0, [])
    lab.run(site, "revert", "--all")
    assert contents(site) == pristine
    assert not (site / STATE).exists()


def interrupted(lab: Lab, command: str = "apply") -> tuple[Scene, Site]:
    """An environment that was killed between two renames."""
    needs_tool("strace")
    made = scene(lab, command)
    for number in range(1, 40):
        site = made.fresh()
        assert kill_at(made, site, number), "no kill left it half changed"
        now = contents(site)
        if 0 < sum(now[path] == made.new[path] for path in EDITED) < len(EDITED):
            return made, site
        shutil.rmtree(site.root.parent)
    raise AssertionError("no kill left it half changed")


READERS = (
    ("verify",),
    ("verify", "many"),
    ("verify", "--pristine"),
    ("status",),
    ("status", "--check"),
    ("list",),
    ("show", "many"),
    ("diff",),
    ("diff", "many"),
    ("apply", "--dry-run", "many"),
    ("revert", "--dry-run", "--all"),
)


def test_every_command_says_that_it_is_interrupted(lab: Lab) -> None:
    made, site = interrupted(lab)
    before = site.picture()
    silent = []
    for args in READERS:
        result = lab.run(site, *args, check=None)
        assert result.exit_code in (0, 1, 3), str(result)
        assert site.differences(before) == [], f"{args} changed something"
        if "interrupted" not in result.stdout + result.stderr:
            silent.append(args)
    settle(made, site, "recover")
    assert silent == []


def test_verify_and_status_check_fail_and_name_recover(lab: Lab) -> None:
    _, site = interrupted(lab)
    result = lab.run(site, "verify", check=1)
    assert "patchkit recover" in result.stderr or "recover" in result.stderr
    assert result.stdout == ""
    lab.run(site, "status", "--check", check=1)
    found = lab.json(site, "verify", check=1)
    assert [problem["kind"] for problem in found["problems"]] == ["interrupted"]
    assert found["ok"] is False and found["exit_code"] == 1


def test_recover_says_what_it_did(lab: Lab) -> None:
    _, site = interrupted(lab)
    result = lab.run(site, "recover")
    assert "interrupted" in result.stdout
    assert lab.run(site, "recover").stdout != result.stdout


@pytest.mark.parametrize("command", ["apply", "revert"])
@pytest.mark.parametrize("way", ["recover", "apply", "revert"])
def test_each_way_back(lab: Lab, command: str, way: str) -> None:
    made, site = interrupted(lab, command)
    settle(made, site, way)


def test_an_unrelated_bundle_applied_to_an_interrupted_environment(lab: Lab) -> None:
    made, site = interrupted(lab)
    other = ("acme/beta.py", "    one_3 = 3\n", "    one_3 = 30\n")
    lab.bundle("other", {"acme": lab.edit(other)})
    lab.run(site, "apply", "other")
    names = [entry["name"] for entry in lab.json(site, "status")["applied"]]
    assert names in (["other"], ["many", "other"])
    lab.run(site, "verify", *names)
    lab.run(site, "revert", "--all")
    assert contents(site) == made.old


def test_hand_edits_in_an_interrupted_environment_are_not_overwritten(lab: Lab) -> None:
    """Recovery decides from the journal; a file that is neither old nor new is not its own."""
    made, half = interrupted(lab)
    now = contents(half)
    swapped = [path for path in EDITED if now[path] == made.new[path]]
    waiting = [path for path in EDITED if now[path] == made.old[path]]
    for path in (swapped[0], waiting[0]):
        site = lab.copy(half)
        (site / path).write_text("mine = 1\n")
        result = lab.run(site, "recover", check=None)
        assert site.text(path) == "mine = 1\n", "it was overwritten"
        if path in swapped or result.exit_code:
            assert result.exit_code in (3, 4), str(result)
            assert path in result.stderr


BIG = Dist(
    "bigone",
    "1.0",
    {f"bigone/m{number:03}.py": f"A = 1\nvalue = {number}\nB = 2\n" for number in range(400)},
)


def big_bundle(lab: Lab) -> None:
    after = {path: str(text).replace("A = 1", "A = 10") for path, text in BIG.files.items()}
    lab.bundle("big", {"bigone": lab.diff(BIG.files, after)})


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_killed_at_random_moments(lab: Lab, command: str) -> None:
    """Without strace: a change of 400 files, and a SIGKILL somewhere in it."""
    pristine = lab.site(BIG)
    patched = lab.copy(pristine)
    big_bundle(lab)
    started = time.monotonic()
    lab.run(patched, "apply", "big")
    duration = time.monotonic() - started
    old, new = contents(pristine), contents(patched)
    source = pristine if command == "apply" else patched
    generator = random.Random(20240506)
    seen = []
    for _ in range(6):
        site = lab.copy(source)
        args = ("apply", "big") if command == "apply" else ("revert", "--all")
        process = lab.start(site, *args)
        time.sleep(generator.uniform(0.15, 0.95) * duration)
        process.kill()
        process.communicate()
        code, kinds = problems(lab, site)
        now = contents(site)
        if now not in (old, new):
            assert (code, kinds) == (1, ["interrupted"]), different(now, old, new)
        seen.append((process.returncode, code))
        lab.run(site, "recover")
        assert contents(site) in (old, new)
        assert problems(lab, site) == (0, [])
        lab.run(site, "revert", "--all")
        assert contents(site) == old
        assert not (site / STATE).exists()
        shutil.rmtree(site.root.parent)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Until ``path`` is there, or the process ended."""
    end = time.monotonic() + 30
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.001)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_rolls_back(lab: Lab, number: signal.Signals) -> None:
    """Ctrl-C in the middle of a big change: exit code 128 + n, and nothing changed."""
    pristine = lab.site(BIG)
    big_bundle(lab)
    codes = []
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2):
        site = lab.copy(pristine)
        before = site.picture()
        process = lab.start(site, "apply", "big")
        wait_for(site / STATE, process)
        time.sleep(delay)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        codes.append(process.returncode)
        assert b"Traceback" not in errors
        if process.returncode == 128 + number:
            assert site.differences(before) == [], errors
        else:
            assert process.returncode == 0, errors
            lab.run(site, "verify", "big")
        shutil.rmtree(site.root.parent)
        if codes.count(128 + number) == 2:
            break
    assert 128 + number in codes, codes


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize(
    ("number", "args"),
    [
        (signal.SIGINT, ("apply", "one")),
        (signal.SIGTERM, ("revert", "--all")),
        (signal.SIGHUP, ("recover",)),
    ],
)
def test_a_signal_while_it_waits_for_the_lock(
    lab: Lab, number: signal.Signals, args: tuple[str, ...]
) -> None:
    """Sent to the whole group of processes, as a terminal does it."""
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "one")
    before = site.picture()
    trace = lab.base / "trace"
    needs_tool("strace")
    strace = ("strace", "-qq", "-o", str(trace), "-e", "trace=flock")
    with (site / STATE / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = lab.start(site, *args, prefix=strace, start_new_session=True)
        wait_until(lambda: trace.exists() and "EAGAIN" in trace.read_text())
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert b"rolled back" in errors
    assert site.differences(before) == []


@pytest.mark.parametrize(
    ("command", "number"), [*(("apply", number) for number in SIGNALS), ("revert", signal.SIGINT)]
)
def test_a_signal_while_the_outcome_is_printed(
    lab: Lab, command: str, number: signal.Signals
) -> None:
    """What is done is said to be done: nobody reads, so that the output blocks."""
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    state = site / STATE / "state.json"
    if command == "revert":
        lab.run(site, "apply", "one")
    args = ("apply", "one") if command == "apply" else ("revert", "--all")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(4096)):
            pass
    os.set_blocking(writer, True)
    process = subprocess.Popen(
        lab.command(site, *args),
        env=lab.child_env,
        stdout=writer,
        stderr=subprocess.PIPE,
        preexec_fn=default_signals,  # noqa: PLW1509
    )
    os.close(writer)
    wait_until(lambda: state.exists() == (command == "apply") and writes(process.pid))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    os.close(reader)
    assert process.returncode == 0, errors
    assert f"{command} is done, but".encode() in errors
    lab.run(site, "verify", *(["one"] if command == "apply" else []))


def wait_until(holds: Callable[[], bool]) -> None:
    """Until something is so, in bounded time."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def writes(pid: int) -> bool:
    """Whether a process blocks in a write to its standard output."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[1:2] == ["0x1"]


def test_signals_at_every_call_of_a_rollback(lab: Lab) -> None:
    """A second, third and tenth Ctrl-C: from its first rename on, one at every call."""
    needs_tool("strace")
    made = scene(lab, "apply")
    site = made.fresh()
    calls = "rename,renameat,linkat,unlink,unlinkat,fsync,fdatasync,write,pwrite64,ftruncate"
    inject = f"inject={calls}:signal=SIGINT:when=14+"
    strace = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", inject)
    process = lab.start(site, *made.command, prefix=strace)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert b"Traceback" not in errors
    assert problems(lab, site) == (0, [])
    assert contents(site) == made.old


def test_json_of_an_interrupted_command(lab: Lab) -> None:
    """Ctrl-C with ``--json`` still leaves one object, which says so."""
    site = lab.site(BIG)
    big_bundle(lab)
    process = lab.start(site, "--json", "apply", "big")
    wait_for(site / STATE, process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    answer = json.loads(output)
    assert answer["exit_code"] == process.returncode
    assert answer["ok"] is (process.returncode == 0)


def test_nothing_is_swapped_before_it_is_on_the_disk(lab: Lab) -> None:
    """Power loss: staged files and the journal are synced before the first swap."""
    needs_tool("strace")
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    trace = lab.base / "trace"
    lab.run(
        site,
        "apply",
        "one",
        prefix=(
            *("strace", "-f", "-y", "-qq", "-o", str(trace), "-e"),
            "trace=rename,renameat,renameat2,fsync,fdatasync,syncfs,sync_file_range,sync",
        ),
    )
    lines = trace.read_text(errors="replace").splitlines()
    target = re.escape(str(site / ALPHA[0]))
    (swap,) = (
        number
        for number, line in enumerate(lines)
        if re.search(rf'rename\w*\(.*"{target}"', line) or re.search(r'"alpha\.py"', line)
    )
    syncs = [number for number, line in enumerate(lines) if re.search(r"\b(f|fdata)?sync", line)]
    assert [number for number in syncs if number < swap], "nothing is synced before the swap"
    assert [number for number in syncs if number > swap], "nothing is synced after the swap"


def test_a_kill_leaves_no_lock(lab: Lab) -> None:
    """The lock of a process that was killed holds nobody up."""
    _, site = interrupted(lab)
    started = time.monotonic()
    lab.cli(*site.where, "--bundles", lab.bundles, "--lock-timeout", "0", "recover")
    assert time.monotonic() - started < 20
