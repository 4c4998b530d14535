"""Three-valued evaluation of Python expressions without running anything.

Kleene's logic: ``False and unknown`` is false, ``True or unknown`` is true, all else that
has an unknown in it is unknown.  Names are followed through module-level assignments.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from patchkit.assertions.expressions import same, shown, static_truth, walk
from patchkit.assertions.scopes import Binding, Module, Scope

_BUILTINS = frozenset(dir(builtins)) | {
    "__file__", "__builtins__", "__path__", "__annotations__", "__dict__", "__class__",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[..., object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: operator.contains(b, a),
    ast.NotIn: lambda a, b: not operator.contains(b, a),
}
_UNARY: dict[type[ast.unaryop], Callable[..., object]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_DISPLAY: dict[type[ast.expr], Callable[[list[object]], object]] = {
    ast.Tuple: tuple,
    ast.List: list,
    ast.Set: set,
}
_SINGLETONS = (None, True, False, ...)


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a value: all (``exact``), its truth, or nothing, and then ``why``:
    the parts that nothing is known of."""

    truth: bool | None
    exact: bool = False
    value: object = None
    why: tuple[str, ...] = ()


def _exactly(value: object) -> Value:
    return Value(bool(value), True, value)


def _unknown(*why: str) -> Value:
    return Value(None, why=tuple(dict.fromkeys(why)))


