"""What lint finds in a bundle directory, and what it leaves alone."""

from __future__ import annotations

import difflib
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit import lint, patchfile
from patchkit.bundles import list_names, load_bundle, read_patch
from patchkit.errors import PatchSyntaxError, Refused
from patchkit.jit import is_compiled, is_generator
from patchkit.lint import (
    Problem,
    diffstat,
    lint_bundle,
    lint_directory,
    lock_bytes,
    named_patches,
    probe_versions,
)
from patchkit.manifest import parse_manifest, render_lock, version_matches
from patchkit.model import Patch, split
from tests.releases import ROOT

DEP3 = "Description: why\nAuthor: A U Thor <a@example.org>\n\n"
PATCH = (
    "--- a/six.py\n+++ b/six.py\n@@ -4,7 +4,7 @@ def f():\n 4\n 5\n 6\n-7\n+seven\n 8\n 9\n 10\n"
)
ASSERT = '[[assert]]\ndistribution = "six"\nfile = "six.py"\ntext = "seven"\n'


class Folder:
    """A bundle directory to be filled; ``demo`` is the bundle looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "manifests").mkdir(parents=True)
        (path / "patches").mkdir()

    def manifest(self, text: str, name: str = "demo", head: str | None = None) -> None:
        if head is None:
            head = f'schema = 1\nname = "{name}"\nversion = "1.0"\nsummary = "s"\n'
        (self.path / "manifests" / f"{name}.toml").write_text(head + text)

    def patch(self, data: str | bytes, path: str = "demo/a.patch") -> None:
        file = self.path / "patches" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)

    def lock(self, name: str = "demo") -> None:
        bundle = parse_manifest((self.path / "manifests" / f"{name}.toml").read_bytes(), name)
        digests = {
            path: hashlib.sha256((self.path / "patches" / path).read_bytes()).hexdigest()
            for path in named_patches(bundle)
        }
        (self.path / "manifests" / f"{name}.lock").write_bytes(render_lock(digests))

    def bundle(
        self, data: str | bytes = DEP3 + PATCH, *, more: str = ASSERT, versions: str = ">=1"
    ) -> None:
        """``demo`` with one locked patch."""
        self.patch(data)
        self.manifest(target("demo/a.patch", versions=versions) + more)
        self.lock()

    def problems(self, **options: object) -> list[Problem]:
        return lint_bundle(str(self.path), "demo", **options)  # type: ignore[arg-type]

    def kinds(self, **options: object) -> list[str]:
        return [f"{p.severity} {p.kind}" for p in self.problems(**options)]


def target(*patches: str, versions: str = ">=1", distribution: str = "six") -> str:
    return (
        f'[[target]]\ndistribution = "{distribution}"\n[[target.variant]]\n'
        f'versions = "{versions}"\npatches = [{", ".join(map(repr, patches))}]\n'
    )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# -- the shipped bundles ----------------------------------------------------------------

SHIPPED = list_names(str(ROOT))


def test_the_bundles_of_a_fresh_checkout_are_shipped() -> None:
    assert set(SHIPPED) >= {
        "sm120-fusion",
        "pcie-custom-allreduce",
        "symm-mem-sm120",
        "cuda-graph-max-bs-128",
        "nccl-few-channels",
        "nccl-tree",
        "moe-a2a-flashinfer",
        "mem-fraction-088",
    }


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_bundles_are_clean(name: str) -> None:
    assert lint_bundle(str(ROOT), name) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_the_locks_of_shipped_bundles_are_what_would_be_written(name: str) -> None:
    bundle = load_bundle(str(ROOT), name)
    named = named_patches(bundle)
    if bundle.lock is None:
        assert named == []
        return
    assert (ROOT / "manifests" / f"{name}.lock").read_bytes() == lock_bytes(
        str(ROOT), name, lambda bundle, read: bundle.pristine
    )
    assert named
    for path in named:
        assert diffstat(read_patch(str(ROOT), bundle, path))


def test_the_shipped_directory_holds_nothing_else() -> None:
    assert lint_directory(str(ROOT)) == []


# -- a bundle and its manifest ----------------------------------------------------------


def test_a_good_bundle_has_no_problem(folder: Folder) -> None:
    folder.bundle()
    assert folder.problems() == []


def test_an_unknown_bundle_is_refused(folder: Folder) -> None:
    with pytest.raises(Refused) as caught:
        folder.problems()
    assert caught.value.code == "unknown-bundle"


def test_every_problem_of_a_manifest_is_one_of_lint(folder: Folder) -> None:
    folder.manifest("colour = 1\nrequires = 3\n")
    first, second = folder.problems()
    assert (first.kind, first.severity, first.file) == ("manifest", "error", "manifests/demo.toml")
    assert first.message.startswith("colour: unknown key")
    assert second.message == "requires: must be an array, not an integer"
    assert first.line is None
    folder.manifest("x = = 1\n", head="# a line\n")
    (only,) = folder.problems()
    assert only.line == 2 and "line 2, column 5" in only.message


def test_a_bundle_needs_a_summary_to_be_listed(folder: Folder) -> None:
    folder.bundle()
    folder.manifest(
        target("demo/a.patch") + ASSERT, head='schema = 1\nname = "demo"\nversion = "1.0"\n'
    )
    assert folder.kinds() == ["warning no-summary"]


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        ("", True),
        ("[profile]\n", True),
        ("[profile]\nenv = { A = 'b' }", False),
        ("[profile]\nargs = ['a']", False),
        ("[[profile.variant]]\ndistribution = 'six'\nversions = ''\nargs = ['a']", False),
        ("requires = ['other']", False),
        (target("demo/a.patch") + ASSERT, False),
        ("[[target]]\ndistribution = 'six'\n[[target.variant]]\nversions = ''\nupstream = 'x'",
         False),
    ],
)  # fmt: skip
def test_a_bundle_that_does_nothing_is_an_error(folder: Folder, text: str, empty: bool) -> None:
    folder.bundle()
    folder.manifest("[profile]\nargs = ['x']", "other")
    folder.manifest(text)
    found = folder.kinds(update_lock=True)
    assert ("error empty-bundle" in found) is empty


@pytest.mark.parametrize(
    ("first", "second", "version"),
    [
        (">=1,<2", ">=1.5,<3", "1.5"),
        (">=1,<=2", ">=2", "2"),
        ("==1.*", "==1.5", "1.5"),
        ("", "===odd", "odd"),
        ("~=1.4", ">=2.0,<3", None),
        (">=1,<2", ">=2", None),
        (">=1,<2", ">=2.0a1", None),
        ("<=2", ">2", None),
        (">1", "==1", None),
        ("!=1", "==1", None),
        (">=0.5.8,<0.5.9", "==0.5.9", None),
    ],
)
def test_overlapping_ranges_are_shown_with_a_release(
    folder: Folder, first: str, second: str, version: str | None
) -> None:
    folder.bundle()
    text = target("demo/a.patch", versions=first)
    text += f"[[target.variant]]\nversions = '{second}'\nupstream = 'x'\n"
    folder.manifest(text + ASSERT)
    found = folder.problems()
    if version is None:
        assert found == []
        return
    (only,) = found
    assert (only.kind, only.severity) == ("overlap", "error")
    assert only.message == f"target[0].variant[1].versions: six {version} is in variant[0] too"


@pytest.mark.parametrize("text", [">=2,<1", "==1,==2", "<0", ">1,<1.0", ">=1,<=1,!=1"])
def test_a_range_that_no_release_is_in_is_an_error(folder: Folder, text: str) -> None:
    folder.manifest("[profile]\nargs = ['x']", "other")
    folder.bundle(versions=text, more="")
    folder.manifest(
        f"requires = ['other{text}']\n"
        + target("demo/a.patch", versions=text)
        + ASSERT + f"versions = '{text}'\n"
        + f"[[profile.variant]]\ndistribution = 'six'\nversions = '{text}'\nargs = []\n"
    )  # fmt: skip
    found = [p.message.split(":")[0] for p in folder.problems() if p.kind == "empty-range"]
    assert found == [
        "requires[0]",
        "target[0].variant[0].versions",
        "assert[0].versions",
        "profile.variant[0].versions",
    ]


releases = st.builds(
    lambda epoch, release, end: epoch + ".".join(map(str, release)) + end,
    st.sampled_from(["", "", "", "1!", "2!"]),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.sampled_from(
        ["", "", "", "a1", "rc0", "rc2", ".post1", ".dev2", "a1.post0", "a1.dev1", ".post0.dev1"]
    ),
)
plain_specifiers = st.builds(
    "{}{}".format, st.sampled_from([">=", "<=", "<", ">", "==", "!="]), releases
)
wide_specifiers = st.builds(
    lambda parts, how: how.format(".".join(map(str, parts))),
    st.lists(st.integers(0, 3), min_size=2, max_size=3),
    st.sampled_from(["=={}.*", "!={}.*", "~={}"]),
)
ranges = st.lists(plain_specifiers | wide_specifiers, min_size=1, max_size=3).map(",".join)
more_releases = st.builds(
    "{}{}".format,
    releases,
    st.sampled_from(["", ".0", ".1", ".7", "+local"]),
).filter(lambda text: version_or_none(text) is not None)


def version_or_none(text: str) -> object:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion:
        return None


@given(ranges, ranges, st.lists(more_releases, min_size=1, max_size=30))
def test_ranges_that_share_a_release_share_a_probe(
    first: str, second: str, versions: list[str]
) -> None:
    both = [v for v in versions if version_matches(first, v) and version_matches(second, v)]
    if both:
        probes = probe_versions([first, second])
        assert any(version_matches(first, v) and version_matches(second, v) for v in probes), both


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (">1a1", "<1a2"),
        (">1a1", "<=1a2.dev0"),
        (">=1a1,!=1a1", "<=1a1.post0.dev0"),
        (">1", "<1.0.0.1"),
        (">=1,!=1", "<=1.post0.dev0"),
        (">1.post1", "<1.post3"),
        (">1.post1", "<=1.post2.dev0"),
        (">1.dev1", "<1.dev3"),
        (">1a1.post1.dev1", "<=1a1.post1.dev2"),
        (">=1.post1.dev1,!=1.post1.dev1", "<1.post1.dev3"),
        (">=1.4,!=1.4.*", "<=1.5.dev0"),
        (">=1.4.2,!=1.*", "<=2.dev0"),
        ("<0.0.1", "!=0"),
        ("<=0.dev0", ""),
        (">=1!1,!=1!1.*", "<1!2.1"),
        ("==1+x", ">=1"),
    ],
)
def test_ranges_that_share_very_little_share_a_probe(first: str, second: str) -> None:
    probes = probe_versions([first, second])
    assert any(version_matches(first, v) and version_matches(second, v) for v in probes)


@pytest.mark.parametrize("more", ["==1.0+local", "===odd", ">=1!0", ">=1", "~=1.4.2"])
def test_probes_are_versions_of_which_the_shortest_is_first(more: str) -> None:
    found = probe_versions([more, "<2!1a1.post2.dev3"])
    assert found == sorted(found, key=len)
    assert all(version_or_none(text) is not None or text == "odd" for text in found)
    assert any(version_matches(more, text) for text in found)


def test_a_patch_of_another_bundles_folder_is_a_warning(folder: Folder) -> None:
    folder.bundle()
    folder.patch(DEP3 + PATCH, "shared.patch")
    folder.manifest(target("demo/a.patch", "shared.patch") + ASSERT)
    folder.lock()
    assert folder.kinds() == ["warning patch-elsewhere"]


# -- relations --------------------------------------------------------------------------


def test_bundles_that_are_named_must_exist(folder: Folder) -> None:
    folder.bundle()
    folder.manifest("[profile]\nargs = ['x']", "other")
    folder.manifest("conflicts = ['othr', 'zzzzzzz', 'other']\n" + target("demo/a.patch") + ASSERT)
    first, second = folder.problems()
    assert (first.kind, first.severity) == ("unknown-bundle", "warning")
    assert first.message == "conflicts: there is no bundle othr here"
    assert first.hint == "did you mean other?" and second.hint is None
    folder.manifest("requires = ['othr']\n" + target("demo/a.patch") + ASSERT)
    (only,) = folder.problems()
    assert (only.kind, only.severity) == ("unknown-bundle", "error")
    assert only.message.startswith("requires: demo requires othr: no bundle 'othr' in ")
    assert only.hint == "did you mean other?"


@pytest.mark.parametrize(
    ("requires", "other", "kind"),
    [
        ("other>=2", "[profile]\nargs = ['x']", "requires-version"),
        ("other", "requires = ['demo']", "requires-cycle"),
        ("other", "conflicts = ['demo']\n[profile]\nargs = ['x']", "conflict"),
        ("other", "colour = 1", "requires-broken"),
    ],
)
def test_what_is_required_must_fit(folder: Folder, requires: str, other: str, kind: str) -> None:
    folder.bundle()
    folder.manifest(other, "other")
    folder.manifest(f"requires = ['{requires}']\n" + target("demo/a.patch") + ASSERT)
    (only,) = folder.problems()
    assert (only.kind, only.severity) == (kind, "error")
    assert only.message.startswith("requires: ") and only.file == "manifests/demo.toml"


def test_a_required_bundle_that_fits_is_fine(folder: Folder) -> None:
    folder.bundle()
    folder.manifest("[profile]\nargs = ['x']", "other")
    folder.manifest("requires = ['other>=1']\n" + target("demo/a.patch") + ASSERT)
    assert folder.problems() == []


# -- patch files and the lock -----------------------------------------------------------


def test_patches_must_be_locked(folder: Folder) -> None:
    folder.bundle()
    lock = folder.path / "manifests" / "demo.lock"
    lock.unlink()
    (only,) = folder.problems()
    assert (only.kind, only.file, only.hint) == (
        "not-locked",
        "manifests/demo.lock",
        "patchkit lint --update-lock demo",
    )
    assert folder.problems(update_lock=True) == []
    lock.write_bytes(render_lock({}))
    (only,) = folder.problems()
    assert (only.kind, only.file) == ("patch-not-locked", "patches/demo/a.patch")


def test_a_bundle_without_patches_needs_no_lock(folder: Folder) -> None:
    folder.manifest("[profile]\nargs = ['x']")
    assert folder.problems() == []
    assert lock_bytes(str(folder.path), "demo") is None


def test_a_patch_that_cannot_be_read_is_not_locked(folder: Folder) -> None:
    folder.bundle(DEP3 + PATCH + "+surplus\n")
    assert lock_bytes(str(folder.path), "demo") is None


def test_a_lock_that_is_broken_or_stale_is_an_error(folder: Folder) -> None:
    folder.bundle()
    lock = folder.path / "manifests" / "demo.lock"
    good = lock.read_bytes()
    lock.write_text("schema = 1\n")
    (only,) = folder.problems()
    assert (only.kind, only.severity, only.file) == ("lock", "error", "manifests/demo.lock")
    assert only.hint == "patchkit lint --update-lock demo"
    lock.write_text("schema = \n")
    (only,) = folder.problems()
    assert (only.kind, only.line) == ("lock", 1)
    lock.write_bytes(good + f'"demo/z.patch" = "{"0" * 64}"\n'.encode())
    (only,) = folder.problems()
    assert (only.kind, only.severity) == ("lock-stale", "error")
    assert only.message == "demo/z.patch is locked, but no variant names it"
    assert folder.problems(update_lock=True) == []
    assert lock_bytes(str(folder.path), "demo") == good


def test_a_patch_that_changed_is_an_error_and_is_looked_at_all_the_same(folder: Folder) -> None:
    folder.bundle()
    folder.patch(PATCH)
    assert folder.kinds() == ["error patch-changed", "warning dep3"]
    assert folder.kinds(update_lock=True) == ["warning dep3"]
    expected = hashlib.sha256(PATCH.encode()).hexdigest()
    assert lock_bytes(str(folder.path), "demo") == render_lock({"demo/a.patch": expected})


def test_a_missing_patch_is_an_error(folder: Folder) -> None:
    folder.bundle()
    (folder.path / "patches" / "demo" / "a.patch").unlink()
    assert folder.kinds() == ["error patch-missing"]
    with pytest.raises(Refused, match="missing"):
        lock_bytes(str(folder.path), "demo")
    (folder.path / "patches" / "demo" / "a.patch").mkdir()
    assert folder.kinds() == ["error unreadable"]


def test_a_patch_behind_a_link_that_leads_out_is_an_error(folder: Folder) -> None:
    folder.bundle()
    file = folder.path / "patches" / "demo" / "a.patch"
    file.rename(folder.path / "outside.patch")
    file.symlink_to("../../outside.patch")
    assert folder.kinds() == ["error patch-outside"]


def test_patch_files_that_nothing_names_are_errors(folder: Folder) -> None:
    folder.bundle()
    for name in ("b.diff", "sub/c.patch", "README", "a.patch.orig"):
        folder.patch(PATCH, f"demo/{name}")
    folder.patch(PATCH, "demo-too/d.patch")
    found = folder.problems()
    assert [(p.kind, p.severity, p.file) for p in found] == [
        ("orphan", "error", "patches/demo/b.diff"),
        ("orphan", "error", "patches/demo/sub/c.patch"),
    ]


def test_what_belongs_to_no_bundle_is_found(folder: Folder) -> None:
    folder.bundle()
    assert lint_directory(str(folder.path)) == []
    folder.patch(PATCH, "gone/a.patch")
    folder.patch(PATCH, "gone/b.patch")
    folder.patch("text", "notes/README")
    folder.patch("text", "README")
    (folder.path / "manifests" / "gone.lock").touch()
    (folder.path / "manifests" / "README.md").touch()
    lock, patches = lint_directory(str(folder.path))
    assert (lock.kind, lock.severity, lock.file) == (
        "orphan-lock", "error", "manifests/gone.lock",
    )  # fmt: skip
    assert (patches.kind, patches.severity, patches.file) == (
        "orphan-folder", "warning", "patches/gone",
    )  # fmt: skip
    assert "2 patch files" in patches.message
    assert lint_directory(str(folder.path / "nowhere")) == []


def test_bytes_that_are_no_patch_are_an_error_with_a_line(folder: Folder) -> None:
    folder.bundle(DEP3 + PATCH + "+surplus\n")
    (only,) = folder.problems()
    assert (only.kind, only.severity, only.file, only.line) == (
        "patch-syntax",
        "error",
        "patches/demo/a.patch",
        15,
    )
    assert only.hint


def test_problems_are_sorted_by_file_and_line(folder: Folder) -> None:
    folder.bundle()
    folder.patch(PATCH.replace("@@ -4,7 +4,7 @@ def f():\n 4\n", "@@ -5,6 +5,6 @@\n"))
    folder.patch(DEP3 + PATCH, "demo/0.patch")
    found = folder.problems()
    assert [(p.file, p.line) for p in found] == [
        ("patches/demo/0.patch", None),
        ("patches/demo/a.patch", None),
        ("patches/demo/a.patch", 1),
        ("patches/demo/a.patch", 3),
    ]


def test_problems_are_sorted_though_they_are_found_otherwise(folder: Folder) -> None:
    short = one_file(hunk(2, 3, 9))
    folder.bundle(short + short[len(DEP3) :])
    assert [(p.kind, p.line) for p in folder.problems()] == [
        ("context", 6),
        ("touched-twice", 14),
        ("context", 16),
    ]


# -- inside of a patch ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "missing"),
    [
        (DEP3, None),
        ("Description: x\nOrigin: y\n\n", None),
        ("From: A <a@b>\nSubject: x\n\n---\n", None),
        ("Description: x\n\n", "no Origin or Author at"),
        ("Author: x\n\n", "no Description at"),
        ("Description:\nAuthor: x\n\n", "no Description at"),
        ("", "no Description and no Origin or Author at"),
        ("Bug: x\n\n", "no Description and no Origin or Author at"),
    ],
)
def test_a_patch_says_why_and_whose_it_is(folder: Folder, head: str, missing: str | None) -> None:
    folder.bundle(head + PATCH)
    found = folder.problems()
    assert [p.kind for p in found] == (["dep3"] if missing else [])
    if missing:
        assert missing in found[0].message and found[0].severity == "warning"


def hunk(leading: int, trailing: int, start: int, *, removed: str = "-x\n") -> str:
    """A hunk by its context, with its header worked out."""
    size = leading + trailing + bool(removed)
    at = start if size else start - 1
    lines = [f" {n}\n" for n in range(leading)] + [removed, "+new\n"]
    lines += [f" {n}\n" for n in range(trailing)]
    return f"@@ -{at},{size} +{start},{leading + trailing + 1} @@\n" + "".join(lines)


def one_file(*hunks: str, name: str = "six.py") -> str:
    return f"{DEP3}--- a/{name}\n+++ b/{name}\n" + "".join(hunks)


@pytest.mark.parametrize(
    ("hunks", "expected"),
    [
        ([hunk(3, 3, 10)], []),
        ([hunk(3, 0, 10)], []),  # the end of the file, as every diff writes it
        ([hunk(3, 1, 10)], []),
        ([hunk(0, 3, 1)], []),  # its start
        ([hunk(2, 3, 1)], []),
        ([hunk(2, 3, 2)], ["hunk 1 has fewer than 3 lines of context: 2 before"]),
        ([hunk(0, 0, 5)], ["hunk 1 has fewer than 3 lines of context: 0 before"]),
        ([hunk(0, 0, 5, removed="")], ["hunk 1 has fewer than 3 lines of context: 0 before"]),
        ([hunk(0, 0, 1, removed="")], []),
        ([hunk(0, 0, 2, removed="")], ["hunk 1 has fewer than 3 lines of context: 0 before"]),
        (
            [hunk(3, 2, 10), hunk(3, 3, 30), hunk(1, 1, 50), hunk(1, 1, 60)],
            [
                "hunk 1 has fewer than 3 lines of context: 2 after",
                "hunk 3 has fewer than 3 lines of context: 1 before and 1 after",
                "hunk 4 has fewer than 3 lines of context: 1 before",
            ],
        ),
    ],
)
def test_context_that_the_patch_itself_shows_to_be_short(
    folder: Folder, hunks: list[str], expected: list[str]
) -> None:
    folder.bundle(one_file(*hunks))
    found = [p for p in folder.problems() if p.kind == "context"]
    assert [p.message for p in found] == expected
    assert all(p.severity == "warning" and p.hint for p in found)
    if expected and len(hunks) == 1:
        assert found[0].line == 6


def test_new_and_deleted_files_have_no_context(folder: Folder) -> None:
    folder.bundle(
        DEP3
        + "--- /dev/null\n+++ b/six.py\n@@ -0,0 +1 @@\n+a\n"
        + "--- a/seven.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    )
    assert folder.problems() == []


GIT = "diff --git a/{0} b/{1}\n"


def whole(verb: str, old: str, new: str) -> str:
    """A file renamed or copied as it is."""
    head = GIT.format(old, new) + "similarity index 100%\n"
    return f"{head}{verb} from {old}\n{verb} to {new}\n"


@pytest.mark.parametrize(
    ("patch", "twice"),
    [
        (one_file(hunk(3, 3, 9)) + one_file(hunk(3, 3, 90))[len(DEP3) :], True),
        (one_file(hunk(3, 3, 9)) + one_file(hunk(3, 3, 9), name="b.py")[len(DEP3) :], False),
        (  # Two names swapped.
            DEP3 + whole("rename", "a", "six.py") + whole("rename", "six.py", "a"),
            False,
        ),
        (  # One file copied twice and changed.
            DEP3 + whole("copy", "six.py", "b") + whole("copy", "six.py", "c")
            + GIT.format("six.py", "six.py") + one_file(hunk(3, 3, 9))[len(DEP3) :],
            False,
        ),
        (  # Renamed, and then changed under its new name.
            DEP3 + whole("rename", "a", "six.py")
            + GIT.format("six.py", "six.py") + one_file(hunk(3, 3, 9))[len(DEP3) :],
            True,
        ),
        (  # Deleted, and then made anew.
            DEP3 + "--- a/six.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
            + "--- /dev/null\n+++ b/six.py\n@@ -0,0 +1 @@\n+b\n",
            False,
        ),
    ],
)  # fmt: skip
def test_a_file_touched_twice_in_one_patch(folder: Folder, patch: str, twice: bool) -> None:
    folder.bundle(patch)
    found = folder.problems()
    assert [p.kind for p in found] == (["touched-twice"] if twice else [])
    if twice:
        assert found[0].message == "six.py is touched twice in one patch"
        assert found[0].severity == "warning" and found[0].line


def test_line_ends_that_do_not_agree(folder: Folder) -> None:
    crlf = PATCH[PATCH.index(" 4") :].replace("\n", "\r\n")
    head = DEP3 + PATCH[: PATCH.index(" 4")]
    folder.bundle(head + crlf)  # A file with CR LF, as git writes its patch.
    assert folder.problems() == []
    folder.bundle(head + crlf.replace("+seven\r", "+seven"))
    (only,) = folder.problems()
    assert (only.kind, only.severity, only.line) == ("line-ends", "warning", 11)
    assert only.message == "7 lines of six.py hold a CR, 1 do not"
    folder.bundle(DEP3 + PATCH.replace("+seven", "+seven\r"))
    (only,) = folder.problems()
    assert (only.kind, only.line) == ("line-ends", 11)
    assert only.message == "1 lines of six.py hold a CR, 7 do not"
    folder.bundle((DEP3 + PATCH).replace("\n", "\r\n"))
    (only,) = folder.problems()
    assert (only.kind, only.line) == ("line-ends", 4)
    assert only.message == "a header line ends in CR LF"


def test_a_no_newline_mark_has_the_line_end_of_the_patch(folder: Folder) -> None:
    body = (
        " 4\r\n 5\r\n 6\r\n-7\n\\ No newline at end of file\n+seven\n\\ No newline at end of file\n"
    )
    body = body.replace("-7\n", "-7\r\n").replace("+seven\n", "+seven\r\n")
    folder.bundle(f"{DEP3}--- a/six.py\n+++ b/six.py\n@@ -4,4 +4,4 @@\n{body}")
    assert folder.problems() == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("flashinfer/data/csrc/a.cu", True),
        ("a/include/x.CUH", True),
        ("a.h", True),
        ("a.hpp", True),
        ("csrc/x.jinja", True),
        ("csrc/x.cu.j2", True),
        ("csrc/x.jinja2", True),
        ("flashinfer/jit/comm.py", True),
        ("flashinfer/jit/sub/comm.py", True),
        ("flashinfer/jit.py", False),
        ("sglang/jit_kernel/x.py", False),
        ("flashinfer/comm.py", False),
        ("cu", False),
        ("a.cpp", True),
        ("flashinfer/jit/notes.txt", False),
    ],
)
def test_what_a_jit_compiles(path: str, expected: bool) -> None:
    assert (is_compiled(path) or is_generator(path)) is expected
    assert not (is_compiled(path) and is_generator(path))


def test_a_bundle_that_touches_jit_sources_names_a_cache(folder: Folder) -> None:
    patch = (
        one_file(hunk(3, 3, 9), name="x.py") + one_file(hunk(3, 3, 9), name="six.cu")[len(DEP3) :]
    )
    assertion = ASSERT.replace("six.py", "six.cu")
    folder.bundle(patch, more=assertion)
    (only,) = folder.problems()
    assert (only.kind, only.severity, only.file) == ("no-cache", "error", "patches/demo/a.patch")
    assert only.message.startswith("six.cu ") and only.line == 15
    folder.bundle(patch, more=assertion + "[caches]\nflashinfer-jit = ['six']\n")
    assert folder.problems() == []
    folder.bundle(one_file(hunk(3, 3, 9), name="é.h"), more=ASSERT.replace("six.py", "é.h"))
    (only,) = folder.problems()
    assert only.message == "é.h is compiled by a JIT; no cache is named"
    gone = DEP3 + "--- a/six.cuh\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    folder.bundle(gone, more=ASSERT.replace("six.py", "six.cuh"))
    assert folder.kinds() == ["error no-cache"]


# -- assertions -------------------------------------------------------------------------


def test_an_assertion_on_another_distribution_is_an_error(folder: Folder) -> None:
    folder.bundle(more=ASSERT + ASSERT.replace("six", "sevn", 1))
    (only,) = folder.problems()
    assert (only.kind, only.severity) == ("assertion-target", "error")
    assert only.message == "assert[1].distribution: no target is sevn"


def test_a_profile_alone_may_look_at_any_distribution(folder: Folder) -> None:
    folder.manifest(ASSERT + "[profile]\nargs = ['x']")
    assert folder.problems() == []


@pytest.mark.parametrize(
    ("header", "file", "touched"),
    [
        ("a/six.py", "six.py", True),
        ("a/python/sglang/srt/x.py", "sglang/srt/x.py", True),
        ("a/csrc/x.cuh", "flashinfer/data/csrc/x.cuh", True),
        ("srt/x.py", "sglang/srt/x.py", True),
        ("a/sglang/srt/x.py", "sglang/srt/y.py", False),
        ("a/sglang/srt/x.py", "x.py", True),
        ("a/sglang/x.py", "sglang/srt/x.py", False),
        ("a/xsix.py", "six.py", False),
    ],
)
def test_an_assertion_on_a_file_that_no_patch_touches_is_a_warning(
    folder: Folder, header: str, file: str, touched: bool
) -> None:
    other = "b/" + header[2:] if header.startswith("a/") else header
    patch = f"{DEP3}--- {header}\n+++ {other}\n" + hunk(3, 3, 9)
    folder.bundle(patch, more=ASSERT.replace("six.py", file) + "[caches]\nflashinfer-jit = ['x']\n")
    found = folder.problems()
    assert [p.kind for p in found] == ([] if touched else ["assertion-file"])
    if not touched:
        assert found[0].severity == "warning" and file in found[0].message


def test_an_assertion_for_named_releases_may_look_at_other_files(folder: Folder) -> None:
    """What the patched code relies on stands elsewhere, in some releases."""
    patch = f"{DEP3}--- a/six.py\n+++ b/six.py\n" + hunk(3, 3, 9)
    other = ASSERT.replace("six.py", "other.py").replace(
        "\nfile = ", '\nversions = ">=1.17"\nfile = ', 1
    )
    folder.bundle(patch, more=ASSERT + other)
    assert folder.kinds() == []


def test_new_and_deleted_files_count_as_touched(folder: Folder) -> None:
    folder.bundle(
        DEP3
        + "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+a\n"
        + "--- a/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        more=ASSERT.replace("six.py", "new.py") + ASSERT.replace("six.py", "old.py"),
    )
    assert folder.problems() == []


def test_a_file_is_not_missed_where_the_patch_cannot_be_read(folder: Folder) -> None:
    folder.bundle("no patch")
    assert folder.kinds() == ["error patch-syntax"]


def test_every_patched_distribution_needs_an_assertion(folder: Folder) -> None:
    folder.bundle(more="")
    (only,) = folder.problems()
    assert (only.kind, only.severity) == ("no-assertion", "warning")
    assert only.message == "target[0]: patches six, and no assertion judges it"
    second = target("demo/a.patch", distribution="other")
    merged = "[[target]]\ndistribution='third'\n[[target.variant]]\nversions=''\nupstream='x'\n"
    folder.bundle(more=second + merged + ASSERT)
    found = {problem.kind: problem.message for problem in folder.problems()}
    assert found == {
        "no-assertion": "target[1]: patches other, and no assertion judges it",
        "unproven": "target[2].variant[0]: no assertion proves that it is upstream",
    }


# -- against installed files ------------------------------------------------------------


def installed(data: bytes | None, path: str = "six.py") -> Callable[[str, str], bytes | None]:
    return lambda distribution, name: data if (distribution, name) == ("six", path) else None


NUMBERS = b"".join(b"%d\n" % n for n in range(1, 21))


def test_old_lines_that_stand_more_than_once_are_a_warning(folder: Folder) -> None:
    folder.bundle()
    assert folder.problems(target_bytes=installed(NUMBERS)) == []
    (only,) = folder.problems(target_bytes=installed(NUMBERS * 2))
    assert (only.kind, only.severity, only.line) == ("repeated", "warning", 6)
    assert only.message == "the old lines of hunk 1 stand 2 times: at 4, 24"
    (only,) = folder.problems(target_bytes=installed(NUMBERS * 7))
    assert only.message.endswith("stand 7 times: at 4, 24, 44, 64, 84, …")
    (only,) = folder.problems(target_bytes=installed(NUMBERS * 6))
    assert only.message.endswith("stand 6 times: at 4, 24, 44, 64, 84, …")
    (only,) = folder.problems(target_bytes=installed(NUMBERS * 5))
    assert only.message.endswith("at 4, 24, 44, 64, 84")
    assert folder.problems(target_bytes=installed(NUMBERS + b"4\n5\n")) == []
    assert folder.problems(target_bytes=installed(b"")) == []
    assert folder.problems(target_bytes=installed(None)) == []


def test_the_file_tells_whether_it_goes_on_behind_the_last_hunk(folder: Folder) -> None:
    short = PATCH.replace("-4,7 +4,7", "-4,5 +4,5").replace(" 9\n 10\n", "")
    folder.bundle(DEP3 + short)
    assert folder.problems() == []
    assert folder.problems(target_bytes=installed(NUMBERS[: NUMBERS.index(b"9\n")])) == []
    one_more = NUMBERS[: NUMBERS.index(b"10\n")]
    assert folder.kinds(target_bytes=installed(one_more)) == ["warning context"]
    (only,) = folder.problems(target_bytes=installed(NUMBERS))
    assert (only.kind, only.line) == ("context", 6)
    assert only.message == "hunk 1 has fewer than 3 lines of context: 1 after"


def test_a_hunk_before_the_last_is_named_once(folder: Folder) -> None:
    first = PATCH[PATCH.index("@@") :].replace("-4,7 +4,7", "-4,5 +4,5").replace(" 9\n 10\n", "")
    second = "@@ -14,7 +14,7 @@\n 14\n 15\n 16\n-17\n+x\n 18\n 19\n 20\n"
    folder.bundle(one_file(first, second))
    (only,) = folder.problems(target_bytes=installed(NUMBERS))
    assert only.message == "hunk 1 has fewer than 3 lines of context: 1 after"


def test_only_the_installed_releases_variant_is_held_against_its_files(folder: Folder) -> None:
    folder.bundle()
    folder.patch(DEP3 + PATCH.replace(" 8\n 9\n 10\n", "").replace("4,7", "4,4"), "demo/b.patch")
    text = target("demo/a.patch", versions="==1")
    text += "[[target.variant]]\nversions = '==2'\npatches = ['demo/b.patch']\n"
    folder.manifest(text + ASSERT)
    folder.lock()
    both = installed(NUMBERS * 2)
    assert len(folder.problems(target_bytes=both)) == 2
    for versions, count in (
        ({"six": "1"}, 1),
        ({"six": "2"}, 1),
        ({"six": "3"}, 0),
        ({}, 0),
    ):
        assert len(folder.problems(target_bytes=both, versions=versions)) == count
    folder.manifest(text.replace("==2", ">=1") + ASSERT)
    assert folder.kinds(target_bytes=both, versions={"six": "1"}) == ["error overlap"]


def test_the_file_is_found_by_the_strip_level(folder: Folder) -> None:
    deep = DEP3 + PATCH.replace("a/six.py", "a/python/six/six.py").replace(
        "b/six.py", "b/python/six/six.py"
    )
    folder.bundle(deep, more=ASSERT)
    twice = installed(NUMBERS * 2, "six/six.py")
    assert folder.kinds(target_bytes=twice) == ["warning repeated"]
    text = target("demo/a.patch") + ASSERT
    for strip, count in ((1, 0), (2, 1), (3, 0), (9, 0)):
        folder.manifest(text.replace("versions", f"strip = {strip}\nversions", 1))
        assert len(folder.problems(target_bytes=twice)) == count


@pytest.mark.parametrize("path", ["/etc/six.py", "a/../../six.py", "../six.py"])
def test_no_file_outside_of_the_distribution_is_asked_for(folder: Folder, path: str) -> None:
    asked: list[str] = []

    def target_bytes(distribution: str, name: str) -> bytes | None:
        asked.append(name)
        return None

    folder.bundle(DEP3 + PATCH.replace("a/six.py", path).replace("b/six.py", path))
    folder.problems(target_bytes=target_bytes)
    assert asked and all(not name.startswith("/") and ".." not in name for name in asked)


def test_new_deleted_and_unread_files_are_not_held_against_anything(folder: Folder) -> None:
    folder.bundle(
        DEP3
        + "--- /dev/null\n+++ b/six.py\n@@ -0,0 +1 @@\n+1\n"
        + "--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"
        + "diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n"
    )
    assert folder.problems(target_bytes=lambda _, path: b"1\n2\n") == []
    folder.bundle("no patch")
    assert folder.kinds(target_bytes=lambda _, path: b"") == ["error patch-syntax"]


def test_a_hunk_without_old_lines_stands_nowhere(folder: Folder) -> None:
    folder.bundle(one_file(hunk(0, 0, 1, removed="")))
    assert folder.problems(target_bytes=installed(b"")) == []


# -- the second opinion -----------------------------------------------------------------

BODY = "--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n"
MODE = "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"

#: Patches that unidiff 1.0.1 reads otherwise than they are, by the rule that leaves each out.
UNIDIFF_IS_WRONG = {
    "CRLF headers": BODY.replace("\n", "\r\n"),
    "CRLF headers of git": ("diff --git a/y b/y\n" + BODY).replace("\n", "\r\n"),
    "a quoted name": BODY.replace("a/y", '"a/\\303\\251"').replace("b/y", '"b/\\303\\251"'),
    "a hunk header in prose": f"Subject: x\n@@ -1 +1 @@\n\n---\n{BODY}",
    "a git header in prose": f"as in\ndiff --git a/q b/q\n\n---\n{BODY}",
    "a file name in prose": f"+++ b/other\n\n---\n{BODY}",
    "a mode in prose": f"new file mode 100644\n\n---\n{BODY}",
    "a mark in prose": f"\\ No newline at end of file\n\n---\n{BODY}",
    "prose between files": f"{BODY}\nnew file mode 100644\n" + BODY.replace("y", "z"),
    "blanks in a name": BODY.replace("/y\n", "/x b/x\t\n"),
    "no prefix and blanks": "diff --git x y x y\n"
    + BODY.replace("a/y", "x y\t").replace("b/y", "x y\t"),
    "a deletion without its mode": "diff --git a/y b/y\n"
    + BODY.replace("b/y", "/dev/null").replace("+1 @", "+0,0 @").replace("+b\n", ""),
    "a mode before a plain file": f"{MODE}\n{BODY}",
    "a mark in another language": f"{BODY}\\ Kein Zeilenumbruch am Dateiende.\n",
}
UNIDIFF_IS_WRONG["blanks in a name"] = (
    "diff --git a/x b/x b/x b/x\n" + UNIDIFF_IS_WRONG["blanks in a name"]
)

#: Patches of uncommon form that it reads as they are.
UNIDIFF_IS_RIGHT = {
    "plain": BODY,
    "git": "diff --git a/y b/y\nindex 78981922613b..61780798228d 100644\n" + BODY,
    "a byte-order mark": "\ufeff" + BODY,
    "a time behind a tab": BODY.replace("a/y", "a/y\t2020-01-01 00:00:00.0 +0000"),
    "a time behind a blank": BODY.replace("a/y", "a/y 2020-01-01 00:00:00"),
    "a blank in a plain name": BODY.replace("a/y", "a/y z\t").replace("b/y", "b/y z\t"),
    "a blank at the end of a name": BODY.replace("a/y", "a/y "),
    "no prefix": BODY.replace("a/", "").replace("b/", ""),
    "other prefixes": BODY.replace("a/", "i/").replace("b/", "w/"),
    "old and new folder": BODY.replace("a/", "old/").replace("b/", "new/"),
    "a mail": f"From 1 Mon\nFrom: A\nSubject: x\n\n---\n y | 2 +-\n\n{BODY}-- \n2.40.1\n\n",
    "Subversion": f"Index: y\n{'=' * 67}\n{BODY}",
    "diff -r": f"Only in a: z\ndiff -u -r a/y b/y\n{BODY}",
    "both marks": BODY.replace("-a\n", "-a\n\\ No newline at end of file\n")
    + "\\ No newline at end of file\n",
    "a mark in another language inside": BODY.replace("-a\n", "-a\n\\ Kein Zeilenumbruch.\n"),
    "eaten blanks": "--- a/y\n+++ b/y\n@@ -1,3 +1,3 @@\n-a\n+b\n\n c\n",
    "blank lines behind": f"{BODY}\n\n\n{BODY.replace('y', 'z')}\n",
    "odd line ends": BODY.replace("-a", "-a\rb\x0c\u2028\x85\x1c"),
    "lines like headers": "--- a/y\n+++ b/y\n@@ -1,2 +1 @@\n--- a\n-+++ x\n+++ b\n",
    "a heading with a quote": BODY.replace("+1 @@", '+1 @@ x = "a"'),
    "emptied but kept": "--- a/y\n+++ b/y\n@@ -1 +0,0 @@\n-a\n",
    "filled": "--- a/y\n+++ b/y\n@@ -0,0 +1 @@\n+a\n",
    "added": "diff --git a/y b/y\nnew file mode 100644\n--- /dev/null\n+++ b/y\n"
    "@@ -0,0 +1 @@\n+a\n",
    "deleted": "diff --git a/y b/y\ndeleted file mode 100644\n--- a/y\n+++ /dev/null\n"
    "@@ -1 +0,0 @@\n-a\n",
    "added by its time": "--- o/y\t1970-01-01 00:00:00.0 +0000\n"
    "+++ n/y\t2020-01-01 00:00:00.0 +0000\n@@ -0,0 +1 @@\n+a\n",
    "renamed": "diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n"
    + BODY.replace("a/y", "a/x"),
    "copied": "diff --git a/x b/y\nsimilarity index 90%\ncopy from x\ncopy to y\n"
    + BODY.replace("a/y", "a/x"),
    "a mode before a git file": f"{MODE}diff --git a/y b/y\n{BODY}",
    "a plain file behind one of git": f"diff --git a/y b/y\n{BODY}{BODY.replace('y', 'z')}",
    "a mode alone": MODE,
    "a mode last": f"diff --git a/y b/y\n{BODY}{MODE}",
    "binary": "diff --git a/x b/x\nindex 1111111..2222222 100644\nGIT binary patch\nliteral 1\n"
    f"IcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\ndiff --git a/y b/y\n{BODY}",
}  # fmt: skip


def opinion(text: str) -> list[tuple[int, str]] | None:
    data = text.encode()
    patch = patchfile.parse(data, "x")
    theirs = lint._unidiff(data, patch)
    return None if theirs is None else lint._differences(patch, theirs)


@pytest.mark.parametrize("text", UNIDIFF_IS_WRONG.values(), ids=UNIDIFF_IS_WRONG)
def test_known_faults_of_unidiff_are_left_out_by_rule(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opinion(text) is None
    # And each rule is needed: without it, lint would report a difference.
    monkeypatch.setattr(lint, "_is_unidiffs_kind", lambda lines, patch: True)
    assert opinion(text)


@pytest.mark.parametrize("text", UNIDIFF_IS_RIGHT.values(), ids=UNIDIFF_IS_RIGHT)
def test_everything_else_is_compared_and_agrees(text: str) -> None:
    if "literal" in text:
        text = binary_patch() + f"diff --git a/y b/y\n{BODY}"
    assert opinion(text) == []


def binary_patch() -> str:
    import base64
    import zlib

    packed = zlib.compress(b"\0")
    line = chr(64 + len(packed)) + base64.b85encode(packed, pad=True).decode()
    return (
        "diff --git a/x b/x\nindex 1111111..2222222 100644\nGIT binary patch\n"
        f"literal 1\n{line}\n\nliteral 1\n{line}\n\n"
    )


def broken(change: Callable[[Patch], Patch]) -> Callable[[bytes, str], Patch]:
    """A reader with a fault."""
    return lambda data, name: change(patchfile.parse(data, name))


def replace(value: Any, **changes: Any) -> Any:
    return value._replace(**changes)


def on_hunk(**changes: object) -> Callable[[Patch], Patch]:
    def change(patch: Patch) -> Patch:
        (file,) = patch.files
        first = replace(file.hunks[0], **changes)
        changed: Patch = replace(patch, files=(replace(file, hunks=(first, *file.hunks[1:])),))
        return changed

    return change


@pytest.mark.parametrize(
    ("change", "words", "line"),
    [
        (on_hunk(old_text=b"4\n"), "unidiff reads other lines in this hunk", 6),
        (on_hunk(new_text=b""), "unidiff reads other lines in this hunk", 6),
        (on_hunk(old_start=5), "unidiff reads other line numbers: (4, 4)", 6),
        (on_hunk(new_start=5), "unidiff reads other line numbers: (4, 4)", 6),
        (
            lambda patch: replace(
                patch, files=(replace(patch.files[0], hunks=patch.files[0].hunks * 2),)
            ),
            "2 hunks; unidiff sees 1",
            4,
        ),
        (
            lambda patch: replace(patch, files=(replace(patch.files[0], old_path="a/x"),)),
            "the name a/x; unidiff reads 'a/six.py'",
            4,
        ),
        (
            lambda patch: replace(patch, files=(replace(patch.files[0], new_path="b/\x1b\udc80"),)),
            "the name b/\\x1b\\udc80; unidiff reads 'b/six.py'",
            4,
        ),
        (lambda patch: replace(patch, files=patch.files * 2), "2 files with hunks; unidiff sees 1",
         4),
        (
            lambda patch: replace(patch, files=(replace(patch.files[0], hunks=()),)),
            "0 files with hunks; unidiff sees 1",
            1,
        ),
    ],
)  # fmt: skip
def test_a_fault_of_our_own_reader_would_be_seen(
    folder: Folder, change: Callable[[Patch], Patch], words: str, line: int
) -> None:
    folder.bundle(more="")
    if "0 files" in words:  # Then the "+++" line is prose to the rules; judge it directly.
        data = (DEP3 + PATCH).encode()
        patch = patchfile.parse(data, "x")
        theirs = lint._unidiff(data, patch)
        assert theirs is not None
        assert lint._differences(change(patch), theirs) == [(line, words)]
        return
    found = [p for p in folder.problems(parse=broken(change)) if p.kind == "second-opinion"]
    assert [(p.message, p.line, p.severity) for p in found] == [(words, line, "error")]


line_texts = st.sampled_from(
    ["", "a", "b", "-x", "+x", "-- ", "--- a/x", "+++ b/x", "@@ -1 +1 @@", " ", "\\ No newline"]
) | st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=4)
sides = st.lists(line_texts, max_size=14)


@given(sides, st.data())
def test_both_readers_agree_on_what_difflib_writes(old: list[str], data: st.DataObject) -> None:
    new = list(old)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(new)))
        end = min(len(new), start + data.draw(st.integers(0, 3)))
        new[start:end] = data.draw(st.lists(line_texts, max_size=3))
    context = data.draw(st.integers(0, 4))
    old_lines, new_lines = ([f"{line}\n" for line in side] for side in (old, new))
    text = "".join(difflib.unified_diff(old_lines, new_lines, "a/x", "b/x", n=context))
    if text:
        assert opinion(text) == []
        (stat,) = diffstat(text.encode())
        matcher = difflib.SequenceMatcher(None, old_lines, new_lines).get_opcodes()
        changed = [one for one in matcher if one[0] != "equal"]
        assert stat == (
            "x", sum(e - s for *_, s, e in changed), sum(e - s for _, s, e, *_ in changed),
        )  # fmt: skip


def test_both_readers_agree_on_what_git_writes(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*args: str) -> bytes:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *args]
        return subprocess.run(
            command, cwd=tmp_path, env=env, check=True, capture_output=True
        ).stdout

    git("init", "-q")
    lines = [f"line {n}\n" for n in range(60)]
    (tmp_path / "kept.py").write_text("".join(lines))
    (tmp_path / "moved.py").write_text("".join(lines) + "m\n")
    (tmp_path / "gone.py").write_text("gone\n")
    (tmp_path / "mode.sh").write_text("x\n")
    (tmp_path / "bytes.bin").write_bytes(bytes(range(256)))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    (tmp_path / "end.txt").write_text("no end")
    git("add", "-A")
    git("commit", "-qm", "one")
    lines[3] = lines[40] = "changed\r\n"
    (tmp_path / "kept.py").write_text("".join(lines), newline="")
    (tmp_path / "moved.py").rename(tmp_path / "target.py")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("new\n")
    (tmp_path / "empty.py").touch()
    (tmp_path / "mode.sh").chmod(0o755)
    (tmp_path / "bytes.bin").write_bytes(bytes(range(255)))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe8\n")
    (tmp_path / "end.txt").write_text("no end either")
    git("add", "-A")
    git("commit", "-qm", "two", "-m", "words between")
    for data in (
        git("diff", "--binary", "-M", "HEAD~", "HEAD"),
        git("format-patch", "--stdout", "--binary", "-1"),
    ):
        patch = patchfile.parse(data, "x")
        theirs = lint._unidiff(data, patch)
        assert theirs is not None and lint._differences(patch, theirs) == []
        counted = git("diff", "--numstat", "-M", "HEAD~", "HEAD").decode().splitlines()
        expected = {}
        for row in counted:
            added, removed, path = row.split("\t")
            path = "target.py" if "=>" in path else path
            expected[path] = tuple(int(n) if n != "-" else 0 for n in (added, removed))
        assert {path: (added, removed) for path, added, removed in diffstat(data)} == expected


@given(st.lists(st.sampled_from(sorted(UNIDIFF_IS_RIGHT)), min_size=1, max_size=3))
def test_patches_put_together_are_still_right(names: list[str]) -> None:
    texts = [UNIDIFF_IS_RIGHT[name] for name in names if name != "binary"]
    text = "".join(t.removeprefix("\ufeff") for t in texts)
    try:
        found = opinion(text)
    except PatchSyntaxError:
        return
    assert not found


# -- diffstat ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*UNIDIFF_IS_WRONG.values(), *UNIDIFF_IS_RIGHT.values()])
def test_a_diffstat_counts_every_line(text: str) -> None:
    if "literal" in text:
        text = binary_patch() + f"diff --git a/y b/y\n{BODY}"
    data = text.encode()
    patch = patchfile.parse(data, "x")
    lines = split(data)
    expected = []
    for file in patch.files:
        bodies = [lines[one.line : one.line + len(one.signs)] for one in file.hunks]
        first = [line[:1] for body in bodies for line in body]
        expected.append((first.count(b"+"), first.count(b"-")))
    assert [found[1:] for found in diffstat(data)] == expected


def test_a_diffstat_has_git_s_paths() -> None:
    text = f"{MODE}diff --git a/y b/y\n{BODY}" + BODY.replace("a/y", "old/y").replace("b/", "new/")
    assert diffstat(text.encode()) == [("x", 0, 0), ("y", 1, 1), ("new/y", 1, 1)]
    assert diffstat(BODY.replace("a/y", "x/y").encode()) == [("b/y", 1, 1)]
    gone = "--- a/six.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    new = "--- /dev/null\n+++ b/six.py\n@@ -0,0 +1 @@\n+a\n"
    assert diffstat((gone + new).encode()) == [("six.py", 0, 1), ("six.py", 1, 0)]


def test_a_diffstat_comes_from_unidiff_and_from_us_where_they_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counted(list[object]):
        added, removed = 7, 8

    monkeypatch.setattr(lint, "_unidiff", lambda data, patch: [Counted()])
    monkeypatch.setattr(lint, "_differences", lambda patch, theirs: [])
    assert diffstat(BODY.encode()) == [("y", 7, 8)]
    monkeypatch.setattr(lint, "_differences", lambda patch, theirs: [(1, "x")])
    assert diffstat(BODY.encode()) == [("y", 1, 1)]


def test_a_diffstat_of_no_patch_is_an_error() -> None:
    with pytest.raises(PatchSyntaxError):
        diffstat(b"nothing")


def test_regions_leave_nothing_out() -> None:
    for text in [*UNIDIFF_IS_WRONG.values(), *UNIDIFF_IS_RIGHT.values()]:
        if "literal" in text:
            continue
        data = text.encode().removeprefix(b"\xef\xbb\xbf")
        patch = patchfile.parse(data, "x")
        lines = split(data)
        headers, outside = lint._regions(lines, patch)
        hunks = [one for file in patch.files for one in file.hunks]
        every = [line for header in headers for line in header] + outside
        for one in hunks:  # With their "@@" lines.
            every += lines[one.line - 1 : one.line + len(one.signs)]
        assert sorted(every) == sorted(lines)


def test_named_patches_are_each_once_and_in_order() -> None:
    text = 'schema = 1\nname = "demo"\nversion = "1"\n'
    text += target("demo/b", "demo/a") + target("demo/a", "demo/c", distribution="other")
    assert named_patches(parse_manifest(text.encode(), "demo")) == ["demo/b", "demo/a", "demo/c"]
