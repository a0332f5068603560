"""BatchBALD against greedy search over joint entropies, all outcomes listed."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from labelwise.errors import LabelwiseWarning
from labelwise.kernels.information.mutual_information import PickedLabels, information_gains
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.selection.run import select
from labelwise.strategies import bald
from labelwise.strategies.batchbald import GROUPS, STRATEGY


def make_members(n, size=8, classes=3, seed=0, spread=0.5):
    return np.random.default_rng(seed).dirichlet(np.full(classes, spread), size=(n, size))


def joint_information(items):
    """What the labels of ``(t, M, K)`` items together tell about the members."""
    chances = []
    for labels in itertools.product(range(items.shape[2]), repeat=len(items)):
        parts = [item[:, label] for item, label in zip(items, labels, strict=True)]
        chances.append(np.prod(parts, axis=0).mean())
    return stats.entropy(chances) - stats.entropy(items, axis=2).mean(axis=1).sum()


def slow_batchbald(members, budget):
    picked = []
    for _ in range(budget):
        left = [i for i in range(len(members)) if i not in picked]
        scores = [joint_information(members[[*picked, i]]) for i in left]
        picked.append(left[int(np.argmax(np.round(scores, 10)))])
    return picked


def pick(members, budget, **options):
    shards = LocalShards.of(member_probabilities=members)
    return select(STRATEGY.with_options(**options), shards, budget)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [2, 3])
def test_matches_greedy_search_over_all_outcomes(classes, seed):
    members = make_members(15, classes=classes, seed=seed)
    selection = pick(members, 4)
    assert selection.ids.tolist() == slow_batchbald(members, 4)
    expected = joint_information(members[selection.ids])
    assert selection.scores.sum() == pytest.approx(expected, abs=1e-10)
    assert selection.info["joint_information"] == pytest.approx(expected, abs=1e-10)
    assert selection.info["picks_from_drawn_configurations"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_of_one_is_that_of_bald(seed):
    shards = LocalShards.of(member_probabilities=make_members(60, seed=seed))
    one, other = select(STRATEGY, shards, 1), select(bald.STRATEGY, shards, 1)
    assert one.ids.tolist() == other.ids.tolist()
    assert one.scores[0] == pytest.approx(other.scores[0], abs=1e-12)


def slow_search(members, budget, configurations, seed=0):
    """The same configurations, with every candidate measured in full in float64."""
    labels, picked = PickedLabels(members.shape[1], configurations, seed), []
    for _ in range(budget):
        gains = np.round(information_gains(members, labels.outcomes), 12)
        gains[picked] = -1
        picked.append(int(gains.argmax()))
        labels.add(members[picked[-1]])
    return picked


@pytest.mark.parametrize("spread", [0.1, 0.5, 5.0])
@pytest.mark.parametrize("configurations", [4 * GROUPS, 3000])
def test_ruling_out_candidates_by_bounds_changes_no_pick(configurations, spread):
    members = make_members(GROUPS + 44, size=25, classes=4, spread=spread)
    selection = pick(members, 9, configurations=configurations)
    assert selection.ids.tolist() == slow_search(members, 9, configurations)
    assert selection.info["picks_from_drawn_configurations"] > 0
    assert selection.info["picks_by_bald"] == 0


def test_drawn_configurations_find_a_batch_as_good_as_all():
    members = make_members(40, size=10)
    exact, drawn = pick(members, 7), pick(members, 7, configurations=240)
    assert drawn.info["picks_from_drawn_configurations"] == 2
    assert joint_information(members[drawn.ids]) > joint_information(members[exact.ids]) - 0.01
    assert drawn.scores.sum() == pytest.approx(joint_information(members[drawn.ids]), abs=0.02)


def test_does_not_pick_the_same_news_twice():
    twins = np.array([[0.99, 0.01], [0.99, 0.01], [0.01, 0.99], [0.01, 0.99]])
    other = np.array([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.1, 0.9]])
    members = np.stack([twins, twins, other])
    shards = LocalShards.of(member_probabilities=members)
    assert select(bald.STRATEGY, shards, 2).ids.tolist() == [0, 1]
    assert select(STRATEGY, shards, 2).ids.tolist() == [0, 2]


def test_the_order_and_the_split_of_rows_do_not_matter():
    members = make_members(300, size=12, classes=4, spread=0.3).astype(np.float32)
    members[45:60] = members[:15]  # copies
    expected = pick(members, 9, configurations=900).ids.tolist()
    order = np.random.default_rng(1).permutation(300)
    for blocks, library in [(1, np), (3, np), (7, torch)]:
        parts = [
            Shard(part, {"member_probabilities": library.asarray(members[part])})
            for part in np.array_split(order, blocks)
        ]
        strategy = STRATEGY.with_options(configurations=900)
        assert select(strategy, LocalShards(parts), 9).ids.tolist() == expected


def test_once_members_are_told_apart_the_rest_is_picked_by_bald():
    certain = np.eye(2)[None]  # its label says which member it was
    members = np.concatenate([make_members(6, size=2, classes=2), certain])
    with pytest.warns(LabelwiseWarning, match="after 2 of 5 picks"):
        selection = pick(members, 5)
    by_bald = select(bald.STRATEGY, LocalShards.of(member_probabilities=members), 7).ids.tolist()
    assert selection.ids[0] == 6
    rest = [item for item in by_bald if item not in selection.ids[:2]]
    assert selection.ids[2:].tolist() == rest[:3]
    assert selection.info["picks_by_bald"] == 3
    assert selection.info["joint_information"] == pytest.approx(np.log(2))


def test_large_batches_are_warned_of():
    members = np.repeat(make_members(1, size=1), 120, axis=0)
    with pytest.warns(LabelwiseWarning) as caught:
        assert pick(members, 101).ids.tolist() == list(range(101))
    assert "budget is 101" in str(caught[0].message)


def test_the_number_of_configurations_may_be_one_of_numpy():
    expected = pick(make_members(20), 4, configurations=9)
    found = pick(make_members(20), 4, configurations=np.int32(9))
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.info == expected.info


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
    selection = pick(members, n, configurations=20)
    assert sorted(selection.ids.tolist()) == list(range(n))
    assert (selection.scores >= 0).all()
