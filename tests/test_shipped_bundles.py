"""The shipped bundles on the real releases that they are made for.

Three kinds of proof.  The patches: their text is what git makes of the pristine and the
patched file.  The assertions: false on every pristine file and on fakes that look patched,
true on the patched one.  The effect: the releases' own code, executed with stand-ins for
torch and for its neighbours, before and after, without patchkit's evaluator.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import itertools
import logging
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import MagicMock

import pytest

from patchkit import hunks, patchfile
from patchkit.bundles import list_names, read_patch
from patchkit.errors import HunkError
from patchkit.manifest import profile_for, select_variant
from patchkit.model import split
from tests import releases
from tests.conftest import Git
from tests.releases import ROOT
from tests.shipped.effects import (
    OFF,
    Machine,
    Outcome,
    arch_helpers,
    enables_itself,
    fuses,
    gencode,
    generated_flags,
    reduce_symmetrically,
    refusal,
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
    SIZES,
    SYMM,
    Files,
    ReleaseTree,
    apply,
    bundle,
    execute,
    failing,
    find,
    parsed,
    refused,
    swap,
    variant_for,
)

PATCHED = ("sm120-fusion", "pcie-custom-allreduce", "symm-mem-sm120")
SETTINGS = (
    "cuda-graph-max-bs-128",
    "mem-fraction-088",
    "moe-a2a-flashinfer",
    "nccl-few-channels",
    "nccl-tree",
)
#: sglang, and the flashinfer-python that it pins.
PINS = {"0.5.8": "0.6.1", "0.5.8.post1": "0.6.1", "0.5.9": "0.6.3"}
CAPABILITIES = (8, 9, 10, 12)


@pytest.fixture(params=sorted(PINS))
def sglang(request: pytest.FixtureRequest, release_tree: ReleaseTree) -> tuple[str, Files]:
    """A release of sglang and its pristine files."""
    return request.param, Files(release_tree("sglang", request.param))


@pytest.fixture(params=sorted(set(PINS.values())))
def flashinfer(request: pytest.FixtureRequest, release_tree: ReleaseTree) -> tuple[str, Files]:
    return request.param, Files(release_tree("flashinfer-python", request.param))


# -- the bundle directory -----------------------------------------------------------------


def test_the_eight_bundles_are_there() -> None:
    assert sorted(list_names(str(ROOT))) == sorted((*PATCHED, *SETTINGS))
    for name in PATCHED:
        assert bundle(name).targets
        assert bundle(name).lock is not None
    for name in SETTINGS:
        assert not bundle(name).targets
        assert bundle(name).profile.env or bundle(name).profile.args


@pytest.mark.parametrize("name", [*PATCHED, *SETTINGS])
def test_descriptions_say_what_opens_and_what_does_not(name: str) -> None:
    lines = bundle(name).description.splitlines()
    assert sum(line.startswith("Opens: ") for line in lines) == 1
    assert any(line.startswith("Does not: ") for line in lines)
    first = next(i for i, line in enumerate(lines) if line.startswith("Opens: "))
    assert all(line.startswith("Does not: ") for line in lines[first + 1 :] if line)
    assert bundle(name).summary
    assert all(assertion.message for assertion in bundle(name).asserts)


def test_conflicts_are_named_on_both_sides() -> None:
    named = {(name, other) for name in list_names(str(ROOT)) for other in bundle(name).conflicts}
    assert named == {(b, a) for a, b in named}
    assert ("sm120-fusion", "pcie-custom-allreduce") in named
    assert ("sm120-fusion", "moe-a2a-flashinfer") in named


def test_every_patch_file_belongs_to_a_bundle_and_its_lock() -> None:
    used = {
        path
        for name in PATCHED
        for target in bundle(name).targets
        for variant in target.variants
        for path in variant.patches
    }
    there = {
        p.relative_to(ROOT / "patches").as_posix() for p in (ROOT / "patches").rglob("*.patch")
    }
    assert used == there
    assert used == {path for name in PATCHED for path, _ in bundle(name).lock or ()}


@pytest.mark.parametrize("path", sorted((ROOT / "patches").rglob("*.patch")), ids=lambda p: p.stem)
def test_patch_files_have_their_header_and_three_lines_of_context(path: Path) -> None:
    name = path.relative_to(ROOT / "patches").as_posix()
    patch = patchfile.parse(read_patch(str(ROOT), bundle(name.split("/")[0]), name), name)
    fields = dict(patch.dep3)
    assert {"Description", "Origin", "Author", "Forwarded", "Last-Update"} <= set(fields)
    assert re.fullmatch(r"2026-11-(29|30)", fields["Last-Update"])
    assert "\n" in fields["Description"]
    for file in patch.files:
        assert file.change == "modify"
        for hunk in file.hunks:
            assert hunk.leading == 3
            # The table of sizes ends one line behind its last row.
            last = file.path.endswith("/all_reduce_utils.py")
            assert hunk.trailing == (1 if last else 3)


@pytest.mark.parametrize("name", PATCHED)
def test_patches_are_what_git_makes_of_the_two_files(
    name: str, sglang: tuple[str, Files], release_tree: ReleaseTree, git: Git, tmp_path: Path
) -> None:
    """Headings, line numbers and blob ids are those of the real files."""
    version, files = sglang
    trees = {
        "sglang": (version, files, "python/"),
        "flashinfer-python": (
            PINS[version],
            Files(release_tree("flashinfer-python", PINS[version])),
            "",
        ),
    }
    for target in bundle(name).targets:
        release, pristine, prefix = trees[target.distribution]
        variant = select_variant(target, release)
        assert variant is not None
        for number, path in enumerate(variant.patches):
            made_for = path.split("/")[1].removeprefix(f"{target.distribution}-")
            if made_for != release:
                continue
            repository = tmp_path / f"{target.distribution}-{number}"
            repository.mkdir()
            git(repository, "init", "--quiet")
            data = read_patch(str(ROOT), bundle(name), path)
            patch = patchfile.parse(data, path)
            before: dict[Path, bytes] = {}
            for file in patch.files:
                place = repository / file.path[2:]
                relative = file.path[len(prefix) + 2 :]
                before[place] = pristine.text(relative).encode()
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(before[place])
            git(repository, "add", "--all")
            for file in patch.files:
                lines = split(before[repository / file.path[2:]])
                hunks.apply_hunks(lines, file.hunks)
                (repository / file.path[2:]).write_bytes(b"".join(lines))
            made = git(repository, "diff", "--full-index", "--no-color")
            assert data.decode().endswith("\n\n" + made)
            assert data.decode().count("diff --git") == len(patch.files)


@pytest.mark.parametrize("name", PATCHED)
def test_applying_twice_is_refused(name: str, sglang: tuple[str, Files]) -> None:
    version, files = sglang
    once = apply(name, "sglang", version, files)
    with pytest.raises(HunkError) as caught:
        apply(name, "sglang", version, once)
    assert caught.value.code == "already-applied"


# -- what the assertions say --------------------------------------------------------------


@pytest.mark.parametrize("name", PATCHED)
def test_pristine_fails_and_patched_passes(name: str, sglang: tuple[str, Files]) -> None:
    version, files = sglang
    assert refused(name, "sglang", version, files)
    assert failing(name, "sglang", version, apply(name, "sglang", version, files)) == []


def test_pristine_flashinfer_fails_and_patched_passes(flashinfer: tuple[str, Files]) -> None:
    version, files = flashinfer
    assert failing("sm120-fusion", "flashinfer-python", version, files)
    patched = apply("sm120-fusion", "flashinfer-python", version, files)
    assert failing("sm120-fusion", "flashinfer-python", version, patched) == []


def wheel_files(version: str, folder: Path) -> Files:
    """The two files of a flashinfer wheel that the gate is made of, without unpacking it."""
    with zipfile.ZipFile(releases.wheel("flashinfer-python", version)) as archive:
        for path in (JIT, CONTEXT):
            archive.extract(path, folder)
    return Files(folder)


@pytest.mark.parametrize("version", ["0.6.2", "0.6.4"])
def test_the_flashinfer_variant_covers_what_it_claims(version: str, tmp_path: Path) -> None:
    files = wheel_files(version, tmp_path)
    patched = apply("sm120-fusion", "flashinfer-python", version, files)
    assert failing("sm120-fusion", "flashinfer-python", version, patched) == []


def test_flashinfer_0_6_17_needs_no_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = variant_for("sm120-fusion", "flashinfer-python", "0.6.17")
    assert variant is not None
    assert variant.upstream
    files = wheel_files("0.6.17", tmp_path)
    assert failing("sm120-fusion", "flashinfer-python", "0.6.17", files) == []
    assert any("sm_120" in f for f in generated_flags(files, "12.0", monkeypatch))


@pytest.mark.parametrize(
    ("distribution", "version"),
    [
        ("sglang", "0.5.0rc2"),
        ("sglang", "0.5.23.post1"),
        ("sglang", "0.5.24"),
        ("flashinfer-python", "0.2.11.post2"),
    ],
)
def test_no_variant_claims_a_release_that_was_not_tried(distribution: str, version: str) -> None:
    assert [variant_for(name, distribution, version) for name in PATCHED] == [None] * 3


# -- fakes: what a text search takes for the patch ----------------------------------------

Fake = Callable[[Files, Files], Files]
FAKES: dict[str, dict[str, Fake]] = {}


def fake(group: str, *, file: str) -> Callable[[Callable[[str, str], str]], Callable[..., str]]:
    """Register a fake: a function of the pristine and of the patched text of ``file``."""

    def register(make: Callable[[str, str], str]) -> Callable[..., str]:
        def build(pristine: Files, patched: Files) -> Files:
            base = replace(patched, changed={**patched.changed})
            return base.put(file, make(pristine.text(file), patched.text(file)))

        FAKES.setdefault(group, {})[make.__name__.replace("_", "-")] = build
        return make

    return register


OLD_GATE = "(_is_sm90_supported or _is_sm100_supported)\n"
NEW_GATE = "(_is_sm90_supported or _is_sm100_supported or _is_sm120_supported)\n"
IMPORT_120 = "    is_sm120_supported,\n"
NAME_120 = "_is_sm120_supported = _is_cuda and is_sm120_supported()\n"
GATE_DEF = "def apply_flashinfer_allreduce_fusion(batch_size: int):\n"


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def comment_only(pristine: str, patched: str) -> str:
    text = swap(pristine, OLD_GATE, OLD_GATE[:-1] + "  # or _is_sm120_supported\n")
    return text + "# _is_sm120_supported = _is_cuda and is_sm120_supported()\n"


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def name_undefined(pristine: str, patched: str) -> str:
    return swap(pristine, OLD_GATE, NEW_GATE)


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def name_set_to_false(pristine: str, patched: str) -> str:
    return swap(patched, NAME_120, "_is_sm120_supported = False\n")


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def helper_not_imported(pristine: str, patched: str) -> str:
    return swap(patched, IMPORT_120, "")


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def in_a_string(pristine: str, patched: str) -> str:
    return swap(pristine, GATE_DEF, GATE_DEF + f'    """{NEW_GATE}    """\n')


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def set_to_false_later(pristine: str, patched: str) -> str:
    return swap(patched, NAME_120, NAME_120 + "_is_sm120_supported = False\n")


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def helper_shadowed(pristine: str, patched: str) -> str:
    shadow = "def is_sm120_supported():\n    return False\n\n"
    return swap(patched, "_is_cuda = is_cuda()\n", shadow + "_is_cuda = is_cuda()\n")


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def in_another_function(pristine: str, patched: str) -> str:
    """The names are there, and another function asks for them."""
    other = f"def _sm120_fusion(batch_size: int):\n    return {NEW_GATE}\n\n"
    return swap(swap(patched, NEW_GATE, OLD_GATE), GATE_DEF, other + GATE_DEF)


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def behind_a_return(pristine: str, patched: str) -> str:
    return swap(patched, GATE_DEF, GATE_DEF + "    return False\n")


@fake("sm120-fusion:communicator", file=COMMUNICATOR)
def shut_by_a_further_term(pristine: str, patched: str) -> str:
    term = "        and get_global_server_args().enable_flashinfer_allreduce_fusion\n"
    return swap(patched, term, term + "        and not _is_sm120_supported\n")


@fake("sm120-fusion:communicator", file=COMMON)
def helper_not_there(pristine: str, patched: str) -> str:
    return swap(pristine, "\nis_sm120_supported = ", "\nis_sm121_supported = ")


OLD_AUTO = "            and (is_sm90_supported() or is_sm100_supported())\n"
NEW_AUTO = "            and (is_sm90_supported() or is_sm100_supported() or is_sm120_supported())\n"


@fake("sm120-fusion:server-args", file=SERVER_ARGS)
def auto_comment_only(pristine: str, patched: str) -> str:
    return swap(pristine, OLD_AUTO, OLD_AUTO[:-1] + "  # or is_sm120_supported()\n")


@fake("sm120-fusion:server-args", file=SERVER_ARGS)
def auto_name_undefined(pristine: str, patched: str) -> str:
    return swap(patched, NEW_AUTO, NEW_AUTO.replace("is_sm120_supported()", "_is_sm120()"))


@fake("sm120-fusion:server-args", file=SERVER_ARGS)
def auto_set_to_false(pristine: str, patched: str) -> str:
    new = NEW_AUTO.replace("is_sm120_supported()", "_sm120")
    text = swap(patched, NEW_AUTO, new)
    return swap(text, "# Define constants\n", "_sm120 = False\n# Define constants\n")


@fake("sm120-fusion:server-args", file=SERVER_ARGS)
def auto_helper_not_imported(pristine: str, patched: str) -> str:
    return swap(patched, IMPORT_120, "")


@fake("sm120-fusion:server-args", file=SERVER_ARGS)
def auto_helper_shadowed(pristine: str, patched: str) -> str:
    mark = "# Define constants\n"
    return swap(patched, mark, "is_sm120_supported = lambda: False\n" + mark)


@fake("sm120-fusion:server-args", file=SERVER_ARGS)
def auto_in_a_string(pristine: str, patched: str) -> str:
    return swap(pristine, OLD_AUTO, OLD_AUTO + f"            and {NEW_AUTO.strip()[4:]!r}\n")


@fake("sm120-fusion:server-args", file=SERVER_ARGS)
def auto_elsewhere(pristine: str, patched: str) -> str:
    """The text that the pristine file has for another feature, and more of it."""
    old = "if is_sm100_supported() or is_sm120_supported():"
    return swap(
        pristine, old, "if is_sm90_supported() or is_sm100_supported() or is_sm120_supported():"
    )


@fake("sm120-fusion:server-args", file=SERVER_ARGS)
def auto_shut_by_a_further_term(pristine: str, patched: str) -> str:
    head, tail = patched.split(NEW_AUTO)
    term = '            and self.moe_a2a_backend == "none"\n'
    return (
        head + NEW_AUTO + tail.replace(term, term + "            and not is_sm120_supported()\n", 1)
    )


OLD_LIST = "        supported_major_versions=[9, 10]\n"
NEW_LIST = "        supported_major_versions=[9, 10, 12]\n"
GENERATOR_DEF = "def gen_trtllm_comm_module() -> JitSpec:\n"


@fake("sm120-fusion:jit", file=JIT)
def list_in_a_comment(pristine: str, patched: str) -> str:
    return swap(pristine, OLD_LIST, OLD_LIST[:-1] + "  # [9, 10, 12]\n")


@fake("sm120-fusion:jit", file=JIT)
def list_in_a_string(pristine: str, patched: str) -> str:
    return swap(pristine, GENERATOR_DEF, f'{GENERATOR_DEF}    """{NEW_LIST.strip()}"""\n')


@fake("sm120-fusion:jit", file=JIT)
def list_in_another_function(pristine: str, patched: str) -> str:
    call = "current_compilation_context.get_nvcc_flags_list(\n" + NEW_LIST + "    )\n"
    other = "def gen_vllm_comm_module() -> JitSpec:\n"
    return swap(pristine, other, other + "    nvcc_flags = " + call)


@fake("sm120-fusion:jit", file=JIT)
def list_undefined(pristine: str, patched: str) -> str:
    return swap(pristine, OLD_LIST, "        supported_major_versions=MAJORS_WITH_12\n")


@fake("sm120-fusion:jit", file=JIT)
def list_of_another_name(pristine: str, patched: str) -> str:
    text = swap(pristine, GENERATOR_DEF, GENERATOR_DEF + "    supported = [9, 10, 12]\n")
    return swap(text, OLD_LIST, OLD_LIST)


@fake("sm120-fusion:jit", file=JIT)
def list_not_used(pristine: str, patched: str) -> str:
    local = "    supported_major_versions = [9, 10, 12]\n"
    return swap(pristine, GENERATOR_DEF, GENERATOR_DEF + local)


@fake("sm120-fusion:jit", file=JIT)
def list_asked_and_thrown_away(pristine: str, patched: str) -> str:
    text = swap(patched, "    nvcc_flags = current", "    current")
    again = "    nvcc_flags = current_compilation_context.get_nvcc_flags_list([9, 10])\n"
    return swap(text, NEW_LIST + "    )\n", NEW_LIST + "    )\n" + again)


@fake("sm120-fusion:jit", file=JIT)
def list_without_9(pristine: str, patched: str) -> str:
    return swap(patched, NEW_LIST, NEW_LIST.replace("9, ", ""))


@fake("sm120-fusion:jit", file=JIT)
def list_of_strings(pristine: str, patched: str) -> str:
    return swap(patched, NEW_LIST, NEW_LIST.replace("12", '"12"'))


FLAG_IF = "            if _is_cuda and torch.cuda.get_device_capability(self.device)[0] == 12:\n"
FLAG_SET = FLAG_IF + "                full_nvlink = True\n"
EARLY = "        if world_size > 2 and not full_nvlink:\n"
FOUND = "            full_nvlink = is_full_nvlink(physical_device_ids, world_size)\n"


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def flag_in_a_comment(pristine: str, patched: str) -> str:
    return swap(patched, FLAG_SET, "".join(f"# {line}\n" for line in FLAG_SET.splitlines()))


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def flag_name_undefined(pristine: str, patched: str) -> str:
    return swap(patched, FLAG_IF, "            if _is_sm120_supported:\n")


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def flag_set_to_false(pristine: str, patched: str) -> str:
    return swap(patched, "full_nvlink = True\n", "full_nvlink = False\n")


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def flag_helper_not_imported(pristine: str, patched: str) -> str:
    return swap(patched, "    is_full_nvlink,\n", "")


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def flag_in_a_string(pristine: str, patched: str) -> str:
    return swap(patched, FLAG_SET, f'            """{FLAG_SET}            """\n')


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def early_return_gone(pristine: str, patched: str) -> str:
    """Without the flag: the kernel launches nothing for more than two GPUs."""
    return swap(pristine, EARLY, "        if False:\n")


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def both_python_tests_opened(pristine: str, patched: str) -> str:
    text = swap(pristine, EARLY, "        if False:\n")
    return swap(text, "if self.world_size == 2 or self.full_nvlink:", "if True:")


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def flag_set_too_late(pristine: str, patched: str) -> str:
    text = swap(patched, FLAG_SET, "")
    later = "        # test P2P capability, this checks software/cudaruntime support\n"
    return swap(text, later, _dedent(FLAG_SET) + later)


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def flag_for_every_architecture(pristine: str, patched: str) -> str:
    return swap(patched, FLAG_SET, "            full_nvlink = True\n")


@fake("pcie-custom-allreduce:custom", file=CUSTOM)
def kernel_told_otherwise(pristine: str, patched: str) -> str:
    return swap(
        patched,
        "self.meta_ptrs, self.rank_data, rank, self.full_nvlink\n",
        "self.meta_ptrs, self.rank_data, rank, False\n",
    )


def _dedent(text: str) -> str:
    return "".join(line[4:] for line in text.splitlines(keepends=True))


MULTIMEM_12 = "        12: [],\n"
MULTICAST_OLD = "        if handle.multicast_ptr == 0:\n"
MULTICAST_NEW = "        if handle.multicast_ptr == 0 and self.device_capability != 12:\n"


@fake("symm-mem-sm120:comm", file=SYMM)
def rows_in_comments(pristine: str, patched: str) -> str:
    text = swap(pristine, "        10: [6, 8],\n", "        10: [6, 8],  # 12: [],\n")
    return swap(text, MULTICAST_OLD, MULTICAST_OLD[:-1] + "  # and self.device_capability != 12\n")


@fake("symm-mem-sm120:comm", file=SYMM)
def first_table_alone(pristine: str, patched: str) -> str:
    return pristine


@fake("symm-mem-sm120:comm", file=SYMM)
def both_tables_without_the_exemption(pristine: str, patched: str) -> str:
    return swap(patched, MULTICAST_NEW, MULTICAST_OLD)


@fake("symm-mem-sm120:comm", file=SYMM)
def exemption_without_the_row(pristine: str, patched: str) -> str:
    return swap(patched, MULTIMEM_12, "")


@fake("symm-mem-sm120:comm", file=SYMM)
def row_of_a_string(pristine: str, patched: str) -> str:
    return swap(patched, MULTIMEM_12, '        "12": [],\n')


@fake("symm-mem-sm120:comm", file=SYMM)
def exemption_by_an_undefined_name(pristine: str, patched: str) -> str:
    return swap(patched, "and self.device_capability != 12", "and not _is_sm120_supported")


@fake("symm-mem-sm120:comm", file=SYMM)
def exemption_for_every_architecture(pristine: str, patched: str) -> str:
    return swap(patched, MULTICAST_NEW, "        if False:\n")


@fake("symm-mem-sm120:comm", file=SYMM)
def table_not_imported(pristine: str, patched: str) -> str:
    block = (
        "from sglang.srt.distributed.device_communicators.all_reduce_utils import (\n"
        "    TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES,\n)\n"
    )
    return swap(patched, block, "")


ROW_10 = "    10: {\n"


@fake("symm-mem-sm120:sizes", file=SIZES)
def sizes_in_a_comment(pristine: str, patched: str) -> str:
    return swap(pristine, ROW_10, "    # 12: {2: 64 * MiB, 8: 128 * MiB},\n" + ROW_10)


@fake("symm-mem-sm120:sizes", file=SIZES)
def sizes_in_a_string(pristine: str, patched: str) -> str:
    return pristine + f'\n_DRAFT = """{patched}"""\n'


@fake("symm-mem-sm120:sizes", file=SIZES)
def sizes_under_another_name(pristine: str, patched: str) -> str:
    return pristine + "\n" + swap(
        patched, "TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES", "SM120_MAX_SIZES"
    )  # fmt: skip


@fake("symm-mem-sm120:sizes", file=SIZES)
def sizes_by_a_string(pristine: str, patched: str) -> str:
    return swap(patched, "    12: {\n", '    "12": {\n')


@fake("symm-mem-sm120:sizes", file=SIZES)
def sizes_of_an_undefined_name(pristine: str, patched: str) -> str:
    return swap(pristine, "    },\n}\n", "    },\n    **_SM120_SIZES,\n}\n")


@fake("symm-mem-sm120:sizes", file=SIZES)
def sizes_empty(pristine: str, patched: str) -> str:
    return swap(pristine, "    },\n}\n", "    },\n    12: {},\n}\n")


@fake("symm-mem-sm120:sizes", file=SIZES)
def sizes_of_the_128_kind(pristine: str, patched: str) -> str:
    """The text search for 12 that 37 real releases satisfy."""
    return pristine


CASES = [
    pytest.param(group, name, id=f"{group.partition(':')[2]}-{name}")
    for group, members in FAKES.items()
    for name in members
]


#: Text searches that somebody would write, and that every fake satisfies.
GREPS = {COMMUNICATOR: "(?i)sm120", SERVER_ARGS: "(?i)sm120", JIT: "12", SYMM: "12", SIZES: "12"}


def test_there_are_five_fakes_for_every_file() -> None:
    assert {group: len(members) >= 5 for group, members in FAKES.items()} == {
        "sm120-fusion:communicator": True,
        "sm120-fusion:server-args": True,
        "sm120-fusion:jit": True,
        "pcie-custom-allreduce:custom": True,
        "symm-mem-sm120:comm": True,
        "symm-mem-sm120:sizes": True,
    }


@pytest.mark.parametrize("release", sorted(PINS))
@pytest.mark.parametrize(("group", "name"), CASES)
def test_fakes_are_refused(group: str, name: str, release: str, release_tree: ReleaseTree) -> None:
    """All other files of the bundle are patched, and the assertions still say no."""
    distribution = "flashinfer-python" if group.endswith(":jit") else "sglang"
    version = PINS[release] if group.endswith(":jit") else release
    of = group.partition(":")[0]
    pristine = Files(release_tree(distribution, version))
    faked = FAKES[group][name](pristine, apply(of, distribution, version, pristine))
    for path, data in faked.changed.items():
        parsed(data.decode())
        if path in GREPS:
            assert re.search(GREPS[path], data.decode())
    assert refused(of, distribution, version, faked)


# -- the effect: fused all-reduce in sglang -------------------------------------------------


def test_the_fusion_is_open_for_sm120_and_as_before_for_the_others(
    sglang: tuple[str, Files],
) -> None:
    version, before = sglang
    after = apply("sm120-fusion", "sglang", version, before)
    for gate in (fuses, enables_itself):
        assert [gate(before, c) for c in CAPABILITIES] == [False, True, True, False]
        assert [gate(after, c) for c in CAPABILITIES] == [False, True, True, True]


def test_the_fusion_keeps_its_other_terms(sglang: tuple[str, Files]) -> None:
    version, before = sglang
    after = apply("sm120-fusion", "sglang", version, before)
    assert not fuses(after, 12, flag=False)
    assert not fuses(after, 12, batch=0)
    assert fuses(after, 12, batch=2048)
    assert not fuses(after, 12, batch=2049)
    for settings in (
        {"enable_dp_attention": True},
        {"nnodes": 2},
        {"moe_a2a_backend": "flashinfer"},
        {"model_arch": "LlamaForCausalLM"},
    ):
        assert not enables_itself(after, 12, **settings)


def test_the_helper_asks_for_cuda_12_8(sglang: tuple[str, Files]) -> None:
    _, files = sglang
    assert arch_helpers(files, 12)["is_sm120_supported"]()
    assert not arch_helpers(files, 12, cuda="12.6")["is_sm120_supported"]()
    assert not arch_helpers(files, 10)["is_sm120_supported"]()


def test_a_fake_that_lacks_the_import_does_not_run(sglang: tuple[str, Files]) -> None:
    """The stand-ins would not hide it: names come from the file's own imports."""
    version, before = sglang
    after = apply("sm120-fusion", "sglang", version, before)
    broken = FAKES["sm120-fusion:communicator"]["helper-not-imported"](before, after)
    with pytest.raises(NameError, match="is_sm120_supported"):
        fuses(broken, 12)


