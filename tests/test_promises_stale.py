"""Promise 7: no stale code: neither byte-code nor compiled kernels outlive their source."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import releases
from tests.support.lab import BOLT, KERNEL, Lab, Site
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)

#: The edit is of the same size.
ONE = Dist(
    "single", "1.0", {"single/__init__.py": "", "single/value.py": "a = 0\nVALUE = 1\nb = 0\n"}
)
TWO = {"single/value.py": "a = 0\nVALUE = 2\nb = 0\n"}
VALUE = "single/value.py"
TAG = sys.implementation.cache_tag


def bundle(lab: Lab) -> None:
    lab.bundle("two", {"single": lab.diff({VALUE: ONE.files[VALUE]}, TWO)})


def value(site: Site, *options: str, **env: str) -> str:
    """What a fresh interpreter of the environment finds; it writes byte-code as it does so."""
    clean = {
        key: text
        for key, text in os.environ.items()
        if not key.startswith("PYTHON") and key != "VIRTUAL_ENV"
    }
    done = subprocess.run(
        [str(site.python), *options, "-c", "from single.value import VALUE; print(VALUE)"],
        env={**clean, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def now(site: Site, path: str = VALUE) -> None:
    """The file's time is this very second: an installation a moment ago."""
    os.utime(site / path)


def same_second(site: Site) -> None:
    """Wait for the start of a second, so that all that follows may fall into it."""
    time.sleep(1 - time.time() % 1)
    now(site)


@pytest.mark.parametrize("options", [(), ("-O",), ("-OO",)])
def test_a_fresh_interpreter_runs_what_is_there(lab: Lab, options: tuple[str, ...]) -> None:
    site = lab.venv(ONE)
    bundle(lab)
    for _ in range(2):
        same_second(site)
        assert value(site, *options) == "1"
        lab.run(site, "apply", "two")
        assert value(site, *options) == "2"
        lab.run(site, "revert", "--all")
        assert value(site, *options) == "1"


def cached(site: Site, optimisation: str = "", tag: str = TAG) -> Path:
    return site / f"single/__pycache__/value.{tag}{optimisation}.pyc"


def test_byte_code_of_every_interpreter_and_level_goes(lab: Lab) -> None:
    """Other tags lie in the same folder where an environment is shared."""
    site = lab.venv(ONE)
    bundle(lab)
    value(site)
    value(site, "-O")
    value(site, "-OO")
    data = cached(site).read_bytes()
    for tag in ("cpython-310", "cpython-399", "pypy310"):
        cached(site, tag=tag).write_bytes(data)
        cached(site, ".opt-1", tag).write_bytes(data)
    kept = site / "single/__pycache__/value_of_others.cpython-310.pyc"
    kept.write_bytes(data)
    before = sorted(path.name for path in cached(site).parent.glob("value.*"))
    assert len(before) == 9
    lab.run(site, "apply", "two")
    assert [path.name for path in cached(site).parent.glob("value.*")] == []
    assert kept.exists()
    lab.run(site, "revert", "--all")
    assert sorted(path.name for path in cached(site).parent.glob("value.*")) == before


def test_unchecked_byte_code_does_not_hide_the_patch(lab: Lab) -> None:
    """It is used for ever, whatever the source says."""
    site = lab.venv(ONE)
    bundle(lab)
    py_compile.compile(
        str(site / VALUE),
        cfile=str(cached(site)),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        doraise=True,
    )
    before = site.picture()
    assert value(site) == "1"
    lab.run(site, "apply", "two")
    assert value(site) == "2"
    lab.run(site, "revert", "--all")
    assert (
        site.picture()[f"single/__pycache__/value.{TAG}.pyc"].digest
        == before[f"single/__pycache__/value.{TAG}.pyc"].digest
    ), "the unchecked file is back"
    assert value(site) == "1"


def test_unchecked_byte_code_of_the_patched_source_goes(lab: Lab) -> None:
    """Compiled while the patch was there; after the revert nobody would ever notice."""
    site = lab.venv(ONE)
    bundle(lab)
    lab.run(site, "apply", "two")
    py_compile.compile(
        str(site / VALUE),
        cfile=str(cached(site)),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        doraise=True,
    )
    assert value(site) == "2"
    lab.run(site, "revert", "--all")
    assert value(site) == "1"


def test_existing_byte_code_comes_back_as_it_was(lab: Lab) -> None:
    site = lab.venv(ONE, by_pip=True)
    bundle(lab)
    before = site.picture()
    assert f"single/__pycache__/value.{TAG}.pyc" in before
    lab.run(site, "apply", "two")
    value(site)
    value(site, "-O")
    lab.run(site, "revert", "--all")
    assert [line for line in site.differences(before) if "value" in line] == []
    assert value(site) == "1"


def test_where_there_was_no_byte_code_none_is_left(lab: Lab) -> None:
    """Not even the folder that the interpreter made for it."""
    site = lab.venv(ONE)
    bundle(lab)
    before = site.picture()
    lab.run(site, "apply", "two")
    value(site)
    lab.run(site, "revert", "--all")
    left = [path for path in releases.changed_paths(before, site.picture()) if "value" in path]
    assert left == []


