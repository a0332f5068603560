"""What tells a pool from another, in a few numbers."""

import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import is_array, to_numpy
from labelwise.running.many_files import part_paths
from labelwise.running.remote_files import is_remote, remote_facts
from labelwise.running.shards import Sources
from labelwise.running.sources import Source

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
    if isinstance(value, np.memmap) and value.filename is not None:
        value = Path(value.filename)
    if is_remote(value):
        facts["files"] = remote_facts(value, name)
        return facts
    if not is_array(value):
        files = part_paths(Path(value), name) if not Path(value).is_file() else [Path(value)]
        facts["files"] = {str(path.absolute()): _file_facts(path) for path in files}
        return facts
    facts["sum"] = 0
    for first in range(0, source.shape[0], ROWS):
        rows = np.ascontiguousarray(to_numpy(source.read(first, first + ROWS)))
        facts["sum"] = zlib.crc32(rows.tobytes(), facts["sum"])
    return facts


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
