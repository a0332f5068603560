"""Readers that stand in a Parquet file and go on from there.

A row group cannot be entered in its middle: whoever wants its last row decodes all of it. So a
reader stands at the batch of rows that it decoded last, and goes on from there. What it has in
memory is that batch and a page of every column, never a row group, which in the usual file has a
million rows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput, first_line
from labelwise.pool.parquet.schema import RowForm


class Table(NamedTuple):
    """A file of which the metadata is known.

    Attributes:
        name: what it is called in errors.
        open: opens it, with the arguments of pyarrow's ``ParquetFile``.
        metadata: of pyarrow.
        schema: of Arrow.
    """

    name: str
    open: Callable[..., Any]
    metadata: Any
    schema: Any


def open_table(opener: Callable[..., Any], name: str, shown: str) -> Table:
    """Read a file's metadata.

    Args:
        opener: as in `Table`.
        name: of the file, as in `Table`.
        shown: what it is called if it cannot be read.
    """
    try:
        with opener() as file:
            return Table(name, opener, file.metadata, file.schema_arrow)
    except (ValueError, OSError, NotImplementedError) as error:
        line = first_line(error)
        raise BadInput(f"{shown} is not a readable .parquet file ({line})") from error


class Place(NamedTuple):
    """A row group: its file, its number there, and its first row in all files."""

    table: Table
    group: int
    start: int


class Reader:
    """Stands at a batch of rows of a file, and goes on to the next.

    Attributes:
        table: the file.
        first: number of the batch's first row in all files.
        end: of the first row behind it.
    """

    def __init__(self, place: Place, form: RowForm, step: int, buffer: int, where: str) -> None:
        """Stand before a row group; rows are decoded ``step`` at a time."""
        self.table, self.first, self.end = place.table, place.start, place.start
        self._form, self._where = form, where
        groups = list(range(place.group, place.table.metadata.num_row_groups))
        self._iterate_batches = batches(place.table, form.columns, step, groups, buffer)
        self._numbers: list[NDArray[Any]] = []

    def go(self, row: int) -> None:
        """Go on to the batch that a row is in, which must not be before this one."""
        batch = None
        while row >= self.end:
            batch = next(self._iterate_batches)
            self.first, self.end = self.end, self.end + batch.num_rows
            self._numbers = []
        if batch is not None:  # those in between are decoded by pyarrow but not looked at
            self._numbers = self._form.numbers(batch, self.first, self._where)

    def put(self, out: NDArray[Any], which: Any) -> None:
        """Write rows of the batch to ``out``, by a slice or by numbers from its first row."""
        self._form.put(out, self._numbers, which)


def batches(
    table: Table, columns: Sequence[str], step: int, groups: Sequence[int], buffer: int
) -> Iterator[Any]:
    """The rows of some row groups, as Arrow gives them; what it cannot read is an error of ours."""
    try:
        with table.open(metadata=table.metadata, buffer_size=buffer, pre_buffer=False) as file:
            yield from file.iter_batches(step, row_groups=groups, columns=list(columns))
    except (ValueError, OSError, NotImplementedError) as error:
        line = first_line(error)
        raise BadInput(f"{table.name} cannot be read ({line}); write it anew") from error
    raise BadInput(f"{table.name} has fewer rows than it says; write it anew")


class Readers:
    """At most ``count`` readers, those used last."""

    def __init__(self, count: int, places: Sequence[Place], opened: Callable[[Place], Reader]):
        """None is open yet; ``opened`` opens one at one of the ``places``."""
        self._count, self._places, self._opened = count, places, opened
        self._starts = np.array([place.start for place in places], dtype=np.int64)
        self._open: list[Reader] = []

    def at(self, row: int) -> Reader:
        """A reader that stands at the batch with a row: the nearest before it goes there."""
        place = self._places[int(np.searchsorted(self._starts, row, side="right")) - 1]
        near = [
            reader
            for reader in self._open
            if reader.table is place.table and reader.first <= row and place.start <= reader.end
        ]
        if near:
            reader = max(near, key=lambda one: one.first)
            self._open.remove(reader)
        else:
            del self._open[: max(len(self._open) + 1 - self._count, 0)]
            reader = self._opened(place)
        reader.go(row)  # if that fails, it is not used again
        self._open.append(reader)
        return reader


def walk(readers: Readers, first: int, last: int) -> Iterator[tuple[Reader, slice, slice]]:
    """All batches with rows of a range: where these are in the range, and where in the batch."""
    row = first
    while row < last:
        reader = readers.at(row)
        end = min(reader.end, last)
        yield reader, slice(row - first, end - first), slice(row - reader.first, end - reader.first)
        row = end


def find_places(tables: Sequence[Table]) -> tuple[list[Place], int]:
    """All row groups that have rows, and how many rows there are."""
    places, start = [], 0
    for table in tables:
        for group in range(table.metadata.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            if rows:
                places.append(Place(table, group, start))
            start += rows
    return places, start
