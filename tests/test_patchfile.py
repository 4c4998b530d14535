"""The reader: every dialect that it reads, and every refusal with the line it points at."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from patchkit.errors import PatchSyntaxError
from patchkit.model import FilePatch, Patch
from patchkit.patchfile import MAX_BINARY, dep3_fields, parse
from tests.strategies import Tools, Tree, body, pairs, text

HUNK = "@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
PLAIN = f"--- a/x\n+++ b/x\n{HUNK}"
OTHER = f"--- a/y\n+++ b/y\n{HUNK}"
GIT = f"diff --git a/x b/x\nindex 1234567..89abcde 100644\n{PLAIN}"
ZERO = "0" * 40
EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def read(data: str | bytes) -> Patch:
    return parse(data.encode() if isinstance(data, str) else data, "demo.patch")


def only(data: str | bytes) -> FilePatch:
    (file,) = read(data).files
    return file


def refused(data: str | bytes) -> PatchSyntaxError:
    with pytest.raises(PatchSyntaxError) as caught:
        read(data)
    error = caught.value
    assert error.patch == "demo.patch"
    assert error.exit_code == 3
    assert error.line is not None, error.message
    return error


# -- what is refused, and where ----------------------------------------------------------------

GIT_HEAD = "diff --git a/x b/x\n"
PATHS = "--- a/x\n+++ b/x\n"
RENAME = "diff --git a/x b/y\nrename from x\nrename to y\n"
BINARY_HEAD = f"{GIT_HEAD}index 1..2\nGIT binary patch\n"
NUL = "IcmZPo000310RR91"  # a NUL byte, deflated, in git's base 85

REFUSALS: dict[str, tuple[str | bytes, int, str]] = {
    # name: (patch, line, a part of the message)
    "empty": ("", 1, "the patch is empty"),
    "blank": ("\n \n\t\n", 1, "the patch is empty"),
    "prose": ("Hello\nworld\n", 1, "no patch in it"),
    "html": ("\n<!DOCTYPE html>\n<html>\n", 1, "HTML page"),
    "html without doctype": ("<HTML><body>Sign in</body>\n", 1, "HTML page"),
    "gzip": (b"\x1f\x8b\x08\x00abc", 1, "compressed with gzip"),
    "utf-16": (PLAIN.encode("utf-16"), 1, "UTF-16"),
    "utf-16-be": (b"\xfe\xff" + PLAIN.encode("utf-16-be"), 1, "UTF-16"),
    "normal diff": ("1,2c1\n< a\n< b\n---\n> c\n", 1, "normal diff"),
    "normal diff, appended": ("3a4\n> c\n", 1, "normal diff"),
    "context diff": ("*** a/x\n--- b/x\n***************\n*** 1 ****\n! a\n", 1, "context diff"),
    "context diff behind prose": (
        "Index: x\n*** a/x\n--- b/x\n***************\n*** 1 ****\n! a\n",
        2,
        "context diff",
    ),
    "combined": (f"{GIT}diff --cc x\nindex 1,2..3\n--- a/x\n+++ b/x\n", 9, "combined"),
    "combined, first": ("diff --combined x\nindex 1,2..3\n", 1, "combined"),
    "hunk without file": (f"hello\n{HUNK}", 2, "hunk without a file header"),
    "hunk behind prose": (f"{PLAIN}prose\n{HUNK}", 8, "hunk without a file header"),
    "line beyond the counts": (f"{PLAIN}+d\n", 7, "a line that no hunk counts"),
    "context beyond the counts": (f"{PLAIN} d\n", 7, "a line that no hunk counts"),
    "removed beyond the counts": (f"{PLAIN}-d\n{OTHER}", 7, "a line that no hunk counts"),
    "line beyond, behind a blank one": (f"{PLAIN}\n d\n", 8, "a line that no hunk counts"),
    "line beyond, git": (f"{GIT}+d\n{GIT}", 9, "a line that no hunk counts"),
    "cut in a hunk": (f"{PATHS}@@ -1,2 +1,2 @@\n a\n-b\n", 3, "0 old and 1 new lines are missing"),
    "cut behind a hunk header": (f"{PATHS}@@ -1 +1 @@\n", 3, "1 old and 1 new lines are missing"),
    "cut behind a file header": (f"{GIT}{GIT_HEAD}--- a/x\n+++ b/x\n", 10, "without a hunk"),
    "cut in the last line": (PLAIN[:-1], 6, "no line end"),
    "count too high, then prose": (
        f"{PATHS}@@ -1,3 +1,3 @@\n a\n-b\n+c\nend of diff\n",
        7,
        "1 old and 1 new lines",
    ),
    "count too high, then a file": (
        f"{PATHS}@@ -1,3 +1,3 @@\n a\n-b\n+c\ndiff --git a/y b/y\n",
        7,
        "1 old and 1 new lines",
    ),
    "old count too low": (f"{PATHS}@@ -1 +1,2 @@\n a\n-b\n+c\n", 5, "more lines than its header"),
    "new count too low": (f"{PATHS}@@ -1,2 +1 @@\n a\n-b\n+c\n", 6, "a line that no hunk counts"),
    "context for one side only": (f"{PATHS}@@ -1 +1,2 @@\n-a\n b\n", 5, "more lines than its"),
    "wrapped line": (f"{PATHS}@@ -1,2 +1,2 @@\n a\nwrapped\n-b\n+c\n", 5, "begins with none of"),
    "tab for a space": (f"{PATHS}@@ -1,2 +1,2 @@\n\ta\n-b\n+c\n", 4, "begins with none of"),
    "carriage return": (f"{PATHS}@@ -1,2 +1,2 @@\n\ra\n-b\n+c\n", 4, "begins with none of"),
    "bad hunk header": (f"{PATHS}@@ -x +1 @@\n a\n", 3, "hunk header that is not understood"),
    "hunk header without end": (f"{PATHS}@@ -1 +1\n-a\n+b\n", 3, "hunk header that is not"),
    "huge line number": (f"{PATHS}@@ -1234567890 +1 @@\n-a\n+b\n", 3, "hunk header that is not"),
    "bad second hunk header": (f"{PLAIN}@@ -9 +9 @\n-a\n+b\n", 7, "hunk header that is not"),
    "bad hunk header, git": (f"{GIT_HEAD}{PATHS}@@ -1 1 @@\n-a\n+b\n", 4, "hunk header that"),
    "hunk without change": (f"{PATHS}@@ -1 +1 @@\n a\n", 3, "changes nothing"),
    "hunk of nothing": (f"{PATHS}@@ -1,0 +1,0 @@\n", 3, "changes nothing"),
    "blank line between hunks": (
        f"{PLAIN}\n@@ -9 +9 @@\n-a\n+b\n",
        7,
        "a blank line between two hunks",
    ),
    "binary data alone": (
        f"{PLAIN}GIT binary patch\nliteral 1\nIc${{MZ000310RR91\n\n",
        7,
        "without a 'diff --git'",
    ),
    "bad hunk header, git, no sign": (
        f"{GIT_HEAD}{PATHS}@@  -1 +1 @@\n-a\n+b\n",
        4,
        "hunk header that",
    ),
    "hunks overlap": (f"{PLAIN}@@ -2 +2 @@\n-b\n+c\n", 7, "overlap or stand out of order"),
    "hunks out of order": (
        f"{PATHS}@@ -9 +9 @@\n-b\n+c\n@@ -1 +1 @@\n-a\n+d\n",
        6,
        "overlap or stand out of order",
    ),
    "insertions out of order": (
        f"{PATHS}@@ -9,0 +10 @@\n+c\n@@ -8,0 +9 @@\n+d\n",
        5,
        "overlap or stand out of order",
    ),
    "mark before any line": (
        f"{PATHS}@@ -1,2 +1,2 @@\n\\ No newline\n a\n-b\n+c\n",
        4,
        "mark with no line before it",
    ),
    "mark twice": (
        f"{PATHS}@@ -1 +1 @@\n-a\n\\ No newline\n\\ No newline\n+b\n",
        6,
        "mark with no line",
    ),
    "mark before the last old line": (
        f"{PATHS}@@ -1,2 +1 @@\n-a\n\\ No newline\n-b\n+c\n",
        5,
        "before the last line of its side",
    ),
    "mark before the last new line": (
        f"{PATHS}@@ -1 +1,2 @@\n-a\n+b\n\\ No newline\n+c\n",
        6,
        "before the last line of its side",
    ),
    "mark behind context, more follows": (
        f"{PATHS}@@ -1,2 +1,2 @@\n a\n\\ No newline\n-b\n+c\n",
        5,
        "before the last line of its",
    ),
    "two names for a new file": (
        f"{GIT_HEAD}new file mode 100644\n--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+a\n",
        1,
        "a new file whose '---' line is not /dev/null",
    ),
    "two names for a deleted file": (
        f"{GIT_HEAD}deleted file mode 100644\n--- a/x\n+++ b/x\n@@ -1 +0,0 @@\n-a\n",
        1,
        "a deleted file whose '+++' line is not /dev/null",
    ),
    "absent on both sides": (
        "--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+a\n",
        1,
        "neither before nor after",
    ),
    "new file with old lines": (
        "--- /dev/null\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
        1,
        "a new file with lines to remove",
    ),
    "new file in two hunks": (
        "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n@@ -0,0 +2 @@\n+b\n",
        1,
        "a new file with lines to remove",
    ),
    "deleted file with new lines": (
        "--- a/x\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n",
        1,
        "a deleted file with lines that stay",
    ),
    "rename of an absent file": (
        f"{RENAME}--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+a\n",
        1,
        "/dev/null in a file that is rename",
    ),
    "rename with one name": (
        "diff --git a/x b/y\nsimilarity index 100%\nrename from x\n",
        1,
        "a rename with one name",
    ),
    "copy with one name": ("diff --git a/x b/y\ncopy to y\n", 1, "a copy with one name only"),
    "rename of a new file": (
        "diff --git a/x b/y\nnew file mode 100644\nrename from x\nrename to y\n",
        1,
        "both add and rename",
    ),
    "copy of a deleted file": (
        "diff --git a/x b/y\ndeleted file mode 100644\ncopy from x\ncopy to y\n",
        1,
        "both delete and copy",
    ),
    "rename and copy": (
        "diff --git a/x b/y\nrename from x\nrename to y\ncopy from x\ncopy to y\n",
        1,
        "both rename and copy",
    ),
    "rename with other names": (
        f"{RENAME}--- a/x\n+++ b/z\n{HUNK}",
        1,
        "the 'rename' lines name a/x and b/y",
    ),
    "two names and no rename": (
        f"diff --git a/x b/y\n--- a/x\n+++ b/y\n{HUNK}",
        1,
        "two names for one file",
    ),
    "header line twice": (
        f"{GIT_HEAD}old mode 100644\nold mode 100755\nnew mode 100644\n",
        3,
        "stands twice",
    ),
    "bad index line": (f"{GIT_HEAD}index 123456\n{PATHS}{HUNK}", 1, "'index' line"),
    "bad mode": (f"{GIT_HEAD}new file mode rwx\n", 1, "no file mode"),
    "no mode": (f"{GIT_HEAD}old mode \nnew mode 100644\n", 1, "'' is no file mode"),
    "folder mode": (f"{GIT_HEAD}new file mode 040000\n", 1, "not one of git's"),
    "submodule": (
        f"{GIT_HEAD}new file mode 160000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+Subproject\n",
        1,
        "a submodule change",
    ),
    "submodule in the index line": (
        f"{GIT_HEAD}index 1234567..89abcde 160000\n{PATHS}@@ -1 +1 @@\n-a\n+b\n",
        1,
        "a submodule",
    ),
    "cut behind diff --git": (f"{GIT}{GIT_HEAD}", 9, "ends after a 'diff --git' line"),
    "cut behind the index line": (
        f"{GIT}{GIT_HEAD}index 1234567..89abcde 100644\n",
        9,
        "announces a change, and no hunk",
    ),
    "cut behind a new file's index line": (
        f"{GIT_HEAD}new file mode 100644\nindex {ZERO}..1234567\n",
        1,
        "announces a change",
    ),
    "cut behind a deleted file's index line": (
        f"{GIT_HEAD}deleted file mode 100644\nindex 1234567..{ZERO}\n",
        1,
        "announces a change",
    ),
    "cut behind a rename that changes": (
        "diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n",
        1,
        "announces",
    ),
    "cut behind a copy's index line": (
        "diff --git a/x b/y\ncopy from x\ncopy to y\nindex 1234567..89abcde\n",
        1,
        "announces",
    ),
    "mode change with other blobs": (
        f"{GIT_HEAD}old mode 100644\nnew mode 100755\nindex 1234567..89abcde\n",
        1,
        "announces",
    ),
    "binary, git": (
        f"{GIT_HEAD}index 1234567..89abcde 100644\nBinary files a/x and b/x differ\n",
        3,
        "'Binary files differ'",
    ),
    "binary, plain": (f"{PLAIN}Binary files a/y and b/y differ\n", 7, "'Binary files differ'"),
    "binary without data": (f"{BINARY_HEAD}\n", 4, "a binary patch without data"),
    "binary cut": (f"{BINARY_HEAD}literal 1\n{NUL}\n", 4, "ends inside"),
    "binary of other size": (
        f"{BINARY_HEAD}literal 2\n{NUL}\n\n",
        4,
        "the 2 bytes it announces",
    ),
    "binary of less": (
        f"{BINARY_HEAD}literal 0\n{NUL}\n\n",
        4,
        "the 0 bytes it announces",
    ),
    "binary, damaged letters": (
        f"{BINARY_HEAD}literal 1\nIcmZPo0003 0RR91\n\n",
        5,
        "a damaged line",
    ),
    "binary, damaged length": (
        f"{BINARY_HEAD}literal 1\nZcmZPo000310RR91\n\n",
        5,
        "a damaged line",
    ),
    "binary, no length": (
        f"{BINARY_HEAD}literal 1\n!cmZPo000310RR91\n\n",
        5,
        "a damaged line",
    ),
    "binary, damaged data": (
        f"{BINARY_HEAD}literal 1\nIAAAAAAAAAAAAAAA\n\n",
        4,
        "a damaged binary patch:",
    ),
    "binary too large": (
        f"{BINARY_HEAD}literal {MAX_BINARY + 1}\n{NUL}\n\n",
        4,
        "limit is",
    ),
    "no name": ("diff --git a/x y b/z y w\nold mode 100644\nnew mode 100755\n", 1, "no file name"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_line(name: str) -> None:
    data, line, message = REFUSALS[name]
    error = refused(data)
    assert message in error.message
    assert error.line == line


ALONE = ("the patch", "no patch", "HTML", "comp", "UTF", "normal")


@pytest.mark.parametrize("name", [n for n, r in REFUSALS.items() if not r[2].startswith(ALONE)])
def test_refusals_do_not_depend_on_what_stands_before(name: str) -> None:
    """Behind mail text and a good file, the same fault at a line that is moved along."""
    data, line, message = REFUSALS[name]
    head = f"Subject: x\n\nprose\n{OTHER}-- \n2.39\n\n"
    error = refused(head.encode() + (data if isinstance(data, bytes) else data.encode()))
    assert message in error.message
    assert error.line == line + head.count("\n")


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (REFUSALS["utf-16"][0], "UTF-8"),
        (REFUSALS["gzip"][0], "gunzip"),
        (REFUSALS["html"][0], "login"),
        (REFUSALS["context diff"][0], "diff -u"),
        (REFUSALS["normal diff"][0], "diff -u"),
        (REFUSALS["combined"][0], "git show -m --first-parent"),
        (REFUSALS["binary, git"][0], "git diff --binary"),
        (REFUSALS["hunk without file"][0], "'+++ name'"),
        (REFUSALS["hunks overlap"][0], "sort the hunks"),
        (REFUSALS["submodule"][0], "take that file out"),
        (REFUSALS["cut in a hunk"][0], "cut off"),
        (REFUSALS["line beyond the counts"][0], "nothing may be dropped"),
        (REFUSALS["wrapped line"][0], "mailer"),
    ],
)
def test_refusals_say_what_to_do(data: str | bytes, hint: str) -> None:
    assert hint in (refused(data).hint or "")


def test_the_line_in_question_is_shown() -> None:
    error = refused(f"{PLAIN}+\x1b[31mred\x00\n")
    assert error.detail == ("  +\\x1b[31mred\\x00",)
    long = refused(f"{PLAIN}+{'x' * 200}\n").detail[0]
    assert len(long) < 130
    assert long.endswith("...")


# -- plain diffs -------------------------------------------------------------------------------


def test_a_plain_diff() -> None:
    patch = read(f"prose\n\n{PLAIN}@@ -10,0 +11 @@ def f():\n+new\n")
    (file,) = patch.files
    assert patch.name == "demo.patch"
    assert (file.change, file.old_path, file.new_path, file.line) == ("modify", "a/x", "b/x", 3)
    assert not file.git
    first, second = file.hunks
    assert (first.old, first.new) == ((b"a\n", b"b\n"), (b"a\n", b"c\n"))
    assert (first.old_start, first.new_start, first.line) == (1, 1, 5)
    assert (first.leading, first.trailing, first.heading) == (1, 0, b"")
    assert (second.old, second.new, second.heading) == ((), (b"new\n",), b"def f():")
    assert (second.old_start, second.new_start, second.line) == (10, 11, 9)
    assert body(first) == (b" a\n", b"-b\n", b"+c\n")


def test_the_digest_is_of_the_bytes_as_they_are() -> None:
    crlf = PLAIN.replace("\n", "\r\n")
    assert len({read(PLAIN).sha256, read(crlf).sha256, read(f"x\n{PLAIN}").sha256}) == 3


def test_counts_may_be_left_out() -> None:
    file = only("--- a/x\n+++ b/x\n@@ -3 +3 @@\n-a\n+b\n")
    assert (file.hunks[0].old_start, file.hunks[0].old) == (3, (b"a\n",))


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("--- a/x", "a/x"),
        ("--- a/x\t2024-01-02 03:04:05.678901234 +0100", "a/x"),
        ("--- a/x\tTue Jan  2 03:04:05 2024", "a/x"),
        ("--- a/x 2024-01-02 03:04:05.678901234 +0100", "a/x"),
        ("--- a/x  2024-01-02T03:04:05Z", "a/x"),
        ("--- a/x\t(revision 1234)", "a/x"),
        ("--- with space\t2024-01-02 03:04:05 +0100", "with space"),
        ("--- with space", "with space"),
        ('--- "a/ta\\tb\\303\\274\\"\\\\"', 'a/ta\tbü"\\'),
        ('--- "a/all\\a\\b\\t\\n\\v\\f\\r"\t2024-01-02 03:04:05 +0100', "a/all\a\b\t\n\v\f\r"),
        ('--- "a/raw\\377"', "a/raw\udcff"),
        ('--- "unfinished', '"unfinished'),
        ("--- /home/me/x.py", "/home/me/x.py"),
        ("--- ../../x.py", "../../x.py"),
        ("--- dev/null", "dev/null"),
    ],
)
def test_names_of_plain_headers(line: str, name: str) -> None:
    for end in ("\n", "\r\n"):
        file = only(f"{line}{end}{line.replace('---', '+++')}{end}{HUNK}")
        assert (file.change, file.old_path, file.new_path) == ("modify", name, name)


def test_a_raw_name_may_be_no_utf8() -> None:
    assert only(PLAIN.encode().replace(b"/x", b"/\xff\xc3")).old_path == "a/\udcff\udcc3"


@pytest.mark.parametrize("escape", ["\\q", "\\9", "\\400", "\\x41", "\\"])
def test_escapes_that_git_does_not_make(escape: str) -> None:
    with pytest.raises(PatchSyntaxError, match="an escape that git does not make"):
        read(f'--- "a/{escape}z"\n+++ "a/{escape}z"\n{HUNK}')


@pytest.mark.parametrize(
    "stamp",
    [
        "1970-01-01 00:00:00.000000000 +0000",
        "1970-01-01 00:00:00 +0000",
        "1970-01-01 00:00:00 +00:00",
        "1970-01-01 05:30:00.000000000 +0530",
        "1970-01-01 01:00:00.000000000 +0100",
        "1969-12-31 16:00:00.000000000 -0800",
        "1969-12-31 19:00:00 -0500",
        "Thu Jan  1 00:00:00 1970",
        "Thu Jan  1 01:00:00 1970 +0100",
        "Wed Dec 31 16:00:00 1969 -0800",
        "1970-01-01T00:00:00",
    ],
)
def test_the_epoch_says_absent(stamp: str) -> None:
    now = "2024-01-02 03:04:05.000000000 +0000"
    for end in ("\n", "\r\n"):
        added = only(f"--- a/x\t{stamp}{end}+++ b/x\t{now}{end}@@ -0,0 +1 @@{end}+a\n")
        assert (added.change, added.old_path, added.new_path) == ("add", None, "b/x")
        gone = only(f"--- a/x\t{now}{end}+++ b/x\t{stamp}{end}@@ -1 +0,0 @@{end}-a\n")
        assert (gone.change, gone.old_path, gone.new_path) == ("delete", "a/x", None)


@pytest.mark.parametrize(
    "stamp",
    [
        "1970-01-01 00:00:01 +0000",
        "1970-01-01 00:30:00 +0000",
        "1970-01-01 00:00:00.000000001 +0000",
        "1970-01-02 00:00:00 +0000",
        "2024-01-01 00:00:00 +0000",
        "",
    ],
)
def test_another_time_says_an_empty_file(stamp: str) -> None:
    filled = only(f"--- a/x\t{stamp}\n+++ b/x\t{stamp}\n@@ -0,0 +1 @@\n+a\n")
    assert filled.change == "modify"
    emptied = only(f"--- a/x\t{stamp}\n+++ b/x\t{stamp}\n@@ -1 +0,0 @@\n-a\n")
    assert emptied.change == "modify"


def test_the_epoch_with_lines_is_a_time_like_any_other() -> None:
    epoch = "1970-01-01 00:00:00 +0000"
    file = only(f"--- a/x\t{epoch}\n+++ b/x\t{epoch}\n{HUNK}")
    assert file.change == "modify"


def test_dev_null() -> None:
    added = only("--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n")
    assert (added.change, added.old_path, added.new_path) == ("add", None, "b/x")
    gone = only("--- a/x\n+++ /dev/null\t2024-01-02 03:04:05 +0000\n@@ -1 +0,0 @@\n-a\n")
    assert (gone.change, gone.old_path, gone.new_path) == ("delete", "a/x", None)


def test_a_diff_of_folders_with_what_diff_says_between() -> None:
    patch = read(
        "Only in a: z\n"
        f"diff -ruN a/x b/x\n{PLAIN}"
        f"diff -ruN '--exclude=*.pyc' a/y b/y\n{OTHER}"
        f"Index: x\n{'=' * 67}\n{PLAIN}"
    )
    assert [file.new_path for file in patch.files] == ["b/x", "b/y", "b/x"]


# -- hunk bodies -------------------------------------------------------------------------------


def hunk(given: str | bytes, old: int, new: int) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    data = given.encode() if isinstance(given, str) else given
    head = f"--- a/x\n+++ b/x\n@@ -1,{old} +1,{new} @@\n".encode()
    found = parse(head + data, "x").files[0].hunks[0]
    for tail in (PLAIN.encode(), b"-- \n2.39\n"):
        assert parse(head + data + tail, "x").files[0].hunks[0] == found
    lines = io.BytesIO(data).readlines()
    # A mark is shown in git's own words, whatever language it was written in.
    assert [line[:1] for line in body(found)] == [line[:1] for line in lines]
    kept = [line for line in lines if line[:1] != b"\\"]
    assert [line for line in body(found) if line[:1] != b"\\"] == kept
    return found.old, found.new


@pytest.mark.parametrize("mark", ["\\ No newline at end of file", "\\ Kein Zeilenumbruch", "\\"])
def test_missing_last_line_ends(mark: str) -> None:
    assert hunk(f" a\n-b\n{mark}\n+c\n", 2, 2) == ((b"a\n", b"b"), (b"a\n", b"c\n"))
    assert hunk(f" a\n-b\n+c\n{mark}\n", 2, 2) == ((b"a\n", b"b\n"), (b"a\n", b"c"))
    assert hunk(f" a\n-b\n{mark}\n+c\n{mark}\n", 2, 2) == ((b"a\n", b"b"), (b"a\n", b"c"))
    assert hunk(f"-a\n+b\n c\n{mark}\n", 2, 2) == ((b"a\n", b"c"), (b"b\n", b"c"))
    assert hunk(f"+c\n{mark}\n-b\n{mark}\n", 1, 1) == ((b"b",), (b"c",))
    assert hunk(f"+c\n-b\n{mark}\n", 1, 1) == ((b"b",), (b"c\n",))
    assert hunk(f"-a\r\n{mark}\r\n+b\r\n", 1, 1) == ((b"a\r",), (b"b\r\n",))


def test_a_mark_may_be_the_last_line_and_have_no_end_itself() -> None:
    file = only(f"{PLAIN}\\ No newline at end of file")
    assert file.hunks[0].new == (b"a\n", b"c")


def test_lines_split_at_line_feed_alone() -> None:
    odd = ["\x0c", "\x0b", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r", "x\ry", "\r\r"]
    for content in odd:
        old, new = hunk(f"-{content}a\n+{content}b\n {content}\n", 2, 2)
        assert old == (f"{content}a\n".encode(), f"{content}\n".encode())
        assert new == (f"{content}b\n".encode(), f"{content}\n".encode())
    raw = bytes(range(256)).replace(b"\n", b"")
    assert hunk(b"-" + raw + b"\n+\n", 1, 1) == ((raw + b"\n",), (b"\n",))


def test_lines_that_look_like_headers() -> None:
    old, new = hunk("--- a/y\n-- \n---\n-@@ -1 +1 @@\n+++ b/y\n+++\n+diff --git a/x b/x\n", 4, 3)
    assert old == (b"-- a/y\n", b"- \n", b"--\n", b"@@ -1 +1 @@\n")
    assert new == (b"++ b/y\n", b"++\n", b"diff --git a/x b/x\n")


def test_blank_context_lines_whose_space_was_eaten() -> None:
    old, new = hunk("\n-a\n+b\n\n\n", 4, 4)
    assert (old, new) == ((b"\n", b"a\n", b"\n", b"\n"), (b"\n", b"b\n", b"\n", b"\n"))
    found = only("--- a/x\n+++ b/x\n@@ -1,4 +1,4 @@\n\n-a\n+b\n\n \n").hunks[0]
    assert (found.leading, found.trailing) == (1, 2)


def test_crlf_is_content() -> None:
    old, new = hunk(" a\r\n-b\r\n+c\n", 2, 2)
    assert (old, new) == ((b"a\r\n", b"b\r\n"), (b"a\r\n", b"c\n"))


def test_a_patch_that_is_crlf_throughout() -> None:
    data = GIT.replace("\n", "\r\n")
    (file,) = read(data).files
    assert (file.old_path, file.new_path, file.old_mode) == ("a/x", "b/x", 0o100644)
    assert file.hunks[0].old == (b"a\r\n", b"b\r\n")
    assert file.hunks[0].heading == b""
    renamed = only(
        "diff --git a/x b/y\r\nsimilarity index 100%\r\nrename from x\r\nrename to y\r\n"
    )
    assert (renamed.old_path, renamed.new_path) == ("a/x", "b/y")


def test_leading_and_trailing_count_context_at_the_ends_alone() -> None:
    file = only(
        "--- a/x\n+++ b/x\n@@ -1,7 +1,6 @@\n a\n b\n-c\n d\n-e\n+f\n g\n h\n\\ No newline\n"
    )
    assert (file.hunks[0].leading, file.hunks[0].trailing) == (2, 2)


def test_headings() -> None:
    def heading(text: str) -> bytes:
        return only(f"--- a/x\n+++ b/x\n@@ -1 +1 @@{text}\n-a\n+b\n").hunks[0].heading

    assert heading("") == b""
    assert heading(" def f(x):") == b"def f(x):"
    assert heading(" def f(x):\r") == b"def f(x):"
    assert heading("def f") == b"def f"
    assert heading(" @@ -1 +1 @@") == b"@@ -1 +1 @@"


# -- git's dialect -----------------------------------------------------------------------------


def test_a_git_diff() -> None:
    file = only(f"{GIT}-- \n2.39.5\n\n")
    assert (file.change, file.old_path, file.new_path) == ("modify", "a/x", "b/x")
    assert file.git
    assert (file.old_blob, file.new_blob) == ("1234567", "89abcde")
    assert (file.old_mode, file.new_mode) == (0o100644, None)
    assert file.path == "b/x"


@pytest.mark.parametrize("mode", [0o100644, 0o100755, 0o100664, 0o120000])
def test_new_and_deleted_files(mode: int) -> None:
    added = only(
        f"diff --git a/x b/x\nnew file mode {mode:o}\nindex 0000000..1234567\n"
        "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"
    )
    assert (added.change, added.old_path, added.new_path) == ("add", None, "b/x")
    assert (added.old_mode, added.new_mode) == (None, mode)
    gone = only(
        f"diff --git a/x b/x\ndeleted file mode {mode:o}\nindex 1234567..0000000\n"
        "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    )
    assert (gone.change, gone.old_path, gone.new_path) == ("delete", "a/x", None)
    assert (gone.old_mode, gone.new_mode) == (mode, None)
    assert gone.path == "a/x"


def test_empty_files() -> None:
    added = only(f"diff --git a/x b/x\nnew file mode 100644\nindex {ZERO}..{EMPTY_BLOB}\n")
    assert (added.change, added.new_path, added.hunks) == ("add", "b/x", ())
    gone = only("diff --git a/x b/x\ndeleted file mode 100644\nindex e69de29..0000000\n")
    assert (gone.change, gone.old_path, gone.hunks) == ("delete", "a/x", ())


def test_a_file_emptied_but_kept_and_an_empty_one_filled() -> None:
    emptied = only(f"diff --git a/x b/x\nindex 1..2 100644\n{PATHS}@@ -1 +0,0 @@\n-a\n")
    assert (emptied.change, emptied.new_path) == ("modify", "b/x")
    filled = only(f"diff --git a/x b/x\nindex 1..2 100644\n{PATHS}@@ -0,0 +1 @@\n+a\n")
    assert (filled.change, filled.old_path) == ("modify", "a/x")


def test_dev_null_decides_where_the_mode_line_was_lost() -> None:
    added = only("diff --git a/x b/x\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n")
    assert (added.change, added.new_path) == ("add", "b/x")
    gone = only("diff --git a/x b/x\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n")
    assert (gone.change, gone.old_path) == ("delete", "a/x")


def test_mode_changes() -> None:
    head = "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"
    file = only(head)
    assert (file.change, file.old_mode, file.new_mode) == ("modify", 0o100644, 0o100755)
    assert (file.old_path, file.new_path, file.hunks) == ("a/x", "b/x", ())
    both = only(f"{head}index 1234567..89abcde\n{PATHS}{HUNK}")
    assert (both.old_mode, both.new_mode, len(both.hunks)) == (0o100644, 0o100755, 1)


@pytest.mark.parametrize("kind", ["rename", "copy"])
def test_renames_and_copies(kind: str) -> None:
    for words in ((f"{kind} from", f"{kind} to"), (f"{kind} old", f"{kind} new")):
        if words == ("copy old", "copy new"):
            continue
        head = f"{words[0]} p/x\n{words[1]} q/y\n"
        file = only(f"diff --git a/p/x b/q/y\nsimilarity index 100%\n{head}")
        assert (file.change, file.old_path, file.new_path) == (kind, "a/p/x", "b/q/y")
        file = only(
            f"diff --git a/p/x b/q/y\nsimilarity index 90%\n{head}"
            f"index 1234567..89abcde 100644\n--- a/p/x\n+++ b/q/y\n{HUNK}"
        )
        assert (file.change, file.old_path, len(file.hunks)) == (kind, "a/p/x", 1)
        file = only(
            f"diff --git a/p/x b/q/y\nold mode 100644\nnew mode 100755\n"
            f"similarity index 100%\n{head}"
        )
        assert (file.change, file.old_mode, file.new_mode) == (kind, 0o100644, 0o100755)


def test_renames_without_prefixes() -> None:
    file = only("diff --git p/x q/y\nsimilarity index 100%\nrename from p/x\nrename to q/y\n")
    assert (file.old_path, file.new_path) == ("p/x", "q/y")
    file = only("diff --git i/p/x w/q/y\nsimilarity index 100%\nrename from p/x\nrename to q/y\n")
    assert (file.old_path, file.new_path) == ("i/p/x", "w/q/y")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("a/x b/x", "x"),
        ("a/with space b/with space", "with space"),
        ("a/a b/a b b/a b/a b", "a b/a b"),
        ('"a/ta\\tb" "b/ta\\tb"', "ta\tb"),
        ('"a/\\303\\274" "b/\\303\\274"', "ü"),
        ('"a/\\"q\\" \\\\" "b/\\"q\\" \\\\"', '"q" \\'),
    ],
)
def test_names_of_the_diff_line_where_no_other_says_them(names: str, expected: str) -> None:
    file = only(f"diff --git {names}\nold mode 100644\nnew mode 100755\n")
    assert (file.old_path, file.new_path) == (f"a/{expected}", f"b/{expected}")


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        ("u/v/a b/c u/w/a b/c", "u/v/a b/c", "u/w/a b/c"),
        ("1/2/3/a b 4/5/6/a b", "1/2/3/a b", "4/5/6/a b"),
        ("a/x b/x a/x b/x", "a/x b/x", "a/x b/x"),
        ("p/q x/q p/q x/q", "p/q x/q", "p/q x/q"),
    ],
)
def test_a_prefix_of_several_parts_before_a_name_with_blanks(line: str, old: str, new: str) -> None:
    file = only(f"diff --git {line}\nold mode 100644\nnew mode 100755\n")
    assert (file.old_path, file.new_path) == (old, new)


@pytest.mark.parametrize(
    "text",
    [
        "- item\n" * 100_000,
        "--- item\n" * 100_000,
        "Subject: x\n" + " more words\n" * 100_000,
        f"--- a{' ' * 200_000}x\n+++ a\n@@ -1 +1 @@\n-a\n+b\n",
        f"diff --git a{' a' * 100_000}\nrename from x\nrename to y\n",
        f"diff --git a{' a' * 100_000}\nold mode 100644\nnew mode 100755\n--- a/x\n+++ b/x\n{HUNK}",
    ],
    ids=["list", "list of names", "field", "blanks", "names of a rename", "names"],
)
def test_long_lists_and_lines_are_read_in_one_pass(text: str) -> None:
    """Minutes where each line, or each blank, looks at all the others."""
    assert parse(f"{text}\n{PLAIN}".encode(), "x").files[-1].hunks


def test_a_diff_line_quoted_on_one_side() -> None:
    file = only('diff --git a/x "b/\\303\\274"\nsimilarity index 100%\nrename from x\n'
                'rename to "\\303\\274"\n')  # fmt: skip
    assert (file.old_path, file.new_path) == ("a/x", "b/ü")
    file = only('diff --git "a/\\303\\274" b/x\nsimilarity index 100%\n'
                'rename from "\\303\\274"\nrename to x\n')  # fmt: skip
    assert (file.old_path, file.new_path) == ("a/ü", "b/x")


def test_names_of_hunked_files_come_from_their_own_lines() -> None:
    file = only(f"diff --git a/x y z b/x y z\n--- a/x y z\t\n+++ b/x y z\t\n{HUNK}")
    assert (file.old_path, file.new_path) == ("a/x y z", "b/x y z")


# A NUL byte, and a file of 300 random bytes with one changed, as ``git diff --binary`` says it.
BINARY = (
    "diff --git a/x b/x\nnew file mode 100644\n"
    f"index {ZERO}..f76dd238ade08917e6712764a16a22005a50573d\n"
    "GIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n"
)


def test_binary_literals() -> None:
    file = only(f"{BINARY}{GIT}".encode().partition(b"diff --git a/x b/x\nindex 1234567")[0])
    assert file.binary is not None
    forward, backward = file.binary
    assert (forward.method, forward.data, forward.size) == ("literal", b"\0", 1)
    assert backward is not None
    assert (backward.method, backward.data, backward.size) == ("literal", b"", 0)
    assert file.new_blob == "f76dd238ade08917e6712764a16a22005a50573d"
    assert [f.new_path for f in read(f"{BINARY}{GIT}").files] == ["b/x", "b/x"]
    assert [f.new_path for f in read(f"{BINARY}{BINARY}").files] == ["b/x", "b/x"]
    assert only(BINARY.replace("\n", "\r\n")).binary == file.binary


def test_a_binary_patch_of_one_half() -> None:
    half = BINARY.partition("literal 0")[0]
    file = only(half)
    assert file.binary is not None
    assert file.binary[1] is None


def test_binary_deltas(tmp_path: Path) -> None:
    old = bytes(range(256)) * 20
    tree: Tree = {"x": text(old)}
    new: Tree = {"x": text(old[:2000] + b"\0new" + old[2000:])}
    file = only(Tools(tmp_path).git_diff(tree, new, "--binary"))
    assert file.binary is not None
    assert [half.method for half in file.binary if half] == ["delta", "delta"]


# -- mail and prose ----------------------------------------------------------------------------

SIGNATURE = "-- \n2.39.5\n\n"
MAIL = f"""\
From 1234567890123456789012345678901234567890 Mon Sep 17 00:00:00 2001
From: A U Thor <author@example.org>
Date: Thu, 1 Jan 2026 00:00:00 +0000
Subject: [PATCH 1/2] One thing
 and its other half

