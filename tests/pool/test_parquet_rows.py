"""Parquet files against the arrays they were written from, and what they must not hold."""

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labelwise
from labelwise.errors import BadInput
from labelwise.pool.representations import open_source, open_sources
from labelwise.pool.sources import parquet as parquet_rows
from tests.conftest import make_features, make_probabilities

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def no_small_pools():
    """Read all pools as those that are too large to be kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_rows, "KEPT_WHOLE", 0)
        yield


def lists(rows, kind=None):
    return pyarrow.array(rows, type=kind or pyarrow.list_(pyarrow.float32()))


def write(path, columns, group=None):
    parquet.write_table(pyarrow.table(columns), path, row_group_size=group)
    return path


def plain(count=40, width=4):
    return make_features(count, width).astype(np.float32)


def odd_rows(case):
    """Rows of four numbers, but for two."""
    rows = plain().tolist()
    if case == "other lengths that add up":
        rows[6], rows[7] = rows[6][:3], [*rows[7], 1.0]
    elif case == "no list":
        rows[6] = None
    elif case == "no list and a double one":
        rows[6], rows[7] = None, rows[7] * 2
    elif case == "no number":
        rows[6][1] = None
    elif case == "an empty list before":
        rows[0] = []
    return rows


@pytest.mark.parametrize("group", [None, 5])
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("other lengths that add up", "row 6 of rows.parquet has a list of 3 .*others have 4"),
        ("no list", "row 6 of rows.parquet has no list in column 'f'; fill it in"),
        ("no list and a double one", "row 6 of rows.parquet has no list in column 'f'"),
        ("no number", "row 6 of rows.parquet has no number in column 'f'"),
        ("an empty list before", "row 0 of rows.parquet has a list of 0 .*others have 4"),
    ],
)
def test_lists_that_would_shift_the_rows_behind_them_are_refused(case, words, group, tmp_path):
    path = write(tmp_path / "rows.parquet", {"f": lists(odd_rows(case))}, group)
    with pytest.raises(BadInput, match=words):
        labelwise.select("k_center", 2, features=path)


def test_lists_of_a_fixed_size_may_not_be_missing_either(tmp_path):
    fixed = pyarrow.list_(pyarrow.float32(), 4)
    path = write(tmp_path / "rows.parquet", {"f": lists(odd_rows("no list"), fixed)}, 3)
    with pytest.raises(BadInput, match=r"row 6 of rows.parquet has no list in column 'f'"):
        labelwise.select("k_center", 2, features=path)


def test_rows_are_numbered_through_all_files(tmp_path):
    folder = tmp_path / "pool"
    folder.mkdir()
    write(folder / "a.parquet", {"f": lists(plain().tolist())}, 7)
    write(folder / "b.parquet", {"f": lists(odd_rows("no list"))}, 7)
    with pytest.raises(BadInput, match="row 46 of pool has no list in column 'f'"):
        labelwise.select("k_center", 2, features=folder)


def test_lists_of_another_length_in_another_group_or_file_are_refused(tmp_path):
    rows = plain().tolist()
    rows[30:] = [row[:2] for row in rows[30:]]
    whole = write(tmp_path / "rows.parquet", {"f": lists(rows)}, 10)
    with pytest.raises(BadInput, match=r"row 30 of rows.parquet has a list of 2 .* have 4"):
        labelwise.select("k_center", 2, features=whole)
    folder = tmp_path / "pool"
    folder.mkdir()
    write(folder / "a.parquet", {"f": lists(rows[:30])})
    write(folder / "b.parquet", {"f": lists(rows[30:])})
    with pytest.raises(BadInput, match=r"row 30 of pool has a list of 2 .* others have 4"):
        labelwise.select("k_center", 2, features=folder)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (pyarrow.int64(), pyarrow.float64(), "b.parquet is of type double but that of a.parquet"),
        (pyarrow.float32(), pyarrow.float64(), "'c' of b.parquet is of type double"),
        (pyarrow.uint8(), pyarrow.int8(), "'c' of b.parquet is of type int8"),
        (pyarrow.list_(pyarrow.int8()), pyarrow.list_(pyarrow.int16()), "type list<.*: int16>"),
        (pyarrow.list_(pyarrow.int8(), 1), pyarrow.list_(pyarrow.int8(), 2), r"int8>\[2\]"),
    ],
)
def test_files_of_other_types_are_refused(one, other, words, tmp_path):
    for name, kind in {"a": one, "b": other}.items():
        row = [1] * max(getattr(kind, "list_size", 1), 1) if kind.num_fields else 1
        write(tmp_path / f"{name}.parquet", {"c": pyarrow.array([row, row], type=kind)})
    with pytest.raises(BadInput, match=words):
        open_source(tmp_path, "features")


def test_a_missing_number_is_refused_in_labelled_rows_too(tmp_path):
    column = pyarrow.array([None if item == 70 else item for item in range(100)])
    path = write(tmp_path / "rows.parquet", {"a": column, "b": np.arange(100)}, 50)
    with pytest.raises(BadInput, match=r"row 70 of rows.parquet has no number in column 'a'"):
        labelwise.select("k_center", 2, features=path, labelled=[70])


def test_the_index_of_a_pandas_table_is_no_feature(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = plain()
    table = pandas.DataFrame(rows, columns=list("abcd"), index=1000 * np.arange(40)[::-1])
    table.to_parquet(tmp_path / "rows.parquet")
    assert "__index_level_0__" in parquet.read_schema(tmp_path / "rows.parquet").names
    source = open_source(tmp_path / "rows.parquet", "features")
    np.testing.assert_array_equal(source.read(0, 40), rows)


def test_a_pandas_index_called_id_gives_the_ids(tmp_path):
    pandas = pytest.importorskip("pandas")
    index = pandas.Index(np.arange(40) + 500, name="id")
    pandas.DataFrame(plain(), columns=list("abcd"), index=index).to_parquet(tmp_path / "p.parquet")
    source = open_source(tmp_path / "p.parquet", "features")
    assert source.shape == (40, 4) and source.ids.tolist() == list(range(500, 540))


@pytest.mark.parametrize("empty", [pyarrow.list_(pyarrow.float32()), pyarrow.null()])
def test_a_part_without_rows_does_not_matter(empty, tmp_path):
    rows = plain()
    write(tmp_path / "part-0.parquet", {"f": pyarrow.array([], type=empty)})
    write(tmp_path / "part-1.parquet", {"f": lists(rows.tolist())})
    write(tmp_path / "part-2.parquet", {"f": pyarrow.array([], type=empty)})
    source = open_source(tmp_path, "features")
    assert source.shape == (40, 4) and source.read(0, 0).dtype == np.float32
    np.testing.assert_array_equal(source.read(0, 40), rows)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": [1, 2]}, "rows.parquet has no column but id; give one list column, or only"),
        ({"f": [{"x": 1.0}, {"x": 2.0}]}, r"column 'f' of rows.parquet is not numeric \(struct"),
        (
            {"f": [[1.0], [2.0]], "label": [0, 1]},
            "has column 'label' next to the lists of 'f'; give",
        ),
        ({"f": [[1.0], [2.0]], "g": [[1.0], [2.0]]}, "has column 'g' next to the lists of 'f'"),
        ({"a": [1.0, 2.0], "t": ["x", "y"]}, r"column 't' .* is not numeric \(string\); leave it"),
        ({"f": [["x"], ["y"]]}, "column 'f' of rows.parquet is not numeric"),
        ({"id": [None, 1], "a": [1.0, 2.0]}, "row 0 of rows.parquet has no number in column 'id'"),
    ],
)
def test_columns_that_make_no_rows_are_refused(columns, words, tmp_path):
    path = write(tmp_path / "rows.parquet", columns)
    with pytest.raises(BadInput, match=words):
        labelwise.select("k_center", 1, features=path)


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array([1.0]), pyarrow.array([2.0])], ["a", "a"])
    parquet.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(BadInput, match=r"rows.parquet has 2 columns called 'a'; rename them"):
        open_source(tmp_path / "rows.parquet", "features")


def test_a_damaged_page_is_named(tmp_path):
    path = write(tmp_path / "rows.parquet", {"a": np.arange(5000.0)})
    content = bytearray(path.read_bytes())
    content[4:2000] = b"\xff" * 1996
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"^rows.parquet cannot be read \(.*\); write it again$"):
        labelwise.select("k_center", 1, features=path)


def test_one_number_column_is_what_has_one_number_per_item(tmp_path):
    numbers = np.abs(make_features(30, 1)[:, 0])
    path = write(tmp_path / "norms.parquet", {"norm": numbers}, 7)
    source = open_sources({"gradient_norms": path})["gradient_norms"]
    assert source.shape == (30,) and source.bytes_per_row == 8
    np.testing.assert_array_equal(source.read(3, 29), numbers[3:29])
    np.testing.assert_array_equal(source.take([29, 0]), numbers[[29, 0]])
    assert open_source(path, "features").shape == (30, 1)


@pytest.mark.parametrize("group", [None, 7])
def test_lists_of_lists_are_what_several_members_say(group, tmp_path):
    members = np.stack([make_probabilities(30, 3, seed=seed) for seed in (1, 2)], axis=1)
    path = write(tmp_path / "p.parquet", {"p": pyarrow.array(members.tolist())}, group)
    source = open_source(path, "member_probabilities")
    np.testing.assert_array_equal(source.read(0, 30), members)
    np.testing.assert_array_equal(source.take([29, 8]), members[[29, 8]])
    found = labelwise.select("bald", 5, member_probabilities=path)
    expected = labelwise.select("bald", 5, member_probabilities=members)
    assert found.ids.tolist() == expected.ids.tolist()


def test_inner_lists_of_another_length_are_refused(tmp_path):
    members = np.full((10, 2, 2), 0.5).tolist()
    members[3][1] = [0.5, 0.25, 0.25]
    path = write(tmp_path / "p.parquet", {"p": pyarrow.array(members)})
    with pytest.raises(BadInput, match=r"row 3 of p.parquet has a list of 3 .* others have 2"):
        labelwise.select("bald", 1, member_probabilities=path)


@contextmanager
def small_batches(count):
    """Whatever a row takes, so many bytes of them are decoded at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_rows, "BATCH_BYTES", count)
        yield


