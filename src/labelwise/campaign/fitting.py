"""A training of a campaign, from the labels that stand to a model and how good it is."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import to_numpy
from labelwise.campaign.choosing import stop_set
from labelwise.campaign.coding import Coding
from labelwise.campaign.model import Model
from labelwise.campaign.settings import TRAININGS, Settings
from labelwise.campaign.stopping import spectrum_summary
from labelwise.campaign.training import (
    TrainingSet,
    agreement,
    prequential,
    score,
    training_set,
)
from labelwise.errors import LabelwiseError, StorageFailed
from labelwise.record.agreement import cohen_kappa
from labelwise.record.events import Event, Trained, Training
from labelwise.record.ledger import Ledger, replay
from labelwise.selection.result import Selection
from labelwise.theory.spectrum import weighted_spectrum

LONGEST_ERROR = 2000
LOOK_AT = 20_000
"""With how many items of the pool, at most, the labelled ones are compared."""


@dataclass(frozen=True)
class Plan:
    """A training that has begun.

    Attributes:
        number: 1, 2, ...
        settings: as they were when it began.
        data: what it learns from and measures on.
        seed: of the training.
        before: the last training that ended well.
        known: what can be measured before it.
    """

    number: int
    settings: Settings
    data: TrainingSet
    seed: int
    before: Trained | None
    known: dict[str, Any]

    @property
    def labels(self) -> int:
        """How many labels there are, those to measure on included."""
        return len(self.data.labels) + len(self.data.measured)


def planned(ledger: Ledger, settings: Settings, seed: int | None) -> Plan:
    """The next training, by the state as it is now."""
    data = training_set(ledger, settings)
    known = [event.number for event in (ledger.training, ledger.failure) if event is not None]
    known += [trained.number for trained in ledger.trainings[-1:]]
    number = max(known, default=0) + 1
    return Plan(
        number=number,
        settings=settings,
        data=data,
        seed=settings.seed_for(TRAININGS, number, seed),
        before=ledger.trainings[-1] if ledger.trainings else None,
        known=prequential(ledger, data.labels, settings.regression),
    )


def trained(plan: Plan, model: Model) -> tuple[float, dict[str, Any]]:
    """Train, and measure; the model holds the training before, if there was one.

    Returns:
        The seconds that the training took, and the metrics.
    """
    regression = plan.settings.regression
    stop = stop_set(model.places, plan.settings.seed)
    before = None if plan.before is None else model.predict(stop)
    coding = Coding.of(plan.settings, plan.data.labels.values())
    begin = time.perf_counter()
    report = model.fit(plan.number, plan.data, coding, plan.seed)
    seconds = time.perf_counter() - begin
    metrics = {
        "training_labels": len(plan.data.labels),
        "validation_labels": len(plan.data.measured),
        "loss": report.loss,
        "steps": report.steps,
        "converged": report.converged,
        "classes": coding.names,
        "seen": model.columns,
        **plan.known,
        **_measured(model, plan.data, regression),
    }
    after = None if before is None else model.predict(stop)
    if before is not None and after is not None:
        metrics["agreement"] = agreement(before.labels, after.labels, regression)
        if not regression:
            metrics["kappa"] = cohen_kappa(before.labels, after.labels)
    return seconds, metrics | _spectrum(model, plan)


def _spectrum(model: Model, plan: Plan) -> dict[str, Any]:
    """How well the weighted labels stand for the pool, or for `LOOK_AT` items of it."""
    if not model.offers(["features"]):
        return {}
    labelled = np.array(list(plan.data.labels), dtype=np.int64)
    pool = np.union1d(stop_set(model.places, plan.settings.seed, LOOK_AT), labelled)
    rows = model.learner.represent(model.places.inputs(pool), ["features"])["features"]
    if isinstance(rows, list | tuple):  # several models: no one spectrum says it
        return {}
    weights = np.ones(len(labelled)) if plan.data.weights is None else plan.data.weights
    if not weights.sum() > 0:
        return {}
    picks = Selection(np.searchsorted(pool, labelled), weights * (len(pool) / weights.sum()))
    return {"spectrum": spectrum_summary(weighted_spectrum(picks, to_numpy(rows)))}


def _measured(model: Model, data: TrainingSet, regression: bool) -> dict[str, Any]:
    """How good the model is on the items drawn for measuring."""
    predicted = model.predict(list(data.measured)) if data.measured else None
    if predicted is None:
        return {}
    return score(predicted.labels, list(data.measured.values()), regression)


def from_checkpoint(model: Model, past: Trained, regression: bool, home: Path | None) -> bool:
    """Hold the model of a past training, if its checkpoint is there."""
    if past.checkpoint is None or home is None:
        return False
    names, seen = past.metrics.get("classes"), past.metrics.get("seen", [])
    coding = Coding(regression, None if names is None else tuple(names))
    return model.load(past.number, home / past.checkpoint, coding, seen)


def train_again(model: Model, past: Trained, events: Sequence[Event]) -> None:
    """Hold the model of a past training, by training on what stood in the record when it began."""
    begins = [
        place
        for place, event in enumerate(events)
        if isinstance(event, Training) and event.number == past.number
    ]
    if not begins:
        raise StorageFailed(f"the record has no beginning of training {past.number}")
    ledger = replay(events[: begins[-1]])
    settings = Settings.from_dict(ledger.settings)
    data = training_set(ledger, settings)
    model.fit(past.number, data, Coding.of(settings, data.labels.values()), past.seed)


def in_words(error: BaseException) -> str:
    """An error as the record tells it."""
    words = str(error) if isinstance(error, LabelwiseError) else ""
    return (words or f"{type(error).__name__}: {error}")[:LONGEST_ERROR]
