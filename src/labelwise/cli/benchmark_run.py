"""``labelwise benchmark list`` and ``run``: the papers' experiments by name."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from labelwise.cli.benchmark import benchmark
from labelwise.cli.console import keeps, table_console
from labelwise.errors import BadInput, MissingDependency


@benchmark.command("list")
def list_experiments() -> None:
    """List the experiments: data set, network, strategies, and where they come from.

    Into a pipe or a file, it writes plain lines with tabs between the columns.
    """
    from labelwise.benchmark.datasets import available
    from labelwise.benchmark.protocols import experiments

    ready = {name for name, status in available().items() if status.ready}
    head = ["name", "what", "data", "network", "paper"]
    lines = []
    for protocol in experiments().values():
        made_up = protocol.study is not None and protocol.dataset not in available()
        data = protocol.dataset if protocol.dataset in ready or made_up else f"{protocol.dataset} *"
        lines.append([protocol.name, protocol.about, data, protocol.network, protocol.paper])
    console = Console()
    if not console.is_terminal:
        for line in (head, *lines):
            print(*line, sep="\t")
        return
    table = Table(*head[:-1], box=SIMPLE_HEAD)
    for line in lines:
        table.add_row(f"[bold]{line[0]}[/bold]", *line[1:-1])
    console.print(table, highlight=False)
    print("* not at hand: see labelwise data list")


_RUN = """Run an experiment, or go on with it: every strategy, every seed, round after round.

[bold]Examples[/bold]

  labelwise benchmark run sparse-table2-mnist --scale small

  labelwise benchmark run sparse-table2-mnist --scale small --dataset digits

  labelwise benchmark run lewis-fig2-vanilla --strategies random,lewis --seeds 3 --out lewis.jsonl

  labelwise benchmark run sparse-table2-mnist --on ray:HEAD:6379

Every round is one line of the results file. Interrupted, it goes on with the same command and \
gives the same numbers. Then: labelwise benchmark report results.jsonl
"""


@benchmark.command(help=_RUN)
def run(
    name: Annotated[
        str, typer.Argument(help="The experiment; see labelwise benchmark list.", metavar="NAME")
    ],
    strategies: Annotated[
        str | None,
        typer.Option(
            help="Names with commas between them (else the experiment's).", metavar="A,B,C"
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each strategy (else the experiment's).", metavar="N")
    ] = None,
    scale: Annotated[
        str, typer.Option("--scale", help="small, medium, or full as in the paper.", metavar="NAME")
    ] = "full",
    dataset: Annotated[
        str | None, typer.Option(help="Another data set for the same protocol.", metavar="NAME")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="NAME")] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(help="Processes side by side on a CPU (else one per core).", metavar="N"),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="Processes of a Ray cluster: ray (started here), ray:HOST:PORT or "
            "ray://HOST:PORT.",
            metavar="CLUSTER",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The results file.", metavar="FILE")
    ] = Path("results.jsonl"),
) -> None:
    """Run an experiment."""
    keeps(out)
    if seeds is not None and seeds < 1:
        raise BadInput(f"--seeds must be 1 or more; got {seeds}")
    try:
        from labelwise.benchmark.runs import run_experiment
    except ImportError as error:
        raise MissingDependency(
            f"experiments need torch and scikit-learn ({error}); run pip install 'labelwise[demo]'"
        ) from error
    from labelwise.benchmark.protocols import get

    protocol = get(name).at(scale)
    if dataset is not None:
        protocol = protocol.on(dataset)
    chosen = None if strategies is None else [part.strip() for part in strategies.split(",")]
    count = protocol.seeds if seeds is None else seeds
    _announce(protocol, protocol.entered(chosen), count)
    with bar_with_time_left() as progress:
        lines = run_experiment(
            protocol,
            out,
            strategies=chosen,
            seeds=count,
            device=device,
            workers=cores() if workers is None and on is None else workers,
            on=on,
            progress=progress,
        )
    _summarise(lines)
    print(f"All lines: {out}. Compare: labelwise benchmark report {out}")


def _announce(protocol: Any, entrants: Any, seeds: int) -> None:
    labels = ""
    if protocol.study is None:
        last = protocol.start + protocol.rounds * protocol.batch
        labels = f", {protocol.start} to {last} labels by {protocol.batch}"
    print(f"{protocol.name}: {protocol.about}")
    print(f"{protocol.paper}; scale {protocol.scale}")
    print(f"{protocol.network} on {protocol.dataset}{labels}, {seeds} seeds")
    print(f"strategies: {', '.join(entrant.label for entrant in entrants)}")
    print(f"reduced: {protocol.reduced or 'nothing'}", flush=True)


@contextmanager
def bar_with_time_left() -> Iterator[Any]:
    """A progress callback; on a terminal a bar with the time left, elsewhere a line per tenth."""
    console = Console(stderr=True)
    if not console.is_terminal:
        done = 0

        def say(stage: str, count: int, total: int) -> None:
            nonlocal done
            step = max(1, total // 10)
            if count and (count // step != done // step or count == total):
                print(f"{stage}: {count} of {total}", file=sys.stderr, flush=True)
            done = count

        yield say
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, *times, console=console, speed_estimate_period=600) as shown:
        bar = shown.add_task("rounds", total=None)

        def draw(stage: str, count: int, total: int) -> None:
            shown.update(bar, completed=count, total=total)

        yield draw


def _summarise(lines: Any) -> None:
    """A table: per strategy the mean over seeds of the last measurement and of the area."""
    import numpy as np

    from labelwise.benchmark.statistics import area

    runs: dict[str, dict[int, list[Any]]] = {}
    for line in lines:
        options = ", ".join(f"{name}={value}" for name, value in line.options.items())
        label = f"{line.strategy} ({options})" if options else line.strategy
        runs.setdefault(label, {}).setdefault(line.seed, []).append(line)
    if not runs:
        return
    metric = lines[0].metric.replace("_", " ")
    table = Table("strategy", "seeds", f"last {metric}", "mean over the curve", box=SIMPLE_HEAD)
    for label, seeds in runs.items():
        last = [rounds[-1].value for rounds in seeds.values()]
        areas = [
            float(area([line.labels for line in rounds], [line.value for line in rounds]))
            for rounds in seeds.values()
        ]
        cells = [
            f"{np.mean(values):.4g}" + (f" ± {np.std(values, ddof=1):.2g}" if values[1:] else "")
            for values in (last, areas)
        ]
        table.add_row(label, str(len(seeds)), *cells)
    table_console().print(table, highlight=False)


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
