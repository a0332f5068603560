"""Memory to work in that is used again: the pages of fresh memory cost as much as filling them.

NumPy asks for fresh memory for every large array and gives it back at the end, and most allocators
return it to the operating system, which clears every page before it hands it out again. `room`
keeps what a thread has used for whoever asks next.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT, LARGEST = 4, 32 << 20
"""How many rooms a thread keeps, and of how many bytes at most."""


class _Spare(threading.local):
    """The rooms of this thread that nobody is in."""

    def __init__(self) -> None:
        self.rooms: list[NDArray[np.uint8]] = []


_spare = _Spare()


@contextmanager
def room(shape: tuple[int, ...], dtype: Any) -> Iterator[NDArray[Any]]:
    """An array to write in, whose numbers are anything at first and again after the ``with``.

    Example:
        >>> with room((2, 3), np.float64) as array:
        ...     array[:] = 1
        ...     array.sum()
        np.float64(6.0)
    """
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    memory = _spare.rooms.pop() if _spare.rooms else np.empty(0, dtype=np.uint8)
    if memory.nbytes < needed:
        memory = np.empty(needed, dtype=np.uint8)
    try:
        yield memory[:needed].view(dtype).reshape(shape)
    finally:
        if memory.nbytes <= LARGEST and len(_spare.rooms) < KEPT:
            _spare.rooms.append(memory)
