"""Corners of the promises: where two of their parts meet, or an environment is odd."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from patchkit.compiled import Clock
from patchkit.errors import Interrupted
from patchkit.here import me
from patchkit.model import Assertion
from patchkit.signals import held
from patchkit.state import render
from tests.conftest import Git
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    KERNEL,
    STATE,
    Lab,
    Site,
    needs_root,
    unprivileged,
    write_tree,
)
from tests.support.wheels import Dist

pytest_plugins = ("tests.support.fixtures",)


# --- one checkout, several roots ---------------------------------------------------------


@pytest.fixture
def checkout(lab: Lab, git: Git) -> Path:
    """Two folders with the same package, committed."""
    repository = lab.folder("repo") / "repo"
    for name in ("one", "two"):
        write_tree(repository / name, ACME.files)
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "all")
    return repository


def test_a_record_is_of_one_folder_of_a_checkout(lab: Lab, checkout: Path, git: Git) -> None:
    """They share a git directory, and with it the place of the record."""
    patch = lab.base / "fix.patch"
    patch.write_bytes(lab.edit(ALPHA))
    lab.cli("--root", checkout / "one", "apply", patch)
    changed = git(checkout, "status", "--short")
    for command in (("apply", patch), ("revert", "--all"), ("verify",), ("status",), ("recover",)):
        if command == ("recover",):
            continue  # nothing is unfinished: it reads no record
        result = lab.cli("--root", checkout / "two", *command, check=3)
        assert f"--root {checkout / 'one'}" in result.stderr, str(result)
    assert git(checkout, "status", "--short") == changed
    lab.cli("--root", checkout / "one", "verify", "fix.patch")
    lab.cli("--root", checkout / "one", "revert", "--all")
    assert git(checkout, "status", "--short") == ""
    assert not (checkout / ".git" / STATE).exists()


def test_a_kill_is_not_recovered_through_another_folder(lab: Lab, checkout: Path, git: Git) -> None:
    patch = lab.base / "fix.patch"
    patch.write_bytes(lab.edit(ALPHA) + lab.edit(BETA))
    journal = checkout / ".git" / STATE / "journal.json"
    lab.cli("--root", checkout / "one", "apply", patch)
    kept = checkout / ".git" / "kept"
    shutil.copytree(checkout / ".git" / STATE, kept)
    lab.cli("--root", checkout / "one", "revert", "--all")
    # An interrupted command of "one": its journal, before it had swapped anything.
    kept.rename(checkout / ".git" / STATE)
    (checkout / ".git" / STATE / "staged").mkdir()
    state = json.loads((checkout / ".git" / STATE / "state.json").read_bytes())
    (checkout / ".git" / STATE / "state.json").unlink()
    empty: dict[str, list[Any]] = {
        key: []
        for key in (
            *("make", "drop", "modules", "stash_pycs", "restore_pycs", "caches", "operations"),
        )
    }
    journal.write_bytes(
        render(
            {
                "schema": state["schema"],
                "base": state["base"],
                "by": me(),
                "command": "apply",
                "state": None,
                "prefix": None,
                **empty,
            }
        )
    )
    result = lab.cli("--root", checkout / "two", "recover", check=3)
    assert f"--root {checkout / 'one'}" in result.stderr


def test_a_plain_tree_in_a_checkout(lab: Lab, checkout: Path, git: Git) -> None:
    """git tracks nothing of it, so that it has no say: ignored, or new."""
    (checkout / ".gitignore").write_text("vendor/\n")
    for name in ("vendor", "fresh"):
        root = checkout / name
        write_tree(root, ACME.files)
        patch = lab.base / "fix.patch"
        patch.write_bytes(lab.edit(ALPHA))
        before = Site(root).picture()
        result = lab.cli("--root", root, "apply", patch)
        assert "taken as pristine" in result.stderr
        lab.cli("--root", root, "verify", "fix.patch")
        lab.cli("--root", root, "revert", "--all")
        assert Site(root).differences(before) == []
        assert not (checkout / ".git" / STATE).exists()


# --- what is pristine --------------------------------------------------------------------


def test_an_edited_record_is_not_made_pristine_by_another_bundle(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("add", {"acme": lab.diff({}, {"acme/new.py": "n = 1\n"})})
    lab.bundle("two", {"acme": lab.edit(BETA)})
    lab.run(site, "apply", "add")
    record = site.root / ACME.info / "RECORD"
    good = record.read_bytes()
    record.unlink()
    record.write_bytes(good + b"acme/else.py,,\n")
    before = site.picture()
    result = lab.run(site, "apply", "two", check=3)
    assert "RECORD" in result.stderr
    assert site.differences(before) == []
    assert lab.json(site, "verify", check=1)["problems"][0]["bundle"] == "add"


def test_a_renamed_file_that_came_back_is_not_taken_by_another_bundle(lab: Lab) -> None:
    site = lab.site()
    old = {"acme/old.py": ACME.files["acme/old.py"]}
    lab.bundle("move", {"acme": lab.diff(old, {"acme/newer.py": old["acme/old.py"]}, "-M")})
    lab.bundle("two", {"acme": lab.edit(BETA)})
    lab.run(site, "apply", "move")
    write_tree(site.root, old)
    before = site.picture()
    result = lab.run(site, "apply", "two", check=3)
    assert "acme/old.py" in result.stderr
    assert site.differences(before) == []


def record_row(algorithm: str, data: bytes) -> str:
    if not algorithm:
        return ",,"
    digest = urlsafe_b64encode(hashlib.new(algorithm, data).digest()).rstrip(b"=").decode()
    return f",{algorithm}={digest},{len(data)}"


@pytest.mark.parametrize("algorithm", ["sha512", "md5"])
def test_another_digest_than_sha256_in_record(lab: Lab, algorithm: str) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    rewrite_row(site, algorithm)
    before = site.picture()
    lab.run(site, "verify", "--pristine")
    lab.run(site, "apply", "one")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
    with (site / ALPHA[0]).open("a") as file:
        file.write("mine = 1\n")
    lab.run(site, "apply", "one", check=3)
    lab.run(site, "verify", "--pristine", check=1)


def test_a_file_without_a_digest_is_not_called_pristine(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    rewrite_row(site, "")
    answer = lab.json(site, "verify", "--pristine", check=1)
    assert [(p["kind"], p["file"]) for p in answer["problems"]] == [("not-pristine", ALPHA[0])]
    lab.run(site, "apply", "one", check=3)


def rewrite_row(site: Site, algorithm: str) -> None:
    record = site.root / ACME.info / "RECORD"
    rows = [
        ALPHA[0] + record_row(algorithm, (site / ALPHA[0]).read_bytes())
        if row.startswith(f"{ALPHA[0]},")
        else row
        for row in record.read_text().splitlines()
    ]
    record.write_text("\n".join(rows) + "\n")


# --- after a kill ------------------------------------------------------------------------


def test_a_cache_folder_that_vanished_does_not_stop_the_recovery(lab: Lab) -> None:
    """Somebody tidies up byte-code between the kill and the recovery."""
    site = lab.venv(ACME, by_pip=True)
    lab.bundle("one", {"acme": lab.edit(ALPHA) + lab.edit(BETA)})
    before = site.picture()
    killed_at_rename(lab, site, "one")
    for folder in site.root.rglob("__pycache__"):
        shutil.rmtree(folder)
    lab.run(site, "recover")
    left = [line for line in site.differences(before) if "__pycache__" not in line]
    assert left == []
    lab.run(site, "verify")


def test_one_file_that_cannot_be_undone_leaves_the_others_right(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA) + lab.diff({}, {"acme/fresh/n.py": "n = 1\n"})})
    old = site.text(ALPHA[0])
    killed_at_rename(lab, site, "one", last=True)
    shutil.rmtree(site / "acme/fresh", ignore_errors=True)
    (site / "acme/fresh").symlink_to("/tmp")
    lab.run(site, "recover", check=None)
    assert site.text(ALPHA[0]) == old
    (site / "acme/fresh").unlink()
    lab.run(site, "recover")
    lab.run(site, "verify", "--pristine")


def killed_at_rename(lab: Lab, site: Site, name: str, *, last: bool = False) -> None:
    """``apply`` ended by SIGKILL between two of its renames in the packages."""
    code = (
        "import os, sys\n"
        "from patchkit import journal\n"
        "def stop(*a, **k): os.kill(os.getpid(), 9)\n"
        "real = journal.must_be_as_seen\n"
        "seen = []\n"
        "def count(root, change):\n"
        "    seen.append(change)\n"
        f"    if len(seen) == 2 and not {last}: stop()\n"
        "    real(root, change)\n"
        "journal.must_be_as_seen = count\n"
        f"if {last}: journal._sync_targets = stop\n"
        "from patchkit.__main__ import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, *lab.command(site, "apply", name)[3:]]
    done = subprocess.run(
        [str(part) for part in command], env=lab.child_env, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    lab.run(site, "verify", check=1)


# --- caches ------------------------------------------------------------------------------


def built(lab: Lab, site: Site) -> Path:
    """A kernel that FlashInfer's JIT built, in the HOME of the children."""
    folder = Path(lab.child_env["HOME"]) / ".cache/flashinfer/0.6.3/120/cached_ops/kernel"
    folder.mkdir(parents=True)
    (folder / "kernel.so").write_bytes(b"pristine")
    lab.bundle(
        "jit",
        {"bolt-kernels": lab.edit(KERNEL)},
        caches={"flashinfer-jit": ["kernel"]},
    )
    return folder


