"""Items, state and history of a campaign as the page shows them, from a ledger."""

import hashlib
import json
from collections.abc import Sequence
from itertools import islice, zip_longest

import numpy as np

from labelwise.campaign.costs import campaign_cost
from labelwise.campaign.evaluation import (
    FEWEST_EVALUATED,
    ModelEvaluation,
    ModelQuality,
    learning_curve,
    read_model_quality,
)
from labelwise.campaign.explanations import explain_pick
from labelwise.campaign.folder.missing_items import list_annotators, list_closed_items
from labelwise.campaign.labels import explain_missing_classes
from labelwise.campaign.project import Project
from labelwise.campaign.settings import Settings
from labelwise.campaign.stopping import advise_campaign
from labelwise.learner import Label
from labelwise.record.ledger import Ledger, Pick
from labelwise.record.votes import AnnotatorWork
from labelwise.web import bodies
from labelwise.web.background import READY, WorkerReport

KEYS = "1234567890"
MOST_HELD = 1_000
"""Number of waiting items that are looked at to explain why an annotator gets none."""


LeasedItem = tuple[int, Pick | None]  # An item, and its pick if it was asked for


def show_item(project: Project, item: int, pick: Pick | None) -> bodies.Item:
    """An item as the page shows it; an image has an address of its own."""
    try:
        about = dict(project.items.describe(item))
    except LookupError:
        about = {"text": f"Item {item} does not exist any more; skip it."}
    shown = bodies.Item(
        id=item,
        kind=str(about.get("kind", project.kind)),
        name=about.get("name"),
        text=about.get("text"),
        columns=shorten_floats(about.get("columns")),
    )
    if project.kind == "images":
        shown.image = make_image_address(item)
    if pick is not None:
        shown.batch, shown.rank = pick.asked.batch, pick.rank + 1
        if pick.rank < len(pick.asked.ids):
            shown.why = explain_pick(*pick)
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


def make_image_address(item: int) -> str:
    """The address of an item's picture."""
    return f"/api/items/{item}/image"


def count_held_items(ledger: Ledger, by: str, now: float) -> bodies.Held:
    """Holders of the items that wait for a label, among the first `MOST_HELD`."""
    others = answered = 0
    for item in islice(ledger.waiting, MOST_HELD):
        if by in ledger.votes.get(item, ()):
            answered += 1
        else:
            leases = ledger.leases.get(item, {})
            others += any(until > now and who != by for who, until in leases.items())
    return bodies.Held(others=others, answered=answered)


def list_class_choices(ledger: Ledger, settings: Settings) -> list[bodies.ClassChoice]:
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


def show_campaign_state(ledger: Ledger, settings: Settings) -> bodies.State:
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
            show_annotator(name, work, name in settings.removed)
            for name, work in sorted(list_annotators(ledger).items())
        ],
    )


def add_worker_report(
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
    shown = bodies.EvaluationState(
        training_labels=found.training_labels,
        held_out=found.held_out,
        needed=FEWEST_EVALUATED,
        balanced_accuracy=found.balanced_accuracy,
        macro_f1=found.macro_f1,
        says=found.describe(),
    )
    if (score := found.score) is not None:
        shown.metric, shown.value = score.metric, score.value
        shown.low, shown.high = score.low, score.high
    return shown


def show_quality(ledger: Ledger) -> bodies.QualityState:
    """Confusions and calibration of the last model."""
    found = read_model_quality(ledger)
    if found.labels < FEWEST_EVALUATED:
        found = ModelQuality(found.source, found.labels)
    return bodies.QualityState(
        source=found.source,
        labels=found.labels,
        needed=FEWEST_EVALUATED,
        classes=list(found.classes),
        confusions=[list(row) for row in found.confusions],
        reliability=[
            bodies.ReliabilityBin(confidence=sure, right=right, labels=labels)
            for sure, right, labels in found.reliability
        ],
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


def show_annotator(name: str, work: AnnotatorWork, removed: bool = False) -> bodies.AnnotatorState:
    """The work of one person so far."""
    return bodies.AnnotatorState(
        name=name, labels=work.labels, skips=work.skips, seconds=work.seconds, removed=removed
    )
