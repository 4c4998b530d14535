"""Promise 3: where a hunk goes, and where it is refused.

The words of the promise, one by one: every line matches byte for byte, another offset is
taken only where it is the single match or the heading singles it out, an offset into another
def or class than the heading names is refused, an offset is reported.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import SupportsIndex, overload

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from patchkit.errors import HunkError
from patchkit.hunks import (
    MAX_CANDIDATES,
    Headings,
    Placement,
    _Search,
    _skip_lines,
    apply_hunks,
    apply_with_own_ends,
    heading_agrees,
    locate,
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


def lines(text: str | bytes) -> list[bytes]:
    return split(text.encode() if isinstance(text, str) else text)


def numbered(count: int) -> list[bytes]:
    return [f"line {number}\n".encode() for number in range(1, count + 1)]


def refused(file: list[bytes], patch: Sequence[Hunk]) -> HunkError:
    """The error, and that the file was left alone."""
    before = list(file)
    with pytest.raises(HunkError) as caught:
        apply_hunks(file, patch)
    assert file == before
    assert caught.value.exit_code == 3
    assert caught.value.hunk is not None
    return caught.value


# Changes line 5 of ten.
MIDDLE = "@@ -2,7 +2,7 @@\n line 2\n line 3\n line 4\n-line 5\n+LINE 5\n line 6\n line 7\n line 8\n"


# -- byte for byte -----------------------------------------------------------------------------


def test_split_and_join_keep_every_byte() -> None:
    data = b"a\r\nb\x0cc\rd\xe2\x80\xa8e\n\n\x00\xff"
    assert split(data) == [b"a\r\n", b"b\x0cc\rd\xe2\x80\xa8e\n", b"\n", b"\x00\xff"]
    assert split(b"") == []


def test_at_the_stated_line() -> None:
    file = numbered(10)
    assert apply_hunks(file, hunks(MIDDLE)) == (Placement(2, 0),)
    assert file[4] == b"LINE 5\n"
    assert file[:4] + file[5:] == numbered(10)[:4] + numbered(10)[5:]


def test_several_hunks_change_the_file_that_was_there_before_the_first() -> None:
    file = numbered(30)
    patch = hunks(
        "@@ -1,2 +1,4 @@\n line 1\n+new\n+new\n line 2\n"
        "@@ -10,3 +12,1 @@\n-line 10\n-line 11\n line 12\n"
        "@@ -29,2 +29,2 @@\n line 29\n-line 30\n+last\n"
    )
    assert apply_hunks(file, patch) == (Placement(1, 0), Placement(10, 0), Placement(29, 0))
    expected = numbered(30)
    expected[29:] = [b"last\n"]
    del expected[9:11]
    expected[1:1] = [b"new\n", b"new\n"]
    assert file == expected


@pytest.mark.parametrize(
    "line",
    [b"line 6 \n", b"line 6\r\n", b"\tline 6\n", b"Line 6\n", b"line 6\x00\n", b"line\xa06\n", b""],
)
def test_no_fuzz(line: bytes) -> None:
    """Any difference in a context line refuses the hunk, the last one of three as well."""
    for number in (1, 5, 7):
        file = numbered(10)
        file[number] = line.replace(b"6", str(number + 1).encode())
        error = refused(file, hunks(MIDDLE))
        assert error.code == "hunk-not-found"
        assert (error.hunk, error.line) == (1, 3)


def test_a_missing_last_line_end_is_part_of_the_line() -> None:
    with_end, without = lines("a\nb\n"), lines("a\nb")
    patch = hunks("@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n")
    assert refused(with_end, patch).code == "hunk-not-found"
    apply_hunks(without, patch)
    assert without == [b"a\n", b"c\n"]
    apply_hunks(without, hunks("@@ -1,2 +1,2 @@\n a\n-c\n+c\n\\ No newline\n"))
    assert without == [b"a\n", b"c"]


# -- offsets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [1, 2, 100])
def test_a_single_match_at_another_line_is_taken_and_reported(shift: int) -> None:
    file = [b"new\n"] * shift + numbered(10)
    assert apply_hunks(file, hunks(MIDDLE)) == (Placement(2 + shift, shift),)
    assert file[shift + 4] == b"LINE 5\n"
    assert sum(line == b"LINE 5\n" for line in file) == 1


def test_a_single_match_above_the_stated_line() -> None:
    moved = MIDDLE.replace("-2,7 +2,7", "-40,7 +40,7")
    assert apply_hunks(numbered(10), hunks(moved)) == (Placement(2, -38),)
    assert apply_hunks([*numbered(9), b"line 10"], hunks(moved)) == (Placement(2, -38),)


def test_the_stated_line_wins_over_twins() -> None:
    file = numbered(10) * 3
    assert locate(file, hunks(MIDDLE)) == [Placement(2, 0)]
    assert locate(file, hunks(MIDDLE.replace("-2,7 +2,7", "-12,7 +12,7"))) == [Placement(12, 0)]


def test_two_matches_elsewhere_are_ambiguous() -> None:
    error = refused([b"new\n", *numbered(10), *numbered(10)], hunks(MIDDLE))
    assert error.code == "hunk-ambiguous"
    assert error.data["candidates"] == [3, 13]
    assert "2 places: lines 3, 13" in error.message
    assert "-U10" in (error.hint or "")


def test_many_matches_are_not_all_listed() -> None:
    error = refused([b"new\n", *numbered(10) * 20], hunks(MIDDLE))
    assert error.message.endswith("…")
    assert len(error.data["candidates"]) == 20
    error = refused([b"new\n", *numbered(10) * (MAX_CANDIDATES + 9)], hunks(MIDDLE))
    assert f"more than {MAX_CANDIDATES} places" in error.message
    assert len(error.data["candidates"]) == 50


def test_a_block_that_overlaps_itself_is_ambiguous() -> None:
    file = lines("new\n" + "x\n" * 9)
    error = refused(file, hunks("@@ -50,4 +50,5 @@\n x\n x\n+y\n x\n x\n"))
    assert error.code == "hunk-ambiguous"
    assert error.data["candidates"] == [2, 3, 4, 5, 6, 7]


def test_where_one_hunk_moved_the_stated_line_of_another_proves_nothing() -> None:
    """A twin may stand there by chance, once the file has grown above it."""
    patch = hunks(MIDDLE + "@@ -20,3 +20,3 @@\n line 20\n-line 21\n+LINE 21\n line 22\n")
    file = [*numbered(10), *numbered(10), b"new\n", *numbered(30)[10:]]
    assert file[1:8] == file[11:18] == numbered(8)[1:]
    error = refused(file, patch)
    assert (error.code, error.hunk) == ("hunk-ambiguous", 1)


def test_a_line_that_ends_like_the_block_is_no_match() -> None:
    file = [b"new\n", b"not line 2\n", *numbered(10)]
    assert locate(file, hunks(MIDDLE)) == [Placement(4, 2)]
    assert locate([b"new\n", *numbered(10)[:8], b"x"], hunks(MIDDLE)) == [Placement(3, 1)]
    cut = [b"new\n", *numbered(8)]
    cut[-1] = b"line 8"
    assert refused(cut, hunks(MIDDLE)).code == "hunk-not-found"


def test_hunks_keep_their_order() -> None:
    patch = hunks("@@ -2,3 +2,3 @@\n a\n-b\n+B\n c\n@@ -12,3 +12,3 @@\n d\n-e\n+E\n f\n")
    apart = lines("x\nx\nx\na\nb\nc\nx\nd\ne\nf\nx\n")
    assert [place.line for place in locate(apart, patch)] == [4, 8]
    crossed = lines("x\nd\ne\nf\nx\nx\nx\na\nb\nc\nx\n")
    error = refused(crossed, patch)
    assert (error.code, error.hunk, error.line) == ("hunk-order", 2, 8)


def test_hunks_that_moved_onto_each_other_are_refused() -> None:
    patch = hunks("@@ -2,3 +2,3 @@\n a\n-b\n+B\n c\n@@ -12,3 +12,3 @@\n c\n-d\n+D\n e\n")
    error = refused(lines("x\nx\nx\na\nb\nc\nd\ne\nx\n"), patch)
    assert (error.code, error.hunk) == ("hunk-order", 2)


# -- the ends of the file ----------------------------------------------------------------------


def test_a_hunk_cut_at_the_start_goes_to_the_start_alone() -> None:
    patch = hunks("@@ -1,2 +1,3 @@\n+new\n line 1\n line 2\n")
    assert locate(numbered(5), patch) == [Placement(1, 0)]
    assert refused([b"x\n", *numbered(5)], patch).code == "hunk-not-found"


def test_a_hunk_cut_at_the_end_goes_to_the_end_alone() -> None:
    patch = hunks("@@ -4,2 +4,3 @@\n line 4\n line 5\n+new\n")
    assert locate(numbered(5), patch) == [Placement(4, 0)]
    assert locate([b"x\n", *numbered(5)], patch) == [Placement(5, 1)]
    assert refused([*numbered(5), b"x\n"], patch).code == "hunk-not-found"
    assert locate([*numbered(5), b"x\n", *numbered(5)], patch) == [Placement(10, 6)]


def test_a_file_is_filled_and_emptied() -> None:
    fill = hunks("@@ -0,0 +1,2 @@\n+a\n+b\n")
    file: list[bytes] = []
    assert apply_hunks(file, fill) == (Placement(1, 0),)
    assert file == [b"a\n", b"b\n"]
    assert refused(file, fill).code == "already-applied"
    assert refused(lines("x\n"), fill).code == "hunk-not-found"
    empty = [reverse(hunk) for hunk in fill]
    assert refused(lines("a\nb\nc\n"), empty).code == "hunk-not-found"
    apply_hunks(file, empty)
    assert file == []


# -- headings ----------------------------------------------------------------------------------

TWO = """\
import os


