"""Pieces of a block: rows that stay in a core's cache, worked on by all cores side by side.

For work that is done row by row and is no large matrix product (`labelwise.threads` says why). A
block is as large as its memory allows: whoever looks at it three times fetches it from memory three
times. A piece is fetched once. Rows that are not in NumPy, and few rows, are one piece.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labelwise.arrays import Array
from labelwise.pool.rows import CutsRows, Rows, TakesRows, each
from labelwise.threads import side_by_side, spans, thread_count

NUMBERS = 1 << 21
"""About how many numbers a piece has, 8 MB in float32: with fewer, threads mostly wait in turn."""
LEAST = 1 << 22
"""A block of fewer numbers is one piece."""


def in_pieces(function: Callable[..., Array], rows: Rows, *beside: Array) -> Array:
    """``function(rows, *beside)`` of a block, ``(n, ...)``, made piece by piece.

    Args:
        function: of some rows and what lies beside them, to an array with one entry per row; what
            it makes of a row must not depend on the others. Or to one entry, such as a sum: there
            is then one for every piece.
        rows: of the block.
        beside: arrays with one entry per row, cut like the rows.

    Example:
        >>> rows = {"features": np.ones((100_000, 30))}
        >>> in_pieces(lambda rows: rows["features"].sum(axis=1), rows)[-1]
        np.float64(30.0)
    """
    count, width = rows.extent if isinstance(rows, CutsRows) else _extent(rows)
    if count * width < LEAST:
        return function(rows, *beside)
    threads = thread_count()
    turns = -(-count * width // (NUMBERS * threads))
    ranges = spans(count, -(-count // (turns * threads)))  # as many for every thread
    parts = rows.cut(ranges) if isinstance(rows, CutsRows) else _cut(rows, ranges)

    def one(part: tuple[slice, Rows]) -> Array:
        span, some = part
        return function(some, *(array[span] for array in beside))

    return np.concatenate(side_by_side(one, zip(ranges, parts, strict=True)))


def _extent(rows: Rows) -> tuple[int, int]:
    """How many rows there are, and how many numbers a row has in NumPy; 0 if elsewhere."""
    if isinstance(rows, TakesRows):
        return 0, 0
    arrays: list[Any] = []
    for value in rows.values():
        arrays += value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(array, np.ndarray) for array in arrays):
        return len(arrays[0]), 0
    return len(arrays[0]), sum(math.prod(array.shape[1:]) for array in arrays)


def _cut(rows: Rows, ranges: list[slice]) -> list[Rows]:
    def part(span: slice) -> Rows:
        return {name: each(value, lambda array: array[span]) for name, value in rows.items()}

    return [part(span) for span in ranges]
