"""Rows of Parquet files, decoded a few at a time.

A row is one list column (of nested lists for more than two axes), or all number columns side by
side. A column called ``id``, or another one named by a `KeyedPath`, holds the items' ids, and the
index of a pandas table is ignored. All files must have the same columns and types, and no number
may be missing.

A row group can only be decoded from its start, so a reader keeps its position and continues after
the batch that it decoded last. It holds that batch and a page of every column in memory, never a
whole row group, which usually has a million rows. One reader serves sequential reads; a few more at
different positions serve random access.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Array, HostArray, Positions, precision
from labelwise.errors import BadInput, UnknownName, first_line, require_extra
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.ids import Key

Arrow = Any  # A schema, type, batch or array of pyarrow, which has no types
ParquetOpener = Callable[..., Any]  # Opens a file with the arguments of pyarrow's ``ParquetFile``
DType = np.dtype[Any]
ID = "id"  # The usual column of the items' ids
REMEDY = "give one list column, or only number columns"
BATCH_BYTES = 2 << 20  # Approximate memory of the rows that are decoded at a time
COPIES = 4  # Memory of a batch as a multiple of its rows: Arrow's arrays with levels, and ours
KEPT_BYTES = 32 << 20  # Released memory that Arrow's allocator keeps, for all readers together
PAGE_BYTES = 1 << 20  # Usual size of the pages of a column; a page is decompressed as a whole
LEAST_BUFFER, BUFFERS = 1 << 16, 1 << 20
"""Read buffer in bytes: minimum per column, and approximate total of all columns."""
TAKERS, TAKERS_BYTES = 4, 64 << 20  # Most readers for random access, and their total memory
KEPT_WHOLE = 256 << 20
"""A pool of at most this many bytes is kept in memory after the first random access."""
PROBED_ROWS = 256  # Rows that are read at a time to find the lengths of lists


def import_pyarrow(action: str) -> tuple[Any, Any]:
    """Import pyarrow and its module for Parquet; ``action`` names in an error what needs them."""
    with require_extra(f"{action} needs pyarrow", "parquet"):
        import pyarrow
        from pyarrow import parquet
    return pyarrow, parquet


class KeyedPath(str):
    """A path or URL of Parquet files whose ids are in the column ``id_column``.

    >>> KeyedPath("pool/*.parquet", "sku").id_column
    'sku'
    """

    def __new__(cls, path: str, id_column: str = ID) -> "KeyedPath":
        """Remember the column."""
        self = super().__new__(cls, path)
        self.id_column = id_column
        return self

    id_column: str


class ParquetTable(NamedTuple):
    """A file with its metadata and schema; ``open`` takes the arguments of ``ParquetFile``."""

    name: str
    open: ParquetOpener
    metadata: Arrow
    schema: Arrow

    @classmethod
    def read(cls, opener: ParquetOpener, name: str, shown: str) -> "ParquetTable":
        """Read a file's metadata; ``shown`` names the file if it cannot be read."""
        try:
            with opener() as file:
                return cls(name, opener, file.metadata, file.schema_arrow)
        except (ValueError, OSError, NotImplementedError) as error:
            line = first_line(error)
            raise BadInput(f"{shown} is not a readable .parquet file ({line})") from error

    def read_batches(
        self, columns: Sequence[str], step: int, groups: Sequence[int], buffer: int
    ) -> Iterator[Arrow]:
        """The rows of some row groups as Arrow batches of ``step`` rows."""
        try:
            with self.open(metadata=self.metadata, buffer_size=buffer, pre_buffer=False) as file:
                yield from file.iter_batches(step, row_groups=groups, columns=list(columns))
        except (ValueError, OSError, NotImplementedError) as error:
            raise BadInput(
                f"{self.name} cannot be read ({first_line(error)}); write it again"
            ) from error
        raise BadInput(f"{self.name} has fewer rows than its metadata says; write it again")


class RowGroup(NamedTuple):
    """A row group: its file, its number there, its rows and its first row in all files."""

    table: ParquetTable
    number: int
    rows: int
    start: int


class ColumnKind(NamedTuple):
    """What a column holds."""

    dtype: DType | None  # of its numbers; None if it does not hold numbers
    # Of its lists, the outer ones first; None if they may differ. Empty for no lists
    lengths: tuple[int | None, ...] = ()


