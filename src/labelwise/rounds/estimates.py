r"""Accuracy of a model from few random labels and its predictions of many other random items.

The share of correct predictions :math:`\bar c` on :math:`n` labelled random items is corrected by
the model's own confidence :math:`p`, which is known for :math:`N` further random items without a
label (prediction-powered inference):

.. math::
    \hat a = \bar c + \lambda (\bar p_N - \bar p_n) , \qquad
    \operatorname{Var} \hat a = \frac{\operatorname{Var}(c - \lambda p)}{n}
    + \lambda^2 \frac{\operatorname{Var} p}{N} , \qquad
    \lambda = \frac{\operatorname{Cov}(c, p)}{(1 + n / N) \operatorname{Var} p} .

The estimate is right on average for every fixed :math:`\lambda`, also if the confidence is badly
calibrated; the confidence only makes it more precise. The variance is that of
:math:`n_e = n \operatorname{Var} c / (n \operatorname{Var} \hat a)` labels, so the interval is
Wilson's for a share of :math:`\hat a` among :math:`n_e` labels, which also holds near 0 and 1.

Reference: A. Angelopoulos, J. Duchi, T. Zrnic, "PPI++: Efficient Prediction-Powered Inference",
2023, section 6, for :math:`\lambda`.
"""

from typing import Any, NamedTuple

import numpy as np

from labelwise.errors import BadInput
from labelwise.rounds.measures import wilson_interval


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


def estimate_accuracy(correct: Any, confidence: Any, others: Any = ()) -> AccuracyEstimate:
    """Estimate the accuracy on the population from which all items were drawn at random.

    ``correct`` and ``confidence`` ``(n,)``: whether the model is right about each labelled random
    item, on which it was not trained (held out, or scored out of fold), and its probability of the
    predicted class. ``others`` ``(N,)``: the same probability of other random items, without
    labels.

    Example:
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
