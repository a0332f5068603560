"""``labelwise tell``: read labels from a file into the record."""

import json
import math
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelwise.cli.app import CampaignOption, IdColumnOption, app, open_project
from labelwise.display import format_count, format_person
from labelwise.errors import BadInput, LabelwiseError, UnknownName
from labelwise.files import JsonObject
from labelwise.media.tables import TABLES, abbreviate_names, is_missing, iterate_rows, read_table

if TYPE_CHECKING:
    from labelwise.campaign.campaign_record import CampaignRecord
    from labelwise.campaign.project import Project
    from labelwise.campaign.settings import Settings
    from labelwise.learner import Label
    from labelwise.media.tables import Columns
    from labelwise.record.events import Event
    from labelwise.record.ledger import Ledger


_PATH_COLUMNS = ("file", "item", "path")  # Columns that may have the paths of images


@dataclass(frozen=True)
class LabelLine:
    """A label read from a file."""

    where: str  # Place in the file, for error messages
    id: int  # Id of the item
    label: "Label | None"  # Label as it was read; None for a skipped item
    by: str = ""  # Annotator; empty if the file does not name one
    seconds: float | None = None  # Time it took, or None
    reason: str = ""  # Reason for skipping the item
    confidence: float = 1.0  # Of a guess, from 0 to 1


@app.command("tell")
def tell_labels(
    file: Annotated[Path, Argument(help="File with labels.", metavar="FILE")],
    by: Annotated[str, Option("--by", help="Annotator, if the file does not name one.")] = "",
    id_column: IdColumnOption = None,
    anything: Annotated[bool, Option("--anything", help="Accept items not asked for.")] = False,
    campaign: CampaignOption = None,
) -> None:
    """Record the labels in a file: all of them, or none if one is wrong.

    Examples:
        labelwise tell batch.csv --by ann
        labelwise tell labels.jsonl
        labelwise tell tasks.json

    A .csv, .tsv, .jsonl or .parquet file has the columns id and label, and may have by (annotator)
    and seconds (time it took); other columns are ignored, and rows without a label stay open. So
    fill in the column label of the file that labelwise ask wrote. Images may be given by path or
    file name in the column id, file, item or path. A .json file is a Label Studio export of tasks
    that labelwise export wrote; tasks cancelled there are skipped here. Files of COCO (.json), CVAT
    for images (.xml) and FiftyOne (.json) have one label per image. A new label by the same person
    replaces the old one; a label that is known already is not recorded twice.
    """
    from labelwise.cli.status import find_next_campaign_command

    project = open_project(campaign)
    lines, blank = read_label_file(file, project, id_column)
    if by:
        lines = [replace(line, by=line.by or by) for line in lines]
    record = project.open_record()
    counts = _record_labels(
        record, _remove_repeated_labels(lines), anything=anything, known=project.items
    )
    print(_format_told_summary(counts, blank))
    ledger = record.ledger()
    for batch in ledger.open_batches:
        print(f"batch {batch.number}: {batch.size - batch.open} of {batch.size} done")
    print(f"next: {find_next_campaign_command(ledger, record.settings_of(ledger))}")


def import_labels(project: "Project", path: Path, *, test: bool = False) -> str:
    """Record the labels in a file for items of a new campaign; the result in words.

    With ``test`` they are held out: models are evaluated on them and never trained on them.
    """
    lines, blank = read_label_file(path, project)
    lines, record = _remove_repeated_labels(lines), project.open_record()
    if test:
        ids = tuple(dict.fromkeys(line.id for line in lines))
        for item in ids:
            if item not in project.items:
                raise UnknownName(f"the campaign has no item {item}; check the ids in {path}")
        record.commit(lambda ledger, now: (_ask_test_items(ledger, now, ids), None))
    counts = _record_labels(record, lines, anything=True, known=project.items)
    return f"{path}: {_format_told_summary(counts, blank)}"


def import_prelabels(project: "Project", path: Path) -> str:
    """Keep guesses of labels, which are shown before there is a model; the result in words."""
    lines, _ = read_label_file(path, project)
    settings = project.open_record().settings
    found = {}
    for line in lines:
        if line.id not in project.items or line.label is None:
            raise UnknownName(f"{line.where}: the campaign has no item {line.id}; check the id")
        label = settings.normalize_label(match_label_class(line.label, settings), line.id)
        found[line.id] = label, line.confidence
    project.write_prelabels(found)
    return f"{path}: {format_count(len(found), 'guess', 'guesses')}"


