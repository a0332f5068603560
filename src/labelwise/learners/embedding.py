"""Standardization of numbers for a network, without torch.

Images are read by `labelwise.media.images`, texts are encoded by `labelwise.encoders`.

Cost: two passes over the numbers, block by block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput
from labelwise.files import load_npz

Arrays = NDArray[Any]

LARGEST = 1e100
"""Largest absolute value whose square, summed over many rows, is far from overflow."""

_BLOCK_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Standardizes values to mean 0 and deviation 1, per channel or column."""

    mean: Arrays  # with the axes of the values, of length 1 but for the second
    spread: Arrays  # their deviations; 1 for a column that never changes

    @classmethod
    def fit(cls, values: Arrays) -> "Standardizer":
        """Measure ``(n, d)`` or ``(n, channels, height, width)`` values, block by block."""
        axes = tuple(axis for axis in range(values.ndim) if axis != 1)
        count = values.size // values.shape[1]
        mean = (
            sum(
                block.sum(axis=axes, keepdims=True)
                for block in _iterate_standardizer_blocks(values)
            )
            / count
        )
        squares = sum(
            ((b - mean) ** 2).sum(axis=axes, keepdims=True)
            for b in _iterate_standardizer_blocks(values)
        )
        spread = np.sqrt(squares / count)
        spread[spread <= 1e-8 * np.abs(mean)] = 1  # constant up to rounding
        return cls(mean, spread)

    def __call__(self, rows: Arrays) -> NDArray[np.float32]:
        """Standardize rows."""
        if rows.ndim == 4:  # images: float32 is enough
            mean, spread = self.mean.astype(np.float32), self.spread.astype(np.float32)
            return np.asarray((rows - mean) / spread, dtype=np.float32)
        return ((rows - self.mean) / self.spread).astype(np.float32)

    def back(self, rows: Arrays) -> NDArray[np.float64]:
        """Undo the scaling, up to rounding."""
        return np.asarray(rows * self.spread + self.mean, dtype=np.float64)

    def save(self, path: Path) -> None:
        """Write a .npz file."""
        np.savez(path, mean=self.mean, spread=self.spread)

    @classmethod
    def load(cls, path: Path) -> "Standardizer":
        """Read what `save` wrote."""
        held = load_npz(path)
        if not {"mean", "spread"} <= set(held):
            raise BadInput(f"{path} is damaged; restore it from a copy, or start another campaign")
        return cls(held["mean"], held["spread"])


def _iterate_standardizer_blocks(values: Arrays) -> Iterator[NDArray[np.float64]]:
    """Iterate over blocks of rows in float64."""
    width = max(1, values.size // max(1, len(values)))
    step = max(1, _BLOCK_BYTES // (8 * width))
    for first in range(0, len(values), step):
        yield values[first : first + step].astype(np.float64)
