"""A series carried to another release: what moved, what is gone, conflicts, resuming."""

from __future__ import annotations

import pytest

from patchkit.porting.engine import port, port_chain, resume
from patchkit.porting.model import FileEdit, PatchEdit
from tests.support.porting import PATH, DictTree, carried, only, outcomes, patch, problems, text

BODY = """
    import os


    class Pool:
        def allocate_block(self, count):
            block = self.free_blocks.pop(count)
            self.used_blocks.append(block)
            return block

        def release_block(self, block):
            self.used_blocks.remove(block)
            self.free_blocks.append(block)


    def describe_pool(pool):
        sizes = [len(pool.used_blocks), len(pool.free_blocks)]
        return ", ".join(str(size) for size in sizes)
"""
PATCHED = BODY.replace("self.used_blocks.remove(block)", "self.used_blocks.discard(block)")


@pytest.mark.parametrize(
    "theirs",
    [
        {"pkg/core/mod.py": BODY},  # the same bytes
        {"pkg/core/mod.py": BODY.replace("import os", "import os\n    import sys")},
        {"pkg/pool.py": BODY.replace("import os", "import sys")},  # another name too
    ],
)
def test_a_file_that_moved_is_followed(theirs: dict[str, str]) -> None:
    ported = carried(BODY, PATCHED, {**theirs, "pkg/other.py": "x = 1\n"})
    (path,) = theirs
    assert ported.outcome in ("unchanged", "offset", "merged")
    data = ported.contents[path]
    assert data is not None and b"discard" in data
    assert only(ported).notes


def test_of_two_files_that_are_like_it_none_is_taken() -> None:
    ported = carried(
        BODY, PATCHED, {"pkg/a.py": text(BODY) + b"\n", "pkg/b.py": text(BODY) + b"\n# b\n"}
    )
    assert ported.outcome == "conflict" and not ported.contents


def test_a_class_that_moved_to_another_file_takes_its_change_along() -> None:
    body = text(BODY).decode()
    at = body.index("def describe_pool")
    theirs = {
        PATH: "import os\n\nfrom pkg.pools import Pool\n\n\n" + body[at:],
        "pkg/pools.py": '"""Pools."""\n\n\n' + body[body.index("class Pool") : at].rstrip() + "\n",
    }
    ported = carried(BODY, PATCHED, theirs)
    assert ported.outcome in ("offset", "merged")
    assert set(ported.contents) == {"pkg/pools.py"}
    data = ported.contents["pkg/pools.py"]
    assert data is not None and b"discard" in data


def test_a_def_that_has_another_name_now_is_followed() -> None:
    theirs = BODY.replace("release_block", "give_block_back")
    ported = carried(BODY, PATCHED, theirs)
    assert only(ported).data == text(PATCHED.replace("release_block", "give_block_back"))


def test_a_def_that_is_wrapped_by_one_of_its_name_is_followed_inside() -> None:
    wrapper = "        def release_block(self, block):\n            self._release_block(block)\n\n"
    theirs = BODY.replace("def release_block", "def _release_block").replace(
        "        def _release", wrapper + "        def _release"
    )
    ported = carried(BODY, PATCHED, theirs)
    data = only(ported).data
    assert data is not None
    assert data.index(b"discard") > data.index(b"def _release_block")


def test_code_that_nothing_speaks_of_any_more_is_gone() -> None:
    body = text(BODY).decode()
    theirs = "import os\n\n\n" + body[body.index("def describe_pool") :].replace("_blocks", "")
    ported = carried(BODY, PATCHED, theirs)
    assert outcomes(ported) == ["gone"] and not ported.contents
    (hunk,) = only(ported).hunks
    assert "Pool" in hunk.reason and PATH in hunk.reason


def test_code_whose_names_live_on_elsewhere_is_a_conflict_and_not_gone() -> None:
    body = text(BODY).decode()
    theirs = {
        PATH: "import os\n\n\n" + body[body.index("def describe_pool") :],
        "pkg/blocks.py": "def release_block(pool, block):\n    pool.give(block)\n",
    }
    ported = carried(BODY, PATCHED, theirs)
    assert outcomes(ported) == ["conflict"]


def test_a_change_of_one_file_reads_no_other() -> None:
    base = DictTree({PATH: BODY, "pkg/big.py": "x = 1\n"})
    target = DictTree({PATH: text(BODY) + b"\nX = 1\n", "pkg/big.py": "x = 2\n"})
    assert port(base, target, [patch({PATH: PATCHED})]).outcome == "unchanged"
    assert target.read_paths == {PATH}


