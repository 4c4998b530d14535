"""Where bundles come from, what is read of them, and in which order they go on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit import bundles
from patchkit.bundles import (
    bundle_dir,
    check_conflicts,
    check_lock,
    is_loose,
    list_names,
    load_bundle,
    loose_bundle,
    patch_reader,
    read_lock,
    read_loose,
    read_manifest,
    read_patch,
    read_patch_file,
    resolve_order,
)
from patchkit.errors import Fault, ManifestError, Refused, UsageError
from patchkit.manifest import parse_manifest, render_lock
from patchkit.model import Bundle, Profile

PATCH = b"--- a/six.py\n+++ b/six.py\n@@ -1 +1 @@\n-a\n+b\n"


def manifest(name: str = "demo", *patches: str, more: str = "") -> str:
    text = f'schema = 1\nname = "{name}"\nversion = "1.0"\n{more}\n'
    if patches:
        text += '[[target]]\ndistribution = "six"\n[[target.variant]]\nversions = ""\n'
        text += f"patches = [{', '.join(f'{path!r}' for path in patches)}]\n"
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle directory with one bundle, ``demo``, of one locked patch."""
    top = tmp_path / "bundles"
    (top / "manifests").mkdir(parents=True)
    (top / "patches" / "demo").mkdir(parents=True)
    (top / "patches" / "demo" / "a.patch").write_bytes(PATCH)
    (top / "manifests" / "demo.toml").write_text(manifest("demo", "demo/a.patch"))
    lock(top)
    return top


def lock(top: Path, digest: str = hashlib.sha256(PATCH).hexdigest()) -> None:
    data = render_lock({"demo/a.patch": digest})
    (top / "manifests" / "demo.lock").write_bytes(data)


def make(
    name: str, *requires: str, version: str = "1.0", conflicts: tuple[str, ...] = ()
) -> Bundle:
    return Bundle(
        name=name,
        version=version,
        summary="",
        description="",
        requires=requires,
        conflicts=conflicts,
        targets=(),
        asserts=(),
        profile=Profile(),
        caches=(),
        sha256=f"of {name} {version}",
    )


