"""Pairs (patch, later release) whose truth is known, from the real history of releases.

A patch is some of the hunks by which one file changed from release N to the next one.  It
is carried to a later release M, in which other lines of the file changed as well.  What M
should then hold is known in two ways:

``upstream``  M has the change: the outcome must be "already upstream", and M stays as it is.
``carried``   the change is taken out of M; carried there it must give M again, byte for byte.

Lines are followed from N+1 to M by ``git diff --histogram``, not by anything of patchkit.
A hunk counts only where that is unambiguous: M has every line that it adds, untouched and in
one row, at least one of them stands once in the file of either release, all of it stands in
the same def or class, and what results parses.  What surrounds it may have changed: ``near``
says that it did, within three lines.  ``twin`` says that the lines which the hunk replaces,
with their context, stand in the base more than once; ``moved`` that the file has another
path in M.
"""

from __future__ import annotations

import ast
import random
import re
import subprocess
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .trees import ArchiveTree, tree

SUFFIXES = (".py", ".cu", ".cuh", ".h", ".jinja", ".json", ".toml")
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


class Pair(NamedTuple):
    """One patch and the release it is carried to."""

    key: str
    project: str
    base: str
    target: str
    path: str
    target_path: str
    kind: str
    traits: tuple[str, ...]
    steps: int
    hunks: int
    before: bytes
    patched: bytes
    theirs: bytes
    truth: bytes


class Hunk(NamedTuple):
    """Lines ``a0:a1`` of one text became ``b0:b1`` of another, from 0."""

    a0: int
    a1: int
    b0: int
    b1: int


def hunks(old: bytes, new: bytes) -> list[Hunk]:
    """What ``git diff`` says."""
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "a"), Path(folder, "b")
        one.write_bytes(old)
        other.write_bytes(new)
        done = subprocess.run(
            ["git", "diff", "--no-index", "-U0", "--histogram", "--no-color", "a", "b"],
            cwd=folder, capture_output=True, check=False,
        )  # fmt: skip
    found = []
    for match in _HUNK.finditer(done.stdout.decode("latin-1")):
        start, count, to, more = (int(group) if group else 1 for group in match.groups())
        low = start - 1 if count else start
        other_low = to - 1 if more else to
        found.append(Hunk(low, low + count, other_low, other_low + more))
    return found


def follow(changes: Sequence[Hunk], line: int) -> int | None:
    """Where a line is behind some changes; None where one of them touches it."""
    shift = 0
    for change in changes:
        if line < change.a0:
            break
        if line < change.a1:
            return None
        shift = change.b1 - change.a1
    return line + shift


def scope_of(data: bytes, path: str) -> list[str] | None:
    """The def or class of each line; None where it does not parse."""
    lines = data.count(b"\n") + 1
    owners = [""] * lines
    if not path.endswith(".py"):
        return owners
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse(data)
    except (SyntaxError, ValueError):
        return None

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{prefix}.{child.name}"
                start = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                end = child.end_lineno or child.lineno
                owners[start - 1 : end] = [name] * (end - start + 1)
            walk(child, name)

    walk(module, "")
    return owners


def candidates(project: str, base: str, following: str, target: str) -> Iterator[tuple[str, str]]:
    """Files that changed from base to following, and differ in target; with their path in it."""
    here, there, later = (tree(project, version) for version in (base, following, target))
    new = None
    for path in sorted(set(here.paths()) & set(there.paths())):
        if not path.endswith(SUFFIXES) or here.digest(path) == there.digest(path):
            continue
        digest = later.digest(path)
        if digest is not None:
            if digest != there.digest(path):
                yield path, path
            continue
        if new is None:
            new = [p for p in later.paths() if there.digest(p) is None]
        name = path.rpartition("/")[2]
        same = [p for p in new if p.rpartition("/")[2] == name]
        if len(same) == 1 and name != "__init__.py":
            yield path, same[0]


