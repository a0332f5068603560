"""Learners with torch in the tools of scikit-learn."""

import copy

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from labelwise import EnsembleLearner, PrimalDualLearner, SkorchLearner, TorchLearner
from labelwise.errors import BadInput

ROWS, KINDS = load_iris(return_X_y=True)


def make_network():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def make_value():
    return nn.Linear(4, 1)


def make_skorch():
    skorch = pytest.importorskip("skorch")
    loss = nn.CrossEntropyLoss
    return SkorchLearner(skorch.NeuralNetClassifier(make_network, criterion=loss, verbose=0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TorchLearner(make_network, epochs=3),
        lambda: EnsembleLearner(make_network, members=2, epochs=3),
        lambda: PrimalDualLearner(make_network, epochs=3),
        make_skorch,
    ],
)
def test_a_clone_has_the_same_arguments_and_is_not_trained(make):
    learner = make()
    learner.fit(ROWS, KINDS)
    other = clone(learner)
    assert list(other.get_params()) == list(learner.get_params())
    with pytest.raises(BadInput, match="not trained yet"):
        other.predict(ROWS)
    assert learner.predict_proba(ROWS).shape == (150, 3) and is_classifier(learner)
    assert learner.classes_.tolist() == [0, 1, 2]
    assert learner.score(ROWS, KINDS) == np.mean(learner.predict(ROWS) == KINDS)


def test_pipelines_and_searches_train_it():
    learner = TorchLearner(make_network, epochs=40, lr=0.01)
    search = GridSearchCV(learner, {"lr": [1e-9, 0.01]}, cv=3)
    assert search.fit(ROWS, KINDS).best_params_ == {"lr": 0.01}
    pipe = make_pipeline(StandardScaler(), learner)
    assert min(cross_val_score(pipe, ROWS, KINDS, cv=3)) > 0.8


def test_changed_arguments_need_a_new_training():
    learner = TorchLearner(make_value, epochs=3, loss="mse")
    learner.fit(ROWS, ROWS[:, 0])
    assert is_regressor(learner) and learner.score(ROWS, ROWS[:, 0]) <= 1
    assert copy.deepcopy(learner).get_params()["epochs"] == 3
    with pytest.raises(BadInput, match="no setting 'depth'"):
        learner.set_params(depth=3)
    with pytest.raises(BadInput, match="not trained yet"):
        learner.set_params(epochs=4).predict(ROWS)
    with pytest.raises(BadInput, match="validation must be a share"):
        learner.set_params(validation=2.0)
    assert learner.get_params()["validation"] == 0.0
