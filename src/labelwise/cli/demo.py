"""``labelwise demo``: compare strategies on handwritten digits."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from labelwise.cli.app import app
from labelwise.cli.console import bars, table_console
from labelwise.cli.outputs import check_file
from labelwise.errors import BadInput, MissingDependency

DIGITS = 1797
"""How many images the data set has."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("demo/report.html"),
    strategy: Annotated[
        list[str] | None, typer.Option(help="Compare these with random; may be repeated.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each strategy.")] = None,
    labels: Annotated[int | None, typer.Option(help="Labels to buy up to.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes side by side.")] = None,
) -> None:
    """Compare strategies on handwritten digits (about two minutes).

    Start with 20 labelled images, train a small network, buy 10 labels,
    train again, and so on, for random and for several strategies. Prints how
    many labels each needs to reach what random reaches with all of its
    labels, and writes a page with curves and pictures.
    """
    try:
        from labelwise.demo import BASELINE, Plan, accuracies_by_strategy, run_all
        from labelwise.demo.comparison import compare
        from labelwise.demo.page import table, write_report
    except ImportError as error:
        raise MissingDependency(
            f"the demo needs torch, scikit-learn and matplotlib ({error}); "
            "run pip install 'labelwise[demo]'"
        ) from error
    check_file(out, make_folder=True)
    asked: dict[str, Any] = {"seeds": seeds, "labels": labels, "workers": workers}
    asked["strategies"] = tuple(strategy) if strategy else None
    plan = Plan(**{name: value for name, value in asked.items() if value is not None})
    if plan.labels > DIGITS - plan.held_out:
        raise BadInput(
            f"--labels must be at most {DIGITS - plan.held_out}, the images that are not kept for "
            f"measuring; got {plan.labels}"
        )
    console = Console(stderr=True)
    begin = time.perf_counter()
    with bars(console, plain=True) as progress:
        runs = run_all(plan, progress)
    comparisons = compare(plan.counts, accuracies_by_strategy(runs), BASELINE)
    write_report(out, plan, runs, comparisons, time.perf_counter() - begin)
    head, *lines = table(plan, comparisons)
    shown = Table(*head, box=SIMPLE_HEAD)
    for line in lines:
        shown.add_row(*line)
    table_console().print(shown)
    print(f"In brackets: 95 % intervals over {plan.seeds} seeds. Curves and pictures: {out}")
