"""``capture``: hand edits become a bundle that is applied, and no edit is ever lost."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import releases
from tests.support.editable import CORE, checkout, dirty, installed_editable
from tests.support.lab import ACME, ALPHA, BETA, BOLT, KERNEL, STATE, Lab, Site, changed, numbered

pytest_plugins = ("tests.support.fixtures",)

NEW = numbered("fresh")


def wheels(lab: Lab) -> tuple[str, str]:
    return "--find-links", str(lab.base / "wheels")


def replace(path: Path, content: str, mode: int | None = None) -> None:
    """As editors do it: a new file in the place of the old one."""
    mode = path.stat().st_mode if mode is None else mode
    aside = path.with_name(path.name + ".new")
    aside.write_text(content)
    aside.chmod(mode)
    aside.rename(path)


def edit(site: Site, path: str, old: str, new: str) -> None:
    replace(site / path, changed(site.text(path), old, new))


def edit_all(site: Site) -> None:
    """Modified, added (in a new folder, too), deleted, and another mode."""
    edit(site, *ALPHA)
    (site / "acme/fresh").mkdir()
    (site / "acme/fresh/__init__.py").write_text("")
    (site / "acme/fresh/module.py").write_text(NEW)
    (site / "acme/sub/extra.txt").write_text("no line end")
    (site / "acme/old.py").unlink()
    replace(site / "acme/tool.sh", site.text("acme/tool.sh"), 0o644)
    # None of these is an edit.
    (site / "acme/alpha.py.orig").write_text("left by an editor\n")
    (site / "acme/__pycache__").mkdir(exist_ok=True)
    (site / "acme/__pycache__/alpha.cpython-399.pyc").write_bytes(b"\0")
    (site / "acme/core").write_bytes(b"\0" * 64)


def contents(site: Site) -> dict[str, releases.Entry]:
    """Files of the packages: what no capture may change."""
    return {
        path: entry
        for path, entry in site.picture().items()
        if not path.startswith(STATE)
        and ".dist-info" not in path
        and "__pycache__" not in path
        and entry.kind != "folder"
    }


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_edits_of_every_kind_become_a_bundle_that_is_applied(lab: Lab, installer: str) -> None:
    site = lab.venv(ACME, link_mode="hardlink", by_pip=installer == "pip")
    cache = releases.snapshot(lab.cache) if installer == "uv" else {}
    pristine = contents(site)
    edit_all(site)
    edited = contents(site)

    planned = lab.json(site, "capture", "mine", "acme", *wheels(lab), "--dry-run")
    assert not (lab.bundles / "manifests/mine.toml").exists()
    assert not (site / STATE).exists()
    done = lab.json(site, "capture", "mine", "acme", *wheels(lab), "-m", "What I changed")
    assert planned["captured"] == done["captured"]
    assert {one["path"]: one["change"] for one in done["captured"]} == {
        "acme/alpha.py": "modified",
        "acme/fresh/__init__.py": "added",
        "acme/fresh/module.py": "added",
        "acme/old.py": "deleted",
        "acme/sub/extra.txt": "added",
        "acme/tool.sh": "mode",
    }
    assert [one["file"] for one in done["left_out"]] == ["acme/core"]
    asserted = {one["file"]: one["lines"][3:] for one in done["asserts"]}
    # An empty file, one that goes, and a mode have nothing to say.
    assert asserted == {
        "acme/alpha.py": ['within = "second"', 'text = "second_3 = 1030"'],
        "acme/fresh/module.py": ['text = "def fresh():"'],
        "acme/sub/extra.txt": ['text = "no line end"'],
    }
    assert releases.diff_snapshots(edited, contents(site), releases.IDENTITY) == []
    if cache:
        assert releases.diff_snapshots(cache, releases.snapshot(lab.cache)) == []

    lab.run(site, "verify", "mine")
    assert [one["name"] for one in lab.json(site, "status")["applied"]] == ["mine"]
    lint = lab.json(site, "lint", "mine")
    assert lint["problems"] == []
    # The author's own bundle goes on anywhere, to the same bytes.
    other = lab.site(ACME)
    lab.run(other, "apply", "mine")
    ours = {p: (e.digest, e.mode & 0o111) for p, e in contents(site).items()}
    theirs = {p: (e.digest, e.mode & 0o111) for p, e in contents(other).items()}
    assert {p: ours[p] for p in ours if p not in ("acme/alpha.py.orig", "acme/core")} == theirs

    lab.run(site, "revert", "--all")
    for stray in ("acme/alpha.py.orig", "acme/core"):
        (site / stray).unlink()
    assert releases.diff_snapshots(pristine, contents(site)) == []
    assert not (site / "acme/fresh").exists()
    assert not (site / STATE).exists()
    lab.run(site, "verify", "--pristine")
    lab.run(site, "apply", "mine")
    assert site.text("acme/fresh/module.py") == NEW


def test_the_lock_knows_the_release_and_the_assertions_prove_the_edit(lab: Lab) -> None:
    site = lab.site(ACME)
    edit(site, *ALPHA)
    lab.bundle("same-file", {"acme": lab.edit(ALPHA)})
    drift = lab.run(site, "apply", "same-file", check=3)
    assert "patchkit capture NAME acme" in drift.stderr
    data = lab.json(site, "capture", "mine", "acme", *wheels(lab))
    assert [one["lines"][1:] for one in data["asserts"]] == [
        [
            'distribution = "acme"',
            'file = "acme/alpha.py"',
            'within = "second"',
            'text = "second_3 = 1030"',
        ]
    ]
    lock = (lab.bundles / "manifests/mine.lock").read_text()
    assert (
        f'"acme/alpha.py" = "{releases.snapshot(lab.site(ACME).root)["acme/alpha.py"].digest}"'
        in lock
    )
    (patch,) = (lab.bundles / "patches/mine/acme-1.0").iterdir()
    text = patch.read_text()
    assert text.startswith("Description: Mine\nOrigin: vendor, captured from acme 1.0\n")
    assert " @@ def second():\n" in text
    replace(site / "acme/alpha.py", site.text("acme/alpha.py").replace("1030", "103"))
    assert lab.run(site, "verify", check=1).exit_code == 1


def test_it_says_what_is_recorded_and_what_is_asserted(lab: Lab) -> None:
    site = lab.venv(ACME)
    edit(site, *ALPHA)
    args = ("capture", "mine", "acme", *wheels(lab))
    planned = lab.run(site, *args, "--dry-run").stdout
    assert "would be recorded as applied: mine\nfingerprint: " in planned
    done = lab.run(site, *args).stdout
    assert "\n\nnew assertions of the manifest, tried on the files before and after:\n\n" in done
    assert "\n\nrecorded as applied: mine\nfingerprint: " in done


def test_an_edit_on_top_of_a_bundle_becomes_one_that_requires_it(lab: Lab) -> None:
    site = lab.site(ACME)
    lab.bundle("below", {"acme": lab.edit(ALPHA, BETA)})
    lab.run(site, "apply", "below")
    patched = site.text("acme/alpha.py")
    edit(site, "acme/alpha.py", "second_3 = 1030\n", "second_3 = 2060\n")
    edit(site, "acme/sub/gamma.py", "green_3 = 103\n", "green_3 = 7\n")
    lab.run(site, "verify", check=1)
    # Named bundles and the record say where to look.
    lab.run(site, "capture", "above", *wheels(lab))
    assert 'requires = ["below"]' in (lab.bundles / "manifests/above.toml").read_text()
    lab.run(site, "verify", "above", "below")
    refused = lab.run(site, "revert", "below", check=3)
    assert "above is applied and requires below" in refused.stderr
    lab.run(site, "revert", "above")
    assert site.text("acme/alpha.py") == patched
    lab.run(site, "revert", "--all")
    lab.run(site, "verify", "--pristine")
    lab.run(site, "apply", "above")
    assert "second_3 = 2060" in site.text("acme/alpha.py")


def test_a_touched_kernel_names_the_module_that_is_built_of_it(lab: Lab) -> None:
    files = {
        **BOLT.files,
        "bolt/jit/__init__.py": "",
        "bolt/jit/comm.py": (
            "def gen_comm():\n    return gen_jit_spec('bolt_comm', ['csrc/kernel.cu'])\n\n\n"
            "def gen_other():\n    return gen_jit_spec('bolt_other', ['csrc/other.cu'])\n"
        ),
    }
    bolt = BOLT.__class__("bolt-kernels", "2.1", files)
    site = lab.site(bolt)
    edit(site, *KERNEL)
    data = lab.json(site, "capture", "kernel", "bolt-kernels", *wheels(lab))
    assert data["caches"] == {"flashinfer-jit": ["bolt_comm"]}
    assert lab.json(site, "lint", "kernel")["problems"] == []
    edit(site, "bolt/jit/comm.py", "['csrc/other.cu']", "['csrc/other.cu', 'more']")
    data = lab.json(site, "capture", "generator", "bolt-kernels", *wheels(lab))
    assert data["caches"] == {"flashinfer-jit": ["bolt_other"]}
    edit(site, "bolt/data/include/plain.h", "// plain 3\n", "// plain three\n")
    done = lab.run(site, "capture", "header", "bolt-kernels", *wheels(lab))
    assert "[caches] names plain; see that it is right" in done.stderr


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_an_editable_checkout_is_held_against_head(lab: Lab, installer: str) -> None:
    folder = checkout(lab)
    site = installed_editable(lab, folder, "uv" if installer == "uv" else "pip")
    core = folder / CORE[0]
    core.write_text(changed(core.read_text(), *CORE[1:]))
    (folder / "python/gitted/extra.py").write_text(NEW)
    (folder / "test/test_core.py").write_text("def test() -> None: pass\n")
    lab.run(site, "capture", "mine", "gitted")
    edited = dirty(lab, folder)
    lab.run(site, "verify", "mine")
    lab.run(site, "revert", "--all")
    assert dirty(lab, folder) == [" M test/test_core.py"]
    lab.run(site, "apply", "mine")
    assert dirty(lab, folder) == edited


def test_what_cannot_be_captured_is_refused_with_the_next_step(lab: Lab, tmp_path: Path) -> None:
    site = lab.site(ACME)
    nothing = lab.run(site, "capture", "mine", "acme", "--offline", check=3)
    assert "no hand edits" in nothing.stderr
    edit(site, *ALPHA)
    no_bytes = lab.run(site, "capture", "mine", "acme", "--offline", check=3)
    assert "--find-links" in no_bytes.stderr
    shipped = lab.cli(*site.where, "capture", "mine", "acme", *wheels(lab), check=3)
    assert "--bundles DIR" in shipped.stderr
    # A wheel of the same version that is not the one that was installed.
    wrong = ACME.__class__("acme", "1.0", {**ACME.files, ALPHA[0]: numbered("other")})
    elsewhere = tmp_path / "wrong"
    from tests.support.wheels import build_wheel

    build_wheel(wrong, elsewhere)
    other = lab.run(site, "capture", "mine", "acme", "--find-links", elsewhere, check=3)
    assert "another build is installed" in other.stderr
    shutil.rmtree(lab.child_env["HOME"] + "/.cache")
    lab.run(site, "capture", "mine", "acme", *wheels(lab))
    again = lab.run(site, "capture", "mine", "acme", *wheels(lab), check=3)
    assert "is applied already" in again.stderr
    edit(site, *BETA)
    lab.bundle("taken", {"acme": lab.edit(ALPHA)})
    taken = lab.run(site, "capture", "taken", "acme", *wheels(lab), check=3)
    assert "capture under another name" in taken.stderr
    assert "two_3 = 1030" in site.text("acme/beta.py")
    assert not (lab.bundles / "manifests/taken.lock").exists()


def test_a_patch_put_on_by_hand_is_recorded_as_the_bundle_that_it_is(lab: Lab) -> None:
    site = lab.site(ACME)
    lab.bundle("known", {"acme": lab.edit(ALPHA)})
    edit(site, *ALPHA)
    before = sorted(p.name for p in lab.bundles.rglob("*"))
    lab.run(site, "capture", "known", "acme", *wheels(lab))
    assert sorted(p.name for p in lab.bundles.rglob("*")) == before
    lab.run(site, "verify", "known")
    lab.run(site, "revert", "--all")
    lab.run(site, "verify", "--pristine")
    # An edit of the same line that is not the bundle's is never overwritten with it.
    edit(site, ALPHA[0], ALPHA[1], "    second_3 = 9\n")
    picture = site.picture()
    refused = lab.run(site, "capture", "known", "acme", *wheels(lab), check=3)
    assert "it is not what was edited" in refused.stderr
    assert site.differences(picture) == []


#: The calls by which patchkit puts a file in its place.
RENAMES = "rename,renameat,renameat2"


@pytest.mark.parametrize("how", ["signal=SIGKILL", "error=ENOSPC"])
def test_no_edit_is_lost_when_it_fails_or_is_killed_anywhere(lab: Lab, how: str) -> None:
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    site = lab.site(ACME)
    edit_all(site)
    (site / "acme/core").unlink()
    edited = contents(site)
    command = ("capture", "mine", "acme", *wheels(lab))
    lab.run(site, *command, "--dry-run")  # fills the cache of releases
    for number in range(1, 30):
        inject = f"inject={RENAMES}:{how}:when={number}"
        # Without -f: what git does in its scratch repository is not counted.
        prefix = ("strace", "-qq", "-o", "/dev/null", "-e", f"trace={RENAMES}", "-e", inject)
        done = lab.run(site, *command, check=None, prefix=prefix)
        assert releases.diff_snapshots(edited, contents(site), releases.IDENTITY) == [], number
        if done.exit_code == 0:
            break
        if how.startswith("error"):
            assert done.exit_code == 4, str(done)
            assert [p for p in lab.bundles.rglob("*") if p.is_file()] == []
            assert not (site / STATE / "state.json").exists()
        elif (site / STATE / "staged").exists():
            lab.run(site, "recover")
            assert releases.diff_snapshots(edited, contents(site), releases.IDENTITY) == []
        if (site / STATE / "state.json").exists():
            break
    else:
        pytest.fail("it never went through")
    assert number > 4
    if not (site / STATE / "state.json").exists():
        lab.run(site, *command)
    lab.run(site, "verify", "mine")
    lab.run(site, "revert", "--all")
    lab.run(site, "verify", "--pristine")
    assert os.path.exists(site / "acme/old.py")


def test_an_edit_written_through_a_hard_link_is_said(lab: Lab) -> None:
    site = lab.venv(ACME, link_mode="hardlink")
    path = site / ALPHA[0]
    with path.open("r+") as file:  # as some editors do it, and every shell's ">"
        file.write(changed(site.text(ALPHA[0]), *ALPHA[1:]))
    done = lab.run(site, "capture", "mine", "acme", *wheels(lab))
    assert "uv cache clean" in done.stderr
    lab.run(site, "verify", "mine")
    lab.run(site, "revert", "--all")
    lab.run(site, "verify", "--pristine")


@pytest.mark.parametrize(("answer", "expected"), [(b"y\n", 1), (b"n\n", 0)])
def test_a_person_on_a_terminal_confirms_the_assertions(
    lab: Lab, answer: bytes, expected: int
) -> None:
    site = lab.site(ACME)
    edit(site, *ALPHA)
    ours, theirs = pty.openpty()
    command = lab.command(site, "capture", "mine", "acme", *wheels(lab))
    with subprocess.Popen(
        command, env=lab.child_env, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = b""
        while not seen.rstrip().endswith(b"[Y/n]:"):
            seen += os.read(ours, 4096)
        os.write(ours, answer)
        assert process.wait(timeout=60) == 0
    os.close(ours)
    assert b'text = "second_3 = 1030"' in seen
    assert (lab.bundles / "manifests/mine.toml").read_text().count("[[assert]]") == expected
    lab.run(site, "verify", "mine")
