"""The Typer application and what all commands of a campaign share: options and hints.

Errors and notes from all layers name commands such as ``labelwise train``. If the user gave
``-c FOLDER``, such a hint needs the folder too: otherwise the command would find another campaign,
or none.
"""

import inspect
import logging
import re
import shlex
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option
from typer.models import CommandInfo

from labelwise.errors import LabelwiseError

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

# Options of several commands.
CampaignOption = Annotated[
    Path | None,
    Option("--campaign", "-c", help="Folder of the campaign (default: the one found here)."),
]
SpreadsheetOption = Annotated[
    bool, Option("--spreadsheet", help="Make a .csv file safe for Excel: ' before formulas.")
]
IdColumnOption = Annotated[
    str | None, Option("--id", help="Column with your own ids.", metavar="COLUMN")
]
TrackOption = Annotated[
    str | None,
    Option("--track", help="Log every round: mlflow:URI or tensorboard:FOLDER.", metavar="TARGET"),
]
ByOption = Annotated[str, Option("--by", help="Name of the annotator.", metavar="NAME")]
JsonOption = Annotated[bool, Option("--json", help="Print JSON.")]
SeedOption = Annotated[int | None, Option("--seed", help="Random seed (default: the campaign's).")]
StrategyOptions = Annotated[
    list[str] | None,
    Option("--option", help="Option of the strategy; may be repeated.", metavar="NAME=VALUE"),
]
IdFileOption = Annotated[
    Path | None, Option("--ids", help="Ids of the items, one per line (default: row numbers).")
]
LabelledOption = Annotated[
    Path | None, Option("--labelled", help="Ids of labelled items, one per line, or picks.")
]
DeviceOption = Annotated[str, Option("--device", help="auto, cpu or cuda.")]
WorkersOption = Annotated[
    int | None, Option("--workers", help="Parallel processes (default: one per core).")
]
TextOption = Annotated[str | None, Option("--text", help="Text columns.", metavar="A,B")]
ColumnsOption = Annotated[
    str | None, Option("--columns", help="Numeric columns to use (default: all).", metavar="A,B")
]
WithoutOption = Annotated[
    str | None, Option("--without", help="Columns to leave out, such as ids.", metavar="A,B")
]
SkipBrokenOption = Annotated[
    bool, Option("--skip-broken", help="Leave out items that cannot be read.")
]
HostOption = Annotated[str, Option("--host", help="Address to listen on.")]
BatchOption = Annotated[
    int | None, Option("--batch", "-b", help="Number of items (default: the campaign's).", min=1)
]
StrategyOption = Annotated[
    str | None, Option("--strategy", "-s", help="Selection strategy (default: the campaign's).")
]
StrategiesOption = Annotated[
    str | None,
    Option("--strategies", help="Strategies to compare (default: the usual ones).", metavar="A,B"),
]
SeedsOption = Annotated[int, Option("--seeds", help="Runs of each strategy.", min=1)]
EncoderOption = Annotated[
    str, Option("--encoder", help="Encoder; see labelwise encoders.", metavar="SPEC")
]
ClusterOption = Annotated[
    str | None,
    Option(
        "--on",
        help="Ray cluster: ray (started here), ray:HOST:PORT or ray://HOST:PORT.",
        metavar="CLUSTER",
    ),
]
PageOption = Annotated[Path, Option("--out", "-o", help="Page to write.")]
PortOption = Annotated[int, Option("--port", help="Port; 0 for any free one.", min=0, max=65535)]
TokenOption = Annotated[
    str | None,
    Option("--token", help="Token that callers need.", envvar="LABELWISE_TOKEN", show_envvar=True),
]
AllowHostOption = Annotated[
    list[str] | None,
    Option(
        "--allow-host",
        help="Further name of this server (behind a proxy).",
        envvar="LABELWISE_ALLOW_HOST",
        metavar="HOST",
    ),
]

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
_open_campaign: ContextVar["Project | None"] = ContextVar("open_campaign", default=None)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        print(f"labelwise {metadata.version('labelwise')}")
        raise typer.Exit


