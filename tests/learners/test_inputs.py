"""Items in every form a user has them, against plain indexing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from torch.utils.data import IterableDataset, TensorDataset

from labelwise.errors import BadInput
from labelwise.learners import inputs
from labelwise.learners.inputs import (
    ArrayItems,
    ItemSubset,
    TensorItems,
    as_items,
    find_nonfinite_item,
    move_to_device,
    prepare_batch,
    split_into_batches,
)

CPU = torch.device("cpu")
ROWS = np.random.default_rng(0).normal(size=(12, 2, 3)).astype(np.float32)
ORDERS = [np.arange(3, 9), np.array([5, 1, 1, 11]), np.array([7]), np.array([4, 3, 2])]


class Frame:
    """What data frames have in common."""

    def __init__(self, array):
        self._array = array

    def to_numpy(self):
        return self._array


class WithArray:
    """What a table of pyarrow has."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array


def forms(folder: Path):
    np.save(folder / "rows.npy", ROWS)
    return {
        "array": ROWS,
        "big-endian array": ROWS.astype(">f4"),
        "array backwards": ROWS[::-1].copy()[::-1],
        "tensor": torch.from_numpy(ROWS),
        "path": folder / "rows.npy",
        "path as text": str(folder / "rows.npy"),
        "memory map": np.load(folder / "rows.npy", mmap_mode="r"),
        "data set": TensorDataset(torch.from_numpy(ROWS), torch.arange(12)),
        "list of arrays": list(ROWS),
        "list of tensors": list(torch.from_numpy(ROWS)),
        "frame": Frame(ROWS),
        "__array__": WithArray(ROWS),
        "nested lists": ROWS.astype(float).tolist(),
        "items again": as_items(ROWS),
    }


def test_every_form_gives_the_same_batches(tmp_path):
    for name, form in forms(tmp_path).items():
        items = as_items(form)
        assert len(items) == 12, name
        for order in ORDERS:
            batch = prepare_batch(items.batch(order), CPU, torch.float32)
            np.testing.assert_array_equal(batch.numpy(), ROWS[order], err_msg=name)


def test_a_mapping_gives_a_batch_of_every_entry(tmp_path):
    np.save(tmp_path / "b.npy", ROWS[:, 0])
    items = as_items({"a": torch.arange(12), "b": tmp_path / "b.npy"})
    batch = items.batch(np.array([3, 0]))
    assert batch["a"].tolist() == [3, 0]
    np.testing.assert_array_equal(batch["b"].numpy(), ROWS[[3, 0], 0])


def test_items_that_are_dicts_are_collated_by_keyword():
    items = as_items([{"a": np.full(2, i), "b": float(i)} for i in range(4)])
    batch = items.batch(np.array([2, 1]))
    assert batch["a"].tolist() == [[2, 2], [1, 1]]
    assert batch["b"].tolist() == [2.0, 1.0]


def test_a_part_counts_from_its_own_positions():
    part = ItemSubset(as_items(ROWS), np.array([8, 2, 5]))
    assert len(part) == 3
    np.testing.assert_array_equal(part.batch(np.array([2, 0])).numpy(), ROWS[[5, 8]])


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_batch_is_a_copy(order, tmp_path):
    for name, form in forms(tmp_path).items():
        if name in ("data set", "list of arrays", "list of tensors"):
            continue  # stacked, so new by construction
        items = as_items(form)
        items.batch(order).fill_(99)
        np.testing.assert_array_equal(items.batch(order).numpy(), ROWS[order], err_msg=name)


def test_a_file_is_not_read_as_a_whole(tmp_path):
    file = np.lib.format.open_memmap(
        tmp_path / "large.npy", mode="w+", dtype=np.float32, shape=(1 << 28, 16)
    )  # 16 GiB of hole: it costs no disk, and would not fit in memory
    file[1 << 27] = 7
    file.flush()
    items = as_items(tmp_path / "large.npy")
    assert len(items) == 1 << 28
    assert items.batch(np.array([0, 1 << 27])).sum(dim=1).tolist() == [0, 7 * 16]


def test_only_floating_point_numbers_take_the_precision_of_the_module():
    inputs = {"a": torch.zeros(2, dtype=torch.float64), "b": torch.ones(2, dtype=int)}
    batch = prepare_batch(inputs, CPU, torch.float32)
    assert batch["a"].dtype == torch.float32 and batch["b"].dtype == torch.int64


def test_a_collated_list_becomes_positional_arguments():
    batch = prepare_batch([torch.zeros(2), torch.ones(2, dtype=int)], CPU, torch.float64)
    assert isinstance(batch, tuple)
    assert [part.dtype for part in batch] == [torch.float64, torch.int64]


