"""The shipped bundles on the oldest and the newest release that they are for, and on those
between that have the code in another shape.

Beside ``test_shipped_bundles``, which goes through one shape in depth: verdicts, fakes and
effects by the files of a release that count.  All releases: ``python3 dev.py bundles``.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from patchkit import patchfile
from patchkit.errors import HunkError
from patchkit.manifest import profile_for
from tests.releases import ROOT
from tests.shipped.effects import (
    ADD_NORM,
    COMM_FUSION,
    CUSTOM_UTILS,
    CUSTOM_V2,
    OFF,
    OLD_JIT,
    OLD_SYMM,
    OVERRIDES,
    RUNTIME_CONTEXT,
    Machine,
    Outcome,
    enables_itself,
    fuses,
    gencode,
    generated_flags,
    reduce_symmetrically,
    refusal,
    resolves,
    second_takes_it,
    set_up_custom_all_reduce,
)
from tests.shipped.stand_ins import (
    COMMON,
    COMMUNICATOR,
    CONTEXT,
    CUSTOM,
    JIT,
    PARALLEL_STATE,
    SERVER_ARGS,
    SYMM,
    Files,
    apply,
    bundle,
    failing,
    parsed,
    parts,
    refused,
    swap,
    variant_for,
)

FUSION, PCIE, SYMMETRIC = "sm120-fusion", "pcie-custom-allreduce", "symm-mem-sm120"
BUNDLES = (FUSION, PCIE, SYMMETRIC)
#: Oldest, newest, and what is new in each: the helper is brought; GPT-OSS is let in by the
#: release; so is the whole list; the third gate, by helpers; everything moved, by the platform.
SAMPLE = ("0.5.1", "0.5.3.post2", "0.5.6", "0.5.7", "0.5.15", "0.5.23")
CAPABILITIES = (8, 9, 10, 12)
LAYERS_UTILS = "sglang/srt/layers/utils.py"


def release(version: str) -> Files:
    return parts("sglang", version, RUNTIME_CONTEXT, COMMON, PARALLEL_STATE)


@pytest.fixture(params=SAMPLE)
def sample(request: pytest.FixtureRequest) -> tuple[str, Files]:
    """A release of sglang, and those of its files that count."""
    return request.param, release(request.param)


def patched(name: str, version: str, files: Files) -> Files:
    variant = variant_for(name, "sglang", version)
    assert variant is not None
    return apply(name, "sglang", version, files) if variant.patches else files


# -- verdicts -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUNDLES)
def test_a_release_is_refused_as_it_is_and_right_when_patched(
    name: str, sample: tuple[str, Files]
) -> None:
    version, files = sample
    variant = variant_for(name, "sglang", version)
    assert variant is not None
    assert bool(variant.patches) is not (name == SYMMETRIC and version == "0.5.1")
    assert refused(name, "sglang", version, files) is bool(variant.patches)
    after = patched(name, version, files)
    assert failing(name, "sglang", version, after) == []
    if variant.patches:
        with pytest.raises(HunkError) as caught:
            apply(name, "sglang", version, after)
        assert caught.value.code == "already-applied"


def test_what_is_not_there_yet_is_not_said_of_a_release_that_has_it() -> None:
    """The assertions on 0.5.1, on the files of the first release with the feature."""
    files = release("0.5.3.post2")
    assert failing(SYMMETRIC, "sglang", "0.5.1", release("0.5.1")) == []
    assert len(failing(SYMMETRIC, "sglang", "0.5.1", files)) == 2
    assert profile_for(bundle(SYMMETRIC), {"sglang": "0.5.2"}) == ({}, ())


@pytest.mark.parametrize("version", [*SAMPLE, "0.3.1"])
def test_blob_ids_and_places_are_those_of_the_release_that_a_folder_names(version: str) -> None:
    distribution = "flashinfer-python" if version == "0.3.1" else "sglang"
    files = parts(distribution, version)
    for path in sorted((ROOT / "patches").glob(f"*/{distribution}-{version}/*.patch")):
        for file in patchfile.parse(path.read_bytes(), str(path)).files:
            before = files.read(file.path.removeprefix("b/").removeprefix("python/"))
            assert before is not None
            after = before
            for hunk in file.hunks:
                lines = before.splitlines(keepends=True)
                old = b"".join(lines[hunk.old_start - 1 :])
                assert old.startswith(hunk.old_text)
                after = after.replace(hunk.old_text, hunk.new_text, 1)
            for blob, data in ((file.old_blob, before), (file.new_blob, after)):
                assert blob == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def test_only_the_patched_release_defines_the_helper_that_is_brought() -> None:
    for version, path in (("0.5.1", LAYERS_UTILS), ("0.5.3.post2", COMMON)):
        files = release(version)
        assert "def is_sm120_supported(" not in files.text(path)
        assert "def is_sm120_supported(" in patched(FUSION, version, files).text(path)
    for version in ("0.5.6", "0.5.23"):
        changed = patched(FUSION, version, release(version)).changed
        assert COMMON not in changed


# -- fakes ----------------------------------------------------------------------------------


class Fake(NamedTuple):
    """One or more swaps in the patched files, each of them text that stands there once."""

    bundle: str
    version: str
    swaps: Mapping[str, tuple[str, str]]


GATE = "(_is_sm90_supported or _is_sm100_supported or _is_sm120_supported)\n"
OLD_GATE = "(_is_sm100_supported or _is_sm120_supported)\n"
NAME = "_is_sm120_supported = is_cuda() and is_sm120_supported()\n"
PLATFORM_NAME = "_is_sm120_supported = _is_cuda and get_platform().is_sm120\n"
OSS = "            if is_sm100_supported() or is_sm120_supported():\n                if not self.en"
OSS_CLOSED = OSS.replace(" or is_sm120_supported():", ":  # or is_sm120_supported():")
AUTO = "        and (is_sm90_supported() or is_sm100_supported() or is_sm120_supported())\n"
CLOSED = "        and (is_sm90_supported() or is_sm100_supported())\n"
LISTED = "_FLASHINFER_ALLREDUCE_FUSION_ARCHS = frozenset("
UNSET = "    if (\n        view.flashinfer_allreduce_fusion_backend is None\n"
AUTO_PLATFORM = "            or get_platform().is_sm120\n        )\n"
RESOLVER = "    if not (is_sm90_supported() or is_sm100_supported() or is_sm120_supported()):\n"
CHOICE = '            return "mnnvl"\n        return "trtllm"\n'
FLAG = "    if _is_cuda and torch.cuda.get_device_capability(device)[0] == 12:\n"
FLAG_SET = FLAG + "        full_nvlink = True\n"
EARLY = "    if world_size > 2 and not full_nvlink:\n"
ROW = "        12: [],\n"
MULTICAST = "handle.multicast_ptr == 0 and self.device_capability != 12:"

FAKES = {
    # Before 0.5.4: three files, one of which brings the helper.
    "old gate in a comment": Fake(
        FUSION,
        "0.5.1",
        {COMMUNICATOR: (OLD_GATE, "_is_sm100_supported  # or _is_sm120_supported\n")},
    ),
    "old gate with a name set to False": Fake(
        FUSION, "0.5.1", {COMMUNICATOR: (NAME, "_is_sm120_supported = False\n")}
    ),
    "old gate without the import": Fake(
        FUSION,
        "0.5.1",
        {
            COMMUNICATOR: (
                "import is_sm100_supported, is_sm120_supported",
                "import is_sm100_supported",
            )
        },
    ),
    "old gate with a further term": Fake(
        FUSION,
        "0.5.1",
        {COMMUNICATOR: (OLD_GATE, OLD_GATE + "                and residual is None\n")},
    ),
    "old gate for every architecture": Fake(
        FUSION, "0.5.1", {COMMUNICATOR: (OLD_GATE, "(_is_sm120_supported or True)\n")}
    ),
    "helper not brought": Fake(
        FUSION, "0.5.1", {LAYERS_UTILS: ("def is_sm120_supported(", "def is_sm121_supported(")}
    ),
    "helper of another capability": Fake(
        FUSION, "0.5.1", {LAYERS_UTILS: ("(device)[0] == 12)", "(device)[0] == 13)")}
    ),
    "helper for every capability": Fake(
        FUSION, "0.5.1", {LAYERS_UTILS: ("(device)[0] == 12)", "(device)[0] >= 10)")}
    ),
    "start-up in a comment": Fake(FUSION, "0.5.1", {SERVER_ARGS: (OSS, OSS_CLOSED)}),
    "start-up without effect": Fake(
        FUSION,
        "0.5.3.post2",
        {
            SERVER_ARGS: (
                OSS,
                OSS.replace(
                    "                if not self.en", "                pass\n" + OSS_CLOSED
                ),
            )
        },
    ),
    "start-up without the import": Fake(
        FUSION, "0.5.3.post2", {SERVER_ARGS: ("    is_sm120_supported,\n", "")}
    ),
    # 0.5.4.post2 to 0.5.7: the release lets capability 12 in by itself, at start-up.
    "start-up that no longer lets GPT-OSS in": Fake(
        FUSION,
        "0.5.6",
        {
            SERVER_ARGS: (
                "            if is_blackwell_supported():\n                # workaround",
                "            if is_sm100_supported():\n                # workaround",
            )
        },
    ),
    "a Blackwell that is none": Fake(FUSION, "0.5.6", {COMMON: ("in [10, 12])", "in [10])")}),
    "a Blackwell of the list that is none": Fake(
        FUSION,
        "0.5.7",
        {COMMON: ("device_capability_majors=[10, 12],", "device_capability_majors=[10],")},
    ),
    "start-up that no longer lets the list in": Fake(
        FUSION,
        "0.5.7",
        {SERVER_ARGS: ("(is_sm90_supported() or is_blackwell_supported())", "is_sm90_supported()")},
    ),
    # From 0.5.14 on a resolver, from 0.5.15 on the start-up in a file of its own.
    "third gate shut": Fake(
        FUSION,
        "0.5.15",
        {COMM_FUSION: (RESOLVER, RESOLVER.replace(" or is_sm120_supported()", ""))},
    ),
    "third gate in a comment": Fake(
        FUSION,
        "0.5.15",
        {
            COMM_FUSION: (
                RESOLVER,
                RESOLVER.replace(" or is_sm120_supported()):", "):  # is_sm120_supported()"),
            )
        },
    ),
    "third gate without the import": Fake(
        FUSION, "0.5.15", {COMM_FUSION: ("    is_sm120_supported,\n", "")}
    ),
    "another error before the third gate": Fake(
        FUSION,
        "0.5.15",
        {
            COMM_FUSION: (
                RESOLVER,
                '    if is_sm120_supported():\n        raise ValueError("no")\n' + RESOLVER,
            )
        },
    ),
    "third gate to a backend that is none": Fake(
        FUSION, "0.5.15", {COMM_FUSION: (CHOICE, CHOICE.replace("trtllm", "mnnvl"))}
    ),
    "moved start-up in a comment": Fake(
        FUSION, "0.5.15", {OVERRIDES: (AUTO, CLOSED[:-1] + "  # or is_sm120_supported()\n")}
    ),
    "moved start-up with a further term": Fake(
        FUSION, "0.5.15", {OVERRIDES: (AUTO, AUTO + "        and not view.enable_mixed_chunk\n")}
    ),
    "moved start-up by an undefined name": Fake(
        FUSION, "0.5.15", {OVERRIDES: (AUTO, AUTO.replace("is_sm120_supported()", "_is_sm120"))}
    ),
    "moved start-up shadowed": Fake(
        FUSION,
        "0.5.15",
        {
            OVERRIDES: (
                LISTED,
                "is_sm120_supported = lambda: False\n" + LISTED,
            )
        },
    ),
    "moved start-up behind a return": Fake(
        FUSION,
        "0.5.15",
        {
            OVERRIDES: (
                UNSET,
                "    return {}\n" + UNSET,
            )
        },
    ),
    "moved start-up that sets nothing": Fake(
        FUSION,
        "0.5.15",
        {
            OVERRIDES: (
                '        return {"flashinfer_allreduce_fusion_backend": "auto"}\n',
                '        return {"flashinfer_allreduce_fusion_backend": None}\n',
            )
        },
    ),
    # From 0.5.19 on by the platform, from 0.5.21 on in a file of another name.
    "moved gate in a comment": Fake(
        FUSION,
        "0.5.23",
        {
            ADD_NORM: (
                GATE,
                "(_is_sm90_supported or _is_sm100_supported)  # or _is_sm120_supported\n",
            )
        },
    ),
    "moved gate with a name set to False": Fake(
        FUSION, "0.5.23", {ADD_NORM: (PLATFORM_NAME, "_is_sm120_supported = False\n")}
    ),
    "moved gate with another name of the platform": Fake(
        FUSION, "0.5.23", {ADD_NORM: (PLATFORM_NAME, PLATFORM_NAME.replace("sm120\n", "sm100\n"))}
    ),
    "moved gate with a platform of its own": Fake(
        FUSION,
        "0.5.23",
        {ADD_NORM: (PLATFORM_NAME, "get_platform = object\n" + PLATFORM_NAME)},
    ),
    "moved gate behind a return": Fake(
        FUSION,
        "0.5.23",
        {
            ADD_NORM: (
                "def flashinfer_ar_fusion_applies(batch_size: int):\n",
                "def flashinfer_ar_fusion_applies(batch_size: int):\n    return False\n",
            )
        },
    ),
    "moved gate with a further term": Fake(
        FUSION, "0.5.23", {ADD_NORM: (GATE, GATE + "        and not _is_sm120_supported\n")}
    ),
    "platform without the name": Fake(
        FUSION, "0.5.23", {RUNTIME_CONTEXT: ('    "is_sm120": "is_sm120_supported",\n', "")}
    ),
    "platform that asks something else": Fake(
        FUSION,
        "0.5.23",
        {RUNTIME_CONTEXT: ('"is_sm120": "is_sm120_supported"', '"is_sm120": "is_sm100_supported"')},
    ),
    "platform whose helper is gone": Fake(
        FUSION,
        "0.5.23",
        {COMMON: ("is_sm120_supported = lru_cache", "is_sm121_supported = lru_cache")},
    ),
    "start-up by the platform shut": Fake(
        FUSION,
        "0.5.23",
        {OVERRIDES: (AUTO_PLATFORM, "            # or get_platform().is_sm120\n        )\n")},
    ),
    "third gate by the platform shut": Fake(
        FUSION,
        "0.5.23",
        {
            COMM_FUSION: (
                " or get_platform().is_sm120\n    ):",
                "\n    ):  # or get_platform().is_sm120",
            )
        },
    ),
    # The custom all-reduce where the test has moved, and a second implementation asks too.
    "flag in a comment": Fake(
        PCIE, "0.5.15", {CUSTOM_UTILS: (FLAG_SET, f"    # {FLAG.strip()} full_nvlink = True\n")}
    ),
    "flag set to False": Fake(
        PCIE, "0.5.15", {CUSTOM_UTILS: (FLAG_SET, FLAG_SET.replace("True", "False"))}
    ),
    "flag for every architecture": Fake(
        PCIE, "0.5.23", {CUSTOM_UTILS: (FLAG_SET, "    full_nvlink = True\n")}
    ),
    "flag for every platform": Fake(
        PCIE, "0.5.23", {CUSTOM_UTILS: (FLAG, FLAG.replace("_is_cuda and ", ""))}
    ),
    "flag set too late": Fake(
        PCIE,
        "0.5.23",
        {
            CUSTOM_UTILS: (FLAG_SET, ""),
            CUSTOM: ("    def close(self):", f"    # {FLAG}    def close(self):"),
        },
    ),
    "early return gone": Fake(PCIE, "0.5.23", {CUSTOM_UTILS: (EARLY, "    if False:\n")}),
    "something else handed on": Fake(
        PCIE,
        "0.5.23",
        {CUSTOM_UTILS: ("\n    return full_nvlink\n", "\n    return world_size == 2\n")},
    ),
    "kernel told otherwise": Fake(
        PCIE,
        "0.5.23",
        {
            CUSTOM: (
                "self.meta_ptrs, self.rank_data, rank, self.full_nvlink\n",
                "self.meta_ptrs, self.rank_data, rank, False\n",
            )
        },
    ),
    "messages turned away": Fake(
        PCIE,
        "0.5.23",
        {CUSTOM: ("if self.world_size == 2 or self.full_nvlink:", "if self.world_size == 2:")},
    ),
    "second implementation on without the flag": Fake(
        PCIE,
        "0.5.15",
        {CUSTOM_V2: ("return full_nvlink is True", "return full_nvlink is not None")},
    ),
    "second implementation off": Fake(
        PCIE,
        "0.5.23",
        {CUSTOM_V2: ("return full_nvlink is True", "return False  # full_nvlink is True")},
    ),
    # Torch symmetric memory under its old name, and with the lookups that do not raise.
    "old row in a comment": Fake(
        SYMMETRIC, "0.5.3.post2", {OLD_SYMM: (ROW, "        # 12: [],\n")}
    ),
    "old row of a string": Fake(SYMMETRIC, "0.5.3.post2", {OLD_SYMM: (ROW, '        "12": [],\n')}),
    "old multicast test as it was": Fake(
        SYMMETRIC, "0.5.3.post2", {OLD_SYMM: (MULTICAST, "handle.multicast_ptr == 0:  # 12")}
    ),
    "old table not read": Fake(
        SYMMETRIC,
        "0.5.3.post2",
        {OLD_SYMM: ("    SYMM_MEM_ALL_REDUCE_MAX_SIZES,\n)", "    MiB,\n)")},
    ),
    "new row in a comment": Fake(SYMMETRIC, "0.5.23", {SYMM: (ROW, "        # 12: [],\n")}),
    "new row that is not empty": Fake(SYMMETRIC, "0.5.23", {SYMM: (ROW, "        12: [8],\n")}),
    "new multicast test as it was": Fake(
        SYMMETRIC, "0.5.23", {SYMM: (MULTICAST, "handle.multicast_ptr == 0:  # 12")}
    ),
    "new multicast test gone": Fake(SYMMETRIC, "0.5.23", {SYMM: (f"if {MULTICAST}", "if False:")}),
    "new size from elsewhere": Fake(
        SYMMETRIC,
        "0.5.23",
        {
            SYMM: (
                "supported_max_sizes = TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES.get(",
                "supported_max_sizes = {9: {}, 12: None}.get(",
            )
        },
    ),
}


@pytest.mark.parametrize("fake", sorted(FAKES))
def test_fakes_are_refused(fake: str) -> None:
    """All other files are patched, the faked one still compiles, and the assertions say no."""
    name, version, swaps = FAKES[fake]
    after = patched(name, version, release(version))
    for path, (old, new) in swaps.items():
        text = swap(after.text(path), old, new)
        parsed(text)
        after = after.put(path, text)
    assert refused(name, "sglang", version, after)


# -- effects: the fused all-reduce ------------------------------------------------------------

#: For capabilities 8, 9, 10 and 12, of the pristine release.
RUNTIME = dict.fromkeys(SAMPLE, (False, True, True, False)) | {"0.5.1": (False, False, True, False)}
START_UP = {
    "0.5.1": (False, False, True, False),
    "0.5.3.post2": (False, False, True, False),
    "0.5.6": (False, False, True, True),
    "0.5.7": (False, True, True, True),
    "0.5.15": (False, True, True, False),
    "0.5.23": (False, True, True, False),
}


def test_the_fusion_is_open_for_sm120_and_as_before_for_the_others(
    sample: tuple[str, Files],
) -> None:
    version, before = sample
    after = patched(FUSION, version, before)
    for gate, wanted in ((fuses, RUNTIME[version]), (enables_itself, START_UP[version])):
        assert tuple(gate(before, c) for c in CAPABILITIES) == wanted
        assert tuple(gate(after, c) for c in CAPABILITIES) == (*wanted[:3], True)
    assert not fuses(after, 12, flag=False)
    assert not fuses(after, 12, batch=5000)
    assert not enables_itself(after, 12, enable_dp_attention=True)


@pytest.mark.parametrize("version", ["0.5.15", "0.5.23"])
def test_the_third_gate_gives_sm120_a_backend_on_one_node(version: str) -> None:
    """With the first two gates open and this one shut, the server would end."""
    before = release(version)
    after = patched(FUSION, version, before)
    assert [resolves(before, c) for c in CAPABILITIES] == [None, "trtllm", "mnnvl", None]
    assert [resolves(after, c) for c in CAPABILITIES] == [None, "trtllm", "mnnvl", "trtllm"]
    for files, backend, nodes in itertools.product(
        (before, after), ("auto", "mnnvl", "trtllm"), (1, 2)
    ):
        for capability in (8, 9, 10):
            old = resolves(before, capability, backend, nodes=nodes)
            assert resolves(files, capability, backend, nodes=nodes) == old
    assert resolves(after, 12, "trtllm") == "trtllm"
    assert resolves(after, 12, "mnnvl") is None
    assert resolves(after, 12, nodes=2) is None
    for settings in ({"nnodes": 2}, {"moe_a2a_backend": "flashinfer"}, {"tp_size": 1}):
        assert not enables_itself(after, 12, **settings)
    assert enables_itself(after, 10, nnodes=2)


# -- effects: FlashInfer's generator ----------------------------------------------------------


def test_the_old_generator_builds_for_sm120(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.3.1, from its source distribution: the generator stands in another file."""
    before = parts("flashinfer-python", "0.3.1", CONTEXT)
    after = apply(FUSION, "flashinfer-python", "0.3.1", before)
    assert refused(FUSION, "flashinfer-python", "0.3.1", before)
    assert failing(FUSION, "flashinfer-python", "0.3.1", after) == []
    closed = b"No supported CUDA architectures found for major versions [9, 10]."
    assert refusal(before, "12.0", monkeypatch) == closed
    assert generated_flags(after, "12.0a", monkeypatch) == [gencode("120a")]
    for files in (before, after):
        assert generated_flags(files, "9.0a", monkeypatch) == [gencode("90a")]
    text = after.text(OLD_JIT)
    for old, new in (
        ("[9, 10, 12]", "[9, 10]  # [9, 10, 12]"),
        ("[9, 10, 12]", "MAJORS"),
        ("extra_cuda_cflags=nvcc_flags,", "extra_cuda_cflags=[],"),
        ("    nvcc_flags = current_compilation_context", "    current_compilation_context"),
    ):
        fake = after.put(OLD_JIT, swap(text, old, new))
        assert refused(FUSION, "flashinfer-python", "0.3.1", fake)


