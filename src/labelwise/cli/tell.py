"""``labelwise tell``: labels from a file into the record."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from labelwise.cli.app import app
from labelwise.cli.project_option import CampaignOption, open_project
from labelwise.cli.words import many, person
from labelwise.errors import BadInput, LabelwiseError, UnknownName

_TELL = """Take in labels from a file: all of them, or none if one is wrong.

[bold]Examples[/bold]

  labelwise tell batch.csv --by ann

  labelwise tell labels.jsonl

  labelwise tell tasks.json

A .csv, .tsv, .jsonl or .parquet file has the columns id and label, and may have by (who) and \
seconds (how long it took); other columns are left alone, and rows without a label wait. So fill \
in the column label of what labelwise ask wrote. A .json file is Label Studio's export of tasks \
that labelwise export wrote; what was cancelled there is skipped here. A label that the same \
person gave before is changed; labels that are known already are not recorded twice.
"""


@app.command(help=_TELL)
def tell(
    file: Annotated[Path, typer.Argument(help="The labels.", metavar="FILE")],
    by: Annotated[
        str, typer.Option("--by", help="Who gave them, where the file does not say.", metavar="WHO")
    ] = "",
    anything: Annotated[
        bool, typer.Option("--anything", help="Take labels of items never asked for too.")
    ] = False,
    campaign: CampaignOption = None,
) -> None:
    """Take in labels from a file."""
    from labelwise.cli.label_files import read_labels
    from labelwise.cli.status import next_step

    project = open_project(campaign)
    lines, blank = read_labels(file)
    if by:
        lines = [replace(line, by=line.by or by) for line in lines]
    desk = project.desk()
    counts = record(desk, _once(lines), anything=anything, known=project.items)
    print(_summary(counts, blank))
    ledger = desk.ledger()
    for batch in ledger.open_batches:
        print(f"batch {batch.number}: {batch.size - batch.open} of {batch.size} done")
    print(f"next: {next_step(ledger, desk.settings_of(ledger))}")


def _once(lines: Sequence[Any]) -> list[Any]:
    """The lines without repeats; two labels by one person for one item are an error."""
    found: dict[tuple[int, str], Any] = {}
    for line in lines:
        first = found.setdefault((line.id, line.by), line)
        if str(first.label) != str(line.label):
            raise BadInput(
                f"{line.where}: item {line.id} is {line.label!r} by {person(line.by)}, but "
                f"{first.label!r} in {first.where}; keep one"
            )
    return list(found.values())


def record(desk: Any, lines: Sequence[Any], *, anything: bool, known: Any) -> Counter[str]:
    """Record labels and skips of any number of people in one step.

    Args:
        desk: of the campaign.
        lines: what was read.
        anything: whether items that were never asked for may be labelled.
        known: the campaign's items.

    Returns:
        How many labels are ``new``, ``changed`` and ``known``, and how many items ``skipped``.
    """
    from labelwise.campaign.operations import check_person, skipped, told
    from labelwise.cli.label_files import as_told

    def decide(ledger: Any, now: float) -> tuple[list[Any], Counter[str]]:
        settings = desk.settings_of(ledger)
        events: list[Any] = []
        counts: Counter[str] = Counter()
        for line in lines:
            try:
                check_person(line.by)
                _check_id(line.id, ledger, known, anything)
                if line.label is None:
                    new = skipped(ledger, [line.id], reason=line.reason, by=line.by, now=now)
                else:
                    new = told(
                        ledger,
                        settings,
                        {line.id: as_told(line.label, settings)},
                        by=line.by,
                        seconds=line.seconds,
                        anything=True,
                        now=now,
                    )
            except LabelwiseError as error:
                raise BadInput(f"{line.where}: {error}; nothing was recorded") from error
            events += new
            counts[_what(line, new, ledger)] += 1
        return events, counts

    found: Counter[str] = desk.commit(decide)
    return found


def _check_id(item: int, ledger: Any, known: Any, anything: bool) -> None:
    if item in ledger.asked_ids:
        return
    if not anything:
        raise UnknownName(
            f"item {item} was never asked for; check the id, or give --anything to take it"
        )
    if item not in known:
        raise UnknownName(f"the campaign has no item {item}; check the id")


def _what(line: Any, new: Sequence[Any], ledger: Any) -> str:
    if line.label is None:
        return "skipped"
    if not new:
        return "known"
    return "changed" if line.by in ledger.votes.get(line.id, {}) else "new"


def _summary(counts: Counter[str], blank: int) -> str:
    parts = [many(counts["new"], "new label")]
    for name, words in (("changed", "changed"), ("known", "known before"), ("skipped", "skipped")):
        if counts[name]:
            parts.append(f"{counts[name]:,} {words}")
    if blank:
        parts.append(f"{many(blank, 'row')} without a label left out")
    return ", ".join(parts)
