"""How fast the rows of a pool are, measured on some of its blocks."""

import time
from dataclasses import dataclass
from typing import Any

from labelwise.arrays import float64, namespace, to_numpy
from labelwise.pool.ids import RowNumbers
from labelwise.pool.shards import BLOCK_BYTES, BlockRows, rows_per_block
from labelwise.pool.sources import Sources

TIMED_BLOCKS, TIMED_COLUMNS, TIMED_ROWS, TIMED_SECONDS = 3, 32, 1 << 14, 0.5
"""How many blocks are read and multiplied, with how many columns, how many rows at a time; after
so many seconds no further one is."""


@dataclass(frozen=True)
class Pace:
    """How fast the pool's rows are, measured on some of its blocks.

    Attributes:
        read: seconds that reading all rows takes.
        column: seconds that multiplying all rows with one column takes, in float64.
        blocks: how many blocks were measured.
    """

    read: float
    column: float
    blocks: int


def pace(sources: Sources, items: int, row_bytes: int, block_bytes: int = BLOCK_BYTES) -> Pace:
    """Read a few blocks and multiply them, in float64 as most strategies do."""
    step = min(rows_per_block(row_bytes, block_bytes), max(items, 1))
    starts = sorted({0, max(items - step, 0), max(items // 2 - step, 0)})[:TIMED_BLOCKS]
    read = column = 0.0
    rows = blocks = 0
    for start in starts:
        ids = RowNumbers(start, min(start + step, items))
        begin = time.perf_counter()
        block = BlockRows(sources, start, ids)
        found = [part for name in block for part in _arrays(block[name])]
        read += time.perf_counter() - begin
        column += sum(map(_multiplied, found))
        rows, blocks = rows + len(ids), blocks + 1
        if read + TIMED_COLUMNS * column > TIMED_SECONDS:
            break
    share = items / max(rows, 1)
    return Pace(read * share, column * share, blocks)


def _arrays(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _multiplied(array: Any) -> float:
    """How many seconds it takes to multiply the rows of an array with one column of several."""
    xp = namespace(array)
    rows = xp.reshape(array, (len(array), -1))
    width = rows.shape[1]
    count = min(TIMED_COLUMNS, max(width, 1))
    columns = xp.astype(xp.ones_like(rows[:1]), xp.float64)
    columns = xp.matrix_transpose(xp.broadcast_to(columns, (count, width)))
    begin = time.perf_counter()
    for first in range(0, max(len(rows), 1), TIMED_ROWS):
        product = xp.matmul(float64(rows[first : first + TIMED_ROWS]), columns)
    to_numpy(product[:1])  # waits for a GPU
    return (time.perf_counter() - begin) / float(count)
