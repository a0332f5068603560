r"""BAIT: pick the batch that minimizes the expected error over the pool, by Fisher information.

The Fisher information of the last layer at item :math:`i` is :math:`V_i^\top V_i`
(`kernels.information.fisher`). With :math:`F` its mean over all items including labelled ones, the
batch minimizes :math:`\mathrm{tr}(M^{-1} F)`, where

.. math:: M = \lambda I + \frac{m}{m + b} F_L + \frac{b}{m + b} \sum_{i \in S} V_i^\top V_i

for ``m`` labelled items with mean :math:`F_L`. First ``2 b`` items are added one at a time, each
the one that lowers the trace most, by

.. math:: \mathrm{tr} [V M^{-1} F M^{-1} V^\top (I + V M^{-1} V^\top)^{-1}] ;

then ``b`` are removed, each the one that raises it least (the same with a minus).

Each candidate keeps two ``K x K`` matrices, so that an update costs ``d K^2`` instead of
``d^2 K^2``. Both fall as items are added, by a factor up to :math:`(|h|^2 / \lambda)^2`, and lose
digits. They are recomputed once four digits are lost; a ridge for which that is not enough is
rejected. Features of more than ``directions`` columns are projected first to the directions in
which they have the largest mean square, and ``d`` is their number from then on.

Cost: ``O(n d^2 K^2)`` once, then ``O(n d K^2)`` and ``O((K d)^2 K)`` per step. Memory: four
``K d x K d`` matrices and ``2 K^2`` numbers per candidate, and ``d + K`` more if features are
projected; ``memory_gib`` limits either, and ``candidates`` picks from a random part of the pool.

Reference: J. Ash, S. Goel, A. Krishnamurthy, S. Kakade, "Gone Fishing: Neural Active Learning with
Fisher Embeddings", NeurIPS 2021.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import linalg

from labelwise.arrays import Floats, Ids, largest, row_noise, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.checks import check_choice, check_integer, check_positive
from labelwise.kernels.information.fisher import (
    KEY,
    ROUNDED,
    BestCandidate,
    FisherPlan,
    InverseUpdate,
    find_best_fisher_candidate,
    find_feature_directions,
    fisher_roots,
    iterate_chunks,
    start_fisher_candidates,
    sum_fisher_information,
)
from labelwise.kernels.scaling import find_scale
from labelwise.pool.blocks import LocalShards, Shard, Shards, drop_state
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference

TASKS = ("auto", "classification", "regression")
LARGEST, LEAST = 2e7, 1e-100
"""Limits of the objective before any pick; outside of them rounding would decide."""
RECOMPUTED = 1e-4
"""The candidates' matrices are recomputed once they have fallen by this factor."""
SMALLEST_RIDGE = 1e-280
"""In the units of the features."""
NOISE_STREAM = 12


def choose_bait_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    task: str = "auto",
    ridge: float = 1.0,
    candidates: int | None = None,
    directions: int | None = 128,
    memory_gib: float = 4.0,
) -> Choice:
    """Add twice the budget, then remove the budget.

    Args:
        shards: ``features`` ``(n, d)``, and for classification ``probabilities`` ``(n, K)``.
        labelled: the same of the labelled items.
        budget: number of items.
        seed: decides the drawn part of the pool, with ``candidates``.
        task: ``"classification"``, ``"regression"``, or ``"auto"``: classification where there are
            probabilities.
        ridge: lambda, above 0.
        candidates: pick from this many items only, drawn from the pool; None for all. All items
            count in ``F``.
        directions: project wider features to this many directions, those of largest mean square
            over the pool; None for the features as they are.
        memory_gib: limit for the matrices, and for what all candidates keep.
    """
    plan = _make_fisher_plan(shards, labelled, budget, task, directions)
    count = len(shards) if candidates is None else min(candidates, len(shards))
    ids = shards.ids
    chosen = np.sort(ids[largest(row_noise(seed, ids, NOISE_STREAM), count, ids)])
    plan, fisher = _average_fisher(shards, labelled, plan)
    recompute = partial(_invert_fisher_information, plan, ridge, labelled, budget)
    inverse = recompute(None)
    before = float(np.vdot(inverse, fisher))
    _check_bait_ridge(ridge, before, fisher)
    added, gains = _add_or_remove_items(
        shards, plan, fisher, inverse, recompute, chosen, min(2 * budget, count), -1
    )
    # The removals see the added items only, which fit in memory.
    picked = LocalShards([Shard(added, shards.rows(added))])
    inverse = recompute(picked.rows(added))
    dropped, _ = _add_or_remove_items(
        picked, plan, fisher, inverse, recompute, added, len(added) - budget, 1
    )
    kept = ~np.isin(added, dropped)
    info = {
        "task": "regression" if plan.regression else "classification",
        "candidates": count,
        "objective_before": before,
        "objective_after": float(np.vdot(inverse, fisher)),
    }
    return Choice(added[kept], scores=gains[kept], info=info)


