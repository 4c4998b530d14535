"""``trial run`` and ``trial ab``: one change, one run, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from patchkit.trials import running
from tests import releases
from tests.conftest import Cli, Installed, Result
from tests.support.lab import ALPHA, BETA, STATE, Lab, Site

pytest_plugins = ("tests.support.fixtures",)

#: Says what the patched module holds, as a figure.
FIGURE = """
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from acme import alpha
print("value:", alpha.second.__code__.co_consts[4], "tok/s")
"""
#: Says that it runs, and goes on when somebody opens the pipe.
WAITS = "import os, sys; print('up', os.getpid(), flush=True); open(sys.argv[1]).read()"


@pytest.fixture
def site(lab: Lab) -> Site:
    """Bundles on offer: two that patch, and one of settings alone."""
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.bundle("other", {"acme": lab.edit(BETA)})
    lab.bundle("tree", profile={"env": {"NCCL_ALGO": "Tree"}, "args": ["--size", "1 2"]})
    return lab.site()


def trial(lab: Lab, site: Site, *args: str | Path, check: int | None = 0, **more: Any) -> Result:
    return lab.run(site, "trial", *args, check=check, **more)


def records(lab: Lab) -> list[dict[str, Any]]:
    return [
        json.loads(path.read_text()) for path in sorted((lab.bundles / "trials").glob("*.json"))
    ]


def record(lab: Lab) -> dict[str, Any]:
    (one,) = records(lab)
    return one


def figure(site: Site) -> list[str]:
    return [sys.executable, "-c", FIGURE, str(site.root)]


VALUE = ("--metric", r"value[tok/s]=value: (\d+)")


# -- the run ----------------------------------------------------------------------------


def test_a_patched_module_gives_the_figure_and_everything_is_as_before(
    lab: Lab, site: Site
) -> None:
    before = site.picture()
    done = trial(lab, site, "run", "--name", "t", "--bundle", "b", *VALUE, "--", *figure(site))
    assert "value 1030 tok/s" in done.stdout
    assert "value: 1030" in done.stderr  # the command's own output
    assert site.differences(before) == []
    one = record(lab)
    assert (one["status"], one["kind"], one["name"]) == ("finished", "run", "t")
    (bundle,) = one["sets"]["candidate"]["bundles"]
    assert bundle["name"] == "b" and list(bundle["patches"]) == ["b/acme-0001.patch"]
    assert len(one["sets"]["candidate"]["fingerprint"]) == 64
    (run,) = one["runs"]
    assert run["exit"] == 0 and run["values"] == {"value": 1030.0}
    assert run["seconds"] > 0 and run["peak_memory_bytes"] > 1 << 20
    assert one["metrics"] == {"value": {"unit": "tok/s", "better": "higher"}}
    log = lab.bundles / "trials" / run["log"]
    assert log.read_text() == "value: 1030 tok/s\n" and run["tail"] == ["value: 1030 tok/s"]
    assert (lab.bundles / "trials" / "logs" / ".gitignore").read_text() == "*\n"


def test_a_module_of_a_real_release_is_tried_without_a_gpu(
    installed: Installed, cli: Cli, tmp_path: Path
) -> None:
    root = installed()
    before = releases.snapshot(root)
    code = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('utils', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(module.TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES.get(12, {}).get(4, 0) >> 20, 'MiB')\n"
        "print(sys.argv[2:])\n"
    )
    file = root / "sglang/srt/distributed/device_communicators/all_reduce_utils.py"
    done = cli(
        *("--root", root, "trial", "ab", "--trials", tmp_path, "--name", "symm-mem"),
        *("--candidate", "symm-mem-sm120", "--repeat", "1", "--metric", r"size=^(\d+) MiB"),
        *("--", sys.executable, "-B", "-c", code, file, "{args}"),
    )
    assert "['--enable-torch-symm-mem']" in done.stderr and "\n[]\n" in done.stderr
    (path,) = tmp_path.glob("*.json")
    values = [(run["set"], run["values"]["size"]) for run in json.loads(path.read_text())["runs"]]
    assert values[0] == ("baseline", 0.0) and values[1][0] == "candidate" and values[1][1] > 0
    assert releases.diff_snapshots(before, releases.snapshot(root), releases.IDENTITY) == []


def test_what_was_applied_stays_in_the_set_and_is_applied_again(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "other")
    before, state = site.picture(), lab.run(site, "status", "--json").json
    seen = "import sys; print(open(sys.argv[1]).read().count('1030'))"
    trial(
        *(lab, site, "run", "--name", "t", "--bundle", "b", "--metric", r"n=^\d$", "--"),
        *(sys.executable, "-c", seen, str(site / "acme/beta.py")),
    )
    assert [x["name"] for x in record(lab)["sets"]["candidate"]["bundles"]] == ["other", "b"]
    assert record(lab)["runs"][0]["values"] == {"n": 1.0}
    after = lab.run(site, "status", "--json").json
    assert (after["fingerprint"], after["applied"]) == (state["fingerprint"], state["applied"])
    assert site.differences(before, releases.CONTENTS) == [] or all(
        STATE in line for line in site.differences(before, releases.CONTENTS)
    )


def test_only_the_bundles_named_are_tried_where_that_is_asked(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "other")
    trial(lab, site, "run", "--name", "t", "--only", "--bundle", "b", "--", "true")
    assert [x["name"] for x in record(lab)["sets"]["candidate"]["bundles"]] == ["b"]
    lab.run(site, "verify", "other")


def test_the_earlier_set_comes_back_though_its_bundle_is_another_or_gone(
    lab: Lab, site: Site
) -> None:
    lab.run(site, "apply", "other")
    before = lab.run(site, "status", "--json").json
    gone = (
        "import shutil, sys; shutil.rmtree(sys.argv[1] + '/patches/other');"
        " open(sys.argv[1] + '/manifests/other.toml', 'w').write('changed meanwhile')"
    )
    trial(
        *(lab, site, "run", "--name", "t", "--only", "--bundle", "b"),
        *("--", sys.executable, "-c", gone, str(lab.bundles)),
    )
    after = lab.run(site, "status", "--json").json
    assert (after["fingerprint"], after["applied"]) == (before["fingerprint"], before["applied"])
    lab.run(site, "verify")


def test_the_profile_reaches_the_command_and_arguments_are_words(lab: Lab, site: Site) -> None:
    code = "import os, sys; print([os.environ['NCCL_ALGO'], os.environ['X'], *sys.argv[1:]])"
    base = ("run", "--name", "t", "--bundle", "tree", "--env", "X=1")
    done = trial(lab, site, *base, "--", sys.executable, "-c", code, "{args}", "end")
    assert "['Tree', '1', '--size', '1 2', 'end']" in done.stderr
    done = trial(lab, site, *base, "--append-args", "--", sys.executable, "-c", code, "end")
    assert "['Tree', '1', 'end', '--size', '1 2']" in done.stderr
    use = records(lab)[0]["sets"]["candidate"]
    assert use["environ"] == {"NCCL_ALGO": "Tree", "X": "1"}
    assert use["arguments"] == ["--size", "1 2"]
    # A command without a place for them would run another set than the record says.
    trial(lab, site, *base, "--", sys.executable, "-c", code, check=2)


def test_keep_leaves_the_bundles_applied(lab: Lab, site: Site) -> None:
    trial(lab, site, "run", "--name", "t", "--bundle", "b", "--keep", "--", "true")
    lab.run(site, "verify", "b")
    assert lab.run(site, "status", "--json").json["trial"] is None


def test_repeat_runs_the_command_again_and_again(lab: Lab, site: Site) -> None:
    done = trial(
        *(lab, site, "run", "--name", "t", "--bundle", "b", "--repeat", "3", *VALUE),
        *("--json", "--", *figure(site)),
    )
    runs = done.json["trial"]["runs"]
    assert [run["values"]["value"] for run in runs] == [1030.0] * 3
    assert done.json["command"] == "trial run" and done.json["ok"] is True


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 7", 7),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ],
)
def test_the_exit_code_is_the_commands_and_a_failed_run_ends_the_trial(
    lab: Lab, site: Site, command: str, code: int
) -> None:
    before = site.picture()
    base = ("run", "--name", "t", "--bundle", "b", "--repeat", "3")
    done = trial(lab, site, *base, "--json", "--", "sh", "-c", command, check=code)
    assert done.json["error"]["code"] == "command-failed" and done.json["ok"] is False
    assert site.differences(before) == []
    assert record(lab)["status"] == "failed"
    assert [run["exit"] for run in record(lab)["runs"]] == [code]


def test_a_command_that_is_not_there_is_told_as_a_shell_does(lab: Lab, site: Site) -> None:
    before = site.picture()
    done = trial(lab, site, "run", "--name", "t", "--bundle", "b", "--", "no-such", check=127)
    assert "no-such cannot be run" in done.stderr
    assert site.differences(before) == [] and record(lab)["status"] == "failed"


def test_a_figure_that_is_not_there_fails_the_run(lab: Lab, site: Site) -> None:
    base = ("run", "--name", "t", "--bundle", "b", "--metric", r"speed=(\d+) tok")
    done = trial(lab, site, *base, "--json", "--", "true", check=1)
    assert "there is no figure speed in the output" in done.stderr
    assert done.json["error"]["code"] == "trial-failed"
    assert "there is no figure speed" in done.json["error"]["message"]
    assert record(lab)["status"] == "failed"


def test_a_bundle_that_does_not_apply_is_refused_before_anything_is_written(
    lab: Lab, site: Site
) -> None:
    lab.bundle("bad", {"acme": lab.edit(ALPHA).replace(b"second_3 = 103\n", b"second_3 = 104\n")})
    before = site.picture()
    trial(lab, site, "run", "--name", "t", "--bundle", "bad", "--", "true", check=3)
    assert site.differences(before) == []
    assert [one["status"] for one in records(lab)] in ([], ["failed"])


def test_a_ledger_that_cannot_be_written_leaves_no_trial_behind(lab: Lab, site: Site) -> None:
    before = site.picture()
    (lab.base / "file").write_text("in the way")
    base = ("run", "--trials", lab.base / "file", "--name", "t", "--bundle", "b", "--", "true")
    trial(lab, site, *base, check=4)
    assert site.differences(before) == []


def test_a_full_ledger_does_not_keep_the_environment_from_being_put_back(
    lab: Lab, site: Site
) -> None:
    before = site.picture()
    ledger = lab.bundles / "trials"
    away = f"import os; os.rename({str(ledger)!r}, {str(lab.base / 'away')!r});"
    away += f" open({str(ledger)!r}, 'w')"
    base = ("run", "--name", "t", "--bundle", "b", "--", sys.executable, "-c", away)
    trial(lab, site, *base, check=4)
    assert site.differences(before) == []


def test_drift_is_refused_and_nothing_is_recorded(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "b")
    (site / "acme/alpha.py").write_text("by hand\n")
    done = trial(lab, site, "run", "--name", "t", "--bundle", "other", "--", "true", check=3)
    assert "not as it is recorded" in done.stderr
    assert not (lab.bundles / "trials").exists()


def test_a_json_file_of_an_earlier_run_does_not_count_for_this_one(
    lab: Lab, site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "out.json"
    file.write_text('{"speed": {"mean": 1}}')
    base = ("run", "--name", "t", "--metric-json", f"{file}:speed.mean", "--")
    done = trial(lab, site, *base, "true", check=1)
    assert "from before this run" in done.stderr
    write = f"open({str(file)!r}, 'w').write('{{\"speed\": {{\"mean\": 2.5}}}}')"
    trial(lab, site, *base, sys.executable, "-c", write)
    assert records(lab)[-1]["runs"][0]["values"] == {"mean": 2.5}
    line = ("run", "--name", "t", "--metric-json", "n[ms]=-:a[0]", "--")
    trial(lab, site, *line, "echo", '{"a": [3]}')
    assert records(lab)[-1]["runs"][0]["values"] == {"n": 3.0}


def test_secrets_are_in_no_record(lab: Lab, site: Site) -> None:
    token = "hf_" + "aB3dE5fG7hI9jK1lM2nO4pQ6"
    trial(
        *(lab, site, "run", "--name", "t", "--bundle", "b", "--env", f"HF_TOKEN={token}"),
        *("--env", "NCCL_ALGO=Ring", "--metric", f"n={token}|7", "--", "sh", "-c"),
        *("echo $HF_TOKEN 7; echo \"args(api_key='verysecret')\", $2", "--api-key", "verysecret"),
    )
    text = json.dumps(record(lab))
    assert token not in text and "verysecret" not in text
    assert record(lab)["environ"]["NCCL_ALGO"] == "Ring"


# -- again ------------------------------------------------------------------------------


def _again(lab: Lab, site: Site, name: str) -> None:
    """The command that ``show`` prints, as a shell runs it in another folder."""
    folder = lab.folder("bin")
    line = trial(lab, site, "show", name, "--json", cwd=folder).json["again"]
    shim = folder / "patchkit"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m patchkit "$@"\n')
    shim.chmod(0o755)
    environ = {**lab.child_env, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environ, capture_output=True, check=False
    )
    assert done.returncode == 0, (line, done.stderr)


def _same(one: dict[str, Any]) -> dict[str, Any]:
    """Of a record what a trial that is made again has too, but for the words of its sets."""
    keys = ("name", "kind", "goal", "sets", "command", "measure", "append_args", "metrics")
    words = ("candidate", "baseline", "applied", "only")
    found = {key: one[key] for key in (*keys, "confounded")}
    found["given"] = {key: one["given"][key] for key in one["given"] if key not in words}
    runs = [(run["set"], run["exit"], run["values"], run["tail"]) for run in one["runs"]]
    return {**found, "runs": runs}


def test_the_command_to_make_a_run_again_makes_the_same_trial(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "other")
    code = "import os, sys\nprint('n', os.environ['X'], sys.argv[1:], 'it''s')"
    trial(
        *(lab, site, "run", "--name", "t", "--bundle", "b", "--env", "X=1  2", "--repeat", "2"),
        *("--goal", "less\nthan 'that'", "--metric", r"n[ms]=n (\d+)", "--grace", "2.5"),
        *("--append-args", "--", sys.executable, "-c", code, os.fsdecode(b"\xff"), ""),
    )
    _again(lab, site, "t")
    lab.run(site, "revert", "--all")
    _again(lab, site, "t")  # also where nothing is applied by then
    first, second, third = (_same(one) for one in records(lab))
    assert first == second
    assert {**third, "confounded": None} == first


def test_the_command_to_measure_a_server_again_makes_the_same_trial(lab: Lab, site: Site) -> None:
    code = "import os, time; print('up', os.environ['NCCL_ALGO'], flush=True); time.sleep(99)"
    trial(
        *(lab, site, "ab", "--name", "s", "--candidate", "b", "--candidate", "Y=$HOME `x`"),
        *("--baseline", "Y=", "--confounded", "--env", "NCCL_ALGO=Ring", "--repeat", "1"),
        *("--ready-pattern", r"^up\b", "--ready-timeout", "77", "--measure", "echo '{\"a\": 1}'"),
        *("--metric-json", "a[s]=-:a", "--", sys.executable, "-c", code),
    )
    _again(lab, site, "s")
    first, second = records(lab)
    assert _same(first) == _same(second)
    assert first["given"]["ready_timeout"] == 77 and first["given"]["repeat"] == 1


def test_what_is_hidden_is_named_beside_the_command_and_not_in_it(lab: Lab, site: Site) -> None:
    trial(
        *(lab, site, "run", "--name", "t", "--env", "HF_TOKEN=abcdefgh", "--grace", "3"),
        *("--", "true", "--api-key", "verysecret"),
    )
    shown = trial(lab, site, "show", "t")
    again = next(line for line in shown.stdout.splitlines() if line.startswith("again: "))
    assert "HF_TOKEN" not in again and "verysecret" not in shown.stdout
    assert "secrets: to be set or put in first: HF_TOKEN, (hidden)" in shown.stdout


@pytest.mark.parametrize(
    "option",
    [
        ("--ready-url", "127.0.0.1:30000"),
        ("--ready-url", "file:///etc/hosts"),
        ("--ready-url", "http://a b/"),
        ("--ready-timeout", "nan"),
        ("--grace", "inf"),
        ("--ready-pattern", "a{99999999999}"),
        ("--metric", "x=" + "(" * 2000 + ")" * 2000),
        ("--metric-json", "x=-:" + "(" * 2000 + "a" + ")" * 2000),
    ],
)
def test_an_option_that_can_never_be_met_is_refused_before_anything_runs(
    lab: Lab, site: Site, option: tuple[str, str]
) -> None:
    trial(lab, site, "run", "--name", "t", *option, "--", "true", check=2)
    assert not (lab.bundles / "trials").exists()


def test_a_bundle_named_twice_or_applied_already_is_one_change(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "other")
    named = ("--bundle", "b", "--bundle", "b", "--bundle", "other")
    trial(lab, site, "run", "--name", "t", *named, "--", "true")
    assert record(lab)["confounded"] is None


# -- servers ----------------------------------------------------------------------------

SERVER = """
import http.server, signal, subprocess, sys
if "ignore" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        self.send_response(503 if Handler.asked < 3 else 200)
        self.end_headers()
        self.wfile.write(b"speed 42")
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("port", server.server_port, flush=True)
open(sys.argv[2], "w").write(str(server.server_port))
server.serve_forever()
"""


def gone(pid_file: Path) -> bool:
    """Whether the server's child, in a session of its own, is gone too."""
    return not Path("/proc", pid_file.read_text().strip()).exists()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


