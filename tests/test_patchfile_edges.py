"""The reader at its edges: what one character, line or name more or less makes of a patch."""

from __future__ import annotations

import base64
import tracemalloc
import zlib

import pytest

from patchkit import patchfile
from patchkit.errors import PatchSyntaxError
from patchkit.model import FilePatch
from patchkit.patchfile import dep3_fields, parse

HUNK = "@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
PLAIN = f"--- a/x\n+++ b/x\n{HUNK}"
MODE = "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"
BINARY = f"diff --git a/x b/x\nindex {'1' * 40}..{'2' * 40}\nGIT binary patch\n"
NUL = "IcmZPo000310RR91"  # a NUL byte, deflated, in git's base 85


def read(data: str | bytes) -> tuple[FilePatch, ...]:
    return parse(data.encode() if isinstance(data, str) else data, "demo.patch").files


def refused(data: str | bytes) -> PatchSyntaxError:
    with pytest.raises(PatchSyntaxError) as caught:
        read(data)
    error = caught.value
    assert error.message
    assert error.hint
    assert error.line is not None
    return error


# -- prose and the ends of what is read --------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        (" indented\nBug: 1\n", [("Bug", "1")]),
        ("Bug: 1\n\tmore\n", [("Bug", "1\nmore")]),
        ("Origin: X11 for X\n", [("Origin", "X11 for X")]),
        ("Bug: 1\r\n---\r\nBug: 2\r\n", [("Bug", "1")]),
        ("Bug: 1\n--- \nBug: 2\n", [("Bug", "1"), ("Bug", "2")]),
    ],
)
def test_lines_of_a_dep3_header(head: str, fields: list[tuple[str, str]]) -> None:
    assert list(dep3_fields(head.encode())) == fields


def test_the_head_of_a_patch_is_no_longer_for_being_long() -> None:
    head = "Author: A\n" + "prose\n" * 30_000
    patch = parse(f"{head}{PLAIN}\nOrigin: vendor\n".encode(), "demo.patch")
    assert patch.dep3 == (("Author", "A"),) and patch.files[0].line == 30_002


@pytest.mark.parametrize(
    "prose",
    [
        "* one\ntwo\n*******\n",
        "*** one\ntwo\n",
        "*** one\n--- two\n",
        "- one\n+++ two\n",
        "Index: y\n--- one\ntwo\nthree\n",
        "one\n--- two\n",
        "prose\n--- one\n+++ two\nthree\n",
        "@@ one\n",
        f"Gone\nliteral 1\n{NUL}\n",
        f"prose\nGIT binary patch\ntwo\n{NUL}\n",
        f"prose\nGIT binary patch\nliteral 1\n{NUL} \n",
        "prose\nGIT binary patch\nliteral 1\nthree\n",
        "prose\nGIT binary patch\nliteral 1\n",
    ],
)
def test_prose_that_looks_like_a_header_in_part(prose: str) -> None:
    assert len(read(MODE + prose)) == 1


def test_a_header_of_git_that_ends_inside_its_last_line() -> None:
    for head in (MODE, MODE + "similarity index 90%\n", "diff --git a/x b/x\n--- a/x\n"):
        error = refused(MODE + head[:-1])
        assert (error.line, error.message) == (
            4,
            "the patch ends inside a file header: it is cut off",
        )
    assert len(read(MODE + "prose\nmore")) == 1


@pytest.mark.parametrize("line", ["diff -u x y", "Index: y", "=====", "=" * 67])
def test_one_line_of_a_header_that_began(line: str) -> None:
    error = refused(f"{MODE}{line}\n--- a/y\n")
    assert (error.line, error.message) == (5, "the patch ends in a file header: it is cut off")


@pytest.mark.parametrize("line", ["-- ", "--", "-- \t\nprose", "--X\nprose", "-- X\nprose"])
def test_what_is_no_signature_is_a_line_that_no_hunk_counts(line: str) -> None:
    error = refused(f"{PLAIN}{line}\n")
    assert (error.line, error.message) == (7, "a line that no hunk counts")
    assert error.detail == (f"  {line.splitlines()[0]}",)


