"""The greedy loop: blocks of picks are the picks of one at a time."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.blocks import LocalShards, Shard
from labelwise.errors import BadInput
from labelwise.kernels import greedy
from labelwise.kernels.greedy_blocks import KEY, Part, bar_for, highest_bounds
from labelwise.strategies.k_center import STRATEGY as K_CENTER
from labelwise.strategy import Choice, GreedyStrategy
from tests.conftest import make_features


def in_blocks(rows, cuts):
    parts = np.split(np.arange(len(rows)), cuts)
    return LocalShards([Shard(part.astype(np.int64), {"features": rows[part]}) for part in parts])


@pytest.mark.parametrize("cuts", [[], [100], [30, 31, 400]])
def test_blocks_of_picks_are_the_picks_of_one_at_a_time(cuts):
    rows = make_features(1500, 8, 2).astype(np.float32)
    one_at_a_time = replace(K_CENTER, bounded=False)
    expected = greedy.pick(one_at_a_time, in_blocks(rows, []), None, 300, 0)
    found = greedy.pick(K_CENTER, in_blocks(rows, cuts), None, 300, 0)
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4)


def test_blocks_of_picks_touch_fewer_rows():
    """Lazy picking measures far fewer pairs than the n x b of one at a time."""
    rows = make_features(6000, 8, 2).astype(np.float32)
    measured = []
    add = K_CENTER.add

    def counting_add(state, rows, picked, plan):
        measured.append(len(rows["features"]) * len(picked["features"]))
        return add(state, rows, picked, plan)

    greedy.pick(replace(K_CENTER, add=counting_add), in_blocks(rows, []), None, 200, 0)
    assert sum(measured) < 0.8 * 6000 * 200


class Sums(NamedTuple):
    values: np.ndarray


def weighted_strategy(**changes):
    """Picks the largest number left; the plan counts what was picked."""
    strategy = GreedyStrategy(
        name="numbers",
        needs=("features",),
        good_for="",
        reference="",
        begin=lambda shards, labelled, budget, seed: (0.0, 0),
        start=lambda rows, labelled, plan: Sums(rows["features"][:, 0]),
        score=lambda state, plan: state.values,
        advance=lambda plan, picked: (plan[0] + picked["features"][0, 0], plan[1] + 1),
        add=lambda state, rows, picked, plan: state,
        finish=lambda plan, shards, ids: Choice(ids, info={"total": plan[0], "picks": plan[1]}),
    )
    return replace(strategy, **changes)


def test_the_plan_counts_every_pick_and_finish_sees_it():
    rows = np.array([[3.0], [9.0], [1.0], [7.0]])
    choice = greedy.pick(weighted_strategy(), in_blocks(rows, [2]), None, 3, 0)
    assert choice.ids.tolist() == [1, 3, 0]
    assert choice.scores.tolist() == [9.0, 7.0, 3.0]
    assert choice.info == {"total": 19.0, "picks": 3}


def test_scores_closer_than_their_slack_are_ties():
    rows = np.array([[5.0], [5.0 + 1e-6], [4.0]])
    loose = weighted_strategy(slack=lambda state: np.full(len(state.values), 1e-5))
    assert greedy.pick(loose, in_blocks(rows, []), None, 1, 0).ids.tolist() == [0]
    assert greedy.pick(weighted_strategy(), in_blocks(rows, []), None, 1, 0).ids.tolist() == [1]


def test_exact_scores_settle_near_ties():
    rows = np.array([[5.0], [5.0 + 1e-6], [4.0]])
    strategy = weighted_strategy(
        slack=lambda state: np.full(len(state.values), 1e-5),
        exact=lambda rows, labelled, picked, plan: rows["features"][:, 0],
    )
    assert greedy.pick(strategy, in_blocks(rows, [1]), None, 2, 0).ids.tolist() == [1, 0]


def test_a_nan_score_is_refused_and_names_the_item():
    rows = np.array([[5.0], [2.0], [4.0]])
    broken = weighted_strategy(score=lambda state, plan: np.where(state.values < 3, np.nan, 1.0))
    with pytest.raises(BadInput, match="'numbers' scored item 1 as NaN"):
        greedy.pick(broken, in_blocks(rows, []), None, 1, 0)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    count=st.integers(1, 100),
    seed=st.integers(0, 99),
)
def test_a_bar_is_reached_by_as_many_rows_as_asked_and_fewer_than_twice(sizes, count, seed):
    every = np.random.default_rng(seed).permutation(sum(sizes)).astype(float)
    parts = [block_with(bounds) for bounds in np.split(every, np.cumsum(sizes)[:-1])]
    tops = [highest_bounds(shard, {}, np.empty(0), count) for shard in parts]
    reach = int((every >= bar_for(tops, count)).sum())
    assert min(count, len(every)) <= reach < max(2 * count, 2)


def block_with(bounds):
    nothing = np.zeros(len(bounds))
    part = Part((), bounds, nothing, nothing > 0, nothing.astype(np.int64))
    return Shard(np.arange(len(bounds)), {}, {KEY: part})


def test_a_block_tells_its_first_second_fourth_and_last_wanted_bound():
    shard = block_with(np.arange(12.0))
    assert highest_bounds(shard, {}, np.empty(0), 5).tolist() == [[1, 2, 4, 5], [11, 10, 8, 7]]
    assert highest_bounds(shard, {}, np.empty(0), 99).tolist()[0] == [1, 2, 4, 8, 12]
