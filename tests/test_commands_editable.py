"""Editable installs and git checkouts: pristine is git HEAD, and git status ends up clean."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Literal

import pytest

from tests import releases
from tests.support.editable import CORE, FILES, MORE, checkout, dirty, installed_editable
from tests.support.lab import ALPHA, STATE, Lab, Site, changed, needs_tool

pytest_plugins = ("tests.support.fixtures",)


def edit(lab: Lab, *edits: tuple[str, str, str]) -> bytes:
    """A patch as git makes it in the checkout: ``a/python/gitted/…``."""
    before = {path: FILES[path] for path, _, _ in edits}
    after = {path: changed(FILES[path], old, new) for path, old, new in edits}
    return lab.diff(before, after)


def files(lab: Lab) -> bytes:
    """A new file and a deleted one."""
    return lab.diff(
        {"python/gitted/sub/more.py": FILES["python/gitted/sub/more.py"]},
        {"python/gitted/fresh/new.py": "n = 1\n"},
        "--no-renames",
    )


@pytest.mark.parametrize("style", ["pth", "finder"])
@pytest.mark.parametrize("by", ["pip", "uv"])
def test_an_editable_install(
    lab: Lab, by: Literal["pip", "uv"], style: Literal["pth", "finder"]
) -> None:
    folder = checkout(lab, style)
    site = installed_editable(lab, folder, by)
    lab.bundle("b", {"gitted": edit(lab, CORE), "acme": lab.edit(ALPHA)}, strip=None)
    lab.bundle("f", {"gitted": files(lab)}, strip=None)
    before = (site.picture(), releases.snapshot(folder, ignore=(".git",)))
    lab.run(site, "apply", "b", "f")
    assert CORE[2] in (folder / CORE[0]).read_text()
    assert sorted(dirty(lab, folder)) == [
        " D python/gitted/sub/more.py",
        " M python/gitted/core.py",
        "?? python/gitted/fresh/new.py",
    ], "nothing but the patch itself"
    lab.run(site, "verify", "b", "f")
    assert [entry["name"] for entry in lab.json(site, "status")["applied"]] == ["b", "f"]
    lab.run(site, "revert", "--all")
    assert dirty(lab, folder) == []
    assert site.differences(before[0]) == []
    after = releases.snapshot(folder, ignore=(".git",))
    fields = tuple(f for f in releases.IDENTITY if f != "inode")
    lines = releases.diff_snapshots(before[1], after, fields)
    assert [line for line in lines if "__pycache__" not in line] == []


def test_the_patched_code_is_what_is_imported(lab: Lab) -> None:
    folder = checkout(lab, "finder")
    site = installed_editable(lab, folder, "pip")
    lab.bundle("b", {"gitted": edit(lab, CORE)}, strip=None)
    lab.run(site, "apply", "b")
    code = "import gitted.core, inspect; print('1030' in inspect.getsource(gitted.core.second))"
    done = subprocess.run(
        [str(site.python), "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr


def test_an_uncommitted_change_of_a_touched_file_is_refused(lab: Lab) -> None:
    folder = checkout(lab)
    site = installed_editable(lab, folder, "uv")
    lab.bundle("b", {"gitted": edit(lab, CORE, MORE)}, strip=None)
    with (folder / MORE[0]).open("a") as file:
        file.write("# mine\n")
    state = dirty(lab, folder)
    result = lab.run(site, "apply", "b", check=3)
    assert "more.py" in result.stderr and "HEAD" in result.stderr
    assert dirty(lab, folder) == state
    assert CORE[1] in (folder / CORE[0]).read_text()


def test_a_staged_change_of_a_touched_file_is_refused(lab: Lab) -> None:
    folder = checkout(lab)
    site = installed_editable(lab, folder, "uv")
    lab.bundle("b", {"gitted": edit(lab, CORE)}, strip=None)
    with (folder / CORE[0]).open("a") as file:
        file.write("# mine\n")
    lab.git(folder, "add", "-A")
    lab.run(site, "apply", "b", check=3)
    assert dirty(lab, folder) == ["M  python/gitted/core.py"]


def test_an_uncommitted_change_elsewhere_stays(lab: Lab) -> None:
    folder = checkout(lab)
    site = installed_editable(lab, folder, "uv")
    lab.bundle("b", {"gitted": edit(lab, CORE)}, strip=None)
    (folder / "README.md").write_text("changed\n")
    (folder / "untracked.txt").write_text("new\n")
    state = dirty(lab, folder)
    lab.run(site, "apply", "b")
    lab.run(site, "revert", "--all")
    assert dirty(lab, folder) == state


def test_an_untracked_file_is_not_pristine(lab: Lab) -> None:
    folder = checkout(lab)
    site = installed_editable(lab, folder, "uv")
    path = "python/gitted/extra.py"
    (folder / path).write_text("a\nb\nc\n")
    lab.bundle("b", {"gitted": lab.diff({path: "a\nb\nc\n"}, {path: "a\nB\nc\n"})}, strip=None)
    result = lab.run(site, "apply", "b", check=3)
    assert "extra.py" in result.stderr
    assert (folder / path).read_text() == "a\nb\nc\n"


def test_drift_in_a_checkout(lab: Lab) -> None:
    """``git checkout -- FILE`` or ``git stash`` while a bundle is applied."""
    folder = checkout(lab)
    site = installed_editable(lab, folder, "uv")
    lab.bundle("b", {"gitted": edit(lab, CORE, MORE)}, strip=None)
    lab.run(site, "apply", "b")
    lab.git(folder, "checkout", "--", CORE[0])
    problems = lab.json(site, "verify", check=1)["problems"]
    assert any("core.py" in str(problem["file"]) for problem in problems)


def test_another_commit_while_applied(lab: Lab) -> None:
    """HEAD moved: the pristine bytes of the touched file are others now."""
    folder = checkout(lab)
    lab.git(folder, "checkout", "-q", "-b", "later")
    (folder / CORE[0]).write_text("entirely = 'new'\n")
    lab.git(folder, "commit", "-q", "-a", "-m", "later")
    lab.git(folder, "checkout", "-q", "main")
    site = installed_editable(lab, folder, "uv")
    lab.bundle("b", {"gitted": edit(lab, CORE)}, strip=None)
    lab.run(site, "apply", "b")
    lab.git(folder, "checkout", "-q", "-f", "later")
    assert lab.json(site, "verify", check=1)["problems"]
    lab.run(site, "revert", "--all", check=None)
    assert (folder / CORE[0]).read_text() == "entirely = 'new'\n"
    assert dirty(lab, folder) == []


def test_a_checkout_as_root_keeps_its_state_in_the_git_directory(lab: Lab) -> None:
    folder = checkout(lab)
    site = Site(folder)
    patch = lab.base / "fix.patch"
    patch.write_bytes(edit(lab, CORE) + files(lab))
    lab.run(site, "apply", patch)
    assert not (folder / STATE).exists()
    assert not (folder / "python" / STATE).exists()
    state = [path for path in (folder / ".git").iterdir() if "patchkit" in path.name]
    assert len(state) == 1, "state, lock, journal and pristine bytes"
    assert sorted(dirty(lab, folder)) == [
        " D python/gitted/sub/more.py",
        " M python/gitted/core.py",
        "?? python/gitted/fresh/new.py",
    ]
    lab.run(site, "verify", "fix.patch")
    lab.run(site, "revert", "--all")
    assert dirty(lab, folder) == []
    assert [path for path in (folder / ".git").iterdir() if "patchkit" in path.name] == []
    lab.git(folder, "fsck", "--strict")


def test_a_patch_of_tests_and_docs_on_a_checkout(lab: Lab) -> None:
    """Nothing is left out there: the checkout has those files."""
    folder = checkout(lab)
    patch = lab.base / "fix.patch"
    path = "test/test_core.py"
    new = "def test() -> None:\n    pass\n"
    patch.write_bytes(edit(lab, CORE) + lab.diff({path: FILES[path]}, {path: new}))
    result = lab.run(Site(folder), "apply", patch)
    assert (folder / path).read_text() == new, str(result)


def test_a_linked_worktree(lab: Lab) -> None:
    """There ``.git`` is a file; its git directory is below the main one's."""
    folder = checkout(lab)
    linked = folder.parent / "linked"
    lab.git(folder, "worktree", "add", "-q", str(linked), "-b", "side")
    patch = lab.base / "fix.patch"
    patch.write_bytes(edit(lab, CORE))
    lab.run(Site(linked), "apply", patch)
    assert CORE[2] in (linked / CORE[0]).read_text()
    assert CORE[1] in (folder / CORE[0]).read_text()
    assert dirty(lab, linked) == [" M python/gitted/core.py"]
    assert dirty(lab, folder) == []
    # The main work tree is an environment of its own.
    assert lab.json(Site(folder), "status")["applied"] == []
    lab.run(Site(linked), "revert", "--all")
    assert dirty(lab, linked) == []


