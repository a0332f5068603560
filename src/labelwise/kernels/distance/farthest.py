r"""Farthest-first traversal: repeatedly pick the item farthest from all centers so far.

With centers :math:`C`, the next pick maximizes :math:`\min_{c \in C} \lVert x_i - x_c \rVert^2`;
without any, it is the item farthest from the mean. Distances only fall as centers are added, so
picks are made in exact blocks (`labelwise.kernels.loop.picking`) and near ties are resolved in
float64.

Cost: at most :math:`n b d` multiplications, in matrix products; rows whose old distance is below
that of the current pick are skipped. Memory: a few numbers per row.

On a GPU, `FarthestAhead` measures all rows against the last block of picks with one matrix product,
measures a window of the ``w`` farthest rows in float64 against all centers and each other,
:math:`w^2 d`, and picks from it. Picks are certain while the farthest row is farther than every row
outside the window, and than the second farthest, by more than rounding.

Reference: T. Gonzalez, "Clustering to Minimize the Maximum Intercluster Distance", Theoretical
Computer Science 38, 1985.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from labelwise import arrays
from labelwise.arrays import Array, Floats, Ids, device, like, namespace, row_dots, to_numpy
from labelwise.kernels.distance.embedding import (
    DISTANCE_ROUNDING,
    Embedding,
    Factored,
    MovedReader,
    Read,
    concat_embeddings,
    count_embedding_numbers,
    inner_products,
    inner_products_with_matrix,
    make_embedding_block,
    move_near_origin,
    nearest_distances,
    split_embedding,
    squared_distances,
    squared_norms,
    take_embedding,
    to_float64,
)
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.loop.block_scores import KEY, BlockScores, Proposal, update_block_scores
from labelwise.kernels.loop.picking import pick_greedily
from labelwise.kernels.loop.scan import Arrays, Scan, count_certain_picks
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import ArrayDict, Rows, map_models, map_pieces, take_rows
from labelwise.strategy import CertainPicks, GreedyStrategy

PAIRS = 1 << 20  # Numbers held at a time when pairs are measured in float64
WIDTH, MAX_WIDTH, FEW_PICKS = 4096, 8192, 16
"""Window size at first and at most; it doubles after a block with few picks."""
RECORDED_STEPS, ROUNDS = 16, 4
"""Picks recorded together as a CUDA graph, and replays between two checks by the host."""


class FarthestState(NamedTuple):
    """State of a block, all ``(n,)``."""

    norms: Array  # squared norms of the (possibly shifted) rows
    nearest: Array  # squared distances to the nearest center, or infinity
    lengths: Array  # squared distances to the mean, which score a first pick without centers


@dataclass(frozen=True)
class FarthestPlan:
    """The distance measure of rows."""

    moved: MovedReader  # reads rows, moved where that improves precision
    plain: MovedReader  # reads them without the shift, which rounds
    # Of all rows, ``(d,)``, or ``(K, d)`` of `Factored`; None if it is not needed
    mean: Floats | None = None

    def __call__(self, rows: Rows) -> Embedding:
        """The rows to measure."""
        return self.moved(rows)


def begin_farthest(shards: Shards, labelled: Rows | None, embed: Read) -> FarthestPlan:
    """Choose the shift and, without labelled rows, compute the mean in one pass."""
    moved = move_near_origin(shards, embed)
    plan = FarthestPlan(moved, moved.without_shift())
    if labelled is not None:
        return plan
    mean = shards.sum(sum_block, embed) / max(len(shards), 1)
    # A row that makes the mean infinite is rejected later by its norm.
    return replace(plan, mean=mean) if np.isfinite(mean).all() else plan


def sum_block(shard: Shard, embed: Read) -> Floats:
    """The sum of a block's rows in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(
            to_numpy(map_pieces(partial(_sum_embedding, embed), shard.rows)).sum(axis=0)
        )


def _sum_embedding(embed: Read, some: Rows) -> Array:
    """The sum of some rows, with a leading axis of length 1 to concatenate pieces."""
    rows = embed(some)
    if isinstance(rows, Factored):
        xp = namespace(rows.h)
        both = iterate_float64_chunks(rows.a, rows.h)
        return sum(xp.matmul(xp.matrix_transpose(a), h) for a, h in both)[None]
    if isinstance(rows, np.ndarray):  # converts while adding, in half the time of chunks
        return rows.sum(axis=0, dtype=np.float64)[None]
    chunks = (chunk for (chunk,) in iterate_float64_chunks(rows))
    return sum(namespace(rows).sum(chunk, axis=0) for chunk in chunks)[None]


