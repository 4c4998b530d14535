"""``patchkit fleet report``: what many nodes say of themselves, compared."""

from __future__ import annotations

import json
import stat
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from patchkit.fleet.compare import compare, node_of
from patchkit.state import MAX_STATE
from tests import releases
from tests.conftest import Cli
from tests.support.lab import ALPHA, BETA, DELTA, GAMMA, STATE, Lab
from tests.test_hooks import drift

pytest_plugins = ("tests.support.fixtures",)

PRINT = "14e65b73e6361642" * 4


def status(**changes: Any) -> dict[str, Any]:
    """A report as ``status --json`` prints it, as far as it is read."""
    return {
        "schema": 1,
        "command": "status",
        "problems": [],
        "fingerprint": PRINT,
        "applied": [{"name": "b", "version": "1.0.0", "variant": "acme >=0"}],
        "distributions": ["acme 1.0"],
        **changes,
    }


def doctor(driver: str, toolkit: str | None) -> dict[str, Any]:
    """Facts as ``doctor --json`` prints them, as far as they are read."""
    version = None if toolkit is None else {"version": toolkit}
    return {"command": "doctor", "facts": {"driver": driver, "toolkit": version}}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))


def differences(cli: Cli, *files: str | Path, **more: Any) -> list[tuple[str, ...]]:
    """Every difference as (node, aspect, name, value, common); checks the exit code."""
    done = cli("--json", "fleet", "report", *files, check=None, **more)
    data = done.json
    assert done.exit_code == (0 if data["alike"] else 1), str(done)
    keys = ("node", "aspect", "name", "value", "common")
    return [tuple(one[key] for key in keys) for one in data["differences"]]


def test_real_reports_of_an_environment_and_its_drifted_copy(
    lab: Lab, cli: Cli, tmp_path: Path
) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    lab.run(site, "apply", "b")
    other = lab.copy(site)
    folder = tmp_path / "status"
    write(folder / "n1.json", lab.json(site, "status"))
    write(folder / "n2.json", lab.json(other, "status"))
    facts = lab.json(site, "doctor")
    facts["facts"].update(
        driver="580", toolkit={**(facts["facts"]["toolkit"] or {}), "version": "13.0"}
    )
    for name in ("n1", "n2"):
        write(folder / f"{name}.doctor.json", facts)
    write(folder / "n2.doctor.json", {**facts, "facts": {**facts["facts"], "driver": "590"}})
    assert differences(cli, folder) == [("n2", "driver", "", "590", "580")]
    write(folder / "n2.doctor.json", facts)
    done = cli("fleet", "report", folder)
    assert done.stdout.startswith("2 nodes, all alike: fingerprint ")
    drift(other)
    write(folder / "n2.json", lab.json(other, "status"))
    done = cli("fleet", "report", folder, check=1)
    assert "n2:\n  drift: acme/alpha.py" in done.stdout
    write(folder / "n2.json", lab.json(lab.site(), "status"))
    found = {(one[0], one[1]) for one in differences(cli, folder)}
    assert found == {("n2", aspect) for aspect in ("fingerprint", "release", "bundle", "variant")}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"fingerprint": "f" * 64}, ("fingerprint", "", "f" * 64, PRINT)),
        ({"distributions": ["acme 1.1"]}, ("release", "acme", "1.1", "1.0")),
        ({"distributions": []}, ("release", "acme", None, "1.0")),
        ({"problems": [{"message": "odd"}]}, ("drift", "", "odd", None)),
        ({"facts": {"driver": "570"}}, ("driver", "", "570", "580")),
        ({"facts": {"driver": "580"}}, ("toolkit", "", "none", "13.0")),
        ({"error": {"message": "no such"}}, ("report", "", "no such", None)),
        (
            {"command": "verify"},
            ("report", "", "this is not what patchkit status --json prints", None),
        ),
    ],
)
def test_each_aspect_is_told_of_the_node_that_differs(
    change: dict[str, Any], expected: tuple[str, ...]
) -> None:
    facts = {"driver": "580", "toolkit": {"version": "13.0"}}
    nodes = [node_of(name, status(), facts) for name in ("n1", "n3")]
    told = status(**change)
    nodes.append(node_of("n2", told, told.get("facts", facts)))
    found = compare(nodes)
    assert not found.alike
    assert list(found.differences) == ["n2"]
    assert expected in found.differences["n2"]


@pytest.mark.parametrize("key", ["version", "variant"])
def test_another_version_or_variant_of_a_bundle(key: str) -> None:
    entry = {**status()["applied"][0], key: "another"}
    nodes = [node_of("n1", status(applied=[entry]), None)]
    nodes += [node_of(name, status(), None) for name in ("n2", "n3")]
    ((one,),) = compare(nodes).differences.values()
    assert (one.aspect, one.name, one.value) == (
        {"version": "bundle", "variant": "variant"}[key],
        "b",
        "another",
    )


