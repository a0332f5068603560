"""Rows of ``.npy`` and Parquet files in object storage and other fsspec file systems.

A URL such as ``s3://bucket/features.npy`` names a file, a folder of files, or several files by a
pattern in its last part; they are read in the order of their names. Only the requested byte ranges
are fetched, and neighbouring rows are fetched together.

If fsspec lacks the package for a file system, pyarrow's implementation is used (S3, Google Cloud
Storage, Azure, HDFS).
"""

import math
import re
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.lib import format as npy

from labelwise.arrays import Array, HostArray, Positions, precision
from labelwise.errors import BadInput, MissingDependency, UnknownName, first_line
from labelwise.files import ARRAY_ERRORS, JsonObject, sort_naturally
from labelwise.pool.sources.file_patterns import HIDDEN, KINDS, is_visible, make_subfolder_error
from labelwise.pool.sources.parquet import ID, ParquetSource, ParquetTable, import_pyarrow
from labelwise.pool.sources.source import Given, JoinedSource, Source

FileSystem = Any  # A file system of fsspec
HEADER = 1 << 12  # Bytes fetched to read the header of a .npy file, which usually has 128
GAP = 1 << 16  # Rows are fetched with one request if no more bytes than this lie between them
AGES = ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created")
"""Metadata keys that identify the version of a file, most specific first."""
SECRETS = "(?i)([?&][^=&]*(?:sig|token|key|secret|credential|password)[^=&]*=)[^&]*"
"""Query parameters with credentials, which must not be shown or stored."""


def is_remote(value: Given) -> bool:
    """Whether a value is the URL of a file.

    >>> is_remote("s3://bucket/features.npy"), is_remote("/data/features.npy")
    (True, False)
    """
    return isinstance(value, str) and "://" in value


def open_remote(url: str, name: str) -> Source:
    """Open the URL of a .npy or .parquet file, of a folder of them, or a pattern."""
    id_column = getattr(url, "id_column", ID)
    files, paths = _find_remote_files(url, name)
    url = without_secret(url)
    kinds = {PurePosixPath(one).suffix for one in paths}
    if len(kinds) > 1 or not kinds <= set(KINDS):
        raise BadInput(f"{name}: {url} cannot be read; give .npy files or .parquet files")
    if kinds == {".parquet"}:
        return RemoteParquetSource(files, paths, url, name, id_column)
    parts = [RemoteNpySource(files, one, f"{name}: {url}") for one in paths]
    return parts[0] if len(parts) == 1 else JoinedSource(parts, [Path(one) for one in paths], name)


def describe_remote_files(url: str, name: str) -> dict[str, JsonObject]:
    """Return the size and version of every file of a URL, by path."""
    files, paths = _find_remote_files(url, name)
    facts = {}
    for path in paths:
        told = files.info(path)
        changed = next((told[word] for word in AGES if told.get(word) is not None), None)
        facts[path] = {"bytes": told.get("size"), "changed": str(changed)}
    return facts


