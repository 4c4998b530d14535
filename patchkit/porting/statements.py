"""The second pass: statement by statement, and inside one by its tokens.

Between two lines that all three sides share, each side is cut into statements (a comment or
blank line is one too).  Statements are the same, or forms of one another; what ours adds
goes between the two that it stands between, what ours changes is changed in upstream's form
of it.  What has no such place refuses the whole region.  Must not do I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from .align import align_by
from .beside import arranged
from .lexer import Token, tokens, words
from .sequence import Sequences, forms
from .source import Source

# A region with more tokens than this is no statement that changed, but a rewrite.
_TOKENS = 6000
_SILENT = {
    *(b"", b"else", b"try", b"finally", b"return", b"pass", b"break", b"continue", b"{", b"}"),
    *(b"return None", b"raise", b"endif", b"#endif", b"#else", b'"""', b"..."),
}

#: What statements that have nothing to do with each other share, beside their signs.
_COMMON = {b"self", b"cls", b"None", b"True", b"False"}

Lines = Sequence[bytes]


def line_says(line: bytes) -> bool:
    """Whether a line says anything of its place."""
    text = line.strip().rstrip(b":;,")
    return text not in _SILENT and any(chr(c).isalnum() or c in b"_\"'#" for c in text)


def like_lines(one: bytes, other: bytes) -> float:
    """How much two lines or statements are forms of one: the share of words and signs that they
    have in common; 0 where they are indented or begin otherwise, or share no word that tells."""
    indent = len(one) - len(one.lstrip()), len(other) - len(other.lstrip())
    first, second = words(one) or one.split(), words(other) or other.split()
    if indent[0] != indent[1] or first[:1] != second[:1] or not line_says(one):
        return 0.0
    both = Counter(first) & Counter(second)
    if not any(word not in _COMMON and not word[:1].isdigit() and _is_word(word) for word in both):
        return 0.0
    return both.total() / max(len(first), len(second))


def _is_word(text: bytes) -> bool:
    return any(chr(code).isalnum() or code >= 128 for code in text)


def _like(one: Hashable, other: Hashable) -> float:
    assert isinstance(one, bytes) and isinstance(other, bytes)
    return like_lines(one, other)


def _align(one: Lines, other: Lines) -> list[int]:
    return align_by(one, other, lambda text: isinstance(text, bytes) and line_says(text))


def merge_statements(
    base: Lines, ours: Lines, theirs: Lines, ends: tuple[bytes, bytes], source: Source, start: int
) -> list[bytes] | None:
    """Theirs with what ours changed of base; None where some of it has no sure place.

    ``ours`` stands in ``source`` from line ``start`` (from 0) on; ``ends`` are the lines
    around the region, which all sides have.
    """
    sides = _cut(base), _cut(ours), _cut(theirs)
    if None in sides:
        return None
    b, o, t = (side or [] for side in sides)
    merger = _Statements(b, o, t, ends, source, _starts(o, start))
    if not merger.place():
        return None
    return merger.result()


def _cut(lines: Lines) -> list[bytes] | None:
    data = b"".join(lines)
    found: list[bytes] = []
    at = 0
    every = tokens(data)
    if len(every) > _TOKENS:
        return None
    for token in every:
        if isinstance(token.key, tuple):
            found.append(data[at : token.end])
            at = token.end
    if at < len(data):
        found.append(data[at:])
    return found


def _starts(statements: Lines, start: int) -> list[int]:
    """The first line of each, where the first of them is at ``start``."""
    found = []
    for text in statements:
        found.append(start)
        start += text.count(b"\n")
    return found


def _gone_comments(base: Lines, theirs: Lines) -> set[int]:
    """The comments that upstream took out: they place nothing, and nobody misses them."""
    there = _align(base, theirs)
    alike = forms(base, theirs, there, _like)
    return {
        n
        for n, text in enumerate(base)
        if there[n] < 0 and n not in alike and text.lstrip().startswith(b"#")
    }