def test_something_else_that_answers_at_first_does_not_end_the_wait(lab: Lab, site: Site) -> None:
    code = (
        "import socket, sys\n"
        "listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "for answer in (b'\\0garbage\\r\\n', b'', b'HTTP/1.1 200 OK\\r\\n\\r\\n'):\n"
        "    one, _ = listener.accept()\n"
        "    one.recv(4096); one.sendall(answer); one.close()\n"
        "listener.accept()\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    trial(
        *(lab, site, "run", "--name", "t", "--ready-url", f"http://127.0.0.1:{port}/"),
        *("--ready-timeout", "60", "--", sys.executable, "-c", code, str(port)),
    )
    assert record(lab)["runs"][0]["ready_seconds"] > 0


def test_a_pattern_without_end_does_not_keep_a_server_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(running, "_SEARCH", 0.1)
    ready = running.Ready(None, re.compile("(x+)+$"), 60.0)
    job = running.Job(["echo", "x" * 40 + "!"], None, os.environ, str(tmp_path), ready, 1.0)
    with open(os.devnull, "wb", buffering=0) as log:
        outcome = running.run(job, log, lambda data: None, lambda at: None)
    assert outcome.problem == "the search for --ready-pattern takes too long"


def test_of_an_output_without_end_the_log_has_all_and_the_figures_the_last(tmp_path: Path) -> None:
    words = ["sh", "-c", "head -c 30000000 /dev/zero; echo; echo n 5"]
    job = running.Job(words, None, os.environ, str(tmp_path), running.Ready(), 1.0)
    with open(tmp_path / "log", "wb", buffering=0) as log:
        outcome = running.run(job, log, lambda data: None, lambda at: None)
    assert (tmp_path / "log").stat().st_size == 30_000_005
    assert len(outcome.output) <= 8 << 20 and outcome.output.endswith("\nn 5\n")


