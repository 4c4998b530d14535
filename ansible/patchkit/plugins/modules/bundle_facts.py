#!/usr/bin/python
# Copyright (c) The patchkit authors
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: bundle_facts
short_description: What patch bundles a Python environment carries
description:
  - Runs C(patchkit status) on the node. Nothing is changed.
version_added: 0.1.0
author:
  - The patchkit authors (@patchkit)
options:
  python:
    description:
      - The environment, by its interpreter or the folder of its virtual environment.
      - One of O(python) and O(root) is required.
    type: path
  root:
    description:
      - The environment, by a folder that is used as site-packages.
    type: path
  doctor:
    description:
      - Ask for driver, toolkit and the like, too (C(patchkit doctor)).
    type: bool
    default: false
  executable:
    description:
      - The C(patchkit) program of the node.
      - By default the one on the PATH, else the module C(patchkit) of O(python), or of the
        interpreter that runs this module.
    type: path
attributes:
  check_mode:
    description: Nothing is changed in either mode.
    support: full
  diff_mode:
    description: Nothing is changed.
    support: none
  facts:
    description: Returns an C(ansible_facts) dictionary.
    support: full
"""

EXAMPLES = r"""
- name: What is applied
  patchkit.patchkit.bundle_facts:
    python: /opt/sglang

- name: Nothing is to have been edited, and no command interrupted
  ansible.builtin.assert:
    that: not ansible_facts.patchkit.problems

- name: A file for patchkit fleet report, on the controller
  ansible.builtin.copy:
    content: "{{ ansible_facts.patchkit.status | to_json }}"
    dest: "reports/{{ inventory_hostname }}.json"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
ansible_facts:
  description: What is known of the environment.
  returned: success
  type: dict
  contains:
    patchkit:
      description: All of it.
      type: dict
      returned: success
      contains:
        applied:
          description: The applied set, each with C(name), C(version), C(variant), C(env), C(args).
          type: list
          elements: dict
          returned: success
        fingerprint:
          description: The SHA-256 of the set and its contents; null where nothing is applied.
          type: str
          returned: success
        distributions:
          description: The release of each patched distribution, by its name.
          type: dict
          returned: success
        drift:
          description: Whether anything is not as it was recorded.
          type: bool
          returned: success
        interrupted:
          description: Whether a command was interrupted, so that C(patchkit recover) is due.
          type: bool
          returned: success
        problems:
          description: What C(verify) finds, each with C(kind) and C(message).
          type: list
          elements: dict
          returned: success
        next:
          description: The command that puts everything right, or null.
          type: str
          returned: success
        status:
          description:
            - The whole object of C(patchkit status --json), for C(patchkit fleet report); with
              O(doctor) it has the key C(facts), too.
          type: dict
          returned: success
hint:
  description: What to do about a failure.
  returned: failure
  type: str
stderr:
  description: All that patchkit wrote to standard error.
  returned: always
  type: str
cmd:
  description: The last command line that was run.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.patchkit.patchkit.plugins.module_utils.program import (
    ONE_TARGET,
    TARGET,
    Program,
)


def main():
    """Ask, and sort what is told."""
    module = AnsibleModule(
        argument_spec=dict(TARGET, doctor={"type": "bool", "default": False}),
        supports_check_mode=True,
        **ONE_TARGET,
    )
    program = Program(module)
    status = program.ask("status")
    if module.params["doctor"]:
        status["facts"] = program.ask("doctor")["facts"]
    kinds = [problem["kind"] for problem in status["problems"]]
    told = {key: status[key] for key in ("applied", "fingerprint", "problems", "next")}
    told["distributions"] = dict(one.rsplit(" ", 1) for one in status["distributions"])
    told["drift"] = any(kind != "interrupted" for kind in kinds)
    told["interrupted"] = "interrupted" in kinds
    told["status"] = status
    program.done(changed=False, ansible_facts={"patchkit": told})


if __name__ == "__main__":
    main()
