"""Tables and arrays in users' files: every form gives the same columns, and what is refused."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput
from labelwise.media.tables import (
    TABLES,
    abbreviate_names,
    choose_columns,
    convert_numeric_column,
    find_input_array,
    is_numeric,
    iterate_rows,
    join_texts,
    load_arrays,
    read_table,
)

ROWS = [{"name": f"plant {n}", "height": n / 4, "note": "a, b\nc"} for n in range(5)]


def write(path, rows):
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="") as file:
            by = "\t" if path.suffix == ".tsv" else ","
            writer = csv.DictWriter(file, rows[0], delimiter=by)
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("ending", TABLES)
def test_every_form_gives_the_same_columns(ending, tmp_path):
    table = read_table(write(tmp_path / f"t{ending}", ROWS))
    assert list(table) == ["name", "height", "note"]
    assert table["name"] == [row["name"] for row in ROWS]
    assert table["note"] == ["a, b\nc"] * 5
    heights = convert_numeric_column(tmp_path, "height", table["height"])
    np.testing.assert_array_equal(heights[:, 0], [row["height"] for row in ROWS])
    assert [row["name"] for row in iterate_rows(table)] == [row["name"] for row in ROWS]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"x,y\n1,2\n3\n", r"row 3 of .* has 1 fields but there are 2 columns"),
        ("a.csv", b"x,x\n1,2\n", "two columns of the same name: x, x"),
        ("a.csv", b"x,y\n", "no rows below a line of column names"),
        ("a.csv", b"x\n\xff\xfe\n", "not a UTF-8 table"),
        ("a.jsonl", b'{"a": 1}\n[2]\n', "line 2 of .* is not a JSON object"),
        ("a.jsonl", b'{"a": 1}\n\n{"a": \n', "line 3 of .* is not JSON"),
        ("a.jsonl", b"\n", "has no rows"),
        ("a.parquet", b"PAR1", "is not a Parquet file"),
        ("a.xlsx", b"", r"not a supported table; give one of \.csv"),
    ],
)
def test_broken_tables_are_refused_with_the_place(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_table(tmp_path / name)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"there is no file .*t\.csv"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(BadInput, match=r"there is no file .*f\.npy"):
        load_arrays(tmp_path / "f.npy")


def test_a_csv_field_may_be_a_whole_book_and_the_limit_is_put_back(tmp_path):
    usual = csv.field_size_limit()
    book = "word " * 60_000
    write(tmp_path / "t.csv", [{"text": book}])
    assert read_table(tmp_path / "t.csv") == {"text": [book]}
    assert csv.field_size_limit() == usual


def test_arrays_are_mapped_and_pickles_refused(tmp_path):
    rows = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "f.npy", rows)
    held = load_arrays(tmp_path / "f.npy")
    assert isinstance(held, np.memmap)
    np.testing.assert_array_equal(held, rows)
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match=r"o\.npy cannot be read as arrays"):
        load_arrays(tmp_path / "o.npy")


def test_the_inputs_of_an_npz_file_are_found_or_asked_for(tmp_path):
    rows, labels = np.ones((2, 3)), np.ones(2)
    assert find_input_array(tmp_path, {"y": labels, "features": rows}) == "features"
    assert find_input_array(tmp_path, {"y": labels, "rows": rows}, but="y") == "rows"
    with pytest.raises(BadInput, match="no array called inputs or features; it has a, b"):
        find_input_array(tmp_path, {"a": rows, "b": rows})


def test_columns_are_chosen_by_what_they_hold(tmp_path):
    table = {"id": ["1", "2"], "text": ["a b", "c"], "size": ["1.5", "NA"]}
    chosen = choose_columns(tmp_path, table)
    assert chosen.numeric == ("id", "size") and not chosen.text
    assert chosen.notes == ("numbers: id, size", "left out, not numeric: text")
    assert choose_columns(tmp_path, table, without=["id", "size"]).text == ("text",)
    assert choose_columns(tmp_path, table, text=["text"]).notes == ("texts: text",)
    for asked, message in [
        ({"text": ["txt"]}, "no column 'txt'; it has id, text, size"),
        ({"text": ["text"], "columns": ["id"]}, "not both"),
    ]:
        with pytest.raises(BadInput, match=message):
            choose_columns(tmp_path, table, **asked)
    with pytest.raises(BadInput, match="no numeric columns; name texts with --text"):
        choose_columns(tmp_path, {"a": ["x"], "b": ["y"]})


def test_a_column_with_gaps_or_words_is_no_column_of_numbers(tmp_path):
    with pytest.raises(BadInput, match=r"'h' .* no number in 2 of 3 rows; .*--without h"):
        convert_numeric_column(tmp_path, "h", ["1", "", "?"])
    with pytest.raises(BadInput, match="values that are not numbers"):
        convert_numeric_column(tmp_path, "h", ["1", "one"])
    with pytest.raises(BadInput, match="values that are not numbers"):
        convert_numeric_column(tmp_path, "h", [[1, 2], [3]])
    np.testing.assert_array_equal(
        convert_numeric_column(tmp_path, "h", [[1, 2], [3, 4]]), [[1, 2], [3, 4]]
    )


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_written_as_texts_come_back_exactly(values):
    texts = [repr(value) for value in values]
    assert is_numeric(texts)
    np.testing.assert_array_equal(convert_numeric_column("t", "x", texts)[:, 0], values)


def test_texts_are_put_together_and_long_lists_of_names_are_cut():
    table = {"title": ["A", None, "C"], "body": ["x", "y", ""]}
    assert join_texts(table, ["title", "body"]) == ["A x", "y", "C"]
    assert join_texts({"text": ["  indented\n"]}, ["text"]) == ["  indented\n"]
    names = [f"c{n}" for n in range(30)]
    assert abbreviate_names(names) == "c0, c1, c2, c3, c4, c5, ... and c29 (30 columns)"
