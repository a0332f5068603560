"""Standardized numbers, against NumPy."""

import numpy as np
import pytest

from labelwise.learners import embedding as module
from labelwise.learners.embedding import Standardizer


@pytest.mark.parametrize("shape", [(50, 4), (9, 3, 5, 5)])
def test_a_scale_is_that_of_numpy_whatever_the_blocks(shape, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_BYTES", 300)
    values = np.random.default_rng(0).normal(3, 5, size=shape) * 100
    values[:, 1] = 7.0
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    spread = values.std(axis=axes, keepdims=True)
    spread[spread < 1e-9] = 1
    scale = Standardizer.fit(values)
    wanted = (values - values.mean(axis=axes, keepdims=True)) / spread
    np.testing.assert_allclose(scale(values), wanted, atol=1e-5)
    np.testing.assert_allclose(scale.back(scale(values)), values, atol=1e-3)


def test_large_numbers_that_differ_little_keep_their_digits():
    seconds = 1.7e9 + np.arange(100.0)[:, None]  # float32 would hold them in steps of 128
    rows = Standardizer.fit(seconds)(seconds)[:, 0]
    np.testing.assert_allclose(np.diff(rows), 1 / np.arange(100.0).std(), rtol=1e-4)


def test_columns_in_small_units_are_scaled_and_constant_ones_are_not():
    metres = np.random.default_rng(0).normal(3e-9, 1e-9, size=(200, 1))
    rows = Standardizer.fit(metres)(metres)
    assert rows.mean() == pytest.approx(0, abs=1e-6) and rows.std() == pytest.approx(1, rel=1e-5)
    for constant in (0.0, 0.1, 1e-30, 1e9):
        values = np.full((7, 1), constant)
        assert Standardizer.fit(values).spread.item() == 1
