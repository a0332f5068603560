"""Tracking of rounds with the real MLflow store and real TensorBoard event files."""

import sys

import pytest

from labelwise.benchmark.results import RoundResult
from labelwise.errors import BadInput, MissingDependency
from labelwise.tracking import Tracker


def log_two_rounds(target):
    for round, labels in ((0, 20), (1, 30)):  # a tracker per round: the run is continued
        values = {"round": round, "labels": labels, "metric": "accuracy", "value": labels / 100}
        line = RoundResult(
            *("toy", "full", "digits", "mlp", "margin", 3),
            **values,
            imbalance=float("inf"),  # JSON and servers have no infinity
            seconds={"train": 0.5},
            options={"p": 1},
        )
        with Tracker(target) as tracker:
            line.log(tracker)


def test_rounds_are_steps_of_an_mlflow_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log_two_rounds(f"mlflow:file:{tmp_path}")
    client = mlflow.MlflowClient(tracking_uri=f"file:{tmp_path}")
    experiment = client.get_experiment_by_name("labelwise").experiment_id
    (run,) = client.search_runs([experiment])
    history = client.get_metric_history(run.info.run_id, "accuracy")
    assert [(entry.step, entry.value) for entry in history] == [(20, 0.2), (30, 0.3)]
    assert run.info.run_name == "toy digits margin p=1 seed 3" and run.info.status == "FINISHED"
    assert run.data.params["strategy"] == "margin"
    assert set(run.data.metrics) == {"accuracy", "seconds/train"}


def test_a_missing_package_of_a_store_is_named(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setitem(sys.modules, "alembic", None)
    for name in [name for name in sys.modules if name.startswith("mlflow.store.db")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingDependency, match="needs the package alembic"):
        Tracker(f"mlflow:sqlite:///{tmp_path}/runs.db")


def test_rounds_are_scalars_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_two_rounds(f"tensorboard:{tmp_path}")
    (folder,) = tmp_path.iterdir()
    events = EventAccumulator(str(folder))
    events.Reload()
    points = [
        (e.step, pytest.approx(e.tensor_proto.float_val[0])) for e in events.Tensors("accuracy")
    ]
    assert points == [(20, 0.2), (30, 0.3)]


@pytest.mark.parametrize("target", ["wandb:x", "mlflow", "tensorboard:", ""])
def test_another_target_is_refused(target):
    with pytest.raises(BadInput, match="--track is mlflow:URI or tensorboard:FOLDER; got"):
        Tracker(target)
