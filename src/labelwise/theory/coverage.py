r"""Do the models agree on which items matter?

With :math:`I_j^t` the t % of items with the largest Lewis weights of model :math:`j`, and
:math:`I^t` the t % with the largest :math:`\max_j w_i(U^j)`, the coverage of :math:`k` models is

.. math:: \kappa(t) = \frac1k \sum_{j=1}^k \frac{|I_j^t \cap I^t|}{|I^t|} .

It is 1 for models that rank the items alike. For models whose important items are disjoint it falls
towards :math:`1/k`.

Reference: S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, Appendix C.2.1 and Figure 4.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, comparable, largest
from labelwise.errors import BadInput


def model_coverage(
    weights: Sequence[Any] | Floats, percent: float, *, ids: Ids | None = None
) -> float:
    """The mean share of the models' own most important items among the shared ones.

    Args:
        weights: ``(k, n)``, the Lewis weights (or leverage scores) of every item in every model.
        percent: how many percent of the items count as important, above 0 and at most 100.
        ids: ``(n,)``, what breaks ties; row numbers if None.

    >>> model_coverage([[1.0, 0.1, 0.9, 0.2], [0.9, 0.1, 1.0, 0.2]], 50)
    1.0
    >>> model_coverage([[1.0, 0.1, 0.0, 0.0], [0.0, 0.0, 1.0, 0.1]], 50)
    0.5
    """
    scores = np.asarray(weights, dtype=np.float64)
    if scores.ndim != 2 or not scores.size or not np.isfinite(scores).all():
        raise BadInput(f"weights must be finite, models by items; got shape {scores.shape}")
    if not 0 < percent <= 100:
        raise BadInput(f"percent must be above 0 and at most 100; got {percent}")
    n = scores.shape[1]
    count = max(1, round(percent / 100 * n))
    names = np.arange(n, dtype=np.int64) if ids is None else np.asarray(ids, dtype=np.int64)
    shared = largest(comparable(scores.max(axis=0)), count, names)
    chosen = np.zeros(n, dtype=bool)
    chosen[shared] = True
    own = [chosen[largest(comparable(row), count, names)].sum() for row in scores]
    return float(np.mean(own) / count)
