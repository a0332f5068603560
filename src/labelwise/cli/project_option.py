"""What every command of a campaign takes: the campaign's folder."""

from pathlib import Path
from typing import Annotated, Any

import typer

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


def open_project(folder: Path | None) -> Any:
    """The `labelwise.campaign.project.Project` in a folder, or with None the one found here."""
    from labelwise.campaign.project import Project

    return Project.open(folder)