def test_a_hunk_that_nothing_precedes_or_follows() -> None:
    error = refused("prose\n@@ -1,2 +1,2 @@\nprose\n")
    assert (error.line, error.message) == (2, "a hunk without a file header before it")
    assert refused("prose\n@@ -x\nprose\n").message.startswith("no patch in it")


def test_a_hunk_without_a_header_beside_a_file() -> None:
    hunk = "@@ -1 +1 @@\n-a\nprose\n"
    assert refused(hunk + PLAIN).line == 1
    assert len(read("@@ -1 +1 @@\nprose\n" + PLAIN)) == 1
    error = refused(MODE + "prose\n@@ -1 +1 @@\nprose\n")
    assert (error.line, error.message) == (5, "a hunk without a file header before it")


@pytest.mark.parametrize(("before", "line"), [("--- a/x\n+++ b/x\n", 3), (PLAIN, 7)])
def test_a_hunk_header_that_is_none(before: str, line: int) -> None:
    error = refused(f"{before}@@ one\n-a\n+b\n")
    assert (error.line, error.message) == (line, "a hunk header that is not understood")
    assert error.detail == ("  @@ one",)


@pytest.mark.parametrize(
    ("behind", "shown"),
    [("\tone\n", "\tone"), ("one\n+two\n", "one"), ("one\n two\n", "one")],
)
def test_a_line_that_lost_its_blank_behind_a_hunk(behind: str, shown: str) -> None:
    error = refused(PLAIN + behind)
    assert (error.line, error.message) == (7, "a line that no hunk counts")
    assert error.detail == (f"  {shown}",)
    assert "lost its leading blank" in (error.hint or "")


@pytest.mark.parametrize(
    "behind", ["one\n\n+two\n", "\none\n+two\n", "one\ntwo\n+three\n", "one\n\ttwo\n"]
)
def test_prose_behind_a_hunk(behind: str) -> None:
    assert len(read(PLAIN + behind)) == 1


@pytest.mark.parametrize("mark", ['"X y"', "X;", "X"])
def test_the_lines_around_the_parts_of_a_mail(mark: str) -> None:
    line = "--" + mark.strip('";')
    parts = f"{PLAIN}{line}\n+prose\n{PLAIN}{line}--\n"
    head = f"Content-Type: multipart/mixed; boundary={mark}\n\n"
    assert len(read(head + parts)) == 2
    error = refused(head + PLAIN + line + "-\n")
    assert (error.line, error.message) == (9, "a line that no hunk counts")
    assert refused(parts).line == 7


@pytest.mark.parametrize("header", ["Content-Transfer-Encoding", "content-transfer-encoding"])
@pytest.mark.parametrize("code", ["base64", "Quoted-Printable"])
def test_mails_whose_text_is_encoded(header: str, code: str) -> None:
    error = refused(f"Cc: one\n{header}: {code}\n\n{PLAIN}")
    assert (error.line, error.message) == (2, f"a mail whose text is encoded ({code.lower()})")
    assert "git mailinfo" in (error.hint or "")
    assert len(read(f"Cc: one\n{header}: 8bit\n\n{PLAIN}")) == 1


def test_a_submodule_as_git_logs_it() -> None:
    error = refused(f"{PLAIN}\nSubmodule one 1234567..89abcde: \n  > two\n")
    assert (error.line, error.message[:18]) == (8, "a submodule change")
    assert len(read(f"{PLAIN}\nA Submodule one 1234567..89abcde:\n")) == 1


def test_files_know_the_mail_that_they_stand_in() -> None:
    mail = f"From {'1' * 40} Mon Sep 17 00:00:00 2001\nSubject: x\n\n"
    git = f"diff --git a/x b/x\n{PLAIN}-- \n2.45.1\n\n"
    files = read(MODE + mail + git + git + mail + PLAIN + "\n" + mail + git)
    assert [file.part for file in files] == [0, 1, 1, 2, 3]


def test_a_line_of_git_log_right_before_a_diff_begins_a_part() -> None:
    git = f"diff --git a/x b/x\n{PLAIN}"
    files = read(f"1234567 one\n{git}89abcde two\n{git}fedcba9 three\nprose\n{git}")
    assert [file.part for file in files] == [1, 2, 2]


