r"""Greedy sparse approximation: the picks with their weights, and the scores of all rows.

A pick ``j`` is scored by how much it lowers the objective of `kernels.sparse.problem`, from the
products of all vectors with the residual :math:`R = \Phi w - v`. De-biasing changes the weights of
all picks, so ``R`` changes in every direction. There are two ways to get the products:

*From columns.* Each block keeps the products of its rows with every pick; those with ``R`` are a
weighted sum of ``t`` columns. A pick costs one pass for its column, :math:`O(n (K + d + t))`.

*Recomputed.* :math:`\sum_k a_{ik} (H R^\top)_{ik}`, :math:`O(n K d)`; nothing is stored.

Columns are used while they are few compared with ``K d`` and fit in memory, and while ``R`` is not
so small that their rounding dominates it. Products have the precision of the rows; near ties are
resolved in float64.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithm 1.
"""

from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, bring, device, float64, like, namespace, to_numpy
from labelwise.kernels.distance.embedding import (
    Factored,
    inner_products,
    inner_products_with_matrix,
    squared_norms,
    weighted_sum,
)
from labelwise.kernels.sparse.label_gradients import label_gradients
from labelwise.kernels.sparse.problem import SparseProblem, compute_vectors
from labelwise.kernels.sparse.weights import TINY, divide_or_zero
from labelwise.pool.rows import Rows

COLUMN_BYTES = 1 << 30  # Memory that the columns of all blocks may take together
CANCELLATION = 1e-3  # A residual shorter than this fraction of its terms is recomputed
ROUNDING = 32  # Error of a product in units in the last place of the product of the lengths


class GainRule(NamedTuple):
    """The value of a pick: ``linear`` with step ``tau``, or ``exact``, by its best weight."""

    kind: str = "linear"
    tau: float = 1.0


def greedy_scores(slopes: Array, norms: Array, costs: Array, beta: float, gain: GainRule) -> Array:
    """Decrease of the objective by picking each item, ``(n,)``; linear up to a constant.

    By item: ``slopes``, products of the columns of Phi with the residual ``Phi w - v``; ``norms``,
    squared norms of the columns; ``costs``, rewards in ``f2``. ``beta`` pulls the weights towards
    1; ``gain`` is to first order, or by the best weight.
    """
    if gain.kind == "linear":
        return costs - 2 * gain.tau * slopes
    xp = namespace(slopes)
    falls = (beta - slopes).clip(min=0)
    curvatures = norms + beta
    flat = curvatures <= TINY
    return costs + xp.where(flat, 0 * falls, falls * falls / xp.where(flat, 1.0, curvatures))


def score_gains_with_error(
    slopes: Array, error: Array, norms: Array, costs: Array, pursuit: "GreedyPursuit"
) -> tuple[Array, Array]:
    """Scores, and bounds on their rounding error for slopes that may be off by ``error``."""
    xp, beta, gain = namespace(slopes), pursuit.problem.beta, pursuit.gain
    scores = greedy_scores(slopes, norms, costs, beta, gain)
    above = greedy_scores(slopes - error, norms, costs, beta, gain) - scores
    below = scores - greedy_scores(slopes + error, norms, costs, beta, gain)
    return scores, xp.maximum(above, below) + 1e-12 * xp.abs(scores)


class PursuitResidual(NamedTuple):
    """The part of ``R`` that blocks need."""

    matrix: Array | None  # ``(K, d)``, or None if the products come from columns
    weights: Array  # ``(t,)`` of the picks so far
    scale: Array  # length of the added terms, which bounds the rounding error
    pick: Factored | None = None  # vector of the last pick


