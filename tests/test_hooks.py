"""``patchkit hook``: what it prints works as printed, in the real programs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from patchkit.hooks import words
from tests import releases
from tests.conftest import Result
from tests.support.lab import (
    ALPHA,
    STATE,
    Lab,
    Site,
    default_signals,
    needs_root,
    needs_tool,
)

pytest_plugins = ("tests.support.fixtures",)

#: A folder name with what systemd, YAML, JSON, sh and Slurm each take for something of theirs.
ODD = "an odd $HOME $(x) %h 'q' \"d\" \\n {args} é𝄞"
#: Words that a command gets as they are.
WORDS = [
    "a b",
    "$HOME",
    "${HOME}",
    "$(HOME)",
    "$$",
    "%h",
    "'",
    '"',
    "\\",
    "\\n",
    "",
    ";",
    "é𝄞",
    "#",
]


@pytest.fixture
def site(lab: Lab) -> Site:
    """An environment in a folder of an odd name, with a bundle that patches and one of settings."""
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.bundle("tree", profile={"env": {"NCCL_ALGO": "Tree"}, "args": ["--size", "1 2"]})
    made = lab.site()
    odd = Site(made.root.parent / ODD)
    made.root.rename(odd.root)
    lab.run(odd, "apply", "b", "tree")
    return odd


def hook(lab: Lab, site: Site, *args: str, check: int | None = 0) -> Result:
    """The command, from a folder that tells nothing."""
    return lab.run(site, "hook", *args, check=check)


def drift(site: Site) -> None:
    """Somebody edits a patched file."""
    path = site / ALPHA[0]
    path.write_bytes(path.read_bytes() + b"# an edit\n")


def echo(out: Path) -> list[str]:
    """A command that writes its words and one variable into a file."""
    code = "import json,os,sys;json.dump([sys.argv[1:],os.environ['NCCL_ALGO']],open('%s','w'))"
    return [sys.executable, "-c", code % out]


def sh(*command: str | Path, env: dict[str, str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **more,
    )


def bin_of(program: str) -> str:
    """A program beside this interpreter, or on PATH."""
    found = shutil.which(program, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"needs {program}")
    return found


# --- what is refused -----------------------------------------------------------------------


def test_nothing_applied_is_nothing_to_verify(lab: Lab) -> None:
    done = lab.run(lab.site(), "hook", "bash", check=3)
    assert done.stdout == ""
    assert "nothing is applied here" in done.stderr


@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_an_images_command_has_to_be_named(lab: Lab, site: Site, kind: str) -> None:
    assert "name it" in hook(lab, site, kind, check=2).stderr


def test_a_bundle_that_is_not_applied_is_refused(lab: Lab, site: Site) -> None:
    assert "c is not applied here" in hook(lab, site, "bash", "--bundle", "c", check=3).stderr


def test_a_line_break_gets_into_no_snippet(lab: Lab, site: Site) -> None:
    assert hook(lab, site, "bash", "--", "a\nb", check=3).stdout == ""


def test_json_has_the_same_text(lab: Lab, site: Site) -> None:
    data = lab.json(site, "hook", "slurm")
    assert (data["kind"], data["bundles"]) == ("slurm", ["b", "tree"])
    assert data["text"] == hook(lab, site, "slurm").stdout


# --- bash ------------------------------------------------------------------------------------


def test_bash_launches_what_verifies_with_every_word_as_it_is(
    lab: Lab, site: Site, tmp_path: Path
) -> None:
    script, out = tmp_path / "launch", tmp_path / "out"
    script.write_text(hook(lab, site, "bash", "--", *echo(out), *WORDS).stdout)
    done = sh("bash", script, "more", env=lab.child_env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(out.read_text()) == [[*WORDS, "more", "--size", "1 2"], "Tree"]


def test_bash_keeps_the_exit_code_and_launches_nothing_that_drifted(lab: Lab, site: Site) -> None:
    script = hook(lab, site, "bash").stdout
    command = ["bash", "-c", script, "launch", "sh", "-c", "echo out; exit 42"]
    done = sh(*command, env=lab.child_env)
    assert done.returncode == 42
    assert done.stdout == "out\n"
    drift(site)
    done = sh(*command, env=lab.child_env)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "acme/alpha.py" in done.stderr


# --- systemd ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["sh", "-c", *WORDS]])
def test_systemd_takes_the_drop_in(
    lab: Lab, site: Site, tmp_path: Path, command: list[str]
) -> None:
    needs_tool("systemd-analyze")
    unit = tmp_path / "server.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    folder = tmp_path / "server.service.d"
    folder.mkdir()
    text = hook(lab, site, "systemd", *(["--", *command] if command else [])).stdout
    (folder / "patchkit.conf").write_text(text)
    env = {**lab.child_env, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    done = sh("systemd-analyze", "verify", "--man=no", unit, env=env)
    assert done.returncode == 0
    assert str(tmp_path) not in done.stderr
    # It is read at all: the same file with a program that is not there.
    (folder / "patchkit.conf").write_text(text.replace("/patchkit ", "/patchkit.gone "))
    assert "patchkit.gone" in sh("systemd-analyze", "verify", "--man=no", unit, env=env).stderr


@pytest.mark.parametrize("name", [ODD, "an odd %h {args} é𝄞", "%%", "\\\\", "a;b ; c", "$HOME"])
def test_systemd_finds_a_program_of_an_odd_name(
    tmp_path: Path, child_env: dict[str, str], name: str
) -> None:
    """systemd-analyze looks for the program, and so says how it reads the word."""
    needs_tool("systemd-analyze")
    program, unit = tmp_path / name, tmp_path / "server.service"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit.write_text(f"[Service]\nExecStart={words.unit([str(program)])}\n", encoding="utf-8")
    done = sh("systemd-analyze", "verify", "--man=no", unit, env=child_env)
    assert (done.returncode, str(tmp_path) in done.stderr) == (0, False), done.stderr


def test_a_unit_holds_every_word_as_systemd_reads_it() -> None:
    assert words.unit(["/bin/x", "a b", "%h", "$A", ";", 'q"\\', "", "'", "--a=b"]) == (
        '/bin/x "a b" %%h $$A ";" "q\\"\\\\" "" "\'" --a=b'
    )
    assert words.unit(["/a$b/x"]) == "/usr/bin/env /a$$b/x"


# --- Kubernetes --------------------------------------------------------------------------------


def expanded(word: str) -> str:
    """What a kubelet makes of a word where no variable is known: ``$$`` is a dollar."""
    out, rest = "", word
    while rest:
        take = 2 if rest.startswith("$$") else 1
        assert not rest.startswith("$("), "a reference to a variable"
        out, rest = out + rest[0], rest[take:]
    return out


@pytest.mark.parametrize("options", [[], ["--volume", "shared", "--image", "registry/a:1"]])
def test_kubernetes_takes_the_manifest_and_the_container_runs(
    lab: Lab, site: Site, tmp_path: Path, options: list[str]
) -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    checker = bin_of("kubernetes-validate")
    out, manifest = tmp_path / "out", tmp_path / "pod.yaml"
    text = hook(lab, site, "kubernetes", *options, "--", *echo(out), *WORDS).stdout
    manifest.write_text(text, encoding="utf-8")
    done = sh(checker, "--strict", manifest, env=lab.child_env)
    assert done.returncode == 0, done.stdout + done.stderr
    spec = yaml.safe_load(text)["spec"]
    assert ("initContainers" in spec) == bool(options)
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        done = sh(*map(expanded, container["command"]), env=lab.child_env)
        assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text()) == [[*WORDS, "--size", "1 2"], "Tree"]
    drift(site)
    assert sh(*map(expanded, spec["containers"][0]["command"]), env=lab.child_env).returncode == 1


def test_the_checker_of_manifests_sees_a_wrong_one(lab: Lab, site: Site, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    text = hook(lab, site, "kubernetes", "--", "x").stdout
    manifest.write_text(text.replace("command:", "comand:"), encoding="utf-8")
    checker = bin_of("kubernetes-validate")
    assert sh(checker, "--strict", manifest, env=lab.child_env).returncode != 0


# --- Docker ------------------------------------------------------------------------------------


def test_docker_lines_run_as_an_engine_reads_them(lab: Lab, site: Site, tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = hook(lab, site, "docker", "--", *echo(out), *WORDS).stdout
    lines = dict(line.split(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    command = [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]
    check = json.loads(lines["HEALTHCHECK"].partition("CMD ")[2])
    assert sh(*command, env=lab.child_env).returncode == 0
    assert json.loads(out.read_text()) == [[*WORDS, "--size", "1 2"], "Tree"]
    assert sh(*check, env=lab.child_env).returncode == 0
    drift(site)
    assert sh(*command, env=lab.child_env).returncode == 1
    assert sh(*check, env=lab.child_env).returncode == 1
    site.root.rename(site.root.parent / "gone")
    assert sh(*command, env=lab.child_env).returncode == 3
    assert sh(*check, env=lab.child_env).returncode == 1


def test_docker_lines_pass_a_checker(lab: Lab, tmp_path: Path) -> None:
    """With words that the checker knows: it takes JSON's escape of a backslash for an error."""
    checker, file = bin_of("hadolint"), tmp_path / "Dockerfile"
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    lab.run(site, "apply", "b")
    known = [word for word in WORDS if "\\" not in word]
    text = hook(lab, site, "docker", "--", "sh", "-c", *known).stdout
    file.write_text(f"FROM python:3.12\n{text}", encoding="utf-8")
    checked = sh(checker, file, env=lab.child_env)
    assert (checked.returncode, checked.stdout) == (0, "")
    file.write_text(f"FROM python:3.12\n{text}".replace('"]', '",]'), encoding="utf-8")
    assert sh(checker, file, env=lab.child_env).returncode == 1


