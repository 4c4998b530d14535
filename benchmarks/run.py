"""The benchmark: apply, verify and revert against git apply, GNU patch and quilt.

    python3 dev.py bench [--case abcdefgh] [--rounds N] [--work DIR]

Whole processes are measured: wall time, CPU (user and system, with all children) and peak
memory.  The tools take turns, each on a tree of its own, and the medians count.  A table in
Markdown goes to standard output, progress to standard error, and everything measured to
``build/bench.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.cases import MAKERS, Case
from tests.releases import BUILD

MIB = 1024 * 1024

#: Rounds for each case.  A tool that has used up its seconds joins no further ones.
ROUNDS = {"a": 15, "b": 7, "c": 7, "d": 5, "e": 15, "f": 5, "g": 5, "h": 7}
SECONDS = 45.0

VERIFY_LIMIT = 1.3
RUN_LIMIT = 1.5
GUARD_LIMIT = 10.0
CHANGE_LIMIT = 2.0
MEMORY_LIMIT = 64 * MIB
INPUT_LIMIT = 3


@dataclass(frozen=True)
class Cost:
    """One run, or the medians of several: seconds, seconds, bytes."""

    wall: float
    cpu: float
    peak: float


Key = tuple[str, str, str]  # case, step, tool


@dataclass
class Results:
    """Every run, by case, step and tool."""

    runs: dict[Key, list[Cost]] = field(default_factory=lambda: defaultdict(list))

    def median(self, case: str, step: str, tool: str) -> Cost | None:
        """The medians of the runs, or None where there was none."""
        runs = self.runs.get((case, step, tool))
        if not runs:
            return None
        return Cost(
            median(run.wall for run in runs),
            median(run.cpu for run in runs),
            median(run.peak for run in runs),
        )

    def seconds(self, case: str, tool: str) -> float:
        """The wall time that a tool has used in a case so far."""
        return sum(
            run.wall
            for key, runs in self.runs.items()
            if (key[0], key[2]) == (case, tool)
            for run in runs
        )


class Failure(Exception):
    """A tool did not do what it was measured for."""


def environment(home: Path) -> dict[str, str]:
    """For all tools alike; git finds no repository above the trees."""
    kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "GIT_CEILING_DIRECTORIES": str(home.parent),
        "GIT_CONFIG_NOSYSTEM": "1",
        "QUILT_PC": ".pc",
    }


def measure(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> Cost:
    """One run of ``command``; :class:`Failure` where it does not exit with 0."""
    measurer = [sys.executable, "-I", "-S", str(Path(__file__).with_name("measure.py"))]
    done = subprocess.run(
        [*measurer, *command],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise Failure(f"{shlex.join(command[:6])}: {done.stderr.decode(errors='replace')[-2000:]}")
    seen = json.loads(done.stdout)
    if seen["exit_code"]:
        raise Failure(
            f"{shlex.join(command[:6])} …: exit code {seen['exit_code']}:"
            f" {done.stderr.decode(errors='replace')[-2000:]}"
        )
    return Cost(seen["wall"], seen["cpu"], seen["peak"])


Step = Callable[[Case, Path], list[str]]


@dataclass(frozen=True)
class Tool:
    """How a tool takes the steps.  A step that it has not is not there."""

    name: str
    steps: Mapping[str, Step]


def _patchkit(*arguments: str) -> Step:
    def command(case: Case, tree: Path) -> list[str]:
        bundles = [] if case.bundles is None else ["--bundles", str(case.bundles)]
        names = [case.bundle] if arguments != ("verify",) else []
        return [
            *(sys.executable, "-m", "patchkit", "--root", str(tree), *bundles),
            *(*arguments, *names),
        ]

    return command


def _run(case: Case, tree: Path) -> list[str]:
    patchkit = [sys.executable, "-m", "patchkit", "--root", str(tree)]
    return [*patchkit, "run", "--bundle", case.bundle, "--", "true"]


def _git_apply(case: Case, tree: Path) -> list[str]:
    return ["git", "apply", "-p1", *map(str, case.patches)]


def _git_apply_back(case: Case, tree: Path) -> list[str]:
    return ["git", "apply", "-p1", "--reverse", *map(str, reversed(case.patches))]


def _patch_loop(case: Case, tree: Path) -> list[str]:
    return ["sh", "-ec", 'for p; do patch -p1 -s -f -i "$p"; done', "sh", *map(str, case.patches)]


def _patch_loop_back(case: Case, tree: Path) -> list[str]:
    loop = 'for p; do patch -p1 -s -f -R -i "$p"; done'
    return ["sh", "-ec", loop, "sh", *map(str, reversed(case.patches))]


def _quilt(*arguments: str) -> Step:
    def command(case: Case, tree: Path) -> list[str]:
        common = Path(os.path.commonpath([path.parent for path in case.patches]))
        series = common / "series"
        if not series.exists():
            series.write_text("".join(f"{path.relative_to(common)}\n" for path in case.patches))
        return ["env", f"QUILT_PATCHES={common}", "quilt", "--quiltrc", "-", *arguments]

    return command


def tools() -> list[Tool]:
    """patchkit, and the others that are installed."""
    found = [
        Tool(
            "patchkit",
            {
                "apply": _patchkit("apply"),
                "verify": _patchkit("verify"),
                "run": _run,
                "revert": _patchkit("revert"),
            },
        ),
        Tool("git apply", {"apply": _git_apply, "revert": _git_apply_back}),
    ]
    if shutil.which("patch"):
        steps: dict[str, Step] = {"apply": _patch_loop, "revert": _patch_loop_back}
        found.append(Tool("GNU patch", steps))
    if shutil.which("quilt"):
        steps = {"apply": _quilt("push", "-aq"), "revert": _quilt("pop", "-aq")}
        found.append(Tool("quilt", steps))
    return found


def digest(tree: Path, names: Sequence[str]) -> str:
    """One digest over the named files, absent ones included."""
    total = hashlib.sha256()
    for name in names:
        path = tree / name
        data = path.read_bytes() if path.exists() else b"absent"
        total.update(name.encode() + b"\0" + hashlib.sha256(data).digest())
    return total.hexdigest()


def run_case(
    case: Case, rounds: int, work: Path, results: Results, *, skip: Sequence[str] = ()
) -> None:
    """All tools in turn, ``rounds`` times; their results are compared in the first round."""
    home = work / "home"
    home.mkdir(exist_ok=True)
    env = environment(home)
    present = [tool for tool in tools() if tool.name not in skip]
    trees = {}
    for tool in present:
        trees[tool.name] = work / f"{case.key}-{tool.name.replace(' ', '-')}"
        shutil.copytree(case.tree, trees[tool.name], symlinks=True)
    os.sync()
    pristine = digest(case.tree, case.patched_files)
    applied = None
    starts = {
        "import click": [sys.executable, "-c", "import click"],
        "bare Python": [sys.executable, "-c", "pass"],
    }
    for number in range(rounds):
        for name, command in starts.items():
            results.runs[case.key, "start", name].append(measure(command, home, env))
        slow = {tool.name for tool in present if results.seconds(case.key, tool.name) > SECONDS}
        for step in ("apply", "verify", "run", "revert"):
            for tool in present:
                if step not in tool.steps or tool.name in slow:
                    continue
                if step == "run":
                    if case.key not in "ae":
                        continue
                    _measure_starts(case, trees[tool.name], home, env, results)
                tree = trees[tool.name]
                command = tool.steps[step](case, tree)
                results.runs[case.key, step, tool.name].append(measure(command, tree, env))
                if number == 0:
                    found = digest(tree, case.patched_files)
                    if step == "apply":
                        applied = applied or found
                    if found != (pristine if step == "revert" else applied):
                        raise Failure(f"{tool.name} {step} gives other bytes in case {case.key}")
        progress(f"  round {number + 1}/{rounds}")
    for tree in trees.values():
        shutil.rmtree(tree)


def _measure_starts(
    case: Case, tree: Path, home: Path, env: Mapping[str, str], results: Results
) -> None:
    """``true`` by itself, and Python with a site directory that has the guard and has it not."""
    results.runs[case.key, "start", "true"].append(measure(["true"], home, env))
    start = [sys.executable, "-c", f"import site; site.addsitedir({str(tree)!r})"]
    for name, action in (("with guard", "install"), ("without guard", "uninstall")):
        command = [sys.executable, "-m", "patchkit", "--root", str(tree), "guard", action]
        measure(command, home, env)
        measure(start, home, env)  # byte-code of the guard
        results.runs[case.key, "start", name].append(measure(start, home, env))


def progress(text: str) -> None:
    """A line for a person who waits."""
    print(text, file=sys.stderr, flush=True)


def reference(step: str) -> str:
    """What the ratios of a step are taken over."""
    return "import click" if step == "verify" else "git apply"


def table(cases: Sequence[Case], results: Results) -> list[str]:
    """The Markdown table of everything measured."""
    lines = [
        "| case | step | tool | wall ms | CPU ms | peak MiB | CPU ratio | runs |",
        "| --- | --- | --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for case in cases:
        for step in ("start", "apply", "verify", "run", "revert"):
            base = results.median(case.key, "start" if step == "verify" else step, reference(step))
            for key, runs in results.runs.items():
                if key[:2] != (case.key, step):
                    continue
                cost = results.median(*key)
                assert cost is not None
                ratio = f"{cost.cpu / base.cpu:.2f} × {reference(step)}" if base else ""
                lines.append(
                    f"| {case.key} | {step} | {key[2]} | {cost.wall * 1e3:.0f} |"
                    f" {cost.cpu * 1e3:.0f} | {cost.peak / MIB:.0f} | {ratio} | {len(runs)} |"
                )
    return lines


@dataclass(frozen=True)
class Target:
    """A promise with its limit and what was seen, in one unit."""

    text: str
    limit: float
    seen: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether what was seen is within the limit."""
        return self.seen <= self.limit


