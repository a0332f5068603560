"""The reference of the command line, generated from the declarations of the commands."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import typer

from labelwise.cli.commands import app


def describe_commands() -> str:
    """All commands with their arguments, options and examples, in Markdown."""
    group = typer.main.get_command(app)
    commands = "\n".join(_describe(name, entry) for name, entry in _visible_commands(group))
    return (
        "# Command line\n\nAll commands and options, as `labelwise COMMAND --help` prints them. "
        "An error is one line on stderr: what was wrong, the value, and what to do. The exit code "
        "is 0 after success, 1 after an error, 2 after wrong usage and 130 after Ctrl-C. An output "
        f"file appears complete or not at all.\n\n{commands}"
    )


def _visible_commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and commands, groups resolved, aliases left out."""
    for name, entry in group.commands.items():
        if entry.hidden:
            continue
        if hasattr(entry, "commands"):
            if entry.invoke_without_command:
                yield f"{prefix}{name}", entry
            yield from _visible_commands(entry, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", entry


def _describe(name: str, command: Any) -> str:
    parts = [f"## {name}", _convert_help(command.help or "")]
    rows = [_describe_parameter(entry) for entry in command.params if not entry.hidden]
    rows = [row for row in rows if not row.startswith("| `--help")]
    if rows:
        parts.append("\n".join(["| | |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _convert_help(text: str) -> str:
    """Rich markup and example commands as Markdown."""
    text = re.sub(r"\[bold\]Examples?\[/bold\]", "", text)
    text = re.sub(r"\[bold\](.*?)\[/bold\]", r"`\1`", text)
    lines = [line.strip() for line in text.splitlines()]
    groups = itertools.groupby(filter(None, lines), lambda line: line.startswith("labelwise "))
    return "\n\n".join(
        "```sh\n" + "\n".join(group) + "\n```" if is_command else "\n".join(group)
        for is_command, group in groups
    )


def _describe_parameter(entry: Any) -> str:
    names = entry.opts if entry.opts[0].startswith("-") else [(entry.metavar or entry.name).upper()]
    names = ", ".join([*names, *entry.secondary_opts]).replace("|", "\\|")
    value = "" if getattr(entry, "is_flag", True) or not entry.metavar else f" {entry.metavar}"
    text = re.sub(r"\s+", " ", entry.help or "").replace("|", "\\|").replace("[", "\\[")
    required = " *(required)*" if entry.required else ""
    default = entry.default
    if not isinstance(default, str | int | float) or isinstance(default, bool) or default == "":
        return f"| `{names}{value}` | {text}{required} |"
    return f"| `{names}{value}` | {text}{required} Default: `{default}`. |"
