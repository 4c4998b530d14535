"""Tables as text for a terminal and as Markdown.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .table import GOOD, Cell, Row, Table

_COLOUR = {
    "applies": "green",
    "upstream": "cyan",
    "unneeded": "cyan",
    "ports": "yellow",
}
#: What the states say, for the legend.
WORDS = {
    "applies": "a variant applies, and every assertion holds",
    "upstream": "the release does it by itself",
    "unneeded": "what it would change is not there",
    "ports": "no variant; patchkit port carries one over without a conflict",
    "conflict": "the patches do not go on",
    "unmet": "an assertion fails",
    "unsupported": "no variant is for it",
    "unavailable": "the release cannot be had",
}
_HOW = {"bytes": "by its files", "unproven": "by its version alone", "proven": "proven"}


def lines(tables: Iterable[Table], style: Callable[[str, str], str], *, verbose: bool) -> list[str]:
    """One line a release; the reasons of what does not hold, and with ``verbose`` of all."""
    out: list[str] = []
    states: set[str] = set()
    for table in tables:
        out += [""] if out else []
        out.append(f"{table.bundle} {table.version}")
        for row in table.rows:
            words = []
            for cell in row.cells:
                states.add(cell.state)
                mark = style(cell.state, _COLOUR.get(cell.state, "red"))
                words.append(f"{cell.distribution} {cell.version} {mark}{_variant(cell)}")
            out.append("  " + ", ".join(words))
            for cell in row.cells:
                if cell.reason and (verbose or cell.state not in GOOD):
                    out.append(f"    {cell.distribution}: {cell.reason}")
                if cell.is_false_claim:
                    out.append(style("    the manifest claims this release", "red"))
    if out:
        out += ["", *(f"{state}: {text}" for state, text in WORDS.items() if state in states)]
    return out


def _variant(cell: Cell) -> str:
    words = [cell.variant] if cell.variant else []
    if cell.how in _HOW:
        words.append(_HOW[cell.how])
    return f" ({', '.join(words)})" if words else ""


def markdown(tables: Iterable[Table]) -> str:
    """A table a bundle; consecutive releases with the same outcome share a row."""
    out: list[str] = []
    for table in tables:
        names = list(dict.fromkeys(c.distribution for row in table.rows for c in row.cells))
        out += [f"### {table.bundle} {table.version}", ""]
        out.append("| " + " | ".join([*names, "outcome", "variant or reason"]) + " |")
        out.append("| " + " | ".join(["---"] * (len(names) + 2)) + " |")
        for group in _groups(table):
            cells = {cell.distribution: cell for cell in group[0].cells}
            ranges = []
            for name in names:
                versions = [c.version for row in group for c in row.cells if c.distribution == name]
                ranges.append(_span(list(dict.fromkeys(versions))))
            states = dict.fromkeys(cell.state for cell in cells.values())
            several = len(cells) > 1
            texts = [
                (f"{name}: " if several else "") + _cell_text(cell) for name, cell in cells.items()
            ]
            out.append("| " + " | ".join([*ranges, ", ".join(states), "; ".join(texts)]) + " |")
        out.append("")
    return "\n".join(out)


def _groups(table: Table) -> list[list[Row]]:
    groups: list[list[Row]] = []
    for row in table.rows:
        if groups and _outcome(row) == _outcome(groups[-1][0]):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _outcome(row: Row) -> list[tuple[object, ...]]:
    """What two rows have in common that are written as one."""
    return [(c.distribution, c.state, c.variant, c.reason, c.is_false_claim) for c in row.cells]


def _span(versions: list[str]) -> str:
    if not versions:
        return ""
    return versions[0] if len(versions) == 1 else f"{versions[0]} … {versions[-1]}"


def _cell_text(cell: Cell) -> str:
    if cell.state == "applies":
        return f"`{cell.variant}`"
    text = cell.reason.replace("|", "\\|").replace("\n", " ")
    return f"**the manifest claims this release**: {text}" if cell.is_false_claim else text
