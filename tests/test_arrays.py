"""Noise by item, ties, and the row operations that NumPy and torch share."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from labelwise import arrays, threads
from labelwise.arrays import (
    comparable,
    largest,
    row_noise,
    row_products,
    squared_distances,
    take,
    to_numpy,
    waiting_times,
)


def test_noise_is_uniform():
    assert kstest(row_noise(3, np.arange(20_000), 1), "uniform").pvalue > 1e-3


def test_clocks_are_exponential():
    assert kstest(waiting_times(3, (1,), 1.0, np.arange(20_000)), "expon").pvalue > 1e-3


def test_noise_is_a_function_of_seed_stream_and_id_alone():
    ids = np.arange(1000)
    shuffled = np.random.default_rng(0).permutation(1000)
    np.testing.assert_array_equal(row_noise(1, ids, 4)[shuffled], row_noise(1, ids[shuffled], 4))


@pytest.mark.parametrize("other", [(2, 4), (1, 5), (1, 4, 0)])
def test_other_seeds_and_streams_give_unrelated_noise(other):
    ids = np.arange(20_000)
    noise, unrelated = row_noise(1, ids, 4), row_noise(other[0], ids, *other[1:])
    assert abs(np.corrcoef(noise, unrelated)[0, 1]) < 0.03


def test_noise_of_neighbouring_ids_is_unrelated():
    noise = row_noise(0, np.arange(20_000))
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.03


def test_negative_seeds_and_ids_are_fine():
    noise = row_noise(-5, np.array([-1, 0, 1]))
    assert len(set(noise.tolist())) == 3
    assert ((noise > 0) & (noise < 1)).all()


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.data())
def test_largest_is_a_stable_sort(values, data):
    scores = np.array(values, dtype=np.float64)
    count = data.draw(st.integers(0, len(values)))
    ids = np.random.default_rng(0).permutation(len(values))
    expected = sorted(range(len(values)), key=lambda i: (-scores[i], ids[i]))[:count]
    assert largest(scores, count, ids).tolist() == expected


def test_scores_that_differ_in_the_last_bits_are_ties():
    scores = np.array([0.1 + 0.2, 0.3, 0.3 * (1 + 1e-6), -np.inf, 0.0])
    rounded = comparable(scores)
    assert rounded[0] == rounded[1] < rounded[2]
    np.testing.assert_allclose(rounded, scores, rtol=1e-8)


def test_distances_match_a_loop_in_both_libraries():
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    rows, points = generator.normal(size=(6, 3)), generator.normal(size=(4, 3))
    expected = [[((row - point) ** 2).sum() for point in points] for row in rows]
    np.testing.assert_allclose(squared_distances(rows, points), expected)
    tensors = squared_distances(torch.asarray(rows), torch.asarray(points))
    np.testing.assert_allclose(to_numpy(tensors), expected)


def test_take_accepts_masks_and_positions_in_both_libraries():
    torch = pytest.importorskip("torch")
    rows = np.arange(12.0).reshape(6, 2)
    mask = np.array([True, False, False, True, False, True])
    for positions in (mask, np.flatnonzero(mask)[::-1]):
        expected = rows[positions]
        np.testing.assert_array_equal(take(rows, positions), expected)
        np.testing.assert_array_equal(to_numpy(take(torch.asarray(rows), positions)), expected)


SHAPES = [
    (3, 4, 5),  # not worth cutting
    (300, 90, 40),
    (40, 3, 5000),
    (9, 60, 1200),  # flat
    (2, 3, 600_000),  # a tile of one product
    (1, 900, 700),
    (900, 1, 700),
    (2000, 200, 100),  # large enough for all threads
]


@pytest.mark.parametrize(("n", "m", "d"), SHAPES)
def test_products_in_tiles_match_one_product(n, m, d):
    generator = np.random.default_rng(0)
    rows, points = generator.normal(size=(n, d)), generator.normal(size=(m, d))
    np.testing.assert_allclose(row_products(rows, points), rows @ points.T, atol=1e-9)


@pytest.mark.parametrize("width", [1, 3, 47, 48, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_and_products_along_rows_are_those_of_numpy(width, dtype):
    rows, others = np.random.default_rng(0).normal(size=(2, 30, 2, width)).astype(dtype)
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4 if dtype == np.float32 else 0)
    close(arrays.row_dots(rows, others), (rows * others).sum(axis=-1))


def test_products_beside_other_threads_are_cut_into_tiles(monkeypatch):
    sizes = []

    class NotedRows(np.ndarray):
        """Rows that note the size of every product."""

        def __matmul__(self, other):
            sizes.append(len(self) * other.size)
            return np.asarray(self) @ other

    rows, points = np.random.default_rng(0).normal(size=(2, 3000, 40))
    rows = rows.view(NotedRows)
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    whole = arrays.row_products(rows, points)
    assert sizes == [3000 * 3000 * 40]
    sizes.clear()
    parts = threads.run_in_threads(
        lambda span: arrays.row_products(rows[span], points), [slice(0, 1500), slice(1500, 3000)]
    )
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-12, atol=1e-12)
    assert len(sizes) > 600 and max(sizes) < 2**19
