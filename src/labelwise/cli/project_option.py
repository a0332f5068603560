"""What commands of a campaign share: the campaign's folder, and tables for spreadsheets."""

from pathlib import Path
from typing import Annotated, Any

import typer

from labelwise.cli.hints import remember

CampaignOption = Annotated[
    Path | None,
    typer.Option(
        "--campaign",
        "-c",
        help="The campaign's folder. (the one found here)",
        metavar="FOLDER",
    ),
]
"""``-c`` or ``--campaign``; give it to `open_project`."""

SpreadsheetOption = Annotated[
    bool,
    typer.Option(
        "--spreadsheet",
        help="Write a .csv file for Excel and the like: ' before texts that they would compute.",
    ),
]


def open_project(folder: Path | None) -> Any:
    """The `labelwise.campaign.project.Project` in a folder, or with None the one found here."""
    from labelwise.campaign.project import Project

    remember(folder)
    return Project.open(folder)
