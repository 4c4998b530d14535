"""Patches as they really arrive: each comes out right, or is refused clearly.

Tables of dialects and of damage on the way, judged by ``git apply`` and by GNU ``patch`` where
these can judge, and what a refusal says.
"""

from __future__ import annotations

import base64
import bz2
import difflib
import gzip
import io
import json
import lzma
import os
import quopri
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import HunkError, PatchkitError
from patchkit.hunks import apply_with_own_ends
from patchkit.model import FileState, split
from patchkit.patchfile import parse
from patchkit.recount import recount
from tests.conftest import Cli, Git
from tests.strategies import Tools, Tree, apply, link, read_tree, text, write_tree

GNU_PATCH = shutil.which("patch")

ABC = "a\nb\nc\n"
ABC_NEW = "a\nB\nc\n"
HUNK = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
NO_END = "\\ No newline at end of file\n"
SIGNATURE = "-- \n2.45.1\n\n"


def plain(path: str, hunks: str = HUNK) -> str:
    """A diff without git's lines."""
    return f"--- a/{path}\n+++ b/{path}\n{hunks}"


def git_form(path: str, hunks: str = HUNK) -> str:
    """A diff in git's dialect."""
    return f"diff --git a/{path} b/{path}\nindex 1234567..89abcde 100644\n{plain(path, hunks)}"


def as_bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("dialects"))


def gnu_patch(tools: Tools, tree: Mapping[str, FileState], patch: bytes) -> Tree | None:
    """The tree that GNU patch makes without fuzz, or None where it refuses."""
    assert GNU_PATCH is not None
    folder = tools.folder / "patch"
    shutil.rmtree(folder, ignore_errors=True)
    write_tree(tree, folder)
    done = subprocess.run(
        [
            *(GNU_PATCH, "-p1", "-s", "-f", "-F0", "--binary"),
            *("--no-backup-if-mismatch", "--posix" if b"\r\n" in patch else "-E", "-r", "-"),
        ],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
        input=patch,
        capture_output=True,
        check=False,
    )
    return read_tree(folder) if done.returncode == 0 else None


def refusal(
    tree: Mapping[str, FileState],
    patch: bytes | str,
    *,
    strip: int | None = 1,
    reverse: bool = False,
) -> PatchkitError:
    """The error, which must be complete: code, exit code, patch, line and hint."""
    data = as_bytes(patch)
    with pytest.raises(PatchkitError) as caught:
        apply(tree, data, strip=strip, reverse=reverse)
    error = caught.value
    assert error.exit_code == 3
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error.code), error.code
    assert error.message
    assert error.hint, f"no hint: {error.message}"
    assert error.patch == "0.patch"
    assert error.line is not None, error.message
    assert 1 <= error.line <= data.count(b"\n") + 1
    return error


def outcome(
    tree: Mapping[str, FileState], patch: bytes | str, *, strip: int | None = 1
) -> Tree | PatchkitError:
    """The tree that comes out, or the error."""
    try:
        return apply(tree, as_bytes(patch), strip=strip)
    except PatchkitError as error:
        return error


def right_or_refused(
    tree: Mapping[str, FileState], patch: bytes | str, after: Mapping[str, FileState]
) -> None:
    """Either what was meant, or a complete refusal."""
    found = outcome(tree, patch)
    if isinstance(found, PatchkitError):
        refusal(tree, patch)
    else:
        assert found == after


# -- text before, between and after ------------------------------------------------------------

#: id: text that may stand anywhere in prose and must not change what the patch says.
PROSE: dict[str, str] = {
    "nothing": "",
    "blank lines": "\n\n\n",
    "words": "A change.\n\nIt changes things.\n",
    "three dashes": "words\n---\n x | 2 +-\n 1 file changed\n\n",
    "quoted diff, indented": "".join(f"    {row}\n" for row in git_form("q").splitlines()),
    "quoted diff, in a mail answer": "".join(f"> {row}\n" for row in git_form("q").splitlines()),
    "quoted diff, behind a tab": "".join(f"\t{row}\n" for row in plain("q").splitlines()),
    "old name alone": "see\n--- a/q\nfor the old name\n",
    "both names, no hunk": "see\n--- a/q\n+++ b/q\nfor the names\n",
    "new name alone": "see\n+++ b/q\nfor the new name\n",
    "hunk header within a line": "the line @@ -1,3 +1,3 @@ is a hunk header\n",
    "at signs that are no hunk header": "@@ here begins the list\n@property is not one either\n",
    "diff line alone": "git writes\ndiff --git a/q b/q\nat the top\n",
    "diff line within a line": "the line diff --git a/x b/x is git's\n",
    "words of git's header": "rename from q\nrename to r\nnew file mode 100644\nold mode 100644\n",
    "binary words": "GIT binary patch\nliteral 3\nis how it begins\n",
    "list with stars": "*** important ***\n***************\n* one\n* two\n",
    "line of a normal diff": "the fix is\n3a4\nthat is all\n",
    "html in a sentence": "It adds a <html> element.\n<b>bold</b>\n",
    "from in the text": ">From here on\nFrom then on it works\n",
    "mercurial": "# HG changeset patch\n# User A <a@b>\n# Date 0 0\n# Node ID 12\n# Parent 34\n",
    "subversion": f"Index: x\n{'=' * 67}\n",
    "folders compared": "Only in b: z\nCommon subdirectories: a/p and b/p\n",
    "kinds compared": "File a/p is a directory while file b/p is a regular file\n",
    "form feed and lone returns": "one\x0c\ntwo\rthree\n\x0b\n\x85\u2028\n",
    "no text": "\x00\x01\x02\n",
    "time stamp": "2026-01-01 00:00:00 +0000\n",
    "backslash": "\\o/\nworks\n",
}
#: What git or patch take for a part of the patch, or for its end, where patchkit reads on.
NOT_FOR_GIT = {"diff line alone", "words of git's header", "binary words"}
#: What may be lines of a hunk whose counts are wrong, where it stands behind a hunk.
LIKE_A_HUNK = {
    "quoted diff, indented",
    "quoted diff, behind a tab",
    "at signs that are no hunk header",
}


@pytest.mark.parametrize("form", [plain, git_form], ids=["plain", "git"])
@pytest.mark.parametrize("where", ["before", "between", "after"])
@pytest.mark.parametrize("name", PROSE)
def test_prose_changes_nothing(
    name: str, where: str, form: Callable[[str], str], tools: Tools
) -> None:
    parts = [form("x"), form("y")]
    at = ["before", "between", "after"].index(where)
    # A backslash right behind a hunk is its mark; prose behind a hunk is set off by a line.
    parts.insert(at, ("\n" if at else "") + PROSE[name])
    patch = "".join(parts).encode()
    before: Tree = {"x": text(ABC), "y": text(ABC)}
    after: Tree = {"x": text(ABC_NEW), "y": text(ABC_NEW)}
    if at and name in LIKE_A_HUNK:
        right_or_refused(before, patch, after)
        return
    assert apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before
    if name not in NOT_FOR_GIT:
        assert tools.git_apply(before, patch) == after


#: id: text at the start of a line that cannot be told from a part of the patch for certain.
QUOTED: dict[str, str] = {
    "hunk header": "the line\n@@ -1,3 +1,3 @@\nis a hunk header\n",
    "whole hunk": f"as in\n{HUNK}above\n",
    "whole diff of another file": f"like this one:\n{plain('q')}and so on\n",
    "whole git diff of another file": f"like this one:\n{git_form('q')}and so on\n",
    "binary files differ": "git says\nBinary files a/q and b/q differ\n",
    "context diff": "*** a/q\n--- b/q\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n",
    "normal diff": "1c1\n< a\n---\n> b\n",
    "property of subversion": (
        "Property changes on: x\n___________\nAdded: svn:executable\n## -0,0 +1 ##\n+*\n"
        "\\ No newline at end of property\n"
    ),
    "list with dashes": "- one\n- two\n",
    "indented words": " indented\n",
    "list with plus signs": "+ one\n+ two\n",
}


@pytest.mark.parametrize("where", ["before", "between", "after"])
@pytest.mark.parametrize("name", QUOTED)
def test_quotes_that_look_like_a_patch(name: str, where: str) -> None:
    parts = [git_form("x"), git_form("y")]
    at = ["before", "between", "after"].index(where)
    parts.insert(at, ("\n" if at else "") + QUOTED[name])
    before: Tree = {"x": text(ABC), "y": text(ABC)}
    right_or_refused(before, "".join(parts), {"x": text(ABC_NEW), "y": text(ABC_NEW)})


MESSAGE = f"""Subject line

The old way:

    {"    ".join(git_form("x").splitlines(keepends=True))}
--- a/x
is a name, and so is

---
+++ b/x

@@ is a decorator
diff --git a/x b/x
is what git writes.
"""


