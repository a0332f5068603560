r"""k-means: cluster the pool into ``budget`` clusters and pick the item nearest each center.

Picks are typical and spread out; no model is used. Picks are ordered by the size of their clusters,
largest first.

Cost: one matrix product ``n d b`` per round (`kernels.distance.kmeans`).

Reference: Z. Xu, K. Yu, V. Tresp, X. Xu, J. Wang, "Representative Sampling for Text Classification
Using Support Vector Machines", ECIR 2003.
"""

import numpy as np

from labelwise.arrays import row_noise
from labelwise.files import JsonObject
from labelwise.kernels.checks import check_integer
from labelwise.kernels.distance.kmeans import find_central_items, kmeans
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference


def choose_kmeans_batch(
    shards: Shards, labelled: Rows | None, budget: int, seed: int, *, rounds: int = 30
) -> Choice:
    """Pick one item per cluster; if duplicates leave clusters empty, add random items.

    Options:
        rounds: of moving the centers, at most; 0 keeps the drawn centers.
    """
    clusters = kmeans(shards, budget, seed, rounds=rounds)
    ids, distances = find_central_items(shards, clusters)
    sizes = np.bincount(clusters.labels, minlength=budget)
    sizes = sizes[sizes > 0]
    order = np.lexsort((ids, -sizes))
    ids, distances = ids[order], distances[order]
    info: JsonObject = {
        "clusters": len(ids),
        "inertia": clusters.inertia,
        "rounds": clusters.rounds,
    }
    if len(ids) < budget:
        rest = np.setdiff1d(shards.ids, ids)
        more = rest[np.argsort(row_noise(seed, rest), kind="stable")[: budget - len(ids)]]
        info["copies"] = f"only {len(ids)} clusters have rows of their own; the rest is random"
        ids = np.concatenate([ids, more])
        distances = np.concatenate([distances, np.zeros(len(more))])
    return Choice(ids, scores=-distances, info=info)


def check_kmeans_job(job: Job) -> None:
    """Reject a negative number of rounds."""
    check_integer("rounds", job.options["rounds"], 0)


def estimate_kmeans_cost(job: Job) -> Cost:
    """Seeding as in badge, and a pass per round; summing clusters costs some columns."""
    rounds = job.options["rounds"]
    return Cost(
        passes=(1, job.budget + rounds + 5),
        usual=rounds + 4,
        columns=(job.budget + 16) * (rounds + 2),
        item_bytes=88.0,
        state_bytes=32.0,
    )


STRATEGY = PassStrategy(
    name="kmeans",
    needs=("features",),
    choose=choose_kmeans_batch,
    draws=True,
    cost=estimate_kmeans_cost,
    check=check_kmeans_job,
    explain="It is the most typical item of a group of similar items.",
    good_for="typical, spread-out items for the first labels; needs no model",
    reference=read_reference(__doc__),
)