def test_residents_hold_the_same_numbers_in_the_precision_asked_for():
    for form in (ROWS, ROWS.astype(">f8"), torch.from_numpy(ROWS).double()):
        near = move_to_device(as_items(form), CPU, torch.float32)
        assert isinstance(near, TensorItems) and near.rows.dtype == torch.float32
        np.testing.assert_array_equal(near.rows.numpy(), ROWS)
    whole = move_to_device(as_items({"a": np.arange(12)}), CPU, torch.float32)
    assert whole.batch(np.array([3]))["a"].dtype == torch.int64
    part = move_to_device(ItemSubset(as_items(ROWS), np.array([4, 1])), CPU)
    np.testing.assert_array_equal(part.batch(np.array([1])).numpy(), ROWS[[1]])


def test_arrays_that_are_too_large_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(inputs, "RESIDENT_BYTES", ROWS.nbytes - 1)
    assert isinstance(move_to_device(as_items(ROWS), CPU), ArrayItems)


def test_the_first_item_that_is_not_finite_is_found():
    rows = ROWS.copy()
    assert find_nonfinite_item(as_items(rows)) is None
    rows[9, 1, 2], rows[4, 0, 0] = np.nan, np.inf
    assert find_nonfinite_item(as_items(rows), size=3) == 4
    assert find_nonfinite_item(as_items(list(rows)), size=5) == 4
    assert find_nonfinite_item(as_items({"a": np.arange(12), "b": rows})) == 4
    assert find_nonfinite_item(ItemSubset(as_items(rows), np.array([0, 9, 1]))) == 9
    assert find_nonfinite_item(as_items(np.arange(4))) is None


@given(st.integers(0, 300), st.integers(1, 70))
def test_even_parts_are_all_positions_in_order_and_differ_by_one_at_most(count, size):
    order = np.random.default_rng(count).permutation(count)
    parts = split_into_batches(order, size)
    lengths = [len(part) for part in parts]
    assert np.concatenate([order[:0], *parts]).tolist() == order.tolist()
    assert len(parts) == -(-count // size)
    assert not lengths or (max(lengths) <= size and max(lengths) - min(lengths) <= 1)


@given(hnp.arrays(np.int64, st.integers(1, 6), elements=st.integers(0, 11)))
def test_any_positions_are_plain_indexing(positions):
    for form in (ROWS, torch.from_numpy(ROWS)):
        batch = as_items(form).batch(positions)
        np.testing.assert_array_equal(batch.numpy(), ROWS[positions])


class Stream(IterableDataset):
    def __iter__(self):
        yield 0


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (np.array(["a", "b"]), "inputs must be numbers of 64 bits at most; got an array of <U1"),
        (np.zeros(2, dtype=complex), "numbers of 64 bits at most; got an array of complex128"),
        (np.zeros(2, dtype=np.longdouble), "64 bits at most; got an array of float128"),
        (sparse.csr_array(np.eye(3)), r"sparse matrix of \(3, 3\); give inputs.toarray\(\)"),
        (sparse.csr_matrix(np.eye(3)), r"sparse matrix of \(3, 3\); give inputs.toarray\(\)"),
        (np.ma.masked_array([1.0, 2.0], [0, 1]), "inputs hold masked entries; fill them or leave"),
        (np.array(3.0), "one row per item; got a single number"),
        (torch.tensor(3.0), "one row per item; got a single number"),
        ({}, "same number of items; got an empty mapping"),
        ({"a": ROWS, "b": ROWS[:5]}, r"same number of items; got \{'a': 12, 'b': 5\}"),
        (Stream(), "a sequence with a length; got Stream"),
        ((i for i in range(3)), "a sequence with a length; got generator"),
        (5, "a sequence with a length; got int"),
        ([[1, 2], [3]], "the lists of the inputs differ in length; pad them to one length"),
        ("nowhere.npy", "nowhere.npy does not exist"),
    ],
)
def test_other_forms_are_refused(form, message):
    with pytest.raises(BadInput, match=message):
        as_items(form)


def test_a_file_that_is_no_npy_is_refused(tmp_path):
    np.savez(tmp_path / "rows.npz", ROWS)
    with pytest.raises(BadInput, match=r"must be .npy; got .*rows.npz: save it with numpy.save"):
        as_items(tmp_path / "rows.npz")


@pytest.mark.parametrize("kept", [0, 5, 40, 200])
def test_damaged_npy_files_are_refused(tmp_path, kept):
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((40, 3)))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadInput, match=r"rows.npy is not a readable .npy file \("):
        as_items(path)


def test_items_that_are_text_are_refused():
    with pytest.raises(BadInput, match="numbers, arrays or tensors; got str"):
        prepare_batch(as_items(["a cat", "a dog"]).batch(np.array([0, 1])), CPU, torch.float32)
