r"""Far from the mean: pick the items least like the average of the pool.

The score of item :math:`i` is :math:`\lVert x_i - \bar x \rVert^2`, with :math:`\bar x` the mean of
all candidates. With the option ``nearest`` the most average items are picked instead.

Cost: two passes over the features, ``O(n d)``.
"""

import numpy as np

from labelwise import Rows, ScoreStrategy, Shard
from labelwise.arrays import Array, Floats, float64, like, namespace, squared_distances, to_numpy


def summarise(shard: Shard) -> tuple[Floats, int]:
    """The sum of a block's features, ``(d,)``, and how many items it has."""
    features = float64(shard.rows["features"])
    return to_numpy(namespace(features).sum(features, axis=0)), len(shard)


def score(
    rows: Rows,
    labelled: Rows | None,
    summary: list[tuple[Floats, int]],
    *,
    nearest: bool = False,
) -> Array:
    """The squared distance of every item of a block to the mean of all blocks, ``(n,)``.

    Options:
        nearest: whether the nearest items are picked rather than the farthest.
    """
    count = sum(items for _, items in summary)
    mean = np.sum([total for total, _ in summary], axis=0) / count
    features = float64(rows["features"])
    distances = squared_distances(features, like(mean[None, :], features))[:, 0]
    return -distances if nearest else distances


STRATEGY = ScoreStrategy(
    name="far_from_mean",
    needs=("features",),
    summarise=summarise,
    score=score,
    good_for="finding outliers, and learning how to write a strategy",
    reference="an example of these pages (2026); a real one has authors, title, venue and year",
)
