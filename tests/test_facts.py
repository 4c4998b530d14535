"""``patchkit doctor``: what is read without importing it, what NVML says or does not say, and
what facts mean together."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.conditions import FACTS, PACKAGES
from patchkit.environment import Environment
from patchkit.errors import Refused
from patchkit.facts import nvml, packages, system, toolkit
from patchkit.facts.findings import findings
from patchkit.facts.model import LINKS, Facts, Gpu, Link, Package, Toolkit, from_json
from tests.conftest import Cli
from tests.releases import ROOT

EXAMPLE = ROOT / "examples" / "eagle-fast-verify"
CAMPAIGN = from_json(json.loads((EXAMPLE / "facts.json").read_text(encoding="utf-8")))
GIB = 1024**3


# -- facts as values --------------------------------------------------------------------

maybe = st.none() | st.integers(1, 64)
word = st.none() | st.from_regex(r"[1-9][0-9]?\.[0-9]", fullmatch=True)
gpus = st.lists(
    st.builds(
        Gpu,
        st.sampled_from(["NVIDIA H200", "NVIDIA L4", ""]),
        word,
        st.none() | st.integers(1, 1 << 40),
        *(maybe, maybe, maybe, maybe),
    ),
    max_size=3,
)
facts = st.builds(
    Facts,
    os=st.sampled_from([None, "linux"]),
    driver=word,
    driver_cuda=word,
    toolkit=st.none() | st.builds(Toolkit, st.just("12.8"), st.just("PATH"), st.none()),
    gpus=st.none() | gpus.map(tuple),
    links=st.lists(
        st.builds(
            Link,
            *(st.just(0), st.just(1), st.sampled_from([None, *LINKS]), maybe),
            st.sampled_from([None, True, False]),
        ),
        max_size=1,
    ).map(tuple),
    packages=st.dictionaries(
        st.sampled_from(PACKAGES), st.builds(Package, st.just("2.9.1"), word), max_size=4
    ),
    remarks=st.lists(st.text(max_size=5), max_size=2).map(tuple),
)


@given(facts)
def test_facts_come_back_from_json_as_they_were(value: Facts) -> None:
    assert from_json(json.loads(json.dumps(value.as_json()))) == value


@given(facts)
def test_every_fact_there_is_has_a_text_and_nothing_fails_on_what_is_absent(value: Facts) -> None:
    assert all(value.flat().values())
    findings(value)


def test_the_facts_of_a_full_machine_are_all_named_in_the_vocabulary() -> None:
    full = CAMPAIGN._replace(
        distro="ubuntu 22.04",
        kernel="6.8.0",
        python="3.12.3",
        links=(*(link._replace(p2p=True) for link in CAMPAIGN.links),),
        packages={
            **{name: Package("1.0") for name in PACKAGES},
            **{name: Package("1.0", "12.8") for name in packages._BUILT},
            "nvidia-nccl-cu12": Package("2.27.5"),
        },
    )
    assert set(full.flat()) - {"nvidia-nccl-cu12"} == {*FACTS, *PACKAGES}


@pytest.mark.parametrize(
    "value, message",
    [
        ([], "facts must be an object"),
        ({"cpu": "x"}, "facts.cpu must be one of os,"),
        ({"driver": 590}, "driver must be a text"),
        ({"gpus": {}}, "gpus must be a list"),
        ({"gpus": [{"name": "x", "memory": "1"}]}, "gpus[0].memory must be a whole number"),
        ({"gpus": [{"sm": "9.0"}]}, "gpus[0].name must be there"),
        ({"gpus": [{"name": None}]}, "gpus[0].name must be a text"),
        ({"links": [{"a": 0, "b": 1, "way": "WIFI"}]}, "links[0].way must be one of"),
        ({"links": [{"a": 0, "b": 1, "p2p": 1}]}, "links[0].p2p must be true or false"),
        ({"packages": {"torch": "2.9"}}, "packages.torch must be an object"),
        ({"toolkit": {"version": "12.8"}}, "toolkit.source must be there"),
    ],
)
def test_what_is_no_record_of_facts_is_refused_with_the_key(value: Any, message: str) -> None:
    with pytest.raises(Refused) as caught:
        from_json(value)
    assert message in caught.value.message


def test_facts_of_gpus_speak_of_the_least_that_all_have() -> None:
    value = Facts(
        gpus=(
            Gpu("NVIDIA H200", "9.0", 141 * GIB, 5, 5, 16, 16),
            Gpu("NVIDIA L4", "8.9", 24 * GIB, 1, 4, 8, 16),
        ),
        links=(Link(0, 1, "SYS", None, False),),
    )
    flat = value.flat()
    assert flat["sm"] == "8.9"
    assert flat["gpu"] == "NVIDIA H200, NVIDIA L4"
    assert (flat["gpu-memory"], flat["pcie-gen"], flat["pcie-width"]) == ("24.0", "4", "8")
    assert (flat["nvlink"], flat["p2p"], flat["gpu-link"]) == ("false", "false", "SYS")


def test_what_one_gpu_does_not_say_is_said_of_none() -> None:
    value = Facts(gpus=(Gpu("NVIDIA H200", "9.0", 141 * GIB), Gpu("", None, None)))
    assert value.flat() == {"gpus": "2", "gpu": "NVIDIA H200"}


def test_nccl_is_that_of_torchs_cuda() -> None:
    both = {"nvidia-nccl-cu12": Package("2.27.5"), "nvidia-nccl-cu13": Package("2.28.9")}
    assert Facts(packages=both).flat().get("nccl") is None
    with_torch = {**both, "torch": Package("2.9.1", "13.0")}
    assert Facts(packages=with_torch).flat()["nccl"] == "2.28.9"
    assert Facts(packages={"nvidia-nccl-cu12": Package("2.27.5")}).flat()["nccl"] == "2.27.5"


# -- what facts mean together -----------------------------------------------------------


def _codes(value: Facts) -> set[str]:
    return {finding.code for finding in findings(value)}


def _with(**built: Package) -> dict[str, Package]:
    return {name.replace("_", "-"): package for name, package in built.items()}


PLAIN = CAMPAIGN._replace(
    toolkit=Toolkit("13.0", "PATH"),
    packages={},
    links=tuple(link._replace(way="NVLINK", p2p=True) for link in CAMPAIGN.links),
)


@pytest.mark.parametrize(
    "code, wrong, right",
    [
        ("toolkit-too-old", {"toolkit": Toolkit("12.6", "PATH")}, {}),
        ("toolkit-too-old", {"toolkit": Toolkit("9.2", "PATH")}, {}),
        ("toolkit-partial", {"toolkit": Toolkit("12.8", "PATH")}, {}),
        ("toolkit-partial", {"toolkit": Toolkit("12.8", "PATH")},
         {"toolkit": Toolkit("12.9", "PATH")}),
        ("toolkit-newer-than-driver", {"driver_cuda": "12.8"}, {"driver_cuda": "13.0"}),
        ("package-newer-than-driver",
         {"driver_cuda": "12.8", "packages": _with(torch=Package("2.9.1", "13.0"))},
         {"driver_cuda": "12.4", "packages": _with(torch=Package("2.9.1", "12.8"))}),
        ("mixed-cuda",
         {"packages": _with(torch=Package("2.9.1", "12.8"), sgl_kernel=Package("0.3", "13.0"))},
         {"packages": _with(torch=Package("2.9.1", "13.0"), sgl_kernel=Package("0.3", "13"))}),
        ("torch-other-major", {"packages": _with(torch=Package("2.9.1", "12.8"))},
         {"packages": _with(torch=Package("2.9.1", "13.1"))}),
        ("no-toolkit", {"toolkit": None, "packages": _with(flashinfer_python=Package("0.6.3"))},
         {"packages": _with(flashinfer_python=Package("0.6.3"))}),
        ("prebuilt-cache", {"packages": _with(flashinfer_jit_cache=Package("0.6.3"))},
         {"packages": _with(flashinfer_python=Package("0.6.3"))}),
        ("flashinfer-releases",
         {"packages": _with(flashinfer_python=Package("0.6.3"), flashinfer_cubin=Package("0.6.1"))},
         {"packages": _with(flashinfer_python=Package("0.6.3"),
                            flashinfer_jit_cache=Package("0.6.3+cu130"))}),
        ("flashinfer-majors", {"packages": _with(flashinfer_python=Package("0.6.16.post4"))},
         {"packages": _with(flashinfer_python=Package("0.6.17"))}),
        ("two-kernels",
         {"packages": _with(sgl_kernel=Package("0.3.21"), sglang_kernel=Package("0.4.1"))},
         {"packages": _with(sglang_kernel=Package("0.4.1"))}),
        ("no-p2p", {"links": tuple(link._replace(p2p=False) for link in PLAIN.links)}, {}),
        ("no-nvlink", {"links": CAMPAIGN.links}, {}),
        ("few-lanes", {"gpus": (Gpu("x", "12.0", GIB, 5, 5, 8, 16),)}, {}),
        ("mixed-gpus", {"gpus": (Gpu("x", "12.0"), Gpu("y", "12.0"))}, {}),
    ],
)  # fmt: skip
def test_a_rule_finds_what_is_wrong_and_is_silent_else(
    code: str, wrong: dict[str, Any], right: dict[str, Any]
) -> None:
    assert code in _codes(PLAIN._replace(**wrong))
    assert code not in _codes(PLAIN._replace(**right))


def test_nothing_is_found_where_nothing_is_known() -> None:
    assert findings(Facts()) == []
    assert findings(Facts(gpus=())) == []


def test_the_campaigns_machine_is_told_what_held_it_up() -> None:
    said = [finding.message for finding in findings(CAMPAIGN)]
    assert (
        "toolkit 12.8 knows SM120 only in part (the targets of its family come with 12.9);"
        " the driver can run CUDA 13.1" in said
    )
    newer = CAMPAIGN._replace(toolkit=Toolkit("13.0", "CUDA_HOME"))
    assert "toolkit-partial" not in _codes(newer)
    assert any("torch is built for cu128, and the toolkit is 13.0" in f.message
               for f in findings(newer))  # fmt: skip


def test_the_wheels_of_two_cudas_are_named() -> None:
    value = PLAIN._replace(
        packages=_with(torch=Package("2.9.1", "12.8"), sgl_kernel=Package("0.3.21", "13.0"))
    )
    assert "torch is built for cu128, sgl-kernel for cu130" in [f.message for f in findings(value)]


# -- NVML -------------------------------------------------------------------------------


class Failed(Exception):
    """What the binding raises for each call that is not supported."""


class Nvml:
    """A stand-in for the binding: GPUs on a switch of NVLinks, or on PCIe alone."""

    NVMLError = Failed

    def __init__(self, count: int, *, nvlinks: int = 0, failing: tuple[str, ...] = ()) -> None:
        self.count, self.nvlinks, self.failing = count, nvlinks, failing

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "failing"):

            def fail(*arguments: Any) -> Any:
                raise Failed(f"{name}: Not Supported")

            return fail
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlShutdown(self) -> None: ...  # noqa: N802

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"590.48.01"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return 13010

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        return number

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "NVIDIA H200"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return 9, 0

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=141 * GIB)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: int) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:  # noqa: N802
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        return 16

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        return 16

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:  # noqa: N802
        return 40 if one // 4 == other // 4 else 50

    def nvmlDeviceGetP2PStatus(self, one: int, other: int, what: Any) -> int:  # noqa: N802
        if type(what) is not int:  # as ctypes has it
            raise TypeError(what)
        return 5 if what == 2 and not self.nvlinks else 0

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=f"0000:{handle:02x}:00.0".encode())

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        if link >= self.nvlinks:
            raise Failed("Invalid Argument")
        return 1

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=b"0000:ff:00.0")

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:  # noqa: N802
        return 2


CALLS = sorted(name for name in dir(Nvml) if name.startswith("nvml"))


def _read(binding: Nvml) -> Facts:
    answer = nvml.read(binding)
    answer.pop("error", None)
    return from_json(answer)


def test_gpus_on_a_switch_are_joined_by_all_their_nvlinks() -> None:
    value = _read(Nvml(8, nvlinks=18))
    assert len(value.links) == 28
    assert {(link.way, link.nvlinks, link.p2p) for link in value.links} == {("NVLINK", 18, True)}
    assert value.gpus is not None and value.gpus[0] == Gpu(
        "NVIDIA H200", "9.0", 141 * GIB, 1, 5, 16, 16
    )
    flat = value.flat()
    assert (flat["driver"], flat["driver-cuda"], flat["nvlink"]) == ("590.48.01", "13.1", "true")


def test_gpus_on_pcie_are_told_apart_by_their_way() -> None:
    value = _read(Nvml(8))
    assert {link.way for link in value.links} == {"NODE", "SYS"}
    assert (value.flat()["gpu-link"], value.flat()["nvlink"]) == ("SYS", "false")


@pytest.mark.parametrize("call", [name for name in CALLS if name != "nvmlInit"])
def test_a_call_that_is_not_supported_leaves_one_fact_out_and_no_more(call: str) -> None:
    whole, without = _read(Nvml(2)).flat(), _read(Nvml(2, failing=(call,))).flat()
    if call in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
        assert set(without) <= {"driver", "driver-cuda", "gpus"}
        return
    lost = {name for name in whole if without.get(name) != whole[name]}
    assert len(lost) <= (3 if call == "nvmlDeviceGetP2PStatus" else 1), lost
    # What was not said is not made up.
    assert set(without) <= set(whole) | {"pcie-gen", "gpu-link"}


def test_the_oldest_binding_without_a_function_is_no_error() -> None:
    class Old(Nvml):
        nvmlDeviceGetNvLinkRemoteDeviceType = None  # type: ignore[assignment] # noqa: N815

    assert _read(Old(2, nvlinks=4)).links[0].way == "NVLINK"


def test_a_driver_that_is_not_loaded_says_so() -> None:
    assert nvml.read(Nvml(1, failing=("nvmlInit",)))["error"] == "nvmlInit: Not Supported"


BINDING = """
class NVMLError(Exception):
    pass