def _find_remote_files(url: str, name: str) -> tuple[FileSystem, list[str]]:
    """Return the file system of a URL and the paths of its files; no file is an error."""
    files, path = _find_file_system(url, name)
    url = without_secret(url)
    try:
        paths, deeper = _list_remote_paths(files, path.rstrip("/"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{name}: {url} cannot be reached ({first_line(error)})") from error
    if deeper is not None:
        raise make_subfolder_error(name, url.rstrip("/"), deeper)
    if not paths:
        raise UnknownName(f"{name}: there is no file {url}, or no .npy or .parquet file in it")
    return files, sort_naturally(paths)


def _find_file_system(url: str, name: str) -> tuple[FileSystem, str]:
    """Return the file system of a URL, and the path in it."""
    shown = without_secret(url)
    try:
        url_to_fs = import_module("fsspec.core").url_to_fs
    except ImportError as error:
        raise MissingDependency(
            f"reading {shown} needs fsspec; run pip install fsspec, and what it asks for next"
        ) from error
    try:
        files, path = url_to_fs(url)
    except ImportError as error:
        found = _find_pyarrow_file_system(url)
        if found is None:
            raise MissingDependency(f"reading {shown} needs another package ({error})") from error
        return found
    except (OSError, ValueError) as error:
        raise BadInput(f"{name}: {shown} cannot be reached ({first_line(error)})") from error
    return files, path


def _find_pyarrow_file_system(url: str) -> tuple[FileSystem, str] | None:
    try:
        files, path = import_module("pyarrow.fs").FileSystem.from_uri(url)
    except (ImportError, OSError, ValueError):  # not available, or unknown to pyarrow
        return None
    return import_module("fsspec.implementations.arrow").ArrowFSWrapper(files), path


def _list_remote_paths(files: FileSystem, path: str) -> tuple[list[str], str | None]:
    """Return the files of a path, and one file in a subfolder if there is any."""
    if "*" in path or "[" in path:  # a question mark starts the query of a URL
        return files.glob(path), None
    if not files.exists(path):
        return [], None
    if not files.isdir(path):
        return [path], None
    below = [one for kind in KINDS for one in files.glob(f"{path}/**/*{kind}")]
    here = files._strip_protocol(path)
    inside = {one: PurePosixPath(one).relative_to(here) for one in below}
    shown = [
        one
        for one, inner in inside.items()
        if is_visible(inner.parts[:-1]) and not inner.name.startswith(HIDDEN)
    ]
    deeper = [str(inside[one]) for one in shown if len(inside[one].parts) > 1]
    return shown, min(deeper, default=None)


def without_secret(url: str) -> str:
    """Remove credentials from a URL.

    >>> without_secret("s3://key:secret@bucket/features.npy")
    's3://bucket/features.npy'
    >>> without_secret("https://host/features.npy?X-Amz-Signature=0a1b&part=2")
    'https://host/features.npy?X-Amz-Signature=...&part=2'
    """
    return re.sub(SECRETS, r"\1...", re.sub("//[^/]*@", "//", url))


def _show_remote_name(path: str) -> str:
    return without_secret(PurePosixPath(path).name)


class RemoteNpySource:
    """A remote ``.npy`` file, read by byte ranges."""

    in_memory, is_numpy, held_bytes = False, True, 0

    def __init__(self, files: FileSystem, path: str, name: str) -> None:
        """Fetch the header; reject files that are not row-major arrays or hold objects."""
        self._files, self._path, self._name = files, path, name
        try:
            with files.open(path, "rb", block_size=HEADER) as file:
                major, _ = npy.read_magic(file)
                read = npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0
                self.shape, by_columns, self._dtype = read(file)
                if min(self.shape, default=0) < 0:
                    raise ValueError(f"its header states the shape {self.shape}")
                self._offset = file.tell()
        except ARRAY_ERRORS as error:
            raise BadInput(f"{name} is not a readable .npy file ({first_line(error)})") from error
        if self._dtype.hasobject:
            raise BadInput(f"{name} holds objects; save an array of numbers instead")
        if by_columns and len(self.shape) > 1:
            raise BadInput(
                f"{name} is stored column by column; save np.ascontiguousarray(...) instead"
            )
        self.bytes_per_row = self._dtype.itemsize * math.prod(self.shape[1:])
        self.precision = precision(np.empty(0, dtype=self._dtype))
        size = files.info(path).get("size")  # some stores do not report it
        self._check_remote_end(self._find_offset(self.shape[0]) if size is None else size)

    def _find_offset(self, row: int) -> int:
        return int(self._offset) + row * self.bytes_per_row

    def _check_remote_end(self, size: int) -> None:
        if size < self._find_offset(self.shape[0]):
            raise BadInput(
                f"{self._name} is cut off: {size} bytes of {_show_remote_name(self._path)} are "
                f"there but {self._find_offset(self.shape[0])} belong to it; copy it again"
            )

    def _parse_remote_rows(self, content: bytes, first: int, last: int) -> HostArray:
        """Convert bytes to rows; reject missing bytes of a file that became shorter."""
        if len(content) < (last - first) * self.bytes_per_row:
            self._check_remote_end(self._find_offset(first) + len(content))
        return np.frombuffer(content, dtype=self._dtype).reshape(-1, *self.shape[1:])

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1``, fetched with one request."""
        last = min(last, self.shape[0])
        if last <= first:
            return np.empty((0, *self.shape[1:]), dtype=self._dtype)
        found = self._files.cat_file(self._path, self._find_offset(first), self._find_offset(last))
        return self._parse_remote_rows(found, first, last)

    def take(self, positions: Positions) -> Array:
        """Return the rows at the given positions; close ones share one request."""
        wanted, back = np.unique(np.asarray(positions, dtype=np.int64), return_inverse=True)
        if not len(wanted):
            return self.read(0, 0)
        far = np.flatnonzero(np.diff(wanted) * self.bytes_per_row > GAP) + 1
        runs = np.split(wanted, far)
        starts = [self._find_offset(int(run[0])) for run in runs]
        ends = [self._find_offset(int(run[-1]) + 1) for run in runs]
        found = self._files.cat_ranges([self._path] * len(runs), starts, ends)
        rows = [
            self._parse_remote_rows(some, int(run[0]), int(run[-1]) + 1)[run - run[0]]
            for some, run in zip(found, runs, strict=True)
        ]
        return np.concatenate(rows)[back]


class RemoteParquetSource(ParquetSource):
    """Consecutive remote Parquet files, read by byte ranges."""

    buffers = 32 << 20  # requests cost more than memory

    def __init__(
        self, files: FileSystem, paths: Sequence[str], url: str, name: str, id_column: str = ID
    ) -> None:
        """Open the files and fetch only their metadata."""
        _, library = import_pyarrow(f"reading {url}")

        def opened(path: str, **options: Any) -> Any:
            file = files.open(path, "rb", cache_type="none")  # pyarrow buffers the file itself
            return library.ParquetFile(file, **options)

        tables = [
            ParquetTable.read(partial(opened, one), _show_remote_name(one), f"{name}: {url}")
            for one in paths
        ]
        self._open_files(PurePosixPath(url).name or url, tables, name, id_column)
