"""Rows of Parquet files, decoded some at a time.

One reader serves reading in order. A few more, at different places, serve rows that are taken here
and there, each from the nearest place before it: `labelwise.pool.parquet.readers` says why.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from labelwise.arrays import Array, Ids, precision
from labelwise.errors import BadInput, MissingDependency
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.parquet.readers import (
    Place,
    Reader,
    Readers,
    Table,
    batches,
    find_places,
    open_table,
    walk,
)
from labelwise.pool.parquet.schema import (
    ID,
    RowForm,
    check_alike,
    kind,
    list_lengths,
    own_columns,
    row_form,
)

BATCH_BYTES = 2 << 20
"""How much memory the rows take that are decoded at a time, about."""
COPIES = 4
"""So much more a batch takes: as Arrow's arrays, with their levels, and as ours."""
KEPT_BYTES = 32 << 20
"""What Arrow keeps, for all readers together, of the memory that it was given back."""
PAGE_BYTES = 1 << 20
"""What writers make the pages of a column, about; a page is decompressed as a whole."""
LEAST_BUFFER, BUFFERS = 1 << 16, 1 << 20
"""How many bytes of a column are read from disk at a time at least, and of all columns, about."""
TAKERS, TAKERS_BYTES = 4, 64 << 20
"""How many readers take rows here and there, if they fit in so much memory, and one if not."""
KEPT_WHOLE = 256 << 20
"""A pool of so few bytes is kept, once rows are taken here and there, rather than decoded again."""
PROBED = 256
"""How many rows are looked at at a time to find out how long lists are."""


