"""``labelwise plan`` and ``labelwise explain``: properties of a pool and of a selection."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table
from typer import Argument, Option

from labelwise.cli.app import IdColumnOption, IdFileOption, JsonOption, LabelledOption, app
from labelwise.cli.console import make_table_console, print_table, show_progress
from labelwise.cli.files import (
    check_output_file,
    collect_given_files,
    load_array_file,
    match_picks,
    open_pool_files,
    read_ids_file,
    read_picks_file,
)
from labelwise.errors import BadInput, require_extra

if TYPE_CHECKING:
    from labelwise.arrays import HostArray
    from labelwise.pool.blocks import LocalShards
    from labelwise.pool.rows import Rows
    from labelwise.selection.result import Selection
    from labelwise.theory.planning import Plan

PLOTS = (".png", ".svg", ".pdf")
MOST_DRAWN = 5_000  # Largest number of candidates in a plot

FeatureFiles = Annotated[
    list[str],
    Argument(help="Features (n, d); several files are those of several models.", metavar="FILE"),
]
NormOption = Annotated[float, Option("--p", help="Norm of the loss.")]


@app.command("plan")
def plan_labels(
    features: FeatureFiles,
    error: Annotated[float, Option("--error", "-e", help="Relative excess error.")] = 0.1,
    p: NormOption = 2.0,
    labelled: LabelledOption = None,
    id_column: IdColumnOption = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Plot to write: .png, .svg, .pdf or .html.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate how many labels a pool needs, from .npy or .parquet files with one row per item.

    Examples:
        labelwise plan f.npy --error 0.1
        labelwise plan f.npy g.npy h.npy --error 0.05 --out plan.html

    Several files are the features of several models. Prints for each the rank, the effective
    dimension (eff. d), K (number of items times the largest leverage), the largest leverage over
    the mean (peak), the share of the top 1 and 10 % of items and the effective number of items
    (eff. n); T as models are added with its bound; and the labels for the error, with the formulas.
    The numbers are guidance: upper bounds, or bounds whose constants are unknown.
    """
    if out is not None:
        with require_extra("the plot needs matplotlib", "demo"):
            from labelwise.theory.plots import FORMATS, save_plan
        check_output_file(out, FORMATS)
    from labelwise.theory.planning import plan

    given = collect_given_files(features=features)
    names = [Path(file).name for file in features]
    with show_progress() as progress:
        shards, _, rtol, _ = open_pool_files(
            given, labelled=labelled, id_column=id_column, progress=progress
        )
        found = plan(shards, error=error, p=p, rtol=rtol)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
    else:
        _print_label_plan(found, names)
    if out is not None:
        save_plan(found, out, names)
        if not as_json:
            print(f"Plot written to {out}")


def _print_label_plan(found: "Plan", names: Sequence[str]) -> None:
    from labelwise.theory.budgets import whole
    from labelwise.theory.planning import describe_plan

    console = make_table_console()
    print(f"{found.items:,} items, p = {found.p:g}, error {found.error:g}")
    console.print(_make_plan_table(found, names, console.width))
    levels = ", ".join(f"{model.ridge:.3g}" for model in found.models)
    print(f"eff. d: sum of ridge leverage scores at lambda = {levels}")
    rows = []
    for budget in found.budgets:
        about = f"{escape(budget.formula)}\n[dim]{escape(budget.guidance)}[/dim]"
        draws = f"{whole(budget.draws):,}" if budget.draws < 1e7 else f"{budget.draws:.1e}"
        rows.append((budget.method, f"{whole(budget.labels):,}", draws, about))
    print_table(("method", "labels", "draws", "formula and kind"), rows)
    printed, proved = f"{whole(found.pool_printed):,}", f"{whole(found.pool_proved):,}"
    print(
        f"pool size: {printed} by K log d + K/error, {proved} by max(K log(20 d)/.0289, 2K/error)"
    )
    print("All numbers are guidance.")
    print()
    for line in describe_plan(found):
        console.print(f"- {line}", highlight=False, markup=False, soft_wrap=True)


def _make_plan_table(found: "Plan", names: Sequence[str], width: int) -> Table:
    """Make a table with a row per model; it fits a terminal of 80 columns."""
    head = ("cols", "rank", "eff. d", "K", "peak", "top 1%", "top 10%", "eff. n", "T", "bound")
    table = Table(
        Column("model", overflow="fold"),  # long names continue on the next line
        *(Column(name, no_wrap=True) for name in head),
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0) if width >= 100 else 0,
    )
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


