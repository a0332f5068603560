"""Cut a pool into blocks of rows, wherever its rows are, and separate the labelled items."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from labelwise.arrays import Ids, device, take
from labelwise.pool.blocks import LocalShards, Progress, Shard, StateSpill
from labelwise.pool.ids import IdIndex, RowNumbers, check_ids, encode_labelled
from labelwise.pool.representations import flatten_sources, read_stored_ids
from labelwise.pool.rows import CutsRows, Rows, map_models
from labelwise.pool.sources import Source, Sources
from labelwise.pool.validation import check_rows, convert_rows

BLOCK_BYTES = 64 << 20
"""Approximate memory of the rows of one block."""
BLOCK_BYTES_ON_DEVICE = 8 << 30
"""The same for rows on a GPU, where small blocks would cost many kernel launches."""

LEAST_ROW = 64
"""Least bytes that a row counts for; the results of narrow rows need memory too."""
FEW_BLOCKS = 16
"""A pool of at most this many blocks keeps the array of its row numbers."""


def rows_per_block(row_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """The number of rows of a block.

    >>> rows_per_block(512), rows_per_block(8)
    (131072, 1048576)
    """
    return max(block_bytes // max(row_bytes, LEAST_ROW), 256)


class BlockRows(CutsRows):
    """The rows of one block, read on access and checked the first time."""

    def __init__(
        self, sources: Sources, first: int, ids: Ids | RowNumbers, without: Any = None
    ) -> None:
        """Read rows ``first`` to ``first + len(ids) - 1`` of the sources.

        Args:
            sources: opened representations.
            first: the block's first row.
            ids: of all rows of the block.
            without: sorted positions in the block of labelled items, which are left out, or None.
        """
        self._sources, self._first, self._ids, self._without = sources, first, ids, without
        self._checked: set[str] = set()
        self._compact: dict[str, Any] = {}

    def _find_kept(self) -> Any:
        """The positions in the block that are not left out."""
        return np.delete(np.arange(len(self._ids)), self._without)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources  # the inherited method reads the block

    def __getitem__(self, name: str) -> Any:
        rows = self.read_unchecked(name)
        if name not in self._checked:
            check_rows(name, rows, self.list_ids)
            self._checked.add(name)
        return rows

    def read_unchecked(self, name: str) -> Any:
        """The rows, converted for computing but not checked."""
        if name in self._compact:
            return self._compact[name]
        source, last = self._sources[name], self._first + len(self._ids)
        parts = source if isinstance(source, list) else [source]
        arrays = [convert_rows(name, part.read(self._first, last)) for part in parts]
        if self._without is not None:
            keep = self._find_kept()
            arrays = [take(array, keep) for array in arrays]
        rows = arrays if parts is source else arrays[0]
        if self._without is not None and all(part.in_memory for part in parts):
            self._compact[name] = rows  # one copy instead of one in every pass
        return rows

    def list_ids(self) -> Ids:
        """The ids of the rows."""
        ids = self._ids.to_array() if isinstance(self._ids, RowNumbers) else self._ids
        return ids if self._without is None else ids[self._find_kept()]

    @property
    def extent(self) -> tuple[int, int]:
        """The number of rows, and of numbers per row if they are NumPy arrays (0 otherwise)."""
        count = len(self._ids) - (0 if self._without is None else len(self._without))
        sources = [source for _, source in flatten_sources(self._sources)]
        if not all(source.is_numpy for source in sources):
            return count, 0
        return count, sum(math.prod(source.shape[1:]) for source in sources)

    def cut(self, ranges: Sequence[slice]) -> list[Rows]:
        """The rows in pieces, for the time of one visit; together they are read once."""
        visit = _BlockVisit(self, self._checked)
        return [_BlockPiece(visit, span) for span in ranges]

    def take(self, positions: Any) -> dict[str, Any]:
        """Some rows of the block, without reading the others."""
        positions = np.asarray(positions)
        if positions.dtype == bool:
            positions = np.flatnonzero(positions)
        if self._without is not None:
            positions = self._find_kept()[positions]
        taken = {}
        for name, source in self._sources.items():
            parts = source if isinstance(source, list) else [source]
            rows = [convert_rows(name, part.take(positions + self._first)) for part in parts]
            taken[name] = rows if parts is source else rows[0]
            if name not in self._checked:
                check_rows(name, taken[name], lambda: self._ids.take(positions))
        return taken


class LabelledRows(Mapping[str, Any]):
    """The rows of the labelled items, read when a strategy asks for them."""

    def __init__(self, sources: Sources, index: IdIndex, ids: Ids) -> None:
        """Rows of the items ``ids``, in that order."""
        self._sources, self._index, self._ids = sources, index, ids
        self._rows: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, name: str) -> Any:
        if name not in self._rows:
            source = self._sources[name]
            block = BlockRows({name: source}, 0, self._index.ids)
            self._rows.update(block.take(self._index.find_positions(self._ids)))
        return self._rows[name]


class _BlockVisit:
    """State shared by the pieces of a block: the rows read so far, and the checked ones."""

    def __init__(self, block: BlockRows, checked: set[str]) -> None:
        self.block, self.checked = block, checked
        self.rows: dict[str, Any] = {}
        self.seen: Counter[str] = Counter()
        self.lock = Lock()


class _BlockPiece(Mapping[str, Any]):
    """Some rows of a block, checked unless an earlier visit has done so."""

    def __init__(self, visit: _BlockVisit, span: slice) -> None:
        self._visit, self._span = visit, span

    def __iter__(self) -> Iterator[str]:
        return iter(self._visit.block)

    def __len__(self) -> int:
        return len(self._visit.block)

    def __contains__(self, name: object) -> bool:
        return name in self._visit.block

    def __getitem__(self, name: str) -> Any:
        visit, span = self._visit, self._span
        with visit.lock:
            if name not in visit.rows:
                visit.rows[name] = visit.block.read_unchecked(name)
        rows = map_models(visit.rows[name], lambda array: array[span])
        if name not in visit.checked:
            check_rows(name, rows, lambda: visit.block.list_ids()[span])
            with visit.lock:
                visit.seen[name] += span.stop - span.start
                if visit.seen[name] == visit.block.extent[0]:
                    visit.checked.add(name)
        return rows


def open_shards(
    sources: Sources,
    *,
    ids: Any = None,
    labelled: Any = None,
    progress: Progress | None = None,
    block_bytes: int | None = None,
    spill: StateSpill | None = None,
) -> tuple[LocalShards, Rows | None]:
    """Blocks of the unlabelled items, and the rows of the labelled ones.

    Args:
        sources: opened representations.
        ids: ``(n,)`` the items' keys; row numbers (or a Parquet file's column ``id``) if None. An
            index is used as it is.
        labelled: keys of the labelled items.
        progress: receives the progress of a selection.
        block_bytes: approximate memory of one block; None chooses it by the place of the rows.
        spill: moves states that do not fit out of memory.
    """
    every = [source for _, source in flatten_sources(sources)]
    count = every[0].shape[0]
    index = ids if isinstance(ids, IdIndex) else IdIndex(find_item_ids(ids, sources, count))
    item_ids = index.ids
    if block_bytes is None:
        block_bytes = BLOCK_BYTES_ON_DEVICE if _is_on_gpu(every) else BLOCK_BYTES
    step = rows_per_block(sum(source.bytes_per_row for source in every), block_bytes)
    starts = range(0, max(count, 1), step)
    keep = len(starts) <= FEW_BLOCKS
    taken = encode_labelled(labelled)
    labelled_rows = np.sort(index.find_positions(taken)) if len(taken) else taken
    candidates: list[Shard] = []
    for start in starts:
        stop = min(start + step, count)
        # Positions in the block of its labelled items.
        mine = labelled_rows[slice(*np.searchsorted(labelled_rows, [start, stop]))] - start
        block: Ids | RowNumbers
        rest: Ids | RowNumbers
        if isinstance(item_ids, RowNumbers):
            first, last = item_ids.first + start, item_ids.first + stop
            block = RowNumbers(first, last, keep=keep)
            rest = RowNumbers(first, last, mine + first, keep=keep) if len(mine) else block
        else:
            block = item_ids[start:stop]
            rest = np.delete(block, mine) if len(mine) else block
        if len(mine) < stop - start or not candidates:
            rows = BlockRows(sources, start, block, mine if len(mine) else None)
            candidates.append(Shard(rest, rows))
    left = candidates[1:] if len(candidates) > 1 and not len(candidates[0]) else candidates
    known = LabelledRows(sources, index, taken) if len(taken) else None
    return LocalShards(left, progress, spill), known


def _is_on_gpu(sources: Sequence[Source]) -> bool:
    """Whether all rows are on a GPU and stay there."""
    return all(
        not source.is_numpy and source.in_memory and str(device(source.read(0, 1))) != "cpu"
        for source in sources
    )


def find_item_ids(ids: Any, sources: Sources, count: int) -> Ids | RowNumbers:
    """The int64 ids of the items: given, from Parquet files, or row numbers."""
    found = read_stored_ids(sources) if ids is None else ids
    return RowNumbers(0, count) if found is None else check_ids(found, count)[0]
