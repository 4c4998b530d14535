"""Promise 3: never in the wrong place, never in part.

All context and removed lines match byte for byte; another line is taken only where it is the
single match, or where the hunk's heading singles it out; never in another def or class; surplus
lines are an error.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests import releases
from tests.conftest import Result
from tests.support.lab import STATE, Lab, Site
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)

PATH = "pkg/mod.py"
BLOCK = "    lock()\n    value = read()\n    unlock()\n    return value\n"
NEW = BLOCK.replace("value = read()", "value = read(2)")


def hunk(
    old: str, new: str, *, at: int, heading: str = "", counts: tuple[int, int] | None = None
) -> str:
    """One hunk that replaces lines, with the lines around them as context."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = 0
    while before[head] == after[head]:
        head += 1
    tail = 0
    while before[-1 - tail] == after[-1 - tail]:
        tail += 1
    end = len(before) - tail
    lines = [f" {line}" for line in before[:head]]
    lines += [f"-{line}" for line in before[head:end]]
    lines += [f"+{line}" for line in after[head : len(after) - tail]]
    lines += [f" {line}" for line in before[end:]]
    old_count, new_count = counts or (len(before), len(after))
    return f"@@ -{at},{old_count} +{at},{new_count} @@ {heading}".rstrip() + "\n" + "".join(lines)


def patch(*hunks: str) -> bytes:
    return (f"--- a/{PATH}\n+++ b/{PATH}\n" + "".join(hunks)).encode()


def site_with(lab: Lab, text: str | bytes) -> Site:
    return lab.site(Dist("pkg", "1.0", {"pkg/__init__.py": "", PATH: text}))


def apply(lab: Lab, text: str | bytes, *hunks: str, check: int = 0) -> tuple[Site, Any]:
    """Apply hunks to a file of that text; the site, and the JSON answer."""
    site = site_with(lab, text)
    lab.bundle("b", {"pkg": patch(*hunks)})
    before = site.picture()
    answer = lab.json(site, "apply", "b", check=check)
    if check:
        assert site.differences(before) == []
    return site, answer


def refusal(lab: Lab, text: str | bytes, *hunks: str) -> tuple[Any, Result]:
    """The error of a refused apply, as JSON and as text; nothing may have changed."""
    site, answer = apply(lab, text, *hunks, check=3)
    result = lab.run(site, "apply", "b", check=3)
    assert "b/pkg-0001.patch" in result.stderr
    return answer["error"], result


def hunks_of(answer: Any) -> list[tuple[int, int]]:
    (file,) = answer["files"]
    return [(entry["line"], entry["offset"]) for entry in file["hunks"]]


def function(name: str, body: str = BLOCK) -> str:
    return f"def {name}():\n{body}\n\n"


FILLER = "".join(f"x{number} = {number}\n" for number in range(10)) + "\n\n"


# --- the place ---------------------------------------------------------------------------


def test_the_exact_place(lab: Lab) -> None:
    site, answer = apply(lab, function("first"), hunk(BLOCK, NEW, at=2, heading="def first():"))
    assert site.text(PATH) == function("first", NEW)
    assert hunks_of(answer) == [(2, 0)]


def test_a_single_match_elsewhere_is_taken_and_reported(lab: Lab) -> None:
    text = FILLER + function("first")
    site, answer = apply(lab, text, hunk(BLOCK, NEW, at=2, heading="def first():"))
    assert site.text(PATH) == FILLER + function("first", NEW)
    assert hunks_of(answer) == [(14, 12)]


def test_an_offset_backwards(lab: Lab) -> None:
    site, answer = apply(lab, function("first"), hunk(BLOCK, NEW, at=90, heading="def first():"))
    assert site.text(PATH) == function("first", NEW)
    assert hunks_of(answer) == [(2, -88)]


