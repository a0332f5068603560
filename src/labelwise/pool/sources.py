"""Where rows come from: arrays in memory, memory-mapped ``.npy`` files, Parquet files.

A source reads any range of rows. Only the ranges that a pass asks for are in memory. A folder of
files of one kind, or a pattern, is one source: its files one after the other, by name.
"""

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from labelwise.arrays import Array, detached, is_array, precision, take
from labelwise.errors import BadInput
from labelwise.pool.parquet.rows import ParquetSource

KINDS = (".npy", ".parquet")
"""Files that hold rows."""


class Source(Protocol):
    """Rows of one representation."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that all rows together have."""

    @property
    def bytes_per_row(self) -> int:
        """How much memory one row takes when read."""

    @property
    def precision(self) -> float:
        """The relative spacing of the numbers as they are stored."""

    @property
    def held_bytes(self) -> int:
        """How much memory the source takes besides the rows that it gives, at most, about."""

    @property
    def in_memory(self) -> bool:
        """Whether reading costs nothing, because the rows are in memory already."""

    @property
    def is_numpy(self) -> bool:
        """Whether rows come as NumPy arrays."""

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1``."""

    def take(self, positions: Any) -> Array:
        """The rows at the given positions."""


class Around:
    """A source that reads from another one, whose rows are of the same form."""

    _source: Source

    @property
    def bytes_per_row(self) -> int:
        """That of the source."""
        return self._source.bytes_per_row

    @property
    def precision(self) -> float:
        """That of the source."""
        return self._source.precision

    @property
    def held_bytes(self) -> int:
        """That of the source."""
        return self._source.held_bytes


class ArraySource:
    """An array in memory, or a memory-mapped one."""

    held_bytes = 0

    def __init__(self, array: Array, *, in_memory: bool = True) -> None:
        """Read from ``array``, whose first axis is the item.

        Only its numbers count, not how a tensor was computed, which a model's outputs may know.
        """
        self.in_memory, self.is_numpy = in_memory, isinstance(array, np.ndarray)
        self._array = np.asarray(array) if self.is_numpy else detached(array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return tuple(self._array.shape)

    @property
    def bytes_per_row(self) -> int:
        """Item size times the number of columns."""
        width = self._array.dtype.itemsize
        return int(width) * int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def precision(self) -> float:
        """That of the array's type."""
        return precision(self._array)

    def read(self, first: int, last: int) -> Array:
        """A view of the rows, no copy; in a file, they are read when they are used."""
        return self._array[first:last]

    def take(self, positions: Any) -> Array:
        """A copy of the rows."""
        return take(self.read(0, self.shape[0]), positions)


class MappedSource(ArraySource):
    """An array that is mapped from a file, of which what was read does not stay in memory.

    A map that shares its pages with the file may let go of them at any time: who looks at them
    again gets them from the file.
    """

    def __init__(self, array: Any) -> None:
        """Read from a memory-mapped array, or a view of one."""
        super().__init__(array, in_memory=False)
        shared = array.mode != "c" and hasattr(mmap, "MADV_DONTNEED")
        self._map = array._mmap if shared else None
        self._last: tuple[int, int] | None = None

    def read(self, first: int, last: int) -> Array:
        """A view of the rows; those of another range that were read before are let go."""
        if self._map is not None and self._last not in (None, (first, last)):
            self._map.madvise(mmap.MADV_DONTNEED)
        self._last = (first, last)
        return super().read(first, last)


class NpySource:
    """A ``.npy`` file. Each range is mapped by itself, so that what was read does not stay.

    From a file that is stored column by column, a range is copied: it lies in as many places as
    there are columns.
    """

    in_memory, is_numpy, held_bytes = False, True, 0

    def __init__(self, path: Path, name: str) -> None:
        """Read the header; a file that is no array, or holds objects, is refused."""
        try:
            check_magic(path)
            whole = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise BadInput(f"{name}: {path} is not a readable .npy file ({error})") from error
        self._path, self._dtype, self._offset = path, whole.dtype, whole.offset
        self._by_columns = not whole.flags.c_contiguous
        self.shape: tuple[int, ...] = whole.shape

    @property
    def bytes_per_row(self) -> int:
        """Item size times the number of columns."""
        return int(self._dtype.itemsize) * int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def precision(self) -> float:
        """That of the file's type."""
        return precision(np.empty(0, dtype=self._dtype))

    def _map(self, first: int, last: int) -> Any:
        last = min(last, self.shape[0])
        if last <= first:
            return np.empty((0, *self.shape[1:]), dtype=self._dtype)
        if self._by_columns:
            whole = np.memmap(self._path, self._dtype, "r", self._offset, self.shape, order="F")
            return np.ascontiguousarray(whole[first:last])
        offset = self._offset + first * self.bytes_per_row
        shape = (last - first, *self.shape[1:])
        return np.memmap(self._path, self._dtype, "r", offset, shape)

    def read(self, first: int, last: int) -> Array:
        """The rows: a view where they are stored one after the other, read when they are used."""
        return np.asarray(self._map(first, last))

    def take(self, positions: Any) -> Array:
        """A copy of the rows."""
        positions = np.asarray(positions)
        if not len(positions):
            return self.read(0, 0)
        first = int(positions.min())
        return self.read(first, int(positions.max()) + 1)[positions - first]