class First:
    def one(self, x):
        a = 1
        b = 2
        return a + b

    def two(self, x):
        pass


class Second:
    def three(self, x):
        a = 1
        b = 2
        return a + b

    def four(self, x):
        pass
"""
#: Changes ``b = 2`` of ``three``; written for a release in which line 100 held it.
IN_THREE = """\
@@ -100,3 +100,3 @@ {}
         a = 1
-        b = 2
+        b = 3
         return a + b
"""


def in_three(heading: str) -> tuple[Hunk, ...]:
    return hunks(IN_THREE.format(heading))


@pytest.mark.parametrize(
    ("heading", "line"),
    [
        ("class Second:", 16),  # git's and GNU diff's default rule
        ("class First:", 6),
        ("def three(self, x):", 16),  # git's Python driver
        ("def one(self, x):", 6),
    ],
)
def test_a_heading_singles_one_out(heading: str, line: int) -> None:
    file = lines(TWO)
    assert apply_hunks(file, in_three(heading)) == (Placement(line, line - 100),)
    assert file[line] == b"        b = 3\n"


@pytest.mark.parametrize(
    "heading",
    ["", "def two(self, x):", "class Third:", "import os", "def three(self, y):", "class Sec"],
)
def test_a_heading_that_singles_none_out(heading: str) -> None:
    error = refused(lines(TWO), in_three(heading))
    assert error.code == "hunk-ambiguous"
    assert error.data["candidates"] == [6, 16]


def test_a_heading_that_two_places_share() -> None:
    error = refused(lines(TWO + TWO), in_three("class Second:"))
    assert error.code == "hunk-ambiguous"
    assert error.data["candidates"] == [6, 16, 27, 37]


def test_a_heading_that_is_no_def() -> None:
    file = lines("TABLE = {\n    1: 2,\n    3: 4,\n}\nOTHER = {\n    1: 2,\n    3: 4,\n}\nx = 1\n")
    patch = hunks("@@ -50,3 +50,3 @@ OTHER = {\n     1: 2,\n-    3: 4,\n+    3: 5,\n }\n")
    assert apply_hunks(file, patch) == (Placement(6, -44),)
    code = lines("int f(void)\n{\n  a;\n  b;\n}\n\nint g(void)\n{\n  a;\n  b;\n}\nend\n")
    patch = hunks("@@ -9,2 +9,3 @@ int g(void)\n   a;\n+  c;\n   b;\n")
    assert apply_hunks(code, patch) == (Placement(9, 0),)
    patch = hunks("@@ -30,2 +30,3 @@ int f(void)\n   a;\n+  c;\n   b;\n")
    assert locate(lines("int f(void)\n  a;\n  b;\nint g(void)\n  a;\n  b;\n\n"), patch) == [
        Placement(2, -28)
    ]


@pytest.mark.parametrize("cut", [39, 40, 80])
def test_a_heading_that_a_tool_cut(cut: int) -> None:
    """GNU diff keeps 40 bytes of it, git 80; blanks at the cut are lost."""
    names = [f"def handle(self, request, argument_{n}, more={'x' * 60}):" for n in "ab"]
    body = "    a = 1\n    b = 2\n    return a\n"
    file = lines(f"top = 0\n{names[0]}\n{body}{names[1]}\n{body}")
    heading = names[1][:cut]
    patch = hunks(f"@@ -90,2 +90,3 @@ {heading}\n     a = 1\n+    c = 3\n     b = 2\n")
    if len(heading) > len("def handle(self, request, argument_"):
        assert locate(file, patch) == [Placement(7, -83)]


def test_an_offset_into_another_def_is_refused() -> None:
    file = lines(TWO.replace("b = 2", "b = 9", 1))
    for heading in ("class Third:", "class First:", "def one(self, x):", "async def gone():"):
        error = refused(list(file), in_three(heading))
        assert error.code == "hunk-wrong-place"
        assert error.data["candidates"] == [16]
        assert "line 16 (offset -84)" in error.message
        assert f"names '{heading}'" in error.message
        assert "inside 'def three(self, x):'" in error.message


def test_an_offset_with_a_def_in_another_form() -> None:
    """What a def is called decides, not its arguments."""
    file = lines(TWO.replace("b = 2", "b = 9", 1))
    for heading in (
        "class Second:", "class Second(Base):", "def three(self, x):", "def three(self, y=1):",
        "async def three(self):", "def three", "import os", "", "@decorator", "x = 1",
    ):  # fmt: skip
        assert locate(list(file), in_three(heading)) == [Placement(16, -84)]


KERNELS = """\
#include <cuda.h>
template <typename T>
__global__ void __launch_bounds__(256) kernel_a(T* x, int n) {
  int i = 0;
  x[i] = 1;
  sync();
}
struct Params {
  int a;
  int b;
};
static inline void kernel_b(float* x, int n, float factor, float other) {
  int i = 0;
  x[i] = 2;
  sync();
}
"""
IN_KERNEL = "@@ -80,3 +80,3 @@ {}\n   int i = 0;\n-  x[i] = 2;\n+  x[i] = 3;\n   sync();\n"


@pytest.mark.parametrize(
    "heading",
    [
        "void kernel_a(T* x, int n) {",
        "__global__ void __launch_bounds__(256) kernel_a(T* x, int n) {",
        "struct Params {",
        "static inline void kernel_c(float* x, int n, float factor, float other, int more, int",
    ],
)
def test_a_heading_of_c_names_a_function(heading: str) -> None:
    """Kernels are what FlashInfer's patches are about: not into another one."""
    patch = hunks(IN_KERNEL.format(heading))
    with pytest.raises(HunkError) as caught:
        locate(lines(KERNELS), patch, c=True)
    assert caught.value.code == "hunk-wrong-place"
    assert "inside 'static inline void kernel_b(" in caught.value.message
    assert locate(lines(KERNELS), patch) == [Placement(13, -67)]


