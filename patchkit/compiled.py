"""An :class:`~patchkit.model.Assertion` back from the JSON that the state holds.

Apart from :mod:`verify`, which needs it only when a file differs.
"""

from __future__ import annotations

from typing import Any

from .model import Assertion, Condition, Literal_


def assertion_from(value: dict[str, Any]) -> Assertion:
    """The inverse of :func:`dataclasses.asdict`, after a round trip through JSON."""
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