def test_a_node_without_facts_is_not_compared_in_them(cli: Cli, tmp_path: Path) -> None:
    for name in ("n1", "n2", "n3"):
        write(tmp_path / f"{name}.json", status())
    write(tmp_path / "n1.doctor.json", doctor("580", "13.0"))
    write(tmp_path / "n2.doctor.json", doctor("580", "13.0"))
    assert differences(cli, tmp_path) == []
    write(tmp_path / "n2.doctor.json", doctor("580", "12.9"))
    (one,) = differences(cli, tmp_path)
    assert one == ("n1", "toolkit", "", "13.0", "12.9")  # of two, the smaller is called common


def test_nodes_are_named_by_key_folder_or_file(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "all" / "n10" / "status.json", status())
    write(tmp_path / "all" / "n10" / "doctor.json", doctor("580", None))
    write(tmp_path / "all" / "n2.example.org.json", status())
    write(tmp_path / "single.json", status(node="n1"))
    lines = "".join(json.dumps(status(node=f"r{n}")) + "\n" for n in range(2)).encode()
    done = cli(
        *("--json", "fleet", "report", tmp_path / "all", tmp_path / "single.json", "-"),
        input=lines,
    )
    assert done.json["nodes"] == ["n1", "n2.example.org", "n10", "r0", "r1"]
    assert done.json["fingerprints"] == [{"fingerprint": PRINT, "nodes": done.json["nodes"]}]


@pytest.mark.parametrize("data", [b"", b"{", b"bash: patchkit: command not found", b"[1]", b"3"])
def test_a_node_that_did_not_answer_is_not_left_out(cli: Cli, tmp_path: Path, data: bytes) -> None:
    write(tmp_path / "n1.json", status())
    (tmp_path / "n2.json").write_bytes(data)
    (one,) = differences(cli, tmp_path)
    assert one[:2] == ("n2", "report")


@pytest.mark.parametrize("broken", [{"applied": [3]}, {"problems": None}, {"distributions": [3]}])
def test_a_report_of_another_shape_is_a_node_without_a_report(broken: dict[str, Any]) -> None:
    assert node_of("n", status(**broken), None).error is not None


def test_two_reports_of_one_node_are_refused(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "a.json", status(node="n1"))
    write(tmp_path / "n1.json", status())
    assert "two reports of n1" in cli("fleet", "report", tmp_path, check=3).stderr


def test_no_report_at_all_is_no_success(cli: Cli, tmp_path: Path) -> None:
    assert "there is no report" in cli("fleet", "report", tmp_path, check=2).stderr
    assert cli("fleet", "report", tmp_path / "gone", check=None).exit_code == 4


def test_many_nodes_with_one_difference_are_one_paragraph(cli: Cli, tmp_path: Path) -> None:
    lines = [status(node=f"n{n}") for n in range(1000)]
    for value in lines[:300]:
        value["distributions"] = ["acme 0.9"]
    data = "\n".join(map(json.dumps, lines)).encode()
    done = cli("fleet", "report", "-", input=data, check=1)
    assert done.stdout.splitlines() == [
        "1000 nodes, not alike: 300 differ (1 fingerprint)",
        "n0, n1, n2, n3, n4, n5, n6, n7 and 292 more:",
        "  release acme: 0.9, not 1.0",
    ]
    assert "n299:" in cli("-v", "fleet", "report", "-", input=data, check=1).stdout


