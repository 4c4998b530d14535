"""Promise 7: no stale code: neither byte-code nor compiled kernels outlive their source."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchkit.fsio import Root
from tests import releases
from tests.support.lab import BOLT, KERNEL, Lab, Site, unprivileged
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


# --- times -------------------------------------------------------------------------------


def test_a_third_version_has_the_second_of_neither_before_it(lab: Lab) -> None:
    """Byte-code of the pristine module may still lie somewhere that patchkit does not know."""
    site = lab.venv(ONE)
    bundle(lab)
    three = {VALUE: TWO[VALUE].replace("VALUE = 2", "VALUE = 3")}
    lab.bundle("three", {"single": lab.diff(TWO, three)})
    ahead = int(time.time()) + 20
    os.utime(site / VALUE, (ahead, ahead))
    lab.run(site, "apply", "two")
    second = int((site / VALUE).stat().st_mtime)
    assert second > ahead
    os.utime(site / VALUE, (1_000_000_000, 1_000_000_000))
    lab.run(site, "apply", "three")
    assert int((site / VALUE).stat().st_mtime) > ahead


@pytest.mark.parametrize("step", [1, 2])
def test_where_a_file_system_keeps_whole_seconds_or_every_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """FAT keeps every other one: the second after the last one may be the last one again."""
    real = os.utime

    def coarse(path: int, *, ns: tuple[int, int]) -> None:
        unit = step * 1_000_000_000
        real(path, ns=(ns[0] // unit * unit, ns[1] // unit * unit))

    monkeypatch.setattr("patchkit.fsio.os.utime", coarse)
    root = Root(str(tmp_path))
    now = int(time.time())
    taken = {now, now + 1, now + 2}
    root.create("file", b"", 0o644, not_seconds=taken)
    root.close()
    assert int((tmp_path / "file").stat().st_mtime) not in taken


# --- byte-code of every kind -------------------------------------------------------------


KINDS = [(mode, ()) for mode in py_compile.PycInvalidationMode]
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


@pytest.mark.parametrize(("mode", "options"), [*KINDS, (UNCHECKED, ("-O",)), (UNCHECKED, ("-OO",))])
def test_every_kind_of_byte_code_at_every_level(
    lab: Lab, mode: py_compile.PycInvalidationMode, options: tuple[str, ...]
) -> None:
    """Compiled before and while patched, then only while patched; a fresh interpreter decides."""
    site = lab.venv(ONE)
    bundle(lab)
    optimisation = options[0].count("O") if options else 0

    def compiled() -> None:
        source = str(site / VALUE)
        file = importlib.util.cache_from_source(source, optimization=optimisation or "")
        py_compile.compile(source, cfile=file, optimize=optimisation, invalidation_mode=mode)

    same_second(site)
    compiled()
    assert value(site, *options) == "1"
    lab.run(site, "apply", "two")
    assert value(site, *options) == "2"
    compiled()
    lab.run(site, "revert", "--all")
    assert value(site, *options) == "1"
    shutil.rmtree(cached(site).parent)
    lab.run(site, "apply", "two")
    compiled()
    lab.run(site, "revert", "--all")
    assert value(site, *options) == "1"


def test_an_old_time_that_somebody_puts_back(lab: Lab) -> None:
    """A tool that keeps times sets the patched file's to that of the pristine one."""
    site = lab.venv(ONE)
    bundle(lab)
    same_second(site)
    assert value(site) == "1"
    status = (site / VALUE).stat()
    lab.run(site, "apply", "two")
    os.utime(site / VALUE, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert value(site) == "2", "the old byte-code was gone before"
    lab.run(site, "verify", "two")
    lab.run(site, "revert", "--all")
    assert value(site) == "1"


def test_sourceless_byte_code_of_a_module_that_comes_and_of_one_that_goes(lab: Lab) -> None:
    """``value.pyc`` beside it is imported where there is no ``value.py``."""
    site = lab.venv(ONE)
    lab.bundle("goes", {"single": lab.diff({VALUE: ONE.files[VALUE]}, {})})
    lab.bundle("comes", {"single": lab.diff({}, {"single/more.py": "VALUE = 2\n"})})
    py_compile.compile(str(site / VALUE), cfile=str(site / "single/value.pyc"), doraise=True)
    py_compile.compile(str(site / VALUE), cfile=str(site / "single/more.pyc"), doraise=True)
    more = [str(site.python), "-c", "from single.more import VALUE; print(VALUE)"]
    before = site.picture()
    lab.run(site, "apply", "goes", "comes")
    gone = subprocess.run([*more[:2], "import single.value"], capture_output=True, check=False)
    assert gone.returncode == 1
    assert subprocess.check_output(more) == b"2\n"
    lab.run(site, "revert", "--all")
    assert value(site) == "1"
    assert subprocess.check_output(more) == b"1\n"
    assert [line for line in site.differences(before) if "__pycache__" not in line] == []


def pythons() -> list[str]:
    """Other interpreters of this machine, one for each minor version."""
    found = {}
    for minor in range(10, 16):
        places = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        names = [str(path) for path in places] or [f"python3.{minor}"]
        for name in names:
            if minor != sys.version_info.minor and shutil.which(name):
                works = subprocess.run([name, "-V"], capture_output=True, check=False)
                if works.returncode == 0:
                    found[minor] = name
    return list(found.values())


def test_byte_code_that_several_pythons_wrote(lab: Lab) -> None:
    """One folder, imported by each of them before, while and after."""
    others = pythons()
    if not others:
        pytest.skip("needs another Python")
    site = lab.site(ONE)
    bundle(lab)
    code = "from single.value import VALUE; print(VALUE)"

    def all_say(expected: bytes) -> None:
        for python in (sys.executable, *others):
            for level in ("-B", "-O", "-OO"):
                options = [] if level == "-B" else [level]
                command = [python, "-s", *options, "-c", code]
                env = {"PYTHONPATH": str(site.root)}
                assert subprocess.check_output(command, env=env) == expected, command

    same_second(site)
    all_say(b"1\n")
    assert len(list(cached(site).parent.glob("value.*"))) == 3 * (1 + len(others))
    lab.run(site, "apply", "two")
    all_say(b"2\n")
    lab.run(site, "revert", "--all")
    all_say(b"1\n")


# --- a cache that cannot be changed ------------------------------------------------------


def changed_times(site: Site) -> dict[str, int]:
    """When each inode was last changed in any way: also a link that came and went."""
    return {str(path): path.lstat().st_ctime_ns for path in site.root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["apply", "revert"])
@pytest.mark.parametrize("where", ["beside", "prefix"])
def test_a_cache_without_write_permission_is_an_error_before_anything_changes(
    lab: Lab, command: str, where: str
) -> None:
    prefix = unprivileged()
    site = lab.venv(ONE)
    bundle(lab)
    env = {"PYTHONPYCACHEPREFIX": str(lab.folder("pycache"))} if where == "prefix" else {}
    if command == "revert":
        lab.run(site, "apply", "two", env=env, prefix=prefix)
    value(site, **env)
    if where == "prefix":
        folder = Path(env["PYTHONPYCACHEPREFIX"] + str(site / "single"))
    else:
        folder = cached(site).parent
    assert list(folder.glob("value.*")) != []
    folder.chmod(0o555)
    args = ("apply", "two") if command == "apply" else ("revert", "--all")
    before, times = site.picture(), changed_times(site)
    result = lab.run(site, *args, check=4, env=env, prefix=prefix)
    assert str(folder) in result.stderr and "hint:" in result.stderr
    assert site.differences(before) == []
    times = {path: at for path, at in times.items() if not path.endswith("lock")}
    assert {path: at for path, at in changed_times(site).items() if path in times} == times
    folder.chmod(0o755)
    lab.run(site, *args, env=env, prefix=prefix)
    assert value(site, **env) == ("2" if command == "apply" else "1")


# --- an import at the same moment --------------------------------------------------------


@pytest.mark.parametrize("prefix", ["told", "none"])
def test_imports_that_race_with_apply_and_revert(lab: Lab, prefix: str) -> None:
    """Interpreters start all the while and write byte-code; one that starts afterwards runs
    what is there.  ``PATCHKIT_ROUNDS=300`` goes on for longer."""
    rounds = int(os.environ.get("PATCHKIT_ROUNDS", "3"))
    site = lab.site(ONE)
    bundle(lab)
    env = {"PYTHONPATH": str(site.root)}
    if prefix == "told":
        env["PYTHONPYCACHEPREFIX"] = str(lab.folder("pycache"))
    code = "from single.value import VALUE; print(VALUE)"
    stop = lab.base / "stop"
    loop = 'while [ ! -e "$1" ]; do "$2" -S -c "$3"; "$2" -S -O -c "$3"; done'
    racers = [
        subprocess.Popen(
            ["sh", "-c", loop, "sh", str(stop), sys.executable, code],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    try:
        for turn in range(rounds):
            for command, expected in ((("apply", "two"), b"2\n"), (("revert", "--all"), b"1\n")):
                lab.run(site, *command, env=env)
                for level in ("-S", "-SO"):
                    found = subprocess.check_output([sys.executable, level, "-c", code], env=env)
                    assert found == expected, f"round {turn}, after {command}"
    finally:
        stop.touch()
        for racer in racers:
            racer.wait()


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
