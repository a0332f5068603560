"""Rows by representation: joined, gathered, and taken without reading the others."""

import numpy as np
import pytest

from labelwise.pool.rows import GrowingRows, copy_to_host, join_rows, move_rows, take_rows


def test_rows_are_taken_of_every_model():
    rows = {
        "features": [np.arange(4.0)[:, None], np.arange(8.0).reshape(4, 2)],
        "duals": np.arange(4),
    }
    taken = take_rows(rows, np.array([3, 1]))
    assert [array.tolist() for array in taken["features"]] == [[[3.0], [1.0]], [[6, 7], [2, 3]]]
    assert taken["duals"].tolist() == [3, 1]


def test_rows_go_to_the_library_of_an_array_and_back():
    torch = pytest.importorskip("torch")
    rows = {"features": [np.ones((2, 1)), np.zeros((2, 3))]}
    there = move_rows(rows, torch.zeros(1))
    assert all(isinstance(array, torch.Tensor) for array in there["features"])
    for ours, theirs in zip(copy_to_host(there)["features"], rows["features"], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_lists_of_several_models_are_joined_model_by_model():
    parts = [{"features": [np.ones((2, 1)), np.zeros((2, 3))]}] * 2
    joined = join_rows(parts)["features"]
    assert [array.shape for array in joined] == [(4, 1), (4, 3)]


def test_growing_rows_keep_everything_in_order():
    growing = GrowingRows()
    expected = []
    for size in [1, 1, 70, 3, 200]:
        new = np.arange(len(expected), len(expected) + size)
        growing.append({"features": [new[:, None], new[:, None] * 2.0]})
        expected += new.tolist()
    assert len(growing) == 275
    first, second = growing.since(50)["features"]
    assert first[:, 0].tolist() == expected[50:]
    assert second[:, 0].tolist() == [2 * value for value in expected[50:]]
