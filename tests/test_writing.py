"""Manifests edited with their comments kept, heads of patches, and patches as contents."""

from __future__ import annotations

from textwrap import dedent

import pytest

from patchkit.errors import Refused
from patchkit.manifest import parse_manifest
from patchkit.mapping import map_stripped
from patchkit.patchfile import parse
from patchkit.plan import Step
from patchkit.porting.edits import edits
from patchkit.porting.model import FileEdit
from patchkit.writing.headers import Head
from patchkit.writing.manifests import (
    add_assertions,
    add_variant,
    checked,
    edit_patches,
    move_assertions,
    set_range,
)
from tests.support.porting import DictTree

MANIFEST = """\
# what is said at the top
schema = 1
name = "b"
version = "1"
description = '''
An example, which is no table:
[[target]]
[[target.variant]]
it's "open'''

# why this one; it's "odd
[[target]]
distribution = "Acme"   # as upstream writes it

# the oldest
[[target.variant]]
versions = "==1.0"  # the first
patches = ["b/a.patch"]

# for later ones
[[ target . variant ]]
versions = ">=2.0"
patches = ["b/b.patch"]

# the other one
[[target]]
distribution = "bolt"
[[target.variant]]
versions = "==3.0"
patches = ["b/bolt.patch"]

# what must hold
[[assert]]
distribution = "acme"
file = "acme/a.py"
text = "x"
"""
COMMENTS = [line[line.index("#") :] for line in MANIFEST.splitlines() if "#" in line]


def variant(version: str) -> dict[str, object]:
    return {"versions": f"=={version}", "patches": [f"b/{version}.patch", "b/more.patch"]}


def ranges(text: str, distribution: str) -> list[str]:
    bundle = parse_manifest(text.encode(), "b")
    (target,) = [one for one in bundle.targets if one.distribution == distribution]
    return [one.versions for one in target.variants]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (0, ["==1.5", "==1.0", ">=2.0"]),
        (1, ["==1.0", "==1.5", ">=2.0"]),
        (2, ["==1.0", ">=2.0", "==1.5"]),
        (None, ["==1.0", ">=2.0", "==1.5"]),
        (9, ["==1.0", ">=2.0", "==1.5"]),
    ],
)
def test_a_variant_goes_where_it_belongs_and_comments_stay_with_theirs(
    before: int | None, expected: list[str]
) -> None:
    made = add_variant(MANIFEST, "acme", variant("1.5"), before)
    assert ranges(made, "acme") == expected
    assert ranges(made, "bolt") == ["==3.0"]
    added = made.splitlines()[: made.count("\n")]
    for line in MANIFEST.splitlines():  # nothing else was touched, and in the same order
        while added.pop(0) != line:
            pass
    for comment, below in (
        ("# the oldest", "[[target.variant]]"),
        ("# for later ones", "[[ target . variant ]]"),
        ("# the other one", "[[target]]"),
    ):
        assert f"{comment}\n{below}\n" in made


def test_a_distribution_without_a_target_gets_one() -> None:
    made = add_variant(MANIFEST, "cask", variant("1.5"))
    assert ranges(made, "cask") == ["==1.5"]
    assert ranges(made, "acme") == ["==1.0", ">=2.0"]


def test_tables_in_one_line_stay_so() -> None:
    text = dedent(
        """\
        schema = 1
        name = "b"
        version = "1"
        target = [
            { distribution = "acme", variant = [{ versions = "==1.0", patches = ["b/a.patch"] }] },
        ]
        """
    )
    assert ranges(add_variant(text, "acme", variant("0.9"), 0), "acme") == ["==0.9", "==1.0"]


def test_ranges_and_assertions_change_in_place() -> None:
    made = set_range(MANIFEST, "acme", "==1.0", ">=1.0,<=1.0.1")
    made = move_assertions(made, [(0, "acme/b.py", "1.1")])
    assert all(comment in made for comment in COMMENTS)
    assert ranges(made, "acme") == [">=1.0,<=1.0.1", ">=2.0"]
    bundle = parse_manifest(made.encode(), "b")
    assert [(a.file, a.versions) for a in bundle.asserts] == [
        ("acme/a.py", "!=1.1"),
        ("acme/b.py", "==1.1"),
    ]
    twice = add_assertions(made, [bundle.asserts[0]._replace(text="y")])
    assert len(parse_manifest(twice.encode(), "b").asserts) == 3


