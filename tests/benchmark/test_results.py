"""The results file: what is written is read back, and what a crash leaves is handled."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.benchmark.results import (
    RoundResult,
    append_result,
    format_result_line,
    parse_result_line,
    read_results,
)
from labelwise.errors import BadInput, LabelwiseWarning

FULL = RoundResult(
    "sparse-table2-mnist",
    "small",
    "mnist",
    "lenet5",
    "lewis",
    3,
    2,
    120,
    "accuracy",
    0.912,
    values=(0.912, 0.9),
    options={"p": 1.5},
    reduced="fewer epochs",
    validation_labels=500,
    seconds={"train": 1.2, "represent": 0.3, "select": 0.01},
    peak_megabytes=812.0,
    imbalance=1.4,
    effective_size=1.8,
    picks=(7, 5),
    weights=(30.0, 10.5),
    device="cpu",
    versions={"labelwise": "0.1.0"},
    started="2025-01-02T03:04:05",
    code="0.1.0+0123456789ab",
)


def make_round(number, **changes):
    values = {"labels": 20 + 10 * number, "metric": "accuracy", "value": 0.5 + 0.1 * number}
    values |= changes
    return RoundResult("toy", "small", "digits", "mlp", "random", 0, number, **values)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "results.jsonl"


def test_every_field_comes_back_as_it_was_written(path):
    rounds = [FULL, make_round(0), make_round(1)]
    for entry in rounds:
        append_result(path, entry)
    assert read_results(path) == rounds
    assert [type(entry.picks) for entry in read_results([path])] == [tuple, tuple, tuple]


def test_a_line_holds_the_documented_names_and_the_format(path):
    append_result(path, FULL)
    line = json.loads(path.read_text())
    assert line["format"] == 1
    assert line["picks"] == [7, 5] and line["weights"] == [30.0, 10.5]
    assert line["seconds"]["select"] == 0.01 and line["higher_is_better"] is True
    assert len(line) == 27


@given(st.floats(), st.one_of(st.none(), st.floats()))
def test_numbers_that_json_lacks_survive(value, imbalance):
    entry = make_round(0, value=value, imbalance=imbalance)
    line = format_result_line(entry)
    assert not re.search(r"[:,] (NaN|-?Infinity)", line)
    assert repr(parse_result_line(line)) == repr(entry)


def test_numbers_of_numpy_are_written_as_numbers():
    entry = make_round(0, value=np.float32(0.5), picks=np.array([4, 2]), options={"k": np.int64(3)})
    assert parse_result_line(format_result_line(entry)) == make_round(
        0, value=0.5, picks=(4, 2), options={"k": 3}
    )


def test_an_unfinished_last_line_is_left_out_and_said(path):
    append_result(path, make_round(0))
    with path.open("a") as file:
        file.write(format_result_line(make_round(1))[:40])
    with pytest.warns(LabelwiseWarning, match="line 2 of .* is unfinished"):
        assert read_results(path) == [make_round(0)]


def test_appending_cuts_an_unfinished_line_off_and_says_so(path):
    append_result(path, make_round(0, picks=tuple(range(3000)), weights=None))
    before = path.read_bytes()
    path.write_bytes(before + format_result_line(make_round(1, picks=tuple(range(5000)))).encode())
    with pytest.warns(LabelwiseWarning, match="unfinished line; they were cut off"):
        append_result(path, make_round(1))
    assert path.read_bytes() == before + format_result_line(make_round(1)).encode() + b"\n"


def test_a_file_with_nothing_but_an_unfinished_line_starts_anew(path):
    path.parent.mkdir()
    path.write_text('{"format": 1, "exp')
    with pytest.warns(LabelwiseWarning, match="18 bytes"):
        append_result(path, make_round(0))
    assert read_results(path) == [make_round(0)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda line: line[:30], "is not JSON"),
        (lambda line: "[1, 2]", "is not a JSON object"),
        (lambda line: "", "is not JSON"),
        (lambda line: line.replace('"format": 1', '"format": 2'), "has format 2"),
        (lambda line: line.replace('"labels": 30', '"labels": "30"'), "'30' as labels"),
        (lambda line: line.replace('"labels": 30', '"labels": -3'), "labels must be 0 or more"),
        (lambda line: line.replace('"value": 0.6', '"value": null'), "None as value"),
        (lambda line: line.replace('"value"', '"valeu"'), "unknown field 'valeu'"),
        (lambda line: line.replace('"value": 0.6, ', ""), "missing 1 required .* 'value'"),
        (lambda line: line.replace('"seconds": {}', '"seconds": [1]'), "as seconds"),
        (lambda line: line.replace('"weights": null', '"weights": [1.0]'), "0 picks but 1 weights"),
    ],
)
def test_other_corruption_is_refused_with_its_line_number(path, change, words):
    lines = [format_result_line(make_round(number)) for number in range(3)]
    path.parent.mkdir()
    path.write_text("\n".join([lines[0], change(lines[1]), lines[2], ""]))
    with pytest.raises(BadInput, match=f"line 2 of .*results.jsonl .*{words}"):
        read_results(path)


def test_bytes_that_are_no_text_are_refused(path):
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(BadInput, match=r"line 1 of .* repair or remove it"):
        read_results(path)


def test_a_missing_file_is_named(path):
    with pytest.raises(BadInput, match=r"there is no results file .*results\.jsonl"):
        read_results(path)


def test_a_round_that_is_there_twice_is_taken_once(path):
    append_result(path, make_round(0, value=math.nan))
    append_result(path, make_round(1))
    with pytest.warns(LabelwiseWarning, match="2 rounds occur more than once"):
        assert len(read_results([path, path])) == 2


def test_a_round_with_two_values_is_refused_with_both_places(path, tmp_path):
    append_result(path, make_round(0))
    other = tmp_path / "other.jsonl"
    append_result(other, make_round(0, value=0.7))
    with pytest.raises(BadInput, match=r"0\.5 in line 1 of .* and 0\.7 in line 1 of .*other"):
        read_results([path, other])


def test_runs_differ_by_options_but_not_by_their_order():
    first = make_round(0, options={"a": 1, "b": 2}).key
    assert first == make_round(3, options={"b": 2, "a": 1}).key
    assert first != make_round(0, options={"a": 1}).key


def test_a_line_from_before_the_code_was_noted_is_read():
    line = json.loads(format_result_line(FULL))
    del line["code"]
    old = parse_result_line(json.dumps(line))
    assert old.code == "" and old.key == FULL.key
    assert FULL.code == parse_result_line(format_result_line(FULL)).code == "0.1.0+0123456789ab"