def test_a_cache_that_cannot_be_set_aside_is_refused_beforehand(lab: Lab) -> None:
    site = lab.site()
    folder = built(lab, site)
    aside = Path(lab.child_env["HOME"]) / ".cache/flashinfer/patchkit-aside"
    aside.write_text("in the way")
    before = site.picture()
    result = lab.run(site, "apply", "jit", check=4)
    assert str(aside) in result.stderr
    assert site.differences(before) == []
    assert folder.exists()


def test_an_older_cache_that_was_set_aside_is_kept(lab: Lab) -> None:
    site = lab.site()
    folder = built(lab, site)
    lab.run(site, "apply", "jit")
    assert not folder.exists()
    for bytes_ in (b"patched", b"pristine again"):
        folder.mkdir()
        (folder / "kernel.so").write_bytes(bytes_)
        lab.run(site, "revert" if bytes_ == b"patched" else "apply", "jit")
    aside = Path(lab.child_env["HOME"]) / ".cache/flashinfer/patchkit-aside"
    found = sorted(path.read_bytes() for path in aside.rglob("kernel.so"))
    assert found == [b"patched", b"pristine", b"pristine again"]


def test_byte_code_under_a_prefix_is_removed(lab: Lab) -> None:
    """Also such as no change of time could tell from the new source's."""
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    prefix = lab.folder("pycache")
    stale = Path(f"{prefix}{site.root}/acme/alpha.cpython-311.pyc")
    other = Path(f"{prefix}{site.root}/acme/alpha.more.cpython-311.pyc")
    for command in (("apply", "one"), ("revert", "--all")):
        stale.parent.mkdir(parents=True, exist_ok=True)
        stale.write_bytes(b"old")
        other.write_bytes(b"of alpha.more")
        lab.run(site, *command, env={"PYTHONPYCACHEPREFIX": str(prefix)})
        assert not stale.exists()
        assert other.exists()


