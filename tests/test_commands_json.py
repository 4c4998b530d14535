"""Exit codes, ``--json`` of every command, and which stream gets what."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    DELTA,
    STATE,
    Lab,
    Site,
    unprivileged,
)

pytest_plugins = ("tests.support.fixtures",)

ERROR_KEYS = {"code", "message", "hint", "bundle", "patch", "file", "hunk", "line"}
PROBLEM_KINDS = {
    "drift",
    "assertion",
    "interrupted",
    "missing-bundle",
    "release-changed",
    "not-pristine",
}


def bundles(lab: Lab) -> None:
    files = lab.diff(
        {"acme/old.py": ACME.files["acme/old.py"]}, {"acme/new.py": "n = 1\n"}, "--no-renames"
    )
    lab.bundle("one", {"acme": lab.edit(ALPHA) + files, "bolt-kernels": lab.edit(DELTA)})
    lab.bundle("two", {"acme": lab.edit(BETA)}, version="2.1")
    wrong = lab.edit(ALPHA).replace(b"-    second_3 = 103\n", b"-    second_3 = 9\n")
    lab.bundle("wrong", {"acme": wrong})


def check(site: Site, command: str, answer: Any, code: int = 0) -> Any:
    """The part that every command's object has."""
    assert answer["schema"] == 1
    assert answer["command"] == command
    assert answer["exit_code"] == code
    assert answer["ok"] is (code == 0)
    assert answer["environment"] is not None, "every command names the environment"
    assert set(answer["environment"]) == {"site_packages", "python"}
    assert answer["environment"]["site_packages"] == str(site.root)
    if code in (2, 3, 4, 5, 70):
        error = answer["error"]
        assert {"code", "message", "hint"} <= set(error) <= ERROR_KEYS, error
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error["code"])
    else:
        assert "error" not in answer
    return answer


def digest(site: Site, path: str) -> str | None:
    file = site / path
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None


PATHS = ("acme/alpha.py", "acme/new.py", "acme/old.py", "bolt/delta.py")


