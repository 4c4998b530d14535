#!/usr/bin/env python3
"""Everything a developer runs, on a machine with Python 3.10 or later and git, nothing else.

    python3 dev.py demo     the main job on the real SGLang and FlashInfer wheels
    python3 dev.py test     lint, types and tests on every interpreter from 3.10 on
    python3 dev.py lint     ruff and mypy alone
    python3 dev.py bench    the benchmark, as a table in Markdown
    python3 dev.py faults   kills and errors at every call that changes a tree, as a table
    python3 dev.py crashes  kills, errors and power cuts, in recoveries too, as a table
    python3 dev.py peers    other tools' patches, through patchkit and other tools
    python3 dev.py nodes    the Ansible collection, on eight nodes that this machine plays
    python3 dev.py fuzz     damaged patches, manifests and records, found by coverage
    python3 dev.py ledger-bench list, revisit and report of a ledger of 10,000 trials
    python3 dev.py port-bench   patches carried to later releases, by patchkit and other tools
    python3 dev.py bundles  the shipped bundles on every release, as a table

All that is made lies under ``build/`` (virtual environments, wheels, unpacked releases,
coverage) and may be deleted at any time.  What was downloaded once is not asked for again,
so a second run needs no network.  Only the standard library is used here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
WHEELHOUSE = BUILD / "wheelhouse"
OLDEST = (3, 10)
COVERAGE_AT_LEAST = 85

#: Exactly these releases are shown: the ones that the bundles are made for.
DEMO_RELEASES = (("sglang", "0.5.9"), ("flashinfer-python", "0.6.3"))
DEMO_BUNDLE = "sm120-fusion"


class Failed(Exception):
    """A step that did not work; the message says what to do."""


# --- the terminal ------------------------------------------------------------------------

_START = time.monotonic()
_COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, code: str) -> str:
    """``text`` in a colour, on a terminal."""
    return f"\033[{code}m{text}\033[0m" if _COLOUR else text


def say(text: str = "") -> None:
    """One line, at once."""
    print(text, flush=True)


def headline(text: str) -> None:
    """The start of a step, with the seconds since the start."""
    say(f"\n{paint('==>', '1;34')} {paint(text, '1')} [{time.monotonic() - _START:.0f} s]")


# --- processes ---------------------------------------------------------------------------


def environment(**changes: str) -> dict[str, str]:
    """The environment for children: nothing that turns Python or pip to other places."""
    env = dict(os.environ)
    for key in (
        "PYTHONHOME",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "PIP_REQUIRE_VIRTUALENV",
    ):
        env.pop(key, None)
    env.setdefault("PIP_CACHE_DIR", str(BUILD / "pip-cache"))
    env.update(
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_NO_INPUT="1",
        PIP_ROOT_USER_ACTION="ignore",
        PYTHONUNBUFFERED="1",
    )
    env.update(changes)
    return env


def run(command: Iterable[object], *, quiet: bool = True, env: dict[str, str] | None = None) -> int:
    """Run to the end.  ``quiet`` shows the output only where the command fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        check=False,
    )
    if quiet and done.returncode:
        say(done.stdout.decode("utf-8", "replace").rstrip())
    return done.returncode


def must(command: Sequence[object], hint: str) -> None:
    """Like :func:`run`, and a failure ends dev.py with ``hint``."""
    if run(command):
        raise Failed(f"{shlex.join(str(part) for part in command)}\n{hint}")


# --- interpreters ------------------------------------------------------------------------


@dataclass(frozen=True)
class Interpreter:
    """A CPython that can make virtual environments."""

    version: tuple[int, int, int]
    path: Path

    @property
    def name(self) -> str:
        """``3.11.7``."""
        return ".".join(map(str, self.version))


_PROBE = """
import ensurepip, json, os, platform, sys, venv
print(json.dumps([list(sys.version_info[:4]), sys.executable, platform.python_implementation(),
                  sys.prefix == sys.base_prefix]))
"""


