r"""Temperature scaling: one number that calibrates a classifier's confidence.

Probabilities are :math:`\operatorname{softmax}(z / T)`. The temperature minimizes the negative
log-likelihood of held-out items, which is convex in :math:`s = 1/T`:

.. math::
    \frac{\partial}{\partial s} \frac1n \sum_i -\log p_{i y_i}(s)
        = \frac1n \sum_i \Big( \sum_k p_{ik}(s) z_{ik} - z_{i y_i} \Big) .

The root of this derivative is found by Brent's method, about ten passes over the logits.

Reference: C. Guo, G. Pleiss, Y. Sun, K. Weinberger, "On Calibration of Modern Neural Networks",
ICML 2017.
"""

import numpy as np
from numpy.typing import ArrayLike

from labelwise.arrays import Array, Floats, HostArray, Ids, namespace, to_numpy
from labelwise.errors import BadInput

COLDEST, HOTTEST = 0.05, 20.0
"""Limits of the temperature: for a model without errors the minimum is at 0."""


def softmax(logits: Array, temperature: float = 1.0) -> Array:
    """Probabilities of ``(..., K)`` logits divided by the temperature; no overflow."""
    if not (np.isfinite(temperature) and temperature > 0):
        raise BadInput(f"temperature must be a positive number; got {temperature}")
    xp = namespace(logits)
    shifted = (logits - xp.max(logits, axis=-1, keepdims=True)) / temperature
    powers = xp.exp(shifted)
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def calibrate_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """The temperature with the smallest negative log-likelihood, within `COLDEST` and `HOTTEST`.

    ``logits`` are ``(n, K)`` of items that the model was not trained on, ``labels`` ``(n,)`` from 0
    to ``K - 1``. 1 if all logits are equal.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
        >>> calibrate_temperature(logits, [0, 0, 1, 1]) > 1  # 3 of 4 right, not 98 %
        True
    """
    scores, classes = _check_logits_and_labels(to_numpy(logits), to_numpy(labels))
    scores = scores - scores.max(axis=1, keepdims=True)
    if not scores.any():
        return 1.0
    coldest, hottest = 1 / COLDEST, 1 / HOTTEST
    if _differentiate_by_temperature(coldest, scores, classes) <= 0:
        return COLDEST
    if _differentiate_by_temperature(hottest, scores, classes) >= 0:
        return HOTTEST
    from scipy.optimize import brentq  # takes a quarter of a second to import

    inverse = brentq(
        _differentiate_by_temperature, hottest, coldest, args=(scores, classes), xtol=1e-12
    )
    return float(1 / inverse)


def _differentiate_by_temperature(inverse: float, scores: Floats, classes: Ids) -> float:
    """The derivative of the mean negative log-likelihood with respect to ``1 / T``."""
    powers = np.exp(inverse * scores)
    expected = np.vecdot(powers, scores) / powers.sum(axis=1)
    return float(np.mean(expected - scores[np.arange(len(scores)), classes]))


def _check_logits_and_labels(scores: HostArray, classes: HostArray) -> tuple[Floats, Ids]:
    if scores.ndim != 2 or not scores.size:
        raise BadInput(f"logits must be (items, classes), not empty; got shape {scores.shape}")
    if classes.shape != scores.shape[:1]:
        raise BadInput(
            f"give one label per row of logits; got labels of shape {classes.shape} "
            f"for {len(scores)} rows"
        )
    scores = scores.astype(np.float64)
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
        raise BadInput(f"logits of row {row} hold NaN or infinity; leave that row out")
    whole = classes.astype(np.int64)
    wrong = (whole != classes) | (whole < 0) | (whole >= scores.shape[1])
    if wrong.any():
        last = scores.shape[1] - 1
        raise BadInput(f"labels must be whole numbers from 0 to {last}; got {classes[wrong][0]}")
    return scores, whole