def test_byte_code_of_a_module_with_a_dot_in_its_name(lab: Lab) -> None:
    names = ("alpha", "alpha.more")
    dotted = Dist("acme", "1.0", {**ACME.files, "acme/alpha.more.py": ACME.files[ALPHA[0]]})
    site = lab.site(dotted)
    cache = site / "acme/__pycache__"
    cache.mkdir(exist_ok=True)
    before = {}
    for name in names:
        for tag in ("cpython-311", "cpython-311.opt-2", "pypy310"):
            before[cache / f"{name}.{tag}.pyc"] = f"{name} {tag}".encode()
    for path, data in before.items():
        path.write_bytes(data)
    edit = ("acme/alpha.more.py", ALPHA[1], ALPHA[2])
    old = {edit[0]: ACME.files[ALPHA[0]]}
    new = {edit[0]: str(ACME.files[ALPHA[0]]).replace(edit[1], edit[2])}
    lab.bundle("one", {"acme": lab.diff(old, new)})
    lab.run(site, "apply", "one")
    left = {path.name for path in cache.iterdir()}
    assert left == {path.name for path in before if not path.name.startswith("alpha.more")}
    lab.run(site, "revert", "--all")
    assert {path: path.read_bytes() for path in cache.iterdir()} == before


def test_a_patch_of_byte_code_is_refused(lab: Lab) -> None:
    site = lab.site()
    patch = lab.base / "fix.patch"
    new = {"acme/z.py": "z = 1\n", "acme/__pycache__/z.cpython-311.pyc": "junk\n"}
    patch.write_bytes(lab.diff({}, new))
    before = site.picture()
    result = lab.run(site, "apply", patch, "--strip", "1", check=3)
    assert "byte-code" in result.stderr
    assert site.differences(before) == []


