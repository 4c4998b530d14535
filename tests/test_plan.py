"""(Pristine contents, ordered patches) to wanted contents: every kind of change, in any order."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from patchkit import plan as plan_module
from patchkit.errors import HunkError, PatchkitError, Refused
from patchkit.hunks import Placement
from patchkit.mapping import map_stripped
from patchkit.model import FileState
from patchkit.patchfile import parse
from patchkit.plan import Content, Key, Step, Wanted, materialise, reverse_file
from tests.strategies import Tools, Tree, apply, link, text

ABC = "a\nb\nc\n"
HUNK = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
MOVED = HUNK.replace("-1,3 +1,3", "-9,3 +9,3")
BACK = "@@ -1,3 +1,3 @@\n a\n-B\n+b\n c\n"


def change(path: str, hunk: str = HUNK) -> str:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n{hunk}"


def add(path: str, mode: str = "100644", line: str = "new", end: str = "") -> str:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{line}\n{end}"
    )


def delete(path: str, mode: str = "100644", lines: str = ABC, end: str = "") -> str:
    removed = "".join(f"-{line}\n" for line in lines.splitlines())
    return (
        f"diff --git a/{path} b/{path}\ndeleted file mode {mode}\n--- a/{path}\n+++ /dev/null\n"
        f"@@ -1,{len(lines.splitlines())} +0,0 @@\n{removed}{end}"
    )


def move(old: str, new: str, word: str = "rename", body: str = "") -> str:
    head = f"diff --git a/{old} b/{new}\nsimilarity index {90 if body else 100}%\n"
    names = f"{word} from {old}\n{word} to {new}\n"
    return head + names + (f"--- a/{old}\n+++ b/{new}\n{body}" if body else "")


NO_END = "\\ No newline at end of file\n"


def plan(tree: Mapping[str, FileState], *patches: str) -> Wanted:
    steps = []
    for number, data in enumerate(patches):
        files = map_stripped(parse(data.encode(), "x").files, 1).files
        steps.append(Step(f"bundle-{number}", f"{number}.patch", ".", files))
    return materialise(steps, lambda key: tree.get(key[1]))


def refused(tree: Mapping[str, FileState], *patches: str) -> PatchkitError:
    with pytest.raises(Refused) as caught:
        apply(tree, *(data.encode() for data in patches))
    error = caught.value
    assert error.exit_code == 3
    assert error.patch == f"{len(patches) - 1}.patch"
    assert error.line is not None
    assert error.file is not None
    assert error.message
    assert error.hint
    return error


def both_ways(before: Tree, after: Tree, *patches: str) -> None:
    data = [patch.encode() for patch in patches]
    assert apply(before, *data) == after
    assert apply(after, *data, reverse=True) == before


# -- one file ----------------------------------------------------------------------------------


def test_a_change() -> None:
    other = text("other\n")
    both_ways({"x": text(ABC), "y": other}, {"x": text("a\nB\nc\n"), "y": other}, change("x"))


def test_what_is_reported() -> None:
    wanted = plan(
        {"x": text("new\n" + ABC, 0o755), "y": text(ABC), "m": text(ABC)},
        change("x", MOVED) + delete("y") + add("z") + move("m", "n"),
    )
    digest = hashlib.sha256(b"new\na\nB\nc\n").hexdigest()
    assert wanted.contents[".", "x"] == Content("file", 0o755, digest, b"new\na\nB\nc\n", False)
    assert wanted.contents[".", "y"] is None
    assert wanted.contents[".", "m"] is None
    moved = wanted.contents[".", "n"]
    assert moved is not None
    assert (moved.data, moved.same) == (ABC.encode(), False)
    assert wanted.created == {(".", "z"), (".", "n")}
    assert [(a.bundle, a.patch, a.key[1], a.change) for a in wanted.applied] == [
        ("bundle-0", "0.patch", "x", "modified"),
        ("bundle-0", "0.patch", "y", "deleted"),
        ("bundle-0", "0.patch", "z", "added"),
        ("bundle-0", "0.patch", "n", "renamed"),
    ]
    assert wanted.applied[0].placements == (Placement(2, -7),)
    assert wanted.applied[3].placements == ()
    assert [a.source for a in wanted.applied] == [None, None, None, (".", "m")]


def test_contents_that_come_out_pristine_are_said_to_be() -> None:
    tree = {"x": text(ABC)}
    wanted = plan(tree, change("x"), change("x", BACK))
    content = wanted.contents[".", "x"]
    assert content == Content("file", 0o644, hashlib.sha256(ABC.encode()).hexdigest(), None, True)
    assert apply(tree, change("x").encode(), change("x", BACK).encode()) == tree


def test_two_roots_are_two_trees() -> None:
    files = map_stripped(parse(change("x", MOVED).encode(), "x").files, 1).files
    trees: dict[Key, FileState] = {("one", "x"): text(ABC), ("two", "x"): text("0\n" + ABC)}
    steps = [Step("b", "p", root, files) for root in ("one", "two")]
    contents = materialise(steps, trees.get).contents
    found = {key: content.data for key, content in contents.items() if content is not None}
    assert found == {("one", "x"): b"a\nB\nc\n", ("two", "x"): b"0\na\nB\nc\n"}


@pytest.mark.parametrize("mode", [0o644, 0o755, 0o600, 0o444, 0o2755, 0o700])
def test_a_change_keeps_the_mode(mode: int) -> None:
    assert apply({"x": text(ABC, mode)}, change("x").encode())["x"].mode == mode


@pytest.mark.parametrize(
    ("before", "new", "after"),
    [
        (0o644, "100755", 0o755),
        (0o600, "100755", 0o700),
        (0o664, "100755", 0o775),
        (0o755, "100644", 0o644),
        (0o700, "100644", 0o600),
        (0o444, "100755", 0o555),
        (0o755, "100755", 0o755),
        (0o644, "100664", 0o644),
    ],
)
def test_a_mode_change_sets_the_one_bit_that_git_keeps(before: int, new: str, after: int) -> None:
    patch = f"diff --git a/x b/x\nold mode 100644\nnew mode {new}\n"
    assert apply({"x": text(ABC, before)}, patch.encode()) == {"x": text(ABC, after)}


def test_a_mode_change_with_content_there_and_back() -> None:
    patch = (
        "diff --git a/x b/x\nold mode 100644\nnew mode 100755\nindex 1..2\n--- a/x\n+++ b/x\n"
        + HUNK
    )
    both_ways({"x": text(ABC)}, {"x": text("a\nB\nc\n", 0o755)}, patch)
    both_ways({"x": text(ABC)}, {"x": text(ABC, 0o755)}, patch.partition("index")[0])


@pytest.mark.parametrize(("git", "mode"), [("100644", 0o644), ("100755", 0o755)])
def test_adding_and_deleting(git: str, mode: int) -> None:
    both_ways({}, {"p/x": text("new\n", mode)}, add("p/x", git))
    both_ways({"x": text(ABC, mode)}, {}, delete("x", git))
    empty = f"diff --git a/x b/x\nnew file mode {git}\nindex 0000000..e69de29\n"
    both_ways({}, {"x": text("", mode)}, empty)
    gone = f"diff --git a/x b/x\ndeleted file mode {git}\nindex e69de29..0000000\n"
    both_ways({"x": text("", mode)}, {}, gone)


def test_plain_additions_and_deletions() -> None:
    new = "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+new\n"
    both_ways({}, {"x": text("new\n")}, new)
    epoch = "--- a/x\t1970-01-01 00:00:00 +0000\n+++ b/x\t2026-01-01 00:00:00 +0000\n"
    both_ways({}, {"x": text("new\n")}, f"{epoch}@@ -0,0 +1 @@\n+new\n")


def test_a_plain_diff_does_not_tell_an_empty_file_from_none() -> None:
    patch = b"--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+new\n"
    assert apply({}, patch) == {"x": text("new\n")}
    assert apply({"x": text("", 0o755)}, patch) == {"x": text("new\n", 0o755)}
    # git's dialect does: it has a line for a new file.
    assert refused({}, change("x", "@@ -0,0 +1 @@\n+new\n")).code == "file-missing"


def test_a_file_is_emptied_and_kept() -> None:
    hunk = "@@ -1,3 +0,0 @@\n-a\n-b\n-c\n"
    both_ways({"x": text(ABC, 0o755)}, {"x": text("", 0o755)}, change("x", hunk))


@pytest.mark.parametrize("name", ["x.cu", "x.py"])
def test_headings_are_read_by_the_language_of_the_file(name: str) -> None:
    """In C the heading names the function above; in Python ``void f()`` is no heading."""
    block = "    a\n    b\n    c\n"
    content = f"void other(int n)\n{{\n{block}}}\n"
    hunk = "@@ -9,3 +9,3 @@ void wanted(int n)\n     a\n-    b\n+    B\n     c\n"
    if name == "x.cu":
        assert refused({name: text(content)}, change(name, hunk)).code == "hunk-wrong-place"
    else:
        assert apply({name: text(content)}, change(name, hunk).encode())


def test_line_ends_are_the_files_own_where_a_step_says_so() -> None:
    files = map_stripped(parse(change("x").encode(), "x").files, 1).files
    tree = {"x": text("a\r\nb\r\nc\r\n")}

    def contents(*, eol: bool) -> Content | None:
        steps = [Step("b", "p", ".", files, eol)]
        return materialise(steps, lambda key: tree.get(key[1])).contents[".", "x"]

    with pytest.raises(HunkError):
        contents(eol=False)
    changed = contents(eol=True)
    assert changed is not None
    assert changed.data == b"a\r\nB\r\nc\r\n"


def test_what_cannot_be_on_the_disk_is_not_asked_for() -> None:
    """Where a file or a link was, nothing lay below it, and the link may lead anywhere."""
    asked: list[str] = []

    def pristine(key: Key) -> FileState | None:
        asked.append(key[1])
        return {"x": link("/etc"), "q": text(ABC)}.get(key[1])

    gone = delete("x", "120000", "/etc", NO_END)
    for patch in (gone + add("x/y/z"), add("x/y/z") + gone):
        files = map_stripped(parse((add("p/q/r") + patch).encode(), "x").files, 1).files
        contents = materialise([Step("b", "p", ".", files)], pristine).contents
        assert sorted(asked) == ["p/q/r", "x"]
        assert sorted(path for _, path in contents) == ["p/q/r", "x", "x/y/z"]
        asked.clear()


# -- what does not fit -------------------------------------------------------------------------


def test_the_error_says_where() -> None:
    good, bad = change("x"), change("p/y").replace("-b", "-q")
    error = refused({"x": text(ABC), "p/y": text(ABC)}, good, change("x", BACK) + bad)
    assert isinstance(error, HunkError)
    assert (error.bundle, error.patch, error.file) == ("bundle", "1.patch", "p/y")
    assert (error.hunk, error.line) == (1, 12)


def test_the_error_names_the_bundles_that_changed_the_file_before() -> None:
    tree = {"x": text(ABC), "y": text(ABC)}
    parts = [change("x"), change("x", BACK), change("y"), change("x").replace("-b", "-q")]
    with pytest.raises(HunkError) as caught:
        plan(tree, *parts)
    (said,) = [line for line in caught.value.detail if "before" in line]
    assert said == "bundle-0, bundle-1 changed this file before"
    with pytest.raises(HunkError) as caught:
        plan(tree, parts[2], parts[3])
    assert not [line for line in caught.value.detail if "before" in line]
    with pytest.raises(HunkError) as caught:
        plan(tree, parts[0] + parts[3])
    assert not [line for line in caught.value.detail if "before" in line]


def test_missing_files() -> None:
    for patch in (change("x"), delete("x"), move("x", "y"), move("x", "y", "copy")):
        error = refused({"z": text(ABC)}, patch)
        assert (error.code, error.file, error.line) == ("file-missing", "x", 1)
        assert error.message == "x is not there"
    mode = "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"
    assert refused({}, mode).code == "file-missing"


def test_files_in_the_way() -> None:
    for patch in (add("y"), move("x", "y"), move("x", "y", "copy")):
        for there in (text("other\n"), text(""), link("z")):
            error = refused({"x": text(ABC), "y": there}, patch)
            assert (error.code, error.file) == ("file-exists", "y")
            assert error.message == "y is already there, and the patch would make it"


def test_a_file_that_the_patch_changes_is_in_the_way_of_one_that_it_makes() -> None:
    """Only a file that the patch takes away, in whatever order, leaves its name."""
    hunk = "@@ -1 +1,2 @@\n new\n+more\n"
    assert refused({"x": text(ABC)}, add("x") + change("x", hunk)).code == "file-exists"
    before, after = {"x": text(ABC)}, {"x": text("new\n"), "y": text(ABC)}
    for parts in ((add("x"), move("x", "y")), (move("x", "y"), add("x"))):
        assert apply(before, "".join(parts).encode()) == after


def test_a_deletion_names_every_line() -> None:
    error = refused({"x": text(ABC + "d\n")}, delete("x"))
    assert error.code == "hunk-not-found"
    empty = "diff --git a/x b/x\ndeleted file mode 100644\nindex e69de29..0000000\n"
    error = refused({"x": text(ABC)}, empty)
    assert error.code == "not-empty"
    assert "removes all" in (error.hint or "")
    assert refused({"x": text("q\n")}, delete("x")).code == "hunk-not-found"


def test_kinds_are_not_mixed_up() -> None:
    for patch in (change("x"), delete("x")):
        assert refused({"x": link("a\nb\nc\n")}, patch).code == "kind"
    retarget = (
        "diff --git a/x b/x\nindex 1..2 120000\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n"
        f"-old\n{NO_END}+new\n{NO_END}"
    )
    assert refused({"x": text("old")}, retarget).code == "kind"
    assert refused({"x": text("old")}, delete("x", "120000", "old", NO_END)).code == "kind"
    kind = "diff --git a/x b/x\nold mode 100644\nnew mode 120000\n"
    assert refused({"x": text("old")}, kind).code == "kind"
    kind = "diff --git a/x b/x\nold mode 120000\nnew mode 100755\n"
    assert refused({"x": link("old")}, kind).code == "kind"
    mode = "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"
    assert refused({"x": link("old")}, mode).code == "kind"
    empty = "diff --git a/x b/x\ndeleted file mode 100644\nindex e69de29..0000000\n"
    assert refused({"x": link("old")}, empty).code == "kind"
    binary = _binary("literal", b"new", b"old", b"new").decode()
    assert apply({"x": text("old")}, binary.encode()) == {"x": text("new")}
    assert refused({"x": link("old")}, binary).code == "kind"


# -- renames and copies ------------------------------------------------------------------------


def test_renames() -> None:
    both_ways({"x": text(ABC, 0o755)}, {"p/y": text(ABC, 0o755)}, move("x", "p/y"))
    both_ways({"x": text(ABC)}, {"y": text("a\nB\nc\n")}, move("x", "y", body=HUNK))
    mode = move("x", "y").replace("similarity", "old mode 100644\nnew mode 100755\nsimilarity")
    both_ways({"x": text(ABC)}, {"y": text(ABC, 0o755)}, mode)
    both_ways({"x": link("z")}, {"y": link("z")}, move("x", "y"))
    # The mode of an index line is that of the file before and behind: no change.
    index = move("x", "y", body=HUNK).replace("\n---", "\nindex 1..2 100644\n---")
    both_ways({"x": text(ABC, 0o755)}, {"y": text("a\nB\nc\n", 0o755)}, index)
    index = change("x").replace("\n---", "\nindex 1..2 100644\n---")
    both_ways({"x": text(ABC, 0o755)}, {"x": text("a\nB\nc\n", 0o755)}, index)


def test_copies() -> None:
    tree: Tree = {"x": text(ABC, 0o755)}
    assert apply(tree, move("x", "y", "copy").encode()) == {**tree, "y": text(ABC, 0o755)}
    changed = {**tree, "y": text("a\nB\nc\n", 0o755)}
    assert apply(tree, move("x", "y", "copy", HUNK).encode()) == changed


def test_a_copy_is_not_taken_back() -> None:
    """Its reverse would remove a file by its name alone."""
    with pytest.raises(Refused) as caught:
        apply({"x": text(ABC), "y": text(ABC)}, move("x", "y", "copy").encode(), reverse=True)
    assert caught.value.code == "reverse-copy"
    assert caught.value.file == "b/y"
    assert caught.value.message.startswith("a copy cannot be taken back")
    assert "git diff NEW OLD" in (caught.value.hint or "")


def test_two_files_change_places() -> None:
    one, two = text("one\n"), text("two\n", 0o755)
    both_ways({"x": one, "y": two}, {"x": two, "y": one}, move("x", "y") + move("y", "x"))


def test_names_in_a_ring_in_any_order() -> None:
    before = {name: text(f"{name}\n") for name in "xyz"}
    after = {"y": text("x\n"), "z": text("y\n"), "x": text("z\n")}
    parts = [move("x", "y"), move("y", "z"), move("z", "x")]
    for order in itertools.permutations(parts):
        both_ways(before, after, "".join(order))


def test_a_chain_in_any_order() -> None:
    before = {"x": text("1\n"), "y": text("2\n"), "z": text("3\n")}
    after = {"y": text("1\n"), "z": text("2\n")}
    parts = [move("x", "y"), move("y", "z"), delete("z", lines="3\n")]
    for order in itertools.permutations(parts):
        # z must go before it comes: git itself writes and reads it in any order.
        if order.index(parts[2]) > order.index(parts[1]):
            continue
        assert apply(before, "".join(order).encode()) == after


def test_copies_are_of_what_was_there_before_the_patch() -> None:
    """git: a patch with rename or copy lines does not depend on the order of its files."""
    before = {"x": text(ABC)}
    after = {"x": text("a\nB\nc\n"), "y": text(ABC), "z": text("a\nB\nc\n")}
    parts = [change("x"), move("x", "y", "copy"), move("x", "z", "copy", HUNK)]
    for order in itertools.permutations(parts):
        assert apply(before, "".join(order).encode()) == after
    gone = {"y": text(ABC), "z": text("a\nB\nc\n")}
    for order in itertools.permutations([move("x", "y"), move("x", "z", "copy", HUNK)]):
        assert apply(before, "".join(order).encode()) == gone


# -- links and kinds ---------------------------------------------------------------------------


def test_symlinks() -> None:
    both_ways({}, {"x": link("to/y")}, add("x", "120000", "to/y", NO_END))
    both_ways({"x": link("to/y")}, {}, delete("x", "120000", "to/y", NO_END))
    retarget = (
        "diff --git a/x b/x\nindex 1..2 120000\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n"
        f"-old\n{NO_END}+new\n{NO_END}"
    )
    both_ways({"x": link("old")}, {"x": link("new")}, retarget)
    assert refused({"x": link("other")}, retarget).code == "hunk-not-found"


@pytest.mark.parametrize("target", ["", "a\0b"])
def test_a_symlink_has_a_target(target: str) -> None:
    """No system makes another: it would be a fault in the middle of the writing."""
    empty = "diff --git a/l b/l\n--- a/l\n+++ b/l\n@@ -1 +0,0 @@\n-x\n" + NO_END
    patch = add("l", "120000", target, NO_END) if target else empty
    tree = {} if target else {"l": link("x")}
    error = refused(tree, patch.replace("b/l\n---", "b/l\nindex 1..2 120000\n---"))
    assert error.code == "kind"
    assert "symlink without a target" in error.message


def test_type_changes() -> None:
    to_link = delete("x") + add("x", "120000", "y", NO_END)
    both_ways({"x": text(ABC)}, {"x": link("y")}, to_link)
    to_file = delete("x", "120000", "y", NO_END) + add("x", "100755")
    both_ways({"x": link("y")}, {"x": text("new\n", 0o755)}, to_file)


def test_a_folder_becomes_a_file_and_back() -> None:
    to_file = delete("x/y") + add("x")
    both_ways({"x/y": text(ABC)}, {"x": text("new\n")}, to_file)


def test_a_folder_becomes_a_file_in_the_order_in_which_git_writes_it() -> None:
    """git sorts by name: the file comes before what lies in the folder."""
    both_ways({"x/y": text(ABC)}, {"x": text("new\n")}, add("x") + delete("x/y"))
    to_folder = delete("x") + add("x/y")
    both_ways({"x": text(ABC)}, {"x/y": text("new\n")}, to_folder)


# -- a file named twice, patches stacked -------------------------------------------------------


def test_a_file_named_twice_builds_on_itself() -> None:
    before = {"x": text("a\nb\nc\nd\ne\nf\ng\n")}
    one = "@@ -1,3 +1,4 @@\n a\n+new\n b\n c\n"
    two = "@@ -6,3 +6,3 @@\n e\n f\n-g\n+G\n"
    after = {"x": text("a\nnew\nb\nc\nd\ne\nf\nG\n")}
    both_ways(before, after, change("x", one) + change("x", two))
    assert refused(before, change("x", two) + change("x", two)).code == "already-applied"
    plain = "".join(part.partition("\n")[2] for part in (change("x", one), change("x", two)))
    assert plain.startswith("---")
    both_ways(before, after, plain)


def test_a_file_that_a_patch_makes_and_changes() -> None:
    hunk = "@@ -1 +1,2 @@\n new\n+more\n"
    patch = (add("x") + change("x", hunk)).encode()
    assert apply({}, patch) == {"x": text("new\nmore\n")}


def test_a_file_that_a_patch_changes_and_moves_from_is_read_as_it_was() -> None:
    both_ways(
        {"x": text(ABC), "y": text("y\n")},
        {"x": text("y\n"), "z": text("a\nB\nc\n")},
        move("x", "z", body=HUNK) + move("y", "x"),
    )


def test_a_stack() -> None:
    before: Tree = {"x": text(ABC), "y": text(ABC)}
    patches = [
        change("x"),
        move("x", "z") + delete("y"),
        change("z", "@@ -1,3 +1,2 @@\n a\n-B\n c\n") + add("y", "100755"),
        add("x", "120000", "z", NO_END),
    ]
    after: Tree = {"z": text("a\nc\n"), "y": text("new\n", 0o755), "x": link("z")}
    both_ways(before, after, *patches)
    # One bundle less in the middle is the same call without it.
    data = [patch.encode() for patch in patches]
    assert apply(before, data[0]) == {"x": text("a\nB\nc\n"), "y": text(ABC)}


def test_a_stack_stops_at_the_first_that_does_not_fit() -> None:
    error = refused({"x": text(ABC)}, change("x"), change("x"))
    assert (error.code, error.patch) == ("already-applied", "1.patch")


# -- binary ------------------------------------------------------------------------------------

BYTES = bytes(range(256)) * 30


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("plan"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"x": text(BYTES)}, {"x": text(BYTES[:900] + b"\0put in" + BYTES[1000:])}),
        ({"x": text(BYTES)}, {"x": text(b"\0other")}),
        ({"x": text(BYTES)}, {"x": text("text\n")}),
        ({"x": text(BYTES)}, {"x": text("")}),
        ({"x": text("")}, {"x": text(BYTES, 0o755)}),
        ({}, {"x": text(BYTES, 0o755)}),
        ({"x": text(BYTES)}, {}),
        ({"x": text(BYTES)}, {"y": text(BYTES + b"\0more")}),
        ({"x": text(BYTES)}, {"x": link("y")}),
        ({"x": text(BYTES + b"\1" * 70_000)}, {"x": text(b"\1" * 70_000 + BYTES)}),
    ],
)
def test_binary_there_and_back(tools: Tools, before: Tree, after: Tree) -> None:
    patch = tools.git_diff(before, after, "--binary", "-M20%")
    assert b"GIT binary patch" in patch
    assert apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before


def test_binary_patches_are_for_one_base_alone(tools: Tools) -> None:
    before, after = {"x": text(BYTES)}, {"x": text(BYTES[:900] + b"\0put in" + BYTES[1000:])}
    delta = tools.git_diff(before, after, "--binary").decode()
    assert "\ndelta " in delta
    error = refused({"x": text(BYTES + b"\0")}, delta)
    assert isinstance(error, HunkError)
    assert "git diff --binary" in (error.hint or "")
    literal = tools.git_diff(before, {"x": text(b"\0other")}, "--binary").decode()
    assert "\nliteral " in literal
    assert refused({"x": text(BYTES + b"\0")}, literal).message == error.message
    assert refused(after, delta).exit_code == 3


def test_binary_patches_need_whole_blob_ids(tools: Tools) -> None:
    patch = tools.git_diff({"x": text(BYTES)}, {"x": text(b"\0other")}, "--binary").decode()
    head = patch.splitlines()[1]
    old, new = head.split()[1].split("..")
    for index in (
        f"index {old[:10]}..{new[:10]} 100644",
        f"index {old[:39]}..{new} 100644",
        f"index {old}..{new[:39]} 100644",
        "old mode 100644\nnew mode 100755",
    ):
        assert refused({"x": text(BYTES)}, patch.replace(head, index)).code == "binary-unchecked"
    lie = patch.replace(new, "1" * 40)
    assert refused({"x": text(BYTES)}, lie).code == "binary"


def test_a_binary_patch_of_one_half_is_not_taken_back(tools: Tools) -> None:
    before, after = {"x": text(BYTES)}, {"x": text(b"\0other")}
    patch = tools.git_diff(before, after, "--binary")
    half = patch[: patch.index(b"\n\n") + 2]
    assert apply(before, half) == after
    with pytest.raises(Refused) as caught:
        apply(after, half, reverse=True)
    assert (caught.value.code, caught.value.file) == ("binary", "b/x")
    assert caught.value.message
    assert caught.value.hint


def _binary(method: str, data: bytes, old: bytes, new: bytes) -> bytes:
    """A binary patch with any data (git's base 85, 52 bytes a line)."""
    import base64
    import zlib

    def blob(content: bytes) -> str:
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    packed = zlib.compress(data)
    lines = []
    for start in range(0, len(packed), 52):
        chunk = packed[start : start + 52]
        size = len(chunk) + (64 if len(chunk) < 27 else 70)
        lines.append(bytes([size]) + base64.b85encode(chunk, pad=True) + b"\n")
    head = f"diff --git a/x b/x\nindex {blob(old)}..{blob(new)} 100644\nGIT binary patch\n"
    return head.encode() + f"{method} {len(data)}\n".encode() + b"".join(lines) + b"\n"


@pytest.mark.parametrize(
    ("delta", "result"),
    [
        (b"\x04\x03\x03new", b"new"),  # insert 3
        (b"\x04\x04\x90\x04", b"base"),  # copy 4 from 0
        (b"\x04\x06\x91\x01\x03\x03new", b"asenew"),  # copy 3 from 1, insert 3
        (b"\x04\x00", b""),
        (b"\x84\x00\x03\x03new", b"new"),  # a size in two bytes
        (b"\x84" + b"\x80" * 7 + b"\x00\x03\x03new", b"new"),  # and in nine, the most
    ],
)
def test_deltas(delta: bytes, result: bytes) -> None:
    patch = _binary("delta", delta, b"base", result)
    assert apply({"x": text(b"base")}, patch) == {"x": text(result)}


@pytest.mark.parametrize(
    "delta",
    [
        b"", b"\x04", b"\x84", b"\x80" * 20, b"\x05\x03\x03new", b"\x04\x03\x03ne",
        b"\x04\x03\x00", b"\x04\x03\x02ne", b"\x04\x03\x04news", b"\x04\x04\x91",
        b"\x04\x04\x91\x01", b"\x04\x04\x91\x01\x04", b"\x04\x02\x90\x04", b"\x04\x04\x80",
        b"\x04\x01\x9f\xff\xff\xff\xff",
        b"\x04\xff\xff\xff\xff\x7f\x90\x04", b"\x04\x02\x90\x01",
        b"\x84" + b"\x80" * 8 + b"\x00\x03\x03new",
    ],
)  # fmt: skip
def test_damaged_deltas(delta: bytes) -> None:
    patch = _binary("delta", delta, b"base", b"new")
    error = refused({"x": text(b"base")}, patch.decode())
    assert (error.code, error.file) == ("binary", "x")


@pytest.mark.parametrize(
    ("delta", "result"),
    [
        (b"\x04\x03\x91\x03\x02\x02xy", b"exy"),  # copies 2 of the 1 byte that is left
        (b"\x04\x03\x91\x05\x01\x03xyz", b"xyz"),  # copies from behind the end
        (b"\x04\x03\x05xyz", b"xyz"),  # inserts 5 of 3
    ],
)
def test_a_delta_takes_no_bytes_that_are_not_there(delta: bytes, result: bytes) -> None:
    """Though a slice beyond the end would give the very result that the patch announces."""
    patch = _binary("delta", delta, b"base", result)
    assert refused({"x": text(b"base")}, patch.decode()).message == "a damaged binary delta"


def test_a_delta_makes_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "_LARGEST", 4)
    patch = _binary("delta", b"\x04\x04\x90\x04", b"base", b"base")
    assert apply({"x": text(b"base")}, patch) == {"x": text(b"base")}
    patch = _binary("delta", b"\x04\x05\x90\x04\x01s", b"base", b"bases")
    assert refused({"x": text(b"base")}, patch.decode()).code == "binary"


