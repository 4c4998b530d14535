"""``port``: a bundle carried to other releases, from the command line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from patchkit.carry.ranges import wider
from tests import releases
from tests.conftest import Cli
from tests.support.editable import CORE, checkout, installed_editable
from tests.support.lab import ACME, ALPHA, Lab
from tests.support.wheels import Dist, build_wheel

pytest_plugins = ("tests.support.fixtures",)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name, version in (
        *(("sglang", version) for version in ("0.5.7", "0.5.8", "0.5.9")),
        *(("flashinfer-python", version) for version in ("0.6.3", "0.6.4", "0.6.17")),
    ):
        wheel = releases.wheel(name, version)
        (folder / wheel.name).symlink_to(wheel)
    return folder


def shipped(folder: Path, name: str, without: str) -> Path:
    """A shipped bundle in a directory of its own, without the variant of one range."""
    import tomlkit

    (folder / "manifests").mkdir(parents=True)
    shutil.copytree(releases.ROOT / "patches" / name, folder / "patches" / name)
    document = tomlkit.parse((releases.ROOT / f"manifests/{name}.toml").read_text())
    document["conflicts"] = []
    for target in document["target"]:
        variants = target["variant"]
        for variant in list(variants):
            if variant["versions"] == without:
                for patch in variant["patches"]:
                    (folder / "patches" / patch).unlink()
                variants.remove(variant)
    (folder / f"manifests/{name}.toml").write_text(tomlkit.dumps(document))
    shutil.copy(releases.ROOT / f"manifests/{name}.lock", folder / f"manifests/{name}.lock")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sm120-fusion", "pcie-custom-allreduce"])
def test_a_real_bundle_arrives_at_the_bytes_that_were_written_by_hand(
    name: str, wheels: Path, tmp_path: Path, cli: Cli
) -> None:
    """From 0.5.8 to 0.5.9, where upstream changed what stands around the gates."""
    folder = shipped(tmp_path / "b", name, "==0.5.9")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    where = ("--offline", "--find-links", wheels)
    cli("--bundles", folder, "lint", "--update-lock", env=env, check=None)
    done = cli("--bundles", folder, "port", name, "--to", "0.5.9", *where, "--json", env=env).json
    (outcome,) = done["releases"]
    assert outcome["state"] == "ported", outcome
    roots = []
    for number, bundles in enumerate((folder, releases.ROOT)):
        root = tmp_path / f"site{number}"
        releases.install([releases.SGLANG, releases.FLASHINFER], root)
        cli("--root", root, "--bundles", bundles, "apply", name)
        roots.append(releases.snapshot(root, ignore=(".patchkit",)))
    assert releases.diff_snapshots(roots[0], roots[1], ("kind", "digest")) == []
    cli("--bundles", folder, "lint", env=env)
    (patch,) = sorted((folder / f"patches/{name}/sglang-0.5.9").glob("0001-*.patch"))
    text = patch.read_text()
    assert "Origin: ported from sglang 0.5.8" in text
    assert "\n+++ b/python/sglang/srt/" in text


# -- made ones --------------------------------------------------------------------------

PATH = ALPHA[0]
OLD = str(ACME.files[PATH])
DONE = {"distribution": "acme", "file": PATH, "text": ALPHA[2].strip(), "message": "not done"}


class Releases:
    """Releases of acme as wheels in a folder, and a bundle made for 1.0."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.env = {"XDG_CACHE_HOME": str(folder / "cache")}
        (folder / "wheels").mkdir()
        self.add("1.0", {})

    def add(self, version: str, files: dict[str, str], *, without: tuple[str, ...] = ()) -> None:
        kept = {path: data for path, data in ACME.files.items() if path not in without}
        build_wheel(Dist("acme", version, {**kept, **files}), self.folder / "wheels")

    def bundle(self, *asserts: dict[str, Any]) -> None:
        self.lab.patch_file("b/0001-alpha.patch", self.lab.edit(ALPHA))
        variant = {"versions": "==1.0", "strip": 1, "patches": ["b/0001-alpha.patch"]}
        self.lab.bundle(
            "b",
            target=[{"distribution": "acme", "variant": [variant]}],
            assert_=list(asserts or (DONE,)),
        )
        self.run("fetch", "acme==1.0", "--all")
        self.run("lint", "--update-lock", "b", check=None, source=False)

    def run(self, *args: str, check: int | None = 0, source: bool = True) -> Any:
        where = ("--offline", "--find-links", str(self.folder / "wheels")) if source else ()
        return self.lab.cli("--bundles", self.lab.bundles, *args, *where, env=self.env, check=check)

    def port(self, *args: str, check: int = 0) -> Any:
        return self.run("port", "b", *args, "--json", check=check).json

    def manifest(self) -> str:
        return (self.lab.bundles / "manifests/b.toml").read_text()

    def applied(self, version: str, files: dict[str, str]) -> dict[str, Any]:
        """The files of a release as the bundle leaves them."""
        site = self.lab.site(Dist("acme", version, {**ACME.files, **files}))
        self.lab.run(site, "apply", "b")
        self.lab.run(site, "verify", "b")
        return {path: site.text(path) for path in files}


