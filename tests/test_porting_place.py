"""Where a patch goes in another release: the right def, or nowhere."""

from __future__ import annotations

import pytest

from tests.support.porting import PATH, carried, only, outcomes, problems, text

TWINS = """
    def first(x):
        y = load(x)
        for step in y:
            run(step)
        return y


    def second(x):
        y = load(x)
        for step in y:
            run(step)
        return y
"""
TWINS_PATCHED = TWINS.replace("y = load(x)", "y = load(x, fast=True)", 2).replace(
    "y = load(x, fast=True)", "y = load(x)", 1
)


def test_a_twin_above_does_not_take_the_change() -> None:
    third = """
    def zeroth(x):
        y = load(x)
        for step in y:
            run(step)
        return y


    """
    theirs = text(third) + text(TWINS)
    ported = carried(TWINS, TWINS_PATCHED, theirs)
    assert outcomes(ported) == ["offset"]
    assert ported.contents[PATH] == text(third) + text(TWINS_PATCHED)


def test_defs_that_changed_places_keep_their_own_changes() -> None:
    first, second = text(TWINS).split(b"\n\n\n")
    theirs = second.rstrip() + b"\n\n\n" + first + b"\n"
    ported = carried(TWINS, TWINS_PATCHED, theirs)
    data = ported.contents[PATH]
    assert data is not None
    assert data.index(b"fast=True") < data.index(b"def first")


@pytest.mark.parametrize("count", [3, 4])
def test_equal_blocks_in_one_def_are_told_apart_by_their_number_only_if_it_is_the_same(
    count: int,
) -> None:
    block = "    for step in y:\n        run(step)\n"
    head, tail = "def one(x, y):\n", "    return y\n"
    base = head + block * 3 + tail
    ours = head + block + block.replace("run", "go") + block + tail
    ported = carried(base, ours, head + "    x = 1\n" + block * count + tail)
    assert ported.outcome == ("conflict" if count == 4 else "offset")


CLASSES = """
    class Sync:
        def acquire(self, key):
            with self.lock:
                self.take(key)


    class Async:
        def acquire(self, key):
            with self.lock:
                self.take(key)
"""


def test_a_method_of_a_class_that_is_gone_does_not_go_to_its_sibling() -> None:
    ours = CLASSES.replace("self.take(key)", "self.take(key, 1)", 1)
    theirs = CLASSES[CLASSES.index("    class Async") :]
    ported = carried(CLASSES, ours, theirs)
    assert ported.outcome in ("gone", "conflict")
    assert not ported.contents


CONDITION = """
    from pkg.utils import is_a, is_b, is_c

    def allowed(args):
        return (
            (is_a() or is_b())
            and args.fast
            and not args.old
        )
"""


def test_a_term_goes_into_a_condition_that_upstream_extended_elsewhere() -> None:
    ours = CONDITION.replace("is_a() or is_b()", "is_a() or is_b() or is_c()")
    theirs = CONDITION.replace("(is_a() or is_b())", "(is_a() or is_b()) and args.on")
    ported = carried(CONDITION, ours, theirs)
    assert outcomes(ported) == ["merged"]
    assert ported.contents[PATH] == text(
        theirs.replace("is_a() or is_b()", "is_a() or is_b() or is_c()")
    )


def test_two_terms_at_one_place_are_a_conflict() -> None:
    ours = CONDITION.replace("is_a() or is_b()", "is_a() or is_b() or is_c()")
    theirs = CONDITION.replace("is_a() or is_b()", "is_a() or is_b() or is_d()")
    assert carried(CONDITION, ours, theirs).outcome == "conflict"


def test_a_line_comes_between_two_that_both_changed_form() -> None:
    base = """
        def setup(cuda):
            fast = cuda and probe(90)
            wide = cuda and probe(100)
            name = pick()
            return fast, wide, name
    """
    ours = base.replace(
        "wide = cuda and probe(100)\n",
        "wide = cuda and probe(100)\n            small = cuda and probe(120)\n",
    )
    theirs = base.replace("probe(90)", "probe_arch(90)").replace("probe(100)", "probe_arch(100)")
    theirs = theirs.replace("name = pick()", "name = pick(cuda)")
    # What it calls is gone by that name, which is none of a merge's business here.
    theirs = "probe = object()\n" + text(theirs).decode()
    base, ours = ("probe = object()\n" + text(side).decode() for side in (base, ours))
    ported = carried(base, ours, theirs)
    data = ported.contents[PATH]
    assert outcomes(ported) == ["merged"] and data is not None
    lines = data.decode().splitlines()
    assert lines[4].strip() == "small = cuda and probe(120)"


