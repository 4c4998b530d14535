"""Names and texts that are meant to deceive: on a terminal, in JSON, between two file systems."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest

from tests.conftest import Result
from tests.support.lab import ALPHA, Lab, Site

pytest_plugins = ("tests.support.fixtures",)

#: What a terminal obeys: escapes, a C1 control, an end of line, text from right to left.
EVIL = "\x1b[31m\x1b]0;owned\x07\x9b1m\r\u202e\u2028"
NEW = "new file mode 100644\n--- /dev/null\n+++ {}\n@@ -0,0 +1 @@\n+x = 1\n"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def is_harmless(result: Result) -> None:
    """Nothing in either stream that a terminal obeys."""
    for stream in (result.stdout, result.stderr):
        found = OBEYED.search(stream)
        assert found is None, ascii(stream)


def quoted(name: str) -> str:
    """git's C-quoted form of a path."""
    shown = "".join(
        chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:03o}"
        for c in name.encode("utf-8", "surrogateescape")
    )
    return f'"{shown}"'


def new_file(name: str) -> bytes:
    a, b = quoted(f"a/{name}"), quoted(f"b/{name}")
    return (f"diff --git {a} {b}\n" + NEW.format(b)).encode()


@pytest.mark.parametrize("name", [f"acme/{EVIL}.py", "acme/\udcff\udcfe.py", "acme/a b\n.py"])
def test_a_file_whose_name_is_hard_to_print(lab: Lab, name: str) -> None:
    """Escaped for a person, exact in JSON, and taken back without a trace."""
    site = lab.site()
    lab.bundle("odd", {"acme": new_file(name)})
    pristine = site.picture()
    told = lab.json(site, "apply", "--dry-run", "odd")
    assert name in [file["path"] for file in told["files"]]
    for words in ("diff odd", "show odd", "list", "apply odd", "status", "verify", "diff"):
        is_harmless(lab.run(site, *words.split()))
    (site.root / name).write_text("edited\n")
    for words in ("verify", "status", "revert --all", "diff"):
        is_harmless(lab.run(site, *words.split(), check=None))
    result = lab.run(site, "--json", "verify", check=1)
    assert result.stdout.isascii()
    assert name in [problem["file"] for problem in json.loads(result.stdout)["problems"]]
    (site.root / name).write_text("x = 1\n")
    lab.run(site, "revert", "--all")
    assert site.differences(pristine) == []


def test_texts_of_a_bundle_that_are_hard_to_print(lab: Lab) -> None:
    site = lab.site()
    lab.bundle(
        "odd",
        {"acme": f"Description: a{EVIL}b\nOrigin: {EVIL}\n\n".encode() + lab.edit(ALPHA)},
        summary="s" + EVIL.replace("\r", "").replace("\u2028", ""),
        description=f"d{EVIL}\nmore",
        profile={"env": {"A": EVIL}, "args": [EVIL]},
        assert_=[{"distribution": "acme", "file": ALPHA[0], "text": "zz", "message": EVIL}],
    )
    for words in ("list", "show odd", "show -v odd", "lint", "apply odd"):
        is_harmless(lab.run(site, *words.split(), check=None))
    shown = lab.json(site, "show", "odd")
    assert shown["bundle"]["description"] == f"d{EVIL}\nmore"
    assert shown["bundle"]["profile"]["args"] == [EVIL]


@pytest.mark.parametrize(
    "header",
    [
        f"--- a/{EVIL}\n+++ b/x{EVIL}\n@@ -1 +1 @@\n-a\n+b\n",
        f"--- a/acme/alpha.py\n+++ b/acme/alpha.py\n@@ -1 +1 @@ {EVIL}\n-{EVIL}\n+b\n",
        f"diff --git a/x b/x\nindex {EVIL}\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
        f"diff --git a/x b/x\nold mode {EVIL}\nnew mode 1\n",
        f"--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n{EVIL}\n",
        f'--- "a/\\q{EVIL}"\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n',
    ],
)
def test_a_refusal_shows_no_escapes(lab: Lab, header: str) -> None:
    site = lab.site()
    patch = lab.base / "evil.patch"
    patch.write_bytes(header.replace("\r", "").encode())
    before = site.picture()
    result = lab.run(site, "apply", patch, check=3)
    is_harmless(result)
    lab.bundle("odd", {"acme": header.encode()})
    for words in ("list", "show odd", "apply odd", "lint odd", "diff odd"):
        is_harmless(lab.run(site, *words.split(), check=None))
    assert site.differences(before) == []


def test_a_manifest_with_escapes_in_every_place(lab: Lab) -> None:
    site = lab.site()
    path = lab.bundle("odd", {"acme": lab.edit(ALPHA)})
    text = path.read_text()
    text = text.replace("schema = 1", 'schema = 1\n"\\u001b[31m\\u202e" = 1')
    path.write_text(text.replace('"acme"', '"ac\\u009bme"').replace('">=0"', '"\\u001b"'))
    for words in ("list", "show odd", "apply odd", "lint odd"):
        is_harmless(lab.run(site, *words.split(), check=None))
    is_harmless(lab.run(site, "apply", EVIL.replace("\r", ""), check=None))
    is_harmless(lab.cli("--root", f"/nowhere/{EVIL}", "status", check=None))


# --- one name for two files --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("acme/Alpha.py", "acme/ALPHA.py"),
        (f"acme/{unicodedata.normalize('NFC', 'é')}.py", "acme/e\u0301.py"),
        ("acme/ﬁ.py", "acme/fi.py"),
    ],
)
def test_names_that_are_one_on_other_file_systems(lab: Lab, one: str, other: str) -> None:
    """Where the file system tells them apart, they are two files; nothing is folded."""
    site = lab.site()
    (lab.base / "Probe").touch()
    if (lab.base / "probe").exists():
        pytest.skip("needs a file system that tells small from capital letters")
    lab.bundle("two", {"acme": new_file(one) + new_file(other)})
    before = site.picture()
    lab.run(site, "apply", "two")
    assert (site / one).exists() and (site / other).exists()
    lab.run(site, "verify", "two")
    lab.run(site, "revert", "--all")
    assert site.differences(before) == []


@pytest.mark.parametrize("again", ["acme/one.py", "acme//one.py", "acme/./one.py"])
def test_a_file_that_is_made_twice(lab: Lab, again: str) -> None:
    site = lab.site()
    lab.bundle("twice", {"acme": new_file("acme/one.py") + new_file(again)})
    before = site.picture()
    result = lab.run(site, "apply", "twice", check=3)
    assert "one.py" in result.stderr
    assert site.differences(before) == []


@pytest.mark.parametrize(
    "path",
    [
        *("~/x.py", "~root/x.py", "C:/x.py", "acme/.GIT/config", "acme/.Git/hooks/x"),
        *(".PATCHKIT/state.json", "acme/.patchkit/x", "x.DIST-INFO/RECORD", "acme/..", "acme/."),
        *("acme/x.pyc", "acme/__pycache__/x.py", "/", "//", ".", ".."),
    ],
)
def test_names_that_no_patch_may_have(lab: Lab, path: str) -> None:
    """In the tree of a distribution and in a plain one, by whatever way they get there."""
    site = lab.site()
    plain = Site(lab.folder("plain"))
    (plain.root / "a.py").write_text("x = 1\n")
    patch = lab.base / "evil.patch"
    for data in (new_file(path), f"--- a/{path}\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n".encode()):
        patch.write_bytes(data)
        for where in (site, plain):
            before = where.picture()
            lab.run(where, "apply", "--strip", "1", patch, check=3)
            assert where.differences(before) == []
    assert not (Path.home() / "x.py").exists()
