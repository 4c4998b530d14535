"""A bundle in memory, before it is written: manifest, patches and lock, which belong together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from patchkit import bundles as source
from patchkit.fsio import digest
from patchkit.lint import named_patches
from patchkit.manifest import parse_manifest, render_lock, version_matches
from patchkit.model import Assertion, Bundle, Pristine
from patchkit.publishing import publish
from patchkit.releases.locking import pristine_entries
from patchkit.releases.sources import Settings

from . import manifests


class Draft(NamedTuple):
    """A bundle to be written; ``contents`` maps paths in the bundle directory to bytes, and
    ``before`` is the manifest that it was made of (None: there was none)."""

    bundle: Bundle
    contents: dict[str, bytes | None]
    asserts: list[Assertion]
    notes: list[str]
    before: bytes | None

    @property
    def manifest(self) -> bytes:
        """The manifest's bytes."""
        data = self.contents[f"manifests/{self.bundle.name}.toml"]
        assert data is not None
        return data

    def patch(self, path: str) -> bytes:
        """A patch file's bytes."""
        data = self.contents[f"patches/{path}"]
        assert data is not None
        return data

    def write(self, folder: str) -> list[str]:
        """Write what differs; the paths.  Raises :class:`Refused` where the bundle was changed
        since it was read."""
        return publish(folder, self.contents, {f"manifests/{self.bundle.name}.toml": self.before})

    def as_json(self, folder: str) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "bundle": self.bundle.name,
            "folder": folder,
            "patches": named_patches(self.bundle),
            "asserts": [
                {
                    "distribution": one.distribution,
                    "file": one.file,
                    "lines": manifests.assertion_table(one).splitlines(),
                }
                for one in self.asserts
            ],
            "caches": {kind: list(names) for kind, names in self.bundle.caches},
        }


def load(folder: str, name: str) -> tuple[Bundle, str]:
    """A bundle with its lock, and its manifest's text."""
    data = source.read_manifest(folder, name)
    return parse_manifest(data, name, source.read_lock(folder, name)), data.decode("utf-8")


def _under_new_ranges(bundle: Bundle, before: Bundle) -> tuple[Pristine, ...]:
    """What the lock of ``before`` says of releases, under the ranges that ``bundle`` has for
    them now."""
    out = []
    for one in before.pristine:
        target = next((t for t in bundle.targets if t.distribution == one.distribution), None)
        for variant in () if target is None else target.variants:
            held = tuple(v for v in one.releases if version_matches(variant.versions, v))
            if held and variant.patches:
                out.append(one._replace(versions=variant.versions, releases=held))
    return tuple(out)


def finish(
    name: str,
    text: str,
    patches: Mapping[str, bytes],
    pristine: Iterable[Pristine],
    asserts: list[Assertion],
    notes: list[str],
    *,
    before: str | None = None,
    gone: Iterable[str] = (),
) -> Draft:
    """The files of a bundle, checked: manifest, patches (all that it names), lock.  ``before``
    is the manifest that is there, ``gone`` are patch files that are to be removed."""
    manifest = manifests.checked(text, name)
    digests = {path: digest(data) for path, data in patches.items()}
    lock = render_lock(digests, pristine)
    bundle = parse_manifest(manifest, name, lock if digests else None)
    contents: dict[str, bytes | None] = {f"patches/{path}": data for path, data in patches.items()}
    contents.update({f"patches/{path}": None for path in gone if path not in patches})
    contents[f"manifests/{name}.toml"] = manifest
    if digests:
        contents[f"manifests/{name}.lock"] = lock
    present = None if before is None else before.encode("utf-8")
    return Draft(bundle, contents, asserts, notes, present)


def revise(
    folder: str,
    name: str,
    before: str,
    text: str,
    made: Mapping[str, bytes],
    settings: Settings,
    *,
    asserts: Sequence[Assertion] = (),
    notes: Sequence[str] = (),
    own: Pristine | None = None,
) -> Draft:
    """A bundle that is there (``before`` is its manifest) with another manifest and other
    patches, and the lock for them.

    What the lock says of releases is proven anew on those that are at hand; ``own`` is an
    entry that is known to hold.  Patches that no variant names any more are removed.
    """
    present = source.load_bundle(folder, name)
    bundle = parse_manifest(manifests.checked(text, name), name)
    patches = {
        path: made[path] if path in made else source.read_patch(folder, present, path)
        for path in named_patches(bundle)
    }
    bundle = bundle._replace(lock=present.lock, pristine=_under_new_ranges(bundle, present))
    entries = pristine_entries(bundle, patches.__getitem__, settings.at_hand())
    if own is not None and own.files and not _covers(entries, own):
        entries.append(own)
    gone = [path for path in named_patches(present) if path not in patches]
    return finish(
        name, text, patches, entries, list(asserts), list(notes), before=before, gone=gone
    )


def _covers(entries: Sequence[Pristine], own: Pristine) -> bool:
    return any(
        (one.distribution, one.versions) == (own.distribution, own.versions)
        and own.releases[0] in one.releases
        for one in entries
    )