@pytest.fixture
def acme(lab: Lab, tmp_path: Path) -> Releases:
    return Releases(lab, tmp_path)


def test_what_goes_on_as_it_is_widens_the_range(acme: Releases) -> None:
    later = "# a line more\n" + OLD
    acme.add("1.1", {PATH: later})
    acme.bundle()
    (outcome,) = acme.port("--to", "1.1")["releases"]
    assert outcome["state"] == "widened" and outcome["variant"] == ">=1.0,<=1.1"
    assert '">=1.0,<=1.1"' in acme.manifest()
    assert acme.applied("1.1", {PATH: later})[PATH] == later.replace(ALPHA[1], ALPHA[2])
    acme.run("lint", source=False)


def test_context_that_changed_is_merged_into_a_variant_of_its_own(acme: Releases) -> None:
    later = OLD.replace("    second_2 = ", "    changed_2 = ", 1)
    assert later != OLD
    acme.add("1.1", {PATH: later})
    acme.bundle()
    before = acme.manifest()
    dry = acme.port("--to", "1.1", "--dry-run")
    assert dry["releases"][0]["state"] == "ported" and acme.manifest() == before
    (outcome,) = acme.port("--to", "1.1")["releases"]
    assert outcome["base"] == "1.0"
    assert outcome["written"][0] == "patches/b/acme-1.1/0001-alpha.patch"
    assert acme.applied("1.1", {PATH: later})[PATH] == later.replace(ALPHA[1], ALPHA[2])
    again = acme.port("--to", "1.1")
    assert again["releases"][0]["state"] == "holds"


def test_a_range_that_claims_the_release_falsely_gives_it_up(acme: Releases) -> None:
    """Else two variants would be for it, and every command would refuse the bundle."""
    acme.add("1.1", {PATH: OLD.replace("    second_2 = 102\n", "    second_2 = 99\n")})
    acme.bundle()
    manifest = acme.lab.bundles / "manifests/b.toml"
    manifest.write_text(acme.manifest().replace("==1.0", ">=1.0,<2"))
    acme.run("lint", "--update-lock", "b", check=None, source=False)
    assert acme.run("matrix", "b", "--releases", "acme==1.1", check=1)
    (outcome,) = acme.port("--to", "1.1")["releases"]
    assert (outcome["state"], outcome["variant"]) == ("ported", "==1.1")
    assert '">=1.0,<2,!=1.1"' in acme.manifest()
    assert acme.run("lint", "b", source=False).exit_code == 0
    acme.run("matrix", "b", "--releases", "acme>=1")
    lock = (acme.lab.bundles / "manifests/b.lock").read_text()
    assert 'versions = ">=1.0,<2,!=1.1"\nreleases = ["1.0"]' in lock


