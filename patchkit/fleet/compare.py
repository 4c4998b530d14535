"""Reports of many nodes → what is common, and which node differs in what.  Pure.

Owns what makes nodes alike: one fingerprint, the same releases, bundles, variants, driver and
toolkit, and no finding on any of them.  A node without facts is not compared in driver and
toolkit; one that did not answer is unlike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

#: The order in which differences are told.
ASPECTS = ("fingerprint", "release", "bundle", "variant", "driver", "toolkit", "drift", "report")
#: Those of which there is no common value: what a node found, and why it has no report.
FINDINGS = ("drift", "report")
#: Aspects of which a node may tell nothing, and is not compared then.
_OPTIONAL = ("driver", "toolkit")

#: What an aspect is of (a distribution, a bundle, nothing), by aspect.
Key = tuple[str, str]


class Node(NamedTuple):
    """One node: what it told by aspect and name, its findings, and why it told nothing."""

    name: str
    values: dict[Key, str]
    drift: tuple[str, ...] = ()
    error: str | None = None


class Difference(NamedTuple):
    """What a node has, and what most have; None where it is not there."""

    aspect: str
    name: str
    value: str | None
    common: str | None

    def text(self) -> str:
        """For a person."""
        what = f"{self.aspect} {self.name}".strip()
        if self.aspect in FINDINGS:
            return f"{self.aspect}: {self.value}"
        return f"{what}: {self.value or 'none'}, not {self.common or 'none'}"


class Fleet(NamedTuple):
    """All nodes, the commonest value of each aspect, and the differences by node."""

    nodes: list[Node]
    common: dict[Key, str | None]
    differences: dict[str, list[Difference]]

    @property
    def alike(self) -> bool:
        """Whether no node differs."""
        return not self.differences

    @property
    def fingerprints(self) -> list[tuple[str | None, list[str]]]:
        """Each fingerprint with its nodes, the commonest first; of those that answered."""
        found: dict[str | None, list[str]] = {}
        for node in self.nodes:
            if node.error is None:
                found.setdefault(node.values.get(("fingerprint", "")), []).append(node.name)
        return sorted(found.items(), key=lambda item: (-len(item[1]), item[0] or ""))


def node_of(name: str, status: dict[str, Any], facts: dict[str, Any] | None) -> Node:
    """A node from its ``status --json``, and the facts of ``doctor --json`` where there are any.

    Whatever has not the shape of a report is a node with an ``error``.
    """
    try:
        if status.get("error"):
            return Node(name, {}, error=str(status["error"]["message"]))
        if status.get("command") != "status":
            return Node(name, {}, error="this is not what patchkit status --json prints")
        values: dict[Key, str] = {}
        if status["fingerprint"] is not None:
            values["fingerprint", ""] = str(status["fingerprint"])
        for release in status["distributions"]:
            distribution, _, version = release.rpartition(" ")
            values["release", distribution] = version
        for entry in status["applied"]:
            values["bundle", entry["name"]] = str(entry["version"])
            if entry["variant"]:
                values["variant", entry["name"]] = str(entry["variant"])
        if facts is not None:
            toolkit = facts.get("toolkit") or {}
            for aspect, told in (
                ("driver", facts.get("driver")),
                ("toolkit", toolkit.get("version")),
            ):
                values[aspect, ""] = str(told or "none")
        drift = tuple(str(problem["message"]) for problem in status["problems"])
    except (AttributeError, KeyError, TypeError) as error:
        return Node(name, {}, error=f"not a whole report: {type(error).__name__}: {error}")
    return Node(name, values, drift)


def compare(nodes: Iterable[Node]) -> Fleet:
    """All nodes against what most of them have; equally common values in alphabetical order."""
    ordered = sorted(nodes, key=lambda node: natural(node.name))
    answered = [node for node in ordered if node.error is None]
    keys = {key for node in answered for key in node.values}
    if any(("fingerprint", "") not in node.values for node in answered):
        keys.add(("fingerprint", ""))
    common = {key: _commonest(key, answered) for key in sorted(keys, key=_order)}
    differences = {}
    for node in ordered:
        found = _differences(node, common)
        if found:
            differences[node.name] = found
    return Fleet(ordered, common, differences)


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which n2 comes before n10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(int(p), "") if p.isascii() and p.isdigit() else (-1, p) for p in parts]


def _order(key: Key) -> tuple[int, str]:
    return ASPECTS.index(key[0]), key[1]


def _commonest(key: Key, nodes: Sequence[Node]) -> str | None:
    told = [node.values.get(key) for node in nodes if key[0] not in _OPTIONAL or key in node.values]
    return min(Counter(told).items(), key=lambda item: (-item[1], item[0] is None, item[0] or ""))[
        0
    ]


def _differences(node: Node, common: dict[Key, str | None]) -> list[Difference]:
    if node.error is not None:
        return [Difference("report", "", node.error, None)]
    found = [
        Difference(*key, node.values.get(key), value)
        for key, value in common.items()
        if node.values.get(key) != value and not (key[0] in _OPTIONAL and key not in node.values)
    ]
    return found + [Difference("drift", "", message, None) for message in node.drift]
