"""Pristine bytes of releases: from archives, the client, installed files, checkouts, the cache.

The archives are the real wheels of SGLang and FlashInfer; the clients are the real pip and
uv, pointed at the folder where these lie, so that nothing is asked of a network.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from patchkit.caches import cache_folder
from patchkit.errors import PatchkitError, Refused, UsageError
from patchkit.releases.archive import Archive
from patchkit.releases.model import Damaged, Member, Unavailable, Wish, parse_asked
from patchkit.releases.sources import Settings, known_versions, open_release
from patchkit.releases.store import Store, size_limit
from tests import releases
from tests.conftest import Cli, Git, Installed
from tests.releases import FLASHINFER, SGLANG

COMMUNICATOR = "sglang/srt/layers/communicator.py"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder that holds the real wheels and nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, version in (SGLANG, ("sglang", "0.5.8"), FLASHINFER):
        wheel = releases.wheel(name, version)
        (folder / wheel.name).symlink_to(wheel)
    return folder


def settings(cache: Path, **more: object) -> Settings:
    return Settings(dict(os.environ), store=Store(str(cache)), **more)  # type: ignore[arg-type]


def client_environ(wheels: Path, home: Path) -> dict[str, str]:
    """An environment in which pip and uv know that folder and no index."""
    config = home / "uv.toml"
    config.write_text(f"no-index = true\nfind-links = [{str(wheels)!r}]\n")
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_CONFIG_FILE": str(config),
        "UV_CACHE_DIR": str(home / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",
    }


def wheel_of(folder: Path, files: Mapping[str, bytes], *, version: str = "1.0") -> Path:
    """A small wheel; RECORD lists the files unless one is given."""
    path = folder / f"thing-{version}-py3-none-any.whl"
    record = f"thing-{version}.dist-info/RECORD"
    with zipfile.ZipFile(path, "w") as archive:
        rows = []
        for name, data in files.items():
            archive.writestr(name, data)
            rows.append(f"{name},sha256={_b64(data)},{len(data)}")
        if record not in files:
            archive.writestr(record, "\n".join([*rows, f"{record},,"]) + "\n")
    return path


def _b64(data: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def sdist_of(folder: Path, files: Mapping[str, str], *, name: str = "thing-1.0") -> Path:
    path = folder / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for inside, text in files.items():
            info = tarfile.TarInfo(f"{name}/{inside}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


# -- archives ---------------------------------------------------------------------------


def test_a_wheel_lists_every_file_with_the_digest_of_its_record() -> None:
    with Archive(str(releases.wheel(*SGLANG))) as archive:
        tree = releases.tree(*SGLANG)
        listed = {p for p in archive.listing.members if ".dist-info/" not in p}
        assert listed == {p for p in releases.files(tree) if ".dist-info/" not in p}
        data = archive.read(COMMUNICATOR)
        assert data == (tree / COMMUNICATOR).read_bytes()
        member = archive.listing.members[COMMUNICATOR]
        assert member.sha256 == hashlib.sha256(data).hexdigest()
        assert member.size == len(data)


def test_a_file_that_is_not_what_record_says_is_refused(tmp_path: Path) -> None:
    row = f"thing/a.py,sha256={_b64(b'other')},5\nthing-1.0.dist-info/RECORD,,\n"
    path = wheel_of(tmp_path, {"thing/a.py": b"bytes", "thing-1.0.dist-info/RECORD": row.encode()})
    with Archive(str(path)) as archive, pytest.raises(Damaged, match="not what its RECORD says"):
        archive.read("thing/a.py")


def test_a_wheel_with_a_file_that_record_does_not_list_is_refused(tmp_path: Path) -> None:
    path = wheel_of(
        tmp_path, {"thing/a.py": b"bytes", "thing-1.0.dist-info/RECORD": b"thing/b.py,,\n"}
    )
    with pytest.raises(Damaged, match="does not list"):
        Archive(str(path))


@pytest.mark.parametrize("name", ["../out.py", "/etc/out.py", "a/../../out.py", "a\\b.py"])
def test_names_that_lead_out_of_the_archive_are_none_of_its_files(
    name: str, tmp_path: Path
) -> None:
    with Archive(str(wheel_of(tmp_path, {"thing/a.py": b"1", name: b"2"}))) as archive:
        assert list(archive.listing.members) == ["thing/a.py"]


def test_a_wheel_s_data_folder_is_laid_out_as_an_installer_does(tmp_path: Path) -> None:
    files = {
        "thing-1.0.data/purelib/thing/a.py": b"1",
        "thing-1.0.data/platlib/thing/b.py": b"2",
        "thing-1.0.data/scripts/thing": b"3",
    }
    with Archive(str(wheel_of(tmp_path, files))) as archive:
        assert set(archive.listing.members) == {"thing/a.py", "thing/b.py"}
        assert archive.read("thing/a.py") == b"1"


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"<html>login</html>"])
def test_what_is_no_archive_is_refused_with_its_path(data: bytes, tmp_path: Path) -> None:
    for name in ("thing-1.0-py3-none-any.whl", "thing-1.0.tar.gz"):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(Damaged, match=name):
            Archive(str(path))


@pytest.mark.parametrize("above", ["", "src/", "python/"])
def test_an_sdist_is_laid_out_as_site_packages(above: str, tmp_path: Path) -> None:
    path = sdist_of(tmp_path, {f"{above}thing/__init__.py": "1", "setup.py": "2", "PKG-INFO": "3"})
    with Archive(str(path)) as archive:
        assert "thing/__init__.py" in archive.listing.members
        assert archive.read("thing/__init__.py") == b"1"
        assert (archive.listing.kind, archive.listing.version) == ("sdist", "1.0")


def test_flashinfer_s_sources_stand_where_its_wheels_have_them(tmp_path: Path) -> None:
    files = {"flashinfer/__init__.py": "", "csrc/a.cu": "1", "include/flashinfer/b.cuh": "2"}
    path = sdist_of(tmp_path, files, name="flashinfer_python-0.4.1")
    with Archive(str(path)) as archive:
        assert {"flashinfer/data/csrc/a.cu", "flashinfer/data/include/flashinfer/b.cuh"} <= set(
            archive.listing.members
        )


# -- the cache --------------------------------------------------------------------------


def test_the_cache_gives_back_what_was_put_in_and_nothing_else(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    digest = store.add(b"bytes" * 1000)
    assert store.read(digest) == b"bytes" * 1000
    assert store.read("0" * 64) is None


@pytest.mark.parametrize("damage", [b"", b"\x78\x9cxx", b"not zlib"])
def test_a_damaged_cache_file_is_dropped_and_not_believed(damage: bytes, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    digest = store.add(b"bytes")
    (file,) = [p for p in tmp_path.rglob("*") if p.is_file()]
    file.write_bytes(damage)
    assert store.read(digest) is None
    assert not file.exists()


def test_a_damaged_list_is_made_anew(tmp_path: Path, wheels: Path) -> None:
    with open_release(*SGLANG, settings(tmp_path / "c", find_links=[str(wheels)])):
        pass
    (file,) = (tmp_path / "c").rglob("*.json")
    file.write_bytes(b"{")
    with open_release(
        *SGLANG, settings(tmp_path / "c", find_links=[str(wheels)], offline=True)
    ) as release:
        assert release.has(COMMUNICATOR)


def test_the_cache_stays_within_its_limit_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    store = Store(str(tmp_path), limit=20_000)
    blocks = [os.urandom(2_000) for _ in range(20)]
    digests = []
    for number, block in enumerate(blocks):
        digest = store.add(block)
        digests.append(digest)
        os.utime(store._blob(digest), ns=(number, number))
    store.tidy()
    assert sum(status.st_size for _, status in store.files()) <= 20_000
    assert store.read(digests[-1]) == blocks[-1]
    assert store.read(digests[0]) is None


def test_many_at_once_use_one_cache(tmp_path: Path, wheels: Path) -> None:
    def one(number: int) -> bytes | None:
        with open_release(
            *SGLANG, settings(tmp_path / "c", find_links=[str(wheels)], offline=True)
        ) as release:
            return release.read(COMMUNICATOR)

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(one, range(8)))
    assert found == {(releases.tree(*SGLANG) / COMMUNICATOR).read_bytes()}
    assert not list((tmp_path / "c").rglob(".new-*"))


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 2 << 30), ("500M", 500 << 20), ("2g", 2 << 30), ("7", 7), ("3 KiB", 3072)],
)
def test_the_limit_is_read_with_its_unit(text: str, size: int) -> None:
    assert size_limit({"PATCHKIT_CACHE_SIZE": text}) == size


@pytest.mark.parametrize("text", ["much", "-1", "1.5G", "2X"])
def test_a_limit_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="PATCHKIT_CACHE_SIZE"):
        size_limit({"PATCHKIT_CACHE_SIZE": text})


def test_the_cache_is_where_xdg_says() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == "/c/patchkit"
    assert cache_folder({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == "/h/.cache/patchkit"
    assert cache_folder({"HOME": "/h"}) == "/h/.cache/patchkit"
    assert str(os.geteuid()) in cache_folder({})


# -- sources ----------------------------------------------------------------------------


def test_only_what_was_asked_for_is_kept(tmp_path: Path, wheels: Path) -> None:
    cache = tmp_path / "c"
    with open_release(*SGLANG, settings(cache, find_links=[str(wheels)])) as release:
        release.read(COMMUNICATOR)
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert len(files) == 2  # the list, and one file
    with open_release(*SGLANG, settings(cache, offline=True)) as again:
        assert again.read(COMMUNICATOR) == (releases.tree(*SGLANG) / COMMUNICATOR).read_bytes()
        with pytest.raises(Unavailable, match="not in the cache"):
            again.read("sglang/srt/server_args.py")


@pytest.mark.parametrize("client", ["pip", "uv"])
def test_the_user_s_client_is_asked(client: str, tmp_path: Path, wheels: Path) -> None:
    found = Settings(
        client_environ(wheels, tmp_path), store=Store(str(tmp_path / "c")), client=client
    )
    with open_release("SGLang", "0.5.9", found) as release:
        assert release.origin == client
        assert release.read(COMMUNICATOR) == (releases.tree(*SGLANG) / COMMUNICATOR).read_bytes()
        assert release.digest("sglang/srt/server_args.py") is not None
        assert "Requires-Dist: torch" in release.metadata()


@pytest.mark.parametrize("client", ["pip", "uv"])
def test_a_release_that_the_client_cannot_find_is_named(
    client: str, tmp_path: Path, wheels: Path
) -> None:
    found = Settings(
        client_environ(wheels, tmp_path), store=Store(str(tmp_path / "c")), client=client
    )
    with pytest.raises(Unavailable, match=r"sglang 9\.9\.9 cannot be had") as caught:
        open_release("sglang", "9.9.9", found)
    assert "--list" in (caught.value.hint or "")
    assert "://" not in caught.value.message


def test_nothing_of_an_sdist_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    backend = f"open({str(marker)!r}, 'w').close()\nraise SystemExit(1)\n"
    sdist_of(
        tmp_path,
        {
            "pyproject.toml": '[build-system]\nrequires = ["gone-from-the-index==1"]\n'
            'build-backend = "backend"\nbackend-path = ["."]\n',
            "backend.py": backend,
            "setup.py": backend,
            "PKG-INFO": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n\nText: none\n",
            "thing/__init__.py": "x = 1\n",
        },
    )
    found = Settings(
        client_environ(tmp_path, tmp_path), store=Store(str(tmp_path / "c")), client="pip"
    )
    with open_release("thing", "1.0", found) as release:
        assert release.read("thing/__init__.py") == b"x = 1\n"
        assert release.listing.kind == "sdist"
    assert not marker.exists()


def test_an_sdist_s_digests_are_known_once_they_were_read(tmp_path: Path) -> None:
    sdist_of(tmp_path, {"thing/__init__.py": "x = 1\n", "PKG-INFO": "Name: thing\n"})
    cache = tmp_path / "c"
    with open_release("thing", "1.0", settings(cache, find_links=[str(tmp_path)])) as release:
        expected = hashlib.sha256(b"x = 1\n").hexdigest()
        assert release.listing.members["thing/__init__.py"].sha256 is None
        assert release.digest("thing/__init__.py") == expected
        release.note_digests()
    with open_release("thing", "1.0", settings(cache, offline=True)) as again:
        assert again.listing.members["thing/__init__.py"] == Member(
            6, expected, False, "thing-1.0/thing/__init__.py"
        )
        assert again.read("thing/__init__.py") == b"x = 1\n"


def test_offline_asks_nobody(tmp_path: Path) -> None:
    environ = {"PATH": "/nonexistent"}
    found = Settings(environ, store=Store(str(tmp_path)), offline=True)
    with pytest.raises(Unavailable, match="not in the cache"):
        open_release("sglang", "0.5.9", found)


def test_installed_files_count_as_far_as_they_are_pristine(
    installed: Installed, cli: Cli, tmp_path: Path
) -> None:
    from patchkit.environment import open_environment

    root = installed([SGLANG, FLASHINFER])
    pristine = (root / COMMUNICATOR).read_bytes()
    cli("--root", root, "apply", "sm120-fusion")
    edited = root / "sglang/srt/server_args.py"
    found = settings(tmp_path, environment=open_environment(None, str(root), {}), offline=True)
    with open_release(*SGLANG, found) as release:
        assert release.read(COMMUNICATOR) == pristine
        assert release.read("sglang/srt/layers/activation.py") is not None
    (root / "sglang/srt/layers/activation.py").write_text("edited\n")
    edited.write_text("edited\n")
    shutil.rmtree(tmp_path / "releases")
    with open_release(*SGLANG, found) as release:
        with pytest.raises(Unavailable, match="not pristine"):
            release.read("sglang/srt/layers/activation.py")
        assert release.read("sglang/srt/server_args.py") is not None


def test_another_release_than_the_installed_one_is_not_taken_from_it(
    installed: Installed, tmp_path: Path
) -> None:
    from patchkit.environment import open_environment

    env = open_environment(None, str(installed([SGLANG])), {})
    with pytest.raises(Unavailable):
        open_release("sglang", "0.5.8", settings(tmp_path, environment=env, offline=True))


def test_a_tag_of_a_checkout_is_a_release(tmp_path: Path, git: Git) -> None:
    repo = tmp_path / "repo"
    (repo / "python/sglang").mkdir(parents=True)
    (repo / "python/sglang/__init__.py").write_text("x = 1\n")
    git(repo, "init", "-q")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "one")
    git(repo, "tag", "v0.5.9")
    (repo / "python/sglang/__init__.py").write_text("x = 2\n")
    git(repo, "commit", "-qam", "two")
    found = settings(tmp_path / "c", checkouts=[os.path.relpath(repo)], offline=True)
    with open_release("sglang", "0.5.9", found) as release:
        assert release.read("sglang/__init__.py") == b"x = 1\n"
        assert release.digest("sglang/__init__.py") == hashlib.sha256(b"x = 1\n").hexdigest()
    with pytest.raises(Unavailable):
        open_release("sglang", "0.5.8", found)


def test_the_wheel_for_another_python_is_not_taken(tmp_path: Path) -> None:
    source = wheel_of(tmp_path, {"thing/a.py": b"1"})
    for python in ("cp311", "cp312"):
        shutil.copy(source, tmp_path / f"thing-1.0-{python}-{python}-manylinux_2_34_x86_64.whl")
    source.unlink()
    found = settings(tmp_path / "c", find_links=[str(tmp_path)], wish=Wish("3.12"), offline=True)
    for _ in range(2):  # from the folder, then from the cache
        with open_release("thing", "1.0", found) as release:
            assert "cp312" in release.listing.archive
    found.wish = Wish("3.9")
    with pytest.raises(Unavailable):
        open_release("thing", "1.0", found)


def test_the_releases_at_hand_are_listed_oldest_first(tmp_path: Path) -> None:
    for version in ("1.10", "1.9", "1.9.post1", "2.0rc1"):
        wheel_of(tmp_path, {"thing/a.py": b"1"}, version=version)
    found = settings(tmp_path / "c", find_links=[str(tmp_path)], offline=True)
    assert known_versions("thing", found) == ["1.9", "1.9.post1", "1.10", "2.0rc1"]


@pytest.mark.parametrize(
    "text", ["", "==1", "a b", "x @ file:///y", "x[extra]==1", "x==1; python_version>'3'"]
)
def test_a_wish_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_asked(text)


@pytest.mark.parametrize(
    ("text", "exact"),
    [("a==1.0", "1.0"), ("a>=1", None), ("a==1.*", None), ("a==1,!=2", None), ("a", None)],
)
def test_an_exact_release_needs_no_list(text: str, exact: str | None) -> None:
    assert parse_asked(text).exact == exact


# -- the command ------------------------------------------------------------------------


@pytest.fixture
def links(wheels: Path, tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "LINKS": str(wheels)}


def test_fetch_keeps_what_the_bundles_touch(cli: Cli, links: dict[str, str]) -> None:
    where = ("--find-links", links["LINKS"], "--offline")
    first = cli("fetch", "sglang==0.5.9", *where, "--json", env=links).json
    (release,) = first["releases"]
    assert COMMUNICATOR in release["kept"]
    assert release["fetched"] == len(release["kept"]) > 3
    again = cli("fetch", "sglang==0.5.9", "--offline", "--json", env=links).json
    assert again["releases"][0]["kept"] == release["kept"]
    assert again["releases"][0]["fetched"] == 0


def test_fetch_takes_ranges_and_writes_the_files(
    cli: Cli, links: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = cli(
        *("fetch", "sglang>=0.5.8", "--file", "sglang/srt/server_args.py", "-o", out),
        *("--find-links", links["LINKS"], "--offline"),
        env=links,
    )
    assert "0.5.8" in done.stdout and "0.5.9" in done.stdout
    for version in ("0.5.8", "0.5.9"):
        data = (out / f"sglang-{version}/sglang/srt/server_args.py").read_bytes()
        assert data == (releases.tree("sglang", version) / "sglang/srt/server_args.py").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        ((), 2, "no release is named"),
        (("sglang",), 2, "which release"),
        (("sglang==0.1",), 3, "not in the cache"),
        (("sglang>9",), 3, "no release of sglang is >9"),
        (("sglang==0.5.9", "--file", "no/such/*"), 3, "holds nothing like"),
    ],
)
def test_fetch_says_what_is_wrong(
    arguments: tuple[str, ...], code: int, word: str, cli: Cli, links: dict[str, str]
) -> None:
    done = cli(
        *("fetch", *arguments, "--find-links", links["LINKS"], "--offline"), env=links, check=code
    )
    assert word in done.stderr
    assert "hint:" in done.stderr


def test_fetch_lists_releases_and_what_one_holds(cli: Cli, links: dict[str, str]) -> None:
    where = ("--find-links", links["LINKS"], "--offline")
    assert cli("fetch", "--list", "sglang", *where, env=links).stdout.splitlines() == [
        "sglang 0.5.8",
        "sglang 0.5.9",
    ]
    shown = cli("fetch", "--list", "sglang==0.5.9", *where, env=links).stdout
    assert f"  {COMMUNICATOR}\n" in shown


def test_a_store_that_cannot_be_written_is_a_fault_with_its_path(
    cli: Cli, links: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file\n")
    done = cli(
        *("fetch", "sglang==0.5.9", "--find-links", links["LINKS"], "--offline"),
        env=links,
        check=4,
    )
    assert str(tmp_path / "cache") in done.stderr


def test_the_shim_acts_in_the_hooks_of_pip_alone(tmp_path: Path) -> None:
    shim = releases.ROOT / "patchkit/releases/shim"
    done = subprocess.run(
        [sys.executable, "-c", "print('as always')"],
        env={"PYTHONPATH": str(shim)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "as always\n"


def test_every_refusal_is_one_of_patchkit_s_own() -> None:
    assert issubclass(Unavailable, Refused)
    assert issubclass(Damaged, PatchkitError)