# -- where bundles are ------------------------------------------------------------------


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up installation: the package in a folder of its own, nothing beside it."""
    package = tmp_path / "lib" / "patchkit"
    package.mkdir(parents=True)
    monkeypatch.setattr(bundles, "_package_dir", lambda: str(package))
    return package


def both(top: Path) -> str:
    (top / "manifests").mkdir(parents=True, exist_ok=True)
    (top / "patches").mkdir(exist_ok=True)
    return str(top)


def test_the_order_in_which_places_are_asked(tmp_path: Path, shipped: Path) -> None:
    option, variable, here = (both(tmp_path / name) for name in ("option", "variable", "here"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    checkout = both(shipped.parent)
    environ = {"PATCHKIT_BUNDLES": variable}
    assert bundle_dir(option, environ, here) == option
    assert bundle_dir(None, environ, here) == variable
    assert bundle_dir(None, {}, here) == here
    assert bundle_dir(None, {"PATCHKIT_BUNDLES": ""}, here) == here
    assert bundle_dir(None, {}, str(elsewhere)) == checkout
    installed = both(shipped / "_bundles")
    assert bundle_dir(None, {}, str(elsewhere)) == installed


@pytest.mark.parametrize("missing", ["manifests", "patches"])
def test_the_working_directory_counts_only_with_both(
    tmp_path: Path, shipped: Path, missing: str
) -> None:
    installed = both(shipped / "_bundles")
    here = Path(both(tmp_path / "here"))
    (here / missing).rmdir()
    assert bundle_dir(None, {}, str(here)) == installed


def test_relative_names_begin_at_the_working_directory(tmp_path: Path) -> None:
    both(tmp_path / "sub")
    (tmp_path / "sub" / "patches").rmdir()  # git keeps no empty folder
    assert bundle_dir("sub", {}, str(tmp_path)) == str(tmp_path / "sub")
    assert bundle_dir(None, {"PATCHKIT_BUNDLES": "sub"}, str(tmp_path)) == str(tmp_path / "sub")


@pytest.mark.parametrize("name", ["gone", ""])
def test_a_named_place_that_is_none_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"^--bundles: ") as caught:
        bundle_dir(name, {}, both(tmp_path))
    assert caught.value.hint
    with pytest.raises(UsageError, match=r"^PATCHKIT_BUNDLES: 'gone' "):
        bundle_dir(None, {"PATCHKIT_BUNDLES": "gone"}, both(tmp_path))


def test_a_patchkit_that_ships_nothing_says_so(tmp_path: Path, shipped: Path) -> None:
    with pytest.raises(Refused) as caught:
        bundle_dir(None, {}, str(tmp_path))
    assert caught.value.code == "no-bundles"
    assert caught.value.hint and "--bundles" in caught.value.hint


def test_this_checkout_has_its_own(tmp_path: Path) -> None:
    found = bundle_dir(None, {}, str(tmp_path))
    assert found == str(Path(bundles.__file__).parent.parent)
    assert "sm120-fusion" in list_names(found)


# -- names ------------------------------------------------------------------------------


def test_names_are_those_of_the_manifests(folder: Path) -> None:
    for name in ("b.toml", "a.toml", ".#a.toml", ".toml", "a.toml~", "README", "x.lock"):
        (folder / "manifests" / name).touch()
    assert list_names(str(folder)) == ["a", "b", "demo"]
    assert list_names(str(folder / "nowhere")) == []


def test_a_folder_that_cannot_be_listed_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "manifests").touch()
    with pytest.raises(Fault) as caught:
        list_names(str(tmp_path))
    assert caught.value.exit_code == 4 and caught.value.code == "unreadable"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dmeo", "did you mean demo?"),
        ("demo.toml", "did you mean demo?"),
        (
            "zzz",
            (
                "patchkit list shows the bundles on offer; --bundles DIR, or PATCHKIT_BUNDLES,"
                " names where others are"
            ),
        ),
        ("../manifests/demo", None),
        ("", None),
        ("demo\0", None),
        ("DEMO", None),
        ("./demo", None),
    ],
)
def test_an_unknown_name_has_the_nearest_ones(folder: Path, name: str, hint: str | None) -> None:
    with pytest.raises(Refused) as caught:
        load_bundle(str(folder), name)
    error = caught.value
    assert error.code == "unknown-bundle" and error.exit_code == 3
    assert error.bundle == name and repr(name) in error.message
    assert error.hint
    if hint is not None:
        assert error.hint == hint
    assert error.data["nearest"] == (["demo"] if "mean" in error.hint else [])


def test_the_nearest_names_are_few_and_an_exact_one_is_alone(folder: Path) -> None:
    for name in ("demo1", "demo2", "demo3"):
        (folder / "manifests" / f"{name}.toml").touch()
    with pytest.raises(Refused) as caught:
        load_bundle(str(folder), "demo.toml")
    assert caught.value.hint == "did you mean demo?"
    with pytest.raises(Refused) as caught:
        load_bundle(str(folder), "demo4")
    assert len(caught.value.data["nearest"]) == 3
    (folder / "manifests" / "gone.toml").symlink_to("nowhere")
    with pytest.raises(Refused, match=r"^no bundle 'gone'"):
        load_bundle(str(folder), "gone")


def test_a_directory_without_manifests_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        load_bundle(str(tmp_path), "demo")
    assert caught.value.hint and "--bundles" in caught.value.hint


# -- reading ----------------------------------------------------------------------------


def test_a_bundle_is_read_with_its_lock(folder: Path) -> None:
    bundle = load_bundle(str(folder), "demo")
    assert bundle.lock == (("demo/a.patch", hashlib.sha256(PATCH).hexdigest()),)
    assert bundle.targets[0].variants[0].patches == ("demo/a.patch",)
    assert read_patch(str(folder), bundle, "demo/a.patch") == PATCH
    assert read_manifest(str(folder), "demo") == (folder / "manifests/demo.toml").read_bytes()


def test_a_bundle_without_a_lock_is_taken_as_it_is(folder: Path) -> None:
    (folder / "manifests" / "demo.lock").unlink()
    (folder / "patches" / "demo" / "a.patch").write_bytes(b"anything")
    bundle = load_bundle(str(folder), "demo")
    assert bundle.lock is None
    assert read_lock(str(folder), "demo") is None
    assert read_patch(str(folder), bundle, "demo/a.patch") == b"anything"


def test_a_manifest_with_a_name_that_no_bundle_may_have_is_found_and_refused(
    folder: Path,
) -> None:
    (folder / "manifests" / "Demo X.toml").write_text(manifest("Demo X"))
    with pytest.raises(ManifestError, match="1 problem"):
        load_bundle(str(folder), "Demo X")


def test_a_broken_lock_is_refused(folder: Path) -> None:
    (folder / "manifests" / "demo.lock").write_text("schema = 1\n")
    with pytest.raises(ManifestError) as caught:
        load_bundle(str(folder), "demo")
    assert caught.value.detail == ("demo.lock: patches: is missing; it must be a table",)


def refused_patch(
    folder: Path, bundle: Bundle | None = None, path: str = "demo/a.patch"
) -> Refused:
    with pytest.raises(Refused) as caught:
        read_patch(str(folder), bundle or load_bundle(str(folder), "demo"), path)
    error = caught.value
    assert (error.bundle, error.patch, error.exit_code) == ("demo", path, 3)
    assert error.hint
    return error


@pytest.mark.parametrize("data", [PATCH[:-3], PATCH + b"x", b"", PATCH.replace(b"+b", b"+c")])
def test_a_patch_that_changed_is_refused(folder: Path, data: bytes) -> None:
    (folder / "patches" / "demo" / "a.patch").write_bytes(data)
    error = refused_patch(folder)
    assert error.code == "patch-changed"
    assert "edited, cut off" in (error.hint or "")
    assert "patchkit lint --update-lock demo" in (error.hint or "")
    expected, found = (hashlib.sha256(part).hexdigest() for part in (PATCH, data))
    assert error.data["expected"] == expected and error.data["found"] == found
    assert len(error.detail) == 2 and expected in error.detail[0] and found in error.detail[1]


def test_converted_line_ends_are_told_by_their_direction(folder: Path) -> None:
    file = folder / "patches" / "demo" / "a.patch"
    crlf = PATCH.replace(b"\n", b"\r\n")
    file.write_bytes(crlf)
    assert "from LF to CRLF" in (refused_patch(folder).hint or "")
    lock(folder, hashlib.sha256(crlf).hexdigest())
    file.write_bytes(PATCH)
    error = refused_patch(folder)
    assert error.code == "patch-changed"
    assert "from CRLF to LF" in (error.hint or "") and ".gitattributes" in (error.hint or "")


def test_a_patch_that_the_lock_does_not_know_is_refused(folder: Path) -> None:
    bundle = load_bundle(str(folder), "demo")._replace(lock=())
    error = refused_patch(folder, bundle)
    assert error.code == "patch-not-locked"
    assert "--update-lock" in (error.hint or "")


def test_a_missing_patch_is_named(folder: Path) -> None:
    (folder / "patches" / "demo" / "a.patch").unlink()
    error = refused_patch(folder)
    assert error.code == "patch-missing"
    assert "demo/a.patch" in error.message
    assert refused_patch(folder, path="demo/a.patch/b").code == "patch-missing"


@pytest.mark.parametrize(
    "path", ["../manifests/demo.toml", "/etc/passwd", "", ".", "a/../..", "\0"]
)
def test_a_patch_path_never_leads_outside(folder: Path, path: str) -> None:
    assert refused_patch(folder, path=path).code == "patch-outside"


def test_a_link_may_lead_to_another_patch_and_nowhere_else(folder: Path) -> None:
    here = folder / "patches" / "demo"
    (here / "same.patch").symlink_to("a.patch")
    (here / "out.patch").symlink_to("../../manifests/demo.toml")
    (here / "folder").symlink_to("/etc")
    (folder / "patches-more").mkdir()
    (folder / "patches-more" / "x.patch").write_bytes(PATCH)
    (here / "twin.patch").symlink_to("../../patches-more/x.patch")
    bundle = load_bundle(str(folder), "demo")._replace(lock=None)
    assert read_patch(str(folder), bundle, "demo/same.patch") == PATCH
    for path in ("demo/out.patch", "demo/folder/passwd", "demo/twin.patch"):
        assert refused_patch(folder, bundle, path).code == "patch-outside"


def test_one_reader_serves_a_whole_series(folder: Path) -> None:
    lock = {}
    for path in ("demo/a.patch", "demo/b.patch", "demo/sub/c.patch", "top.patch"):
        file = folder / "patches" / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(path.encode())
        lock[path] = hashlib.sha256(path.encode()).hexdigest()
    bundle = load_bundle(str(folder), "demo")._replace(lock=tuple(lock.items()))
    read = patch_reader(str(folder), bundle)
    assert [read(path) for path in lock] == [path.encode() for path in lock]
    (folder / "patches" / "demo" / "b.patch").write_bytes(b"")
    with pytest.raises(Refused) as caught:
        read("demo/b.patch")
    assert caught.value.code == "patch-changed"
    check_lock(bundle, "demo/b.patch", b"demo/b.patch")
    check_lock(bundle._replace(lock=None), "demo/b.patch", b"")
    with pytest.raises(Refused, match="was made for"):
        check_lock(bundle, "demo/b.patch", b"")
    assert read_patch_file(str(folder), "demo/b.patch", "demo") == b""


def test_the_patches_folder_itself_may_be_a_link(folder: Path) -> None:
    (folder / "patches").rename(folder / "elsewhere")
    (folder / "patches").symlink_to("elsewhere")
    bundle = load_bundle(str(folder), "demo")
    assert read_patch(str(folder), bundle, "demo/a.patch") == PATCH


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop"])
def test_what_is_no_file_is_a_fault_and_never_waits(folder: Path, kind: str) -> None:
    path = folder / "patches" / "demo" / "a.patch"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("a.patch")
    with pytest.raises(Fault) as caught:
        read_patch(str(folder), load_bundle(str(folder), "demo"), "demo/a.patch")
    assert caught.value.code == "unreadable"
    assert "a.patch: " in caught.value.message


def test_a_manifest_that_cannot_be_read_is_a_fault(folder: Path) -> None:
    (folder / "manifests" / "odd.toml").mkdir()
    with pytest.raises(Fault) as caught:
        load_bundle(str(folder), "odd")
    assert caught.value.exit_code == 4


# -- loose patches ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.patch", True),
        ("/x/y.diff", True),
        ("./a.patch", True),
        ("a", False),
        ("a.patch.gz", False),
        ("patch", False),
        ("demo.patches", False),
    ],
)
def test_what_a_loose_patch_is_called(name: str, expected: bool) -> None:
    assert is_loose(name) is expected


def test_a_loose_patch_becomes_a_bundle_of_its_own() -> None:
    digest = hashlib.sha256(PATCH).hexdigest()
    bundle = loose_bundle("some/where/0001 fix.patch", PATCH, summary="fix")
    assert bundle == Bundle(
        name="0001 fix.patch",
        version="0",
        summary="fix",
        description="",
        requires=(),
        conflicts=(),
        targets=(),
        asserts=(),
        profile=Profile(),
        caches=(),
        sha256=digest,
        lock=(("0001 fix.patch", digest),),
        loose=True,
    )
    assert loose_bundle("/else/0001 fix.patch", PATCH, summary="fix") == bundle


def test_a_loose_patch_is_read_from_where_the_user_is(tmp_path: Path) -> None:
    (tmp_path / "a.patch").write_bytes(PATCH)
    assert read_loose("a.patch", str(tmp_path)) == PATCH
    assert read_loose(str(tmp_path / "a.patch")) == PATCH
    with pytest.raises(Refused) as caught:
        read_loose("sub/b.patch", str(tmp_path))
    assert caught.value.code == "unknown-bundle" and caught.value.bundle == "b.patch"
    with pytest.raises(Fault):
        read_loose(".", str(tmp_path))


# -- order and conflicts ----------------------------------------------------------------


def order(names: list[str], *known: Bundle) -> list[str]:
    by_name = {bundle.name: bundle for bundle in known}
    return [bundle.name for bundle in resolve_order(names, lambda name: lookup(by_name, name))]


def lookup(known: Mapping[str, Bundle], name: str) -> Bundle:
    if name not in known:
        raise Refused(
            f"no bundle {name!r}", code="unknown-bundle", hint="try", data={"nearest": []}
        )
    return known[name]


def test_what_is_required_goes_first_in_the_order_given() -> None:
    known = (make("a", "b", "c"), make("b", "d"), make("c", "d>=1"), make("d"), make("e"))
    assert order(["a"], *known) == ["d", "b", "c", "a"]
    assert order(["e", "a"], *known) == ["e", "d", "b", "c", "a"]
    assert order(["c", "a", "e"], *known) == ["d", "c", "b", "a", "e"]
    assert order(["a", "a", "d", "b"], *known) == ["d", "b", "c", "a"]
    assert order([], *known) == []


@pytest.mark.parametrize(
    ("names", "cycle"),
    [
        (["a"], ["a", "b", "c", "a"]),
        (["x"], ["a", "b", "c", "a"]),
        (["b"], ["b", "c", "a", "b"]),
        (["self"], ["self", "self"]),
    ],
)
def test_a_cycle_is_shown(names: list[str], cycle: list[str]) -> None:
    known = (make("x", "a"), make("a", "b"), make("b", "c"), make("c", "a"), make("self", "self"))
    with pytest.raises(Refused) as caught:
        order(names, *known)
    error = caught.value
    assert error.code == "requires-cycle"
    assert error.message == f"bundles require each other: {' -> '.join(cycle)}"
    assert error.data["cycle"] == cycle
    assert error.bundle == cycle[-2]


def test_a_required_version_must_be_there() -> None:
    known = (make("a", "b>=2,<3"), make("b", version="1.0"))
    for names in (["a"], ["b", "a"]):
        with pytest.raises(Refused) as caught:
            order(names, *known)
        error = caught.value
        assert error.code == "requires-version" and error.bundle == "a"
        assert error.message == "a requires b>=2,<3, on offer is b 1.0"
    assert order(["a"], known[0], make("b", version="2.5rc1")) == ["b", "a"]


def test_an_unknown_required_bundle_says_who_asked() -> None:
    with pytest.raises(Refused) as caught:
        order(["a"], make("a", "b"), make("b", "gone"))
    error = caught.value
    assert error.code == "unknown-bundle" and error.bundle == "b" and error.hint == "try"
    assert error.message == "b requires gone: no bundle 'gone'"
    with pytest.raises(Refused, match=r"^no bundle 'x'$"):
        order(["x"])


def test_other_errors_of_a_required_bundle_pass_through() -> None:
    def load(name: str) -> Bundle:
        if name == "b":
            raise ManifestError("manifests/b.toml: 1 problem")
        return make("a", "b")

    with pytest.raises(ManifestError):
        resolve_order(["a"], load)


def test_two_loose_patches_of_one_name_must_be_one_file() -> None:
    def load(path: str) -> Bundle:
        return loose_bundle(path, path.partition("/")[0].encode())

    assert [b.name for b in resolve_order(["x/a.patch", "x/a.patch"], load)] == ["a.patch"]
    with pytest.raises(Refused) as caught:
        resolve_order(["x/a.patch", "y/a.patch"], load)
    assert caught.value.code == "same-name" and caught.value.bundle == "a.patch"


def test_a_chain_of_any_length_is_followed() -> None:
    count = 1500  # more than Python would recurse
    known = [make(f"b{n}", f"b{n + 1}") for n in range(count)] + [make(f"b{count}")]
    assert order(["b0"], *known) == [f"b{n}" for n in reversed(range(count + 1))]


def test_what_many_require_is_loaded_and_followed_once() -> None:
    count = 30  # followed each time, it would take 2 ** 30 steps
    known = {f"b{n}": make(f"b{n}", f"b{n + 1}", f"c{n + 1}") for n in range(count)}
    known |= {f"c{n}": make(f"c{n}", f"b{n + 1}", f"c{n + 1}") for n in range(1, count)}
    known |= {f"b{count}": make(f"b{count}"), f"c{count}": make(f"c{count}")}
    loaded: list[str] = []

    def load(name: str) -> Bundle:
        loaded.append(name)
        return known[name]

    assert len(resolve_order(["b0"], load)) == 2 * count + 1
    assert sorted(loaded) == sorted(known)


@given(
    st.lists(
        st.lists(st.integers(0, 7), max_size=3, unique=True), min_size=8, max_size=8
    ),
    st.lists(st.integers(0, 7), max_size=4),
)  # fmt: skip
def test_every_order_has_what_is_required_before(needs: list[list[int]], asked: list[int]) -> None:
    # A bundle may only require later numbers, so that there is no cycle.
    known = [make(f"b{n}", *(f"b{m}" for m in wanted if m > n)) for n, wanted in enumerate(needs)]
    found = order([f"b{n}" for n in asked], *known)
    assert len(found) == len(set(found)) and {f"b{n}" for n in asked} <= set(found)
    for bundle in known:
        if bundle.name in found:
            for other in bundle.requires:
                assert found.index(other) < found.index(bundle.name)
    # Nothing that nobody asked for.
    wanted = {f"b{n}" for n in asked}
    for bundle in known:
        if bundle.name in wanted:
            wanted |= set(bundle.requires)
    assert set(found) == wanted


@pytest.mark.parametrize("swap", [False, True])
def test_one_of_two_is_enough_to_say_that_they_conflict(swap: bool) -> None:
    pair = [make("a", conflicts=("b",)), make("b"), make("c", conflicts=("d",))]
    if swap:
        pair.reverse()
    with pytest.raises(Refused) as caught:
        check_conflicts(pair)
    error = caught.value
    first, second = ("b", "a") if swap else ("a", "b")
    assert error.code == "conflict" and error.exit_code == 3
    assert error.message == f"{first} and {second} conflict: they are never in one applied set"
    assert error.bundle == second
    assert f"patchkit revert {first}" in (error.hint or "")
    assert error.data["conflicts"] == [[first, second]] and error.detail == ()


def test_every_conflict_is_told() -> None:
    many = [make("a", conflicts=("b", "c")), make("b"), make("c", conflicts=("b", "c"))]
    with pytest.raises(Refused) as caught:
        check_conflicts(many)
    assert caught.value.detail == ("a and c conflict", "b and c conflict")
    assert len(caught.value.data["conflicts"]) == 3


def test_bundles_that_go_together_pass() -> None:
    check_conflicts([])
    check_conflicts([make("a", conflicts=("x", "a")), make("b")])


def test_a_manifest_and_its_load_agree(folder: Path) -> None:
    data = read_manifest(str(folder), "demo")
    assert load_bundle(str(folder), "demo")._replace(lock=None) == parse_manifest(data, "demo")
