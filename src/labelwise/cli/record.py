"""``labelwise record`` and ``labelwise skip``: history, corrections and disputes of a campaign."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from labelwise.cli.app import (
    ByOption,
    CampaignOption,
    JsonOption,
    SpreadsheetOption,
    add_record_command,
    app,
    complete_command_hints,
    name_items_in_text,
    open_project,
    record_group,
)
from labelwise.cli.console import warn_about_formulas
from labelwise.display import escape_text, format_count, format_person, format_time
from labelwise.errors import BadInput, UnknownName
from labelwise.files import JsonObject

if TYPE_CHECKING:
    from labelwise.campaign.campaign_record import CampaignRecord
    from labelwise.campaign.project import Project
    from labelwise.learner import Label
    from labelwise.record.events import Event

OutOption = Annotated[Path | None, Option("--out", "-o", help="File: .csv, .jsonl or .parquet.")]
ItemIds = Annotated[list[str], Argument(help="Items.", metavar="ID...")]


def _find_item_numbers(project: "Project", ids: Sequence[str]) -> list[int]:
    """The numbers of items by the user's ids."""
    return [project.items.find(text) for text in ids]


@app.command("skip")
def skip_items(
    ids: ItemIds,
    reason: Annotated[str, Option("--reason", help="Reason.")] = "",
    by: ByOption = "",
    campaign: CampaignOption = None,
) -> None:
    """Mark items that should not be labelled.

    A later label of such an item still counts; labelwise record withdraw brings it back.
    """
    project = open_project(campaign)
    project.open_record().skip(_find_item_numbers(project, ids), reason=reason, by=by)
    print(f"{format_count(len(set(ids)), 'item')} skipped")


@add_record_command("withdraw")
def withdraw_labels(ids: ItemIds, by: ByOption = "", campaign: CampaignOption = None) -> None:
    """Withdraw the labels or skips of items by one annotator; the items are open again."""
    project = open_project(campaign)
    project.open_record().withdraw(_find_item_numbers(project, ids), by=by)
    print(f"{format_count(len(set(ids)), 'item')} withdrawn")


@add_record_command("undo")
def undo_last_label(by: ByOption = "", campaign: CampaignOption = None) -> None:
    """Withdraw the last label or skip of an annotator."""
    project = open_project(campaign)
    item = project.open_record().undo(by)
    if item is None:
        raise BadInput(f"{format_person(by)} has nothing to undo; see labelwise record history")
    print(f"item {project.items.key(item)}: withdrawn")


@add_record_command("give-back")
def give_back_items(
    by: ByOption = "",
    ids: Annotated[
        list[str] | None, Argument(help="Items (default: all).", metavar="[ID]...")
    ] = None,
    campaign: CampaignOption = None,
) -> None:
    """Release items that labelwise ask --lend reserved for an annotator."""
    project = open_project(campaign)
    record = project.open_record()
    before = _count_reserved_items(record, by)
    record.give_back(by, _find_item_numbers(project, ids or []) or None)
    print(f"{format_count(before - _count_reserved_items(record, by), 'item')} given back")


def _count_reserved_items(record: "CampaignRecord", by: str) -> int:
    return record.look(lambda ledger: sum(by in people for people in ledger.leases.values()))


@add_record_command("resolve")
def resolve_labels(
    labels: Annotated[
        list[str] | None, Argument(help="Items and labels.", metavar="[ID=LABEL]...")
    ] = None,
    file: Annotated[Path | None, Option("--from", help="File with id and label.")] = None,
    by: ByOption = "",
    campaign: CampaignOption = None,
) -> None:
    """Decide the labels of items, overriding the annotators.

    Examples:
        labelwise record resolve 12=cat 40=dog --by eve
        labelwise record resolve --from settled.csv --by eve

    The file is one that labelwise record disagreements --out wrote, with the column label filled
    in.
    """
    from labelwise.cli.tell import match_label_class, read_label_file

    project = open_project(campaign)
    record, given = project.open_record(), _parse_resolved_labels(project, labels or [])
    if file is not None:
        lines, _ = read_label_file(file, project)
        given |= {line.id: line.label for line in lines if line.label is not None}
    if not given:
        raise BadInput("nothing to settle; give ID=LABEL, or --from a file with labels")
    settings = record.settings
    record.resolve(
        {item: match_label_class(label, settings) for item, label in given.items()}, by=by
    )
    print(f"{format_count(len(given), 'item')} settled")


def _parse_resolved_labels(project: "Project", texts: Sequence[str]) -> "dict[int, Label]":
    from labelwise.cli.tell import parse_label_text

    found = {}
    for text in texts:
        item, equals, label = text.partition("=")
        if not equals or not item.strip() or not label.strip():
            raise BadInput(f"write the item and its label as 12=cat; got {text!r}")
        found[project.items.find(item)] = parse_label_text(label)
    return found


