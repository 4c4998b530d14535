"""Promise 9: ``verify`` is a guard, not a guest."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Result
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    DELTA,
    STATE,
    Lab,
    Site,
    needs_root,
    needs_tool,
    unprivileged,
)
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)


def patched(lab: Lab, *dists: Dist) -> Site:
    site = lab.site(*dists)
    assertion = {
        "distribution": "acme",
        "file": ALPHA[0],
        "pattern": "second_3 = 1030",
        "message": "the second is open",
    }
    lab.bundle(
        "b", {"acme": lab.edit(ALPHA, BETA), "bolt-kernels": lab.edit(DELTA)}, assert_=[assertion]
    )
    lab.run(site, "apply", "b")
    return site


def silent(result: Result) -> None:
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", ""), str(result)


def test_it_is_silent_on_success(lab: Lab) -> None:
    site = patched(lab)
    silent(lab.run(site, "verify"))
    silent(lab.run(site, "verify", "b"))
    silent(lab.run(site, "-q", "verify"))
    pristine = lab.site()
    silent(lab.run(pristine, "verify"))
    silent(lab.run(pristine, "verify", "--pristine"))


def test_verbose_speaks_on_standard_error(lab: Lab) -> None:
    site = patched(lab)
    for args in (("-v", "verify"), ("verify", "-v")):
        result = lab.run(site, *args)
        assert result.stdout == ""
        assert "b" in result.stderr and "3 files" in result.stderr


def test_problems_go_to_standard_error(lab: Lab) -> None:
    site = patched(lab)
    (site / ALPHA[0]).write_text("x = 1\n")
    result = lab.run(site, "verify", check=1)
    assert result.stdout == ""
    assert ALPHA[0] in result.stderr
    assert "the second is open" in result.stderr
    assert "hint:" in result.stderr


def test_json_is_all_of_standard_output(lab: Lab) -> None:
    site = patched(lab)
    answer = lab.json(site, "verify")
    assert answer["ok"] is True and answer["problems"] == [] and answer["bundles"] == ["b"]
    (site / BETA[0]).write_text("x = 1\n")
    answer = lab.json(site, "verify", check=1)
    (problem,) = answer["problems"]
    assert problem["kind"] == "drift" and problem["file"] == BETA[0]
    assert {"kind", "bundle", "file", "message"} <= set(problem)


def test_a_broken_assertion_is_a_problem_of_its_own(lab: Lab) -> None:
    """It names the bundle, the file and what it means."""
    site = patched(lab)
    text = site.text(ALPHA[0]).replace("second_3 = 1030", "second_3 = 1031")
    (site / ALPHA[0]).write_text(text)
    problems = lab.json(site, "verify", check=1)["problems"]
    kinds = {problem["kind"] for problem in problems}
    assert kinds == {"drift", "assertion"}
    (assertion,) = (problem for problem in problems if problem["kind"] == "assertion")
    assert assertion["bundle"] == "b" and assertion["file"] == ALPHA[0]
    assert "the second is open" in assertion["message"]


def test_an_assertion_on_a_file_that_no_patch_touches(lab: Lab) -> None:
    site = lab.site()
    assertion = {
        "distribution": "acme",
        "file": "acme/sub/gamma.py",
        "pattern": r"green_3 = 103\b",
        "message": "green as delivered",
    }
    lab.bundle("b", {"acme": lab.edit(ALPHA)}, assert_=[assertion])
    lab.run(site, "apply", "b")
    silent(lab.run(site, "verify"))
    text = site.text("acme/sub/gamma.py").replace("green_3 = 103\n", "green_3 = 104\n")
    (site / "acme/sub/gamma.py").write_text(text)
    problems = lab.json(site, "verify", check=1)["problems"]
    assert [(p["kind"], p["file"]) for p in problems] == [("assertion", "acme/sub/gamma.py")]


def test_named_bundles_must_be_applied(lab: Lab) -> None:
    site = patched(lab)
    lab.bundle("other", {"acme": lab.edit(("acme/old.py", "outdated_3 = 3\n", "outdated_3 = 4\n"))})
    answer = lab.json(site, "verify", "b", "other", check=1)
    assert [(p["kind"], p["bundle"]) for p in answer["problems"]] == [("missing-bundle", "other")]
    result = lab.run(site, "verify", "other", check=1)
    assert "other" in result.stderr and "patchkit apply other" in result.stderr


def test_pristine_fails_where_something_is_applied(lab: Lab) -> None:
    site = patched(lab)
    answer = lab.json(site, "verify", "--pristine", check=1)
    assert {problem["kind"] for problem in answer["problems"]} == {"not-pristine"}


def test_pristine_reads_all_of_the_target_and_nothing_of_others(lab: Lab) -> None:
    other = Dist("unrelated", "1.0", {"unrelated/__init__.py": "a = 1\n"})
    site = lab.site(ACME, other)
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    (site / "unrelated/__init__.py").write_text("changed = 1\n")
    silent(lab.run(site, "verify", "--pristine"))
    (site / "acme/table.txt").write_text("changed\n")
    (site / "acme/old.py").unlink()
    answer = lab.json(site, "verify", "--pristine", check=1)
    found = {(problem["kind"], problem["file"]) for problem in answer["problems"]}
    assert found == {("not-pristine", "acme/table.txt"), ("not-pristine", "acme/old.py")}


# --- it needs nothing --------------------------------------------------------------------


def test_without_home_path_and_terminal(lab: Lab) -> None:
    """An empty environment: what systemd, Slurm and ``env -i`` give."""
    site = patched(lab)
    done = subprocess.run(
        lab.command(site, "verify", "b"),
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_without_git(lab: Lab) -> None:
    site = patched(lab)
    empty = lab.folder("bin")
    silent(lab.run(site, "verify", env={"PATH": str(empty)}))


def test_without_network(lab: Lab) -> None:
    needs_root()
    needs_tool("unshare")
    site = patched(lab)
    silent(lab.run(site, "verify", "b", prefix=("unshare", "-n")))


def test_with_streams_closed(lab: Lab) -> None:
    needs_tool("bash")
    site = patched(lab)
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        prefix = ("bash", "-c", f'exec "$@" {closed}', "bash")
        assert lab.run(site, "verify", "b", prefix=prefix, check=None).exit_code == 0, closed


def test_a_full_standard_error(lab: Lab) -> None:
    """/dev/full: the message is lost, the exit code is not."""
    site = patched(lab)
    (site / ALPHA[0]).write_text("x = 1\n")
    with open("/dev/full", "wb") as full:
        command = lab.command(site, "verify")
        done = subprocess.run(command, env=lab.child_env, stderr=full, check=False)
    assert done.returncode == 1


def read_only(lab: Lab, site: Site, *args: str, extra: tuple[str, ...] = ()) -> Result:
    """Run with the whole environment on a read-only mount, without capabilities."""
    needs_root()
    needs_tool("unshare", "mount", "setpriv")
    script = (
        f'mount --bind "{site.root}" "{site.root}" && '
        f'mount -o remount,ro,bind "{site.root}" && '
        f'! touch "{site.root}/probe" 2>/dev/null && exec "$@"'
    )
    prefix = ("unshare", "-m", "sh", "-c", script, "sh", *unprivileged(), *extra)
    return lab.run(site, *args, check=None, prefix=prefix)


@pytest.mark.parametrize("args", [("verify",), ("verify", "b")])
def test_on_a_read_only_file_system_as_an_unprivileged_user(
    lab: Lab, args: tuple[str, ...]
) -> None:
    silent(read_only(lab, patched(lab), *args))


def test_failing_on_a_read_only_file_system(lab: Lab) -> None:
    site = patched(lab)
    (site / ALPHA[0]).write_text("x = 1\n")
    result = read_only(lab, site, "verify")
    assert result.exit_code == 1 and ALPHA[0] in result.stderr


def test_pristine_on_a_read_only_file_system(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    silent(read_only(lab, site, "verify", "--pristine"))


@pytest.mark.parametrize(
    "args", [("status",), ("list",), ("show", "b"), ("diff",), ("apply", "--dry-run", "b")]
)
def test_what_only_reads_works_there_too(lab: Lab, args: tuple[str, ...]) -> None:
    result = read_only(lab, patched(lab), *args)
    assert result.exit_code == 0, str(result)


def test_apply_and_revert_say_so_there(lab: Lab) -> None:
    site = patched(lab)
    before = site.picture()
    for args in (("revert", "--all"), ("revert", "b")):
        result = read_only(lab, site, *args)
        assert result.exit_code == 4, str(result)
        assert "hint:" in result.stderr
    assert site.differences(before) == []


def test_files_of_another_owner(lab: Lab) -> None:
    """Root installed and patched it, a user launches the server."""
    needs_root()
    needs_tool("chown")
    site = patched(lab)
    subprocess.run(["chown", "-R", "4321:4321", site.root], check=True)
    silent(lab.run(site, "verify", "b", prefix=unprivileged()))


def test_the_state_can_be_read_by_everybody(lab: Lab) -> None:
    """Applied with a tight umask by root; others must still be able to verify."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA) + lab.diff({}, {"acme/new/x.py": "x = 1\n"})})
    lab.run(site, "apply", "b", prefix=("sh", "-c", 'umask 077; exec "$@"', "sh"))
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "4321:4321", site.root], check=True)
        silent(lab.run(site, "verify", "b", prefix=unprivileged()))
    assert (site / STATE).stat().st_mode & 0o055 == 0o055


