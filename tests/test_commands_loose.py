"""Loose patch files, the forms of paths in real patches, and what is left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    DELTA,
    GAMMA,
    HEADER,
    KERNEL,
    STATE,
    Edit,
    Lab,
    Site,
    plain,
    write_tree,
)
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)


def tree(lab: Lab) -> Site:
    """A folder of files that nobody installed."""
    site = Site(lab.folder("tree"))
    write_tree(site.root, ACME.files)
    return site


def patch_file(lab: Lab, data: bytes, name: str = "fix.patch") -> Path:
    path = lab.base / name
    path.write_bytes(data)
    return path


def names(lab: Lab, site: Site) -> list[str]:
    return [entry["name"] for entry in lab.json(site, "status")["applied"]]


@pytest.mark.parametrize("suffix", [".patch", ".diff"])
def test_applied_as_a_bundle_named_after_the_file(lab: Lab, suffix: str) -> None:
    for site in (tree(lab), lab.site()):
        path = patch_file(lab, lab.edit(ALPHA), f"my fix{suffix}")
        before = site.picture()
        lab.run(site, "apply", path)
        assert names(lab, site) == [path.name]
        assert ALPHA[2] in site.text(ALPHA[0])
        lab.run(site, "verify", path.name)
        path.unlink()
        lab.run(site, "verify", path.name)
        lab.run(site, "revert", path.name)
        assert site.differences(before) == []
        assert not (site / STATE).exists()


def test_relative_to_the_working_directory(lab: Lab) -> None:
    site = tree(lab)
    patch_file(lab, lab.edit(ALPHA))
    lab.run(site, "apply", "fix.patch", cwd=lab.base)
    assert names(lab, site) == ["fix.patch"]


def test_several_and_a_bundle_beside_them(lab: Lab) -> None:
    site = lab.site()
    one = patch_file(lab, lab.edit(ALPHA), "one.patch")
    two = patch_file(lab, lab.edit(DELTA), "two.diff")
    lab.bundle("three", {"acme": lab.edit(BETA)})
    before = site.picture()
    lab.run(site, "apply", one, "three", two)
    assert names(lab, site) == ["one.patch", "three", "two.diff"]
    lab.run(site, "revert", "three")
    lab.run(site, "revert", "one.patch", "two.diff")
    assert site.differences(before) == []


def test_another_file_of_the_same_name(lab: Lab) -> None:
    """It is another patch: never taken for the one that is applied already."""
    site = lab.site()
    first = patch_file(lab, lab.edit(ALPHA))
    folder = lab.folder("other")
    second = folder / "fix.patch"
    second.write_bytes(lab.edit(BETA))
    lab.run(site, "apply", first)
    result = lab.run(site, "apply", second, check=None)
    if result.exit_code == 0:
        assert BETA[2] in site.text(BETA[0])
    else:
        assert result.exit_code == 3 and "fix.patch" in result.stderr


def test_reverse(lab: Lab) -> None:
    """The release has the change; applied backwards it is taken out, and comes back on revert."""
    files = {**ACME.files, ALPHA[0]: str(ACME.files[ALPHA[0]]).replace(ALPHA[1], ALPHA[2])}
    for site in (lab.site(Dist("acme", "1.0", files)), Site(lab.folder("tree"))):
        if not site.root.joinpath("acme").exists():
            write_tree(site.root, files)
        before = site.picture()
        path = patch_file(lab, lab.edit(ALPHA))
        lab.run(site, "apply", path, check=3)
        lab.run(site, "apply", "--reverse", path)
        assert ALPHA[1] in site.text(ALPHA[0])
        lab.run(site, "verify", "fix.patch")
        lab.run(site, "revert", "--all")
        assert site.differences(before) == []


def test_reverse_of_added_and_deleted_files(lab: Lab) -> None:
    site = lab.site()
    old = {"acme/old.py": ACME.files["acme/old.py"]}
    path = patch_file(lab, lab.diff({"acme/back.py": "b = 1\n"}, old, "--no-renames"))
    before = site.picture()
    lab.run(site, "apply", "--reverse", path)
    assert not (site / "acme/old.py").exists()
    assert site.text("acme/back.py") == "b = 1\n"
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


@pytest.mark.parametrize(("strip", "lead"), [(0, ""), (1, "a/"), (3, "a/b/c/")])
def test_strip(lab: Lab, strip: int, lead: str) -> None:
    site = tree(lab)
    data = lab.edit(ALPHA).decode()
    for side in ("a", "b"):
        data = data.replace(f" {side}/acme", f" {lead}acme")
    path = patch_file(lab, data.encode())
    lab.run(site, "apply", "--strip", str(strip), path)
    assert ALPHA[2] in site.text(ALPHA[0])


def test_a_wrong_strip_is_refused(lab: Lab) -> None:
    site = tree(lab)
    before = site.picture()
    path = patch_file(lab, lab.edit(ALPHA))
    for strip in ("0", "2", "9"):
        result = lab.run(site, "apply", "--strip", strip, path, check=3)
        assert "strip" in result.stderr
    assert site.differences(before) == []


def test_a_patch_file_that_is_not_there(lab: Lab) -> None:
    site = tree(lab)
    result = lab.run(site, "apply", lab.base / "nowhere.patch", check=None)
    assert result.exit_code in (2, 3)
    assert "nowhere.patch" in result.stderr


def test_a_loose_patch_over_two_distributions(lab: Lab) -> None:
    site = lab.site()
    before = site.picture()
    path = patch_file(lab, lab.edit(ALPHA, DELTA))
    lab.run(site, "apply", path)
    assert ALPHA[2] in site.text(ALPHA[0]) and DELTA[2] in site.text(DELTA[0])
    lab.run(site, "verify", "fix.patch")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


# --- forms of paths ----------------------------------------------------------------------


def reformed(lab: Lab, edit: Edit, old: str, new: str, *, git: bool = False) -> bytes:
    """The patch of ``edit`` with other paths in its headers."""
    lines = lab.edit(edit).splitlines(keepends=True)
    body = [line for line in lines if not line.startswith((b"diff ", b"index ", b"---", b"+++"))]
    head = f"--- {old}\n+++ {new}\n"
    if git:
        head = f"diff --git {old} {new}\nindex 1234567..89abcde 100644\n{head}"
    return head.encode() + b"".join(body)


FORMS = {
    "checkout": ("a/python/acme/sub/gamma.py", "b/python/acme/sub/gamma.py"),
    "package": ("a/acme/sub/gamma.py", "b/acme/sub/gamma.py"),
    "no prefix": ("acme/sub/gamma.py", "acme/sub/gamma.py"),
    "relative to the package": ("a/sub/gamma.py", "b/sub/gamma.py"),
    "relative, no prefix": ("sub/gamma.py", "sub/gamma.py"),
    "src": ("a/src/acme/sub/gamma.py", "b/src/acme/sub/gamma.py"),
    "src, no prefix": ("src/acme/sub/gamma.py", "src/acme/sub/gamma.py"),
    "another root": (
        "../../my-acme/python/acme/sub/gamma.py",
        "../../my-acme/python/acme/sub/gamma.py",
    ),
    "two roots": ("acme-1.0.orig/acme/sub/gamma.py", "acme-1.0/acme/sub/gamma.py"),
    "a home folder": ("/home/me/acme/python/acme/sub/gamma.py",) * 2,
    "site-packages": (
        "/usr/local/lib/python3.12/dist-packages/acme/sub/gamma.py",
        "/usr/local/lib/python3.12/dist-packages/acme/sub/gamma.py",
    ),
    "site-packages behind a": (
        "a/opt/venv/lib/python3.11/site-packages/acme/sub/gamma.py",
        "b/opt/venv/lib/python3.11/site-packages/acme/sub/gamma.py",
    ),
    "a bare name": ("gamma.py", "gamma.py"),
    "a bare name with prefix": ("a/gamma.py", "b/gamma.py"),
    "timestamps": (
        "a/python/acme/sub/gamma.py\t2024-05-06 07:08:10.000000000 +0000",
        "b/python/acme/sub/gamma.py\t2024-05-06 07:09:10.000000000 +0000",
    ),
    "orig": ("acme/sub/gamma.py.orig", "acme/sub/gamma.py"),
}


@pytest.mark.parametrize("git", [False, True], ids=["gnu", "git"])
@pytest.mark.parametrize("form", sorted(FORMS))
def test_each_form_finds_its_file(lab: Lab, form: str, git: bool) -> None:
    """As a bundle of the distribution, and as a loose patch."""
    old, new = FORMS[form]
    if git and ("\t" in new or new.startswith(("/", "..")) or old != new.replace("b/", "a/", 1)):
        return  # git never writes these
    data = reformed(lab, GAMMA, old, new, git=git)
    site = lab.site()
    before = site.picture()
    lab.bundle("b", {"acme": data}, strip=None)
    for name in ("b", str(patch_file(lab, data))):
        lab.run(site, "apply", name)
        assert GAMMA[2] in site.text(GAMMA[0])
        lab.run(site, "revert", "--all")
        assert site.differences(before) == []


@pytest.mark.parametrize("edit", [KERNEL, HEADER], ids=["csrc", "include"])
def test_sources_that_the_wheel_keeps_under_data(lab: Lab, edit: Edit) -> None:
    """``a/csrc/…`` of the repository is ``bolt/data/csrc/…`` in the wheel."""
    short = edit[0].removeprefix("bolt/data/")
    site = lab.site()
    data = reformed(lab, edit, f"a/{short}", f"b/{short}", git=True)
    lab.bundle("b", {"bolt-kernels": data}, strip=None)
    lab.run(site, "apply", "b")
    assert edit[2] in site.text(edit[0])


def test_old_and_new_are_names_of_no_file(lab: Lab) -> None:
    """``diff -u old.py new.py`` names nothing; what to do is said."""
    site = lab.site(Dist("acme", "1.0", {k: v for k, v in ACME.files.items() if "old" not in k}))
    before = site.picture()
    path = patch_file(lab, reformed(lab, GAMMA, "old.py", "new.py"))
    result = lab.run(site, "apply", path, check=3)
    assert "hint:" in result.stderr
    assert site.differences(before) == []


def test_two_forms_in_one_patch(lab: Lab) -> None:
    site = lab.site()
    data = reformed(lab, GAMMA, *FORMS["checkout"]) + reformed(
        lab, ALPHA, "a/acme/alpha.py", "b/acme/alpha.py"
    )
    lab.bundle("b", {"acme": data}, strip=None)
    verbose = lab.run(site, "-v", "apply", "b")
    said = verbose.stdout + verbose.stderr
    assert "strip 2" in said and "strip 1" in said
    assert GAMMA[2] in site.text(GAMMA[0]) and ALPHA[2] in site.text(ALPHA[0])
    shown = lab.run(site, "show", "b").stdout
    assert "strip 2" in shown and "strip 1" in shown


def test_two_distributions_find_their_forms_each(lab: Lab) -> None:
    """In one bundle, in one command, and in the same applied set."""
    site = lab.site()
    lab.bundle("both", {"acme": lab.edit(ALPHA), "bolt-kernels": lab.edit(DELTA)}, strip=None)
    lab.bundle("acme", {"acme": lab.edit(BETA)}, strip=None)
    lab.bundle("bolt", {"bolt-kernels": lab.edit(KERNEL)}, strip=None)
    before = site.picture()
    for groups in ((("both",),), (("acme", "bolt"),), (("acme",), ("bolt",)), (("bolt", "both"),)):
        for group in groups:
            lab.run(site, "apply", *group)
        lab.run(site, "revert", "--all")
        # A source that a JIT compiles comes back as a new file with a new time.
        left = [line for line in site.differences(before) if not line.startswith(KERNEL[0])]
        assert left == []
        assert KERNEL[1] in site.text(KERNEL[0])


TWINS = Dist(
    "twins",
    "1.0",
    {
        "twins/__init__.py": "",
        "twins/left/same.py": "a = 1\nb = 2\nc = 3\n",
        "twins/right/same.py": "a = 1\nb = 2\nc = 3\n",
    },
)
SAME = b"@@ -1,3 +1,3 @@\n a = 1\n-b = 2\n+b = 20\n c = 3\n"


@pytest.mark.parametrize("name", ["same.py", "a/same.py"])
def test_an_ambiguous_path_is_refused_with_the_candidates(lab: Lab, name: str) -> None:
    site = lab.site(TWINS)
    data = f"--- {name}\n+++ {name}\n".encode() + SAME
    lab.bundle("b", {"twins": data}, strip=None)
    before = site.picture()
    for what in ("b", str(patch_file(lab, data))):
        result = lab.run(site, "apply", what, check=3)
        assert "twins/left/same.py" in result.stderr and "twins/right/same.py" in result.stderr
        assert site.differences(before) == []


def test_the_other_files_of_the_patch_decide(lab: Lab) -> None:
    """One (strip, prefix) for each form: not each file by itself."""
    files = {**TWINS.files, "twins/left/only.py": "a = 1\nb = 2\nc = 3\n"}
    site = lab.site(Dist("twins", "1.0", files))
    data = b"--- a/only.py\n+++ b/only.py\n" + SAME + b"--- a/same.py\n+++ b/same.py\n" + SAME
    lab.bundle("b", {"twins": data}, strip=None)
    lab.run(site, "apply", "b")
    assert "b = 20" in site.text("twins/left/same.py")
    assert "b = 20" not in site.text("twins/right/same.py")


def test_a_new_file_goes_where_the_others_are(lab: Lab) -> None:
    site = lab.site()
    data = reformed(lab, GAMMA, *FORMS["checkout"])
    data += b"--- /dev/null\n+++ b/python/acme/sub/new.py\n@@ -0,0 +1 @@\n+n = 1\n"
    lab.bundle("b", {"acme": data}, strip=None)
    lab.run(site, "apply", "b")
    assert site.text("acme/sub/new.py") == "n = 1\n"


def test_strip_in_the_manifest_decides(lab: Lab) -> None:
    """Even where another level would fit."""
    site = lab.site()
    lab.bundle("b", {"acme": reformed(lab, GAMMA, *FORMS["checkout"])}, strip=1)
    before = site.picture()
    result = lab.run(site, "apply", "b", check=3)
    assert "python/acme/sub/gamma.py" in result.stderr
    assert site.differences(before) == []
    lab.bundle("b", {"acme": reformed(lab, GAMMA, *FORMS["checkout"])}, strip=2)
    lab.run(site, "apply", "b")


def test_files_of_unrelated_projects_are_not_matched(lab: Lab) -> None:
    """A free search by suffix would find ``other/sub/gamma.py``."""
    other = Dist("other", "1.0", {"other/sub/delta.py": ACME.files["acme/sub/gamma.py"]})
    site = lab.site(ACME, other)
    data = reformed(lab, GAMMA, "a/acme/sub/delta.py", "b/acme/sub/delta.py")
    lab.bundle("b", {"acme": data}, strip=None)
    before = site.picture()
    lab.run(site, "apply", "b", check=3)
    assert site.differences(before) == []


# --- what no wheel holds -----------------------------------------------------------------

LEFT_OUT = (
    "test/srt/test_gamma.py",
    "tests/unit/test_gamma.py",
    "docs/guide.md",
    "README.md",
    "python/pyproject.toml",
    "setup.py",
    "CMakeLists.txt",
    ".github/workflows/ci.yml",
    "benchmark/bench_gamma.py",
    "docker/Dockerfile",
    "scripts/ci/run.sh",
    "3rdparty/thing/thing.cc",
)


@pytest.mark.parametrize("path", LEFT_OUT)
def test_files_that_no_wheel_holds_are_left_out_and_listed(lab: Lab, path: str) -> None:
    site = lab.site()
    data = reformed(lab, GAMMA, *FORMS["checkout"], git=True)
    text = "one\ntwo\nthree\n"
    data += lab.diff({path: text}, {path: text.replace("two", "2")})
    lab.bundle("b", {"acme": data}, strip=None)
    before = site.picture()
    result = lab.run(site, "apply", "b")
    assert path in plain(result.stdout + result.stderr), str(result)
    assert GAMMA[2] in site.text(GAMMA[0])
    assert not (site / path).exists()
    answer = lab.json(site, "apply", "--dry-run", patch_file(lab, data), check=None)
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
    answer = lab.json(site, "apply", "b")
    assert path in str(answer), "the object lists it too"


def test_a_new_test_file_is_left_out(lab: Lab) -> None:
    site = lab.site()
    data = reformed(lab, GAMMA, *FORMS["checkout"], git=True)
    data += lab.diff({}, {"test/test_new.py": "t = 1\n"})
    lab.bundle("b", {"acme": data}, strip=None)
    result = lab.run(site, "apply", "b")
    assert "test/test_new.py" in result.stdout + result.stderr
    assert [path.name for path in site.root.rglob("test_new.py")] == []


def test_a_python_file_of_the_package_is_never_left_out(lab: Lab) -> None:
    """A file that moved or is missing in this release is a refusal, not a thing to skip."""
    site = lab.site()
    data = reformed(lab, GAMMA, *FORMS["checkout"], git=True)
    data += lab.diff({"python/acme/sub/gone.py": "a\nb\n"}, {"python/acme/sub/gone.py": "a\nB\n"})
    lab.bundle("b", {"acme": data}, strip=None)
    before = site.picture()
    result = lab.run(site, "apply", "b", check=3)
    assert "gone.py" in result.stderr
    assert site.differences(before) == []


def test_a_patch_of_which_nothing_is_left(lab: Lab) -> None:
    """Only tests and docs: it would do nothing, which is not what was asked for."""
    site = lab.site()
    lab.bundle("b", {"acme": lab.diff({"docs/a.md": "a\n"}, {"docs/a.md": "b\n"})}, strip=None)
    result = lab.run(site, "apply", "b", check=None)
    assert result.exit_code in (0, 3)
    assert "docs/a.md" in result.stdout + result.stderr


def test_blank_context_lines_without_their_space(lab: Lab) -> None:
    """13 % of the real patches were through an editor that trims lines."""
    site = lab.site()
    edit = ("acme/alpha.py", "    first_6 = 6\n", "    first_6 = 60\n")
    data = lab.edit(edit)
    assert b"\n \n" in data
    while b"\n \n" in data:
        data = data.replace(b"\n \n", b"\n\n")
    lab.bundle("b", {"acme": data})
    lab.run(site, "apply", "b")
    assert edit[2] in site.text(edit[0])


def test_no_index_and_no_diff_line(lab: Lab) -> None:
    site = lab.site()
    data = b"".join(
        line
        for line in lab.edit(ALPHA, GAMMA).splitlines(True)
        if not line.startswith((b"diff", b"index"))
    )
    lab.bundle("b", {"acme": data}, strip=None)
    lab.run(site, "apply", "b")
    assert ALPHA[2] in site.text(ALPHA[0]) and GAMMA[2] in site.text(GAMMA[0])


def test_a_patch_with_crlf_all_over_for_a_file_with_lf(lab: Lab) -> None:
    """Headers with CR too: the patch went through a converter, and it says so."""
    site = lab.site()
    before = site.picture()
    path = patch_file(lab, lab.edit(ALPHA).replace(b"\n", b"\r\n"))
    result = lab.run(site, "apply", path, check=3)
    assert "hint:" in result.stderr
    assert site.differences(before) == []


@pytest.mark.parametrize("converted", ["patch", "file"])
def test_line_ends_that_were_converted_on_the_way(lab: Lab, converted: str) -> None:
    """Named, and applied only where it is asked for, with the file's own ends."""
    site = lab.site()
    patch = lab.base / "fix.patch"
    data = lab.edit(ALPHA)
    patch.write_bytes(data.replace(b"\n", b"\r\n") if converted == "patch" else data)
    root = lab.copy(site).root
    for info in root.glob("*.dist-info"):
        shutil.rmtree(info)
    path = root / ALPHA[0]
    old = path.read_bytes().replace(b"\n", b"\r\n" if converted == "file" else b"\n")
    path.write_bytes(old)
    refused = lab.cli("--root", root, "apply", patch, check=3)
    assert "differ in line ends (CR LF) alone" in refused.stderr
    assert "patchkit apply --eol" in refused.stderr
    lab.cli("--root", root, "apply", "--eol", patch)
    new = path.read_bytes()
    assert new == old.replace(ALPHA[1].strip().encode(), ALPHA[2].strip().encode())
    lab.cli("--root", root, "verify", "fix.patch")
    other = lab.base / "other.patch"
    other.write_bytes(lab.edit(BETA))
    lab.cli("--root", root, "apply", other)  # computed anew from the record
    assert path.read_bytes() == new
    lab.cli("--root", root, "revert", "--all")
    assert path.read_bytes() == old


def test_line_ends_of_a_bundle_are_no_option(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "--eol", "one", check=2)
