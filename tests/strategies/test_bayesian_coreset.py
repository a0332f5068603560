"""Bayesian coresets against Frank-Wolfe over all weights at once."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labelwise.errors import LabelwiseWarning
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.selection.run import select
from labelwise.strategies.bayesian_coreset import STRATEGY


def make_members(n, size=8, classes=3, seed=0, spread=0.5):
    return np.random.default_rng(seed).dirichlet(np.full(classes, spread), size=(n, size))


def vectors(members, entropy_weight=0.0):
    """Item by item, member by member, class by class."""
    n, size, classes = members.shape
    result = np.zeros((n, size))
    for i in range(n):
        mean = members[i].mean(axis=0)
        spread = -sum(p * np.log(p) for p in mean if p > 0)
        for j in range(size):
            for y in range(classes):
                result[i, j] += mean[y] * np.log(max(members[i, j, y], 1e-12))
            result[i, j] += entropy_weight * spread
    return result / np.sqrt(size)


def slow_frank_wolfe(rows, budget):
    """Steps over all weights until enough items were stepped on; which ones, and the weights."""
    sizes = np.sqrt((rows**2).sum(axis=1) + 1e-6)
    total, weights, seen = rows.sum(axis=0), np.zeros(len(rows)), []
    while len(seen) < budget:
        reached = weights @ rows
        best = int(np.argmax(rows @ (total - reached) / sizes))
        vertex = sizes.sum() / sizes[best]
        way = vertex * rows[best] - reached
        share = way @ (total - reached) / (way @ way)
        weights = (1 - share) * weights
        weights[best] += share * vertex
        if best not in seen:
            seen.append(best)
    return seen, weights[seen]


def pick(members, budget, **options):
    shards = LocalShards.of(member_probabilities=members)
    return select(STRATEGY.with_options(**options), shards, budget)


@pytest.mark.parametrize("entropy_weight", [0.0, 0.7])
@pytest.mark.parametrize("seed", range(4))
def test_matches_frank_wolfe_over_all_weights(seed, entropy_weight):
    members = make_members(80, seed=seed)
    rows = vectors(members, entropy_weight)
    selection = pick(members, 15, entropy_weight=entropy_weight)
    ids, weights = slow_frank_wolfe(rows, 15)
    assert selection.ids.tolist() == ids
    np.testing.assert_allclose(selection.weights, weights, rtol=1e-6, atol=1e-9)
    left = rows.sum(axis=0) - weights @ rows[ids]
    expected = np.linalg.norm(left) / np.linalg.norm(rows.sum(axis=0))
    assert selection.info["relative_error"] == pytest.approx(expected, rel=1e-5)
    assert selection.info["picks_without_need"] == 0


def test_steps_on_until_the_items_are_different():
    selection = pick(make_members(300, size=4), 40)
    assert selection.info["steps"] > 40
    assert len(set(selection.ids.tolist())) == 40


def test_the_weighted_picks_stand_for_the_pool():
    members = make_members(400, size=20)
    selection = pick(members, 60)
    rows = vectors(members)
    total = rows.sum(axis=0)
    left = total - selection.weights @ rows[selection.ids]
    assert np.linalg.norm(left) < 0.01 * np.linalg.norm(total)
    assert 0.8 * 400 < selection.weights.sum() < 1.2 * 400


def test_one_item_stands_for_copies_of_itself():
    members = np.repeat(make_members(1), 5, axis=0)
    np.testing.assert_allclose(pick(members, 1).weights, [5.0], rtol=1e-5)


def test_the_order_and_the_split_of_rows_do_not_matter():
    members = make_members(90, size=5).astype(np.float32)
    members[45:60] = members[:15]  # copies
    expected = pick(members, 30)
    order = np.random.default_rng(1).permutation(90)
    for blocks, library in [(1, np), (3, np), (7, torch)]:
        parts = [
            Shard(part, {"member_probabilities": library.asarray(members[part])})
            for part in np.array_split(order, blocks)
        ]
        found = select(STRATEGY, LocalShards(parts), 30)
        assert found.ids.tolist() == expected.ids.tolist()
        np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-6, atol=1e-9)


def test_copies_are_picked_by_id_and_share_the_weight_of_the_pool():
    members = np.repeat(make_members(1), 12, axis=0)
    with pytest.warns(LabelwiseWarning, match="of 4 picks have little or no weight"):
        selection = pick(members, 4)
    assert selection.ids.tolist() == [0, 1, 2, 3]
    assert selection.weights.sum() == pytest.approx(12, rel=1e-4)
    assert selection.info["picks_without_need"] == 3


@pytest.mark.filterwarnings("ignore::labelwise.errors.LabelwiseWarning")
def test_blocks_of_which_all_items_are_picked_are_passed_over():
    members = np.repeat(make_members(1), 6, axis=0)
    parts = [Shard(np.array([i]), {"member_probabilities": members[i : i + 1]}) for i in range(6)]
    assert select(STRATEGY, LocalShards(parts), 4).ids.tolist() == [0, 1, 2, 3]


def test_certain_items_have_nothing_to_tell_and_weigh_the_same():
    members = np.tile(np.eye(3)[0], (10, 4, 1))
    with pytest.warns(LabelwiseWarning):
        selection = pick(members, 4)
    assert selection.ids.tolist() == [0, 1, 2, 3]
    assert selection.weights.tolist() == [2.5] * 4


def test_leaves_nothing_behind():
    shard = Shard(np.arange(20), {"member_probabilities": make_members(20)})
    select(STRATEGY, LocalShards([shard]), 3)
    assert not shard.state


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([0.01, 1.0, 100.0]),
    st.integers(0, 100),
)
@pytest.mark.filterwarnings("ignore::labelwise.errors.LabelwiseWarning")
def test_degenerate_pools_are_picked_whole(n, size, classes, spread, seed):
    members = make_members(n, size, classes, seed, spread)
    members[: n // 2] = np.eye(classes)[0]  # certain items
    selection = pick(members, n)
    assert sorted(selection.ids.tolist()) == list(range(n))
    assert (selection.weights >= 0).all() and selection.weights.sum() > 0


@pytest.mark.parametrize("seed", range(4))
def test_tiny_weights_are_as_exact_as_large_ones(seed):
    members = make_members(200, seed=seed)
    selection = pick(members, 30)
    seen, weights = slow_frank_wolfe(vectors(members), 30)
    assert selection.ids.tolist() == seen
    np.testing.assert_allclose(selection.weights, weights, rtol=1e-9)


def test_weights_are_the_same_to_the_last_digit_for_any_split():
    members, order = make_members(300, size=5), np.random.default_rng(1).permutation(300)
    expected = pick(members, 20, entropy_weight=0.7)
    for blocks in (2, 7, 50):
        parts = [
            Shard(part, {"member_probabilities": members[part]})
            for part in np.array_split(order, blocks)
        ]
        found = select(STRATEGY.with_options(entropy_weight=0.7), LocalShards(parts), 20)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.weights.tolist() == expected.weights.tolist()


@pytest.mark.parametrize("entropy_weight", [1e100, -1e100, 1e20])
def test_a_huge_entropy_weight_leaves_the_sums_numbers(entropy_weight):
    members = make_members(30)
    selection = pick(members, 1, entropy_weight=entropy_weight)
    _, weights = slow_frank_wolfe(vectors(members, entropy_weight), 1)
    np.testing.assert_allclose(selection.weights, weights)
