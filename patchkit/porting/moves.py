"""Where a file, a class or a def of the base release went in the target release.

By digests first, which trees know without reading; then by the lines that say most of what
a file or def is.  A move is followed only where one place is far better than every other.
Must not do I/O: files are read through the trees, each at most once, and only those that
differ between the two releases.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from .model import Tree
from .source import MODULE, Source

# A file is the same one when so many of its telling lines are there, a def likewise;
# and the second best place must have less than this share of the best one's.
_FILE, _DEF, _SECOND = 0.5, 0.5, 0.7
# In another file it takes more: a copy of a class may have been made long ago for another use.
_MOVED = 0.75
# A def of which less than this stands anywhere is gone.
_TRACE = 0.25
# A name that more files than this came to use says nothing of what a def is about.
_COMMON = 40
# At most so many files are read in search of one that moved.
_READ = 10_000


class Found(NamedTuple):
    """A def in another file: the path, its name there, and how much of it is the same."""

    path: str
    name: str
    share: float


class Moves:
    """What moved between two trees."""

    def __init__(self, base: Tree, target: Tree) -> None:
        self.base, self.target = base, target
        self._new: list[str] | None = None
        self._changed: list[str] | None = None
        self._texts: dict[str, bytes] = {}
        self._line_sets: dict[str, frozenset[bytes]] = {}

    def _text(self, path: str) -> bytes:
        if path not in self._texts:
            self._texts[path] = self.target.read(path) or b""
        return self._texts[path]

    def _lines(self, path: str) -> frozenset[bytes]:
        """The lines of a file of the target, without their indentation."""
        if path not in self._line_sets:
            self._line_sets[path] = frozenset(map(bytes.strip, self._text(path).split(b"\n")))
        return self._line_sets[path]

    def new(self) -> list[str]:
        """The paths of the target that the base does not have."""
        if self._new is None:
            self._new = sorted(p for p in self.target.paths() if self.base.digest(p) is None)
        return self._new

    def changed(self, suffix: str) -> list[str]:
        """The files of the target of one suffix that are new or have other bytes."""
        if self._changed is None:
            self._changed = sorted(
                path
                for path in self.target.paths()
                if self.base.digest(path) != self.target.digest(path)
            )
        return [path for path in self._changed if path.endswith(suffix)][:_READ]

    # -- files ------------------------------------------------------------------------

    def file(self, path: str) -> tuple[str | None, str]:
        """The path of a file that is not where it was, and how it was found; or None and
        why not."""
        digest = self.base.digest(path)
        new = self.new()
        same = [other for other in new if self.target.digest(other) == digest]
        if len(same) == 1:
            return same[0], "the same bytes"
        if same:
            near = [other for other in same if _name(other) == _name(path)]
            if len(near) == 1:
                return near[0], "the same bytes and name"
        data = self.base.read(path) or b""
        suffix = _suffix(path)
        wanted = _telling(data.split(b"\n"))
        if not wanted:
            return None, f"{path} is not in this release"
        named = [other for other in new if _name(other) == _name(path)]
        for candidates in (named, [other for other in new if other.endswith(suffix)][:_READ]):
            scores = sorted(
                ((self._share(wanted, other), other) for other in candidates), reverse=True
            )
            if scores and scores[0][0] >= _FILE:
                second = scores[1][0] if len(scores) > 1 else 0.0
                if second <= _SECOND * scores[0][0]:
                    return scores[0][1], f"{scores[0][0]:.0%} of its lines"
                both = f"{scores[0][1]} and {scores[1][1]}"
                return None, f"{path} is not in this release; {both} are both like it"
        return None, f"{path} is not in this release"

    def _share(self, wanted: Counter[bytes], path: str) -> float:
        there = Counter(line.strip() for line in self._text(path).split(b"\n"))
        return (wanted & there).total() / wanted.total()

    # -- defs -------------------------------------------------------------------------

    def defs(self, base: Source, ours: Source, theirs: Source) -> dict[str, str]:
        """The defs of theirs that have another name in base, inside one file: those that
        ours touched and theirs lacks, found by their lines; and twins of one name by which
        is most like which."""
        renames = _twins(base, theirs)
        there = set(theirs.names(renames).values())
        missing = [
            name
            for name, scope in base.scopes.items()
            if name not in there
            and scope.parent not in (n for n in base.scopes if n not in there)
            and name in ours.scopes
            and _body(base, name) != _body(ours, name)
        ]
        for name in missing:
            free = [
                other
                for other, scope in theirs.scopes.items()
                if other not in base.scopes and scope.kind == base.scopes[name].kind
            ]
            wanted = _telling(_body(base, name))
            found = _best(wanted, ((_body(theirs, o), o) for o in free))
            if found is None or _rivals(wanted, found, base, theirs):
                continue
            if not self._stands_elsewhere(base, name):
                renames[found[1]] = name
        renames.update(_wrapped(base, ours, theirs, renames))
        return renames

    def _stands_elsewhere(self, base: Source, name: str) -> bool:
        found = self.definition(base, name)
        return isinstance(found, Found)

    def definition(self, base: Source, name: str) -> Found | str:
        """Where a def of ``base`` stands now that its file lacks it, or why that cannot be
        said; the empty string where no line of it came up in another place."""
        if not base.python:
            return f"{name} is not in the file any more"
        kind = base.scopes[name].kind
        last = _last(name)
        wanted = _telling(_body(base, name))
        if not wanted:
            return f"{name} is too short to be found again"
        head = re.compile(rb"(?:def|class)[ \t]+%s\b" % re.escape(last.encode()))
        scores: list[tuple[float, str, str]] = []
        traces: list[tuple[float, str]] = []
        for path in self.changed(_suffix(base.path)):
            there = wanted.keys() & self._lines(path)
            share = sum(wanted[line] for line in there) / wanted.total()
            if share < _TRACE:
                continue
            if path == base.path:
                traces.append((share, path))
                continue
            old = self.base.read(path) or b""
            if any(line not in old for line in there):
                traces.append((share, path))
            if not head.search(self._text(path)):
                continue
            source, before = Source(path, self._text(path)), Source(path, old)
            for other, scope in source.scopes.items():
                if _last(other) == last and scope.kind == kind and other not in before.scopes:
                    body = Counter(line.strip() for line in _body(source, other))
                    scores.append(((wanted & body).total() / wanted.total(), path, other))
        scores.sort(reverse=True)
        if scores and scores[0][0] >= _MOVED:
            if len(scores) > 1 and scores[1][0] > _SECOND * scores[0][0]:
                return f"{name} stands in {scores[0][1]} and in {scores[1][1]} now"
            return Found(scores[0][1], scores[0][2], scores[0][0])
        if traces or scores:
            where = max(traces)[1] if traces else scores[0][1]
            return f"{name} is not in the file any more; parts of it stand in {where}"
        return ""

    def constant(self, base: Source, name: str) -> Found | None:
        """Where a name that ``base`` binds at its top is bound now, if in one file alone that
        did not bind it before."""
        lines = (line.strip() for line in base.lines[slice(*base.constants[name])])
        wanted = Counter(line for line in lines if re.search(rb"\w{2}", line))
        head = re.compile(rb"^%s[ \t]*[:=]" % re.escape(name.encode()), re.MULTILINE)
        found: list[Found] = []
        for path in self.changed(_suffix(base.path)):
            there = wanted.keys() & self._lines(path)
            share = sum(wanted[line] for line in there) / wanted.total()
            if (
                share >= _MOVED
                and head.search(self._text(path))
                and not head.search(self.base.read(path) or b"")
                and name in Source(path, self._text(path)).constants
            ):
                found.append(Found(path, name, share))
        return found[0] if len(found) == 1 else None

    def mention(self, base: Source, name: str, lines: Iterable[bytes]) -> str | None:
        """A file of the target that came to speak of what a def and some of its lines are
        about: it has the name of the def, or one of the longer names in the lines, and did
        not have it in the base.  None where there is none: the code is gone in any form."""
        words = {_last(name).encode()} | {
            word for line in lines for word in re.findall(rb"[A-Za-z_]\w{7,}", line)
        }
        found: dict[bytes, list[str]] = {word: [] for word in words}
        for path in self.changed(_suffix(base.path)):
            text = self._text(path)
            there = [word for word in words if word in text]
            if there:
                old = self.base.read(path) or b""
                for word in there:
                    if word not in old:
                        found[word].append(path)
        return next((paths[0] for paths in found.values() if 0 < len(paths) <= _COMMON), None)


def _rivals(wanted: Counter[bytes], found: tuple[float, str], base: Source, theirs: Source) -> bool:
    """Whether a def that has its old name came to hold what is looked for, about as well as
    the new one that was found does: then it may have gone into that."""
    for other, scope in theirs.scopes.items():
        if other not in base.scopes or scope.kind != theirs.scopes[found[1]].kind:
            continue
        body = _body(theirs, other)
        share = _likeness(wanted, body)
        if share > _SECOND * found[0] and share > _likeness(wanted, _body(base, other)):
            return True
    return False


def _wrapped(base: Source, ours: Source, theirs: Source, renames: dict[str, str]) -> dict[str, str]:
    """Defs whose body went to a new name, and whose old name is something else now, as when
    ``run`` becomes ``_run`` and a new ``run`` calls it."""
    found: dict[str, str] = {}
    for name, scope in base.scopes.items():
        if (
            scope.kind != "def"
            or name not in ours.scopes
            or name not in theirs.scopes
            or renames
            or _body(base, name) == _body(ours, name)
        ):
            continue
        wanted = _telling(_inside(base, name))
        body = Counter(line.strip() for line in _inside(theirs, name))
        if not wanted or (wanted & body).total() >= _TRACE * wanted.total():
            continue
        siblings = [
            other
            for other, there in theirs.scopes.items()
            if other not in base.scopes and there.kind == "def" and there.parent == scope.parent
        ]
        best = _best(wanted, ((_inside(theirs, other), other) for other in siblings))
        if best is not None:
            found[best[1]] = name
            found[name] = f"{name}#new"
    return found


def _twins(base: Source, theirs: Source) -> dict[str, str]:
    """For names that stand several times in a scope, and not as often on both sides: which
    one of theirs is which of the base, by their lines."""
    renames: dict[str, str] = {}
    for plain in {name for name in (*base.scopes, *theirs.scopes) if "#" in _tail(name)}:
        stem = plain.rpartition("#")[0]
        here = [name for name in base.scopes if _stem(name) == stem]
        there = [name for name in theirs.scopes if _stem(name) == stem]
        if len(here) == len(there) or not here or stem in renames.values():
            continue
        free = list(there)
        taken: dict[str, str] = {}
        for name in here:
            found = _best(
                _telling(_body(base, name)), ((_body(theirs, other), other) for other in free)
            )
            if found is not None:
                free.remove(found[1])
                taken[found[1]] = name
        for other in there:
            renames[other] = taken.get(other, f"{other}#new")
    return renames


def _best(
    wanted: Counter[bytes], candidates: Iterable[tuple[list[bytes], str]]
) -> tuple[float, str] | None:
    if not wanted:
        return None
    scores = sorted(
        ((_likeness(wanted, body), other) for body, other in candidates),
        reverse=True,
    )
    if not scores or scores[0][0] < _DEF:
        return None
    if len(scores) > 1 and scores[1][0] > _SECOND * scores[0][0]:
        return None
    return scores[0]


def _likeness(wanted: Counter[bytes], body: list[bytes]) -> float:
    there = Counter(line.strip() for line in body)
    return (wanted & there).total() / max(wanted.total(), _telling(body).total())


def _body(source: Source, name: str) -> list[bytes]:
    scope = source.scopes[name]
    return source.lines[scope.start : scope.end]


def _inside(source: Source, name: str) -> list[bytes]:
    """A def without its head."""
    lines = _body(source, name)
    head = next((n for n, line in enumerate(lines) if line.rstrip().endswith(b":")), 0)
    return lines[head + 1 :]


def _telling(lines: Iterable[bytes]) -> Counter[bytes]:
    """The lines that say what a text is: with two words and some length."""
    stripped = (line.strip() for line in lines)
    return Counter(
        line
        for line in stripped
        if len(line) >= 12 and len(re.findall(rb"[A-Za-z_]{2,}", line)) > 1
    )


def _tail(name: str) -> str:
    return name.rpartition(".")[2]


def _stem(name: str) -> str:
    return name.rpartition("#")[0] if "#" in _tail(name) else name


def _last(name: str) -> str:
    return _tail(name).partition("#")[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _suffix(path: str) -> str:
    return path[path.rfind(".") :] if "." in _name(path) else ""


def outermost_missing(name: str, base: Source, there: Iterable[str]) -> str:
    """The outermost def around ``name`` (or itself) that is not among ``there``."""
    known = set(there)
    found = name
    while name != MODULE:
        if name not in known:
            found = name
        name = base.scopes[name].parent
    return found
