"""bundle × release, proven on real wheels that lie in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import Refused, UsageError
from patchkit.matrix import table, text
from patchkit.matrix.plot import plot
from patchkit.matrix.table import Cell, Row, Table
from patchkit.releases.sources import Settings
from patchkit.releases.store import Store
from patchkit.session import Options
from tests import releases
from tests.conftest import Cli
from tests.support.lab import ACME, ALPHA, BETA, Lab
from tests.support.wheels import Dist, build_wheel

pytest_plugins = ("tests.support.fixtures",)


def cell(version: str, state: str, **more: Any) -> Cell:
    values = {
        "distribution": "sglang",
        "version": version,
        "state": state,
        "reason": "" if state == "applies" else f"why {state}",
        "variant": ">=0.5" if state == "applies" else None,
        "how": "known",
        "asserted": 1,
        "claimed": True,
    }
    return Cell(**{**values, **more})


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name, version in (
        *(("sglang", version) for version in ("0.5.7", "0.5.8", "0.5.9")),
        *(("flashinfer-python", version) for version in ("0.6.1", "0.6.3", "0.6.17")),
    ):
        wheel = releases.wheel(name, version)
        (folder / wheel.name).symlink_to(wheel)
    return folder


def test_each_release_gets_its_verdict_and_the_one_that_it_pins(
    wheels: Path, tmp_path: Path
) -> None:
    settings = Settings(
        dict(os.environ),
        find_links=[str(wheels)],
        offline=True,
        store=Store(str(tmp_path)),
    )
    options = Options(bundles=str(releases.ROOT), environ=os.environ, cwd=str(releases.ROOT))
    (made,) = table.make(
        options, settings, ["sm120-fusion"], ["sglang>=0.5.8", "flashinfer-python>=0.6"]
    )
    found = {
        (c.distribution, c.version): (c.state, c.how, c.claimed)
        for row in made.rows
        for c in row.cells
    }
    assert found[("sglang", "0.5.9")] == ("applies", "known", True)
    assert found[("flashinfer-python", "0.6.3")] == ("applies", "known", True)
    assert found[("flashinfer-python", "0.6.17")][0] == "upstream"
    pins = {row.cell.version: [c.version for c in row.pins] for row in made.rows}
    assert pins["0.5.8"] == ["0.6.1"] and pins["0.5.9"] == ["0.6.3"]
    assert table.false_claims([made]) == []


def test_a_release_before_the_first_variant_is_unsupported(wheels: Path, cli: Cli) -> None:
    done = cli(
        *("matrix", "symm-mem-sm120", "--releases", "sglang==0.4.99", "--offline"),
        *("--find-links", wheels, "--json"),
    ).json
    (row,) = done["bundles"][0]["rows"]
    assert row["state"] == "unavailable"
    assert not row["false_claim"]


def _bundle(lab: Lab, *variants: dict[str, Any], asserts: list[dict[str, Any]]) -> None:
    lab.patch_file("b/0.patch", lab.edit(ALPHA))
    lab.bundle(
        "b",
        target=[{"distribution": "acme", "variant": list(variants)}],
        assert_=asserts,
    )


PATCHED = {"versions": "<2", "strip": 1, "patches": ["b/0.patch"]}
DONE = {"distribution": "acme", "file": ALPHA[0], "text": ALPHA[2].strip(), "message": "m"}


@pytest.mark.parametrize(
    ("variant", "file", "state", "code"),
    [
        (PATCHED, None, "applies", 0),
        ({**PATCHED, "versions": "<1"}, None, "unsupported", 0),
        (PATCHED, "other = 1\n", "conflict", 1),
        ({"versions": "<2", "upstream": "merged"}, None, "unmet", 1),
        ({"versions": "<2", "upstream": "merged"}, "done", "upstream", 0),
        ({"versions": "<1"} | {"upstream": "merged"}, "done", "upstream", 0),
    ],
)
def test_the_code_decides_and_not_the_claim(
    variant: dict[str, Any], file: str | None, state: str, code: int, lab: Lab, tmp_path: Path
) -> None:
    _bundle(lab, variant, asserts=[DONE])
    files = dict(ACME.files)
    if file is not None:
        old = str(files[ALPHA[0]])
        files[ALPHA[0]] = old.replace(ALPHA[1], ALPHA[2]) if file == "done" else file
    wheel = build_wheel(Dist("acme", "1.0", files), tmp_path)
    done = lab.cli(
        *("--bundles", lab.bundles, "matrix", "b", "--releases", "acme==1.0", "--offline"),
        *("--find-links", wheel.parent, "--json"),
        env={"XDG_CACHE_HOME": str(tmp_path / "cache")},
        check=code,
    ).json
    (row,) = done["bundles"][0]["rows"]
    assert row["state"] == state
    assert bool(done["false_claims"]) == bool(code)


def test_a_second_run_needs_no_archive(lab: Lab, tmp_path: Path) -> None:
    _bundle(lab, PATCHED, asserts=[DONE])
    wheel = build_wheel(Dist("acme", "1.0", ACME.files), tmp_path)
    command = ("--bundles", lab.bundles, "matrix", "b", "--releases", "acme==1.0", "--offline")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = lab.cli(*command, "--find-links", wheel.parent, "--markdown", env=env).stdout
    wheel.unlink()
    assert lab.cli(*command, "--markdown", env=env).stdout == first
    assert "| 1.0 | applies | `<2` |" in first


def test_a_setting_has_no_matrix(tmp_path: Path) -> None:
    settings = Settings({}, offline=True, store=Store(str(tmp_path)))
    options = Options(bundles=str(releases.ROOT), environ={}, cwd=str(releases.ROOT))
    with pytest.raises(UsageError, match="it is a setting"):
        table.make(options, settings, ["nccl-tree"], [])


def test_releases_of_a_distribution_that_no_bundle_is_for_are_refused(tmp_path: Path) -> None:
    """A misspelt name would give the table of all releases."""
    settings = Settings({}, offline=True, store=Store(str(tmp_path)))
    options = Options(bundles=str(releases.ROOT), environ={}, cwd=str(releases.ROOT))
    with pytest.raises(UsageError, match="names sglng") as caught:
        table.make(options, settings, ["sm120-fusion"], ["sglng>=0.5.8"])
    assert caught.value.hint == "they are for: flashinfer-python, sglang"


# -- as text ----------------------------------------------------------------------------

TABLES = [
    Table(
        "b",
        "1.0",
        (
            Row(cell("0.4", "unneeded")),
            Row(cell("0.5", "applies"), (cell("1.0", "upstream", distribution="dep", pin=True),)),
            Row(cell("0.6", "applies"), (cell("1.1", "upstream", distribution="dep", pin=True),)),
            Row(cell("0.7", "conflict")),
        ),
    )
]


def test_markdown_puts_equal_releases_into_one_row() -> None:
    lines = text.markdown(TABLES).splitlines()
    assert "| 0.5 … 0.6 | 1.0 … 1.1 | applies, upstream | sglang: `>=0.5`; dep: why upstream |" in (
        lines
    )
    assert len([line for line in lines if line.startswith("| 0")]) == 3
    assert [line for line in lines if "**the manifest claims this release**: why conflict" in line]


def test_what_does_not_hold_is_said_with_its_reason() -> None:
    lines = text.lines(TABLES, lambda t, colour: t, verbose=False)
    assert "    sglang: why conflict" in lines
    assert "    the manifest claims this release" in lines
    assert not any("why unneeded" in line for line in lines)
    assert any("why unneeded" in line for line in text.lines(TABLES, lambda t, c: t, verbose=True))


def test_the_worst_cell_is_the_row_s_state() -> None:
    row = Row(cell("1", "upstream"), (cell("2", "applies"), cell("3", "conflict")))
    assert row.state == "conflict"
    assert Row(cell("1", "upstream"), (cell("2", "applies"),)).state == "applies"


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("Requires-Dist: flashinfer_python==0.6.3", "0.6.3"),
        ("Requires-Dist: flashinfer-python[cu13]==0.6.12", "0.6.12"),
        ("Requires-Dist: Flashinfer.Python (==0.6.3.post1) ; extra == 'x'", "0.6.3.post1"),
        ("Requires-Dist: flashinfer-python>=0.6.3", None),
        ("Requires-Dist: flashinfer-cubin==0.6.3", None),
    ],
)
def test_the_pin_is_read_from_the_metadata(line: str, version: str | None) -> None:
    assert table._pin(f"Name: sglang\n{line}\n", "flashinfer-python") == version


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_picture_is_drawn(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"matrix.{ending}"
    plot(TABLES, str(path))
    data = path.read_bytes()
    assert data.startswith(b"<?xml" if ending == "svg" else b"\x89PNG")
    with pytest.raises(Refused):
        plot(TABLES, str(tmp_path / "matrix.nonsense"))


def test_two_edits_of_one_file_are_one_cell(lab: Lab, tmp_path: Path) -> None:
    lab.patch_file("b/0.patch", lab.edit(ALPHA, BETA))
    lab.bundle("b", target=[{"distribution": "acme", "variant": [PATCHED]}], assert_=[DONE])
    wheel = build_wheel(Dist("acme", "1.0", ACME.files), tmp_path)
    done = lab.cli(
        *("--bundles", lab.bundles, "matrix", "b", "--offline", "--find-links", wheel.parent),
        env={"XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert done.stdout.count("acme 1.0 applies") == 1
