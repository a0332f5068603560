"""Cut a pool into blocks of rows, wherever its rows are, and keep labelled items apart."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from labelwise.arrays import Array, Ids, device, namespace, take, to_numpy
from labelwise.blocks import (
    LocalShards,
    Progress,
    RowNumbers,
    Rows,
    Settles,
    Shard,
    TakesRows,
    each,
)
from labelwise.errors import BadInput
from labelwise.learner import REPRESENTATIONS
from labelwise.pool import check_ids
from labelwise.running.sources import ParquetSource, Source, open_source

BLOCK_BYTES = 64 << 20
"""How much memory the rows of one block take, about."""
BLOCK_BYTES_ON_DEVICE = 8 << 30
"""The same for rows that are on a GPU already, where many small blocks are many launches."""

LEAST_ROW = 64
"""A row counts as so many bytes at least: what is computed of it takes as much, however narrow."""
FEW = 16
"""Row numbers of a pool of so few blocks are listed once and kept."""

Sources = Mapping[str, Source | list[Source]]


def rows_per_block(row_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """How many rows make a block.

    >>> rows_per_block(512), rows_per_block(8)
    (131072, 1048576)
    """
    return max(block_bytes // max(row_bytes, LEAST_ROW), 256)


def open_sources(representations: Mapping[str, Any]) -> dict[str, Source | list[Source]]:
    """Sources by name; all must have the same number of rows and the axes of their name."""
    sources: dict[str, Source | list[Source]] = {}
    for name, value in representations.items():
        if isinstance(value, list | tuple):
            if not value:
                raise BadInput(f"{name} is an empty list; give one array per model")
            sources[name] = [open_source(v, f"{name}[{j}]") for j, v in enumerate(value)]
        else:
            sources[name] = open_source(value, name)
    lengths = {name: source.shape[0] for name, source in flat(sources) if _check_axes(name, source)}
    first, count = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != count:
            raise BadInput(f"{first} has {count} rows but {name} has {length}; give one per item")
    return sources


def flat(sources: Sources) -> Iterator[tuple[str, Source]]:
    """All sources with their names, one after the other."""
    for name, value in sources.items():
        if isinstance(value, list):
            yield from ((f"{name}[{j}]", source) for j, source in enumerate(value))
        else:
            yield name, value


def _check_axes(name: str, source: Source) -> bool:
    expected = REPRESENTATIONS[name.split("[")[0]]
    if len(source.shape) != len(expected.axes):
        raise BadInput(f"{name} must have shape {expected.shape}; got {source.shape}")
    if 0 in source.shape[1:]:
        raise BadInput(f"{name} has no columns; got shape {source.shape}")
    return True


class BlockRows(TakesRows):
    """The rows of one block, read when they are asked for and checked the first time."""

    def __init__(
        self, sources: Sources, first: int, ids: Ids | RowNumbers, without: Any = None
    ) -> None:
        """Rows ``first`` to ``first + len(ids) - 1`` of the sources.

        Args:
            sources: from `open_sources`.
            first: the block's first row.
            ids: of all rows of the block.
            without: positions in the block that are labelled and left out, sorted; None for none.
        """
        self._sources, self._first, self._ids, self._without = sources, first, ids, without
        self._checked: set[str] = set()
        self._compact: dict[str, Any] = {}

    def _keep(self) -> Any:
        return np.delete(np.arange(len(self._ids)), self._without)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources  # else the block would be read to find out

    def __getitem__(self, name: str) -> Any:
        if name in self._compact:
            return self._compact[name]
        source = self._sources[name]
        if not isinstance(source, list):
            rows = self._read(name, source)
            in_memory = source.in_memory
        else:
            rows = [self._read(f"{name}[{j}]", part) for j, part in enumerate(source)]
            in_memory = all(part.in_memory for part in source)
        if self._without is not None:
            keep = self._keep()
            rows = each(rows, lambda array: take(array, keep))
            if in_memory:  # one copy instead of one in every pass
                self._compact[name] = rows
        return rows

    def take(self, positions: Any) -> dict[str, Any]:
        """Some rows of the block, without reading the others."""
        positions = np.asarray(positions)
        if positions.dtype == bool:
            positions = np.flatnonzero(positions)
        if self._without is not None:
            positions = self._keep()[positions]
        taken = {}
        for name, source in self._sources.items():
            parts = source if isinstance(source, list) else [source]
            labels = [f"{name}[{j}]" for j in range(len(parts))] if parts is source else [name]
            rows = [_working(name, part.take(positions + self._first)) for part in parts]
            for label, some in zip(labels, rows, strict=True):
                if label not in self._checked:
                    check_rows(label, some, self._listed()[positions])
            taken[name] = rows if parts is source else rows[0]
        return taken

    def _listed(self) -> Ids:
        return self._ids.listed() if isinstance(self._ids, RowNumbers) else self._ids

    def _read(self, name: str, source: Source) -> Array:
        rows = _working(name, source.read(self._first, self._first + len(self._ids)))
        if name not in self._checked:
            check_rows(name, rows, self._listed())
            self._checked.add(name)
        return rows


def _working(name: str, rows: Array) -> Array:
    """Rows in a precision to compute with: float32 or float64; votes for classes stay whole."""
    xp = namespace(rows)
    if rows.dtype in (xp.float32, xp.float64):
        return rows
    if name.split("[")[0] == "member_votes" and xp.isdtype(rows.dtype, ("integral", "bool")):
        return xp.astype(rows, xp.int64)
    if xp.isdtype(rows.dtype, "real floating") or rows.dtype.itemsize <= 2:
        return xp.astype(rows, xp.float32)
    return xp.astype(rows, xp.float64)


def check_rows(name: str, rows: Array, ids: Ids) -> None:
    """Refuse NaN, infinity, and probabilities that are none; the message names the item."""
    xp = namespace(rows)
    if not xp.isdtype(rows.dtype, "real floating"):
        return  # whole numbers are always finite
    flat = xp.reshape(rows, (-1,))
    with np.errstate(over="ignore", invalid="ignore"):
        total = xp.vecdot(flat, flat)  # one quick pass; the slow look only if it is odd
    if not bool(xp.isfinite(total)):
        axes = tuple(range(1, rows.ndim))
        wrong = to_numpy(xp.any(~xp.isfinite(rows), axis=axes) if axes else ~xp.isfinite(rows))
        if wrong.any():
            raise BadInput(
                f"{name} of item {ids[wrong][0]} is NaN or infinite ({int(wrong.sum())} such items "
                "in its block); mend or leave out these items"
            )
    if name.split("[")[0] in ("probabilities", "member_probabilities"):
        _check_probabilities(name, rows, ids)


def _check_probabilities(name: str, rows: Array, ids: Ids) -> None:
    xp = namespace(rows)
    ones = xp.ones_like(rows[:1])
    sums = to_numpy(xp.vecdot(rows, ones)).reshape(len(ids), -1)
    wrong = (np.abs(sums - 1) > 1e-3).any(axis=1)
    if wrong.any() or (len(ids) and float(xp.min(rows)) < -1e-6):
        low = to_numpy(xp.min(rows, axis=-1)).reshape(len(ids), -1).min(axis=1)
        position = int(np.flatnonzero(wrong | (low < -1e-6))[0])
        raise BadInput(
            f"{name} of item {ids[position]} are no probabilities "
            f"(sum {sums[position].flat[0]:.4g}, smallest {low[position]:.4g}); "
            "give each row as numbers from 0 that add up to 1"
        )


def open_shards(
    sources: Sources,
    *,
    ids: Any = None,
    labelled: Any = None,
    progress: Progress | None = None,
    block_bytes: int | None = None,
    spill: Settles | None = None,
) -> tuple[LocalShards, Rows | None]:
    """Blocks of the unlabelled items, and the rows of the labelled ones.

    Args:
        sources: from `open_sources`.
        ids: ``(n,)`` the items' ids; row numbers (or a Parquet file's column ``id``) if None. A
            ``range`` is row numbers from its start on.
        labelled: ids of the items that are labelled already.
        progress: told how far a selection has come.
        block_bytes: how much memory one block takes, about; if None, as suits where the rows are.
        spill: where states lie that do not fit in memory.
    """
    every = [source for _, source in flat(sources)]
    count = every[0].shape[0]
    item_ids = _ids(ids, every, count)
    if block_bytes is None:
        block_bytes = BLOCK_BYTES_ON_DEVICE if all(map(_on_device, every)) else BLOCK_BYTES
    step = rows_per_block(sum(source.bytes_per_row for source in every), block_bytes)
    cuts = range(0, max(count, 1), step)
    few = len(cuts) <= FEW
    blocks = [_cut(item_ids, cut, min(cut + step, count), few) for cut in cuts]
    whole = [
        Shard(block, BlockRows(sources, cut, block))
        for cut, block in zip(cuts, blocks, strict=True)
    ]
    taken = _labelled_ids(labelled)
    if not len(taken):
        return LocalShards(whole, progress, spill), None
    everything = LocalShards(whole)
    rows = np.sort(everything.positions(taken))
    some = []
    for shard, block, cut in zip(whole, blocks, cuts, strict=True):
        mine = rows[slice(*np.searchsorted(rows, [cut, cut + len(block)]))] - cut
        if len(mine):
            shard = Shard(_without(block, mine, few), BlockRows(sources, cut, block, mine))
        some.append(shard)
    some = [shard for shard in some if len(shard)] or some[:1]
    return LocalShards(some, progress, spill), everything.rows(taken)


def _on_device(source: Source) -> bool:
    """Whether the rows are on a GPU, to stay there."""
    return source.in_memory and str(device(source.read(0, 1))) != "cpu"


def _cut(ids: Ids | RowNumbers, first: int, last: int, keep: bool) -> Ids | RowNumbers:
    if isinstance(ids, RowNumbers):
        return RowNumbers(ids.first + first, ids.first + last, keep=keep)
    return ids[first:last]


def _without(ids: Ids | RowNumbers, positions: Ids, keep: bool) -> Ids | RowNumbers:
    if isinstance(ids, RowNumbers):
        return RowNumbers(ids.first, ids.last, positions + ids.first, keep=keep)
    return np.delete(ids, positions)


def _ids(ids: Any, sources: list[Source], count: int) -> Ids | RowNumbers:
    if isinstance(ids, range) and ids.step == 1 and len(ids) == count:
        return RowNumbers(ids.start, ids.stop)
    if ids is None:
        stored = (s.ids for s in sources if isinstance(s, ParquetSource))
        ids = next((column for column in stored if column is not None), None)
        if ids is None:
            return RowNumbers(0, count)
    return check_ids(ids, count)


def _labelled_ids(labelled: Any) -> Ids:
    given = np.asarray([] if labelled is None else labelled)
    if given.size == 0:
        return np.empty(0, dtype=np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise BadInput(
            f"labelled must be a list of item ids (whole numbers); got {given.dtype} of shape "
            f"{given.shape}"
        )
    values, counts = np.unique(given, return_counts=True)
    if (counts > 1).any():
        raise BadInput(f"labelled names item {values[counts > 1][0]} {counts.max()} times")
    return given.astype(np.int64)
