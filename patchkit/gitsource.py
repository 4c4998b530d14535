"""What git HEAD says of the files of a checkout.

Owns the question "is this file as it was committed", which is git's own judgement: line
end conversion, filters and the executable bit as they are configured there.  Contents are
compared, never the index, so that assume-unchanged, skip-worktree and a stale index do
not speak for a file.  Only reads: no index refresh, no hooks, no pager, no network.

GitPython costs more to import than everything else together and needs a git executable,
so it is imported where it is used; ``verify`` never comes here.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from patchkit.errors import Refused
from patchkit.fsio import read_plain
from patchkit.model import FileState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import git

# Variables that would turn git (and GitPython, which reads them too) to another
# repository or index, as a git hook that runs patchkit has them.  Those that carry
# configuration stay: safe.directory may have been given by them.
STEERING = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ATTR_SOURCE",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GLOB_PATHSPECS",
    "GIT_GRAFT_FILE",
    "GIT_ICASE_PATHSPECS",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_LITERAL_PATHSPECS",
    "GIT_NAMESPACE",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)

_SAFE = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}

# Paths a command: far below any limit on the length of a command line.
_CHUNK = 200


class Blob(NamedTuple):
    """A file of HEAD: git's full mode (``0o100644``) and its object name."""

    mode: int
    name: str


def head_commit(work_tree: str) -> str | None:
    """The full object name of HEAD's commit; None where nothing was committed yet.

    Raises Refused: ``git-missing``, ``git-ownership`` (safe.directory), ``git-failed``.
    """
    with opened(work_tree) as repo:
        return _head(repo, work_tree)


def tracked_paths(work_tree: str, folder: str = "") -> list[str]:
    """Every file of HEAD under a folder (relative to the work tree, as what is returned).

    Without submodules; empty where nothing was committed yet.  Raises Refused as
    :func:`head_commit` does.
    """
    with opened(work_tree) as repo:
        if _head(repo, work_tree) is None:
            return []
        where = [folder] if folder else []
        return list(list_tree(repo, work_tree, "-r", "HEAD", "--", *where))


def clean_paths(work_tree: str, git_dir: str, paths: Collection[str]) -> dict[str, bool]:
    """Whether each path (relative to the work tree) is as HEAD has it.

    True: same kind, same contents, and same executable bit unless ``core.fileMode`` is
    off.  False: it differs, or is not there.  A path that HEAD does not have is left out.
    Raises Refused as :func:`head_commit` does.
    """
    wanted = [path for path in paths if _is_plain(path)]
    with opened(work_tree) as repo:
        if os.path.realpath(repo.git_dir) != os.path.realpath(git_dir):
            raise _failed(work_tree, f"its git directory is {repo.git_dir}, not {git_dir}")
        if _head(repo, work_tree) is None:
            return {}
        blobs = _blobs(repo, work_tree, wanted)
        verdicts: dict[str, bool] = {}
        filtered: list[str] = []
        modes: list[str] = []
        top = os.path.realpath(work_tree)
        # Beyond a symlink lies another file, whatever its bytes are.
        folders = {folder: _is_real(top, folder) for folder in set(map(os.path.dirname, blobs))}
        for path, blob in blobs.items():
            file = _Worktree(os.path.join(top, path), there=folders[os.path.dirname(path)])
            verdicts[path] = same = file.holds(blob)
            if not same and file.is_regular and not stat.S_ISLNK(blob.mode):
                filtered.append(path)
            if file.is_regular and file.executable != bool(blob.mode & 0o100):
                modes.append(path)
        # Only what differs in its bytes needs git's filters, which run whatever commands
        # the repository's owner configured.  The bytes count first: git itself leaves a
        # file alone whose committed bytes have CRLF, and hash-object does not know that.
        for path, name in _filtered_names(repo, work_tree, filtered):
            verdicts[path] = name == blobs[path].name
        if any(verdicts[path] for path in modes) and _file_mode_counts(repo, work_tree):
            verdicts.update(dict.fromkeys(modes, False))
        return verdicts


def head_file(work_tree: str, path: str) -> FileState | None:
    """A file as a checkout of HEAD would write it, filters applied; None where HEAD has none.

    Raises Refused as :func:`head_commit` does.
    """
    with opened(work_tree) as repo:
        blob = _blobs(repo, work_tree, [path]).get(path)
        if blob is None:
            return None
        if stat.S_ISLNK(blob.mode):
            _, data = run_git(repo, work_tree, "cat-file", "blob", blob.name)
            return FileState("symlink", 0, data)
        _, data = run_git(repo, work_tree, "cat-file", "--filters", f"HEAD:{path}")
        return FileState("file", 0o755 if blob.mode & 0o100 else 0o644, data)