def test_files_that_are_added_and_removed() -> None:
    base = DictTree({PATH: BODY, "pkg/old.py": "x = 1\n"})
    series = [patch({"pkg/new.py": "y = 1\n", "pkg/old.py": None}, added=["pkg/new.py"])]
    ported = port(base, DictTree({PATH: BODY, "pkg/old.py": "x = 1\n"}), series)
    assert ported.contents == {"pkg/new.py": b"y = 1\n", "pkg/old.py": None}
    ported = port(base, DictTree({"pkg/new.py": "y = 1\n"}), series)
    assert ported.outcome == "upstream" and not ported.contents
    ported = port(base, DictTree({"pkg/new.py": "z = 1\n", "pkg/old.py": "x = 2\n"}), series)
    assert [f.outcome for f in ported.patches[0].files] == ["conflict", "conflict"]


def test_a_file_that_a_patch_renames_is_renamed_from_where_it_is() -> None:
    edit = FileEdit(PATH, "pkg/renamed.py", text(PATCHED))
    base = DictTree({PATH: BODY})
    ported = port(base, DictTree({PATH: text(BODY) + b"\nX = 1\n"}), [PatchEdit("p", (edit,))])
    assert ported.contents[PATH] is None
    assert ported.contents["pkg/renamed.py"] == text(PATCHED) + b"\nX = 1\n"


def test_a_later_patch_builds_on_an_earlier_one() -> None:
    second = PATCHED.replace("discard(block)", "discard(block, 1)")
    series = [patch({PATH: PATCHED}, "1"), patch({PATH: second}, "2")]
    ported = port(DictTree({PATH: BODY}), DictTree({PATH: "X = 1\n" + text(BODY).decode()}), series)
    assert [p.outcome for p in ported.patches] == ["merged", "merged"] or (
        [p.outcome for p in ported.patches] == ["offset", "offset"]
    )
    assert ported.contents[PATH] == b"X = 1\n" + text(second)


CLASH = BODY.replace("self.used_blocks.remove(block)", "self.used_blocks.drop(block, now=True)")


def test_a_conflict_shows_the_three_sides_and_keeps_what_was_placed() -> None:
    ours = PATCHED.replace("import os", "import os\n    import sys")
    ported = carried(BODY, ours, CLASH)
    (file,) = ported.conflicts
    assert not ported.contents
    assert (file.base, file.ours, file.theirs) == (text(BODY), text(ours), text(CLASH))
    assert file.marked is not None
    marked = file.marked.decode()
    assert "import sys\n" in marked
    start, middle, bar, end = (marked.index(m * 7) for m in "<|=>")
    assert start < marked.index("drop(block") < middle < marked.index("remove(block)") < bar
    assert bar < marked.index("discard(block)") < end


def test_a_hand_merge_must_be_free_of_markers_and_compile() -> None:
    ported = carried(BODY, PATCHED, CLASH)
    (file,) = ported.conflicts
    assert file.marked is not None
    again = resume(ported, {("p", PATH): file.marked})
    assert problems(again) == {"markers"}
    broken = text(CLASH).replace(b"drop(", b"drop((")
    assert problems(resume(ported, {("p", PATH): broken})) == {"syntax"}
    elsewhere = text(
        CLASH.replace("append(block)\n            return", "add(block)\n            return")
    )
    own = resume(ported, {("p", PATH): elsewhere})  # another change: theirs to say
    assert own.contents == {PATH: elsewhere}
    done = text(CLASH).replace(b".drop(block, now=True)", b".discard(block, now=True)")
    again = resume(ported, {("p", PATH): done})
    assert again.contents == {PATH: done}


def test_a_conflict_resolved_to_what_upstream_has_is_upstream() -> None:
    ported = carried(BODY, PATCHED, CLASH)
    again = resume(ported, {("p", PATH): text(CLASH)})
    assert again.outcome == "upstream" and not again.contents


def test_a_chain_goes_on_from_the_nearest_release_that_took_the_patch() -> None:
    steps = [BODY]
    for n in range(3):
        steps.append(steps[-1].replace("import os", f"import os\n    import extra{n}"))
    steps[2] = steps[2].replace("def release_block", "def give_block")
    steps[3] = steps[3].replace("def release_block", "def give_block")
    chain = port_chain([DictTree({PATH: step}) for step in steps], [patch({PATH: PATCHED})])
    assert len(chain.steps) == 3 and "conflict" not in chain.steps
    data = chain.last.contents[PATH]
    assert data == text(steps[3].replace("remove(block)", "discard(block)"))


