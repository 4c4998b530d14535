"""``trial revisit`` and ``trial report``: what wakes up, and the living plan as text and JSON."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.conditions import parse
from patchkit.trials import again, board
from patchkit.trials.ledger import Ledger
from patchkit.trials.reading import read_all
from patchkit.trials.record import render
from patchkit.trials.report import words
from patchkit.trials.report.markdown import markdown
from patchkit.trials.report.page import page
from patchkit.trials.revisit import revisit
from tests.conftest import Cli
from tests.releases import ROOT

EXAMPLE = ROOT / "examples" / "eagle-fast-verify"
TRIALS = EXAMPLE / "trials"
THEN = {"cuda": "12.8", "nvlink": "false"}
NOW = {"cuda": "13.0", "nvlink": "false"}


def record(name: str, number: int = 1, **changes: Any) -> dict[str, Any]:
    """A record as short as one can be."""
    verdict = changes.pop("verdict", None)
    unblock = changes.pop("unblock", None)
    figures = changes.pop("figures", ())
    bundles = changes.pop("bundles", (name,))
    base = changes.pop("base", ())
    return {
        "schema": 1,
        "id": f"20260201-{number:06d}-{name}-{number:06d}",
        "name": name,
        "kind": "run",
        "status": "finished",
        "facts": THEN,
        "sets": {"candidate": {"bundles": [{"name": bundle} for bundle in bundles]}},
        "metrics": {"throughput": {"unit": "tok/s", "better": "higher"}} if figures else {},
        "runs": [
            {"set": side, "values": {"throughput": value}}
            for side, values in (("baseline", base), ("candidate", figures))
            for value in values
        ],
        "verdict": None
        if verdict is None
        else {"verdict": verdict, "reason": f"why {name}", "cause": None, "unblock": unblock},
        **changes,
    }


# -- revisit ----------------------------------------------------------------------------


def _woken(records: list[dict[str, Any]], now: dict[str, str] = NOW) -> list[str]:
    return [one.name for one in revisit(records, now)]


def test_a_dead_end_wakes_when_its_condition_holds_and_did_not_then() -> None:
    one = record("fusion", verdict="dead-end", unblock='cuda >= "13"')
    assert _woken([one]) == ["fusion"]
    assert _woken([one], THEN) == []
    held = {**one, "facts": {"cuda": "13.0"}}
    assert _woken([held]) == []
    unknown = {**one, "facts": {}}
    assert _woken([unknown]) == ["fusion"]
    assert _woken([one], {}) == []


def test_what_changed_is_what_the_condition_asks_for() -> None:
    one = record("fusion", verdict="dead-end", unblock='cuda >= "13" or mscclpp >= "0.7"')
    (woken,) = revisit([one], {**NOW, "mscclpp": "0.8", "sm": "12.0"})
    assert woken.changed == (("cuda", "12.8", "13.0"), ("mscclpp", None, "0.8"))


def test_a_trial_that_was_made_again_since_does_not_wake() -> None:
    first = record("fusion", 1, verdict="dead-end", unblock='cuda >= "13"')
    other = record("other", 2, verdict="win")
    assert _woken([first, other]) == ["fusion"]
    later = record("again", 3, bundles=("fusion",), verdict="loss")
    assert _woken([first, other, later]) == []
    without = record("again", 3, bundles=("fusion",))
    assert _woken([first, other, without]) == ["fusion"]


def test_a_condition_of_a_newer_patchkit_is_passed_over_and_named(cli: Cli, tmp_path: Path) -> None:
    one = record("x", verdict="dead-end", unblock='quantum >= "1"')
    (tmp_path / f"{one['id']}.json").write_text(json.dumps(one))
    shown = cli("trial", "revisit", "--trials", tmp_path, "--facts", EXAMPLE / "facts.json")
    assert "no fact is called 'quantum'" in shown.stderr


def test_the_command_to_make_a_trial_again_is_one_for_a_shell() -> None:
    one = record(
        "a name",
        bundles=("b", "c"),
        figures=(1.0, 2.0),
        append_args=True,
        measure=["bench", "--n", "1 2"],
        command=["python", "-m", "server; x"],
    )
    assert again.command(one) == (
        "patchkit trial run --name 'a name' --bundle b --bundle c --repeat 2 --append-args"
        " --measure 'bench --n '\"'\"'1 2'\"'\"'' -- python -m 'server; x'"
    )
    assert again.command(record("b")).endswith("--bundle b -- COMMAND…")


def test_an_ab_trial_is_made_again_with_both_its_sets() -> None:
    def sets(candidate: dict[str, str], baseline: dict[str, str], *names: str) -> dict[str, Any]:
        bundles = [{"name": name} for name in names]
        return {
            "candidate": {"bundles": bundles, "environ": candidate},
            "baseline": {"bundles": [], "environ": baseline} if names else {"environ": baseline},
        }

    one = record("a", kind="ab", figures=(1.0, 2.0), base=(1.0, 2.0), confounded="two changes")
    with_bundle = {**one, "sets": sets({"NCCL_ALGO": "Tree"}, {}, "tree")}
    assert again.command(with_bundle) == (
        "patchkit trial ab --name a --candidate tree --repeat 2 --confounded -- COMMAND…"
    )
    # A setting of the bundles is theirs to make; one that was tried by itself is named.
    setting = {**one, "confounded": None, "sets": sets({"A": "1", "B": "2"}, {"A": "0", "B": "2"})}
    assert again.command(setting) == (
        "patchkit trial ab --name a --baseline A=0 --candidate A=1 --repeat 2 -- COMMAND…"
    )
    hidden = record("b", sets={"candidate": {"environ": {"HF_TOKEN": "(hidden)", "X": "1"}}})
    assert again.command(hidden) == "patchkit trial run --name b --env X=1 -- COMMAND…"


# -- the campaign -----------------------------------------------------------------------


def test_the_ledger_of_the_campaign_is_one() -> None:
    listed = Ledger(str(TRIALS)).list()
    assert listed.problems == [] and len(listed.trials) == 14
    for trial in listed.trials:
        written = json.loads(render(trial))
        kept = json.loads((TRIALS / f"{trial.id}.json").read_text(encoding="utf-8"))
        assert written == kept


def test_with_cuda_13_just_the_dead_ends_wake_that_name_it(cli: Cli) -> None:
    named = set()
    for file in TRIALS.glob("*.json"):
        one = json.loads(file.read_text(encoding="utf-8"))
        unblock = (one["verdict"] or {}).get("unblock")
        if unblock and "cuda" in parse(unblock).names:
            assert one["verdict"]["verdict"] == "dead-end"
            named.add(one["name"])
    assert named == {"sm120-fusion"}
    given = ("trial", "revisit", "--trials", TRIALS, "--facts")
    found = cli(*given, EXAMPLE / "facts-cuda-13.json", "--json").json
    assert {one["name"] for one in found["trials"]} == named
    assert found["trials"][0]["changed"] == [{"fact": "cuda", "then": "12.8", "now": "13.0"}]
    assert cli(*given, EXAMPLE / "facts.json", "--json").json["trials"] == []
    shown = cli(*given, EXAMPLE / "facts-cuda-13.json").stdout
    assert "  changed  cuda: 12.8 → 13.0" in shown
    again = (
        f"  again    patchkit trial run --trials {TRIALS} --name sm120-fusion --bundle sm120-fusion"
    )
    assert again in shown


def test_the_report_of_the_campaign_says_what_was_found(cli: Cli, tmp_path: Path) -> None:
    given = ("trial", "report", "--trials", TRIALS, "--facts", EXAMPLE / "facts.json")
    text = cli(*given).stdout
    for fact in (
        *("12 to 15 ms", "167 tok/s at best", "122 all-reduces of 42 KB", "about 200 µs"),
        *("8 × NVIDIA RTX PRO 6000 Blackwell", "driver 590.48.01", "CUDA toolkit 12.8"),
        *("| 82 tok/s |", "89.5 tok/s | +9.1 % against 82 |", "54.1 tok/s | −39.6 % against 89.5"),
        *("60 tok/s | −26.8 % against 82", "38 tok/s", "16.3 GB left after the weights"),
        *("majors 9 and 10 only", "Confounded: run together with the NCCL tuning", "KeyError: 12"),
        *("contends for the PCIe bus", "not usable under CUDA graph capture", "no Python package"),
        *("--mem-fraction-static 0.88", "wrong memory fraction", "122 calls made into 2 of 2.5 MB"),
        *("DeepEP", "- cuda-13: Next. Builds of torch and sgl-kernel for cu130 exist"),
        '`cuda >= "13" or flashinfer-python >= "0.6.17"`: does not hold here.',
        '`nvlink == "true"`: does not hold here.',
        "- symm-mem-sm120 (a bundle without a trial)",
    ):
        assert fact in text, fact
    file = tmp_path / "plan.json"
    cli(*given, "--format", "json", "--output", file)
    assert json.loads(file.read_text(encoding="utf-8"))["trials"][1]["outcome"] == "win"
    assert cli(*given, "--format", "json").json["baseline"].endswith("baseline-78b7f5")


def test_the_report_says_where_a_condition_holds_now(cli: Cli) -> None:
    given = ("trial", "report", "--trials", TRIALS, "--facts", EXAMPLE / "facts-cuda-13.json")
    assert '"0.6.17"`: holds here now.' in cli(*given).stdout


# -- the plan ---------------------------------------------------------------------------


def _rows(*records: dict[str, Any], metric: str | None = None) -> tuple[board.Row, ...]:
    return board.make(records, NOW, (), metric).rows


def test_a_trial_is_held_against_its_own_baseline_else_the_last_one() -> None:
    rows = _rows(
        record("none", 1, figures=(50.0,)),
        record("base", 2, figures=(80.0, 82.0, 84.0), verdict="baseline"),
        record("slow", 3, figures=(41.0,)),
        record("own", 4, figures=(90.0,), base=(100.0,)),
        record("newer", 5, figures=(100.0,), verdict="baseline"),
        record("best", 6, figures=(120.0,), verdict="win"),
    )
    assert [row.ratio for row in rows] == [None, None, 0.5, 0.9, None, 1.2]
    assert [row.against for row in rows] == [None, None, "base", None, None, "newer"]


def test_what_a_trial_compared_itself_is_taken_from_its_record() -> None:
    compared = {"ratio": 0.87, "interval": [0.8, 0.95], "beyond_noise": True}
    one = record("own", figures=(90.0,), base=(100.0,), comparison={"throughput": compared})
    (row,) = _rows(one)
    assert (row.ratio, row.interval, row.beyond_noise) == (0.87, (0.8, 0.95), True)
    assert words.noise(row) == "−20.0 % to −5.0 %, beyond the noise"


def test_what_is_left_to_try_are_the_bundles_that_no_trial_names() -> None:
    plan = board.make([record("a"), record("b", 2, bundles=("b", "c"))], NOW, ["a", "c", "d"])
    assert plan.untried == ("d",)


def test_the_figure_is_the_one_most_trials_have_or_the_one_asked_for() -> None:
    one = record("a", figures=(1.0,))
    one["runs"][0]["values"]["latency"] = 5.0
    two = record("b", 2, figures=(2.0,))
    plan = board.make([one, two], NOW)
    assert plan.metric == board.Metric("throughput", "tok/s", "higher")
    assert board.make([one, two], NOW, (), "latency").rows[0].figures == (5.0,)


def test_the_best_is_the_lowest_where_less_is_better() -> None:
    records = [
        record("a", 1, figures=(9.0,), verdict="win"),
        record("b", 2, figures=(7.0,), verdict="win"),
    ]
    for one in records:
        one["metrics"]["throughput"]["better"] = "lower"
    best = board.make(records, NOW).best
    assert best is not None and best.name == "b"


def test_a_report_of_an_unknown_figure_names_those_there_are(cli: Cli) -> None:
    given = ("trial", "report", "--trials", TRIALS, "--metric", "latency")
    assert "known are: throughput" in cli(*given, check=3).stderr


def test_a_folder_that_is_not_there_and_a_file_that_is_no_record_are_named(
    cli: Cli, tmp_path: Path
) -> None:
    assert "there are no trials at" in cli(
        "trial", "report", "--trials", tmp_path / "gone", check=3
    ).stderr  # fmt: skip
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text("[]")
    (tmp_path / "d.json").write_text('{"id": "d", "name": 5}')
    good = record("c")
    (tmp_path / f"{good['id']}.json").write_text(json.dumps(good))
    shown = cli("trial", "report", "--trials", tmp_path)
    assert "a.json is no JSON" in shown.stderr and "b.json is no record" in shown.stderr
    assert "d.json is no record of a trial: schema is missing, and 4 more" in shown.stderr
    assert "| 1 | c | no verdict |" in shown.stdout


texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20
) | st.sampled_from(["<script>alert(1)</script>", "a|b", "`x`", "</td>", "[l](http://x)", '"'])
figures = st.lists(st.floats(0.001, 1e6), max_size=3)


@st.composite
def ledgers(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        record(
            draw(texts),
            number,
            goal=draw(st.none() | texts),
            figures=draw(figures),
            base=draw(figures),
            confounded=draw(st.none() | texts),
            bundles=draw(st.lists(texts, max_size=2)),
            verdict=draw(st.sampled_from([None, "win", "loss", "baseline", "dead-end"])),
            unblock=draw(st.sampled_from([None, 'cuda >= "13"', "nonsense"])),
        )
        for number in range(draw(st.integers(0, 4)))
    ]


class _Tags(HTMLParser):
    """Every tag of a page, and the text in its cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@given(ledgers())
