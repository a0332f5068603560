"""``labelwise explain``: how good a selection is."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from labelwise.cli.app import app
from labelwise.cli.console import bars, table_console
from labelwise.errors import BadInput

_EXPLAIN = """Say how good a selection is, from its file and the features it was picked from.

[bold]Examples[/bold]

  labelwise explain picks.csv f.npy

  labelwise explain picks.csv f.npy g.npy --labels y.npy --probabilities p.npy

  labelwise explain picks.jsonl f.npy --p 1 --json

Each diagnostic comes with its formula and a sentence on how to read it. Labels add class \
imbalance, alignment and the bound B; probabilities add the approximation ratio.
"""


@app.command(help=_EXPLAIN)
def explain(
    picks: Annotated[
        Path,
        typer.Argument(help="What labelwise select wrote.", metavar="PICKS", show_default=False),
    ],
    features: Annotated[
        list[str],
        typer.Argument(help="Features (n, d); several files, several models.", metavar="FILE"),
    ],
    probabilities: Annotated[
        list[Path] | None, typer.Option(help="Class probabilities (n, K).", metavar="FILE")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Classes of all items, or of the picks in order (.npy).", metavar="FILE"),
    ] = None,
    kernel: Annotated[
        Path | None,
        typer.Option(help="Tangent kernel of the picks (b, b) (.npy).", metavar="FILE"),
    ] = None,
    labelled: Annotated[
        Path | None,
        typer.Option(help="Ids labelled before: one per line, or picks.csv.", metavar="FILE"),
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(help="The items' ids, one per line; else row numbers.", metavar="FILE"),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="How many classes there are.", metavar="K")
    ] = None,
    p: Annotated[float, typer.Option("--p", help="The norm of the loss.", metavar="P")] = 2.0,
    bias: Annotated[
        bool, typer.Option("--bias", help="Add a constant column to the features.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides what is tried.", metavar="N")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say how good a selection is."""
    from labelwise.cli.files import load_array, named, open_pool, read_picks
    from labelwise.theory.explaining import explain as measure

    chosen = read_picks(picks)
    given = load_array(labels, "labels")
    files = {"features": named(features), "probabilities": probabilities}
    with bars(Console(stderr=True)) as progress:
        shards, rows, rtol = open_pool(files, ids=ids, labelled=labelled, progress=progress)
        own, rows = _split(given, ids, labelled, len(chosen), shards, rows)
        found = measure(
            chosen,
            shards,
            labels=own,
            labelled=rows,
            kernel=load_array(kernel, "kernel"),
            classes=classes,
            p=p,
            bias=bias,
            rtol=rtol,
            seed=seed,
        )
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
        return
    print(f"{found.picks:,} picks of {found.items:,} items")
    table = Table("diagnostic", "value", "how to read it", box=SIMPLE_HEAD)
    for finding in found.findings:
        values = "\n".join(f"{name} {_text(value)}" for name, value in finding.values.items())
        about = f"{escape(finding.reading)}\n[dim]{escape(finding.formula)}[/dim]"
        table.add_row(f"[bold]{finding.name}[/bold]", values, about)
    table_console().print(table, highlight=False)


def _split(
    labels: Any, ids: Path | None, labelled: Path | None, picks: int, shards: Any, rows: Any
) -> tuple[Any, Any]:
    """Labels of the candidates (or picks) alone, and the labelled rows with their labels."""
    import numpy as np

    from labelwise.cli.option_values import read_ids

    if labels is None or labelled is None or len(labels) == picks:
        return labels, rows
    taken = np.asarray(read_ids(labelled), dtype=np.int64)
    everyone = np.asarray(read_ids(ids), dtype=np.int64) if ids else np.arange(len(labels))
    if len(everyone) != len(labels) or len(labels) != len(shards) + len(taken):
        raise BadInput(
            f"there are {len(labels)} labels for {len(shards) + len(taken)} items; give one per "
            f"item, or {picks}, one per pick in the order of the picks"
        )
    where = {int(item): position for position, item in enumerate(everyone)}
    before = labels[[where[int(item)] for item in taken]]
    return labels[[where[int(item)] for item in shards.ids]], {**rows, "labels": before}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    if isinstance(value, list):
        return " ".join(str(entry) for entry in value)
    return "unknown" if value is None else str(value)
