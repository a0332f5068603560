"""Confidence against its formula, for one and for several models."""

import numpy as np

import labelwise
from tests.conftest import make_probabilities


def formula(p):
    return 1 - p.max(axis=1)


def test_picks_the_highest_by_the_formula():
    probabilities = make_probabilities(300, 5)
    picks = labelwise.select("confidence", 40, probabilities=probabilities)
    scores = formula(probabilities)
    assert picks.ids.tolist() == np.argsort(-scores, kind="stable")[:40].tolist()
    np.testing.assert_allclose(picks.scores, scores[picks.ids])


def test_equal_items_go_by_their_id():
    probabilities = np.tile([0.2, 0.5, 0.3], (50, 1)).astype(np.float32)
    assert labelwise.select("confidence", 7, probabilities=probabilities).ids.tolist() == list(
        range(7)
    )


def test_several_models_count_by_their_mean_each_scaled_over_the_pool():
    models = [make_probabilities(100, 4, seed) for seed in range(3)]
    scaled = []
    for probabilities in models:
        scores = formula(probabilities)
        scaled.append((scores - scores.min()) / (scores.max() - scores.min()))
    expected = np.argsort(-np.mean(scaled, axis=0), kind="stable")[:10].tolist()
    assert labelwise.select("confidence", 10, probabilities=models).ids.tolist() == expected
    members = np.stack(models, axis=1)
    assert labelwise.select("confidence", 10, member_probabilities=members).ids.tolist() == expected
