"""Finds and reads bundle directories: ``manifests/`` and ``patches/`` side by side.

Owns where bundles come from, the check of each patch file against the lock, and the order
in which bundles go on.  Only reads; must not look at an environment.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence

from .errors import Fault, Refused, UsageError
from .manifest import parse_manifest, split_requirement, version_matches
from .model import Bundle, Profile
from .publishing import finish, is_unfinished

Load = Callable[[str], Bundle]
#: The most bytes of a manifest or a lock (a list of 10,000 patches takes one and a half million)
#: and of a patch file.
MAX_MANIFEST = 4 * 1024 * 1024
MAX_PATCH = 512 * 1024 * 1024


# -- where bundles are ------------------------------------------------------------------


def bundle_dir(option: str | Sequence[str] | None, environ: Mapping[str, str], cwd: str) -> str:
    """The bundle directory, absolute: ``--bundles``, else ``PATCHKIT_BUNDLES``, else the
    working directory if it has ``manifests/`` and ``patches/``, else the shipped bundles.

    What is asked for by name needs ``manifests/`` alone: git keeps no empty ``patches/``.
    Several, or a git repository at a revision, are laid out as one (:mod:`patchkit.layers`).
    """
    texts = [option] if isinstance(option, str) else list(option or ())
    named = [environ["PATCHKIT_BUNDLES"]] if environ.get("PATCHKIT_BUNDLES") else []
    for several, origin in ((texts, "--bundles"), (named, "PATCHKIT_BUNDLES")):
        if not several:
            continue
        given = several[0]
        if len(several) > 1 or "@" in given:
            from .layers import is_special, laid_out

            if is_special(several, cwd):
                return laid_out(several, environ, cwd)
        path = os.path.join(cwd, os.path.expanduser(given))
        if not given or not os.path.isdir(os.path.join(path, "manifests")):
            raise UsageError(
                f"{origin}: {given!r} is no bundle directory",
                hint="a bundle directory holds manifests/ and patches/",
            )
        return whole(path)
    if _has_both(cwd) and not _is_anothers(cwd):
        return whole(os.path.abspath(cwd))
    package = _package_dir()
    installed = os.path.join(package, "_bundles")
    if os.path.isdir(installed):
        return installed
    checkout = os.path.dirname(package)
    if _has_both(checkout):
        return whole(checkout)
    raise Refused(
        "this patchkit ships no bundles",
        code="no-bundles",
        hint="name a directory that holds manifests/ and patches/: --bundles DIR",
    )


def whole(folder: str) -> str:
    """The folder, once a write that was killed there is finished."""
    if is_unfinished(folder):
        finish(folder)
    return folder


def is_shipped(folder: str) -> bool:
    """Whether a folder is part of an installed patchkit, or was laid out from a repository or
    from layers: nobody may write into it."""
    if os.path.isfile(os.path.join(folder, "origins.json")):
        return True
    return os.path.realpath(folder) == os.path.realpath(os.path.join(_package_dir(), "_bundles"))


def list_names(folder: str) -> list[str]:
    """The names of the bundles in a bundle directory, sorted.  Hidden files, which
    editors leave behind, are none."""
    try:
        names = os.listdir(os.path.join(folder, "manifests"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(os.path.join(folder, "manifests"), error) from None
    return sorted(n[: -len(".toml")] for n in names if n.endswith(".toml") and n[0] != ".")


def _has_both(folder: str) -> bool:
    return all(os.path.isdir(os.path.join(folder, name)) for name in ("manifests", "patches"))


def _is_anothers(folder: str) -> bool:
    """Whether ``manifests/`` is full of something else (of Kubernetes, say)."""
    return bool(os.listdir(os.path.join(folder, "manifests"))) and not list_names(folder)


def _package_dir() -> str:
    return os.path.dirname(os.path.abspath(__file__))


# -- reading ----------------------------------------------------------------------------


def load_bundle(folder: str, name: str) -> Bundle:
    """The bundle of that name, with its lock.

    Raises :class:`Refused` (``unknown-bundle``) where there is none, and what
    :func:`~patchkit.manifest.parse_manifest` raises.
    """
    data = read_manifest(folder, name)
    return parse_manifest(data, name, read_lock(folder, name))


def read_manifest(folder: str, name: str) -> bytes:
    """The bytes of ``manifests/NAME.toml``.  Only a name that is listed becomes a path."""
    path = os.path.join(folder, "manifests", f"{name}.toml")
    data = _read_if_there(path, MAX_MANIFEST) if name in list_names(folder) else None
    if data is None:
        raise _unknown(folder, name)
    return data


def read_lock(folder: str, name: str) -> bytes | None:
    """The bytes of ``manifests/NAME.lock``, or None where there is none."""
    return _read_if_there(os.path.join(folder, "manifests", f"{name}.lock"), MAX_MANIFEST)


def read_patch(folder: str, bundle: Bundle, path: str) -> bytes:
    """The bytes of a bundle's patch file, ``path`` as the manifest writes it.

    Checked against the lock where the bundle has one: a patch that was cut off between
    two files is still a valid patch, so nothing else would notice.  Raises
    :class:`Refused`: ``patch-missing``, ``patch-outside``, ``patch-not-locked`` or
    ``patch-changed``.
    """
    return patch_reader(folder, bundle)(path)


def patch_reader(folder: str, bundle: Bundle) -> Callable[[str], bytes]:
    """:func:`read_patch` for one bundle; a series of a thousand looks up its lock and its
    folders once."""
    lock = None if bundle.lock is None else dict(bundle.lock)
    read = _file_reader(folder, bundle.name)

    def read_checked(path: str) -> bytes:
        data = read(path)
        if lock is not None:
            _check_lock(bundle.name, lock, path, data)
        return data

    return read_checked


def check_lock(bundle: Bundle, path: str, data: bytes) -> None:
    """Raise :class:`Refused` unless ``data`` is what the bundle's lock says, if it has one."""
    if bundle.lock is not None:
        _check_lock(bundle.name, dict(bundle.lock), path, data)


