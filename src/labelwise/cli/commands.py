"""All commands under the headings of the help, and how a call ends.

Imports that only one command needs are inside it, so that ``labelwise --help`` answers quickly.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import typer

from labelwise.cli import (
    ask,
    benchmark,
    encode,
    export,
    label,
    label_studio,
    predict,
    record,
    select,
    simulate,
    start,
    status,
    tell,
    theory,
)
from labelwise.cli.app import app, format_help, list_commands, set_campaign_folder
from labelwise.cli.console import (
    describe_interruption,
    print_error,
    print_warnings,
    set_results_file,
)
from labelwise.cli.settings_file import read_settings
from labelwise.errors import LabelwiseError

__all__ = ["PANELS", "app", "run"]

PANELS = {
    "Label": (start, label, ask, tell, status, predict, export, record, label_studio),
    "Select": (select, encode, theory),
    "Evaluate": (simulate, benchmark),
}
"""Headings of the help, each with the modules whose commands it lists."""


def _arrange_help() -> None:
    for _, command in list_commands():
        command.help = format_help(command.callback.__doc__ or "")
    headings = {file.__name__: name for name, files in PANELS.items() for file in files}
    order = list(headings)
    for command in app.registered_commands:
        command.rich_help_panel = headings[command.callback.__module__]
    app.registered_commands.sort(key=lambda entry: order.index(entry.callback.__module__))
    for group in app.registered_groups:
        if group.typer_instance is not None and group.typer_instance.registered_callback:
            callback = group.typer_instance.registered_callback
            callback.help = format_help(callback.callback.__doc__ or "")
        panels = {"label-studio": "Label", "record": "Label", "encoders": "Select"}
        group.rich_help_panel = panels.get(group.name or "", "Evaluate")


_arrange_help()


def run(arguments: Sequence[str]) -> int:
    """Run the command line; an error is one line on stderr.

    Returns:
        0 after success, 1 after an error, 2 after wrong usage, 130 after an interruption.
    """
    try:
        return _run_command(arguments)
    finally:
        set_campaign_folder(None)
        set_results_file(None)


def _run_command(arguments: Sequence[str]) -> int:
    try:
        with print_warnings():
            given = list(arguments) or ["--help"]
            settings = read_settings(typer.main.get_command(app), Path.cwd())
            code = app(given, prog_name="labelwise", standalone_mode=False, default_map=settings)
    except typer.TyperException as error:  # unknown option or command, missing value
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "labelwise"
        message = error.format_message().partition(", unable to parse")[0]
        flags = getattr(getattr(error, "param", None), "opts", ())
        values = [value for flag, value in pairwise(arguments) if flag in flags]
        message += f"; got {values[-1]!r}" if values and "valid" in message else ""
        if not message:  # a group without a command has printed its help
            return error.exit_code
        return print_error(f"{message}; see {path} --help", error.exit_code)
    except SystemExit as left:  # the command printed its message already
        return left.code if isinstance(left.code, int) else 1
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except (LabelwiseError, OSError, MemoryError) as error:
        return print_error(str(error) or "not enough memory", 1)
    if code == 130:  # Typer also returns this code for an interruption
        return print_error(describe_interruption(), code)
    return code if isinstance(code, int) else 0
