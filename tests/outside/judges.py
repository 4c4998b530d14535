"""What ``git apply``, GNU patch and patchkit make of a case, and the class it is in by that.

The references are ``git apply`` outside any repository and ``patch --fuzz=0 --binary``.
Owns the running of tools on trees on disk; one runs at a time, in a folder of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from patchkit.errors import PatchkitError
from patchkit.model import FileState
from tests import strategies
from tests.outside.cases import Case, plain, variants
from tests.outside.sources import Found
from tests.strategies import Tree, read_tree, write_tree

Class = Literal["agree-apply", "agree-refuse", "git-only", "gnu-only", "refuse-lenient", "differ"]
CLASSES: tuple[Class, ...] = (
    *("agree-apply", "agree-refuse", "git-only"),
    *("gnu-only", "refuse-lenient", "differ"),
)


def _gnu_patch() -> str | None:
    found = shutil.which("patch")
    if found is None:
        return None
    done = subprocess.run([found, "--version"], capture_output=True, check=False)
    return found if done.stdout.startswith(b"GNU patch") else None


GNU_PATCH = _gnu_patch()

_DROPPED = ("PATCH_GET", "POSIXLY_CORRECT", "QUOTING_STYLE", "SIMPLE_BACKUP_SUFFIX", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a tool ended: whether it said that it worked, and the tree that it left."""

    applied: bool
    tree: Tree


def normal(tree: Mapping[str, FileState]) -> Tree:
    """Modes as git knows them: executable or not."""
    return {
        path: state._replace(mode=0o755 if state.mode & 0o100 else 0o644)
        if state.kind == "file"
        else state
        for path, state in tree.items()
    }


# -- tools on disk -------------------------------------------------------------------------


def environment(folder: Path) -> dict[str, str]:
    """Nobody's configuration of git or patch."""
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("GIT_", "PATCHKIT_")) and key not in _DROPPED
    }
    env.update(
        GIT_CEILING_DIRECTORIES=str(folder),
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_NOSYSTEM="1",
        HOME=str(folder),
        LC_ALL="C.UTF-8",
        TZ="UTC",
    )
    return env


@dataclass(slots=True)
class Bench:
    """A folder in which a tree is laid out, changed by a tool and read again.

    The tree lies two folders deep, and what is read is all of it: a tool that wrote one
    level higher has not left the tree alone.
    """

    folder: Path
    env: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.env = environment(self.folder)

    @property
    def tree(self) -> Path:
        """Where a case's tree lies."""
        return self.folder / "all" / "in" / "tree"

    @property
    def patch(self) -> Path:
        """Where its patch lies."""
        return self.folder / "case.patch"

    def lay(self, case: Case) -> None:
        """Make both, and remove what was there."""
        shutil.rmtree(self.folder / "all", ignore_errors=True)
        self.tree.mkdir(parents=True)
        write_tree(case.tree, self.tree)
        self.patch.write_bytes(case.patch)

    def left(self) -> Tree:
        """What lies there now, by its path in the tree (``../…`` outside of it)."""
        return normal(
            {
                os.path.relpath(path, "in/tree"): state
                for path, state in read_tree(self.folder / "all").items()
            }
        )

    def run(self, case: Case, command: Sequence[str]) -> Outcome:
        """Lay the case out, run the command in the tree, read it again."""
        self.lay(case)
        done = subprocess.run(
            command,
            cwd=self.tree,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        return Outcome(done.returncode == 0, self.left())

    def git(self, case: Case) -> Outcome:
        """``git apply``."""
        back = ["-R"] if case.reverse else []
        command = ["git", "apply", "--whitespace=nowarn", f"-p{case.strip}", *back]
        return self.run(case, [*command, str(self.patch)])

    def gnu(self, case: Case, *options: str) -> Outcome:
        """``patch --force`` with these options; nothing but the tree is written."""
        assert GNU_PATCH is not None
        back = ["-R"] if case.reverse else []
        command = [GNU_PATCH, "--force", "--silent", "--no-backup-if-mismatch", "--reject-file=-"]
        command += [*options, f"-p{case.strip}", *back, "-i", str(self.patch)]
        return self.run(case, command)


STRICT = ("--fuzz=0", "--binary")


# -- classes -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """A case, its class, and what the references made of it."""

    case: Case
    kind: Class
    by_git: Outcome
    by_gnu: Outcome

    @property
    def wanted(self) -> Tree | None:
        """The tree that is right by the references (git's where they differ), or None
        where it is right to refuse."""
        for outcome in (self.by_git, self.by_gnu):
            if outcome.applied:
                return outcome.tree
        return None


def judge(bench: Bench, case: Case) -> Judged:
    """Ask both references; GNU patch as it is without options only where both refuse."""
    git, gnu = bench.git(case), bench.gnu(case, *STRICT)
    kind: Class
    if git.applied and gnu.applied:
        kind = "agree-apply" if git.tree == gnu.tree else "differ"
    elif git.applied or gnu.applied:
        kind = "git-only" if git.applied else "gnu-only"
    else:
        kind = "refuse-lenient" if bench.gnu(case).applied else "agree-refuse"
    return Judged(case, kind, git, gnu)


def judged(
    bench: Bench, found: Iterable[Found], *, varied: Callable[[int], bool] = lambda _: True
) -> Iterator[Judged]:
    """Every case that can be made of the patches, each question only once.  ``varied`` says
    of which patches (by number) the variants are made as well."""
    seen: set[str] = set()
    for number, one in enumerate(found):
        for case in plain(one.suite, one.source, one.data):
            if case.digest in seen:
                continue
            seen.add(case.digest)
            first = judge(bench, case)
            yield first
            if case.variant != "exact" or not varied(number):
                continue
            for other in variants(case, first.wanted):
                if other.digest not in seen:
                    seen.add(other.digest)
                    yield judge(bench, other)


# -- patchkit ------------------------------------------------------------------------------


def engine(case: Case) -> Tree | PatchkitError:
    """What patchkit's engine makes of a case, in memory; or why it refuses."""
    try:
        tree = strategies.apply(case.tree, case.patch, strip=case.strip, reverse=case.reverse)
    except PatchkitError as error:
        return error
    return normal(tree)
