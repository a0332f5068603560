"""Chunks in float64 hold the same numbers as the whole."""

import numpy as np
import pytest

from labelwise.arrays import to_numpy
from labelwise.kernels import float64_blocks
from labelwise.kernels.float64_blocks import iterate_float64_chunks, multiply_in_float64


@pytest.mark.parametrize("n", [0, 1, 64, 200])
def test_chunks_put_together_are_the_rows(n, monkeypatch):
    monkeypatch.setattr(float64_blocks, "HOST_CHUNK", 64)
    rows = np.random.default_rng(0).normal(size=(n, 5, 2)).astype(np.float32)
    more = np.arange(n, dtype=np.float32)
    parts = list(iterate_float64_chunks(rows, more))
    assert len(parts) == max(-(-n // 64), 1)
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), rows)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), more)
    assert all(part.dtype == np.float64 for pair in parts for part in pair)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_products_have_the_digits_of_float64(library):
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(300, 40)).astype(np.float32)
    matrix = generator.normal(size=(40, 2))
    expected = rows.astype(np.float64) @ matrix
    if library == "torch":
        torch = pytest.importorskip("torch")
        rows, matrix = torch.from_numpy(rows), torch.from_numpy(matrix)
    np.testing.assert_allclose(to_numpy(multiply_in_float64(rows, matrix)), expected, rtol=1e-12)
