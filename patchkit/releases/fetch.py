"""``fetch``: the pristine files of releases into the cache, or into a folder.

Owns what is asked for (the files that the bundles on offer touch and look at, globs, all)
and the report of it.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from patchkit import bundles as source
from patchkit.compiled import judged
from patchkit.errors import PatchkitError, UsageError
from patchkit.fitting import asserts_for
from patchkit.fsio import make_root
from patchkit.session import Options, Report

from .model import Asked, Unavailable, parse_asked
from .prove import prove
from .sources import Release, Settings, known_versions, open_release

#: Called with what is being done, how many are done, and how many there are.
Tell = Callable[[str, int, int], None]
# Downloads at a time: the index is the limit, not this machine.
_AT_ONCE = 4


def fetch(
    options: Options,
    settings: Settings,
    asked: Sequence[str],
    *,
    files: Sequence[str] = (),
    everything: bool = False,
    listing: bool = False,
    output: str | None = None,
    tell: Tell | None = None,
) -> Report:
    """Fetch every release that ``asked`` names.

    ``listing`` only says which releases there are and, of one release, what it holds.
    With ``output``, the files asked for are written there too, below
    ``DISTRIBUTION-VERSION/``.
    """
    wanted = [parse_asked(text) for text in asked]
    if not wanted:
        raise UsageError("no release is named", hint="patchkit fetch sglang==0.5.9")
    if listing and not any(one.exact for one in wanted):
        return _versions_report(wanted, settings)
    pairs = [(one.distribution, v) for one in wanted for v in matching(one, settings)]
    if output is not None and os.path.exists(output) and not os.path.isdir(output):
        raise UsageError(f"{output} is no folder", hint="name another --output")
    say = tell or (lambda what, done, total: None)
    done = 0

    def one(pair: tuple[str, str]) -> dict[str, Any]:
        nonlocal done
        with open_release(*pair, settings) as release:
            paths: list[str] = []
            if not listing:
                paths = _meant(options, release, files, everything=everything)
            size = sum(len(release.read(path) or b"") for path in paths)
            if output is not None:
                _write(output, release, paths)
            release.note_digests()
            entry = _entry(release, paths, size)
            if listing:
                entry["paths"] = [
                    {"path": p, "size": m.size, "sha256": m.sha256}
                    for p, m in sorted(release.listing.members.items())
                ]
        done += 1
        say("fetched", done, len(pairs))
        return entry

    with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(pairs)))) as pool:
        futures = [pool.submit(one, pair) for pair in pairs]
        try:
            entries = [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    settings.store.tidy()
    return Report(
        "fetch",
        {"releases": entries, "cache": settings.store.folder, "output": output},
        changed=True,
    )


def _meant(
    options: Options, release: Release, files: Sequence[str], *, everything: bool
) -> list[str]:
    """The files that are asked for: all, those that match, or what bundles on offer touch."""
    if everything:
        return sorted(release.paths())
    if files:
        return _globbed(release, files)
    return sorted(touched(options, release))


def matching(asked: Asked, settings: Settings) -> list[str]:
    """The releases that are meant, oldest first; pre-releases only where the specifier names
    one.  Raises :class:`Unavailable` where there is none."""
    if asked.exact is not None:
        return [asked.exact]
    if not asked.specifier:
        raise UsageError(
            f"which release of {asked.distribution}?",
            hint=f"patchkit fetch --list {asked.distribution} shows them",
        )
    from packaging.specifiers import SpecifierSet

    specifiers = SpecifierSet(asked.specifier)
    found = known_versions(asked.distribution, settings)
    out = list(specifiers.filter(found))
    if not out:
        raise Unavailable(
            f"no release of {asked.distribution} is {asked.specifier}",
            hint=f"patchkit fetch --list {asked.distribution} shows those there are",
        )
    return out


def touched(options: Options, release: Release) -> set[str]:
    """The files of a release that the bundles on offer patch there, or look at: those that
    are read when each is tried on it."""
    try:
        folder = source.bundle_dir(options.bundles, options.environ, options.cwd)
        names = source.list_names(folder)
    except PatchkitError:
        return set()
    for name in names:
        try:
            bundle = source.load_bundle(folder, name)
            read = source.patch_reader(folder, bundle)
            for target in bundle.targets:
                if target.distribution == release.distribution:
                    prove(bundle, target, release, read)
            for one in asserts_for(bundle, release.distribution, release.version):
                judged(one, release.read(one.file), release.read)
        except PatchkitError:
            continue  # lint tells what is wrong with it
    return {path for path in release.asked if release.has(path)}


def _globbed(release: Release, patterns: Iterable[str]) -> list[str]:
    found: set[str] = set()
    for pattern in patterns:
        some = [p for p in release.paths() if p == pattern or fnmatch.fnmatchcase(p, pattern)]
        if not some:
            raise Unavailable(
                f"{release.distribution} {release.version} holds nothing like {pattern!r}",
                file=pattern,
                hint=f"patchkit fetch --list {release.distribution}=={release.version}",
            )
        found.update(some)
    return sorted(found)


def _write(output: str, release: Release, paths: Iterable[str]) -> None:
    name = f"{release.distribution}-{release.version}"
    root = make_root(os.path.join(output, name))
    try:
        for path in paths:
            data = release.read(path)
            assert data is not None
            root.make_folders(path)
            mode = 0o755 if release.listing.members[path].executable else 0o644
            root.replace(path, data, mode)
    finally:
        root.close()


def _entry(release: Release, paths: Sequence[str], size: int) -> dict[str, Any]:
    return {
        "distribution": release.distribution,
        "version": release.version,
        "archive": release.listing.archive,
        "kind": release.listing.kind,
        "origin": release.origin,
        "files": len(release.listing.members),
        "kept": list(paths),
        "bytes": size,
        "fetched": release.kept,
    }


def _versions_report(asked: Sequence[Asked], settings: Settings) -> Report:
    from packaging.specifiers import SpecifierSet

    found = []
    for one in asked:
        versions = known_versions(one.distribution, settings)
        if one.specifier:
            versions = list(SpecifierSet(one.specifier).filter(versions))
        cached = settings.store.versions(one.distribution)
        found.append(
            {
                "distribution": one.distribution,
                "versions": versions,
                "cached": [v for v in versions if v in cached],
            }
        )
    return Report("fetch", {"available": found, "cache": settings.store.folder})
