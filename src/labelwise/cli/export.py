"""``labelwise export``: the labels as a file."""

from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.app import app
from labelwise.cli.project_option import CampaignOption, open_project
from labelwise.cli.words import many
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
row per person and item, which labelwise tell reads back.
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
    campaign: CampaignOption = None,
) -> None:
    """Write the labels to a file."""
    from labelwise.campaign import export as files
    from labelwise.cli.people import describer

    files.check_out(out)
    if votes and out.suffix == ".json":
        raise BadInput("--votes is for tables; Label Studio's .json has all votes anyway")
    project = open_project(campaign)
    desk, describe = project.desk(), describer(project)
    ledger = desk.ledger()
    events = project.storage().read(project.name)
    if votes:
        rows = files.vote_rows(ledger, events, describe)
        files.write_table(out, files.VOTE_COLUMNS, rows)
        print(f"{many(len(rows), 'vote')} written to {out}")
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
    files.write_table(out, files.COLUMNS, rows)
    disputed = len(ledger.disagreements())
    note = f"; {many(disputed, 'disputed item')} left out: labelwise disagreements"
    print(f"{many(len(rows), 'label')} written to {out}{note if disputed else ''}")
