"""Rows that are no numbers, not finite or no probabilities are refused, and the item is named."""

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput
from labelwise.pool.blocks import open_shards
from labelwise.pool.representations import open_source, open_sources
from tests.conftest import make_features, make_probabilities

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


def gathered(value):
    shards, _ = open_shards(open_sources({"features": value}), block_bytes=4000)
    return np.concatenate(shards.map(lambda shard: np.array(shard.rows["features"])))


@pytest.fixture
def features():
    return make_features(330, 7).astype(np.float32)


def test_a_nan_is_found_in_any_block_and_named(features):
    features[271, 3] = np.nan
    with pytest.raises(BadInput, match="features of item 271 is NaN or infinite"):
        gathered(features)


def test_large_numbers_are_not_mistaken_for_infinite():
    rows = np.full((3, 2), 1e30, dtype=np.float32)  # squares overflow, the numbers do not
    assert gathered(rows).tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("row", "words"), [([0.5, 0.4, 0.3], "sum 1.2"), ([1.2, -0.2, 0.0], "smallest -0.2")]
)
def test_what_is_no_probability_is_refused(row, words):
    probabilities = make_probabilities(20, 3)
    probabilities[13] = row
    with pytest.raises(BadInput, match=f"probabilities of item 13 are not probabilities.*{words}"):
        labelwise.select("margin", 2, probabilities=probabilities)


def test_half_precision_and_whole_numbers_are_computed_in_float():
    for dtype in (np.float16, np.int8, np.int64):
        rows = np.arange(20).reshape(10, 2).astype(dtype)
        rows[9] += 1
        assert gathered(rows).dtype in (np.float32, np.float64)
        assert labelwise.select("k_center", 2, features=rows).ids.tolist() == [9, 0]


@pytest.mark.parametrize(
    ("convert", "words"),
    [
        (lambda rows: np.ma.masked_less(rows, 0), "features is a masked array; give features.fil"),
        (lambda rows: rows + 1j, "features must hold real numbers; got complex128"),
        (lambda rows: rows.astype(object), "features must hold numbers; got values of type object"),
        (lambda rows: rows.astype("U8"), "features must hold numbers; got values of type <U8"),
        (lambda rows: rows.astype("M8[s]"), "features must hold numbers; got values of type dat"),
    ],
)
def test_rows_of_anything_but_real_numbers_are_refused(convert, words):
    with pytest.raises(BadInput, match=words):
        labelwise.select("kmeans", 2, features=convert(make_features(10, 3)))


@pytest.mark.parametrize("strange", [1j * np.ones((4, 2)), np.full((4, 2), "cat")])
def test_a_file_of_anything_but_real_numbers_is_refused(strange, tmp_path):
    np.save(tmp_path / "rows.npy", strange)
    with pytest.raises(BadInput, match=r"features\[1\] must hold"):
        labelwise.select("lewis", 1, features=[np.ones((4, 2)), tmp_path / "rows.npy"])


def test_lists_of_words_in_a_file_are_refused(tmp_path):
    parquet.write_table(pyarrow.table({"words": [["a", "b"], ["c", "d"]]}), tmp_path / "p.parquet")
    with pytest.raises(BadInput, match=r"column 'words' of p.parquet is not numeric \(list<"):
        labelwise.select("kmeans", 1, features=tmp_path / "p.parquet")


def test_complex_rows_are_refused_where_no_one_looked_before():
    sources = {"features": open_source(1j * np.ones((4, 2)), "features")}
    with pytest.raises(BadInput, match="features must hold real numbers; got complex128"):
        open_shards(sources)[0].map(lambda shard: shard.rows["features"])


def test_complex_tensors_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(BadInput, match=r"must hold real numbers; got torch.complex64"):
        labelwise.select("kmeans", 1, features=torch.ones((4, 2), dtype=torch.complex64))


def test_numbers_beyond_float64_keep_its_precision():
    features = make_features(20, 3)
    rows = gathered(features.astype(np.longdouble))
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows, features)
