"""What git HEAD says of files, with git itself as the oracle."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit import gitsource
from patchkit.editable import find_git
from patchkit.errors import Refused
from patchkit.gitsource import clean_paths, head_commit, tracked_paths
from tests.conftest import Git, clean_environment
from tests.releases import ROOT


@pytest.fixture(autouse=True)
def nobodys_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [key for key in os.environ if key.startswith("GIT_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repository(tmp_path: Path, git: Git) -> Path:
    """A commit with an ordinary, an executable, a linked and a deep file."""
    tree = tmp_path / "tree"
    (tree / "pkg" / "sub").mkdir(parents=True)
    git(tree, "init", "-q")
    (tree / "plain.py").write_bytes(b"x = 1\n")
    (tree / "tool.sh").write_bytes(b"#!/bin/sh\n")
    (tree / "tool.sh").chmod(0o755)
    (tree / "link").symlink_to("plain.py")
    (tree / "pkg" / "sub" / "deep.py").write_bytes(b"y = 2\n")
    (tree / "empty").touch()
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "all")
    return tree


ALL = ("plain.py", "tool.sh", "link", "pkg/sub/deep.py", "empty")


def clean(tree: Path, *paths: str) -> dict[str, bool]:
    git_dir, work_tree = find_git(str(tree))
    assert git_dir is not None and work_tree is not None
    return clean_paths(work_tree, git_dir, paths)


def refused(code: str, call: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    assert caught.value.code == code
    assert caught.value.hint
    return caught.value


def as_link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def as_file(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def as_other(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def picture(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file under a folder: inode, time and digest."""
    out = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        digest = "" if not path.is_file() else hashlib.sha256(path.read_bytes()).hexdigest()
        out[str(path)] = (info.st_ino, info.st_mtime_ns, digest)
    return out


