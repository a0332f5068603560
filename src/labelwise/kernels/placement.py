"""The device of computations on a pool: the host, or the GPU that holds its rows."""

import math

import numpy as np

from labelwise.arrays import Array, workplace
from labelwise.pool.blocks import LocalShards, Shard, Shards
from labelwise.pool.rows import join_rows

JOINED_BYTES = 4 << 30  # Blocks on a GPU up to this total size are joined


def find_placement(shards: Shards) -> Array:
    """An empty float64 array on the device for small computations (`labelwise.arrays`)."""
    first = next((item for item in shards.map(read_first_id) if item is not None), None)
    if first is None:
        return np.empty(0)
    value = next(iter(shards.rows(np.array([first])).values()), None)
    if value is None:
        return np.empty(0)
    return workplace(value[0] if isinstance(value, list | tuple) else value)


def read_first_id(shard: Shard) -> int | None:
    """The id of a block's first row, which identifies the block; None if it is empty."""
    return int(shard.ids_at(np.zeros(1, dtype=np.intp))[0]) if len(shard) else None


def join_resident_blocks(shards: Shards) -> Shards:
    """The same rows; small blocks on a GPU, where a launch takes longer than a copy, are joined."""
    if isinstance(find_placement(shards), np.ndarray):
        return shards
    sizes = shards.map(count_resident_bytes)
    if len(sizes) == 1 or not all(sizes) or sum(sizes) > JOINED_BYTES:
        return shards
    rows = join_rows(shards.map(lambda shard: dict(shard.rows)))
    return LocalShards([Shard(shards.ids, rows)], shards.progress)


def count_resident_bytes(shard: Shard) -> int:
    """Bytes of a block's rows on a GPU; 0 if two reads give different memory or none there."""
    total = 0
    for name in shard.rows:
        one, two = shard.rows[name], shard.rows[name]
        several = isinstance(one, list | tuple)
        for array, again in zip(one, two, strict=True) if several else [(one, two)]:
            if not hasattr(array, "data_ptr") or array.data_ptr() != again.data_ptr():
                return 0
            total += math.prod(array.shape) * array.dtype.itemsize
    return total