def _kept(
    change: Hunk, later: Sequence[Hunk], texts: tuple[list[bytes], list[bytes], list[bytes]],
    counts: tuple[Counter[bytes], Counter[bytes]], owners: tuple[list[str], list[str]],
) -> tuple[int, int] | None:  # fmt: skip
    """Where M holds what a hunk adds, if that is beyond doubt."""
    _, new, latest = texts
    if change.b0 == change.b1:
        before, behind = follow(later, change.b0 - 1), follow(later, change.b0)
        if before is None or behind is None or behind != before + 1 or change.b0 < 3:
            return None
        around = new[change.b0 - 3 : change.b0 + 3]
        if latest[behind - 3 : behind + 3] != around or not any(
            counts[0][line] == counts[1][line] == 1 for line in around
        ):
            return None
        if owners[0][change.b0 - 1] != owners[1][before]:
            return None
        return behind, behind
    places = [follow(later, line) for line in range(change.b0, change.b1)]
    if None in places:
        return None
    first = places[0]
    assert first is not None
    if places != list(range(first, first + len(places))):
        return None
    if not any(
        len(line.strip()) > 8 and counts[0][line] == counts[1][line] == 1
        for line in new[change.b0 : change.b1]
    ):
        return None
    if any(owners[0][change.b0 + n] != owners[1][first + n] for n in range(len(places))):
        return None
    # A neighbour that went to the other side: where the change belongs is then a matter of
    # opinion.
    for line, before in ((change.b0 - 1, True), (change.b1, False)):
        once = 0 <= line < len(new) and counts[0][new[line]] == counts[1][new[line]] == 1
        if once and (latest.index(new[line]) < first) != before:
            return None
    return first, first + len(places)


def _near(later: Sequence[Hunk], change: Hunk) -> bool:
    return any(h.a0 <= change.b1 + 3 and h.a1 >= change.b0 - 3 for h in later)


def _twin(lines: list[bytes], change: Hunk) -> bool:
    low, high = max(change.a0 - 1, 0), min(change.a1 + 1, len(lines))
    block = b"".join(lines[low:high])
    return len(block.strip()) > 10 and b"".join(lines).count(block) > 1


def _same_defs(
    path: str,
    patched: bytes,
    chosen: Sequence[tuple[Hunk, tuple[int, int]]],
    following: Sequence[str],
) -> bool:
    """Whether what is added, or the line before what is only taken out, stands in the def that it
    stands in in the next release: where a def went elsewhere, or got another name by a hunk that
    is not chosen, a diff may show its lines in another one."""
    owners = scope_of(patched, path)
    if owners is None:
        return False
    shift = 0
    for change, _ in chosen:
        for n in range(change.b1 - change.b0) if change.b1 > change.b0 else (-1,):
            if owners[change.a0 + shift + n] != following[change.b0 + n]:
                return False
        shift += (change.b1 - change.b0) - (change.a1 - change.a0)
    return True


def _defs(data: bytes) -> Counter[tuple[bytes, bytes]]:
    return Counter(re.findall(rb"^([ \t]*)(?:async )?(?:def|class) (\w+)", data, re.MULTILINE))


def _doubles(path: str, before: bytes, patched: bytes) -> bool:
    """Whether some of the hunks alone (a rename's, without the hunk that renames) define at
    the top of the file or of its only class what is defined there already."""
    if not path.endswith(".py"):
        return False
    more = _defs(patched) - _defs(before)
    return any(_defs(before)[key] for key in more if len(key[0]) <= 4)


def replaced(lines: Sequence[bytes], edits: Sequence[tuple[int, int, list[bytes]]]) -> bytes:
    """The lines with some of them replaced."""
    out = list(lines)
    for start, end, new in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        out[start:end] = new
    return b"".join(out)


