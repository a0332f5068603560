"""What people do besides labelling: skip, take back, settle, lend, and change settings."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from labelwise.cli.app import app
from labelwise.cli.console import names_in
from labelwise.cli.hints import pasteable
from labelwise.cli.project_option import CampaignOption, SpreadsheetOption, open_project
from labelwise.cli.words import formula_note, many, person, safe
from labelwise.errors import BadInput

ByOption = Annotated[str, typer.Option("--by", help="Who does it.", metavar="WHO")]
Ids = Annotated[list[int], typer.Argument(help="Items.", metavar="ID...")]


@app.command()
def skip(
    ids: Ids,
    reason: Annotated[str, typer.Option("--reason", help="Why.", metavar="TEXT")] = "",
    by: ByOption = "",
    campaign: CampaignOption = None,
) -> None:
    """Say that items should not be labelled.

    A later label of such an item counts all the same; labelwise withdraw brings it back.
    """
    open_project(campaign).desk().skip(ids, reason=reason, by=by)
    print(f"{many(len(set(ids)), 'item')} skipped")


@app.command()
def withdraw(ids: Ids, by: ByOption = "", campaign: CampaignOption = None) -> None:
    """Take back a person's labels or skips of items, which then wait again."""
    open_project(campaign).desk().withdraw(ids, by=by)
    print(f"{many(len(set(ids)), 'item')} withdrawn")


@app.command()
def undo(by: ByOption = "", campaign: CampaignOption = None) -> None:
    """Take back the last label or skip of a person."""
    item = open_project(campaign).desk().undo(by)
    if item is None:
        raise BadInput(f"{person(by)} has nothing to take back; see labelwise history")
    print(f"item {item}: taken back")


@app.command("give-back")
def give_back(
    by: ByOption = "",
    ids: Annotated[
        list[int] | None, typer.Argument(help="Items; else all.", metavar="[ID]...")
    ] = None,
    campaign: CampaignOption = None,
) -> None:
    """Let others label what labelwise ask --lend kept for a person."""
    desk = open_project(campaign).desk()
    before = _held(desk, by)
    desk.give_back(by, ids or None)
    print(f"{many(before - _held(desk, by), 'item')} given back")


def _held(desk: Any, by: str) -> int:
    found: int = desk.look(lambda ledger: sum(by in people for people in ledger.loans.values()))
    return found


_RESOLVE = """Settle which label items have, whatever people said.

[bold]Examples[/bold]

  labelwise resolve 12=cat 40=dog --by eve

  labelwise resolve --from settled.csv --by eve

The file is what labelwise disagreements --out wrote, with the column label filled in.
"""


@app.command(help=_RESOLVE)
def resolve(
    labels: Annotated[
        list[str] | None, typer.Argument(help="Items and labels.", metavar="[ID=LABEL]...")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--from", help="A file with id and label.", metavar="FILE")
    ] = None,
    by: ByOption = "",
    campaign: CampaignOption = None,
) -> None:
    """Settle which label items have."""
    from labelwise.cli.label_files import as_told, read_labels

    desk = open_project(campaign).desk()
    given = _pairs(labels or [])
    if file is not None:
        given |= {line.id: line.label for line in read_labels(file)[0] if line.label is not None}
    if not given:
        raise BadInput("nothing to settle; give ID=LABEL, or --from a file with some")
    settings = desk.settings
    desk.resolve({item: as_told(label, settings) for item, label in given.items()}, by=by)
    print(f"{many(len(given), 'item')} settled")


def _pairs(texts: Sequence[str]) -> dict[int, Any]:
    from labelwise.cli.label_files import as_label

    found = {}
    for text in texts:
        item, equals, label = text.partition("=")
        if not equals or not item.strip().isdecimal() or not label.strip():
            raise BadInput(f"write the item and its label as 12=cat; got {text!r}")
        found[int(item)] = as_label(label)
    return found


_DISAGREEMENTS = """List the items that people disagree about.

[bold]Examples[/bold]

  labelwise disagreements

  labelwise disagreements --out disputed.csv

With --out, the file has an empty column label: fill it in for labelwise resolve --from.
"""


