"""patchkit, git, GNU patch and three Python libraries on the same outside cases.

    python3 dev.py peers [--every N] [--sdists]

Every patch that is found makes its plain cases; the variants are made of every patch of the
sdists and of one in N of Debian's.  A cell counts the cases in which the tool did what the
class asks for: where the references apply, exactly their tree; where they refuse, a refusal
that leaves the tree as it was.  Markdown goes to standard output, progress and what no rule
covers to standard error; the exit code is 1 where there is any of that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.outside import decided, sources, tools
from tests.outside.cases import Case
from tests.outside.judges import (
    CLASSES,
    GNU_PATCH,
    Bench,
    Judged,
    Outcome,
    engine,
    judged,
    normal,
)
from tests.releases import ROOT

#: One Debian patch in so many gets variants.
EVERY = 8
#: What can go wrong, in the order of the table.
WRONG = (
    ("other", "applied, another tree"),
    ("both-refuse", "applied what both refuse"),
    ("changed", "refused, and changed the tree"),
    ("refused", "refused what is to be applied"),
)


def log(text: str) -> None:
    """Progress, beside the table."""
    print(text, file=sys.stderr, flush=True)


class Server:
    """A tool in an environment of its own, one case after another (tools.py)."""

    def __init__(self, python: str, name: str, bench: Bench) -> None:
        self._bench = bench
        self._process = subprocess.Popen(
            [python, str(Path(tools.__file__)), name],
            env={**bench.env, "PYTHONPATH": str(ROOT) if name == "patchkit" else ""},
            cwd=bench.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the tool's server ended")
        return line.strip()

    def __call__(self, case: Case) -> Outcome:
        """Lay the case out, let the tool work, read the tree."""
        assert self._process.stdin is not None
        self._bench.lay(case)
        question = [str(self._bench.tree), str(self._bench.patch), case.strip, case.reverse]
        print(json.dumps(question), file=self._process.stdin, flush=True)
        applied = self._answer() == "0"
        return Outcome(applied, self._bench.left())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def grade(one: Judged, outcome: Outcome) -> str:
    """``right``, or which of :data:`WRONG`."""
    refuse = one.kind in ("agree-refuse", "refuse-lenient")
    if outcome.applied:
        if refuse:
            return "both-refuse"
        return "right" if outcome.tree == one.wanted else "other"
    if outcome.tree != normal(one.case.tree):
        return "changed"
    return "right" if refuse else "refused"


def gather(*, only_sdists: bool) -> Iterator[tuple[list[sources.Found], bool]]:
    """The patches of each source; with it whether it is one of the sdists."""
    yield sources.from_sdists(), True
    for name in () if only_sdists else sources.DEBIAN:
        try:
            yield sources.from_debian(name), False
        except sources.Unreachable as error:
            log(f"left out: {error}")


def _one_in(count: int) -> Callable[[int], bool]:
    return lambda number: number % count == 0


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Counts:
    """What was counted, and the tables of it."""

    def __init__(self, tools: list[str]) -> None:
        self.tools = tools
        self.cases: Counter[tuple[str, str]] = Counter()
        self.right: Counter[tuple[str, str, str]] = Counter()
        self.grades: Counter[tuple[str, str]] = Counter()
        self.rules: Counter[str] = Counter()
        self.faults: list[str] = []

    def add(self, one: Judged, outcomes: dict[str, Outcome]) -> None:
        """One case, and what each tool made of it."""
        self.cases[one.case.suite, one.kind] += 1
        for name, outcome in outcomes.items():
            got = grade(one, outcome)
            self.grades[name, got] += 1
            self.right[one.case.suite, one.kind, name] += got == "right"
        result = engine(one.case)
        command = grade(one, outcomes["patchkit"])
        rule = None if decided.is_right(one, result) else decided.rule_for(one, result)
        if rule is not None:
            self.rules[rule.name] += 1
        elif command != "right":
            self.faults.append(f"{one.kind}: {one.case.name}: {command}")

    def by_class(self) -> str:
        """How many cases each tool got right, by suite and class."""
        suites = list(dict.fromkeys(suite for suite, _ in self.cases))
        rows = []
        for shown in [[suite] for suite in suites] + [suites]:
            for kind in CLASSES:
                total = sum(self.cases[suite, kind] for suite in shown)
                cells = [sum(self.right[s, kind, name] for s in shown) for name in self.tools]
                if total:
                    head = shown[0] if len(shown) == 1 else "all"
                    rows.append([head, kind, *map(str, [total, *cells])])
        return table(["suite", "class", "cases", *self.tools], rows)

    def by_grade(self) -> str:
        """What each tool did, over all cases."""
        keys = ["right", *(key for key, _ in WRONG)]
        rows = [[n, *(str(self.grades[n, key]) for key in keys)] for n in self.tools]
        return table(["tool", "right", *(text for _, text in WRONG)], rows)

    def by_rule(self) -> str:
        """How often each rule was needed."""
        reasons = {rule.name: rule.why for rule in decided.RULES}
        rows = [[name, str(number), reasons[name]] for name, number in self.rules.most_common()]
        return table(["kind", "cases", "why"], rows)


def main() -> int:
    """Judge, run every tool on every case, print."""
    parser = argparse.ArgumentParser(prog="dev.py peers", description=__doc__)
    parser.add_argument("--peers", help="the Python that has patch-ng, whatthepatch and unidiff")
    parser.add_argument(
        "--every", type=int, default=EVERY, help="variants of one Debian patch in N"
    )
    parser.add_argument("--sdists", action="store_true", help="leave Debian's packages out")
    options = parser.parse_args()
    if GNU_PATCH is None:
        log("needs GNU patch")
        return 1
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = Bench(Path(folder))
        servers = {}
        libraries = ("patch-ng", "whatthepatch", "unidiff") if options.peers else ()
        for name in ("patchkit", *libraries):
            python = sys.executable if name == "patchkit" else os.path.abspath(options.peers)
            servers[name] = Server(python, name, bench)
            stack.callback(servers[name].close)
        counts = Counts(["patchkit", "git apply", "patch --fuzz=0", "patch", *libraries])
        for found, small in gather(only_sdists=options.sdists):
            varied = _one_in(1 if small else max(options.every, 1))
            for one in judged(bench, found, varied=varied):
                outcomes = {name: server(one.case) for name, server in servers.items()}
                outcomes["git apply"], outcomes["patch --fuzz=0"] = one.by_git, one.by_gnu
                outcomes["patch"] = bench.gnu(one.case)
                counts.add(one, outcomes)
                if counts.cases.total() % 250 == 0:
                    log(f"{counts.cases.total()} cases, now {one.case.name}")
    print(counts.by_class(), counts.by_grade(), counts.by_rule(), sep="\n\n")
    for fault in counts.faults:
        log(f"no rule: {fault}")
    unused = [rule.name for rule in decided.RULES if rule.name not in counts.rules]
    if unused and not options.sdists:
        log(f"no longer needed: {', '.join(unused)}")
    return 1 if counts.faults else 0


if __name__ == "__main__":
    sys.exit(main())
