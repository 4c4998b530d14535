"""The documents against the program: what they show runs and prints what they say.

In a ``console`` block a line that begins with ``$`` is a command; the lines up to the next
one are what it prints.  ``…`` stands for any text in a line, and alone on a line for any
lines.  All blocks of a document run in order, as one person's session.
"""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path

import pytest

from tests import releases
from tests.conftest import Cli, MakeVenv
from tests.releases import ROOT

DOCUMENTS = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("examples/*/*.md"),
        *ROOT.glob("benchmarks/*.md"),
    ]
)


@dataclass(frozen=True, slots=True)
class Shown:
    """One command of a document and the lines that it is said to print."""

    line: int
    command: str
    output: tuple[str, ...]


def fenced(path: Path, language: str) -> Iterator[tuple[int, list[str]]]:
    """The blocks of one language, each with the number of its first line."""
    block: list[str] | None = None
    start = 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if block is None and line == f"```{language}":
            block, start = [], number + 1
        elif block is not None and line == "```":
            yield start, block
            block = None
        elif block is not None:
            block.append(line)


def shown(path: Path) -> Iterator[Shown]:
    """Every command of the console blocks."""
    for start, block in fenced(path, "console"):
        commands: list[tuple[int, str, list[str]]] = []
        for number, line in enumerate(block, start):
            if line.startswith("$ "):
                commands.append((number, line[2:], []))
            elif line.startswith("> ") and commands and not commands[-1][2]:
                last = commands.pop()
                commands.append((last[0], f"{last[1]}\n{line[2:]}", []))
            else:
                assert commands, f"{path.name}:{number}: output without a command"
                commands[-1][2].append(line)
        for number, command, output in commands:
            yield Shown(number, command, tuple(output))


def _pattern(line: str) -> re.Pattern[str]:
    parts = [re.escape(part) for part in " ".join(line.split()).split("…")]
    return re.compile(".*".join(parts))


def unlike(expected: tuple[str, ...], printed: str) -> str | None:
    """The first line of ``expected`` that ``printed`` has not in its place, or None."""
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    place = 0
    free = False
    for line in expected:
        if not line.strip():
            continue
        if line.strip() == "…":
            free = True
            continue
        pattern = _pattern(line)
        candidates = range(place, len(lines)) if free else range(place, place + 1)
        hit = next((n for n in candidates if n < len(lines) and pattern.fullmatch(lines[n])), None)
        if hit is None:
            return line
        place, free = hit + 1, False
    if not free and place < len(lines):
        return f"(no more lines, but there is: {lines[place]})"
    return None


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (("a", "b"), "a\nb\n", True),
        (("a",), "a\nb\n", False),
        (("a", "…"), "a\nb\n", True),
        (("…", "b"), "a\nb\n", True),
        (("a … c",), "a  b b   c\n", True),
        (("b",), "a\nb\n", False),
        ((), "a\n", False),
    ],
)
def test_the_comparison_itself(expected: tuple[str, ...], printed: str, same: bool) -> None:
    assert (unlike(expected, printed) is None) == same


@pytest.mark.parametrize(
    "document",
    ["README.md", "docs/launch.md", "docs/hooks.md", "docs/fleet.md", "docs/images.md"],
)
def test_every_command_that_is_shown_prints_what_is_said(
    document: str, make_venv: MakeVenv, home: Path, child_env: dict[str, str]
) -> None:
    venv = make_venv()
    (home / "sglang-env").symlink_to(venv)
    before = releases.snapshot(venv)
    bin_folder = Path(sys.executable).parent
    env = {**child_env, "PATH": f"{bin_folder}:{child_env['PATH']}"}
    # What the README takes for granted: a patch file, and a variable that stays exported.
    version = releases.tree("sglang", "0.5.9") / "sglang" / "version.py"
    first, *_ = version.read_text().splitlines()
    (home / "fix.patch").write_text(
        "--- a/python/sglang/version.py\n+++ b/python/sglang/version.py\n"
        f"@@ -1 +1,2 @@\n+# a fix\n {first}\n"
    )
    commands = list(shown(ROOT / document))
    assert len(commands) > 5
    wrong = []
    for item in commands:
        if item.command.startswith("export "):
            name, _, value = item.command.removeprefix("export ").partition("=")
            env[name] = value.replace("~", str(home))
            continue
        done = subprocess.run(
            ["bash", "-c", item.command],
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        difference = unlike(item.output, done.stdout)
        if difference is not None or (done.returncode and "$?" not in item.command):
            wrong.append(
                f"{document}:{item.line}: $ {item.command}\n  not printed: {difference}\n"
                f"  exit code {done.returncode}, printed:\n{done.stdout}"
            )
    assert not wrong, "\n".join(wrong)
    assert releases.diff_snapshots(before, releases.snapshot(venv)) == []


@pytest.mark.parametrize("name", ["docs/doctor.md", "examples/eagle-fast-verify/README.md"])
def test_what_is_shown_of_the_example_is_printed(name: str, cli: Cli) -> None:
    found = list(shown(ROOT / name))
    assert found
    for one in found:
        program, *arguments = shlex.split(one.command)
        assert program == "patchkit"
        result = cli(*arguments, cwd=ROOT)
        wrong = unlike(one.output, result.stdout + result.stderr)
        assert wrong is None, f"{name}:{one.line}: expected {wrong!r}, got\n{result}"


def test_the_command_table_of_the_readme_is_the_program_s(cli: Cli) -> None:
    listed = re.findall(
        r"^  ([a-z-]+)\s", cli("--help").stdout.partition("Commands:")[2], re.MULTILINE
    )
    table = re.findall(r"^\| `patchkit ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(set(table)) == sorted(listed)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = document if not path else document.parent / path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(target)
    assert not wrong


def anchors(document: Path) -> set[str]:
    """The anchors that a forge gives to the headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_changelog_begins_with_this_version() -> None:
    version = metadata("patchkit-sets")["Version"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    released = [pair for pair in versions if pair[0] != "Unreleased"]
    assert released[0][0] == version
    assert all(date for _, date in released)


def test_the_commands_for_developers_are_the_ones_that_dev_py_has() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "dev.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    named = set()
    for document in DOCUMENTS:
        named.update(re.findall(r"dev\.py ([a-z-]+)", document.read_text(encoding="utf-8")))
    (choices,) = re.findall(r"\{([a-z,-]+)\}", done.stdout.partition("\n\n")[0])
    assert named == set(choices.split(","))


def test_ci_runs_the_command_of_the_readme() -> None:
    command = "python3 dev.py test"
    assert f"exec {command}" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = itertools.chain.from_iterable(block for _, block in fenced(ROOT / "README.md", "sh"))
    assert {command, "python3 dev.py demo"} <= {line.partition("#")[0].strip() for line in lines}