def test_no_text_of_a_record_becomes_markup(records: list[dict[str, Any]]) -> None:
    plan = board.make(records, NOW, ["a bundle"])
    json.dumps(board.as_json(plan, records))
    rows = [line for line in markdown(plan).splitlines() if line.startswith("| ")]
    assert len(rows) == len(records) + 2
    assert {row.replace("\\|", "").count("|") for row in rows} == {8}
    reader = _Tags()
    text = page(plan, [])
    reader.feed(text)
    assert reader.tags <= {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "dl", "dt", "dd"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "button", "span", "ul", "li"),
        *("strong", "code", "footer", "script"),
    }
    assert text.count("<script") == 1
    for one in records:
        assert one["name"] in reader.text


@pytest.mark.parametrize(
    "say, given_, expected",
    [
        (words.number, 82.0, "82"),
        (words.number, 89.512, "89.51"),
        (words.number, 123456.7, "123457"),
        (words.number, 0.00001234, "0.00001234"),
        (words.number, 0.0, "0"),
        (words.percent, 89.5 / 82, "+9.1 %"),
        (words.percent, 60 / 82, "−26.8 %"),
        (words.percent, 1.0004, "±0.0 %"),
    ],
)
def test_figures_are_said_with_the_digits_that_count(
    say: Callable[[float], str], given_: float, expected: str
) -> None:
    assert say(given_) == expected


