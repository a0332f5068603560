r"""Proximal iterative hard thresholding for the problem of `labelwise.kernels.sparse`.

From a sparse point ``z``: step along the gradient of :math:`f_1` over all ``n`` items, keep the
``b`` items that are worth most (`projection_scores`), set negative weights to 0, de-bias, and go on
from ``z`` with momentum. The best iterate counts, not the last.

All iterates are sparse, so only the gradient has ``n`` numbers. A pass computes it and, from the
same rows while they are in cache, its image :math:`\Phi g` that the line search needs. Passes are
in float64: which items are kept must not hang on rounding.

Cost: :math:`O(n K d)` per iteration, one pass over the features; memory ``O(n)`` beside the rows.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithm 2.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    bring,
    comparable,
    largest,
    like,
    namespace,
    to_numpy,
)
from labelwise.blocks import Shard, Shards
from labelwise.kernels.doubles import double_chunks
from labelwise.kernels.factored import Factored, float64, take, weighted_sum
from labelwise.kernels.label_gradients import label_gradients
from labelwise.kernels.sparse import Problem, vectors_at, workplace_of
from labelwise.kernels.sparse_steps import Fit, debias_and_clip, projection_scores, step_length

KEY = "sparse_iht"
STANDSTILL = 1e-9
"""Changes of the objective below this fraction of its scale count as none."""


class Rules(NamedTuple):
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
    """A sparse vector over the items: sorted ids, values, and its image under Phi, ``(K, d)``."""

    ids: Ids
    values: Floats
    image: Floats

    def plus(self, factor: float, other: "Point") -> "Point":
        """``self + factor * other``."""
        ids = np.union1d(self.ids, other.ids)
        values = np.zeros(len(ids))
        values[np.searchsorted(ids, self.ids)] = self.values
        values[np.searchsorted(ids, other.ids)] += factor * other.values
        return Point(ids, values, self.image + factor * other.image)


class Iterate(NamedTuple):
    """A batch: ids in order of worth, their weights, and the objective."""

    ids: Ids
    weights: Floats
    f: float


@dataclass
class _Part:
    """Beside the rows: the vectors' factors, ``(n,)`` variances and gradient, order of the ids."""

    a: Array
    h: Array | None
    variances: Floats
    order: NDArray[np.intp]
    gradient: Floats

    def vectors(self, shard: Shard) -> Factored:
        """The mean vectors of the block."""
        return Factored(self.a, shard.rows["features"] if self.h is None else self.h)

    def values(self, shard: Shard, point: Point) -> Floats:
        """A sparse point on the rows of this block, ``(n,)``."""
        values = np.zeros(len(shard))
        ids = shard.ids[self.order]
        places = np.searchsorted(ids, point.ids)
        here = places < len(ids)
        here[here] = ids[places[here]] == point.ids[here]
        values[self.order[places[here]]] = point.values[here]
        return values


def _prepare(shard: Shard, problem: Problem) -> None:
    vectors, deviations = label_gradients(shard.rows, problem.law)
    shard.state[KEY] = _Part(
        vectors.a,
        vectors.h if problem.mode == "bayesian" else None,
        to_numpy(deviations) ** 2,
        np.argsort(shard.ids, kind="stable"),
        np.zeros(len(shard)),
    )


def _gradient(
    shard: Shard, problem: Problem, point: Point, with_image: bool
) -> tuple[Floats, float, float]:
    """Compute the gradient ``g`` of f1 at ``z`` and keep it in the block.

    Returns:
        The block's part of the image of ``g`` (zeros if not wanted), of ``|g|^2`` and of
        ``g . (z - 1)``.
    """
    part: _Part = shard.state[KEY]
    vectors = part.vectors(shard)
    pull = part.values(shard, point) - 1
    residual = like(np.ascontiguousarray((point.image - problem.target).T), vectors.h)
    image, first = np.zeros_like(problem.target), 0
    for a, h in double_chunks(vectors.a, vectors.h):
        xp = namespace(h)
        slopes = to_numpy(xp.vecdot(xp.matmul(h, residual), a)) / problem.budget
        last = first + len(slopes)
        gradient = 2 * slopes + 2 * problem.beta * pull[first:last]
        part.gradient[first:last], first = gradient, last
        if with_image:
            weights = like(gradient, a)
            image += to_numpy(weighted_sum(Factored(a, h), weights)) / problem.budget
    return image, float(part.gradient @ part.gradient), float(part.gradient @ pull)


def _steepest(shard: Shard, budget: int) -> tuple[Ids, Floats]:
    """The items of a block with the largest gradients, and how large those are."""
    sizes = comparable(np.abs(shard.state[KEY].gradient))
    best = largest(sizes, min(budget, len(shard)), shard.ids)
    return shard.ids[best], sizes[best]


