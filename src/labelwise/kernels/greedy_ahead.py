"""Greedy picks made ahead, many at a time, where the rows are.

On a GPU a pick that is looked at from the host costs more than its arithmetic. A strategy that can
look ahead makes a block of picks on the device from the rows of highest score, without waiting for
any of them, and says how many of them are certain: those that no row could have beaten, whatever
rounding did. The rest is made again. Where not even the first is certain, the one loop that settles
ties in float64 (`labelwise.kernels.greedy`) makes the pick.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, to_numpy, workplace
from labelwise.blocks import LocalShards, Rows, Shard, Shards, join_rows
from labelwise.strategy import GreedyStrategy

JOINED_BYTES = 4 << 30
"""Blocks on a GPU that take no more than this together are made one."""


class Found(NamedTuple):
    """Picks that are certain, in order, and their scores: ``(k,)`` each, ``k >= 0``."""

    ids: Ids
    scores: Floats


class Ahead(Protocol):
    """Makes picks ahead."""

    def picks(self, plan: Any, new: Rows, new_ids: Ids, most: int) -> Found:
        """The next picks, at most so many; the plan has counted them afterwards.

        Args:
            plan: the strategy's.
            new: rows of the picks that the blocks have not heard of.
            new_ids: their ids.
            most: how many are wanted at most.
        """


@dataclass(frozen=True, kw_only=True)
class AheadStrategy(GreedyStrategy):
    """A greedy strategy that can look ahead: ``ahead(strategy, shards, labelled) -> Ahead``."""

    ahead: Callable[[GreedyStrategy, Shards, Rows | None], Ahead]


def workplace_of(shards: Shards) -> Array:
    """Where work on a few rows is best done (`labelwise.arrays.workplace`)."""
    first = next((item for item in shards.map(first_id) if item is not None), None)
    if first is None:
        return np.empty(0)
    value = next(iter(shards.rows(np.array([first])).values()), None)
    if value is None:
        return np.empty(0)
    return workplace(value[0] if isinstance(value, list | tuple) else value)


def first_id(shard: Shard) -> int | None:
    """The id of a block's first row, which tells blocks apart; None in an empty one."""
    return int(shard.ids[0]) if len(shard) else None


def in_one_block(shards: Shards) -> Shards:
    """The same rows, joined where they are in several small blocks that stay on a GPU.

    There a launch costs more than the rows of a small block, and a copy of them nothing.
    """
    if isinstance(workplace_of(shards), np.ndarray):
        return shards
    sizes = shards.map(bytes_on_device)
    if len(sizes) == 1 or not all(sizes) or sum(sizes) > JOINED_BYTES:
        return shards
    rows = join_rows(shards.map(_rows))
    return LocalShards([Shard(np.concatenate(shards.map(_ids)), rows)], shards.progress)


def stays(shard: Shard) -> bool:
    """Whether the rows of a block stay on their GPU: whether two reads give the same memory."""
    return bytes_on_device(shard) > 0


def bytes_on_device(shard: Shard) -> int:
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


def certain_ones(certain: NDArray[np.bool_]) -> int:
    """How many are certain before the first that is not."""
    return len(certain) if certain.all() else int(np.argmin(certain))


def on_host(*arrays: Array) -> list[Any]:
    """Some small arrays on the host."""
    return [to_numpy(array) for array in arrays]
