"""Parts of a pool against the whole pool."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput, UnknownName
from labelwise.pool.blocks import find_item_ids
from labelwise.pool.parts import (
    Division,
    MappedFile,
    PartWorker,
    cut_part,
    prepare_representations,
    unpack_from_worker,
)
from labelwise.pool.representations import open_source, open_sources
from labelwise.pool.sources.source import SourceSlice
from tests.conftest import make_features
from tests.pool.test_shards import write_parquet


@pytest.fixture
def features():
    return make_features(1001, 4).astype(np.float32)


def opened_again(division, values):
    """Every part, as another process would open it."""
    sent = prepare_representations(values)
    made = [cut_part(division, number, sent, block_bytes=1000) for number in range(division.parts)]
    return [pickle.loads(pickle.dumps(part)).open() for part in made]


@pytest.mark.parametrize("kind", ["array", "npy", "mapped", "parquet"])
def test_the_parts_together_are_the_pool(kind, features, tmp_path):
    value, path = features, tmp_path / "rows.npy"
    np.save(path, features)
    if kind == "npy":
        value = str(path)
    elif kind == "mapped":
        value = np.load(path, mmap_mode="r")
    elif kind == "parquet":
        value = tmp_path / "rows.parquet"
        write_parquet(value, features, group=170)
    division = Division(1001, 3, labelled=np.array([500, 7, 990]))
    held = opened_again(division, {"features": value})
    blocks = [block for shards, _ in held for block in shards.map(lambda s: (s.ids, s.rows))]
    assert len(blocks) > 3  # parts have blocks of their own
    ids = np.concatenate([block_ids for block_ids, _ in blocks])
    rows = np.concatenate([np.array(block["features"]) for _, block in blocks])
    assert ids.tolist() == [row for row in range(1001) if row not in (7, 500, 990)]
    np.testing.assert_array_equal(rows, features[ids])
    labelled = [known["features"] for _, known in held if known is not None]
    np.testing.assert_array_equal(np.concatenate(labelled), features[[7, 500, 990]])


def test_a_file_is_sent_by_its_path_and_an_array_by_its_part(features, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", features)
    sent = prepare_representations(
        {"features": ["rows.npy", np.load("rows.npy", mmap_mode="r"), features]}
    )
    part = cut_part(Division(1001, 40), 1, sent)
    path, mapped, array = part.values["features"]
    assert path == str(tmp_path / "rows.npy")
    assert mapped == MappedFile(path, np.dtype("f4"), 128, (1001, 4))
    np.testing.assert_array_equal(array, features[25:50])
    assert len(pickle.dumps(cut_part(Division(1001, 4), 1, {"features": path}))) < 600


def test_a_view_of_a_mapped_file_is_sent_as_rows(features, tmp_path):
    np.save(tmp_path / "rows.npy", features)
    view = np.load(tmp_path / "rows.npy", mmap_mode="r")[10:]
    held = opened_again(Division(991, 2), {"features": view})
    rows = np.concatenate([np.array(s.rows(s.ids)["features"]) for s, _ in held])
    np.testing.assert_array_equal(rows, features[10:])


def test_a_slice_reads_its_range_and_no_more(features):
    whole = open_source(features, "features")
    cut = SourceSlice(whole, 20, 60)
    assert cut.shape == (40, 4) and cut.bytes_per_row == 16
    assert cut.precision == whole.precision and cut.in_memory
    np.testing.assert_array_equal(cut.read(30, 99), features[50:60])
    np.testing.assert_array_equal(cut.take(np.array([3, 0])), features[[23, 20]])


def test_a_slice_beyond_the_last_row_is_refused(features):
    with pytest.raises(BadInput, match="there are 1001 rows but row 1001 is requested"):
        SourceSlice(open_source(features, "features"), 5, 1002)


def test_a_part_without_candidates_has_no_blocks(features):
    division = Division(10, 5, labelled=np.array([2, 3]))
    worker = PartWorker(pickle.dumps)
    worker.open(0, cut_part(division, 1, {"features": features[:10]}), None)
    for kind, expected in (("map", []), ("sum", None)):
        answer = worker.call(0, kind, pickle.dumps((len, ())))
        assert unpack_from_worker(answer)[0] == expected
    known = unpack_from_worker(worker.labelled(0))
    np.testing.assert_array_equal(known["features"], features[2:4])
    assert division.sizes.tolist() == [2, 0, 2, 2, 2]


@given(st.data())
def test_items_are_found_as_in_one_process(data):
    count = data.draw(st.integers(1, 30))
    own = data.draw(st.booleans())
    ids = np.random.default_rng(count).permutation(3 * count)[:count] - 5 if own else None
    every = np.arange(count) if ids is None else ids
    labelled = np.array(data.draw(st.lists(st.sampled_from(every.tolist()), unique=True)), int)
    cut = data.draw(st.integers(1, count))
    division = Division(count, cut, ids=ids, labelled=labelled)
    left = [item for item in every.tolist() if item not in labelled]
    assert division.candidates.tolist() == left and len(division) == len(left)
    asked = np.array(data.draw(st.lists(st.sampled_from(every.tolist()))), int)
    rows = [every.tolist().index(item) for item in asked]
    owners = [int(np.flatnonzero(division.cuts <= row)[-1]) for row in rows]
    assert division.rows_of(asked).tolist() == rows
    assert division.owners(asked).tolist() == owners


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 6))
def test_cuts_are_made_at_the_edges_alone(lengths, parts):
    edges = np.cumsum([0, *lengths])
    cuts = Division(int(edges[-1]), parts, edges=edges).cuts.tolist()
    assert set(cuts) <= set(edges.tolist()) and cuts == sorted(set(cuts))
    assert cuts[0] == 0 and cuts[-1] == edges[-1] and len(cuts) <= parts + 1
    longest = max(b - a for a, b in itertools.pairwise(cuts))
    assert longest < edges[-1] / parts + max(lengths) + 1


@pytest.mark.parametrize("ids", [None, np.array([5, 3, 8, 1])])
def test_an_unknown_id_is_an_error(ids):
    division = Division(4, 2, ids=ids, labelled=np.array([3]))
    for ask in (division.owners, division.rows_of):
        with pytest.raises(UnknownName, match="no item of the pool has id -2"):
            ask(np.array([1, -2]))
    with pytest.raises(UnknownName, match="no item of the pool has id 77"):
        Division(4, 2, ids=ids, labelled=np.array([77]))


def test_ids_of_ones_own_are_given_or_in_the_file(features, tmp_path):
    write_parquet(tmp_path / "rows.parquet", features, ids=np.arange(1001) * 10)
    stored = open_sources({"features": tmp_path / "rows.parquet"})
    plain = open_sources({"features": features})
    assert find_item_ids(None, stored, 1001).tolist() == list(range(0, 10010, 10))
    assert find_item_ids(None, plain, 1001).to_array().tolist() == list(range(1001))
    assert find_item_ids(range(5, 1006), plain, 1001).tolist() == list(range(5, 1006))


def test_a_worker_says_whether_it_keeps_state(features):
    worker = PartWorker(pickle.dumps)
    worker.open(0, cut_part(Division(1001, 1), 0, {"features": features}), None)
    for call, keeps in (((remember, ("x", 1)), True), ((forget, ()), False)):
        _, remembers, _ = unpack_from_worker(worker.call(0, "map", pickle.dumps(call)))
        assert remembers is keeps


def remember(shard, name, value):
    shard.state[name] = value


def forget(shard):
    shard.state.clear()
