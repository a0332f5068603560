r"""k-means (Lloyd) over blocks of rows, for up to thousands of clusters.

Alternates between assigning every row to its nearest center and moving every center to the mean
of its rows. An empty cluster restarts at the row that is farthest from its own center, so that all
``k`` clusters survive as long as there are ``k`` distinct rows.

Cost: one matrix product ``n x d x k`` per round. Memory: a few numbers per row, ``k x d`` sums.

Reference: S. Lloyd, "Least Squares Quantization in PCM", IEEE Transactions on Information Theory
28 (2), 1982; seeding by D. Arthur, S. Vassilvitskii, "k-means++", SODA 2007.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, largest, like, namespace, squared_norms, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.distance.embedding import CHUNK, MovedReader, move_near_origin
from labelwise.kernels.distance.kmeans_plus_plus import draw_kmeans_plus_plus
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.scaling import binary_exponent
from labelwise.pool.blocks import ArrayOrShards, Shard, Shards, as_shards
from labelwise.pool.rows import Rows, read_features

KEY = "kmeans"


@dataclass(frozen=True)
class KMeansClusters:
    """Clusters of all rows, in the order of `Shards.ids`."""

    centres: Floats  # ``(k, d)`` float64
    labels: NDArray[np.int64]  # ``(n,)`` number of each row's cluster
    distances: Floats  # ``(n,)`` squared distance of each row to its centre
    rounds: int  # number of rounds
    moved: MovedReader  # the reader that moved the rows to keep distances precise

    @property
    def inertia(self) -> float:
        """The sum of squared distances, the objective of k-means."""
        return float(self.distances.sum())

    def nearest(self, rows: Array) -> NDArray[np.int64]:
        """Number of the nearest cluster of each new row, ``(m,)``."""
        return assign_to_centers(self.moved.move(rows), self.moved.move(self.centres))[0]


def kmeans(
    rows: ArrayOrShards,
    k: int,
    seed: int,
    *,
    rounds: int = 30,
    tolerance: float = 1e-4,
    read: Callable[[Rows], Array] = read_features,
) -> KMeansClusters:
    """Cluster rows.

    Args:
        rows: ``(n, d)`` array, or blocks.
        k: number of clusters, from 1 to ``n``.
        seed: determines the seeding.
        rounds: maximum number.
        tolerance: stop when a round lowers the inertia by less than this fraction.
        read: makes the ``(n, d)`` rows to cluster from a block's representations.
    """
    shards = as_shards(rows)
    if not 1 <= k <= len(shards):
        raise BadInput(f"k must be from 1 to {len(shards)}, the number of rows; got {k}")
    moved = move_near_origin(shards, read)
    ids, _ = draw_kmeans_plus_plus(shards, moved, k, seed, name="k-means++ seeding")
    centres = to_numpy(moved(shards.rows(ids))).astype(np.float64)
    before = np.inf
    done = 0
    while True:
        sums, counts, inertia = shards.sum(_assign_kmeans_block, moved, centres)
        if done == rounds or not before - inertia > tolerance * inertia:
            break
        before = inertia
        centres = _move_centers(shards, moved, centres, sums, counts)
        done += 1
        shards.progress("k-means", done, rounds)
    labels = np.concatenate(shards.map(lambda shard: shard.state[KEY][0]))
    squares = np.concatenate(shards.map(lambda shard: shard.state[KEY][1]))
    distances = moved.unscale_squares(squares)
    if np.isinf(distances).any():
        raise BadInput("squared distances of the rows are infinite; scale them down")
    return KMeansClusters(moved.move_back(centres), labels, distances, done, moved)


def _assign_kmeans_block(
    shard: Shard, read: Callable[[Rows], Array], centres: Floats
) -> tuple[Floats, Floats, float]:
    """Assign a block's rows; return their sums and counts by cluster, and their inertia."""
    rows = read(shard.rows)
    labels, distances = assign_to_centers(rows, centres)
    shard.state[KEY] = (labels, distances)
    counts = np.bincount(labels, minlength=len(centres)).astype(np.float64)
    return _sum_clusters(rows, labels, len(centres)), counts, float(distances.sum())


