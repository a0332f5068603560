"""The greedy loop: blocks of picks are the picks of one at a time."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput
from labelwise.kernels.loop import block_scores, picking
from labelwise.kernels.loop.block_scores import (
    KEY,
    choose_score_threshold,
    propose_rows,
    sample_score_bounds,
    start_scores,
    update_block_scores,
)
from labelwise.kernels.loop.picking import pick_greedily
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.ids import find_member_positions
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
    expected = pick_greedily(one_at_a_time, in_blocks(rows, []), None, 300, 0)
    found = pick_greedily(K_CENTER, in_blocks(rows, cuts), None, 300, 0)
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

    pick_greedily(replace(K_CENTER, add=counting_add), in_blocks(rows, []), None, 200, 0)
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
    choice = pick_greedily(weighted_strategy(), in_blocks(rows, [2]), None, 3, 0)
    assert choice.ids.tolist() == [1, 3, 0]
    assert choice.scores.tolist() == [9.0, 7.0, 3.0]
    assert choice.info == {"total": 19.0, "picks": 3}


def test_scores_closer_than_their_slack_are_ties():
    rows = np.array([[5.0], [5.0 + 1e-6], [4.0]])
    loose = weighted_strategy(slack=lambda state: np.full(len(state.values), 1e-5))
    assert pick_greedily(loose, in_blocks(rows, []), None, 1, 0).ids.tolist() == [0]
    assert pick_greedily(weighted_strategy(), in_blocks(rows, []), None, 1, 0).ids.tolist() == [1]


def test_exact_scores_settle_near_ties():
    rows = np.array([[5.0], [5.0 + 1e-6], [4.0]])
    strategy = weighted_strategy(
        slack=lambda state: np.full(len(state.values), 1e-5),
        exact=lambda rows, labelled, picked, plan: rows["features"][:, 0],
    )
    assert pick_greedily(strategy, in_blocks(rows, [1]), None, 2, 0).ids.tolist() == [1, 0]


def test_a_nan_score_is_refused_and_names_the_item():
    rows = np.array([[5.0], [2.0], [4.0]])
    broken = weighted_strategy(score=lambda state, plan: np.where(state.values < 3, np.nan, 1.0))
    with pytest.raises(BadInput, match="'numbers' scored item 1 as NaN"):
        pick_greedily(broken, in_blocks(rows, []), None, 1, 0)


@given(
    bounds=st.lists(st.floats(-9, 9), min_size=1, max_size=40, unique=True).map(np.array),
    share=st.floats(0, 2),
)
def test_a_bar_is_reached_by_the_share_asked_for(bounds, share):
    wanted = max(round(share * len(bounds)), 1) if share < 1 else len(bounds)
    bar = choose_score_threshold(bounds, share)
    assert (bounds >= bar).sum() == wanted


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_rows_that_are_picked_reach_no_bar(share):
    assert -np.inf < choose_score_threshold(np.full(3, -np.inf), share) < -1e300


def test_items_that_rounding_cannot_tell_apart_are_told_apart_however_many():
    """In float32 all distances are within rounding of each other; more items than contenders."""
    rows = (make_features(3000, 4, 3) + 3000).astype(np.float32)
    doubles = in_blocks(rows.astype(np.float64), [])
    expected = pick_greedily(replace(K_CENTER, bounded=False), doubles, None, 12, 0)
    found = pick_greedily(K_CENTER, in_blocks(rows, [700]), None, 12, 0)
    assert found.ids.tolist() == expected.ids.tolist()


def a_block_that_heard_of(picks, rows):
    """A block of k_center with two picks counted in every row, and others that are new."""
    plan = K_CENTER.begin(in_blocks(rows, []), None, 0, 0)
    shard = Shard(np.arange(len(rows)), {"features": rows})
    start_scores(shard, K_CENTER, None, plan)
    update_block_scores(shard, K_CENTER, plan, {"features": rows[picks[:2]]}, picks[:2])
    distances = ((rows[:, None, :] - rows[picks][None, :, :]) ** 2).sum(axis=2)
    truth = distances.min(axis=1)
    truth[picks] = -np.inf
    return shard, plan, ({"features": rows[picks[2:]]}, picks[2:]), truth


def test_every_stride_th_row_tells_its_present_score():
    rows = make_features(100, 4, 0)
    shard, plan, news, truth = a_block_that_heard_of(np.array([3, 7, 14, 15]), rows)
    found = sample_score_bounds(shard, K_CENTER, plan, *news, 7)
    np.testing.assert_allclose(found, truth[::7], rtol=1e-9)
    assert shard.state[KEY].seen.tolist() == [2 if i % 7 or i in (7, 14) else 4 for i in range(100)]


@pytest.mark.parametrize("fetch", [0, 1 << 20])
def test_a_block_proposes_the_rows_that_reach_the_bar_and_bounds_the_others(fetch, monkeypatch):
    for name, value in {
        "ROWS_AT_ONCE": 64,
        "FIRST_PICKS": 3,
        "READ_COST": 1 << 10,
        "FETCH_COST": fetch,
    }.items():
        monkeypatch.setattr(block_scores, name, value)
    rows = make_features(300, 4, 1)
    picks = np.random.default_rng(0).permutation(300)[:40]
    shard, plan, news, truth = a_block_that_heard_of(picks, rows)
    sample_score_bounds(shard, K_CENTER, plan, *news, 100)
    bar = float(np.sort(truth)[-20]) - 1e-9
    found, part = propose_rows(shard, K_CENTER, plan, bar), shard.state[KEY]
    assert found.ids.tolist() == np.flatnonzero(truth >= bar).tolist()
    np.testing.assert_allclose(found.scores, truth[truth >= bar], rtol=1e-9)
    assert (part.bounds >= truth).all()
    assert found.outside == part.bounds[truth < bar].max() < bar
    early = part.seen[truth < bar] < 40  # fetched by themselves, most need not count all picks
    assert early.mean() > 0.5 if fetch == 0 else not early.any()


def test_a_block_that_proposes_nothing_still_bounds_what_may_be_picked(monkeypatch):
    """The rows at 10 beat all others until one is picked; then those of a silent block do."""
    for name, value in {"LEAST_ROWS": 2, "SAMPLED_ROW": 1}.items():
        monkeypatch.setattr(picking, name, value)
    rows = np.array([[-20.0], [10.0], [10.1], [2.0], [0.0]])
    found = pick_greedily(K_CENTER, in_blocks(rows, [1, 3]), None, 3, 0)
    assert found.ids.tolist() == [0, 2, 4]


@pytest.mark.parametrize("ids", [np.arange(5, 25), np.array([40, 3, 17, 9]), np.empty(0, int)])
@pytest.mark.parametrize("wanted", [[9, 24, 2, 40, 300], [9], [300], []])
def test_wanted_items_are_found_where_they_are(ids, wanted):
    slow = [place for place, item in enumerate(ids.tolist()) if item in wanted]
    assert find_member_positions(ids, np.array(wanted, dtype=np.int64)).tolist() == slow
