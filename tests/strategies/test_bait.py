"""BAIT against greedy search over the trace, with every matrix multiplied out and inverted anew."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import labelwise
from labelwise.errors import BadInput
from labelwise.kernels.information import fisher
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.selection.run import select
from labelwise.strategies import bait
from labelwise.strategies.bait import STRATEGY
from tests.conftest import make_features, make_probabilities


def test_features_with_infinite_squares_are_rejected():
    rows = make_rows(5, d=4, classes=1)
    rows["features"][1, 1] = 1e160
    with pytest.raises(BadInput, match="the squares of the features are infinite"):
        pick(rows, 3)


def test_numbers_far_below_1_and_integers_of_torch_are_no_problem():
    rows = make_rows(30, d=4, classes=2)
    tiny = {**rows, "features": rows["features"] * 1e-40}
    assert len(pick(tiny, 3).ids) == 3
    few = {name: torch.as_tensor(part) for name, part in make_rows(2, d=4, classes=5).items()}
    assert len(pick({**few, "features": (10 * few["features"]).long()}, 2).ids) == 2
    with pytest.raises(BadInput, match="candidates is nan but budget is 3"):
        labelwise.select("bait", 3, **rows, candidates=float("nan"))


def make_rows(n, d=3, classes=3, seed=0):
    return {
        "features": make_features(n, d, seed),
        "probabilities": make_probabilities(n, classes, seed),
    }


def information(rows):
    """``(n, K d, K d)``, the Fisher information of every item."""
    h = rows["features"]
    squares = np.einsum("ni,nj->nij", h, h)
    if "probabilities" not in rows:
        return squares
    p = rows["probabilities"]
    spread = p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :]
    return np.array([np.kron(a, b) for a, b in zip(spread, squares, strict=True)])


class SlowBait:
    def __init__(self, rows, labelled, budget, ridge):
        known = 0 if labelled is None else len(labelled["features"])
        self.each = information(rows)
        everything = self.each
        self.start = ridge * np.eye(self.each.shape[1])
        if known:
            theirs = information(labelled)
            everything = np.concatenate([self.each, theirs])
            self.start = self.start + known / (known + budget) * theirs.mean(axis=0)
        self.fisher = everything.mean(axis=0)
        self.share = budget / (known + budget)

    def trace(self, picked):
        matrix = self.start + self.share * self.each[list(picked)].sum(axis=0)
        return np.trace(np.linalg.inv(matrix) @ self.fisher)

    def choose(self, budget, candidates):
        picked = []
        for _ in range(min(2 * budget, len(candidates))):
            left = [i for i in candidates if i not in picked]
            traces = np.round([self.trace([*picked, i]) for i in left], 10)
            picked.append(left[int(traces.argmin())])
        while len(picked) > budget:
            rest = sorted(picked, reverse=True)  # of equal items the larger id goes
            traces = np.round([self.trace([j for j in picked if j != i]) for i in rest], 10)
            picked.remove(rest[int(traces.argmin())])
        return picked


def pick(rows, budget, labelled=None, seed=0, **options):
    strategy = STRATEGY.with_options(**options)
    return select(strategy, LocalShards.of(**rows), budget, labelled=labelled, seed=seed)


@pytest.mark.parametrize("ridge", [1.0, 0.01])
@pytest.mark.parametrize("known", [0, 5])
@pytest.mark.parametrize("seed", range(3))
def test_matches_greedy_search_over_the_trace(seed, known, ridge):
    rows = make_rows(25, seed=seed)
    labelled = make_rows(known, seed=seed + 50) if known else None
    slow = SlowBait(rows, labelled, 4, ridge)
    selection = pick(rows, 4, labelled, ridge=ridge)
    assert selection.ids.tolist() == slow.choose(4, range(25))
    assert selection.info["objective_before"] == pytest.approx(slow.trace([]), rel=1e-9)
    assert selection.info["objective_after"] == pytest.approx(slow.trace(selection.ids), rel=1e-9)


@pytest.mark.parametrize("known", [0, 5])
def test_regression_matches_greedy_search_over_the_trace(known):
    rows = {"features": make_features(40, 4)}
    labelled = {"features": make_features(known, 4, 1)} if known else None
    selection = pick(rows, 5, labelled)
    assert selection.ids.tolist() == SlowBait(rows, labelled, 5, 1.0).choose(5, range(40))
    assert selection.info["task"] == "regression"


def test_scores_are_by_how_much_an_item_lowered_the_trace():
    rows = make_rows(9)
    slow, selection = SlowBait(rows, None, 9, 1.0), pick(rows, 9)  # none is taken back
    traces = [slow.trace(selection.ids[:count]) for count in range(10)]
    np.testing.assert_allclose(selection.scores, -np.diff(traces), rtol=1e-6, atol=1e-12)


def test_regression_can_be_asked_for_where_there_are_probabilities():
    rows = make_rows(30)
    asked = pick(rows, 4, task="regression")
    assert asked.ids.tolist() == pick({"features": rows["features"]}, 4).ids.tolist()
    assert asked.ids.tolist() != pick(rows, 4).ids.tolist()


def test_adds_no_more_than_there_are():
    rows = make_rows(7)
    slow = SlowBait(rows, None, 5, 1.0)
    assert pick(rows, 5).ids.tolist() == slow.choose(5, range(7))


def test_of_equal_items_the_smaller_ids_are_kept():
    rows = {name: np.repeat(value[:1], 8, axis=0) for name, value in make_rows(1).items()}
    assert pick(rows, 3).ids.tolist() == [0, 1, 2]


def test_the_order_and_the_split_of_rows_do_not_matter():
    rows = {name: value.astype(np.float32) for name, value in make_rows(60, d=4).items()}
    for value in rows.values():
        value[30:40] = value[:10]  # copies
    labelled = make_rows(6, d=4, seed=9)
    expected = pick(rows, 7, labelled).ids.tolist()
    order = np.random.default_rng(1).permutation(60)
    for blocks, library in [(1, np), (3, np), (7, torch)]:
        parts = [
            Shard(part, {name: library.asarray(value[part]) for name, value in rows.items()})
            for part in np.array_split(order, blocks)
        ]
        given_rows = {name: library.asarray(value) for name, value in labelled.items()}
        found = select(STRATEGY, LocalShards(parts), 7, labelled=given_rows)
        assert found.ids.tolist() == expected


def test_few_rows_at_a_time_give_the_same_picks(monkeypatch):
    rows = make_rows(40)
    expected = pick(rows, 5)
    monkeypatch.setattr(fisher, "NUMBERS_AT_ONCE", 1)
    monkeypatch.setattr(fisher, "ROWS_AT_ONCE", 7)
    found = pick(rows, 5)
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-8)


def test_candidates_are_a_part_of_the_pool_drawn_by_seed():
    rows = make_rows(40)
    seen = {tuple(pick(rows, 4, candidates=12, seed=seed).ids.tolist()) for seed in range(4)}
    assert len(seen) > 1
    selection = pick(rows, 12, candidates=12, seed=1)
    again = pick(rows, 4, candidates=12, seed=1)
    assert set(again.ids.tolist()) <= set(selection.ids.tolist())
    slow = SlowBait(rows, None, 4, 1.0)  # all items count in F
    assert again.ids.tolist() == slow.choose(4, sorted(selection.ids.tolist()))


def test_blocks_without_candidates_are_passed_over():
    rows = make_rows(20)
    parts = [
        Shard(part, {name: value[part] for name, value in rows.items()})
        for part in np.array_split(np.arange(20), 10)
    ]
    strategy = STRATEGY.with_options(candidates=3)
    expected = pick(rows, 2, candidates=3).ids.tolist()
    assert select(strategy, LocalShards(parts), 2).ids.tolist() == expected


def test_leaves_nothing_behind():
    shard = Shard(np.arange(9), make_rows(9))
    select(STRATEGY, LocalShards([shard]), 2)
    assert not shard.state


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 10), st.integers(1, 4), st.integers(1, 3), st.integers(0, 100))
def test_degenerate_pools_give_as_many_as_asked(n, d, classes, seed):
    rows = make_rows(n, d, classes, seed)
    rows["features"][: n // 3] = 0
    rows["probabilities"][n // 2 :] = np.eye(classes)[0]
    budget = max(n // 2, 1)
    selection = pick(rows, budget)
    assert len(set(selection.ids.tolist())) == budget
    assert (selection.scores > -1e-9).all()
    before, after = selection.info["objective_before"], selection.info["objective_after"]
    assert after <= before + 1e-12


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("known", [0, 5])
@pytest.mark.parametrize("size", [1e-150, 1e-100, 1e100, 1e149])
def test_features_of_any_size_give_the_picks_of_ordinary_ones(size, known, task):
    rows, labelled = make_rows(25), make_rows(known, seed=50) if known else None

    def times(some):
        return some and {**some, "features": some["features"] * size}

    there = times(rows), 4, times(labelled)
    selection = pick(*there, task=task, ridge=0.01 * size * size)
    expected = pick(rows, 4, labelled, task=task, ridge=0.01)
    assert selection.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(selection.scores, expected.scores, rtol=1e-9)
    after = expected.info["objective_after"]
    assert selection.info["objective_after"] == pytest.approx(after)


def exact_trace(matrix, fisher):
    """``tr(M^-1 F)`` in fractions, by Gauss-Jordan elimination of both."""
    matrix, fisher = ([list(map(Fraction, row)) for row in some] for some in (matrix, fisher))
    for i in range(len(matrix)):
        pivot = matrix[i][i]
        matrix[i], fisher[i] = ([x / pivot for x in some[i]] for some in (matrix, fisher))
        for j in (j for j in range(len(matrix)) if j != i):
            factor = matrix[j][i]
            for some in (matrix, fisher):
                some[j] = [x - factor * y for x, y in zip(some[j], some[i], strict=True)]
    return sum(fisher[i][i] for i in range(len(fisher)))


def exact_picks(features, budget):
    """Regression on whole numbers with a ridge of 1: nothing is rounded."""
    each = [np.outer(row, row) for row in features.astype(int)]
    fisher, unit = sum(each).tolist(), np.eye(features.shape[1], dtype=int)

    def trace(picked):
        return exact_trace((unit + sum(each[i] for i in picked)).tolist(), fisher)

    picked = []
    for _ in range(2 * budget):
        left = [i for i in range(len(each)) if i not in picked]
        picked.append(min(left, key=lambda i: (trace([*picked, i]), i)))
    while len(picked) > budget:
        picked.remove(min(picked, key=lambda i: (trace([j for j in picked if j != i]), -i)))
    return picked


@pytest.mark.parametrize("seed", range(3))
def test_features_in_the_thousands_cost_no_digits(seed):
    features = np.round(2200 * np.random.default_rng(seed).normal(size=(24, 3)))
    selection = pick({"features": features}, 8)
    assert selection.ids.tolist() == exact_picks(features, 8)


def test_many_picks_with_tiny_features_and_ridge_are_those_of_ordinary_ones():
    features = np.random.default_rng(0).normal(size=(40, 4))
    tiny = pick({"features": features * 1e-150}, 8, ridge=1e-306)
    assert tiny.ids.tolist() == pick({"features": features}, 8, ridge=1e-6).ids.tolist()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (1e5, r"ridge is 1, and the information .* more than float64 can represent; give a ridge"),
        (1e100, "more than float64 can represent"),
        (1e149, "more than float64 can represent"),
        (1e-100, "less than float64 can represent; give a smaller ridge"),
        (1e-150, "less than float64 can represent"),
        (1e170, "squares are beyond what float64 can hold"),
        (1e-170, "squares are beyond what float64 can hold"),
    ],
)
def test_a_ridge_of_another_size_than_the_features_is_refused(size, message):
    with pytest.raises(BadInput, match=message):
        pick({"features": make_features(30, 4) * size}, 3)


def test_items_that_rounding_cannot_tell_apart_are_refused(monkeypatch):
    """Two equal columns: without the ridge, which rounding takes, their information is singular."""
    monkeypatch.setattr(bait, "LARGEST", np.inf)
    with pytest.raises(BadInput, match="give a larger ridge to bait"):
        pick({"features": np.ones((30, 2))}, 2, ridge=1e-20)
