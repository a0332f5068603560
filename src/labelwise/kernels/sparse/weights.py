r"""Weights of a fixed set of items in a sparse approximation (`kernels.sparse.problem`).

On a fixed set, :math:`f_1` is a quadratic function of the weights. `debias_weights` takes one exact
step along its gradient, `solve_best_weights` finds its minimum over non-negative weights.

The minimum of :math:`\frac12 w^\top M w - r^\top w` over :math:`w \ge 0` is found by block
principal pivoting. There, with :math:`y = M w - r`, every item is either free
(:math:`w_j \ge 0, y_j = 0`) or fixed at zero (:math:`w_j = 0, y_j \ge 0`). All items that violate
their side change sides at once; when that stops helping, only the last one does, which terminates
for every positive definite ``M``. A few Cholesky factorizations of ``(t, t)`` matrices suffice.

References: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithms 4 and 5; L. F. Portugal, J. J. Júdice, L. N. Vicente, "A
Comparison of Block Pivoting and Interior-Point Algorithms for Linear Least Squares Problems with
Nonnegative Variables", Mathematics of Computation 63, 1994.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from labelwise.arrays import Array, Floats, bring, device, namespace, to_numpy
from labelwise.kernels.distance.embedding import (
    Factored,
    inner_products,
    inner_products_with_matrix,
    weighted_sum,
)
from labelwise.kernels.sparse.problem import SparseProblem

TINY = float(np.finfo(float).tiny)
RIDGE = 1e-13  # Added to the unit diagonal, so that linearly dependent items share their weight
PATIENCE = 3  # Number of exchanges of all items that may fail to help before single exchanges


@dataclass(frozen=True)
class WeightFit:
    """``f1`` as a function of the weights of ``t`` fixed items."""

    vectors: Factored  # of the items, in float64
    target: Array  # ``v``, ``(K, d)``, on the same device
    budget: int  # ``b``
    beta: float  # pull of the weights towards 1

    def image(self, weights: Array) -> Array:
        """``Phi_S w``, ``(K, d)``; ``O(t K d)``."""
        return weighted_sum(self.vectors, weights) / self.budget

    def gradient(self, weights: Array) -> Array:
        """Gradient of ``f1``, ``(t,)``; ``O(t K d)``."""
        residual = self.image(weights) - self.target
        slopes = inner_products_with_matrix(self.vectors, residual) / self.budget
        return 2 * slopes + 2 * self.beta * (weights - 1)


def divide_or_zero(slope: Array, curvature: Array) -> Array:
    """``slope / curvature``, or 0 where the curvature vanishes."""
    return slope * (curvature > TINY) / curvature.clip(min=TINY)


def debias_weights(fit: WeightFit, weights: Array) -> Array:
    """One exact line search along the gradient; never increases ``f1``."""
    direction = fit.gradient(weights)
    xp, image = namespace(direction), fit.image(direction)
    squared = xp.sum(direction * direction)
    curvature = xp.sum(image * image) + fit.beta * squared
    return weights - divide_or_zero(squared / 2, curvature) * direction


def debias_and_clip_weights(fit: WeightFit, weights: Array, steps: int) -> Array:
    """``steps`` de-bias steps; negative weights become 0 after each."""
    for _ in range(steps):
        weights = debias_weights(fit, weights).clip(
            min=0.0
        )  # a single launch on a GPU, unlike xp.clip
    return weights if steps else weights.clip(min=0.0)


def solve_best_weights(vectors: Factored, weights: Array, problem: SparseProblem) -> Floats:
    """The best non-negative weights of some items, ``(t,)`` on the host, from a start ``(t,)``."""
    target = inner_products_with_matrix(vectors, bring(problem.target, vectors.h)) / problem.budget
    matrix = inner_products(vectors, vectors) / problem.budget**2
    unit = namespace(matrix).eye(len(target), dtype=matrix.dtype, device=device(matrix))
    matrix += problem.beta * unit
    start = bring(weights, vectors.h)
    found = solve_nonnegative_least_squares(matrix, target + problem.beta, start)
    return np.asarray(to_numpy(found), dtype=np.float64)


def solve_nonnegative_least_squares(matrix: Array, target: Array, start: Array) -> Array:
    """The ``w >= 0`` that minimizes ``w M w / 2 - r w``; float64, on any device.

    ``matrix`` ``(t, t)`` is symmetric positive semidefinite; items with a zero row get weight 0.
    The positive items of ``start`` are free at first; it is returned if rounding prevents an
    improvement.
    """
    xp = namespace(matrix)
    diagonal = xp.linalg.diagonal(matrix)
    used = diagonal > 0
    if not bool(xp.any(used)):
        return xp.zeros_like(target)
    # Scale to a unit diagonal, which makes tolerances independent of the sizes of the vectors.
    scale = xp.where(used, 1 / xp.sqrt(xp.where(used, diagonal, 1.0)), 0.0)
    scaled = matrix * scale * scale[:, None]
    unit = xp.eye(len(target), dtype=matrix.dtype, device=device(matrix))
    scaled, factor = _factor_with_ridge(xp.where(unit > 0, 1.0, scaled), unit)
    weights = scale * _pivot_nonnegative_blocks(scaled, factor, target * scale, start > 0)
    start = xp.where(used, xp.clip(start, 0.0, None), 0.0)
    both = (float(w @ (matrix @ w / 2 - target)) for w in (weights, start))
    return weights if next(both) <= next(both) else start


def _factor_with_ridge(matrix: Array, unit: Array) -> tuple[Array, Array]:
    """The matrix plus the smallest ridge that allows a Cholesky factorization, and the factor."""
    ridge = RIDGE * len(matrix)
    while True:
        ridged = matrix + ridge * unit
        try:
            return ridged, namespace(matrix).linalg.cholesky(ridged)
        except (np.linalg.LinAlgError, RuntimeError):  # NumPy's and torch's error
            ridge *= 100


def _pivot_nonnegative_blocks(matrix: Array, factor: Array, target: Array, free: Array) -> Array:
    """Exchange free and fixed items until all signs are right."""
    xp = namespace(matrix)
    fewest, patience = len(target) + 1, PATIENCE
    for _ in range(10 * len(target) + 100):
        weights = _solve_free_items(matrix, factor, target, free)
        gradient = matrix @ weights - target
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


def _solve_free_items(matrix: Array, factor: Array, target: Array, free: Array) -> Array:
    """The unconstrained optimum over the free items; the others are 0."""
    xp = namespace(matrix)
    if bool(xp.all(free)):
        return _solve_cholesky(factor, target)
    weights = xp.zeros_like(target)
    if bool(xp.any(free)):
        part = xp.linalg.cholesky(matrix[free][:, free])
        weights[free] = _solve_cholesky(part, target[free])
    return weights


def _solve_cholesky(factor: Array, target: Array) -> Array:
    """The solution of ``L L^T x = r``, which the array API does not offer."""
    if isinstance(factor, np.ndarray):
        return cho_solve((factor, True), target)
    return namespace(factor).cholesky_solve(target[:, None], factor)[:, 0]
