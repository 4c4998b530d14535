"""Whether what several patchkit processes said, at once, is what some serial order would say.

The model is small: an environment carries an ordered list of bundles; ``apply`` puts the missing
ones at its end, ``revert`` takes some out, ``verify`` and ``status`` see it, all with the
fingerprint of that very list.  What a process printed (the applied list, a fingerprint) must be
what the model has at its place in the order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Applied = tuple[str, ...]
_LOOKS = ("verify", "status", "recover")


@dataclass(frozen=True)
class Said:
    """One process that ended: what it was asked, and what it said with ``--json``."""

    command: str
    names: Applied
    code: int
    applied: Applied | None
    fingerprint: str | None
    kinds: frozenset[str]

    @classmethod
    def of(cls, arguments: Sequence[str], code: int, output: bytes) -> Said:
        """From the command line behind the options, the exit code and standard output."""
        answer: Mapping[str, Any] = json.loads(output)
        assert answer["exit_code"] == code, answer
        found: list[str] | None = answer.get("bundles")
        if arguments[0] == "status" and "applied" in answer:
            found = [entry["name"] for entry in answer["applied"]]
        kinds = {problem["kind"] for problem in answer.get("problems", ())}
        if "error" in answer:
            kinds.add(answer["error"]["code"])
        names = tuple(name for name in arguments[1:] if not name.startswith("-"))
        return cls(
            arguments[0],
            names,
            code,
            None if found is None else tuple(found),
            answer.get("fingerprint"),
            frozenset(kinds),
        )


def after(said: Said, applied: Applied) -> Applied | None:
    """What is applied after that process, if it ran alone on ``applied``; None where it would
    have said something else."""
    if said.code == 5:
        return applied if said.kinds == {"locked"} else None
    missing = [name for name in said.names if name not in applied]
    if said.command in ("verify", "status"):
        wanted = {"missing-bundle"} if missing and said.command == "verify" else set()
        fine = said.kinds == wanted and said.code == int(bool(wanted))
        return applied if fine and said.applied in (None, applied) else None
    if said.command == "recover":
        return applied if said.code == 0 else None
    if said.command == "apply":
        now = (*applied, *missing)
    else:
        now = tuple(name for name in applied if said.names and name not in said.names)
    return now if said.code == 0 and said.applied == now else None


def serial_order(start: Applied, end: Applied, said: Sequence[Said]) -> list[Said] | None:
    """An order in which the processes, one after the other, say what they said and leave
    ``end``; None where there is none."""
    prints: dict[Applied, str | None] = {(): None}
    for one in said:
        changed = one.command in ("apply", "revert") and one.code == 0
        if changed and one.applied is not None:
            known = prints.setdefault(one.applied, one.fingerprint)
            if known != one.fingerprint:
                return None  # one list, two fingerprints
    dead: set[tuple[Applied, tuple[Said, ...]]] = set()

    def fits(one: Said, applied: Applied) -> bool:
        reads = one.command in ("verify", "status") and one.code != 5
        return not reads or one.fingerprint == prints.get(applied, one.fingerprint)

    def search(applied: Applied, left: tuple[Said, ...]) -> list[Said] | None:
        # What only looks can go as soon as it fits: no other needs it at its place.
        here = [
            one
            for one in left
            if (one.command in _LOOKS or one.code == 5)
            and fits(one, applied)
            and after(one, applied) == applied
        ]
        left = tuple(one for one in left if one not in here)
        if not left:
            return here if applied == end else None
        if (applied, left) in dead:
            return None
        for at, one in enumerate(left):
            if one in left[:at]:
                continue  # the same again
            now = after(one, applied) if fits(one, applied) else None
            if now is not None:
                rest = search(now, left[:at] + left[at + 1 :])
                if rest is not None:
                    return [*here, one, *rest]
        dead.add((applied, left))
        return None

    # In one order, so that a rest is known again.
    return search(start, tuple(sorted(said, key=repr)))
