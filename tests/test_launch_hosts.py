"""One environment on a shared file system, many hosts that start at once.

A host is a process with mount, network and UTS namespaces of its own, and its own name: the
environment's folder is all that they have in common.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.lab import (
    ALPHA,
    BETA,
    DELTA,
    GAMMA,
    STATE,
    Lab,
    Site,
    default_signals,
    needs_root,
    needs_tool,
)

pytest_plugins = ("tests.support.fixtures",)

HOSTS = 6
#: Says what its host sees of the patched file, and stays until it is told to end.
SERVER = (
    "import os, sys\n"
    f"print(os.uname().nodename, '{ALPHA[2].strip()}' in open(sys.argv[1]).read(), flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture
def site(lab: Lab) -> Site:
    needs_root()
    needs_tool("unshare", "hostname", "strace")
    lab.bundle("b", {"acme": lab.edit(ALPHA, BETA, GAMMA), "bolt-kernels": lab.edit(DELTA)})
    return lab.site()


def on(host: str) -> list[str]:
    """What makes the command behind it run on a host of that name."""
    script = f'hostname {host} && mount -t tmpfs tmpfs /mnt && exec "$@"'
    return ["unshare", "-mnu", "sh", "-c", script, "sh"]


def begin(lab: Lab, site: Site, host: str) -> subprocess.Popen[str]:
    """A server that is launched on a host, with whatever must be applied first."""
    run = lab.command(site, "run", "--ensure", "--bundle", "b", "--")
    return subprocess.Popen(
        [*on(host), *run, sys.executable, "-c", SERVER, str(site / ALPHA[0])],
        env=lab.child_env,
        cwd=lab.base,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=default_signals,  # noqa: PLW1509
    )


@contextmanager
def all_hosts(lab: Lab, site: Site) -> Iterator[list[subprocess.Popen[str]]]:
    """Launched on every host at once; ended together."""
    servers = [begin(lab, site, f"node{number}") for number in range(HOSTS)]
    try:
        yield servers
    finally:
        for server in servers:
            server.communicate()


def first_lines(servers: list[subprocess.Popen[str]]) -> list[str]:
    lines = []
    for server in servers:
        assert server.stdout is not None
        lines.append(server.stdout.readline().strip())
    return lines


def killed_in_the_middle(lab: Lab, site: Site, host: str) -> None:
    """An apply on a host that dies at its third rename of a file of the environment."""
    prefix = ("strace", "-qq", "-o", "/dev/null", "-e", "inject=renameat:signal=SIGKILL:when=4")
    run = lab.command(site, "apply", "b")
    done = subprocess.run(
        [*on(host), *prefix, *run],
        env=lab.child_env,
        cwd=lab.base,
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0, done
    assert (site / STATE / "journal.json").exists()


def test_one_writes_and_the_others_wait_and_verify(lab: Lab, site: Site) -> None:
    with all_hosts(lab, site) as servers:
        assert first_lines(servers) == [f"node{number} True" for number in range(HOSTS)]
        notes = [json.loads(path.read_text()) for path in (site / STATE / "launches").iterdir()]
        assert sorted(note["host"] for note in notes) == [f"node{n}" for n in range(HOSTS)]
        # Nobody changes it under them, from whatever host, and each one is named.
        refused = subprocess.run(
            [*on("login"), *lab.command(site, "revert", "--all")],
            env=lab.child_env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 5
        assert all(f" on node{number} " in refused.stderr for number in range(HOSTS))
        running = lab.json(site, "status")["running"]
        assert sorted(one["host"] for one in running) == [f"node{n}" for n in range(HOSTS)]
        assert not any(one["restart"] for one in running)
    state = json.loads((site / STATE / "state.json").read_text())
    assert state["serial"] == 1, "more than one of them wrote"
    lab.run(site, "revert", "--all")


def test_one_killed_in_the_middle_is_recovered_by_the_next(lab: Lab, site: Site) -> None:
    killed_in_the_middle(lab, site, "node9")
    # Every host knows it, and which process of which host it was.
    journal = json.loads((site / STATE / "journal.json").read_text())
    assert journal["by"]["host"] == "node9" and journal["by"]["where"] is not None
    said = lab.run(site, "verify", check=1).stderr
    assert f"apply by process {journal['by']['pid']} on node9" in said
    with all_hosts(lab, site) as servers:
        assert first_lines(servers) == [f"node{number} True" for number in range(HOSTS)]
    lab.run(site, "verify", "b")
    lab.run(site, "revert", "--all")
    assert ALPHA[1] in site.text(ALPHA[0]) and not (site / STATE).exists()


def test_the_holder_on_another_host_is_named(lab: Lab, site: Site, tmp_path: Path) -> None:
    """Its process ids mean nothing here, so they are not compared."""
    go = tmp_path / "go"
    os.mkfifo(go)
    prefix = ("strace", "-qq", "-f", "-o", "/dev/null", "-e", "inject=fsync:delay_enter=60000000")
    process = subprocess.Popen(
        [*on("node7"), *prefix, *lab.command(site, "apply", "b")],
        env=lab.child_env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (site / STATE / "staged").exists():
            assert process.poll() is None
            os.sched_yield()
        for args in (["apply", "b"], ["run", "--ensure", "--bundle", "b", "--", "true"]):
            result = lab.run(site, "--lock-timeout", "0", *args, check=5)
            assert " on node7 (apply)" in result.stderr
    finally:
        process.kill()
        process.wait()
