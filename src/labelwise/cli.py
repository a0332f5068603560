"""The labelwise command: pick items from files, list the strategies, run the demo.

What only one command needs is imported inside it, so that ``labelwise --help`` answers at once.
"""

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import labelwise
from labelwise.errors import BadInput, LabelwiseError, LabelwiseWarning, MissingDependency
from labelwise.selection import check_format
from labelwise.strategy import Strategy

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; an error is one line on stderr.

    Returns:
        0 if all went well, 1 after an error, 2 after misuse, 130 after an interruption.
    """
    try:
        with _notes():
            asked = list(arguments) or ["--help"]
            code = app(asked, prog_name="labelwise", standalone_mode=False)
    except typer.TyperException as error:  # no such option, no such command, a value missing
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "labelwise"
        return _fail(f"{error.format_message()}; see {path} --help", error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except (LabelwiseError, OSError, MemoryError) as error:
        return _fail(str(error) or "not enough memory", 1)
    if code == 130:  # Typer, too, turns an interruption into this code
        return _fail("interrupted; nothing was written", code)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    print(f"labelwise: {' '.join(message.replace('.;', ';').split())}", file=sys.stderr)
    return code


def _version(wanted: bool) -> None:
    if wanted:
        print(f"labelwise {metadata.version('labelwise')}")
        raise typer.Exit


_ABOUT = """Choose which items of a large unlabelled pool to label, and how much each should weigh.

[bold]Try it[/bold] (two minutes, writes demo/report.html)

  labelwise demo

[bold]Use it[/bold] on your model's last hidden layer, saved as one row per item

  labelwise select f.npy --strategy k_center --budget 100 --out picks.csv
"""

_SELECT = """Pick the items worth labelling, from .npy or .parquet files with one row per item.

[bold]Examples[/bold]

  labelwise select f.npy --strategy lewis --budget 1000 --out picks.csv

  labelwise select f.npy g.npy -s lewis -b 1000 --option p=1.5 -o picks.csv

  labelwise select --probabilities p.npy -s margin -b 100 -o margin.csv

  labelwise select f.npy -s k_center -b 100 --labelled margin.csv -o more.csv

