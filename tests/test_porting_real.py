"""Porting on real releases whose truth is known: the sample of ``dev.py port-bench``."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.porting.pairs import Pair, pairs
from benchmarks.porting.run import SAMPLE, SEED, STEPS, verdict
from benchmarks.porting.tools import TOOLS
from tests import releases

pytestmark = pytest.mark.slow

#: Files of each jump; the command's ``--sample`` takes six.
FILES = 3


@pytest.fixture(scope="module")
def made() -> list[Pair]:
    for project, versions in SAMPLE.items():
        for version in versions:
            releases.wheel(project, version)
    return pairs(SAMPLE, STEPS, FILES, SEED)


def test_no_real_patch_goes_to_a_wrong_place_and_more_go_right_than_by_git(
    made: list[Pair],
) -> None:
    assert len(made) > 60
    ours = {p.key: verdict(p, TOOLS["patchkit port"](p)) for p in made}
    git = Counter(verdict(p, TOOLS["git merge-file"](p)) for p in made)
    assert [key for key, found in ours.items() if found == "wrong"] == []
    right = Counter(ours.values())["right"]
    assert right > git["right"]
    assert right >= 0.85 * len(made)
