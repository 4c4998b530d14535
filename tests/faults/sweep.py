"""The attacks: a kill, or an error of the system, at each call that changes a tree.

strace counts the calls and injects; the process under attack is the real command.  After
each attack the tool is asked for its verdict, takes one of its ways back, and reverts; what
is counted is what must be zero for patchkit: trees that stay mixed, pristine bytes that are
lost, verdicts that are wrong.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.subjects import GitApply, Patchkit, Quilt, State, Subject, make_change

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
KILL = "SIGKILL"
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES", "EMFILE", "EINTR")
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
    how = f"signal={attack}" if attack == KILL else f"error={attack}"
    line = [
        *("strace", "-f", "-qq", "-o", str(subject.change.folder / "trace")),
        *("-e", f"trace={call}", "-e", f"inject={call}:{how}:when={number}"),
        *subject.line(command),
    ]
    done = subprocess.run(
        line, cwd=subject.tree, env=dict(subject.change.env), stdin=subprocess.DEVNULL,
        capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    reached = b"INJECTED" in (subject.change.folder / "trace").read_bytes()
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
    elif attack != KILL and subject.name == "patchkit" and command != "recover":
        row.wrong += 1  # an error was rolled back, and it must not call that interrupted
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
    parser.add_argument("--attack", action="append", choices=(KILL, *ERRORS))
    parser.add_argument("--stride", type=int, default=1, help="every N-th call")
    arguments = parser.parse_args()
    if shutil.which("strace") is None:
        parser.error("needs strace")
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    rows = []
    with tempfile.TemporaryDirectory(prefix="patchkit-faults-") as folder:
        change = make_change(Path(folder))
        for name in arguments.tool or ["patchkit"]:
            subject = SUBJECTS[name](change)
            for attack in arguments.attack or (KILL, *ERRORS):
                for command in subject.commands:
                    show = lambda text: print(text, file=sys.stderr)  # noqa: E731
                    rows.append(
                        sweep(subject, attack, command, stride=arguments.stride, progress=show)
                    )
    print("\n".join(table(rows)))
    return 0 if all(row.clean for row in rows if row.tool == "patchkit") else 1


if __name__ == "__main__":
    sys.exit(main())