def _check_lock(name: str, lock: Mapping[str, str], path: str, data: bytes) -> None:
    expected = lock.get(path)
    found = hashlib.sha256(data).hexdigest()
    if found == expected:
        return
    update = f"patchkit lint --update-lock {name}"
    if expected is None:
        raise Refused(
            f"{path} is not in manifests/{name}.lock",
            code="patch-not-locked",
            hint=f"if it belongs to the bundle: {update}",
            bundle=name,
            patch=path,
        )
    raise Refused(
        f"{path} is not the file that manifests/{name}.lock was made for",
        code="patch-changed",
        hint=f"{_what_changed(data, expected)}; if it is meant to be so: {update}",
        detail=(f"expected SHA-256 {expected}", f"found    SHA-256 {found}"),
        bundle=name,
        patch=path,
        data={"expected": expected, "found": found},
    )


def read_patch_file(folder: str, path: str, bundle: str) -> bytes:
    """The bytes of a file below ``patches/``, whatever the lock says of it.

    Links are followed and must not lead out of ``patches/``.
    """
    return _file_reader(folder, bundle)(path)


def _file_reader(folder: str, bundle: str) -> Callable[[str], bytes]:
    root = os.path.realpath(os.path.join(folder, "patches"))
    real_folders: dict[str, str] = {}

    def resolve(path: str) -> str:
        above, name = os.path.split(path)
        if above not in real_folders:
            real_folders[above] = os.path.realpath(os.path.join(root, above))
        full = os.path.join(real_folders[above], name)
        return os.path.realpath(full) if os.path.islink(full) or name in ("", ".", "..") else full

    def read(path: str) -> bytes:
        real = "" if "\0" in path else resolve(path)
        if not real.startswith(os.path.join(root, "")):
            raise Refused(
                f"{path!r} leads outside {root}",
                code="patch-outside",
                hint="a patch file of a bundle must lie below patches/, also where a link points",
                bundle=bundle,
                patch=path,
            )
        data = _read_if_there(real)
        if data is None:
            raise Refused(
                f"the patch file {path} is missing from {root}",
                code="patch-missing",
                hint=f"bring it back, or take it out of manifests/{bundle}.toml",
                bundle=bundle,
                patch=path,
            )
        return data

    return read


def _what_changed(data: bytes, expected: str) -> str:
    """Why a digest may differ; converted line ends can be told by trying."""
    unix = data.replace(b"\r\n", b"\n")
    for candidate, how in ((unix, "LF to CRLF"), (unix.replace(b"\n", b"\r\n"), "CRLF to LF")):
        if hashlib.sha256(candidate).hexdigest() == expected:
            return (
                f"its line ends were converted from {how} on the way (git's core.autocrlf?):"
                " fetch it again, with '*.patch -text' in .gitattributes"
            )
    return "it was edited, cut off, or its line ends were converted on the way"


def _read_if_there(path: str, most: int = MAX_PATCH) -> bytes | None:
    """The bytes of a regular file, or None where nothing has that name.  Raises
    :class:`Refused` (``file-too-large``) for more than ``most`` bytes."""
    try:
        # Without O_NONBLOCK the open of a named pipe would wait for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            if status.st_size > most:
                raise Refused(
                    f"{path} has {status.st_size} bytes; the limit is {most}",
                    code="file-too-large",
                    file=path,
                    hint="is it what its name says? Else split it",
                )
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: OSError) -> Fault:
    return Fault(f"cannot read {path}: {error.strerror}", code="unreadable", file=path)