class TestContents:
    def test_a_fresh_checkout_is_clean(self, repository: Path) -> None:
        assert clean(repository, *ALL) == dict.fromkeys(ALL, True)

    def test_what_is_not_asked_is_not_told(self, repository: Path) -> None:
        assert clean(repository) == {}
        assert clean(repository, "plain.py") == {"plain.py": True}

    @pytest.mark.parametrize(
        ("path", "change"),
        [
            ("plain.py", lambda path: path.write_bytes(b"x = 2\n")),
            ("plain.py", lambda path: path.write_bytes(b"x = 1\r\n")),
            ("plain.py", lambda path: path.write_bytes(b"x = 1")),
            ("empty", lambda path: path.write_bytes(b"\n")),
            ("plain.py", lambda path: path.unlink()),
            ("plain.py", lambda path: path.chmod(0o755)),
            ("tool.sh", lambda path: path.chmod(0o644)),
            ("plain.py", lambda path: as_link(path, "link")),
            ("plain.py", lambda path: as_other(path, Path.mkdir)),
            ("plain.py", lambda path: as_other(path, os.mkfifo)),
            ("link", lambda path: as_link(path, "empty")),
            ("link", lambda path: as_file(path, b"plain.py")),
            ("pkg/sub/deep.py", lambda path: shutil.rmtree(path.parent)),
        ],
    )
    def test_a_change_is_seen(
        self, repository: Path, path: str, change: Callable[[Path], object]
    ) -> None:
        change(repository / path)
        assert clean(repository, *ALL) == {name: name != path for name in ALL}

    def test_modes_that_git_does_not_keep(self, repository: Path) -> None:
        (repository / "plain.py").chmod(0o600)
        (repository / "tool.sh").chmod(0o700)
        assert all(clean(repository, *ALL).values())

    def test_the_executable_bit_where_it_does_not_count(self, repository: Path, git: Git) -> None:
        (repository / "plain.py").chmod(0o755)
        (repository / "tool.sh").chmod(0o644)
        git(repository, "config", "core.fileMode", "false")
        assert all(clean(repository, *ALL).values())
        (repository / "plain.py").write_text("x = 3\n")
        assert clean(repository, "plain.py", "tool.sh") == {"plain.py": False, "tool.sh": True}
        git(repository, "config", "--unset", "core.fileMode")
        assert clean(repository, "tool.sh") == {"tool.sh": False}

    def test_another_file_behind_a_linked_folder(self, repository: Path) -> None:
        (repository / "pkg" / "sub").rename(repository / "moved")
        (repository / "pkg" / "sub").symlink_to("../moved")
        assert (repository / "pkg" / "sub" / "deep.py").exists()
        assert clean(repository, "pkg/sub/deep.py") == {"pkg/sub/deep.py": False}

    def test_a_work_tree_that_is_reached_by_a_link(self, repository: Path) -> None:
        link = repository.parent / "alias"
        link.symlink_to(repository)
        assert all(clean_paths(str(link), str(repository / ".git"), ALL).values())

    def test_what_head_does_not_have(self, repository: Path, git: Git) -> None:
        (repository / "new.py").touch()
        (repository / "staged.py").touch()
        git(repository, "add", "staged.py")
        odd = ["", ".", "pkg", "pkg/", "./plain.py", "../tree/plain.py", str(repository / "link")]
        odd += ["pkg//sub/deep.py", "plain.py/x", "nul\0", "gone.py", ".."]
        assert clean(repository, "new.py", "staged.py", *odd) == {}

    def test_only_head_counts_not_the_index(self, repository: Path, git: Git) -> None:
        git(repository, "rm", "-q", "--cached", "plain.py")
        (repository / "tool.sh").write_text("other\n")
        git(repository, "add", "tool.sh")
        assert clean(repository, "plain.py", "tool.sh") == {"plain.py": True, "tool.sh": False}

    @pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
    def test_flags_of_the_index_do_not_lie(self, repository: Path, git: Git, flag: str) -> None:
        git(repository, "update-index", flag, "plain.py", "link")
        (repository / "plain.py").write_text("x = 2\n")
        (repository / "link").unlink()
        assert git(repository, "status", "--porcelain") == ""
        assert clean(repository, "plain.py", "link") == {"plain.py": False, "link": False}

    def test_a_stale_index_does_not_lie(self, repository: Path, git: Git) -> None:
        """Same size, same time, same inode: git itself is deceived by this."""
        path = repository / "plain.py"
        os.utime(path, ns=(10**18, 10**18))
        git(repository, "config", "core.trustctime", "false")
        git(repository, "update-index", "--refresh")
        with path.open("r+b") as file:
            file.write(b"x = 2\n")
        os.utime(path, ns=(10**18, 10**18))
        assert git(repository, "status", "--porcelain") == ""
        assert clean(repository, "plain.py") == {"plain.py": False}

    def test_a_sparse_checkout(self, repository: Path, git: Git) -> None:
        git(repository, "sparse-checkout", "set", "--no-cone", "/plain.py")
        assert clean(repository, "plain.py", "pkg/sub/deep.py") == {
            "plain.py": True,
            "pkg/sub/deep.py": False,
        }

    def test_more_paths_than_fit_one_command(
        self, repository: Path, git: Git, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [f"pkg/file{number}.py" for number in range(30)]
        for name in names:
            (repository / name).write_text(f"# {name}\n")
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", "many")
        for name in names[::2]:
            (repository / name).write_text("changed\n")
        monkeypatch.setattr(gitsource, "_CHUNK", 7)
        assert clean(repository, *names) == {
            name: number % 2 == 1 for number, name in enumerate(names)
        }

    def test_what_head_has(self, repository: Path, git: Git) -> None:
        (repository / "new.py").touch()
        git(repository, "rm", "-q", "plain.py")
        tree = str(repository)
        assert sorted(tracked_paths(tree)) == sorted(ALL)
        assert tracked_paths(tree, "pkg") == tracked_paths(tree, "pkg/sub") == ["pkg/sub/deep.py"]
        assert tracked_paths(tree, "plain.py") == ["plain.py"]
        for nothing in ("new.py", "gone", "pk", "*"):
            assert tracked_paths(tree, nothing) == []
        assert clean_paths(tree, f"{tree}/.git", tracked_paths(tree)) == {
            name: name != "plain.py" for name in ALL
        }

    def test_names_with_odd_characters(self, repository: Path, git: Git) -> None:
        names = ["-x", "--", "a b", "tab\there", "new\nline", 'quo"te', "back\\slash", "*", "?"]
        names += [":(glob)**", ":/top", "é/ü.py", "\udcff\udcfe", "'", "#", "$HOME", "~", "[a]"]
        for name in names:
            (repository / name).parent.mkdir(exist_ok=True)
            (repository / name).write_text("x\n")
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", "odd")
        assert clean(repository, *names) == dict.fromkeys(names, True)
        assert set(tracked_paths(str(repository))) == {*names, *ALL}
        for name in names[1:]:
            (repository / name).write_text("y\n")
        assert clean(repository, *names) == {name: name == "-x" for name in names}


class TestFilters:
    def test_line_ends_as_they_were_checked_out(self, repository: Path, git: Git) -> None:
        git(repository, "config", "core.autocrlf", "true")
        (repository / "plain.py").unlink()
        git(repository, "checkout", "-q", "--", "plain.py")
        assert (repository / "plain.py").read_bytes() == b"x = 1\r\n"
        assert clean(repository, "plain.py") == {"plain.py": True}
        (repository / "plain.py").write_bytes(b"x = 2\r\n")
        assert clean(repository, "plain.py") == {"plain.py": False}

    def test_line_ends_that_were_committed(self, repository: Path, git: Git) -> None:
        """git leaves a file alone whose committed bytes have CRLF; hash-object does not."""
        (repository / "dos.py").write_bytes(b"a\r\nb\r\n")
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", "dos")
        git(repository, "config", "core.autocrlf", "true")
        (repository / "dos.py").touch()
        assert git(repository, "status", "--porcelain") == ""
        assert clean(repository, "dos.py") == {"dos.py": True}

    def test_attributes_and_filters(self, repository: Path, git: Git) -> None:
        git(repository, "config", "filter.shout.clean", "tr a-z A-Z")
        git(repository, "config", "filter.shout.smudge", "tr A-Z a-z")
        attributes = "*.txt filter=shout\n*.id ident\n*.dos text eol=crlf\n"
        (repository / ".gitattributes").write_text(attributes)
        (repository / "a.txt").write_text("quiet\n")
        (repository / "b.id").write_text("$Id$\n")
        (repository / "c.dos").write_text("x\n")
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", "filters")
        for name in ("a.txt", "b.id", "c.dos"):
            (repository / name).unlink()
        git(repository, "checkout", "-q", "--", ".")
        assert (repository / "c.dos").read_bytes() == b"x\r\n"
        assert len((repository / "b.id").read_text()) > 40
        assert clean(repository, "a.txt", "b.id", "c.dos") == {
            "a.txt": True,
            "b.id": True,
            "c.dos": True,
        }
        (repository / "a.txt").write_text("other\n")
        assert clean(repository, "a.txt") == {"a.txt": False}

    def test_a_filter_that_fails(self, repository: Path, git: Git) -> None:
        git(repository, "config", "filter.lost.clean", "/nowhere/filter")
        git(repository, "config", "filter.lost.required", "true")
        (repository / ".gitattributes").write_text("plain.py filter=lost\n")
        assert clean(repository, "plain.py") == {"plain.py": True}  # its bytes are enough
        (repository / "plain.py").write_text("x = 2\n")
        error = refused("git-failed", lambda: clean(repository, "plain.py"))
        assert "clean filter 'lost' failed" in error.message

    def test_a_filter_makes_no_executable_file_clean(self, repository: Path, git: Git) -> None:
        git(repository, "config", "core.autocrlf", "true")
        (repository / "plain.py").write_bytes(b"x = 1\r\n")
        (repository / "plain.py").chmod(0o755)
        assert clean(repository, "plain.py") == {"plain.py": False}


CHANGES: dict[str, Callable[[Path], object]] = {
    "none": lambda _: None,
    "touch": lambda path: os.utime(path, ns=(10**18, 10**18)),
    "edit": lambda path: path.write_bytes(path.read_bytes() + b"more\n"),
    "crlf": lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
    "lf": lambda path: path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n")),
    "chmod": lambda path: path.chmod(path.stat().st_mode ^ 0o111),
    "delete": lambda path: path.unlink(),
    "link": lambda path: as_link(path, "elsewhere"),
    "copy": lambda path: as_file(path, path.read_bytes()),
}


@settings(max_examples=25)
@given(
    changes=st.lists(st.sampled_from(sorted(CHANGES)), min_size=6, max_size=6),
    autocrlf=st.sampled_from(["false", "true", "input"]),
    file_mode=st.sampled_from(["true", "false"]),
    attributes=st.sampled_from(["", "* text=auto\n", "*.py text\n", "* -text\n"]),
)
def test_git_diff_is_of_the_same_opinion(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[str],
    autocrlf: str,
    file_mode: str,
    attributes: str,
) -> None:
    """Committed with LF, CRLF and both; then changed under any configuration."""
    tree = tmp_path_factory.mktemp("tree")
    env = clean_environment(tree, GIT_CONFIG_GLOBAL=os.devnull)

    def git(*args: str) -> str:
        command = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", *args)
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, check=True)
        return done.stdout.decode()

    git("init", "-q")
    contents = {"lf": b"a\nb\n", "crlf": b"a\r\nb\r\n", "mixed": b"a\r\nb\n"}
    names = [f"{kind}{suffix}" for kind in contents for suffix in (".py", ".txt")]
    for name in names:
        (tree / name).write_bytes(contents[name.partition(".")[0]])
    git("add", ".")
    git("commit", "-q", "-m", "x")
    git("config", "core.autocrlf", autocrlf)
    git("config", "core.fileMode", file_mode)
    (tree / ".gitattributes").write_text(attributes)
    for name, change in zip(names, changes, strict=True):
        CHANGES[change](tree / name)
    verdicts = clean_paths(str(tree), str(tree / ".git"), names)
    differs = set(git("diff", "--name-only", "-z", "HEAD").split("\0"))
    for name, change in zip(names, changes, strict=True):
        if verdicts[name] and name in differs:
            # The committed bytes themselves: pristine, whatever git would make of them on
            # the next commit ("text" normalises CRLF that was committed before).
            committed = contents[name.partition(".")[0]]
            assert (tree / name).read_bytes() == committed, (name, change)
        else:
            assert verdicts[name] == (name not in differs), (name, change)