@add_record_command("disagreements")
def list_disagreements(
    out: OutOption = None,
    as_json: JsonOption = False,
    spreadsheet: SpreadsheetOption = False,
    campaign: CampaignOption = None,
) -> None:
    """List the items with different labels by different annotators.

    Examples:
        labelwise record disagreements
        labelwise record disagreements --out disputed.csv

    With --out, the file has an empty column label: fill it in for labelwise record resolve --from.
    """
    project = open_project(campaign)
    rows, words = [], []
    for entry in project.open_record().look(lambda ledger: ledger.disagreements()):
        votes = [{"by": by, "label": label} for by, label in entry.votes.items()]
        rows.append({**_describe_disputed_item(project, entry.id), "votes": votes})
        shown = [f"{format_person(by)}: {escape_text(v, 40)}" for by, v in entry.votes.items()]
        words.append(", ".join(shown))
    _report_disputed_items(rows, words, "disputed item", ("votes",), out, as_json, spreadsheet)


def _describe_disputed_item(project: "Project", item: int) -> JsonObject:
    """The id of an item, the item as text, and the empty label that a person fills in."""
    return {"id": project.items.key(item), "item": project.describe_item(item), "label": None}


def _report_disputed_items(
    rows: Sequence[JsonObject],
    words: Sequence[str],
    noun: str,
    columns: Sequence[str],
    out: Path | None,
    as_json: bool,
    spreadsheet: bool,
) -> None:
    """Write items that somebody has to decide to a file, or print them as JSON or lines."""
    from labelwise.campaign.export import write_table

    count = format_count(len(rows), noun)
    if out is not None:
        every = ("id", "item", "label", *columns)
        formulas = write_table(out, every, rows, spreadsheet=spreadsheet)
        print(f"{count} written to {out}")
        warn_about_formulas(out, formulas)
    elif as_json:
        print(json.dumps(rows))
    else:
        for row, about in zip(rows, words, strict=True):
            print(f"{row['id']:>8}  {escape_text(row['item'], 60)}  {about}")
        settle = complete_command_hints(": labelwise record resolve ID=LABEL") if rows else ""
        print(f"{count}{settle}")


@record_group.command("suspects")
def list_suspects(
    out: OutOption = None,
    as_json: JsonOption = False,
    spreadsheet: SpreadsheetOption = False,
    campaign: CampaignOption = None,
) -> None:
    """List the labels that are most likely wrong, by the model's cross-validation.

    Examples:
        labelwise record suspects
        labelwise record suspects --out suspects.csv

    Each label was predicted by a model that was not trained on it. Decide with labelwise record
    resolve ID=LABEL. With --out, fill in the column label for labelwise record resolve --from.
    """
    from labelwise.campaign.evaluation import list_suspicious_labels

    project = open_project(campaign)
    rows, words = [], []
    for one in project.open_record().look(list_suspicious_labels):
        about = {"current": one.label, "suggested": one.suggested, "probability": one.probability}
        rows.append({**_describe_disputed_item(project, one.id), **about})
        label, rather = escape_text(one.label, 40), escape_text(one.suggested, 40)
        words.append(f"{label}, rather {rather}?")
    columns = ("current", "suggested", "probability")
    _report_disputed_items(rows, words, "suspicious label", columns, out, as_json, spreadsheet)


@add_record_command("history")
def show_history(
    last: Annotated[int, Option("--last", "-n", help="Number of lines; 0 for all.")] = 30,
    item: Annotated[str | None, Option("--item", help="Only events of this item.")] = None,
    as_json: JsonOption = False,
    campaign: CampaignOption = None,
) -> None:
    """Show the events of the campaign, oldest first; consecutive labels are one line.

    Examples:
        labelwise record history
        labelwise record history --last 100
        labelwise record history --item 12
        labelwise record history --json > record.jsonl

    With --json, every event is printed as one line, as it is stored.
    """
    from labelwise.campaign.history import describe_events
    from labelwise.record.events import event_to_json

    if last < 0:
        raise BadInput(f"--last must be 0 or more; got {last}")
    project = open_project(campaign)
    events = project.storage().read(project.name)
    if item is not None:
        number = project.items.find(item)
        events = [event for event in events if _event_concerns_item(event, number)]
        if not events and number not in project.items:
            raise UnknownName(f"the campaign has no item {item}; check the id")
        if not events and not as_json:
            print(f"item {item} has no events yet; it was never asked for")
    if as_json:
        for event in events:
            print(json.dumps(event_to_json(event)))
        return
    lines = [
        f"{format_time(at)}  {name_items_in_text(words)}" for at, words in describe_events(events)
    ]
    if last and len(lines) > last:
        which = "" if item is None else f" --item {item}"
        command = complete_command_hints(f"labelwise record history{which} --last 0")
        print(f"({format_count(len(lines) - last, 'earlier line')}: {command})")
    for line in lines[-last:] if last else lines:
        print(line)


def _event_concerns_item(event: "Event", item: int) -> bool:
    ids = (*getattr(event, "ids", ()), *getattr(event, "validation", ()))
    return getattr(event, "id", None) == item or item in ids
