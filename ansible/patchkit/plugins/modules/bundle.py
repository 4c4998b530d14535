#!/usr/bin/python
# Copyright (c) The patchkit authors
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: bundle
short_description: Apply, revert or verify patch bundles in a Python environment
description:
  - Runs C(patchkit) on the node and reports what it says. A command changes every file that it
    names, or none.
  - What an interrupted command left on the node (a journal) is finished or undone before anything
    else is done, with O(state=applied), O(state=reverted) and O(state=restored).
version_added: 0.1.0
author:
  - The patchkit authors (@patchkit)
options:
  name:
    description:
      - The bundles. Paths of loose patch files on the node (C(.patch), C(.diff)) are taken, too.
      - Required with O(state=applied).
      - With O(state=verified) these must be applied, and all that is applied must be as recorded.
        Without names an environment where nothing is applied is as it should be.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(applied), the bundles are in the applied set.
      - V(reverted), they are not in it; with O(all) nothing is.
      - V(verified), files are as recorded and assertions hold; nothing is changed, and the task
        fails where that is not so.
      - V(restored), the applied set is the one that O(saved) keeps.
    type: str
    choices: [applied, reverted, verified, restored]
    default: applied
  python:
    description:
      - The environment, by its interpreter or the folder of its virtual environment.
      - One of O(python) and O(root) is required.
    type: path
  root:
    description:
      - The environment, by a folder that is used as site-packages.
    type: path
  bundles:
    description:
      - Bundle directories on the node (C(manifests/) and C(patches/)), or C(REPOSITORY@REVISION);
        of several the later one wins.
      - By default those that patchkit itself takes, which are the ones shipped with it.
    type: list
    elements: str
  saved:
    description:
      - A file on the node that keeps an applied set.
      - With O(state=applied), what was applied before is written there before anything changes,
        and where nothing changes there is no such file afterwards.
      - Required with O(state=restored).
    type: path
  all:
    description:
      - Take out every bundle, with O(state=reverted).
    type: bool
    default: false
  forget:
    description:
      - With O(state=reverted), leave files that a reinstall put back, or an uninstall took away,
        as they are.
    type: bool
    default: false
  while_running:
    description:
      - Change files although servers that C(patchkit run) launched from them still run.
    type: bool
    default: false
  lock_timeout:
    description:
      - How many seconds to wait for another patchkit that changes the environment.
    type: float
    default: 30.0
  executable:
    description:
      - The C(patchkit) program of the node.
      - By default the one on the PATH, else the module C(patchkit) of O(python), or of the
        interpreter that runs this module.
    type: path
attributes:
  check_mode:
    description: Computes and checks everything on the node (C(--dry-run)), and changes nothing.
    support: full
  diff_mode:
    description:
      - With O(state=applied), the unified diff of each file; with O(state=reverted) and
        O(state=restored), paths with the SHA-256 of their contents.
    support: full
"""

EXAMPLES = r"""
- name: Apply two bundles
  patchkit.patchkit.bundle:
    name: [sm120-fusion, nccl-tree]
    python: /opt/sglang

- name: Apply a bundle of a folder on a shared file system, and keep what was applied before
  patchkit.patchkit.bundle:
    name: our-fix
    python: /opt/sglang
    bundles: /shared/bundles
    saved: /var/lib/patchkit/before.json

- name: Put back what was applied before
  patchkit.patchkit.bundle:
    state: restored
    python: /opt/sglang
    saved: /var/lib/patchkit/before.json

- name: Fail where the node is not as it should be
  patchkit.patchkit.bundle:
    name: sm120-fusion
    state: verified
    python: /opt/sglang

- name: Take everything out
  patchkit.patchkit.bundle:
    state: reverted
    all: true
    python: /opt/sglang
"""

RETURN = r"""
bundles:
  description: The applied set, in order; in check mode the one that there would be.
  returned: success
  type: list
  elements: str
  sample: [sm120-fusion]
reverted:
  description: Bundles that were taken out.
  returned: success, with O(state=applied), O(state=reverted) and O(state=restored)
  type: list
  elements: str
files:
  description:
    - Each file that changed, with C(path), C(change), and the SHA-256 C(before) and C(after).
  returned: success, with O(state=applied), O(state=reverted) and O(state=restored)
  type: list
  elements: dict
fingerprint:
  description: The SHA-256 of the applied set and its contents; null where nothing is applied.
  returned: success
  type: str
upstream:
  description: Bundles that have nothing to do here, with the C(reason) of each C(name).
  returned: success, with O(state=applied) and O(state=verified)
  type: list
  elements: dict
recovered:
  description:
    - How an interrupted command was ended first, C(forward) or C(back). In check mode C(pending)
      says that there is one, and that what follows is not known before that.
  returned: when there was one
  type: str
saved:
  description: Whether O(saved) was written.
  returned: with O(state=applied)
  type: bool
problems:
  description: What C(verify) found.
  returned: with O(state=verified)
  type: list
  elements: dict
error:
  description:
    - What patchkit says of a refusal. C(code) is a word for programs; C(bundle), C(patch), C(file),
      C(hunk) and C(line) where they are known.
  returned: failure
  type: dict
hint:
  description: What to do about it.
  returned: failure
  type: str
