"""``labelwise status`` and ``labelwise train``: progress of a campaign, and a new model."""

import json
import os
import socket
import time
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from labelwise.cli.app import CampaignOption, app, complete_commands, open_project
from labelwise.cli.console import (
    count_training_labels,
    escape_text,
    find_metric,
    format_count,
    format_duration,
    format_metric,
    format_percent,
    format_person,
    print_columns,
    print_error,
    show_progress,
)

if TYPE_CHECKING:
    from labelwise.campaign.forecast import ModelScore
    from labelwise.campaign.project import Project
    from labelwise.campaign.settings import Settings
    from labelwise.record.events import Trained, Training
    from labelwise.record.ledger import Ledger

Lines = list[tuple[str, str]]


@app.command("train")
def train_model(
    seed: Annotated[int | None, Option(help="Random seed (default: the campaign's).")] = None,
    by: Annotated[str, Option("--by", help="Name of the person who starts it.")] = "",
    campaign: CampaignOption = None,
) -> None:
    """Train a model on the labels so far, and evaluate it.

    The next batch is selected with it. Labels that were drawn at random for
    evaluation (setting validation) are never trained on. A failed training is
    noted in the record, and no label is lost.
    """
    from labelwise.campaign.runner import sign_process

    project = open_project(campaign)
    ledger = project.open_record().ledger()
    length, before = ledger.length, ledger.trainings[-1:]
    try:
        with show_progress() as progress:
            active = project.campaign(progress=progress)
            trained = active.train(seed=seed, by=by or sign_process(os.getpid()), lost=_may_be_over)
    except KeyboardInterrupt:
        words = _describe_interrupted_training(project.open_record().ledger(), length)
        if words is None:
            raise
        raise SystemExit(print_error(words, 130)) from None  # Typer would print its own message
    labels, seconds = count_training_labels(trained), format_duration(trained.seconds)
    print(f"model {trained.number}: trained on {format_count(labels, 'label')} in {seconds}")
    for line in format_training(trained, before[0] if before else None):
        print(line)
    ledger = active.ledger()
    settings = active.settings_of(ledger)
    for name, words in _format_advice(ledger, settings):
        print(f"{name}: {words}" if name else f"  {words}")
    print(f"next: {find_next_command(ledger, settings)}")


def _may_be_over(training: "Training", now: float) -> bool:
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


def format_training(trained: "Trained", before: "Trained | None") -> list[str]:
    """Format the metrics of a model, and the changes since the previous one."""
    metrics = trained.metrics
    lines = []
    found = find_metric(metrics)
    if found is None:
        command = complete_commands("labelwise change validation=0.1")
        lines.append(f"not evaluated: no labels were drawn for evaluation; {command}")
    else:
        lines.append(_format_evaluation(*found, metrics, before))
    agreement = metrics.get("agreement")
    if agreement is not None and before is not None:
        share = format_percent(agreement)
        lines.append(f"same prediction as model {before.number} for {share} of the pool")
    guessed = metrics.get("prequential")
    if guessed is not None and found is not None and found[0] == "accuracy":
        lines.append(f"the previous model predicted {format_percent(guessed)} of the last batch")
    return lines


def _format_evaluation(
    name: str, value: float, metrics: dict[str, Any], before: "Trained | None"
) -> str:
    words = f"{name} {format_metric(name, value)}"
    interval = metrics.get("interval")
    if interval:
        low, high = (format_metric(name, end) for end in interval)
        words += f" (95 % interval {low} to {high})"
    held_out = format_count(metrics.get("validation_labels", 0), "label")
    words += f" on {held_out} drawn for evaluation"
    earlier = find_metric(before.metrics) if before is not None else None
    if before is None or earlier is None or earlier[0] != name:
        return words
    change = value - earlier[1]
    change_text = f"{100 * change:+.1f} points" if name == "accuracy" else f"{change:+.4g}"
    return f"{words}, {change_text} since model {before.number}"


@app.command("status")
def show_status(
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    campaign: CampaignOption = None,
) -> None:
    """Show the progress of the campaign, its cost, and the next command."""
    project = open_project(campaign)
    record = project.open_record()
    ledger = record.ledger()
    settings = record.settings_of(ledger)
    if as_json:
        print(json.dumps(_make_status(project, ledger, settings), allow_nan=False))
        return
    items = format_count(ledger.items, "item")
    print(f"{escape_text(project.name)} ({project.kind}, {items}) in {project.home}")
    print_columns(
        [
            *_format_work(ledger),
            *_format_people(ledger),
            *_format_cost(ledger, settings),
            *_format_model(ledger),
            *_format_advice(ledger, settings),
            ("next", find_next_command(ledger, settings)),
        ]
    )


def _format_work(ledger: "Ledger") -> Lines:
    from labelwise.campaign.folder.missing_items import closed_items

    lines = [("labelled", f"{len(ledger.labels):,} of {ledger.items:,}")]
    for batch in ledger.open_batches:
        done = f"{batch.size - batch.open:,} of {batch.size:,} done, {batch.open:,} waiting"
        chosen_by = escape_text(batch.asked.strategy)
        lines.append((f"batch {batch.number}", f"{done}; chosen by {chosen_by}"))
    if ledger.batches and not ledger.open_batches:
        lines.append((f"batch {len(ledger.batches)}", "complete"))
    if ledger.skipped:
        lines.append(("skipped", f"{len(ledger.skipped):,}"))
    gone = len(closed_items(ledger))
    if gone:
        lines.append(("missing", f"{format_count(gone, 'item')}: files or rows were removed"))
    return lines


