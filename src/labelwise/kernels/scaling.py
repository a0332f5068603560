r"""Numbers of any size, multiplied by a power of two where their squares would not be numbers.

Squares of numbers above about :math:`10^{154}` are infinite and those below :math:`10^{-162}` are
zero, and in float32 that is so from :math:`10^{19}` and :math:`10^{-23}` on. Multiplying by a power
of two rounds nothing. So rows that are not of ordinary size are read in another *unit*: multiplied
by the power of two that brings them to about 1. What is ordinary, and how far a unit goes, is said
here. How large rows are is found in one of two ways:

* where a pass adds up squares in float64 anyway, from their sum, and only if that is odd from the
  largest number (`find_scale`); rows are then read in float64 (`apply_scale`);
* before any pass, from a look at a few rows, by whoever measures distances
  (`labelwise.kernels.distance.centering`); rows keep their precision.

Cost: nothing for ordinary rows; for others one more pass with `find_scale`, and a copy of what is
read.
"""

import math

from labelwise.arrays import Array, float64, namespace
from labelwise.errors import BadInput
from labelwise.pool.blocks import Shard, Shards

ORDINARY = 30
"""Numbers up to two to this power, and down to its inverse, are of ordinary size."""
FURTHEST = 500
"""Squares of numbers up to two to this power, and down to its inverse, are numbers themselves."""
MOST = {4: 100, 8: 1000}
"""Numbers of so many bytes are multiplied by two to this power at most, or its inverse at least."""


def binary_exponent(number: float) -> int:
    """The smallest power of two above a positive number; 0 for zero and what is not finite."""
    return math.frexp(number)[1]


def scale_for_exponent(power: int, size: int = 8) -> float:
    """What brings numbers of about two to this power near 1, or 1 if they are ordinary already.

    Args:
        power: of the numbers (`binary_exponent`).
        size: how many bytes a number has, 4 or 8.

    Example:
        >>> scale_for_exponent(30), scale_for_exponent(-50) == 2.0**50
        (1.0, True)
    """
    return 1.0 if abs(power) <= ORDINARY else 2.0 ** -max(min(power, MOST[size]), -MOST[size])


def scale_near_one(number: float) -> float:
    """What brings a number to about 1: a power of two, or 1 if its size is ordinary already.

    Example:
        >>> scale_near_one(3.0), scale_near_one(0.0), scale_near_one(2.0**-51)
        (1.0, 1.0, 1125899906842624.0)
    """
    return scale_for_exponent(binary_exponent(number))


def apply_scale(features: Array, unit: float) -> Array:
    """The features as they are where the unit is 1; else multiplied by it, in float64."""
    return features if unit == 1 else float64(features) * unit


def find_scale(shards: Shards, square: float) -> float:
    """What features are to be multiplied by: 1, or the power of two that brings them to about 1.

    Args:
        shards: the rows, with ``features``.
        square: about the mean squared length of a row; it need not be a number.

    Example:
        >>> import numpy as np
        >>> from labelwise.pool.blocks import LocalShards
        >>> find_scale(LocalShards.of(features=np.array([[3.0], [1.0]])), square=5.0)
        1.0
        >>> find_scale(LocalShards.of(features=np.array([[2.0**100], [1.0]])), square=np.inf)
        3.944304526105059e-31
    """
    if 2.0 ** (-2 * ORDINARY) <= square <= 2.0 ** (2 * ORDINARY):
        return 1.0
    largest = max(shards.map(_largest))
    if abs(binary_exponent(largest)) > FURTHEST:
        raise BadInput(
            f"features are up to {largest:.3g}, and their squares are beyond what float64 can "
            "hold; multiply all features by a number that brings them near 1"
        )
    return scale_near_one(largest)


def _largest(shard: Shard) -> float:
    """The largest absolute value of a block's features; infinite if one is not a number."""
    features = shard.rows["features"]
    if not math.prod(features.shape):
        return 0.0
    xp = namespace(features)
    found = max(float(xp.max(features)), -float(xp.min(features)))
    return found if found == found else math.inf