def test_among_twins_the_right_list_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.6.10 to 0.6.16.post4 hold the same line in three generators.  Here: 0.6.17, which has
    the same three, with what it changed in one of them taken back."""
    opened = parts("flashinfer-python", "0.6.17", CONTEXT)
    text = opened.text(JIT)
    head, name, rest = text.partition("def gen_trtllm_comm_module(")
    closed = rest.replace("[9, 10, 12]", "[9, 10]", 1)
    assert f"{name}{closed}".count("[9, 10]") + head.count("[9, 10]") >= 3
    before = opened.put(JIT, head + name + closed)
    assert refused(FUSION, "flashinfer-python", "0.6.16.post4", before)
    after = apply(FUSION, "flashinfer-python", "0.6.16.post4", before)
    assert after.text(JIT) == text
    assert any("sm_120" in flag for flag in generated_flags(after, "12.0", monkeypatch))
    (twin,) = {line for line in head.splitlines() if "supported_major_versions=[9, 10]" in line}
    wrong = head.replace(twin, twin.replace("10]", "10, 12]")) + name + closed
    assert refused(FUSION, "flashinfer-python", "0.6.16.post4", before.put(JIT, wrong))


# -- effects: the custom all-reduce -----------------------------------------------------------


def test_the_custom_all_reduce_runs_on_sm120_and_as_before_elsewhere(
    sample: tuple[str, Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, before = sample
    after = patched(PCIE, version, before)
    for gpus in (4, 6, 8):
        machine = Machine(12, gpus=gpus)
        assert set_up_custom_all_reduce(before, machine, monkeypatch) == OFF
        assert set_up_custom_all_reduce(after, machine, monkeypatch) == Outcome(True, True, True)
        without = replace(machine, peers=False)
        assert set_up_custom_all_reduce(after, without, monkeypatch) == OFF
    for capability, gpus, nvlink, peers in itertools.product(
        (8, 9, 10), (2, 3, 8), (False, True), (False, True)
    ):
        machine = Machine(capability, gpus, nvlink, peers)
        old = set_up_custom_all_reduce(before, machine, monkeypatch)
        assert set_up_custom_all_reduce(after, machine, monkeypatch) == old
        assert old.on == (gpus != 3 and peers and (nvlink or gpus == 2))


@pytest.mark.parametrize("version", ["0.5.15", "0.5.23"])
def test_the_second_implementation_goes_by_the_same_answer(version: str) -> None:
    files = release(version)
    assert [second_takes_it(files, answer) for answer in (True, False, None)] == [
        True,
        False,
        False,
    ]
    assert CUSTOM_V2 not in patched(PCIE, version, files).changed


# -- effects: torch symmetric memory ----------------------------------------------------------


@pytest.mark.parametrize("version", SAMPLE[1:])
def test_symmetric_memory_runs_two_shot_on_sm120_and_as_before_elsewhere(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = release(version)
    after = patched(SYMMETRIC, version, before)
    shut = "disabled" if version in ("0.5.15", "0.5.23") else "KeyError: 12"
    for gpus, multicast in itertools.product((2, 4, 6, 8), (False, True)):
        old = reduce_symmetrically(before, monkeypatch, 12, gpus, multicast=multicast)
        new = reduce_symmetrically(after, monkeypatch, 12, gpus, multicast=multicast)
        assert (old, new) == (shut, "two_shot")
    multimem = {9: (4, 6, 8), 10: (4, 6, 8) if version == "0.5.23" else (6, 8)}
    for capability, gpus, multicast in itertools.product((8, 9, 10), (2, 3, 4, 8), (False, True)):
        old = reduce_symmetrically(before, monkeypatch, capability, gpus, multicast=multicast)
        assert old == reduce_symmetrically(
            after, monkeypatch, capability, gpus, multicast=multicast
        )
        if capability == 8 or gpus == 3 or not multicast:
            assert old == "disabled"
        else:
            assert old == ("multimem" if gpus in multimem[capability] else "two_shot")
