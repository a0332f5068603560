"""Plans of pools against direct computations, and their known answers."""

import json
import math

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.kernels import leverage_scores, lewis_weights
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.theory.planning import SHARES, effective_dimension, plan, share_of_top
from tests.conftest import make_features


def blocks_apart(models, size, d):
    """Features of models that each see items of their own."""
    features = []
    for model in range(models):
        rows = np.zeros((models * size, d))
        rows[model * size : (model + 1) * size] = make_features(size, d, seed=model)
        features.append(rows)
    return features


def test_one_model_matches_its_leverage_scores():
    features = np.random.default_rng(0).standard_t(3, size=(400, 7))
    scores = leverage_scores(features)
    (model,) = plan(features).models
    assert (model.columns, model.rank) == (7, 7)
    assert model.condition == pytest.approx(400 * scores.max(), rel=1e-9)
    assert model.max_over_mean == pytest.approx(scores.max() / scores.mean(), rel=1e-9)
    assert model.effective_items == pytest.approx(49 / (scores @ scores), rel=1e-9)
    top = np.sort(scores)[::-1]
    assert model.top_1 == pytest.approx(top[:4].sum() / 7, rel=1e-9)
    assert model.top_10 == pytest.approx(top[:40].sum() / 7, rel=1e-9)


def test_the_condition_number_is_the_largest_peak_of_a_prediction():
    features = np.random.default_rng(0).standard_t(3, size=(60, 2))
    angles = np.linspace(0, np.pi, 20_001)
    predictions = features @ np.stack([np.cos(angles), np.sin(angles)])
    peaks = (predictions**2).max(axis=0) / (predictions**2).mean(axis=0)
    assert plan(features).models[0].condition == pytest.approx(peaks.max(), rel=1e-5)


def test_the_effective_dimension_is_the_sum_of_ridge_leverage():
    features = make_features(150, 6) * np.array([10.0, 5, 1, 0.1, 0.01, 0.001])
    (model,) = plan(features, ridge=0.02).models
    mean = np.sum(features**2) / 6
    assert model.ridge == pytest.approx(0.02 * mean, rel=1e-9)
    expected = leverage_scores(features, ridge=0.02 * mean).sum()
    assert model.effective_dimension == pytest.approx(expected, rel=1e-6)
    assert model.effective_dimension < model.rank == 6
    assert effective_dimension(model.energies, 0.0) == 6


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_models_alike_cost_nothing_more(p):
    features = make_features(200, 5)
    turned = features @ np.random.default_rng(0).normal(size=(5, 5))
    found = plan([features, turned, features], p=p, tol=1e-8)
    np.testing.assert_allclose([model.total for model in found.models], 5, rtol=1e-5)
    assert [model.bound for model in found.models] == [5, 10, 15]
    assert found.joint_rank == 5 and found.joint_rank_exact


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_models_with_items_of_their_own_cost_their_ranks(p):
    found = plan(blocks_apart(3, 60, 4), p=p)
    np.testing.assert_allclose([model.total for model in found.models], [4, 8, 12], rtol=1e-6)
    assert (found.total, found.bound) == (pytest.approx(12), 12)
    assert found.joint_rank == 12


def test_the_total_is_that_of_the_largest_lewis_weights():
    first, second = make_features(150, 5), make_features(150, 3, seed=1)
    weights = [lewis_weights(rows, 1.5, tol=1e-8) for rows in (first, second)]
    found = plan([first, second], p=1.5, tol=1e-8)
    assert found.total == pytest.approx(np.maximum(*weights).sum(), rel=1e-6)
    shared = np.sort(np.maximum(*weights))[::-1]
    at_10 = found.concentration[SHARES.index(10.0)]
    assert at_10 == pytest.approx(shared[:15].sum() / shared.sum(), rel=1e-5)


def test_the_bound_is_never_above_the_number_of_items():
    found = plan([np.eye(6), np.eye(6)])
    assert [model.bound for model in found.models] == [6, 6]


def test_blocks_change_nothing():
    features = [make_features(300, 4).astype("float32"), make_features(300, 3, seed=1)]
    cuts = [slice(0, 50), slice(50, 220), slice(220, 300)]
    shards = LocalShards(
        [Shard(np.arange(300)[c], {"features": [rows[c] for rows in features]}) for c in cuts]
    )
    one, many = plan(features), plan(shards)
    assert one.total == pytest.approx(many.total, rel=1e-9)
    for left, right in zip(one.models, many.models, strict=True):
        assert left.condition == pytest.approx(right.condition, rel=1e-6)
        assert left.rank == right.rank


def test_a_plan_is_plain_values():
    found = plan(make_features(50, 3))
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["models"][0]["rank"] == 3
    assert found.concentration[-1] == 1.0


def test_features_that_are_all_zero_have_rank_zero_and_still_a_plan():
    found = plan(np.zeros((20, 3)))
    assert found.models[0].rank == 0 and found.total == 0.0
    assert all(math.isfinite(budget.labels) for budget in found.budgets)


def test_shares_grow_evenly_between_whole_items():
    shares = share_of_top(np.array([3.0, 1.0]), [0, 25, 50, 100])
    assert shares == [0.0, 0.375, 0.75, 1.0]


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        ([], {}, "empty list"),
        (np.ones(3), {}, "two axes"),
        ("f.npy", {}, "two axes"),
        ([np.ones((3, 1)), np.ones((4, 1))], {}, r"\[3, 4\] rows"),
        (np.ones((0, 2)), {}, "the pool has no items"),
        (np.ones((3, 1)), {"error": 2.0}, "error must be"),
        (np.ones((3, 1)), {"p": 0.0}, "p must be a number above 0"),
        (np.ones((3, 1)), {"ridge": 0.0}, "ridge must be a positive number"),
        (np.array([[1.0], [np.nan]]), {}, "item 1 holds NaN"),
    ],
)
def test_bad_input_is_refused(features, options, message):
    with pytest.raises(BadInput, match=message):
        plan(features, **options)


@pytest.mark.parametrize(
    ("energies", "ridge"), [([1.0, 2.0], -1.0), ([1.0, np.nan], 1.0), ([np.inf], 1.0)]
)
def test_an_effective_dimension_needs_numbers(energies, ridge):
    with pytest.raises(BadInput, match="energies and ridge must be finite"):
        effective_dimension(energies, ridge)