def check_magic(path: Path) -> None:
    """Refuse a file that does not begin as .npy files do, which NumPy would take for a pickle."""
    with path.open("rb") as file:
        if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            raise ValueError("it does not begin as such a file does; write it with np.save")


class Parts:
    """Several sources, one after the other."""

    in_memory, is_numpy = False, True

    def __init__(self, sources: Sequence[Source], paths: Sequence[Path], name: str) -> None:
        """Rows of all parts must have the same shape, and the same type."""
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
                    f"{paths[0].name} {first.read(0, 0).dtype}; save them alike"
                )
        self._ends = np.cumsum([source.shape[0] for source in sources])
        self.shape: tuple[int, ...] = (int(self._ends[-1]), *first.shape[1:])
        self.bytes_per_row, self.precision = first.bytes_per_row, first.precision
        self.held_bytes = max(source.held_bytes for source in sources)

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1``: a view where one part has them all, else a copy."""
        parts = [
            self._sources[number].read(max(first - start, 0), min(last, end) - start)
            for number, start, end in self._spans()
            if first < end and start < last
        ]
        return np.concatenate(parts) if len(parts) > 1 else (parts or [self._none()])[0]

    def _spans(self) -> Iterator[tuple[int, int, int]]:
        """Number, first row and end of every part."""
        starts = [0, *self._ends[:-1].tolist()]
        return zip(range(len(starts)), starts, self._ends.tolist(), strict=True)

    def _none(self) -> Array:
        return self._sources[0].read(0, 0)

    def take(self, positions: Any) -> Array:
        """The rows at the given positions, one part after the other."""
        positions = np.asarray(positions)
        if not len(positions):
            return self._none()
        owners = np.searchsorted(self._ends, positions, side="right")
        parts, places = [], []
        for number in np.unique(owners).tolist():
            places.append(np.flatnonzero(owners == number))
            start = int(self._ends[number - 1]) if number else 0
            parts.append(self._sources[number].take(positions[places[-1]] - start))
        return np.concatenate(parts)[np.argsort(np.concatenate(places))]


def open_source(value: Any, name: str) -> Source:
    """A source of rows from an array or the path of a file.

    Args:
        value: a NumPy array, a torch tensor, or the path of a .npy or .parquet file, of a folder of
            files of one of these kinds, or a pattern for their names such as ``"pool-*.npy"``; or
            a URL that fsspec can open.
        name: what it is called in errors.
    """
    if isinstance(value, str) and "://" in value:
        from labelwise.pool.remote_files import open_remote  # which imports this module

        return open_remote(value, name)
    if isinstance(value, str | Path):
        return _open_file(Path(value), name)
    if isinstance(value, np.ma.MaskedArray):
        raise BadInput(
            f"{name} is a masked array; give {name}.filled(...), or leave out its masked items"
        )
    if not is_array(value):
        raise BadInput(
            f"{name} must be an array, a torch tensor or a path to .npy or .parquet; "
            f"got {type(value).__name__}"
        )
    return MappedSource(value) if isinstance(value, np.memmap) else ArraySource(value)


def _open_file(path: Path, name: str) -> Source:
    from labelwise.pool.file_patterns import part_paths  # which imports this module

    paths = part_paths(path, name)
    suffix = paths[0].suffix
    if suffix == ".parquet":
        return ParquetSource(path, paths, name)
    parts = [NpySource(one, name) for one in paths]
    return parts[0] if len(parts) == 1 else Parts(parts, paths, name)
