"""``new``, ``import`` and ``sed``: bundles from patches of others, and from substitutions."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.assertions import evaluate
from patchkit.authoring.suggest import blocks, suggestions
from patchkit.manifest import parse_manifest
from patchkit.patchfile import parse
from patchkit.writing.manifests import assertion_table
from tests.conftest import Cli, Git, MakeVenv
from tests.support.lab import ACME, ALPHA, BETA, GAMMA, Lab, changed, write_tree

pytest_plugins = ("tests.support.fixtures",)


@pytest.fixture
def upstream(lab: Lab) -> Path:
    """A source tree as upstream has it: the package below python/, tests and docs beside it."""
    folder = lab.folder("upstream")
    files = {f"python/{path}": content for path, content in ACME.files.items()}
    write_tree(folder, {**files, "test/test_alpha.py": "def test(): ...\n", "README.md": "acme\n"})
    lab.git(folder, "init", "-q")
    lab.git(folder, "add", "-A")
    lab.git(folder, "commit", "-q", "-m", "first")
    lab.git(folder, "tag", "v1.0")
    for (path, old, new), subject in zip(
        (ALPHA, BETA), ("[PR] Make second faster", "Make two faster"), strict=True
    ):
        file = folder / "python" / path
        file.write_text(changed(file.read_text(), old, new))
        (folder / "test/test_alpha.py").write_text(f"# {subject}\n")
        lab.git(folder, "commit", "-qa", "-m", f"{subject}\n\nIt was slow.\nNow it is not.")
    return folder


def patches(lab: Lab, name: str) -> list[str]:
    return [p.read_text() for p in sorted((lab.bundles / "patches" / name).rglob("*.patch"))]


def check(lab: Lab, name: str) -> None:
    """It lints, goes on, is verified, and its assertions fail on what was there before."""
    site = lab.site(ACME)
    assert lab.json(site, "lint", name)["problems"] == []
    bundle = parse_manifest((lab.bundles / f"manifests/{name}.toml").read_bytes(), name)
    assert bundle.asserts
    for one in bundle.asserts:
        assert not evaluate(one, (site / one.file).read_bytes(), lambda path: None).ok
    lab.run(site, "apply", name)
    lab.run(site, "verify", name)
    assert "second_3 = 1030" in site.text("acme/alpha.py")


@pytest.mark.parametrize("kind", ["range", "mailbox", "folder", "series", "mail"])
def test_every_kind_of_source_becomes_a_bundle(lab: Lab, upstream: Path, kind: str) -> None:
    source = lab.folder("source")
    if kind == "range":
        origin = f"{upstream}@v1.0..main"
    elif kind in ("mailbox", "mail"):
        commits = "v1.0..main" if kind == "mailbox" else "v1.0..main~1"
        text = lab.git(upstream, "format-patch", "--stdout", "--cover-letter", commits)
        (source / "123.patch").write_text(text)
        origin = str(source / "123.patch")
    else:
        lab.git(upstream, "format-patch", "-o", str(source), "v1.0..main")
        if kind == "series":
            first, second = sorted(source.iterdir())
            (source / "series").write_text(f"# quilt\n{second.name} -p1\n{first.name}\n")
        origin = str(source)
    site = lab.site(ACME)
    data = lab.json(site, "import", origin, "--name", "mine")
    assert {one["file"] for one in data["left_out"]} == {"test/test_alpha.py"}
    made = patches(lab, "mine")
    assert len(made) == (1 if kind == "mail" else 2)
    text = made[1 if kind == "series" else 0]
    assert text.startswith(
        "Description: Make second faster\n It was slow.\n Now it is not.\nOrigin: other, commit "
    )
    assert "\nAuthor: A U Thor <author@example.org>\n" in text
    assert "\nLast-Update: 20" in text
    assert "--- a/acme/alpha.py\n" in text and "test_alpha" not in text
    check(lab, "mine")


def test_a_series_is_joined_or_split_by_file(lab: Lab, upstream: Path) -> None:
    site = lab.site(ACME)
    origin = f"{upstream}@v1.0..main"
    lab.run(site, "import", origin, "--name", "joined", "--join")
    (one,) = patches(lab, "joined")
    assert "acme/alpha.py" in one and "acme/beta.py" in one
    assert " Make two faster\n" in one
    plain = lab.folder("plain") / "fix.diff"
    plain.write_bytes(lab.edit(ALPHA, GAMMA))
    lab.run(site, "import", plain, "--one-per-file")
    assert len(patches(lab, "fix")) == 2
    check(lab, "joined")
    check(lab, "fix")


def test_import_refuses_what_does_not_go_on_and_says_what_to_try(lab: Lab, upstream: Path) -> None:
    site = lab.site(ACME)
    lab.run(site, "import", f"{upstream}@main", "--name", "second")  # the last commit alone
    again = lab.run(site, "import", f"{upstream}@main", "--name", "second", check=3)
    assert "import under another name" in again.stderr
    stale = lab.folder("stale") / "stale.patch"
    stale.write_bytes(lab.edit(ALPHA).replace(b"second_2", b"another_2"))
    refused = lab.run(site, "import", stale, check=3)
    assert "--release acme==VERSION" in refused.stderr
    assert not (lab.bundles / "manifests/stale.toml").exists()
    nowhere = lab.run(site, "import", "nowhere.patch", check=3)
    assert "CHECKOUT@FROM..TO" in nowhere.stderr
    unknown = lab.run(site, "import", f"{upstream}@main..nosuch", check=3)
    assert "has no commits main..nosuch" in unknown.stderr


def test_a_real_release_takes_a_pull_request_with_its_condition(
    cli: Cli, make_venv: MakeVenv, git: Git, tmp_path: Path
) -> None:
    """The paths are those of SGLang's repository, and its tests are left out."""
    venv = make_venv()
    mine = tmp_path / "mine"
    where = ("--python", venv, "--bundles", mine)
    site = next(venv.glob("lib/python*/site-packages"))
    file = "sglang/srt/layers/communicator.py"
    repo = tmp_path / "repo"
    write_tree(repo, {f"python/{file}": (site / file).read_bytes(), "test/a.py": "a\n"})
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "base")
    text = (repo / "python" / file).read_text()
    old = "or _is_sm100_supported)"
    assert old in text
    (repo / "python" / file).write_text(text.replace(old, "or _is_sm100_supported or _is_hip)", 1))
    (repo / "test/a.py").write_text("b\n")
    git(repo, "commit", "-qam", "Open the gate")
    pull = tmp_path / "4711.patch"
    pull.write_text(git(repo, "format-patch", "--stdout", "-1"))
    data = cli(*where, "--json", "import", pull, "--name", "gate").json
    assert data["release"] == {"distribution": "sglang", "version": "0.5.9"}
    assert data["left_out"] == [{"patch": "4711.patch", "file": "test/a.py"}]
    (gate,) = data["asserts"]
    assert 'test = "_is_sm90_supported or _is_sm100_supported or _is_hip"' in gate["lines"]
    cli(*where, "apply", "gate")
    cli(*where, "verify", "gate")


