"""What a merged file must pass before it counts as ported."""

from __future__ import annotations

import pytest

from patchkit.porting.checks import Sides, judge
from patchkit.porting.source import Source
from tests.support.porting import PATH, DictTree, carried, only, outcomes, patch, problems, text

RUN = """
    import os

    LIMIT = 3


    class Runner:
        def __init__(self, size):
            self.size = size

        def grow(self, by):
            return self.size + by

        def run(self, items):
            total = 0
            for item in items:
                total += item
            return total
"""


def codes(base: str, ours: str, theirs: str, merged: str, path: str = PATH) -> set[str]:
    made = [Source(path, text(side)) for side in (base, ours, theirs, merged)]
    sides = Sides(made[0], made[1], made[2], made[3], {})
    found = judge(sides, gone=frozenset(), base=lambda _: None, target=lambda _: None)
    return {problem.code for problem in found}


def test_the_same_change_at_the_same_place_passes() -> None:
    ours = RUN.replace("total += item", "total += item * 2")
    theirs = RUN.replace("LIMIT = 3", "LIMIT = 4")
    merged = ours.replace("LIMIT = 3", "LIMIT = 4")
    assert codes(RUN, ours, theirs, merged) == set()


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (("total += item", "total += item * 3"), "delta"),  # another change
        (("return self.size + by", "return self.size * 2 + by"), "delta"),  # another def
        (("total += item", "total +="), "syntax"),
        (("total += item", "total += item * 2\n                total += 1"), "delta"),
    ],
)
def test_a_change_that_is_not_the_one_of_the_patch_fails(made: tuple[str, str], code: str) -> None:
    ours = RUN.replace("total += item", "total += item * 2")
    theirs = RUN.replace("LIMIT = 3", "LIMIT = 4")
    assert code in codes(RUN, ours, theirs, theirs.replace(*made))


def test_a_statement_in_the_other_branch_fails() -> None:
    base = """
        def score(kind, x):
            if kind == "softmax":
                y = soft(x)
            elif kind == "sigmoid":
                y = sig(x)
            return y
    """
    ours = base.replace("y = soft(x)\n", "y = soft(x)\n                y = y * 2\n")
    theirs = base.replace("return y", "return y, kind")
    right = ours.replace("return y", "return y, kind")
    wrong = theirs.replace("y = sig(x)\n", "y = sig(x)\n                y = y * 2\n")
    assert codes(base, ours, theirs, right) == set()
    assert "delta" in codes(base, ours, theirs, wrong)


def test_what_would_never_run_fails() -> None:
    ours = RUN.replace("return total\n", "log(total)\n            return total\n")
    theirs = RUN.replace("return total\n", "return total\n            # end\n")
    merged = theirs.replace("return total\n", "return total\n            log(total)\n")
    assert "dead" in codes(RUN, ours, theirs, merged)


def test_a_key_that_comes_twice_fails() -> None:
    base = 'TABLE = {\n    "a": 1,\n    "b": 2,\n}\n'
    ours = base.replace('"b": 2,\n', '"b": 2,\n    "c": 3,\n')
    theirs = base.replace('"a": 1,\n', '"a": 1,\n    "c": 4,\n')
    merged = ours.replace('"a": 1,\n', '"a": 1,\n    "c": 4,\n')
    assert "doubled" in codes(base, ours, theirs, merged)


@pytest.mark.parametrize(
    ("made", "upstream"),
    [
        # a variable that has another name there
        (
            ("total += item\n", "total += item\n                log(total)\n"),
            ("total", "amount"),
        ),
        # an attribute that is not set there
        (("total = 0\n", "total = 0\n            total += self.size\n"), ("self.size", "self.n")),
        # a parameter that is gone
        (
            ("total = 0\n", "total = 0\n            total += self.grow(by=1)\n"),
            (
                "grow(self, by):\n            return self.size + by",
                "grow(self):\n            return 1",
            ),
        ),
    ],
)
def test_what_added_lines_use_must_exist(made: tuple[str, str], upstream: tuple[str, str]) -> None:
    ours = RUN.replace(*made)
    theirs = RUN.replace(*upstream).replace("LIMIT = 3", "LIMIT = 4")
    merged = theirs.replace(
        "for item in items:",
        made[1].strip().splitlines()[-1].strip() + "\n            for item in items:",
    )
    assert codes(RUN, ours, theirs, merged) & {"undefined", "call"}


IMPORTING = "import os\n\nfrom pkg.tools import old\n\nprint(os, old)\n"