def test_a_log_that_does_not_fit_is_said_and_the_figures_are_whole(tmp_path: Path) -> None:
    job = running.Job(["echo", "n 5"], None, os.environ, str(tmp_path), running.Ready(), 1.0)
    with open("/dev/full", "ab", buffering=0) as log:
        outcome = running.run(job, log, lambda data: None, lambda at: None)
    assert (outcome.exit, outcome.output) == (0, "n 5\n")
    assert outcome.lost == "No space left on device"


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_server_that_becomes_ready_late_is_measured_and_ended(
    lab: Lab, site: Site, tmp_path: Path, port: int, stubborn: bool
) -> None:
    before = site.picture()
    code = SERVER.replace('("127.0.0.1", 0)', f'("127.0.0.1", {port})')
    url = f"http://127.0.0.1:{port}/"
    ask = f"import urllib.request as u; print(u.urlopen('{url}').read().decode())"
    done = trial(
        *(lab, site, "run", "--name", "t", "--bundle", "b", "--ready-url", url),
        *("--measure", f'{sys.executable} -c "{ask}"', "--metric", r"speed=speed (\d+)"),
        *("--grace", "0.3" if stubborn else "20", "--", sys.executable, "-c", code),
        *(str(tmp_path / "pid"), str(tmp_path / "port"), *(["ignore"] if stubborn else [])),
    )
    (run,) = record(lab)["runs"]
    assert run["values"] == {"speed": 42.0} and run["exit"] == 0
    assert 0 < run["ready_seconds"] <= run["seconds"]
    assert "speed 42" in done.stderr
    assert gone(tmp_path / "pid") and site.differences(before) == []


