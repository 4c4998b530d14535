"""Facts and findings as lines for a person.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .findings import Finding
from .model import LINKS, Facts, Gpu

_GIB = 1024**3
_ABSENT = "none found"


def lines(
    facts: Facts, found: Sequence[Finding], style: Callable[[str, str], str], *, verbose: bool
) -> list[str]:
    """All of a report: facts, packages, the ways between GPUs, and what they mean."""
    out = [f"{name:10} {value}" for name, value in _machine(facts)]
    out += ["", "packages"]
    width = max((len(name) for name in facts.packages), default=0)
    for name, package in facts.packages.items():
        built = f"  built for CUDA {package.cuda}" if package.cuda else ""
        out.append(f"  {name:{width}}  {package.version}{built}")
    if not facts.packages:
        out.append(f"  {_ABSENT}")
    if len(facts.gpus or ()) > 1:
        out += ["", *_matrix(facts)]
    if found:
        out.append("")
    for finding in found:
        colour = "red" if finding.level == "problem" else "yellow"
        out.append(f"{style(finding.level, colour)}: {finding.message}")
    if verbose:
        out += ["", "as conditions name them"]
        out += [f'  {name} == "{value}"' for name, value in facts.flat().items()]
    return out


def _machine(facts: Facts) -> Iterator[tuple[str, str]]:
    parts = (facts.distro or facts.os, facts.kernel and f"kernel {facts.kernel}", facts.machine)
    yield "system", ", ".join(part for part in parts if part) or "unknown"
    yield "python", facts.python or "unknown"
    driver = facts.driver or _ABSENT
    yield "driver", driver + (f", runs CUDA {facts.driver_cuda}" if facts.driver_cuda else "")
    toolkit = facts.toolkit
    if toolkit is None:
        yield "toolkit", _ABSENT
    else:
        where = f": {toolkit.nvcc}" if toolkit.nvcc else ""
        yield "toolkit", f"CUDA {toolkit.version} ({toolkit.source}{where})"
    if facts.gpus is None:
        yield "gpus", "unknown"
    elif not facts.gpus:
        yield "gpus", _ABSENT
    for place, (gpu, numbers) in enumerate(_kinds(facts.gpus or ())):
        count = f"{len(numbers)} × " if len(numbers) > 1 else ""
        yield "gpus" if place == 0 else "", f"{count}{_gpu(gpu)}"


def _kinds(gpus: tuple[Gpu, ...]) -> list[tuple[Gpu, list[int]]]:
    kinds: dict[Gpu, list[int]] = {}
    for number, gpu in enumerate(gpus):
        kinds.setdefault(gpu, []).append(number)
    return list(kinds.items())


def _gpu(gpu: Gpu) -> str:
    parts = [gpu.name or "a GPU that does not say what it is"]
    if gpu.sm:
        parts.append(f"SM{gpu.sm.replace('.', '')}")
    if gpu.memory:
        parts.append(f"{gpu.memory / _GIB:.1f} GiB")
    generation = _of(gpu.pcie_gen, gpu.pcie_gen_max)
    if generation:
        width = _of(gpu.pcie_width, gpu.pcie_width_max)
        parts.append(f"PCIe Gen{generation}" + (f" x{width}" if width else ""))
    return ", ".join(parts)


def _of(now: int | None, most: int | None) -> str:
    """``5``, or ``1 of 5`` where there could be more."""
    if now is None or most is None or now == most:
        return str(now or most or "")
    return f"{now} of {most}"


def _matrix(facts: Facts) -> Iterator[str]:
    """The ways between GPUs as a square, and what its words mean."""
    count = len(facts.gpus or ())
    cells = {(link.a, link.b): link for link in facts.links}
    used: list[str] = []
    kinds = {(link.way, link.nvlinks) for link in facts.links}
    if len(facts.links) == count * (count - 1) // 2 and len(kinds) == 1 and count > 2:
        way = facts.links[0].way
        yield f"links      every two GPUs: {LINKS.get(way or '', 'unknown')}"
        yield from _reach(facts)
        return
    yield "links    " + " ".join(f"{f'GPU{n}':>6}" for n in range(count))
    for row in range(count):
        shown = []
        for column in range(count):
            link = cells.get((min(row, column), max(row, column)))
            if row == column:
                shown.append("·")
            elif link is None or link.way is None:
                shown.append("?")
            else:
                used.append(link.way)
                shown.append(f"NV{link.nvlinks or ''}" if link.way == "NVLINK" else link.way)
        yield f"  GPU{row:<4}" + " ".join(f"{cell:>6}" for cell in shown)
    for way in LINKS:
        if way in used:
            yield f"  {'NV' if way == 'NVLINK' else way}: {LINKS[way]}"
    yield from _reach(facts)


def _reach(facts: Facts) -> Iterator[str]:
    reach = [link.p2p for link in facts.links]
    if reach and None not in reach:
        yield f"  peer to peer: {'every pair' if all(reach) else _pairs(facts)}"


def _pairs(facts: Facts) -> str:
    can = sum(1 for link in facts.links if link.p2p)
    return f"{can} of {len(facts.links)} pairs"
