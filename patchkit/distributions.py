"""The distributions of an environment: which are installed, and whose a file is.

Owns what ``.dist-info`` folders say.  Reads the file system and never changes it; never
imports what is installed.  No ``re``, ``json`` or ``importlib.metadata`` unless a rare case
needs them: it lies on the path of ``verify``.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from .editable import editable_root, editable_sources, find_git
from .environment import HINT, Environment, looked_at, refuse_environment
from .errors import Refused
from .fsio import MAX_METADATA, read_plain
from .names import normalise
from .record import Record, RecordRow

if TYPE_CHECKING:
    from collections.abc import Iterator

DistributionKind = Literal["wheel", "editable", "tree"]


class Distribution(NamedTuple):
    """One installed project.  ``name`` is normalised (PEP 503).

    ``root`` is the absolute folder that paths like ``sglang/srt/x.py`` are relative to:
    the site-packages of a wheel, the source folder of an editable install (symlinks
    resolved), the folder itself of a tree.  ``dist_info`` is the absolute path of its
    ``.dist-info`` (or ``.egg-info``).  ``git_dir`` and ``work_tree`` are set when the
    root of an editable install or a tree lies in a git work tree; for a linked work tree
    or a submodule, ``git_dir`` is its own one.
    """

    name: str
    version: str
    root: str
    kind: DistributionKind
    dist_info: str | None
    git_dir: str | None
    work_tree: str | None


class Entry(NamedTuple):
    """A ``.dist-info`` or ``.egg-info`` in one site directory."""

    name: str
    version: str
    file: str


class Listing(NamedTuple):
    """The names in one site directory that matter here, grouped by normalised name."""

    directory: str
    entries: dict[str, list[Entry]]
    pth: tuple[str, ...]


def find_distribution(env: Environment, name: str) -> Distribution | None:
    """The installed project of that name, from the first site directory that has it.

    Raises Refused with the code ``ambiguous-distribution`` when one directory holds two
    of it (two ``.dist-info``), and ``editable-root`` when it is an editable install whose
    source folder cannot be told.
    """
    wanted = normalise(name)
    for directory in env.search:
        listing = _listing(env, directory)
        entry = _only(listing, wanted)
        if entry is not None:
            return _distribution(listing, entry)
    return None


def list_distributions(env: Environment) -> list[Distribution]:
    """Every installed project, by name; of one name, what the first site directory has.

    Where :func:`find_distribution` would refuse, this does not: both of an ambiguous pair
    are listed, and an editable install whose source folder cannot be told has the root ``""``.
    """
    out: list[Distribution] = []
    seen: set[str] = set()
    for directory in env.search:
        listing = _listing(env, directory)
        for name in sorted(listing.entries.keys() - seen):
            installed = _installed(listing, name)
            out.extend(_rootless_too(listing, entry) for entry in installed)
            if installed:
                seen.add(name)
    out.sort(key=lambda dist: dist.name)
    return out


def _rootless_too(listing: Listing, entry: Entry) -> Distribution:
    try:
        return _distribution(listing, entry)
    except Refused:
        info = os.path.join(listing.directory, entry.file)
        return Distribution(entry.name, entry.version, "", "editable", info, None, None)


def tree_distribution(env: Environment, name: str = "") -> Distribution:
    """The site directory itself as one plain tree, with its git work tree if it is in one.

    A folder that holds a ``.dist-info`` was filled by an installer: git has no say in it.
    """
    root = os.path.realpath(env.site_packages)
    git_dir, work_tree = None, None
    listing = _listing(env, env.site_packages)
    entries = (entry for group in listing.entries.values() for entry in group)
    if not env.is_plain and not any(entry.file.endswith(".dist-info") for entry in entries):
        git_dir, work_tree = find_git(root)
    return Distribution(normalise(name), "", root, "tree", None, git_dir, work_tree)


def owner(env: Environment, path: str) -> Distribution | None:
    """The distribution whose RECORD lists ``path``, or whose source folder holds it.

    Reads each RECORD once and never parses it.  Site directories are asked in order; in
    each, RECORDs come before the source folders of editable installs.  None when nobody
    has it.  Raises Refused with the code ``ambiguous-owner`` when two have it and their
    rows differ: two projects that install the same file overwrite each other.
    """
    for directory in env.search:
        listing = _listing(env, directory)
        entries = [entry for name in listing.entries for entry in _installed(listing, name)]
        owners: list[tuple[Entry, RecordRow]] = []
        for entry in entries:
            record = Record.load(os.path.join(directory, entry.file))
            row = record.rows((path,)).get(path) if record is not None else None
            if row is not None:
                owners.append((entry, row))
        owners.sort(key=lambda pair: pair[0].name)
        digests = {row.digest_hex for _, row in owners}
        if len(owners) > 1 and (len(digests) > 1 or None in digests):
            _ambiguous_owner(path, [entry.file for entry, _ in owners])
        if owners:
            return _distribution(listing, owners[0][0])
        holders = [dist for dist in _editables(listing, entries) if _holds(dist, path)]
        if len({dist.root for dist in holders}) > 1:
            _ambiguous_owner(path, [dist.name for dist in holders])
        if holders:
            return holders[0]
    return None


def _ambiguous_owner(path: str, names: list[str]) -> NoReturn:
    raise Refused(
        f"{path} belongs to more than one distribution: {', '.join(names)}",
        code="ambiguous-owner",
        file=path,
        hint="uninstall those that are not wanted, then install the other one again",
    )


def _editables(listing: Listing, entries: list[Entry]) -> Iterator[Distribution]:
    for entry in sorted(entries, key=lambda entry: entry.name):
        dist = _rootless_too(listing, entry)
        if dist.kind == "editable" and dist.root:
            yield dist


def _holds(dist: Distribution, path: str) -> bool:
    return os.path.lexists(os.path.join(dist.root, path))


def _listing(env: Environment, directory: str) -> Listing:
    listing = env._listings.get(directory)
    if listing is None:
        listing = env._listings[directory] = _read_listing(directory)
    return listing


def _read_listing(directory: str) -> Listing:
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError) as error:
        refuse_environment(f"{directory} cannot be read: {error.strerror}", HINT)
    entries: dict[str, list[Entry]] = {}
    pth = []
    for file in names:
        if file.endswith(".pth"):
            pth.append(file)
        elif file.endswith((".dist-info", ".egg-info")):
            if file[0] == "~":  # what an interrupted pip leaves behind
                continue
            name, version = _name_and_version(directory, file)
            entries.setdefault(name, []).append(Entry(name, version, file))
    pth.sort()
    return Listing(directory, entries, tuple(pth))


def _name_and_version(directory: str, file: str) -> tuple[str, str]:
    """From the name of the folder where it is well formed, else from the metadata in it."""
    stem = file.rpartition(".")[0]
    name, dash, version = stem.partition("-")
    if file.endswith(".egg-info"):  # NAME-VERSION-pyX.Y.egg-info
        version = version.partition("-py")[0]
    # A wheel's file name escapes "-" as "_" in each part; an underscore in the version is
    # such an escape, or that of a local version written by an older tool.
    if dash and version[:1].isdigit() and "-" not in version and "_" not in version:
        return normalise(name), version
    found = _read_metadata(os.path.join(directory, file))
    return normalise(found.get("name") or name), found.get("version") or version


def _metadata_file(info: str) -> str:
    if info.endswith(".dist-info"):
        return os.path.join(info, "METADATA")
    return os.path.join(info, "PKG-INFO") if os.path.isdir(info) else info


def _read_metadata(info: str) -> dict[str, str]:
    """``name`` and ``version`` of a metadata file's header; empty where unreadable."""
    found: dict[str, str] = {}
    try:
        data = read_plain(_metadata_file(info), MAX_METADATA)
    except OSError:
        return found
    for line in data.partition(b"\n\n")[0].decode("utf-8", "replace").splitlines():
        key, colon, value = line.partition(":")
        if colon and key.lower() in ("name", "version"):
            found.setdefault(key.lower(), value.strip())
        elif not line.strip():  # the header ends
            break
    return found


