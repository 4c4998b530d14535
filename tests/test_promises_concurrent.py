"""Promise 10: one at a time: concurrent commands queue, or say who holds the environment."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import releases
from tests.support.lab import ALPHA, BETA, DELTA, STATE, Lab, Site
from tests.support.serial import Said, serial_order
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)

NAMES = tuple(f"part{number}" for number in range(8))
WIDE = Dist(
    "wide",
    "1.0",
    {
        f"wide/m{module}.py": "".join(
            f"# section {number}\na{number} = 0\nb{number} = 0\nc{number} = 0\n\n\n\n\n"
            for number in range(8)
        )
        for module in range(4)
    },
)
BIG = Dist(
    "bigone",
    "1.0",
    {f"bigone/m{number:03}.py": f"A = 1\nvalue = {number}\nB = 2\n" for number in range(400)},
)


def parts(lab: Lab) -> None:
    """Eight bundles that meet in the same four files."""
    for number, name in enumerate(NAMES):
        after = {
            path: str(text).replace(f"b{number} = 0", f"b{number} = {number + 1}")
            for path, text in WIDE.files.items()
        }
        lab.bundle(name, {"wide": lab.diff(WIDE.files, after)})


def finish(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    codes = []
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert b"Traceback" not in errors, errors
        codes.append(process.returncode)
    return codes


def applied(lab: Lab, site: Site) -> list[str]:
    return [entry["name"] for entry in lab.json(site, "status")["applied"]]


@pytest.mark.parametrize("count", [2, 8, 32])
def test_processes_started_together(lab: Lab, count: int) -> None:
    """What each of them says, and what they leave, is what some serial order gives."""
    site, alone = lab.site(WIDE), lab.site(WIDE)
    parts(lab)
    before = site.picture()
    start = NAMES[: count // 4]
    if start:
        lab.run(site, "apply", *start)
    kinds = [
        *(("apply", name) for name in NAMES),
        *(("revert", name) for name in NAMES[:4]),
        ("revert", "--all"),
        *(("verify",), ("status",), ("recover",), ("verify", NAMES[0])),
    ]
    chosen = random.Random(count).choices(kinds, k=count)
    started = [(args, lab.start(site, "--json", *args)) for args in chosen]
    said = []
    for args, process in started:
        output, errors = process.communicate(timeout=240)
        said.append(Said.of(args, process.returncode, output))
        assert said[-1].kinds <= {"locked", "missing-bundle"}, (args, output, errors)
    end = tuple(applied(lab, site))
    assert serial_order(start, end, said) is not None, said
    assert any(one.code != 5 for one in said), "at least one got through"
    lab.run(site, "verify", *end)
    if end:
        lab.run(alone, "apply", *end)
    for path in WIDE.files:
        assert site.text(path) == alone.text(path)
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_what_no_serial_order_gives_is_seen() -> None:
    """The judge of the test above: it would prove nothing if it took everything."""

    def said(command: str, name: str, *applied: str, code: int = 0, kind: str = "") -> Said:
        kinds = frozenset({kind} if kind else ())
        return Said(command, (name,) if name else (), code, applied, "-".join(applied), kinds)

    both = [said("apply", "a", "a"), said("apply", "b", "a", "b")]
    assert serial_order((), ("a", "b"), both)
    assert serial_order((), ("b", "a"), both) is None, "it says that a came first"
    assert serial_order((), ("b",), both) is None, "a is lost"
    assert serial_order((), ("a", "b"), [*both, said("verify", "", "a")])
    assert serial_order((), ("a", "b"), [*both, said("verify", "", "b")]) is None
    drift = said("verify", "", "a", code=1, kind="drift")
    assert serial_order((), ("a", "b"), [*both, drift]) is None
    assert serial_order((), ("a", "b"), [*both, said("revert", "", code=5, kind="locked")])
    lost = [said("apply", "a", "a"), said("apply", "b", "b")]
    assert serial_order((), ("b",), lost) is None, "b did not see a"
    # One that changes nothing at a place may be needed at a later one.
    there = [said("apply", "a", "a"), said("apply", "b", "a", "b"), said("revert", "b", "a")]
    assert serial_order((), ("a",), there)


def test_applies_and_reverts_at_once(lab: Lab) -> None:
    """Four go in while the other four come out: only the first four can be left."""
    site, alone = lab.site(WIDE), lab.site(WIDE)
    parts(lab)
    before = site.picture()
    lab.run(site, "apply", *NAMES[:4])
    changes = [("revert", name) for name in NAMES[:4]] + [("apply", name) for name in NAMES[4:]]
    codes = finish([lab.start(site, *change) for change in changes])
    assert codes == [0] * 8, "the default wait is long enough for eight small changes"
    names = applied(lab, site)
    assert sorted(names) == list(NAMES[4:])
    lab.run(alone, "apply", *names)
    for path in WIDE.files:
        assert site.text(path) == alone.text(path)
    lab.run(site, "verify", *names)
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_the_same_apply_eight_times(lab: Lab) -> None:
    site = lab.site(WIDE)
    parts(lab)
    codes = finish([lab.start(site, "apply", "part0") for _ in range(8)])
    assert set(codes) <= {0, 5}
    assert applied(lab, site) == ["part0"]
    lab.run(site, "verify", "part0")


def test_apply_against_revert_of_all(lab: Lab) -> None:
    site = lab.site(WIDE)
    parts(lab)
    before = site.picture()
    for _ in range(3):
        codes = finish(
            [
                lab.start(site, "apply", "part0", "part1"),
                lab.start(site, "revert", "--all"),
                lab.start(site, "recover"),
            ]
        )
        assert set(codes) <= {0, 5}
        assert applied(lab, site) in ([], ["part0", "part1"])
        lab.run(site, "verify")
        lab.run(site, "revert", "--all")
        assert site.differences(before) == []
        assert not (site / STATE).exists()


@contextmanager
def held(lab: Lab, site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """A patchkit that was stopped while it holds the environment."""
    after = {path: str(text).replace("A = 1", "A = 10") for path, text in BIG.files.items()}
    lab.bundle("big", {"bigone": lab.diff(BIG.files, after)})
    for delay in (0.0, 0.01, 0.02, 0.0, 0.01, 0.02):
        process = lab.start(site, "apply", "big")
        end = time.monotonic() + 30
        while not (site / STATE).exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.0005)
        time.sleep(delay)
        process.send_signal(signal.SIGSTOP)
        lock = site / STATE / "lock"  # its note is written once it is held
        if process.poll() is None and lock.exists() and lock.stat().st_size:
            break
        process.send_signal(signal.SIGCONT)
        process.communicate()
        lab.run(site, "revert", "--all")
    else:
        pytest.fail("no apply could be stopped while it held the environment")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def with_timeout(lab: Lab, site: Site, seconds: str, *args: str) -> list[str]:
    command = lab.command(site, *args)
    at = command.index("patchkit") + 1
    return [*command[:at], "--lock-timeout", seconds, *command[at:]]


def test_who_holds_it(lab: Lab) -> None:
    site = lab.site(BIG)
    with held(lab, site) as holder:
        for args in (("apply", "big"), ("revert", "--all"), ("recover",)):
            started = time.monotonic()
            done = subprocess.run(
                with_timeout(lab, site, "0.3", *args),
                env=lab.child_env,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 5, done.stderr
            assert time.monotonic() - started < 15
            assert str(holder.pid) in done.stderr, "the holder is named"
            assert "apply" in done.stderr, "and what it does"
            assert "hint:" in done.stderr
            assert done.stdout == ""


def test_who_holds_it_in_json(lab: Lab) -> None:
    site = lab.site(BIG)
    with held(lab, site) as holder:
        done = subprocess.run(
            with_timeout(lab, site, "0", "--json", "apply", "big"),
            env=lab.child_env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 5
        answer = json.loads(done.stdout)
        assert answer["exit_code"] == 5 and answer["ok"] is False
        assert str(holder.pid) in answer["error"]["message"]


def test_the_next_in_the_queue_goes_on_when_the_holder_is_done(lab: Lab) -> None:
    site = lab.site(BIG)
    with held(lab, site) as holder:
        waiting = lab.start(site, "revert", "--all")
        time.sleep(1)
        assert waiting.poll() is None, "it waits"
        holder.send_signal(signal.SIGCONT)
        holder.communicate(timeout=60)
        assert holder.returncode == 0
        assert finish([waiting]) == [0]
    assert applied(lab, site) == []
    assert releases.record_problems(site.root) == []


def test_a_holder_that_is_killed_holds_nobody_up(lab: Lab) -> None:
    site = lab.site(BIG)
    before = site.picture()
    with held(lab, site) as holder:
        waiting = lab.start(site, "recover")
        time.sleep(0.3)
        holder.kill()
        assert finish([waiting]) == [0]
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_what_only_reads_is_not_held_up(lab: Lab) -> None:
    """``verify`` in front of another launch must not hang behind a slow apply."""
    site = lab.site(BIG)
    with held(lab, site):
        for args in (("verify",), ("status",), ("list",), ("show", "big")):
            started = time.monotonic()
            result = lab.run(site, *args, check=None)
            assert time.monotonic() - started < 15, args
            assert result.exit_code in (0, 1, 5), str(result)
        # And it does not call a half-done tree right.
        after = {path: site.text(path) for path in BIG.files}
        if any("A = 10" in text for text in after.values()):
            assert lab.run(site, "verify", check=None).exit_code in (1, 5)


def test_two_environments_do_not_wait_for_each_other(lab: Lab) -> None:
    site, other = lab.site(BIG), lab.site(WIDE)
    parts(lab)
    with held(lab, site):
        started = time.monotonic()
        lab.run(other, "apply", "part0")
        assert time.monotonic() - started < 15


def test_a_verify_beside_changes_never_sees_a_wrong_environment(lab: Lab) -> None:
    """Old, new, or said to be in the middle of a change: never drift that is none."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA, BETA), "bolt-kernels": lab.edit(DELTA)})
    changer = subprocess.Popen(
        [
            *("sh", "-c", 'for i in 1 2 3 4; do "$@" apply b; "$@" revert --all; done', "sh"),
            *lab.command(site),
        ],
        env=lab.child_env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wrong = []
    while changer.poll() is None:
        result = lab.run(site, "--json", "verify", check=None)
        if result.exit_code == 5:
            continue
        kinds = {problem["kind"] for problem in result.json["problems"]}
        if not kinds <= {"interrupted"}:
            wrong.append(result.json["problems"])
    _, errors = changer.communicate()
    assert errors == b""
    assert wrong == []


def test_the_lock_is_left_to_nobody(lab: Lab) -> None:
    """Neither a lock file of yesterday nor one of another host's process is a holder."""
    site = lab.site(WIDE)
    parts(lab)
    lab.run(site, "apply", "part0")
    (site / STATE / "lock").write_text('{"pid": 1, "command": "apply"}\n')
    lab.run(site, "apply", "part1")
    assert applied(lab, site) == ["part0", "part1"]
