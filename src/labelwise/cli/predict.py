"""``labelwise predict``: predictions for the items of a campaign or for new ones, as a file."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from labelwise.cli.app import CampaignOption, IdColumnOption, SpreadsheetOption, app, open_project
from labelwise.cli.console import warn_about_formulas
from labelwise.cli.files import check_output_file
from labelwise.display import format_count
from labelwise.errors import BadInput
from labelwise.files import write_json


@app.command("predict")
def predict_items(
    items: Annotated[
        Path | None,
        Argument(help="New items: folder, table or file of features.", metavar="[ITEMS]"),
    ] = None,
    out: Annotated[
        Path, Option("--out", "-o", help="File: .csv, .jsonl, .parquet or .json.")
    ] = Path("predictions.csv"),
    representation: Annotated[
        str | None,
        Option("--representation", help="Encoder whose model predicts (default: the best)."),
    ] = None,
    id_column: IdColumnOption = None,
    spreadsheet: SpreadsheetOption = False,
    campaign: CampaignOption = None,
) -> None:
    """Write the model's predictions for all items of the campaign, or for new ones.

    Examples:
        labelwise predict --out predictions.csv
        labelwise predict new_photos/ --out predictions.jsonl
        labelwise predict more.csv --out predictions.parquet
        labelwise predict --out tasks.json

    A row has the item, the human label if there is one, the predicted class, its probability
    (confidence) and the probabilities of all classes (p:CLASS); for a regression the predicted
    value and the ends of a 95% interval. Probabilities and intervals are calibrated on labels that
    the model was not trained on. New items are a folder of images, a table with the columns of the
    campaign, or a file of features. A .json file has Label Studio tasks with pre-annotations. In
    Python: labelwise.load_model("photos.labelwise").predict(["a.jpg"]).
    """
    write_predictions(out, items, representation, spreadsheet, campaign, id_column)


def write_predictions(
    out: Path,
    items: Path | None,
    representation: str | None,
    spreadsheet: bool,
    campaign: Path | None,
    id_column: str | None = None,
) -> None:
    """Write predictions of new items, or of all items of the campaign, to a file."""
    from labelwise.campaign import export as files
    from labelwise.campaign.trained_model import (
        list_representations,
        open_campaign_model,
        read_item_keys,
        read_values,
    )

    check_output_file(out, files.FORMATS)
    files.check_spreadsheet(out, spreadsheet)
    if items is not None and not items.exists():
        raise BadInput(f"there is no file or folder {items}")
    project = open_project(campaign)
    model = open_campaign_model(project, representation)
    if items is None:
        if id_column is not None:
            raise BadInput("--id is for new items in a table; leave it out")
        ids, known = list(project.items), project.open_record().labels()
        names = [project.describe_item(item) for item in ids]
        found = model.evaluate(model.select_columns(project.inputs))
    else:
        names, values = read_values(model.description, items)
        known = {}
        keys = read_item_keys(model.description, items, id_column)
        ids = list(range(len(names)))
        found = model.evaluate(model.encode_values(values))
    rows = files.prediction_rows(ids, names, known, found)
    if out.suffix == ".json":
        regression = model.encoding.regression
        write_json(out, files.predicted_tasks(rows, kind=project.kind, regression=regression))
        formulas = 0
    else:
        columns = files.prediction_columns(found)
        if items is None:
            files.restore_keys(rows, project.items)
        else:
            rows = [{**row, "id": key} for row, key in zip(rows, keys or ids, strict=True)]
        formulas = files.write_table(out, columns, rows, spreadsheet=spreadsheet)
    (used,) = list_representations(model.description) if model.columns else ("",)
    by = f" by the model of {used}" if used else ""
    print(f"{format_count(len(rows), 'prediction')}{by} written to {out}")
    warn_about_formulas(out, formulas)