@pytest.mark.parametrize(
    "heading",
    [
        "",
        "static inline void kernel_b(float* x, int n, float factor, float other) {",
        "float kernel_b(float* x) {",
        "static inline void kernel_b(float* x, in",
        "static __global__ void __launch_bounds__(256) some_name_that_stands_behind_the_c",
        "template <typename T>",
        "public:",
        "namespace {",
    ],
)
def test_a_heading_of_c_that_agrees_or_names_nothing(heading: str) -> None:
    patch = hunks(IN_KERNEL.format(heading))
    assert locate(lines(KERNELS), patch, c=True) == [Placement(13, -67)]


def test_at_the_stated_line_the_heading_is_not_asked() -> None:
    patch = hunks(IN_THREE.replace("100,3", "16,3").format("class Gone:"))
    assert locate(lines(TWO), patch) == [Placement(16, 0)]


def test_a_heading_is_looked_for_above_the_first_line_of_the_hunk() -> None:
    """xdl_emit.c: a hunk that begins with the def itself carries the one before."""
    file = lines("x = 1\n" + TWO)
    patch = hunks(
        "@@ -10,3 +10,4 @@ def one(self, x):\n     def two(self, x):\n+        x = 1\n"
        "         pass\n \n"
    )
    assert locate(file, patch) == [Placement(11, 1)]
    assert heading_agrees(Headings(lines(TWO)), patch[0], 9)
    assert not heading_agrees(Headings(lines(TWO)), patch[0], 10)


