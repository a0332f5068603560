"""Coverage of several models against sets."""

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.theory.coverage import model_coverage


@pytest.mark.parametrize("percent", [1, 7.5, 10, 50, 100])
def test_matches_sets(percent):
    weights = np.random.default_rng(0).random((4, 200))
    count = max(1, round(percent / 100 * 200))
    shared = set(np.argsort(-weights.max(axis=0))[:count])
    own = [len(set(np.argsort(-row)[:count]) & shared) / count for row in weights]
    assert model_coverage(weights, percent) == pytest.approx(np.mean(own), abs=1e-12)


def test_models_alike_share_everything_and_disjoint_ones_a_share():
    row = np.random.default_rng(0).random(100)
    assert model_coverage([row, row, row], 10) == 1.0
    apart = np.zeros((4, 100))
    for model in range(4):
        apart[model, 25 * model : 25 * model + 25] = 1 + np.arange(25) / 100
    assert model_coverage(apart, 25) == pytest.approx(1 / 4, abs=0.03)


def test_ties_go_to_the_smaller_id_in_every_model():
    assert model_coverage(np.ones((3, 10)), 30) == 1.0


@pytest.mark.parametrize("percent", [0, -1, 101, np.nan])
def test_a_percentage_out_of_range_is_refused(percent):
    with pytest.raises(BadInput, match="percent must be"):
        model_coverage(np.ones((2, 5)), percent)


def test_weights_that_are_not_models_by_items_are_refused():
    with pytest.raises(BadInput, match="models by items"):
        model_coverage(np.ones(5), 10)