rc:
  description: Patchkit's exit code; negative where a signal ended it.
  returned: failure
  type: int
stderr:
  description: All that patchkit wrote to standard error.
  returned: always
  type: str
stdout:
  description: What patchkit printed, where that was not the JSON object that it should be.
  returned: failure
  type: str
cmd:
  description: The last command line that was run.
  returned: always
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.patchkit.patchkit.plugins.module_utils.program import (
    ONE_TARGET,
    TARGET,
    Program,
)

#: What is handed on of an answer.
_TOLD = ("bundles", "reverted", "files", "fingerprint", "upstream", "recovered", "problems")


def main():
    """Parse, run what the state asks for, tell."""
    module = AnsibleModule(
        argument_spec=dict(
            TARGET,
            name={"type": "list", "elements": "str", "default": []},
            state={
                "type": "str",
                "choices": ["applied", "reverted", "verified", "restored"],
                "default": "applied",
            },
            bundles={"type": "list", "elements": "str"},
            saved={"type": "path"},
            all={"type": "bool", "default": False},
            forget={"type": "bool", "default": False},
            while_running={"type": "bool", "default": False},
            lock_timeout={"type": "float", "default": 30.0},
        ),
        required_if=[
            ("state", "applied", ["name"]),
            ("state", "restored", ["saved"]),
        ],
        supports_check_mode=True,
        **ONE_TARGET,
    )
    given = module.params
    program = Program(module)
    state = given["state"]
    if state == "applied" and not given["name"]:
        program.fail("name is empty", hint="name the bundles to apply")
    if state == "reverted" and given["all"] == bool(given["name"]):
        program.fail("state=reverted takes names, or all=true")
    if state == "applied":
        _applied(module, program)
    elif state == "verified":
        _verified(module, program)
    elif state == "reverted":
        words = ["--all"] if given["all"] else given["name"]
        forget = ["--forget"] if given["forget"] else []
        _changed(module, program, "revert", ["revert", *forget, *words])
    else:
        _changed(module, program, "fleet restore", ["fleet", "restore", given["saved"]])


def _options(module):
    """Those of every command that may write."""
    found = ["--lock-timeout", str(module.params["lock_timeout"])]
    return found + (["--while-running"] if module.params["while_running"] else [])


def _told(answer):
    return {key: answer[key] for key in _TOLD if key in answer}


def _verified(module, program):
    answer = program.ask("verify", ["verify", *module.params["name"]], accept=(0, 1))
    problems = answer.get("problems", [])
    if answer["exit_code"] == 0:
        program.done(changed=False, **_told(answer))
    error = answer.get("error") or {}
    messages = [error["message"]] if error else []
    messages += [one["message"] for one in problems]
    hints = [one["hint"] for one in problems if one.get("hint")]
    program.fail(
        "; ".join(messages) or "exit code 1",
        hint=error.get("hint") or (hints[0] if hints else None),
        rc=1,
        error=error,
        **_told(answer),
    )


def _applied(module, program):
    names, saved = module.params["name"], module.params["saved"]
    words = ["apply", *_options(module)]
    result = {}
    program.told["saved"] = False
    before = {}
    if module.check_mode or saved or module._diff:
        # Of what was interrupted nothing can be said before that is ended.
        preview = program.ask("apply", [*words, "--dry-run", *names], accept_error="interrupted")
        if preview is None:
            result["recovered"] = "pending"
        elif module._diff and preview["changed"]:
            result["diff"] = _unified(program.ask("diff", ["diff", *names]))
        if module.check_mode:
            told = {} if preview is None else _told(preview)
            program.done(changed=preview is None or preview["changed"], **dict(result, **told))
        if preview is not None and not preview["changed"]:
            program.done(changed=False, **dict(result, **_told(preview)))
        if saved:
            if preview is None:
                before = program.ask("recover")
            program.ask("fleet save", ["fleet", "save", saved])
            program.told["saved"] = True
    answer = program.ask("apply", words + names)
    if program.told["saved"] and not answer["changed"]:
        # Another node that shares the environment was first: the way back is that one's.
        os.unlink(saved)
        program.told["saved"] = False
    result.update(_told(answer))
    if before.get("recovered"):
        result["recovered"] = before["recovered"]
    program.done(changed=answer["changed"] or bool(before.get("changed")), **result)


def _changed(module, program, command, words):
    """A command that takes something out, or puts something back."""
    words = words + _options(module)
    if module.check_mode:
        answer = program.ask(command, [*words, "--dry-run"], accept_error="interrupted")
        if answer is None:
            program.done(changed=True, recovered="pending")
    else:
        answer = program.ask(command, words)
    result = _told(answer)
    if module._diff and answer["changed"]:
        result["diff"] = _digests(answer["files"])
    program.done(changed=answer["changed"], **result)


def _unified(answer):
    return {"prepared": "".join(one["diff"] for one in answer["files"])}


def _digests(files):
    """What changed, as two texts of a line a file."""
    sides = {"before_header": "before", "after_header": "after"}
    for side in ("before", "after"):
        there = [one for one in files if one[side] is not None]
        sides[side] = "".join(f"{one[side]}  {one['path']}\n" for one in there)
    return sides


if __name__ == "__main__":
    main()
