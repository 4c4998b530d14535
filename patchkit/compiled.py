"""An :class:`~patchkit.model.Assertion` as the JSON that the state holds, back, and judged.

Apart from :mod:`verify`, which needs it only when a file differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .model import Assertion, Condition, Finding, Literal_
from .signals import TooLong, time_limit

# A pattern that backtracks without end is found by its time; an honest one takes milliseconds.
SECONDS = 20.0
#: All the assertions of one command together.
SECONDS_IN_ALL = 60.0


class Clock:
    """How long the assertions of one command took so far."""

    def __init__(self) -> None:
        self._spent = 0.0

    def judged(
        self, assertion: Assertion, data: bytes | None, read: Callable[[str], bytes | None]
    ) -> Finding:
        """:func:`~patchkit.assertions.evaluate`, bounded in time."""
        from .assertions import evaluate  # a bundle without assertions needs none of it

        seconds = min(SECONDS, SECONDS_IN_ALL - self._spent)
        begin = time.monotonic()
        try:
            if seconds > 0:
                with time_limit(seconds):
                    return evaluate(assertion, data, read)
        except TooLong:
            pass
        finally:
            self._spent += time.monotonic() - begin
        text = f"in {SECONDS:.0f} s: the pattern backtracks without end"
        if seconds < SECONDS:
            text = f"in the {SECONDS_IN_ALL:.0f} s that all assertions together have"
        return Finding(False, f"cannot be judged {text}")


def judged(
    assertion: Assertion, data: bytes | None, read: Callable[[str], bytes | None]
) -> Finding:
    """One assertion by itself, bounded in time."""
    return Clock().judged(assertion, data, read)


def assertion_as_json(assertion: Assertion) -> dict[str, Any]:
    """What the state says of an assertion."""
    value = assertion._asdict()
    for key in ("literal", "condition"):
        if value[key] is not None:
            value[key] = value[key]._asdict()
    return value


def assertion_from(value: dict[str, Any]) -> Assertion:
    """The inverse of :func:`assertion_as_json`, after a round trip through JSON."""
    fields = dict(value)
    if fields.get("literal"):
        literal = fields["literal"]
        fields["literal"] = Literal_(literal["name"], tuple(literal["has"]))
    if fields.get("condition"):
        condition = fields["condition"]
        fields["condition"] = Condition(
            condition["test"],
            tuple((key, given) for key, given in condition["given"]),
            condition["expected"],
        )
    fields["defined"] = tuple(fields.get("defined") or ())
    return Assertion(**fields)
