"""Pools: keys, ids, inputs and representations."""

import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.pool import ids as ids_module
from labelwise.pool.ids import IdIndex, RowNumbers, encode_keys
from labelwise.pool.pool import Pool


def test_ids_are_row_numbers_unless_given():
    assert Pool(["a", "b"]).ids.tolist() == [0, 1]
    assert Pool(["a", "b"], np.array([7, 3])).take([3, 7, 3]) == ["b", "a", "b"]


def test_arrays_are_taken_as_arrays():
    np.testing.assert_array_equal(Pool(np.eye(3), np.array([5, 6, 7])).take([7]), [[0, 0, 1]])


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_tables_are_taken_as_tables(package):
    library = pytest.importorskip(package)
    columns = {"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}
    table = library.table(columns) if package == "pyarrow" else library.DataFrame(columns)
    found = Pool(table, np.array([5, 6, 7])).take([7, 5])
    assert type(found) is type(table)
    np.testing.assert_array_equal(np.asarray(found), [[3, 6], [1, 4]])


def test_one_id_per_input():
    with pytest.raises(BadInput, match="pool has 3 ids but 2 inputs; give one id per item"):
        Pool(["a", "b"], np.arange(3))


def test_ids_are_unique_whole_numbers():
    with pytest.raises(BadInput, match="id 4 occurs 2 times"):
        Pool(["a", "b", "c"], np.array([4, 1, 4]))


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([0.0, np.nan], "numbers, texts, UUIDs or dates; got nan$"),
        ([0.0, np.inf], r"got inf$"),
        (np.array([None, 1]), r"got None$"),
        (np.array([(1, 2), 1], dtype=object), r"got \(1, 2\)$"),
        (np.array(["2020-01-01", "NaT"], "datetime64[D]"), r"got .*NaT"),
    ],
)
def test_values_that_are_not_keys_are_rejected(ids, told):
    with pytest.raises(BadInput, match=told):
        Pool(["a", "b"], np.asarray(ids))


def test_ids_may_be_as_large_as_they_can_be():
    ids = [2**63 - 1, -(2**63)]
    assert Pool(["a", "b"], np.array(ids)).ids.tolist() == ids
    assert Pool(["a", "b"], np.array([2**63 - 1, 0], np.uint64)).ids.tolist() == [2**63 - 1, 0]


@pytest.mark.parametrize(
    "keys",
    [
        np.array([2**63, 2**64 - 1, 5], np.uint64),
        [2**70, -(2**70), 2**70 + 1],
        [Decimal("0.5"), Decimal("0.25"), Decimal(7)],
    ],
)
def test_hashes_and_decimals_of_databases_are_ids(keys):
    pool = Pool(["a", "b", "c"], keys, features=np.eye(3))
    picks = labelwise.select("k_center", 2, pool=pool)
    assert set(picks.keys) <= set(keys) and len(pool.take(picks.keys)) == 2
    rest = labelwise.select("k_center", 1, pool=pool, labelled=picks.keys)
    assert {*picks.keys, *rest.keys} == set(keys)
    assert encode_keys([Decimal("7.0")])[0].tolist() == [7]
    assert encode_keys([Decimal("0.50")])[0] == encode_keys([Decimal("0.5")])[0]


def test_an_unknown_id_is_an_error():
    with pytest.raises(UnknownName, match="no item of the pool has id 9"):
        Pool(["a", "b"]).take([9])


@pytest.mark.parametrize(
    "keys",
    [
        ["a", "b", "c"],
        [b"a", b"b", b"c"],
        [uuid.UUID(int=number) for number in range(3)],
        [datetime(2024, 5, day, 12, 30) for day in (1, 2, 3)],
        [date(2024, 5, day) for day in (1, 2, 3)],
        np.array(["2024-05-01", "2024-05-02", "2024-05-03"], "datetime64[ns]"),
        ["a", 7, uuid.UUID(int=7)],
        [0.5, 2.0, 3.25],
        np.array([0.5, 7.25, 1e-300], np.float64),
    ],
)
def test_keys_of_other_types_find_their_items(keys):
    pool = Pool(["x", "y", "z"], keys)
    assert pool.ids.dtype == np.int64 and (pool.ids >= 0).all()
    assert pool.take(list(keys)[::-1]) == ["z", "y", "x"]
    assert list(pool.keys) == list(keys)
    again = Pool(["z", "y", "x"], list(keys)[::-1])
    assert again.ids.tolist() == pool.ids.tolist()[::-1]


