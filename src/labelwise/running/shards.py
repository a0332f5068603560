"""Cut a pool into blocks of rows, wherever its rows are, and keep labelled items apart."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from labelwise.arrays import Array, Ids, namespace, take, to_numpy
from labelwise.blocks import LocalShards, Progress, Rows, Shard, TakesRows, each
from labelwise.errors import BadInput
from labelwise.learner import REPRESENTATIONS
from labelwise.pool import check_ids
from labelwise.running.sources import ParquetSource, Source, open_source

BLOCK_BYTES = 64 << 20
"""How much memory the rows of one block take, about."""

Sources = Mapping[str, Source | list[Source]]


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
    lengths = {
        name: source.shape[0] for name, source in _flat(sources) if _check_axes(name, source)
    }
    first, count = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != count:
            raise BadInput(f"{first} has {count} rows but {name} has {length}; give one per item")
    return sources


def _flat(sources: Sources) -> Iterator[tuple[str, Source]]:
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
    """The rows of one block, read when they are asked for and checked the first time.

    ``keep`` are the positions in the block that are still unlabelled, or None for all.
    """

    def __init__(self, sources: Sources, first: int, ids: Ids, keep: Any = None) -> None:
        """Rows ``first`` to ``first + len(ids) - 1`` of the sources."""
        self._sources, self._first, self._ids, self._keep = sources, first, ids, keep
        self._checked: set[str] = set()
        self._compact: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

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
        if self._keep is not None:
            rows = each(rows, lambda array: take(array, self._keep))
            if in_memory:  # one copy instead of one in every pass
                self._compact[name] = rows
        return rows

    def take(self, positions: Any) -> dict[str, Any]:
        """Some rows of the block, without reading the others (once the block was checked)."""
        positions = np.arange(len(self._ids))[positions]
        if self._keep is not None:
            positions = self._keep[positions]
        taken = {}
        for name, source in self._sources.items():
            parts = source if isinstance(source, list) else [source]
            labels = [f"{name}[{j}]" for j in range(len(parts))] if parts is source else [name]
            for label, part in zip(labels, parts, strict=True):
                if label not in self._checked:
                    self._read(label, part)
            rows = [_working(name, part.take(positions + self._first)) for part in parts]
            taken[name] = rows if parts is source else rows[0]
        return taken

    def _read(self, name: str, source: Source) -> Array:
        rows = _working(name, source.read(self._first, self._first + len(self._ids)))
        if name not in self._checked:
            check_rows(name, rows, self._ids)
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
    block_bytes: int = BLOCK_BYTES,
) -> tuple[LocalShards, Rows | None]:
    """Blocks of the unlabelled items, and the rows of the labelled ones.

    Args:
        sources: from `open_sources`.
        ids: ``(n,)`` the items' ids; row numbers (or a Parquet file's column ``id``) if None.
        labelled: ids of the items that are labelled already.
        progress: told how far a selection has come.
        block_bytes: how much memory one block takes, about.
    """
    flat = [source for _, source in _flat(sources)]
    count = flat[0].shape[0]
    item_ids = _ids(ids, flat, count)
    row_bytes = max(sum(source.bytes_per_row for source in flat), 1)
    step = max(block_bytes // row_bytes, 256)
    cuts = range(0, max(count, 1), step)
    whole = [
        Shard(item_ids[c : c + step], BlockRows(sources, c, item_ids[c : c + step])) for c in cuts
    ]
    taken = _labelled_ids(labelled)
    if not len(taken):
        return LocalShards(whole, progress), None
    everything = LocalShards(whole)
    mask = np.ones(count, dtype=bool)
    mask[everything.positions(taken)] = False
    blocks: list[Shard] = []
    for shard, cut in zip(whole, cuts, strict=True):
        keep = np.flatnonzero(mask[cut : cut + step])
        if len(keep) < len(shard):
            shard = Shard(shard.ids[keep], BlockRows(sources, cut, shard.ids, keep))
        blocks.append(shard)
    some = [shard for shard in blocks if len(shard)] or blocks[:1]
    return LocalShards(some, progress), everything.rows(taken)


def _ids(ids: Any, sources: list[Source], count: int) -> Ids:
    if ids is None:
        stored = [s.ids for s in sources if isinstance(s, ParquetSource) and s.ids is not None]
        if not stored:
            return np.arange(count, dtype=np.int64)
        ids = stored[0]
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
