"""The judge of a merged file: what must hold before it counts as ported.

Looks at base, ours, theirs and the result alone, and not at how the result came about, so
that a fault of the merge (or of a person's hand) is seen here.  Must not do I/O.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from .lexer import words
from .model import Problem
from .source import MODULE, Definition, Source

#: Two headers (``if …:``) that share so much of their words may be two forms of one.
_ALIKE = 0.5
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BRACKETS = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"))

#: What a module of a tree defines at its top, or None where the tree does not say.
Exports = Callable[[str], "frozenset[str] | None"]


class Statement(NamedTuple):
    """A statement without what stands in its body.  ``chain`` is the headers around it
    inside its def, each with the branch it stands in."""

    scope: str
    text: str
    chain: tuple[str, ...]
    node: ast.stmt
    after_exit: bool


class Sides(NamedTuple):
    """The four texts; ``known`` of each maps its scope names to those of the base."""

    base: Source
    ours: Source
    theirs: Source
    merged: Source
    renames: Mapping[str, str]


def judge(sides: Sides, *, gone: frozenset[str], base: Exports, target: Exports) -> list[Problem]:
    """Every check that the merged file fails.

    ``gone`` names the scopes in which the merge left something out as no longer needed;
    ``base`` and ``target`` say what a module of either tree defines.
    """
    merged, theirs = sides.merged, sides.theirs
    if merged.data == theirs.data:
        return []
    if merged.python:
        if theirs.problem or sides.base.problem or sides.ours.problem:
            why = theirs.problem or sides.base.problem or sides.ours.problem
            return [Problem("unparsed", f"this Python cannot read the file: {why}")]
        if merged.problem:
            return [Problem("syntax", f"the merged file is no Python: {merged.problem}")]
        return _python(sides, gone, base, target)
    return [*_balance(sides), *_data(sides), *_c_doubled(sides), *_lines_doubled(sides)]


def _python(sides: Sides, gone: frozenset[str], base: Exports, target: Exports) -> list[Problem]:
    judge_ = _Python(sides)
    problems = judge_.delta(gone)
    problems += _lines_doubled(sides)
    problems += judge_.doubled()
    problems += judge_.dead()
    problems += judge_.names()
    problems += judge_.imports(base, target)
    return problems


class _Python:
    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        self.known = (
            sides.base.names({}),
            sides.ours.names({}),
            sides.theirs.names(sides.renames),
            sides.merged.names(sides.renames),
        )
        sources = (sides.base, sides.ours, sides.theirs, sides.merged)
        texts = [
            _own_texts(source, known) for source, known in zip(sources, self.known, strict=True)
        ]
        names = set().union(*texts)
        touched = {
            name
            for name in names
            if texts[0].get(name) != texts[1].get(name) or texts[2].get(name) != texts[3].get(name)
        }
        self.all = [
            list(_statements(source, known, touched))
            for source, known in zip(sources, self.known, strict=True)
        ]

    def delta(self, gone: frozenset[str]) -> list[Problem]:
        """The change from base to ours and from theirs to merged must be the same one."""
        full = [Counter((s.scope, s.text, s.chain) for s in side) for side in self.all]
        plain = [Counter((s.scope, s.text) for s in side) for side in self.all]
        added, removed = full[1] - full[0], full[0] - full[1]
        came, went = full[3] - full[2], full[2] - full[3]
        missing, extra = added - came, came - added
        kept, lost = removed - went, went - removed
        heads = [{(s.scope, link) for s in side for link in s.chain} for side in self.all]
        _pair_off(missing, extra, heads[1], heads[3])
        _pair_off(kept, lost, heads[0], heads[2])
        # A statement whose headers changed stands on both sides: it neither came nor went.
        _pair_off(missing, kept, heads[1], heads[0])
        _pair_off(extra, lost, heads[3], heads[2])
        problems: list[Problem] = []
        if extra or lost:
            scopes = {key[0] for key in (*extra, *lost)}
            for scope in sorted(scopes):
                rest = [
                    Counter({k: n for k, n in side.items() if k[0] == scope})
                    for side in (missing, kept, extra, lost)
                ]
                both = heads[0] | heads[1], heads[2] | heads[3]
                if not _same_words((rest[0], rest[1]), (rest[2], rest[3]), both):
                    told = next(iter([*rest[2], *rest[3]]))
                    problems.append(
                        Problem(
                            "delta",
                            "the merged change is not the one that the patch made"
                            f"{_in(scope)}: {_short(told[1])}",
                            self._line(3, told),
                        )
                    )
                else:
                    for key in (*rest[0], *rest[1]):
                        missing.pop(key, None)
                        kept.pop(key, None)
        for key in missing:
            scope, text, _ = key
            if scope not in gone and plain[2][scope, text] < plain[1][scope, text]:
                problems.append(
                    Problem("delta", f"what the patch adds{_in(scope)} is missing: {_short(text)}")
                )
        for key in kept:
            scope, text, _ = key
            if scope not in gone and plain[3][scope, text] > plain[1][scope, text]:
                problems.append(
                    Problem("delta", f"what the patch removes{_in(scope)} stays: {_short(text)}")
                )
        return problems

    def _line(self, side: int, key: tuple[str, str, tuple[str, ...]]) -> int | None:
        for statement in self.all[side]:
            if (statement.scope, statement.text, statement.chain) == key:
                return statement.node.lineno
        return None

    def _added(self) -> Iterator[Statement]:
        """The statements of the merged file that are not in theirs."""
        left = Counter((s.scope, s.text, s.chain) for s in self.all[2])
        for statement in self.all[3]:
            key = (statement.scope, statement.text, statement.chain)
            if left[key]:
                left[key] -= 1
            else:
                yield statement

    def doubled(self) -> list[Problem]:
        """Nothing is defined, imported or listed more often than in ours and in theirs."""
        counts = [Counter(_bindings(side)) for side in self.all]
        return [
            Problem("doubled", f"{what} comes twice{_in(scope)}")
            for (scope, what), count in counts[3].items()
            if count > 1 and count > max(counts[1][scope, what], counts[2][scope, what])
        ]

    def dead(self) -> list[Problem]:
        """Nothing comes behind a return, raise, continue or break of the same block."""
        before = {(s.scope, s.text) for s in self.all[1] if s.after_exit}
        return [
            Problem("dead", f"it would never run: {_short(s.text)}", s.node.lineno)
            for s in self._added()
            if s.after_exit and (s.scope, s.text) not in before
        ]

    def names(self) -> list[Problem]:
        """What added lines use exists: variables, ``self``'s attributes, parameters."""
        theirs, ours = _Names(self.sides.merged), _Names(self.sides.ours)
        back = [{k: n for n, k in known.items()} for known in self.known]
        problems: dict[str, Problem] = {}
        for statement in self._added():
            here = back[1].get(statement.scope)
            there = back[3].get(statement.scope, statement.scope)
            if here is None:
                here = MODULE
            for name in sorted(_loads(statement.node)):
                if ours.binds(here, name) and not theirs.binds(there, name):
                    problems[name] = Problem(
                        "undefined", f"{name} is not defined there", statement.node.lineno
                    )
            for name in sorted(_own_attributes(statement.node)):
                if name in ours.attributes and name not in theirs.attributes:
                    problems["." + name] = Problem(
                        "undefined", f"self.{name} is not set there", statement.node.lineno
                    )
            for call, wrong in _calls(statement.node, theirs, ours):
                problems[call] = Problem("call", wrong, statement.node.lineno)
        return list(problems.values())

    def imports(self, base: Exports, target: Exports) -> list[Problem]:
        """What added imports name is in the target, if it was in the base."""
        problems = []
        for statement in self._added():
            node = statement.node
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            for module, name in _imported(node, self.sides.merged.path):
                was, now = _has(base, module, name), _has(target, module, name)
                # A name that the base lacked as well is none of the patch's faults.
                if not now and (was or (was is None and now is False)):
                    what = f"{module}.{name}" if name else module
                    problems.append(
                        Problem("import", f"{what} is not in this release", node.lineno)
                    )
        return problems


