r"""LCMD (largest cluster maximum distance): pick the farthest item of the heaviest cluster.

Centers are the labelled items, then the picks. Every candidate belongs to its nearest center; with
:math:`d_i` its squared distance to it, a cluster weighs :math:`\sum_i d_i`. The next pick is the
candidate of largest :math:`d_i` in the heaviest cluster. It is farthest-first with a sum per
cluster: outliers alone do not attract picks. Without any center the first pick is the longest row.

Ties: a candidate stays with the earlier of two centers at the same distance, the earlier of two
clusters of the same weight is split, the smaller id is picked.

Cost: one product of the features with a column per pick, ``n d``. Rows that may belong to the pick
by this product are measured again in float64. Memory: a few numbers per item.

Reference: D. Holzmueller, V. Zaverkin, J. Kaestner, I. Steinwart, "A Framework and Benchmark for
Deep Batch Active Learning for Regression", JMLR 24, 2023.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    comparable,
    float64,
    largest,
    like,
    precision,
    row_noise,
    row_products,
    squared_distances,
    squared_norms,
    take,
    to_numpy,
)
from labelwise.errors import BadInput
from labelwise.kernels.checks import is_number
from labelwise.kernels.distance.embedding import DISTANCE_ROUNDING, MovedReader, move_near_origin
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference
from labelwise.threads import split_range

CHUNK = 1 << 20  # Numbers that are converted to float64 at a time
KEY = "lcmd"
NOISE_STREAM = 41


def read_lcmd_rows(rows: Rows) -> Array:
    """The rows to measure: features, or the gradient sketch."""
    return rows["features" if "features" in rows else "gradient_sketch"]


@dataclass
class LcmdBlock:
    """The state of a block; arrays have one entry per candidate."""

    norms: Floats  # squared norms of the moved rows
    # Squared distances to the nearest center; infinite without one, minus infinity for picks
    distances: Floats
    owners: NDArray[np.int64]  # number of the nearest center


class ClusterSummary(NamedTuple):
    """Clusters of a block, in the order of their centers."""

    weights: Floats  # sums of squared distances
    farthest: Floats  # largest squared distances; minus infinity for an empty cluster
    ids: Ids  # of the farthest candidates, the smallest one of several


def choose_lcmd_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    random_share: float = 0.0,
) -> Choice:
    """Pick the farthest item of the heaviest cluster, ``budget`` times.

    Options:
        random_share: share of the batch, its first picks, that is drawn at random, for pools whose
            distances may mislead.
    """
    reader = move_near_origin(shards, read_lcmd_rows)
    picks: list[int] = []
    scores: list[float] = []
    known = None if labelled is None else to_numpy(float64(read_lcmd_rows(labelled)))
    started = shards.map(_start_lcmd_block, reader, known)
    lengths, summaries = [one[0] for one in started], [one[1] for one in started]
    drawn = _draw_random_picks(shards, round(random_share * budget), seed)
    if known is None and not drawn:
        longest = max(length for length, _ in lengths)
        picks.append(min(item for length, item in lengths if length == longest))
        scores.append(longest)
    centers = 0 if known is None else len(known)
    while len(picks) < budget:
        if picks:
            rows = shards.rows(np.array(picks[-1:], dtype=np.int64))
            center = to_numpy(float64(read_lcmd_rows(rows)))
            summaries = shards.map(_add_lcmd_center, reader, picks[-1], center, centers)
            centers += 1
        drawing = len(picks) < len(drawn)
        item, score = (drawn[len(picks)], 0.0) if drawing else _find_next_lcmd(shards, summaries)
        picks.append(item)
        scores.append(score)
        shards.progress("lcmd", len(picks), budget)
    squares = reader.unscale_squares(np.array(scores))
    if np.isinf(squares).any():
        raise BadInput("squared distances of the rows are infinite; scale them down")
    return Choice(np.array(picks, dtype=np.int64), scores=squares, info={"clusters": centers})


def _draw_random_picks(shards: Shards, count: int, seed: int) -> list[int]:
    """Ids of random candidates."""
    noise = row_noise(seed, shards.ids, NOISE_STREAM)
    return [int(item) for item in shards.ids[largest(noise, count, shards.ids)]]


def check_lcmd_job(job: Job) -> None:
    """Reject a share out of range."""
    share = job.options["random_share"]
    if not (is_number(share) and 0 <= share <= 1):
        raise BadInput(f"random_share must be a number from 0 to 1; got {share!r}")


def _find_next_lcmd(shards: Shards, summaries: Sequence[ClusterSummary]) -> tuple[int, float]:
    """The farthest candidate of the heaviest cluster; the smallest id if all distances are 0."""
    weights = comparable(np.sum([one.weights for one in summaries], axis=0))
    heaviest = int(np.argmax(weights))
    if weights[heaviest] <= 0:
        return min(one for one in shards.map(_find_smallest_id) if one is not None), 0.0
    farthest = max(one.farthest[heaviest] for one in summaries)
    ties = [int(one.ids[heaviest]) for one in summaries if one.farthest[heaviest] == farthest]
    return min(ties), float(farthest)


def _start_lcmd_block(
    shard: Shard, reader: MovedReader, known: Floats | None
) -> tuple[tuple[float, int], ClusterSummary]:
    """Assign candidates to labelled items; the longest row, its id and the clusters."""
    features = read_lcmd_rows(shard.rows)
    count, plain = len(shard), reader.without_shift()
    norms, lengths, owners = np.empty(count), np.empty(count), np.zeros(count, dtype=np.int64)
    distances = np.full(count, np.inf)
    step = max(CHUNK // max(features.shape[1], 1), 64)
    for span in split_range(count, step):
        norms[span] = to_numpy(squared_norms(float64(reader.move(features[span]))))
        lengths[span] = to_numpy(squared_norms(plain.move(float64(features[span]))))
        if known is not None:
            owners[span], distances[span] = _find_nearest_centers(
                plain.move(float64(features[span])), plain.move(known)
            )
    lengths = comparable(lengths)
    block = LcmdBlock(norms, distances, owners)
    shard.state[KEY] = block
    longest = float(lengths.max(initial=-np.inf))
    first = min(shard.ids[lengths == longest].tolist(), default=-1)
    summary = _summarise_clusters(block, shard.ids, 0 if known is None else len(known))
    return (longest, first), summary


def _find_nearest_centers(rows: Array, centers: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Number of the nearest center of every row, the earlier one of two, and its distance."""
    rows = to_numpy(rows)
    owners, distances = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), np.inf)
    approximate = squared_distances(rows, centers)
    slack = 64 * np.finfo(np.float64).eps * (squared_norms(rows)[:, None] + squared_norms(centers))
    close = approximate - slack <= (approximate + slack).min(axis=1, keepdims=True)
    places, numbers = np.nonzero(close)
    exact = comparable(_measure_differences(rows[places], centers[numbers]))
    order = np.lexsort((numbers, exact, places))
    first = order[np.r_[True, np.diff(places[order]) > 0]] if len(order) else order
    owners[places[first]], distances[places[first]] = numbers[first], exact[first]
    return owners, distances