def _make_fisher_plan(
    shards: Shards, labelled: Rows | None, budget: int, task: str, directions: int | None
) -> FisherPlan:
    rows = shards.rows(shards.ids[:1])
    regression = task == "regression" or "probabilities" not in rows
    classes = 1 if regression else rows["probabilities"].shape[1]
    known = 0 if labelled is None else len(labelled["features"])
    scale = math.sqrt(budget / (known + budget))
    width = int(rows["features"].shape[1])
    basis = None if directions is None else find_feature_directions(shards, directions)
    width = width if basis is None else basis.shape[1]
    return FisherPlan(regression, int(classes), width, scale, directions=basis)


def _average_fisher(
    shards: Shards, labelled: Rows | None, plan: FisherPlan
) -> tuple[FisherPlan, Floats]:
    """``F`` over all items including labelled ones, ``(K d, K d)``, and the plan with its unit.

    Features times a number, and the ridge times its square, are the same problem.
    """
    fisher = shards.sum(sum_fisher_information, plan)
    unit = find_scale(shards, float(np.trace(fisher)) / len(shards))
    if unit != 1:
        plan = plan._replace(unit=unit)
        fisher = shards.sum(sum_fisher_information, plan)
    known = 0 if labelled is None else len(labelled["features"])
    if labelled is not None and known:
        fisher += sum_fisher_information(Shard(np.arange(known), labelled), plan)
    return plan, fisher / (len(shards) + known)


def check_bait_job(job: Job) -> None:
    """Reject options out of range, and problems that need more memory than allowed."""
    task, candidates = job.options["task"], job.options["candidates"]
    memory_gib, given = job.options["memory_gib"], "probabilities" in job.shapes
    check_choice("task", task, TASKS)
    if task == "classification" and not given:
        raise BadInput("bait needs probabilities for classification; give them or another task")
    check_positive("ridge", job.options["ridge"])
    if job.options["directions"] is not None:
        check_integer("directions", job.options["directions"], 1)
    if candidates is not None and not candidates >= job.budget:  # NaN too
        raise BadInput(
            f"candidates is {candidates} but budget is {job.budget}; give at least as many"
        )
    count = job.items if candidates is None else min(candidates, job.items)
    classes = job.width("probabilities") if given and task != "regression" else 1
    size = classes * _count_bait_directions(job)
    projected = size // classes + classes if size < classes * job.width() else 0
    matrices, kept = 4 * size**2 * 8 / 2**30, count * (2 * classes**2 + projected) * 8 / 2**30
    if matrices > memory_gib:
        raise BadInput(
            f"bait needs {matrices:.3g} GiB for matrices of {size} rows (classes times features) "
            f"but memory_gib is {memory_gib}; lower directions, merge classes or raise it"
        )
    if kept > memory_gib:
        raise BadInput(
            f"bait needs {kept:.3g} GiB to keep {count} candidates but memory_gib is {memory_gib}; "
            "set candidates to fewer or raise it"
        )


def _count_bait_directions(job: Job) -> int:
    return min(job.width(), job.options["directions"] or job.width())


def _invert_fisher_information(
    plan: FisherPlan, ridge: float, labelled: Rows | None, budget: int, picked: Rows | None
) -> Floats:
    """The inverse of ``M`` with the given picks, from its definition."""
    unit = np.eye(plan.classes * plan.dimension)
    ridge = min(max(ridge * plan.unit**2, SMALLEST_RIDGE), 1 / SMALLEST_RIDGE)
    seen = [rows for rows in (labelled, picked) if rows is not None and len(rows["features"])]
    if not seen:
        return unit / ridge
    known = 0 if labelled is None else len(labelled["features"])
    total = ridge * unit
    for rows in seen:
        share = (1 if rows is labelled else budget) / (known + budget)
        total += share * sum_fisher_information(Shard(np.arange(len(rows["features"])), rows), plan)
    try:
        return np.asarray(linalg.cho_solve(linalg.cho_factor(total), unit))
    except np.linalg.LinAlgError as error:
        raise BadInput(ROUNDED) from error


def _check_bait_ridge(ridge: float, before: float, fisher: Floats) -> None:
    """Reject a ridge with which rounding would decide; ``before`` is the initial objective."""
    if before > LARGEST:
        enough = 1.1 * ridge * before / LARGEST
        raise BadInput(
            f"ridge is {ridge:.3g}, and the information in the pool is {before:.1g} times that, "
            f"more than float64 can represent; give a ridge of {enough:.2g} or more, or "
            "divide the features"
        )
    if before < LEAST and fisher.any():
        raise BadInput(
            f"ridge is {ridge:.3g}, and the information in the pool is only {before:.1g} times "
            "that, less than float64 can represent; give a smaller ridge, or multiply the features"
        )


