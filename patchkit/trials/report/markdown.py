"""The living plan as Markdown (GitHub's tables).  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.trials.board import Board, Row

from . import words


def markdown(board: Board) -> str:
    """The whole document, with a newline at its end."""
    return "\n".join(_lines(board)) + "\n"


def _lines(board: Board) -> Iterator[str]:
    yield f"# {words.title(board)}"
    yield ""
    if board.goal:
        yield f"Goal: {_text(board.goal)}"
        yield ""
    machine = words.machine(board)
    if machine:
        yield f"Machine: {_text(machine)}"
        yield ""
    for label, row in (("Baseline", board.baseline), ("Best", board.best)):
        if row is not None and not (label == "Best" and row is board.baseline):
            change = words.against(row)
            yield f"{label}: {_text(row.name)}, {words.figure(row, board.metric)}" + (
                f" ({change})" if change else ""
            )
            yield ""
    yield from _table(board)
    if board.stopped:
        yield from ("## What would reopen a trial", "")
        for row in board.stopped:
            yield from _stopped(row)
        yield ""
    if board.waiting or board.untried:
        yield from ("## Left to try", "")
        for row in board.waiting:
            why = row.reason or row.goal or words.tried(row)
            yield f"- {_text(row.name)}" + (f": {_text(why)}" if why else "")
        for name in board.untried:
            yield f"- {_text(name)} (a bundle without a trial)"
        yield ""


def _table(board: Board) -> Iterator[str]:
    metric = board.metric
    name = "figure" if metric is None else metric.name
    yield "## In the order tried"
    yield ""
    yield f"| # | trial | verdict | {_cell(name)} | against the baseline | runs | reason |"
    yield "| ---: | --- | --- | ---: | --- | --- | --- |"
    for row in board.rows:
        noise = words.noise(row)
        cells = (
            str(row.number),
            row.name,
            row.outcome,
            words.figure(row, metric),
            words.against(row) + (f" ({noise})" if noise else ""),
            words.spread(row),
            _reason(row),
        )
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"
    yield ""


def _reason(row: Row) -> str:
    parts = [row.reason or (row.goal or "" if row.outcome == "not tried" else "")]
    if row.confounded:
        parts.append(f"Confounded: {row.confounded}")
    return " ".join(part for part in parts if part)


def _stopped(row: Row) -> Iterator[str]:
    why = row.cause or row.reason
    yield f"- **{_text(row.name)}** ({row.outcome})" + (f": {_text(why)}" if why else "")
    if row.unblock:
        yield f"  Unblock: `{row.unblock}`: {words.HOLDS[row.holds_now]}."
    else:
        yield "  No condition is known that would reopen it."


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str) -> str:
    """One line, in which nothing is markup."""
    line = " ".join(text.split())
    for sign in "\\`*_<>[]":
        line = line.replace(sign, f"\\{sign}")
    return line
