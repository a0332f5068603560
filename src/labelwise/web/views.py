"""Items, state and history of a campaign as the page shows them, from a ledger."""

import hashlib
import json
from collections.abc import Sequence
from itertools import islice, zip_longest
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from labelwise.campaign.costs import campaign_cost
from labelwise.campaign.evaluation import (
    FEWEST_EVALUATED,
    ModelEvaluation,
    ModelQuality,
    learning_curve,
    read_quality,
)
from labelwise.campaign.explanations import explain_pick
from labelwise.campaign.folder.missing_items import annotators, list_closed_items
from labelwise.campaign.history import describe_event
from labelwise.campaign.labels import explain_missing_classes
from labelwise.campaign.project import Project
from labelwise.campaign.settings import Settings
from labelwise.campaign.stopping import advise_campaign
from labelwise.learner import Label
from labelwise.record.events import Asked, Event, kind_of
from labelwise.record.ledger import Ledger
from labelwise.record.votes import AnnotatorWork
from labelwise.web import bodies
from labelwise.web.background import READY, WorkerReport

KEYS = "1234567890"
MOST_HELD = 1_000
"""Number of waiting items that are looked at to explain why an annotator gets none."""


class ItemPlace(NamedTuple):
    """The batch of an item and its position in it; None if it was never asked for."""

    id: int
    asked: Asked | None = None
    rank: int = 0


def find_place(ledger: Ledger, item: int) -> ItemPlace:
    """Find an item's batch and position."""
    return ItemPlace(item, *(ledger.pick_of(item) or ()))


def show_item(project: Project, place: ItemPlace) -> bodies.Item:
    """An item as the page shows it; an image has an address of its own."""
    try:
        about = dict(project.items.describe(place.id))
    except LookupError:
        about = {"text": f"Item {place.id} does not exist any more; skip it."}
    shown = bodies.Item(
        id=place.id,
        kind=str(about.get("kind", project.kind)),
        name=about.get("name"),
        text=about.get("text"),
        columns=shorten_floats(about.get("columns")),
    )
    if project.kind == "images":
        shown.image = image_address(place.id)
    if place.asked is not None:
        shown.batch, shown.rank = place.asked.batch, place.rank + 1
        if place.rank < len(place.asked.ids):
            shown.why = explain_pick(place.asked, place.rank)
    return shown


def shorten_floats(columns: dict[str, object] | None) -> dict[str, object] | None:
    """Show values that were stored in single precision with their own digits.

    >>> shorten_floats({"height": 7.300000190734863, "age": 7, "share": 0.1})
    {'height': 7.3, 'age': 7, 'share': 0.1}
    """
    if columns is None:
        return None
    return {
        name: float(str(np.float32(value)))
        if isinstance(value, float) and abs(value) < 1e38 and float(np.float32(value)) == value
        else value
        for name, value in columns.items()
    }


def image_address(item: int) -> str:
    """The address of an item's picture."""
    return f"/api/items/{quote(str(item))}/image"


def show_guess(place: ItemPlace) -> bodies.Guess | None:
    """The model's prediction when it picked an item, if there was a model."""
    if place.asked is None or place.asked.guesses is None:
        return None
    if place.rank >= len(place.asked.guesses):
        return None
    label, confidence = place.asked.guesses[place.rank]
    return bodies.Guess(label=label, confidence=confidence)


def count_held(ledger: Ledger, by: str, now: float) -> bodies.Held:
    """Holders of the items that wait for a label, among the first `MOST_HELD`."""
    others = answered = 0
    for item in islice(ledger.waiting, MOST_HELD):
        if by in ledger.votes.get(item, ()):
            answered += 1
        else:
            leases = ledger.leases.get(item, {})
            others += any(until > now and who != by for who, until in leases.items())
    return bodies.Held(others=others, answered=answered)


def list_classes(ledger: Ledger, settings: Settings) -> list[bodies.ClassChoice]:
    """The classes of the campaign, or those that were used so far, with their keys.

    Classes whose names are digits have these as their keys.
    """
    if settings.regression:
        return []
    classes: Sequence[Label] = settings.classes or ()
    if settings.classes is None:
        classes = sorted(set(ledger.labels.values()), key=str)[:50]
    names = [str(value) for value in classes]
    keys = names if all(name in tuple(KEYS) for name in names) else list(KEYS)
    return [
        bodies.ClassChoice(
            value=value, name=name, key=key, description=settings.descriptions.get(name)
        )
        for value, name, key in zip_longest(classes, names, keys[: len(names)])
    ]