def file_pairs(
    project: str, versions: Sequence[str], n: int, m: int, path: str, target_path: str,
    dice: random.Random,
) -> Iterator[Pair]:  # fmt: skip
    """The pairs of one file: of each kind one with the hunks whose surroundings changed,
    one with others."""
    trees: list[ArchiveTree] = [tree(project, versions[i]) for i in (n, n + 1, m)]
    data = [t.read(p) or b"" for t, p in zip(trees, (path, path, target_path), strict=True)]
    if any(b"\0" in text or len(text) > 600_000 or not text.endswith(b"\n") for text in data):
        return
    lines = [text.splitlines(keepends=True) for text in data]
    if any(b"".join(part) != text or b"\r" in text for part, text in zip(lines, data, strict=True)):
        return
    owners = [scope_of(text, path) for text in data]
    if owners[0] is None or owners[1] is None or owners[2] is None:
        return
    changes, later = hunks(data[0], data[1]), hunks(data[1], data[2])
    if not later or (path != target_path and sum(h.a1 - h.a0 for h in later) > len(lines[1]) / 2):
        return
    counts = (Counter(lines[1]), Counter(lines[2]))
    kept = []
    for change in changes:
        if change.b1 - change.b0 > 200 or change.a1 - change.a0 > 200:
            continue
        place = _kept(change, later, (lines[0], lines[1], lines[2]), counts, (owners[1], owners[2]))
        if place is not None:
            kept.append((change, place))
    if not kept:
        return
    hard = [entry for entry in kept if _near(later, entry[0]) or _twin(lines[0], entry[0])]
    easy = [entry for entry in kept if entry not in hard]
    for pool in (hard, easy):
        if not pool:
            continue
        chosen = sorted(dice.sample(pool, min(len(pool), dice.choice((1, 1, 2, 3, 5)))))
        traits = tuple(
            name
            for name, holds in (
                ("near", any(_near(later, change) for change, _ in chosen)),
                ("twin", any(_twin(lines[0], change) for change, _ in chosen)),
                ("moved", path != target_path),
            )
            if holds
        )
        patched = replaced(lines[0], [(c.a0, c.a1, lines[1][c.b0 : c.b1]) for c, _ in chosen])
        without = replaced(lines[2], [(p[0], p[1], lines[0][c.a0 : c.a1]) for c, p in chosen])
        if _doubles(path, data[0], patched) or not _same_defs(path, patched, chosen, owners[1]):
            continue
        common = (project, versions[n], versions[m], path, target_path)
        for kind in ("upstream", "carried"):
            theirs = data[2] if kind == "upstream" else without
            if kind == "carried" and (
                scope_of(without, path) is None or without in (data[0], data[2], patched)
            ):
                continue
            key = f"{kind} {project} {versions[n]}→{versions[m]} {path} {chosen[0][0].a0 + 1}"
            yield Pair(
                key, *common, kind, traits, m - n, len(chosen), data[0], patched, theirs, data[2]
            )


def pairs(
    histories: dict[str, Sequence[str]], steps: Sequence[int], per_jump: int, seed: int
) -> list[Pair]:
    """Pairs from every jump N → N+step, at most ``per_jump`` files of each."""
    found: list[Pair] = []
    for project, versions in histories.items():
        for n in range(len(versions) - 2):
            for step in steps:
                m = n + step
                if step < 2 or m >= len(versions):
                    continue
                dice = random.Random(f"{seed} {project} {versions[n]} {versions[m]}")
                files = list(candidates(project, versions[n], versions[n + 1], versions[m]))
                dice.shuffle(files)
                moved = [entry for entry in files if entry[0] != entry[1]]
                taken = 0
                for path, target_path in [*moved[: per_jump // 3], *files]:
                    if taken >= per_jump:
                        break
                    made = list(file_pairs(project, versions, n, m, path, target_path, dice))
                    known = {pair.key for pair in found}
                    made = [pair for pair in made if pair.key not in known]
                    found += made
                    taken += bool(made)
    return found
