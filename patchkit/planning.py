"""An ordered bundle set against an environment → the transaction that makes it so.

Owns the comparison of wanted and actual: which files change, what is kept of them, what
verify will check.  Reads through :mod:`snapshot`; must not change anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .caches import folders_to_set_aside
from .distributions import Distribution, find_distribution
from .environment import Environment
from .errors import DriftError, Refused
from .footprint import Footprint
from .fsio import digest
from .jit import is_compiled
from .judging import Judge
from .model import FileState
from .plan import Content, Key, Wanted, materialise
from .record import Record
from .recording import blobs, bundle_entries, distribution_entries, fingerprint
from .roots import Roots
from .series import Chosen, Series, build
from .snapshot import Seen, Snapshot
from .staging import Change, Found, Work, stash_name
from .state import SCHEMA, BundleEntry, FileEntry, Home, Ident, State, same

Contents = dict[Key, "Content | None"]


class Edited(NamedTuple):
    """Hand edits that the wanted set accounts for: they stay, and get a record.

    ``pristine`` maps each edited file to what it held (None: nothing was there; of a file
    with a record, the record says it).
    """

    pristine: Mapping[Key, FileState | None] = {}


NOTHING = Edited()


class Planned(NamedTuple):
    """A transaction ready to be committed, and what a report says of it."""

    chosen: list[Chosen]
    work: Work
    state: State | None
    nothing_to_do: bool
    files: list[dict[str, Any]]
    fingerprint: str | None
    notes: list[str]
    left_out: list[dict[str, str]]
    mapping: list[dict[str, Any]]
    wanted: Wanted


def compute(
    env: Environment,
    home: Home,
    state: State | None,
    chosen: list[Chosen],
    environ: Mapping[str, str],
    asked: Iterable[str] = (),
    *,
    forget: bool = False,
    edited: Edited = NOTHING,
) -> Planned:
    """Compute, compare, check the assertions.  Raises what refuses; changes nothing."""
    series = build(env, home, chosen)
    owners = dict(series.owners)
    if state is not None:
        _add_recorded_owners(env, state, owners)
    roots = Roots(home)
    snapshot = Snapshot(
        home, roots, state, owners, frozenset(asked), forget=forget, edited=edited.pristine
    )
    try:
        computation = _Computation(env, home, state, chosen, series, snapshot, roots, owners)
        computation.edited = edited
        return computation.run(environ)
    finally:
        snapshot.close()
        roots.close()


def _add_recorded_owners(env: Environment, state: State, owners: dict[Key, Distribution]) -> None:
    found: dict[str, Distribution | None] = {}
    for entry in state["files"]:
        name = entry["owner"]
        if name and name not in found:
            found[name] = find_distribution(env, name)
        dist = found.get(name)
        if dist is not None:
            owners.setdefault((state["roots"][entry["root"]], entry["path"]), dist)


class _Computation:
    def __init__(
        self,
        env: Environment,
        home: Home,
        state: State | None,
        chosen: list[Chosen],
        series: Series,
        snapshot: Snapshot,
        roots: Roots,
        owners: dict[Key, Distribution],
    ) -> None:
        self.env = env
        self.home = home
        self.state = state
        self.chosen = chosen
        self.series = series
        self.snapshot = snapshot
        self.roots = roots
        self.owners = owners
        self.edited = NOTHING
        self.work = Work()
        self.root_names = ["."]
        self.entries: list[FileEntry] = []
        self.changers: dict[Key, set[str]] = {}
        self.notes: list[str] = []

    def run(self, environ: Mapping[str, str]) -> Planned:
        self.snapshot.prefetch(self.owners)
        try:
            wanted = materialise(self.series.steps, self.snapshot.pristine)
        except Refused as error:
            if error.code == "file-missing" and error.file is not None:
                self._add_nearest(error)
            raise
        for applied in wanted.applied:
            for key in (applied.key, applied.source):
                if key is not None:
                    self.changers.setdefault(key, set()).add(applied.bundle)
        contents: Contents = dict(wanted.contents)
        old = {} if self.state is None else self._old_entries(self.state)
        for key in old:
            if key not in contents and old[key]["role"] != "record":
                contents[key] = self._pristine_marker(key)
        records = self._records(wanted, old)
        contents.update(records)
        judge = Judge(
            self.env, self.home, lambda key: self._wanted_bytes(key, contents), self._root
        )
        asserts = judge.judge(self.chosen)
        for key in sorted(contents):
            self._compare(key, contents[key], record=key in records)
        live = {(self.root_names[e["root"]], e["path"]) for e in self.entries}
        # Of what goes, nothing stays in the record: a set is recorded the same, whatever was
        # applied before it.
        owners = [dist for key, dist in self.owners.items() if key in live]
        footprint = Footprint(self.roots, self.work, self.state)
        bundles = bundle_entries(self.env, self.chosen)
        self.work.blobs = blobs(self.chosen)
        self._caches(environ, bundles)
        state = State(
            schema=SCHEMA,
            base=self.home.relative,
            serial=1 if self.state is None else self.state["serial"] + 1,
            fingerprint=fingerprint(bundles, wanted.contents) or "",
            distributions=distribution_entries(self.home, self.chosen, owners, self._root),
            bundles=bundles,
            files=self.entries,
            folders=footprint.folders(live),
            pycs=footprint.pycs(live),
            asserts=asserts,
            roots=self.root_names,
        )
        new_state = state if bundles else None
        nothing = not self.work.changes and not self.work.found and _equal(new_state, self.state)
        if self.snapshot.taken_as_pristine:
            count = len(self.snapshot.taken_as_pristine)
            self.notes.append(
                f"neither RECORD nor git says what {self.home.base} should hold: the bytes of"
                f" {count} file{'s' * (count > 1)} are taken as pristine"
            )
        self._note_links()
        for key, what in self.snapshot.reinstalled:
            self.notes.append(f"{key[1]} {what}; its old record is dropped")
        prefix = environ.get("PYTHONPYCACHEPREFIX")
        self.work.prefix = os.path.abspath(prefix) if prefix else None
        return Planned(
            self.chosen,
            self.work,
            new_state,
            nothing,
            files=self._file_reports(wanted),
            fingerprint=state["fingerprint"] or None,
            notes=self.notes,
            left_out=[{"bundle": b, "patch": p, "file": f} for b, p, f in self.series.left_out],
            mapping=[
                {"bundle": b, "patch": p, "form": f.example, "strip": f.strip, "prefix": f.prefix}
                for b, p, f in self.series.forms
            ],
            wanted=wanted,
        )

    def _add_nearest(self, error: Refused) -> None:
        """Where a missing file may be now: a like name in the same distribution."""
        import difflib

        for key, dist in self.owners.items():
            if key[1] != error.file or dist.kind != "wheel" or not dist.dist_info:
                continue
            record = self.snapshot.record(dist)
            paths = [] if record is None else list(record.paths())
            name = key[1].rpartition("/")[2]
            near = [path for path in paths if path.rpartition("/")[2] == name][:3]
            near = near or difflib.get_close_matches(key[1], paths, n=3, cutoff=0.8)
            if near:
                error.data["nearest"] = near
                error.detail = (*error.detail, f"nearest: {', '.join(near)}")

    # -- wanted against actual ------------------------------------------------------

    def _old_entries(self, state: State) -> dict[Key, FileEntry]:
        return {(state["roots"][e["root"]], e["path"]): e for e in state["files"]}

    def _pristine_marker(self, key: Key) -> Content | None:
        """A file that no patch touches any more is wanted as it was: no bytes needed."""
        return None if self.snapshot.see(key).before is None else _AS_BEFORE

    def _records(self, wanted: Wanted, old: dict[Key, FileEntry]) -> Contents:
        """RECORD of each wheel that gains files: with rows for them, so that an uninstall
        takes them along; and the pristine RECORD of one that gains none any more."""
        rows: dict[Key, list[tuple[str, str, int]]] = {}
        for key, content in wanted.contents.items():
            dist = self.owners.get(key)
            if dist is None or dist.kind != "wheel" or not dist.dist_info:
                continue
            if content is None or content.data is None or key not in wanted.created:
                continue
            record = (key[0], f"{os.path.basename(dist.dist_info)}/RECORD")
            self.owners[record] = dist
            rows.setdefault(record, []).append((key[1], content.sha256, len(content.data)))
            self.changers.setdefault(record, set()).update(self.changers.get(key, ()))
        out: Contents = {key: _AS_BEFORE for key, entry in old.items() if entry["role"] == "record"}
        for key, added in rows.items():
            pristine = self.snapshot.pristine(key)
            if pristine is not None:
                data = Record.add_rows(pristine.data, sorted(added))
                out[key] = Content("file", pristine.mode, digest(data), data, same=False)
        return out

    def _compare(self, key: Key, content: Content | None, *, record: bool) -> None:
        seen = self.snapshot.see(key)
        new, data = self._target(seen, content)
        change: Change | None = None
        keep = blob = None
        if seen.entry is not None:
            keep, blob = seen.entry["stash"], seen.entry["blob"]
        elif seen.before is not None:
            serial = 1 if self.state is None else self.state["serial"] + 1
            keep = f"{stash_name(seen.before['sha256'], *key)}.{serial}"
            if seen.shared and seen.sha256 is not None and not same(new, seen.now):
                blob = seen.sha256
        if key in self.edited.pristine:
            self._stays(key, seen, new, keep)
            keep_present = False
        else:
            keep_present = seen.entry is None and seen.before is not None
        if not same(seen.now, new):
            restored = data is None and new is not None
            change = Change(
                key[0],
                key[1],
                seen.now,
                new,
                data=data,
                restore=keep if restored else None,
                blob=blob,
                keep=keep if keep_present else None,
                stash=keep if seen.entry is not None else None,
                status=seen.status,
                attributes=seen.attributes and seen.status is not None,
            )
            self.work.changes.append(change)
        if not same(new, seen.before):
            dist = self.owners.get(key)
            self.entries.append(
                FileEntry(
                    root=self._root(key[0]),
                    path=key[1],
                    before=seen.before,
                    after=new,
                    stash=keep if seen.before is not None else None,
                    blob=blob,
                    role="record" if record else "package",
                    owner=dist.name if dist is not None else "",
                    bundles=sorted(self.changers.get(key, ())),
                )
            )

    def _stays(self, key: Key, seen: Seen, new: Ident | None, keep: str | None) -> None:
        """An edited file keeps its bytes: the set must want the very same."""
        now = seen.now
        if (now is None) != (new is None) or (now and new and now["sha256"] != new["sha256"]):
            raise DriftError(
                f"{self.roots[key[0]].full(key[1])} holds other bytes than the patches make",
                code="not-captured",
                file=key[1],
                hint="patchkit diff shows what was recorded; take the edit back, or capture it",
            )
        view = self.edited.pristine[key]
        kept: dict[str, Any] = {}
        if view is not None and seen.entry is None:
            kept = {"keep": keep, "data": view.data, "mode": view.mode}
        self.work.found.append(Found(*key, now, seen.status, **kept))
        if key[1].endswith(".py"):
            self.work.modules.append(key)

    def _target(self, seen: Seen, content: Content | None) -> tuple[Ident | None, bytes | None]:
        """The wanted identity and bytes; no bytes where the pristine file comes back."""
        if content is None:
            return None, None
        if content.same:
            return seen.before, None
        link = None
        if content.kind == "symlink" and content.data is not None:
            link = os.fsdecode(content.data)
        new = Ident(kind=content.kind, mode=content.mode, sha256=content.sha256, link=link)
        return new, content.data

    def _root(self, name: str) -> int:
        if name not in self.root_names:
            self.root_names.append(name)
        return self.root_names.index(name)

    def _wanted_bytes(self, key: Key, contents: Contents) -> bytes | None:
        if key not in contents:
            try:
                return self.roots[key[0]].read(key[1], follow=True)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        content = contents[key]
        if content is None:
            return None
        if content.data is not None:
            return content.data
        pristine = self.snapshot.pristine(key)
        return None if pristine is None else pristine.data

    def _note_links(self) -> None:
        """A package that resolves its own path does not see what replaces a link in it."""
        links = [
            change.path
            for change in self.work.changes
            if change.old is not None and change.old["kind"] == "symlink"
            if change.data is not None and is_compiled(change.path)
        ]
        if links:
            more = f" (and {len(links) - 1} more)" if len(links) > 1 else ""
            self.notes.append(
                f"{links[0]}{more} was a symlink into a package cache; a package that follows its"
                " own links compiles what is there, and not the patched file (FlashInfer does):"
                " reinstall it with uv's --link-mode copy or hardlink"
            )

    def _caches(self, environ: Mapping[str, str], bundles: list[BundleEntry]) -> None:
        """JIT outputs of every bundle that comes, goes or changes."""
        before: dict[str, BundleEntry] = {}
        if self.state is not None:
            before = {entry["name"]: entry for entry in self.state["bundles"]}
        after = {entry["name"]: entry for entry in bundles}
        label = self.state["fingerprint"][:12] if self.state is not None else "pristine"
        wanted: dict[str, set[str]] = {}
        for name in {**before, **after}:
            old, new = before.get(name), after.get(name)
            if old is not None and new is not None and old["variants"] == new["variants"]:
                continue
            for entry in (old, new):
                for kind, names in ({} if entry is None else entry["caches"]).items():
                    wanted.setdefault(kind, set()).update(names)
        for kind in sorted(wanted):
            self.work.caches += folders_to_set_aside(
                kind, tuple(sorted(wanted[kind])), environ, label
            )

    # -- the report -----------------------------------------------------------------

    def _file_reports(self, wanted: Wanted) -> list[dict[str, Any]]:
        hunks: dict[Key, list[dict[str, int]]] = {}
        kinds: dict[Key, str] = {}
        for applied in wanted.applied:
            kinds[applied.key] = applied.change
            hunks.setdefault(applied.key, []).extend(
                {"line": p.line, "offset": p.offset} for p in applied.placements
            )
        out = []
        for change in self.work.changes:
            key = (change.root, change.path)
            out.append(
                {
                    "path": change.path,
                    "change": _change_word(change, kinds.get(key)),
                    "before": None if change.old is None else change.old["sha256"],
                    "after": None if change.new is None else change.new["sha256"],
                    "hunks": hunks.get(key, []),
                }
            )
        return out


_AS_BEFORE = Content("file", 0, "", None, same=True)


def _equal(one: State | None, other: State | None) -> bool:
    """Whether two states say the same but for their serial; ``other`` is from JSON."""
    if one is None or other is None:
        return one is other
    return bool(json.loads(json.dumps({**one, "serial": other["serial"]})) == other)


def _change_word(change: Change, kind: str | None) -> str:
    if change.old is None:
        return "renamed" if kind == "renamed" else "added"
    if change.new is None:
        return "deleted"
    if change.old["sha256"] == change.new["sha256"] and change.old["kind"] == change.new["kind"]:
        return "mode"
    return "modified"