def test_a_server_that_is_never_ready_is_ended_and_the_run_failed(
    lab: Lab, site: Site, tmp_path: Path
) -> None:
    before = site.picture()
    stubborn = f"trap '' TERM; setsid sleep 1000 & echo $! > {tmp_path}/pid; echo loading; wait"
    done = trial(
        *(lab, site, "run", "--name", "t", "--bundle", "b", "--ready-pattern", "fired up"),
        *("--ready-timeout", "1", "--grace", "0.2", "--", "sh", "-c", stubborn),
        check=124,
    )
    assert "it was not ready within 1 s" in done.stderr
    assert record(lab)["status"] == "failed" and record(lab)["runs"][0]["tail"] == ["loading"]
    assert gone(tmp_path / "pid") and site.differences(before) == []


def test_a_terminal_shows_how_long_a_server_loads(lab: Lab, site: Site) -> None:
    ours, theirs = os.openpty()
    command = lab.command(
        site,
        *("trial", "run", "--name", "t", "--ready-pattern", "x", "--ready-timeout", "2.5"),
        *("--", "sleep", "1000"),
    )
    process = subprocess.Popen(command, env=lab.child_env, stdin=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while b"not ready yet, 1 s of 2 s" not in seen:
            seen += os.read(ours, 4096)
    finally:
        process.terminate()
        assert process.wait(60) in (124, 143)
        os.close(ours)


def test_a_server_that_ends_before_it_is_ready_has_failed(lab: Lab, site: Site) -> None:
    base = ("run", "--name", "t", "--ready-pattern", "x", "--measure", "true", "--")
    done = trial(lab, site, *base, "sh", "-c", "echo oom; exit 0", check=1)
    assert "ended with exit code 0 before it was ready" in done.stderr


def test_a_pattern_in_the_output_makes_a_server_ready(lab: Lab, site: Site, tmp_path: Path) -> None:
    trial(
        *(lab, site, "run", "--name", "t", "--ready-pattern", r"^port \d+", "--grace", "5"),
        *("--measure", "echo measured 7", "--metric", r"m=measured (\d+)", "--"),
        *(sys.executable, "-c", SERVER, tmp_path / "pid", tmp_path / "port"),
    )
    assert record(lab)["runs"][0]["values"] == {"m": 7.0}
    assert gone(tmp_path / "pid")


def test_what_a_command_leaves_running_is_ended_with_it(
    lab: Lab, site: Site, tmp_path: Path
) -> None:
    leave = (
        f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' &"
        f" while [ ! -s {tmp_path}/pid ]; do :; done"
    )
    trial(lab, site, "run", "--name", "t", "--bundle", "b", "--", "sh", "-c", leave)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


# -- others, meanwhile ------------------------------------------------------------------


@contextmanager
def under_way(
    lab: Lab, site: Site, *args: str, code: str = WAITS
) -> Iterator[tuple[subprocess.Popen[bytes], Path, bytes]]:
    """A trial whose command runs; it goes on when the pipe is opened for writing.  The last is
    what it said first."""
    pipe = lab.folder("pipe") / "pipe"
    os.mkfifo(pipe)
    command = lab.command(
        site,
        *("trial", "run", "--name", "t", "--bundle", "b", "--grace", "5", *args),
        *("--", sys.executable, "-c", code, str(pipe)),
    )
    process = subprocess.Popen(
        command, env=lab.child_env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        line = b""
        while b"up" not in line:
            line = process.stderr.readline()
            assert line or process.poll() is None
        yield process, pipe, line
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def let_go(pipe: Path) -> None:
    pipe.write_bytes(b"")


def test_while_a_trial_lives_no_other_command_changes_the_environment(lab: Lab, site: Site) -> None:
    before = site.picture()
    with under_way(lab, site) as (process, pipe, _):
        for args in (
            *(("apply", "other"), ("revert", "--all"), ("recover",), ("apply", "-n", "other")),
            ("trial", "run", "--name", "u", "--bundle", "other", "--", "true"),
            ("run", "--bundle", "b", "--", "true"),
        ):
            done = lab.run(site, *args, check=5)
            assert f"trial t of process {process.pid}" in done.stderr, args
        status = lab.run(site, "status", "--json").json
        assert status["trial"]["pid"] == process.pid and status["problems"] == []
        assert "trial: t, of process" in lab.run(site, "status").stdout
        lab.run(site, "verify", "b")
        for args in (("verdict", "t", "win"), ("rm", "t")):
            assert "--force" in trial(lab, site, *args, check=3).stderr
        let_go(pipe)
        assert process.wait(60) == 0
    assert site.differences(before) == []
    assert record(lab)["status"] == "finished"


def test_the_command_may_verify_as_a_launch_hook_does(lab: Lab, site: Site) -> None:
    hook = lab.command(site, "verify", "b")
    trial(lab, site, "run", "--name", "t", "--bundle", "b", "--", *hook)
    launch = lab.command(site, "run", "--bundle", "b", "--", "echo", "launched")
    done = trial(lab, site, "run", "--name", "t", "--bundle", "b", "--", *launch)
    assert "launched" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_is_passed_on_to_the_whole_group_and_everything_is_put_back(
    lab: Lab, site: Site, number: signal.Signals
) -> None:
    before = site.picture()
    code = (
        "import os, signal, sys, time\n"
        "def told(number, frame):\n"
        "    who = ['parent', 'child'][os.getpid() != top]\n"
        "    os.write(1, f'{who} {number}\\n'.encode())\n"
        "    os._exit(0)\n"
        "top = os.getpid()\n"
        "for number in (1, 2, 3, 15): signal.signal(number, told)\n"
        "there, here = os.pipe()\n"
        "if not os.fork():\n"
        "    os.write(here, b'!')  # a signal that comes right after a fork is dropped by Python\n"
        "    while True: time.sleep(0.05)  # and one right before a pause() is waited for\n"
        "os.read(there, 1)\n"
        "print('up', flush=True)\n"
        "time.sleep(1000)\n"
    )
    with under_way(lab, site, code=code) as (process, _, _):
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    assert site.differences(before) == []
    one = record(lab)
    assert one["status"] == "interrupted" and one["runs"][0]["exit"] == 128 + number
    log = (lab.bundles / "trials" / one["runs"][0]["log"]).read_text().splitlines()
    assert sorted(log) == [f"child {int(number)}", f"parent {int(number)}", "up"]


def test_a_signal_that_ends_nothing_is_passed_on_and_the_trial_goes_on(
    lab: Lab, site: Site
) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit('told'))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    with under_way(lab, site, code=code) as (process, _, _):
        process.send_signal(signal.SIGUSR1)
        assert process.wait(60) == 1  # the command's own
    assert record(lab)["status"] == "failed" and record(lab)["runs"][0]["tail"][-1] == "told"


def test_a_trial_that_is_stopped_stops_its_command_and_goes_on_with_it(
    lab: Lab, site: Site
) -> None:
    with under_way(lab, site) as (process, pipe, line):
        process.send_signal(signal.SIGTSTP)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        stat = Path(f"/proc/{int(line.split()[-1])}/stat")
        end = time.monotonic() + 30  # it has the signal by now, and stops when it runs next
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGCONT)
        let_go(pipe)
        assert process.wait(60) == 0
    assert record(lab)["status"] == "finished"