IMPORTS = """
    from pkg.utils import (
        alpha,
        delta,
        omega,
    )

    use = alpha, delta, omega
"""


def test_a_name_is_imported_also_where_its_neighbours_went() -> None:
    ours = IMPORTS.replace("    delta,\n", "    delta,\n        gamma,\n")
    theirs = IMPORTS.replace("        delta,\n", "").replace("        omega,\n", "        zeta,\n")
    theirs = theirs.replace("alpha, delta, omega", "alpha, zeta")
    ported = carried(IMPORTS, ours, theirs)
    assert outcomes(ported) == ["merged"]
    assert only(ported).data == text(
        theirs.replace("        zeta,\n", "        gamma,\n        zeta,\n")
    )


def test_a_change_of_lines_that_say_little_is_no_change_of_blank_lines() -> None:
    base = "def run(a):\n    if a:\n        step(a)\n    return a\n"
    ours = base.replace("    return a", "    else:\n        return None\n    return a")
    ported = carried(base, ours, "import x\n\n\n" + base)
    assert only(ported).data == ("import x\n\n\n" + ours).encode()


def test_a_change_of_blank_lines_alone_is_made() -> None:
    base = "class A:\n\n    def run(self):\n        return 1\n"
    ours = base.replace("A:\n\n", "A:\n")
    ported = carried(base, ours, "import x\n\n\n" + base)
    assert only(ported).data == ("import x\n\n\n" + ours).encode()
    assert outcomes(carried(base, ours, "import x\n\n\n" + ours)) == ["upstream"]
    # Of a change that upstream has but for its blank lines, nothing is left to do.
    more = ours.replace("return 1", "return 2\n")
    assert outcomes(carried(base, more, base.replace("return 1", "return 2"))) == ["upstream"]


def test_a_new_import_sorts_in_also_where_every_neighbour_is_another() -> None:
    base = "import os\n\nfrom pkg.a import (\n    one, two)\n\nprint(os, one, two)\n"
    ours = base.replace("two)\n", "two)\nfrom pkg.log import logger\n", 1)
    theirs = base.replace("pkg.a import (\n    one, two)", "pkg.x import (\n    one,\n    two,\n)")
    theirs = theirs.replace("from pkg.x", "from pkg.b import zero\nfrom pkg.x")
    assert (
        only(carried(base, ours, theirs)).data
        == theirs.replace("from pkg.x", "from pkg.log import logger\nfrom pkg.x").encode()
    )


def test_a_new_import_keeps_the_form_that_the_patch_gives_it() -> None:
    base = "from pkg.a import one\nfrom pkg.z import two\n\nprint(one, two)\n"
    new = "from pkg.m import (\n    mid,  # why\n)\n"
    ours = base.replace("from pkg.z", new + "from pkg.z")
    theirs = base.replace("from pkg.a import one", "from pkg.b import one")
    theirs = theirs.replace("from pkg.z", "from pkg.k import key\nfrom pkg.z")
    assert only(carried(base, ours, theirs)).data == text(
        theirs.replace("from pkg.z", new + "from pkg.z")
    )


def test_a_line_that_upstream_put_in_another_s_place_is_no_form_of_it() -> None:
    """What comes between may have to come behind it: they share no word that tells."""
    base = (
        "class Runner:\n    def setup(self):\n        self.pool = Pool()\n"
        "        self.size = 1\n        self.chunk = 2\n        self.width = 3\n"
    )
    ours = base.replace("Pool()\n", "Pool()\n        self.translate()\n")
    theirs = base.replace("self.size = 1", "self.is_draft = False")
    assert only(carried(base, ours, theirs)).data is None
    renamed = base.replace("self.size = 1", "self.size = default")
    assert only(carried(base, ours, renamed)).data == text(
        renamed.replace("Pool()\n", "Pool()\n        self.translate()\n")
    )


