"""``labelwise train``: a model on the labels so far."""

import os
import socket
from typing import Annotated, Any

import typer
from rich.console import Console

from labelwise.cli.app import app
from labelwise.cli.console import bars, fail
from labelwise.cli.hints import pasteable
from labelwise.cli.project_option import CampaignOption, open_project
from labelwise.cli.words import duration, learned, many, measured, percent


@app.command()
def train(
    seed: Annotated[
        int | None, typer.Option(help="Decides every draw (else the campaign's).", metavar="N")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Who wants it.", metavar="WHO")] = "",
    campaign: CampaignOption = None,
) -> None:
    """Train a model on the labels so far, and say how good it is.

    The next batch is chosen with it. Labels that were drawn at random for
    measuring (setting validation) are never trained on. A training that fails
    is noted in the record, and loses nothing.
    """
    from labelwise.cli.status import advice_lines, next_step
    from labelwise.web.steps import signature

    project = open_project(campaign)
    ledger = project.desk().ledger()
    length, before = ledger.length, ledger.trainings[-1:]
    try:
        with bars(Console(stderr=True)) as progress:
            active = project.campaign(progress=progress)
            trained = active.train(seed=seed, by=by or signature(os.getpid()), lost=_may_be_over)
    except KeyboardInterrupt:
        words = interrupted(project.desk().ledger(), length)
        if words is None:
            raise
        raise SystemExit(fail(words, 130)) from None  # an exit of Typer's would be put in words too
    print(
        f"model {trained.number}: trained on {many(learned(trained), 'label')} "
        f"in {duration(trained.seconds)}"
    )
    for line in result_lines(trained, before[0] if before else None):
        print(line)
    ledger = active.ledger()
    settings = active.settings_of(ledger)
    for name, words in advice_lines(ledger, settings):
        print(f"{name}: {words}" if name else f"  {words}")
    print(f"next: {next_step(ledger, settings)}")


def _may_be_over(training: Any, now: float) -> bool:
    """Whether a training that the record knows no end of need not be waited for.

    It must be where its process, on this machine, is alive; of any other nothing is known.
    """
    from labelwise.web.steps import is_lost

    here = training.by.endswith(f" on {socket.gethostname()}")
    return not here or is_lost(training, now)


def interrupted(ledger: Any, length: int) -> str | None:
    """What an interruption left in a record that had some length; None if it left nothing."""
    if ledger.length == length:
        return None
    if ledger.failure is not None:
        return (
            f"interrupted; the record notes that training {ledger.failure.number} failed, and all "
            "labels are kept; labelwise train begins again"
        )
    return "interrupted, but the record has grown; labelwise history says by what"


def result_lines(trained: Any, before: Any) -> list[str]:
    """How good a model is, and what changed since the one before."""
    metrics = trained.metrics
    lines = []
    found = measured(metrics)
    if found is None:
        lines.append(
            "not measured: no labels were drawn for measuring; "
            + pasteable("labelwise change validation=0.1")
        )
    else:
        lines.append(_measurement(*found, metrics, before))
    agreement = metrics.get("agreement")
    if agreement is not None and before is not None:
        lines.append(f"predicts as model {before.number} did for {percent(agreement)} of the pool")
    guessed = metrics.get("prequential")
    if guessed is not None and found is not None and found[0] == "accuracy":
        lines.append(f"the model before had guessed {percent(guessed)} of the last batch")
    return lines


def _measurement(name: str, value: float, metrics: dict[str, Any], before: Any) -> str:
    def show(number: float) -> str:
        return percent(number) if name == "accuracy" else f"{number:.4g}"

    words = f"{name} {show(value)}"
    interval = metrics.get("interval")
    if interval:
        words += f" (95 % interval {show(interval[0])} to {show(interval[1])})"
    words += f" on {many(metrics.get('validation_labels', 0), 'label')} drawn for measuring"
    earlier = measured(before.metrics) if before is not None else None
    if earlier is None or earlier[0] != name:
        return words
    change = value - earlier[1]
    change_text = f"{100 * change:+.1f} points" if name == "accuracy" else f"{change:+.4g}"
    return f"{words}, {change_text} since model {before.number}"
