"""What the modules of a tree define, for the check of imports.  Must not do I/O."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from functools import cache

from .model import Tree


def exports(tree: Tree) -> Callable[[str], frozenset[str] | None]:
    """A function from a dotted module to the names at its top; None where the tree has no
    such module, and ``*`` among them where it cannot be said (a star import, a
    ``__getattr__``, a compiled module)."""

    @cache
    def names(module: str) -> frozenset[str] | None:
        stem = module.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if tree.digest(path) is not None:
                return _names(tree.read(path) or b"")
        prefixes = (f"{stem}/", f"{stem}.")
        if any(path.startswith(prefixes) for path in tree.paths()):
            return frozenset("*")
        return None

    return names


def _names(data: bytes) -> frozenset[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset("*")
    return frozenset(_bound(tree.body))


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield "*" if node.name == "__getattr__" else node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield (alias.asname or alias.name).partition(".")[0]
        else:
            for child in ast.walk(node):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    yield child.id
                elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    yield child.name
                elif isinstance(child, (ast.Import, ast.ImportFrom)):
                    for alias in child.names:
                        yield (alias.asname or alias.name).partition(".")[0]