def test_a_variant_for_that_release_alone_is_not_taken_away(acme: Releases) -> None:
    acme.add("1.1", {PATH: OLD.replace("    second_2 = 102\n", "    second_2 = 99\n")})
    acme.bundle()
    acme.port("--to", "1.1")
    other = acme.lab.bundles / "patches/b/acme-1.1/0001-alpha.patch"
    other.write_bytes(acme.lab.edit(ALPHA))
    acme.run("lint", "--update-lock", "b", check=None, source=False)
    before = acme.manifest()
    refused = acme.run("port", "b", "--to", "1.1", check=3).stderr
    assert "for acme 1.1 alone" in refused and "hint: take it out of" in refused
    assert acme.manifest() == before


def test_a_file_that_moved_takes_patch_and_assertion_along(acme: Releases) -> None:
    acme.add("1.1", {"acme/moved/deep.py": OLD, "acme/moved/__init__.py": ""}, without=(PATH,))
    acme.bundle()
    (outcome,) = acme.port("--to", "1.1")["releases"]
    assert outcome["state"] == "ported"
    text = acme.manifest()
    assert 'file = "acme/moved/deep.py"' in text and 'versions = "==1.1"' in text
    done = acme.run("matrix", "b", "--releases", "acme>=1.0", "--json").json
    assert [row["state"] for row in done["bundles"][0]["rows"]] == ["applies", "applies"]


def test_what_upstream_took_in_is_said_to_be_upstream(acme: Releases) -> None:
    acme.add("1.1", {PATH: OLD.replace(ALPHA[1], ALPHA[2])})
    acme.bundle()
    (outcome,) = acme.port("--to", "1.1")["releases"]
    assert outcome["state"] == "holds" and "upstream" in outcome["reason"]


def added(path: str, mode: str, *lines: str) -> bytes:
    head = f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
    return (head + f"@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{one}\n" for one in lines)).encode()


def test_a_file_that_a_patch_adds_keeps_its_mode_through_later_patches(acme: Releases) -> None:
    acme.add("1.1", {PATH: OLD.replace("    second_2 = ", "    changed_2 = ", 1)})
    acme.bundle()
    first = acme.lab.bundles / "patches/b/0001-alpha.patch"
    first.write_bytes(first.read_bytes() + added("acme/run.sh", "100755", "#!/bin/sh", "true"))
    more = b"--- a/acme/run.sh\n+++ b/acme/run.sh\n@@ -1,2 +1,3 @@\n #!/bin/sh\n+: more\n true\n"
    acme.lab.patch_file("b/0002-more.patch", more)
    manifest = acme.lab.bundles / "manifests/b.toml"
    text = manifest.read_text().replace('alpha.patch"', 'alpha.patch", "b/0002-more.patch"')
    manifest.write_text(text)
    acme.run("lint", "--update-lock", "b", check=None, source=False)
    (outcome,) = acme.port("--to", "1.1")["releases"]
    assert outcome["state"] == "ported"
    ported = "".join(
        path.read_text() for path in sorted((acme.lab.bundles / "patches/b/acme-1.1").iterdir())
    )
    assert ported.count("new file mode 100755") == 1 and ported.count(" 100755\n") == 2
    site = acme.lab.site(
        Dist("acme", "1.1", {**ACME.files, PATH: OLD.replace("second_2 =", "changed_2 =", 1)})
    )
    acme.lab.run(site, "apply", "b")
    assert (site / "acme/run.sh").stat().st_mode & 0o100


def test_a_patch_that_cannot_be_ported_is_named_with_the_reason(acme: Releases) -> None:
    acme.add("1.1", {PATH: OLD.replace("    second_2 = ", "    changed_2 = ", 1)})
    acme.bundle()
    patch = acme.lab.bundles / "patches/b/0001-alpha.patch"
    whole = patch.read_bytes()
    patch.write_bytes(whole + added("acme/extra.py", "100644", "1"))
    (edited,) = acme.port("--to", "1.1", check=3)["releases"]
    assert "0001-alpha.patch" in edited["reason"] and "lint --update-lock" in edited["reason"]
    link = added("acme/link", "120000", "alpha.py") + b"\\ No newline at end of file\n"
    patch.write_bytes(whole + link)
    acme.run("lint", "--update-lock", "b", check=None, source=False)
    (linked,) = acme.port("--to", "1.1", check=3)["releases"]
    assert "acme/link becomes a symlink" in linked["reason"]


