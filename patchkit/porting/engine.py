"""A series of patches, carried from the release it was made for to another one.

For each patch: base is the release with the patches before it, ours the same with this one,
theirs the new release with what was ported before.  :mod:`.merge` proposes, :mod:`.checks`
judges, and what fails is a conflict with its three sides; a file or def that moved is
looked for by :mod:`.moves`.  Must not do I/O: trees are read through :class:`.model.Tree`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from .checks import Sides, judge
from .exports import exports
from .inherited import no_more_inherited
from .marks import marked, unresolved
from .merge import Edit, Merged, Part, apply_edits, merge
from .model import (
    FileEdit,
    FileResult,
    HunkResult,
    Outcome,
    PatchEdit,
    PatchResult,
    Ported,
    Problem,
    Span,
    Tree,
    worst,
)
from .moves import Found, Moves, outermost_missing
from .source import Source

# Changes that are nearer than twice the context of a diff are one hunk.
_CONTEXT = 3

#: What a person made of a conflict: (patch, path in the target) to the contents.
Resolved = Mapping[tuple[str, str], bytes]


#: What is wrong whoever merged it.
_BY_HAND = frozenset({"syntax", "unparsed", "doubled", "undefined", "import"})


class Overlay:
    """A tree with some files changed: what a series has made of it so far."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.changed: dict[str, bytes | None] = {}

    def paths(self) -> Iterable[str]:
        """Every path of the tree, and those that came."""
        gone = {path for path, data in self.changed.items() if data is None}
        yield from (path for path in self.tree.paths() if path not in gone)
        yield from (
            path
            for path, data in self.changed.items()
            if data is not None and self.tree.digest(path) is None
        )

    def digest(self, path: str) -> str | None:
        """As the tree knows it, or that of the changed bytes."""
        if path not in self.changed:
            return self.tree.digest(path)
        data = self.changed[path]
        return None if data is None else sha256(data).hexdigest()

    def read(self, path: str) -> bytes | None:
        """The bytes now."""
        return self.changed[path] if path in self.changed else self.tree.read(path)


def port(
    base: Tree, target: Tree, patches: Sequence[PatchEdit], resolved: Resolved | None = None
) -> Ported:
    """Carry ``patches``, which are contents for ``base``, to ``target``.

    Later patches build on earlier ones.  A conflict in one does not keep the others from
    being tried, so that a person sees all of them at once; ``resolved`` holds what they
    made of those, which must pass the same checks.
    """
    before, after = Overlay(base), Overlay(target)
    results = []
    for patch in patches:
        carrier = _Carrier(before, after, patch.name, resolved or {})
        held = dict(after.changed)
        files: list[FileResult] = []
        for edit in patch.files:
            for result in carrier.carry(edit):
                # What a def moved into may be a file of the patch, too: one text for both.
                earlier = next((f for f in files if f.path == result.path and f.marked), None)
                if earlier is not None and result.marked is not None:
                    result = result._replace(theirs=earlier.theirs)
                files.append(result)
                _take(after, result)
                if result.path is not None and result.marked is not None:
                    after.changed[result.path] = result.marked
        files = carrier.checked(files)
        for edit in patch.files:
            _leave(before, edit)
        after.changed = held
        for result in files:
            _take(after, result)
        outcome = worst(file.outcome for file in files)
        results.append(PatchResult(patch.name, outcome, tuple(files)))
    inputs = (base, target, tuple(patches))
    return Ported(dict(after.changed), tuple(results), inputs)


def resume(ported: Ported, resolved: Resolved) -> Ported:
    """The same port with the conflicts as a person resolved them; each must be free of
    markers and pass the checks that a merge must."""
    base, target, patches = ported.inputs
    return port(base, target, patches, resolved)


class Chain(NamedTuple):
    """What came of porting release after release: for each tree whether the series stood
    there (the base of later ones), and the result on the last tree."""

    steps: tuple[Outcome, ...]
    last: Ported


def port_chain(trees: Sequence[Tree], patches: Sequence[PatchEdit]) -> Chain:
    """Carry a series through ``trees`` in order; the first is the one it was made for.

    A release on which every hunk has its place becomes the base of what follows.  One that
    holds a part already, or where a hunk conflicts, does not: a later release may have
    taken back what this one has, and the nearest base that is sound goes on.
    """
    base, series = trees[0], tuple(patches)
    steps: list[Outcome] = []
    last: Ported | None = None
    for target in trees[1:]:
        last = port(base, target, series)
        steps.append(last.outcome)
        whole = all(
            hunk.outcome in ("unchanged", "offset", "merged")
            for patch in last.patches
            for file in patch.files
            for hunk in file.hunks
        )
        if whole and last.outcome != "conflict":
            base, series = target, _edits(last)
    if last is None:
        last = port(base, base, series)
    return Chain(tuple(steps), last)


