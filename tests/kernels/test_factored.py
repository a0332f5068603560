"""Kronecker rows against the same rows multiplied out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise import arrays
from labelwise.arrays import to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.distance import embedding as factored
from labelwise.kernels.distance.embedding import Factored
from labelwise.kernels.distance.kmeans_plus_plus import kmeans_plus_plus

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def pair(n, k, d, seed, dtype="float64", library="numpy"):
    """Factored rows in some library, and their dense float64 twin."""
    generator = np.random.default_rng(seed)
    a, h = generator.normal(size=(n, k)), generator.normal(size=(n, d))
    a, h = a.astype(dtype), h.astype(dtype)
    dense = np.array([np.outer(x, y).ravel() for x, y in zip(a.astype(float), h, strict=True)])
    if library == "torch":
        torch = pytest.importorskip("torch")
        a, h = torch.from_numpy(a), torch.from_numpy(h)
    return Factored(a, h), dense.reshape(n, k * d)


def assert_near(actual, expected, dtype, scale=None):
    """Equal up to rounding, relative to the size of the terms that were added up."""
    scale = np.abs(expected).max(initial=1e-300) if scale is None else scale
    np.testing.assert_allclose(to_numpy(actual), expected, atol=TOLERANCE[dtype] * scale, rtol=0)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norms_products_and_distances_are_those_of_the_dense_rows(dtype, library):
    rows, dense = pair(40, 5, 7, 0, dtype, library)
    points, dense_points = pair(6, 5, 7, 1, dtype, library)
    assert_near(factored.squared_norms(rows), (dense**2).sum(axis=1), dtype)
    assert_near(factored.inner_products(rows, points), dense @ dense_points.T, dtype)
    distances = ((dense[:, None] - dense_points[None]) ** 2).sum(axis=2)
    assert_near(factored.squared_distances(rows, points), distances, dtype)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_and_products_with_a_matrix_are_those_of_the_dense_rows(dtype, library):
    rows, dense = pair(40, 5, 7, 2, dtype, library)
    generator = np.random.default_rng(3)
    weights, matrix = generator.normal(size=40), generator.normal(size=(5, 7))
    local = arrays.like(weights.astype(dtype), rows.a)
    assert_near(factored.weighted_sum(rows, local), (weights @ dense).reshape(5, 7), dtype, 40)
    local = arrays.like(matrix.astype(dtype), rows.a)
    assert_near(factored.inner_products_with_matrix(rows, local), dense @ matrix.ravel(), dtype, 40)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_dense_take_concat_and_float64_keep_the_rows(library):
    rows, dense = pair(9, 2, 3, 4, "float32", library)
    picked = factored.take_embedding(rows, np.array([4, 0, 4]))
    assert_near(picked.dense(), dense[[4, 0, 4]], "float32")
    joined = factored.concat_embeddings([rows, picked])
    assert_near(joined.dense(), dense[[*range(9), 4, 0, 4]], "float32")
    assert len(joined) == 12
    assert to_numpy(factored.to_float64(rows).dense()).dtype == np.float64


def test_plain_arrays_go_through_the_same_functions():
    x = np.random.default_rng(5).normal(size=(8, 3))
    assert_near(factored.squared_norms(x), (x**2).sum(axis=1), "float64")
    assert_near(factored.inner_products(x, x[:2]), x @ x[:2].T, "float64")
    expected = ((x[:, None] - x[None, :2]) ** 2).sum(axis=2)
    assert_near(factored.squared_distances(x, x[:2]), expected, "float64")
    assert_near(
        factored.concat_embeddings([factored.take_embedding(x, np.array([1])), x[2:]]),
        x[1:],
        "float64",
    )


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_zero_and_repeated_rows_have_no_distance_below_zero(n, k, d, seed):
    rows, dense = pair(n, k, d, seed)
    rows.h[0] = 0.0
    rows = factored.concat_embeddings([rows, rows])
    dense[0] = 0.0
    dense = np.concatenate([dense, dense])
    distances = factored.squared_distances(rows, rows)
    expected = ((dense[:, None] - dense[None]) ** 2).sum(axis=2)
    scale = (dense**2).sum(axis=1).max() + 1
    np.testing.assert_allclose(distances, expected, atol=1e-12 * scale)
    assert distances.min() >= 0


@pytest.mark.parametrize("shapes", [((3, 2), (4, 2)), ((3,), (3, 2)), ((3, 2), (3, 2, 1))])
def test_factors_that_do_not_fit_are_refused(shapes):
    with pytest.raises(BadInput, match="factors of rows must be"):
        kmeans_plus_plus(Factored(np.zeros(shapes[0]), np.zeros(shapes[1])), 1, 0)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(("few", "many"), [(1, 400), (3, 500), (15, 16), (16, 16), (17, 300)])
def test_products_of_a_few_rows_with_many_points_are_those_of_each_pair(few, many, library):
    rows, dense = pair(few, 4, 40, 0, "float32", library)
    points, others = pair(many, 4, 40, 1, "float32", library)
    found = factored.inner_products(rows, points)
    assert_near(found, dense @ others.T, "float32", 160 * np.abs(dense).max() ** 2)
    assert_near(
        factored.inner_products(rows.h, points.h),
        to_numpy(rows.h).astype(float) @ to_numpy(points.h).astype(float).T,
        "float32",
        40 * 16,
    )
    assert to_numpy(found).flags.c_contiguous  # a minimum along the points runs over it