# -- whatever lies in the ledger ----------------------------------------------------------


def _everything(records: list[dict[str, Any]]) -> str:
    """What all readers make of records."""
    plan = board.make(records, NOW, ["other"])
    shown = [json.dumps(board.as_json(plan, records)), markdown(plan), page(plan, [])]
    return " ".join([*shown, *map(str, revisit(records, NOW))])


#: Key path → what somebody, or a merge, may have put there.
WRONG: list[tuple[tuple[str | int, ...], Any]] = [
    (("sets",), {"candidate": 5}),
    (("sets", "candidate", "bundles"), 5),
    (("sets", "candidate", "environ"), [1]),
    (("sets", "candidate", "arguments"), 5),
    (("command",), [1]),
    (("metrics",), {"throughput": 5}),
    (("metrics", "throughput", "better"), ["higher"]),
    (("runs", 0), {}),
    (("runs", 0, "values"), [1]),
    (("runs", 0, "values", "throughput"), 10**400),
    (("runs", 0, "values", "throughput"), float("nan")),
    (("comparison",), {"throughput": 5}),
    (("comparison",), {"throughput": {"interval": [1]}}),
    (("verdict", "reason"), ["no"]),
    (("verdict", "unblock"), 5),
    (("id",), "20260201-000009-other-000009"),
    (("given",), {"repeat": "3"}),
]


