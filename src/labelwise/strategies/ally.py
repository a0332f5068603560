r"""ALLY: pick items with large predicted dual variables, spread over the pool.

A network is trained under one constraint per labelled item: its loss stays below a bound
(`labelwise.learners.primal_dual`). The dual variable :math:`\lambda_i \ge 0` of the constraint is
the sensitivity of the optimum to that bound. A regression head predicts :math:`\hat\lambda` for the
pool, and this strategy picks items with high and different ones:

=============  ===================================================================================
``diversity``  the batch
=============  ===================================================================================
``kmeans``     equal shares of ``clusters`` clusters: each of ``k`` clusters gives its
               ``floor(b / k)`` best, the ``b mod k`` clusters with the best top item one more;
               if small clusters give fewer, the best of the rest follow
``k_center``   the best item, then farthest-first (from labelled items too) among the
               ``candidates * b`` best
``kmeans++``   drawn one by one, in proportion to :math:`\hat\lambda_i D_i^2`, with :math:`D_i` the
               distance to the nearest pick; the first in proportion to :math:`\hat\lambda_i`
``noise``      drawn without replacement in proportion to :math:`\hat\lambda_i`
``none``       the ``b`` best
=============  ===================================================================================

Cost: k-means (``n d b`` per round); ``k_center`` farthest-first among the candidates; ``kmeans++``
one pass over the rows per pick, ``n d b`` in all; the others sort ``n`` numbers.

Reference: J. Elenter, N. NaderiAlizadeh, A. Ribeiro, "A Lagrangian Duality Approach to Active
Learning", NeurIPS 2022; for ``noise`` A. Kirsch and others, "Stochastic Batch Acquisition: A Simple
Baseline for Deep Active Learning", TMLR 2023.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    comparable,
    largest,
    namespace,
    precision,
    squared_distances,
    squared_norms,
    to_numpy,
    waiting_times,
)
from labelwise.errors import BadInput, UnknownName
from labelwise.files import JsonObject
from labelwise.kernels.checks import check_integer
from labelwise.kernels.distance.embedding import DISTANCE_ROUNDING, MovedReader, move_near_origin
from labelwise.kernels.distance.farthest import farthest_first
from labelwise.kernels.distance.kmeans import kmeans
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows, read_features
from labelwise.strategy import Choice, Cost, Job, PassStrategy, PickFacts, read_reference

KEY = "ally"
NOISE_STREAM = 1


class RankedItems(NamedTuple):
    """All items, best first: ids, predicted duals, and positions in `Shards.ids`."""

    ids: Ids
    duals: Floats
    positions: NDArray[np.intp]


class AllyOptions(NamedTuple):
    """Options of the strategy, and the seed."""

    clusters: int
    rounds: int
    candidates: int
    seed: int


Picks = tuple[NDArray[np.intp], JsonObject]
"""Positions in `RankedItems`, in the order of the picks, and diagnostics."""


def choose_ally_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    diversity: str = "kmeans",
    clusters: int | None = None,
    rounds: int = 30,
    candidates: int = 10,
) -> Choice:
    """Pick items with large predicted duals.

    Options:
        diversity: "kmeans" (the best of every cluster), "k_center" (farthest first among the best),
            "kmeans++" (drawn by dual times squared distance), "noise" (drawn by dual) or "none".
        clusters: ``kmeans``: number of clusters, at most the budget; None for the budget, as in
            the paper.
        rounds: ``kmeans``: at most.
        candidates: ``k_center``: number of candidates per pick.

    >>> import numpy as np
    >>> import labelwise
    >>> features = np.array([[0.0], [0.1], [0.2], [9.0]])
    >>> duals = np.array([3.0, 4.0, 2.0, 1.0])
    >>> labelwise.select("ally", 2, features=features, duals=duals).ids.tolist()
    [1, 3]
    >>> labelwise.select(
    ...     "ally", 2, features=features, duals=duals, diversity="none"
    ... ).ids.tolist()
    [1, 0]
    """
    pool = _rank_by_duals(shards)
    options = AllyOptions(budget if clusters is None else clusters, rounds, candidates, seed)
    picks, info = DIVERSITIES[diversity](shards, labelled, pool, budget, options)
    return Choice(pool.ids[picks], scores=pool.duals[picks], info=info)


def check_ally_job(job: Job) -> None:
    """Reject options out of range."""
    options = job.options
    if options["diversity"] not in DIVERSITIES:
        names = ", ".join(DIVERSITIES)
        raise UnknownName(f"no diversity is called {options['diversity']!r}; choose from {names}")
    clusters = job.budget if options["clusters"] is None else options["clusters"]
    check_integer("clusters", clusters, 1)
    if clusters > job.budget:
        raise BadInput(f"clusters must be from 1 to the budget, {job.budget}; got {clusters}")
    check_integer("rounds", options["rounds"], 0)
    check_integer("candidates", options["candidates"], 1)


def _rank_by_duals(shards: Shards) -> RankedItems:
    """All items by descending dual; equal ones by id."""
    duals = np.concatenate(shards.map(_read_duals))
    order = largest(comparable(duals), len(duals), shards.ids)
    return RankedItems(shards.ids[order], duals[order], order)


def _read_duals(shard: Shard) -> Floats:
    values = to_numpy(shard.rows["duals"]).astype(np.float64)
    wrong = ~np.isfinite(values) | (values < 0)
    if wrong.any():
        raise BadInput(
            f"duals must be finite and not negative; item {shard.ids[wrong][0]} has "
            f"{values[wrong][0]}"
        )
    return values


def _pick_highest_duals(
    shards: Shards, labelled: Rows | None, pool: RankedItems, budget: int, options: AllyOptions
) -> Picks:
    return np.arange(budget), {}


def _pick_duals_from_clusters(
    shards: Shards, labelled: Rows | None, pool: RankedItems, budget: int, options: AllyOptions
) -> Picks:
    """Pick the best of every cluster, in equal shares."""
    if options.clusters == 1:
        return pick_cluster_shares(np.zeros(len(pool.ids), dtype=np.int64), budget)
    found = kmeans(shards, options.clusters, options.seed, rounds=options.rounds)
    return pick_cluster_shares(found.labels[pool.positions], budget)


def pick_cluster_shares(labels: NDArray[np.int64], budget: int) -> Picks:
    """Take the best items until the shares of their clusters are used, then the best of the rest.

    Shares are over the clusters that have items: duplicates in the pool can leave others empty.
    ``labels`` ``(n,)`` has the cluster of every item, best item first.

    >>> picks, info = pick_cluster_shares(np.array([0, 0, 1, 1, 1]), 3)
    >>> picks.tolist(), info["shares"]
    ([0, 1, 2], [2, 1])
    """
    _, tops, cluster = np.unique(labels, return_index=True, return_inverse=True)
    count = len(tops)
    room = np.full(count, budget // count)
    room[np.argsort(tops)[: budget % count]] += 1
    by_cluster = np.argsort(cluster, kind="stable")
    sizes = np.bincount(cluster, minlength=count)
    # The rank of every item within its cluster.
    rank = np.empty(len(labels), dtype=np.int64)
    rank[by_cluster] = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    fits = rank < room[cluster]
    taken = np.flatnonzero(fits)
    filled = np.flatnonzero(~fits)[: budget - len(taken)]
    picks = np.concatenate([taken, filled])
    shares = np.bincount(cluster[picks], minlength=count)
    info = {"clusters": count, "shares": shares.tolist(), "filled": len(filled)}
    return picks, info


def _pick_farthest_duals(
    shards: Shards, labelled: Rows | None, pool: RankedItems, budget: int, options: AllyOptions
) -> Picks:
    """Pick farthest first among the best."""
    count = min(options.candidates * budget, len(pool.ids))
    others = 1 + np.argsort(pool.ids[1:count], kind="stable")  # equal distances: smaller id first
    rows = shards.rows(pool.ids[np.r_[0, others]])["features"]
    centers = [rows[:1]] if labelled is None else [rows[:1], labelled["features"]]
    center = namespace(rows).concat(centers)
    far = farthest_first(rows[1:], budget - 1, center)
    return np.r_[0, others[far]], {"candidates": count}


def _draw_by_duals(
    shards: Shards, labelled: Rows | None, pool: RankedItems, budget: int, options: AllyOptions
) -> Picks:
    """Draw without replacement in proportion to the duals: the shortest waiting times."""
    waits = waiting_times(options.seed, (NOISE_STREAM,), pool.duals, pool.ids)
    return np.lexsort((np.arange(len(waits)), waits))[:budget], {}


def _draw_duals_apart(
    shards: Shards, labelled: Rows | None, pool: RankedItems, budget: int, options: AllyOptions
) -> Picks:
    """Draw one by one, by the dual times the squared distance to the nearest pick."""
    read, drawn = move_near_origin(shards, read_features), list[int]()
    center: Array | None = None
    while len(drawn) < budget:
        wait, item = min(shards.map(_find_next_dual, read, center, options.seed, len(drawn)))
        if not np.isfinite(wait):
            break
        drawn.append(item)
        center = read(shards.rows(np.array([item])))
        shards.progress("ally", len(drawn), budget)
    by_id = np.argsort(pool.ids)
    picks = by_id[np.searchsorted(pool.ids, np.array(drawn, dtype=np.int64), sorter=by_id)]
    # Only duplicates of picks and items with dual 0 are left.
    rest = np.setdiff1d(np.arange(len(pool.ids)), picks)[: budget - len(picks)]
    return np.concatenate([picks, rest]), {"filled": len(rest)}


def _find_next_dual(
    shard: Shard, read: MovedReader, center: Array | None, seed: int, pick: int
) -> tuple[float, int]:
    """The shortest waiting time of a block, and its item."""
    if not len(shard):
        return np.inf, -1
    duals = to_numpy(shard.rows["duals"]).astype(np.float64)
    if center is None:
        rates = duals
        shard.state[KEY] = np.full(len(shard), np.inf)
    else:
        rates = duals * _update_nearest_pick(shard, read(shard.rows), center)
    waits = waiting_times(seed, (NOISE_STREAM, pick), rates, shard.ids)
    best = np.lexsort((shard.ids, waits))[0]
    return float(waits[best]), int(shard.ids[best])


def _update_nearest_pick(shard: Shard, rows: Array, center: Array) -> Floats:
    """Squared distance to the nearest pick, ``(n,)``; 0 where it is within rounding."""
    distances = to_numpy(squared_distances(rows, center)[:, 0]).astype(np.float64)
    norms = to_numpy(squared_norms(rows)).astype(np.float64)
    distances[distances <= DISTANCE_ROUNDING * precision(rows) * norms] = 0
    shard.state[KEY] = np.minimum(shard.state[KEY], distances)
    nearest: Floats = shard.state[KEY]
    return nearest


DIVERSITIES: dict[str, Callable[..., Picks]] = {
    "kmeans": _pick_duals_from_clusters,
    "k_center": _pick_farthest_duals,
    "kmeans++": _draw_duals_apart,
    "noise": _draw_by_duals,
    "none": _pick_highest_duals,
}


def estimate_ally_cost(job: Job) -> Cost:
    """A pass over the duals, and the passes that make the batch diverse."""
    diversity, rounds = job.options["diversity"], job.options["rounds"]
    if diversity == "kmeans":
        clusters = job.options["clusters"] or job.budget
        passes, usual, columns = clusters + rounds + 5, rounds + 4, (rounds + 2) * clusters
    elif diversity == "kmeans++":
        passes, usual, columns = job.budget + 1, job.budget + 1, 2 * job.budget
    else:
        passes, usual, columns = 1, 1, 0
    candidates = job.options["candidates"] * job.budget if diversity == "k_center" else 0
    return Cost(
        passes=(1, passes),
        usual=usual,
        columns=columns,
        item_bytes=136.0,
        state_bytes=32.0,
        held_bytes=32.0 * candidates * job.width(),
    )


def explain_ally_pick(facts: PickFacts) -> str:
    """Mention diversity only where the batch was spread out."""
    spread = {"clusters", "candidates", "filled"} & facts.info.keys()
    differs = ", and it differs from the other picks of this batch" if spread else ""
    return f"The model is expected to find it hard to fit{differs}."


STRATEGY = PassStrategy(
    name="ally",
    needs=("features", "duals"),
    choose=choose_ally_batch,
    draws=True,
    cost=estimate_ally_cost,
    check=check_ally_job,
    explain=explain_ally_pick,
    good_for="items that a constrained training finds hardest to satisfy; regression too",
    reference=read_reference(__doc__),
)
