"""All commands under the headings of the help, their defaults from a file, and how a call ends.

Imports that only one command needs are inside it, so that ``labelwise --help`` answers quickly.

Defaults of options come from ``labelwise.toml``, or from ``[tool.labelwise]`` of
``pyproject.toml``. A section is named like its command, and an entry like its option::

    [start]
    batch = 20
    encoder = ["auto", "onnx:mine.onnx"]

    [benchmark.run]
    workers = 4

The file is that of the current folder or of the nearest folder above it; ``labelwise.toml`` comes
before ``pyproject.toml`` in the same folder. An option on the command line comes first, then an
environment variable, then the file, then the default. Unknown names are errors.
"""

import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any

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
from labelwise.cli.app import app, format_command_help, list_commands, set_campaign_folder
from labelwise.cli.console import (
    describe_interruption,
    print_error,
    print_warnings,
    set_results_file,
)
from labelwise.errors import BadInput, LabelwiseError
from labelwise.files import JsonObject

__all__ = ["PANELS", "app", "run"]

FILE, PROJECT_FILE = "labelwise.toml", "pyproject.toml"  # Files of settings

PANELS = {
    "Label": (start, label, ask, tell, status, predict, export, record, label_studio),
    "Select": (select, encode, theory),
    "Evaluate": (simulate, benchmark),
}
"""Headings of the help, each with the modules whose commands it lists."""


def _arrange_help() -> None:
    for _, command in list_commands():
        command.help = format_command_help(command.callback.__doc__ or "")
    headings = {file.__name__: name for name, files in PANELS.items() for file in files}
    order = list(headings)
    for command in app.registered_commands:
        command.rich_help_panel = headings[command.callback.__module__]
    app.registered_commands.sort(key=lambda entry: order.index(entry.callback.__module__))
    for group in app.registered_groups:
        if group.typer_instance is not None and group.typer_instance.registered_callback:
            callback = group.typer_instance.registered_callback
            callback.help = format_command_help(callback.callback.__doc__ or "")
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
            settings = read_settings_file(typer.main.get_command(app), Path.cwd())
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


def read_settings_file(group: Any, folder: Path) -> JsonObject:
    """Read the defaults of a group's commands, in the form of Click's ``default_map``."""
    for place in (folder, *folder.parents):
        for path in (place / FILE, place / PROJECT_FILE):
            if path.is_file() and (content := _read_settings_section(path)) is not None:
                return _convert_group_settings(group, content, str(path))
    return {}


def _read_settings_section(path: Path) -> Mapping[str, Any] | None:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if path.name != FILE:
            return None  # the file of another tool, which will report it
        raise BadInput(f"{path} is not valid TOML ({error})") from error
    if path.name == FILE:
        return content
    found: Mapping[str, Any] | None = content.get("tool", {}).get("labelwise")
    return found


def _convert_group_settings(group: Any, content: Mapping[str, Any], where: str) -> JsonObject:
    found = {}
    for name, section in content.items():
        command = _find_setting(name, group.commands, where, "command")
        if not isinstance(section, Mapping):
            raise BadInput(f"{where}: {name} is a command; write its options below [{name}]")
        convert = (
            _convert_group_settings if hasattr(command, "commands") else _convert_command_settings
        )
        found[name] = convert(command, section, f"{where}, [{name}]")
    return found


def _convert_command_settings(command: Any, section: Mapping[str, Any], where: str) -> JsonObject:
    options = {
        flag.removeprefix("--"): option
        for option in command.params
        for flag in (*option.opts, *option.secondary_opts)
        if flag.startswith("--")
    }
    found = {}
    for name, value in section.items():
        option = _find_setting(name.replace("_", "-"), options, where, "option")
        if isinstance(value, list) != bool(option.multiple) or isinstance(value, Mapping):
            wanted = "a list" if option.multiple else "one value"
            raise BadInput(f"{where}: {name} takes {wanted}; got {value!r}")
        if option.is_flag and not isinstance(value, bool):
            raise BadInput(f"{where}: {name} is true or false; got {value!r}")
        given = value
        if not option.is_flag:  # texts, which the option converts as on the command line
            given = [str(entry) for entry in value] if option.multiple else str(value)
        negated = f"--{name}" in option.secondary_opts
        found[option.name] = not given if negated else given
    return found


def _find_setting(name: str, known: Mapping[str, Any], where: str, what: str) -> Any:
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(sorted(known))}"
    raise BadInput(f"{where}: there is no {what} {name!r}; {hint}")
