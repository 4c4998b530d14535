"""``defined``: names that are used here are bound here, or imported from where they exist.

Owns the way from an import to a file of the distribution.  Must not import anything of the
target.  What a module makes at run time (``__getattr__``, ``globals()``) is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from patchkit.assertions.expressions import walk
from patchkit.assertions.index import indexed
from patchkit.assertions.scopes import Binding, Module, Scope
from patchkit.assertions.source import Unreadable, nearest
from patchkit.model import Finding

Parts = tuple[str, ...]
_ABSENT = "cannot be found in this distribution"


class Library:
    """The files of the distribution: ``read`` by path, each once; ``asked`` names them."""

    def __init__(self, file: str, data: bytes, read: Callable[[str], bytes | None]) -> None:
        self._files: dict[str, bytes | None] = {file: data}
        self._read = read
        self.asked: set[str] = set()

    def get(self, path: str) -> bytes | None:
        """The bytes of a file, None where there is none."""
        if path not in self._files:
            self.asked.add(path)
            self._files[path] = self._read(path)
        return self._files[path]

    def module(self, parts: Parts) -> str | None:
        """The file of a module: a package goes before a module of the same name."""
        for path in ("/".join((*parts, "__init__.py")), "/".join(parts) + ".py"):
            if parts and self.get(path) is not None:
                return path
        return None


def judge(
    names: Iterable[str], module: Module, within: str | None, file: str, library: Library
) -> Finding:
    """The verdict on all the names; the message says what is wrong with each that fails.

    Raises :class:`Unreadable`.
    """
    names = tuple(names)
    start = module.spans(within)[0].first
    uses = _uses(names, module, within)
    problems: list[tuple[int, str]] = []
    for name in names:
        if not uses[name]:
            where = f"in {within}" if within else "in the file"
            problems.append((start, f"{name} is not used by any live code {where}"))
        elif (problem := _unbound(name, uses[name], module.top, file, library)) is not None:
            problems.append(problem)
    if problems:
        return Finding(False, "; ".join(text for _, text in problems), problems[0][0])
    first = min(line for found in uses.values() for line, _ in found)
    return Finding(True, f"{', '.join(names)}: used, and defined", first)


def _uses(
    names: tuple[str, ...], module: Module, within: str | None
) -> dict[str, list[tuple[int, Scope]]]:
    """Line and scope of each use of each name in live code of the scope, and in the
    module-level assignments to the names that this code uses."""
    uses: dict[str, list[tuple[int, Scope]]] = {name: [] for name in names}
    sites = module.sites_in(module.spans(within))
    todo = [(s.expr, s.scope) for s in reversed(sites) if s.live and s.role != "bare"]
    followed: set[str] = set()
    while todo:
        for node, scope in walk(*todo.pop()):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                home = scope.resolve(node.id)
                uses.get(node.id, []).append((node.lineno, home))
                if within is not None and home is module.top and node.id not in followed:
                    followed.add(node.id)
                    todo += [(b.value, home) for b in home.live(node.id) if b.value is not None]
    return uses


def _unbound(
    name: str, uses: list[tuple[int, Scope]], top: Scope, file: str, library: Library
) -> tuple[int, str] | None:
    """What is wrong with the uses of one name, and where; None if nothing is.

    Every use must mean something that exists; one that means a local name has no say,
    unless it is an import.
    """
    homes = {home: line for line, home in reversed(uses)}
    judged = [home for home in homes if home is top or _imports(name, home)]
    for home in judged:
        problem = _Search(library).bound(name, home, file)
        if problem is not None:
            line = min((b.line for b in _imports(name, home)), default=homes[home])
            return line, f"{name} on line {line} {problem}"
    if not judged:
        line, home = uses[0]
        return line, f"{name} on line {line} is local to {home.name}, not a name of the module"
    return None


def _imports(name: str, scope: Scope) -> list[Binding]:
    return [b for b in scope.live(name) if b.kind == "import"]


class _Search:
    """Follows one name through modules.  The methods say what is missing, or None."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.seen: set[tuple[str, str]] = set()

    def bound(self, name: str, scope: Scope, file: str) -> str | None:
        """Whether ``scope``, which is of ``file``, binds ``name`` to something that exists.

        Imports of it must be found, one of several (``try``, ``except ImportError``) is
        enough; another binding beside them does not make up for that.
        """
        bound = [b for b in scope.live(name) if b.kind not in ("except", "global")]
        last = max((b.line for b in bound), default=0)
        for gone in scope.deleted(name):
            if gone.line > last:
                return f"is deleted on line {gone.line} of {file}"
        imports = _imports(name, scope)
        if bound and not imports:
            return None
        stars = scope.live("*")
        problem = f"is bound nowhere in {file}{nearest(name, set(scope.bindings) - {name})}"
        if not bound and name in scope.bindings:
            problem = f"is bound in {file} only by code that does not run when it is imported"
        for found in (*imports, *stars):
            why = self.imported(found, name, file)
            if why is None:
                return None
            problem = why if found.kind == "import" else problem
        if stars and not imports:
            problem += ", nor by its star imports"
        if not imports and scope.live("__getattr__"):
            problem += "; its __getattr__ may make it, which cannot be judged"
        return problem

    def imported(self, binding: Binding, name: str, file: str) -> str | None:
        """Whether an import in ``file`` finds what it binds, ``name`` for a star."""
        origin = binding.origin
        assert origin is not None
        base = _package(file, origin.level) if origin.level else ()
        if base is None:
            return f"is imported by {file} from outside of the distribution"
        parts = base + tuple(filter(None, origin.module.split(".")))
        shown = "." * origin.level + origin.module
        path = self.library.module(parts)
        wanted = name if binding.kind == "star" else origin.name
        if wanted is None:
            return None if path else f"is {shown}, which {_ABSENT}"
        if path is None:
            if binding.kind == "import" and self.library.module((*parts, wanted)):
                return None
            return f"is imported from {shown}, which {_ABSENT}"
        return self.exported(wanted, path, parts, binding)

    def exported(self, name: str, path: str, parts: Parts, binding: Binding) -> str | None:
        """Whether the module ``parts``, whose file is ``path``, gives ``name`` to an import."""
        if (path, name) in self.seen:
            return f"is not bound in {path}: its imports go in a circle"
        self.seen.add((path, name))
        data = self.library.get(path)
        assert data is not None
        try:
            top = indexed(data).top
        except Unreadable as error:
            return f"is imported from {path}, which {error.message}"
        if binding.kind == "star":
            return self.bound(name, top, path) if _starred(name, top) else f"is hidden in {path}"
        problem = self.bound(name, top, path)
        if problem and path.endswith("__init__.py") and self.library.module((*parts, name)):
            return None
        return problem


def _package(file: str, level: int) -> Parts | None:
    """The package that a relative import of ``level`` dots in ``file`` starts from."""
    folders = tuple(file.split("/")[:-1])
    return folders[: len(folders) - level + 1] if level <= len(folders) else None


def _starred(name: str, top: Scope) -> bool:
    """Whether ``from … import *`` takes the name along; yes for an ``__all__`` that is put
    together at run time."""
    bound = top.live("__all__")
    if not bound:
        return not name.startswith("_")
    listed: set[object] = set()
    for binding in bound:
        if not isinstance(binding.value, (ast.List, ast.Tuple)):
            return True
        for element in binding.value.elts:
            if not isinstance(element, ast.Constant):
                return True
            listed.add(element.value)
    return name in listed