def test_mails_as_git_writes_them(git: Git, tmp_path: Path) -> None:
    """Three commits with a message that quotes diffs, as one mailbox, to and fro."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    tree: Tree = {"x": text(ABC), "sub/y.sql": text("-- one\n-- two\n++ three\n-- \nend\n")}
    states = [tree]
    states.append({**tree, "x": text(ABC_NEW)})
    states.append({**states[1], "sub/y.sql": text("-- two\n++ three\n++ four\nend\n-- \n")})
    states.append({"x": text("a\nB\nc\nd\n"), "sub/y.sql": states[2]["sub/y.sql"]})
    for number, state in enumerate(states):
        git(folder, "rm", "-rq", "--ignore-unmatch", ".")
        write_tree(state, folder)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"{number}: {MESSAGE}")
    for options in (
        *((), ("--attach",), ("--inline=a mark",), ("--no-stat",), ("--full-index", "--binary")),
        *(("--zero-commit", "--no-signature"), ("--signature=not git",), ("--base=HEAD~3",)),
    ):
        mails = git(folder, "format-patch", "--stdout", *options, "HEAD~3").encode()
        assert mails.count(b"\nSubject: ") == 3
        assert apply(states[0], mails) == states[-1]
        assert apply(states[-1], mails, reverse=True) == states[0]


@pytest.mark.parametrize("word", ["rename", "copy"])
@pytest.mark.parametrize(
    "body", ["", HUNK.replace("b", "B").replace("+B", "+BB")], ids=["same", "changed"]
)
def test_mails_that_build_on_each_other(word: str, body: str) -> None:
    """The second mail moves what the first one changed; git and patch put the old bytes there."""
    names = f"--- a/x\n+++ b/y\n{body}" if body else ""
    second = (
        f"From {'1' * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH 2/2] x\n\n"
        f"---\ndiff --git a/x b/y\nsimilarity index {90 if body else 100}%\n"
        f"{word} from x\n{word} to y\n{names}"
    )
    mails = mail(git_form("x") + SIGNATURE) + second + SIGNATURE
    moved = text("a\nBB\nc\n" if body else ABC_NEW)
    after: Tree = {"y": moved} if word == "rename" else {"x": text(ABC_NEW), "y": moved}
    right_or_refused({"x": text(ABC)}, mails, after)


#: id: what begins a commit, mail or changeset, as the tool writes it.
STARTS: dict[str, str] = {
    "mailbox": "From list@example.org Thu Jan  1 03:04:05 2026\nSubject: x\n\n---\n",
    "git log": f"commit {'1' * 40}\nAuthor: A <a@b>\n\n    words\n\n",
    "git log, SHA-256": f"commit {'1' * 64}\nAuthor: A <a@b>\n\n    words\n\n",
    "git log, short": "commit 1234567 (HEAD -> main)\nAuthor: A <a@b>\n\n    words\n\n",
    "git log, one line": "1234567 (HEAD -> main) words\n",
    "hg export": "# HG changeset patch\n# User A\n# Date 0 0\n# Node ID 12\nwords\n\n",
    "hg log": "changeset:   2:123456789abc\nuser:        A\nsummary:     words\n\n",
    "jj show": f"Commit ID: {'1' * 40}\nChange ID: {'k' * 32}\n\n    words\n\n",
}


@pytest.mark.parametrize("body", ["", HUNK.replace("b", "B").replace("+B", "+BB")])
@pytest.mark.parametrize("name", STARTS)
def test_commits_that_build_on_each_other(name: str, body: str) -> None:
    """A rename takes what the commit before left; within one commit, what was there first."""
    names = f"--- a/x\n+++ b/y\n{body}" if body else ""
    move = f"diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n{names}"
    patch = STARTS[name] + git_form("x") + "\n" + STARTS[name]
    patch += move if body else move.replace("90%", "100%")
    after = text("a\nBB\nc\n" if body else ABC_NEW)
    assert apply({"x": text(ABC)}, patch.encode()) == {"y": after}
    assert apply({"y": after}, patch.encode(), reverse=True) == {"x": text(ABC)}


@pytest.mark.parametrize("mark", ["--=_1", "------------2.39.5", "=-x", "with a blank"])
def test_the_boundaries_of_a_mail_are_no_lines_of_a_hunk(mark: str) -> None:
    """Those that a header of the mail names, and no others."""
    part = "Content-Type: text/x-patch; name=x.patch\n\n"
    mails = mail(
        f"--{mark}\n{part}{git_form('x')}--{mark}\n{part}{git_form('y')}\n--{mark}--\n\n",
        f'Content-Type: multipart/mixed;\n\tboundary="{mark}"',
    )
    before, after = {"x": text(ABC), "y": text(ABC)}, {"x": text(ABC_NEW), "y": text(ABC_NEW)}
    assert apply(before, mails.encode()) == after
    for other in (f"--{mark}x\n", f"-{mark}\n", f"--{mark}--x\n"):
        error = refusal(before, mails.replace(f"--{mark}\n{part}diff --git a/y", other + "y"))
        assert error.message == "a line that no hunk counts"


@pytest.mark.parametrize("signature", ["-- \n2.45.1\n\n", "--\nA U Thor\n", "-- \r\n2.45.1\r\n"])
@pytest.mark.parametrize("last", ["-- \n", "---\n", "++ \n", "+\n", "- \n"], ids=repr)
@pytest.mark.parametrize("sign", "+-")
def test_signatures_behind_lines_that_look_like_them(last: str, sign: str, signature: str) -> None:
    """The counts say where the hunk ends, and not what its last line looks like."""
    old, new = "a\nb\n", "a\nb\n" + last
    before, after = (old, new) if sign == "+" else (new, old)
    counts = "-1,2 +1,3" if sign == "+" else "-1,3 +1,2"
    patch = git_form("x", f"@@ {counts} @@\n a\n b\n{sign}{last}") + signature
    assert apply({"x": text(before)}, patch.encode()) == {"x": text(after)}
    assert apply({"x": text(after)}, patch.encode(), reverse=True) == {"x": text(before)}


# -- lines that look like headers, and lines with odd bytes --------------------------------------

ODD_LINES: dict[str, tuple[str | bytes, str | bytes]] = {
    # id: (before, after)
    "sql comment removed": ("-- a/y\n-- b\nx\n", "x\n"),
    "plus signs added": ("x\n", "++ b/y\nx\n++ c\n"),
    "a whole file header": (
        "-- a/y\nx\n1\n2\n3\n4\n5\n6\n7\n8\nz\n",
        "++ b/y\nx\n1\n2\n3\n4\n5\n6\n7\n8\nZ\n",
    ),
    "hunk headers": ("@@ -1 +1 @@\nx\n", "@@ -2 +2 @@\nx\n"),
    "diff lines": ("diff --git a/y b/y\nx\n", "diff --git a/z b/z\nx\n"),
    "a mark": ("\\ No newline at end of file\nx\n", "x\n\\ No newline at end of file\n"),
    "signature": ("x\n-- \n2.45\n", "x\n-- \n2.46\n"),
    "patch in a patch": (plain("y"), git_form("y") + SIGNATURE),
    "form feed": ("a\x0cb\n\x0c\nx\n", "a\x0cc\n\x0c\nx\n\x0c\n"),
    "vertical tab": ("a\x0bb\n\x0b\nx\n", "a\x0bc\n\x0b\nx\n"),
    "separators": ("a\x1c\x1d\x1e\nx\n", "b\x1c\x1d\x1e\nx\n\x1c\n"),
    "NEL": ("a\x85b\nx\n", "a\x85c\nx\n\x85\n"),
    "NEL, one byte": (b"a\x85b\nx\n", b"a\x85c\nx\n\x85\n"),
    "line separator": ("a\u2028b\nx\n", "a\u2028c\nx\n\u2028\n"),
    "paragraph separator": ("a\u2029b\nx\n", "a\u2029c\nx\n\u2029\n"),
    "lone return": ("a\rb\nx\n", "a\rc\nx\n\r\r\n"),
    "lone return at the start": ("\ra\nx\n", "\rb\nx\n"),
    "nothing but returns": ("\r\r\r", "\r\r"),
    "bytes that are no text": (bytes(range(256)) + b"\nx\n", bytes(range(255)) + b"\nx\n"),
    "byte order mark in the file": ("\ufeffa\nb\n", "\ufeffa\nB\n"),
    "byte order mark taken out": ("\ufeffa\nb\n", "a\nb\n"),
    "white space at the end": ("a \nb\t\n \n", "a\nb\t \n  \n"),
    "blank lines": ("\n\n\na\n\n\n", "\n\n\nb\n\n\n"),
    "long line": ("a" * 70_000 + "\nx\n", "b" * 70_000 + "\nx\n"),
}


@pytest.mark.parametrize("name", ODD_LINES)
def test_odd_lines(name: str, tools: Tools) -> None:
    before, after = ({"x": text(side)} for side in ODD_LINES[name])
    for option in ("-U3", "-U0", "-U1"):
        patch = tools.git_diff(before, after, "--text", option)
        zero = ("--unidiff-zero",) if option == "-U0" else ()
        assert tools.git_apply(before, patch, *zero) == after
        assert apply(before, patch) == after
        assert apply(after, patch, reverse=True) == before


def test_odd_lines_of_many_files_together(tools: Tools) -> None:
    """One patch: where one file is cut at the wrong byte, the next is not found."""
    before, after = (
        {f"{number:02}": text(pair[side]) for number, pair in enumerate(ODD_LINES.values())}
        for side in (0, 1)
    )
    patch = tools.git_diff(before, after, "--text")
    assert apply(before, patch) == tools.git_apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before


def test_odd_bytes_in_a_heading(tools: Tools) -> None:
    for odd in ("\x0c", "\x0b", "\x85", "\u2028", "\r", "\x1b[m", "@@ -1 +1 @@"):
        before = {"x": text(f"def f{odd}():\n" + "".join(f"{n}\n" for n in range(12)))}
        after = {"x": text(before["x"].data.replace(b"9", b"nine"))}
        patch = tools.git_diff(before, after, "--text")
        assert b" @@ def f" in patch
        assert apply(before, patch) == tools.git_apply(before, patch) == after


# -- line ends ---------------------------------------------------------------------------------

WORDS = [b"one", b"two", b"three", b"four", b"five", b"six", b"seven", b"eight"]
FILE_ENDS: dict[str, list[bytes]] = {
    "LF": [b"\n"] * 8,
    "CRLF": [b"\r\n"] * 8,
    "alternating": [b"\n", b"\r\n"] * 4,
    "CR in the changed line alone": [b"\n"] * 2 + [b"\r\n"] + [b"\n"] * 5,
    "LF in the changed line alone": [b"\r\n"] * 2 + [b"\n"] + [b"\r\n"] * 5,
    "CRLF at the top, LF below": [b"\r\n"] * 4 + [b"\n"] * 4,
}


def sides(ends: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """A file, and it with line 3 changed, one put in behind line 4, and line 6 taken out."""
    old = [word + end for word, end in zip(WORDS, ends, strict=True)]
    new = [*old[:2], b"THREE" + ends[2], old[3], b"new" + ends[3], old[4], *old[6:]]
    return old, new


def eaten(patch: bytes) -> bytes:
    return patch.replace(b"\r\n", b"\n")


def added(patch: bytes) -> bytes:
    return eaten(patch).replace(b"\n", b"\r\n")


def added_to_the_body(patch: bytes) -> bytes:
    rows = split(eaten(patch))
    return b"".join(rows[:3] + [row.replace(b"\n", b"\r\n") for row in rows[3:]])


TRANSPORT: dict[str, Callable[[bytes], bytes]] = {
    "as it was": bytes,
    "CRs eaten": eaten,
    "CRs added everywhere": added,
    "CRs added to the body": added_to_the_body,
    "CRs added to all, also where they were": lambda patch: patch.replace(b"\n", b"\r\n"),
}


def unified(old: Iterable[bytes], new: Iterable[bytes]) -> bytes:
    made = difflib.diff_bytes(difflib.unified_diff, list(old), list(new), b"a/x", b"b/x")
    return b"".join(made).replace(b"--- a/x\t", b"--- a/x").replace(b"+++ b/x\t", b"+++ b/x")


@pytest.mark.parametrize("way", TRANSPORT)
@pytest.mark.parametrize("ends", FILE_ENDS)
def test_line_ends_in_every_combination(ends: str, way: str, tools: Tools) -> None:
    """Bytes decide; what differs in line ends alone is named, and applied with --eol alone."""
    old, new = sides(FILE_ENDS[ends])
    right = unified(old, new)
    patch = TRANSPORT[way](right)
    before, after = {"x": text(b"".join(old))}, {"x": text(b"".join(new))}
    if split(patch)[3:] == split(right)[3:]:
        assert apply(before, patch) == after
        assert apply(after, patch, reverse=True) == before
        if split(patch)[:3] == split(right)[:3]:
            assert tools.git_apply(before, patch) == after
            if GNU_PATCH:
                assert gnu_patch(tools, before, patch) == after
    else:
        error = refusal(before, patch)
        assert error.data["reason"] == "line-ends", error.message
        assert "--eol" in (error.hint or "")
    rows = list(old)
    apply_with_own_ends(rows, parse(patch, "x").files[0].hunks)
    assert rows == new


def test_a_change_of_the_line_ends_themselves(tools: Tools) -> None:
    before: Tree = {"x": text("a\r\nb\r\nc\r\n"), "y": text("a\nb\nc\n"), "z": text("a\r\nb\n")}
    after: Tree = {"x": text("a\nb\nc\n"), "y": text("a\r\nb\r\nc\n"), "z": text("a\nb\r\n")}
    patch = tools.git_diff(before, after)
    assert apply(before, patch) == tools.git_apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before


@pytest.mark.parametrize("kind", ["add", "delete", "rename", "mode", "binary", "names"])
def test_headers_with_returns(kind: str, tools: Tools) -> None:
    """A patch that is CRLF throughout: names, modes and binary data are read without the CR."""
    body = "a\r\nb\r\nc\r\n"
    trees: dict[str, tuple[Tree, Tree]] = {
        "add": ({}, {"x": text(body)}),
        "delete": ({"x": text(body)}, {}),
        "rename": ({"x": text(body)}, {"p/y": text(body.replace("b", "B"))}),
        "mode": ({"x": text(body)}, {"x": text(body, 0o755)}),
        "binary": ({"x": text(b"\0\n\1")}, {"x": text(b"\0\n\2")}),
        "names": (
            {"a b\t": text(body), "ü": text(body)},
            {"a b\t": text("x\r\n"), "ü": text("y\r\n")},
        ),
    }
    before, after = trees[kind]
    patch = eaten(tools.git_diff(before, after, "--binary", "-M30%"))
    assert apply(before, added(patch)) == after
    assert apply(after, added(patch), reverse=True) == before


# -- the last line end -------------------------------------------------------------------------

MARKS: dict[str, str] = {
    "git": "\\ No newline at end of file",
    "German": "\\ Kein Zeilenumbruch am Dateiende.",
    "French": "\\ Pas de fin de ligne à la fin du fichier",
    "Spanish": "\\ No hay ningún carácter de nueva línea al final del archivo",
    "Chinese": "\\ 文件尾没有换行符",
    "Japanese, EUC": "\\ ファイル末尾に改行がありません",
    "Russian, KOI8": "\\ нет новой строки в конце файла",
}
MARK_CODES = {"Japanese, EUC": "euc_jp", "Russian, KOI8": "koi8_r", "French": "latin-1"}
LAST: dict[str, tuple[str, str]] = {
    # id: (before, after)
    "missing before": ("a\nb", "A\nb\n"),
    "missing after": ("a\nb\n", "A\nb"),
    "missing on both sides, context": ("a\nb\nc\nd", "A\nb\nc\nd"),
    "missing on both sides, changed": ("a\nb", "a\nB"),
    "added alone": ("a\nb", "a\nb\n"),
    "removed alone": ("a\nb\n", "a\nb"),
    "line put in behind": ("a\nb", "a\nb\nc"),
    "line taken out at the end": ("a\nb\nc", "a\nb"),
    "one line": ("a", "b"),
    "emptied": ("a", ""),
    "filled": ("", "a"),
    "only a blank line": ("a\n\n", "a\n"),
    "CRLF before": ("a\r\nb", "a\r\nb\r\n"),
    "CR at the end": ("a\nb\r", "a\nB\r"),
}


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("name", LAST)
def test_the_last_line_end(name: str, mark: str, tools: Tools) -> None:
    before, after = ({"x": text(side), "y": text(ABC)} for side in LAST[name])
    after["y"] = text(ABC_NEW)
    patch = tools.git_diff(before, after)
    words = MARKS[mark].encode(MARK_CODES.get(mark, "utf-8"))
    patch = patch.replace(MARKS["git"].encode(), words)
    assert apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before
    if mark == "git":
        assert tools.git_apply(before, patch) == after
        if GNU_PATCH and name not in ("emptied", "filled"):
            assert gnu_patch(tools, before, patch) == after


@pytest.mark.parametrize("name", [name for name, pair in LAST.items() if "" not in pair])
def test_the_last_line_end_must_be_as_the_patch_says(name: str, tools: Tools) -> None:
    """A line end more or less is another file: nothing is applied."""
    before, after = LAST[name]
    patch = tools.git_diff({"x": text(before)}, {"x": text(after)})
    other = before[:-1] if before.endswith("\n") else before + "\n"
    error = refusal({"x": text(other)}, patch)
    assert error.code in ("hunk-not-found", "already-applied")


# -- files that come, go, are emptied, change mode, kind or name ----------------------------------

CHANGES: dict[str, tuple[Tree, Tree]] = {
    "emptied and kept": ({"x": text(ABC)}, {"x": text("")}),
    "empty one filled": ({"x": text("")}, {"x": text(ABC)}),
    "empty one made": ({}, {"p/x": text("")}),
    "empty one removed": ({"p/x": text("")}, {}),
    "empty executable made": ({}, {"x": text("", 0o755)}),
    "made": ({}, {"p/q/x": text(ABC)}),
    "removed": ({"p/q/x": text(ABC)}, {}),
    "made executable": ({"x": text(ABC)}, {"x": text(ABC, 0o755)}),
    "no longer executable": ({"x": text(ABC, 0o755)}, {"x": text(ABC)}),
    "mode of an empty file": ({"x": text("")}, {"x": text("", 0o755)}),
    "mode and content": ({"x": text(ABC)}, {"x": text(ABC_NEW, 0o755)}),
    "mode, and emptied": ({"x": text(ABC)}, {"x": text("", 0o755)}),
    "renamed": ({"x": text(ABC)}, {"p/y": text(ABC)}),
    "renamed and changed": ({"x": text(ABC * 4)}, {"y": text(ABC * 4 + "d\n")}),
    "renamed, mode changed": ({"x": text(ABC)}, {"y": text(ABC, 0o755)}),
    "renamed, all changed": ({"x": text(ABC * 4)}, {"y": text(ABC * 4 + "d\n", 0o755)}),
    "two change places": (
        {"x": text("1\n" * 9), "y": text("2\n" * 9)},
        {"x": text("2\n" * 9), "y": text("1\n" * 9)},
    ),
    "file into a folder of its name": ({"x": text(ABC)}, {"x/x": text(ABC)}),
    "out of the folder of its name": ({"x/x": text(ABC)}, {"x": text(ABC)}),
    "copied": ({"x": text(ABC)}, {"x": text(ABC), "y": text(ABC)}),
    "copied and changed": ({"x": text(ABC * 4)}, {"x": text(ABC * 4), "y": text(ABC * 4 + "d\n")}),
    "copied, both changed": (
        {"x": text(ABC * 4)},
        {"x": text("0\n" + ABC * 4), "y": text(ABC * 4 + "d\n")},
    ),
    "link made": ({"x": text(ABC)}, {"x": text(ABC), "l": link("x")}),
    "link turned": ({"l": link("x")}, {"l": link("y/z")}),
    "link removed": ({"l": link("x")}, {}),
    "link renamed": ({"l": link("x")}, {"m": link("x")}),
    "link with an odd target": ({"l": link("x")}, {"l": link("a b\t\"ü")}),
    "link becomes a file": ({"l": link("x")}, {"l": text(ABC)}),
    "file becomes a link": ({"l": text(ABC, 0o755)}, {"l": link("x")}),
    "file of the same bytes becomes a link": ({"l": text("x")}, {"l": link("x")}),
    "file becomes a folder": ({"x": text(ABC)}, {"x/y": text("new\n")}),
    "folder becomes a file": ({"x/y": text(ABC)}, {"x": text("new\n")}),
    "link becomes a folder": ({"x": link("y")}, {"x/y": text("new\n")}),
    "binary, literal": ({"x": text(b"\0old")}, {"x": text(b"\0other")}),
    "binary, delta": (
        {"x": text(bytes(range(256)) * 9)},
        {"x": text(bytes(range(256)) * 4 + b"put in" + bytes(range(256)) * 5)},
    ),
    "binary made": ({}, {"x": text(b"\0new")}),
    "binary removed": ({"x": text(b"\0old")}, {}),
    "binary emptied": ({"x": text(b"\0old")}, {"x": text("")}),
    "binary becomes text": ({"x": text(b"\0old")}, {"x": text(ABC)}),
    "binary renamed and changed": (
        {"x": text(bytes(range(256)) * 9)},
        {"y": text(bytes(range(256)) * 9 + b"!", 0o755)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_every_kind(name: str, tools: Tools) -> None:
    before, after = CHANGES[name]
    for options in (("-M", "-C", "--find-copies-harder"), ("--no-renames",)):
        patch = tools.git_diff(before, after, "--binary", *options)
        assert apply(before, patch) == after
        if name != "folder becomes a file":  # git applies it in the other order alone
            assert tools.git_apply(before, patch) == after
        if b"\ncopy from" not in patch:
            assert apply(after, patch, reverse=True) == before
        if GNU_PATCH and name in ("made", "removed", "mode and content", "renamed and changed"):
            assert gnu_patch(tools, before, patch) == after
        # A second time it does not fit, except where it says nothing about what was there.
        if b"\ncopy from" not in patch and name not in (
            "made executable",
            "no longer executable",
            "mode of an empty file",
        ):
            refusal(after, patch)


@pytest.mark.parametrize("name", [name for name in CHANGES if name.startswith("binary, ")])
def test_binary_for_another_base(name: str, tools: Tools) -> None:
    before, after = CHANGES[name]
    patch = tools.git_diff(before, after, "--binary")
    other = {"x": text(before["x"].data[:-1] + b"?")}
    assert tools.git_apply(other, patch) is None
    refusal(other, patch)
    refusal(other, patch, reverse=True)
    refusal({}, patch)


NOT_BINARY: dict[str, str] = {
    "git": "diff --git a/x b/x\nindex 1234567..89abcde 100644\nBinary files a/x and b/x differ\n",
    "git, new": (
        "diff --git a/x b/x\nnew file mode 100644\nindex 0000000..89abcde\n"
        "Binary files /dev/null and b/x differ\n"
    ),
    "git, deleted": (
        "diff --git a/x b/x\ndeleted file mode 100644\nindex 89abcde..0000000\n"
        "Binary files a/x and /dev/null differ\n"
    ),
    "git, renamed": (
        "diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n"
        "index 1234567..89abcde 100644\nBinary files a/x and b/y differ\n"
    ),
    "git, quoted name": (
        'diff --git "a/\\303\\274" "b/\\303\\274"\nindex 1234567..89abcde 100644\n'
        'Binary files "a/\\303\\274" and "b/\\303\\274" differ\n'
    ),
    "plain": "Binary files a/x and b/x differ\n",
    "plain, behind a diff line": "diff -ruN a/x b/x\nBinary files a/x and b/x differ\n",
    "plain, old": "Files a/x and b/x differ\n",
    "subversion": (
        f"Index: x\n{'=' * 67}\nCannot display: file marked as a binary type.\n"
        "svn:mime-type = application/octet-stream\n"
    ),
    "mercurial": "diff -r 1234567890ab x\nBinary file x has changed\n",
}
SUBMODULES: dict[str, str] = {
    "moved on": (
        "diff --git a/sub b/sub\nindex 1234567..89abcde 160000\n--- a/sub\n+++ b/sub\n"
        "@@ -1 +1 @@\n-Subproject commit 1234567\n+Subproject commit 89abcde\n"
    ),
    "added": (
        "diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..89abcde\n--- /dev/null\n"
        "+++ b/sub\n@@ -0,0 +1 @@\n+Subproject commit 89abcde\n"
    ),
    "removed": (
        "diff --git a/sub b/sub\ndeleted file mode 160000\nindex 89abcde..0000000\n--- a/sub\n"
        "+++ /dev/null\n@@ -1 +0,0 @@\n-Subproject commit 89abcde\n"
    ),
    "renamed": (
        "diff --git a/sub b/lib\nsimilarity index 100%\nrename from sub\nrename to lib\n"
        "index 1234567..1234567 160000\n"
    ),
    "became a file": (
        "diff --git a/sub b/sub\nold mode 160000\nnew mode 100644\nindex 1234567..89abcde\n"
    ),
    "as a log": "Submodule sub 1234567..89abcde:\n  > a commit\n  < another one\n",
    "as a log, new": "Submodule sub 0000000...89abcde (new submodule)\n",
}


@pytest.mark.parametrize("where", ["alone", "first", "last"])
@pytest.mark.parametrize(
    ("table", "name"),
    [
        *(pytest.param(NOT_BINARY, name, id=f"binary: {name}") for name in NOT_BINARY),
        *(pytest.param(SUBMODULES, name, id=f"submodule: {name}") for name in SUBMODULES),
    ],
)
def test_changes_that_no_patch_can_make(table: dict[str, str], name: str, where: str) -> None:
    """Refused as a whole: what stands beside it is not applied without it."""
    other = git_form("o") if table[name].startswith("diff --git") else plain("o")
    patch = {"alone": "", "first": table[name], "last": other}[where] + {
        "alone": table[name], "first": other, "last": table[name]}[where]  # fmt: skip
    tree: Tree = {"x": text(b"\0old"), "ü": text(b"\0old"), "o": text(ABC)}
    error = refusal(tree, patch)
    if where != "alone":
        word = "binary" if table is NOT_BINARY else "submodule"
        assert word in f"{error.message} {error.hint} {error.detail}".lower()


# -- names -------------------------------------------------------------------------------------

NAMES: dict[str, str] = {
    "space": "a b/c d",
    "spaces at the ends": " lead/trail ",
    "two spaces": "a  b",
    "quotes": 'say "x"',
    "single quotes": "it's",
    "tab": "a\tb",
    "backslash": "a\\b",
    "backslash and letter": "a\\nb",
    "newline": "a\nb",
    "return": "a\rb",
    "return at the end": "a\r",
    "control": "\x01\x1b[m\x7f",
    "form feed": "a\x0cb",
    "umlaut": "ü/é",
    "decomposed": "u\u0308",
    "kanji": "漢字.py",
    "no utf-8": "a\udcff\udc80b",
    "NEL": "a\x85b",
    "line separator": "a\u2028b",
    "like octal": "a\\303\\274",
    "like a header": "--- a/x",
    "like two names": "x b/x",
    "like a stamp": "x 2026-01-01 00:00:00 +0000",
    "like a mark": "\\ No newline",
    "a folder called a": "a/x",
    "a folder called b": "b/x",
    "a folder called dev": "dev/null",
    "only dots": "...",
    "leading dash": "-x",
    "leading dot": ".x",
    "semicolon": "x;y&z|$(w)",
    "percent": "%s%n",
    "glob": "*?[x]",
    "arrow": "x => y",
    "long": "/".join(["n" * 200] * 4),
}
WAYS: dict[str, Callable[[str], tuple[Tree, Tree]]] = {
    "changed": lambda name: ({name: text(ABC)}, {name: text(ABC_NEW)}),
    "made": lambda name: ({}, {name: text(ABC)}),
    "removed": lambda name: ({name: text(ABC)}, {}),
    "mode": lambda name: ({name: text(ABC)}, {name: text(ABC, 0o755)}),
    "renamed to": lambda name: ({"plain": text(ABC)}, {name: text(ABC)}),
    "renamed from": lambda name: ({name: text(ABC)}, {"plain": text(ABC)}),
    "renamed and changed": lambda name: (
        {name: text(ABC * 4)}, {f"{name}2": text(ABC * 4 + "d\n")}
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("prefix", ["", "--no-prefix", "--src-prefix=i/ --dst-prefix=w/"])
def test_names_in_gits_dialect(way: str, prefix: str, tools: Tools) -> None:
    """One repository of all names, its diff cut into the diffs of one name each."""
    strip = 0 if prefix == "--no-prefix" else 1
    trees: dict[str, tuple[Tree, Tree]] = {}
    for number, name in enumerate(NAMES.values()):
        both = tuple(
            {f"{number:02}/{path}": one for path, one in side.items()} for side in WAYS[way](name)
        )
        trees[f"{number:02}"] = (both[0], both[1])
    before, after = (
        {path: one for pair in trees.values() for path, one in pair[side].items()}
        for side in (0, 1)
    )
    # So that git pairs each file with its own new name, no two have the same bytes.
    before, after = (
        {path: text(path[:2].encode() + b"\n" + one.data, one.mode) for path, one in side.items()}
        for side in (before, after)
    )
    patch = tools.git_diff(before, after, "-M80%", *prefix.split())
    assert tools.git_apply(before, patch, f"-p{strip}") == after
    assert apply(before, patch, strip=strip) == after
    assert apply(after, patch, strip=strip, reverse=True) == before


@pytest.mark.parametrize("name", NAMES)
def test_names_found_by_themselves(name: str, tools: Tools) -> None:
    """Without a strip level, beside a file whose form is clear."""
    path = NAMES[name]
    before: Tree = {path: text(ABC), "sure.py": text(ABC)}
    after: Tree = {path: text(ABC_NEW), "sure.py": text(ABC_NEW)}
    patch = tools.git_diff(before, after)
    assert apply(before, patch, strip=None) == tools.git_apply(before, patch) == after
    assert apply(after, patch, strip=None, reverse=True) == before


@pytest.mark.parametrize(
    "name", [name for name, path in NAMES.items() if not re.search(r'[\x00-\x1f\x7f"\\]', path)]
)
def test_names_without_quotes(name: str) -> None:
    """``core.quotePath=false``, and tools that never quote."""
    path = NAMES[name]
    tab = "\t" if " " in path else ""
    patch = (f"diff --git a/{path} b/{path}\n--- a/{path}{tab}\n+++ b/{path}{tab}\n{HUNK}").encode(
        errors="surrogateescape"
    )
    assert apply({path: text(ABC)}, patch) == {path: text(ABC_NEW)}


@pytest.mark.skipif(shutil.which("diff") is None, reason="needs GNU diff")
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("long", "a folder called dev")])
def test_names_of_gnu_diff(name: str, tools: Tools) -> None:
    path = NAMES[name]
    for before, after in (WAYS["changed"](path), WAYS["made"](path), WAYS["removed"](path)):
        patch = tools.gnu_diff(before, after)
        assert apply(before, patch) == after
        assert apply(after, patch, reverse=True) == before


STAMPS: dict[str, tuple[str, str, str]] = {
    # id: (behind the old name, behind the new name, change)
    "GNU": ("\t2026-01-02 03:04:05.678901234 +0100", "\t2026-01-02 03:04:06 +0100", "modify"),
    "GNU, context form": ("\tFri Jan  2 03:04:05 2026", "\tFri Jan  2 03:04:06 2026", "modify"),
    "ISO with T": ("\t2026-01-02T03:04:05Z", "\t2026-01-02T03:04:05+01:00", "modify"),
    "mercurial": (
        "\tFri Jan 02 03:04:05 2026 +0000", "\tThu Jan 01 00:00:00 1970 +0001", "modify"
    ),
    "subversion": ("\t(revision 12)", "\t(working copy)", "modify"),
    "subversion, absent": ("\t(revision 0)", "\t(revision 1)", "modify"),
    "perforce": ("\t2026/01/02 03:04:05", "\t2026/01/02 03:04:06", "modify"),
    "tab alone": ("\t", "\t", "modify"),
    "absent before": (
        "\t1970-01-01 00:00:00.000000000 +0000", "\t2026-01-01 00:00:00 +0000", "add"
    ),
    "absent after": ("\t2026-01-01 00:00:00 +0000", "\t1970-01-01 01:00:00 +0100", "delete"),
}  # fmt: skip


@pytest.mark.parametrize("path", ["x", "a b.py", "ü"])
@pytest.mark.parametrize("name", STAMPS)
def test_stamps_behind_the_name(name: str, path: str, tools: Tools) -> None:
    old, new, change = STAMPS[name]
    body = {
        "modify": HUNK,
        "add": "@@ -0,0 +1,3 @@\n+a\n+b\n+c\n",
        "delete": "@@ -1,3 +0,0 @@\n-a\n-b\n-c\n",
    }[change]
    patch = f"--- a/{path}{old}\n+++ b/{path}{new}\n{body}".encode()
    whole: Tree = {path: text(ABC)}
    before = {} if change == "add" else whole
    after = {"modify": {path: text(ABC_NEW)}, "add": whole, "delete": {}}[change]
    assert apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before
    if GNU_PATCH:
        assert gnu_patch(tools, before, patch) == after


TIMES = [
    *("\t2026-01-02", "\t26-01-02", "\t2026-01-02 03:04:05", "\t2026-01-02 03:04:05.678901234"),
    *("\t2026-01-02 03:04:05 +0100", "\t2026-01-02 03:04:05.6 -01:30", "\t2026-01-02 +0100"),
]


@pytest.mark.parametrize("stamp", TIMES)
@pytest.mark.parametrize("path", ["ta\tb", "\t", "x 2026-01-02\ty", "trail \t ", "x"])
def test_a_time_behind_a_name_with_tabs(path: str, stamp: str, tools: Tools) -> None:
    """git's rule: the time alone is taken off; behind blanks, where no tab is."""
    patch = f"--- a/{path}{stamp}\n+++ b/{path}{stamp}\n{HUNK}".encode()
    before, after = {path: text(ABC), "ta": text(ABC)}, {path: text(ABC_NEW), "ta": text(ABC)}
    assert apply(before, patch) == tools.git_apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before
    blanks = patch.replace(stamp.encode(), b"  " + stamp[1:].encode())
    if not path.endswith(" "):
        assert apply(before, blanks) == tools.git_apply(before, blanks) == after
    new = f"--- a/{path}\t1970-01-01 00:00:00 +0000\n+++ b/{path}{stamp}\n@@ -0,0 +1 @@\n+a\n"
    assert apply({}, new.encode()) == tools.git_apply({}, new.encode()) == {path: text("a\n")}
    assert apply({path: text("a\n")}, new.encode(), reverse=True) == {}


