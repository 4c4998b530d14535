"""Caches of JIT compilers: which folders a manifest's ``[caches]`` means.

Owns where each compiler keeps what it built, by the variables that it reads itself, and where
patchkit's own cache of this user is.  Only looks; the journal moves, and never out of the root
of a cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from .errors import Refused
from .jit import CACHES

ASIDE = "patchkit-aside"


class _Place(NamedTuple):
    """A root, the folders between it and what was built (``*``: any), and which of these a
    name means, given a folder's path and name."""

    root: str
    between: tuple[str, ...]
    means: Callable[[str, str, str], bool]
    shared: bool = False


def folders_to_set_aside(
    kind: str, names: tuple[str, ...], environ: Mapping[str, str], label: str
) -> list[tuple[str, str]]:
    """(folder, new name below the same root) for everything built that the names mean.

    All releases and architectures are taken: what is set aside needlessly is built again,
    what is left runs the wrong kernel.  Raises :class:`Refused` for an unknown kind, and
    where a symlink leads out of a root.
    """
    if kind not in _PLACES:
        raise Refused(
            f"no cache is called {kind!r}",
            code="unknown-cache",
            hint=f"known are: {', '.join(CACHES)}",
        )
    found: list[tuple[str, str]] = []
    for place in _PLACES[kind](environ):
        if place.shared and os.path.lexists(place.root) and not _is_mine(place.root):
            raise _leads_out(place.root, "it lies where others write, and is not yours")
        for folder in _below(place.root, place.between):
            above = os.path.join(place.root, folder)
            found.extend(
                (entry.path, _aside(place.root, folder, entry.name, label))
                for entry in _folders(above)
                if any(place.means(entry.path, entry.name, name) for name in names)
            )
    return found


def _below(root: str, between: tuple[str, ...]) -> Iterator[str]:
    """The folders that hold what was built, relative to the root."""
    found = [""]
    for part in between:
        deeper = []
        for folder in found:
            for entry in _folders(os.path.join(root, folder)):
                if part in ("*", entry.name):
                    if entry.is_symlink():
                        if not entry.is_dir():
                            continue
                        raise _leads_out(entry.path, "it is a symlink")
                    deeper.append(os.path.join(folder, entry.name))
        found = deeper
    yield from found


def _aside(root: str, folder: str, name: str, label: str) -> str:
    """A name below the same root, and on the same device, as a rename needs it."""
    aside, above = os.path.join(root, ASIDE), os.path.join(root, folder)
    if os.stat(root).st_dev != os.stat(above).st_dev:
        aside = os.path.join(above, ASIDE)
    if os.path.islink(aside):
        raise _leads_out(aside, "it is a symlink")
    return os.path.join(aside, folder, f"{name}-{label}")


def _leads_out(path: str, why: str) -> Refused:
    return Refused(
        f"{path}: {why}; nothing is moved there",
        code="cache-leads-out",
        file=path,
        hint="make it a folder of your own, or let the variable of that cache name where it leads",
    )


