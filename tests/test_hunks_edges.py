"""The edges of placing hunks: every small case against a second, slow way, and each bound.

``tests/test_hunks.py`` has the promise; this has what a change of one sign or number in the
engine would break.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from patchkit import hunks as engine
from patchkit.errors import HunkError
from patchkit.hunks import (
    MAX_CANDIDATES,
    Headings,
    Placement,
    _skip_lines,
    apply_hunks,
    apply_with_own_ends,
    heading_agrees,
    locate,
    locate_plain,
    looks_applied,
    nearest,
    patch_text,
    reverse,
)
from patchkit.model import Hunk, split
from patchkit.patchfile import parse


def hunks(text: str | bytes) -> tuple[Hunk, ...]:
    data = text.encode() if isinstance(text, str) else text
    return parse(b"--- a/x\n+++ b/x\n" + data, "x").files[0].hunks


def refused(file: list[bytes], patch: Sequence[Hunk], *, c: bool = False) -> HunkError:
    with pytest.raises(HunkError) as caught:
        apply_hunks(file, patch, c=c)
    return caught.value


# -- the bytes against the lines ---------------------------------------------------------------


def small_files() -> Iterator[bytes]:
    """All files of up to four short lines, each also without its last line end."""
    for size in range(5):
        for file in itertools.product((b"a\n", b"b\n"), repeat=size):
            text = b"".join(file)
            yield text
            if text:
                yield text[:-1]


def small_hunks() -> Iterator[Hunk]:
    """Hunks of up to three old lines, of every form that a header can give them."""
    for old in (b"", b"a\n", b"b\n", b"a", b"a\nb\n", b"a\na\n", b"b\na\na\n", b"a\nb"):
        count = len(split(old))
        for leading, trailing in ((0, 0), (1, 0), (0, 1), (1, 1)):
            if leading + trailing > count:
                continue
            for start in range(5):
                signs = b" " * leading + b"-" * (count - leading - trailing) + b"+"
                yield Hunk(
                    start, max(start, 1), old, b"new\n", leading, trailing, b"", 3,
                    signs + b" " * trailing,
                )  # fmt: skip


def by_lines(data: bytes, patch: Sequence[Hunk], exact: bool) -> object:
    """The same through a list of lines; of exact contents the stated line is believed."""
    lines = split(data)
    if exact:
        out, at, whole = list(lines), 0, True
        for hunk in patch:
            start = engine._stated(hunk)
            whole = whole and start >= at and engine._matches(lines, hunk, start)
            at = start + hunk.old_count
        if whole:
            for hunk in reversed(patch):
                start = engine._stated(hunk)
                out[start : start + hunk.old_count] = hunk.new
            return b"".join(out), tuple(Placement(engine._stated(h) + 1, 0) for h in patch)
    try:
        placed = apply_hunks(lines, patch)
    except HunkError as error:
        return error.code, error.hunk
    return b"".join(lines), placed


def by_bytes(data: bytes, patch: Sequence[Hunk], exact: bool) -> object:
    try:
        return patch_text(data, patch, exact=exact)
    except HunkError as error:
        return error.code, error.hunk


@pytest.mark.parametrize("exact", [False, True])
def test_one_hunk_on_every_small_file(exact: bool) -> None:
    outcomes = set()
    for data in small_files():
        for hunk in small_hunks():
            found = by_bytes(data, [hunk], exact)
            assert found == by_lines(data, [hunk], exact), (data, hunk)
            outcomes.add(found[0] if isinstance(found[0], str) else "applied")  # type: ignore[index]
    assert outcomes >= {"applied", "hunk-not-found", "hunk-ambiguous"}


@pytest.mark.parametrize("exact", [False, True])
def test_two_hunks_on_every_small_file(exact: bool) -> None:
    """Also where the second stands before, at, or inside the end of the first."""
    for data in small_files():
        for first in small_hunks():
            if first.leading or first.old_start > 2:
                continue
            for start in (1, 2, 3, 4):
                second = Hunk(start, start, b"a\n", b"", 0, 0, b"", 6, b"-")
                patch = [first, second]
                assert by_bytes(data, patch, exact) == by_lines(data, patch, exact), (data, patch)


def test_lines_are_skipped_from_every_start_and_by_every_count() -> None:
    for pattern in (
        (b"\n",),
        (b"a" * 40 + b"\n",),
        (b"a" * 40 + b"\n", b"\n", b"\n"),
        (b"a" * 700 + b"\n", *[b"\n"] * 90),
    ):
        lines = list(itertools.islice(itertools.cycle(pattern), 210))
        for last in (b"", b"no end"):
            data = b"".join(lines) + last
            starts = [0, *itertools.accumulate(len(line) for line in lines)]
            for begin in (0, 1, 63, 64, 100, 210):
                for count in range(212):
                    to = begin + count
                    expected = starts[to] if to < len(starts) else None
                    assert _skip_lines(data, starts[begin], count) == expected


@pytest.mark.parametrize("marks", [b"int f(int a) {\n", b"struct s {\n"])
def test_bytes_are_patched_by_the_rule_of_c_where_it_is_c(marks: bytes) -> None:
    """The heading names another function: refused in C alone, moved elsewhere."""
    file = [b"int g(int a) {\n", *[f"  x{n};\n".encode() for n in range(9)]]
    patch = hunks(b"@@ -1,3 +1,3 @@ " + marks + b"   x3;\n-  x4;\n+  y;\n   x5;\n")
    patch = (patch[0]._replace(old_start=20),)
    data = b"".join(file)
    if marks.startswith(b"int"):
        with pytest.raises(HunkError) as caught:
            patch_text(data, patch, c=True)
        assert caught.value.code == "hunk-wrong-place"
        with pytest.raises(HunkError):
            patch_text(data.replace(b"\n", b"\r\n"), patch, c=True, own_ends=True)
        assert refused(list(file), patch, c=True).code == "hunk-wrong-place"
        with pytest.raises(HunkError):
            apply_with_own_ends(list(file), patch, c=True)
        apply_with_own_ends(list(file), patch)
    assert patch_text(data, patch)[1] == (Placement(5, -15),)


def test_own_line_ends_are_kept_where_asked_for_alone() -> None:
    patch = hunks("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n")
    with pytest.raises(HunkError):
        patch_text(b"a\r\nb\r\nc\r\n", patch)
    patched, placed = patch_text(b"a\r\nb\r\nc\r\n", patch, own_ends=True)
    assert patched == b"a\r\nB\r\nc\r\n" and placed == (Placement(1, 0),)
    # A file that fits as it is needs no second look.
    assert patch_text(b"a\nb\nc\n", patch, own_ends=True)[0] == b"a\nB\nc\n"


def test_the_first_line_of_an_empty_file_of_other_ends() -> None:
    empty: list[bytes] = []
    apply_with_own_ends(empty, hunks("@@ -0,0 +1 @@\n+a\n"))
    assert empty == [b"a\n"]


def test_a_hunk_taken_back_keeps_its_context_and_its_line() -> None:
    (hunk,) = hunks("@@ -4,4 +4,4 @@ def f\n a\n-b\n+B\n c\n d\n")
    back = reverse(hunk)
    assert (back.leading, back.trailing, back.heading, back.line) == (1, 2, b"def f", 3)
    assert reverse(back) == hunk


# -- where a hunk may stand ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("-1,0 +1", 0),
        ("-1,0 +2", 1),
        ("-0,0 +1", 0),
        ("-2,0 +1", 2),
        ("-2,0 +3", 2),
        ("-1,0 +0", 0),
    ],
)
def test_where_a_hunk_without_old_lines_says_that_it_stands(header: str, line: int) -> None:
    start, new = (int(part.split(",")[0][1:]) for part in header.split())
    assert engine._stated(Hunk(start, new, b"", b"a\n", 0, 0, b"", 3, b"+")) == line


def test_a_second_hunk_may_begin_where_the_first_ends() -> None:
    file = [b"a\n", b"b\n", b"c\n", b"d\n"]
    patch = [
        Hunk(1, 1, b"a\nb\n", b"A\nb\n", 0, 1, b"", 3, b"-+ "),
        Hunk(3, 3, b"c\nd\n", b"C\nd\n", 1, 1, b"", 7, b"-+ "),
    ]
    assert locate(file, patch) == [Placement(1, 0), Placement(3, 0)]


def test_a_hunk_that_overlaps_the_one_above_it_is_told_with_its_line() -> None:
    patch = hunks("@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n@@ -12,3 +12,3 @@\n c\n-d\n+D\n e\n")
    error = refused([b"a\n", b"b\n", b"c\n", b"d\n", b"e\n", b"f\n"], patch)
    assert (error.code, error.hunk, error.line) == ("hunk-order", 2, 8)
    assert "before the end of the hunk above it" in str(error)


def test_hunks_that_overlap_at_their_stated_lines_are_refused() -> None:
    patch = [
        Hunk(2, 2, b"b\nc\n", b"B\nc\n", 0, 1, b"", 3, b"-+ "),
        Hunk(3, 3, b"c\nd\n", b"C\nd\n", 0, 1, b"", 7, b"-+ "),
    ]
    file = [b"a\n", b"b\n", b"c\n", b"d\n"]
    error = refused(list(file), patch)
    assert (error.code, error.hunk, error.line) == ("hunk-order", 2, 7)
    with pytest.raises(HunkError, match="before the end of the hunk above"):
        patch_text(b"".join(file), patch)


def test_where_all_stand_at_their_lines_a_twin_does_not_matter() -> None:
    twin = [b"x\n", b"y\n", b"z\n"]
    patch = hunks("@@ -1,2 +1,2 @@\n-a\n+A\n b\n@@ -3,3 +3,3 @@\n x\n-y\n+Y\n z\n")
    assert locate([b"a\n", b"b\n", *twin, *twin], patch) == [Placement(1, 0), Placement(3, 0)]
    assert refused([b"a\n", b"b\n", b"new\n", *twin, *twin], patch).code == "hunk-ambiguous"


def test_a_hunk_at_the_start_stays_there_where_another_moved() -> None:
    patch = hunks("@@ -1,2 +1,2 @@\n-a\n+A\n b\n@@ -5,3 +5,3 @@\n d\n-e\n+E\n f\n")
    file = [letter.encode() + b"\n" for letter in "abcdef"]
    assert locate([*file, b"g\n"], patch) == [Placement(1, 0), Placement(4, -1)]
    assert refused([b"?\n", *file, b"g\n"], patch).hunk == 1


@pytest.mark.parametrize("new_start", [0, 1, 2, 3])
@pytest.mark.parametrize("file", [b"", b"x\n", b"x", b"x\ny\n"])
def test_lines_added_behind_the_first_line_without_context(file: bytes, new_start: int) -> None:
    """The start of a file is no place behind a line, nor is a line behind it the start."""
    patch = [Hunk(1, new_start, b"", b"new\n", 0, 0, b"", 3, b"+")]
    found = by_bytes(file, patch, False)
    assert found == by_lines(file, patch, False)
    applied = new_start < 2 and not file
    assert found[0] == (b"new\n" if applied else "hunk-not-found")  # type: ignore[index]


def test_as_many_places_as_are_looked_at_and_one_more() -> None:
    block = [b"a\n", b"b\n"]
    patch = hunks("@@ -5000,2 +5000,3 @@\n a\n+x\n b\n")
    few = refused(block * MAX_CANDIDATES, patch)
    assert f"fits {MAX_CANDIDATES} places" in str(few)
    more = refused(block * (MAX_CANDIDATES + 1), patch)
    assert f"fits more than {MAX_CANDIDATES} places" in str(more)


@pytest.mark.parametrize("count", [2, 8, 9, 10])
def test_eight_places_are_told(count: int) -> None:
    patch = hunks("@@ -900,2 +900,3 @@\n a\n+x\n b\n")
    error = refused([b"a\n", b"b\n"] * count, patch)
    shown = ", ".join(str(2 * number + 1) for number in range(min(count, 8)))
    dots = " …" if count > 8 else ""
    assert error.message == f"the hunk fits {count} places: lines {shown}{dots}"
    assert (error.line, error.code) == (3, "hunk-ambiguous")
    assert len(error.data["candidates"]) == count


def test_frequent_lines_are_looked_for_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that all hunks of a file may search are counted together."""
    file = [b"a\n"] * (MAX_CANDIDATES + 3) + [b"b\n"] + [b"a\n"] * 5
    size = len(b"".join(file)) + 1
    one = Hunk(5000, 5000, b"b\na\n", b"x\na\n", 1, 1, b"", 3, b" - ")
    assert locate(file, [one])[0].line == MAX_CANDIDATES + 4
    often = [Hunk(5000, 5000, b"a\na\n", b"x\na\n", 1, 1, b"", 3, b" - ")]
    monkeypatch.setattr(engine, "MAX_LOOKED_AT", size)
    search = engine._Search(file, often)
    assert search.places((b"a\n", b"a\n"))[1]
    with pytest.raises(HunkError, match="no end of looking") as caught:
        search.places((b"a\n", b"a\n"))
    assert caught.value.code == "hunk-ambiguous"
    assert "from the installed release" in (caught.value.hint or "")
    assert search.places(()) == ([], False)