def _edits(ported: Ported) -> tuple[PatchEdit, ...]:
    """A ported series as a series for its target."""
    made = []
    there: set[str] = set()
    for patch in ported.patches:
        files = []
        for file in last_of_each(patch.files):
            if file.removed is not None and file.data is None:
                files.append(FileEdit(file.removed, None, None))
            elif file.path is not None and file.data is not None:
                old = file.removed or (
                    file.path if file.theirs is not None or file.path in there else None
                )
                files.append(FileEdit(old, file.path, file.data, file.mode))
                there.add(file.path)
        made.append(PatchEdit(patch.name, tuple(files)))
    return tuple(made)


def last_of_each(files: Sequence[FileResult]) -> list[FileResult]:
    """The files of a patch, each path that is written once: the last has what those before
    it brought (a def that moved into a file that the patch changes as well)."""
    last = {file.path: number for number, file in enumerate(files) if file.data is not None}
    return [f for n, f in enumerate(files) if f.data is None or last[f.path] == n]


def _leave(before: Overlay, edit: FileEdit) -> None:
    if edit.old is not None and edit.old != edit.new:
        before.changed[edit.old] = None
    if edit.new is not None:
        before.changed[edit.new] = edit.data


def _take(after: Overlay, result: FileResult) -> None:
    if result.outcome == "conflict":
        return
    if result.removed is not None:
        after.changed[result.removed] = None
    if result.path is not None and result.data is not None:
        after.changed[result.path] = result.data