def test_an_offset_is_said_in_the_text_too(lab: Lab) -> None:
    site = site_with(lab, FILLER + function("first"))
    lab.bundle("b", {"pkg": patch(hunk(BLOCK, NEW, at=2, heading="def first():"))})
    result = lab.run(site, "apply", "b")
    said = result.stdout + result.stderr
    assert "offset" in said and "12" in said and PATH in said


def test_the_exact_place_counts_among_equal_blocks(lab: Lab) -> None:
    """Equal text elsewhere is no doubt where the recorded line itself fits."""
    text = function("first") + function("second")
    site, answer = apply(lab, text, hunk(BLOCK, NEW, at=9, heading="def second():"))
    assert site.text(PATH) == function("first") + function("second", NEW)
    assert hunks_of(answer) == [(9, 0)]


def test_the_heading_singles_one_out(lab: Lab) -> None:
    text = FILLER + function("first") + function("second") + function("third")
    site, answer = apply(lab, text, hunk(BLOCK, NEW, at=9, heading="def second():"))
    expected = FILLER + function("first") + function("second", NEW) + function("third")
    assert site.text(PATH) == expected
    assert hunks_of(answer) == [(21, 12)]


def test_equal_blocks_without_a_heading_are_ambiguous(lab: Lab) -> None:
    text = FILLER + function("first") + function("second")
    error, result = refusal(lab, text, hunk(BLOCK, NEW, at=2))
    assert "ambiguous" in error["code"] or "ambiguous" in error["message"]
    for line in (14, 21):
        assert str(line) in result.stderr, "each candidate is named"
    assert error["file"] == PATH and error["hunk"] == 1


def test_equal_blocks_in_one_function_are_ambiguous(lab: Lab) -> None:
    body = BLOCK + "    a = 1\n" + BLOCK
    text = FILLER + function("first", body)
    error, result = refusal(lab, text, hunk(BLOCK, NEW, at=2, heading="def first():"))
    assert "ambiguous" in error["code"] or "ambiguous" in error["message"]
    assert "14" in result.stderr and "19" in result.stderr


def test_the_one_that_was_deleted_upstream(lab: Lab) -> None:
    """Two equal blocks, upstream deleted the first: git and patch change the other one."""
    text = function("first", "    pass\n") + function("second")
    error, result = refusal(lab, text, hunk(BLOCK, NEW, at=2, heading="def first():"))
    assert "first" in result.stderr and "second" in result.stderr
    assert error["file"] == PATH


def test_another_class_is_refused(lab: Lab) -> None:
    method = "".join(f"    {line}\n" for line in function("run").rstrip().splitlines())
    text = f"class Other:\n{method}\n\nclass Mine:\n    pass\n"
    old = "".join(f"    {line}\n" for line in BLOCK.splitlines())
    new = "".join(f"    {line}\n" for line in NEW.splitlines())
    error, result = refusal(lab, text, hunk(old, new, at=40, heading="class Mine:"))
    assert "Mine" in result.stderr
    assert "Other" in result.stderr or "def run" in result.stderr, result.stderr
    assert error["hunk"] == 1


def methods(*names: str, body: str = BLOCK, changed: str = "", new: str = NEW) -> str:
    out = []
    for name in names:
        lines = [f"def {name}(self):\n", *(new if name == changed else body).splitlines(True)]
        out += [f"    {line}" for line in lines] + ["\n"]
    return "".join(out)


@pytest.mark.parametrize(
    "heading", ["class Mine:", "def run(self):", "    def run(self):"], ids=["git", "py", "indent"]
)
def test_headings_as_git_and_its_python_driver_write_them(lab: Lab, heading: str) -> None:
    """By default git names the last line at the margin; with ``diff=python`` the method."""
    text = f"{FILLER}class Mine:\n{methods('run')}\n"
    old = "".join(f"    {line}\n" for line in BLOCK.splitlines())
    new = "".join(f"    {line}\n" for line in NEW.splitlines())
    site, answer = apply(lab, text, hunk(old, new, at=3, heading=heading))
    assert site.text(PATH) == f"{FILLER}class Mine:\n{methods('run', changed='run')}\n"
    assert hunks_of(answer) == [(15, 12)]


