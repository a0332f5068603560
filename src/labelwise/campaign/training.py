"""Training in a campaign: from the labels in the record to a model, its measures and checkpoint."""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids, largest, row_noise, to_numpy
from labelwise.campaign.labels import TrainingSet, make_training_set, read_batch_guesses
from labelwise.campaign.settings import TRAININGS, Settings
from labelwise.errors import BadInput, LabelwiseError, LabelwiseWarning, StorageFailed
from labelwise.files import JsonObject
from labelwise.kernels.calibration import softmax
from labelwise.learner import Learner
from labelwise.pool.pool import Pool
from labelwise.record.agreement import cohen_kappa
from labelwise.record.events import Event, Trained, Training
from labelwise.record.ledger import Ledger, replay
from labelwise.rounds import (
    LabelEncoding,
    Predictions,
    Round,
    count_confusions,
    estimate_accuracy,
    measure_agreement,
    measure_baseline,
    measure_classes,
    measure_out_of_fold,
    measure_predictions,
    measure_reliability,
    rank_suspicious_labels,
)
from labelwise.selection.result import Selection
from labelwise.theory.spectrum import weighted_spectrum

RESERVED, COMPARED = 51, 53
"""Noise streams: items that are reserved for the holdout, and items on which successive models are
compared."""
COMPARED_ITEMS = 2000
MOST_CONFUSED, MOST_SUSPICIOUS = 30, 50
"""Largest number of classes of a recorded confusion matrix, and of recorded suspicious labels."""
SPECTRUM_ITEMS, SPECTRUM_DIRECTIONS = 5_000, 128
"""Largest number of pool items with which the labelled ones are compared, and of directions."""
SPECTRUM_MEASURES = ("lower", "upper", "rank", "unseen")  # Those that a stopping rule uses
TUNING_GROWTH = 1.25  # Growth of the number of labels after which cross-validation is due again
TUNED_AT_ONCE = 500
"""Number of labels up to which cross-validation is never postponed: it takes half a second."""
LONGEST_ERROR = 2000


@dataclass(frozen=True)
class TrainingPlan:
    """A training that has begun."""

    number: int  # 1, 2, ...
    settings: Settings  # of the campaign when it began
    data: TrainingSet  # labels to train on and to measure with
    seed: int  # of the training
    before: Trained | None  # the last successful training
    metrics: JsonObject  # measures that are known before the training
    labels: int  # number of labels, the holdout included
    tuning: JsonObject | None  # of the last model, to be taken over; None to cross-validate


def is_tuning_due(trained: Trained, labels: int | None = None) -> bool:
    """Whether a model needs cross-validation again; False if there were too few labels before.

    Args:
        trained: the last training.
        labels: number of labels to train on; those of the last training if None.
    """
    held, metrics = trained.metrics.get("tuning"), trained.metrics
    before = held.get("labels", 0) if isinstance(held, dict) else 0
    now = metrics.get("training_labels", 0) if labels is None else labels
    return bool(before) and now >= TUNING_GROWTH * before


def choose_tuning(before: Trained | None, labels: int, postpone: bool) -> JsonObject | None:
    """The tuning to take over from the last model; None to cross-validate now."""
    held = None if before is None else before.metrics.get("tuning")
    if before is None or not isinstance(held, dict) or not held.get("labels"):
        return None
    wait = postpone and labels > TUNED_AT_ONCE
    return None if is_tuning_due(before, labels) and not wait else held


def plan_training(
    ledger: Ledger, settings: Settings, seed: int | None, *, postpone_tuning: bool = False
) -> TrainingPlan:
    """The next training, from the current state.

    With ``postpone_tuning``, many labels are trained on without cross-validation.
    """
    data = make_training_set(ledger, settings)
    known = [event.number for event in (ledger.training, ledger.failure) if event is not None]
    known += [trained.number for trained in ledger.trainings[-1:]]
    number = max(known, default=0) + 1
    before = ledger.trainings[-1] if ledger.trainings else None
    return TrainingPlan(
        number=number,
        settings=settings,
        data=data,
        seed=settings.seed_for(TRAININGS, number, seed),
        before=before,
        metrics=_measure_prequential(ledger, data, settings.regression),
        labels=len(data.labels) + len(data.measured),
        tuning=choose_tuning(before, len(data.labels), postpone_tuning),
    )


