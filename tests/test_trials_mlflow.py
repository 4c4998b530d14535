"""``trial export --mlflow``, into a real store in a file."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.test_trials_views import TRIALS

needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="needs mlflow (the extra 'mlflow')"
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of MLflow and of SQLAlchemy beneath it
@needs_mlflow
def test_trials_become_runs_once_and_get_their_verdict_anew(cli: Cli, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    folder = tmp_path / "trials"
    shutil.copytree(TRIALS, folder)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    given = ("trial", "export", "--mlflow", uri, "--trials", folder, "--json")
    done = cli(*given, cwd=tmp_path).json
    assert len(done["written"]) == 14 and done["there"] == []
    file = next(folder.glob("*sm120-fusion*.json"))
    one = json.loads(file.read_text(encoding="utf-8"))
    one["verdict"]["reason"] = "another reason"
    file.write_text(json.dumps(one))
    again = cli(*given, cwd=tmp_path).json
    assert again["written"] == [] and len(again["there"]) == 14

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("patchkit")
    assert experiment is not None
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert len(runs) == 14
    fusion = runs["sm120-fusion"].data
    assert fusion.tags["patchkit.verdict"] == "dead-end"
    assert fusion.tags["patchkit.reason"] == "another reason"
    assert fusion.tags["patchkit.unblock"] == 'cuda >= "13" or flashinfer-python >= "0.6.17"'
    assert fusion.params["candidate.bundles"] == "sm120-fusion"
    assert fusion.params["fact.cuda"] == "12.8"
    win = runs["cuda-graph-max-bs-128"]
    assert win.data.metrics == {"throughput": 89.5, "baseline.throughput": 82.0}
    assert runs["deep-ep"].info.status == "SCHEDULED"
    artifacts = Path(win.info.artifact_uri.removeprefix("file://"))
    assert (
        json.loads((artifacts / "trial.json").read_text())["id"] == win.data.tags["patchkit.trial"]
    )


@pytest.mark.slow
@needs_mlflow
def test_a_store_that_mlflow_does_not_take_is_refused(cli: Cli, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'gone' / 'deeper'}"
    (tmp_path / "gone").write_text("")
    refused = cli("trial", "export", "--mlflow", "nonsense://x", "--trials", TRIALS, check=3)
    assert "MLflow does not take nonsense://x" in refused.stderr
    assert cli("trial", "export", "--mlflow", uri, "--trials", TRIALS, check=None).exit_code in (
        3,
        4,
    )


@pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is not None, reason="needs an environment without mlflow"
)
def test_without_mlflow_the_extra_is_named(cli: Cli) -> None:
    refused = cli("trial", "export", "--mlflow", "sqlite:///x.db", "--trials", TRIALS, check=3)
    assert "pip install 'patchkit-sets[mlflow]'" in refused.stderr
