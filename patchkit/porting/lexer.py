"""Source text as tokens for the second pass: words, numbers, strings, signs, line ends.

Every byte belongs to one token.  White space counts to the token behind it and is not
compared, except a line end outside brackets, which is a token of its own together with the
indentation that follows: in Python it is grammar.  Must not do I/O.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import NamedTuple

_TOKEN = re.compile(
    rb"""(?P<space>[ \t\f\r]+|\\\r?\n)
    |(?P<line>\n)
    |(?P<comment>\#[^\n]*)
    |(?P<text>(?i:[rbfut]{0,2})(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}
        |\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'))
    |(?P<word>[A-Za-z_\x80-\xff][A-Za-z_0-9\x80-\xff]*)
    |(?P<number>[0-9](?:[A-Za-z_0-9.]|(?<=[eE])[+-])*)
    |(?P<sign>\*\*=?|//=?|>>=?|<<=?|->|:=|[-+*/%@&|^=!<>]=|\.\.\.|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = b"([{", b")]}"


class Token(NamedTuple):
    """``key`` is what is compared; the text is ``start:end``, white space before it
    included."""

    key: Hashable
    start: int
    end: int


def tokens(data: bytes) -> list[Token]:
    """The tokens of some whole lines."""
    found: list[Token] = []
    depth = start = 0
    for match in _TOKEN.finditer(data):
        kind, text = match.lastgroup, match[0]
        if kind == "space":
            continue
        if kind == "line":
            if depth > 0:
                continue
            found.append(Token(_line_end(data, match.end()), start, match.end()))
            start = match.end()
            continue
        if kind == "sign" and text in _OPEN:
            depth += 1
        elif kind == "sign" and text in _CLOSE:
            depth = max(depth - 1, 0)
        found.append(Token(text, start, match.end()))
        start = match.end()
    if start < len(data):
        found.append(Token(b"", start, len(data)))
    return found


def _line_end(data: bytes, at: int) -> tuple[str, bytes]:
    rest = data[at : at + 200]
    return "line", rest[: len(rest) - len(rest.lstrip(b" \t"))]


def words(data: bytes) -> list[bytes]:
    """The words, numbers, strings and signs alone."""
    return [
        match[0]
        for match in _TOKEN.finditer(data)
        if match.lastgroup in ("text", "word", "number", "sign")
    ]
