"""Entropy against its formula, for one and for several models."""

import numpy as np
import pytest

import labelwise
from tests.conftest import make_probabilities


def formula(p):
    return -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)


def test_picks_the_highest_by_the_formula():
    probabilities = make_probabilities(300, 5)
    picks = labelwise.select("entropy", 40, probabilities=probabilities)
    scores = formula(probabilities)
    assert picks.ids.tolist() == np.argsort(-scores, kind="stable")[:40].tolist()
    np.testing.assert_allclose(picks.scores, scores[picks.ids])


def test_equal_items_go_by_their_id():
    probabilities = np.tile([0.2, 0.5, 0.3], (50, 1)).astype(np.float32)
    assert labelwise.select("entropy", 7, probabilities=probabilities).ids.tolist() == list(
        range(7)
    )


def test_several_models_count_by_their_mean_each_scaled_over_the_pool():
    models = [make_probabilities(100, 4, seed) for seed in range(3)]
    scaled = []
    for probabilities in models:
        scores = formula(probabilities)
        scaled.append((scores - scores.min()) / (scores.max() - scores.min()))
    expected = np.argsort(-np.mean(scaled, axis=0), kind="stable")[:10].tolist()
    assert labelwise.select("entropy", 10, probabilities=models).ids.tolist() == expected
    members = np.stack(models, axis=1)
    assert labelwise.select("entropy", 10, member_probabilities=members).ids.tolist() == expected


def test_a_certain_item_has_no_entropy_and_an_even_one_the_most():
    probabilities = np.array([[1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0]])
    picks = labelwise.select("entropy", 3, probabilities=probabilities)
    assert picks.ids.tolist() == [1, 2, 0]
    np.testing.assert_allclose(picks.scores, [np.log(3), np.log(2), 0], atol=1e-9)


@pytest.mark.parametrize("models", [2, 5])
def test_a_planted_block_of_high_mean_entropy_wins(models):
    """The scores of several models must decide: scaling each to [0, 1] must not wipe them out."""
    generator = np.random.default_rng(models)
    many = [generator.dirichlet([8.0, 0.3, 0.3], size=200) for _ in range(models)]
    planted = generator.choice(200, size=15, replace=False)
    for probabilities in many:
        probabilities[planted] = generator.dirichlet([60.0, 60.0, 60.0], size=15)
    picks = labelwise.select("entropy", 15, probabilities=many)
    assert sorted(picks.ids.tolist()) == sorted(planted.tolist())
