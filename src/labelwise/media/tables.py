"""Read tables and arrays from user files: .csv, .tsv, .jsonl, .parquet, .npz, .npy.

Nothing is repaired silently: missing numbers, rows of different lengths and duplicate column names
are errors that name the place. CSV files may use commas, semicolons or tabs and may start with a
byte order mark. A column of lists of numbers (.jsonl, .parquet) is an embedding.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput
from labelwise.files import ARRAY_ERRORS
from labelwise.pool.sources.parquet import import_pyarrow

Columns = Mapping[str, Sequence[Any]]  # Values by column name
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")  # Suffixes that `read_table` supports
ARRAYS = (".npz", ".npy")  # Suffixes that `load_arrays` supports
INPUTS = ("inputs", "features", "x", "X", "images", "data")
"""Recognized names of the input array in a .npz file."""

MOST_CATEGORIES = 50  # Largest number of different values of a column of categories
_BLANKS = {"na", "n/a", "nan", "null", "none", "?"}


def read_table(path: Path) -> Columns:
    r"""Read all columns of a .csv, .tsv, .jsonl or .parquet file.

    Values are strings in .csv and .tsv files. Other formats keep their types; missing values
    are None.
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    readers = {".csv": _read_csv_table, ".tsv": _read_csv_table, ".jsonl": _read_jsonl_table}
    reader = {**readers, ".parquet": _read_parquet_table}.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path} is not a supported table; give one of {', '.join(TABLES)}")
    table = reader(path)
    if not table or not next(iter(table.values())):
        raise BadInput(f"{path} has no rows")
    return table


def convert_table(items: Any) -> Columns | None:
    """Columns of a table in memory; None for anything else.

    A table is one of pandas, polars, pyarrow or Hugging Face, a mapping of columns, or a list of
    mappings. Missing values become None.
    """
    if isinstance(items, list | tuple) and items and isinstance(items[0], Mapping):
        if not all(isinstance(row, Mapping) for row in items):
            raise BadInput("the list has mappings and other values; give one mapping per item")
        return {name: [row.get(name) for row in items] for row in items for name in row}
    if hasattr(items, "notna") and hasattr(items, "columns"):  # pandas
        known = items.astype(object).where(items.notna(), None)
        return {str(name): _to_list(known.iloc[:, n]) for n, name in enumerate(items.columns)}
    if hasattr(items, "to_pydict"):  # pyarrow
        items = items.to_pydict()
    elif hasattr(items, "get_column"):  # polars
        items = items.to_dict(as_series=False)
    elif hasattr(items, "column_names") and hasattr(items, "to_dict"):  # Hugging Face
        items = items.to_dict()
    if not isinstance(items, Mapping):
        return None
    return {str(name): _to_list(values) for name, values in items.items()}


def _to_list(values: Any) -> list[Any]:
    """The values as Python values; arrays within them become lists."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [value.tolist() if hasattr(value, "tolist") else value for value in listed]


def load_arrays(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """Map the array of a .npy file, or read the arrays of a .npz file by name."""
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    try:
        held = np.load(path, allow_pickle=False, mmap_mode="r")
        if isinstance(held, np.ndarray):
            return held
        with held:
            return {name: held[name] for name in held.files}
    except ARRAY_ERRORS as error:
        raise BadInput(f"{path} cannot be read as arrays ({error})") from error


def find_input_array(path: Path, arrays: Mapping[str, NDArray[Any]], *, but: str = "") -> str:
    """Find the input array of a .npz file: one of `INPUTS`, or the only array."""
    others = [name for name in arrays if name != but]
    chosen = next((name for name in INPUTS if name in others), None)
    if chosen is None and len(others) == 1:
        chosen = others[0]
    if chosen is None:
        raise BadInput(f"{path} has no array called inputs or features; it has {', '.join(arrays)}")
    return chosen


def is_missing(value: Any) -> bool:
    """Whether a value is missing: None, NaN or blank text."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    return isinstance(value, float) and math.isnan(value)


def parse_number(value: Any) -> float | None:
    """Parse a number; None if the value is not one."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def are_texts(values: Sequence[Any]) -> bool:
    """Whether the column is not empty and all values are strings."""
    return len(values) > 0 and all(isinstance(value, str) for value in values)


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether all values of a column that are not missing are numbers or lists of numbers."""
    known = [value for value in values if not is_blank(value)]
    lists = all(isinstance(value, list) for value in known)
    return bool(known) and (lists or all(parse_number(value) is not None for value in known))


def convert_numeric_column(
    path: Path | str, name: str, values: Sequence[Any]
) -> NDArray[np.float64]:
    """Convert a column to ``(n, 1)`` numbers, or a column of lists of d to ``(n, d)``."""
    missing = sum(map(is_blank, values))
    if missing:
        raise BadInput(
            f"column {name!r} of {path} has no number in {missing} of {len(values)} rows; fill "
            f"them in, or leave the column out (--without {name})"
        )
    rows = [value if isinstance(value, list) else [value] for value in values]
    try:
        found = np.array(rows, dtype=np.float64)
    except (ValueError, TypeError):
        found = np.empty(0)
    if found.ndim != 2:
        raise BadInput(f"column {name!r} of {path} holds values that are not numbers")
    return found


def is_blank(value: Any) -> bool:
    """Whether a value of a numeric column is missing."""
    return is_missing(value) or (isinstance(value, str) and value.strip().lower() in _BLANKS)