def test_a_name_written_as_upstream_does_is_the_same_distribution() -> None:
    made = edit_patches(
        MANIFEST, lambda dist, versions, have: [*have, "b/c.patch"] if dist == "acme" else have
    )
    bundle = parse_manifest(made.encode(), "b")
    assert [v.patches[-1] for v in bundle.targets[0].variants] == ["b/c.patch", "b/c.patch"]


def test_line_ends_stay_those_of_the_manifest() -> None:
    made = add_variant(MANIFEST.replace("\n", "\r\n"), "acme", variant("1.5"))
    made = add_variant(made, "cask", variant("1.5"))
    data = checked(made, "b")
    assert data.count(b"\n") == data.count(b"\r\n") > MANIFEST.count("\n")
    assert b"\r" not in checked(add_variant(MANIFEST, "acme", variant("1.5")), "b")


def test_fields_of_a_head_are_replaced_and_others_kept() -> None:
    data = (
        b"Description: Open it\n More of it.\n .\n Even more.\nOrigin: vendor\n"
        b"Bug: https://example.org/1\nX-Own: 1\nLast-Update: 2020-01-01\n\n"
        b"--- a/acme/a.py\n+++ b/acme/a.py\n@@ -1 +1 @@\n-a\n+b\n"
    )
    head = Head.of(data, "p.patch").with_fields(origin="ported", last_update="2026-01-02")
    assert head.render().decode() == dedent(
        """\
        Description: Open it
         More of it.
         .
         Even more.
        Origin: ported
        Bug: https://example.org/1
        Last-Update: 2026-01-02
        X-Own: 1

        """
    )


# -- patches as contents ----------------------------------------------------------------


def made_of(patch: str, files: dict[str, bytes | str]) -> tuple[FileEdit, ...]:
    parsed = parse(dedent(patch).encode(), "p.patch").files
    step = Step("b", "p.patch", "anywhere", map_stripped(parsed, 1).files)
    (one,) = edits(DictTree(files), [step])
    return one.files


ADDED = """\
    diff --git a/acme/run b/acme/run
    new file mode {mode}
    index 0000000..d00491f
    --- /dev/null
    +++ b/acme/run
    @@ -0,0 +1 @@
    +1
    {end}"""


def test_a_mode_is_what_the_patch_says_of_it() -> None:
    added = made_of(ADDED.format(mode="100755", end=""), {})
    assert added == (FileEdit(None, "acme/run", b"1\n", 0o755),)
    only_mode = """\
        diff --git a/acme/a.py b/acme/a.py
        old mode 100644
        new mode 100755
        """
    files: dict[str, bytes | str] = {"acme/a.py": b"a\n"}
    assert made_of(only_mode, files) == (FileEdit("acme/a.py", "acme/a.py", b"a\n", 0o755),)
    # The mode of an index line is what the file has, and sets none.
    line = """\
        diff --git a/acme/a.py b/acme/a.py
        index 7898192..6178079 100755
        --- a/acme/a.py
        +++ b/acme/a.py
        @@ -1 +1 @@
        -a
        +b
        """
    assert made_of(line, files) == (FileEdit("acme/a.py", "acme/a.py", b"b\n", None),)


def test_a_copy_leaves_what_it_is_a_copy_of_and_a_rename_does_not() -> None:
    both = """\
        diff --git a/acme/a.py b/acme/{new}
        similarity index 100%
        {word} from acme/a.py
        {word} to acme/{new}
        """
    files: dict[str, bytes | str] = {"acme/a.py": b"a\n"}
    copied = made_of(both.format(word="copy", new="b.py"), files)
    assert [one for one in copied if one.new == "acme/b.py"] == [
        FileEdit(None, "acme/b.py", b"a\n")
    ]
    assert all(one.new is not None for one in copied)
    renamed = made_of(both.format(word="rename", new="b.py"), files)
    assert renamed == (FileEdit("acme/a.py", "acme/b.py", b"a\n"),)


def test_a_file_that_a_patch_changes_twice_is_one_edit() -> None:
    part = """\
        --- a/acme/a.py
        +++ b/acme/a.py
        @@ -1 +1 @@
        -{}
        +{}
        """
    twice = dedent(part).format("a", "b") + dedent(part).format("b", "c")
    assert made_of(twice, {"acme/a.py": b"a\n"}) == (FileEdit("acme/a.py", "acme/a.py", b"c\n"),)


def test_a_symlink_is_refused_and_never_ported_as_a_file() -> None:
    with pytest.raises(Refused) as error:
        made_of(ADDED.format(mode="120000", end="\\ No newline at end of file\n"), {})
    assert error.value.code == "port-symlink" and error.value.file == "acme/run"
