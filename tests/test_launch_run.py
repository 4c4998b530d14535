"""``patchkit run``: verified, exported, held, and the same process."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import UsageError
from patchkit.launch import run as launch
from patchkit.launch.profile import merged, placed
from patchkit.launches import join
from patchkit.session import Options
from tests.conftest import Installed
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    STATE,
    Lab,
    Site,
    needs_root,
    needs_tool,
    plain,
    unprivileged,
)
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)

#: Says that it runs, and ends when its standard input does.
SERVER = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def site(lab: Lab) -> Site:
    """Two bundles on offer: one that patches, one of settings alone."""
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.bundle("other", {"acme": lab.edit(BETA)})
    lab.bundle("tree", profile={"env": {"NCCL_ALGO": "Tree"}, "args": ["--size", "1 2"]})
    return lab.site()


def environment(lab: Lab, site: Site, *args: str, **more: Any) -> dict[str, str]:
    """What a launched command finds in its environment."""
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    found = lab.run(site, "run", *args, "--", sys.executable, "-c", code, **more)
    value: dict[str, str] = json.loads(found.stdout)
    return value


@contextmanager
def launched(
    lab: Lab, site: Site, *args: str, code: str = SERVER, prefix: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that runs, until the end of the block."""
    command = lab.command(site, "run", *args, "--", sys.executable, "-c", code)
    process = subprocess.Popen(
        [*prefix, *command],
        env=lab.child_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if line != b"up\n":
            assert process.stderr is not None
            pytest.fail(f"{line!r} {process.stderr.read().decode()}")
        yield process
    finally:
        process.communicate()


# --- the same process --------------------------------------------------------------------


def test_the_command_takes_the_place_of_patchkit(lab: Lab, site: Site) -> None:
    """The process that was started is the command's, and nothing else is said or started."""
    lab.run(site, "apply", "b")
    code = "import os; print(os.getpid(), os.getppid())"
    process = lab.start(site, "run", "--bundle", "b", "--", sys.executable, "-c", code)
    out, err = process.communicate()
    assert out.split() == [str(process.pid).encode(), str(os.getpid()).encode()]
    assert err == b""


@pytest.mark.parametrize("code", [0, 1, 3, 42, 255])
def test_the_exit_code_is_the_commands(lab: Lab, site: Site, code: int) -> None:
    assert lab.run(site, "run", "--", "sh", "-c", f"exit {code}", check=None).exit_code == code


def test_signals_reach_the_command_as_if_it_had_been_started_alone(lab: Lab, site: Site) -> None:
    code = (
        "import signal, sys\n"
        "print('ignored', [s.name for s in signal.Signals if s not in (9, 19)\n"
        "      and signal.getsignal(s) == signal.SIG_IGN], flush=True)\n"
        "signal.signal(signal.SIGTERM, lambda *a: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    python = [sys.executable, "-c", code]
    ends = []
    for command in (python, lab.command(site, "run", "--", *python)):
        process = subprocess.Popen(command, env=lab.child_env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stdout.close()
        ends.append((lines, process.returncode))
    assert ends[0] == ends[1]
    assert ends[1][1] == 7


def test_sigpipe_ends_a_command_that_does_not_catch_it(lab: Lab, site: Site) -> None:
    """Python ignores it for itself; what it becomes must not inherit that."""
    command = shlex.join([*lab.command(site, "run"), "--", "yes"])
    script = f'{command} | head -1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script], env=lab.child_env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["y", str(128 + signal.SIGPIPE)]


def test_as_the_first_process_of_a_container(lab: Lab, site: Site) -> None:
    needs_root()
    needs_tool("unshare")
    lab.run(site, "apply", "b")
    code = "import os; print(os.getpid())"
    prefix = ("unshare", "--pid", "--fork", "--mount-proc")
    result = lab.run(site, "run", "--bundle", "b", "--", sys.executable, "-c", code, prefix=prefix)
    assert result.stdout == "1\n"


def test_standard_streams_are_the_commands(lab: Lab, site: Site) -> None:
    result = lab.run(site, "run", "--", "cat", input=b"\x00\xffbytes")
    assert result.stdout.encode("utf-8", "surrogateescape") == b"\x00\xffbytes"
    assert result.stderr == ""


def test_nothing_but_the_locks_is_handed_on(lab: Lab, site: Site) -> None:
    """Descriptors beyond the three streams: the folder, the lock, and the note."""
    lab.run(site, "apply", "b")
    code = (
        "import os\n"
        "for n in sorted(map(int, os.listdir('/proc/self/fd'))):\n"
        "    if n > 2:\n"
        "        try: print(os.readlink(f'/proc/self/fd/{n}'))\n"
        "        except OSError: pass\n"
    )
    found = lab.run(site, "run", "--", sys.executable, "-c", code).stdout.splitlines()
    assert [os.path.relpath(path, site.root) for path in found[:2]] == [
        ".",
        f"{STATE}/launch.lock",
    ]
    assert len(found) == 3 and "/launches/" in found[2]


def test_the_environment_is_handed_on_as_it_is(lab: Lab, site: Site) -> None:
    code = "import sys; sys.stdout.buffer.write(open('/proc/self/environ', 'rb').read())"
    given = {"PATH": os.environ["PATH"], "ODD": "a=b\nc", "LC_ALL": "C.UTF-8"}
    commands = ([sys.executable, "-c", code], ["sh", "-c", "cat /proc/self/environ"])
    for command in commands:
        plainly = subprocess.run(command, env=given, stdout=subprocess.PIPE, check=True).stdout
        run = [*lab.command(site, "run"), "--", *command]
        by_run = subprocess.run(run, env=given, stdout=subprocess.PIPE, check=True).stdout
        assert sorted(plainly.split(b"\0")) == sorted(by_run.split(b"\0"))


def test_a_locale_that_python_takes_for_itself_is_not_handed_on(lab: Lab, site: Site) -> None:
    given = {"PATH": os.environ["PATH"]}
    run = [*lab.command(site, "run"), "--", "env"]
    done = subprocess.run(run, env=given, capture_output=True, text=True, check=True)
    assert "LC_CTYPE" not in done.stdout


def test_the_exit_codes_of_a_shell_where_the_command_cannot_be_run(
    lab: Lab, site: Site, tmp_path: Path
) -> None:
    missing = lab.run(site, "run", "--", "no-such-command-here", check=127)
    assert "no-such-command-here" in missing.stderr and "hint:" in missing.stderr
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert "denied" in lab.run(site, "run", "--", script, check=126).stderr


# --- the check ---------------------------------------------------------------------------


def test_what_does_not_verify_is_not_launched(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    (site / ALPHA[0]).write_text("x = 1\n")
    result = lab.run(site, "run", "--", "echo", "launched", check=1)
    assert result.stdout == "" and ALPHA[0] in result.stderr and "hint:" in result.stderr
    answer = lab.json(site, "run", "--", "echo", "launched", check=1)
    assert answer["command"] == "run" and answer["problems"][0]["kind"] == "drift"


def test_a_named_bundle_must_be_applied(lab: Lab, site: Site) -> None:
    result = lab.run(site, "run", "--bundle", "b", "--", "echo", "launched", check=1)
    assert result.stdout == "" and "patchkit apply b" in result.stderr


def test_ensure_applies_what_is_missing_and_then_nothing(lab: Lab, site: Site) -> None:
    args = ("run", "--ensure", "--bundle", "b", "--", "cat", site / ALPHA[0])
    first = lab.run(site, *args)
    assert ALPHA[2] in first.stdout and "applied first: b (1 file changed)" in first.stderr
    second = lab.run(site, *args)
    assert second.stdout == first.stdout and second.stderr == ""


def test_ensure_puts_back_what_a_reinstall_took_away(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    lab.install(site, ACME, options=["--reinstall"])
    assert ALPHA[2] not in site.text(ALPHA[0])
    assert ALPHA[2] in lab.run(site, "run", "--ensure", "--", "cat", site / ALPHA[0]).stdout


def test_ensure_does_not_overwrite_a_hand_edit(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    (site / ALPHA[0]).write_text("x = 1\n")
    result = lab.run(site, "run", "--ensure", "--bundle", "b", "--", "echo", "on", check=3)
    assert result.stdout == "" and site.text(ALPHA[0]) == "x = 1\n"


def test_ensure_recovers_an_interrupted_environment(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    (site / STATE / "staged").mkdir()
    assert "interrupted" in lab.run(site, "run", "--", "echo", "on", check=1).stderr
    assert lab.run(site, "run", "--ensure", "--bundle", "b", "--", "echo", "on").stdout == "on\n"


def test_ensure_with_nothing_to_ensure_is_an_error(lab: Lab, site: Site) -> None:
    assert "--bundle" in lab.run(site, "run", "--ensure", "--", "echo", check=2).stderr


def test_the_same_by_click_and_by_the_short_way(lab: Lab, site: Site) -> None:
    """Without ``--`` click reads the options; the command's own are not taken for them."""
    lab.run(site, "apply", "tree")
    for before in (["run", "--append-args", "--"], ["run", "--append-args"]):
        assert lab.run(site, *before, "echo", "-n", "--json").stdout == "--json --size 1 2"


def test_run_imports_nothing_heavy(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    env = {"PYTHONPROFILEIMPORTTIME": "1", "COVERAGE_PROCESS_START": None}
    result = lab.run(site, "run", "--bundle", "b", "--", "true", env=env)
    loaded = set(re.findall(r"^import time:.*\|\s+(\S+)\s*$", result.stderr, re.MULTILINE))
    assert "patchkit.launch.run" in loaded
    assert not loaded & {"click", "tomli", "subprocess", "tempfile", "packaging", "git", "unidiff"}


# --- the profile -------------------------------------------------------------------------


def test_the_profile_of_what_is_applied_is_exported(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b", "tree")
    found = environment(lab, site, "--no-args")
    assert found["NCCL_ALGO"] == "Tree"
    assert found["PATCHKIT_FINGERPRINT"] == lab.json(site, "status")["fingerprint"]


def test_it_needs_no_bundle_directory(lab: Lab, site: Site, tmp_path: Path) -> None:
    lab.run(site, "apply", "tree")
    lab.bundles.rename(tmp_path / "away")
    command = [sys.executable, "-m", "patchkit", *site.where, "run", "--no-args", "--", "env"]
    done = subprocess.run(
        command, env=lab.child_env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "NCCL_ALGO=Tree\n" in done.stdout


def test_a_variable_of_the_user_gives_way_and_says_so_and_env_keeps_it(
    lab: Lab, site: Site
) -> None:
    lab.run(site, "apply", "tree")
    args = ("run", "--no-args", "--", "sh", "-c", "echo $NCCL_ALGO")
    result = lab.run(site, *args, env={"NCCL_ALGO": "Ring"})
    assert result.stdout == "Tree\n" and "--env NCCL_ALGO=Ring keeps it" in result.stderr
    result = lab.run(site, args[0], "--env", "NCCL_ALGO=Ring", *args[1:])
    assert result.stdout == "Ring\n" and result.stderr == ""


def test_arguments_take_the_place_of_the_word(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "tree")
    show = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    assert lab.run(site, "run", "--", *show, "a", "{args}", "z").stdout == (
        "['a', '--size', '1 2', 'z']\n"
    )
    assert lab.run(site, "run", "--append-args", "--", *show, "a").stdout == (
        "['a', '--size', '1 2']\n"
    )
    assert lab.run(site, "run", "--no-args", "--", *show, "a", "{args}").stdout == "['a']\n"


def test_a_command_with_no_place_for_them_is_not_launched(lab: Lab, site: Site) -> None:
    result = lab.run(site, "run", "--ensure", "--bundle", "tree", "--", "echo", check=2)
    assert result.stdout == "" and "{args}" in result.stderr and "applied first" in result.stderr


def test_the_settings_of_a_bundle_that_the_release_has_already(lab: Lab, site: Site) -> None:
    """Nothing of it is applied; what it stands for at the launch is exported all the same."""
    variant = {"versions": ">=1", "upstream": "merged in 1.0"}
    assertion = {"distribution": "acme", "file": ALPHA[0], "pattern": "second_3 = 103"}
    lab.bundle(
        "merged",
        target=[{"distribution": "acme", "variant": [variant]}],
        assert_=[assertion],
        profile={"env": {"FUSED": "1"}},
    )
    assert environment(lab, site, "--bundle", "merged")["FUSED"] == "1"


def test_a_dry_run_shows_it_and_launches_nothing(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "tree")
    result = lab.run(site, "run", "--dry-run", "--", "echo", "{args}")
    assert "NCCL_ALGO=Tree" in result.stdout and "echo --size '1 2'" in result.stdout
    answer = lab.json(site, "run", "--dry-run", "--", "echo", "{args}")
    assert answer["command_line"] == ["echo", "--size", "1 2"]


def test_the_last_bundle_wins_and_it_is_said() -> None:
    one = ("one", {"env": {"A": "1", "B": "1"}, "args": ["x"]})
    two = ("two", {"env": {"A": "2"}, "args": ["y"]})
    found = merged([one, two], {}, {"C": "3"})
    assert found.variables == {"A": "2", "B": "1", "C": "3"} and found.arguments == ["x", "y"]
    assert found.notes == ["A=2 of two wins over 1 of one"]


def test_arguments_without_a_place() -> None:
    with pytest.raises(UsageError):
        placed(["a"], ["x"], "place")
    assert placed(["a", "{args}", "{args}"], [], "place") == ["a"]


# --- kernels -----------------------------------------------------------------------------


@pytest.mark.slow  # about what is built where
def test_kernels_of_patched_files_have_a_folder_of_their_own(
    lab: Lab, site: Site, home: Path
) -> None:
    """None without patched files; the same for the same files, whatever the settings; the old
    one again after a revert."""
    key = "TRITON_CACHE_DIR"
    assert key not in environment(lab, site)
    lab.run(site, "apply", "tree")
    assert key not in environment(lab, site, "--no-args")
    lab.run(site, "apply", "b")
    first = environment(lab, site, "--no-args")[key]
    assert first.startswith(f"{home}/.cache/patchkit/jit/")
    lab.run(site, "revert", "tree")
    assert environment(lab, site)[key] == first
    keys = {first}
    for edit in (BETA, ("acme/alpha.py", "    first_3 = 3\n", "    first_3 = 30\n")):
        lab.bundle("more", {"acme": lab.edit(edit)})
        lab.run(site, "apply", "more")
        keys.add(environment(lab, site)[key])
        lab.run(site, "revert", "more")
        assert environment(lab, site)[key] == first
    assert len(keys) == 3


def test_a_cache_that_the_user_named_is_left_unless_asked(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    given = {"TRITON_CACHE_DIR": "/mine"}
    assert environment(lab, site, env=given)["TRITON_CACHE_DIR"] == "/mine"
    assert environment(lab, site, "--env", "TRITON_CACHE_DIR=/x")["TRITON_CACHE_DIR"] == "/x"
    forced = environment(lab, site, "--jit-caches", "forced", env=given)
    assert forced["TRITON_CACHE_DIR"] != "/mine"
    assert "TORCH_EXTENSIONS_DIR" not in environment(lab, site, "--jit-caches", "user")


def test_without_a_home_folder_it_is_said(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    result = lab.run(site, "run", "--", "env", env={"HOME": None})
    assert "TRITON" not in result.stdout and "no home folder" in result.stderr


@pytest.mark.slow  # about what is built where
def test_flashinfer_s_own_module_puts_its_kernels_there(
    installed: Installed, lab: Lab, home: Path
) -> None:
    """The real release, asked where it builds: with the set, and after it as before."""
    root = installed()
    module = root / "flashinfer" / "jit" / "env.py"
    code = (
        "import sys, types, runpy\n"
        "for name in ('f', 'f.jit', 'f.compilation_context', 'f.version'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "sys.modules['f.version'].__version__ = '0'\n"
        "class Context:\n"
        "    TARGET_CUDA_ARCHS = ()\n"
        "sys.modules['f.compilation_context'].CompilationContext = Context\n"
        f"source = open({str(module)!r}).read()\n"
        "space = {'__name__': 'f.jit.env', '__package__': 'f.jit', "
        f"'__file__': {str(module)!r}}}\n"
        "exec(compile(source, 'env.py', 'exec'), space)\n"
        "print(space['FLASHINFER_WORKSPACE_DIR'])\n"
    )
    run = ("--root", root, "run", "--", sys.executable, "-c", code)
    before = lab.cli(*run).stdout
    lab.cli("--root", root, "apply", "sm120-fusion")
    patched = lab.cli(*run)
    lab.cli("--root", root, "revert", "--all")
    assert lab.cli(*run).stdout == before
    assert before.startswith(f"{home}/.cache/flashinfer/")
    assert patched.stdout.startswith(f"{home}/.cache/patchkit/jit/") and patched.stderr == ""


def test_a_release_that_reads_another_variable_is_named(lab: Lab) -> None:
    other = Dist("flash", "1", {"flashinfer/jit/env.py": "BASE = 'elsewhere'\n"})
    site = lab.site(ACME, other)
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "b")
    assert "does not read FLASHINFER_WORKSPACE_BASE" in lab.run(site, "run", "--", "true").stderr


# --- held --------------------------------------------------------------------------------


def test_apply_and_revert_refuse_while_it_runs_and_name_it(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    with launched(lab, site, "--bundle", "b") as server:
        before = site.picture()
        for args in (("revert", "b"), ("apply", "other"), ("revert", "--all")):
            result = lab.run(site, *args, check=5)
            assert f"process {server.pid} " in result.stderr and "hint:" in result.stderr
        answer = lab.json(site, "apply", "other", check=5)
        assert answer["error"]["code"] == "running"
        assert answer["diagnosis"]["running"][0]["pid"] == server.pid
        assert site.differences(before) == []
        # What changes nothing is no reason to refuse.
        lab.run(site, "apply", "b")
        lab.run(site, "verify", "b")
        assert "still running" in lab.run(site, "revert", "-n", "--all").stderr
    lab.run(site, "revert", "--all")


def test_on_request_it_is_changed_all_the_same(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    with launched(lab, site):
        for args in (("revert", "--all"), ("apply", "other")):
            assert "restart" in lab.run(site, *args, "--while-running").stderr
        # The lock that went with the record is not the only one.
        lab.run(site, "revert", "--all", check=5)


def test_one_that_runs_from_a_pristine_environment_holds_it_too(lab: Lab, site: Site) -> None:
    with launched(lab, site) as server:
        assert not (site / STATE).exists()
        assert f"process {server.pid} " in lab.run(site, "apply", "b", check=5).stderr
        assert not (site / STATE).exists()
    lab.run(site, "apply", "b")


def test_it_is_held_until_the_last_process_of_the_tree_has_ended(lab: Lab, site: Site) -> None:
    """Also where the first one was killed; the kernel lets go, nobody else has to."""
    lab.run(site, "apply", "b")
    code = (
        "import os, sys\n"
        "if os.fork() == 0:\n"
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "print('up', flush=True)\n"
        "import signal; signal.pause()\n"
    )
    with launched(lab, site, code=code) as server:
        server.kill()
        server.wait()
        assert "is in use" in lab.run(site, "revert", "b", check=5).stderr
        (one,) = lab.json(site, "status")["running"]
        assert server.pid in one["processes"] and len(one["processes"]) == 2
    await_end(lab, site)
    lab.run(site, "revert", "b")


def await_end(lab: Lab, site: Site) -> None:
    """Until nothing runs any more: an orphan has no parent here that could wait for it."""
    end = time.monotonic() + 30
    while lab.json(site, "status")["running"]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_worker_that_closed_what_it_inherited_counts_as_well(lab: Lab, site: Site) -> None:
    """Python's subprocess closes descriptors in the child; its environment tells."""
    lab.run(site, "apply", "b")
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'])\n"
        "print('up', flush=True)\n"
        "import signal; signal.pause()\n"
    )
    with launched(lab, site, code=code) as server:
        server.kill()
        server.wait()
        assert "is in use" in lab.run(site, "revert", "b", check=5).stderr
    await_end(lab, site)
    lab.run(site, "revert", "b")


@pytest.mark.slow  # many launches
def test_notes_of_those_that_are_gone_do_not_pile_up(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    for _ in range(12):
        lab.run(site, "run", "--", "true")
    assert len(list((site / STATE / "launches").iterdir())) <= 9
    lab.run(site, "revert", "--all")
    assert not (site / STATE).exists()


def test_a_launch_waits_for_a_change_under_way(lab: Lab, site: Site) -> None:
    """A change holds it exclusively: nobody is launched in the middle."""
    import fcntl

    descriptor = os.open(site.root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        refused = lab.run(site, "--lock-timeout", "0", "run", "--", "echo", "on", check=5)
        assert refused.stdout == "" and "--lock-timeout" in refused.stderr
        process = lab.start(site, "run", "--", "echo", "on")
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 0.2)[0] == []
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        assert process.communicate()[0] == b"on\n"
    finally:
        os.close(descriptor)


def test_a_change_between_the_look_and_the_lock_is_looked_at_again(
    lab: Lab, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run(site, "apply", "b")
    calls: list[Any] = []

    def changed_first(*args: Any) -> Any:
        if not calls:
            lab.run(site, "revert", "b")  # somebody else, after all was well
        calls.append(args)
        return join(*args)

    monkeypatch.setattr(launch, "join", changed_first)
    options = Options(root=str(site.root), bundles=str(lab.bundles), environ=lab.child_env)
    ready = launch.prepare(options, ["true"], launch.Wishes(bundles=("b",)))
    assert len(calls) == 1 and ready.joined.descriptors == []
    assert [one["kind"] for one in ready.report.data["problems"]] == ["missing-bundle"]


def test_on_a_read_only_root_as_an_unprivileged_user(lab: Lab, site: Site) -> None:
    """Nothing can be written there, and the launch is held all the same."""
    needs_root()
    needs_tool("unshare", "mount", "setpriv")
    lab.run(site, "apply", "b")
    script = (
        f'mount --bind "{site.root}" "{site.root}" && '
        f'mount -o remount,ro,bind "{site.root}" && exec "$@"'
    )
    prefix = ("unshare", "-m", "sh", "-c", script, "sh", *unprivileged())
    with launched(lab, site, "--bundle", "b", prefix=prefix):
        assert list((site / STATE).glob("launches/*")) == []
        assert "is in use" in lab.run(site, "revert", "b", check=5).stderr
    lab.run(site, "revert", "b")


def test_where_there_are_no_locks_it_is_launched_and_said(lab: Lab, site: Site) -> None:
    needs_tool("strace")
    lab.run(site, "apply", "b")
    prefix = ("strace", "-qq", "-o", "/dev/null", "-e", "inject=flock:error=ENOLCK")
    result = lab.run(site, "run", "--", "echo", "on", prefix=prefix)
    assert result.stdout == "on\n" and "cannot be locked" in result.stderr


# --- status ------------------------------------------------------------------------------


def test_status_says_whether_each_started_before_the_last_change(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    with launched(lab, site) as old:
        lab.run(site, "apply", "--while-running", "other")
        with launched(lab, site) as new:
            found = {one["pid"]: one for one in lab.json(site, "status")["running"]}
            assert set(found) == {old.pid, new.pid}
            assert found[old.pid]["restart"] and not found[new.pid]["restart"]
            assert found[old.pid]["fingerprint"] != found[new.pid]["fingerprint"]
            text = plain(lab.run(site, "status").stdout)
            assert f"process {old.pid} " in text
            assert text.count("restart needed") == 1
    assert lab.json(site, "status")["running"] == []


def test_a_server_that_was_started_without_run_is_seen(lab: Lab) -> None:
    """By its interpreter, also where its command line does not name that in full."""
    site = lab.venv()
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    assert site.python is not None
    path = f"{site.python.parent}:{os.environ['PATH']}"
    starts: list[tuple[list[str], dict[str, Any]]] = [
        ([str(site.python)], {}),
        (["python"], {"executable": str(site.python), "env": {**lab.child_env, "PATH": path}}),
        (["./python"], {"executable": str(site.python), "cwd": site.python.parent}),
    ]
    servers = []
    try:
        for words, more in starts:
            env = more.pop("env", lab.child_env)
            process = subprocess.Popen(
                [*words, "-c", SERVER],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                **more,
            )
            servers.append(process)
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
        lab.run(site, "apply", "b")  # nothing holds it: it is changed, and status says the rest
        found = {one["pid"]: one for one in lab.json(site, "status")["running"]}
        assert set(found) == {process.pid for process in servers}
        assert all(one["restart"] and one["how"] == "command" for one in found.values())
    finally:
        for process in servers:
            process.communicate()


def test_one_that_has_mapped_a_library_of_it_is_seen(lab: Lab, site: Site) -> None:
    import _struct

    library = site / "acme" / "fast.so"
    if not hasattr(_struct, "__file__"):
        pytest.skip("needs an interpreter with extension modules in files")
    library.write_bytes(Path(_struct.__file__ or "").read_bytes())
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('up', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, library],
        env=lab.child_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        (one,) = lab.json(site, "status")["running"]
        assert (one["pid"], one["how"]) == (process.pid, "maps")
    finally:
        process.communicate()


def test_processes_of_one_server_are_one_line(lab: Lab) -> None:
    site = lab.venv()
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'])\n"
        "print('up', flush=True)\n"
        "child.wait()\n"
    )
    process = subprocess.Popen(
        [str(site.python), "-c", code],
        env=lab.child_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        (one,) = lab.json(site, "status")["running"]
        assert one["pid"] == process.pid and len(one["processes"]) == 2
    finally:
        process.communicate()


def test_the_same_path_in_another_container_is_another_environment(lab: Lab) -> None:
    needs_root()
    needs_tool("unshare", "mount")
    site, other = lab.venv(), lab.venv()
    assert site.python is not None and other.python is not None
    here, there = site.python.parent.parent, other.python.parent.parent
    script = f'mount --bind "{there}" "{here}" && exec "$@"'
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script, "sh", str(site.python), "-c", SERVER],
        env=lab.child_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        assert lab.json(site, "status")["running"] == []
    finally:
        process.communicate()