# --- pre-commit --------------------------------------------------------------------------------


def test_pre_commit_runs_lint_on_what_is_committed(lab: Lab, site: Site) -> None:
    tool = bin_of("pre-commit")
    top = lab.base / "repository"
    shutil.copytree(lab.bundles, top / ODD)
    lab.cli("--bundles", top / ODD, "lint", "--update-lock")
    sh("git", "init", "-q", top, env=lab.child_env)
    text = lab.cli("--root", site.root, "--bundles", top / ODD, "hook", "pre-commit").stdout
    (top / ".pre-commit-config.yaml").write_text(text, encoding="utf-8")
    env = {**lab.child_env, "PRE_COMMIT_HOME": str(lab.base / "pre-commit")}
    sh("git", "-C", top, "add", "-A", env=env)
    done = sh(tool, "run", env=env, cwd=top)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout
    patch = next((top / ODD / "patches").rglob("*.patch"))
    patch.write_bytes(patch.read_bytes().replace(b"+", b"*"))
    sh("git", "-C", top, "add", "-A", env=env)
    done = sh(tool, "run", env=env, cwd=top)
    assert done.returncode == 1
    assert "patchkit lint" in done.stdout
    assert "Failed" in done.stdout


# --- Slurm -------------------------------------------------------------------------------------