def test_apply_and_revert(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    old = {path: digest(site, path) for path in PATHS}
    dry = check(site, "apply", lab.json(site, "apply", "--dry-run", "one"))
    answer = check(site, "apply", lab.json(site, "apply", "one"))
    new = {path: digest(site, path) for path in PATHS}
    assert answer["bundles"] == ["one"]
    files = {file["path"]: file for file in answer["files"]}
    assert {path: file["change"] for path, file in files.items() if "dist-info" not in path} == {
        "acme/alpha.py": "modified",
        "acme/new.py": "added",
        "acme/old.py": "deleted",
        "bolt/delta.py": "modified",
    }
    for file in answer["files"]:
        assert set(file) == {"path", "change", "before", "after", "hunks"}
        for hunk in file["hunks"]:
            assert set(hunk) == {"line", "offset"}
    for path in PATHS:
        assert (files[path]["before"], files[path]["after"]) == (old[path], new[path])
    assert files["acme/alpha.py"]["hunks"] == [{"line": 14, "offset": 0}]
    assert dry["files"] == answer["files"]
    back = check(site, "revert", lab.json(site, "revert", "one"))
    for file in back["files"]:
        if file["path"] in PATHS:
            path = file["path"]
            assert (file["before"], file["after"]) == (new[path], old[path])
    changes = {file["path"]: file["change"] for file in back["files"]}
    assert changes["acme/new.py"] == "deleted" and changes["acme/old.py"] == "added"
    assert back["bundles"] == []


def test_a_rename_is_called_so(lab: Lab) -> None:
    site = lab.site()
    text = ACME.files["acme/old.py"]
    lab.bundle("move", {"acme": lab.diff({"acme/old.py": text}, {"acme/newer.py": text}, "-M")})
    answer = lab.json(site, "apply", "move")
    changes = {file["path"]: file["change"] for file in answer["files"]}
    assert "renamed" in changes.values()
    assert changes.get("acme/newer.py", changes.get("acme/old.py")) == "renamed"


def test_apply_of_what_is_applied(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    answer = check(site, "apply", lab.json(site, "apply", "one"))
    assert answer["files"] == [] and answer["bundles"] == ["one"]
    lab.run(site, "revert", "--all")
    answer = check(site, "revert", lab.json(site, "revert", "--all"))
    assert answer["files"] == [] and answer["bundles"] == []


def test_status(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    empty = check(site, "status", lab.json(site, "status"))
    assert empty["applied"] == [] and empty["problems"] == [] and empty["fingerprint"] is None
    lab.run(site, "apply", "one", "two")
    answer = check(site, "status", lab.json(site, "status"))
    names = [(entry["name"], entry["version"]) for entry in answer["applied"]]
    assert names == [("one", "1.0.0"), ("two", "2.1")]
    assert all("variant" in entry for entry in answer["applied"])
    assert re.fullmatch("[0-9a-f]{64}", answer["fingerprint"])
    (site / BETA[0]).write_text("x = 1\n")
    # Without --check, status reports and ends well; with it, the exit code tells.
    answer = lab.json(site, "status")
    assert (answer["exit_code"], len(answer["problems"])) == (0, 1)
    answer = check(site, "status", lab.json(site, "status", "--check", check=1), 1)
    assert answer["problems"][0]["file"] == BETA[0]


def test_verify(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "two")
    answer = check(site, "verify", lab.json(site, "verify", "two"))
    assert answer["bundles"] == ["two"] and answer["problems"] == []
    assert re.fullmatch("[0-9a-f]{64}", answer["fingerprint"])
    (site / BETA[0]).write_text("x = 1\n")
    answer = check(site, "verify", lab.json(site, "verify", "one", "two", check=1), 1)
    assert {problem["kind"] for problem in answer["problems"]} == {"drift", "missing-bundle"}
    for problem in answer["problems"]:
        assert {"kind", "bundle", "file", "message"} <= set(problem)
        assert problem["kind"] in PROBLEM_KINDS


def test_list(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "two")
    answer = check(site, "list", lab.json(site, "list"))
    assert [entry["name"] for entry in answer["bundles"]] == ["one", "two", "wrong"]
    by_name = {entry["name"]: entry for entry in answer["bundles"]}
    assert by_name["two"]["version"] == "2.1"
    assert by_name["two"]["state"] == "applied"
    assert by_name["one"]["state"] != "applied"


def test_show(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    answer = check(site, "show", lab.json(site, "show", "one"))
    assert answer["bundle"]["name"] == "one"
    text = json.dumps(answer["bundle"])
    for word in ("one/acme-0001.patch", "acme/alpha.py", "bolt-kernels"):
        assert word in text


def test_diff(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    assert check(site, "diff", lab.json(site, "diff"))["files"] == []
    wanted = check(site, "diff", lab.json(site, "diff", "one"))
    lab.run(site, "apply", "one")
    now = check(site, "diff", lab.json(site, "diff"))
    paths = {file["path"] for file in now["files"]}
    assert set(PATHS) <= paths
    assert paths == {file["path"] for file in wanted["files"]}


def test_recover(lab: Lab) -> None:
    site = lab.site()
    check(site, "recover", lab.json(site, "recover"))


def test_lint(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    answer = lab.json(site, "lint", check=1)
    assert answer["schema"] == 1 and answer["command"] == "lint"
    assert answer["ok"] is False and answer["exit_code"] == 1 and answer["problems"]
    assert "environment" in answer


@pytest.mark.parametrize(
    ("args", "code", "command"),
    [
        (("apply", "wrong"), 3, "apply"),
        (("apply", "--dry-run", "wrong"), 3, "apply"),
        (("apply", "one", "wrong"), 3, "apply"),
        (("diff", "wrong"), 3, "diff"),
        (("apply", "missing.patch"), None, "apply"),
    ],
)
def test_a_refusal(lab: Lab, args: tuple[str, ...], code: int | None, command: str) -> None:
    site = lab.site()
    bundles(lab)
    result = lab.run(site, "--json", *args, check=code)
    assert result.exit_code in (2, 3)
    check(site, command, result.json, result.exit_code)


def test_a_fault(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    (site / "acme").chmod(0o555)
    answer = lab.json(site, "apply", "one", check=4, prefix=unprivileged())
    check(site, "apply", answer, 4)


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("nonsense",),
        ("apply",),
        ("apply", "--nonsense", "one"),
        ("revert",),
        ("revert", "--all", "one"),
        ("show",),
        ("show", "one", "two"),
        ("verify", "--pristine", "one"),
        ("apply", "--strip", "x", "fix.patch"),
        ("apply", "--strip", "-1", "fix.patch"),
        ("--root", "/tmp", "--python", "/tmp", "status"),
        ("--lock-timeout", "never", "status"),
        ("apply", "--strip", "1", "one"),
        ("apply", "--reverse", "one"),
    ],
)
def test_a_wrong_command_line(lab: Lab, args: tuple[str, ...]) -> None:
    """Exit code 2, the reason on standard error, nothing done."""
    bundles(lab)
    result = lab.cli("--bundles", lab.bundles, *args, check=2)
    if args:
        assert result.stdout == ""
        assert "Traceback" not in result.stderr and result.stderr


def test_a_wrong_command_line_in_json(lab: Lab) -> None:
    """A script that asked for an object gets one."""
    for args in (("--json", "apply"), ("apply", "--json", "--nonsense"), ("--json", "nonsense")):
        result = lab.cli(*args, check=2)
        answer = json.loads(result.stdout)
        assert answer["ok"] is False and answer["exit_code"] == 2
        assert answer["error"]["message"]


def test_json_before_and_after_the_command(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    one = lab.run(site, "--json", "status").json
    two = lab.run(site, "status", "--json").json
    assert one == two


def test_json_is_one_object_whatever_else_is_said(lab: Lab) -> None:
    """Verbose, with warnings, with a failure: the rest goes to standard error."""
    site = lab.site()
    bundles(lab)
    for args in (("apply", "one"), ("status",), ("verify",), ("diff",), ("list",), ("lint",)):
        result = lab.run(site, "--json", "-v", *args, check=None)
        assert isinstance(json.loads(result.stdout), dict)
        assert "\x1b" not in result.stdout


BROKEN = """
import os, sys
if "patchkit" in " ".join(sys.orig_argv):
    count = [0]
    def broken(name):
        real = getattr(os, name)
        def call(*args, **kwargs):
            target = str(args[1])
            if {suffix!r} in target:
                raise RuntimeError("a bug of the test")
            return real(*args, **kwargs)
        setattr(os, name, call)
    for name in ("replace", "rename"):
        broken(name)
"""


@pytest.mark.parametrize("as_json", [False, True])
def test_a_fault_of_patchkit_itself(lab: Lab, as_json: bool) -> None:
    """Exit code 70: one line and a log with the details; and the change is rolled back."""
    site = lab.site()
    bundles(lab)
    trap = lab.folder("trap")
    (trap / "sitecustomize.py").write_text(BROKEN.format(suffix="delta.py"))
    before = site.picture()
    env = {"PYTHONPATH": f"{trap}:{Path(__file__).resolve().parent.parent}"}
    args = ("--json", "apply", "one") if as_json else ("apply", "one")
    result = lab.run(site, *args, env=env, check=None)
    if result.exit_code == 0:
        pytest.skip("needs os.replace or os.rename to be what swaps the files")
    assert result.exit_code == 70, str(result)
    assert "Traceback" not in result.stderr + result.stdout
    if as_json:
        check(site, "apply", result.json, 70)
    else:
        assert result.stdout == ""
    (log,) = set(re.findall(r"(/\S+\.log)", result.stderr + result.stdout))
    text = Path(log).read_text()
    assert "RuntimeError: a bug of the test" in text and "Traceback" in text
    assert site.differences(before) == []
    lab.run(site, "apply", "one")


def test_a_log_without_a_home(lab: Lab) -> None:
    """The log of a fault goes somewhere, or the details are printed; never a second fault."""
    site = lab.site()
    bundles(lab)
    trap = lab.folder("trap")
    (trap / "sitecustomize.py").write_text(BROKEN.format(suffix="delta.py"))
    env = {
        "PYTHONPATH": f"{trap}:{Path(__file__).resolve().parent.parent}",
        "HOME": "/nonexistent",
    }
    result = lab.run(site, "apply", "one", env=env, check=None)
    if result.exit_code == 0:
        pytest.skip("needs os.replace or os.rename to be what swaps the files")
    assert result.exit_code == 70, str(result)
    assert result.stderr.startswith("patchkit: ")


def test_results_and_messages_have_their_streams(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    for args in (("apply", "one"), ("status",), ("list",), ("show", "one"), ("diff",)):
        result = lab.run(site, *args)
        assert result.stdout != ""
        assert result.stderr == "", args
    result = lab.run(site, "apply", "wrong", check=3)
    assert result.stdout == "" and result.stderr.startswith("patchkit: ")


@pytest.mark.parametrize("args", [("diff", "one"), ("list",), ("show", "one")])
def test_a_closed_pipe_is_no_fault(lab: Lab, args: tuple[str, ...]) -> None:
    """``patchkit diff | head -1``."""
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    site = lab.site()
    bundles(lab)
    command = [sys.executable, "-m", "patchkit", *site.where, "--bundles", str(lab.bundles), *args]
    done = subprocess.run(
        ["bash", "-c", '"$@" | true; echo "${PIPESTATUS[0]}"', "bash", *command],
        env=lab.child_env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
    assert done.stdout.strip() in ("0", "141"), done


def test_a_full_disk_under_the_output(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            lab.command(site, "list"),
            env=lab.child_env,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode not in (0, 70), done.stderr
    assert b"Traceback" not in done.stderr


def test_the_state_is_gone_when_nothing_is_applied(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    for args in (("status",), ("list",), ("diff", "one"), ("apply", "--dry-run", "one")):
        lab.run(site, *args)
        assert not (site / STATE).exists(), args
    lab.run(site, "recover")
    assert not (site / STATE).exists()
    lab.run(site, "apply", "one")
    assert (site / STATE).is_dir()
    lab.run(site, "revert", "one")
    assert not (site / STATE).exists()
