"""A folder of their own for the kernels that a JIT builds from patched files.

Owns which variable each compiler reads, and the name of the folder.  Only looks: each compiler
makes its folder itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

from patchkit.caches import cache_folder
from patchkit.fsio import digest, read_plain
from patchkit.state import Home, State

#: Variable → folder below the one of the patched files.  FlashInfer makes ``.cache/flashinfer``
#: in its folder.  SGLang gives DeepGEMM a folder by a variable of its own, whatever DeepGEMM's
#: says, and its compiler backend gives Inductor and Triton folders below its own.
_FOLDERS = {
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "DG_JIT_CACHE_DIR": "deep-gemm",
    "SGLANG_DG_CACHE_DIR": "deep-gemm",
    "SGLANG_CACHE_DIR": "sglang",
}
#: Where an installed release reads its variable: one that does not goes on with the old kernels.
_READERS = (("flashinfer/jit/env.py", "FLASHINFER_WORKSPACE_BASE"),)
#: What FlashInfer downloads is not built from any source here, and need not come twice.
_DOWNLOADS = "FLASHINFER_CUBIN_DIR"


class Kernels(NamedTuple):
    """Variables to set, and what a person should know."""

    variables: dict[str, str]
    notes: tuple[str, ...]


def own_folders(
    home: Home, state: State | None, environ: Mapping[str, str], how: str = "own"
) -> Kernels:
    """The variables that keep what is built from patched files apart.

    ``how``: ``own`` leaves a variable that the user has set, ``forced`` does not, ``user`` sets
    none.  Where no file is patched none is set either: what is built then is what would be built
    without patchkit.
    """
    if how == "user" or state is None or not state["files"]:
        return Kernels({}, ())
    if not any(os.path.isabs(environ.get(key, "")) for key in ("XDG_CACHE_HOME", "HOME")):
        why = "there is no home folder: what is built from patched files goes where it always goes"
        return Kernels({}, (why,))
    folder = os.path.join(cache_folder(environ), "jit", key_of(home, state))
    found = {
        variable: f"{folder}/{name}"
        for variable, name in _FOLDERS.items()
        if how == "forced" or not environ.get(variable)
    }
    notes = []
    for file, variable in _READERS:
        if variable in found and not _mentions(f"{home.base}/{file}", variable):
            notes.append(
                f"{home.base}/{file} does not read {variable}: its kernels are not kept apart"
            )
    downloads = _downloads(home, environ)
    if downloads is not None and "FLASHINFER_WORKSPACE_BASE" in found:
        found[_DOWNLOADS] = downloads
    return Kernels(found, tuple(notes))


def key_of(home: Home, state: State) -> str:
    """The name of the folder: of the patched releases, of what the patched files hold, and of
    the environment, whose other packages are compiled in.

    Not of the bundles: two sets that differ in settings alone build the same kernels, some of
    which take half an hour.
    """
    value = [
        os.path.realpath(home.base),
        sorted([one["name"], one["version"]] for one in state["distributions"]),
        sorted(
            [one["path"], None if one["after"] is None else one["after"]["sha256"]]
            for one in state["files"]
            if one["role"] != "record"
        ),
    ]
    return digest(json.dumps(value).encode())[:16]


def _mentions(path: str, variable: str) -> bool:
    """Whether a file reads a variable; one that is not there has nothing to say."""
    try:
        return variable.encode() in read_plain(path)
    except OSError:
        return True


def _downloads(home: Home, environ: Mapping[str, str]) -> str | None:
    """Where FlashInfer keeps what it downloads, if it is not told and has no package of it."""
    user = environ.get("HOME")
    if environ.get(_DOWNLOADS) or not user or os.path.isdir(f"{home.base}/flashinfer_cubin"):
        return None
    folder = os.path.join(user, ".cache", "flashinfer", "cubins")
    return folder if os.path.isdir(folder) else None