def test_a_chain_does_not_forget_what_one_release_had_and_the_next_took_back() -> None:
    trees = [DictTree({PATH: step}) for step in (BODY, PATCHED, text(BODY) + b"\nX = 1\n")]
    chain = port_chain(trees, [patch({PATH: PATCHED})])
    assert chain.steps[0] == "upstream"
    assert chain.last.contents[PATH] == text(PATCHED) + b"\nX = 1\n"


RUNNER = """
    from pkg.weights import Weights


    class Runner(Weights):
        def table(self):
            return [
                (1, self.load_weights),
                (2, self.drop_weights),
            ]
"""
WEIGHTS = """
    class Weights:
        def load_weights(self, name):
            self.weights[name] = read(name)
            return self.weights[name]

        def drop_weights(self, name):
            del self.weights[name]
            return name
"""


@pytest.mark.parametrize("inherits", [True, False])
def test_a_method_that_a_class_takes_from_another_file_must_still_be_inherited(
    inherits: bool,
) -> None:
    ours = {
        "pkg/run.py": RUNNER.replace(
            "(1, self.load_weights),",
            "(1, self.load_weights),\n                (3, self.check_weights),",
        ),
        "pkg/weights.py": WEIGHTS.replace(
            "        def drop",
            "        def check_weights(self, name):\n            return name in self.weights\n\n"
            "        def drop",
        ),
    }
    run = RUNNER.replace("(2,", "(4,")
    if not inherits:
        run = run.replace("(Weights)", "").replace("self.load", "self.store.load")
        run = run.replace("self.drop", "self.store.drop")
    sized = WEIGHTS.replace("class Weights:", "class Weights:\n        size = 1\n")
    theirs = {"pkg/run.py": run, "pkg/weights.py": sized}
    base = DictTree({"pkg/run.py": RUNNER, "pkg/weights.py": WEIGHTS})
    ported = port(base, DictTree(theirs), [patch(ours)])
    if inherits:
        assert ported.outcome in ("merged", "offset")
        assert b"self.check_weights" in (ported.contents["pkg/run.py"] or b"")
        return
    assert ported.outcome == "conflict" and "pkg/run.py" not in ported.contents
    (file,) = ported.conflicts
    assert [one.message for one in file.problems] == [
        "self.check_weights is of Weights there, which Runner does not inherit"
    ]
    assert file.marked is not None
    fixed = file.marked.replace(b"self.check", b"self.store.check")
    assert resume(ported, {("p", "pkg/run.py"): fixed}).contents["pkg/run.py"] == fixed


LIMITS = """
    import os

    # leave time for what comes behind the load
    LOAD_TIMEOUT_SECONDS = 480  # of the slowest rank

    NAMES_TO_LOAD = [
        "first_weight_name",
        "second_weight_name",
    ]


    def load(path):
        return wait(path, LOAD_TIMEOUT_SECONDS, NAMES_TO_LOAD)
"""
LIMITS_PATCHED = LIMITS.replace("= 480", "= 1800").replace(
    '        "second_weight_name",\n',
    '        "second_weight_name",\n        "third_weight_name",\n',
)


def _moved_limits() -> tuple[str, str]:
    start, end = LIMITS.index("    LOAD_TIMEOUT"), LIMITS.index("\n\n    def load")
    here = LIMITS[:start] + "    from pkg.limits import *\n" + LIMITS[end:]
    return here, "    import sys\n\n" + LIMITS[start:end]


def test_a_constant_that_moved_to_another_file_takes_its_change_along() -> None:
    here, there = _moved_limits()
    ported = carried(LIMITS, LIMITS_PATCHED, {PATH: here, "pkg/limits.py": there})
    assert ported.outcome == "merged"
    assert set(ported.contents) == {"pkg/limits.py"}
    assert ported.contents["pkg/limits.py"] == text(
        there.replace("= 480", "= 1800").replace(
            '        "second_weight_name",\n',
            '        "second_weight_name",\n        "third_weight_name",\n',
        )
    )


