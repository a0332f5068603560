"""Blocks of rows: strategies and kernels see a pool only through them.

A *shard* is a block of rows with their ids and the state that a strategy keeps for them. *Shards*
are all blocks of a pool. Rows stay where they are (memory, a file, a GPU, a worker process):
functions are sent to them, and only sums, small results and picked rows come back.
"""

import math
import mmap
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from labelwise.arrays import Array, HostArray, Ids, Positions, detached, device, is_array, take
from labelwise.errors import BadInput, StorageFailed
from labelwise.pool.ids import IdIndex, Keys, RowNumbers, check_pool_ids, encode_labelled
from labelwise.pool.representations import (
    check_representation_rows,
    convert_rows,
    flatten_sources,
    read_stored_ids,
)
from labelwise.pool.rows import ArrayDict, Rows, StoredRows, join_rows, map_models, take_rows
from labelwise.pool.sources.source import Sources

BLOCK_BYTES = 64 << 20  # Approximate memory of the rows of one block
BLOCK_BYTES_ON_DEVICE = 8 << 30
"""The same for rows on a GPU, where small blocks would cost many kernel launches."""
LEAST_ROW = 64  # Least bytes that a row counts for; the results of narrow rows need memory too
LEAST_SPILLED = 1 << 16  # State arrays of fewer bytes stay in memory
FEW_BLOCKS = 16  # A pool of at most this many blocks keeps the array of its row numbers
Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)`` during a long selection."""

ArrayOrShards = Any  # An array ``(n, d)``, a list of such arrays with one block each, or `Shards`
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Shard:
    """A block of rows.

    Attributes:
        block_ids: the items' stable ids.
        rows: their representations; a mapping that may read a file on access.
        state: values that a strategy keeps for these rows between calls of `Shards.map`.

    Example:
        >>> import numpy as np
        >>> Shard(np.array([10, 20]), {"features": np.zeros((2, 3))}).ids
        array([10, 20])
    """

    block_ids: Ids | RowNumbers
    rows: Rows
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> Ids:
        """``(n,)`` int64, the items' stable ids."""
        ids = self.block_ids
        return ids.to_array() if isinstance(ids, RowNumbers) else ids

    def ids_at(self, positions: Positions) -> Ids:
        """The ids of the rows at some positions (whole numbers)."""
        return self.block_ids.take(positions)

    def __len__(self) -> int:
        return len(self.block_ids)


def read_all_rows(shard: Shard) -> None:
    """Read every representation of a block, which validates it."""
    for name in shard.rows:
        shard.rows[name]


def drop_state(shard: Shard, key: str) -> None:
    """Remove what a strategy has kept for a block."""
    shard.state.pop(key, None)


class Shards(Protocol):
    """All blocks of a pool. Functions given to it are called once per block."""

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block."""

    def __len__(self) -> int:
        """Number of rows in all blocks together."""

    def map(self, function: Callable[..., T], *arguments: object) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""

    def sum(self, function: Callable[..., T], *arguments: object) -> T:
        """The results of `map` added up; tuples are added field by field."""

    def rows(self, ids: Ids) -> ArrayDict:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """Report progress to the caller of the selection."""


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
        spill: "Spill | None" = None,
    ) -> None:
        """Hold the blocks.

        ``spill`` moves states that do not fit out of memory.
        """
        self._shards = list(shards)
        self._ends = np.cumsum([len(shard.block_ids) for shard in self._shards], dtype=np.int64)
        self._progress, self._spill = progress, spill

    @classmethod
    def of(cls, **representations: Array) -> "LocalShards":
        """Create one block of the given arrays, with row numbers as ids."""
        first = next(iter(representations.values()))
        first = first[0] if isinstance(first, list | tuple) else first
        return cls([Shard(RowNumbers(0, len(first), keep=True), representations)])

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._shards else 0

    @cached_property
    def index(self) -> IdIndex:
        """Positions of items by id, among all rows."""
        if len(self._shards) == 1:
            return IdIndex(self._shards[0].block_ids)
        blocks = [s.block_ids for s in self._shards if isinstance(s.block_ids, RowNumbers)]
        ascending = all(block.last <= after.first for block, after in pairwise(blocks))
        if not blocks or len(blocks) < len(self._shards) or not ascending:
            none = np.empty(0, dtype=np.int64)
            return IdIndex(np.concatenate([none, *(shard.ids for shard in self._shards)]))
        gaps = [np.arange(block.last, after.first) for block, after in pairwise(blocks)]
        without = np.sort(np.concatenate([*gaps, *(block.without for block in blocks)]))
        return IdIndex(RowNumbers(blocks[0].first, blocks[-1].last, without))

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block; row numbers are made on every access."""
        ids = self.index.ids
        return ids.to_array() if isinstance(ids, RowNumbers) else ids

    def progress(self, stage: str, done: int, total: int) -> None:
        """Report progress to the caller of the selection."""
        if self._progress is not None:
            self._progress(stage, done, total)

    def map(self, function: Callable[..., T], *arguments: object) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""
        results = []
        for shard in self._shards:
            results.append(function(shard, *arguments))
            if self._spill is not None:
                self._spill.settle(shard.state)
        return results

    def sum(self, function: Callable[..., T], *arguments: object) -> T:
        """The results of `map` added up; tuples are added field by field."""
        total: T | None = None
        for shard in self._shards:
            part = function(shard, *arguments)
            if self._spill is not None:
                self._spill.settle(shard.state)
            total = part if total is None else add_block_results(total, part)
        return cast(T, total)  # None without blocks

    def rows(self, ids: Ids) -> ArrayDict:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""
        positions = self.index.find_positions(ids)
        if len(self._shards) == 1:
            return take_rows(self._shards[0].rows, positions)
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


