"""The attacks: a kill, an error of the system, or a stop beside other commands, at each call
that changes a tree.

strace counts the calls and injects; the process under attack is the real command.  After
each attack the tool is asked for its verdict, takes one of its ways back, and reverts; what
is counted is what must be zero for patchkit: trees that stay mixed, pristine bytes that are
lost, verdicts that are wrong.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults import drift
from tests.faults.held import COMMANDS as HELD_COMMANDS
from tests.faults.held import hold_at
from tests.faults.subjects import Change, GitApply, Patchkit, Quilt, State, Subject, make_change
from tests.support.lab import default_signals

#: What changes a tree, by what it does; strace counts each name by itself.
CALLS = {
    "rename": ("rename", "renameat", "renameat2"),
    "link": ("link", "linkat", "symlink", "symlinkat"),
    "unlink": ("unlink", "unlinkat", "rmdir"),
    "mkdir": ("mkdir", "mkdirat"),
    "sync": ("fsync", "fdatasync"),
    "write": ("write", "pwrite64", "ftruncate"),
    "attributes": ("fchmod", "chmod", "fchmodat", "fchown", "utimensat", "fsetxattr"),
    "open": ("open", "openat"),
}
#: Where a command is held: also where it takes the lock, and one that only reads, at that.
HELD_CALLS = {**CALLS, "lock": ("flock",)}
READ_CALLS = {"open": ("openat",), "look": ("newfstatat",), "lock": ("flock",)}
KILL = "SIGKILL"
HELD = "held"
DRIFT = "drift"
#: One, or one at every call from there on: also during the rollback.
SIGNALS = {"SIGINT": 2, "SIGTERM": 15, "SIGHUP": 1, "SIGINT again and again": 2}
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES", "EMFILE", "EINTR")
ATTACKS = (KILL, HELD, DRIFT, *SIGNALS, *ERRORS)
SUBJECTS: dict[str, type[Subject]] = {
    "patchkit": Patchkit,
    "git apply": GitApply,
    "quilt": Quilt,
}
#: An interpreter opens hundreds of files, and a shell forks: these start where it matters.
_FIRST = {"open": 1}
_MOST = 2_000


@dataclass
class Row:
    """What came of one attack on one command."""

    tool: str
    attack: str
    command: str
    runs: int = 0
    mixed_at_first: int = 0
    mixed_after: int = 0
    lost: int = 0
    wrong: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is counted that must not be."""
        return not (self.mixed_after or self.lost or self.wrong)


def sweep(
    subject: Subject,
    attack: str,
    command: str,
    *,
    calls: Sequence[str] = tuple(CALLS),
    stride: int = 1,
    progress: Callable[[str], None] = lambda text: None,
) -> Row:
    """Attack one command at every call of the kinds (every ``stride``-th)."""
    row = Row(subject.name, attack, command)
    subject.reset()
    subject.prepare(command)
    old = subject.state()
    _plain(subject, command)
    new = subject.state()
    subject.revert()
    assert old != new or command == "recover"
    if command == "recover":
        old = subject.pristine
        new = old
    for kind in calls:
        for name in CALLS[kind]:
            step = stride * (9 if kind == "open" else 1)
            for number in range(1, _MOST, step):
                if not _attack(subject, attack, command, name, number, (old, new), row):
                    break
        progress(f"{subject.name}, {attack}, {command}: {kind}, {row.runs} runs")
    return row


def sweep_held(
    subject: Patchkit,
    command: str,
    *,
    calls: Sequence[str] | None = None,
    stride: int = 1,
    progress: Callable[[str], None] = lambda text: None,
) -> Row:
    """Hold one command after every call of the kinds (every ``stride``-th), others beside it."""
    row = Row(subject.name, HELD, command)
    subject.add_other()
    kinds = READ_CALLS if command == "verify" else HELD_CALLS
    for kind in kinds if calls is None else calls:
        for name in kinds[kind]:
            step = stride * (9 if kind in ("open", "look") else 1)
            for number in range(1, _MOST, step):
                outcome = hold_at(subject, command, name, number, row.runs)
                if not outcome.reached:
                    break
                row.runs += 1
                row.mixed_at_first += outcome.mixed
                row.mixed_after += outcome.not_serial
                row.wrong += bool(outcome.wrong)
                for text in outcome.wrong:
                    progress(f"{command}, {name} {number}: {text}")
                if not subject.revert() or subject.state() != subject.pristine:
                    row.lost += 1
                    subject.reset()
        progress(f"{subject.name}, {HELD}, {command}: {kind}, {row.runs} runs")
    return row


def sweep_drift(change: Change, progress: Callable[[str], None]) -> Iterator[Row]:
    """What others do to a patched environment, with each installer."""
    for tool in drift.TOOLS:
        for name in drift.SCENES:
            row = Row("patchkit", f"{DRIFT} ({tool})", name)
            with tempfile.TemporaryDirectory(dir=change.folder) as folder:
                wrong = drift.play(Path(folder), tool, name, change.env)
            row.runs += 1
            row.lost += any("overwritten" in text for text in wrong)
            row.wrong += bool(wrong)
            for text in wrong or [f"{tool}, {name}: right"]:
                progress(text)
            yield row


