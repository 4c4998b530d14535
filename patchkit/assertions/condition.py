"""``condition``: what a boolean expression of the code yields, for values that are given.

Owns the search for the expression.  Nothing of the code is run: what is neither given nor
constant nor a name for such a thing is unknown, and unknown is not what was expected.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from patchkit.assertions.evaluator import Evaluator
from patchkit.assertions.expressions import ancestors, operands, same, shown, walk
from patchkit.assertions.scopes import Module, Scope, Site
from patchkit.assertions.source import Unreadable
from patchkit.model import Condition, Finding
from patchkit.syntax import parse

_WHOLE = 10_000  # characters: enough for any expression that a person wrote


@dataclass(frozen=True, slots=True)
class _Place:
    """One occurrence of the expression; ``idle`` says why it decides nothing."""

    line: int
    scope: Scope
    idle: str = ""


def judge(wanted: Condition, module: Module, within: str | None) -> Finding:
    """The verdict: the expression stands in scope, and yields what is expected wherever it
    does.  A definition of ``within`` without it has no say.  Raises :class:`Unreadable`.
    """
    test = _expression(wanted.test, "the test")
    given = [(_expression(text, "a key of given"), value) for text, value in wanted.given]
    known = Evaluator(module, given)
    spans = module.spans(within)
    sites = module.sites_in(spans)
    places = [place for site in sites for place in _places(test, site, module, known)]
    deciding = [place for place in places if not place.idle]
    if not deciding:
        where = f"no code in {within or 'the file'} decides by"
        if places:
            line, idle = places[0].line, places[0].idle
            return Finding(False, f"{where} {shown(test)}: on line {line} it {idle}", line)
        return _not_found(test, sites, where, spans[0].first)
    for place in deciding:
        problem = _problem(test, known, place.scope, expected=wanted.expected)
        if problem is not None:
            return Finding(False, f"{shown(test)} on line {place.line} {problem}", place.line)
    return Finding(True, f"{shown(test)} is {_word(wanted.expected)}", deciding[0].line)


def _expression(text: str, what: str) -> ast.expr:
    """A Python expression of a manifest, which may be on several lines."""
    try:
        if not text.strip():
            raise SyntaxError("it is empty")
        tree = parse(f"({text}\n)", "eval")
        assert isinstance(tree, ast.Expression)
        return tree.body
    except (SyntaxError, ValueError, MemoryError) as error:
        reason = getattr(error, "msg", None) or error
        raise Unreadable(f"{what} is no Python expression: {text!r}: {reason}") from None


def _problem(test: ast.expr, known: Evaluator, scope: Scope, *, expected: bool) -> str | None:
    for name in known.undefined(test, scope):
        return f"fails when it is run: undefined name {name}"
    value = known.value(test, scope)
    if value.truth is expected:
        return None
    if value.truth is None:
        why = ", ".join(value.why[:5]) + (", …" if len(value.why) > 5 else "")
        return f"cannot be judged, expected {_word(expected)}: unknown: {why}"
    parts = operands(test) if isinstance(test, ast.BoolOp) else []
    seen = [f"{shown(part, 40)} is {_word(known.value(part, scope).truth)}" for part in parts]
    detail = f": {', '.join(seen)}" if seen else ""
    return f"is {_word(value.truth)}, expected {_word(expected)}{detail}"


def _word(truth: object) -> str:
    return "unknown" if truth is None else str(truth).lower()


def _places(test: ast.expr, site: Site, module: Module, known: Evaluator) -> Iterator[_Place]:
    """Where ``test`` stands in one expression, and whether it decides anything there."""
    for node, scope in walk(site.expr, site.scope):
        found = _found_in(test, node)
        if found is not None:
            line, beside = found
            yield _Place(line, scope, _idle(node, beside, site, scope, module, known))


def _found_in(test: ast.expr, node: ast.expr) -> tuple[int, list[ast.expr]] | None:
    """The line where ``node`` is ``test``, or has it as neighbouring operands; and the
    operands beside it."""
    if not (isinstance(node, ast.BoolOp) and isinstance(test, ast.BoolOp)):
        return (node.lineno, []) if same(node, test) else None
    parts, wanted = operands(node), operands(test)
    for at in range(len(parts) - len(wanted) + 1):
        end = at + len(wanted)
        if type(node.op) is type(test.op) and same(parts[at:end], wanted):
            return parts[at].lineno, parts[:at] + parts[end:]
    return None


def _idle(
    node: ast.expr,
    beside: list[ast.expr],
    site: Site,
    scope: Scope,
    module: Module,
    known: Evaluator,
) -> str:
    """Why an occurrence decides nothing under what is given; empty if it may."""
    if not site.live:
        return "stands in dead code"
    if site.role in ("bare", "effect"):
        return "is part of a statement whose value is dropped"
    if site.role == "default":
        return "is part of a parameter's default"
    if _is_forgotten(site, module):
        return f"is assigned to {site.target}, which is never read"
    for guard, needed in site.guards:
        if known.constant(guard, site.scope).truth is (not needed):
            return f"is not reached, since {shown(guard)} is {_word(not needed)}"
    path = ancestors(site.expr, node)
    assert path is not None
    if any(
        type(above).__name__ in ("arguments", "JoinedStr", "TemplateStr") for above in path[:-1]
    ):
        return "is part of a default or of an f-string"
    for above, below in zip(path, [*path[1:], None], strict=True):
        if isinstance(above, ast.BoolOp):
            others = beside if below is None else [v for v in above.values if v is not below]
            for other in others:
                if known.value(other, scope).truth is isinstance(above.op, ast.Or):
                    return f"makes no difference beside {shown(other)}"
        elif isinstance(above, ast.IfExp) and below in (above.body, above.orelse):
            chosen = known.value(above.test, scope).truth
            if chosen is (below is above.orelse):
                return f"makes no difference under {shown(above.test)}"
    return ""


def _is_forgotten(site: Site, module: Module) -> bool:
    """Whether the value goes to a local name that no live code reads."""
    name, home = site.target, site.scope
    if name is None or home.kind != "function" or home.resolve(name) is not home:
        return False
    return not any(
        isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Load)
        and scope.resolve(name) is home
        for other in module.sites_in([home.span])
        if other.live and other is not site
        for node, scope in walk(other.expr, other.scope)
    )


def _not_found(test: ast.expr, sites: list[Site], where: str, line: int) -> Finding:
    """The verdict when ``test`` is nowhere: with the boolean expression of live code that
    is most like it."""
    lines: dict[str, int] = {}
    for site in sites:
        if site.live and site.role == "value":
            for node, _ in walk(site.expr, site.scope):
                if isinstance(node, (ast.BoolOp, ast.Compare)) or (
                    isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
                ):
                    lines.setdefault(shown(node, _WHOLE), node.lineno)
    wanted = shown(test, _WHOLE)
    for found in difflib.get_close_matches(wanted, lines, n=1, cutoff=0.3):
        expected, near = _from_difference(wanted, found), _from_difference(found, wanted)
        message = f"{where} {expected}; the nearest is {near} on line {lines[found]}"
        return Finding(False, message, lines[found])
    return Finding(False, f"{where} {shown(test)}", line)


def _from_difference(text: str, other: str, limit: int = 120) -> str:
    """``text``, or if it is long the part of it that is not as in ``other``."""
    pairs = zip(text, other, strict=False)
    differs = next((at for at, (a, b) in enumerate(pairs) if a != b), len(other))
    start = max(0, differs - 40) if len(text) > limit else 0
    end = start + limit
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
