"""What ``labelwise tell`` reads: labels from .csv, .jsonl, .parquet, or Label Studio's .json."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelwise.errors import BadInput
from labelwise.media.tables import TABLES, is_missing, read_table, some_names, table_rows


@dataclass(frozen=True)
class Line:
    """A label as the file has it.

    Attributes:
        where: the place in the file, for an error.
        id: of the item.
        label: as it was read; None for an item that was skipped.
        by: who gave it; empty where the file does not say.
        seconds: how long it took, or None.
        reason: why it was skipped.
    """

    where: str
    id: int
    label: Any
    by: str = ""
    seconds: float | None = None
    reason: str = ""


def read_labels(path: Path) -> tuple[list[Line], int]:
    """The labels of a file, and how many rows have none.

    A table has the columns id and label, and may have by and seconds; others are left alone, so
    that the file of ``labelwise ask`` with a column of labels will do.
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path} to read labels from")
    if path.suffix == ".json":
        return _label_studio(path)
    if path.suffix not in TABLES:
        raise BadInput(
            f"cannot read labels from {path.name!r}; give {', '.join(TABLES)}, "
            "or .json as Label Studio exports it"
        )
    table = read_table(path)
    for name in ("id", "label"):
        if name not in table:
            raise BadInput(f"{path} has no column called {name}; it has {some_names(list(table))}")
    first = 2 if path.suffix in (".csv", ".tsv") else 1  # as a spreadsheet counts them
    lines, blank = [], 0
    for number, row in enumerate(table_rows(table), first):
        if is_missing(row["label"]):
            blank += 1
        else:
            lines.append(_line(f"row {number} of {path}", row))
    return lines, blank


def _line(where: str, row: dict[str, Any]) -> Line:
    by = row.get("by")
    return Line(
        where,
        _id(where, row.get("id")),
        as_label(row["label"]),
        "" if is_missing(by) else str(by).strip(),
        _seconds(where, row.get("seconds")),
    )


def as_label(value: Any) -> Any:
    """The label; a text that is just a whole number is one, as a .csv file knows only texts."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    whole = text.isascii() and text.isdigit() and len(text) < 19 and str(int(text)) == text
    return int(text) if whole else text


def as_told(label: Any, settings: Any) -> Any:
    """The label as the campaign takes it from a file: a class by its name only.

    A number could mean the place of a class from 0, or its key on the page, which begin at 1.
    """
    return str(label) if settings.classes is not None and isinstance(label, int) else label


def _id(where: str, value: Any) -> int:
    text = value.strip() if isinstance(value, str) else value
    try:
        number = int(text)
        if isinstance(value, bool) or (isinstance(value, float) and number != value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{where}: id must be a whole number; got {value!r}") from None
    return number


def _seconds(where: str, value: Any) -> float | None:
    if is_missing(value):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise BadInput(f"{where}: seconds must be a number from 0; got {value!r}")
    return number


def _label_studio(path: Path) -> tuple[list[Line], int]:
    """One line per annotation; a cancelled one is a skip; tasks without any are counted."""
    try:
        tasks = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is no JSON that can be read ({error})") from None
    if not isinstance(tasks, list):
        raise BadInput(f"{path} must be a list of tasks, as Label Studio exports it (JSON)")
    lines, blank = [], 0
    for number, task in enumerate(tasks, 1):
        where = f"task {number} of {path}"
        try:
            annotations = task["annotations"]
            item = _id(where, task["data"]["labelwise_id"])
            found = [_annotated(where, item, entry) for entry in annotations]
        except (KeyError, TypeError, AttributeError, IndexError):
            raise BadInput(
                f"{where} must have annotations, and labelwise_id in its data, as "
                "labelwise export --out tasks.json writes them"
            ) from None
        lines += found
        blank += not found
    return lines, blank


def _annotated(where: str, item: int, annotation: dict[str, Any]) -> Line:
    by = str(
        (annotation.get("meta") or {}).get("by") or _person(annotation.get("completed_by")) or ""
    )
    seconds = _seconds(where, annotation.get("lead_time"))
    if annotation.get("was_cancelled"):
        return Line(where, item, None, by, seconds, "skipped in Label Studio")
    values = [result["value"] for result in annotation["result"]]
    values = [value for value in values if "choices" in value or "number" in value]
    if len(values) != 1:
        raise BadInput(f"{where} has {len(values)} labels in an annotation; give one")
    (value,) = values
    if "number" in value:
        return Line(where, item, value["number"], by, seconds)
    if len(value["choices"]) != 1:
        raise BadInput(f"{where} has {len(value['choices'])} choices; items have one label")
    return Line(where, item, as_label(value["choices"][0]), by, seconds)


def _person(given: Any) -> str:
    """Label Studio's user: a number, or an entry with an e-mail address."""
    if isinstance(given, dict):
        return str(given.get("email") or given.get("id") or "")
    return "" if given is None else str(given)
