"""``labelwise train``: what it prints about a model."""

import os
import re
import sys
import time
from pathlib import Path
from subprocess import run as run_process
from types import SimpleNamespace

import pytest

from labelwise.campaign.evaluation import ModelEvaluation
from labelwise.campaign.forecast import forecast_batch
from labelwise.campaign.project import Project
from labelwise.campaign.runner import sign_process
from labelwise.cli import run
from labelwise.cli.status import format_training_changes
from labelwise.record.events import Training
from tests.cli.folders import CLASSES, answer, ledger


def test_a_model_is_trained_measured_and_recorded(two_rounds, trained):
    out = two_rounds[1][0]
    first = ledger().trainings[0]
    metrics = first.metrics
    assert first.seed == 5
    trained_on, held_out = metrics["training_labels"], metrics["validation_labels"]
    assert f": trained on {trained_on} labels; evaluating: {held_out} of 30 held-out labels" in out
    assert "accuracy" not in out.splitlines()[0]
    assert out.splitlines()[-1] == "next: labelwise label (or labelwise ask --out batch.csv)"


def test_the_second_model_is_compared_with_the_first(two_rounds, trained):
    out = two_rounds[1][1]
    second = ledger().trainings[1].metrics
    assert "points since model 1" not in out  # too few held-out labels
    assert f"same prediction as model 1 for {100 * second['agreement']:.1f} % of the pool" in out
    assert f"the previous model predicted {100 * second['prequential']:.1f} % of the last" in out
    record = Project.open().open_record()
    assert f"forecast: {forecast_batch(record.ledger(), record.settings).says}\n" in out
    assert re.search(r"^advice: ", out, re.M)


def test_training_without_labels_is_one_line_of_error(folder, capsys):
    code, out, err = answer(capsys, "train")
    assert (code, out) == (1, "")
    assert "there are no labels to train on" in err and len(err.splitlines()) == 1


def test_an_interruption_says_what_the_record_has_of_it(folder, capsys):
    Path("interrupting.py").write_text(
        "from torch import nn\n"
        "class Network(nn.Linear):\n"
        "    def __init__(self, shape, outputs):\n"
        "        super().__init__(shape[0], outputs)\n"
        "    def forward(self, rows):\n"
        "        if self.training:\n"
        "            raise KeyboardInterrupt\n"
        "        return super().forward(rows)\n"
    )
    project = Project.start("plants.csv", home="c", classes=CLASSES, module="interrupting:Network")
    project.open_record().tell({0: "low", 20: "high"}, anything=True)
    before = project.open_record().ledger().length
    capsys.readouterr()
    assert run(["train", "--campaign", "c"]) == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("labelwise: interrupted; the record notes that training 1 failed")
    after = Project.open("c").open_record().ledger()
    assert after.failure.number == 1 and after.length == before + 2
    assert after.labels == {0: "low", 20: "high"}


def test_a_model_without_measurement_says_how_to_get_one():
    trained = SimpleNamespace(number=1, labels=20, metrics={"loss": 0.1})
    assert "--test FILE or --validation" in ModelEvaluation.from_training(trained).describe()


@pytest.mark.parametrize("held_out", [29, 30])
def test_measures_over_classes_are_shown_with_the_accuracy(held_out):
    metrics = {"accuracy": 0.9, "balanced_accuracy": 0.75, "macro_f1": 0.7}
    metrics["validation_labels"] = held_out
    lines = format_training_changes(SimpleNamespace(number=1, labels=80, metrics=metrics), None)
    assert lines == ["balanced accuracy 75.0 %, macro F1 0.70"] * (held_out == 30)


def test_an_error_is_told_as_a_number():
    metrics = {"mse": 2.0, "interval": [1.5, 2.5], "validation_labels": 40}
    trained = SimpleNamespace(number=2, labels=90, metrics=metrics)
    before = SimpleNamespace(number=1, labels=80, metrics={**metrics, "mse": 3.0})
    assert format_training_changes(trained, before) == ["-1 since model 1"]


def test_a_few_held_out_values_are_no_comparison_with_the_mean():
    folded = {"mse": 4.0, "baseline": 5.0, "r2": 0.2}
    metrics = {"mse": 1.0, "baseline": 10.0, "r2": 0.9, "out_of_fold": folded}
    for held_out, words in ((4, "R2 0.20 "), (30, "R2 0.90 ")):
        metrics |= {"validation_labels": held_out}
        trained = SimpleNamespace(number=1, labels=80, metrics=metrics)
        assert [line[:8] for line in format_training_changes(trained, None)] == [words]


def test_a_training_at_work_is_waited_for_and_one_whose_process_is_gone_is_not(trained, capsys):
    record = Project.open().open_record()
    record.storage.append(record.name, [Training(time.time(), 3, 20, sign_process(os.getpid()))])
    code, _, err = answer(capsys, "train")
    assert code == 1 and "training 3 is running; wait for it" in err
    assert "number 3 is running" in answer(capsys, "status")[1]
    gone = run_process([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    left = sign_process(int(gone.stdout))
    record.storage.append(record.name, [Training(time.time(), 4, 20, left)])
    out = answer(capsys, "status")[1]
    assert "number 4 ended before it was finished" in out and "next      labelwise label" in out
    assert answer(capsys, "train")[0] == 0
    assert ledger().trainings[-1].number == 5 and ledger().training is None