# -- trials that died -------------------------------------------------------------------


@contextmanager
def dead(lab: Lab, site: Site, *args: str) -> Iterator[None]:
    """A trial whose process was killed while its command ran."""
    with under_way(lab, site, *args) as (process, _, line):
        command = os.pidfd_open(int(line.split()[-1]))
        process.kill()
        process.wait()
        assert select.select([command], [], [], 30)[0]  # the command is gone with it
        os.close(command)
    yield


@pytest.mark.parametrize(
    "finisher", [("recover",), ("apply", "other"), ("revert", "--all"), ("revert", "other")]
)
def test_the_next_command_finishes_a_trial_that_died(
    lab: Lab, site: Site, finisher: tuple[str, ...]
) -> None:
    lab.run(site, "apply", "other")
    before = lab.run(site, "status", "--json").json
    with dead(lab, site, "--only"):
        problem = lab.run(site, "verify", "--json", check=1).json["problems"][0]
        assert problem["kind"] == "interrupted" and "trial t of process" in problem["message"]
        status = lab.run(site, "status", "--json").json
        assert status["next"] == "patchkit recover" and status["trial"]["alive"] is False
        assert record(lab)["status"] == "running"
        done = lab.run(site, *finisher)
    assert record(lab)["status"] == "interrupted" and record(lab)["ended"]
    lab.run(site, "verify")
    after = lab.run(site, "status", "--json").json
    if finisher[0] == "revert":
        assert after["applied"] == [] and not (site / STATE).exists()
    else:
        assert (after["fingerprint"], after["applied"]) == (
            before["fingerprint"],
            before["applied"],
        )
        assert "trial t" in done.stderr + done.stdout or "trial" in done.stdout


