"""``labelwise ask``: write the batch to label to a file."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from labelwise.cli.app import (
    BatchOption,
    CampaignOption,
    SeedOption,
    SpreadsheetOption,
    StrategyOption,
    StrategyOptions,
    app,
    complete_command_hints,
    open_project,
    quote_shell_path,
)
from labelwise.cli.console import show_progress, warn_about_formulas
from labelwise.cli.files import check_output_file, parse_strategy_options, split_option_texts
from labelwise.display import escape_text, format_count, format_person
from labelwise.errors import BadInput
from labelwise.files import JsonObject

if TYPE_CHECKING:
    from labelwise.campaign.campaign_record import CampaignRecord
    from labelwise.campaign.project import Project
    from labelwise.campaign.settings import Settings
    from labelwise.learner import Label
    from labelwise.record.events import Asked
    from labelwise.record.ledger import Ledger

COLUMNS = ("id", "item", "label", "rank", "weight", "why")


@app.command("ask")
def ask_for_labels(
    out: Annotated[Path, Option("--out", "-o", help="File: .csv, .jsonl or .parquet.")],
    strategy: StrategyOption = None,
    batch: BatchOption = None,
    option: StrategyOptions = None,
    seed: SeedOption = None,
    guesses: Annotated[bool, Option("--guesses", help="Add the model's predictions.")] = False,
    ahead: Annotated[bool, Option("--ahead", help="Select while a batch is open.")] = False,
    lend: Annotated[
        int | None, Option("--lend", help="Write at most N items, reserved for --by.", metavar="N")
    ] = None,
    by: Annotated[str, Option("--by", help="Annotator who will label them.")] = "",
    spreadsheet: SpreadsheetOption = False,
    campaign: CampaignOption = None,
) -> None:
    """Write the next items to label to a file; select them first if no batch is open.

    Examples:
        labelwise ask --out batch.csv
        labelwise ask --out batch.csv --strategy margin --batch 20 --option temperature=2
        labelwise ask --out anns.csv --lend 20 --by ann

    Fill in the column label, then run labelwise tell batch.csv. The file has id, item (a path or a
    text), rank, weight (number of pool items it represents) and why it was chosen; --guesses adds
    the model's prediction, which people tend to follow. While a batch is open, ask writes the rest
    of it. With --lend, the items are reserved for one person for a while.
    """
    from labelwise.campaign.export import TABLE_FORMATS, check_spreadsheet, write_table

    check_output_file(out, TABLE_FORMATS)
    check_spreadsheet(out, spreadsheet)
    project = open_project(campaign)
    record = project.open_record()
    wanted = {"strategy": strategy, "budget": batch, "seed": seed}
    _open_batch_to_ask(project, record, wanted, option or [], ahead)
    gone = project.close_missing(record)
    if gone:
        some = ", ".join(map(str, gone[:10])) + (", ..." if gone[10:] else "")
        items = format_count(len(gone), "item")
        print(f"note: {items} left out because files are missing: {some}", file=sys.stderr)
    ids = list(record.ledger().waiting) if lend is None else record.lend(by, lend)
    rows = record.look(lambda ledger: _make_batch_rows(project, ledger, ids))
    extra = ("guess", "confidence") if guesses else ()
    formulas = write_table(out, (*COLUMNS, *extra), rows, spreadsheet=spreadsheet)
    reserved = "" if lend is None else f", reserved for {format_person(by)}"
    print(f"{format_count(len(rows), 'item')} to label written to {out}{reserved}")
    if rows:
        command = f"labelwise tell {quote_shell_path(out)}"
        print(complete_command_hints(f"next: fill in the column label, then {command}"))
    warn_about_formulas(out, formulas)


def _open_batch_to_ask(
    project: "Project",
    record: "CampaignRecord",
    wanted: JsonObject,
    options: Sequence[str],
    ahead: bool,
) -> None:
    """Select a batch if none is open; only then is the model loaded."""
    from labelwise.strategies import get

    ledger = record.ledger()
    if ledger.open_batches and not ahead:
        found = ledger.open_batches[0]
        given = [name for name, value in wanted.items() if value is not None]
        given += ["option"] if options else []
        if given:
            raise BadInput(
                f"batch {found.number} is open ({format_count(found.open, 'item')} to label), so "
                f"{' and '.join(given)} would have no effect; label it first"
            )
        print(f"batch {found.number} is open: {found.size - found.open} of {found.size} done")
        return
    settings = record.settings_of(ledger)
    name = wanted["strategy"] or (settings.strategy if ledger.trainings else settings.first)
    values = parse_strategy_options(get(name), split_option_texts(options))
    if wanted["budget"] is None:
        wanted = {**wanted, "budget": _limit_batch_to_budget(ledger, settings)}
    with show_progress() as progress:
        picks = project.campaign(progress=progress).ask(**wanted, ahead=ahead, **values)
    info = picks.info
    items, chosen_by = format_count(len(picks), "item"), escape_text(info["strategy"])
    words = f"batch {info['batch']}: {items} chosen by {chosen_by}"
    if info["validation"]:
        words += f", {len(info['validation'])} of them drawn at random for evaluation"
    print(words)


def _limit_batch_to_budget(ledger: "Ledger", settings: "Settings") -> int | None:
    """Return the size of a batch that the budget still pays for; None for the usual size."""
    from labelwise.campaign.costs import campaign_cost
    from labelwise.campaign.runner import count_items_to_ask

    usual = min(settings.batch, ledger.items - len(ledger.asked_ids))
    left = count_items_to_ask(ledger, settings)
    if left >= usual:
        return None
    if left == 0:
        raise BadInput(
            f"the budget is spent: {campaign_cost(ledger, settings).says}; raise it with labelwise "
            "change, or give the number of items with --batch"
        )
    return left


def find_pick_guess(asked: "Asked", rank: int) -> "tuple[Label | None, float | None]":
    """Find the model's prediction for a pick, and its confidence; a number has none."""
    if asked.guesses is not None:
        label, confidence = asked.guesses[rank]
        return label, confidence
    predicted = asked.info.get("predicted", ())
    return (predicted[rank] if rank < len(predicted) else None), None


def _make_batch_rows(
    project: "Project", ledger: "Ledger", ids: Sequence[int]
) -> list[dict[str, object]]:
    """Make a row per item, in the order of picking."""
    from labelwise.campaign.explanations import explain_pick

    rows: list[dict[str, object]] = []
    for item in ids:
        pick = ledger.pick_of(item)
        assert pick is not None  # every id is of an open batch
        guess, confidence = find_pick_guess(*pick)
        rows.append(
            {
                "id": project.items.key(item),
                "item": project.describe_item(item),
                "label": None,
                "rank": pick.rank,
                "weight": ledger.weight_of(item),
                "why": explain_pick(*pick),
                "guess": guess,
                "confidence": confidence,
            }
        )
    return rows
