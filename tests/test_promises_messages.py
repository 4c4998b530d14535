"""Promise 12: every refusal says what, where, expected, found, nearest, and what to do next."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conftest import Result
from tests.support.lab import ACME, ALPHA, BETA, DELTA, Lab, Site, changed
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)


def refusal(lab: Lab, site: Site, *args: str, code: int = 3) -> tuple[Any, Result]:
    """The error as JSON, and the same command in text; both must be complete."""
    answer = lab.json(site, *args, check=code)
    assert answer["ok"] is False and answer["exit_code"] == code
    error = answer["error"]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error["code"]), error["code"]
    assert error["message"] and error["hint"]
    result = lab.run(site, *args, check=code)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0].startswith("patchkit: ")
    assert any(line.startswith("hint: ") for line in lines), result.stderr
    assert "Traceback" not in result.stderr
    return error, result


def hand_made(lab: Lab, old: str, new: str) -> bytes:
    """A patch of alpha made against other contents than the ones installed."""
    text = changed(str(ACME.files[ALPHA[0]]), ALPHA[1], old)
    return lab.diff({ALPHA[0]: text}, {ALPHA[0]: changed(text, old, new)})


def test_a_hunk_that_does_not_fit(lab: Lab) -> None:
    """Bundle, patch, file, hunk, line, expected, found, nearest with similarity, hint."""
    site = lab.site()
    data = hand_made(lab, "    second_3 = 113\n", "    second_3 = 1130\n")
    lab.bundle("fix", {"acme": [lab.edit(BETA), data]})
    error, result = refusal(lab, site, "apply", "fix")
    assert error["bundle"] == "fix"
    assert error["patch"] == "fix/acme-0002.patch"
    assert error["file"] == ALPHA[0]
    assert error["hunk"] == 1
    assert error["line"] == 5, "the line of the patch file where the hunk starts"
    for word in ("fix", "fix/acme-0002.patch", ALPHA[0], "hunk 1"):
        assert word in result.stderr
    assert "second_3 = 113" in result.stderr, "what was expected"
    assert "second_3 = 103" in result.stderr, "what was found"
    assert re.search(r"\d+ ?%", result.stderr), "the similarity of the nearest place"
    assert "14" in result.stderr or "17" in result.stderr, "the line of the nearest place"


def test_the_second_hunk_is_named_by_its_number_and_line(lab: Lab) -> None:
    site = lab.site()
    text = str(ACME.files[ALPHA[0]])
    first = changed(text, "    first_3 = 3\n", "    first_3 = 30\n")
    old = changed(text, "    third_3 = 203\n", "    third_3 = 77\n")
    new = changed(first, "    third_3 = 203\n", "    third_3 = 770\n")
    data = lab.diff({ALPHA[0]: old}, {ALPHA[0]: new})
    lab.bundle("fix", {"acme": data})
    error, _ = refusal(lab, site, "apply", "fix")
    line = 1 + [n for n, text in enumerate(data.split(b"\n")) if text.startswith(b"@@")][1]
    assert (error["hunk"], error["line"]) == (2, line)


def test_looks_already_applied(lab: Lab) -> None:
    text = changed(str(ACME.files[ALPHA[0]]), ALPHA[1], ALPHA[2])
    site = lab.site(Dist("acme", "1.0", {**ACME.files, ALPHA[0]: text}))
    lab.bundle("fix", {"acme": lab.edit(ALPHA)})
    error, result = refusal(lab, site, "apply", "fix")
    assert "already" in error["message"] + error["hint"]
    assert "already" in result.stderr


def test_text_that_is_nowhere_near(lab: Lab) -> None:
    """No place is like it: it says so instead of naming a random one."""
    site = lab.site()
    old = {ALPHA[0]: "completely\ndifferent\ncontents\nhere\n"}
    new = {ALPHA[0]: "completely\ndifferent\ntext\nhere\n"}
    lab.bundle("fix", {"acme": lab.diff(old, new)})
    error, _ = refusal(lab, site, "apply", "fix")
    assert error["file"] == ALPHA[0] and error["hunk"] == 1


def test_white_space_is_made_visible(lab: Lab) -> None:
    """Expected and found look the same on a terminal: the difference is said."""
    text = str(ACME.files[ALPHA[0]]).replace(ALPHA[1], "\tsecond_3 = 103\n")
    site = lab.site()
    lab.bundle("fix", {"acme": lab.diff({ALPHA[0]: text}, {ALPHA[0]: text.replace("103", "9")})})
    _, result = refusal(lab, site, "apply", "fix")
    assert re.search(r"white ?space|\\t|→|tab", result.stderr), result.stderr


def test_line_ends_are_named(lab: Lab) -> None:
    crlf = str(ACME.files[ALPHA[0]]).replace("\n", "\r\n")
    site = lab.site(Dist("acme", "1.0", {**ACME.files, ALPHA[0]: crlf}))
    lab.bundle("fix", {"acme": lab.edit(ALPHA)})
    _, result = refusal(lab, site, "apply", "fix")
    assert re.search(r"CRLF|\\r|line end", result.stderr), result.stderr


def test_a_file_that_the_distribution_does_not_have(lab: Lab) -> None:
    site = lab.site()
    path = "acme/alpah.py"
    data = lab.diff({path: "a\nb\nc\n"}, {path: "a\nB\nc\n"})
    lab.bundle("fix", {"acme": data})
    error, result = refusal(lab, site, "apply", "fix")
    assert error["bundle"] == "fix" and error["patch"] == "fix/acme-0001.patch"
    assert path in result.stderr
    assert "acme/alpha.py" in result.stderr, "the nearest name"


def test_an_unknown_bundle(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("sm120-fusion", {"acme": lab.edit(ALPHA)})
    for args in (("apply", "sm120-fuison"), ("show", "sm120-fuison"), ("diff", "sm120-fuison")):
        result = lab.run(site, *args, check=None)
        assert result.exit_code in (2, 3)
        assert "sm120-fuison" in result.stderr and "sm120-fusion" in result.stderr
        assert "hint:" in result.stderr


def test_a_bundle_that_is_not_applied(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("fix", {"acme": lab.edit(ALPHA)})
    lab.bundle("other", {"acme": lab.edit(BETA)})
    lab.run(site, "apply", "fix")
    result = lab.run(site, "revert", "fxi", check=None)
    assert result.exit_code in (2, 3)
    assert "fxi" in result.stderr and "fix" in result.stderr.replace("fxi", "")
    result = lab.run(site, "revert", "other", check=None)
    assert result.exit_code in (0, 3)
    assert "other" in result.stdout + result.stderr


def test_a_release_that_no_variant_fits(lab: Lab) -> None:
    """The installed release and the ranges on offer."""
    site = lab.site()
    variants = [
        {"versions": ">=2,<3", "strip": 1, "patches": ["fix/acme-0001.patch"]},
        {"versions": ">=3,<4", "strip": 1, "patches": ["fix/acme-0001.patch"]},
    ]
    lab.patch_file("fix/acme-0001.patch", lab.edit(ALPHA))
    lab.bundle("fix", target=[{"distribution": "acme", "variant": variants}])
    error, result = refusal(lab, site, "apply", "fix")
    assert error["bundle"] == "fix"
    for word in ("acme", "1.0", ">=2,<3", ">=3,<4"):
        assert word in result.stderr


def test_a_distribution_that_is_not_installed(lab: Lab) -> None:
    site = lab.site(ACME)
    lab.bundle("fix", {"bolt-kernels": lab.edit(DELTA)})
    error, result = refusal(lab, site, "apply", "fix")
    assert error["bundle"] == "fix"
    assert "bolt-kernels" in result.stderr and str(site.root) in result.stderr


def test_an_assertion_that_fails(lab: Lab) -> None:
    site = lab.site()
    assertion = {
        "distribution": "acme",
        "file": ALPHA[0],
        "pattern": "second_3 = 1030",
        "within": "second",
        "count": 2,
        "message": "the gate is not open twice",
    }
    lab.bundle("fix", {"acme": lab.edit(ALPHA)}, assert_=[assertion])
    error, result = refusal(lab, site, "apply", "fix")
    assert error["bundle"] == "fix" and error["file"] == ALPHA[0]
    for word in ("the gate is not open twice", "second_3 = 1030", "2", "1"):
        assert word in result.stderr


def test_drift(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("fix", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "fix")
    (site / ALPHA[0]).write_text("mine = 1\n")
    error, result = refusal(lab, site, "revert", "--all")
    assert error["file"] == ALPHA[0]
    assert "fix" in result.stderr, "the bundle that owns the file"


def test_a_conflict_of_two_bundles(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)}, conflicts=["two"])
    lab.bundle("two", {"acme": lab.edit(BETA)})
    error, result = refusal(lab, site, "apply", "one", "two")
    assert "one" in result.stderr and "two" in result.stderr
    assert "conflict" in error["code"]
    lab.run(site, "apply", "two")
    _, result = refusal(lab, site, "apply", "one")
    assert "patchkit revert two" in result.stderr


def test_two_bundles_that_change_the_same_line(lab: Lab) -> None:
    """The refused one and the applied one that changed the line first."""
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    lab.bundle("two", {"acme": lab.edit((ALPHA[0], ALPHA[1], "    second_3 = 4711\n"))})
    lab.run(site, "apply", "one")
    error, result = refusal(lab, site, "apply", "two")
    assert error["bundle"] == "two" and error["file"] == ALPHA[0]
    assert "one" in result.stderr


def test_a_patch_that_was_edited_after_its_lock(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("fix", {"acme": lab.edit(ALPHA, BETA)})
    lab.run(site, "lint", "--update-lock", "fix", check=None)
    path = lab.bundles / "patches/fix/acme-0001.patch"
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"diff --git a/acme/beta.py")])
    error, result = refusal(lab, site, "apply", "fix")
    assert error["bundle"] == "fix" and error["patch"] == "fix/acme-0001.patch"
    assert "--update-lock" in result.stderr


def test_line_ends_converted_on_the_way_are_guessed(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("fix", {"acme": lab.edit(ALPHA)})
    lab.run(site, "lint", "--update-lock", "fix", check=None)
    path = lab.bundles / "patches/fix/acme-0001.patch"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    _, result = refusal(lab, site, "apply", "fix")
    assert re.search(r"line end|CRLF", result.stderr), result.stderr


def test_a_manifest_with_an_unknown_key(lab: Lab) -> None:
    """The nearest known key, and the place."""
    site = lab.site()
    path = lab.bundle("fix", {"acme": lab.edit(ALPHA)}, sumary="typo")
    _, result = refusal(lab, site, "apply", "fix")
    assert "sumary" in result.stderr and "summary" in result.stderr
    assert path.name in result.stderr


def test_a_manifest_that_is_no_toml(lab: Lab) -> None:
    site = lab.site()
    path = lab.bundle("fix", {"acme": lab.edit(ALPHA)})
    path.write_text(path.read_text() + "\nbroken = [1, 2\n")
    _, result = refusal(lab, site, "apply", "fix")
    assert path.name in result.stderr
    assert re.search(r"line \d+", result.stderr)


def test_all_problems_of_a_manifest_at_once(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("fix", {"acme": lab.edit(ALPHA)}, version="not a version", sumary="x", conflict=[])
    _, result = refusal(lab, site, "apply", "fix")
    for word in ("not a version", "sumary", "conflict"):
        assert word in result.stderr


def test_a_patch_that_is_not_there(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("fix", {"acme": lab.edit(ALPHA)})
    (lab.bundles / "patches/fix/acme-0001.patch").unlink()
    error, _ = refusal(lab, site, "apply", "fix")
    assert error["bundle"] == "fix" and error["patch"] == "fix/acme-0001.patch"


def test_an_environment_that_is_not_there(lab: Lab) -> None:
    for option in ("--python", "--root"):
        result = lab.cli(option, lab.base / "nowhere", "status", check=None)
        assert result.exit_code in (2, 3)
        assert "nowhere" in result.stderr and "hint:" in result.stderr


def test_a_bundles_folder_that_is_none(lab: Lab) -> None:
    site = lab.site()
    result = lab.cli(*site.where, "--bundles", lab.base / "nowhere", "list", check=None)
    assert result.exit_code in (2, 3)
    assert "nowhere" in result.stderr and "hint:" in result.stderr


@pytest.mark.parametrize("bad", [b"\xff\xfe", "caf\N{LATIN SMALL LETTER E WITH ACUTE}".encode()])
def test_odd_bytes_in_a_message_do_not_break_it(lab: Lab, bad: bytes) -> None:
    """The expected line is not text, and the terminal is not UTF-8."""
    site = lab.site()
    data = hand_made(lab, "    second_3 = 'X'\n", "    second_3 = 'Y'\n")
    lab.bundle("fix", {"acme": data.replace(b"'X'", b"'" + bad + b"'")})
    for env in ({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8"}):
        result = lab.run(site, "apply", "fix", check=3, env=env)
        assert "hunk 1" in result.stderr
        assert "Traceback" not in result.stderr
    answer = lab.json(site, "apply", "fix", check=3)
    assert answer["error"]["hunk"] == 1


def test_control_characters_do_not_reach_the_terminal(lab: Lab) -> None:
    """A patch must not be able to clear the screen or to set a title."""
    site = lab.site()
    data = hand_made(lab, "    second_3 = 'X'\n", "    second_3 = 'Y'\n")
    lab.bundle("fix", {"acme": data.replace(b"'X'", b"'\x1b]0;evil\x07\x1b[2J'")})
    result = lab.run(site, "apply", "fix", check=3)
    assert "\x1b" not in result.stderr
