"""``edit`` and ``refresh``, ``fold``, ``split``, ``rename`` and ``delete``."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import Cli, MakeVenv
from tests.releases import ROOT
from tests.support.lab import ACME, ALPHA, BETA, GAMMA, Lab, Site, changed

pytest_plugins = ("tests.support.fixtures",)


#: The calls by which patchkit puts a file in its place.
RENAMES = "rename,renameat,renameat2"


def digests(lab: Lab) -> dict[str, str]:
    """Every file of the bundle directory, but for the work trees."""
    return {
        str(path.relative_to(lab.bundles)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(lab.bundles.rglob("*"))
        if path.is_file() and ".edit" not in path.parts
    }


def series(lab: Lab) -> list[str]:
    return sorted(p.name for p in (lab.bundles / "patches/mine").rglob("*.patch"))


@pytest.fixture
def site(lab: Lab) -> Site:
    """An environment, and a bundle of three patches: alpha; beta and gamma; alpha again."""
    made = lab.site(ACME)
    for path, expression, subject in (
        (ALPHA[0], "s/second_3 = 103$/second_3 = 1030/", "Make second faster"),
        (BETA[0], "s/two_3 = 103$/two_3 = 1030/", "Make two faster"),
        (ALPHA[0], "s/third_3 = 203$/third_3 = 2030/", "Make third faster"),
    ):
        lab.run(made, "sed", "mine", path, expression, "-m", subject)
    manifest = lab.bundles / "manifests/mine.toml"
    text = manifest.read_text()
    # What a person wrote must be there afterwards.
    text = text.replace("[[target]]", "# why this one\n[[target]]")
    manifest.write_text(text + "\n# the end\n")
    lab.run(made, "lint", "mine", "--update-lock")
    return made


def holds(lab: Lab, site: Site, *lines: str) -> None:
    """It lints without a word, goes on, is verified, and leaves these lines."""
    assert lab.json(site, "lint", "mine")["problems"] == []
    text = (lab.bundles / "manifests/mine.toml").read_text()
    assert "# why this one\n[[target]]" in text and text.count("# the end") == 1
    lab.run(site, "apply", "mine")
    lab.run(site, "verify", "mine")
    whole = site.text(ALPHA[0]) + site.text(BETA[0]) + site.text(GAMMA[0])
    assert [line for line in lines if line not in whole] == []
    lab.run(site, "revert", "--all")


def test_what_was_not_touched_comes_back_byte_for_byte(lab: Lab, site: Site) -> None:
    before = digests(lab)
    tree = lab.json(site, "edit", "mine", "--no-shell")["work_tree"]
    log = lab.git(Path(tree), "log", "--format=%s", "--reverse").splitlines()
    assert log[1:] == ["Make second faster", "Make two faster", "Make third faster"]
    data = lab.json(site, "refresh", "mine")
    assert [one["state"] for one in data["series"]] == ["same"] * 3
    assert data["written"] == [] and digests(lab) == before
    # A shell is started there on a terminal alone; an editor where it is asked for.
    lab.run(site, "edit", "mine", "--editor", env={"EDITOR": "touch --", "VISUAL": None})
    lab.git(Path(tree), "commit", "-q", "--allow-empty", "-m", "Nothing at all")
    emptied = lab.run(site, "refresh", "mine")
    assert "left out: Nothing at all" in emptied.stderr and digests(lab) == before
    gone = lab.json(site, "edit", "mine", "--discard")
    assert gone["work_tree"] is None and not os.path.exists(os.path.dirname(tree))
    assert digests(lab) == before


def test_commits_are_written_back_as_patches(lab: Lab, site: Site) -> None:
    """The second is amended under a rebase, one is added, and the first stays."""
    before = digests(lab)
    tree = Path(lab.json(site, "edit", "mine", "--no-shell", "--file", GAMMA[0])["work_tree"])
    beta, gamma = tree / BETA[0], tree / GAMMA[0]
    lab.git(tree, "checkout", "-q", "HEAD~1")
    beta.write_text(beta.read_text().replace("two_3 = 1030", "two_3 = 4711"))
    not_committed = lab.run(site, "refresh", "mine", check=3)
    assert "that are in no commit" in not_committed.stderr
    lab.git(tree, "commit", "-qa", "--amend", "--no-edit")
    lab.git(tree, "cherry-pick", "patchkit")
    gamma.write_text(changed(gamma.read_text(), *GAMMA[1:]))
    lab.git(tree, "commit", "-qam", "Make green faster\n\nIt is about time.")
    planned = lab.json(site, "refresh", "mine", "--dry-run")
    assert digests(lab) == before
    data = lab.json(site, "refresh", "mine")
    assert data["series"] == planned["series"]
    assert [one["state"] for one in data["series"]] == ["same", "changed", "same", "new"]
    after = digests(lab)
    (first, second, third) = [p for p in before if p.endswith(".patch")]
    assert (after[first], after[third]) == (before[first], before[third])
    assert after[second] != before[second]
    new = (lab.bundles / data["series"][3]["path"].replace("mine/", "patches/mine/", 1)).read_text()
    assert new.startswith("Description: Make green faster\n It is about time.\nOrigin: ")
    assert "\nAuthor: A U Thor <author@example.org>\n" in new
    holds(lab, site, "second_3 = 1030", "two_3 = 4711", "third_3 = 2030", "green_3 = 1030")
    again = lab.json(site, "refresh", "mine")
    assert [one["state"] for one in again["series"]] == ["same"] * 4
    (lab.bundles / second).write_text("")
    stale = lab.run(site, "refresh", "mine", check=3)
    assert "edit --discard" in stale.stderr


def test_discard_says_what_goes_with_the_work_tree(lab: Lab, site: Site) -> None:
    tree = Path(lab.json(site, "edit", "mine", "--no-shell")["work_tree"])
    nothing: dict[str, list[str]] = {"commits": [], "changes": []}
    assert lab.json(site, "edit", "mine", "--discard", "--dry-run")["discarded"] == nothing
    alpha, beta = tree / ALPHA[0], tree / BETA[0]
    alpha.write_text(alpha.read_text().replace("second_3 = 1030", "second_3 = 1031"))
    lab.git(tree, "commit", "-qam", "Refreshed")
    lab.run(site, "refresh", "mine")
    assert lab.json(site, "edit", "mine", "--discard", "--dry-run")["discarded"] == nothing
    alpha.write_text(alpha.read_text().replace("second_3 = 1031", "second_3 = 1032"))
    lab.git(tree, "commit", "-qam", "Not refreshed")
    beta.write_text("")
    planned = lab.run(site, "edit", "mine", "--discard", "--dry-run")
    assert "would go" in planned.stderr and tree.is_dir()
    data = lab.json(site, "edit", "mine", "--discard")
    assert [one.partition(" ")[2] for one in data["discarded"]["commits"]] == ["Not refreshed"]
    assert data["discarded"]["changes"] == [BETA[0]]
    assert not tree.exists()


def test_what_does_not_parse_any_more_is_said(lab: Lab, site: Site) -> None:
    tree = Path(lab.json(site, "edit", "mine", "--no-shell")["work_tree"])
    alpha = tree / ALPHA[0]
    alpha.write_text(alpha.read_text().replace("second_3 = 1030", "second_3 = (1030"))
    lab.git(tree, "commit", "-qam", "Half a thought")
    said = lab.run(site, "refresh", "mine").stderr
    assert f"{ALPHA[0]} does not parse as Python with this change: line " in said
    alpha.write_text(alpha.read_text().replace("(1030", "(1030)"))
    lab.git(tree, "commit", "-qam", "The other half")
    assert "does not parse" not in lab.run(site, "refresh", "mine").stderr


def test_fold_and_split_undo_each_other(lab: Lab, site: Site) -> None:
    first, second, third = series(lab)
    planned = lab.json(site, "fold", "mine", "1", "2", "--dry-run")
    assert series(lab) == [first, second, third]
    lab.run(site, "fold", "mine", "1", second)
    assert planned["patches"] == [f"mine/acme-1.0/{first}", f"mine/acme-1.0/{third}"]
    assert series(lab) == [first, third]
    holds(lab, site, "second_3 = 1030", "two_3 = 1030", "third_3 = 2030")
    apart = lab.run(site, "split", "mine", "third", check=3)
    assert "would stay in one piece" in apart.stderr
    lab.run(site, "split", "mine", first, "--file", "*/beta.py")
    assert len(series(lab)) == 3
    holds(lab, site, "second_3 = 1030", "two_3 = 1030", "third_3 = 2030")
    far = lab.run(site, "fold", "mine", "1", "3", check=3)
    assert "do not follow each other" in far.stderr


def test_rename_and_delete_keep_manifest_and_lock_right(lab: Lab, site: Site) -> None:
    first, _, third = series(lab)
    lab.run(site, "rename", "mine", "2", "0002-better-name")
    assert series(lab) == [first, "0002-better-name.patch", third]
    taken = lab.run(site, "rename", "mine", "1", third, check=3)
    assert "already" in taken.stderr
    outside = lab.run(site, "rename", "mine", "1", "../../x", check=2)
    assert "no file name" in outside.stderr
    holds(lab, site, "second_3 = 1030", "two_3 = 1030", "third_3 = 2030")
    unknown = lab.run(site, "delete", "mine", "faster", check=3)
    assert "may be several patches" in unknown.stderr and first in unknown.stderr
    gone = lab.run(site, "delete", "mine", "better")
    assert "an assertion is dropped" in gone.stderr
    assert series(lab) == [first, third]
    holds(lab, site, "second_3 = 1030", "two_3 = 103\n", "third_3 = 2030")
    last = lab.run(site, "delete", "mine", "1", "3", check=3)
    assert "no patch would be left" in last.stderr


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(lab: Lab, site: Site) -> None:
    before = digests(lab)
    for words in (("rename", "mine", "2", "0002-new"), ("fold", "mine", "1", "2")):
        said = lab.run(site, *words, "--dry-run").stdout
        assert "would write " in said and "would remove " in said
        assert "wrote" not in said and "removed" not in said
    assert digests(lab) == before


def test_a_place_that_means_another_file_in_another_variant_is_not_renamed(
    lab: Lab, site: Site
) -> None:
    """The first patch of the oldest release is not the first of the installed one."""
    path = lab.bundles / "manifests/mine.toml"
    text = path.read_text()
    first, second, third = series(lab)
    folder = "mine/acme-1.0"
    old = f'[[target.variant]]\nversions = "<1"\nstrip = 1\npatches = ["{folder}/{second}"]\n'
    path.write_text(text.replace("[[target.variant]]", old + "[[target.variant]]", 1))
    before = digests(lab)
    refused = lab.run(site, "rename", "mine", "1", "0001-new", check=3)
    assert "may be several patches" in refused.stderr
    assert f"{folder}/{first}" in refused.stderr and f"{folder}/{second}" in refused.stderr
    assert digests(lab) == before
    lab.run(site, "rename", "mine", f"{folder}/{first}", "0001-new")
    assert series(lab) == ["0001-new.patch", second, third]
    lab.run(site, "rename", "mine", "two", "0002-new")
    assert series(lab) == ["0001-new.patch", "0002-new.patch", third]


def test_a_patch_that_others_build_on_is_not_deleted(lab: Lab, site: Site) -> None:
    lab.run(site, "sed", "mine", ALPHA[0], "s/second_3 = 1030/second_3 = 1/", "-m", "On top")
    before = digests(lab)
    refused = lab.run(site, "delete", "mine", "1", check=3)
    assert "builds on what is to be deleted" in refused.stderr
    assert digests(lab) == before


@pytest.mark.parametrize(
    "command",
    [
        ("delete", "mine", "2"),
        ("rename", "mine", "2", "0002-better"),
        ("fold", "mine", "1", "2"),
        ("refresh", "mine"),
    ],
    ids=lambda command: str(command[0]),
)
def test_a_kill_leaves_the_old_series_or_the_new_one(
    command: tuple[str, ...], lab: Lab, site: Site, tmp_path: Path
) -> None:
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    if command[0] == "refresh":
        tree = Path(lab.json(site, "edit", "mine", "--no-shell")["work_tree"])
        beta = tree / BETA[0]
        beta.write_text(beta.read_text().replace("two_3 = 1030", "two_3 = 4711"))
        lab.git(tree, "commit", "-qam", "Make two slower")
    before = digests(lab)
    kept = tmp_path / "kept"
    shutil.copytree(lab.bundles, kept, symlinks=True)
    seen = []
    done = None
    for number in range(1, 20):
        shutil.rmtree(lab.bundles)
        shutil.copytree(kept, lab.bundles, symlinks=True)
        inject = f"inject={RENAMES}:signal=SIGKILL:when={number}"
        # Without -f: what git does in its scratch repository is not counted.
        prefix = ("strace", "-qq", "-o", "/dev/null", "-e", f"trace={RENAMES}", "-e", inject)
        done = lab.run(site, *command, check=None, prefix=prefix)
        assert lab.json(site, "lint", "mine")["problems"] == [], number
        now = {path: sha256 for path, sha256 in digests(lab).items() if ".writing" not in path}
        seen.append(now)
        if command[0] == "refresh" and now != before:  # the work tree goes on from there
            lab.run(site, "refresh", "mine")
        if done.exit_code == 0:
            break
    after = seen[-1]
    assert done is not None and done.exit_code == 0 and len(seen) > 3 and after != before
    assert all(now in (before, after) for now in seen) and before in seen
    assert after in seen[:-1]


def test_a_shipped_bundle_with_two_releases_is_worked_on_in_a_copy(
    cli: Cli, make_venv: MakeVenv, tmp_path: Path
) -> None:
    """Another strip level, another variant beside it, comments: all stay as they are."""
    mine = tmp_path / "mine"
    for part in ("manifests", "patches"):
        (mine / part).mkdir(parents=True)
    shutil.copy(ROOT / "manifests/sm120-fusion.toml", mine / "manifests")
    shutil.copy(ROOT / "manifests/sm120-fusion.lock", mine / "manifests")
    shutil.copytree(ROOT / "patches/sm120-fusion", mine / "patches/sm120-fusion")
    venv = make_venv()
    where = ("--python", venv, "--bundles", mine)
    manifest = mine / "manifests/sm120-fusion.toml"
    before = {p: p.read_bytes() for p in sorted(mine.rglob("*")) if p.is_file()}
    release = ("--release", "sglang==0.5.9")
    cli(*where, "edit", "sm120-fusion", "--no-shell", *release)
    data = cli(*where, "--json", "refresh", "sm120-fusion").json
    assert {one["state"] for one in data["series"]} == {"same"}
    assert {p: p.read_bytes() for p in before} == before
    which = cli(*where, "fold", "sm120-fusion", "1", "2", check=3)
    assert "which distribution" in which.stderr
    cli(*where, "fold", "sm120-fusion", "1", "2", *release)
    old, new = before[manifest].decode().splitlines(), manifest.read_text().splitlines()
    assert [line for line in new if line not in old] == []
    assert [line.strip() for line in old if line not in new] == [
        '"sm120-fusion/sglang-0.5.9/0002-enable-the-fusion-on-sm120.patch",'
    ]
    folded = mine / "patches/sm120-fusion/sglang-0.5.9/0001-let-sm120-fuse-the-all-reduce.patch"
    assert "--- a/python/sglang/srt/" in folded.read_text()
    problems = cli(*where, "--json", "lint", "sm120-fusion").json["problems"]
    assert [one for one in problems if one["severity"] == "error"] == []
    cli(*where, "apply", "sm120-fusion")
    cli(*where, "verify", "sm120-fusion")
    shipped = cli("--python", venv, "fold", "sm120-fusion", "1", "2", *release, check=3)
    assert "name a bundle directory of your own" in shipped.stderr
