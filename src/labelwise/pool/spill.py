"""Spill the state of blocks to temporary files if it does not fit in memory.

The state of a strategy (`pool.blocks.Shard.state`) grows with the pool. Beyond a limit, the arrays
of a block are written to a file after each visit and memory-mapped, so that they are in memory only
during a visit. The files are unnamed or unlinked at once, so the system removes them when the
process ends.
"""

import mmap
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import HostArray
from labelwise.errors import StorageFailed

LEAST = 1 << 16
"""Arrays of fewer bytes stay in memory."""


class Spill:
    """Keeps the state of all blocks together below a limit.

    Attributes:
        written: total number of bytes written to files.

    Example:
        >>> spill = Spill(limit=100_000)
        >>> state = {"scores": np.arange(50_000.0)}
        >>> spill.settle(state)
        >>> spill.written, float(state["scores"].sum())
        (400000, 1249975000.0)
    """

    def __init__(self, limit: float, folder: str | Path | None = None) -> None:
        """Allow ``limit`` bytes in memory; files go to ``folder`` or the temporary folder."""
        self._limit, self._folder = limit, folder
        self._in_memory: dict[int, int] = {}
        self._maps: dict[int, list[weakref.ref[mmap.mmap]]] = {}
        self.written = 0

    def settle(self, state: dict[str, object]) -> None:
        """Keep a block's state in memory or spill it, after a visit that may have changed it.

        Args:
            state: of one block; the same dictionary every time.
        """
        key = id(state)
        own: dict[int, HostArray] = {}
        _map_arrays(state, lambda array: own.setdefault(id(array), array))
        self._in_memory[key] = sum(array.nbytes for array in own.values())
        if sum(self._in_memory.values()) > self._limit and own:
            mapped = {number: self._map_to_file(array, key) for number, array in own.items()}
            _map_arrays(state, lambda array: mapped[id(array)])
            self._in_memory[key] = 0
        self._release_pages(key)

    def _map_to_file(self, array: HostArray, key: int) -> HostArray:
        """Write an array to a file and map it."""
        try:
            with tempfile.TemporaryFile(dir=self._folder, prefix="labelwise-") as file:
                array.tofile(file)  # a full disk raises an error here instead of a crash later
                file.flush()
                pages = mmap.mmap(file.fileno(), array.nbytes)
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise StorageFailed(
                f"what does not fit in memory cannot be written to {folder} "
                f"({error.strerror or error}); make room there, set TMPDIR to another folder, or "
                "raise memory"
            ) from error
        self._maps.setdefault(key, []).append(weakref.ref(pages))
        self.written += array.nbytes
        return np.frombuffer(pages, dtype=array.dtype).reshape(array.shape)

    def _release_pages(self, key: int) -> None:
        """Release the memory pages of a block's mapped arrays."""
        alive = [ref for ref in self._maps.get(key, []) if ref() is not None]
        self._maps[key] = alive
        for ref in alive:
            pages = ref()
            if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)


def _map_arrays(value: Any, change: Callable[[HostArray], HostArray]) -> Any:
    """Replace every large array of a nested value by ``change(array)``; views are kept."""
    if isinstance(value, np.ndarray):
        plain = value.flags.owndata and value.flags.c_contiguous and not value.dtype.hasobject
        return change(value) if plain and value.nbytes >= LEAST else value
    if isinstance(value, dict):
        for name, entry in value.items():
            value[name] = _map_arrays(entry, change)
        return value
    if isinstance(value, list):
        value[:] = [_map_arrays(entry, change) for entry in value]
        return value
    if isinstance(value, tuple):
        entries = [_map_arrays(entry, change) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
    if type(value).__module__.startswith("labelwise.") and hasattr(value, "__dict__"):
        for name, entry in vars(value).items():
            object.__setattr__(value, name, _map_arrays(entry, change))
    return value
