"""Promise 8: only what it knows is changed; hand edits and reinstalls are named and refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support import wheels
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    BOLT,
    DELTA,
    GAMMA,
    STATE,
    Lab,
    Site,
    needs_root,
    write_tree,
)
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)

NEW = {"acme/fresh/new.py": "fresh = 1\n"}
IN_ACME = (ALPHA[0], BETA[0])


def bundles(lab: Lab) -> None:
    """``one`` edits alpha and delta and adds a file; ``two`` edits beta."""
    lab.bundle(
        "one", {"acme": lab.edit(ALPHA) + lab.diff({}, NEW), "bolt-kernels": lab.edit(DELTA)}
    )
    lab.bundle("two", {"acme": lab.edit(BETA)})


def edit(site: Site, path: str = ALPHA[0]) -> None:
    """What somebody does with an editor: a new file under the old name."""
    text = site.text(path)
    (site / path).unlink()
    (site / path).write_text(text + "# by hand\n")


def refused(lab: Lab, site: Site, path: str, *args: str) -> Any:
    before = site.picture()
    answer = lab.json(site, *args, check=3)
    assert site.differences(before) == [], "something was overwritten"
    assert answer["error"]["file"] == path, answer["error"]
    assert answer["error"]["hint"]
    result = lab.run(site, *args, check=3)
    assert path in result.stderr
    return answer["error"]


def drift(lab: Lab, site: Site) -> list[tuple[str, str]]:
    """Kind and file of what ``verify`` finds; ``status`` must say the same."""
    answer = lab.json(site, "verify", check=1)
    status = lab.json(site, "status")
    assert status["problems"] == answer["problems"]
    lab.json(site, "status", "--check", check=1)
    return [(problem["kind"], problem["file"]) for problem in answer["problems"]]


def test_a_hand_edit_before_apply(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    edit(site)
    error = refused(lab, site, ALPHA[0], "apply", "one")
    assert "RECORD" in error["message"]


def test_a_hand_edit_of_a_file_that_is_not_touched_does_not_matter(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    edit(site, BETA[0])
    before = site.picture()
    lab.run(site, "apply", "one")
    lab.run(site, "verify", "one")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
    answer = lab.json(site, "verify", "--pristine", check=1)
    assert [(p["kind"], p["file"]) for p in answer["problems"]] == [("not-pristine", BETA[0])]


def test_a_hand_edit_while_applied(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    edit(site)
    assert drift(lab, site) == [("drift", ALPHA[0])]
    refused(lab, site, ALPHA[0], "revert", "--all")
    refused(lab, site, ALPHA[0], "revert", "one")


def test_a_hand_edit_of_a_file_that_the_next_bundle_touches(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    edit(site, BETA[0])
    lab.run(site, "verify", "one")
    refused(lab, site, BETA[0], "apply", "two")


def test_drift_is_refused_by_an_apply_that_does_not_touch_the_file(lab: Lab) -> None:
    """What is recorded is not what is there: another change on top would hide it."""
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    edit(site)
    refused(lab, site, ALPHA[0], "apply", "two")


def test_drift_that_was_taken_back(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    before = site.picture()
    lab.run(site, "apply", "one")
    kept = (site / ALPHA[0]).read_bytes()
    edit(site)
    lab.run(site, "revert", "--all", check=3)
    (site / ALPHA[0]).write_bytes(kept)
    lab.run(site, "verify")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


@pytest.mark.parametrize("path", [ALPHA[0], "acme/fresh/new.py"])
def test_a_file_that_went_missing(lab: Lab, path: str) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    (site / path).unlink()
    assert drift(lab, site) == [("drift", path)]
    refused(lab, site, path, "revert", "--all")
    assert not (site / path).exists()


def test_a_file_that_came_back(lab: Lab) -> None:
    """The bundle deleted it; somebody put another one there."""
    site = lab.site()
    lab.bundle("gone", {"acme": lab.diff({"acme/old.py": ACME.files["acme/old.py"]}, {})})
    lab.run(site, "apply", "gone")
    (site / "acme/old.py").write_text("mine = 1\n")
    assert drift(lab, site) == [("drift", "acme/old.py")]
    refused(lab, site, "acme/old.py", "revert", "--all")
    assert site.text("acme/old.py") == "mine = 1\n"


def test_another_mode(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    (site / ALPHA[0]).chmod(0o755)
    assert drift(lab, site) == [("drift", ALPHA[0])]
    refused(lab, site, ALPHA[0], "revert", "--all")


def test_a_link_in_its_place(lab: Lab) -> None:
    """Even one to a file with the right bytes: the link kind is a part of what is recorded."""
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    elsewhere = lab.base / "alpha.py"
    shutil.move(site / ALPHA[0], elsewhere)
    (site / ALPHA[0]).symlink_to(elsewhere)
    assert drift(lab, site) == [("drift", ALPHA[0])]
    refused(lab, site, ALPHA[0], "revert", "--all")
    assert elsewhere.exists()


def test_a_folder_in_its_place(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    (site / ALPHA[0]).unlink()
    (site / ALPHA[0]).mkdir()
    assert drift(lab, site) == [("drift", ALPHA[0])]
    refused(lab, site, ALPHA[0], "revert", "--all")


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "folder"])
def test_something_where_a_patch_adds_a_file(lab: Lab, kind: str) -> None:
    site = lab.site()
    bundles(lab)
    path = site / "acme/fresh/new.py"
    path.parent.mkdir()
    if kind == "file":
        path.write_text("mine = 1\n")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(site / (ALPHA[0] if kind == "link" else "nowhere"))
    refused(lab, site, "acme/fresh/new.py", "apply", "one")


def test_the_same_file_is_there_already(lab: Lab) -> None:
    """Even with the very bytes that the patch adds: it is not patchkit's to delete later."""
    site = lab.site()
    bundles(lab)
    write_tree(site.root, NEW)
    before = site.picture()
    result = lab.run(site, "apply", "one", check=None)
    if result.exit_code == 0:
        lab.run(site, "revert", "--all")
        assert (site / "acme/fresh/new.py").exists()
    else:
        assert result.exit_code == 3 and "acme/fresh/new.py" in result.stderr
        assert site.differences(before) == []


