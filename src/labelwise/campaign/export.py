"""Export of labels as .csv, .jsonl, .parquet or Label Studio's .json.

Files are written atomically. In .csv and .parquet, votes are one JSON text per item. Texts that a
spreadsheet would compute as formulas are counted, and escaped on request.
"""

import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelwise.campaign.folder.items import CampaignItems
from labelwise.campaign.operations import SYSTEM_ANNOTATOR
from labelwise.errors import BadInput
from labelwise.files import Json, JsonObject, check_output_path, write_atomically
from labelwise.pool.sources.parquet import import_pyarrow
from labelwise.record.events import Event, Label, Resolved, Told
from labelwise.record.ledger import Ledger
from labelwise.record.votes import Skip
from labelwise.rounds.default_strategies import BASELINE

if TYPE_CHECKING:
    from labelwise.campaign.trained_model import ItemPredictions

Describe = Callable[[int], str]  # Returns an item as text: its path, its text, or its columns

COLUMNS = (
    *("id", "item", "label", "weight", "batch", "rank", "strategy", "validation"),
    *("by", "at", "seconds", "votes"),
)
"""Columns of a labelled item."""

VOTE_COLUMNS = ("id", "item", "label", "by", "at", "seconds", "weight")
"""Columns of a vote; ``labelwise tell`` reads them."""

TABLE_FORMATS = (".csv", ".jsonl", ".parquet")
FORMATS = (*TABLE_FORMATS, ".json")


def label_rows(
    ledger: Ledger, labels: Mapping[int, Label], events: Iterable[Event], describe: Describe
) -> list[JsonObject]:
    """One row per labelled item, by id.

    ``labels`` are those of `CampaignRecord.labels`; ``events``, the whole record, has the times.

    Returns:
        Rows with the keys of `COLUMNS`. ``weight`` is the number of pool items that the pick
        represents, ``by`` the annotator who resolved the label or gave it first; ``at`` is in UTC.
    """
    told, resolved = _find_last_votes(events)
    rows = []
    for item, label in sorted(labels.items()):
        votes = [
            {"by": by, "label": vote, **_format_vote_time(told.get((item, by)))}
            for by, vote in ledger.votes.get(item, {}).items()
        ]
        if item in ledger.resolutions and ledger.resolutions[item].by != SYSTEM_ANNOTATOR:
            by, event = ledger.resolutions[item].by, resolved.get(item)
            at = None if event is None else format_utc(event.at)
        else:
            agreeing = [vote for vote in votes if vote["label"] == label]
            by = agreeing[0]["by"] if agreeing else ""
            at = max((vote["at"] for vote in votes if vote["at"]), default=None)
        pick, held = ledger.pick_of(item), item in ledger.validation
        strategy = None if pick is None else pick.asked.strategy
        spent = [vote["seconds"] for vote in votes if vote["seconds"] is not None]
        rows.append(
            {
                "id": item,
                "item": describe(item),
                "label": label,
                "weight": ledger.weight_of(item),
                "batch": None if pick is None else pick.asked.batch,
                "rank": None if pick is None else pick.rank,
                "strategy": BASELINE if held else strategy,
                "validation": held,
                "by": by,
                "at": at,
                "seconds": sum(spent) if spent else None,
                "votes": votes,
            }
        )
    return rows


def restore_keys(rows: Iterable[JsonObject], items: CampaignItems) -> None:
    """Replace the numbers of items by the ids of the user, in place."""
    if items.has_keys:
        for row in rows:
            row["id"] = items.key(row["id"])


def prediction_columns(predictions: "ItemPredictions") -> list[str]:
    """Columns of `prediction_rows`; probabilities are in columns ``p:CLASS``."""
    common = ["id", "item", "label", "prediction"]
    if predictions.probabilities is None:
        return [*common, "low", "high"]
    return [*common, "confidence", *(f"p:{name}" for name in predictions.classes)]


def prediction_rows(
    ids: Sequence[int],
    names: Sequence[str],
    labels: Mapping[int, Label],
    predictions: "ItemPredictions",
) -> list[JsonObject]:
    """One row per item, with the keys of `prediction_columns`."""
    rows: list[JsonObject] = []
    half, chances = predictions.half_width, predictions.probabilities
    for place, (item, name) in enumerate(zip(ids, names, strict=True)):
        value = predictions.labels[place]
        row: JsonObject = {"id": item, "item": name, "label": labels.get(item), "prediction": value}
        if chances is None:
            ends = (None, None) if half is None else (float(value) - half, float(value) + half)
            row |= dict(zip(("low", "high"), ends, strict=True))
        else:
            own = chances[place].tolist()
            row["confidence"] = max(own)
            row |= {f"p:{k}": p for k, p in zip(predictions.classes, own, strict=True)}
        rows.append(row)
    return rows


