r"""Greedy sparse approximation: the picks on the driver, and the scores beside the rows.

The scores need the products of every vector with the residual :math:`R = \Phi w - v`. De-biasing
moves the weights of all picks, so ``R`` changes in every direction. Two ways to get the products:

*From columns.* With the products of all rows with each pick kept beside the rows, those with
``R`` are a weighted sum of ``t`` columns. A pick costs one pass over the features for its column,
:math:`O(n (K + d + t))`.

*Anew.* :math:`\sum_k a_{ik} (H R^\top)_{ik}`, :math:`O(n K d)`, and nothing is kept.

Columns are used while there are few of them, compared with ``K d`` and with the memory they may
take, and while the residual is not so small that it drowns in their rounding. Products are in the
precision of the rows; near ties are settled in float64.
"""

from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    bring,
    device,
    float64,
    like,
    namespace,
    row_dots,
    to_numpy,
)
from labelwise.kernels.distance.factored import (
    Factored,
    inner_products_with_matrix,
    products,
    squared_norms,
    weighted_sum,
)
from labelwise.kernels.sparse.label_gradients import label_gradients
from labelwise.kernels.sparse.problem import SparseProblem, compute_host_vectors
from labelwise.kernels.sparse.steps import GainRule, greedy_scores, ratio
from labelwise.pool.rows import Rows

COLUMN_BYTES = 1 << 30
"""Memory that the columns of all blocks may take together."""
CANCELLED = 1e-3
"""A residual this much shorter than its terms is computed anew."""
ROUNDING = 32
"""How many units in the last place a product may be off, of the product of the lengths."""


class Residual(NamedTuple):
    """What the blocks are told about ``R``.

    Attributes:
        matrix: ``(K, d)``, or None where the products come from columns.
        weights: ``(t,)`` of the picks so far.
        scale: length of the terms that are added up, the measure of rounding; one number.
        pick: the last picked vector.
    """

    matrix: Array | None
    weights: Array
    scale: Any
    pick: Factored | None = None


