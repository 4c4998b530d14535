"""Assertions: what a file must say after its patches, judged on its bytes alone.

Owns the verdict on one ``[[assert]]`` of a manifest.  Pure: it reads nothing by itself,
never imports or runs the code that it judges, and gives the same verdict under every
supported interpreter (for source that the interpreter's own parser accepts).

=============  =========================================================================
kind           holds when
=============  =========================================================================
``pattern``    the regular expression (``^`` and ``$`` at every line) matches as often as
               ``count``, ``min``, ``max`` or ``absent`` say; ``text`` the same for plain
               text.  With ``in = "code"`` comments and strings cannot take part in a match
``literal``    every list, tuple, set or dict display bound to the name holds the elements
``condition``  the expression decides something, and yields the value under what is given
``defined``    the names are used by code that can run, and bound or imported from a module
               of the same distribution that binds them
=============  =========================================================================
"""

from __future__ import annotations

from collections.abc import Callable

from patchkit.assertions import condition, defined, literal, pattern
from patchkit.assertions.index import indexed
from patchkit.assertions.source import Unreadable, is_python
from patchkit.model import Assertion, Finding

__all__ = ["evaluate"]


def evaluate(
    assertion: Assertion, data: bytes | None, read: Callable[[str], bytes | None]
) -> Finding:
    """The verdict on one assertion; never raises for what a file or a manifest says.

    ``data`` is the content of ``assertion.file``, None where there is no such file.
    ``read`` gives the bytes of another file of the distribution, by its path from the root,
    or None; ``defined`` alone asks, and :attr:`Finding.reads` names every path it asked for.

    >>> gate = Assertion("assert[0]", "d", "m.py", text="[9, 10, 12]", scope="code")
    >>> evaluate(gate, b"majors = [9, 10]  # [9, 10, 12]", lambda path: None).ok
    False
    """
    if data is None:
        return Finding(False, f"there is no file {assertion.file}")
    library = defined.Library(assertion.file, data, read)
    try:
        finding = _judge(assertion, data, library)
    except Unreadable as error:
        finding = Finding(False, error.message, error.line)
    except (RecursionError, MemoryError):
        finding = Finding(False, "cannot be judged: nested too deeply")
    return finding._replace(reads=tuple(sorted(library.asked)))


def _judge(assertion: Assertion, data: bytes, library: defined.Library) -> Finding:
    lexical = assertion.pattern is not None or assertion.text is not None
    plain = lexical and assertion.scope == "text" and assertion.within is None
    if not plain and not is_python(assertion.file):
        raise Unreadable(
            f'{assertion.file} is not Python source: only pattern and text, with in = "text" '
            "and without within, can be asserted of it"
        )
    if lexical:
        return pattern.judge(assertion, data)
    if assertion.literal is not None:
        return literal.judge(assertion.literal, indexed(data), assertion.within)
    if assertion.condition is not None:
        return condition.judge(assertion.condition, indexed(data), assertion.within)
    if not assertion.defined:
        raise Unreadable("it asserts nothing")
    return defined.judge(
        assertion.defined, indexed(data), assertion.within, assertion.file, library
    )
