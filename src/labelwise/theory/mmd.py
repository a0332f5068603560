r"""Maximum mean discrepancy (MMD) between the picks and the pool.

For a kernel :math:`\Theta` (for example the neural tangent kernel) and two distributions, the
squared discrepancy is
:math:`E\,\Theta(x_i, x_j) + E\,\Theta(x'_i, x'_j) - 2 E\,\Theta(x_i, x'_j)`. Its
unbiased estimate omits pairs of an item with itself. If the ``m`` items of the first group are also
the first of the ``n'`` items of the second, the estimate is

.. math::
    \frac{\sum_{i \ne j \le m} \Theta_{ij}}{m^2 - m}
    + \frac{\sum_{i \ne j \le n'} \Theta_{ij}}{n'^2 - n'}
    - \frac{2 \sum_{i \le m} \sum_{j \le n', j \ne i} \Theta_{ij}}{m (n' - 1)} .

The estimate can be negative; its root is then defined as 0. For :math:`\Theta = h \cdot h'` (the
tangent kernel of a linear head, up to a constant that cancels), one pass over the pool suffices:
``O(n d^2)``.

References: A. Gretton, K. Borgwardt, M. Rasch, B. Schölkopf, A. Smola, "A Kernel Two-Sample Test",
JMLR 2012; H. Wang, W. Huang, Z. Wu, A. Margenot, H. Tong, J. He, "Deep Active Learning by
Leveraging Training Dynamics", NeurIPS 2022, equation 32.
"""

import math
from dataclasses import dataclass

import numpy as np

from labelwise.arrays import Array, Floats, Ids
from labelwise.errors import BadInput
from labelwise.pool.ids import IdIndex
from labelwise.selection.result import Selection
from labelwise.theory.dynamics import check_tangent_kernel
from labelwise.theory.pool import (
    Features,
    as_feature_shards,
    check_weighted_picks,
    make_model_reader,
    read_picked_rows,
    sum_pool_moments,
)


@dataclass(frozen=True)
class Discrepancy:
    """A maximum mean discrepancy.

    Attributes:
        squared: the unbiased estimate, which may be negative.
        scale: mean of the kernel's diagonal, a reference for ``squared``.
        spread: approximate standard deviation of ``squared`` for random picks, if known.
    """

    squared: float
    scale: float
    spread: float | None = None

    @property
    def value(self) -> float:
        """The root of the estimate; 0 if the estimate is negative."""
        return math.sqrt(max(0.0, self.squared))


def subset_mmd(kernel: Array, first: int) -> Discrepancy:
    """MMD between the first items and all items, including the first ones.

    ``kernel`` is ``(n, n)``, the ``first`` group's items first (for example labelled items, then
    picks).

    >>> import numpy as np
    >>> subset_mmd(np.eye(4) + 1, 2).squared
    0.0
    """
    theta = check_tangent_kernel(kernel)
    n = len(theta)
    if not 2 <= first <= n:
        raise BadInput(f"the first group must have 2 to {n} items; got {first}")
    own = np.trace(theta[:first, :first])
    a = theta[:first, :first].sum() - own
    b = theta.sum() - np.trace(theta)
    c = theta[:first].sum() - own
    squared = a / (first**2 - first) + b / (n**2 - n) - 2 * c / (first * (n - 1))
    return Discrepancy(float(squared), float(np.trace(theta) / n))


def pool_mmd(
    picks: Selection, features: Features, *, model: int = 0, kernel: Array = None
) -> Discrepancy:
    """MMD between the weighted picks and their pool.

    Unweighted picks get equal weights. ``features`` are those of `weighted_spectrum`; ``kernel`` is
    ``(n, n)`` of the whole pool in row order, ``h . h'`` if None.

    >>> import numpy as np
    >>> from labelwise import Selection
    >>> pool = np.array([[0.0], [0.0], [4.0], [4.0]])
    >>> round(pool_mmd(Selection(np.array([2, 3])), pool).squared, 6)
    8.0
    """
    shards = as_feature_shards(features)
    n = len(shards)
    ids, weights, _ = check_weighted_picks(picks, n)
    if len(ids) < 2 or np.count_nonzero(weights) < 2:
        raise BadInput("MMD compares pairs; give 2 picks or more with a weight above zero")
    if kernel is not None:
        positions = IdIndex(shards.ids).find_positions(ids)
        return _kernel_mmd(check_tangent_kernel(kernel), positions, weights)
    read = make_model_reader(model)
    pool = sum_pool_moments(shards, read)
    if not np.isfinite(pool.squares):
        raise BadInput("the features hold NaN or infinity, or overflow; leave out these items")
    # Sums over pairs of distinct items: the whole sum without its diagonal.
    rows = read_picked_rows(shards, ids, read)
    squares = np.vecdot(rows, rows)
    near = weights @ rows
    shared = 1 / _sum_pick_pairs(weights) * (float(near @ near) - float(weights**2 @ squares))
    others = (float(pool.total @ pool.total) - pool.squares) / (n * n - n)
    cross = (float(near @ pool.total) - float(weights @ squares)) / (weights.sum() * (n - 1))
    # The spread of random picks follows from the covariance of the features.
    mean = pool.total / n
    covariance = pool.gram / n - np.outer(mean, mean)
    spread = _estimate_mmd_spread(float(np.vdot(covariance, covariance)), weights, n)
    return Discrepancy(float(shared + others - 2 * cross), pool.squares / n, spread)


def _kernel_mmd(theta: Floats, chosen: Ids, weights: Floats) -> Discrepancy:
    n = len(theta)
    if len(chosen) and chosen.max() >= n:
        raise BadInput(f"the kernel has {n} rows but the pool more; give one row per item")
    own = np.diagonal(theta)
    part = theta[np.ix_(chosen, chosen)]
    shared = (weights @ part @ weights - weights**2 @ own[chosen]) / _sum_pick_pairs(weights)
    others = (theta.sum() - own.sum()) / (n * n - n)
    cross = weights @ (theta[chosen].sum(axis=1) - own[chosen]) / (weights.sum() * (n - 1))
    centred = theta - theta.mean(axis=0) - theta.mean(axis=1)[:, None] + theta.mean()
    spread = _estimate_mmd_spread(float(np.vdot(centred, centred)) / n**2, weights, n)
    return Discrepancy(float(shared + others - 2 * cross), float(own.mean()), spread)


def _sum_pick_pairs(weights: Floats) -> float:
    """Total weight of all ordered pairs of distinct picks."""
    return float(weights.sum() ** 2 - weights @ weights)


def _estimate_mmd_spread(energy: float, weights: Floats, n: int) -> float:
    """Standard deviation of the estimate for random picks; ``energy`` is ``tr C^2``."""
    size = float(weights.sum() ** 2 / (weights @ weights))
    left = max(0.0, 1 - len(weights) / n)
    return math.sqrt(2 * energy / (size * (size - 1))) * left
