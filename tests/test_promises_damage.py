"""A damaged record is named and never guessed at, whatever became of it; the way out that the
message names loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from patchkit import fsio
from patchkit.errors import PatchkitError, Refused
from patchkit.queries import status, verify
from patchkit.session import Options
from patchkit.shape import journal_fault, state_fault
from patchkit.state import JOURNAL, STATE, render
from patchkit.workflow import apply, recover, revert
from tests.fuzz.mutations import HOSTILE, mutated, places
from tests.fuzz.targets import with_checksum
from tests.support.lab import ACME, ALPHA, BETA, GAMMA, Lab, Site, needs_root, plain
from tests.support.lab import STATE as FOLDER

pytest_plugins = ("tests.support.fixtures",)


def body(data: bytes) -> bytes:
    return data[80:]


def changed(data: bytes, key: str, value: Any) -> bytes:
    whole = json.loads(data)
    del whole["checksum"]
    return render({**whole, key: value})


#: What may become of the bytes: by the disk, a full disk, an editor, another program.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "zeros, as after a power cut": lambda data: bytes(len(data)),
    "cut in half": lambda data: data[: len(data) // 2],
    "its last byte is gone": lambda data: data[:-1],
    "one bit": lambda data: data[:400] + bytes([data[400] ^ 1]) + data[401:],
    "twice": lambda data: data * 2,
    "not UTF-8": lambda data: data.replace(b"acme", b"\xff\xfe\xed\xa0"),
    "line ends of Windows": lambda data: data.replace(b"\n", b"\r\n"),
    "another file": lambda data: b"<html>404</html>\n",
    "JSON without a checksum": lambda data: b'{"schema": 1}\n',
    "no JSON behind a checksum": lambda data: with_checksum(b"\n nonsense\n}\n"),
    "not closed": lambda data: with_checksum(body(data).rstrip(b"}\n")),
    "nested without end": lambda data: with_checksum(b' "a": ' + b"[" * 200_000 + b"}\n"),
    "an endless number": lambda data: with_checksum(b' "schema": 2' + b"0" * 9_000 + b"}\n"),
    "NaN": lambda data: with_checksum(
        re.sub(rb'"schema": \d+', b'"schema": NaN', body(data), count=1)
    ),
    "a key less": lambda data: with_checksum(
        re.sub(rb'"base": "[^"]*",', b"", body(data), count=1)
    ),
    "of the wrong type": lambda data: changed(data, "schema", "1"),
    "a path that leads out": lambda data: with_checksum(
        body(data).replace(b'"acme/alpha.py"', b'"../../outside.py"')
    ),
}


def interrupted(lab: Lab, site: Site, *names: str) -> Site:
    """A copy of the site as a kill in the middle of an apply left it: one file of two swapped."""
    copy = Site(lab.folder("killed") / "site-packages")
    real = fsio.Root.rename

    def rename(self: fsio.Root, path: str, to: fsio.Root, to_path: str) -> None:
        real(self, path, to, to_path)
        if to_path.startswith("acme/") and not copy.root.exists():
            shutil.copytree(site.root, copy.root, symlinks=True)
            raise Refused("killed", hint="none")

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(PatchkitError):
        patch.setattr(fsio.Root, "rename", rename)
        apply(Options(root=str(site.root), bundles=str(lab.bundles), cwd=str(lab.base)), names)
    assert copy.root.exists()
    return copy


@pytest.fixture
def patched(lab: Lab) -> Site:
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(ALPHA, BETA)})
    lab.bundle("other", {"acme": lab.edit(GAMMA)})
    lab.run(site, "apply", "good")
    return site


def contents(site: Site) -> dict[str, bytes]:
    return {
        str(path.relative_to(site.root)): path.read_bytes()
        for path in sorted(site.root.rglob("*"))
        if path.is_file() and FOLDER not in path.parts
    }


def is_told(result: Any, path: Path) -> None:
    """Named, with the way out, and nothing that Python or the system said in its place."""
    assert str(path) in result.stderr and "damaged" in result.stderr, str(result)
    assert "not guessed at" in result.stderr
    assert f"mv {path.parent} {path.parent}-damaged" in plain(result.stderr)


COMMANDS = (
    ("verify",),
    ("status", "--check"),
    ("apply", "other"),
    ("revert", "--all"),
    ("diff",),
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state(lab: Lab, patched: Site, damage: str) -> None:
    path = patched / STATE
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    before = patched.picture()
    # The real command for one each; all of them below, in this process.
    command = COMMANDS[list(DAMAGES).index(damage) % len(COMMANDS)]
    is_told(lab.run(patched, *command, check=3), path)
    assert patched.differences(before) == []
    for error in refusals(lab, patched, JOURNAL):
        assert error is not None and error.code == "state-damaged" and str(path) in error.message
    assert patched.differences(before) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_journal(lab: Lab, damage: str) -> None:
    lab.bundle("good", {"acme": lab.edit(ALPHA, BETA)})
    lab.bundle("other", {"acme": lab.edit(GAMMA)})
    site = interrupted(lab, lab.site(), "good")
    path = site / JOURNAL
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    before = site.picture()
    number = list(DAMAGES).index(damage)
    command = (("recover",), ("apply", "other"), ("revert", "--all"))[number % 3]
    is_told(lab.run(site, *command, check=3), path)
    assert "interrupted" in lab.run(site, "verify", check=1).stderr
    assert site.differences(before) == []
    *changing, _, _ = refusals(lab, site, STATE)
    for error in changing:
        assert error is not None and error.code == "state-damaged" and str(path) in error.message
    assert site.differences(before) == []


def refusals(lab: Lab, site: Site, other: str) -> list[PatchkitError | None]:
    """What apply, revert, recover, verify and status raise; recover has nothing to do where
    no command was interrupted."""
    options = Options(root=str(site.root), bundles=str(lab.bundles), cwd=str(lab.base))
    errors: list[PatchkitError | None] = []
    commands: list[Callable[[], Any]] = [
        lambda: apply(options, ["other"]),
        lambda: revert(options, [], everything=True),
        lambda: verify(options, []),
        lambda: status(options, check=True),
    ]
    if other == STATE:
        commands.insert(2, lambda: recover(options))
    for command in commands:
        try:
            command()
        except PatchkitError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors


def test_both_are_damaged_or_the_state_alone_while_interrupted(lab: Lab, patched: Site) -> None:
    """The journal is whole, and could be undone; but the state it would end with is not."""
    lab.bundle("more", {"acme": lab.edit(GAMMA) + NEW})
    site = interrupted(lab, patched, "more")
    state, journal = site / STATE, site / JOURNAL
    whole = state.read_bytes()
    state.write_bytes(whole[:-1])
    before = site.picture()
    for command in (("recover",), ("apply", "good"), ("revert", "--all")):
        is_told(lab.run(site, *command, check=3), state)
    is_told(lab.run(site, "verify", check=3), state)
    assert site.differences(before) == []
    state.write_bytes(whole)
    journal.write_bytes(b"")
    is_told(lab.run(site, "recover", check=3), journal)


NEW = b"--- /dev/null\n+++ b/acme/new.py\n@@ -0,0 +1 @@\n+new = 1\n"


@pytest.mark.parametrize("name", [STATE, JOURNAL])
@pytest.mark.parametrize("kind", ["folder", "link", "dangling", "fifo", "socket", "large"])
def test_it_is_no_file_of_patchkit(lab: Lab, name: str, kind: str) -> None:
    lab.bundle("good", {"acme": lab.edit(ALPHA, BETA)})
    site = lab.site()
    if name == STATE:
        lab.run(site, "apply", "good")
    else:
        site = interrupted(lab, site, "good")
    path = site / name
    kept = path.read_bytes()
    path.unlink()
    (lab.base / "elsewhere").write_bytes(kept)
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(lab.base / "elsewhere")
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        bind_socket(path)
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 30)  # a gigabyte that is never read
    before = contents(site)
    for command in (("revert", "--all"), ("status",) if name == STATE else ("recover",)):
        result = lab.run(site, *command, check=None, timeout=120)
        assert result.exit_code == 3 or (kind == "socket" and result.exit_code == 4), str(result)
        assert str(path) in result.stderr
    assert contents(site) == before


def bind_socket(path: Path) -> None:
    """Leave a socket there; its own name may be no longer than 108 bytes."""
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def test_the_lock_says_anything(lab: Lab, patched: Site) -> None:
    """Its note is for people; a FIFO in its place does not block."""
    import fcntl

    lock = patched / FOLDER / "lock"
    for note in (b"", b"\xff", b"[" * 100_000, b'{"pid": 1}', b'"\\u001b[31m"', b"9" * 5000):
        lock.write_bytes(note)
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            command = ("--lock-timeout", "0.1", "revert", "--all")
            result = lab.cli(*patched.where, *command, check=None)
            assert result.exit_code == 5 and "another process" in result.stderr, str(result)
    lock.unlink()
    os.mkfifo(lock)
    lab.run(patched, "verify", timeout=60)
    (patched / FOLDER / "staged").mkdir()
    lab.run(patched, "verify", check=1, timeout=60)


def test_a_blob_or_a_kept_file_is_a_fifo(lab: Lab, patched: Site) -> None:
    for folder in ("blobs", "pristine"):
        for path in (patched / FOLDER / folder).iterdir():
            path.unlink()
            os.mkfifo(path)
    before = contents(patched)
    for command in (("revert", "--all"), ("diff",), ("apply", "other")):
        result = lab.run(patched, *command, check=3, timeout=60)
        assert "hint:" in result.stderr
    assert contents(patched) == before
    lab.run(patched, "verify", timeout=60)


def test_what_waits_beside_names_only_what_patchkit_makes(lab: Lab, patched: Site) -> None:
    """The list of what waits on another device has no journal yet to speak for it."""
    staged = patched / FOLDER / "staged"
    before = contents(patched)
    for listed in ([[".", "acme/alpha.py"]], [[".", "../../x"]], {"a": 1}, [["acme"]], 5):
        staged.mkdir(exist_ok=True)
        (staged / "beside.json").write_text(json.dumps(listed))
        is_told_beside = lab.run(patched, "recover", check=3)
        assert "beside.json" in is_told_beside.stderr
        assert contents(patched) == before
    for data in (b"", b"[[[", b"[" * 100_000, b"\xff"):
        (staged / "beside.json").write_bytes(data)
        result = lab.run(patched, "recover", check=None)
        assert result.exit_code == (0 if data == b"" else 3), str(result)
        staged.mkdir(exist_ok=True)


# --- the way out -------------------------------------------------------------------------------


def way_out(result: Any) -> list[str]:
    """The command that the hint names."""
    found = re.search(r"mv (\S+) (\S+-damaged)", plain(result.stderr))
    assert found is not None, str(result)
    return ["mv", found[1], found[2]]


def stored(folder: Path) -> set[bytes]:
    """All that lies below ``.patchkit``, but for the note in the lock."""
    return {p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


@pytest.mark.parametrize("name", [STATE, JOURNAL])
def test_the_way_out_loses_nothing(lab: Lab, name: str) -> None:
    """What .patchkit kept is still there; a reinstall and an apply put all right."""
    lab.bundle("good", {"acme": lab.edit(ALPHA, BETA)})
    site = lab.site()
    pristine = contents(site)
    if name == STATE:
        lab.run(site, "apply", "good")
    else:
        site = interrupted(lab, site, "good")
    (site / name).write_bytes(b"")
    kept = stored(site / FOLDER)
    subprocess.run(way_out(lab.run(site, "revert", "--all", check=3)), check=True)
    aside = site / f"{FOLDER}-damaged"
    assert stored(aside) == kept
    assert pristine[ALPHA[0]] in kept
    result = lab.run(site, "apply", "good", check=3)  # still patched, by whom is not known
    assert "alpha.py" in result.stderr or "beta.py" in result.stderr
    shutil.rmtree(site / "acme")
    shutil.rmtree(site / ACME.info)
    lab.install(site, ACME)
    lab.run(site, "apply", "good")
    lab.run(site, "revert", "--all")
    now = contents(site)
    assert all(now[path] == data for path, data in pristine.items() if "dist-info" not in path)


def test_the_way_out_of_a_plain_tree(lab: Lab) -> None:
    """There is nothing to reinstall: the pristine files come out of what was set aside."""
    root = lab.folder("plain") / "with blank"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    (lab.base / "a.patch").write_bytes(b"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n")
    site = Site(root)
    lab.run(site, "apply", lab.base / "a.patch")
    (root / STATE).write_bytes(b"")
    hint = plain(lab.run(site, "status", check=3).stderr)
    command = hint[hint.index("mv ") : hint.index("; then")]
    subprocess.run(["sh", "-c", command], check=True)
    (stash,) = (root / f"{FOLDER}-damaged/pristine").iterdir()
    assert stash.read_text() == "one\n"
    stash.replace(root / "a.txt")
    lab.run(site, "apply", lab.base / "a.patch")
    lab.run(site, "revert", "--all")
    assert (root / "a.txt").read_text() == "one\n"


# --- every part of it --------------------------------------------------------------------------


def test_every_key_is_held_to_its_shape(lab: Lab, patched: Site) -> None:
    """Each value of a real state and a real journal, taken out or replaced by another type."""
    lab.bundle(
        "full",
        {"acme": lab.edit(GAMMA) + NEW},
        profile={"env": {"A": "b"}, "args": ["--c"]},
        assert_=[{"distribution": "acme", "file": GAMMA[0], "pattern": "."}],
    )
    site = interrupted(lab, patched, "full")
    journal = json.loads((site / JOURNAL).read_bytes())
    lab.run(patched, "apply", "full")
    state = json.loads((patched / STATE).read_bytes())
    free = {"inode", "checksum"}
    for value, fault in ((state, state_fault), (journal, journal_fault)):
        assert fault(value) is None
        for node, key in places(value):
            old = node[key]
            if key in free:
                continue
            if isinstance(node, dict):
                del node[key]
                if not (key == "A" or "/" in key):  # those are free
                    assert fault(value) is not None, key
            for wrong in ({"x": object()}, 0.5, "\0"):
                node[key] = wrong
                assert fault(value) is not None, (key, wrong)
            node[key] = old
        assert fault(value) is None


def test_whatever_is_read_ends_in_no_other_error(lab: Lab, patched: Site) -> None:
    """Thousands of changed records through the reader; the commands behind it are fuzzed."""
    random = Random(4)
    state = json.loads((patched / STATE).read_bytes())
    for _ in range(1500):
        value = state
        for _ in range(random.choice((1, 1, 2, 5))):
            value = mutated(value, random)
        if isinstance(value, dict):
            found = state_fault(value)
            assert found is None or isinstance(found, str)
    for odd in HOSTILE:
        state_fault(odd) if isinstance(odd, dict) else state_fault({"schema": odd})


# --- what lies in the tree ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder"])
def test_a_target_that_is_no_file(lab: Lab, kind: str) -> None:
    """Named, and never opened so that it blocks; before and after an apply."""
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    path = site / ALPHA[0]

    def put() -> None:
        path.unlink()
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "socket":
            bind_socket(path)
        elif kind == "device":
            needs_root()
            try:
                os.mknod(path, 0o020600, os.makedev(1, 5))  # /dev/zero: reading has no end
            except PermissionError:
                pytest.skip("needs the right to make device files")
        else:
            path.mkdir()

    put()
    before = sorted(os.listdir(path.parent))
    for words in ("apply good", "diff good"):
        assert "alpha.py" in lab.run(site, *words.split(), check=3, timeout=60).stderr
    lab.run(site, "list", timeout=60)
    lab.run(site, "verify", "--pristine", check=1, timeout=60)
    assert sorted(os.listdir(path.parent)) == before
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    path.write_text(str(ACME.files[ALPHA[0]]))
    lab.run(site, "apply", "good")
    put()
    for words, codes in (("verify", (1,)), ("revert --all", (3,)), ("diff", (0, 3))):
        result = lab.run(site, *words.split(), check=None, timeout=60)
        assert result.exit_code in codes, str(result)
        assert "alpha.py" in result.stderr + result.stdout


@pytest.mark.parametrize("name", ["METADATA", "RECORD", "direct_url.json", "top_level.txt"])
def test_a_fifo_in_the_dist_info(lab: Lab, name: str) -> None:
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    path = site / ACME.info / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    os.mkfifo(site / "odd.pth")
    os.mkfifo(site / "__editable___acme_finder.py")
    for words in ("list", "apply good", "verify", "verify --pristine"):
        result = lab.run(site, *words.split(), check=None, timeout=60)
        assert result.exit_code in (0, 1, 3, 4), str(result)