def targets(cases: Sequence[Case], results: Results) -> list[Target]:
    """What the project promises, for each case that was run."""
    found = []
    verify = {}
    for case in cases:
        key = case.key
        ours = {step: results.median(key, step, "patchkit") for step in ("apply", "revert")}
        checked = results.median(key, "verify", "patchkit")
        click = results.median(key, "start", "import click")
        python = results.median(key, "start", "bare Python")
        assert checked and click and python
        verify[key] = checked
        if key in "ae":
            found += _launch_targets(key, results, checked)
            text = f"({key}) verify, CPU over that of `python -c 'import click'`"
            found.append(Target(text, VERIFY_LIMIT, checked.cpu / click.cpu, "×"))
        else:
            for step, mine in ours.items():
                theirs = results.median(key, step, "git apply")
                assert mine and theirs
                limit = CHANGE_LIMIT * theirs.cpu + python.cpu
                text = f"({key}) {step}, CPU: 2 × `git apply` + Python's start"
                found.append(Target(text, limit * 1e3, mine.cpu * 1e3, "ms"))
        peak = max(cost.peak for cost in (*ours.values(), checked) if cost)
        if key in "fgh":
            text = f"({key}) peak memory over that of Python: 3 × the patch and its files"
            limit, seen = INPUT_LIMIT * case.input_bytes / MIB, (peak - python.peak) / MIB
            found.append(Target(text, limit, seen, "MiB"))
            continue
        text = f"({key}) peak memory: 64 MiB + the patches"
        found.append(Target(text, (MEMORY_LIMIT + case.patch_bytes) / MIB, peak / MIB, "MiB"))
    if {"a", "e"} <= set(verify):
        text = "verify in (e), CPU over that in (a): the same within the noise of 10 %"
        found.append(Target(text, 1.1, verify["e"].cpu / verify["a"].cpu, "×"))
    return found