@pytest.mark.parametrize(("path", "value"), WRONG, ids=[str(path) for path, _ in WRONG])
def test_a_record_with_a_wrong_key_is_named_and_hides_no_other(
    tmp_path: Path, path: tuple[str | int, ...], value: Any
) -> None:
    good = record("good", 1, verdict="win", figures=(2.0,), base=(1.0,))
    bad = record("bad", 2, verdict="dead-end", unblock='cuda >= "13"', figures=(2.0,), base=(1.0,))
    for one in (good, bad):
        (tmp_path / f"{one['id']}.json").write_text(json.dumps(one))
    assert len(read_all(str(tmp_path))[0]) == 2
    inner: Any = bad
    file = tmp_path / f"{bad['id']}.json"
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file.write_text(json.dumps(bad))
    records, remarks = read_all(str(tmp_path))
    assert [one["name"] for one in records] == ["good"]
    assert len(remarks) == 1 and str(file) in remarks[0]
    assert "good" in _everything(records)


def test_what_is_no_file_of_a_ledger_stops_no_reader(cli: Cli, tmp_path: Path) -> None:
    good = record("good", verdict="dead-end", unblock='cuda >= "13"')
    (tmp_path / f"{good['id']}.json").write_text(json.dumps(good))
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "merge.json").write_text("<<<<<<< HEAD\n{}\n=======\n")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "._good.json").write_bytes(b"\0\5\26\7")  # what a foreign file system leaves
    given = ("--trials", tmp_path, "--facts", EXAMPLE / "facts-cuda-13.json")
    for command in ("revisit", "report"):
        shown = cli("trial", command, *given)
        assert "good" in shown.stdout
        for name in ("folder", "pipe", "loop", "merge", "deep"):
            assert f"/{name}.json" in shown.stderr
        assert "._good" not in shown.stderr


