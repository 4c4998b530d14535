"""The command that makes a trial again, from its record.  Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .private import HIDDEN
from .record import GRACE, READY_TIMEOUT

#: Option → key of what was given.
_FIGURES = {"--metric": "metric", "--metric-json": "metric_json", "--read": "read"}
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Here(NamedTuple):
    """Where the command is to be run.

    ``before`` are the options before ``trial`` and ``behind`` those behind ``trial run`` that do
    not come from the record, as (option, value, whether it is a path from ``cwd``).
    """

    before: Sequence[tuple[str, str, bool]] = ()
    behind: Sequence[tuple[str, str, bool]] = ()
    cwd: str | None = None

    def words(self, options: Sequence[tuple[str, str, bool]], *, leaving: bool) -> Iterator[str]:
        """Options as words; with whole paths where the command is run in another folder."""
        for option, value, is_path in options:
            whole = leaving and is_path and not value.startswith("/")
            yield from (option, f"{self.cwd}/{value}" if whole else value)


def command(record: Mapping[str, Any], here: Here | None = None) -> str:
    """A line for a shell.  Where a record names no command, ``COMMAND…`` stands for it.

    The sets are named whole, with ``--only``, so that they are the same ones whatever is applied
    by then.  Settings that the record hides are left out: whoever runs it has them set; what it
    hides of a command stands there as it does in the record (:func:`hides`).
    """
    here = here or Here()
    kind = "ab" if record.get("kind") == "ab" else "run"
    given = record.get("given")
    cwd = str((given or {}).get("cwd") or "")
    leaving = bool(cwd) and here.cwd is not None and cwd != here.cwd
    words = ["patchkit", *here.words(here.before, leaving=leaving), "trial", kind]
    words += [*here.words(here.behind, leaving=leaving), "--name", str(record["name"])]
    words += _from_sets(record, kind) if given is None else _as_given(record, given, kind)
    if record.get("append_args"):
        words.append("--append-args")
    if record.get("measure"):
        words += ["--measure", shlex.join(record["measure"])]
    if kind == "ab" and record.get("confounded"):
        words.append("--confounded")
    line = f"{_line([*words, '--'])} {_line(record.get('command') or ()) or 'COMMAND…'}"
    return f"cd {_quoted(cwd)} && {line}" if leaving else line


def hides(record: Mapping[str, Any]) -> list[str]:
    """What has to be set, or put in, before the command is the same one: the variables whose
    values the record hides, and HIDDEN itself where it stands in a command."""
    given = record.get("given") or {}
    found = [key for key, value in (given.get("environ") or {}).items() if value == HIDDEN]
    for word in (*(given.get("candidate") or ()), *(given.get("baseline") or ())):
        key, _, value = word.partition("=")
        found += [key] if value == HIDDEN else []
    words = [*(record.get("command") or ()), *(record.get("measure") or ())]
    if any(HIDDEN in word for word in (*words, given.get("ready_url") or "")):
        found.append(HIDDEN)
    return list(dict.fromkeys(found))


def _as_given(record: Mapping[str, Any], given: Mapping[str, Any], kind: str) -> Iterator[str]:
    """The options of a record that has them."""
    carried = () if given.get("only") else given.get("applied") or ()
    yield "--only"
    sides = {"candidate": "--bundle"}
    if kind == "ab":
        sides = {"baseline": "--baseline", "candidate": "--candidate"}
    for side, option in sides.items():
        for word in dict.fromkeys((*carried, *(given.get(side) or ()))):
            if not word.endswith(f"={HIDDEN}"):
                yield from (option, word)
    for key, value in (given.get("environ") or {}).items():
        if value != HIDDEN:
            yield from ("--env", f"{key}={value}")
    if record.get("goal"):
        yield from ("--goal", record["goal"])
    repeat = given.get("repeat") or 1
    if kind == "ab" or repeat > 1:
        yield from ("--repeat", str(repeat))
    for option, key, usual in (
        ("--ready-url", "ready_url", None),
        ("--ready-pattern", "ready_pattern", None),
        ("--ready-timeout", "ready_timeout", READY_TIMEOUT),
        ("--grace", "grace", GRACE),
    ):
        value = given.get(key, usual)
        if value != usual:
            text = value if isinstance(value, str) else repr(value).removesuffix(".0")
            yield from (option, text)
    for option, key in _FIGURES.items():
        for text in given.get(key) or ():
            yield from (option, text)


def _from_sets(record: Mapping[str, Any], kind: str) -> Iterator[str]:
    """What the sets and the runs tell of them, for a record of an earlier form or of a person."""
    sets = record.get("sets") or {}
    candidate, baseline = (sets.get(name) or {} for name in ("candidate", "baseline"))
    if kind == "ab":
        for option, one, other in (
            ("--baseline", baseline, candidate),
            ("--candidate", candidate, baseline),
        ):
            for word in (*_names(one), *_apart(one, other)):
                yield from (option, word)
    else:
        for name in _names(candidate):
            yield from ("--bundle", name)
        for setting in _settings(candidate):
            yield from ("--env", setting)
    runs = [run for run in record.get("runs") or () if run.get("set") != "baseline"]
    if len(runs) > 1 or (runs and kind == "ab"):
        yield from ("--repeat", str(len(runs)))


def _names(chosen: Mapping[str, Any]) -> Iterator[str]:
    for bundle in chosen.get("bundles") or ():
        yield str(bundle["name"])


def _settings(chosen: Mapping[str, Any]) -> Iterator[str]:
    for key, value in (chosen.get("environ") or {}).items():
        if value != HIDDEN:
            yield f"{key}={value}"


def _apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """The settings that one set has and the other has not, where their bundles are the same:
    else they are the bundles' own."""
    if list(_names(one)) == list(_names(other)):
        shared = set(_settings(other))
        yield from (setting for setting in _settings(one) if setting not in shared)


def _line(words: Iterable[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """A word for a shell, on one line and printable: a program of several lines, or bytes that
    are no text, as ``$'…'`` (bash, zsh, ksh, POSIX of 2024)."""
    if word.isprintable():
        return shlex.quote(word)
    out = []
    for sign in word:
        if sign in "\\'":
            out.append(f"\\{sign}")
        elif sign in _SHORT:
            out.append(_SHORT[sign])
        elif sign.isprintable():
            out.append(sign)
        else:  # octal: its three digits end by themselves
            escaped = "\udc80" <= sign <= "\udcff"
            data = sign.encode("utf-8", "surrogateescape" if escaped else "replace")
            out += [f"\\{byte:03o}" for byte in data]
    return f"$'{''.join(out)}'"