def test_a_blank_line_alone_says_no_place() -> None:
    base = "from pkg.a import one\n\n\nclass Named(tuple):\n    kind = one\n"
    ours = base.replace("\n\n\n", "\n\nif CHECKING:\n    from pkg.b import two\n\n\n")
    theirs = base.replace("pkg.a import one", "pkg.a import (\n    one,\n    three,\n)").replace(
        "\n\n\n",
        "\n\nflag = three()\n\ntry:\n    import fast\nexcept ImportError:\n    fast = None\n\n\n",
    )
    assert only(carried(base, ours, theirs)).data is None


RENAMED = """
class Indexer:
    def old_name(self, query, weights):
        lengths = self.metadata.lengths(query)
        pages = self.metadata.page_table(query)
        logits = run_the_kernel(query, weights, lengths, pages)
        return top_of_all_logits(logits)

    def new_name(self, query, weights):
        return self.old_name(query, weights)
"""


def test_a_def_that_took_a_sibling_s_name_is_not_taken_for_gone_into_a_copy() -> None:
    """In the release ``old_name`` is called ``new_name``, and another class has the same."""
    ours = RENAMED.replace("lengths(query)", "lengths(query, padded=True)")
    body = RENAMED.partition("\n    def new_name")[0].replace("old_name", "new_name")
    theirs = body.replace("Indexer", "Indexer_before") + "\n" + body
    ported = carried(RENAMED, ours, theirs)
    assert only(ported).data is None
    # Without the copy and the sibling's name it is followed.
    alone = body.replace("new_name", "free_name")
    assert only(carried(RENAMED, ours, alone)).data == text(
        alone.replace("lengths(query)", "lengths(query, padded=True)")
    )


def test_numbers_in_names_sort_by_their_value() -> None:
    names = "    is_sm90,\n    is_sm100,\n"
    base = f"from pkg.utils import (\n    cuda,\n{names}    zed,\n)\n"
    ours = base.replace("    is_sm100,\n", "    is_sm100,\n    is_sm120,\n")
    theirs = base.replace("    zed,\n", "    tail,\n")
    assert (
        only(carried(base, ours, theirs)).data
        == theirs.replace("    tail", "    is_sm120,\n    tail").encode()
    )


def test_a_whole_import_goes_among_its_package_where_both_add_one() -> None:
    base = "import os\n\nfrom pkg.a import one\nfrom pkg.z import two\n\nprint(os, one, two)\n"
    ours = base.replace("from pkg.z", "from pkg.m import mid\nfrom pkg.z")
    theirs = base.replace("from pkg.z", "from pkg.k import key\nfrom pkg.z")
    ported = carried(base, ours, theirs)
    assert (
        only(ported).data
        == theirs.replace("from pkg.z", "from pkg.m import mid\nfrom pkg.z").encode()
    )


@pytest.mark.parametrize(
    ("mine", "yours"),
    [
        ("    b = twice(b)\n", "    b = half(b)\n"),
        ("    c = 1\n", "    d = 2\n"),
        ("    def mine():\n        return 1\n\n", "    def other():\n        return 2\n\n"),
    ],
)
def test_statements_that_both_add_at_one_place_conflict(mine: str, yours: str) -> None:
    base = "def run(a):\n    b = a\n    return b\n"
    ours = base.replace("    return", mine + "    return", 1)
    theirs = base.replace("    return", yours + "    return", 1)
    assert carried(base, ours, theirs).outcome == "conflict"


def test_a_def_that_both_sides_add_in_their_own_words_is_not_there_twice() -> None:
    base = (
        "class A:\n    def one(self):\n        return 1\n\n    def two(self):\n        return 2\n"
    )
    mine = "    def mine(self):\n        return self.one() + 1\n\n"
    yours = "    def mine(self):\n        return 1 + self.one()\n\n"
    ours = base.replace("    def two", mine + "    def two")
    theirs = base.replace("    def one", yours + "    def one")
    ported = carried(base, ours, theirs)
    assert ported.outcome == "conflict" and "doubled" in problems(ported)


def test_what_upstream_has_is_upstream_also_among_other_changes() -> None:
    base = "def run(a):\n    b = a\n    return b\n"
    ours = base.replace("    b = a\n", "    b = a + 1\n    log(b)\n")
    theirs = "import log\n\n" + ours.replace("return b", "return b, a")
    ported = carried(base, ours, theirs)
    assert outcomes(ported) == ["upstream"] and not ported.contents