def test_byte_code_of_a_patch_in_between_goes(lab: Lab) -> None:
    """Patched, imported, patched again with the same size."""
    site = lab.venv(ONE)
    bundle(lab)
    three = {VALUE: TWO[VALUE].replace("VALUE = 2", "VALUE = 3")}
    lab.bundle("three", {"single": lab.diff(TWO, three)})
    assert value(site) == "1"
    lab.run(site, "apply", "two")
    assert value(site) == "2"
    lab.run(site, "apply", "three")
    assert value(site) == "3"
    lab.run(site, "revert", "three")
    assert value(site) == "2"
    lab.run(site, "revert", "two")
    assert value(site) == "1"


def test_byte_code_of_an_added_and_of_a_deleted_module(lab: Lab) -> None:
    """An added module leaves nothing; a deleted one cannot be imported from its byte-code."""
    site = lab.venv(ONE)
    added = {"single/extra.py": "x = 1\n"}
    lab.bundle("files", {"single": lab.diff({VALUE: ONE.files[VALUE]}, added, "--no-renames")})
    value(site)
    before = site.picture()
    lab.run(site, "apply", "files")
    subprocess.run([str(site.python), "-c", "import single.extra"], check=True)
    command = [str(site.python), "-c", "import single.value"]
    gone = subprocess.run(command, capture_output=True, check=False)
    assert gone.returncode == 1
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
    assert value(site) == "1"


def test_sourceless_byte_code_beside_the_source(lab: Lab) -> None:
    """``value.pyc`` beside ``value.py`` is never read while the source is there: left alone."""
    site = lab.venv(ONE)
    bundle(lab)
    py_compile.compile(str(site / VALUE), cfile=str(site / "single/value.pyc"), doraise=True)
    before = site.picture()
    lab.run(site, "apply", "two")
    assert value(site) == "2"
    lab.run(site, "revert", "--all")
    assert value(site) == "1"
    changed = [line for line in site.differences(before) if "__pycache__" not in line]
    assert changed == []


def test_a_cache_prefix_that_patchkit_is_told(lab: Lab) -> None:
    site = lab.venv(ONE)
    bundle(lab)
    prefix = lab.folder("pycache")
    env = {"PYTHONPYCACHEPREFIX": str(prefix)}
    same_second(site)
    assert value(site, **env) == "1"
    lab.run(site, "apply", "two", env=env)
    assert value(site, **env) == "2"
    lab.run(site, "revert", "--all", env=env)
    assert value(site, **env) == "1"


def test_a_cache_prefix_that_patchkit_does_not_know(lab: Lab) -> None:
    """So the whole second of a patched file differs from that of the pristine one."""
    site = lab.venv(ONE)
    bundle(lab)
    prefix = lab.folder("pycache")
    for _ in range(3):
        same_second(site)
        assert value(site, PYTHONPYCACHEPREFIX=str(prefix)) == "1"
        second = int((site / VALUE).stat().st_mtime)
        lab.run(site, "apply", "two")
        assert int((site / VALUE).stat().st_mtime) != second
        assert value(site, PYTHONPYCACHEPREFIX=str(prefix)) == "2"
        lab.run(site, "revert", "--all")
        assert value(site, PYTHONPYCACHEPREFIX=str(prefix)) == "1"


def test_two_patched_versions_within_a_second(lab: Lab) -> None:
    """Both are new files; their whole seconds must differ from one another as well."""
    site = lab.venv(ONE)
    bundle(lab)
    three = {VALUE: TWO[VALUE].replace("VALUE = 2", "VALUE = 3")}
    lab.bundle("three", {"single": lab.diff(TWO, three)})
    prefix = {"PYTHONPYCACHEPREFIX": str(lab.folder("pycache"))}
    same_second(site)
    lab.run(site, "apply", "two")
    assert value(site, **prefix) == "2"
    lab.run(site, "apply", "three")
    assert value(site, **prefix) == "3"
    lab.run(site, "revert", "three")
    assert value(site, **prefix) == "2"


def test_reproducible_installs_have_one_time_for_all(lab: Lab) -> None:
    """SOURCE_DATE_EPOCH or a wheel's own dates: the time is long ago, and stays so on revert."""
    site = lab.venv(ONE)
    bundle(lab)
    os.utime(site / VALUE, (315532800, 315532800))
    assert value(site) == "1"
    lab.run(site, "apply", "two")
    assert value(site) == "2"
    lab.run(site, "revert", "--all")
    assert (site / VALUE).stat().st_mtime == 315532800
    assert value(site) == "1"


def test_the_magic_number_is_that_of_this_interpreter(lab: Lab) -> None:
    """A sanity check of the tests: byte-code is written and used at all here."""
    site = lab.venv(ONE)
    value(site)
    assert cached(site).read_bytes()[:4] == importlib.util.MAGIC_NUMBER