def predicted_tasks(
    rows: Iterable[JsonObject], *, kind: str, regression: bool = False
) -> list[JsonObject]:
    """Label Studio tasks with the prediction of every item, and the label if there is one.

    The ``kind`` of the items determines the key in ``data``.
    """
    tasks = []
    for row in rows:
        task = _make_label_studio_task(row["id"], row["item"], kind)
        guess: JsonObject = {"result": [_make_label_studio_result(row["prediction"], regression)]}
        if "confidence" in row:
            guess["score"] = row["confidence"]
        task["predictions"] = [{"model_version": "labelwise", **guess}]
        if row["label"] is not None:
            own = _make_label_studio_result(row["label"], regression)
            task["annotations"] = [{"result": [own], "was_cancelled": False}]
        tasks.append(task)
    return tasks


def vote_rows(ledger: Ledger, events: Iterable[Event], describe: Describe) -> list[JsonObject]:
    """One row per current vote, by id, with the keys of `VOTE_COLUMNS`."""
    told, _ = _find_last_votes(events)
    rows = []
    for item, votes in sorted(ledger.votes.items()):
        for by, label in votes.items():
            row = {"id": item, "item": describe(item), "label": label, "by": by}
            weight = ledger.weight_of(item)
            rows.append({**row, **_format_vote_time(told.get((item, by))), "weight": weight})
    return rows


def _find_last_votes(
    events: Iterable[Event],
) -> tuple[dict[tuple[int, str], Told], dict[int, Resolved]]:
    """The last vote of each annotator on each item, and the last resolution of each item."""
    told: dict[tuple[int, str], Told] = {}
    resolved: dict[int, Resolved] = {}
    for event in events:
        if isinstance(event, Told):
            told[event.id, event.by] = event
        elif isinstance(event, Resolved):
            resolved[event.id] = event
    return told, resolved


def _format_vote_time(event: Told | None) -> JsonObject:
    if event is None:
        return {"at": None, "seconds": None}
    return {"at": format_utc(event.at), "seconds": event.seconds}


def format_utc(at: float) -> str:
    """Format a time in UTC, to the second.

    Example:
        >>> format_utc(0)
        '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def label_studio_tasks(
    rows: Iterable[JsonObject],
    skipped: Mapping[int, Skip],
    describe: Describe,
    *,
    kind: str,
    regression: bool = False,
) -> list[JsonObject]:
    """Label Studio tasks with an annotation per vote; a skip is a cancelled annotation.

    The ``kind`` of the items determines the key in ``data``.
    """
    tasks = []
    for row in rows:
        task = _make_label_studio_task(row["id"], row["item"], kind)
        extra = {key: row[key] for key in ("weight", "batch", "rank", "strategy", "validation")}
        task["meta"] = {"labelwise": {"label": row["label"], "by": row["by"], **extra}}
        votes = row["votes"] or [row]
        task["annotations"] = [_make_label_studio_annotation(vote, regression) for vote in votes]
        tasks.append(task)
    for item, skip in sorted(skipped.items()):
        task = _make_label_studio_task(item, describe(item), kind)
        task["meta"] = {"labelwise": {"by": skip.by, "reason": skip.reason}}
        task["annotations"] = [{"result": [], "was_cancelled": True}]
        tasks.append(task)
    return tasks


_FIELDS = {"images": "image", "texts": "text", "numbers": "text"}


def _make_label_studio_task(item: int, shown: str, kind: str) -> JsonObject:
    return {"id": item, "data": {_FIELDS.get(kind, "text"): shown, "labelwise_id": item}}


def _make_label_studio_result(label: Label, regression: bool) -> JsonObject:
    value: JsonObject = {"number": label} if regression else {"choices": [str(label)]}
    kind = "number" if regression else "choices"
    return {"from_name": "label", "to_name": "item", "type": kind, "value": value}


def _make_label_studio_annotation(vote: JsonObject, regression: bool) -> JsonObject:
    result = _make_label_studio_result(vote["label"], regression)
    annotation: JsonObject = {"result": [result], "was_cancelled": False}
    if vote["seconds"] is not None:
        annotation["lead_time"] = vote["seconds"]
    if vote["at"] is not None:
        annotation["created_at"] = vote["at"]
    annotation["meta"] = {"by": vote["by"]}
    return annotation


def write_table(
    path: Path,
    columns: Sequence[str],
    rows: Sequence[JsonObject],
    *,
    spreadsheet: bool = False,
) -> int:
    """Write rows as .csv, .jsonl or .parquet, atomically.

    With ``spreadsheet``, an apostrophe is put before formulas of a .csv file.

    Returns:
        The number of cells of a .csv file that a spreadsheet would compute.
    """
    check_output_path(path, TABLE_FORMATS)
    check_spreadsheet(path, spreadsheet)
    formulas = 0
    with write_atomically(path) as part:
        if path.suffix == ".csv":
            formulas = _write_csv_table(part, columns, rows, spreadsheet)
        elif path.suffix == ".jsonl":
            with part.open("w", encoding="utf-8") as file:
                for row in rows:
                    line = json.dumps({name: row[name] for name in columns}, ensure_ascii=False)
                    file.write(f"{line}\n")
        else:
            _write_parquet_table(part, columns, rows)
    return formulas


def encode_table(
    suffix: str,
    columns: Sequence[str],
    rows: Sequence[JsonObject],
    *,
    spreadsheet: bool = False,
) -> bytes:
    """The file that `write_table` would write."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{suffix}"
        write_table(path, columns, rows, spreadsheet=spreadsheet)
        return path.read_bytes()


