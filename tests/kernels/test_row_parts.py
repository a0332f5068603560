"""Parts of blocks and their products: the rows in order, whatever the type and the library."""

import numpy as np
import pytest
import torch

from labelwise.arrays import to_numpy
from labelwise.kernels.linear.row_parts import PIECE, lengths, pieces, products


@pytest.mark.parametrize("n, d", [(0, 3), (1, 3), (4096, 129), (9_000, 128), (2_500, 700), (5, 0)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("double", [True, False])
def test_pieces_are_the_rows_in_order_and_none_is_tiny(n, d, dtype, double):
    rows = (8 * np.random.default_rng(2).standard_normal((n, d))).astype(dtype)
    starts, parts = [], []
    for start, part in pieces(rows, double=double):
        starts.append(start)
        parts.append(part.copy())
    sizes = [len(part) for part in parts]
    assert starts == [0, *np.cumsum(sizes)[:-1]] if n else starts == []
    assert max(sizes, default=1) <= 2 * min(sizes, default=1)
    assert max(sizes, default=0) * d <= max(5 * PIECE, 1_280 * d)
    narrow = not double and dtype in ("float16", "float32")
    assert all(part.dtype == (np.float32 if narrow else np.float64) for part in parts)
    joined = np.concatenate([np.empty((0, d)), *parts])
    np.testing.assert_array_equal(joined, rows)  # no number is lost on the way


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("double", [True, False])
def test_products_are_those_of_the_rows(library, dtype, double):
    generator = np.random.default_rng(3)
    rows = generator.standard_normal((9_000, 128)).astype(dtype)
    matrix = generator.standard_normal((128, 5))
    given = torch.asarray(rows) if library == "torch" else rows
    found = []
    for start, product in products(given, matrix, double=double):
        assert start == sum(map(len, found))
        found.append(to_numpy(product).copy())
        product *= 0  # whoever is given it may do so
    assert len(found) > 1
    tolerance = 1e-12 if double or dtype == "float64" else 1e-4
    np.testing.assert_allclose(np.concatenate(found), rows @ matrix, rtol=0, atol=tolerance)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lengths_are_those_of_rows_in_any_order(order, dtype):
    rows = (
        np.random.default_rng(4).standard_normal((50, 7)) * 10.0 ** -np.arange(0, 25, 0.5)[:, None]
    )
    found = lengths(np.asarray(rows, dtype=dtype, order=order))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, (rows**2).sum(axis=1), rtol=1e-6)
