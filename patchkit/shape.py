"""Whether the record on disk has the shape that patchkit writes.

Owns what each key of ``state.json`` and ``journal.json`` may hold.  The checksum tells damage;
this tells what a person or another program wrote with a checksum of its own, so that no
command gets into the middle of its work and stops there.  Must not do I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import repeat
from typing import Any

Check = Callable[[Any], bool]
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OWN = (".patchkit/staged/", ".patchkit/undo/", ".patchkit/pristine/")


def state_fault(value: Any) -> str | None:
    """The key path of the first part of a state that is wrong, or None."""
    if not _fits(value, _STATE):
        return _fault(value, _STATE, "")
    count = len(value["roots"])
    for key in ("distributions", "files", "asserts"):
        for number, entry in enumerate(value[key]):
            if entry["root"] >= count:
                return f"{key}[{number}].root"
    return None


def journal_fault(value: Any) -> str | None:
    """The same for a journal."""
    return _fault(value, _JOURNAL, "")


def trial_fault(value: Any) -> str | None:
    """The same for a trial under way."""
    return _fault(value, _TRIAL, "")


def saved_fault(value: Any) -> str | None:
    """The same for a set that was saved."""
    return _fault(value, _SAVED, "")


def beside_fault(value: Any) -> str | None:
    """The same for the list of what waits outside ``.patchkit``."""
    return _fault(value, [(_root, _beside)], "")


def _fits(value: Any, shape: Any) -> bool:
    """``shape``: a function, a table of keys (further ones may be there), a list of one shape
    for every element, or a tuple of one shape for each element."""
    kind = shape.__class__
    if kind is _FUNCTION:
        return bool(shape(value))
    if kind is dict:
        if value.__class__ is not dict:
            return False
        for key, inner in shape.items():
            if key not in value:
                return False
            fits = inner(value[key]) if inner.__class__ is _FUNCTION else _fits(value[key], inner)
            if not fits:
                return False
        return True
    if value.__class__ is not list:
        return False
    if kind is list:
        return all(map(_fits, value, repeat(shape[0])))
    return len(value) == len(shape) and all(map(_fits, value, shape))


def _fault(value: Any, shape: Any, place: str) -> str | None:
    """The key path of the first part that does not fit."""
    if _fits(value, shape):
        return None
    parts: list[tuple[Any, Any, str]] = []
    if type(shape) is dict and type(value) is dict:
        for key, inner in shape.items():
            if key not in value:
                return f"{place}.{key}".lstrip(".")
            parts.append((value[key], inner, f"{place}.{key}".lstrip(".")))
    elif type(shape) is list and type(value) is list:
        parts = [(one, shape[0], f"{place}[{number}]") for number, one in enumerate(value)]
    for one, inner, path in parts:
        found = _fault(one, inner, path)
        if found is not None:
            return found
    return place


# -- single values ----------------------------------------------------------------------


def _text(value: Any) -> bool:
    return type(value) is str and "\0" not in value


def _flag(value: Any) -> bool:
    return value is True or value is False


def _number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _number_or_none(value: Any) -> bool:
    return value is None or _number(value)


def _text_or_none(value: Any) -> bool:
    return value is None or _text(value)


def _sha256(value: Any) -> bool:
    return type(value) is str and _SHA256.fullmatch(value) is not None


def _sha256_or_none(value: Any) -> bool:
    return value is None or _sha256(value)


def _path(value: Any) -> bool:
    """A path below a root, that leads to a file of it and nowhere else."""
    if type(value) is not str or not value or value[0] == "/" or "\0" in value:
        return False
    if "/." not in value and "//" not in value and value[0] != ".":
        return bool(value[-1] != "/")
    return not any(part in ("", ".", "..") for part in value.split("/"))


def _folder(value: Any) -> bool:
    return value == "" or _path(value)


def _name(value: Any) -> bool:
    return _path(value) and "/" not in value


def _name_or_none(value: Any) -> bool:
    return value is None or _name(value)


def _absolute(value: Any) -> bool:
    return _text(value) and value[:1] == "/"


def _absolute_or_none(value: Any) -> bool:
    return value is None or _absolute(value)


def _root(value: Any) -> bool:
    return value == "." or _absolute(value)


def _ident(value: Any) -> bool:
    if value is None:
        return True
    if type(value) is not dict:
        return False
    kind, mode = value.get("kind"), value.get("mode")
    if not (type(mode) is int and 0 <= mode <= 0o7777 and "link" in value):
        return False
    link = value["link"]
    if kind == "symlink":
        return _sha256(value.get("sha256")) and _text(link) and link != ""
    return kind == "file" and _sha256(value.get("sha256")) and link is None


def _made_or_gone(value: Any) -> bool:
    return value in ("made", "gone") if type(value) is str else False


def _mode(value: Any) -> bool:
    return type(value) is int and 0 <= value <= 0o7777


def _owner(value: Any) -> bool:
    return type(value) is int and -1 <= value < 1 << 32  # -1: whoever runs the command


def _texts_or_none(value: Any) -> bool:
    return value is None or _texts(value)


def _texts(value: Any) -> bool:
    return type(value) is list and all(map(_text, value))


def _table_of_text(value: Any) -> bool:
    return type(value) is dict and all(_text(k) and _text(v) for k, v in value.items())


def _caches(value: Any) -> bool:
    return type(value) is dict and all(map(_texts, value.values()))


def _reads(value: Any) -> bool:
    return type(value) is dict and all(_path(k) and _sha256_or_none(v) for k, v in value.items())


def _assertion(value: Any) -> bool:
    """What :mod:`compiled` makes an assertion of."""
    return _fits(value, _ASSERTION) and len(value) == len(_ASSERTION)


def _literal(value: Any) -> bool:
    return value is None or _fits(value, _LITERAL)


def _list(value: Any) -> bool:
    return type(value) is list


def _condition(value: Any) -> bool:
    return value is None or _fits(value, _CONDITION)


def _anything(value: Any) -> bool:
    return True


def _scope(value: Any) -> bool:
    return type(value) is str and value in ("code", "text")


def _beside(value: Any) -> bool:
    """What waits beside its target, since that lies on another device."""
    return _path(value) and str(value).rpartition("/")[2].startswith(".patchkit-")


def _staged(value: Any) -> bool:
    if value is None or _beside(value):
        return True
    return _path(value) and str(value).startswith(_OWN[0])


def _origin(value: Any) -> bool:
    return value is None or _fits(
        value, {"repository": _text, "revision": _text_or_none, "dirty": _flag}
    )


def _undo(value: Any) -> bool:
    return value is None or (_path(value) and str(value).startswith(_OWN[1:]))


def _operation(value: Any) -> bool:
    """What goes has a second name, what comes waits; one of the two there must be."""
    if not _fits(value, _OPERATION):
        return False
    return (value["old"] is None) == (value["undo"] is None) and (value["new"] is None) == (
        value["staged"] is None
    )


_FUNCTION = type(_text)
_LITERAL = {"name": _text, "has": _list}
_CONDITION = {"test": _text, "given": [(_text, _anything)], "expected": _flag}
_ASSERTION = {
    "key": _text, "distribution": _text, "file": _path, "pattern": _text_or_none,
    "text": _text_or_none, "literal": _literal, "condition": _condition, "defined": _texts,
    "within": _text_or_none, "minimum": _number_or_none, "maximum": _number_or_none,
    "scope": _scope, "versions": _text_or_none, "message": _text,
}  # fmt: skip
_VARIANT = {
    "distribution": _text, "release": _text, "versions": _text, "strip": _number_or_none,
    "patches": [(_text, _sha256, _number)], "pack": _sha256, "upstream": _text_or_none,
    "unneeded": _text_or_none, "made_for": _text_or_none,
}  # fmt: skip
_BUNDLE = {
    "name": _text, "version": _text, "loose": _flag, "reverse": _flag, "eol": _flag,
    "strip": _number_or_none, "manifest": _sha256_or_none, "variants": [_VARIANT],
    "profile": {"env": _table_of_text, "args": _texts}, "caches": _caches, "origin": _origin,
}  # fmt: skip
_STATE = {
    "schema": _number,
    "base": _text,
    "serial": _number,
    "fingerprint": _sha256,
    "roots": [_root],
    "distributions": [
        {
            "name": _text, "version": _text, "root": _number, "kind": _text,
            "dist_info": _text_or_none,
        }
    ],
    "bundles": [_BUNDLE],
    "files": [
        {
            "root": _number, "path": _path, "before": _ident, "after": _ident,
            "stash": _name_or_none, "blob": _sha256_or_none, "role": _text, "owner": _text,
            "bundles": _texts,
        }
    ],
    "folders": [(_root, _folder, _made_or_gone, _mode, _owner, _owner)],
    "pycs": [(_root, _path, _name)],
    "asserts": [{"bundle": _text, "root": _number, "assertion": _assertion, "reads": _reads}],
}  # fmt: skip
_OPERATION = {
    "root": _root, "path": _path, "old": _ident, "new": _ident, "undo": _undo,
    "staged": _staged,
}  # fmt: skip
_FOLDERS = [(_root, _path, _mode, _owner, _owner)]
_BY = {"pid": _number, "host": _text, "where": _texts_or_none, "started": _text_or_none}
_JOURNAL = {
    "schema": _number,
    "base": _text,
    "by": _BY,
    "command": _text,
    "state": _sha256_or_none,
    "make": _FOLDERS,
    "drop": _FOLDERS,
    "modules": [(_root, _path)],
    "stash_pycs": [(_root, _path, _name)],
    "restore_pycs": [(_root, _path, _name)],
    "caches": [(_absolute, _absolute)],
    "prefix": _absolute_or_none,
    "operations": [_operation],
}
_TRIAL = {
    "schema": _number,
    "base": _text,
    "id": _text,
    "name": _text,
    "record": _absolute,
    "command": _text,
    "by": _BY,
    "since": _number,
    "bundles": [_BUNDLE],
    "fingerprint": _sha256_or_none,
}
_SAVED = {
    "schema": _number,
    "base": _absolute,
    "fingerprint": _sha256_or_none,
    "bundles": [_BUNDLE],
    "blobs": [(_sha256, _text)],
}