# -- turned round ------------------------------------------------------------------------------


def test_turned_round_twice_is_the_same() -> None:
    blobs = (f"\nindex {'1' * 40}..{'2' * 40}{mode}\n---" for mode in ("", " 100644"))
    parts = [change("x"), *(change("x").replace("\n---", blob, 1) for blob in blobs)]
    parts += [add("x", "100755"), delete("x", "100755"), move("x", "y", body=HUNK)]
    parts += ["diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"]
    parts += [f"--- a/lao\n+++ b/tzu\n{HUNK}"]
    binary = _binary("literal", b"new", b"old", b"new").decode()
    back = _binary("literal", b"old", b"new", b"old").decode()
    parts += [binary + back.partition("GIT binary patch\n")[2]]
    for data in parts:
        (file,) = parse(data.encode(), "x").files
        file = file._replace(part=3)
        turned = reverse_file(file)
        twice = reverse_file(turned)
        assert twice == file
        assert (turned.old_blob, turned.new_blob) == (file.new_blob, file.old_blob)
        assert turned.part == 3
        if file.git:
            assert (turned.old_path, turned.new_path) == (file.new_path, file.old_path)


def test_of_two_names_of_a_plain_diff_the_same_file_is_taken_both_ways() -> None:
    for old, new, name in (("lao", "tzu", "tzu"), ("x", "x.new", "x"), ("x.old", "x", "x")):
        patch = f"--- a/{old}\n+++ b/{new}\n{HUNK}"
        both_ways({name: text(ABC)}, {name: text("a\nB\nc\n")}, patch)


