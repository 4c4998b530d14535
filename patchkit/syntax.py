"""Python source → syntax tree, without an end of the process for any source.

Owns the way around Python 3.10, whose ``ast.parse`` overruns the C stack for a chain of 200,000
operators (a segmentation fault); later ones raise :class:`RecursionError`.  And the way around
Python 3.11, which counts the depth of a tree for all threads together: where a collection of
garbage lets another thread parse in between, it ends in a SystemError.  Must not do I/O.
"""

from __future__ import annotations

import ast
import sys
import warnings
from _thread import allocate_lock
from typing import Literal

# One at a time: see above.  The filters of warnings are of all threads too.
_ONE = allocate_lock()


def parse(
    text: str | bytes, mode: Literal["exec", "eval"] = "exec", *, strict: bool = False
) -> ast.AST:
    """:func:`ast.parse`, without its warnings; with ``strict`` they are errors.  Raises
    SyntaxError, ValueError (a NUL), RecursionError or MemoryError (the parser's own stack)."""
    with _ONE, warnings.catch_warnings():
        # "invalid escape sequence" in the source of others is not ours to print.
        warnings.simplefilter("error" if strict else "ignore")
        if sys.version_info < (3, 11):
            _compile(text, mode)
        return ast.parse(text, mode=mode)


def _compile(text: str | bytes, mode: str) -> None:
    """Compiling counts how deep it is, and does so before all that else it refuses but one:
    a feature that ``__future__`` does not have."""
    try:
        compile(text, "<source>", mode, dont_inherit=True)
    except SyntaxError as error:
        if str(error.msg).startswith(("future feature", "not a chance")):
            raise
