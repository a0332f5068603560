"""``labelwise simulate`` and ``labelwise demo``: labels that active learning saves."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from labelwise.cli.app import (
    ColumnsOption,
    EncoderOption,
    IdColumnOption,
    PageOption,
    SeedsOption,
    StrategiesOption,
    TextOption,
    TrackOption,
    WithoutOption,
    WorkersOption,
    app,
)
from labelwise.cli.console import (
    make_table_console,
    print_table,
    set_results_file,
    show_progress,
    split_names,
)
from labelwise.cli.files import check_output_file
from labelwise.errors import BadInput, require_extra
from labelwise.files import write_text
from labelwise.tracking import Tracker

if TYPE_CHECKING:
    from labelwise.benchmark.protocol import Protocol
    from labelwise.simulate.own_data import OwnData
    from labelwise.simulate.savings import LabelSaving


@app.command("simulate")
def run_simulation(
    context: typer.Context,
    data: Annotated[Path, Argument(help="Labelled data.", metavar="DIR|FILE")],
    labels: Annotated[
        str | None, Option(help="Column or array of the labels, or a file of them.")
    ] = None,
    text: TextOption = None,
    columns: ColumnsOption = None,
    without: WithoutOption = None,
    id_column: IdColumnOption = None,
    regression: Annotated[
        bool | None, Option("--regression/--classes", help="Kind of labels (default: detected).")
    ] = None,
    drop_unlabelled: Annotated[
        bool, Option("--drop-unlabelled", help="Leave out rows without a label.")
    ] = False,
    encoder: EncoderOption = "auto",
    strategies: StrategiesOption = None,
    seeds: SeedsOption = 5,
    budget: Annotated[int | None, Option(help="Labels in total (default: by size).")] = None,
    batch: Annotated[int | None, Option(help="Labels per batch (default: by size).")] = None,
    rounds: Annotated[int | None, Option(help="Number of batches (default: 10).")] = None,
    test_share: Annotated[float, Option(help="Share of the items for testing.")] = 0.2,
    pool: Annotated[int, Option(help="Maximum number of items.")] = 20_000,
    out: PageOption = Path("simulate.html"),
    results: Annotated[
        Path, Option(help="File of all rounds; an existing one is continued.")
    ] = Path("simulate.jsonl"),
    track: TrackOption = None,
    workers: WorkersOption = None,
) -> None:
    """Hide the labels you have, replay, and estimate how many labels each strategy saves.

    Examples:
        labelwise simulate photos
        labelwise simulate photos --labels labels.csv
        labelwise simulate reviews.csv --labels stars --text review
        labelwise simulate houses.parquet --labels price --regression --without id
        labelwise simulate f.npy --labels y.npy --strategies margin,badge --seeds 10

    Takes a folder of images by class, a folder of images with a table of labels (columns id, which
    holds paths or file names, and label), a .csv, .tsv, .jsonl or .parquet table, an .npz file, or
    features in a .npy file with labels in another. Images and texts are encoded as in a campaign. A
    fifth is held out for testing; every strategy buys batch after batch. After an interruption, the
    same command continues.
    """
    set_results_file(results)
    with require_extra("simulations need scikit-learn and matplotlib", "demo"):
        from labelwise.benchmark.report.page import write_results_report
        from labelwise.simulate import make_simulation_plan, run_simulation_plan
        from labelwise.simulate.own_data import read_own_data
        from labelwise.simulate.savings import compute_savings
    if out.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"the page is HTML; got --out {out}")
    check_output_file(out, make_folder=True)
    own = read_own_data(
        data,
        labels=labels,
        text=split_names(text),
        columns=split_names(columns),
        without=[*split_names(without), *([id_column] if id_column else [])],
        regression=regression,
        drop_unlabelled=drop_unlabelled,
    )
    plan = make_simulation_plan(
        own,
        strategies=split_names(strategies) or None,
        batch=batch,
        rounds=rounds,
        budget=budget,
        test_share=test_share,
        pool=pool,
        encoder=encoder,
    )
    _print_simulation_plan(own, plan, seeds)
    with show_progress(lines_after=0) as progress, Tracker(track) as tracker:
        lines = run_simulation_plan(
            own,
            plan,
            results,
            seeds=seeds,
            workers=workers,
            progress=progress,
            on_round=lambda line: line.log(tracker),
        )
    _print_savings(compute_savings(lines), plan, seeds)
    write_results_report(
        lines,
        out,
        title=f"What active learning saves on {own.name}",
        commands=[_format_simulate_command(context)],
    )
    print(f"Curves and numbers: {out}. All rounds: {results}")


def _format_simulate_command(context: typer.Context) -> str:
    """Format the given command, without options that have their default."""
    words = ["labelwise", "simulate"]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif value != parameter.get_default(context):
            flags = parameter.opts if value is not False else parameter.secondary_opts
            words += [flags[0]] if isinstance(value, bool) else [flags[0], str(value)]
    return shlex.join(words)


def _print_simulation_plan(own: "OwnData", plan: "Protocol", seeds: int) -> None:
    import numpy as np

    task = "a regression" if own.classes is None else f"{len(own.classes)} classes"
    print(f"{own.name}: {len(own):,} items ({own.kind}), {task}")
    for note in own.notes:
        print(f"  {note}")
    last = (plan.rounds + 1) * plan.batch
    print(
        f"{plan.test:,} items for testing, a pool of {plan.pool:,}; {plan.batch} to {last} labels, "
        f"{plan.batch} at a time; {plan.network}; {seeds} seeds"
    )
    if own.classes is not None:
        counts = np.bincount(own.targets)
        share = counts.max() / counts.sum()
        if share > 0.7:
            largest = own.classes[int(counts.argmax())]
            print(f"  always predicting {largest!r} is right in {100 * share:.0f} %")
    else:
        print("  rmse is relative to the deviation of the labels: predicting the mean has 1")
    print(f"strategies: {', '.join(entry.label for entry in plan.entrants)}", flush=True)


def _print_savings(found: "tuple[LabelSaving, ...]", plan: "Protocol", seeds: int) -> None:
    from labelwise.rounds.default_strategies import DEFAULT
    from labelwise.simulate.savings import (
        describe_default_saving,
        describe_saving_conclusion,
        list_saving_caveats,
        make_saving_rows,
    )

    console = make_table_console()
    if sentence := describe_default_saving(found, DEFAULT[plan.metric == "rmse"]):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    if found:
        head, *rows = make_saving_rows(found)
        print_table(head, rows)
    for entry in found:
        console.print(f"- {entry.sentence}", highlight=False, markup=False, soft_wrap=True)
    print(describe_saving_conclusion(found, seeds=seeds))
    for note in list_saving_caveats(found, seeds=seeds, tested=plan.test or 0):
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)


@app.command("demo")
def run_demo(
    out: PageOption = Path("demo/report.html"),
    strategy: Annotated[
        list[str] | None, Option(help="Strategy to compare with random; may be repeated.")
    ] = None,
    seeds: SeedsOption = 12,
    labels: Annotated[int, Option(help="Labels in total.")] = 130,
    workers: WorkersOption = None,
) -> None:
    """Compare strategies on handwritten digits (about two minutes).

    Labels 10 images, trains a linear model, labels 10 more, trains again, and so
    on, for random and for several strategies. Prints how many labels each needs
    to reach the final accuracy of random, and writes a page with curves and images.
    """
    with require_extra("the demo needs scikit-learn and matplotlib", "demo"):
        from labelwise.demo import list_demo_strategies, make_demo_plan, render_demo_page, run_demo
        from labelwise.simulate.savings import compute_savings
    from labelwise.rounds.default_strategies import DEMONSTRATED

    check_output_file(out, make_folder=True)
    usual = list_demo_strategies()
    plan = make_demo_plan(strategy or usual, labels)
    if not strategy and (absent := [name for name in DEMONSTRATED if name not in usual]):
        names = " and ".join(absent)
        print(f"left out: {names}, which read a network; pip install 'labelwise[torch]' adds them")
    begin = time.perf_counter()
    with show_progress(lines_after=0) as progress:
        lines = run_demo(plan, seeds=seeds, workers=workers, progress=progress)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, render_demo_page(plan, lines, time.perf_counter() - begin))
    _print_savings(compute_savings(lines), plan, seeds)
    print(f"Curves and images: {out}")
