"""Terminal output: errors, progress bars, tables, and formatting of numbers and foreign texts."""

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from labelwise.cli.app import complete_command_hints, name_items_in_text, quiet_mode
from labelwise.display import escape_text, format_count
from labelwise.errors import LabelwiseWarning

MAX_LISTED = 20  # Number of items that are printed; all of them are counted

ProgressCallback = Callable[[str, int, int], None]

_results_file: ContextVar[Path | None] = ContextVar("results_file", default=None)


def print_error(message: str, code: int) -> int:
    """Print an error as one line, and return the exit code."""
    line = complete_command_hints(name_items_in_text(" ".join(message.replace(".;", ";").split())))
    print(f"labelwise: {line}", file=sys.stderr)
    return code


def set_results_file(results: Path | None) -> None:
    """Remember the file in which a command saves finished rounds; None for none."""
    _results_file.set(results)


def describe_interruption() -> str:
    """Describe what an interrupted command has saved.

    Example:
        >>> describe_interruption()
        'interrupted'
    """
    results = _results_file.get()
    if results is None:
        return "interrupted"
    if not results.is_file():
        return "interrupted before the first round was finished; the same command begins again"
    return f"interrupted; the rounds so far are in {results}, the same command continues from there"


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print warnings of the library as one line each."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", LabelwiseWarning)
        show_other = warnings.showwarning

        def show_warning(message: Any, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, LabelwiseWarning):
                if quiet_mode.get():
                    return
                line = complete_command_hints(name_items_in_text(" ".join(str(message).split())))
                print(f"note: {line}", file=sys.stderr)
            else:
                show_other(message, category, *rest, **named)

        warnings.showwarning = show_warning
        yield


def split_names(text: str | None) -> list[str]:
    """Split a list of names at its commas.

    Example:
        >>> split_names(" cat, dog,"), split_names(None)
        (['cat', 'dog'], [])
    """
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def make_table_console() -> Console:
    """Make a console for tables: as wide as the terminal, or 100 columns in a pipe or a file."""
    return Console(width=None if sys.stdout.isatty() else 100)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; its cells may have Rich markup, and the first column is never cut."""
    table = Table(Column(head[0], no_wrap=True), *head[1:], box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    make_table_console().print(table, highlight=False)


def print_listing(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as a table on a terminal, without the last column, else as tab-separated lines."""
    if not Console().is_terminal:
        for line in (head, *rows):
            print(*line, sep="\t")
        return
    print_table(head[:-1], [(f"[bold]{row[0]}[/bold]", *map(escape, row[1:-1])) for row in rows])


def print_columns(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and their values in two columns."""
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        print(f"{name:<{width}}  {value}".rstrip())


def print_limited_lines(lines: Sequence[str]) -> None:
    """Print the first lines about items to stderr, and how many there are more."""
    for line in lines[:MAX_LISTED]:
        print(f"  {escape_text(line)}", file=sys.stderr)
    if len(lines) > MAX_LISTED:
        print(f"  and {len(lines) - MAX_LISTED:,} more", file=sys.stderr)


@contextmanager
def show_progress(*, lines_after: float = math.inf) -> Iterator[ProgressCallback | None]:
    """Yield a progress callback that draws a bar with the time left per stage on a terminal.

    Elsewhere it prints a line per tenth of a stage, once ``lines_after`` seconds have passed.
    """
    console = Console(stderr=True)
    if not console.is_terminal or quiet_mode.get():
        silent = quiet_mode.get() or lines_after == math.inf
        yield None if silent else _make_progress_printer(lines_after)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, *times, console=console, speed_estimate_period=600) as shown:
        stages: dict[str, Any] = {}

        def update_progress(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = shown.add_task(stage, total=total)
            shown.update(stages[stage], completed=done, total=total)

        yield update_progress


def _make_progress_printer(after: float) -> ProgressCallback:
    """A progress callback that prints a line per tenth of a stage after some seconds."""
    seen: dict[str, int] = {}
    begin = time.monotonic() + after

    def print_progress_tenth(stage: str, done: int, total: int) -> None:
        step = max(1, total // 10)
        due = done // step != seen.get(stage, 0) // step or done == total
        if done and due and time.monotonic() >= begin:
            print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)
        seen[stage] = done

    return print_progress_tenth


def warn_about_formulas(out: Path, formulas: int, remedy: str = "add --spreadsheet") -> None:
    """Print a note if a .csv file has texts that spreadsheet programs would compute."""
    if formulas:
        texts = format_count(formulas, "text begins", "texts begin")
        print(
            f"note: {texts} like a formula in {out}; a spreadsheet program would compute "
            f"{'it' if formulas == 1 else 'them'}: {remedy}",
            file=sys.stderr,
        )
