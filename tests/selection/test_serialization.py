"""What is written to a file comes back the same, and nothing foreign comes back."""

import io
import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from labelwise.errors import BadInput
from labelwise.kernels.distance.embedding import Factored
from labelwise.kernels.linear.leverage import MatrixSum
from labelwise.kernels.loop.block_scores import Proposal
from labelwise.pool.rows import GrowingRows
from labelwise.selection.checkpoint import read_checkpoint_value, write_checkpoint_value


def there_and_back(*values):
    file = io.BytesIO()
    for value in values:
        write_checkpoint_value(file, value)
    file.seek(0)
    return [read_checkpoint_value(file) for _ in values]


def same(left, right):
    if isinstance(left, np.ndarray):
        assert isinstance(right, np.ndarray) and left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for name in left:
            same(left[name], right[name])
    elif isinstance(left, list | tuple):
        assert type(left) is type(right) and len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            same(one, other)
    else:
        assert type(left) is type(right)
        assert left == right or (math.isnan(left) and math.isnan(right))


ARRAYS = arrays.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.bool_]),
    arrays.array_shapes(min_dims=0, min_side=0),
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | ARRAYS
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.lists(VALUES, min_size=1, max_size=3))
def test_any_value_comes_back(values):
    for value, found in zip(values, there_and_back(*values), strict=True):
        same(value, found)


def test_numbers_of_numpy_keep_their_type():
    (found,) = there_and_back([np.float32(0.1), np.int64(7), np.bool_(True)])
    same(found, [np.float32(0.1), np.int64(7), np.bool_(True)])


def test_objects_of_labelwise_come_back():
    proposal = Proposal(np.arange(3), {"features": np.eye(3)}, None, np.ones(3), np.zeros(3), 0.5)
    total, (rows,) = there_and_back(
        MatrixSum(np.eye(2), 0.1), (Factored(np.ones((2, 1)), np.eye(2)),)
    )
    assert isinstance(total, MatrixSum) and (total + total).matrix.tolist() == [[2, 0], [0, 2]]
    assert isinstance(rows, Factored) and rows.h.tolist() == [[1, 0], [0, 1]]
    (found,) = there_and_back(proposal)
    assert isinstance(found, Proposal) and found.outside == 0.5
    np.testing.assert_array_equal(found.rows["features"], np.eye(3))


def test_rows_that_grow_go_on_growing():
    rows = GrowingRows()
    rows.append({"features": np.ones((2, 3))})
    (found,) = there_and_back(rows)
    found.append({"features": np.zeros((1, 3))})
    assert found.since(1)["features"].tolist() == [[1, 1, 1], [0, 0, 0]]


def test_one_array_in_two_places_stays_one():
    array = np.arange(4.0)
    (found,) = there_and_back({"a": array, "b": (array,)})
    assert found["a"] is found["b"][0]


@dataclass
class Foreign:
    value: int


@pytest.mark.parametrize("value", [Foreign(3), len, {1, 2}, object()])
def test_what_is_not_ours_is_not_written(value):
    with pytest.raises(BadInput, match="cannot be written down, which resume needs"):
        write_checkpoint_value(io.BytesIO(), [value])


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "tests.selection.test_serialization:Foreign",
        "labelwise.pool.blocks:np",
        "labelwise.selection.checkpoint:Path",
        "os:path",
    ],
)
def test_what_is_not_ours_is_not_made(name):
    line = json.dumps([0, ["object", name, ["dict", []]]]).encode() + b"\n"
    with pytest.raises(BadInput, match="not a class of labelwise"):
        read_checkpoint_value(io.BytesIO(line))


def test_objects_are_not_unpickled():
    file = io.BytesIO(b'[1, ["array", 0]]\n')
    file.seek(0, io.SEEK_END)
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    file.seek(0)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_checkpoint_value(file)


def test_tensors_come_back_near_the_rows():
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    write_checkpoint_value(file, {"scores": torch.arange(3.0)})
    file.seek(0)
    found = read_checkpoint_value(file, torch.asarray)["scores"]
    assert isinstance(found, torch.Tensor) and found.tolist() == [0, 1, 2]
