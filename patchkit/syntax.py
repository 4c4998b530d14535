"""Python source → syntax tree, without an end of the process for any source.

Owns the way around Python 3.10, whose ``ast.parse`` overruns the C stack for a chain of 200,000
operators (a segmentation fault); later ones raise :class:`RecursionError`.  Must not do I/O.
"""

from __future__ import annotations

import ast
import sys
import warnings
from typing import Literal


def parse(text: str | bytes, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """:func:`ast.parse`.  Raises SyntaxError, ValueError (a NUL), RecursionError or MemoryError
    (the parser's own stack)."""
    if sys.version_info < (3, 11):
        _compile(text, mode)
    return ast.parse(text, mode=mode)


def _compile(text: str | bytes, mode: str) -> None:
    """Compiling counts how deep it is, and does so before all that else it refuses but one:
    a feature that ``__future__`` does not have."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<source>", mode, dont_inherit=True)
    except SyntaxError as error:
        if str(error.msg).startswith(("future feature", "not a chance")):
            raise
