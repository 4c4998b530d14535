"""The modules of the Ansible collection, on this machine, with the real program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import releases
from tests.nodes.ansible import PATCHKIT, Ansible
from tests.support.lab import ALPHA, BETA, GAMMA, STATE, Lab, Site, needs_tool

pytest_plugins = ("tests.support.fixtures", "tests.nodes.fixtures")


@pytest.fixture
def site(lab: Lab) -> Site:
    lab.bundle("b", {"acme": lab.edit(ALPHA, BETA)})
    lab.bundle("tree", profile={"env": {"NCCL_ALGO": "Tree"}})
    return lab.site()


def bundle(lab: Lab, site: Site, **options: Any) -> dict[str, Any]:
    given = {
        "root": str(site.root),
        "executable": str(PATCHKIT),
        "bundles": str(lab.bundles),
        **options,
    }
    return {"patchkit.patchkit.bundle": {k: v for k, v in given.items() if v is not None}}


def facts(site: Site, **options: Any) -> dict[str, Any]:
    given = {"root": str(site.root), "executable": str(PATCHKIT), **options}
    return {"patchkit.patchkit.bundle_facts": given}


def differences(site: Site, before: releases.Snapshot) -> list[str]:
    """In contents, patchkit's own record left out."""
    found = site.differences(before, releases.CONTENTS)
    return [one for one in found if not one.startswith(STATE)]


def test_changed_only_where_bytes_change_and_diff_and_check_as_ansible_has_them(
    lab: Lab, site: Site, ansible: Ansible
) -> None:
    saved = str(lab.base / "saved.json")
    check = {"check_mode": True, "diff": True}
    before = site.picture()
    dry, gone, missing = ansible.tasks(
        [
            {**bundle(lab, site, name="b", saved=saved), **check},
            {**bundle(lab, site, state="reverted", all=True), **check},
            bundle(lab, site, name="b", state="verified"),
        ]
    )
    assert (dry["changed"], dry["bundles"], dry["saved"]) == (True, ["b"], False)
    assert "+    second_3 = 1030" in dry["diff"]["prepared"]
    assert {one["path"] for one in dry["files"]} == {ALPHA[0], BETA[0]}
    assert gone["changed"] is False
    assert (missing["failed"], missing["rc"], missing["changed"]) == (True, 1, False)
    assert "patchkit apply b" in missing["msg"]
    assert site.differences(before) == []
    assert not Path(saved).exists()

    done, again, good, told, tree, tree_again, out, out_again = ansible.tasks(
        [
            {**bundle(lab, site, name="b", saved=saved), "diff": True},
            bundle(lab, site, name="b", saved=saved),
            bundle(lab, site, name="b", state="verified"),
            facts(site),
            bundle(lab, site, name=["tree"]),
            bundle(lab, site, name=["tree", "b"]),
            {**bundle(lab, site, name="b", state="reverted"), "diff": True},
            bundle(lab, site, name="b", state="reverted"),
        ]
    )
    assert (done["changed"], done["saved"]) == (True, True)
    assert "+    second_3 = 1030" in done["diff"]["prepared"]
    assert (again["changed"], again["saved"]) == (False, False)
    assert (good["changed"], good["problems"]) == (False, [])
    carried = told["ansible_facts"]["patchkit"]
    assert carried["fingerprint"] == done["fingerprint"] == again["fingerprint"]
    assert [one["name"] for one in carried["applied"]] == ["b"]
    assert carried["distributions"] == {"acme": "1.0"}
    assert (carried["drift"], carried["interrupted"]) == (False, False)
    assert carried["status"]["command"] == "status"
    assert (tree["changed"], tree_again["changed"]) == (True, False)
    assert (out["changed"], out["bundles"], out_again["changed"]) == (True, ["tree"], False)
    assert ALPHA[0] in out["diff"]["before"] and ALPHA[0] in out["diff"]["after"]

    (back, once_more) = ansible.tasks([bundle(lab, site, state="restored", saved=saved)] * 2)
    assert (back["changed"], back["reverted"], once_more["changed"]) == (True, ["tree"], False)
    assert differences(site, before) == []