def find_column_kind(column_type: Arrow) -> ColumnKind:
    """What a column of an Arrow type holds."""
    from pyarrow import types

    lengths: list[int | None] = []
    while _is_list_column(column_type):
        fixed = types.is_fixed_size_list(column_type)
        lengths.append(column_type.list_size if fixed else None)
        column_type = column_type.value_type
    numbers = (types.is_integer, types.is_floating, types.is_boolean)
    if not any(test(column_type) for test in numbers):
        return ColumnKind(None, tuple(lengths))
    return ColumnKind(np.dtype(column_type.to_pandas_dtype()), tuple(lengths))


def _is_list_column(column_type: Arrow) -> bool:
    from pyarrow import types

    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(column_type) for test in tests)


def list_columns(schema: Arrow, where: str, id_column: str = ID) -> list[str]:
    """The columns of a file without a pandas index, unless that is the id."""
    metadata = schema.pandas_metadata or {}
    index = {name for name in metadata.get("index_columns", ()) if isinstance(name, str)}
    names = [name for name in schema.names if name == id_column or name not in index]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{where} has {names.count(name)} columns called {name!r}; rename them")
    return names


def check_parquet_columns(tables: Sequence[ParquetTable], id_column: str = ID) -> ParquetTable:
    """The first file with rows; files with rows and other columns or types are rejected."""
    first = next((table for table in tables if table.metadata.num_rows), tables[0])
    expected = list_columns(first.schema, first.name, id_column)
    for table in tables:
        columns = list_columns(table.schema, table.name, id_column)
        if columns != expected:
            raise BadInput(
                f"{table.name} has the columns {', '.join(columns)} but {first.name} has "
                f"{', '.join(expected)}; give files with the same columns"
            )
        for column in expected if table.metadata.num_rows else []:
            own, other = table.schema.field(column).type, first.schema.field(column).type
            if not _are_compatible_columns(find_column_kind(own), find_column_kind(other)):
                raise BadInput(
                    f"column {column!r} of {table.name} is of type {own} but that of {first.name} "
                    f"of type {other}; save them with one type"
                )
    return first


def _are_compatible_columns(one: ColumnKind, other: ColumnKind) -> bool:
    """Whether two columns have the same type; lists of variable length are checked row by row."""
    if one.dtype != other.dtype or len(one.lengths) != len(other.lengths):
        return False
    pairs = zip(one.lengths, other.lengths, strict=True)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


@dataclass(frozen=True)
class RowLayout:
    """Columns, type and shape of a row."""

    columns: tuple[str, ...]
    dtype: DType
    shape: tuple[int, ...]  # of one row, without the axis of the items
    lists: bool  # whether the only column holds lists

    @property
    def bytes(self) -> int:
        """Memory of a row."""
        return int(self.dtype.itemsize) * int(np.prod(self.shape, dtype=np.int64))

    def read_numbers(self, batch: Arrow, first: int, where: str) -> list[HostArray]:
        """The numbers of some rows, ``(rows, *shape)`` from lists, else ``(rows,)`` per column.

        ``first`` is the number of the batch's first row in all files.
        """
        columns = [batch.column(name) for name in self.columns]
        if self.lists:
            columns = [self._flatten_lists(columns[0], first, where)]
        inner = math.prod(self.shape) if self.lists else 1
        for name, column in zip(self.columns, columns, strict=True):
            if column.null_count:
                raise _make_missing_value_error(
                    "number", first + _find_first_null(column) // inner, name, where
                )
        found = [_convert_arrow_numbers(column) for column in columns]
        return [found[0].reshape(batch.num_rows, *self.shape)] if self.lists else found

    def _flatten_lists(self, lists: Arrow, first: int, where: str) -> Arrow:
        """The numbers in nested lists, which must be complete and of equal length."""
        inner = 1  # lists of this depth per row
        for length in self.shape:
            if lists.null_count:
                row = first + _find_first_null(lists) // inner
                raise _make_missing_value_error("list", row, self.columns[0], where)
            lengths, lists = _open_arrow_lists(lists)
            wrong = np.flatnonzero(lengths != length)
            if len(wrong):
                raise BadInput(
                    f"row {first + int(wrong[0]) // inner} of {where} has a list of "
                    f"{lengths[wrong[0]]} in column {self.columns[0]!r} but others have {length}; "
                    "give lists of one length"
                )
            inner *= length
        return lists


