"""A ledger of ten thousand trials: what list, revisit and report cost on it.

Whole processes, in turn, several rounds; medians count.  The exit code is 1 where a limit is
missed: two seconds of CPU (of wall time on a machine that does nothing else) and 200 MiB.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "eagle-fast-verify"
SECONDS, MIB = 2.0, 200
COMMANDS = {
    "list": ("list",),
    "revisit": ("revisit", "--facts", str(EXAMPLE / "facts-cuda-13.json")),
    "report md": ("report", "--facts", str(EXAMPLE / "facts.json")),
    "report html": ("report", "--facts", str(EXAMPLE / "facts.json"), "--format", "html"),
    "report json": ("report", "--facts", str(EXAMPLE / "facts.json"), "--format", "json"),
}


def make(folder: Path, count: int) -> None:
    """Records like the example's, three runs a side, with the ends of their logs."""
    chance = random.Random(1)
    models = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((EXAMPLE / "trials").glob("*.json"))
    ]
    tail = [
        f"line {number} of a log, of about the length that such lines have" for number in range(20)
    ]
    for number in range(count):
        model: dict[str, Any] = models[number % len(models)]
        one = {**model, "name": f"{model['name']}-{number}"}
        one["id"] = f"20260301-{number:06d}-{one['name']}-{number:06x}"
        one["runs"] = [
            {
                **run,
                "values": {k: v * chance.uniform(0.97, 1.03) for k, v in run["values"].items()},
                "tail": tail,
            }
            for run in model["runs"]
            for _ in range(3)
        ]
        (folder / f"{one['id']}.json").write_text(json.dumps(one, indent=2), encoding="utf-8")


def measure(*arguments: str) -> dict[str, float]:
    """Wall and CPU in seconds, peak memory in bytes, of one ``patchkit trial``."""
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-S", str(ROOT / "benchmarks" / "measure.py")),
            *(sys.executable, "-m", "patchkit", "trial", *arguments),
        ],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    if found["exit_code"]:
        raise SystemExit(f"patchkit trial {' '.join(arguments)} ended with {found['exit_code']}")
    return found


def main() -> int:
    """Make the ledger, measure, print a table."""
    parser = argparse.ArgumentParser(prog="dev.py ledger-bench", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="trials in the ledger")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory(prefix="patchkit-ledger-") as folder:
        make(Path(folder), arguments.count)
        measure("list", "--trials", folder)  # byte-code and the page cache are there then
        for _ in range(arguments.rounds):
            for name, command in COMMANDS.items():
                runs[name].append(measure(*command, "--trials", folder))
    print(f"{arguments.count} trials, medians of {arguments.rounds} rounds\n")
    print("| command | wall, s | CPU, s | memory, MiB |")
    print("| --- | ---: | ---: | ---: |")
    missed = False
    for name, found in runs.items():
        wall, cpu, peak = (
            statistics.median(run[key] for run in found) for key in ("wall", "cpu", "peak")
        )
        missed = missed or cpu > SECONDS or peak > MIB * 2**20
        print(f"| `trial {name}` | {wall:.2f} | {cpu:.2f} | {peak / 2**20:.0f} |")
    print(f"\nlimits: {SECONDS:g} s of CPU, {MIB} MiB: {'missed' if missed else 'met'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