class TestRepositories:
    def test_no_commit_yet(self, tmp_path: Path, git: Git) -> None:
        git(tmp_path, "init", "-q")
        (tmp_path / "a").touch()
        git(tmp_path, "add", "a")
        assert head_commit(str(tmp_path)) is None
        assert tracked_paths(str(tmp_path)) == []
        assert clean(tmp_path, "a") == {}

    def test_the_commit(self, repository: Path, git: Git) -> None:
        head = git(repository, "rev-parse", "HEAD").strip()
        assert head_commit(str(repository)) == head
        git(repository, "pack-refs", "--all")
        assert head_commit(str(repository)) == head
        git(repository, "checkout", "-q", "--detach")
        assert head_commit(str(repository)) == head
        git(repository, "tag", "-a", "-m", "x", "v1")
        git(repository, "symbolic-ref", "HEAD", "refs/tags/v1")
        assert head_commit(str(repository)) == head

    def test_object_names_of_sha256(self, tmp_path: Path, git: Git) -> None:
        git(tmp_path, "init", "-q", "--object-format=sha256")
        (tmp_path / "a").write_text("a\n")
        (tmp_path / "b").symlink_to("a")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", "x")
        assert len(head_commit(str(tmp_path)) or "") == 64
        assert clean(tmp_path, "a", "b") == {"a": True, "b": True}
        (tmp_path / "a").write_text("b\n")
        assert clean(tmp_path, "a") == {"a": False}

    def test_a_linked_work_tree(self, repository: Path, git: Git) -> None:
        linked = repository.parent / "linked"
        git(repository, "worktree", "add", "-q", str(linked))
        (linked / "plain.py").write_text("x = 2\n")
        git(linked, "commit", "-q", "-a", "-m", "other")
        assert head_commit(str(linked)) != head_commit(str(repository))
        (repository / "plain.py").write_text("x = 2\n")
        assert clean(linked, "plain.py") == {"plain.py": True}
        assert clean(repository, "plain.py") == {"plain.py": False}

    def test_a_submodule(self, repository: Path, tmp_path: Path, git: Git) -> None:
        outer = tmp_path / "outer"
        outer.mkdir()
        git(outer, "init", "-q")
        add = ("submodule", "add", "-q", str(repository), "sub")
        git(outer, "-c", "protocol.file.allow=always", *add)
        git(outer, "commit", "-q", "-m", "x")
        assert clean(outer / "sub", *ALL) == dict.fromkeys(ALL, True)
        assert clean(outer, "sub", "sub/plain.py", ".gitmodules") == {".gitmodules": True}
        assert tracked_paths(str(outer)) == [".gitmodules"]
        (outer / "sub" / "plain.py").write_text("x = 2\n")
        assert clean(outer / "sub", "plain.py") == {"plain.py": False}

    def test_a_name_with_odd_characters(self, tmp_path: Path, git: Git) -> None:
        for name in ("$HOME %d ~", "new\nline", "-x", "é"):
            tree = tmp_path / name
            tree.mkdir()
            git(tree, "init", "-q")
            (tree / "a").touch()
            git(tree, "add", ".")
            assert head_commit(str(tree)) is None
            git(tree, "commit", "-q", "-m", "x")
            assert clean(tree, "a") == {"a": True}
            assert head_commit(str(tree)) == git(tree, "rev-parse", "HEAD").strip()

    def test_no_work_tree(self, tmp_path: Path) -> None:
        for folder in (tmp_path, tmp_path / "gone"):
            error = refused("git-failed", partial(head_commit, str(folder)))
            assert "it is no git work tree" in error.message

    def test_another_git_directory(self, repository: Path, tmp_path: Path) -> None:
        error = refused("git-failed", lambda: clean_paths(str(repository), str(tmp_path), ALL))
        assert str(repository / ".git") in error.message

    def test_a_work_tree_elsewhere(self, repository: Path, tmp_path: Path, git: Git) -> None:
        (tmp_path / "other").mkdir()
        git(repository, "config", "core.worktree", str(tmp_path / "other"))
        error = refused("git-failed", lambda: clean(repository, "plain.py"))
        assert str(tmp_path / "other") in error.message

    def test_a_broken_repository(self, repository: Path, git: Git) -> None:
        git(repository, "config", "core.repositoryFormatVersion", "99")
        error = refused("git-failed", lambda: clean(repository, "plain.py"))
        assert "99" in error.message

    def test_objects_that_are_lost(self, repository: Path, git: Git) -> None:
        tree = git(repository, "rev-parse", "HEAD^{tree}").strip()
        (repository / ".git/objects" / tree[:2] / tree[2:]).unlink()
        refused("git-failed", lambda: clean(repository, "plain.py"))


