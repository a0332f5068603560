"""Tables and arrays in users' files, by column: .csv, .tsv, .jsonl, .parquet, .npz, .npy.

Nothing is repaired: a missing number, rows of different lengths and two columns of one name are
refused, with the place. A .csv file may be divided by commas, semicolons or tabs, and may begin
with a byte order mark. A column of lists of numbers (in .jsonl and .parquet) is an embedding.
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

from labelwise.errors import BadInput, MissingDependency

Columns = Mapping[str, Sequence[Any]]
"""The values of every column, by its name."""

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
"""The endings of files that `read_table` reads."""

ARRAYS = (".npz", ".npy")
"""The endings of files that `load_arrays` reads."""

INPUTS = ("inputs", "features", "x", "X", "images", "data")
"""What the inputs may be called in a .npz file."""

_BLANKS = {"na", "n/a", "nan", "null", "none", "?"}


def read_table(path: Path) -> Columns:
    r"""All columns of a .csv, .tsv, .jsonl or .parquet file.

    Values are texts in .csv and .tsv files; elsewhere what the file holds, None where nothing is.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "plants.csv"
        >>> _ = path.write_text("name;height\noak;21.5\nrose;0.8\n")
        >>> read_table(path)
        {'name': ['oak', 'rose'], 'height': ['21.5', '0.8']}
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    readers = dict(zip(TABLES, (_csv, _csv, _jsonl, _parquet), strict=True))
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path} is no table of a known kind; give one of {', '.join(TABLES)}")
    table = reader(path)
    if not table or not next(iter(table.values())):
        raise BadInput(f"{path} has no rows")
    return table


