"""Trees, edits and patches for the engine's tests, and the tools that they are held against.

Owns the strategies that provoke patch engines (repeated lines, lost line ends, odd names),
the engine as one function on trees in memory, and ``git`` and ``diff`` on the same trees.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from patchkit.mapping import Known, map_patch, map_stripped
from patchkit.model import FileState, Hunk
from patchkit.patchfile import parse
from patchkit.plan import Step, materialise, reverse_file

Tree = dict[str, FileState]

GNU_DIFF = shutil.which("diff")


def text(data: bytes | str, mode: int = 0o644) -> FileState:
    """A regular file."""
    return FileState("file", mode, data.encode() if isinstance(data, str) else data)


def link(target: str) -> FileState:
    """A symlink."""
    return FileState("symlink", 0, os.fsencode(target))


def body(hunk: Hunk) -> tuple[bytes, ...]:
    """The lines of a hunk's body as they stand in the patch, made anew from its sides."""
    old, new = iter(hunk.old), iter(hunk.new)
    lines: list[bytes] = []
    for sign in hunk.signs:
        if sign == 92:
            lines.append(b"\\ No newline at end of file\n")
            continue
        line = next(old) if sign != 43 else b""
        line = next(new) if sign != 45 else line
        prefix = b"" if sign in (10, 13) else bytes((sign,))
        lines.append(prefix + (line if line[-1:] == b"\n" else line + b"\n"))
    return tuple(lines)


# -- the engine, on trees in memory ------------------------------------------------------------


def apply(
    tree: Mapping[str, FileState],
    *patches: bytes,
    strip: int | None = 1,
    reverse: bool = False,
) -> Tree:
    """What patchkit makes of a tree, by its pure functions alone.

    Several patches are one bundle.  With ``reverse`` they are taken back, the last first.
    """
    known = Known(tree)
    steps = []
    for number, data in enumerate(reversed(patches) if reverse else patches):
        name = f"{number}.patch"
        files = parse(data, name).files
        if reverse:
            files = tuple(reverse_file(file) for file in reversed(files))
        mapping = map_patch(files, known) if strip is None else map_stripped(files, strip)
        for file in mapping.files:
            if file.patch.change in ("delete", "rename") and file.old is not None:
                known.discard(file.old)
            if file.new is not None:
                known.add(file.new)
        steps.append(Step("bundle", name, ".", mapping.files))
    asked: set[str] = set()

    def pristine(key: tuple[str, str]) -> FileState | None:
        assert key[1] not in asked, "a path is asked for at most once"
        asked.add(key[1])
        return tree.get(key[1])

    out = dict(tree)
    for (_, path), content in materialise(steps, pristine).contents.items():
        if content is None:
            out.pop(path, None)
        elif content.data is None:
            assert content.same
        else:
            out[path] = FileState(content.kind, content.mode, content.data)
    return out


# -- trees on disk -----------------------------------------------------------------------------