@app.command(help=_DISAGREEMENTS)
def disagreements(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .csv, .jsonl or .parquet file.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    spreadsheet: SpreadsheetOption = False,
    campaign: CampaignOption = None,
) -> None:
    """List the items that people disagree about."""
    from labelwise.campaign.export import write_table

    project = open_project(campaign)
    describe = describer(project)
    found = project.desk().look(lambda ledger: ledger.disagreements())
    rows = [
        {
            "id": entry.id,
            "item": describe(entry.id),
            "label": None,
            "votes": [{"by": by, "label": label} for by, label in entry.votes.items()],
        }
        for entry in found
    ]
    if out is not None:
        columns = ("id", "item", "label", "votes")
        formulas = write_table(out, columns, rows, spreadsheet=spreadsheet)
        print(f"{many(len(rows), 'disputed item')} written to {out}")
        formula_note(out, formulas)
    elif as_json:
        print(json.dumps(rows))
    else:
        for row in rows:
            votes = ", ".join(f"{person(v['by'])}: {safe(v['label'], 40)}" for v in row["votes"])
            print(f"{row['id']:>8}  {safe(row['item'], 60)}  {votes}")
        settle = pasteable(": labelwise resolve ID=LABEL") if rows else ""
        print(f"{many(len(rows), 'disputed item')}{settle}")


_CHANGE = """Change settings of the campaign from now on.

[bold]Examples[/bold]

  labelwise change

  labelwise change batch=20 strategy=margin

  labelwise change budget_money=200 price=0.05 overlap=2

Without settings it lists them. none takes a setting away; an option of the strategy is written \
options.p=1.5. Batches that were asked for stay as they are.
"""


@app.command(help=_CHANGE)
def change(
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings.", metavar="[NAME=VALUE]...")
    ] = None,
    by: ByOption = "",
    campaign: CampaignOption = None,
) -> None:
    """Change settings of the campaign."""
    desk = open_project(campaign).desk()
    if settings:
        before = desk.settings
        after = desk.change(by=by, **_values(settings, before))
        old, new = before.to_dict(), after.to_dict()
        for name in new:
            if new[name] != old[name]:
                print(f"{name}: {safe(_shown(old[name]))} -> {safe(_shown(new[name]))}")
        if old == new:
            print("nothing changed: that is how it is already")
        return
    for name, value in desk.settings.to_dict().items():
        print(f"{name}={safe(_shown(value))}")


def _values(texts: Sequence[str], settings: Any) -> dict[str, Any]:
    """Settings from their texts, each of the type that the setting has."""
    from dataclasses import fields

    kinds = {entry.name: str(entry.type) for entry in fields(settings)}
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"write a setting and its value as batch=20; got {text!r}")
        name = name.strip()
        if name.startswith("options."):
            own = found.setdefault("options", dict(settings.options))
            own[name.removeprefix("options.")] = _plain(value)
        else:
            found[name] = _typed(name, value.strip(), kinds.get(name, ""))
    return found


def _typed(name: str, text: str, kind: str) -> Any:
    if text.lower() == "none" and "None" in kind:
        return None
    if name == "classes":
        return names_in(text)
    if "bool" in kind:
        if text.lower() not in ("true", "false", "yes", "no"):
            raise BadInput(f"{name} is true or false; got {text!r}")
        return text.lower() in ("true", "yes")
    return _plain(text) if "int" in kind or "float" in kind else text


def _plain(text: str) -> Any:
    """A number if it reads as one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    words = {"true": True, "false": False, "none": None}
    return words.get(text.lower(), text)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(entry) for entry in value)
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def describer(project: Any) -> Any:
    """A function from an id to the item as text: a path, a text, or named numbers."""

    def describe(item: int) -> str:
        try:
            about = project.items.describe(item)
        except LookupError:
            return ""  # a label may be of an item that was taken out of the folder since
        for key in ("text", "name"):
            if key in about:
                return str(about[key])
        return json.dumps(about.get("columns", {}), ensure_ascii=False)

    return describe