def _add_lcmd_center(
    shard: Shard, reader: MovedReader, pick: int, center: Floats, number: int
) -> ClusterSummary:
    """Count a pick, ``(1, d)``, as a center of this number, and summarise the clusters."""
    block: LcmdBlock = shard.state[KEY]
    features = read_lcmd_rows(shard.rows)
    bounds = _bound_center_distances(features, block.norms, reader, center)
    plain = reader.without_shift()
    center = plain.move(center)
    closer = np.flatnonzero(bounds < block.distances)
    step = max(CHUNK // max(features.shape[1], 1), 64)
    for span in split_range(len(closer), step):
        some = closer[span]
        rows = to_numpy(plain.move(float64(take(features, some))))
        exact = comparable(_measure_differences(rows, center))
        nearer = exact < block.distances[some]
        block.distances[some[nearer]] = exact[nearer]
        block.owners[some[nearer]] = number
    block.distances[shard.ids == pick] = -np.inf
    return _summarise_clusters(block, shard.ids, number + 1)


def _bound_center_distances(
    features: Array, norms: Floats, reader: MovedReader, center: Floats
) -> Floats:
    """Lower bounds of the squared distances of all rows to a center, ``(n,)``."""
    moved = reader.move(features)
    there = reader.move(like(center, moved, dtype=moved.dtype))
    products = to_numpy(row_products(moved, there))[:, 0].astype(np.float64)
    sums = norms + float(squared_norms(float64(there))[0])
    return sums * (1 - DISTANCE_ROUNDING * precision(moved)) - 2 * products


def _measure_differences(rows: Floats, centers: Floats) -> Floats:
    """Squared distance of every row to the center at the same position, or to the only one."""
    return np.asarray(squared_norms(rows - centers))


def _summarise_clusters(block: LcmdBlock, ids: Ids, centers: int) -> ClusterSummary:
    """Weights and farthest candidates of all clusters."""
    distances, owners = block.distances, block.owners
    farthest = np.full(centers, -np.inf)
    first = np.full(centers, np.iinfo(np.int64).max)
    if not centers:
        return ClusterSummary(np.zeros(0), farthest, first)
    weights = np.bincount(owners, np.maximum(distances, 0), minlength=centers).astype(np.float64)
    np.maximum.at(farthest, owners, distances)
    places = np.flatnonzero(distances == farthest[owners])
    np.minimum.at(first, owners[places], ids[places])
    return ClusterSummary(weights, farthest, first)


def _find_smallest_id(shard: Shard) -> int | None:
    """The smallest id that is not picked yet."""
    left = shard.ids[shard.state[KEY].distances > -np.inf]
    return int(left.min()) if len(left) else None


def estimate_lcmd_cost(job: Job) -> Cost:
    """Norms and labelled items, then at most a pass per pick."""
    return Cost(
        passes=(1, job.budget + 1),
        usual=job.budget + 1,
        columns=2 * (job.labelled + job.budget),
        item_bytes=152.0,
        state_bytes=24.0,
        held_bytes=64.0 * CHUNK,
    )


STRATEGY = PassStrategy(
    name="lcmd",
    needs=("features",),
    or_needs=(("gradient_sketch",),),
    choose=choose_lcmd_batch,
    good_for="regression: spread-out items of the parts of the pool that labels cover worst",
    reference=read_reference(__doc__),
    cost=estimate_lcmd_cost,
    check=check_lcmd_job,
    explain="It is the farthest item of the group of items that labels cover worst.",
)