def test_a_file_that_record_does_not_list(lab: Lab) -> None:
    """Something put it there later: its bytes are nobody's pristine bytes."""
    site = lab.site()
    extra = {"acme/extra.py": "a = 1\nb = 2\nc = 3\n"}
    write_tree(site.root, extra)
    new = {"acme/extra.py": "a = 1\nb = 20\nc = 3\n"}
    lab.bundle("extra", {"acme": lab.diff(extra, new)})
    before = site.picture()
    result = lab.run(site, "apply", "extra", check=3)
    assert "acme/extra.py" in result.stderr
    assert site.differences(before) == []


def test_a_file_that_was_patched_by_other_means(lab: Lab) -> None:
    """``sed -i`` did the same edit: it is not pristine, and it is not patchkit's."""
    site = lab.site()
    bundles(lab)
    (site / ALPHA[0]).write_text(site.text(ALPHA[0]).replace(ALPHA[1], ALPHA[2]))
    before = site.picture()
    result = lab.run(site, "apply", "one", check=3)
    assert ALPHA[0] in result.stderr
    assert site.differences(before) == []


# --- reinstalls --------------------------------------------------------------------------


def reinstall(lab: Lab, site: Site, dist: Dist, by: str) -> None:
    built = wheels.build_wheel(dist, lab.base / "wheels")
    if by == "pip":
        wheels.pip_install([built], python=site.python, options=["--force-reinstall"])
    else:
        wheels.uv_install([built], cache=lab.cache, python=site.python, options=["--reinstall"])


def run_next(lab: Lab, site: Site) -> str:
    """The command that ``status`` names; it is run as shown, and puts everything right."""
    line: str = lab.json(site, "status")["next"]
    assert line, lab.json(site, "status")["problems"]
    assert f"next: {line}" in lab.run(site, "status").stdout
    lab.run(site, *line.split()[1:])
    after = lab.json(site, "status")
    assert after["problems"] == [] and after["next"] is None
    return line


