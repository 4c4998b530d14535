"""Where patchkit does not do what the references do, and why: each kind written down.

A kind of exception is one :class:`Rule`.  It names the classes it may occur in, how patchkit
refuses, and a check of its own on the case, made without patchkit's reader; so that a refusal
for a wrong reason is none of these.  Whatever no rule covers is a fault.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from patchkit.errors import PatchkitError
from tests.outside.cases import read
from tests.outside.judges import Class, Judged, engine
from tests.strategies import Tree

Result = Tree | PatchkitError
ALL: frozenset[Class] = frozenset(["agree-apply", "git-only", "gnu-only", "differ"])
GNU_ONLY: frozenset[Class] = frozenset(["gnu-only"])


class Rule(NamedTuple):
    """One kind of exception.  ``code`` and ``says`` are the refusal's (``code`` None:
    patchkit applies it; empty: any); ``small`` says that the sdists alone have such a case."""

    name: str
    kinds: frozenset[Class]
    code: str | None
    says: str
    why: str
    holds: Callable[[Judged, Result], bool]
    small: bool = True


# -- checks on the case --------------------------------------------------------------------


def _anything(_: Judged, __: Result) -> bool:
    return True


def _has_twins(one: Judged, _: Result) -> bool:
    """Some block of old lines stands in a file more than once."""
    blocks = [block for section in read(one.case.patch) for block in section.blocks]
    texts = [b"".join(block.side(b"+" if one.case.reverse else b"-")) for block in blocks]
    files = [state.data for state in one.case.tree.values()]
    return any(text and (b"\n" + data).count(b"\n" + text) > 1 for text in texts for data in files)


def _has_uncounted(one: Judged, _: Result) -> bool:
    """Behind some hunk, perhaps after blank lines or one of prose, stands what could be a
    line of it."""
    lines = io.BytesIO(one.case.patch).readlines()
    for section in read(one.case.patch):
        for block in section.blocks:
            rest = [line for line in lines[block.end : block.end + 4] if line.strip()]
            near = lines[block.end : block.end + 1] + rest[:2]
            if any(line[:1] in (b" ", b"+", b"-", b"\t") and line.strip() for line in near):
                return True
    return False


def _is_bare(one: Judged, _: Result) -> bool:
    """Some hunk has no context at all."""
    return any(block.ends == (0, 0) for s in read(one.case.patch) for block in s.blocks)


def _is_at_an_end(one: Judged, _: Result) -> bool:
    """Some hunk begins at line 1, or has no context behind it."""
    blocks = [block for section in read(one.case.patch) for block in section.blocks]
    return any(block.start <= 1 or not block.ends[1] for block in blocks)


def _says_binary_differs(one: Judged, _: Result) -> bool:
    return b"\nBinary files " in one.case.patch


def _is_glued(one: Judged, _: Result) -> bool:
    """A last line without an end in the patch, whose line in the file has one."""
    for section in read(one.case.patch):
        for block in section.blocks[-1:]:
            if block.body[-1:] and block.body[-1][:1] == b"\\" and block.old:
                last = block.old[-1]
                return any(last + b"\n" in state.data for state in one.case.tree.values())
    return False


def _is_submodule(one: Judged, _: Result) -> bool:
    return b"160000" in one.case.patch


def _means_the_same(one: Judged, result: Result) -> bool:
    """With the lost blanks put back, all of them make the same of it."""
    lines = io.BytesIO(one.case.patch).readlines()
    for section in read(one.case.patch):
        for block in section.blocks:
            for number in range(block.at + 1, block.end):
                if lines[number] == b"\r\n":
                    lines[number] = b" \r\n"
    whole = b"".join(lines)
    return whole != one.case.patch and engine(replace(one.case, patch=whole)) == result


def _comes_back(one: Judged, result: Result) -> bool:
    """What it gives, patched forwards, is the tree that was taken back."""
    if isinstance(result, PatchkitError) or not one.case.reverse:
        return False
    return engine(replace(one.case, tree=result, reverse=False)) == one.case.tree


# -- the rules -----------------------------------------------------------------------------

RULES = (
    Rule(
        "ambiguous",
        ALL,
        "hunk-ambiguous",
        "places",
        "promise 3: off its line, the block stands twice; the references take the nearer one",
        _has_twins,
    ),
    Rule(
        "uncounted lines",
        ALL,
        "patch-syntax",
        "",
        "promise 3: a line that no hunk counts is an error; the references drop it",
        lambda one, result: (
            isinstance(result, PatchkitError)
            and result.message
            in ("a line that no hunk counts", "a hunk with more lines than its header counts")
            and _has_uncounted(one, result)
        ),
    ),
    Rule(
        "binary files differ",
        ALL,
        "patch-syntax",
        "'Binary files differ'",
        "all or nothing: one file of the patch has no contents; the references leave it out",
        _says_binary_differs,
    ),
    Rule(
        "submodule",
        frozenset(["differ"]),
        "patch-syntax",
        "a submodule change",
        "git makes an empty folder of it, GNU patch a file",
        _is_submodule,
    ),
    Rule(
        "glued line",
        frozenset(["git-only"]),
        "hunk-not-found",
        "",
        "the patch's last line has no end, the file's has one and more behind it: git takes the"
        " end away and joins two lines",
        _is_glued,
    ),
    Rule(
        "cut off behind a header",
        frozenset(["agree-apply", "git-only", "gnu-only"]),
        "patch-syntax",
        "cut off",
        "a header that announces lines and has none: the references make an empty file",
        _anything,
        small=False,
    ),
    Rule(
        "blanks lost from CR LF lines",
        frozenset(["agree-refuse", "refuse-lenient"]),
        None,
        "",
        "a blank context line is a lone CR LF; it is read as one where the '@@' line ends so",
        _means_the_same,
        small=False,
    ),
    Rule(
        "one file more than once, taken back",
        frozenset(["agree-refuse", "refuse-lenient"]),
        None,
        "",
        "the last change is taken back first; the references start with the first",
        _comes_back,
        small=False,
    ),
    # What GNU patch alone applies is refused, as git refuses it.
    Rule(
        "no context",
        GNU_ONLY,
        "hunk-not-found",
        "",
        "a hunk without context (-U0) fits anywhere; git wants --unidiff-zero for it",
        _is_bare,
        small=False,
    ),
    Rule(
        "start or end of the file",
        GNU_ONLY,
        "hunk-not-found",
        "",
        "a hunk that was cut at the file's start or end must stand there; git's rule",
        _is_at_an_end,
    ),
    Rule(
        "already applied",
        GNU_ONLY,
        "already-applied",
        "",
        "GNU patch puts the lines in a second time",
        _anything,
        small=False,
    ),
    Rule(
        "in the way",
        GNU_ONLY,
        "file-exists",
        "",
        "the file that the patch makes is there; GNU patch writes over it or into it",
        _anything,
    ),
    Rule(
        "other name",
        GNU_ONLY,
        "file-missing",
        "",
        "of two names in a header GNU patch takes one that exists; here the name is fixed first",
        _anything,
    ),
    Rule(
        "two names",
        GNU_ONLY,
        "two-names",
        "",
        "a git header whose names differ at this strip level, and no rename",
        _anything,
        small=False,
    ),
    Rule(
        "not understood",
        GNU_ONLY,
        "patch-syntax",
        "",
        "a broken or inconsistent header or hunk, which git refuses too",
        _anything,
    ),
)


def is_right(one: Judged, result: Result) -> bool:
    """Whether patchkit does what the class asks for."""
    if one.kind in ("agree-refuse", "refuse-lenient"):
        return isinstance(result, PatchkitError)
    return result == one.wanted


def rule_for(one: Judged, result: Result) -> Rule | None:
    """The rule that covers an outcome other than the class asks for."""
    for rule in RULES:
        if one.kind not in rule.kinds:
            continue
        if isinstance(result, PatchkitError):
            if rule.code not in ("", result.code) or rule.says not in result.message:
                continue
        elif rule.code is not None:
            continue
        if rule.holds(one, result):
            return rule
    return None
