"""What tells a pool from another, in a few numbers."""

import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from mmap import ALLOCATIONGRANULARITY, mmap
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import is_array, to_numpy
from labelwise.pool.file_patterns import find_row_files
from labelwise.pool.remote_files import is_remote, remote_facts
from labelwise.pool.sources import Source, Sources

Memmap = np.memmap[Any, Any]

ROWS = 1 << 14
"""How many rows of an array are looked at at a time."""


def describe(values: Mapping[str, Any], sources: Sources) -> dict[str, Any]:
    """What tells a pool from another: names, shapes, and files or the numbers themselves.

    Args:
        values: representations by name, as given.
        sources: the same, opened.
    """
    facts: dict[str, Any] = {}
    for name, opened in sources.items():
        value = values[name]
        pairs = zip(value, opened, strict=True) if isinstance(opened, list) else [(value, opened)]
        facts[name] = [_describe(given, source, name) for given, source in pairs]
    return facts


def _describe(value: Any, source: Source, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"shape": source.shape, "precision": source.precision}
    if is_remote(value):
        return facts | {"files": remote_facts(value, name)}
    if isinstance(value, np.memmap) and _is_its_file(value):
        return facts | _map_facts(value)
    if is_array(value):
        return facts | {"sum": _sum(source)}
    files = [Path(value)] if Path(value).is_file() else find_row_files(Path(value), name)
    return facts | _files_facts(files)


def _is_its_file(rows: Memmap) -> bool:
    """Whether a map holds what its file does, and no other numbers: it cannot be written to."""
    there = rows.filename is not None and Path(rows.filename).exists()
    return there and rows.mode == "r" and isinstance(_pages(rows), mmap)


def _map_facts(rows: Memmap) -> dict[str, Any]:
    """Of a map that may be a part of another one: its file, and where the numbers are in it."""
    begin = rows.offset - rows.offset % ALLOCATIONGRANULARITY  # where pages can begin
    into = rows.ctypes.data - np.frombuffer(_pages(rows), dtype=np.uint8).ctypes.data
    place = {"offset": begin + into, "strides": rows.strides, "type": rows.dtype.str}
    return _files_facts([Path(str(rows.filename))]) | place


def _pages(rows: Any) -> Any:
    """What an array and all that it is a part of lie in."""
    while isinstance(rows, np.ndarray):
        rows = rows.base
    return rows


def _sum(source: Source) -> int:
    """A check sum of all numbers."""
    total = 0
    for first in range(0, source.shape[0], ROWS):
        rows = np.ascontiguousarray(to_numpy(source.read(first, first + ROWS)))
        total = zlib.crc32(rows.tobytes(), total)
    return total


def _files_facts(paths: list[Path]) -> dict[str, Any]:
    return {"files": {str(path.absolute()): _file_facts(path) for path in paths}}


def _file_facts(path: Path) -> dict[str, Any]:
    status = path.stat()
    second, rest = divmod(status.st_mtime_ns, 10**9)
    changed = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return {"bytes": status.st_size, "changed": f"{changed}.{rest:09d} UTC"}


def digest(ids: Any) -> str | None:
    """Ids in a few letters; None for none."""
    if ids is None:
        return None
    return f"{len(ids)} ids, sum {zlib.crc32(np.asarray(ids, dtype=np.int64).tobytes()):08x}"
