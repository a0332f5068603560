"""Rows in many files are the rows of one array."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.files import sort_naturally
from labelwise.pool.blocks import open_shards
from labelwise.pool.representations import open_source, open_sources
from labelwise.pool.sources.source import JoinedSource
from tests.conftest import make_features
from tests.pool.test_shards import write_parquet


@pytest.fixture
def features():
    return make_features(700, 5).astype(np.float32)


def save_parts(folder, features, cuts, kind=".npy"):
    folder.mkdir()
    for number, part in enumerate(np.split(features, cuts)):
        path = folder / f"pool-{number:03d}{kind}"
        if kind == ".npy":
            np.save(path, part)
        else:
            write_parquet(path, part, group=40)
    return folder


@pytest.mark.parametrize("kind", [".npy", ".parquet"])
@pytest.mark.parametrize("given_as", ["folder", "pattern", "text"])
def test_a_folder_or_a_pattern_is_one_array(kind, given_as, features, tmp_path):
    folder = save_parts(tmp_path / "pool", features, [100, 101, 450], kind)
    (folder / ".pool-000.npy.part").write_text("half a file")
    (folder / "README.txt").write_text("not rows")
    value = {"folder": folder, "pattern": folder / f"pool-*{kind}", "text": str(folder)}[given_as]
    shards, _ = open_shards(open_sources({"features": value}), block_bytes=1)
    rows = np.concatenate(shards.map(lambda shard: np.array(shard.rows["features"])))
    np.testing.assert_array_equal(rows, features)
    ids = np.array([699, 0, 100, 99, 450, 101, 3])
    np.testing.assert_array_equal(shards.rows(ids)["features"], features[ids])


@pytest.mark.parametrize("kind", [".npy", ".parquet"])
def test_parts_give_the_same_picks_as_one_file(kind, features, tmp_path):
    folder = save_parts(tmp_path / "pool", features, [250, 600], kind)
    expected = labelwise.select("lewis", 20, features=features, labelled=[7, 650], seed=1)
    found = labelwise.select("lewis", 20, features=folder, labelled=[7, 650], seed=1)
    assert found.ids.tolist() == expected.ids.tolist()


def test_a_list_of_folders_is_one_per_model(features, tmp_path):
    folders = [
        save_parts(tmp_path / name, rows, [300])
        for name, rows in {"a": features, "b": features[:, :2].copy()}.items()
    ]
    expected = labelwise.select("lewis", 20, features=[features, features[:, :2]])
    found = labelwise.select("lewis", 20, features=folders)
    assert found.ids.tolist() == expected.ids.tolist()


@given(
    cuts=st.lists(st.integers(0, 30), max_size=5).map(sorted),
    first=st.integers(0, 30),
    length=st.integers(0, 30),
    positions=st.lists(st.integers(0, 29), max_size=12),
)
def test_any_range_and_any_rows_of_parts(cuts, first, length, positions):
    whole = np.arange(60.0).reshape(30, 2)
    pieces = [part for part in np.split(whole, cuts)]
    paths = [Path(f"{number}.npy") for number in range(len(pieces))]
    parts = JoinedSource([open_source(piece, "features") for piece in pieces], paths, "features")
    assert parts.shape == (30, 2) and parts.bytes_per_row == 16
    np.testing.assert_array_equal(parts.read(first, first + length), whole[first : first + length])
    np.testing.assert_array_equal(parts.take(positions), whole[np.array(positions, dtype=int)])


def test_parts_that_do_not_fit_together_are_refused(features, tmp_path):
    folder = save_parts(tmp_path / "pool", features, [300])
    np.save(folder / "pool-002.npy", np.ones((4, 3), dtype=np.float32))
    with pytest.raises(
        BadInput, match=r"rows of pool-002.npy have shape \(3,\) but those of pool-000"
    ):
        open_source(folder, "features")
    np.save(folder / "pool-002.npy", np.ones((4, 5)))
    words = "pool-002.npy holds numbers of type float64 but pool-000.npy float32; save them"
    with pytest.raises(BadInput, match=words):
        open_source(folder, "features")


def test_tables_with_other_columns_are_refused(features, tmp_path):
    folder = save_parts(tmp_path / "pool", features, [300], ".parquet")
    write_parquet(folder / "pool-002.parquet", features[:, :3])
    with pytest.raises(BadInput, match=r"pool-002.parquet has the columns c0, c1, c2 but pool-000"):
        open_source(folder, "features")


@pytest.mark.parametrize("kind", [".npy", ".parquet"])
@pytest.mark.parametrize("pattern", ["", "part-*"])
def test_parts_are_in_the_order_of_their_numbers(kind, pattern, tmp_path):
    rows = np.arange(24.0).reshape(12, 2)
    for number in range(12):
        path = tmp_path / f"part-{number}{kind}"
        if kind == ".npy":
            np.save(path, rows[number : number + 1])
        else:
            write_parquet(path, rows[number : number + 1])
    source = open_source(tmp_path / pattern, "features")
    np.testing.assert_array_equal(source.read(0, 12), rows)


def test_names_are_compared_folder_by_folder():
    names = ["b-1/a", "b/10", "b/9", "b/09", "b/x", "b", "a10/1", "a9/2"]
    expected = ["a9/2", "a10/1", "b", "b/09", "b/9", "b/10", "b/x", "b-1/a"]
    assert sort_naturally(names) == expected
    assert sort_naturally(map(Path, reversed(names))) == [Path(name) for name in expected]


@pytest.mark.parametrize("above", [True, False])
def test_rows_in_a_sub_folder_are_not_left_out_silently(above, features, tmp_path):
    inner = tmp_path / "pool" / "a" / "b"
    inner.mkdir(parents=True)
    np.save(inner / "p1.npy", features[:300])
    if above:
        np.save(tmp_path / "pool" / "p0.npy", features[300:])
    words = r"folder .*pool has rows in a subfolder too \(a/b/p1.npy\); give the pattern '(.*)' for"
    with pytest.raises(BadInput, match=words) as caught:
        open_source(tmp_path / "pool", "features")
    pattern = re.search(words, str(caught.value))[1]
    source = open_source(pattern, "features")
    np.testing.assert_array_equal(source.read(0, 700), features[: 700 if above else 300])


@pytest.mark.parametrize("name", [".cache/p1.npy", "_delta_log/p1.npy", "pictures/p1.png"])
def test_folders_without_rows_of_the_pool_do_not_matter(name, features, tmp_path):
    np.save(tmp_path / "p0.npy", features)
    other = tmp_path / name
    other.parent.mkdir()
    other.write_bytes(b"something else")
    assert open_source(tmp_path, "features").shape == features.shape


def test_a_text_called_npy_is_not_taken_for_a_pickle(tmp_path):
    (tmp_path / "rows.npy").write_text("1,2,3")
    words = (
        r"rows.npy is not a readable .npy file \(it does not start like .*; write it with np.save\)"
    )
    with pytest.raises(BadInput, match=words):
        open_source(tmp_path / "rows.npy", "features")


def test_a_folder_of_both_kinds_is_refused(features, tmp_path):
    folder = save_parts(tmp_path / "pool", features, [300])
    write_parquet(folder / "more.parquet", features)
    with pytest.raises(BadInput, match=r"names \.npy and \.parquet files; give files of one"):
        open_source(folder, "features")


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("empty", BadInput, "folder .*empty holds no .parquet and no .npy file"),
        ("pool-*.npy", UnknownName, r"no file matches .*pool-\*.npy"),
        ("*.txt", BadInput, "cannot read 'notes.txt'"),
    ],
)
def test_what_stands_for_no_rows_is_refused(name, error, words, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no rows")
    with pytest.raises(error, match=words):
        open_source(tmp_path / name, "features")


def test_a_file_whose_name_looks_like_a_pattern_is_itself(features, tmp_path):
    np.save(tmp_path / "pool[1].npy", features)
    assert open_source(tmp_path / "pool[1].npy", "features").shape == features.shape


def test_a_broken_table_is_refused(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"not a table")
    with pytest.raises(BadInput, match=r"is not a readable \.parquet file"):
        open_source(tmp_path / "rows.parquet", "features")


def test_ids_of_tables_are_read_from_all_of_them(features, tmp_path):
    folder = tmp_path / "pool"
    folder.mkdir()
    write_parquet(folder / "a.parquet", features[:300], ids=np.arange(300) + 1000)
    write_parquet(folder / "b.parquet", features[300:], ids=np.arange(400) + 5000)
    picks = labelwise.select("k_center", 30, features=folder).ids
    plain = labelwise.select("k_center", 30, features=features).ids
    assert picks.tolist() == np.where(plain < 300, plain + 1000, plain + 4700).tolist()


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_any_view_of_a_mapped_array_gives_its_rows_again_and_again(mode, features, tmp_path):
    np.save(tmp_path / "rows.npy", features)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode=mode)
    if mode == "c":
        mapped[5] = features[5] = 7.0  # in memory alone
    for view in (np.s_[:], np.s_[100:], np.s_[::2], np.s_[:, 1:3], np.s_[::-1]):
        source, expected = open_source(mapped[view], "features"), features[view]
        blocks = [source.read(first, first + 100) for first in [0, 100, 0, 200, 300, 0]]
        for first, block in zip([0, 100, 0, 200, 300, 0], blocks, strict=True):
            np.testing.assert_array_equal(block, expected[first : first + 100])
        np.testing.assert_array_equal(source.take([300, 5]), expected[[300, 5]])
