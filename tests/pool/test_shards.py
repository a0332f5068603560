"""Files and arrays as blocks of rows: the same rows, read and checked once."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.pool.blocks import open_shards
from labelwise.pool.representations import find_tensor_device, open_source, open_sources
from labelwise.selection import run
from tests.conftest import make_features, make_probabilities

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


def write_parquet(path, array, *, lists=False, ids=None, group=50):
    if lists:
        flat = pyarrow.array(array.ravel())
        columns = {"vector": pyarrow.FixedSizeListArray.from_arrays(flat, array.shape[1])}
    else:
        columns = {f"c{j}": array[:, j] for j in range(array.shape[1])}
    if ids is not None:
        columns = {"id": ids, **columns}
    parquet.write_table(pyarrow.table(columns), path, row_group_size=group)


@pytest.fixture
def features():
    return make_features(330, 7).astype(np.float32)


def gathered(value, block_bytes=4000):
    shards, _ = open_shards(open_sources({"features": value}), block_bytes=block_bytes)
    return shards, np.concatenate(shards.map(lambda shard: np.array(shard.rows["features"])))


@pytest.mark.parametrize("kind", ["array", "npy", "columns", "lists", "folder"])
def test_every_kind_of_file_gives_the_same_rows(kind, features, tmp_path):
    path = tmp_path / ("rows.npy" if kind == "npy" else "rows.parquet")
    if kind == "npy":
        np.save(path, features)
    elif kind == "folder":
        path = tmp_path / "rows"
        path.mkdir()
        write_parquet(path / "a.parquet", features[:120])
        write_parquet(path / "b.parquet", features[120:], group=33)
    else:
        write_parquet(path, features, lists=kind == "lists")
    shards, rows = gathered(features if kind == "array" else path)
    assert len(shards.map(len)) > 1
    np.testing.assert_array_equal(rows, features)
    ids = np.array([329, 0, 49, 50, 51, 200, 7])
    np.testing.assert_array_equal(shards.rows(ids)["features"], features[ids])


def test_files_and_arrays_give_the_same_picks(features, tmp_path):
    np.save(tmp_path / "rows.npy", features)
    write_parquet(tmp_path / "rows.parquet", features)
    expected = labelwise.select("k_center", 30, features=features, labelled=[5, 300]).ids.tolist()
    for name in ("rows.npy", "rows.parquet"):
        picks = labelwise.select("k_center", 30, features=tmp_path / name, labelled=[5, 300])
        assert picks.ids.tolist() == expected


def test_a_parquet_column_called_id_gives_the_ids(features, tmp_path):
    write_parquet(tmp_path / "rows.parquet", features, ids=np.arange(330) + 1000)
    picks = labelwise.select(
        "k_center", 3, features=str(tmp_path / "rows.parquet"), labelled=[1004]
    )
    expected = labelwise.select("k_center", 3, features=features, labelled=[4]).ids + 1000
    assert picks.ids.tolist() == expected.tolist()


def test_labelled_rows_are_kept_apart_in_every_block(features, tmp_path):
    np.save(tmp_path / "rows.npy", features)
    labelled = [0, 1, 2, 150, 329]
    for value in (features, tmp_path / "rows.npy"):
        sources = open_sources({"features": value})
        shards, context = open_shards(sources, labelled=labelled, block_bytes=4000)
        assert context is not None
        np.testing.assert_array_equal(context["features"], features[labelled])
        rows = np.concatenate(shards.map(lambda shard: shard.rows["features"]))
        np.testing.assert_array_equal(rows, np.delete(features, labelled, axis=0))
        some = np.array([328, 3, 151])
        np.testing.assert_array_equal(shards.rows(some)["features"], features[some])


def test_representations_of_different_lengths_are_an_error():
    with pytest.raises(BadInput, match="features has 5 rows but probabilities has 4"):
        labelwise.select("badge", 1, features=np.ones((5, 2)), probabilities=np.full((4, 2), 0.5))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.ones(4), r"features must have shape \(n, d\); got \(4,\)"),
        (np.ones((4, 0)), "features has no columns"),
        ("nowhere.npy", "there is no file nowhere.npy"),
        (3, "features must be an array, a tensor, a table, or a path .* got int"),
        ([], "features is an empty list"),
    ],
)
def test_what_is_no_pool_is_refused(value, words):
    with pytest.raises((BadInput, UnknownName), match=words):
        labelwise.select("lewis", 1, features=value)


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / "rows.npy").write_bytes(b"not an array")
    with pytest.raises(BadInput, match=r"rows.npy is not a readable .npy file"):
        labelwise.select("k_center", 1, features=tmp_path / "rows.npy")
    (tmp_path / "rows.txt").write_text("1 2 3")
    with pytest.raises(BadInput, match=r"cannot read 'rows.txt'; give a .npy or .parquet file"):
        labelwise.select("k_center", 1, features=tmp_path / "rows.txt")


@pytest.mark.parametrize("shape", [(330, 7), (330, 3, 2)])
def test_a_file_stored_column_by_column_gives_its_rows(shape, tmp_path):
    whole = make_features(330, int(np.prod(shape[1:]))).reshape(shape)
    np.save(tmp_path / "rows.npy", np.asfortranarray(whole))
    source = open_source(tmp_path / "rows.npy", "features")
    for first, last in [(0, 330), (17, 60), (300, 400), (5, 5)]:
        np.testing.assert_array_equal(source.read(first, last), whole[first:last])
    positions = np.array([329, 0, 7, 7])
    np.testing.assert_array_equal(source.take(positions), whole[positions])


def test_tensors_on_two_devices_are_refused():
    torch = pytest.importorskip("torch")
    features = torch.ones((4, 2))
    there = torch.empty((4, 2), device="meta")
    with pytest.raises(BadInput, match="features is on cpu but probabilities on meta; bring them"):
        find_tensor_device(open_sources({"features": features, "probabilities": there}))


def test_where_tensors_are_is_told_only_if_other_rows_must_go_there():
    torch = pytest.importorskip("torch")
    array, tensor = np.ones((4, 2)), torch.ones((4, 2))
    for values, place in [
        ({"features": array, "logits": array}, None),
        ({"features": tensor, "logits": tensor}, None),
        ({"features": [array, tensor]}, "cpu"),
        ({"features": array, "logits": tensor}, "cpu"),
    ]:
        assert find_tensor_device(open_sources(values)) == place


@pytest.mark.parametrize("given", ["path", "numpy.load(path, mmap_mode='r')"])
def test_what_was_read_from_a_file_does_not_stay_in_memory(given, tmp_path):
    """A pass over a file of 160 MB may not leave more than some blocks of it resident."""
    np.save(tmp_path / "rows.npy", np.ones((400_000, 100), dtype=np.float32))
    script = (
        "import re, numpy, labelwise\n"
        "def resident():\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "labelwise.select('k_center', 1, features=numpy.eye(3))\n"
        "before = resident()\n"
        f"path = {str(tmp_path / 'rows.npy')!r}\n"
        f"labelwise.select('random', 5, features={given})\n"
        "print(resident() - before)\n"
    )
    if not Path("/proc/self/status").exists():
        pytest.skip("resident memory is read from /proc")
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(found.stdout) < 110_000  # kB


def test_pickled_objects_are_refused(tmp_path):
    np.save(tmp_path / "rows.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match="is not a readable"):
        labelwise.select("k_center", 1, features=tmp_path / "rows.npy")


def test_a_text_column_is_refused(tmp_path):
    parquet.write_table(pyarrow.table({"a": [1.0], "b": ["x"]}), tmp_path / "rows.parquet")
    with pytest.raises(BadInput, match=r"column 'b' of rows.parquet is not numeric"):
        labelwise.select("k_center", 1, features=tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    ("labelled", "words"),
    [
        ([3, 3], "labelled names item 3 2 times"),
        ([0.5], "no item of the pool has id 0.5"),
        ([True, False], r"labelled is a mask of shape \(2,\) but there are 5 items"),
        ([77], "no item of the pool has id 77"),
    ],
)
def test_labelled_ids_are_checked(labelled, words):
    with pytest.raises((BadInput, UnknownName), match=words):
        labelwise.select("k_center", 1, features=np.eye(5), labelled=labelled)


@pytest.mark.parametrize("name", ["k_center", "badge", "kmeans", "lewis", "margin"])
def test_a_block_of_which_everything_is_labelled_is_left_out(name):
    features, probabilities = make_features(600, 4), make_probabilities(600, 3)
    sources = open_sources({"features": features, "probabilities": probabilities})
    shards, labelled = open_shards(sources, labelled=range(256), block_bytes=1)
    assert shards.map(len) == [256, 88] and labelled is not None
    found = run.select(labelwise.strategies()[name], shards, 5, labelled=labelled)
    assert found.ids.min() >= 256


def test_files_that_list_their_items_in_another_order_are_refused(tmp_path):
    features, probabilities = make_features(60, 3), make_probabilities(60, 3)
    ids, order = np.arange(100, 160), np.r_[0:20, 40:60, 20:40]
    write_parquet(tmp_path / "f.parquet", features, ids=ids)
    write_parquet(tmp_path / "p.parquet", probabilities, ids=ids)
    write_parquet(tmp_path / "q.parquet", probabilities[order], ids=ids[order])
    given = {"features": tmp_path / "f.parquet", "seed": 1}
    there = labelwise.select("badge", 5, **given, probabilities=tmp_path / "p.parquet")
    rows = {"features": features, "probabilities": probabilities}
    assert there.ids.tolist() == labelwise.select("badge", 5, **rows, ids=ids, seed=1).ids.tolist()
    told = r"^features and probabilities do not list .* in row 20 is 120 and 140; sort both by id$"
    for more in ({}, {"ids": ids}):
        with pytest.raises(BadInput, match=told):
            labelwise.select("badge", 5, **given, probabilities=tmp_path / "q.parquet", **more)
