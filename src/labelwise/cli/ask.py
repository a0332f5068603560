"""``labelwise ask``: the batch to label, as a file."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from labelwise.cli.app import app
from labelwise.cli.console import bars
from labelwise.cli.hints import pasteable, quoted
from labelwise.cli.outputs import check_file
from labelwise.cli.project_option import CampaignOption, SpreadsheetOption, open_project
from labelwise.cli.words import formula_note, many, person, safe
from labelwise.errors import BadInput

_ASK = """Write the items to label next to a file; choose them first if no batch is open.

[bold]Examples[/bold]

  labelwise ask --out batch.csv

  labelwise ask --out batch.csv --strategy margin --batch 20 --option temperature=2

  labelwise ask --out anns.csv --lend 20 --by ann

Fill in the column label, then labelwise tell batch.csv. The file has id, item (a path or a text), \
rank, weight (how many items of the pool it stands for) and why it was chosen; --guesses adds what \
the model takes it for, which people tend to follow. As long as a batch is open, ask gives the \
rest of it. With --lend, the items are kept for one person for a while.
"""

COLUMNS = ("id", "item", "label", "rank", "weight", "why")


@app.command(help=_ASK)
def ask(
    out: Annotated[
        Path, typer.Option("--out", "-o", help=".csv, .jsonl or .parquet.", metavar="FILE")
    ],
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy", "-s", help="What chooses (else the campaign's).", metavar="NAME"
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", "-b", help="How many items (else the campaign's).", metavar="N"),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the strategy; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Decides every draw (else the campaign's).", metavar="N")
    ] = None,
    guesses: Annotated[
        bool, typer.Option("--guesses", help="Add the model's guess and its confidence.")
    ] = False,
    ahead: Annotated[
        bool, typer.Option("--ahead", help="Choose the next batch while the tail is open.")
    ] = False,
    lend: Annotated[
        int | None, typer.Option("--lend", help="Only so many, kept for --by.", metavar="N")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Who will label them.", metavar="WHO")] = "",
    spreadsheet: SpreadsheetOption = False,
    campaign: CampaignOption = None,
) -> None:
    """Write the items to label next to a file."""
    from labelwise.campaign.export import FORMATS, check_out, check_spreadsheet, write_table

    check_file(out)
    check_out(out, FORMATS[:3])
    check_spreadsheet(out, spreadsheet)
    project = open_project(campaign)
    desk = project.desk()
    wanted = {"strategy": strategy, "budget": batch, "seed": seed}
    _open_batch(project, desk, wanted, option or [], ahead)
    gone = project.close_missing(desk)
    if gone:
        some = ", ".join(map(str, gone[:10])) + (", ..." if gone[10:] else "")
        print(
            f"note: {many(len(gone), 'item')} left out, whose files are gone: {some}",
            file=sys.stderr,
        )
    ids = list(desk.ledger().waiting) if lend is None else desk.lend(by, lend)
    rows = desk.look(lambda ledger: _rows(project, ledger, ids))
    extra = ("guess", "confidence") if guesses else ()
    formulas = write_table(out, (*COLUMNS, *extra), rows, spreadsheet=spreadsheet)
    kept = "" if lend is None else f", kept for {person(by)}"
    print(f"{many(len(rows), 'item')} to label written to {out}{kept}")
    if rows:
        print(pasteable(f"next: fill in the column label, then labelwise tell {quoted(out)}"))
    formula_note(out, formulas)


def _open_batch(
    project: Any, desk: Any, wanted: dict[str, Any], options: Sequence[str], ahead: bool
) -> None:
    """Choose a batch if none is open; the model is loaded only for that."""
    ledger = desk.ledger()
    if ledger.open_batches and not ahead:
        found = ledger.open_batches[0]
        given = [name for name, value in wanted.items() if value is not None]
        given += ["option"] if options else []
        if given:
            raise BadInput(
                f"batch {found.number} is open ({many(found.open, 'item')} to label), so "
                f"{' and '.join(given)} would have no effect; label it first"
            )
        print(f"batch {found.number} is open: {found.size - found.open} of {found.size} done")
        return
    settings = desk.settings_of(ledger)
    name = wanted["strategy"] or (settings.strategy if ledger.trainings else settings.first)
    values = _options(name, options)
    if wanted["budget"] is None:
        wanted = {**wanted, "budget": _affordable(ledger, settings)}
    with bars(Console(stderr=True)) as progress:
        picks = project.campaign(progress=progress).ask(**wanted, ahead=ahead, **values)
    info = picks.info
    words = f"batch {info['batch']}: {many(len(picks), 'item')} chosen by {safe(info['strategy'])}"
    if info["validation"]:
        words += f", {len(info['validation'])} of them at random for measuring"
    print(words)


def _affordable(ledger: Any, settings: Any) -> int | None:
    """A smaller batch than usual, where the budget pays for no more; None for the usual one."""
    from labelwise.campaign.costs import spent
    from labelwise.web.steps import left_to_ask

    usual = min(settings.batch, ledger.items - len(ledger.asked_ids))
    left = left_to_ask(ledger, settings)
    if left >= usual:
        return None
    if left == 0:
        raise BadInput(
            f"the budget is spent: {spent(ledger, settings).says}; raise it with labelwise change, "
            "or say how many you want all the same with --batch"
        )
    return left


def _options(strategy: str, texts: Sequence[str]) -> dict[str, Any]:
    from labelwise.cli.option_values import parse_options
    from labelwise.strategies import get

    for text in texts:
        if "=" not in text:
            raise BadInput(f"--option is written name=value; got {text!r}")
    return parse_options(get(strategy), dict(text.split("=", 1) for text in texts))


def _guess(asked: Any, rank: int) -> tuple[Any, float | None]:
    """The model's guess and its confidence; an amount comes without one."""
    if asked.guesses is not None:
        label, confidence = asked.guesses[rank]
        return label, confidence
    predicted = asked.info.get("predicted", ())
    return (predicted[rank] if rank < len(predicted) else None), None


def _rows(project: Any, ledger: Any, ids: Sequence[int]) -> list[dict[str, Any]]:
    """A row per item, in the order of picking."""
    from labelwise.campaign.why import why
    from labelwise.cli.people import describer

    describe = describer(project)
    rows = []
    for item in ids:
        asked, rank = ledger.batches[ledger.batch_of(item) - 1].asked, ledger.rank_of(item)
        guess = _guess(asked, rank)
        rows.append(
            {
                "id": item,
                "item": describe(item),
                "label": None,
                "rank": rank,
                "weight": ledger.weight_of(item),
                "why": why(asked, rank),
                "guess": guess[0],
                "confidence": guess[1],
            }
        )
    return rows
