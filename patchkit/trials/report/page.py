"""The living plan as one HTML page that needs nothing else: style, script and chart inline.

No text of a record becomes markup: elements are built as trees, or their text is escaped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from xml.etree.ElementTree import Element, SubElement, tostring

from patchkit.trials.board import Board, Row

from . import words

#: (heading, kind): how each column is sorted.
_COLUMNS = ("number", "text", "text", "number", "number", "text")


def page(board: Board, charts: Sequence[tuple[str, Element]]) -> str:
    """The document; ``charts`` are (class, ``<svg>`` element) for each width."""
    return "".join(_parts(board, charts))


def _parts(board: Board, charts: Sequence[tuple[str, Element]]) -> Iterator[str]:
    """Each part is made, written and let go: a tree of ten thousand rows takes 100 MiB."""
    yield '<!DOCTYPE html>\n<html lang="en">'
    yield _written(_meta(board))
    yield "<body><main>"
    yield from map(_written, _head(board, charts))
    yield from _table(board)
    yield from _stopped(board)
    yield from _left(board)
    yield "</main>"
    footer = Element("footer")
    footer.text = "Made by patchkit trial report from the records of the trials."
    script = Element("script")
    script.text = _beside("page.js")
    yield _written(footer) + _written(script)
    yield "</body></html>\n"


def _written(element: Element) -> str:
    return tostring(element, encoding="unicode", method="html")


def _meta(board: Board) -> Element:
    head = Element("head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    # Whatever a record holds: the page asks nobody for anything.
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": policy})
    _text(head, "title", words.title(board))
    _text(head, "style", _beside("page.css"))
    return head


def _beside(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _named(tag: str, text: str) -> Element:
    element = Element(tag)
    element.text = text
    return element


def _text(above: Element, tag: str, text: str, kind: str = "") -> Element:
    element = SubElement(above, tag, {"class": kind} if kind else {})
    element.text = text
    return element


def _head(board: Board, charts: Sequence[tuple[str, Element]]) -> Iterator[Element]:
    yield _named("h1", words.title(board))
    items = [("Goal", board.goal or ""), ("Machine", words.machine(board))]
    for label, row in (("Baseline", board.baseline), ("Best", board.best)):
        if row is not None and not (label == "Best" and row is board.baseline):
            change = words.against(row)
            shown = f"{row.name}: {words.figure(row, board.metric)}"
            items.append((label, shown + (f" ({change})" if change else "")))
    found = Element("dl", {"class": "head"})
    for label, text in items:
        if text:
            _text(found, "dt", label)
            _text(found, "dd", text)
    yield found
    if charts:
        yield _named("h2", "Every run against the baseline")
        figure = Element("figure")
        for kind, chart in charts:
            SubElement(figure, "div", {"class": kind}).append(chart)
        yield figure


def _table(board: Board) -> Iterator[str]:
    # Roles by name: where a narrow screen shows the table as blocks, a browser drops its own.
    yield _written(_named("h2", "In the order tried"))
    yield '<table class="sortable" role="table">'
    yield _written(_named("caption", "A heading sorts by its column."))
    head = Element("thead", {"role": "rowgroup"})
    row = SubElement(head, "tr", {"role": "row"})
    metric = board.metric
    unit = f" [{metric.unit}]" if metric is not None and metric.unit else ""
    name = "figure" if metric is None else f"{metric.name}{unit}"
    names = ("#", "trial", "verdict", name, "against the baseline", "reason")
    for place, (heading, kind) in enumerate(zip(names, _COLUMNS, strict=True)):
        attributes = {"role": "columnheader", "scope": "col", "data-kind": kind}
        attributes["aria-sort"] = "none" if place else "ascending"
        if kind == "number":
            attributes["class"] = "figure"
        _text(SubElement(row, "th", attributes), "button", heading).set("type", "button")
    yield _written(head)
    yield '<tbody role="rowgroup">'
    for trial in board.rows:
        yield _row(trial, board)
    yield "</tbody></table>"


def _row(trial: Row, board: Board) -> str:
    """As text at once: ten thousand trees of a row take a second more."""
    tried, confounded = words.tried(trial), trial.confounded
    waiting = trial.goal if trial.outcome == "not tried" else None
    name = escape(trial.name)
    head = f'<th role="rowheader" scope="row" data-value="{name}">{name}'
    head += f"{_more(tried if tried != trial.name else '')}</th>"
    cells = [
        _cell(str(trial.number), "figure place", str(trial.number)),
        head,
        _cell(trial.outcome, f"outcome {trial.outcome.replace(' ', '-')}"),
        _cell(
            "" if trial.figure is None else words.figure(trial, board.metric),
            "figure",
            _value(trial.figure),
            words.spread(trial) if len(trial.figures) > 1 else "",
        ),
        _cell(
            "" if trial.ratio is None else words.percent(trial.ratio),
            "figure",
            _value(trial.ratio),
            words.base(trial),
            words.noise(trial),
        ),
        _cell(
            trial.reason or waiting or "",
            "reason",
            None,
            f"Confounded: {confounded}" if confounded else "",
        ),
    ]
    return f'<tr role="row" id="{escape(trial.id)}">{"".join(cells)}</tr>\n'


def _cell(text: str, kind: str, value: str | None = None, *more: str) -> str:
    sorted_by = "" if value is None else f' data-value="{escape(value)}"'
    inside = escape(text) + "".join(map(_more, more))
    return f'<td role="cell" class="{escape(kind)}"{sorted_by}>{inside}</td>'


def _more(text: str) -> str:
    return f'<span class="more">{escape(text)}</span>' if text else ""


def _value(figure: float | None) -> str:
    return "" if figure is None else repr(figure)


def _stopped(board: Board) -> Iterator[str]:
    """As text, like the rows."""
    if not board.stopped:
        return
    yield _written(_named("h2", "What would reopen a trial"))
    yield '<ul class="plan">'
    for trial in board.stopped:
        why = trial.cause or trial.reason
        told = f"<span>{escape(why)}</span>" if why else ""
        if trial.unblock is None:
            line = "No condition is known that would reopen it."
        else:
            kind = ' class="holds"' if trial.holds_now else ""
            holds = f"<span{kind}>{escape(words.HOLDS[trial.holds_now])}</span>"
            line = f"Unblock: <code>{escape(trial.unblock)}</code>: {holds}"
        head = f"<strong>{escape(trial.name)}</strong> ({escape(trial.outcome)}) "
        yield f'<li>{head}{told}<span class="more">{line}</span></li>\n'
    yield "</ul>"


def _left(board: Board) -> Iterator[str]:
    if not board.waiting and not board.untried:
        return
    yield _written(_named("h2", "Left to try"))
    yield '<ul class="plan">'
    for trial in board.waiting:
        why = trial.reason or trial.goal or words.tried(trial)
        yield f"<li><strong>{escape(trial.name)}</strong>{_more(why)}</li>\n"
    for name in board.untried:
        yield f"<li><strong>{escape(name)}</strong>{_more('a bundle without a trial')}</li>\n"
    yield "</ul>"
