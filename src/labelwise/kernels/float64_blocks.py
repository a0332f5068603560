"""Float64 computation on chunks of rows.

Features are mostly float32. Where rounding could decide a pick, products use float64: a chunk of
rows is converted, used while it is in the CPU cache, and dropped. That takes about twice the time
of a float32 pass and hardly any memory.
"""

import math
from collections.abc import Iterator

from labelwise.arrays import Array, device, float64, namespace

HOST_CHUNK = 1 << 16
"""Numbers per chunk on a CPU, where small chunks stay in cache (0.5 MB in float64)."""
DEVICE_CHUNK = 1 << 26
"""Numbers per chunk on a GPU, where every operation must be launched (0.5 GB in float64)."""


def iterate_float64_chunks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """The same rows of every ``(n, ...)`` array in float64; one empty chunk if ``n`` is 0."""
    xp = namespace(*arrays)
    width = max(math.prod(array.shape[1:]) for array in arrays)
    limit = HOST_CHUNK if str(device(arrays[0])) == "cpu" else DEVICE_CHUNK
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
