"""Patch bytes → :class:`~patchkit.model.Patch`.

Owns the reading of unified diffs in git's and GNU's dialect, with mail text around them.
Lines end at ``\\n`` only (a form feed, a lone carriage return or U+2028 is content), every
byte is kept, and what is not understood is refused with its line number: a line beyond
a hunk's counts is an error here, where git, GNU patch and unidiff drop it.  Must not do
I/O and must not decide where a hunk goes.
"""

from __future__ import annotations

import hashlib
import io
import re
from itertools import compress
from operator import itemgetter

from .errors import PatchSyntaxError
from .model import BinaryHunk, ChangeKind, FilePatch, Hunk, Patch, split

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)", re.DOTALL)
_EPOCH = re.compile(
    rb"(?:1970-01-01|1969-12-31|Thu Jan +1|Wed Dec 31)[ T]+(\d\d):(\d\d):00(?:\.0+)?"
    rb"(?: +1970| +1969)?(?: *([+-])(\d\d):?(\d\d))?\s*\Z"
)
_DEP3 = re.compile(r"([A-Z][A-Za-z-]*):[ \t]*(.*)")
_ESCAPES = {
    ord("a"): 7, ord("b"): 8, ord("t"): 9, ord("n"): 10, ord("v"): 11, ord("f"): 12,
    ord("r"): 13, ord('"'): 34, ord("\\"): 92,
}  # fmt: skip
_IN_OLD = bytes(0 if sign in b"+\\" else 1 for sign in range(256))
_IN_NEW = bytes(0 if sign in b"-\\" else 1 for sign in range(256))
_SIGN, _TEXT = itemgetter(0), itemgetter(slice(1, None))  # of a line of a hunk
_EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_BINARY = re.compile(rb"(literal|delta) (\d{1,12})\s*\Z")
_MODES = {0o100644, 0o100755, 0o100664, 0o120000}
_HUNK_SIGNS = (b"+", b"-", b" ")
_EXTENDED = re.compile(
    rb"(old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to"
    rb"|rename old|rename new|similarity index|dissimilarity index|index) (.*?)\r?\n?\Z",
    re.DOTALL,
)
_UNSHOWN = re.compile(
    rb"Binary files .* differ|Files (?=.* and ).* differ|Binary file .* has changed"
    rb"|Cannot display: file marked as a binary type\."
)
_COLOURED = re.compile(rb"(?:\x1b\[[0-9;]*m)+(?:diff |--- |\+\+\+ |@@ -)")
_WORD_DIFF = re.compile(rb"\[-.*-\]|\{\+.*\+\}")
_NO_WORDS = "it looks like git diff --word-diff: make the patch anew without that option"
_SUBMODULE = re.compile(rb"Submodule .* [0-9a-f]{7,64}\.{2,3}[0-9a-f]{7,64}(?: \(.*\))?:?")
# The first line of a mail in a mailbox, of a commit in git log, hg export, hg log, jj show.
_PART = re.compile(
    rb"From (?:[0-9a-f]{40}|\S+ .*\d\d:\d\d(?::\d\d)? .*\d{4})\b|commit [0-9a-f]{7,64}\b"
    rb"|# HG changeset patch\s*\Z|changeset: +\d+:[0-9a-f]{12}|Commit ID: [0-9a-f]{40}"
)
# git log --oneline: it stands right before its diff.
_ONELINE = re.compile(rb"[0-9a-f]{7,64} \S")
#: A header line of a mail, or its continuation, that names what stands between its parts.
MIME_BOUNDARY = re.compile(rb'(?i)(?:Content-Type:.*;)?\s+boundary=(?:"([^"\r\n]+)"|([^"\s;]+))')
_STAMP = re.compile(
    rb"(.*)[\t ](?:\d\d)?\d\d-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?)?(?: [+-]\d\d:?\d\d)?",
    re.DOTALL,
)
_LOOSE_STAMP = re.compile(rb"(.*?)(?<! ) +\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d.*", re.DOTALL)
_ENCODED = re.compile(rb"(?i)Content-Transfer-Encoding:\s*(quoted-printable|base64)\s*\Z")
_HTML = re.compile(
    rb"(?is)\s*(?:(?:<\?xml[^>]*>|<!--(?:(?!-->).)*-->)\s*)*<(?:!doctype html|html|head|body)\b"
)
_PACKED = (
    (b"\x1f\x8b", "gzip", "gunzip"),
    (b"BZh", "bzip2", "bunzip2"),
    (b"\xfd7zXZ", "xz", "unxz"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    (b"PK\x03\x04", "zip", "unzip"),
)
# What looks like a patch to a person and is none: pattern, message, hint.
_NO_PATCH = (
    (
        re.compile(rb"(?m)^\d+(?:,\d+)?[acd]\d+(?:,\d+)?\r?$\n[<>] "),
        "a normal diff is not read",
        "make a unified one: diff -u",
    ),
    (
        re.compile(rb"(?m)^\d+(?:,\d+)?[acd]\r?$(?s:.*)^\.\r?$|\A(?:\d+(?:,\d+)?d\r?\n)+\Z"),
        "an ed script is not read",
        "make a unified one: diff -u",
    ),
    (
        re.compile(rb"(?m)^(?P<mark>[>|#*\t /]+)(?:diff --git |--- .*\n(?P=mark)\+\+\+ )"),
        "the patch is quoted or indented: its lines do not begin where those of a patch do",
        "take what stands before each line away, or fetch the patch again",
    ),
    (
        re.compile(rb"(?m)^(?::\d{6} \d{6} [0-9a-f]+|[AMD]\t\S|.* \| +\d+ [+-]+\r?$)"),
        "a list of the files that changed, without how",
        "make it with git diff alone, without --stat, --raw or --name-status",
    ),
)
# A line of two names that are as long as Linux lets them be (PATH_MAX, 4,096 bytes).
_LONGEST = 10_000
MAX_BINARY = 256 * 1024 * 1024


def parse(data: bytes, name: str, sha256: str | None = None) -> Patch:
    """Read a whole patch file.

    Raises :class:`PatchSyntaxError` with the line (from 1) of what is wrong, also where
    the bytes hold no patch at all.
    """
    reader: _Reader | None = None
    try:
        reader = _Reader(data)
        files = reader.read()
        dep3 = dep3_fields(reader.head)
    except PatchSyntaxError as error:
        if reader is not None:  # a quoted name does not know its line: it is in this header
            error.at(line=reader.at + 1)
        raise error.at(patch=name) from None
    return Patch(name, sha256 or hashlib.sha256(data).hexdigest(), tuple(files), dep3)


def marks(boundary: re.Match[bytes]) -> tuple[bytes, bytes]:
    """The lines before and behind the parts of a mail (RFC 2046, 5.1.1), of a match of
    :data:`MIME_BOUNDARY`."""
    mark = b"--" + (boundary[1] or boundary[2])
    return mark, mark + b"--"


def dep3_fields(head: bytes) -> tuple[tuple[str, str], ...]:
    """The DEP-3 fields at the head of a patch; a mail's From and Subject count as
    Author and Description, as DEP-3 says.  The header ends at a line ``---``."""
    fields: list[tuple[str, list[str]]] = []
    goes_on = False
    for line in head.decode("utf-8", "replace").split("\n"):
        line = line.rstrip("\r")
        if line == "---":
            break
        match = _DEP3.fullmatch(line)
        if match:
            key = {"From": "Author", "Subject": "Description"}.get(match[1], match[1])
            fields.append((key, [match[2].strip()]))
            goes_on = True
        elif not line.strip():
            goes_on = False
        elif goes_on and line[:1] in (" ", "\t"):
            text = line.strip()
            fields[-1][1].append("" if text == "." else text)
    return tuple((key, "\n".join(rows)) for key, rows in fields)


class _Reader:
    """A cursor over the lines of one patch file."""

    def __init__(self, data: bytes) -> None:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise PatchSyntaxError(
                "the patch is UTF-16 text",
                line=1,
                hint="save it as UTF-8, or fetch it again without PowerShell's '>'",
            )
        for magic, kind, tool in _PACKED:
            if data.startswith(magic):
                raise PatchSyntaxError(
                    f"the patch is compressed with {kind}", line=1, hint=f"unpack it first: {tool}"
                )
        if data.startswith(b"\xef\xbb\xbf"):
            data = data[3:]
        if _HTML.match(data):
            raise PatchSyntaxError(
                "this is an HTML page, not a patch",
                line=1,
                hint="a login or error page saved by mistake? fetch the .patch or .diff again",
            )
        self.lines = _Lines(data)
        self.at = 0
        self.head = b""  # the text before the first file
        self._has_head = False
        self._has_index = False
        self._inflated = 0
        self._part = 0
        # The lines that may stand between the parts of a MIME mail.
        self._boundaries: set[bytes] = set()

    def read(self) -> list[FilePatch]:
        files: list[FilePatch] = []
        lines = self.lines
        # True while the lines before the cursor belong to a hunk: then an uncounted line
        # is lost content; elsewhere it is prose.
        behind_hunk = False
        # The line of prose that stands directly behind a hunk: it may be a line of it that
        # lost its blank, and then more of them follow.
        odd: int | None = None
        while line := lines[self.at]:
            first = line[:1]
            if first == b"d" and line.startswith(b"diff --git "):
                found = self._git_file()
                if found is not None:
                    files.append(found._replace(part=self._part))
                    behind_hunk, odd = bool(found.hunks), None
                    continue
            elif first == b"-" and self._starts_plain_file():
                files.append(self._plain_file()._replace(part=self._part))
                behind_hunk, odd = True, None
                continue
            elif first == b"d" and line.startswith((b"diff --cc ", b"diff --combined ")):
                raise PatchSyntaxError(
                    "a combined diff (of a merge commit) cannot be applied",
                    line=self.at + 1,
                    hint="make it against one parent: git show -m --first-parent COMMIT",
                )
            elif first == b"@" and behind_hunk and line.startswith(b"@@"):
                if not _HUNK.match(line):
                    raise _bad_hunk_header(self.at, line)
                raise PatchSyntaxError(
                    "a blank line between two hunks of a file: it is a line that no hunk counts",
                    line=self.at,
                    hint="take it out, or put a blank into it if it is context of the hunk above"
                    " (patchkit lint --fix then counts that one anew)",
                )
            elif (
                first == b"@" and (files or self._peek(1)[:1] in _HUNK_SIGNS) and _HUNK.match(line)
            ):
                raise self._orphan_hunk(self.at + 1)
            elif first == b"-" and self._starts_plain_file(b"@@"):
                raise _bad_hunk_header(self.at + 2, self._peek(2))
            elif first == b"-" and self._is_cut_header():
                raise PatchSyntaxError(
                    "the patch ends in a file header: it is cut off", line=self.at + 1
                )
            elif first == b"*" and self._starts_context_diff():
                raise PatchSyntaxError(
                    "a context diff (diff -c) is not read",
                    line=self.at + 1,
                    hint="make a unified one: diff -u, or git diff",
                )
            elif first == b"G" and self._starts_binary():
                raise PatchSyntaxError(
                    "a binary patch without a 'diff --git' line before it",
                    line=self.at + 1,
                    hint="the lines that name its file are missing; fetch the patch again",
                )
            elif first in b"BCF" and _UNSHOWN.fullmatch(line.rstrip()):
                raise self._binary_differ()
            elif first == b"\x1b" and _COLOURED.match(line):
                raise PatchSyntaxError(
                    "the patch is coloured for a terminal",
                    line=self.at + 1,
                    hint="make it with git diff --no-color",
                    detail=(f"  {_show(line)}",),
                )
            elif first == b"S" and _SUBMODULE.fullmatch(line.rstrip()):
                raise _submodule(self.at + 1)
            elif first in b"Cc" and (encoded := _ENCODED.match(line)):
                raise PatchSyntaxError(
                    f"a mail whose text is encoded ({encoded[1].decode().lower()})",
                    line=self.at + 1,
                    hint="decode it, each mail by itself: git mailinfo /dev/null OUT.patch < MAIL",
                )
            elif line.rstrip() in self._boundaries:
                behind_hunk, odd = False, None
            elif behind_hunk and first in (b"+", b"-", b" ") and not self._is_signature():
                raise PatchSyntaxError(
                    "a line that no hunk counts",
                    line=self.at + 1,
                    hint="the '@@' header before it gives too few lines (patchkit lint --fix counts"
                    " them anew); nothing may be dropped",
                    detail=(f"  {_show(line)}",),
                )
            elif (first == b"\t" and behind_hunk) or (
                odd is not None and first in _HUNK_SIGNS and not self._is_signature()
            ):
                raise PatchSyntaxError(
                    "a line that no hunk counts",
                    line=(self.at if odd is None else odd) + 1,
                    hint="a context line that lost its leading blank? Nothing may be dropped",
                    detail=(f"  {_show(lines[self.at if odd is None else odd])}",),
                )
            if _PART.match(line) or (
                self._peek(1).startswith(b"diff --git ") and _ONELINE.match(line)
            ):
                self._part += 1
            elif boundary := MIME_BOUNDARY.match(line):
                self._boundaries.update(marks(boundary))
            if line.strip():
                directly = behind_hunk and bool(lines[self.at - 1].strip())
                odd = self.at if directly and not self._is_signature() else None
                behind_hunk = False
            elif not behind_hunk:
                odd = None
            self.at += 1
        if not files:
            raise self._no_patch()
        return files

    # -- what a line begins ---------------------------------------------------------

    def _peek(self, ahead: int) -> bytes:
        return self.lines[self.at + ahead]

    def _starts_plain_file(self, hunk: bytes = b"@@ -") -> bool:
        return (
            self._peek(0).startswith(b"--- ")
            and self._peek(1).startswith(b"+++ ")
            and self._peek(2).startswith(hunk)
        )

    def _starts_context_diff(self) -> bool:
        return (
            self._peek(0).startswith(b"*** ")
            and self._peek(1).startswith(b"--- ")
            and self._peek(2).startswith(b"*******")
        )

    def _starts_binary(self) -> bool:
        return (
            self._peek(0).rstrip() == b"GIT binary patch"
            and _BINARY.match(self._peek(1)) is not None
            and _base85_length(self._peek(2).rstrip(b"\r\n")) > 0
        )

    def _is_cut_header(self) -> bool:
        """``---`` and ``+++`` as the last lines; ``---`` alone where a header began."""
        if not self._peek(0).startswith(b"--- ") or self._peek(2):
            return False
        if self._peek(1):
            return self._peek(1).startswith(b"+++ ")
        before = self.lines[self.at - 1] if self.at else b""
        return before.startswith((b"diff ", b"Index: ", b"====="))

    def _is_signature(self) -> bool:
        """A mail signature: ``-- `` alone (RFC 3676), its blank perhaps eaten.  Before
        more lines of a hunk it is one of them."""
        mark = self._peek(0).rstrip(b"\r\n") in (b"-- ", b"--")
        return mark and self._peek(1)[:1] not in (b"", *_HUNK_SIGNS)

    # -- one file -------------------------------------------------------------------

    def _note_head(self, start: int) -> None:
        if not self._has_head:
            self._has_head = True
            self.head = self.lines.before(start)

    def _git_file(self) -> FilePatch | None:
        start = self.at
        lines = self.lines
        header: dict[bytes, bytes] = {}
        place = start + 1
        while found := _EXTENDED.match(lines[place]):
            if header.get(found[1], found[2]) != found[2]:
                raise PatchSyntaxError(
                    f"the header line '{found[1].decode()}' stands twice", line=place + 1
                )
            header[found[1]] = found[2]
            place += 1
        line = lines[place]
        has_names = line.startswith(b"--- ") and lines[place + 1].startswith(b"+++ ")
        # Names stand in the diff line.
        bare = line.startswith((b"@@ -", b"Binary files ")) or line.rstrip() == b"GIT binary patch"
        if not bare and not lines[place + 1] and not lines.are_whole:
            raise PatchSyntaxError(
                "the patch ends inside a file header: it is cut off", line=start + 1
            )
        if not header and not has_names and not bare:
            if not line:
                raise PatchSyntaxError(
                    "the patch ends after a 'diff --git' line: it is cut off", line=start + 1
                )
            return None  # prose that quotes the line, as git itself reads it
        self._note_head(start)
        diff_line = lines[start][len(b"diff --git ") :].rstrip(b"\r\n")
        names = _git_names(diff_line)
        old: str | None = names[0] if names else None
        new: str | None = names[1] if names else None
        self._has_index = self._has_index or b"index" in header

        change: ChangeKind = "modify"
        old_mode = self._mode(header, b"old mode", start)
        new_mode = self._mode(header, b"new mode", start)
        if b"new file mode" in header:
            change, new_mode = "add", self._mode(header, b"new file mode", start)
        elif b"deleted file mode" in header:
            change, old_mode = "delete", self._mode(header, b"deleted file mode", start)
        for word, kind in ((b"rename", "rename"), (b"copy", "copy")):
            source = header.get(word + b" from", header.get(word + b" old"))
            target = header.get(word + b" to", header.get(word + b" new"))
            if (source is None) != (target is None):
                raise PatchSyntaxError(f"a {kind} with one name only", line=start + 1)
            if source is not None and target is not None:
                if change != "modify":
                    raise PatchSyntaxError(f"both {change} and {kind}", line=start + 1)
                change = "rename" if kind == "rename" else "copy"
                old, new = _prefixed(_unquote(source), _unquote(target), names, diff_line)
        old_blob = new_blob = None
        if b"index" in header:
            blobs = re.match(rb"([0-9a-f]+)\.\.([0-9a-f]+)(?: ([0-7]{6}))?\s*\Z", header[b"index"])
            if not blobs:
                raise PatchSyntaxError("an 'index' line that is not understood", line=start + 1)
            old_blob, new_blob = blobs[1].decode(), blobs[2].decode()
            if blobs[3] and old_mode is None and change != "add":
                old_mode = self._check_mode(int(blobs[3], 8), start)

        self.at = place
        hunks: tuple[Hunk, ...] = ()
        binary = None
        line = self._peek(0)
        if has_names:
            minus = _header_name(self._peek(0), git=True)
            plus = _header_name(self._peek(1), git=True)
            header_line = self.at + 1
            if "" in (minus, plus):
                raise PatchSyntaxError("a file header without a name", line=header_line)
            self.at += 2
            hunks = self._hunks()
            if not hunks and self._peek(0).startswith(b"@@"):
                raise _bad_hunk_header(self.at, self._peek(0))
            if not hunks:
                raise PatchSyntaxError(
                    "a file header without a hunk: the patch is cut off", line=header_line
                )
            if minus is None and change == "modify":
                change = "add"
            if plus is None and change == "modify":
                change = "delete"
            self._check_names(change, old, new, minus, plus, start)
            old, new = minus or old, plus or new
        elif line.startswith(b"@@ -"):
            hunks = self._hunks()
        elif line.startswith(b"GIT binary patch"):
            self.at += 1
            binary = self._binary()
        elif line.startswith(b"Binary files "):
            raise self._binary_differ()
        else:
            self._check_complete(change, header, old_blob, new_blob, start)
        if old is None and new is None:
            raise PatchSyntaxError("no file name in the header", line=start + 1)
        return FilePatch(
            change,
            None if change == "add" else (old or new),
            None if change == "delete" else (new or old),
            old_mode,
            new_mode,
            hunks,
            start + 1,
            git=True,
            binary=binary,
            old_blob=old_blob,
            new_blob=new_blob,
        )

    def _check_names(
        self,
        change: str,
        old: str | None,
        new: str | None,
        minus: str | None,
        plus: str | None,
        start: int,
    ) -> None:
        if minus is None and plus is None:
            raise PatchSyntaxError("a file that is neither before nor after", line=start + 1)
        if change == "add" and minus is not None:
            raise PatchSyntaxError("a new file whose '---' line is not /dev/null", line=start + 1)
        if change == "delete" and plus is not None:
            raise PatchSyntaxError(
                "a deleted file whose '+++' line is not /dev/null", line=start + 1
            )
        if change in ("rename", "copy") and (minus is None or plus is None):
            raise PatchSyntaxError(f"/dev/null in a file that is {change}", line=start + 1)
        if change in ("rename", "copy") and (minus, plus) != (old, new):
            raise PatchSyntaxError(
                f"the '{change}' lines name {old} and {new}, the '---' and '+++' lines"
                f" {minus} and {plus}",
                line=start + 1,
            )
        if change == "modify" and _base(minus) != _base(plus):
            raise PatchSyntaxError(
                f"two names for one file, {minus} and {plus}, and no rename", line=start + 1
            )
        # git compares without the first part, and only where "diff --git" names one file.
        one = change != "modify" or (old and new and _tail(old) == _tail(new))
        for kind, name, wanted in (("---", minus, old), ("+++", plus, new)):
            if one and name is not None and wanted is not None and _tail(name) != _tail(wanted):
                raise PatchSyntaxError(
                    f"the '{kind}' line names {name}, the lines before it {wanted}",
                    line=start + 1,
                )

    def _check_complete(
        self,
        change: str,
        header: dict[bytes, bytes],
        old_blob: str | None,
        new_blob: str | None,
        start: int,
    ) -> None:
        """A file without hunks must be one that needs none, or the patch was cut off."""
        similar = header.get(b"similarity index", b"100%").strip()
        if change in ("rename", "copy"):
            whole = similar == b"100%" and (old_blob is None or old_blob == new_blob)
        elif change in ("add", "delete"):
            blob = new_blob if change == "add" else old_blob
            # Mercurial writes no index lines; a patch that has some elsewhere has them all.
            ends_here = not self._peek(0) and self._has_index
            whole = not ends_here if blob is None else _EMPTY_BLOB.startswith(blob)
            # A symlink has a target, which is its one line.
            whole = whole and b"120000" not in (
                header.get(b"new file mode"),
                header.get(b"deleted file mode"),
            )
        else:
            both = b"old mode" in header and b"new mode" in header
            whole = both and (old_blob is None or old_blob == new_blob)
        if not whole:
            options = "without --binary"
            if change == "delete":
                options += ", or with --irreversible-delete"
            raise PatchSyntaxError(
                "a file header that announces a change, and no hunk: the patch is cut off,"
                f" or it was made {options}",
                line=start + 1,
            )

    def _plain_file(self) -> FilePatch:
        start = self.at
        self._note_head(start)
        minus_line, plus_line = self._peek(0), self._peek(1)
        minus, plus = _header_name(minus_line), _header_name(plus_line)
        if "" in (minus, plus):
            raise PatchSyntaxError("a file header without a name", line=start + 1)
        self.at += 2
        hunks = self._hunks()  # one at least: "@@ -" stands there
        change: ChangeKind = "modify"
        if minus is None or (_epoch(minus_line) and not hunks[0].old_text):
            change = "add"
        if plus is None or (_epoch(plus_line) and not hunks[0].new_text):
            if change == "add":
                raise PatchSyntaxError("a file that is neither before nor after", line=start + 1)
            change = "delete"
        if change == "add" and (hunks[0].old_text or len(hunks) > 1):
            raise PatchSyntaxError("a new file with lines to remove", line=start + 1)
        if change == "delete" and (hunks[0].new_text or len(hunks) > 1):
            raise PatchSyntaxError("a deleted file with lines that stay", line=start + 1)
        return FilePatch(
            change,
            None if change == "add" else minus,
            None if change == "delete" else plus,
            None,
            None,
            hunks,
            start + 1,
        )

    def _mode(self, header: dict[bytes, bytes], key: bytes, start: int) -> int | None:
        if key not in header:
            return None
        text = header[key].strip()
        if not re.fullmatch(rb"[0-7]{6}", text):
            raise PatchSyntaxError(f"'{_show(text)}' is no file mode", line=start + 1)
        return self._check_mode(int(text, 8), start)

    def _check_mode(self, mode: int, start: int) -> int:
        if mode == 0o160000:
            raise _submodule(start + 1)
        if mode not in _MODES and mode & 0o170000 != 0o100000:
            raise PatchSyntaxError(f"file mode {mode:o} is not one of git's", line=start + 1)
        return mode

    # -- hunks ----------------------------------------------------------------------

    def _hunks(self) -> tuple[Hunk, ...]:
        hunks: list[Hunk] = []
        lines = self.lines
        floor = 0
        while lines[self.at].startswith(b"@@ -"):
            hunk = self._hunk()
            # A hunk that removes nothing names the line before it.
            begin = hunk.old_start if hunk.old_text else hunk.old_start + 1
            if begin < floor:
                raise PatchSyntaxError(
                    "hunks that overlap or stand out of order",
                    line=hunk.line,
                    hint="sort the hunks of the file by their first line",
                )
            floor = begin + hunk.old_count
            hunks.append(hunk)
        return tuple(hunks)

    def _hunk(self) -> Hunk:
        lines = self.lines
        start = self.at
        header = lines[start]
        match = _HUNK.match(header)
        if not match:
            raise _bad_hunk_header(start, header)
        old_start, new_start = int(match[1]), int(match[3])
        old_count = 1 if match[2] is None else int(match[2])
        new_count = 1 if match[4] is None else int(match[4])
        old, new, signs = self._body(start + 1, old_count, new_count, header)
        place = start + 1 + len(signs)
        behind = lines[place]
        if behind[:1] == b"\\":
            signs += b"\\"
            place += 1
        if 92 in signs:
            old, new = _cut_newlines(old, new, signs, start)
        plain = signs.replace(b"\\", b"")
        leading = len(plain) - len(plain.lstrip(b" \n\r"))
        trailing = len(plain) - len(plain.rstrip(b" \n\r"))
        if leading == len(plain):
            words = any(map(_WORD_DIFF.search, split(old)))
            raise PatchSyntaxError(
                "a hunk that changes nothing", line=start + 1, hint=_NO_WORDS if words else None
            )
        # Lines begin at 1; some makers count from 0, and git and GNU patch take it for 1.
        old_start, new_start = max(old_start, bool(old)), max(new_start, bool(new))
        if not behind and not lines.are_whole:
            # The last line of the file lost its own line end; git and GNU patch take it
            # for a line with one, a cut inside the line looks the same.
            raise PatchSyntaxError(
                "the patch ends inside its last line: it has no line end",
                line=place,
                hint="it is cut off, or an editor took the last line end away",
            )
        self.at = place
        heading = match[5].strip()
        return Hunk(old_start, new_start, old, new, leading, trailing, heading, start + 1, signs)

    def _body(
        self, place: int, old_left: int, new_left: int, header: bytes
    ) -> tuple[bytes, bytes, bytes]:
        """Old text, new text and signs of a hunk's body, which ends where its counts say.

        It is read piece by piece: a line is an object of its own only for a moment.
        """
        lines = self.lines
        first = place
        old: list[bytes] = []
        new: list[bytes] = []
        signs: list[bytes] = []
        while old_left > 0 or new_left > 0:
            piece = lines.piece(place, old_left + new_left)
            if piece:
                found = _plain_signs(piece, old_left, new_left)
                if found:
                    texts = list(map(_TEXT, piece))
                else:
                    del piece[_walk(piece, place, old_left, new_left, header) :]
                    found = bytes(map(_SIGN, piece))
                    # A blank context line may have lost its space (13 % of real patches).
                    texts = [line[1:] if line[0] > 13 else line for line in piece]
                old.append(b"".join(compress(texts, found.translate(_IN_OLD))))
                new.append(b"".join(compress(texts, found.translate(_IN_NEW))))
            elif run := lines.run(old_left, new_left):
                text, found = run
                if found[0] != 43:
                    old.append(text)
                if found[0] != 45:
                    new.append(text)
            elif lines[place]:
                continue
            else:
                raise PatchSyntaxError(
                    f"the patch ends inside a hunk: {old_left} old and {new_left} new lines"
                    " are missing",
                    line=first,
                    hint="it is cut off, or the counts in its '@@' line are wrong (patchkit lint"
                    " --fix counts them anew)",
                )
            place += len(found)
            signs.append(found)
            counted = len(found) - found.count(92)
            old_left -= counted - found.count(43)
            new_left -= counted - found.count(45)
        return b"".join(old), b"".join(new), b"".join(signs)

    # -- binary ---------------------------------------------------------------------

    def _binary(self) -> tuple[BinaryHunk, BinaryHunk | None]:
        forward = self._binary_hunk()
        if forward is None:
            raise PatchSyntaxError("a binary patch without data", line=self.at + 1)
        return forward, self._binary_hunk()

    def _binary_hunk(self) -> BinaryHunk | None:
        import base64
        import zlib

        match = _BINARY.match(self._peek(0))
        if not match:
            return None
        start = self.at
        size = int(match[2])
        self._inflated += size
        if self._inflated > MAX_BINARY:
            raise PatchSyntaxError(
                f"a binary patch of {self._inflated} bytes; the limit is {MAX_BINARY}",
                line=start + 1,
                hint="a file of this size is no source; leave it out of the patch",
            )
        self.at += 1
        packed = bytearray()
        while self._peek(0).strip():
            line = self._peek(0).rstrip(b"\r\n")
            length = _base85_length(line)
            try:
                chunk = base64.b85decode(line[1:])
            except ValueError:
                chunk = b""
            if not length or len(chunk) < length:
                raise PatchSyntaxError("a damaged line of a binary patch", line=self.at + 1)
            packed += chunk[:length]
            self.at += 1
        if not self._peek(0):
            raise PatchSyntaxError("the patch ends inside a binary patch", line=start + 1)
        self.at += 1
        inflater = zlib.decompressobj()
        try:
            data = inflater.decompress(bytes(packed), size + 1)
        except zlib.error as error:
            raise PatchSyntaxError(f"a damaged binary patch: {error}", line=start + 1) from None
        if len(data) != size or not inflater.eof:
            raise PatchSyntaxError(
                f"a binary patch that does not hold the {size} bytes it announces", line=start + 1
            )
        return BinaryHunk("literal" if match[1] == b"literal" else "delta", data, size)

    def _binary_differ(self) -> PatchSyntaxError:
        return PatchSyntaxError(
            "'Binary files differ' says that a file changed, not how",
            line=self.at + 1,
            hint="make the patch with git diff --binary",
        )

    def _orphan_hunk(self, line: int) -> PatchSyntaxError:
        return PatchSyntaxError(
            "a hunk without a file header before it",
            line=line,
            hint="a '--- name' and a '+++ name' line must stand right before the first '@@' of a"
            " file, and nothing between its hunks",
        )

    def _no_patch(self) -> PatchSyntaxError:
        lines = split(self.lines.data)
        for number, line in enumerate(lines, 1):
            if line.startswith(b"@@ -") and _HUNK.match(line):
                return self._orphan_hunk(number)
        text = b"".join(lines[:200])[:20_000].lstrip(b"\r\n")
        if not text.strip():
            return PatchSyntaxError("the patch is empty", line=1)
        for pattern, message, hint in _NO_PATCH:
            found = pattern.search(text)
            if found:
                return PatchSyntaxError(message, line=1, hint=hint)
        return PatchSyntaxError(
            "no patch in it: no '---' and '+++' lines with a hunk, no 'diff --git'", line=1
        )


# -- bodies -----------------------------------------------------------------------------


class _Lines:
    """The lines of a patch by their numbers (from 0), each with its end; ``b""`` behind the
    last one.  They are made a window at a time, which moves forwards: only what lies near its
    start can still be asked for.  ``are_whole`` says that the last line has its end.
    """

    _WINDOW = 128 * 1024  # bytes; small enough for a processor's cache
    _BEHIND = 64  # lines; a file's header has fewer

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.are_whole = data.endswith(b"\n")
        # BytesIO splits at \n alone, keeps the ends, and does so in C, without a copy.
        self._source = io.BytesIO(data)
        self._window: list[bytes] = []
        self._first = 0

    def __getitem__(self, number: int) -> bytes:
        place = number - self._first
        while place >= len(self._window):
            lines = self._source.readlines(self._WINDOW)
            if not lines:
                return b""
            gone = max(len(self._window) - self._BEHIND, 0)
            self._window = self._window[gone:] + lines
            self._first += gone
            place -= gone
        assert place >= 0
        return self._window[place]

    def before(self, number: int) -> bytes:
        """Everything before a line of the window."""
        rest = sum(map(len, self._window[number - self._first :]))
        return self.data[: self._source.tell() - rest]

    def piece(self, number: int, count: int) -> list[bytes]:
        """Up to ``count`` lines from ``number`` on: what the window has of them."""
        place = number - self._first
        return self._window[place : place + count]

    def run(self, old: int, new: int) -> tuple[bytes, bytes] | None:
        """The lines behind the window, where they begin with one sign for a whole window's
        length and are no more than these counts: their text without the signs, and the
        signs.  The window then ends behind them."""
        data = self.data
        start = self._source.tell()
        end = data.rfind(b"\n", start, start + self._WINDOW) + 1
        sign = data[start : start + 1]
        if not end or sign not in _HUNK_SIGNS:
            return None
        for part in range(4):  # a look at four lines mostly tells that it is none
            at = data.find(b"\n", start + (end - start) * part // 4, end) + 1
            if at != end and data[at : at + 1] != sign:
                return None
        text = data[start + 1 : end].replace(b"\n" + sign, b"\n")
        count = end - start - len(text)
        most = {b"+": new, b"-": old}.get(sign, min(old, new))
        if count > most or count != data.count(b"\n", start, end):
            return None
        last = max(data.rfind(b"\n", start, end - 1) + 1, start)
        self._first += len(self._window) + count - 1
        self._window = [data[last:end]]
        self._source.seek(end)
        return text, sign * count


def _plain_signs(piece: list[bytes], old: int, new: int) -> bytes:
    """The signs of the lines of a piece that belong to a hunk of which these counts are
    missing; empty where a sign or a count is odd, so that :func:`_walk` must look.  The piece
    is cut to those lines.

    The number of lines n of a whole body satisfies n = old + (plus signs in n) = new + (minus
    signs in n); from below, each round of the two comes nearer to the smallest such n.
    """
    signs = bytes(map(_SIGN, piece))
    size = len(signs)
    count = max(new, old)
    while True:
        old_side = old + signs.count(43, 0, count)
        new_side = new + signs.count(45, 0, count)
        nearer = max(new_side, old_side)
        if nearer <= count or count >= size:
            break
        count = nearer
    # What was counted is right also where the piece ends before that.
    is_whole = old_side == new_side == count <= size
    goes_on = count >= size <= min(old_side, new_side)
    if not (is_whole or goes_on):
        return b""
    if count < size:
        signs = signs[:count]
        del piece[count:]
    return b"" if signs.translate(None, b" +-") else signs


def _walk(piece: list[bytes], place: int, old_left: int, new_left: int, header: bytes) -> int:
    """How many lines of a piece belong to a hunk of which these counts are missing, found by
    a look at each; ``place`` is the number of the first, ``header`` the hunk's first line."""
    crlf = header.endswith(b"\r\n")
    for number, line in enumerate(piece):
        if old_left == 0 and new_left == 0:
            return number
        sign = line[0]
        if sign == 32 or sign == 10 or (crlf and line == b"\r\n"):
            old_left -= 1
            new_left -= 1
        elif sign == 43:
            new_left -= 1
        elif sign == 45:
            old_left -= 1
        elif sign != 92:
            raise PatchSyntaxError(
                f"a line inside a hunk that begins with none of ' ', '+', '-': {old_left}"
                f" old and {new_left} new lines are still missing",
                line=place + number + 1,
                hint=_why_no_sign(line),
                detail=(f"  {_show(line)}",),
            )
        if old_left < 0 or new_left < 0:
            raise PatchSyntaxError(
                "a hunk with more lines than its header counts",
                line=place + number + 1,
                hint="patchkit lint --fix counts them anew, where that is no guess",
                detail=(f"  {_show(line)}",),
            )
    return len(piece)


def _cut_newlines(old: bytes, new: bytes, signs: bytes, start: int) -> tuple[bytes, bytes]:
    """Take the line end off the last line of each side that a "no newline" mark stands
    behind, which git writes in the user's language: what counts is the backslash."""
    number = signs.find(b"\\")
    while number >= 0:
        if number == 0 or signs[number - 1] == 92:
            raise PatchSyntaxError(
                "a 'no newline' mark with no line before it", line=start + 2 + number
            )
        before = signs[number - 1]
        rest = signs[number + 1 :]
        if (before != 43 and rest.translate(None, b"+\\")) or (
            before != 45 and rest.translate(None, b"-\\")
        ):
            raise PatchSyntaxError(
                "a 'no newline' mark before the last line of its side", line=start + 2 + number
            )
        side = new if before == 43 else old
        if side[-2:] in (b"\n", b"\n\n"):
            raise PatchSyntaxError(
                "a 'no newline' mark behind an empty line, which is then no line",
                line=start + 2 + number,
            )
        old = old[:-1] if before != 43 else old
        new = new[:-1] if before != 45 else new
        number = signs.find(b"\\", number + 1)
    return old, new


def _base85_length(line: bytes) -> int:
    """How many bytes a line of a binary patch says that it holds (``diff.c``,
    emit_binary_diff_body); 0 where it is not as long as that takes."""
    code = line[0] if line else 0
    length = code - 64 if 65 <= code <= 90 else code - 70 if 97 <= code <= 122 else 0
    return length if len(line) - 1 == (length + 3) // 4 * 5 else 0


# -- names ------------------------------------------------------------------------------


def _submodule(line: int) -> PatchSyntaxError:
    return PatchSyntaxError(
        "a submodule change cannot be applied to an installed package",
        line=line,
        hint="take that file out of the patch",
    )


def _why_no_sign(line: bytes) -> str:
    """What to try where a line inside a hunk has no sign."""
    if _WORD_DIFF.search(line):
        return _NO_WORDS
    if line[:1] in b"<>!.#":
        return "other signs than ' ', '+', '-'? make the patch anew without --output-indicator-…"
    if line[:1] == b"\t":
        return "a context line that lost its leading blank? fetch the patch again"
    return (
        "the counts in the '@@' line are too high (patchkit lint --fix counts them anew), or a"
        " mailer wrapped a line"
    )


def _bad_hunk_header(place: int, line: bytes) -> PatchSyntaxError:
    return PatchSyntaxError(
        "a hunk header that is not understood", line=place + 1, detail=(f"  {_show(line)}",)
    )


def _header_name(line: bytes, *, git: bool = False) -> str | None:
    """The name in a ``---`` or ``+++`` line; None for ``/dev/null``.  In git's dialect it
    ends at a tab; others put a time behind it."""
    text = line[4:].rstrip(b"\r\n")
    end = _quote_end(text) if text.startswith(b'"') else 0
    if end and text[end : end + 1] in (b"", b"\t", b" "):
        name = _unquote(text[:end])
        return None if name == "/dev/null" else name
    if text[:9] == b"/dev/null" and not text[9:10].strip():
        return None
    return _decoded(text.split(b"\t", 1)[0] if git else _split_stamp(text)[0])


def _split_stamp(text: bytes) -> tuple[bytes, bytes]:
    """The name in a plain header, and what stands behind a tab: a time as git knows it
    (``apply.c``, diff_timestamp_len), which may follow a name with tabs, or anything."""
    stamped = _STAMP.fullmatch(text)
    if stamped:
        if text[stamped.end(1)] == 32:
            return stamped[1].rstrip(b" "), b""
        return stamped[1], text[stamped.end(1) + 1 :]
    name, tab, stamp = text.partition(b"\t")
    if tab:
        return name, stamp
    # Other forms of time, behind blanks.
    loose = _LOOSE_STAMP.fullmatch(name)
    return loose[1] if loose else name.rstrip(b" "), b""


def _git_names(text: bytes) -> tuple[str, str] | None:
    """The two names of a ``diff --git`` line, where they can be told apart."""
    if text.startswith(b'"'):
        end = _quote_end(text)
        if not end:
            return None
        return _unquote(text[:end]), _unquote(text[end:].lstrip(b" "))
    if text.endswith(b'"') and b' "' in text:
        first, second = text.split(b' "', 1)
        return _decoded(first), _unquote(b'"' + second)
    parts = text.split(b" ")
    if len(parts) == 2:
        return _decoded(parts[0]), _decoded(parts[1])
    if len(text) > _LONGEST:
        return None
    # Blanks inside: two names as deep as each other that end alike.  Only one cut can do that.
    for cut in range(1, len(parts)):
        first, second = b" ".join(parts[:cut]), b" ".join(parts[cut:])
        if first.count(b"/") == second.count(b"/") and (
            first.rpartition(b"/")[2] == second.rpartition(b"/")[2]
        ):
            return _decoded(first), _decoded(second)
    return None


def _quote_end(text: bytes) -> int:
    place = 1
    while place < len(text):
        if text[place] == 92:
            place += 2
            continue
        if text[place] == 34:
            return place + 1
        place += 1
    return 0


def _unquote(text: bytes) -> str:
    """A name that git may have C-quoted (``quote.c``): octal and letter escapes."""
    if len(text) < 2 or text[:1] != b'"' or text[-1:] != b'"':
        return _decoded(text)
    out = bytearray()
    place, end = 1, len(text) - 1
    while place < end:
        code = text[place]
        if code != 92:
            out.append(code)
            place += 1
            continue
        octal = text[place + 1 : place + 4]
        if re.fullmatch(rb"[0-3][0-7]{2}", octal):
            out.append(int(octal, 8))
            place += 4
        elif place + 1 < end and text[place + 1] in _ESCAPES:
            out.append(_ESCAPES[text[place + 1]])
            place += 2
        else:
            raise PatchSyntaxError(f"an escape that git does not make, in {_show(text)}")
    return _decoded(bytes(out))


def _decoded(name: bytes) -> str:
    """A name as :func:`os.fsdecode` gives it on a UTF-8 system, and the same on every other."""
    return name.decode("utf-8", "surrogateescape")


def _prefixed(
    source: str, target: str, names: tuple[str, str] | None, diff_line: bytes
) -> tuple[str, str]:
    """The names of rename or copy lines, with the prefixes that the ``diff --git`` line
    carries (one part, or none with --no-prefix); git's own where it does not say."""
    if names is None:
        text = _decoded(diff_line[:_LONGEST])
        for cut in (at for at, char in enumerate(text) if char == " "):
            first, second = text[:cut], text[cut + 1 :]
            if _tail_is(first, source) and _tail_is(second, target):
                return first, second
        return f"a/{source}", f"b/{target}"
    old, new = names
    return (
        old if _tail_is(old, source) else f"a/{source}",
        new if _tail_is(new, target) else f"b/{target}",
    )


def _tail_is(header: str, name: str | None) -> bool:
    """Whether a header's name is ``name``, perhaps behind one part of prefix."""
    return header == name or ("/" in header and header.split("/", 1)[1] == name)


def _tail(path: str) -> str:
    return path.split("/", 1)[-1]


def _base(path: str | None) -> str:
    return "" if path is None else path.rsplit("/", 1)[-1]


def _epoch(line: bytes) -> bool:
    """Whether a header line's time is the epoch, which GNU diff -N writes for "absent"."""
    match = _EPOCH.match(_split_stamp(line.rstrip(b"\r\n"))[1])
    if not match:
        return False
    seconds = int(match[1]) * 3600 + int(match[2]) * 60
    if match[3]:
        shift = int(match[4]) * 3600 + int(match[5]) * 60
        seconds -= shift if match[3] == b"+" else -shift
    return seconds % 86400 == 0


def _show(line: bytes) -> str:
    """A line as it can be shown: escapes made visible, not longer than a screen line."""
    text = line.rstrip(b"\r\n").decode("utf-8", "replace")
    text = "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)
    return text if len(text) <= 120 else text[:117] + "..."
