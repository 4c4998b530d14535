"""Which variant fits, by version and by bytes together; and a release that needs none."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from patchkit.fit import fit_variant, nearest
from patchkit.manifest import parse_manifest, render_lock
from patchkit.model import Bundle, Pristine, Target, Variant
from tests import releases
from tests.conftest import Cli, Installed
from tests.support.lab import ACME, ALPHA, BETA, STATE, Lab, Site
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)

NOTHING: dict[str, str] = {}
ONE = "a" * 64
TWO = "b" * 64


def made(*pristine: Pristine, variants: tuple[Variant, ...]) -> tuple[Bundle, Target]:
    target = Target("acme", variants)
    bundle = parse_manifest(b'schema = 1\nname = "b"\nversion = "1"\n', "b")
    return bundle._replace(targets=(target,), pristine=pristine), target


OLD, NEW = Variant("<1", ("b/old.patch",)), Variant(">=1,<2", ("b/new.patch",))
FILES = (
    Pristine("acme", "<1", ("0.8", "0.9"), (("acme/a.py", ONE),)),
    Pristine("acme", ">=1,<2", ("1.0",), (("acme/a.py", TWO), ("acme/b.py", TWO))),
)


@pytest.mark.parametrize(
    ("version", "holds", "expected"),
    [
        ("0.9", {"acme/a.py": ONE}, (OLD, "known", "0.9")),
        ("0.9.post1", {"acme/a.py": ONE}, (OLD, "known", "0.9")),
        ("0.9", {"acme/a.py": "c" * 64}, (OLD, "unproven", "0.9")),
        ("0.9", {}, (OLD, "unproven", "0.9")),
        ("7.0", {"acme/a.py": ONE}, (OLD, "bytes", "0.9")),
        ("not a version", {"acme/a.py": ONE}, (OLD, "bytes", "0.9")),
        ("0.9", {"acme/a.py": TWO, "acme/b.py": TWO}, (NEW, "bytes", "1.0")),
        ("7.0", {"acme/a.py": TWO}, None),
        ("7.0", {}, None),
    ],
)
def test_version_and_bytes_decide_together(
    version: str, holds: Mapping[str, str], expected: tuple[Variant, str, str] | None
) -> None:
    bundle, target = made(*FILES, variants=(OLD, NEW))
    fit = fit_variant(bundle, target, version, holds.get)
    assert (None if fit is None else tuple(fit)) == expected


def test_without_a_lock_the_version_decides() -> None:
    bundle, target = made(variants=(OLD, NEW))
    fit = fit_variant(bundle, target, "0.9", NOTHING.get)
    assert fit is not None and (fit.variant, fit.how) == (OLD, "version")


def test_the_nearest_variant_is_the_one_with_most_files_then_the_next_older() -> None:
    bundle, target = made(*FILES, variants=(OLD, NEW))
    by_files = nearest(bundle, target, "7.0", {"acme/a.py": TWO}.get)
    assert by_files is not None and (by_files.variant, by_files.same) == (NEW, 1)
    by_version = nearest(bundle, target, "0.95", NOTHING.get)
    assert by_version is not None and by_version.variant == OLD
    later = nearest(bundle, target, "3.0", NOTHING.get)
    assert later is not None and later.variant == NEW


def test_a_lock_keeps_what_the_variants_were_made_for() -> None:
    again = (
        Pristine("acme", "<1", ("0.9",), (("acme/a.py", ONE),)),
        Pristine("acme", "<1", ("0.8",), (("acme/a.py", ONE),)),
        FILES[1],
    )
    text = render_lock({"b/old.patch": ONE}, again)
    assert text == render_lock({"b/old.patch": ONE}, reversed(again))
    bundle = parse_manifest(b'schema = 1\nname = "b"\nversion = "1"\n', "b", text)
    assert bundle.pristine == FILES


# -- the command ------------------------------------------------------------------------


def bundle(lab: Lab, *ranges: tuple[str, Any], asserts: list[dict[str, Any]] | None = None) -> None:
    """A bundle ``b`` of acme with a variant for each range: an edit, or other keys."""
    variants: list[dict[str, Any]] = []
    for number, (versions, what) in enumerate(ranges):
        if isinstance(what, dict):
            variants.append({"versions": versions, **what})
        else:
            file = f"b/acme-{number}.patch"
            lab.patch_file(file, lab.edit(what))
            variants.append({"versions": versions, "strip": 1, "patches": [file]})
    lab.bundle("b", target=[{"distribution": "acme", "variant": variants}], assert_=asserts or [])


def locked_for(lab: Lab, site: Site) -> str:
    """The lock, written with an environment at hand."""
    lab.cli(*site.where, "--bundles", lab.bundles, "lint", "--update-lock", "b", check=None)
    return (lab.bundles / "manifests/b.lock").read_text()


def test_the_lock_says_which_release_a_variant_was_proven_on(lab: Lab) -> None:
    bundle(lab, (">=1,<2", ALPHA))
    site = lab.site()
    text = locked_for(lab, site)
    digest = hashlib.sha256((site / ALPHA[0]).read_bytes()).hexdigest()
    assert 'releases = ["1.0"]' in text
    assert f'"{ALPHA[0]}" = "{digest}"' in text
    # What was proven once stays, where that release is not at hand.
    lab.cli("--bundles", lab.bundles, "lint", "--update-lock", "b")
    assert (lab.bundles / "manifests/b.lock").read_text() == text


def test_an_applied_bundle_s_release_is_known_by_its_pristine_bytes(lab: Lab) -> None:
    bundle(lab, (">=1,<2", ALPHA))
    site = lab.site()
    before = locked_for(lab, site)
    lab.run(site, "apply", "b")
    assert locked_for(lab, site) == before


def test_a_lying_version_is_seen_through_by_the_bytes(lab: Lab) -> None:
    bundle(lab, ("<1", BETA), (">=1,<2", ALPHA))
    locked_for(lab, lab.site())
    nightly = lab.site(Dist("acme", "0.0.0.dev7", ACME.files))
    pristine = nightly.picture()
    shown = lab.json(nightly, "show", "b")["bundle"]["targets"][0]["variants"]
    assert [(one["fits"], one["how"]) for one in shown] == [(False, None), (True, "bytes")]
    told = lab.run(nightly, "show", "b")
    assert "fits     >=1,<2 (by its files, whatever the version says)" in told.stdout
    assert "its files are those of 1.0" in told.stderr
    done = lab.run(nightly, "apply", "b")
    assert "its files are those of 1.0" in done.stderr
    assert nightly.differences(pristine) != []
    assert releases.record_problems(nightly.root, unlisted=False) == [f"{ALPHA[0]}: changed"]
    lab.run(nightly, "verify", "b")
    lab.run(nightly, "apply", "b")
    lab.run(nightly, "revert", "--all")
    assert nightly.differences(pristine) == []


def test_assertions_for_a_release_are_judged_where_the_bytes_are_its(lab: Lab) -> None:
    wrong = {
        "distribution": "acme",
        "file": ALPHA[0],
        "text": "never there",
        "versions": "==1.0",
        "message": "asked of 1.0",
    }
    bundle(lab, (">=1,<2", ALPHA))
    locked_for(lab, lab.site())
    bundle(lab, (">=1,<2", ALPHA), asserts=[wrong])
    nightly = lab.site(Dist("acme", "9.9", ACME.files))
    assert "asked of 1.0" in lab.run(nightly, "apply", "b", check=3).stderr


def test_other_bytes_in_the_range_are_said_and_everything_must_hold(lab: Lab) -> None:
    bundle(lab, (">=1,<2", ALPHA))
    locked_for(lab, lab.site())
    files = {**ACME.files, ALPHA[0]: str(ACME.files[ALPHA[0]]) + "\n\ndef last():\n    return 1\n"}
    other = lab.site(Dist("acme", "1.1", files))
    listed = {row["name"]: row for row in lab.json(other, "list")["bundles"]}
    assert listed["b"]["fits"] == {"acme": "unproven"}
    assert "fits     >=1,<2 (by its version alone" in lab.run(other, "show", "b").stdout
    assert "made for other files" in lab.run(other, "apply", "b").stderr
    lab.run(other, "verify", "b")


def test_a_release_that_nothing_fits_is_refused_with_the_nearest(lab: Lab) -> None:
    bundle(lab, (">=1,<2", ALPHA))
    locked_for(lab, lab.site())
    files = {**ACME.files, ALPHA[0]: "other = 1\n"}
    done = lab.run(lab.site(Dist("acme", "2.5", files)), "apply", "b", check=3)
    assert "nearest variant: >=1,<2 (made for 1.0, 0 of 1 files are the same)" in done.stderr
    assert "patchkit port b --to-installed" in done.stderr


def test_a_lock_that_a_release_at_hand_contradicts_is_an_error(lab: Lab) -> None:
    bundle(lab, (">=1,<2", ALPHA))
    site = lab.site()
    text = locked_for(lab, site)
    digest = hashlib.sha256((site / ALPHA[0]).read_bytes()).hexdigest()
    (lab.bundles / "manifests/b.lock").write_text(text.replace(digest, "0" * 64))
    done = lab.cli(*site.where, "--bundles", lab.bundles, "lint", "b", "--json", check=1).json
    assert "lock-contradicted" in {problem["kind"] for problem in done["problems"]}


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('versions = ">=1,<2"', 'versions = ">=1,<3"', "no variant with patches"),
        ('releases = ["1.0"]', 'releases = ["1.0", "2.0"]', "2.0 is not in the range"),
        ('releases = ["1.0"]', "releases = []", "must not be empty"),
        ("[pristine.files]", "[pristine.more]", "unknown key"),
    ],
)
def test_a_lock_that_was_edited_is_an_error(lab: Lab, old: str, new: str, word: str) -> None:
    bundle(lab, (">=1,<2", ALPHA))
    text = locked_for(lab, lab.site())
    assert old in text
    (lab.bundles / "manifests/b.lock").write_text(text.replace(old, new))
    done = lab.cli("--bundles", lab.bundles, "lint", "b", check=1)
    assert word in done.stdout + done.stderr


# -- nothing to do ----------------------------------------------------------------------

HOLDS = {"distribution": "acme", "file": ALPHA[0], "pattern": "def second", "message": "m"}
FAILS = {"distribution": "acme", "file": ALPHA[0], "text": ALPHA[2].strip(), "message": "m"}


@pytest.mark.parametrize("versions", ["<1", ">=1"])
def test_what_the_pristine_release_does_already_is_left_alone(lab: Lab, versions: str) -> None:
    """In range or not: the assertions decide before anything else."""
    bundle(lab, (versions, ALPHA), asserts=[HOLDS])
    site = lab.site()
    before = site.picture()
    done = lab.json(site, "apply", "b")
    assert [one["name"] for one in done["upstream"]] == ["b"]
    assert (done["bundles"], done["files"]) == ([], [])
    assert site.differences(before) == []
    assert not (site / STATE).exists()
    listed = {row["name"]: row["state"] for row in lab.json(site, "list")["bundles"]}
    assert listed["b"] == "upstream"
    assert lab.run(site, "verify", "b").stdout == ""
    assert lab.run(site, "status").exit_code == 0


def test_one_assertion_that_fails_means_that_it_is_needed(lab: Lab) -> None:
    bundle(lab, (">=1", ALPHA), asserts=[HOLDS, FAILS])
    site = lab.site()
    assert lab.json(site, "apply", "b")["bundles"] == ["b"]
    lab.run(site, "verify", "b")


def test_a_file_that_no_assertion_looks_at_is_no_reason_to_skip(lab: Lab) -> None:
    lab.patch_file("b/0.patch", lab.edit(ALPHA, BETA))
    variant = {"versions": ">=1", "strip": 1, "patches": ["b/0.patch"]}
    lab.bundle("b", target=[{"distribution": "acme", "variant": [variant]}], assert_=[HOLDS])
    site = lab.site()
    assert len(lab.json(site, "apply", "b")["files"]) == 2


def test_a_variant_made_for_these_very_bytes_goes_on(lab: Lab) -> None:
    """Whoever made it had these files before them, and found the patch to be needed."""
    bundle(lab, (">=1", ALPHA), asserts=[FAILS])
    site = lab.site()
    locked_for(lab, site)
    weak = lab.bundles / "manifests/b.toml"
    weak.write_text(weak.read_text().replace(ALPHA[2].strip(), "def second"))
    assert lab.json(site, "apply", "b")["bundles"] == ["b"]
    found = lab.cli(*site.where, "--bundles", lab.bundles, "lint", "b", "--json").json
    assert "assertion-proves-nothing" in {problem["kind"] for problem in found["problems"]}


def test_a_hand_edit_does_not_make_a_bundle_upstream(lab: Lab) -> None:
    bundle(lab, (">=1", ALPHA), asserts=[FAILS])
    site = lab.site()
    file = site / ALPHA[0]
    text = file.read_text().replace(ALPHA[1], ALPHA[2])
    file.unlink()
    file.write_text(text)
    assert lab.run(site, "apply", "b", check=3).stderr
    assert lab.run(site, "verify", "b", check=1).stderr


def test_an_upstream_claim_that_the_code_denies_is_refused(lab: Lab) -> None:
    bundle(lab, (">=1", {"upstream": "merged in 1.0"}), asserts=[FAILS])
    site = lab.site()
    done = lab.run(site, "apply", "b", check=3)
    assert "is said to need no patch" in done.stderr
    lab.run(site, "verify", "b", check=1)
    listed = {row["name"]: row for row in lab.json(site, "list")["bundles"]}
    assert listed["b"]["state"] == "refused"


def test_where_there_is_nothing_to_patch_it_says_so(lab: Lab) -> None:
    gone = {"distribution": "acme", "file": ALPHA[0], "text": "gate", "absent": True}
    bundle(lab, ("<1", ALPHA), (">=1", {"unneeded": "the gate is gone"}), asserts=[gone])
    site = lab.site()
    done = lab.run(site, "apply", "b")
    assert "nothing to do: b (the gate is gone)" in done.stdout
    listed = {row["name"]: row for row in lab.json(site, "list")["bundles"]}
    assert listed["b"]["state"] == "unneeded"
    assert "the gate is gone" in lab.run(site, "show", "b").stdout
    lab.run(site, "verify", "b")


def test_what_is_upstream_is_no_obstacle_to_what_requires_it(lab: Lab) -> None:
    bundle(lab, (">=1", {"upstream": "merged"}), asserts=[HOLDS])
    lab.bundle("top", {"acme": lab.edit(BETA)}, requires=["b"])
    site = lab.site()
    assert lab.json(site, "apply", "top")["bundles"] == ["top"]
    lab.run(site, "verify", "top", "b")
    lab.run(site, "revert", "--all")


def test_an_upgrade_to_a_release_that_has_it_drops_the_record(lab: Lab) -> None:
    bundle(lab, ("<2", ALPHA), (">=2", {"upstream": "merged in 2"}))
    site = lab.site()
    lab.run(site, "apply", "b")
    info = next(site.root.glob("acme-*.dist-info"))
    newer = lab.site(Dist("acme", "2.0", ACME.files))
    shutil.rmtree(info)
    for path in [
        *map(Path, ACME.files),
        *(p.relative_to(newer.root) for p in newer.root.glob("acme-*/*")),
    ]:
        target = site.root / path
        target.unlink(missing_ok=True)
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(newer.root / path, target)
    lab.run(site, "verify", "b", check=1)
    assert lab.json(site, "apply", "b")["bundles"] == []
    assert not (site / STATE).exists()
    lab.run(site, "verify", "b")


# -- the real ones ----------------------------------------------------------------------


def test_the_shipped_variants_are_known_on_their_releases(installed: Installed, cli: Cli) -> None:
    root = installed()
    rows = {row["name"]: row for row in cli("--root", root, "--json", "list").json["bundles"]}
    for name in ("sm120-fusion", "pcie-custom-allreduce", "symm-mem-sm120"):
        assert set(rows[name]["fits"].values()) == {"known"}, rows[name]


def test_a_fork_of_a_real_release_is_known_by_its_bytes(
    installed: Installed, cli: Cli, tmp_path: Path
) -> None:
    root = installed()
    old = releases.dist_info(root, "sglang")
    new = root / "sglang-0.5.10.dev3+fork.dist-info"
    record = (old / "RECORD").read_text().replace(old.name, new.name)
    metadata = (old / "METADATA").read_text().replace("Version: 0.5.9", "Version: 0.5.10.dev3+fork")
    old.rename(new)
    (new / "RECORD").write_text(record)
    (new / "METADATA").write_text(metadata)
    before = releases.snapshot(root)
    done = cli("--root", root, "apply", "sm120-fusion")
    assert "its files are those of 0.5.9" in done.stderr
    cli("--root", root, "verify", "sm120-fusion")
    cli("--root", root, "revert", "--all")
    assert releases.diff_snapshots(before, releases.snapshot(root)) == []


def test_lint_proves_an_upstream_claim_by_the_code(lab: Lab) -> None:
    """By the releases at hand: one that denies it is an error, one that proves it is none."""
    bundle(lab, (">=1", {"upstream": "merged in 1.0"}), asserts=[FAILS])
    denied = lab.site()
    files = {**ACME.files, ALPHA[0]: str(ACME.files[ALPHA[0]]).replace(ALPHA[1], ALPHA[2])}
    proven = lab.site(Dist("acme", "1.0", files))
    for site, code in ((denied, 1), (proven, 0)):
        done = lab.cli(*site.where, "--bundles", lab.bundles, "lint", "b", "--json", check=code)
        kinds = {problem["kind"] for problem in done.json["problems"]}
        assert ("upstream-denied" in kinds) == bool(code)


@pytest.mark.parametrize(("versions", "said"), [(None, False), (">=2", False), ("<1", True)])
def test_lint_says_where_nothing_proves_an_upstream_claim(
    versions: str | None, said: bool, lab: Lab
) -> None:
    one = dict(HOLDS) if versions is None else {**HOLDS, "versions": versions}
    bundle(lab, ("<1", ALPHA), (">=1", {"upstream": "merged in 1.0"}), asserts=[one])
    lab.cli("--bundles", lab.bundles, "lint", "--update-lock", "b")
    done = lab.cli("--bundles", lab.bundles, "lint", "b", "--json").json
    assert ("unproven" in {problem["kind"] for problem in done["problems"]}) == said