def test_nothing_wrong_needs_no_command(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    assert lab.json(site, "status")["next"] is None
    lab.run(site, "apply", "one")
    assert lab.json(site, "status")["next"] is None


def test_the_next_command_after_a_reinstall(lab: Lab) -> None:
    """It names the whole recorded set, loose patches too, though their file is gone."""
    site = lab.venv(ACME, BOLT)
    bundles(lab)
    path = lab.base / "loose.patch"
    path.write_bytes(lab.edit(GAMMA))
    lab.run(site, "apply", "one", "two", path)
    path.unlink()
    reinstall(lab, site, ACME, "uv")
    before = site.picture()
    result = lab.run(site, "revert", "--all", check=3)
    assert "patchkit apply one two loose.patch" in result.stderr
    assert site.differences(before) == []
    kinds = {problem["kind"] for problem in lab.json(site, "status")["problems"]}
    assert kinds == {"drift"}
    assert run_next(lab, site) == "patchkit apply one two loose.patch"
    assert GAMMA[2] in site.text(GAMMA[0])
    lab.run(site, "revert", "--all")
    lab.run(site, "verify", "--pristine")


def test_the_next_command_after_another_release(lab: Lab) -> None:
    """By the variants for it; where the set does not fit, its record is dropped."""
    fits, other = (Dist("acme", number, dict(ACME.files)) for number in ("1.1", "1.2"))
    other.files[ALPHA[0]] = "entirely = 'new'\n"  # type: ignore[index]
    bundles(lab)
    for dist, command in (
        (fits, "patchkit apply one two"),
        (other, "patchkit revert --all --forget"),
    ):
        site = lab.venv(ACME, BOLT)
        lab.run(site, "apply", "one", "two")
        reinstall(lab, site, dist, "uv")
        problems = lab.json(site, "verify", check=1)["problems"]
        assert all(command in problem["hint"] for problem in problems), problems
        assert f"is as acme {dist.version} has it" in str(problems)
        assert run_next(lab, site) == command


@pytest.mark.parametrize("by", ["pip", "uv"])
def test_the_hint_after_a_hand_edit_names_the_installer(lab: Lab, by: str) -> None:
    site = lab.venv(ACME, BOLT, by_pip=by == "pip")
    bundles(lab)
    lab.run(site, "apply", "one", "two")
    assert site.python is not None
    folder = site.python.parents[1]
    how = {
        "pip": f"pip --python {folder} install --force-reinstall",
        "uv": f"uv pip install --python {folder} --reinstall",
    }[by]
    line = f"{how} --no-deps acme==1.0 && patchkit apply one two"
    edit(site)
    (site / BETA[0]).unlink()
    status = lab.json(site, "status")
    assert [problem["hint"].endswith(line) for problem in status["problems"]] == [True, True]
    assert status["next"] is None, "no command of patchkit's own puts it right"
    reinstall(lab, site, ACME, by)
    assert run_next(lab, site) == "patchkit apply one two"


def test_forgetting_does_not_lose_a_file_that_was_deleted_by_hand(lab: Lab) -> None:
    site = lab.venv(ACME, BOLT)
    bundles(lab)
    lab.run(site, "apply", "one")
    (site / ALPHA[0]).unlink()
    refused(lab, site, ALPHA[0], "revert", "--all", "--forget")


def test_the_owner_alone_is_no_drift(lab: Lab) -> None:
    """Images and user namespaces change all owners; the kept file has its own."""
    needs_root()
    site = lab.site()
    bundles(lab)
    before = site.picture()
    lab.run(site, "apply", "one")
    os.chown(site / ALPHA[0], 1234, 1234)
    lab.run(site, "verify", "one")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


@pytest.mark.parametrize("by", ["pip", "uv"])
def test_reinstalled_at_the_same_version(lab: Lab, by: str) -> None:
    """Everything is pristine again but for what the patch added, which is nobody's now."""
    site = lab.venv(ACME, BOLT, by_pip=by == "pip")
    bundles(lab)
    lab.run(site, "apply", "one")
    reinstall(lab, site, ACME, by)
    assert ALPHA[1] in site.text(ALPHA[0])
    answer = lab.json(site, "verify", check=1)
    assert answer["problems"]
    assert {problem["kind"] for problem in answer["problems"]} <= {"drift", "release-changed"}
    assert ALPHA[0] in str(answer["problems"]) or "acme" in str(answer["problems"])
    for args in (("apply", "two"), ("revert", "--all")):
        before = site.picture()
        result = lab.run(site, *args, check=3)
        assert site.differences(before) == [], f"{args} overwrote something"
        assert "acme" in result.stderr
        assert "hint: patchkit apply one" in result.stderr
    # Who applies the recorded bundle again means to have it on what is there now.
    lab.run(site, "apply", "one")
    lab.run(site, "verify", "one")
    lab.run(site, "revert", "--all")
    assert ALPHA[1] in site.text(ALPHA[0])


def test_a_reinstall_can_be_come_back_from(lab: Lab) -> None:
    """Done, or refused with the command that leads out."""
    site = lab.venv(ACME, BOLT)
    bundles(lab)
    lab.run(site, "apply", "one")
    reinstall(lab, site, ACME, "uv")
    reinstall(lab, site, BOLT, "uv")
    leave_by_the_hint(lab, site)
    lab.run(site, "verify", "--pristine")


def leave_by_the_hint(lab: Lab, site: Site) -> None:
    """The refusal of a revert names the command that leads out, and it does; what was
    reinstalled is not touched by it."""
    before = site.picture()
    result = lab.run(site, "revert", "--all", check=3)
    assert site.differences(before) == []
    assert "patchkit revert --all --forget" in result.stderr
    installed = {name: site.text(name) for name in IN_ACME if (site / name).exists()}
    lab.run(site, "revert", "--all", "--forget")
    assert {name: site.text(name) for name in IN_ACME if (site / name).exists()} == installed
    assert not (site / STATE).exists()
    lab.run(site, "verify")


def test_forgetting_puts_back_what_is_still_patched(lab: Lab) -> None:
    """One of two distributions was reinstalled; the other comes back from the record."""
    site = lab.venv(ACME, BOLT)
    before = site.picture()
    bundles(lab)
    lab.run(site, "apply", "one", "two")
    reinstall(lab, site, ACME, "uv")
    lab.run(site, "revert", "--all", "--forget")
    changed = site.differences(before)
    assert not [line for line in changed if "bolt" in line], changed
    lab.run(site, "verify", "--pristine")


def test_forgetting_takes_no_hand_edit(lab: Lab) -> None:
    site = lab.venv(ACME, BOLT)
    bundles(lab)
    lab.run(site, "apply", "one")
    with (site / ALPHA[0]).open("a") as file:
        file.write("mine = 1\n")
    before = site.picture()
    lab.run(site, "revert", "--all", "--forget", check=3)
    assert site.differences(before) == []


def test_another_release_is_installed_while_applied(lab: Lab) -> None:
    site = lab.venv(ACME, BOLT)
    bundles(lab)
    lab.run(site, "apply", "one")
    newer = Dist("acme", "1.1", {**ACME.files, ALPHA[0]: "entirely = 'new'\n"})
    reinstall(lab, site, newer, "uv")
    answer = lab.json(site, "verify", check=1)
    assert "release-changed" in {problem["kind"] for problem in answer["problems"]}
    assert "1.1" in str(answer["problems"]) and "1.0" in str(answer["problems"])
    before = site.picture()
    for args in (("revert", "--all"), ("apply", "two")):
        lab.run(site, *args, check=3)
        assert site.differences(before) == []
    leave_by_the_hint(lab, site)
    assert site.text(ALPHA[0]) == "entirely = 'new'\n"


def test_uninstalled_while_applied(lab: Lab) -> None:
    site = lab.venv(ACME, BOLT)
    bundles(lab)
    lab.run(site, "apply", "one")
    assert site.python is not None
    wheels.pip_uninstall("acme", python=site.python)
    assert not (site / "acme").exists()
    answer = lab.json(site, "verify", check=1)
    assert "acme" in str(answer["problems"])
    leave_by_the_hint(lab, site)


# --- patchkit's own record ---------------------------------------------------------------


def test_kept_pristine_bytes_that_were_tampered_with(lab: Lab) -> None:
    """They are checked before they are put back."""
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    touched = 0
    for path in (site / STATE).rglob("*"):
        if path.is_file() and ALPHA[1].encode() in path.read_bytes() and path.suffix != ".json":
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data.replace(b"second_3 = 103", b"second_3 = 666"))
            touched += 1
    assert touched, "the pristine bytes are kept in the state folder"
    before = site.picture()
    result = lab.run(site, "revert", "--all", check=None)
    assert result.exit_code == 3, str(result)
    assert ALPHA[0] in result.stderr
    assert site.differences(before) == []


