"""What facts mean together: pure rules, one function each.

A rule returns its findings, and none where a fact that it needs is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from .model import LINKS, Facts, lowest, numbers

Level = Literal["problem", "note"]


class Finding(NamedTuple):
    """``code`` is a word for scripts; a problem is likely to end in an error or in a figure
    that means something else than it seems to."""

    level: Level
    code: str
    message: str


#: Compute capability → the first toolkit that compiles for it (CUDA's release notes).
_FIRST_TOOLKIT = {
    "7.0": "9.0",
    "7.5": "10.0",
    "8.0": "11.0",
    "8.6": "11.1",
    "8.9": "11.8",
    "9.0": "11.8",
    "10.0": "12.8",
    "12.0": "12.8",
    "10.3": "12.9",
    "12.1": "12.9",
    "11.0": "13.0",
}
#: Blackwell came to the compilers in two steps: 12.9 brought the targets of a family (sm_120f).
_FAMILY_TARGETS = "12.9"
#: FlashInfer's JIT lists major 12 for its all-reduce from this release on.
_FLASHINFER_LISTS_12 = (0, 6, 17)
_FLASHINFER = ("flashinfer-cubin", "flashinfer-jit-cache")


def findings(facts: Facts) -> list[Finding]:
    """All that the rules find, problems first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: finding.level != "problem")


def toolkit_and_gpus(facts: Facts) -> Iterator[Finding]:
    """Whether the toolkit compiles for the GPUs that are here."""
    toolkit, sm = facts.toolkit, _sm(facts)
    first = _FIRST_TOOLKIT.get(sm or "")
    if toolkit is None or sm is None or first is None:
        return
    name = f"SM{sm.replace('.', '')}"
    more = ""
    if facts.driver_cuda is not None and _less(toolkit.version, facts.driver_cuda):
        more = f"; the driver can run CUDA {facts.driver_cuda}"
    if _less(toolkit.version, first):
        yield Finding(
            "problem",
            "toolkit-too-old",
            f"toolkit {toolkit.version} does not know {name}, which takes {first}{more}",
        )
    elif numbers(sm)[0] in (10, 12) and _less(toolkit.version, _FAMILY_TARGETS):
        yield Finding(
            "problem",
            "toolkit-partial",
            f"toolkit {toolkit.version} knows {name} only in part"
            f" (the targets of its family come with {_FAMILY_TARGETS}){more}",
        )


def toolkit_and_driver(facts: Facts) -> Iterator[Finding]:
    """Whether the driver runs what the toolkit makes."""
    toolkit, driver = facts.toolkit, facts.driver_cuda
    if toolkit is not None and driver is not None and _less(driver, toolkit.version):
        yield Finding(
            "problem",
            "toolkit-newer-than-driver",
            f"toolkit {toolkit.version} is newer than CUDA {driver}, the newest that driver"
            f" {facts.driver} runs: kernels that a JIT compiles may not load",
        )


def packages_and_driver(facts: Facts) -> Iterator[Finding]:
    """Whether the driver runs what the wheels were built with.

    Within one major a newer build runs on an older driver (minor version compatibility).
    """
    driver = facts.driver_cuda
    for name, package in facts.packages.items():
        if package.cuda is None or driver is None:
            continue
        if numbers(driver)[0] < numbers(package.cuda)[0]:
            yield Finding(
                "problem",
                "package-newer-than-driver",
                f"{name} is built for {_label(package.cuda)}, and driver {facts.driver} runs"
                f" CUDA {driver} at most",
            )


def one_cuda(facts: Facts) -> Iterator[Finding]:
    """Whether the wheels were built for one and the same CUDA, as far as each says."""
    built = [(name, p.cuda) for name, p in facts.packages.items() if p.cuda is not None]
    kinds: list[str] = []
    for _, cuda in built:
        if not any(_same(cuda, kind) for kind in kinds):
            kinds.append(cuda)
    if len(kinds) > 1:
        yield Finding(
            "problem",
            "mixed-cuda",
            ", ".join(
                f"{name} is built for {_label(cuda)}"
                if place == 0
                else f"{name} for {_label(cuda)}"
                for place, (name, cuda) in enumerate(built)
            ),
        )


def torch_and_toolkit(facts: Facts) -> Iterator[Finding]:
    """``torch.utils.cpp_extension`` refuses a toolkit of another major than its own."""
    torch, toolkit = facts.packages.get("torch"), facts.toolkit
    if torch is None or torch.cuda is None or toolkit is None:
        return
    if numbers(torch.cuda)[0] != numbers(toolkit.version)[0]:
        yield Finding(
            "problem",
            "torch-other-major",
            f"torch is built for {_label(torch.cuda)}, and the toolkit is {toolkit.version}:"
            " torch refuses to compile extensions with another major",
        )


