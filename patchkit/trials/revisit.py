"""Dead ends that wake up: trials whose condition holds now and did not hold then.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from patchkit.conditions import ConditionError, changes, parse

from . import again

Record = Mapping[str, Any]


class Woken(NamedTuple):
    """A trial worth making again.  ``changed`` has (fact, then, now) for each fact of the
    condition that differs; ``hidden`` is what ``command`` lacks (:func:`again.hides`)."""

    id: str
    name: str
    verdict: str
    reason: str | None
    unblock: str
    changed: tuple[tuple[str, str | None, str | None], ...]
    command: str
    hidden: tuple[str, ...] = ()


def unblock_of(record: Record) -> str | None:
    """The condition that would reopen a trial."""
    verdict = record.get("verdict") or {}
    return verdict.get("unblock") or None


def holds(text: str, facts: Mapping[str, str]) -> bool | None:
    """Whether a recorded condition holds; None also where it is none that this patchkit reads
    (a newer one wrote it)."""
    try:
        return parse(text).holds(facts)
    except ConditionError:
        return None


def revisit(
    records: Sequence[Record], now: Mapping[str, str], here: again.Here | None = None
) -> list[Woken]:
    """The trials to make again, in the order tried.

    One that was tried again since, with the same bundles and settings and with a verdict, is
    left out: the later verdict counts.
    """
    last: dict[str, str] = {}
    for record in records:
        if record.get("verdict"):
            last[what(record)] = str(record["id"])
    found = []
    for record in records:
        text = unblock_of(record)
        if text is None or last[what(record)] != record["id"]:
            continue
        then = record.get("facts") or {}
        if holds(text, now) is not True or holds(text, then) is True:
            continue
        verdict = record["verdict"]
        found.append(
            Woken(
                id=str(record["id"]),
                name=str(record["name"]),
                verdict=str(verdict["verdict"]),
                reason=verdict.get("reason"),
                unblock=text,
                changed=tuple(changes(parse(text).names, then, now)),
                command=again.command(record, here),
                hidden=tuple(again.hides(record)),
            )
        )
    return found


def unreadable(records: Sequence[Record]) -> list[tuple[str, ConditionError]]:
    """(id, why) of each trial whose condition cannot be read."""
    found = []
    for record in records:
        text = unblock_of(record)
        if text is None:
            continue
        try:
            parse(text)
        except ConditionError as error:
            found.append((str(record["id"]), error))
    return found


def what(record: Record) -> str:
    """What a trial tries, as a key: its bundles and settings, else its name."""
    candidate = (record.get("sets") or {}).get("candidate") or {}
    bundles = sorted(str(bundle["name"]) for bundle in candidate.get("bundles") or ())
    settings = [*(candidate.get("arguments") or ())]
    settings += sorted(f"{key}={value}" for key, value in (candidate.get("environ") or {}).items())
    return repr((bundles, settings)) if bundles or settings else str(record["name"])