# -- the effect: FlashInfer's generator -----------------------------------------------------


def test_the_generator_builds_for_sm120(
    flashinfer: tuple[str, Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, before = flashinfer
    after = apply("sm120-fusion", "flashinfer-python", version, before)
    closed = b"No supported CUDA architectures found for major versions [9, 10]."
    opened = b"No supported CUDA architectures found for major versions [9, 10, 12]."

    assert refusal(before, "12.0", monkeypatch) == closed
    assert refusal(before, "12.0a", monkeypatch) == closed
    assert generated_flags(after, "12.0", monkeypatch) == [gencode("120")]
    assert generated_flags(after, "12.0a", monkeypatch) == [gencode("120a")]

    both = "9.0a 12.0a"
    assert generated_flags(before, both, monkeypatch) == [gencode("90a")]
    assert sorted(generated_flags(after, both, monkeypatch)) == [gencode("120a"), gencode("90a")]

    assert refusal(before, "8.9", monkeypatch) == closed
    assert refusal(after, "8.9", monkeypatch) == opened

    for archs, flag in (("9.0a", "90a"), ("10.0a", "100a")):
        for files in (before, after):
            assert generated_flags(files, archs, monkeypatch) == [gencode(flag)]


def test_only_the_one_generator_changes(flashinfer: tuple[str, Files]) -> None:
    version, before = flashinfer
    after = apply("sm120-fusion", "flashinfer-python", version, before)
    old, new = parsed(before.text(JIT)), parsed(after.text(JIT))
    changed = {
        a.name  # type: ignore[attr-defined]
        for a, b in zip(old.body, new.body, strict=True)
        if ast.dump(a) != ast.dump(b)
    }
    assert changed == {"gen_trtllm_comm_module"}


# -- the effect: the custom all-reduce --------------------------------------------------------


def test_the_custom_all_reduce_runs_on_more_than_two_sm120_gpus(
    sglang: tuple[str, Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, before = sglang
    after = apply("pcie-custom-allreduce", "sglang", version, before)
    for gpus in (4, 6, 8):
        machine = Machine(12, gpus=gpus)
        assert set_up_custom_all_reduce(before, machine, monkeypatch) == OFF
        assert set_up_custom_all_reduce(after, machine, monkeypatch) == Outcome(True, True, True)
        without = replace(machine, peers=False)
        assert set_up_custom_all_reduce(after, without, monkeypatch) == OFF


def test_the_custom_all_reduce_is_as_before_elsewhere(
    sglang: tuple[str, Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, before = sglang
    after = apply("pcie-custom-allreduce", "sglang", version, before)
    seen = set()
    for capability, gpus, nvlink, peers in itertools.product(
        (8, 9, 10), (2, 3, 4, 6, 8), (False, True), (False, True)
    ):
        machine = Machine(capability, gpus, nvlink, peers)
        old = set_up_custom_all_reduce(before, machine, monkeypatch)
        assert set_up_custom_all_reduce(after, machine, monkeypatch) == old, machine
        assert old.on == (gpus != 3 and peers and (nvlink or gpus == 2)), machine
        seen.add(old.on)
    assert seen == {False, True}


def test_two_sm120_gpus_are_let_in_before_and_after(
    sglang: tuple[str, Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, before = sglang
    after = apply("pcie-custom-allreduce", "sglang", version, before)
    for files in (before, after):
        outcome = set_up_custom_all_reduce(files, Machine(12, gpus=2), monkeypatch)
        assert outcome.on
        assert outcome.takes_a_message


def nvlink_slice(files: Files, machine: Machine) -> bool | None:
    """The statements from where the flag is found out to the early return; None: sent away."""
    body = find(find(parsed(files.text(CUSTOM)), "CustomAllreduce"), "__init__").body
    (start,) = [
        number
        for number, node in enumerate(body)
        if isinstance(node, ast.If) and "is_full_nvlink(" in ast.unparse(node)
    ]
    gate = body[start + 1]
    assert ast.unparse(gate).startswith("if world_size > 2 and (not full_nvlink):")
    function = ast.parse("def run(self, world_size, physical_device_ids): return full_nvlink")
    function.body[0].body[:0] = body[start : start + 2]  # type: ignore[attr-defined]
    namespace: dict[str, Any] = {
        "_is_cuda": machine.platform == "cuda",
        "_is_hip": machine.platform == "hip",
        "_is_musa": machine.platform == "musa",
        "is_full_nvlink": lambda ids, count: machine.nvlink,
        "logger": logging.getLogger("test"),
        "torch": SimpleNamespace(
            cuda=SimpleNamespace(get_device_capability=lambda device: (machine.capability, 0))
        ),
    }
    execute(function.body, namespace)
    run = namespace["run"]
    result: bool | None = run(SimpleNamespace(device=0), machine.gpus, list(range(machine.gpus)))
    return result


def test_the_flag_is_for_cuda_alone(sglang: tuple[str, Files]) -> None:
    version, before = sglang
    after = apply("pcie-custom-allreduce", "sglang", version, before)
    assert [nvlink_slice(before, Machine(c)) for c in CAPABILITIES] == [None] * 4
    assert [nvlink_slice(after, Machine(c)) for c in CAPABILITIES] == [None, None, None, True]
    platforms: list[Literal["hip", "musa"]] = ["hip"]
    if version == "0.5.9":
        platforms.append("musa")
    for platform, nvlink in itertools.product(platforms, (False, True)):
        # Their capabilities are numbers of another kind, and 12 may be one of them.
        machine = Machine(12, nvlink=nvlink, platform=platform)
        assert nvlink_slice(after, machine) == nvlink_slice(before, machine)
        assert nvlink_slice(after, machine) == (True if nvlink else None)


# -- the effect: torch symmetric memory --------------------------------------------------------


def test_symmetric_memory_runs_two_shot_on_sm120(
    sglang: tuple[str, Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, before = sglang
    after = apply("symm-mem-sm120", "sglang", version, before)
    for gpus, multicast in itertools.product((2, 4, 6, 8), (False, True)):
        old = reduce_symmetrically(before, monkeypatch, 12, gpus, multicast=multicast)
        new = reduce_symmetrically(after, monkeypatch, 12, gpus, multicast=multicast)
        assert (old, new) == ("KeyError: 12", "two_shot")
    assert reduce_symmetrically(after, monkeypatch, 12, 3, multicast=False) == "disabled"


def test_symmetric_memory_is_as_before_elsewhere(
    sglang: tuple[str, Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, before = sglang
    after = apply("symm-mem-sm120", "sglang", version, before)
    multimem = {9: (4, 6, 8), 10: (6, 8)}
    for capability, gpus, multicast in itertools.product(
        (8, 9, 10), (2, 3, 4, 6, 8), (False, True)
    ):
        old = reduce_symmetrically(before, monkeypatch, capability, gpus, multicast=multicast)
        new = reduce_symmetrically(after, monkeypatch, capability, gpus, multicast=multicast)
        assert new == old
        if capability == 8 or gpus == 3 or not multicast:
            assert old == "disabled"
        else:
            assert old == ("multimem" if gpus in multimem[capability] else "two_shot")


def test_a_part_of_the_symmetric_memory_bundle_has_no_effect(
    sglang: tuple[str, Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the facts say of the rows alone, and what the fakes above stand for."""
    version, before = sglang
    after = apply("symm-mem-sm120", "sglang", version, before)
    members = FAKES["symm-mem-sm120:comm"]
    one = members["first-table-alone"](before, after)
    assert reduce_symmetrically(one, monkeypatch, 12, multicast=False) == "disabled"
    assert reduce_symmetrically(one, monkeypatch, 12, multicast=True) == "KeyError: 12"
    both = members["both-tables-without-the-exemption"](before, after)
    assert reduce_symmetrically(both, monkeypatch, 12, multicast=False) == "disabled"
    assert reduce_symmetrically(both, monkeypatch, 12, multicast=True) == "two_shot"


def test_what_the_communicator_declines_can_reach_it_in_place(sglang: tuple[str, Files]) -> None:
    """The description's warning: outside graphs NCCL is off there, and the sum is dropped."""
    _, files = sglang
    calls: list[str] = []
    namespace: dict[str, Any] = {
        "torch": SimpleNamespace(
            Tensor=object,
            distributed=SimpleNamespace(all_reduce=lambda *_, **__: calls.append("distributed")),
        )
    }
    execute([find(parsed(files.text(PARALLEL_STATE)), "_all_reduce_in_place")], namespace)
    communicator = SimpleNamespace(disabled=False, all_reduce=lambda tensor: calls.append("symm"))
    group = SimpleNamespace(
        pynccl_comm=SimpleNamespace(disabled=True),
        torch_symm_mem_comm=communicator,
        device_group=None,
    )
    assert namespace["_all_reduce_in_place"](group, object()) is None
    assert calls == ["symm"]


# -- the settings -----------------------------------------------------------------------------


def launch_parser(files: Files, fields: Sequence[str]) -> argparse.ArgumentParser:
    """The release's own ``add_argument`` statements for these fields, in a real parser."""
    tree = parsed(files.text(SERVER_ARGS))
    cls = find(tree, "ServerArgs")
    defaults = {
        node.target.id: ast.literal_eval(node.value)
        for node in cls.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    parser = argparse.ArgumentParser(exit_on_error=False)
    namespace: dict[str, Any] = {"parser": parser, "ServerArgs": SimpleNamespace(**defaults)}
    execute(
        [
            node
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("_CHOICES")
            and isinstance(node.value, ast.List)
        ],
        namespace,
    )  # fmt: skip
    statements = [
        node
        for node in find(cls, "add_cli_args").body
        if isinstance(node, ast.Expr)
        and any(
            f"default=ServerArgs.{name}" in ast.unparse(node).replace(",", " ").split()
            for name in fields
        )
    ]
    assert len(statements) == len(fields)
    execute(statements, namespace)
    return parser


SETTING_VALUES: dict[str, dict[str, Any]] = {
    "cuda-graph-max-bs-128": {"cuda_graph_max_bs": 128},
    "mem-fraction-088": {"mem_fraction_static": 0.88},
    "moe-a2a-flashinfer": {
        "moe_a2a_backend": "flashinfer",
        "moe_runner_backend": "flashinfer_cutlass",
    },
}


@pytest.mark.parametrize("name", sorted(SETTING_VALUES))
def test_settings_are_what_the_server_understands(name: str, sglang: tuple[str, Files]) -> None:
    version, files = sglang
    env, args = profile_for(bundle(name), {"sglang": version})
    assert env == {}
    wanted = SETTING_VALUES[name]
    parser = launch_parser(files, sorted(wanted))
    if name == "moe-a2a-flashinfer" and version != "0.5.9":
        with pytest.raises(argparse.ArgumentError, match="invalid choice: 'flashinfer'"):
            parser.parse_args(list(args))
        assert any("0.5.9" in message for message in failing(name, "sglang", version, files))
        return
    parsed = vars(parser.parse_args(list(args)))
    assert {key: parsed[key] for key in wanted} == wanted
    assert failing(name, "sglang", version, files) == []


def test_the_all_to_all_backend_asks_for_the_runner(release_tree: ReleaseTree) -> None:
    """The release's own start-up check: refuses the default runner, takes the bundle's."""
    files = Files(release_tree("sglang", "0.5.9"))
    namespace: dict[str, Any] = {
        "logger": logging.getLogger("test"),
        "os": os,
        "envs": MagicMock(),
        "get_int_env_var": lambda name, default: default,
    }
    execute([find(parsed(files.text(SERVER_ARGS)), "_handle_a2a_moe")], namespace)
    settings = SimpleNamespace(
        moe_a2a_backend="flashinfer",
        moe_runner_backend="auto",
        tp_size=8,
        ep_size=1,
        deepep_mode="auto",
        disable_shared_experts_fusion=False,
    )
    with pytest.raises(AssertionError, match="flashinfer_cutlass"):
        namespace["_handle_a2a_moe"](settings)
    settings.moe_runner_backend = "flashinfer_cutlass"
    namespace["_handle_a2a_moe"](settings)
    assert settings.ep_size == 8
    assert settings.disable_shared_experts_fusion
    after = apply("sm120-fusion", "sglang", "0.5.9", files)
    assert not enables_itself(after, 12, moe_a2a_backend="flashinfer")


def test_the_flag_for_cuda_graphs_follows_the_release() -> None:
    profile = bundle("cuda-graph-max-bs-128")
    for version in ("0.5.8", "0.5.8.post1", "0.5.9", "0.5.13.post1"):
        assert profile_for(profile, {"sglang": version})[1] == ("--cuda-graph-max-bs", "128")
    for version in ("0.5.14", "0.5.20", "0.5.23"):
        args = ("--cuda-graph-max-bs-decode", "128")
        assert profile_for(profile, {"sglang": version})[1] == args


def test_settings_of_nccl() -> None:
    few = {
        "NCCL_MIN_NCHANNELS": "1",
        "NCCL_MAX_NCHANNELS": "2",
        "NCCL_BUFFSIZE": "131072",
        "NCCL_NTHREADS": "64",
    }
    assert profile_for(bundle("nccl-few-channels"), {}) == (few, ())
    assert profile_for(bundle("nccl-tree"), {}) == ({"NCCL_ALGO": "Tree"}, ())
    assert profile_for(bundle("symm-mem-sm120"), {}) == ({}, ("--enable-torch-symm-mem",))


FLAG_FAKES: dict[str, Callable[[str, str, str], str]] = {
    "comment": lambda text, fieldname, flag: text.replace(f'"{flag}"', f'"{flag}x",  # "{flag}"'),
    "field gone": lambda text, fieldname, flag: text.replace(f"    {fieldname}: ", "    other: "),
    "field in a comment": lambda text, fieldname, flag: text.replace(
        f"\n    {fieldname}: ", f"\n    # {fieldname}: Optional[int]\n    other: "
    ),
    "another default": lambda text, fieldname, flag: text.replace(
        f"default=ServerArgs.{fieldname},", f"default=None,  # ServerArgs.{fieldname},"
    ),
    "flag renamed": lambda text, fieldname, flag: text.replace(f'"{flag}"', f'"{flag}-decode"'),
}


@pytest.mark.parametrize("fake_name", sorted(FLAG_FAKES))
@pytest.mark.parametrize(
    ("name", "fieldname", "flag"),
    [
        ("cuda-graph-max-bs-128", "cuda_graph_max_bs", "--cuda-graph-max-bs"),
        ("mem-fraction-088", "mem_fraction_static", "--mem-fraction-static"),
    ],
)
def test_servers_without_the_flag_are_refused(
    name: str, fieldname: str, flag: str, fake_name: str, sglang: tuple[str, Files]
) -> None:
    version, files = sglang
    text = files.text(SERVER_ARGS)
    faked = FLAG_FAKES[fake_name](text, fieldname, flag)
    assert faked != text
    assert refused(name, "sglang", version, files.put(SERVER_ARGS, faked))


A2A_FAKES: dict[str, Callable[[str], str]] = {
    "choice in a comment": lambda text: text.replace(
        '    "flashinfer",\n]', '    # "flashinfer",\n]'
    ),
    "runner not offered": lambda text: text.replace('    "flashinfer_cutlass",\n', ""),
    "no handling": lambda text: text.replace(
        'if self.moe_a2a_backend == "flashinfer":', 'if self.moe_a2a_backend == "other":'
    ),
    "handling in a string": lambda text: text.replace(
        'if self.moe_a2a_backend == "flashinfer":',
        "if 'self.moe_a2a_backend == \"flashinfer\"' == self.device:",
    ),
    "another runner asked for": lambda text: text.replace(
        '                "flashinfer_cutlass"\n            ], "Flash',
        '                "flashinfer_trtllm"\n            ], "Flash',
    ),
}


@pytest.mark.parametrize("fake_name", sorted(A2A_FAKES))
def test_servers_without_the_all_to_all_backend_are_refused(
    fake_name: str, release_tree: ReleaseTree
) -> None:
    files = Files(release_tree("sglang", "0.5.9"))
    text = files.text(SERVER_ARGS)
    faked = A2A_FAKES[fake_name](text)
    assert faked != text
    assert refused("moe-a2a-flashinfer", "sglang", "0.5.9", files.put(SERVER_ARGS, faked))


def test_blob_ids_name_the_release(release_tree: ReleaseTree) -> None:
    """The pre-image id in each patch is that of the file in the release's wheel."""
    for name, version in itertools.product(PATCHED, sorted(PINS)):
        variant = variant_for(name, "sglang", version)
        assert variant is not None
        for path in variant.patches:
            for file in patchfile.parse(read_patch(str(ROOT), bundle(name), path), path).files:
                data = (
                    release_tree("sglang", version) / file.path[len("b/python/") :]
                ).read_bytes()
                blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
                assert file.old_blob == blob
