"""The snippets, from facts to text.

Owns what each launcher makes of exit codes and of standard output; each fact is said in the
snippet, for who reads it there.  Nothing is looked up here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from . import words


class Facts(NamedTuple):
    """What a snippet is made of.

    ``patchkit``: the program with the options that name the environment.  ``bundle_dir``: the
    option for what applies, or empty.  ``has_args``: the bundles have launch arguments.
    ``prefix``: the folder that a shared volume is mounted at.  ``linted``: the bundle directory
    within its repository.
    """

    patchkit: tuple[str, ...]
    bundle_dir: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    has_args: bool = False
    image: str = "IMAGE"
    volume: str | None = None
    prefix: str = ""
    linted: str = "."

    @property
    def verify(self) -> list[str]:
        """The check alone."""
        return [*self.patchkit, "verify", *self.bundles]

    @property
    def apply(self) -> list[str]:
        """The change; nothing where it is done already."""
        return [*self.patchkit, *self.bundle_dir, "apply", *self.bundles]

    @property
    def run(self) -> list[str]:
        """The launch, up to the command."""
        named = [word for name in self.bundles for word in ("--bundle", name)]
        placed = ["--append-args"] if self.has_args and "{args}" not in self.command else []
        return [*self.patchkit, "run", *named, *placed, "--"]


def systemd(facts: Facts) -> str:
    """A drop-in of a service."""
    head = """\
# A drop-in: systemctl edit SERVICE, or /etc/systemd/system/SERVICE.service.d/patchkit.conf
"""
    if facts.command:
        return f"""{head}\
# patchkit becomes the command: process id, signals and exit status are the command's own.
# What does not verify is not launched, and the unit fails.
[Service]
ExecStart=
ExecStart={words.unit([*facts.run, *facts.command])}
"""
    return f"""{head}\
# An exit status other than 0 fails the unit. Not ExecCondition=, which takes it for "skip quietly".
# To export the bundles' variables too: patchkit hook systemd -- COMMAND
[Service]
ExecStartPre={words.unit(facts.verify)}
"""


def slurm(facts: Facts) -> str:
    """A task prolog, with the commands around it."""
    launch = words.shell([*facts.run, *facts.command])
    restore = words.shell([*facts.patchkit, "fleet", "restore"])
    return f"""\
#!/bin/sh
# A Slurm task prolog, run on each node before each task. Keep it where every node sees it:
#   patchkit hook slurm > patchkit-prolog.sh && chmod +x patchkit-prolog.sh
# Once an allocation, in it: apply on every node or on none. It is tried dry everywhere first; where
# apply or verify fails on any node, each gets back what it had. What is done already is left alone:
#   ./patchkit-prolog.sh apply
# Each launch. Without --kill-on-bad-exit the tasks of the other nodes go on, and hang:
#   srun --kill-on-bad-exit=1 --task-prolog="$PWD/patchkit-prolog.sh" \\
#     {launch}{"" if facts.command else " COMMAND"}
#
# Not Prolog= of slurm.conf: a failure of that one drains the node.
if [ "${{1-}}" = apply ]; then
  each() {{ srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 "$@"; }}
  # The command behind it gets a file of the node as its last word.
  with_file() {{ each sh -c '"$@" "/var/tmp/patchkit-$SLURM_JOB_ID-$SLURMD_NODENAME"' sh "$@"; }}
  each {words.shell([*facts.patchkit, "recover", "-q"])} || exit
  each {words.shell([*facts.apply, "--dry-run", "-q"])} || exit
  # srun passes Ctrl-C and SIGTERM on to its step; what was begun is put back all the same.
  trap : HUP INT TERM
  if with_file {words.shell([*facts.patchkit, "fleet", "save", "-q"])}; then
    each {words.shell([*facts.apply, "-q"])} && each {words.shell(facts.verify)}
    code=$?
    if [ "$code" != 0 ] && ! with_file {restore} -q; then
      echo "not put back on every node; there:" {restore} \\
        "/var/tmp/patchkit-$SLURM_JOB_ID-NODE" >&2
      exit "$code"
    fi
  else
    code=$?
  fi
  with_file rm -f
  exit "$code"
