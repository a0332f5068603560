"""Chunks of rows in one precision, their products with a matrix, and scratch buffers."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import DTypeLike, NDArray

from labelwise.arrays import (
    Array,
    Floats,
    HostArray,
    device,
    float64,
    like,
    namespace,
    precision,
    squared_norms,
    to_numpy,
)

CHUNK = 2**18  # Numbers per chunk on a CPU, so that copies stay in cache
DEVICE_CHUNK = 2**26  # Numbers per chunk on a GPU, where every operation must be launched
KEPT_BUFFERS, LARGEST_BUFFER = 4, 32 << 20
"""Number of buffers that a thread keeps, and the largest size in bytes."""


class _ThreadBuffers(threading.local):
    """The unused buffers of this thread."""

    def __init__(self) -> None:
        self.unused: list[NDArray[np.uint8]] = []


_buffers = _ThreadBuffers()


@contextmanager
def scratch_buffer(shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[HostArray]:
    """An uninitialized array that is reused after the ``with`` block."""
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    memory = _buffers.unused.pop() if _buffers.unused else np.empty(0, dtype=np.uint8)
    if memory.nbytes < needed:
        memory = np.empty(needed, dtype=np.uint8)
    try:
        yield memory[:needed].view(dtype).reshape(shape)
    finally:
        if memory.nbytes <= LARGEST_BUFFER and len(_buffers.unused) < KEPT_BUFFERS:
            _buffers.unused.append(memory)


def iterate_row_chunks(rows: Array, *, double: bool, size: int = 0) -> Iterator[tuple[int, Array]]:
    """Chunks of a block in float64, or in float32 if ``double`` is off and the rows allow it.

    Yields the start of each chunk and its ``(m, d)`` rows; ``m`` is ``size`` if that is given.
    """
    xp, n = namespace(rows), rows.shape[0]
    dtype = xp.float64 if double or precision(rows) < 1e-12 else xp.float32
    size = size or _choose_chunk_size(rows)
    for start in range(0, n, size):
        yield start, xp.astype(rows[start : start + size], dtype, copy=False)


def _choose_chunk_size(rows: Array) -> int:
    """Rows per chunk, such that all chunks are about equally large."""
    n, d = map(int, rows.shape)
    some = (CHUNK if str(device(rows)) == "cpu" else DEVICE_CHUNK) // max(1, d)
    most = 1.25 * max(some, min(4 * some, 2048), 1024)  # BLAS is slow with few rows
    return max(1, math.ceil(n / max(1, math.ceil(n / most))))


def multiply_chunks(rows: Array, transform: Array, *, double: bool) -> Iterator[tuple[int, Array]]:
    """The chunks of a block times a ``(d, r)`` matrix.

    Yields the start of each chunk and its ``(m, r)`` product, which may be overwritten.
    """
    matrix: Array | None = None
    for start, chunk in iterate_row_chunks(rows, double=double):
        if matrix is None:
            given = to_numpy(transform) if isinstance(chunk, np.ndarray) else transform
            matrix = like(given, chunk, dtype=chunk.dtype)
        # A transposed float64 product takes BLAS a quarter less time; in float32 it takes more.
        transposed = isinstance(chunk, np.ndarray) and chunk.dtype == np.float64
        yield start, (matrix.T @ chunk.T).T if transposed else chunk @ matrix


def squared_row_lengths(rows: Array) -> Floats:
    """Squared length of every row, ``(n,)`` float64 on the host, without float32 underflow."""
    if isinstance(rows, np.ndarray) and rows.flags.f_contiguous:
        squares = np.einsum("ij,ij->i", rows, rows)  # BLAS row by row is slow in this layout
    else:
        squares = to_numpy(squared_norms(rows))
    squares = np.asarray(squares, dtype=np.float64)
    if np.min(squares, initial=1.0) < 1e-30:
        squares = to_numpy(squared_norms(float64(rows)))
    return squares
