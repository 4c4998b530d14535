"""What NVML says of the GPUs, as one JSON object on standard output.

Runs as a process of its own (``python -I -S nvml.py FOLDER…``: the folders are those that
modules are imported from), so that a driver that hangs or crashes takes nothing with it.
Imports nothing of patchkit.  A call that a GPU or a driver does not support is a fact that
is absent; it ends nothing.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

# The numbers of nvml.h; some releases of the binding have a tuple for the first one.
_P2P_READ, _P2P_WRITE, _P2P_NVLINK, _P2P_OK = 0, 1, 2, 0
_WAYS = {0: "SAME", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_SWITCH = 2
_MOST_NVLINKS = 36
#: The exit code that says that the binding is not installed.
NO_BINDING = 3


#: (name of a function, its arguments) → its answer, or None.
Ask = Callable[..., Any]


def read(nvml: Any) -> dict[str, Any]:
    """Driver, GPUs and the ways between them, by the binding's module.

    ``error`` says why there is nothing, in NVML's words.
    """
    out: dict[str, Any] = {"driver": None, "driver_cuda": None, "gpus": None, "links": []}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {**out, "error": str(error)}
    ask = _asker(nvml)
    out["driver"] = _text(ask("nvmlSystemGetDriverVersion"))
    cuda = ask("nvmlSystemGetCudaDriverVersion_v2")
    if cuda:
        out["driver_cuda"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    count = ask("nvmlDeviceGetCount")
    if count is None:
        return {**out, "error": "it does not say how many GPUs there are"}
    handles = [ask("nvmlDeviceGetHandleByIndex", number) for number in range(count)]
    out["gpus"] = [_gpu(ask, handle) for handle in handles]
    ends: dict[int, list[tuple[Any, str | None]]] = {}
    out["links"] = [
        _link(ask, a, b, handles, ends)
        for b in range(count)
        for a in range(b)
        if handles[a] is not None and handles[b] is not None
    ]
    ask("nvmlShutdown")
    return out


def _asker(nvml: Any) -> Ask:
    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, name)(*arguments)
        # What an older binding lacks, or passes on wrongly, is absent too.
        except (nvml.NVMLError, AttributeError, TypeError, ValueError, OSError):
            return None

    return ask


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _gpu(ask: Ask, handle: Any) -> dict[str, Any]:
    gpu: dict[str, Any] = {"name": "", "sm": None, "memory": None}
    if handle is None:  # fallen off the bus, or not permitted
        return gpu
    gpu["name"] = _text(ask("nvmlDeviceGetName", handle)) or ""
    capability = ask("nvmlDeviceGetCudaComputeCapability", handle)
    if capability is not None:
        gpu["sm"] = f"{capability[0]}.{capability[1]}"
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    gpu["memory"] = None if memory is None else int(memory.total)
    for key, name in (
        ("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration"),
        ("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
        ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
        ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    ):
        gpu[key] = ask(name, handle) or None  # 0: a virtual machine hides the link
    return gpu


def _link(
    ask: Ask,
    a: int,
    b: int,
    handles: list[Any],
    ends: dict[int, list[tuple[Any, str | None]]],
) -> dict[str, Any]:
    def reaches(one: Any, other: Any, what: int) -> bool | None:
        status = ask("nvmlDeviceGetP2PStatus", one, other, what)
        return None if status is None else status == _P2P_OK

    one, other = handles[a], handles[b]
    ancestor = ask("nvmlDeviceGetTopologyCommonAncestor", one, other)
    link: dict[str, Any] = {"a": a, "b": b, "way": _WAYS.get(ancestor), "nvlinks": None}
    joined = reaches(one, other, _P2P_NVLINK)
    if joined:
        link["way"] = "NVLINK"
        if a not in ends:  # once a GPU: its links are many, and each question takes its time
            ends[a] = list(_ends(ask, one))
        there = _bus(ask("nvmlDeviceGetPciInfo", other))
        count = sum(
            kind == _SWITCH or (there is not None and far == there) for kind, far in ends[a]
        )
        link["nvlinks"] = count or None
    elif joined is False and link["way"] is None:
        link["way"] = "PCIE"
    answers = [
        reaches(*pair, what)
        for pair in ((one, other), (other, one))
        for what in (_P2P_READ, _P2P_WRITE)
    ]
    link["p2p"] = False if False in answers else None if None in answers else True
    return link


def _ends(ask: Ask, one: Any) -> Iterator[tuple[Any, str | None]]:
    """(kind, bus) of what is at the far end of each NVLink of a GPU that is up.

    A link to a switch leads to every GPU on it.
    """
    for number in range(_MOST_NVLINKS):
        state = ask("nvmlDeviceGetNvLinkState", one, number)
        if state is None:  # beyond the last one
            return
        if state:
            far = _bus(ask("nvmlDeviceGetNvLinkRemotePciInfo", one, number))
            yield ask("nvmlDeviceGetNvLinkRemoteDeviceType", one, number), far


def _bus(info: Any) -> str | None:
    return _text(getattr(info, "busId", None))


def main(folders: list[str]) -> int:
    """Print what was read; the exit code is :data:`NO_BINDING` where the binding is missing."""
    sys.path[:0] = folders
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        return NO_BINDING
    sys.stdout.write(json.dumps(read(pynvml)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
