"""Representations as they come, batch after batch: kept in memory, or streamed to files.

Both kinds are context managers: ``with Streamed(n, folder) as rows:``, then `put` batch after batch
and `close` for the result. What is not closed when the block ends leaves nothing behind.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelwise.errors import BadInput


class _Rows(ABC):
    """What both kinds have in common."""

    @abstractmethod
    def put(self, first: int, rows: dict[str, Tensor]) -> None:
        """Rows ``first`` and on of all representations."""

    @abstractmethod
    def close(self) -> dict[str, Any]:
        """All rows by name."""

    @abstractmethod
    def drop(self) -> None:
        """Forget all rows that were not closed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drop()


class Kept(_Rows):
    """Rows in memory: NumPy arrays from the CPU, tensors from another device, where they are."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._rows: dict[str, Tensor] = {}

    def put(self, first: int, rows: dict[str, Tensor]) -> None:
        """Rows ``first`` and on of all representations."""
        for name, values in rows.items():
            if name not in self._rows:
                self._rows[name] = values.new_empty((self._count, *values.shape[1:]))
            self._rows[name][first : first + len(values)] = values

    def close(self) -> dict[str, Any]:
        """All rows by name."""
        return {
            name: _storable(name, rows) if rows.device.type == "cpu" else rows
            for name, rows in self._rows.items()
        }

    def drop(self) -> None:
        """Forget all rows."""
        self._rows = {}


class Streamed(_Rows):
    """Rows in ``folder/NAME.npy``; a file has its name only when it is whole."""

    def __init__(self, count: int, folder: Path) -> None:
        self._count, self._folder = count, folder
        self._files: dict[str, NDArray[Any]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, first: int, rows: dict[str, Tensor]) -> None:
        """Rows ``first`` and on of all representations."""
        for name, values in rows.items():
            array = _storable(name, values)
            if name not in self._files:
                shape = (self._count, *array.shape[1:])
                self._files[name] = np.lib.format.open_memmap(
                    self._partial(name), mode="w+", dtype=array.dtype, shape=shape
                )
            self._files[name][first : first + len(array)] = array

    def close(self) -> dict[str, Any]:
        """All rows by name, mapped from their files."""
        names = list(self._files)
        for name in names:
            self._files.pop(name).flush()  # type: ignore[attr-defined]
            self._partial(name).replace(self._folder / f"{name}.npy")
        return {name: np.load(self._folder / f"{name}.npy", mmap_mode="r") for name in names}

    def drop(self) -> None:
        """Remove the files that are not whole."""
        for name in list(self._files):
            del self._files[name]
            self._partial(name).unlink(missing_ok=True)

    def _partial(self, name: str) -> Path:
        return self._folder / f".{name}.npy.partial"


def _storable(name: str, values: Tensor) -> NDArray[Any]:
    """Values as NumPy; bfloat16, which it lacks, as float16, so that the file shows the precision.

    Features that look more precise than they are would count rounding as directions of their own.
    """
    host = values.detach().cpu()
    if host.dtype != torch.bfloat16:
        return np.asarray(host.numpy())
    half = host.to(torch.float16)
    if not bool(torch.isfinite(half).all()):
        raise BadInput(f"{name} are too large for float16; represent them with amp=False")
    return np.asarray(half.numpy())