# -- headings ------------------------------------------------------------------------------------


def named(heading: bytes, above: bytes) -> bool:
    (hunk,) = hunks("@@ -2 +2 @@\n-x\n+y\n")
    return heading_agrees(Headings([above + b"\n", b"x\n"]), hunk._replace(heading=heading), 1)


def test_a_heading_may_be_cut_inside_a_name_from_39_bytes_on() -> None:
    name = b"def " + b"f" * 40
    for size in (38, 39, 40, 41, 80):
        text = (b"def " + b"f" * 90)[:size]
        assert named(text, b"def " + b"f" * 90) == (size >= 39), size
    assert named(name, name) and not named(name[:20], name) and not named(name, name[:-1])
    assert not named(name[:30] + b"(a, b, c, d)", name)


def test_a_heading_of_c_may_be_cut_before_its_name() -> None:
    def agrees(heading: bytes, there: bytes) -> bool:
        return engine._c_names_agree(heading, there)

    there = b"int other(int a) {"
    for size in (38, 39, 40, 41, 78, 79, 80):
        # What is closed before the cut may not be the name.
        heading = (b"__launch_bounds__(256) " + b"a" * 90)[:size]
        assert agrees(heading, there) == (size in (39, 40) or size >= 79), size
    for size in (399, 400, 401):
        # A line of the file is looked at up to its 400th byte.
        there = b"int f() " + b"a" * (size - 8)
        assert agrees(b"int h(int a)", there) == (size > 400), size
        assert agrees(b"int f(int a)", there)
    behind = b"int f() " + b"a" * 392
    assert not agrees(b"int f(int a)", behind[:390] + b" g(int a)")
    assert not agrees(b"int h(int a)", behind[:397] + b"g()")
    assert not agrees(b"int h(int a)", behind[:397] + b" g(int a)")
    assert agrees(b"int h(int a)", behind[:398] + b" g(int a)")
    assert (
        engine._c_name(b"__launch_bounds__(256) kernel(int (*f)(int), int b) {", cut=False)
        == b"kernel"
    )
    assert engine._c_name(b"int f(g(a), h(b)) {", cut=False) == b"f"


