"""How far ``port`` carries the shipped bundles, against the variants that were made by hand.

``python -m benchmarks.porting.shipped`` ports each variant to the next release and compares every
byte with what the bundle makes of that release itself.  A line for each step: "same", "other"
(carried, and the variant has other bytes), or why it conflicts.
"""

from __future__ import annotations

import sys
from collections import Counter

from patchkit.manifest import select_variant
from patchkit.model import Target
from patchkit.porting.edits import edit
from patchkit.porting.engine import port
from patchkit.porting.model import PatchEdit, Ported
from patchkit.stack import Stack
from patchkit.writing.bundle import load

from .real import Files
from .trees import ROOT, ArchiveTree, tree

BUNDLES = ("sm120-fusion", "pcie-custom-allreduce", "symm-mem-sm120")
RELEASES = {
    "sglang": [f"0.5.{number}" for number in range(1, 24)],
    "flashinfer-python": [
        *("0.5.0", "0.5.2", "0.5.3", "0.6.0", "0.6.1", "0.6.2", "0.6.3", "0.6.4", "0.6.6", "0.6.8"),
    ],
}


def made(target: Target, release: ArchiveTree, version: str) -> tuple[PatchEdit, ...] | None:
    """What the bundle's own variant makes of a release; None where it patches nothing."""
    variant = select_variant(target, version)
    if variant is None or not variant.patches:
        return None
    stack, series = Stack(Files(release)), []
    for path in variant.patches:
        put = stack.apply(path, (ROOT / "patches" / path).read_bytes(), variant.strip)
        series.append(edit(path, put.mapping.files, put.before, put.after))
    return tuple(series)


def contents(series: tuple[PatchEdit, ...]) -> dict[str, bytes | None]:
    """The files that a series leaves."""
    return {file.new or file.old or "": file.data for one in series for file in one.files}


def why(ported: Ported) -> str:
    """The reasons of all conflicts."""
    files = [file for patch in ported.patches for file in patch.files]
    reasons = [h.reason for file in files for h in file.hunks if h.outcome == "conflict"]
    reasons += [problem.message for file in files for problem in file.problems]
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def main() -> int:
    """Carry every variant on, and count."""
    counts: Counter[str] = Counter()
    for name in BUNDLES:
        bundle, _ = load(str(ROOT), name)
        for target in bundle.targets:
            before: tuple[str, ArchiveTree, tuple[PatchEdit, ...]] | None = None
            for version in RELEASES[target.distribution]:
                release = tree(target.distribution, version)
                own = made(target, release, version)
                if own is not None and before is not None:
                    ported = port(before[1], release, before[2])
                    wanted = {
                        path: data
                        for path, data in contents(own).items()
                        if data != release.read(path)
                    }
                    word: str = ported.outcome
                    if word != "conflict":
                        word = "same" if dict(ported.contents) == wanted else "other"
                    counts[word] += 1
                    said = why(ported) if word == "conflict" else ported.outcome
                    print(f"{name} {target.distribution} {before[0]} → {version}: {word} ({said})")
                before = None if own is None else (version, release, own)
    print(", ".join(f"{number} {word}" for word, number in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