def test_half_of_a_pair_in_a_record_is_written_as_json_has_it(cli: Cli, tmp_path: Path) -> None:
    one = record("x", verdict="loss", goal="a\ud800b")
    (tmp_path / f"{one['id']}.json").write_text(json.dumps(one))
    out = tmp_path / "report"
    given = ("--trials", tmp_path, "--facts", EXAMPLE / "facts.json")
    cli("trial", "report", *given, "-o", out)
    assert "a\\ud800b" in out.read_text()
    assert "a\\ud800b" in cli("trial", "report", *given).stdout


# -- one trial, from its run to its waking ------------------------------------------------


def test_a_trial_that_was_run_wakes_when_the_machine_is_another(cli: Cli, tmp_path: Path) -> None:
    bundles = tmp_path / "bundles"
    (bundles / "manifests").mkdir(parents=True)
    (bundles / "patches").mkdir()
    (bundles / "manifests" / "tree.toml").write_text(
        'schema = 1\nname = "tree"\nversion = "1.0.0"\nsummary = "a setting"\n'
        '[profile]\nenv = { NCCL_ALGO = "Tree" }\n'
    )
    site = tmp_path / "site-packages"
    site.mkdir()
    given = ("--root", site, "--bundles", bundles)
    command = (sys.executable, "-c", "import os; print('speed', len(os.environ['NCCL_ALGO']))")
    ran = cli(
        *given,
        *("trial", "run", "--name", "tree", "--bundle", "tree", "--json"),
        *("--metric", r"speed[tok/s]:higher=speed (\d+)", "--", *command),
    ).json["trial"]
    assert ran["facts"]["os"] == sys.platform and ran["runs"][0]["values"]["speed"] == 4.0
    wrong = cli(
        *given,
        *("trial", "verdict", "tree", "dead-end", "--unblock", "cudaa >= '13'"),
        check=3,
    )
    assert "no fact is called 'cudaa'; did you mean 'cuda'?" in wrong.stderr
    cli(
        *given,
        *("trial", "verdict", "tree", "dead-end", "--reason", "slow"),
        *("--unblock", 'gpus >= "8" and nvlink == "false"'),
    )
    assert cli(*given, "trial", "revisit", "--json").json["trials"] == []
    (woken,) = cli(
        *given, "trial", "revisit", "--facts", EXAMPLE / "facts.json", "--json"
    ).json["trials"]  # fmt: skip
    assert {"fact": "nvlink", "then": None, "now": "false"} in woken["changed"]
    assert " trial run --name tree --only --bundle tree --metric " in woken["command"]
    assert woken["command"].endswith(shlex.join(["--", *command]))
    report = cli(*given, "trial", "report").stdout
    assert "| 1 | tree | dead-end | 4 tok/s |" in report
