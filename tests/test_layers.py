"""The layers of docs/design.md, held up by reading every module's imports and calls.

The table in that file is the one source: a module that is not in it, or that imports what
its row does not allow, fails here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import Cli, Installed
from tests.releases import ROOT

PACKAGE = ROOT / "patchkit"

#: The modules that compute and nothing else.
PURE = {
    "errors",
    "model",
    "patchfile",
    "hunks",
    "mapping",
    "assertions",
    "manifest",
    "paths",
    *("plan", "stack", "recount", "fit", "syntax", "unified", "porting", "conditions"),
}

#: Pure modules of packages that are not pure as a whole.
PURE_PARTS = {
    *("facts.model", "facts.findings", "facts.text"),
    *("trials.record", "trials.metrics", "trials.private"),
    *("trials.again", "trials.board", "trials.revisit"),
    *("trials.report.markdown", "trials.report.words"),
}

#: What a pure module cannot import: input and output, clocks, processes, the command line.
IMPURE_IMPORTS = {
    *("asyncio", "click", "ctypes", "datetime", "fcntl", "getpass", "git", "glob", "http"),
    *("importlib", "logging", "multiprocessing", "os", "pathlib", "pickle", "random", "select"),
    *("shutil", "signal", "site", "socket", "sqlite3", "subprocess", "sysconfig", "tempfile"),
    *("threading", "time", "urllib", "uuid", "zipfile"),
}

#: Calls that change the file system, as ``module.function``.
WRITERS = {
    "os": {
        *("chmod", "chown", "fchmod", "fchown", "fdatasync", "fsync", "lchmod", "lchown", "link"),
        *("makedirs", "mkdir", "mkfifo", "mknod", "removedirs", "remove", "removexattr", "rename"),
        *("renames", "replace", "rmdir", "setxattr", "symlink", "truncate", "ftruncate", "unlink"),
        *("utime", "write", "pwrite", "sendfile", "copy_file_range"),
    },
    "shutil": {
        *("chown", "copy", "copy2", "copyfile", "copyfileobj", "copymode", "copystat"),
        *("copytree", "move", "rmtree", "unpack_archive"),
    },
    "tempfile": {
        *("NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory"),
        *("TemporaryFile", "mkdtemp", "mkstemp"),
    },
}

#: Methods of pathlib's paths that do; looked for in modules that import pathlib, since
#: fsio's own Root has methods of these names.
WRITING_METHODS = {
    *("chmod", "hardlink_to", "lchmod", "mkdir", "rename", "rmdir", "symlink_to", "touch"),
    *("unlink", "write_bytes", "write_text"),
}

#: What ``os.open`` is given to write.
WRITING_FLAGS = {"O_APPEND", "O_CREAT", "O_EXCL", "O_RDWR", "O_TMPFILE", "O_TRUNC", "O_WRONLY"}

#: Modules that ``verify`` has no time for (CPU cost over a bare start in docs/design.md's
#: terms: 20 ms and more each).
HEAVY = {
    *("asyncio", "ast", "concurrent", "ctypes", "difflib", "email", "filelock", "git", "gitdb"),
    *("http", "importlib.metadata", "logging", "multiprocessing", "packaging", "pydoc"),
    *("shutil", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "tomli", "tomllib"),
    *("unidiff", "urllib.request", "zipfile"),
}


def modules() -> dict[str, Path]:
    """Module name inside the package (``commands.apply``) to its file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts)] = path
    return found


def row(name: str) -> str:
    """The row of the table that a module belongs to: its sub-package, or itself."""
    return name.partition(".")[0]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), str(path))