def test_without_a_time_a_name_ends_at_its_first_tab(tools: Tools) -> None:
    for behind in ("", "\t", "\tfoo", "\t2026-01-02 03:04", "\t2026-1-2", "\t(2026-01-02)"):
        patch = f"--- a/ta\tb{behind}\n+++ b/ta\tb{behind}\n{HUNK}".encode()
        before = {"ta": text(ABC), "ta\tb": text(ABC)}
        after = {"ta": text(ABC_NEW), "ta\tb": text(ABC)}
        assert apply(before, patch) == tools.git_apply(before, patch) == after


def test_lines_counted_from_zero(tools: Tools) -> None:
    """Some makers do; git and GNU patch take line 0 for line 1."""
    before, after = {"x": text("a\nb\n")}, {"x": text("a\nB\n")}
    for starts in ("-0,2 +0,2", "-0,2 +1,2", "-1,2 +0,2"):
        patch = plain("x", f"@@ {starts} @@\n a\n-b\n+B\n").encode()
        assert apply(before, patch) == tools.git_apply(before, patch) == after
        assert apply(after, patch, reverse=True) == before
        refusal({"x": text("new\na\nb\n")}, patch)
        hunk = parse(patch, "x").files[0].hunks[0]
        assert (hunk.old_start, hunk.new_start) == (1, 1)
        if GNU_PATCH:
            assert gnu_patch(tools, before, patch) == after


