"""The example strategy against its formula."""

import numpy as np
import pytest
import torch

import labelwise
from examples.far_from_mean import STRATEGY
from labelwise import LocalShards, Shard
from labelwise.selection.run import select
from tests.conftest import make_features


def slow_far_from_mean(features, budget):
    """Straight from the definition."""
    distances = ((features - features.mean(axis=0)) ** 2).sum(axis=1)
    return np.argsort(-distances, kind="stable")[:budget].tolist()


@pytest.mark.parametrize("seed", range(3))
def test_matches_the_slow_version(seed):
    features = make_features(80, 5, seed)
    picks = labelwise.select(STRATEGY, 10, features=features)
    assert picks.ids.tolist() == slow_far_from_mean(features, 10)


def test_the_ends_of_a_line_come_before_its_middle():
    features = np.array([[0.0], [1.0], [2.0], [3.0], [10.0]])  # the mean is 3.2
    assert labelwise.select(STRATEGY, 3, features=features).ids.tolist() == [4, 0, 1]
    nearest = labelwise.select(STRATEGY, 2, features=features, nearest=True)
    assert nearest.ids.tolist() == [3, 2]


def test_does_not_depend_on_blocks_or_the_array_library():
    features = make_features(60, 5)
    expected = slow_far_from_mean(features, 9)
    parts = np.split(np.random.default_rng(0).permutation(60), [7, 30])
    shards = LocalShards([Shard(ids, {"features": features[ids]}) for ids in parts])
    assert select(STRATEGY, shards, 9).ids.tolist() == expected
    tensor = torch.asarray(features)
    assert labelwise.select(STRATEGY, 9, features=tensor).ids.tolist() == expected
