"""Evaluation of a campaign's models on held-out labels, and the learning curve.

A score from a few held-out labels says little: with 7 of them, one more hit is 14 points. So a
score is shown from `FEWEST_EVALUATED` labels on; until then the number of labels is shown instead.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labelwise.files import JsonObject
from labelwise.learner import Label
from labelwise.record.events import Trained
from labelwise.record.ledger import Ledger

FEWEST_EVALUATED = 30  # Held-out labels from which on a score is shown

OFTEN_CONFUSED, FEWEST_CONFUSED = 0.1, 5
"""Share and number of labels of two classes from which on they are often confused."""


class ModelScore(NamedTuple):
    """The score of a model."""

    labels: int  # number of all labels at its training, held-out ones included
    value: float  # its accuracy, or its mean squared error
    low: float | None = None  # the lower end of the 95 % interval, or None if unknown
    high: float | None = None  # the upper end, or None
    # ``accuracy``, ``mse`` or, without a holdout, ``prequential``: the accuracy on each batch
    # before training on it
    metric: str = "accuracy"
    # number of labels that the score was measured on, or None if unknown
    evaluated: int | None = None

    def format_value(self) -> str:
        """The score in words.

        >>> ModelScore(96, 0.9, 0.81, 0.95).format_value()
        'accuracy 90.0 % (81.0 % to 95.0 %)'
        """
        name = "mean squared error" if self.metric == "mse" else "accuracy"
        ends = [self.value, *(end for end in (self.low, self.high) if end is not None)]
        shown = [f"{end:.4g}" if self.metric == "mse" else f"{100 * end:.1f} %" for end in ends]
        interval = f" ({' to '.join(shown[1:])})" if len(shown) == 3 else ""
        return f"{name} {shown[0]}{interval}"


@dataclass(frozen=True)
class ModelEvaluation:
    """The labels of a model and, if it was evaluated on enough of them, its score."""

    training_labels: int  # number of labels that it was trained on
    held_out: int  # number of labels that it was evaluated on
    score: ModelScore | None  # None with fewer than `FEWEST_EVALUATED` held-out labels
    # mean over classes of the share that is right; None without a score
    balanced_accuracy: float | None = None
    macro_f1: float | None = None  # mean F1 of the classes; None without a score

    @classmethod
    def from_training(cls, trained: Trained) -> "ModelEvaluation":
        """The evaluation of a model."""
        held_out = int(trained.metrics.get("validation_labels") or 0)
        learned = int(trained.metrics.get("training_labels", trained.labels - held_out))
        scores = (read_model_score(trained, metric) for metric in ("accuracy", "mse"))
        score = next((score for score in scores if score), None)
        own = () if score is None else ("balanced_accuracy", "macro_f1")
        return cls(learned, held_out, score, *(trained.metrics.get(name) for name in own))

    def describe(self) -> str:
        """Training labels, held-out labels and score in words.

        >>> ModelEvaluation(77, 7, None).describe()
        'trained on 77 labels; evaluating: 7 of 30 held-out labels'
        >>> ModelEvaluation(77, 40, ModelScore(117, 0.9)).describe()
        'trained on 77 labels; accuracy 90.0 % on 40 held-out labels'
        """
        trained = f"trained on {self.training_labels:,} label{'s'[: self.training_labels != 1]}"
        if self.score is not None:
            return f"{trained}; {self.score.format_value()} on {self.held_out:,} held-out labels"
        if not self.held_out:
            return (
                f"{trained}; not evaluated, since no label was held out (labelwise start --test "
                "FILE or --validation SHARE holds some out)"
            )
        return f"{trained}; {self.describe_progress()} held-out labels"

    def describe_progress(self) -> str:
        """Number of held-out labels, out of those that a score needs."""
        return f"evaluating: {min(self.held_out, FEWEST_EVALUATED)} of {FEWEST_EVALUATED}"


def read_model_score(trained: Trained, metric: str) -> ModelScore | None:
    """The score of a model, if it was measured on enough labels."""
    count = "prequential_labels" if metric == "prequential" else "validation_labels"
    value, evaluated = trained.metrics.get(metric), trained.metrics.get(count)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if evaluated is not None and evaluated < FEWEST_EVALUATED:
        return None
    # The recorded interval belongs to the holdout score.
    ends = None if metric == "prequential" else trained.metrics.get("interval")
    low, high = ends or (None, None)
    return ModelScore(int(trained.labels), float(value), low, high, metric, evaluated)


class LabelSuspicion(NamedTuple):
    """A label that the model, without training on it, takes for another."""

    id: int
    label: Label  # its current label
    probability: float  # of that label, by the model
    suggested: Label  # the label that the model predicts


def read_out_of_fold(ledger: Ledger) -> JsonObject:
    """Out-of-fold measures of the last model that was cross-validated; empty without one."""
    found = (one.metrics.get("out_of_fold") for one in reversed(ledger.trainings))
    return next((dict(measures) for measures in found if measures), {})


class ModelQuality(NamedTuple):
    """Confusions and calibration of a model, on labels that it was not trained on."""

    source: str = ""  # ``cross-validation``, ``holdout``, or empty if nothing was measured
    labels: int = 0  # number of labels that it was measured on
    classes: tuple[Label, ...] = ()  # rows and columns of ``confusions``; empty with many classes
    # how often each class (row) was predicted as each class (column), ``(K, K)``
    confusions: tuple[tuple[int, ...], ...] = ()
    # ``(confidence, share right, labels)`` of each bin; see `measure_reliability`
    reliability: tuple[tuple[float, float, int], ...] = ()

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error: mean distance of confidence and share right."""
        total = sum(count for _, _, count in self.reliability)
        if not total:
            return None
        return sum(count * abs(sure - right) for sure, right, count in self.reliability) / total


