r"""Shift and scale of rows such that squared distances keep their digits.

:math:`|x - y|^2 = |x|^2 + |y|^2 - 2 \, x \cdot y` is computed by matrix products, but
cancels when the norms are much larger than the distance, and overflows or underflows for extreme
numbers. Distances are invariant under a shift of all rows. If a sample of a few rows shows that it
is worth a copy of every block, the sample mean is subtracted from all rows and they are multiplied
by a power of two (`kernels.scaling`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from labelwise.arrays import Array, Floats, Ids, like, to_numpy
from labelwise.kernels.distance.factored import Embedding, Factored
from labelwise.kernels.scaling import binary_exponent, scale_for_exponent
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows, take_rows

SAMPLE = 64
"""Sample size: the items with the smallest ids, independent of the split into blocks."""
FAR = 16.0
"""Rows are shifted if the squared mean exceeds this multiple of the mean squared spread."""

Read = Callable[[Rows], Embedding]


@dataclass(frozen=True)
class MovedReader:
    """Reads rows, subtracts ``shift`` if given and multiplies by ``scale``.

    `kernels.distance.factored.Factored` rows are never shifted, since products of shifted factors
    are not the shifted products.
    """

    read: Read
    shift: Floats | None = None
    scale: float = 1.0

    def __call__(self, rows: Rows) -> Embedding:
        """The moved rows."""
        return self.move(self.read(rows))

    def move(self, there: Embedding) -> Embedding:
        """Move rows that were read already."""
        if isinstance(there, Factored):
            return Factored(there.a, self._apply_scale(there.h))
        if self.shift is not None:
            there = there - like(self.shift, there, dtype=there.dtype)
        return self._apply_scale(there)

    def _apply_scale(self, numbers: Array) -> Array:
        if self.scale == 1:
            return numbers
        with np.errstate(over="ignore"):  # infinite numbers are rejected by their norm
            return numbers * self.scale

    def without_shift(self) -> "MovedReader":
        """The same reader without the shift, which rounds."""
        return self if self.shift is None else replace(self, shift=None)

    def move_back(self, moved: Floats) -> Floats:
        """The inverse of `move`."""
        return np.asarray(moved / self.scale + (0.0 if self.shift is None else self.shift))

    def unscale_squares(self, squares: Floats) -> Floats:
        """Squared distances of the original rows; infinite beyond float64."""
        with np.errstate(over="ignore"):
            return np.asarray(squares / self.scale / self.scale)


def move_near_origin(shards: Shards, read: Read, *, shifted: bool = True) -> MovedReader:
    """``read``, with a move where that improves distances; a `MovedReader` is returned unchanged.

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
    if isinstance(read, MovedReader):
        return read
    parts = [part for part in shards.map(_sample_block, read) if len(part[0])]
    if not parts:
        return MovedReader(read)
    ids = np.concatenate([part[0] for part in parts])
    few = np.concatenate([part[1] for part in parts])[np.argsort(ids)[:SAMPLE]]
    (_, _, size, factored), *_ = parts
    exponent = _typical_exponent(few)
    few = np.ldexp(few, -exponent)
    with np.errstate(over="ignore", invalid="ignore"):  # non-finite rows are rejected later
        mean = few.mean(axis=0)
        spread = np.square(few - mean).sum(axis=1).mean()
        far = shifted and not factored and bool((mean @ mean) > FAR * spread)
    if not far:
        return MovedReader(read, None, scale_for_exponent(exponent, size))
    return MovedReader(
        read,
        np.ldexp(mean, exponent),
        scale_for_exponent(exponent + _typical_exponent(few - mean), size),
    )


def _typical_exponent(numbers: Floats) -> int:
    """Binary exponent of the median over rows of the largest number; 0 if all are zero."""
    largest = np.abs(numbers).max(axis=1)
    largest = largest[(largest > 0) & (largest < np.inf)]
    return binary_exponent(float(np.median(largest))) if len(largest) else 0


def _sample_block(shard: Shard, read: Read) -> tuple[Ids, Floats, int, bool]:
    """Ids and rows of a block's sample, bytes per number, and whether the rows are factored."""
    ids = shard.ids
    few = np.argpartition(ids, SAMPLE)[:SAMPLE] if len(ids) > SAMPLE else np.arange(len(ids))
    rows = read(take_rows(shard.rows, few))
    factored = isinstance(rows, Factored)
    there: Array = rows.h if isinstance(rows, Factored) else rows
    return ids[few], to_numpy(there).astype(np.float64), int(there.dtype.itemsize), factored