# --- owners, attributes, modes -----------------------------------------------------------


def test_an_owner_that_could_not_come_back_is_refused(lab: Lab) -> None:
    """Where no hard link may be made, a copy would belong to somebody else for good."""
    needs_root()
    if Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
        pytest.skip("needs fs.protected_hardlinks=1")
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    for path in [site.root, *site.root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o777)
    os.chown(site / ALPHA[0], 12345, 12345)
    (site / ALPHA[0]).chmod(0o644)
    before = site.picture()
    result = lab.run(site, "apply", "one", check=4, prefix=unprivileged())
    assert "Operation not permitted" in result.stderr
    assert site.differences(before) == []
    lab.run(site, "verify")
    lab.run(site, "apply", "one")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


def test_a_folder_with_attributes_keeps_them(lab: Lab) -> None:
    site = lab.site()
    folder = site / "acme/lonely"
    try:
        os.setxattr(folder, "user.who", b"mine")
    except OSError:
        pytest.skip("needs a file system with extended attributes")
    lab.bundle(
        "rm", {"acme": lab.diff({"acme/lonely/only.py": ACME.files["acme/lonely/only.py"]}, {})}
    )
    before = site.picture()
    lab.run(site, "apply", "rm")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []
    assert os.getxattr(folder, "user.who") == b"mine"


def test_the_lock_can_be_seen_by_others(lab: Lab) -> None:
    """Whatever the umask is: a verify of another user must tell a change under way from
    an interrupted one."""
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "one", prefix=("sh", "-c", 'umask 077; exec "$@"', "sh"))
    for path in (site / STATE).rglob("*"):
        if path.is_dir() or path.name in ("lock", "state.json"):
            assert path.stat().st_mode & 0o444 == 0o444, path
    assert stat.S_IMODE((site / STATE).stat().st_mode) == 0o755


# --- what verify asks --------------------------------------------------------------------


def test_verify_looks_at_the_patch_that_it_is_given(lab: Lab) -> None:
    site = lab.site()
    for name, edit in (("a", ALPHA), ("b", BETA)):
        (lab.base / name).mkdir()
        (lab.base / name / "fix.patch").write_bytes(lab.edit(edit))
    lab.run(site, "apply", lab.base / "a/fix.patch")
    lab.run(site, "verify", lab.base / "a/fix.patch")
    lab.run(site, "verify", "fix.patch")
    for other in ("b/fix.patch", "c/fix.patch"):
        answer = lab.json(site, "verify", str(lab.base / other), check=1)
        assert [p["kind"] for p in answer["problems"]] == ["missing-bundle"]
    # The other one takes its place, and that is said.
    result = lab.run(site, "apply", lab.base / "b/fix.patch")
    assert "these take their place" in result.stderr
    lab.run(site, "verify", lab.base / "b/fix.patch")


def test_verify_where_the_working_directory_is_gone(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "one")
    gone = ("sh", "-c", 'mkdir "$0/gone"; cd "$0/gone"; rmdir "$0/gone"; exec "$@"', str(lab.base))
    lab.run(site, "verify", "one", prefix=gone)
    assert lab.run(site, "--json", "verify", prefix=gone).json["ok"]
    lab.run(site, "revert", "--all", prefix=gone)


def test_names_beyond_ascii_whatever_the_locale_says(lab: Lab) -> None:
    name = "acme/caf\N{LATIN SMALL LETTER E WITH ACUTE}.py"
    text = "a = 1\nb = 2\nc = 3\n"
    site = lab.site(Dist("acme", "1.0", {"acme/__init__.py": "", name: text}))
    lab.bundle("one", {"acme": lab.diff({name: text}, {name: text.replace("2", "3")})})
    before = site.picture()
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for args in (("apply", "one"), ("verify", "one"), ("diff",), ("status",), ("revert", "--all")):
        lab.run(site, *args, env=env)
    assert site.differences(before) == []


# --- diff and the screen -----------------------------------------------------------------


