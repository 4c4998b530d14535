"""Changes of valid documents that keep most of their structure, so that what stands behind a
checksum or a parser is reached too."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

#: What no document of patchkit's own holds at any place, or at few.
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 10**30, -(10**30), 0.5, float("nan"), float("inf")),
    *("", ".", "..", "../../canary", "/", "~", "\0", "\ud800", "\x1b[31m", "e\u0301", "x" * 300),
    *("other", "file", "symlink", "a/../../b", "pkg/m0.py", "pkg", ".patchkit/state.json"),
    *([], {}, [[]], [None], {"": None}, [[[[[[[[]]]]]]]], {"kind": "file"}),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) of a JSON value."""
    out: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            keys: list[Any] = list(node)
        elif isinstance(node, list):
            keys = list(range(len(node)))
        else:
            continue
        out += [(node, key) for key in keys]
        todo += [node[key] for key in keys]
    return out


def mutated(value: Any, random: Random) -> Any:
    """The value with one of its parts dropped, doubled, replaced, renamed or swapped."""
    value = copy.deepcopy(value)
    found = places(value)
    if not found:
        return random.choice(HOSTILE)
    node, key = random.choice(found)
    kind = random.randrange(7)
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, list):
        node.insert(key, copy.deepcopy(node[key]))
    elif kind == 2 and isinstance(node, dict):
        node[str(random.choice(HOSTILE))] = node.pop(key)
    elif kind == 3:
        other, at = random.choice(found)
        node[key], other[at] = copy.deepcopy(other[at]), copy.deepcopy(node[key])
    elif kind == 4 and isinstance(node[key], int):
        node[key] = random.choice((node[key] + 1, -node[key], node[key] << 40))
    elif kind == 5 and isinstance(node[key], str) and node[key]:
        at = random.randrange(len(node[key]))
        node[key] = node[key][:at] + random.choice(("", "/", "\0", "..", "0")) + node[key][at + 1 :]
    else:
        node[key] = copy.deepcopy(random.choice(HOSTILE))
    return value


def bytes_mutated(data: bytes, random: Random) -> bytes:
    """The bytes cut off, with a bit turned, or with a piece doubled or left out."""
    if not data:
        return b"\0"
    at, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    kind = random.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + data[end:]
    if kind == 3:
        return data[:end] + data[at:]
    return (
        data[:at] + random.choice((b"\0", b"\xff", b"\n", b"\r", b'"', b"\xed\xa0\x80")) + data[at:]
    )


def json_bytes(value: Any) -> bytes:
    """JSON as Python writes it, with NaN and lone surrogates as they come."""
    return json.dumps(value).encode()
