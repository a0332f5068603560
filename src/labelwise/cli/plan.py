"""``labelwise plan``: what a pool is like, and how many labels it needs."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from labelwise.cli.app import app
from labelwise.cli.console import bars, table_console
from labelwise.cli.outputs import check_file
from labelwise.errors import MissingDependency

_PLAN = """Say how many labels a pool needs, from .npy or .parquet files with one row per item.

[bold]Examples[/bold]

  labelwise plan f.npy --error 0.1

  labelwise plan f.npy g.npy h.npy --error 0.05 --out plan.html

Several files are several models' features. Prints of each the rank, the effective dimension \
(eff. d), K (the number of items times the largest leverage), the largest leverage over the mean \
(peak), what the top 1 and 10 % of items hold of it and how many items would share it equally \
(eff. n); T as models are added with its bound; and the labels for the error, with the formulas. \
The numbers are guidance: upper bounds, or bounds whose constants are unknown.
"""


@app.command(help=_PLAN)
def plan(
    features: Annotated[
        list[str],
        typer.Argument(help="Features (n, d); several files, several models.", metavar="FILE"),
    ],
    error: Annotated[
        float, typer.Option("--error", "-e", help="The relative excess error.", metavar="E")
    ] = 0.1,
    p: Annotated[float, typer.Option("--p", help="The norm of the loss.", metavar="P")] = 2.0,
    ridge: Annotated[
        float,
        typer.Option(
            help="For eff. d: directions with less than R times the mean energy hardly count.",
            metavar="R",
        ),
    ] = 0.01,
    labelled: Annotated[
        Path | None,
        typer.Option(help="Ids to leave out: one per line, or picks.csv.", metavar="FILE"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A plot: .png, .svg, .pdf or .html.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Say how many labels a pool needs."""
    if out is not None:
        check_file(out)
    save = _drawing(out) if out else None
    from labelwise.cli.files import named, open_pool
    from labelwise.theory.planning import plan as look

    files = named(features)
    with bars(Console(stderr=True)) as progress:
        shards, _, rtol = open_pool({"features": files}, labelled=labelled, progress=progress)
        found = look(shards, error=error, p=p, ridge=ridge, rtol=rtol)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
    else:
        _show(found, [path.name for path in files])
    if save is not None:
        save(found, out, [path.name for path in files])
        if not as_json:
            print(f"Plot written to {out}")


def _drawing(out: Path) -> Any:
    """The function that draws, found before the work in case matplotlib or the folder is not."""
    try:
        from labelwise.theory.plots import check_picture, save_plan
    except ImportError as error:
        raise MissingDependency(
            f"the plot needs matplotlib ({error}); run pip install 'labelwise[demo]'"
        ) from error
    check_picture(out)
    return save_plan


def _show(found: Any, names: list[str]) -> None:
    from labelwise.theory.budgets import whole
    from labelwise.theory.reading import read_plan

    console = table_console()
    print(f"{found.items:,} items, p = {found.p:g}, error {found.error:g}")
    console.print(_models(found, names, console.width))
    levels = ", ".join(f"{model.ridge:.3g}" for model in found.models)
    print(f"eff. d: sum of ridge leverage scores at lambda = {levels}")
    labels = Table(box=SIMPLE_HEAD)
    for name in ("method", "labels", "draws"):
        labels.add_column(name, no_wrap=True)
    labels.add_column("formula and kind")
    for budget in found.budgets:
        about = f"{escape(budget.formula)}\n[dim]{escape(budget.guidance)}[/dim]"
        labels.add_row(budget.method, f"{whole(budget.labels):,}", _short(budget.draws), about)
    console.print(labels)
    printed, proved = f"{whole(found.pool_printed):,}", f"{whole(found.pool_proved):,}"
    print(
        f"pool size: {printed} by K log d + K/error, {proved} by max(K log(20 d)/.0289, 2K/error)"
    )
    print("All numbers are guidance.")
    print()
    for line in read_plan(found):
        console.print(f"- {line}", highlight=False, markup=False, soft_wrap=True)


def _models(found: Any, names: list[str], width: int) -> Table:
    """A line per model; nothing is cut on a terminal of 80 columns."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0) if width >= 100 else 0)
    table.add_column("model", overflow="fold")  # a long name goes on in the next line
    head = ("cols", "rank", "eff. d", "K", "peak", "top 1%", "top 10%", "eff. n", "T", "bound")
    for name in head:
        table.add_column(name, no_wrap=True)
    for name, model in zip(names, found.models, strict=True):
        table.add_row(
            escape(name),
            f"{model.columns}",
            f"{model.rank}",
            f"{model.effective_dimension:.1f}",
            f"{model.condition:,.0f}",
            f"{model.max_over_mean:.1f}",
            f"{100 * model.top_1:.0f}%",
            f"{100 * model.top_10:.0f}%",
            f"{model.effective_items:,.0f}",
            f"{model.total:.1f}",
            f"{model.bound:.0f}",
        )
    return table


def _short(value: float) -> str:
    from labelwise.theory.budgets import whole

    return f"{whole(value):,}" if value < 1e7 else f"{value:.1e}"
