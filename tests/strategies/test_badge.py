"""BADGE: the gradients, and the law of the draw."""

import numpy as np
from scipy.stats import chisquare

import labelwise
from labelwise.strategies.badge import compute_badge_gradients
from tests.conftest import make_features, make_probabilities


def dense_gradients(features, probabilities):
    """Gradient of the cross-entropy with respect to the last layer, at the predicted label."""
    rows = []
    for h, p in zip(features, probabilities, strict=True):
        residual = p.copy()
        residual[p.argmax()] -= 1
        rows.append(np.outer(residual, h).ravel())
    return np.array(rows)


def test_gradients_are_those_of_the_predicted_label():
    features, probabilities = make_features(30, 4), make_probabilities(30, 3)
    rows = compute_badge_gradients({"features": features, "probabilities": probabilities})
    np.testing.assert_allclose(rows.dense(), dense_gradients(features, probabilities), atol=1e-15)


def test_the_first_pick_has_the_largest_gradient():
    features, probabilities = make_features(200, 4), make_probabilities(200, 3)
    norms = (dense_gradients(features, probabilities) ** 2).sum(axis=1)
    for seed in range(5):
        picks = labelwise.select(
            "badge", 5, features=features, probabilities=probabilities, seed=seed
        )
        assert picks.ids[0] == norms.argmax()


def test_the_second_pick_has_the_law_of_squared_distances():
    features, probabilities = make_features(12, 3), make_probabilities(12, 3)
    rows = dense_gradients(features, probabilities)
    first = (rows**2).sum(axis=1).argmax()
    mass = ((rows - rows[first]) ** 2).sum(axis=1)
    seconds = [
        labelwise.select("badge", 2, features=features, probabilities=probabilities, seed=seed).ids[
            1
        ]
        for seed in range(600)
    ]
    found = np.bincount(seconds, minlength=12)
    others = np.arange(12) != first
    assert found[first] == 0
    assert chisquare(found[others], 600 * mass[others] / mass.sum()).pvalue > 1e-3


def test_certain_items_are_not_picked_before_uncertain_ones():
    features = make_features(100, 4)
    probabilities = np.tile([1.0, 0.0, 0.0], (100, 1))
    probabilities[40:60] = [0.4, 0.3, 0.3]
    picks = labelwise.select("badge", 20, features=features, probabilities=probabilities).ids
    certain = [pick for pick in picks.tolist() if not 40 <= pick < 60]
    assert len(certain) <= 1  # all certain items share one gradient, zero: at most one is far
