"""The facts as values, as JSON, and as the names that conditions use.

Pure: says nothing of where they come from.  What is absent, or could not be read, is None
or empty; it is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from patchkit.errors import Refused

#: The ways between two GPUs, the nearest first, as ``nvidia-smi topo -m`` names them.
LINKS = {
    "NVLINK": "NVLink",
    "SAME": "one board",
    "PCIE": "PCIe, by a way that is not known",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "a PCIe host bridge (the processor)",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes",
}
_MIB = 1024 * 1024


class Gpu(NamedTuple):
    """One GPU.  ``memory`` in bytes; ``sm`` is its compute capability (``12.0``);
    generation and lanes of PCIe as they are now and at most: an idle GPU lowers its
    generation, and never its lanes."""

    name: str
    sm: str | None = None
    memory: int | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None


class Link(NamedTuple):
    """The way between GPU ``a`` and GPU ``b``, by their numbers, ``a < b``.

    ``way`` is a key of :data:`LINKS`; ``nvlinks`` how many NVLinks are up where it is
    NVLINK and that is known; ``p2p`` whether each reads and writes the other's memory.
    """

    a: int
    b: int
    way: str | None = None
    nvlinks: int | None = None
    p2p: bool | None = None


class Toolkit(NamedTuple):
    """The CUDA toolkit that a JIT would compile with; ``nvcc`` is the path."""

    version: str
    source: str
    nvcc: str | None = None


class Package(NamedTuple):
    """An installed distribution; ``cuda`` is what it was built for, where it says so.

    A major alone (``13``) comes from the library that its binary asks for.
    """

    version: str
    cuda: str | None = None


class Facts(NamedTuple):
    """All that was found.  ``gpus`` is None where nobody could say how many there are."""

    os: str | None = None
    distro: str | None = None
    kernel: str | None = None
    machine: str | None = None
    python: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    toolkit: Toolkit | None = None
    gpus: tuple[Gpu, ...] | None = None
    links: tuple[Link, ...] = ()
    packages: Mapping[str, Package] = {}
    remarks: tuple[str, ...] = ()

    def flat(self) -> dict[str, str]:
        """Name → text for each fact that is there: what conditions ask for.

        The names are those of :data:`patchkit.conditions.FACTS` and ``PACKAGES``.
        """
        out: dict[str, str | None] = {
            "os": self.os,
            "distro": self.distro,
            "kernel": self.kernel,
            "machine": self.machine,
            "python": self.python,
            "driver": self.driver,
            "driver-cuda": self.driver_cuda,
        }
        if self.toolkit is not None:
            out |= {"cuda": self.toolkit.version, "cuda-source": self.toolkit.source}
        if self.gpus is not None:
            out["gpus"] = str(len(self.gpus))
        if self.gpus:
            out |= self._of_gpus(self.gpus)
        for name, package in self.packages.items():
            out[name] = package.version
            if package.cuda is not None:
                out[_cuda_name(name)] = package.cuda
        nccl = self._nccl()
        if nccl is not None:
            out["nccl"] = nccl
        return {name: value for name, value in out.items() if value}

    def _of_gpus(self, gpus: tuple[Gpu, ...]) -> dict[str, str | None]:
        memory = _all([gpu.memory for gpu in gpus])
        out = {
            "gpu": ", ".join(dict.fromkeys(gpu.name for gpu in gpus if gpu.name)),
            "sm": lowest([gpu.sm for gpu in gpus]),
            "gpu-memory": f"{min(memory) / _MIB / 1024:.1f}" if memory else None,
            "pcie-gen": _least(gpu.pcie_gen_max or gpu.pcie_gen for gpu in gpus),
            "pcie-width": _least(gpu.pcie_width for gpu in gpus),
        }
        pairs = len(gpus) * (len(gpus) - 1) // 2
        ways = _all([link.way for link in self.links])
        if pairs and len(ways) == pairs:
            out["gpu-link"] = max(ways, key=list(LINKS).index)
            out["nvlink"] = str(all(way == "NVLINK" for way in ways)).lower()
        reach = _all([link.p2p for link in self.links])
        if pairs and len(reach) == pairs:
            out["p2p"] = str(all(reach)).lower()
        return out

    def _nccl(self) -> str | None:
        """The NCCL of the CUDA that torch was built for, else the only one."""
        found = {name: p for name, p in self.packages.items() if name.startswith("nvidia-nccl-cu")}
        torch = self.packages.get("torch")
        if torch is not None and torch.cuda is not None:
            mine = found.get(f"nvidia-nccl-cu{torch.cuda.partition('.')[0]}")
            if mine is not None:
                return mine.version
        return next(iter(found.values())).version if len(found) == 1 else None

    def as_json(self) -> dict[str, Any]:
        """Facts as JSON has them; :func:`from_json` is the way back."""
        out = self._asdict()
        out["toolkit"] = None if self.toolkit is None else self.toolkit._asdict()
        out["gpus"] = None if self.gpus is None else [gpu._asdict() for gpu in self.gpus]
        out["links"] = [link._asdict() for link in self.links]
        out["packages"] = {name: package._asdict() for name, package in self.packages.items()}
        out["remarks"] = list(self.remarks)
        return out


def from_json(value: Any) -> Facts:
    """The facts that :meth:`Facts.as_json` wrote, also as the ``facts`` of the command's JSON.

    Raises :class:`Refused` (``facts``) that names the first key which is not as it should be.
    """
    if isinstance(value, dict) and isinstance(value.get("facts"), dict):
        value = value["facts"]
    given = _object(value, "facts", Facts)
    plain = ("os", "distro", "kernel", "machine", "python", "driver", "driver_cuda")
    toolkit, gpus = given.get("toolkit"), given.get("gpus")
    packages = given.get("packages") or {}
    if not isinstance(packages, dict):
        raise _wrong("packages", "an object")
    return Facts(
        **{key: _checked(given.get(key), key, str) for key in plain},
        toolkit=None if toolkit is None else Toolkit(**_fields(toolkit, "toolkit", Toolkit)),
        gpus=None
        if gpus is None
        else tuple(
            Gpu(**_fields(gpu, f"gpus[{place}]", Gpu))
            for place, gpu in enumerate(_list(gpus, "gpus"))
        ),
        links=tuple(
            _link(_fields(link, f"links[{place}]", Link), f"links[{place}]")
            for place, link in enumerate(_list(given.get("links") or [], "links"))
        ),
        packages={
            name: Package(**_fields(package, f"packages.{name}", Package))
            for name, package in packages.items()
        },
        remarks=tuple(
            cast("str", _checked(remark, f"remarks[{place}]", str)) or ""
            for place, remark in enumerate(_list(given.get("remarks") or [], "remarks"))
        ),
    )


_KINDS: dict[str, type] = {
    **dict.fromkeys(("name", "sm", "version", "source", "nvcc", "cuda", "way"), str),
    **dict.fromkeys(("memory", "a", "b", "nvlinks"), int),
    **dict.fromkeys(("pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max"), int),
    "p2p": bool,
}
_WORDS = {str: "a text", int: "a whole number", bool: "true or false"}


def _link(fields: dict[str, Any], where: str) -> Link:
    link = Link(**fields)
    if link.way is not None and link.way not in LINKS:
        raise _wrong(f"{where}.way", f"one of {', '.join(LINKS)}")
    return link


def _fields(value: Any, where: str, kind: type[Any]) -> dict[str, Any]:
    given = _object(value, where, kind)
    missing = [key for key in kind._fields if key not in given and key not in kind._field_defaults]
    if missing:
        raise _wrong(f"{where}.{missing[0]}", "there")
    optional = kind._field_defaults
    for key, field in given.items():
        if field is None and key not in optional:
            raise _wrong(f"{where}.{key}", _WORDS[_KINDS[key]])
        _checked(field, f"{where}.{key}", _KINDS[key])
    return given


def _object(value: Any, where: str, kind: type[Any]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, "an object")
    unknown = [key for key in value if key not in kind._fields]
    if unknown:
        raise _wrong(f"{where}.{unknown[0]}", f"one of {', '.join(kind._fields)}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(where, "a list")
    return value


def _checked(value: Any, where: str, kind: type) -> Any:
    if value is not None and type(value) is not kind:
        raise _wrong(where, _WORDS[kind])
    return value


def _wrong(where: str, expected: str) -> Refused:
    return Refused(
        f"these are no facts: {where} must be {expected}",
        code="facts",
        hint="patchkit doctor --json writes them",
    )


def _cuda_name(package: str) -> str:
    """``sgl-kernel`` was renamed to ``sglang-kernel``; one fact speaks of both."""
    return "sgl-kernel-cuda" if package == "sglang-kernel" else f"{package}-cuda"


def lowest(releases: Iterable[str | None]) -> str | None:
    """The lowest of ``9.0`` and ``12.0``, by number; None where one is not known."""
    known = _all(list(releases))
    return min(known, key=numbers) if known else None


def numbers(release: str) -> tuple[int, ...]:
    """``12.8`` as ``(12, 8)``; what is no number ends it."""
    out = []
    for part in release.split("."):
        if not part.isdigit():
            break
        out.append(int(part))
    return tuple(out)


def _least(values: Iterable[int | None]) -> str | None:
    known = _all(list(values))
    return str(min(known)) if known else None


def _all(values: list[Any]) -> list[Any]:
    """The values where each is known, else none."""
    return [] if None in values else values
