"""Where the rows of a pool are: on the host, or on a GPU, where small work is done beside them."""

import math
from typing import Any

import numpy as np

from labelwise.arrays import Array, Ids, workplace
from labelwise.pool.blocks import LocalShards, Shard, Shards
from labelwise.pool.rows import join_rows

JOINED_BYTES = 4 << 30
"""Blocks on a GPU that take no more than this together are made one."""


def find_placement(shards: Shards) -> Array:
    """Where work on a few rows is best done (`labelwise.arrays.workplace`)."""
    first = next((item for item in shards.map(read_first_id) if item is not None), None)
    if first is None:
        return np.empty(0)
    value = next(iter(shards.rows(np.array([first])).values()), None)
    if value is None:
        return np.empty(0)
    return workplace(value[0] if isinstance(value, list | tuple) else value)


def read_first_id(shard: Shard) -> int | None:
    """The id of a block's first row, which tells blocks apart; None in an empty one."""
    return int(shard.ids_at(np.zeros(1, dtype=np.intp))[0]) if len(shard) else None


def join_resident_blocks(shards: Shards) -> Shards:
    """The same rows, joined where they are in several small blocks that stay on a GPU.

    There a launch costs more than the rows of a small block, and a copy of them nothing.
    """
    if isinstance(find_placement(shards), np.ndarray):
        return shards
    sizes = shards.map(count_resident_bytes)
    if len(sizes) == 1 or not all(sizes) or sum(sizes) > JOINED_BYTES:
        return shards
    rows = join_rows(shards.map(_rows))
    return LocalShards([Shard(np.concatenate(shards.map(_ids)), rows)], shards.progress)


def stays(shard: Shard) -> bool:
    """Whether the rows of a block stay on their GPU: whether two reads give the same memory."""
    return count_resident_bytes(shard) > 0


def count_resident_bytes(shard: Shard) -> int:
    """What the rows of a block take on a GPU, or 0 if they are somewhere else or read anew."""
    total = 0
    for name in shard.rows:
        for one, two in zip(*(_arrays(shard.rows[name]) for _ in range(2)), strict=True):
            if not hasattr(one, "data_ptr") or one.data_ptr() != two.data_ptr():
                return 0
            total += math.prod(one.shape) * one.dtype.itemsize
    return total


def _arrays(value: Any) -> list[Array]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _rows(shard: Shard) -> dict[str, Any]:
    return dict(shard.rows)


def _ids(shard: Shard) -> Ids:
    return shard.ids
