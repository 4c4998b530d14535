"""What is fuzzed: each target takes bytes and raises only where a promise is broken.

The promise of all of them: nothing but patchkit's own errors, each with a message that names
what is wrong, and nothing outside of the tree is touched.  Imports no fuzzer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from patchkit.assertions import evaluate
from patchkit.errors import ManifestError, PatchkitError, PatchSyntaxError, Refused
from patchkit.fsio import digest
from patchkit.hunks import patch_text
from patchkit.manifest import parse_manifest, profile_for, select_variant
from patchkit.mapping import Known, check_path, map_patch, map_stripped
from patchkit.model import Assertion, Condition, FilePatch, FileState, Literal_, Patch, split
from patchkit.patchfile import parse
from patchkit.plan import Step, materialise, reverse_file
from patchkit.queries import diff, status, verify
from patchkit.record import Record
from patchkit.report import error_text
from patchkit.session import Options
from patchkit.state import JOURNAL, STATE
from patchkit.workflow import apply, recover, revert
from tests.fuzz.mutations import bytes_mutated, json_bytes, mutated
from tests.releases import ROOT

TREE = {
    "pkg/__init__.py": b"",
    "pkg/m0.py": b"".join(b"line %d = 0\n" % n for n in range(30)),
    "pkg/m1.py": b"def f():\n    return 1\n\n\ndef g():\n    return 1\n",
    "pkg/sub/gone.py": b"x = 1\n",
    "pkg/data/kernel.cuh": b"int one;\n",
}
#: Between the patch and the file of the target ``place``.
BETWEEN = b"\n=-=-=\n"


class Target(NamedTuple):
    """``check`` raises for a finding; ``mutate`` changes an input by its structure."""

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    mutate: Callable[[bytes, Random], bytes]
    words: tuple[bytes, ...] = ()


def _told(error: PatchkitError, names: str = "") -> None:
    """An error that a person can use: it names what it is about, says what to do, and is
    shown without a terminal obeying it."""
    text = error_text(error)
    assert names in text, text
    assert error.message and len(error.message) < 5000, error.message
    assert all(c.isprintable() or c in "\n\t" for c in text), ascii(text)
    assert error.hint or isinstance(error, ManifestError), text


# -- patches ------------------------------------------------------------------------------------


def check_patch(data: bytes) -> None:
    """The patch reader, the way back, and where the paths lead."""
    try:
        patch = parse(data, "fuzz.patch")
    except PatchSyntaxError as error:
        _told(error, "patch fuzz.patch line ")
        return
    _mapped(patch)


def _mapped(patch: Patch, tree: Iterable[str] = TREE) -> None:
    assert patch.files
    for file in patch.files:
        with contextlib.suppress(Refused):
            back = reverse_file(file)
            assert [h.new_text for h in file.hunks] == [h.old_text for h in back.hunks]
    known = Known(tree)
    for strip in (None, 0, 1, 2):
        try:
            if strip is None:
                mapping = map_patch(patch.files, known)
            else:
                mapping = map_stripped(patch.files, strip)
        except Refused as error:
            _told(error)
            continue
        for mapped in mapping.files:
            for path in (mapped.old, mapped.new):
                if path is not None:
                    check_path(path)
                    assert not os.path.isabs(path) and ".." not in path.split("/")


def check_place(data: bytes) -> None:
    """A patch on a file: what comes out is what the placements say, or it is refused."""
    head, _, content = data.partition(BETWEEN)
    try:
        patch = parse(head, "fuzz.patch")
    except PatchSyntaxError:
        return
    for file in patch.files:
        if not file.hunks:
            continue
        for own_ends in (False, True):
            try:
                out, places = patch_text(content, file.hunks, own_ends=own_ends)
            except Refused as error:
                _told(error)
                continue
            lines, at = split(content), 0
            made: list[bytes] = []
            for hunk, place in zip(file.hunks, places, strict=True):
                begin = place.line - 1
                assert begin >= at
                found = b"".join(lines[begin : begin + hunk.old_count])
                plain = found == hunk.old_text
                assert plain or own_ends
                if not plain:
                    break  # other line ends: what comes takes those of the file
                made += [*lines[at:begin], hunk.new_text]
                at = begin + hunk.old_count
            else:
                assert b"".join([*made, *lines[at:]]) == out
    _materialised(patch, content)


def _materialised(patch: Patch, content: bytes) -> None:
    tree = {**TREE, "pkg/m0.py": content}
    try:
        mapping = map_stripped(patch.files, 1)
        step = Step("fuzz", "fuzz.patch", ".", mapping.files)
        states = {(".", path): FileState("file", 0o644, data) for path, data in tree.items()}
        materialise([step], states.get)
    except Refused as error:
        _told(error)


def _patch_seeds() -> Iterator[bytes]:
    for path in sorted((ROOT / "patches").rglob("*.patch"))[:12]:
        data = path.read_bytes()
        if len(data) < 20_000:
            yield data
    yield PATCH
    yield PATCH.replace(b"\n", b"\r\n")
    yield b"".join(line[:70] + b"\n" for line in PATCH.splitlines())
    yield PLAIN
    yield BINARY
    yield MAIL + PATCH


def _place_seeds() -> Iterator[bytes]:
    for data in (PATCH, PLAIN):
        for content in TREE.values():
            yield data + BETWEEN + content
        yield data + BETWEEN + b"".join(b"moved %d\n" % n for n in range(9)) + TREE["pkg/m0.py"]
        yield data + BETWEEN + TREE["pkg/m0.py"].replace(b"\n", b"\r\n")
        yield data + BETWEEN + TREE["pkg/m0.py"] * 3


MAIL = (
    b"From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001\n"
    b"From: A U Thor <author@example.org>\nSubject: [PATCH] fuzz\nBug: none\n\nprose\n---\n"
    b" pkg/m0.py | 2 +-\n\n"
)
PATCH = b"""\
diff --git a/pkg/m0.py b/pkg/m0.py
index 1234567..89abcde 100644
--- a/pkg/m0.py
+++ b/pkg/m0.py
@@ -10,3 +10,3 @@ def f():
 line 9 = 0
