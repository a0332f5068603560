"""All commands under the headings of help, and how a call of them ends.

What only one command needs is imported inside it, so that ``labelwise --help`` answers at once.
"""

from collections.abc import Sequence

import typer

from labelwise.cli import (
    ask,
    benchmark,
    benchmark_run,
    campaign_report,
    data,
    demo,
    explain,
    export,
    history,
    label,
    label_studio,
    people,
    plan,
    select,
    simulate,
    start,
    status,
    strategies,
    tell,
    train,
)
from labelwise.cli.app import app
from labelwise.cli.console import fail, interrupted, keeps, notes
from labelwise.cli.hints import remember
from labelwise.errors import LabelwiseError

__all__ = ["GROUPS", "app", "run"]

GROUPS = {
    "Label": (
        start,
        label,
        ask,
        tell,
        train,
        status,
        history,
        export,
        campaign_report,
        people,
        label_studio,
    ),
    "Choose": (select, strategies, plan, explain),
    "Prove": (demo, simulate, benchmark, benchmark_run, data),
}
"""The files whose import has added commands, as help lists them."""


def _arrange() -> None:
    """Put the commands under the headings of their groups."""
    headings = {file.__name__: name for name, files in GROUPS.items() for file in files}
    order = list(headings)
    for command in app.registered_commands:
        command.rich_help_panel = headings[command.callback.__module__]
    app.registered_commands.sort(key=lambda entry: order.index(entry.callback.__module__))
    for group in app.registered_groups:
        group.rich_help_panel = "Label" if group.name == "label-studio" else "Prove"


_arrange()


def run(arguments: Sequence[str]) -> int:
    """Run the command line; an error is one line on stderr.

    Returns:
        0 if all went well, 1 after an error, 2 after misuse, 130 after an interruption.
    """
    try:
        return _run(arguments)
    finally:
        remember(None)  # the next call has a campaign of its own
        keeps(None)


def _run(arguments: Sequence[str]) -> int:
    try:
        with notes():
            asked = list(arguments) or ["--help"]
            code = app(asked, prog_name="labelwise", standalone_mode=False)
    except typer.TyperException as error:  # no such option, no such command, a value missing
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "labelwise"
        return fail(f"{error.format_message()}; see {path} --help", error.exit_code)
    except SystemExit as left:  # a command that has said all there is to say
        return left.code if isinstance(left.code, int) else 1
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except (LabelwiseError, OSError, MemoryError) as error:
        return fail(str(error) or "not enough memory", 1)
    if code == 130:  # Typer, too, turns an interruption into this code
        return fail(interrupted(), code)
    return code if isinstance(code, int) else 0