class Cells(HTMLParser):
    """The rows of a page, its marked cells, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.odd: list[str] = []
        self.loads: list[str] = []
        self._open = False
        self._odd = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [f"{tag} {key}" for key, _ in attrs if key in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._open, self._odd = True, ("class", "odd") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.rows[-1][-1] += data
            if self._odd:
                self.odd.append(data)


def test_the_page_is_a_matrix_that_needs_nothing_else(cli: Cli, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    for name in ("n1", "n2", "n10"):
        write(tmp_path / "in" / f"{name}.json", status())
    changed = status(distributions=["acme 1.1", "bolt 2"], problems=[{"message": evil}])
    write(tmp_path / "in" / "n3.json", changed)
    page = tmp_path / "page.html"
    cli("fleet", "report", tmp_path / "in", "--html", page, check=1)
    text = page.read_text(encoding="utf-8")
    assert evil not in text
    assert "prefers-color-scheme: dark" in text
    assert "url(" not in text
    cells = Cells()
    cells.feed(text)
    assert cells.loads == []
    head, common, *rows = cells.rows
    assert head == ["node", "fingerprint", "acme", "bolt", "bundle b", "variant b", "findings"]
    assert common == ["most have", PRINT[:16], "1.0", "–", "1.0.0", "acme >=0", ""]
    assert [row[0] for row in rows] == ["n3", "n1", "n2", "n10"]
    assert cells.odd == ["1.1", "2", evil]


def test_what_a_node_carried_before_is_no_difference(lab: Lab, cli: Cli, tmp_path: Path) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.bundle("tree", profile={"env": {"NCCL_ALGO": "Tree"}})
    one, other = lab.site(), lab.site()
    lab.run(one, "apply", "tree")
    lab.run(other, "apply", "tree", "b")
    lab.run(other, "revert", "b")
    assert lab.json(other, "revert", "b")["changed"] is False
    for name, site in (("n1", one), ("n2", other)):
        write(tmp_path / f"{name}.json", lab.json(site, "status"))
    assert differences(cli, tmp_path) == []


def test_a_saved_set_comes_back_after_any_change(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.bundle("c", {"bolt-kernels": lab.edit(DELTA)})
    loose = lab.base / "fix.patch"
    loose.write_bytes(lab.edit(BETA))
    site, saved = lab.site(), lab.base / "saved.json"
    pristine = site.picture()
    lab.run(site, "apply", loose, "b")
    lab.run(site, "fleet", "save", saved)
    before, state = site.picture(), lab.json(site, "status")
    loose.unlink()
    lab.bundle("b", {"acme": lab.edit(GAMMA)}, version="2.0.0")
    lab.run(site, "revert", "fix.patch")
    lab.run(site, "apply", "b", "c")
    dry = lab.json(site, "fleet", "restore", saved, "--dry-run")
    assert (dry["changed"], dry["bundles"]) == (True, ["fix.patch", "b"])
    # In a folder that everybody may look into, it is still for its owner.
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert lab.json(site, "status")["fingerprint"] != state["fingerprint"]
    lab.run(site, "fleet", "restore", saved)
    after = lab.json(site, "status")
    assert [after[key] for key in ("applied", "fingerprint", "distributions")] == [
        state[key] for key in ("applied", "fingerprint", "distributions")
    ]
    changed = [one for one in site.differences(before, releases.CONTENTS) if STATE not in one]
    assert changed == []
    assert lab.json(site, "fleet", "restore", saved)["changed"] is False
    lab.run(site, "revert", "--all")
    lab.run(site, "fleet", "restore", saved)
    assert lab.json(site, "status")["fingerprint"] == state["fingerprint"]
    lab.run(site, "revert", "--all")
    assert site.differences(pristine, releases.CONTENTS) == []


@pytest.mark.slow
def test_a_set_with_a_large_patch_comes_back(lab: Lab) -> None:
    """One of more bytes than a record of patchkit's own may have."""
    lab.bundle("b", {"acme": lab.diff({}, {"acme/big.txt": ("x" * 1023 + "\n") * 50_000})})
    site, saved = lab.site(), lab.base / "saved.json"
    lab.run(site, "apply", "b")
    lab.run(site, "fleet", "save", saved)
    assert saved.stat().st_size > MAX_STATE
    lab.run(site, "revert", "--all")
    lab.run(site, "fleet", "restore", saved)
    lab.run(site, "verify", "b")


def test_a_set_is_saved_into_no_folder_and_over_nothing_of_patchkit(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site = lab.site()
    lab.run(site, "apply", "b")
    before = site.picture()
    assert "is a folder" in lab.run(site, "fleet", "save", f"{lab.base}/", check=2).stderr
    own = lab.json(site, "fleet", "save", site / STATE / "state.json", check=3)
    assert own["error"]["code"] == "own-folder"
    assert site.differences(before) == []
    lab.run(site, "verify")


def test_a_damaged_set_is_no_damaged_environment_wherever_it_lies(lab: Lab) -> None:
    site, saved = lab.site(), lab.base / ".patchkit" / "saved.json"
    lab.run(site, "fleet", "save", saved)
    saved.write_bytes(saved.read_bytes() + b"\n")
    error = lab.json(site, "fleet", "restore", saved, check=3)["error"]
    assert error["code"] == "saved-damaged" and "reinstall" not in error["hint"]


def test_the_json_of_each_command_names_it_whole(lab: Lab) -> None:
    site, saved = lab.site(), lab.base / "saved.json"
    (lab.base / "n.json").write_text("{}")
    for words in (
        ("save", saved),
        ("restore", saved),
        ("restore", lab.base / "none"),
        ("report", lab.base / "n.json"),
        ("report", lab.base / "none"),
    ):
        told = lab.json(site, "fleet", *words, check=None)
        assert told["command"] == f"fleet {words[0]}"


def test_nothing_is_saved_in_the_middle_of_a_change(lab: Lab) -> None:
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    site, saved = lab.site(), lab.base / "saved.json"
    (site / STATE / "staged").mkdir(parents=True)
    assert lab.json(site, "fleet", "save", saved, check=3)["error"]["code"] == "interrupted"
    assert not saved.exists()
    lab.run(site, "recover")
    # Nothing applied is a set as well, and nothing is left of putting it back.
    lab.run(site, "fleet", "save", saved)
    lab.run(site, "fleet", "restore", saved)
    assert not (site / STATE).exists()
    lab.run(site, "apply", "b")
    lab.run(site, "fleet", "restore", saved)
    assert not (site / STATE).exists()