DTYPES = [np.float16, np.float32, np.float64, np.int8, np.uint16, np.int64, np.bool_]


@given(
    dtype=st.sampled_from(DTYPES),
    form=st.sampled_from(["columns", "lists", "fixed"]),
    group=st.integers(1, 40),
    cut=st.integers(0, 30),
    batch=st.integers(1, 200),
    asked=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30), st.lists(st.integers(0, 29), max_size=5)),
        max_size=6,
    ),
)
def test_any_reads_and_takes_in_any_order(dtype, form, group, cut, batch, asked):
    whole = (make_features(30, 3) * 5).astype(dtype)
    kind = pyarrow.from_numpy_dtype(dtype)
    kind = pyarrow.list_(kind, 3) if form == "fixed" else pyarrow.list_(kind)
    with tempfile.TemporaryDirectory() as folder, small_batches(batch):
        for name, rows in {"a": whole[:cut], "b": whole[cut:]}.items():
            listed = pyarrow.array(list(rows), type=kind)
            columns = {f"c{j}": rows[:, j] for j in range(3)}
            columns = columns if form == "columns" else {"f": listed}
            write(Path(folder) / f"{name}.parquet", columns, group)
        source = open_source(folder, "features")
        assert source.shape == (30, 3) and source.read(0, 0).dtype == dtype
        for first, length, positions in asked:
            found = source.read(first, first + length)
            np.testing.assert_array_equal(found, whole[first : first + length])
            taken = source.take(positions)
            np.testing.assert_array_equal(taken, whole[np.array(positions, dtype=int)])