def untracked_paths(work_tree: str, folder: str = "") -> list[str]:
    """Every file under a folder that git neither tracks nor is told to ignore."""
    with opened(work_tree) as repo:
        where = [folder] if folder else []
        _, output = run_git(
            *(repo, work_tree, "ls-files", "-z", "--others", "--exclude-standard"),
            *("--full-name", "--", *where),
        )
    return [os.fsdecode(path) for path in output.split(b"\0") if path]


def configured(key: str) -> str:
    """What the user's own git configuration says; empty where it says nothing, or git is not
    there."""
    with variables({**dict.fromkeys(STEERING), "GIT_PYTHON_REFRESH": "quiet"}):
        import git

        try:
            with_status = git.Git().execute(
                ["git", "config", "--get", key], with_extended_output=True, with_exceptions=False
            )
        except git.GitCommandNotFound:
            return ""
    status, output, _ = with_status
    return str(output).strip() if status == 0 else ""


def _is_plain(path: str) -> bool:
    return (
        os.path.normpath(path) == path
        and not os.path.isabs(path)
        and path != "."
        and path != ".."
        and not path.startswith("../")
        and "\0" not in path
    )


def _is_real(top: str, folder: str) -> bool:
    """Whether no part of a folder's path is a symlink; ``top`` has none."""
    path = os.path.normpath(os.path.join(top, folder))
    return os.path.realpath(path) == path


class _Worktree:
    """One file as it is on disk, itself and not what a symlink leads to."""

    __slots__ = ("_info", "_path")

    def __init__(self, path: str, *, there: bool) -> None:
        self._path = path
        self._info = None
        if there:
            with suppress(OSError):
                self._info = os.lstat(path)

    @property
    def is_regular(self) -> bool:
        return self._info is not None and stat.S_ISREG(self._info.st_mode)

    @property
    def executable(self) -> bool:
        return self._info is not None and bool(self._info.st_mode & 0o100)

    def holds(self, blob: Blob) -> bool:
        """Whether the bytes as they are, unfiltered, make that blob."""
        if self._info is None or stat.S_IFMT(self._info.st_mode) != stat.S_IFMT(blob.mode):
            return False
        if stat.S_ISLNK(blob.mode):
            data = os.fsencode(os.readlink(self._path))
        else:
            try:
                data = read_plain(self._path)
            except OSError as error:
                raise Refused(
                    f"{self._path} cannot be read: {error.strerror}",
                    code="git-failed",
                    hint="run as a user that may read it",
                ) from error
        return _blob_name(data, blob.name) == blob.name


def _blob_name(data: bytes, like: str) -> str:
    import hashlib

    digest = hashlib.sha256() if len(like) == 64 else hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % len(data))
    digest.update(data)
    return digest.hexdigest()


# ------------------------------------------------------------------------------- git


@contextmanager
def opened(work_tree: str) -> Iterator[git.Repo]:
    """The repository of a work tree; what git or GitPython raise becomes Refused."""
    with variables(dict.fromkeys(STEERING)):
        # At its import GitPython runs git, and without one it raises unless told not to.
        with variables({"GIT_PYTHON_REFRESH": "quiet"}):
            import git
        try:
            with git.Repo(work_tree, expand_vars=False) as repo:
                yield repo
        except (git.InvalidGitRepositoryError, git.NoSuchPathError) as error:
            raise _failed(work_tree, "it is no git work tree") from error
        except git.GitCommandNotFound as error:
            raise Refused(
                f"git was not found; it is needed to tell which files of {work_tree}"
                " are as committed",
                code="git-missing",
                hint="install git, or set GIT_PYTHON_GIT_EXECUTABLE to where it is",
            ) from error


def mirror(address: str, git_dir: str) -> None:
    """A bare copy of a repository, made or brought up to date.  Raises Refused with git's own
    words; no prompt, and nothing of it is checked out."""
    import subprocess

    environ = {k: v for k, v in os.environ.items() if k not in STEERING}
    environ.update(_SAFE)
    fetch = ["git", "--git-dir", git_dir, "fetch", "--quiet", "--prune", "--tags", "--force"]
    commands = [[*fetch, "origin"]]
    if not os.path.isdir(git_dir):
        refs = "+refs/heads/*:refs/remotes/origin/*"
        commands = [
            ["git", "init", "--quiet", "--bare", git_dir],
            ["git", "--git-dir", git_dir, "config", "remote.origin.url", address],
            ["git", "--git-dir", git_dir, "config", "remote.origin.fetch", refs],
            *commands,
        ]
    for command in commands:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environ,
            check=False,
        )
        if done.returncode:
            words = " ".join(done.stderr.split()) or f"git ended with {done.returncode}"
            raise Refused(words, code="git-failed")