# -- statements ---------------------------------------------------------------------------


def _own_texts(source: Source, known: Mapping[str, str]) -> dict[str, list[bytes]]:
    texts: dict[str, list[bytes]] = {name: [] for name in known.values()}
    for line, owner in zip(source.lines, source.owners, strict=True):
        texts[known[owner]].append(line)
    return texts


def _statements(source: Source, known: Mapping[str, str], touched: set[str]) -> Iterator[Statement]:
    by_line = {
        (scope.start, scope.name.rpartition(".")[2].partition("#")[0]): name
        for name, scope in source.scopes.items()
    }

    def walk(body: Sequence[ast.stmt], scope: str, chain: tuple[str, ...]) -> Iterator[Statement]:
        exited = False
        for node in body:
            if isinstance(node, Definition):
                start = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
                inner = by_line.get((start, node.name))
                if inner is None:
                    yield Statement(known[scope], ast.unparse(node), chain, node, exited)
                    continue
                if known[inner] in touched or known[scope] in touched:
                    yield Statement(known[inner], _header(node), ("def",), node, exited)
                yield from walk(node.body, inner, ())
                continue
            if known[scope] in touched:
                yield Statement(known[scope], _header(node), chain, node, exited)
            elif not isinstance(node, _COMPOUND):
                continue
            for field, inner_body in _bodies(node):
                link = chain
                # An elif stands beside its if, not in it.
                beside = (
                    field == "orelse"
                    and isinstance(node, ast.If)
                    and (len(inner_body) == 1 and isinstance(inner_body[0], ast.If))
                )
                if known[scope] in touched and not beside:
                    link = (*chain, f"{field} {_header(node)}")
                yield from walk(inner_body, scope, link)
            exited = exited or isinstance(node, _LEAVES)

    assert source.tree is not None
    yield from walk(source.tree.body, MODULE, ())


