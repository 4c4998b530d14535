"""Promises 1, 4 and 11 together: walks through applied sets, and patches of unusual shape.

Whatever the way to a set of bundles, the contents are those of a fresh apply of that set.
"""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

from tests import releases
from tests.support import wheels
from tests.support.lab import ACME, ALPHA, BETA, DELTA, STATE, Lab, Site
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)

OLD = {"acme/old.py": ACME.files["acme/old.py"]}


def contents(site: Site) -> dict[str, tuple[object, ...]]:
    found = releases.snapshot(site.root, ignore=(STATE,))
    return {path: (e.kind, e.mode, e.digest, e.target) for path, e in found.items()}


def walk_bundles(lab: Lab) -> tuple[str, ...]:
    """Five that meet in three files, add, delete, move and change modes."""
    first = ("acme/alpha.py", "    first_3 = 3\n", "    first_3 = 30\n    first_35 = 1\n")
    third = ("acme/alpha.py", "    third_3 = 203\n    third_4 = 204\n", "    third_4 = 204\n")
    mode = b"diff --git a/acme/tool.sh b/acme/tool.sh\nold mode 100755\nnew mode 100644\n"
    lab.bundle("a", {"acme": lab.edit(first) + lab.diff({}, {"acme/fresh/a.py": "a = 1\n"})})
    lab.bundle("b", {"acme": lab.edit(ALPHA, BETA), "bolt-kernels": lab.edit(DELTA)})
    lab.bundle("c", {"acme": lab.edit(third) + mode})
    lab.bundle("d", {"acme": lab.diff(OLD, {"acme/fresh/moved.py": OLD["acme/old.py"]}, "-M")})
    lab.bundle("e", {"acme": lab.diff({}, {"acme/fresh/e.py": ""})}, requires=["a"])
    return ("a", "b", "c", "d", "e")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_random_walk(lab: Lab, seed: int) -> None:
    generator = random.Random(seed)
    pristine = lab.site()
    site = lab.copy(pristine)
    before = site.picture()
    names = walk_bundles(lab)
    applied: list[str] = []
    for _ in range(12):
        some = generator.sample(names, generator.randint(1, 3))
        if generator.random() < 0.6:
            lab.run(site, "apply", *some)
        else:
            lab.run(site, "revert", *[name for name in some if name in applied], check=None)
        status = lab.json(site, "status")
        applied = [entry["name"] for entry in status["applied"]]
        lab.run(site, "verify", *applied)
        fresh = lab.copy(pristine)
        if applied:
            lab.run(fresh, "apply", *applied)
        assert contents(fresh) == contents(site), applied
        assert lab.json(fresh, "status")["fingerprint"] == status["fingerprint"]
        shutil.rmtree(fresh.root.parent)
        if not applied:
            assert site.differences(before) == []
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_one_file_in_two_sections_of_a_patch(lab: Lab) -> None:
    """A series of commits in one file: the second section is on top of the first."""
    site = lab.site()
    text = str(ACME.files[ALPHA[0]])
    middle = text.replace(ALPHA[1], ALPHA[2])
    last = middle.replace(ALPHA[2], "    second_3 = 7\n")
    data = lab.edit(ALPHA) + lab.diff({ALPHA[0]: middle}, {ALPHA[0]: last})
    lab.bundle("b", {"acme": data})
    before = site.picture()
    result = lab.run(site, "apply", "b", check=None)
    if result.exit_code:
        assert result.exit_code == 3 and site.differences(before) == []
    else:
        assert site.text(ALPHA[0]) == last
        lab.run(site, "revert", "--all")
        assert site.differences(before) == []


def test_deleted_by_one_patch_and_made_anew_by_the_next(lab: Lab) -> None:
    site = lab.site()
    anew = {"acme/old.py": "anew = 1\n"}
    lab.bundle("b", {"acme": [lab.diff(OLD, {}), lab.diff({}, anew)]})
    before = site.picture()
    answer = lab.json(site, "apply", "b")
    assert site.text("acme/old.py") == "anew = 1\n"
    changes = {file["path"]: file["change"] for file in answer["files"]}
    assert changes["acme/old.py"] == "modified"
    lab.run(site, "verify", "b")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_two_files_change_places(lab: Lab) -> None:
    """``a`` becomes ``b`` and ``b`` becomes ``a`` in one patch."""
    site = lab.site()
    data = (
        b"diff --git a/acme/alpha.py b/acme/beta.py\nsimilarity index 100%\n"
        b"rename from acme/alpha.py\nrename to acme/beta.py\n"
        b"diff --git a/acme/beta.py b/acme/alpha.py\nsimilarity index 100%\n"
        b"rename from acme/beta.py\nrename to acme/alpha.py\n"
    )
    lab.bundle("b", {"acme": data})
    before = site.picture()
    old = (site.text(ALPHA[0]), site.text(BETA[0]))
    result = lab.run(site, "apply", "b", check=None)
    if result.exit_code:
        assert result.exit_code == 3 and site.differences(before) == []
    else:
        assert (site.text(BETA[0]), site.text(ALPHA[0])) == old
        lab.run(site, "verify", "b")
        lab.run(site, "revert", "--all")
        assert site.differences(before) == []


