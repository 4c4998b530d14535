"""Header paths of a patch to paths of a distribution: the forms that real patches have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.errors import Refused
from patchkit.mapping import Form, Known, Mapping, check_path, map_patch, map_stripped, strip_path
from patchkit.model import FilePatch
from patchkit.patchfile import parse

SGLANG = (
    "sglang/__init__.py",
    "sglang/launch_server.py",
    "sglang/version.py",
    "sglang/srt/server_args.py",
    "sglang/srt/utils.py",
    "sglang/srt/utils/common.py",
    "sglang/srt/layers/communicator.py",
    "sglang/srt/layers/utils.py",
    "sglang/srt/models/qwen3.py",
    "sglang/test/runners.py",
    "sglang/multimodal_gen/utils.py",
)
FLASHINFER = (
    "flashinfer/__init__.py",
    "flashinfer/jit/comm.py",
    "flashinfer/comm/trtllm_ar.py",
    "flashinfer/data/csrc/norm.cu",
    "flashinfer/data/csrc/fused/gate.cu",
    "flashinfer/data/include/flashinfer/norm.cuh",
    "flashinfer/data/cutlass/include/cutlass/cutlass.h",
    "build_backend.py",
)
BODY = "@@ -1 +1 @@\n-a\n+b\n"


def files(*paths: str) -> tuple[FilePatch, ...]:
    """A patch that changes files; ``new:`` adds one, ``old:`` removes one, ``x -> y`` renames."""
    out = []
    for path in paths:
        word, _, rest = path.partition(":")
        if word == "new":
            out.append(f"--- /dev/null\n+++ {rest}\n@@ -0,0 +1 @@\n+a\n")
        elif word == "old":
            out.append(f"--- {rest}\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n")
        elif " -> " in path:
            old, new = path.split(" -> ")
            out.append(
                f"diff --git a/{old} b/{new}\nsimilarity index 100%\n"
                f"rename from {old}\nrename to {new}\n"
            )
        elif " | " in path:
            old, new = path.split(" | ")
            out.append(f"--- {old}\n+++ {new}\n{BODY}")
        else:
            new = "b" + path[1:] if path.startswith("a/") else path
            out.append(f"--- {path}\n+++ {new}\n{BODY}")
    return parse("".join(out).encode(), "x").files


def mapped(*paths: str, known: tuple[str, ...] = SGLANG) -> Mapping:
    return map_patch(files(*paths), Known(known))


def places(mapping: Mapping) -> list[str]:
    return [file.path for file in mapping.files]


def refused(*paths: str, known: tuple[str, ...] = SGLANG) -> Refused:
    with pytest.raises(Refused) as caught:
        mapped(*paths, known=known)
    return caught.value


# -- each form of real-patches.md --------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "known", "place", "strip", "prefix"),
    [
        # of the repository
        ("a/python/sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 2, ""),
        ("python/sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 1, ""),
        ("i/python/sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 2, ""),
        # of the package
        ("a/sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 1, ""),
        ("sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 0, ""),
        ("old/sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 1, ""),
        # relative to the package
        ("a/srt/models/qwen3.py", SGLANG, "sglang/srt/models/qwen3.py", 1, "sglang/"),
        ("srt/models/qwen3.py", SGLANG, "sglang/srt/models/qwen3.py", 0, "sglang/"),
        ("a/jit/comm.py", FLASHINFER, "flashinfer/jit/comm.py", 1, "flashinfer/"),
        # another root
        ("src/sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 1, ""),
        ("../../my-sglang/python/sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 4, ""),
        ("/home/me/work/sglang/python/sglang/version.py", SGLANG, "sglang/version.py", 6, ""),
        ("./sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 1, ""),
        ("a//python//sglang/srt/utils.py", SGLANG, "sglang/srt/utils.py", 2, ""),
        # absolute, in site-packages
        (
            "/usr/lib/python3/dist-packages/sglang/srt/utils.py",
            SGLANG, "sglang/srt/utils.py", 5, "",
        ),
        (
            "a/opt/venv/lib/python3.12/site-packages/sglang/srt/utils.py",
            SGLANG, "sglang/srt/utils.py", 6, "",
        ),
        # sources that the wheel keeps as data
        ("a/csrc/norm.cu", FLASHINFER, "flashinfer/data/csrc/norm.cu", 1, "flashinfer/data/"),
        (
            "a/include/flashinfer/norm.cuh",
            FLASHINFER, "flashinfer/data/include/flashinfer/norm.cuh", 1, "flashinfer/data/",
        ),
        # a bare name
        ("qwen3.py", SGLANG, "sglang/srt/models/qwen3.py", 0, "sglang/srt/models/"),
        ("a/qwen3.py", SGLANG, "sglang/srt/models/qwen3.py", 1, "sglang/srt/models/"),
        ("w/qwen3.py", SGLANG, "sglang/srt/models/qwen3.py", 1, "sglang/srt/models/"),
        ("old/qwen3.py", SGLANG, "sglang/srt/models/qwen3.py", 1, "sglang/srt/models/"),
        ("new/qwen3.py", SGLANG, "sglang/srt/models/qwen3.py", 1, "sglang/srt/models/"),
        ("launch_server.py", SGLANG, "sglang/launch_server.py", 0, "sglang/"),
        ("/tmp/launch_server.py", SGLANG, "sglang/launch_server.py", 2, "sglang/"),
        ("a/build_backend.py", FLASHINFER, "build_backend.py", 1, ""),
    ],
)  # fmt: skip
def test_forms(path: str, known: tuple[str, ...], place: str, strip: int, prefix: str) -> None:
    mapping = mapped(path, known=known)
    assert places(mapping) == [place]
    (form,) = mapping.forms
    assert (form.strip, form.prefix) == (strip, prefix)
    assert mapping.left_out == ()


def test_mixed_forms_are_decided_one_by_one() -> None:
    mapping = mapped("a/python/sglang/srt/utils.py", "a/srt/models/qwen3.py", "sglang/version.py")
    assert places(mapping) == [
        "sglang/srt/utils.py",
        "sglang/srt/models/qwen3.py",
        "sglang/version.py",
    ]
    assert set(mapping.forms) == {
        Form("python", 2, ""),
        Form("srt", 1, "sglang/"),
        Form("sglang", 0, ""),
    }


@pytest.mark.parametrize("prefix", ["a/", "b/", "i/", "w/", "c/", "o/", ""])
def test_a_form_is_named_by_what_stands_behind_gits_prefix(prefix: str) -> None:
    (form,) = mapped(f"{prefix}srt/models/qwen3.py").forms
    assert form.example == "srt"
    (form,) = mapped(f"{prefix}qwen3.py").forms
    assert form.example == "."


def test_one_strip_and_prefix_for_a_form() -> None:
    """Files of a form follow the one that is known; what they miss is for the plan to say."""
    mapping = mapped("a/python/sglang/srt/utils.py", "a/python/sglang/srt/gone.py")
    assert places(mapping) == ["sglang/srt/utils.py", "sglang/srt/gone.py"]


def test_both_sides_are_mapped() -> None:
    (file,) = mapped("python/sglang/srt/utils.py -> python/sglang/srt/moved/utils.py").files
    assert (file.old, file.new) == ("sglang/srt/utils.py", "sglang/srt/moved/utils.py")
    assert file.path == "sglang/srt/moved/utils.py"
    (file,) = mapped("python/sglang/srt/utils.py -> python/sglang/u.py").files
    assert (file.old, file.new) == ("sglang/srt/utils.py", "sglang/u.py")
    (file,) = mapped("old:a/python/sglang/version.py").files
    assert (file.old, file.new, file.path) == ("sglang/version.py", None, "sglang/version.py")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("new:b/python/sglang/srt/new.py", "sglang/srt/new.py"),
        ("new:b/sglang/srt/layers/new.py", "sglang/srt/layers/new.py"),
        ("new:b/srt/layers/new.py", "sglang/srt/layers/new.py"),
        ("new:sglang/srt/layers/new.py", "sglang/srt/layers/new.py"),
    ],
)
def test_a_new_file_goes_where_its_folder_is(path: str, place: str) -> None:
    (file,) = mapped(path).files
    assert (file.old, file.new) == (None, place)


def test_a_new_file_in_a_new_folder_follows_its_neighbours() -> None:
    mapping = mapped("a/python/sglang/version.py", "new:b/python/sglang/brand/new/x.py")
    assert places(mapping)[1] == "sglang/brand/new/x.py"


def test_paths_that_an_earlier_patch_changed() -> None:
    known = Known(SGLANG)
    known.add("sglang/brand/new.py")
    known.discard("sglang/version.py")
    mapping = map_patch(files("a/python/sglang/brand/new.py"), known)
    assert places(mapping) == ["sglang/brand/new.py"]
    assert places(map_patch(files("new:b/sglang/brand/x.py"), known)) == ["sglang/brand/x.py"]
    with pytest.raises(Refused):
        map_patch(files("a/sglang/version.py"), known)
    known.add("sglang/later/on/new.py")
    for name in ("sglang/later/x.py", "sglang/later/on/x.py"):
        assert places(map_patch(files(f"new:b/{name}"), known)) == [name]


def test_folders_are_those_above_a_file() -> None:
    known = Known(["p/q/r/x.py", "y.py"])
    assert known.folders == {"p", "p/q", "p/q/r"}
    assert not known.has_folder("")


# -- ambiguity ---------------------------------------------------------------------------------


def test_a_bare_name_that_several_folders_hold() -> None:
    error = refused("utils.py")
    assert error.code == "path-ambiguous"
    assert sorted(error.data["candidates"]) == [
        "sglang/multimodal_gen/utils.py",
        "sglang/srt/layers/utils.py",
        "sglang/srt/utils.py",
    ]
    assert "fits 3 files" in error.message
    assert (error.file, error.line) == ("utils.py", 1)
    assert "--strip N" in (error.hint or "")


def test_bare_names_that_one_folder_alone_holds_together() -> None:
    assert places(mapped("utils.py", "communicator.py")) == [
        "sglang/srt/layers/utils.py",
        "sglang/srt/layers/communicator.py",
    ]


def test_a_path_that_two_packages_hold() -> None:
    known = ("one/core/x.py", "two/core/x.py", "two/y.py")
    error = refused("a/core/x.py", known=known)
    assert error.code == "path-ambiguous"
    assert sorted(error.data["candidates"]) == ["one/core/x.py", "two/core/x.py"]
    # Another file of the form decides it.
    assert "--strip N" in (error.hint or "")
    known = ("one/core/x.py", "two/core/x.py", "two/core/z.py")
    assert places(mapped("a/core/x.py", "a/core/z.py", known=known)) == [
        "two/core/x.py",
        "two/core/z.py",
    ]


def test_a_path_that_is_there_with_and_without_a_prefix() -> None:
    known = ("lib/lib/x.py", "lib/x.py")
    assert places(mapped("a/lib/lib/x.py", known=known)) == ["lib/lib/x.py"]
    error = refused("a/lib/x.py", known=known)
    assert error.code == "path-ambiguous"
    assert sorted(error.data["candidates"]) == ["lib/lib/x.py", "lib/x.py"]


def test_of_as_many_hits_the_one_that_keeps_more_of_the_path_counts() -> None:
    known = ("lib/lib/x.py", "lib/x.py")
    assert places(mapped("a/lib/lib/x.py", "a/lib/lib/gone.py", known=known)) == [
        "lib/lib/x.py",
        "lib/lib/gone.py",
    ]


def test_more_hits_with_less_of_the_path_are_ambiguous() -> None:
    known = ("p/x.py", "q/x.py", "q/y.py")
    error = refused("a/p/x.py", "a/p/y.py", known=known)
    assert (error.code, error.data["candidates"]) == ("path-ambiguous", ["p/x.py", "q/x.py"])


def test_a_bare_name_at_the_top_is_the_file_there() -> None:
    assert places(mapped("x.py", known=("x.py", "p/q/x.py"))) == ["x.py"]


def test_a_bare_name_may_be_old() -> None:
    assert places(mapped("a/old", known=("p/q/old", "p/q/new"))) == ["p/q/old"]


def test_bare_names_beside_others_of_their_form_are_not_looked_for() -> None:
    """``old/x.py`` names a folder or none; the folder ``old`` it has beside ``old/y/x.py``."""
    assert refused("old/qwen3.py", "old/y/qwen3.py").code == "path-not-found"


def test_a_suffix_alone_is_no_match() -> None:
    """A free search by suffix matched files of unrelated projects."""
    error = refused("a/vllm/layers/communicator.py")
    assert error.code == "path-not-found"
    assert "b/vllm/layers/communicator.py" in error.message
    assert (error.file, error.line) == ("b/vllm/layers/communicator.py", 1)
    assert refused("vllm/qwen3.py").code == "path-not-found"
    assert "--strip N" in (error.hint or "")


# -- what no wheel holds -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "a/test/srt/test_utils.py",
        "a/tests/test_x.py",
        "a/docs/index.rst",
        "a/benchmark/bench.py",
        "a/.github/workflows/ci.yml",
        "a/sgl-kernel/csrc/x.cu",
        "a/sgl-router/src/main.rs",
        "a/docker/Dockerfile",
        "a/README.md",
        "a/python/pyproject.toml",
        "a/setup.py",
        "a/CMakeLists.txt",
        "a/.gitignore",
        "a/3rdparty/amd/x.patch",
        "a/scripts/ci/run.sh",
        "a/csrc/x.cu",
        "a/src/setup.py",
        "a/.clang-format",
        "a/.buildkite/pipeline.py",
    ],
)
def test_files_of_the_repository_alone_are_left_out_and_listed(path: str) -> None:
    mapping = mapped("a/python/sglang/srt/utils.py", path)
    assert places(mapping) == ["sglang/srt/utils.py"]
    assert mapping.left_out == (path.replace("a/", "b/", 1),)
    for name in (path.replace("a/", "w/", 1), path.replace("a/", "", 1)):
        assert mapped("a/python/sglang/srt/utils.py", name).left_out == (name,)
    assert mapped("a/python/sglang/srt/utils.py", f"old:{path}").left_out == (path,)


def test_a_folder_of_tests_inside_the_package_is_patched() -> None:
    mapping = mapped("a/python/sglang/test/runners.py", "a/python/sglang/test/new.py")
    assert places(mapping) == ["sglang/test/runners.py", "sglang/test/new.py"]
    assert places(mapped("a/test/runners.py")) == ["sglang/test/runners.py"]
    assert places(mapped("old:a/test/runners.py")) == ["sglang/test/runners.py"]
    beside = "a/python/sglang/srt/utils.py"
    assert places(mapped(beside, "a/test/runners.py", "a/test/gone.py")) == [
        "sglang/srt/utils.py",
        "sglang/test/runners.py",
        "sglang/test/gone.py",
    ]


def test_a_new_file_beside_paths_of_the_repository_follows_a_folder_of_the_package() -> None:
    mapping = mapped("a/python/sglang/srt/utils.py", "new:b/srt/layers/new.py")
    assert places(mapping) == ["sglang/srt/utils.py", "sglang/srt/layers/new.py"]


def test_files_beside_the_package_are_those_that_the_wheel_holds() -> None:
    """FlashInfer's wheel holds ``build_backend.py``, and nothing else of that kind."""
    mapping = mapped(
        "a/build_backend.py", "new:b/setup.py", "a/flashinfer/jit/comm.py", known=FLASHINFER
    )
    assert places(mapping) == ["build_backend.py", "flashinfer/jit/comm.py"]
    assert mapping.left_out == ("b/setup.py",)