ENCLOSING = {
    0: b"",
    3: b"",
    4: b"class First:",
    6: b"def one(self, x):",
    999: b"def four(self, x):",
}


@pytest.mark.parametrize("places", [[place] for place in ENCLOSING] + [[*ENCLOSING] * 2])
def test_the_enclosing_def(places: list[int]) -> None:
    for order in (places, places[::-1]):
        headings = Headings(lines(TWO))
        assert [headings.above(place)[1] for place in order] == [ENCLOSING[p] for p in order]


def test_an_indented_async_def_is_a_heading() -> None:
    headings = Headings([b"\tasync  def f(): pass\n", b"x\n"])
    assert headings.above(1) == (b"", b"async  def f(): pass")
    assert headings.above(2) == (b"x", b"async  def f(): pass")


class Watched(list[bytes]):
    """Lines that count how many of them were asked for."""

    asked = 0

    @overload
    def __getitem__(self, key: SupportsIndex) -> bytes: ...
    @overload
    def __getitem__(self, key: slice) -> list[bytes]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> bytes | list[bytes]:
        self.asked += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
        return super().__getitem__(key)


def test_headings_of_many_places_cost_one_look_through_the_file() -> None:
    file = Watched(b" no heading\n" for _ in range(5_000))
    headings = Headings(file)
    for place in range(0, 5_000, 10):
        headings.above(place)
    assert file.asked <= 5_000


# -- diagnosis ---------------------------------------------------------------------------------


def test_already_applied() -> None:
    for file in (numbered(10), [b"x\n", *numbered(10)]):
        apply_hunks(file, hunks(MIDDLE))
        assert looks_applied(file, hunks(MIDDLE))
        error = refused(file, hunks(MIDDLE))
        assert error.code == "already-applied"
        assert "upstream" in (error.hint or "")


def test_an_insertion_at_the_top_is_not_doubled() -> None:
    patch = hunks("@@ -1,2 +1,3 @@\n+import os\n import os\n import re\n")
    file = lines("import os\nimport re\n")
    apply_hunks(file, patch)
    assert file == lines("import os\nimport os\nimport re\n")
    assert refused(file, patch).code == "already-applied"


def test_what_fits_is_applied_although_it_could_be_taken_back() -> None:
    """A reverse dry run alone says "applied" here: the new block stands there, too."""
    patch = hunks("@@ -2,2 +2,3 @@\n a\n+a\n b\n")
    file = lines("x\na\nb\ny\na\na\nb\n")
    assert looks_applied(list(file), patch)
    assert apply_hunks(file, patch) == (Placement(2, 0),)


def test_half_applied() -> None:
    second = "@@ -22,3 +22,3 @@\n line 22\n-line 23\n+LINE 23\n line 24\n"
    patch = hunks(MIDDLE + second)
    file = numbered(30)
    apply_hunks(file, hunks(MIDDLE))
    error = refused(file, patch)
    assert (error.code, error.hunk) == ("hunk-not-found", 1)
    assert error.data["half_applied"] is True
    assert any("half applied" in line for line in error.detail)
    file = numbered(30)
    apply_hunks(file, hunks(second))
    error = refused(file, patch)
    assert (error.hunk, error.data["half_applied"]) == (2, True)


def test_white_space_alone() -> None:
    file = numbered(10)
    file[3:5] = [b"line  4\n", b"line\t5\n"]
    error = refused(file, hunks(MIDDLE))
    assert error.data["reason"] == "whitespace"
    assert "white space alone" in error.message
    assert "mailer" in (error.hint or "")
    # What cannot be seen is shown as Python would write it.
    assert "  expected   'line 5\\n'" in error.detail
    assert "  found    5   'line\\t5\\n'" in error.detail


def test_line_ends_alone() -> None:
    crlf = [line.replace(b"\n", b"\r\n") for line in numbered(10)]
    error = refused(crlf, hunks(MIDDLE))
    assert error.data["reason"] == "line-ends"
    assert "line ends (CR LF) alone" in error.message
    error = refused(numbered(10), hunks(MIDDLE.replace("\n", "\r\n")))
    assert error.data["reason"] == "line-ends"


def test_the_nearest_place() -> None:
    file = lines("class Thing:\n    def method(self):\n") + numbered(10)
    file[6] = b"line five\n"
    error = refused(file, hunks(MIDDLE))
    assert error.data["reason"] == "not-found"
    near = error.data["nearest"]
    assert (near["line"], near["inside"]) == (4, "def method(self):")
    assert near["similarity"] == pytest.approx(6 / 7, abs=0.001)
    assert error.data["expected"] == [f"line {number}" for number in range(2, 9)]
    assert error.data["found"][3] == "line five"
    assert error.detail[0] == "nearest: line 4 in 'def method(self):', 86% of the lines are equal"
    assert "  expected   line 5" in error.detail
    assert "  found    7   line five" in error.detail
    assert "         4   line 2" in error.detail