def _ask_test_items(ledger: "Ledger", now: float, ids: tuple[int, ...]) -> "list[Event]":
    """The event of a batch that is held out as a whole."""
    from labelwise.record.events import Asked
    from labelwise.rounds.default_strategies import BASELINE

    number = len(ledger.batches) + 1
    info: JsonObject = {"test": True}
    return [Asked(now, number, ids, strategy=BASELINE, validation=ids, info=info)]


def _remove_repeated_labels(lines: Sequence[LabelLine]) -> list[LabelLine]:
    """Remove repeated lines; two different labels by one person for one item are an error."""
    found: dict[tuple[int, str], LabelLine] = {}
    for line in lines:
        first = found.setdefault((line.id, line.by), line)
        if str(first.label) != str(line.label):
            raise BadInput(
                f"{line.where}: item {line.id} is {line.label!r} by {format_person(line.by)}, but "
                f"{first.label!r} in {first.where}; keep one"
            )
    return list(found.values())


def _record_labels(
    record: "CampaignRecord", lines: Sequence[LabelLine], *, anything: bool, known: Container[int]
) -> Counter[str]:
    """Record labels and skips of any number of people in one step.

    Returns:
        Number of ``new``, ``changed`` and ``known`` labels, and of ``skipped`` items.
    """
    from labelwise.campaign.operations import make_label_events, make_skip_events

    def decide_label_events(ledger: "Ledger", now: float) -> "tuple[list[Event], Counter[str]]":
        settings = record.settings_of(ledger)
        events: list[Event] = []
        counts: Counter[str] = Counter()
        for line in lines:
            try:
                _check_told_item(line.id, ledger, known, anything)
                if line.label is None:
                    new = make_skip_events(
                        ledger, [line.id], reason=line.reason, by=line.by, now=now
                    )
                else:
                    new = make_label_events(
                        ledger,
                        settings,
                        {line.id: match_label_class(line.label, settings)},
                        by=line.by,
                        seconds=line.seconds,
                        anything=True,
                        now=now,
                    )
            except LabelwiseError as error:
                raise BadInput(f"{line.where}: {error}; nothing was recorded") from error
            events += new
            counts[_classify_label_line(line, new, ledger)] += 1
        return events, counts

    return record.commit(decide_label_events)


def _check_told_item(item: int, ledger: "Ledger", known: Container[int], anything: bool) -> None:
    if item in ledger.asked_ids or item in ledger.released:
        return
    if not anything:
        raise UnknownName(
            f"item {item} was never asked for; check the id, or give --anything to accept it"
        )
    if item not in known:
        raise UnknownName(f"the campaign has no item {item}; check the id")


def _classify_label_line(line: LabelLine, new: Sequence[object], ledger: "Ledger") -> str:
    if line.label is None:
        return "skipped"
    if not new:
        return "known"
    return "changed" if line.by in ledger.votes.get(line.id, {}) else "new"


def _format_told_summary(counts: Counter[str], blank: int) -> str:
    parts = [format_count(counts["new"], "new label")]
    for name, words in (("changed", "changed"), ("known", "known before"), ("skipped", "skipped")):
        if counts[name]:
            parts.append(f"{counts[name]:,} {words}")
    if blank:
        parts.append(f"{format_count(blank, 'row')} without a label left out")
    return ", ".join(parts)


def read_label_table(path: Path) -> "Columns | None":
    """Read a table with a column of labels; None for a file of another tool."""
    if not path.is_file():
        raise BadInput(f"there is no file {path} to read labels from")
    if path.suffix in (".json", ".xml"):
        return None
    if path.suffix not in TABLES:
        raise BadInput(
            f"cannot read labels from {path.name!r}; give {', '.join(TABLES)}, "
            "or .json or .xml as Label Studio, COCO, CVAT and FiftyOne write it"
        )
    table = read_table(path)
    _require_label_column(path, table, "label")
    return table


def _require_label_column(path: Path, table: "Columns", name: str) -> None:
    if name not in table:
        raise BadInput(
            f"{path} has no column called {name}; it has {abbreviate_names(list(table))}"
        )


