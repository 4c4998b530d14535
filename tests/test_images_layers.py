"""Contexts of ``patchkit bake``, built and run on real overlay mounts."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests import releases
from tests.conftest import Result, clean_environment
from tests.support import wheels
from tests.support.image import BuildFailed, Engine, Image, pictures
from tests.support.lab import ACME, ALPHA, BETA, STATE, Lab, Site, changed
from tests.support.wheels import Dist

#: The interpreter of the base image, its packages, and patchkit in what is built.
APP = "/opt/app"
PYTHON = f"{APP}/bin/python"
PACKAGES = f"opt/app/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
PATCHKIT = "/opt/patchkit/venv/bin/patchkit"
NEEDED = ("click", "gitdb", "GitPython", "jmespath", "packaging", "smmap", "tomli", "tomlkit")


def release(version: str, **files: str) -> Dist:
    """acme with other files, by their stems."""
    named = {f"acme/{stem}.py": text for stem, text in files.items()}
    return Dist("acme", version, {**ACME.files, **named}, ACME.executable)


TWO = release("2.0", alpha=str(ACME.files["acme/alpha.py"]).replace("third", "last"))
THREE = release("3.0", alpha="# written anew\n")


def packed(name: str, folder: Path) -> Path:
    """The wheel of a distribution of the tests' own environment."""
    dist = importlib.metadata.distribution(name)
    stem = name.replace("-", "_")
    tag = next(
        line.partition(": ")[2]
        for line in (dist.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag: ")
    )
    path = folder / f"{stem}-{dist.version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in dist.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and file.name != "INSTALLER":
                archive.write(str(dist.locate_file(file)), str(file))
    return path


class Place:
    """A lab with its engine, the wheels of patchkit, base images and one that was built."""

    def __init__(self, base: Path) -> None:
        self.engine = Engine(base / "engine")
        env = clean_environment(base / "home")

        def cli(*args: str | Path, check: int | None = 0, **more: Any) -> Result:
            command = [sys.executable, "-m", "patchkit", *map(str, args)]
            done = subprocess.run(
                command, env=env, cwd=base, capture_output=True, text=True, check=False
            )
            result = Result(tuple(command), done.returncode, done.stdout, done.stderr)
            assert check is None or done.returncode == check, result
            return result

        self.lab = Lab(base / "lab", cast("Any", cli), cast("Any", None), env)
        own = base / "wheels"
        own.mkdir()
        self.wheels = [packed(name, own) for name in (*NEEDED, "unidiff")]
        self.scratch = self.engine.scratch()
        self.python = self.engine.layered(
            self.scratch, "python3", "-m", "venv", "--without-pip", "--system-site-packages", APP
        )
        # What patchkit needs, in a release that would not do: it is none of patchkit's.
        self.python = self.installed(Dist("click", "8.9", {"click/__init__.py": "1 / 0\n"}))
        self.one = self.installed(ACME)
        self.site = self.lab.site(ACME)
        self.lab.bundle(
            "b",
            target=[
                {
                    "distribution": "acme",
                    "variant": [
                        self.variant("b/one.patch", "<2", ACME),
                        self.variant("b/two.patch", ">=2,<3", TWO),
                    ],
                }
            ],
        )
        self.lab.bundle("other", {"acme": self.lab.edit(BETA)})
        self.lab.bundle("settings", profile={"env": {"MODE": "fast"}, "args": ["--size", "1 2"]})
        self.lab.run(self.site, "apply", "b", "settings")
        self.context = self.baked("context", "--", "sh", "-c", 'echo "$MODE" "$@"', "sh")
        self.before = pictures(self.one)
        self.image, self.said = self.engine.build(self.context, self.one)

    def variant(self, name: str, versions: str, dist: Dist) -> dict[str, Any]:
        """A variant that makes the edit of ALPHA, and adds a file."""
        text = str(dist.files[ALPHA[0]])
        after = {ALPHA[0]: changed(text, *ALPHA[1:]), "acme/added.py": "NEW = 1\n"}
        self.lab.patch_file(name, self.lab.diff({ALPHA[0]: text}, cast("Any", after)))
        return {"versions": versions, "patches": [name], "strip": 1}

    def installed(self, dist: Dist, on: Image | None = None) -> Image:
        """An image with that release in its environment."""
        wheel = wheels.build_wheel(dist, self.lab.base / "wheels")
        install = (
            f"{wheels.uv()[0]} pip install -q --no-config --offline --no-index --no-deps --no-cache"
            f' --link-mode copy --python "{sys.executable}" --target "$1/{PACKAGES}" {wheel}'
        )
        return self.engine.layered(on or self.python, outside=["sh", "-c", install, "sh"])

    def baked(self, name: str, *args: str | Path, site: Site | None = None) -> Path:
        """A context, with all wheels that the build needs."""
        if not any((self.lab.base / "own").glob("*.whl")):
            made = self.lab.base / "first"
            self.lab.run(site or self.site, "bake", "--from", "base", "-o", made)
            (made / "wheels").rename(self.lab.base / "own")
        (own,) = (self.lab.base / "own").glob("*.whl")
        given = [word for path in (own, *self.wheels) for word in ("--wheel", str(path))]
        context = self.lab.base / name
        self.lab.run(
            *(site or self.site, "bake", "--from", "base:1", "--image-python", PYTHON),
            *("-o", context, *given, *args),
        )
        return context

    def patchkit(self, image: Image, *args: str) -> subprocess.CompletedProcess[str]:
        """patchkit in a read-only container, as a user who may write nothing."""
        return self.engine.start(replace(image, entrypoint=()), PATCHKIT, *args)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    base = tmp_path_factory.mktemp("images")
    base.parent.chmod(0o755)
    made = Place(base)
    before = pictures(made.image)
    yield made
    assert pictures(made.image) == before, "a layer that was built is nobody's to change"


def listing(place: Place, image: Image) -> dict[str, str]:
    """Kind, mode and contents of the environment's packages as the stacked layers show them,
    without byte-code."""
    code = (
        "import json, sys; sys.path[:0] = [sys.argv[1]]\n"
        "from pathlib import Path; from tests.releases import snapshot\n"
        "found = snapshot(Path(sys.argv[2] + '/' + sys.argv[3]))\n"
        "print(json.dumps({k: f'{v.kind} {v.mode:o} {v.digest} {v.target}' for k, v"
        " in found.items() if '__pycache__' not in k}))"
    )
    script = f'exec "{sys.executable}" -c "$0" {releases.ROOT} "$1" {PACKAGES}'
    done = place.engine.run(image, outside=["sh", "-c", script, code])
    assert done.returncode == 0, done.stderr
    return cast("dict[str, str]", json.loads(done.stdout))


def fails(place: Place, base: Image, context: Path | None = None) -> str:
    """What a build says that has to fail."""
    with pytest.raises(BuildFailed) as failed:
        place.engine.build(context or place.context, base)
    return failed.value.said


def fingerprint(place: Place, image: Image) -> str:
    """That of what verifies in a container."""
    done = place.patchkit(image, "--json", "verify")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == []
    return cast("str", found["fingerprint"])


# --- the image -----------------------------------------------------------------------------


def test_the_image_has_the_set_of_the_machine_that_baked(place: Place) -> None:
    here = place.lab.json(place.site, "status")
    there = json.loads(place.patchkit(place.image, "--json", "status").stdout)
    assert there["fingerprint"] == here["fingerprint"]
    assert there["applied"] == here["applied"]
    assert there["files"] == here["files"]
    assert there["problems"] == []
    assert there["fingerprint"][:16] in place.said


def test_a_layer_holds_what_was_patched_and_no_other_package(place: Place) -> None:
    layer = place.image.layers[-1] / PACKAGES
    found = {
        str(path.relative_to(layer))
        for path in layer.rglob("*")
        if not path.is_dir() and STATE not in path.parts
    }
    assert found == {ALPHA[0], "acme/added.py", "acme-1.0.dist-info/RECORD"}
    assert place.image.layers[: len(place.one.layers)] == place.one.layers
    assert pictures(place.one) == place.before


def test_a_read_only_container_launches_as_a_user_without_a_home(place: Place) -> None:
    done = place.engine.start(place.image)
    assert (done.returncode, done.stdout) == (0, "fast --size 1 2\n"), done.stderr
    code = "import acme.added, os; print(acme.added.NEW, os.getuid())"
    done = place.engine.start(place.image, PYTHON, "-c", code, "{args}")
    assert (done.returncode, done.stdout) == (0, "1 65534\n"), done.stderr
    done = place.engine.start(place.image, "sh", "-c", "exit 42", "{args}")
    assert done.returncode == 42
    silent = place.patchkit(place.image, "verify", "b", "settings")
    assert (silent.returncode, silent.stdout, silent.stderr) == (0, "", "")
    # It could write nothing if it wanted to.
    assert place.engine.start(replace(place.image, entrypoint=()), "touch", "/tmp/x").returncode


def test_a_context_of_a_private_folder_is_read_by_every_user(place: Place) -> None:
    private = place.engine.folder("private")
    shutil.copytree(place.context, private, dirs_exist_ok=True)
    for path in (private, *private.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    image, _ = place.engine.build(private, place.one)
    for command in (("list",), ("show", "b"), ("verify", "b", "settings")):
        done = place.engine.start(replace(image, entrypoint=()), PATCHKIT, *command)
        assert done.returncode == 0, done.stderr


def test_what_a_further_layer_edits_is_not_launched(place: Place) -> None:
    edited = place.engine.layered(
        place.image, "sh", "-c", f"echo '# an edit' >> /{PACKAGES}/{ALPHA[0]}"
    )
    done = place.engine.start(edited)
    assert (done.returncode, done.stdout) == (1, "")
    assert ALPHA[0] in done.stderr


def test_an_image_that_was_saved_and_loaded_verifies(place: Place) -> None:
    """Other inodes, times in whole seconds, and no link from layer to layer."""
    shipped = place.engine.shipped(place.image)
    assert fingerprint(place, shipped) == fingerprint(place, place.image)
    assert place.engine.start(shipped).stdout == "fast --size 1 2\n"
    (shipped.layers[-1] / PACKAGES / ALPHA[0]).write_text("# not as it was\n")
    assert place.engine.start(shipped).returncode == 1


@pytest.mark.parametrize("way", ["built", "shipped"])
def test_a_further_layer_takes_all_back(place: Place, way: str) -> None:
    image = place.image if way == "built" else place.engine.shipped(place.image)
    reverted = place.engine.layered(image, PATCHKIT, "revert", "--all")
    assert listing(place, reverted) == listing(place, place.one)
    assert place.engine.start(reverted).returncode == 1, "it names bundles that are not there"


def test_the_guard_goes_by_content_in_another_layer(place: Place) -> None:
    guarded = place.engine.layered(place.image, PATCHKIT, "guard", "install")
    for image in (guarded, place.engine.shipped(guarded)):
        start = place.engine.start(
            replace(image, entrypoint=()), PYTHON, "-c", "print(1)", env={"PATCHKIT_GUARD": "fail"}
        )
        assert (start.returncode, start.stdout, start.stderr) == (0, "1\n", "")


def test_nothing_changes_under_what_runs_in_a_container(place: Place) -> None:
    """The locks lie in a lower layer: two processes must still lock the same file."""
    script = (
        f"{PATCHKIT} run --no-args -- cat < /tmp/pipe > /tmp/out & exec 9> /tmp/pipe;"
        " until grep -q up /tmp/out; do echo up >&9; done;"
        f" {PATCHKIT} revert --all; code=$?; exec 9>&-; wait; exit $code"
    )
    upper = place.engine.folder("layer")
    done = place.engine.run(place.image, "sh", "-c", f"mkfifo /tmp/pipe; {script}", upper=upper)
    assert done.returncode == 5, done.stderr
    assert "in use" in done.stderr


# --- another base ----------------------------------------------------------------------------


def test_another_release_gets_its_variant_and_it_is_said(place: Place) -> None:
    image, said = place.engine.build(place.context, place.installed(TWO))
    assert "the image has acme 2.0 where 1.0 was" in said
    assert fingerprint(place, image) != fingerprint(place, place.image)
    assert place.engine.start(image).stdout == "fast --size 1 2\n"


def test_a_release_without_a_variant_fails_the_build_and_says_how_to_port(place: Place) -> None:
    said = fails(place, place.installed(THREE))
    assert "no variant for acme 3.0" in said
    assert "patchkit port b" in said and "--to acme==3.0" in said


def test_the_same_release_with_other_files_fails_the_build(place: Place) -> None:
    alpha = str(ACME.files[ALPHA[0]]) + "# built by somebody else\n"
    said = fails(place, place.installed(release("1.0", alpha=alpha)))
    assert "for the same releases" in said


def test_a_base_that_carries_the_set_already_is_left_as_it_is(place: Place) -> None:
    again, _ = place.engine.build(place.context, place.image)
    layer = again.layers[-1] / PACKAGES
    found = [path for path in layer.rglob("*") if not path.is_dir() and path.name != "lock"]
    assert found == []
    assert fingerprint(place, again) == fingerprint(place, place.image)


def test_a_base_that_carries_another_set_gets_this_one(place: Place) -> None:
    site = place.lab.site(ACME)
    place.lab.run(site, "apply", "other")
    other = place.baked("other", site=site)
    image, said = place.engine.build(other, place.image)
    assert "reverted: b, settings" in said
    fresh, _ = place.engine.build(other, place.one)
    assert listing_without_record(place, image) == listing_without_record(place, fresh)
    assert fingerprint(place, image) == place.lab.json(site, "status")["fingerprint"]


def listing_without_record(place: Place, image: Image) -> dict[str, str]:
    return {k: v for k, v in listing(place, image).items() if not k.startswith(STATE)}


def test_an_upgrade_over_a_patched_image_is_patched_again(place: Place) -> None:
    upgraded = place.installed(TWO, on=place.image)
    assert place.engine.start(upgraded).returncode == 1
    image, _ = place.engine.build(place.context, upgraded)
    assert place.engine.start(image).stdout == "fast --size 1 2\n"
    direct, _ = place.engine.build(place.context, place.installed(TWO))
    assert fingerprint(place, image) == fingerprint(place, direct)


# --- what overlay file systems do otherwise --------------------------------------------------


def test_folders_links_and_byte_code_of_a_lower_layer(place: Place) -> None:
    """A folder that goes and comes back, a name of another folder, a second name of one inode, a
    mode, and byte-code that no layer may show again."""
    lab = place.lab
    before = {name: ACME.files[name] for name in ("acme/lonely/only.py", "acme/old.py")}
    after: dict[str, Any] = {"acme/sub/new.py": before["acme/old.py"]}
    for name, old in (("acme/table.txt", "row 20"), ("acme/tool.sh", "two")):
        before[name] = ACME.files[name]
        after[name] = str(before[name]).replace(old, "another")
    lab.bundle("moves", {"acme": [lab.edit(ALPHA), lab.diff(before, after, "-M")]})
    site = lab.site(ACME)
    lab.run(site, "apply", "moves")
    context = place.baked("moves", site=site)
    base = place.engine.layered(
        place.one,
        *("sh", "-c"),
        f"cd /{PACKAGES}/acme && ln table.txt /opt/twin && {PYTHON} -m compileall -q .",
    )
    held = [releases.snapshot(layer) for layer in base.layers]
    image, _ = place.engine.build(context, base)
    assert fingerprint(place, image) == lab.json(site, "status")["fingerprint"]
    look = (
        f"cd /{PACKAGES}/acme && test ! -e lonely && test ! -e old.py && test -x tool.sh"
        " && test ! -e __pycache__/alpha.*.pyc && grep -q another table.txt"
        " && ! grep -q another /opt/twin && grep -q 1030 alpha.py"
    )
    done = place.engine.run(image, "sh", "-ec", look)
    assert done.returncode == 0, done.stderr
    for one in (image, place.engine.shipped(image)):
        reverted = place.engine.layered(one, PATCHKIT, "revert", "--all")
        assert listing(place, reverted) == listing(place, base)
        code = "import acme.alpha, acme.lonely.only, acme.old; print('pristine')"
        ran = place.engine.start(replace(reverted, entrypoint=()), PYTHON, "-c", code)
        assert ran.stdout == "pristine\n", ran.stderr
    assert [releases.snapshot(layer) for layer in base.layers] == held


def test_kernels_built_in_a_lower_layer_are_set_aside(place: Place) -> None:
    """rename(2) of a folder of a lower layer fails with EXDEV."""
    lab = place.lab
    lab.bundle("kernels", {"acme": lab.edit(ALPHA)}, caches={"flashinfer-jit": ["comm"]})
    site = lab.site(ACME)
    lab.run(site, "apply", "kernels")
    context = place.baked("kernels", site=site)
    cache = f"{place.image.env['HOME']}/.cache/flashinfer"
    built = f"{cache}/0.6.3/90/cached_ops/comm"
    base = place.engine.layered(
        place.one,
        *("sh", "-ec"),
        f"mkdir -p {built}/deep; echo so > {built}/deep/comm.so; ln -s comm.so {built}/deep/link;"
        f" touch -d @1000000000.5 {built}/deep/comm.so",
    )
    image, said = place.engine.build(context, base)
    assert "could not be set aside" not in said
    aside = Path(f"{image.layers[-1]}{cache}/patchkit-aside")
    (kept,) = aside.rglob("comm.so")
    assert kept.read_text() == "so\n" and kept.stat().st_mtime_ns == 1000000000_500000000
    assert os.readlink(kept.with_name("link")) == "comm.so"
    gone = os.lstat(f"{image.layers[-1]}{built}")
    assert stat.S_ISCHR(gone.st_mode), "a whiteout"


def test_an_image_with_uv_and_without_pip_builds(place: Place) -> None:
    engine = place.engine
    bare = engine.layered(place.scratch, "python3", "-m", "venv", "--without-pip", APP)
    tools = engine.folder("layer")
    (tools / "opt/tools").mkdir(parents=True)
    os.link(wheels.uv()[0], tools / "opt/tools/uv")
    base = place.installed(ACME, on=replace(bare, layers=(*bare.layers, tools)))
    base = replace(base, env={**base.env, "PATH": f"/opt/tools:{base.env['PATH']}"})
    image, _ = engine.build(place.context, base)
    assert fingerprint(place, image) == fingerprint(place, place.image)