-line 10 = 0
+line 10 = 99
 line 11 = 0
@@ -20,2 +20,3 @@
 line 19 = 0
+more = 1
 line 20 = 0
diff --git a/pkg/m1.py b/pkg/m2.py
old mode 100644
new mode 100755
similarity index 80%
rename from pkg/m1.py
rename to pkg/m2.py
--- a/pkg/m1.py
+++ b/pkg/m2.py
@@ -1,3 +1,3 @@
 def f():
-    return 1
+    return 2
\x20
diff --git "a/pkg/\\303\\251.py" "b/pkg/\\303\\251.py"
new file mode 100644
--- /dev/null
+++ "b/pkg/\\303\\251.py"
@@ -0,0 +1 @@
+y = 2
\\ No newline at end of file
diff --git a/pkg/sub/gone.py b/pkg/sub/gone.py
deleted file mode 100644
--- a/pkg/sub/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-x = 1
diff --git a/pkg/link b/pkg/link
new file mode 120000
--- /dev/null
+++ b/pkg/link
@@ -0,0 +1 @@
+../..
\\ No newline at end of file
--\x20
2.40.0
"""
PLAIN = b"""\
Index: pkg/m0.py
===================================================================
--- pkg/m0.py.orig\t2024-01-01 00:00:00.000000000 +0000
+++ pkg/m0.py\t2024-01-01 00:00:00.000000000 +0000
@@ -1,2 +1,3 @@
+first
 line 0 = 0
 line 1 = 0
@@ -28,3 +29,2 @@
 line 27 = 0
 line 28 = 0
-line 29 = 0
--- /dev/null\t1970-01-01 00:00:00.000000000 +0000
+++ pkg/new.py\t2024-01-01 00:00:00.000000000 +0000
@@ -0,0 +1 @@
+z = 3
"""
BINARY = b"""\
diff --git a/pkg/b.bin b/pkg/b.bin
new file mode 100644
index 0000000000000000000000000000000000000000..d81cc0710eb6cf9efd5b920a8453e1e07157b6cd
GIT binary patch
literal 4
LcmZQzWMT#Y01f~L