class GreedyPursuit:
    """The picked vectors, their products and their weights, in buffers of the final size.

    They are float64 arrays where ``place`` is (`labelwise.arrays.workplace`): on the GPU of the
    rows, where nothing then has to wait for the host, or on the host.
    """

    def __init__(self, problem: SparseProblem, gain: GainRule, steps: int, place: Array) -> None:
        """Start with no pick; ``steps`` de-bias steps follow each."""
        budget, (classes, width) = problem.budget, problem.target.shape
        self.problem, self.gain, self.steps, self.count = problem, gain, steps, 0
        # On a GPU a product anew is as quick as one column, and needs no room.
        self.columns = most_columns(problem) if isinstance(place, np.ndarray) else 0
        xp: Any = namespace(place)

        def room(*shape: int) -> Array:
            return xp.zeros(shape, dtype=place.dtype, device=device(place))

        self.weights = room(0)
        self._a, self._h = room(budget, classes), room(budget, width)
        self._gram, self._target = room(budget, budget), room(budget)
        self._v = bring(problem.target, place)
        self._length = float(np.linalg.norm(problem.target))
        self.residual = Residual(-problem.target, self.weights, self._length)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to the blocks; the picked vectors and their products stay on the driver."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @property
    def vectors(self) -> Factored:
        """The ``t`` picked vectors."""
        return Factored(self._a[: self.count], self._h[: self.count])

    def add(self, vector: Factored) -> None:
        """Count one pick: its best weight, then de-biased weights for all."""
        problem, last = self.problem, self.count
        self._a[last, :], self._h[last, :] = vector.a[0], vector.h[0]
        self.count = count = last + 1
        row = products(self.vectors, vector)[:, 0] / problem.budget**2
        self._gram[last, :count] = row
        self._gram[:count, last] = row
        self._target[last] = inner_products_with_matrix(vector, self._v)[0] / problem.budget
        self.weights = self._weigh(self._gram[:count, :count], self._target[:count])
        self.residual = self._residual()

    def extend(self, vectors: Factored, weights: Array) -> None:
        """Count several picks whose weights, and those of all picks before, are known."""
        first, last = self.count, self.count + len(vectors)
        self._a[first:last, :], self._h[first:last, :] = vectors.a, vectors.h
        self.count = last
        rows = products(self.vectors, vectors) / self.problem.budget**2
        self._gram[:last, first:last] = rows
        self._gram[first:last, :last] = namespace(rows).matrix_transpose(rows)
        self._target[first:last] = (
            inner_products_with_matrix(vectors, self._v) / self.problem.budget
        )
        self.weights, self.columns = weights, 0
        self.residual = self._residual()

    def known(self) -> tuple[Array, Array]:
        """Products of the picks with each other ``(t, t)``, and with the target ``(t,)``."""
        return self._gram[: self.count, : self.count], self._target[: self.count]

    def _weigh(self, gram: Array, target: Array) -> Array:
        """The last pick's best weight, then steps along the gradient of all, none below 0.

        The steps of `labelwise.kernels.sparse.steps.debias_and_clip`, with the products that are
        known already and without a number that the host would have to wait for.
        """
        xp, beta = namespace(gram), self.problem.beta
        weights = xp.concat([self.weights, xp.zeros_like(target[:1])])
        image = gram @ weights
        length = ratio(image[-1:] - target[-1:] - beta, gram[-1:, -1] + beta)
        weights[-1:] -= length
        image = image - length * gram[:, -1]
        for step in range(self.steps):
            if step:
                image = gram @ weights
            direction = 2 * (image - target) + 2 * beta * (weights - 1)
            squared = direction @ direction
            length = ratio(squared / 2, direction @ (gram @ direction) + beta * squared)
            weights = (weights - length * direction).clip(min=0.0)
        return weights.clip(min=0.0)

    def _residual(self) -> Residual:
        weights, count = self.weights, self.count
        xp = namespace(weights)
        if count <= self.columns:
            gram, target = self._gram[:count, :count], self._target[:count]
            lengths = xp.sqrt(xp.linalg.diagonal(gram))
            both = xp.stack([weights @ lengths, weights @ (gram @ weights - 2 * target)])
            moved, squared = to_numpy(both).tolist()
            terms = self._length + moved
            if self._length**2 + squared > (CANCELLED * terms) ** 2:
                pick = Factored(self._a[count - 1 : count], self._h[count - 1 : count])
                return Residual(None, weights, terms, pick)
        self.columns = 0
        matrix = self.matrix()
        return Residual(matrix, weights, xp.linalg.vector_norm(matrix))

    def matrix(self) -> Array:
        """``R``, ``(K, d)``."""
        return weighted_sum(self.vectors, self.weights) / self.problem.budget - self._v

    @property
    def target(self) -> Array:
        """``v``, ``(K, d)``, where the picks are."""
        return self._v