def add_block_results(left: Array, right: Array) -> Array:
    """Add the results of two blocks; tuples are added field by field."""
    if isinstance(left, tuple):
        return tuple(add_block_results(a, b) for a, b in zip(left, right, strict=True))
    return left + right


def as_shards(rows: ArrayOrShards, name: str = "rows") -> Shards:
    """Shards of an array, or of a list with one block each; kernels that take both start here."""
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


class Spill:
    """Keeps the state of all blocks together below a limit.

    Beyond it, the arrays of a block are written to a file after each visit and memory-mapped, so
    that they are in memory only during a visit. The files are unnamed, so the system removes them
    when the process ends.

    Attributes:
        written: total number of bytes written to files.
    """

    def __init__(self, limit: float, folder: str | Path | None = None) -> None:
        """Allow ``limit`` bytes in memory; files go to ``folder`` or the temporary folder."""
        self._limit, self._folder = limit, folder
        self._in_memory: dict[int, int] = {}
        self._maps: dict[int, list[weakref.ref[mmap.mmap]]] = {}
        self.written = 0

    def settle(self, state: dict[str, object]) -> None:
        """Keep a block's state in memory or spill it, after a visit that may have changed it."""
        key = id(state)
        own: dict[int, HostArray] = {}
        _map_state_arrays(state, lambda array: own.setdefault(id(array), array))
        self._in_memory[key] = sum(array.nbytes for array in own.values())
        if sum(self._in_memory.values()) > self._limit and own:
            mapped = {number: self._map_to_file(array, key) for number, array in own.items()}
            _map_state_arrays(state, lambda array: mapped[id(array)])
            self._in_memory[key] = 0
        self._release_pages(key)

    def _map_to_file(self, array: HostArray, key: int) -> HostArray:
        """Write an array to a file and map it."""
        try:
            with tempfile.TemporaryFile(dir=self._folder, prefix="labelwise-") as file:
                array.tofile(file)  # a full disk raises an error here instead of a crash later
                file.flush()
                pages = mmap.mmap(file.fileno(), array.nbytes)
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise StorageFailed(
                f"what does not fit in memory cannot be written to {folder} "
                f"({error.strerror or error}); make room there, set TMPDIR to another folder, or "
                "raise memory"
            ) from error
        self._maps.setdefault(key, []).append(weakref.ref(pages))
        self.written += array.nbytes
        return np.frombuffer(pages, dtype=array.dtype).reshape(array.shape)

    def _release_pages(self, key: int) -> None:
        """Release the memory pages of a block's mapped arrays."""
        alive = [ref for ref in self._maps.get(key, []) if ref() is not None]
        self._maps[key] = alive
        for ref in alive:
            pages = ref()
            if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)


