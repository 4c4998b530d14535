"""The one walk over a module's statements that the assertions on Python share.

Owns parsing, and which code is dead: what follows a statement that never falls through, and
what is under ``if False``, ``if 0``, ``if TYPE_CHECKING``, ``while False``.  Must not
evaluate.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Literal

from patchkit.assertions.expressions import dotted, parameters, static_truth
from patchkit.assertions.scopes import (
    Binding,
    Guard,
    Kind,
    Module,
    Origin,
    Role,
    Scope,
    Site,
    Span,
)
from patchkit.assertions.source import Unreadable, check_size, python_text
from patchkit.syntax import parse as parse_source


def parse(data: bytes) -> tuple[str, ast.Module]:
    """Text and tree of a Python file.  Raises :class:`Unreadable`."""
    text = python_text(data)
    try:
        tree = parse_source(text)
        assert isinstance(tree, ast.Module)
        return text, tree
    except SyntaxError as error:
        where = "" if error.lineno is None else f" (line {error.lineno})"
        raise Unreadable(f"cannot be parsed as Python: {error.msg}{where}", error.lineno) from None
    except (RecursionError, MemoryError):
        raise Unreadable("cannot be parsed as Python: nested too deeply") from None
    except ValueError as error:  # characters that no encoding has
        raise Unreadable(f"cannot be parsed as Python: {error}") from None


class _Indexer(ast.NodeVisitor):
    """Fills one :class:`Module`.  The ``visit_`` methods of statements say whether the
    statement after it can be reached."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        lines = Span(1, text.count("\n") + 1)
        self.scope = Scope("module", "the module", None, lines)
        self.module = Module(self.scope)
        self.walrus = ":=" in text
        self.live = True
        self.guards: tuple[Guard, ...] = ()
        self.path: tuple[str, ...] = ()
        self.breaks: list[bool] = []
        self.block(tree.body)

    # Code that runs or does not.

    def block(
        self, body: list[ast.stmt], *, possible: bool = True, guard: tuple[Guard, ...] = ()
    ) -> bool:
        """Visit statements in turn; whether the end of them can be reached."""
        before = self.live, self.guards
        self.live = self.live and possible
        self.guards += guard
        for statement in body:
            self.live = self.visit(statement) and self.live
        reached = self.live
        self.live, self.guards = before
        return reached

    def site(self, expr: ast.expr | None, role: Role = "value", target: str | None = None) -> None:
        """Record an expression that a statement holds."""
        if expr is None:
            return
        self.module.sites.append(Site(expr, self.scope, role, self.live, target, self.guards))
        if self.walrus:
            for node in ast.walk(expr):
                if isinstance(node, ast.NamedExpr):
                    self.bind(node.target.id, "assign", node, node.value)

    def generic_visit(self, node: ast.AST) -> bool:
        """``pass``, and what a later Python brings."""
        return True

    # Names.

    def bind(
        self,
        name: str,
        kind: Kind,
        node: ast.AST,
        value: ast.expr | None = None,
        origin: Origin | None = None,
    ) -> None:
        """Record that the present scope binds a plain name."""
        scope = self.scope
        if name in scope.global_names and scope is not self.module.top:
            scope, kind = self.module.top, "global"
        elif name in scope.nonlocal_names:
            while scope.parent is not None and (scope is self.scope or scope.kind == "class"):
                scope = scope.parent
        bound = Binding(name, kind, getattr(node, "lineno", 1), self.live, value, origin)
        scope.bindings.setdefault(name, []).append(bound)
        self.module.bound.append(bound)

    def target(self, node: ast.expr, kind: Kind, value: ast.expr | None = None) -> None:
        """Record what an assignment, loop, ``with`` or ``del`` does to its target."""
        if isinstance(node, ast.Name):
            self.bind(node.id, kind, node, value)
        elif isinstance(node, ast.Starred):
            self.target(node.value, "other")
        elif isinstance(node, (ast.Tuple, ast.List)):
            values: list[ast.expr | None] = [None] * len(node.elts)
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(node.elts):
                starred = any(isinstance(e, ast.Starred) for e in (*node.elts, *value.elts))
                values = values if starred else list(value.elts)
            for element, its in zip(node.elts, values, strict=True):
                self.target(element, kind, its)
        else:
            name = dotted(node)
            if name is not None:
                self.module.bound.append(Binding(name, kind, node.lineno, self.live, value))
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    self.site(part)

    def visit_Assign(self, node: ast.Assign) -> bool:
        first = node.targets[0]
        alone = first.id if len(node.targets) == 1 and isinstance(first, ast.Name) else None
        self.site(node.value, target=alone)
        for target in node.targets:
            self.target(target, "assign", node.value)
        return True

    def visit_AnnAssign(self, node: ast.AnnAssign) -> bool:
        name = node.target.id if isinstance(node.target, ast.Name) else None
        self.site(node.value, target=name)
        self.target(node.target, "annotation" if node.value is None else "assign", node.value)
        return True

    def visit_AugAssign(self, node: ast.AugAssign) -> bool:
        self.site(node.value)
        self.target(node.target, "other")
        return True

    def visit_TypeAlias(self, node: ast.AST) -> bool:
        self.target(node.name, "other")  # type: ignore[attr-defined]
        return True

    def visit_Delete(self, node: ast.Delete) -> bool:
        for target in node.targets:
            self.target(target, "del")
        return True

    def visit_Global(self, node: ast.Global) -> bool:
        self.scope.global_names.update(node.names)
        return True

    def visit_Nonlocal(self, node: ast.Nonlocal) -> bool:
        self.scope.nonlocal_names.update(node.names)
        return True

    def visit_Import(self, node: ast.Import) -> bool:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.bind(name, "import", node, origin=Origin(0, alias.name, None))
        return True

    def visit_ImportFrom(self, node: ast.ImportFrom) -> bool:
        for alias in node.names:
            origin = Origin(node.level, node.module or "", alias.name)
            kind: Kind = "star" if alias.name == "*" else "import"
            self.bind(alias.asname or alias.name, kind, node, origin=origin)
        return True

    # Definitions.

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        self.bind(node.name, "def", node)
        for expr in node.decorator_list:
            self.site(expr)
        for _, default in parameters(node.args):
            self.site(default, "default")
        with self.inside(node, "function"):
            for arg, default in parameters(node.args):
                self.bind(arg.arg, "param", arg, default)
            self.block(node.body)
        return True

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> bool:
        self.bind(node.name, "def", node)
        for expr in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.site(expr)
        with self.inside(node, "class"):
            self.block(node.body)
        return True

    @contextmanager
    def inside(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
        kind: Literal["function", "class"],
    ) -> Iterator[None]:
        """Enter the scope of a def or class, and record where it stands."""
        before = self.scope, self.path, self.breaks
        self.path, self.breaks = (*self.path, node.name), []
        name = ".".join(self.path)
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        span = Span(first, node.end_lineno or node.lineno, name)
        self.module.definitions.setdefault(name, []).append(span)
        params = getattr(node, "type_params", ())
        if params:  # in a scope of their own, see PEP 695
            self.scope = Scope("function", name, self.scope, span)
            for param in params:
                self.bind(param.name, "other", param)
        self.scope = Scope(kind, name, self.scope, span)
        yield
        self.scope, self.path, self.breaks = before

    # Statements that only hold expressions.

    def visit_Expr(self, node: ast.Expr) -> bool:
        acts = isinstance(node.value, (ast.Call, ast.Await, ast.Yield, ast.YieldFrom))
        self.site(node.value, "effect" if acts else "bare")
        return True

    def visit_Assert(self, node: ast.Assert) -> bool:
        self.site(node.test)
        self.site(node.msg)
        return True

    def visit_Return(self, node: ast.Return) -> bool:
        self.site(node.value)
        return False

    def visit_Raise(self, node: ast.Raise) -> bool:
        self.site(node.exc)
        self.site(node.cause)
        return False

    def visit_Continue(self, node: ast.Continue) -> bool:
        return False

    def visit_Break(self, node: ast.Break) -> bool:
        if self.breaks and self.live:
            self.breaks[-1] = True
        return False

    # Statements that hold statements.

    def visit_If(self, node: ast.If) -> bool:
        before = self.live, self.guards
        tests: list[ast.expr] = []
        reached: list[bool] = []
        while True:  # not one call for each: a chain of elif can be longer than the stack
            self.site(node.test)
            truth = static_truth(node.test)
            tests.append(node.test)
            guard = ((node.test, True),)
            reached.append(self.block(node.body, possible=truth is not False, guard=guard))
            self.live = self.live and truth is not True
            self.guards += ((node.test, False),)
            if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
                break
            node = node.orelse[0]
        reached.append(self.block(node.orelse))
        self.live, self.guards = before
        # Behind the branches that leave, their tests were false; behind the only branch that
        # does not leave, its test was true.
        first = reached.index(True) if True in reached else len(tests)
        self.guards += tuple((test, False) for test in tests[:first])
        if first < len(tests) and not any(reached[first + 1 :]):
            self.guards += ((tests[first], True),)
        return any(reached)

    def visit_While(self, node: ast.While) -> bool:
        self.site(node.test)
        truth = static_truth(node.test)
        guard = ((node.test, True),)
        broken = self.loop(node.body, possible=truth is not False, guard=guard)
        return self.block(node.orelse, possible=truth is not True) or broken

    def visit_For(self, node: ast.For | ast.AsyncFor) -> bool:
        self.site(node.iter)
        self.target(node.target, "other")
        broken = self.loop(node.body)
        return self.block(node.orelse) or broken

    visit_AsyncFor = visit_For  # noqa: N815

    def loop(
        self, body: list[ast.stmt], *, possible: bool = True, guard: tuple[Guard, ...] = ()
    ) -> bool:
        """Visit the body of a loop; whether a ``break`` can leave it."""
        self.breaks.append(False)
        self.block(body, possible=possible, guard=guard)
        return self.breaks.pop()

    def visit_With(self, node: ast.With | ast.AsyncWith) -> bool:
        for item in node.items:
            self.site(item.context_expr)
            if item.optional_vars is not None:
                self.target(item.optional_vars, "other")
        self.block(node.body)
        return True  # it may have swallowed the exception that the body ends with

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_Try(self, node: ast.Try) -> bool:
        through = self.block(node.orelse, possible=self.block(node.body))
        for handler in node.handlers:
            self.site(handler.type)
            if handler.name is not None:
                self.bind(handler.name, "except", handler)
            through = self.block(handler.body) or through
        return self.block(node.finalbody) and through

    visit_TryStar = visit_Try  # noqa: N815

    def visit_Match(self, node: ast.Match) -> bool:
        self.site(node.subject)
        for case in node.cases:
            for part in ast.walk(case.pattern):
                name = getattr(part, "rest" if isinstance(part, ast.MatchMapping) else "name", None)
                if isinstance(name, str):
                    self.bind(name, "other", part)
                if isinstance(part, ast.MatchClass):
                    self.site(part.cls)
                elif isinstance(part, ast.MatchValue):
                    self.site(part.value)
            self.site(case.guard)
            self.block(case.body)
        return True


def _index(data: bytes) -> Module | Unreadable:
    try:
        return _Indexer(*parse(data)).module
    except Unreadable as error:
        return error.with_traceback(None)
    except RecursionError:
        return Unreadable("cannot be judged: nested too deeply")


_kept_index = lru_cache(maxsize=16)(_index)


def indexed(data: bytes) -> Module:
    """The index of a Python file, kept for the next assertion on the same bytes (a tree takes
    up to 600 times the bytes of its source, so that of a large file is not kept).

    Raises :class:`Unreadable` where it cannot be parsed.
    """
    check_size(data)
    found = _kept_index(data) if len(data) <= 512 * 1024 else _index(data)
    if isinstance(found, Unreadable):
        raise Unreadable(found.message, found.line)
    return found
