"""Files of reports → nodes.

Owns how a node gets its name, and which facts belong to which status.  Only reads.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from patchkit.errors import Refused, UsageError
from patchkit.fsio import MAX_FILE, read_plain

from .compare import Node, node_of


class Told(NamedTuple):
    """One JSON value, whose it is, and where it was read; ``error`` where it was none."""

    node: str
    where: str
    value: Any
    error: str | None = None


def read(files: Sequence[str], cwd: str) -> list[Node]:
    """A node for each report.

    A file has one JSON object or several, one after another; a folder has files that end in
    ``.json``, or a folder of such for each node; ``-`` is standard input.  What cannot be read
    as JSON is a node that did not answer: an empty file is what a redirected command that was
    not found leaves.

    Raises :class:`Refused` (``two-reports``) for a node with two reports, and UsageError where
    there is none.
    """
    status: dict[str, Told] = {}
    facts: dict[str, Told] = {}
    for told in _all(files, cwd):
        is_facts = isinstance(told.value, dict) and told.value.get("command") == "doctor"
        into = facts if is_facts else status
        if told.node in into:
            raise Refused(
                f"two reports of {told.node}: {into[told.node].where} and {told.where}",
                code="two-reports",
                hint='give each a name of its own: the file\'s, or a key "node"',
            )
        into[told.node] = told
    nodes = [_node(told, facts.get(name)) for name, told in status.items()]
    nodes += [
        Node(name, {}, error="there are facts of it, and no status")
        for name in facts
        if name not in status
    ]
    if not nodes:
        raise UsageError(
            "there is no report in what was given",
            hint="on each node: patchkit status --json > FOLDER/$(hostname).json",
        )
    return nodes


def _node(told: Told, doctor: Told | None) -> Node:
    if told.error is not None:
        return Node(told.node, {}, error=told.error)
    if not isinstance(told.value, dict):
        return Node(told.node, {}, error="this is not what patchkit status --json prints")
    facts = told.value.get("facts")
    if facts is None and doctor is not None:
        facts = doctor.value.get("facts")
    return node_of(told.node, told.value, facts if isinstance(facts, dict) else None)


def _all(files: Sequence[str], cwd: str) -> Iterator[Told]:
    for given in files:
        path = os.path.join(cwd, given)
        if given == "-":
            yield from _values(sys.stdin.buffer.read(), "-", "standard input")
        elif os.path.isdir(path):
            yield from _folder(path)
        else:
            yield from _file(path)


def _folder(path: str) -> Iterator[Told]:
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        if os.path.isdir(inner):
            for file in sorted(os.listdir(inner)):
                if file.endswith(".json"):
                    yield from _file(os.path.join(inner, file))
        elif name.endswith(".json"):
            yield from _file(inner)


def _file(path: str) -> Iterator[Told]:
    yield from _values(read_plain(path, MAX_FILE), _name(path), path)


def _name(path: str) -> str:
    """``n1`` for n1.json, n1.status.json, n1.doctor.json and n1/status.json."""
    name = os.path.basename(path).removesuffix(".json")
    if name in ("status", "doctor"):
        return os.path.basename(os.path.dirname(os.path.abspath(path)))
    return name.removesuffix(".status").removesuffix(".doctor")


def _values(data: bytes, name: str, where: str) -> Iterator[Told]:
    """Every JSON value of a file; several without a name of their own are numbered."""
    decoder = json.JSONDecoder()
    text = data.decode("utf-8", "replace").strip()
    found: list[Any] = []
    error = None if text else "it is empty"
    place = 0
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as broken:
            error = f"it is no JSON: {broken}"
            break
        found.append(value)
        while text[place : place + 1].isspace():
            place += 1
    for number, value in enumerate(found, 1):
        own = value.get("node") if isinstance(value, dict) else None
        other = name if len(found) == 1 and not error else f"{name}:{number}"
        yield Told(own if isinstance(own, str) else other, f"{where}, number {number}", value)
    if error is not None:
        yield Told(f"{name}:{len(found) + 1}" if found else name, where, None, error)
