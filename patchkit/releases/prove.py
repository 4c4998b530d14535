"""A bundle against one release, without an environment: would it go on, and do its work?

The same functions decide as for an installed one; the files come from :class:`Release`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from patchkit.compiled import judged
from patchkit.errors import PatchkitError
from patchkit.fit import Fit, fit_variant
from patchkit.fitting import PROVEN, asserts_for, holds_already
from patchkit.fsio import digest
from patchkit.mapping import Known, map_patch, map_stripped
from patchkit.model import Bundle, Target, Variant
from patchkit.patchfile import parse
from patchkit.plan import Step, Wanted, materialise
from patchkit.series import PatchBytes
from patchkit.stack import follow

from .sources import Release

#: ``applies``: every hunk has its place and every assertion holds; ``upstream``: the release
#: does it by itself; ``unneeded``: what it would change is not there; ``unsupported``: no
#: variant is for it; ``conflict``: the variant that is said to fit does not; ``unmet``: the
#: manifest says that no patch is needed, or the patches apply, and an assertion fails.
State = Literal["applies", "upstream", "unneeded", "unsupported", "conflict", "unmet"]


class Verdict(NamedTuple):
    """What a bundle means for one release of one of its distributions.

    ``how`` its variant fits is one of :data:`patchkit.fit.How`, or ``proven``; ``wanted`` is
    what the patches make of the release, where they apply; ``asserted`` counts the assertions
    that were judged.
    """

    state: State
    reason: str
    variant: Variant | None = None
    how: str | None = None
    error: PatchkitError | None = None
    wanted: Wanted | None = None
    asserted: int = 0

    @property
    def holds(self) -> bool:
        """Whether the bundle can be relied on there."""
        return self.state in ("applies", "upstream", "unneeded")

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        out: dict[str, Any] = {
            "state": self.state,
            "reason": self.reason,
            "variant": None if self.variant is None else self.variant.versions,
            "how": self.how,
            "asserted": self.asserted,
        }
        if self.error is not None:
            out["error"] = self.error.as_dict()
        return out


def prove(
    bundle: Bundle, target: Target, release: Release, read_patch: Callable[[str], bytes]
) -> Verdict:
    """The verdict; raises only where the release, the bundle or a patch cannot be read."""
    fit = fit_variant(bundle, target, release.version, release.digest)
    patches: tuple[PatchBytes, ...] = ()
    if fit is not None:
        files = ((path, read_patch(path)) for path in fit.variant.patches)
        patches = tuple(PatchBytes(path, data, digest(data)) for path, data in files)
    version = release.version if fit is None else fit.release
    asserts = asserts_for(bundle, target.distribution, version)
    if (fit is None or (patches and fit.how != "known")) and holds_already(
        bundle, target.distribution, version, patches, release.read
    ):
        return Verdict("upstream", PROVEN, None, "proven", asserted=len(asserts))
    if fit is None:
        ranges = ", ".join(v.versions for v in target.variants)
        return Verdict("unsupported", f"no variant; there are: {ranges}")
    return _tried(bundle, target, release, fit, patches)


def _tried(
    bundle: Bundle, target: Target, release: Release, fit: Fit, patches: tuple[PatchBytes, ...]
) -> Verdict:
    variant = fit.variant
    try:
        wanted = applied(bundle.name, release, patches, variant.strip)
    except PatchkitError as error:
        return Verdict("conflict", error.message, variant, fit.how, error)
    read = reader_of(wanted, release)
    asserts = asserts_for(bundle, target.distribution, fit.release)
    for one in asserts:
        finding = judged(one, read(one.file), read)
        if not finding.ok:
            text = f"{one.key} on {one.file}: {one.message or 'fails'} ({finding.message})"
            return Verdict("unmet", text, variant, fit.how, asserted=len(asserts))
    if variant.reason is not None:
        state: State = "upstream" if variant.upstream else "unneeded"
        return Verdict(state, variant.reason, variant, fit.how, asserted=len(asserts))
    return Verdict("applies", "", variant, fit.how, wanted=wanted, asserted=len(asserts))


def applied(
    name: str, release: Release, patches: Iterable[PatchBytes], strip: int | None
) -> Wanted:
    """What patches make of a release.  Raises what refuses them, with patch and hunk."""
    steps = []
    known: Known | None = None
    for path, data, sha256 in patches:
        files = parse(data, path, sha256).files
        if strip is not None:
            mapping = map_stripped(files, strip)
        else:
            known = Known(release.paths()) if known is None else known
            mapping = map_patch(files, known)
        steps.append(Step(name, path, ".", mapping.files))
        if known is not None:
            for mapped in mapping.files:
                follow(known, mapped)
    return materialise(steps, lambda key: release.state(key[1]))


def reader_of(wanted: Wanted, release: Release) -> Callable[[str], bytes | None]:
    """Reads files as the patches leave them."""

    def read(path: str) -> bytes | None:
        if (".", path) not in wanted.contents:
            return release.read(path)
        content = wanted.contents[(".", path)]
        if content is None:
            return None
        return content.data if content.data is not None else release.read(path)

    return read


def touched(wanted: Wanted, release: Release) -> dict[str, str]:
    """Path to digest of every pristine file that the patches read or change."""
    found = {}
    for _, path in wanted.contents:
        sha256 = release.digest(path)
        if sha256 is not None:
            found[path] = sha256
    return found
