"""The engine against git and GNU diff: same trees, same patches, equal bytes and modes.

Each example is a tree of several files and its change, so that one process of git judges
all of them.  The trees are the truth: a patch applied to the very tree that it was made from
is never refused and gives the other tree, and taken back it gives the first one again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from patchkit.errors import PatchkitError
from patchkit.patchfile import parse
from tests.conftest import Cli
from tests.strategies import (
    GNU_DIFF,
    NAMES,
    STAMPED,
    Tools,
    Tree,
    apply,
    edited,
    link,
    pairs,
    read_tree,
    text,
    write_tree,
)

needs_diff = pytest.mark.skipif(GNU_DIFF is None, reason="needs GNU diff")
EXAMPLES = 400 if settings.get_current_profile_name() == "thorough" else 40


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("differential"))


@pytest.fixture(scope="module")
def python_driver(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """git with its Python rule for section headings."""
    return Tools(tmp_path_factory.mktemp("driver"), "* diff=python\n")


def round_trip(before: Tree, after: Tree, patch: bytes, *, strip: int = 1) -> None:
    """Forwards gives ``after``, backwards ``before``, byte for byte."""
    if not patch:
        return
    assert apply(before, patch, strip=strip) == after
    if not any(file.change == "copy" for file in parse(patch, "x").files):
        assert apply(after, patch, strip=strip, reverse=True) == before


GIT_OPTIONS = [
    ["--binary", "-M"],
    ["--binary", "-U1", "--no-renames"],
    ["--binary", "-U5", "-M70%", "--minimal"],
    ["--binary", "-C", "--find-copies-harder", "--patience"],
    ["--binary", "-M", "--function-context", "--full-index"],
]


@pytest.mark.parametrize("options", GIT_OPTIONS, ids=" ".join)
def test_git_diff_is_applied_as_git_applies_it(tools: Tools, options: list[str]) -> None:
    @settings(max_examples=EXAMPLES)
    @given(pairs())
    def check(pair: tuple[Tree, Tree]) -> None:
        before, after = pair
        patch = tools.git_diff(before, after, *options)
        round_trip(before, after, patch)
        if patch:
            assert tools.git_apply(before, patch) == after

    check()


@pytest.mark.parametrize(
    ("options", "strip"),
    [(["--no-prefix"], 0), (["--src-prefix=i/", "--dst-prefix=w/", "--inter-hunk-context=4"], 1)],
    ids=["none", "mnemonic"],
)
def test_git_diff_with_other_prefixes(tools: Tools, options: list[str], strip: int) -> None:
    names = [name for name in NAMES if " " not in name]

    @settings(max_examples=EXAMPLES)
    @given(pairs(names=names))
    def check(pair: tuple[Tree, Tree]) -> None:
        before, after = pair
        patch = tools.git_diff(before, after, "--binary", "-M30%", *options)
        round_trip(before, after, patch, strip=strip)
        if patch:
            assert tools.git_apply(before, patch, f"-p{strip}") == after

    check()


def test_names_that_end_like_a_time_or_a_blank(tools: Tools) -> None:
    before: Tree = {name: text("a\n") for name in STAMPED}
    after: Tree = {name: text("b\n") for name in STAMPED}
    patch = tools.git_diff(before, after)
    assert tools.git_apply(before, patch) == after
    round_trip(before, after, patch)


@pytest.mark.parametrize("options", [["--no-prefix"], ["--src-prefix=i/", "--dst-prefix=w/"]])
def test_renames_with_blanks_and_other_prefixes(tools: Tools, options: list[str]) -> None:
    strip = 0 if len(options) == 1 else 1
    before: Tree = {"one two": text("a\nb\nc\nd\n")}
    for after in ({"three four five": text("a\nb\nc\n")}, {"three four five": before["one two"]}):
        patch = tools.git_diff(before, after, "-M", *options)
        assert tools.git_apply(before, patch, f"-p{strip}") == after
        round_trip(before, after, patch, strip=strip)


def test_headings_of_the_python_driver(python_driver: Tools) -> None:
    @settings(max_examples=EXAMPLES)
    @given(pairs(fates=("edit",)))
    def check(pair: tuple[Tree, Tree]) -> None:
        round_trip(*pair, python_driver.git_diff(*pair, "-U2"))

    check()


@pytest.mark.parametrize("options", [["-U3"], ["-U1", "-p"], ["-U5", "--minimal"]], ids=" ".join)
@needs_diff
def test_gnu_diff_is_applied_as_git_applies_it(tools: Tools, options: list[str]) -> None:
    @settings(max_examples=EXAMPLES)
    @given(pairs(fates=("edit", "edit", "keep", "add", "delete", "empty")))
    def check(pair: tuple[Tree, Tree]) -> None:
        before, after = _as_diff_sees(*pair)
        patch = tools.gnu_diff(before, after, *options)
        round_trip(before, after, patch)
        if patch:
            assert tools.git_apply(before, patch) == after

    check()


def _as_diff_sees(before: Tree, after: Tree) -> tuple[Tree, Tree]:
    """Without what ``diff -N`` cannot say: modes, and empty files that come or go."""
    plain: tuple[Tree, Tree] = ({}, {})
    for side, tree in zip(plain, (before, after), strict=True):
        side.update({name: text(state.data) for name, state in tree.items()})
    for name in set(before) ^ set(after):
        for side in plain:
            if name in side and not side[name].data:
                del side[name]
    return plain


def test_a_stack_is_applied_and_unwound(tools: Tools) -> None:
    """Several patches in order, and in the other order backwards."""

    @settings(max_examples=EXAMPLES // 2)
    @given(pairs(), st.data())
    def check(pair: tuple[Tree, Tree], data: st.DataObject) -> None:
        trees = [*pair]
        for _ in range(data.draw(st.integers(1, 3))):
            trees.append(data.draw(_next(trees[-1])))
        patches = [
            patch
            for old, new in itertools.pairwise(trees)
            if (patch := tools.git_diff(old, new, "--binary", "-M"))
        ]
        assert apply(trees[0], *patches) == trees[-1]
        assert apply(trees[-1], *patches, reverse=True) == trees[0]

    check()


@st.composite
def _next(draw: st.DrawFn, tree: Tree) -> Tree:
    out = dict(tree)
    for name, state in tree.items():
        fate = draw(st.sampled_from(["edit", "keep", "delete", "move"]))
        if fate == "edit" and state.kind == "file" and b"\0" not in state.data:
            out[name] = text(draw(edited(state.data)), state.mode)
        elif fate == "delete":
            del out[name]
        elif fate == "move" and f"moved/{name}" not in tree:
            out[f"moved/{name}"] = out.pop(name)
    return out


# -- the command on a plain tree ------------------------------------------------------------------

KINDS: dict[str, tuple[Tree, Tree]] = {
    "text": ({"x": text("a\n"), "y": text("b\n")}, {"x": text("b\n", 0o755), "z/y": text("b\n")}),
    "names": ({name: text("a\n") for name in NAMES}, {name: text("b\n") for name in NAMES}),
    "binary": ({"x": text(b"\0a" * 99)}, {"x": text(b"\0b"), "y": text(b"\0")}),
    "empty": ({"x": text(""), "y": text("a\n")}, {"y": text(""), "z": text("")}),
    "link made": ({"x": text("a\n")}, {"x": text("a\n"), "y": link("x"), "z": link("nowhere")}),
    "link removed": ({"x": text("a\n"), "y": link("x")}, {"x": text("a\n")}),
    "link retargeted": ({"x": text("a\n"), "y": link("x")}, {"x": text("a\n"), "y": link("z")}),
    "dangling link retargeted": ({"y": link("nowhere")}, {"y": link("else")}),
    "link moved": ({"y": link("nowhere")}, {"z/y": link("nowhere")}),
    "link to file": ({"y": link("nowhere")}, {"y": text("a\n")}),
    "file to link": ({"y": text("a\n")}, {"y": link("nowhere")}),
    "folder to file": ({"y/z": text("a\n")}, {"y": text("b\n")}),
    "file to folder": ({"y": text("a\n")}, {"y/z": text("b\n")}),
    "link to folder": ({"y": link("nowhere")}, {"y/z": text("b\n")}),
    "file moved into its place": ({"y/z": text("a\n")}, {"y": text("a\n")}),
}


@pytest.mark.parametrize(
    "kind",
    KINDS,
)
def test_the_command_there_and_back(kind: str, tools: Tools, cli: Cli, tmp_path: Path) -> None:
    before, after = KINDS[kind]
    patch = tmp_path / "change.patch"
    patch.write_bytes(tools.git_diff(before, after, "--binary", "-M"))
    folder = write_tree(before, tmp_path / "tree")
    options = ("--root", folder)
    cli(*options, "apply", patch, "--strip", "1")
    found = {path: f for path, f in read_tree(folder).items() if not path.startswith(".patchkit/")}
    assert found == after
    cli(*options, "revert", "--all")
    assert read_tree(folder) == before
    assert not (folder / ".patchkit").exists()


# -- altered files: what promise 3 refuses -----------------------------------------------------

#: None of them begins with a letter: a heading would single out what git takes by distance.
_UNIQUE = [f" line {number}".encode() for number in range(40)]
_REPEATED = [b" a", b" b", b"", b"}", b" x ", b"\tx"]


@st.composite
def _altered(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A file, its change, and the same file altered by someone else: lines put in, a block
    doubled, lines taken out."""
    pool = st.sampled_from([*_UNIQUE, *_REPEATED])
    lines = draw(st.lists(pool, min_size=6, max_size=25))
    old = b"".join(line + b"\n" for line in lines)
    new = draw(edited(old, max_edits=2))
    now = list(lines)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(now)))
        how = draw(st.sampled_from(["shift", "shift", "double", "remove"]))
        if how == "shift":
            now[place:place] = [b" other"] * draw(st.integers(1, 6))
        elif how == "double":
            now[place:place] = now[draw(st.integers(0, 8)) :][: draw(st.integers(5, 15))]
        else:
            del now[place : place + draw(st.integers(1, 2))]
    return old, new, b"".join(line + b"\n" for line in now)


def _outcome(tree: Tree, patch: bytes) -> Tree | PatchkitError:
    try:
        return apply(tree, patch)
    except PatchkitError as error:
        return error


def test_an_altered_file_is_patched_as_git_does_or_refused(tools: Tools) -> None:
    """Where patchkit applies, git does the same; where git applies and patchkit does not,
    the block stands more than once, or its hunks cannot keep their order."""
    reasons: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES * 3)
    @given(_altered())
    def check(case: tuple[bytes, bytes, bytes]) -> None:
        old, new, now = case
        patch = tools.git_diff({"x": text(old)}, {"x": text(new)})
        assume(patch)
        tree: Tree = {"x": text(now)}
        expected = tools.git_apply(tree, patch)
        found = _outcome(tree, patch)
        if not isinstance(found, PatchkitError):
            reasons["applied"] += 1
            assert found == expected
            return
        reasons[found.code] += 1
        assert now != old
        if expected is not None:
            assert found.code in ("hunk-ambiguous", "hunk-order")
            assert found.code == "hunk-order" or len(found.data["candidates"]) > 1

    check()
    assert min(reasons["applied"], reasons["hunk-not-found"]) > 3, reasons
