"""Nodes that Ansible reaches by ssh, each a mount, UTS and PID namespace on this machine.

All have the same environment below one path, each with an overlay of its own on it, a home, and
an sshd on an address of its own.  Killing a node kills whatever runs on it; its disk stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.ansible import PATCHKIT, Ansible, Played
from tests.support.lab import Lab, Site, needs_root
from tests.test_hooks import free_ports

SSHD = "/usr/sbin/sshd"
#: Kills patchkit at its fourth rename: the journal is there, and some of the files are swapped.
DIES = "strace -qq -o /dev/null -e inject=renameat:signal=SIGKILL:when=4"

_INIT = """
set -e
hostname "$1"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3/upper,workdir=$3/work" "$2"
mount -t tmpfs tmpfs /run
mkdir /run/sshd
exec {sshd} -D -e -f "$3/sshd_config"
"""


class Node:
    """One node: ``name``, its address, and the folder that outlives it."""

    def __init__(self, base: Path, number: int, port: str, lower: Path) -> None:
        self.name = f"n{number}"
        self.address = f"127.0.1.{number}"
        self.base = base / self.name
        self.lower = lower
        for folder in ("upper", "work", "home"):
            (self.base / folder).mkdir(parents=True)
        (self.base / "sshd_config").write_text(
            f"ListenAddress {self.address}:{port}\n"
            f"HostKey {base}/host\n"
            f"AuthorizedKeysFile {base}/key.pub\n"
            f"SetEnv HOME={self.base}/home LC_ALL=C.UTF-8\n"
            "PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nMaxStartups 100\n"
            "PasswordAuthentication no\nPrintMotd no\n"
            "Subsystem sftp internal-sftp\n"
        )
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Up to the moment at which its sshd listens."""
        unshare = ("unshare", "-m", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
        words = ("sh", "-c", _INIT.format(sshd=SSHD), "sh", self.name)
        self._process = subprocess.Popen(
            [*unshare, *words, str(self.lower), str(self.base)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if "listening on" in line:
                break
        else:
            text = "".join(said)
            if "overlay" in text:
                pytest.skip(f"needs overlay mounts: {text}")
            raise AssertionError(text)
        self._reader = threading.Thread(target=self._process.stderr.read)
        self._reader.start()

    def kill(self) -> None:
        """As a power cut does it, but that the disk keeps what was written; back when nothing
        of it runs any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._reader.join()  # its end of the pipe is closed by the last one that had it
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None

    def sh(self, script: str, *words: str | Path) -> str:
        """Run a script on the node, not by ssh; its output."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        enter = ("nsenter", "--target", children.split()[0], "--mount", "--uts", "--pid")
        return subprocess.run(
            [*enter, "sh", "-ec", script, "sh", *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def digest(self) -> str:
        """Of every path, mode and content of its environment but for patchkit's own record."""
        script = """cd "$1"; find . -path ./.patchkit -prune -o -printf '%p %m %y %l\\n' | sort
            find . -path ./.patchkit -prune -o -type f -print0 | sort -z | xargs -0 sha256sum"""
        return hashlib.sha256(self.sh(script, self.lower).encode()).hexdigest()

    @property
    def written(self) -> list[str]:
        """What was ever written to its environment since the node was made."""
        return sorted(str(p.relative_to(self.base)) for p in (self.base / "upper").rglob("*"))


class Fleet:
    """Nodes and the machine that rolls out to them."""

    def __init__(self, lab: Lab, site: Site, ansible: Ansible, nodes: list[Node], port: str):
        self.lab = lab
        self.site = site
        self.ansible = ansible
        self.nodes = nodes
        self.report = lab.base / "report.json"
        self._port = port
        self._own: dict[str, str] = {}
        self._inventory()

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    @property
    def names(self) -> set[str]:
        return {node.name for node in self.nodes}

    def instead_of_patchkit(self, name: str, script: str | None) -> None:
        """What a node runs for patchkit: a shell script, in which ``patchkit "$@"`` is the real
        one and ``$1`` the last word of the command's name; None for the real one again."""
        self._own.pop(name, None)
        if script is not None:
            path = self.lab.base / f"patchkit-{name}"
            head = f'#!/bin/sh\npatchkit() {{ "{PATCHKIT}" "$@"; }}\n'
            path.write_text(f"{head}PATCHKIT={PATCHKIT}\n{script}\n")
            path.chmod(0o755)
            self._own[name] = str(path)
        self._inventory()

    def _inventory(self) -> None:
        hosts = {
            node.name: {
                "ansible_host": node.address,
                "patchkit_executable": self._own.get(node.name, str(PATCHKIT)),
            }
            for node in self.nodes
        }
        self.inventory = self.ansible.inventory(
            hosts,
            ansible_port=int(self._port),
            ansible_user="root",
            ansible_ssh_private_key_file=str(self.nodes[0].base.parent / "key"),
            ansible_python_interpreter=sys.executable,
            patchkit_root=str(self.site.root),
            patchkit_bundle_dir=str(self.lab.bundles),
            patchkit_bundle=["b"],
            patchkit_report=str(self.report),
        )

    def roll_out(self, *options: str, check: int | None = 0) -> Played:
        """The playbook, to its end."""
        return self.ansible.run("ansible-playbook", *self.words(*options), check=check)

    def words(self, *options: str) -> tuple[str | Path, ...]:
        """The rollout's command line, behind the program."""
        return ("-i", self.inventory, "patchkit.patchkit.rollout", *options)

    def fingerprints(self) -> dict[str, str | None]:
        """What each node says that it carries."""
        return {node.name: self.status(node.name)["fingerprint"] for node in self.nodes}

    def status(self, name: str) -> Any:
        """What ``status`` says on a node."""
        ask = '"$1" --root "$2" --json status'
        return json.loads(self[name].sh(ask, PATCHKIT, self.site.root))

    def digests(self) -> dict[str, str]:
        return {node.name: node.digest() for node in self.nodes}


@contextmanager
def fleet(lab: Lab, site: Site, ansible: Ansible, count: int) -> Iterator[Fleet]:
    """``count`` nodes that run, with ``site`` as their environment."""
    needs_root()
    for name, path in (
        ("sshd", SSHD),
        *((n, shutil.which(n)) for n in ("ssh", "unshare", "nsenter")),
    ):
        if not path or not os.path.exists(path):
            pytest.skip(f"needs {name}")
    base = lab.base / "nodes"
    base.mkdir()
    for name in ("key", "host"):
        _keygen(base / name)
    (port,) = free_ports(1)
    nodes = [Node(base, number, port, site.root) for number in range(1, count + 1)]
    try:
        for node in nodes:
            node.start()
        yield Fleet(lab, site, ansible, nodes, port)
    finally:
        for node in nodes:
            node.kill()


def _keygen(path: Path) -> None:
    words: Sequence[str] = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