def test_a_file_becomes_a_folder_and_back(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("b", {"acme": lab.diff(OLD, {"acme/old.py/x.py": "x = 1\n"}, "--no-renames")})
    before = site.picture()
    lab.run(site, "apply", "b")
    assert site.text("acme/old.py/x.py") == "x = 1\n"
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


@pytest.mark.parametrize(
    "name",
    ["a b.py", "caf\N{LATIN SMALL LETTER E WITH ACUTE}.py", 'quo"te.py', "tab\there.py", "b\\s.py"],
)
def test_names_that_git_quotes(lab: Lab, name: str) -> None:
    """Edited, and added; RECORD quotes them in its own way."""
    path = f"acme/{name}"
    text = "a = 1\nb = 2\nc = 3\n"
    # uv refuses some of these names in a wheel.
    site = lab.venv(Dist("acme", "1.0", {"acme/__init__.py": "", path: text}), by_pip=True)
    new = {path: text.replace("b = 2", "b = 20"), f"acme/new {name}": "n = 1\n"}
    lab.bundle("b", {"acme": lab.diff({path: text}, new, "--no-renames")})
    before = site.picture()
    lab.run(site, "apply", "b")
    assert site.text(path) == new[path]
    assert f"acme/new {name}" in [row[0] for row in releases.record_rows(site.root / ACME.info)]
    lab.run(site, "verify", "b")
    assert lab.json(site, "diff")["files"]
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_scripts_that_record_lists_outside_of_site_packages(lab: Lab) -> None:
    """``../../../bin/tool``: pristine or not is asked of it too, and it is never patched."""
    site = lab.venv(ACME)
    assert site.python is not None
    tool = site.python.parent / "tool"
    tool.write_text("#!/bin/sh\n")
    record = site.root / ACME.info / "RECORD"
    digest = "sha256=ypJBPWO0ewkhQ_n7crNUHFvX-ClKLHvLREVFg5trlpI"
    record.write_bytes(record.read_bytes() + f"../../../bin/tool,{digest},10\n".encode())
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    before = site.picture()
    lab.run(site, "apply", "b")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
    answer = lab.run(site, "--json", "verify", "--pristine", check=None).json
    assert all("bin/tool" in problem["file"] for problem in answer["problems"])


def test_one_bad_manifest_does_not_hide_the_others(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    (lab.bundles / "manifests/bad.toml").write_text("schema = 1\nname = [\n")
    lab.run(site, "apply", "good")
    lab.run(site, "verify", "good")
    result = lab.run(site, "list", check=None)
    assert "good" in result.stdout and "bad" in result.stdout + result.stderr


def test_a_site_packages_of_two_thousand_distributions(lab: Lab) -> None:
    """None of the others is read for a bundle that names one."""
    site = lab.site()
    for number in range(2000):
        info = site.root / f"p{number}-1.0.dist-info"
        info.mkdir()
        (info / "RECORD").write_text("broken,\x00")
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "b")
    lab.run(site, "verify", "b")
    lab.run(site, "revert", "--all")


def test_verify_opens_nothing_for_writing(lab: Lab) -> None:
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    site = lab.site()
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "b")
    lab.run(site, "verify", "b")  # patchkit's own byte-code is written here, if at all
    trace = lab.base / "trace"
    calls = "open,openat,openat2,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat"
    prefix = ("strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={calls}")
    lab.run(site, "verify", "b", prefix=prefix)
    lines = trace.read_text(errors="replace").splitlines()
    writes = [
        line
        for line in lines
        if ("O_WRONLY" in line or "O_RDWR" in line or "O_CREAT" in line or "open" not in line)
        and "/dev/" not in line
    ]
    assert writes == []


def test_installed_by_pip_with_target_and_uninstalled_by_pip(lab: Lab) -> None:
    """Reverted, pip finds everything where it put it and leaves nothing behind."""
    site = lab.venv(ACME, by_pip=True)
    lab.bundle("b", {"acme": lab.edit(ALPHA) + lab.diff({}, {"acme/fresh/x.py": "x = 1\n"})})
    lab.run(site, "apply", "b")
    assert site.python is not None
    subprocess.run([site.python, "-c", "import acme.fresh.x, acme.alpha"], check=True)
    lab.run(site, "revert", "--all")
    wheels.pip_uninstall("acme", python=site.python)
    assert list(site.root.glob("acme*")) == []