def test_an_evolved_form_of_the_change_is_no_place_for_it() -> None:
    base = "A = 1\n\nC = 3\n"
    ours = 'A = 1\n\nB_CHOICES = ["one", "two"]\n\nC = 3\n'
    theirs = 'A = 1\n\nB_CHOICES = ["one", "two", "three"]\n\nC = 3\n'
    assert carried(base, ours, theirs).outcome == "conflict"


def test_a_removal_that_upstream_made_is_upstream() -> None:
    base = "def run(a):\n    check(a)\n    warn_user(a)\n    return a\n"
    ours = base.replace("    warn_user(a)\n", "")
    theirs = "X = 1\n\n\n" + ours
    assert outcomes(carried(base, ours, theirs)) == ["upstream"]


def test_nothing_changes_where_the_file_is_the_same() -> None:
    base = "def run(a):\n    return a\n"
    ported = carried(base, base.replace("return a", "return a + 1"), base)
    assert outcomes(ported) == ["unchanged"]


def test_a_change_in_docstrings_of_both_is_merged_line_by_line_or_refused() -> None:
    base = 'def run(a):\n    """Run.\n\n    One.\n    Two.\n    Three.\n    """\n    return a\n'
    ours = base.replace("One.", "One and a half.")
    theirs = base.replace("Three.", "Three and more.")
    data = only(carried(base, ours, theirs)).data
    assert (
        data
        == base.replace("One.", "One and a half.").replace("Three.", "Three and more.").encode()
    )


MOVED = """
    from pkg.utils import alpha, delta
    from pkg.other import thing

    use = alpha, delta, thing
"""


def test_a_module_whose_names_come_from_elsewhere_now_does_not_take_a_new_one() -> None:
    ours = MOVED.replace("alpha, delta\n", "alpha, delta, gamma\n", 1)
    theirs = MOVED.replace(
        "from pkg.utils import alpha, delta\n",
        "from pkg.utils import root\n    from pkg.utils.common import alpha, delta\n",
    )
    files = {"pkg/utils/__init__.py": "root = gamma = 1\n", "pkg/other.py": "thing = 1\n"}
    common = {"pkg/utils/common.py": "alpha = delta = 1\n"}
    before = {PATH: MOVED, "pkg/utils.py": "alpha = delta = gamma = 1\n"}
    ported = carried(before, ours, {PATH: theirs, **files, **common})
    assert ported.outcome == "conflict" and not ported.contents


def test_a_name_is_taken_out_of_an_import_whose_module_has_another_name() -> None:
    ours = MOVED.replace("alpha, delta\n", "alpha\n", 1).replace("alpha, delta, th", "alpha, th")
    theirs = MOVED.replace("pkg.utils", "pkg.tools")
    assert only(carried(MOVED, ours, theirs)).data == text(ours.replace("pkg.utils", "pkg.tools"))


def test_imports_that_are_not_sorted_take_no_other_at_the_place_of_a_new_one() -> None:
    base = "import a\nimport q\n\nprint(a, q)\n"
    ours = base.replace("import q", "import d\nimport q")
    theirs = base.replace("import q", "import z\nimport c\nimport q")
    assert carried(base, ours, theirs).outcome == "conflict"


def test_of_two_equal_statements_none_is_changed_where_upstream_added_a_third() -> None:
    body = "    start(x)\n    emit(x)\n    wait(x)\n    emit(x)\n    stop(x)\n"
    base = "def run(x):\n" + body
    ours = base.replace("    emit(x)\n    stop", "    emit(x, 1)\n    stop")
    theirs = "def run(x):\n" + body.replace("wait(x)\n", "hold(x)\n    emit(x)\n    rest(x)\n")
    theirs = theirs.replace("    stop(x)\n", "    halt(x)\n")
    assert carried(base, ours, theirs).outcome == "conflict"


def test_lines_of_an_added_def_are_not_those_of_another_one() -> None:
    base = "def one(x):\n    y = load(x)\n    return y\n\n\nEND = 1\n"
    added = "def two(x):\n    y = load(x)\n    return y\n\n\n"
    ours = base.replace("END", added + "END")
    theirs = "def one(x):\n    y = load(x)\n    return y + 1\n\n\nEND = 2\n"
    ported = carried(base, ours, theirs)
    if ported.outcome != "conflict":
        assert only(ported).data == theirs.replace("END", added + "END").encode()