# -- what is shown -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"-one  ", "-one  "),
        (b"-oneX", "-oneX"),
        (b"-a\tb\x07\xff", "-a\tb\\x07\ufffd"),
        (b"-" + b"x" * 119, "-" + "x" * 119),
        (b"-" + b"x" * 120, "-" + "x" * 116 + "..."),
    ],
)
def test_the_line_in_question_as_it_can_be_shown(line: bytes, shown: str) -> None:
    assert refused(PLAIN.encode() + line + b"\n").detail == (f"  {shown}",)


@pytest.mark.parametrize(
    ("data", "line", "shown"),
    [
        ("--- a/x\n+++ b/x\n@@ -1,3 +1 @@\n-a\nprose\n", 5, "prose"),
        ("--- a/x\n+++ b/x\n@@ -1 +1,3 @@\n-a\n-b\n", 5, "-b"),
        ("--- a/x\n+++ b/x\n@@ -1 +1,x @@\n-a\n+b\n", 3, "@@ -1 +1,x @@"),
    ],
)
def test_broken_hunks_are_shown(data: str, line: int, shown: str) -> None:
    error = refused(data)
    assert (error.line, error.detail) == (line, (f"  {shown}",))


# -- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a/fooX", "a/fooX"),
        ("Xa/foo", "Xa/foo"),
        ('a/x" y', 'a/x" y'),
        ('" x', '" x'),
        ('"', '"'),
        ("a/x\tone\ttwo", "a/x"),
        ("a/x\f", "a/x\f"),
        ("a/x  \tone", "a/x  "),
        ("/dev/nullX", "/dev/nullX"),
        ("/dev/null/x", "/dev/null/x"),
        ("a/x  ", "a/x"),
        ('"a/x" 2026-01-01 00:00:00 +0000', "a/x"),
        ('"a/x"y', '"a/x"y'),
    ],
)
def test_where_the_name_in_a_header_line_ends(text: str, name: str) -> None:
    (file,) = read(f"--- {text}\n+++ {text}\n{HUNK}")
    assert (file.old_path, file.new_path) == (name, name)


def test_where_the_name_in_a_header_line_of_git_ends() -> None:
    head = "diff --git a/x b/x\n"
    (file,) = read(f"{head}--- a/x\tone\ttwo\n+++ b/x\tone\ttwo\n{HUNK}")
    assert (file.old_path, file.new_path) == ("a/x", "b/x")


@pytest.mark.parametrize("name", ['"x', 'x"', '"', "x"])
def test_a_name_that_is_quoted_on_both_sides_or_not_at_all(name: str) -> None:
    (file,) = read(f"diff --git a/p b/z\nrename from {name}\nrename to z\n")
    assert (file.old_path, file.new_path) == (f"a/{name}", "b/z")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ('diff --git a/p b/z\nrename from "a\\"\nrename to z\n', 2),
        ('diff --git "a/\\q" "b/\\q"\nold mode 100644\nnew mode 100755\n', 2),
        (f'--- "a/\\q"\n+++ "b/\\q"\n{HUNK}', 2),
        (f'diff --git a/x b/x\nindex 1..2\n--- "a/\\q"\n+++ "b/\\q"\n{HUNK}', 4),
    ],
)
def test_an_escape_that_git_does_not_make_has_a_line(data: str, line: int) -> None:
    error = refused("prose\n" + data)
    assert (error.line, error.message[:34]) == (line, "an escape that git does not make, ")


@pytest.mark.parametrize("kind", ["rename", "copy"])
def test_names_of_a_move_are_those_of_its_lines(kind: str) -> None:
    head = f"diff --git a/x b/y\n{kind} from x\n{kind} to y\n"
    (file,) = read(f"{head}--- a/x\n+++ b/y\n{HUNK}")
    assert (file.change, file.old_path, file.new_path) == (kind, "a/x", "b/y")
    for names in ("--- c/x\n+++ d/y\n", "--- a/x\n+++ d/y\n", "--- a/z\n+++ b/y\n"):
        assert f"the '{kind}' lines name a/x and b/y" in refused(head + names + HUNK).message
    assert "/dev/null in a file that is" in refused(f"{head}--- /dev/null\n+++ b/y\n{HUNK}").message


