"""``labelwise export``: the labels as a file."""

from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.app import app
from labelwise.cli.hints import pasteable
from labelwise.cli.outputs import check_file
from labelwise.cli.project_option import CampaignOption, SpreadsheetOption, open_project
from labelwise.cli.words import formula_note, many
from labelwise.errors import BadInput

_EXPORT = """Write the labels to a file, with weights, votes, who gave them and when.

[bold]Examples[/bold]

  labelwise export --out labels.csv

  labelwise export --out labels.parquet

  labelwise export --out tasks.json

  labelwise export --votes --out votes.jsonl

A .csv, .jsonl or .parquet file has a row per labelled item; weight is how many items of the pool \
it stands for, validation whether it was only measured on. A .json file is Label Studio's: \
tasks with an annotation per vote, and what was skipped as cancelled ones. With --votes there is a \
row per person and item, which labelwise tell reads back. Texts are written as they are; with \
--spreadsheet, a .csv file is safe to open in Excel and the like, which compute texts such as =1+1.
"""


@app.command(help=_EXPORT)
def export(
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help=".csv, .jsonl, .parquet or .json.", metavar="FILE"),
    ],
    votes: Annotated[
        bool, typer.Option("--votes", help="A row per vote rather than per item.")
    ] = False,
    spreadsheet: SpreadsheetOption = False,
    campaign: CampaignOption = None,
) -> None:
    """Write the labels to a file."""
    from labelwise.campaign import export as files
    from labelwise.cli.people import describer

    check_file(out)
    files.check_out(out)
    files.check_spreadsheet(out, spreadsheet)
    if votes and out.suffix == ".json":
        raise BadInput("--votes is for tables; Label Studio's .json has all votes anyway")
    if votes and spreadsheet:
        raise BadInput(
            "--votes is for labelwise tell, to which an apostrophe is part of a label; leave out "
            "--spreadsheet"
        )
    project = open_project(campaign)
    desk, describe = project.desk(), describer(project)
    ledger = desk.ledger()
    events = project.storage().read(project.name)
    if votes:
        rows = files.vote_rows(ledger, events, describe)
        formulas = files.write_table(out, files.VOTE_COLUMNS, rows)
        print(f"{many(len(rows), 'vote')} written to {out}")
        formula_note(out, formulas, "import its columns as text there")
        return
    rows = files.label_rows(ledger, desk.labels(), events, describe)
    if out.suffix == ".json":
        regression = desk.settings_of(ledger).regression
        tasks = files.label_studio_tasks(
            rows, ledger.skipped, describe, kind=project.kind, regression=regression
        )
        files.write_json(out, tasks)
        print(f"{many(len(tasks), 'task')} written to {out}")
        return
    formulas = files.write_table(out, files.COLUMNS, rows, spreadsheet=spreadsheet)
    disputed = len(ledger.disagreements())
    command = pasteable("labelwise disagreements")
    note = f"; {many(disputed, 'disputed item')} left out: {command}"
    print(f"{many(len(rows), 'label')} written to {out}{note if disputed else ''}")
    formula_note(out, formulas)
