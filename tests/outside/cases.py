"""Cases from a patch alone: a tree that it may have been made from, and trees near to it.

Owns a reader of its own, which is lenient and knows nothing of patchkit: it looks for names,
old lines and modes, to lay out what must have been there, with lines of filling where the
patch says nothing.  Must not judge anything.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from patchkit.model import FileState
from tests.strategies import Tree, link, text

_HUNK = re.compile(rb"@@ -(\d{1,6})(?:,(\d{1,6}))? \+(\d{1,6})(?:,(\d{1,6}))? @@")
_EXTENDED = re.compile(
    rb"(old mode|new mode|deleted file mode|new file mode|rename from|rename to|copy from|copy to"
    rb"|similarity index|dissimilarity index|index) (.*?)\r?\n\Z"
)
_TIME = re.compile(rb" +\d{4}-\d\d-\d\d \d\d:\d\d.*|\t.*", re.DOTALL)
_PREFIX = re.compile(rb"[a-z]/")


@dataclass(frozen=True, slots=True)
class Case:
    """One question: what becomes of ``tree`` by ``patch``?  ``variant`` says how the tree
    or the patch differs from the plain case."""

    suite: str
    source: str
    variant: str
    tree: Tree
    patch: bytes
    strip: int
    reverse: bool = False

    @property
    def name(self) -> str:
        """``whatthepatch/tests/casefiles/git.patch#1:exact``."""
        return f"{self.suite}/{self.source}:{self.variant}"

    @property
    def digest(self) -> str:
        """The same for two cases that ask the same."""
        rows = sorted((name, *state) for name, state in self.tree.items())
        question = repr((rows, self.patch, self.strip, self.reverse))
        return hashlib.sha256(question.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(slots=True)
class _Block:
    """One hunk: the lines (from 0) of its header and behind its end, and its body."""

    at: int
    end: int
    start: int
    heading: bytes
    body: list[bytes]

    @property
    def old(self) -> list[bytes]:
        """The lines that must be there, each with its end."""
        return self.side(b"-")

    def side(self, sign: bytes) -> list[bytes]:
        """The lines of one side: context, and those that begin with ``sign``."""
        out: list[bytes] = []
        for number, line in enumerate(self.body):
            if line[:1] in (b"+", b"-", b"\\") and line[:1] != sign:
                continue
            line = line[1:] if line[:1] in (b" ", sign) else line
            if self.body[number + 1 : number + 2] and self.body[number + 1][:1] == b"\\":
                line = line.rstrip(b"\n")
            out.append(line)
        return out

    @property
    def ends(self) -> tuple[int, int]:
        """How many lines of context stand at its start and at its end."""
        signs = "".join("x" if line[:1] in (b"+", b"-") else " " for line in self.body)
        marks = sum(line[:1] == b"\\" for line in self.body[-1:])
        return len(signs) - len(signs.lstrip()), len(signs) - len(signs.rstrip()) - marks

    @property
    def goes_on(self) -> bool:
        """Whether the file may have had more lines behind it."""
        leading, trailing = self.ends
        if self.body and self.body[-1][:1] == b"\\":
            return False
        return (0 < trailing >= min(leading, 3)) or (not leading and not trailing)


@dataclass(slots=True)
class _Section:
    """What the patch says of one file."""

    git: bytes | None = None
    extended: dict[bytes, bytes] = field(default_factory=dict)
    minus: bytes | None = None
    plus: bytes | None = None
    blocks: list[_Block] = field(default_factory=list)
    binary: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sketch:
    """The rebuilt tree, the files in it whose lines the patch names, and the new names."""

    tree: Tree
    touched: dict[str, _Section]
    new: tuple[str, ...]
    strip: int


# -- reading -------------------------------------------------------------------------------


def read(data: bytes) -> list[_Section]:
    """The sections of a patch, as far as they can be made out."""
    lines = io.BytesIO(data).readlines()
    out: list[_Section] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith(b"diff --git "):
            out.append(_Section(git=line[11:].rstrip(b"\r\n")))
            while at < len(lines) and (found := _EXTENDED.match(lines[at])):
                out[-1].extended[found[1]] = found[2]
                at += 1
        elif line.startswith(b"--- ") and lines[at : at + 1] and lines[at].startswith(b"+++ "):
            if not out or out[-1].minus is not None or out[-1].blocks or out[-1].git is None:
                out.append(_Section())
            out[-1].minus, out[-1].plus = _header(line), _header(lines[at])
            at += 1
        elif out and (out[-1].minus is not None or out[-1].git) and _HUNK.match(line):
            out[-1].blocks.append(_block(lines, at - 1))
            at = out[-1].blocks[-1].end
        elif out and line.startswith((b"literal ", b"delta ")) and not out[-1].blocks:
            begin = at - 1
            while at < len(lines) and lines[at].strip():
                at += 1
            out[-1].binary.append(b"".join(lines[begin:at]))
    return out


def _block(lines: list[bytes], at: int) -> _Block:
    header = _HUNK.match(lines[at])
    assert header is not None
    old, new = (1 if header[n] is None else int(header[n]) for n in (2, 4))
    end = at + 1
    while end < len(lines) and (old > 0 or new > 0):
        sign = lines[end][:1]
        if sign not in (b" ", b"+", b"-", b"\\", b"\n", b"\r"):
            break
        old -= sign not in (b"+", b"\\")
        new -= sign not in (b"-", b"\\")
        end += 1
    if end < len(lines) and lines[end][:1] == b"\\":
        end += 1
    heading = lines[at][header.end() :].strip()
    return _Block(at, end, int(header[1]), heading, lines[at + 1 : end])


def _header(line: bytes) -> bytes:
    name = line[4:].rstrip(b"\r\n")
    if name.startswith(b'"'):
        return _unquoted(name.split(b"\t")[0])
    return _TIME.sub(b"", name).rstrip(b" ")


def _unquoted(name: bytes) -> bytes:
    """git's quoted names read like Python's bytes literals."""
    if not name.startswith(b'"'):
        return name
    try:
        value = ast.literal_eval("b" + name.decode("ascii"))
    except (SyntaxError, ValueError):
        return name
    return value if isinstance(value, bytes) else name


def _git_names(line: bytes) -> tuple[bytes, bytes] | None:
    """Both names of a ``diff --git`` line, where they are quoted or equal but for ``a/``."""
    quoted = re.fullmatch(rb'("(?:[^"\\]|\\.)*") ("(?:[^"\\]|\\.)*")', line)
    if quoted:
        return _unquoted(quoted[1]), _unquoted(quoted[2])
    half = len(line) // 2
    old, new = line[:half], line[half + 1 :]
    same = line[half : half + 1] == b" " and old.split(b"/", 1)[-1] == new.split(b"/", 1)[-1]
    return (old, new) if same else None


# -- rebuilding ----------------------------------------------------------------------------


def strip_level(sections: list[_Section]) -> int:
    """1 where all names begin with one letter and a slash, as git's do, else 0."""
    names = [name for s in sections for name in (s.minus, s.plus) if name not in (None, _NULL)]
    if not names:
        names = [s.git.lstrip(b'"') for s in sections if s.git]
    return int(bool(names) and all(name and _PREFIX.match(name) for name in names))


_NULL = b"/dev/null"


def sketch(data: bytes, *, old_names: bool = False) -> Sketch | None:
    """The tree that a patch may have been made from; None where none can be made out.

    A plain diff of ``x.orig`` and ``x`` is laid out under the second name, or with
    ``old_names`` under the first.
    """
    sections = read(data)
    strip = strip_level(sections)
    tree: Tree = {}
    touched: dict[str, _Section] = {}
    added: list[str] = []
    for section in sections:
        names = _names(section, strip)
        if names is None:
            return None
        old, new = names
        if old is None or new is None:
            path = old or new
        else:
            moved = b"rename from" in section.extended or b"copy from" in section.extended
            path = old if moved or old_names else new
        if path is None or not _is_harmless(path) or (new and not _is_harmless(new)):
            return None
        if new is not None and new != path:
            added.append(new)
        if old is None:
            added.append(path)
            continue
        if path in tree or any(path.startswith(f"{p}/") or p.startswith(f"{path}/") for p in tree):
            continue
        state = _contents(section, path)
        if state is None:
            return None
        tree[path] = state
        if section.blocks and state.kind == "file" and any(b.old for b in section.blocks):
            touched[path] = section
    return Sketch(tree, touched, tuple(added), strip) if tree or added else None


def _names(section: _Section, strip: int) -> tuple[str | None, str | None] | None:
    """The path before and after, without the parts that are stripped."""
    said = section.extended
    old, new = section.minus, section.plus
    if old is None or new is None:
        pair = _git_names(section.git or b"")
        if pair is None and b"rename from" not in said and b"copy from" not in said:
            return None
        old, new = pair or (b"", b"")
    paths = [_stripped(name, strip) for name in (old, new)]
    for word in (b"rename", b"copy"):
        if word + b" from" in said and word + b" to" in said:
            paths = [_decoded(_unquoted(said[word + side])) for side in (b" from", b" to")]
    if b"new file mode" in said or _is_new(section):
        paths[0] = None
    if b"deleted file mode" in said:
        paths[1] = None
    return paths[0], paths[1]


def _is_new(section: _Section) -> bool:
    return len(section.blocks) == 1 and not section.blocks[0].old and section.blocks[0].start == 0


def _stripped(name: bytes, strip: int) -> str | None:
    if name == _NULL:
        return None
    return _decoded(b"/".join([part for part in name.split(b"/") if part][strip:]))


def _decoded(name: bytes) -> str:
    return os.fsdecode(name)


def _is_harmless(path: str) -> bool:
    """Only such paths are tried: other tools may follow the others out of the folder."""
    parts = path.split("/")
    return bool(path) and path[0] != "/" and "\0" not in path and not {"", ".", ".."} & set(parts)


def _contents(section: _Section, path: str) -> FileState | None:
    said = section.extended
    index = said.get(b"index", b"").split(b" ")
    mode = said.get(b"old mode") or said.get(b"deleted file mode") or b"".join(index[1:2])
    if mode == b"160000":
        return None
    if section.binary:
        data = _literal(section.binary[-1]) if len(section.binary) > 1 else None
        return None if data is None else text(data, 0o755 if mode == b"100755" else 0o644)
    if not section.blocks:
        data = b"" if b"deleted file mode" in said else f"what {path!a} holds\n".encode()
    else:
        data = b"".join(_lines(section.blocks, path))
    if mode == b"120000":
        return link(os.fsdecode(data.rstrip(b"\n")) or "nowhere") if b"\0" not in data else None
    return text(data, 0o755 if mode == b"100755" else 0o644)


def _lines(blocks: list[_Block], path: str) -> Iterator[bytes]:
    count = 0
    crlf = sum(line.endswith(b"\r\n") for block in blocks for line in block.old[:1])
    end = b"\r\n" if crlf == len(blocks) else b"\n"
    for block in blocks:
        first = block.start if block.old else block.start + 1
        for number in range(count + 1, first):
            filling = f"0: line {number} of {path!a}".encode()  # no heading of what follows
            yield (block.heading if number == first - 1 and block.heading else filling) + end
            count = number
        yield from block.old
        count += len(block.old)
    if blocks[-1].goes_on:
        yield from (f"0: line {n} behind it of {path!a}".encode() + end for n in range(1, 5))


def _literal(binary: bytes) -> bytes | None:
    """The bytes of one half of a binary patch, where it holds them all."""
    head, *rows = binary.splitlines()
    if not head.startswith(b"literal "):
        return None
    packed = b""
    try:
        for row in rows:
            size = row[0] - (64 if row[0] < 97 else 70)
            packed += base64.b85decode(row[1:])[:size]
        return zlib.decompress(packed)
    except (ValueError, zlib.error):
        return None


# -- variants ------------------------------------------------------------------------------


def plain(suite: str, source: str, data: bytes) -> Iterator[Case]:
    """The case as it was rebuilt; two where a plain diff gives the file two names."""
    for variant, old_names in (("exact", False), ("old-name", True)):
        made = sketch(data, old_names=old_names)
        if made is not None and (not old_names or set(made.tree) & set(made.new) == set()):
            yield Case(suite, source, variant, made.tree, data, made.strip)


def variants(case: Case, after: Tree | None) -> Iterator[Case]:
    """What may have become of the tree or of the patch on the way.  ``after`` is what the
    plain case gives, where it is known."""
    made = sketch(case.patch)
    if made is None or case.variant != "exact":
        return

    def tree(name: str, changed: Tree) -> Iterator[Case]:
        if changed != case.tree:
            yield replace(case, variant=name, tree=changed)

    def patch(name: str, changed: bytes) -> Iterator[Case]:
        if changed != case.patch:
            yield replace(case, variant=name, patch=changed)

    def edited(change: dict[str, bytes]) -> Tree:
        return {
            path: state._replace(data=change.get(path, state.data))
            for path, state in case.tree.items()
        }

    data = {path: case.tree[path].data for path in made.touched}
    above = {path: b"".join(b"0: above %d\n" % n for n in range(1, 5)) for path in data}
    twins = {path: _twin(data[path], section) for path, section in made.touched.items()}
    yield from tree("shifted", edited({p: above[p] + d for p, d in data.items()}))
    yield from tree("grown", edited({p: _whole(d) + b"one more\n" for p, d in data.items()}))
    yield from tree("twin", edited(twins))
    yield from tree("twin-shifted", edited({p: above[p] + d for p, d in twins.items()}))
    yield from tree("outer-line", edited(_spoiled(made, data, inner=False)))
    yield from tree("inner-line", edited(_spoiled(made, data, inner=True)))
    yield from tree("blanks", edited({p: d.replace(b" ", b"  ") for p, d in data.items()}))
    if case.tree:
        gone = max(case.tree)
        yield from tree("missing", {p: s for p, s in case.tree.items() if p != gone})
    there = {path: text(b"in the way\n") for path in made.new[:1] if path not in case.tree}
    if not any(p.startswith(f"{n}/") or n.startswith(f"{p}/") for n in there for p in case.tree):
        yield from tree("occupied", {**case.tree, **there})
    if after is not None:
        yield from tree("applied", after)
        for back in tree("back", after):
            yield replace(back, reverse=True)
    yield from _line_ends(case, edited({p: _crlf(d) for p, d in data.items()}))
    for name, changed in _damaged(case.patch):
        yield from patch(name, changed)


def _line_ends(case: Case, windows: Tree) -> Iterator[Case]:
    if b"\r" in case.patch or b"GIT binary" in case.patch or windows == case.tree:
        return
    patch = _crlf(case.patch)
    yield replace(case, variant="crlf-both", tree=windows, patch=_crlf_bodies(case.patch))
    yield replace(case, variant="crlf-all", tree=windows, patch=patch)
    yield replace(case, variant="crlf-tree", tree=windows)
    yield replace(case, variant="crlf-patch", patch=patch)


def _crlf(data: bytes) -> bytes:
    return re.sub(rb"(?<!\r)\n", b"\r\n", data)


def _crlf_bodies(patch: bytes) -> bytes:
    """CR LF in the lines of hunks alone, as a diff of two such files has it."""
    lines = io.BytesIO(patch).readlines()
    for section in read(patch):
        for block in section.blocks:
            for number in range(block.at + 1, block.end):
                if lines[number][:1] != b"\\":
                    lines[number] = _crlf(lines[number])
    return b"".join(lines)


def _whole(data: bytes) -> bytes:
    return data if data.endswith(b"\n") or not data else data + b"\n"


def _twin(data: bytes, section: _Section) -> bytes:
    """The file with the first block of old lines a second time, behind all others."""
    block = next(block for block in section.blocks if block.old)
    return _whole(data) + b"0: between\n" + _whole(b"".join(block.old)) + b"0: behind\n"


def _spoiled(made: Sketch, data: dict[str, bytes], *, inner: bool) -> dict[str, bytes]:
    """Each first hunk with one other line: its outermost, or the one that it changes."""
    out = {}
    for path, section in made.touched.items():
        block = section.blocks[0]
        lines = io.BytesIO(data[path]).readlines()
        place = block.start - 1
        if inner:
            signs = [line[:1] for line in block.body if line[:1] not in (b"+", b"\\")]
            if b"-" not in signs:
                continue
            place += signs.index(b"-")
        elif not block.ends[0]:
            continue
        if 0 <= place < len(lines):
            lines[place] = b"otherwise " + lines[place]
            out[path] = b"".join(lines)
    return out


def _damaged(patch: bytes) -> Iterator[tuple[str, bytes]]:
    """The patch as mailers, editors and broken downloads leave it."""
    lines = io.BytesIO(patch).readlines()
    blocks = [block for section in read(patch) for block in section.blocks]
    if not blocks:
        return
    last = max(blocks, key=lambda block: block.end)
    first = blocks[0]
    yield "cut-line", b"".join(lines[: last.end - 1])
    if last.end == len(lines) and lines[-1][:1] != b"\\":
        yield "cut-byte", patch.rstrip(b"\r\n")
    for name, line in (("uncounted-line", b"+one more\n"), ("uncounted-context", b" one more\n")):
        yield name, b"".join([*lines[: first.end], line, *lines[first.end :]])
    bare = list(lines)
    for block in blocks:
        for number in range(block.at + 1, block.end):
            if bare[number] == b" \n":
                bare[number] = b"\n"
    yield "bare-blanks", b"".join(bare)
    mail = b"From: A <a@example.org>\nSubject: [PATCH] it\n\nSome words.\n\n---\n"
    yield "mailed", mail + _whole(patch) + b"-- \n2.39.5\n\n"