def test_it_changes_nothing_not_even_a_time(lab: Lab) -> None:
    site = patched(lab)
    time.sleep(0.02)
    before = {path: os.lstat(path).st_ctime_ns for path in site.root.rglob("*")}
    lab.run(site, "verify", "b")
    lab.run(site, "verify", "--pristine", check=1)
    after = {path: os.lstat(path).st_ctime_ns for path in site.root.rglob("*")}
    assert before == after


def test_nothing_of_the_target_is_imported_or_started(lab: Lab) -> None:
    """Every way in which Python runs code of the environment leaves a mark here."""
    trap = Dist(
        "acme",
        "1.0",
        {**ACME.files, "acme/__init__.py": "import os\nos.mkdir(os.environ['TRAP'])\n"},
    )
    site = lab.venv(trap)
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    mark = lab.base / "mark"
    (site / "sitecustomize.py").write_text("import os\nos.mkdir(os.environ['TRAP'])\n")
    (site / "trap.pth").write_text("import os; os.mkdir(os.environ['TRAP'])\n")
    assert site.python is not None
    for name in ("python", "python3"):
        path = site.python.parent / name
        path.unlink(missing_ok=True)
        path.write_text('#!/bin/sh\nmkdir "$TRAP"\n')
        path.chmod(0o755)
    env = {"TRAP": str(mark)}
    for args in (("apply", "b"), ("verify", "b"), ("status",), ("list",), ("revert", "--all")):
        lab.run(site, *args, env=env)
        assert not mark.exists(), f"{args} ran code of the environment"


