"""``labelwise export`` and ``labelwise report``: the labels as a file, and a page about them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from labelwise.cli.app import (
    CampaignOption,
    PageOption,
    SpreadsheetOption,
    app,
    complete_command_hints,
    open_project,
)
from labelwise.cli.console import warn_about_formulas
from labelwise.cli.files import check_output_file
from labelwise.cli.predict import write_predictions
from labelwise.display import format_count
from labelwise.errors import BadInput
from labelwise.files import write_json

if TYPE_CHECKING:
    from labelwise.campaign.project import Project


ExchangeFormat = Literal["coco", "cvat", "fiftyone"]  # of `labelwise.campaign.exchange`


@app.command("export")
def export_labels(
    out: Annotated[Path, Option("--out", "-o", help="File: .csv, .jsonl, .parquet or .json.")],
    votes: Annotated[bool, Option("--votes", help="Write a row per vote.")] = False,
    predictions: Annotated[
        bool, Option("--predictions", help="Write every item with the model's prediction.")
    ] = False,
    form: Annotated[
        ExchangeFormat | None,
        Option("--format", help="File for another tool: labels and open picks of images."),
    ] = None,
    spreadsheet: SpreadsheetOption = False,
    campaign: CampaignOption = None,
) -> None:
    """Write the labels to a file, with weights, votes, annotators and times.

    Examples:
        labelwise export --out labels.csv
        labelwise export --out labels.parquet
        labelwise export --out tasks.json
        labelwise export --votes --out votes.jsonl
        labelwise export --predictions --out tasks.json
        labelwise export --format coco --out labels.json

    A .csv, .jsonl or .parquet file has a row per labelled item; weight is the number of pool items
    it represents, validation whether it is held out for evaluation. A .json file is for Label
    Studio: tasks with an annotation per vote, and cancelled ones for skipped items. With --votes
    there is a row per annotator and item, which labelwise tell reads back. With --predictions there
    is an entry for every item, with the model's prediction: for Label Studio, tasks with
    pre-annotations. Texts are written as they are; with --spreadsheet, a .csv file is safe to open
    in Excel, which would compute texts such as =1+1. --format coco, cvat or fiftyone writes the
    labels and the open picks of images for these tools; labelwise tell reads their files.
    """
    from labelwise.campaign import export as files

    if form is not None:
        if votes or predictions or spreadsheet:
            raise BadInput(
                "--format is a file of its own; leave out --votes, --predictions and --spreadsheet"
            )
        _write_exchange_file(out, form, open_project(campaign))
        return

    if predictions:
        if votes:
            raise BadInput("--votes and --predictions are two different files; give one of them")
        write_predictions(out, None, None, spreadsheet, campaign)
        return
    check_output_file(out, files.FORMATS)
    files.check_spreadsheet(out, spreadsheet)
    if votes and out.suffix == ".json":
        raise BadInput("--votes is for tables; a .json file for Label Studio has all votes anyway")
    if votes and spreadsheet:
        raise BadInput(
            "--votes is for labelwise tell, to which an apostrophe is part of a label; leave out "
            "--spreadsheet"
        )
    project = open_project(campaign)
    record, describe = project.open_record(), project.describe_item
    ledger = record.ledger()
    events = project.storage().read(project.name)
    if votes:
        rows = files.vote_rows(ledger, events, describe)
        files.restore_keys(rows, project.items)
        formulas = files.write_table(out, files.VOTE_COLUMNS, rows)
        print(f"{format_count(len(rows), 'vote')} written to {out}")
        warn_about_formulas(out, formulas, "import its columns as text there")
        return
    rows = files.label_rows(ledger, record.labels(), events, describe)
    if out.suffix == ".json":
        regression = record.settings_of(ledger).regression
        tasks = files.label_studio_tasks(
            rows, ledger.skipped, describe, kind=project.kind, regression=regression
        )
        write_json(out, tasks, indent=1)
        print(f"{format_count(len(tasks), 'task')} written to {out}")
        return
    files.restore_keys(rows, project.items)
    formulas = files.write_table(out, files.COLUMNS, rows, spreadsheet=spreadsheet)
    disputed = len(ledger.disagreements())
    command = complete_command_hints("labelwise record disagreements")
    note = f"; {format_count(disputed, 'disputed item')} left out: {command}"
    print(f"{format_count(len(rows), 'label')} written to {out}{note if disputed else ''}")
    warn_about_formulas(out, formulas)


def _write_exchange_file(out: Path, form: ExchangeFormat, project: "Project") -> None:
    """Write labels and open picks of images for another tool."""
    from labelwise.campaign.exchange import ImageLabel, write_image_labels

    check_output_file(out)
    if project.kind != "images":
        raise BadInput(f"--format is for images; the items of {project.name} are {project.kind}")
    record = project.open_record()
    ledger, labels = record.ledger(), record.labels()
    items = dict.fromkeys([*labels, *ledger.waiting])
    images = [
        ImageLabel(
            str(project.items.entry(item)["path"]),
            str(labels[item]) if item in labels else None,
            {"weight": ledger.weight_of(item)},
        )
        for item in items
    ]
    write_image_labels(
        out, form, images, [str(name) for name in project.classes or ()], project.source
    )
    waiting = format_count(len(items) - len(labels), "open pick")
    print(f"{format_count(len(labels), 'label')} and {waiting} written to {out}")


@app.command("report")
def write_campaign_report(
    out: PageOption = Path("report.html"),
    picks: Annotated[int, Option("--picks", help="Number of picks shown per batch.")] = 10,
    campaign: CampaignOption = None,
) -> None:
    """Write a page about the campaign: one self-contained file, in light and dark.

    Examples:
        labelwise report
        labelwise report --out for_the_team.html --picks 20

    Learning curve with its interval, class balance, labels and agreement per annotator, the most
    informative picks, and the costs. Published experiments have their own report: labelwise
    benchmark report.
    """
    from labelwise.campaign.report.data import collect_report, make_item_view
    from labelwise.campaign.report.page import write_report
    from labelwise.record.ledger import replay

    check_output_file(out, (".html", ".htm"))
    if not 0 <= picks <= 1000:
        raise BadInput(f"--picks must be from 0 to 1000; got {picks}")
    project = open_project(campaign)
    events = project.storage().read(project.name)
    view = make_item_view(project.items)
    write_report(collect_report(project.name, replay(events), events, view, picks=picks), out)
    print(f"The report: {out}")
