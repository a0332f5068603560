"""``labelwise select`` and ``labelwise strategies``: pick items from files."""

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from labelwise.cli.app import (
    ClusterOption,
    IdColumnOption,
    IdFileOption,
    LabelledOption,
    StrategyOptions,
    app,
    quiet_mode,
)
from labelwise.cli.console import print_listing, show_progress
from labelwise.cli.files import (
    check_input_files,
    check_output_file,
    collect_given_files,
    parse_strategy_options,
    read_ids_file,
    split_option_texts,
)
from labelwise.errors import BadInput, StorageFailed
from labelwise.files import JsonObject
from labelwise.selection.result import FORMATS, Selection
from labelwise.strategy import Strategy

if TYPE_CHECKING:
    from labelwise.selection.plan import SelectionPlan
    from labelwise.selection.request import SelectionRequest

Files = list[str]
_INDENT = " " * 4


@app.command("select")
def select_items(
    strategy: Annotated[
        str, Option("--strategy", "-s", help="Selection strategy; see labelwise strategies.")
    ],
    budget: Annotated[int, Option("--budget", "-b", help="Number of picks.", metavar="N")],
    features: Annotated[
        Files | None,
        Argument(
            help="Features (n, d): a file, a folder of parts or a quoted pattern; several are the "
            "features of several models.",
            metavar="FILE",
        ),
    ] = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="File for the picks: .csv, .jsonl or .parquet.")
    ] = None,
    probabilities: Annotated[Files | None, Option(help="Class probabilities (n, K).")] = None,
    logits: Annotated[Files | None, Option(help="Class scores before the softmax (n, K).")] = None,
    member_probabilities: Annotated[
        Files | None, Option(help="Class probabilities of m models (n, m, K).")
    ] = None,
    member_votes: Annotated[Files | None, Option(help="Votes of m models (n, m).")] = None,
    outputs: Annotated[Files | None, Option(help="Predicted values (n, k).")] = None,
    gradient_norms: Annotated[
        Files | None, Option(help="Squared norms of the gradients (n,).")
    ] = None,
    gradient_products: Annotated[
        Files | None, Option(help="Products with the gradient of the labelled items (n,).")
    ] = None,
    gradient_sketch: Annotated[
        Files | None, Option(help="Projections of the gradients (n, d).")
    ] = None,
    duals: Annotated[Files | None, Option(help="Predicted dual variables (n,).")] = None,
    ids: IdFileOption = None,
    id_column: IdColumnOption = None,
    labelled: LabelledOption = None,
    seed: Annotated[int, Option(help="Random seed.")] = 0,
    option: StrategyOptions = None,
    on: ClusterOption = None,
    actors: Annotated[int | None, Option(help="Number of Ray processes.")] = None,
    device: Annotated[str | None, Option(help="Device to compute on, such as cuda.")] = None,
    memory: Annotated[float | None, Option(help="Limit (default: free).", metavar="GIB")] = None,
    resume: Annotated[
        str | None,
        Option(help="Folder for checkpoints; an interrupted selection continues from it."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print only the plan and cost.")] = False,
) -> None:
    """Pick the items worth labelling, from .npy or .parquet files with one row per item.

    Examples:
        labelwise select f.npy --strategy lewis --budget 1000 --out picks.csv
        labelwise select f.npy g.npy -s lewis -b 1000 --option p=1.5 -o picks.csv
        labelwise select --probabilities p.npy -s margin -b 100 -o margin.csv
        labelwise select f.npy -s k_center -b 100 --labelled margin.csv -o more.csv
        labelwise select f.npy -s k_center -b 100 -o picks.csv --on ray --actors 4
        labelwise select 'pool-*.npy' -s lewis -b 1000 --dry-run
        labelwise select 'pool-*.npy' -s lewis -b 1000 -o picks.csv --resume checkpoint/

    The picks are written in order, with id, weight (number of pool items it represents), count
    (number of times it was drawn), score and rank; columns that a strategy does not provide are
    empty.
    """
    from labelwise.pool.pool import Pool
    from labelwise.selection.request import SelectionRequest
    from labelwise.strategies import get

    if out is None and not dry_run:
        raise typer.BadParameter("missing option '--out'; give a file for the picks, or --dry-run")
    given = collect_given_files(
        features=features,
        probabilities=probabilities,
        logits=logits,
        member_probabilities=member_probabilities,
        member_votes=member_votes,
        outputs=outputs,
        gradient_norms=gradient_norms,
        gradient_products=gradient_products,
        gradient_sketch=gradient_sketch,
        duals=duals,
    )
    if out is not None:
        check_output_file(out, FORMATS)
    check_input_files(out, given, ids, labelled)
    chosen = get(strategy)
    options = parse_strategy_options(chosen, split_option_texts(option or []))
    _check_strategy_needs(chosen, given)
    _note_several_feature_files(features or [])
    paths: JsonObject = dict(given)
    request = SelectionRequest(
        chosen.with_options(**options),
        budget,
        Pool(ids=ids and read_ids_file(ids, id_column), id_column=id_column or "id", **paths),
        labelled=labelled and read_ids_file(labelled, id_column),
        seed=seed,
        on=on,
        actors=actors,
        device=device,
        memory=memory,
        resume=resume,
    )
    if out is None or dry_run:
        _print_selection_plan(request)
    else:
        _run_selection(request, out)


def _print_selection_plan(request: "SelectionRequest") -> None:
    """Print the cost of a selection, after the same checks as a real one."""
    from labelwise.selection.plan import format_size

    plan = _plan_selection(request, timed=True)
    for line in plan.describe_fully() if plan else ["nothing is read: there are no files"]:
        print(line)
    if plan and request.on is None:
        print(f"memory that may be used: {format_size(request.memory_limit)}")
    request.prepare()


def _run_selection(request: "SelectionRequest", out: Path) -> None:
    """Select, write the picks, and print a summary."""
    console = Console(stderr=True)
    plan = _plan_selection(request)
    for line in plan.describe_briefly() if plan and not quiet_mode.get() else ():
        console.print(line, style="dim", highlight=False, soft_wrap=True)
    with show_progress() as progress, _note_saved_checkpoint(request.resume):
        request.progress = progress
        with request.run() as picks:  # the checkpoint stays until they are saved
            _save_picks(picks, out, request.resume)
    weighted = request.strategy.weighted
    size = f", worth {picks.effective_size():.0f} equally weighted" if weighted else ""
    print(f"{len(picks)} picks written to {out}{size}")


def _plan_selection(request: "SelectionRequest", *, timed: bool = False) -> "SelectionPlan | None":
    """The cost of the selection; a pool without items is an error."""
    plan = request.plan(timed=timed)
    if plan is not None and not plan.items:
        raise BadInput("the pool has no items; give files with at least one row")
    return plan


def _save_picks(picks: Selection, out: Path, checkpoint: str | Path | None) -> None:
    try:
        picks.save(out)
    except OSError as error:
        again = "" if checkpoint is None else f"; the same command continues from {checkpoint}"
        raise StorageFailed(
            f"cannot write {out} ({error.strerror or error}); make room there, or give another "
            f"--out{again}"
        ) from error


def _check_strategy_needs(strategy: Strategy, given: Mapping[str, object]) -> None:
    """Name the missing options if the given files are not enough for a strategy."""
    gaps = [set(names) - set(given) for names in strategy.input_sets]
    try:
        strategy.match_needs(given)
    except BadInput as error:
        missing = min(gaps, key=len)
        if not missing:  # enough files, but of too many models
            raise
        options = [f"--{name.replace('_', '-')} FILE" for name in sorted(missing - {"features"})]
        wanted = ["a FILE of features"] * ("features" in missing) + options
        raise BadInput(f"{error}; give {' and '.join(wanted)}") from None


def _note_several_feature_files(files: Sequence[str]) -> None:
    """Print a note if a shell may have expanded a pattern of parts into several models."""
    if len(files) > 1 and len({re.sub(r"\d+", "", file) for file in files}) == 1:
        print(
            f"note: {len(files)} files of features are {len(files)} models of the same items; if "
            "they are parts of one pool, give their folder, or a pattern in quotes",
            file=sys.stderr,
        )


@contextmanager
def _note_saved_checkpoint(folder: str | Path | None) -> Iterator[None]:
    """After an interruption, print whether the selection can be continued."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is not None:
            from labelwise.selection.checkpoint import count_resumable_results

            kept = count_resumable_results(Path(folder))
            saved = "the work so far is saved" if kept else "nothing was finished yet"
            print(f"note: {saved} in {folder}; the same command continues", file=sys.stderr)
        raise


@app.command("strategies")
def list_strategies(
    name: Annotated[str | None, Argument(help="Show one strategy in detail.")] = None,
) -> None:
    """List the strategies: the input they need, whether they give weights, and their purpose.

    In a pipe or a file, columns are separated by tabs; there, and with a name, the reference too.
    """
    from labelwise.strategies import get, strategies

    if name is not None:
        _print_strategy(get(name))
        return
    rows = [
        (
            entry.name,
            _format_strategy_needs(entry),
            "yes" if entry.weighted else "no",
            entry.good_for,
            entry.reference,
        )
        for entry in strategies().values()
    ]
    print_listing(("name", "needs", "weights", "good for", "reference"), rows)


def _format_strategy_needs(strategy: Strategy) -> str:
    sets = [names for names in strategy.input_sets if names]
    return ", or ".join(" + ".join(names) for names in sets) or "nothing"


def _print_strategy(strategy: Strategy) -> None:
    several = ", of one or several models" if strategy.several else ""
    print(f"{strategy.name}: {strategy.good_for}")
    print(f"reads {_format_strategy_needs(strategy)}{several}")
    print("its picks carry weights" if strategy.weighted else "its picks carry no weights")
    meanings = describe_strategy_options(strategy)
    for option, default in strategy.options.items():
        print(f"--option {option}={default}")
        if option in meanings:
            about = meanings[option]
            print(textwrap.fill(about, 96, initial_indent=_INDENT, subsequent_indent=_INDENT))
    print(strategy.reference)


def describe_strategy_options(strategy: Strategy) -> dict[str, str]:
    """Read the meanings of options from the docstring of the strategy's main function."""
    text = inspect.getdoc(strategy.main) or ""
    sections = re.findall(r"^(?:Args|Options):\n((?:    .*\n?|\n)+)", text, re.M)
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", "\n".join(sections), re.M)
    plain = {name: " ".join(about.replace("``", "").split()) for name, about in entries}
    return {name: about for name, about in plain.items() if name in strategy.options}
