"""TableModel: the choice between models, calibration, members, and saved models."""

import numpy as np
import pytest

from labelwise.errors import BadInput, UnknownName
from labelwise.learners.table_model import TableModel, TableTuning


def make_rows(seed, count=60):
    return np.random.default_rng(seed).uniform(-1, 1, size=(count, 3))


def test_a_line_is_fitted_by_the_linear_model_and_a_step_by_trees():
    rows = make_rows(0, 120)
    line, step = TableModel(regression=True), TableModel(regression=True)
    line.fit(rows, rows @ np.array([3.0, 1.0, -2.0]), seed=0)
    step.fit(rows, 5.0 * (np.abs(rows[:, 0]) > 0.5), seed=0)
    assert line.tuning.model == "linear" and step.tuning.model in ("forest", "boosting")
    assert set(step.losses) == {"linear", "forest", "boosting"}
    assert step.losses[step.tuning.model] == min(step.losses.values())
    errors = step.out_of_fold.logits - step.out_of_fold.targets
    assert float(np.mean(errors**2)) == pytest.approx(step.losses[step.tuning.model])


@pytest.mark.parametrize("model", ["linear", "forest", "boosting"])
def test_every_model_gives_all_representations_and_can_be_saved(model, tmp_path):
    rows = make_rows(1)
    targets = (rows[:, 0] > 0).astype(int)
    learner = TableModel(classes=3, model=model)
    learner.fit(rows, targets, np.linspace(1, 2, len(rows)), seed=5)
    names = list(learner.offered())
    found = learner.represent(rows, names)
    assert found["probabilities"].shape == (60, 3) and (found["probabilities"] > 0).all()
    assert found["member_probabilities"].shape == (60, *found["member_votes"].shape[1:], 3)
    np.testing.assert_allclose(found["member_probabilities"].sum(axis=2), 1)
    members = found["member_probabilities"]
    means = members.mean(axis=1)
    variances = (members**2).mean(axis=1) - means**2
    np.testing.assert_allclose(
        (found["gradient_sketch"] ** 2).sum(axis=1), variances.sum(axis=1), atol=1e-9
    )
    learner.save(tmp_path / "model")
    loaded = TableModel()
    loaded.load(tmp_path / "model")
    again = loaded.represent(rows, names)
    for name in names:
        np.testing.assert_allclose(again[name], found[name], atol=1e-9)
    np.testing.assert_array_equal(loaded.out_of_fold.logits, learner.out_of_fold.logits)
    assert loaded.tuning == learner.tuning


def test_tuning_of_an_earlier_training_gives_the_same_model():
    rows = make_rows(2)
    targets = (rows[:, 0] > rows[:, 1]).astype(int)
    first, second = TableModel(), TableModel()
    first.fit(rows, targets, seed=1)
    second.fit(rows, targets, seed=1, tuning=first.tuning)
    names = ["probabilities"]
    np.testing.assert_allclose(
        first.represent(rows, names)["probabilities"],
        second.represent(rows, names)["probabilities"],
        atol=1e-9,
    )


@pytest.mark.parametrize("regression", [True, False])
def test_a_model_with_the_tuning_of_fewer_labels_can_be_saved(regression, tmp_path):
    rows = make_rows(3)
    targets = rows[:, 0] if regression else (rows[:, 0] > 0).astype(int)
    learner = TableModel(regression=regression)
    learner.fit(rows[:40], targets[:40], seed=0)
    learner.fit(rows, targets, seed=0, tuning=learner.tuning)
    learner.save(tmp_path)
    loaded = TableModel(regression=regression)
    loaded.load(tmp_path)
    for mine, saved in zip(learner.out_of_fold, loaded.out_of_fold, strict=True):
        assert len(mine) == 40
        np.testing.assert_array_equal(mine, saved)


def test_one_class_or_few_labels_train_the_linear_model():
    rows = make_rows(3, 6)
    learner = TableModel(classes=2)
    learner.fit(rows, np.zeros(6, dtype=int), seed=0)
    assert learner.tuning.model == "linear" and learner.out_of_fold is None
    assert (learner.predict(rows) == 0).all()
    learner.fit(rows[:2], [0, 1], seed=0)
    assert learner.tuning == TableTuning(penalty=learner.tuning.penalty)


def test_bad_settings_are_named():
    with pytest.raises(UnknownName, match="'svm'"):
        TableModel(model="svm")
    with pytest.raises(BadInput, match="not trained"):
        TableModel().predict(make_rows(0))
    with pytest.raises(BadInput, match="one value per item"):
        TableModel(regression=True).fit(make_rows(0), np.ones((60, 2)))