def test_what_a_line_of_c_names() -> None:
    assert engine.c_heading(b"int f(int a) {\n") == b"f"
    assert engine.c_heading(b"struct s {  \n") == b"s"
    assert engine.c_heading(b"  int f(int a) {\n") is None
    for size, name in ((399, b"f"), (400, b"f"), (401, None)):
        assert engine.c_heading(b"int f() " + b"a" * (size - 8)) == name
    assert engine.c_heading(b"int f() " + b"a" * 390 + b" g(int a)") is None


def test_the_heading_that_git_gives_a_hunk() -> None:
    headings = Headings([b"class A:\n", b"  def f():\n", b"x\n"])
    for path, text in (("a.py", b"def f():"), ("a.pyi", b"def f():"), ("a.txt", b"class A:")):
        assert engine.heading(headings, 2, path) == text
    assert engine.heading(headings, 1, "a.py") == b"class A:"


def test_a_heading_of_python_ends_without_blanks() -> None:
    headings = Headings([b"  def f(a):  \n", b"x\n"])
    assert headings.above(1) == (b"", b"def f(a):")


# -- what is said --------------------------------------------------------------------------------


def test_an_offset_into_another_def_says_where_and_what_next() -> None:
    file = [b"def g():\n", *[f"  x{n}\n".encode() for n in range(9)]]
    patch = hunks("@@ -30,3 +30,3 @@ def f():\n   x3\n-  x4\n+  y\n   x5\n")
    error = refused(file, patch)
    assert (error.code, error.line) == ("hunk-wrong-place", 3)
    assert "whether the code moved" in (error.hint or "")