def _plain(subject: Subject, command: str) -> None:
    done = subprocess.run(
        subject.line(command), cwd=subject.tree, env=dict(subject.change.env),
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _attack(
    subject: Subject,
    attack: str,
    command: str,
    call: str,
    number: int,
    ends: tuple[State, State],
    row: Row,
) -> bool:
    """One run; whether the call was reached."""
    subject.prepare(command)
    before = subject.state()
    how, when = f"error={attack}", str(number)
    if attack == KILL or attack in SIGNALS:
        how = f"signal={attack.split(maxsplit=1)[0]}"
    if "again" in attack:
        when += "+"
    line = [
        *("strace", "-f", "-qq", "-o", str(subject.change.folder / "trace")),
        *("-e", f"trace={call}", "-e", f"inject={call}:{how}:when={when}"),
        *subject.line(command),
    ]
    done = subprocess.run(
        line, cwd=subject.tree, env=dict(subject.change.env), stdin=subprocess.DEVNULL,
        capture_output=True, check=False, timeout=300,
        preexec_fn=default_signals,
    )  # fmt: skip
    mark = f"--- {attack.partition(' ')[0]} " if attack in SIGNALS else "INJECTED"
    reached = mark.encode() in (subject.change.folder / "trace").read_bytes()
    killed = attack == KILL and done.returncode in (-9, 128 + 9)
    if not reached and not killed:
        subject.revert()
        return False
    row.runs += 1
    now = subject.state()
    mixed = now not in (*ends, before) if command == "recover" else now not in ends
    row.mixed_at_first += mixed
    said = subject.verdict(command)
    if said is not None:
        row.wrong += now != (ends[0] if said == "old" else ends[1])
    elif attack in SIGNALS and command == "recover":
        pass  # it came before the recovery began
    elif attack != KILL and subject.name == "patchkit" and command != "recover":
        row.wrong += 1  # an error was rolled back, and it must not call that interrupted
    if attack in SIGNALS and command != "recover":
        number_of = SIGNALS[attack]
        # A process that the signal ends before it is held is 128 + n to a shell.
        told = {0: ends[1], 128 + number_of: ends[0], -number_of: ends[0]}
        row.wrong += now != told.get(done.returncode)
    worked = subject.go_back(subject.ways[row.runs % len(subject.ways)])
    back = subject.state()
    known = {*ends, subject.pristine}
    if subject.name == "patchkit":
        known.add(_applied(subject))
    row.mixed_after += back not in known or not worked
    reverted = subject.revert()
    if subject.state() != subject.pristine or not reverted:
        row.lost += subject.state() != subject.pristine
        subject.reset()
    return True


def _applied(subject: Subject) -> State:
    """The state with the change applied, computed once."""
    found = getattr(subject, "_applied_state", None)
    if found is None:
        keep = subject.change.folder / "kept"
        shutil.copytree(subject.tree, keep, symlinks=True)
        run_on = Patchkit.__new__(Patchkit)
        run_on.change, run_on.tree = subject.change, keep
        run_on.pristine = subject.pristine
        run_on.revert()
        run_on.go_back("apply")
        found = run_on.state()
        shutil.rmtree(keep)
        subject._applied_state = found  # type: ignore[attr-defined]
    return State(found)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown, a row an attack and command."""
    yield (
        "| tool | attack | command | runs | mixed for the moment | mixed after the way back |"
        " pristine bytes lost | wrong verdicts |"
    )
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        yield (
            f"| {row.tool} | {row.attack} | {row.command} | {row.runs} | {row.mixed_at_first} |"
            f" {row.mixed_after} | {row.lost} | {row.wrong} |"
        )


def main() -> int:
    """The whole sweep; exit code 1 where patchkit fails one."""
    parser = argparse.ArgumentParser(prog="dev.py faults", description=__doc__)
    parser.add_argument("--tool", action="append", choices=SUBJECTS, help="default: patchkit")
    parser.add_argument("--attack", action="append", choices=ATTACKS)
    parser.add_argument("--stride", type=int, default=1, help="every N-th call")
    arguments = parser.parse_args()
    if shutil.which("strace") is None:
        parser.error("needs strace")
    rows = []
    with tempfile.TemporaryDirectory(prefix="patchkit-faults-") as folder:
        change = make_change(Path(folder))
        for name in arguments.tool or ["patchkit"]:
            subject = SUBJECTS[name](change)
            show = lambda text: print(text, file=sys.stderr)  # noqa: E731
            for attack in arguments.attack or ATTACKS:
                if attack == HELD:
                    if isinstance(subject, Patchkit):
                        rows += [
                            sweep_held(subject, command, stride=arguments.stride, progress=show)
                            for command in HELD_COMMANDS
                        ]
                    continue
                if attack == DRIFT:
                    if isinstance(subject, Patchkit):
                        rows += sweep_drift(change, show)
                    continue
                for command in subject.commands:
                    rows.append(
                        sweep(subject, attack, command, stride=arguments.stride, progress=show)
                    )
    print("\n".join(table(rows)))
    return 0 if all(row.clean for row in rows if row.tool == "patchkit") else 1


if __name__ == "__main__":
    sys.exit(main())