def _distances_to_mean(rows: Embedding, norms: Array, mean: Floats) -> Array:
    """Squared distance of every row to the mean, ``(n,)``."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinite values are rejected later
        if isinstance(rows, Factored):
            inner = inner_products_with_matrix(rows, like(mean, rows.h, dtype=rows.h.dtype))
        else:
            inner = arrays.row_products(rows, like(mean, rows, dtype=rows.dtype)[None, :])[:, 0]
        return (norms - 2 * inner + float(np.vdot(mean, mean))).clip(min=0)


def start_farthest_block(rows: Rows, labelled: Rows | None, plan: FarthestPlan) -> FarthestState:
    """Measure every row against the labelled items."""
    sizes = map_pieces(partial(_measure_norms_and_lengths, plan), rows)
    norms, lengths = sizes[:, 0], sizes[:, -1]
    xp = namespace(norms)
    if labelled is None:
        return FarthestState(norms, xp.full_like(norms, xp.inf), lengths)
    return FarthestState(norms, nearest_distances(plan(rows), norms, plan(labelled)), lengths)


def _measure_norms_and_lengths(plan: FarthestPlan, rows: Rows) -> Array:
    """The squared norms and, without centers, squared distances to the mean, ``(n, 1 or 2)``."""
    there = plan(rows)
    columns = [squared_norms(there)]
    if plan.mean is not None:
        columns.append(_distances_to_mean(there, columns[0], plan.moved.move(plan.mean)))
    return namespace(columns[0]).stack(columns, axis=1)


def score_farthest(state: FarthestState, plan: FarthestPlan | None = None) -> Array:
    """The squared distance to the nearest center, or to the mean, ``(n,)``."""
    xp = namespace(state.nearest)
    return xp.where(xp.isinf(state.nearest), state.lengths, state.nearest)


def add_farthest_centers(
    state: FarthestState, rows: Rows, picked: Rows, plan: FarthestPlan
) -> FarthestState:
    """Count the picked items as centers."""
    distances = nearest_distances(plan(rows), state.norms, plan(picked))
    nearest = namespace(distances).minimum(state.nearest, distances)
    return FarthestState(state.norms, nearest, state.lengths)


def bound_distance_rounding(state: FarthestState) -> Array:
    """Bound on the rounding error of each distance, in which the norms cancel."""
    size = state.norms + score_farthest(state)
    return size * (DISTANCE_ROUNDING * float(namespace(size).finfo(state.norms.dtype).eps))


def measure_farthest_exactly(
    rows: Rows, labelled: Rows | None, picked: Rows | None, plan: FarthestPlan
) -> Floats:
    """The score from its definition, in float64, ``(n,)``."""
    centres = [part for part in (labelled, picked) if part is not None]
    if not centres and plan.mean is not None:
        plain, mean = to_float64(plan.plain(rows)), plan.plain.move(plan.mean)
        if isinstance(plain, Factored):
            return np.asarray(to_numpy(_distances_to_mean(plain, squared_norms(plain), mean)))
        return np.asarray(to_numpy(arrays.squared_norms(plain - like(mean, plain))))
    found = [
        _exact_distances(plan(rows), plan(part), plan.plain(rows), plan.plain(part))
        for part in centres
    ]
    return np.asarray(np.min(found, axis=0))


def _exact_distances(
    rows: Embedding, points: Embedding, plain_rows: Embedding, plain_points: Embedding
) -> Floats:
    """Squared distance of a few rows to their nearest points, in float64, ``(n,)``.

    Only points that rounding cannot tell from the nearest are measured in float64, and without the
    shift, which rounds.
    """
    lengths = to_numpy(squared_norms(rows))[:, None] + to_numpy(squared_norms(points))[None, :]
    rough = lengths - 2 * to_numpy(inner_products(rows, points))
    error = lengths * (DISTANCE_ROUNDING * np.finfo(rough.dtype).eps)
    index, others = np.nonzero(rough - error <= (rough + error).min(axis=1)[:, None])
    found = np.full(len(rough), np.inf)
    step = max(PAIRS // max(count_embedding_numbers(points) // len(points), 1), 1)
    for first in range(0, len(index), step):
        here, there = index[first : first + step], others[first : first + step]
        near = to_float64(take_embedding(plain_rows, here))
        far = to_float64(take_embedding(plain_points, there))
        np.minimum.at(found, here, to_numpy(_pair_distances(near, far)))
    return found


def _pair_distances(rows: Embedding, points: Embedding) -> Array:
    """Squared distance of each row to the point of the same number, ``(n,)``, never negative."""
    if not isinstance(rows, Factored):
        return arrays.squared_norms(rows - points)
    product = row_dots(rows.a, points.a) * row_dots(rows.h, points.h)
    return (squared_norms(rows) + squared_norms(points) - 2 * product).clip(min=0)


def make_farthest_strategy(embed: Read, **facts: Any) -> GreedyStrategy:
    """The greedy strategy that picks farthest-first by an embedding ``embed(rows)``."""
    return GreedyStrategy(
        ahead=FarthestAhead,
        begin=lambda shards, labelled, budget, seed: begin_farthest(shards, labelled, embed),
        start=start_farthest_block,
        score=score_farthest,
        add=add_farthest_centers,
        slack=bound_distance_rounding,
        exact=measure_farthest_exactly,
        bounded=True,
        rescale=lambda plan, scores: plan.moved.unscale_squares(scores),
        **facts,
    )


def farthest_first(rows: Embedding, k: int, centers: Embedding | None = None) -> Ids:
    """The first ``k`` items in farthest-first order.

    Args:
        rows: ``(n, d)`` or `Factored`.
        k: at most ``n``.
        centers: rows that count as centers from the start.

    Returns:
        ``(k,)`` row numbers.

    Example:
        >>> import numpy as np
        >>> farthest_first(np.arange(5.0)[:, None], 3)  # 0 1 2 3 4 on a line
        array([0, 4, 2])
    """
    shards, embed, centers = make_embedding_block(rows, k, centers)
    if k == 0:
        return np.empty(0, dtype=np.int64)
    labelled = None if centers is None else split_embedding(centers)[0]
    facts: dict[str, Any] = {"name": "farthest_first", "needs": (), "good_for": "", "reference": ""}
    return pick_greedily(make_farthest_strategy(embed, **facts), shards, labelled, k, seed=0).ids


class FarthestAhead:
    """Makes blocks of farthest-first picks on a GPU (`labelwise.strategy.AheadPicker`)."""

    def __init__(self, strategy: GreedyStrategy, shards: Shards, labelled: Rows | None) -> None:
        """Prepare without reading rows."""
        self._strategy, self._shards, self._labelled = strategy, shards, labelled
        self._width, self._scan = WIDTH, Scan(_pick_farthest, RECORDED_STEPS)
        self._shard_count = len(shards.map(len))

    def pick_ahead(self, plan: FarthestPlan, new: Rows, new_ids: Ids, most: int) -> CertainPicks:
        """Pick from one window as long as the picks are certain."""
        width = -(-self._width // self._shard_count)
        given = (self._strategy, plan, self._labelled, new, new_ids, width)
        parts = [part for part in self._shards.map(_propose_farthest, *given) if len(part.ids)]
        ids = np.concatenate([part.ids for part in parts])
        rows = concat_embeddings([part.state for part in parts])
        xp = namespace(parts[0].scores)
        scores = xp.concat([part.scores for part in parts])
        slack, outside = max(float(p.slack) for p in parts), max(part.outside for part in parts)
        index, lowest = xp.arange(len(ids), device=device(scores)), xp.full_like(scores, -xp.inf)
        constants, state = (squared_distances(rows, rows), index, lowest), (scores,)
        picks: list[Floats] = []
        while sum(map(len, picks)) < most:
            state, out = self._scan(constants, state, ROUNDS)
            where, best, second = map(to_numpy, out)
            certain = (best - slack > outside) & (best - slack > second + slack)
            count = count_certain_picks(certain)
            picks.append(np.stack([where, best], axis=1)[:count])
            if count < len(certain):
                break
        made = np.concatenate(picks)[:most]
        if len(made) < FEW_PICKS:
            self._width = min(2 * self._width, MAX_WIDTH)
        return CertainPicks(ids[made[:, 0].astype(np.int64)], made[:, 1].astype(np.float64))


def _propose_farthest(
    shard: Shard,
    strategy: GreedyStrategy,
    plan: FarthestPlan,
    labelled: Rows | None,
    new: Rows,
    new_ids: Ids,
    width: int,
) -> Proposal:
    """Count new picks in all rows; return the farthest rows, measured again in float64."""
    update_block_scores(shard, strategy, plan, new, new_ids)
    part: BlockScores = shard.state[KEY]
    top, outside = np.arange(len(shard)), -np.inf
    if width < len(shard):
        order = np.argpartition(-part.bounds, width)
        top, outside = order[:width], float(part.bounds[order[width]])
    rows = _convert_farthest(take_rows(shard.rows, top))
    state = strategy.start(rows, None if labelled is None else _convert_farthest(labelled), plan)
    state = strategy.add(state, rows, _convert_farthest(part.picked.since(0)), plan)
    assert strategy.slack is not None
    scores, slack = strategy.score(state, plan), strategy.slack(state)
    xp = namespace(scores)
    scores = xp.where(arrays.take(part.taken, top), xp.full_like(scores, -xp.inf), scores)
    largest = to_numpy(xp.max(slack)) if len(top) else np.zeros(())
    return Proposal(shard.ids[top], {}, plan(rows), scores, largest, outside)


def _convert_farthest(rows: Rows) -> ArrayDict:
    return {name: map_models(rows[name], arrays.float64) for name in rows}


def _pick_farthest(constants: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    """One pick: its position, its distance, and the second largest distance."""
    (caps, index, lowest), (scores,) = constants, state
    xp = namespace(scores)
    best, where = xp.max(scores), xp.argmax(scores)
    others = xp.where(index == where, lowest, scores)
    cap = caps[xp.reshape(where, (1,))][0, :]
    return (xp.minimum(others, cap),), (where, best, xp.max(others))
