"""Maximum mean discrepancy against loops over pairs."""

import numpy as np
import pytest

import labelwise
from labelwise import Selection
from labelwise.errors import BadInput
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.theory.mmd import pool_mmd, subset_mmd
from tests.conftest import make_features


def gaussian(rows, others):
    return np.exp(-((rows[:, None] - others[None]) ** 2).sum(axis=2) / 4)


def slow_subset_mmd(theta, m):
    """The three means over pairs of different items, by loops."""
    n = len(theta)
    first = [theta[i, j] for i in range(m) for j in range(m) if i != j]
    second = [theta[i, j] for i in range(n) for j in range(n) if i != j]
    between = [theta[i, j] for i in range(m) for j in range(n) if i != j]
    return np.mean(first) + np.mean(second) - 2 * np.mean(between)


def slow_weighted_mmd(theta, chosen, weights):
    """The same for weighted picks anywhere in the pool."""
    n = len(theta)
    pairs = [(i, j) for i in range(len(chosen)) for j in range(len(chosen)) if i != j]
    mass = sum(weights[i] * weights[j] for i, j in pairs)
    shared = sum(weights[i] * weights[j] * theta[chosen[i], chosen[j]] for i, j in pairs) / mass
    second = np.mean([theta[i, j] for i in range(n) for j in range(n) if i != j])
    means = [np.mean([theta[i, j] for j in range(n) if j != i]) for i in chosen]
    return shared + second - 2 * np.average(means, weights=weights)


@pytest.mark.parametrize("m", [2, 5, 11, 12])
def test_a_subset_follows_the_index_convention(m):
    rows = np.random.default_rng(0).normal(size=(12, 3))
    theta = gaussian(rows, rows)
    found = subset_mmd(theta, m)
    assert found.squared == pytest.approx(slow_subset_mmd(theta, m), abs=1e-12)
    assert found.value == np.sqrt(max(0.0, found.squared))


def test_a_set_has_no_discrepancy_to_itself():
    rows = np.random.default_rng(0).normal(size=(9, 3))
    assert subset_mmd(rows @ rows.T, 9).squared == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_picks_against_the_pool_match_loops_for_both_ways(weighted):
    features = make_features(25, 3)
    ids = np.array([3, 0, 21, 7, 9])
    weights = np.random.default_rng(0).uniform(1, 5, 5)
    picks = Selection(ids, weights if weighted else None)
    expected = slow_weighted_mmd(features @ features.T, ids, weights if weighted else np.ones(5))
    streamed = pool_mmd(picks, features)
    given = pool_mmd(picks, features, kernel=features @ features.T)
    assert streamed.squared == pytest.approx(expected, rel=1e-9)
    assert given.squared == pytest.approx(expected, rel=1e-9)
    assert streamed.spread == pytest.approx(given.spread, rel=1e-9)
    assert streamed.scale == pytest.approx(np.mean(np.sum(features**2, axis=1)), rel=1e-12)


def test_blocks_and_ids_of_their_own_change_nothing():
    features, ids = make_features(30, 3), np.arange(30) * 7 + 5
    parts = [slice(0, 11), slice(11, 30)]
    shards = LocalShards([Shard(ids[c], {"features": features[c]}) for c in parts])
    chosen = np.array([2, 20, 13])
    plain = pool_mmd(Selection(chosen), features)
    split = pool_mmd(Selection(ids[chosen]), shards)
    kernel = pool_mmd(Selection(ids[chosen]), shards, kernel=features @ features.T)
    assert plain.squared == pytest.approx(split.squared, rel=1e-10)
    assert plain.squared == pytest.approx(kernel.squared, rel=1e-10)


def test_random_picks_are_within_their_spread():
    features = make_features(400, 3)
    found = [
        pool_mmd(labelwise.select("random", 40, features=features, seed=seed), features)
        for seed in range(300)
    ]
    squared = np.array([entry.squared for entry in found])
    assert abs(squared.mean()) < 3 * squared.std() / np.sqrt(len(squared))
    assert squared.std() == pytest.approx(found[0].spread, rel=0.2)


def test_wrong_sizes_are_refused():
    with pytest.raises(BadInput, match="first group must have 2 to 3 items; got 1"):
        subset_mmd(np.eye(3), 1)
    with pytest.raises(BadInput, match="2 picks or more"):
        pool_mmd(Selection(np.array([0])), np.eye(3))
    with pytest.raises(BadInput, match="the kernel has 2 rows"):
        pool_mmd(Selection(np.array([0, 2])), np.eye(3), kernel=np.eye(2))


def test_numbers_that_are_none_are_refused():
    rows = np.eye(4)
    rows[3, 0] = np.nan
    with pytest.raises(BadInput, match="the features hold NaN or infinity"):
        pool_mmd(Selection(np.array([0, 1])), rows)