def test_mails_that_build_on_each_other_are_taken_back_one_by_one() -> None:
    mail = f"From {'1' * 40} Mon Sep 17 00:00:00 2001\nSubject: x\n\n---\n"
    one, two = move("x", "y"), move("y", "z", body=HUNK)
    both_ways({"x": text(ABC)}, {"z": text("a\nB\nc\n")}, mail + one + mail + two)


# -- not right yet -----------------------------------------------------------------------------


def test_a_series_in_one_file() -> None:
    patch = (
        change("x", "@@ -1 +1 @@\n-zero\n+one\n")
        + delete("x", lines="one\n")
        + add("x", line="two")
        + change("x", "@@ -1 +1 @@\n-two\n+three\n")
    )
    both_ways({"x": text("zero\n")}, {"x": text("three\n")}, patch)


def test_a_file_that_a_patch_makes_and_changes_taken_back() -> None:
    patch = add("x") + change("x", "@@ -1 +1,2 @@\n new\n+more\n")
    both_ways({}, {"x": text("new\nmore\n")}, patch)


def test_a_file_moved_in_and_changed() -> None:
    before = {"x": text("x\n"), "y": text(ABC)}
    after = {"z": text("x\n"), "x": text("a\nB\nc\n")}
    assert apply(before, (move("x", "z") + move("y", "x") + change("x")).encode()) == after


