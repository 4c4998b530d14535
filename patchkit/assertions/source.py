"""Bytes of a file as text, and the one error of everything that reads it.

Owns decoding (PEP 263 cookies, byte-order marks, line ends).  Must not parse.
"""

from __future__ import annotations

import difflib
import tokenize
from collections.abc import Iterable

#: The most bytes of Python source that are looked at as such; the largest file of SGLang and
#: FlashInfer has 444 kB.  A syntax tree takes up to 600 times as much.
MAX_SOURCE = 2 * 1024 * 1024


class Unreadable(Exception):
    """The bytes, or the assertion itself, cannot be judged; ``line`` counts from 1."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def check_size(data: bytes) -> None:
    """Raise :class:`Unreadable` for what is too large to be source that a person wrote."""
    if len(data) > MAX_SOURCE:
        raise Unreadable(
            f"it has {len(data)} bytes, and the limit for Python source is {MAX_SOURCE}; only"
            ' pattern and text with in = "text" and without within can be asserted of it'
        )


def is_python(path: str) -> bool:
    """Whether a path names Python source (``.py``, ``.pyi``).

    >>> is_python("a/b.py"), is_python("a/b.cuh")
    (True, False)
    """
    return path.endswith((".py", ".pyi"))


def python_text(data: bytes) -> str:
    """Python source as the compiler sees it: declared encoding, every line end ``\\n``.

    Raises :class:`Unreadable` where the compiler would refuse the bytes (PEP 263), and for
    null characters.

    >>> python_text(b"# coding: latin-1\\r\\nx = '\\xe9'\\r\\n")
    "# coding: latin-1\\nx = 'é'\\n"
    """
    first_two = [line + b"\n" for line in data.split(b"\n", 2)[:2]]
    try:
        encoding, _ = tokenize.detect_encoding(iter(first_two).__next__)
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"line {line} cannot be decoded as {error.encoding}", line) from None
    except (SyntaxError, LookupError, ValueError) as error:
        raise Unreadable(f"cannot be decoded: {error}", 1) from None
    null = text.find("\0")
    if null >= 0:
        line = text.count("\n", 0, null) + 1
        raise Unreadable(f"line {line} holds a null character: not Python source", line)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def any_text(data: bytes, path: str) -> str:
    """The text of any file; never fails.  Bytes that are no text become surrogate escapes,
    ``\\r\\n`` becomes ``\\n`` so that ``$`` and multi-line texts do not depend on line ends.
    """
    if is_python(path):
        try:
            return python_text(data)
        except Unreadable:
            pass
    return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def line_of(text: str, offset: int) -> int:
    """The line, from 1, that holds the character at ``offset``."""
    return text.count("\n", 0, offset) + 1


def nearest(name: str, names: Iterable[str]) -> str:
    """``"; nearest: a, b"``, or nothing: the names most like ``name``, for a message.

    >>> nearest("fusoin", ["fusion", "other"])
    '; nearest: fusion'
    """
    known = sorted(set(names))
    last = name.rpartition(".")[2]
    found = [other for other in known if other.rpartition(".")[2] == last]
    found = (found or difflib.get_close_matches(name, known))[:3]
    return f"; nearest: {', '.join(found)}" if found else ""