def test_a_folder_inside_a_checkout(lab: Lab) -> None:
    folder = checkout(lab)
    site = Site(folder / "python")
    patch = lab.base / "fix.patch"
    patch.write_bytes(edit(lab, CORE))
    lab.run(site, "apply", patch)
    assert dirty(lab, folder) == [" M python/gitted/core.py"]
    lab.run(site, "revert", "--all")
    assert dirty(lab, folder) == []


def test_a_mode_in_a_checkout(lab: Lab) -> None:
    folder = checkout(lab)
    site = installed_editable(lab, folder, "uv")
    path = "python/gitted/run.sh"
    data = lab.diff({path: FILES[path]}, {path: FILES[path].replace("echo two", "echo 2")})
    lab.bundle("b", {"gitted": data}, strip=None)
    lab.run(site, "apply", "b")
    assert (folder / path).stat().st_mode & 0o111
    assert dirty(lab, folder) == [f" M {path}"]
    lab.run(site, "revert", "--all")
    assert dirty(lab, folder) == []


def test_line_ends_that_git_converts(lab: Lab) -> None:
    """``eol=crlf``: the bytes of the work tree are not those of the object."""
    folder = checkout(lab)
    (folder / ".gitattributes").write_text("*.py text eol=crlf\n")
    lab.git(folder, "add", "-A")
    lab.git(folder, "commit", "-q", "-m", "attributes")
    (folder / CORE[0]).unlink()
    lab.git(folder, "checkout", "--", CORE[0])
    assert b"\r\n" in (folder / CORE[0]).read_bytes()
    site = Site(folder)
    patch = lab.base / "fix.patch"
    head, _, body = edit(lab, CORE).partition(b"@@")
    first, _, rest = body.partition(b"\n")
    patch.write_bytes(head + b"@@" + first + b"\n" + rest.replace(b"\n", b"\r\n"))
    lab.run(site, "apply", patch)
    lab.run(site, "revert", "--all")
    assert dirty(lab, folder) == []


