"""Bundles as manifests describe them: requires, conflicts, versions, variants, profiles."""

from __future__ import annotations

from typing import Any

import pytest

from tests import releases
from tests.support.lab import ACME, ALPHA, BETA, BOLT, DELTA, GAMMA, STATE, Lab, Site, plain
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)


def applied(lab: Lab, site: Site) -> list[str]:
    return [entry["name"] for entry in lab.json(site, "status")["applied"]]


# --- requires ----------------------------------------------------------------------------


def test_what_is_required_is_applied_first_and_in_its_order(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("top", {"acme": lab.edit(ALPHA)}, requires=["second", "first>=1"])
    lab.bundle("first", {"acme": lab.edit(BETA)}, version="1.2")
    lab.bundle("second", {"acme": lab.edit(GAMMA)}, requires=["deep"])
    lab.bundle("deep", {"bolt-kernels": lab.edit(DELTA)})
    before = site.picture()
    answer = lab.json(site, "apply", "top")
    assert applied(lab, site) == ["deep", "second", "first", "top"]
    assert answer["bundles"] == ["deep", "second", "first", "top"]
    lab.run(site, "verify", "top", "first", "second", "deep")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_a_patch_on_top_of_what_it_requires(lab: Lab) -> None:
    """The required bundle's change is the context of the other."""
    site = lab.site()
    text = str(ACME.files[ALPHA[0]])
    middle = text.replace(ALPHA[1], ALPHA[2])
    last = middle.replace(ALPHA[2], ALPHA[2] + "    second_35 = 1\n")
    lab.bundle("top", {"acme": lab.diff({ALPHA[0]: middle}, {ALPHA[0]: last})}, requires=["base"])
    lab.bundle("base", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "top")
    assert site.text(ALPHA[0]) == last


@pytest.mark.parametrize(
    ("requires", "words"),
    [
        (["nowhere"], ("nowhere",)),
        (["base>=2"], ("base", ">=2", "1.0.0")),
        (["base<1"], ("base", "<1")),
        (["top"], ("top",)),
        (["cycle"], ("cycle", "top")),
    ],
)
def test_what_cannot_be_had(lab: Lab, requires: list[str], words: tuple[str, ...]) -> None:
    site = lab.site()
    lab.bundle("top", {"acme": lab.edit(ALPHA)}, requires=requires)
    lab.bundle("base", {"acme": lab.edit(BETA)})
    lab.bundle("cycle", {"acme": lab.edit(GAMMA)}, requires=["top"])
    before = site.picture()
    result = lab.run(site, "apply", "top", check=3)
    for word in words:
        assert word in result.stderr
    assert site.differences(before) == []


def test_a_required_bundle_that_is_applied_at_another_version(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("base", {"acme": lab.edit(BETA)}, version="1.0")
    lab.run(site, "apply", "base")
    lab.bundle("base", {"acme": lab.edit(BETA)}, version="2.0")
    lab.bundle("top", {"acme": lab.edit(ALPHA)}, requires=["base>=2"])
    result = lab.run(site, "apply", "top", check=None)
    if result.exit_code == 0:
        versions = {e["name"]: e["version"] for e in lab.json(site, "status")["applied"]}
        assert versions["base"] == "2.0"
    else:
        assert result.exit_code == 3
        assert "base" in result.stderr and "hint:" in result.stderr


def test_what_others_require_is_not_reverted_alone(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("base", {"acme": lab.edit(BETA)})
    lab.bundle("top", {"acme": lab.edit(ALPHA)}, requires=["base"])
    lab.run(site, "apply", "top")
    before = site.picture()
    result = lab.run(site, "revert", "base", check=3)
    assert "top" in result.stderr and "hint:" in result.stderr
    assert site.differences(before) == []
    lab.run(site, "revert", "base", "top")
    assert applied(lab, site) == []


def test_what_was_required_stays_when_the_other_goes(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("base", {"acme": lab.edit(BETA)})
    lab.bundle("top", {"acme": lab.edit(ALPHA)}, requires=["base"])
    lab.run(site, "apply", "top")
    lab.run(site, "revert", "top")
    assert applied(lab, site) == ["base"]
    lab.run(site, "verify", "base")


# --- conflicts ---------------------------------------------------------------------------


def test_conflicts_hold_both_ways(lab: Lab) -> None:
    """Whichever of the two names the other, and whichever is there first."""
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)}, conflicts=["two"])
    lab.bundle("two", {"acme": lab.edit(BETA)})
    for first, second in (("one", "two"), ("two", "one")):
        lab.run(site, "apply", first)
        before = site.picture()
        result = lab.run(site, "apply", second, check=3)
        assert first in result.stderr and second in result.stderr
        assert site.differences(before) == []
        lab.run(site, "revert", "--all")
    lab.run(site, "apply", "one", "two", check=3)
    assert not (site / STATE).exists()


def test_a_conflict_with_what_another_requires(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)}, conflicts=["base"])
    lab.bundle("base", {"acme": lab.edit(GAMMA)})
    lab.bundle("top", {"acme": lab.edit(BETA)}, requires=["base"])
    lab.run(site, "apply", "one", "top", check=3)
    assert not (site / STATE).exists()