def _add_or_remove_items(
    shards: Shards,
    plan: FisherPlan,
    fisher: Floats,
    inverse: Floats,
    recompute: Callable[[Rows], Floats],
    chosen: Ids,
    steps: int,
    sign: int,
) -> tuple[Ids, Floats]:
    """Add (sign -1) or remove (1) some items, and update the inverse in place.

    Once the candidates' matrices have lost too many digits, everything is recomputed.
    """
    if steps:
        shards.map(start_fisher_candidates, plan, inverse, inverse @ fisher @ inverse, chosen)
    update: InverseUpdate | None = None
    ids: list[int] = []
    worths, first = [], 0.0
    for step in range(steps):
        shards.progress("bait", step, steps)
        best = _find_best_bait_item(shards, plan, update, sign)
        # The matrices have shrunk so far that four digits are lost: start again from the picks.
        if sign < 0 and best.size < RECOMPUTED * first:
            picks = np.array(ids, dtype=np.int64)
            inverse[:] = recompute(shards.rows(picks))
            left = np.setdiff1d(chosen, picks)
            shards.map(start_fisher_candidates, plan, inverse, inverse @ fisher @ inverse, left)
            best, first = _find_best_bait_item(shards, plan, None, sign), 0.0
        first = first or best.size
        ids.append(best.item)
        worths.append(best.worth)
        update = _update_fisher_inverse(shards, plan, best.item, fisher, inverse, sign)
    shards.map(drop_state, KEY)
    return np.array(ids, dtype=np.int64), np.array(worths, dtype=np.float64)


def _find_best_bait_item(
    shards: Shards, plan: FisherPlan, update: InverseUpdate | None, sign: int
) -> BestCandidate:
    """Update all blocks and find the best candidate."""
    found = [
        best
        for best in shards.map(find_best_fisher_candidate, plan, update, sign)
        if best is not None
    ]
    best = min(found, key=lambda best: (sign * best.worth, -sign * best.item))
    return best._replace(size=max(part.size for part in found))


def _update_fisher_inverse(
    shards: Shards, plan: FisherPlan, item: int, fisher: Floats, inverse: Floats, sign: int
) -> InverseUpdate:
    """The update by one item; the inverse is updated in place."""
    rows = shards.rows(np.array([item], dtype=np.int64))
    ((_, h, p),) = iterate_chunks(rows, np.arange(1), plan)
    across = plan.scale * np.asarray(to_numpy(fisher_roots(h, p)))[0]
    reach = inverse @ across.T
    try:
        factor = np.linalg.cholesky(np.eye(len(across)) - sign * (across @ reach))
    except np.linalg.LinAlgError as error:
        raise BadInput(ROUNDED) from error
    # Woodbury: the inverse changes by s W W^T, W W^T = M^-1 V^T (I - s V M^-1 V^T)^-1 V M^-1.
    root = linalg.solve_triangular(factor, reach.T, lower=True).T
    seen = fisher @ root
    image = inverse @ seen
    for first in range(0, len(inverse), 1024):
        inverse[first : first + 1024] += sign * (root[first : first + 1024] @ root.T)
    return InverseUpdate(item, sign, root, image, root.T @ seen)


def estimate_bait_cost(job: Job) -> Cost:
    """A pass per added item, unless projected features are kept; removed items are in memory."""
    classes, width = max(job.width("probabilities"), 1), _count_bait_directions(job)
    candidates, projected = job.options["candidates"] or job.items, width < job.width()
    share = min(candidates / max(job.items, 1), 1)
    kept = 8 * (width + classes) if projected else 0
    return Cost(
        passes=(2, 2 * job.budget + 3),
        usual=5 if projected else 2 * job.budget + 1,
        columns=classes**2 * (width + 4 * job.budget),
        item_bytes=56.0 + (24 * classes**2 + kept) * share,
        held_bytes=6 * 8.0 * (classes * width) ** 2 + 24.0 * job.width() ** 2,
        state_bytes=(16 * classes**2 + kept) * share,
        holds=f"two {classes} x {classes} matrices per candidate",
    )


STRATEGY = PassStrategy(
    name="bait",
    needs=("features", "probabilities"),
    or_needs=(("features",),),
    choose=choose_bait_batch,
    good_for="linear heads with few classes, and regression; batches that serve the whole pool",
    reference=read_reference(__doc__),
    cost=estimate_bait_cost,
    check=check_bait_job,
    explain="Its label is expected to lower the error over the whole pool more than most others.",
)
