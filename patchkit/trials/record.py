"""The record of a trial: values, and their JSON with its shape checked.  Pure.

Owns the form of a file of the ledger.  Must not read or write one, nor know what time it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from patchkit.errors import PatchkitError

SCHEMA = 1
KINDS = ("run", "ab", "entry")
STATUSES = ("running", "finished", "failed", "interrupted", "not-tried")
VERDICTS = ("baseline", "win", "loss", "dead-end", "inconclusive", "unavailable")
#: The names of the sets that a trial compares; a run is of one of them.
CANDIDATE, BASELINE = "candidate", "baseline"
#: Seconds that a server may take to become ready, and from SIGTERM to SIGKILL, unless said.
READY_TIMEOUT, GRACE = 1800.0, 30.0
#: The largest figure; what is beyond it is no number, or no number that JSON has.
LARGEST = 1.7976931348623157e308
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[A-Za-z0-9][A-Za-z0-9._-]*-[0-9a-f]{6}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")


class RecordError(PatchkitError):
    """A file of the ledger is no record of a trial; ``detail`` has every problem."""

    code = "trial-record"
    usual_hint = "take the file back from git, or correct it by hand"


class BundleUse(NamedTuple):
    """A bundle of a set: ``variant`` says for which releases, ``patches`` maps each patch file
    to its SHA-256."""

    name: str
    version: str | None = None
    variant: str | None = None
    patches: Mapping[str, str] = {}


class SetUse(NamedTuple):
    """A set as a trial ran it.  ``fingerprint`` is of the contents that it gives, None where
    nothing is patched; ``environ`` and ``arguments`` come from the profiles and ``--env``."""

    bundles: tuple[BundleUse, ...] = ()
    fingerprint: str | None = None
    environ: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[tuple[str, str | None], ...]:
        """What makes two sets the same one to a person: the bundles with their versions."""
        return tuple(sorted((one.name, one.version) for one in self.bundles))


class Repository(NamedTuple):
    """Where the bundles come from: a path or an address, the commit, and whether their files
    were as committed."""

    path: str
    commit: str | None
    clean: bool


class Metric(NamedTuple):
    """What a figure is: its unit, and whether ``higher`` or ``lower`` is better."""

    unit: str | None = None
    better: str | None = None


class Run(NamedTuple):
    """One run of the command.  Times are ISO 8601 in UTC; ``seconds`` is wall time from start
    to end, ``ready_seconds`` from start to ready; ``tail`` has the last lines of the log."""

    set: str
    started: str | None = None
    ended: str | None = None
    exit: int | None = None
    seconds: float | None = None
    ready_seconds: float | None = None
    peak_memory_bytes: int | None = None
    values: Mapping[str, float] = {}
    log: str | None = None
    tail: tuple[str, ...] = ()


class Compared(NamedTuple):
    """Candidate against baseline in one metric: medians of the runs; ``ratio`` of the geometric
    means, candidate to baseline, with its ``interval``; ``n`` runs of each."""

    baseline: float
    candidate: float
    ratio: float | None
    interval: tuple[float, float] | None
    confidence: float
    beyond_noise: bool
    n: tuple[int, int]
    p: float | None = None


class Verdict(NamedTuple):
    """What was learned, by a person."""

    verdict: str
    reason: str | None = None
    cause: str | None = None
    unblock: str | None = None
    at: str | None = None
    by: str | None = None


class Given(NamedTuple):
    """What the command line said of a trial, beside its name, goal, command and measurement.

    ``candidate`` and ``baseline`` are the words that name a set, ``applied`` the bundles that were
    applied before the trial, in order; ``only``: these are no part of the sets.  ``environ`` is of
    ``--env``; ``metric``, ``metric_json`` and ``read`` are the options' texts.  ``ready_timeout``
    and ``grace`` in seconds; ``cwd`` is where the command ran, to which its paths are relative.
    """

    candidate: tuple[str, ...] = ()
    baseline: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    only: bool = False
    environ: Mapping[str, str] = {}
    repeat: int = 1
    ready_url: str | None = None
    ready_pattern: str | None = None
    ready_timeout: float = READY_TIMEOUT
    grace: float = GRACE
    metric: tuple[str, ...] = ()
    metric_json: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    cwd: str | None = None


class Trial(NamedTuple):
    """A trial as the ledger keeps it; the fields in the order of the file."""

    id: str
    name: str
    kind: str
    status: str
    started: str | None = None
    ended: str | None = None
    goal: str | None = None
    sets: Mapping[str, SetUse] = {}
    repository: Repository | None = None
    command: tuple[str, ...] = ()
    measure: tuple[str, ...] | None = None
    append_args: bool = False
    given: Given | None = None
    environ: Mapping[str, str] = {}
    facts: Mapping[str, str] = {}
    metrics: Mapping[str, Metric] = {}
    runs: tuple[Run, ...] = ()
    confounded: str | None = None
    comparison: Mapping[str, Compared] | None = None
    verdict: Verdict | None = None


# -- to JSON ----------------------------------------------------------------------------


def as_json(trial: Trial) -> dict[str, Any]:
    """The object of the file."""
    value = {"schema": SCHEMA, **_plain(trial)}
    if trial.given is None:  # as records were before they had it
        del value["given"]
    return value


def render(trial: Trial) -> bytes:
    """The bytes of the file: indented, since people read and merge it."""
    text = json.dumps(as_json(trial), indent=2, ensure_ascii=False)
    return (text + "\n").encode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {key: _plain(item) for key, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


# -- from JSON --------------------------------------------------------------------------


def parse(data: bytes, place: str) -> Trial:
    """The trial in a file; ``place`` names it in the error.  Raises :class:`RecordError`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place} is no JSON: {error}") from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if type(schema) is int and schema > SCHEMA:
        raise RecordError(
            f"{place} was written by a later patchkit (schema {schema})",
            hint="read it with that version",
        )
    if not _fits(value, _TRIAL):
        problems = tuple(_problems(value, _TRIAL, ""))
        raise RecordError(
            f"{place} is no record of a trial: {problems[0]}"
            + (f", and {len(problems) - 1} more" if len(problems) > 1 else ""),
            detail=problems,
            data={"problems": list(problems)},
        )
    return _trial(value)


