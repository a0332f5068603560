"""Blocks of rows: the only way in which strategies and kernels see a pool.

A *shard* is a block of rows with their ids and a place for what a strategy remembers about them.
*Shards* are all blocks of a pool. Rows stay where they are (memory, a file, a GPU, a worker):
functions travel to them, and only sums, small results and picked rows travel back.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

from labelwise.arrays import Ids, detached, is_array
from labelwise.errors import BadInput, UnknownName
from labelwise.pool.rows import Rows, join_rows, take_rows

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)`` while a long selection runs."""

T = TypeVar("T")


class RowNumbers:
    """Ids that are row numbers, ``first`` to ``last - 1`` but for a few: they are not kept.

    Example:
        >>> RowNumbers(3, 8, without=np.array([5])).listed()
        array([3, 4, 6, 7])
    """

    __slots__ = ("_keep", "_list", "first", "last", "without")

    def __init__(
        self, first: int, last: int, without: Ids | None = None, *, keep: bool = False
    ) -> None:
        """Leave out ``without``, sorted numbers of the range.

        With ``keep``, they are listed once, for those who ask often: in a pool of few blocks.
        """
        self.first, self.last = first, last
        self.without = np.empty(0, dtype=np.int64) if without is None else without
        self._keep = keep
        self._list: Ids | None = None

    def __len__(self) -> int:
        return self.last - self.first - len(self.without)

    def listed(self) -> Ids:
        """The ids as an array."""
        if not self._keep:
            return self._listed()
        if self._list is None:
            self._list = self._listed()
        return self._list

    def at(self, positions: Any) -> Ids:
        """The ids at some positions, without a list of all where that can be."""
        if len(self.without) or self._list is not None:
            return np.asarray(self.listed()[positions])
        return np.asarray(positions, dtype=np.int64) + self.first

    def _listed(self) -> Ids:
        ids = np.arange(self.first, self.last, dtype=np.int64)
        return np.delete(ids, self.without - self.first) if len(self.without) else ids


class Shard:
    """A block of rows.

    Attributes:
        rows: their representations; a mapping that may read a file on access.
        state: what a strategy keeps beside these rows between two calls of `Shards.map`.

    Example:
        >>> import numpy as np
        >>> Shard(np.array([10, 20]), {"features": np.zeros((2, 3))}).ids
        array([10, 20])
    """

    __slots__ = ("_ids", "rows", "state")

    def __init__(
        self, ids: Ids | RowNumbers, rows: Rows, state: dict[str, Any] | None = None
    ) -> None:
        """Hold the rows of some items; ``ids`` are theirs."""
        self._ids, self.rows = ids, rows
        self.state: dict[str, Any] = {} if state is None else state

    @property
    def ids(self) -> Ids:
        """``(n,)`` int64, the items' stable ids."""
        return self._ids.listed() if isinstance(self._ids, RowNumbers) else self._ids

    def ids_at(self, positions: Any) -> Ids:
        """The ids of the rows at some positions (whole numbers)."""
        if isinstance(self._ids, RowNumbers):
            return self._ids.at(positions)
        return np.asarray(self._ids[positions])

    @property
    def numbers(self) -> RowNumbers | None:
        """The ids, where they are row numbers that are not kept."""
        return self._ids if isinstance(self._ids, RowNumbers) else None

    def __len__(self) -> int:
        return len(self._ids)


class Shards(Protocol):
    """All blocks of a pool. Functions given to it are called once per block."""

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block."""

    def __len__(self) -> int:
        """How many rows there are in all blocks together."""

    def map(self, function: Callable[..., T], *arguments: Any) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The results of `map` added up; tuples are added field by field."""

    def rows(self, ids: Ids) -> dict[str, Any]:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """Tell whoever watches how far the work has come."""


