"""Cut a pool into parts that other processes open.

A part is a range of rows. Its process opens the same files by path and reads only these rows;
arrays in memory are sent once, part by part. With a learner, the rows are raw inputs, and the
process that holds them computes their representations. `PartHolder` keeps the blocks of one part
and the state of the strategy.
"""

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import Ids, to_numpy
from labelwise.learner import Learner
from labelwise.pool.blocks import LocalShards
from labelwise.pool.ids import IdIndex, RowNumbers
from labelwise.pool.remote_files import is_remote
from labelwise.pool.representations import open_source
from labelwise.pool.rows import Rows, copy_to_host, join_rows, map_models
from labelwise.pool.shards import BLOCK_BYTES, open_shards
from labelwise.pool.sources import Source, SourceSlice

Values = Mapping[str, Any]
"""Representations by name: a path, a `MappedFile` or an array each, or a list of them."""


class Division:
    """Assignment of the rows and items of a pool to parts.

    Row numbers that serve as ids are not stored; ids given by the user are.

    Example:
        >>> import numpy as np
        >>> division = Division(10, 3, labelled=np.array([4]))
        >>> division.cuts
        array([ 0,  3,  6, 10])
        >>> division.owners(np.array([9, 0]))
        array([2, 0])
        >>> division.candidates
        array([0, 1, 2, 3, 5, 6, 7, 8, 9])
    """

    def __init__(
        self,
        count: int,
        parts: int,
        *,
        ids: Ids | None = None,
        labelled: Ids | None = None,
        edges: Ids | None = None,
    ) -> None:
        """Cut ``count`` rows into ``parts`` whose sizes differ by at most one row.

        Args:
            count: number of rows.
            parts: number of parts, 1 or more.
            ids: ``(count,)`` the items' ids; row numbers if None.
            labelled: ids of the labelled items.
            edges: allowed cut positions in increasing order, from 0 to ``count``. The parts then
                have about equal size, and there may be fewer of them.
        """
        self.count, self.ids = count, ids
        self.cuts = np.arange(parts + 1) * count // parts
        if edges is not None:
            self.cuts = np.unique(edges[np.searchsorted(edges, self.cuts)])
        self.labelled = np.empty(0, dtype=np.int64) if labelled is None else labelled
        self._index = IdIndex(RowNumbers(0, count) if ids is None else ids)
        self._labelled_rows = np.sort(self.rows_of(self.labelled))

    def __len__(self) -> int:
        return self.count - len(self.labelled)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.cuts) - 1

    @cached_property
    def sizes(self) -> Ids:
        """Number of candidates in each part."""
        taken = np.bincount(self._labelled_owners, minlength=self.parts)
        return np.asarray(np.diff(self.cuts) - taken, dtype=np.int64)

    def rows_of(self, ids: Ids) -> Ids:
        """Return the row numbers of items; an unknown id is an error."""
        return self._index.find_positions(ids).astype(np.int64)

    def owners(self, ids: Ids) -> Ids:
        """Return the part of each item."""
        rows = self.rows_of(ids)
        return np.asarray(np.searchsorted(self.cuts, rows, side="right") - 1, dtype=np.int64)

    @cached_property
    def _labelled_owners(self) -> Ids:
        return self.owners(self.labelled)

    def labelled_in(self, part: int) -> Ids:
        """Return the labelled items of a part in the given order."""
        return np.asarray(self.labelled[self._labelled_owners == part])

    def positions(self, ids: Ids) -> Ids:
        """Return the positions of items among the candidates."""
        return self._candidates.find_positions(ids).astype(np.int64)

    @cached_property
    def _candidates(self) -> IdIndex:
        if self.ids is None:
            return IdIndex(RowNumbers(0, self.count, self._labelled_rows))
        return IdIndex(np.delete(self.ids, self._labelled_rows))

    @property
    def candidates(self) -> Ids:
        """``(n,)`` ids of all items that are not labelled, in the order of the rows."""
        ids = self._candidates.ids
        return ids.to_array() if isinstance(ids, RowNumbers) else ids


@dataclass(frozen=True)
class MappedFile:
    """The parameters of a memory-mapped array, with which another process can map it."""

    path: str
    dtype: Any
    offset: int
    shape: tuple[int, ...]

    def open(self) -> Any:
        """Map the array."""
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