def test_the_nearest_place_at_the_end_of_the_file() -> None:
    error = refused(numbered(6), hunks(MIDDLE))
    assert error.data["nearest"]["line"] == 2
    assert "  found    7   (end of file)" in error.detail


def test_nothing_is_near() -> None:
    error = refused(lines("x\ny\n"), hunks(MIDDLE))
    assert "nearest" not in error.data
    assert error.data["expected"][0] == "line 2"
    assert "  expected   line 2" in error.detail
    assert refused([], hunks(MIDDLE)).data["reason"] == "not-found"
    assert nearest([], hunks(MIDDLE)[0]) == []


def test_control_characters_are_not_sent_to_the_terminal() -> None:
    file = numbered(10)
    file[4] = b"\x1b]0;title\x07 \xff line 5\n"
    shown = "\n".join(refused(file, hunks(MIDDLE)).detail)
    assert "\\x1b]0;title\\x07" in shown
    assert shown.isprintable() or set(shown) <= {c for c in shown if c.isprintable() or c == "\n"}


# -- not right yet -----------------------------------------------------------------------------


def test_a_hunk_that_only_its_anchor_keeps_away() -> None:
    error = refused([*numbered(5), b"x\n"], hunks("@@ -4,2 +4,3 @@\n line 4\n line 5\n+new\n"))
    assert error.data["reason"] not in ("line-ends", "whitespace")
    assert "CR LF" not in error.message


def test_lines_removed_at_the_end_that_are_still_there_are_not_applied() -> None:
    patch = hunks("@@ -4,3 +4,2 @@\n line 4\n line 5\n-line 6\n")
    assert refused([*numbered(6), b"added behind\n"], patch).code == "hunk-not-found"


def test_the_only_place_at_the_end_of_many() -> None:
    patch = hunks("@@ -1998,3 +1998,4 @@\n x\n x\n x\n+y\n")
    file = [b"x\n"] * (MAX_CANDIDATES + 1010)
    assert locate(file, patch) == [Placement(len(file) - 2, len(file) - 2000)]


def test_a_name_that_gnu_diff_cut() -> None:
    name = "def test_a_very_long_name_of_a_function_that_says_it_all(self):"
    file = lines(f"import os\n{name}\n    a = 1\n    b = 2\n    return a\n")
    patch = hunks(f"@@ -90,2 +90,3 @@ {name[:40]}\n     a = 1\n+    c = 3\n     b = 2\n")
    assert locate(file, patch) == [Placement(3, -87)]


def test_a_hunk_without_context_goes_to_its_line_alone() -> None:
    """As git (--unidiff-zero) and GNU patch do it; anywhere else nothing speaks for it."""
    patch = hunks("@@ -3 +3 @@\n-line 3\n+LINE 3\n")
    file = numbered(6)
    assert apply_hunks(file, patch) == (Placement(3, 0),)
    assert file[2] == b"LINE 3\n"
    assert refused([b"new\n", *numbered(6)], patch).code == "hunk-not-found"


def test_a_hunk_with_context_behind_it_alone_may_move() -> None:
    patch = hunks("@@ -5,3 +5,3 @@\n-line 5\n+LINE 5\n line 6\n line 7\n")
    assert locate([b"new\n", *numbered(10)], patch) == [Placement(6, 1)]


def test_a_hunk_without_context_beside_one_that_moved() -> None:
    patch = hunks("@@ -2 +2 @@\n-x\n+y\n" + MIDDLE.replace("-2,7 +2,7", "-4,7 +4,7"))
    base = [b"0\n", b"x\n", *numbered(10)[:8]]
    base[2:3] = [b"line 1\n"]
    assert [place.offset for place in locate(base, patch)] == [0, 0]
    grown = [b"x\n", b"x\n", *base]
    assert refused(grown, patch).code == "hunk-not-found"


def test_a_hunk_without_context_that_is_the_whole_file() -> None:
    patch = hunks("@@ -2 +2 @@\n-one\n+two\n")
    assert locate(lines("one\n"), patch) == [Placement(1, -1)]


# -- against the promise, by brute force -------------------------------------------------------

_LINES = st.sampled_from([b"a\n", b"a\n", b"b\n", b"\n", b"aa\n"])


def make_hunks(old: list[bytes], new: list[bytes], context: int) -> tuple[Hunk, ...]:
    out = []
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    for group in matcher.get_grouped_opcodes(context):
        first, last = group[0], group[-1]
        signs = b"".join(
            b" " * (i2 - i1) if tag == "equal" else b"-" * (i2 - i1) + b"+" * (j2 - j1)
            for tag, i1, i2, j1, j2 in group
        )
        before, after = old[first[1] : last[2]], new[first[3] : last[4]]
        out.append(
            Hunk(
                first[1] + bool(before),
                first[3] + bool(after),
                b"".join(before),
                b"".join(after),
                len(signs) - len(signs.lstrip(b" ")),
                len(signs) - len(signs.rstrip(b" ")),
                b"",
                1,
                signs,
            )
        )
    return tuple(out)