Some words, and quotes of diffs:

    diff --git a/quoted b/quoted
    --- a/quoted
    +++ b/quoted
    @@ -1 +1 @@
> --- a/quoted
> +++ b/quoted
diff --git a/quoted b/quoted
is what git writes; and
--- not a header
+++ nor this
- a list
+ of points
 and an indented line

---
 x | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

{GIT}{SIGNATURE}"""


def test_a_mail() -> None:
    file = only(MAIL)
    assert file.line == MAIL[: MAIL.index(GIT)].count("\n") + 1
    assert len(file.hunks) == 1


def test_several_mails_in_one_file() -> None:
    patch = read(MAIL + MAIL.replace("b/x", "b/z").replace("a/x", "a/z") + MAIL)
    assert [file.new_path for file in patch.files] == ["b/x", "b/z", "b/x"]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert only(b"\xef\xbb\xbf" + GIT.encode()).line == 1


@pytest.mark.parametrize("between", ["", "\n", "\n\n", "prose\n", "Index: y\n", "#\n", "\n \n"])
def test_prose_between_files(between: str) -> None:
    if between == "\n \n":
        refused(f"{PLAIN}{between}{OTHER}")
        return
    patch = read(f"{PLAIN}{between}{OTHER}{between}{GIT}{between}")
    assert [file.new_path for file in patch.files] == ["b/x", "b/y", "b/x"]


@pytest.mark.parametrize("signature", ["-- \n", "--\n", "-- \r\n"])
def test_a_signature_ends_the_last_hunk(signature: str) -> None:
    assert len(read(f"{PLAIN}{signature}2.39.5\n\n{OTHER}{signature}2.39.5\n").files) == 2


def test_a_signature_behind_one_line_of_prose() -> None:
    """Mercurial writes no more than that between two files, ``git show`` behind the last."""
    assert len(read(f"{PLAIN}diff -r 44299fd3d1a8 b\n{OTHER}-- \n2.39.5\n").files) == 2
    assert len(read(f"{PLAIN}$\n-- \n2.39.5\n").files) == 1


def test_dep3_fields() -> None:
    patch = read(
        "Description: first line\n second line\n .\n after a blank\nOrigin: upstream, abc\n"
        "Author: A <a@b>\nLast-Update: 2026-01-01\nnot a field\nBug:https://x\n---\nNot: read\n"
        f"{GIT}"
    )
    assert dict(patch.dep3) == {
        "Description": "first line\nsecond line\n\nafter a blank",
        "Origin": "upstream, abc",
        "Author": "A <a@b>",
        "Last-Update": "2026-01-01",
        "Bug": "https://x",
    }
    assert read(GIT).dep3 == ()


def test_dep3_fields_of_a_mail() -> None:
    fields = dict(read(MAIL).dep3)
    assert fields["Author"] == "A U Thor <author@example.org>"
    assert fields["Description"].startswith("[PATCH 1/2] One thing\nand its other half")
    assert dep3_fields(b"Description: x\r\n y\r\n\xff: z\r\n") == (("Description", "x\ny"),)


def test_fields_end_where_the_first_file_begins() -> None:
    assert read(f"Author: A\n{PLAIN}Origin: vendor\n{OTHER}").dep3 == (("Author", "A"),)
    assert read(f"Author: A\n{GIT}").dep3 == (("Author", "A"),)


# -- what is not right yet ---------------------------------------------------------------------


def test_a_mode_in_the_index_line_that_is_no_mode() -> None:
    assert refused(f"{GIT_HEAD}index 1..2 100689\n{PATHS}{HUNK}").line == 1


def test_a_binary_patch_of_absurd_size() -> None:
    digits = "9" * 5000
    data = f"{GIT_HEAD}index 1..2\nGIT binary patch\nliteral {digits}\nIcmZPo000310RR91\n\n"
    assert refused(data).line == 4


@pytest.mark.parametrize(
    "tail",
    ["-- \n+lost\n", "--\n context\n+lost\n", "-- \n-lost\n"],
)
def test_a_removed_dash_is_no_signature(tail: str) -> None:
    assert refused(f"{PLAIN}{tail}").line == 7


@pytest.mark.parametrize("header", ["@@-9 +9 @@", "@@ +9 -9 @@", "@@"])
def test_a_damaged_second_hunk_header(header: str) -> None:
    assert refused(f"{PLAIN}{header}\n-lost\n+lost\n").line == 7


@pytest.mark.parametrize(
    "tail",
    ["--- a/y\n", "--- a/y\n+++ b/y\n", "diff -ruN a/y b/y\n--- a/y\n+++ b/y\n"],
)
def test_a_patch_cut_off_in_a_plain_header(tail: str) -> None:
    refused(f"{PLAIN}diff -ruN a/y b/y\n{tail}")


def test_a_mode_change_with_one_mode() -> None:
    assert refused(f"{GIT}{GIT_HEAD}old mode 100644\n").line == 9


@pytest.mark.parametrize("head", ["new file mode 100644\n", "deleted file mode 100644\n"])
def test_a_file_header_cut_off_before_its_index_line(head: str) -> None:
    """Mercurial writes no index lines; a patch that has some elsewhere has them all."""
    assert only(f"{GIT_HEAD}{head}").hunks == ()
    assert refused(f"{GIT}{GIT_HEAD}{head}").line == 9


def test_binary_files_that_differ_before_any_other() -> None:
    assert refused(f"Binary files a/w and b/w differ\n{PLAIN}").line == 1
    assert refused(f"diff -r a/w b/w\nBinary files a/w and b/w differ\n{PLAIN}").line == 2


def test_a_git_header_without_extended_lines_is_a_header() -> None:
    hunked = only(f"{GIT_HEAD}{HUNK}")
    assert (hunked.old_path, hunked.new_path, len(hunked.hunks)) == ("a/x", "b/x", 1)
    refused(f"{GIT}{GIT_HEAD}Binary files a/x and b/x differ\n")


def test_hunks_right_behind_the_index_line() -> None:
    file = only(f"{GIT_HEAD}index 1234567..89abcde 100644\n{HUNK}")
    assert (file.old_path, file.new_path, len(file.hunks)) == ("a/x", "b/x", 1)


def test_names_that_the_diff_line_contradicts() -> None:
    assert refused(f"diff --git a/x b/x\n--- a/y\n+++ b/y\n{HUNK}").line == 1


@pytest.mark.parametrize(
    ("line", "minus", "plus"),
    [
        ("a/f b/f", "a/f", "a/f"),  # another prefix, the same file
        ("a/target b/file", "a/target", "b/target"),  # the diff line names no one file
    ],
)
def test_names_that_the_diff_line_does_not_contradict(line: str, minus: str, plus: str) -> None:
    file = only(f"diff --git {line}\n--- {minus}\n+++ {plus}\n{HUNK}")
    assert (file.old_path, file.new_path) == (minus, plus)


@pytest.mark.parametrize("name", ["trail ", "at 2021-01-01 00:00:00"])
def test_git_names_end_at_a_tab(name: str) -> None:
    file = only(f"diff --git a/{name} b/{name}\n--- a/{name}\t\n+++ b/{name}\t\n{HUNK}")
    assert (file.old_path, file.new_path) == (f"a/{name}", f"b/{name}")


@pytest.mark.parametrize(("old", "new"), [("i/", "w/"), ("", "")])
def test_prefixes_of_renames_with_blanks(old: str, new: str) -> None:
    head = (
        f"diff --git {old}p q {new}r s t\nsimilarity index 90%\nrename from p q\nrename to r s t\n"
    )
    whole = only(head.replace("90", "100"))
    assert (whole.old_path, whole.new_path) == (f"{old}p q", f"{new}r s t")
    file = only(f"{head}--- {old}p q\t\n+++ {new}r s t\t\n{HUNK}")
    assert (file.old_path, file.new_path) == (f"{old}p q", f"{new}r s t")


def test_rename_lines_that_name_less_than_the_diff_line() -> None:
    file = only("diff --git a/sub/x b/sub/y\nsimilarity index 100%\nrename from x\nrename to y\n")
    assert (file.old_path, file.new_path) == ("a/x", "b/y")


def test_a_name_quoted_in_part() -> None:
    file = only(f'--- "a/"sub/x\n+++ "b/"sub/x\n{HUNK}')
    assert (file.old_path, file.new_path) == ('"a/"sub/x', '"b/"sub/x')


def test_a_lone_crlf_in_a_patch_with_lf_headers() -> None:
    assert refused(f"{PATHS}@@ -1,2 +1,2 @@\n-a\r\n+b\r\n\r\n").line == 6


def test_a_mark_behind_an_empty_line() -> None:
    assert refused(f"{PATHS}@@ -1,2 +1,2 @@\n-a\n+b\n \n\\ No newline\n").line == 7
    assert refused(f"{PATHS}@@ -1 +1 @@\n-\n\\ No newline\n+b\n").line == 5


@pytest.mark.parametrize("name", ["", "\t2024-01-02 03:04:05 +0000", '""'])
def test_headers_without_a_name(name: str) -> None:
    assert refused(f"--- {name}\n+++ {name}\n{HUNK}").line == 1


def test_a_blank_line_ends_a_field() -> None:
    assert dict(read(f"Subject: one\n\n  quoted code\n{GIT}").dep3)["Description"] == "one"


# -- properties --------------------------------------------------------------------------------


def outcome(data: bytes) -> Patch | PatchSyntaxError:
    try:
        return read(data)
    except PatchSyntaxError as error:
        return error


def cuts(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = data.find(b"\n")
    number = 1
    while 0 <= at < len(data) - 1:
        yield number, data[: at + 1]
        at = data.find(b"\n", at + 1)
        number += 1


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("patchfile"))


# A cut that no reader can see: a whole hunk more, a mark, the content of a file whose mode
# changed, or the half of a binary patch that takes it back may have followed.  The lock of a
# bundle sees them all.
UNSEEN = re.compile(
    rb"(?:^|\n)(?:old mode|new mode|new file mode|deleted file mode) \d+\n\Z"
    rb"|\n(?:literal|delta) \d+\n(?:[^\n]+\n)+\n\Z"
)


def test_a_patch_cut_off_anywhere_is_refused_or_ends_with_a_file(tools: Tools) -> None:
    @settings(max_examples=40)
    @given(pairs(), st.sampled_from(["-M", "-U1", "--no-renames"]))
    def check(pair: tuple[Tree, Tree], option: str) -> None:
        data = tools.git_diff(*pair, "--binary", option)
        if not data:
            return
        whole = read(data)
        starts = {file.line for file in whole.files[1:]}
        for number, head in cuts(data):
            at_boundary = number + 1 in starts
            found = outcome(head)
            if isinstance(found, PatchSyntaxError):
                assert not at_boundary
                assert (found.line or 0) <= number + 1
                continue
            if at_boundary:
                assert found.files == whole.files[: len(found.files)]
                continue
            follows = data[len(head) :]
            assert follows.startswith((b"@@ -", b"\\ ")) or UNSEEN.search(head), head
            assert found.files[:-1] == whole.files[: len(found.files) - 1]

    check()


def test_a_plain_patch_cut_off_anywhere_is_refused_or_ends_with_a_file() -> None:
    more = "@@ -9 +9 @@\n-a\n+b\n\\ No newline at end of file\n"
    data = (PLAIN + more + OTHER + PLAIN).encode()
    whole = read(data)
    starts = {file.line for file in whole.files[1:]}
    for number, head in cuts(data):
        if number + 1 in starts:
            found = read(head).files
            assert found == whole.files[: len(found)]
        elif not data[len(head) :].startswith((b"@@ -", b"\\ ")):
            refused(head)


@settings(max_examples=300)
@given(st.binary(max_size=200))
@example(b"--- \n+++ \n@@ -1 +1 @@\n-\n+\n")
def test_random_bytes_are_refused_or_read(data: bytes) -> None:
    _never_breaks(data)


TOKENS = [
    b"diff --git a/x b/x\n", b"diff --git ", b"--- a/x\n", b"+++ b/x\n", b"--- /dev/null\n",
    b"+++ /dev/null\n", b"@@ -1 +1 @@\n", b"@@ -1,2 +1,3 @@ def f\n", b"@@ -0,0 +1 @@\n", b"-a\n",
    b"+b\n", b" c\n", b"\n", b"\r\n", b"\\ No newline\n", b"index 123..456 100644\n",
    b"old mode 100644\n", b"new mode 100755\n",
    b"new file mode 100644\n", b"deleted file mode 100644\n", b"rename from x\n", b"rename to y\n",
    b"copy from x\n", b"copy to y\n", b"similarity index 100%\n", b"GIT binary patch\n",
    b"literal 1\nIcmZPo000310RR91\n\n", b"delta 3\n", b"-- \n", b"-- ", b"\xff", b"\0", b'"',
    b"Binary files a and b differ\n", b"*** x\n", b"***************\n", b"From: x\n", b" ", b"\\",
]  # fmt: skip


@settings(max_examples=400)
@given(st.lists(st.sampled_from(TOKENS), max_size=14).map(b"".join))
def test_parts_of_patches_in_any_order_are_refused_or_read(data: bytes) -> None:
    _never_breaks(data)


@settings(max_examples=300)
@given(st.data())
def test_damaged_patches_are_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(
        (MAIL + BINARY + GIT.replace("x\n", "y\n", 1) + PLAIN + "\\ No newline\n").encode()
    )
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                whole[at] = data.draw(st.integers(0, 255))
            case 1:
                del whole[at : at + data.draw(st.integers(1, 40))]
            case 2:
                whole[at:at] = data.draw(st.sampled_from(TOKENS))
            case _:
                whole[at:at] = whole[at : at + data.draw(st.integers(1, 80))]
    _never_breaks(bytes(whole))


def _never_breaks(data: bytes) -> None:
    patch = outcome(data)
    if isinstance(patch, PatchSyntaxError):
        assert 1 <= (patch.line or 0) <= data.count(b"\n") + 1
        return
    assert patch.files
    lines = io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")).readlines()
    for file in patch.files:
        for part in file.hunks:
            # The body is what stands in the patch, marks aside.
            stands = lines[part.line : part.line + len(part.signs)]
            for shown, line in zip(body(part), stands, strict=True):
                if line[:1] != b"\\":
                    assert shown == line
            assert part.leading + part.trailing < len(part.signs)
            assert all(line.endswith(b"\n") for line in (*part.old[:-1], *part.new[:-1]))


# -- headers and bodies at their ends -----------------------------------------------------------


@pytest.mark.parametrize(
    ("tail", "line"),
    [
        ("--- a/y\n+++ b/y\n", 8),
        ("diff -u old/y new/y\n--- a/y\n", 9),
        ("Index: y\n--- a/y\n", 9),
        ("Index: y\n===================\n--- a/y\n", 10),
    ],
)
def test_a_header_that_nothing_follows(tail: str, line: int) -> None:
    error = refused(PLAIN + "\n" + tail)
    assert error.message == "the patch ends in a file header: it is cut off"
    assert error.line == line


@pytest.mark.parametrize("tail", ["--- the end\n", "prose\n--- the end\n"])
def test_a_last_line_of_prose_is_no_header(tail: str) -> None:
    assert len(read(f"{PLAIN}\nThanks.\n{tail}").files) == 1


def test_a_blank_line_of_a_crlf_hunk_is_context() -> None:
    body = "@@ -1,3 +1,3 @@\r\n a\r\n\r\n-b\r\n+c\r\n"
    (found,) = only(f"--- a/x\n+++ b/x\n{body}").hunks
    assert found.old == (b"a\r\n", b"\r\n", b"b\r\n")
    error = refused(f"--- a/x\n+++ b/x\n{body.replace('@@' + chr(13), '@@')}")
    assert error.message.startswith("a line inside a hunk that begins with none of")
    assert error.line == 5


@pytest.mark.parametrize(
    "body",
    [
        "-a\n\\ No newline at end of file\n-b\n+c\n",
        "-a\n+b\n\\ No newline at end of file\n+c\n",
        " a\n\\ No newline at end of file\n-b\n",
        " a\n\\ No newline at end of file\n+b\n",
    ],
)
def test_a_mark_before_the_last_line_of_its_side(body: str) -> None:
    old, new = (sum(line[0] in f" {sign}" for line in body.splitlines()) for sign in "-+")
    error = refused(f"--- a/x\n+++ b/x\n@@ -1,{old} +1,{new} @@\n{body}")
    assert error.message == "a 'no newline' mark before the last line of its side"
    assert error.line == 3 + 1 + body.splitlines().index("\\ No newline at end of file")


@pytest.mark.parametrize(
    "body", ["-a\n\\ No\n+b\n\\ No\n", "+b\n\\ No\n-a\n", " a\n-b\n+c\n\\ No\n"]
)
def test_a_mark_at_the_last_line_of_its_side(body: str) -> None:
    old, new = (sum(line[0] in f" {sign}" for line in body.splitlines()) for sign in "-+")
    assert read(f"--- a/x\n+++ b/x\n@@ -1,{old} +1,{new} @@\n{body}").files


def test_a_deleted_file_has_one_hunk() -> None:
    two = "@@ -1 +0,0 @@\n-a\n@@ -5 +0,0 @@\n-b\n"
    error = refused(f"--- a/x\n+++ /dev/null\n{two}")
    assert error.message == "a deleted file with lines that stay"


def test_binary_lines_of_every_length(tmp_path: Path) -> None:
    """The first letter of a line is its length: A to Z and a to z, up to 52 bytes."""
    tools = Tools(tmp_path)
    patch = b""
    for size in (*range(1, 60), 103, 104, 105):
        data = hashlib.sha512(b"%d" % size).digest() * 2
        new = b"\0" + data[: size - 1]
        patch = tools.git_diff({}, {"x": text(new)}, "--binary")
        (first, _) = only(patch).binary or (None, None)
        assert first is not None
        assert first.data == new
    broken = patch.replace(b"literal 105\nz", b"literal 105\nM")
    assert broken != patch
    assert refused(broken).message == "a damaged line of a binary patch"