def no_toolkit(facts: Facts) -> Iterator[Finding]:
    """FlashInfer compiles at first use, unless a prebuilt cache has it all."""
    packages = facts.packages
    if facts.toolkit is None and "flashinfer-python" in packages and facts.gpus:
        prebuilt = "flashinfer-jit-cache" in packages
        yield Finding(
            "note" if prebuilt else "problem",
            "no-toolkit",
            "no CUDA toolkit was found: FlashInfer can compile nothing"
            + (", and has its prebuilt cache alone" if prebuilt else ""),
        )


def prebuilt_cache(facts: Facts) -> Iterator[Finding]:
    """A prebuilt module wins over the sources that a patch changes."""
    if "flashinfer-jit-cache" in facts.packages:
        yield Finding(
            "problem",
            "prebuilt-cache",
            "flashinfer's prebuilt cache package is installed (flashinfer-jit-cache): patches to"
            " the sources of what it holds will not be compiled",
        )


def flashinfer_releases(facts: Facts) -> Iterator[Finding]:
    """FlashInfer checks at import that its parts are of one release."""
    main = facts.packages.get("flashinfer-python")
    for name in _FLASHINFER:
        part = facts.packages.get(name)
        if main is None or part is None:
            continue
        if part.version.partition("+")[0] != main.version.partition("+")[0]:
            yield Finding(
                "problem",
                "flashinfer-releases",
                f"{name} {part.version} is of another release than flashinfer-python"
                f" {main.version}",
            )


def flashinfer_and_gpus(facts: Facts) -> Iterator[Finding]:
    """The list of majors that FlashInfer's JIT builds its fused all-reduce for."""
    main, sm = facts.packages.get("flashinfer-python"), _sm(facts)
    if main is None or sm is None or numbers(sm)[0] != 12:
        return
    if numbers(main.version)[:3] < _FLASHINFER_LISTS_12:
        yield Finding(
            "note",
            "flashinfer-majors",
            f"flashinfer-python {main.version} builds its fused all-reduce for majors 9 and 10"
            f" only; from 0.6.17 on it lists 12",
        )


def two_kernels(facts: Facts) -> Iterator[Finding]:
    """``sgl-kernel`` and ``sglang-kernel`` install the same files."""
    if {"sgl-kernel", "sglang-kernel"} <= facts.packages.keys():
        yield Finding(
            "problem",
            "two-kernels",
            "sgl-kernel and sglang-kernel are both installed, and write the same files: the last"
            " one installed is there",
        )


def links(facts: Facts) -> Iterator[Finding]:
    """What the way between the GPUs leaves possible."""
    flat = facts.flat()
    if flat.get("p2p") == "false":
        yield Finding(
            "problem",
            "no-p2p",
            "not every two GPUs reach each other's memory: NCCL goes through the host, and a"
            " custom all-reduce cannot run",
        )
    way = flat.get("gpu-link")
    if way is not None and flat.get("nvlink") == "false":
        many = len(facts.gpus or ()) > 2
        yield Finding(
            "note",
            "no-nvlink",
            f"not all GPUs are joined by NVLink; the farthest two by {LINKS[way]} ({way})"
            + (": SGLang's custom all-reduce leaves more than two such GPUs out" if many else ""),
        )


def lanes(facts: Facts) -> Iterator[Finding]:
    """Whether a GPU runs on fewer lanes than it has; a card not seated, a shared slot."""
    for number, gpu in enumerate(facts.gpus or ()):
        now, most = gpu.pcie_width, gpu.pcie_width_max
        if now is not None and most is not None and now < most:
            yield Finding(
                "problem", "few-lanes", f"GPU {number} runs on {now} of its {most} PCIe lanes"
            )


def mixed_gpus(facts: Facts) -> Iterator[Finding]:
    """Whether the GPUs are of one kind."""
    kinds = sorted({gpu.name for gpu in facts.gpus or () if gpu.name})
    if len(kinds) > 1:
        yield Finding("note", "mixed-gpus", f"the GPUs are of different kinds: {', '.join(kinds)}")


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    toolkit_and_gpus,
    toolkit_and_driver,
    packages_and_driver,
    torch_and_toolkit,
    one_cuda,
    no_toolkit,
    prebuilt_cache,
    flashinfer_releases,
    flashinfer_and_gpus,
    two_kernels,
    links,
    lanes,
    mixed_gpus,
)


def _sm(facts: Facts) -> str | None:
    return lowest([gpu.sm for gpu in facts.gpus or ()])


def _less(one: str, other: str) -> bool:
    return numbers(one) < numbers(other)


def _same(one: str, other: str) -> bool:
    """Of two releases, as far as both say: ``13`` and ``13.0`` are."""
    a, b = numbers(one), numbers(other)
    shared = min(len(a), len(b))
    return a[:shared] == b[:shared]


def _label(cuda: str) -> str:
    """``12.8`` as wheels write it: ``cu128``."""
    return f"cu{cuda.replace('.', '')}"
