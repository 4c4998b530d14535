"""Input of absurd size is refused, or done, within the bounds of docs/reliability.md: the system
takes memory and CPU time away from a command that needs more."""

from __future__ import annotations

import subprocess
import sys
import zlib
from base64 import b85encode
from pathlib import Path
from typing import Any

import pytest

from patchkit import hunks, journal, plan
from patchkit.errors import HunkError, ManifestError, PatchSyntaxError, Refused
from patchkit.manifest import MOST_PROBLEMS, parse_manifest
from patchkit.patchfile import MAX_BINARY, parse
from patchkit.session import Options
from patchkit.state import STATE
from patchkit.workflow import apply
from tests.strategies import apply as apply_to
from tests.strategies import text
from tests.support.lab import ACME, ALPHA, Lab, Site

pytest_plugins = ("tests.support.fixtures",)

MIB = 1 << 20


def limits(memory: int, seconds: int) -> tuple[str, ...]:
    """What to put before a command that may have so many MiB of address space (the interpreter
    alone takes 100) and so many seconds of CPU, coverage and a slow machine included."""
    return ("sh", "-c", f'ulimit -v {memory * 1024} && ulimit -t {seconds} && exec "$@"', "sh")


def loose(lab: Lab, files: dict[str, bytes], patch: bytes) -> tuple[Site, Path]:
    root = lab.folder("plain")
    for name, data in files.items():
        (root / name).write_bytes(data)
    path = lab.base / "big.patch"
    path.write_bytes(patch)
    return Site(root), path


def sparse(path: Path, size: int) -> None:
    """A file of zeros that takes no room; reading it whole would be seen."""
    path.unlink(missing_ok=True)
    with open(path, "wb") as file:
        file.truncate(size)


# --- done --------------------------------------------------------------------------------------


def test_a_line_of_64_mib(lab: Lab) -> None:
    line = b"x" * (64 * MIB)
    site, patch = loose(
        lab,
        {"a.txt": b"one\n" + line + b"\ntwo\n"},
        b"--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-" + line + b"\n+" + line + b"y\n two\n",
    )
    lab.run(site, "apply", patch, prefix=limits(1200, 60))
    assert (site / "a.txt").stat().st_size == 64 * MIB + 10
    lab.run(site, "revert", "--all", prefix=limits(1200, 60))
    assert (site / "a.txt").read_bytes() == b"one\n" + line + b"\ntwo\n"


@pytest.mark.parametrize("moved", [False, True])
def test_many_hunks_of_one_file(lab: Lab, moved: bool) -> None:
    count = 20_000
    content = b"".join(b"line %d\n" % n for n in range(2 * count))
    body = b"".join(
        b"@@ -%d +%d @@\n-line %d\n+LINE %d\n" % (2 * n + 1, 2 * n + 1, 2 * n, 2 * n)
        for n in range(1, count)
    )
    files = {"a.txt": b"first\n" * moved + content}
    site, patch = loose(lab, files, b"--- a/a.txt\n+++ b/a.txt\n" + body)
    result = lab.run(site, "apply", patch, check=3 if moved else 0, prefix=limits(800, 60))
    if moved:  # without context, and not where the header says
        assert "hunk 1" in result.stderr
        assert (site / "a.txt").read_bytes() == files["a.txt"]


# --- refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("manifests/good.toml", 10 * MIB),
        ("manifests/good.lock", 10 * MIB),
        ("patches/good/acme-0001.patch", 600 * MIB),
    ],
)
def test_a_file_of_a_bundle_that_is_too_large(lab: Lab, name: str, size: int) -> None:
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    sparse(lab.bundles / name, size)
    before = site.picture()
    result = lab.run(site, "apply", "good", check=3, prefix=limits(300, 20))
    assert "the limit is" in result.stderr and Path(name).name in result.stderr
    assert site.differences(before) == []


@pytest.mark.parametrize("name", [STATE, ".patchkit/journal.json", "RECORD"])
def test_a_record_of_a_gigabyte(lab: Lab, name: str) -> None:
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    lab.run(site, "apply", "good")
    path = site / (f"{ACME.info}/RECORD" if name == "RECORD" else name)
    sparse(path, 1 << 30)
    for command in ("verify", "revert"):
        words = ("verify", "--pristine") if name == "RECORD" and command == "verify" else (command,)
        words = ("revert", "--all") if command == "revert" else words
        result = lab.run(site, *words, check=None, prefix=limits(300, 20))
        codes = (1, 3) if command == "verify" else (3,)
        if name != "RECORD" or command == "verify":
            assert result.exit_code in codes, str(result)
            assert path.name in result.stderr or "interrupted" in result.stderr


