"""Sources of rows: arrays in memory, memory-mapped ``.npy`` files, and parts of other sources.

A source reads any range of rows; only the ranges that a pass asks for are in memory.
"""

import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import DTypeLike

from labelwise.arrays import Array, Positions, detached, precision, take
from labelwise.errors import BadInput, first_line
from labelwise.files import ARRAY_ERRORS


class Source(Protocol):
    """Rows of one representation."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all rows together."""

    @property
    def bytes_per_row(self) -> int:
        """Memory of one row when read."""

    @property
    def precision(self) -> float:
        """Relative spacing of the stored numbers."""

    @property
    def held_bytes(self) -> int:
        """Upper estimate of the memory that the source uses besides the rows it returns."""

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory already, so that reading is free."""

    @property
    def is_numpy(self) -> bool:
        """Whether rows are NumPy arrays."""

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1``."""

    def take(self, positions: Positions) -> Array:
        """The rows at the given positions."""


Sources = Mapping[str, Source | list[Source]]
"""Opened representations by name; a list has one source per model."""


Given = Any
"""A representation as a user gives it: an array, a tensor, a path or URL, or a list of them."""
Values = Mapping[str, Given]  # Representations by name, as given


@dataclass(frozen=True)
class MappedFile:
    """The parameters of a memory-mapped array, with which another process can map it."""

    path: str
    dtype: DTypeLike
    offset: int
    shape: tuple[int, ...]

    def open(self) -> Array:
        """Map the array."""
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


class ArraySource:
    """An array in memory, or a memory-mapped one."""

    held_bytes = 0

    def __init__(self, array: Array, *, in_memory: bool = True) -> None:
        """Read from ``array``, whose first axis is the item; a tensor's gradient is ignored."""
        self.in_memory, self.is_numpy = in_memory, isinstance(array, np.ndarray)
        self._array = np.asarray(array) if self.is_numpy else detached(array)
        self.shape: tuple[int, ...] = tuple(self._array.shape)
        self.bytes_per_row = int(self._array.dtype.itemsize) * math.prod(self.shape[1:])

    @property
    def precision(self) -> float:
        """Relative spacing of the numbers."""
        return precision(self._array)

    def read(self, first: int, last: int) -> Array:
        """A view of the rows; a mapped file is read when the view is used."""
        return self._array[first:last]

    def take(self, positions: Positions) -> Array:
        """A copy of the rows."""
        if self.is_numpy:
            return self._array[positions]
        return take(self._array, positions)


class MappedSource(ArraySource):
    """A memory-mapped array; rows that were read do not stay in memory.

    A map that shares its pages with the file can release them at any time, because the next
    access reads them from the file again.
    """

    def __init__(self, array: Array) -> None:
        """Read from a memory-mapped array, or a view of one."""
        super().__init__(array, in_memory=False)
        shared = array.mode != "c" and hasattr(mmap, "MADV_DONTNEED")
        self._map = array._mmap if shared else None
        self._last: tuple[int, int] | None = None

    def read(self, first: int, last: int) -> Array:
        """A view of the rows; the pages of the range that was read before are released."""
        if self._map is not None and self._last not in (None, (first, last)):
            self._map.madvise(mmap.MADV_DONTNEED)
        self._last = (first, last)
        return super().read(first, last)

    def take(self, positions: Positions) -> Array:
        """A copy of the rows."""
        return self.read(0, self.shape[0])[positions]