The picks come in order, with id, weight (how many items of the pool it stands for), count \
(how often it was drawn), score and rank; what a strategy does not give is left empty.
"""


@app.callback(help=_ABOUT)
def _labelwise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


Files = list[Path]


@app.command(help=_SELECT)
def select(
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy", "-s", help="What decides; see labelwise strategies.", metavar="NAME"
        ),
    ],
    budget: Annotated[
        int, typer.Option("--budget", "-b", help="How many items to pick.", metavar="N")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Where the picks go: .csv, .jsonl or .parquet.", metavar="FILE"
        ),
    ],
    features: Annotated[
        Files | None,
        typer.Argument(help="Features (n, d); several files, several models.", metavar="FILE"),
    ] = None,
    probabilities: Annotated[
        Files | None, typer.Option(help="Class probabilities (n, K).", metavar="FILE")
    ] = None,
    logits: Annotated[
        Files | None, typer.Option(help="Class scores before the softmax (n, K).", metavar="FILE")
    ] = None,
    member_probabilities: Annotated[
        Files | None, typer.Option(help="Probabilities of m members (n, m, K).", metavar="FILE")
    ] = None,
    outputs: Annotated[
        Files | None, typer.Option(help="Predicted values (n, k).", metavar="FILE")
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(help="The items' ids, one per line; else row numbers.", metavar="FILE"),
    ] = None,
    labelled: Annotated[
        Path | None,
        typer.Option(help="Ids labelled already: one per line, or picks.csv.", metavar="FILE"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every draw.", metavar="N")] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the strategy; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
) -> None:
    """Pick the items worth labelling."""
    from labelwise.running.estimate import estimate
    from labelwise.running.texts import parse_options, read_ids
    from labelwise.strategies import get

    _check_out(out)
    chosen = get(strategy)
    options = parse_options(chosen, _pairs(option or []))
    files = {
        "features": features,
        "probabilities": probabilities,
        "logits": logits,
        "member_probabilities": member_probabilities,
        "outputs": outputs,
    }
    given = {name: v[0] if len(v) == 1 else v for name, v in files.items() if v}
    known = {"ids": ids and read_ids(ids), "labelled": labelled and read_ids(labelled)}
    console = Console(stderr=True)
    for line in estimate(chosen, given, budget):
        console.print(line, style="dim", highlight=False, soft_wrap=True)
    with _bars(console) as progress:
        picks = labelwise.select(
            strategy, budget, **given, **known, seed=seed, progress=progress, **options
        )
    picks.save(out)
    size = f", worth {picks.effective_size():.0f} equally weighted" if chosen.weighted else ""
    print(f"{len(picks)} picks written to {out}{size}")


@app.command()
def strategies(
    name: Annotated[
        str | None, typer.Argument(help="Show everything about this one.", metavar="[NAME]")
    ] = None,
) -> None:
    """List the strategies: what each reads, whether it gives weights, what it is good for.

    Into a pipe or a file, it writes plain lines with tabs between the columns.
    """
    from labelwise.strategies import get

    if name is not None:
        _show(get(name))
        return
    console = Console()
    found = labelwise.strategies().values()
    if not console.is_terminal:
        print("name\tneeds\tweights\tgood for\treference")
        for entry in found:
            weights = "yes" if entry.weighted else "no"
            print(entry.name, _needs(entry), weights, entry.good_for, entry.reference, sep="\t")
        return
    table = Table("name", "needs", "weights", "good for, and where it comes from", box=SIMPLE_HEAD)
    for entry in found:
        about = f"{escape(entry.good_for)}\n[dim]{escape(entry.reference)}[/dim]"
        weights = "yes" if entry.weighted else ""
        needs = _needs(entry).replace(", or ", "\nor ").replace(" + ", "\n+ ")
        table.add_row(f"[bold]{entry.name}[/bold]", needs, weights, about)
    console.print(table)


def _needs(strategy: Strategy) -> str:
    """What it reads, in words."""
    sets = [names for names in (strategy.needs, *strategy.or_needs) if names]
    return ", or ".join(" + ".join(names) for names in sets) or "nothing"


def _show(strategy: Strategy) -> None:
    """Everything about one strategy, as plain lines."""
    print(f"{strategy.name}: {strategy.good_for}")
    print(f"reads {_needs(strategy)}" + (", of one or several models" if strategy.several else ""))
    print("its picks carry weights" if strategy.weighted else "its picks carry no weights")
    for option, default in strategy.options.items():
        print(f"--option {option}={default}")
    print(strategy.reference)


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
        from labelwise.benchmark.curves import compare
        from labelwise.benchmark.demo import BASELINE, Plan, accuracies_by_strategy, run_all
        from labelwise.benchmark.demo_report import table, write_report
    except ImportError as error:
        raise MissingDependency(
            f"the demo needs scikit-learn and matplotlib ({error}); "
            "run pip install 'labelwise[demo]'"
        ) from error
    asked: dict[str, Any] = {"seeds": seeds, "labels": labels, "workers": workers}
    asked["strategies"] = tuple(strategy) if strategy else None
    plan = Plan(**{name: value for name, value in asked.items() if value is not None})
    console = Console(stderr=True)
    begin = time.perf_counter()
    with _bars(console, plain=True) as progress:
        runs = run_all(plan, progress)
    comparisons = compare(plan.counts, accuracies_by_strategy(runs), BASELINE)
    write_report(out, plan, runs, comparisons, time.perf_counter() - begin)
    head, *lines = table(plan, comparisons)
    shown = Table(*head, box=SIMPLE_HEAD)
    for line in lines:
        shown.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 100).print(shown)
    print(f"In brackets: 95 % intervals over {plan.seeds} seeds. Curves and pictures: {out}")


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """``name=value`` texts, cut at the first equals sign."""
    for text in texts:
        if "=" not in text:
            raise typer.BadParameter(f"--option is written name=value; got {text!r}")
    return dict(text.split("=", 1) for text in texts)


def _check_out(path: Path) -> None:
    """Find out before the work whether its result can be written."""
    check_format(path)
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} to write {path.name} to; make it")
    if path.suffix == ".parquet":
        try:
            import_module("pyarrow")
        except ImportError as error:
            raise MissingDependency(
                "writing .parquet needs pyarrow; run pip install 'labelwise[parquet]'"
            ) from error


@contextmanager
def _bars(console: Console, *, plain: bool = False) -> Iterator[Any]:
    """A progress callback that draws a bar per stage on a terminal.

    Elsewhere it is silent, or with ``plain`` prints a line when a stage is done.
    """
    if not console.is_terminal:
        yield _say_done if plain else None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bars:
        stages: dict[str, Any] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total)
            bars.update(stages[stage], completed=done, total=total)

        yield progress


def _say_done(stage: str, done: int, total: int) -> None:
    if done == total:
        print(f"{stage}: {done} of {total} done", file=sys.stderr, flush=True)


@contextmanager
def _notes() -> Iterator[None]:
    """Print the library's warnings as one line each."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", LabelwiseWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, LabelwiseWarning):
                print(f"note: {' '.join(str(message).split())}", file=sys.stderr)
            else:
                usual(message, category, *rest, **named)

        warnings.showwarning = show
        yield