@dataclass(frozen=True)
class PoolPart:
    """Rows ``first`` to ``last - 1`` of a pool, in a form that another process can open.

    Attributes:
        values: representations, or ``inputs`` for a learner; arrays hold only the rows of this
            part.
        first: the part's first row.
        last: the first row after the part.
        ids: the items' ids; row numbers if None.
        labelled: ids of the part's labelled items.
        names: the representations that a learner computes from the inputs.
        block_bytes: approximate memory of one block.
    """

    values: Values
    first: int
    last: int
    ids: Ids | None
    labelled: Ids
    names: tuple[str, ...] = ()
    block_bytes: int = BLOCK_BYTES

    def open(
        self, learner: Learner | None = None, pieces: Sequence[Rows] = ()
    ) -> tuple[LocalShards, Rows | None]:
        """Return blocks of the part's unlabelled items, and the rows of its labelled items.

        Args:
            learner: computes the representations ``names``, if there are any.
            pieces: consecutive rows of the part, instead of ``values``.
        """
        values = self.values if not pieces else _join_pieces(pieces)
        if learner is not None:
            values = self._represent_inputs(learner, values)
        ids = IdIndex(RowNumbers(self.first, self.last) if self.ids is None else self.ids)
        sources = {
            name: map_models(value, partial(self._source, name)) for name, value in values.items()
        }
        return open_shards(sources, ids=ids, labelled=self.labelled, block_bytes=self.block_bytes)

    def _source(self, name: str, value: Any) -> Source:
        if isinstance(value, MappedFile):
            whole = open_source(value.open(), name)
        elif isinstance(value, str):
            whole = open_source(value, name)
        else:
            return open_source(value, name)  # arrays hold only the rows of this part
        return SourceSlice(whole, self.first, self.last)

    def _represent_inputs(self, learner: Learner, values: Values) -> dict[str, Any]:
        """Compute the learner's representations of the inputs block by block."""
        source = self._source("inputs", values["inputs"])
        step, count = max(self.block_bytes // source.bytes_per_row, 256), self.last - self.first
        blocks = [source.read(first, first + step) for first in range(0, max(count, 1), step)]
        return join_rows([copy_to_host(learner.represent(block, self.names)) for block in blocks])


def _join_pieces(pieces: Sequence[Rows]) -> dict[str, Any]:
    """Concatenate pieces; the id column is left out."""
    return join_rows(
        [{k: v for k, v in copy_to_host(piece).items() if k != "id"} for piece in pieces]
    )


def cut_part(
    division: Division,
    number: int,
    values: Values,
    *,
    names: tuple[str, ...] = (),
    block_bytes: int = BLOCK_BYTES,
) -> PoolPart:
    """Describe one part of a pool for the process that will hold it.

    Args:
        division: of the pool.
        number: of the part.
        values: of the whole pool, from `prepare_values`.
        names: the representations that a learner computes from the inputs.
        block_bytes: approximate memory of one block.
    """
    first, last = int(division.cuts[number]), int(division.cuts[number + 1])

    def rows(value: Any) -> Any:
        return value if isinstance(value, str | MappedFile) else value[first:last]

    mine = division.labelled_in(number)
    ids = None if division.ids is None else division.ids[first:last]
    return PoolPart(_map_values(values, rows), first, last, ids, mine, names, block_bytes)


def _map_values(values: Values, function: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: map_models(value, function) for name, value in values.items()}


def prepare_values(values: Values) -> dict[str, Any]:
    """Prepare representations for other processes: absolute file paths and host arrays."""
    return _map_values(values, _prepare_value)


def _prepare_value(value: Any) -> Any:
    if is_remote(value):
        return value
    if isinstance(value, str | Path):
        return str(Path(value).absolute())
    if isinstance(value, np.memmap) and isinstance(value.base, mmap.mmap):
        if value.filename is not None and value.flags.c_contiguous:
            path = str(Path(value.filename).absolute())
            return MappedFile(path, value.dtype, value.offset, value.shape)
    return to_numpy(value)


class PartHolder:
    """An opened part of a pool.

    Attributes:
        shards: its blocks, without empty ones.
        labelled: the rows of its labelled items, or None.
    """

    def __init__(
        self, part: PoolPart, learner: Learner | None = None, pieces: Sequence[Rows] = ()
    ) -> None:
        """Open the part, as in `PoolPart.open`."""
        shards, known = part.open(learner, pieces)
        self.labelled = None if known is None else dict(known)
        self.shards = shards if len(shards) else LocalShards([])

    def call(self, kind: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """`Shards.map` or `Shards.sum` over the part."""
        return getattr(self.shards, kind)(function, *arguments)

    @property
    def remembers(self) -> bool:
        """Whether any block keeps state between two calls."""
        return any(self.shards.map(_remembers))


def _remembers(shard: Any) -> bool:
    return bool(shard.state)
