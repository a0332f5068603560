"""Deterministic BSS against its definition and its guarantee."""

import numpy as np
import pytest
import torch

from labelwise.errors import BadInput
from labelwise.kernels.linear.bss import deterministic_bss
from labelwise.pool.blocks import LocalShards, Shard


def slow_scales(rows, k):
    """The procedure word by word, for rows with orthonormal columns."""
    n, d = rows.shape
    root, one, matrix, scales = np.sqrt(k / d), np.eye(d), np.zeros((d, d)), np.zeros(n)
    upper, lower, rise = d * (root + root**2) / (root - 1), -d * root, (root + 1) / (root - 1)
    for _ in range(k):
        old_above, old_below = (
            np.linalg.inv(upper * one - matrix),
            np.linalg.inv(matrix - lower * one),
        )
        upper, lower = upper + rise, lower + 1
        above, below = np.linalg.inv(upper * one - matrix), np.linalg.inv(matrix - lower * one)
        fall = np.trace(old_above) - np.trace(above)
        growth = np.trace(below) - np.trace(old_below)
        costs = [row @ (above @ above / fall + above) @ row for row in rows]
        gains = [row @ (below @ below / growth - below) @ row for row in rows]
        best = int(np.argmax(np.subtract(gains, costs)))
        assert gains[best] >= costs[best]
        scale = 2 / (gains[best] + costs[best])
        matrix += scale * np.outer(rows[best], rows[best])
        scales[best] += scale
    return scales * d / np.trace(matrix)


@pytest.mark.parametrize("seed", range(4))
def test_matches_the_slow_version(seed):
    pool = np.random.default_rng(seed).standard_t(3, (40, 4))
    ids, weights, _ = deterministic_bss(pool, 18)
    expected = slow_scales(np.linalg.qr(pool)[0], 18)
    assert sorted(ids.tolist()) == np.flatnonzero(expected).tolist()
    np.testing.assert_allclose(weights, expected[ids], rtol=1e-6)


@pytest.mark.parametrize("times", [2, 4, 9])
def test_the_spectrum_stays_within_the_promised_ratio(times):
    pool = np.random.default_rng(times).standard_t(2, (150, 5))
    ids, weights, info = deterministic_bss(pool, 5 * times)
    rows = np.linalg.qr(pool)[0][ids]
    spectrum = np.linalg.eigvalsh((rows.T * weights) @ rows)
    np.testing.assert_allclose(spectrum, info["spectrum"], rtol=1e-8)
    root = np.sqrt(times)
    assert info["ratio_bound"] == pytest.approx(((root + 1) / (root - 1)) ** 2)
    assert 1 < spectrum[-1] / spectrum[0] <= info["ratio_bound"]
    assert spectrum.mean() == pytest.approx(1)


def test_blocks_order_and_library_do_not_matter():
    pool = np.random.default_rng(0).standard_normal((60, 4))
    pool[30:] = pool[:30]  # every row twice: the smaller id must win
    expected, weights, _ = deterministic_bss(pool, 20)
    assert (expected < 30).all()
    order = np.random.default_rng(1).permutation(60)
    blocks = np.array_split(order, 3)
    shards = LocalShards(Shard(ids, {"features": torch.asarray(pool[ids])}) for ids in blocks)
    ids, other_weights, _ = deterministic_bss(shards, 20)
    assert ids.tolist() == expected.tolist()
    np.testing.assert_allclose(other_weights, weights, rtol=1e-9)


def test_too_few_rounds_are_refused():
    with pytest.raises(BadInput, match="k must be more than the rank of the rows, 2; got 2"):
        deterministic_bss(np.eye(6)[:, :2], 2)