def test_a_method_of_the_python_driver_singles_one_out(lab: Lab) -> None:
    text = f"{FILLER}class Mine:\n{methods('run', 'walk', 'swim')}\n"
    old = "".join(f"    {line}\n" for line in BLOCK.splitlines())
    new = "".join(f"    {line}\n" for line in NEW.splitlines())
    site, _ = apply(lab, text, hunk(old, new, at=3, heading="def walk(self):"))
    expected = f"{FILLER}class Mine:\n{methods('run', 'walk', 'swim', changed='walk')}\n"
    assert site.text(PATH) == expected


def test_another_method_is_refused(lab: Lab) -> None:
    text = f"{FILLER}class Mine:\n{methods('walk')}\n"
    old = "".join(f"    {line}\n" for line in BLOCK.splitlines())
    new = "".join(f"    {line}\n" for line in NEW.splitlines())
    _, result = refusal(lab, text, hunk(old, new, at=3, heading="def run(self):"))
    assert "run" in result.stderr and "walk" in result.stderr


def test_a_heading_that_is_no_def_does_not_stop_a_single_match(lab: Lab) -> None:
    """Headings are any line at the margin (``import x``, ``TABLE = {``), not only names."""
    text = FILLER + "import thing\n\nTABLE = {\n    1: 'a',\n    2: 'b',\n    3: 'c',\n}\n"
    old, new = "    1: 'a',\n    2: 'b',\n    3: 'c',\n", "    1: 'a',\n    2: 'z',\n    3: 'c',\n"
    site, answer = apply(lab, text, hunk(old, new, at=4, heading="TABLE = {"))
    assert "2: 'z'" in site.text(PATH)
    assert hunks_of(answer) == [(16, 12)]


def test_a_heading_of_git_is_cut_at_eighty_characters(lab: Lab) -> None:
    name = "a_very_long_name_of_a_function_with_many_arguments"
    arguments = ", ".join(f"argument_number_{number}=None" for number in range(9))
    text = f"{FILLER}def {name}({arguments}):\n{BLOCK}\n"
    heading = f"def {name}({arguments}):"[:80]
    site, answer = apply(lab, text, hunk(BLOCK, NEW, at=2, heading=heading))
    assert NEW in site.text(PATH)
    assert hunks_of(answer) == [(14, 12)]


def test_hunks_are_placed_in_their_order(lab: Lab) -> None:
    """The second hunk's single match lies before the first one's place."""
    a = "a1 = 1\na2 = 2\na3 = 3\n"
    b = "b1 = 1\nb2 = 2\nb3 = 3\n"
    text = b + "# between\n" + a
    error, _ = refusal(
        lab,
        text,
        hunk(a, a.replace("a2 = 2", "a2 = 20"), at=1),
        hunk(b, b.replace("b2 = 2", "b2 = 20"), at=5),
    )
    assert error["file"] == PATH and error["hunk"] in (1, 2)


def test_later_hunks_follow_the_growth_of_earlier_ones(lab: Lab) -> None:
    a, b = "a1 = 1\na2 = 2\na3 = 3\n", "b1 = 1\nb2 = 2\nb3 = 3\n"
    text = a + "# between\n" + b
    first = hunk(a, a.replace("a2 = 2\n", "a2 = 2\na25 = 2\na26 = 2\n"), at=1)
    second = hunk(b, b.replace("b2 = 2", "b2 = 20"), at=5).replace("+5,", "+7,")
    site, answer = apply(lab, text, first, second)
    assert [offset for _, offset in hunks_of(answer)] == [0, 0]
    assert "b2 = 20" in site.text(PATH) and "a26" in site.text(PATH)