def test_a_state_that_cannot_be_read(lab: Lab) -> None:
    """Cut off, or from a later patchkit: refused and named, not started from nothing."""
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    (state,) = (site / STATE).glob("state*")
    data = state.read_bytes()
    for broken in (data[: len(data) // 2], b"", b"[]", b'{"schema": 999}'):
        state.write_bytes(broken)
        before = site.picture()
        for args in (("apply", "two"), ("revert", "--all"), ("verify",), ("status",)):
            result = lab.run(site, *args, check=None)
            assert result.exit_code in (1, 3), f"{broken!r}\n{result}"
            assert "Traceback" not in result.stderr
            assert site.differences(before) == []
    state.write_bytes(data)
    lab.run(site, "verify", "one")


def test_a_state_folder_that_was_deleted(lab: Lab) -> None:
    """Patched files without a record are not pristine: they are named, not patched again."""
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    shutil.rmtree(site / STATE)
    before = site.picture()
    result = lab.run(site, "apply", "one", check=3)
    assert ALPHA[0] in result.stderr or "acme/fresh/new.py" in result.stderr
    assert site.differences(before) == []
    answer = lab.json(site, "verify", "--pristine", check=1)
    files = {problem["file"] for problem in answer["problems"]}
    assert {ALPHA[0], DELTA[0]} <= files


# --- a plain tree ------------------------------------------------------------------------


def plain_tree(lab: Lab) -> Site:
    """Files without any dist-info: a vendored copy, a source tree that is not git's."""
    site = Site(lab.folder("plain"))
    write_tree(site.root, ACME.files)
    return site


def loose(lab: Lab, *edits: tuple[str, str, str]) -> Path:
    path = lab.base / "fix.patch"
    path.write_bytes(lab.edit(*edits))
    return path


def test_a_plain_tree_is_taken_as_pristine_and_it_says_so(lab: Lab) -> None:
    site = plain_tree(lab)
    before = site.picture()
    result = lab.run(site, "apply", loose(lab, ALPHA))
    assert "pristine" in result.stdout + result.stderr, str(result)
    answer = lab.json(site, "status")
    assert [entry["name"] for entry in answer["applied"]] == ["fix.patch"]
    lab.run(site, "verify", "fix.patch")
    lab.run(site, "revert", "fix.patch")
    assert site.differences(before) == []


def test_json_says_so_too(lab: Lab) -> None:
    site = plain_tree(lab)
    answer = lab.json(site, "apply", loose(lab, ALPHA))
    assert "pristine" in str(answer["notes"])


def test_a_wheel_is_not_said_to_be_taken_as_pristine(lab: Lab) -> None:
    site = lab.site()
    bundles(lab)
    result = lab.run(site, "apply", "two")
    assert "pristine" not in result.stdout + result.stderr


def test_a_plain_tree_drifts_too(lab: Lab) -> None:
    site = plain_tree(lab)
    lab.run(site, "apply", loose(lab, ALPHA))
    edit(site)
    assert drift(lab, site) == [("drift", ALPHA[0])]
    refused(lab, site, ALPHA[0], "revert", "--all")


def test_the_time_alone_is_no_drift(lab: Lab) -> None:
    """``touch``, a backup that was restored, another inode: the bytes count."""
    site = lab.site()
    bundles(lab)
    lab.run(site, "apply", "one")
    data = (site / ALPHA[0]).read_bytes()
    (site / ALPHA[0]).unlink()
    (site / ALPHA[0]).write_bytes(data)
    os.utime(site / ALPHA[0], (1, 1))
    lab.run(site, "verify", "one")
    lab.run(site, "revert", "--all")
