r"""Steps that the solvers of a sparse approximation (`labelwise.kernels.sparse.problem`) share.

On a fixed set of items :math:`f_1` is a quadratic in their weights: line search and de-bias step
along its gradient, and `solve_best_weights` goes to its minimum over non-negative weights.
`greedy_scores` and `projection_scores` say which items to take.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithms 4 and 5 and Appendix E.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, bring, device, namespace, to_numpy
from labelwise.kernels.distance.factored import (
    Factored,
    inner_products_with_matrix,
    products,
    weighted_sum,
)
from labelwise.kernels.sparse.nonnegative import solve_nonnegative_least_squares
from labelwise.kernels.sparse.problem import SparseProblem

TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Fit:
    """``f1`` as a function of the weights on a fixed set ``S`` of ``t`` items.

    Attributes:
        vectors: of the items, in float64.
        target: ``v``, ``(K, d)``, beside the vectors.
        budget: ``b``.
        beta: pull of the weights towards 1.
    """

    vectors: Factored
    target: Array
    budget: int
    beta: float

    @classmethod
    def of(cls, vectors: Factored, problem: SparseProblem) -> "Fit":
        """The fit on some vectors."""
        return cls(vectors, bring(problem.target, vectors.h), problem.budget, problem.beta)

    def image(self, weights: Array) -> Array:
        """``Phi_S w``, ``(K, d)``; costs ``t K d``, as does the gradient once more."""
        return summed(self.vectors, weights) / self.budget

    def gradient(self, weights: Array) -> Array:
        """Gradient of ``f1`` on ``S``, ``(t,)``."""
        slopes = (
            inner_products_with_matrix(self.vectors, self.image(weights) - self.target)
            / self.budget
        )
        return 2 * slopes + 2 * self.beta * (weights - 1)


PIECES = 64
"""Into how many pieces a long sum is cut on a GPU."""


def summed(vectors: Factored, weights: Array) -> Array:
    """``sum_i w_i a_i h_i^T``, ``(K, d)``, in pieces where the vectors are on a GPU.

    A product with so small a result would keep only a few of its multiprocessors busy.
    """
    if str(device(weights)) == "cpu" or len(vectors) < 16 * PIECES:
        return weighted_sum(vectors, weights)
    return in_pieces(vectors, weights)


def in_pieces(vectors: Factored, weights: Array) -> Array:
    """`weighted_sum` as a sum of `PIECES` products that can be made side by side."""
    xp, (classes, width) = namespace(weights), (vectors.a.shape[1], vectors.h.shape[1])
    length = len(vectors) // PIECES
    cut, scaled = PIECES * length, vectors.a * weights[:, None]
    left = xp.reshape(scaled[:cut, :], (PIECES, length, classes))
    right = xp.reshape(vectors.h[:cut, :], (PIECES, length, width))
    total = xp.sum(xp.matmul(xp.matrix_transpose(left), right), axis=0)
    return total + xp.matmul(xp.matrix_transpose(scaled[cut:, :]), vectors.h[cut:, :])


def ratio(slope: Array, curvature: Array) -> Array:
    """``slope / curvature``, or 0 where there is no curvature."""
    return slope * (curvature > TINY) / curvature.clip(min=TINY)


def debias(fit: Fit, weights: Array) -> Array:
    """One exact step along the gradient on ``S``; never makes ``f1`` larger."""
    direction = fit.gradient(weights)
    xp, image = namespace(direction), fit.image(direction)
    squared = xp.sum(direction * direction)
    curvature = xp.sum(image * image) + fit.beta * squared
    return weights - ratio(squared / 2, curvature) * direction


def debias_and_clip(fit: Fit, weights: Array, steps: int) -> Array:
    """Some de-bias steps, negative weights set to 0 after each."""
    for _ in range(steps):
        weights = debias(fit, weights).clip(min=0.0)  # one launch on a GPU, unlike xp.clip
    return weights if steps else weights.clip(min=0.0)


class GainRule(NamedTuple):
    """How a pick is valued: ``linear`` with step ``tau``, or ``exact``."""

    kind: str = "linear"
    tau: float = 1.0


def greedy_scores(slopes: Array, norms: Array, costs: Array, beta: float, gain: GainRule) -> Array:
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
    falls = (beta - slopes).clip(min=0)
    curvatures = norms + beta
    flat = curvatures <= TINY
    return costs + xp.where(flat, 0 * falls, falls * falls / xp.where(flat, 1.0, curvatures))


def projection_scores(point: Array, costs: Array, scale: Any, rule: str) -> Array:
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
        return scale * costs - point.clip(max=0.0) ** 2 / 2
    return scale * costs + point.clip(min=0.0) ** 2 / 2


def solve_best_weights(vectors: Factored, weights: Array, problem: SparseProblem) -> Floats:
    """The best non-negative weights on a set of items, by least squares; ``(t,)`` on the host.

    Args:
        vectors: of the items, in float64; the work is done where they are.
        weights: ``(t,)`` to start from.
        problem: the objective.
    """
    target = inner_products_with_matrix(vectors, bring(problem.target, vectors.h)) / problem.budget
    matrix = products(vectors, vectors) / problem.budget**2
    xp = namespace(matrix)
    matrix += problem.beta * xp.eye(len(target), dtype=matrix.dtype, device=matrix.device)
    found = solve_nonnegative_least_squares(
        matrix, target + problem.beta, bring(weights, vectors.h)
    )
    return np.asarray(to_numpy(found), dtype=np.float64)