def test_overlapping_hunks_are_refused(lab: Lab) -> None:
    a = "a1 = 1\na2 = 2\na3 = 3\na4 = 4\na5 = 5\na6 = 6\n"
    first = hunk(a[:28], a[:28].replace("a2 = 2", "a2 = 20"), at=1)
    second = hunk(a[14:], a[14:].replace("a4 = 4", "a4 = 40"), at=3)
    refusal(lab, a, first, second)


# --- no fuzz -----------------------------------------------------------------------------


CONTEXT = "c1 = 1\nc2 = 2\nc3 = 3\nmiddle = 0\nc4 = 4\nc5 = 5\nc6 = 6\n"
CHANGED = CONTEXT.replace("middle = 0", "middle = 1")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("c1 = 1", "c1 = 9"),
        ("c6 = 6", "c6 = 9"),
        ("c3 = 3", "c3 = 3 "),
        ("c3 = 3", "c3  = 3"),
        ("c4 = 4", "\tc4 = 4"),
        ("c2 = 2\n", ""),
        ("c5 = 5\n", "c5 = 5\n\n"),
        ("c5 = 5\n", "c5 = 5\r\n"),
        ("c5", "C5"),
        ("c3 = 3", "c3 = 3\f"),
    ],
)
def test_context_that_differs_by_a_byte(lab: Lab, old: str, new: str) -> None:
    """Most of these GNU patch takes, at fuzz 1 or 2 or as white space."""
    text = CONTEXT.replace(old, new)
    error, _ = refusal(lab, text, hunk(CONTEXT, CHANGED, at=1))
    assert error["file"] == PATH and error["hunk"] == 1


@pytest.mark.parametrize("in_patch", ["\n", "\r\n"])
def test_line_ends_are_bytes(lab: Lab, in_patch: str) -> None:
    in_file = "\r\n" if in_patch == "\n" else "\n"
    body = hunk(CONTEXT, CHANGED, at=1)
    head, _, lines = body.partition("\n")
    refusal(lab, CONTEXT.replace("\n", in_file), head + "\n" + lines.replace("\n", in_patch))


def test_crlf_stays_crlf(lab: Lab) -> None:
    head, _, lines = hunk(CONTEXT, CHANGED, at=1).partition("\n")
    crlf = CONTEXT.replace("\n", "\r\n")
    site, _ = apply(lab, crlf, head + "\n" + lines.replace("\n", "\r\n"))
    assert (site / PATH).read_bytes() == CHANGED.replace("\n", "\r\n").encode()


def test_bytes_that_are_no_text_are_kept(lab: Lab) -> None:
    """Latin-1, a form feed, U+2028 and a lone carriage return in the lines around."""
    odd = b"a = '\xe9'\nb = 1\x0c\nc = '\xe2\x80\xa8'\nmiddle = 0\nd = 1\re = 2\nf = 3\ng\x00 = 4\n"
    new = odd.replace(b"middle = 0", b"middle = 1")
    lines = odd.split(b"\n")[:-1]
    body = b"".join(
        b"-middle = 0\n+middle = 1\n" if line == b"middle = 0" else b" " + line + b"\n"
        for line in lines
    )
    site = site_with(lab, odd)
    head = f"--- a/{PATH}\n+++ b/{PATH}\n@@ -1,{len(lines)} +1,{len(lines)} @@\n".encode()
    lab.bundle("b", {"pkg": head + body})
    lab.run(site, "apply", "b")
    assert (site / PATH).read_bytes() == new


@pytest.mark.parametrize("ends", [True, False])
def test_a_missing_final_newline_is_part_of_the_line(lab: Lab, ends: bool) -> None:
    text = "a = 1\nb = 2\nlast = 3\n" if ends else "a = 1\nb = 2\nlast = 3"
    marked = "@@ -1,3 +1,3 @@\n a = 1\n-b = 2\n+b = 20\n last = 3\n\\ No newline at end of file\n"
    if ends:
        refusal(lab, text, marked)
    else:
        site, _ = apply(lab, text, marked)
        assert site.text(PATH) == "a = 1\nb = 20\nlast = 3"


