"""Python source with its comments and strings blanked out, character for character.

Owns the lexical rules, by Python's reference (2.2 comments, 2.4.1 strings) and PEP 701 and
750 (f-strings and t-strings nest).  It does not use ``tokenize``, since that one takes an
f-string as one token before Python 3.12 and as many afterwards, and does not know the
strings of a later release than its own: the same file must give the same verdict under
every interpreter.  Must not parse.
"""

from __future__ import annotations

import re
from functools import lru_cache

from patchkit.assertions.source import Unreadable, check_size, line_of, python_text

_PREFIX = r"(?:(?<!\w)(?P<prefix>[bB][rR]?|[rR][bBfFtT]?|[uU]|[fF][rR]?|[tT][rR]?))?"
_TOKEN = _PREFIX + r"(?P<quote>'''|\"\"\"|'|\")|#[^\n]*"
_START = re.compile(_TOKEN)
_FIELD = re.compile(_TOKEN + r"|[][(){}:]")
_END = {
    "'": re.compile(r"[^'\\\n]*(?:\\.[^'\\\n]*)*'", re.DOTALL),
    '"': re.compile(r'[^"\\\n]*(?:\\.[^"\\\n]*)*"', re.DOTALL),
    "'''": re.compile(r"[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''", re.DOTALL),
    '"""': re.compile(r'[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""', re.DOTALL),
}
_LITERAL = {
    "'": re.compile(r"[\\{}\n]|'"),
    '"': re.compile(r'[\\{}\n]|"'),
    "'''": re.compile(r"[\\{}]|'''"),
    '"""': re.compile(r'[\\{}]|"""'),
}
_NOT_NEWLINE = re.compile(r"[^\n]")
_BRACKET = re.compile(r"[][(){}]")
_PAIR = {")": "(", "]": "[", "}": "{"}


def mask(text: str) -> str:
    """``text`` with comments as spaces and strings as null characters; newlines stay.

    Raises :class:`Unreadable` on a string or a bracket that is never closed.

    >>> mask("x = f'a{b!r}' # c").replace(chr(0), "_")
    'x = _________    '
    """
    out: list[str] = []
    at = 0
    while (found := _START.search(text, at)) is not None:
        out.append(text[at : found.start()])
        if found["quote"] is None:
            at = found.end()
            out.append(" " * (at - found.start()))
        else:
            at = _string_end(text, found)
            out.append(_NOT_NEWLINE.sub("\0", text[found.start() : at]))
    out.append(text[at:])
    masked = "".join(out)
    _check_brackets(masked)
    return masked


def _check_brackets(masked: str) -> None:
    """Raise on the first bracket without a partner: such a file was cut off or garbled."""
    opened: list[tuple[str, int]] = []
    for found in _BRACKET.finditer(masked):
        bracket = found[0]
        if bracket not in _PAIR:
            opened.append((bracket, found.start()))
        elif not opened or opened.pop()[0] != _PAIR[bracket]:
            line = line_of(masked, found.start())
            raise Unreadable(f"the {bracket!r} on line {line} closes nothing", line)
    if opened:
        bracket, start = opened[-1]
        line = line_of(masked, start)
        raise Unreadable(f"the {bracket!r} on line {line} is never closed", line)


def _unclosed(text: str, start: int) -> Unreadable:
    line = line_of(text, start)
    return Unreadable(f"the string that starts on line {line} is never closed", line)


def _string_end(text: str, start: re.Match[str]) -> int:
    """Where the string ends whose prefix and opening quote are ``start``."""
    prefix = (start["prefix"] or "").lower()
    if "f" in prefix or "t" in prefix:
        return _formatted_end(text, start.end(), start["quote"], "r" in prefix, start.start())
    end = _END[start["quote"]].match(text, start.end())
    if end is None:
        raise _unclosed(text, start.start())
    return end.end()


def _formatted_end(text: str, at: int, quote: str, raw: bool, start: int) -> int:
    """Where the f-string ends whose contents begin at ``at``."""
    while True:
        found = _LITERAL[quote].search(text, at)
        if found is None or found[0] == "\n":
            raise _unclosed(text, start)
        at = found.end()
        if found[0] == quote:
            return at
        if found[0] == "\\":
            at = _escape_end(text, at, raw)
        elif text.startswith(found[0], at):  # "{{" or "}}"
            at += 1
        elif found[0] == "{":
            at = _field_end(text, at, quote, raw, start)


def _escape_end(text: str, at: int, raw: bool) -> int:
    """Where the escape ends whose backslash stands before ``at``.

    A brace is not escaped by a backslash, and the braces of ``\\N{…}`` hold no field.
    """
    if not raw and text.startswith("N{", at):
        return text.find("}", at) + 1 or len(text)
    return at if text[at : at + 1] in ("{", "}") else at + 1


def _field_end(text: str, at: int, quote: str, raw: bool, start: int) -> int:
    """Where the replacement field ends whose expression begins at ``at``."""
    depth = 0
    while (found := _FIELD.search(text, at)) is not None:
        at = found.end()
        if found["quote"] is not None:
            at = _string_end(text, found)
        elif found[0] in ("(", "[", "{"):
            depth += 1
        elif found[0] == ":":
            if depth == 0:
                return _format_spec_end(text, at, quote, raw, start)
        elif found[0] in _PAIR:
            if depth == 0:
                if found[0] == "}":
                    return at
                break
            depth -= 1
    raise _unclosed(text, start)


def _format_spec_end(text: str, at: int, quote: str, raw: bool, start: int) -> int:
    """Where the field ends whose format specification begins at ``at``."""
    while (found := _LITERAL[quote].search(text, at)) is not None and found[0] != quote:
        at = found.end()
        if found[0] == "}":
            return at
        if found[0] == "{":
            at = _field_end(text, at, quote, raw, start)
        elif found[0] == "\\":
            at = _escape_end(text, at, raw)
    raise _unclosed(text, start)


@lru_cache(maxsize=16)
def _masked(data: bytes) -> str | Unreadable:
    try:
        return mask(python_text(data))
    except Unreadable as error:
        return error.with_traceback(None)


def masked(data: bytes) -> str:
    """:func:`mask` of a Python file's bytes, kept for the next assertion on them."""
    check_size(data)
    found = _masked(data)
    if isinstance(found, Unreadable):
        raise Unreadable(found.message, found.line)
    return found