def test_a_header_line_that_stands_twice_and_says_the_same(tools: Tools) -> None:
    patch = git_form("x").replace("index 1", "index 1234567..89abcde 100644\nindex 1").encode()
    before, after = {"x": text(ABC)}, {"x": text(ABC_NEW)}
    assert apply(before, patch) == tools.git_apply(before, patch) == after


@pytest.mark.parametrize(
    "stamp",
    ["", "\tThu Jan 01 00:00:00 1970 +0000", "\t(nonexistent)", " 2026-01-02 03:04:05", " "],
)
def test_dev_null_with_and_without_a_stamp(stamp: str, tools: Tools) -> None:
    """Mercurial and Subversion put one behind it."""
    now = "\tFri Jan 02 03:04:05 2026 +0000" if stamp else ""
    patch = (
        f"--- a/x{now}\n+++ /dev/null{stamp}\n@@ -1,3 +0,0 @@\n-a\n-b\n-c\n"
        f"--- /dev/null{stamp}\n+++ b/p/y{now}\n@@ -0,0 +1,3 @@\n+a\n+b\n+c\n"
    ).encode()
    before, after = {"x": text(ABC)}, {"p/y": text(ABC)}
    assert apply(before, patch) == tools.git_apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before
    if GNU_PATCH:
        assert gnu_patch(tools, before, patch) == after


