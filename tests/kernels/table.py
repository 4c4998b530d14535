"""The table of steps: sources patched and reverted, and the kernel that runs after each.

    python3 -m tests.kernels.table

On a machine with a GPU, nvcc, ninja, torch and tvm_ffi: FlashInfer 0.6.3's own JIT compiles
its own ``norm.cuh``, and the kernel runs.  ``--mode library`` needs no GPU and no torch, and
compares machine code; ``--mode stand-in`` needs ninja alone.  The wheel comes from
``build/wheels`` (or that folder below ``PATCHKIT_TEST_BUILD``).  Prints a row a step; the
exit code is 0 only when every row is as expected.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests import releases
from tests.kernels import toolkit
from tests.releases import FLASHINFER, ROOT

HERE = Path(__file__).resolve().parent
NORM = "flashinfer/data/include/flashinfer/norm.cuh"
GENERATOR = "flashinfer/jit/norm.py"
MODES = ("gpu", "library", "stand-in")

RIGHT, TWICE = "1.0", "2.0"
_PRODUCT = "      output_vec[j] = float(input_vec[j]) * rms_rcp * ("
_TWICE = "      output_vec[j] = 2.f * float(input_vec[j]) * rms_rcp * ("


def _line(text: str) -> str:
    """The line of the kernel that the patches are about: the first of its kind."""
    return next(line for line in text.splitlines(keepends=True) if line.startswith(_PRODUCT))


def twice(text: str) -> str:
    """``norm.cuh`` whose RMSNorm gives twice the right value."""
    line = _line(text)
    return text.replace(line, line.replace(_PRODUCT, _TWICE), 1)


def guarded(text: str) -> str:
    """``norm.cuh`` that does so where a flag of the compiler says it."""
    line = _line(text)
    changed = line.replace(_PRODUCT, _TWICE)
    return text.replace(line, f"#ifdef PATCHKIT_TWICE\n{changed}#else\n{line}#endif\n", 1)


def flagged(text: str) -> str:
    """The generator that gives the compiler this flag: no source of the kernel changes."""
    return text.replace(
        '        "-DENABLE_FP8",\n', '        "-DENABLE_FP8",\n        "-DPATCHKIT_TWICE",\n'
    )


#: Bundle: file, its change, and whether its manifest names the cache.
BUNDLES: dict[str, tuple[str, Callable[[str], str], bool]] = {
    "twice": (NORM, twice, True),
    "twice-unnamed": (NORM, twice, False),
    "guarded": (NORM, guarded, True),
    "flagged": (GENERATOR, flagged, True),
}


@dataclass
class Row:
    """One step: what was done, what should run after it, what ran."""

    step: str
    expected: str
    seen: str = ""
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        return self.seen == self.expected


@dataclass
class Machine:
    """One environment, one home, and FlashInfer's JIT on them."""

    work: Path
    mode: str
    part: str
    workspace: str = "home"
    links: releases.LinkMode = "copy"
    tools: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    failed: str = ""

    @property
    def site(self) -> Path:
        return self.work / "site-packages"

    def install(self) -> None:
        """The release, and the bundles made from its own text."""
        releases.install([FLASHINFER], self.site, link_mode=self.links)
        self.tools = (
            stand_in(self.work)
            if self.mode == "stand-in"
            else toolkit.environment(self.work, self.mode)
        )
        for name, (path, change, named) in BUNDLES.items():
            old = (self.site / path).read_text(encoding="utf-8")
            new = change(old)
            assert new != old, f"{path} of this release is not what {name} is made for"
            before, after = (text.splitlines(keepends=True) for text in (old, new))
            diff = "".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))
            patch = self.work / "bundles" / "patches" / name / "0001.patch"
            patch.parent.mkdir(parents=True)
            patch.write_text(diff, encoding="utf-8")
            manifest = self.work / "bundles" / "manifests" / f"{name}.toml"
            manifest.parent.mkdir(parents=True, exist_ok=True)
            manifest.write_text(
                f'schema = 1\nname = "{name}"\nversion = "1.0.0"\nsummary = "{name}"\n'
                '[[target]]\ndistribution = "flashinfer-python"\n'
                '[[target.variant]]\nversions = ">=0"\nstrip = 1\n'
                f'patches = ["{name}/0001.patch"]\n'
                + ('[caches]\nflashinfer-jit = ["norm"]\n' if named else "")
            )

    def env(self) -> dict[str, str]:
        """Of patchkit and of FlashInfer alike."""
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        env.pop("FLASHINFER_WORKSPACE_BASE", None)
        env["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"  # or it compiles something of its own
        env["HOME"] = str(self.work / "home")
        (self.work / "home").mkdir(exist_ok=True)
        if self.workspace != "home":
            env["FLASHINFER_WORKSPACE_BASE"] = str(self.work / self.workspace)
        if self.mode != "gpu":
            env.setdefault("FLASHINFER_CUDA_ARCH_LIST", "9.0a")
        # ninja may have come from the index, beside the interpreter.
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
        return env | self.tools

    def patchkit(self, *args: str) -> None:
        """One command, which must succeed."""
        where = ["--root", str(self.site), "--bundles", str(self.work / "bundles")]
        done = subprocess.run(
            [sys.executable, "-m", "patchkit", *where, *args],
            env=self.env(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"patchkit {' '.join(args)}: {done.returncode}\n{done.stderr}")

    def runs(self, step: str, expected: str) -> None:
        """A fresh process, which builds what FlashInfer holds for out of date."""
        row = Row(step, expected)
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(HERE / "rmsnorm.py"), str(self.site), self.mode],
            env=self.env(),
            capture_output=True,
            text=True,
            check=False,
        )
        row.seconds = time.monotonic() - start
        if done.returncode:
            raise RuntimeError(f"{step}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        row.seen = done.stdout.split()[-1]
        if self.mode == "library":  # the first is that of the pristine sources
            row.seen = self.names.setdefault(row.seen, TWICE if self.names else RIGHT)
        self.rows.append(row)
        mark = "" if row.right else "   <-- WRONG"
        said = f"{self.part:12} {step:58} {expected:>8} {row.seen:>6} {row.seconds:7.1f}{mark}"
        print(said, flush=True)


def without_patchkit(machine: Machine) -> None:
    """What the table is about: the old inode with its old time comes back."""
    target, stash = machine.site / NORM, machine.site / f"{NORM}.stash"
    os.link(target, stash)
    aside = machine.site / f"{NORM}.new"
    aside.write_text(twice(target.read_text(encoding="utf-8")), encoding="utf-8")
    aside.replace(target)
    machine.runs("a patched file in its place", TWICE)
    stash.replace(target)
    machine.runs("the old inode back, with its old time: a stale kernel", TWICE)
    os.utime(target)
    machine.runs("its time moved forward", RIGHT)


def with_patchkit(machine: Machine) -> None:
    """Apply and revert, in one workspace, and again."""
    for again in ("", ", again"):
        machine.patchkit("apply", "twice")
        machine.runs(f"apply{again}", TWICE)
        machine.patchkit("revert", "--all")
        machine.runs(f"revert{again}", RIGHT)


def generator(machine: Machine) -> None:
    """No source changes, only the flags in the generator: build.ninja must go as well."""
    machine.patchkit("apply", "guarded")
    machine.runs("apply of a source that asks for a flag", RIGHT)
    machine.patchkit("apply", "flagged")
    machine.runs("apply of the generator that gives it (no source changes)", TWICE)
    machine.patchkit("revert", "flagged")
    machine.runs("revert of the generator", RIGHT)
    machine.patchkit("revert", "--all")
    machine.runs("revert of the source", RIGHT)


def unnamed(machine: Machine) -> None:
    """A bundle that names no cache: the new time of the source has to do."""
    machine.patchkit("apply", "twice-unnamed")
    machine.runs("apply of a bundle that names no cache", TWICE)
    machine.patchkit("revert", "--all")
    machine.runs("revert of it", RIGHT)


def other_workspace(machine: Machine) -> None:
    """FLASHINFER_WORKSPACE_BASE of its own for the patched sources."""
    machine.workspace = "other"
    machine.patchkit("apply", "twice")
    machine.runs("apply, with FLASHINFER_WORKSPACE_BASE of its own", TWICE)
    machine.patchkit("revert", "--all")
    machine.workspace = "home"
    machine.runs("revert, told of that workspace alone; back in the first", RIGHT)
    machine.workspace = "other"
    machine.runs("the other workspace, after the revert", RIGHT)


PARTS: dict[str, Callable[[Machine], None]] = {
    "no patchkit": without_patchkit,
    "patchkit": with_patchkit,
    "generator": generator,
    "no [caches]": unnamed,
    "workspace": other_workspace,
}


def goes_through(part: str, work: Path, mode: str) -> Machine:
    """A part, on an environment and a home of its own."""
    machine = Machine(work / part.replace(" ", "-"), mode, part)
    machine.work.mkdir()
    try:
        machine.install()
        pristine = releases.snapshot(machine.site)
        machine.runs("pristine sources", RIGHT)
        PARTS[part](machine)
        changed = releases.diff_snapshots(pristine, releases.snapshot(machine.site))
        machine.left = [line for line in changed if "__pycache__" not in line]
    except Exception:  # noqa: BLE001 - the other parts go on; what it was is printed
        machine.failed = traceback.format_exc()
    return machine


def stand_in(work: Path) -> dict[str, str]:
    """The variables by which FlashInfer takes :mod:`~tests.kernels.compiler` for nvcc."""
    compiler = work / "compiler"
    compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE}/compiler.py" "$@"\n')
    compiler.chmod(0o755)
    named = dict.fromkeys(("FLASHINFER_NVCC", "CXX"), str(compiler))
    return {**named, "CUDA_HOME": str(work / "nowhere")}


