"""The three forms of a strategy through one door."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.arrays import comparable, largest
from labelwise.errors import BadInput
from labelwise.kernels.loop import picking
from labelwise.kernels.loop.picking import pick
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.ids import RowNumbers
from labelwise.selection import run
from labelwise.strategies import get
from labelwise.strategy import ScoreStrategy
from tests.conftest import make_features, make_probabilities


def pool(n=40):
    return LocalShards.of(features=make_features(n, 4), probabilities=make_probabilities(n, 3))


def score_strategy(score, **changes):
    facts = {"name": "made_up", "needs": ("features",), "good_for": "tests", "reference": "none"}
    return ScoreStrategy(score=score, **facts, **changes)


@pytest.mark.parametrize("name", ["margin", "k_center", "badge"])  # score, greedy, pass
def test_every_form_is_picked_as_a_selection_picks_it(name):
    choice = pick(get(name), pool(), None, 7, seed=3)
    assert choice.ids.tolist() == run.select(get(name), pool(), 7, seed=3).ids.tolist()
    assert len(set(choice.ids.tolist())) == 7


def test_equal_scores_go_to_the_smaller_id_whatever_the_blocks():
    strategy = score_strategy(lambda rows, labelled: np.floor(rows["features"][:, 0]))
    ids, values = np.array([7, 3, 9, 1, 5]), np.array([[1.5], [1.2], [2.0], [1.9], [0.0]])
    for cuts in ([], [2], [1, 3, 4]):
        parts = np.split(np.arange(5), cuts)
        shards = LocalShards(Shard(ids[part], {"features": values[part]}) for part in parts)
        choice = pick(strategy, shards, None, 3, seed=0)
        assert choice.ids.tolist() == [9, 1, 3]
        assert choice.scores.tolist() == [2, 1, 1]


@given(
    scores=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    block=st.integers(1, 9),
    share=st.floats(0, 1),
)
def test_the_best_of_many_blocks_are_the_best_of_one_sort(scores, block, share):
    values = np.array(scores, dtype=np.float64)
    ids = np.random.default_rng(0).permutation(len(values)) * 3
    budget = 1 + int(share * (len(values) - 1))
    shards = LocalShards(
        Shard(ids[first : first + block], {"features": values[first : first + block, None]})
        for first in range(0, len(values), block)
    )
    strategy = score_strategy(lambda rows, labelled: rows["features"][:, 0])
    expected = sorted(range(len(values)), key=lambda i: (-values[i], ids[i]))[:budget]
    choice = pick(strategy, shards, None, budget, seed=0)
    assert choice.ids.tolist() == ids[expected].tolist()
    assert choice.scores.tolist() == values[expected].tolist()


def test_what_is_kept_of_many_blocks_does_not_grow_with_them():
    strategy = score_strategy(lambda rows, labelled: rows["features"][:, 0])
    block = np.arange(1000.0)[:, None]
    peaks = []
    for count in (10, 300):
        shards = LocalShards(
            Shard(RowNumbers(1000 * i, 1000 * i + 1000), {"features": block}) for i in range(count)
        )
        tracemalloc.start()
        pick(strategy, shards, None, 400, seed=0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]


def test_a_summary_of_all_blocks_reaches_the_score():
    def distance_from_mean(rows, labelled, summary):
        mean = sum(part[0] for part in summary) / sum(part[1] for part in summary)
        return np.abs(rows["features"][:, 0] - mean)

    strategy = score_strategy(
        distance_from_mean,
        summarise=lambda shard: (shard.rows["features"][:, 0].sum(), len(shard)),
    )
    values = np.array([[0.0], [1.0], [2.0], [9.0]])  # mean 3
    shards = LocalShards(
        [
            Shard(np.arange(2), {"features": values[:2]}),
            Shard(np.arange(2, 4), {"features": values[2:]}),
        ]
    )
    assert pick(strategy, shards, None, 4, seed=0).ids.tolist() == [3, 0, 1, 2]


def test_a_score_that_is_not_a_number_is_refused_with_its_item():
    strategy = score_strategy(lambda rows, labelled: np.array([0.0, np.nan]))
    shards = LocalShards([Shard(np.array([4, 8]), {"features": np.ones((2, 1))})])
    with pytest.raises(BadInput, match="'made_up' scored item 8 as NaN; check its rows"):
        pick(strategy, shards, None, 1, seed=0)


def test_refuses_what_is_no_strategy():
    with pytest.raises(BadInput, match="'badge' is not a score, greedy or pass strategy"):
        pick("badge", pool(), None, 1, seed=0)


@given(
    seed=st.integers(0, 1000),
    levels=st.sampled_from([1, 2, 40, 10**6]),
    count=st.integers(1, 9),
    sign=st.sampled_from([-1.0, 1.0]),
)
def test_no_item_that_could_be_picked_is_put_aside(seed, levels, count, sign):
    rng = np.random.default_rng(seed)
    scores = (
        sign * rng.integers(0, levels, 400) * (1 + 1e-12 * rng.random(400))
    )  # ties but for 1e-12
    scores[rng.random(400) < 0.02] = np.inf
    ids = rng.permutation(400)
    few = np.arange(400)[picking._find_highest_scores(scores, count)]
    kept = ids[few][largest(comparable(scores[few]), count, ids[few])]
    assert kept.tolist() == ids[largest(comparable(scores), count, ids)].tolist()


def test_most_items_are_put_aside():
    scores = np.random.default_rng(0).random(100_000)
    assert len(picking._find_highest_scores(scores, 1_000)) < 4_000