def test_the_folder_of_a_name_counts() -> None:
    data = f"diff --git a/p/x b/p/x\n--- a/q/x\n+++ b/q/x\n{HUNK}"
    assert refused(data).message == "the '---' line names a/q/x, the lines before it a/p/x"
    data = f"diff --git a/p/x b/p/x\n--- a/p/x\n+++ b/q/x\n{HUNK}"
    assert refused(data).message == "the '+++' line names b/q/x, the lines before it b/p/x"
    (file,) = read(f"diff --git x x\n--- x\n+++ x\n{HUNK}")
    assert (file.old_path, file.new_path) == ("x", "x")


@pytest.mark.parametrize("stamp", ["1970-01-01 00:00:00 +0000\t", "1970-01-01 00:00:00 +0000 "])
def test_blanks_behind_the_epoch(stamp: str) -> None:
    (file,) = read(f"--- a/x\t{stamp}\n+++ b/x\t2026-01-01 00:00:00 +0000\n@@ -0,0 +1 @@\n+a\n")
    assert file.change == "add"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a/x 2021-01-01 00:00:00 2024-01-02 03:04:05 +0000", "a/x 2021-01-01 00:00:00"),
        ("a/x\ty\t2024-01-02 03:04:05 +0000", "a/x\ty"),
        ("a/x  2024-01-02 03:04:05 +0000", "a/x"),
        ("a/X 2024-01-02 03:04:05 +0000", "a/X"),
        ("a/x\f 2024-01-02 03:04:05 +0000", "a/x\f"),
    ],
)
def test_a_time_behind_a_name(text: str, name: str) -> None:
    (file,) = read(f"--- {text}\n+++ {text}\n{HUNK}")
    assert (file.old_path, file.new_path) == (name, name)


def test_the_epoch_counts_behind_a_tab_alone() -> None:
    now, epoch = "2026-01-01 00:00:00 +0000", "1970-01-01 00:00:00 +0000"
    for between, change in ((" ", "modify"), ("\t", "add"), ("\ty\t", "add")):
        (file,) = read(f"--- a/x{between}{epoch}\n+++ b/x\t{now}\n@@ -0,0 +1 @@\n+a\n")
        assert file.change == change


def test_a_time_in_a_header_line_of_git_is_part_of_the_name() -> None:
    name = "x 2021-01-01 00:00:00"
    (file,) = read(f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n{HUNK}")
    assert (file.old_path, file.new_path) == (f"a/{name}", f"b/{name}")


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        ("x/X y/X", "x/X", "y/X"),
        ('a/x" b/x"', 'a/x"', 'b/x"'),
        ('a/x "y b/x "y', 'a/x "y', 'b/x "y'),
        ("a/f my dir/f", "a/f", "my dir/f"),
    ],
)
def test_names_of_the_diff_line(line: str, old: str, new: str) -> None:
    (file,) = read(f"diff --git {line}\nold mode 100644\nnew mode 100755\n")
    assert (file.old_path, file.new_path) == (old, new)


@pytest.mark.parametrize(
    ("line", "source", "target", "old", "new"),
    [
        ('"i/\\303\\274" "w/y"', '"\\303\\274"', "y", "i/ü", "w/y"),
        ('i/x "w/\\303\\274"', "x", '"\\303\\274"', "i/x", "w/ü"),
        ('"\\303\\274" Xy', '"\\303\\274"', "Xy", "ü", "Xy"),
        ("p q r", "p q", "r", "p q", "r"),
        ("one two three", "p", "q", "a/p", "b/q"),
    ],
)
def test_prefixes_of_the_names_of_a_move(
    line: str, source: str, target: str, old: str, new: str
) -> None:
    head = f"diff --git {line}\nrename from {source}\nrename to {target}\n"
    (file,) = read(head)
    assert (file.old_path, file.new_path) == (old, new)
    names = [name if '"' in line else f"{name}\t" for name in (old, new)]
    (file,) = read(f"{head}--- {names[0]}\n+++ {names[1]}\n{HUNK}")
    assert (file.old_path, file.new_path, file.binary) == (old, new, None)


