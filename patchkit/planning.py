"""An ordered bundle set against an environment → the transaction that makes it so.

Owns the comparison of wanted and actual: which files change, what is kept of them, what
verify will check.  Reads through :mod:`snapshot`; must not change anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .caches import folders_to_set_aside
from .environment import Distribution, Environment, Record, find_distribution
from .errors import Refused
from .fsio import digest
from .journal import Change, Roots, Work, pycs_of, stash_name
from .manifest import profile_for, version_matches
from .model import Assertion
from .plan import Content, Key, Wanted, materialise
from .series import Chosen, Series, build, root_name
from .snapshot import Seen, Snapshot
from .state import (
    SCHEMA,
    AssertEntry,
    BundleEntry,
    DistributionEntry,
    FileEntry,
    Home,
    Ident,
    State,
    VariantEntry,
    same,
)

Contents = dict[Key, "Content | None"]


@dataclass(slots=True)
class Planned:
    """A transaction ready to be committed, and what a report says of it."""

    chosen: list[Chosen]
    work: Work
    state: State | None
    nothing_to_do: bool
    files: list[dict[str, Any]] = field(default_factory=list)
    fingerprint: str | None = None
    notes: list[str] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    mapping: list[dict[str, Any]] = field(default_factory=list)
    wanted: Wanted | None = None


def compute(
    env: Environment,
    home: Home,
    state: State | None,
    chosen: list[Chosen],
    environ: Mapping[str, str],
) -> Planned:
    """Compute, compare, check the assertions.  Raises what refuses; changes nothing."""
    series = build(env, home, chosen)
    owners = dict(series.owners)
    if state is not None:
        _add_recorded_owners(env, state, owners)
    roots = Roots(home)
    snapshot = Snapshot(home, roots, state, owners)
    try:
        return _Computation(env, home, state, chosen, series, snapshot, roots, owners).run(environ)
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
        self.work = Work()
        self.root_names = ["."]
        self.entries: list[FileEntry] = []
        self.made: set[tuple[str, str]] = set()
        self.notes: list[str] = []

    def run(self, environ: Mapping[str, str]) -> Planned:
        self.snapshot.prefetch(self.owners)
        wanted = materialise(self.series.steps, self.snapshot.pristine)
        contents: Contents = dict(wanted.contents)
        old = {} if self.state is None else self._old_entries(self.state)
        for key in old:
            if key not in contents and old[key]["role"] != "record":
                contents[key] = self._pristine_marker(key)
        records = self._records(wanted, old)
        contents.update(records)
        asserts = self._assertions(contents)
        for key in sorted(contents):
            self._compare(key, contents[key], record=key in records)
        folders = self._folders(contents)
        pycs = self._pycs()
        self._blobs()
        fingerprint = self._fingerprint(wanted)
        state = self._state(fingerprint, folders, pycs, asserts)
        self._caches(environ, fingerprint)
        nothing = not self.work.changes and state == self.state
        if self.snapshot.taken_as_pristine:
            count = len(self.snapshot.taken_as_pristine)
            self.notes.append(
                f"neither RECORD nor git says what {self.home.base} should hold: the bytes of"
                f" {count} file{'s' * (count > 1)} are taken as pristine"
            )
        for key in self.snapshot.reinstalled:
            self.notes.append(f"{key[1]} was reinstalled meanwhile; its old record is set aside")
        prefix = environ.get("PYTHONPYCACHEPREFIX")
        self.work.prefix = os.path.abspath(prefix) if prefix else None
        return Planned(
            self.chosen,
            self.work,
            state,
            nothing,
            files=self._file_reports(wanted),
            fingerprint=fingerprint,
            notes=self.notes,
            left_out=[{"bundle": b, "patch": p, "file": f} for b, p, f in self.series.left_out],
            mapping=[
                {"bundle": b, "patch": p, "form": f.example, "strip": f.strip, "prefix": f.prefix}
                for b, p, f in self.series.forms
            ],
            wanted=wanted,
        )

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
            keep = stash_name(seen.before["sha256"], *key)
            if seen.shared and seen.sha256 is not None and not same(new, seen.now):
                blob = seen.sha256
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
                keep=keep if seen.entry is None and seen.before is not None else None,
                status=seen.status,
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
                )
            )

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

    # -- folders and byte-code ------------------------------------------------------

    def _folders(self, contents: Contents) -> list[list[Any]]:
        """Folders to make and to remove, and what the record says of them afterwards."""
        recorded: dict[tuple[str, str], list[Any]] = {}
        if self.state is not None:
            for item in self.state["folders"]:
                recorded[(item[0], item[1])] = list(item)
        drop: dict[tuple[str, str], tuple[int, int, int]] = {}
        for change in self.work.changes:
            if change.old is None:
                self._make_above(change.root, change.path, recorded)
            elif change.new is None:
                for folder, status in self._above(change.root, change.path):
                    facts = (status.st_mode & 0o7777, status.st_uid, status.st_gid)
                    drop[(change.root, folder)] = facts
                    if (change.root, folder) not in recorded:
                        recorded[(change.root, folder)] = [change.root, folder, "gone", *facts]
            if change.path.endswith(".py") and change.new is not None:
                cache = _cache_folder(change.path)
                key = (change.root, cache)
                if key not in recorded and self.roots[change.root].lstat(cache) is None:
                    recorded[key] = [change.root, cache, "made", 0o755, -1, -1]
        live = [(e["root"], e["path"]) for e in self.entries]
        prefixes = {(self.root_names[root], _upper(path)) for root, path in live}
        for root, path in list(prefixes):
            while path:
                path = _upper(path)
                prefixes.add((root, path))
        kept: list[list[Any]] = []
        for (root, folder), item in sorted(recorded.items()):
            needed = (root, folder) in prefixes or (
                folder.endswith("__pycache__") and (root, _upper(folder)) in prefixes
            )
            if needed:
                kept.append(item)
            elif item[2] == "made":
                there = self.roots[root].lstat(folder)
                if there is not None:
                    drop[(root, folder)] = (there.st_mode & 0o7777, there.st_uid, there.st_gid)
        self.work.drop = sorted(
            ((root, folder, *facts) for (root, folder), facts in drop.items()),
            key=lambda item: (-item[1].count("/"), item),
        )
        self.work.make.sort(key=lambda item: (item[1].count("/"), item))
        return kept

    def _make_above(self, root: str, path: str, recorded: dict[tuple[str, str], list[Any]]) -> None:
        folder = _upper(path)
        if (root, folder) in self.made:
            return
        missing: list[str] = []
        while folder and self.roots[root].lstat(folder) is None:
            missing.append(folder)
            folder = _upper(folder)
        status = self.roots[root].lstat(folder) if folder else os.stat(self.roots[root].path)
        assert status is not None
        for name in missing:
            facts = (status.st_mode & 0o7777, status.st_uid, status.st_gid)
            known = recorded.get((root, name))
            if known is not None and known[2] == "gone":
                facts = (known[3], known[4], known[5])
            elif known is None:
                recorded[(root, name)] = [root, name, "made", *facts]
            if (root, name) not in self.made:
                self.made.add((root, name))
                self.work.make.append((root, name, *facts))

    def _above(self, root: str, path: str) -> Iterable[tuple[str, os.stat_result]]:
        """The folders of a file that goes: its byte-code's, its own and those above."""
        folder = _upper(path)
        names = [_cache_folder(path)] if folder else []
        while folder:
            names.append(folder)
            folder = _upper(folder)
        for name in names:
            status = self.roots[root].lstat(name)
            if status is not None:
                yield name, status

    def _pycs(self) -> list[list[Any]]:
        """Byte-code of changed modules: that of pristine sources is kept and put back."""
        kept: dict[tuple[str, str], list[list[Any]]] = {}
        if self.state is not None:
            for root, path, name in self.state["pycs"]:
                kept.setdefault((root, _source_of(path)), []).append([root, path, name])
        fresh: list[tuple[str, str]] = []
        for change in self.work.changes:
            if not change.path.endswith(".py"):
                continue
            key = (change.root, change.path)
            self.work.modules.append(key)
            if change.keep is not None:
                fresh.append(key)
                kept[key] = []
                legacy = f"{change.path}c"
                if change.new is None and self.roots[change.root].lstat(legacy) is not None:
                    self._stash_pyc(kept[key], change.root, legacy)
            elif change.restore is not None:
                self.work.restore_pycs += [
                    (root, path, name) for root, path, name in kept.pop(key, [])
                ]
        self._make_cache_folders()
        for root, module, path in pycs_of(self.roots, fresh):
            self._stash_pyc(kept[(root, module)], root, path)
        live = {(self.root_names[e["root"]], e["path"]) for e in self.entries}
        return sorted(item for key, items in kept.items() if key in live for item in items)

    def _make_cache_folders(self) -> None:
        """Byte-code that is put back needs its folder, which may have been removed."""
        known = {(item[0], item[1]): item for item in (self.state or {"folders": []})["folders"]}
        for root, path, _ in self.work.restore_pycs:
            folder = _upper(path)
            item = known.get((root, folder))
            if item is not None and item[2] == "gone" and (root, folder) not in self.made:
                self.made.add((root, folder))
                if self.roots[root].lstat(folder) is None:
                    self.work.make.append((root, folder, item[3], item[4], item[5]))

    def _stash_pyc(self, kept: list[list[Any]], root: str, path: str) -> None:
        name = digest(f"{root}\0{path}".encode("utf-8", "surrogateescape"))[:24]
        kept.append([root, path, name])
        self.work.stash_pycs.append((root, path, name))

    def _caches(self, environ: Mapping[str, str], fingerprint: str | None) -> None:
        """JIT outputs of every bundle that comes, goes or changes."""
        before: dict[str, Any] = {}
        if self.state is not None:
            before = {entry["name"]: entry for entry in self.state["bundles"]}
        after = {entry["name"]: entry for entry in self._bundles()}
        label = self.state["fingerprint"][:12] if self.state is not None else "pristine"
        wanted: dict[str, set[str]] = {}
        for name in {**before, **after}:
            old, new = before.get(name), after.get(name)
            if old is not None and new is not None and old["variants"] == new["variants"]:
                continue
            for entry in (old, new):
                for kind, names in (entry or {"caches": {}})["caches"].items():
                    wanted.setdefault(kind, set()).update(names)
        for kind in sorted(wanted):
            self.work.caches += folders_to_set_aside(
                kind, tuple(sorted(wanted[kind])), environ, label
            )

    # -- assertions -----------------------------------------------------------------

    def _assertions(self, contents: Contents) -> list[AssertEntry]:
        """Every assertion of the set, judged on the wanted contents."""
        out: list[AssertEntry] = []
        for item in self.chosen:
            for assertion in item.bundle.asserts:
                entry = self._assertion(item, assertion, contents)
                if entry is not None:
                    out.append(entry)
        return out

    def _assertion(
        self, item: Chosen, assertion: Assertion, contents: Contents
    ) -> AssertEntry | None:
        from .assertions import evaluate

        dist = find_distribution(self.env, assertion.distribution)
        if dist is None:
            if assertion.distribution in item.skipped:
                return None
            raise Refused(
                f"{assertion.distribution} is not installed in {self.env.site_packages}, and"
                f" {assertion.key} asks for it",
                code="not-installed",
                bundle=item.bundle.name,
                hint="name another environment: --python PATH (an interpreter or venv folder)",
            )
        if assertion.versions and not version_matches(assertion.versions, dist.version):
            return None
        root = root_name(self.home, dist.root)
        read_bytes: dict[str, bytes | None] = {}

        def read(path: str) -> bytes | None:
            if path not in read_bytes:
                read_bytes[path] = self._wanted_bytes((root, path), contents)
            return read_bytes[path]

        data = read(assertion.file)
        finding = evaluate(assertion, data, read)
        if not finding.ok:
            what = assertion.message or "an assertion would not hold"
            hint = "what the patch is for is not reached in this release"
            if not any(part.patches for part in item.parts):
                hint = "the setting does not fit the installed release"
            raise Refused(
                f"{what} ({assertion.key} on {assertion.file}: {finding.message})",
                code="assertion-failed",
                bundle=item.bundle.name,
                file=assertion.file,
                line=finding.line,
                hint=f"{hint}; nothing was changed",
                data={"assertion": assertion.key},
            )
        reads = {path: None if b is None else digest(b) for path, b in read_bytes.items()}
        for path in finding.reads:
            data_of = read(path)
            reads[path] = None if data_of is None else digest(data_of)
        return AssertEntry(
            bundle=item.bundle.name,
            root=self._root(root),
            assertion=asdict(assertion),
            reads=reads,
        )

    def _wanted_bytes(self, key: Key, contents: Contents) -> bytes | None:
        if key in contents:
            content = contents[key]
            if content is None:
                return None
            if content.data is not None:
                return content.data
            pristine = self.snapshot.pristine(key)
            return None if pristine is None else pristine.data
        root = self.roots[key[0]]
        try:
            return root.read(key[1], follow=True)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    # -- the record -----------------------------------------------------------------

    def _blobs(self) -> None:
        for item in self.chosen:
            if item.manifest is not None:
                self.work.blobs[digest(item.manifest)] = item.manifest
            for part in item.parts:
                for _, data in part.patches:
                    self.work.blobs[digest(data)] = data

    def _bundles(self) -> list[BundleEntry]:
        entries = []
        for item in self.chosen:
            versions: dict[str, str] = {}
            for name in {v.distribution for v in item.bundle.profile.variants}:
                dist = find_distribution(self.env, name)
                if dist is not None:
                    versions[name] = dist.version
            entries.append(_bundle_entry(item, versions))
        return entries

    def _fingerprint(self, wanted: Wanted) -> str | None:
        """The SHA-256 over bundle set, releases and resulting bytes; of nothing that
        differs between machines (paths, owners, permission bits but "executable")."""
        if not self.chosen:
            return None
        value = {
            "bundles": [
                [
                    item.bundle.name,
                    item.bundle.version,
                    item.reverse,
                    [
                        [p.distribution.name, [digest(data) for _, data in p.patches]]
                        for p in item.parts
                    ],
                ]
                for item in self.chosen
            ],
            "releases": sorted(
                {
                    (part.distribution.name, part.distribution.version)
                    for item in self.chosen
                    for part in item.parts
                }
            ),
            "files": sorted(
                [
                    key[1],
                    None
                    if content is None
                    else [content.sha256, content.kind, bool(content.mode & 0o100)],
                ]
                for key, content in wanted.contents.items()
            ),
        }
        return digest(json.dumps(value, separators=(",", ":")).encode())

    def _state(
        self,
        fingerprint: str | None,
        folders: list[list[Any]],
        pycs: list[list[Any]],
        asserts: list[AssertEntry],
    ) -> State | None:
        if fingerprint is None:
            return None
        distributions: dict[str, Distribution] = {}
        for item in self.chosen:
            for part in item.parts:
                if part.distribution.name:
                    distributions[part.distribution.name] = part.distribution
        for dist in self.owners.values():
            if dist.name:
                distributions.setdefault(dist.name, dist)
        return State(
            schema=SCHEMA,
            fingerprint=fingerprint,
            distributions=[
                self._distribution(distributions[name]) for name in sorted(distributions)
            ],
            bundles=self._bundles(),
            files=self.entries,
            folders=folders,
            pycs=pycs,
            asserts=asserts,
            roots=self.root_names,
        )

    def _distribution(self, dist: Distribution) -> DistributionEntry:
        info = dist.dist_info
        if info is not None and os.path.dirname(info) == self.home.holder:
            info = os.path.basename(info)
        return DistributionEntry(
            name=dist.name,
            version=dist.version,
            root=self._root(root_name(self.home, dist.root)),
            kind=dist.kind,
            dist_info=info,
        )

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


