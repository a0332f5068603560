"""Validation of numbers and weights, without torch."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from labelwise.arrays import Array, Floats, HostArray, to_numpy
from labelwise.errors import BadInput


def convert_numbers(values: Array, name: str) -> HostArray:
    """Convert an array, tensor, series or nested lists to a NumPy array of real numbers.

    Masked and other values are errors, which name ``name``.

    >>> convert_numbers([1, 2], "targets").tolist()
    [1, 2]
    """
    if np.ma.is_masked(values):
        raise BadInput(f"{name} hold masked entries; fill them or leave these items out")
    if issparse(values):
        raise BadInput(f"{name} are a sparse matrix; give a dense one, for example by .toarray()")
    array = to_numpy(values)
    if array.dtype.kind not in "biuf":
        raise BadInput(f"{name} must be numbers; got {array.dtype}")
    return array


def convert_rows(inputs: Array) -> Array:
    """Convert data frames and lists to arrays; other inputs stay as they are."""
    plain = hasattr(inputs, "to_numpy") or isinstance(inputs, list | tuple)
    return np.asarray(inputs) if plain else inputs


def scale_to_mean_one(weights: Array, count: int) -> Floats:
    """``(m,)`` weights of ``count`` items, divided by their mean; only their ratios matter.

    >>> scale_to_mean_one([1e300, 3e300], 2).tolist()
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
        raise BadInput("all weights are zero; give None to weight all items equally")
    # Scale by a power of two first (exact), because the sum of large weights could overflow.
    values = np.ldexp(values, -int(np.frexp(values.max())[1]))
    return np.asarray(values / values.mean())


def drop_zero_weights(weights: Array | None, count: int) -> tuple[NDArray[np.bool_], Floats]:
    """Mask ``(m,)`` of the items whose weight is not 0, and their weights, of mean 1.

    Folds of items without weight could not be trained on.

    >>> drop_zero_weights([2.0, 0.0, 6.0], 3)
    (array([ True, False,  True]), array([0.5, 1.5]))
    """
    if weights is None:
        return np.ones(count, bool), np.ones(count)
    values = scale_to_mean_one(weights, count)
    kept = values > 0
    return kept, scale_to_mean_one(values[kept], int(kept.sum()))
