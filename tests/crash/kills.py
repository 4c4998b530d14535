"""Kills at every call that changes a tree, and again in the recovery, to any depth.

A kill leaves the disk as the calls before it left it.  So a state of the disk is what counts,
not the way to it: the states after a kill in a command are found with real kills, one a run;
each new state is judged once, and ``recover`` from it is stopped before every call, which shows
all states that a kill in there would leave.  The new ones of these are judged in turn, until
none is new.  That covers a kill inside a recovery inside a recovery, and so on, for every
combination of calls, in some hundred runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.crash.disk import Picture
from tests.crash.subjects import Patchkit, State, Subject
from tests.crash.tracer import KILL, Action, Call, Ended, trace


@dataclass
class Row:
    """What came of one attack on one command.  ``findings`` says what was counted, and where."""

    tool: str
    attack: str
    command: str
    runs: int = 0
    mixed_at_first: int = 0
    mixed_after: int = 0
    lost: int = 0
    wrong: int = 0
    sequences: list[int] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is counted that must not be."""
        return not (self.mixed_after or self.lost or self.wrong)

    def find(self, column: str, what: str) -> None:
        """Count one, and keep the first ones to look at."""
        setattr(self, column, getattr(self, column) + 1)
        if len(self.findings) < 20:
            self.findings.append(f"{column}: {what}")


@dataclass
class Outcome:
    """What a way back from a state led to."""

    good: bool  # the tool says that it worked
    end: str  # key of the picture
    state: State
    steps: list[str]  # the states that a kill in it would leave, where it is the first way
    text: str


@dataclass
class Node:
    """A state of the disk, and what is known of it."""

    picture: Picture
    state: State
    says: str | None = None
    ways: dict[str, Outcome] = field(default_factory=dict)


