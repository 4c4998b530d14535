"""Promise 6: no path in a patch or manifest, no symlink in the tree, leads a write outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import releases
from tests.support.lab import ACME, ALPHA, BOLT, DELTA, GAMMA, STATE, Lab, Site
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)

NEW = "@@ -0,0 +1 @@\n+evil = 1\n"


def new_file(path: str) -> bytes:
    return f"--- /dev/null\n+++ {path}\n{NEW}".encode()


def git_new_file(path: str) -> bytes:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n{NEW}"
    ).encode()


def refused(lab: Lab, site: Site, data: bytes, strip: int | None = 1) -> str:
    """Apply ``data`` as a bundle of acme and as a loose patch; both must leave all alone."""
    lab.bundle("evil", {"acme": data}, strip=strip)
    loose = lab.base / "evil.patch"
    loose.write_bytes(data)
    before, around = site.picture(), releases.snapshot(lab.base, ignore=("uv-cache",))
    said = []
    extra = [] if strip is None else ["--strip", str(strip)]
    for args in (["apply", "evil"], ["apply", *extra, str(loose)]):
        result = lab.run(site, *args, check=3)
        assert site.differences(before) == [], str(result)
        said.append(result.stderr)
    after = releases.snapshot(lab.base, ignore=("uv-cache",))
    assert releases.diff_snapshots(around, after, releases.IDENTITY) == []
    return said[0]


@pytest.mark.parametrize("strip", [0, 1, 2, None])
@pytest.mark.parametrize(
    "path",
    [
        "b/../../../evil.py",
        "b/acme/../../evil.py",
        "b/acme/sub/../../../evil.py",
        "b/acme/sub/..",
        "acme/sub/../../../evil.py",
        '"b/acme/\\056\\056/\\056\\056/evil.py"',
    ],
)
def test_dots_that_lead_out(lab: Lab, path: str, strip: int | None) -> None:
    refused(lab, lab.site(), new_file(path), strip)


@pytest.mark.parametrize(("path", "strip"), [("../evil.py", 0), ("b/../evil.py", 1)])
def test_dots_that_are_not_dropped(lab: Lab, path: str, strip: int) -> None:
    refused(lab, lab.site(), new_file(path), strip)


@pytest.mark.parametrize("path", ["../evil.py", "../../evil.py", "b/../evil.py"])
def test_a_new_file_that_nothing_places(lab: Lab, path: str) -> None:
    """No other file of the patch says where these dots start, so nobody knows where it goes."""
    refused(lab, lab.site(), new_file(path), None)


@pytest.mark.parametrize("strip", [0, None])
def test_an_absolute_path(lab: Lab, strip: int | None) -> None:
    target = lab.base / "outside.py"
    said = refused(lab, lab.site(), new_file(str(target)), strip)
    assert not target.exists()
    assert "outside.py" in said


def test_dots_that_stay_inside_are_refused_or_meant_well(lab: Lab) -> None:
    """``acme/sub/../x.py`` is inside; but no tool writes such a path."""
    site = lab.site()
    lab.bundle("odd", {"acme": new_file("b/acme/sub/../odd.py")})
    result = lab.run(site, "apply", "odd", check=None)
    assert result.exit_code in (0, 3)
    assert not (site / "odd.py").exists()


def linked_out(lab: Lab, site: Site) -> Path:
    """``acme/sub`` becomes a link to a folder elsewhere that has the same files."""
    outside = lab.folder("outside") / "sub"
    os.rename(site / "acme/sub", outside)
    (site / "acme/sub").symlink_to(outside)
    return outside


def test_a_linked_folder_an_edit(lab: Lab) -> None:
    site = lab.site()
    outside = linked_out(lab, site)
    before = releases.snapshot(outside)
    said = refused(lab, site, lab.edit(GAMMA))
    assert "acme/sub" in said
    assert releases.diff_snapshots(before, releases.snapshot(outside), releases.IDENTITY) == []


def test_a_linked_folder_a_new_file(lab: Lab) -> None:
    site = lab.site()
    outside = linked_out(lab, site)
    refused(lab, site, new_file("b/acme/sub/evil.py"))
    assert not (outside / "evil.py").exists()


def test_a_linked_folder_a_deletion(lab: Lab) -> None:
    site = lab.site()
    outside = linked_out(lab, site)
    refused(lab, site, lab.diff({GAMMA[0]: ACME.files[GAMMA[0]]}, {}))
    assert (outside / "gamma.py").exists()


def test_a_linked_folder_that_appears_while_applied(lab: Lab) -> None:
    """Revert and recovery follow no link either."""
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(GAMMA)})
    lab.run(site, "apply", "good")
    outside = linked_out(lab, site)
    before = releases.snapshot(outside)
    result = lab.run(site, "revert", "--all", check=3)
    assert "acme/sub" in result.stderr
    assert releases.diff_snapshots(before, releases.snapshot(outside), releases.IDENTITY) == []


def test_a_patch_that_makes_a_link_and_writes_through_it(lab: Lab) -> None:
    """CVE-2023-23946 of git: first a symbolic link, then a file behind it."""
    site = lab.site()
    outside = lab.folder("outside")
    link = (
        f"diff --git a/acme/door b/acme/door\nnew file mode 120000\n--- /dev/null\n"
        f"+++ b/acme/door\n@@ -0,0 +1 @@\n+{outside}\n\\ No newline at end of file\n"
    ).encode()
    through = git_new_file("acme/door/evil.py")
    before = releases.snapshot(outside)
    refused(lab, site, link + through)
    lab.bundle("both", {"acme": [link, through]})
    pristine = site.picture()
    lab.run(site, "apply", "both", check=3)
    assert site.differences(pristine) == []
    assert releases.diff_snapshots(before, releases.snapshot(outside), releases.IDENTITY) == []


def test_a_link_by_one_bundle_and_a_write_by_the_next(lab: Lab) -> None:
    site = lab.site()
    outside = lab.folder("outside")
    link = (
        f"diff --git a/acme/door b/acme/door\nnew file mode 120000\n--- /dev/null\n"
        f"+++ b/acme/door\n@@ -0,0 +1 @@\n+{outside}\n\\ No newline at end of file\n"
    ).encode()
    lab.bundle("link", {"acme": link})
    lab.bundle("through", {"acme": git_new_file("acme/door/evil.py")})
    lab.run(site, "apply", "link", check=None)
    lab.run(site, "apply", "through", check=3)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("kind", ["rename", "copy"])
def test_a_rename_that_leads_out(lab: Lab, kind: str) -> None:
    data = (
        "diff --git a/acme/old.py b/../../evil.py\nsimilarity index 100%\n"
        f"{kind} from acme/old.py\n{kind} to ../../evil.py\n"
    ).encode()
    refused(lab, lab.site(), data)


def test_a_rename_from_outside(lab: Lab) -> None:
    (lab.base / "secret.txt").write_text("secret\n")
    data = (
        b"diff --git a/../../secret.txt b/acme/stolen.txt\nsimilarity index 100%\n"
        b"copy from ../../secret.txt\ncopy to acme/stolen.txt\n"
    )
    refused(lab, lab.site(), data)


@pytest.mark.parametrize(
    "path",
    [
        ".patchkit/state.json",
        ".patchkit/evil",
        ".git/hooks/post-checkout",
        ".git/config",
        "acme/.git/config",
        "acme-1.0.dist-info/RECORD",
        "acme-1.0.dist-info/evil",
        "acme-1.0.dist-info/direct_url.json",
        "bolt_kernels-2.1.dist-info/METADATA",
    ],
)
def test_what_no_patch_may_touch(lab: Lab, path: str) -> None:
    site = lab.site()
    (site / ".git/hooks").mkdir(parents=True)
    said = refused(lab, site, git_new_file(path))
    assert path.rpartition("/")[2] in said


def test_an_edit_of_dist_info(lab: Lab) -> None:
    site = lab.site()
    path = f"{ACME.info}/METADATA"
    old = site.text(path)
    refused(lab, site, lab.diff({path: old}, {path: old + "Requires-Dist: evil\n"}))


def test_a_file_of_another_distribution(lab: Lab) -> None:
    """A bundle says which distributions it patches; a path into another is not its own."""
    site = lab.site()
    said = refused_bundle(lab, site, lab.edit(DELTA))
    assert DELTA[0] in said


def refused_bundle(lab: Lab, site: Site, data: bytes) -> str:
    lab.bundle("evil", {"acme": data})
    before = site.picture()
    result = lab.run(site, "apply", "evil", check=3)
    assert site.differences(before) == []
    return result.stderr


def test_the_state_folder_is_a_link(lab: Lab) -> None:
    site = lab.site()
    outside = lab.folder("outside")
    (site / STATE).symlink_to(outside)
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    before = site.picture()
    result = lab.run(site, "apply", "good", check=None)
    assert result.exit_code in (3, 4), str(result)
    assert list(outside.iterdir()) == []
    assert site.differences(before) == []


def test_a_state_that_names_paths_outside(lab: Lab) -> None:
    """The record on disk is input too: every path in it is turned to the outside."""
    site = lab.site()
    secret = lab.base / "secret.py"
    secret.write_bytes(str(ACME.files[ALPHA[0]]).encode().replace(b"103", b"1030", 1))
    lab.bundle("good", {"acme": lab.edit(ALPHA) + new_file("b/acme/new.py")})
    lab.run(site, "apply", "good")
    for path in (site / STATE).rglob("*"):
        if path.is_file() and path.suffix == ".json":
            text = path.read_text()
            for name in ("acme/alpha.py", "acme/new.py"):
                text = text.replace(f'"{name}"', '"../../../secret.py"')
            path.write_text(text)
    before = secret.read_bytes()
    result = lab.run(site, "revert", "--all", check=None)
    assert result.exit_code in (3, 4), str(result)
    assert secret.read_bytes() == before


@pytest.mark.parametrize("field", ["patch", "file", "name"])
def test_paths_in_a_manifest(lab: Lab, field: str) -> None:
    site = lab.site()
    lab.patch_file("good/acme-0001.patch", lab.edit(ALPHA))
    (lab.bundles / "secret.patch").write_bytes(lab.edit(ALPHA))
    patch = "../secret.patch" if field == "patch" else "good/acme-0001.patch"
    file = "../../../etc/hostname" if field == "file" else ALPHA[0]
    lab.bundle(
        "good",
        target=[
            {
                "distribution": "acme",
                "variant": [{"versions": ">=0", "strip": 1, "patches": [patch]}],
            }
        ],
        assert_=[{"distribution": "acme", "file": file, "pattern": ".", "message": "m"}],
    )
    if field == "name":
        manifest = lab.bundles / "manifests/good.toml"
        manifest.write_text(manifest.read_text().replace('"good"\n', '"../good"\n', 1))
    before = site.picture()
    result = lab.run(site, "apply", "good", check=3)
    assert ".." in result.stderr
    assert site.differences(before) == []


def test_a_bundle_is_a_name_not_a_path(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    for name in ("../manifests/good", "./good", "/good", str(lab.bundles / "manifests/good.toml")):
        result = lab.run(site, "apply", name, check=None)
        assert result.exit_code in (2, 3), str(result)
    assert ALPHA[1] in site.text(ALPHA[0])


def test_a_site_packages_behind_a_link_is_fine(lab: Lab) -> None:
    """``lib64 -> lib`` of a virtual environment, a home folder on another disk."""
    site = lab.site()
    link = lab.base / "link"
    link.symlink_to(site.root)
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    before = site.picture()
    lab.run(Site(link), "apply", "good")
    lab.run(site, "verify", "good")
    lab.run(Site(link), "revert", "--all")
    assert site.differences(before) == []


def test_a_top_level_module_is_inside(lab: Lab) -> None:
    """A distribution may be one file; its root is site-packages itself."""
    single = Dist("single", "1.0", {"single.py": "a = 1\nb = 2\nc = 3\n"})
    site = lab.site(single, BOLT)
    new = {"single.py": "a = 1\nb = 20\nc = 3\n"}
    lab.bundle("good", {"single": lab.diff(single.files, new)})
    lab.run(site, "apply", "good")
    assert site.text("single.py") == new["single.py"]