def _unknown(folder: str, name: str) -> Refused:
    import difflib

    names = list_names(folder)
    shown = name.removesuffix(".toml")
    near = [shown] if shown in names else difflib.get_close_matches(shown, names, n=3, cutoff=0.5)
    if os.path.isfile(name):
        hint = f"{name} is a file here: the name of a loose patch ends in .patch or .diff"
    elif near:
        hint = f"did you mean {' or '.join(near)}?"
    elif names:
        hint = (
            "patchkit list shows the bundles on offer; --bundles DIR, or PATCHKIT_BUNDLES, names"
            " where others are"
        )
    else:
        hint = "there is no manifest in it; name another directory: --bundles DIR"
    return Refused(
        f"no bundle {name!r} in {folder}",
        code="unknown-bundle",
        hint=hint,
        bundle=name,
        data={"nearest": near},
    )


# -- loose patches ----------------------------------------------------------------------


def is_loose(name: str) -> bool:
    """Whether a name on the command line means a loose patch file."""
    return name.endswith((".patch", ".diff"))


def read_loose(path: str, cwd: str = "") -> bytes:
    """The bytes of a loose patch file; a relative path begins at ``cwd``."""
    data = _read_if_there(os.path.join(cwd, path))
    if data is None:
        raise Refused(
            f"there is no patch file {path!r}",
            code="unknown-bundle",
            hint="a name that ends in .patch or .diff is the path of a loose patch file",
            bundle=os.path.basename(path),
        )
    return data


def loose_bundle(path: str, data: bytes, *, summary: str = "") -> Bundle:
    """A bundle that stands for one loose patch file and is called as the file is.

    It has no targets: where its patch goes is found in the tree that it is applied to.
    ``sha256`` is the patch's own.
    """
    name = os.path.basename(path)
    digest = hashlib.sha256(data).hexdigest()
    return Bundle(
        name=name,
        version="0",
        summary=summary,
        description="",
        requires=(),
        conflicts=(),
        targets=(),
        asserts=(),
        profile=Profile(),
        caches=(),
        sha256=digest,
        lock=((name, digest),),
        loose=True,
    )


# -- order and conflicts ----------------------------------------------------------------


def resolve_order(names: Iterable[str], load: Load) -> list[Bundle]:
    """The bundles asked for and all that they require, each once, required ones first.

    The order follows ``names`` and the manifests alone.  Raises :class:`Refused`:
    ``requires-cycle``, ``requires-version``, ``same-name``, or what ``load`` raises.
    """
    order: dict[str, Bundle] = {}
    for name in names:
        bundle = load(name)
        known = order.get(bundle.name)
        if known is not None and known.sha256 != bundle.sha256:
            raise Refused(
                f"two different bundles are called {bundle.name}",
                code="same-name",
                bundle=bundle.name,
                hint="rename one of the two patch files",
            )
        if known is None:
            _visit(bundle, load, order)
    return list(order.values())


def _visit(first: Bundle, load: Load, order: dict[str, Bundle]) -> None:
    """Depth first with a stack of our own: how long a chain is, a manifest decides."""
    stack = [(first, iter(first.requires))]
    while stack:
        bundle, rest = stack[-1]
        requirement = next(rest, None)
        if requirement is None:
            order[bundle.name] = bundle
            stack.pop()
            continue
        name, specifiers = split_requirement(requirement)
        chain = [parent.name for parent, _ in stack]
        if name in chain:
            cycle = " -> ".join([*chain[chain.index(name) :], name])
            raise Refused(
                f"bundles require each other: {cycle}",
                code="requires-cycle",
                bundle=bundle.name,
                hint=f"take one of them out of requires in manifests/{bundle.name}.toml",
                data={"cycle": [*chain[chain.index(name) :], name]},
            )
        other = order.get(name)
        if other is None:
            other = _required(bundle, name, load)
        if not version_matches(specifiers, other.version):
            raise Refused(
                f"{bundle.name} requires {name}{specifiers}, on offer is {name} {other.version}",
                code="requires-version",
                bundle=bundle.name,
                hint=f"update {name}, or change requires in manifests/{bundle.name}.toml",
            )
        if name not in order:
            stack.append((other, iter(other.requires)))


def _required(bundle: Bundle, name: str, load: Load) -> Bundle:
    try:
        return load(name)
    except Refused as error:
        if error.code != "unknown-bundle":
            raise
        raise Refused(
            f"{bundle.name} requires {name}: {error.message}",
            code=error.code,
            hint=error.hint,
            bundle=bundle.name,
            data=error.data,
        ) from None


def check_conflicts(bundles: Sequence[Bundle]) -> None:
    """Raise :class:`Refused` (``conflict``) where two of the bundles exclude each other.

    It is enough that one of the two says so.
    """
    pairs = [
        (first.name, second.name)
        for index, first in enumerate(bundles)
        for second in bundles[index + 1 :]
        if second.name in first.conflicts or first.name in second.conflicts
    ]
    if pairs:
        first, second = pairs[0]
        raise Refused(
            f"{first} and {second} conflict: they are never in one applied set",
            code="conflict",
            bundle=second,
            hint=f"leave one of them out; if it is applied: patchkit revert {first}",
            detail=tuple(f"{a} and {b} conflict" for a, b in pairs[1:]),
            data={"conflicts": [list(pair) for pair in pairs]},
        )