def test_an_applied_patch_is_told_with_its_line() -> None:
    patch = hunks("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n")
    error = refused([b"a\n", b"B\n", b"c\n"], patch)
    assert (error.code, error.hunk, error.line) == ("already-applied", 1, 3)
    assert "already applied" in str(error)


def test_half_of_a_patch_that_is_there_is_told() -> None:
    two = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -7,3 +7,3 @@\n g\n-h\n+H\n i\n"
    letters = [f"{letter}\n".encode() for letter in "abcdefghij"]
    half = [line.upper() if line == b"b\n" else line for line in letters]
    assert refused(half, hunks(two)).data.get("half_applied") is True
    other = [line if line != b"b\n" else b"?\n" for line in letters]
    assert "half_applied" not in refused(other, hunks(two)).data
    # One hunk that adds nothing, or of which the old lines are there too, proves nothing.
    gone = "@@ -1,3 +1,2 @@\n a\n-b\n c\n" + two[two.index("@@ -7") :]
    assert "half_applied" not in refused(other, hunks(gone)).data
    both = [b"?\n", *letters[1:], b"g\n", b"H\n", b"i\n", b"j\n"]
    assert "half_applied" not in refused(both, hunks(two)).data
    assert "half_applied" not in refused([b"a\n", b"c\n"], hunks(two[: two.index("@@ -7")])).data
    twice = [b"0\n", *[b"a\n", b"B\n", b"c\n"] * 2]
    assert "half_applied" not in refused(twice, hunks(two[: two.index("@@ -7")])).data