def brute(file: list[bytes], patch: Sequence[Hunk]) -> list[int] | str:
    """Promise 3 as it is written, without headings: lines from 0, or why not."""
    every: list[list[int]] = []
    stated = []
    for hunk in patch:
        size = len(hunk.old)
        stated.append(hunk.old_start - bool(size))
        every.append(
            [
                place
                for place in range(len(file) - size + 1)
                if tuple(file[place : place + size]) == hunk.old
                and (hunk.leading or hunk.old_start > 1 or place == 0)
                and (hunk.trailing or place + size == len(file))
            ]
        )
    if all(line in places for line, places in zip(stated, every, strict=True)):
        return stated
    floor = 0
    out = []
    for hunk, places in zip(patch, every, strict=True):
        if not places:
            return "not found"
        if len(places) > 1:
            return "ambiguous"
        if places[0] < floor:
            return "order"
        floor = places[0] + len(hunk.old)
        out += places
    return out


@settings(max_examples=4 * settings().max_examples)
@given(
    st.lists(_LINES, max_size=14),
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 2), st.lists(_LINES, max_size=2))),
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 2), st.lists(_LINES, max_size=3))),
    st.integers(1, 3),
    st.booleans(),
)
def test_places_are_those_of_the_promise(
    old: list[bytes],
    edits: list[tuple[int, int, list[bytes]]],
    meanwhile: list[tuple[int, int, list[bytes]]],
    context: int,
    last_line_has_an_end: bool,
) -> None:
    new, now = list(old), list(old)
    for changed, todo in ((new, edits), (now, meanwhile)):
        for place, gone, came in todo:
            changed[place : place + gone] = came
    if not last_line_has_an_end and old:
        for side in (old, new, now):
            if side:
                side[-1] = side[-1].rstrip(b"\n") or b"x"
    patch = make_hunks(old, new, context)
    assume(patch)
    # A hunk of full context from line 1 on, and one without old lines, are told elsewhere.
    assume(all(h.old and (h.old_start > 1 or h.leading == 0) for h in patch))
    expected = brute(now, patch)
    file = list(now)
    if isinstance(expected, str):
        error = refused(file, patch)
        with pytest.raises(HunkError) as caught:
            patch_text(b"".join(now), patch)
        assert (caught.value.code, caught.value.hunk) == (error.code, error.hunk)
        codes = {
            "not found": ("hunk-not-found", "already-applied"),
            "ambiguous": ("hunk-ambiguous",),
            "order": ("hunk-order",),
        }
        assert error.code in codes[expected]
        return
    found = apply_hunks(file, patch)
    assert patch_text(b"".join(now), patch) == (b"".join(file), found)
    assert [place.line - 1 for place in found] == expected
    for placed, hunk in zip(found, patch, strict=True):
        assert placed.offset == placed.line - hunk.old_start
    spliced = list(now)
    for start, hunk in reversed(list(zip(expected, patch, strict=True))):
        spliced[start : start + len(hunk.old)] = hunk.new
    assert file == spliced
    # And back: the hunks turned round, at the lines where the new text now stands.
    if now == old:
        assert file == new
        apply_hunks(file, [reverse(hunk) for hunk in patch])
        assert file == old


@given(
    st.lists(st.sampled_from([b"\n", b"a\n", b"aaaa\n", b"a" * 300 + b"\n"]), max_size=300),
    st.booleans(),
    st.integers(0, 320),
    st.integers(0, 320),
)
def test_lines_are_skipped_as_they_are_counted(
    file: list[bytes], cut: bool, start: int, count: int
) -> None:
    if cut and file:
        file[-1] = b"no end"
    start = min(start, len(file))
    data = b"".join(file)
    at = len(b"".join(file[:start]))
    whole = sum(line.endswith(b"\n") for line in file[start:])
    assume(start < len(file) or whole == 0)
    expected = at + len(b"".join(file[start : start + count])) if count <= whole else None
    assert _skip_lines(data, at, count) == expected


