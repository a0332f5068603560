r"""Whether picks made ahead (`labelwise.kernels.sparse.greedy_ahead`) stand before all other rows.

A product with a vector :math:`\Phi_i` moves by at most :math:`|\Phi_i| |R - R_0|` from the first
residual of a block of picks to another. Only the rows that could reach the score of a pick that way
are multiplied with the residuals, all at once.
"""

from typing import NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, device, float64, namespace, to_numpy
from labelwise.kernels.distance.factored import Factored
from labelwise.kernels.loop.block_scores import KEY, BlockScores
from labelwise.kernels.placement import read_first_id
from labelwise.kernels.sparse.greedy import ROUNDING, GreedyPursuit, State, judged
from labelwise.kernels.sparse.steps import greedy_scores
from labelwise.pool.blocks import Shard

CHUNK = 1 << 26
"""How many numbers are held at a time while rows are judged."""
WINDOW = "pursuit_ahead"
"""Where a block keeps the positions of the rows that picks are made from."""


class Bars(NamedTuple):
    """What other rows are judged by.

    Attributes:
        matrices: ``(k, K, d)``, the residual before every pick.
        reach: how far from the first of them the others are, at most.
        scale: how long they are at most, the measure of rounding.
        lowest: what a row must score to beat any of the picks.
    """

    matrices: Array
    reach: Array
    scale: Array
    lowest: Array


def bars_of(matrices: Array, lower: Array) -> Bars:
    """The bars for the residuals before some picks, which score ``lower`` at least."""
    xp = namespace(matrices)
    reach = xp.max(xp.linalg.vector_norm(matrices - matrices[:1, :, :], axis=(1, 2)))
    scale = xp.max(xp.linalg.vector_norm(matrices, axis=(1, 2)))
    return Bars(matrices, reach, scale, xp.min(lower))


def judge(
    shard: Shard, pursuit: GreedyPursuit, bars: Bars, places: Array, offsets: dict[int | None, int]
) -> tuple[Floats, Floats]:
    """What the rows of a block say to picks, ``(k,)`` each.

    Returns:
        The most that a row which was not yet picked may score, as far as that matters; and the
        ids of the picks of this block. Minus infinity elsewhere.
    """
    count, n = places.shape[0], len(shard)
    if not n:
        return np.full(count, -np.inf), np.full(count, -np.inf)
    window = shard.state[WINDOW]
    xp = namespace(window)
    local = places - offsets[read_first_id(shard)]
    mine = (local >= 0) & (local < window.shape[0])
    positions = window[local.clip(0, window.shape[0] - 1)]
    steps = xp.arange(count, device=device(window))
    ranks = xp.full((n + 1,), count, dtype=steps.dtype, device=device(window))
    ranks[xp.where(mine, positions, xp.full_like(positions, n))] = steps
    rivals = _rivals(shard, pursuit, bars)
    above = _above(shard, pursuit, bars, rivals, ranks[rivals])
    found, here = to_numpy(xp.stack([above, xp.astype(positions, above.dtype)])), to_numpy(mine)
    ids = np.asarray(shard.ids[found[1].astype(np.int64)], dtype=np.float64)
    return found[0], np.where(here, ids, -np.inf)


def _rivals(shard: Shard, pursuit: GreedyPursuit, bars: Bars) -> Array:
    """Positions of the rows that may reach the lowest score of a pick."""
    part: BlockScores = shard.state[KEY]
    state: State = part.state
    vectors, beta = vectors_of(shard, state), pursuit.problem.beta
    xp = namespace(state.norms)
    slopes = float64(all_products(vectors, bars.matrices[:1, :, :])[:, 0]) / pursuit.problem.budget
    rounding = 2 * ROUNDING * float(xp.finfo(vectors.h.dtype).eps)
    moved = xp.sqrt(state.norms) * (bars.reach + rounding * bars.scale)
    highest = greedy_scores(slopes - moved, state.norms, state.costs, beta, pursuit.gain)
    room = 1e-9 * xp.abs(bars.lowest)
    return xp.nonzero((highest >= bars.lowest - room) & ~part.taken)[0]


def _above(shard: Shard, pursuit: GreedyPursuit, bars: Bars, rivals: Array, ranks: Array) -> Array:
    """The most that rivals which were not yet picked may score at every pick, ``(k,)``."""
    part: BlockScores = shard.state[KEY]
    state: State = part.state
    vectors = vectors_of(shard, state)
    xp, count, size = namespace(rivals), bars.matrices.shape[0], rivals.shape[0]
    if not size:
        return xp.full((count,), -xp.inf, dtype=xp.float64, device=device(rivals))
    if size < len(shard):
        factors = (factor[rivals] for factor in (vectors.a, vectors.h))
        vectors = Factored(*factors)
    norms, costs = (column[rivals][:, None] for column in (state.norms, state.costs))
    rounding = ROUNDING * float(xp.finfo(vectors.h.dtype).eps)
    scale = xp.linalg.vector_norm(bars.matrices, axis=(1, 2)) * rounding
    steps = xp.arange(count, device=device(rivals))
    chunk, found = max(CHUNK // (size * vectors.a.shape[1]), 1), []
    for first in range(0, count, chunk):
        some = slice(first, min(first + chunk, count))
        products = float64(all_products(vectors, bars.matrices[some, :, :]))
        error = xp.sqrt(norms) * scale[None, some]
        scores, slack = judged(products / pursuit.problem.budget, error, norms, costs, pursuit)
        gone = ranks[:, None] <= steps[None, some]
        lowest = xp.full_like(scores, -xp.inf)
        found.append(xp.max(xp.where(gone, lowest, scores + slack), axis=0))
    return xp.concat(found)


def all_products(vectors: Factored, matrices: Array) -> Array:
    """Product of every row with every ``(K, d)`` matrix, ``(n, k)``."""
    xp, (count, classes, width) = namespace(vectors.h), matrices.shape
    local = xp.astype(xp.permute_dims(matrices, (1, 0, 2)), vectors.h.dtype)
    flat = xp.reshape(local, (classes * count, width))
    inner = xp.matmul(vectors.h, xp.matrix_transpose(flat))
    inner = xp.reshape(inner, (len(vectors), classes, count))
    inner *= vectors.a[:, :, None]
    return xp.sum(inner, axis=1)


def vectors_of(shard: Shard, state: State) -> Factored:
    """The mean vectors of a block."""
    return Factored(state.a, state.h if state.h.shape[1] else shard.rows["features"])