def test_a_range_is_ported_release_after_release(acme: Releases) -> None:
    one = OLD.replace("    second_2 = ", "    changed_2 = ", 1)
    two = one.replace("    second_4 = ", "    changed_4 = ", 1)
    acme.add("1.1", {PATH: one})
    acme.add("1.2", {PATH: two})
    acme.bundle()
    outcomes = acme.port("--to", ">1.0")["releases"]
    assert [(o["version"], o["state"], o["base"]) for o in outcomes] == [
        ("1.1", "ported", "1.0"),
        ("1.2", "ported", "1.1"),
    ]
    assert acme.applied("1.2", {PATH: two})[PATH] == two.replace(ALPHA[1], ALPHA[2])


# -- conflicts --------------------------------------------------------------------------

OTHER = ALPHA[1].replace("103", "55")


def conflicting(acme: Releases) -> Path:
    acme.add("1.1", {PATH: OLD.replace(ALPHA[1], OTHER)})
    acme.bundle()
    done = acme.port("--to", "1.1", check=3)
    (outcome,) = done["releases"]
    assert outcome["state"] == "conflict" and not outcome["written"]
    return Path(outcome["folder"])


def test_a_conflict_leaves_the_three_sides_and_changes_nothing_else(acme: Releases) -> None:
    acme.add("1.1", {PATH: OLD.replace(ALPHA[1], OTHER)})
    acme.bundle()
    before = acme.manifest()
    folder = Path(acme.port("--to", "1.1", check=3)["releases"][0]["folder"])
    assert acme.manifest() == before
    assert (folder / f"1/{PATH}.base").read_text() == OLD
    assert (folder / f"1/{PATH}.ours").read_text() == OLD.replace(ALPHA[1], ALPHA[2])
    assert (folder / f"1/{PATH}.theirs").read_text() == OLD.replace(ALPHA[1], OTHER)
    assert "<<<<<<<" in (folder / f"1/{PATH}").read_text()
    assert "under way" in acme.run("port", "b", "--to", "1.1", check=3).stderr


def test_continue_takes_what_was_merged_by_hand(acme: Releases) -> None:
    folder = conflicting(acme)
    assert "marker" in acme.run("port", "b", "--continue", check=3).stderr
    (folder / f"1/{PATH}").write_text(OLD.replace(ALPHA[1], ALPHA[2]))
    (outcome,) = acme.port("--continue")["releases"]
    assert outcome["state"] == "ported"
    hunks = [(one["outcome"], one["reason"]) for one in outcome["files"][0]["hunks"]]
    assert hunks == [("merged", "by hand")]
    assert not folder.exists()
    later = OLD.replace(ALPHA[1], OTHER)
    assert acme.applied("1.1", {PATH: later})[PATH] == OLD.replace(ALPHA[1], ALPHA[2])


def test_continue_is_held_to_the_assertions(acme: Releases) -> None:
    folder = conflicting(acme)
    (folder / f"1/{PATH}").write_text(OLD.replace(ALPHA[1], OTHER + "    other = 2\n"))
    refused = acme.run("port", "b", "--continue", check=3).stderr
    assert "not yet" in refused and "a range without 1.1" in refused
    assert folder.exists()
    manifest = acme.lab.bundles / "manifests/b.toml"
    manifest.write_text(acme.manifest().replace('"message"', '"versions" = "!=1.1", "message"'))
    (outcome,) = acme.port("--continue")["releases"]
    assert outcome["state"] == "ported"


