r"""Deterministic BSS, the yardstick of the randomized one: slower, with a tighter guarantee.

A round may pick any row whose share of the lower barrier outweighs that of the upper one; here the
row with the largest difference is taken, the smaller id among equals. After :math:`k` rounds the
eigenvalues of the weighted Gram matrix lie within a factor

.. math:: \Big( \frac{\sqrt b + 1}{\sqrt b - 1} \Big)^2 , \quad b = k / d ,

of each other, with :math:`d` the rank of the rows.

Cost: one pass over the rows, ``O(n d^2)``, per round.

Reference: J. Batson, D. Spielman, N. Srivastava, "Twice-Ramanujan Sparsifiers", STOC 2009.
"""

from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, comparable, largest, like, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.linear.bss import check_rank
from labelwise.kernels.linear.leverage import Read, read_features, whiten
from labelwise.kernels.linear.row_parts import pieces
from labelwise.pool.blocks import Shard, as_shards


def deterministic_bss(V: Any, k: int) -> tuple[Ids, Floats, dict[str, Any]]:
    """Pick rows by the deterministic barrier method.

    Args:
        V: ``(n, d)`` features as they are, or shards with ``features``.
        k: rounds, more than the rank of ``V``; at most so many different rows are picked.

    Returns:
        ids, all different, in the order of their first pick;
        weights on the sum scale, such that the mean eigenvalue of the weighted Gram matrix of
        whitened rows is 1;
        info with ``rank``, that ``spectrum``, its ``ratio`` and the ``ratio_bound``.

    Example:
        >>> import numpy as np
        >>> V = np.random.default_rng(0).normal(size=(500, 4))
        >>> ids, weights, info = deterministic_bss(V, 40)
        >>> len(ids) <= 40, info["ratio"] <= info["ratio_bound"]
        (True, True)
    """
    shards = as_shards(V, "V")
    transform = whiten(shards, read_features).transform
    rank = check_rank(transform)
    if k <= rank:
        raise BadInput(f"k must be more than the rank of the rows, {rank}; got {k}")
    root = np.sqrt(k / rank)
    upper, lower, step = rank * (root + root**2) / (root - 1), -rank * root, (root + 1) / (root - 1)
    gram = np.zeros((rank, rank))
    scales: dict[int, float] = {}
    for _ in range(k):
        values, vectors = np.linalg.eigh(gram)
        upper_shares, lower_shares = _shares(values, upper, upper + step, lower, lower + 1)
        forms = np.stack([upper_shares, lower_shares], axis=1)
        parts = shards.map(_forms, read_features, transform @ vectors, forms)
        shares = np.concatenate(parts)
        best = largest(comparable(shares[:, 1] - shares[:, 0]), 1, shards.ids)
        item = shards.ids[best]
        scale = 2 / float(shares[best].sum())
        row = to_numpy(read_features(shards.rows(item)))[0].astype(np.float64) @ transform
        gram += scale * np.outer(row, row)
        scales[int(item[0])] = scales.get(int(item[0]), 0.0) + scale
        upper, lower = upper + step, lower + 1
    mean = np.trace(gram) / rank
    spectrum = np.linalg.eigvalsh(gram) / mean
    info = {
        "rank": rank,
        "spectrum": spectrum.tolist(),
        "ratio": float(spectrum[-1] / spectrum[0]),
        "ratio_bound": float(step**2),
    }
    return np.fromiter(scales, dtype=np.int64), np.fromiter(scales.values(), float) / mean, info


def _shares(
    values: Floats, upper: float, next_upper: float, lower: float, next_lower: float
) -> tuple[Floats, Floats]:
    """The eigenvalues, in the eigenbasis of ``B``, of the two forms compared in a round."""
    above, below = 1 / (next_upper - values), 1 / (values - next_lower)
    fall = np.sum(1 / (upper - values)) - np.sum(above)
    rise = np.sum(below) - np.sum(1 / (values - lower))
    return above**2 / fall + above, below**2 / rise - below


def _forms(shard: Shard, read: Read, transform: Floats, forms: Floats) -> Floats:
    """Diagonal quadratic forms ``(r, m)`` of the transformed rows of a block, ``(n, m)``."""
    out = np.empty((len(shard), forms.shape[1]))
    for start, piece in pieces(read(shard.rows), double=True):
        product = piece @ like(transform, piece)
        out[start : start + len(product)] = to_numpy(product**2 @ like(forms, piece))
    return out
