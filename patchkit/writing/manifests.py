"""Manifests written and edited, comments and layout kept.  Pure.

tomlkit changes values in place; whole tables are put where they belong as text.  What comes
out is read by :func:`~patchkit.manifest.parse_manifest` before anybody writes it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.items import Array

from patchkit.manifest import parse_manifest
from patchkit.model import Assertion
from patchkit.names import normalise

_HEADER = re.compile(r"^\[\[?\s*([^\]\n]+?)\s*\]\]?", re.MULTILINE)
# What may hold a line that looks like a header: strings, and what looks like a string in a
# comment.
_OPAQUE = re.compile(
    r""""{3}(?:\\.|[^\\])*?"{3,5}(?!")|'{3}.*?'{3,5}(?!')"""
    r"""|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*""",
    re.DOTALL,
)


def new_manifest(
    name: str, summary: str, description: str = "", requires: Sequence[str] = ()
) -> str:
    """The head of a manifest; tables are added with the functions below."""
    lines = [
        "schema = 1",
        f"name = {_value(name)}",
        'version = "0.1.0"',
        f"summary = {_value(summary)}",
    ]
    if description.strip():
        lines.append(f"description = {_text(description)}")
    if requires:
        lines.append(f"requires = {_value(list(requires))}")
    return "\n".join(lines) + "\n"


def add_variant(
    text: str, distribution: str, variant: Mapping[str, Any], before: int | None = None
) -> str:
    """A variant more for a distribution: at place ``before`` among those of its target, else
    behind them.  A target is made where there is none."""
    document: Any = tomlkit.parse(text)
    targets = document.get("target", [])
    names = [normalise(str(target["distribution"])) for target in targets]
    if distribution not in names:
        head = f"[[target]]\ndistribution = {_value(distribution)}\n"
        return _insert(text, ("target",), f"\n{head}{_variant_table(variant)}")
    place = names.index(distribution)
    variants = targets[place].get("variant", [])
    before = len(variants) if before is None else min(before, len(variants))
    if isinstance(targets, Array) or isinstance(variants, Array):  # tables in one line
        inline = tomlkit.inline_table()
        inline.update(variant)
        if "variant" not in targets[place]:
            targets[place]["variant"] = tomlkit.array()
        targets[place]["variant"].insert(before, inline)
        return str(tomlkit.dumps(document))
    headers = _headers(text)
    starts = [at for at, name in headers if name == "target"]
    stop = starts[place + 1] if place + 1 < len(starts) else len(text)
    inner = [at for at, name in headers if name == "target.variant" and starts[place] < at < stop]
    if before:
        end = _end_of_block(text, inner[before - 1], ("target.variant.",), stop)
    else:
        end = _end_of_block(text, starts[place], (), stop)
    return f"{_closed(text[:end])}{_variant_table(variant)}{text[end:]}"


def _variant_table(variant: Mapping[str, Any]) -> str:
    """One ``[[target.variant]]``, with a patch a line where there are several."""
    lines = ["[[target.variant]]"]
    for key, value in variant.items():
        if isinstance(value, (list, tuple)) and len(value) > 1:
            lines += [f"{key} = [", *(f"    {_value(one)}," for one in value), "]"]
        else:
            lines.append(f"{key} = {_value(value)}")
    return "\n".join(lines) + "\n"


def set_range(text: str, distribution: str, versions: str, other: str) -> str:
    """Another range for one variant of a distribution."""
    document: Any = tomlkit.parse(text)
    for target in document.get("target", []):
        if normalise(str(target["distribution"])) == distribution:
            for variant in target.get("variant", []):
                if str(variant["versions"]) == versions:
                    variant["versions"] = other
    return str(tomlkit.dumps(document))


def assertion_table(one: Assertion) -> str:
    """One ``[[assert]]``."""
    lines = [
        "[[assert]]",
        f"distribution = {_value(one.distribution)}",
        f"file = {_value(one.file)}",
    ]
    if one.within:
        lines.append(f"within = {_value(one.within)}")
    given = {"pattern": one.pattern, "text": one.text}
    lines += [f"{key} = {_value(value)}" for key, value in given.items() if value is not None]
    if one.pattern is not None or one.text is not None:
        python = one.file.endswith((".py", ".pyi"))
        if one.scope != ("code" if python else "text"):
            lines.append(f"in = {_value(one.scope)}")
        if (one.minimum, one.maximum) == (0, 0):
            lines.append("absent = true")
        elif one.minimum == one.maximum:
            lines.append(f"count = {one.minimum}")
    if one.literal is not None:
        has = _value(list(one.literal.has))
        lines.append(f"literal = {{ name = {_value(one.literal.name)}, has = {has} }}")
    if one.versions:
        lines.append(f"versions = {_value(one.versions)}")
    if one.message:
        lines.append(f"message = {_value(one.message)}")
    if one.condition is not None:
        pairs = ", ".join(f"{_value(k)} = {_value(v)}" for k, v in one.condition.given)
        lines += [
            "[assert.condition]",
            f"test = {_value(one.condition.test)}",
            f"given = {{ {pairs} }}",
            f"is = {_value(one.condition.expected)}",
        ]
    return "\n".join(lines) + "\n"


