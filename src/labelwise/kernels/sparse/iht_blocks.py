r"""What blocks of rows do in iterative hard thresholding (`labelwise.kernels.sparse.iht`).

A block keeps the factors of its vectors, the present point and the gradient there. It is told
sparse points, a residual and a step length, and answers with sums and with the items that may be
among those kept, brought to where the work is done.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labelwise import arrays
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
from labelwise.kernels.distance.factored import Factored, float64, take, weighted_sum
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.placement import count_resident_bytes
from labelwise.kernels.sparse.label_gradients import label_gradients
from labelwise.kernels.sparse.problem import SparseProblem
from labelwise.kernels.sparse.steps import projection_scores, summed
from labelwise.pool.blocks import Shard

KEY = "sparse_iht"
KEPT_BYTES = 4 << 30
"""A block on a GPU that takes no more than this is kept in float64 too."""


class ThresholdingRules(NamedTuple):
    """How an iteration is made.

    Attributes:
        projection: ``corrected``, or ``printed`` as in the paper.
        prox_scale: weight of the variances in it: ``step`` (the step length) or ``one``.
        step: ``exact`` line search along the whole gradient, or ``active_half``: half the exact
            step along its part on the present items and the ``b`` steepest others.
        debias_steps: exact gradient steps on the kept items.
    """

    projection: str = "corrected"
    prox_scale: str = "step"
    step: str = "exact"
    debias_steps: int = 1


class Point(NamedTuple):
    """A sparse vector over the items: sorted ids, values, and its image under Phi, ``(K, d)``.

    An id of -1 is no item.
    """

    ids: Array
    values: Array
    image: Array


class Between(NamedTuple):
    """The point ``new + factor (new - old)`` on the line through two iterates."""

    new: Point
    old: Point
    factor: Array

    @property
    def image(self) -> Array:
        """Its image under Phi, ``(K, d)``."""
        return self.new.image + self.factor * (self.new.image - self.old.image)


@dataclass
class _Part:
    """Beside the rows, on their device: the vectors' factors, and what an iteration needs.

    All others are ``(n,)``: variances, ids, their order (None if they are in order), the present
    point and the gradient there.
    """

    a: Array
    h: Array | None
    variances: Array
    ids: Array
    order: Array | None
    point: Array
    gradient: Array

    def vectors(self, shard: Shard) -> Factored:
        """The mean vectors of the block."""
        return Factored(self.a, shard.rows["features"] if self.h is None else self.h)

    def add(self, values: Array, point: Point, factor: Any) -> None:
        """Add a sparse point to ``(n + 1,)`` values; what is not of this block goes to the end."""
        xp, n = namespace(values), self.ids.shape[0]
        wanted = like(point.ids, self.ids)
        ids = self.ids if self.order is None else self.ids[self.order]
        places = xp.searchsorted(ids, wanted).clip(max=n - 1)
        here = ids[places] == wanted
        places = places if self.order is None else self.order[places]
        places = xp.where(here, places, xp.full_like(places, n))
        values[places] += like(factor, values) * like(point.values, values)


def prepare(shard: Shard, problem: SparseProblem) -> None:
    """Compute the vectors of a block and keep their factors beside it."""
    vectors, deviations = label_gradients(shard.rows, problem.law)
    ids = np.ascontiguousarray(np.asarray(shard.ids, dtype=np.int64))
    sort = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable")
    h = vectors.h if problem.keeps_features else None
    if 0 < count_resident_bytes(shard) <= KEPT_BYTES and str(device(deviations)) != "cpu":
        vectors = float64(vectors)  # once, not in every iteration
        h = vectors.h
    shard.state[KEY] = _Part(
        vectors.a,
        h,
        deviations * deviations,
        like(ids, deviations),
        None if sort is None else like(sort, deviations),
        namespace(deviations).zeros_like(deviations),
        namespace(deviations).zeros_like(deviations),
    )


def find_gradient(
    shard: Shard,
    problem: SparseProblem,
    between: Between,
    residual: Array,
    with_image: bool,
    place: Array,
) -> tuple[Array, Array]:
    """Compute the gradient ``g`` of f1 at ``z`` and keep it in the block.

    Returns:
        The block's part of the image of ``g`` (zeros if not wanted) and of ``|g|^2``, brought to
        ``place``.
    """
    part: _Part = shard.state[KEY]
    vectors, n = part.vectors(shard), len(shard)
    xp = namespace(part.gradient)
    values = xp.zeros((n + 1,), dtype=xp.float64, device=device(part.gradient))
    if n:
        part.add(values, between.new, 1 + between.factor)
        part.add(values, between.old, -between.factor)
    part.point = values[:n]
    pull = part.point - 1
    residual = like(residual, part.gradient)
    image, local, parts, first = xp.zeros_like(residual), _turned(residual), [], 0
    for a, h in iterate_float64_chunks(vectors.a, vectors.h):
        last = first + a.shape[0]
        slopes = row_dots(xp.matmul(h, local), a) / problem.budget
        parts.append(2 * slopes + 2 * problem.beta * pull[first:last])
        if with_image:
            image += summed(Factored(a, h), parts[-1]) / problem.budget
        first = last
    part.gradient = gradient = xp.concat(parts) if len(parts) > 1 else parts[0]
    return bring(image, place), bring(gradient @ gradient, place)


def _turned(matrix: Array) -> Array:
    """The transpose; for a processor, whose products would be slower else, by rows in memory."""
    if isinstance(matrix, np.ndarray):
        return np.ascontiguousarray(matrix.T)
    return namespace(matrix).matrix_transpose(matrix)


def steepest(shard: Shard, budget: int) -> tuple[Ids, Floats]:
    """The items of a block with the largest gradients, and how large those are."""
    sizes = comparable(np.abs(to_numpy(shard.state[KEY].gradient)))
    best = largest(sizes, min(budget, len(shard)), shard.ids)
    return shard.ids[best], sizes[best]


def on_active(
    shard: Shard, problem: SparseProblem, active: Ids, place: Array
) -> tuple[Array, Array]:
    """What `find_gradient` returns, for the gradient on the active items alone."""
    part: _Part = shard.state[KEY]
    here = np.flatnonzero(np.isin(shard.ids, active))
    gradient = arrays.take(part.gradient, here)
    vectors = float64(take(part.vectors(shard), here))
    image = weighted_sum(vectors, gradient) / problem.budget
    return bring(image, place), bring(gradient @ gradient, place)


class Best(NamedTuple):
    """The items of a block that may be kept, the worthiest first; vectors where the work is."""

    ids: Array
    worth: Array
    stepped: Array
    vectors: Factored | None
    variances: Array | None


def worthiest(
    shard: Shard, problem: SparseProblem, length: Array, rules: ThresholdingRules, place: Array
) -> Best:
    """The items of a block that may be among those kept."""
    part: _Part = shard.state[KEY]
    length = like(length, part.gradient)
    stepped = part.point - length * part.gradient
    scale = length if rules.prox_scale == "step" else 1 / problem.square
    costs = problem.alpha * part.variances
    worth = projection_scores(stepped, costs, scale, rules.projection)
    if isinstance(place, np.ndarray):
        rounded = comparable(worth)
        best = largest(rounded, min(problem.budget, len(shard)), shard.ids)
        values = np.asarray(to_numpy(stepped), dtype=np.float64)[best]
        return Best(shard.ids[best], rounded[best], values, None, None)
    worth = _rounded(worth)
    best = largest_by_id(worth, part.order, problem.budget)
    vectors = part.vectors(shard)
    near = Factored(*(float64(factor[best]) for factor in (vectors.a, vectors.h)))
    columns = (column[best] for column in (part.ids, worth, stepped, part.variances))
    ids, worth, stepped, variances = columns
    return Best(ids, worth, stepped, near, variances)


def _rounded(scores: Array) -> Array:
    """What `labelwise.arrays.comparable` makes of scores, where they are: 30 bits of each."""
    spread = scores * (2.0**23 + 1)
    return spread - (spread - scores)


def largest_by_id(scores: Array, order: Array | None, count: int) -> Array:
    """Positions of the largest scores, equal ones by id; ``order`` puts ids in order."""
    xp = namespace(scores)
    if order is None:
        return xp.argsort(-scores, stable=True)[:count]
    return order[xp.argsort(-scores[order], stable=True)[:count]]


def forget(shard: Shard) -> None:
    """Drop what a block has kept."""
    shard.state.pop(KEY, None)