@pytest.mark.parametrize("target", ["..", "/tmp", "real"])
def test_a_file_behind_a_link_that_the_patch_makes(target: str) -> None:
    tree = {"real/y": text(ABC)}
    make, evil = add("x", "120000", target, NO_END), add("x/evil")
    for patches in ((make + evil,), (make, evil), (evil + make,)):
        with pytest.raises(Refused) as caught:
            apply(tree, *(patch.encode() for patch in patches))
        error = caught.value
        assert (error.bundle, error.file, error.code) == ("bundle", "x/evil", "beyond-symlink")
        assert error.message == "x/evil would lie behind x, which is a symlink"
        assert error.hint


def test_a_file_in_a_file() -> None:
    behind = "x/y would lie behind x, which is a file"
    inside = "x would be a file, and files would lie in it"
    for tree, patches, said in (
        ({}, [add("x") + add("x/y")], behind),
        ({"x/y": text(ABC)}, [change("x/y") + add("x")], behind),
        ({"x/y": text(ABC)}, [change("x/y"), add("x")], inside),
        ({}, [add("x/y"), add("x")], inside),
    ):
        with pytest.raises(Refused) as caught:
            apply(tree, *(patch.encode() for patch in patches))
        error = caught.value
        assert (error.message, error.code) == (said, "beyond-symlink")
        assert (error.patch, error.file) == (f"{len(patches) - 1}.patch", said.split()[0])
        assert error.hint


