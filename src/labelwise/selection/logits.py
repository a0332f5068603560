"""Probabilities from logits, for strategies that read probabilities where logits are given."""

import numpy as np

from labelwise.arrays import Array, Positions
from labelwise.errors import BadInput
from labelwise.kernels.calibration import softmax
from labelwise.pool.representations import convert_rows
from labelwise.pool.sources.source import ArraySource, Source


class SoftmaxSource:
    """The softmax of another source's rows, computed whenever they are read."""

    in_memory = False

    def __init__(self, source: Source) -> None:
        """Read logits from ``source``, ``(n, K)``."""
        self._source, self.shape = source, source.shape
        self.is_numpy, self.precision = source.is_numpy, source.precision
        self.bytes_per_row, self.held_bytes = source.bytes_per_row, source.held_bytes

    def read(self, first: int, last: int) -> Array:
        """The probabilities of rows ``first`` to ``last - 1``."""
        return _convert(self._source.read(first, last))

    def take(self, positions: Positions) -> Array:
        """The probabilities of the rows at the given positions."""
        return _convert(self._source.take(positions))


def _convert(logits: Array) -> Array:
    with np.errstate(invalid="ignore"):  # NaN is rejected with the item's id, as in any row
        return softmax(convert_rows("logits", logits))


def open_probabilities(logits: Source) -> Source:
    """The probabilities of logits: in memory if the logits are, otherwise block by block."""
    if not logits.in_memory:
        return SoftmaxSource(logits)
    return ArraySource(_convert(logits.read(0, logits.shape[0])))


def read_probabilities(source: Source, logits: object, on: object) -> object:
    """The probabilities as another process can open them; files of logits are rejected."""
    if source.in_memory:
        return source.read(0, source.shape[0])
    if on is not None:
        raise BadInput("a cluster reads probabilities from files; save the softmax of the logits")
    return logits
