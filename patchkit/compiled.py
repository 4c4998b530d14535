"""An :class:`~patchkit.model.Assertion` as the JSON that the state holds, back, and judged.

Apart from :mod:`verify`, which needs it only when a file differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .model import Assertion, Condition, Finding, Literal_
from .signals import TooLong, time_limit

# A pattern that backtracks without end is found by its time; an honest one takes milliseconds.
SECONDS = 20.0


def judged(
    assertion: Assertion, data: bytes | None, read: Callable[[str], bytes | None]
) -> Finding:
    """:func:`~patchkit.assertions.evaluate`, bounded in time."""
    from .assertions import evaluate  # a bundle without assertions needs none of it

    try:
        with time_limit(SECONDS):
            return evaluate(assertion, data, read)
    except TooLong:
        text = f"cannot be judged in {SECONDS:.0f} s: the pattern backtracks without end"
        return Finding(False, text)


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
