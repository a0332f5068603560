"""Files behind URLs against the same files on disk."""

import io
import pickle

import numpy as np
import pytest

from labelwise.errors import BadInput, MissingDependency, UnknownName
from labelwise.pool.parts import Division, cut_part, prepare_representations
from labelwise.pool.representations import open_source
from labelwise.pool.sources.remote_files import open_remote
from tests.conftest import make_features
from tests.pool.object_store import object_store
from tests.pool.test_shards import write_parquet

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def store():
    """Files in memory, as far from a disk as one can test."""
    files = fsspec.filesystem("memory")
    files.mkdirs("/store", exist_ok=True)
    yield files
    files.rm("/store", recursive=True)


def put_npy(files, name, array):
    with files.open(f"/store/{name}", "wb") as file:
        np.save(file, array)
    return f"memory://store/{name}"


def test_a_remote_array_gives_the_same_rows(store):
    rows = make_features(500, 7).astype(np.float32)
    source = open_remote(put_npy(store, "rows.npy", rows), "features")
    assert source.shape == (500, 7) and source.bytes_per_row == 28 and not source.in_memory
    assert source.precision == np.finfo(np.float32).eps
    np.testing.assert_array_equal(source.read(100, 160), rows[100:160])
    np.testing.assert_array_equal(source.read(490, 900), rows[490:])
    assert source.read(20, 20).shape == (0, 7)
    positions = np.array([400, 3, 3, 0, 499, 401])
    np.testing.assert_array_equal(source.take(positions), rows[positions])
    assert source.take([]).shape == (0, 7)


def test_far_rows_are_fetched_apart_and_near_rows_together(store, monkeypatch):
    rows = np.arange(60_000.0).reshape(-1, 2)
    source = open_remote(put_npy(store, "rows.npy", rows), "features")
    fetched = []
    usual = store.cat_ranges
    monkeypatch.setattr(
        store, "cat_ranges", lambda p, s, e: fetched.append((s, e)) or usual(p, s, e)
    )
    positions = np.array([29_000, 5, 9])
    np.testing.assert_array_equal(source.take(positions), rows[positions])
    assert fetched == [([128 + 80, 128 + 464_000], [128 + 160, 128 + 464_016])]


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture
def bucket():
    """Files behind the protocol of S3, which pyarrow speaks where fsspec has no package for it."""
    pytest.importorskip("pyarrow")
    with object_store() as server:
        yield server


def test_ranges_of_an_object_are_fetched_and_no_more(bucket):
    rows = make_features(3000, 8).astype(np.float32)
    bucket.objects["pool/deep/rows.npy"] = npy(rows)
    source = open_remote(bucket.url("pool/deep/rows.npy"), "features")
    assert source.shape == (3000, 8)
    bucket.fetched.clear()
    np.testing.assert_array_equal(source.read(100, 260), rows[100:260])
    assert bucket.fetched == {"pool/deep/rows.npy": 160 * 32}
    np.testing.assert_array_equal(source.take([2999, 0, 7]), rows[[2999, 0, 7]])
    assert bucket.fetched["pool/deep/rows.npy"] == (160 + 1 + 8) * 32


@pytest.mark.parametrize("path", ["pool/rows", "pool/rows/", "pool/rows/part-*.npy"])
def test_a_folder_or_a_pattern_of_objects_is_one_array(bucket, path):
    rows = make_features(70, 3)
    for number, part in enumerate([rows[:20], rows[20:21], rows[21:]]):
        bucket.objects[f"pool/rows/part-{number}.npy"] = npy(part)
    source = open_remote(bucket.url(path), "features")
    assert source.shape == (70, 3)
    np.testing.assert_array_equal(source.read(15, 60), rows[15:60])
    np.testing.assert_array_equal(source.take([69, 20, 3]), rows[[69, 20, 3]])


def test_row_groups_of_an_object_are_fetched(bucket, tmp_path):
    rows = make_features(90, 3)
    write_parquet(tmp_path / "rows.parquet", rows, ids=np.arange(90) * 5, group=15)
    bucket.objects["pool/rows.parquet"] = (tmp_path / "rows.parquet").read_bytes()
    source = open_remote(bucket.url("pool/rows.parquet"), "features")
    np.testing.assert_array_equal(source.read(10, 38), rows[10:38])
    np.testing.assert_array_equal(source.ids, np.arange(90) * 5)


def test_an_object_that_is_not_there_is_named_without_the_secret(bucket):
    bucket.objects["pool/rows.npy"] = b""
    with pytest.raises(UnknownName, match=r"there is no file s3://pool/none\.npy\?.*") as caught:
        open_remote(bucket.url("pool/none.npy"), "features")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("folder", [False, True])
def test_remote_parquet_gives_the_same_rows(store, folder, tmp_path):
    pytest.importorskip("pyarrow")
    rows, ids = make_features(90, 3), np.arange(90) * 5
    for name, part in {"a": slice(0, 40), "b": slice(40, 90)}.items():
        write_parquet(tmp_path / f"{name}.parquet", rows[part], ids=ids[part], group=15)
        store.put(str(tmp_path / f"{name}.parquet"), f"/store/{name}.parquet")
    first = slice(None) if folder else slice(0, 40)
    source = open_remote("memory://store" + ("" if folder else "/a.parquet"), "features")
    assert source.shape == rows[first].shape
    np.testing.assert_array_equal(source.ids, ids[first])
    np.testing.assert_array_equal(source.read(10, 38), rows[10:38])
    np.testing.assert_array_equal(source.take([39, 1]), rows[[39, 1]])


