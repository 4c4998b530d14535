"""Hunk headers counted anew: what was wrong is put right, and nothing is guessed."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from patchkit.errors import PatchSyntaxError
from patchkit.model import split
from patchkit.patchfile import parse
from patchkit.recount import Recounted, recount
from tests.conftest import Cli
from tests.releases import ROOT
from tests.strategies import contents, edited

HEADER = b"--- a/x\n+++ b/x\n"
BODY = b" a\n-b\n+B\n+C\n c\n"
RIGHT = b"@@ -1,3 +1,4 @@ def f():\n"


@pytest.mark.parametrize(
    "wrong",
    [
        *(b"@@ -1,2 +1,4 @@", b"@@ -1,4 +1,4 @@", b"@@ -1,3 +1,3 @@", b"@@ -1,3 +1,5 @@"),
        *(b"@@ -1 +1 @@", b"@@ -1,9 +1,9 @@", b"@@ -1,0 +1,0 @@"),
    ],
)
@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"-- \n2.45.1\n",
        b"-- \n2.45.1\n\n",
        b"diff --git a/y b/y\n",
        b"--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n",
        b"@@ -9 +10 @@\n-a\n+b\n",
        b"Only in b: y\n",
    ],
)
def test_counts_are_put_right(wrong: bytes, tail: bytes) -> None:
    bad = HEADER + wrong + b" def f():\n" + BODY + tail
    good, found = recount(bad)
    assert good == HEADER + RIGHT + BODY + tail
    assert [(one.line, one.after, one.unclear) for one in found] == [(3, "-1,3 +1,4", False)]
    assert recount(good) == (good, [])


def test_blank_lines_at_the_end_of_a_body() -> None:
    """Context that lost its space, or a gap: one right number tells, else it is unclear."""
    for stated, after in ((b"-1,4 +1,9", "-1,4 +1,5"), (b"-1,9 +1,4", "-1,3 +1,4")):
        _, found = recount(HEADER + b"@@ " + stated + b" @@\n" + BODY + b"\n")
        assert [(one.after, one.unclear) for one in found] == [(after, False)]
    bad = HEADER + b"@@ -1,9 +1,9 @@\n" + BODY + b"\n"
    assert recount(bad) == (bad, [Recounted(3, "-1,9 +1,9", "-1,3 +1,4", unclear=True)])
    bad = HEADER + b"@@ -1,2 +1,2 @@\n\n"
    assert recount(bad) == (bad, [Recounted(3, "-1,2 +1,2", "-1,0 +1,0", unclear=True)])
    # Of the lines before the blank ones each is counted, whatever the header says.
    for stated in (b"-1 +1,9", b"-1,9 +1"):
        _, found = recount(HEADER + b"@@ " + stated + b" @@\n-a\n+b\n\n")
        assert [(one.after, one.unclear) for one in found] == [("-1,1 +1,1", False)]
    right = HEADER + b"@@ -1,4 +1,5 @@\n" + BODY + b"\n"
    assert recount(right) == (right, [])


@pytest.mark.parametrize(
    ("body", "after"),
    [
        # A removed line "- " and one "-" are no signature while the hunk goes on.
        (" a\n-- \n+b\n c\n", "-1,3 +1,3"),
        (" a\n--\n+b\n c\n", "-1,3 +1,3"),
        (" a\n--\n c\n", "-1,3 +1,2"),
        (" a\n-- \n-d\n", "-1,3 +1,1"),
        ("-- \n\\ No newline at end of file\n+b\n", "-1,1 +1,1"),
        # A removed "-- x" and an added "++ y" are lines where no hunk follows them.
        ("--- x\n+++ y\n c\n", "-1,2 +1,2"),
        ("--- x\n c\n@@ -9 +9 @@\n-a\n+b\n", "-1,2 +1,1"),
        (" a\n\n-b\n c\n", "-1,4 +1,3"),
        (" a\r\n\r\n-b\r\n c\r\n", "-1,4 +1,3"),
        ("-a\n+b\n\\ No newline at end of file\n", "-1,1 +1,1"),
        # A blank line that has its space is one, and counted.
        ("-a\n+b\n \n", "-1,2 +1,2"),
        # A removed "- " at the end of the patch or of the hunk, and lines that begin so.
        (" a\n-- \n", "-1,2 +1,1"),
        (" a\n-- \n@@ -9 +9 @@\n-a\n+b\n", "-1,2 +1,1"),
        (" a\n-- \t\nprose\n", "-1,2 +1,1"),
        (" a\n--X\nprose\n", "-1,2 +1,1"),
        (" a\n--- x\n", "-1,2 +1,1"),
    ],
)
def test_what_belongs_to_a_body(body: str, after: str) -> None:
    _, found = recount(HEADER + b"@@ -1,99 +1,99 @@\n" + body.encode())
    assert [(one.after, one.unclear) for one in found] == [(after, False)]


@pytest.mark.parametrize("mark", ["-- \r\n", "--\n", "-- \n", "--\r\n"])
def test_a_signature_ends_a_body(mark: str) -> None:
    data = HEADER + RIGHT + BODY + mark.encode() + b"2.45.1\n"
    assert recount(data) == (data, [])


def test_the_boundary_of_a_mail_ends_a_body() -> None:
    head = b'Content-Type: multipart/mixed; boundary="--=_1"\n\n'
    for mark in (b"----=_1\n", b"----=_1--\r\n"):
        data = head + HEADER + RIGHT + BODY + mark
        assert recount(data) == (data, [])
        spoilt = head + HEADER + b"@@ -1,9 +1,9 @@ def f():\n" + BODY + mark
        assert recount(spoilt)[0] == data


@pytest.mark.parametrize("body", [b"", b" a\n", b" a\n c\n", b"-a\n+b", b" a\n-b\n+B\n c"])
def test_what_is_cut_off_is_not_made_whole(body: bytes) -> None:
    """Nothing but context, or a last line that may have lost more than its end."""
    data = HEADER + b"@@ -1,9 +1,9 @@\n" + body
    fixed, found = recount(data)
    assert fixed == data
    assert [one.unclear for one in found] == [True]


def test_what_is_no_hunk_is_left_alone() -> None:
    hunk = b"@@ -1,2 +3,4 @@\n+x\n"
    for data in (b"", b"\0\xff\n", hunk, b"prose\n" + hunk, b"prose\nprose\n" + hunk):
        assert recount(data) == (data, [])
    for quoted in (b"--- a/x\nprose\n", b"prose\n+++ b/x\n"):
        assert recount(quoted + hunk) == (quoted + hunk, [])


@pytest.mark.parametrize("prose", [b"", b"one\n", b"one\ntwo\n", b"one\ntwo\nthree\n"])
def test_every_hunk_of_every_file_is_counted(prose: bytes) -> None:
    file = prose + HEADER + b"@@ -1,9 +1 @@\n" + BODY + b"@@ -8 +9,9 @@\n" + BODY
    good, found = recount(file * 2)
    assert good == file.replace(b"-1,9 +1 ", b"-1,3 +1,4 ").replace(b"-8 +9,9", b"-8,3 +9,4") * 2
    lines = 3 + prose.count(b"\n")
    assert [one.line for one in found] == [lines, lines + 6, 2 * lines + 11, 2 * lines + 17]


def test_a_header_without_a_body_does_not_hide_the_next() -> None:
    _, found = recount(HEADER + b"@@ -1,9 +1 @@\n@@ -8 +9,9 @@\n" + BODY)
    assert [(one.line, one.after) for one in found] == [(3, "-1,0 +1,0"), (4, "-8,3 +9,4")]


@pytest.mark.parametrize("path", sorted((ROOT / "patches").rglob("*.patch")), ids=lambda p: p.name)
def test_shipped_patches_are_counted_right(path: Path) -> None:
    data = path.read_bytes()
    assert recount(data) == (data, [])


@given(st.data())
def test_a_right_patch_stays_and_a_spoilt_one_comes_back(data: st.DataObject) -> None:
    before = data.draw(contents(min_lines=2))
    sides = [split(side) for side in (before, data.draw(edited(before)))]
    assume(sides[0] != sides[1] and all(x.endswith(b"\n") for side in sides for x in side))
    unified = difflib.diff_bytes(difflib.unified_diff, sides[0], sides[1], b"a/x", b"b/x")
    good = b"".join(unified)
    assert recount(good) == (good, [])
    headers = list(re.finditer(rb"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", good))
    one = data.draw(st.sampled_from(headers))
    old = int(one[2] or 1) + data.draw(st.sampled_from([-1, 1, 5]))
    assume(old >= 0)
    spoilt = b"@@ -%s,%d +%s,%s @@" % (one[1], old, one[3], one[4] or b"1")
    fixed, found = recount(good[: one.start()] + spoilt + good[one.end() :])
    assert len(found) == 1
    if not found[0].unclear:
        assert parse(fixed, "x").files == parse(good, "x").files


def test_the_command_counts_anew(cli: Cli, tmp_path: Path) -> None:
    patch = tmp_path / "fix.patch"
    patch.write_bytes(HEADER + b"@@ -1,5 +1,4 @@\n" + BODY)
    patch.chmod(0o640)
    with pytest.raises(PatchSyntaxError):
        parse(patch.read_bytes(), "x")
    found = cli("lint", patch, check=1)
    assert "patchkit lint --fix" in found.stdout
    fixed = cli("lint", "--fix", patch)
    assert "counted anew: -1,5 +1,4 is -1,3 +1,4" in fixed.stdout
    assert patch.stat().st_mode & 0o777 == 0o640
    assert patch.read_bytes() == HEADER + b"@@ -1,3 +1,4 @@\n" + BODY
    cli("lint", patch)
    report = cli("lint", "--json", patch).json
    assert (report["patches"], report["bundles"], report["fixed"]) == ([str(patch)], [], [])