def _active(
    shard: Shard, problem: Problem, point: Point, active: Ids
) -> tuple[Floats, float, float]:
    """What `_gradient` returns, for the gradient on the active items alone."""
    part: _Part = shard.state[KEY]
    here = np.flatnonzero(np.isin(shard.ids, active))
    gradient = part.gradient[here]
    vectors = float64(take(part.vectors(shard), here))
    image = to_numpy(weighted_sum(vectors, like(gradient, vectors.a))) / problem.budget
    pull = part.values(shard, point)[here] - 1
    return image, float(gradient @ gradient), float(gradient @ pull)


def _step(shards: Shards, problem: Problem, point: Point, rules: Rules) -> float:
    """Compute the gradient in all blocks; return how far to go along it."""
    whole = rules.step == "exact"
    image, squared, pull = shards.sum(_gradient, problem, point, whole)
    if not whole:
        parts = shards.map(_steepest, problem.budget)
        ids = np.concatenate([part[0] for part in parts])
        best = largest(np.concatenate([part[1] for part in parts]), problem.budget, ids)
        active = np.union1d(ids[best], point.ids[point.values != 0])
        image, squared, pull = shards.sum(_active, problem, point, active)
    slope = float(np.vdot(point.image - problem.target, image)) + problem.beta * pull
    curvature = float(np.vdot(image, image)) + problem.beta * squared
    return step_length(slope, curvature) * (1.0 if whole else 0.5)


def _worthiest(
    shard: Shard, problem: Problem, point: Point, length: float, rules: Rules
) -> tuple[Ids, Floats, Floats]:
    """The items of a block that may be among those kept: ids, worth, and value after the step."""
    part: _Part = shard.state[KEY]
    stepped = part.values(shard, point) - length * part.gradient
    scale = length if rules.prox_scale == "step" else 1.0
    costs = problem.alpha * part.variances
    worth = comparable(projection_scores(stepped, costs, scale, rules.projection))
    best = largest(worth, min(problem.budget, len(shard)), shard.ids)
    return shard.ids[best], worth[best], stepped[best]


def _project(
    shards: Shards, problem: Problem, point: Point, length: float, rules: Rules, place: Array
) -> tuple[Iterate, Point]:
    """Step, keep the b worthiest items, and de-bias their weights."""
    parts = shards.map(_worthiest, problem, point, length, rules)
    ids, worth, stepped = (np.concatenate(column) for column in zip(*parts, strict=True))
    best = largest(worth, problem.budget, ids)
    ids = ids[best]
    vectors, variances = vectors_at(shards.rows(ids), problem.law, place)
    start = bring(np.maximum(stepped[best], 0.0), place)
    kept = debias_and_clip(Fit.of(vectors, problem), start, rules.debias_steps)
    image = to_numpy(weighted_sum(vectors, kept)) / problem.budget
    weights = to_numpy(kept)
    f = float(((image - problem.target) ** 2).sum() + problem.beta * ((weights - 1) ** 2).sum())
    f -= problem.alpha * float(variances.sum())
    order = np.argsort(ids)
    return Iterate(ids, weights, f), Point(ids[order], weights[order], image)


def _momentum(new: Point, old: Point, problem: Problem) -> Point:
    """The best point on the line through two iterates."""
    change = new.plus(-1.0, old)
    pull = float((new.plus(0.0, old).values - 1) @ change.values)
    slope = float(np.vdot(new.image - problem.target, change.image)) + problem.beta * pull
    curvature = float(np.vdot(change.image, change.image))
    curvature += problem.beta * float(change.values @ change.values)
    return new.plus(-step_length(slope, curvature), change)


def threshold(
    shards: Shards, problem: Problem, rules: Rules, iterations: int
) -> tuple[Iterate, int]:
    """The best of some iterates, and how many were made before standing still."""
    shards.map(_prepare, problem)
    scale = float(np.vdot(problem.target, problem.target)) + problem.beta * problem.budget
    nothing = Point(np.empty(0, dtype=np.int64), np.empty(0), np.zeros_like(problem.target))
    here = before = nothing
    place = workplace_of(shards)
    best = last = None
    for number in range(1, iterations + 1):
        length = _step(shards, problem, here, rules)
        new, point = _project(shards, problem, here, length, rules, place)
        here, kept, before = _momentum(point, before, problem), before.ids, point
        best = new if best is None or new.f < best.f else best
        shards.progress("sparse_iht", number, iterations)
        stands = last is not None and abs(new.f - last.f) <= STANDSTILL * scale
        last = new
        if stands and np.array_equal(kept, point.ids):
            break
    assert best is not None
    return best, number