class Settles(Protocol):
    """Decides where the state of a block lies between two visits."""

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
        spill: Settles | None = None,
    ) -> None:
        """Hold the blocks.

        Args:
            shards: the blocks.
            progress: told how far a selection has come.
            spill: where states lie that do not fit in memory.
        """
        self._shards = list(shards)
        self._progress, self._spill = progress, spill

    @classmethod
    def of(cls, **representations: Any) -> "LocalShards":
        """One block holding the given arrays, with row numbers as ids."""
        first = next(iter(representations.values()))
        first = first[0] if isinstance(first, list | tuple) else first
        return cls([Shard(RowNumbers(0, len(first), keep=True), representations)])

    def __len__(self) -> int:
        return sum(len(shard) for shard in self._shards)

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block; row numbers are listed anew every time."""
        if self._numbered is None:
            return self._listed
        none: list[Ids] = [np.empty(0, dtype=np.int64)]
        return np.concatenate([shard.ids for shard in self._shards] or none)

    @cached_property
    def _listed(self) -> Ids:
        return np.concatenate([shard.ids for shard in self._shards])

    @cached_property
    def _numbered(self) -> "_Numbered | None":
        """How to find items whose ids are row numbers in order; None for other ids."""
        numbers = [shard.numbers for shard in self._shards]
        known = [block for block in numbers if block is not None]
        if len(known) < len(numbers):
            return None
        if any(block.last > after.first for block, after in pairwise(known)):
            return None
        return _Numbered(known)

    @cached_property
    def _order(self) -> Any:
        return np.argsort(self._listed, kind="stable")

    @cached_property
    def _ends(self) -> Any:
        return np.cumsum([len(shard) for shard in self._shards])

    def progress(self, stage: str, done: int, total: int) -> None:
        """Tell whoever watches how far the work has come."""
        if self._progress is not None:
            self._progress(stage, done, total)

    def map(self, function: Callable[..., T], *arguments: Any) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""
        return [self._visit(shard, function, arguments) for shard in self._shards]

    def _visit(self, shard: Shard, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        answer = function(shard, *arguments)
        if self._spill is not None:
            self._spill.settle(shard.state)
        return answer

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The results of `map` added up; tuples are added field by field."""
        total: Any = None
        for shard in self._shards:
            part = self._visit(shard, function, arguments)
            total = part if total is None else added(total, part)
        return total

    def positions(self, ids: Ids) -> Any:
        """Where the items stand among all rows; an id that is not there is an error."""
        ids = np.asarray(ids, dtype=np.int64)
        if self._numbered is not None:
            found, known = self._numbered.find(ids)
        else:
            found = np.searchsorted(self._listed, ids, sorter=self._order)
            found = self._order[np.minimum(found, max(len(self) - 1, 0))] if len(self) else found
            known = self._listed[found] == ids if len(self) else np.zeros(len(ids), dtype=bool)
        if not known.all():
            raise UnknownName(f"no item of the pool has id {ids[~known][0]}; check the ids")
        return found

    def rows(self, ids: Ids) -> dict[str, Any]:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""
        positions = self.positions(ids)
        owners = np.searchsorted(self._ends, positions, side="right")
        visited = sorted(set(owners.tolist()))
        parts, order = [], []
        for owner in visited:
            mine = np.flatnonzero(owners == owner)
            shard = self._shards[owner]
            start = self._ends[owner] - len(shard)
            parts.append(take_rows(shard.rows, positions[mine] - start))
            order.append(mine)
        if not parts:
            return take_rows(self._shards[0].rows, np.empty(0, dtype=np.intp))
        joined = join_rows(parts)
        if len(parts) == 1:
            return joined
        return take_rows(joined, np.argsort(np.concatenate(order)))


class _Numbered:
    """Where items stand among blocks of row numbers in increasing order, without a list of ids."""

    def __init__(self, blocks: Sequence[RowNumbers]) -> None:
        self._firsts = np.array([block.first for block in blocks], dtype=np.int64)
        self._lasts = np.array([block.last for block in blocks], dtype=np.int64)
        self._starts = np.cumsum([0, *(len(block) for block in blocks)])[:-1]
        none = np.empty(0, dtype=np.int64)
        self._without = np.concatenate([none, *(block.without for block in blocks)])
        self._before = np.searchsorted(self._without, self._firsts)

    def find(self, ids: Ids) -> tuple[Any, Any]:
        """Positions of items, and whether they are there at all."""
        if not len(self._firsts):
            return ids, np.zeros(len(ids), dtype=bool)
        owners = np.maximum(np.searchsorted(self._firsts, ids, side="right") - 1, 0)
        missing = np.searchsorted(self._without, ids)
        taken = np.append(self._without, -1)[missing] == ids
        known = (ids >= self._firsts[owners]) & (ids < self._lasts[owners]) & ~taken
        positions = ids - self._firsts[owners] + self._starts[owners]
        return positions - (missing - self._before[owners]), known


def added(left: Any, right: Any) -> Any:
    """The sum of what two blocks answer; tuples are added field by field."""
    if isinstance(left, tuple):
        return tuple(added(a, b) for a, b in zip(left, right, strict=True))
    return left + right


def as_shards(rows: Any, name: str = "rows") -> Shards:
    """Shards of an array, or of a list of arrays, one block each; shards are left as they are.

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
