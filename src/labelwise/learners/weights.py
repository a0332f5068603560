"""Numbers and weights as the user has them, checked before a training; without torch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, to_numpy
from labelwise.errors import BadInput


def convert_numbers(values: Any, name: str) -> NDArray[Any]:
    """An array of real numbers on the host; refuse what is none, or is masked.

    Args:
        values: an array, a tensor, a series or nested lists.
        name: what they are, for an error.

    Example:
        >>> as_numbers([1, 2], "targets").tolist()
        [1, 2]
    """
    if np.ma.is_masked(values):
        raise BadInput(f"{name} hold masked entries; fill them or leave these items out")
    array = to_numpy(values)
    if array.dtype.kind not in "biuf":
        raise BadInput(f"{name} must be numbers; got {array.dtype}")
    return array


def convert_rows(inputs: Any) -> Any:
    """Inputs as strategies take them: a frame or lists as an array, and all else as it is."""
    plain = hasattr(inputs, "to_numpy") or isinstance(inputs, list | tuple)
    return np.asarray(inputs) if plain else inputs


def scale_to_mean_one(weights: Any, count: int) -> Floats:
    """``(m,)`` weights of ``count`` items, divided by their mean; only their ratios matter.

    Example:
        >>> mean_one([1e300, 3e300], 2).tolist()
        [0.5, 1.5]
    """
    values = convert_numbers(weights, "weights").astype(np.float64)
    if values.shape != (count,):
        raise BadInput(f"there are {count} items but weights of shape {values.shape}")
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        place = int(wrong.argmax())
        raise BadInput(f"weights must be finite and not negative; item {place} has {values[place]}")
    if not values.any():
        raise BadInput("all weights are zero; give None to count all items alike")
    # By a power of two first, which rounds nothing: the sum of large weights would be infinite.
    values = np.ldexp(values, -int(np.frexp(values.max())[1]))
    return np.asarray(values / values.mean())