class TestSurroundings:
    def test_nothing_is_written(self, repository: Path, git: Git) -> None:
        os.utime(repository / "plain.py", ns=(10**18, 10**18))  # the index is stale now
        (repository / "tool.sh").write_text("other\n")
        before = picture(repository)
        clean(repository, *ALL)
        head_commit(str(repository))
        assert picture(repository) == before
        git(repository, "status")
        assert picture(repository) != before  # which a plain git command would do

    def test_what_a_user_may_have_configured(
        self, repository: Path, tmp_path: Path, git: Git
    ) -> None:
        marker = tmp_path / "ran"
        hook = tmp_path / "hook"
        hook.write_text(f"#!/bin/sh\necho $0 $@ >> {marker}\nexit 1\n")
        hook.chmod(0o755)
        for key, value in {
            "color.ui": "always",
            "core.abbrev": "4",
            "core.fsmonitor": str(hook),
            "core.pager": str(hook),
            "core.quotePath": "true",
            "diff.external": str(hook),
            "diff.py.textconv": str(hook),
            "diff.mnemonicPrefix": "true",
            "log.showSignature": "true",
            "pager.ls-tree": "true",
            "status.short": "true",
            "alias.ls-tree": f"!{hook}",
        }.items():
            git(repository, "config", key, value)
        (repository / ".gitattributes").write_text("*.py diff=py\n")
        (repository / "plain.py").write_text("x = 2\n")
        assert clean(repository, *ALL) == {name: name != "plain.py" for name in ALL}
        assert not marker.exists()

    def test_variables_that_point_elsewhere(
        self, repository: Path, tmp_path: Path, git: Git, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a git hook of another repository has them."""
        other = tmp_path / "other"
        other.mkdir()
        git(other, "init", "-q")
        variables = {
            "GIT_DIR": str(other / ".git"),
            "GIT_WORK_TREE": str(other),
            "GIT_COMMON_DIR": str(other / ".git"),
            "GIT_INDEX_FILE": str(other / "index"),
            "GIT_OBJECT_DIRECTORY": str(other / ".git" / "objects"),
            "GIT_PREFIX": "pkg/",
            "GIT_ICASE_PATHSPECS": "1",
            "GIT_NAMESPACE": "other",
            "GIT_EXTERNAL_DIFF": "/nowhere",
            "GIT_PYTHON_REFRESH": "raise",
        }
        for key, value in variables.items():
            monkeypatch.setenv(key, value)
        before = dict(os.environ)
        assert clean(repository, *ALL) == dict.fromkeys(ALL, True)
        assert head_commit(str(repository))
        assert dict(os.environ) == before
        refused("git-failed", lambda: head_commit(str(tmp_path)))
        assert dict(os.environ) == before

    def test_no_git(self, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        error = refused("git-missing", lambda: head_commit(str(repository)))
        assert "git was not found" in error.message
        assert "install git" in str(error.hint)

    def test_no_git_when_gitpython_is_imported(self, repository: Path, tmp_path: Path) -> None:
        code = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
            "from patchkit.gitsource import head_commit\n"
            "from patchkit.errors import Refused\n"
            "assert 'git' not in sys.modules\n"
            f"try: head_commit({str(repository)!r})\n"
            "except Refused as error: print(error.code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=clean_environment(tmp_path, PATH="/nowhere"),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("git-missing\n", "")

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
    def test_a_checkout_of_another_user(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for path in (repository, repository / ".git"):
            os.chown(path, 12345, 12345)
        error = refused("git-ownership", lambda: clean(repository, *ALL))
        assert "belongs to another user" in error.message
        assert f"safe.directory {repository}" in str(error.hint)
        refused("git-ownership", lambda: head_commit(str(repository)))
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(repository))
        assert all(clean(repository, *ALL).values())

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
    def test_a_file_that_cannot_be_read(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for folder in repository.parents:
            if folder.stat().st_mode & 0o005 != 0o005:
                folder.chmod(0o755)
        (repository / "plain.py").chmod(0o600)
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", "*")
        monkeypatch.setenv("HOME", "/nowhere")
        import git  # noqa: F401 - the interpreter may lie where another user cannot look

        before = os.geteuid()
        os.seteuid(65534)
        try:
            error = refused("git-failed", lambda: clean(repository, *ALL))
        finally:
            os.seteuid(before)
        assert "plain.py cannot be read: Permission denied" in error.message