def test_the_prolog_says_by_its_protocol_what_is_wrong(
    lab: Lab, site: Site, tmp_path: Path
) -> None:
    """As slurmd starts it: no standard input, standard error closed."""
    prolog = tmp_path / "prolog"
    prolog.write_text(hook(lab, site, "slurm").stdout)
    start = ["sh", "-c", 'exec sh "$0" <&- 2>&-', str(prolog)]
    env = {**lab.child_env, "SLURMD_NODENAME": "n2"}
    done = sh(*start, env=env)
    assert done.returncode == 0
    assert done.stdout == ""
    drift(site)
    done = sh(*start, env=env)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert any("acme/alpha.py" in line for line in lines)
    assert all(line.startswith("print n2: ") for line in lines)


#: srun on one node: the command itself; what applies says so, and takes its time then.
SRUN = """#!/bin/sh
while case "$1" in --*) ;; *) false ;; esac; do shift; done
case "$*" in *--dry-run*) ;; *" apply "*) "$@" && echo up > "$UP" && exec sleep 600 ;; esac
exec "$@"
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_the_prolog_applies_is_put_back_after_a_signal(
    lab: Lab, site: Site, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "prolog").write_text(hook(lab, site, "slurm").stdout)
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    os.mkfifo(tmp_path / "up")
    lab.run(site, "revert", "--all")
    before, job = site.picture(), f"{os.getpid()}{int(number)}"
    own = {
        "UP": str(tmp_path / "up"),
        "SLURM_JOB_ID": job,
        "SLURMD_NODENAME": "n",
        "SLURM_NNODES": "1",
    }
    process = subprocess.Popen(
        ["sh", tmp_path / "prolog", "apply"],
        env={**lab.child_env, **own, "PATH": f"{tmp_path}:{lab.child_env['PATH']}"},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=default_signals,  # noqa: PLW1509
    )
    try:
        assert (tmp_path / "up").read_text() == "up\n"
        assert site.differences(before, releases.CONTENTS) != []
        os.killpg(process.pid, number)
        assert process.wait(60) == 128 + number
    finally:
        process.kill()
        process.wait()
    assert site.differences(before, releases.CONTENTS) == []
    assert not Path(f"/var/tmp/patchkit-{job}-n").exists()


def free_ports(count: int) -> list[str]:
    """Ports of the loopback address that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


