r"""TypiClust: pick typical items of clusters without labels.

The pool is clustered into as many clusters as there will be labels (at most ``clusters``). Each
pick comes from the largest cluster among those with the fewest labels, and is its most typical
item: the one with the highest

.. math:: \Bigl( \tfrac{1}{k} \sum_{j \in \mathrm{NN}_k(i)} \lVert x_i - x_j \rVert \Bigr)^{-1} ,

over the :math:`k` nearest neighbours in its cluster. Each mean distance is increased by 1e-5 of the
cluster's average, so that duplicates have a finite score at any scale of the features. Made for few
labels, when a model's uncertainty is unreliable.

Cost: k-means, then all distances inside a cluster; in a cluster of more than `DENSE` items, among
the `DENSE` nearest its center.

Reference: G. Hacohen, A. Dekel, D. Weinshall, "Active Learning on a Budget: Opposite Strategies
Suit High and Low Budgets", ICML 2022.
"""

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, Ids, comparable, to_numpy
from labelwise.kernels.checks import check_integer
from labelwise.kernels.distance.kmeans import KMeansClusters, kmeans
from labelwise.kernels.scaling import binary_exponent
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference

DENSE = 4096
"""Items of a cluster that are compared with each other at most."""
TOLERANCE = 1e-2
"""k-means stops when a round lowers the inertia by less than this fraction."""
SOFTENING = 1e-5
"""Added to the mean distances, relative to their own mean."""


def choose_typiclust_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    clusters: int = 500,
    neighbours: int = 20,
) -> Choice:
    """Pick the most typical items of uncovered clusters.

    Options:
        clusters: at most.
        neighbours: nearest neighbours that typicality is measured with.
    """
    known = 0 if labelled is None else len(labelled["features"])
    count = min(known + budget, clusters, len(shards))
    found = kmeans(shards, count, seed, tolerance=TOLERANCE)
    covered = np.zeros(count, dtype=np.int64)
    if labelled is not None:
        covered = np.bincount(found.nearest(labelled["features"]), minlength=count)
    ids, scores = _pick_clusters_in_turn(shards, found, covered, budget, neighbours)
    return Choice(ids, scores=scores, info={"clusters": count, "inertia": found.inertia})


def check_typiclust_job(job: Job) -> None:
    """Reject a number of clusters or neighbours below 1."""
    check_integer("clusters", job.options["clusters"], 1)
    check_integer("neighbours", job.options["neighbours"], 1)


def _pick_clusters_in_turn(
    shards: Shards, found: KMeansClusters, covered: NDArray[np.int64], budget: int, neighbours: int
) -> tuple[Ids, Floats]:
    """Take items in turn: the cluster with the fewest labels first, then the largest."""
    sizes = np.bincount(found.labels, minlength=len(covered))
    left = sizes.copy()
    queues: dict[int, tuple[Ids, Floats]] = {}
    ids, scores = [], []
    for _ in range(budget):
        open_clusters = np.flatnonzero(left > 0)
        order = np.lexsort((open_clusters, -sizes[open_clusters], covered[open_clusters]))
        cluster = int(open_clusters[order[0]])
        if cluster not in queues:
            queues[cluster] = _rank_typical_items(shards, found, cluster, neighbours)
        turn = int(sizes[cluster] - left[cluster])
        ids.append(queues[cluster][0][turn])
        scores.append(queues[cluster][1][turn])
        covered[cluster] += 1
        left[cluster] -= 1
        shards.progress("typiclust", len(ids), budget)
    return np.array(ids, dtype=np.int64), np.array(scores)


def _rank_typical_items(
    shards: Shards, found: KMeansClusters, cluster: int, neighbours: int
) -> tuple[Ids, Floats]:
    """A cluster's items, the most typical first, and their typicality."""
    members = np.flatnonzero(found.labels == cluster)
    near = members[np.lexsort((shards.ids[members], comparable(found.distances[members])))]
    dense, rest = shards.ids[near[:DENSE]], shards.ids[near[DENSE:]]
    rows = to_numpy(shards.rows(dense)["features"]).astype(np.float64)
    typical = _compute_typicality(rows, min(neighbours, max(len(rows) - 1, 1)))
    order = np.lexsort((dense, -comparable(typical)))
    ids = np.concatenate([dense[order], rest])
    return ids, np.concatenate([typical[order], np.zeros(len(rest))])


def _compute_typicality(rows: Floats, neighbours: int) -> Floats:
    """One over the mean distance to the nearest neighbours, ``(n,)``; 1 if all are duplicates."""
    count, rows = len(rows), rows - rows[0]  # the cluster may be far from the origin
    largest = np.abs(rows).max()
    if not largest:
        return np.ones(count)
    size = 2.0 ** (binary_exponent(largest) - 1)  # a power of two: no rounding
    rows = rows / size
    means = np.empty(count)
    norms = np.einsum("id,id->i", rows, rows)
    for first in range(0, count, 512):
        block = rows[first : first + 512]
        squares = norms[first : first + 512, None] + norms - 2 * block @ rows.T
        own = np.arange(len(block))
        squares[own, first + own] = np.inf
        nearest = np.argpartition(squares, neighbours - 1, axis=1)[:, :neighbours]
        # computed directly, so that duplicates are at distance 0 exactly
        distances = [np.linalg.norm(block - rows[column], axis=1) for column in nearest.T]
        means[first : first + 512] = np.mean(distances, axis=0)
    softening = SOFTENING * (means.mean() or 1.0)  # 0 if every item has enough duplicates
    return np.asarray(1 / (means + softening) / size)


def estimate_typiclust_cost(job: Job) -> Cost:
    """k-means; then rows near the centers, one cluster at a time."""
    clusters = min(job.budget, job.options["clusters"])
    return Cost(
        passes=(1, clusters + 36),
        usual=10,
        columns=9 * (clusters + 16),
        item_bytes=112.0,
        state_bytes=32.0,
        held_bytes=DENSE * (16 * job.width() + 8 * 1024),
    )


STRATEGY = PassStrategy(
    name="typiclust",
    needs=("features",),
    choose=choose_typiclust_batch,
    draws=True,
    good_for="the first few labels, when a model's uncertainty is unreliable",
    reference=read_reference(__doc__),
    cost=estimate_typiclust_cost,
    check=check_typiclust_job,
    explain="It is typical of a group of similar items that has few labels or none yet.",
)