class _Carrier:
    """Ports the files of one patch."""

    def __init__(self, before: Overlay, after: Overlay, name: str, resolved: Resolved) -> None:
        self.before, self.after = before, after
        self.name = name
        self.resolved = resolved
        self.moves = Moves(before, after)

    def carry(self, edit: FileEdit) -> list[FileResult]:
        """One file of the patch; more results where defs of it moved to other files."""
        return [self._resolve(result) for result in self._carry(edit)]

    def checked(self, results: list[FileResult]) -> list[FileResult]:
        """The files of the patch, judged together; what a person merged is theirs to say."""
        for number, problem in no_more_inherited(results).items():
            one = results[number]
            if (self.name, one.path or "") not in self.resolved:
                results[number] = one._replace(
                    outcome="conflict", problems=(problem,), data=None, marked=one.data
                )
        return results

    def _carry(self, edit: FileEdit) -> list[FileResult]:
        if edit.old is None:
            return [self._added(edit)]
        base = self.before.read(edit.old)
        if base is None:
            text = f"{edit.old} is not in the release that the patch was made for"
            return [_conflict(edit, None, (None, edit.data, None), Problem("base", text))]
        path, why = edit.old, ""
        if self.after.digest(edit.old) is None:
            found, why = self.moves.file(edit.old)
            if found is None:
                return self._missing(edit, base, why)
            path = found
        theirs = self.after.read(path)
        assert theirs is not None
        notes = (f"{edit.old} is {path} in this release ({why})",) if path != edit.old else ()
        if edit.new is None or edit.data is None:
            return [_removed(edit, path, base, theirs, notes)]
        if edit.new != edit.old and self.after.digest(edit.new) is not None:
            text = f"{edit.new} is there already"
            return [_conflict(edit, path, (base, edit.data, theirs), Problem("exists", text))]
        results = self._modified(edit, path, base, theirs)
        first = results[0]._replace(mode=edit.mode, notes=(*notes, *results[0].notes))
        if edit.new != edit.old:
            first = first._replace(path=edit.new, removed=path)
            if first.data is None and first.outcome != "conflict":
                first = first._replace(data=theirs)
        return [first, *results[1:]]

    # -- whole files --------------------------------------------------------------------

    def _added(self, edit: FileEdit) -> FileResult:
        assert edit.new is not None and edit.data is not None
        path, data = edit.new, edit.data
        there = self.after.read(path)
        if there == data:
            hunk = _whole_file("upstream", "the release has this very file", edit, path)
            return FileResult("upstream", None, path, (hunk,), ours=data, theirs=there)
        if there is not None:
            text = f"the patch adds {path}, and the release has another one"
            return _conflict(edit, path, (None, data, there), Problem("exists", text))
        empty, added = Source(path, b""), Source(path, data)
        problems = [
            problem
            for problem in self._judge(Sides(empty, added, empty, added, {}))
            if problem.code in ("import", "syntax")
        ]
        if problems:
            return _conflict(edit, path, (None, data, None), *problems)
        hunk = _whole_file("unchanged", "", edit, path)
        return FileResult("unchanged", None, path, (hunk,), data=data, ours=data, mode=edit.mode)

    def _missing(self, edit: FileEdit, base: bytes, why: str) -> list[FileResult]:
        """The file is not there under any name: its defs may have gone elsewhere."""
        assert edit.old is not None
        if edit.data is None or edit.new is None:
            hunk = _whole_file("upstream", "the release has no such file", edit, None)
            return [FileResult("upstream", edit.old, None, (hunk,), base=base)]
        sources = Source(edit.old, base), Source(edit.old, edit.data), Source(edit.old, b"")
        return self._proposed(edit, None, sources, {}, why)

    def _modified(self, edit: FileEdit, path: str, base: bytes, theirs: bytes) -> list[FileResult]:
        assert edit.old is not None and edit.data is not None
        ours = edit.data
        if base != theirs:
            base, ours = _ends(base, theirs), _ends(ours, theirs)
        sources = Source(edit.old, base), Source(edit.old, ours), Source(path, theirs)
        if theirs in (base, ours):
            outcome: Outcome = "unchanged" if base == theirs else "upstream"
            hunks = tuple(
                hunk._replace(outcome=outcome) for hunk in _hunks(sources, merge(*sources), path)
            )
            data = ours if base == theirs else None
            return [FileResult(outcome, edit.old, path, hunks, (), data, base, ours, theirs)]
        if any(b"\0" in data for data in (base, ours, theirs)):
            problem = Problem("binary", "a binary file that upstream changed")
            return [_conflict(edit, path, (base, ours, theirs), problem)]
        return self._proposed(edit, path, sources, self.moves.defs(*sources), "")

    # -- a merge, judged ------------------------------------------------------------------

    def _proposed(
        self,
        edit: FileEdit,
        path: str | None,
        sources: tuple[Source, Source, Source],
        renames: Mapping[str, str],
        why: str,
    ) -> list[FileResult]:
        """Merge and judge; changes in defs that left the file go where these went."""
        base, ours, theirs = sources
        proposal = merge(base, ours, theirs, renames)
        there = theirs.names(renames).values()
        lost = [part for part in proposal.parts if part.verdict == "lost"]
        if path is None:
            lost = [part for part in proposal.parts if part.scope]
        elsewhere: dict[str, list[Part]] = {}
        for part in lost:
            name = outermost_missing(part.scope, base, there)
            elsewhere.setdefault(name, []).append(part)
        settled: dict[Part, tuple[Outcome, str]] = {}
        moved: dict[str, list[tuple[str, list[Part], Found]]] = {}
        for name, parts in _of_constants(base, theirs, proposal.parts).items():
            place = self.moves.constant(base, name)
            if place is not None:
                moved.setdefault(place.path, []).append((name, parts, place))
        for name, parts in elsewhere.items():
            found = self.moves.definition(base, name)
            if isinstance(found, Found):
                moved.setdefault(found.path, []).append((name, parts, found))
            elif not found and (where := self._mentioned(base, ours, name, parts)):
                text = f"{name} is not in this release, but {where} speaks of the same"
                settled.update((part, ("conflict", text)) for part in parts)
            elif not found:
                text = f"{name} is not in this release; it was last in {base.path}"
                settled.update((part, ("gone", text)) for part in parts)
            else:
                settled.update((part, ("conflict", found)) for part in parts)
        followed = [self._followed(sources, to, entries) for to, entries in moved.items()]
        for to, entries in moved.items():
            for _, parts, _ in entries:
                settled.update((part, ("gone", f"it goes to {to}")) for part in parts)
        rest = [part for part in proposal.parts if part not in settled]
        if path is None and rest:
            settled.update((part, ("conflict", why)) for part in rest)
        if followed and not rest:
            own: list[FileResult] = []
        elif followed:
            remaining = Source(base.path, _only(base, ours, rest))
            proposal = merge(base, remaining, theirs, renames)
            own = [self._judged(edit, path, (base, remaining, theirs), renames, proposal, {})]
        else:
            own = [self._judged(edit, path, sources, renames, proposal, settled)]
        return [*own, *followed]

    def _mentioned(
        self, base: Source, ours: Source, name: str, parts: Sequence[Part]
    ) -> str | None:
        lines: list[bytes] = []
        for part in parts:
            lines += base.lines[max(part.base[0] - _CONTEXT, 0) : part.base[1] + _CONTEXT]
            lines += ours.lines[slice(*part.ours)]
        return self.moves.mention(base, name, lines)

    def _followed(
        self,
        sources: tuple[Source, Source, Source],
        path: str,
        entries: Sequence[tuple[str, Sequence[Part], Found]],
    ) -> FileResult:
        """The changes of what moved to one other file."""
        base, ours, _ = sources
        data = self.after.read(path)
        assert data is not None
        theirs = Source(path, data)
        part_of_ours = Source(
            ours.path, _only(base, ours, [part for _, parts, _ in entries for part in parts])
        )
        edit = FileEdit(base.path, base.path, part_of_ours.data)
        renames = {to.name: name for name, _, to in entries}
        proposal = merge(base, part_of_ours, theirs, renames)
        triple = (base, part_of_ours, theirs)
        result = self._judged(edit, path, triple, renames, proposal, {})
        notes = (
            f"{name} of {base.path} is {to.name} of {path} in this release"
            for name, _, to in entries
        )
        return result._replace(notes=tuple(notes))

    def _judged(
        self,
        edit: FileEdit,
        path: str | None,
        sources: tuple[Source, Source, Source],
        renames: Mapping[str, str],
        proposal: Merged,
        settled: Mapping[Part, tuple[Outcome, str]],
    ) -> FileResult:
        base, ours, theirs = sources
        hunks = _hunks(sources, proposal, path, settled)
        outcome = worst(hunk.outcome for hunk in hunks)
        problems: list[Problem] = []
        if outcome != "conflict" and proposal.edits:
            merged = Source(theirs.path, proposal.data)
            gone = frozenset(
                part.scope
                for part in proposal.parts
                if part.verdict == "blank" or settled.get(part, ("",))[0] == "gone"
            )
            problems = self._judge(Sides(base, ours, theirs, merged, renames), gone)
        texts = (base.data, ours.data, theirs.data if path is not None else None)
        if outcome != "conflict" and not problems:
            data = proposal.data if proposal.edits else None
            return FileResult(outcome, edit.old, path, hunks, (), data, *texts)
        failed = outcome != "conflict"
        open_parts = [
            part
            for part in proposal.parts
            if (failed and part.verdict not in ("upstream", "blank"))
            or (part.verdict in ("stuck", "lost") and settled.get(part, ("",))[0] != "gone")
        ]
        shown = marked(base, ours, theirs, () if failed else proposal.edits, open_parts)
        return FileResult(
            "conflict", edit.old, path, hunks, tuple(problems), None, *texts, marked=shown
        )

    def _judge(self, sides: Sides, gone: frozenset[str] = frozenset()) -> list[Problem]:
        return judge(sides, gone=gone, base=exports(self.before), target=exports(self.after))

    def _resolve(self, result: FileResult) -> FileResult:
        """A file as a person merged it, where they did.  What they changed is theirs to say:
        only what no merge can be right with is still checked."""
        path = result.path or result.old_path
        data = None if path is None else self.resolved.get((self.name, path))
        if path is None or data is None or data == result.data:
            return result
        line = unresolved(data)
        if line is not None:
            problem = Problem("markers", "a conflict marker is still there", line)
            return result._replace(outcome="conflict", problems=(problem,), marked=data)
        sides = Sides(
            Source(result.old_path or path, result.base or b""),
            Source(result.old_path or path, result.ours or b""),
            Source(path, result.theirs or b""),
            Source(path, data),
            {},
        )
        problems = [one for one in self._judge(sides) if one.code in _BY_HAND]
        if problems:
            return result._replace(outcome="conflict", problems=tuple(problems), marked=data)
        outcome: Outcome = "upstream" if data == result.theirs else "merged"
        hunks = (
            hunk._replace(outcome=outcome, reason="by hand") if hunk.outcome == "conflict" else hunk
            for hunk in result.hunks
        )
        return result._replace(
            outcome=outcome,
            hunks=tuple(hunks),
            problems=(),
            marked=None,
            path=path,
            data=None if outcome == "upstream" else data,
        )


