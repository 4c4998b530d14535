"""What people see: texts, ``--dry-run``, ``-q``, ``-v``, colour, help and completion."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import releases
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    DELTA,
    Lab,
    Site,
    plain,
    unprivileged,
    write_tree,
)

pytest_plugins = ("tests.support.fixtures",)

COMMANDS = ("list", "show", "status", "diff", "apply", "revert", "verify", "recover", "lint")


def bundles(lab: Lab) -> None:
    dep3 = b"Description: Opens the second.\n It was closed.\nOrigin: vendor\nBug: https://example.org/1\n\n"
    lab.bundle(
        "one",
        {"acme": dep3 + lab.edit(ALPHA), "bolt-kernels": lab.edit(DELTA)},
        description="Why it is needed, at length.",
        profile={"env": {"ONE": "1"}, "args": ["--one"]},
        assert_=[
            {
                "distribution": "acme",
                "file": ALPHA[0],
                "pattern": "second_3 = 1030",
                "message": "the second is open",
            }
        ],
    )
    lab.bundle("two", {"acme": lab.edit(BETA)}, conflicts=["three"], requires=["one"])
    lab.bundle("three", {"acme": lab.edit(BETA)})


def test_list(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    later = {"versions": ">=7", "upstream": "merged in acme 7"}
    lab.bundle("later", target=[{"distribution": "acme", "variant": [later]}])
    here = {"versions": ">=1", "upstream": "merged in acme 1.0, see #17"}
    lab.bundle("merged", target=[{"distribution": "acme", "variant": [here]}])
    lab.run(site, "apply", "one")
    lines = {line.split()[0]: line for line in lab.run(site, "list").stdout.splitlines() if line}
    assert "applied" in lines["one"] and "1.0.0" in lines["one"]
    assert "what one does" in lines["one"]
    assert "needed" in lines["three"] and "needed" in lines["two"]
    assert "upstream" in lines["merged"]
    for word in ("applied", "needed", "upstream"):
        assert word not in lines["later"]


def test_list_is_short_and_says_more_when_asked(lab: Lab) -> None:
    """What a bundle opens and does not is prose: ``show`` has it, and ``list -v``."""
    site = lab.site()
    text = "Opens: the second gate\nDoes not: make it fast"
    lab.bundle("gate", {"acme": lab.edit(ALPHA)}, description=text)
    short = lab.run(site, "list").stdout
    assert "second gate" not in short and "make it fast" not in short
    assert short.endswith(
        "patchkit show BUNDLE says what one opens, and what it is known not to do\n"
    )
    full = lab.run(site, "list", "-v").stdout
    assert "opens: the second gate" in full and "does not: make it fast" in full
    assert "patchkit show" not in full
    lab.run(site, "apply", "gate")
    assert not lab.run(site, "list", "-v").stdout.endswith("\n\n"), "no legend, no empty line"


@pytest.mark.parametrize(
    ("assertion", "said"),
    [
        ({"text": "second_3 = 1030"}, "second_3 = 1030 is there"),
        ({"pattern": "second_[3]", "absent": True}, "second_[3] is absent"),
        ({"text": "a", "min": 2}, "a is there 2 times or more"),
        ({"text": "a", "count": 3}, "a is there 3 times"),
        ({"text": "a", "min": 1, "max": 3}, "a is there 1 to 3 times"),
        ({"literal": {"name": "TABLE", "has": [12, "x"]}}, "TABLE has 12, 'x'"),
        (
            {"condition": {"test": "a or b", "given": {"a": True, "b": False}, "is": True}},
            "a or b is True, given a = True, b = False",
        ),
        ({"defined": ["one", "two"]}, "defined: one, two"),
    ],
)
def test_show_says_what_an_assertion_without_a_message_asks_for(
    assertion: dict[str, object], said: str, lab: Lab
) -> None:
    site = lab.site()
    base = {"distribution": "acme", "file": ALPHA[0], "in": "code"}
    lab.bundle("gate", {"acme": lab.edit(ALPHA)}, assert_=[{**base, **assertion}])
    assert f"            {said}\n" in lab.run(site, "show", "gate").stdout
    (one,) = lab.json(site, "show", "gate")["bundle"]["asserts"]
    assert one["expects"] == said


def test_diff_of_what_is_applied_says_why_it_is_empty(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    assert lab.run(site, "diff", "one").stderr == ""
    lab.run(site, "apply", "one")
    done = lab.run(site, "diff", "one")
    assert done.stdout == "" and "would change no file" in done.stderr


def test_show(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    text = lab.run(site, "show", "one").stdout
    for word in (
        "one 1.0.0",
        "Why it is needed, at length.",
        "one/acme-0001.patch",
        "acme/alpha.py",
        "the second is open",
        "ONE=1",
        "--one",
        "Opens the second.",
        "https://example.org/1",
    ):
        assert word in plain(text), word
    text = lab.run(site, "show", "two").stdout
    assert "one" in text and "three" in text


def test_status(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    assert "nothing is applied" in lab.run(site, "status").stdout
    lab.run(site, "apply", "one", "three")
    text = lab.run(site, "status").stdout
    assert str(site.root) in text
    assert "one" in text and "1.0.0" in text and "three" in text
    assert "fingerprint" in text
    assert "ONE=1" in text and "--one" in text, "the profile of what is applied"
    assert lab.run(site, "status", "--check").exit_code == 0
    (site / ALPHA[0]).write_text("x = 1\n")
    text = lab.run(site, "status").stdout
    assert ALPHA[0] in text
    assert lab.run(site, "status", "--check", check=1).stdout


def test_a_next_step_of_several_problems_is_said_once(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one", "three")
    for path in (ALPHA[0], BETA[0], DELTA[0]):
        (site / path).unlink()
    problems = lab.json(site, "status")["problems"]
    hints = [problem["hint"] for problem in problems]
    assert len(hints) == 3 and len(set(hints)) == 2, "each has it in JSON"
    shown = [
        lab.run(site, "status").stdout,
        lab.run(site, "verify", check=1).stderr,
    ]
    for text in shown:
        assert [text.count(f"hint: {hint}") for hint in set(hints)] == [1, 1]


def test_diff_can_be_applied_by_git(lab: Lab) -> None:
    """What it prints is a patch: from pristine to now, and from now to wanted."""
    site = lab.site()
    bundles(lab)
    files = lab.diff(
        {"acme/old.py": ACME.files["acme/old.py"]}, {"acme/new.py": "n = 1\n"}, "--no-renames"
    )
    lab.bundle("files", {"acme": files})
    other = lab.folder("git")
    write_tree(other, {path: (site / path).read_bytes() for path in releases.files(site / ".")})
    lab.git(other, "init", "-q")
    lab.git(other, "add", "-A", "-f")
    lab.git(other, "commit", "-q", "-m", "pristine")
    wanted = lab.run(site, "diff", "one", "files").stdout
    assert "second_3" in wanted
    lab.run(site, "apply", "one", "files")
    now = lab.run(site, "diff").stdout
    assert now == wanted
    patch = lab.base / "now.diff"
    patch.write_text(now)
    lab.git(other, "apply", str(patch))
    for path in (ALPHA[0], DELTA[0], "acme/new.py"):
        assert (other / path).read_bytes() == (site / path).read_bytes()
    assert not (other / "acme/old.py").exists()
    assert lab.run(site, "diff", "one").stdout == "", "it is applied: nothing would change"


def test_diff_shows_drift_as_it_is_on_the_disk(lab: Lab) -> None:
    """Pristine against now: also what somebody did by hand to a touched file."""
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    with (site / ALPHA[0]).open("a") as file:
        file.write("by_hand = 1\n")
    assert "+by_hand = 1" in lab.run(site, "diff", check=None).stdout


def test_apply_and_revert_say_what_they_did(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    text = lab.run(site, "apply", "one").stdout
    assert re.search(r"modified\s+acme/alpha\.py", text)
    assert re.search(r"modified\s+bolt/delta\.py", text)
    assert "applied: one" in text and "fingerprint: " in text
    text = lab.run(site, "revert", "--all").stdout
    assert re.search(r"modified\s+acme/alpha\.py", text)
    assert "nothing is applied" in text


def test_quiet(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    for args in (("-q", "apply", "one"), ("recover", "-q"), ("revert", "--quiet", "--all")):
        result = lab.run(site, *args)
        assert (result.stdout, result.stderr) == ("", ""), args
    (site / ALPHA[0]).write_text("x = 1\n")
    assert "patchkit: " in lab.run(site, "-q", "apply", "one", check=3).stderr


def test_verbose_shows_the_mapping_and_the_lines(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    quiet = lab.run(site, "apply", "--dry-run", "one").stdout
    verbose = lab.run(site, "-v", "apply", "--dry-run", "one")
    said = verbose.stdout + verbose.stderr
    assert len(said) > len(quiet)
    assert "strip 1" in said and "line 14" in said


# --- dry run -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["apply", "revert", "loose"])
def test_a_dry_run_changes_nothing_and_needs_no_permission(lab: Lab, command: str) -> None:
    site = lab.site()
    bundles(lab)
    loose = lab.base / "fix.patch"
    loose.write_bytes(lab.edit(BETA))
    args = {
        "apply": ("apply", "--dry-run", "one", "two"),
        "revert": ("revert", "--dry-run", "--all"),
        "loose": ("apply", "--dry-run", str(loose)),
    }[command]
    if command == "revert":
        lab.run(site, "apply", "one")
    before = site.picture()
    folders = [path for path in [site.root, *site.root.rglob("*")] if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        dry = lab.run(site, *args, prefix=unprivileged())
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert site.differences(before) == []
    assert "this user could not do it: Permission denied" in dry.stderr
    assert "would be applied" in dry.stdout or "afterwards" in dry.stdout
    real = lab.run(site, *(part for part in args if part != "--dry-run"))
    changes = re.compile(r"^(?:modified|added|deleted)\s+\S+", re.MULTILINE)
    assert changes.findall(dry.stdout) == changes.findall(real.stdout) != []


# --- colour ------------------------------------------------------------------------------


def on_a_terminal(lab: Lab, site: Site, *args: str, **env: str) -> str:
    """What a command prints to a terminal."""
    control, terminal = pty.openpty()
    process = subprocess.Popen(
        lab.command(site, *args),
        env={**lab.child_env, "TERM": "xterm-256color", **env},
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    output = b""
    while True:
        try:
            part = os.read(control, 4096)
        except OSError:
            break
        if not part:
            break
        output += part
    process.wait()
    os.close(control)
    return output.decode()


def test_no_color(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    (site / BETA[0]).write_text("x = 1\n")
    for args in (("diff",), ("status",), ("list",), ("apply", "two"), ("--help",)):
        assert "\x1b[" not in on_a_terminal(lab, site, *args, NO_COLOR="1"), args


def test_no_colour_in_a_pipe(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    for args in (("diff",), ("status",), ("list",), ("show", "one")):
        result = lab.run(site, *args, env={"TERM": "xterm-256color"})
        assert "\x1b" not in result.stdout + result.stderr


def test_json_on_a_terminal_has_no_colour(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    assert "\x1b" not in on_a_terminal(lab, site, "--json", "list")


# --- help and completion -----------------------------------------------------------------


def test_help_of_every_command_has_an_example(lab: Lab) -> None:
    top = lab.cli("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command}\s", top, re.MULTILINE)
        for flag in ("--help", "-h"):
            text = lab.cli(command, flag).stdout
            assert re.search(r"Examples?:\n\s+patchkit", text), command
            assert f"Usage: patchkit {command}" in text
            assert "And --python, --root, --bundles, --lock-timeout" in text


@pytest.mark.parametrize("words", [("capture",), ("trial", "run"), ("guard", "install")])
def test_help_of_a_command_beside_the_core_names_the_options_of_the_program(
    words: tuple[str, ...], lab: Lab
) -> None:
    assert "And --python, --root, --bundles, --lock-timeout" in lab.cli(*words, "-h").stdout


def test_the_examples_of_the_help_are_right(lab: Lab) -> None:
    """Each example line is a command line that patchkit understands."""
    site = lab.site()
    for command in COMMANDS:
        text = lab.cli(command, "--help").stdout
        block = re.split(r"Examples?:\n", text)[1].split("\n\n")[0]
        for line in block.splitlines():
            words = re.split(r"\s(?:&&|\|)\s", line.strip())[0].split()
            assert words[0] == "patchkit"
            at = words.index(command)
            result = lab.cli(*site.where, *words[1:at], *words[at:], check=None)
            assert result.exit_code != 2 or "o such" not in result.stderr, str(result)


def test_the_version(lab: Lab) -> None:
    result = lab.cli("--version")
    assert re.search(r"\d+\.\d+", result.stdout)


def script() -> str:
    found = Path(sys.executable).parent / "patchkit"
    if not found.exists():
        pytest.skip("needs patchkit to be installed beside the interpreter")
    return str(found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(lab: Lab, shell: str) -> None:
    done = subprocess.run(
        [script()],
        env={**lab.child_env, "_PATCHKIT_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "patchkit" in done.stdout and "_PATCHKIT_COMPLETE" in done.stdout
    if shell == "bash" and shutil.which("bash"):
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


def test_completion_of_commands(lab: Lab) -> None:
    env = {
        **lab.child_env,
        "_PATCHKIT_COMPLETE": "bash_complete",
        "COMP_WORDS": "patchkit re",
        "COMP_CWORD": "1",
    }
    done = subprocess.run([script()], env=env, capture_output=True, text=True, check=False)
    words = {line.split(",")[-1] for line in done.stdout.split()}
    assert words == {"recover", "refresh", "rename", "revert"}, done


def test_both_ways_to_start_it(lab: Lab) -> None:
    site = lab.site()
    one = subprocess.run(
        [script(), *site.where, "status"],
        env=lab.child_env,
        capture_output=True,
        text=True,
        check=False,
    )
    two = lab.run(site, "status")
    assert (one.returncode, one.stdout, one.stderr) == (0, two.stdout, two.stderr)


def test_the_usage_names_the_command_when_started_as_a_module(lab: Lab) -> None:
    assert "Usage: patchkit" in lab.cli("--help").stdout
    assert "__main__" not in lab.cli("nonsense", check=2).stderr


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_any_locale(lab: Lab, locale: str) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)}, description="an ellipsis … and an é")
    env = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for args in (("list",), ("show", "one"), ("apply", "one"), ("status",), ("--help",)):
        result = lab.run(site, *args, env=env)
        assert "Traceback" not in result.stderr
