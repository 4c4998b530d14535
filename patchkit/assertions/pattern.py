"""``pattern`` and ``text``: how often something stands in a file, a def or a class."""

from __future__ import annotations

import re

from patchkit.assertions.index import indexed
from patchkit.assertions.mask import masked
from patchkit.assertions.scopes import Span
from patchkit.assertions.source import Unreadable, any_text
from patchkit.model import Assertion, Finding


def judge(assertion: Assertion, data: bytes) -> Finding:
    """The verdict; the counts of all definitions named by ``within`` are added up.

    Raises :class:`Unreadable`.
    """
    wanted = assertion.pattern
    if wanted is None:
        wanted = re.escape(assertion.text or "")
    whole = assertion.within is None
    spans = [] if whole else indexed(data).spans(assertion.within)
    text = masked(data) if assertion.scope == "code" else any_text(data, assertion.file)
    lines = _lines(wanted, text, spans)
    least, most = assertion.minimum or 0, assertion.maximum
    what = f"{_expected(assertion.minimum, most)} of {_name(assertion)}"
    if most is not None and len(lines) > most:
        return Finding(False, f"expected {what}, found {_found(lines)}", lines[most])
    if len(lines) >= least:
        return Finding(True, f"found {_found(lines)}", lines[0] if lines else None)
    message = f"expected {what}, found {_found(lines)}"
    if assertion.scope == "code":
        unseen = _lines(wanted, any_text(data, assertion.file), spans)
        if len(unseen) > len(lines):
            message += f"; with comments and strings it is {_found(unseen)}"
    start = spans[0].first if spans else 1
    return Finding(False, message, lines[0] if lines else start)


def _lines(pattern: str, text: str, spans: list[Span]) -> list[int]:
    """The line of each match, in the whole text or in each of the spans."""
    if not spans:
        return _match_lines(pattern, text, 1)
    rows = text.split("\n")
    out: list[int] = []
    for span in spans:
        part = "\n".join(rows[span.first - 1 : span.last]) + "\n"
        out += _match_lines(pattern, part, span.first)
    return out


def _match_lines(pattern: str, text: str, first: int) -> list[int]:
    out: list[int] = []
    line, seen = first, 0
    for start in match_starts(pattern, text):
        line += text.count("\n", seen, start)
        seen = start
        out.append(line)
    return out


def match_starts(pattern: str, text: str) -> list[int]:
    """Where the matches of a regular expression begin that do not overlap.

    The one place that runs a manifest's regular expressions.
    Raises :class:`Unreadable` for one that is none.
    """
    try:
        return [found.start() for found in re.compile(pattern, re.MULTILINE).finditer(text)]
    except (re.error, OverflowError, RecursionError) as error:
        raise Unreadable(f"{pattern!r} is not a regular expression: {error}") from None


def _name(assertion: Assertion) -> str:
    kind, what = "pattern", assertion.pattern
    if what is None:
        kind, what = "text", assertion.text
    where = f" in {assertion.within}" if assertion.within is not None else ""
    where += " outside comments and strings" if assertion.scope == "code" else ""
    return f"{kind} {what!r}{where}"


def _expected(least: int | None, most: int | None) -> str:
    if most == 0:
        return "no match"
    if least == most:
        return f"exactly {_matches(most)}"
    low = f"at least {_matches(least)}" if least is not None else ""
    high = f"at most {_matches(most)}" if most is not None else ""
    return " and ".join(filter(None, (low, high))) or "any number of matches"


def _matches(number: int | None) -> str:
    return f"{number} match" if number == 1 else f"{number} matches"


def _found(lines: list[int]) -> str:
    if not lines:
        return "none"
    where = ", ".join(map(str, lines[:3])) + (", …" if len(lines) > 3 else "")
    return f"{len(lines)} (line {where})"