def _folders(path: str) -> list[os.DirEntry[str]]:
    """The folders (and symlinks) in a folder, sorted; none where there is no such folder."""
    try:
        with os.scandir(path) as entries:
            found = [e for e in entries if e.is_symlink() or e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted((e for e in found if e.name != ASIDE), key=lambda entry: entry.name)


def _is_mine(path: str) -> bool:
    return not os.path.islink(path) and os.lstat(path).st_uid == os.geteuid()


def cache_folder(environ: Mapping[str, str]) -> str:
    """``$XDG_CACHE_HOME/patchkit``, else ``~/.cache/patchkit`` (XDG base directories).

    Where there is no home either, a folder of this user's own below the temporary one.
    """
    named = environ.get("XDG_CACHE_HOME", "")
    home = environ.get("HOME", "")
    if os.path.isabs(named):
        return os.path.join(named, "patchkit")
    if os.path.isabs(home):
        return os.path.join(home, ".cache", "patchkit")
    import tempfile

    return os.path.join(tempfile.gettempdir(), f"patchkit-{os.geteuid()}")


# -- what a name means ------------------------------------------------------------------


def _exactly(_path: str, folder: str, name: str) -> bool:
    return folder == name


def _with_hash(_path: str, folder: str, name: str) -> bool:
    """``NAME``, or ``NAME_…``: arguments and a hash follow."""
    return folder == name or folder.startswith(f"{name}_")


def _deep_gemm_kernel(_path: str, folder: str, name: str) -> bool:
    return folder.startswith(f"kernel.{name}.")


def _holds(path: str, _folder: str, name: str) -> bool:
    """Folders are named by a hash, the files in them by the kernel."""
    try:
        files = os.listdir(path)
    except OSError:
        return False
    return any(file.startswith((f"{name}.", f"__grp__{name}.")) for file in files)


# -- where each compiler keeps it -------------------------------------------------------


def _flashinfer(environ: Mapping[str, str]) -> Iterator[_Place]:
    """Its ``jit/env.py``, alike from 0.6.1 to 0.6.17: the variable as it stands (a relative
    one, and an empty one, from the working directory), else the home folder."""
    base = environ.get("FLASHINFER_WORKSPACE_BASE", _home(environ))
    if base is not None:
        root = os.path.join(os.path.abspath(base), ".cache", "flashinfer")
        yield _Place(root, ("*", "*", "cached_ops"), _exactly)


def _tvm_ffi(environ: Mapping[str, str]) -> Iterator[_Place]:
    """Its ``cpp/extension.py``, by which SGLang compiles its own kernels.  The hash is of
    the generated wrapper and of flags, not of the sources that it includes: what is out of
    date is found by times."""
    root = environ.get("TVM_FFI_CACHE_DIR") or _in_home(environ, ".cache", "tvm-ffi")
    yield from _named(environ, root, (), _with_hash)


def _torch_extensions(environ: Mapping[str, str]) -> Iterator[_Place]:
    """``torch.utils.cpp_extension``, which goes by times as well; by default below a folder
    for Python and CUDA."""
    named = environ.get("TORCH_EXTENSIONS_DIR")
    yield from _named(environ, named, (), _exactly)
    if not named:
        cache = environ.get("XDG_CACHE_HOME") or _in_home(environ, ".cache")
        root = os.path.join(cache, "torch_extensions") if cache else None
        yield from _named(environ, root, ("*",), _exactly)


def _triton(environ: Mapping[str, str]) -> Iterator[_Place]:
    """``triton/runtime/cache.py``: folders named by a hash of the kernel's source."""
    root = environ.get("TRITON_CACHE_DIR", "").strip()
    if not root:
        home = environ.get("TRITON_HOME") or _home(environ)
        root = os.path.join(home, ".triton", "cache") if home else ""
    yield from _named(environ, root, (), _holds)


def _inductor(environ: Mapping[str, str]) -> Iterator[_Place]:
    """``torch/_inductor/runtime/cache_dir_utils.py``; a name is one of its folders
    (``fxgraph``, ``aotautograd``, ``triton``).  By default in the folder of temporary files."""
    named = environ.get("TORCHINDUCTOR_CACHE_DIR")
    if named:
        yield from _named(environ, named, (), _exactly)
        return
    user = next((environ[key] for key in _USER if environ.get(key)), None) or _account(0)
    if user:
        temporary = next((environ[key] for key in _TEMPORARY if environ.get(key)), "/tmp")
        safe = "".join("_" if letter in r'\/:*?"<>|' else letter for letter in user)
        root = os.path.join(os.path.abspath(temporary), f"torchinductor_{safe}")
        yield _Place(root, (), _exactly, shared=True)


def _deep_gemm(environ: Mapping[str, str]) -> Iterator[_Place]:
    """DeepGEMM's own folder, and the one that SGLang gives it."""
    given = {environ.get(key) for key in ("DG_JIT_CACHE_DIR", "SGLANG_DG_CACHE_DIR")} - {None, ""}
    given |= {_in_home(environ, ".deep_gemm"), _in_home(environ, ".cache", "deep_gemm")}
    for root in sorted(root for root in given if root):
        yield from _named(environ, root, ("cache",), _deep_gemm_kernel)


_USER = ("LOGNAME", "USER", "LNAME", "USERNAME")
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
_PLACES: dict[str, Callable[[Mapping[str, str]], Iterator[_Place]]] = {
    "flashinfer-jit": _flashinfer,
    "tvm-ffi": _tvm_ffi,
    "torch-extensions": _torch_extensions,
    "triton": _triton,
    "inductor": _inductor,
    "deep-gemm": _deep_gemm,
}


def _named(
    environ: Mapping[str, str],
    root: str | None,
    between: tuple[str, ...],
    means: Callable[[str, str, str], bool],
) -> Iterator[_Place]:
    """The place at a path as a person writes it; none where there is no path."""
    if root:
        if root == "~" or root.startswith("~/"):
            root = (_home(environ) or "~") + root[1:]
        yield _Place(os.path.abspath(root), between, means)


def _in_home(environ: Mapping[str, str], *parts: str) -> str | None:
    home = _home(environ)
    return os.path.join(home, *parts) if home else None


def _home(environ: Mapping[str, str]) -> str | None:
    return environ.get("HOME") or _account(5)


def _account(field: int) -> str | None:
    """The name (0) or the home folder (5) of this user's account, if it has one."""
    import pwd

    try:
        return str(pwd.getpwuid(os.getuid())[field])
    except KeyError:
        return None
