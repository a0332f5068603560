"""What users write as text: ids in files, values of options."""

import csv
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TextIO, get_args

from labelwise.errors import BadInput
from labelwise.pool.parquet.rows import parquet_library
from labelwise.strategy import Strategy

Entries = Iterator[tuple[int, Mapping[str, Any]]]

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CALLED = {int: "a whole number", float: "a number", bool: "true or false"}
_READ: dict[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: lambda text: _WORDS[text.lower()],
    str: str,
}


def read_ids(path: Path) -> list[int]:
    """Ids from a text file with one per line, or of picks that ``labelwise select`` wrote."""
    return [item_id(entry["id"], number, path) for number, entry in read_entries(path)]


def item_id(value: Any, number: int, path: Path) -> int:
    """The id that an entry has; anything but a whole number is refused."""
    try:
        return int(str(value))
    except ValueError:
        got = str(value).strip()
        raise BadInput(
            f"line {number} of {path} must be an id, a whole number; got {got!r}"
        ) from None


def read_entries(path: Path) -> Entries:
    """The items of a file with the numbers of their lines; each has at least an ``id``.

    Args:
        path: of a .csv, .jsonl or .parquet file with a column ``id``, or of any other text with one
            id per line.
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path} to read ids from")
    if path.suffix == ".parquet":
        yield from _parquet_entries(path)
        return
    read = {".csv": _csv_entries, ".jsonl": _json_entries}.get(path.suffix, _lines)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # some programs mark UTF-8
            yield from read(file, path)
    except UnicodeDecodeError:
        raise BadInput(
            f"{path} is no text in UTF-8; give one id per line, or a .csv with a column id"
        ) from None


def _lines(file: TextIO, path: Path) -> Entries:
    return ((number, {"id": line}) for number, line in enumerate(file, 1) if line.strip())


def _csv_entries(file: TextIO, path: Path) -> Entries:
    reader = csv.DictReader(file)
    try:
        if "id" not in (reader.fieldnames or ()):
            raise BadInput(f"{path} has no column called id; name it in the first line")
        for row in reader:
            yield reader.line_num, row | {"id": row["id"] or ""}
    except csv.Error as error:
        raise BadInput(f"line {reader.line_num} of {path} is no line of a .csv ({error})") from None


def _json_entries(file: TextIO, path: Path) -> Entries:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            yield number, entry | {"id": entry["id"]}
        except (ValueError, LookupError, TypeError) as error:
            raise BadInput(
                f"line {number} of {path} is no pick, a JSON object with an id ({error})"
            ) from None


def _parquet_entries(path: Path) -> Entries:
    library = parquet_library(path.name)
    try:
        file = library.ParquetFile(path)
        names = file.schema_arrow.names
        batches = file.iter_batches(columns=[name for name in ("id", "weight") if name in names])
        rows = (row for batch in batches for row in batch.to_pylist())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is not a readable .parquet file ({error})") from error
    if "id" not in names:
        raise BadInput(f"{path} has no column called id; it has {', '.join(names)}")
    yield from enumerate(rows, 1)


def parse_options(strategy: Strategy, texts: Mapping[str, str]) -> dict[str, Any]:
    """Options from their texts; a value has the type that the option is declared with."""
    known = strategy.options
    for name, text in texts.items():
        if name not in known:
            strategy.with_options(**{name: text})  # refuses it and lists the right ones
    return {name: _value(strategy, name, text) for name, text in texts.items()}


def _value(strategy: Strategy, name: str, text: str) -> Any:
    kinds = _kinds(strategy, name)
    if type(None) in kinds and text.lower() == "none":
        return None
    for kind in kinds:
        try:
            if kind in _READ:
                return _READ[kind](text)
        except (ValueError, KeyError):
            continue
    wanted = " or ".join(_CALLED[kind] for kind in kinds if kind in _CALLED)
    if not wanted:
        raise BadInput(f"option {name} of {strategy.name} takes no text; give it in Python")
    none = ", or none" if type(None) in kinds else ""
    raise BadInput(f"option {name} of {strategy.name} takes {wanted}{none}; got {text!r}")


def _kinds(strategy: Strategy, name: str) -> list[Any]:
    """The types that an option may have: as declared, else that of its default; text comes last."""
    parameter = inspect.signature(strategy.main).parameters[name]
    declared = parameter.annotation
    if declared is parameter.empty:
        return [type(parameter.default)]
    kinds = get_args(declared) if isinstance(declared, UnionType) else (declared,)
    return sorted(kinds, key=lambda kind: kind is str)