def _launch_targets(key: str, results: Results, verify: Cost) -> list[Target]:
    run = results.median(key, "run", "patchkit")
    true, with_guard, without = (
        results.median(key, "start", name) for name in ("true", "with guard", "without guard")
    )
    assert run and true and with_guard and without
    return [
        Target(
            f"({key}) run, CPU that it adds to a launch over that of verify",
            RUN_LIMIT,
            (run.cpu - true.cpu) / verify.cpu,
            "×",
        ),
        Target(
            f"({key}) the guard, CPU that it adds to the start of an interpreter",
            GUARD_LIMIT,
            (with_guard.cpu - without.cpu) * 1e3,
            "ms",
        ),
    ]


def target_table(found: Sequence[Target]) -> list[str]:
    """The Markdown table of the targets."""
    lines = ["| target | limit | seen | met |", "| --- | ---: | ---: | --- |"]
    for target in found:
        digits = 2 if target.unit == "×" else 0
        lines.append(
            f"| {target.text} | {target.limit:.{digits}f} {target.unit} |"
            f" {target.seen:.{digits}f} {target.unit} | {'yes' if target.met else '**no**'} |"
        )
    return lines


def versions() -> str:
    """The tools that were measured, in one line."""
    found = [f"Python {platform.python_version()}", f"{os.cpu_count()} cores"]
    for command in (("git", "--version"), ("patch", "--version"), ("quilt", "--version")):
        if shutil.which(command[0]):
            output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            first = output.splitlines()[0]
            found.append(first if first.startswith(("git", "GNU")) else f"quilt {first}")
    return ", ".join(found)


def main() -> int:
    """Build the inputs, measure, print; exit code 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="dev.py bench", description=__doc__)
    parser.add_argument("--case", default="abcdefgh", help="letters of the cases to run")
    parser.add_argument("--rounds", type=int, help="rounds of each case")
    parser.add_argument("--skip", action="append", default=[], help="a tool to leave out: quilt")
    parser.add_argument("--work", type=Path, help="a folder outside any git repository")
    arguments = parser.parse_args()
    results = Results()
    cases = []
    with tempfile.TemporaryDirectory(dir=arguments.work, prefix="patchkit-bench-") as folder:
        work = Path(folder)
        for key in arguments.case:
            (work / key).mkdir()
            progress(f"case {key}: making the input")
            case = MAKERS[key](work / key)
            cases.append(case)
            progress(f"case {key}: {case.title}")
            rounds = arguments.rounds or ROUNDS[key]
            run_case(case, rounds, work, results, skip=arguments.skip)
        found = targets(cases, results)
    print(f"{versions()}\n")
    print("\n".join(f"- ({case.key}) {case.title}" for case in cases))
    print()
    print("\n".join(table(cases, results)))
    print()
    print("\n".join(target_table(found)))
    record = {
        "versions": versions(),
        "cases": {case.key: case.title for case in cases},
        "runs": [
            {"case": key[0], "step": key[1], "tool": key[2], **vars(run)}
            for key, runs in results.runs.items()
            for run in runs
        ],
        "targets": [{**vars(target), "met": target.met} for target in found],
    }
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench.json").write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(target.met for target in found) else 1


if __name__ == "__main__":
    sys.exit(main())
