"""Measures how many patches each tool carries to a later release, and into the right place.

``python -m benchmarks.porting.run`` runs all; ``--sample`` the part that the tests run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence

from .pairs import Pair, pairs
from .tools import TOOLS, Answer
from .traps import traps
from .trees import ROOT

SEED = 20
HISTORIES: dict[str, Sequence[str]] = {
    "sglang": (
        *("0.5.1", "0.5.2", "0.5.3", "0.5.4", "0.5.5", "0.5.6", "0.5.7", "0.5.8", "0.5.9"),
        *("0.5.10", "0.5.12", "0.5.14", "0.5.16", "0.5.19", "0.5.23"),
    ),
    "flashinfer-python": (
        *("0.5.0", "0.5.2", "0.5.3", "0.6.0", "0.6.1", "0.6.2", "0.6.3", "0.6.4", "0.6.6"),
        *("0.6.8", "0.6.17"),
    ),
    "vllm": (
        *("0.9.2", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "0.12.0", "0.13.0", "0.14.0"),
        *("0.17.0", "0.20.0"),
    ),
}
#: What the tests download anyway.
SAMPLE: dict[str, Sequence[str]] = {
    "sglang": ("0.5.6", "0.5.7", "0.5.8", "0.5.9"),
    "flashinfer-python": ("0.6.1", "0.6.2", "0.6.3", "0.6.4", "0.6.17"),
}
STEPS = (2, 3, 4, 6)


def verdict(pair: Pair, found: Answer) -> str:
    """right, wrong or refused; of an upstream pair also the outcome must say so, and where
    the def is gone a refusal is right."""
    outcome, data = found
    if data is None:
        return "right" if pair.kind == "gone" else "refused"
    if data != pair.truth:
        return "wrong"
    if pair.kind == "upstream" and outcome in ("gone", "unchanged", "offset"):
        return "wrong"
    return "right"


def main() -> int:
    """Build the pairs, run every tool, print the tables; 1 where patchkit was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--files", type=int, default=6, help="files of each jump")
    parser.add_argument("--tool", action="append", choices=[*TOOLS])
    parser.add_argument("--project", action="append", choices=[*HISTORIES])
    arguments = parser.parse_args()
    histories = SAMPLE if arguments.sample else HISTORIES
    if arguments.project:
        histories = {name: histories[name] for name in arguments.project}
    begin = time.monotonic()
    made = pairs(histories, STEPS, arguments.files, arguments.seed)
    made += list(traps(made))
    print(f"{len(made)} pairs in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    rows = []
    counts: dict[tuple[str, str], Counter[str]] = {}
    for tool in arguments.tool or TOOLS:
        begin = time.monotonic()
        for pair in made:
            found = TOOLS[tool](pair)
            told = verdict(pair, found)
            groups = [pair.kind]
            if pair.kind in ("upstream", "carried"):
                groups += ["all", pair.project, f"{pair.steps} steps", *pair.traits]
            for group in groups:
                counts.setdefault((group, tool), Counter())[told] += 1
            rows.append({"tool": tool, "pair": pair.key, "verdict": told, "outcome": found[0],
                         "traits": pair.traits})  # fmt: skip
        print(f"{tool}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    print("| pairs | tool | right | wrong | refused |\n| --- | --- | --- | --- | --- |")
    for (group, tool), count in sorted(counts.items(), key=lambda item: item[0][0] != "all"):
        print(f"| {group} | {tool} | {count['right']} | {count['wrong']} | {count['refused']} |")
    (ROOT / "build" / "port-bench.json").write_text(json.dumps(rows, indent=1))
    wrong = [r for r in rows if r["tool"] == "patchkit port" and r["verdict"] == "wrong"]
    for row in wrong:
        print(f"wrong: {row['pair']} ({row['outcome']})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
