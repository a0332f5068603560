r"""Non-negative least squares on a small normal matrix, by block principal pivoting.

Minimises :math:`\frac12 w^\top M w - r^\top w` over :math:`w \ge 0`. At the minimum, with
:math:`y = M w - r`, every item is either free (:math:`w_j \ge 0, y_j = 0`) or at zero
(:math:`w_j = 0, y_j \ge 0`). All items on the wrong side change sides at once; if that stops
helping, only the last one does, which ends for every positive definite ``M``. A few Cholesky
factorisations suffice where an active-set method needs one per item.

Reference: L. F. Portugal, J. J. Júdice, L. N. Vicente, "A Comparison of Block Pivoting and
Interior-Point Algorithms for Linear Least Squares Problems with Nonnegative Variables",
Mathematics of Computation 63, 1994.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from labelwise.arrays import Floats

RIDGE = 1e-13
"""Added to the unit diagonal, so that items that depend on each other share their weight."""
PATIENCE = 3
"""How many exchanges of all items at once may fail to help in a row."""


def nonnegative_least_squares(matrix: Floats, target: Floats, start: Floats) -> Floats:
    """The ``w >= 0`` that minimises ``w M w / 2 - r w``.

    Args:
        matrix: ``(t, t)``, symmetric and positive semidefinite.
        target: ``(t,)``, ``r``.
        start: ``(t,)``; the items free at first are those where it is positive. It is also the
            answer where rounding leaves nothing better.

    Returns:
        ``(t,)``; items with a zero row in ``matrix`` get weight 0.
    """
    used = np.diag(matrix) > 0
    if not used.any():
        return np.zeros(len(target))
    scale = np.where(used, 1 / np.sqrt(np.where(used, np.diag(matrix), 1.0)), 0.0)
    scaled = matrix * scale * scale[:, None]
    scaled[np.diag_indices_from(scaled)] = 1.0
    scaled = _definite(scaled)
    weights = scale * _pivot(scaled, target * scale, start > 0)
    start = np.where(used, np.maximum(start, 0.0), 0.0)
    return weights if _value(weights, matrix, target) <= _value(start, matrix, target) else start


def _value(weights: Floats, matrix: Floats, target: Floats) -> float:
    return float(weights @ (matrix @ weights / 2 - target))


def _definite(matrix: Floats) -> Floats:
    """The matrix plus the smallest ridge that lets it be factored."""
    ridge = RIDGE * len(matrix)
    while True:
        ridged = matrix + ridge * np.eye(len(matrix))
        try:
            cho_factor(ridged, lower=True)
        except LinAlgError:
            ridge *= 100
        else:
            return np.asarray(ridged)


def _pivot(matrix: Floats, target: Floats, free: NDArray[np.bool_]) -> Floats:
    fewest, patience = len(target) + 1, PATIENCE
    for _ in range(10 * len(target) + 100):
        weights, gradient = _at(matrix, target, free)
        tolerance = 1e-12 * max(np.abs(weights).max(), np.abs(target).max())
        wrong = np.flatnonzero(np.where(free, weights, gradient) < -tolerance)
        if not len(wrong):
            break
        if len(wrong) < fewest:
            fewest, patience = len(wrong), PATIENCE
        elif patience:
            patience -= 1
        else:
            wrong = wrong[-1:]
        free = free.copy()
        free[wrong] = ~free[wrong]
    return np.maximum(weights, 0.0)


def _at(matrix: Floats, target: Floats, free: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """The unconstrained optimum over the free items, and the gradient there."""
    weights = np.zeros(len(target))
    if free.any():
        factor = cho_factor(matrix[np.ix_(free, free)], lower=True)
        weights[free] = cho_solve(factor, target[free])
    return weights, matrix @ weights - target
