r"""Farthest-first: again and again the item farthest from all centres so far.

With centres :math:`C`, the next pick is the item with the largest
:math:`\min_{c \in C} \lVert x_i - x_c \rVert^2`; without any, the item farthest from the mean.
Distances only fall as centres are added, so picks are settled in exact blocks
(`labelwise.kernels.loop.picking`) and near ties in float64.

Cost: at most :math:`n b d` multiplications, in matrix products; rows whose old distance is below
that of the current pick are not touched. Memory: a few numbers per row.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from labelwise import arrays
from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    device,
    like,
    namespace,
    row_dots,
    to_numpy,
)
from labelwise.kernels.distance.centering import Moved, move_near_origin
from labelwise.kernels.distance.factored import (
    ROUNDED,
    Embedding,
    Factored,
    float64,
    inner_products_with_matrix,
    make_single_block,
    products,
    size,
    split_embedding,
    squared_norms,
    take,
)
from labelwise.kernels.distance.farthest_ahead import FarthestAhead
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.loop.picking import pick_greedily
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.pieces import in_pieces
from labelwise.pool.rows import Rows
from labelwise.strategy import GreedyStrategy

CHUNK, CHUNK_ON_DEVICE = 1 << 22, 1 << 24
"""How many products are held at a time; 16 MB in float32 stay in a processor's cache, and most of
64 in that of a large GPU, where launches cost as much as what does not."""
PAIRS = 1 << 20
"""How many numbers are held at a time where pairs are measured in float64."""


class State(NamedTuple):
    """All ``(n,)``.

    Attributes:
        norms: squared norms of the rows that are measured, which may be shifted.
        nearest: squared distances to the nearest centre, or infinity.
        lengths: squared distances to the mean, by which a first pick without centres goes.
    """

    norms: Array
    nearest: Array
    lengths: Array


def nearest_distances(rows: Embedding, norms: Array, centres: Embedding) -> Array:
    """Squared distance of every row to its nearest centre.

    Args:
        rows: ``(n, d)`` or `Factored`.
        norms: ``(n,)`` squared norms of the rows.
        centres: ``(m, d)`` or `Factored`, ``m >= 1``.

    Returns:
        ``(n,)``, never negative.
    """
    xp = namespace(norms)
    if not len(norms):
        return xp.zeros_like(norms)
    centre_norms, doubled = squared_norms(centres)[:, None], _times(centres, -2.0)
    chunk = CHUNK if str(device(norms)) == "cpu" else CHUNK_ON_DEVICE
    step = max(chunk // len(centre_norms), 64)
    parts = []
    for first in range(0, len(norms), step):
        # Centres by rows, so that the minimum runs along contiguous memory.
        block = products(doubled, _slice(rows, first, first + step), centre_norms)
        parts.append(xp.min(block, axis=0))
    nearest = xp.concat(parts) if len(parts) > 1 else parts[0]
    nearest += norms
    return nearest.clip(min=0)


def _times(rows: Embedding, factor: float) -> Embedding:
    """The rows multiplied by a number; by a power of two nothing is rounded."""
    return Factored(factor * rows.a, rows.h) if isinstance(rows, Factored) else factor * rows


def _slice(rows: Embedding, first: int, last: int) -> Embedding:
    if isinstance(rows, Factored):
        return Factored(rows.a[first:last], rows.h[first:last])
    return rows[first:last]


@dataclass(frozen=True)
class Plan:
    """How rows are measured.

    Attributes:
        moved: reads rows, moved where that helps.
        plain: reads them without the shift, which rounds.
        mean: of all rows as they are, ``(d,)``, or ``(K, d)`` of `Factored`; None where it plays
            no part.
    """

    moved: Moved
    plain: Moved
    mean: Floats | None = None

    def __call__(self, rows: Rows) -> Embedding:
        """The rows to measure."""
        return self.moved(rows)


def begin(shards: Shards, labelled: Rows | None, embed: Any) -> Plan:
    """Look where the rows are, and without labelled ones for their mean, in one pass."""
    moved = move_near_origin(shards, embed)
    plan = Plan(moved, moved.unshifted())
    if labelled is not None:
        return plan
    mean = shards.sum(_total, embed) / max(len(shards), 1)
    # The row that makes a mean infinite will be refused by its norm.
    return replace(plan, mean=mean) if np.isfinite(mean).all() else plan


def _total(shard: Shard, embed: Any) -> Floats:
    """The sum of a block's rows in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(to_numpy(in_pieces(partial(_sum, embed), shard.rows)).sum(axis=0))


def _sum(embed: Any, some: Rows) -> Array:
    """The sum of some rows, with an axis before it for the sums of other pieces."""
    rows = embed(some)
    if isinstance(rows, Factored):
        xp: Any = namespace(rows.h)
        both = iterate_float64_chunks(rows.a, rows.h)
        return sum(xp.matmul(xp.matrix_transpose(a), h) for a, h in both)[None]
    if isinstance(rows, np.ndarray):  # widened as they are added, in half the time of chunks
        return rows.sum(axis=0, dtype=np.float64)[None]
    return sum(namespace(rows).sum(chunk, axis=0) for (chunk,) in iterate_float64_chunks(rows))[
        None
    ]


def _from_mean(rows: Embedding, norms: Array, mean: Floats) -> Array:
    """Squared distance of every row to the mean, ``(n,)``."""
    with np.errstate(over="ignore", invalid="ignore"):  # what becomes infinite is refused
        if isinstance(rows, Factored):
            inner = inner_products_with_matrix(rows, like(mean, rows.h, dtype=rows.h.dtype))
        else:
            inner = arrays.row_products(rows, like(mean, rows, dtype=rows.dtype)[None, :])[:, 0]
        return (norms - 2 * inner + float(np.vdot(mean, mean))).clip(min=0)


