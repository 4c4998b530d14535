"""Tables as a picture: releases along the bottom, bundles up the side.

Owns the drawing, by matplotlib (the extra ``plot``).
"""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.errors import Refused
from patchkit.manifest import release_order

from .table import Table
from .text import WORDS

#: Colours that stay apart for colour-blind readers (Okabe and Ito, 2008).
_COLOURS = {
    "applies": "#009E73",
    "upstream": "#56B4E9",
    "unneeded": "#BBBBBB",
    "ports": "#F0E442",
    "conflict": "#D55E00",
    "unmet": "#CC79A7",
    "unsupported": "#E69F00",
    "unavailable": "#000000",
}


def plot(tables: Sequence[Table], path: str) -> None:
    """Write the picture; the form is that of the ending (svg, png, pdf).

    Raises :class:`Refused` where matplotlib is not installed, or does not know the ending.
    """
    try:
        import matplotlib
    except ImportError:
        raise Refused(
            "matplotlib is not installed",
            code="plot-missing",
            hint="pip install 'patchkit-sets[plot]'",
        ) from None
    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    lanes = [
        (table, name)
        for table in tables
        for name in dict.fromkeys(row.cell.distribution for row in table.rows)
    ]
    widest = max((len(table.rows) for table in tables), default=1)
    figure = Figure(figsize=(max(6.0, 0.28 * widest + 3), 1.2 + 1.1 * len(lanes)))
    axes = figure.subplots(len(lanes) or 1, 1, squeeze=False)[:, 0]
    used: set[str] = set()
    for axis, (table, name) in zip(axes, lanes, strict=False):
        rows = sorted(
            (row for row in table.rows if row.cell.distribution == name),
            key=lambda row: release_order(row.cell.version),
        )
        for place, row in enumerate(rows):
            used.add(row.state)
            axis.bar(place, 1, width=0.92, color=_COLOURS.get(row.state, "#D55E00"))
        axis.set_xticks(range(len(rows)), [row.cell.version for row in rows])
        axis.tick_params(axis="x", labelrotation=90, labelsize=7)
        axis.set_yticks([])
        axis.set_title(f"{table.bundle} on {name}", loc="left", fontsize=9)
        for side in axis.spines.values():
            side.set_visible(False)
    handles = [Patch(color=_COLOURS[s], label=f"{s}: {WORDS[s]}") for s in WORDS if s in used]
    figure.legend(handles=handles, loc="lower left", fontsize=7, frameon=False, ncols=1)
    figure.tight_layout(rect=(0, 0.05 * len(handles), 1, 1))
    try:
        figure.savefig(path)
    except ValueError as error:
        raise Refused(str(error), code="plot-format", hint="end the name in .svg or .png") from None