PREFIXES: dict[str, tuple[str, str]] = {
    # id: (old name, new name), all of pkg/mod.py
    "a and b": ("a/pkg/mod.py", "b/pkg/mod.py"),
    "none": ("pkg/mod.py", "pkg/mod.py"),
    "dot": ("./pkg/mod.py", "./pkg/mod.py"),
    "index and work tree": ("i/pkg/mod.py", "w/pkg/mod.py"),
    "commit and work tree": ("c/pkg/mod.py", "w/pkg/mod.py"),
    "commit and index": ("c/pkg/mod.py", "i/pkg/mod.py"),
    "object and work tree": ("o/pkg/mod.py", "w/pkg/mod.py"),
    "numbers": ("1/pkg/mod.py", "2/pkg/mod.py"),
    "old and new": ("old/pkg/mod.py", "new/pkg/mod.py"),
    "releases": ("pkg-1.0/pkg/mod.py", "pkg-1.1/pkg/mod.py"),
    "backup": ("pkg/mod.py.orig", "pkg/mod.py"),
    "two prefixes": ("a/src/pkg/mod.py", "b/src/pkg/mod.py"),
    "one side has none": ("pkg/mod.py", "b/pkg/mod.py"),
    "parent": ("../old/pkg/mod.py", "../new/pkg/mod.py"),
    "absolute": ("/usr/lib/site-packages/pkg/mod.py", "/usr/lib/site-packages/pkg/mod.py"),
    "windows, git bash": ("a\\pkg\\mod.py", "b\\pkg\\mod.py"),
}


@pytest.mark.parametrize("stamped", [False, True], ids=["bare", "stamped"])
@pytest.mark.parametrize("name", PREFIXES)
def test_prefixes_found_by_themselves(name: str, stamped: bool) -> None:
    """The right file or a refusal; never another file of the tree."""
    tail = "\t2026-01-02 03:04:05.000000000 +0000" if stamped else ""
    old, new = PREFIXES[name]
    patch = f"--- {old}{tail}\n+++ {new}{tail}\n{HUNK}".encode()
    before: Tree = {"pkg/mod.py": text(ABC), "pkg/other.py": text(ABC), "top/mod.py": text(ABC)}
    after: Tree = {**before, "pkg/mod.py": text(ABC_NEW)}
    if name.startswith("windows"):
        with pytest.raises(PatchkitError) as caught:
            apply(before, patch, strip=None)
        assert (caught.value.code, caught.value.line) == ("path-not-found", 1)
        assert caught.value.hint
        return
    assert apply(before, patch, strip=None) == after
    assert apply(after, patch, strip=None, reverse=True) == before
    if not name.startswith(("parent", "absolute", "backup", "one side")):
        git = f"diff --git {old} {new}\nindex 1234567..89abcde 100644\n".encode() + patch
        assert apply(before, git, strip=None) == after


FOLDER_A: dict[str, tuple[list[str], str, str, str | None]] = {
    # id: (files, old name, new name, the one that is meant; None: nobody can know)
    "with prefix": (["a/x.py"], "a/a/x.py", "b/a/x.py", "a/x.py"),
    "without prefix": (["a/x.py"], "a/x.py", "a/x.py", "a/x.py"),
    "with prefix, twin on top": (["a/x.py", "x.py"], "a/a/x.py", "b/a/x.py", "a/x.py"),
    "top file, with prefix": (["a/x.py", "x.py"], "a/x.py", "b/x.py", "x.py"),
    "without prefix, twin on top": (["a/x.py", "x.py"], "a/x.py", "a/x.py", "a/x.py"),
    "folders a and b": (["a/x.py", "b/x.py"], "a/x.py", "b/x.py", None),
    "a in a": (["a/a/x.py", "a/x.py"], "a/a/a/x.py", "b/a/a/x.py", "a/a/x.py"),
    "a in a, without prefix": (["a/a/x.py"], "a/a/x.py", "a/a/x.py", "a/a/x.py"),
}


@pytest.mark.parametrize("name", FOLDER_A)
def test_a_folder_that_is_really_called_a(name: str) -> None:
    paths, old, new, meant = FOLDER_A[name]
    before: Tree = {path: text(ABC) for path in paths}
    patch = f"diff --git {old} {new}\n--- {old}\n+++ {new}\n{HUNK}".encode()
    if meant is None:
        with pytest.raises(PatchkitError) as caught:
            apply(before, patch, strip=None)
        assert caught.value.code in ("path-ambiguous", "two-names")
        assert "--strip" in (caught.value.hint or "")
        return
    found = outcome(before, patch, strip=None)
    if isinstance(found, PatchkitError):
        assert found.code in ("path-ambiguous", "two-names")
    else:
        assert found == {**before, meant: text(ABC_NEW)}
    level = 0 if old == new else 1
    assert apply(before, patch, strip=level) == {**before, meant: text(ABC_NEW)}


# -- hunks and files in another order -----------------------------------------------------------

TWENTY = "".join(f"{number}\n" for number in range(1, 21))
TOP = "@@ -2,3 +2,5 @@\n 2\n-3\n+three\n+three and a half\n+three and more\n 4\n"
LOW = "@@ -15,3 +15,3 @@\n 15\n-16\n+sixteen\n 17\n"
LOW_MOVED = LOW.replace("+15", "+17")
LOW_SERIES = LOW.replace("-15", "-17").replace("+15", "+17")
BOTH = TWENTY.replace("\n3\n", "\nthree\nthree and a half\nthree and more\n").replace(
    "\n16\n", "\nsixteen\n"
)

TWICE: dict[str, str] = {
    "in order, lines of the first file": git_form("x", TOP) + git_form("x", LOW_MOVED),
    "in order, lines as a series": git_form("x", TOP) + git_form("x", LOW_SERIES),
    "out of order": git_form("x", LOW) + git_form("x", TOP),
    "with another between": git_form("x", TOP) + git_form("y") + git_form("x", LOW_SERIES),
    "plain": plain("x", TOP) + plain("x", LOW_SERIES),
    "plain, out of order": plain("x", LOW) + plain("x", TOP),
}


@pytest.mark.parametrize("name", TWICE)
def test_one_file_named_twice(name: str, tools: Tools) -> None:
    before: Tree = {"x": text(TWENTY), "y": text(ABC)}
    after: Tree = {"x": text(BOTH), "y": text(ABC_NEW) if "\n+++ b/y" in TWICE[name] else text(ABC)}
    patch = TWICE[name].encode()
    assert apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before
    assert tools.git_apply(before, patch) == after
    if GNU_PATCH:
        assert gnu_patch(tools, before, patch) == after


def test_one_file_named_twice_where_the_second_does_not_fit() -> None:
    error = refusal({"x": text(TWENTY)}, git_form("x", TOP) + git_form("x", TOP))
    assert isinstance(error, HunkError)
    assert error.line == git_form("x", TOP).count("\n") + 5
    assert error.file == "x"


