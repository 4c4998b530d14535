"""Ansible as a real program, with the collection of this checkout installed as users do it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import clean_environment
from tests.releases import BUILD, ROOT

COLLECTION = ROOT / "ansible" / "patchkit"
#: Where ``dev.py`` puts ansible-core; a program on the PATH will do as well.
BESIDE = BUILD / "venvs" / "ansible" / "bin"
PATCHKIT = Path(sys.executable).parent / "patchkit"
_RECAP = re.compile(
    r"^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE
)


def program(name: str) -> str:
    """One of ansible-core's programs, or a skip."""
    found = shutil.which(name, path=f"{BESIDE}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"needs {name}")
    return found


@dataclass(frozen=True)
class Played:
    """What a playbook came to."""

    exit_code: int
    text: str

    def recap(self, column: str) -> dict[str, int]:
        """``changed``, ``failed`` or ``unreachable`` by host."""
        at = ("ok", "changed", "unreachable", "failed").index(column) + 2
        return {found[1]: int(found[at]) for found in _RECAP.finditer(self.text)}

    def reason(self, host: str) -> str:
        """The message of the last task that failed on a host."""
        found = re.findall(rf"^fatal: \[{host}\]: FAILED! => (.*)$", self.text, re.MULTILINE)
        assert found, self.text
        return str(json.loads(found[-1])["msg"])

    @property
    def changed(self) -> set[str]:
        """The hosts on which something changed."""
        return {host for host, count in self.recap("changed").items() if count}


def install(folder: Path) -> Path:
    """Install the collection as docs/fleet.md has it, but for the place; the place."""
    words = ("collection", "install", f"./{COLLECTION.relative_to(ROOT)}", "-p", str(folder))
    env = clean_environment(folder, ANSIBLE_HOME=str(folder / "home"))
    done = subprocess.run(
        [program("ansible-galaxy"), *words],
        env=env,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Ansible:
    """ansible-playbook with an inventory and a home of its own, and the collection."""

    def __init__(self, base: Path, collections: Path, sockets: str) -> None:
        self.base = base
        base.mkdir()
        (base / "ansible.cfg").write_text("")
        self.env = clean_environment(
            base,
            ANSIBLE_HOME=str(base / "ansible"),
            ANSIBLE_CONFIG=str(base / "ansible.cfg"),
            ANSIBLE_COLLECTIONS_PATH=str(collections),
            ANSIBLE_LOCALHOST_WARNING="0",
            ANSIBLE_NOCOLOR="1",
            ANSIBLE_HOST_KEY_CHECKING="0",
            ANSIBLE_PIPELINING="1",
            ANSIBLE_SSH_CONTROL_PATH_DIR=sockets,
            ANSIBLE_FORKS="8",
            ANSIBLE_SSH_ARGS="-F none -o ControlMaster=auto -o ControlPersist=20"
            " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o IdentitiesOnly=yes",
        )
        self.env.pop("SSH_AUTH_SOCK", None)

    def run(self, name: str, *args: str | Path, check: int | None = 0) -> Played:
        """A program to its end."""
        done = subprocess.run(
            [program(name), *map(str, args)],
            env=self.env,
            cwd=self.base,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            check=False,
            timeout=600,
        )
        assert check is None or done.returncode == check, f"{args}\n{done.stdout}"
        return Played(done.returncode, done.stdout)

    def inventory(self, hosts: Mapping[str, Mapping[str, Any]], **common: Any) -> Path:
        """Written as JSON, which is YAML, too."""
        path = self.base / "hosts.json"
        path.write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
        return path

    def tasks(self, tasks: Sequence[Mapping[str, Any]], *options: str) -> list[dict[str, Any]]:
        """Run tasks of this collection on this machine, whatever fails; what each returned."""
        steps: list[dict[str, Any]] = []
        for number, task in enumerate(tasks):
            steps.append({**task, "register": f"step{number}", "ignore_errors": True})
        out = self.base / "results.json"
        named = ", ".join(f"step{number}" for number in range(len(tasks)))
        copy = {"content": "{{ [" + named + "] | to_json }}", "dest": str(out)}
        steps.append({"ansible.builtin.copy": copy, "check_mode": False, "diff": False})
        play = {"hosts": "localhost", "gather_facts": False, "tasks": steps}
        book = self.base / "book.json"
        book.write_text(json.dumps([play]))
        where = ("-c", "local", "-e", f"ansible_python_interpreter={sys.executable}")
        self.last = self.run("ansible-playbook", "-i", "localhost,", *where, *options, book)
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found