literal 0
HcmV?d00001

"""


def check_mapping(data: bytes) -> None:
    """Any header names against any tree: what comes out is a path inside, or it is refused."""
    tree, _, names = data.decode("utf-8", "surrogateescape").partition("\n\n")
    files = []
    for number, line in enumerate(names.split("\n")[:20]):
        change, _, rest = line.partition(" ")
        old, _, new = rest.partition(" ")
        if change not in ("modify", "add", "delete", "rename", "copy") or not old:
            continue
        files.append(
            FilePatch(
                change,  # type: ignore[arg-type]
                None if change == "add" else old,
                None if change == "delete" else (new or old),
                None,
                None,
                (),
                number + 1,
                git=number % 2 == 0,
            )
        )
    if files:
        _mapped(Patch("fuzz.patch", "", tuple(files)), tree.split("\n"))


def _mapping_seeds() -> Iterator[bytes]:
    tree = "\n".join(TREE).encode() + b"\n\n"
    yield tree + b"modify a/pkg/m0.py b/pkg/m0.py\nadd b/pkg/new.py\ndelete a/pkg/sub/gone.py\n"
    yield tree + b"modify python/pkg/m0.py\nadd test/x.py\nrename m1.py m2.py\n"
    yield tree + b"modify kernel.cuh.orig kernel.cuh\nmodify include/kernel.cuh\n"
    yield tree + b"modify ../pkg/m0.py\nmodify /abs/pkg/m0.py\nadd ~/x\nadd C:/x\ncopy / /\n"


# -- manifests and locks ------------------------------------------------------------------------

LOCK = b'schema = 1\n\n[patches]\n"full/one.patch" = "' + b"a" * 64 + b'"\n'
MANIFEST = b"""\
schema = 1
name = "full"
version = "1.0.0"
summary = "one line"
description = \"\"\"why\"\"\"
requires = ["other>=1"]
conflicts = ["third"]

[[target]]
distribution = "sglang"
required = true
[[target.variant]]
versions = ">=0.5.8,<0.5.9"
strip = 2
patches = ["full/one.patch"]
[[target.variant]]
versions = ">=0.5.20"
upstream = "merged"

[[assert]]
distribution = "sglang"
file = "sglang/a.py"
pattern = '_is_sm120'
within = "apply_fusion"
count = 1
in = "code"
versions = ">=0.5.8"
message = "m"

[[assert]]
distribution = "sglang"
file = "sglang/a.py"
literal = { name = "TABLE", has = [12, "x", 1.5, [true]] }

[[assert]]
distribution = "sglang"
file = "sglang/a.py"
condition = { test = "a and not b()", given = { "b()" = true, "a" = [1, 2] }, is = false }

[[assert]]
distribution = "sglang"
file = "sglang/a.py"
defined = ["is_sm120"]

[profile]
env = { NCCL_ALGO = "Ring" }
args = ["--x", "128"]
[[profile.variant]]
distribution = "sglang"
versions = ">=0.5.14"
args = ["--y"]

[caches]
flashinfer-jit = ["trtllm_comm"]
"""
SOURCE = b"""\
import os
from pkg.m0 import b, is_sm120
TABLE = [9, 10, 12, "x", 1.5]
a = True
def apply_fusion(x):
    if a and not b():
        return is_sm120
    return f"{x!r:>{a}}" '_is_sm120'
