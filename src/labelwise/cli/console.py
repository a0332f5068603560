"""What commands share: errors, notes, bars, tables on the terminal, and lists in options."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console

from labelwise.cli.hints import pasteable
from labelwise.errors import LabelwiseWarning

N = TypeVar("N", int, float)

_kept: ContextVar[Path | None] = ContextVar("kept", default=None)


def fail(message: str, code: int) -> int:
    """Print an error as one line, and pass on the exit code."""
    line = pasteable(" ".join(message.replace(".;", ";").split()))
    print(f"labelwise: {line}", file=sys.stderr)
    return code


def keeps(results: Path | None) -> None:
    """Note the file in which a command keeps the rounds it has finished; None for none."""
    _kept.set(results)


def interrupted() -> str:
    """What is said after an interruption.

    Example:
        >>> interrupted()
        'interrupted'
    """
    results = _kept.get()
    if results is None:
        return "interrupted"
    if not results.is_file():
        return "interrupted before the first round was finished; the same command begins again"
    return f"interrupted; the rounds so far are in {results}, the same command goes on from there"


def names_in(text: str | None) -> list[str]:
    """The names in a list with commas.

    Example:
        >>> names_in(" cat, dog,"), names_in(None)
        (['cat', 'dog'], [])
    """
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def whole_number(text: str) -> int:
    """A whole number in an option.

    Example:
        >>> whole_number("1000")
        1000
    """
    return _read(int, text, "a whole number such as 1000")


def number(text: str) -> float:
    """A number in an option.

    Example:
        >>> number("0.5")
        0.5
    """
    return _read(float, text, "a number such as 0.5")


def _read(kind: Callable[[str], N], text: str, wanted: str) -> N:
    try:
        return kind(text)
    except ValueError:
        raise typer.BadParameter(f"takes {wanted}; got {text!r}") from None


def table_console() -> Console:
    """Where tables go: as wide as the terminal, and 100 columns into a pipe or a file."""
    return Console(width=None if sys.stdout.isatty() else 100)


@contextmanager
def bars(console: Console, *, plain: bool = False) -> Iterator[Any]:
    """A progress callback that draws a bar per stage on a terminal.

    Elsewhere it is silent, or with ``plain`` prints a line when a stage is done.
    """
    if not console.is_terminal:
        yield _say_done if plain else None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as shown:
        stages: dict[str, Any] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = shown.add_task(stage, total=total)
            shown.update(stages[stage], completed=done, total=total)

        yield progress


def _say_done(stage: str, done: int, total: int) -> None:
    if done == total:
        print(f"{stage}: {done} of {total} done", file=sys.stderr, flush=True)


@contextmanager
def notes() -> Iterator[None]:
    """Print the library's warnings as one line each."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", LabelwiseWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, LabelwiseWarning):
                print(f"note: {pasteable(' '.join(str(message).split()))}", file=sys.stderr)
            else:
                usual(message, category, *rest, **named)

        warnings.showwarning = show
        yield