def check_spreadsheet(path: Path, spreadsheet: bool) -> None:
    """Reject the option for files in which nothing would be computed."""
    if spreadsheet and path.suffix != ".csv":
        raise BadInput(f"--spreadsheet is for .csv files; {path.name!r} does not need it")


def _write_csv_table(
    path: Path, columns: Sequence[str], rows: Sequence[JsonObject], spreadsheet: bool
) -> int:
    formulas = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            cells = [_make_table_cell(row[name]) for name in columns]
            cells = [escape_formula(cell) for cell in cells] if spreadsheet else cells
            formulas += sum(map(is_formula, cells))
            writer.writerow(cells)
    return formulas


def _make_table_cell(value: Json) -> Json:
    """Convert a value to one cell: lists to JSON, booleans to words."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def _write_parquet_table(path: Path, columns: Sequence[str], rows: Sequence[JsonObject]) -> None:
    pyarrow, parquet = import_pyarrow("writing .parquet")
    whole, number = pyarrow.int64(), pyarrow.float64()
    types = {"batch": whole, "rank": whole, "weight": number, "seconds": number}
    types |= {"validation": pyarrow.bool_(), "confidence": number}
    arrays = []
    for name in columns:
        values = [row[name] for row in rows]
        chance = name in ("low", "high") or name.startswith("p:")
        kind = number if chance else types.get(name, pyarrow.string())
        if name in ("id", "label", "guess", "prediction"):
            kind = _choose_parquet_type(values, pyarrow)
        if kind == pyarrow.string():
            values = [None if value is None else str(_make_table_cell(value)) for value in values]
        arrays.append(pyarrow.array(values, type=kind))
    parquet.write_table(pyarrow.table(arrays, names=list(columns)), path)


def _choose_parquet_type(values: Sequence[Json], pyarrow: Any) -> Any:
    """Integers, numbers, or text if there is any other label."""
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, int) for value in given):
        return pyarrow.int64()
    if given and all(isinstance(value, int | float) for value in given):
        return pyarrow.float64()
    return pyarrow.string()


# Formulas: a .csv file has no types, so Excel, LibreOffice and Google Sheets compute a cell that
# begins with =, +, - or @, and a formula may send the rest of the table elsewhere. In a table for
# programs the text stays as it is; in one for people an apostrophe makes it a text (OWASP, "CSV
# Injection").

BEGINNINGS = tuple("=+-@\t\r\n＝＋－＠")
"""First characters of formulas, including wide forms that some programs accept."""

_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def is_formula(value: Json) -> bool:
    """Whether a spreadsheet would compute a cell: a text that is not a number.

    Example:
        >>> [is_formula(value) for value in ("=1+1", "-2.5", -2.5, "- no", "a=b", "@ann")]
        [True, False, False, True, False, True]
    """
    begins = isinstance(value, str) and value.startswith(BEGINNINGS)
    return begins and not _NUMBER.fullmatch(value)


def escape_formula(value: Json) -> Json:
    """Make a formula a text by an apostrophe.

    Example:
        >>> escape_formula("=1+1"), escape_formula("owl"), escape_formula(-3)
        ("'=1+1", 'owl', -3)
    """
    return f"'{value}" if is_formula(value) else value
