"""Every run against the baseline, drawn by matplotlib (the extra ``plot``) as SVG to stand in
a page.

What is drawn in a colour of :data:`_COLOURS` gets it from the page's style sheet, so that the
chart follows its light and dark form; marks carry their text as a title.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings
from xml.etree.ElementTree import Element, fromstring

from patchkit.errors import Refused
from patchkit.trials.board import OUTCOMES, Board, Row

from . import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colour as drawn → variable of the page.
_COLOURS = {
    "#010101": "--ink",
    "#020202": "--muted",
    "#030303": "--rule",
    "#040404": "--baseline",
    "#050505": "--win",
    "#060606": "--loss",
    "#070707": "--dead-end",
    "#080808": "--inconclusive",
}
_BY_NAME = {name[2:]: colour for colour, name in _COLOURS.items()}
#: Outcome → (sign, colour): told apart by both.
_SIGNS = {
    "baseline": ("s", "baseline"),
    "win": ("^", "win"),
    "loss": ("v", "loss"),
    "dead-end": ("X", "dead-end"),
    "inconclusive": ("D", "inconclusive"),
}
_OTHER = ("o", "muted")
#: Beyond this many trials each is a column of dots, not a named row.
MOST_NAMED = 60
_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_SIZE = re.compile(r"font(?:-size)?:[^;]*?([\d.]+)px")
#: Of a chart 9 inches wide, as parts of it: room for the axis, its label, and the legend.
_MARGINS = {"left": 0.09, "right": 0.99, "bottom": 0.2, "top": 0.98}
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")


def drawn(board: Board) -> list[Row]:
    """The trials that have a figure and something to hold it against."""
    return [row for row in board.rows if row.figures and (row.ratio is not None or _is_base(row))]


def _is_base(row: Row) -> bool:
    return row.outcome == "baseline" and bool(row.base or row.figure)


def svg(board: Board, width: float, *, name: str) -> Element | None:
    """An ``<svg>`` element, ``width`` inches wide; None where no trial has figures to compare.

    ``name`` begins every id in it: a page may hold more than one.  Raises :class:`Refused`
    where matplotlib is not installed.
    """
    rows = drawn(board)
    if not rows:
        return None
    # A chart multiplies no matrices, and numpy's threads for that cost memory and time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise Refused(
            "matplotlib is not installed, which draws the chart",
            code="plot-missing",
            hint="pip install 'patchkit-sets[plot]', or take --format md",
        ) from None
    few = len(rows) <= MOST_NAMED
    height = 1.15 + 0.42 * len(rows) if few else 0.45 * width + 1
    with matplotlib.rc_context(
        {
            "svg.fonttype": "none",
            "text.parse_math": False,  # a unit may be a dollar
            "svg.hashsalt": name,
            "svg.id": name,
            "font.size": 9,
            "text.color": _BY_NAME["ink"],
            "axes.labelcolor": _BY_NAME["ink"],
            "xtick.color": _BY_NAME["muted"],
            "ytick.color": _BY_NAME["ink"],
            "axes.edgecolor": _BY_NAME["rule"],
        }
    ):
        # Laying out draws all once more: where there are thousands of marks, margins do.
        figure = Figure(figsize=(width, height), layout="constrained" if few else None)
        figure.patch.set_visible(False)
        axes = figure.subplots(gridspec_kw=None if few else _MARGINS)
        axes.patch.set_visible(False)
        titles = _rows(axes, rows, board, width) if few else _columns(axes, rows, board)
        used = [outcome for outcome in OUTCOMES if any(row.outcome == outcome for row in rows)]
        figure.legend(
            handles=[_handle(outcome) for outcome in used],
            loc="outside lower left" if few else "lower left",
            ncols=6 if width > 5 else 2,
            frameon=False,
            fontsize=8.5,
        )
        out = io.StringIO()
        with catch_warnings():
            # The browser's fonts draw the text, whatever matplotlib's own one lacks.
            filterwarnings("ignore", "Glyph .* missing from")
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _for_a_page(out.getvalue(), titles, _described(rows, board), name)


def _change(value: float, row: Row) -> float:
    base = row.base or row.figure or 1.0
    return (value / base - 1) * 100


def _sign(outcome: str) -> tuple[str, str]:
    sign, colour = _SIGNS.get(outcome, _OTHER)
    return sign, _BY_NAME[colour]


def _handle(outcome: str) -> Any:
    from matplotlib.lines import Line2D

    sign, colour = _sign(outcome)
    return Line2D([], [], linestyle="none", marker=sign, color=colour, label=outcome)


def _rows(axes: Axes, rows: Sequence[Row], board: Board, width: float) -> dict[str, str]:
    """One row a trial, the first on top: its runs, their spread, its baseline's runs."""
    titles = {}
    longest = int(width * 5)
    for place, row in enumerate(rows):
        sign, colour = _sign(row.outcome)
        if row.baseline:
            base = [_change(value, row) for value in row.baseline]
            if len(set(base)) > 1:
                axes.plot(
                    *([min(base), max(base)], [place, place]),
                    color=_BY_NAME["rule"],
                    linewidth=9,
                    solid_capstyle="butt",
                    zorder=1,
                )
            axes.scatter(
                base, [place] * len(base), s=10, color=_BY_NAME["muted"], marker="|", zorder=2
            )
        runs = [_change(value, row) for value in row.figures]
        spread = [min(runs), max(runs)]
        if row.interval is not None:
            spread = [(edge - 1) * 100 for edge in row.interval]
        if spread[0] != spread[1]:
            axes.plot(spread, [place, place], color=colour, linewidth=1.6, zorder=3)
        key = f"mark-{place}"
        axes.scatter(runs, [place] * len(runs), s=52, marker=sign, color=colour, gid=key, zorder=4)
        titles[key] = _said(row, board)
        if row.ratio is not None:
            axes.annotate(
                words.percent(row.ratio),
                (max([*runs, *spread]), place),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
    axes.axvline(0, color=_BY_NAME["muted"], linewidth=1, zorder=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [_short(row.name, longest) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.16)
    axes.set_xlabel(_axis(board, width))
    _plain(axes, "left")
    return titles


def _columns(axes: Axes, rows: Sequence[Row], board: Board) -> dict[str, str]:
    """One column of dots a trial, in the order tried; a title for each outcome."""
    titles = {}
    for place, outcome in enumerate(dict.fromkeys(row.outcome for row in rows)):
        sign, colour = _sign(outcome)
        mine = [row for row in rows if row.outcome == outcome]
        points = [(row.number, _change(value, row)) for row in mine for value in row.figures]
        across, up = zip(*points, strict=True)
        key = f"mark-{place}"
        # As one line of marks: thousands of them are drawn in half the time that a scatter takes.
        axes.plot(
            *(across, up),
            linestyle="none",
            marker=sign,
            markersize=3,
            color=colour,
            alpha=0.7,
            markeredgewidth=0,
            gid=key,
        )
        titles[key] = f"{outcome}: {len(mine)} trials"
    axes.axhline(0, color=_BY_NAME["muted"], linewidth=1, zorder=0)
    axes.set_xlabel("trials, in the order tried")
    axes.set_ylabel(_axis(board, 9))
    _plain(axes, "bottom")
    return titles


def _plain(axes: Axes, side: str) -> None:
    for name, spine in axes.spines.items():
        spine.set_visible(name == ("bottom" if side == "left" else "left"))
    axes.grid(axis="x" if side == "left" else "y", color=_BY_NAME["rule"], linewidth=0.6)
    axes.set_axisbelow(True)


def _axis(board: Board, width: float) -> str:
    metric = board.metric
    if metric is None:
        return "against the baseline (%)"
    better = {"higher": "more is better", "lower": "less is better"}.get(metric.better or "")
    unit = f" [{metric.unit}]" if metric.unit else ""
    text = f"{metric.name}{unit} against the baseline, %"
    text += f" ({better})" if better and width > 5 else ""
    # What XML has no place for would make the whole drawing unreadable.
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _said(row: Row, board: Board) -> str:
    parts = [f"{row.name}, {row.outcome}: {words.figure(row, board.metric)}"]
    parts += [part for part in (words.against(row), words.spread(row), words.noise(row)) if part]
    return ", ".join(parts)


def _described(rows: Sequence[Row], board: Board) -> str:
    shown = rows[:MOST_NAMED]
    lines = [_said(row, board) for row in shown]
    if len(rows) > len(shown):
        lines.append(f"and {len(rows) - len(shown)} more, which the table lists")
    return "; ".join(lines)


def _for_a_page(text: str, titles: dict[str, str], description: str, name: str) -> Element:
    """The drawing as an element of a page: named, titled, and in the page's colours."""
    root = fromstring(text)
    for child in list(root):
        if child.tag == f"{_SVG}metadata":
            root.remove(child)
    for element in root.iter():
        element.tag = str(element.tag).removeprefix(_SVG)
        _in_colours_of_the_page(element)
        key = element.attrib.pop("id", None) if element.tag == "g" else None
        if key in titles:
            title = Element("title")
            title.text = titles[key]
            element.insert(0, title)
            element.set("class", "mark")
        if element.tag == "style":  # it would be the whole page's
            element.text = ""
    for attribute in ("width", "height"):  # the page gives it its size
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("class", "chart")
    root.set("aria-labelledby", f"{name}-title")
    root.set("aria-describedby", f"{name}-text")
    for place, (tag, key, said) in enumerate(
        (("title", "title", "Every run against the baseline"), ("desc", "text", description))
    ):
        element = Element(tag, {"id": f"{name}-{key}"})
        element.text = said
        root.insert(place, element)
    return root


def _in_colours_of_the_page(element: Element) -> None:
    reference = element.attrib.pop(_HREF, None)
    if reference is not None:
        element.set("href", reference)
    style = element.get("style")
    if style is None:
        return
    if element.tag == "text":  # sizes stay; the page's own font is drawn
        size = _SIZE.search(style)
        kept = [part for part in style.split(";") if not part.strip().startswith("font")]
        style = "; ".join([*kept, f"font-size: {size.group(1)}px"] if size else kept)
    element.set("style", _COLOUR.sub(_as_variable, style))


def _as_variable(match: re.Match[str]) -> str:
    variable = _COLOURS.get(match.group())
    return match.group() if variable is None else f"var({variable})"