def _open_arrow_lists(lists: Arrow) -> tuple[HostArray, Arrow]:
    """The lengths of lists, and the entries of all of them, one after the other."""
    from pyarrow import types

    if types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        return np.full(len(lists), size), lists.values.slice(lists.offset * size, len(lists) * size)
    offsets = _convert_arrow_numbers(lists.offsets)
    return np.diff(offsets), lists.values.slice(offsets[0], offsets[-1] - offsets[0])


def _convert_arrow_numbers(column: Arrow) -> HostArray:
    """The numbers of a column; Arrow's own conversion, for booleans only, imports pandas."""
    if str(column.type) == "bool":
        found: HostArray = column.to_numpy(zero_copy_only=False)
        return found
    return np.from_dlpack(column)


def _find_first_null(column: Arrow) -> int:
    return int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])


def _make_missing_value_error(what: str, row: int, column: str, where: str) -> BadInput:
    return BadInput(
        f"row {row} of {where} has no {what} in column {column!r}; fill it in, or leave the row out"
    )


def find_row_layout(
    schema: Arrow,
    where: str,
    find_lengths: Callable[[str], Sequence[int]],
    *,
    flat: bool,
    id_column: str = ID,
) -> RowLayout:
    """The form of the rows of files with one schema.

    ``find_lengths`` finds the lengths of a column's lists in its first rows; ``flat`` makes a row
    of one number column a number instead of a vector of one.
    """
    columns = [name for name in list_columns(schema, where, id_column) if name != id_column]
    if not columns:
        raise BadInput(f"{where} has no column but {id_column}; {REMEDY}")
    types = {name: schema.field(name).type for name in columns}
    kinds = {name: find_column_kind(column_type) for name, column_type in types.items()}
    lists = [name for name in columns if _is_list_column(types[name])]
    if lists and len(columns) > 1:
        other = next(name for name in columns if name != lists[0])
        raise BadInput(
            f"{where} has column {other!r} next to the lists of {lists[0]!r}; {REMEDY}, or "
            f"name it with --id {other} (in Python: Pool(id_column={other!r})) if it holds ids"
        )
    dtypes = []
    for name, (dtype, _) in kinds.items():
        if dtype is None:
            remedy = REMEDY
            if len(columns) > 1:
                remedy = f"leave it out, or name it with --id {name} if it holds ids"
            raise BadInput(f"column {name!r} of {where} is not numeric ({types[name]}); {remedy}")
        dtypes.append(dtype)
    shape: Sequence[int] = () if flat and len(columns) == 1 else (len(columns),)
    if lists:
        fixed = kinds[lists[0]].lengths
        shape = find_lengths(lists[0]) if None in fixed else [size or 0 for size in fixed]
    return RowLayout(tuple(columns), np.result_type(*dtypes), tuple(shape), bool(lists))


class BatchReader:
    """Reads a file batch by batch; the current one has rows ``first`` to ``end - 1`` of all."""

    def __init__(
        self, group: RowGroup, layout: RowLayout, step: int, buffer: int, where: str
    ) -> None:
        """Start before a row group; rows are decoded ``step`` at a time."""
        self.table, self.first, self.end = group.table, group.start, group.start
        self._layout, self._where = layout, where
        groups = list(range(group.number, group.table.metadata.num_row_groups))
        self._batches = group.table.read_batches(layout.columns, step, groups, buffer)
        self._numbers: list[HostArray] = []

    def advance_to(self, row: int) -> None:
        """Continue to the batch of a row, which must not be before this one."""
        batch = None
        while row >= self.end:
            batch = next(self._batches)
            self.first, self.end = self.end, self.end + batch.num_rows
            self._numbers = []
        if batch is not None:  # batches in between are decoded by pyarrow but not converted
            self._numbers = self._layout.read_numbers(batch, self.first, self._where)

    def write_rows(self, out: HostArray, which: Positions | slice) -> None:
        """Write rows of the batch to ``out``, by a slice or by numbers from its first row."""
        if self._layout.lists:
            out[...] = self._numbers[0][which]
            return
        table = out.reshape(len(out), len(self._layout.columns))
        for number, column in enumerate(self._numbers):
            table[:, number] = column[which]


