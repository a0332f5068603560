r"""BAIT: pick the batch that leaves the least error over the whole pool, by Fisher information.

The Fisher information of the last layer at item :math:`i` is :math:`V_i^\top V_i`, where
:math:`V_i` has the rows :math:`\sqrt{p_c} (e_c - p) \otimes h_i`, so that
:math:`V_i^\top V_i = (\mathrm{diag}\, p - p p^\top) \otimes h_i h_i^\top`; for regression
:math:`V_i = h_i^\top`. With :math:`F` its mean over all items, labelled ones too, the batch is to
make :math:`\mathrm{tr}(M^{-1} F)` small, where

.. math:: M = \lambda I + \frac{m}{m + b} F_L + \frac{b}{m + b} \sum_{i \in S} V_i^\top V_i

for ``m`` labelled items with mean :math:`F_L`. Items are added one at a time, ``2 b`` of them, each
time that which lowers the trace most, by

.. math:: \mathrm{tr} [V M^{-1} F M^{-1} V^\top (I + V M^{-1} V^\top)^{-1}] ;

then ``b`` are taken back, each time that which raises it least (the same with a minus).

:math:`V_i` is never formed. Each candidate keeps :math:`V M^{-1} V^\top` and
:math:`V M^{-1} F M^{-1} V^\top`, ``K x K`` each, and a pick changes :math:`M^{-1}` by a matrix of
rank ``K``, so that bringing them up to date costs ``d K^2`` instead of ``d^2 K^2`` per candidate.

Cost: ``O(n d^2 K^2)`` once, then ``O(n d K^2)`` and ``O((K d)^2 K)`` per step. Memory: four
``K d x K d`` matrices and ``2 K^2`` numbers per candidate; ``memory_gib`` says how much may be
taken for either, and ``candidates`` picks from a random part of the pool only.

Reference: J. Ash, S. Goel, A. Krishnamurthy, S. Kakade, "Gone Fishing: Neural Active Learning with
Fisher Embeddings", NeurIPS 2021.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    comparable,
    device,
    float64,
    largest,
    like,
    namespace,
    row_noise,
    take,
    to_numpy,
)
from labelwise.blocks import LocalShards, Rows, Shard, Shards
from labelwise.errors import BadInput
from labelwise.kernels.fisher import fisher_products, fisher_roots, fisher_squares, fisher_sum
from labelwise.strategy import Choice, Cost, Job, PassStrategy

KEY = "bait"
TASKS = ("auto", "classification", "regression")
NUMBERS = 1 << 20
"""Numbers per temporary array."""
FISHER_ROWS = 8192
"""Rows whose Fisher information is summed up at a time."""
SUBSET = 12
"""The stream of noise by which a part of the pool is drawn."""


class Plan(NamedTuple):
    """``K`` (1 for regression), ``d``, and what the rows of ``V`` are multiplied by."""

    regression: bool
    classes: int
    dimension: int
    scale: float


class Change(NamedTuple):
    """What one item changes: the inverse of ``M`` becomes itself plus ``sign W W^T``.

    Attributes:
        item: its id.
        sign: -1 where it is added, 1 where it is taken back.
        root: ``W``, ``(K d, K)``.
        image: the inverse before times ``F W``, ``(K d, K)``.
        core: ``W^T F W``, ``(K, K)``.
    """

    item: int
    sign: int
    root: Floats
    image: Floats
    core: Floats


@dataclass
class Part:
    """The candidates of a block: where they are, and what they keep of ``M``.

    ``inner`` is ``V M^-1 V^T`` and ``outer`` is ``V M^-1 F M^-1 V^T``, both ``(n, K, K)``.
    """

    positions: NDArray[np.intp]
    ids: Ids
    open: NDArray[np.bool_]
    inner: Array
    outer: Array


def choose(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    task: str = "auto",
    ridge: float = 1.0,
    candidates: int | None = None,
    memory_gib: float = 4.0,
) -> Choice:
    """Add twice the budget, then take the budget back.

    Args:
        shards: ``features`` ``(n, d)``, and for classification ``probabilities`` ``(n, K)``.
        labelled: the same of the labelled items.
        budget: how many items.
        seed: decides the part of the pool that is looked at, with ``candidates``.
        task: ``"classification"``, ``"regression"``, or ``"auto"``: classification where there are
            probabilities.
        ridge: lambda, above 0.
        candidates: pick from that many items only, drawn from the pool; None for all. All items
            count in ``F``.
        memory_gib: the most memory for the matrices, and for what all candidates keep.
    """
    plan = _plan(shards, labelled, budget, task)
    count = _check(len(shards), plan, budget, ridge, candidates, memory_gib)
    ids = shards.ids
    chosen = np.sort(ids[largest(row_noise(seed, ids, SUBSET), count, ids)])
    fisher, inverse = _matrices(shards, labelled, budget, plan, ridge)
    before = float(np.vdot(inverse, fisher))
    added, gains = _run(shards, plan, fisher, inverse, chosen, min(2 * budget, count), -1)
    picked = LocalShards([Shard(added, shards.rows(added))])
    dropped, _ = _run(picked, plan, fisher, inverse, added, len(added) - budget, 1)
    kept = ~np.isin(added, dropped)
    info = {
        "task": "regression" if plan.regression else "classification",
        "candidates": count,
        "objective_before": before,
        "objective_after": float(np.vdot(inverse, fisher)),
    }
    return Choice(added[kept], scores=gains[kept], info=info)


def _plan(shards: Shards, labelled: Rows | None, budget: int, task: str) -> Plan:
    if task not in TASKS:
        raise BadInput(f"task must be one of {', '.join(TASKS)}; got {task!r}")
    rows = shards.rows(shards.ids[:1])
    given = "probabilities" in rows
    if task == "classification" and not given:
        raise BadInput("bait needs probabilities for classification; give them or another task")
    regression = task == "regression" or not given
    classes = 1 if regression else rows["probabilities"].shape[1]
    known = 0 if labelled is None else len(labelled["features"])
    scale = math.sqrt(budget / (known + budget))
    return Plan(regression, int(classes), int(rows["features"].shape[1]), scale)


def _check(
    n: int, plan: Plan, budget: int, ridge: float, candidates: int | None, memory_gib: float
) -> int:
    """Refuse what cannot be done; how many candidates there are."""
    if not (math.isfinite(ridge) and ridge > 0):
        raise BadInput(f"ridge must be a finite number above 0; got {ridge!r}")
    if candidates is not None and candidates < budget:
        raise BadInput(f"candidates is {candidates} but budget is {budget}; give at least as many")
    count = n if candidates is None else min(candidates, n)
    size = plan.classes * plan.dimension
    matrices, kept = 4 * size**2 * 8 / 2**30, 2 * count * plan.classes**2 * 8 / 2**30
    if matrices > memory_gib:
        raise BadInput(
            f"bait needs {matrices:.3g} GiB for matrices of {size} rows (classes times features) "
            f"but memory_gib is {memory_gib}; reduce the features (PCA), merge classes or raise it"
        )
    if kept > memory_gib:
        raise BadInput(
            f"bait needs {kept:.3g} GiB to keep {count} candidates but memory_gib is {memory_gib}; "
            "set candidates to fewer or raise it"
        )
    return count


def _matrices(
    shards: Shards, labelled: Rows | None, budget: int, plan: Plan, ridge: float
) -> tuple[Floats, Floats]:
    """``F`` and the inverse of ``M`` before any pick, ``(K d, K d)`` each."""
    fisher = shards.sum(_fisher, plan)
    unit = np.eye(len(fisher))
    known = 0 if labelled is None else len(labelled["features"])
    if labelled is None or not known:
        return fisher / len(shards), unit / ridge
    theirs = _fisher(Shard(np.arange(known), labelled), plan)
    inverse = linalg.cho_solve(linalg.cho_factor(theirs / (known + budget) + ridge * unit), unit)
    return (fisher + theirs) / (len(shards) + known), inverse


def _fisher(shard: Shard, plan: Plan) -> Floats:
    """The sum of ``V^T V`` over a block, ``(K d, K d)``."""
    total = np.zeros((plan.classes * plan.dimension,) * 2)
    for _, features, probabilities in _chunks(shard.rows, np.arange(len(shard)), plan, FISHER_ROWS):
        total += to_numpy(fisher_sum(features, probabilities))
    return total


def _chunks(
    rows: Rows, positions: NDArray[np.intp], plan: Plan, step: int = 0
) -> Iterator[tuple[slice, Array, Array | None]]:
    """Features and probabilities (None for regression) in float64, some rows at a time."""
    step = step or max(NUMBERS // (plan.classes * max(plan.dimension, plan.classes)), 1)
    for first in range(0, len(positions), step):
        at = slice(first, first + step)
        features = float64(take(rows["features"], positions[at]))
        if plan.regression:
            yield at, features, None
        else:
            yield at, features, float64(take(rows["probabilities"], positions[at]))


def _run(
    shards: Shards,
    plan: Plan,
    fisher: Floats,
    inverse: Floats,
    chosen: Ids,
    steps: int,
    sign: int,
) -> tuple[Ids, Floats]:
    """Add (sign -1) or take back (1) that many items, and bring the inverse up to date in place."""
    if steps:
        shards.map(_begin, plan, inverse, inverse @ fisher @ inverse, chosen)
    change: Change | None = None
    ids, worths = [], []
    for step in range(steps):
        shards.progress("bait", step, steps)
        found = [best for best in shards.map(_best, plan, change, sign) if best is not None]
        worth, item = min(found, key=lambda best: (sign * best[0], -sign * best[1]))
        ids.append(item)
        worths.append(worth)
        change = _change(shards, plan, item, fisher, inverse, sign)
    shards.map(_forget)
    return np.array(ids, dtype=np.int64), np.array(worths, dtype=np.float64)


def _begin(shard: Shard, plan: Plan, inverse: Floats, outer: Floats, chosen: Ids) -> None:
    """Give every candidate of a block its two matrices."""
    positions = np.flatnonzero(np.isin(shard.ids, chosen))
    features = shard.rows["features"]
    xp = namespace(features)
    shape = (len(positions), plan.classes, plan.classes)
    kept = [xp.empty(shape, dtype=xp.float64, device=device(features)) for _ in range(2)]
    for array, matrix in zip(kept, (inverse, outer), strict=True):
        there = like(matrix, features)
        for at, h, p in _chunks(shard.rows, positions, plan):
            array[at] = plan.scale**2 * fisher_squares(h, p, there)
    still = np.ones(len(positions), dtype=bool)
    shard.state[KEY] = Part(positions, shard.ids[positions], still, *kept)


def _best(shard: Shard, plan: Plan, change: Change | None, sign: int) -> tuple[float, int] | None:
    """Bring a block up to date; the worth and id of its best candidate, None if it has none."""
    part: Part = shard.state[KEY]
    if change is not None:
        part.open &= part.ids != change.item
        _advance(part, shard.rows, plan, change)
    if not part.open.any():
        return None
    xp = namespace(part.inner)
    unit = xp.eye(plan.classes, dtype=xp.float64, device=device(part.inner))
    solved = xp.linalg.solve(unit - sign * part.inner, part.outer)
    worth = comparable(xp.linalg.trace(solved))[part.open]
    ids = part.ids[part.open]
    best = largest(-sign * worth, 1, -sign * ids)[0]
    return float(worth[best]), int(ids[best])


def _advance(part: Part, rows: Rows, plan: Plan, change: Change) -> None:
    """Count one added or removed item in what the candidates keep."""
    xp = namespace(part.inner)
    for at, h, p in _chunks(rows, part.positions, plan):
        y = plan.scale * fisher_products(h, p, like(change.root, h))
        z = plan.scale * fisher_products(h, p, like(change.image, h))
        turned = xp.matrix_transpose(y)
        cross = xp.matmul(z, turned)
        core = xp.matmul(y, xp.matmul(like(change.core, h), turned))
        part.inner[at] += change.sign * xp.matmul(y, turned)
        part.outer[at] += change.sign * (cross + xp.matrix_transpose(cross)) + core


def _change(
    shards: Shards, plan: Plan, item: int, fisher: Floats, inverse: Floats, sign: int
) -> Change:
    """What one item changes; the inverse is brought up to date in place."""
    rows = shards.rows(np.array([item], dtype=np.int64))
    ((_, h, p),) = _chunks(rows, np.arange(1), plan)
    across = plan.scale * np.asarray(to_numpy(fisher_roots(h, p)))[0]
    reach = inverse @ across.T
    factor = np.linalg.cholesky(np.eye(len(across)) - sign * (across @ reach))
    root = linalg.solve_triangular(factor, reach.T, lower=True).T
    seen = fisher @ root
    image = inverse @ seen
    for first in range(0, len(inverse), 1024):
        inverse[first : first + 1024] += sign * (root[first : first + 1024] @ root.T)
    return Change(item, sign, root, image, root.T @ seen)


def _forget(shard: Shard) -> None:
    shard.state.pop(KEY, None)


def _cost(job: Job) -> Cost:
    """A pass per added item; the items that are taken back are at hand."""
    classes = max(job.width("probabilities"), 1)
    candidates = job.options["candidates"] or job.items
    return Cost(
        passes=(2, 2 * job.budget + 3),
        usual=2 * job.budget + 1,
        columns=classes**2 * (job.width() + 4 * job.budget),
        item_bytes=56.0 + 24 * classes**2 * min(candidates / max(job.items, 1), 1),
        held_bytes=6 * 8.0 * (classes * job.width()) ** 2,
        state_bytes=16 * classes**2 * min(candidates / max(job.items, 1), 1),
        holds=f"two {classes} x {classes} matrices per candidate",
        instead=("badge",),
    )


STRATEGY = PassStrategy(
    name="bait",
    needs=("features", "probabilities"),
    or_needs=(("features",),),
    choose=choose,
    good_for="linear heads with few classes, and regression; batches that serve the whole pool",
    reference="Ash, Goel, Krishnamurthy and Kakade, Gone Fishing: Neural Active Learning with "
    "Fisher Embeddings, NeurIPS 2021",
    cost=_cost,
)