DISORDER: dict[str, tuple[str, int]] = {
    # id: (hunks, line of the patch that is in question)
    "out of order": (LOW + TOP, 8),
    "twice the same": (LOW + LOW, 8),
    "overlapping": (LOW + "@@ -17,2 +17,2 @@\n-17\n+seventeen\n 18\n", 8),
    "insertions at one line, apart": ("@@ -5,0 +6 @@\n+new\n@@ -4,0 +6 @@\n+more\n", 5),
    "second inside the first": (
        "@@ -2,5 +2,5 @@\n 2\n-3\n+three\n 4\n 5\n 6\n@@ -4,2 +4,2 @@\n 4\n-5\n+five\n", 10,
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", [plain, git_form], ids=["plain", "git"])
@pytest.mark.parametrize("name", DISORDER)
def test_hunks_that_overlap_or_stand_out_of_order(
    name: str, form: Callable[[str, str], str]
) -> None:
    hunks, line = DISORDER[name]
    error = refusal({"x": text(TWENTY)}, form("x", hunks))
    assert error.line == line + form("x", "").count("\n") - 2


# -- counts that lie ----------------------------------------------------------------------------

BODIES: dict[str, tuple[int, int, str]] = {
    # id: (old count, new count, body) of lines 5 and on of TWENTY
    "change": (3, 3, " 5\n-6\n+six\n 7\n"),
    "insertion": (2, 3, " 5\n+five and a half\n 6\n"),
    "removal": (3, 2, " 5\n-6\n 7\n"),
    "long": (6, 6, " 5\n 6\n 7\n-8\n+eight\n 9\n 10\n"),
}
TAILS: dict[str, str] = {
    "end of file": "",
    "another hunk": "@@ -15,3 +15,3 @@\n 15\n-16\n+sixteen\n 17\n",
    "another git file": git_form("y"),
    "another plain file": plain("y"),
    "signature": SIGNATURE,
    "prose": "\nOnly in b: z\n",
}
LIES = [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (1, 1), (1, -1), (-1, 1)]


def with_counts(old: int, new: int, body: str, tail: str) -> str:
    return f"--- a/x\n+++ b/x\n@@ -5,{old} +5,{new} @@ 4\n{body}{tail}"


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("body", BODIES)
def test_counts_that_lie_by_one(body: str, tail: str) -> None:
    """Refused, and counted anew where the body leaves one reading; then it is the right patch."""
    old, new, rows = BODIES[body]
    right = with_counts(old, new, rows, TAILS[tail]).encode()
    tree: Tree = {"x": text(TWENTY), "y": text(ABC)}
    after = apply(tree, right)
    assert recount(right) == (right, [])
    for by_old, by_new in LIES:
        patch = with_counts(old + by_old, new + by_new, rows, TAILS[tail]).encode()
        refusal(tree, patch)
        fixed, found = recount(patch)
        if tail == "prose" and by_old == by_new == 1:
            assert fixed == patch  # the blank line is context then, and nothing is wrong
            continue
        assert found, (by_old, by_new)
        if fixed == patch:
            assert all(one.unclear for one in found), (by_old, by_new)
        elif fixed == right:
            assert apply(tree, fixed) == after
        else:  # with the blank line as context, which it may well be: then it must be there
            assert tail == "prose", (by_old, by_new)
            refusal(tree, fixed)


# -- damage -------------------------------------------------------------------------------------

GAPPY = "def f():\n\n    a = 1\n\n    b = 2\n\n\n\ndef g():\n\n    c = 3\n"


@pytest.mark.parametrize("keep", range(6))
def test_blank_context_lines_whose_space_was_eaten(keep: int, tools: Tools) -> None:
    """All of them, or all but one; git and patch read them too."""
    before, after = {"x": text(GAPPY)}, {"x": text(GAPPY.replace("b = 2", "b = 3"))}
    patch = tools.git_diff(before, after, "-U9")
    rows = split(patch)
    blank = [at for at, row in enumerate(rows) if row == b" \n"]
    assert len(blank) == 6
    for at in blank:
        if at != blank[keep]:
            rows[at] = b"\n"
    patch = b"".join(rows)
    assert apply(before, patch) == tools.git_apply(before, patch) == after
    assert apply(after, patch, reverse=True) == before
    if GNU_PATCH:
        assert gnu_patch(tools, before, patch) == after
    crlf_before, crlf_after = (
        {"x": text(tree["x"].data.replace(b"\n", b"\r\n"))} for tree in (before, after)
    )
    assert apply(crlf_before, added(patch)) == crlf_after


def test_blank_lines_at_the_end_that_were_eaten_whole() -> None:
    """An editor that trims the end of the file takes context lines along."""
    rows = "a\nb\n\n\n"
    hunk = "@@ -1,4 +1,4 @@\n a\n-b\n+B\n \n \n"
    for form in (plain, git_form):
        good = form("x", hunk)
        assert apply({"x": text(rows)}, good.encode()) == {"x": text("a\nB\n\n\n")}
        error = refusal({"x": text(rows)}, good.rstrip() + "\n")
        assert "missing" in error.message
        right_or_refused({"x": text(rows)}, good.rstrip(" \n") + "\n\n", {"x": text("a\nB\n\n\n")})


SPOILT: dict[str, tuple[str, str]] = {
    # id: (what is replaced, by what) in a patch of TWENTY
    "space before a context line eaten": ("\n 15\n", "\n15\n"),
    "context line indented": ("\n 15\n", "\n  15\n"),
    "space at the end of a line": ("\n 15\n", "\n 15 \n"),
    "no-break space for a space": ("\n 15\n", "\n\u00a015\n"),
    "line wrapped": ("\n+sixteen\n", "\n+six\nteen\n"),
    "line wrapped, indented": ("\n+sixteen\n", "\n+six\n teen\n"),
    "line lost": ("\n 15\n", "\n"),
    "removed line lost": ("\n-16\n", "\n"),
    "added line lost": ("\n+sixteen\n", "\n"),
    "context line twice": ("\n 15\n", "\n 15\n 15\n"),
    "added line twice": ("\n+sixteen\n", "\n+sixteen\n+sixteen\n"),
    "dash for a minus": ("\n-16\n", "\n\u201316\n"),
    "quoted with a sign": ("\n 15\n-16\n+sixteen\n 17\n", "\n> 15\n>-16\n>+sixteen\n> 17\n"),
    "answered with a sign": ("\n 15\n", "\n> 15\n"),
    "coloured": ("\n-16\n", "\n\x1b[31m-16\x1b[m\n"),
    "word diff": ("\n-16\n+sixteen\n", "\n[-16-]{+sixteen+}\n"),
    "conflict marks": ("\n-16\n", "\n<<<<<<< ours\n-16\n=======\n>>>>>>> theirs\n"),
    "blank line put in": ("\n-16\n", "\n\n-16\n"),
    "at signs lost": ("@@ -15,3 +15,3 @@", "-15,3 +15,3"),
    "at signs lost at the end": ("@@ -15,3 +15,3 @@", "@@ -15,3 +15,3"),
    "dots for the numbers": ("@@ -15,3 +15,3 @@", "@@ ... @@"),
    "negative count": ("@@ -15,3 +15,3 @@", "@@ -15,-3 +15,3 @@"),
    "line and count swapped": ("@@ -15,3 +15,3 @@", "@@ -3,15 +3,15 @@"),
    "old name lost": ("--- a/x\n", ""),
    "new name lost": ("+++ b/x\n", ""),
    "names swapped": ("--- a/x\n+++ b/x\n", "+++ b/x\n--- a/x\n"),
    "names indented": ("--- a/x\n+++ b/x\n", " --- a/x\n +++ b/x\n"),
    "names quoted by an answer": ("--- a/x\n+++ b/x\n", "> --- a/x\n> +++ b/x\n"),
    "no space behind the dashes": ("--- a/x\n+++ b/x\n", "---a/x\n+++b/x\n"),
}


@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("name", SPOILT)
def test_spoilt_lines(name: str, where: str) -> None:
    """No damage to one file is skipped in silence for the sake of the other."""
    good, bad = SPOILT[name]
    spoilt = plain("x", LOW).replace(good, bad, 1)
    assert spoilt != plain("x", LOW)
    if name == "at signs lost" and where == "first":
        return  # a text that gives two names: there is no hunk left in it
    patch = spoilt + plain("y") if where == "first" else plain("y") + spoilt
    refusal({"x": text(TWENTY), "y": text(ABC)}, patch)


CUT_TREE: Tree = {
    "one": text("".join(f"{n}\n" for n in range(1, 9))),
    "two": text(ABC),
    "three": text(ABC),
    "four": text(ABC),
}
CUT_AFTER: list[Mapping[str, FileState | None]] = [
    {"one": text("1\n2\n3\n4\nfive\n6\n7\n8\n")},
    {"two": text(ABC_NEW)},
    {"three": None},
    {"new": text("n\n")},
    {"four": None, "five": text(ABC_NEW)},
]


def cut_files(git: bool) -> list[str]:
    one = "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
    gone, new = "@@ -1,3 +0,0 @@\n-a\n-b\n-c\n", "@@ -0,0 +1 @@\n+n\n"
    if not git:
        return [
            plain("one", one),
            plain("two"),
            f"--- a/three\n+++ /dev/null\n{gone}",
            f"--- /dev/null\n+++ b/new\n{new}",
        ]
    three = (
        "diff --git a/three b/three\ndeleted file mode 100644\nindex 1234567..0000000\n"
        f"--- a/three\n+++ /dev/null\n{gone}"
    )
    four = (
        "diff --git a/new b/new\nnew file mode 100644\nindex 0000000..1234567\n"
        f"--- /dev/null\n+++ b/new\n{new}"
    )
    five = (
        "diff --git a/four b/five\nsimilarity index 50%\nrename from four\nrename to five\n"
        f"index 1234567..89abcde 100644\n--- a/four\n+++ b/five\n{HUNK}"
    )
    return [git_form("one", one), git_form("two"), three, four, five]


@pytest.mark.parametrize("form", ["plain", "git", "git, CRLF headers", "mail"])
def test_a_patch_cut_off_at_every_byte(form: str) -> None:
    """It is refused, or it ends with a whole file; never a file in part."""
    files = cut_files(form != "plain")
    states = [CUT_TREE]
    for change in CUT_AFTER[: len(files)]:
        state: dict[str, FileState | None] = {**states[-1], **change}
        states.append({path: one for path, one in state.items() if one is not None})
    head = "From: A <a@b>\nSubject: cut\n\nWords.\n---\n x | 2 +-\n\n" if form == "mail" else ""
    patch = (head + "".join(files) + (SIGNATURE if form == "mail" else "")).encode()
    tree = CUT_TREE
    if "CRLF" in form:
        patch = patch.replace(b"\n", b"\r\n")
        tree, *states = (
            {path: text(one.data.replace(b"\n", b"\r\n")) for path, one in state.items()}
            for state in (CUT_TREE, *states)
        )
    ends = [len(head) + sum(map(len, files[: n + 1])) for n in range(len(files))]
    if "CRLF" in form:
        ends = [end + "".join(files)[:end].count("\n") for end in ends]
    for size in range(len(patch)):
        whole = sum(end <= size for end in ends)
        found = outcome(tree, patch[:size])
        if isinstance(found, PatchkitError):
            assert size not in ends, "a cut between two files cannot be seen"
            refusal(tree, patch[:size])
        else:
            assert found == states[whole], patch[:size][-80:]


@pytest.mark.parametrize(
    "patch",
    [
        "diff --git a/x b/lib/foo.py\nsimilarity index 100%\nrename from x\nrename to lib/foo.py\n",
        "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n",
        "diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n",
    ],
    ids=["rename", "mode", "empty file"],
)
def test_a_header_without_hunks_cut_off_at_every_byte(patch: str) -> None:
    """A name or blob that lost its end is another one."""
    tree: Tree = {"x": text(ABC)}
    apply(tree, patch.encode())
    for size in range(len(patch)):
        if not patch[:size].endswith("file mode 100644\n"):  # Mercurial writes no index line
            refusal(tree, patch[:size])


# -- what is no unified diff --------------------------------------------------------------------

GOOD = git_form("x")


def zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("fix.patch", data * 9)
    return out.getvalue()


def tarred(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("fix.patch")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def mail(body: str, *headers: str, start: str = "From 1234 Mon Sep 17 00:00:00 2001\n") -> str:
    lines = "".join(f"{header}\n" for header in headers)
    return f"{start}From: A U Thor <a@b>\nSubject: [PATCH] fix\nMIME-Version: 1.0\n{lines}\n{body}"


def encoded(body: str, how: str, **more: str) -> str:
    data = body.encode()
    made = quopri.encodestring(data) if how == "quoted-printable" else base64.encodebytes(data)
    return mail(
        made.decode(),
        "Content-Type: text/plain; charset=UTF-8",
        f"Content-Transfer-Encoding: {how}",
        **more,
    )


def attached(body: str, how: str) -> str:
    data = body.encode()
    made = {
        "7bit": body,
        "base64": base64.encodebytes(data).decode(),
        "quoted-printable": quopri.encodestring(data).decode(),
    }[how]
    return mail(
        "This is a multi-part message.\n--=_1\nContent-Type: text/plain\n\nSee the attachment.\n\n"
        f"--=_1\nContent-Type: text/x-patch; name=fix.patch\nContent-Transfer-Encoding: {how}\n"
        f"Content-Disposition: attachment; filename=fix.patch\n\n{made}\n--=_1--\n",
        'Content-Type: multipart/mixed; boundary="=_1"',
    )


#: A change that reads just as well, and wrongly, with the signs of the encoding left in.
EQUALS = git_form("x", "@@ -1,3 +1,3 @@\n a\n-b\n+key = value\n c\n")

LOGIN = (
    '<!DOCTYPE html>\n<html lang="en">\n<head><title>Sign in</title></head>\n'
    "<body><form>Password</form></body>\n</html>\n"
)

CONTEXT_DIFF = (
    "*** a/x\t2026-01-01\n--- b/x\t2026-01-01\n***************\n*** 1,3 ****\n  a\n! b\n  c\n"
    "--- 1,3 ----\n  a\n! B\n  c\n"
)
COMBINED = (
    "diff --cc x\nindex 1234567,2345678..89abcde\n--- a/x\n+++ b/x\n"
    "@@@ -1,3 -1,3 +1,3 @@@\n  a\n- b\n -x\n++B\n  c\n"
)

NO_PATCH: dict[str, tuple[str | bytes, str]] = {
    # id: (data, a word of what is said)
    "empty": ("", "empty"),
    "blank": ("\n\n", "empty"),
    "byte order mark alone": ("\ufeff", "empty"),
    "login page": (LOGIN, "html"),
    "login page with a byte order mark": ("\ufeff" + LOGIN, "html"),
    "login page, CRLF": (LOGIN.replace("\n", "\r\n"), "html"),
    "login page behind blank lines": ("\n\n  " + LOGIN, "html"),
    "login page behind a comment": ("<!-- served by x -->\n" + LOGIN, "html"),
    "xhtml": ('<?xml version="1.0"?>\n' + LOGIN, "html"),
    "page that shows a patch": (f"<!doctype html>\n<html><pre>\n{GOOD}</pre></html>\n", "html"),
    "head alone": ("<head><title>404</title></head>\n", "html"),
    "json": ('{"message": "Not Found"}\n', "no patch"),
    "not found": ("404: Not Found", "no patch"),
    "python file": ("import os\n\n\ndef f():\n    return 1\n", "no patch"),
    "pointer of git-lfs": (
        "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n", "no patch"
    ),
    "diffstat alone": (" x | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n", "--stat"),
    "raw": (":100644 100644 1234567 89abcde M\tx\n", "--raw"),
    "names and status": ("M\tx\nA\ty\n", "--name-status"),
    "answer to a mail": ("".join(f"> {row}\n" for row in GOOD.splitlines()), "quoted"),
    "indented": ("".join(f"    {row}\n" for row in plain("x").splitlines()), "indented"),
    "git log --graph": ("".join(f"| {row}\n" for row in GOOD.splitlines()), "quoted"),
    "word diff": (
        GOOD.replace(" a\n-b\n+B\n c\n", "[-a-]{+A+}\nb\nc\n"), "--word-diff",
    ),
    "word diff of indented lines": (
        GOOD.replace(" a\n-b\n+B\n c\n", " a\n [-b-]{+B+}\n c\n"), "--word-diff",
    ),
    "other indicators": (GOOD.replace("+B", ">B"), "--output-indicator"),
    "deletion without the lines": (
        "diff --git a/x b/x\ndeleted file mode 100644\nindex de98044..0000000\n",
        "--irreversible-delete",
    ),
    "gzip": (gzip.compress(GOOD.encode()), "gzip"),
    "bzip2": (bz2.compress(GOOD.encode()), "bzip2"),
    "xz": (lzma.compress(GOOD.encode()), "xz"),
    "zip": (zipped(GOOD.encode()), "zip"),
    "zstd": (b"\x28\xb5\x2f\xfd" + b"\0" * 20, "zst"),
    "utf-16": (GOOD.encode("utf-16"), "utf-16"),
    "utf-16, no mark": (GOOD.encode("utf-16-le"), ""),
    "utf-32": (GOOD.encode("utf-32"), "utf-"),
    "context diff": (CONTEXT_DIFF, "context diff"),
    "normal diff": ("2c2\n< b\n---\n> B\n", "normal diff"),
    "normal diff of folders": ("diff -r a/x b/x\n2c2\n< b\n---\n> B\n", "normal diff"),
    "ed script": ("2c\nB\n.\n", "ed script"),
    "ed script that takes out alone": ("5,6d\n2d\n", "ed script"),
    "side by side": ("a\t\t\ta\nb\t\t      |\tB\nc\t\t\tc\n", "no patch"),
    "combined": (COMBINED, "combined"),
    "combined behind a good one": (
        git_form("y") + COMBINED.replace("--cc", "--combined"), "combined"
    ),
    "coloured": (
        "".join(f"\x1b[1m{row}\x1b[m\n" for row in GOOD.splitlines()), "--no-color",
    ),
    "coloured, behind a good one": (
        git_form("y") + "".join(f"\x1b[1m\x1b[36m{row}\x1b[m\n" for row in GOOD.splitlines()),
        "--no-color",
    ),
    "symlink made without its target": (
        "diff --git a/l b/l\nnew file mode 120000\n" + git_form("x"), "cut off",
    ),
    "symlink removed without its target": (
        "diff --git a/l b/l\ndeleted file mode 120000\n" + git_form("x"), "cut off",
    ),
    "binary data without the lines above": (
        git_form("x") + "GIT binary patch\nliteral 1\nIc${MZ000310RR91\n\n", "binary",
    ),
    "binary data without its index line": (
        "diff --git a/x b/x\nGIT binary patch\nliteral 1\nIc${MZ000310RR91\n\n" + git_form("y"),
        "full blob ids",
    ),
    "quoted-printable mail": (encoded(EQUALS, "quoted-printable"), "quoted-printable"),
    "quoted-printable mail, capitals": (
        encoded(EQUALS, "quoted-printable").replace(
            "Transfer-Encoding: quoted-printable", "transfer-encoding:  Quoted-Printable"
        ),
        "quoted-printable",
    ),
    "quoted-printable mail without a From line": (
        encoded(EQUALS, "quoted-printable", start=""), "quoted-printable",
    ),
    "quoted-printable mail, CRLF": (
        encoded(EQUALS, "quoted-printable").replace("\n", "\r\n"), "quoted-printable",
    ),
    "base64 mail": (encoded(GOOD, "base64"), "base64"),
    "base64 mail without a From line": (encoded(GOOD, "base64", start=""), "base64"),
    "base64 mail behind a good one": (mail(git_form("y")) + encoded(GOOD, "base64"), "base64"),
    "quoted-printable mail behind a good one": (
        mail(git_form("y") + SIGNATURE) + encoded(EQUALS, "quoted-printable"), "quoted-printable",
    ),
    "base64 attachment": (attached(GOOD, "base64"), "base64"),
    "quoted-printable attachment": (attached(EQUALS, "quoted-printable"), "quoted-printable"),
    "base64 attachment behind a good mail": (
        mail(git_form("y") + SIGNATURE) + attached(GOOD, "base64"), "base64",
    ),
    "uuencoded": ("begin 644 fix.patch\n#86)C\n`\nend\n", "no patch"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_PATCH)
def test_what_is_no_patch_is_named(name: str) -> None:
    data, word = NO_PATCH[name]
    error = refusal({"x": text(ABC), "y": text(ABC)}, data)
    assert word in f"{error.message} {error.hint} {' '.join(error.detail)}".lower()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(attached(GOOD, "7bit"), id="attachment"),
        pytest.param(tarred(GOOD.encode()), id="tar"),
        pytest.param(mail(GOOD, "Content-Transfer-Encoding: 8bit"), id="8bit"),
        pytest.param(mail(GOOD, "Content-Type: text/plain; format=flowed"), id="flowed"),
        pytest.param(f"The\nContent-Transfer-Encoding: base64\nis new.\n\n{GOOD}", id="prose"),
        pytest.param("\ufeff" + GOOD, id="byte order mark"),
        pytest.param("\ufeff" + plain("x"), id="byte order mark, plain"),
        pytest.param("\ufeff" + mail(GOOD), id="byte order mark, mail"),
        pytest.param(f"```diff\n{GOOD}```\n", id="fence of markdown"),
        pytest.param(f"{GOOD}\n<!-- end -->\n", id="comment behind"),
        pytest.param(f"cat <<EOF | patch -p1\n{GOOD}EOF\n", id="shell"),
        pytest.param(f"$ git diff\n{GOOD}$ \n", id="terminal"),
    ],
)  # fmt: skip
def test_wrappings_that_a_reader_may_look_through(data: str | bytes) -> None:
    right_or_refused({"x": text(ABC)}, data, {"x": text(ABC_NEW)})


@pytest.mark.parametrize("prose", ["", "\ufeff"])
def test_a_mail_that_is_not_encoded_comes_out_right(prose: str) -> None:
    for headers in (
        ("Content-Type: text/plain; charset=UTF-8", "Content-Transfer-Encoding: 8bit"),
        ("Content-Transfer-Encoding: 7bit",),
    ):
        patch = (prose + mail(GOOD + SIGNATURE, *headers)).encode()
        assert apply({"x": text(ABC)}, patch) == {"x": text(ABC_NEW)}


def test_content_that_speaks_of_encodings(tools: Tools) -> None:
    """A patch of a program that writes mails."""
    old = "Content-Transfer-Encoding: base64\nMIME-Version: 1.0\nx\n<html>\n"
    before, after = {"x": text(old)}, {"x": text(old.replace("base64", "quoted-printable"))}
    patch = tools.git_diff(before, after)
    assert apply(before, patch) == after
    before, after = {"x": text(ABC)}, {"x": text(ABC), "y": text(encoded(EQUALS, "base64"))}
    patch = tools.git_diff(before, after)
    assert apply(before, patch) == after


# -- diagnosis ----------------------------------------------------------------------------------

CODE = """\
import os


class First:
    def one(self, x):
        a = 1
        b = 2
        return a + b


class Second:
    def two(self, x):
        c = 1
        d = 2
        return c + d
"""
IN_TWO = (
    "@@ -12,4 +12,4 @@ class Second:\n     def two(self, x):\n         c = 1\n-        d = 2\n"
    "+        d = 3\n         return c + d\n"
)
DONE = CODE.replace("d = 2", "d = 3")
IN_BOTH = (
    "@@ -5,4 +5,4 @@ class First:\n     def one(self, x):\n         a = 1\n-        b = 2\n"
    "+        b = 9\n         return a + b\n" + IN_TWO
)
NEW_FILE = (
    "diff --git a/x.py b/x.py\nnew file mode 100644\n--- /dev/null\n+++ b/x.py\n"
    "@@ -0,0 +1,3 @@\n+a\n+b\n+c\n"
)


@dataclass(frozen=True)
class Refusal:
    """Contents of x.py (None: absent), a patch of it, and what must be said."""

    content: str | None
    patch: str
    codes: tuple[str, ...]
    reason: str | None = None
    shows: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


WHY: dict[str, Refusal] = {
    "not found": Refusal(
        CODE.replace("d = 2", "d = 4"),
        git_form("x.py", IN_TWO),
        ("hunk-not-found",),
        "not-found",
        ("d = 2", "d = 4", "def two(self, x):", "75%"),
        ("expected", "found", "nearest"),
    ),
    "ambiguous": Refusal(
        "new\n" + TWENTY * 2,
        git_form("x.py", LOW),
        ("hunk-ambiguous",),
        None,
        ("16", "36"),
        ("candidates",),
    ),
    "already applied": Refusal(DONE, git_form("x.py", IN_TWO), ("already-applied",)),
    "already applied, two hunks": Refusal(
        DONE.replace("b = 2", "b = 9"), git_form("x.py", IN_BOTH), ("already-applied",)
    ),
    "half applied": Refusal(
        DONE, git_form("x.py", IN_BOTH), ("hunk-not-found",), None, ("half applied",),
        ("half_applied",),
    ),
    "half applied, the other half": Refusal(
        CODE.replace("b = 2", "b = 9"), git_form("x.py", IN_BOTH), ("hunk-not-found",), None,
        ("half applied",), ("half_applied",),
    ),
    "file missing": Refusal(None, git_form("x.py", IN_TWO), ("file-missing",)),
    "file exists": Refusal("other\n", NEW_FILE, ("file-exists",)),
    "file exists, as the patch makes it": Refusal(
        ABC, NEW_FILE, ("file-exists", "already-applied"), None, ("already",)
    ),
    "line ends": Refusal(
        CODE.replace("\n", "\r\n"), git_form("x.py", IN_TWO), ("hunk-not-found",), "line-ends",
        ("--eol",),
    ),
    "white space alone": Refusal(
        CODE.replace("        d = 2", "\td = 2"), git_form("x.py", IN_TWO), ("hunk-not-found",),
        "whitespace", ("\\t",),
    ),
    "line ends of short lines": Refusal(
        ABC.replace("\n", "\r\n"), git_form("x.py"), ("hunk-not-found",), "line-ends", ("--eol",),
    ),
    "white space alone, short lines": Refusal(
        "\ta\n\tb\n\tc\n", git_form("x.py"), ("hunk-not-found",), "whitespace", ("\\t",),
    ),
    "white space alone, every line": Refusal(
        CODE.replace("    ", "\t"), git_form("x.py", IN_TWO), ("hunk-not-found",), "whitespace",
        ("\\t", "class Second:"),
    ),
    "another def": Refusal(
        "top\n" + CODE.replace("class Second", "class Third").replace("def two", "def three"),
        git_form("x.py", IN_TWO.replace("     def two(self, x):\n", "").replace(
            "-12,4 +12,4", "-13,3 +13,3").replace("class Second:", "def two(self, x):")),
        ("hunk-wrong-place",), None, ("def three",), ("candidates",),
    ),
    "applied and not applied do not add up": Refusal(
        DONE.replace("b = 2", "b = 7"), git_form("x.py", IN_BOTH), ("hunk-not-found",), None,
        ("b = 7",),
    ),
    "a removal that is still there in part": Refusal(
        "a\nb\n", "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1 @@\n a\n-b\n-c\n", ("hunk-not-found",),
    ),
    "removed file that is gone": Refusal(
        None,
        "diff --git a/x.py b/x.py\ndeleted file mode 100644\n--- a/x.py\n+++ /dev/null\n"
        "@@ -1,3 +0,0 @@\n-a\n-b\n-c\n",
        ("file-missing", "already-applied"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHY)
def test_why_a_hunk_is_refused(name: str) -> None:
    case = WHY[name]
    tree = {} if case.content is None else {"x.py": text(case.content)}
    error = refusal({**tree, "z.py": text("z\n")}, case.patch)
    assert error.code in case.codes, error.message
    assert error.file == "x.py"
    if case.reason is not None:
        assert error.data["reason"] == case.reason
    shown = "\n".join((error.message, error.hint or "", *error.detail))
    for part in case.shows:
        assert part in shown
    for key in case.data:
        assert error.data[key]
    if isinstance(error, HunkError):
        assert error.hunk
        row = case.patch.splitlines()[(error.line or 0) - 1]
        assert row.startswith("@@ ")


DOUBLED: dict[str, tuple[str, str, str | None]] = {
    # id: (content, hunk, content then; None: refused)
    "the line is there already": (
        "import os\nimport re\n", "@@ -1,2 +1,3 @@\n+import os\n import os\n import re\n",
        "import os\nimport os\nimport re\n",
    ),
    "once more": (
        "import os\nimport os\nimport re\n",
        "@@ -1,2 +1,3 @@\n+import os\n import os\n import re\n",
        None,
    ),
    "fits there and back": (
        "a\na\nb\nc\n", "@@ -1,3 +1,4 @@\n+a\n a\n a\n b\n", "a\na\na\nb\nc\n",
    ),
    "fits there and back, without context behind": (
        "a\na\n", "@@ -1,2 +1,3 @@\n+a\n a\n a\n", "a\na\na\n",
    ),
    "one line of context": ("h\nh\nt\n", "@@ -1 +1,2 @@\n+h\n h\n", "h\nh\nh\nt\n"),
    "removal of a doubled line": (
        "a\na\na\nb\n", "@@ -1,4 +1,3 @@\n-a\n a\n a\n b\n", "a\na\nb\n",
    ),
    "removal of a doubled line, done": (
        "a\na\nb\n", "@@ -1,4 +1,3 @@\n-a\n a\n a\n b\n", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBLED)
def test_doubled_lines_at_the_top(name: str, tools: Tools) -> None:
    """A reverse dry run alone says of some of them that they are applied."""
    content, hunk, then = DOUBLED[name]
    patch = git_form("x", hunk)
    tree: Tree = {"x": text(content)}
    if then is None:
        assert refusal(tree, patch).code == "already-applied"
        return
    assert apply(tree, patch.encode()) == tools.git_apply(tree, patch.encode()) == {"x": text(then)}


def test_applied_is_said_of_whole_file_patches_alone() -> None:
    """One hunk of two that is there, or a twin of it, is no file patch that is there."""
    twin = CODE + DONE.split("\n\n\n")[2]
    error = refusal({"x.py": text(twin.replace("b = 2", "b = 5"))}, git_form("x.py", IN_BOTH))
    assert error.code != "already-applied"
    first = git_form("x.py", IN_TWO)
    error = refusal({"x.py": text(DONE), "y.py": text(CODE)}, first + git_form("y.py", IN_TWO))
    assert (error.code, error.file) == ("already-applied", "x.py")


# -- the real command ---------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "pkg").mkdir(parents=True)
    return folder


def failed(
    cli: Cli, root: Path, patch: bytes, *options: str
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """``error`` and ``diagnosis`` of a refused patch, and what the text form says."""
    file = root.parent / "fix.patch"
    file.write_bytes(patch)
    before = read_tree(root)
    answer = cli("--root", root, "--json", "apply", *options, file, check=3).json
    assert answer["ok"] is False
    assert answer["exit_code"] == 3
    error = answer["error"]
    assert error["code"] and error["message"] and error["hint"]
    assert isinstance(error["line"], int)
    said = cli("--root", root, "apply", *options, file, check=3)
    assert said.stdout == ""
    assert {path: state for path, state in read_tree(root).items() if ".patchkit" not in path} == {
        path: state for path, state in before.items() if ".patchkit" not in path
    }
    return error, answer.get("diagnosis", {}), said.stderr


@pytest.mark.parametrize(
    "name",
    ["not found", "ambiguous", "already applied", "half applied", "line ends", "white space alone"],
)
def test_the_command_carries_the_whole_diagnosis(cli: Cli, root: Path, name: str) -> None:
    case = WHY[name]
    (root / "pkg" / "x.py").write_bytes((case.content or "").encode())
    error, diagnosis, said = failed(cli, root, case.patch.replace("x.py", "pkg/x.py").encode())
    assert error["code"] in case.codes
    assert (error["file"], error["hunk"]) == ("pkg/x.py", 2 if name == "half applied" else 1)
    assert error["patch"].endswith("fix.patch")
    if case.reason:
        assert diagnosis["reason"] == case.reason
    for key in case.data:
        assert diagnosis[key]
    for part in case.shows:
        assert part in said
    if name == "not found":
        near = diagnosis["nearest"]
        near = near[0] if isinstance(near, list) else near
        assert near["line"] == 12
        assert near["similarity"] == pytest.approx(0.75, abs=0.001)
        assert near["inside"] == "class Second:"
        assert "        d = 2" in diagnosis["expected"]
        assert "        d = 4" in diagnosis["found"]


@pytest.mark.parametrize("name", ["file missing", "file exists"])
def test_the_command_on_files_that_are_not_as_they_should_be(
    cli: Cli, root: Path, name: str
) -> None:
    case = WHY[name]
    if case.content is not None:
        (root / "pkg" / "x.py").write_bytes(case.content.encode())
    (root / "pkg" / "y.py").write_bytes(ABC.encode())
    patch = case.patch.replace("x.py", "pkg/x.py") + git_form("pkg/y.py")
    error, _, said = failed(cli, root, patch.encode(), "--strip", "1")
    assert error["code"] in case.codes
    assert error["file"] == "pkg/x.py"
    assert "pkg/x.py" in said


@pytest.mark.parametrize("name", ["login page", "gzip", "base64 mail", "context diff"])
def test_the_command_on_what_is_no_patch(cli: Cli, root: Path, name: str) -> None:
    data, word = NO_PATCH[name]
    (root / "pkg" / "x").write_bytes(ABC.encode())
    error, _, said = failed(cli, root, as_bytes(data))
    assert word in f"{error['message']} {error['hint']}".lower()
    assert "hint: " in said
    assert error["line"] >= 1


def test_the_command_with_line_ends_of_several_forms(cli: Cli, root: Path) -> None:
    """Of four files each keeps its own ends, also the mixed one, line by line."""
    patch = b""
    wanted: dict[str, FileState] = {}
    for number, ends in enumerate(("LF", "CRLF", "alternating", "CRLF at the top, LF below")):
        old, new = sides(FILE_ENDS[ends])
        name = f"pkg/{number}.txt"
        (root / name).write_bytes(b"".join(old))
        wanted[name] = text(b"".join(new))
        diff = eaten(unified(old, new)).replace(b"a/x", b"a/" + name.encode())
        patch += diff.replace(b"b/x", b"b/" + name.encode())
    before = read_tree(root)
    error, diagnosis, said = failed(cli, root, patch)
    assert (error["file"], diagnosis["reason"]) == ("pkg/1.txt", "line-ends")
    assert "--eol" in said
    file = root.parent / "fix.patch"
    cli("--root", root, "apply", "--eol", file)
    found = read_tree(root)
    assert {path: found[path] for path in wanted} == wanted
    cli("--root", root, "revert", "--all")
    assert read_tree(root) == before


def test_the_command_counts_hunks_anew(cli: Cli, root: Path) -> None:
    old, new, body = BODIES["change"]
    tail = git_form("pkg/y")
    right = with_counts(old, new, body, tail).replace("/x", "/pkg/x")
    (root / "pkg" / "x").write_bytes(TWENTY.encode())
    (root / "pkg" / "y").write_bytes(ABC.encode())
    wrong = with_counts(old + 1, new - 1, body, tail).replace("/x", "/pkg/x")
    error, _, said = failed(cli, root, wrong.encode())
    assert error["line"] in (3, 7, 8)
    assert "lint --fix" in said
    file = root.parent / "fix.patch"
    cli("lint", "--fix", file)
    assert file.read_bytes() == right.encode()
    cli("--root", root, "apply", file)
    assert (root / "pkg" / "x").read_bytes() == TWENTY.replace("\n6\n", "\nsix\n").encode()


def test_the_command_on_names_and_kinds_of_every_sort(cli: Cli, root: Path, tools: Tools) -> None:
    """One patch of all names, links, modes and binary files; there and back."""
    names = [n for n in NAMES.values() if n not in ("dev/null", "ü/é", "a/x", "b/x")]
    before: Tree = {f"pkg/{name}": text(ABC) for name in names}
    after: Tree = {f"pkg/{name}": text(ABC_NEW) for name in names}
    before |= {"pkg/l": link("x"), "pkg/m": text(ABC), "pkg/b": text(b"\0old")}
    before |= {"pkg/empty": text("")}
    after |= {"pkg/l": link("y"), "pkg/m": text(ABC, 0o755), "pkg/b": text(b"\0new")}
    after |= {"pkg/other": text("")}
    shutil.rmtree(root)
    write_tree(before, root)
    file = root.parent / "all.patch"
    file.write_bytes(tools.git_diff(before, after, "--binary", "--no-renames"))
    cli("--root", root, "apply", "--strip", "1", file)
    found = read_tree(root)
    assert {
        path: state for path, state in found.items() if not path.startswith(".patchkit")
    } == after
    answer = json.loads(cli("--root", root, "--json", "status").stdout)
    assert [entry["name"] for entry in answer["applied"]] == ["all.patch"]
    cli("--root", root, "revert", "--all")
    assert read_tree(root) == before