def found(name: str) -> str:
    """Where a program is, as the first lines of the output say it."""
    return shutil.which(name) or "not found"


def what_is_here(mode: str) -> None:
    """The machine, for the one who reads the table elsewhere."""
    print(f"python {sys.version.split()[0]}, {os.cpu_count()} processors, mode {mode}")
    for name in ("nvcc", "ninja", "c++"):
        print(f"{name}: {found(name)}")
    if mode != "stand-in":
        for command in (["nvcc", "--version"], ["nvidia-smi", "-L"]):
            if shutil.which(command[0]):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                print(f"{command[0]}: {done.stdout.strip().splitlines()[-1:]}")
        for module in ("torch", "tvm_ffi", "filelock"):
            code = f"import {module} as m; print(m.__version__)"
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=False
            )
            said = done.stdout.strip() or (done.stderr.strip().splitlines() or ["?"])[-1]
            print(f"{module}: {said}")


def main() -> int:
    """Every row; 0 when all are as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mode", choices=MODES, default="gpu")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 3))
    parser.add_argument("--part", action="append", choices=PARTS, help="this one (again: more)")
    options = parser.parse_args()
    what_is_here(options.mode)
    releases.tree(*FLASHINFER)
    print(
        f"\n{'part':12} {'step (each in a fresh process)':58} expected   seen seconds", flush=True
    )
    with (
        tempfile.TemporaryDirectory(prefix="patchkit-kernels-") as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        work = [(part, Path(folder), options.mode) for part in options.part or PARTS]
        machines = list(pool.map(lambda item: goes_through(*item), work))
    rows = [row for machine in machines for row in machine.rows]
    wrong = sum(not row.right for row in rows)
    for machine in machines:
        if machine.failed or machine.left:
            print(f"\n{machine.part}: left behind {machine.left}\n{machine.failed}")
    failed = sum(bool(machine.failed or machine.left) for machine in machines)
    print(f"\n{len(rows)} rows, {wrong} wrong; {failed} of {len(machines)} parts failed")
    return 0 if not wrong and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
