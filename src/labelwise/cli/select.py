"""``labelwise select``: pick items from files."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from labelwise.cli.app import app
from labelwise.cli.console import bars, number, whole_number
from labelwise.cli.inputs import check_apart, named_files
from labelwise.cli.outputs import check_file
from labelwise.errors import BadInput, MissingDependency, StorageFailed
from labelwise.selection.result import Selection, check_format
from labelwise.strategy import Strategy

_SELECT = """Pick the items worth labelling, from .npy or .parquet files with one row per item.

[bold]Examples[/bold]

  labelwise select f.npy --strategy lewis --budget 1000 --out picks.csv

  labelwise select f.npy g.npy -s lewis -b 1000 --option p=1.5 -o picks.csv

  labelwise select --probabilities p.npy -s margin -b 100 -o margin.csv

  labelwise select f.npy -s k_center -b 100 --labelled margin.csv -o more.csv

  labelwise select f.npy -s k_center -b 100 -o picks.csv --on ray --actors 4

  labelwise select 'pool-*.npy' -s lewis -b 1000 --dry-run

  labelwise select 'pool-*.npy' -s lewis -b 1000 -o picks.csv --resume going-on/

The picks come in order, with id, weight (how many items of the pool it stands for), count \
(how often it was drawn), score and rank; what a strategy does not give is left empty.
"""


Files = list[str]


@app.command(help=_SELECT)
def select(
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy", "-s", help="What decides; see labelwise strategies.", metavar="NAME"
        ),
    ],
    budget: Annotated[
        int,
        typer.Option(
            "--budget", "-b", help="How many items to pick.", metavar="N", parser=whole_number
        ),
    ],
    features: Annotated[
        Files | None,
        typer.Argument(
            help="Features (n, d): a file, a folder of parts or a quoted pattern; several of them, "
            "several models.",
            metavar="FILE",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Where the picks go: .csv, .jsonl or .parquet.", metavar="FILE"
        ),
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
    member_votes: Annotated[
        Files | None, typer.Option(help="Votes of m members (n, m).", metavar="FILE")
    ] = None,
    outputs: Annotated[
        Files | None, typer.Option(help="Predicted values (n, k).", metavar="FILE")
    ] = None,
    gradient_norms: Annotated[
        Files | None, typer.Option(help="Squared norms of gradients (n,).", metavar="FILE")
    ] = None,
    gradient_products: Annotated[
        Files | None,
        typer.Option(help="Their products with the labelled gradient (n,).", metavar="FILE"),
    ] = None,
    duals: Annotated[
        Files | None, typer.Option(help="Predicted dual variables (n,).", metavar="FILE")
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(help="The items' ids, one per line; else row numbers.", metavar="FILE"),
    ] = None,
    labelled: Annotated[
        Path | None,
        typer.Option(
            help="Ids labelled already: one per line, or picks.csv, .jsonl or .parquet.",
            metavar="FILE",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every draw.", metavar="N")] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the strategy; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="Where to read the rows: ray (started here), ray:HOST:PORT or ray://HOST:PORT.",
            metavar="CLUSTER",
        ),
    ] = None,
    actors: Annotated[
        int | None, typer.Option(help="How many processes of the cluster.", metavar="N")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Where to compute, such as cuda; blocks are brought there."),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            help="How much memory it may take; else what is free.", metavar="GIB", parser=number
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Write down here how far it has come, and go on from there if it was interrupted.",
            metavar="FOLDER",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what it would take, in a second, and pick nothing."),
    ] = False,
) -> None:
    """Pick the items worth labelling."""
    from labelwise.cli.option_values import parse_options, read_ids
    from labelwise.selection.request import Asked
    from labelwise.strategies import get

    if out is None and not dry_run:
        raise typer.BadParameter("missing option '--out'; say where the picks go, or --dry-run")
    given = named_files(
        features=features,
        probabilities=probabilities,
        logits=logits,
        member_probabilities=member_probabilities,
        member_votes=member_votes,
        outputs=outputs,
        gradient_norms=gradient_norms,
        gradient_products=gradient_products,
        duals=duals,
    )
    if out is not None:
        _check_out(out)
    check_apart(out, given, ids, labelled)
    chosen = get(strategy)
    options = parse_options(chosen, _pairs(option or []))
    _check_needs(chosen, given)
    _note_models(features or [])
    asked = Asked(
        chosen.with_options(**options),
        budget,
        given,
        ids=ids and read_ids(ids),
        labelled=labelled and read_ids(labelled),
        seed=seed,
        on=on,
        actors=actors,
        device=device,
        memory=memory,
        resume=resume,
    )
    if out is None or dry_run:
        _dry_run(asked)
    else:
        _run(asked, out)


def _dry_run(asked: Any) -> None:
    """Print what a selection would take, and refuse what would be refused."""
    from labelwise.selection.plan import size_text

    call, found = _opened(asked, timed=True)
    for line in found.lines() if found else ["nothing is read: there are no files"]:
        print(line)
    if found and asked.on is None:
        print(f"memory that may be taken: {size_text(call.limit)}")
    _ready(call)


def _run(asked: Any, out: Path) -> None:
    """Select, write the picks, and say how many."""
    console = Console(stderr=True)
    call, found = _opened(asked)
    for line in found.short() if found else ():
        console.print(line, style="dim", highlight=False, soft_wrap=True)
    with bars(console) as progress, _kept(asked.resume):
        with _ready(call, progress).picks() as picks:  # they can be had again until they are saved
            _save(picks, out, asked.resume)
    weighted = asked.strategy.weighted
    size = f", worth {picks.effective_size():.0f} equally weighted" if weighted else ""
    print(f"{len(picks)} picks written to {out}{size}")


def _opened(asked: Any, *, timed: bool = False) -> tuple[Any, Any]:
    """The call with its files open, and its plan."""
    call = asked.open()
    found = call.plan(timed=timed)
    if found is not None and not found.items:
        raise BadInput("the pool has no items; give files with at least one row")
    return call, found


def _ready(call: Any, progress: Any = None) -> Any:
    """The selection after all checks that can be made before it begins."""
    return call._replace(asked=call.asked._replace(progress=progress)).ready()


def _save(picks: Selection, out: Path, folder: str | None) -> None:
    try:
        picks.save(out)
    except OSError as error:
        again = "" if folder is None else f"; the same command goes on from {folder}"
        raise StorageFailed(
            f"cannot write {out} ({error.strerror or error}); make room there, or give another "
            f"--out{again}"
        ) from error


def _check_needs(strategy: Strategy, given: Mapping[str, Any]) -> None:
    """Refuse files that are not enough for a strategy, and name the options that are missing."""
    from labelwise.selection.plan import needed

    gaps = [set(names) - set(given) for names in (strategy.needs, *strategy.or_needs)]
    try:
        needed(strategy, given)
    except BadInput as error:
        missing = min(gaps, key=len)
        if not missing:  # files enough, but of too many models
            raise
        options = [f"--{name.replace('_', '-')} FILE" for name in sorted(missing - {"features"})]
        wanted = ["a FILE of features"] * ("features" in missing) + options
        raise BadInput(f"{error}; give {' and '.join(wanted)}") from None


def _note_models(files: Sequence[str]) -> None:
    """Say what several files are taken for if a shell may have made them of a pattern."""
    if len(files) > 1 and len({re.sub(r"\d+", "", file) for file in files}) == 1:
        print(
            f"note: {len(files)} files of features are {len(files)} models of the same items; if "
            "they are parts of one pool, give their folder, or a pattern in quotes",
            file=sys.stderr,
        )


@contextmanager
def _kept(folder: str | None) -> Iterator[None]:
    """After an interruption, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is not None:
            from labelwise.selection.checkpoint import kept

            done = (
                "what was done so far is kept" if kept(Path(folder)) else "nothing was finished yet"
            )
            print(f"note: {done} in {folder}; the same command goes on", file=sys.stderr)
        raise


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """``name=value`` texts, cut at the first equals sign."""
    for text in texts:
        if "=" not in text:
            raise typer.BadParameter(f"--option is written name=value; got {text!r}")
    pairs = [text.split("=", 1) for text in texts]
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise typer.BadParameter(
                f"--option {name} is given {names.count(name)} times; give it once"
            )
    return dict(pairs)


def _check_out(path: Path) -> None:
    """Find out before the work whether its result can be written."""
    if not path.is_dir():
        check_format(path)
    check_file(path)
    if path.suffix == ".parquet":
        try:
            import_module("pyarrow")
        except ImportError as error:
            raise MissingDependency(
                "writing .parquet needs pyarrow; run pip install 'labelwise[parquet]'"
            ) from error
