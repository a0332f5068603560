r"""Weighted regression in the l_p norm: :math:`\min_\beta \sum_i w_i |q_i \beta - y_i|^p`.

======  =====================================================================================
p       method
======  =====================================================================================
1       linear program (HiGHS)
2       least squares
others  Newton's method with line search on :math:`\sum_i w_i (r_i^2 + \delta^2)^{p/2}`, with
        :math:`\delta` decreasing from the size of the residuals to 1e-10 of it; each of these
        problems is smooth and convex for every p
======  =====================================================================================

An optional limit is :math:`\sum_i w_i |q_i \beta|^p \le c \sum_i w_i |y_i|^p`. For p = 2 the
solution without it is scaled down. For p = 1 it is part of the linear program. For others the
multiplier :math:`\mu` of the limit is found by root finding:
:math:`\sum w |q \beta - y|^p + \mu \sum w |q \beta|^p` is the same regression with every row
repeated with target 0 and weight :math:`\mu w`.

Rows are first reduced to an orthonormal basis of their span, which handles rank deficiency, zero
columns and fewer rows than columns: the result is the shortest solution (for p = 1, where
predictions need not be unique, the shortest with these predictions).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import solve
from scipy.optimize import brentq, linprog

from labelwise.arrays import Floats
from labelwise.errors import NotConverged
from labelwise.kernels.linear.leverage import rank_tolerance

STEPS = 100  # Newton steps for one delta at most
EPSILON = float(np.finfo(np.float64).eps)
DELTAS = 10.0 ** -np.arange(11)


class OrthonormalBasis(NamedTuple):
    """A basis in which to fit: the predictions of ``theta = back @ beta`` are ``span @ beta``."""

    span: Floats  # ``(m, r)``, orthonormal columns
    back: Floats  # ``(d, r)``; ``back @ beta`` is the shortest theta with these predictions


class LpSolution(NamedTuple):
    """Coefficients ``(r,)``, number of steps, and whether they reached the tolerance."""

    beta: Floats
    steps: int
    converged: bool


def orthonormalize(rows: Floats, precision: float = EPSILON) -> OrthonormalBasis:
    """An orthonormal basis of the columns of ``(m, d)`` rows known to a relative precision."""
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    cut = values[0] * rank_tolerance(precision, *rows.shape) if len(values) else 0.0
    rank = int(np.sum(values > cut))
    return OrthonormalBasis(left[:, :rank], right[:rank].T / values[:rank])


def lp_regression(
    span: Floats, targets: Floats, weights: Floats, p: float, allowed: float = math.inf
) -> LpSolution:
    """The best coefficients of ``(m, r)`` orthonormal columns, with or without a limit.

    ``p`` is 1 or more, weights are above 0. ``allowed`` limits ``sum w |span beta|^p``, relative to
    ``sum w |targets|^p``.

    >>> basis = orthonormalize(np.ones((3, 1)))  # the best constant: mean, median, middle
    >>> y, w = np.array([0.0, 1.0, 5.0]), np.ones(3)
    >>> for p in (2, 1, 60):
    ...     print(round(float((basis.back @ lp_regression(basis.span, y, w, p).beta)[0]), 2))
    2.0
    1.0
    2.5
    """
    scale = float(np.max(np.abs(targets), initial=0.0))
    if scale == 0 or span.shape[1] == 0:
        return LpSolution(np.zeros(span.shape[1]), 0, True)
    scaled = targets / scale
    limit = allowed * float(weights @ np.abs(scaled) ** p)
    found = _SOLVERS.get(p, _solve_by_newton)(span, scaled, weights, p)
    size = _lp_norm(span, found.beta, weights, p)
    if size > (1 + 1e-9) * limit and p != 2:
        solve = _linear_program if p == 1 else _solve_in_ball
        found = solve(span, scaled, weights, p, limit)
        size = _lp_norm(span, found.beta, weights, p)
    if size > limit:  # by rounding; for p = 2 the scaled solution is optimal
        found = found._replace(beta=found.beta * (limit / size) ** (1 / p))
    return found._replace(beta=found.beta * scale)


def _lp_norm(span: Floats, beta: Floats, weights: Floats, p: float) -> float:
    return float(weights @ np.abs(span @ beta) ** p)


def _least_squares(span: Floats, targets: Floats, weights: Floats, p: float = 2) -> LpSolution:
    roots = np.sqrt(weights)
    beta = np.linalg.lstsq(span * roots[:, None], targets * roots, rcond=None)[0]
    return LpSolution(np.asarray(beta, dtype=np.float64), 1, True)


def _linear_program(
    span: Floats, targets: Floats, weights: Floats, p: float = 1, limit: float = math.inf
) -> LpSolution:
    """Residuals (and limited predictions) are differences of two nonnegative variables."""
    count, rank = span.shape
    one = sparse.eye_array(count)
    costs = np.concatenate([np.zeros(rank), weights, weights])
    equal = [[sparse.csr_array(span), one, -one]]
    right = targets
    size, most = None, None
    if math.isfinite(limit):
        zero = sparse.csr_array((count, count))
        equal = [
            [sparse.csr_array(span), one, -one, zero, zero],
            [sparse.csr_array(span), zero, zero, one, -one],
        ]
        right = np.concatenate([targets, np.zeros(count)])
        size = np.concatenate([np.zeros(rank + 2 * count), weights, weights])
        costs = np.concatenate([costs, np.zeros(2 * count)])
        size, most = size[None, :], [limit]
    bounds = [(None, None)] * rank + [(0, None)] * (len(costs) - rank)
    equalities = sparse.block_array(equal)
    answer = linprog(costs, A_ub=size, b_ub=most, A_eq=equalities, b_eq=right, bounds=bounds)
    if answer.x is None:
        raise NotConverged(f"the linear program of p = 1 was not solved ({answer.message})")
    return LpSolution(answer.x[:rank], int(answer.nit), answer.status == 0)


def _solve_by_newton(span: Floats, targets: Floats, weights: Floats, p: float) -> LpSolution:
    """Follow the smoothed problems from least squares to delta near 0."""
    beta = _least_squares(span, targets, weights).beta
    start = float(np.sqrt(np.mean((span @ beta - targets) ** 2)))
    if start <= 1e-14:  # the targets are fitted exactly
        return LpSolution(beta, 1, True)
    steps, converged = 1, True
    for delta in start * DELTAS:
        last = delta == start * DELTAS[-1]
        beta, made, converged = _smooth_newton(
            beta, span, targets, weights, p, float(delta), 1e-14 if last else 1e-6
        )
        steps += made
    return LpSolution(beta, steps, converged)


def _smooth_newton(
    beta: Floats, span: Floats, targets: Floats, weights: Floats, p: float, delta: float, tol: float
) -> tuple[Floats, int, bool]:
    """Minimise ``sum w (r^2 + delta^2)^(p/2)`` until a step would lower it by ``tol`` of it."""
    residuals = span @ beta - targets
    value = _smoothed_loss(residuals, weights, p, delta)
    for step in range(STEPS):
        squares = residuals**2 + delta**2
        slopes = weights * residuals * squares ** (p / 2 - 1)
        bends = weights * squares ** (p / 2 - 2) * ((p - 1) * residuals**2 + delta**2)
        direction = -_solve_system((span * bends[:, None]).T @ span, span.T @ slopes)
        gain = -p * float(direction @ (span.T @ slopes))
        if gain <= tol * value:
            return beta, step, True
        along, length = span @ direction, 1.0
        while (
            _smoothed_loss(residuals + length * along, weights, p, delta)
            > value - 0.1 * length * gain
        ):
            length /= 2
            if length < 1e-10:  # the remaining gain is below rounding
                return beta, step, gain <= 1e-8 * value
        beta, residuals = beta + length * direction, residuals + length * along
        value = _smoothed_loss(residuals, weights, p, delta)
    return beta, STEPS, False


def _smoothed_loss(residuals: Floats, weights: Floats, p: float, delta: float) -> float:
    return float(weights @ (residuals**2 + delta**2) ** (p / 2))


def _solve_system(matrix: Floats, vector: Floats) -> Floats:
    """Solve a positive definite system, up to rounding."""
    ridge = float(np.trace(matrix)) / len(matrix) * 1e-15
    try:
        return np.asarray(solve(matrix + ridge * np.eye(len(matrix)), vector, assume_a="pos"))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, vector, rcond=None)[0])


def _solve_in_ball(
    span: Floats, targets: Floats, weights: Floats, p: float, limit: float
) -> LpSolution:
    """Find the multiplier at which the limit is tight, by root finding on its logarithm."""
    twice = np.concatenate([span, span])
    scaled = np.concatenate([targets, np.zeros(len(targets))])
    steps = 0

    def solve_penalized(log_multiplier: float) -> LpSolution:
        nonlocal steps
        share = 1 / (1 + math.exp(-log_multiplier))  # mu / (1 + mu), to keep numbers near 1
        parts = np.concatenate([(1 - share) * weights, share * weights])
        found = _solve_by_newton(twice, scaled, parts, p)
        steps += found.steps
        return found

    def excess(log_multiplier: float) -> float:
        size = _lp_norm(span, solve_penalized(log_multiplier).beta, weights, p)
        return math.log(size / limit) if size > 0 else -1e3

    low, high = -1.0, 1.0
    while excess(low) < 0:
        low = 2 * low
    while excess(high) > 0:
        high = 2 * high
    root = brentq(excess, low, high, xtol=1e-12, rtol=1e-12)
    return solve_penalized(root)._replace(steps=steps)


_SOLVERS: dict[float, Callable[..., LpSolution]] = {1: _linear_program, 2: _least_squares}
