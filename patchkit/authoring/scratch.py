"""A scratch git repository: files of a release as commits, and diffs in the house style.

Owns what is written into it, which is never an environment's.  Nobody's configuration, hooks
or attributes have a say in what a diff looks like: three lines of context, git's own rule for
the headings of Python, full blob names, renames found.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from patchkit.errors import Fault, Refused
from patchkit.fsio import make_root
from patchkit.gitsource import STEERING, list_tree, opened, run_git, variables
from patchkit.model import FileState

if TYPE_CHECKING:
    import git

Files = Mapping[str, "FileState | None"]

_CONFIG = {
    "commit.gpgSign": "false",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.fileMode": "true",
    "core.hooksPath": os.devnull,
    "core.safecrlf": "false",
    "diff.algorithm": "myers",
    "diff.indentHeuristic": "true",
    "diff.suppressBlankEmpty": "false",
    "gc.auto": "0",
}
_ATTRIBUTES = "* -text -ident -filter -working-tree-encoding\n*.py diff=python\n*.pyi diff=python\n"
_DIFF = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "--binary"),
    *("--find-renames", "--unified=3", "--inter-hunk-context=0"),
)
_NOBODY = "patchkit <patchkit@localhost>"


class Scratch:
    """A repository in a folder of its own; ``base`` names its first commit."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)

    @classmethod
    def make(cls, path: str) -> Scratch:
        """A new one in an empty folder."""
        with variables({**dict.fromkeys(STEERING), "GIT_PYTHON_REFRESH": "quiet"}):
            import git

            command = str(git.Git.GIT_PYTHON_GIT_EXECUTABLE)
            try:
                git.Git(path).execute(
                    [command, "init", "--quiet", "--template=", "--initial-branch=patchkit"],
                    env={"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
                )
            except git.GitCommandNotFound as error:
                raise Refused(
                    "git was not found; patches are made with it",
                    code="git-missing",
                    hint="install git, or set GIT_PYTHON_GIT_EXECUTABLE to where it is",
                ) from error
            except git.GitCommandError as error:
                raise _fault(path, str(error.stderr)) from error
        with opened(path) as repo, repo.config_writer() as config:
            for key, value in _CONFIG.items():
                section, _, name = key.partition(".")
                config.set_value(section, name, value)
        info = os.path.join(path, ".git", "info")
        os.makedirs(info, exist_ok=True)
        with open(os.path.join(info, "attributes"), "w", encoding="utf-8") as file:
            file.write(_ATTRIBUTES)
        return cls(path)

    @classmethod
    @contextmanager
    def temporary(cls) -> Iterator[Scratch]:
        """One that is gone again at the end."""
        with tempfile.TemporaryDirectory(prefix="patchkit-") as folder:
            yield cls.make(folder)

    @contextmanager
    def _repo(self, **environment: str) -> Iterator[git.Repo]:
        try:
            with opened(self.path) as repo:
                repo.git.update_environment(
                    GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1", **environment
                )
                yield repo
        except Refused as error:
            if error.code != "git-failed":
                raise
            raise _fault(self.path, error.message.rpartition(": ")[2]) from error

    def commit(
        self, files: Files, message: str, *, author: str | None = None, date: str | None = None
    ) -> str:
        """Write the files (None: take one away) and commit them; the commit's name."""
        for path, state in files.items():
            self._write(path, state)
        name, _, mail = (author or _NOBODY).rstrip(">").partition("<")
        who = {"NAME": name.strip() or "unknown", "EMAIL": mail.strip() or "unknown"}
        environment = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in who.items()
        }
        if date:
            environment["GIT_AUTHOR_DATE"] = date
        with self._repo(**environment) as repo:
            run_git(repo, self.path, "add", "--all", "--force")
            run_git(
                *(repo, self.path, "commit", "--quiet", "--no-verify", "--allow-empty"),
                *("--allow-empty-message", "--cleanup=verbatim", f"--message={message}"),
            )
            _, output = run_git(repo, self.path, "rev-parse", "HEAD")
        return output.decode().strip()

    def diff(self, old: str, new: str, prefix: str = "", *, paths: tuple[str, ...] = ()) -> bytes:
        """What changed between two commits; ``prefix`` stands before each path, behind git's
        ``a/`` and ``b/``."""
        with self._repo() as repo:
            _, output = run_git(
                *(repo, self.path, *_DIFF, f"--src-prefix=a/{prefix}", f"--dst-prefix=b/{prefix}"),
                *(old, new, "--", *paths),
            )
        return output

    def changed(
        self, old: str, new: str
    ) -> tuple[dict[str, FileState | None], dict[str, FileState | None]]:
        """The files that differ between two commits, as they are in each."""
        with self._repo() as repo:
            _, output = run_git(
                repo, self.path, "diff", "--name-only", "--no-renames", "-z", old, new
            )
            paths = [os.fsdecode(path) for path in output.split(b"\0") if path]
            trees = [list_tree(repo, self.path, "-r", commit) for commit in (old, new)]
            sides: list[dict[str, FileState | None]] = [{}, {}]
            for tree, side in zip(trees, sides, strict=True):
                for path in paths:
                    blob = tree.get(path)
                    side[path] = None
                    if blob is not None:
                        _, data = run_git(repo, self.path, "cat-file", "blob", blob.name)
                        side[path] = _state(blob.mode, data)
        return sides[0], sides[1]

    def run(self, *args: str) -> str:
        """What a git command prints."""
        with self._repo() as repo:
            return run_git(repo, self.path, *args)[1].decode("utf-8", "surrogateescape")

    def _write(self, path: str, state: FileState | None) -> None:
        full = os.path.join(self.path, path)
        if os.path.lexists(full):
            os.unlink(full)
        if state is None:
            return
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if state.kind == "symlink":
            os.symlink(state.data, os.fsencode(full))
            return
        with open(full, "wb") as file:
            file.write(state.data)
        os.chmod(full, 0o755 if state.mode & 0o100 else 0o644)


def _state(mode: int, data: bytes) -> FileState:
    if mode == 0o120000:
        return FileState("symlink", 0, data)
    return FileState("file", 0o755 if mode & 0o100 else 0o644, data)


def _fault(path: str, reason: str) -> Fault:
    words = " ".join(reason.split()).strip("'")
    return Fault(f"git failed in {path}: {words}", code="git-failed")


def remove(path: str) -> None:
    """Take a scratch repository away."""
    shutil.rmtree(path)


def remove_if_bare(path: str) -> None:
    """Take the folder of the repositories away, where there is none left in it."""
    if os.listdir(path) == [".gitignore"]:
        shutil.rmtree(path)


def folder(path: str) -> str:
    """An empty folder for a repository that stays, with those above it."""
    os.makedirs(path)
    return path


def move(path: str, to: str) -> None:
    """Give a repository its name, once it is whole."""
    os.rename(path, to)


def note(path: str, text: str) -> None:
    """Write a small file that goes with a scratch repository, whole or not at all."""
    root = make_root(os.path.dirname(path))
    try:
        root.replace(os.path.basename(path), text.encode())
    finally:
        root.close()


def diff_of(before: Files, after: Files, prefix: str = "") -> bytes:
    """The diff that makes ``after`` of ``before``; empty where they are the same."""
    with Scratch.temporary() as scratch:
        old = scratch.commit(before, "before")
        new = scratch.commit(after, "after")
        return scratch.diff(old, new, prefix)
