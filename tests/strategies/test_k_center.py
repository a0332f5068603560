"""Greedy k-center against a slow version that keeps no state."""

import numpy as np
import pytest

import labelwise
from tests.conftest import make_features


def slow_k_center(features, labelled, budget):
    """Measure all distances to all centres again at every pick."""
    picked = []
    for _ in range(budget):
        centres = features[labelled + picked]
        distances = ((features[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1)
        distances[labelled + picked] = -1
        picked.append(int(distances.argmax()))
    return picked


@pytest.mark.parametrize("seed", range(5))
def test_matches_the_slow_version(seed):
    features = make_features(80, 5, seed)
    selection = labelwise.select("k_center", 15, features=features, labelled=[2, 71, 5])
    assert selection.ids.tolist() == slow_k_center(features, [2, 71, 5], 15)


def test_covers_a_line_from_its_ends():
    selection = labelwise.select("k_center", 3, features=np.arange(5.0)[:, None])
    assert selection.ids.tolist() == [0, 4, 2]
    assert selection.scores.tolist() == [4.0, 16.0, 4.0]  # the first: from the mean


def test_the_radius_is_at_most_twice_the_best():
    features = make_features(10, 2, 4)
    distances = ((features[:, None] - features[None]) ** 2).sum(axis=2) ** 0.5
    pairs = [(i, j) for i in range(10) for j in range(i)]
    best = min(distances[:, list(pair)].min(axis=1).max() for pair in pairs)
    picked = labelwise.select("k_center", 2, features=features).ids
    assert distances[:, picked].min(axis=1).max() <= 2 * best + 1e-12