class ReaderCache:
    """LRU cache of at most ``count`` readers."""

    def __init__(
        self, count: int, groups: Sequence[RowGroup], open_reader: Callable[[RowGroup], BatchReader]
    ) -> None:
        """Start without readers; ``open_reader`` opens one at a row group."""
        self._count, self._groups, self._open_reader = count, groups, open_reader
        self._starts = np.array([group.start for group in groups], dtype=np.int64)
        self._readers: list[BatchReader] = []

    def find_reader(self, row: int) -> BatchReader:
        """A reader at the batch of a row: the nearest one before it continues there."""
        group = self._groups[int(np.searchsorted(self._starts, row, side="right")) - 1]
        near = [
            reader
            for reader in self._readers
            if reader.table is group.table and reader.first <= row and group.start <= reader.end
        ]
        if near:
            reader = max(near, key=lambda one: one.first)
            self._readers.remove(reader)
        else:
            del self._readers[: max(len(self._readers) + 1 - self._count, 0)]
            reader = self._open_reader(group)
        reader.advance_to(row)  # if that fails, it is not used again
        self._readers.append(reader)
        return reader

    def read_range(self, out: HostArray, first: int) -> None:
        """Fill ``out`` with consecutive rows from number ``first`` on."""
        row, last = first, first + len(out)
        while row < last:
            reader = self.find_reader(row)
            end = min(reader.end, last)
            reader.write_rows(
                out[row - first : end - first], slice(row - reader.first, end - reader.first)
            )
            row = end


