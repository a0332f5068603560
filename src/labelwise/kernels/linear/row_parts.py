"""Parts of a block's rows in one precision, and their products with a matrix, in reused buffers.

Pages of fresh memory cost as much as the work on them, so that a part is converted and multiplied
in buffers that a thread keeps (`kernels.linear.scratch`). It is good until the next one is asked
for.
"""

import math
from collections.abc import Iterator

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    device,
    float64,
    like,
    namespace,
    precision,
    squared_norms,
    to_numpy,
)
from labelwise.kernels.linear.scratch import room

PIECE, PIECE_ON_DEVICE = 2**18, 2**26
"""About how many numbers of a block are worked on at a time: few on a processor, so that copies
stay in cache; many where every operation has to be launched and every answer waited for."""


def products(rows: Array, transform: Array, *, double: bool) -> Iterator[tuple[int, Array]]:
    """The `pieces` of a block times a matrix.

    Yields:
        where the piece starts, and its ``(m, r)`` product, which may be overwritten and is good
        until the next one is asked for.
    """
    matrix: Array | None = None
    for start, piece in pieces(rows, double=double):
        matrix = beside(transform, piece) if matrix is None else matrix
        if not isinstance(piece, np.ndarray):
            yield start, piece @ matrix
        elif piece.dtype == np.float64:
            # column by column, which takes BLAS a quarter less time; in float32 it takes more
            with room((matrix.shape[1], len(piece)), piece.dtype) as product:
                yield start, np.matmul(matrix.T, piece.T, out=product).T
        else:
            with room((len(piece), matrix.shape[1]), piece.dtype) as product:
                yield start, np.matmul(piece, matrix, out=product)


def beside(transform: Array, rows: Array) -> Array:
    """A matrix in the library, on the device and in the precision of rows."""
    given = to_numpy(transform) if isinstance(rows, np.ndarray) else transform
    return like(given, rows, dtype=rows.dtype)


def lengths(rows: Array) -> Floats:
    """Squared length of every row, ``(n,)``, on the host; small float32 ones do not vanish."""
    if isinstance(rows, np.ndarray) and rows.flags.f_contiguous:
        squares = np.einsum("ij,ij->i", rows, rows)  # by rows, BLAS would be slow here
    else:
        squares = to_numpy(squared_norms(rows))
    squares = np.asarray(squares, dtype=np.float64)
    if np.min(squares, initial=1.0) < 1e-30:
        squares = to_numpy(squared_norms(float64(rows)))
    return squares


def pieces(rows: Array, *, double: bool, size: int = 0) -> Iterator[tuple[int, Array]]:
    """Parts of a block in float64, or in float32 where ``double`` is off and the rows allow it.

    Yields:
        where the part starts, and its ``(m, d)`` rows, which are good until the next ones are asked
        for; ``m`` is ``size`` if that is given.
    """
    xp, n = namespace(rows), rows.shape[0]
    dtype = xp.float64 if double or precision(rows) < 1e-12 else xp.float32
    size = size or _even_size(rows)
    as_they_are = not isinstance(rows, np.ndarray) or rows.dtype == dtype
    for start in range(0, n, size):
        part = rows[start : start + size]
        if as_they_are:
            yield start, xp.astype(part, dtype, copy=False)
            continue
        with room(part.shape, dtype) as converted:
            np.copyto(converted, part, casting="unsafe")
            yield start, converted


def _even_size(rows: Array) -> int:
    """How many rows a part of a block has; none is much smaller than the others."""
    n, d = map(int, rows.shape)
    some = (PIECE if str(device(rows)) == "cpu" else PIECE_ON_DEVICE) // max(1, d)
    most = 1.25 * max(some, min(4 * some, 2048), 1024)  # BLAS is slow with few rows
    return max(1, math.ceil(n / max(1, math.ceil(n / most))))