def read_model_quality(ledger: Ledger) -> ModelQuality:
    """The quality of the last model: by cross-validation, or else on the holdout.

    >>> read_model_quality(Ledger()).source
    ''
    """
    found, source = read_out_of_fold(ledger), "cross-validation"
    if "confusions" not in found and "reliability" not in found and ledger.trainings:
        found, source = ledger.trainings[-1].metrics.get("holdout") or {}, "holdout"
    if not found:
        return ModelQuality()
    return ModelQuality(
        source,
        int(found.get("labels", 0)),
        tuple(found.get("classes", ())),
        tuple(map(tuple, found.get("confusions", ()))),
        tuple(map(tuple, found.get("reliability", ()))),
    )


def find_confused_classes(ledger: Ledger) -> tuple[Label, Label] | None:
    """The two classes that are confused most, if a tenth of their labels or more is.

    >>> metrics = {"out_of_fold": {"classes": ["cat", "dog"], "confusions": [[30, 9], [4, 30]]}}
    >>> ledger = Ledger()
    >>> ledger.extend([Trained(at=1.0, number=1, labels=73, seconds=2.0, metrics=metrics)])
    >>> find_confused_classes(ledger)
    ('cat', 'dog')
    """
    found = read_model_quality(ledger)
    if not found.confusions:
        return None
    counts = np.array(found.confusions)
    wrong, labels = counts + counts.T, counts.sum(axis=1)
    share = np.triu(wrong, 1) / np.maximum(labels[:, None] + labels, 1)
    share[wrong < FEWEST_CONFUSED] = 0.0
    first, second = np.unravel_index(int(share.argmax()), share.shape)
    if share[first, second] < OFTEN_CONFUSED:
        return None
    return found.classes[first], found.classes[second]


def list_suspicious_labels(ledger: Ledger) -> list[LabelSuspicion]:
    """Labels to check, the most suspicious first, without those corrected since."""
    found = [
        LabelSuspicion(item, ledger.labels[item], probability, suggested)
        for item, probability, suggested in read_out_of_fold(ledger).get("suspicious", ())
        if item in ledger.labels
    ]
    return [one for one in found if one.label != one.suggested]


def learning_curve(ledger: Ledger) -> list[ModelScore]:
    """The learning curve of a campaign: the last model for each number of labels.

    Without a holdout it is the accuracy on each batch before training on it. Picks are harder than
    the pool, so no forecast or advice uses it.

    >>> ledger = Ledger()
    >>> metrics = {"accuracy": 0.8, "interval": [0.7, 0.9], "validation_labels": 62}
    >>> ledger.extend([Trained(at=1.0, number=1, labels=150, seconds=2.0, metrics=metrics)])
    >>> learning_curve(ledger)[0].format_value()
    'accuracy 80.0 % (70.0 % to 90.0 %)'
    """
    squared = bool(ledger.settings.get("regression", False))
    for metric in ("mse",) if squared else ("accuracy", "prequential"):
        if any(metric in training.metrics for training in ledger.trainings):
            scores = (read_model_score(training, metric) for training in ledger.trainings)
            points = {score.labels: score for score in scores if score is not None}
            return [points[labels] for labels in sorted(points)]
    return []
