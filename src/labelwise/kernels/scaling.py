r"""Scaling of features by powers of two, so that their squares neither overflow nor underflow.

In float64 squares overflow for numbers above about :math:`10^{154}` and underflow below
:math:`10^{-162}`; in float32 the limits are :math:`10^{19}` and :math:`10^{-23}`. Multiplying by a
power of two rounds nothing, so features of extreme size are scaled to about 1. The size comes from

* the sum of squares, where a pass computes it anyway (`find_scale`), and the largest number only if
  that sum is extreme; the rows are then read in float64 (`apply_scale`);
* a sample of rows, where distances are measured (`labelwise.kernels.distance.embedding`); the rows
  keep their precision.

Cost: none for features of ordinary size; otherwise one more pass and a copy of the rows read.
"""

import math

from labelwise.arrays import Array, float64, namespace
from labelwise.errors import BadInput
from labelwise.pool.blocks import Shard, Shards

ORDINARY_EXPONENT = 30  # Numbers between two to the power of minus this and this are not scaled
MAX_EXPONENT = 500
"""Squares of numbers up to two to this power, and down to its inverse, fit into float64."""
MAX_SCALE_EXPONENT = {4: 100, 8: 1000}
"""Largest binary exponent of a scale by the number of bytes of a number."""


def binary_exponent(number: float) -> int:
    """The smallest power of two above a positive number; 0 for zero and non-finite numbers."""
    return math.frexp(number)[1]


def scale_for_exponent(exponent: int, size: int = 8) -> float:
    """The power of two that scales numbers of a binary exponent to about 1; 1 if not needed.

    ``size`` is the bytes per number, 4 or 8.

    >>> scale_for_exponent(30), scale_for_exponent(-50) == 2.0**50
    (1.0, True)
    """
    if abs(exponent) <= ORDINARY_EXPONENT:
        return 1.0
    limit = MAX_SCALE_EXPONENT[size]
    return 2.0 ** -max(min(exponent, limit), -limit)


def scale_near_one(number: float) -> float:
    """The power of two that scales a number to about 1; 1 if its size is ordinary.

    >>> scale_near_one(3.0), scale_near_one(0.0), scale_near_one(2.0**-51)
    (1.0, 1.0, 1125899906842624.0)
    """
    return scale_for_exponent(binary_exponent(number))


def apply_scale(features: Array, scale: float) -> Array:
    """The features unchanged if the scale is 1; otherwise multiplied by it, in float64."""
    return features if scale == 1 else float64(features) * scale


def find_scale(shards: Shards, square: float) -> float:
    """The factor for features of a mean squared length, possibly infinite: 1 or a power of two."""
    if 2.0 ** (-2 * ORDINARY_EXPONENT) <= square <= 2.0 ** (2 * ORDINARY_EXPONENT):
        return 1.0
    largest = max(shards.map(_find_largest_number))
    if abs(binary_exponent(largest)) > MAX_EXPONENT:
        raise BadInput(
            f"features are up to {largest:.3g}, and their squares are beyond what float64 can "
            "hold; multiply all features by a number that brings them near 1"
        )
    return scale_near_one(largest)


def _find_largest_number(shard: Shard) -> float:
    """The largest absolute value of a block's features; infinite for NaN."""
    features = shard.rows["features"]
    if not math.prod(features.shape):
        return 0.0
    xp = namespace(features)
    found = max(float(xp.max(features)), -float(xp.min(features)))
    return found if found == found else math.inf