def most_columns(problem: SparseProblem) -> int:
    """How many columns are worth keeping: reading so many takes as long as a product anew."""
    classes, width = map(int, problem.target.shape)
    return min((classes - 1) * width // 6, COLUMN_BYTES // (8 * problem.n), problem.budget)


class State(NamedTuple):
    """Beside the rows: factors of the vectors, and all that the scores are made of.

    ``a`` is ``(n, K)``; ``h`` is ``(n, 0)`` where it is the features, which are read from the rows
    (`Problem.keeps_features`). ``columns`` are products with the picks; the others are ``(n,)``:
    squared norms of the columns of Phi, rewards ``c``, products with ``-v``; and scores and their
    rounding, these in the units that were given.
    """

    a: Array
    h: Array
    columns: Array
    norms: Array
    costs: Array
    first: Array
    scores: Array
    slack: Array


def start(rows: Rows, pursuit: GreedyPursuit) -> State:
    """Compute the vectors of a block and score them for the first pick."""
    problem = pursuit.problem
    vectors, deviations = label_gradients(rows, problem.law)
    xp, h = namespace(deviations), vectors.h
    variances = deviations * deviations
    room = (0 if problem.void else pursuit.columns, h.shape[0])
    first = float64(_products_anew(vectors, -problem.target))
    state = State(
        a=vectors.a,
        h=h if problem.keeps_features else h[:, :0],
        columns=xp.matrix_transpose(xp.empty(room, dtype=h.dtype, device=device(h))),
        norms=float64(squared_norms(vectors)) / problem.budget**2,
        costs=variances if problem.void else problem.alpha * variances,
        first=first,
        scores=first,
        slack=first,
    )
    return _scored(state, first, pursuit)


def update(state: State, rows: Rows, pursuit: GreedyPursuit) -> State:
    """Bring the scores of a block up to date after one pick."""
    vectors = Factored(state.a, state.h if state.h.shape[1] else rows["features"])
    matrix, weights, _, pick = pursuit.residual
    if matrix is not None:
        return _scored(state, float64(_products_anew(vectors, matrix)), pursuit)
    assert pick is not None
    pick = Factored(*(like(part, state.a, dtype=state.a.dtype) for part in (pick.a, pick.h)))
    state.columns[:, len(weights) - 1] = products(vectors, pick)[:, 0]
    xp: Any = namespace(state.columns)
    local = like(weights, state.columns, dtype=state.columns.dtype)
    moved = float64(xp.matmul(state.columns[:, : len(weights)], local)) / pursuit.problem.budget
    return _scored(state, state.first + moved, pursuit)


def exact_scores(rows: Rows, pursuit: GreedyPursuit) -> Floats:
    """The scores of a few items in float64, ``(n,)``."""
    problem = pursuit.problem
    vectors, variances = compute_host_vectors(rows, problem.law)
    if problem.void:
        return np.asarray(variances / problem.square)
    matrix = pursuit.matrix() if pursuit.residual.matrix is None else pursuit.residual.matrix
    slopes = inner_products_with_matrix(vectors, to_numpy(matrix)) / problem.budget
    norms = squared_norms(vectors) / problem.budget**2
    scores = greedy_scores(slopes, norms, problem.alpha * variances, problem.beta, pursuit.gain)
    return np.asarray(scores / problem.square)


def _products_anew(vectors: Factored, matrix: Array) -> Array:
    """Product of every row with a ``(K, d)`` matrix, ``(n,)``.

    Through ``(n, K)`` products of the features, not ``(n, d)`` ones of the first factors.
    """
    xp = namespace(vectors.h)
    local = xp.matrix_transpose(like(matrix, vectors.h, dtype=vectors.h.dtype))
    return row_dots(xp.matmul(vectors.h, local), vectors.a)


def _scored(state: State, inner: Array, pursuit: GreedyPursuit) -> State:
    """The state with new scores, from the products of all vectors with the residual."""
    problem, norms, costs = pursuit.problem, state.norms, state.costs
    if problem.void:
        scores, slack = costs, 1e-12 * costs
        return _shown(state, scores, slack, problem)
    rounding = ROUNDING * float(namespace(inner).finfo(state.a.dtype).eps)
    error = namespace(inner).sqrt(norms) * (rounding * pursuit.residual.scale)
    scores, slack = judged(inner / problem.budget, error, norms, costs, pursuit)
    return _shown(state, scores, slack, problem)


def _shown(state: State, scores: Array, slack: Array, problem: SparseProblem) -> State:
    """The state with scores in the units that were given."""
    if problem.law.unit != 1:
        scores, slack = scores / problem.square, slack / problem.square
    return state._replace(scores=scores, slack=slack)


def judged(
    slopes: Array, error: Array, norms: Array, costs: Array, pursuit: GreedyPursuit
) -> tuple[Array, Array]:
    """Scores and how far rounding may have moved them, from slopes that may be off by ``error``."""
    xp, beta, gain = namespace(slopes), pursuit.problem.beta, pursuit.gain
    scores = greedy_scores(slopes, norms, costs, beta, gain)
    above = greedy_scores(slopes - error, norms, costs, beta, gain) - scores
    below = scores - greedy_scores(slopes + error, norms, costs, beta, gain)
    return scores, xp.maximum(above, below) + 1e-12 * xp.abs(scores)
