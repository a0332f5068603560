"""``labelwise report``: a page about a campaign."""

from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.app import app
from labelwise.cli.outputs import check_file
from labelwise.cli.project_option import CampaignOption, open_project
from labelwise.errors import BadInput

_REPORT = """Write a page about the campaign: one file, in light and dark, that needs nothing else.

[bold]Examples[/bold]

  labelwise report

  labelwise report --out for_the_team.html --picks 20

The learning curve with its interval, the balance of the classes, who labelled how much and how \
far they agree, the picks that taught most, and the costs. The experiments of the papers have a \
report of their own: labelwise benchmark report.
"""


@app.command("report", help=_REPORT)
def campaign_report(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The page to write.", metavar="FILE")
    ] = Path("report.html"),
    picks: Annotated[
        int, typer.Option("--picks", help="How many of each batch to show.", metavar="N")
    ] = 10,
    campaign: CampaignOption = None,
) -> None:
    """Write a page about the campaign."""
    from labelwise.campaign.export import check_out
    from labelwise.campaign.report.facts import gather, shower
    from labelwise.campaign.report.page import write_report
    from labelwise.record.ledger import replay

    check_file(out)
    check_out(out, (".html", ".htm"))
    if not 0 <= picks <= 1000:
        raise BadInput(f"--picks must be from 0 to 1000; got {picks}")
    project = open_project(campaign)
    events = project.storage().read(project.name)
    facts = gather(project.name, replay(events), events, shower(project.items), picks=picks)
    write_report(facts, out)
    print(f"The report: {out}")