def test_two_environments_with_one_checkout(lab: Lab) -> None:
    """The state belongs to the checkout: the second environment sees what is applied."""
    folder = checkout(lab)
    one = installed_editable(lab, folder, "uv")
    two = installed_editable(lab, folder, "uv")
    lab.bundle("b", {"gitted": edit(lab, CORE)}, strip=None)
    lab.run(one, "apply", "b")
    result = lab.run(two, "apply", "b", check=None)
    assert result.exit_code in (0, 3), str(result)
    assert (folder / CORE[0]).read_text().count("1030") == 1
    lab.run(one, "revert", "--all", check=None)
    lab.run(two, "revert", "--all", check=None)
    assert dirty(lab, folder) == []


def test_no_git_command_and_a_package_that_is_a_wheel(lab: Lab) -> None:
    """git is needed for checkouts alone."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    empty = lab.folder("bin")
    before = site.picture()
    lab.run(site, "apply", "b", env={"PATH": str(empty)})
    lab.run(site, "verify", "b", env={"PATH": str(empty)})
    lab.run(site, "revert", "--all", env={"PATH": str(empty)})
    assert site.differences(before) == []


def test_an_editable_install_without_git(lab: Lab) -> None:
    """A source tree that is in no repository is a plain tree: its bytes are the pristine ones."""
    folder = checkout(lab)
    site = installed_editable(lab, folder, "uv")
    subprocess.run(["rm", "-rf", str(folder / ".git")], check=True)
    lab.bundle("b", {"gitted": edit(lab, CORE)}, strip=None)
    before = releases.snapshot(folder)
    result = lab.run(site, "apply", "b")
    assert "pristine" in result.stdout + result.stderr
    lab.run(site, "revert", "--all")
    assert releases.diff_snapshots(before, releases.snapshot(folder), releases.IDENTITY) == []
    assert not Path(folder / STATE).exists()


def test_two_environments_never_change_one_checkout_at_once(lab: Lab) -> None:
    """Each has a record and a lock of its own; the sources are held, too."""
    needs_tool("strace")
    folder = checkout(lab)
    one, two = (installed_editable(lab, folder, "uv") for _ in range(2))
    lab.bundle("b", {"gitted": edit(lab, CORE)}, strip=None)
    trace = lab.base / "trace"
    trace.touch()
    # The first rename is that of the journal, the second swaps the file.
    stop = ("-e", "trace=renameat", "-e", "inject=renameat:signal=SIGSTOP:when=2")
    held = lab.start(one, "apply", "b", prefix=("strace", "-f", "-qq", "-o", str(trace), *stop))
    end = time.monotonic() + 60
    while "--- stopped by SIGSTOP" not in trace.read_text() and time.monotonic() < end:
        time.sleep(0.01)
    (line,) = (line for line in trace.read_text().splitlines() if "--- stopped by" in line)
    assert CORE[2] in (folder / CORE[0]).read_text()
    for site, args in ((two, ("apply", "b")), (Site(folder), ("apply", "fix.patch"))):
        (lab.base / "fix.patch").write_bytes(edit(lab, MORE))
        command = lab.command(site, *args)
        at = command.index("patchkit") + 1
        command[at:at] = ["--lock-timeout", "0.2"]
        done = subprocess.run(
            command, cwd=lab.base, env=lab.child_env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 5, done.stderr
        assert str(folder) in done.stderr
    os.kill(int(line.split()[0]), signal.SIGCONT)
    _, errors = held.communicate(timeout=60)
    assert held.returncode == 0, errors
    lab.run(two, "apply", "b", check=3)
    lab.run(one, "verify", "b")
    lab.run(one, "revert", "--all")
    assert dirty(lab, folder) == []
    lab.run(two, "apply", "b")
