"""Greedy picks made ahead, many at a time, where the rows are.

On a GPU a pick that is looked at from the host costs more than its arithmetic. A strategy that can
look ahead makes a block of picks on the device from the rows of highest score, without waiting for
any of them, and says how many of them are certain: those that no row could have beaten, whatever
rounding did. The rest is made again. Where not even the first is certain, the one loop that settles
ties in float64 (`labelwise.kernels.loop.greedy`) makes the pick.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, to_numpy
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import GreedyStrategy


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
    """A greedy strategy that can look ahead: ``ahead(strategy, shards, labelled) -> Ahead``.

    Where its plan measures rows in another unit than they are in (`labelwise.kernels.scaling`),
    ``back(plan, scores)`` are the scores in that of the rows.
    """

    ahead: Callable[[GreedyStrategy, Shards, Rows | None], Ahead]
    back: Callable[[Any, Floats], Floats] | None = None


def certain_ones(certain: NDArray[np.bool_]) -> int:
    """How many are certain before the first that is not."""
    return len(certain) if certain.all() else int(np.argmin(certain))


def on_host(*arrays: Array) -> list[Any]:
    """Some small arrays on the host."""
    return [to_numpy(array) for array in arrays]
