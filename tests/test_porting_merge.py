"""The parts of the merge: alignment, tokens, and git's own merge as the oracle."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from patchkit.porting.align import align
from patchkit.porting.lexer import tokens
from patchkit.porting.statements import merge_tokens
from tests.support.porting import carried

LINES = st.lists(st.sampled_from("abcdefgh"), max_size=14)


@given(LINES, LINES)
def test_an_alignment_grows_and_matches_equal_items(a: list[str], b: list[str]) -> None:
    found = align(a, b)
    kept = [place for place in found if place >= 0]
    assert kept == sorted(set(kept))
    assert all(a[i] == b[j] for i, j in enumerate(found) if j >= 0)


def test_what_stands_once_is_matched_whatever_stands_around_it() -> None:
    assert align("xxUxx", "yyUyx")[2] == 2


@given(st.binary(max_size=80))
def test_every_byte_belongs_to_one_token(data: bytes) -> None:
    found = tokens(data)
    assert b"".join(data[t.start : t.end] for t in found) == data


EDITS = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from(["insert", "delete", "replace"]),
              st.sampled_from(["new one", "new two", "other"])),
    max_size=4,
)  # fmt: skip


def edited(lines: list[str], edits: list[tuple[int, str, str]], mark: str) -> list[str]:
    out = list(lines)
    for at, kind, word in edits:
        place = at % (len(out) + 1)
        new = [] if kind == "delete" else [f"{word} {mark}"]
        out[place : place + (kind != "insert")] = new
    return out


def git_merge(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in (("o", base), ("a", theirs), ("b", ours)):
            Path(folder, name).write_bytes(data)
        done = subprocess.run(
            ["git", "merge-file", "-p", "a", "o", "b"], cwd=folder, capture_output=True, check=False
        )
    return done.stdout if done.returncode == 0 else None


def joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@given(st.lists(st.sampled_from([f"line {n}" for n in range(30)]), unique=True, max_size=20),
       EDITS, EDITS)  # fmt: skip
def test_a_merge_is_refused_or_the_one_that_git_makes(
    lines: list[str], mine: list[tuple[int, str, str]], yours: list[tuple[int, str, str]]
) -> None:
    base, ours = joined(lines), joined(edited(lines, mine, "mine"))
    theirs = joined(edited(lines, yours, "yours"))
    expected = git_merge(base, ours, theirs)
    ported = carried(base, ours, theirs, "pkg/table.txt")
    if ported.outcome == "conflict" or expected is None:
        return
    assert ported.contents.get("pkg/table.txt", theirs) == expected


@given(LINES, EDITS)
def test_against_the_base_a_merge_is_ours_and_against_ours_nothing(
    letters: list[str], mine: list[tuple[int, str, str]]
) -> None:
    lines = [f"line {letter}" for letter in letters]
    base, ours = joined(lines), joined(edited(lines, mine, "mine"))
    path = "pkg/table.txt"
    assert carried(base, ours, base, path).contents.get(path, base) == ours
    assert not carried(base, ours, ours, path).contents or base == ours


def test_tokens_of_one_statement_are_merged_where_their_neighbours_stand() -> None:
    base = b"    run(a, b, key=c)\n"
    assert (
        merge_tokens(base, b"    run(a, b, key=c, more=1)\n", b"    run(a0, b, key=c)\n")
        == b"    run(a0, b, key=c, more=1)\n"
    )
    assert merge_tokens(base, b"    run(a, x, b, key=c)\n", b"    run(a, y, b, key=c)\n") is None
    # The same place also where it can be written otherwise: (", more=1") and ("more=1, ").
    assert (
        merge_tokens(base, b"    run(a, b, key=c, mine=1)\n", b"    run(a, b, key=c, yours=1)\n")
        is None
    )
