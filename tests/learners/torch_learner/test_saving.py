"""A learner that was saved, and taken back."""

import numpy as np
import pytest
from torch import nn

from labelwise.errors import BadInput
from labelwise.learners.torch_learner import TorchLearner
from tests.learners.torch_learner.small import (
    INPUTS,
    LABELS,
    NAMES,
    POOL,
    VALUES,
    assert_states,
    network,
    normed,
    state,
    trained,
)


@pytest.mark.parametrize("make", [network, normed])
def test_a_saved_learner_gives_the_same_rows(make, tmp_path):
    learner = trained(make)
    learner.save(tmp_path / "learner")
    names = sorted(path.name for path in (tmp_path / "learner").iterdir())
    assert names == ["learner.json", "tensors.safetensors"]
    loaded = TorchLearner(make)
    loaded.load(tmp_path / "learner")
    for name, rows in learner.represent(POOL, NAMES).items():
        np.testing.assert_array_equal(loaded.represent(POOL, NAMES)[name], rows)
    assert loaded.predict(POOL).tolist() == learner.predict(POOL).tolist()
    with pytest.raises(BadInput, match="gradient_products need the labelled items"):
        loaded.represent(POOL, ["gradient_products"])


def test_a_saved_regression_stays_one(tmp_path):
    learner = trained(lambda: network(2), targets=VALUES, loss="mse")
    learner.save(tmp_path)
    loaded = TorchLearner(lambda: network(2), loss="mse")
    loaded.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(POOL), learner.predict(POOL))


class Tied(nn.Module):
    """Two layers with the same weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.out(self.second(self.first(x).relu()).relu())


def test_tied_weights_are_saved_and_stay_tied(tmp_path):
    learner = trained(Tied)
    learner.save(tmp_path)
    loaded = TorchLearner(Tied)
    loaded.load(tmp_path)
    assert loaded.module.first.weight is loaded.module.second.weight
    np.testing.assert_array_equal(
        loaded.represent(POOL, ["logits"])["logits"], learner.represent(POOL, ["logits"])["logits"]
    )


def test_a_warm_start_goes_on_from_a_saved_learner(tmp_path):
    learner = trained(warm_start=True)
    learner.save(tmp_path)
    loaded = TorchLearner(network, epochs=5, warm_start=True)
    loaded.load(tmp_path)
    for one in (learner, loaded):
        one.fit(INPUTS, LABELS, seed=2)
    assert_states(state(learner), state(loaded), rtol=0, atol=0)


def test_loading_into_another_module_is_refused(tmp_path):
    trained().save(tmp_path)
    with pytest.raises(
        BadInput, match=r"fits another module than make_module gives: size mismatch"
    ):
        TorchLearner(lambda: network(4)).load(tmp_path)
    with pytest.raises(BadInput, match="no saved learner"):
        TorchLearner(network).load(tmp_path / "elsewhere")