def test_a_folder_whose_files_went_leaves_its_name() -> None:
    """Files that a patch looked at, changed, moved or removed are counted as what they are."""
    body = "@@ -1 +1,2 @@\n new\n+more\n"
    gone = delete("x/y", lines="new\nmore\n")
    for tree, made in (({}, [add("x/y")]), ({"x/y": text("new\n")}, [])):
        patches = [*made, change("x/y", body), gone + add("x")]
        assert apply(tree, *(patch.encode() for patch in patches)) == {"x": text("new\n")}
    patch = move("x/y", "z") + add("x")
    assert apply({"x/y": text(ABC)}, patch.encode()) == {"x": text("new\n"), "z": text(ABC)}


def test_a_file_that_is_changed_and_removed_leaves_its_name_to_a_folder() -> None:
    patch = change("x") + delete("x", lines="a\nB\nc\n") + add("x/y")
    both_ways({"x": text(ABC)}, {"x/y": text("new\n")}, patch)


@pytest.mark.parametrize(
    ("hunk", "after"),
    [
        ("@@ -3,0 +4 @@\n+new\n", "a\nb\nc\nnew\nd\n"),
        ("@@ -0,0 +1 @@\n+new\n", "new\na\nb\nc\nd\n"),
        ("@@ -1 +1 @@\n-a\n+new\n", "new\nb\nc\nd\n"),
        ("@@ -1,2 +0,0 @@\n-a\n-b\n", "c\nd\n"),
        # Context on one side alone, as diff -U0 --function-context makes it.
        ("@@ -1,2 +1,3 @@\n a\n b\n+new\n", "a\nb\nnew\nc\nd\n"),
    ],
)
def test_hunks_without_context_where_the_base_is_known(hunk: str, after: str) -> None:
    before = "a\nb\nc\nd\n"
    blob = hashlib.sha1(b"blob %d\0" % len(before) + before.encode()).hexdigest()
    patch = change("x", hunk).replace("\n---", f"\nindex {blob[:7]}..1234567 100644\n---", 1)
    assert apply({"x": text(before)}, patch.encode()) == {"x": text(after)}
    assert refused({"x": text(before + "e\n")}, patch).code == "hunk-not-found"


def test_a_new_file_that_begins_at_another_line() -> None:
    patch = "--- /dev/null\n+++ b/x\n@@ -1,0 +1 @@\n+new\n"
    assert apply({}, patch.encode()) == {"x": text("new\n")}


def test_two_names_for_one_file_and_no_rename() -> None:
    patch = f"diff --git a/p/x b/q/x\n--- a/p/x\n+++ b/q/x\n{HUNK}"
    with pytest.raises(Refused):
        apply({"p/x": text(ABC)}, patch.encode())


def test_the_reader_of_pristine_contents_may_refuse(tmp_path: Path) -> None:
    """What drifted is the reader's to say; the plan adds where it was met."""

    def pristine(key: Key) -> FileState | None:
        raise Refused(f"{key[1]} was changed by someone else", code="drift")

    files = map_stripped(parse(change("x").encode(), "x").files, 1).files
    with pytest.raises(Refused) as caught:
        materialise([Step("bundle", "p.patch", str(tmp_path), files)], pristine)
    error = caught.value
    assert (error.code, error.bundle, error.patch) == ("drift", "bundle", "p.patch")
    assert (error.file, error.line) == ("x", 1)
