r"""What a training of a campaign learns from, and how good it turns out.

Every batch's weights are scaled to mean 1 over its picks, since batches were drawn from pools of
other sizes. Items that were drawn for measuring are never learned from. The share of them that the
model gets right, of :math:`m`, comes with Wilson's interval

.. math::
    \frac{\hat p + z^2 / 2m}{1 + z^2 / m} \pm \frac{z}{1 + z^2 / m}
    \sqrt{\frac{\hat p (1 - \hat p)}{m} + \frac{z^2}{4 m^2}} , \qquad z = 1.96 .

Reference: E. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA
1927.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from labelwise.arrays import Floats
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput
from labelwise.record.events import Asked, Label
from labelwise.record.ledger import Ledger
from labelwise.record.resolution import resolve
from labelwise.selection.result import Selection

SURE = 0.95
"""The chance with which an interval holds the true value."""

DEVIATIONS = NormalDist().inv_cdf((1 + SURE) / 2)
"""So many standard deviations to either side make such an interval: 1.96."""


@dataclass(frozen=True)
class TrainingSet:
    """What is learned from, and what is measured on; both in the order of the ids.

    Attributes:
        labels: by id, to learn from.
        weights: ``(m,)`` of mean about 1, or None where no strategy gave any.
        measured: by id, the labels of items drawn for measuring.
    """

    labels: dict[int, Label]
    weights: Floats | None
    measured: dict[int, Label]


def standing_labels(ledger: Ledger, settings: Settings) -> dict[int, Label]:
    """The label of every item that has one, by the campaign's rule of resolution.

    The ledger goes by majority. Where votes are weighted, those that were cast by several people
    are weighed anew, by what all votes say about how reliable each person is.
    """
    labels = dict(ledger.labels)
    if settings.resolution == "majority" or settings.regression:
        return labels
    contested = [
        item
        for item, votes in ledger.votes.items()
        if len(votes) > 1 and item not in ledger.resolutions and item not in ledger.skipped
    ]
    if not contested:
        return labels
    classes = None if settings.classes is None else len(settings.classes)
    weighed = resolve(ledger.votes, "weighted", classes=classes)
    for item in contested:
        labels.pop(item, None)
        if item in weighed:
            labels[item] = weighed[item]
    return labels


def training_set(ledger: Ledger, settings: Settings) -> TrainingSet:
    """All that a model can be trained on now.

    Raises:
        BadInput: there is nothing to learn from.
    """
    labels = dict(sorted(standing_labels(ledger, settings).items()))
    measured = {item: label for item, label in labels.items() if item in ledger.validation}
    learned = {item: label for item, label in labels.items() if item not in ledger.validation}
    if not learned:
        aside = f" (all {len(measured)} are set apart for measuring)" if measured else ""
        raise BadInput(f"there are no labels to train on{aside}; tell some first")
    given = batch_weights(ledger) if settings.weights else {}
    weights = np.array([given.get(item, 1.0) for item in learned]) if given else None
    return TrainingSet(learned, weights, measured)


def batch_weights(ledger: Ledger) -> dict[int, float]:
    """Training weights by id, of mean 1 in every batch; empty where no batch has any."""
    found: dict[int, float] = {}
    for batch in ledger.batches:
        asked = batch.asked
        if asked.weights is None:
            continue
        apart = set(asked.validation)
        picks = {
            item: weight
            for item, weight in zip(asked.ids, asked.weights, strict=True)
            if item not in apart
        }
        if any(picks.values()):
            ids, weights = np.array(list(picks)), np.array(list(picks.values()))
            scaled = Selection(ids, weights).training_weights()
            found.update(zip(picks, scaled.tolist(), strict=True))
    return found


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Wilson's interval of a share, ``hits`` of ``count``.

    Example:
        >>> [round(end, 3) for end in wilson(45, 50)]
        [0.786, 0.957]
    """
    z = DEVIATIONS
    share, spread = hits / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def score(predicted: Sequence[Label], labels: Sequence[Label], regression: bool) -> dict[str, Any]:
    """Accuracy or mean squared error, with its interval.

    The interval of a mean squared error is that of a mean: 1.96 standard errors to either side.
    """
    count = len(labels)
    if not regression:
        hits = sum(mine == label for mine, label in zip(predicted, labels, strict=True))
        return {"accuracy": hits / count, "interval": list(wilson(hits, count))}
    errors = (np.array(predicted, dtype=np.float64) - np.array(labels, dtype=np.float64)) ** 2
    mean = float(errors.mean())
    if count == 1:
        return {"mse": mean}
    half = DEVIATIONS * float(errors.std(ddof=1)) / math.sqrt(count)
    return {"mse": mean, "interval": [max(mean - half, 0.0), mean + half]}


def agreement(before: Sequence[Label], after: Sequence[Label], regression: bool) -> float:
    """How alike two models predict: the share of equal classes, or of variance in common."""
    if not regression:
        return float(np.mean([old == new for old, new in zip(before, after, strict=True)]))
    old, new = np.array(before, dtype=np.float64), np.array(after, dtype=np.float64)
    spread = float(new.var())
    if spread == 0:
        return float(np.array_equal(old, new))
    return max(1 - float(np.mean((new - old) ** 2)) / spread, 0.0)


def prequential(ledger: Ledger, labels: dict[int, Label], regression: bool) -> dict[str, Any]:
    """How well the model that chose the last batch guessed its labels, before it saw them.

    The picks are harder than the pool, so that this is no estimate of the accuracy on the pool.
    """
    for batch in reversed(ledger.batches):
        guessed = guesses_of(batch.asked)
        known = [item for item in guessed if item in labels]
        if known:
            mine = [guessed[item] for item in known]
            result = score(mine, [labels[item] for item in known], regression)
            value = result["mse" if regression else "accuracy"]
            return {"prequential": value, "prequential_labels": len(known)}
    return {}


def guesses_of(asked: Asked) -> dict[int, Label]:
    """What the model guessed, by id, of the picks that were not drawn for measuring."""
    apart = set(asked.validation)
    if asked.guesses is not None:
        given = [label for label, _ in asked.guesses]
    else:
        given = list(asked.info.get("predicted", ()))
    return {item: label for item, label in zip(asked.ids, given, strict=False) if item not in apart}
