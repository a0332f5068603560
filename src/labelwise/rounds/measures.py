r"""Measures of a model: accuracy or squared error with an interval, agreement between two models.

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
from typing import Any

import numpy as np

from labelwise.files import JsonObject
from labelwise.learner import Label

CONFIDENCE_LEVEL = 0.95
"""Probability that an interval contains the true value."""

DEVIATIONS = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2)
"""Half the width of such an interval in standard deviations: 1.96."""


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    """Wilson's interval of the proportion ``hits / count``.

    Example:
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

    Example:
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

    Example:
        >>> measure_baseline([1.0, 3.0], 2.0, 0.25)
        {'baseline': 1.0, 'r2': 0.75}
    """
    baseline = float(np.mean((np.array(labels, dtype=np.float64) - mean) ** 2))
    return {"baseline": baseline, "r2": 1 - mse / baseline} if baseline > 0 else {}


def measure_out_of_fold(logits: Any, targets: Any, *, regression: bool = False) -> JsonObject:
    """Measures of out-of-fold predictions: ``accuracy``, or ``mse``, ``baseline`` and ``r2``.

    Args:
        logits: ``(m, K)``, or values ``(m, 1)``.
        targets: ``(m,)`` columns, or values ``(m, 1)``.
        regression: whether they are values.
    """
    rows, known = np.asarray(logits), np.asarray(targets)
    if not regression:
        return {"accuracy": float(np.mean(rows.argmax(axis=1) == known)), "labels": len(known)}
    mse = float(np.mean((rows - known) ** 2))
    baseline = measure_baseline(known.ravel().tolist(), float(known.mean()), mse)
    return {"mse": mse, **baseline, "labels": len(known)}


def measure_agreement(
    before: Sequence[Label], after: Sequence[Label], *, regression: bool = False
) -> float:
    """Agreement of two models: share of equal classes, or share of explained variance.

    Example:
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