def test_a_conflict_is_known_when_the_bundle_folder_is_not(lab: Lab) -> None:
    """The applied bundle said so when it was applied."""
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)}, conflicts=["two"])
    lab.run(site, "apply", "one")
    (lab.bundles / "manifests/one.toml").unlink()
    lab.bundle("two", {"acme": lab.edit(BETA)})
    lab.run(site, "apply", "two", check=3)


# --- versions of a bundle ----------------------------------------------------------------


def test_an_upgrade(lab: Lab) -> None:
    """Applying a name again takes what the folder has now, in one transaction."""
    site = lab.site()
    before = site.picture()
    lab.bundle("b", {"acme": lab.edit(ALPHA, BETA)}, version="1.0")
    lab.run(site, "apply", "b")
    lab.bundle("b", {"acme": lab.edit(ALPHA, GAMMA)}, version="1.1")
    answer = lab.json(site, "apply", "b")
    assert {file["path"] for file in answer["files"]} == {BETA[0], GAMMA[0]}
    entries = lab.json(site, "status")["applied"]
    assert [(e["name"], e["version"]) for e in entries] == [("b", "1.1")]
    assert BETA[1] in site.text(BETA[0]) and GAMMA[2] in site.text(GAMMA[0])
    assert site.picture()[BETA[0]] == before[BETA[0]], "the same inode and time again"
    lab.run(site, "verify", "b")
    lab.run(site, "revert", "b")
    assert site.differences(before) == []


def test_an_upgrade_below_another_bundle(lab: Lab) -> None:
    """Its place in the order stays; what lies on top is computed anew."""
    site = lab.site()
    other = ("acme/alpha.py", "    third_3 = 203\n", "    third_3 = 2030\n")
    lab.bundle("low", {"acme": lab.edit(ALPHA)}, version="1.0")
    lab.bundle("high", {"acme": lab.edit(other)})
    lab.run(site, "apply", "low", "high")
    longer = (ALPHA[0], ALPHA[1], "    second_3 = 1\n    second_31 = 2\n    second_32 = 3\n")
    lab.bundle("low", {"acme": lab.edit(longer)}, version="2.0")
    lab.run(site, "apply", "low")
    assert applied(lab, site) == ["low", "high"]
    text = str(ACME.files[ALPHA[0]])
    expected = text.replace(longer[1], longer[2]).replace(other[1], other[2])
    assert site.text(ALPHA[0]) == expected


def test_an_upgrade_that_does_not_apply_keeps_the_old_one(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA)}, version="1.0")
    lab.run(site, "apply", "b")
    wrong = lab.edit(BETA).replace(b"-    two_3 = 103\n", b"-    two_3 = 9\n")
    lab.bundle("b", {"acme": wrong}, version="1.1")
    before = site.picture()
    lab.run(site, "apply", "b", check=3)
    assert site.differences(before) == []
    lab.run(site, "verify", "b")


def test_a_changed_patch_under_the_same_version(lab: Lab) -> None:
    """Not the same bundle: taken or refused, but never "already so"."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "b")
    lab.bundle("b", {"acme": lab.edit((ALPHA[0], ALPHA[1], "    second_3 = 4711\n"))})
    result = lab.run(site, "apply", "b", check=None)
    if result.exit_code == 0:
        assert "second_3 = 4711" in site.text(ALPHA[0])
        lab.run(site, "verify", "b")
    else:
        assert result.exit_code == 3


def test_verify_with_a_newer_bundle_on_offer(lab: Lab) -> None:
    """The applied one is what is verified; a newer one in the folder is no drift."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA)}, version="1.0")
    lab.run(site, "apply", "b")
    lab.bundle("b", {"acme": lab.edit(BETA)}, version="9.0")
    lab.run(site, "verify", "b")
    assert applied(lab, site) == ["b"]


