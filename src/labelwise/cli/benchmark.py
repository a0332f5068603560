"""``labelwise benchmark``: the papers' experiments; this file has the group and ``report``.

Other commands of the group live in files of their own and add themselves to ``benchmark``.
"""

from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.app import app
from labelwise.cli.outputs import check_file, check_folder
from labelwise.errors import BadInput, MissingDependency

benchmark = typer.Typer(
    no_args_is_help=True,
    help="Run the papers' experiments on real data, and report what came out.",
)
app.add_typer(benchmark, name="benchmark")


@benchmark.callback()
def _benchmark() -> None:
    """Keep the group a group, however few commands it has."""


_REPORT = """Compare the strategies in results files: one page, self-contained, in light and dark.

[bold]Examples[/bold]

  labelwise benchmark report results.jsonl --out report.html

  labelwise benchmark report a.jsonl b.jsonl --csv numbers.csv --figures pictures

Learning curves, areas beside the papers' own, labels needed and saved, paired differences with \
95 % intervals and corrected tests, wins, seconds, imbalance; over several data sets, ranks. \
Unfinished results will do: what is missing is said.
"""


@benchmark.command(help=_REPORT)
def report(
    results: Annotated[list[Path], typer.Argument(help="Results files.", metavar="FILE")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The page to write.", metavar="FILE")
    ] = Path("report.html"),
    csv: Annotated[
        Path | None, typer.Option("--csv", help="All numbers, one per line.", metavar="FILE")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", help="The pictures, as .svg and .png.", metavar="FOLDER"),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            help="Compare with these, the first above all; may be repeated.  [random, badge]",
            metavar="NAME",
        ),
    ] = None,
    up_to: Annotated[
        int | None,
        typer.Option("--up-to", help="Leave out what has more labels.", metavar="LABELS"),
    ] = None,
) -> None:
    """Compare the strategies in results files."""
    for path in (out, csv):
        if path is not None:
            check_file(path, make_folder=True)
    if figures is not None:
        check_folder(figures)
    try:
        from labelwise.benchmark.report.writing import BASELINES, write_report
    except ImportError as error:
        raise MissingDependency(
            f"the report needs matplotlib ({error}); run pip install 'labelwise[demo]'"
        ) from error
    from labelwise.benchmark.report.experiment import experiments
    from labelwise.benchmark.report.words import lede
    from labelwise.benchmark.results import read

    rounds = read(results)
    names = tuple(baseline or BASELINES)
    there = {name for entry in experiments(rounds, up_to=up_to) for name in entry.strategies}
    if baseline and not there & set(baseline):
        raise BadInput(
            f"none of the baselines {', '.join(names)} was run; "
            f"choose from {', '.join(sorted(there))}"
        )
    found = write_report(rounds, out, baselines=names, up_to=up_to, csv=csv, figures=figures)
    for entry in found:
        experiment = entry.experiment
        print(f"{experiment.name} ({experiment.dataset}, {experiment.network}): {lede(entry)}")
        for note in experiment.notes:
            print(f"  {note}")
    print(f"The whole report: {out}")
