"""Sketched leverage scores against the exact ones."""

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.kernels.linear.leverage import approximate_leverage_scores, leverage_scores
from labelwise.pool.blocks import LocalShards, Shard


def in_blocks(rows, cuts, order=None):
    order = np.arange(len(rows)) if order is None else order
    return LocalShards([Shard(part, {"features": rows[part]}) for part in np.split(order, cuts)])


def heavy_tailed(kind, n=4000, d=60):
    generator = np.random.default_rng(4)
    rows = generator.standard_t(2, (n, d)) if kind == "heavy tails" else None
    if kind == "one row per direction":
        rows = np.concatenate([100 * np.eye(d), 0.1 * generator.standard_normal((n - d, d))])
    if kind == "deficient":
        rows = generator.standard_t(2, (n, 25)) @ generator.standard_normal((25, d))
    if kind == "half zero":
        rows = generator.standard_normal((n, d)) * (generator.random(n) < 0.5)[:, None]
    return rows


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["heavy tails", "one row per direction", "deficient", "half zero"])
def test_the_sketch_is_right_up_to_the_stated_factor(kind, dtype):
    rows = heavy_tailed(kind).astype(dtype)
    exact = leverage_scores(rows, double=True)
    for seed in range(3):
        rough = approximate_leverage_scores(rows, seed=seed)
        some = exact > 0
        ratio = rough[some] / exact[some]
        assert 0.4 < ratio.min() and ratio.max() < 2.5
        assert (rough[~some] == 0).all()
        assert np.corrcoef(rough, exact)[0, 1] > 0.95


def test_the_sketch_with_few_directions_keeps_the_factor():
    rows = np.random.default_rng(0).standard_t(3, (1200, 250))
    ratio = approximate_leverage_scores(rows, oversampling=2, seed=3) / leverage_scores(rows)
    assert 0.4 < ratio.min() and ratio.max() < 2.5
    assert ratio.std() > 0.02  # it was sketched


def test_the_sketch_depends_on_seed_and_ids_alone():
    rows = heavy_tailed("heavy tails")
    whole = approximate_leverage_scores(rows, seed=1)
    order = np.random.default_rng(3).permutation(len(rows))
    shards = in_blocks(rows, [10, 1500], order)
    np.testing.assert_allclose(approximate_leverage_scores(shards, seed=1), whole[order], rtol=1e-9)
    assert np.abs(approximate_leverage_scores(rows, seed=2) / whole - 1).max() > 1e-3


def test_a_small_pool_is_not_sketched():
    rows = np.random.default_rng(0).standard_normal((40, 12))
    np.testing.assert_array_equal(approximate_leverage_scores(rows), leverage_scores(rows))
    with pytest.raises(BadInput, match="oversampling must be at least 2; got 1"):
        approximate_leverage_scores(rows, oversampling=1)
    assert approximate_leverage_scores(np.empty((0, 2))).tolist() == []