@pytest.fixture
def nodes(lab: Lab, site: Site) -> Iterator[dict[str, str]]:
    """Four real nodes, of which n2 has a site-packages of its own; the variables for srun."""
    needs_root()
    needs_tool("slurmctld", "slurmd", "srun", "munged", "unshare")
    folder = lab.base / "slurm"
    own = lab.copy(site)
    folder.mkdir()
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    ports = free_ports(5)
    host = os.uname().nodename.partition(".")[0]
    described = "".join(
        f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[n]} CPUs=1\n"
        for n in range(1, 5)
    )
    (folder / "slurm.conf").write_text(
        f"ClusterName=t\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={ports[0]}\n"
        "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n"
        f"AuthInfo=socket={folder}/munge\nStateSaveLocation={folder}/state\n"
        f"SlurmdSpoolDir={folder}/spool-%n\nSlurmctldPidFile={folder}/ctl.pid\n"
        f"SlurmdPidFile={folder}/%n.pid\nProctrackType=proctrack/linuxproc\n"
        "TaskPlugin=task/none\nSelectType=select/linear\nReturnToService=2\nMpiDefault=none\n"
        "JobAcctGatherType=jobacct_gather/none\nSwitchType=switch/none\n"
        f"SlurmdParameters=config_overrides\nKillWait=1\n{described}"
        "PartitionName=p Nodes=n[1-4] Default=YES State=UP\n"
    )
    env = {**lab.child_env, "SLURM_CONF": str(folder / "slurm.conf")}
    path = f"{env['PATH']}:/usr/sbin:/sbin"
    env["PATH"] = path
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        with (folder / "log").open("ab") as log:
            started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))

    at = f"--socket={folder}/munge"
    files = [
        f"--{word}={folder}/munge.{word[:3]}" for word in ("pid-file", "log-file", "seed-file")
    ]
    start("munged", "-F", "--force", at, f"--key-file={folder}/key", *files)
    start("slurmctld", "-D", "-i")
    for n in (1, 3, 4):
        start("slurmd", "-D", "-N", f"n{n}")
    bound = f"mount --bind {shlex.quote(str(own.root))} {shlex.quote(str(site.root))}"
    start("unshare", "-m", "sh", "-c", f"{bound} && exec slurmd -D -N n2")
    try:
        waited = sh("srun", "--immediate=40", "-N4", "true", env=env)
        assert waited.returncode == 0, waited.stderr + (folder / "log").read_text(errors="replace")
        yield {**env, "OWN": str(own.root)}
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


