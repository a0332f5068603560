"""The labelwise command. Each file holds one command.

What only one command needs is imported inside it, so that ``labelwise --help`` answers at once.
"""

import sys
from collections.abc import Sequence

import typer

from labelwise.cli import (
    benchmark,
    benchmark_run,
    data,
    demo,
    explain,
    plan,
    select,
    simulate,
    strategies,
)
from labelwise.cli.app import app
from labelwise.cli.console import fail, notes
from labelwise.errors import LabelwiseError

COMMANDS = (select, strategies, plan, explain, demo, data, benchmark, benchmark_run, simulate)
"""The files whose import has added a command, in the order in which help lists them."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; an error is one line on stderr.

    Returns:
        0 if all went well, 1 after an error, 2 after misuse, 130 after an interruption.
    """
    try:
        with notes():
            asked = list(arguments) or ["--help"]
            code = app(asked, prog_name="labelwise", standalone_mode=False)
    except typer.TyperException as error:  # no such option, no such command, a value missing
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "labelwise"
        return fail(f"{error.format_message()}; see {path} --help", error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except (LabelwiseError, OSError, MemoryError) as error:
        return fail(str(error) or "not enough memory", 1)
    if code == 130:  # Typer, too, turns an interruption into this code
        return fail("interrupted; nothing was written", code)
    return code if isinstance(code, int) else 0
