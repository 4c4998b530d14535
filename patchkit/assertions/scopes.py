"""What a Python module binds, where, and which of its expressions can run: the values.

Made by :mod:`patchkit.assertions.index`, read by the assertions on Python.  Must not parse
and must not evaluate.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from patchkit.assertions.source import Unreadable, nearest

Kind = Literal["assign", "param", "import", "star", "def", "del", "annotation", "except",
               "global", "other"]  # fmt: skip
Role = Literal["value", "default", "effect", "bare"]
Guard = tuple[ast.expr, bool]  # a test, and what it must have been for code to be reached


@dataclass(frozen=True, slots=True)
class Span:
    """Whole lines, both included, from 1; ``name`` is the def or class that they are of."""

    first: int
    last: int
    name: str = ""

    def holds(self, line: int) -> bool:
        """Whether ``line`` is one of them."""
        return self.first <= line <= self.last


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an import looks: ``from {'.' * level}{module} import {name}``, or, with no
    name, ``import {module}``."""

    level: int
    module: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Binding:
    """One place that binds ``name`` (dotted for an attribute).  ``value`` is the expression
    that it is bound to, where there is just one."""

    name: str
    kind: Kind
    line: int
    live: bool
    value: ast.expr | None = None
    origin: Origin | None = None


@dataclass(eq=False, slots=True)
class Scope:
    """A module, class or function (also lambda and comprehension) and what it binds."""

    kind: Literal["module", "class", "function"]
    name: str
    parent: Scope | None
    span: Span
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    global_names: set[str] = field(default_factory=set)
    nonlocal_names: set[str] = field(default_factory=set)

    def resolve(self, name: str) -> Scope:
        """The scope that a use of ``name`` in this one means; the module's if no other."""
        at = self
        declared = False
        while at.parent is not None:
            declared = declared or name in at.global_names
            if not declared and name in at.bindings and (at is self or at.kind != "class"):
                return at
            at = at.parent
        return at

    def live(self, name: str) -> list[Binding]:
        """The bindings of ``name`` that happen and bind something."""
        return [
            bound
            for bound in self.bindings.get(name, ())
            if bound.live and bound.kind not in ("annotation", "del")
        ]

    def deleted(self, name: str) -> list[Binding]:
        """The ``del`` statements of ``name`` that happen."""
        return [b for b in self.bindings.get(name, ()) if b.live and b.kind == "del"]


@dataclass(frozen=True, slots=True)
class Site:
    """One expression as a statement holds it.

    ``role``: ``value`` is used; ``default`` is a parameter's; ``effect`` is a statement of
    its own that calls, awaits or yields; ``bare`` is one that does nothing.  ``target`` is
    the plain name that it is assigned to, if that is all that happens to it.  ``guards`` are
    the tests of the ``if`` and ``while`` around it, and before it of those that leave.
    """

    expr: ast.expr
    scope: Scope
    role: Role
    live: bool
    target: str | None = None
    guards: tuple[Guard, ...] = ()


@dataclass(eq=False, slots=True)
class Module:
    """The index of one Python file."""

    top: Scope
    definitions: dict[str, list[Span]] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    bound: list[Binding] = field(default_factory=list)

    def spans(self, within: str | None) -> list[Span]:
        """The lines of every def or class with that dotted name; the whole file for None.

        Raises :class:`Unreadable` where there is none.
        """
        if within is None:
            return [self.top.span]
        if within not in self.definitions:
            hint = nearest(within, self.definitions)
            raise Unreadable(f"there is no def or class {within} in the file{hint}")
        return self.definitions[within]

    def sites_in(self, spans: Iterable[Span]) -> list[Site]:
        """The sites that start on one of those lines, dead ones too."""
        spans = tuple(spans)
        return [s for s in self.sites if any(span.holds(s.expr.lineno) for span in spans)]