def _format_people(ledger: "Ledger") -> Lines:
    from labelwise.campaign.folder.missing_items import annotators
    from labelwise.record.agreement import agreement

    work = sorted(annotators(ledger).items(), key=lambda entry: (-entry[1].labels, entry[0]))
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
        command = complete_commands("labelwise record disagreements")
        lines.append(("disputed", f"{format_count(disputed, 'item')}: {command}"))
    return lines


def _format_model(ledger: "Ledger") -> Lines:
    lines = []
    if ledger.trainings:
        last = ledger.trainings[-1]
        words = f"trained on {format_count(count_training_labels(last), 'label')}"
        found = find_metric(last.metrics)
        if found is not None:
            name, value = found
            interval = last.metrics.get("interval") or ()
            ends = " to ".join(format_metric(name, end) for end in interval)
            words += f", {name} {format_metric(name, value)}" + (f" ({ends})" if ends else "")
        lines.append((f"model {last.number}", words))
    if ledger.training is not None:
        state = "is running" if is_training(ledger) else "ended before it was finished"
        lines.append(("training", f"number {ledger.training.number} {state}"))
    if ledger.failure is not None:
        lines.append(("failed", escape_text(ledger.failure.error, 200)))
    return lines


def _format_cost(ledger: "Ledger", settings: "Settings") -> Lines:
    from labelwise.campaign.costs import campaign_cost

    return [("cost", escape_text(campaign_cost(ledger, settings).says))]


def _format_advice(ledger: "Ledger", settings: "Settings") -> Lines:
    """Format the forecast for the next batch, and the advice of each stopping rule."""
    from labelwise.campaign.forecast import forecast_batch
    from labelwise.campaign.stopping import advise, should_stop

    if not ledger.trainings:
        return []
    found = advise(ledger, settings)
    judged = [("", f"{entry.rule}: {escape_text(entry.says)}") for entry in found if entry.judged]
    verdict = "labelling can stop" if should_stop(found) else "go on"
    return [
        ("forecast", escape_text(forecast_batch(ledger, settings).says)),
        ("advice", verdict if judged else f"{verdict}: it is too early to judge"),
        *judged,
    ]


def is_training(ledger: "Ledger") -> bool:
    """Tell whether a training runs, as far as is known: its process may have ended."""
    from labelwise.campaign.runner import is_training_lost

    return ledger.training is not None and not is_training_lost(ledger.training, time.time())


def find_next_command(ledger: "Ledger", settings: "Settings") -> str:
    """Find the command to type next, with the campaign folder that was given."""
    return complete_commands(_choose_next_command(ledger, settings))


def _choose_next_command(ledger: "Ledger", settings: "Settings") -> str:
    from labelwise.campaign.stopping import advise, should_stop

    if ledger.waiting:
        return "labelwise label (or labelwise ask --out batch.csv, then labelwise tell batch.csv)"
    if is_training(ledger):
        return "labelwise status, once the training is done"
    if ledger.disagreements():
        return "labelwise record disagreements"
    newest = ledger.trainings[-1].number if ledger.trainings else None
    if ledger.batches and (newest is None or ledger.batches[-1].asked.model == newest):
        return "labelwise train"
    if ledger.batches and should_stop(advise(ledger, settings)):
        return "labelwise export --out labels.csv"
    return "labelwise label (or labelwise ask --out batch.csv)"


def _make_status(project: "Project", ledger: "Ledger", settings: "Settings") -> dict[str, Any]:
    from labelwise.campaign.costs import campaign_cost
    from labelwise.campaign.folder.missing_items import annotators, closed_items
    from labelwise.campaign.forecast import forecast_batch, learning_curve
    from labelwise.campaign.stopping import advise, should_stop
    from labelwise.record.agreement import agreement

    advice = advise(ledger, settings)
    found, cost = agreement(ledger), campaign_cost(ledger, settings)
    ahead = forecast_batch(ledger, settings)
    return {
        "campaign": project.name,
        "kind": project.kind,
        "items": ledger.items,
        "labelled": len(ledger.labels),
        "skipped": len(ledger.skipped),
        "gone": len(closed_items(ledger)),
        "waiting": len(ledger.waiting),
        "disputed": len(ledger.disagreements()),
        "batches": [
            {"number": batch.number, "size": batch.size, "waiting": batch.open}
            for batch in ledger.batches
        ],
        "people": {
            by: {"labels": work.labels, "skips": work.skips, "seconds": work.seconds}
            for by, work in annotators(ledger).items()
        },
        "agreement": {"items": found.items, "disputed": found.disputed, "kappa": found.kappa},
        "cost": {"labels": cost.labels, "money": cost.money, "hours": cost.hours},
        "curve": [_score_as_dict(point) for point in learning_curve(ledger)],
        "training": is_training(ledger),
        "failure": None if ledger.failure is None else ledger.failure.error,
        "forecast": {"gain": ahead.gain, "low": ahead.low, "high": ahead.high, "says": ahead.says},
        "advice": [{"rule": a.rule, "stop": a.stop, "says": a.says} for a in advice],
        "stop": should_stop(advice),
        "next": find_next_command(ledger, settings),
    }


def _score_as_dict(score: "ModelScore") -> dict[str, Any]:
    fields = score._asdict()
    return {"accuracy" if name == "value" else name: value for name, value in fields.items()}
