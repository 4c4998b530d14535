"""Opens a release: the first source that has it, and the cache before all.

Owns the order of the sources (cache, folders of archives, installed files, git checkouts,
the client) and :class:`Release`, which reads single files when they are asked for.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from copy import copy

from patchkit.distributions import Distribution, find_distribution
from patchkit.environment import Environment
from patchkit.errors import PatchkitError
from patchkit.model import FileState
from patchkit.names import normalise

from . import client as clients
from .archive import Archive
from .checkout import open_tag
from .client import Client, Progress
from .installed import open_head, open_installed
from .model import Listing, Reader, Unavailable, Wish, canonical
from .store import Store


class Settings:
    """Where releases may come from.

    ``find_links`` are folders of archives, ``checkouts`` git repositories with tags,
    ``environment`` an environment whose pristine files count; with ``offline`` no client
    is asked.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        environment: Environment | None = None,
        find_links: Sequence[str] = (),
        checkouts: Sequence[str] = (),
        offline: bool = False,
        client: str | None = None,
        wish: Wish | None = None,
        progress: Progress | None = None,
        store: Store | None = None,
    ) -> None:
        self.environ = environ
        self.environment = environment
        self.find_links = find_links
        self.checkouts = checkouts
        self.offline = offline
        self.client_name = client
        self.wish = Wish() if wish is None else wish
        self.progress: Progress = progress or (lambda label, size: None)
        self.store = Store.of_user(environ) if store is None else store
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client, looked for once."""
        if self._client is None:
            python = None if self.environment is None else self.environment.python
            self._client = clients.find_client(self.client_name, self.environ, python)
        return self._client

    def at_hand(self) -> Settings:
        """The same, and no client is asked: what is cached, installed or named must do."""
        made = copy(self)
        made.offline = True
        return made

    def installed_version(self, distribution: str) -> str | None:
        """The version that the environment has of a distribution, as a wheel."""
        dist = self._installed(distribution)
        return canonical(dist.version) if dist is not None and dist.kind == "wheel" else None

    def present_version(self, distribution: str) -> str | None:
        """The version that the environment has, of a wheel or of a git checkout."""
        dist = self._installed(distribution)
        known = dist is not None and (dist.kind == "wheel" or dist.work_tree is not None)
        return canonical(dist.version) if dist is not None and known else None

    def _installed(self, distribution: str) -> Distribution | None:
        if self.environment is None:
            return None
        try:
            return find_distribution(self.environment, distribution)
        except PatchkitError:
            return None


class Release(AbstractContextManager["Release"]):
    """One release, read file by file; a context manager.

    What the cache holds is read from there.  Else the archive is opened (downloaded, where
    the list came from the cache alone), and what is read goes into the cache.  ``kept``
    counts the files that came so, ``asked`` holds every path that was read.
    """

    def __init__(
        self,
        listing: Listing,
        store: Store,
        reader: Reader | None,
        reopen: Callable[[ExitStack], tuple[Listing, Reader]] | None,
        origin: str,
    ) -> None:
        self.listing = listing
        self.origin = origin
        self._store = store
        self._reader = reader
        self._reopen = reopen
        self._stack = ExitStack()
        self._digests: dict[str, str] = {}
        self.kept = 0
        self.asked: set[str] = set()

    @property
    def distribution(self) -> str:
        """Its normalised name."""
        return self.listing.distribution

    @property
    def version(self) -> str:
        """Its version, as the archive says it."""
        return self.listing.version

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the archive; the cache keeps what was read."""
        self._stack.close()
        self._reader = None

    def adopt(self, stack: ExitStack) -> None:
        """Own what ``stack`` holds open."""
        self._stack.push(stack)

    def paths(self) -> Iterable[str]:
        """Every file, but those of the ``.dist-info``."""
        return (path for path in self.listing.members if ".dist-info/" not in path)

    def has(self, path: str) -> bool:
        """Whether the release holds a file."""
        return path in self.listing.members

    def digest(self, path: str) -> str | None:
        """The SHA-256 of a file; None for one that is not there.  Read where no list says it."""
        member = self.listing.members.get(path)
        if member is None:
            return None
        known = member.sha256 or self._digests.get(path)
        if known is None:
            self.read(path)
            known = self._digests[path]
        return known

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None for one that is not there.  Raises
        :class:`~patchkit.releases.model.Unavailable` where they cannot be had any more."""
        self.asked.add(path)
        member = self.listing.members.get(path)
        if member is None:
            return None
        known = member.sha256 or self._digests.get(path)
        if known is not None:
            data = self._store.read(known)
            if data is not None:
                return data
        if self._reader is None:
            if self._reopen is None:
                raise Unavailable(
                    f"{path} of {self.distribution} {self.version} is not in the cache",
                    file=path,
                    hint=f"patchkit fetch {self.distribution}=={self.version}, with a network",
                )
            listing, self._reader = self._reopen(self._stack)
            if listing.archive != self.listing.archive:
                self.listing = listing
        data = self._reader.read(path)
        self._digests[path] = self._store.add(data)
        self.kept += 1
        return data

    def state(self, path: str) -> FileState | None:
        """A file as :func:`~patchkit.plan.materialise` wants it; None for one not there."""
        data = self.read(path)
        if data is None:
            return None
        mode = 0o755 if self.listing.members[path].executable else 0o644
        return FileState("file", mode, data)

    def note_digests(self) -> None:
        """Keep the list again, with the digests that only reading told."""
        fresh = {p: d for p, d in self._digests.items() if self.listing.members[p].sha256 is None}
        if fresh:
            members = dict(self.listing.members)
            for path, sha256 in fresh.items():
                members[path] = members[path]._replace(sha256=sha256)
            self.listing = self.listing._replace(members=members)
            self._store.add_listing(self.listing)

    def metadata(self) -> str:
        """The text of METADATA or PKG-INFO; empty where there is none."""
        for path in self.listing.members:
            if path.endswith(".dist-info/METADATA") or path == "PKG-INFO":
                return (self.read(path) or b"").decode("utf-8", "replace")
        return ""


def open_release(
    distribution: str, version: str, settings: Settings, *, installed: bool = True
) -> Release:
    """The release, from the first source that has it.  With ``installed=False`` the
    environment is none: it is what the release is to be held against.

    Raises :class:`~patchkit.releases.model.Unavailable` with what was asked, and
    :class:`~patchkit.releases.model.Damaged` for an archive that is not what it says.
    """
    name, version = normalise(distribution), canonical(version)
    for release in _local(name, version, settings, installed=installed):
        return release
    if settings.offline:
        raise Unavailable(
            f"{name} {version} is not in the cache, and nothing is asked --offline",
            hint=f"patchkit fetch {name}=={version}, with a network; or name a folder of"
            " archives with --find-links, or a checkout with --checkout",
        )
    stack = ExitStack()
    with stack:
        listing, reader = _from_client(name, version, settings)(stack)
        settings.store.add_listing(listing)
        release = Release(listing, settings.store, reader, None, str(settings.client))
        release.adopt(stack.pop_all())
        return release


def open_present(distribution: str, settings: Settings) -> Release:
    """The release as the environment has it, whatever others of its version hold: pristine by
    RECORD, or by git HEAD.  Raises :class:`~patchkit.releases.model.Unavailable`."""
    name = normalise(distribution)
    version = settings.present_version(name)
    if settings.environment is not None and version is not None:
        there = open_installed(settings.environment, name, version)
        found = there or open_head(settings.environment, name)
        if found is not None:
            return Release(found.listing, settings.store, found, None, found.origin)
    raise Unavailable(
        f"{name} is not installed as a wheel or from a git checkout",
        hint="name an environment that has it: --python PATH (an interpreter or venv folder)",
    )


def _local(name: str, version: str, settings: Settings, *, installed: bool) -> Iterable[Release]:
    store = settings.store
    reopen = None if settings.offline else _from_client(name, version, settings)
    for listing in sorted(store.listings(name, version), key=lambda one: one.kind != "wheel"):
        if _suits(listing.archive, settings.wish):
            for path in _archives(name, version, settings):
                if os.path.basename(path) == listing.archive:
                    reopen = _opener(path)
            yield Release(listing, store, None, reopen, "cache")
    for path in _archives(name, version, settings):
        stack = ExitStack()
        with stack:
            archive = stack.enter_context(Archive(path))
            store.add_listing(archive.listing)
            release = Release(archive.listing, store, archive, None, path)
            release.adopt(stack.pop_all())
            yield release
    if settings.environment is not None and installed:
        there = open_installed(settings.environment, name, version)
        if there is not None:
            yield Release(there.listing, store, there, None, there.origin)
    for folder in settings.checkouts:
        checkout = open_tag(folder, name, version)
        if checkout is not None:
            yield Release(checkout.listing, store, checkout, None, checkout.origin)


def _opener(path: str) -> Callable[[ExitStack], tuple[Listing, Reader]]:
    def reopen(stack: ExitStack) -> tuple[Listing, Reader]:
        archive = stack.enter_context(Archive(path))
        return archive.listing, archive

    return reopen


def _from_client(
    name: str, version: str, settings: Settings
) -> Callable[[ExitStack], tuple[Listing, Reader]]:
    def fetch(stack: ExitStack) -> tuple[Listing, Reader]:
        path = stack.enter_context(
            clients.downloaded(
                settings.client, name, version, settings.wish, settings.environ, settings.progress
            )
        )
        archive = stack.enter_context(Archive(path))
        return archive.listing, archive

    return fetch


def _archives(name: str, version: str, settings: Settings) -> list[str]:
    """The archives of a release in the folders given, wheels first."""
    stem = f"{name.replace('-', '[-_.]')}-{glob.escape(version)}"
    found = []
    for folder in settings.find_links:
        pattern = os.path.join(glob.escape(folder), stem)
        wheels = sorted(glob.glob(f"{pattern}-*.whl"))
        found += [path for path in wheels if _suits(os.path.basename(path), settings.wish)]
        for end in (".tar.gz", ".zip"):
            found += sorted(glob.glob(f"{pattern}{end}"))
    return found


def _suits(archive: str, wish: Wish) -> bool:
    """Whether an archive is one of the wish; a source distribution always is."""
    if not archive.endswith(".whl") or wish == Wish():
        return True
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        tags = parse_wheel_filename(archive)[3]
    except InvalidWheelFilename:
        return False
    python = "" if wish.python is None else f"cp{wish.python.replace('.', '')}"
    return any(
        (not python or tag.interpreter in (python, "py3") or tag.abi == "abi3")
        and (wish.platform is None or tag.platform in ("any", wish.platform))
        for tag in tags
    )


def known_versions(distribution: str, settings: Settings) -> list[str]:
    """The releases there are, oldest first: of the index, or offline of what is at hand."""
    from packaging.version import InvalidVersion, Version

    name = normalise(distribution)
    found = set(settings.store.versions(name))
    for folder in settings.find_links:
        for path in glob.glob(
            os.path.join(glob.escape(folder), f"{name.replace('-', '[-_.]')}-[0-9]*")
        ):
            version = _version_of(os.path.basename(path))
            if version:
                found.add(version)
    if not settings.offline:
        found.update(clients.versions(settings.client, name, settings.environ))
    versions = []
    for text in found:
        try:
            versions.append((Version(text), text))
        except InvalidVersion:
            continue
    return [text for _, text in sorted(versions)]


def _version_of(archive: str) -> str | None:
    if archive.endswith(".whl"):
        parts = archive.split("-")
        return parts[1] if len(parts) >= 5 else None
    for end in (".tar.gz", ".zip"):
        if archive.endswith(end):
            return archive.removesuffix(end).rpartition("-")[2]
    return None
