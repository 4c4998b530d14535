"""An :class:`~patchkit.model.Assertion` as the JSON that the state holds, and back.

Apart from :mod:`verify`, which needs it only when a file differs.
"""

from __future__ import annotations

from typing import Any

from .model import Assertion, Condition, Literal_


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