def is_record(value: Any, identifier: str) -> bool:
    """Whether an object that was read is the record of this trial, in every key."""
    return _fits(value, _TRIAL) and value["id"] == identifier


def _trial(value: dict[str, Any]) -> Trial:
    rest = {key: item for key, item in value.items() if key != "schema"}
    rest["sets"] = {
        name: SetUse(
            **{
                **one,
                "bundles": tuple(BundleUse(**bundle) for bundle in one.get("bundles", ())),
                "arguments": tuple(one.get("arguments", ())),
            }
        )
        for name, one in value.get("sets", {}).items()
    }
    rest["runs"] = tuple(
        Run(**{**one, "tail": tuple(one.get("tail", ()))}) for one in value.get("runs", ())
    )
    rest["command"] = tuple(value.get("command", ()))
    rest["metrics"] = {name: Metric(**one) for name, one in value.get("metrics", {}).items()}
    if value.get("given") is not None:
        lists = ("candidate", "baseline", "applied", "metric", "metric_json", "read")
        given = value["given"]
        rest["given"] = Given(**{**given, **{k: tuple(given[k]) for k in lists if k in given}})
    for key, kind in (("repository", Repository), ("verdict", Verdict)):
        if value.get(key) is not None:
            rest[key] = kind(**value[key])
    if value.get("measure") is not None:
        rest["measure"] = tuple(value["measure"])
    if value.get("comparison") is not None:
        rest["comparison"] = {
            name: Compared(
                **{
                    **one,
                    "interval": one["interval"] and tuple(one["interval"]),
                    "n": tuple(one["n"]),
                }
            )
            for name, one in value["comparison"].items()
        }
    return Trial(**rest)


def is_name(text: str) -> bool:
    """Whether a text can be a trial's name, and so a part of a file's."""
    return _NAME.fullmatch(text) is not None


# -- the shape --------------------------------------------------------------------------

Check = Callable[[Any], bool]


class _Every(NamedTuple):
    """A list, or with ``named`` an object, whose every value has one shape; None where
    ``absent`` says so."""

    shape: Any
    named: bool = False
    absent: bool = False


class _One:
    """An object with these keys: the first must be there."""

    def __init__(
        self, needed: dict[str, Any], others: dict[str, Any], *, absent: bool = False
    ) -> None:
        self.needed = needed
        self.known = {**needed, **others}
        self.absent = absent


def _text(value: Any) -> bool:
    return type(value) is str


def _flag(value: Any) -> bool:
    return value is True or value is False


def _number(value: Any) -> bool:
    # Also for an int that no float holds.
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _matches(pattern: re.Pattern[str]) -> Check:
    return lambda value: type(value) is str and pattern.fullmatch(value) is not None


def _one_of(words: tuple[str, ...]) -> Check:
    return lambda value: type(value) is str and value in words