def test_a_part_reads_its_rows_through_a_url(store):
    rows = make_features(1000, 4)
    sent = prepare_representations({"features": put_npy(store, "rows.npy", rows)})
    part = pickle.loads(pickle.dumps(cut_part(Division(1000, 4), 2, sent)))
    shards, _ = part.open()
    np.testing.assert_array_equal(shards.rows(np.array([700, 500]))["features"], rows[[700, 500]])
    assert shards.ids.tolist() == list(range(500, 750))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.asfortranarray(np.ones((3, 2))), "is stored column by column"),
        (np.array([None, 1]), "holds objects"),
    ],
)
def test_arrays_that_cannot_be_read_by_rows_are_refused(store, array, message):
    with store.open("/store/rows.npy", "wb") as file:
        np.save(file, array, allow_pickle=True)
    with pytest.raises(BadInput, match=f"features: memory://store/rows.npy {message}"):
        open_remote("memory://store/rows.npy", "features")


def test_a_header_with_a_negative_shape_is_refused(store, tmp_path):
    np.save(tmp_path / "rows.npy", make_features(60, 4))
    wrong = (tmp_path / "rows.npy").read_bytes().replace(b"(60, 4)", b"(-6,-4)")
    (tmp_path / "rows.npy").write_bytes(wrong)
    with store.open("/store/rows.npy", "wb") as file:
        file.write(wrong)
    for value in (tmp_path / "rows.npy", "memory://store/rows.npy"):
        with pytest.raises(BadInput, match="is not a readable"):
            open_source(value, "features")


def test_what_is_not_there_or_no_array_is_named(store):
    with pytest.raises(UnknownName, match=r"features: there is no file memory://store/none\.npy"):
        open_remote("memory://store/none.npy", "features")
    store.pipe("/store/text.npy", b"no array")
    with pytest.raises(BadInput, match=r"text\.npy is not a readable \.npy file"):
        open_remote("memory://store/text.npy", "features")
    store.pipe("/store/text.txt", b"no table")
    with pytest.raises(BadInput, match=r"cannot be read; give \.npy files or \.parquet files"):
        open_remote("memory://store/text.txt", "features")
    store.mkdirs("/store/empty")
    with pytest.raises(UnknownName, match=r"or no \.npy or \.parquet file in it"):
        open_remote("memory://store/empty", "features")


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    content = npy(make_features(50, 3))
    (tmp_path / "rows.npy").write_bytes(content[:-10])
    words = (
        rf"rows.npy is cut off: {len(content) - 10} bytes of rows.npy are there but {len(content)}"
    )
    with pytest.raises(BadInput, match=words):
        open_remote(f"file://{tmp_path}/rows.npy", "features")


def test_a_file_that_becomes_shorter_is_refused(store):
    url = put_npy(store, "rows.npy", make_features(50, 3))
    source = open_remote(url, "features")
    store.pipe("/store/rows.npy", store.cat("/store/rows.npy")[:-10])
    for read in (lambda: source.read(40, 50), lambda: source.take([49, 0])):
        with pytest.raises(
            BadInput, match=r"rows.npy is cut off: 1318 bytes of rows.npy are there"
        ):
            read()


@pytest.mark.parametrize("path", ["", "/part-*"])
def test_remote_parts_are_in_the_order_of_their_numbers(store, path):
    for number in range(11):
        put_npy(store, f"part-{number}.npy", np.full((1, 2), number))
    rows = open_remote(f"memory://store{path}", "features").read(0, 11)
    assert rows[:, 0].tolist() == list(range(11))


def test_rows_in_a_remote_sub_folder_are_not_left_out_silently(store):
    put_npy(store, "p0.npy", np.ones((3, 2)))
    put_npy(store, "a/p1.npy", np.zeros((2, 2)))
    words = r"memory://store has rows in a subfolder too \(a/p1.npy\); give the pattern 'mem"
    with pytest.raises(BadInput, match=words):
        open_remote("memory://store/", "features")
    assert open_remote("memory://store/**/*.npy", "features").shape == (5, 2)


def test_a_remote_table_is_checked_as_one_on_disk(store, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name, rows in {"ragged": [[1.0, 2.0], [3.0]], "whole": [[1.0, 2.0], [3.0, 4.0]]}.items():
        parquet.write_table(pyarrow.table({"f": rows}), tmp_path / f"{name}.parquet")
        store.put(str(tmp_path / f"{name}.parquet"), f"/store/{name}.parquet")
    with pytest.raises(BadInput, match=r"row 1 of ragged.parquet has a list of 1 in column 'f'"):
        open_remote("memory://store/ragged.parquet", "features").read(0, 2)
    whole = open_remote("memory://store/whole.parquet", "features")
    assert whole.read(0, 2).tolist() == [[1.0, 2.0], [3.0, 4.0]] and whole.held_bytes > 0
    store.pipe("/store/text.parquet", b"no table")
    with pytest.raises(BadInput, match=r"features: mem.*text.parquet is not a readable .parquet"):
        open_remote("memory://store/text.parquet", "features")


def test_an_unknown_kind_of_url_is_refused():
    with pytest.raises((BadInput, MissingDependency), match=r"nowhere://a/b\.npy"):
        open_remote("nowhere://a/b.npy", "features")
