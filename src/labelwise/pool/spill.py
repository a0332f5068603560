"""State beside the rows that does not fit in memory lies in temporary files instead.

What a strategy keeps per item (`pool.blocks.Shard.state`) grows with the pool. Beyond a limit,
the arrays of a block are written to a file after each visit and mapped from there, so that they are
in memory only while the block is visited. The files have no name, or lose it at once: nothing is
left of them when the process ends, however it ends.
"""

import mmap
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.errors import StorageFailed

LEAST = 1 << 16
"""Arrays of fewer bytes stay in memory."""


class Spill:
    """Keeps the state of all blocks together below a limit.

    Attributes:
        written: how many bytes were written to files in all.

    Example:
        >>> spill = Spill(limit=100_000)
        >>> state = {"scores": np.arange(50_000.0)}
        >>> spill.settle(state)
        >>> spill.written, float(state["scores"].sum())
        (400000, 1249975000.0)
    """

    def __init__(self, limit: float, folder: str | Path | None = None) -> None:
        """Let states take ``limit`` bytes; files go to ``folder``, or where temporary ones do."""
        self._limit, self._folder = limit, folder
        self._in_memory: dict[int, int] = {}
        self._maps: dict[int, list[weakref.ref[mmap.mmap]]] = {}
        self.written = 0

    def settle(self, state: dict[str, Any]) -> None:
        """Put a block's state where there is room for it, after a visit that may have changed it.

        Args:
            state: of one block; the same dictionary every time.
        """
        key = id(state)
        own: dict[int, Any] = {}
        _map_arrays(state, lambda array: own.setdefault(id(array), array))
        self._in_memory[key] = sum(array.nbytes for array in own.values())
        if sum(self._in_memory.values()) > self._limit and own:
            mapped = {number: self._map_to_file(array, key) for number, array in own.items()}
            _map_arrays(state, lambda array: mapped[id(array)])
            self._in_memory[key] = 0
        self._release_pages(key)

    def _map_to_file(self, array: Any, key: int) -> Any:
        """The same numbers, mapped from a file."""
        try:
            with tempfile.TemporaryFile(dir=self._folder, prefix="labelwise-") as file:
                array.tofile(file)  # a full disk is an error here, not a crash at a later write
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
        """Let go of the memory of a block's maps; the numbers are in the files."""
        alive = [ref for ref in self._maps.get(key, []) if ref() is not None]
        self._maps[key] = alive
        for ref in alive:
            pages = ref()
            if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)


def _map_arrays(value: Any, change: Callable[[Any], Any]) -> Any:
    """Put ``change(array)`` in the place of every large array of a nested value.

    Arrays that are views belong to someone else and stay.
    """
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