def test_it_never_prompts(lab: Lab) -> None:
    """On a terminal, with everything wrong, it ends by itself."""
    site = patched(lab)
    (site / ALPHA[0]).write_text("x = 1\n")
    control, terminal = pty.openpty()
    try:
        done = subprocess.run(
            lab.command(site, "verify", "b", "nothing"),
            env=lab.child_env,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            timeout=60,
            check=False,
        )
        assert done.returncode in (1, 2, 3)
    finally:
        os.close(terminal)
        os.close(control)


def test_bundles_need_not_be_there(lab: Lab) -> None:
    """What is checked was compiled into the record; the bundle folder may be on another node."""
    site = patched(lab)
    shutil.rmtree(lab.bundles)
    silent(lab.cli(*site.where, "verify", "b"))
    silent(lab.cli(*site.where, "verify"))


# --- what it costs -----------------------------------------------------------------------


def opened(lab: Lab, site: Site, *args: str) -> list[str]:
    """The paths below the site's folder that a command opens or lists."""
    trace = lab.base / "trace"
    lab.run(
        site,
        *args,
        prefix=(
            *("strace", "-f", "-qq", "-o", str(trace), "-e"),
            "trace=open,openat,openat2,stat,lstat,newfstatat,statx,getdents64,readlink,access",
        ),
    )
    text = trace.read_text(errors="replace")
    return re.findall(r'"([^"]*)"', text)