class Explorer:
    """The states of one tool's disk, each judged once."""

    def __init__(
        self, subject: Subject, progress: Callable[[str], None] = lambda text: None
    ) -> None:
        self.subject = subject
        self.progress = progress
        self.nodes: dict[str, Node] = {}
        self.outside: list[str] = []
        self._reverted: dict[str, tuple[str | None, bool]] = {}
        self._pictures: dict[str, Picture] = {}

    # -- runs -------------------------------------------------------------------------

    def steps(self, command: str) -> tuple[Ended, list[Picture]]:
        """Run a command, stopped before each call that changes the tree: what it looked like
        before each."""
        seen: list[Picture] = []

        def stop(call: Call) -> Action:
            if self._counts(call):
                seen.append(self.subject.region.look())
            return None

        return self._trace(command, stop), seen

    def killed_at(self, command: str, number: int) -> Picture | None:
        """Run a command, killed before its ``number``-th such call: what it looked like when
        it was stopped there, if it got there."""
        count = 0
        seen: list[Picture] = []

        def stop(call: Call) -> Action:
            nonlocal count
            count += self._counts(call)
            if count != number:
                return None
            seen.append(self.subject.region.look())
            return KILL

        subject = self.subject
        trace(subject.line(command), subject.env, subject.cwd, stop)  # the real command
        return seen[0] if seen else None

    def _trace(self, command: str, stop: Callable[[Call], Action]) -> Ended:
        return self.subject.trace(command, stop)

    def _counts(self, call: Call) -> bool:
        """Whether it concerns the tree.  What changes there must lie where we look."""
        region = self.subject.region
        self.outside += [path for path in call.paths if not region.holds(path)]
        return any(path == region.tree or f"{path}/".startswith(f"{region.tree}/")
                   for path in call.paths)  # fmt: skip

    # -- states -----------------------------------------------------------------------

    def judged(self, picture: Picture) -> Node:
        """What the tool says of a state."""
        node = self.nodes.get(picture.key)
        if node is None:
            node = self.nodes[picture.key] = Node(picture, self.subject.state(picture))
            self.subject.region.restore(picture)
            node.says = self.subject.says()
            if self.subject.region.look().key != picture.key:
                self.outside.append(f"asking changed the tree of {picture.key}")
            self.progress(f"{self.subject.name}: {len(self.nodes)} states")
        return node

    def after(self, picture: Picture, command: str) -> Outcome:
        """Where a way back, or another command, leads from a state."""
        node = self.judged(picture)
        if command not in node.ways:
            node.ways[command] = self._way(picture, command)
        return node.ways[command]

    def _way(self, picture: Picture, way: str) -> Outcome:
        self.subject.region.restore(picture)
        seen: list[Picture] = []
        if way == next(iter(self.subject.ways)):
            ended, seen = self.steps(way)
        else:
            ended = self.subject.run(way)
        end = self.subject.region.look()
        for step in (*seen, end):
            self._pictures.setdefault(step.key, step)
        keys = [step.key for step in seen]
        return Outcome(ended.code == 0, end.key, self.subject.state(end), keys, ended.stderr)

    def reverted(self, end: str) -> tuple[str | None, bool]:
        """What the tool says of the end of a way back, and whether a revert from there leaves
        pristine files and nothing else."""
        if end not in self._reverted:
            self.subject.region.restore(self._pictures[end])
            says = self.subject.says()
            self.subject.run("revert")
            clean = self.subject.is_pristine(self.subject.region.look())
            self._reverted[end] = (says, clean)
        return self._reverted[end]

    # -- rows -------------------------------------------------------------------------

    def count(
        self,
        row: Row,
        where: str,
        picture: Picture,
        ends: set[State],
        ways: Iterable[str] | None = None,
    ) -> None:
        """Judge one state that an attack left, by all ways back or some; ``ends`` is what it
        may be in the end."""
        subject, node = self.subject, self.judged(picture)
        row.runs += 1
        row.mixed_at_first += node.state not in subject.by_state
        if node.says is not None and node.state != subject.states[node.says]:
            row.find("wrong", f"{where}: it says {node.says}")
        if not isinstance(subject, Patchkit):
            self._count_kindly(row, where, picture)
            return
        bad, lost = [], []
        for way in subject.ways if ways is None else ways:
            outcome = self.after(picture, way)
            to = subject.ways[way]
            wanted = ends if to is None else {subject.states[to]}
            says, clean = self.reverted(outcome.end)
            state = None if says is None else subject.states[says]
            if not outcome.good or outcome.state not in wanted or state != outcome.state:
                now = subject.by_state.get(outcome.state, "mixed")
                bad.append(f"{way}: {now}, it says {says}; {outcome.text.strip()[:300]}")
            if not clean:
                lost.append(way)
        if bad:
            row.find("mixed_after", f"{where}: {bad}")
        if lost:
            row.find("lost", f"{where}: {lost}")

    def _count_kindly(self, row: Row, where: str, picture: Picture) -> None:
        """For a tool that promises nothing: the best of its ways back counts, whatever it says."""
        outcomes = [self.after(picture, way) for way in self.subject.ways]
        if all(outcome.state not in self.subject.by_state for outcome in outcomes):
            row.find("mixed_after", where)
        if not any(self.reverted(outcome.end)[1] for outcome in outcomes):
            row.find("lost", where)

    def kills(self, command: str, stride: int = 1) -> tuple[Row, list[Picture]]:
        """A real SIGKILL before each call of a command; and the states that were left."""
        subject = self.subject
        row = Row(subject.name, "SIGKILL", command)
        old, new = (subject.states[name] for name in subject.commands[command])
        left = []
        for number in range(1, 100_000, stride):
            subject.start(command)
            if self.killed_at(command, number) is None:
                break
            left.append(subject.region.look())
            self.count(row, f"before call {number}", left[-1], {old, new})
        return row, left

    def kills_of_the_way_back(self, command: str, left: list[Picture]) -> Row:
        """The same in the ``recover`` of what these kills left, in the one of what a kill in
        that leaves, and so on, until no state is new.

        The row also says how many sequences of one, two and three kills that is.
        """
        subject = self.subject
        recover = next(iter(subject.ways))
        row = Row(subject.name, "SIGKILL", f"recover, again and again, after {command}")
        ends = {subject.states[name] for name in subject.commands[command]}
        waiting = [picture.key for picture in left]
        seen = set()
        for picture in left:
            self._pictures.setdefault(picture.key, picture)
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            outcome = self.after(self._pictures[state], recover)
            for number, step in enumerate(outcome.steps, 1):
                where = f"{state[:8]}, before call {number}"
                self.count(row, where, self._pictures[step], ends, [recover])
                waiting.append(step)
        row.sequences = self._sequences([picture.key for picture in left])
        return row

    def _sequences(self, left: list[str]) -> list[int]:
        recover = next(iter(self.subject.ways))
        weights: dict[str, int] = {}
        for state in left:
            weights[state] = weights.get(state, 0) + 1
        counts = []
        for _ in range(3):
            counts.append(sum(weights.values()))
            after: dict[str, int] = {}
            for state, weight in weights.items():
                for step in self.nodes[state].ways[recover].steps:
                    after[step] = after.get(step, 0) + weight
            weights = after
        return counts
