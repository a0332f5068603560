"""Ids, options and files as users write them; inputs are present and never overwritten."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.cli import run
from labelwise.cli.files import (
    check_input_files,
    collect_given_files,
    parse_strategy_options,
    read_ids_file,
    read_picks_file,
)
from labelwise.errors import BadInput, UnknownName
from labelwise.pool.ids import encode_keys
from labelwise.selection.result import Selection
from labelwise.strategy import Choice, PassStrategy


def choose(
    shards,
    labelled,
    budget,
    seed,
    *,
    power: float = 1,
    rounds: int = 5,
    exact: bool = False,
    mode: str = "fast",
    limit: float | None = None,
    either: int | str = 1,
    table: Mapping[str, int] | None = None,
):
    return Choice([])


STRATEGY = PassStrategy(name="mine", needs=(), choose=choose, good_for="tests", reference="none")


def test_values_take_the_declared_type():
    assert parse_strategy_options(STRATEGY, {"either": "auto"}) == {"either": "auto"}
    assert parse_strategy_options(STRATEGY, {"either": "3"}) == {"either": 3}
    texts = {"power": "2", "rounds": "7", "exact": "yes", "mode": "1"}
    options = parse_strategy_options(STRATEGY, texts)
    assert options == {"power": 2.0, "rounds": 7, "exact": True, "mode": "1"}
    assert [type(value) for value in options.values()] == [float, int, bool, str]


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3.0), ("0.5", 0.5), ("1e-3", 1e-3), ("none", None), ("None", None)]
)
def test_an_option_that_may_be_none_is_read_as_its_declared_type(text, value):
    assert parse_strategy_options(STRATEGY, {"limit": text}) == {"limit": value}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("power", "two", "option power of mine takes a number; got 'two'"),
        ("rounds", "1.5", "option rounds of mine takes a whole number; got '1.5'"),
        ("exact", "perhaps", "option exact of mine takes true or false; got 'perhaps'"),
        ("limit", "auto", "option limit of mine takes a number, or none; got 'auto'"),
        ("rounds", "none", "option rounds of mine takes a whole number; got 'none'"),
        ("table", "a", "option table of mine cannot be given as text; use Python"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name, text, message):
    with pytest.raises(BadInput, match=message):
        parse_strategy_options(STRATEGY, {name: text})


def test_an_unknown_option_is_refused_with_the_right_ones():
    with pytest.raises(UnknownName, match="no option 'powre'; choose from power, rounds, exact"):
        parse_strategy_options(STRATEGY, {"powre": "1"})


def test_ids_come_one_per_line_with_blank_lines_left_out(tmp_path: Path):
    path = tmp_path / "ids.txt"
    path.write_text("5\n\n  7 \n-3\n")
    assert read_ids_file(path) == [5, 7, -3]


def test_ids_that_are_not_numbers_are_texts(tmp_path: Path):
    path = tmp_path / "names.txt"
    path.write_text("cats/1.png\n 12\n")
    assert read_ids_file(path) == ["cats/1.png", "12"]
    Selection(encode_keys(["b", "a"])[0], keys=["b", "a"]).save(tmp_path / "picks.csv")
    assert read_ids_file(tmp_path / "picks.csv") == ["b", "a"]
    picks = read_picks_file(tmp_path / "picks.csv")
    assert picks.keys == ["b", "a"] and picks.ids.tolist() == encode_keys(["b", "a"])[0].tolist()


HOURS = [datetime(2024, 10, 27, hour) for hour in range(12)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    "keys",
    [
        HOURS,
        [hour.replace(tzinfo=UTC) for hour in HOURS],
        [hour.date() + timedelta(days=n) for n, hour in enumerate(HOURS)],
        [n / 4 for n in range(12)],
        [Decimal(n) / 4 for n in range(12)],
        [b"k%d" % n for n in range(12)],
        [f"{n:04}" for n in range(12)],
        [str(n + 100) for n in range(12)],
        [2**63 + n for n in range(12)],
        list(range(12)),
    ],
    ids=["time", "zone", "date", "float", "decimal", "bytes", "padded", "digits", "uint64", "int"],
)
def test_picks_by_keys_of_any_type_are_read_again(tmp_path, monkeypatch, capsys, keys, suffix):
    monkeypatch.chdir(tmp_path)
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    columns = {"id": keys, "x": list(np.cos(range(12))), "y": list(np.sin(range(12)))}
    if isinstance(keys[0], int):
        columns["id"] = pyarrow.array(keys, "uint64" if keys[0] else "int64")
    pyarrow.parquet.write_table(pyarrow.table(columns), "f.parquet")
    select = ["select", "f.parquet", "-s", "k_center"]
    picks = f"p.{suffix}"
    assert run([*select, "-b", "4", "--out", picks]) == 0
    again = [*select, "-b", "8", "--labelled", picks, "--out", "rest.csv"]
    for command in (again, ["explain", picks, "f.parquet"]):
        assert run(command) == 0, capsys.readouterr().err
    assert run(["plan", "f.parquet", "--labelled", picks, "--error", "0.5"]) == 0
    every = [*map(str, read_ids_file(Path(picks))), *map(str, read_ids_file(Path("rest.csv")))]
    assert len(set(every)) == 12


def test_a_file_with_a_single_number_is_not_a_pool(tmp_path):
    np.save(tmp_path / "f.npy", 3.0)
    with pytest.raises(BadInput, match="it holds a single number"):
        labelwise.select("k_center", 1, features=tmp_path / "f.npy")


def test_ids_come_from_the_column_id_of_a_csv_file(tmp_path: Path):
    path = tmp_path / "picks.csv"
    path.write_text("weight,id\n1.5,8\n2.5,9\n")
    assert read_ids_file(path) == [8, 9]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ids.txt", "1\n2.5\n", "id 2 in .*ids.txt must be a whole number; got '2.5'"),
        ("ids.csv", "id\n1\nx\n", "id 2 in .*ids.csv must be a whole number; got 'x'"),
        ("ids.csv", "id,weight\nx,2\n,3\n", "id 2 in .*ids.csv must be a text; got ''"),
        ("ids.csv", "item\n1\n", "has no column called id"),
    ],
)
def test_a_file_with_other_things_is_refused_with_its_line(tmp_path: Path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=message):
        read_ids_file(tmp_path / name)


@pytest.mark.parametrize("name", ["ids.txt", "ids.csv"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, name):
    (tmp_path / name).write_bytes(b"\x93NUMPY\x01\x00\xff\xfe")
    with pytest.raises(BadInput, match=r"not (UTF-8 text|a UTF-8 table)"):
        read_ids_file(tmp_path / name)


@pytest.mark.parametrize("name", ["picks.csv", "picks.jsonl", "picks.parquet"])
@pytest.mark.parametrize("weights", [None, np.array([1.5, 2.5])])
def test_ids_come_from_the_picks_that_were_saved(tmp_path: Path, name, weights):
    pytest.importorskip("pyarrow")
    Selection(np.array([8, -9]), weights).save(tmp_path / name)
    assert read_ids_file(tmp_path / name) == [8, -9]


@pytest.mark.parametrize(("name", "text"), [("a.csv", "id,weight\n8,1\n"), ("a.txt", "8\n")])
def test_a_mark_of_utf_8_is_no_part_of_the_text(tmp_path: Path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert read_ids_file(tmp_path / name) == [8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": 3}\n\n{"id": 2.5}\n', "id 2 in .* must be a whole number; got '2.5'"),
        ('{"id": true}\n', "must be a text; got 'True'"),
        ('{"weight": 2}\n', "picks.jsonl has no column called id; it has weight"),
        ("3\n", "line 1 of .* is not a JSON object"),
        ('{"id": 3', "line 1 of .* is not JSON"),
    ],
)
def test_a_line_that_is_no_pick_is_refused(tmp_path: Path, text, message):
    (tmp_path / "picks.jsonl").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_ids_file(tmp_path / "picks.jsonl")


def test_a_table_without_ids_is_refused(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"item": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match=r"a.parquet has no column called id; it has item"):
        read_ids_file(tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"id": [1, None]}), tmp_path / "b.parquet")
    with pytest.raises(BadInput, match=r"id 2 in .*b.parquet must be a whole number; got 'None'"):
        read_ids_file(tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_text("id\n1\n")
    with pytest.raises(BadInput, match=r"c.parquet is not a Parquet file"):
        read_ids_file(tmp_path / "c.parquet")


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="there is no file"):
        read_ids_file(tmp_path / "no.txt")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("parts").mkdir()
    for name in ("f.npy", "parts/0.npy", "parts/1.npy"):
        np.save(name, np.eye(3))


def test_a_file_without_a_name_is_refused():
    with pytest.raises(BadInput, match="duals: '' is not a file; give its name"):
        collect_given_files(features=["f.npy"], duals=["f.npy", ""])


@pytest.mark.parametrize("missing", ["no.npy", "no-*.npy", "file:///no/such/file.npy"])
def test_a_missing_file_is_refused_whether_needed_or_not(missing):
    with pytest.raises(UnknownName, match=r"duals: (there is no file|no file matches)"):
        check_input_files(None, {"features": "f.npy", "duals": ["f.npy", missing]})


@pytest.mark.parametrize(
    ("out", "read"),
    [
        ("f.npy", {"features": "f.npy"}),
        ("parts/../f.npy", {"features": ["parts", "f.npy"]}),
        ("parts/1.npy", {"features": "parts"}),
        ("parts/0.npy", {"features": "parts/*.npy"}),
    ],
)
def test_a_file_that_is_read_is_not_written_to(out, read):
    with pytest.raises(BadInput, match=r"--out .*npy would overwrite .*npy, which is read"):
        check_input_files(Path(out), read)


def test_files_beside_those_that_are_read_may_be_written():
    np.save("old.npy", np.eye(3))
    given = {"features": ["f.npy", "parts"], "duals": "s3://bucket/old.npy"}
    for out in ("new.csv", "old.npy", "parts/new.csv"):
        check_input_files(Path(out), given, None, Path("missing.txt"))