def probe(path: str | Path) -> Interpreter | None:
    """The interpreter at ``path``, found out by running it: a pyenv shim may run nothing."""
    try:
        done = subprocess.run(
            [str(path), "-I", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        version, executable, implementation, is_base = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    final = version[3] == "final" and implementation == "CPython"
    if done.returncode or not final or tuple(version[:2]) < OLDEST or not executable:
        return None
    return Interpreter((version[0], version[1], version[2]), Path(executable)) if is_base else None


def _candidates() -> Iterator[str | Path]:
    yield sys.executable
    yield getattr(sys, "_base_executable", sys.executable)
    roots = [os.environ.get("PYENV_ROOT"), os.path.expanduser("~/.pyenv")]
    folders = [Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part]
    roots += [str(folder.parent) for folder in folders if folder.name == "shims"]
    for root in roots:
        if root:
            yield from sorted(Path(root).glob("versions/3.*/bin/python"), reverse=True)
    for folder in folders:
        yield from sorted(folder.glob("python3.[0-9]*"), reverse=True)
        yield folder / "python3"


def usable() -> Iterator[Interpreter]:
    """Every one that can be found, the one that runs this first; some more than once."""
    seen = set()
    for candidate in _candidates():
        path = Path(os.path.abspath(candidate))
        if path in seen or path.name.endswith("-config") or not os.access(path, os.X_OK):
            continue
        seen.add(path)
        interpreter = probe(path)
        if interpreter:
            yield interpreter


def first_interpreter() -> Interpreter:
    """The one that runs this, where it can make virtual environments."""
    for interpreter in usable():
        return interpreter
    raise Failed(
        "no usable Python 3.10 or later: dev.py needs one with the venv and ensurepip modules"
        " (on Debian and Ubuntu: apt-get install python3-venv)"
    )


def interpreters() -> list[Interpreter]:
    """One for each minor version from 3.10 on, the one that runs this first."""
    first = first_interpreter()
    found = {first.version[:2]: first}
    for interpreter in usable():
        found.setdefault(interpreter.version[:2], interpreter)
    others = [one for one in found.values() if one is not first]
    return [first, *sorted(others, key=lambda one: one.version, reverse=True)]


# --- virtual environments ----------------------------------------------------------------


def requirements(*keys: str) -> list[str]:
    """Lists of pyproject.toml: ``dependencies``, ``test``, ``requires`` of the build."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = []
    for key in keys:  # Python 3.10 has no reader for TOML
        match = re.search(rf"^{key} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
        if match is None:
            raise Failed(f"pyproject.toml has no list {key!r}")
        found += re.findall(r'"([^"]+)"', match[1])
    return found


def development_venv(interpreter: Interpreter) -> Path:
    """The Python of a venv that holds patchkit (editable) and all that its tests need; for the
    interpreter that gets every test, what drives a browser too.

    Wheels are collected in ``build/wheelhouse`` first and installed from there, so that a
    venv can be made again without a network.
    """
    extras = ["browser"] if interpreter == first_interpreter() else []
    folder = BUILD / "venvs" / interpreter.name
    python = folder / "bin" / "python"
    stamp = folder / "complete"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    wanted += f" {interpreter.path} {folder} {extras}"
    if stamp.exists() and stamp.read_text() == wanted and probe_module(python, "patchkit"):
        return python
    shutil.rmtree(folder, ignore_errors=True)
    must([interpreter.path, "-m", "venv", folder], "cannot make a virtual environment")
    wanted_here = requirements("dependencies", "test", *extras)
    collect_wheels(interpreter, python, wanted_here)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-compile"]
    must(
        [*pip, "--find-links", WHEELHOUSE, *wanted_here],
        "delete build/wheelhouse and try again, with a network",
    )
    must([*pip, "--no-deps", "--no-build-isolation", "--editable", ROOT], "see above")
    stamp.write_text(wanted)
    return python


def probe_module(python: Path, name: str) -> bool:
    """Whether ``python`` still runs and finds the module."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    try:
        return subprocess.run([str(python), "-c", code], cwd=BUILD, check=False).returncode == 0
    except OSError:
        return False


def collect_wheels(interpreter: Interpreter, python: Path, wanted: Sequence[str]) -> None:
    """Put wheels of all that is ``wanted`` into the wheelhouse, unless they are there."""
    minor = ".".join(map(str, interpreter.version[:2]))
    stamp = WHEELHOUSE / f".{minor}"
    there = stamp.read_text().splitlines() if stamp.exists() else []
    missing = [requirement for requirement in wanted if requirement not in there]
    if not missing:
        return
    WHEELHOUSE.mkdir(parents=True, exist_ok=True)
    must(
        [python, "-m", "pip", "wheel", "--quiet", "--wheel-dir", WHEELHOUSE, *missing],
        "the first run needs the package index",
    )
    # By a rename: a copy of the folder by links would be told of wheels that it lacks.
    new = stamp.with_suffix(f"{stamp.suffix}.new")
    new.write_text("".join(f"{requirement}\n" for requirement in [*there, *missing]))
    new.replace(stamp)


# --- test --------------------------------------------------------------------------------


@dataclass
class Outcome:
    """How one step ended."""

    name: str
    ok: bool
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)


def lint(python: Path) -> list[Outcome]:
    """ruff check, ruff format and mypy --strict, with their output where they fail."""
    steps = {
        "ruff check": ["ruff", "check", "--quiet", "."],
        "ruff format": ["ruff", "format", "--check", "--quiet", "."],
        "mypy --strict": ["mypy", "--strict", "--no-error-summary"],
    }
    outcomes = []
    for name, command in steps.items():
        begin = time.monotonic()
        ok = run([python, "-m", *command]) == 0
        outcomes.append(Outcome(name, ok, time.monotonic() - begin))
        say(f"{name}: {'ok' if ok else paint('FAILED', '31')}")
    return outcomes


def run_tests(
    interpreter: Interpreter, python: Path, profile: str, arguments: Sequence[str]
) -> Outcome:
    """One pytest run.  The counts are read from its JUnit file, not from its output."""
    begin = time.monotonic()
    report = BUILD / f"tests-{interpreter.name}.xml"
    report.unlink(missing_ok=True)
    env = environment(
        HYPOTHESIS_PROFILE=os.environ.get("HYPOTHESIS_PROFILE", profile),
        PATCHKIT_TEST_WHEELHOUSE=str(WHEELHOUSE),
    )
    workers = str(min(os.cpu_count() or 1, 4))
    code = run(
        [
            *(python, "-m", "pytest", "-q", "-n", workers, "--dist", "worksteal"),
            *("-o", f"cache_dir={BUILD / 'pytest' / interpreter.name}"),
            *("--junitxml", report, *arguments),
        ],
        quiet=False,
        env=env,
    )
    outcome = Outcome(f"Python {interpreter.name}", code == 0, time.monotonic() - begin)
    if report.exists():
        _count(report, outcome)
    outcome.ok = outcome.ok and outcome.passed > 0 and not outcome.failed
    return outcome


def _count(report: Path, outcome: Outcome) -> None:
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        elif skipped is not None:
            where = f"{case.get('classname')}::{case.get('name')}"
            outcome.skipped.append(f"{where}: {skipped.get('message')}")
        else:
            outcome.passed += 1


def test(arguments: argparse.Namespace) -> int:
    """Lint, types, the whole suite here, and its part that is not slow on every other Python."""
    headline("Interpreters")
    found = interpreters()
    if arguments.quick:
        found = found[:1]
    for interpreter in found:
        say(f"Python {interpreter.name}  {interpreter.path}")
    headline("Virtual environments under build/venvs")
    (BUILD / "coverage").mkdir(parents=True, exist_ok=True)
    primary, *others = found
    python = development_venv(primary)
    ansible(primary, python)
    say(f"Python {primary.name}: ready")
    headline("Lint and types")
    outcomes = lint(python)
    headline(f"Tests on Python {primary.name}")
    measured = _coverage() if arguments.coverage else []
    outcomes.append(run_tests(primary, python, "ci", [*measured, *arguments.select]))
    for interpreter in others:
        headline(f"Tests on Python {interpreter.name}")
        python = development_venv(interpreter)
        profile, subset = ("ci", []) if arguments.all else ("quick", ["-m", "not slow"])
        outcomes.append(run_tests(interpreter, python, profile, [*subset, *arguments.select]))
    return summary(outcomes)


def _coverage() -> list[str]:
    """Options of pytest for the branches that its own and all patchkit processes take."""
    for old in (BUILD / "coverage").glob("data*"):
        old.unlink()
    return [
        *("--cov", "--cov-config=pyproject.toml", "--cov-report=term"),
        f"--cov-report=xml:{BUILD / 'coverage' / 'coverage.xml'}",
        f"--cov-fail-under={COVERAGE_AT_LEAST}",
    ]


def summary(outcomes: list[Outcome]) -> int:
    """A line for each step, the reasons for skipped tests, and the closing line."""
    headline("Summary")
    for outcome in outcomes:
        counts = ""
        if outcome.passed or outcome.failed or outcome.skipped:
            counts = f"{outcome.passed} passed, {outcome.failed} failed"
            counts += f", {len(outcome.skipped)} skipped" if outcome.skipped else ""
        mark = paint("ok    ", "32") if outcome.ok else paint("FAILED", "31")
        say(f"{mark}  {outcome.name:<16} {outcome.seconds:6.0f} s  {counts}")
        for reason in outcome.skipped:
            say(f"        skipped: {reason}")
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    skipped = sum(len(outcome.skipped) for outcome in outcomes)
    say()
    say(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if all(outcome.ok for outcome in outcomes) else 1


# --- demo --------------------------------------------------------------------------------


def fingerprint(folder: Path) -> tuple[str, int, int]:
    """One digest over every path below ``folder``, its kind, mode, owner, link target and
    bytes; with it the numbers of files and of bytes."""
    total = hashlib.sha256()
    count = size = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = os.path.join(parent, name)
            info = os.lstat(path)
            content = b""
            if os.path.islink(path):
                content = os.fsencode(os.readlink(path))
            elif os.path.isfile(path):
                count += 1
                size += info.st_size
                with open(path, "rb") as handle:
                    content = hashlib.sha256(handle.read()).digest()
            entry = (
                f"{os.path.relpath(path, folder)}\0{info.st_mode}\0{info.st_uid}\0{info.st_gid}\0"
            )
            total.update(os.fsencode(entry) + content + b"\n")
    return total.hexdigest(), count, size


def release_wheels(python: Path) -> list[Path]:
    """The wheels of the demo, downloaded once into ``build/wheels``."""
    folder = BUILD / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    wheels = []
    for name, version in DEMO_RELEASES:
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        if not list(folder.glob(pattern)):
            say(f"downloading {name} {version} …")
            must(
                [
                    *(python, "-m", "pip", "download", "--quiet", "--no-deps"),
                    *("--only-binary", ":all:", "--dest", folder, f"{name}=={version}"),
                ],
                "the first run needs the package index",
            )
        wheels += sorted(folder.glob(pattern))[:1]
    return wheels


class Shell:
    """Shows a command as a person would type it, runs it, and shows what it prints."""

    def __init__(self, tool: Path, target: Path, home: Path) -> None:
        self.tool = tool
        self.target = target
        self.env = environment(HOME=str(home), PATH=f"{tool}{os.pathsep}{os.environ['PATH']}")
        for key in [key for key in self.env if key.startswith("PATCHKIT_")]:
            del self.env[key]

    def run(self, command: Sequence[str]) -> str:
        """Run and show; the output too.  An exit code other than 0 ends the demo."""
        say(f"\n{paint('$ ' + shlex.join(command), '1;32')}")
        begin = time.monotonic()
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                print(line, end="", flush=True)
        say(paint(f"[exit code {process.returncode}, {time.monotonic() - begin:.2f} s]", "2"))
        if process.returncode:
            raise Failed("that should have worked")
        return "".join(lines)

    def patchkit(self, *arguments: str) -> str:
        """``patchkit --python build/demo/target ARGUMENTS``."""
        target = os.path.relpath(self.target, ROOT)
        return self.run(["patchkit", "--python", target, *arguments])

    def gate(self, architecture: str, *, expect: str) -> None:
        """FlashInfer's own generator, asked for an architecture (see demo/gate.py)."""
        python = os.path.relpath(self.target / "bin" / "python", ROOT)
        if expect not in self.run([python, "-B", "demo/gate.py", architecture]):
            raise Failed(f"that should have said {expect!r}")


def demo() -> int:
    """The main job on the real wheels: apply, look, verify, revert, nothing left."""
    folder = BUILD / "demo"
    tool, target, home = folder / "tool", folder / "target", folder / "home"
    interpreter = first_interpreter()

    headline(f"1/5  patchkit into a virtual environment of its own (Python {interpreter.name})")
    shutil.rmtree(folder, ignore_errors=True)
    home.mkdir(parents=True)
    say("making build/demo/tool, installing patchkit and what it needs …")
    must([interpreter.path, "-m", "venv", tool], "cannot make a virtual environment")
    python = tool / "bin" / "python"
    collect_wheels(interpreter, python, requirements("dependencies", "requires"))
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", WHEELHOUSE]
    must([*pip, ROOT], "delete build/wheelhouse and try again, with a network")

    wheels = ", ".join(f"{name} {version}" for name, version in DEMO_RELEASES)
    headline(f"2/5  the target: {wheels}, real wheels, without their dependencies")
    say("making build/demo/target …")
    must([interpreter.path, "-m", "venv", target], "cannot make a virtual environment")
    downloaded = release_wheels(python)
    say("installing 74 MB in 3,945 files, and their byte-code …")
    must(
        [
            *(target / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--no-index", *downloaded),
        ],
        "delete build/wheels and try again",
    )
    say("taking a digest of every file …")
    before = fingerprint(target)
    say(f"{before[1]:,} files, {before[2] / 1e6:.0f} MB, SHA-256 of it all {before[0][:16]}…")

    shell = Shell(tool / "bin", target, home)
    headline("3/5  look first")
    shell.gate("12.0", expect="No supported CUDA architectures")
    shell.patchkit("list")
    shell.patchkit("show", DEMO_BUNDLE)
    shell.patchkit("apply", "--dry-run", DEMO_BUNDLE)

    headline("4/5  apply, and see what was done")
    shell.patchkit("apply", DEMO_BUNDLE)
    shell.patchkit("diff")
    shell.patchkit("verify", "-v")
    shell.patchkit("status")
    shell.gate("12.0", expect="compute_120")
    changed = fingerprint(target)
    if changed[0] == before[0]:
        raise Failed("apply changed nothing")

    headline("5/5  revert, and see that nothing is left")
    shell.patchkit("revert", "--all")
    shell.patchkit("verify", "--pristine")
    shell.gate("12.0", expect="No supported CUDA architectures")
    after = fingerprint(target)
    say(f"\nbefore  {before[0]}  {before[1]:,} files")
    say(f"applied {changed[0]}  {changed[1]:,} files")
    say(f"after   {after[0]}  {after[1]:,} files")
    if after != before:
        raise Failed("something is left: the tree differs from the one before")
    if list(target.rglob(".patchkit")):
        raise Failed("something is left: .patchkit is still there")
    say(
        f"\nNothing is left: {after[1]:,} files, equal in bytes, modes, owners and links."
        f"  {time.monotonic() - _START:.0f} s in all."
    )
    return 0


# --- the command line --------------------------------------------------------------------


def bench(rest: Sequence[str]) -> int:
    """benchmarks/run.py, in the development environment."""
    python = development_venv(first_interpreter())
    return run([python, "-m", "benchmarks.run", *rest], quiet=False)


def ledger_bench(rest: Sequence[str]) -> int:
    """benchmarks/ledger.py, in the development environment."""
    python = development_venv(first_interpreter())
    return run([python, "-m", "benchmarks.ledger", *rest], quiet=False)


def port_bench(rest: Sequence[str]) -> int:
    """benchmarks/porting, in the development environment."""
    python = development_venv(first_interpreter())
    return run([python, "-m", "benchmarks.porting.run", *rest], quiet=False)


def faults(rest: Sequence[str]) -> int:
    """tests/faults/sweep.py, in the development environment."""
    python = development_venv(first_interpreter())
    return run([python, "-m", "tests.faults.sweep", *rest], quiet=False)


def crashes(rest: Sequence[str]) -> int:
    """tests/crash/sweep.py, in the development environment."""
    python = development_venv(first_interpreter())
    return run([python, "-m", "tests.crash.sweep", *rest], quiet=False)


def bundles(rest: Sequence[str]) -> int:
    """tests/shipped, in the development environment."""
    python = development_venv(first_interpreter())
    return run([python, "-m", "tests.shipped", *rest], quiet=False)


#: Python libraries that apply patches, or read them; these very releases are compared.
PEERS = ("patch-ng==1.19.1", "whatthepatch==1.0.7", "unidiff==1.0.1")


def peers(rest: Sequence[str]) -> int:
    """tests/outside, with the other libraries in a virtual environment of their own."""
    interpreter = first_interpreter()
    python = development_venv(interpreter)
    other = BUILD / "venvs" / "peers" / "bin" / "python"
    collect_wheels(interpreter, python, PEERS)
    if not probe_module(other, "patch_ng"):
        shutil.rmtree(other.parent.parent, ignore_errors=True)
        must([interpreter.path, "-m", "venv", other.parent.parent], "cannot make an environment")
        pip = [other, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        must([*pip, "--find-links", WHEELHOUSE, *PEERS], "delete build/ and try again")
    return run([python, "-m", "tests.outside", "--peers", other, *rest], quiet=False)


#: What rolls out to nodes; of each Python the newest release that runs on it.
ANSIBLE = ["ansible-core>=2.17"]


def ansible(interpreter: Interpreter, python: Path) -> None:
    """ansible-core in a virtual environment of its own, where the tests look for it."""
    other = BUILD / "venvs" / "ansible"
    collect_wheels(interpreter, python, ANSIBLE)
    if not probe_module(other / "bin" / "python", "ansible"):
        shutil.rmtree(other, ignore_errors=True)
        must([interpreter.path, "-m", "venv", other], "cannot make an environment")
        pip = [other / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index"]
        must([*pip, "--find-links", WHEELHOUSE, *ANSIBLE], "delete build/ and try again")


def nodes(rest: Sequence[str]) -> int:
    """tests/nodes, in the development environment."""
    interpreter = first_interpreter()
    python = development_venv(interpreter)
    ansible(interpreter, python)
    return run([python, "-m", "tests.nodes", *rest], quiet=False)


#: A wrapper of libFuzzer, which measures what Python code an input reaches.
FUZZER = ["atheris>=3.0"]


def fuzz(rest: Sequence[str]) -> int:
    """tests/fuzz, with the fuzzer in a virtual environment of its own."""
    interpreter = first_interpreter()
    wanted = [*requirements("dependencies"), *FUZZER]
    collect_wheels(interpreter, development_venv(interpreter), wanted)
    other = BUILD / "venvs" / f"fuzz-{interpreter.name}" / "bin" / "python"
    if not probe_module(other, "atheris"):
        shutil.rmtree(other.parent.parent, ignore_errors=True)
        must([interpreter.path, "-m", "venv", other.parent.parent], "cannot make an environment")
        pip = [other, "-m", "pip", "install", "--quiet", "--no-index"]
        must([*pip, "--find-links", WHEELHOUSE, *wanted], "delete build/ and try again")
    return run([other, "-m", "tests.fuzz", *rest], quiet=False)


def main() -> int:
    """Parse, run, and turn what failed into one message and an exit code."""
    parser = argparse.ArgumentParser(
        prog="dev.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="the main job on the real wheels")
    tests = commands.add_parser("test", help="lint, types and all tests")
    tests.add_argument("--quick", action="store_true", help="only on the first interpreter")
    tests.add_argument("--all", action="store_true", help="every test on every interpreter")
    tests.add_argument(
        "--coverage", action="store_true", help="and how much of the code they reach"
    )
    tests.add_argument("select", nargs="*", help="arguments for pytest")
    commands.add_parser("lint", help="ruff and mypy")
    commands.add_parser("bench", help="the benchmark; further arguments are its own")
    commands.add_parser("faults", help="the sweep of kills and errors; likewise")
    commands.add_parser("crashes", help="the sweep of kills, errors and power cuts; likewise")
    commands.add_parser("peers", help="the outside cases; likewise")
    commands.add_parser("bundles", help="the shipped bundles on every release; likewise")
    commands.add_parser("nodes", help="the Ansible collection on eight nodes; likewise")
    commands.add_parser("fuzz", help="coverage-guided fuzzing of all readers; likewise")
    commands.add_parser("ledger-bench", help="a ledger of 10,000 trials; likewise")
    commands.add_parser("port-bench", help="patches carried to later releases; likewise")
    tools = {
        "bench": bench,
        "bundles": bundles,
        "crashes": crashes,
        "faults": faults,
        "fuzz": fuzz,
        "ledger-bench": ledger_bench,
        "nodes": nodes,
        "peers": peers,
        "port-bench": port_bench,
    }
    arguments, rest = parser.parse_known_args()
    if rest and arguments.command not in (*tools, "test"):
        parser.error(f"unknown arguments: {shlex.join(rest)}")
    BUILD.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if shutil.which("git") is None:
            raise Failed("git is not on the PATH")
        if arguments.command == "test":
            arguments.select += rest
            return test(arguments)
        if arguments.command == "lint":
            python = development_venv(first_interpreter())
            return 0 if all(outcome.ok for outcome in lint(python)) else 1
        if arguments.command == "demo":
            return demo()
        return tools[arguments.command](rest)
    except Failed as error:
        say(f"{paint('dev.py:', '1;31')} {error}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        sys.exit("dev.py: needs Python 3.10 or later; this is " + sys.version.split()[0])
    sys.exit(main())