@pytest.mark.parametrize("path", ["a", "b", "python", "src", "a/src", "vllm/.hidden/x.py"])
def test_odd_names_are_not_left_out(path: str) -> None:
    assert refused("a/python/sglang/srt/utils.py", f"old:{path}").code == "path-not-found"


def test_a_file_that_is_none_of_these_is_never_left_out() -> None:
    error = refused("a/python/sglang/srt/utils.py", "a/vllm/engine.py")
    assert error.code == "path-not-found"
    assert error.line == 6


def test_a_patch_of_nothing_but_such_files() -> None:
    error = refused("a/test/x.py", "a/docs/y.md")
    assert error.code == "path-not-found"
    assert error.data["left_out"] == ["b/test/x.py", "b/docs/y.md"]
    assert error.detail == ("left out: b/test/x.py", "left out: b/docs/y.md")
    assert error.message == "no file of the patch is one that the distribution holds"
    assert "tests, docs or build files" in (error.hint or "")


@pytest.mark.parametrize(
    "path",
    [
        "b/test/registered/new_test.py",
        "b/test/new_test.py",
        "b/docs/advanced/new.md",
        "b/benchmark/new.py",
        "b/requirements.txt",
        "b/csrc/new.cu",
    ],
)
def test_new_files_of_the_repository_alone_are_left_out(path: str) -> None:
    mapping = mapped("a/python/sglang/srt/utils.py", f"new:{path}")
    assert places(mapping) == ["sglang/srt/utils.py"]
    assert mapping.left_out == (path,)