def test_the_def_around_a_near_place_is_told_by_the_rule_of_the_file() -> None:
    file = [b"int g(int a) {\n", b"  class x\n", *[f"  x{n};\n".encode() for n in range(9)]]
    patch = hunks("@@ -5,4 +5,4 @@ int f(int a) {\n   x3;\n   x4;\n-  x9;\n+  y;\n   x6;\n")
    for c, inside in ((True, "int g(int a) {"), (False, "class x")):
        error = refused(list(file), patch, c=c)
        (near,) = error.data["near"]
        assert near == {"line": 6, "similarity": 0.75, "inside": inside}
        assert f"nearest: line 6 in '{inside}', 75% of the lines are equal" in error.detail[0]


def test_near_places_and_their_defs_are_told_in_a_line() -> None:
    block = [b"  one\n", b"  two\n", b"  three\n"]
    patch = hunks("@@ -9,3 +9,4 @@\n   one\n   two\n+  new\n   THREE\n")
    error = refused([*block, b"def f():\n", *block, b"pass\n", *block, b"pass\n", *block], patch)
    assert error.detail[0] == (
        "nearest: line 9 in 'def f():', 67% of the lines are equal"
        " (also near: line 5 in 'def f():'; line 13 in 'def f():')"
    )
    assert [row["similarity"] for row in error.data["near"]] == [0.667] * 3
    alone = refused([*block, b"pass\n", *block], patch)
    assert alone.detail[0] == "nearest: line 5, 67% of the lines are equal (also near: line 1)"