@pytest.mark.parametrize("finisher", [("recover",), ("revert", "--all")])
@pytest.mark.parametrize("stubborn", [False, True])
def test_what_a_trial_that_died_left_running_is_ended_first(
    lab: Lab, site: Site, tmp_path: Path, finisher: tuple[str, ...], stubborn: bool
) -> None:
    before = site.picture()
    trap = "trap '' TERM; " if stubborn else ""
    code = (
        "import subprocess, sys\n"
        f"line = ['sh', '-c', \"{trap}echo up; sleep 1000; :\"]\n"
        "child = subprocess.Popen(line, start_new_session=True, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "print('up', flush=True)\n"
        "child.wait()\n"
    )
    with under_way(lab, site, code=code) as (process, _, _):
        # As where everything of patchkit is killed at once (a cgroup, memory).
        os.kill(keeper(process.pid), signal.SIGKILL)
        process.kill()
        process.wait()
    child = Path("/proc", (tmp_path / "pid").read_text(), "cmdline")
    assert child.read_bytes()
    done = lab.run(site, *finisher)
    assert "ended 2 processes that the trial t of process" in done.stderr
    # Over, and perhaps not waited for by whoever got it.
    assert not child.exists() or not child.read_bytes()
    assert site.differences(before) == []
    assert record(lab)["status"] == "interrupted"


def keeper(pid: int) -> int:
    """The process beside a trial: a fork of it, with its command line."""
    line = Path(f"/proc/{pid}/cmdline").read_bytes()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (found,) = (one for one in children if Path(f"/proc/{one}/cmdline").read_bytes() == line)
    return int(found)


@pytest.mark.parametrize("stubborn", [False, True])
def test_what_a_killed_trial_leaves_running_ends_without_another_command(
    lab: Lab, site: Site, tmp_path: Path, stubborn: bool
) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    code = (
        "import subprocess, sys\n"
        f"line = ['sh', '-c', \"{'trap : TERM; ' * stubborn}echo up; while :; do sleep 9; done\"]\n"
        f"out = open({str(held)!r}, 'w')\n"
        "child = subprocess.Popen(line, start_new_session=True, stdout=subprocess.PIPE,"
        " stderr=subprocess.DEVNULL, pass_fds=[out.fileno()])\n"
        "child.stdout.readline()\n"
        "print('up', flush=True)\n"
        "child.wait()\n"
    )
    with under_way(lab, site, code=code) as (process, _, _):
        beside = os.pidfd_open(keeper(process.pid))
        process.kill()
        process.wait()
        # Nobody has the pipe open for writing any more: the child and its children are gone.
        assert select.select([reader], [], [], 60)[0] and os.read(reader, 1) == b""
        assert select.select([beside], [], [], 60)[0]
        for descriptor in (beside, reader):
            os.close(descriptor)
    assert lab.run(site, "status", "--json").json["trial"]["alive"] is False
    lab.run(site, "recover")


