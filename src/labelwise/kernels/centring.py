r"""Rows that lie close together and far from the origin, shifted to where distances are exact.

:math:`|x - y|^2 = |x|^2 + |y|^2 - 2 \, x \cdot y` is made of matrix products, but loses as many
digits as :math:`|x|^2` has more than the distance. Distances do not change when all rows are
shifted. So where a look at a few rows says that the shift is worth a copy of every block, the mean
of these few is taken from all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labelwise.arrays import Array, Floats, Ids, like, to_numpy
from labelwise.blocks import Rows, Shard, Shards, take_rows
from labelwise.kernels.factored import Factored

FEW = 64
"""So many items are looked at: those with the smallest ids, so that blocks play no part."""
FAR = 16.0
"""Rows are shifted whose mean is at least so many times their spread, both squared."""

Read = Callable[[Rows], Array]


@dataclass(frozen=True)
class Shifted:
    """Reads rows and takes ``shift`` from them."""

    read: Read
    shift: Floats

    def __call__(self, rows: Rows) -> Array:
        """The shifted rows, ``(n, d)``."""
        there = self.read(rows)
        return there - like(self.shift, there, dtype=there.dtype)


def near_origin(shards: Shards, read: Read) -> Read:
    """``read``, or the same with a shift where the rows are far from the origin.

    Args:
        shards: the rows.
        read: gives the ``(n, d)`` array of a block.

    Example:
        >>> from labelwise.blocks import LocalShards
        >>> pool = LocalShards.of(features=np.array([[1000.0], [1001.0], [1005.0]]))
        >>> near_origin(pool, lambda rows: rows["features"]).shift
        array([1002.])
    """
    parts = shards.map(_first, read)
    ids = np.concatenate([part[0] for part in parts])
    few = np.concatenate([part[1] for part in parts])[np.argsort(ids)[:FEW]]
    if not len(few):
        return read
    with np.errstate(over="ignore", invalid="ignore"):  # rows that are not finite are refused later
        shift = few.mean(axis=0)
        spread = np.square(few - shift).sum(axis=1).mean()
        return Shifted(read, shift) if (shift @ shift) > FAR * spread else read


def _first(shard: Shard, read: Read) -> tuple[Ids, Floats]:
    """The ids and rows of a block's items with the smallest ids."""
    ids = shard.ids
    few = np.argpartition(ids, FEW)[:FEW] if len(ids) > FEW else np.arange(len(ids))
    rows = read(take_rows(shard.rows, few))
    if isinstance(rows, Factored):  # products of shifted factors are not the shifted products
        return ids[:0], np.empty((0, 0))
    return ids[few], to_numpy(rows).astype(np.float64)