_FUNCTION = type(_text)
_WORD = _maybe(_text)
_AT = _maybe(_matches(_TIME))
_VALUE = _maybe(_number)
_PAIR: Check = lambda value: (  # noqa: E731
    type(value) is list and len(value) == 2 and all(map(_number, value))
)
_COUNTS: Check = lambda value: (  # noqa: E731
    type(value) is list and len(value) == 2 and all(map(_count, value))
)
_BUNDLE = _One(
    {"name": _text}, {"version": _WORD, "variant": _WORD, "patches": _Every(_text, named=True)}
)
_SET = _One(
    {"bundles": _Every(_BUNDLE)},
    {"fingerprint": _WORD, "environ": _Every(_text, named=True), "arguments": _Every(_text)},
)
_RUN = _One(
    {"set": _one_of((CANDIDATE, BASELINE))},
    {
        "started": _AT,
        "ended": _AT,
        "exit": _maybe(lambda value: type(value) is int),
        "seconds": _VALUE,
        "ready_seconds": _VALUE,
        "peak_memory_bytes": _maybe(_count),
        "values": _Every(_number, named=True),
        "log": _WORD,
        "tail": _Every(_text),
    },
)
_COMPARED = _One(
    {
        "baseline": _number,
        "candidate": _number,
        "ratio": _VALUE,
        "interval": _maybe(_PAIR),
        "confidence": _number,
        "beyond_noise": _flag,
        "n": _COUNTS,
    },
    {"p": _VALUE},
)
_GIVEN = _One(
    {},
    {
        **dict.fromkeys(
            ("candidate", "baseline", "applied", "metric", "metric_json", "read"), _Every(_text)
        ),
        "only": _flag,
        "environ": _Every(_text, named=True),
        "repeat": _count,
        "ready_url": _WORD,
        "ready_pattern": _WORD,
        "ready_timeout": _number,
        "grace": _number,
        "cwd": _WORD,
    },
    absent=True,
)
_TRIAL = _One(
    {
        "schema": lambda value: value == SCHEMA,
        "id": _matches(_ID),
        "name": _matches(_NAME),
        "kind": _one_of(KINDS),
        "status": _one_of(STATUSES),
    },
    {
        "started": _AT,
        "ended": _AT,
        "goal": _WORD,
        "sets": _One({}, {CANDIDATE: _SET, BASELINE: _SET}),
        "repository": _One({"path": _text, "commit": _WORD, "clean": _flag}, {}, absent=True),
        "command": _Every(_text),
        "measure": _Every(_text, absent=True),
        "append_args": _flag,
        "given": _GIVEN,
        "environ": _Every(_text, named=True),
        "facts": _Every(_text, named=True),
        "metrics": _Every(
            _One({}, {"unit": _WORD, "better": _maybe(_one_of(("higher", "lower")))}), named=True
        ),
        "runs": _Every(_RUN),
        "confounded": _WORD,
        "comparison": _Every(_COMPARED, named=True, absent=True),
        "verdict": _One(
            {"verdict": _one_of(VERDICTS)},
            {"reason": _WORD, "cause": _WORD, "unblock": _WORD, "at": _AT, "by": _WORD},
            absent=True,
        ),
    },
)


def _fits(value: Any, shape: Any) -> bool:
    """Whether nothing is wrong.  A ledger of thousands is read whole, and nearly all of it is
    well: this takes a third of the time of looking for what to say."""
    kind = shape.__class__
    if kind is _FUNCTION:
        return bool(shape(value))
    if kind is _One:
        if value.__class__ is not dict:
            return value is None and bool(shape.absent)
        if not shape.needed.keys() <= value.keys():
            return False
        known = shape.known
        for key, item in value.items():
            inner = known.get(key)
            if inner is None:
                return False
            if not (inner(item) if inner.__class__ is _FUNCTION else _fits(item, inner)):
                return False
        return True
    if value.__class__ is not (dict if shape.named else list):
        return value is None and bool(shape.absent)
    inner = shape.shape
    items: Iterable[Any] = dict(value).values() if shape.named else value
    for item in items:
        if not (inner(item) if inner.__class__ is _FUNCTION else _fits(item, inner)):
            return False
    return True


def _problems(value: Any, shape: Any, path: str) -> Iterator[str]:
    """What is wrong, by key path."""
    where = path or "the file"
    if isinstance(shape, _One):
        if value is None and shape.absent:
            return
        if type(value) is not dict:
            yield f"{where} is no object"
            return
        for key in shape.needed:
            if key not in value:
                yield f"{path}{'.' if path else ''}{key} is missing"
        for key, item in value.items():
            inner = shape.known.get(key)
            at = f"{path}.{key}" if path else str(key)
            if inner is None:
                yield f"{at} is no known key"
            elif isinstance(inner, (_One, _Every)):
                yield from _problems(item, inner, at)
            elif not inner(item):
                yield f"{at} cannot be {_shown(item)}"
    elif isinstance(shape, _Every):
        if value is None and shape.absent:
            return
        if type(value) is not (dict if shape.named else list):
            yield f"{where} is no {'object' if shape.named else 'list'}"
            return
        items: Iterable[tuple[Any, Any]] = dict(value).items() if shape.named else enumerate(value)
        inner = shape.shape
        nested = isinstance(inner, (_One, _Every))
        for key, item in items:
            at = f"{path}.{key}" if shape.named else f"{path}[{key}]"
            if nested:
                yield from _problems(item, inner, at)
            elif not inner(item):
                yield f"{at} cannot be {_shown(item)}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