@pytest.mark.parametrize("case", ["two places", "another value", "there before"])
def test_a_constant_that_has_no_one_place_is_a_conflict(case: str) -> None:
    here, there = _moved_limits()
    base = {PATH: text(LIMITS)}
    files = {PATH: here, "pkg/limits.py": there}
    if case == "two places":
        files["pkg/others.py"] = there
    elif case == "another value":
        files["pkg/limits.py"] = there.replace("= 480", "= 600").replace("first_weight", "weight")
    else:
        base["pkg/limits.py"] = text(there + "    X = 1\n")
    ported = carried(base, LIMITS_PATCHED, files)
    assert ported.outcome == "conflict" and not ported.contents


TWO_DEFS = """
    import os


    def first_of_two(name, size):
        kept = os.path.join(name, "first")
        return [kept] * size


    def second_of_two(name, size):
        kept = os.path.join(name, "second")
        return {kept: size}


    def stays_here(name):
        return name
"""


def _split_in_two() -> tuple[str, str]:
    start, end = TWO_DEFS.index("    def first"), TWO_DEFS.index("    def stays")
    return TWO_DEFS[:start] + TWO_DEFS[end:], "    import os\n\n\n" + TWO_DEFS[start:end]


def test_two_defs_that_moved_to_one_file_both_take_their_changes_along() -> None:
    here, there = _split_in_two()
    ours = TWO_DEFS.replace("[kept] * size", "[kept, name] * size").replace(
        "{kept: size}", "{kept: size + 1}"
    )
    ported = carried(TWO_DEFS, ours, {PATH: here, "pkg/two.py": there})
    assert ported.outcome in ("merged", "offset")
    data = ported.contents["pkg/two.py"] or b""
    assert b"[kept, name] * size" in data and b"{kept: size + 1}" in data


def test_a_def_that_moved_into_a_file_that_the_patch_changes_too() -> None:
    here, there = _split_in_two()
    base = {PATH: TWO_DEFS, "pkg/two.py": "    TWO = 2\n    END = 3\n"}
    theirs = {PATH: here, "pkg/two.py": base["pkg/two.py"] + "\n" + there}
    changed = patch(
        {
            "pkg/two.py": base["pkg/two.py"].replace("TWO = 2", "TWO = 22"),
            PATH: TWO_DEFS.replace("[kept] * size", "[kept, name] * size"),
        }
    )
    for order in (changed, changed._replace(files=changed.files[::-1])):
        ported = port(DictTree(base), DictTree(theirs), [order])
        data = ported.contents["pkg/two.py"] or b""
        assert ported.outcome in ("merged", "offset")
        assert b"TWO = 22" in data and b"[kept, name] * size" in data


@pytest.mark.parametrize("last", ["pkg/two.py", PATH])
def test_two_conflicts_in_one_file_are_resolved_together(last: str) -> None:
    more = "".join(f"        step_{n} = len(name) + size * {n}\n" for n in range(6))
    longer = TWO_DEFS.replace("        return [kept]", f"{more}        return [kept]")
    here, there = _split_in_two()
    there = there.replace("        return [kept]", f"{more}        return [kept]")
    there = there.replace("[kept] * size", "[kept] * len(name)")
    base = {PATH: longer, "pkg/two.py": "    TWO = 2\n    END = 3\n"}
    theirs = {PATH: here, "pkg/two.py": "    TWO = 5\n    END = 3\n\n" + there}
    ours = {
        "pkg/two.py": base["pkg/two.py"].replace("TWO = 2", "TWO = 22"),
        PATH: longer.replace("[kept] * size", "[kept, name] * (size + 1)"),
    }
    changed = patch({path: ours[path] for path in sorted(ours, key=lambda path: path == last)})
    ported = port(DictTree(base), DictTree(theirs), [changed])
    assert not ported.contents
    # The one that comes last shows both, or says where the def went.
    assert [file.path for file in ported.conflicts] == ["pkg/two.py", last]
    shown = ported.conflicts[-1]
    assert shown.marked is not None and shown.theirs == text(theirs[last])
    assert b"[kept, name] * (size + 1)" in shown.marked
    assert last == PATH or b"TWO = 22" in shown.marked
    merged = (
        text(theirs["pkg/two.py"])
        .replace(b"TWO = 5", b"TWO = 22")
        .replace(b"[kept] * len(name)", b"[kept, name] * (len(name) + 1)")
    )
    done = resume(ported, {("p", "pkg/two.py"): merged})
    assert done.outcome == "merged" and done.contents == {"pkg/two.py": merged}