def parquet_library(name: str) -> Any:
    """The Parquet module of pyarrow; ``name`` is what is to be read."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependency(
            f"reading {name} needs pyarrow; run pip install 'labelwise[parquet]'"
        ) from error
    return parquet


class ParquetSource:
    """Parquet files, one after the other.

    What a row is, is told in `labelwise.pool.parquet.schema`.
    """

    in_memory, is_numpy = False, True
    buffers = BUFFERS

    def __init__(self, path: Path, paths: Sequence[Path], name: str) -> None:
        """Open the files; nothing but their metadata is read.

        Args:
            path: what the files are called together in errors.
            paths: of the files.
            name: of the representation, which says how many axes its rows have.
        """
        opener = parquet_library(path.name).ParquetFile
        tables = [open_table(partial(opener, one), one.name, str(one)) for one in paths]
        self._hold(path.name, tables, name)

    def _hold(self, where: str, tables: list[Table], name: str) -> None:
        """Read from files; ``where`` is what errors call them together."""
        self._where, self._tables, self._name = where, tables, name
        counts = [table.metadata.num_rows for table in tables]
        first = check_alike(
            [table.schema for table in tables],
            [table.name for table in tables],
            [count > 0 for count in counts],
        )
        self._schema = tables[first].schema
        self._places, self._count = find_places(tables)
        self._lock = Lock()  # a reader is at one place at a time
        self._whole: Array | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that make a row."""
        return [name for name in own_columns(self._schema, self._where) if name != ID]

    @cached_property
    def ids(self) -> Ids | None:
        """The column ``id``, if there is one."""
        if ID not in self._schema.names:
            return None
        dtype, lengths = kind(self._schema.field(ID).type)
        if dtype is None or lengths:
            raise BadInput(
                f"column 'id' of {self._where} holds {self._schema.field(ID).type}; give whole "
                "numbers, or call it something else and leave it out"
            )
        form = RowForm((ID,), dtype, (), lists=False)
        step = max(BATCH_BYTES // form.bytes, 1)
        out = np.empty(self._count, dtype=form.dtype)
        readers = Readers(1, self._places, self._opener(form, step))
        for reader, some, inside in walk(readers, 0, self._count):
            reader.put(out[some], inside)
        return out

    @cached_property
    def _form(self) -> RowForm:
        known = REPRESENTATIONS.get(self._name.split("[")[0])  # a learner's inputs are not
        flat = known is not None and len(known.axes) == 1
        return row_form(self._schema, self._where, self._lengths, flat=flat)

    def _lengths(self, column: str) -> tuple[int, ...]:
        """How long the lists of a column are, by its first rows."""
        found: tuple[int, ...] = (0,) * len(kind(self._schema.field(column).type).lengths)
        for place in self._places:
            some = batches(place.table, [column], PROBED, [place.group], LEAST_BUFFER)
            rows = place.table.metadata.row_group(place.group).num_rows
            while rows > 0:
                batch = next(some)
                found = list_lengths(batch.column(column), len(found))
                if all(found):
                    return found
                rows -= batch.num_rows
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows by columns, or by the lengths of the lists."""
        return (self._count, *self._form.shape)

    @property
    def bytes_per_row(self) -> int:
        """Item size times how many numbers a row has."""
        return self._form.bytes

    @property
    def precision(self) -> float:
        """That of the columns' common type."""
        return precision(np.empty(0, dtype=self._form.dtype))

    @property
    def held_bytes(self) -> int:
        """What readers keep in memory besides the rows they give, at most, about."""
        kept = self._count * self._form.bytes if self._is_small else 0
        return KEPT_BYTES + (1 + self._takers) * self._reader_bytes + kept

    @property
    def _is_small(self) -> bool:
        return self._count * self._form.bytes <= KEPT_WHOLE

    @cached_property
    def _chunks(self) -> list[Any]:
        """What the metadata say of the used columns of the largest row group."""
        groups = [table.metadata.row_group(group) for table, group, _ in self._places]
        largest = max(groups, key=lambda group: group.num_rows, default=None)
        if largest is None:
            return []
        every = [largest.column(number) for number in range(largest.num_columns)]
        used = set(self.columns)
        return [one for one in every if {one.path_in_schema, _top(one)} & used]

    @cached_property
    def _buffer(self) -> int:
        """How many bytes of a column are read from disk at a time."""
        size = max(self.buffers // max(len(self._chunks), 1), LEAST_BUFFER)
        return min(size, max((one.total_compressed_size for one in self._chunks), default=size))

    @property
    def _step(self) -> int:
        """How many rows are decoded at a time."""
        return max(BATCH_BYTES // max(self._form.bytes, 1), 1)

    @cached_property
    def _reader_bytes(self) -> int:
        """What a reader keeps: a batch, and of every column a buffer, a page and a dictionary."""
        pages = 0
        for one in self._chunks:
            whole = one.total_uncompressed_size + one.total_compressed_size
            pages += min(whole, 3 * PAGE_BYTES) + self._buffer
        return COPIES * min(self._step, self._count) * self._form.bytes + int(pages)

    @property
    def _takers(self) -> int:
        """How many readers take rows here and there."""
        return int(np.clip(TAKERS_BYTES // max(self._reader_bytes, 1), 1, TAKERS))

    def _opener(self, form: RowForm, step: int) -> Callable[[Place], Reader]:
        buffer = self._buffer
        return lambda place: Reader(place, form, step, buffer, self._where)

    @cached_property
    def _in_order(self) -> Readers:
        return Readers(1, self._places, self._opener(self._form, self._step))

    @cached_property
    def _taking(self) -> Readers:
        return Readers(self._takers, self._places, self._opener(self._form, self._step))

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1``; those that follow are read next without going back."""
        last = min(last, self._count)
        with self._lock:
            return self._read(first, last) if self._whole is None else self._whole[first:last]

    def _read(self, first: int, last: int) -> Array:
        out = np.empty((max(last - first, 0), *self._form.shape), dtype=self._form.dtype)
        for reader, some, inside in walk(self._in_order, first, last):
            reader.put(out[some], inside)
        return out

    def take(self, positions: Any) -> Array:
        """The rows at the given positions, in order; a row group is decoded up to its last one."""
        positions = np.asarray(positions, dtype=np.int64)
        if self._is_small:
            with self._lock:
                self._whole = self._read(0, self._count) if self._whole is None else self._whole
            return self._whole[positions]
        out = np.empty((len(positions), *self._form.shape), dtype=self._form.dtype)
        order = np.argsort(positions, kind="stable")
        wanted, done = positions[order], 0
        with self._lock:
            while done < len(wanted):
                reader = self._taking.at(int(wanted[done]))
                end = int(np.searchsorted(wanted, reader.end))
                reader.put(out[done:end], wanted[done:end] - reader.first)
                done = end
        return out[np.argsort(order)]


def _top(chunk: Any) -> str:
    return str(chunk.path_in_schema).split(".")[0]