def test_a_diff_line_that_cannot_be_split_is_made_up_for_by_the_names_below_it() -> None:
    head = "diff --git one two three\n"
    (file,) = read(f"{head}--- a/x\n+++ b/x\n{HUNK}")
    assert (file.change, file.old_path, file.new_path) == ("modify", "a/x", "b/x")
    (file,) = read(f"{head}--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n")
    assert (file.change, file.old_path, file.new_path) == ("add", None, "b/x")
    (file,) = read(f"{head}--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n")
    assert (file.change, file.old_path, file.new_path) == ("delete", "a/x", None)


def test_the_lines_right_above_the_hunks_say_the_prefixes() -> None:
    (file,) = read(f"diff --git a/f b/f\n--- c/f\n+++ d/f\n{HUNK}")
    assert (file.old_path, file.new_path) == ("c/f", "d/f")


@pytest.mark.parametrize("mode", ["", "new file mode 100644\n", "deleted file mode 100644\n"])
def test_a_file_of_git_that_is_neither_before_nor_after(mode: str) -> None:
    for hunk in ("@@ -0,0 +1 @@\n+a\n", "@@ -1 +0,0 @@\n-a\n"):
        error = refused(f"prose\ndiff --git a/x b/x\n{mode}--- /dev/null\n+++ /dev/null\n{hunk}")
        assert (error.line, error.message) == (2, "a file that is neither before nor after")


def test_a_header_of_git_without_a_name_or_a_hunk() -> None:
    for names in ("--- \n+++ b/x\n", "--- a/x\n+++ \n"):
        error = refused(f"prose\ndiff --git a/x b/x\n{names}{HUNK}")
        assert (error.line, error.message) == (3, "a file header without a name")
        error = refused(f"prose\n{names}{HUNK}")
        assert (error.line, error.message) == (2, "a file header without a name")
    error = refused("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ one\n-a\n")
    assert (error.line, error.detail) == (4, ("  @@ one",))


# -- modes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o100600, 0o100777, 0o100001])
def test_modes_of_files_that_git_would_not_write(mode: int) -> None:
    (file,) = read(f"diff --git a/x b/x\nnew file mode {mode:o}\n")
    assert (file.old_mode, file.new_mode) == (None, mode)


def test_a_mode_of_nothing_that_git_keeps() -> None:
    for key in ("new file mode", "deleted file mode", "old mode", "new mode"):
        other = "old mode 100644\n" if key == "new mode" else ""
        for mode in ("rwx", "040000", "160000", "020644"):
            error = refused(f"prose\ndiff --git a/x b/x\n{other}{key} {mode}\n")
            assert error.line == 2
            assert "mode" in error.message or "a submodule change" in error.message


def test_the_index_line_of_a_new_file_says_no_old_mode() -> None:
    head = "diff --git a/x b/x\nnew file mode 100644\nindex 0000000..1234567 100644\n"
    (file,) = read(f"{head}--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n")
    assert (file.old_mode, file.new_mode) == (None, 0o100644)


# -- files without hunks -----------------------------------------------------------------------


def test_blob_ids_that_say_that_nothing_is_missing() -> None:
    same, other = "index 1234567..1234567 100644\n", "index 1234567..89abcde 100644\n"
    move = "diff --git a/x b/y\nrename from x\nrename to y\n"
    for head in (MODE, move):
        assert len(read(head)) == 1
        assert len(read(head + same)) == 1
        assert "no hunk" in refused(head + other).message
    similar = "similarity index {}%\n"
    assert len(read(move + similar.format(100))) == 1
    assert "no hunk" in refused(move + similar.format(99)).message


def test_a_symlink_without_its_target() -> None:
    for word in ("new", "deleted"):
        head = f"diff --git a/x b/x\n{word} file mode "
        assert len(read(f"{head}100644\n")) == 1
        error = refused(f"prose\n{head}120000\n")
        assert error.line == 2 and "no hunk" in error.message


def test_an_empty_file_without_an_index_line_stands_before_something() -> None:
    other = f"diff --git a/y b/y\nindex 1..2\n--- a/y\n+++ b/y\n{HUNK}"
    head = "diff --git a/x b/x\nnew file mode 100644\n"
    assert len(read(f"{other}{head}prose\n")) == 2
    assert "no hunk" in refused(other + head).message


