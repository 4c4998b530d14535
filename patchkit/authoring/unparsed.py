"""Files that were Python and would be none any more: said, not refused, since what is written
is the author's."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping

from patchkit.model import FileState


def unparsed(
    before: Mapping[str, FileState | None], after: Mapping[str, FileState | None]
) -> Iterator[str]:
    """A sentence for each ``.py`` file that this interpreter parses before and not after; of one
    that is new, not after.  What needs a later Python before and after is not spoken of."""
    for path, state in sorted(after.items()):
        old = before.get(path)
        if not path.endswith(".py") or state is None or (old is not None and error(old.data)):
            continue
        wrong = error(state.data)
        if wrong is not None:
            yield f"{path} does not parse as Python with this change: {wrong}"


def error(data: bytes) -> str | None:
    """What the parser says of it, with the line; None where it parses."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the file's own: an escape that means nothing
            ast.parse(data)
    except SyntaxError as error:
        return error.msg if error.lineno is None else f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL; too deep to be parsed
        return str(error) or type(error).__name__
    return None