def nvmlInit():
    {body}
def nvmlSystemGetDriverVersion():
    return "590.48.01"
def nvmlDeviceGetCount():
    return 0
"""


def _binding(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pynvml.py").write_text(BINDING.replace("{body}", body))
    monkeypatch.syspath_prepend(str(folder))


def _nowhere(folder: Path) -> system.Roots:
    return system.Roots(*(str(folder / name) for name in ("proc", "sys", "etc")))


@pytest.mark.parametrize(
    "body, remark",
    [
        ("import signal; signal.pause()", "NVML did not answer within 0.2 seconds"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "NVML ended with code -11"),
        ("raise NVMLError('Driver Not Loaded')", "NVML: Driver Not Loaded"),
        ("raise ImportError('x')", "NVML ended with code 1"),
        ("import os; os.write(1, b'[]'); os._exit(0)", "NVML ended with code 0"),
        ("import os; os.write(1, b'[' * 60000); os._exit(0)", "NVML ended with code 0"),
    ],
)
def test_a_driver_that_hangs_or_crashes_takes_nothing_with_it(
    body: str, remark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _binding(tmp_path, body, monkeypatch)
    timeout = 0.2 if "pause" in body else 20.0
    value = system.read_gpus(Facts(os="linux"), _nowhere(tmp_path), timeout=timeout)
    assert value.os == "linux" and value.gpus is None
    assert value.remarks[0].startswith(remark)


def test_without_nvml_the_drivers_own_files_say_what_they_know(tmp_path: Path) -> None:
    roots = _nowhere(tmp_path)
    driver = Path(roots.proc) / "driver" / "nvidia"
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (driver / "gpus" / bus).mkdir(parents=True)
        (driver / "gpus" / bus / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 5\n")
    (driver / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.48.01  Release Build\n"
        "GCC version:  gcc version 13.3.0\n"
    )
    value = system.read_gpus(Facts(), roots)
    assert value.driver == "590.48.01"
    assert value.gpus == (Gpu("NVIDIA H200"),) * 2
    assert value.remarks  # says what would tell more


def test_a_bus_without_an_nvidia_card_has_no_gpus_and_nothing_to_remark(tmp_path: Path) -> None:
    roots = _nowhere(tmp_path)
    card = Path(roots.sys) / "bus" / "pci" / "devices" / "0000:00:02.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x8086\n")
    (card / "class").write_text("0x030000\n")
    value = system.read_gpus(Facts(), roots)
    assert value.gpus == () and value.remarks == ()
    (card / "vendor").write_text("0x10de\n")
    assert system.read_gpus(Facts(), roots).gpus is None


# -- toolkit and packages ---------------------------------------------------------------


def _site(tmp_path: Path, *infos: str) -> Environment:
    folder = tmp_path / "site-packages"
    folder.mkdir(exist_ok=True)
    for info in infos:
        name, _, version = info.partition("-")
        (folder / f"{info}.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / f"{info}.dist-info" / "METADATA").write_text(text)
    return Environment(str(folder), (str(folder),), is_root=True)


HEADER = "#define CUDA_VERSION 12080\n"


def _home(folder: Path, files: dict[str, str]) -> Path:
    for name, text in {"bin/nvcc": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "bin" / "nvcc").chmod(0o755)
    return folder


@pytest.mark.parametrize(
    "files, version",
    [
        ({"version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}'}, "12.8"),
        ({"version.json": "{", "include/cuda.h": "#define CUDA_VERSION 12080\n"}, "12.8"),
        ({"version.json": '{"cuda": {"version": 12.8}}', "include/cuda.h": HEADER}, "12.8"),
        ({"version.json": '{"cuda": {"version": "x"}}', "include/cuda.h": HEADER}, "12.8"),
        ({"version.json": "[" * 100_000, "include/cuda.h": HEADER}, "12.8"),
        ({"include/cuda_runtime_api.h": "/**/\n#define CUDART_VERSION  13000\n"}, "13.0"),
        ({"bin/nvcc": "#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.41'"}, "12.9"),
    ],
)
def test_the_toolkit_tells_its_release_by_its_own_files(
    files: dict[str, str], version: str, tmp_path: Path
) -> None:
    home = _home(tmp_path / "cuda", files)
    found, remark = toolkit.find_toolkit(_site(tmp_path), {"CUDA_HOME": str(home), "PATH": ""})
    assert found == Toolkit(version, "CUDA_HOME", str(home / "bin" / "nvcc"))
    assert remark is None


@pytest.mark.parametrize("body", ["yes release", "cat; echo release 12.9 & sleep 100", "exec >&-"])
def test_an_nvcc_that_never_ends_is_left_alone(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolkit, "_TIMEOUT", 0.2)
    home = _home(tmp_path / "cuda", {"bin/nvcc": f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n"})
    found, _ = toolkit.find_toolkit(_site(tmp_path), {"CUDA_HOME": str(home), "PATH": ""})
    assert (found is None or found.source != "CUDA_HOME") or found.version == "12.9"


def test_the_toolkit_is_looked_for_where_a_jit_does(tmp_path: Path) -> None:
    header = "include/cuda.h"
    one = _home(tmp_path / "one", {header: "#define CUDA_VERSION 12080"})
    two = _home(tmp_path / "two", {header: "#define CUDA_VERSION 12090"})
    three = str(_home(tmp_path / "three", {header: "#define CUDA_VERSION 13000"}))
    site = _site(tmp_path, "nvidia_cuda_nvcc_cu12-12.6.85")
    environ = {"CUDA_PATH": str(one), "PATH": str(two / "bin")}
    sources = []
    for dropped in (None, "CUDA_PATH", "PATH"):
        if dropped:
            environ[dropped] = ""
        found, _ = toolkit.find_toolkit(site, environ, three)
        assert found is not None
        sources.append((found.source, found.version))
    assert sources == [("CUDA_PATH", "12.8"), ("PATH", "12.9"), (three, "13.0")]
    found, _ = toolkit.find_toolkit(site, environ, str(tmp_path / "gone"))
    assert found == Toolkit("12.6", "wheels", None)


def test_a_variable_that_names_no_toolkit_is_remarked_on(tmp_path: Path) -> None:
    found, remark = toolkit.find_toolkit(
        _site(tmp_path), {"CUDA_HOME": "/gone", "PATH": ""}, str(tmp_path / "gone")
    )
    assert found is None and remark == "CUDA_HOME names /gone, which has no bin/nvcc"


def test_packages_say_what_cuda_they_are_built_for_without_being_imported(tmp_path: Path) -> None:
    env = _site(
        tmp_path,
        "torch-2.9.1",
        "sgl_kernel-0.3.21+cu130",
        "sglang_kernel-0.4.1",
        "flashinfer_jit_cache-0.6.3+cu128",
        "vllm-0.12.0",
        "nvidia_nccl_cu12-2.27.5",
        "deep_ep-1.2.1",
        "somebody_elses-1.0",
    )
    site = Path(env.site_packages)
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (site / "torch" / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.9.1'\n"
        "debug = False\ncuda: Optional[str] = '12.8'\ngit_version = 'x'\nhip = None\n"
    )
    (site / "sgl_kernel" / "sm100").mkdir(parents=True)
    needed = b"\x7fELF" + bytes(9 << 20) + b"\0libcudart-0a1b2c3d.so.13.0.48\0"
    (site / "sgl_kernel" / "sm100" / "common_ops.abi3.so").write_bytes(needed)
    found, remarks = packages.read_packages(env)
    assert remarks == []
    assert found == {
        "torch": Package("2.9.1", "12.8"),
        "sgl-kernel": Package("0.3.21+cu130", "13.0"),
        "sglang-kernel": Package("0.4.1", "13"),
        "flashinfer-jit-cache": Package("0.6.3+cu128", "12.8"),
        "vllm": Package("0.12.0", None),
        "nvidia-nccl-cu12": Package("2.27.5"),
        "deep-ep": Package("1.2.1"),
    }


def test_two_records_of_one_package_are_remarked_on_and_end_nothing(tmp_path: Path) -> None:
    found, remarks = packages.read_packages(_site(tmp_path, "torch-2.9.1", "torch-2.8.0", "vllm-1"))
    assert set(found) == {"vllm"}
    assert "torch is installed more than once" in remarks[0]


@pytest.mark.parametrize(
    "label, cuda",
    [("cu128", "12.8"), ("cu118", "11.8"), ("cu12", "12"), ("cu130.gitabc", "13.0"),
     ("v1.cu129", "12.9"), ("cpu", None), ("", None), ("rocm6.4", None), ("cute130", None)],
)  # fmt: skip
def test_a_local_label_names_a_cuda_or_none(label: str, cuda: str | None) -> None:
    assert packages.cuda_of_label(label) == cuda


# -- the command ------------------------------------------------------------------------


def test_doctor_reads_its_own_json_and_judges_recorded_facts(cli: Cli, tmp_path: Path) -> None:
    shown = cli("doctor", "--facts", EXAMPLE / "facts.json")
    assert "8 × NVIDIA RTX PRO 6000 Blackwell, SM120, 95.6 GiB, PCIe Gen5 x16" in shown.stdout
    assert "driver     590.48.01, runs CUDA 13.1" in shown.stdout
    assert "problem: toolkit 12.8 knows SM120 only in part" in shown.stdout
    report = cli("doctor", "--facts", EXAMPLE / "facts.json", "--json")
    file = tmp_path / "again.json"
    file.write_text(report.stdout)
    again = cli("doctor", "--facts", file, "--json")
    assert again.json == report.json
    assert cli("doctor", "--facts", file, "--check", check=1).stdout == shown.stdout


def test_doctor_on_this_machine_reports_and_imports_nothing_of_the_environment(
    cli: Cli, tmp_path: Path
) -> None:
    env = _site(tmp_path, "torch-2.9.1")
    site = Path(env.site_packages)
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (site / "torch" / "version.py").write_text("cuda = '12.8'\n")
    fake = tmp_path / "binding"
    fake.mkdir()
    (fake / "pynvml.py").write_text(BINDING.replace("{body}", "pass"))
    path = os.pathsep.join([str(fake), str(ROOT)])
    found = cli("--root", site, "doctor", "--json", env={"PYTHONPATH": path}).json
    assert found["facts"]["packages"]["torch"] == {"version": "2.9.1", "cuda": "12.8"}
    assert found["facts"]["driver"] == "590.48.01"
    assert found["flat"]["gpus"] == "0"
    assert found["flat"]["os"] == sys.platform
    assert found["environment"]["site_packages"] == str(site)


def test_doctor_lists_the_names_of_conditions(cli: Cli) -> None:
    names = cli("doctor", "--names", "--json").json["names"]
    assert set(names) == {*FACTS, *PACKAGES}
    assert "nvlink" in cli("doctor", "--names").stdout


def test_doctor_shows_the_ways_between_gpus_of_two_kinds(cli: Cli, tmp_path: Path) -> None:
    value = Facts(
        gpus=(Gpu("NVIDIA H200", "9.0", 141 * GIB, 1, 5, 16, 16),) * 2
        + (Gpu("NVIDIA L4", "8.9", 24 * GIB, 4, 4, 8, 16),),
        links=(
            Link(0, 1, "NVLINK", 18, True),
            Link(0, 2, "SYS", None, False),
            Link(1, 2, None, None, False),
        ),
    )
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(value.as_json()))
    shown = cli("doctor", "--facts", file, "--verbose").stdout
    assert [" ".join(line.split()) for line in shown.splitlines() if line][:15] == [
        "system unknown",
        "python unknown",
        "driver none found",
        "toolkit none found",
        "gpus 2 × NVIDIA H200, SM90, 141.0 GiB, PCIe Gen1 of 5 x16",
        "NVIDIA L4, SM89, 24.0 GiB, PCIe Gen4 x8 of 16",
        "packages",
        "none found",
        "links GPU0 GPU1 GPU2",
        "GPU0 · NV18 SYS",
        "GPU1 NV18 · ?",
        "GPU2 SYS ? ·",
        "NV: NVLink",
        "SYS: the link between NUMA nodes",
        "peer to peer: 1 of 3 pairs",
    ]
    assert "problem: GPU 2 runs on 8 of its 16 PCIe lanes" in shown
    assert '  sm == "8.9"' in shown


def test_doctor_refuses_a_file_that_holds_no_facts(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text("{")
    refused = cli("doctor", "--facts", file, check=3).stderr
    assert "is no JSON" in refused
    assert f"> {file}" not in refused, "the next command does not overwrite it"
    file.write_text('{"gpus": 8}')
    assert "gpus must be a list" in cli("doctor", "--facts", file, check=3).stderr
