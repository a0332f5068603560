r"""Steps that the solvers of a sparse approximation (`labelwise.kernels.sparse`) share.

On a fixed set of items :math:`f_1` is a quadratic in their weights: line search and de-bias step
along its gradient, and `best_weights` goes to its minimum over non-negative weights.
`greedy_scores` and `projection_scores` say which items to take.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithms 4 and 5 and Appendix E.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, bring, namespace, to_numpy
from labelwise.kernels.factored import Factored, products, products_with, weighted_sum
from labelwise.kernels.nonnegative import nonnegative_least_squares
from labelwise.kernels.sparse import Problem


@dataclass(frozen=True)
class Fit:
    """``f1`` as a function of the weights on a fixed set ``S`` of ``t`` items.

    Attributes:
        normal: ``w -> Phi_S^T Phi_S w``, ``(t,)`` to ``(t,)``.
        target: ``Phi_S^T v``, ``(t,)``.
        beta: pull of the weights towards 1.
    """

    normal: Callable[[Array], Array]
    target: Array
    beta: float

    @classmethod
    def of(cls, vectors: Factored, problem: Problem) -> "Fit":
        """The fit on some vectors; applying it costs ``2 t K d``."""
        budget = problem.budget

        def normal(weights: Array) -> Array:
            return products_with(vectors, weighted_sum(vectors, weights)) / budget**2

        target = bring(problem.target, vectors.h)
        return cls(normal, products_with(vectors, target) / budget, problem.beta)

    def gradient(self, weights: Array) -> Array:
        """Gradient of ``f1`` on ``S``, ``(t,)``."""
        return 2 * (self.normal(weights) - self.target) + 2 * self.beta * (weights - 1)


def step_length(slope: float, curvature: float) -> float:
    """``slope / curvature``, or 0 where there is no curvature."""
    return slope / curvature if curvature > np.finfo(float).tiny else 0.0


def debias(fit: Fit, weights: Array) -> Array:
    """One exact step along the gradient on ``S``; never makes ``f1`` larger."""
    direction = fit.gradient(weights)
    squared = direction @ direction
    curvature = direction @ fit.normal(direction) + fit.beta * squared
    return weights - step_length(float(squared) / 2, float(curvature)) * direction


def debias_and_clip(fit: Fit, weights: Array, steps: int) -> Array:
    """Some de-bias steps, negative weights set to 0 after each."""
    xp = namespace(weights)
    for _ in range(steps):
        weights = xp.clip(debias(fit, weights), 0.0, None)
    return xp.clip(weights, 0.0, None)


class Gain(NamedTuple):
    """How a pick is valued: ``linear`` with step ``tau``, or ``exact``."""

    kind: str = "linear"
    tau: float = 1.0


def greedy_scores(slopes: Array, norms: Array, costs: Array, beta: float, gain: Gain) -> Array:
    """How much picking each item would lower the objective, ``(n,)``; linear up to a constant.

    Args:
        slopes: ``(n,)`` products of the columns of Phi with the residual ``Phi w - v``.
        norms: ``(n,)`` squared norms of the columns of Phi.
        costs: ``(n,)`` what each item takes off ``f2``.
        beta: pull of the weights towards 1.
        gain: to first order, or by the best weight.
    """
    if gain.kind == "linear":
        return costs - 2 * gain.tau * slopes
    xp = namespace(slopes)
    falls = xp.clip(beta - slopes, 0, None)
    curvatures = norms + beta
    flat = curvatures <= np.finfo(float).tiny
    return costs + xp.where(flat, 0 * falls, falls * falls / xp.where(flat, 1.0, curvatures))


def projection_scores(point: Floats, costs: Floats, scale: float, rule: str) -> Floats:
    r"""What keeping each item is worth when a point ``s`` is made b-sparse; the highest are kept.

    Leaving ``j`` out costs :math:`\frac12 s_j^2`, keeping it :math:`\frac12 [-s_j]_+^2 - \kappa
    c_j`, so keeping gains :math:`\frac12 [s_j]_+^2 + \kappa c_j`. The rule ``printed`` in the
    paper forgets the cost of leaving out; it is there to repeat its experiments.

    Args:
        point: ``(n,)``, ``s``.
        costs: ``(n,)``, ``c``.
        scale: ``kappa``.
        rule: ``corrected`` or ``printed``.
    """
    if rule == "printed":
        return np.asarray(scale * costs - np.minimum(point, 0) ** 2 / 2)
    return np.asarray(scale * costs + np.maximum(point, 0) ** 2 / 2)


def best_weights(vectors: Factored, weights: Floats, problem: Problem) -> Floats:
    """The best non-negative weights on a set of items, by least squares; ``(t,)`` on the host."""
    matrix = to_numpy(products(vectors, vectors)) / problem.budget**2
    target = to_numpy(products_with(vectors, bring(problem.target, vectors.h))) / problem.budget
    matrix[np.diag_indices_from(matrix)] += problem.beta
    return nonnegative_least_squares(matrix, target + problem.beta, weights)
