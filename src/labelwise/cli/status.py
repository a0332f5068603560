"""``labelwise status`` and ``labelwise train``: progress of a campaign, and a new model."""

import json
import os
import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from labelwise.cli.app import (
    CampaignOption,
    JsonOption,
    SeedOption,
    TrackOption,
    app,
    complete_command_hints,
    open_project,
)
from labelwise.cli.console import print_columns, print_error, show_progress
from labelwise.display import (
    escape_text,
    format_count,
    format_duration,
    format_percent,
    format_person,
)
from labelwise.files import JsonObject
from labelwise.tracking import Tracker

if TYPE_CHECKING:
    from labelwise.campaign.project import Project
    from labelwise.campaign.settings import Settings
    from labelwise.record.events import Trained, Training
    from labelwise.record.ledger import Ledger

Lines = list[tuple[str, str]]


@app.command("train")
def train_model(
    seed: SeedOption = None,
    by: Annotated[str, Option("--by", help="Name of the person who starts it.")] = "",
    save: Annotated[
        Path | None, Option("--save", help="Folder to save the model to, without the items.")
    ] = None,
    track: TrackOption = None,
    campaign: CampaignOption = None,
) -> None:
    """Train a model on the labels so far, and evaluate it.

    The next batch is selected with it. Labels that were drawn at random for
    evaluation (setting validation) are never trained on. A failed training is
    noted in the record, and no label is lost. --save writes encoder, head and
    classes to a folder, which labelwise.load_model opens in Python.
    """
    from labelwise.campaign.evaluation import ModelEvaluation
    from labelwise.campaign.runner import sign_process

    project = open_project(campaign)
    ledger = project.open_record().ledger()
    length, before = ledger.length, ledger.trainings[-1:]
    try:
        with show_progress() as progress, Tracker(track) as tracker:
            active = project.campaign(progress=progress)
            trained = active.train(
                seed=seed, by=by or sign_process(os.getpid()), lost=_may_training_be_over
            )
            tracker.log(project.name, *_list_training_scalars(trained))
    except KeyboardInterrupt:
        words = _describe_interrupted_training(project.open_record().ledger(), length)
        if words is None:
            raise
        raise SystemExit(print_error(words, 130)) from None  # Typer would print its own message
    found = ModelEvaluation.from_training(trained).describe()
    print(f"model {trained.number} ({format_duration(trained.seconds)}): {found}")
    for line in format_training_changes(trained, before[0] if before else None):
        print(line)
    if save is not None:
        from labelwise.campaign.trained_model import open_campaign_model

        open_campaign_model(project).save(save)
        print(f"the model is in {save}")
    ledger = active.ledger()
    settings = active.settings_of(ledger)
    for name, words in _format_advice_status(ledger, settings):
        print(f"{name}: {words}" if name else f"  {words}")
    print(f"next: {find_next_campaign_command(ledger, settings)}")