class Evaluator:
    """Evaluates the expressions of one module under given values.

    ``given`` pairs an expression with its value; it goes before anything else known.
    """

    def __init__(self, module: Module, given: Sequence[tuple[ast.expr, object]]) -> None:
        self.top = module.top
        self.given = given
        self._names: dict[str, Value] = {}
        self._open: set[str] = set()

    def is_given(self, node: ast.expr) -> bool:
        """Whether the value of this very expression is given."""
        return any(same(node, known) for known, _ in self.given)

    def undefined(self, expr: ast.expr, scope: Scope) -> Iterator[str]:
        """The names that ``expr`` reaches, also through assignments, and nothing binds.

        What is given is not looked into.  With a star import any name may be bound.
        """
        seen: set[str] = set()
        todo = [(expr, scope)]
        while todo:
            for node, at in walk(*todo.pop(), self.is_given):
                if not isinstance(node, ast.Name) or node.id in seen:
                    continue
                if at.resolve(node.id) is not self.top:
                    continue
                seen.add(node.id)
                bound = self.top.live(node.id)
                todo += [(b.value, self.top) for b in bound if b.value is not None]
                if not bound and node.id not in _BUILTINS and not self.top.live("*"):
                    yield node.id

    def constant(self, node: ast.expr, scope: Scope) -> Value:
        """What is known of ``node`` at any place and time: nothing, where it has a local
        name in it, which may mean something else there."""
        for part, at in walk(node, scope):
            if isinstance(part, ast.Name) and at.resolve(part.id) is not self.top:
                return _unknown(shown(node))
        return self.value(node, scope)

    def value(self, node: ast.expr, scope: Scope) -> Value:
        """What is known of the value of ``node`` in ``scope``."""
        for known, value in self.given:
            if same(node, known):
                return _exactly(value)
        if isinstance(node, ast.Constant):
            return _exactly(node.value)
        if isinstance(node, (ast.Name, ast.Attribute)) and static_truth(node) is False:
            return _exactly(False)
        if isinstance(node, ast.Name):
            return self._name(node.id, scope)
        if isinstance(node, ast.NamedExpr):
            return self.value(node.value, scope)
        if isinstance(node, ast.BoolOp):
            return self._bool_op(node, scope)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, scope)
        if isinstance(node, ast.IfExp):
            return self._if_exp(node, scope)
        if isinstance(node, ast.Compare):
            return self._compare(node, scope)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            parts = [self.value(element, scope) for element in node.elts]
            return _apply(lambda *items: _DISPLAY[type(node)](list(items)), parts, node)
        if isinstance(node, ast.Call) and self._is_bool(node, scope):
            value = self.value(node.args[0], scope)
            return value if value.truth is None else _exactly(value.truth)
        return _unknown(shown(node))

    def _is_bool(self, node: ast.Call, scope: Scope) -> bool:
        """Whether it is the built-in ``bool`` of one argument."""
        name, plain = node.func, len(node.args) == 1 and not node.keywords
        if not (isinstance(name, ast.Name) and name.id == "bool" and plain):
            return False
        return scope.resolve("bool") is self.top and not self.top.live("bool")

    def _name(self, name: str, scope: Scope) -> Value:
        home = scope.resolve(name)
        if home is not self.top:
            return _unknown(f"{name} (local to {home.name})")
        if name in self._open:
            return _unknown(f"{name} (assigned from itself)")
        if name not in self._names:
            self._open.add(name)
            self._names[name] = self._bound(name)
            self._open.discard(name)
        return self._names[name]

    def _bound(self, name: str) -> Value:
        bound = self.top.live(name)
        if not bound:
            return _unknown(name)
        for gone in self.top.deleted(name):
            return _unknown(f"{name} (deleted on line {gone.line})")
        values = [self._binding(b) for b in bound]
        first = values[0]
        if all(_alike(first, other) for other in values):
            return first
        if any(v.truth is None for v in values):
            return _unknown(*(why for v in values for why in v.why))
        if all(v.truth is first.truth for v in values):
            return Value(first.truth)
        lines = ", ".join(str(b.line) for b in bound)
        return _unknown(f"{name} (assigned differently on lines {lines})")

    def _binding(self, bound: Binding) -> Value:
        if bound.kind == "assign" and bound.value is not None:
            return self.value(bound.value, self.top)
        how = {"import": "imported", "def": "defined", "global": "rebound in a function"}
        return _unknown(f"{bound.name} ({how.get(bound.kind, 'bound')} on line {bound.line})")

    def _bool_op(self, node: ast.BoolOp, scope: Scope) -> Value:
        decisive = isinstance(node.op, ast.Or)
        why: list[str] = []
        value = Value(None)
        for operand in node.values:
            value = self.value(operand, scope)
            if value.truth is decisive:
                return Value(decisive) if why else value
            why += value.why
        return _unknown(*why) if why else value

    def _unary(self, node: ast.UnaryOp, scope: Scope) -> Value:
        value = self.value(node.operand, scope)
        if not isinstance(node.op, ast.Not):
            sign = _UNARY.get(type(node.op))
            return _apply(sign, [value], node) if sign else _unknown(shown(node))
        return value if value.truth is None else _exactly(not value.truth)

    def _if_exp(self, node: ast.IfExp, scope: Scope) -> Value:
        test = self.value(node.test, scope)
        if test.truth is not None:
            return self.value(node.body if test.truth else node.orelse, scope)
        arms = [self.value(node.body, scope), self.value(node.orelse, scope)]
        if _alike(*arms):
            return arms[0]
        if arms[0].truth is not None and arms[0].truth is arms[1].truth:
            return Value(arms[0].truth)
        return _unknown(*test.why)

    def _compare(self, node: ast.Compare, scope: Scope) -> Value:
        values = [self.value(part, scope) for part in (node.left, *node.comparators)]
        why: list[str] = []
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            if isinstance(op, (ast.Is, ast.IsNot)):
                result = _identity(op, left, right, node)
            else:
                result = _apply(_COMPARE[type(op)], [left, right], node)
            if result.truth is False:
                return Value(False) if why else result
            why += result.why
        return _unknown(*why) if why else _exactly(True)


def _alike(a: Value, b: Value) -> bool:
    return a.exact and b.exact and type(a.value) is type(b.value) and a.value == b.value


def _apply(function: Callable[..., object], parts: list[Value], node: ast.expr) -> Value:
    """The result of a pure function of exact values; unknown if it raises."""
    if not all(part.exact for part in parts):
        return _unknown(*([why for p in parts for why in p.why] or [shown(node)]))
    try:
        return _exactly(function(*(part.value for part in parts)))
    except Exception:  # noqa: BLE001 - whatever values of a manifest can raise
        return _unknown(shown(node))


def _identity(op: ast.cmpop, left: Value, right: Value, node: ast.expr) -> Value:
    """``is`` and ``is not``, which mean something for None, booleans and ``...`` alone."""
    for part, other in ((left, right), (right, left)):
        if part.exact and any(part.value is single for single in _SINGLETONS):
            if other.exact:
                return _exactly((left.value is right.value) is isinstance(op, ast.Is))
            return _unknown(*(other.why or (shown(node),)))
    return _unknown(*(left.why + right.why or (shown(node),)))
