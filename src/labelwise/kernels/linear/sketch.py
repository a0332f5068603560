r"""Leverage scores up to a constant factor, for rows with thousands of columns.

Reference: P. Drineas, M. Magdon-Ismail, M. Mahoney, D. Woodruff, "Fast approximation of matrix
coherence and statistical leverage", JMLR 2012; J. Nelson, H. Nguyen, "OSNAP: faster numerical
linear algebra algorithms via sparser subspace embeddings", FOCS 2013.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from labelwise.arrays import Floats, precision, row_noise, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.linear.leverage import (
    Read,
    Sum,
    leverage_scores,
    project,
    rank_tolerance,
    read_features,
    whiten,
)
from labelwise.kernels.linear.row_parts import pieces
from labelwise.pool.blocks import Shard, as_shards

_SKETCH = 21  # the stream of noise of the sketch


def approximate_leverage_scores(
    A: Any, *, seed: int = 0, oversampling: float = 4.0, rtol: float | None = None
) -> Floats:
    r"""Leverage of every row up to a constant factor, ``(n,)``, for ``d`` in the thousands.

    The rows are hashed into ``oversampling * d`` sums of random signs (four per row, a function
    of seed and id), whose whitening :math:`T` stands in for that of :math:`A`; then :math:`a_i T`
    is measured through :math:`k = O(\log n)` random directions. No score falls below 0.4 times, or
    rises above 2.5 times, the true one but with small probability (``k`` is such that the
    directions alone keep all ``n`` scores above a half in 99 of 100 cases).

    Cost: two passes, ``O(n d log n + d^3)``, and ``oversampling * d * d`` numbers of memory.

    Args:
        A: as in `leverage_scores`.
        seed: what the random signs and directions depend on.
        oversampling: how many sums per column, at least 2.
        rtol: as in `leverage_scores`.

    Example:
        >>> import numpy as np
        >>> A = np.random.default_rng(0).normal(size=(2000, 5))
        >>> A[7] *= 1000  # a row that no other can stand for
        >>> int(approximate_leverage_scores(A, seed=0).argmax())
        7
    """
    if not oversampling >= 2:
        raise BadInput(f"oversampling must be at least 2; got {oversampling}")
    shards = as_shards(A, "A")
    n = len(shards)
    if not n:
        return np.empty(0)
    d = read_features(shards.rows(shards.ids[:1])).shape[1]
    sums = math.ceil(oversampling * d)
    if n <= sums:
        return leverage_scores(shards, rtol=rtol)
    part: Sum = shards.sum(_sketch, read_features, sums, seed)
    if rtol is None:
        rtol = rank_tolerance(part.precision, n, d)
    basis = whiten(as_shards(part.matrix), read_features, rtol=rtol)
    transform = basis.transform * np.sqrt(max(1, sums - basis.rank - 1) / sums)
    directions = math.ceil((math.log(n) + math.log(100)) / 0.0966)  # P(chi^2_k < k/2) < e^-.0966k
    if directions < basis.rank:
        generator = np.random.default_rng([seed % 2**64, _SKETCH])
        mixed = generator.standard_normal((basis.rank, directions))
        transform = transform @ (mixed / math.sqrt(directions))
    return project(shards, read_features, replace(basis, transform=transform))


def _sketch(shard: Shard, read: Read, sums: int, seed: int) -> Sum:
    """The rows of a block hashed into sums, ``(sums, d)``."""
    rows = read(shard.rows)
    total = np.zeros((sums, rows.shape[1]))
    for start, part in pieces(rows, double=False, size=max(1, sums)):
        piece = to_numpy(part)
        ids = shard.ids[start : start + len(piece)]
        noise = np.stack([row_noise(seed, ids, _SKETCH, copy) for copy in range(4)]) * (2 * sums)
        cells = noise.astype(np.int64)  # the sum is cells // 2, the sign is the last bit
        signs = ((cells % 2) - 0.5).astype(piece.dtype)
        columns = np.tile(np.arange(len(piece)), 4)
        entries = (signs.ravel(), ((cells // 2).ravel(), columns))
        total += sparse.csr_array(entries, shape=(sums, len(piece))) @ piece
    return Sum(total, precision(rows))