def assign_to_centers(rows: Array, centres: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The nearest centre of every row, ``(n,)``, and the squared distance to it, ``(n,)``."""
    xp = namespace(rows)
    points = like(centres, rows, dtype=rows.dtype)
    norms = squared_norms(points)[:, None]
    row_norms = squared_norms(rows)
    labels, distances = [], []
    step = max(CHUNK // len(centres), 64)
    for first in range(0, len(rows), step):
        block = xp.matmul(points, xp.matrix_transpose(rows[first : first + step]))
        block *= -2
        block += norms
        nearest = xp.argmin(block, axis=0)
        labels.append(to_numpy(nearest).astype(np.int64))
        distances.append(to_numpy(xp.min(block, axis=0) + row_norms[first : first + step]))
    if not labels:
        return np.empty(0, dtype=np.int64), np.empty(0)
    return np.concatenate(labels), np.maximum(np.concatenate(distances).astype(np.float64), 0)


def _sum_clusters(rows: Array, labels: NDArray[np.int64], k: int) -> Floats:
    """Sum of the rows of every cluster, ``(k, d)`` in float64, added in the order of the rows."""
    host = to_numpy(rows)
    sums = np.zeros((k, host.shape[1]))
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(k + 1))
    for cluster in range(k):
        mine = order[ends[cluster] : ends[cluster + 1]]
        np.add.reduce(host[mine], axis=0, dtype=np.float64, out=sums[cluster])
    return sums


def _move_centers(
    shards: Shards, read: Callable[[Rows], Array], centres: Floats, sums: Floats, counts: Floats
) -> Floats:
    """Move every centre to the mean of its rows; empty clusters to the farthest rows."""
    moved = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        parts = shards.map(_find_rows_far_from_centers, len(empty))
        ids = np.concatenate([part[0] for part in parts])
        distances = np.concatenate([part[1] for part in parts])
        far = ids[largest(distances, min(len(empty), len(ids)), ids)]
        moved[empty[: len(far)]] = to_numpy(read(shards.rows(far)))
    return moved


def _find_rows_far_from_centers(shard: Shard, count: int) -> tuple[Ids, Floats]:
    distances = shard.state[KEY][1]
    far = largest(distances, min(count, len(distances)), shard.ids)
    return shard.ids[far], distances[far]


def find_central_items(shards: Shards, clusters: KMeansClusters) -> tuple[Ids, Floats]:
    """For every cluster that has rows, the id of the row nearest its centre, and its distance."""
    centres = clusters.moved.move(clusters.centres)
    parts = shards.map(_center_distances, clusters.moved, centres)
    distances = clusters.moved.unscale_squares(np.concatenate(parts))
    ids = shards.ids
    order = np.lexsort((ids, _round_center_distances(distances, clusters.centres), clusters.labels))
    labels = clusters.labels[order]
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    best = order[starts]
    return ids[best], distances[best]


def _center_distances(shard: Shard, read: Callable[[Rows], Array], centres: Floats) -> Floats:
    """Squared distance of every row to the centre of its cluster, ``(n,)`` in float64.

    From differences, summed row by row: matrix products may round copies of a row differently.
    """
    rows, (labels, _) = read(shard.rows), shard.state[KEY]
    found, first = [], 0
    for (chunk,) in iterate_float64_chunks(rows):
        own = like(centres[labels[first : first + len(chunk)]], chunk)
        found.append(to_numpy(namespace(chunk).sum((chunk - own) ** 2, axis=1)))
        first += len(chunk)
    return np.concatenate(found)


def _round_center_distances(distances: Floats, centres: Floats) -> Floats:
    """The distances without digits that may be rounding noise, so that equal rows tie."""
    apart = squared_norms(centres - centres.mean(axis=0))
    scale = np.ldexp(1.0, binary_exponent(max(distances.max(), apart.max())))
    return np.asarray(np.round(distances / scale * 2.0**30))