_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def _bodies(node: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if body and isinstance(body, list):
            yield field, body
    for handler in getattr(node, "handlers", ()):
        kind = ast.unparse(handler.type) if handler.type is not None else ""
        yield f"except {kind}", handler.body
    for case in getattr(node, "cases", ()):
        yield f"case {ast.unparse(case.pattern)}", case.body


def _header(node: ast.stmt) -> str:
    """A statement without its body, in one spelling."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        decorators = " ".join(f"@{ast.unparse(d)}" for d in node.decorator_list)
        returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
        kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        return f"{decorators} {kind} {node.name}({ast.unparse(node.args)}){returns}"
    if isinstance(node, ast.ClassDef):
        decorators = " ".join(f"@{ast.unparse(d)}" for d in node.decorator_list)
        bases = ", ".join(ast.unparse(b) for b in (*node.bases, *node.keywords))
        return f"{decorators} class {node.name}({bases})"
    if isinstance(node, (ast.If, ast.While)):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return "with " + ", ".join(ast.unparse(item) for item in node.items)
    if isinstance(node, ast.Try):
        return "try"
    if isinstance(node, ast.Match):
        return f"match {ast.unparse(node.subject)}"
    return ast.unparse(node)


Bag = Counter[tuple[str, str, tuple[str, ...]]]
#: Headers, each with its scope.
Heads = AbstractSet[tuple[str, str]]


def _pair_off(one: Bag, other: Bag, heads: Heads, other_heads: Heads) -> None:
    """Take out of both the statements that differ only in the headers around them, where
    these may be two forms of the same headers."""
    for key in list(one):
        scope, text, chain = key
        alike = [
            k
            for k in other
            if k[:2] == (scope, text) and _chains(scope, chain, k[2], heads, other_heads)
        ]
        for found in alike:
            count = min(one[key], other[found])
            one[key] -= count
            other[found] -= count
    for bag in (one, other):
        for key in [key for key, count in bag.items() if not count]:
            del bag[key]


def _chains(
    scope: str, one: tuple[str, ...], other: tuple[str, ...], heads: Heads, other_heads: Heads
) -> bool:
    """Whether two rows of headers are the same or forms of each other: one that stands on
    both sides is no form of another."""
    return len(one) == len(other) and all(
        a == b
        or (
            (scope, a) not in other_heads
            and (scope, b) not in heads
            and a.split(" ", 2)[:2] == b.split(" ", 2)[:2]
            and _alike(a, b)
        )
        for a, b in zip(one, other, strict=True)
    )


def _alike(one: str, other: str) -> bool:
    if one == other:
        return True
    here, there = Counter(words(one.encode())), Counter(words(other.encode()))
    return (here & there).total() >= _ALIKE * max(here.total(), there.total())


def _same_words(patch: tuple[Bag, Bag], made: tuple[Bag, Bag], heads: tuple[Heads, Heads]) -> bool:
    """Whether two changes of statements add and remove the same words under the same
    headers (or forms of them): then upstream had other words in the same statements."""
    groups: list[tuple[tuple[str, ...], list[Counter[bytes]]]] = []
    for side, bags in enumerate((patch, made)):
        for bag, sign in zip(bags, (1, -1), strict=True):
            for (scope, text, chain), count in bag.items():
                group = next(
                    (g for key, g in groups if _chains(scope, key, chain, heads[0], heads[side])),
                    None,
                )
                if group is None:
                    group = [Counter(), Counter()]
                    groups.append((chain, group))
                data = text.encode("utf-8", "surrogateescape")
                for word in data.split() if data[:1] in b"'\"" else words(data):
                    group[side][word] += sign * count
    return all(
        {word: count for word, count in one.items() if count and word != b","}
        == {word: count for word, count in other.items() if count and word != b","}
        for _, (one, other) in groups
    )


def _bindings(statements: Sequence[Statement]) -> Iterator[tuple[str, str]]:
    """What is defined, imported or listed by name, with its scope."""
    for statement in statements:
        node = statement.node
        if isinstance(node, Definition):
            scope = statement.scope.rpartition(".")[0]
            # An accessor of a property, an overload, a dispatch variant bears the same name.
            if not node.decorator_list:
                yield scope, f"'def {node.name}'"
            parts: list[ast.AST] = [node.args] if not isinstance(node, ast.ClassDef) else []
        else:
            parts = list(_shallow(node))
        if isinstance(node, (ast.Import, ast.ImportFrom)) and not statement.chain:
            for alias in node.names:
                yield statement.scope, f"'import {alias.asname or alias.name}'"
        for part in parts:
            for inner in ast.walk(part):
                if isinstance(inner, ast.Dict):
                    keys = Counter(
                        ast.unparse(k) for k in inner.keys if isinstance(k, ast.Constant)
                    )
                    for key, count in keys.items():
                        if count > 1:
                            yield from ((statement.scope, f"the key {key}"),) * count
                elif isinstance(inner, (ast.List, ast.Set, ast.Tuple)):
                    items = Counter(
                        ast.unparse(e)
                        for e in inner.elts
                        if isinstance(e, ast.Constant) and isinstance(e.value, str)
                    )
                    for key, count in items.items():
                        if count > 1:
                            yield from ((statement.scope, f"the entry {key}"),) * count


def _shallow(node: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without the statements in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield child


# -- names --------------------------------------------------------------------------------


class _Names:
    """Which names a file binds where."""

    def __init__(self, source: Source) -> None:
        assert source.tree is not None
        self.source = source
        self.bound: dict[str, set[str]] = {MODULE: set()}
        self.attributes: set[str] = set()
        self.defs: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        starts = {
            (scope.start, name.rpartition(".")[2].partition("#")[0]): name
            for name, scope in source.scopes.items()
        }
        self._walk(source.tree, starts)

    def _walk(self, tree: ast.AST, starts: Mapping[tuple[int, str], str]) -> None:
        work: list[tuple[ast.AST, str]] = [(tree, MODULE)]
        while work:
            node, scope = work.pop()
            for child in ast.iter_child_nodes(node):
                inner = scope
                if isinstance(child, Definition):
                    start = min([child.lineno, *(d.lineno for d in child.decorator_list)]) - 1
                    inner = starts.get((start, child.name), scope)
                    self.bound.setdefault(inner, set())
                    self.attributes.add(child.name)
                    if not isinstance(child, ast.ClassDef):
                        self.defs.setdefault(child.name, []).append(child)
                elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                    self.attributes.add(child.attr)
                elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    self.attributes.add(child.id)
                self.bound[scope].update(_binds(child))
                work.append((child, inner))

    def binds(self, scope: str, name: str) -> bool:
        """Whether a name means something in a scope."""
        if (
            "*" in self.bound[MODULE]
            or hasattr(builtins, name)
            or name in ("__file__", "__class__")
        ):
            return True
        while True:
            if name in self.bound.get(scope, ()):
                return True
            if scope == MODULE:
                return False
            found = self.source.scopes.get(scope)
            scope = MODULE if found is None else found.parent


def _binds(node: ast.AST) -> Iterator[str]:
    """The names that a node itself binds in the scope it stands in."""
    if isinstance(node, Definition):
        yield node.name
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from node.names
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name


def _loads(node: ast.stmt) -> set[str]:
    return {
        inner.id
        for part in _parts(node)
        for inner in ast.walk(part)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
    }


def _own_attributes(node: ast.stmt) -> set[str]:
    return {
        inner.attr
        for part in _parts(node)
        for inner in ast.walk(part)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Load)
        and isinstance(inner.value, ast.Name)
        and inner.value.id in ("self", "cls")
    }


def _parts(node: ast.stmt) -> list[ast.AST]:
    if isinstance(node, ast.ClassDef):
        return [*node.bases, *node.keywords, *node.decorator_list]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.args, *node.decorator_list, *([node.returns] if node.returns else [])]
    return list(_shallow(node))


def _calls(node: ast.stmt, there: _Names, here: _Names) -> Iterator[tuple[str, str]]:
    """Calls of a def of the same file with a keyword that it does not take any more."""
    for part in _parts(node):
        for call in ast.walk(part):
            if not isinstance(call, ast.Call):
                continue
            name = (
                call.func.id
                if isinstance(call.func, ast.Name)
                else call.func.attr
                if isinstance(call.func, ast.Attribute)
                and isinstance(call.func.value, ast.Name)
                and call.func.value.id in ("self", "cls")
                else None
            )
            now, before = there.defs.get(name or "", ()), here.defs.get(name or "", ())
            if len(now) != 1 or len(before) != 1:
                continue
            for keyword in call.keywords:
                word = keyword.arg
                if word and not _takes(now[0], word) and _takes(before[0], word):
                    yield f"{name}({word})", f"{name}() takes no {word} there"


def _takes(node: ast.FunctionDef | ast.AsyncFunctionDef, keyword: str) -> bool:
    args = node.args
    return args.kwarg is not None or any(
        arg.arg == keyword for arg in (*args.args, *args.kwonlyargs)
    )


def _imported(node: ast.Import | ast.ImportFrom, path: str) -> Iterator[tuple[str, str]]:
    """(module, name in it) of an import in the file ``path``; the name is empty for all."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
        return
    module = node.module or ""
    if node.level:
        parts = path.split("/")[:-1]
        parts = parts[: len(parts) - (node.level - 1)]
        module = ".".join([*parts, *([module] if module else [])])
    yield from ((module, "" if alias.name == "*" else alias.name) for alias in node.names)


def _has(exports: Exports, module: str, name: str) -> bool | None:
    found = exports(module)
    if found is None:
        return None
    return not name or name in found or "*" in found or exports(f"{module}.{name}") is not None


# -- any text -----------------------------------------------------------------------------


def _lines_doubled(sides: Sides) -> list[Problem]:
    """A line that ours and theirs each added to base stands in the result once, not twice."""
    sources = (sides.base, sides.ours, sides.theirs, sides.merged)
    found = []
    for source in sources:
        known = source.names(sides.renames if source in sources[2:] else {})
        found.append(
            Counter(
                (_stem(known[owner]) if source.python else "", line.strip())
                for owner, line in zip(source.owners, source.lines, strict=True)
            )
        )
    base, ours, theirs, merged = (
        Counter({key: count for key, count in lines.items() if _distinctive(key[1])})
        for lines in found
    )
    doubled: dict[str, list[bytes]] = {}
    added: Counter[str] = Counter()
    for key, count in (ours - base).items():
        scope, line = key
        added[scope] += count
        if theirs[key] > base[key] and merged[key] > max(ours[key], theirs[key]):
            if base[key] and line.endswith((b"(", b"[", b"{")) and _apart(scope, *found[:3]):
                continue
            doubled.setdefault(scope, []).append(line)
    # A line or two of many may be the same by chance; of a change that upstream made in its
    # own words, most are.
    return [
        Problem("doubled", f"both sides add it{_in(scope)}: {_short(_readable(lines[0]))}")
        for scope, lines in doubled.items()
        if len(lines) * 2 >= added[scope]
    ]


_Lines = Counter[tuple[str, bytes]]


def _apart(scope: str, base: _Lines, ours: _Lines, theirs: _Lines) -> bool:
    """Whether what ours and theirs each add to a scope is about other things: both have words
    that are new there, and none in common."""

    def said(lines: _Lines) -> set[bytes]:
        return {w for s, line in lines if s == scope for w in re.findall(rb"[A-Za-z_]\w*", line)}

    known = said(base)
    mine, yours = said(ours - base) - known, said(theirs - base) - known
    return bool(mine and yours) and not mine & yours


def _readable(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _stem(name: str) -> str:
    """The name of a def without the number that tells it from another one of its name."""
    return name.rpartition("#")[0] if "#" in name.rpartition(".")[2] else name


def _c_doubled(sides: Sides) -> list[Problem]:
    """No function or type of C is there more often than in ours and in theirs."""
    ours, theirs, merged = (
        Counter(map(_stem, source.scopes)) for source in (sides.ours, sides.theirs, sides.merged)
    )
    return [
        Problem("doubled", f"{name} is defined twice")
        for name, count in merged.items()
        if count > max(ours[name], theirs[name])
    ]


def _distinctive(line: bytes) -> bool:
    text = line.strip()
    return (
        len(text) >= 16 and len([w for w in words(text) if w[:1].isalpha() or w[:1] == b"_"]) >= 2
    )


def _balance(sides: Sides) -> list[Problem]:
    """Brackets: the merge adds to theirs what ours added to base."""
    for one, other in _BRACKETS:
        change = [
            source.data.count(one) - source.data.count(other)
            for source in (sides.base, sides.ours, sides.theirs, sides.merged)
        ]
        if change[3] != change[2] and change[3] - change[2] != change[1] - change[0]:
            text = f"{one.decode()} and {other.decode()} do not balance as before"
            return [Problem("syntax", text)]
    return []


def _data(sides: Sides) -> list[Problem]:
    """JSON and TOML must read, and no key of an object stand twice."""
    path = sides.merged.path
    try:
        if path.endswith(".json"):
            json.loads(sides.merged.data, object_pairs_hook=_once)
        elif path.endswith(".toml"):
            import tomli

            tomli.loads(sides.merged.data.decode())
    except (ValueError, RecursionError) as error:
        return [Problem("syntax", f"the merged file does not read: {error}")]
    return []


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(k for k, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"the key {twice!r} comes twice")
    return found


def _in(scope: str) -> str:
    return f" in {scope}" if scope else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:77] + "..."
