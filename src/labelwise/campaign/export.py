"""What comes out of a campaign: the labels as .csv, .jsonl, .parquet or Label Studio's .json.

A file appears whole or not at all. In .csv and .parquet, votes are one text of JSON per item. Texts
are written as they are; those that a spreadsheet would compute are counted, and changed on demand.
"""

import csv
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labelwise.campaign.folder.missing_items import SYSTEM_ANNOTATOR
from labelwise.errors import BadInput, MissingDependency
from labelwise.record.events import Event, Label, Resolved, Told

Describe = Callable[[int], str]
"""Gives the item as text: its path, its text, or its columns."""

COLUMNS = (
    *("id", "item", "label", "weight", "batch", "rank", "strategy", "validation"),
    *("by", "at", "seconds", "votes"),
)
"""What is exported of every labelled item."""

VOTE_COLUMNS = ("id", "item", "label", "by", "at", "seconds", "weight")
"""What is exported of every single vote; ``labelwise tell`` reads it back."""

FORMATS = (".csv", ".jsonl", ".parquet", ".json")


def label_rows(
    ledger: Any, labels: Mapping[int, Label], events: Iterable[Event], describe: Describe
) -> list[dict[str, Any]]:
    """A row per labelled item, by id.

    Args:
        ledger: where the campaign stands.
        labels: by id, what `labelwise.campaign.Desk.labels` says.
        events: the whole record, for who said what when.
        describe: gives an item as text.

    Returns:
        Rows with the keys of `COLUMNS`. ``weight`` is how many items of the pool the pick stands
        for, ``by`` who settled the label, or the first who gave it; ``at`` is in UTC.
    """
    told, settled = _times(events)
    places = _places(ledger)
    rows = []
    for item, label in sorted(labels.items()):
        votes = [
            {"by": by, "label": vote, **_time(told.get((item, by)))}
            for by, vote in ledger.votes.get(item, {}).items()
        ]
        if item in ledger.resolutions and ledger.resolutions[item].by != SYSTEM_ANNOTATOR:
            by, at = ledger.resolutions[item].by, _when(settled.get(item))
        else:
            agreeing = [vote for vote in votes if vote["label"] == label]
            by = agreeing[0]["by"] if agreeing else ""
            at = max((vote["at"] for vote in votes if vote["at"]), default=None)
        batch, rank, strategy = places.get(item, (None, None, None))
        spent = [vote["seconds"] for vote in votes if vote["seconds"] is not None]
        rows.append(
            {
                "id": item,
                "item": describe(item),
                "label": label,
                "weight": ledger.weight_of(item),
                "batch": batch,
                "rank": rank,
                "strategy": strategy,
                "validation": item in ledger.validation,
                "by": by,
                "at": at,
                "seconds": sum(spent) if spent else None,
                "votes": votes,
            }
        )
    return rows


def vote_rows(ledger: Any, events: Iterable[Event], describe: Describe) -> list[dict[str, Any]]:
    """A row per vote that stands, by id, with the keys of `VOTE_COLUMNS`."""
    told, _ = _times(events)
    rows = []
    for item, votes in sorted(ledger.votes.items()):
        for by, label in votes.items():
            row = {"id": item, "item": describe(item), "label": label, "by": by}
            weight = ledger.weight_of(item)
            rows.append({**row, **_time(told.get((item, by))), "weight": weight})
    return rows


def _times(events: Iterable[Event]) -> tuple[dict[tuple[int, str], Told], dict[int, Resolved]]:
    """The last time each person labelled each item, and the last word on each item."""
    told: dict[tuple[int, str], Told] = {}
    settled: dict[int, Resolved] = {}
    for event in events:
        if isinstance(event, Told):
            told[event.id, event.by] = event
        elif isinstance(event, Resolved):
            settled[event.id] = event
    return told, settled


def _time(event: Told | None) -> dict[str, Any]:
    if event is None:
        return {"at": None, "seconds": None}
    return {"at": iso(event.at), "seconds": event.seconds}


def _when(event: Resolved | None) -> str | None:
    return None if event is None else iso(event.at)


def _places(ledger: Any) -> dict[int, tuple[int, int, str]]:
    """Batch, rank and strategy of every item that was asked for."""
    return {
        item: (batch.number, rank, "random" if item in ledger.validation else batch.asked.strategy)
        for batch in ledger.batches
        for rank, item in enumerate(dict.fromkeys(batch.asked.ids + batch.asked.validation))
    }


