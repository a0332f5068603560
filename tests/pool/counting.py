"""Blocks of rows that count how often they are read."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import Rows, StoredRows, cut_rows, take_rows


class CountedRows(StoredRows):
    """Rows in memory that remember whether they were read."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self._rows = rows
        self.read = False

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> Any:
        self.read = True
        return self._rows[name]

    def take(self, positions: Any) -> dict[str, Any]:
        return take_rows(self._rows, positions)

    @property
    def extent(self) -> tuple[int, int, bool]:
        if isinstance(self._rows, StoredRows):
            return self._rows.extent
        arrays = list(self._rows.values())
        width = sum(math.prod(array.shape[1:]) for array in arrays)
        return len(arrays[0]), width, all(isinstance(array, np.ndarray) for array in arrays)

    def cut(self, ranges: Sequence[slice]) -> list[Rows]:
        self.read = True
        return cut_rows(self._rows, ranges)


class CountingShards(LocalShards):
    """Blocks that count passes: a call that reads the rows of every block is one.

    A call that reads those of some blocks counts in proportion to how many items they have.
    """

    def __init__(self, rows: dict[str, Any], blocks: int) -> None:
        first = next(iter(rows.values()))
        count = len(first[0] if isinstance(first, list) else first)
        parts = np.array_split(np.arange(count), blocks)
        self.counted = [CountedRows(take_rows(rows, part)) for part in parts]
        super().__init__(Shard(part, rows) for part, rows in zip(parts, self.counted, strict=True))
        self.passes = 0.0

    def _count(self) -> None:
        sizes = [len(shard) for shard in self._shards]
        read = [size for size, rows in zip(sizes, self.counted, strict=True) if rows.read]
        self.passes += sum(read) / sum(sizes)
        for rows in self.counted:
            rows.read = False

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        answers = super().map(function, *arguments)
        self._count()
        return answers

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        answer = super().sum(function, *arguments)
        self._count()
        return answer