def _measure_prequential(ledger: Ledger, data: TrainingSet, regression: bool) -> JsonObject:
    """Prequential measure: how well the last model predicted its batch before it was labelled.

    Picks are harder than the pool, so this does not estimate the accuracy on the pool.
    """
    for batch in reversed(ledger.batches):
        guessed = read_batch_guesses(batch.asked)
        known = [item for item in guessed if item in data.labels]
        if known:
            mine, labels = [guessed[item] for item in known], [data.labels[item] for item in known]
            result = measure_predictions(mine, labels, regression=regression)
            value = result["mse" if regression else "accuracy"]
            return {"prequential": value, "prequential_labels": len(known)}
    return {}


class CampaignModel(Round):
    """The round of a campaign; it tracks which training the learner holds."""

    def __init__(self, pool: Pool, learner: Learner) -> None:
        """Start without a model."""
        super().__init__(pool, learner)
        self.number: int | None = None

    def forget_model(self) -> None:
        """Drop the model."""
        self.number, self.trained = None, False

    def run_training(self, plan: TrainingPlan) -> tuple[float, JsonObject]:
        """Train and measure; the learner holds the previous model, if there is one.

        Returns:
            The seconds that the training took, and the metrics.
        """
        labels, regression = plan.data.labels, plan.settings.regression
        encoding = LabelEncoding.from_labels(
            labels.values(), classes=plan.settings.classes, regression=regression
        )
        compared = sample_compared_items(self.pool, plan.settings.seed, COMPARED_ITEMS)
        before = None if plan.before is None else self.predict(compared)
        self.forget_model()
        begin = time.perf_counter()
        report = self.fit(
            labels, plan.data.weights, seed=plan.seed, encoding=encoding, tuning=plan.tuning
        )
        seconds = time.perf_counter() - begin
        self.number = plan.number
        metrics: JsonObject = {
            "training_labels": len(labels),
            "validation_labels": len(plan.data.measured),
            "loss": report.loss,
            "steps": report.steps,
            "converged": report.converged,
            "classes": encoding.names,
            "seen": self.columns,
            **plan.metrics,
            **self._measure_holdout(plan),
        }
        if self.tuning is not None:
            metrics["tuning"] = self.tuning
        if plan.tuning is None:
            metrics |= self._measure_out_of_fold(plan)
        after = None if before is None else self.predict(compared)
        if before is not None and after is not None:
            metrics |= _compare_model_predictions(before, after, regression)
        return seconds, metrics | self._measure_spectrum(plan)

    def _measure_holdout(self, plan: TrainingPlan) -> JsonObject:
        """Accuracy or squared error on the holdout.

        With probabilities, the accuracy is that of `estimate_accuracy`: the labelled reserved
        items are a random sample of all reserved items, which are never trained on.
        """
        held, regression = plan.data.measured, plan.settings.regression
        predicted = self.predict(list(held)) if held else None
        if predicted is None:
            return {}
        known = list(held.values())
        found = measure_predictions(predicted.labels, known, regression=regression)
        if regression:
            mean = float(np.mean([float(label) for label in plan.data.labels.values()]))
            return found | measure_baseline(known, mean, found["mse"])
        names = list(dict.fromkeys(known + predicted.labels))
        number = {label: place for place, label in enumerate(names)}
        mine = [number[label] for label in predicted.labels]
        counts = count_confusions(mine, [number[label] for label in known], len(number))
        correct = [mine == label for mine, label in zip(predicted.labels, known, strict=True)]
        found |= measure_classes(counts)
        found["holdout"] = {"labels": len(known)}
        if len(number) <= MOST_CONFUSED:
            found["holdout"] |= {"classes": names, "confusions": counts.tolist()}
        if predicted.confidence is not None:
            found["holdout"]["reliability"] = measure_reliability(predicted.confidence, correct)
        others = self._sample_reserved(plan)
        rest = self.predict(others) if len(others) and predicted.confidence is not None else None
        if rest is None or rest.confidence is None:
            return found
        better = estimate_accuracy(correct, predicted.confidence, rest.confidence)
        return found | {
            "accuracy": better.value,
            "interval": [better.low, better.high],
            "effective_labels": better.effective_labels,
        }

    def _sample_reserved(self, plan: TrainingPlan) -> Ids:
        """Reserved items without a label; none if the holdout is not a sample of them."""
        assert self.pool.ids is not None
        held = np.array(list(plan.data.measured), dtype=np.int64)
        if not find_reserved_items(held, plan.settings).all():  # a test set of the user
            return held[:0]
        ids = self.pool.ids[find_reserved_items(self.pool.ids, plan.settings)]
        ids = ids[~np.isin(ids, [*plan.data.labels, *held])]
        noise = row_noise(plan.settings.seed, ids, COMPARED)
        return ids[largest(noise, min(COMPARED_ITEMS, len(ids)), ids)]

    def _measure_out_of_fold(self, plan: TrainingPlan) -> JsonObject:
        """Score, confusion matrix and suspicious labels of a learner that cross-validates."""
        held, regression = getattr(self.learner, "out_of_fold", None), plan.settings.regression
        if held is None:
            return {}
        found = measure_out_of_fold(held.logits, held.targets, regression=regression)
        classes, items = held.logits.shape[1], list(plan.data.labels)
        if regression or len(items) != len(held.targets):
            return {"out_of_fold": found}
        columns = self.columns if classes == len(self.columns) else range(classes)
        names = [self.encoding.decode(column) for column in columns]
        if classes <= MOST_CONFUSED:
            counts = count_confusions(held.logits.argmax(axis=1), held.targets, classes)
            found |= {"classes": names, "confusions": counts.tolist()}
        chances = softmax(np.asarray(held.logits, dtype=np.float64))
        correct = chances.argmax(axis=1) == held.targets
        found["reliability"] = measure_reliability(chances.max(axis=1), correct)
        suspicious = [
            [items[one.row], one.probability, names[one.predicted]]
            for one in rank_suspicious_labels(held.logits, held.targets, MOST_SUSPICIOUS)
        ]
        return {"out_of_fold": found | {"suspicious": suspicious}}

    def _measure_spectrum(self, plan: TrainingPlan) -> JsonObject:
        """The spectrum of the weighted labels over the pool, or over a sample of it."""
        if not self.offers(["features"]):
            return {}
        labelled = np.array(list(plan.data.labels), dtype=np.int64)
        sample = sample_compared_items(self.pool, plan.settings.seed, SPECTRUM_ITEMS)
        items = np.union1d(sample, labelled)
        rows = self.learner.represent(self.pool.take(items), ["features"])["features"]
        if isinstance(rows, list | tuple):  # several models have no common spectrum
            return {}
        rows = _project_feature_rows(to_numpy(rows))
        weights = np.ones(len(labelled)) if plan.data.weights is None else plan.data.weights
        if not weights.sum() > 0:
            return {}
        # The weights of a selection add up to the size of the pool that it represents.
        scaled = weights * (len(items) / weights.sum())
        picks = Selection(np.searchsorted(items, labelled), scaled)
        found = weighted_spectrum(picks, rows)
        return {"spectrum": {name: getattr(found, name) for name in SPECTRUM_MEASURES}}

    def load_checkpoint(self, past: Trained, regression: bool, home: Path | None) -> bool:
        """Read the model of a past training from its checkpoint, if there is a readable one."""
        if past.checkpoint is None or home is None:
            return False
        folder, learner = home / past.checkpoint, self.learner
        if not folder.is_dir() or not hasattr(learner, "load"):
            return False
        try:
            learner.load(folder)
        except (BadInput, OSError) as error:
            warnings.warn(
                f"the checkpoint {folder} cannot be read ({error}); training again instead",
                LabelwiseWarning,
                stacklevel=2,
            )
            return False
        names = past.metrics.get("classes")
        encoding = LabelEncoding(regression, None if names is None else tuple(names))
        self.hold_model(encoding, past.metrics.get("seen", []))
        self.number = past.number
        return True

    def save_checkpoint(self, home: Path | None, number: int) -> str | None:
        """Write a checkpoint if the learner can; its path in ``home``.

        A full disk does not fail the training.
        """
        learner, name = self.learner, f"models/{number}"
        if home is None or not hasattr(learner, "save") or not hasattr(learner, "load"):
            return None
        try:
            learner.save(home / name)
        except OSError as error:
            warnings.warn(
                f"the model could not be saved to {home / name} ({error}); after a restart it will "
                "be trained again",
                LabelwiseWarning,
                stacklevel=2,
            )
            return None
        return name

    def repeat_training(self, past: Trained, events: Sequence[Event]) -> None:
        """Repeat a past training on the labels that were in the record when it began."""
        begins = [
            place
            for place, event in enumerate(events)
            if isinstance(event, Training) and event.number == past.number
        ]
        if not begins:
            raise StorageFailed(f"the record has no beginning of training {past.number}")
        ledger = replay(events[: begins[-1]])
        settings = Settings.from_dict(ledger.settings)
        data = make_training_set(ledger, settings)
        self.forget_model()
        encoding = LabelEncoding.from_labels(
            data.labels.values(), classes=settings.classes, regression=settings.regression
        )
        before = ledger.trainings[-1] if ledger.trainings else None
        tuning = choose_tuning(before, len(data.labels), "out_of_fold" not in past.metrics)
        self.fit(data.labels, data.weights, seed=past.seed, encoding=encoding, tuning=tuning)
        self.number = past.number