# --- kernels that a JIT compiled ---------------------------------------------------------


def kernels(lab: Lab, base: Path, version: str = "0.6.3") -> tuple[Path, Path]:
    """A workspace as FlashInfer lays it out: a named module, and one that nobody named."""
    jit = base / ".cache/flashinfer" / version / "120a"
    for name in ("trtllm_comm", "norm"):
        (jit / "cached_ops" / name).mkdir(parents=True)
        (jit / "cached_ops" / name / f"{name}.so").write_text(f"compiled {name}")
        (jit / "cached_ops" / name / "build.ninja").write_text("rule cc\n")
    return jit / "cached_ops/trtllm_comm", jit / "cached_ops/norm"


def jit_bundle(lab: Lab) -> None:
    lab.bundle(
        "kernel",
        {"bolt-kernels": lab.edit(KERNEL)},
        caches={"flashinfer-jit": ["trtllm_comm"]},
    )


@pytest.mark.parametrize("by", ["variable", "home"])
def test_named_kernels_are_set_aside_on_apply_and_on_revert(lab: Lab, by: str) -> None:
    site = lab.site(BOLT)
    jit_bundle(lab)
    base = lab.folder("workspace")
    env = {"FLASHINFER_WORKSPACE_BASE": str(base)} if by == "variable" else {"HOME": str(base)}
    named, other = kernels(lab, base)
    before = releases.snapshot(other)
    result = lab.run(site, "apply", "kernel", env=env)
    assert not (named / "trtllm_comm.so").exists(), str(result)
    assert "trtllm_comm" in result.stdout + result.stderr
    assert releases.diff_snapshots(before, releases.snapshot(other), releases.IDENTITY) == []
    named.mkdir(parents=True, exist_ok=True)
    (named / "trtllm_comm.so").write_text("compiled from the patched source")
    lab.run(site, "revert", "--all", env=env)
    so = named / "trtllm_comm.so"
    assert not so.exists() or so.read_text() == "compiled trtllm_comm"
    assert releases.diff_snapshots(before, releases.snapshot(other), releases.IDENTITY) == []
    lab.run(site, "verify", "--pristine")


def test_the_json_names_the_caches(lab: Lab) -> None:
    site = lab.site(BOLT)
    jit_bundle(lab)
    base = lab.folder("workspace")
    kernels(lab, base)
    answer = lab.json(site, "apply", "kernel", env={"FLASHINFER_WORKSPACE_BASE": str(base)})
    assert "trtllm_comm" in str(answer["caches"])


def test_a_workspace_that_is_not_there(lab: Lab) -> None:
    site = lab.site(BOLT)
    jit_bundle(lab)
    base = lab.base / "nowhere"
    lab.run(site, "apply", "kernel", env={"FLASHINFER_WORKSPACE_BASE": str(base)})
    assert not base.exists()
    lab.run(site, "revert", "--all", env={"FLASHINFER_WORKSPACE_BASE": str(base), "HOME": None})


def test_a_dry_run_sets_nothing_aside(lab: Lab) -> None:
    site = lab.site(BOLT)
    jit_bundle(lab)
    base = lab.folder("workspace")
    kernels(lab, base)
    before = releases.snapshot(base)
    env = {"FLASHINFER_WORKSPACE_BASE": str(base)}
    lab.run(site, "apply", "--dry-run", "kernel", env=env)
    assert releases.diff_snapshots(before, releases.snapshot(base), releases.IDENTITY) == []
    lab.run(site, "apply", "kernel", env=env)
    kept = releases.snapshot(base)
    lab.run(site, "revert", "--dry-run", "--all", env=env)
    assert releases.diff_snapshots(kept, releases.snapshot(base), releases.IDENTITY) == []


def test_a_refused_apply_leaves_the_kernels(lab: Lab) -> None:
    site = lab.site(BOLT)
    jit_bundle(lab)
    base = lab.folder("workspace")
    kernels(lab, base)
    (site / KERNEL[0]).write_text("edited by hand\n")
    before = releases.snapshot(base)
    lab.run(site, "apply", "kernel", check=3, env={"FLASHINFER_WORKSPACE_BASE": str(base)})
    assert releases.diff_snapshots(before, releases.snapshot(base), releases.IDENTITY) == []


def test_a_named_cache_cannot_lead_out_of_the_workspace(lab: Lab) -> None:
    site = lab.site(BOLT)
    base = lab.folder("workspace")
    kernels(lab, base)
    (lab.base / "precious").mkdir()
    (lab.base / "precious/file").write_text("precious")
    lab.bundle(
        "kernel",
        {"bolt-kernels": lab.edit(KERNEL)},
        caches={"flashinfer-jit": ["../../../../../../precious", "/", "..", "*"]},
    )
    before = releases.snapshot(base)
    lab.run(site, "apply", "kernel", check=3, env={"FLASHINFER_WORKSPACE_BASE": str(base)})
    assert (lab.base / "precious/file").exists()
    assert releases.diff_snapshots(before, releases.snapshot(base), releases.IDENTITY) == []
