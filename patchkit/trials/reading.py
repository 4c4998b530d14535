"""The records of a folder of trials, for what reads them all.

Only looks, without a lock: a record is replaced by one rename.
"""

from __future__ import annotations

import json
from typing import Any

from patchkit.errors import Refused
from patchkit.fsio import read_plain

from .ledger import MAX_RECORD, VARIABLE, Ledger
from .record import RecordError, is_record, parse

#: What no reader of the whole ledger asks for, and what makes most of a record.
_ASIDE = ("environ", "repository")
_LONG = ("tail", "log", "started", "ended")


def read_all(folder: str, *, whole: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    """The records in the order tried (by id), and a remark for each file that is none.

    As :meth:`Ledger.list` reads them, but in half of the time, as plain objects.  Unless
    ``whole``, runs come without the ends of their logs and equal facts are one object, so that
    ten thousand records take tens of megabytes.
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
        except OSError as error:
            remarks.append(f"{path} cannot be read: {error.strerror}")
            continue
        try:
            record = json.loads(data)
        except (ValueError, RecursionError):
            record = None
        if is_record(record, identifier):
            records.append(record if whole else _short(record, shared))
        else:
            remarks.append(_why_not(data, identifier, path))
    return records, remarks


def _why_not(data: bytes, identifier: str, path: str) -> str:
    """What is wrong with a file, in full."""
    try:
        return f"{path} is the record of {parse(data, path).id}, not of {identifier}"
    except RecordError as error:
        return error.message


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
