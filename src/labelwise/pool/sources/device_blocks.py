"""Rows of files and host arrays as tensors on a device, block after block.

A pool larger than GPU memory is streamed: while the device computes on one block, a thread reads
the next block into one of two pinned buffers and copies it to the device on a separate stream.
Prefetching assumes that blocks are read in order. Tensors already on the device are not copied.

A single thread cannot saturate the bus to a GPU, so several threads fill a buffer together.

Memory: two blocks in pinned host memory and two on the device, for each representation.
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Array, HostArray, Positions
from labelwise.errors import BadInput, require_extra
from labelwise.pool.rows import map_models
from labelwise.pool.sources.source import ArraySource, Source, Sources

with require_extra("computing on a device needs torch", "torch"):
    import torch


COPIERS = max(min(3 * (os.cpu_count() or 1) // 4, 12), 1)
"""Threads that fill a buffer; more do not increase the memory bandwidth."""
LEAST = 1 << 22  # Smaller copies, in bytes, use one thread


def move_to_device(sources: Sources, device: str) -> Sources:
    """Wrap sources so that rows are read as tensors on a device."""
    place = _torch_device(device)
    threads = (
        ThreadPoolExecutor(1, thread_name_prefix="labelwise-blocks"),
        ThreadPoolExecutor(COPIERS, thread_name_prefix="labelwise-copies"),
    )

    def moved(source: Source) -> Source:
        return source if _is_on_device(source, place) else DeviceSource(source, place, *threads)

    return {name: map_models(value, moved) for name, value in sources.items()}


def join_tensors(sources: Sources, device: str) -> Sources:
    """All representations on the device of the tensors: arrays copied once, files streamed."""
    place = _torch_device(device)

    def brought(source: Source) -> Source:
        if not (source.in_memory and source.is_numpy):
            return source
        return ArraySource(_convert_to_tensor(source.read(0, source.shape[0])).to(place))

    return move_to_device(
        {name: map_models(value, brought) for name, value in sources.items()}, device
    )


def _convert_to_tensor(rows: HostArray) -> torch.Tensor:
    """Convert a host array to a tensor, without a copy if torch supports its layout."""
    dtype = _torch_dtype(rows)
    same = rows.dtype.isnative and rows.dtype.itemsize == dtype.itemsize
    if same and rows.flags.c_contiguous and rows.flags.writeable:
        return torch.from_numpy(rows)
    return _copy_rows(torch.empty(rows.shape, dtype=dtype), rows)


def _torch_device(name: str) -> torch.device:
    """Return the named device; a name without a number means the current device of its type."""
    try:
        place = torch.device(name)
        return torch.empty(0, device=place).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise BadInput(
            f"device is {name!r}, which torch cannot use here ({str(error).splitlines()[0]}); "
            "give one that it can, such as 'cpu', or leave it out"
        ) from error


def _is_on_device(source: Source, place: torch.device) -> bool:
    if not source.in_memory or not source.shape[0]:
        return False
    rows = source.read(0, 1)
    return isinstance(rows, torch.Tensor) and rows.device == place


class _Block(NamedTuple):
    """Rows being copied to the device; ``arrived`` is the event of the copy, or None."""

    rows: torch.Tensor
    arrived: Any


class DeviceSource:
    """A `labelwise.pool.sources.source.Source` that returns tensors on a device."""

    in_memory, is_numpy = False, False

    def __init__(
        self,
        source: Source,
        device: torch.device,
        reader: ThreadPoolExecutor,
        copiers: ThreadPoolExecutor,
    ) -> None:
        """Read from ``source`` on the thread of ``reader``; ``copiers`` fill its buffers."""
        self._source, self._device = source, device
        self.shape, self.bytes_per_row = source.shape, source.bytes_per_row
        self.precision, self.held_bytes = source.precision, source.held_bytes
        self._reader, self._copiers = reader, copiers
        self._cuda: Any = torch.cuda
        self._stream = self._cuda.Stream(device) if device.type == "cuda" else None
        self._buffers: list[torch.Tensor | None] = [None, None]
        self._copied: list[Any] = [None, None]
        self._turn, self._size = 0, 0
        self._next: tuple[tuple[int, int], Future[_Block]] | None = None

    def read(self, first: int, last: int) -> Array:
        """Return rows on the device and start to prefetch the rows after them."""
        last = min(last, self.shape[0])
        if last <= first:
            return self.take(np.empty(0, dtype=np.int64))
        block = self._take_prefetched(first, last)
        self._size = max(self._size, last - first)
        after = last if last < self.shape[0] else 0
        if last - first < self.shape[0]:
            span = after, min(after + self._size, self.shape[0])
            self._next = span, self._reader.submit(self._fetch, *span)
        if block.arrived is not None:
            stream = self._cuda.current_stream(self._device)
            stream.wait_event(block.arrived)
            block.rows.record_stream(stream)
        return block.rows

    def take(self, positions: Positions) -> Array:
        """Copy the rows at the given positions to the device."""
        rows = self._reader.submit(self._source.take, positions).result()
        room = torch.empty(tuple(rows.shape), dtype=_torch_dtype(rows))
        return _copy_rows(room, rows).to(self._device)

    def _take_prefetched(self, first: int, last: int) -> _Block:
        """Return the block, from the prefetched rows if they start at ``first``."""
        coming, self._next = self._next, None
        if coming is None or coming[0][0] != first or coming[0][1] < last:
            if coming is not None:
                coming[1].cancel()
            return self._reader.submit(self._fetch, first, last).result()
        block = coming[1].result()
        return block._replace(rows=block.rows[: last - first])

    def _fetch(self, first: int, last: int) -> _Block:
        """Read into the older buffer and copy it to the device; runs on the reader's thread."""
        rows = self._source.read(first, last)
        turn, self._turn = self._turn, 1 - self._turn
        if self._copied[turn] is not None:
            self._copied[turn].synchronize()
        buffer = self._buffers[turn]
        if buffer is None or len(buffer) < len(rows):
            pinned = self._stream is not None
            buffer = torch.empty(tuple(rows.shape), dtype=_torch_dtype(rows), pin_memory=pinned)
            self._buffers[turn] = buffer
        staged = self._copy_rows(buffer[: len(rows)], rows)
        with nullcontext() if self._stream is None else self._cuda.stream(self._stream):
            moved = staged.to(self._device, non_blocking=True, copy=True)
            if self._stream is not None:
                self._copied[turn] = self._cuda.Event()
                self._copied[turn].record()
        return _Block(moved, self._copied[turn])

    def _copy_rows(self, room: torch.Tensor, rows: Array) -> torch.Tensor:
        """Copy host rows to a host buffer of the same shape with several threads."""
        parts = min(COPIERS, max(room.nbytes // LEAST, 1))
        cuts = [len(rows) * part // parts for part in range(parts + 1)]
        slices = [slice(*pair) for pair in pairwise(cuts)]
        jobs = [self._copiers.submit(_copy_rows, room[part], rows[part]) for part in slices]
        for job in jobs:
            job.result()
        return room


def _torch_dtype(rows: Array) -> torch.dtype:
    """Return the torch dtype of the rows; torch has no type wider than float64."""
    if isinstance(rows, torch.Tensor):
        return rows.dtype
    if rows.dtype.kind == "f" and rows.dtype.itemsize > 8:
        return torch.float64
    return torch.from_numpy(np.empty(0, dtype=rows.dtype.newbyteorder("="))).dtype


def _copy_rows(room: torch.Tensor, rows: Array) -> torch.Tensor:
    """Copy host rows to a host buffer of the same shape."""
    if isinstance(rows, torch.Tensor):
        return room.copy_(rows)
    np.copyto(room.numpy(), rows)
    return room


def import_dlpack(value: Any) -> Array:
    """Share the memory of another library's array on a device with torch."""
    from torch.utils.dlpack import from_dlpack

    return from_dlpack(value)
