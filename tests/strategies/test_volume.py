"""Volume sampling against the probabilities of its definition."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import labelwise
from labelwise.errors import BadInput
from labelwise.strategies.volume import sample_volume


def slow_probabilities(rows, size):
    """The probability of every batch, from determinants."""
    batches = list(combinations(range(len(rows)), size))
    volumes = [np.linalg.det(rows[list(batch)].T @ rows[list(batch)]) for batch in batches]
    return dict(zip(batches, np.array(volumes) / np.sum(volumes), strict=True))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_batches_occur_as_often_as_their_volumes_say(size):
    rows = np.random.default_rng(0).normal(size=(6, 2))
    expected = slow_probabilities(rows, size)
    rng, draws = np.random.default_rng(1), 3000
    found = dict.fromkeys(expected, 0)
    for _ in range(draws):
        found[tuple(sorted(sample_volume(rows, size, rng).tolist()))] += 1
    counts = np.array([found[batch] for batch in expected])
    wanted = draws * np.array([expected[batch] for batch in expected])
    assert stats.chisquare(counts, wanted).pvalue > 1e-4


def test_the_plain_fit_on_a_batch_is_unbiased():
    """By enumeration: the expectation over all batches is the fit on the pool."""
    rng = np.random.default_rng(2)
    rows, targets = rng.normal(size=(7, 2)), rng.normal(size=7)
    mean = sum(
        share * np.linalg.lstsq(rows[list(batch)], targets[list(batch)])[0]
        for batch, share in slow_probabilities(rows, 3).items()
    )
    np.testing.assert_allclose(mean, np.linalg.lstsq(rows, targets)[0], rtol=1e-8)


def test_items_that_span_a_direction_alone_are_always_picked():
    features = np.zeros((500, 3))
    features[:, 0] = np.random.default_rng(3).normal(size=500)
    features[17, 1] = features[401, 2] = 1.0
    for seed in range(5):
        picks = labelwise.select("volume", 6, features=features, seed=seed)
        assert {17, 401} <= set(picks.ids.tolist()) and len(set(picks.ids.tolist())) == 6


def test_picks_do_not_depend_on_the_basis_or_the_order_of_rows():
    rng = np.random.default_rng(4)
    features, change = rng.normal(size=(300, 4)), rng.normal(size=(4, 4))
    plain = labelwise.select("volume", 20, features=features, seed=1)
    other = labelwise.select("volume", 20, features=features @ change + 3.0, seed=1)
    assert other.ids.tolist() == plain.ids.tolist()
    assert plain.weights is None and plain.info["rank"] == 5


def test_a_budget_below_the_rank_uses_the_first_principal_directions():
    features = np.random.default_rng(5).normal(size=(60, 30))
    picks = labelwise.select("volume", 8, features=features, seed=0)
    assert len(set(picks.ids.tolist())) == 8
    assert (picks.info["rank"], picks.info["directions"]) == (31, 8)


def test_a_bias_is_true_or_false():
    with pytest.raises(BadInput, match="bias must be True or False; got 1"):
        labelwise.select("volume", 2, features=np.eye(3), bias=1)