@pytest.mark.parametrize(
    ("files", "ok"),
    [
        ({"pkg/tools.py": "def old(): ...\ndef new(): ...\n"}, True),
        ({"pkg/tools.py": "def old(): ...\n"}, False),
        ({"pkg/tools.py": "from x import *\n"}, True),
        ({"pkg/tools/__init__.py": "old = 1\n", "pkg/tools/new.py": ""}, True),
        ({}, False),
    ],
)
def test_an_import_that_a_patch_adds_must_be_in_the_release(
    files: dict[str, str], ok: bool
) -> None:
    ours = IMPORTING.replace("import old", "import new, old")
    base = {PATH: IMPORTING, "pkg/tools.py": "def old(): ...\ndef new(): ...\n"}
    theirs = {PATH: IMPORTING.replace("print(", "print(1, "), **files}
    ported = carried(base, ours, theirs)
    assert ported.outcome == ("merged" if ok else "conflict") or (
        ok and ported.outcome in ("unchanged", "offset")
    )
    assert problems(ported) == (set() if ok else {"import"})


def test_an_added_file_imports_only_what_the_release_has() -> None:
    added = patch({"pkg/new.py": "from pkg.tools import old\n"}, added=["pkg/new.py"])
    from patchkit.porting.engine import port

    base = DictTree({"pkg/tools.py": "old = 1\n"})
    assert port(base, base, [added]).outcome == "unchanged"
    ported = port(base, DictTree({"pkg/tools.py": "other = 1\n"}), [added])
    assert ported.outcome == "conflict" and problems(ported) == {"import"}


def test_json_with_a_key_twice_and_c_with_a_lost_bracket_fail() -> None:
    base = '{\n  "a": 1,\n  "b": 2\n}\n'
    assert "syntax" in codes(
        base, base.replace('"a": 1', '"c": 3'), base.replace('"b": 2', '"c": 4'),
        '{\n  "c": 3,\n  "c": 4\n}\n', "pkg/config.json",
    )  # fmt: skip
    code = "int f() {\n  return g(1);\n}\n"
    assert "syntax" in codes(
        code, code.replace("g(1)", "g(2)"), code + "int h();\n",
        code.replace("g(1)", "g(2") + "int h();\n", "pkg/f.cuh",
    )  # fmt: skip


KERNELS = """
void first(int n) {
  if (n > 900) {
    launch(n);
  }
}

void second(int n) {
  if (n > 900) {
    launch(n);
  }
}
"""


def test_c_functions_with_one_text_keep_their_own_changes() -> None:
    first, second = KERNELS.split("void second")
    ours = f"{first}void second{second.replace('n > 900', 'n > 1200')}"
    theirs = KERNELS.replace("void first", "void zeroth(int n) {\n  launch(n);\n}\n\nvoid first")
    ported = carried(text(KERNELS), text(ours), text(theirs), "pkg/k.cu")
    data = only(ported).data
    assert data is not None and data.index(b"1200") > data.index(b"void second")


def test_a_file_that_this_python_cannot_read_is_refused() -> None:
    base = "print 'old'\nx = 1\ny = 2\n"
    ported = carried(base, base.replace("x = 1", "x = 3"), base + "z = 1\n")
    assert ported.outcome == "conflict" and problems(ported) == {"unparsed"}


def test_line_ends_are_those_of_the_release() -> None:
    base = "def f():\n    return 1\n"
    theirs = (base + "X = 1\n").replace("\n", "\r\n").encode()
    ported = carried(base, base.replace("return 1", "return 2"), theirs)
    assert outcomes(ported) == ["merged"]
    assert only(ported).data == theirs.replace(b"return 1", b"return 2")


OPTIONS = """
    def options(group, kw):
        group.add_argument("--size", **kw["size"])
        group.add_argument(
            "--share-of-memory", **kw["share_of_memory"]
        )
        group.add_argument("--kind", **kw["kind"])
"""


@pytest.mark.parametrize(
    ("upstream", "expected"), [("number_of_blocks", set()), ("memory_in_gib", {"doubled"})]
)
def test_calls_that_begin_alike_are_one_change_only_where_they_say_the_same(
    upstream: str, expected: set[str]
) -> None:
    def option(name: str, more: str = "") -> str:
        flag = name.replace("_", "-")
        return f"""        group.add_argument(
            "--{flag}",{more} **kw["{name}"]
        )
"""

    kind = '        group.add_argument("--kind"'
    ours = OPTIONS.replace(kind, option("memory_in_gib") + kind)
    theirs = OPTIONS + option(upstream, " type=float,")
    merged = ours + option(upstream, " type=float,")
    assert codes(OPTIONS, ours, theirs, merged) == expected
