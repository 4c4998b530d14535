# Copyright (c) The patchkit authors
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""The patchkit command of a node: how it is called, and what its answer must be.

Owns the command line, the strict reading of the JSON, and what an exit code means.  Nothing of
patchkit is imported, on the controller or on the node.
"""

from __future__ import annotations

import json
import os
import re
import sys

#: The options that name the program and the environment.
TARGET = {
    "executable": {"type": "path"},
    "python": {"type": "path"},
    "root": {"type": "path"},
}
ONE_TARGET = {
    "mutually_exclusive": [("python", "root")],
    "required_one_of": [("python", "root")],
}
#: The version of the JSON that is understood here.
SCHEMA = 1
#: Commands whose answer says whether they changed anything.
_CHANGING = ("apply", "revert", "recover", "fleet restore")
#: Exit codes at which nothing was changed, by patchkit's contract.
_UNCHANGED = (1, 2, 3, 4, 5)


class Program:
    """The command, for the environment that the parameters name."""

    def __init__(self, module):
        self.module = module
        self.told = {}  # goes into whatever the task returns
        self.stderr = []
        self.commands = []
        given = module.params
        self._start = _executable(module)
        self._target = []
        for option in ("python", "root"):
            if given[option]:
                self._target += ["--" + option, given[option]]
        for folder in given.get("bundles") or ():
            self._target += ["--bundles", os.path.expanduser(folder)]

    def ask(self, command, words=None, accept=(0,), accept_error=None):
        """The answer to a command; the task fails where the exit code is none of ``accept``.

        ``words`` is what stands on the command line, by default the command alone.  With the
        error code ``accept_error`` the answer is None.
        """
        argv = [*self._start, *self._target, "--json", *(words or [command])]
        self.commands.append(argv)
        try:
            rc, out, err = self.module.run_command(
                argv, handle_exceptions=False, environ_update={"NO_COLOR": "1"}
            )
        except OSError as error:
            self.fail(
                f"{argv[0]} cannot be run: {error}",
                hint="install patchkit on the node, or give the option executable",
            )
        self.stderr += err.splitlines()
        answer, wrong = _read(command, rc, out)
        if wrong is not None:
            self.fail(
                f"patchkit {command} did not answer as it should: {wrong}",
                rc=rc,
                stdout=out,
                hint=None if rc in _UNCHANGED else "patchkit recover",
            )
        error = answer.get("error")
        if error and error.get("code") == accept_error:
            return None
        if rc not in accept:
            error = error or {}
            self.fail(
                error.get("message") or f"patchkit {command}: exit code {rc}",
                rc=rc,
                hint=error.get("hint"),
                error=error,
            )
        return answer

    def fail(self, message, hint=None, **more):
        """End the task; the message has the hint, too: it is all that many callbacks show."""
        text = message if not hint else f"{message} (hint: {hint})"
        self.module.fail_json(msg=text, hint=hint, **dict(self._told(), **more))

    def done(self, **values):
        """End the task well; what patchkit remarked comes as warnings."""
        for line in self.stderr:
            self.module.warn(re.sub("^patchkit: ", "", line))
        self.module.exit_json(**dict(self._told(), **values))

    def _told(self):
        last = self.commands[-1] if self.commands else []
        return dict(self.told, cmd=last, stderr="\n".join(self.stderr))


def _executable(module):
    """``executable``; else the command on the PATH; else the module of the environment's Python."""
    given = module.params["executable"]
    if given:
        return [given]
    found = module.get_bin_path("patchkit")
    if found:
        return [found]
    python = module.params["python"] or sys.executable
    if os.path.isdir(python):
        python = os.path.join(python, "bin", "python")
    return [python, "-m", "patchkit"]


def _read(command, rc, out):
    """(answer, None), or (None, what is wrong with it)."""
    if rc < 0:
        return None, f"it was ended by signal {-rc}"
    try:
        answer = json.loads(out)
    except ValueError:
        return None, f"exit code {rc}, and standard output is no JSON object"
    if not isinstance(answer, dict) or answer.get("schema") != SCHEMA:
        return None, f"exit code {rc}, and no JSON object of schema {SCHEMA}"
    if answer.get("exit_code") != rc or answer.get("ok") is not (rc == 0):
        return None, f"exit code {rc}, and its JSON speaks of {answer.get('exit_code')}"
    if answer.get("command") not in (command, None):
        return None, f"it is the answer to {answer['command']}"
    if rc == 0 and command in _CHANGING and not isinstance(answer.get("changed"), bool):
        return None, "it does not say whether anything changed: update patchkit on the node"
    return answer, None