def test_an_end_of_file_hunk_needs_the_end(lab: Lab) -> None:
    """``last`` without its newline is the end of the file, and nowhere else."""
    text = "a = 1\nb = 2\nlast = 3\nmore = 4"
    refusal(
        lab,
        text,
        "@@ -1,3 +1,3 @@\n a = 1\n-b = 2\n+b = 20\n last = 3\n\\ No newline at end of file\n",
    )


# --- never in part -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "counts", [(6, 6), (7, 6), (6, 7), (5, 5), (8, 8), (7, 8), (8, 7), (70, 70), (0, 0)]
)
def test_counts_that_lie(lab: Lab, counts: tuple[int, int]) -> None:
    """git and GNU patch drop the lines that a hunk's header does not count."""
    error, _ = refusal(lab, CONTEXT, hunk(CONTEXT, CHANGED, at=1, counts=counts))
    assert isinstance(error.get("line"), int), error
    assert 3 <= error["line"] <= 12


@pytest.mark.parametrize("surplus", ["+extra = 1\n", "-c6 = 6\n", " more = 1\n", "+\n"])
def test_a_line_after_the_last_counted_one(lab: Lab, surplus: str) -> None:
    error, _ = refusal(lab, CONTEXT, hunk(CONTEXT, CHANGED, at=1) + surplus)
    assert error["line"] == 3 + 8 + 1


def test_surplus_lines_between_two_files(lab: Lab) -> None:
    site = site_with(lab, CONTEXT)
    first = patch(hunk(CONTEXT, CHANGED, at=1)) + b"+extra = 1\n"
    second = b"--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1,1 @@\n+n = 1\n"
    lab.bundle("b", {"pkg": first + second})
    before = site.picture()
    answer = lab.json(site, "apply", "b", check=3)
    assert answer["error"]["line"] == 12
    assert site.differences(before) == []


def test_a_signature_of_format_patch_is_no_surplus(lab: Lab) -> None:
    site, _ = apply(lab, CONTEXT, hunk(CONTEXT, CHANGED, at=1) + "-- \n2.39.2\n\n")
    assert site.text(PATH) == CHANGED


def test_mail_around_the_patch(lab: Lab) -> None:
    site = site_with(lab, CONTEXT)
    mail = (
        b"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n"
        b"From: A U Thor <author@example.org>\nDate: Mon, 6 May 2024 07:08:10 +0000\n"
        b"Subject: [PATCH] change the middle\n\nA line of text.\n- a list\n- of things\n---\n"
        b" pkg/mod.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n"
        b"diff --git a/pkg/mod.py b/pkg/mod.py\nindex 1111111..2222222 100644\n"
    )
    lab.bundle("b", {"pkg": mail + patch(hunk(CONTEXT, CHANGED, at=1)) + b"-- \n2.39.2\n\n"})
    lab.run(site, "apply", "b")
    assert site.text(PATH) == CHANGED


def test_a_patch_cut_off_in_a_hunk(lab: Lab) -> None:
    body = hunk(CONTEXT, CHANGED, at=1)
    error, _ = refusal(lab, CONTEXT, body[: body.index(" c5")])
    assert "line" in error


@pytest.mark.parametrize(
    "data",
    [b"", b"no patch at all\n", b"--- a/pkg/mod.py\n+++ b/pkg/mod.py\n", b"@@ -1 +1 @@\n-a\n+b\n"],
    ids=["empty", "prose", "no hunks", "no header"],
)
def test_what_is_no_patch_is_refused(lab: Lab, data: bytes) -> None:
    site = site_with(lab, CONTEXT)
    lab.bundle("b", {"pkg": data})
    before = site.picture()
    result = lab.run(site, "apply", "b", check=3)
    assert "b/pkg-0001.patch" in result.stderr
    assert site.differences(before) == []