def test_a_diff_of_links_and_odd_names_is_what_git_reads(lab: Lab, git: Git) -> None:
    root = lab.folder("tree") / "tree"
    write_tree(root, {"p/m.py": "a\n", "p/n.py": "b\n", "p/od\nd.txt": "x\n"})
    (root / "p/l").symlink_to("m.py")
    (root / "p/gone").symlink_to("n.py")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "all")
    (root / "p/l").unlink()
    (root / "p/l").symlink_to("n.py")
    (root / "p/gone").unlink()
    (root / "p/new").symlink_to("m.py")
    (root / "p/od\nd.txt").write_text("y\n")
    (root / "p/n.py").unlink()
    (root / "p/n.py").symlink_to("m.py")
    git(root, "add", "-A")
    patch = lab.base / "links.patch"
    patch.write_text(git(root, "diff", "--cached", "--no-renames"))
    git(root, "reset", "-q", "--hard")
    would = lab.cli("--root", root, "diff", patch).stdout
    lab.cli("--root", root, "apply", patch)
    after = git(root, "status", "--short")
    now = lab.cli("--root", root, "diff").stdout
    assert would == now
    assert "new file mode 120000" in now and "deleted file mode 120000" in now
    assert '"a/p/od\\nd.txt"' in now
    (lab.base / "now.patch").write_text(now)
    git(root, "apply", "-R", str(lab.base / "now.patch"))
    assert git(root, "status", "--short") == ""
    git(root, "apply", str(lab.base / "now.patch"))
    assert git(root, "status", "--short") == after
    lab.cli("--root", root, "revert", "--all")
    assert git(root, "status", "--short") == ""


def test_no_text_of_a_manifest_reaches_the_terminal_as_a_command(lab: Lab) -> None:
    site = lab.site()
    evil = "red \x1b[31m, bell \x07, right to left \u202e"
    lab.bundle("evil", {"acme": lab.edit(ALPHA)}, summary=evil, description=f"one\n{evil}")
    for args in (("list",), ("show", "evil"), ("apply", "evil"), ("status",)):
        result = lab.run(site, *args)
        assert not set("\x1b\x07\u202e") & set(result.stdout + result.stderr), args
    assert lab.json(site, "show", "evil")["bundle"]["summary"] == evil


# --- signals -----------------------------------------------------------------------------


def test_a_signal_ends_what_only_reads(lab: Lab) -> None:
    with held() as signals:
        with pytest.raises(Interrupted), signals.at_once():
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)  # a second one, and outside: held
        with pytest.raises(Interrupted):
            signals.check()


def test_a_record_that_is_a_pipe_does_not_hang(lab: Lab) -> None:
    site = lab.site()
    lab.bundle("one", {"acme": lab.edit(ALPHA)})
    record = site.root / ACME.info / "RECORD"
    record.unlink()
    os.mkfifo(record)
    result = lab.run(site, "apply", "one", check=3, timeout=60)
    assert "RECORD" in result.stderr


def test_a_pattern_that_backtracks_without_end(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded, and said: in the check before anything is written, and in ``verify``."""
    monkeypatch.setattr("patchkit.compiled.SECONDS", 0.3)
    endless = Assertion("assert[0]", "d", "x.txt", pattern="(a+)+$", scope="text", minimum=1)
    clock = Clock()
    finding = clock.judged(endless, b"a" * 60 + b"b", lambda path: None)
    assert not finding.ok
    assert "backtracks without end" in finding.message
    assert clock.judged(endless, b"aaa", lambda path: None).ok
    # Many of them are bounded together.
    monkeypatch.setattr("patchkit.compiled.SECONDS_IN_ALL", 0.4)
    findings = [clock.judged(endless, b"a" * 60 + b"b", lambda path: None) for _ in range(50)]
    assert "all assertions together" in findings[-1].message
    assert not clock.judged(endless, b"aaa", lambda path: None).ok


# --- the reader --------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["foo\n+bar\n", "\tfoo\n", "\tfoo\n+bar\n", "-- \n", "--\n"])
def test_lines_that_lost_their_blank_are_not_dropped(lab: Lab, tail: str) -> None:
    site = lab.site()
    patch = lab.base / "fix.patch"
    patch.write_bytes(lab.edit(ALPHA) + tail.encode())
    before = site.picture()
    result = lab.run(site, "apply", patch, check=3)
    assert "no hunk counts" in result.stderr
    assert site.differences(before) == []


def test_what_is_around_a_diff_in_a_mail_is_no_lost_line(lab: Lab) -> None:
    tails = (
        b"-- \n2.45.1\n",
        b"-- \n2.45.1\n\n",
        b"\nThanks,\n- a list\n+ of points\n",
        b"--\nA list  mailing list\n",
        b"Only in b: x\n",
    )
    for tail in tails:
        site = lab.site()
        patch = lab.base / "fix.patch"
        patch.write_bytes(lab.edit(ALPHA) + tail)
        lab.run(site, "apply", patch)
