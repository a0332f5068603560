"""Blocks of rows: sums, and gathering by id."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput, UnknownName
from labelwise.pool.blocks import LocalShards, Shard, as_shards
from labelwise.pool.ids import RowNumbers


def make_shards(ids, cuts):
    rows = {"features": np.array(ids, dtype=float)[:, None] * 10, "duals": np.array(ids, float)}
    parts = np.split(np.arange(len(ids)), cuts)
    return LocalShards(
        Shard(np.array(ids)[part], {name: value[part] for name, value in rows.items()})
        for part in parts
    )


def test_rows_come_in_the_order_asked_for_from_any_block():
    shards = make_shards([7, 3, 9, 1, 4], [2, 3])
    rows = shards.rows(np.array([4, 7, 9, 3]))
    assert rows["features"][:, 0].tolist() == [40, 70, 90, 30]
    assert rows["duals"].tolist() == [4, 7, 9, 3]


def test_no_ids_give_no_rows():
    assert make_shards([7, 3], []).rows(np.array([], dtype=np.int64))["features"].shape == (0, 1)


@pytest.mark.parametrize("wrong", [0, 8, 99, -1])
def test_an_unknown_id_is_an_error(wrong):
    with pytest.raises(UnknownName, match=f"no item of the pool has id {wrong}"):
        make_shards([7, 3, 9], [1]).rows(np.array([3, wrong]))


def test_sums_add_tuples_field_by_field():
    shards = make_shards([7, 3, 9, 1], [2])
    total, count = shards.sum(lambda shard: (shard.rows["duals"].sum(), len(shard)))
    assert (total, count) == (20.0, 4)


def test_state_stays_with_its_block():
    shards = make_shards([7, 3, 9, 1], [1])
    shards.map(lambda shard: shard.state.update(size=len(shard)))
    assert shards.map(lambda shard: shard.state["size"]) == [1, 3]
    assert len(shards) == 4


def test_a_list_of_arrays_is_a_list_of_blocks():
    rows = np.arange(12.0).reshape(6, 2)
    shards = as_shards([rows[:4], rows[4:]])
    assert shards.ids.tolist() == list(range(6))
    np.testing.assert_array_equal(shards.rows(np.array([5, 0]))["features"], rows[[5, 0]])


def test_what_is_no_array_is_refused():
    with pytest.raises(BadInput, match="A must be an array, a list of arrays or shards; got str"):
        as_shards("rows.npy", "A")


def test_an_array_must_have_two_axes():
    with pytest.raises(BadInput, match=r"A must have two axes .* got shape \(3,\)"):
        as_shards(np.ones(3), "A")


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    gaps=st.lists(st.integers(0, 3), min_size=5, max_size=5),
    left_out=st.sets(st.integers(0, 40)),
    wanted=st.lists(st.integers(-2, 45), max_size=10),
)
def test_row_numbers_are_found_as_listed_ids_are(sizes, gaps, left_out, wanted):
    numbered, listed, first = [], [], 0
    for size, gap in zip(sizes, gaps, strict=False):
        first += gap
        without = np.array(sorted(i for i in left_out if first <= i < first + size), dtype=np.int64)
        block = RowNumbers(first, first + size, without)
        numbered.append(Shard(block, {"x": block.to_array()[:, None]}))
        listed.append(Shard(block.to_array(), {"x": block.to_array()[:, None]}))
        first += size
    ours, theirs = LocalShards(numbered), LocalShards(listed)
    assert len(ours) == len(theirs) and ours.ids.tolist() == theirs.ids.tolist()
    known = np.array([i for i in wanted if i in set(theirs.ids.tolist())], dtype=np.int64)
    assert ours.index.find_positions(known).tolist() == theirs.index.find_positions(known).tolist()
    if len(known):
        assert ours.rows(known)["x"][:, 0].tolist() == known.tolist()
    for unknown in set(wanted) - set(known.tolist()):
        with pytest.raises(UnknownName, match=f"no item of the pool has id {unknown}"):
            ours.index.find_positions(np.array([unknown]))


def test_row_numbers_in_blocks_out_of_order_are_found_too():
    shards = LocalShards(
        Shard(RowNumbers(a, b), {"x": np.arange(a, b)[:, None]}) for a, b in [(5, 9), (0, 5)]
    )
    assert shards.ids.tolist() == [5, 6, 7, 8, 0, 1, 2, 3, 4]
    assert shards.rows(np.array([3, 8]))["x"].tolist() == [[3], [8]]


def test_row_numbers_of_a_hundred_million_items_take_no_memory():
    tracemalloc.start()
    blocks = [RowNumbers(first, first + 10**6) for first in range(0, 10**8, 10**6)]
    shards = LocalShards(Shard(block, {"x": np.empty((0, 1))}) for block in blocks)
    found = shards.index.find_positions(np.array([99_999_999, 0, 1_000_000]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.tolist() == [99_999_999, 0, 1_000_000] and len(shards) == 10**8
    assert peak < 10**6
