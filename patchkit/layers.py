"""Bundle directories that are no plain folder: a git repository at a revision, and several
directories of which the later one wins.

What they hold is laid out once in a folder of the user's cache, by its content, so that the
rest of patchkit reads a plain bundle directory; nothing is written into it afterwards.  And
where a bundle directory comes from: repository, revision, and whether it was clean.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from .caches import cache_folder
from .errors import Refused, UsageError
from .fsio import digest, make_root, remove_tree, walk_files
from .gitsource import list_tree, opened, run_git

_ORIGINS = "origins.json"
_REVISION = re.compile(r"(?P<repository>.+)@(?P<revision>[^@:\s]+)\Z", re.DOTALL)
# A URL, or git's user@host:path.
_ADDRESS = re.compile(r"\w[\w+.-]*://|(?:[\w.-]+@)?[\w.-]+:(?!//)")
_FOLDERS = ("manifests", "patches")


class Origin(TypedDict):
    """Where a bundle comes from.  ``repository`` is a path or an address, ``revision`` a full
    commit name (None: nothing was committed), ``dirty`` whether the bundle's files differed
    from it."""

    repository: str
    revision: str | None
    dirty: bool


def is_special(texts: Sequence[str], cwd: str) -> bool:
    """Whether these name more than one plain folder."""
    return len(texts) > 1 or any(_revision(text, cwd) is not None for text in texts)


def laid_out(texts: Sequence[str], environ: Mapping[str, str], cwd: str) -> str:
    """A plain bundle directory with what these hold, the later ones first to count."""
    files: dict[str, bytes] = {}
    origins: dict[str, Origin | None] = {}
    layers: dict[str, list[str]] = {}
    for text in texts:
        found, layer_origins = _layer(text, environ, cwd)
        for name, origin in layer_origins.items():
            if name in layers:  # the whole bundle of the layer before gives way
                files = {p: d for p, d in files.items() if not _belongs(p, name)}
            layers.setdefault(name, []).append(text)
            origins[name] = origin
        files.update(found)
    value = {
        "origins": origins,
        "layers": {name: found for name, found in layers.items() if len(found) > 1},
    }
    files[_ORIGINS] = json.dumps(value, indent=1, sort_keys=True).encode()
    listing = "".join(f"{path}\0{digest(data)}\n" for path, data in sorted(files.items()))
    folder = os.path.join(
        cache_folder(environ), "bundles", digest(listing.encode("utf-8", "replace"))
    )
    if not os.path.isfile(os.path.join(folder, _ORIGINS)):
        root = make_root(folder)
        try:
            for name in _FOLDERS:
                root.mkdir(name)
            for path in sorted(files, key=lambda path: path == _ORIGINS):  # it comes last
                root.make_folders(path)
                root.replace(path, files[path])
        finally:
            root.close()
    return folder


def shadowed(folder: str) -> dict[str, list[str]]:
    """Bundle to the layers that have it, where several do; the last one counts."""
    found = _origins_file(folder)
    return {} if found is None else dict(found.get("layers", {}))


def origin(folder: str, name: str) -> Origin | None:
    """Where a bundle comes from; None for a folder that is in no git repository."""
    laid = _origins_file(folder)
    if laid is not None:
        found: Origin | None = laid.get("origins", {}).get(name)
        return found
    work_tree = _work_tree(folder)
    if work_tree is None:
        return None
    own = [f"manifests/{name}.toml", f"manifests/{name}.lock", f"patches/{name}"]
    head = _git(folder, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    changed = _git(folder, "status", "--porcelain=v1", "--untracked-files=all", "--", *own)
    if changed is None:
        return None  # git is not there, or does not want to look: no reason to stop
    return Origin(repository=work_tree, revision=(head or "").strip() or None, dirty=bool(changed))


# -- one layer --------------------------------------------------------------------------


def _layer(
    text: str, environ: Mapping[str, str], cwd: str
) -> tuple[dict[str, bytes], dict[str, Origin | None]]:
    """The files of a layer by path, and the origin of each of its bundles."""
    pair = _revision(text, cwd)
    if pair is None:
        folder = os.path.join(cwd, os.path.expanduser(text))
        if not os.path.isdir(os.path.join(folder, "manifests")):
            raise UsageError(
                f"--bundles: {text!r} is no bundle directory",
                hint="a bundle directory holds manifests/ and patches/; of a git repository at a"
                " revision: REPOSITORY@REVISION",
            )
        files = _read_folder(folder)
        return files, {name: origin(folder, name) for name in _bundles(files)}
    repository, revision = pair
    files, commit = _read_revision(repository, revision, environ, cwd)
    if not _bundles(files):
        raise UsageError(
            f"--bundles: {text!r} holds no bundles",
            hint="manifests/ and patches/ must stand at the top of the repository",
        )
    local = os.path.abspath(os.path.join(cwd, os.path.expanduser(repository)))
    # A record is read from other folders, too, where a relative path means another one.
    shown = local if os.path.isdir(local) else _without_secret(repository)
    return files, {
        name: Origin(repository=shown, revision=commit, dirty=False) for name in _bundles(files)
    }


def _revision(text: str, cwd: str) -> tuple[str, str] | None:
    """Repository and revision of ``REPOSITORY@REVISION``; None for a plain folder."""
    if os.path.isdir(os.path.join(cwd, os.path.expanduser(text))):
        return None
    found = _REVISION.match(text)
    if found is None:
        return None
    repository = found["repository"]
    if not _ADDRESS.match(repository) and not _is_path(found, cwd):
        return None
    return found["repository"], found["revision"]


def _is_path(found: re.Match[str], cwd: str) -> bool:
    return os.path.exists(os.path.join(cwd, os.path.expanduser(found["repository"])))


def _read_folder(folder: str) -> dict[str, bytes]:
    from .bundles import whole

    files = {}
    whole(folder)
    for top in _FOLDERS:
        base = os.path.join(folder, top)
        for path in walk_files(base) if os.path.isdir(base) else ():
            with open(os.path.join(base, path), "rb") as file:
                files[f"{top}/{path}"] = file.read()
    return files


def _read_revision(
    repository: str, revision: str, environ: Mapping[str, str], cwd: str
) -> tuple[dict[str, bytes], str]:
    local = os.path.join(cwd, os.path.expanduser(repository))
    if os.path.isdir(local):
        if _work_tree(local) != os.path.realpath(local) and not os.path.isfile(f"{local}/HEAD"):
            raise UsageError(
                f"--bundles: {repository} is the top of no git repository",
                hint="name the repository, whose top holds manifests/ and patches/",
            )
        with opened(local) as repo:
            return _at(repo, local, revision, repository)
    folder = _mirror(repository, environ)
    with opened(folder) as repo:
        return _at(repo, folder, revision, repository)


def _at(repo: Any, folder: str, revision: str, shown: str) -> tuple[dict[str, bytes], str]:
    status, output = 1, b""
    for name in (revision, f"refs/remotes/origin/{revision}"):
        status, output = run_git(
            *(repo, folder, "rev-parse", "--quiet", "--verify", "--end-of-options"),
            f"{name}^{{commit}}",
            fine=(0, 1, 128),
        )
        if status == 0:
            break
    if status != 0:
        raise UsageError(
            f"{_without_secret(shown)} has no revision {revision}",
            hint="a tag, a branch or a commit: git log --oneline",
        )
    commit = output.decode("ascii").strip()
    blobs = list_tree(repo, folder, "-r", commit, "--", *_FOLDERS)
    files = {}
    for path, blob in blobs.items():
        if blob.mode != 0o120000:  # a link could lead anywhere
            files[path] = run_git(repo, folder, "cat-file", "blob", blob.name)[1]
    return files, commit


def _mirror(repository: str, environ: Mapping[str, str]) -> str:
    """A bare copy of a remote repository in the cache, brought up to date; what is there
    must do where it cannot be reached."""
    from .gitsource import mirror

    key = digest(repository.encode("utf-8", "surrogateescape"))
    folder = os.path.join(cache_folder(environ), "repositories", key)
    is_new = not os.path.isdir(folder)
    try:
        mirror(repository, folder)
    except Refused as error:
        if is_new:
            if os.path.isdir(folder):
                remove_tree(folder)  # it holds nothing yet
            raise Refused(
                f"{_without_secret(repository)} cannot be fetched: {error.message}",
                code="repository-unreachable",
                hint="check the address and the network: git ls-remote",
            ) from None
    return folder


# -- small ------------------------------------------------------------------------------


def _bundles(files: Mapping[str, bytes]) -> list[str]:
    return sorted(
        path[len("manifests/") : -len(".toml")]
        for path in files
        if path.startswith("manifests/") and path.endswith(".toml") and path.count("/") == 1
    )


def _belongs(path: str, name: str) -> bool:
    return path in (f"manifests/{name}.toml", f"manifests/{name}.lock") or path.startswith(
        f"patches/{name}/"
    )


def _without_secret(address: str) -> str:
    return re.sub(r"(\w+://)[^/@\s]*@", r"\1", address)


def _origins_file(folder: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, _ORIGINS), encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _work_tree(folder: str) -> str | None:
    """The git work tree that a folder lies in, by looking; None: in none."""
    path = os.path.realpath(folder)
    while True:
        if os.path.lexists(os.path.join(path, ".git")):
            return path
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above


def _git(folder: str, *args: str) -> str | None:
    """The output of a git command that only looks; None where it does not work.  Run without
    GitPython, whose import would cost more than all of a small apply."""
    import subprocess

    environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environ.update(GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0")
    try:
        done = subprocess.run(
            ["git", "-C", folder, "-c", "core.fsmonitor=false", *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environ,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