def _map_state_arrays(value: Any, change: Callable[[HostArray], HostArray]) -> Any:
    """Replace every large array of a nested value by ``change(array)``; views are kept."""
    if isinstance(value, np.ndarray):
        plain = value.flags.owndata and value.flags.c_contiguous and not value.dtype.hasobject
        return change(value) if plain and value.nbytes >= LEAST_SPILLED else value
    if isinstance(value, dict):
        for name, entry in value.items():
            value[name] = _map_state_arrays(entry, change)
        return value
    if isinstance(value, list):
        value[:] = [_map_state_arrays(entry, change) for entry in value]
        return value
    if isinstance(value, tuple):
        entries = [_map_state_arrays(entry, change) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
    if type(value).__module__.startswith("labelwise.") and hasattr(value, "__dict__"):
        for name, entry in vars(value).items():
            object.__setattr__(value, name, _map_state_arrays(entry, change))
    return value


def rows_per_block(row_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """The number of rows of a block.

    >>> rows_per_block(512), rows_per_block(8)
    (131072, 1048576)
    """
    return max(block_bytes // max(row_bytes, LEAST_ROW), 256)


@dataclass(eq=False)
class BlockRows(StoredRows):
    """The rows of one block, read on access and checked the first time."""

    sources: Sources
    first: int  # the block's first row in them
    ids: Ids | RowNumbers  # of all rows of the block
    # Sorted positions in the block of labelled items, which are left out, or None
    without: Ids | None = None
    _checked: set[str] = field(default_factory=set, init=False)
    _compact: ArrayDict = field(default_factory=dict, init=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)

    def __contains__(self, name: object) -> bool:
        return name in self.sources  # the inherited method reads the block

    def __getitem__(self, name: str) -> Array:
        if name in self._compact:
            return self._compact[name]
        source, last = self.sources[name], self.first + len(self.ids)
        parts = list(flatten_sources({name: source}))
        arrays = [convert_rows(label, part.read(self.first, last)) for label, part in parts]
        if self.without is not None:
            keep = np.delete(np.arange(len(self.ids)), self.without)
            arrays = [take(array, keep) for array in arrays]
        rows = arrays if isinstance(source, list) else arrays[0]
        if name not in self._checked:
            check_representation_rows(name, rows, self.list_ids)
            self._checked.add(name)
        if self.without is not None and all(part.in_memory for _, part in parts):
            self._compact[name] = rows  # one copy instead of one in every pass
        return rows

    def list_ids(self) -> Ids:
        """The ids of the rows."""
        ids = self.ids.to_array() if isinstance(self.ids, RowNumbers) else self.ids
        return ids if self.without is None else np.delete(ids, self.without)

    @property
    def extent(self) -> tuple[int, int, bool]:
        """The number of rows, the numbers per row, and whether they are NumPy arrays."""
        count = len(self.ids) - (0 if self.without is None else len(self.without))
        sources = [source for _, source in flatten_sources(self.sources)]
        width = sum(math.prod(source.shape[1:]) for source in sources)
        return count, width, all(source.is_numpy for source in sources)

    def cut(self, ranges: Sequence[slice]) -> list[Rows]:
        """The rows in pieces, for the time of one visit; together they are read once."""
        rows: ArrayDict = {}
        lock = Lock()

        def read_once(name: str) -> Array:
            with lock:
                if name not in rows:
                    rows[name] = self[name]
            return rows[name]

        return [BlockPiece(self, read_once, span) for span in ranges]

    def take(self, positions: Positions) -> ArrayDict:
        """Some rows of the block, without reading the others."""
        wanted = np.flatnonzero(positions) if positions.dtype == bool else positions
        if self.without is not None:  # skip the labelled items before each row
            gaps = self.without - np.arange(len(self.without))
            wanted = wanted + np.searchsorted(gaps, wanted, side="right")
        taken = {}
        for name, source in self.sources.items():
            parts = flatten_sources({name: source})
            rows = [convert_rows(label, part.take(wanted + self.first)) for label, part in parts]
            taken[name] = rows if isinstance(source, list) else rows[0]
            if name not in self._checked:
                check_representation_rows(name, taken[name], lambda: self.ids.take(wanted))
        return taken


@dataclass(eq=False)
class LabelledRows(Mapping[str, Array]):
    """The rows of the items ``labelled``, in that order, read when a strategy asks for them."""

    sources: Sources
    index: IdIndex
    labelled: Ids
    _rows: ArrayDict = field(default_factory=dict, init=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, name: str) -> Array:
        if name not in self._rows:
            block = BlockRows({name: self.sources[name]}, 0, self.index.ids)
            self._rows.update(block.take(self.index.find_positions(self.labelled)))
        return self._rows[name]


@dataclass(eq=False)
class BlockPiece(Mapping[str, Array]):
    """Some rows of a block; ``read`` reads a representation of the whole block once."""

    block: BlockRows
    read: Callable[[str], Array]
    span: slice

    def __iter__(self) -> Iterator[str]:
        return iter(self.block)

    def __len__(self) -> int:
        return len(self.block)

    def __contains__(self, name: object) -> bool:
        return name in self.block

    def __getitem__(self, name: str) -> Array:
        return map_models(self.read(name), itemgetter(self.span))


def open_shards(
    sources: Sources,
    *,
    ids: Keys | IdIndex = None,
    labelled: Keys = None,
    progress: Progress | None = None,
    block_bytes: int | None = None,
    spill: Spill | None = None,
) -> tuple[LocalShards, Rows | None]:
    """Cut a pool into blocks of the unlabelled items, and separate the rows of the labelled ones.

    ``ids`` are the items' keys (row numbers, or a Parquet file's column ``id``, if None) and
    ``labelled`` keys too; with an index both are int64 ids. ``block_bytes`` follows the place of
    the rows if None.
    """
    every = [source for _, source in flatten_sources(sources)]
    count = every[0].shape[0]
    if isinstance(ids, IdIndex):
        index, taken = ids, np.empty(0, dtype=np.int64) if labelled is None else labelled
    else:
        index = IdIndex(find_item_ids(ids, sources, count))
        taken = encode_labelled(labelled, index.ids)[0]
    if block_bytes is None:
        on_gpu = all(
            not s.is_numpy and s.in_memory and str(device(s.read(0, 1))) != "cpu" for s in every
        )
        block_bytes = BLOCK_BYTES_ON_DEVICE if on_gpu else BLOCK_BYTES
    step = rows_per_block(sum(source.bytes_per_row for source in every), block_bytes)
    starts = range(0, max(count, 1), step)
    keep = len(starts) <= FEW_BLOCKS
    labelled_rows = np.sort(index.find_positions(taken)) if len(taken) else taken
    candidates: list[Shard] = []
    for start in starts:
        stop = min(start + step, count)
        # Positions in the block of its labelled items.
        mine = labelled_rows[slice(*np.searchsorted(labelled_rows, [start, stop]))] - start
        block: Ids | RowNumbers
        rest: Ids | RowNumbers
        if isinstance(index.ids, RowNumbers):
            first, last = index.ids.first + start, index.ids.first + stop
            block = RowNumbers(first, last, keep=keep)
            rest = RowNumbers(first, last, mine + first, keep=keep) if len(mine) else block
        else:
            block = index.ids[start:stop]
            rest = np.delete(block, mine) if len(mine) else block
        if len(mine) < stop - start or not candidates:
            shard = Shard(rest, BlockRows(sources, start, block, mine if len(mine) else None))
            if len(starts) == 1 and all(source.in_memory for source in every):
                shard.rows = _load_pool_rows(sources, mine, shard)
            candidates.append(shard)
    left = candidates[1:] if len(candidates) > 1 and not len(candidates[0]) else candidates
    known = LabelledRows(sources, index, taken) if len(taken) else None
    return LocalShards(left, progress, spill), known


def _load_pool_rows(sources: Sources, without: Ids, shard: Shard) -> ArrayDict:
    """The rows of a pool in memory but those at ``without``, converted and checked once."""
    rows: ArrayDict = {name: [] for name in sources}
    for label, source in flatten_sources(sources):
        array = convert_rows(label, source.read(0, source.shape[0]))
        if len(without):
            array = take(array, np.delete(np.arange(source.shape[0]), without))
        check_representation_rows(label, array, lambda: shard.ids)
        name = label.partition("[")[0]
        rows[name] = [*rows[name], array] if isinstance(sources[name], list) else array
    return rows


def find_item_ids(ids: Keys, sources: Sources, count: int) -> Ids | RowNumbers:
    """The int64 ids of the items: given, from Parquet files, or row numbers."""
    found = read_stored_ids(sources) if ids is None else ids
    return RowNumbers(0, count) if found is None else check_pool_ids(found, count)[0]
