"""Blocks of rows: strategies and kernels see a pool only through them.

A *shard* is a block of rows with their ids and the state that a strategy keeps for them. *Shards*
are all blocks of a pool. Rows stay where they are (memory, a file, a GPU, a worker process):
functions are sent to them, and only sums, small results and picked rows come back.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids, detached, is_array
from labelwise.errors import BadInput
from labelwise.pool.ids import IdIndex, RowNumbers
from labelwise.pool.rows import Rows, join_rows, take_rows

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)`` during a long selection."""

T = TypeVar("T")


class Shard:
    """A block of rows.

    Attributes:
        rows: their representations; a mapping that may read a file on access.
        state: values that a strategy keeps for these rows between calls of `Shards.map`.

    Example:
        >>> import numpy as np
        >>> Shard(np.array([10, 20]), {"features": np.zeros((2, 3))}).ids
        array([10, 20])
    """

    __slots__ = ("block_ids", "rows", "state")

    def __init__(
        self, ids: Ids | RowNumbers, rows: Rows, state: dict[str, Any] | None = None
    ) -> None:
        """Hold the rows of the items ``ids``."""
        self.block_ids, self.rows = ids, rows
        self.state: dict[str, Any] = {} if state is None else state

    @property
    def ids(self) -> Ids:
        """``(n,)`` int64, the items' stable ids."""
        ids = self.block_ids
        return ids.to_array() if isinstance(ids, RowNumbers) else ids

    def ids_at(self, positions: Any) -> Ids:
        """The ids of the rows at some positions (whole numbers)."""
        return self.block_ids.take(positions)

    def __len__(self) -> int:
        return len(self.block_ids)


class Shards(Protocol):
    """All blocks of a pool. Functions given to it are called once per block."""

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block."""

    def __len__(self) -> int:
        """Number of rows in all blocks together."""

    def map(self, function: Callable[..., T], *arguments: Any) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The results of `map` added up; tuples are added field by field."""

    def rows(self, ids: Ids) -> dict[str, Any]:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """Report progress to the caller of the selection."""


class StateSpill(Protocol):
    """Moves the state of blocks out of memory between two visits."""

    def settle(self, state: dict[str, Any]) -> None:
        """Called with a block's state after every visit."""


class LocalShards:
    """Blocks in this process, visited one after the other.

    Example:
        >>> import numpy as np
        >>> shards = LocalShards.of(features=np.ones((4, 2)))
        >>> shards.sum(lambda shard: shard.rows["features"].sum())
        np.float64(8.0)
    """

    def __init__(
        self,
        shards: Iterable[Shard],
        progress: Progress | None = None,
        spill: StateSpill | None = None,
    ) -> None:
        """Hold the blocks.

        Args:
            shards: the blocks.
            progress: receives the progress of a selection.
            spill: moves states that do not fit out of memory.
        """
        self._shards = list(shards)
        self._progress, self._spill = progress, spill

    @classmethod
    def of(cls, **representations: Any) -> "LocalShards":
        """Create one block of the given arrays, with row numbers as ids."""
        first = next(iter(representations.values()))
        first = first[0] if isinstance(first, list | tuple) else first
        return cls([Shard(RowNumbers(0, len(first), keep=True), representations)])

    def __len__(self) -> int:
        return sum(len(shard) for shard in self._shards)

    @cached_property
    def _index(self) -> IdIndex:
        return IdIndex.from_blocks([shard.block_ids for shard in self._shards])

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block; row numbers are made on every access."""
        ids = self._index.ids
        return ids.to_array() if isinstance(ids, RowNumbers) else ids

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum([len(shard) for shard in self._shards])

    def progress(self, stage: str, done: int, total: int) -> None:
        """Report progress to the caller of the selection."""
        if self._progress is not None:
            self._progress(stage, done, total)

    def map(self, function: Callable[..., T], *arguments: Any) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""
        results = []
        for shard in self._shards:
            results.append(function(shard, *arguments))
            if self._spill is not None:
                self._spill.settle(shard.state)
        return results

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The results of `map` added up; tuples are added field by field."""
        total: Any = None
        for shard in self._shards:
            part = function(shard, *arguments)
            if self._spill is not None:
                self._spill.settle(shard.state)
            total = part if total is None else add_results(total, part)
        return total

    def positions(self, ids: Any) -> NDArray[np.intp]:
        """Return the positions of items among all rows; an unknown id is an error."""
        return self._index.find_positions(ids)

    def rows(self, ids: Ids) -> dict[str, Any]:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""
        positions = self.positions(ids)
        owners = np.searchsorted(self._ends, positions, side="right")
        parts, order = [], []
        for owner in np.unique(owners).tolist() or [0]:
            shard, mine = self._shards[owner], np.flatnonzero(owners == owner)
            start = int(self._ends[owner]) - len(shard)
            parts.append(take_rows(shard.rows, positions[mine] - start))
            order.append(mine)
        if len(parts) == 1:
            return parts[0]
        return take_rows(join_rows(parts), np.argsort(np.concatenate(order)))


def add_results(left: Any, right: Any) -> Any:
    """Add the results of two blocks; tuples are added field by field."""
    if isinstance(left, tuple):
        return tuple(add_results(a, b) for a, b in zip(left, right, strict=True))
    return left + right


def as_shards(rows: Any, name: str = "rows") -> Shards:
    """Shards of an array, or of a list of arrays with one block each; shards are returned as is.

    Kernels that take "array or blocks" start with this.
    """
    if isinstance(rows, list | tuple) and rows and all(is_array(block) for block in rows):
        ends = np.cumsum([len(block) for block in rows])
        return LocalShards(
            Shard(RowNumbers(end - len(block), end, keep=True), {"features": detached(block)})
            for block, end in zip(rows, ends.tolist(), strict=True)
        )
    if is_array(rows):
        if rows.ndim != 2:
            raise BadInput(f"{name} must have two axes (items, columns); got shape {rows.shape}")
        return LocalShards.of(features=detached(rows))
    if not hasattr(rows, "map"):
        kind = type(rows).__name__
        raise BadInput(f"{name} must be an array, a list of arrays or shards; got {kind}")
    shards: Shards = rows
    return shards
