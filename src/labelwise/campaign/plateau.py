r"""Whether the accuracy on items set aside still rises: the rule ``flat`` of stopping.

Over the models of the last third of the labels (four at least), the accuracy
:math:`a_t` on items set aside is fitted by a line in :math:`\log` labels. Stop when its rise over
these models is below two points *with 95 % certainty*; say that nobody can tell while the noise
leaves both open. The noise: :math:`m_t` items give a variance of :math:`\bar a (1 - \bar a) / m_t`;
models measured on the same items share most of it, but for the mean share :math:`d` of items on
which two in a row differ,

.. math:: C_{st} = \frac{\bar a (1 - \bar a)}{\max(m_s, m_t)}
    \prod_{u = s + 1}^{t} \left(1 - \frac{d + 1 / m_u}{2 \bar a (1 - \bar a)}\right)_+ ,

and the line is fitted by generalised least squares under :math:`C`, scaled up if the models scatter
more than that. One item's worth in :math:`d` keeps small sets from looking exact, and where
:math:`d` is unknown the one that leaves most open is taken. A mean squared error is judged by its
logarithm and its scatter alone, and five per cent.

Cost: nothing to speak of; some tens of models make matrices of that size.

Reference: A. C. Aitken, "On Least Squares and Linear Combinations of Observations", Proceedings of
the Royal Society of Edinburgh 55, 1936, for the fit.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from labelwise.arrays import Floats
from labelwise.campaign.advice import FLAT, Advice
from labelwise.errors import BadInput

_SURE = 1.644854
"""Standard deviations above which a normal number is found 5 times in 100."""

_UNKNOWN = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0)
"""Shares of items on which successive models may differ; the one that leaves most open counts."""


def flat_accuracy(
    labels: Sequence[int],
    accuracy: Sequence[float],
    measured: Sequence[int],
    agreement: Sequence[float | None] | None = None,
    *,
    worth: float = 0.02,
) -> Advice:
    """Whether the accuracy on items set aside still rises, judged against its noise.

    Args:
        labels: ``(t,)``, how many each model was trained on, rising.
        accuracy: ``(t,)``.
        measured: ``(t,)``, on how many items; those of earlier models are among those of later.
        agreement: ``(t,)``, the share of items on which each model agrees with the one before, or
            Cohen's kappa, which is never larger; None where it is not known.
        worth: the rise that would be worth going on for.

    >>> labels = [400, 450, 500, 550, 600]
    >>> still = flat_accuracy(labels, [0.900, 0.902, 0.901, 0.900, 0.902], [3000] * 5, [0.99] * 5)
    >>> still.stop, flat_accuracy(labels, [0.90, 0.92, 0.91, 0.90, 0.92], [50] * 5).judged
    (True, False)
    """
    if not 0 < worth < 1:
        raise BadInput(f"worth is a rise in accuracy from 0 to 1; got {worth}")
    x, a, m = (np.asarray(values, dtype=np.float64) for values in (labels, accuracy, measured))
    same = [None] * len(x) if agreement is None else list(agreement)
    if (np.diff(x) <= 0).any():
        raise BadInput("labels must rise from model to model; leave out models without new labels")
    good = np.isfinite(a) & (m >= 1) & (x >= 1)
    x, a, m = x[good], a[good], m[good]
    differ = np.array([_differ(s) for s, keep in zip(same, good, strict=True) if keep])
    if len(x) < 4:
        return _too_few(len(x), 4)
    window = _window(x)
    x, a, m, differ = x[window], a[window], m[window], differ[window]
    # One share for all steps: where it were smaller, a smaller step would count for more.
    known = differ[1:][np.isfinite(differ[1:])]
    guesses = _UNKNOWN if len(known) < len(differ) - 1 else (float(known.mean()),)
    lines = [_rise(np.log(x), a, _noise(a, m, share)) for share in guesses]
    rise, error = max(lines, key=lambda line: line[0] + _SURE * line[1])
    return _judge_rise(rise, error, worth, x, int(m[-1]))


def flat_of(trainings: Sequence[Any], worth: float) -> Advice:
    """The rule on trainings of a classification, oldest first, with rising labels."""
    known = [one for one in trainings if isinstance(one.metrics.get("accuracy"), int | float)]
    return _flat_once(
        tuple(one.labels for one in known),
        tuple(one.metrics["accuracy"] for one in known),
        tuple(int(one.metrics.get("validation_labels") or 0) for one in known),
        tuple(one.metrics.get("agreement") for one in known),
        worth=worth,
    )


_flat_once = lru_cache(maxsize=16)(flat_accuracy)
"""The same, worked out once per training: a page asks for it with every label."""


def flat_error_of(trainings: Sequence[Any], worth: float = 0.05) -> Advice:
    """The same for a mean squared error: does its logarithm still fall, against its scatter?"""
    from scipy.special import stdtrit

    pairs = [(one.labels, one.metrics.get("mse")) for one in trainings]
    good = [(n, mse) for n, mse in pairs if isinstance(mse, int | float) and 0 < mse < math.inf]
    if len(good) < 5:
        return _too_few(len(good), 5)
    x, mse = np.array(good, dtype=np.float64).T
    window = _window(x, fewest=5)
    x, fall = np.log(x[window]), -np.log(mse[window])
    slope, base = np.polyfit(x, fall, 1)
    left = fall - slope * x - base
    variance = left @ left / (len(x) - 2) / ((x - x.mean()) ** 2).sum()
    error = math.sqrt(variance) * (x[-1] - x[0]) * float(stdtrit(len(x) - 2, 0.95)) / _SURE
    rise = float(slope * (x[-1] - x[0]))
    return _judge_rise(rise, error, worth, np.exp(x), None)


def _differ(same: float | None) -> float:
    """The share of items on which a model differs from the one before; NaN where nobody knows."""
    if same is None or not math.isfinite(same):
        return math.nan
    return min(max(1.0 - same, 0.0), 1.0)


def _window(x: Floats, fewest: int = 4) -> slice:
    """The models of the last third of the labels, and so many at least."""
    first = int(np.searchsorted(x, x[-1] * 2 / 3))
    return slice(min(first, len(x) - fewest), len(x))


def _noise(accuracy: Floats, measured: Floats, differ: float) -> Floats:
    """The covariance of the measured accuracies, ``(t, t)``, as above."""
    # A hit and a miss more, so that a set without a miss is not without noise.
    hits, total = accuracy @ measured + 1, measured.sum() + 2
    variance = hits / total * (1 - hits / total)
    kept = 1 - (differ + 1 / measured) / (2 * variance)
    kept = np.clip(kept[1:], 0.0, 1 - 1e-9)
    common = np.eye(len(accuracy))
    for first in range(len(accuracy)):
        for later in range(first + 1, len(accuracy)):
            common[first, later] = common[later, first] = np.prod(kept[first:later])
    return np.asarray(variance * common / np.maximum.outer(measured, measured))


def _rise(x: Floats, y: Floats, noise: Floats) -> tuple[float, float]:
    """The rise of a fitted line from the first to the last model, and its standard error."""
    design = np.column_stack([np.ones_like(x), (x - x[0]) / (x[-1] - x[0])])
    weighed = np.linalg.solve(noise, np.column_stack([design, y]))
    covariance = np.linalg.inv(design.T @ weighed[:, :2])
    level, rise = covariance @ design.T @ weighed[:, 2]
    left = y - level - rise * design[:, 1]
    scatter = float(left @ np.linalg.solve(noise, left)) / (len(x) - 2)
    return float(rise), math.sqrt(max(scatter, 1.0) * covariance[1, 1])


def _judge_rise(rise: float, error: float, worth: float, x: Floats, measured: int | None) -> Advice:
    """Flat, rising, or too noisy to tell; ``measured`` is None for a squared error."""
    low, high = rise - _SURE * error, rise + _SURE * error
    window = f"over the last {len(x)} models ({x[0]:,.0f} to {x[-1]:,.0f} labels)"
    if measured is None:
        what, better, worse, unit = "the mean squared error", "fell", "rose", "%"
        found = [100 * (1 - math.exp(-value)) for value in (rise, low, high)]
    else:
        what, better, worse, unit = "accuracy", "rose", "fell", "points"
        found = [100 * value for value in (rise, low, high)]
    seen = f"{window} {what} {better if rise >= 0 else worse} by {abs(found[0]):.1f} {unit}"
    limit = "" if rise >= 0 else f"{better} by "
    if high < worth:
        return Advice(FLAT, True, f"{seen} ({limit}at most {found[2]:.1f}): it is flat")
    if low > 0:
        return Advice(FLAT, False, f"{seen} (at least {found[1]:.1f}): it still improves")
    on = f" on {measured:,} items set aside" if measured is not None else ""
    says = f"{seen}, but any change for the better from {found[1]:.1f} to {found[2]:.1f} fits{on}"
    return Advice(FLAT, False, f"{says}: too noisy to tell", judged=False)


def _too_few(models: int, wanted: int) -> Advice:
    seen = {0: "no model was", 1: "1 model was"}.get(models, f"{models} models were")
    says = f"{seen} measured on items set aside; {wanted} are needed to tell whether it still rises"
    return Advice(FLAT, False, says, judged=False)