def is_categorical(values: Sequence[Any]) -> bool:
    """Whether a column repeats a few short values, each of them twice or more on average."""
    known = [value for value in values if not is_blank(value)]
    if not known or any(isinstance(value, list | dict) for value in known):
        return False
    different = {to_category(value) for value in known}
    return 1 < len(different) <= min(MOST_CATEGORIES, len(known) // 2)


def to_category(value: Any) -> str:
    """A value of a column of categories as text."""
    return value.strip() if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class ChosenColumns:
    """The columns that make up an item."""

    text: tuple[str, ...]  # text columns, to be joined; empty for numeric items
    numeric: tuple[str, ...]
    notes: tuple[str, ...]
    categorical: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of numbers and of categories."""
        return self.numeric + self.categorical


def choose_columns(
    path: Path,
    table: Columns,
    *,
    text: Sequence[str] = (),
    columns: Sequence[str] = (),
    without: Sequence[str] = (),
) -> ChosenColumns:
    """Choose the columns that make up an item.

    The named columns; otherwise all numeric columns, and with them those that repeat a few values
    as categories; otherwise the only text column.
    """
    there = ", ".join(table)
    if text and columns:
        raise BadInput("give columns of texts or of numbers, not both")
    for name in (*text, *columns, *without):
        if name not in table:
            raise BadInput(f"{path} has no column {name!r}; it has {there}")
    others = [name for name in table if name not in without]
    numeric = [name for name in columns or others if is_numeric(table[name])]
    categorical = [name for name in columns if name not in numeric]
    for name in categorical:
        if not is_categorical(table[name]):
            raise BadInput(
                f"column {name!r} of {path} holds values that are not numbers, and too many "
                "different ones for categories; leave it out"
            )
    if numeric and not columns:
        left = [name for name in others if name not in numeric]
        categorical = [name for name in left if is_categorical(table[name])]
    if not text and not numeric and not categorical:
        texts = [name for name in others if are_texts([v for v in table[name] if v is not None])]
        if len(texts) != 1:
            raise BadInput(f"{path} has no numeric columns; name texts with --text, of {there}")
        text = texts
    if text:
        return ChosenColumns(tuple(text), (), (f"texts: {abbreviate_names(text)}",))
    left = [name for name in others if name not in (*numeric, *categorical)]
    notes = [f"numbers: {abbreviate_names(numeric)}"] if numeric else []
    notes += [f"left out, not numeric: {abbreviate_names(left)}"] if left and not columns else []
    return ChosenColumns((), tuple(numeric), tuple(notes), tuple(categorical))


def join_texts(table: Columns, names: Sequence[str]) -> list[str]:
    """Join the text columns of every row with spaces; spaces within a text stay."""
    parts = [["" if value is None else str(value) for value in table[name]] for name in names]
    return [" ".join(text for text in row if text) for row in zip(*parts, strict=True)]


def read_keys(path: Path, table: Columns, column: str) -> list[int | str]:
    """The values of a column as unique ids: whole numbers, or texts."""
    if column not in table:
        raise BadInput(f"{path} has no column {column!r}; it has {', '.join(table)}")
    keys: list[int | str] = []
    first: dict[str, int] = {}
    for row, value in enumerate(table[column], 1):
        if is_missing(value):
            raise BadInput(f"row {row} of {path} has no id in column {column!r}; fill it in")
        whole = isinstance(value, int) and not isinstance(value, bool)
        keys.append(value if whole else str(value).strip())
        other = first.setdefault(str(keys[-1]), row)
        if other != row:
            raise BadInput(
                f"rows {other} and {row} of {path} have the id {keys[-1]!r}; ids must be unique"
            )
    return keys


def iterate_rows(table: Columns) -> Iterator[dict[str, Any]]:
    """Iterate over rows as mappings from column name to value."""
    for row in zip(*table.values(), strict=True):
        yield dict(zip(table, row, strict=True))


def abbreviate_names(names: Sequence[str]) -> str:
    """List column names, abbreviated if there are many."""
    if len(names) <= 12:
        return ", ".join(names)
    return f"{', '.join(names[:6])}, ... and {names[-1]} ({len(names)} columns)"


def _read_csv_table(path: Path) -> Columns:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file, _allow_long_fields():
            head = file.readline()
            file.seek(0)
            by = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
            rows = list(csv.reader(file, delimiter=by))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is not a UTF-8 table ({error})") from error
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise BadInput(f"{path} has no rows below a line of column names")
    names = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise BadInput(
                f"row {number} of {path} has {len(row)} fields but there are {len(names)} columns"
            )
    if len(set(names)) < len(names):
        raise BadInput(f"{path} has two columns of the same name: {', '.join(names)}")
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(names)}


@contextmanager
def _allow_long_fields() -> Iterator[None]:
    """Raise the csv module's field limit (128 KiB), so that fields can hold documents."""
    usual = csv.field_size_limit(1 << 30)
    try:
        yield
    finally:
        csv.field_size_limit(usual)


def _read_jsonl_table(path: Path) -> Columns:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"line {number} of {path} is not JSON ({error})") from None
        if not isinstance(row, dict):
            raise BadInput(f"line {number} of {path} is not a JSON object")
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _read_parquet_table(path: Path) -> Columns:
    pa, pq = import_pyarrow("reading .parquet")
    try:
        names = pq.read_schema(path).names
        if len(set(names)) < len(names):
            raise BadInput(f"{path} has two columns of the same name: {', '.join(names)}")
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise BadInput(f"{path} is not a Parquet file ({error})") from error
    return {name: table.column(name).to_pylist() for name in table.column_names}
