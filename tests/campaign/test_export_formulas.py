"""Texts like formulas: exact for programs, harmless for spreadsheets, and never changed unasked."""

import csv
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.campaign import export
from labelwise.campaign.export import escape_formula, is_formula
from labelwise.errors import BadInput
from labelwise.media.tables import read_table

FORMULAS = [
    "=1+1",
    "+49 30 1234",
    "-- no",
    "@SUM(A1)",
    '=HYPERLINK("http://x?"&A1,"y")',
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    "＝1+1",
    "-1_000",
    "-²",
    "-inf",
]
HARMLESS = ["", "owl", "a=b", "1+1", "-2.5", "+3", "-1e3", " =1+1", "'=1+1", "[1]", "e-mail"]


def slow_is_formula(text):
    """From the definition, by the first letter, and what a spreadsheet knows as a number."""
    begins = any(text[:1] == letter for letter in "=+-@\t\r\n＝＋－＠")
    try:
        number = math.isfinite(float(text)) and text.isascii() and text.strip() == text
    except ValueError:
        number = False
    return begins and not (number and "_" not in text)


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_like_a_formula_gets_an_apostrophe(text):
    assert is_formula(text)
    assert escape_formula(text) == "'" + text


@pytest.mark.parametrize("value", [*HARMLESS, -2, -2.5, None, True])
def test_numbers_and_all_other_values_stay_as_they_are(value):
    assert not is_formula(value)
    assert escape_formula(value) is value


@given(st.text(alphabet="=+-@\t\r\n＝1e._n ", max_size=6))
def test_agrees_with_the_definition_and_is_harmless_after_one_step(text):
    assert is_formula(text) == slow_is_formula(text)
    assert not is_formula(escape_formula(text))


def rows_of(texts):
    return [{"id": -place, "item": text, "label": -1.5} for place, text in enumerate(texts)]


def test_by_default_our_reader_pandas_and_csv_read_back_every_text_exactly(tmp_path):
    path, texts = tmp_path / "out.csv", [*FORMULAS, *HARMLESS]
    count = export.write_table(path, ("id", "item", "label"), rows_of(texts))
    assert count == len(FORMULAS)
    with path.open(newline="", encoding="utf-8") as file:
        assert [row["item"] for row in csv.DictReader(file)] == texts
    assert pd.read_csv(path, dtype=str, keep_default_na=False)["item"].tolist() == texts
    assert read_table(path)["item"] == texts


def test_for_spreadsheets_no_cell_is_left_that_would_be_computed(tmp_path):
    path, texts = tmp_path / "out.csv", [*FORMULAS, *HARMLESS]
    rows = rows_of(texts)
    assert export.write_table(path, ("id", "item", "label"), rows, spreadsheet=True) == 0
    found = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert found["item"].tolist() == ["'" + text for text in FORMULAS] + HARMLESS
    assert found["id"].tolist() == [str(row["id"]) for row in rows]
    assert set(found["label"]) == {"-1.5"}


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_other_formats_hold_text_as_text_and_take_no_apostrophes(tmp_path, ending):
    path = tmp_path / f"out.{ending}"
    assert export.write_table(path, ("id", "item"), rows_of(FORMULAS)) == 0
    assert list(read_table(path)["item"]) == FORMULAS
    with pytest.raises(BadInput, match=r"--spreadsheet is for \.csv files; 'out\."):
        export.write_table(path, ("id", "item"), rows_of(FORMULAS), spreadsheet=True)