@pytest.fixture
def decoded(monkeypatch):
    """How many rows pyarrow has decoded so far."""
    counts = [0]
    usual = parquet.ParquetFile.iter_batches

    def counted(self, *arguments, **options):
        for batch in usual(self, *arguments, **options):
            counts[0] += batch.num_rows
            yield batch

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", counted)
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", 160)  # ten rows of 16 bytes
    return counts


def test_what_is_read_in_order_is_decoded_once_whatever_is_taken_meanwhile(decoded, tmp_path):
    rows = plain(1000)
    columns = {f"c{j}": rows[:, j] for j in range(4)}
    source = open_source(write(tmp_path / "rows.parquet", columns), "features")
    assert source.shape == (1000, 4) and decoded == [0]
    for first in range(0, 1000, 37):
        np.testing.assert_array_equal(source.read(first, first + 37), rows[first : first + 37])
    assert decoded == [1000]
    for first in range(0, 1000, 37):
        source.read(first, first + 37)
        np.testing.assert_array_equal(source.take([5]), rows[[5]])
    assert decoded == [2010]


def test_a_row_is_taken_by_going_on_from_the_nearest_place_before_it(decoded, tmp_path):
    rows = plain(1000)
    columns = {f"c{j}": rows[:, j] for j in range(4)}
    source = open_source(write(tmp_path / "rows.parquet", columns, 500), "features")
    costs = []
    for row in (555, 556, 805, 299, 815, 305, 555):
        before = decoded[0]
        np.testing.assert_array_equal(source.take([row]), rows[[row]])
        costs.append(decoded[0] - before)
    assert costs == [60, 0, 250, 300, 10, 10, 60]