def iso(at: float) -> str:
    """A time as text, in UTC, to the second.

    Example:
        >>> iso(0)
        '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def label_studio_tasks(
    rows: Iterable[Mapping[str, Any]],
    skipped: Mapping[int, Any],
    describe: Describe,
    *,
    kind: str,
    regression: bool = False,
) -> list[dict[str, Any]]:
    """Label Studio's tasks with an annotation per vote; what was skipped is a cancelled one.

    Args:
        rows: of `label_rows`.
        skipped: ids with who skipped them and why.
        describe: gives an item as text.
        kind: ``images``, ``texts`` or ``numbers``; decides the name of the item in ``data``.
        regression: whether labels are numbers and no choices.
    """
    tasks = []
    for row in rows:
        task = _task(row["id"], row["item"], kind)
        extra = {key: row[key] for key in ("weight", "batch", "rank", "strategy", "validation")}
        task["meta"] = {"labelwise": {"label": row["label"], "by": row["by"], **extra}}
        votes = row["votes"] or [row]
        task["annotations"] = [_annotation(vote, regression) for vote in votes]
        tasks.append(task)
    for item, skip in sorted(skipped.items()):
        task = _task(item, describe(item), kind)
        task["meta"] = {"labelwise": {"by": skip.by, "reason": skip.reason}}
        task["annotations"] = [{"result": [], "was_cancelled": True}]
        tasks.append(task)
    return tasks


_FIELDS = {"images": "image", "texts": "text", "numbers": "text"}


def _task(item: int, shown: str, kind: str) -> dict[str, Any]:
    return {"id": item, "data": {_FIELDS.get(kind, "text"): shown, "labelwise_id": item}}


def _annotation(vote: Mapping[str, Any], regression: bool) -> dict[str, Any]:
    value = {"number": vote["label"]} if regression else {"choices": [str(vote["label"])]}
    kind = "number" if regression else "choices"
    result = {"from_name": "label", "to_name": "item", "type": kind, "value": value}
    annotation: dict[str, Any] = {"result": [result], "was_cancelled": False}
    if vote["seconds"] is not None:
        annotation["lead_time"] = vote["seconds"]
    if vote["at"] is not None:
        annotation["created_at"] = vote["at"]
    annotation["meta"] = {"by": vote["by"]}
    return annotation


def check_out(path: Path, formats: Sequence[str] = FORMATS) -> None:
    """Refuse, before the work, a file that cannot be written."""
    if path.suffix not in formats:
        raise BadInput(f"cannot write {path.name!r}; end the name in {', '.join(formats)}")
    if path.is_dir():
        raise BadInput(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} to write {path.name} to; make it")
    if path.suffix == ".parquet":
        _pyarrow()


def write_table(
    path: Path,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    spreadsheet: bool = False,
) -> int:
    """Write rows as .csv, .jsonl or .parquet; the file appears whole or not at all.

    Args:
        path: of the file.
        columns: which keys of the rows to write, in this order.
        rows: by column.
        spreadsheet: put an apostrophe before what a spreadsheet program would compute; for .csv.

    Returns:
        How many cells of a .csv file a spreadsheet program would compute.
    """
    check_out(path, FORMATS[:3])
    check_spreadsheet(path, spreadsheet)
    formulas = 0
    with whole_file(path) as part:
        if path.suffix == ".csv":
            formulas = _write_csv(part, columns, rows, spreadsheet)
        elif path.suffix == ".jsonl":
            with part.open("w", encoding="utf-8") as file:
                for row in rows:
                    line = json.dumps({name: row[name] for name in columns}, ensure_ascii=False)
                    file.write(f"{line}\n")
        else:
            _write_parquet(part, columns, rows)
    return formulas


def check_spreadsheet(path: Path, spreadsheet: bool) -> None:
    """Refuse apostrophes where nothing would be computed without them."""
    if spreadsheet and path.suffix != ".csv":
        raise BadInput(f"--spreadsheet is for .csv files; {path.name!r} needs no such care")


def _write_csv(
    path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], spreadsheet: bool
) -> int:
    formulas = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            cells = [_flat(row[name]) for name in columns]
            cells = [as_text(cell) for cell in cells] if spreadsheet else cells
            formulas += sum(map(is_formula, cells))
            writer.writerow(cells)
    return formulas


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON; the file appears whole or not at all."""
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
        file.write("\n")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write to, beside ``path``, that takes its place once all went well."""
    part = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _flat(value: Any) -> Any:
    """A value as one cell: lists as JSON, truth as a word, half surrogates as JSON would."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def _write_parquet(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    pyarrow, parquet = _pyarrow()
    whole, number = pyarrow.int64(), pyarrow.float64()
    types = {"id": whole, "batch": whole, "rank": whole, "weight": number, "seconds": number}
    types |= {"validation": pyarrow.bool_(), "confidence": number}
    arrays = []
    for name in columns:
        values = [row[name] for row in rows]
        kind = types.get(name, pyarrow.string())
        if name in ("label", "guess"):
            kind = _label_type(values, pyarrow)
        if kind == pyarrow.string():
            values = [None if value is None else _text(value) for value in values]
        arrays.append(pyarrow.array(values, type=kind))
    parquet.write_table(pyarrow.table(arrays, names=list(columns)), path)


def _label_type(values: Sequence[Any], pyarrow: Any) -> Any:
    """Whole numbers, numbers, or text where there is any other label."""
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, int) for value in given):
        return pyarrow.int64()
    if given and all(isinstance(value, int | float) for value in given):
        return pyarrow.float64()
    return pyarrow.string()


def _text(value: Any) -> str:
    flat = _flat(value)
    return flat if isinstance(flat, str) else str(flat)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependency(
            "writing .parquet needs pyarrow; run pip install 'labelwise[parquet]'"
        ) from error
    return pyarrow, parquet


# Formulas: a .csv file has no types, so Excel, LibreOffice and Google Sheets compute a cell that
# begins with =, +, - or @, and a formula may send the rest of the table elsewhere. In a table for
# programs the text stays as it is; in one for people an apostrophe makes it a text (OWASP, "CSV
# Injection").

BEGINNINGS = tuple("=+-@\t\r\n＝＋－＠")
"""How a formula may begin; some programs take the wide forms and skip leading white space."""

_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def is_formula(value: Any) -> bool:
    """Whether a spreadsheet program would compute a cell: a text, and no number.

    Example:
        >>> [is_formula(value) for value in ("=1+1", "-2.5", -2.5, "- no", "a=b", "@ann")]
        [True, False, False, True, False, True]
    """
    begins = isinstance(value, str) and value.startswith(BEGINNINGS)
    return begins and not _NUMBER.fullmatch(value)


def as_text(value: Any) -> Any:
    """A value that no spreadsheet program takes for a formula.

    Example:
        >>> as_text("=1+1"), as_text("owl"), as_text(-3)
        ("'=1+1", 'owl', -3)
    """
    return f"'{value}" if is_formula(value) else value
