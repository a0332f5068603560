"""``labelwise start``: from a folder of pictures, a table or features to a campaign."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from labelwise.cli.app import app
from labelwise.cli.console import bars, names_in
from labelwise.cli.hints import quoted
from labelwise.cli.words import many, safe
from labelwise.errors import BadInput, LabelwiseError

_START = """Begin to label a folder of pictures, a table, or a file of features.

[bold]Examples[/bold]

  labelwise start photos --classes cat,dog,other

  labelwise start reviews.csv --text review --classes good,bad --batch 20

  labelwise start houses.parquet --regression --without id,address

  labelwise start f.npy --strategy lewis --budget-labels 500

Makes the folder NAME.labelwise with all that belongs to the campaign; your own files are only \
read. Pictures may lie in folders. Then [bold]labelwise label[/bold] opens the page.
"""

_LISTED = 20
"""So many broken items are printed; all of them are counted."""


@app.command(help=_START)
def start(
    source: Annotated[
        Path, typer.Argument(help="What to label.", metavar="DIR|FILE", show_default=False)
    ],
    classes: Annotated[
        str | None, typer.Option(help="Names of the classes. (told later)", metavar="A,B,C")
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
    strategy: Annotated[
        str | None,
        typer.Option(help="What chooses. (badge; random for a regression)", metavar="NAME"),
    ] = None,
    batch: Annotated[int, typer.Option(help="Items at a time.", metavar="N")] = 50,
    regression: Annotated[
        bool, typer.Option("--regression", help="Labels are amounts, not classes.")
    ] = False,
    overlap: Annotated[int, typer.Option(help="People per item.", metavar="N")] = 1,
    validation: Annotated[
        float, typer.Option(help="Share of a batch drawn at random to measure on.", metavar="S")
    ] = 0.2,
    budget_labels: Annotated[
        int | None, typer.Option(help="Labels to buy at most.", metavar="N")
    ] = None,
    budget_money: Annotated[
        float | None, typer.Option(help="Money to spend at most.", metavar="X")
    ] = None,
    budget_hours: Annotated[
        float | None, typer.Option(help="Hours to spend at most.", metavar="X")
    ] = None,
    price: Annotated[float | None, typer.Option(help="Money per label.", metavar="X")] = None,
    hourly: Annotated[
        float | None, typer.Option(help="Money per hour of labelling.", metavar="X")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="A row per item, for the model to see instead.", metavar="FILE"),
    ] = None,
    embedding: Annotated[
        str,
        typer.Option(help="Of texts: tfidf, or a sentence-transformers model.", metavar="NAME"),
    ] = "tfidf",
    module: Annotated[
        str | None,
        typer.Option(help="Function (shape, outputs) -> torch module.", metavar="package.m:f"),
    ] = None,
    side: Annotated[int, typer.Option(help="Scale pictures to this side.", metavar="N")] = 32,
    seed: Annotated[int, typer.Option(help="Decides all draws.", metavar="N")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The campaign's folder. (NAME.labelwise)"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The campaign's name. (the source's)", metavar="NAME")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Where the record is kept. (a file in the folder)", metavar="URL"),
    ] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out what cannot be read.")
    ] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Add new items to the campaign that is there.")
    ] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="Say that its files are at DIR|FILE now.")
    ] = False,
) -> None:
    """Make a campaign."""
    from labelwise.campaign.project import Project, folder_of

    if refresh or moved:
        project = Project.open(out or folder_of(source, name))
        if moved:
            _say_moved(project, source)
        if refresh:
            _refresh(project, source, skip_broken)
        return
    settings = {
        "regression": regression,
        "overlap": overlap,
        "validation": validation,
        "budget_labels": budget_labels,
        "budget_money": budget_money,
        "budget_hours": budget_hours,
        "price": price,
        "hourly": hourly,
        "seed": seed,
    }
    with bars(Console(stderr=True)) as progress, _broken_listed():
        project = Project.start(
            source,
            home=out,
            name=name,
            classes=names_in(classes) or None,
            text=names_in(text),
            columns=names_in(columns),
            without=names_in(without),
            strategy=strategy,
            batch=batch,
            storage=storage,
            features=features,
            embedding=embedding,
            module=module,
            side=side,
            skip_broken=skip_broken,
            progress=progress,
            **settings,
        )
    _announce(project, storage)


@contextmanager
def _broken_listed() -> Iterator[None]:
    """Print what cannot be read line by line, before the error in one line."""
    try:
        yield
    except LabelwiseError as error:
        _list(getattr(error, "__notes__", []))
        raise


def _list(lines: Sequence[str]) -> None:
    for line in lines[:_LISTED]:
        print(f"  {safe(line)}", file=sys.stderr)
    if len(lines) > _LISTED:
        print(f"  and {len(lines) - _LISTED:,} more", file=sys.stderr)


def _announce(project: Any, storage: str | None) -> None:
    """Say what was found, what will happen, and what to type."""
    grown, settings = project.grown, project.desk().settings
    print(f"{safe(project.source.name)}: {grown.notes[0]}")
    for note in grown.notes[1:]:
        print(f"  {safe(note)}")
    _say_broken(grown)
    print(f"Campaign {safe(project.name)} is in {project.home}: {many(grown.new, 'item')}.")
    if settings.classes is not None:
        print(f"  classes: {safe(', '.join(map(str, settings.classes)))}")
    elif settings.regression:
        print("  labels: amounts")
    else:
        print("  classes: none yet; add them on the page, or type")
        print(f"    labelwise change classes=a,b,c{_which(project)}")
    share = f", {settings.validation:.0%} of them at random to measure on"
    print(
        f"  {many(settings.batch, 'item')} at a time, chosen by {settings.strategy}"
        f"{share if settings.validation else ''}"
    )
    if storage is not None and project.facts.storage != storage and "@" in storage:
        print("  the password is not kept: set LABELWISE_STORAGE for the other commands")
    print(f"Next: labelwise label{_which(project)}")


def _which(project: Any) -> str:
    """The option that names the campaign, where commands would not find it by themselves."""
    from labelwise.campaign.project import Project

    try:
        if Project.open().home.resolve() == project.home.resolve():
            return ""
    except LabelwiseError:
        pass
    return f" -c {quoted(os.path.relpath(project.home))}"


def _say_broken(grown: Any) -> None:
    if grown.broken:
        print(f"  left out, since they cannot be used: {len(grown.broken):,}")
        _list([f"{name}: {reason}" for name, reason in grown.broken.items()])


def _say_moved(project: Any, source: Path) -> None:
    missing = project.repoint(source)
    print(f"Campaign {safe(project.name)} has its items from {source} now.")
    if missing:
        command = f"labelwise start {quoted(source)} --refresh --out {quoted(project.home)}"
        print(f"  {many(missing, 'item')} are not there; {command} notes them")


def _refresh(project: Any, source: Path, skip_broken: bool) -> None:
    if source.exists() and source.resolve() != project.source.resolve():
        raise BadInput(
            f"the campaign has its items from {project.source}, not {source}; if they were moved, "
            "add --moved"
        )
    with bars(Console(stderr=True)) as progress, _broken_listed():
        grown = project.refresh(skip_broken=skip_broken, progress=progress)
    print(f"{safe(project.name)}: {many(grown.new, 'new item')}, {len(project.items):,} in all")
    _say_broken(grown)
    if grown.gone:
        print(f"  gone, and not asked for any more: {many(len(grown.gone), 'item')}")
        names = [project.items.describe(item) for item in grown.gone[: _LISTED + 1]]
        _list([f"{about['id']}: {safe(_word(about), 60)}" for about in names])
    if grown.back:
        print(f"  there again: {many(len(grown.back), 'item')}")


def _word(about: Any) -> str:
    for key in ("name", "text", "columns"):
        if key in about:
            return str(about[key])
    return ""