def load_arrays(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array of a .npy file, mapped and not read, or those of a .npz file by name.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "f.npz"
        >>> np.savez(path, features=np.ones((2, 3)))
        >>> {name: array.shape for name, array in load_arrays(path).items()}
        {'features': (2, 3)}
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    try:
        held = np.load(path, allow_pickle=False, mmap_mode="r")
        if isinstance(held, np.ndarray):
            return held
        with held:
            return {name: held[name] for name in held.files}
    except (ValueError, OSError, EOFError) as error:
        raise BadInput(f"{path} cannot be read as arrays ({error})") from error


def input_array(path: Path, arrays: Mapping[str, NDArray[Any]], *, but: str = "") -> str:
    """Which array of a .npz file holds the inputs: one of `INPUTS`, or the only one there is.

    Args:
        path: of the file, for the message.
        arrays: by name.
        but: an array that is something else.

    Example:
        >>> arrays = {"labels": np.ones(2), "rows": np.ones((2, 3))}
        >>> input_array(Path("a.npz"), arrays, but="labels")
        'rows'
    """
    others = [name for name in arrays if name != but]
    chosen = next((name for name in INPUTS if name in others), None)
    if chosen is None and len(others) == 1:
        chosen = others[0]
    if chosen is None:
        raise BadInput(f"{path} has no array called inputs or features; it has {', '.join(arrays)}")
    return chosen


def is_missing(value: Any) -> bool:
    """Whether there is nothing: None, NaN, or a text of blanks.

    Example:
        >>> [is_missing(value) for value in (None, " ", float("nan"), 0, "0")]
        [True, True, True, False, False]
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    return isinstance(value, float) and math.isnan(value)


def as_number(value: Any) -> float | None:
    """A number, or a text that reads as one; None for all else.

    Example:
        >>> [as_number(value) for value in (3, "2.5", "two", [1])]
        [3.0, 2.5, None, None]
    """
    if isinstance(value, (bool, int, float)):
        return float(value)
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def are_texts(values: Sequence[Any]) -> bool:
    """Whether there are values and all of them are texts.

    Example:
        >>> are_texts(["a", "b"]), are_texts(["a", 1]), are_texts([])
        (True, False, False)
    """
    return len(values) > 0 and all(isinstance(value, str) for value in values)


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether a column holds numbers, or lists of them, wherever it holds anything.

    Example:
        >>> is_numeric(["1", "NA", "2.5"]), is_numeric(["1", "one"]), is_numeric([[1, 2], [3, 4]])
        (True, False, True)
    """
    known = [value for value in values if not _is_blank(value)]
    lists = all(isinstance(value, list) for value in known)
    return bool(known) and (lists or all(as_number(value) is not None for value in known))


def numeric_column(path: Path, name: str, values: Sequence[Any]) -> NDArray[np.float64]:
    """A column as ``(n, 1)`` numbers, or a column of lists of d as ``(n, d)``.

    Example:
        >>> numeric_column(Path("t.csv"), "height", ["1.5", 2]).tolist()
        [[1.5], [2.0]]
    """
    missing = sum(map(_is_blank, values))
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
        raise BadInput(f"column {name!r} of {path} holds other things than numbers")
    return found


def _is_blank(value: Any) -> bool:
    """Whether a numeric column has nothing here."""
    return is_missing(value) or (isinstance(value, str) and value.strip().lower() in _BLANKS)


@dataclass(frozen=True)
class Chosen:
    """The columns that make an item: of texts, or of numbers.

    Attributes:
        text: columns of texts, which are put together; none where there are numbers.
        numeric: columns of numbers.
        notes: what was decided, in sentences.
    """

    text: tuple[str, ...]
    numeric: tuple[str, ...]
    notes: tuple[str, ...]


def choose_columns(
    path: Path,
    table: Columns,
    *,
    text: Sequence[str] = (),
    columns: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Chosen:
    """Decide which columns make an item.

    Those that are named; else all numeric ones; else the only one that holds texts.

    Args:
        path: of the table, for messages.
        table: its columns.
        text: columns of texts.
        columns: columns of numbers.
        without: columns to leave out, as that of the labels.

    Example:
        >>> table = {"plant": ["oak", "rose"], "height": ["21.5", "0.8"]}
        >>> chosen = choose_columns(Path("t.csv"), table)
        >>> chosen.numeric, chosen.notes
        (('height',), ('numbers: height', 'left out, not numeric: plant'))
    """
    there = ", ".join(table)
    if text and columns:
        raise BadInput("give columns of texts or of numbers, not both")
    for name in (*text, *columns, *without):
        if name not in table:
            raise BadInput(f"{path} has no column {name!r}; it has {there}")
    others = [name for name in table if name not in without]
    numeric = list(columns) or [name for name in others if is_numeric(table[name])]
    if not text and not numeric:
        texts = [name for name in others if are_texts([v for v in table[name] if v is not None])]
        if len(texts) != 1:
            raise BadInput(f"{path} has no numeric columns; name texts with --text, of {there}")
        text = texts
    if text:
        return Chosen(tuple(text), (), (f"texts: {some_names(text)}",))
    left = [name for name in others if name not in numeric]
    notes = [f"numbers: {some_names(numeric)}"]
    notes += [f"left out, not numeric: {some_names(left)}"] if left and not columns else []
    return Chosen((), tuple(numeric), tuple(notes))


def joined_texts(table: Columns, names: Sequence[str]) -> list[str]:
    """The text columns of every row, put together with blanks.

    Example:
        >>> joined_texts({"title": ["A", None], "body": ["first", "second"]}, ["title", "body"])
        ['A first', 'second']
    """
    parts = [["" if value is None else str(value) for value in table[name]] for name in names]
    return [" ".join(row).strip() for row in zip(*parts, strict=True)]


def table_rows(table: Columns) -> Iterator[dict[str, Any]]:
    """Every row as a mapping from column to value.

    Example:
        >>> list(table_rows({"a": [1, 2], "b": ["x", "y"]}))
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]
    """
    for row in zip(*table.values(), strict=True):
        yield dict(zip(table, row, strict=True))


def some_names(names: Sequence[str]) -> str:
    """Names of columns, the first few if they are many.

    Example:
        >>> some_names(["a", "b"])
        'a, b'
    """
    if len(names) <= 12:
        return ", ".join(names)
    return f"{', '.join(names[:6])}, ... and {names[-1]} ({len(names)} columns)"


def _csv(path: Path) -> Columns:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file, _long_fields():
            head = file.readline()
            file.seek(0)
            by = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
            rows = list(csv.reader(file, delimiter=by))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is no table in UTF-8 ({error})") from error
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
def _long_fields() -> Iterator[None]:
    """Fields of any length, whole documents too; the module's own limit is 128 KiB."""
    usual = csv.field_size_limit(1 << 30)
    try:
        yield
    finally:
        csv.field_size_limit(usual)


def _jsonl(path: Path) -> Columns:
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


def _parquet(path: Path) -> Columns:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependency(
            "reading .parquet needs pyarrow; run pip install 'labelwise[parquet]'"
        ) from error
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise BadInput(f"{path} is no Parquet file ({error})") from error
    names = table.column_names
    if len(set(names)) < len(names):
        raise BadInput(f"{path} has two columns of the same name: {', '.join(names)}")
    return {name: table.column(name).to_pylist() for name in names}
