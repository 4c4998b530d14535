"""``literal``: what a list, tuple, set or dict display holds.

Must not evaluate more than constants: an element that is not one is unknown, and ignored.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from patchkit.assertions.expressions import shown, walk
from patchkit.assertions.scopes import Binding, Module
from patchkit.assertions.source import nearest
from patchkit.model import Finding, Literal_

_WRAPPERS = frozenset({"list", "tuple", "set", "frozenset", "dict"})
_SILENT = frozenset({"annotation", "del", "except"})  # they bind no value


class _Unknown:
    """An element that is no constant."""

    def __repr__(self) -> str:
        return "…"


_UNKNOWN = _Unknown()


def judge(wanted: Literal_, module: Module, within: str | None) -> Finding:
    """The verdict: every display bound to the name in scope holds every wanted element.

    A definition of ``within`` that does not bind the name has no say; what happens to the
    value later (``append``, ``[key] = …``) is not followed.  Raises :class:`Unreadable`.
    """
    spans = module.spans(within)
    bound = [b for b in module.bound if b.live and any(s.holds(b.line) for s in spans)]
    bound += _keywords(module, within)
    found = [
        b
        for b in bound
        if b.name == wanted.name
        and b.kind not in _SILENT
        and not (b.kind == "param" and b.value is None)
    ]
    found.sort(key=lambda b: b.line)
    where = f"in {within}" if within else "in the file"
    if not found:
        hint = nearest(wanted.name, {b.name for b in bound})
        return Finding(False, f"nothing is bound to {wanted.name} {where}{hint}", spans[0].first)
    for binding in found:
        problem = _problem(wanted, binding)
        if problem is not None:
            return Finding(False, problem, binding.line)
    return Finding(True, f"{wanted.name} holds {_list(wanted.has)}", found[0].line)


def _keywords(module: Module, within: str | None) -> list[Binding]:
    """The keyword arguments of the calls in scope, as bindings."""
    out: list[Binding] = []
    for site in module.sites_in(module.spans(within)):
        if site.live:
            for node, _ in walk(site.expr, site.scope):
                if isinstance(node, ast.Call):
                    out += [
                        Binding(k.arg, "assign", k.value.lineno, True, k.value)
                        for k in node.keywords
                        if k.arg is not None
                    ]
    return out


def _problem(wanted: Literal_, binding: Binding) -> str | None:
    held = None if binding.value is None else elements(binding.value)
    if held is None:
        what = "something else" if binding.value is None else shown(binding.value)
        return (
            f"expected a list, tuple, set or dict display for {wanted.name} on line "
            f"{binding.line}, found {what}"
        )
    missing = [item for item in wanted.has if not any(_equal(item, e) for e in held)]
    if not missing:
        return None
    known = [e for e in held if e is not _UNKNOWN]
    return (
        f"{wanted.name} on line {binding.line} does not hold {_list(missing)}: "
        f"it holds {_list(known) if known else 'no constants'}"
    )


def elements(node: ast.expr) -> list[object] | None:
    """The elements of a display, the keys of a dict; None if it is no display."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _WRAPPERS
        and len(node.args) == 1
        and not node.keywords
    ):
        node = node.args[0]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_constant(element) for element in node.elts]
    if isinstance(node, ast.Dict):
        return [_UNKNOWN if key is None else _constant(key) for key in node.keys]
    return None


def _constant(node: ast.expr) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return -value if isinstance(value, (int, float)) and type(value) is not bool else _UNKNOWN
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_constant(element) for element in node.elts]
    return _UNKNOWN


def _equal(a: object, b: object) -> bool:
    """Equal in value and type, so that 12 is not "12" and True is not 1.  A list stands for
    a tuple too, which TOML does not have."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return type(a) is type(b) and a == b


def _list(items: Sequence[object]) -> str:
    shown_items = [repr(item) for item in items if item is not _UNKNOWN]
    more = ["…"] if len(shown_items) > 20 else []
    return ", ".join(shown_items[:20] + more)
