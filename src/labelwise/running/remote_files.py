"""Rows of ``.npy`` and Parquet files in object storage, or wherever else fsspec reaches.

A URL such as ``s3://bucket/features.npy`` names such a file. Only the ranges of bytes that a pass
asks for are fetched; neighbouring rows are fetched together.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from labelwise.arrays import Array, precision
from labelwise.errors import BadInput, MissingDependency, UnknownName
from labelwise.running.sources import ParquetSource, Source

HEADER = 1 << 12
"""How many bytes are fetched to find the header of a .npy file; as a rule it has 128."""
GAP = 1 << 16
"""Rows are fetched with one request if no more bytes than this lie between them."""


def is_remote(value: Any) -> bool:
    """Whether a value is the URL of a file.

    Example:
        >>> is_remote("s3://bucket/features.npy"), is_remote("/data/features.npy")
        (True, False)
    """
    return isinstance(value, str) and "://" in value


def open_remote(url: str, name: str) -> Source:
    """A source of rows from the URL of a .npy file, a Parquet file or a folder of them.

    Args:
        url: what fsspec can open; credentials come from where its file systems look for them.
        name: what it is called in errors.
    """
    try:
        url_to_fs = import_module("fsspec.core").url_to_fs
    except ImportError as error:
        raise MissingDependency(
            f"reading {url} needs fsspec; run pip install fsspec, and what it asks for next"
        ) from error
    try:
        files, path = url_to_fs(url)
        there = files.exists(path)
    except ImportError as error:
        raise MissingDependency(f"reading {url} needs another package ({error})") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{name}: {url} cannot be reached ({error})") from error
    if not there:
        raise UnknownName(f"{name}: there is no file {url}")
    if path.endswith(".npy"):
        return RemoteNpySource(files, path, f"{name}: {url}")
    return RemoteParquetSource(files, path, f"{name}: {url}")


class RemoteNpySource:
    """A ``.npy`` file of which ranges are fetched."""

    in_memory = False

    def __init__(self, files: Any, path: str, name: str) -> None:
        """Fetch the header; a file that is no array by rows, or holds objects, is refused."""
        self._files, self._path = files, path
        try:
            with files.open(path, "rb", block_size=HEADER) as file:
                major, _ = npy.read_magic(file)
                read = npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0
                self.shape, by_columns, self._dtype = read(file)
                self._offset = file.tell()
        except (ValueError, EOFError, OSError) as error:
            raise BadInput(f"{name} is not a readable .npy file ({error})") from error
        if self._dtype.hasobject:
            raise BadInput(f"{name} holds objects; save an array of numbers instead")
        if by_columns and len(self.shape) > 1:
            raise BadInput(
                f"{name} is stored column by column; save np.ascontiguousarray(...) instead"
            )

    @property
    def bytes_per_row(self) -> int:
        """Item size times the number of columns."""
        return int(self._dtype.itemsize) * int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def precision(self) -> float:
        """That of the file's type."""
        return precision(np.empty(0, dtype=self._dtype))

    def _place(self, row: int) -> int:
        return int(self._offset) + row * self.bytes_per_row

    def _rows(self, content: bytes) -> Any:
        return np.frombuffer(content, dtype=self._dtype).reshape(-1, *self.shape[1:])

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1``, fetched with one request."""
        last = min(last, self.shape[0])
        if last <= first:
            return np.empty((0, *self.shape[1:]), dtype=self._dtype)
        return self._rows(self._files.cat_file(self._path, self._place(first), self._place(last)))

    def take(self, positions: Any) -> Array:
        """The rows at the given positions, those close to each other with one request."""
        wanted, back = np.unique(np.asarray(positions, dtype=np.int64), return_inverse=True)
        if not len(wanted):
            return self.read(0, 0)
        far = np.flatnonzero(np.diff(wanted) * self.bytes_per_row > GAP) + 1
        runs = np.split(wanted, far)
        starts = [self._place(int(run[0])) for run in runs]
        ends = [self._place(int(run[-1]) + 1) for run in runs]
        found = self._files.cat_ranges([self._path] * len(runs), starts, ends)
        rows = [self._rows(some)[run - run[0]] for some, run in zip(found, runs, strict=True)]
        return np.concatenate(rows)[back]


class RemoteParquetSource(ParquetSource):
    """A Parquet file, or a folder of them, of which row groups are fetched."""

    def __init__(self, files: Any, path: str, name: str) -> None:
        """Open the files; nothing but their metadata is fetched."""
        # The same as for local files, but for how they are listed and opened.
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise MissingDependency(
                f"reading {path} needs pyarrow; run pip install 'labelwise[parquet]'"
            ) from error
        folder = files.isdir(path)
        names = sorted(files.glob(f"{path.rstrip('/')}/*.parquet")) if folder else [path]
        if not names:
            raise BadInput(f"{name} holds no .parquet file")
        if not names[0].endswith(".parquet"):
            raise BadInput(f"{name} cannot be read; give a .npy or .parquet file")
        self._path = Path(path)
        self._files = [parquet.ParquetFile(files.open(one, "rb")) for one in names]
        self._groups = [(f, g) for f in self._files for g in range(f.metadata.num_row_groups)]
        self._ends = np.cumsum([f.metadata.row_group(g).num_rows for f, g in self._groups])
        self._cached = None