@pytest.mark.parametrize("path", ["b/vllm/core/new.py", "b/new.py", "b/deep/er/new.py"])
def test_a_new_file_of_another_project_is_refused(path: str) -> None:
    assert refused("a/python/sglang/srt/utils.py", f"new:{path}").code == "path-not-found"


def test_a_new_source_among_those_that_the_wheel_keeps_as_data() -> None:
    mapping = mapped("a/csrc/norm.cu", "new:b/csrc/new.cu", known=FLASHINFER)
    assert places(mapping)[1] == "flashinfer/data/csrc/new.cu"
    assert places(mapped("new:b/csrc/new.cu", known=FLASHINFER)) == ["flashinfer/data/csrc/new.cu"]


# -- a strip level that is given ---------------------------------------------------------------


def test_strip_decides_alone() -> None:
    mapping = map_stripped(files("a/python/sglang/x.py", "new:b/python/test/y.py"), 2)
    assert places(mapping) == ["sglang/x.py", "test/y.py"]
    assert mapping.left_out == ()
    assert mapping.forms == (Form("", 2, ""),)
    assert places(map_stripped(files("a/x.py"), 0)) == ["b/x.py"]


@pytest.mark.parametrize("strip", [2, 3, 99])
def test_strip_that_leaves_nothing(strip: int) -> None:
    with pytest.raises(Refused) as caught:
        map_stripped(files("a/y/x.py", "a/x.py"), strip)
    error = caught.value
    assert error.code == "path-not-found"
    assert f"at strip level {strip}" in error.message
    assert (error.line, error.file) == ((6, "b/x.py") if strip == 2 else (1, "b/y/x.py"))
    assert "a smaller strip level" in (error.hint or "")


