"""The table: bundle × release → verdict.

Owns which releases are asked for (those named, or all that a bundle's variants may mean),
which release of another distribution belongs to one (the one that its wheel pins), and what
counts as a false claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from patchkit import bundles as source
from patchkit.errors import UsageError
from patchkit.manifest import version_matches
from patchkit.model import Bundle, Target
from patchkit.names import normalise
from patchkit.releases.model import Asked, Unavailable, canonical, parse_asked
from patchkit.releases.prove import Verdict, prove
from patchkit.releases.sources import Release, Settings, known_versions, open_release
from patchkit.session import Options

#: What to do with a release on which a bundle does not go: a state (``ports``, ``conflict``)
#: with its reason, or None for nothing more to say.
Porter = Callable[[Bundle, Target, Release, Verdict], "tuple[str, str] | None"]
#: Called with what is being done, how many are done, and how many there are.
Tell = Callable[[str, int, int], None]
_AT_ONCE = 4

#: States on which nothing needs to be done, or the bundle does it.
GOOD = ("applies", "upstream", "unneeded")


class Cell(NamedTuple):
    """One bundle on one release.  ``claimed`` says that a variant's range holds the release,
    ``pin`` that it is here because another release asks for it."""

    distribution: str
    version: str
    state: str
    reason: str
    variant: str | None
    how: str | None
    asserted: int
    claimed: bool
    pin: bool = False

    @property
    def is_false_claim(self) -> bool:
        """Whether the manifest says more than the code does."""
        return self.claimed and self.state not in GOOD

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**self._asdict(), "false_claim": self.is_false_claim}


class Row(NamedTuple):
    """One bundle on one release, with the releases of its other distributions that the first
    one pins."""

    cell: Cell
    pins: tuple[Cell, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All of the row."""
        return (self.cell, *self.pins)

    @property
    def state(self) -> str:
        """What the row comes to: the worst of its cells; a patch that applies before what
        needs none."""
        states = [cell.state for cell in self.cells]
        bad = [state for state in states if state not in GOOD]
        if bad:
            return bad[0]
        return "applies" if "applies" in states else states[0]


class Table(NamedTuple):
    """One bundle's rows, oldest release first."""

    bundle: str
    version: str
    rows: tuple[Row, ...]


def make(
    options: Options,
    settings: Settings,
    names: Sequence[str],
    releases: Sequence[str],
    *,
    porter: Porter | None = None,
    tell: Tell | None = None,
) -> list[Table]:
    """The tables of the bundles named (all that patch something, without names).

    ``releases`` are such as ``sglang>=0.5.1``; a distribution without one is looked at in the
    releases that its variants may mean, or in those that another one pins.
    """
    folder = source.bundle_dir(options.bundles, options.environ, options.cwd)
    asked = {one.distribution: one for one in map(parse_asked, releases)}
    loaded = [source.load_bundle(folder, n) for n in names or source.list_names(folder)]
    loaded = [bundle for bundle in loaded if bundle.targets or names]
    for bundle in loaded:
        if not bundle.targets:
            raise UsageError(
                f"{bundle.name} patches nothing: it is a setting", hint="name another bundle"
            )
    known = sorted({target.distribution for bundle in loaded for target in bundle.targets})
    for name in asked:
        if name not in known:
            raise UsageError(
                f"--releases names {name}, which none of the bundles is for",
                hint=f"they are for: {', '.join(known) or 'nothing'}",
            )
    work = _Work(settings, folder, porter, tell or (lambda what, done, total: None))
    return work.run(loaded, asked)


