r"""Proximal iterative hard thresholding for the problem of `labelwise.kernels.sparse.problem`.

From a sparse point ``z``: step along the gradient of :math:`f_1` over all ``n`` items, keep the
``b`` items that are worth most (`projection_scores`), set negative weights to 0, de-bias, and go on
from ``z`` with momentum. The best iterate counts, not the last.

All iterates are sparse, so only the gradient has ``n`` numbers. A pass computes it and, from the
same rows while they are in cache, its image :math:`\Phi g` that the line search needs. Passes are
in float64: which items are kept must not hang on rounding.

Sums, lengths and iterates stay where the work is done (`labelwise.arrays.workplace`): on a GPU no
number of an iteration is waited for, and where the rows stay there too, iterations are recorded
and replayed (`labelwise.kernels.loop.scan`). Convergence is checked every few iterations.

Cost: :math:`O(n K d)` per iteration, one pass over the features; memory ``O(n)`` beside the rows.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithm 2.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    bring,
    device,
    largest,
    namespace,
    to_numpy,
)
from labelwise.kernels.distance.factored import Factored, concat
from labelwise.kernels.loop.scan import Arrays, Scan, run_steps
from labelwise.kernels.placement import find_placement, stays
from labelwise.kernels.sparse.iht_blocks import (
    Between,
    Point,
    ThresholdingRules,
    find_gradient,
    forget,
    largest_by_id,
    on_active,
    prepare,
    steepest,
    worthiest,
)
from labelwise.kernels.sparse.problem import SparseProblem, compute_vectors
from labelwise.kernels.sparse.steps import Fit, debias_and_clip, ratio
from labelwise.pool.blocks import Shards

STANDSTILL = 1e-9
"""Changes of the objective below this fraction of its scale count as none."""
REPLAYED = 10
"""Iterations that are replayed between two checks for convergence."""


class Iterate(NamedTuple):
    """A batch: ids in order of worth, their weights, and the objective."""

    ids: Ids
    weights: Floats
    f: float


def _step(
    shards: Shards,
    problem: SparseProblem,
    between: Between,
    target: Array,
    rules: ThresholdingRules,
    place: Array,
) -> Array:
    """Compute the gradient ``g`` in all blocks; return how far to go along it.

    The objective falls along ``g`` at first by ``|g|^2``, and its second derivative is
    ``2 |Phi g|^2 + 2 beta |g|^2``.
    """
    whole, residual = rules.step == "exact", between.image - target
    image, squared = shards.sum(find_gradient, problem, between, residual, whole, place)
    if not whole:
        parts = shards.map(steepest, problem.budget)
        ids = np.concatenate([part[0] for part in parts])
        best = largest(np.concatenate([part[1] for part in parts]), problem.budget, ids)
        active = np.union1d(ids[best], _support(between))
        image, squared = shards.sum(on_active, problem, active, place)
    curvature = namespace(image).sum(image * image) + problem.beta * squared
    return ratio(squared * (0.5 if whole else 0.25), curvature)


def _support(between: Between) -> Ids:
    """The items at which a point is not zero."""
    (new, values, _), (old, others, _) = (map(to_numpy, point) for point in between[:2])
    factor = float(between.factor)
    ids = np.union1d(new, old)
    total = np.zeros(len(ids))
    total[np.searchsorted(ids, new)] = (1 + factor) * values
    total[np.searchsorted(ids, old)] -= factor * others
    return np.asarray(ids[(total != 0) & (ids >= 0)])


def _kept(
    shards: Shards, problem: SparseProblem, length: Array, rules: ThresholdingRules, place: Array
) -> tuple[Array, Array, Factored, Array]:
    """The b worthiest items after a step: ids, values, vectors and variances."""
    parts = shards.map(worthiest, problem, length, rules, place)
    xp: Any = namespace(place)
    if len(parts) == 1 and parts[0].vectors is not None and parts[0].variances is not None:
        return parts[0].ids, parts[0].stepped, parts[0].vectors, parts[0].variances
    ids, worth, stepped = (xp.concat([part[j] for part in parts]) for j in range(3))
    if isinstance(place, np.ndarray):
        best = largest(worth, problem.budget, ids)
        vectors, variances = compute_vectors(shards.rows(ids[best]), problem.law, place)
        return ids[best], stepped[best], vectors, variances
    vectors, variances = concat([p.vectors for p in parts]), xp.concat([p.variances for p in parts])
    best = largest_by_id(worth, xp.argsort(ids), problem.budget)
    near = Factored(*(factor[best] for factor in (vectors.a, vectors.h)))
    return ids[best], stepped[best], near, variances[best]


def _momentum(new: Point, old: Point, target: Array, beta: float) -> Array:
    """How far beyond the new iterate, in steps from the old one, the objective is lowest."""
    xp = namespace(new.values)
    places = xp.searchsorted(new.ids, old.ids).clip(max=new.ids.shape[0] - 1)
    both = (new.ids[places] == old.ids) & (old.ids >= 0)
    change = xp.concat([new.values, xp.zeros_like(new.values[:1])])
    change[xp.where(both, places, xp.full_like(places, new.ids.shape[0]))] -= old.values
    change = change[:-1]
    left = xp.where(both, xp.zeros_like(old.values), old.values)
    moved = new.image - old.image
    pull = xp.sum((new.values - 1) * change) + xp.sum(left)
    slope = xp.sum((new.image - target) * moved) + beta * pull
    squared = xp.sum(change * change) + xp.sum(left * left)
    return -ratio(slope, xp.sum(moved * moved) + beta * squared)


def _iterate(
    shards: Shards,
    problem: SparseProblem,
    rules: ThresholdingRules,
    place: Array,
    constants: Arrays,
    state: Arrays,
) -> tuple[Arrays, Arrays]:
    """One iteration, for `Scan`.

    The state is the new and the old iterate (three arrays each), the factor between them, and the
    last objective. Out come the objective, whether it stands still, ids and weights.
    """
    target, scale = constants
    between = Between(Point(*state[:3]), Point(*state[3:6]), state[6])
    length = _step(shards, problem, between, target, rules, place)
    ids, stepped, vectors, variances = _kept(shards, problem, length, rules, place)
    xp = namespace(target)
    fit = Fit(vectors, target, problem.budget, problem.beta)
    weights = debias_and_clip(fit, stepped.clip(min=0.0), rules.debias_steps)
    image = fit.image(weights)
    f = xp.sum((image - target) ** 2) + problem.beta * xp.sum((weights - 1) ** 2)
    f = f - problem.alpha * xp.sum(variances)
    order = xp.argsort(ids)
    new = Point(ids[order], weights[order], image)
    stands = (xp.abs(f - state[7]) <= scale) & xp.all(new.ids == between.new.ids)
    factor = _momentum(new, between.new, target, problem.beta)
    return (*new, *between.new, factor, f), (f, stands, ids, weights)


def run_thresholding(
    shards: Shards,
    problem: SparseProblem,
    rules: ThresholdingRules,
    iterations: int,
    place: Array | None = None,
) -> tuple[Iterate, int]:
    """The best of some iterates, and how many were made before standing still.

    Args:
        shards: the candidates.
        problem: the objective.
        rules: how an iteration is made.
        iterations: how many at most.
        place: an empty float64 array where the work is done; `labelwise.arrays.workplace` if None.
    """
    place = find_placement(shards) if place is None else place
    made = _made(shards, problem, rules, place)
    none = np.array(STANDSTILL * _scale(problem))
    constants = bring(problem.target, place), bring(none, place)
    state, best, number = made.state, None, 0
    while number < iterations:
        state, out = made.scan(constants, state, rounds=made.rounds)
        objectives, stands = to_numpy(out[0])[: iterations - number], to_numpy(out[1])
        count = int(np.argmax(stands)) + 1 if stands.any() else len(stands)
        objectives = objectives[:count]
        for at, objective in enumerate(objectives):
            if best is None or is_lower_objective(objective, best.f, problem):
                ids, weights = (to_numpy(column[at]) for column in out[2:])
                best = Iterate(ids, weights, float(objective))
            number += 1
            shards.progress("sparse_iht", number, iterations)
        if stands[: len(objectives)].any():
            break
    shards.map(forget)
    if best is None:
        raise AssertionError("at least one iteration is made")
    return best, number


def is_lower_objective(objective: float, other: float, problem: SparseProblem) -> bool:
    """Whether an objective is lower by more than rounding: how blocks are cut must not decide.

    Both are in the units of the problem.
    """
    return bool(objective < other - STANDSTILL * (_scale(problem) + abs(other)))


def _scale(problem: SparseProblem) -> float:
    return float(np.vdot(problem.target, problem.target)) + problem.beta * problem.budget


class _Made(NamedTuple):
    """How iterations are made, and how many of them between two checks for convergence."""

    scan: Any
    state: Arrays
    rounds: int


def _made(shards: Shards, problem: SparseProblem, rules: ThresholdingRules, place: Array) -> _Made:
    recorded = not isinstance(place, np.ndarray) and rules.step == "exact"
    recorded = recorded and all(shards.map(stays))
    shards.map(prepare, problem)
    step = partial(_iterate, shards, problem, rules, place)
    if not recorded:
        return _Made(partial(run_steps, step), _nothing(problem, place), 1)
    return _Made(Scan(step, 1), _nothing(problem, place), REPLAYED)


def _nothing(problem: SparseProblem, place: Array) -> Arrays:
    """The state before the first iteration: two points without items."""
    xp: Any = namespace(place)
    kind = {"device": device(place)}
    ids = xp.full((problem.budget,), -1, dtype=xp.int64, **kind)
    values, image = (
        xp.zeros((problem.budget,), dtype=place.dtype, **kind),
        bring(problem.target, place),
    )
    zero = xp.sum(values)
    return (ids, values, 0 * image, ids, values, 0 * image, zero, zero + xp.inf)