def test_strip_that_leaves_one_of_two_names() -> None:
    for names in ("x/y -> z", "z -> x/y"):
        with pytest.raises(Refused) as caught:
            map_stripped(files(names), 2)
        assert caught.value.code == "path-not-found"


@pytest.mark.parametrize(
    ("path", "count", "rest"),
    [
        ("a/b/c", 0, "a/b/c"),
        ("a/b/c", 1, "b/c"),
        ("a/b/c", 2, "c"),
        ("a/b/c", 3, None),
        ("a//b///c", 1, "b/c"),
        ("a//b///c", 2, "c"),
        ("/a/b", 0, None),
        ("/a/b", 1, "a/b"),
        ("//a/b", 1, "a/b"),
        ("/a/b", 2, "b"),
        ("", 0, None),
        ("a/", 1, None),
    ],
)
def test_strip_counts_parts(path: str, count: int, rest: str | None) -> None:
    assert strip_path(path, count) == rest


# -- paths that would lead out -----------------------------------------------------------------

HOSTILE = [
    "..", "../x", "x/../../y", "x/..", "./x", "x/./y", "/etc/passwd", "", "x//y", "x/", "nul\0x",
    "C:/x", "c:", "~/x", "~root/x", ".git/config", "x/.git/hooks/pre-commit", "x/.GIT/config",
    ".patchkit/state.json", "x/.PatchKit/y", "six-1.0.dist-info/RECORD", "SIX-1.0.DIST-INFO/x",
    "x/y.pyc", "y.pyo", "x/__pycache__/y.py",
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_paths(path: str) -> None:
    with pytest.raises(Refused) as caught:
        check_path(path)
    assert caught.value.code == "bad-path"
    assert repr(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "path",
    [
        *("x", "x/y", "...", "x/..y", "x~", ".gitignore", "git/x", "x/dist-info/y", "C", "CC:/x"),
        *("x.pyi", "pycache/x"),
    ],
)
def test_paths_that_are_odd_and_harmless(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize("path", [p for p in HOSTILE if p and "\0" not in p and p[-1] != "/"])
def test_hostile_paths_are_refused_by_the_strip_level(path: str) -> None:
    for name in (f"a/{path}", f"new:b/{path}", f"old:a/{path}"):
        if "//" in path:
            continue
        if path.startswith("/"):
            # A leading slash is gone with the part before it.
            assert places(map_stripped(files(name), 1)) == [path.lstrip("/")]
            continue
        with pytest.raises(Refused) as caught:
            map_stripped(files(name), 1)
        assert caught.value.code in ("bad-path", "path-not-found")
        assert caught.value.line == 1
        assert caught.value.file in (f"a/{path}", f"b/{path}")


@pytest.mark.parametrize("path", HOSTILE[1:7])
def test_hostile_paths_never_find_a_file(path: str) -> None:
    try:
        mapping = mapped("a/sglang/version.py", f"a/{path}")
    except Refused:
        return
    assert places(mapping) == ["sglang/version.py"]
    assert mapping.left_out == (f"b/{path}",)


_PARTS = st.sampled_from(["a", "..", ".", "", "/", ".git", "x.dist-info", "~", "C:", "sglang"])


@given(st.lists(_PARTS))
def test_what_is_mapped_stays_inside(parts: list[str]) -> None:
    path = "/".join(["a", *parts, "version.py"])
    for strip in range(4):
        try:
            mapping = map_stripped(files(path), strip)
        except Refused:
            continue
        for place in places(mapping):
            assert not place.startswith(("/", "~", "C:"))
            assert not {"", ".", "..", ".git", "x.dist-info"} & set(place.split("/"))


# -- two names in a plain header ---------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "old/sglang/version.py | new/sglang/version.py",
        "sglang.orig/sglang/version.py | sglang/sglang/version.py",
        "a/sglang/version.py | b/sglang/version.py",
    ],
)
def test_two_folders(path: str) -> None:
    (file,) = map_stripped(files(path), 1).files
    assert (file.old, file.new) == ("sglang/version.py", "sglang/version.py")


