"""Patches that are written: git takes them, and they are read back to the same bytes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.errors import Refused
from patchkit.mapping import map_stripped
from patchkit.model import FileState
from patchkit.patchfile import parse
from patchkit.plan import Step, materialise
from patchkit.unified import Side, file_diff
from tests import releases

LINES = st.lists(
    st.sampled_from(
        [b"a\n", b"b\n", b"def f():\n", b"    x = 1\n", b"\n", b"@@ -1 +1 @@\n", b"-- \n"]
    ),
    max_size=30,
)
TEXTS = st.builds(
    lambda lines, end: b"".join(lines) + end, LINES, st.sampled_from([b"", b"end", b"\r\n"])
)
NAMES = st.sampled_from(["p/a.py", "p/b c.cu", 'p/"q".py', "p/ü.py", "p/tab\there.py"])

#: Nobody's configuration.
GIT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CEILING_DIRECTORIES": "/",
}


def applied(patch: bytes, old: Side | None) -> dict[str, bytes | None]:
    """The files as the patch leaves them; one that it leaves alone is as before."""
    files = map_stripped(parse(patch, "x.patch").files, 1).files
    states: dict[tuple[str, str], FileState] = {}
    before: dict[str, bytes | None] = {}
    if old is not None:
        states[(".", old.path)] = FileState("file", 0o755 if old.executable else 0o644, old.data)
        before[old.path] = old.data
    wanted = materialise([Step("b", "x.patch", ".", files)], states.get)
    for (_, path), content in wanted.contents.items():
        if content is None or content.data is not None:
            before[path] = None if content is None else content.data
    return before


@given(TEXTS, TEXTS, NAMES, st.booleans(), st.booleans())
def test_what_is_written_is_read_back_to_the_same_bytes(
    before: bytes, after: bytes, name: str, was: bool, now: bool
) -> None:
    old, new = Side(name, before, was), Side(name, after, now)
    patch = file_diff(old, new)
    if old == new:
        assert patch == b""
    else:
        assert applied(patch, old)[name] == after


@given(TEXTS, NAMES)
def test_files_that_come_and_go(data: bytes, name: str) -> None:
    assert applied(file_diff(None, Side(name, data)), None)[name] == data
    gone = Side(name, data)
    assert applied(file_diff(gone, None), gone)[name] is None


@given(TEXTS, TEXTS)
def test_a_rename_takes_its_change_along(before: bytes, after: bytes) -> None:
    old, new = Side("p/a.py", before), Side("p/z.py", after)
    made = applied(file_diff(old, new), old)
    assert (made["p/a.py"], made["p/z.py"]) == (None, after)


@pytest.mark.slow
@given(before=TEXTS, after=TEXTS, name=NAMES, executable=st.booleans())
def test_git_takes_it_and_would_have_written_the_same(
    before: bytes,
    after: bytes,
    name: str,
    executable: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("git")
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_bytes(before)
    patch = file_diff(Side(name, before), Side(name, after, executable))
    (folder / "x.patch").write_bytes(patch)
    if not patch:
        return
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "x.patch"],
        cwd=folder,
        check=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
    )
    assert file.read_bytes() == after


def test_the_form_is_git_s(tmp_path: Path) -> None:
    """On a real file with two changes far apart: the text is git's own, to the byte."""
    path = "sglang/srt/server_args.py"
    before = (releases.tree(*releases.SGLANG) / path).read_bytes()
    after = before.replace(b"import tempfile\n", b"import tempfile\nimport this\n", 1)
    after = after.replace(b"if self.tp_size > 1:", b"if self.tp_size > 2:", 1)
    assert after.count(b"\n") == before.count(b"\n") + 1
    for side, data in (("a", before), ("b", after)):
        (tmp_path / side / "sglang/srt").mkdir(parents=True)
        (tmp_path / side / path).write_bytes(data)
    (tmp_path / "attributes").write_text("*.py diff=python\n")
    done = subprocess.run(
        [
            *("git", "-c", f"core.attributesFile={tmp_path / 'attributes'}", "diff"),
            *("--no-index", "--no-prefix", "--full-index", "a", "b"),
        ],
        cwd=tmp_path,
        capture_output=True,
        env=GIT,
        check=False,
    )
    assert file_diff(Side(path, before), Side(path, after)) == done.stdout


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(Refused, match="no text"):
        file_diff(Side("p/a.bin", b"\0"), Side("p/a.bin", b"\1"))


def test_a_lead_stands_before_each_path() -> None:
    patch = file_diff(Side("p/a.py", b"1\n"), Side("p/a.py", b"2\n"), lead="python/")
    assert patch.startswith(b"diff --git a/python/p/a.py b/python/p/a.py\n")
    assert b"--- a/python/p/a.py\n+++ b/python/p/a.py\n" in patch
