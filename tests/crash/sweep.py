"""The whole sweep, and its table.

Each row is kept under build/crash/ as soon as it is there, so that a sweep that was stopped
goes on where it was; another version of the tool's sources starts anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.crash.errors import CALLS, FOR_GOOD, Errors, half_done
from tests.crash.kills import Explorer, Row
from tests.crash.power import power_cuts
from tests.crash.subjects import (
    FIVE,
    KINDS,
    Change,
    GitApply,
    Patch,
    Patchkit,
    Quilt,
    Subject,
    every_kind,
    make_change,
)
from tests.crash.tracer import NotHere, must_work
from tests.releases import BUILD, ROOT

SUBJECTS: dict[str, type[Subject]] = {one.name: one for one in (Patchkit, GitApply, Patch, Quilt)}
ATTACKS = ("kill", "power", "error")
GUARDED = ("EIO", "EACCES", "EMFILE")
_OTHERS_ERRORS = ("ENOSPC", "EIO")

Job = Callable[[], list[Row]]


def jobs(explorer: Explorer, attacks: Sequence[str], stride: int) -> Iterator[tuple[str, Job]]:
    """Everything that is done to one tool, by name; each gives rows."""
    subject = explorer.subject
    errors = Errors(explorer)
    if "kill" in attacks:
        for command in subject.commands:
            yield f"kill {command}", lambda c=command: [explorer.kills(c, stride)[0]]  # type: ignore[misc]
    if not isinstance(subject, Patchkit):
        if "error" in attacks:
            for error in _OTHERS_ERRORS:
                for command in subject.commands:
                    yield (
                        f"{error} {command}",
                        lambda e=error, c=command: [errors.attack(e, c, stride=stride)],  # type: ignore[misc]
                    )
        return
    if "power" in attacks:
        for command in (*subject.commands, "recover"):
            yield f"power {command}", lambda c=command: _power(explorer, c, stride)  # type: ignore[misc]
    if "error" in attacks:
        for good in (False, True):
            for error in FOR_GOOD if good else CALLS:
                for command in (*subject.commands, "recover"):
                    yield (
                        f"{error} {command}{' for good' if good else ''}",
                        lambda e=error, c=command, g=good: [  # type: ignore[misc]
                            errors.recovery(e, for_good=g, stride=stride)
                            if c == "recover"
                            else errors.attack(e, c, for_good=g, stride=stride)
                        ],
                    )
        for error in GUARDED:
            yield f"{error} verify", lambda e=error: [errors.guard(e, stride=stride)]  # type: ignore[misc]
    if "kill" in attacks:
        for command in subject.commands:
            yield f"kill again {command}", lambda c=command: [_again(explorer, c, stride)]  # type: ignore[misc]


def _again(explorer: Explorer, command: str, stride: int) -> Row:
    explorer.subject.start(command)
    _, states = explorer.steps(command)
    return explorer.kills_of_the_way_back(command, states[::stride])


def _power(explorer: Explorer, command: str, stride: int) -> list[Row]:
    subject = explorer.subject
    if command != "recover":
        old, new = (subject.states[name] for name in subject.commands[command])
        ends = ({old, new}, {new})
        return [power_cuts(explorer, command, subject.start(command), ends, stride=stride)]
    back, forward = half_done(explorer)
    old, new = (subject.states[name] for name in subject.commands["apply"])
    one = power_cuts(explorer, command, back, ({old}, {old}), stride=stride)
    other = power_cuts(explorer, command, forward, ({new}, {new}), stride=stride)
    return [merged([one, other])]


def merged(rows: Sequence[Row]) -> Row:
    """Rows of one attack as one."""
    first = rows[0]
    total = Row(first.tool, first.attack, first.command)
    for row in rows:
        for name in ("runs", "mixed_at_first", "mixed_after", "lost", "wrong"):
            setattr(total, name, getattr(total, name) + getattr(row, name))
        total.findings += row.findings
        total.sequences += row.sequences
    return total


class Kept:
    """Rows that are done, under build/crash/."""

    def __init__(self, stride: int) -> None:
        sources = sorted((ROOT / "patchkit").rglob("*.py"))
        mark = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        self.folder = BUILD / "crash" / f"{mark[:12]}-{stride}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.json"

    def read(self, name: str) -> list[Row] | None:
        """The rows of a job that is done."""
        path = self._path(name)
        if not path.exists():
            return None
        return [Row(**row) for row in json.loads(path.read_text())]

    def write(self, name: str, rows: Sequence[Row]) -> None:
        """Keep the rows of a job."""
        path = self._path(name)
        aside = path.with_suffix(".new")
        aside.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
        aside.rename(path)


def table(rows: Sequence[tuple[str, Row]]) -> Iterator[str]:
    """Markdown, a row an attack and command."""
    yield (
        "| tool | change | attack | command | runs | mixed for the moment | mixed after the way"
        " back | pristine bytes lost | wrong verdicts |"
    )
    yield "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for change, row in rows:
        yield (
            f"| {row.tool} | {change} | {row.attack} | {row.command} | {row.runs} |"
            f" {row.mixed_at_first} | {row.mixed_after} | {row.lost} | {row.wrong} |"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def sweep(arguments: argparse.Namespace, folder: Path) -> list[tuple[str, Row]]:
    """Every job that is asked for and not yet done."""
    kept = Kept(arguments.stride)
    rows: list[tuple[str, Row]] = []
    five: Change | None = None
    for label in arguments.change or (FIVE, KINDS):
        for tool in arguments.tool or SUBJECTS:
            if label != FIVE and tool != Patchkit.name:
                continue  # the other tools are measured on the real change
            explorer: Explorer | None = None
            made: dict[str, Job] = {}
            # The change of every kind has edits, too: errors and power cuts need no other.
            usual = ("kill",) if label == FIVE and tool == Patchkit.name else ATTACKS
            wanted = arguments.attack or usual
            # The names of the jobs need no tree; what they do does.
            for name, _ in jobs(_Names(SUBJECTS[tool]), wanted, 1):  # type: ignore[arg-type]
                full = f"{tool} {label} {name}"
                done = kept.read(full)
                if done is None and arguments.only_kept:
                    continue
                if done is None:
                    started = time.monotonic()
                    if explorer is None:
                        five = five or make_change(folder)
                        change = five if label == FIVE else every_kind(five, folder / "kinds")
                        explorer = Explorer(SUBJECTS[tool](change), _progress(full))
                        made = dict(jobs(explorer, wanted, arguments.stride))
                    explorer.progress = _progress(full)
                    done = made[name]()
                    if explorer.outside:
                        done[0].find("wrong", f"outside of what is watched: {explorer.outside[:5]}")
                        explorer.outside.clear()
                    kept.write(full, done)
                    _say(f"{full}: {sum(r.runs for r in done)} runs, {_bad(done)}"
                         f" ({time.monotonic() - started:.0f} s)")  # fmt: skip
                rows += [(label, row) for row in done]
    return rows


class _Names:
    """Stands for an explorer where only the names of the jobs count."""

    def __init__(self, subject: type[Subject]) -> None:
        self.subject = subject.__new__(subject)


def _bad(rows: Sequence[Row]) -> str:
    counts = (sum(getattr(row, name) for row in rows) for name in ("mixed_after", "lost", "wrong"))
    return "mixed after {}, lost {}, wrong {}".format(*counts)


def _progress(name: str) -> Callable[[str], None]:
    last = time.monotonic()

    def show(text: str) -> None:
        nonlocal last
        if time.monotonic() - last > 20:
            last = time.monotonic()
            _say(f"  {name}: {text}")

    return show


def main() -> int:
    """The whole sweep; exit code 1 where patchkit fails one."""
    parser = argparse.ArgumentParser(prog="dev.py crashes", description=__doc__)
    parser.add_argument("--tool", action="append", choices=SUBJECTS, help="default: all")
    parser.add_argument("--change", action="append", choices=(FIVE, KINDS), help="default: both")
    parser.add_argument("--attack", action="append", choices=ATTACKS, help="default: all")
    parser.add_argument("--stride", type=int, default=1, help="every N-th call")
    parser.add_argument("--json", action="store_true", help="one object, with what was found")
    parser.add_argument("--only-kept", action="store_true", help="show what is done, run nothing")
    parser.add_argument("--fresh", action="store_true", help="forget what is done")
    arguments = parser.parse_args()
    missing = [tool for tool in ("git", "patch", "quilt") if shutil.which(tool) is None]
    if missing:
        parser.error(f"needs {' and '.join(missing)}")
    try:
        must_work()
    except NotHere as error:
        parser.error(str(error))
    if arguments.fresh:
        shutil.rmtree(BUILD / "crash", ignore_errors=True)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with tempfile.TemporaryDirectory(prefix="patchkit-crash-") as folder:
        rows = sweep(arguments, Path(folder))
    if arguments.json:
        found = [{"change": change, **dataclasses.asdict(row)} for change, row in rows]
        print(json.dumps({"rows": found}, indent=1))
    else:
        print("\n".join(table(rows)))
    return 0 if all(row.clean for _, row in rows if row.tool == Patchkit.name) else 1


if __name__ == "__main__":
    sys.exit(main())