class ParquetSource:
    """Rows of Parquet files, one after the other."""

    in_memory, is_numpy = False, True
    sequential = True
    """Whether reading a range costs the rows before it in the row group."""
    buffers = BUFFERS

    def __init__(self, path: Path, paths: Sequence[Path], name: str, id_column: str = ID) -> None:
        """Open the files; only their metadata is read."""
        opener = import_pyarrow(f"reading {path.name}")[1].ParquetFile
        tables = [ParquetTable.read(partial(opener, one), one.name, str(one)) for one in paths]
        self._open_files(path.name, tables, name, id_column)

    def _open_files(
        self, where: str, tables: list[ParquetTable], name: str, id_column: str
    ) -> None:
        """Read from files; ``where`` names them together in error messages."""
        self._where, self._name, self._id_column = where, name, id_column
        self._schema = check_parquet_columns(tables, id_column).schema
        if id_column != ID and id_column not in self._schema.names:
            raise UnknownName(
                f"{where} has no column {id_column!r} with ids; it has "
                f"{', '.join(self._schema.names)}"
            )
        self._groups: list[RowGroup] = []
        self._count = 0
        for table in tables:
            for number in range(table.metadata.num_row_groups):
                rows = table.metadata.row_group(number).num_rows
                if rows:
                    self._groups.append(RowGroup(table, number, rows, self._count))
                self._count += rows
        self._lock = Lock()  # a reader has one position
        self._whole: Array | None = None

    @cached_property
    def ids(self) -> HostArray | None:
        """The column of the ids: numbers or other keys; None without it."""
        if self._id_column not in self._schema.names:
            return None
        dtype, lengths = find_column_kind(self._schema.field(self._id_column).type)
        if dtype is None or lengths:
            found: list[Key] = []
            for group in self._groups:
                batches = group.table.read_batches(
                    [self._id_column], 1 << 16, [group.number], LEAST_BUFFER
                )
                while len(found) < group.start + group.rows:
                    found += next(batches).column(self._id_column).to_pylist()
            return np.fromiter(found, dtype=object, count=len(found))
        layout = RowLayout((self._id_column,), dtype, (), lists=False)
        out = np.empty(self._count, dtype=dtype)
        readers = self._open_cache(1, layout, max(BATCH_BYTES // layout.bytes, 1))
        readers.read_range(out, 0)
        return out

    @cached_property
    def _layout(self) -> RowLayout:
        known = REPRESENTATIONS.get(self._name.split("[")[0])  # None for a learner's inputs
        flat = known is not None and len(known.axes) == 1
        return find_row_layout(
            self._schema, self._where, self._find_lengths, flat=flat, id_column=self._id_column
        )

    def _find_lengths(self, column: str) -> tuple[int, ...]:
        """The lengths of a column's lists at every depth, from the first that are not empty."""
        depth = len(find_column_kind(self._schema.field(column).type).lengths)
        found: tuple[int, ...] = (0,) * depth
        for group in self._groups:
            batches = group.table.read_batches([column], PROBED_ROWS, [group.number], LEAST_BUFFER)
            seen = 0
            while seen < group.rows:
                batch = next(batches)
                lists, lengths = batch.column(column), []
                for _ in range(depth):
                    own, lists = _open_arrow_lists(lists)
                    lengths.append(int(own[np.flatnonzero(own)[:1]].sum()))
                found, seen = tuple(lengths), seen + batch.num_rows
                if all(found):
                    return found
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows by columns, or by the lengths of the lists."""
        return (self._count, *self._layout.shape)

    @property
    def bytes_per_row(self) -> int:
        """Memory of one row when read."""
        return self._layout.bytes

    @property
    def precision(self) -> float:
        """Relative spacing of the numbers of the columns' common type."""
        return precision(np.empty(0, dtype=self._layout.dtype))

    @property
    def held_bytes(self) -> int:
        """Upper estimate of the memory of the readers besides the rows they return."""
        kept = self._count * self._layout.bytes if self.keeps_rows else 0
        return KEPT_BYTES + (1 + self._takers) * self._reader_bytes + kept

    @property
    def keeps_rows(self) -> bool:
        """Whether all rows stay in memory once some were accessed at random."""
        return self._count * self._layout.bytes <= KEPT_WHOLE

    @cached_property
    def _chunks(self) -> list[Arrow]:
        """The metadata of the used columns of the largest row group."""
        largest = max(self._groups, key=lambda group: group.rows, default=None)
        if largest is None:
            return []
        group = largest.table.metadata.row_group(largest.number)
        every = [group.column(number) for number in range(group.num_columns)]
        used = set(list_columns(self._schema, self._where, self._id_column)) - {self._id_column}
        return [c for c in every if {c.path_in_schema, c.path_in_schema.split(".")[0]} & used]

    @cached_property
    def _buffer(self) -> int:
        """Bytes of a column that are read from disk at a time."""
        size = max(self.buffers // max(len(self._chunks), 1), LEAST_BUFFER)
        return min(size, max((one.total_compressed_size for one in self._chunks), default=size))

    @property
    def _step(self) -> int:
        """Rows that are decoded at a time."""
        return max(BATCH_BYTES // max(self._layout.bytes, 1), 1)

    @cached_property
    def _reader_bytes(self) -> int:
        """Memory of a reader: a batch, and of every column a buffer, a page and a dictionary."""
        pages = 0
        for one in self._chunks:
            whole = one.total_uncompressed_size + one.total_compressed_size
            pages += min(whole, 3 * PAGE_BYTES) + self._buffer
        return COPIES * min(self._step, self._count) * self._layout.bytes + int(pages)

    @property
    def _takers(self) -> int:
        """Number of readers for random access."""
        return int(np.clip(TAKERS_BYTES // max(self._reader_bytes, 1), 1, TAKERS))

    def _open_cache(self, count: int, layout: RowLayout, step: int) -> ReaderCache:
        def open_reader(group: RowGroup) -> BatchReader:
            return BatchReader(group, layout, step, self._buffer, self._where)

        return ReaderCache(count, self._groups, open_reader)

    @cached_property
    def _sequential(self) -> ReaderCache:
        return self._open_cache(1, self._layout, self._step)

    @cached_property
    def _scattered(self) -> ReaderCache:
        return self._open_cache(self._takers, self._layout, self._step)

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1``; the rows after them are read next without going back."""
        last = min(last, self._count)
        with self._lock:
            return self._read_range(first, last) if self._whole is None else self._whole[first:last]

    def _read_range(self, first: int, last: int) -> Array:
        out = np.empty((max(last - first, 0), *self._layout.shape), dtype=self._layout.dtype)
        self._sequential.read_range(out, first)
        return out

    def take(self, positions: Positions) -> Array:
        """The rows at the given positions; a row group is decoded up to its last one."""
        positions = np.asarray(positions, dtype=np.int64)
        if self.keeps_rows:
            with self._lock:
                if self._whole is None:
                    self._whole = self._read_range(0, self._count)
            return self._whole[positions]
        out = np.empty((len(positions), *self._layout.shape), dtype=self._layout.dtype)
        order = np.argsort(positions, kind="stable")
        wanted, done = positions[order], 0
        with self._lock:
            while done < len(wanted):
                reader = self._scattered.find_reader(int(wanted[done]))
                end = int(np.searchsorted(wanted, reader.end))
                reader.write_rows(out[done:end], wanted[done:end] - reader.first)
                done = end
        return out[np.argsort(order)]
