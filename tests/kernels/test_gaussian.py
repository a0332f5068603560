"""Sums of Gaussian kernels against all pairs of distances."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from labelwise.arrays import to_numpy
from labelwise.kernels.distance import gaussian
from labelwise.kernels.distance.gaussian import kernel_sums, median_distance
from tests.conftest import make_features


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_those_of_all_pairs(dtype, library, monkeypatch):
    monkeypatch.setattr(gaussian, "KERNELS", 64 * 20)
    rows, points = make_features(150, 6).astype(dtype), make_features(20, 6, 1)
    expected = np.exp(-(cdist(rows, points) ** 2) / (2 * 1.7**2)).sum(axis=1)
    norms = (rows.astype(float) ** 2).sum(axis=1)
    if library == "torch":
        torch = pytest.importorskip("torch")
        rows, norms, points = (torch.from_numpy(x) for x in (rows, norms, points))
    sums = to_numpy(kernel_sums(rows, norms, points, 1.7))
    assert sums.dtype == np.float64
    np.testing.assert_allclose(sums, expected, rtol=1e-11)


def test_no_points_sum_to_zero_and_no_rows_to_nothing():
    rows = make_features(5, 3)
    norms = (rows**2).sum(axis=1)
    assert kernel_sums(rows, norms, rows[:0], 1.0).tolist() == [0] * 5
    assert kernel_sums(rows[:0], norms[:0], rows, 1.0).shape == (0,)


def test_the_median_is_over_pairs_of_different_rows():
    rows = make_features(31, 4)
    assert median_distance(rows) == pytest.approx(np.median(pdist(rows)), rel=1e-12)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(np.ones((1, 2)), 1.0), (np.ones((5, 2)), 1.0), (np.eye(7)[:, :1], 6 / 21)],
    ids=["one row", "equal rows", "mostly equal"],
)
def test_a_median_of_zero_is_replaced(rows, expected):
    assert median_distance(rows) == pytest.approx(expected)


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e170, 1e300])
def test_the_median_of_rows_of_any_size(size):
    rows = make_features(30, 4)
    assert median_distance(rows * size) / size == pytest.approx(np.median(pdist(rows)))