class NpySource:
    """A ``.npy`` file. Each range is mapped separately, so that rows do not stay in memory.

    A range of a file stored column by column is copied, because it lies in as many places as
    there are columns.
    """

    in_memory, is_numpy, held_bytes = False, True, 0

    def __init__(self, path: Path, name: str) -> None:
        """Read the header; reject a file that is not an array or holds objects."""
        try:
            check_npy_magic(path)
            whole = np.load(path, mmap_mode="r", allow_pickle=False)
            if not whole.shape:
                raise ValueError("it holds a single number")
            if min(whole.shape) < 0:
                raise ValueError(f"its header states the shape {whole.shape}")
        except ARRAY_ERRORS as error:
            raise BadInput(
                f"{name}: {path} is not a readable .npy file ({first_line(error)})"
            ) from error
        self._path, self._dtype, self._offset = path, whole.dtype, whole.offset
        self._by_columns = not whole.flags.c_contiguous
        self.shape: tuple[int, ...] = whole.shape
        self.bytes_per_row = whole.dtype.itemsize * math.prod(whole.shape[1:])
        self.precision = precision(whole[:0])

    def read(self, first: int, last: int) -> Array:
        """The rows, as a view that is read when used if they are stored row by row."""
        last = min(last, self.shape[0])
        if last <= first:
            return np.empty((0, *self.shape[1:]), dtype=self._dtype)
        if self._by_columns:
            whole = np.memmap(self._path, self._dtype, "r", self._offset, self.shape, order="F")
            return np.ascontiguousarray(whole[first:last])
        offset = self._offset + first * self.bytes_per_row
        shape = (last - first, *self.shape[1:])
        return np.asarray(np.memmap(self._path, self._dtype, "r", offset, shape))

    def take(self, positions: Positions) -> Array:
        """A copy of the rows."""
        positions = np.asarray(positions)
        if not len(positions):
            return self.read(0, 0)
        first = int(positions.min())
        return self.read(first, int(positions.max()) + 1)[positions - first]


def check_npy_magic(path: Path) -> None:
    """Reject a file that does not start like a .npy file: NumPy would take it for a pickle."""
    with path.open("rb") as file:
        if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            raise ValueError("it does not start like a .npy file; write it with np.save")


class JoinedSource:
    """Several sources, one after the other."""

    in_memory, is_numpy = False, True

    def __init__(self, sources: Sequence[Source], paths: Sequence[Path], name: str) -> None:
        """Join the sources; their rows must have the same shape and type."""
        first, self._sources = sources[0], list(sources)
        for source, path in zip(sources, paths, strict=True):
            if source.shape[1:] != first.shape[1:]:
                raise BadInput(
                    f"{name}: rows of {path.name} have shape {source.shape[1:]} but those of "
                    f"{paths[0].name} {first.shape[1:]}; give parts of one array"
                )
            if (source.bytes_per_row, source.precision) != (first.bytes_per_row, first.precision):
                raise BadInput(
                    f"{name}: {path.name} holds numbers of type {source.read(0, 0).dtype} but "
                    f"{paths[0].name} {first.read(0, 0).dtype}; save them with one type"
                )
        self._edges = np.cumsum([0, *(source.shape[0] for source in sources)])
        self.shape: tuple[int, ...] = (int(self._edges[-1]), *first.shape[1:])
        self.bytes_per_row, self.precision = first.bytes_per_row, first.precision
        self.held_bytes = max(source.held_bytes for source in sources)

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1``: a view if one source has all of them, else a copy."""
        edges = zip(self._sources, pairwise(self._edges.tolist()), strict=True)
        parts = [
            source.read(max(first - start, 0), min(last, end) - start)
            for source, (start, end) in edges
            if first < end and start < last
        ]
        if len(parts) > 1:
            return np.concatenate(parts)
        return parts[0] if parts else self._sources[0].read(0, 0)

    def take(self, positions: Positions) -> Array:
        """The rows at the given positions, read source by source."""
        positions = np.asarray(positions)
        if not len(positions):
            return self._sources[0].read(0, 0)
        owners = np.searchsorted(self._edges[1:], positions, side="right")
        parts, places = [], []
        for number in np.unique(owners).tolist():
            places.append(np.flatnonzero(owners == number))
            inside = positions[places[-1]] - self._edges[number]
            parts.append(self._sources[number].take(inside))
        return np.concatenate(parts)[np.argsort(np.concatenate(places))]


class SourceSlice:
    """Rows ``first`` to ``last - 1`` of another source."""

    def __init__(self, source: Source, first: int, last: int) -> None:
        """Read from ``source``, never outside the range."""
        if last > source.shape[0]:
            raise BadInput(
                f"there are {source.shape[0]} rows but row {last - 1} is requested; give the "
                "correct number of rows"
            )
        self._source, self._first, self._count = source, first, last - first
        self.shape: tuple[int, ...] = (last - first, *source.shape[1:])
        self.in_memory, self.is_numpy = source.in_memory, source.is_numpy
        self.bytes_per_row, self.precision = source.bytes_per_row, source.precision
        self.held_bytes = source.held_bytes

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1`` of the range."""
        return self._source.read(first + self._first, min(last, self._count) + self._first)

    def take(self, positions: Positions) -> Array:
        """The rows at the given positions of the range."""
        return self._source.take(np.asarray(positions) + self._first)
