"""The Typer application and what all commands of a campaign share: options and hints.

Errors and notes from all layers name commands such as ``labelwise train``. If the user gave
``-c FOLDER``, such a hint needs the folder too: otherwise the command would find another campaign,
or none.
"""

import inspect
import logging
import re
import shlex
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from labelwise.campaign.project import Project

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
record_group = typer.Typer(
    no_args_is_help=True, help="Read and correct the record of a campaign: history, disputes, undo."
)
app.add_typer(record_group, name="record")

CampaignOption = Annotated[
    Path | None,
    typer.Option("--campaign", "-c", help="Folder of the campaign (default: the one found here)."),
]
"""``-c`` or ``--campaign``; give it to `open_project`."""

SpreadsheetOption = Annotated[
    bool,
    typer.Option("--spreadsheet", help="Make a .csv file safe for Excel: ' before formulas."),
]

IdColumnOption = Annotated[
    str | None, typer.Option("--id", help="Column with your own ids.", metavar="COLUMN")
]
"""The key column of a table or Parquet file."""

TrackOption = Annotated[
    str | None,
    typer.Option(
        "--track", help="Log every round: mlflow:URI or tensorboard:FOLDER.", metavar="TARGET"
    ),
]

ByOption = Annotated[str, typer.Option("--by", help="Name of the annotator.", metavar="NAME")]

_ABOUT = """Choose which items of a large unlabelled pool to label, and how much each should weigh.

[bold]Try it[/bold] (two minutes, writes demo/report.html)

  labelwise demo

[bold]Label[/bold] a folder of images or a table of texts

  labelwise start photos/ --classes cat,dog

  labelwise label

[bold]Select[/bold] with your model's last hidden layer, saved as one row per item

  labelwise plan f.npy --error 0.1

  labelwise select f.npy --strategy k_center --budget 100 --out picks.csv

  labelwise explain picks.csv f.npy
"""

quiet_mode: ContextVar[bool] = ContextVar("quiet_mode", default=False)
"""Whether notes and progress are left out."""

_campaign_folder: ContextVar[Path | None] = ContextVar("campaign_folder", default=None)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        print(f"labelwise {metadata.version('labelwise')}")
        raise typer.Exit


@app.callback(help=_ABOUT)
def _run_labelwise(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print what the library logs, with times.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no notes and no progress.")
    ] = False,
) -> None:
    quiet_mode.set(quiet)
    log = logging.getLogger("labelwise")
    log.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    log.handlers[1:] = [handler] if verbose else []  # the first one is the library's NullHandler


def add_record_command(name: str, help: str | None = None) -> Callable[[Any], Any]:
    """Register a command as ``labelwise record NAME``, and as ``labelwise NAME``, hidden."""

    def register(function: Any) -> Any:
        app.command(name, help=help, hidden=True)(function)
        return record_group.command(name, help=help)(function)

    return register


def open_project(folder: Path | None) -> "Project":
    """Open the campaign in a folder, or with None the one found in the current folder."""
    from labelwise.campaign.project import Project

    set_campaign_folder(folder)
    return Project.open(folder)


def set_campaign_folder(folder: Path | None) -> None:
    """Remember the campaign folder given on the command line; None for none."""
    _campaign_folder.set(folder)


def complete_commands(text: str) -> str:
    """Add the campaign folder that the user gave to every campaign command in a text.

    Example:
        >>> set_campaign_folder(Path("my photos"))
        >>> complete_commands("run labelwise train, then labelwise ask --out batch.csv")
        "run labelwise train -c 'my photos', then labelwise ask -c 'my photos' --out batch.csv"
        >>> set_campaign_folder(None)
        >>> complete_commands("run labelwise train")
        'run labelwise train'
    """
    folder = _campaign_folder.get()
    if folder is None:
        return text
    # Skip commands that name a folder already, and longer names such as "label-studio".
    pattern = rf"\blabelwise (?:{'|'.join(_list_campaign_commands())})(?![\w-])(?! -c )"
    return re.sub(pattern, lambda found: f"{found[0]} -c {quote_path(folder)}", text)


def quote_path(path: object) -> str:
    """Quote a path for a shell.

    Example:
        >>> quote_path(Path("my photos")), quote_path("photos")
        ("'my photos'", 'photos')
    """
    return shlex.quote(str(path))


def _list_campaign_commands() -> list[str]:
    """List the commands that take ``--campaign``, including those of groups."""
    groups = [("", app), *((f"{g.name} ", g.typer_instance) for g in app.registered_groups)]
    found = []
    for prefix, group in groups:
        for entry in group.registered_commands if group is not None else ():
            function = entry.callback
            if function is not None and "campaign" in inspect.signature(function).parameters:
                found.append(prefix + (entry.name or function.__name__.replace("_", "-")))
    return found
