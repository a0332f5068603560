r"""Volume sampling: a batch drawn with probability proportional to its squared volume.

With :math:`v_i` the whitened features, a batch :math:`S` of ``b`` items has the probability

.. math:: P(S) \propto \det \sum_{i \in S} v_i v_i^\top .

The plain least-squares fit on such a batch is unbiased: its expectation is the fit on the whole
pool, without weights. If the features have a higher rank than the budget, the first ``b`` principal
directions are used.

Items are removed one by one until ``b`` are left. With
:math:`Z = (\sum_{i \in S} v_i v_i^\top)^{-1}` over the remaining items, the next removed item has
probability proportional to :math:`1 - v_i^\top Z v_i`: an item is proposed uniformly and removed
with that probability, then :math:`Z` gets a rank-one update.

Cost: two passes over the features, ``O(n d^2)``, then ``O(d^2)`` per removed item; memory
``O(n d)``.

Reference: M. Dereziński, M. Warmuth, "Unbiased estimates for linear regression via volume
sampling", NeurIPS 2017, and "Reverse iterative volume sampling for linear regression", JMLR 2018.
"""

import numpy as np

from labelwise.arrays import Floats, Ids, to_numpy
from labelwise.kernels.checks import check_boolean
from labelwise.kernels.linear.bases import ModelColumns, SubdividedShards
from labelwise.kernels.linear.leverage import RowReader, whiten
from labelwise.kernels.linear.row_chunks import multiply_chunks
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference


def choose_volume_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    bias: bool = True,
    rtol: float | None = None,
) -> Choice:
    """Draw the picks.

    Options:
        bias: whether the linear model has a constant column.
        rtol: singular values up to this fraction of the largest count as zero; by default it
            follows the precision of the features.
    """
    shards = SubdividedShards(shards)
    columns = ModelColumns(None, bias)
    transform = whiten(shards, columns, rtol=rtol, principal=True).transform
    rank = transform.shape[1]
    rows = np.concatenate(shards.map(whiten_volume_rows, columns, transform[:, :budget]))
    order = np.argsort(shards.ids, kind="stable")  # draws must not depend on the order of rows
    rng = np.random.default_rng(seed if seed >= 0 else [-seed, 1])
    kept = sample_volume(rows[order], budget, rng)
    return Choice(shards.ids[order[kept]], info={"rank": rank, "directions": min(rank, budget)})


def whiten_volume_rows(shard: Shard, read: RowReader, transform: Floats) -> Floats:
    """The whitened rows of a block, ``(n, r)``, on the host."""
    out = np.empty((len(shard), transform.shape[1]))
    for start, product in multiply_chunks(read(shard.rows), transform, double=True):
        out[start : start + len(product)] = to_numpy(product)
    return out


def sample_volume(rows: Floats, size: int, rng: np.random.Generator) -> Ids:
    """Positions of a volume sample of ``(n, r)`` rows of rank ``r``, in random order.

    >>> sample_volume(np.diag([1.0, 2.0, 0.0]), 2, np.random.default_rng(0)).tolist()
    [0, 1]
    """
    alive = np.arange(len(rows))
    count, renewed = len(rows), len(rows)
    inverse = _invert_volume_gram(rows)
    while count > size:
        if count <= renewed // 2:  # removes the rounding errors of the updates
            inverse, renewed = _invert_volume_gram(rows[alive[:count]]), count
        # Proposals and thresholds in chunks; positions are scaled to the remaining items.
        for place, threshold in rng.random((min(count, 4096), 2)):
            position = int(place * count)
            row = rows[alive[position]]
            image = inverse @ row
            left = 1 - float(row @ image)
            if threshold < left:
                inverse += np.outer(image, image) / left
                count -= 1
                alive[position], alive[count] = alive[count], alive[position]
            if count == size or count <= renewed // 2:
                break
    return np.asarray(rng.permutation(np.sort(alive[:count])), dtype=np.int64)


def _invert_volume_gram(rows: Floats) -> Floats:
    return np.asarray(np.linalg.pinv(rows.T @ rows, hermitian=True))


def check_volume_job(job: Job) -> None:
    """Reject a bias that is not a truth value."""
    check_boolean("bias", job.options["bias"])


def estimate_volume_cost(job: Job) -> Cost:
    """The Gram matrix (twice if it is badly conditioned), then the whitened rows in memory."""
    width = min(job.width() + 1, max(job.budget, 1))
    return Cost(
        passes=(2, 5),
        usual=2,
        columns=2 * job.width(),
        item_bytes=24.0 * width + 72.0,
        held_bytes=job.gram_bytes,
    )


STRATEGY = PassStrategy(
    name="volume",
    needs=("features",),
    several=True,
    draws=True,
    choose=choose_volume_batch,
    good_for="a baseline for linear models: its plain least-squares fit is unbiased",
    reference=read_reference(__doc__),
    cost=estimate_volume_cost,
    check=check_volume_job,
    explain="Drawn so that the picks span a large volume of the features.",
)
