"""Rows in double precision, a few at a time.

Features are mostly float32. Where rounding would decide a pick, products are taken in float64: a
chunk of rows is widened, used while it is still in the processor's cache, and forgotten. That
costs about twice the time of a float32 pass and no memory to speak of.
"""

import math
from collections.abc import Iterator
from typing import Any

from labelwise.arrays import Array, device, float64, namespace

CHUNK_ON_PROCESSOR = 1 << 16
"""Numbers per chunk where small chunks stay in cache (half a megabyte in float64)."""
CHUNK_ON_DEVICE = 1 << 26
"""Numbers per chunk where every operation has to be launched (half a gigabyte in float64)."""


def iterate_float64_chunks(*arrays: Array) -> Iterator[tuple[Any, ...]]:
    """The same rows of every ``(n, ...)`` array, in float64; one empty chunk if there are none."""
    xp = namespace(*arrays)
    width = max(math.prod(array.shape[1:]) for array in arrays)
    limit = CHUNK_ON_PROCESSOR if str(device(arrays[0])) == "cpu" else CHUNK_ON_DEVICE
    step = max(limit // max(width, 1), 64)
    for first in range(0, max(arrays[0].shape[0], 1), step):
        parts = (array[first : first + step] for array in arrays)
        yield tuple(xp.astype(part, xp.float64, copy=False) for part in parts)


def multiply_in_float64(rows: Array, matrix: Array) -> Array:
    """``rows @ matrix`` in float64: ``(n, d)`` and ``(d, m)`` to ``(n, m)``."""
    xp = namespace(rows)
    matrix = float64(matrix)
    shape = (rows.shape[0], matrix.shape[1])
    result, first = xp.empty(shape, dtype=xp.float64, device=device(rows)), 0
    for (chunk,) in iterate_float64_chunks(rows):
        last = first + chunk.shape[0]
        result[first:last] = xp.matmul(chunk, matrix)
        first = last
    return result
