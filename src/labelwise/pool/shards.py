"""Cut a pool into blocks of rows, wherever its rows are, and keep labelled items apart."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from labelwise.arrays import (
    Array,
    Ids,
    device,
    take,
)
from labelwise.errors import BadInput
from labelwise.pool.blocks import LocalShards, Progress, RowNumbers, Settles, Shard
from labelwise.pool.pool import check_ids
from labelwise.pool.rows import CutsRows, Rows, each
from labelwise.pool.sources import Source, open_source
from labelwise.pool.validation import check_form, check_rows, working_rows

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
    for name, source in flat(sources):
        check_form(name, source)
    lengths = {name: source.shape[0] for name, source in flat(sources)}
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


def tensor_device(sources: Sources) -> str | None:
    """Where the tensors among the rows are, to bring the others there; None if there is no need.

    Tensors on two devices are refused: none of them is the one to compute on.
    """
    every = list(flat(sources))
    places = {name: str(device(source.read(0, 0))) for name, source in every if not source.is_numpy}
    for name, place in places.items():
        first, other = next(iter(places.items()))
        if place != other:
            raise BadInput(
                f"{first} is on {other} but {name} on {place}; bring them to one device, or name "
                "it with device"
            )
    if len(places) in (0, len(every)):
        return None
    return next(iter(places.values()))


class BlockRows(CutsRows):
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
        rows = self.unchecked(name)
        if name not in self._checked:
            check_rows(name, rows, self.kept)
            self._checked.add(name)
        return rows

    def unchecked(self, name: str) -> Any:
        """The rows as they are."""
        if name in self._compact:
            return self._compact[name]
        source = self._sources[name]
        rows = each(source, lambda part: working_rows(name, self._read(part)))
        if self._without is None:
            return rows
        keep = self._keep()
        rows = each(rows, lambda array: take(array, keep))
        if all(part.in_memory for part in (source if isinstance(source, list) else [source])):
            self._compact[name] = rows  # one copy instead of one in every pass
        return rows

    def _read(self, source: Source) -> Array:
        return source.read(self._first, self._first + len(self._ids))

    def kept(self) -> Ids:
        """The ids of the rows."""
        return self._listed() if self._without is None else self._listed()[self._keep()]

    @property
    def extent(self) -> tuple[int, int]:
        """How many rows there are, and how many numbers a row has in NumPy; 0 if elsewhere."""
        count = len(self._ids) - (0 if self._without is None else len(self._without))
        sources = [source for _, source in flat(self._sources)]
        if not all(source.is_numpy for source in sources):
            return count, 0
        return count, sum(math.prod(source.shape[1:]) for source in sources)

    def cut(self, ranges: Sequence[slice]) -> list[Rows]:
        """The rows in pieces, for the time of one visit; together they are read once."""
        visit = _Visit(self, self._checked)
        return [_Piece(visit, span) for span in ranges]

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
            rows = [working_rows(name, part.take(positions + self._first)) for part in parts]
            taken[name] = rows if parts is source else rows[0]
            if name not in self._checked:
                check_rows(name, taken[name], lambda: self._listed()[positions])
        return taken

    def _listed(self) -> Ids:
        return self._ids.listed() if isinstance(self._ids, RowNumbers) else self._ids


class _Visit:
    """What the pieces of a block share: rows that are read once, and what is checked of them."""

    def __init__(self, block: BlockRows, checked: set[str]) -> None:
        self.block, self.checked = block, checked
        self.rows: dict[str, Any] = {}
        self.seen: Counter[str] = Counter()
        self.lock = Lock()


class _Piece(Mapping[str, Any]):
    """Some rows of a block, checked where no earlier visit has done so."""

    def __init__(self, visit: _Visit, span: slice) -> None:
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
                visit.rows[name] = visit.block.unchecked(name)
        rows = each(visit.rows[name], lambda array: array[span])
        if name not in visit.checked:
            check_rows(name, rows, lambda: visit.block.kept()[span])
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
    item_ids = _ids(ids, sources, count)
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
    taken = labelled_ids(labelled)
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


def _ids(ids: Any, sources: Sources, count: int) -> Ids | RowNumbers:
    if isinstance(ids, range) and ids.step == 1 and len(ids) == count:
        return RowNumbers(ids.start, ids.stop)
    listed = own_ids(ids, sources, count)
    return RowNumbers(0, count) if listed is None else listed


def own_ids(ids: Any, sources: Sources, count: int) -> Ids | None:
    """The items' ids, given or from the column ``id`` of Parquet files; None for row numbers."""
    stored = _stored_ids(sources)
    if ids is None and stored is None:
        return None
    return check_ids(stored if ids is None else ids, count)


def _stored_ids(sources: Sources) -> Any:
    """The column ``id`` of the files, or None; it must be the same in all that have one."""
    found: tuple[str, Any] | None = None
    for name, source in flat(sources):
        ids = getattr(source, "ids", None)
        if ids is not None and found is not None and not np.array_equal(found[1], ids):
            row = int(np.argmax(found[1] != ids))
            raise BadInput(
                f"{found[0]} and {name} do not list the same items in the same order: the id in "
                f"row {row} is {found[1][row]} and {ids[row]}; sort both by id"
            )
        found = found or (None if ids is None else (name, ids))
    return None if found is None else found[1]


def labelled_ids(labelled: Any) -> Ids:
    """Ids of labelled items as int64; refuse what names no items, or one twice."""
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