def test_a_small_pool_is_decoded_once_for_all_rows_that_are_taken(decoded, monkeypatch, tmp_path):
    rows = plain(1000)
    path = write(tmp_path / "rows.parquet", {"f": lists(rows.tolist())}, 300)
    monkeypatch.setattr(parquet_rows, "KEPT_WHOLE", rows.nbytes)
    source = open_source(path, "features")
    held = source.held_bytes
    source.read(0, 1000)
    before = decoded[0]
    for _ in range(3):
        np.testing.assert_array_equal(source.take([999, 3, 3]), rows[[999, 3, 3]])
        np.testing.assert_array_equal(source.read(290, 310), rows[290:310])
    assert decoded[0] - before == 1000
    monkeypatch.setattr(parquet_rows, "KEPT_WHOLE", rows.nbytes - 1)
    assert held - open_source(path, "features").held_bytes == rows.nbytes


def test_lists_are_measured_by_a_few_rows(decoded, tmp_path):
    path = write(tmp_path / "rows.parquet", {"f": lists(plain(5000).tolist())})
    assert open_source(path, "features").shape == (5000, 4)
    assert decoded == [parquet_rows.PROBED_ROWS]


def test_a_large_row_group_is_not_in_memory(tmp_path):
    """Reading all of 80 MB in one row group, and rows here and there, takes far less than that."""
    flat = pyarrow.array(np.random.default_rng(0).standard_normal(20_000_000, dtype=np.float32))
    offsets = pyarrow.array(np.arange(0, 20_000_001, 100, dtype=np.int32))
    path = write(tmp_path / "p.parquet", {"f": pyarrow.ListArray.from_arrays(offsets, flat)})
    assert parquet.read_metadata(path).num_row_groups == 1
    script = (
        "import re, labelwise, pyarrow.parquet\n"
        "from labelwise.pool.sources import parquet as parquet_rows\n"
        "from labelwise.pool.representations import open_source\n"
        "parquet_rows.KEPT_WHOLE = 0\n"
        "def resident():\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "before = resident()\n"
        f"source = open_source({str(path)!r}, 'features')\n"
        "for first in range(0, 200_000, 1000):\n"
        "    source.read(first, first + 1000)\n"
        "source.take([199_999, 5]), source.take([100_000]), source.take([50_000])\n"
        "print(resident() - before, source.held_bytes)\n"
    )
    if not Path("/proc/self/status").exists():
        pytest.skip("resident memory is read from /proc")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    taken, held = (int(word) for word in done.stdout.split())
    assert taken * 1024 < 1.25 * held < 160e6


def test_what_is_held_grows_with_the_columns_not_with_the_rows(tmp_path):
    rows = plain(20_000, 8)
    held = []
    for count in (10_000, 20_000):
        columns = {f"c{j}": rows[:count, j] for j in range(8)}
        path = write(tmp_path / f"{count}.parquet", columns, 5000)
        held.append(open_source(path, "features").held_bytes)
    assert 0 < held[1] < 1.5 * held[0]
    np.save(tmp_path / "rows.npy", rows)
    assert open_source(tmp_path / "rows.npy", "features").held_bytes == 0


def test_ids_in_a_file_may_be_texts(tmp_path):
    features = make_features(9, 2)
    names = [f"item-{number}" for number in range(9)]
    columns = {"id": names, "x": features[:, 0], "y": features[:, 1]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet", row_group_size=4)
    found = labelwise.select("k_center", 3, features=tmp_path / "rows.parquet", labelled=names[:1])
    expected = labelwise.select("k_center", 3, features=features, ids=names, labelled=names[:1])
    assert found.keys == expected.keys and found.ids.tolist() == expected.ids.tolist()
