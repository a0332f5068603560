"""Rows of items by representation: take, join, move, gather and process them in pieces.

A mapping of rows is a dictionary of arrays, or reads a file on access.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

import numpy as np

from labelwise.arrays import Array, Positions, device, like, namespace, take, to_numpy
from labelwise.errors import BadInput
from labelwise.threads import run_in_threads, split_range, thread_count

Rows = Mapping[str, Array]
"""Representations by name; their first axis is the item. A list has one array per model."""
ArrayDict = dict[str, Array]  # Rows that are in memory


class StoredRows(Mapping[str, Array]):
    """A mapping that reads rows on access, some without the others, or in pieces (`map_pieces`)."""

    @abstractmethod
    def take(self, positions: Positions) -> ArrayDict:
        """The rows at the given positions, for every representation."""

    @property
    @abstractmethod
    def extent(self) -> tuple[int, int, bool]:
        """The number of rows, the numbers per row, and whether they are NumPy arrays."""

    @abstractmethod
    def cut(self, ranges: Sequence[slice]) -> list[Rows]:
        """The rows in pieces, for the time of one visit; together they are read once."""


def map_models(value: Array, function: Callable[[Array], Array]) -> Array:
    """Apply ``function`` to an array, or to every array of a list with one per model."""
    if isinstance(value, list | tuple):
        return [function(part) for part in value]
    return function(value)


def read_features(rows: Rows, model: int | None = None, *, bias: bool = False) -> Array:
    """The ``(n, d)`` features of a block, of one ``model``; ``bias`` adds a constant column."""
    features = rows["features"]
    if isinstance(features, list | tuple):
        if model is None:
            raise BadInput(f"features holds {len(features)} models; give the array of one of them")
        features = features[model]
    if not bias:
        return features
    xp = namespace(features)
    return xp.concat([features, xp.ones_like(features[:, :1])], axis=1)


def take_rows(rows: Rows, positions: Positions) -> ArrayDict:
    """The rows at the given positions by representation; a `StoredRows` reads only those."""
    if isinstance(rows, StoredRows):
        return rows.take(positions)
    return {
        name: [take(v, positions) for v in value]
        if isinstance(value, list | tuple)
        else take(value, positions)
        for name, value in rows.items()
    }


def copy_to_host(rows: Rows) -> ArrayDict:
    """The same rows as NumPy arrays."""
    return {name: map_models(rows[name], to_numpy) for name in rows}


def move_rows(rows: Rows, other: Array) -> ArrayDict:
    """The same rows in the library and on the device of another array."""
    if isinstance(other, np.ndarray):
        return copy_to_host(rows)
    return {name: map_models(rows[name], lambda array: like(array, other)) for name in rows}


def join_rows(parts: Sequence[Rows]) -> ArrayDict:
    """Blocks of rows one after the other, for every representation."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: _join_models(*(part[name] for part in parts)) for name in parts[0]}


def _join_models(*values: Array) -> Array:
    """Concatenate arrays, or lists of arrays model by model."""
    if isinstance(values[0], list | tuple):
        return [_join_models(*several) for several in zip(*values, strict=True)]
    return namespace(values[0]).concat(list(values))


class GrowingRows:
    """Rows of picks, appended one by one or many at a time, in buffers that double."""

    def __init__(self) -> None:
        self._buffers: ArrayDict = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, rows: Rows) -> None:
        """Add picks at the end."""
        for name, value in rows.items():
            buffers = self._buffers.get(name)
            if isinstance(value, list | tuple):
                pairs = zip(buffers or [None] * len(value), value, strict=True)
                self._buffers[name] = [self._extend_buffer(old, new) for old, new in pairs]
            else:
                self._buffers[name] = self._extend_buffer(buffers, value)
        first = next(iter(rows.values()))
        self._count += len(first[0] if isinstance(first, list | tuple) else first)

    def _extend_buffer(self, buffer: Array | None, new: Array) -> Array:
        """Write ``new`` after the rows so far; a full buffer is replaced by a longer one."""
        used, last = self._count, self._count + len(new)
        if buffer is not None and last <= len(buffer):
            buffer[used:last] = new
            return buffer
        xp = namespace(new)
        shape = (max(last, 64 - last), *new.shape[1:])
        parts = [new, xp.zeros(shape, dtype=new.dtype, device=device(new))]
        return xp.concat(parts if buffer is None else [buffer[:used], *parts])

    def since(self, first: int) -> ArrayDict:
        """The picks from number ``first`` on."""
        span = itemgetter(slice(first, self._count))
        return {name: map_models(value, span) for name, value in self._buffers.items()}


NUMBERS = 1 << 21  # Approximate numbers per piece, 8 MB in float32: with fewer, threads mostly wait
LEAST = 1 << 22  # A block of fewer numbers is one piece


def map_pieces(function: Callable[..., Array], rows: Rows, *columns: Array) -> Array:
    """``function(rows, *columns)`` of a block, ``(n, ...)``, piece by piece on all cores.

    For work that is done row by row and is not a large matrix product. A piece fits in the cache of
    a core; a block does not. Few rows, and rows that are not NumPy arrays, are one piece. The
    function returns one entry per row, which must not depend on other rows; if it returns a single
    entry, such as a sum, the result has one per piece. ``columns`` have one entry per row.
    """
    if isinstance(rows, StoredRows):
        count, width, on_host = rows.extent
    else:
        arrays: list[Array] = []
        for value in rows.values():
            arrays += value if isinstance(value, list | tuple) else [value]
        count, width = len(arrays[0]), sum(math.prod(array.shape[1:]) for array in arrays)
        on_host = all(isinstance(array, np.ndarray) for array in arrays)
    if count * width < LEAST or not on_host:
        return function(rows, *columns)
    threads = thread_count()
    turns = -(-count * width // (NUMBERS * threads))
    ranges = split_range(count, -(-count // (turns * threads)))  # the same number for every thread
    parts = cut_rows(rows, ranges)

    def one(part: tuple[slice, Rows]) -> Array:
        span, some = part
        return function(some, *(array[span] for array in columns))

    return np.concatenate(run_in_threads(one, zip(ranges, parts, strict=True)))


def cut_rows(rows: Rows, ranges: Sequence[slice]) -> list[Rows]:
    """The rows of a block in pieces, for the time of one visit; together they are read once."""
    if isinstance(rows, StoredRows):
        return rows.cut(ranges)
    whole = dict(rows)
    return [
        {name: map_models(value, itemgetter(span)) for name, value in whole.items()}
        for span in ranges
    ]
