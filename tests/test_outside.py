"""The engine on what other tools' releases hold: their patches, on trees rebuilt from them.

Each case is judged by ``git apply`` and GNU patch first.  What both do, patchkit does; what
both refuse, it refuses.  Where it does otherwise a rule in ``tests/outside/decided.py`` says
why, with a check of its own; a rule that no case needs any more is a fault as well.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from patchkit.errors import PatchkitError
from tests.conftest import Cli
from tests.outside import decided, sources
from tests.outside.judges import CLASSES, GNU_PATCH, Bench, Judged, engine, judged, normal
from tests.releases import IDENTITY, diff_snapshots, snapshot
from tests.strategies import read_tree, write_tree

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GNU_PATCH is None, reason="needs GNU patch"),
]

#: Fewer cases than this of a class, and the search or the rebuilding has gone wrong.
AT_LEAST = {"agree-apply": 200, "agree-refuse": 400, "git-only": 20, "refuse-lenient": 80}
#: How many cases of each class go through the real command.
BY_COMMAND = 7


@pytest.fixture
def found() -> list[sources.Found]:
    try:
        return sources.from_sdists()
    except sources.Unreachable as error:
        pytest.skip(str(error))


def test_every_case(found: list[sources.Found], tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    used: set[str] = set()
    faults = []
    for one in judged(Bench(tmp_path), found):
        counts[one.kind] += 1
        result = engine(one.case)
        if decided.is_right(one, result):
            continue
        rule = decided.rule_for(one, result)
        if rule is not None:
            used.add(rule.name)
            continue
        said = result.message if isinstance(result, PatchkitError) else "another tree"
        faults.append(f"{one.kind}: {one.case.name}: {said}")
    assert not faults
    assert not {rule.name for rule in decided.RULES if rule.small} - used, "no longer needed"
    assert {kind: n for kind, n in AT_LEAST.items() if counts[kind] < n} == {}
    assert set(counts) == set(CLASSES)


def _sample(found: list[sources.Found], bench: Bench) -> list[Judged]:
    """Some of each class, from patches all over, and as many kinds of case as there are."""
    kinds: dict[str, list[Judged]] = defaultdict(list)
    for one in judged(bench, found, varied=lambda number: number % 6 == 0):
        kinds[one.kind].append(one)
    out = []
    for members in kinds.values():
        members.sort(key=lambda one: (one.case.variant, one.case.name))
        step = max(len(members) // BY_COMMAND, 1)
        out += list(itertools.islice(members, step // 2, None, step))[:BY_COMMAND]
    return out


def test_the_command_does_what_the_engine_does(
    found: list[sources.Found], cli: Cli, tmp_path: Path
) -> None:
    """On disk, and a tree that is refused is left as it was, to the inode and the time."""
    patch = tmp_path / "case.patch"
    chosen = _sample(found, Bench(tmp_path / "bench"))
    assert len({one.kind for one in chosen}) >= 5
    for number, one in enumerate(chosen):
        case, result = one.case, engine(one.case)
        tree = write_tree(case.tree, tmp_path / str(number))
        patch.write_bytes(case.patch)
        before = snapshot(tree)
        options = ["--strip", str(case.strip), *(["--reverse"] if case.reverse else [])]
        done = cli(
            *("--root", tree, "apply", patch),
            *options,
            check=3 if isinstance(result, PatchkitError) else 0,
        )
        if isinstance(result, PatchkitError):
            left = diff_snapshots(before, snapshot(tree), IDENTITY)
            assert left == [], (case.name, left, str(done))
            continue
        now = {p: s for p, s in read_tree(tree).items() if not p.startswith(".patchkit/")}
        assert normal(now) == result, (case.name, str(done))
        cli("--root", tree, "revert", "--all")
        assert read_tree(tree) == case.tree, case.name