@pytest.mark.parametrize("limit", [64, 3], ids=["lowered", "no-descriptor-is-left"])
def test_what_is_beside_a_trial_holds_no_descriptor_and_is_no_reason_to_refuse_one(
    limit: int,
) -> None:
    # 900 was opened before the limit was lowered.
    code = (
        "import os, resource, select, sys\n"
        "from patchkit.trials.keeper import Keeper\n"
        "reader, writer = os.pipe()\n"
        "os.dup2(writer, 900)\n"
        "os.close(writer)\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, 1000))\n"
        "keeper = Keeper('t')\n"
        "os.close(900)\n"
        "over = select.select([reader], [], [], 60)[0]\n"
        "print('nothing' if over else 'the pipe', end='')\n"
        "keeper.dismiss()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "nothing"


def test_nothing_of_a_trial_lives_on_after_its_end(lab: Lab, site: Site) -> None:
    with under_way(lab, site) as (process, pipe, _):
        beside = os.pidfd_open(keeper(process.pid))
        let_go(pipe)
        assert process.wait(60) == 0
        assert select.select([beside], [], [], 0)[0]
        os.close(beside)
    left = [path.name for path in (lab.bundles / "trials" / "logs").glob("*/*")]
    assert left == ["1-candidate.log"]  # and not the room that was kept


def test_another_trial_finishes_the_one_that_died(lab: Lab, site: Site) -> None:
    before = site.picture()
    with dead(lab, site):
        trial(lab, site, "run", "--name", "second", "--bundle", "other", *("--", "true"))
    assert site.differences(before) == []
    assert {one["name"]: one["status"] for one in records(lab)} == {
        "t": "interrupted",
        "second": "finished",
    }
    second = next(one for one in records(lab) if one["name"] == "second")
    assert [one["name"] for one in second["sets"]["candidate"]["bundles"]] == ["other"]


def test_a_dead_trial_is_finished_though_bundles_and_ledger_are_gone(lab: Lab, site: Site) -> None:
    lab.run(site, "apply", "other")
    before = lab.run(site, "status", "--json").json
    with dead(lab, site, "--only"):
        shutil.rmtree(lab.bundles / "trials")
        shutil.rmtree(lab.bundles / "patches" / "other")
        lab.run(site, "recover")
    assert lab.run(site, "status", "--json").json["fingerprint"] == before["fingerprint"]


def test_a_dry_run_says_that_a_trial_died_and_changes_nothing(lab: Lab, site: Site) -> None:
    with dead(lab, site):
        before = site.picture()
        done = lab.run(site, "apply", "-n", "other", check=3)
        assert "patchkit recover" in done.stderr
        assert site.differences(before) == []


# -- ab ---------------------------------------------------------------------------------


def test_ab_runs_in_turn_and_tells_a_difference_from_noise(lab: Lab, site: Site) -> None:
    before = site.picture()
    done = trial(
        *(lab, site, "ab", "--name", "t", "--candidate", "b", "--repeat", "4", *VALUE),
        *("--", *figure(site)),
    )
    one = record(lab)
    assert [run["set"][0] for run in one["runs"]] == list("bccbbccb")
    found = one["comparison"]["value"]
    assert (found["baseline"], found["candidate"], found["n"]) == (103.0, 1030.0, [4, 4])
    assert found["beyond_noise"] is True and found["p"] == pytest.approx(2 / 70, abs=1e-6)
    assert found["ratio"] == pytest.approx(10)
    assert "better, beyond the noise" in done.stdout
    assert site.differences(before) == []


def test_ab_of_the_same_command_without_a_figure_compares_wall_time(lab: Lab, site: Site) -> None:
    trial(lab, site, "ab", "--name", "t", "--candidate", "b", "--repeat", "3", "--", "true")
    found = record(lab)["comparison"]["seconds"]
    assert found["beyond_noise"] is False and found["n"] == [3, 3]


@pytest.mark.parametrize(
    "more", [("--candidate", "other"), ("--candidate", "NCCL_ALGO=Tree"), ("--baseline", "other")]
)
def test_more_than_one_change_is_refused_unless_it_is_meant(
    lab: Lab, site: Site, more: tuple[str, ...]
) -> None:
    base = ("ab", "--name", "t", "--candidate", "b", *more, "--repeat", "1")
    done = trial(lab, site, *base, "--", "true", check=3)
    assert "differ in 2 things" in done.stderr and not (lab.bundles / "trials").exists()
    trial(lab, site, *base, "--confounded", "--", "true")
    assert record(lab)["confounded"].startswith("2 changes at once: ")


def test_a_setting_alone_is_one_change_and_no_change_is_none(lab: Lab, site: Site) -> None:
    base = ("ab", "--name", "t", "--repeat", "1")
    seen = ("--metric", "algo=^([01])$", "--", "sh", "-c", 'test "$A" = 1; echo $?')
    trial(lab, site, *base, "--baseline", "b", "--candidate", "b", "--candidate", "A=1", *seen)
    assert [run["values"]["algo"] for run in record(lab)["runs"]] == [1.0, 0.0]
    done = trial(lab, site, *base, "--baseline", "b", "--candidate", "b", *seen, check=3)
    assert "nothing to compare" in done.stderr


def test_the_setting_that_tells_two_sets_apart_is_shown(lab: Lab, site: Site) -> None:
    args = ("ab", "--name", "t", "--repeat", "1", "--candidate", "A=1", "--", "true")
    assert "candidate: no bundles\n  environment: A=1\n" in trial(lab, site, *args).stdout


def test_a_command_without_a_place_for_arguments_is_told_what_a_trial_has(
    lab: Lab, site: Site
) -> None:
    """``run`` can leave them out, a trial cannot."""
    refused = trial(lab, site, "run", "--name", "t", "--bundle", "tree", "--", "true", check=2)
    assert "--append-args" in refused.stderr and "--no-args" not in refused.stderr
    lab.run(site, "apply", "tree")
    assert "--no-args" in lab.run(site, "run", "--", "true", check=2).stderr


def test_several_bundles_in_one_run_are_recorded_as_confounded(lab: Lab, site: Site) -> None:
    trial(lab, site, "run", "--name", "t", "--bundle", "b", "--bundle", "other", "--", "true")
    assert record(lab)["confounded"] == "2 changes at once: b; other"


# -- the ledger -------------------------------------------------------------------------


def test_a_dead_end_is_said_before_it_is_tried_or_applied_again(lab: Lab, site: Site) -> None:
    base = ("run", "--name", "t", "--bundle", "b", "--", "true")
    trial(lab, site, *base)
    trial(
        *(lab, site, "verdict", "t", "dead-end", "--reason", "no kernel"),
        *("--cause", "a table", "--unblock", 'cuda >= "13"'),
    )
    said = "this set is a dead end (trial t, "
    done = trial(lab, site, *base[:5], "--json", *base[5:])
    assert said in done.stderr and "no kernel" in done.stderr
    assert done.json["dead_end"]["unblock"] == 'cuda >= "13"'
    done = lab.run(site, "apply", "--json", "b")
    assert said in done.stderr and done.json["dead_end"]["reason"] == "no kernel"
    lab.run(site, "revert", "--all")
    # Another set, and another version of it, are not known to be one.
    assert lab.run(site, "apply", "--json", "b", "other").json["dead_end"] is None
    lab.run(site, "revert", "--all")
    # A later verdict of the same set takes the place of it.
    trial(lab, site, "verdict", "t", "win")
    assert said not in lab.run(site, "apply", "b").stderr


def test_a_condition_that_holds_already_is_said(lab: Lab, site: Site) -> None:
    """``revisit`` lists what holds now and did not hold then, so never this one."""
    trial(lab, site, "run", "--name", "t", "--bundle", "b", "--", "true")
    said = "holds already"
    for condition in ('os == "linux"', 'os == "linux" or cuda >= "99"'):
        assert said in trial(lab, site, "verdict", "t", "loss", "--unblock", condition).stderr
    assert trial(lab, site, "verdict", "t", "loss", "--unblock", 'cuda >= "99"').stderr == ""
    assert trial(lab, site, "revisit").stdout.startswith("no trial is worth")


def test_names_of_trials_are_completed(lab: Lab, site: Site) -> None:
    for name in ("tree", "tree", "trunk", "other"):
        trial(lab, site, "run", "--name", name, "--", "true")
    words = {
        "_PATCHKIT_COMPLETE": "bash_complete",
        "PATCHKIT_TRIALS": str(lab.bundles / "trials"),
        "COMP_WORDS": "patchkit trial show tr",
        "COMP_CWORD": "3",
    }
    code = "from patchkit.cli import main; main(prog_name='patchkit')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**lab.child_env, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["plain,tree", "plain,trunk"], done


def test_a_dead_end_is_said_however_its_file_is_laid_out(lab: Lab, site: Site) -> None:
    trial(lab, site, "run", "--name", "t", "--bundle", "b", "--", "true")
    trial(lab, site, "verdict", "t", "dead-end", "--reason", "no kernel")
    (path,) = (lab.bundles / "trials").glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()), separators=(",", ":")))
    assert "no kernel" in lab.run(site, "apply", "b").stderr