@pytest.mark.parametrize(
    "extra",
    [
        "GIT binary patch\nliteral 3\nKcmZQzWB>pF00031\n\nliteral 0\nHcmV?d00001\n\n",
        "Binary files a/pkg/data.bin and b/pkg/data.bin differ\n",
    ],
    ids=["literal", "notice"],
)
def test_a_binary_part_is_refused_not_dropped(lab: Lab, extra: str) -> None:
    site = site_with(lab, CONTEXT)
    data = patch(hunk(CONTEXT, CHANGED, at=1)) + b"diff --git a/pkg/d.bin b/pkg/d.bin\n"
    data += b"new file mode 100644\nindex 0000000..8352675\n" + extra.encode()
    lab.bundle("b", {"pkg": data})
    before = site.picture()
    lab.run(site, "apply", "b", check=3)
    assert site.differences(before) == []


def test_a_combined_diff_is_refused(lab: Lab) -> None:
    data = (
        b"diff --cc pkg/mod.py\nindex 1111111,2222222..3333333\n--- a/pkg/mod.py\n"
        b"+++ b/pkg/mod.py\n@@@ -1,2 -1,2 +1,2 @@@\n- c1 = 1\n -c1 = 2\n++c1 = 3\n  c2 = 2\n"
    )
    site = site_with(lab, CONTEXT)
    lab.bundle("b", {"pkg": data})
    before = site.picture()
    lab.run(site, "apply", "b", check=3)
    assert site.differences(before) == []


def test_a_new_file_that_is_there_already(lab: Lab) -> None:
    site = site_with(lab, CONTEXT)
    lab.bundle("b", {"pkg": f"--- /dev/null\n+++ b/{PATH}\n@@ -0,0 +1 @@\n+n = 1\n".encode()})
    before = site.picture()
    result = lab.run(site, "apply", "b", check=3)
    assert PATH in result.stderr
    assert site.differences(before) == []


def test_a_deletion_must_know_the_whole_file(lab: Lab) -> None:
    """The file has a line more than the patch removes: it is not the file that was meant."""
    lines = CONTEXT.splitlines(keepends=True)
    body = "".join(f"-{line}" for line in lines[:-1])
    data = f"--- a/{PATH}\n+++ /dev/null\n@@ -1,{len(lines) - 1} +0,0 @@\n{body}".encode()
    site = site_with(lab, CONTEXT)
    lab.bundle("b", {"pkg": data})
    before = site.picture()
    result = lab.run(site, "apply", "b", check=3)
    assert PATH in result.stderr
    assert site.differences(before) == []


def test_applied_twice_changes_nothing(lab: Lab) -> None:
    """A patch of which the old text is still there a second time is not applied again."""
    text = "start = 0\nitem = 1\nend = 2\n"
    new = "start = 0\nitem = 1\nitem = 1\nend = 2\n"
    site, _ = apply(lab, text, "@@ -1,3 +1,4 @@\n start = 0\n item = 1\n+item = 1\n end = 2\n")
    before = releases.snapshot(site.root, ignore=(STATE,))
    lab.run(site, "apply", "b")
    after = releases.snapshot(site.root, ignore=(STATE,))
    assert releases.diff_snapshots(before, after, releases.IDENTITY) == []
    assert site.text(PATH) == new


def test_a_release_that_has_the_change_is_called_so(lab: Lab) -> None:
    _, result = refusal(lab, CHANGED, hunk(CONTEXT, CHANGED, at=1))
    assert "already" in result.stderr


def test_a_patch_that_changes_nothing_by_its_lines(lab: Lab) -> None:
    """Removed and added line are equal: not a change, and not a reason to write the file."""
    site = site_with(lab, CONTEXT)
    data = hunk(CONTEXT, CHANGED, at=1).replace("+middle = 1", "+middle = 0")
    lab.bundle("b", {"pkg": patch(data)})
    lab.run(site, "apply", "b", check=None)
    assert site.text(PATH) == CONTEXT