def add_assertions(text: str, asserts: Iterable[Assertion]) -> str:
    """Assertions behind those that are there."""
    tables = [assertion_table(one) for one in asserts]
    return _insert(text, ("assert", "target"), "\n" + "\n".join(tables)) if tables else text


def move_assertions(text: str, moved: Iterable[tuple[int, str, str]]) -> str:
    """Assertions for a release in which their file is another: of each (number from 0, file,
    version), one more, and the old one no longer for that version."""
    document: Any = tomlkit.parse(text)
    asserts = document.get("assert", [])
    added = []
    for number, file, version in moved:
        old = asserts[number]
        added.append({**old, "file": file, "versions": f"=={version}"})
        present = str(old.get("versions", ""))
        old["versions"] = f"{present},!={version}" if present else f"!={version}"
    for one in added:
        table: Any = tomlkit.inline_table() if isinstance(asserts, Array) else tomlkit.table()
        table.update(one)
        asserts.append(table)
    return str(tomlkit.dumps(document))


def drop_assertions(text: str, numbers: Iterable[int]) -> str:
    """The manifest without some of its assertions, counted from 0."""
    wanted = sorted(numbers, reverse=True)
    if not wanted:
        return text
    document: Any = tomlkit.parse(text)
    for number in wanted:
        del document["assert"][number]
    if not document["assert"]:
        del document["assert"]
    return str(tomlkit.dumps(document))


def add_caches(text: str, kind: str, names: Sequence[str]) -> str:
    """Names of JIT caches to set aside, with those that are there."""
    document: Any = tomlkit.parse(text)
    caches = document.get("caches")
    if caches is None:
        return f"{text.rstrip()}\n\n[caches]\n{kind} = {_value(list(names))}\n"
    if kind not in caches:
        caches[kind] = list(names)
    else:
        for name in names:
            if name not in caches[kind]:
                caches[kind].append(name)
    return str(tomlkit.dumps(document))


def edit_patches(text: str, change: Callable[[str, str, list[str]], list[str]]) -> str:
    """Every variant's list of patches as ``change`` makes it of distribution (normalised), range
    and list; lists that stay the same keep their layout, others their way to stand on one line
    or on many."""
    document: Any = tomlkit.parse(text)
    for target in document.get("target", []):
        for variant in target.get("variant", []):
            array = variant.get("patches")
            if array is None:
                continue
            before = [str(path) for path in array]
            after = change(normalise(str(target["distribution"])), str(variant["versions"]), before)
            if after != before:
                _set_array(array, before, after)
    return str(tomlkit.dumps(document))


def _set_array(array: Any, before: list[str], after: list[str]) -> None:
    """In place, entry by entry, so that what stands between them stays."""
    many = "\n" in array.as_string() or len(after) > 1
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i, j, k, m in reversed(matcher.get_opcodes()):
        if tag == "equal":
            continue
        same = min(j - i, m - k)
        for at in range(same):
            array[i + at] = after[k + at]
        for at in range(j - 1, i + same - 1, -1):
            del array[at]
        for at in range(m - k - same):
            array.insert(i + same + at, after[k + same + at])
    if many and "#" not in array.as_string():
        array.multiline(multiline=True)


def checked(text: str, name: str) -> bytes:
    """The bytes of a manifest that can be read; where it has lines that end in CR LF, all do.
    Raises :class:`~patchkit.errors.Refused` for one that cannot be read."""
    if "\r\n" in text:
        text = re.sub(r"(?<!\r)\n", "\r\n", text)
    data = text.encode("utf-8")
    parse_manifest(data, name)
    return data


# -- text -------------------------------------------------------------------------------


def _headers(text: str) -> list[tuple[int, str]]:
    """Where the headers of tables stand, and their dotted names."""
    masked = _OPAQUE.sub(lambda found: found[0].replace("[", " "), text)
    parts = ((m.start(), m[1].split(".")) for m in _HEADER.finditer(masked))
    return [(at, ".".join(part.strip() for part in names)) for at, names in parts]


def _insert(text: str, after: Sequence[str], block: str) -> str:
    """``text`` with a block behind the last table of the first kind in ``after`` that is
    there, before the comments of what follows; else at the end."""
    for kind in after:
        starts = [at for at, name in _headers(text) if name == kind]
        if starts:
            end = _end_of_block(text, starts[-1], (f"{kind}.",), len(text))
            return f"{_closed(text[:end])}{block}{text[end:]}"
    return f"{text.rstrip()}\n{block}"


def _closed(text: str) -> str:
    """With a line end at its end."""
    return text if text.endswith("\n") else f"{text}\n"


def _end_of_block(text: str, start: int, inner: Sequence[str], limit: int) -> int:
    """Behind the last line of a table and its inner ones, without the empty lines and the
    comments that stand before the next table."""
    end = limit
    for at, name in _headers(text):
        if at > start and (at >= limit or not name.startswith(tuple(inner))):
            end = min(limit, at)
            break
    lines = text[start:end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return start + len("".join(lines))


def _value(value: Any) -> str:
    """A value as TOML; text that holds a line end stands on several lines."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, str):
        if '"' in value and "'" not in value and value.isprintable():
            return f"'{value}'"
        return tomlkit.item(value).as_string()
    return repr(value)


def _text(value: str) -> str:
    body = value.strip("\n").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""\n{body}\n"""'
