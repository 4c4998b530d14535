"""The patches of one variant on its release: as they are, and as they are to be.

Owns the choice of bundle, variant and release that ``edit``, ``fold`` and the like work on, and
the way back into the bundle: whatever they make is put on the release anew before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from patchkit import bundles as source
from patchkit.errors import Refused
from patchkit.manifest import select_variant
from patchkit.model import Assertion, Bundle, Pristine, Target, Variant
from patchkit.releases.sources import Settings
from patchkit.session import Options
from patchkit.stack import Stack
from patchkit.writing import manifests
from patchkit.writing.bundle import Draft, load, revise

from . import draft, place, suggest
from .base import Base, asked, opened, pick_target, version_of
from .unparsed import unparsed


class Item(NamedTuple):
    """A patch file of the series: its path below ``patches/``, and its bytes."""

    path: str
    data: bytes


class Work(NamedTuple):
    """A variant of a bundle, with the release that it is worked on."""

    folder: str
    bundle: Bundle
    text: str
    target: Target
    variant: Variant
    base: Base
    items: list[Item]

    @property
    def strip(self) -> int | None:
        """The strip level of its patches."""
        return self.variant.strip

    @property
    def prefix(self) -> str:
        """What stands before the package in the paths of its patches."""
        return draft.prefix_of(self.items[0].data, self.strip) if self.items else ""

    @property
    def where(self) -> str:
        """The folder of its own patches, below ``patches/``."""
        return f"{self.bundle.name}/{self.base.distribution}-{self.base.version}"

    def is_shared(self, path: str) -> bool:
        """Whether another variant names the patch file, too."""
        return any(
            path in variant.patches
            for target in self.bundle.targets
            for variant in target.variants
            if variant is not self.variant
        )

    def put_on(self, items: Sequence[Item]) -> tuple[Stack, list[str]]:
        """Put patches on the release; what they leave, and the files that they touch."""
        series = Stack(self.base)
        touched: dict[str, None] = {}
        for item in items:
            touched.update(dict.fromkeys(series.apply(item.path, item.data, self.strip).before))
        return series, list(touched)


@contextmanager
def opened_work(
    options: Options, settings: Settings, name: str, release: str | None, what: str
) -> Iterator[Work]:
    """The variant of a bundle that is meant: for the release that is named, the installed one,
    or the newest that the lock knows.  Raises :class:`Refused` where that is not clear."""
    folder = place.target_folder(options)
    bundle, text = load(folder, name)
    distribution, version = asked(release)
    target = pick_target(bundle, distribution, what)
    version, variant = version_of(settings, bundle, target, version)
    if variant is None or not variant.patches:
        ranges = ", ".join(v.versions for v in target.variants if v.patches)
        raise Refused(
            f"which release of {target.distribution} is meant? {name} has patches for: {ranges}",
            code="which-release",
            bundle=name,
            hint=f"name one: {what} --release {target.distribution}==VERSION",
        )
    read = source.patch_reader(folder, bundle)
    items = [Item(path, read(path)) for path in variant.patches]
    with opened(settings, target.distribution, version) as base:
        if select_variant(target, base.version) is not variant:
            raise Refused(
                f"the variant {variant.versions} is not for {target.distribution} {base.version}",
                code="which-release",
                bundle=name,
                hint=f"name a release of it: {what} --release {target.distribution}==VERSION",
            )
        yield Work(folder, bundle, text, target, variant, base, items)


def rewritten(
    work: Work,
    items: Sequence[Item],
    settings: Settings,
    *,
    suggest_for: Sequence[Item] = (),
    confirm: Callable[[list[Assertion]], bool] | None = None,
) -> Draft:
    """The bundle with another series, which is put on the release first.

    A patch file that another variant names stays as it is: what is changed of it gets a file of
    its own.  ``suggest_for`` are patches whose files get new assertions, as far as these say
    something that no present one says.  Raises what refuses a patch that does not go on.
    """
    if not items:
        raise Refused(
            "no patch would be left",
            code="no-patches",
            bundle=work.bundle.name,
            hint=f"take the variant out of manifests/{work.bundle.name}.toml, or the bundle away",
        )
    notes: list[str] = []
    final = _own(work, items, notes)
    old, touched_before = work.put_on(work.items)
    series, touched = work.put_on(final)
    states = {path: series.read(path) for path in {*touched, *touched_before}}
    notes += unparsed({path: old.read(path) for path in states}, states)
    wrong = draft.outdated(work.bundle, work.base.distribution, work.base.version, states, notes)
    text = manifests.drop_assertions(work.text, wrong)
    kept = [one for number, one in enumerate(work.bundle.asserts) if number not in wrong]
    found = [one for one in _suggested(work, series, final, suggest_for) if not _says(kept, one)]
    if sum(len(target.variants) for target in work.bundle.targets) > 1:
        found = [one._replace(versions=work.variant.versions) for one in found]
    if found and confirm is not None and not confirm(found):
        found = []
    text = manifests.add_assertions(text, found)
    paths = [item.path for item in final]
    mine = (work.target.distribution, work.variant.versions)
    text = manifests.edit_patches(
        text, lambda dist, versions, have: paths if (dist, versions) == mine else have
    )
    pristine = tuple(sorted(work.base.digests(touched).items()))
    own = Pristine(*mine, (work.base.version,), pristine)
    made = {item.path: item.data for item in final}
    return revise(
        work.folder,
        work.bundle.name,
        work.text,
        text,
        made,
        settings,
        asserts=found,
        notes=notes,
        own=own,
    )


def _own(work: Work, items: Sequence[Item], notes: list[str]) -> list[Item]:
    """The patches with files of their own for those that another variant names and that
    change; each is said."""
    olds = {item.path: item.data for item in work.items}
    final = []
    for item in items:
        if olds.get(item.path, item.data) != item.data and work.is_shared(item.path):
            path = f"{work.where}/{item.path.rpartition('/')[2]}"
            notes.append(f"{item.path} is another variant's, too: this one's is {path} now")
            item = item._replace(path=path)
        final.append(item)
    return final


def _suggested(
    work: Work, series: Stack, items: Sequence[Item], wanted: Sequence[Item]
) -> list[Assertion]:
    """For the patches that are wanted; the others are what they stand on."""
    found: list[Assertion] = []
    texts = {item.data for item in wanted}
    seen = Stack(work.base)
    for item in items if wanted else ():
        mapping = seen.apply(item.path, item.data, work.strip).mapping
        for mapped in mapping.files if item.data in texts else ():
            was, now = work.base.state(mapped.old or mapped.path), series.read(mapped.path)
            if now is None or b"\0" in now.data:
                continue
            found += [
                one
                for one in suggest.suggestions(
                    work.base.distribution,
                    mapped.path,
                    None if was is None else was.data,
                    now.data,
                    list(suggest.blocks(mapped.patch)),
                )
                if one not in found
            ]
    return found


def _says(present: Sequence[Assertion], one: Assertion) -> bool:
    """Whether an assertion is there already, whatever it is called and says when it fails."""
    bare = one._replace(key="", message="", versions=None)
    return any(bare == other._replace(key="", message="", versions=None) for other in present)


def find_patch(work_items: Sequence[str], wanted: str, name: str) -> int:
    """Which patch of a series is meant: by its path, its file name with or without ``.patch``,
    its place in the series (``2``) or number (``0002``), or by a word in its name.

    Raises :class:`Refused` with the candidates where that is none, or more than one.
    """
    names = [path.rpartition("/")[2] for path in work_items]
    number = int(wanted) if wanted.isdecimal() else -1
    ways: list[Callable[[int], bool]] = [
        lambda n: work_items[n] == wanted,
        lambda n: names[n] in (wanted, f"{wanted}.patch", f"{wanted}.diff"),
        lambda n: wanted.startswith("0") and names[n].partition("-")[0] == wanted,
        lambda n: n + 1 == number,
        lambda n: names[n].partition("-")[0] == f"{number:04}",
        lambda n: wanted in names[n],
    ]
    found: list[int] = []
    for way in ways:
        found = [at for at in range(len(names)) if way(at)]
        if len(found) == 1:
            return found[0]
        if found:
            break
    raise Refused(
        f"{wanted!r} is no patch of {name}" if not found else f"{wanted!r} may be several patches",
        code="unknown-patch",
        bundle=name,
        hint="name it by its file name or its number",
        detail=tuple(names),
        data={"candidates": list(work_items)},
    )