def _is_file(path: str) -> bool:
    status = looked_at(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def _installed(listing: Listing, name: str) -> list[Entry]:
    """The entries of a name that count: those with metadata, dist-info before egg-info.

    An uninstall that could not remove a stray file leaves a folder without METADATA.
    """
    entries = [
        entry
        for entry in listing.entries.get(name, ())
        if _is_file(_metadata_file(os.path.join(listing.directory, entry.file)))
    ]
    wheels = [entry for entry in entries if entry.file.endswith(".dist-info")]
    return sorted(wheels or entries, key=lambda entry: entry.file)


def _only(listing: Listing, name: str) -> Entry | None:
    if name not in listing.entries:
        return None
    entries = _installed(listing, name)
    if len(entries) > 1:
        files = ", ".join(entry.file for entry in entries)
        raise Refused(
            f"{name} is installed more than once in {listing.directory}: {files}",
            code="ambiguous-distribution",
            hint=f"uninstall {name} until none is left, then install it again",
        )
    return entries[0] if entries else None


def _distribution(listing: Listing, entry: Entry) -> Distribution:
    info = os.path.join(listing.directory, entry.file)
    sources = editable_sources(listing, entry, info)
    if sources is None:
        return Distribution(entry.name, entry.version, listing.directory, "wheel", info, None, None)
    root = os.path.realpath(editable_root(entry.name, sources))
    git_dir, work_tree = find_git(root)
    return Distribution(entry.name, entry.version, root, "editable", info, git_dir, work_tree)
