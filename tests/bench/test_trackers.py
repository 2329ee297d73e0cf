"""Trackers as they are: MLflow's own store and TensorBoard's own event files, written and read back."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest.mock import MagicMock

import pytest

from oddnode.bench.trackers import log_results, open_tracker
from oddnode.evaluation import Result
from tests.cli.test_app import CLI
from tests.paper_helpers import result_of

NO_MLFLOW, NO_TENSORBOARD = (
    f"{name.upper()} IS NOT TESTED: pip install 'oddnode[{name}]'" for name in ("mlflow", "tensorboard")
)
AUROCS = [90.25, 80.5, 85.125]


def result(method: str = "msp") -> Result:
    return result_of("digits/label", method, *AUROCS)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of a store in files, which MLflow wants to be asked for."""
    mlflow = pytest.importorskip("mlflow", reason=NO_MLFLOW)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())


def mlflow_runs(store: Any, experiment: str = "oddnode") -> list[Any]:
    return store.search_runs([store.get_experiment_by_name(experiment).experiment_id])


def test_mlflow_has_a_run_with_every_seed_and_the_means(store: Any) -> None:
    changed = replace(result(), settings={"num_hops": 2, "eta": 0.5})
    log_results([changed, result("degree")], [open_tracker(f"mlflow={store.tracking_uri}")])
    by_method = {run.data.params["method"]: run for run in mlflow_runs(store)}
    run = by_method["msp"]
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "digits/label msp"
    assert {"task": "digits/label", "protocol": "clean", "seeds": "3"}.items() <= run.data.params.items()
    assert run.data.params["settings"] == "num_hops=2, eta=0.5"
    assert not [name for name in run.data.metrics if "settings" in name]
    assert run.data.metrics["auroc"] == pytest.approx(fmean(AUROCS), abs=1e-4)
    assert run.data.metrics["auroc_std"] == pytest.approx(stdev(AUROCS), abs=1e-4)
    history = store.get_metric_history(run.info.run_id, "per_seed/auroc")
    assert [(point.step, point.value) for point in history] == list(enumerate(AUROCS))
    assert "id_acc" in run.data.metrics
    assert not [name for name in by_method["degree"].data.metrics if "id_acc" in name]  # it classifies nothing


def test_a_second_benchmark_goes_to_the_same_experiment(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        log_results([result()], [open_tracker(f"mlflow={store.tracking_uri}")])
    assert len(mlflow_runs(store)) == 2
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracking_uri)
    log_results([result()], [open_tracker("mlflow")])
    assert len(mlflow_runs(store, "mine")) == 1


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=NO_TENSORBOARD)
    for _ in range(2):
        log_results([result()], [open_tracker(f"tensorboard={tmp_path}")])
    first, second = sorted(tmp_path.iterdir())  # a folder for each benchmark
    assert first != second
    events = reader.EventAccumulator(str(second / "digits" / "label" / "msp")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("per_seed/auroc")] == list(enumerate(AUROCS))
    [mean] = events.Scalars("auroc")
    assert mean.value == pytest.approx(fmean(AUROCS), abs=1e-3)
    [text] = events.Tensors("settings/text_summary")
    assert b"method msp" in text.tensor_proto.string_val[0]


def test_weights_and_biases_gets_every_seed_and_the_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in, since the package is in none of the environments that run tests."""
    wandb = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_MODE", "offline")
    log_results([result()], [open_tracker("wandb=mine")])
    wandb.login.assert_not_called()  # without a network
    asked = wandb.init.call_args.kwargs
    assert (asked["project"], asked["name"]) == ("mine", "digits/label msp")
    run = wandb.init.return_value.__enter__.return_value
    logged = [call.args[0] for call in run.log.call_args_list]
    assert [(row["seed"], row["per_seed/auroc"]) for row in logged] == list(enumerate(AUROCS))
    [means] = run.summary.update.call_args.args
    assert means["auroc"] == pytest.approx(fmean(AUROCS), abs=1e-4)


def test_the_command_line_logs_what_it_prints(store: Any, cli: CLI) -> None:
    arguments = ["--methods", "msp", "--seeds", "1", "--jobs", "1", "--log", f"mlflow={store.tracking_uri}"]
    done = cli("bench", *arguments)
    assert done.returncode == 0, done.stderr
    methods = [run.data.params["method"] for run in mlflow_runs(store)]
    assert sorted(methods) == sorted(["msp", "nonzeros", "degree", "neighbour-cosine", "centred-cosine"])


@pytest.mark.parametrize(
    ("log", "missing", "message"),
    [
        ("mlflow", "mlflow", "pip install 'oddnode[mlflow]'"),
        ("wandb", "wandb", "pip install 'oddnode[wandb]'"),
        ("tensorboard", "torch.utils.tensorboard", "pip install 'oddnode[tensorboard]'"),
        ("tensorboard=/proc/runs", None, "cannot create the folder /proc/runs"),
    ],
)
def test_a_tracker_that_cannot_be_used_is_an_error_before_the_work(
    log: str, missing: str | None, message: str, cli: CLI, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    elif log.startswith("tensorboard"):
        pytest.importorskip("tensorboard", reason=NO_TENSORBOARD)
    monkeypatch.setattr("oddnode.bench.run.benchmark", lambda *_, **__: pytest.fail("the work has begun"))
    done = cli("bench", "--log", log, fails=True)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_tracker_that_refuses_says_why(store: Any) -> None:
    with pytest.raises(ValueError, match="mlflow cannot be used: "):
        open_tracker("mlflow=nosuch://place")


def test_results_come_before_a_failure(store: Any, tmp_path: Path, cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise KeyError("no space")

    monkeypatch.setattr("mlflow.MlflowClient.create_run", full)
    arguments = ["--methods", "msp", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path / "out")]
    done = cli("bench", *arguments, "--log", f"mlflow={store.tracking_uri}", fails=True)
    assert done.returncode == 1
    assert "MLflow could not log msp on digits/label: KeyError: 'no space'" in done.stderr
    assert "digits/label" in done.stdout
    assert (tmp_path / "out" / "seeds.csv").exists()
