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
Both fall as items are added, by a factor up to :math:`(|h|^2 / \lambda)^2`, and lose digits. They
are made anew once four digits are lost, and a ridge is refused beside which that would not help.

Cost: ``O(n d^2 K^2)`` once, then ``O(n d K^2)`` and ``O((K d)^2 K)`` per step. Memory: four
``K d x K d`` matrices and ``2 K^2`` numbers per candidate; ``memory_gib`` says how much may be
taken for either, and ``candidates`` picks from a random part of the pool only.

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
from labelwise.kernels.checks import check_choice, check_positive
from labelwise.kernels.information.fisher import fisher_roots
from labelwise.kernels.information.fisher_blocks import (
    ROUNDED,
    Best,
    Change,
    Plan,
    begin,
    best_of,
    block_fisher,
    chunks,
    forget,
)
from labelwise.kernels.scaling import find_scale
from labelwise.pool.blocks import LocalShards, Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, PickFacts

TASKS = ("auto", "classification", "regression")
LARGEST, LEAST = 2e7, 1e-100
"""The objective before any pick is between these; with a larger one, rounding would decide."""
FALLEN = 1e-4
"""What candidates keep is made anew once it has fallen so far, with as many digits lost."""
SMALLEST = 1e-280
"""The ridge is taken as this at least, in the units of the features."""
SUBSET = 12
"""The stream of noise by which a part of the pool is drawn."""


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
    count = len(shards) if candidates is None else min(candidates, len(shards))
    ids = shards.ids
    chosen = np.sort(ids[largest(row_noise(seed, ids, SUBSET), count, ids)])
    plan, fisher = _mean_fisher(shards, labelled, plan)
    anew = partial(_inverse, plan, ridge, labelled, budget)
    inverse = anew(None)
    before = float(np.vdot(inverse, fisher))
    _check_ridge(ridge, before, fisher)
    added, gains = _run(shards, plan, fisher, inverse, anew, chosen, min(2 * budget, count), -1)
    picked = LocalShards([Shard(added, shards.rows(added))])
    inverse = anew(picked.rows(added))
    dropped, _ = _run(picked, plan, fisher, inverse, anew, added, len(added) - budget, 1)
    kept = ~np.isin(added, dropped)
    info = {
        "task": "regression" if plan.regression else "classification",
        "candidates": count,
        "objective_before": before,
        "objective_after": float(np.vdot(inverse, fisher)),
    }
    return Choice(added[kept], scores=gains[kept], info=info)


def _plan(shards: Shards, labelled: Rows | None, budget: int, task: str) -> Plan:
    rows = shards.rows(shards.ids[:1])
    regression = task == "regression" or "probabilities" not in rows
    classes = 1 if regression else rows["probabilities"].shape[1]
    known = 0 if labelled is None else len(labelled["features"])
    scale = math.sqrt(budget / (known + budget))
    return Plan(regression, int(classes), int(rows["features"].shape[1]), scale)


def _mean_fisher(shards: Shards, labelled: Rows | None, plan: Plan) -> tuple[Plan, Floats]:
    """``F`` over all items, labelled ones too, ``(K d, K d)``, and the plan with its unit.

    Features times a number, and the ridge times its square, are the same problem.
    """
    fisher = shards.sum(block_fisher, plan)
    unit = find_scale(shards, float(np.trace(fisher)) / len(shards))
    if unit != 1:
        plan = plan._replace(unit=unit)
        fisher = shards.sum(block_fisher, plan)
    known = 0 if labelled is None else len(labelled["features"])
    if labelled is not None and known:
        fisher += block_fisher(Shard(np.arange(known), labelled), plan)
    return plan, fisher / (len(shards) + known)


def check_job(job: Job) -> None:
    """Reject options out of range, and problems that need more memory than allowed."""
    task, candidates = job.options["task"], job.options["candidates"]
    memory_gib, given = job.options["memory_gib"], "probabilities" in job.shapes
    check_choice("task", task, TASKS)
    if task == "classification" and not given:
        raise BadInput("bait needs probabilities for classification; give them or another task")
    check_positive("ridge", job.options["ridge"])
    if candidates is not None and candidates < job.budget:
        raise BadInput(
            f"candidates is {candidates} but budget is {job.budget}; give at least as many"
        )
    count = job.items if candidates is None else min(candidates, job.items)
    classes = job.width("probabilities") if given and task != "regression" else 1
    size = classes * job.width()
    matrices, kept = 4 * size**2 * 8 / 2**30, 2 * count * classes**2 * 8 / 2**30
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