def test_what_git_can_leave_out_of_a_file_that_goes() -> None:
    head = "diff --git a/x b/x\n{} file mode 100644\nindex 1234567..89abcde\n"
    assert "--irreversible-delete" in refused(head.format("deleted")).message
    assert "--irreversible-delete" not in refused(head.format("new")).message


# -- hunks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "stands"),
    [
        ("@@ -3 +2 @@\n-c\n+C\n", False),
        ("@@ -4 +3 @@\n-d\n+D\n", True),
        ("@@ -2,0 +2 @@\n+d\n", False),
        ("@@ -3,0 +3 @@\n+d\n", True),
        ("@@ -3,0 +3 @@\n+d\n@@ -4 +4 @@\n-d\n+D\n", True),
    ],
)
def test_a_hunk_begins_behind_the_one_above_it(second: str, stands: bool) -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1,3 +1,2 @@\n a\n b\n-c\n" + second
    if stands:
        assert len(read(patch)[0].hunks) == 1 + second.count("@@ -")
    else:
        error = refused(patch)
        assert (error.line, error.message) == (7, "hunks that overlap or stand out of order")


def test_lines_that_are_counted_from_0() -> None:
    (hunk,) = read("--- a/x\n+++ b/x\n@@ -0 +0 @@\n-a\n+b\n")[0].hunks
    assert (hunk.old_start, hunk.new_start) == (1, 1)
    (hunk,) = read("--- a/x\n+++ b/x\n@@ -0,0 +0 @@\n+b\n")[0].hunks
    assert (hunk.old_start, hunk.new_start) == (0, 1)


def test_a_hunk_that_changes_nothing() -> None:
    for line, hint in ((" one", False), (" one [-two-]{+three+}", True)):
        error = refused(f"prose\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n{line}\n end\n")
        assert (error.line, error.message) == (4, "a hunk that changes nothing")
        assert ("--word-diff" in (error.hint or "")) == hint


def test_what_to_do_with_a_line_that_should_not_be_there() -> None:
    error = refused(f"{PLAIN}\n@@ -5 +5 @@\n-a\n+b\n")
    assert error.line == 7 and "take it out" in (error.hint or "")
    error = refused(PLAIN[:-1])
    assert error.line == 6 and "took the last line end away" in (error.hint or "")


def test_a_patch_that_is_coloured_for_a_terminal() -> None:
    assert len(read(f"{MODE}\n\x1b[31mprose\n")) == 1
    error = refused(f"{MODE}\n\x1b[1mdiff --git a/y b/y\x1b[m\n")
    assert (error.line, error.message) == (5, "the patch is coloured for a terminal")
    assert error.detail == ("  \\x1b[1mdiff --git a/y b/y\\x1b[m",)
    assert "--no-color" in (error.hint or "")


def test_a_name_in_quotes_that_says_absent() -> None:
    (file,) = read('--- "/dev/null"\n+++ b/x\n@@ -0,0 +1 @@\n+a\n')
    assert (file.change, file.old_path, file.new_path) == ("add", None, "b/x")


# -- lines of hunks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("<a", "other signs than"),
        ("Xa", "a mailer wrapped a line"),
        ("\ta", "lost its leading blank"),
        ("[-a-]{+b+}", "--word-diff"),
    ],
)
def test_what_a_line_without_a_sign_may_be(line: str, hint: str) -> None:
    error = refused(f"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n-a\n{line}\n")
    assert error.line == 5 and hint in (error.hint or "")


def test_counts_that_are_too_low_can_be_mended() -> None:
    error = refused("--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n-b\n+c\n")
    assert (error.line, error.message) == (5, "a hunk with more lines than its header counts")
    assert "lint --fix" in (error.hint or "")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("-a\n+\n\\ No\n", 6),
        ("-\n\\ No\n+a\n", 5),
        ("-a\n+b\n-\n+\n\\ No\n", 8),
    ],
)
def test_a_mark_behind_a_line_without_anything(body: str, line: int) -> None:
    old, new = body.count("-"), body.count("+")
    error = refused(f"--- a/x\n+++ b/x\n@@ -1,{old} +1,{new} @@\n{body}")
    assert error.line == line
    assert error.message == "a 'no newline' mark behind an empty line, which is then no line"


