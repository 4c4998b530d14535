"""The page for people: a matrix of node × distribution.  Pure.

One file that needs nothing else, light or dark as the reader has it.  What differs is marked by
a sign too, not by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .compare import FINDINGS, Fleet, Key, Node

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #1b1b1b; --line: #d0d0d0;
  --head: #f2f2f2; --odd: #fde3d9; --mark: #a12a00; }
@media (prefers-color-scheme: dark) { :root { --ground: #17191c; --text: #e6e6e6; --line: #3c4046;
  --head: #23262b; --odd: #4a2517; --mark: #ffb59a; } }
body { background: var(--ground); color: var(--text); font: 15px/1.45 system-ui, sans-serif;
  margin: 2rem; }
table { border-collapse: collapse; }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: left;
  vertical-align: top; }
thead th { background: var(--head); position: sticky; top: 0; }
td.odd { background: var(--odd); color: var(--mark); }
td.odd::before { content: "≠ "; }
.wide { overflow-x: auto; }
"""


def page(fleet: Fleet, summary: str) -> str:
    """The whole document."""
    columns = list(fleet.common)
    head = "".join(f'<th scope="col">{escape(_title(key))}</th>' for key in columns)
    common = "".join(f"<td>{escape(_short(key, fleet.common[key]))}</td>" for key in columns)
    rows = "\n".join(_rows(fleet, columns))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>patchkit: {len(fleet.nodes)} nodes</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(summary)}</h1>
<p>Nodes that differ from what most have come first; ≠ marks in what.</p>
<div class="wide">
<table>
<thead>
<tr><th scope="col">node</th>{head}<th scope="col">findings</th></tr>
<tr><th scope="row">most have</th>{common}<td></td></tr>
</thead>
<tbody>
{rows}
</tbody>
</table>
</div>
</body>
</html>
"""


def _rows(fleet: Fleet, columns: list[Key]) -> Iterator[str]:
    for node in sorted(fleet.nodes, key=lambda node: node.name not in fleet.differences):
        found = fleet.differences.get(node.name, [])
        odd = {(one.aspect, one.name) for one in found}
        cells = "".join(_cell(node, key, odd) for key in columns)
        findings = "; ".join(str(one.value) for one in found if one.aspect in FINDINGS)
        mark = ' class="odd"' if findings else ""
        yield (
            f'<tr><th scope="row">{escape(node.name)}</th>{cells}'
            f"<td{mark}>{escape(findings)}</td></tr>"
        )


def _cell(node: Node, key: Key, odd: set[Key]) -> str:
    mark = ' class="odd"' if key in odd else ""
    return f"<td{mark}>{escape(_short(key, node.values.get(key)))}</td>"


def _title(key: Key) -> str:
    aspect, name = key
    return name if aspect == "release" else f"{aspect} {name}".strip()


def _short(key: Key, value: str | None) -> str:
    if value is None:
        return "–"
    return value[:16] if key[0] == "fingerprint" else value
