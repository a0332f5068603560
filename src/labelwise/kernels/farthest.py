r"""Farthest-first: again and again the item farthest from all centres so far.

With centres :math:`C`, the next pick is the item with the largest
:math:`\min_{c \in C} \lVert x_i - x_c \rVert^2`; without any, the item of the largest norm.
Distances only fall as centres are added, so picks are settled in exact blocks
(`labelwise.kernels.greedy`) and near ties in float64.

Cost: at most :math:`n b d` multiplications, in matrix products; rows whose old distance is below
that of the current pick are not touched. Memory: a few numbers per row.
"""

from typing import Any, NamedTuple

import numpy as np

from labelwise import arrays
from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    device,
    is_array,
    namespace,
    row_dots,
    to_numpy,
)
from labelwise.blocks import LocalShards, Rows, Shard
from labelwise.errors import BadInput
from labelwise.kernels import greedy
from labelwise.kernels.centring import Shifted, near_origin
from labelwise.kernels.factored import (
    Embedding,
    Factored,
    float64,
    products,
    size,
    squared_norms,
    take,
)
from labelwise.kernels.farthest_ahead import FarthestAhead
from labelwise.kernels.greedy_ahead import AheadStrategy
from labelwise.pieces import in_pieces
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
        lengths: squared norms of the rows as they are, by which the first pick goes.
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


def start(rows: Rows, labelled: Rows | None, embed: Any) -> State:
    """Measure every row against the labelled items."""
    norms = in_pieces(lambda some: squared_norms(embed(some)), rows)
    lengths = norms
    if isinstance(embed, Shifted):
        lengths = in_pieces(lambda some: squared_norms(embed.read(some)), rows)
    xp = namespace(norms)
    if labelled is None:
        return State(norms, xp.full_like(norms, xp.inf), lengths)
    return State(norms, nearest_distances(embed(rows), norms, embed(labelled)), lengths)


def score(state: State, embed: Any) -> Array:
    """Return the squared distance to the nearest centre, ``(n,)``."""
    xp = namespace(state.nearest)
    return xp.where(xp.isinf(state.nearest), state.lengths, state.nearest)


def add(state: State, rows: Rows, picked: Rows, embed: Any) -> State:
    """Count the picked items as centres."""
    distances = nearest_distances(embed(rows), state.norms, embed(picked))
    nearest = namespace(distances).minimum(state.nearest, distances)
    return State(state.norms, nearest, state.lengths)


def slack(state: State) -> Array:
    """How far rounding may have moved each distance: the norms cancel in it."""
    xp = namespace(state.norms)
    size = xp.where(xp.isinf(state.nearest), state.lengths, state.norms + state.nearest)
    return size * (32 * float(xp.finfo(state.norms.dtype).eps))


def exact(rows: Rows, labelled: Rows | None, picked: Rows | None, embed: Any) -> Floats:
    """The score from its definition, in float64, ``(n,)``."""
    plain = embed.read if isinstance(embed, Shifted) else embed
    centres = [part for part in (labelled, picked) if part is not None]
    if not centres:
        return np.asarray(to_numpy(squared_norms(float64(plain(rows)))), dtype=np.float64)
    found = [
        _exact_distances(embed(rows), embed(part), plain(rows), plain(part)) for part in centres
    ]
    return np.asarray(np.min(found, axis=0))


def _exact_distances(
    rows: Embedding, points: Embedding, plain_rows: Embedding, plain_points: Embedding
) -> Floats:
    """Squared distance of a few rows to their nearest points, in float64, ``(n,)``.

    Only the points that rounding cannot tell from the nearest are measured in float64, and without
    the shift, which rounds.
    """
    lengths = to_numpy(squared_norms(rows))[:, None] + to_numpy(squared_norms(points))[None, :]
    rough = lengths - 2 * to_numpy(products(rows, points))
    error = lengths * (32 * np.finfo(rough.dtype).eps)
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


def farthest_strategy(embed: Any, **facts: Any) -> GreedyStrategy:
    """The greedy strategy that picks farthest-first by an embedding ``embed(rows)``."""
    return AheadStrategy(
        ahead=FarthestAhead,
        begin=lambda shards, labelled, budget, seed: near_origin(shards, embed),
        start=start,
        score=score,
        add=add,
        slack=slack,
        exact=exact,
        bounded=True,
        **facts,
    )


def embedding_rows(rows: Embedding) -> tuple[dict[str, Any], Any]:
    """Rows for blocks, and the function that makes the embedding of them again."""
    if isinstance(rows, Factored):
        return {"a": rows.a, "h": rows.h}, _factored
    if not is_array(rows) or rows.ndim != 2:
        raise BadInput(f"rows must be an array with two axes or Factored; got {_shape(rows)}")
    return {"features": rows}, _features


def _shape(rows: Any) -> str:
    return f"shape {tuple(rows.shape)}" if hasattr(rows, "shape") else type(rows).__name__


def _factored(rows: Rows) -> Factored:
    return Factored(rows["a"], rows["h"])


def _features(rows: Rows) -> Array:
    return rows["features"]


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
        array([4, 0, 2])
    """
    names, embed = embedding_rows(rows)
    count = len(rows)
    if not 0 <= k <= count:
        raise BadInput(f"k must be from 0 to {count}, the number of rows; got {k}")
    if k == 0:
        return np.empty(0, dtype=np.int64)
    shards = LocalShards([Shard(np.arange(count, dtype=np.int64), names)])
    labelled = None if centers is None or not len(centers) else embedding_rows(centers)[0]
    strategy = farthest_strategy(embed, name="farthest_first", needs=(), good_for="", reference="")
    return greedy.pick(strategy, shards, labelled, k, seed=0).ids