def test_continue_after_a_kill_does_not_write_twice(acme: Releases) -> None:
    """Killed between the bundle's files and the folder's end."""
    folder = conflicting(acme)
    (folder / f"1/{PATH}").write_text(OLD.replace(ALPHA[1], ALPHA[2]))
    kept = acme.folder / "kept"
    shutil.copytree(folder, kept)
    acme.port("--continue")
    written = acme.manifest()
    shutil.copytree(kept, folder)
    (outcome,) = acme.port("--continue")["releases"]
    assert outcome["state"] == "holds" and not folder.exists()
    assert acme.manifest() == written


def test_a_folder_that_a_kill_cut_short_is_made_anew(acme: Releases) -> None:
    folder = conflicting(acme)
    aside = folder.with_name("b.new")
    folder.rename(aside)
    (aside / "port.json").unlink()
    again = Path(acme.port("--to", "1.1", check=3)["releases"][0]["folder"])
    assert again == folder and (folder / "port.json").exists() and not aside.exists()
    acme.port("--abort")
    assert not folder.parent.exists()


def test_abort_leaves_no_trace(acme: Releases) -> None:
    folder = conflicting(acme)
    assert "is given up" in acme.run("port", "b", "--abort").stderr
    assert not folder.exists() and not folder.parent.exists()
    assert "was under way" in acme.run("port", "b", "--abort").stderr


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ((), "one of --to"),
        (("--to", "1.1", "--continue"), "one of --to"),
        (("--to", "bolt==1"), "does not patch bolt"),
        (("--continue",), "no port of b is under way"),
        (("--to", "9.9"), "9.9"),
    ],
)
def test_what_cannot_be_asked_for(args: tuple[str, ...], word: str, acme: Releases) -> None:
    acme.bundle()
    done = acme.run("port", "b", *args, check=None)
    assert done.exit_code in (2, 3) and word in done.stderr and "hint:" in done.stderr


def test_the_installed_release_is_ported_to(acme: Releases) -> None:
    later = OLD.replace("    second_2 = ", "    changed_2 = ", 1)
    acme.bundle()
    site = acme.lab.site(Dist("acme", "1.1", {**ACME.files, PATH: later}))
    acme.lab.cli(
        *(*site.where, "--bundles", acme.lab.bundles, "port", "b", "--to-installed", "--offline"),
        env=acme.env,
    )
    acme.lab.run(site, "apply", "b")
    assert site.text(PATH) == later.replace(ALPHA[1], ALPHA[2])


def test_what_is_installed_counts_and_not_another_release_of_that_version(acme: Releases) -> None:
    """A fork says that it is 1.1; the 1.1 at hand holds already what the fork does not."""
    acme.add("1.1", {PATH: OLD.replace(ALPHA[1], ALPHA[2])})
    acme.bundle()
    acme.run("fetch", "acme==1.1", "--all")
    later = OLD.replace("    second_2 = ", "    changed_2 = ", 1)
    site = acme.lab.site(Dist("acme", "1.1", {**ACME.files, PATH: later}))
    where = (*site.where, "--bundles", acme.lab.bundles, "--json", "port", "b", "--to-installed")
    (outcome,) = acme.lab.cli(*where, "--offline", env=acme.env).json["releases"]
    assert outcome["state"] == "ported"
    acme.lab.run(site, "apply", "b")
    assert site.text(PATH) == later.replace(ALPHA[1], ALPHA[2])


