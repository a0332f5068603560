"""What rows must be: numbers of the right form, finite, and probabilities where they are called so.

A message names the representation, the item and what to do.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labelwise.arrays import (
    Array,
    Ids,
    namespace,
    row_sums,
    squared_norms,
    to_numpy,
    working,
)
from labelwise.errors import BadInput
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.sources import Source

Listed = Callable[[], Ids]
"""Lists the ids of some rows, where one is needed for a message."""


def check_form(name: str, source: Source) -> None:
    """Refuse a source whose shape or type is not that of its name."""
    expected = REPRESENTATIONS[name.split("[")[0]]
    if len(source.shape) != len(expected.axes):
        raise BadInput(f"{name} must have shape {expected.shape}; got {source.shape}")
    if 0 in source.shape[1:]:
        raise BadInput(f"{name} has no columns; got shape {source.shape}")
    if source.shape[0]:
        _check_numbers(name, source.read(0, 0))


def _check_numbers(name: str, rows: Array) -> None:
    """Refuse rows of anything but real numbers, whose type is all that counts here."""
    xp = namespace(rows)
    if isinstance(rows, np.ndarray) and rows.dtype.kind not in "fiubc":
        raise BadInput(f"{name} must hold numbers; got values of type {rows.dtype}")
    if xp.isdtype(rows.dtype, "complex floating"):
        raise BadInput(
            f"{name} must hold real numbers; got {rows.dtype}: give real and imaginary parts as "
            "columns, or absolute values"
        )


def working_rows(name: str, rows: Array) -> Array:
    """Rows in a precision to compute with: float32 or float64; votes for classes stay whole."""
    xp = namespace(rows)
    if rows.dtype not in (xp.float32, xp.float64):
        if name.split("[")[0] == "member_votes" and xp.isdtype(rows.dtype, ("integral", "bool")):
            return xp.astype(rows, xp.int64)
        _check_numbers(name, rows)  # of sources that came another way than `open_sources`
    return working(rows)


def check_rows(name: str, rows: Any, listed: Listed) -> None:
    """Refuse NaN, infinity, and probabilities that are none, of one model or several."""
    if not isinstance(rows, list):
        _check_model(name, rows, listed)
        return
    for number, some in enumerate(rows):
        _check_model(f"{name}[{number}]", some, listed)


def _check_model(name: str, rows: Array, listed: Listed) -> None:
    xp = namespace(rows)
    if not xp.isdtype(rows.dtype, "real floating"):
        return  # whole numbers are always finite
    if name.split("[")[0] in ("probabilities", "member_probabilities"):
        _check_probabilities(name, rows, listed)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # One quick pass, row by row so that other threads can go on; a slow look if it is odd.
        flat = xp.reshape(rows, (rows.shape[0], math.prod(rows.shape[1:])))
        total = xp.sum(squared_norms(flat))
    if not bool(xp.isfinite(total)):
        _check_finite(name, rows, listed)


def _check_finite(name: str, rows: Array, listed: Listed) -> None:
    xp, axes = namespace(rows), tuple(range(1, rows.ndim))
    wrong = to_numpy(xp.any(~xp.isfinite(rows), axis=axes) if axes else ~xp.isfinite(rows))
    if wrong.any():
        raise BadInput(
            f"{name} of item {listed()[wrong][0]} is NaN or infinite (items like it in its block: "
            f"{int(wrong.sum())}); mend them or leave them out"
        )


def _check_probabilities(name: str, rows: Array, listed: Listed) -> None:
    """Rows that add up to 1 and have no number below 0 have none that is NaN or infinite."""
    xp, count = namespace(rows), rows.shape[0]
    if not count:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        sums = to_numpy(row_sums(rows)).reshape(count, -1)
        right = (np.abs(sums - 1) <= 1e-3).all(axis=1)
        if right.all() and not float(xp.min(rows)) < -1e-6:
            return
    _check_finite(name, rows, listed)
    low = to_numpy(xp.min(rows, axis=-1)).reshape(count, -1).min(axis=1)
    position = int(np.flatnonzero(~right | (low < -1e-6))[0])
    raise BadInput(
        f"{name} of item {listed()[position]} are no probabilities "
        f"(sum {sums[position].flat[0]:.4g}, smallest {low[position]:.4g}); "
        "give each row as numbers from 0 that add up to 1"
    )
