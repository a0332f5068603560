"""Pools: stable ids, and what they refuse."""

import numpy as np
import pytest

from labelwise.errors import BadInput, UnknownName
from labelwise.pool.pool import Pool


def test_ids_are_row_numbers_unless_given():
    assert Pool(["a", "b"]).ids.tolist() == [0, 1]
    assert Pool(["a", "b"], np.array([7, 3])).take([3, 7, 3]) == ["b", "a", "b"]


def test_arrays_are_taken_as_arrays():
    np.testing.assert_array_equal(Pool(np.eye(3), np.array([5, 6, 7])).take([7]), [[0, 0, 1]])


def test_one_id_per_input():
    with pytest.raises(BadInput, match="pool has 3 ids but 2 inputs; give one id per item"):
        Pool(["a", "b"], np.arange(3))


def test_ids_are_unique_whole_numbers():
    with pytest.raises(BadInput, match="id 4 occurs 2 times"):
        Pool(["a", "b", "c"], np.array([4, 1, 4]))


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([0.0, 1.5], r"whole numbers below 2\*\*63; got 1\.5$"),
        ([0.0, np.nan], r"got nan$"),
        ([0.0, np.inf], r"got inf$"),
        (np.array([1, 2**63], np.uint64), r"got 9223372036854775808$"),
        (["img0", "img1"], r"got 'img0': keep names in a column that is not called id, and find"),
        (np.array([None, 1]), r"got None: keep names"),
    ],
)
def test_ids_that_are_no_whole_numbers_are_refused(ids, told):
    with pytest.raises(BadInput, match=told):
        Pool(["a", "b"], np.asarray(ids))


def test_ids_may_be_as_large_as_they_can_be():
    ids = [2**63 - 1, -(2**63)]
    assert Pool(["a", "b"], np.array(ids)).ids.tolist() == ids
    assert Pool(["a", "b"], np.array([2**63 - 1, 0], np.uint64)).ids.tolist() == [2**63 - 1, 0]


def test_an_unknown_id_is_an_error():
    with pytest.raises(UnknownName, match="no item of the pool has id 9"):
        Pool(["a", "b"]).take([9])
