r"""Features of any size, multiplied by a power of two where their squares would not be numbers.

Squares of numbers above about :math:`10^{154}` are infinite and those below :math:`10^{-162}` are
zero, and in float32 that is so from :math:`10^{19}` and :math:`10^{-23}` on. Multiplying by a power
of two rounds nothing. So where a sum of squares says that the features are not of ordinary size,
their largest number is looked for, and they are read in other units, in float64. Features of
ordinary size are read as they are.

Cost: nothing for ordinary features; for others one more pass, and a float64 copy of what is read.
"""

import math

from labelwise.arrays import Array, float64, namespace
from labelwise.blocks import Shard, Shards
from labelwise.errors import BadInput

ORDINARY = 30
"""Numbers up to two to this power, and down to its inverse, are of ordinary size."""
FURTHEST = 500
"""Squares of numbers up to two to this power, and down to its inverse, are numbers themselves."""


LIMIT = 1000
"""Numbers are multiplied by two to this power at most."""


def unit_of(shards: Shards, square: float) -> float:
    """What features are to be multiplied by: 1, or the power of two that brings them to about 1.

    Args:
        shards: the rows, with ``features``.
        square: about the mean squared length of a row; it need not be a number.

    Example:
        >>> import numpy as np
        >>> from labelwise.blocks import LocalShards
        >>> unit_of(LocalShards.of(features=np.array([[3.0], [1.0]])), square=5.0)
        1.0
        >>> unit_of(LocalShards.of(features=np.array([[2.0**100], [1.0]])), square=np.inf)
        3.944304526105059e-31
    """
    if 2.0 ** (-2 * ORDINARY) <= square <= 2.0 ** (2 * ORDINARY):
        return 1.0
    largest = max(shards.map(_largest))
    if not 0 < largest < math.inf:  # nothing to scale, or what the scores will be refused for
        return 1.0
    if abs(power_of(largest)) > FURTHEST:
        raise BadInput(
            f"features are up to {largest:.3g}, and their squares are beyond what float64 can "
            "hold; multiply all features by a number that brings them near 1"
        )
    return near_one(largest)


def near_one(number: float) -> float:
    """What brings a number to about 1: a power of two, or 1 if its size is ordinary already.

    Example:
        >>> near_one(3.0), near_one(0.0), near_one(2.0**-51)
        (1.0, 1.0, 1125899906842624.0)
    """
    if not 0 < number < math.inf or abs(power_of(number)) <= ORDINARY:
        return 1.0
    return 2.0 ** -max(min(power_of(number), LIMIT), -LIMIT)


def power_of(number: float) -> int:
    """The smallest power of two above a positive number."""
    return math.frexp(number)[1]


def in_units(features: Array, unit: float) -> Array:
    """The features as they are where the unit is 1; else multiplied by it, in float64."""
    return features if unit == 1 else float64(features) * unit


def _largest(shard: Shard) -> float:
    """The largest absolute value of a block's features; infinite if one is not a number."""
    features = shard.rows["features"]
    if not math.prod(features.shape):
        return 0.0
    xp = namespace(features)
    found = max(float(xp.max(features)), -float(xp.min(features)))
    return found if found == found else math.inf