def show_state(ledger: Ledger, settings: Settings) -> bodies.State:
    """The progress of the campaign, the same for all requests."""
    advice = advise_campaign(ledger, settings)
    return bodies.State(
        length=ledger.length,
        version=str(ledger.length),
        items=ledger.items,
        labelled=len(ledger.labels),
        skipped=len(ledger.skipped),
        gone=len(list_closed_items(ledger)),
        disagreements=len(ledger.disagreements()),
        batch=_show_batch(ledger, settings),
        budget=_show_budget(ledger, settings),
        curve=_show_curve(ledger),
        evaluation=_show_evaluation(ledger),
        goal=settings.goal,
        settings=hashlib.sha256(json.dumps(ledger.settings).encode()).hexdigest()[:8],
        training=_show_training(ledger, settings),
        advice=advice.says,
        rules=advice.rules,
        stop=advice.stop,
        forecast=advice.forecast,
        you=None,
        annotators=[
            _show_work(name, work, name in settings.removed)
            for name, work in sorted(annotators(ledger).items())
        ],
    )


def show_person(ledger: Ledger, by: str | None) -> bodies.AnnotatorState | None:
    """The work of one person so far."""
    return None if by is None else _show_work(by, ledger.per_annotator.get(by, AnnotatorWork()))


def add_report(
    state: bodies.State, report: WorkerReport, *, trains: bool, version: str
) -> bodies.State:
    """Add the last report of the background process."""
    training = state.training.model_copy(update={"trains": trains})
    if report.stage is not None:
        training.stage = report.stage
        training.done, training.total = report.done, report.total
        # Without a batch, people wait for this process to select one.
        training.running |= report.stage != READY or state.batch is None
        if training.running:  # the record may hold a failure before the process reports its end
            training.error = None
    elif report.error is not None:
        training.running, training.error = False, report.error
    return state.model_copy(update={"training": training, "version": version})


def show_event(number: int, event: Event) -> bodies.HistoryLine:
    """One event as a line of text."""
    by = getattr(event, "by", None)
    return bodies.HistoryLine(
        number=number, kind=kind_of(event), at=event.at, by=by or None, says=describe_event(event)
    )


def _show_batch(ledger: Ledger, settings: Settings) -> bodies.BatchState | None:
    if not ledger.batches:
        return None
    last = ledger.batches[-1]
    return bodies.BatchState(
        number=last.number,
        size=last.size,
        done=last.size - last.open,
        waiting=sum(batch.open for batch in ledger.open_batches),
        rolling=settings.rolling,
    )


def _show_budget(ledger: Ledger, settings: Settings) -> bodies.BudgetState:
    cost = campaign_cost(ledger, settings)
    return bodies.BudgetState(
        labels=cost.labels,
        hours=cost.hours,
        money=cost.money,
        of_labels=settings.budget_labels,
        of_hours=settings.budget_hours,
        of_money=settings.budget_money,
        share=cost.share,
    )


def _show_curve(ledger: Ledger) -> list[bodies.CurvePoint]:
    return [
        bodies.CurvePoint(
            labels=point.labels,
            evaluated=point.evaluated,
            metric=point.metric,
            accuracy=None if point.metric == "mse" else point.value,
            mse=point.value if point.metric == "mse" else None,
            low=point.low,
            high=point.high,
        )
        for point in learning_curve(ledger)
    ]


def _show_evaluation(ledger: Ledger) -> bodies.EvaluationState | None:
    if not ledger.trainings:
        return None
    found = ModelEvaluation.from_training(ledger.trainings[-1])
    score = found.score
    return bodies.EvaluationState(
        training_labels=found.training_labels,
        held_out=found.held_out,
        needed=FEWEST_EVALUATED,
        metric=None if score is None else score.metric,
        value=None if score is None else score.value,
        low=None if score is None else score.low,
        high=None if score is None else score.high,
        balanced_accuracy=found.balanced_accuracy,
        macro_f1=found.macro_f1,
        says=found.describe(),
    )


def show_quality(ledger: Ledger) -> bodies.QualityState:
    """Confusions and calibration of the last model."""
    found = read_quality(ledger)
    if found.labels < FEWEST_EVALUATED:
        found = ModelQuality(found.source, found.labels)
    bins = [
        bodies.ReliabilityBin(confidence=sure, right=right, labels=labels)
        for sure, right, labels in found.reliability
    ]
    return bodies.QualityState(
        source=found.source,
        labels=found.labels,
        needed=FEWEST_EVALUATED,
        classes=list(found.classes),
        confusions=[list(row) for row in found.confusions],
        reliability=bins,
        calibration_error=found.calibration_error,
    )


def _show_training(ledger: Ledger, settings: Settings) -> bodies.TrainingState:
    running, failed = ledger.training, ledger.failure
    number = running.number if running else failed.number if failed else None
    return bodies.TrainingState(
        running=running is not None,
        number=number,
        stage="training" if running else None,
        error=failed.error if failed and not running else None,
        note=explain_missing_classes(ledger, settings),
        trains=False,
    )


def _show_work(name: str, work: AnnotatorWork, removed: bool = False) -> bodies.AnnotatorState:
    return bodies.AnnotatorState(
        name=name, labels=work.labels, skips=work.skips, seconds=work.seconds, removed=removed
    )