def test_integers_stay_as_they_are_among_other_keys():
    ids, keys = encode_keys(["7", 7, np.int64(8)])
    assert ids.tolist()[1:] == [7, 8] and ids[0] not in (7, 8) and keys == ["7", 7, 8]
    assert encode_keys(np.array([5, 6], dtype=object))[1] is None


def test_whole_numbers_have_one_id_whatever_their_type():
    assert encode_keys([2.0, 3.0])[0].tolist() == [2, 3] and encode_keys([2.0, 3.0])[1] is None
    ids, keys = encode_keys([2.0, 0.5, -0.0])
    assert ids[[0, 2]].tolist() == [2, 0] and ids[1] not in (0, 2) and keys == [2.0, 0.5, -0.0]
    assert encode_keys(np.array([0.5, 0.5], np.float32))[0].tolist() == [ids[1]] * 2


def test_a_selection_from_fractions_names_them(tmp_path):
    keys = [0.25, 1.5, 3.0, 7.75]
    features = np.array([[0.0], [1.4], [1.0], [3.0]])
    picks = labelwise.select("k_center", 2, features=features, ids=keys, labelled=[0.25])
    assert picks.keys == [7.75, 1.5]
    with pytest.raises(UnknownName, match=r"no item of the pool has id 0\.3; check"):
        labelwise.select("k_center", 1, features=features, ids=keys, labelled=[0.3])
    for kind in ("csv", "jsonl", "parquet"):
        picks.save(tmp_path / f"picks.{kind}")
    assert (tmp_path / "picks.csv").read_text().splitlines()[1].startswith("7.75,")


def test_the_same_moment_has_one_id_whatever_its_type():
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=2)))
    keys = [moment, elsewhere, np.datetime64("2024-05-01T12:00"), datetime(2024, 5, 1, 12)]
    assert len(set(encode_keys(np.array(keys, dtype=object))[0].tolist())) == 1


def test_ids_of_texts_never_change():
    assert encode_keys(["cat-1.png"])[0].tolist() == [5919904146192877560]


def test_repeated_keys_are_named():
    with pytest.raises(BadInput, match="pool ids must be unique; id 'a' occurs 2 times"):
        Pool(["x", "y", "z"], ["a", "b", "a"])


def test_keys_with_the_same_hash_are_rejected(monkeypatch):
    monkeypatch.setattr(ids_module, "_encode_key", lambda key, what: 5)
    with pytest.raises(BadInput, match="pool ids 'a' and 'b' have the same hash; rename one"):
        Pool(["x", "y"], ["a", "b"])


def test_an_unknown_representation_is_an_error():
    with pytest.raises(UnknownName, match="no representation is called 'feature'; choose from f"):
        Pool(feature=np.eye(3))


@given(
    ids=st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=20),
    others=st.lists(st.integers(-5, 5), max_size=5),
)
def test_an_index_finds_what_a_dictionary_finds(ids, others):
    index, places = IdIndex(np.array(ids, np.int64)), {item: row for row, item in enumerate(ids)}
    assert index.find_positions(ids[::-1]).tolist() == list(range(len(ids)))[::-1]
    assert index.contains(others).tolist() == [item in places for item in others]


@given(st.integers(-3, 3), st.sets(st.integers(0, 9)))
def test_an_index_of_row_numbers_is_that_of_their_array(first, gaps):
    without = np.array(sorted(first + gap for gap in gaps), dtype=np.int64)
    numbers = RowNumbers(first, first + 10, without)
    index, listed = IdIndex(numbers), IdIndex(numbers.to_array())
    wanted = np.arange(-6, 16)
    assert index.contains(wanted).tolist() == listed.contains(wanted).tolist()
    assert index.find_positions(listed.ids).tolist() == list(range(len(listed.ids)))