def test_what_was_expected_and_found_is_told_with_line_numbers() -> None:
    patch = hunks("@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n")
    error = refused([b"a\n", b"b\n", b"x\x1b\t\n", b"d\n"], patch)
    assert error.detail[1:] == (
        "         2   b", "  expected   c", "  found    3   x\\x1b\t", "         4   d"
    )  # fmt: skip
    nothing = hunks("@@ -2,14 +2,14 @@\n" + "".join(f" {n}\n" for n in range(13)) + "-a\n+b\n")
    told = refused([b"?\n"], nothing).detail
    assert told == tuple(f"  expected   {n}" for n in range(12))


def test_lines_that_differ_in_what_cannot_be_seen_are_told_as_such() -> None:
    patch = hunks(b"@@ -2,3 +2,3 @@\n b\n-\xff\xc3\xa4 c\n+C\n d\n")
    error = refused([b"a\n", b"b\n", b"\xff\xc3\xa4\tc\n", b"d\n"], patch)
    assert error.detail[2:4] == (
        "  expected   '\ufffd\xe4 c\\n'",
        "  found    3   '\ufffd\xe4\\tc\\n'",
    )
    assert error.data["reason"] == "whitespace"


@pytest.mark.parametrize(
    ("old", "reason"),
    [
        (b"b\n c\n", "anchor"), (b"b\r\n c\r\n", "line-ends"), (b"b\n c", "last-line-end"),
        (b"b \n c\n", "whitespace"), (b"b\n d\n", "not-found"), (b"b\n c \r\n", "whitespace"),
        (b"bX\n c\n", "not-found"),
    ],
)  # fmt: skip
def test_how_lines_differ(old: bytes, reason: str) -> None:
    assert engine._difference(split(old), [b"b\n", b" c\n"]) == reason
    assert engine._difference([b"b\n", b" c\n"], split(old)) == reason


def test_a_hunk_without_context_says_so_but_at_the_start() -> None:
    def reason(header: str, body: str) -> object:
        return refused([b"a\n", b"b\n", b"c\n"], hunks(f"@@ {header} @@\n{body}")).data["reason"]

    assert reason("-2 +2", "-x\n+y\n") == "no-context"
    assert reason("-5,0 +6", "+y\n") == "no-context"
    assert reason("-1 +1", "-x\n+y\n") == "not-found"


def test_the_nearest_place_counts_lines_of_one_letter_where_there_are_no_others() -> None:
    (hunk,) = hunks("@@ -2,4 +2,4 @@\n a\n-b\n+B\n c\n d\n")
    assert nearest([b"?\n", b"?\n", b"a\n", b"!\n", b"c\n", b"d\n"], hunk) == [(2, 0.75)]
    (long,) = hunks("@@ -2,4 +2,4 @@\n abc\n-b\n+B\n c\n d\n")
    file = [b"c\n", b"d\n", b"?\n", b"abc\n", b"!\n", b"!\n", b"!\n", b"b\n", b"c\n", b"d\n"]
    assert nearest(file, long)[0] == (3, 0.25)


def test_near_places_do_not_overlap_and_are_not_much_worse() -> None:
    (hunk,) = hunks("@@ -1,4 +1,4 @@\n one\n two\n-three\n+x\n four\n")
    whole, half = [b"one\n", b"two\n", b"THREE\n", b"four\n"], [b"one\n", b"two\n", b"?\n", b"?\n"]
    assert nearest([*whole, *whole, *half], hunk) == [(0, 0.75), (4, 0.75)]
    assert [place for place, _ in nearest(whole * 5, hunk)] == [0, 4, 8]
    same = hunks("@@ -1,2 +1,2 @@\n one\n-two\n+x\n")[0]
    assert nearest([b"one\n", b"?\n", b"one\n", b"?\n"], same) == [(0, 0.5), (2, 0.5)]