def read_label_file(
    path: Path, project: "Project", id_column: str | None = None
) -> tuple[list[LabelLine], int]:
    """Read the labels of a file, and count the rows without one.

    A table has the columns id and label, and may have by and seconds; others are ignored. Ids may
    also be in ``id_column``, in the id column of the campaign or, for images, in the columns file,
    item or path.
    """
    table = read_label_table(path)
    if table is None:
        return _read_tool_export(path, project)
    key = id_column or _find_id_column(table, project)
    _require_label_column(path, table, key)
    first = 2 if path.suffix in (".csv", ".tsv") else 1  # row numbers as in a spreadsheet
    lines, blank, find_item = [], 0, project.items.find
    for number, row in enumerate(iterate_rows(table), first):
        if is_missing(row["label"]):
            blank += 1
            continue
        where, by = f"row {number} of {path}", row.get("by")
        person = "" if is_missing(by) else str(by).strip()
        seconds = _parse_label_seconds(where, row.get("seconds"))
        try:
            item, label = (
                find_item(row.get(key), named=key in _PATH_COLUMNS),
                parse_label_text(row["label"]),
            )
        except LabelwiseError as error:
            raise BadInput(f"{where}: {error}") from None
        share = _parse_label_seconds(where, row.get("confidence"), "confidence")
        confidence = 1.0 if share is None else min(share, 1.0)
        lines.append(LabelLine(where, item, label, person, seconds, confidence=confidence))
    return lines, blank


def _find_id_column(table: "Columns", project: "Project") -> str:
    own = project.description.id_column
    if "id" not in table and own is not None:
        return own
    if project.kind == "images" and "id" not in table:
        return next((name for name in _PATH_COLUMNS if name in table), _PATH_COLUMNS[0])
    return "id"


def parse_label_text(value: "Label") -> "Label":
    """Convert a text that is a plain integer to one, because a .csv file has only texts."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    whole = text.isascii() and text.isdigit() and len(text) < 19 and str(int(text)) == text
    return int(text) if whole else text


def match_label_class(label: "Label", settings: "Settings") -> "Label":
    """Convert a label from a file to the name of a class.

    A number in a file is a name too: it could otherwise be mistaken for the position of a class.
    """
    return str(label) if settings.classes is not None and isinstance(label, int) else label


def _parse_label_seconds(where: str, value: Any, name: str = "seconds") -> float | None:
    if is_missing(value):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise BadInput(f"{where}: {name} must be a number from 0; got {value!r}")
    return number


def _read_tool_export(path: Path, project: "Project") -> tuple[list[LabelLine], int]:
    """Read a file of Label Studio, or of a tool in `labelwise.campaign.exchange`."""
    from labelwise.campaign.exchange import read_image_labels

    if path.suffix == ".json":
        try:
            content = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path} is not readable JSON ({error})") from None
        if isinstance(content, list):
            return _read_label_studio_tasks(path, content)
    lines = []
    for image in read_image_labels(path):
        where = f"image {image.path!r} of {path}"
        try:
            item = project.items.find(image.path, named=True)
        except LabelwiseError as error:
            raise BadInput(f"{where}: {error}") from None
        lines.append(LabelLine(where, item, image.label))
    return lines, 0


def _read_label_studio_tasks(path: Path, tasks: list[Any]) -> tuple[list[LabelLine], int]:
    """Read one line per annotation (a cancelled one is a skip), and count tasks without any."""
    lines, blank = [], 0
    for number, task in enumerate(tasks, 1):
        where = f"task {number} of {path}"
        try:
            annotations = task["annotations"]
            given = str(task["data"]["labelwise_id"])
            if not given.isdecimal():
                raise KeyError(given)
            item = int(given)
            found = [_parse_task_annotation(where, item, entry) for entry in annotations]
        except (KeyError, TypeError, AttributeError, IndexError):
            raise BadInput(
                f"{where} must have annotations, and labelwise_id in its data, as "
                "labelwise export --out tasks.json writes them"
            ) from None
        lines += found
        blank += not found
    return lines, blank


def _parse_task_annotation(where: str, item: int, annotation: JsonObject) -> LabelLine:
    by = (annotation.get("meta") or {}).get("by") or _name_label_studio_user(
        annotation.get("completed_by")
    )
    seconds = _parse_label_seconds(where, annotation.get("lead_time"))
    if annotation.get("was_cancelled"):
        return LabelLine(where, item, None, str(by), seconds, "skipped in Label Studio")
    values = [result["value"] for result in annotation["result"]]
    values = [value for value in values if "choices" in value or "number" in value]
    if len(values) != 1:
        raise BadInput(f"{where} has {len(values)} labels in an annotation; give one")
    (value,) = values
    if "number" in value:
        return LabelLine(where, item, value["number"], str(by), seconds)
    if len(value["choices"]) != 1:
        raise BadInput(f"{where} has {len(value['choices'])} choices; items have one label")
    return LabelLine(where, item, parse_label_text(value["choices"][0]), str(by), seconds)


def _name_label_studio_user(given: object) -> str:
    """Name a Label Studio user, which is a number or an entry with an e-mail address."""
    if isinstance(given, dict):
        return str(given.get("email") or given.get("id") or "")
    return "" if given is None else str(given)