def test_an_editable_checkout_is_ported_to_as_head_has_it(lab: Lab) -> None:
    folder = checkout(lab)
    path = CORE[0].partition("/")[2]
    expression = f"s/{CORE[1].strip()}$/{CORE[2].strip()}/"
    lab.run(installed_editable(lab, folder, "uv"), "sed", "mine", path, expression)
    lab.git(folder, "tag", "v1.0")
    core = folder / CORE[0]
    (backend,) = folder.glob("**/backend.py")
    core.write_text(core.read_text().replace("second_2 = ", "changed_2 = ", 1))
    # Of another length: the bytecode of a backend of the same second and size is run as it is.
    backend.write_text(
        re.sub(r"(gitted-|gitted\\nVersion: )1\.0", r"\g<1>1.10", backend.read_text())
    )
    lab.git(folder, "commit", "-qam", "later")
    site = installed_editable(lab, folder, "pip")
    where = ("--offline", "--checkout", folder)
    (outcome,) = lab.json(site, "port", "mine", "--to-installed", *where)["releases"]
    assert (outcome["state"], outcome["version"]) == ("ported", "1.10")
    lab.run(site, "apply", "mine")
    lab.run(site, "verify", "mine")
    assert "changed_2 = " in core.read_text() and CORE[2] in core.read_text()


def test_what_is_not_installed_is_said_to_be_so(acme: Releases) -> None:
    acme.bundle()
    site = acme.lab.site(Dist("other", "1", {"other/__init__.py": ""}))
    where = (*site.where, "--bundles", acme.lab.bundles, "port", "b", "--to-installed")
    refused = acme.lab.cli(*where, "--offline", env=acme.env, check=3).stderr
    assert "none of what b patches is installed" in refused and "--python PATH" in refused


@pytest.mark.parametrize(
    ("versions", "version", "expected"),
    [
        ("==1.0", "1.1", ">=1.0,<=1.1"),
        ("==1.1", "1.0", ">=1.0,<=1.1"),
        (">=1.0,<1.2", "1.2", ">=1.0,<=1.2"),
        (">=1.0,<1.2", "1.3", None),
        ("==1.0", "1.2", None),
        ("==1.*", "2.0", None),
        (">=1.0", "1.1", None),
    ],
)
def test_a_range_grows_by_one_release_and_no_other(
    versions: str, version: str, expected: str | None
) -> None:
    assert wider(versions, version, ["1.0", "1.1", "1.2", "1.3", "2.0"]) == expected


def test_what_was_merged_and_fails_an_assertion_is_mended_by_hand(acme: Releases) -> None:
    """No line conflicts, and the release has another gate: a person opens that too."""
    gate = {"distribution": "acme", "file": PATH, "text": "gate", "absent": True, "message": "gate"}
    later = OLD.replace("    third_2 = ", "    gate = 1\n    third_2 = ", 1)
    assert later != OLD
    acme.add("1.1", {PATH: later})
    acme.bundle(DONE, gate)
    done = acme.run("port", "b", "--to", "1.1", check=3)
    assert 'versions = "!=1.1"' in done.stderr and "merge the files" not in done.stderr
    folder = acme.lab.bundles / ".port/b"
    merged = (folder / f"1/{PATH}").read_text()
    assert ALPHA[2] in merged and "gate" in merged
    assert "not yet" in acme.run("port", "b", "--continue", check=3).stderr
    (folder / f"1/{PATH}").write_text(merged.replace("    gate = 1\n", ""))
    (outcome,) = acme.port("--continue")["releases"]
    assert outcome["state"] == "ported"
    assert "gate" not in acme.applied("1.1", {PATH: later})[PATH]


def test_a_file_that_two_parts_of_a_patch_came_to_change_is_written_once() -> None:
    """The second of two diffs would else take back what the first one brings."""
    from patchkit.carry.series import patch_text
    from patchkit.model import FileState
    from patchkit.porting.model import FileResult, PatchResult
    from patchkit.writing.headers import Head

    class Target:
        def state(self, path: str) -> FileState | None:
            return FileState("file", 0o644, b"one\ntwo\n")

    files = (
        FileResult("merged", "a.py", "b.py", data=b"one, more\ntwo\n"),
        FileResult("merged", "c.py", "b.py", data=b"one, more\ntwo, too\n"),
    )
    target: Any = Target()
    made = patch_text(
        PatchResult("p", "merged", files),
        target,
        {},
        Head.of(b"--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-a\n+b\n", "p"),
        "",
    )
    assert made.count(b"diff --git") == 1
    assert b"-one\n" in made and b"+one, more\n+two, too\n" in made
