"""``labelwise strategies``: list what can decide."""

import inspect
import re
import textwrap
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import labelwise
from labelwise.cli.app import app
from labelwise.strategy import Strategy

_IN = " " * 4


@app.command()
def strategies(
    name: Annotated[
        str | None, typer.Argument(help="Show everything about this one.", metavar="[NAME]")
    ] = None,
) -> None:
    """List the strategies: what each reads, whether it gives weights, what it is good for.

    Into a pipe or a file, it writes plain lines with tabs between the columns.
    """
    from labelwise.strategies import get

    if name is not None:
        _show(get(name))
        return
    console = Console()
    found = labelwise.strategies().values()
    if not console.is_terminal:
        print("name\tneeds\tweights\tgood for\treference")
        for entry in found:
            weights = "yes" if entry.weighted else "no"
            print(entry.name, _needs(entry), weights, entry.good_for, entry.reference, sep="\t")
        return
    table = Table("name", "needs", "weights", "good for, and where it comes from", box=SIMPLE_HEAD)
    for entry in found:
        about = f"{escape(entry.good_for)}\n[dim]{escape(entry.reference)}[/dim]"
        weights = "yes" if entry.weighted else ""
        needs = _needs(entry).replace(", or ", "\nor ").replace(" + ", "\n+ ")
        table.add_row(f"[bold]{entry.name}[/bold]", needs, weights, about)
    console.print(table)


def _needs(strategy: Strategy) -> str:
    """What it reads, in words."""
    sets = [names for names in (strategy.needs, *strategy.or_needs) if names]
    return ", or ".join(" + ".join(names) for names in sets) or "nothing"


def _show(strategy: Strategy) -> None:
    """Everything about one strategy, as plain lines."""
    print(f"{strategy.name}: {strategy.good_for}")
    print(f"reads {_needs(strategy)}" + (", of one or several models" if strategy.several else ""))
    print("its picks carry weights" if strategy.weighted else "its picks carry no weights")
    meanings = option_meanings(strategy)
    for option, default in strategy.options.items():
        print(f"--option {option}={default}")
        if option in meanings:
            print(textwrap.fill(meanings[option], 96, initial_indent=_IN, subsequent_indent=_IN))
    print(strategy.reference)


def option_meanings(strategy: Strategy) -> dict[str, str]:
    """What the options mean, as the docstring of the strategy's main function says.

    Example:
        >>> option_meanings(labelwise.strategies()["disagreement"])["candidates"][:36]
        'the batch is drawn from so many time'
    """
    text = inspect.getdoc(strategy.main) or ""
    sections = re.findall(r"^(?:Args|Options):\n((?:    .*\n?|\n)+)", text, re.M)
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", "\n".join(sections), re.M)
    plain = {name: " ".join(about.replace("``", "").split()) for name, about in entries}
    return {name: about for name, about in plain.items() if name in strategy.options}