def test_every_mark_needs_a_line() -> None:
    error = refused("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No\n\\ No\n+b\n\\ No\n")
    assert (error.line, error.message) == (6, "a 'no newline' mark with no line before it")


# -- what is no patch --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n1d\n", "an ed script"),
        ("\r\n3d\n1d\n", "an ed script"),
        ("X\n1d\n", "no patch in it"),
        (" diff --git a/x b/x\n", "the patch is quoted"),
        ("prose\n" * 199 + "M\tx", "a list of the files"),
        ("prose\n" * 200 + "M\tx", "no patch in it"),
        ("x" * 19_996 + "\nM\tx", "a list of the files"),
        ("x" * 19_997 + "\nM\tx", "no patch in it"),
        ("\n \n", "the patch is empty"),
    ],
)
def test_what_a_file_is_that_is_no_patch(text: str, message: str) -> None:
    error = refused(text)
    assert error.line == 1 and error.message.startswith(message)


# -- binary ------------------------------------------------------------------------------------


def test_a_binary_patch_of_the_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"{BINARY}literal 1\n{NUL}\n\n"
    monkeypatch.setattr(patchfile, "MAX_BINARY", 1)
    (file,) = read(data)
    assert file.binary is not None
    assert file.binary[0].data == b"\0"
    monkeypatch.setattr(patchfile, "MAX_BINARY", 0)
    error = refused(data)
    assert (error.line, error.message) == (4, "a binary patch of 1 bytes; the limit is 0")


def test_a_binary_patch_without_an_index_line() -> None:
    (file,) = read(f"diff --git a/x b/x\nGIT binary patch\nliteral 1\n{NUL}\n\n")
    assert file.binary is not None and (file.old_path, file.new_path) == ("a/x", "b/x")
    error = refused("diff --git a/x b/x\nBinary files a/x and b/x differ")
    assert (error.line, error.message[:20]) == (2, "'Binary files differ")


def test_the_shortest_line_of_a_binary_patch_without_a_file() -> None:
    error = refused(f"{MODE}\nGIT binary patch\nliteral 1\nA0000X\n\n")
    assert (error.line, error.message[:14]) == (5, "a binary patch")
    assert "the lines that name its file are missing" in (error.hint or "")


def test_both_halves_of_a_binary_patch_count(monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"{BINARY}literal 1\n{NUL}\n\nliteral 1\n{NUL}\n\n"
    monkeypatch.setattr(patchfile, "MAX_BINARY", 2)
    assert len(read(data)) == 1
    monkeypatch.setattr(patchfile, "MAX_BINARY", 1)
    error = refused(data)
    assert (error.line, error.message) == (7, "a binary patch of 2 bytes; the limit is 1")
    assert "leave it out" in (error.hint or "")


def test_no_more_is_inflated_than_a_binary_patch_announces() -> None:
    packed = zlib.compress(bytes(4 * 1024**2))
    lines = [packed[at : at + 52] for at in range(0, len(packed) // 52 * 52, 52)]
    body = "".join(f"z{base64.b85encode(line).decode()}\n" for line in lines)
    data = f"{BINARY}literal 1\n{body}\n"
    tracemalloc.start()
    try:
        assert "does not hold" in refused(data).message
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1024**2


def test_letters_alone_say_how_long_a_line_of_a_binary_patch_is() -> None:
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    for first in range(33, 127):
        if first in letters:
            continue
        for groups in {1, max((first - 61) // 4, 1), max((first - 67) // 4, 1)}:
            line = chr(first) + "00000" * groups
            error = refused(f"{BINARY}literal 1\n{line}\n\n")
            assert (error.line, error.message) == (5, "a damaged line of a binary patch")


@pytest.mark.parametrize("line", [NUL + " ", "!", "D(((((", "D((((", "D((((,", "@", "[", "`", "{"])
def test_damaged_lines_of_a_binary_patch(line: str) -> None:
    line = line if line != "D(((((" else "D(((( "
    error = refused(f"{BINARY}literal 1\n{line}\n\n")
    assert (error.line, error.message) == (5, "a damaged line of a binary patch")