class _Work:
    def __init__(self, settings: Settings, folder: str, porter: Porter | None, tell: Tell) -> None:
        self._settings = settings
        self._folder = folder
        self._porter = porter
        self._tell = tell
        self._versions: dict[str, list[str]] = {}
        self._done = 0
        self._total = 0

    def run(self, bundles: Sequence[Bundle], asked: Mapping[str, Asked]) -> list[Table]:
        jobs: list[tuple[Bundle, Target, str]] = []
        for bundle in bundles:
            for target in _leading(bundle, asked):
                versions = self._meant(target, asked.get(target.distribution))
                jobs += [(bundle, target, version) for version in versions]
        self._total = len(jobs)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            futures = [pool.submit(self._row, *job) for job in jobs]
            try:
                rows = [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        return [
            Table(
                bundle.name,
                bundle.version,
                tuple(row for job, row in zip(jobs, rows, strict=True) if job[0] is bundle),
            )
            for bundle in bundles
        ]

    def _known(self, distribution: str) -> list[str]:
        if distribution not in self._versions:
            self._versions[distribution] = known_versions(distribution, self._settings)
        return self._versions[distribution]

    def _meant(self, target: Target, asked: Asked | None) -> list[str]:
        """The releases to look at, oldest first.  Pre-releases only where they are named."""
        if asked is not None and asked.exact is not None:
            return [asked.exact]
        from packaging.specifiers import SpecifierSet
        from packaging.version import Version

        found = self._known(target.distribution)
        if asked is not None and asked.specifier:
            return list(SpecifierSet(asked.specifier).filter(found))
        finals = [v for v in found if not Version(v).is_prerelease]
        if asked is not None:
            return finals
        first = next((n for n, v in enumerate(finals) if _is_claimed(target, v)), len(finals))
        return finals[first:]

    def _row(self, bundle: Bundle, target: Target, version: str) -> Row:
        cell, metadata = self._cell(bundle, target, version, pin=False)
        pins = []
        for other in bundle.targets:
            pinned = _pin(metadata, other.distribution) if other is not target else None
            if pinned is not None:
                pins.append(self._cell(bundle, other, pinned, pin=True)[0])
        self._done += 1
        self._tell("looked at", self._done, self._total)
        return Row(cell, tuple(pins))

    def _cell(self, bundle: Bundle, target: Target, version: str, *, pin: bool) -> tuple[Cell, str]:
        claimed = _is_claimed(target, version)
        read = source.patch_reader(self._folder, bundle)
        try:
            with open_release(target.distribution, version, self._settings) as release:
                verdict = prove(bundle, target, release, read)
                state, reason = str(verdict.state), verdict.reason
                if not verdict.holds and self._porter is not None:
                    tried = self._porter(bundle, target, release, verdict)
                    state, reason = tried or (state, reason)
                metadata = "" if pin or len(bundle.targets) < 2 else release.metadata()
                release.note_digests()
        except Unavailable as error:
            cell = Cell(
                *(target.distribution, version, "unavailable", error.message, None, None, 0),
                claimed,
                pin,
            )
            return cell, ""
        variant = None if verdict.variant is None else verdict.variant.versions
        return (
            Cell(
                *(target.distribution, canonical(version), state, reason, variant, verdict.how),
                verdict.asserted,
                claimed,
                pin,
            ),
            metadata,
        )


def _leading(bundle: Bundle, asked: Mapping[str, Asked]) -> list[Target]:
    """The targets that rows are made for: those asked for, else the first; the others come
    with it, as its wheel pins them."""
    named = [target for target in bundle.targets if target.distribution in asked]
    return named or list(bundle.targets[:1])


def _is_claimed(target: Target, version: str) -> bool:
    return any(version_matches(variant.versions, version) for variant in target.variants)


def _pin(metadata: str, distribution: str) -> str | None:
    """The exact version that a release's metadata asks of a distribution, whatever extra."""
    for line in re.findall(r"^Requires-Dist: *(.+)$", metadata, re.MULTILINE):
        found = re.match(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?\s*==\s*([^\s;,)]+)", line)
        if found is not None and normalise(found[1]) == distribution:
            return canonical(found[2])
    return None


def false_claims(tables: Iterable[Table]) -> list[tuple[str, Cell]]:
    """Every release that a manifest claims and that does not hold."""
    return [
        (table.bundle, cell)
        for table in tables
        for row in table.rows
        for cell in row.cells
        if cell.is_false_claim
    ]
