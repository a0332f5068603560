"""``labelwise simulate``: what active learning would have saved on one's own labelled data."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from labelwise.cli.app import app
from labelwise.cli.benchmark_run import bar_with_time_left, cores
from labelwise.cli.console import keeps, names_in, table_console
from labelwise.cli.outputs import check_file
from labelwise.errors import BadInput, MissingDependency

_SIMULATE = """Hide the labels you have, replay, and say how many labels each strategy saves.

[bold]Examples[/bold]

  labelwise simulate photos

  labelwise simulate reviews.csv --labels stars --text review

  labelwise simulate houses.parquet --labels price --regression --without id

  labelwise simulate f.npy --labels y.npy --strategies margin,badge --seeds 10

Takes a folder of pictures by class, a .csv, .tsv, .jsonl or .parquet table, an .npz file, or \
features in a .npy file with labels in another. A fifth is held out for testing; every strategy \
starts with the same few labels and buys batch after batch. Interrupted, the same command goes on.
"""


@app.command(help=_SIMULATE)
def simulate(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="Labelled data.", metavar="DIR|FILE")],
    labels: Annotated[
        str | None,
        typer.Option(help="Column or array of the labels, or a .npy file.", metavar="NAME"),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Columns of texts, with commas.", metavar="A,B")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Numeric columns to use. (all)", metavar="A,B")
    ] = None,
    without: Annotated[
        str | None, typer.Option(help="Columns to leave out, as ids.", metavar="A,B")
    ] = None,
    regression: Annotated[
        bool | None,
        typer.Option("--regression/--classes", help="What labels are. (by the labels)"),
    ] = None,
    drop_unlabelled: Annotated[
        bool, typer.Option("--drop-unlabelled", help="Leave out rows without a label.")
    ] = False,
    side: Annotated[int, typer.Option(help="Scale pictures to this side.", metavar="N")] = 32,
    strategies: Annotated[
        str | None,
        typer.Option(help="To compare with random. (six usual ones)", metavar="A,B,C"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each strategy.", metavar="N")] = 5,
    budget: Annotated[
        int | None, typer.Option(help="All labels to buy. (by the size)", metavar="N")
    ] = None,
    start: Annotated[
        int | None, typer.Option(help="First labels, at random. (as a batch)", metavar="N")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Labels at a time. (by the size)", metavar="N")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Batches to buy. (10)", metavar="N")] = None,
    test_share: Annotated[
        float, typer.Option(help="Share of the items to test on.", metavar="S")
    ] = 0.2,
    pool: Annotated[int, typer.Option(help="Items that take part at most.", metavar="N")] = 20_000,
    network: Annotated[
        str | None, typer.Option(help="lenet5, mlp, resnet18, ... (by the data)", metavar="NAME")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Of every training.", metavar="N")] = 60,
    weights: Annotated[
        str, typer.Option(help="Train with the picks' weights: none, mean, sum.", metavar="HOW")
    ] = "none",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The page to write.", metavar="FILE")
    ] = Path("simulate.html"),
    results: Annotated[
        Path, typer.Option(help="Every round; continued if it is there.", metavar="FILE")
    ] = Path("simulate.jsonl"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="NAME")] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(help="Processes side by side on a CPU. (one per core)", metavar="N"),
    ] = None,
) -> None:
    """Say how many labels each strategy would have saved."""
    keeps(results)
    try:
        from labelwise.benchmark.report.writing import write_report
        from labelwise.simulate import make_plan, run_plan
        from labelwise.simulate.own_data import read_own_data
        from labelwise.simulate.words import savings
    except ImportError as error:
        raise MissingDependency(
            f"simulations need torch, scikit-learn and matplotlib ({error}); "
            "run pip install 'labelwise[demo]'"
        ) from error
    if out.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"the page is HTML; got --out {out}")
    check_file(out, make_folder=True)
    own = read_own_data(
        data,
        labels=labels,
        text=names_in(text),
        columns=names_in(columns),
        without=names_in(without),
        side=side,
        regression=regression,
        drop_unlabelled=drop_unlabelled,
    )
    plan = make_plan(
        own,
        strategies=names_in(strategies) or None,
        start=start,
        batch=batch,
        rounds=rounds,
        budget=budget,
        test_share=test_share,
        pool=pool,
        network=network,
        epochs=epochs,
        weights=weights,
    )
    _announce(own, plan, seeds)
    with bar_with_time_left() as progress:
        lines = run_plan(
            own,
            plan,
            results,
            seeds=seeds,
            device=device,
            workers=cores() if workers is None else workers,
            progress=progress,
        )
    _show(savings(lines), plan, seeds)
    write_report(
        lines,
        out,
        title=f"What active learning saves on {own.name}",
        commands=[_command(context)],
    )
    print(f"Curves and numbers: {out}. All rounds: {results}")


def _command(context: typer.Context) -> str:
    """The command that was given, without what is usual."""
    words = ["labelwise", "simulate"]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif value != parameter.get_default(context):
            flags = parameter.opts if value is not False else parameter.secondary_opts
            words += [flags[0]] if isinstance(value, bool) else [flags[0], str(value)]
    return shlex.join(words)


def _announce(own: Any, plan: Any, seeds: int) -> None:
    import numpy as np

    task = "a regression" if own.classes is None else f"{len(own.classes)} classes"
    print(f"{own.name}: {len(own):,} items ({own.kind}), {task}")
    for note in own.notes:
        print(f"  {note}")
    last = plan.start + plan.rounds * plan.batch
    print(
        f"{plan.test:,} items for testing, a pool of {plan.pool:,}; {plan.start} to {last} labels, "
        f"{plan.batch} at a time; {plan.network}, {plan.learner['epochs']} epochs; {seeds} seeds"
    )
    if own.classes is not None:
        counts = np.bincount(own.targets)
        share = counts.max() / counts.sum()
        if share > 0.7:
            print(f"  always saying {own.classes[int(counts.argmax())]!r} is right in {share:.0%}")
    else:
        print("  mse is in units of the labels' variance: guessing the mean has 1")
    print(f"strategies: {', '.join(entry.label for entry in plan.entrants)}", flush=True)


def _show(found: Any, plan: Any, seeds: int) -> None:
    """The table, the sentences, and what to keep in mind."""
    from labelwise.benchmark.report.words import Unit
    from labelwise.simulate.words import caveats, conclusion, interval_text

    console = table_console()
    if found:
        unit, first = Unit(plan.metric), found[0]
        table = Table(
            "strategy",
            "labels needed",
            "saved",
            "95 % interval",
            f"last {unit.name}",
            "verdict",
            box=SIMPLE_HEAD,
        )
        base = ("random", f"{first.baseline:,.0f}", "", "", unit.text(first.target), "")
        table.add_row(*base, style="dim")
        for entry in found:
            cells = (*entry.cells, interval_text(entry.saved), unit.text(entry.final))
            table.add_row(entry.strategy, *cells, entry.verdict.replace("unclear", "no evidence"))
        console.print(table, highlight=False)
    for entry in found:
        console.print(f"- {entry.sentence}", highlight=False, markup=False, soft_wrap=True)
    print(conclusion(found, seeds=seeds))
    for note in caveats(found, seeds=seeds, tested=plan.test):
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
