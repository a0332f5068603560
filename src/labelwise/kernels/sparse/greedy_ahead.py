r"""Picks of a greedy sparse approximation made ahead (`labelwise.strategy.AheadPicker`).

A block of picks is made in float64 from a window, the rows of highest score, and the picks before:
with :math:`G` the products of these vectors, :math:`M = G + \beta I` and :math:`r` those with the
target plus :math:`\beta`, half the gradient of :math:`f_1` is :math:`g = M w - r`. It holds the
score of every row of the window and the direction in which the weights are de-biased, so that a
pick costs three products of :math:`M` with a vector and a score of small steps.

All other rows are then judged (`kernels.sparse.greedy_judge`), and picks are certain up to the
first that another row may have beaten.

Cost of a block of ``k`` picks: a pass over the features, :math:`n K d`, at most :math:`n k K d`
multiplications in matrix products, and :math:`O(k (t + w)^2)` for ``t`` picks before it and a
window of ``w`` rows.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Array, Ids, device, float64, like, namespace, to_numpy
from labelwise.kernels.distance.factored import (
    Factored,
    concat,
    inner_products_with_matrix,
    products,
    squared_norms,
    take,
)
from labelwise.kernels.loop.block_scores import KEY, BlockScores, count_picks
from labelwise.kernels.loop.scan import Arrays, Scan, count_certain
from labelwise.kernels.placement import read_first_id
from labelwise.kernels.sparse.greedy import ROUNDING, GreedyPursuit, State, judged
from labelwise.kernels.sparse.greedy_judge import CHUNK, WINDOW, bars_of, judge, vectors_of
from labelwise.kernels.sparse.steps import TINY, GainRule, greedy_scores
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import CertainPicks, GreedyStrategy

WIDTH, WIDEST = 512, 4096
"""About how many rows picks are made from, at first and at most."""
STEPS, FIRST, BLOCK, FEW = 4, 64, 256, 32
"""Picks that are recorded together; that are judged together at first, at most, and at least."""
ROOM = 512
"""The room for picks before the window grows by so many at a time: each room is recorded anew."""


class _Window(NamedTuple):
    """The rows of highest score of one block: their vectors, rewards, and which may be picked."""

    first_id: int | None
    vectors: Factored
    costs: Array
    open: Array


class _Made(NamedTuple):
    """Picks of a window before they are judged.

    Attributes:
        places: ``(k,)`` where in the window; below 0 if nothing was left.
        weights: ``(k + 1, t)`` and
        window_weights: ``(k + 1, w)``, before every pick and at the end.
    """

    places: Array
    weights: Array
    window_weights: Array


class LookaheadPursuit:
    """Makes picks ahead; the plan has a `GreedyPursuit`, which counts them."""

    def __init__(self, strategy: GreedyStrategy, shards: Shards) -> None:
        """No row is read yet."""
        self._strategy, self._shards = strategy, shards
        self._width, self._blocks = WIDTH, len(shards.map(read_first_id))
        self._block = FIRST
        self._scan: Scan | None = None

    def pick_ahead(self, plan: Any, new: Rows, new_ids: Ids, most: int) -> CertainPicks:
        """Make a block of picks and keep those that are certain."""
        pursuit: GreedyPursuit = plan.pursuit
        if pursuit.problem.void:
            self._shards.map(_hear, new, new_ids)
            return CertainPicks(new_ids[:0], np.empty(0))
        width = max(self._width // self._blocks, 64)
        windows = self._shards.map(_window, self._strategy, plan, new, new_ids, width)
        vectors = concat([window.vectors for window in windows])
        costs = namespace(vectors.h).concat([window.costs for window in windows])
        made = self._make(pursuit, windows, vectors, min(self._block, most))
        matrices = _residuals(pursuit, vectors, made)
        scores, lower = _own_scores(pursuit, vectors, costs, made.places, matrices)
        bars = bars_of(matrices, lower)
        offsets, passed = {}, 0
        for window in windows:
            offsets[window.first_id] = passed
            passed += len(window.vectors)
        above, ids = (
            np.max(column, axis=0)
            for column in zip(
                *self._shards.map(judge, pursuit, bars, made.places, offsets), strict=True
            )
        )
        count = count_certain(to_numpy(lower) > above)
        if count < min(FEW, most):
            self._width = min(2 * self._width, WIDEST)
        self._block = min(max(2 * count, FEW), BLOCK)
        if count:
            places = to_numpy(made.places)[:count]
            weights = made.window_weights[count, :][like(places, made.places)]
            xp = namespace(weights)
            pursuit.extend(take(vectors, places), xp.concat([made.weights[count, :], weights]))
        shown = to_numpy(scores)[:count] / pursuit.problem.square
        return CertainPicks(ids[:count].astype(np.int64), shown)

    def _make(
        self, pursuit: GreedyPursuit, windows: list[_Window], vectors: Factored, count: int
    ) -> _Made:
        """Make picks from the windows, without looking at any other row."""
        known, room = pursuit.count, -(-(pursuit.count + 1) // ROOM) * ROOM
        constants, state = _arranged(pursuit, windows, vectors, room)
        step = partial(_step, pursuit.gain, pursuit.problem.beta, pursuit.steps)
        self._scan = self._scan or Scan(step, STEPS)
        state, (where, before) = self._scan(constants, state, rounds=-(-count // STEPS))
        every: Any = namespace(before).concat([before, state[0][None, :]])[: count + 1, :]
        return _Made(where[:count] - room, every[:, :known], every[:, room:])


def _arranged(
    pursuit: GreedyPursuit, windows: list[_Window], vectors: Factored, room: int
) -> tuple[Arrays, Arrays]:
    """What steps are made with: the picks so far, room for more of them, and the window.

    The last place of the room holds a weight of 1 that meets a column ``-r``: the product of the
    matrix with the weights is then ``M w - r``.
    """
    problem, (gram, target), known = pursuit.problem, pursuit.known(), pursuit.count
    xp, size = namespace(vectors.h), room + len(vectors)
    kind = {"dtype": vectors.h.dtype, "device": device(vectors.h)}
    cross = products(vectors, pursuit.vectors) / problem.budget**2
    matrix, places = xp.zeros((size, size), **kind), xp.arange(size, device=device(vectors.h))
    matrix[:known, :known] = gram
    matrix[room:, :known] = cross
    matrix[:known, room:] = xp.matrix_transpose(cross)
    matrix[room:, room:] = products(vectors, vectors) / problem.budget**2
    matrix[places, places] += problem.beta
    diagonal = xp.asarray(xp.linalg.diagonal(matrix), copy=True)
    matrix[room - 1, :] = 0.0
    matrix[:known, room - 1] = -target - problem.beta
    own = inner_products_with_matrix(vectors, pursuit.target) / problem.budget
    matrix[room:, room - 1] = -own - problem.beta
    weights, nothing = xp.zeros(size, **kind), xp.zeros(size, **kind)
    weights[:known], weights[room - 1] = pursuit.weights, 1.0
    lowest = nothing - xp.inf
    costs = xp.asarray(lowest, copy=True)
    rewards = xp.concat([window.costs for window in windows])
    free = xp.concat([window.open for window in windows])
    rewards = rewards / (2 * pursuit.gain.tau) if pursuit.gain.kind == "linear" else rewards
    costs[room:] = xp.where(free, rewards, lowest[room:])
    picked = xp.zeros(size, **kind)
    picked[:known] = 1.0
    inverse = xp.where(diagonal > TINY, -1 / diagonal.clip(min=TINY), nothing)
    constants = (matrix, diagonal - problem.beta, inverse, places, lowest)
    return constants, (weights, xp.matmul(matrix, weights), picked, costs)


def _step(
    gain: GainRule, beta: float, steps: int, constants: Arrays, state: Arrays
) -> tuple[Arrays, Arrays]:
    """One pick and its weight, then steps along the gradient of all weights (`GreedyPursuit.add`).

    Linear scores are divided by ``2 tau`` and shifted, which leaves the best one where it is.
    """
    matrix, norms, inverse, places, lowest = constants
    before, gradient, picked, costs = state
    xp = namespace(before)
    if gain.kind == "linear":
        scores = costs - gradient
    else:
        scores = greedy_scores(gradient + beta, norms, costs, beta, gain)
    where = xp.argmax(scores)
    here = places == where
    costs, picked = xp.where(here, lowest, costs), picked + here
    weights = xp.where(here, gradient * inverse, before)
    for _ in range(steps):
        direction = picked * xp.matmul(matrix, weights)
        both = xp.stack([direction, xp.matmul(matrix, direction)])
        squared = xp.matmul(both, direction)  # |direction|^2 and its curvature
        length = squared[0] / (squared[1] + TINY)
        weights = (weights - length * direction).clip(min=0.0)
    if not steps:
        weights = weights.clip(min=0.0)
    return (weights, xp.matmul(matrix, weights), picked, costs), (where, before)


def _own_scores(
    pursuit: GreedyPursuit, vectors: Factored, costs: Array, places: Array, matrices: Array
) -> tuple[Array, Array]:
    """The scores of the picks in float64, and the least they are: ``(k,)`` each."""
    xp, problem = namespace(matrices), pursuit.problem
    where = places.clip(min=0)
    a, h = vectors.a[where], vectors.h[where]
    slopes = xp.sum(matrices * (a[:, :, None] * h[:, None, :]), axis=(1, 2)) / problem.budget
    norms = squared_norms(Factored(a, h)) / problem.budget**2
    rounding = ROUNDING * float(xp.finfo(slopes.dtype).eps)
    error = xp.sqrt(norms) * xp.linalg.vector_norm(matrices, axis=(1, 2)) * rounding
    scores, slack = judged(slopes, error, norms, costs[where], pursuit)
    return scores, xp.where(places >= 0, scores - slack, xp.full_like(scores, -xp.inf))


def _residuals(pursuit: GreedyPursuit, vectors: Factored, made: _Made) -> Array:
    """The residual before every pick, ``(k, K, d)``."""
    problem, xp = pursuit.problem, namespace(vectors.h)
    chunk = max(CHUNK // (vectors.a.shape[1] * (pursuit.count + len(vectors))), 1)
    parts = []
    for first in range(0, made.places.shape[0], chunk):
        some = slice(first, min(first + chunk, made.places.shape[0]))
        total = _mixed(pursuit.vectors, made.weights[some, :])
        total += _mixed(vectors, made.window_weights[some, :])
        parts.append(total / problem.budget - pursuit.target)
    return xp.concat(parts)


def _mixed(vectors: Factored, weights: Array) -> Array:
    """``sum_i w_ki a_i h_i^T`` for every row of weights, ``(k, K, d)``."""
    xp = namespace(weights)
    scaled = weights[:, None, :] * xp.matrix_transpose(vectors.a)[None, :, :]
    flat = xp.reshape(scaled, (-1, scaled.shape[2]))
    return xp.reshape(xp.matmul(flat, vectors.h), (*scaled.shape[:2], vectors.h.shape[1]))


def _hear(shard: Shard, new: Rows, new_ids: Ids) -> None:
    shard.state[KEY].add_picks(new, new_ids, shard.ids)


def _window(
    shard: Shard, strategy: GreedyStrategy, plan: Any, new: Rows, new_ids: Ids, width: int
) -> _Window:
    """Count the new picks in a block; its rows of highest score."""
    part: BlockScores = shard.state[KEY]
    part.add_picks(new, new_ids, shard.ids)
    count_picks(part, shard, strategy, plan)
    state: State = part.state
    xp = namespace(state.scores)
    scores = xp.where(part.taken, xp.full_like(state.scores, -xp.inf), state.scores)
    best = xp.argsort(-scores)[:width]
    shard.state[WINDOW] = best
    vectors = vectors_of(shard, state)
    near = Factored(*(float64(factor[best]) for factor in (vectors.a, vectors.h)))
    costs, taken = state.costs[best], part.taken[best]
    return _Window(read_first_id(shard), near, costs, ~taken)