@contextmanager
def variables(values: dict[str, str | None]) -> Iterator[None]:
    """Change environment variables for a while (None: take it out)."""
    before = {key: os.environ.get(key) for key in values}
    _set_variables(values)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(values: dict[str, str | None]) -> None:
    for key, value in values.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


def _failed(work_tree: str, reason: str) -> Refused:
    return Refused(
        f"git cannot tell which files of {work_tree} are as committed: {reason}",
        code="git-failed",
        hint=f"see what git says: git -C {work_tree} status",
    )


def run_git(
    repo: git.Repo, work_tree: str, *args: str, fine: tuple[int, ...] = (0,)
) -> tuple[int, bytes]:
    """Exit code and output of a git command; Refused for another code than the ``fine``."""
    # -C, since GitPython silently stays in the present folder where it cannot enter that one;
    # absolute, since it enters a relative one first, from where that name leads elsewhere.
    command = [
        str(repo.git.GIT_PYTHON_GIT_EXECUTABLE),
        *(
            "-C",
            os.path.abspath(work_tree),
            "--no-optional-locks",
            "--literal-pathspecs",
            "--no-pager",
        ),
        *("-c", "core.fsmonitor=false"),
        *args,
    ]
    status, output, errors = repo.git.execute(
        command,
        with_extended_output=True,
        with_exceptions=False,
        stdout_as_string=False,
        strip_newline_in_stdout=False,
        env=_SAFE,
    )
    if status in fine:
        return status, output
    if "dubious ownership" in errors:
        raise Refused(
            f"git refuses to read {work_tree}: it belongs to another user",
            code="git-ownership",
            hint=f"run as its owner, or git config --global --add safe.directory {work_tree}",
        )
    raise _failed(work_tree, " ".join(errors.split()) or f"git {args[0]} ended with {status}")


def _head(repo: git.Repo, work_tree: str) -> str | None:
    status, output = run_git(
        *(repo, work_tree, "rev-parse", "--show-toplevel"),
        *("--quiet", "--verify", "HEAD^{commit}"),
        fine=(0, 1),
    )
    top, newline, commit = os.fsdecode(output.removesuffix(b"\n")).rpartition("\n")
    if status != 0:
        top = top + newline + commit
    if os.path.realpath(top) != os.path.realpath(work_tree):
        raise _failed(work_tree, f"git's work tree is {top} (core.worktree)")
    return commit if status == 0 else None


def _blobs(repo: git.Repo, work_tree: str, paths: list[str]) -> dict[str, Blob]:
    """The files of HEAD among the paths; not submodules and not folders."""
    found: dict[str, Blob] = {}
    for some in _chunks(paths):
        found.update(list_tree(repo, work_tree, "HEAD", "--", *some))
    return {path: found[path] for path in paths if path in found}


def list_tree(repo: git.Repo, work_tree: str, *args: str) -> dict[str, Blob]:
    """The files of a tree, by path; ``args`` are those of ``git ls-tree``."""
    _, output = run_git(repo, work_tree, "ls-tree", "-z", "--full-tree", *args)
    found = {}
    for row in output.split(b"\0"):
        head, tab, path = row.partition(b"\t")
        mode, kind, name = head.split() if tab else (b"", b"", b"")
        if kind == b"blob":
            found[os.fsdecode(path)] = Blob(int(mode, 8), name.decode("ascii"))
    return found


def _filtered_names(repo: git.Repo, work_tree: str, paths: list[str]) -> Iterator[tuple[str, str]]:
    """The object name that each file would be committed under."""
    for some in _chunks(paths):
        _, output = run_git(repo, work_tree, "hash-object", "--", *some)
        yield from zip(some, output.decode("ascii").split(), strict=True)


def _chunks(paths: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(paths), _CHUNK):
        yield paths[start : start + _CHUNK]


def _file_mode_counts(repo: git.Repo, work_tree: str) -> bool:
    """``core.fileMode``; true where it is not set."""
    status, output = run_git(
        *(repo, work_tree, "config", "--type=bool", "--get", "core.fileMode"), fine=(0, 1)
    )
    return status != 0 or output.strip() == b"true"
