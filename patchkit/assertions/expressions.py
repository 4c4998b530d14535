"""Python expressions by their structure: compare, show, walk.

Owns what can be said of an expression without knowing a single value.  Must not evaluate.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from patchkit.assertions.scopes import Binding, Scope


def static_truth(node: ast.expr) -> bool | None:
    """The truth of an expression that is the same in every run, or None.

    ``TYPE_CHECKING`` is false: the code under it never runs.
    """
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = node.id if isinstance(node, ast.Name) else node.attr
        return False if name == "TYPE_CHECKING" else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        truth = static_truth(node.operand)
        return None if truth is None else not truth
    if isinstance(node, ast.BoolOp):
        truths = [static_truth(value) for value in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in truths:
            return decisive
        return None if None in truths else not decisive
    return None


def operands(node: ast.BoolOp) -> list[ast.expr]:
    """The operands from left to right, with ``(a or b) or c`` taken as ``a or b or c``."""
    out: list[ast.expr] = []
    for value in node.values:
        if isinstance(value, ast.BoolOp) and type(value.op) is type(node.op):
            out += operands(value)
        else:
            out.append(value)
    return out


def same(a: object, b: object) -> bool:
    """Whether two syntax trees are the same but for positions, contexts and ``u`` prefixes."""
    if type(a) is not type(b):
        return False
    if isinstance(a, ast.BoolOp) and isinstance(b, ast.BoolOp):
        return type(a.op) is type(b.op) and same(operands(a), operands(b))
    if isinstance(a, ast.AST):
        fields = [name for name in a._fields if name not in ("ctx", "kind")]
        return all(same(getattr(a, name, None), getattr(b, name, None)) for name in fields)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def shown(node: ast.AST, limit: int = 120) -> str:
    """The source of an expression on one line, for a message."""
    try:
        text = ast.unparse(node)
    except (ValueError, RecursionError):  # an f-string, a huge number: see ast.unparse
        return f"<the expression on line {getattr(node, 'lineno', '?')}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def dotted(node: ast.expr) -> str | None:
    """``a.b.c`` for such a chain of attributes, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


_Walked = Iterator[tuple[ast.expr, Scope]]


def walk(
    expr: ast.expr, scope: Scope, stop: Callable[[ast.expr], bool] = lambda node: False
) -> _Walked:
    """Every sub-expression that can run, in source order, with the scope that it runs in.

    Left out is what no run reaches, as ``x`` in ``False and x``.  ``stop`` leaves out an
    expression with all its parts.
    """
    todo = [(expr, scope)]
    while todo:
        node, at = todo.pop()
        if not stop(node):
            yield node, at
            todo.extend(reversed(list(_parts(node, at))))


def _parts(node: ast.expr, scope: Scope) -> _Walked:
    """The direct sub-expressions of ``node`` as :func:`walk` takes them."""
    if isinstance(node, ast.Lambda):
        yield from _lambda_parts(node, scope)
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        yield from _comprehension_parts(node, scope)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield value, scope
            if static_truth(value) is isinstance(node.op, ast.Or):
                break
    elif isinstance(node, ast.IfExp):
        truth = static_truth(node.test)
        yield node.test, scope
        if truth is not False:
            yield node.body, scope
        if truth is not True:
            yield node.orelse, scope
    else:
        for child in ast.iter_child_nodes(node):
            part = child.value if isinstance(child, ast.keyword) else child
            if isinstance(part, ast.expr):
                yield part, scope


def ancestors(root: ast.AST, node: ast.AST) -> list[ast.AST] | None:
    """The nodes from ``root`` down to ``node``, both included; None if it is not in there."""
    if root is node:
        return [node]
    for child in ast.iter_child_nodes(root):
        below = ancestors(child, node)
        if below is not None:
            return [root, *below]
    return None


def _lambda_parts(node: ast.Lambda, scope: Scope) -> _Walked:
    inner = Scope("function", "a lambda", scope, scope.span)
    for arg, _ in parameters(node.args):
        inner.bindings[arg.arg] = [Binding(arg.arg, "param", node.lineno, True)]
    yield from ((d, scope) for _, d in parameters(node.args) if d is not None)
    yield node.body, inner


def _comprehension_parts(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: Scope
) -> _Walked:
    inner = Scope("function", "a comprehension", scope, scope.span)
    for clause in node.generators:
        for child in ast.walk(clause.target):
            if isinstance(child, ast.Name):
                inner.bindings[child.id] = [Binding(child.id, "other", node.lineno, True)]
    if isinstance(node, ast.DictComp):
        yield node.key, inner
        yield node.value, inner
    else:
        yield node.elt, inner
    for number, clause in enumerate(node.generators):
        yield clause.iter, inner if number else scope
        yield from ((test, inner) for test in clause.ifs)


def parameters(args: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """Every parameter with its default."""
    plain = args.posonlyargs + args.args
    bare: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults))
    out = list(zip(plain, bare + list(args.defaults), strict=True))
    out += zip(args.kwonlyargs, args.kw_defaults, strict=True)
    out += [(arg, None) for arg in (args.vararg, args.kwarg) if arg is not None]
    return out
