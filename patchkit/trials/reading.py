"""The records of a folder of trials, for what reads them all.

Only looks, without a lock: a record is replaced by one rename.
"""

from __future__ import annotations

import json
from typing import Any

from patchkit.errors import Refused
from patchkit.fsio import read_plain

from .ledger import MAX_RECORD, VARIABLE, Ledger
from .record import RecordError, parse

_KINDS: dict[str, type] = {
    **dict.fromkeys(("id", "name", "kind", "status", "started", "goal", "confounded"), str),
    **dict.fromkeys(("sets", "facts", "metrics", "verdict", "comparison"), dict),
    **dict.fromkeys(("runs", "command", "measure"), list),
}
_WORDS: dict[type, str] = {str: "text", dict: "object", list: "list"}
#: What no reader of the whole ledger asks for, and what makes most of a record.
_ASIDE = ("environ", "repository")
_LONG = ("tail", "log", "started", "ended")


def read_all(folder: str, *, whole: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    """The records in the order tried (by id), and a remark for each file that is none.

    As :meth:`Ledger.list` reads them, but in a fourth of the time and as plain objects, of which
    only what is looked at here is checked.  Unless ``whole``, runs come without the ends of their
    logs and equal facts are one object, so that ten thousand records take tens of megabytes.
    Raises :class:`Refused` where there is no such folder.
    """
    ledger = Ledger(folder)
    if not ledger.exists():
        raise Refused(
            f"there are no trials at {folder}",
            code="no-trials",
            hint=f"name their folder by --trials DIR or {VARIABLE}",
        )
    records: list[dict[str, Any]] = []
    remarks: list[str] = []
    shared: dict[Any, Any] = {}
    for identifier in ledger.ids():
        path = ledger.path(identifier)
        try:
            data = read_plain(path, MAX_RECORD)
        except FileNotFoundError:
            continue  # removed meanwhile
        try:
            record = _checked(json.loads(data))
        except (ValueError, RecursionError) as error:
            remarks.append(_why_not(data, path) or f"{path} is no record of a trial: {error}")
            continue
        records.append(record if whole else _short(record, shared))
    return records, remarks


def _why_not(data: bytes, path: str) -> str | None:
    """What is wrong with a file, in full."""
    try:
        parse(data, path)
    except RecordError as error:
        return error.message
    return None


def _short(record: dict[str, Any], shared: dict[Any, Any]) -> dict[str, Any]:
    facts = record.get("facts")
    if facts:
        record["facts"] = shared.setdefault(tuple(facts.items()), facts)
    for key in _ASIDE:
        record.pop(key, None)
    for chosen in (record.get("sets") or {}).values():
        for bundle in (chosen or {}).get("bundles") or ():
            bundle.pop("patches", None)
    for run in record.get("runs") or ():
        for key in _LONG:
            run.pop(key, None)
    return record


def _checked(value: Any) -> dict[str, Any]:
    """What readers of the whole ledger look at is as they take it to be; all of it in a tenth
    of the time that checking every key takes."""
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    for key, kind in _KINDS.items():
        found = value.get(key)
        if type(found) is not kind and not (found is None and key not in ("id", "name")):
            raise ValueError(f"{key} is no {_WORDS[kind]}")
    for chosen in (value.get("sets") or {}).values():
        _objects((chosen or {}).get("bundles") or (), "a bundle", "name")
    runs = value.get("runs") or ()
    _objects(runs, "a run")
    for run in runs:
        for name, figure in (run.get("values") or {}).items():
            if type(figure) not in (int, float):
                raise ValueError(f"{name} of a run is no number")
    verdict = value.get("verdict")
    if verdict is not None:
        _objects((verdict,), "the verdict", "verdict")
    for name, fact in (value.get("facts") or {}).items():
        if type(fact) is not str:
            raise ValueError(f"the fact {name} is no text")
    return value


def _objects(values: Any, what: str, key: str | None = None) -> None:
    for one in values:
        if type(one) is not dict or (key is not None and type(one.get(key)) is not str):
            raise ValueError(f"{what} is no object" + (f" with a {key}" if key else ""))
