"""Promise 11: one bundle set on one release gives the same bytes and the same fingerprint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import releases
from tests.support.lab import ACME, ALPHA, BETA, DELTA, KERNEL, STATE, Lab, Site, write_tree
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)


def bundles(lab: Lab, where: Path | None = None) -> None:
    """``a`` and ``b`` meet in alpha; both span distributions or add and delete files."""
    first = ("acme/alpha.py", "    first_3 = 3\n", "    first_3 = 30\n    first_35 = 1\n")
    files = lab.diff(
        {"acme/old.py": ACME.files["acme/old.py"]}, {"acme/new.py": "n = 1\n"}, "--no-renames"
    )
    lab.bundle(
        "a", {"acme": lab.edit(first) + files, "bolt-kernels": lab.edit(DELTA)}, bundles=where
    )
    lab.bundle(
        "b", {"acme": lab.edit(ALPHA, BETA), "bolt-kernels": lab.edit(KERNEL)}, bundles=where
    )


def contents(site: Site) -> dict[str, bytes]:
    """What counts of a tree: paths and bytes, without patchkit's and installers' own."""
    return {
        path: (site / path).read_bytes()
        for path in releases.files(site.root)
        if not path.startswith(STATE) and ".dist-info" not in path and "__pycache__" not in path
    }


def fingerprint(lab: Lab, site: Site) -> str:
    value = lab.json(site, "status")["fingerprint"]
    assert isinstance(value, str) and len(value) == 64
    assert lab.json(site, "verify")["fingerprint"] == value
    return value


def test_wherever_and_however_it_is_installed(lab: Lab) -> None:
    """Paths of other lengths, link modes, a venv or a folder, pip or uv, another umask."""
    bundles(lab)
    sites = [
        lab.site(),
        lab.site(link_mode="hardlink"),
        lab.site(link_mode="symlink"),
        lab.venv(by_pip=True),
        lab.venv(link_mode="hardlink"),
    ]
    long = lab.folder("a folder with spaces and \N{GREEK SMALL LETTER LAMDA}") / "x" / "site"
    shutil.copytree(sites[0].root, long)
    sites.append(Site(long))
    seen = set()
    trees: list[dict[str, bytes]] = []
    for number, site in enumerate(sites):
        mask = ("022", "077", "002")[number % 3]
        prefix = ("sh", "-c", f'umask {mask}; exec "$@"', "sh")
        lab.run(site, "apply", "a", "b", prefix=prefix)
        seen.add(fingerprint(lab, site))
        trees.append(contents(site))
    assert len(seen) == 1
    assert all(tree == trees[0] for tree in trees)


def test_whoever_asks(lab: Lab) -> None:
    """Locale, time zone, hash seed, home, working directory, optimisation: no part of it."""
    bundles(lab)
    start = lab.site()
    seen = set()
    for env in (
        {"LC_ALL": "C", "PYTHONHASHSEED": "1", "TZ": "Pacific/Auckland"},
        {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2", "HOME": "/nonexistent"},
        {"PYTHONOPTIMIZE": "2", "PYTHONUTF8": "0", "LANG": "POSIX", "LC_ALL": None},
    ):
        site = lab.copy(start)
        lab.run(site, "apply", "a", "b", env=env, cwd=Path("/"))
        seen.add(fingerprint(lab, site))
    assert len(seen) == 1


def test_wherever_the_bundles_are(lab: Lab) -> None:
    bundles(lab)
    other = lab.folder("elsewhere") / "deeper"
    shutil.copytree(lab.bundles, other)
    os.utime(other / "manifests/a.toml", (1, 1))
    one, two = lab.site(), lab.site()
    lab.run(one, "apply", "a")
    lab.cli(*two.where, "--bundles", other, "apply", "a")
    assert fingerprint(lab, one) == fingerprint(lab, two)


def test_in_one_command_or_in_several(lab: Lab) -> None:
    bundles(lab)
    one, two = lab.site(), lab.site()
    lab.run(one, "apply", "a", "b")
    lab.run(two, "apply", "a")
    lab.run(two, "apply", "b")
    assert fingerprint(lab, one) == fingerprint(lab, two)
    assert contents(one) == contents(two)


def test_a_bundle_that_came_and_went_leaves_no_mark(lab: Lab) -> None:
    """A, then B, then A taken out, is B alone, in contents and in fingerprint."""
    bundles(lab)
    one, two = lab.site(), lab.site()
    lab.run(one, "apply", "a")
    lab.run(one, "apply", "b")
    lab.run(one, "revert", "a")
    lab.run(two, "apply", "b")
    assert fingerprint(lab, one) == fingerprint(lab, two)
    assert contents(one) == contents(two)


def test_a_second_time_is_the_first_time(lab: Lab) -> None:
    bundles(lab)
    site = lab.site()
    lab.run(site, "apply", "a", "b")
    first = fingerprint(lab, site)
    lab.run(site, "revert", "--all")
    lab.run(site, "apply", "a", "b")
    assert fingerprint(lab, site) == first
    lab.run(site, "apply", "a", "b")
    assert fingerprint(lab, site) == first


def test_a_dry_run_tells_the_fingerprint(lab: Lab) -> None:
    bundles(lab)
    site = lab.site()
    told = lab.json(site, "apply", "--dry-run", "a")["fingerprint"]
    lab.run(site, "apply", "a")
    assert fingerprint(lab, site) == told


def test_other_sets_have_other_fingerprints(lab: Lab) -> None:
    bundles(lab)
    start = lab.site()
    seen = []
    for names in (("a",), ("b",), ("a", "b")):
        site = lab.copy(start)
        lab.run(site, "apply", *names)
        seen.append(fingerprint(lab, site))
    assert len(set(seen)) == 3
    assert lab.json(start, "status")["fingerprint"] is None


def test_another_patch_under_the_same_name_is_another_fingerprint(lab: Lab) -> None:
    lab.bundle("a", {"acme": lab.edit(ALPHA)})
    one, two = lab.site(), lab.site()
    lab.run(one, "apply", "a")
    lab.bundle("a", {"acme": lab.edit((ALPHA[0], ALPHA[1], "    second_3 = 4711\n"))})
    lab.run(two, "apply", "a")
    assert fingerprint(lab, one) != fingerprint(lab, two)


def test_the_fingerprint_is_the_same_for_git_and_gnu_dialect(lab: Lab) -> None:
    """Contents are what counts, as long as the bundle says the same: bytes must be equal."""
    git = lab.edit(ALPHA)
    gnu = b"".join(
        line for line in git.splitlines(True) if not line.startswith((b"diff ", b"index "))
    )
    one, two = lab.site(), lab.site()
    lab.bundle("a", {"acme": git})
    lab.run(one, "apply", "a")
    lab.bundle("a", {"acme": gnu})
    lab.run(two, "apply", "a")
    assert contents(one) == contents(two)


def interpreters() -> list[str]:
    """Other interpreters here that can run patchkit."""
    found = []
    for path in sorted(Path(releases.BUILD / "venvs").glob("*/bin/python")):
        probe = [str(path), "-c", "import click, packaging, sys; print(sys.version_info[:2])"]
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
        if done.returncode == 0 and str(tuple(sys.version_info[:2])) not in done.stdout:
            found.append(str(path))
    return found


def test_every_interpreter_gives_the_same(lab: Lab) -> None:
    others = interpreters()
    if not others:
        pytest.skip("needs a second interpreter under build/venvs (dev.py test makes them)")
    bundles(lab)
    start = lab.site()
    seen = set()
    root = Path(__file__).resolve().parent.parent
    for python in (sys.executable, *others):
        site = lab.copy(start)
        env = {"PYTHONPATH": str(root)}
        lab.run(site, "apply", "a", "b", python=python, env=env)
        seen.add(fingerprint(lab, site))
    assert len(seen) == 1


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_in_either_order_the_bytes_are_the_same(lab: Lab, order: tuple[str, str]) -> None:
    """These two do not depend on each other."""
    bundles(lab)
    one, two = lab.site(), lab.site()
    lab.run(one, "apply", *order)
    lab.run(two, "apply", "a", "b")
    assert contents(one) == contents(two)


def test_a_plain_tree_gives_the_bytes_of_the_wheel(lab: Lab) -> None:
    wheel = lab.site(ACME)
    plain = Site(lab.folder("plain"))
    write_tree(plain.root, ACME.files)
    patch = lab.base / "fix.patch"
    patch.write_bytes(lab.edit(ALPHA, BETA))
    lab.run(wheel, "apply", patch)
    lab.run(plain, "apply", patch)
    for path in (ALPHA[0], BETA[0]):
        assert wheel.text(path) == plain.text(path)


def test_many_stacked_patches_give_what_git_gives(lab: Lab) -> None:
    """Twelve patches of one file, each made on top of the one before."""
    text = "".join(f"line {number}\n" for number in range(120))
    dist = Dist("acme", "1.0", {"acme/__init__.py": "", "acme/t.txt": text})
    site = lab.site(dist)
    patches, now = [], text
    for number in range(12):
        new = now.replace(f"line {number * 10}\n", f"line {number * 10} a\nmore {number}\n")
        patches.append(lab.diff({"acme/t.txt": now}, {"acme/t.txt": new}))
        now = new
    lab.bundle("stack", {"acme": patches})
    lab.run(site, "apply", "stack")
    assert site.text("acme/t.txt") == now