# --- variants ----------------------------------------------------------------------------


def variants(lab: Lab, *ranges: tuple[str, Any], required: bool = True) -> None:
    """A bundle of acme with a variant for each range: an edit, or an upstream note."""
    made: list[dict[str, Any]] = []
    for number, (versions, what) in enumerate(ranges):
        if isinstance(what, str):
            made.append({"versions": versions, "upstream": what})
        else:
            file = f"b/acme-{number}.patch"
            lab.patch_file(file, lab.edit(what))
            made.append({"versions": versions, "strip": 1, "patches": [file]})
    lab.bundle(
        "b",
        target=[{"distribution": "acme", "required": required, "variant": made}],
    )


def test_the_variant_of_the_installed_release(lab: Lab) -> None:
    variants(lab, ("<1", ALPHA), (">=1,<2", BETA), (">=2", "merged upstream"))
    for version, path in (("0.9", ALPHA), ("1.0.post1", BETA), ("1.5.dev3+local", BETA)):
        site = lab.site(Dist("acme", version, ACME.files))
        lab.run(site, "apply", "b")
        assert releases.record_problems(site.root, unlisted=False) == [f"{path[0]}: changed"]
        (entry,) = lab.json(site, "status")["applied"]
        assert entry["variant"]


def test_a_release_that_needs_no_patch(lab: Lab) -> None:
    """Applying is fine and changes no file; ``show`` says why."""
    variants(lab, ("<1", ALPHA), (">=1", "merged upstream in 1.0, #17"))
    site = lab.site()
    lab.run(site, "apply", "b")
    assert releases.record_problems(site.root, unlisted=False) == []
    listed = {entry["name"]: entry for entry in lab.json(site, "list")["bundles"]}
    assert "upstream" in str(listed["b"]) or listed["b"]["state"] == "applied"
    assert "merged upstream in 1.0, #17" in plain(lab.run(site, "show", "b").stdout)
    lab.run(site, "verify", "b")
    lab.run(site, "revert", "--all")
    assert not (site / STATE).exists()


def test_two_matching_variants_are_an_error(lab: Lab) -> None:
    variants(lab, (">=1", ALPHA), ("<3", BETA))
    site = lab.site()
    before = site.picture()
    result = lab.run(site, "apply", "b", check=3)
    assert ">=1" in result.stderr and "<3" in result.stderr
    assert site.differences(before) == []


def test_prereleases_follow_pep_440(lab: Lab) -> None:
    """``1.0rc1`` comes before ``1.0`` and is installed: it must match ``<1`` or ``>=0.9``."""
    variants(lab, (">=0.9,<1.0", ALPHA), (">=1.0", BETA))
    site = lab.site(Dist("acme", "1.0rc1", ACME.files))
    result = lab.run(site, "apply", "b", check=None)
    assert result.exit_code in (0, 3)
    assert BETA[1] in site.text(BETA[0])


def test_a_target_that_is_not_required(lab: Lab) -> None:
    lab.patch_file("b/bolt.patch", lab.edit(DELTA))
    bolt = {
        "distribution": "bolt-kernels",
        "required": False,
        "variant": [{"versions": ">=0", "strip": 1, "patches": ["b/bolt.patch"]}],
    }
    lab.bundle("b", {"acme": lab.edit(ALPHA)}, target=[bolt])
    alone, both = lab.site(ACME), lab.site(ACME, BOLT)
    before = alone.picture()
    lab.run(alone, "apply", "b")
    lab.run(alone, "verify", "b")
    lab.run(alone, "revert", "--all")
    assert alone.differences(before) == []
    lab.run(both, "apply", "b")
    assert DELTA[2] in both.text(DELTA[0])


def test_a_target_that_is_not_required_at_an_unknown_release(lab: Lab) -> None:
    """``required = false`` is about not installed, not about a release that no variant fits."""
    lab.patch_file("b/bolt.patch", lab.edit(DELTA))
    bolt = {
        "distribution": "bolt-kernels",
        "required": False,
        "variant": [{"versions": ">=9", "strip": 1, "patches": ["b/bolt.patch"]}],
    }
    lab.bundle("b", {"acme": lab.edit(ALPHA)}, target=[bolt])
    result = lab.run(lab.site(), "apply", "b", check=3)
    assert "bolt-kernels" in result.stderr and "2.1" in result.stderr


# --- profiles ----------------------------------------------------------------------------


