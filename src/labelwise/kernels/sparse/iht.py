r"""Proximal iterative hard thresholding for the problem of `labelwise.kernels.sparse.problem`.

From a sparse point ``z``: step along the gradient of :math:`f_1` over all ``n`` items, keep the
``b`` items of highest value (`projection_scores`), clip negative weights to 0, de-bias, and
continue from ``z`` with momentum. The best iterate is returned.

All iterates are sparse; only the gradient has ``n`` entries. One pass computes it and, from the
same rows, its image :math:`\Phi g` for the line search. Passes use float64, so that rounding does
not decide which items are kept. On a GPU an iteration never waits for the host; for rows that stay
there, iterations are recorded as a CUDA graph (`labelwise.kernels.loop.scan`).

Cost: ``O(n K d)`` per iteration, one pass over the features; memory ``O(n)`` in addition to the
rows.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithm 2 and Appendix E.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    bring,
    comparable,
    device,
    largest,
    like,
    namespace,
    row_dots,
    to_numpy,
)
from labelwise.kernels.distance.embedding import (
    Factored,
    concat_embeddings,
    to_float64,
    weighted_sum,
)
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.loop.scan import Arrays, Scan, run_scan_steps
from labelwise.kernels.placement import count_resident_bytes, find_placement
from labelwise.kernels.sparse.label_gradients import label_gradients
from labelwise.kernels.sparse.problem import SparseProblem, compute_vectors
from labelwise.kernels.sparse.weights import WeightFit, debias_and_clip_weights, divide_or_zero
from labelwise.pool.blocks import Shard, Shards, drop_state

KEY = "sparse_iht"
CONVERGED = 1e-9  # Changes of the objective below this fraction of its scale count as zero
REPLAYED = 10  # Iterations that are replayed between two checks for convergence


class ThresholdingResult(NamedTuple):
    """A batch: ids in order of value, their weights, and the objective."""

    ids: Ids
    weights: Floats
    f: float


class SparsePoint(NamedTuple):
    """A sparse vector: sorted ids (-1 if unused), values, and its image under Phi, ``(K, d)``."""

    ids: Array
    values: Array
    image: Array


class MomentumPoint(NamedTuple):
    """The point ``new + factor (new - old)`` on the line through two iterates."""

    new: SparsePoint
    old: SparsePoint
    factor: Array

    @property
    def image(self) -> Array:
        """Its image under Phi, ``(K, d)``."""
        return self.new.image + self.factor * (self.new.image - self.old.image)


def run_thresholding(
    shards: Shards,
    problem: SparseProblem,
    iterations: int,
    *,
    debias_steps: int = 1,
    projection: str = "corrected",
    placement: Array | None = None,
) -> tuple[ThresholdingResult, int]:
    """The best iterate, and the number of iterations until convergence.

    ``debias_steps`` exact gradient steps are made on the kept items. ``placement`` is an empty
    float64 array on the device to compute on; by default that of the rows.
    """
    placement = find_placement(shards) if placement is None else placement
    shards.map(_prepare_thresholding_block, problem)
    step = partial(_iterate_iht, shards, problem, debias_steps, projection, placement)
    recorded = not isinstance(placement, np.ndarray) and all(shards.map(count_resident_bytes))
    scan: Callable[..., tuple[Arrays, Arrays]] = (
        Scan(step, 1) if recorded else partial(run_scan_steps, step)
    )
    rounds = REPLAYED if recorded else 1
    tolerance = np.array(CONVERGED * _objective_scale(problem))
    constants = bring(problem.target, placement), bring(tolerance, placement)
    state, best, number = _make_empty_iterates(problem, placement), None, 0
    while number < iterations:
        state, out = scan(constants, state, rounds=rounds)
        objectives, converged = to_numpy(out[0])[: iterations - number], to_numpy(out[1])
        count = int(np.argmax(converged)) + 1 if converged.any() else len(converged)
        for at, objective in enumerate(objectives[:count]):
            if best is None or is_lower_objective(objective, best.f, problem):
                ids, weights = (to_numpy(column[at]) for column in out[2:])
                best = ThresholdingResult(ids, weights, float(objective))
            number += 1
            shards.progress("sparse_iht", number, iterations)
        if converged[: len(objectives)].any():
            break
    shards.map(drop_state, KEY)
    assert best is not None, "at least one iteration is made"
    return best, number


def is_lower_objective(objective: float, other: float, problem: SparseProblem) -> bool:
    """Whether an objective is lower by more than rounding, which differs with the blocks."""
    return bool(objective < other - CONVERGED * (_objective_scale(problem) + abs(other)))


def _objective_scale(problem: SparseProblem) -> float:
    return float(np.vdot(problem.target, problem.target)) + problem.beta * problem.budget


def _make_empty_iterates(problem: SparseProblem, placement: Array) -> Arrays:
    """The state before the first iteration: two points without items."""
    xp, kind = namespace(placement), {"device": device(placement)}
    ids = xp.full((problem.budget,), -1, dtype=xp.int64, **kind)
    values = xp.zeros((problem.budget,), dtype=placement.dtype, **kind)
    image = 0 * bring(problem.target, placement)
    zero = xp.sum(values)
    return (ids, values, image, ids, values, image, zero, zero + xp.inf)


def _iterate_iht(
    shards: Shards,
    problem: SparseProblem,
    debias_steps: int,
    projection: str,
    placement: Array,
    constants: Arrays,
    state: Arrays,
) -> tuple[Arrays, Arrays]:
    """One iteration, for `Scan`.

    The state is the new and the old iterate (three arrays each), the momentum factor, and the last
    objective. The outputs are the objective, whether it converged, ids and weights.
    """
    target, tolerance = constants
    point = MomentumPoint(SparsePoint(*state[:3]), SparsePoint(*state[3:6]), state[6])
    xp = namespace(target)
    # Along the gradient g the objective falls at the rate |g|^2, and its second derivative is
    # 2 |Phi g|^2 + 2 beta |g|^2.
    image, squared = shards.sum(find_iht_gradient, problem, point, point.image - target, placement)
    length = divide_or_zero(squared / 2, xp.sum(image * image) + problem.beta * squared)
    ids, stepped, vectors, variances = _threshold_pool(
        shards, problem, length, projection, placement
    )
    fit = WeightFit(vectors, target, problem.budget, problem.beta)
    weights = debias_and_clip_weights(fit, stepped.clip(min=0.0), debias_steps)
    image = fit.image(weights)
    f = xp.sum((image - target) ** 2) + problem.beta * xp.sum((weights - 1) ** 2)
    f = f - problem.alpha * xp.sum(variances)
    order = xp.argsort(ids)
    new = SparsePoint(ids[order], weights[order], image)
    converged = (xp.abs(f - state[7]) <= tolerance) & xp.all(new.ids == point.new.ids)
    factor = _find_momentum_factor(new, point.new, target, problem.beta)
    return (*new, *point.new, factor, f), (f, converged, ids, weights)


def _threshold_pool(
    shards: Shards, problem: SparseProblem, length: Array, projection: str, placement: Array
) -> tuple[Array, Array, Factored, Array]:
    """The b items of highest value after a step: ids, values, vectors and variances."""
    parts = shards.map(_threshold_block, problem, length, projection, placement)
    xp = namespace(placement)
    if len(parts) == 1 and parts[0].vectors is not None and parts[0].variances is not None:
        return parts[0].ids, parts[0].stepped, parts[0].vectors, parts[0].variances
    ids, value, stepped = (xp.concat([part[j] for part in parts]) for j in range(3))
    if isinstance(placement, np.ndarray):
        best = largest(value, problem.budget, ids)
        vectors, variances = compute_vectors(shards.rows(ids[best]), problem.law, placement)
        return ids[best], stepped[best], vectors, variances
    vectors, variances = (
        concat_embeddings([p.vectors for p in parts]),
        xp.concat([p.variances for p in parts]),
    )
    best = _find_largest_values(value, xp.argsort(ids), problem.budget)
    near = Factored(vectors.a[best], vectors.h[best])
    return ids[best], stepped[best], near, variances[best]


def _find_momentum_factor(new: SparsePoint, old: SparsePoint, target: Array, beta: float) -> Array:
    """Exact line search beyond the new iterate, in units of the step from the old one."""
    xp = namespace(new.values)
    index = xp.searchsorted(new.ids, old.ids).clip(max=new.ids.shape[0] - 1)
    both = (new.ids[index] == old.ids) & (old.ids >= 0)
    # One extra entry takes the old items that the new iterate does not have.
    change = xp.concat([new.values, xp.zeros_like(new.values[:1])])
    change[xp.where(both, index, xp.full_like(index, new.ids.shape[0]))] -= old.values
    change = change[:-1]
    left = xp.where(both, xp.zeros_like(old.values), old.values)
    moved = new.image - old.image
    pull = xp.sum((new.values - 1) * change) + xp.sum(left)
    slope = xp.sum((new.image - target) * moved) + beta * pull
    squared = xp.sum(change * change) + xp.sum(left * left)
    return -divide_or_zero(slope, xp.sum(moved * moved) + beta * squared)


def projection_scores(point: Array, costs: Array, scale: Array, rule: str = "corrected") -> Array:
    r"""Value of keeping each item when a point ``s`` is made b-sparse, ``(n,)``.

    Leaving ``j`` out costs :math:`\frac12 s_j^2`, keeping it :math:`\frac12 [-s_j]_+^2 - \mu c_j`,
    so keeping gains :math:`\frac12 [s_j]_+^2 + \mu c_j`, with the step length :math:`\mu`. The rule
    ``printed`` in the paper omits the cost of leaving an item out; it reproduces its experiments.
    """
    if rule == "printed":
        return scale * costs - point.clip(max=0.0) ** 2 / 2
    return scale * costs + point.clip(min=0.0) ** 2 / 2


@dataclass
class ThresholdingBlock:
    """State of a block on the device of its rows."""

    a: Array
    h: Array | None  # ``(n, d)`` second factors; None where they are the stored features
    variances: Array
    ids: Array
    order: Array | None  # ``(n,)`` positions by ascending id; None if the ids are sorted
    point: Array
    gradient: Array  # ``(n,)`` gradient there

    def vectors(self, shard: Shard) -> Factored:
        """The mean vectors of the block."""
        return Factored(self.a, shard.rows["features"] if self.h is None else self.h)

    def add_point(self, values: Array, point: SparsePoint, factor: Array) -> None:
        """Add a sparse point to ``(n + 1,)`` values; foreign items go to the last entry."""
        xp, n = namespace(values), self.ids.shape[0]
        wanted = like(point.ids, self.ids)
        ids = self.ids if self.order is None else self.ids[self.order]
        index = xp.searchsorted(ids, wanted).clip(max=n - 1)
        here = ids[index] == wanted
        index = index if self.order is None else self.order[index]
        index = xp.where(here, index, xp.full_like(index, n))
        values[index] += like(factor, values) * like(point.values, values)


class BlockCandidates(NamedTuple):
    """Items of a block that may be kept, highest value first; vectors on a GPU only."""

    ids: Array
    value: Array
    stepped: Array
    vectors: Factored | None
    variances: Array | None


def _prepare_thresholding_block(shard: Shard, problem: SparseProblem) -> None:
    """Compute the vectors of a block and store their factors in its state."""
    vectors, deviations = label_gradients(shard.rows, problem.law)
    ids = np.ascontiguousarray(np.asarray(shard.ids, dtype=np.int64))
    order = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable")
    h = vectors.h if problem.copies_features else None
    xp = namespace(deviations)
    shard.state[KEY] = ThresholdingBlock(
        vectors.a,
        h,
        deviations * deviations,
        like(ids, deviations),
        None if order is None else like(order, deviations),
        xp.zeros_like(deviations),
        xp.zeros_like(deviations),
    )


def find_iht_gradient(
    shard: Shard, problem: SparseProblem, point: MomentumPoint, residual: Array, placement: Array
) -> tuple[Array, Array]:
    """Store the gradient ``g`` of f1; return its image and ``|g|^2`` where ``placement`` is."""
    part: ThresholdingBlock = shard.state[KEY]
    vectors, n = part.vectors(shard), len(shard)
    xp = namespace(part.gradient)
    values = xp.zeros((n + 1,), dtype=xp.float64, device=device(part.gradient))
    if n:
        part.add_point(values, point.new, 1 + point.factor)
        part.add_point(values, point.old, -point.factor)
    part.point = values[:n]
    pull = part.point - 1
    residual = like(residual, part.gradient)
    # BLAS is faster with a transpose that is contiguous in memory.
    is_host = isinstance(residual, np.ndarray)
    local = np.ascontiguousarray(residual.T) if is_host else xp.matrix_transpose(residual)
    image, parts, first = xp.zeros_like(residual), [], 0
    for a, h in iterate_float64_chunks(vectors.a, vectors.h):
        last = first + a.shape[0]
        slopes = row_dots(xp.matmul(h, local), a) / problem.budget
        parts.append(2 * slopes + 2 * problem.beta * pull[first:last])
        image += weighted_sum(Factored(a, h), parts[-1]) / problem.budget
        first = last
    part.gradient = gradient = xp.concat(parts) if len(parts) > 1 else parts[0]
    return bring(image, placement), bring(gradient @ gradient, placement)


def _threshold_block(
    shard: Shard, problem: SparseProblem, length: Array, projection: str, placement: Array
) -> BlockCandidates:
    """The items of a block that may be among those kept."""
    part: ThresholdingBlock = shard.state[KEY]
    length = like(length, part.gradient)
    stepped = part.point - length * part.gradient
    value = projection_scores(stepped, problem.alpha * part.variances, length, projection)
    if isinstance(placement, np.ndarray):
        rounded = comparable(value)
        best = largest(rounded, min(problem.budget, len(shard)), shard.ids)
        values = np.asarray(to_numpy(stepped), dtype=np.float64)[best]
        return BlockCandidates(shard.ids[best], rounded[best], values, None, None)
    # Keep 30 bits of each value like `labelwise.arrays.comparable`, without leaving the device.
    spread = value * (2.0**23 + 1)
    value = spread - (spread - value)
    best = _find_largest_values(value, part.order, problem.budget)
    vectors = part.vectors(shard)
    near = Factored(to_float64(vectors.a[best]), to_float64(vectors.h[best]))
    return BlockCandidates(part.ids[best], value[best], stepped[best], near, part.variances[best])


def _find_largest_values(scores: Array, order: Array | None, count: int) -> Array:
    """Positions of the largest scores, ties by id; ``order`` sorts the ids."""
    xp = namespace(scores)
    if order is None:
        return xp.argsort(-scores, stable=True)[:count]
    return order[xp.argsort(-scores[order], stable=True)[:count]]