fi
# Standard output is a protocol here (print, export, unset) and standard error is closed, so
# what was found goes out by print.
found=$({words.shell(facts.verify)} 2>&1 </dev/null) && exit 0
code=$?
printf '%s\\n' "$found" | sed "s/^/print ${{SLURMD_NODENAME:-this node}}: /"
exit "$code"
"""


def kubernetes(facts: Facts) -> str:
    """A pod; its container goes into any pod template."""
    run = _items([*facts.run, *facts.command])
    if facts.volume is None:
        return f"""\
# The image has the environment, with the bundles applied. No init container: it has a file
# system of its own. No postStart hook: it races with the command.
# patchkit becomes the command, as process 1: signals and exit code are the command's own.
# What does not verify is not launched; kubectl describe pod says why.
apiVersion: v1
kind: Pod
metadata:
  name: server
spec:
  containers:
    - name: server
      image: {words.yaml(facts.image)}
      terminationMessagePolicy: FallbackToLogsOnError
      command:
{run}
"""
    return f"""\
# The environment is on a volume that pods share: the init container applies there, one pod at a
# time, and changes nothing where it is done already. Where it fails it is tried again, for ever.
# patchkit becomes the command, as process 1: signals and exit code are the command's own.
# What does not verify is not launched; kubectl describe pod says why.
apiVersion: v1
kind: Pod
metadata:
  name: server
spec:
  initContainers:
    - name: patchkit
      image: {words.yaml(facts.image)}
      terminationMessagePolicy: FallbackToLogsOnError
      command:
{_items(facts.apply)}
      volumeMounts:
        - name: environment
          mountPath: {words.yaml(facts.prefix)}
  containers:
    - name: server
      image: {words.yaml(facts.image)}
      terminationMessagePolicy: FallbackToLogsOnError
      command:
{run}
      volumeMounts:
        - name: environment
          mountPath: {words.yaml(facts.prefix)}
  volumes:
    - name: environment
      persistentVolumeClaim:
        claimName: {words.yaml(facts.volume)}
"""


def _items(command: list[str]) -> str:
    return "\n".join(f"        - {words.kubernetes(word)}" for word in command)


def docker(facts: Facts) -> str:
    """The last lines of a Dockerfile."""
    # 2 is reserved for a health check, so each failure is 1.
    check = f"{words.shell(facts.verify)} || exit 1"
    return f"""\
# The last lines of a Dockerfile. patchkit becomes the command, as process 1: signals and exit
# code are the command's own. What does not verify is not launched.
ENTRYPOINT {words.docker(facts.run)}
CMD {words.docker(facts.command)}
# Optional, and of an image there is one: files changed in the running container.
HEALTHCHECK --interval=5m --timeout=30s CMD {words.docker(["/bin/sh", "-c", check])}
"""


def pre_commit(facts: Facts) -> str:
    """A configuration for a repository of bundles."""
    entry = words.shell([*facts.patchkit, "--bundles", facts.linted, "lint"])
    folder = "" if facts.linted == "." else re.escape(facts.linted) + "/"
    return f"""\
# .pre-commit-config.yaml of a repository of bundles: for who writes them, and no gate of a launch.
repos:
  - repo: local
    hooks:
      - id: patchkit-lint
        name: patchkit lint
        language: system
        entry: {words.yaml(entry)}
        files: {words.yaml(f"^{folder}(manifests|patches)/")}
        pass_filenames: false
"""


def bash(facts: Facts) -> str:
    """A launch script."""
    command = words.shell(facts.command) + " " if facts.command else ""
    return f"""\
#!/usr/bin/env bash
set -euo pipefail
# exec: the script becomes patchkit, and patchkit the command. Exit code, signals and standard
# output are the command's own; what does not verify is not launched (exit code 1, or another).
# Do not put it into a pipe, or behind || true: that loses the exit code.
exec {words.shell(facts.run)} {command}"$@"
"""


KINDS: dict[str, Callable[[Facts], str]] = {
    "systemd": systemd,
    "slurm": slurm,
    "kubernetes": kubernetes,
    "docker": docker,
    "pre-commit": pre_commit,
    "bash": bash,
}
#: Those that say nothing without a command: they set it in the place of another one.
NEEDS_COMMAND = ("kubernetes", "docker")