def test_a_setting_that_is_a_dead_end_is_not_one_of_the_bundles_it_was_tried_on(
    lab: Lab, site: Site
) -> None:
    said, what = "this set is a dead end", ("--candidate", "A=1", "--repeat", "1", "--", "true")
    for name, bundles in (("alone", ()), ("on-b", ("--baseline", "b", "--candidate", "b"))):
        trial(lab, site, "ab", "--name", name, *bundles, *what)
        trial(lab, site, "verdict", name, "dead-end")
        # Of other settings, of none, and of the bundle, nothing is known.
        assert said not in trial(lab, site, "run", "--name", "t", "--", "true").stderr
        others = ("ab", "--name", "t", *bundles, "--candidate", "A=2", *what[2:])
        assert said not in trial(lab, site, *others).stderr
        assert said not in lab.run(site, "apply", "b").stderr
        lab.run(site, "revert", "--all")
        assert said in trial(lab, site, "ab", "--name", "t", *bundles, *what).stderr


def test_the_commands_of_the_ledger(lab: Lab, site: Site, tmp_path: Path) -> None:
    trial(lab, site, "run", "--name", "one", "--bundle", "b", *VALUE, "--", *figure(site))
    trial(lab, site, "run", "--name", "two", "--bundle", "tree", "--", "true", "{args}")
    trial(lab, site, "verdict", "one", "win", "--reason", "faster", "--by", "me")
    rows = trial(lab, site, "list", "--json").json["trials"]
    assert [(row["name"], row["verdict"]) for row in rows] == [("one", "win"), ("two", None)]
    assert rows[0]["figures"] == {"value": 1030.0}
    only = trial(lab, site, "list", "--verdict", "none", "--json").json["trials"]
    assert [row["name"] for row in only] == ["two"]
    assert "faster" in trial(lab, site, "list").stdout
    shown = trial(lab, site, "show", "one")
    assert "verdict: win" in shown.stdout and "command:" in shown.stdout
    listed = trial(lab, site, "export").stdout
    assert [one["name"] for one in json.loads(listed)] == ["one", "two"]
    out = tmp_path / "out.csv"
    trial(lab, site, "export", "--format", "csv", "--output", out)
    lines = out.read_text().splitlines()
    assert lines[0].startswith("id,name,kind,status,verdict") and len(lines) == 3
    assert ",value,1030.0,tok/s,higher" in lines[1]
    trial(lab, site, "rm", "one", "two")
    assert trial(lab, site, "list").stdout == "no trials\n"
    trial(lab, site, "show", "one", check=3)


def test_a_trial_whose_environment_is_gone_is_removed_by_force(lab: Lab, site: Site) -> None:
    with dead(lab, site):
        shutil.rmtree(site.root)
    trial(lab, lab.site(), "rm", "t", "--force")
    assert records(lab) == []


def test_the_ledger_is_where_it_is_named(lab: Lab, site: Site, tmp_path: Path) -> None:
    base = ("run", "--name", "t", "--", "true")
    trial(lab, site, *base, env={"PATCHKIT_TRIALS": str(tmp_path / "a")})
    trial(lab, site, "run", "--trials", tmp_path / "b", *base[1:])
    assert len(list((tmp_path / "a").glob("*.json"))) == 1
    assert len(list((tmp_path / "b").glob("*.json"))) == 1
    assert not (lab.bundles / "trials").exists()


def test_the_repository_of_the_bundles_is_in_the_record(lab: Lab, site: Site) -> None:
    lab.git(lab.bundles, "init", "-q")
    lab.git(lab.bundles, "add", "-A")
    lab.git(lab.bundles, "commit", "-qm", "bundles")
    head = lab.git(lab.bundles, "rev-parse", "HEAD").strip()
    base = ("run", "--name", "t", "--bundle", "b", "--", "true")
    trial(lab, site, *base)
    assert records(lab)[0]["repository"] == {
        "path": str(lab.bundles),
        "commit": head,
        "clean": True,
    }
    with open(lab.bundles / "manifests/b.toml", "a") as file:
        file.write("# changed\n")
    trial(lab, site, *base)
    assert records(lab)[1]["repository"]["clean"] is False


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run", "--name", "a b", "--", "true"), "name of a trial"),
        (("run", "--name", "t"), "no command"),
        (("run", "--name", "t", "--measure", "x", "--", "true"), "--ready-url"),
        (("run", "--name", "t", "--metric", "x", "--", "true"), "NAME=REGEX"),
        (("run", "--name", "t", "--metric", "x=(", "--", "true"), "regular expression"),
        (("run", "--name", "t", "--metric-json", "f:[", "--", "true"), "jmespath"),
        (("run", "--name", "t", "--read", "x", "--", "true"), "sglang-serving"),
        (("run", "--name", "t", "--ready-pattern", "(", "--", "true"), "regular expression"),
        (("run", "--name", "t", "--env", "X", "--", "true"), "NAME=VALUE"),
    ],
)
def test_a_wrong_command_line_is_refused_with_what_is_right(
    lab: Lab, site: Site, args: tuple[str, ...], said: str
) -> None:
    assert said in trial(lab, site, *args, check=2).stderr
    assert not (lab.bundles / "trials").exists() and not (site / STATE).exists()