def test_the_cost_does_not_depend_on_the_tree(lab: Lab) -> None:
    needs_tool("strace")
    small = patched(lab)
    calls = []
    for extra in (0, 3000):
        site = lab.copy(small)
        for number in range(extra):
            folder = site.root / f"acme/many{number % 50}"
            folder.mkdir(exist_ok=True)
            (folder / f"file{number}.py").write_text("x = 1\n")
        for number in range(extra // 10):
            (site.root / f"package{number}-1.0.dist-info").mkdir()
        calls.append(len(opened(lab, site, "verify", "b")))
    assert calls[1] <= calls[0] + 5, calls


def test_each_applied_file_is_opened_once(lab: Lab) -> None:
    needs_tool("strace")
    site = patched(lab)
    trace = lab.base / "opens"
    lab.run(
        site,
        "verify",
        "b",
        prefix=("strace", "-f", "-qq", "-o", str(trace), "-e", "trace=open,openat,openat2"),
    )
    text = trace.read_text(errors="replace")
    for path, _, _ in (ALPHA, BETA, DELTA):
        name = re.escape(path.rpartition("/")[2])
        assert len(re.findall(rf'/?{name}"', text)) == 1, path
    assert "gamma.py" not in text and "RECORD" not in text


def test_no_process_is_started(lab: Lab) -> None:
    needs_tool("strace")
    site = patched(lab)
    trace = lab.base / "processes"
    lab.run(
        site,
        "verify",
        "b",
        prefix=("strace", "-f", "-qq", "-o", str(trace), "-e", "trace=execve,fork,vfork,connect"),
    )
    lines = [line for line in trace.read_text().splitlines() if "execve" in line]
    assert len([line for line in lines if "= 0" in line]) == 1, lines
    assert "fork" not in trace.read_text() and "connect" not in trace.read_text()


def test_a_named_pipe_in_place_of_a_file_does_not_hang(lab: Lab) -> None:
    site = patched(lab)
    (site / ALPHA[0]).unlink()
    os.mkfifo(site / ALPHA[0])
    result = lab.run(site, "verify", check=1, timeout=30)
    assert ALPHA[0] in result.stderr


def test_a_file_that_cannot_be_read(lab: Lab) -> None:
    """It is no proof that all is well; it is named."""
    prefix = unprivileged()
    site = patched(lab)
    (site / ALPHA[0]).chmod(0)
    result = lab.run(site, "verify", check=None, prefix=prefix)
    assert result.exit_code in (1, 4), str(result)
    assert ALPHA[0] in result.stderr
    assert "Traceback" not in result.stderr


def test_from_the_pre_launch_line_of_the_readme(lab: Lab) -> None:
    site = patched(lab)
    line = f'"{sys.executable}" -m patchkit --root "{site.root}" verify b && echo launched'
    done = subprocess.run(
        ["sh", "-c", line],
        env=lab.child_env,
        cwd=Path("/"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("launched\n", "")
