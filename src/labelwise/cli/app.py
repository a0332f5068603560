"""The application that commands add themselves to."""

from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_ABOUT = """Choose which items of a large unlabelled pool to label, and how much each should weigh.

[bold]Try it[/bold] (two minutes, writes demo/report.html)

  labelwise demo

[bold]Label[/bold] a folder of pictures or a table of texts

  labelwise start photos/ --classes cat,dog

  labelwise label

[bold]Use it[/bold] on your model's last hidden layer, saved as one row per item

  labelwise plan f.npy --error 0.1

  labelwise select f.npy --strategy k_center --budget 100 --out picks.csv

  labelwise explain picks.csv f.npy
"""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        print(f"labelwise {metadata.version('labelwise')}")
        raise typer.Exit


@app.callback(help=_ABOUT)
def _labelwise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