def profile(lab: Lab, **more: Any) -> None:
    lab.bundle(
        "p",
        profile={
            "env": {"NCCL_ALGO": "Ring", "SPACED": "a b"},
            "args": ["--old-flag", "128"],
            "variant": [
                {"distribution": "acme", "versions": ">=2", "args": ["--never"]},
                {"distribution": "acme", "versions": ">=1", "args": ["--new-flag", "128"]},
                {"distribution": "acme", "versions": ">=0", "args": ["--too-late"]},
            ],
        },
        **more,
    )


def test_a_profile_without_patches(lab: Lab) -> None:
    site = lab.site()
    profile(lab)
    before = site.picture()
    lab.run(site, "apply", "p")
    left = releases.changed_paths(before, site.picture())
    assert all(path.startswith(STATE) for path in left)
    (entry,) = lab.json(site, "status")["applied"]
    assert entry["env"] == {"NCCL_ALGO": "Ring", "SPACED": "a b"}
    assert entry["args"] == ["--new-flag", "128"], "the first match replaces"
    text = lab.run(site, "status").stdout
    assert "NCCL_ALGO=Ring" in text and "--new-flag" in text
    lab.run(site, "verify", "p")
    lab.run(site, "revert", "p")
    assert site.differences(before) == []


def test_the_profile_of_the_installed_release(lab: Lab) -> None:
    profile(lab)
    for version, flag in (("0.5", "--too-late"), ("1.0", "--new-flag"), ("2.5", "--never")):
        site = lab.site(Dist("acme", version, ACME.files))
        shown = lab.json(site, "show", "p")["bundle"]["profile"]
        assert shown["args"][0] == flag
        assert shown["env"] == {"NCCL_ALGO": "Ring", "SPACED": "a b"}


# --- assertions --------------------------------------------------------------------------


JUDGED = {
    "acme/gate.py": (
        '"""is_open in a docstring."""\n'
        "from acme.helpers import is_new, is_old\n\n"
        "TABLE = {9: 1, 10: 2}\n"
        "_flag = is_new()\n\n\n"
        "def outer():\n    # is_open in a comment\n"
        "    if _flag or is_old():\n        return 'is_open in a string'\n    return None\n\n\n"
        "class Gate:\n    def check(self):\n        is_open = 1\n        return is_open\n"
    ),
    "acme/helpers.py": "def is_new():\n    return True\n\n\ndef is_old():\n    return False\n",
    "acme/__init__.py": "",
    "acme/notes.txt": "is_open\n# is_open\n",
}

TRUE: list[dict[str, Any]] = [
    {"pattern": "is_open", "count": 2},
    {"text": "is_open = 1", "count": 1},
    {"pattern": "is_open", "within": "Gate.check", "min": 2, "max": 2},
    {"pattern": "is_open", "within": "outer", "absent": True},
    {"pattern": "is_open", "in": "text", "count": 5},
    {"pattern": "nothing", "absent": True},
    {"pattern": "is_open", "file": "acme/notes.txt", "count": 2},
    {"text": "is.open", "absent": True},
    {"literal": {"name": "TABLE", "has": [9, 10]}},
    {"condition": {"test": "_flag or is_old()", "given": {"is_new()": True}, "is": True}},
    {
        "condition": {
            "test": "_flag or is_old()",
            "given": {"is_new()": False, "is_old()": False},
            "is": False,
        }
    },
    {"defined": ["is_new"]},
    {"pattern": "nothing", "count": 1, "versions": ">=2"},
]
FALSE: list[dict[str, Any]] = [
    {"pattern": "is_open", "count": 1},
    {"pattern": "docstring"},
    {"pattern": "comment"},
    {"pattern": "is_open", "within": "outer"},
    {"pattern": "is_open", "min": 3},
    {"pattern": "is_open", "max": 1},
    {"pattern": "is_open", "absent": True},
    {"pattern": "is_open", "within": "Gate.nowhere"},
    {"text": "is.open"},
    {"literal": {"name": "TABLE", "has": [12]}},
    {"literal": {"name": "NOWHERE", "has": [9]}},
    {"condition": {"test": "_flag or is_old()", "given": {"is_new()": False}, "is": True}},
    {"condition": {"test": "_flag or is_old()", "given": {}, "is": True}},
    {"condition": {"test": "_flag and is_old()", "given": {"is_new()": True}, "is": True}},
    {"defined": ["is_nowhere"]},
    {"pattern": "nothing", "count": 1, "versions": ">=1"},
    {"pattern": "is_open", "file": "acme/nowhere.py"},
]