def _list_training_scalars(trained: "Trained") -> tuple[int, dict[str, float | None]]:
    """The number of labels of a model, and its measures that are numbers."""
    numbers: dict[str, float | None] = {
        name: value
        for name, value in trained.metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return trained.labels, {**numbers, "seconds": trained.seconds, "model": trained.number}


def _may_training_be_over(training: "Training", now: float) -> bool:
    """Decide whether an unfinished training in the record need not be waited for.

    It must be waited for while its process is alive on this machine; others are unknown.
    """
    from labelwise.campaign.runner import is_training_lost

    here = training.by.endswith(f" on {socket.gethostname()}")
    return not here or is_training_lost(training, now)


def _describe_interrupted_training(ledger: "Ledger", length: int) -> str | None:
    """Describe the events that an interrupted training added, or return None."""
    if ledger.length == length:
        return None
    if ledger.failure is not None:
        return (
            f"interrupted; the record notes that training {ledger.failure.number} failed, and all "
            "labels are kept; labelwise train begins again"
        )
    return "interrupted, but the record has new events; see labelwise record history"


def format_training_changes(trained: "Trained", before: "Trained | None") -> list[str]:
    """Format the changes since the previous model."""
    from labelwise.campaign.evaluation import ModelEvaluation

    metrics, lines = trained.metrics, []
    found = ModelEvaluation.from_training(trained)
    if found.score is not None and "balanced_accuracy" in metrics:
        balanced, f1 = metrics["balanced_accuracy"], metrics["macro_f1"]
        lines.append(f"balanced accuracy {format_percent(balanced)}, macro F1 {f1:.2f}")
    earlier = None if before is None else ModelEvaluation.from_training(before).score
    if before is not None and found.score and earlier and found.score.metric == earlier.metric:
        change = found.score.value - earlier.value
        squared = found.score.metric == "mse"
        words = f"{change:+.4g}" if squared else f"{100 * change:+.1f} points"
        lines.append(f"{words} since model {before.number}")
    lines += _compare_with_mean_prediction(metrics, held_out=found.score is not None)
    agreement = metrics.get("agreement")
    if agreement is not None and before is not None:
        share = format_percent(agreement)
        lines.append(f"same prediction as model {before.number} for {share} of the pool")
    guessed = metrics.get("prequential")
    if guessed is not None and "accuracy" in metrics:
        lines.append(f"the previous model predicted {format_percent(guessed)} of the last batch")
    return lines


def _compare_with_mean_prediction(metrics: JsonObject, *, held_out: bool) -> list[str]:
    """Compare a regression with predicting the mean: on enough held-out labels, or out of fold."""
    found = metrics if held_out and "baseline" in metrics else metrics.get("out_of_fold") or {}
    if "baseline" not in found:
        return []
    error, baseline = found["mse"], found["baseline"]
    where = "held-out labels" if found is metrics else "labels by cross-validation"
    numbers = f"mean squared error {error:.4g} against {baseline:.4g} on {where}"
    if error >= baseline:
        return [f"not better than predicting the mean of the labels yet: {numbers}"]
    return [f"R2 {found['r2']:.2f} (predicting the mean: 0): {numbers}"]


@app.command("status")
def show_status(as_json: JsonOption = False, campaign: CampaignOption = None) -> None:
    """Show the progress of the campaign, its cost, and the next command."""
    from labelwise.campaign.costs import campaign_cost

    project = open_project(campaign)
    record = project.open_record()
    ledger = record.ledger()
    settings = record.settings_of(ledger)
    if as_json:
        print(json.dumps(_make_json_status(project, ledger, settings), allow_nan=False))
        return
    items = format_count(ledger.items, "item")
    print(f"{escape_text(project.name)} ({project.kind}, {items}) in {project.home}")
    print_columns(
        [
            *_format_work_status(ledger),
            *_format_people_status(ledger),
            ("cost", escape_text(campaign_cost(ledger, settings).says)),
            *_format_model_status(ledger, settings),
            *_format_advice_status(ledger, settings),
            ("next", find_next_campaign_command(ledger, settings)),
        ]
    )


def _format_work_status(ledger: "Ledger") -> Lines:
    from labelwise.campaign.folder.missing_items import list_closed_items

    lines = [("labelled", f"{len(ledger.labels):,} of {ledger.items:,}")]
    for batch in ledger.open_batches:
        done = f"{batch.size - batch.open:,} of {batch.size:,} done, {batch.open:,} waiting"
        chosen_by = escape_text(batch.asked.strategy)
        lines.append((f"batch {batch.number}", f"{done}; chosen by {chosen_by}"))
    if ledger.batches and not ledger.open_batches:
        lines.append((f"batch {len(ledger.batches)}", "complete"))
    if ledger.skipped:
        lines.append(("skipped", f"{len(ledger.skipped):,}"))
    gone = len(list_closed_items(ledger))
    if gone:
        lines.append(("missing", f"{format_count(gone, 'item')}: files or rows were removed"))
    return lines


def _format_people_status(ledger: "Ledger") -> Lines:
    from labelwise.campaign.folder.missing_items import list_annotators
    from labelwise.record.agreement import agreement

    work = sorted(list_annotators(ledger).items(), key=lambda entry: (-entry[1].labels, entry[0]))
    shown = [
        f"{format_person(by)} {done.labels:,}" for by, done in work if done.labels or done.skips
    ]
    lines = [("people", ", ".join(shown[:12]) + (", ..." if shown[12:] else ""))] if shown else []
    if ledger.overlap > 1 or len(shown) > 1:
        found = agreement(ledger)
        if found.items:
            lines.append(("agreement", escape_text(found.says)))
    disputed = len(ledger.disagreements())
    if disputed:
        command = complete_command_hints("labelwise record disagreements")
        lines.append(("disputed", f"{format_count(disputed, 'item')}: {command}"))
    return lines


def _format_model_status(ledger: "Ledger", settings: "Settings") -> Lines:
    from labelwise.campaign.evaluation import ModelEvaluation, read_out_of_fold
    from labelwise.campaign.labels import explain_missing_classes

    lines = []
    if ledger.trainings:
        last = ledger.trainings[-1]
        found = ModelEvaluation.from_training(last)
        lines.append((f"model {last.number}", found.describe()))
        metrics = {"out_of_fold": read_out_of_fold(ledger), **last.metrics}
        compared = _compare_with_mean_prediction(metrics, held_out=found.score is not None)
        lines += [("", line) for line in compared]
    note = explain_missing_classes(ledger, settings)
    lines += [("note", escape_text(note))] if note else []
    if ledger.training is not None:
        state = "is running" if is_campaign_training(ledger) else "ended before it was finished"
        lines.append(("training", f"number {ledger.training.number} {state}"))
    if ledger.failure is not None:
        lines.append(("failed", escape_text(ledger.failure.error, 200)))
    return lines


def _format_advice_status(ledger: "Ledger", settings: "Settings") -> Lines:
    """Format the advice, and the forecast and the rules that it is based on."""
    from labelwise.campaign.stopping import advise_campaign, select_shown

    if not ledger.trainings:
        return []
    found = advise_campaign(ledger, settings)
    return [
        ("advice", escape_text(found.says)),
        ("forecast", escape_text(found.forecast.says)),
        *(("", f"{one.rule}: {escape_text(one.says)}") for one in select_shown(found.rules)),
    ]


def is_campaign_training(ledger: "Ledger") -> bool:
    """Tell whether a training runs, as far as is known: its process may have ended."""
    from labelwise.campaign.runner import is_training_lost

    return ledger.training is not None and not is_training_lost(ledger.training, time.time())


def find_next_campaign_command(ledger: "Ledger", settings: "Settings") -> str:
    """Find the command to type next, with the campaign folder that was given."""
    return complete_command_hints(_choose_next_campaign_command(ledger, settings))


def _choose_next_campaign_command(ledger: "Ledger", settings: "Settings") -> str:
    from labelwise.campaign.labels import explain_missing_classes
    from labelwise.campaign.stopping import advise_campaign

    if ledger.waiting:
        return "labelwise label (or labelwise ask --out batch.csv, then labelwise tell batch.csv)"
    if is_campaign_training(ledger):
        return "labelwise status, once the training is done"
    if ledger.disagreements():
        return "labelwise record disagreements"
    newest = ledger.trainings[-1].number if ledger.trainings else None
    untrained = newest is None or (ledger.batches and ledger.batches[-1].asked.model == newest)
    if ledger.batches and untrained and explain_missing_classes(ledger, settings) is None:
        return "labelwise train"
    if ledger.batches and advise_campaign(ledger, settings).stop:
        return "labelwise export --out labels.csv"
    return "labelwise label (or labelwise ask --out batch.csv)"


def _make_json_status(
    project: "Project", ledger: "Ledger", settings: "Settings"
) -> dict[str, object]:
    from labelwise.campaign.costs import campaign_cost
    from labelwise.campaign.evaluation import ModelEvaluation, learning_curve
    from labelwise.campaign.folder.missing_items import list_annotators, list_closed_items
    from labelwise.campaign.stopping import advise_campaign
    from labelwise.record.agreement import agreement

    advice = advise_campaign(ledger, settings)
    found, cost = agreement(ledger), campaign_cost(ledger, settings)
    ahead = advice.forecast
    last = ledger.trainings[-1] if ledger.trainings else None
    return {
        "campaign": project.name,
        "kind": project.kind,
        "items": ledger.items,
        "labelled": len(ledger.labels),
        "skipped": len(ledger.skipped),
        "gone": len(list_closed_items(ledger)),
        "waiting": len(ledger.waiting),
        "disputed": len(ledger.disagreements()),
        "batches": [
            {"number": batch.number, "size": batch.size, "waiting": batch.open}
            for batch in ledger.batches
        ],
        "people": {
            by: {"labels": work.labels, "skips": work.skips, "seconds": work.seconds}
            for by, work in list_annotators(ledger).items()
        },
        "agreement": {"items": found.items, "disputed": found.disputed, "kappa": found.kappa},
        "cost": {"labels": cost.labels, "money": cost.money, "hours": cost.hours},
        "model": None if last is None else asdict(ModelEvaluation.from_training(last)),
        "curve": [
            {
                "accuracy" if name == "value" else name: part
                for name, part in point._asdict().items()
            }
            for point in learning_curve(ledger)
        ],
        "training": is_campaign_training(ledger),
        "failure": None if ledger.failure is None else ledger.failure.error,
        "forecast": {"gain": ahead.gain, "low": ahead.low, "high": ahead.high, "says": ahead.says},
        "advice": advice.says,
        "rules": [{"rule": a.rule, "stop": a.stop, "says": a.says} for a in advice.rules],
        "stop": advice.stop,
        "next": find_next_campaign_command(ledger, settings),
    }
