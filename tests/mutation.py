"""Mutation testing of one pure module: ``python -m tests.mutation plan``, with mutmut.

Owns the copy of the checkout that mutmut works in (``build/mutation/MODULE``), the tests that
each module is held to, and the list of the mutants that live.  mutmut is no dependency of the
tests; ``docs/engine.md`` names the release that was used.
"""

from __future__ import annotations

import ast
import copy
import difflib
import json
import os
import shutil
import subprocess
import sys

from tests.releases import BUILD, ROOT

#: Of each module the tests that are pure and fast: a mutant costs as much as they do.
TESTS = {
    "plan": ["plan", "mapping"],
    "recount": ["recount"],
    "mapping": ["mapping", "plan"],
    "patchfile": ["patchfile_edges", "patchfile", "large"],
    "hunks": ["hunks", "hunks_edges"],
}
_CONFIG = """
[tool.mutmut]
source_paths = ["patchkit/{module}.py"]
also_copy = ["patchkit", "patches", "tests"]
timeout_multiplier = 4.0
pytest_add_cli_args = ["-p", "no:randomly", "-k", "not command", "-o", "filterwarnings="]
pytest_add_cli_args_test_selection = {tests}
"""


def run(module: str) -> int:
    """Make the copy, let mutmut work in it, and print what lives; 1 if it failed."""
    folder = BUILD / "mutation" / module
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("patchkit", "patches", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    settings = settings.replace('"--import-mode=importlib"', "")
    tests = [f"tests/test_{name}.py" for name in TESTS[module]]
    settings += _CONFIG.format(module=module, tests=json.dumps(tests))
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    mutmut = [sys.executable, "-m", "mutmut", "run", "--max-children", "1"]
    environ = {**os.environ, "HYPOTHESIS_PROFILE": "quick"}
    code = subprocess.run(mutmut, cwd=folder, env=environ, check=False).returncode
    if code == 0:
        report(module)
    return code


def report(module: str) -> None:
    """Each mutant that lives as the lines that differ; those of an error's words as a number."""
    mutated = BUILD / "mutation" / module / "mutants" / "patchkit" / f"{module}.py"
    source = mutated.read_text(encoding="utf-8")
    lines = source.split("\n")
    functions = {n.name: n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)}
    outcomes = json.loads(mutated.with_suffix(".py.meta").read_text())["exit_code_by_key"]
    living = [name.rpartition(".")[2] for name, code in outcomes.items() if code == 0]
    words = 0
    for name in living:
        before = functions[name.rpartition("__mutmut_")[0] + "__mutmut_orig"]
        after = functions[name]
        if _without_words(before) == _without_words(after):
            words += 1
            continue
        print(name)
        old, new = (_lines(lines, function) for function in (before, after))
        for line in list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]:
            print(f"    {line}")
    print(f"{module}: {len(outcomes)} mutants, {len(living)} live, {words} of them are words alone")


def _lines(lines: list[str], function: ast.FunctionDef) -> list[str]:
    found = lines[function.lineno - 1 : function.end_lineno]
    return [line.replace(function.name, "") for line in found]


def _without_words(function: ast.FunctionDef) -> str:
    """A function without its name and the strings of the errors that it raises."""
    function = copy.deepcopy(function)
    function.name = ""
    for call in ast.walk(function):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if call.func.id in ("Refused", "HunkError", "PatchSyntaxError"):
            named = [k.value for k in call.keywords if k.arg in ("hint", "detail")]
            for part in (p for argument in (*call.args, *named) for p in ast.walk(argument)):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    part.value = ""
    return ast.dump(function)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in TESTS:
        sys.exit(f"usage: python -m tests.mutation {{{','.join(TESTS)}}}")
    sys.exit(run(sys.argv[1]))