"""


def check_manifest(data: bytes) -> None:
    """The manifest reader, and all that is asked of what it read."""
    try:
        bundle = parse_manifest(data, "full")
    except ManifestError as error:
        _told(error, "manifests/full.toml")
        return
    for target in bundle.targets:
        for version in ("0.5.8", "1!2.0.dev1+local", "unknown"):
            with contextlib.suppress(ManifestError):
                select_variant(target, version)
    profile_for(bundle, {"sglang": "0.5.20"})
    for assertion in bundle.asserts:
        evaluate(assertion, SOURCE, {"pkg/m0.py": b"b = 1\n"}.get)


def check_lock(data: bytes) -> None:
    """The lock reader."""
    try:
        parse_manifest(MANIFEST, "full", data)
    except ManifestError as error:
        _told(error, "manifests/full.")


def _manifest_seeds() -> Iterator[bytes]:
    yield MANIFEST
    for path in sorted((ROOT / "manifests").glob("*.toml"))[:6]:
        yield path.read_bytes().replace(path.stem.encode(), b"full", 1)


def _lock_seeds() -> Iterator[bytes]:
    yield LOCK
    for path in sorted((ROOT / "manifests").glob("*.lock"))[:3]:
        yield path.read_bytes()


# -- sources ------------------------------------------------------------------------------------

_ON_SOURCE = (
    Assertion("assert[0]", "d", "a.py", text="is_sm120", scope="code", minimum=1),
    Assertion("assert[1]", "d", "a.py", pattern="_is.*", scope="text", within="apply_fusion"),
    Assertion("assert[2]", "d", "a.py", literal=Literal_("TABLE", (12, "x")), scope="code"),
    Assertion(
        "assert[3]",
        "d",
        "a.py",
        condition=Condition("a and not b()", (("b()", True),), False),
        scope="code",
    ),
    Assertion("assert[4]", "d", "a.py", defined=("is_sm120", "b"), scope="code"),
)


def check_assertion(data: bytes) -> None:
    """Every kind of assertion on a hostile Python file, also where it is imported."""
    for assertion in _ON_SOURCE:
        evaluate(assertion, data, {"pkg/m0.py": data, "pkg/__init__.py": data}.get)
    evaluate(_ON_SOURCE[4], SOURCE, {"pkg/m0.py": data}.get)


def _source_seeds() -> Iterator[bytes]:
    yield SOURCE
    yield SOURCE.replace(b"\n", b"\r\n")
    yield b"# coding: latin-1\n" + SOURCE
    yield from TREE.values()
    yield b"class A(B):\n    async def f(self, *a, b=1, **k):\n        with x as y: pass\n"
    yield b"try:\n    import a\nexcept ImportError as e:\n    a = None\nfinally:\n    del a\n"
    yield b"match x:\n    case {'a': [1, *r]} if r: y = lambda z=1: z\n    case _: global q\n"


# -- RECORD -------------------------------------------------------------------------------------


def check_record(data: bytes) -> None:
    """RECORD: a search for rows, a pass over them and the CSV reader say the same."""
    try:
        record = Record(data)
        names = list(record.paths())
    except Refused as error:
        _told(error)
        return
    for path in names[:50]:
        assert path and not path.startswith("/") and ".." not in path.split("/")
    wanted = [*names[:50], "pkg/m0.py", 'a"b', "x,y"]
    rows = record.rows(wanted)
    many = record.rows([*wanted, *(f"no/{n}" for n in range(40))])
    assert rows == {path: row for path, row in many.items() if path in wanted}
    for row in rows.values():
        row.holds(b"x")
    try:
        added = Record.add_rows(data, [("pkg/new.py", "0" * 64, 3), ("pkg/a,b", "f" * 64, 0)])
        after = Record(added).rows(["pkg/new.py", "pkg/a,b"])
    except Refused:
        return
    assert set(after) == {"pkg/new.py", "pkg/a,b"}


def _record_seeds() -> Iterator[bytes]:
    row = b"pkg/m0.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
    yield row + b'"a""b",,\n"x,y",md5=ff,1\npkg-1.dist-info/RECORD,,\n'
    yield row.replace(b"\n", b"\r\n") + b"../../../bin/x,,\r\n"
    yield b"./" + row + b"pkg/__pycache__/m0.cpython-311.pyc,,\n"


# -- the record on disk -------------------------------------------------------------------------


class _Site:
    """A patched tree on a file system in memory where there is one, made again for each
    input that changed it, with a file beside it that nothing may touch."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        where = memory if os.access(memory, os.W_OK) else None
        self.base = Path(tempfile.mkdtemp(prefix="patchkit-fuzz-", dir=where))
        self.root = self.base / "tree"
        self.canary = self.base / "canary"
        self.model = self.base / "model"
        bundles = self.base / "bundles"
        for path, data in (("manifests/full.toml", BUNDLE), ("patches/full.patch", PATCH)):
            (bundles / path).parent.mkdir(parents=True)
            (bundles / path).write_bytes(data)
        self.canary.write_bytes(b"canary\n")
        self.options = self._options(self.root)
        _lay(self.model)
        apply(self._options(self.model), ["full"])
        self.state: bytes = (self.model / STATE).read_bytes()
        self.journal: bytes = self._journal()
        self.beside = sorted([*os.listdir(self.base), "tree"])
        self.fresh()

    def _options(self, root: Path) -> Options:
        bundles = str(self.base / "bundles")
        return Options(root=str(root), bundles=bundles, cwd=str(self.base), lock_timeout=5.0)

    def _journal(self) -> bytes:
        """The journal of an upgrade of ``full`` that ended before its record."""
        from patchkit import journal

        found: list[bytes] = []

        def stop(*arguments: Any) -> None:
            found.append((other / JOURNAL).read_bytes())
            raise Refused("ended", hint="none")

        other = self.base / "other"
        shutil.copytree(self.model, other, symlinks=True)
        with mock.patch.object(journal, "_swap", stop), contextlib.suppress(Refused):
            revert(self._options(other), ["full"])
        shutil.rmtree(other)
        return found[0]

    def fresh(self) -> None:
        """The tree as :func:`apply` left it."""
        if self.root.exists():
            shutil.rmtree(self.root)
        shutil.copytree(self.model, self.root, symlinks=True)

    def contents(self) -> dict[str, bytes]:
        """The files of the tree, without patchkit's own."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if ".patchkit" not in path.parts and path.is_file() and not path.is_symlink()
        }

    def try_all(self, name: str, data: bytes) -> None:
        """Every command on a record that says ``data``."""
        looking: tuple[Callable[[], Any], ...] = (
            lambda: verify(self.options, []),
            lambda: status(self.options, check=True),
            lambda: diff(self.options, []),
        )
        changing: tuple[Callable[[], Any], ...] = (
            lambda: apply(self.options, ["full"]),
            lambda: revert(self.options, [], everything=True),
            lambda: recover(self.options),
        )
        for command in (*looking, *changing):
            if not (self.root / STATE).exists():
                self.fresh()
            before = self.contents()
            (self.root / name).write_bytes(data)
            if name == JOURNAL:
                (self.root / ".patchkit/staged").mkdir(exist_ok=True)
            damaged = False
            try:
                command()
            except PatchkitError as error:
                damaged = error.code == "state-damaged"
                _told(error, str(self.root) if damaged else "")
            except OSError:
                pass
            assert self.canary.read_bytes() == b"canary\n", "something outside was changed"
            assert sorted(os.listdir(self.base)) == self.beside, "something outside was made"
            if damaged or command in looking:
                assert self.contents() == before, "changed by a damaged record"
            else:
                self.fresh()
        self.fresh()


def _lay(root: Path) -> None:
    rows = []
    for path, data in TREE.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        rows.append((path, digest(data), len(data)))
    info = root / "pkg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_bytes(b"Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n")
    record = Record.add_rows(b"pkg-1.0.dist-info/METADATA,,\npkg-1.0.dist-info/RECORD,,\n", rows)
    (info / "RECORD").write_bytes(record)


BUNDLE = b"""\
schema = 1
name = "full"
version = "1.0.0"
target = [{ distribution = "pkg", variant = [{ versions = ">=0", patches = ["full.patch"] }] }]
profile = { env = { A = "b" }, args = ["--c"] }
assert = [
    { distribution = "pkg", file = "pkg/m0.py", text = "line 10 = 99", in = "text" },
    { distribution = "pkg", file = "pkg/m2.py", pattern = "return 2", within = "f" },
    { distribution = "pkg", file = "pkg/data/kernel.cuh", text = "int" },
]
"""

_site: list[_Site] = []


def site() -> _Site:
    """The one tree of this process."""
    if not _site:
        import atexit

        _site.append(_Site())
        atexit.register(shutil.rmtree, _site[0].base, ignore_errors=True)
    return _site[0]


def with_checksum(body: bytes) -> bytes:
    """A record that says it is whole."""
    return b'{"checksum": "' + digest(body).encode() + b'",' + body


def _record_bytes(data: bytes) -> bytes:
    """Behind ``=`` stands what gets a right checksum, anything else is taken as it is."""
    return with_checksum(data[1:]) if data[:1] == b"=" else data


def check_state(data: bytes) -> None:
    """``state.json``: whole, or named as damaged; whatever is read leads to no other error."""
    site().try_all(STATE, _record_bytes(data))


def check_journal(data: bytes) -> None:
    """``journal.json``, likewise."""
    site().try_all(JOURNAL, _record_bytes(data))


def _seeds_of(data: bytes) -> Iterator[bytes]:
    yield b"=" + data[80:]
    yield data


def _mutate_record(data: bytes, random: Random) -> bytes:
    import json

    if data[:1] != b"=":
        return bytes_mutated(data, random)
    try:
        value = json.loads(b"{" + data[1:])
    except (ValueError, RecursionError):
        return bytes_mutated(data, random)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        value = mutated(value, random)
    if not isinstance(value, dict):
        return bytes_mutated(data, random)
    return b"=" + json_bytes(value)[1:]


_PATCH_WORDS = (
    *(b"diff --git a/", b"--- ", b"+++ ", b"@@ -1 +1 @@", b"/dev/null", b"new file mode 100644"),
    *(b"deleted file mode 100644", b"rename from ", b"rename to ", b"copy from ", b"copy to "),
    *(b"old mode 100644", b"new mode 100755", b"index 0000000..1111111", b"similarity index 100%"),
    *(b"GIT binary patch\n", b"literal 0", b"delta 0", b"\\ No newline at end of file", b"-- \n"),
    *(b"120000", b"160000", b"../", b'"a/\\303\\251"', b"Index: ", b"\r\n"),
)
_TOML_WORDS = (
    *(b"[[target]]\n", b"[[target.variant]]\n", b"[[assert]]\n", b"[profile]\n", b"[caches]\n"),
    *(b"[[profile.variant]]\n", b"schema = 1\n", b"name", b"version", b"versions = '>=1'\n"),
    *(b"patches = ['a/b.patch']\n", b"strip = 1\n", b"pattern = 'a'\n", b"text", b"literal = {"),
    *(b"condition = {", b"defined = [", b"given", b"within", b"absent = true\n", b"1979-05-27"),
)
_PYTHON_WORDS = (
    *(b"def ", b"class ", b"async ", b"await ", b"lambda: ", b"yield ", b"import ", b"from "),
    *(b" if ", b" else ", b"match ", b"case ", b"with ", b"try:", b"except* ", b"global ", b"del "),
    *(b"f'{", b"rb'", b"# coding: utf-16", b":=", b"**", b"@", b"..."),
)
_STATE_WORDS = tuple(
    f'"{word}"'.encode()
    for word in (
        *("schema", "base", "serial", "fingerprint", "roots", "distributions", "bundles", "files"),
        *("folders", "pycs", "asserts", "operations", "make", "drop", "modules", "stash_pycs"),
        *("restore_pycs", "caches", "prefix", "old", "new", "undo", "staged", "inode", "path"),
    )
)

TARGETS: dict[str, Target] = {
    "patch": Target(check_patch, _patch_seeds, bytes_mutated, _PATCH_WORDS),
    "place": Target(check_place, _place_seeds, bytes_mutated, _PATCH_WORDS),
    "mapping": Target(check_mapping, _mapping_seeds, bytes_mutated, (b"modify ", b"add ", b"../")),
    "manifest": Target(check_manifest, _manifest_seeds, bytes_mutated, _TOML_WORDS),
    "lock": Target(check_lock, _lock_seeds, bytes_mutated, _TOML_WORDS[:6]),
    "assertion": Target(check_assertion, _source_seeds, bytes_mutated, _PYTHON_WORDS),
    "record": Target(check_record, _record_seeds, bytes_mutated, (b"sha256=", b'""', b"\r", b"./")),
    "state": Target(check_state, lambda: _seeds_of(site().state), _mutate_record, _STATE_WORDS),
    "journal": Target(
        check_journal, lambda: _seeds_of(site().journal), _mutate_record, _STATE_WORDS
    ),
}
