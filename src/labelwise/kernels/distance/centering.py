r"""Rows moved to where squared distances are exact: near the origin, and of ordinary size.

:math:`|x - y|^2 = |x|^2 + |y|^2 - 2 \, x \cdot y` is made of matrix products, but loses as many
digits as :math:`|x|^2` has more than the distance. Distances do not change when all rows are
shifted, and squares of very large or very small numbers are infinite or zero, which those of
multiples of them are not (`kernels.scaling`). So where a look at a few rows says that it is
worth a copy of every block, the mean of these few is taken from all, and all are multiplied by a
power of two.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from labelwise.arrays import Array, Floats, Ids, like, to_numpy
from labelwise.kernels.distance.factored import Embedding, Factored
from labelwise.kernels.scaling import binary_exponent, scale_for_exponent
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows, take_rows

FEW = 64
"""So many items are looked at: those with the smallest ids, so that blocks play no part."""
FAR = 16.0
"""Rows are shifted whose mean is at least so many times their spread, both squared."""

Read = Callable[[Rows], Embedding]


@dataclass(frozen=True)
class Moved:
    """Reads rows, takes ``shift`` from them if there is one and multiplies by ``unit``.

    `kernels.distance.factored.Factored` rows are never shifted, since products of shifted factors
    are not the shifted products.
    """

    read: Read
    shift: Floats | None = None
    unit: float = 1.0

    def __call__(self, rows: Rows) -> Embedding:
        """The moved rows."""
        return self.move(self.read(rows))

    def move(self, there: Embedding) -> Embedding:
        """Rows that were read already, moved."""
        if isinstance(there, Factored):
            return Factored(there.a, self._sized(there.h))
        if self.shift is not None:
            there = there - like(self.shift, there, dtype=there.dtype)
        return self._sized(there)

    def _sized(self, numbers: Array) -> Array:
        if self.unit == 1:
            return numbers
        with np.errstate(over="ignore"):  # a number that becomes infinite is refused by its norm
            return numbers * self.unit

    def unshifted(self) -> "Moved":
        """The same without the shift, which rounds."""
        return self if self.shift is None else replace(self, shift=None)

    def back(self, moved: Floats) -> Floats:
        """Where rows were before they were moved."""
        return np.asarray(moved / self.unit + (0.0 if self.shift is None else self.shift))

    def squares_back(self, squares: Floats) -> Floats:
        """Squared distances of rows as they are; infinite where float64 ends."""
        with np.errstate(over="ignore"):
            return np.asarray(squares / self.unit / self.unit)


def move_near_origin(shards: Shards, read: Read, *, shifted: bool = True) -> Moved:
    """``read``, with a move where that makes distances exact; one that moves already is left so.

    Args:
        shards: the rows.
        read: gives the ``(n, d)`` array of a block, or `Factored`.
        shifted: whether rows far from the origin are shifted.

    Example:
        >>> from labelwise.pool.blocks import LocalShards
        >>> pool = LocalShards.of(features=np.array([[1000.0], [1001.0], [1005.0]]))
        >>> move_near_origin(pool, lambda rows: rows["features"]).shift
        array([1002.])
    """
    if isinstance(read, Moved):
        return read
    parts = [part for part in shards.map(_first, read) if len(part[0])]
    if not parts:
        return Moved(read)
    ids = np.concatenate([part[0] for part in parts])
    few = np.concatenate([part[1] for part in parts])[np.argsort(ids)[:FEW]]
    (_, _, size, factored), *_ = parts
    power = _power(few)
    few = np.ldexp(few, -power)
    with np.errstate(over="ignore", invalid="ignore"):  # rows that are not finite are refused later
        mean = few.mean(axis=0)
        spread = np.square(few - mean).sum(axis=1).mean()
        far = shifted and not factored and bool((mean @ mean) > FAR * spread)
    if not far:
        return Moved(read, None, scale_for_exponent(power, size))
    return Moved(read, np.ldexp(mean, power), scale_for_exponent(power + _power(few - mean), size))


def _power(numbers: Floats) -> int:
    """The power of two that the largest number of most rows is of; 0 where all are zero."""
    largest = np.abs(numbers).max(axis=1)
    largest = largest[(largest > 0) & (largest < np.inf)]
    return binary_exponent(float(np.median(largest))) if len(largest) else 0


def _first(shard: Shard, read: Read) -> tuple[Ids, Floats, int, bool]:
    """Ids and rows of a block's items with the smallest ids, their bytes, and what they are."""
    ids = shard.ids
    few = np.argpartition(ids, FEW)[:FEW] if len(ids) > FEW else np.arange(len(ids))
    rows = read(take_rows(shard.rows, few))
    factored = isinstance(rows, Factored)
    there: Array = rows.h if isinstance(rows, Factored) else rows
    return ids[few], to_numpy(there).astype(np.float64), int(there.dtype.itemsize), factored