def _inverse(
    plan: Plan, ridge: float, labelled: Rows | None, budget: int, picked: Rows | None
) -> Floats:
    """The inverse of ``M`` with the given picks, from its definition."""
    unit = np.eye(plan.classes * plan.dimension)
    ridge = min(max(ridge * plan.unit**2, SMALLEST), 1 / SMALLEST)
    seen = [rows for rows in (labelled, picked) if rows is not None and len(rows["features"])]
    if not seen:
        return unit / ridge
    known = 0 if labelled is None else len(labelled["features"])
    total = ridge * unit
    for rows in seen:
        share = (1 if rows is labelled else budget) / (known + budget)
        total += share * block_fisher(Shard(np.arange(len(rows["features"])), rows), plan)
    try:
        return np.asarray(linalg.cho_solve(linalg.cho_factor(total), unit))
    except np.linalg.LinAlgError as error:
        raise BadInput(ROUNDED) from error


def _check_ridge(ridge: float, before: float, fisher: Floats) -> None:
    """Refuse a ridge beside which rounding would decide; ``before`` is the objective at first."""
    if before > LARGEST:
        enough = 1.1 * ridge * before / LARGEST
        raise BadInput(
            f"ridge is {ridge:.3g}, and the information in the pool is {before:.1g} times that, "
            f"more than float64 can do; give a ridge of {enough:.2g} or more, or "
            "divide the features"
        )
    if before < LEAST and fisher.any():
        raise BadInput(
            f"ridge is {ridge:.3g}, and the information in the pool is only {before:.1g} times "
            "that, less than float64 can do; give a smaller ridge, or multiply the features"
        )


def _run(
    shards: Shards,
    plan: Plan,
    fisher: Floats,
    inverse: Floats,
    anew: Callable[[Rows], Floats],
    chosen: Ids,
    steps: int,
    sign: int,
) -> tuple[Ids, Floats]:
    """Add (sign -1) or take back (1) that many items, and bring the inverse up to date in place.

    Once what the candidates keep has fallen so far that its rounding counts, all is made anew.
    """
    if steps:
        shards.map(begin, plan, inverse, inverse @ fisher @ inverse, chosen)
    change: Change | None = None
    ids: list[int] = []
    worths, first = [], 0.0
    for step in range(steps):
        shards.progress("bait", step, steps)
        best = _best(shards, plan, change, sign)
        if sign < 0 and best.size < FALLEN * first:
            picks = np.array(ids, dtype=np.int64)
            inverse[:] = anew(shards.rows(picks))
            left = np.setdiff1d(chosen, picks)
            shards.map(begin, plan, inverse, inverse @ fisher @ inverse, left)
            best, first = _best(shards, plan, None, sign), 0.0
        first = first or best.size
        ids.append(best.item)
        worths.append(best.worth)
        change = _change(shards, plan, best.item, fisher, inverse, sign)
    shards.map(forget)
    return np.array(ids, dtype=np.int64), np.array(worths, dtype=np.float64)


def _best(shards: Shards, plan: Plan, change: Change | None, sign: int) -> Best:
    """Bring all blocks up to date and find the best candidate."""
    found = [best for best in shards.map(best_of, plan, change, sign) if best is not None]
    best = min(found, key=lambda best: (sign * best.worth, -sign * best.item))
    return best._replace(size=max(part.size for part in found))


def _change(
    shards: Shards, plan: Plan, item: int, fisher: Floats, inverse: Floats, sign: int
) -> Change:
    """What one item changes; the inverse is brought up to date in place."""
    rows = shards.rows(np.array([item], dtype=np.int64))
    ((_, h, p),) = chunks(rows, np.arange(1), plan)
    across = plan.scale * np.asarray(to_numpy(fisher_roots(h, p)))[0]
    reach = inverse @ across.T
    try:
        factor = np.linalg.cholesky(np.eye(len(across)) - sign * (across @ reach))
    except np.linalg.LinAlgError as error:
        raise BadInput(ROUNDED) from error
    root = linalg.solve_triangular(factor, reach.T, lower=True).T
    seen = fisher @ root
    image = inverse @ seen
    for first in range(0, len(inverse), 1024):
        inverse[first : first + 1024] += sign * (root[first : first + 1024] @ root.T)
    return Change(item, sign, root, image, root.T @ seen)


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


def explain_pick(facts: PickFacts) -> str:
    """Say why an item was picked."""
    return "Its label is expected to lower the error over the whole pool more than most others."


STRATEGY = PassStrategy(
    name="bait",
    needs=("features", "probabilities"),
    or_needs=(("features",),),
    choose=choose,
    good_for="linear heads with few classes, and regression; batches that serve the whole pool",
    reference="Ash, Goel, Krishnamurthy and Kakade, Gone Fishing: Neural Active Learning with "
    "Fisher Embeddings, NeurIPS 2021",
    cost=_cost,
    check=check_job,
    explain=explain_pick,
)
