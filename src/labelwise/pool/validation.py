"""Checks of rows: real numbers, finite, and probabilities where their name says so.

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

ListIds = Callable[[], Ids]
"""Lists the ids of some rows; called only for an error message."""


def check_numeric(name: str, rows: Array) -> None:
    """Reject rows whose type is not a real number."""
    xp = namespace(rows)
    if isinstance(rows, np.ndarray) and rows.dtype.kind not in "fiubc":
        raise BadInput(f"{name} must hold numbers; got values of type {rows.dtype}")
    if xp.isdtype(rows.dtype, "complex floating"):
        raise BadInput(
            f"{name} must hold real numbers; got {rows.dtype}: give real and imaginary parts as "
            "columns, or absolute values"
        )


def convert_rows(name: str, rows: Array) -> Array:
    """Convert rows to float32 or float64 for computing; votes for classes stay integers."""
    xp = namespace(rows)
    if rows.dtype not in (xp.float32, xp.float64):
        if name.split("[")[0] == "member_votes" and xp.isdtype(rows.dtype, ("integral", "bool")):
            return xp.astype(rows, xp.int64)
        check_numeric(name, rows)  # for sources that `open_sources` did not open
    return working(rows)


def check_rows(name: str, rows: Any, list_ids: ListIds) -> None:
    """Reject NaN, infinity and invalid probabilities, of one model or several."""
    if not isinstance(rows, list):
        _check_model(name, rows, list_ids)
        return
    for number, some in enumerate(rows):
        _check_model(f"{name}[{number}]", some, list_ids)


def _check_model(name: str, rows: Array, list_ids: ListIds) -> None:
    xp = namespace(rows)
    if not xp.isdtype(rows.dtype, "real floating"):
        return  # integers are always finite
    if name.split("[")[0] in ("probabilities", "member_probabilities"):
        _check_probabilities(name, rows, list_ids)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # One fast pass over the squared norms; only a total that is not finite needs a second one.
        flat = xp.reshape(rows, (rows.shape[0], math.prod(rows.shape[1:])))
        total = xp.sum(squared_norms(flat))
    if not bool(xp.isfinite(total)):
        _check_finite(name, rows, list_ids)


def _check_finite(name: str, rows: Array, list_ids: ListIds) -> None:
    xp, axes = namespace(rows), tuple(range(1, rows.ndim))
    wrong = to_numpy(xp.any(~xp.isfinite(rows), axis=axes) if axes else ~xp.isfinite(rows))
    if wrong.any():
        raise BadInput(
            f"{name} of item {list_ids()[wrong][0]} is NaN or infinite ({int(wrong.sum())} such "
            f"items in its block); fix them or leave them out"
        )


def _check_probabilities(name: str, rows: Array, list_ids: ListIds) -> None:
    """Check sums and signs; rows that pass have no NaN and no infinity."""
    xp, count = namespace(rows), rows.shape[0]
    if not count:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        sums = to_numpy(row_sums(rows)).reshape(count, -1)
        right = (np.abs(sums - 1) <= 1e-3).all(axis=1)
        if right.all() and not float(xp.min(rows)) < -1e-6:
            return
    _check_finite(name, rows, list_ids)
    low = to_numpy(xp.min(rows, axis=-1)).reshape(count, -1).min(axis=1)
    position = int(np.flatnonzero(~right | (low < -1e-6))[0])
    raise BadInput(
        f"{name} of item {list_ids()[position]} are not probabilities "
        f"(sum {sums[position].flat[0]:.4g}, smallest {low[position]:.4g}); "
        "give each row as numbers from 0 that add up to 1"
    )
