r"""Measures of a model: accuracy or squared error with an interval, confusions, suspicious labels.

The accuracy :math:`\hat p` on :math:`m` items comes with Wilson's interval

.. math::
    \frac{\hat p + z^2 / 2m}{1 + z^2 / m} \pm \frac{z}{1 + z^2 / m}
    \sqrt{\frac{\hat p (1 - \hat p)}{m} + \frac{z^2}{4 m^2}} , \qquad z = 1.96 .

Reference: E. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA
1927.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Array, Ids
from labelwise.errors import BadInput
from labelwise.files import JsonObject
from labelwise.kernels.calibration import softmax
from labelwise.learner import Label

CONFIDENCE_LEVEL = 0.95  # Probability that an interval contains the true value
DEVIATIONS = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2)
"""Half the width of such an interval in standard deviations: 1.96."""


def wilson_interval(hits: float, count: float) -> tuple[float, float]:
    """Wilson's interval of the proportion ``hits / count``.

    >>> [round(end, 3) for end in wilson_interval(45, 50)]
    [0.786, 0.957]
    """
    z = DEVIATIONS
    share, spread = hits / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def measure_predictions(
    predicted: Sequence[Label], labels: Sequence[Label], *, regression: bool = False
) -> dict[str, Any]:
    """``accuracy`` or ``mse``, and its ``interval``.

    The interval of a mean squared error is 1.96 standard errors to either side.

    >>> measure_predictions([1.0, 3.0], [1.0, 2.0], regression=True)["mse"]
    0.5
    """
    count = len(labels)
    if not regression:
        hits = sum(mine == label for mine, label in zip(predicted, labels, strict=True))
        return {"accuracy": hits / count, "interval": list(wilson_interval(hits, count))}
    errors = (np.array(predicted, dtype=np.float64) - np.array(labels, dtype=np.float64)) ** 2
    mean = float(errors.mean())
    if count == 1:
        return {"mse": mean}
    half = DEVIATIONS * float(errors.std(ddof=1)) / math.sqrt(count)
    return {"mse": mean, "interval": [max(mean - half, 0.0), mean + half]}


def measure_baseline(labels: Sequence[Label], mean: float, mse: float) -> JsonObject:
    """``baseline``, the squared error of predicting ``mean`` for every item, and ``r2`` against it.

    >>> measure_baseline([1.0, 3.0], 2.0, 0.25)
    {'baseline': 1.0, 'r2': 0.75}
    """
    baseline = float(np.mean((np.array(labels, dtype=np.float64) - mean) ** 2))
    return {"baseline": baseline, "r2": 1 - mse / baseline} if baseline > 0 else {}


def measure_out_of_fold(logits: Array, targets: Array, *, regression: bool = False) -> JsonObject:
    """Measures of out-of-fold predictions: ``accuracy``, or ``mse``, ``baseline`` and ``r2``.

    ``(m, K)`` logits with ``(m,)`` columns, or ``(m, 1)`` values.
    """
    rows, known = np.asarray(logits), np.asarray(targets)
    if not regression:
        return {"accuracy": float(np.mean(rows.argmax(axis=1) == known)), "labels": len(known)}
    mse = float(np.mean((rows - known) ** 2))
    baseline = measure_baseline(known.ravel().tolist(), float(known.mean()), mse)
    return {"mse": mse, **baseline, "labels": len(known)}


def count_confusions(predicted: Array, targets: Array, classes: int) -> Ids:
    """Confusion matrix ``(K, K)``: items of each class (row) predicted as each class (column)."""
    counts = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counts, (np.asarray(targets, np.intp), np.asarray(predicted, np.intp)), 1)
    return counts


def measure_classes(counts: Ids) -> JsonObject:
    """``balanced_accuracy``, the mean over classes of the share found, and ``macro_f1``.

    F1 is the harmonic mean of the shares found and of correct predictions of a class. Classes
    without labels do not count for the balanced accuracy, and for F1 only if they were predicted.

    >>> measure_classes(np.array([[8, 0], [1, 1]]))["balanced_accuracy"]
    0.75
    """
    hits, labels, predicted = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    known, used = labels > 0, labels + predicted > 0
    return {
        "balanced_accuracy": float(np.mean(hits[known] / labels[known])),
        "macro_f1": float(np.mean(2 * hits[used] / (labels + predicted)[used])),
    }


RELIABILITY_BINS = 10


def measure_reliability(confidence: Array, correct: Array) -> list[tuple[float, float, int]]:
    """Reliability diagram: mean confidence, share right and number of predictions of each bin.

    The bins have equal widths from 0 to 1; empty ones are left out.

    >>> measure_reliability([0.95, 0.95, 0.95, 0.55], [1, 1, 0, 1])[0]
    (0.55, 1.0, 1)
    """
    sure, right = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
    bins = np.minimum((sure * RELIABILITY_BINS).astype(np.intp), RELIABILITY_BINS - 1)
    return [
        (float(sure[own].mean()), float(right[own].mean()), int(own.sum()))
        for own in (bins == number for number in np.unique(bins))
    ]


class SuspiciousLabel(NamedTuple):
    """A label that differs from its out-of-fold prediction."""

    row: int  # of the labelled item
    probability: float  # of its label, out of fold
    predicted: int  # column of the predicted class


def rank_suspicious_labels(logits: Array, targets: Array, most: int) -> list[SuspiciousLabel]:
    """The least probable labels out of fold, the most suspicious first.

    ``logits`` ``(m, K)`` are calibrated and by models that were not trained on the item;
    ``targets`` ``(m,)`` are columns.

    Reference: C. Northcutt, L. Jiang, I. Chuang, "Confident Learning", JAIR 2021: ranking by
    self-confidence.
    """
    chances, known = softmax(np.asarray(logits, dtype=np.float64)), np.asarray(targets)
    predicted, own = chances.argmax(axis=1), chances[np.arange(len(known)), known]
    order = np.argsort(own, kind="stable")
    wrong = order[predicted[order] != known[order]][:most]
    return [SuspiciousLabel(int(row), float(own[row]), int(predicted[row])) for row in wrong]


def measure_agreement(
    before: Sequence[Label], after: Sequence[Label], *, regression: bool = False
) -> float:
    """Agreement of two models: share of equal classes, or share of explained variance.

    >>> measure_agreement(["cat", "dog"], ["cat", "owl"])
    0.5
    """
    if not regression:
        return float(np.mean([old == new for old, new in zip(before, after, strict=True)]))
    old, new = np.array(before, dtype=np.float64), np.array(after, dtype=np.float64)
    variance = float(new.var())
    if variance == 0:
        return float(np.array_equal(old, new))
    return max(1 - float(np.mean((new - old) ** 2)) / variance, 0.0)


class AccuracyEstimate(NamedTuple):
    """The accuracy of a model on items like those that were drawn at random."""

    value: float
    low: float  # the lower end of its 95 % interval
    high: float
    labels: int  # number of random labels that it is based on, ``n``
    # Number of labels that would give as precise an estimate without predictions, ``n_e``; at least
    # ``labels``
    effective_labels: float
    power: float  # weight of the predictions, from 0 to 1


def estimate_accuracy(correct: Array, confidence: Array, others: Array = ()) -> AccuracyEstimate:
    r"""Estimate the accuracy on the population from which all items were drawn at random.

    The share :math:`\bar c` of correct predictions on :math:`n` labelled random items is corrected
    by the model's confidence :math:`p`, known for :math:`N` further random items without a label:

    .. math::
        \hat a = \bar c + \lambda (\bar p_N - \bar p_n) , \qquad
        \operatorname{Var} \hat a = \frac{\operatorname{Var}(c - \lambda p)}{n}
        + \lambda^2 \frac{\operatorname{Var} p}{N} , \qquad
        \lambda = \frac{\operatorname{Cov}(c, p)}{(1 + n / N) \operatorname{Var} p} .

    It is right on average for every fixed :math:`\lambda`, also if the confidence is badly
    calibrated. Its variance is that of :math:`n_e =
    \operatorname{Var} c / \operatorname{Var} \hat a` labels, so the interval is Wilson's for
    :math:`\hat a` among :math:`n_e` labels.

    ``correct`` and ``confidence`` ``(n,)``: whether the model is right about each labelled random
    item, on which it was not trained (held out, or scored out of fold), and its probability of the
    predicted class. ``others`` ``(N,)``: the same probability of other random items, without
    labels.

    Reference: A. Angelopoulos, J. Duchi, T. Zrnic, "PPI++: Efficient Prediction-Powered Inference",
    2023, section 6, for :math:`\lambda`.

    >>> found = estimate_accuracy([1, 1, 1, 0] * 10, [0.9, 0.8, 0.9, 0.5] * 10, [0.8] * 500)
    >>> round(found.value, 3), found.labels, found.effective_labels > 40
    (0.775, 40, True)
    """
    hits, sure, rest = (
        np.asarray(rows, dtype=np.float64) for rows in (correct, confidence, others)
    )
    count = len(hits)
    if not count or len(sure) != count:
        raise BadInput(
            f"an accuracy needs labels and a confidence for each; got {count} labels and "
            f"{len(sure)} confidences"
        )
    share, power, effective = float(hits.mean()), 0.0, float(count)
    spread = float(hits.var())
    # With three items or fewer, or equal values, the weight of the predictions is unknown.
    if count > 3 and len(rest) and spread > 0 and sure.var() > 0:
        covariance = float(np.mean((hits - share) * (sure - sure.mean())))
        best = covariance / float(sure.var()) / (1 + count / len(rest))
        power = float(np.clip(best, 0.0, 1.0))
        # Fitting the weight makes residuals too small: a degree of freedom, as in a regression.
        residual = float((hits - power * sure).var()) * (count - 1) / (count - 2)
        variance = residual / count + power**2 * float(rest.var()) / len(rest)
        effective = spread / variance if variance > 0 else effective
        if effective <= count:
            power, effective = 0.0, float(count)
        else:
            share += power * float(rest.mean() - sure.mean())
    share = min(max(share, 0.0), 1.0)
    low, high = wilson_interval(share * effective, effective)
    return AccuracyEstimate(share, low, high, count, effective, power)