def start(rows: Rows, labelled: Rows | None, plan: Plan) -> State:
    """Measure every row against the labelled items."""
    sizes = in_pieces(partial(_sizes, plan), rows)
    norms, lengths = sizes[:, 0], sizes[:, -1]
    xp = namespace(norms)
    if labelled is None:
        return State(norms, xp.full_like(norms, xp.inf), lengths)
    return State(norms, nearest_distances(plan(rows), norms, plan(labelled)), lengths)


def _sizes(plan: Plan, rows: Rows) -> Array:
    """The squared norms and, without centres, squared distances to the mean, ``(n, 1 or 2)``."""
    there = plan(rows)
    columns = [squared_norms(there)]
    if plan.mean is not None:
        columns.append(_from_mean(there, columns[0], plan.moved.move(plan.mean)))
    return namespace(columns[0]).stack(columns, axis=1)


def score(state: State, plan: Plan) -> Array:
    """Return the squared distance to the nearest centre, or to the mean, ``(n,)``."""
    xp = namespace(state.nearest)
    return xp.where(xp.isinf(state.nearest), state.lengths, state.nearest)


def add(state: State, rows: Rows, picked: Rows, plan: Plan) -> State:
    """Count the picked items as centres."""
    distances = nearest_distances(plan(rows), state.norms, plan(picked))
    nearest = namespace(distances).minimum(state.nearest, distances)
    return State(state.norms, nearest, state.lengths)


def slack(state: State) -> Array:
    """How far rounding may have moved each distance: the norms cancel in it."""
    xp = namespace(state.norms)
    size = state.norms + xp.where(xp.isinf(state.nearest), state.lengths, state.nearest)
    return size * (ROUNDED * float(xp.finfo(state.norms.dtype).eps))


def exact(rows: Rows, labelled: Rows | None, picked: Rows | None, plan: Plan) -> Floats:
    """The score from its definition, in float64, ``(n,)``."""
    centres = [part for part in (labelled, picked) if part is not None]
    if not centres and plan.mean is not None:
        return _exactly_from_mean(float64(plan.plain(rows)), plan.plain.move(plan.mean))
    found = [
        _exact_distances(plan(rows), plan(part), plan.plain(rows), plan.plain(part))
        for part in centres
    ]
    return np.asarray(np.min(found, axis=0))


def _exactly_from_mean(rows: Embedding, mean: Floats) -> Floats:
    """Squared distance of a few rows to the mean, ``(n,)``."""
    if isinstance(rows, Factored):
        return np.asarray(to_numpy(_from_mean(rows, squared_norms(rows), mean)))
    return np.asarray(to_numpy(arrays.squared_norms(rows - like(mean, rows))))


def _exact_distances(
    rows: Embedding, points: Embedding, plain_rows: Embedding, plain_points: Embedding
) -> Floats:
    """Squared distance of a few rows to their nearest points, in float64, ``(n,)``.

    Only the points that rounding cannot tell from the nearest are measured in float64, and without
    the shift, which rounds.
    """
    lengths = to_numpy(squared_norms(rows))[:, None] + to_numpy(squared_norms(points))[None, :]
    rough = lengths - 2 * to_numpy(products(rows, points))
    error = lengths * (ROUNDED * np.finfo(rough.dtype).eps)
    places, others = np.nonzero(rough - error <= (rough + error).min(axis=1)[:, None])
    found = np.full(len(rough), np.inf)
    step = max(PAIRS // max(size(points) // len(points), 1), 1)
    for first in range(0, len(places), step):
        here, there = places[first : first + step], others[first : first + step]
        pairs = _pair_distances(float64(take(plain_rows, here)), float64(take(plain_points, there)))
        np.minimum.at(found, here, to_numpy(pairs))
    return found


def _pair_distances(rows: Embedding, points: Embedding) -> Array:
    """Squared distance of each row to the point of the same number, ``(n,)``, never negative."""
    if not isinstance(rows, Factored):
        return arrays.squared_norms(rows - points)
    product = row_dots(rows.a, points.a) * row_dots(rows.h, points.h)
    return (squared_norms(rows) + squared_norms(points) - 2 * product).clip(min=0)


def _back(plan: Plan, scores: Floats) -> Floats:
    return plan.moved.squares_back(scores)


def make_farthest_strategy(embed: Any, **facts: Any) -> GreedyStrategy:
    """The greedy strategy that picks farthest-first by an embedding ``embed(rows)``."""
    return GreedyStrategy(
        ahead=FarthestAhead,
        begin=lambda shards, labelled, budget, seed: begin(shards, labelled, embed),
        start=start,
        score=score,
        add=add,
        slack=slack,
        exact=exact,
        bounded=True,
        rescale=_back,
        **facts,
    )


def farthest_first(rows: Embedding, k: int, centers: Embedding | None = None) -> Ids:
    """The first ``k`` items in farthest-first order.

    Args:
        rows: ``(n, d)`` or `Factored`.
        k: at most ``n``.
        centers: rows that count as centres from the start.

    Returns:
        ``(k,)`` row numbers.

    Example:
        >>> import numpy as np
        >>> farthest_first(np.arange(5.0)[:, None], 3)  # 0 1 2 3 4 on a line
        array([0, 4, 2])
    """
    shards, embed, centers = make_single_block(rows, k, centers)
    if k == 0:
        return np.empty(0, dtype=np.int64)
    labelled = None if centers is None else split_embedding(centers)[0]
    strategy = make_farthest_strategy(
        embed, name="farthest_first", needs=(), good_for="", reference=""
    )
    return pick_greedily(strategy, shards, labelled, k, seed=0).ids