def test_a_struct_of_c_that_both_sides_add_is_not_there_twice() -> None:
    base = "namespace a {\n\nint first(int n) {\n  return n;\n}\n"
    struct = "struct Local {\n  int data[4];\n};\n\n"
    ours = base.replace("int first", struct + "int first")
    theirs = base + "\n" + struct.replace("data", "other")
    ported = carried(base, ours, theirs, "pkg/k.cuh")
    assert ported.outcome == "conflict" and problems(ported) == {"doubled"}


GUARDED = """
    def choose(runner):
        if runner.small:
            width = 1
        elif (
            runner.mixed is not None
            or runner.linear is not None
        ):
            # layer 0 may hold nothing
            width = runner.pool.width()
        return width
"""


def test_a_change_beside_one_that_upstream_rewrote_takes_both() -> None:
    ours = GUARDED.replace(
        "or runner.linear is not None\n",
        'or runner.linear is not None\n            or hasattr(runner.pool, "width")\n',
    ).replace("# layer 0 may hold nothing", "# layer 0 may hold nothing, or another kind")
    theirs = GUARDED.replace("runner.mixed", "mixed(runner.config)").replace(
        "runner.linear", "linear(runner.config)"
    )
    ported = carried(GUARDED, ours, theirs)
    assert outcomes(ported) == ["merged"]
    assert ported.contents[PATH] == text(
        ours.replace("runner.mixed", "mixed(runner.config)").replace(
            "runner.linear", "linear(runner.config)"
        )
    )


CHUNKED = """
    def chunks(items, limit):
        for item in items:
            if item.done:
                continue

            # One pass for each item where it can be cut.
            # Fall back to one pass for all.
            alone = all(len(part.spans) == 1 for part in item.parts)

            if alone:
                yield one(item, limit)
"""


def test_a_changed_statement_is_found_where_upstream_took_out_the_comments_before_it() -> None:
    ours = CHUNKED.replace(
        "for all.\n", "for all, which\n            # an odd item takes as well.\n"
    ).replace("item.parts)", "item.parts) and not any(part.odd for part in item.parts)")
    start, end = CHUNKED.index("            # One"), CHUNKED.index("            alone")
    info = "            info = Info(item=item, limit=limit)\n\n"
    theirs = (CHUNKED[:start] + info + CHUNKED[end:]).replace("parts)\n\n", "parts)\n")
    ported = carried(CHUNKED, ours, theirs)
    assert outcomes(ported) == ["merged"]
    data = ported.contents[PATH]
    assert data is not None
    assert b"# Fall back to one pass for all, which\n" in data and b"# One pass" not in data
    assert b"        # an odd item takes as well.\n        alone = all(" in data
    assert b"and not any(part.odd for part in item.parts)\n        if alone" in data


def test_a_statement_that_stands_twice_is_not_found_by_its_text_alone() -> None:
    start, end = CHUNKED.index("            # One"), CHUNKED.index("            alone")
    twice = CHUNKED[end : CHUNKED.index("\n\n            if alone")] + "\n"
    ours = CHUNKED.replace(
        "for all.\n", "for all, which\n            # an odd item takes as well.\n"
    ).replace("item.parts)", "item.parts) and not any(part.odd for part in item.parts)")
    theirs = CHUNKED[:start] + twice + "            check(alone)\n" + CHUNKED[end:]
    assert carried(CHUNKED, ours, theirs).outcome == "conflict"


def test_a_def_that_the_release_has_in_another_form_is_named() -> None:
    base = """
        class A:
            def run(self):
                return 1


        def last():
            return 0
    """
    new = """
        class B(A):
            def run(self):
                return {}


    """
    at = base.index("        def last")
    ours = base[:at] + new.format(2).lstrip("\n").rstrip(" ") + base[at:]
    theirs = base[:at] + new.format("super().run() + 1").lstrip("\n").rstrip(" ") + base[at:]
    ported = carried(base, ours, theirs.replace("return 0", "return 9"))
    assert ported.outcome == "conflict"
    reasons = [hunk.reason for hunk in only(ported).hunks]
    assert reasons == ["the release has B already, in another form"]
