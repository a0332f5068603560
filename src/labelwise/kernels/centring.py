r"""Rows moved to where squared distances are exact: near the origin, and of ordinary size.

:math:`|x - y|^2 = |x|^2 + |y|^2 - 2 \, x \cdot y` is made of matrix products, but loses as many
digits as :math:`|x|^2` has more than the distance. Distances do not change when all rows are
shifted, and squares of very large or very small numbers are infinite or zero, which those of
multiples of them are not. So where a look at a few rows says that it is worth a copy of every
block, the mean of these few is taken from all, and all are multiplied by a power of two.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labelwise.arrays import Array, Floats, Ids, like, to_numpy
from labelwise.blocks import Rows, Shard, Shards, take_rows
from labelwise.kernels.factored import Embedding, Factored
from labelwise.kernels.units import power_of

FEW = 64
"""So many items are looked at: those with the smallest ids, so that blocks play no part."""
FAR = 16.0
"""Rows are shifted whose mean is at least so many times their spread, both squared."""
ORDINARY, FURTHEST = 32, {4: 100, 8: 900}
"""Numbers up to two to this power, and down to its inverse, are of ordinary size; and the power
that numbers of 4 or 8 bytes are multiplied by at most."""

Read = Callable[[Rows], Embedding]


@dataclass(frozen=True)
class Moved:
    """Reads rows, takes ``shift`` from them and multiplies by ``scale``, a power of two.

    `labelwise.kernels.factored.Factored` rows are never shifted, since products of shifted factors
    are not the shifted products.
    """

    read: Read
    shift: Floats | None = None
    scale: float = 1.0

    def __call__(self, rows: Rows) -> Embedding:
        """The moved rows."""
        return self.move(self.read(rows))

    def move(self, there: Embedding) -> Embedding:
        """Rows that were read already, moved."""
        if isinstance(there, Factored):
            return Factored(there.a, there.h * self.scale)
        if self.shift is not None:
            there = there - like(self.shift, there, dtype=there.dtype)
        return there * self.scale if self.scale != 1 else there

    def back(self, squares: Floats) -> Floats:
        """Squared distances of rows as they are; infinite where float64 ends."""
        with np.errstate(over="ignore"):
            return np.asarray(squares / self.scale / self.scale)


def near_origin(
    shards: Shards, read: Read, *, shifted: bool = True, scaled: bool = False
) -> Moved | Read:
    """``read``, or the same with a move where that makes distances exact.

    Args:
        shards: the rows.
        read: gives the ``(n, d)`` array of a block, or `Factored`.
        shifted: whether rows far from the origin are shifted.
        scaled: whether rows of very large or small numbers are multiplied.

    Example:
        >>> from labelwise.blocks import LocalShards
        >>> pool = LocalShards.of(features=np.array([[1000.0], [1001.0], [1005.0]]))
        >>> near_origin(pool, lambda rows: rows["features"]).shift
        array([1002.])
    """
    parts = [part for part in shards.map(_first, read) if len(part[0])]
    if not parts:
        return read
    ids = np.concatenate([part[0] for part in parts])
    few = np.concatenate([part[1] for part in parts])[np.argsort(ids)[:FEW]]
    (_, _, size, factored), *_ = parts
    power = _power(few)
    few = np.ldexp(few, -power)
    with np.errstate(over="ignore", invalid="ignore"):  # rows that are not finite are refused later
        mean = few.mean(axis=0)
        spread = np.square(few - mean).sum(axis=1).mean()
        far = shifted and not factored and bool((mean @ mean) > FAR * spread)
    shift, scale = np.ldexp(mean, power) if far else None, 1.0
    if far:
        power += _power(few - mean)
    if scaled and abs(power) > ORDINARY:
        most = FURTHEST.get(size, 900)
        scale = 2.0 ** int(np.clip(-power, -most, most))
    return read if shift is None and scale == 1 else Moved(read, shift, scale)


def _power(numbers: Floats) -> int:
    """The power of two that the largest number of most rows is of; 0 where all are zero."""
    largest = np.abs(numbers).max(axis=1)
    largest = largest[(largest > 0) & (largest < np.inf)]
    return power_of(float(np.median(largest))) if len(largest) else 0


def _first(shard: Shard, read: Read) -> tuple[Ids, Floats, int, bool]:
    """Ids and rows of a block's items with the smallest ids, their bytes, and what they are."""
    ids = shard.ids
    few = np.argpartition(ids, FEW)[:FEW] if len(ids) > FEW else np.arange(len(ids))
    rows = read(take_rows(shard.rows, few))
    factored = isinstance(rows, Factored)
    there: Array = rows.h if isinstance(rows, Factored) else rows
    return ids[few], to_numpy(there).astype(np.float64), int(there.dtype.itemsize), factored