def _type_checking_blocks(tree: ast.Module) -> set[ast.AST]:
    """Everything under ``if TYPE_CHECKING:``, which no interpreter runs."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                inside.update(ast.walk(statement))
    return inside


def imports(name: str, path: Path) -> Iterator[tuple[str, int]]:
    """Every module imported in a file, at any depth: ``.state`` for a sibling, else its name."""
    tree = parsed(path)
    skipped = _type_checking_blocks(tree)
    package = name.split(".")[:-1]  # of an __init__ too: its own name is the last part
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _own(alias.name), node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                base = _own(node.module or "")
                if base == ".":
                    yield from ((f".{alias.name}", node.lineno) for alias in node.names)
                else:
                    yield base, node.lineno
                continue
            parts = package[: len(package) - (node.level - 1)]
            parts += (node.module or "").split(".") if node.module else []
            if node.module:
                yield "." + ".".join(parts), node.lineno
            else:
                yield from ((f".{alias.name}", node.lineno) for alias in node.names)


def _own(name: str) -> str:
    """``patchkit.state`` as ``.state``; other names as they are."""
    top, _, rest = name.partition(".")
    return f".{rest}" if top == "patchkit" else name


def design_table() -> dict[str, set[str]]:
    """Module to the modules that it may import, as the table in docs/design.md says.

    ``errors`` and ``model`` are open to all but themselves.
    """
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    allowed: dict[str, set[str]] = {}
    for names, cell in rows:
        above = set(allowed)
        own = set(re.findall(r"`([a-z_]+)`", names))
        may = set()
        for word in (part.strip().strip("`") for part in cell.split(",")):
            if word == "nothing":
                continue
            if word in ("all", "all above"):
                may |= above
            elif "pure ones" in word:
                may |= PURE & (above | PURE)
            else:
                may.add(word)
        for name in own:
            allowed[name] = may | ({"errors", "model"} if "nothing" not in cell else set())
    assert len(allowed) > 10, "the table of docs/design.md was not found"
    for name, may in allowed.items():
        if name == "cli":
            may.update(allowed)
    return allowed


TABLE = design_table()
MODULES = modules()
ROWS = {row(name) for name in MODULES} - {"__init__", "__main__"}


@pytest.mark.parametrize("name", [m for m in MODULES if m not in ("__init__", "__main__")])
def test_every_module_imports_only_what_the_design_allows(name: str) -> None:
    own = row(name)
    assert own in TABLE, f"docs/design.md has no row for {own}"
    wrong = [
        f"line {line}: {target}"
        for target, line in imports(name, MODULES[name])
        if target.startswith(".") and row(target[1:]) in ROWS - TABLE[own] - {own}
    ]
    assert not wrong


def test_the_design_names_no_module_that_is_gone() -> None:
    assert set(TABLE) <= ROWS


@pytest.mark.parametrize(
    "name", [name for name in MODULES if row(name) in PURE or name in PURE_PARTS]
)
def test_pure_modules_import_no_input_no_output_and_no_clock(name: str) -> None:
    wrong = [
        f"line {line}: {target}"
        for target, line in imports(name, MODULES[name])
        if target.split(".")[0] in IMPURE_IMPORTS and target != "os"
    ]
    # Of os, only the two functions that turn names into bytes and back.
    wrong += [
        f"line {node.lineno}: os.{node.attr}"
        for node in ast.walk(parsed(MODULES[name]))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr not in ("fsdecode", "fsencode")
    ]
    calls = [
        f"line {node.lineno}: {node.func.id}()"
        for node in ast.walk(parsed(MODULES[name]))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("open", "print", "input", "__import__", "exec", "eval")
    ]
    assert not wrong + calls


def _writes(path: Path) -> Iterator[str]:
    paths = any(target.split(".")[0] == "pathlib" for target, _ in imports("", path))
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module in WRITERS and node.level == 0:
            for alias in node.names:
                if alias.name in WRITERS[node.module]:
                    yield f"line {node.lineno}: from {node.module} import {alias.name}"
        if isinstance(node, ast.Attribute) and node.attr in WRITING_FLAGS:
            yield f"line {node.lineno}: {ast.unparse(node)}"
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Attribute):
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            if function.attr in WRITERS.get(owner, ()):
                yield f"line {node.lineno}: {owner}.{function.attr}"
            elif paths and function.attr in WRITING_METHODS:
                yield f"line {node.lineno}: .{function.attr}()"
            elif function.attr == "open" and owner != "os" and _opens_for_writing(node, owner):
                yield f"line {node.lineno}: {owner}.open() for writing"
        elif (
            isinstance(function, ast.Name)
            and function.id == "open"
            and _opens_for_writing(node, "")
        ):
            yield f"line {node.lineno}: open() for writing"


def _opens_for_writing(node: ast.Call, owner: str) -> bool:
    position = 1 if owner in ("", "io") else 0
    modes = node.args[position : position + 1]
    modes += [keyword.value for keyword in node.keywords if keyword.arg == "mode"]
    return any(
        not isinstance(mode, ast.Constant) or bool(set(str(mode.value)) & set("wax+"))
        for mode in modes
    )


#: Modules that write where no environment is: the cache of releases, downloads on their way
#: into it, the answer to pip's question for metadata, and scratch repositories.
ELSEWHERE = {
    *("releases.store", "releases.client", "releases.shim.sitecustomize"),
    "authoring.scratch",
}


@pytest.mark.parametrize("name", [m for m in MODULES if m != "fsio" and m not in ELSEWHERE])
def test_only_fsio_changes_the_file_system(name: str) -> None:
    assert list(_writes(MODULES[name])) == []


@pytest.mark.parametrize(
    "code",
    [
        *("os.replace(a, b)", "from os import rename", "path.unlink()", "path.write_bytes(b'')"),
        *("open(p, 'w')", "open(p, mode='ab')", "path.open('r+b')", "os.open(p, os.O_CREAT)"),
        *("shutil.rmtree(p)", "tempfile.mkdtemp()", "open(p, mode)"),
    ],
)
def test_the_check_for_writes_sees_them(code: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"import pathlib\n{code}")
    assert len(list(_writes(file))) == 1


@pytest.mark.parametrize(
    "code",
    ["open(p)", "open(p, 'rb')", "path.open()", "os.open(p, os.O_RDONLY)", "a.replace(b, c)"],
)
def test_the_check_for_writes_passes_what_reads(code: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(code)
    assert list(_writes(file)) == []


def _imported(stderr: str) -> set[str]:
    """The modules that ``-X importtime`` lists."""
    return set(re.findall(r"^import time:.*\|\s+(\S+)\s*$", stderr, re.MULTILINE))


@pytest.fixture
def click_alone(child_env: dict[str, str]) -> set[str]:
    """What ``import click`` brings with it: the yardstick for the cost of ``verify``."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import click"],
        env=child_env,
        capture_output=True,
        text=True,
        check=True,
    )
    return _imported(done.stderr)


@pytest.mark.parametrize("output", [(), ("--json",), ("-v",)])
def test_verify_imports_nothing_heavy(
    installed: Installed, cli: Cli, click_alone: set[str], output: tuple[str, ...]
) -> None:
    root = installed()
    cli("--root", root, "apply", "sm120-fusion")
    result = cli(
        "--root",
        root,
        *output,
        "verify",
        env={
            "PYTHONPROFILEIMPORTTIME": "1",
            "COVERAGE_PROCESS_START": None,
            "COVERAGE_PROCESS_CONFIG": None,
        },
    )
    loaded = _imported(result.stderr)
    assert "patchkit.verify" in loaded
    heavy = {
        name
        for name in loaded - click_alone
        if any(name == word or name.startswith(f"{word}.") for word in HEAVY)
    }
    assert not heavy