def test_a_backup_beside_the_file() -> None:
    (file,) = map_stripped(files("a/version.py.orig | b/version.py"), 1).files
    assert (file.old, file.new) == ("version.py", "version.py")


@pytest.mark.parametrize("suffix", ["+", ".new", "~", ".patched"])
def test_a_changed_copy_beside_the_file(suffix: str) -> None:
    (file,) = map_stripped(files(f"a/version.py | b/version.py{suffix}"), 1).files
    assert (file.old, file.new) == ("version.py", "version.py")


@pytest.mark.parametrize(
    "path", ["sglang/version.py.orig | sglang/version.py", "/tmp/old.py | sglang/version.py"]
)
def test_a_backup_beside_the_file_found_by_itself(path: str) -> None:
    (file,) = mapped(path).files
    assert (file.old, file.new) == ("sglang/version.py", "sglang/version.py")


def test_a_bare_backup_of_a_file_that_an_absolute_path_names() -> None:
    site = "/usr/lib/python3/dist-packages"
    (file,) = mapped(f"common.py.origin | {site}/sglang/srt/utils/common.py").files
    assert (file.old, file.new) == ("sglang/srt/utils/common.py", "sglang/srt/utils/common.py")


def test_a_name_of_which_strip_leaves_nothing() -> None:
    (file,) = map_stripped(files("version.py | ../version.py"), 1).files
    assert (file.old, file.new) == ("version.py", "version.py")


def test_two_names_that_no_rename_joins() -> None:
    data = f"diff --git a/p/x b/q/x\n--- a/p/x\n+++ b/q/x\n{BODY}"
    (file,) = map_stripped(parse(data.encode(), "x").files, 2).files
    assert (file.old, file.new) == ("x", "x")
    with pytest.raises(Refused) as caught:
        map_stripped(parse(data.encode(), "x").files, 1)
    error = caught.value
    assert (error.code, error.file, error.line) == ("two-names", "b/q/x", 1)
    assert error.message == "two names for one file, p/x and q/x, and no rename"
    assert "strip level" in (error.hint or "")