def find_reserved_items(ids: Ids, settings: Settings) -> NDArray[np.bool_]:
    """Mask of the items reserved for the holdout, ``(n,)``: a fixed random share of the pool."""
    return np.asarray(row_noise(settings.seed, ids, RESERVED) < settings.validation)


def _project_feature_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Wide rows in `SPECTRUM_DIRECTIONS` random directions, so that the spectrum takes no time."""
    width = rows.shape[1]
    if width <= SPECTRUM_DIRECTIONS:
        return rows
    rng = np.random.default_rng([COMPARED, width])
    directions = rng.standard_normal((width, SPECTRUM_DIRECTIONS)) / math.sqrt(width)
    return np.asarray(rows @ directions.astype(rows.dtype))


def sample_compared_items(pool: Pool, seed: int, most: int) -> Ids:
    """Fixed items of the pool for comparisons between models; all of a small pool."""
    assert pool.ids is not None
    noise = row_noise(seed, pool.ids, COMPARED)
    return pool.ids[largest(noise, min(most, len(noise)), pool.ids)]


def _compare_model_predictions(
    before: Predictions, after: Predictions, regression: bool
) -> JsonObject:
    agreement = measure_agreement(before.labels, after.labels, regression=regression)
    if regression:
        return {"agreement": agreement}
    return {"agreement": agreement, "kappa": cohen_kappa(before.labels, after.labels)}


def describe_training_error(error: BaseException) -> str:
    """An error in one line, as the record keeps it."""
    text = str(error) if isinstance(error, LabelwiseError) else ""
    return (text or f"{type(error).__name__}: {error}")[:LONGEST_ERROR]
