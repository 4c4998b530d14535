"""Manifests written and edited, comments and layout kept.

tomlkit changes values in place; whole tables are put where they belong as text.  What comes
out is read by :func:`~patchkit.manifest.parse_manifest` before anybody writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patchkit.errors import Refused
from patchkit.manifest import parse_manifest
from patchkit.model import Assertion

if TYPE_CHECKING:
    import tomlkit

_HEADER = re.compile(r"^\[\[?\s*([^\]]+?)\s*\]\]?", re.MULTILINE)


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


def variant_table(versions: str, patches: Sequence[str], strip: int | None) -> str:
    """One ``[[target.variant]]``."""
    lines = ["[[target.variant]]", f"versions = {_value(versions)}"]
    if strip is not None:
        lines.append(f"strip = {strip}")
    if len(patches) == 1:
        lines.append(f"patches = [{_value(patches[0])}]")
    else:
        lines += ["patches = [", *(f"    {_value(path)}," for path in patches), "]"]
    return "\n".join(lines) + "\n"


def add_variant(
    text: str, distribution: str, versions: str, patches: Sequence[str], strip: int | None
) -> str:
    """A variant behind the others of its target, which is made where there is none."""
    table = variant_table(versions, patches, strip)
    document = _parsed(text)
    place = -1
    for number, target in enumerate(document.get("target", [])):
        if target.get("distribution") == distribution:
            place = number
    if place < 0:
        head = f"[[target]]\ndistribution = {_value(distribution)}\n"
        return insert(text, ("target",), f"\n{head}{table}")
    starts = [m.start() for m in _HEADER.finditer(text) if m[1] == "target"]
    stop = starts[place + 1] if place + 1 < len(starts) else None
    if stop is None:
        return insert(text, ("target",), table)
    end = _end_of_block(text, starts[place], ("target.",), stop)
    return f"{text[:end]}{table}{text[end:]}"


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
    return insert(text, ("assert", "target"), "\n" + "\n".join(tables)) if tables else text


def drop_assertions(text: str, numbers: Iterable[int]) -> str:
    """The manifest without some of its assertions, counted from 0."""
    wanted = sorted(numbers, reverse=True)
    if not wanted:
        return text
    document: Any = _parsed(text)
    for number in wanted:
        del document["assert"][number]
    if not document["assert"]:
        del document["assert"]
    return _dumped(document)


def add_caches(text: str, kind: str, names: Sequence[str]) -> str:
    """Names of JIT caches to set aside, with those that are there."""
    document = _parsed(text)
    caches: Any = document.get("caches")
    if caches is None:
        return f"{text.rstrip()}\n\n[caches]\n{kind} = {_value(list(names))}\n"
    if kind not in caches:
        caches[kind] = list(names)
    else:
        for name in names:
            if name not in caches[kind]:
                caches[kind].append(name)
    return _dumped(document)


def edit_patches(text: str, change: Callable[[str, str, list[str]], list[str]]) -> str:
    """The manifest with every variant's list of patches as ``change`` makes it of distribution,
    range and list; lists that stay the same keep their layout, others their way to stand on
    one line or on many."""
    document: Any = _parsed(text)
    for target in document.get("target", []):
        for variant in target.get("variant", []):
            array = variant.get("patches")
            if array is None:
                continue
            before = [str(path) for path in array]
            after = change(str(target["distribution"]), str(variant["versions"]), before)
            if after != before:
                _set_array(array, before, after)
    return _dumped(document)


def _set_array(array: Any, before: list[str], after: list[str]) -> None:
    """In place, entry by entry, so that what stands between them stays."""
    import difflib

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
    """The bytes of a manifest that can be read.  Raises :class:`Refused` for one that cannot."""
    data = text.encode("utf-8")
    parse_manifest(data, name)
    return data


# -- text -------------------------------------------------------------------------------


def insert(text: str, after: Sequence[str], block: str) -> str:
    """``text`` with a block behind the last table of the first kind in ``after`` that is
    there, before the comments of what follows; else at the end."""
    for kind in after:
        starts = [m.start() for m in _HEADER.finditer(text) if m[1] == kind]
        if starts:
            end = _end_of_block(text, starts[-1], (f"{kind}.",), len(text))
            return f"{text[:end]}{block}{text[end:]}"
    return f"{text.rstrip()}\n{block}"


def _end_of_block(text: str, start: int, inner: Sequence[str], limit: int) -> int:
    """Behind the last line of a table and its inner ones, without the empty lines and the
    comments that stand before the next table."""
    end = limit
    for match in _HEADER.finditer(text, start + 1):
        if match.start() >= limit or not match[1].startswith(tuple(inner)):
            end = min(limit, match.start())
            break
    lines = text[start:end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    body = "".join(lines)
    return start + len(body)


def _parsed(text: str) -> tomlkit.TOMLDocument:
    try:
        import tomlkit
    except ImportError as error:
        raise Refused(
            "tomlkit is not installed; manifests are edited with it",
            code="no-tomlkit",
            hint="pip install tomlkit",
        ) from error
    return tomlkit.parse(text)


def _dumped(document: tomlkit.TOMLDocument) -> str:
    import tomlkit

    return tomlkit.dumps(document)


def _value(value: Any) -> str:
    """A value as TOML; text that holds a line end stands on several lines."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, str):
        import tomlkit

        if '"' in value and "'" not in value and value.isprintable():
            return f"'{value}'"
        return tomlkit.item(value).as_string()
    return repr(value)


def _text(value: str) -> str:
    body = value.strip("\n").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""\n{body}\n"""'