@pytest.mark.slow
def test_slurm_ends_the_job_before_a_task_runs_on_a_drifted_node(
    lab: Lab, site: Site, nodes: dict[str, str], tmp_path: Path
) -> None:
    prolog, ran = tmp_path / "prolog", tmp_path / "ran"
    prolog.write_text(hook(lab, site, "slurm").stdout)
    prolog.chmod(0o755)
    ran.mkdir()
    job = ["srun", "-N4", "--kill-on-bad-exit=1", f"--task-prolog={prolog}"]
    job += ["sh", "-c", f'sleep 5; echo up > "{ran}/$SLURM_PROCID"']
    drift(Site(Path(nodes["OWN"])))
    done = sh(*job, env=nodes)
    assert done.returncode != 0
    assert "n2: " in done.stdout
    assert "acme/alpha.py" in done.stdout
    assert list(ran.iterdir()) == []
    shutil.copy2(site / ALPHA[0], Path(nodes["OWN"], ALPHA[0]))
    job[-1] = job[-1].replace("sleep 5; ", "")
    done = sh(*job, env=nodes)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert len(list(ran.iterdir())) == 4


@pytest.mark.slow
def test_slurm_applies_on_every_node_or_on_none(
    lab: Lab, site: Site, nodes: dict[str, str], tmp_path: Path
) -> None:
    """n2 has an environment of its own, the others share one."""
    needs_tool("salloc")
    prolog, own, left = tmp_path / "prolog", Site(Path(nodes["OWN"])), saved_sets()
    prolog.write_text(hook(lab, site, "slurm").stdout)
    allocated = ("salloc", "-Q", "-N4", "sh")
    wanted = lab.json(site, "status")["fingerprint"]
    for one in (site, own):
        lab.run(one, "revert", "--all")
    before = {one.root: one.picture() for one in (site, own)}
    # Tried dry: one that refuses stops all.
    drift(own)
    done = sh(*allocated, prolog, "apply", env=nodes)
    assert done.returncode != 0
    assert "acme/alpha.py" in done.stderr
    assert site.differences(before[site.root]) == []
    shutil.copy2(site / ALPHA[0], own / ALPHA[0])
    # Where it fails while it is applied, the others get back what they had.
    wrapped = tmp_path / "wrapped"
    failing = prolog.read_text().replace(" verify b tree", " verify b tree not-there")
    assert failing != prolog.read_text()
    wrapped.write_text(failing)
    done = sh(*allocated, wrapped, "apply", env=nodes)
    assert done.returncode == 1, done.stderr
    assert "not-there" in done.stderr
    assert site.differences(before[site.root], releases.CONTENTS) == []
    assert not any((one / STATE).exists() for one in (site, own))
    done = sh(*allocated, prolog, "apply", env=nodes)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert {lab.json(one, "status")["fingerprint"] for one in (site, own)} == {wanted}
    assert saved_sets() == left
    # Where the way back fails, too, what leads there is kept and named.
    for one in (site, own):
        lab.run(one, "revert", "--all")
    wrapped.write_text(failing.replace(" fleet restore -q", " fleet restore --not-there", 1))
    done = sh(*allocated, wrapped, "apply", env=nodes)
    assert done.returncode == 1, done.stderr
    kept = saved_sets() - left
    assert {path.name[-3:] for path in kept} == {"-n1", "-n2", "-n3", "-n4"}
    path = next(path for path in kept if path.name.endswith("-n1"))
    assert f" fleet restore {str(path).removesuffix('n1')}NODE\n" in done.stderr
    lab.run(site, "fleet", "restore", path)
    assert not (site / STATE).exists()
    for path in kept:
        path.unlink()


def saved_sets() -> set[Path]:
    """What the nodes keep of what they had."""
    return set(Path("/var/tmp").glob("patchkit-*-n[1-4]"))
