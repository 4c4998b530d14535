"""The figures of one run: what was asked for, out of its output and the files that it wrote.

Owns the reading of these files, and that a figure of an earlier run never counts for this one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from patchkit.fsio import read_plain
from patchkit.signals import TooLong

from .metrics import (
    Figure,
    Found,
    Pattern,
    Query,
    as_seen,
    by_pattern,
    by_query,
    last_object,
    parsed,
    read,
    recognised,
)
from .record import Metric

_STDOUT = "-"
_MOST = 256 * 1024 * 1024
#: File → (inode, size, time) before the run; None where there was none.
Before = Mapping[str, "tuple[int, int, int] | None"]


class Texts(NamedTuple):
    """The texts of ``--metric``, ``--metric-json`` and ``--read``."""

    metric: tuple[str, ...] = ()
    metric_json: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


class Wanted(NamedTuple):
    """What the command line asks for.  ``files`` are (tool, file); a file ``-`` is the output;
    ``texts`` are the options as they were given.

    Where nothing is asked for, the output of known tools is recognised."""

    patterns: tuple[Pattern, ...] = ()
    queries: tuple[Query, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    texts: Texts = Texts()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return not (self.patterns or self.queries or self.files)


class Figures(NamedTuple):
    """Values by metric, what each metric is, and what was not to be found."""

    values: dict[str, float]
    metrics: dict[str, Metric]
    problems: list[str]


def before(wanted: Wanted, cwd: str) -> Before:
    """How the files are now: what a run wrote is told by that."""
    named = [query.file for query in wanted.queries] + [file for _, file in wanted.files]
    return {name: _mark(os.path.join(cwd, name)) for name in named if name != _STDOUT}


def figures(wanted: Wanted, output: str, cwd: str, marks: Before) -> Figures:
    """Everything that was asked for, of a run that has ended."""
    output = as_seen(output)
    found: Found = recognised(output) if wanted.is_empty else {}
    problems: list[str] = []

    def keep(name: str, figure: Figure | None, where: str) -> None:
        if figure is None:
            problems.append(f"there is no figure {name} in {where}")
        else:
            found[name] = figure

    for pattern in wanted.patterns:
        try:
            keep(pattern.name, by_pattern(pattern, output), "the output")
        except TooLong:
            problems.append(
                f"the search for {pattern.name} was given up: its pattern takes too long"
            )
    for query in wanted.queries:
        if query.file == _STDOUT:
            value = last_object(output)
            where = "the output's last JSON line"
        else:
            text = _written(query.file, cwd, marks, problems)
            if text is None:
                continue
            value, where = _json(text), query.file
        keep(query.name, by_query(query, value), where)
    for tool, file in wanted.files:
        text = output if file == _STDOUT else _written(file, cwd, marks, problems)
        if text is None:
            continue
        rows = read(tool, text)
        if not rows:
            where = "the output" if file == _STDOUT else file
            problems.append(f"there are no results of {tool} in {where}")
        found.update(rows)
    return Figures(
        {name: figure.value for name, figure in found.items()},
        {name: Metric(figure.unit, figure.better) for name, figure in found.items()},
        problems,
    )


def _written(file: str, cwd: str, marks: Before, problems: list[str]) -> str | None:
    """What a run wrote into a file: what it added, or all where it was made anew."""
    path = os.path.join(cwd, file)
    mark, now = marks[file], _mark(path)
    if now is None:
        problems.append(f"{file} was not written")
        return None
    if now == mark:
        problems.append(f"{file} is from before this run")
        return None
    try:
        data = read_plain(path, _MOST)
    except OSError as error:
        problems.append(f"{file} cannot be read: {error.strerror}")
        return None
    if (
        mark is not None
        and mark[0] == now[0]
        and mark[1] < now[1]
        and data[mark[1] - 1 :][:1] == b"\n"
    ):
        data = data[mark[1] :]
    return data.decode("utf-8", "replace")


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _json(text: str) -> Any:
    value = parsed(text)
    return last_object(text) if value is None else value