@given(
    st.lists(st.sampled_from([b"a\n", b"b\n", b"xa\n", b"\n"]), min_size=1, max_size=40),
    st.integers(0, 40),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
def test_blocks_are_found_as_by_looking_at_each_line(
    file: list[bytes], start: int, size: int, cut: bool, prepared: bool
) -> None:
    """With a bound of two, so that rare and frequent lines both occur."""
    if cut:
        file[-1] = b"a"
    block = tuple(file[start % len(file) :][:size])
    hunk = Hunk(1, 1, b"".join(block), b"new\n", 0, 0, b"", 1, b"-" * len(block) + b"+")
    expected = [n for n in range(len(file)) if tuple(file[n : n + len(block)]) == block]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("patchkit.hunks.MAX_CANDIDATES", 2)
        found, too_many = _Search(file, [hunk] if prepared else []).places(block)
        assert _Search(file, [hunk]).places((*block, b"other\n")) == ([], False)
    assert too_many == (len(expected) > 2)
    assert found == expected[: 2 if too_many else None]


def test_each_place_of_a_block_is_numbered_from_the_first_line() -> None:
    file = lines("x\na\nb\ny\na\nb\na\nb\nz\n")
    assert _Search(file, []).places((b"a\n", b"b\n")) == ([1, 4, 6], False)
    doubled = lines("q\n\n\n\n\n")
    assert _Search(doubled, []).places((b"\n", b"\n")) == ([1, 2, 3], False)


NO_END = "\\ No newline at end of file\n"
KINDS_OF_REFUSAL = [
    # At the start and at the end of the file, where lines came before and behind.
    (
        "@@ -1,3 +1,3 @@\n-line one\n+line 1\n line two\n line three\n",
        "new\nline one\nline two\nline three\nmore\n",
        "anchor",
        "the hunk's lines are there, but not at the start of the file",
        "lines were added to the file there",
    ),
    (
        "@@ -2,3 +2,3 @@\n line two\n line three\n-line four\n+line 4\n",
        "line one\nline two\nline three\nline four\nmore\n",
        "anchor",
        "the hunk's lines are there, but not at the end of the file",
        "lines were added to the file there",
    ),
    (
        "@@ -2,3 +2,3 @@\n line two\n-line three\n+line 3\n line four\n",
        "line one\nline two\nline  three\nline four\nend\n",
        "whitespace",
        "the hunk's lines are not in the file; they differ in white space alone",
        "an editor or mailer changed blanks",
    ),
    (
        "@@ -2,3 +2,3 @@\n line two\n-line three\n+line 3\n line four\n",
        "line one\r\nline two\r\nline three\r\nline four\r\nend\r\n",
        "line-ends",
        "the hunk's lines are not in the file; they differ in line ends (CR LF) alone",
        "patchkit apply --eol",
    ),
    (
        "@@ -2,3 +2,3 @@\n line two\n-line three\n+line 3\n line four\n",
        "line one\nline two\nline 33\nline four\nend\n",
        "not-found",
        "the hunk's lines are not in the file",
        "compare the release with the one that the patch was made for",
    ),
    # The last line end, which --eol does not put right.
    (
        f"@@ -2,3 +2,3 @@\n line two\n-line three\n+line 3\n line four\n{NO_END}",
        "line one\nline two\nline three\nline four\n",
        "last-line-end",
        (
            "the hunk's lines are not in the file; they differ in the end of the last line alone:"
            " the patch has none"
        ),
        "make the patch from this file",
    ),
    (
        "@@ -2,3 +2,3 @@\n line two\n-line three\n+line 3\n line four\n",
        "line one\nline two\nline three\nline four",
        "last-line-end",
        (
            "the hunk's lines are not in the file; they differ in the end of the last line alone:"
            " the file has none"
        ),
        "make the patch from this file",
    ),
    (
        f"@@ -2,3 +2,3 @@\n line two\n-line three\n+line 3\n line four\n{NO_END}",
        "line one\r\nline two\r\nline three\r\nline four\r\n",
        "last-line-end",
        (
            "the hunk's lines are not in the file; they differ in the end of the last line alone:"
            " the patch has none"
        ),
        "make the patch from this file",
    ),
]


@pytest.mark.parametrize(("patch", "file", "reason", "message", "hint"), KINDS_OF_REFUSAL)
def test_why_a_hunk_has_no_place(
    patch: str, file: str, reason: str, message: str, hint: str
) -> None:
    error = refused(lines(file), hunks(patch))
    assert (error.message, error.data["reason"]) == (message, reason)
    assert hint in (error.hint or "")
    old = [line[1:] for line in patch.splitlines()[1:] if line[0] in " -"]
    assert error.data["expected"] == old
    shown = "\n".join(error.detail)
    assert f"nearest: line {error.data['nearest']['line']}" in shown


@pytest.mark.parametrize(
    ("patch", "file", "message"),
    [
        ("@@ -1,0 +2 @@\n+new\n", "line one\nline two\n", "a hunk that adds lines without"),
        ("@@ -0,0 +1 @@\n+new\n", "line one\n", "a hunk that adds lines without"),
        (
            "@@ -3 +3 @@\n-line two\n+line 2\n",
            "line one\nline two\nend\n",
            "a hunk without context (diff -U0), and the file is not as its line number says",
        ),
    ],
)
def test_a_hunk_without_context_says_that_it_has_none(patch: str, file: str, message: str) -> None:
    error = refused(lines(file), hunks(patch))
    assert error.message.startswith(message)
    assert error.data["reason"] == "no-context"
    assert error.hint == "make the patch with context: git diff -U3"


def test_of_two_near_places_the_one_at_the_stated_line_is_told() -> None:
    block = "alpha one\nbeta two\n{}\ndelta four\n"
    file = lines(block.format("gamma X") + "gap\n" * 20 + block.format("gamma Y") + "end\n")
    for stated, near in ((2, 1), (23, 25)):
        patch = (
            f"@@ -{stated},4 +{stated},4 @@\n alpha one\n beta two\n-gamma three\n+c\n delta four\n"
        )
        error = refused(list(file), hunks(patch))
        assert error.data["nearest"]["line"] == near
        assert error.data["nearest"]["similarity"] == 0.75


def test_other_near_places_are_told_too() -> None:
    block = "def {0}():\n    alpha = 1\n    beta = 2\n    gamma = {1}\n    delta = 4\n"
    file = lines("".join(block.format(name, name) for name in "fgh") + "x = 1\n" * 9)
    body = "     alpha = 1\n     beta = 2\n-    gamma = 3\n+    gamma = 5\n     delta = 4\n"
    error = refused(file, hunks(f"@@ -7,4 +7,4 @@\n{body}"))
    assert error.data["near"] == [
        {"line": line, "similarity": 0.75, "inside": f"def {name}():"}
        for line, name in ((7, "g"), (2, "f"), (12, "h"))
    ]
    assert error.data["nearest"] == error.data["near"][0]
    assert "(also near: line 2 in 'def f():'; line 12 in 'def h():')" in error.detail[0]


def test_a_line_that_stands_everywhere_tells_no_place() -> None:
    """Thousands of blank-like lines must not outvote the one line that is rare."""
    file = lines("common\n" * 3000 + "a rare line\ncommon\nother\n")
    patch = hunks("@@ -9,4 +9,4 @@\n a rare line\n common\n-something\n+new\n common\n")
    assert refused(file, patch).data["nearest"]["line"] == 3001


@pytest.mark.parametrize(
    ("heading", "there", "agree"),
    [
        ("void f(int (*cb)(int), int n) {", "void g(int (*cb)(int), int n) {", False),
        ("void f(int (*cb)(int), int n) {", "void f(int n) {", True),
        ("int __launch_bounds__(256, (4)) f(int a) {", "int __launch_bounds__(9) f() {", True),
        ("int __launch_bounds__(256) f(int a) {", "int __launch_bounds__(256) g(int a) {", False),
        ("struct A {", "struct B {", False),
        ("struct A : public C<int> {", "struct A {", True),
        ("class A {", "void A(int x) {", True),
        ("enum class_of(int) {", "enum class_of(int) {", True),
        ("namespace n {", "namespace m {", False),
        ("union u {", "union w {", False),
        ("f(", "g(", False),
        ("struct A *f(int x) {", "struct A *g(int x) {", False),
    ],
)
def test_what_a_line_of_c_names(heading: str, there: str, agree: bool) -> None:
    file = lines(f"{there}\n  a = 1;\n  b = 2;\n  c = 3;\n}}\n")
    patch = hunks(f"@@ -90,3 +90,3 @@ {heading}\n   a = 1;\n-  b = 2;\n+  b = 3;\n   c = 3;\n")
    if agree:
        assert locate(file, patch, c=True) == [Placement(2, -88)]
    else:
        with pytest.raises(HunkError):
            locate(file, patch, c=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a|\nb\nc\n", "a|\nx|\nb\nc\n"),
        ("a\nb|\nc|\n", "a\nx\nb|\nc|\n"),
    ],
)
def test_a_line_without_leading_context_ends_as_the_one_above(before: str, after: str) -> None:
    third = ends("a\nb|\nc\n")
    apply_with_own_ends(third, hunks("@@ -3 +3,2 @@\n+x\n c\n"))
    assert third == ends("a\nb|\nx|\nc\n")
    first = ends("a|\nb\n")
    apply_with_own_ends(first, hunks("@@ -1,2 +1,3 @@\n+x\n a\n b\n"))
    assert first == ends("x|\na|\nb\n")
    file = ends(before)
    apply_with_own_ends(file, hunks("@@ -2,2 +2,3 @@\n+x\n b\n c\n"))
    assert file == ends(after)