def _change_word(change: Change, kind: str | None) -> str:
    if change.old is None:
        return "renamed" if kind == "renamed" else "added"
    if change.new is None:
        return "deleted"
    if change.old["sha256"] == change.new["sha256"] and change.old["kind"] == change.new["kind"]:
        return "mode"
    return "modified"


def _bundle_entry(item: Chosen, versions: Mapping[str, str]) -> BundleEntry:
    env, args = profile_for(item.bundle, versions)
    return BundleEntry(
        name=item.bundle.name,
        version=item.bundle.version,
        loose=item.bundle.loose,
        reverse=item.reverse,
        strip=item.strip,
        manifest=None if item.manifest is None else digest(item.manifest),
        variants=[
            VariantEntry(
                distribution=part.distribution.name,
                release=part.distribution.version,
                versions=part.versions,
                strip=part.strip,
                patches=[[path, digest(data)] for path, data in part.patches],
                upstream=part.upstream,
            )
            for part in item.parts
        ],
        profile={"env": env, "args": list(args)},
        caches={kind: list(names) for kind, names in item.bundle.caches},
    )


def _upper(path: str) -> str:
    return path.rpartition("/")[0]


def _cache_folder(path: str) -> str:
    folder = _upper(path)
    return f"{folder}/__pycache__" if folder else "__pycache__"


def _source_of(path: str) -> str:
    """The module whose byte-code a ``.pyc`` is (PEP 3147, PEP 488)."""
    folder, _, name = path.rpartition("/")
    if not folder.endswith("__pycache__"):
        return path[:-1]
    stem = name.split(".", 1)[0]
    above = _upper(folder)
    return f"{above}/{stem}.py" if above else f"{stem}.py"