def test_a_hundred_megabytes_of_python_under_a_condition(lab: Lab) -> None:
    """Such a tree would take 60 GB.  As plain text it may be asserted."""
    site = lab.site()
    (site / "acme/huge.py").write_bytes(b"a = b and c\n" * (100 * MIB // 12) + b"once")
    ways: tuple[dict[str, Any], ...] = (
        {"condition": {"test": "b and c", "is": True}},
        {"pattern": "once"},
        {"defined": ["b"]},
        {"text": "once", "in": "text"},
    )
    for number, how in enumerate(ways):
        fact = {"distribution": "acme", "file": "acme/huge.py", "message": "m", **how}
        lab.bundle(f"big{number}", {"acme": lab.edit(ALPHA)}, assert_=[fact])
        check = 0 if "in" in how else 3
        result = lab.run(site, "apply", f"big{number}", check=check, prefix=limits(1500, 60))
        assert check == 0 or "the limit for Python source" in result.stderr


NESTED = {
    "parentheses": "x = " + "(" * 200_000 + ")" * 200_000,
    "minus": "x = " + "-" * 200_000 + "1",
    "attributes": "x = a" + ".a" * 200_000,
    "calls": "x = a" + "()" * 200_000,
    "subscripts": "x = a" + "[0]" * 200_000,
    "sums": "x = a" + "+a" * 200_000,
    "choices": "x = " + "a if b else " * 100_000 + "c",
    "branches": "if a: pass\n" + "elif b: pass\n" * 50_000,
    "hidden": "from __future__ import no\nx = a" + ".a" * 200_000,
}


@pytest.mark.parametrize("kind", NESTED)
def test_python_that_is_nested_without_end(kind: str, tmp_path: Path) -> None:
    """In a process of its own: Python 3.10 runs over the C stack and is ended by the system."""
    path = tmp_path / "deep.py"
    path.write_text(NESTED[kind] + "\n")
    code = (
        "import sys; from patchkit.assertions import evaluate; from patchkit.model import *\n"
        "from patchkit.manifest import _expression_problem\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        "test = Condition('a and b', (), True)\n"
        "facts = [Assertion('k', 'd', 'a.py', condition=test, scope='code'),\n"
        "    Assertion('k', 'd', 'a.py', text='zz', within='f', scope='code')]\n"
        "print([evaluate(one, data, lambda path: None).ok for one in facts])\n"
        "print(bool(_expression_problem(data.decode().partition('x = ')[2])))\n"
    )
    done = subprocess.run(
        [*limits(2000, 60), sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "[False, False]\nTrue\n"


def test_the_problems_of_a_manifest_are_counted_to_a_hundred() -> None:
    head = b'schema = 1\nname = "a"\nversion = "1"\n'
    keys = b"".join(b"k%d = 1\n" % n for n in range(40_000))
    tables = b"[[assert]]\n" * 40_000
    for data in (keys, tables):
        with pytest.raises(ManifestError) as caught:
            parse_manifest(head + data, "a")
        assert len(caught.value.detail) == MOST_PROBLEMS
        assert "100 problems or more" in caught.value.message


def binary(size: int) -> bytes:
    """A new file of zeros as git writes it."""
    packed = zlib.compress(bytes(size), 9)
    lines = []
    for at in range(0, len(packed), 52):
        part = packed[at : at + 52]
        mark = bytes([64 + len(part) if len(part) <= 26 else 70 + len(part)])
        lines.append(mark + b85encode(part + bytes(-len(part) % 4)) + b"\n")
    return (
        b"diff --git a/n b/n\nnew file mode 100644\nindex " + b"0" * 40 + b".." + b"1" * 40
        + b"\nGIT binary patch\nliteral %d\n" % size + b"".join(lines) + b"\n"
    )  # fmt: skip


def test_a_patch_that_inflates(lab: Lab) -> None:
    """Each part is below the limit; all of them are not."""
    one = binary(100 * MIB)
    assert len(one) < MIB
    assert parse(one, "x").files
    site, patch = loose(lab, {}, one * 40)
    result = lab.run(site, "apply", patch, check=3, prefix=limits(900, 60))
    assert str(MAX_BINARY) in result.stderr
    with pytest.raises(PatchSyntaxError, match="the limit is"):
        parse(binary(10).replace(b"literal 10", b"literal 99999999999"), "x")
    with pytest.raises(PatchSyntaxError, match="does not hold"):
        parse(one.replace(b"literal 104857600", b"literal 1000"), "x")


def test_copies_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_GROWN", 5000)
    copy = "diff --git a/a b/{0}\nsimilarity index 100%\ncopy from a\ncopy to {0}\n"
    tree = {"a": text(b"x" * 1000)}
    few = "".join(copy.format(f"c{n}") for n in range(5)).encode()
    assert len(apply_to(tree, few)) == 6
    with pytest.raises(Refused, match="more than 5000 bytes"):
        apply_to(tree, few + copy.format("c6").encode())


def test_a_record_of_too_many_files(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be read again is not written."""
    monkeypatch.setattr(journal, "MAX_STATE", 1000)
    site = lab.site()
    lab.bundle("good", {"acme": lab.edit(ALPHA)})
    before = site.picture()
    options = Options(root=str(site.root), bundles=str(lab.bundles), cwd=str(lab.base))
    with pytest.raises(Refused, match="the limit is 500") as caught:
        apply(options, ["good"])
    assert caught.value.code == "too-many-files"
    assert site.differences(before) == []


def test_frequent_lines_are_not_looked_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hunk moved, and each line of it is in the file a thousand times and more."""
    lines = [b"a\n", b"b\n"] * 2000 + [b"b\n", b"b\n", b"a\n", b"a\n"]
    patch = b"--- x\n+++ x\n@@ -3,4 +3,5 @@\n b\n b\n+c\n a\n a\n"
    found = parse(patch, "x").files[0].hunks
    (place,) = hunks.apply_hunks([*lines, b"a\n"], found)
    assert place.line == 4001
    monkeypatch.setattr(hunks, "MAX_LOOKED_AT", 1000)
    with pytest.raises(HunkError, match="no end of looking"):
        hunks.apply_hunks([*lines, b"a\n"], found)


@pytest.mark.parametrize("depth", [99, 5000])
def test_a_path_of_many_folders(lab: Lab, depth: int) -> None:
    path = "a/" * depth + "new.py"
    site, patch = loose(
        lab, {"x": b""}, f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n".encode()
    )
    result = lab.run(site, "apply", "--strip", "1", patch, check=0 if depth < 100 else 3)
    assert len(result.stderr) < 2000
    assert (site / "a").exists() is (depth < 100)