def write_tree(tree: Mapping[str, FileState], folder: Path) -> Path:
    """Lay a tree into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, state in tree.items():
        full = folder / path
        full.parent.mkdir(parents=True, exist_ok=True)
        if state.kind == "symlink":
            full.symlink_to(os.fsdecode(state.data))
        else:
            full.write_bytes(state.data)
            full.chmod(state.mode)
    return folder


def read_tree(folder: Path) -> Tree:
    """The files and links below a folder."""
    out: Tree = {}
    for parent, folders, names in os.walk(folder):
        for name in [*names, *(n for n in folders if os.path.islink(os.path.join(parent, n)))]:
            full = os.path.join(parent, name)
            path = os.path.relpath(full, folder)
            mode = os.lstat(full).st_mode
            if stat.S_ISLNK(mode):
                out[path] = link(os.readlink(full))
            else:
                out[path] = text(Path(full).read_bytes(), stat.S_IMODE(mode))
    return out


# -- git and diff ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tools:
    """git and GNU diff, with nobody's configuration, in a folder outside any repository.

    git outside a repository looks at no index; inside one, ``git apply`` skips in silence
    what the patch names relative to the repository.
    """

    folder: Path
    attributes: str = ""

    def _env(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        env.update(
            GIT_CEILING_DIRECTORIES=str(self.folder.parent),
            GIT_CONFIG_GLOBAL=os.devnull,
            GIT_CONFIG_NOSYSTEM="1",
            HOME=str(self.folder),
            LC_ALL="C",
            TZ="UTC",
        )
        return env

    def _run(
        self, *command: str, cwd: Path | None = None, data: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=self._env(),
            input=data,
            capture_output=True,
            check=False,
        )

    def git_diff(
        self, before: Mapping[str, FileState], after: Mapping[str, FileState], *options: str
    ) -> bytes:
        """``git diff`` of two commits that hold the trees."""
        repository = self.folder / "repository"
        if not repository.exists():
            assert self._run("git", "init", "-q", "--bare", str(repository)).returncode == 0
            (repository / "info").mkdir(exist_ok=True)
            (repository / "info" / "attributes").write_text(self.attributes)
        stream = b"".join(_commit(n, tree) for n, tree in (("old", before), ("new", after)))
        done = self._run("git", "fast-import", "--quiet", "--force", cwd=repository, data=stream)
        assert done.returncode == 0, done.stderr
        done = self._run(
            *("git", "diff", "--no-color", "--no-ext-diff", *options, "old", "new", "--"),
            cwd=repository,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def git_apply(self, tree: Mapping[str, FileState], patch: bytes, *options: str) -> Tree | None:
        """The tree that ``git apply`` makes, or None where it refuses."""
        folder = self.folder / "apply"
        shutil.rmtree(folder, ignore_errors=True)
        write_tree(tree, folder)
        command = ("git", "apply", "--whitespace=nowarn", *options, "-")
        done = self._run(*command, cwd=folder, data=patch)
        return read_tree(folder) if done.returncode == 0 else None

    def gnu_diff(
        self, before: Mapping[str, FileState], after: Mapping[str, FileState], *options: str
    ) -> bytes:
        """``diff -ruN a b`` of the trees, in two folders of these names."""
        assert GNU_DIFF is not None
        for name, tree in (("a", before), ("b", after)):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            write_tree(tree, self.folder / name)
        done = self._run(GNU_DIFF, "-ruN", "--text", *options, "a", "b")
        assert done.returncode in (0, 1), done.stderr
        return done.stdout


def _commit(branch: str, tree: Mapping[str, FileState]) -> bytes:
    """A commit for ``git fast-import`` (git-fast-import(1), "commit")."""
    out = [f"commit refs/heads/{branch}\ncommitter A <a@b> 0 +0000\ndata 0\n\ndeleteall\n".encode()]
    for path, state in tree.items():
        mode = "120000" if state.kind == "symlink" else "100755" if state.mode & 64 else "100644"
        name = "".join(
            chr(c) if c < 128 and chr(c).isalnum() else f"\\{c:03o}" for c in os.fsencode(path)
        )
        out.append(f'M {mode} inline "{name}"\ndata {len(state.data)}\n'.encode("ascii"))
        out.append(state.data + b"\n")
    return b"".join(out)


# -- strategies --------------------------------------------------------------------------------

#: Lines that repeat, that look like parts of a patch, and that other tools split or strip.
LINES = (
    b"", b"", b"a", b"a", b"b", b"c", b"}", b"    return x", b"    return y", b"\tx", b"x ",
    b"def f(x):", b"class A:", b"    def g(self):", b"- a", b"+ b", b"-- ", b"--- a/x", b"+++ b/x",
    b"@@ -1,2 +1,2 @@", b"diff --git a/x b/x", b"\\ No newline at end of file", b"\x0c", b"\x0bv",
    b"a\x85b", "a\u2028b\u0085c".encode(), b"\xff\xfe", b"one\rtwo", b"cr\r", b"From x",
    b"Index: x",
)  # fmt: skip

#: Names without one that is another's folder.
NAMES = (
    "x.py", "pkg/y.py", "pkg/sub/z.py", "a/b.py", "b", "with space.txt", "sp ace/in folder",
    "tab\tname", 'quo"te', "back\\slash", "new\nline", "ümlaut.py", os.fsdecode(b"raw\xff\xc3"),
    " lead", "sp  two", "a b/a b", "dev/null", "-dash", "+plus", "x => y", "{x}",
    "\x07bell", "deep/er/and/deep/er.cu",
)  # fmt: skip
#: Names whose ends look like what stands behind a name: blanks, a time.
STAMPED = ("trail ", "2021-01-01 00:00:00", "at 2021-01-01 00:00:00")

_EDGES = st.integers(min_value=0, max_value=10_000)


@st.composite
def contents(draw: st.DrawFn, *, min_lines: int = 0, max_lines: int = 25) -> bytes:
    """A text file: mixed or foreign line ends, perhaps without the last one."""
    lines = draw(st.lists(st.sampled_from(LINES), min_size=min_lines, max_size=max_lines))
    ends = draw(st.sampled_from([(b"\n",), (b"\n",), (b"\n",), (b"\r\n",), (b"\n", b"\r\n")]))
    data = b"".join(line + ends[number % len(ends)] for number, line in enumerate(lines))
    return data[:-1] if data and draw(st.integers(0, 4)) == 0 else data


@st.composite
def edited(draw: st.DrawFn, data: bytes, *, max_edits: int = 4) -> bytes:
    """The same file after some edits: lines taken out, put in, doubled, moved."""
    lines = io.BytesIO(data).readlines()
    end = b"\r\n" if data.count(b"\r\n") * 2 > data.count(b"\n") else b"\n"
    for _ in range(draw(st.integers(1, max_edits))):
        place = draw(_EDGES) % (len(lines) + 1)
        gone = draw(st.integers(0, 3))
        new = [line + end for line in draw(st.lists(st.sampled_from(LINES), max_size=3))]
        if draw(st.integers(0, 5)) == 0:
            new += lines[place : place + gone] * 2
        lines[place : place + gone] = new
    # A line in the middle may have lost its end by now; only the last one may lack it.
    lines = [line if line.endswith(b"\n") else line + b"\n" for line in lines]
    result = b"".join(lines)
    return result[:-1] if result and draw(st.integers(0, 5)) == 0 else result


_BINARY = st.binary(max_size=300).map(lambda data: b"\0" + data)
_MODES = st.sampled_from([0o644, 0o644, 0o644, 0o755])
_TARGETS = st.sampled_from(["x.py", "../up", "nowhere/at all", "ümlaut", "new\nline"])


@st.composite
def pairs(
    draw: st.DrawFn,
    *,
    names: Sequence[str] = NAMES,
    fates: Sequence[str] = (
        "edit", "edit", "edit", "edit", "keep", "add", "delete", "mode", "rename", "move",
        "empty", "fill", "binary", "link", "retarget", "unlink", "type", "copy",
    ),
) -> tuple[Tree, Tree]:  # fmt: skip
    """A tree before and after a change; one fate a name."""
    before: Tree = {}
    after: Tree = {}
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=7, unique=True))
    for name in chosen:
        fate = draw(st.sampled_from(fates))
        mode = draw(_MODES)
        old = text(draw(contents()), mode)
        match fate:
            case "keep":
                before[name] = after[name] = old
            case "edit":
                before[name] = old
                after[name] = text(draw(edited(old.data)), mode)
            case "add":
                after[name] = old
            case "delete":
                before[name] = old
            case "mode":
                before[name] = text(old.data, 0o644)
                data = old.data if draw(st.booleans()) else draw(edited(old.data))
                after[name] = text(data, 0o755)
            case "rename" | "move":
                old = text(draw(contents(min_lines=15)), mode)
                before[name] = old
                data = old.data if fate == "move" else draw(edited(old.data, max_edits=1))
                after[f"moved/{name}"] = text(data, mode)
            case "copy":
                old = text(draw(contents(min_lines=15)), mode)
                before[name] = after[name] = old
                after[f"copied/{name}"] = text(draw(edited(old.data, max_edits=1)), mode)
            case "empty":
                before[name], after[name] = old, text(b"", mode)
            case "fill":
                before[name], after[name] = text(b"", mode), old
            case "binary":
                before[name] = text(draw(_BINARY), mode)
                after[name] = text(draw(st.one_of(_BINARY, contents())), mode)
            case "link":
                after[name] = link(draw(_TARGETS))
            case "unlink":
                before[name] = link(draw(_TARGETS))
            case "retarget":
                before[name], after[name] = link(draw(_TARGETS)), link(draw(_TARGETS))
            case "type":
                before[name], after[name] = old, link(draw(_TARGETS))
                if draw(st.booleans()):
                    before[name], after[name] = after[name], before[name]
    return before, after