def test_near_places_in_the_middle_of_a_file() -> None:
    (hunk,) = hunks("@@ -1,8 +1,8 @@\n" + " aaa\n" * 7 + "-b\n+x\n")
    # Of the places that overlap, and are nearly as good, the best alone is told.
    assert nearest([b"?\n"] * 9 + [b"aaa\n"] * 7 + [b"c\n"], hunk) == [(9, 0.875)]
    (hunk,) = hunks("@@ -1,4 +1,4 @@\n one\n two\n-three\n+x\n four\n")
    block = [b"one\n", b"two\n", b"three\n", b"four\n"]
    # As bad as three quarters of the best is good enough.
    assert nearest([*block, *block[:3], b"?\n"], hunk) == [(0, 1.0), (4, 0.75)]
    (hunk,) = hunks("@@ -1 +1 @@\n-one\n+x\n")
    assert nearest([b"?\n", b"one\n"], hunk) == [(1, 1.0)]


def test_eight_of_the_same_lines_of_a_hunk_vote_for_a_place() -> None:
    (hunk,) = hunks("@@ -13,10 +13,10 @@\n" + " aaa\n" * 9 + "-b\n+x\n")
    assert nearest([b"?\n"] * 20 + [b"aaa\n"], hunk)[0][0] == 13


def test_frequent_lines_vote_only_where_there_are_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "MAX_CANDIDATES", 2)
    (hunk,) = hunks("@@ -1,4 +1,4 @@\n aaa\n bbb\n-ccc\n+x\n zzz\n")
    pair = [b"aaa\n", b"bbb\n"]
    rest = [b"?\n"] * 4
    assert nearest([*rest, *pair, *rest, *pair, *rest, b"zzz\n"], hunk)[0] == (4, 0.5)
    assert nearest([*rest, *pair, *rest, *pair, *pair, *rest, b"zzz\n"], hunk)[0] == (15, 0.25)
    assert nearest([*rest, *pair, *pair, *pair], hunk)[0] == (4, 0.5)


def test_a_line_is_told_without_its_end_alone() -> None:
    assert [engine._text(line) for line in (b"aX\n", b"a \n", b"a\r\n")] == ["aX", "a ", "a\\r"]


# -- taken back ----------------------------------------------------------------------------------


def test_a_patch_looks_applied_only_in_order_and_at_the_ends_that_it_names() -> None:
    top = hunks("@@ -1,2 +1,3 @@\n+new\n one\n two\n")
    assert looks_applied([b"new\n", b"one\n", b"two\n"], top)
    assert not looks_applied([b"0\n", b"new\n", b"one\n", b"two\n"], top)
    end = hunks("@@ -5,2 +5,3 @@\n one\n two\n+new\n")
    assert looks_applied([b"0\n", b"one\n", b"two\n", b"new\n"], end)
    assert not looks_applied([b"one\n", b"two\n", b"new\n", b"0\n"], end)
    two = hunks("@@ -1,2 +1,2 @@\n-a\n+A\n x\n@@ -8,3 +8,3 @@\n y\n-b\n+B\n z\n")
    file = [b"A\n", b"x\n", b"y\n", b"B\n", b"z\n"]
    assert locate_plain(file, [reverse(hunk) for hunk in two]) == [0, 2]
    wrong = [b"0\n", *file]
    assert not looks_applied(wrong, two)
    turned = hunks("@@ -3,3 +3,3 @@\n p\n-a\n+A\n x\n@@ -8,3 +8,3 @@\n y\n-b\n+B\n z\n")
    assert not looks_applied([b"y\n", b"B\n", b"z\n", b"p\n", b"A\n", b"x\n"], turned)


def test_a_patch_in_another_def_does_not_look_applied() -> None:
    patch = hunks("@@ -9,3 +9,3 @@ def f():\n   a\n-  b\n+  B\n   c\n")
    body = [b"  a\n", b"  B\n", b"  c\n"]
    assert looks_applied([b"def f():\n", *body], patch)
    assert not looks_applied([b"def g():\n", *body], patch)