class _Statements:
    def __init__(
        self,
        base: Lines,
        ours: Lines,
        theirs: Lines,
        ends: tuple[bytes, bytes],
        source: Source,
        starts: Sequence[int],
    ) -> None:
        gone = _gone_comments(base, theirs)
        stays = _align(base, ours)
        dropped = {stays[n] for n in gone}
        self.base = [text for n, text in enumerate(base) if n not in gone]
        self.ours = [text for n, text in enumerate(ours) if n not in dropped]
        self.theirs = theirs
        #: The line of each statement of ours in ``source``.
        self.starts = [line for n, line in enumerate(starts) if n not in dropped]
        self.source, self.ends = source, ends
        base, ours = self.base, self.ours
        self.here = _align(base, ours)
        self.there = _align(base, theirs)
        self.across = _align(ours, theirs)
        self.changed = forms(base, ours, self.here, _like)
        self.forms = forms(base, theirs, self.there, _like)
        self.edits: list[tuple[int, int, list[bytes]]] = []
        self.counts = Counter(base), Counter(theirs)

    def place(self) -> bool:
        """Find the place of every change; False where one has none."""
        pairs = [(i, j) for i, j in enumerate(self.here) if j >= 0] + list(self.changed.items())
        b0 = o0 = 0
        for i, j in sorted([*pairs, (len(self.base), len(self.ours))]):
            if (i > b0 or j > o0) and not self._gap(b0, i, o0, j):
                return False
            if i in self.changed and not self._form(i, j):
                return False
            b0, o0 = i + 1, j + 1
        return True

    def result(self) -> list[bytes]:
        """Theirs with the edits, as lines."""
        out = list(self.theirs)
        for start, end, new in sorted(self.edits, key=lambda e: e[:2], reverse=True):
            out[start:end] = new
        return b"".join(out).splitlines(keepends=True)

    def _at(self, index: int) -> int | None:
        if index < 0:
            return -1
        if index == len(self.base):
            return len(self.theirs)
        place = self.there[index]
        return self.forms.get(index) if place < 0 else place

    def _as_often(self, item: bytes) -> bool:
        """Whether theirs has as many of a statement as base, so that the order says which of
        them is which.  A form of it counts as it."""
        return not line_says(item) or self.counts[0][item] == (self.counts[1][item] or 1)

    def _once(self, texts: Lines) -> bool:
        """Whether one of some statements, of those that say something, stands nowhere else."""
        return any(
            line_says(text) and self.counts[0][text] == 1 == self.counts[1][text] for text in texts
        )

    def _gap(self, b0: int, b1: int, o0: int, o1: int) -> bool:
        """Statements that went, and others that came in their place."""
        before, behind = self._at(b0 - 1), self._at(b1)
        row = self.across[o0:o1]
        if before is None or behind is None:
            return False
        stays = [self.there[n] for n in range(b0, b1)]
        new = list(self.ours[o0:o1])
        if stays and stays == list(range(stays[0], stays[0] + len(stays))) and stays[0] >= 0:
            gone = self.base[b0:b1]
            close = stays[0] == before + 1 and stays[-1] == behind - 1
            if not all(map(self._as_often, gone)) or not (close or self._once(gone)):
                return False
            self.edits.append((stays[0], stays[-1] + 1, new))
            return True
        if any(place >= 0 for place in stays) or any(n in self.forms for n in range(b0, b1)):
            return False
        if row and row == list(range(row[0], row[0] + len(row))) and row[0] >= 0:
            return before < row[0] and row[-1] < behind  # theirs has it
        there = list(self.theirs[before + 1 : behind])
        around = self.base[max(b0 - 1, 0) : b1 + 1]
        if b0 == b1 and around and not any(map(self._as_often, around)):
            return False
        if b0 == b1 and not there:
            if not self._anchored(b0, before, behind):
                return False
            self.edits.append((behind, behind, new))
            return True
        if b0 == b1 and b1 in self.changed and all(t.lstrip().startswith(b"#") for t in new):
            self.edits.append((behind, behind, new))  # what they say is of the change behind
            return True
        if b0 == b1:
            beside = self._beside(o0, o1, before, behind)
            if beside is not None:
                self.edits.append((before + 1, behind, beside))
                return True
            return False
        return not there and not new  # both removed it

    def _anchored(self, b0: int, before: int, behind: int) -> bool:
        """Whether an insertion beside a blank line, which stands anywhere, is between the same
        two that say something."""
        low, high = b0 - 1, b0
        while low >= 0 and not self.base[low].strip():
            low -= 1
        while high < len(self.base) and not self.base[high].strip():
            high += 1
        ends = self._at(low), self._at(high)
        if ends[0] is None or ends[1] is None:
            return False
        between = self.theirs[ends[0] + 1 : ends[1]]
        return not any(text.strip() for text in between)

    def _beside(self, o0: int, o1: int, before: int, behind: int) -> list[bytes] | None:
        """Ours and theirs at one place, where their order says nothing."""
        own = [line for text in self.ours[o0:o1] for line in text.splitlines(keepends=True)]
        other = [
            line
            for text in self.theirs[before + 1 : behind]
            for line in text.splitlines(keepends=True)
        ]
        ends = (
            self.theirs[before] if before >= 0 else self.ends[0],
            self.theirs[behind] if behind < len(self.theirs) else self.ends[1],
        )
        first = self.starts[o0]
        return arranged(own, other, ends, self.source, (first, first + len(own)))

    def _form(self, i: int, j: int) -> bool:
        """A statement that ours changed."""
        old, new = self.base[i], self.ours[j]
        if self.there[i] >= 0:
            if not self._as_often(old):
                return False
            self.edits.append((self.there[i], self.there[i] + 1, [new]))
            return True
        place = self.forms.get(i)
        if place is None:
            return self.across[j] >= 0
        text = merge_tokens(old, new, self.theirs[place])
        if text is None:
            return False
        self.edits.append((place, place + 1, [text]))
        return True


def merge_tokens(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """One statement of theirs with the tokens that ours changed of base; None where one has
    no sure place."""
    if ours == theirs:
        return theirs
    sides = tokens(base), tokens(ours), tokens(theirs)
    keys = [[token.key for token in side] for side in sides]
    out: list[bytes] = []
    at = 0
    for placed in Sequences(keys[0], keys[1], keys[2], says=_token_says, margin=1).resolve():
        if placed.verdict == "upstream":
            continue
        if placed.verdict == "stuck":
            return None
        change = placed.change
        start = _start(sides[2], placed.t0)
        if start < at:
            return None
        end = sides[2][placed.t1 - 1].end if placed.t1 > placed.t0 else start
        out.append(theirs[at:start])
        if change.o1 > change.o0:
            out.append(ours[sides[1][change.o0].start : sides[1][change.o1 - 1].end])
        at = end
    out.append(theirs[at:])
    return b"".join(out)


def _token_says(key: Hashable) -> bool:
    return isinstance(key, bytes) and _is_word(key)


def _start(side: Sequence[Token], place: int) -> int:
    if place < len(side):
        return side[place].start
    return side[-1].end if side else 0