@app.callback(help=_ABOUT)
def _run_labelwise(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Print what the library logs, with times.")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print no notes and no progress.")] = False,
) -> None:
    quiet_mode.set(quiet)
    log = logging.getLogger("labelwise")
    log.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    log.handlers[1:] = [handler] if verbose else []  # the first one is the library's NullHandler


def add_record_command(name: str) -> Callable[[Any], Any]:
    """Register a command as ``labelwise record NAME``, and as ``labelwise NAME``, hidden."""

    def register_record_command(function: Any) -> Any:
        app.command(name, hidden=True)(function)
        return record_group.command(name)(function)

    return register_record_command


def list_commands() -> Iterator[tuple[str, CommandInfo]]:
    """All commands with the name of their group, ``""`` for none."""
    groups = [("", app), *((str(g.name), g.typer_instance) for g in app.registered_groups)]
    for prefix, group in groups:
        for entry in group.registered_commands if group is not None else ():
            yield prefix, entry


def format_command_help(docstring: str) -> str:
    r"""The help text of a command: its docstring with paragraphs on one line and examples in bold.

    Example:
        >>> format_command_help("Count.\n\n    Examples:\n        count 1\n        count 2\n    ")
        'Count.\n\n[bold]Examples[/bold]\n\n  count 1\n\n  count 2'
    """
    paragraphs: list[str] = []
    for block in inspect.cleandoc(docstring).split("\n\n"):
        head, *rest = block.split("\n")
        if head == "Examples:":
            paragraphs += ["[bold]Examples[/bold]", *(f"  {line.strip()}" for line in rest)]
        else:
            paragraphs.append(" ".join([head, *rest]))
    return "\n\n".join(paragraphs)


def open_project(folder: Path | None) -> "Project":
    """Open the campaign in a folder, or with None the one found in the current folder."""
    from labelwise.campaign.project import Project

    set_campaign_folder(folder)
    project = Project.open(folder)
    _open_campaign.set(project)
    return project


def set_campaign_folder(folder: Path | None) -> None:
    """Remember the campaign folder given on the command line; None for none."""
    _campaign_folder.set(folder)
    _open_campaign.set(None)


def name_items_in_text(text: str) -> str:
    """Replace the numbers of items in a text by the user's own ids, if the campaign has them."""
    project = _open_campaign.get()

    def name(found: re.Match[str]) -> str:
        assert project is not None
        try:
            return f"item {project.items.key(int(found[1]))}"
        except (LabelwiseError, OSError):  # not of the campaign, or its list is damaged
            return found[0]

    return text if project is None else re.sub(r"\bitem (\d+)\b", name, text)


def complete_command_hints(text: str) -> str:
    """Add the campaign folder that the user gave to every campaign command in a text.

    Example:
        >>> set_campaign_folder(Path("my photos"))
        >>> complete_command_hints("run labelwise train, then labelwise ask --out batch.csv")
        "run labelwise train -c 'my photos', then labelwise ask -c 'my photos' --out batch.csv"
        >>> set_campaign_folder(None)
        >>> complete_command_hints("run labelwise train")
        'run labelwise train'
    """
    folder = _campaign_folder.get()
    if folder is None:
        return text
    # Skip commands that name a folder already, and longer names such as "label-studio".
    pattern = rf"\blabelwise (?:{'|'.join(_list_campaign_commands())})(?![\w-])(?! -c )"
    return re.sub(pattern, lambda found: f"{found[0]} -c {quote_shell_path(folder)}", text)


def quote_shell_path(path: object) -> str:
    """Quote a path for a shell.

    Example:
        >>> quote_shell_path(Path("my photos")), quote_shell_path("photos")
        ("'my photos'", 'photos')
    """
    return shlex.quote(str(path))


def _list_campaign_commands() -> list[str]:
    """List the commands that take ``--campaign``, including those of groups."""
    return [
        f"{group} {entry.name}".strip()
        for group, entry in list_commands()
        if entry.callback and "campaign" in inspect.signature(entry.callback).parameters
    ]