def test_what_was_applied_before_comes_back_whatever_the_bundles_say_by_then(
    lab: Lab, site: Site, ansible: Ansible
) -> None:
    saved = str(lab.base / "saved.json")
    lab.run(site, "apply", "b", "tree")
    before, told = site.picture(), lab.json(site, "status")
    lab.bundle("b", {"acme": lab.edit(GAMMA)}, version="2.0.0")
    lab.bundle("c", {"acme": lab.edit(ALPHA)})
    up, dry, back = ansible.tasks(
        [
            bundle(lab, site, name=["b", "c"], saved=saved),
            {**bundle(lab, site, state="restored", saved=saved), "check_mode": True},
            bundle(lab, site, state="restored", saved=saved, bundles=None),
        ]
    )
    assert (up["changed"], up["bundles"]) == (True, ["b", "tree", "c"])
    assert (dry["changed"], dry["bundles"]) == (True, ["b", "tree"])
    assert (back["changed"], back["fingerprint"]) == (True, told["fingerprint"])
    assert lab.json(site, "status")["applied"] == told["applied"]
    assert differences(site, before) == []
    # Of another environment, damaged, or not there, it is refused, and nothing is changed.
    other = lab.site()
    damaged = lab.base / "damaged.json"
    text = Path(saved).read_text()
    damaged.write_text(text.replace("tree", "eert"))
    cases = [(other, saved), (site, str(damaged)), (site, str(lab.base / "none.json"))]
    failed = ansible.tasks([bundle(lab, one, state="restored", saved=f) for one, f in cases])
    codes = [one["error"]["code"] for one in failed]
    assert codes == ["other-root", "saved-damaged", "not-saved"]
    assert all(one["failed"] and not one["changed"] for one in failed)
    assert differences(site, before) == []


def test_an_interrupted_command_is_told_and_then_finished_or_undone(
    lab: Lab, site: Site, ansible: Ansible
) -> None:
    needs_tool("strace")
    saved = str(lab.base / "saved.json")
    before = site.picture()
    inject = ("strace", "-qq", "-o", "/dev/null", "-e", "inject=renameat:signal=SIGKILL:when=4")
    lab.start(site, "apply", "b", prefix=inject).communicate()
    told, dry, done, back = ansible.tasks(
        [
            facts(site),
            {**bundle(lab, site, name="b", saved=saved), "check_mode": True},
            bundle(lab, site, name="b", saved=saved),
            bundle(lab, site, state="restored", saved=saved),
        ]
    )
    carried = told["ansible_facts"]["patchkit"]
    assert (carried["interrupted"], carried["drift"]) == (True, False)
    assert carried["next"] == "patchkit recover"
    assert (dry["changed"], dry["recovered"]) == (True, "pending")
    assert (done["changed"], done["recovered"], done["saved"]) == (True, "back", True)
    assert done["bundles"] == ["b"]
    assert (back["changed"], back["bundles"]) == (True, [])
    assert differences(site, before) == []


ANSWER = '{"schema": %d, "command": "apply", "ok": true, "exit_code": 0}'
#: Programs that answer in the place of patchkit.
ANSWERS = {
    "text": "echo hello; echo 'patchkit: about it' >&2; exit 0",
    "nothing": "exit 4",
    "killed": "kill -9 $$",
    "another code": f"echo '{ANSWER % 1}'; exit 3",
    "another schema": f"echo '{ANSWER % 2}'",
    "two objects": "echo '{}{}'",
    "of an older patchkit": f"echo '{ANSWER % 1}'",
}


def test_a_failure_keeps_the_message_the_hint_and_all_of_standard_error(
    lab: Lab, site: Site, ansible: Ansible
) -> None:
    path = site / ALPHA[0]
    path.write_bytes(path.read_bytes() + b"# an edit\n")
    stubs = []
    for number, script in enumerate(ANSWERS.values()):
        stub = lab.base / f"stub{number}"
        stub.write_text(f"#!/bin/sh\n{script}\n")
        stub.chmod(0o755)
        stubs.append(bundle(lab, site, name="b", executable=str(stub)))
    drift, unknown, nobody, none, *answers = ansible.tasks(
        [
            bundle(lab, site, name="b"),
            bundle(lab, site, name="bb"),
            bundle(lab, site, name="b", executable=str(lab.base / "not-there")),
            bundle(lab, site, name=[]),
            *stubs,
        ]
    )
    assert (drift["failed"], drift["rc"], drift["changed"]) == (True, 3, False)
    assert drift["error"]["file"] == ALPHA[0]
    assert drift["hint"] and drift["hint"] in drift["msg"] and drift["hint"] in drift["stderr"]
    assert unknown["error"]["code"] == "unknown-bundle"
    assert "cannot be run" in nobody["msg"]
    assert none["failed"]
    texts = dict(zip(ANSWERS, answers, strict=True))
    assert all(one["failed"] for one in answers), json.dumps(texts, indent=1)
    assert texts["text"]["stdout"] == "hello\n"
    assert texts["text"]["stderr"] == "patchkit: about it"
    assert "ended by signal 9" in texts["killed"]["msg"]
    assert texts["killed"]["hint"] == "patchkit recover"
    assert texts["nothing"]["hint"] is None
    assert "speaks of 0" in texts["another code"]["msg"]
    assert "schema 1" in texts["another schema"]["msg"]
    assert "update patchkit on the node" in texts["of an older patchkit"]["msg"]
