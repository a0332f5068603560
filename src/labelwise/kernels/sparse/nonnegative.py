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
from scipy.linalg import cho_solve

from labelwise.arrays import Array, namespace

RIDGE = 1e-13
"""Added to the unit diagonal, so that items that depend on each other share their weight."""
PATIENCE = 3
"""How many exchanges of all items at once may fail to help in a row."""


def solve_nonnegative_least_squares(matrix: Array, target: Array, start: Array) -> Array:
    """The ``w >= 0`` that minimises ``w M w / 2 - r w``; all float64, on the host or on a GPU.

    Args:
        matrix: ``(t, t)``, symmetric and positive semidefinite.
        target: ``(t,)``, ``r``.
        start: ``(t,)``; the items free at first are those where it is positive. It is also the
            answer where rounding leaves nothing better.

    Returns:
        ``(t,)``; items with a zero row in ``matrix`` get weight 0.
    """
    xp = namespace(matrix)
    diagonal = xp.linalg.diagonal(matrix)
    used = diagonal > 0
    if not bool(xp.any(used)):
        return xp.zeros_like(target)
    scale = xp.where(used, 1 / xp.sqrt(xp.where(used, diagonal, 1.0)), 0.0)
    scaled = matrix * scale * scale[:, None]
    unit = xp.eye(len(target), dtype=matrix.dtype, device=matrix.device)
    scaled, factor = _definite(xp.where(unit > 0, 1.0, scaled), unit)
    weights = scale * _pivot(scaled, factor, target * scale, start > 0)
    start = xp.where(used, xp.clip(start, 0.0, None), 0.0)
    return weights if _value(weights, matrix, target) <= _value(start, matrix, target) else start


def _value(weights: Array, matrix: Array, target: Array) -> float:
    return float(weights @ (matrix @ weights / 2 - target))


def _definite(matrix: Array, unit: Array) -> tuple[Array, Array]:
    """The matrix plus the smallest ridge that lets it be factored, and its factor."""
    ridge = RIDGE * len(matrix)
    while True:
        ridged = matrix + ridge * unit
        try:
            return ridged, namespace(matrix).linalg.cholesky(ridged)
        except (np.linalg.LinAlgError, RuntimeError):  # the second is torch's
            ridge *= 100


def _pivot(matrix: Array, factor: Array, target: Array, free: Array) -> Array:
    xp = namespace(matrix)
    fewest, patience = len(target) + 1, PATIENCE
    for _ in range(10 * len(target) + 100):
        weights, gradient = _at(matrix, factor, target, free)
        tolerance = 1e-12 * max(float(xp.max(xp.abs(weights))), float(xp.max(xp.abs(target))))
        (wrong,) = xp.nonzero(xp.where(free, weights, gradient) < -tolerance)
        if not len(wrong):
            break
        if len(wrong) < fewest:
            fewest, patience = len(wrong), PATIENCE
        elif patience:
            patience -= 1
        else:
            wrong = wrong[-1:]
        free = xp.asarray(free, copy=True)
        free[wrong] = ~free[wrong]
    return xp.clip(weights, 0.0, None)


def _at(matrix: Array, factor: Array, target: Array, free: Array) -> tuple[Array, Array]:
    """The unconstrained optimum over the free items, and the gradient there."""
    xp = namespace(matrix)
    if bool(xp.all(free)):
        weights = _solve(factor, target)
    else:
        weights = xp.zeros_like(target)
        if bool(xp.any(free)):
            part = xp.linalg.cholesky(matrix[free][:, free])
            weights[free] = _solve(part, target[free])
    return weights, matrix @ weights - target


def _solve(factor: Array, target: Array) -> Array:
    """The solution of ``L L^T x = r``, for which the array API has no word."""
    if isinstance(factor, np.ndarray):
        return cho_solve((factor, True), target)
    return namespace(factor).cholesky_solve(target[:, None], factor)[:, 0]