@pytest.mark.parametrize("expected", [True, False])
def test_assertions(lab: Lab, expected: bool) -> None:
    """Each by itself, on files that no patch touches, through ``apply --dry-run``."""
    site = lab.site(Dist("acme", "1.0", JUDGED))
    wrong = []
    for assertion in TRUE if expected else FALSE:
        file = {"distribution": "acme", "file": "acme/gate.py", "message": "m", **assertion}
        lab.bundle("a", profile={"env": {"A": "1"}}, assert_=[file])
        code = lab.run(site, "apply", "--dry-run", "a", check=None).exit_code
        if code != (0 if expected else 3):
            wrong.append((code, assertion))
    assert wrong == []


def test_an_assertion_on_code_that_does_not_compile(lab: Lab) -> None:
    """A patch that breaks the syntax cannot be judged: refused, with the line."""
    site = lab.site()
    broken = (ALPHA[0], ALPHA[1], "    second_3 = (\n")
    assertion = {
        "distribution": "acme",
        "file": ALPHA[0],
        "pattern": r"second_3 = \(",
        "message": "m",
    }
    lab.bundle("a", {"acme": lab.edit(broken)}, assert_=[assertion])
    before = site.picture()
    result = lab.run(site, "apply", "a", check=3)
    assert ALPHA[0] in result.stderr
    assert site.differences(before) == []


# --- locks and lint ----------------------------------------------------------------------


def test_a_bundle_that_lint_likes(lab: Lab) -> None:
    site = lab.site()
    assertion = {"distribution": "acme", "file": ALPHA[0], "text": "1030", "message": "m"}
    dep3 = b"Description: what it does\nAuthor: somebody\n\n"
    lab.bundle("good", {"acme": dep3 + lab.edit(ALPHA)}, assert_=[assertion])
    before = lab.cli("--bundles", lab.bundles, "lint", check=1)
    assert "good.lock" in before.stdout + before.stderr
    lab.cli("--bundles", lab.bundles, "lint", "--update-lock", "good")
    assert (lab.bundles / "manifests/good.lock").exists()
    lab.cli("--bundles", lab.bundles, "lint")
    lab.run(site, "apply", "good")


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("surplus", "line"),
        ("unknown key", "summary"),
        ("no cache", "cache"),
        ("changed patch", "lock"),
        ("missing patch", "0001.patch"),
        ("stray patch", "stray.patch"),
        ("unknown requirement", "nowhere"),
        ("overlapping variants", "variant"),
    ],
)
def test_what_lint_finds(lab: Lab, what: str, word: str) -> None:
    manifest: dict[str, Any] = {}
    data = lab.edit(ALPHA)
    if what == "surplus":
        data += b"+surplus = 1\n"
    if what == "unknown key":
        manifest["sumary"] = "typo"
    if what == "unknown requirement":
        manifest["requires"] = ["nowhere"]
    if what == "no cache":
        kernel = ("bolt/data/csrc/kernel.cu", "// kernel 10\n", "// kernel ten\n")
        lab.bundle("b", {"bolt-kernels": lab.edit(kernel)})
    elif what == "overlapping variants":
        variants(lab, (">=1", ALPHA), ("<3", BETA))
    else:
        lab.bundle("b", {"acme": data}, **manifest)
    lab.cli("--bundles", lab.bundles, "lint", "--update-lock", check=None)
    patch = lab.bundles / "patches/b/acme-0001.patch"
    if what == "changed patch":
        patch.write_bytes(data + b"\n")
    if what == "missing patch":
        patch.unlink()
    if what == "stray patch":
        lab.patch_file("b/stray.patch", lab.edit(BETA))
    result = lab.cli("--bundles", lab.bundles, "lint", check=1)
    assert word in result.stdout + result.stderr, str(result)
    problems = lab.cli("--bundles", lab.bundles, "--json", "lint", check=1).json["problems"]
    assert problems


def test_a_patch_that_was_cut_off_is_refused(lab: Lab) -> None:
    """Between two files, where what is left is a valid patch."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA, BETA)})
    lab.cli("--bundles", lab.bundles, "lint", "--update-lock", check=None)
    path = lab.bundles / "patches/b/acme-0001.patch"
    data = path.read_bytes()
    for damaged in (data[: data.index(b"diff --git a/acme/beta")], data.replace(b"\n", b"\r\n")):
        path.write_bytes(damaged)
        before = site.picture()
        result = lab.run(site, "apply", "b", check=3)
        assert "b/acme-0001.patch" in result.stderr and "hint:" in result.stderr
        assert site.differences(before) == []