def test_a_new_manifest_lacks_only_what_its_author_must_say(lab: Lab) -> None:
    site = lab.site(ACME)
    fresh = lab.base / "not" / "there"
    args = (*site.where, "--bundles", fresh)
    lab.cli(*args, "new", "mine", "--distribution", "Acme", "-m", "Faster", "--dry-run")
    assert not fresh.exists()
    lab.cli(*args, "new", "mine", "--distribution", "Acme", "-m", "Faster")
    text = (fresh / "manifests/mine.toml").read_text()
    assert '# versions = "==1.0"' in text and 'summary = "Faster"' in text
    lint = lab.cli(*args, "--json", "lint", "mine", check=1).json
    assert [one["kind"] for one in lint["problems"]] == ["empty-bundle"]
    lab.cli(*args, "new", "mine", check=3)
    bad = lab.cli(*args, "new", "My Fix", check=2)
    assert "my-fix would do" in bad.stderr
    # What it sketches holds when it is filled in.
    plain = lab.folder("plain") / "fix.diff"
    plain.write_bytes(lab.edit(ALPHA))
    lab.cli(*args, "import", plain, "--name", "mine")
    assert lab.cli(*args, "--json", "lint", "mine").json["problems"] == []


BEFORE = b"""\
ROWS = [1, 2]


def gate(a, b):
    log("asked")
    if a or b:
        return True
    return False
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # Said once before: only the number of times tells.
        (b'    log("asked")\n', b'    log("asked")\n    log("asked")\n', ["count = 2"]),
        (b"[1, 2]", b"[1, 2, 3]", ['literal = { name = "ROWS", has = [3] }']),
        (b"if a or b:", b"if a or b or c():", ['test = "a or b or c()"']),
        (b"if a or b:", b"if (a or b) and c():", ["is = false"]),
        (b"    return False\n", b"", ['text = "return False"', "absent = true"]),
        (b"    return False\n", b"    # return nothing at all\n", ["absent = true"]),
        (b"if a or b:", b"if a  or b:", ['text = "if a  or b:"']),
    ],
)
def test_what_is_suggested_fails_before_and_holds_after(
    lab: Lab, old: bytes, new: bytes, expected: list[str]
) -> None:
    assert BEFORE.count(old) == 1
    after = BEFORE.replace(old, new) + (b"" if b"c()" not in new else b"\n\ndef c(): ...\n")
    path = "acme/gate.py"
    data = lab.diff({path: BEFORE}, {path: after})
    (file,) = parse(data, "").files
    (one, *_) = suggestions("acme", path, BEFORE, after, list(blocks(file)))
    assert not evaluate(one, BEFORE, lambda _: None).ok
    assert evaluate(one, after, lambda _: None).ok
    lines = assertion_table(one).splitlines()
    assert [line for line in expected if line not in lines] == []


def test_a_remark_that_goes_with_a_change_of_code_proves_nothing(lab: Lab) -> None:
    before = BEFORE.replace(b"    log", b"    # whichever of the two it is\n    log")
    after = before.replace(b"of the two it", b"of them it").replace(b"if a or b", b"if a or b or 1")
    (file,) = parse(lab.diff({"acme/gate.py": before}, {"acme/gate.py": after}), "").files
    found = suggestions("acme", "acme/gate.py", before, after, list(blocks(file)))
    assert found and not any("whichever" in (one.text or "") for one in found)


def test_a_substitution_becomes_a_patch_with_its_assertions(lab: Lab) -> None:
    site = lab.site(ACME)
    before = site.picture()
    data = lab.json(site, "sed", "mine", ALPHA[0], r"s/second_3 = (\d+)/second_3 = \g<1>0/")
    assert data["substitutions"][0]["new"] == "second_3 = 1030"
    assert [one["lines"][3:] for one in data["asserts"]] == [
        ['within = "second"', 'text = "second_3 = 1030"']
    ]
    assert site.differences(before) == []
    # A second one goes on top of the first, in the same variant; what it overwrites is not
    # asserted any more.
    again = lab.run(site, "sed", "mine", ALPHA[0], "s/second_3 = 1030/second_3 = 2060/")
    assert "an assertion is dropped" in again.stderr
    lab.run(site, "sed", "mine", "acme/table.txt", "s|^row 1(.)$|ROW 1\\1|g", "-m", "Shout")
    assert len(patches(lab, "mine")) == 3
    text = (lab.bundles / "manifests/mine.toml").read_text()
    assert text.count("[[target.variant]]") == 1
    assert lab.json(site, "lint", "mine")["problems"] == []
    lab.run(site, "apply", "mine")
    lab.run(site, "verify", "mine")
    assert "second_3 = 2060" in site.text(ALPHA[0])
    assert site.text("acme/table.txt").count("ROW 1") == 10


def test_a_substitution_that_leaves_no_python_is_said_to(lab: Lab) -> None:
    site = lab.site(ACME)
    fine = lab.run(site, "sed", "mine", ALPHA[0], "s/second_3 = 103$/second_3 = 1030/")
    assert "does not parse" not in fine.stderr
    for bundle in ("mine", "other"):  # one is added to, one is made
        done = lab.run(site, "sed", bundle, BETA[0], "s/two_3 = 103$/two_3 = (103/")
        assert f"{BETA[0]} does not parse as Python with this change: line " in done.stderr


def test_the_assertions_of_a_substitution_see_the_code_alone(lab: Lab) -> None:
    """A list that grows has no old text that would have to go from the def's other line."""
    gate = (
        "def gate(major):\n    # [9, 10] and more\n    return major in [9, 10]\n\n\n"
        "def other(major):\n    return major in [9, 10, 12]\n"
    )
    dist = ACME.__class__("acme", "1.0", {**ACME.files, "acme/gate.py": gate})
    site = lab.site(dist)
    ambiguous = lab.run(site, "sed", "mine", "acme/gate.py", r"s/\[9, 10(, 12)?\]/[]/", check=3)
    assert "matches 3 times" in ambiguous.stderr and "line 2" in ambiguous.stderr
    data = lab.json(
        site,
        "sed",
        "mine",
        "acme/gate.py",
        r"s/return major in \[9, 10\]/return major in [9, 10, 12]/",
    )
    assert [one["lines"][3:] for one in data["asserts"]] == [
        ['within = "gate"', 'text = "return major in [9, 10]"', "absent = true"],
        ['within = "gate"', 'text = "return major in [9, 10, 12]"'],
    ]
    assert lab.json(site, "lint", "mine")["problems"] == []
    lab.run(site, "apply", "mine")
    lab.run(site, "verify", "mine")
    for wrong, words in (
        ("s/nowhere/there/", "nothing in acme/gate.py matches"),
        ("y/a/b/", "is no substitution"),
        (r"s/gate/\9/", "invalid group reference"),
    ):
        done = lab.run(site, "sed", "more", "acme/gate.py", wrong, check=None)
        assert done.exit_code in (2, 3) and words in done.stderr
    assert not (lab.bundles / "manifests/more.toml").exists()