class GreedyPursuit:
    """The picked vectors, their Gram matrix and their weights, in buffers of the final size.

    All are float64 arrays on the device of ``placement`` (`labelwise.kernels.placement`), so that
    on a GPU nothing waits for the host.
    """

    def __init__(
        self, problem: SparseProblem, gain: GainRule, steps: int, placement: Array
    ) -> None:
        """Start without picks; ``steps`` de-bias steps follow each pick."""
        budget, (classes, width) = problem.budget, problem.target.shape
        self.problem, self.gain, self.steps, self.count = problem, gain, steps, 0
        # On a GPU recomputing the products is as fast as one column, and needs no memory.
        self.columns = limit_pursuit_columns(problem) if isinstance(placement, np.ndarray) else 0
        xp = namespace(placement)

        def allocate(*shape: int) -> Array:
            return xp.zeros(shape, dtype=placement.dtype, device=device(placement))

        self.weights = allocate(0)
        self._a, self._h = allocate(budget, classes), allocate(budget, width)
        self._gram, self._products = allocate(budget, budget), allocate(budget)
        self._target = bring(problem.target, placement)
        self._length = float(np.linalg.norm(problem.target))
        self.residual = PursuitResidual(-problem.target, self.weights, self._length)

    def __getstate__(self) -> dict[str, Any]:
        """The fields sent to the blocks; picked vectors and their products stay on the driver."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @property
    def vectors(self) -> Factored:
        """The ``t`` picked vectors."""
        return Factored(self._a[: self.count], self._h[: self.count])

    @property
    def target(self) -> Array:
        """``v``, ``(K, d)``, on the device of the picks."""
        return self._target

    @property
    def gram(self) -> Array:
        """Products of the picks with each other, ``(t, t)``."""
        return self._gram[: self.count, : self.count]

    @property
    def target_products(self) -> Array:
        """Products of the picks with the target, ``(t,)``."""
        return self._products[: self.count]

    def add_pick(self, vector: Factored) -> None:
        """Add one pick with its best weight, then de-bias all weights."""
        self._append_pursuit_vectors(vector)
        self.weights = self._update_pursuit_weights(self.gram, self.target_products)
        self.residual = self._update_pursuit_residual()

    def add_weighted_picks(self, vectors: Factored, weights: Array) -> None:
        """Add several picks; ``weights`` are the known weights of all picks."""
        self._append_pursuit_vectors(vectors)
        self.weights, self.columns = weights, 0
        self.residual = self._update_pursuit_residual()

    def _append_pursuit_vectors(self, vectors: Factored) -> None:
        """Store vectors and their products with all picks and the target."""
        first, last = self.count, self.count + len(vectors)
        self._a[first:last, :], self._h[first:last, :] = vectors.a, vectors.h
        self.count = last
        rows = inner_products(self.vectors, vectors) / self.problem.budget**2
        # The Gram matrix is symmetric: a new column is a new row, too.
        self._gram[:last, first:last] = rows
        self._gram[first:last, :last] = namespace(rows).matrix_transpose(rows)
        with_target = inner_products_with_matrix(vectors, self._target)
        self._products[first:last] = with_target / self.problem.budget

    def _update_pursuit_weights(self, gram: Array, target: Array) -> Array:
        """The best weight of the last pick, then de-bias steps of all, clipped at 0.

        Same steps as `weights.debias_and_clip_weights`, from the stored products
        and without a value that the host would wait for.
        """
        xp, beta = namespace(gram), self.problem.beta
        weights = xp.concat([self.weights, xp.zeros_like(target[:1])])
        image = gram @ weights
        length = divide_or_zero(image[-1:] - target[-1:] - beta, gram[-1:, -1] + beta)
        weights[-1:] -= length
        image = image - length * gram[:, -1]
        for step in range(self.steps):
            if step:
                image = gram @ weights
            direction = 2 * (image - target) + 2 * beta * (weights - 1)
            squared = direction @ direction
            curvature = direction @ (gram @ direction) + beta * squared
            weights = weights - divide_or_zero(squared / 2, curvature) * direction
            weights = weights.clip(min=0.0)
        return weights.clip(min=0.0)

    def _update_pursuit_residual(self) -> PursuitResidual:
        weights, count = self.weights, self.count
        xp = namespace(weights)
        if count <= self.columns:
            lengths = xp.sqrt(xp.linalg.diagonal(self.gram))
            square = weights @ (self.gram @ weights - 2 * self.target_products)
            moved, squared = to_numpy(xp.stack([weights @ lengths, square])).tolist()
            terms = self._length + moved
            # |R|^2 from products cancels when R is short; columns have lost their digits then.
            if self._length**2 + squared > (CANCELLATION * terms) ** 2:
                pick = Factored(self._a[count - 1 : count], self._h[count - 1 : count])
                return PursuitResidual(None, weights, terms, pick)
        self.columns = 0
        matrix = self.compute_residual()
        return PursuitResidual(matrix, weights, xp.linalg.vector_norm(matrix))

    def compute_residual(self) -> Array:
        """``R``, ``(K, d)``."""
        return weighted_sum(self.vectors, self.weights) / self.problem.budget - self._target


def limit_pursuit_columns(problem: SparseProblem) -> int:
    """Number of columns at which reading them takes as long as recomputing the products."""
    classes, width = map(int, problem.target.shape)
    return min((classes - 1) * width // 6, COLUMN_BYTES // (8 * problem.n), problem.budget)


class GreedySparseState(NamedTuple):
    """State of a block."""

    a: Array
    h: Array  # ``(n, d)`` second factors, or ``(n, 0)`` where they are the stored features
    columns: Array  # ``(n, c)`` products with the picks
    norms: Array
    costs: Array
    first: Array  # ``(n,)`` products with ``-v``
    scores: Array  # ``(n,)`` decrease of the unscaled objective
    slack: Array  # ``(n,)`` bounds on the rounding of the scores


def start_pursuit(rows: Rows, pursuit: GreedyPursuit) -> GreedySparseState:
    """Compute the vectors of a block and score them for the first pick."""
    problem = pursuit.problem
    vectors, deviations = label_gradients(rows, problem.law)
    xp, h = namespace(deviations), vectors.h
    variances = deviations * deviations
    shape = (0 if problem.degenerate else pursuit.columns, h.shape[0])
    first = float64(_multiply_pursuit_residual(vectors, -problem.target))
    state = GreedySparseState(
        a=vectors.a,
        h=h if problem.copies_features else h[:, :0],
        columns=xp.matrix_transpose(xp.empty(shape, dtype=h.dtype, device=device(h))),
        norms=float64(squared_norms(vectors)) / problem.budget**2,
        costs=variances if problem.degenerate else problem.alpha * variances,
        first=first,
        scores=first,
        slack=first,
    )
    return _score_pursuit_block(state, first, pursuit)


def update_pursuit(
    state: GreedySparseState, rows: Rows, pursuit: GreedyPursuit
) -> GreedySparseState:
    """Update the scores of a block after one pick."""
    vectors = Factored(state.a, state.h if state.h.shape[1] else rows["features"])
    matrix, weights, _, pick = pursuit.residual
    if matrix is not None:
        return _score_pursuit_block(
            state, float64(_multiply_pursuit_residual(vectors, matrix)), pursuit
        )
    assert pick is not None
    pick = Factored(*(like(part, state.a, dtype=state.a.dtype) for part in (pick.a, pick.h)))
    state.columns[:, len(weights) - 1] = inner_products(vectors, pick)[:, 0]
    local = like(weights, state.columns, dtype=state.columns.dtype)
    moved = namespace(local).matmul(state.columns[:, : len(weights)], local)
    return _score_pursuit_block(
        state, state.first + float64(moved) / pursuit.problem.budget, pursuit
    )


def score_pursuit_exactly(rows: Rows, pursuit: GreedyPursuit) -> Floats:
    """The scores of a few items in float64 on the host, ``(n,)``."""
    problem = pursuit.problem
    vectors, variances = compute_vectors(rows, problem.law, np.empty(0))
    if problem.degenerate:
        return np.asarray(variances / problem.squared_scale)
    matrix = pursuit.residual.matrix
    matrix = to_numpy(pursuit.compute_residual() if matrix is None else matrix)
    slopes = inner_products_with_matrix(vectors, matrix) / problem.budget
    norms = squared_norms(vectors) / problem.budget**2
    scores = greedy_scores(slopes, norms, problem.alpha * variances, problem.beta, pursuit.gain)
    return np.asarray(scores / problem.squared_scale)


def _multiply_pursuit_residual(vectors: Factored, matrix: Array) -> Array:
    """Product of every row with a ``(K, d)`` matrix in the precision of the rows, ``(n,)``."""
    return inner_products_with_matrix(vectors, like(matrix, vectors.h, dtype=vectors.h.dtype))


def _score_pursuit_block(
    state: GreedySparseState, inner: Array, pursuit: GreedyPursuit
) -> GreedySparseState:
    """The state with new scores, from the products of all vectors with the residual."""
    problem, norms, costs = pursuit.problem, state.norms, state.costs
    if problem.degenerate:
        scores, slack = costs, 1e-12 * costs
    else:
        rounding = ROUNDING * float(namespace(inner).finfo(state.a.dtype).eps)
        error = namespace(inner).sqrt(norms) * (rounding * pursuit.residual.scale)
        slopes = inner / problem.budget
        scores, slack = score_gains_with_error(slopes, error, norms, costs, pursuit)
    if problem.law.scale != 1:
        scores, slack = scores / problem.squared_scale, slack / problem.squared_scale
    return state._replace(scores=scores, slack=slack)
