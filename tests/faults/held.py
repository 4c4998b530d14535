"""Several commands at once, with one of them held after its n-th call.

strace stops the process under attack (SIGSTOP) once it has made the call.  Others then read,
apply, revert and recover beside it: some must answer while it is held, others wait until it goes
on.  What all of them said, and what is left, must be what some serial order gives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.subjects import Patchkit
from tests.support.serial import Applied, Said, serial_order

#: What is held: the command line, and what is applied before it.
COMMANDS: dict[str, tuple[tuple[str, ...], Applied]] = {
    "apply": (("apply", "five"), ()),
    "revert": (("revert", "five"), ("five", "other")),
    "verify": (("verify",), ("five",)),
}
#: What runs beside it, in turn.
_BESIDE: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("verify",), ("apply", "other")),
    (("status",), ("revert", "--all")),
    (("verify", "five"), ("recover",), ("apply", "five", "other")),
)
#: Seconds for which a command waits that must answer while another is held.
_SHORT = "0.2"
_LONG = "60"


@dataclass
class Outcome:
    """What one run showed; ``wrong`` holds what cannot be, in words."""

    reached: bool
    mixed: bool = False
    wrong: list[str] = field(default_factory=list)
    not_serial: bool = False


def hold_at(subject: Patchkit, command: str, call: str, number: int, turn: int) -> Outcome:
    """Hold a command after its ``number``-th ``call``, with others beside it."""
    arguments, start = COMMANDS[command]
    subject.prepare("apply")
    if start:
        subject.run("apply", *start)
    ends = (subject.state(), subject.expected(start), subject.expected(()))
    trace = subject.change.folder / "trace"
    trace.write_text("")
    held = subject.start(
        *arguments,
        timeout=_LONG,
        prefix=(
            *("strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={call}"),
            *("-e", f"inject={call}:signal=SIGSTOP:when={number}"),
        ),
    )
    stopped = _stopped(trace, held)
    outcome = Outcome(bool(stopped))
    beside = _BESIDE[turn % len(_BESIDE)]
    if not stopped:
        held.communicate(timeout=120)
        return outcome
    outcome.mixed = subject.state() not in (*ends, subject.expected(("five",)))
    short = [(args, subject.start(*args, timeout=_SHORT)) for args in beside]
    waiting = [(args, subject.start(*args, timeout=_LONG)) for args in beside]
    said = []
    alive = [*stopped, *(process.pid for _, process in [*short, *waiting])]
    for args, process in short:
        said.append(_said(args, process, outcome))
        if said[-1] is not None and said[-1].code == 5 and not _named(process, alive):
            outcome.wrong.append(f"{args}: names another than {alive} as the holder")
    # The call may have been that of a child of it; all that stopped go on.
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    for args, process in [(arguments, held), *waiting]:
        said.append(_said(args, process, outcome))
        if said[-1] is not None and said[-1].code == 5:
            outcome.wrong.append(f"{args}: gave up although it could have gone on")
    now = subject.json("status")
    end = tuple(entry["name"] for entry in now["applied"])
    known = [one for one in said if one is not None]
    if serial_order(start, end, known) is None or len(known) < len(said):
        outcome.not_serial = True
        outcome.wrong.append(f"no serial order from {start} to {end}: {known}")
    if now["problems"] or subject.state() != subject.expected(end):
        outcome.not_serial = True
        outcome.wrong.append(f"the files are not those of {end}: {now['problems']}")
    return outcome


_outputs: dict[int, tuple[bytes, bytes]] = {}


def _said(args: Sequence[str], process: subprocess.Popen[bytes], outcome: Outcome) -> Said | None:
    output, errors = process.communicate(timeout=120)
    _outputs[process.pid] = (output, errors)
    try:
        said = Said.of(args, process.returncode, output)
    except (ValueError, AssertionError, KeyError):
        outcome.wrong.append(f"{args}: exit code {process.returncode}, {errors!r}")
        return None
    if not said.kinds <= {"missing-bundle", "locked"}:
        outcome.wrong.append(f"{args}: {output!r}")
    return said


def _named(process: subprocess.Popen[bytes], alive: Sequence[int]) -> bool:
    """Whether a refusal names one of the processes that can hold the environment, or none: one
    that was stopped before it could write its name is not known, and no other is blamed."""
    message = json.loads(_outputs[process.pid][0])["error"]["message"]
    known = any(f"process {pid} on {os.uname().nodename} (" in message for pid in alive)
    return known or "another process" in message


def _stopped(trace: Path, process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that strace stopped; empty where the command ended first."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        over = process.poll() is not None
        lines = trace.read_text(errors="replace").splitlines()
        found = [int(line.split()[0]) for line in lines if "--- stopped by SIGSTOP" in line]
        if found or over:
            return found
        time.sleep(0.005)
    raise AssertionError("the held command neither stopped nor ended")