@app.command("explain")
def explain_picks(
    picks: Annotated[
        Path,
        Argument(help="File that labelwise select wrote.", metavar="PICKS", show_default=False),
    ],
    features: FeatureFiles,
    probabilities: Annotated[list[str] | None, Option(help="Class probabilities (n, K).")] = None,
    labels: Annotated[
        Path | None, Option(help="Classes of all items, or of the picks in order (.npy).")
    ] = None,
    kernel: Annotated[
        Path | None, Option(help="Tangent kernel of the picks (b, b) (.npy).")
    ] = None,
    labelled: LabelledOption = None,
    ids: IdFileOption = None,
    id_column: IdColumnOption = None,
    classes: Annotated[int | None, Option(help="Number of classes.")] = None,
    p: NormOption = 2.0,
    bias: Annotated[bool, Option("--bias", help="Add a constant column to the features.")] = False,
    plot: Annotated[
        Path | None, Option("--plot", help="Picture of the picks in the pool: .png, .svg or .pdf.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Assess a selection, from its file and the features it was picked from.

    Examples:
        labelwise explain picks.csv f.npy
        labelwise explain picks.csv f.npy g.npy --labels y.npy --probabilities p.npy
        labelwise explain picks.jsonl f.npy --p 1 --json
        labelwise explain picks.csv f.npy --plot picks.png

    Each diagnostic comes with its formula and an interpretation. Labels add class imbalance,
    alignment and the bound B; probabilities add the approximation ratio.
    """
    from labelwise.theory.explanations import explain

    if plot is not None:
        check_output_file(plot, PLOTS)
    chosen = read_picks_file(picks)
    given_labels = load_array_file(labels, "labels")
    files = collect_given_files(features=features, probabilities=probabilities)
    with show_progress() as progress:
        shards, rows, rtol, keys = open_pool_files(
            files, ids=ids, labelled=labelled, id_column=id_column, progress=progress
        )
        chosen = match_picks(chosen, keys)
        own, rows = _split_explained_labels(given_labels, ids, labelled, len(chosen), shards, rows)
        found = explain(
            chosen,
            shards,
            labels=own,
            labelled=rows,
            kernel=load_array_file(kernel, "kernel"),
            classes=classes,
            p=p,
            bias=bias,
            rtol=rtol,
        )
    if plot is not None:
        _save_picks_plot(plot, chosen, shards)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
        return
    print(f"{found.picks:,} picks of {found.items:,} items")
    lines = []
    for finding in found.findings:
        values = "\n".join(
            f"{name} {_format_finding_value(value)}" for name, value in finding.values.items()
        )
        about = f"{escape(finding.reading)}\n[dim]{escape(finding.formula)}[/dim]"
        lines.append((f"[bold]{finding.name}[/bold]", values, about))
    print_table(("diagnostic", "value", "how to read it"), lines)


def _save_picks_plot(path: Path, picks: "Selection", shards: "LocalShards") -> None:
    """Draw the picks among the candidates, or among a sample of many; of several models the first.

    The plane is that of the first two principal components.
    """
    import numpy as np

    places = np.linspace(0, len(shards) - 1, min(len(shards), MOST_DRAWN)).astype(np.int64)
    ids = np.union1d(np.asarray(shards.ids)[places], picks.ids)
    rows: Any = shards.rows(ids)["features"]
    axes = picks.plot(rows[0] if isinstance(rows, list) else rows, ids=ids)
    axes.figure.savefig(path)
    print(f"Plot written to {path}", file=sys.stderr)


def _split_explained_labels(
    labels: "HostArray | None",
    ids: Path | None,
    labelled: Path | None,
    picks: int,
    shards: "LocalShards",
    rows: "Rows | None",
) -> "tuple[HostArray | None, Rows | None]":
    """Split the labels into those of the candidates (or picks) and those of labelled rows."""
    import numpy as np

    from labelwise.pool.ids import encode_keys

    if labels is None or labelled is None or len(labels) == picks:
        return labels, rows
    taken = encode_keys(read_ids_file(labelled))[0]
    everyone = encode_keys(read_ids_file(ids))[0] if ids else np.arange(len(labels))
    if len(everyone) != len(labels) or len(labels) != len(shards) + len(taken):
        raise BadInput(
            f"there are {len(labels)} labels for {len(shards) + len(taken)} items; give one per "
            f"item, or {picks}, one per pick in the order of the picks"
        )
    where = {int(item): position for position, item in enumerate(everyone)}
    before = labels[[where[int(item)] for item in taken]]
    return labels[[where[int(item)] for item in shards.ids]], {**(rows or {}), "labels": before}


def _format_finding_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    if isinstance(value, list):
        return " ".join(str(entry) for entry in value)
    return "unknown" if value is None else str(value)