def _conflict(
    edit: FileEdit,
    path: str | None,
    sides: tuple[bytes | None, bytes | None, bytes | None],
    *problems: Problem,
) -> FileResult:
    return FileResult(
        "conflict", edit.old, path, (), problems, None, *sides, marked=sides[1], mode=edit.mode
    )


def _whole_file(outcome: Outcome, reason: str, edit: FileEdit, path: str | None) -> HunkResult:
    count = (edit.data or b"").count(b"\n")
    return HunkResult(outcome, reason, "", Span(1, 0), Span(1, count), Span(1, 0), path)


def _removed(
    edit: FileEdit, path: str, base: bytes, theirs: bytes, notes: tuple[str, ...]
) -> FileResult:
    if theirs != base:
        problem = Problem("changed", f"the patch removes {path}, which upstream changed")
        return _conflict(edit, path, (base, None, theirs), problem)._replace(notes=notes)
    hunk = _whole_file("unchanged", "", edit, path)
    return FileResult(
        "unchanged", edit.old, path, (hunk,), base=base, theirs=theirs, removed=path, notes=notes
    )


def _of_constants(base: Source, theirs: Source, parts: Iterable[Part]) -> dict[str, list[Part]]:
    """The changes that have no place, by the name at the top of the file that they are of,
    where that file does not bind it any more."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        if part.verdict != "stuck" or part.scope:
            continue
        low, high = part.base
        for name, (start, end) in base.constants.items():
            inside = start <= low and high <= end if high > low else start < low < end
            if inside and name not in theirs.constants:
                found.setdefault(name, []).append(part)
    return found


def _ends(data: bytes, like: bytes) -> bytes:
    """Line ends as the target file has them, where each side has one kind of them."""
    crlf, lines = data.count(b"\r\n"), data.count(b"\n")
    wanted, of = like.count(b"\r\n"), like.count(b"\n")
    if crlf == lines and not wanted:
        return data.replace(b"\r\n", b"\n")
    if not crlf and wanted == of:
        return data.replace(b"\n", b"\r\n")
    return data


def _only(base: Source, ours: Source, parts: Iterable[Part]) -> bytes:
    """Base with some of the changes of ours."""
    edits = [
        Edit(part.base[0], part.base[1], tuple(ours.lines[slice(*part.ours)]), ())
        for part in sorted(parts, key=lambda part: (part.base, part.ours))
    ]
    return apply_edits(base.lines, edits)


# -- hunks --------------------------------------------------------------------------------


def _hunks(
    sources: tuple[Source, Source, Source],
    proposal: Merged,
    path: str | None,
    settled: Mapping[Part, tuple[Outcome, str]] | None = None,
) -> tuple[HunkResult, ...]:
    """The changes as hunks, each with the worst outcome of its changes."""
    base, _, theirs = sources
    groups: list[list[Part]] = []
    for part in sorted(proposal.parts, key=lambda part: (part.base, part.ours)):
        if groups and part.base[0] - groups[-1][-1].base[1] <= 2 * _CONTEXT:
            groups[-1].append(part)
        else:
            groups.append([part])
    hunks = []
    for group in groups:
        outcomes = [_outcome(base, theirs, part, settled or {}) for part in group]
        outcome = worst(found for found, _ in outcomes)
        reason = next((why for found, why in outcomes if found == outcome and why), "")
        hunks.append(
            HunkResult(
                outcome,
                reason,
                next((part.scope for part in group if part.scope), ""),
                _span([part.base for part in group]),
                _span([part.ours for part in group]),
                _span([part.theirs for part in group]),
                path,
            )
        )
    return tuple(hunks)


def _span(spans: Sequence[tuple[int, int]]) -> Span:
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    return Span(low + 1, high - low)


def _outcome(
    base: Source, theirs: Source, part: Part, settled: Mapping[Part, tuple[Outcome, str]]
) -> tuple[Outcome, str]:
    if part in settled:
        return settled[part]
    if part.verdict == "upstream":
        return "upstream", ""
    if part.verdict == "blank":
        return "gone", part.reason
    if part.verdict in ("stuck", "lost"):
        return "conflict", part.reason
    if part.verdict == "clean" and _same_context(base, theirs, part):
        return ("unchanged" if part.base[0] == part.theirs[0] else "offset"), ""
    return "merged", ""


def _same_context(base: Source, theirs: Source, part: Part) -> bool:
    (low, high), (start, end) = part.base, part.theirs
    before = base.lines[max(low - _CONTEXT, 0) : low]
    return (
        theirs.lines[max(start - len(before), 0) : start] == before
        and theirs.lines[end : end + _CONTEXT] == base.lines[high : high + _CONTEXT]
    )