# -- line ends that were converted on the way ---------------------------------------------------


def ends(text: str) -> list[bytes]:
    """Lines; ``|`` stands for CR."""
    return lines(text.replace("|", "\r"))


CHANGED = "@@ -1,4 +1,5 @@\n a\n-b\n-c\n+B\n+C\n+D\n d\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a|\nb|\nc|\nd|\n", "a|\nB|\nC|\nD|\nd|\n"),
        # Line by line: each line that comes ends as the one that it replaces.
        ("a\nb|\nc\nd|\n", "a\nB|\nC\nD\nd|\n"),
        ("a\nb\nc|\nd\n", "a\nB\nC|\nD|\nd\n"),
        ("a|\nb|\nc|\nd", None),
    ],
)
def test_line_ends_of_the_file_where_asked_for(before: str, after: str | None) -> None:
    file, patch = ends(before), hunks(CHANGED)
    with pytest.raises(HunkError):
        apply_hunks(list(file), patch)
    if after is None:  # a missing end is no other form of end
        with pytest.raises(HunkError):
            apply_with_own_ends(file, patch)
        return
    apply_with_own_ends(file, patch)
    assert file == ends(after)
    apply_with_own_ends(file, [reverse(hunk) for hunk in patch])
    assert [line.rstrip() for line in file] == [b"a", b"b", b"c", b"d"]


def test_a_patch_that_gained_carriage_returns() -> None:
    file = numbered(9)
    patch = hunks(MIDDLE.replace("\n", "\r\n"))
    with pytest.raises(HunkError) as caught:
        apply_hunks(list(file), patch)
    assert caught.value.data["reason"] == "line-ends"
    assert "--eol" in (caught.value.hint or "")
    wanted = list(file)
    apply_hunks(wanted, hunks(MIDDLE))
    apply_with_own_ends(file, patch)
    assert file == wanted


def test_lines_put_in_end_as_the_one_above() -> None:
    file = ends("a|\nb\nc|\nd\n")
    apply_with_own_ends(file, hunks("@@ -1,4 +1,6 @@\n a\n+x\n b\n+y\n c\n d\n"))
    assert file == ends("a|\nx|\nb\ny\nc|\nd\n")
    top = ends("a|\nb|\n")
    apply_with_own_ends(top, hunks("@@ -1,2 +1,3 @@\n+x\n a\n b\n"))
    assert top == ends("x|\na|\nb|\n")


def test_own_ends_at_the_end_of_the_file() -> None:
    file = ends("a|\nb|")
    patch = hunks(
        "@@ -1,2 +1,3 @@\n a\n-b\r\n\\ No newline at end of file\n+b\n+c\n"
        "\\ No newline at end of file\n"
    )
    apply_with_own_ends(file, patch)
    assert b"".join(file) == b"a\r\nb\nc"
