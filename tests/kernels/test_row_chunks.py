"""Parts of blocks and their products: the rows in order, whatever the type and the library."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from labelwise.arrays import to_numpy
from labelwise.kernels.linear import row_chunks
from labelwise.kernels.linear.row_chunks import (
    CHUNK,
    iterate_row_chunks,
    multiply_chunks,
    scratch_buffer,
    squared_row_lengths,
)


@pytest.mark.parametrize("n, d", [(0, 3), (1, 3), (4096, 129), (9_000, 128), (2_500, 700), (5, 0)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("double", [True, False])
def test_chunks_are_the_rows_in_order_and_none_is_tiny(n, d, dtype, double):
    rows = (8 * np.random.default_rng(2).standard_normal((n, d))).astype(dtype)
    starts, parts = [], []
    for start, part in iterate_row_chunks(rows, double=double):
        starts.append(start)
        parts.append(part.copy())
    sizes = [len(part) for part in parts]
    assert starts == [0, *np.cumsum(sizes)[:-1]] if n else starts == []
    assert max(sizes, default=1) <= 2 * min(sizes, default=1)
    assert max(sizes, default=0) * d <= max(5 * CHUNK, 1_280 * d)
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
    for start, product in multiply_chunks(given, matrix, double=double):
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
    found = squared_row_lengths(np.asarray(rows, dtype=dtype, order=order))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, (rows**2).sum(axis=1), rtol=1e-6)


def in_new_thread(function):
    """Result of a function in a thread that has no buffers yet."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(3, 4), (5,), (0, 3), ()])
def test_a_buffer_has_the_shape_and_the_type_asked_for(shape, dtype):
    with scratch_buffer(shape, dtype) as array:
        array[...] = 7
        assert array.shape == shape and array.dtype == dtype and array.flags.c_contiguous
        np.testing.assert_array_equal(array, np.full(shape, 7, dtype))


def test_the_next_in_a_thread_gets_the_same_memory():
    def addresses():
        found = []
        for shape, dtype in [((100,), np.float64), ((50, 2), np.float64), ((10,), np.float32)]:
            with scratch_buffer(shape, dtype) as array:
                found.append(array.ctypes.data)
        return found

    assert len(set(in_new_thread(addresses))) == 1


def test_a_larger_buffer_replaces_a_smaller_one():
    def sizes():
        for count in (10, 20, 15):
            with scratch_buffer((count,), np.uint8):
                pass
        return [memory.nbytes for memory in row_chunks._buffers.unused]

    assert in_new_thread(sizes) == [20]


def test_two_at_a_time_do_not_share():
    with scratch_buffer((100,), np.float64) as first, scratch_buffer((100,), np.float64) as second:
        first[:], second[:] = 1, 2
        assert not np.shares_memory(first, second)
        assert first.sum() == 100


def test_threads_do_not_share():
    with scratch_buffer((100,), np.float64) as mine:
        pass

    def other():
        with scratch_buffer((100,), np.float64) as array:
            return array

    assert not np.shares_memory(mine, in_new_thread(other))


def test_few_buffers_are_kept_and_no_large_ones(monkeypatch):
    monkeypatch.setattr(row_chunks, "KEPT_BUFFERS", 2)
    monkeypatch.setattr(row_chunks, "LARGEST_BUFFER", 1000)

    def kept():
        with (
            scratch_buffer((1001,), np.uint8),
            scratch_buffer((9,), np.uint8),
            scratch_buffer((9,), np.uint8),
        ):
            with scratch_buffer((9,), np.uint8):
                pass
        return [memory.nbytes for memory in row_chunks._buffers.unused]

    assert in_new_thread(kept) == [9, 9]


def test_a_buffer_is_free_again_after_an_error():
    def fail():
        with pytest.raises(ZeroDivisionError), scratch_buffer((8,), np.uint8):
            raise ZeroDivisionError
        return len(row_chunks._buffers.unused)

    assert in_new_thread(fail) == 1
